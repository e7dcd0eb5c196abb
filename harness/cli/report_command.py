"""harness report: stored comparisons, for people who were not there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import click

from harness.cli.options import echo_json, json_option
from harness.cli.verdict_options import fail_on_option
from harness.comparison import ComparisonResult
from harness.config import Config, load_config
from harness.errors import HarnessError, UsageError
from harness.loader import load
from harness.report.verdicts import as_json, exit_code, print_comparison
from harness.review.building import review_of
from harness.review.comment import comment
from harness.review.faces import faces, write_faces
from harness.review.links import Links
from harness.review.model import Place, Review
from harness.review.page import page
from harness.review.places import kernel_places
from harness.review.stored import newest_comparisons, stored_result

FORMATS = ("terminal", "markdown", "html", "github", "json")


@click.command("report")
@click.argument("records", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="terminal",
    show_default=True,
    help="github is every face that a pull request gets, as files.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Where the files of --format github go."
)
@click.option("--results", type=click.Path(path_type=Path), metavar="FOLDER", help="Where records lie.")
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
    found = _results(records, results or config.root / config.results)
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
