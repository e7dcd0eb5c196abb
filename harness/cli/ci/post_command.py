"""harness ci post: what the job that may write does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from harness.cli.ci.calling import Calling, annotated, calling_options, line_safe
from harness.cli.options import flag, json_option, path_option
from harness.errors import ExitCode
from harness.github.api import check_address
from harness.github.events import append_summary, measured_run, read_event
from harness.github.posting import Posted, StaleError
from harness.github.reporting import AUTHOR, Outcome, Prepared, given_reviews, post, prepare
from harness.output.review.faces import faces, write_faces
from harness.output.review.markdown import summary


@click.command("post")
@calling_options
@click.option("--author", metavar="LOGIN", default=AUTHOR, show_default=True, help="Who the token is.")
@click.option(
    "--review",
    "reviews",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="A report or its archive, in place of the run's artifacts; repeatable.",
)
@flag("--strict", "Fail the check run where nothing is known, which GitHub would let pass as neutral.")
@path_option("--out", "Write what is posted, and the page, there.")
@click.option("--history", metavar="URL", default="", help="The published pages, to link to.")
@json_option
def command(reviews: tuple[Path, ...], out: Path | None, history: str, **options: Any) -> ExitCode:
    """Check what the job with the card has left, and post it: one comment, and one check run.

    For a workflow started by workflow_run. The pull request and its commit are what GitHub says they are. A
    report that is not what it should be is refused, and then nothing is posted; where a run left none, a
    neutral check run says so.

    Exit status 0 where it was posted, or the pull request has moved on; 2 where the report was refused; 3
    where GitHub could not be reached, or refused.
    """
    with annotated("harness ci post"):
        calling = Calling.of(
            options["event"], options["repository"], options["api"], dry_run=options["dry_run"]
        )
        history = check_address(history, "--history") if history else ""
        run = measured_run(read_event(calling.event), calling.repository)
        told: dict[str, Any] = {"pull_request": run.pull_request, "head": run.head, "run": run.id}
        try:
            prepared = prepare(
                calling.api,
                calling.repository,
                run,
                server=calling.server,
                history=history,
                given=given_reviews(reviews) if reviews else None,
                strict=options["strict"],
            )
            _write(prepared, out)
            outcome = post(calling.api, prepared, author=options["author"])
        except StaleError as stale:
            told |= {"state": "stale", "message": f"{stale} So nothing of this run is shown there."}
        else:
            told |= _told(prepared, outcome, dry_run=options["dry_run"])
    calling.show(told, as_json=options["as_json"])
    return ExitCode.FINE


def _write(prepared: Prepared, out: Path | None) -> None:
    """The files of what is about to be posted: what GitHub then refuses can be looked at."""
    review, links = prepared.review, prepared.links
    if review is None:
        append_summary(f"{prepared.check['output']['summary']}\n")
        return
    append_summary(summary(review, links))
    if out is not None:
        posted = {"comment.md": prepared.comment.encode(), "check.json": line_safe(prepared.check).encode()}
        write_faces(out, {**faces(review, links), **posted})


def _told(prepared: Prepared, outcome: Outcome, *, dry_run: bool) -> dict[str, Any]:
    state = "posted" if prepared.review else "no-report"
    would = "would be " if dry_run else ""
    parts = [f"Pull request {prepared.run.pull_request}: check run {_what(outcome.check, would)}"]
    if outcome.comment:
        parts.append(f"comment {_what(outcome.comment, would)}")
    if not prepared.review:
        parts.append("the run left no report")
    return {
        "state": state,
        "message": f"{'; '.join(parts)}.",
        "comment": outcome.comment and dataclasses.asdict(outcome.comment),
        "check": dataclasses.asdict(outcome.check),
    }


def _what(posted: Posted, would: str) -> str:
    if posted.action == "left":
        return f"left as it is, that of a newer run ({posted.url})"
    return f"{would}{posted.action}{f' ({posted.url})' if posted.url else ''}"
