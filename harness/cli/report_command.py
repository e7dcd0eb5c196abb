"""harness report: writes stored comparisons in formats for readers and CI systems."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from harness.cli import LazyGroup, options
from harness.cli.compare_command import show
from harness.config import Config, load_config
from harness.errors import HarnessError, UsageError
from harness.records.record_files import ComparisonResult
from harness.report.document.document import SourceLine
from harness.report.document.from_results import kernel_places, review_of
from harness.report.document.outcome import Links
from harness.report.pull_request.comment_markdown import comment
from harness.report.pull_request.faces import faces, page, write_faces
from harness.report.pull_request.machine_formats import code_quality, junit, openmetrics, sarif
from harness.report.terminal.comparison_tables import exit_code
from harness.run.stored_comparisons import newest_comparisons, stored_result
from harness.suite.loader import load

_FOR_OTHERS = {"junit": junit, "sarif": sarif, "code-quality": code_quality, "openmetrics": openmetrics}
FORMATS = ("terminal", "markdown", "html", "github", *_FOR_OTHERS, "json")
COMMANDS = {
    "ladder": "Show published figures of the same kernels next to ours.",
    "bounds": "Compare measured times with the shortest times by arithmetic.",
}


class _Report(LazyGroup):
    """A group with its own commands. Without a command, its first word is a record."""

    summaries = COMMANDS
    prefix = "harness.cli.report_"

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and (found := self.get_command(click.Context(self), args[0])):
            return found.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)


@click.command(
    "report",
    cls=_Report,
    invoke_without_command=True,
    # Otherwise a group would take an option after a record for another record.
    context_settings={"allow_interspersed_args": True},
)
@click.argument("records", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    type=options.Choice(FORMATS),
    default="terminal",
    show_default=True,
    help=f"{', '.join(FORMATS)}; github writes all files for a pull request.",
)
@options.path("--out", "Folder for the files of --format github.")
@options.path("--results", "Folder of records; default: the project's.")
@options.value(
    "--repository", "URL", "Address of the repository, for links to commits and lines.", default=""
)
@options.value("--run", "URL", "Address of the CI run that measured, for a link.", default="")
@options.history_url
@options.fail_on
@options.json
def command(
    records: tuple[Path, ...],
    form: str,
    out: Path | None,
    results: Path | None,
    repository: str,
    run: str,
    history: str,
    fail_on: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write the result of comparisons as a pull request's comment, a job summary, a page, or for another CI.

    RECORD is a comparison's file; default: the newest comparison, on every card and of every suite.
    """
    if (form == "github") != (out is not None):
        raise UsageError("--format github writes files: name their folder with --out, and nowhere else.")
    config = load_config()
    stored = [stored_result(path) for path in records]
    found = stored or newest_comparisons(results or config.results_folder)
    if as_json or form in ("terminal", "json"):
        return show(found, fail_on, as_json=as_json or form == "json")
    links = Links(run=run, history=history, repository=repository.rstrip("/"))
    review = review_of(found, {each.comparison.head.suite: _places(config, each) for each in found})
    if form == "markdown":
        click.echo(comment(review, links))
    elif form == "html":
        click.echo(page(review, links))
    elif form in _FOR_OTHERS:
        click.echo(_FOR_OTHERS[form](review), nl=False)
    elif out is not None:
        files = faces(review, links)
        write_faces(out, files)
        click.echo(f"Written to {out}: {', '.join(files)}.", err=True)
    return exit_code(found, fail_on)


def _places(config: Config, result: ComparisonResult) -> dict[str, SourceLine]:
    """Return the first lines of the kernels at head, if this repository has that commit."""
    head = result.comparison.head
    with contextlib.suppress(HarnessError):
        return kernel_places(load(config.root / head.path, None if head.dirty else head.commit))
    return {}
