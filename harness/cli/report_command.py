"""harness report: stored comparisons, for people who were not there."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness.cli.options import echo_json, json_option, path_option
from harness.cli.verdict_options import fail_on_option
from harness.config import Config, load_config
from harness.errors import HarnessError, UsageError
from harness.output.review.building import review_of
from harness.output.review.comment import comment
from harness.output.review.faces import faces, write_faces
from harness.output.review.links import Links
from harness.output.review.model import Place, Review
from harness.output.review.page import page
from harness.output.review.source_lines import kernel_places
from harness.output.review.stored import newest_comparisons, stored_result
from harness.output.verdicts import as_json, exit_code, print_comparison
from harness.run.compare import ComparisonResult
from harness.spec.loader import load

FORMATS = ("terminal", "markdown", "html", "github", "json")


COMMANDS = {"ladder": "Show what others published of the same kernels, and ours beside it."}


class _Report(click.Group):
    """Commands of its own, and without one of them what it says itself: its first word is a record, then."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"harness.cli.report.{cmd_name}_command").command
        return found

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in COMMANDS:
            found = importlib.import_module(f"harness.cli.report.{args[0]}_command").command
            made: click.Context = found.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
            return made
        return super().make_context(info_name, args, parent, **extra)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.command("report", cls=_Report, invoke_without_command=True)
@click.argument("records", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="terminal",
    show_default=True,
    help="github is every face that a pull request gets, as files.",
)
@path_option("--out", "Where the files of --format github go.")
@path_option("--results", "Where records lie.")
@click.option(
    "--repository", metavar="URL", default="", help="The repository's page, to link to lines of it."
)
@click.option("--run", metavar="URL", default="", help="The run that measured, to link to.")
@click.option("--history", metavar="URL", default="", help="The published pages, to link to.")
@fail_on_option
@json_option
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
    """Write what comparisons found as a pull request's comment, a job summary, a page.

    RECORD is a comparison's file; default: the newest comparison, on every card and of every suite.
    """
    if (form == "github") != (out is not None):
        raise UsageError("--format github writes files: name their folder with --out, and nowhere else.")
    config = load_config()
    found = _results(records, results or config.results_folder)
    status = exit_code(found, fail_on)
    links = Links(run=run, history=history, repository=repository.rstrip("/"))
    if as_json or form == "json":
        echo_json([_as_json(result) for result in found])
    elif form == "terminal":
        print_comparison(found, status)
    else:
        _write(_review(config, found), form, links, out)
    return status


_as_json = as_json


def _results(records: Sequence[Path], results: Path) -> list[ComparisonResult]:
    return [stored_result(path) for path in records] if records else newest_comparisons(results)


def _review(config: Config, results: Sequence[ComparisonResult]) -> Review:
    return review_of(results, {result.comparison.head.suite: _places(config, result) for result in results})


def _places(config: Config, result: ComparisonResult) -> dict[str, Place]:
    """Where the kernels begin at head, if this repository has that commit: it may be another one."""
    head = result.comparison.head
    with contextlib.suppress(HarnessError):
        return kernel_places(load(config.root / head.path, None if head.dirty else head.commit))
    return {}


def _write(review: Review, form: str, links: Links, out: Path | None) -> None:
    if form == "markdown":
        click.echo(comment(review, links))
    elif form == "html":
        click.echo(page(review, links))
    elif out is not None:
        files = faces(review, links)
        write_faces(out, files)
        click.echo(f"Written to {out}: {', '.join(files)}.", err=True)
