"""harness import: files of other harnesses as records."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.cli import echo_json, options, tell
from harness.config import load_config
from harness.errors import MeasureError, UsageError
from harness.numbers import counted
from harness.system import git

if TYPE_CHECKING:
    from harness.records.imports.imported import Format


@click.command("import")
@click.argument("harness", type=click.Choice((*options.FORMATS.choices, "asv")))
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@options.commit("--commit", help="What was measured; default: the commit that the file names, else HEAD.")
@options.value("--suite", "NAME", "Default: the executable's name.")
@options.value("--machine", "NAME", "Folder of records of that card; default: after its name.")
@options.path("--results", "Where records go; default: the project's.")
@options.json
def command(
    harness: Format | Literal["asv"],
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

    'harness import asv' takes no FILE: it makes records of the results of suites that only asv's files in the
    results folder hold, as those of a record that was lost.
    """
    if harness == "asv":
        if files or commit or suite or machine:
            raise UsageError("'harness import asv' reads a whole results folder: it takes --results alone.")
        _import_asv(results, as_json=as_json)
    elif not files:
        raise UsageError(f"'harness import {harness}' needs at least one FILE that {harness} wrote.")
    else:
        _import_files(harness, files, commit, suite, machine, results, as_json=as_json)


def _import_asv(results: Path | None, *, as_json: bool) -> None:
    from harness.history.sources.our_records import read_commits
    from harness.integrations.asv.conf import history_of
    from harness.run.importing_asv import import_asv

    conf = history_of(load_config(), None, results)
    written = list(import_asv(conf.results, read_commits(conf.repository)))
    if as_json:
        echo_json([{**asdict(one), "records": list(map(str, one.records))} for one in written])
        return
    for one in written:
        records = counted(len(one.records), "record")
        click.echo(f"{one.card}: {counted(one.results, 'result')} of asv's files are in {records} now.")
        if one.left_out:
            left = counted(one.left_out, "result")
            tell(f"{one.card}: {left} stay in asv's files alone: no time, or names that no record can have.")
    if not written:
        click.echo("Nothing to import: records hold every result of a suite that asv's files have.")


def _import_files(
    harness: Format,
    files: tuple[Path, ...],
    commit: str | None,
    suite: str | None,
    machine: str | None,
    results: Path | None,
    *,
    as_json: bool,
) -> None:
    from harness.cli.compare_command import repository_of
    from harness.history.row_summary import summary_of
    from harness.records.imports.imported_files import read_imported
    from harness.report.terminal.run_tables import imported_table, print_end, print_out
    from harness.run.executables.executable_build import source_at
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
