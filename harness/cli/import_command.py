"""harness import: turns files of other harnesses into records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.cli import echo_json, options, tell
from harness.config import load_config
from harness.errors import MeasureError, UsageError
from harness.numbers import counted
from harness.system import git

if TYPE_CHECKING:
    from harness.records.imports.imported import Format, ImportedFile
    from harness.records.imports.quantities import Better
    from harness.run.importing import ImportedRun

_UNWATCHED = "Nothing here was verified or watched: the figures are the executable's own."


@click.command("import")
@click.argument(
    "harness",
    type=options.Choice((*options.FORMATS.choices, "csv", "github-action-benchmark", "bencher", "asv")),
)
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@options.commit("--commit", help="The measured commit; default: the one that the file names, else HEAD.")
@options.value("--suite", "NAME", "Name of the suite; default: the executable's name.")
@options.value("--machine", "NAME", "Folder of records of this card or host; default: made from its name.")
@click.option(
    "--better",
    type=options.Choice(("higher", "lower")),
    help="Better direction of github-action-benchmark's results; data.js contains it.",
)
@options.path("--results", "Folder for records; default: the project's.")
@options.json
def command(
    harness: Format | Literal["asv"],
    files: tuple[Path, ...],
    commit: str | None,
    suite: str | None,
    machine: str | None,
    better: Better | None,
    results: Path | None,
    as_json: bool,
) -> None:
    """Turn result files of other benchmark tools into records, which 'history' and 'publish' read.

    FILE is written by nvbench with --json or --jsonbin, Google Benchmark with --benchmark_out, pytest with
    --benchmark-json, hyperfine with --export-json, or by any program as lines or CSV. A table in CSV and
    github-action-benchmark's data.js become a record for each of their commits. The harness has not verified
    or watched anything in a file. To compare two commits, run 'harness compare BASE HEAD --with-command
    COMMAND'.

    'harness import asv' takes no FILE. It makes records of results of suites that only asv's files hold, for
    example after a record was lost.
    """
    if harness == "asv":
        if files or commit or suite or machine or better:
            raise UsageError("'harness import asv' reads a whole results folder: it takes --results alone.")
        _import_asv(results, as_json=as_json)
    elif not files:
        raise UsageError(f"'harness import {harness}' needs at least one FILE that {harness} wrote.")
    else:
        read = _read(harness, files, commit, suite, better)
        _import_files(read, commit, suite, machine, results, as_json=as_json)


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


def _read(
    harness: Format, paths: Sequence[Path], commit: str | None, suite: str | None, better: Better | None
) -> list[ImportedFile]:
    """Read all files before writing anything."""
    from harness.records.imports.imported_files import read_for_import

    read: list[ImportedFile] = []
    for path in paths:
        found = read_for_import(path, harness, better)
        if commit and len(found) > 1:
            raise UsageError(f"{path} names the commits of its {len(found)} results: leave out --commit.")
        if suite and len(names := {file.executable for file in found}) > 1:
            raise UsageError(
                f"{path} has {len(names)} suites, and their results cannot all be {suite}: leave out --suite."
            )
        read += found
    return read


def _import_files(
    read: Sequence[ImportedFile],
    commit: str | None,
    suite: str | None,
    machine: str | None,
    results: Path | None,
    *,
    as_json: bool,
) -> None:
    from harness.cli.compare_command import repository_of
    from harness.history.row_summary import summary_of
    from harness.run.executables.executable_build import source_at
    from harness.run.importing import suite_of, write_imported

    config = load_config()
    repository = repository_of(config)
    read = _of_known_commits(repository, read)
    suites = [suite_of(file, suite) for file in read]
    commits = [git.resolve(repository, commit or file.commit or "HEAD") for file in read]
    for file, at in zip(read, commits, strict=True):
        if file.commit and not at.startswith(file.commit):
            tell(f"{file.path} says that commit {file.commit} was measured; --commit says {at[:10]}.")
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
        _print_imported(written)
    if not any(row.measurement for one in written for row in one.rows):
        raise MeasureError("No benchmark has a time: the rows hold the reasons, and no figure was kept.")


def _of_known_commits(repository: Path, read: Sequence[ImportedFile]) -> list[ImportedFile]:
    """Drop commits that the repository lacks from histories, and report them."""
    often = Counter(file.path for file in read)
    known = [
        file
        for file in read
        if often[file.path] == 1 or (file.commit and git.is_commit(repository, file.commit))
    ]
    if lacking := {file.commit for file in read} - {file.commit for file in known}:
        words = f"Results of {counted(len(lacking), 'commit')} are left out: {repository} does not have them."
        hint = (
            "Fetch the whole history with 'git fetch --unshallow', or import in the repository that has it."
        )
        if not known:
            raise UsageError(f"{words} Nothing is left to import. {hint}")
        tell(f"{words} {hint}")
    return known


def _print_imported(written: Sequence[ImportedRun]) -> None:
    """Print the rows of each record; for a history of commits, the number of records."""
    from harness.report.terminal.run_tables import imported_table, print_end, print_out
    from harness.run.importing import reasons_of

    for path, group in groupby(written, key=attrgetter("file")):
        of_file = list(group)
        commits = list(dict.fromkeys(str(one.run.source.commit)[:10] for one in of_file))
        if len(commits) > 1:
            ends = f"{commits[0]} to {commits[-1]}"
            folders = ", ".join(dict.fromkeys(str(one.path.parent) for one in of_file))
            click.echo(f"{path}: {counted(len(of_file), 'record')} of {ends} in {folders}. {_UNWATCHED}")
        else:
            for one in of_file:
                print_out(imported_table(one.run, one.rows))
                click.echo(f"{_UNWATCHED}\n")
        for words in dict.fromkeys(
            each for one in of_file for each in (*reasons_of(one.rows), *one.problems)
        ):
            tell(words)
        if len(commits) == 1:
            for one in of_file:
                print_end("", one.path, "")
