"""harness import: files of other harnesses as records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli import echo_json, options, tell
from harness.config import load_config
from harness.errors import MeasureError
from harness.system import git

if TYPE_CHECKING:
    from harness.records.imports.imported import Format


@click.command("import")
@click.argument("harness", type=options.FORMATS)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@options.commit("--commit", help="What was measured; default: the commit that the file names, else HEAD.")
@options.value("--suite", "NAME", "Default: the executable's name.")
@options.value("--machine", "NAME", "Folder of records of that card; default: after its name.")
@options.path("--results", "Where records go; default: the project's.")
@options.json
def command(
    harness: Format,
    files: tuple[Path, ...],
    commit: str | None,
    suite: str | None,
    machine: str | None,
    results: Path | None,
    as_json: bool,
) -> None:
    """Keep what a C++ benchmark executable measured at a commit, as records that history and pages read.

    FILE is what nvbench writes with --json or --jsonbin, and Google Benchmark with --benchmark_out. Nothing
    in it was verified or watched by the harness. To have two commits judged, have them run in turns: 'harness
    compare BASE HEAD --with-command COMMAND'.
    """
    from harness.cli.compare_command import repository_of
    from harness.cli.executable_options import source_at
    from harness.history.row_summary import summary_of
    from harness.records.imports.imported_files import read_imported
    from harness.report.terminal.run_tables import imported_table, print_end, print_out
    from harness.run.importing import commit_of, reasons_of, suite_of, write_imported

    config = load_config()
    read = [read_imported(path, harness) for path in files]  # all of them, before anything is written
    suites = [suite_of(file, suite) for file in read]
    repository = repository_of(config)
    commits = [git.resolve(repository, commit or commit_of(file) or "HEAD") for file in read]
    for file, at in zip(read, commits, strict=True):
        if (told := commit_of(file)) and not at.startswith(told):
            tell(f"{file.path} says that commit {told} was measured; --commit says {at[:10]}.")
    folder = results or config.results_folder
    written = [
        one
        for file, name, at in zip(read, suites, commits, strict=True)
        for one in write_imported(file, source_at(repository, at, name), folder, machine)
    ]
    if as_json:
        echo_json(
            [
                {
                    "run": one.run,
                    "file": str(one.file),
                    "machine": one.machine,
                    "record": str(one.path),
                    "problems": one.problems,
                    "rows": [{"row": row, "summary": summary_of(row, one.run)} for row in one.rows],
                }
                for one in written
            ]
        )
    else:
        for one in written:
            print_out(imported_table(one.run, one.rows))
            click.echo("Nothing here was verified or watched: the figures are the executable's own.\n")
            for words in (*reasons_of(one.rows), *one.problems):
                tell(words)
            print_end("", one.path, "")
    if not any(row.measurement for one in written for row in one.rows):
        raise MeasureError("No benchmark has a time: the rows hold the reasons, and no figure was kept.")
