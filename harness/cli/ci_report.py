"""harness ci, in the jobs that may write to the forge: post, post-static, request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from harness.ci.forge import check_address
from harness.ci.github import measured_run, workflow_events
from harness.ci.github.measured_run import AUTHOR, given_reviews
from harness.ci.github.posting import carry_over
from harness.ci.github.requesting import may_ask, start_measurement
from harness.ci.gitlab.gitlab_api import GITLAB
from harness.ci.posts import PostOutcome, PreparedPost
from harness.ci.scaffold import FLEET_FILE, is_light
from harness.ci.sticky_comment import Posted, StaleError
from harness.cli import options
from harness.cli.ci_calling import Calling, app_option, line_safe, warn, with_calling
from harness.errors import RefusedError, UsageError
from harness.report.pull_request.comment_markdown import summary
from harness.report.pull_request.faces import faces, write_faces


@click.command("post", short_help="In the job that may write: check the report, and post it.")
@with_calling
@click.option(
    "--author",
    metavar="LOGIN",
    default=AUTHOR,
    show_default=True,
    help="Account of the token: only its comments are replaced.",
)
@app_option
@options.path(
    "--review",
    "A report or its archive, instead of the run's artifacts; repeatable.",
    metavar="FILE",
    multiple=True,
)
@options.flag(
    "--strict",
    "Fail the check run without a result: GitHub lets a neutral check pass even if it is required.",
)
@options.path("--out", "Also write the posted texts and the page to this folder.")
@options.path(
    "--fleet",
    "The file of cards, which may ask for light comparisons.",
    metavar="FILE",
    default=FLEET_FILE,
    show_default=True,
)
@options.history_url
@options.json
def post(
    calling: Calling,
    author: str,
    app: int | None,
    review: tuple[Path, ...],
    strict: bool,
    out: Path | None,
    fleet: Path,
    history: str,
) -> None:
    """Check the report of the job with the card, and post it: one comment and one check run.

    For a workflow started by workflow_run. GitHub says which pull request and which commit the run belongs
    to. If the report is not valid, it is refused and nothing is posted. If a run left no report, a neutral
    check run says so. In a job of GitLab's the command posts one note on the merge request, and a commit
    status.

    Exit status 0 if the report was posted or the pull request has moved on; 2 if the report was refused; 3 if
    the forge refused or could not be reached.
    """
    history = check_address(history, "--history") if history else ""
    if calling.api.forge is GITLAB:
        _post_to_gitlab(calling, review, out, history, strict=strict)
        return
    checks = calling.checks(app)
    run = workflow_events.measured_run(calling.event, calling.repository)
    about = {"pull_request": run.pull_request, "head": run.head, "run": run.id}
    with calling.showing("So nothing of this run is shown there.", **about) as result:
        try:
            prepared = measured_run.prepare(
                calling.api,
                calling.repository,
                run,
                server=calling.server,
                history=history,
                given=given_reviews(review) if review else None,
                strict=strict,
                light=is_light(fleet),
            )
            _write(prepared, out)
            outcome = measured_run.post(calling.api, checks, run, prepared, author=author)
        except (StaleError, RefusedError) as error:
            measured_run.end_unposted(checks, run, error)
            raise
        names = (f"Pull request {run.pull_request}", "check run", "comment")
        result.update(_posted(calling, prepared, outcome, names))


def _post_to_gitlab(
    calling: Calling, reports: Sequence[Path], out: Path | None, history: str, *, strict: bool
) -> None:
    from harness.ci.gitlab import measured_pipeline
    from harness.report.pull_request.machine_formats import code_quality, openmetrics

    pipeline = measured_pipeline.pipeline_of(os.environ)
    about = {"merge_request": pipeline.merge_request, "head": pipeline.head, "pipeline": pipeline.id}
    # An address is a path below the job's folder, if `out` is below it.
    page = (out / "review.html").as_posix() if out and not out.is_absolute() else ""
    links = measured_pipeline.links_of_job(os.environ, page, history)
    given = given_reviews(reports) if reports else None
    with calling.showing("So nothing of this pipeline is shown there.", **about) as result:
        prepared = measured_pipeline.prepare(
            calling.api, calling.repository, pipeline, links=links, given=given, strict=strict
        )
        _write(prepared, out)
        if (review := prepared.review) is not None and out is not None:
            # Files that GitLab reads from a job's artifacts.
            texts = {"code-quality.json": code_quality(review), "metrics.txt": openmetrics(review)}
            write_faces(out, {name: text.encode() for name, text in texts.items()})
        outcome = measured_pipeline.post(calling.api, calling.repository, pipeline, prepared)
        names = (f"Merge request {pipeline.merge_request}", "commit status", "note")
        result.update(_posted(calling, prepared, outcome, names))


@click.command("post-static", short_help="In the job that may write: check static facts, and post them.")
@with_calling
@click.option(
    "--author",
    metavar="LOGIN",
    default=AUTHOR,
    show_default=True,
    help="Account of the token: only its comments are replaced.",
)
@options.json
def post_static(calling: Calling, author: str) -> None:
    """Check the report of the job that compiled a pull request, and post it as a comment of its own.

    For a workflow started by workflow_run. The other job runs 'harness static --base COMMIT --report FILE',
    and any pull request may start it. GitHub says which pull request has the run's commit as its head.

    Exit status 0 if the report was posted or there is nothing to post; 2 if the report was refused; 3 if
    GitHub refused or could not be reached.
    """
    if calling.api.forge is GITLAB:
        raise UsageError(
            "Static facts can be posted only at GitHub. 'harness static --base COMMIT --markdown FILE' "
            "writes what changed, for a job's artifacts."
        )
    run = workflow_events.compiled_run(calling.event, calling.repository)
    with calling.showing("So nothing of this run is shown.", head=run.head, run=run.id) as result:
        number, posted = measured_run.post_static(
            calling.api, calling.repository, run, server=calling.server, author=author
        )
        message = f"Pull request {number}: comment {_what(calling, posted)}."
        result.update(state="posted", pull_request=number, message=message, comment=asdict(posted))


def _write(prepared: PreparedPost, out: Path | None) -> None:
    """Write the files of a post before it is sent, so that a refused post can be examined."""
    review, links = prepared.review, prepared.links
    if review is None:
        workflow_events.append_summary(f"{prepared.check['output']['summary']}\n")
        return
    workflow_events.append_summary(summary(review, links))
    if out is not None:
        posted = {"comment.md": prepared.comment.encode(), "check.json": line_safe(prepared.check).encode()}
        write_faces(out, {**faces(review, links), **posted})


def _posted(
    calling: Calling, prepared: PreparedPost, outcome: PostOutcome, names: tuple[str, str, str]
) -> dict[str, Any]:
    request, check, comment = names
    parts = [f"{request}: {check} {_what(calling, outcome.check)}"]
    if outcome.comment:
        parts.append(f"{comment} {_what(calling, outcome.comment)}")
    if not prepared.review:
        parts.append("the run left no report")
    return {
        "state": "posted" if prepared.review else "no-report",
        "message": f"{'; '.join(parts)}.",
        "comment": outcome.comment and asdict(outcome.comment),
        "check": asdict(outcome.check),
    }


def _what(calling: Calling, posted: Posted) -> str:
    if posted.action == "left":
        return f"left unchanged, because a newer run wrote it ({posted.url})"
    would = "would be " if calling.api.dry_run else ""
    return f"{would}{posted.action}{f' ({posted.url})' if posted.url else ''}"


@click.command("request", short_help="Start a measurement that a maintainer asked for in a comment.")
@with_calling
@options.value(
    "--automatic",
    "WHICH",
    "Measure pushes to the repository's own branches unasked: 'drafts' for all pull requests, another word "
    "for those that are ready; default: none.",
    default="",
)
@options.flag("--strict", "In a merge queue, fail a commit that was not measured.")
@app_option
@options.json
def request(calling: Calling, automatic: str, strict: bool, app: int | None) -> None:
    """Start a measurement if a comment's first line is '/perf SHA [CASES]', with all 40 digits of the commit.

    For a workflow started by issue_comment. The author of the comment must have write access, and the commit
    must be the pull request's head at that moment: only a commit that somebody has reviewed is measured. The
    comment gets a reaction, and a check shows that the run waits. A refused request is answered with the
    reason; '/perf' without a commit is answered with the line to paste. The run starts on the branch
    perf-dispatch, which is moved to the default branch's commit.

    Started by pull_request with --automatic, it measures pushes of people with write access to the
    repository's own branches unasked. Started by merge_group, or by the end of a run that it has started, it
    gives the queue's commit the conclusion of the pull request.

    Exit status 0 if a measurement was started or none was requested, 2 if it was refused.
    """
    if calling.api.forge is GITLAB:
        raise UsageError(
            "At GitLab a comment starts nothing: start a pipeline of the default branch with the variables "
            "PERF_MERGE_REQUEST and PERF_COMMIT."
        )
    kind = workflow_events.kind_of(calling.event)
    if kind in ("merge_group", "workflow_run"):
        read = workflow_events.queued if kind == "merge_group" else workflow_events.queued_run
        _carry_over(calling, read(calling.event, calling.repository), app, strict=strict)
        return
    asked: workflow_events.MeasurementRequest | str | None
    if kind == "pull_request":
        asked = _pushed(calling, automatic)
    else:
        asked = workflow_events.measurement_asked(calling.event, calling.repository)
    if not isinstance(asked, workflow_events.MeasurementRequest):
        why = asked or "the comment is not new, not on a pull request, or no /perf line"
        calling.show(state="no-request", message=f"No request: {why}.")
        return
    # The App's key is only for workflows of the default branch. A push is reported by the pull request's own.
    checks = None if app and kind == "pull_request" else calling.checks(app)
    started = start_measurement(calling.api, calling.repository, asked, checks)
    what = " ".join((started.commit, *started.cases))
    message = (
        f"{'Would measure' if calling.api.dry_run else 'Measuring'} {what} of pull request "
        f"{asked.pull_request}, as {asked.login} asked.{f' {started.url}' if started.url else ''}"
    )
    about = {"pull_request": asked.pull_request, "login": asked.login, **asdict(started)}
    for trouble in started.untold:
        warn("Not shown on the pull request", trouble)
    calling.show(state="requested", message=message, **about)


def _pushed(calling: Calling, automatic: str) -> workflow_events.MeasurementRequest | str:
    """Return the measurement that a push requests, or why there is none. Raises RefusedError, ApiError,
    RemoteError.
    """
    if not automatic:
        return "no push is measured unasked here"
    asked = workflow_events.pushed(calling.event, calling.repository, drafts=automatic == "drafts")
    if isinstance(asked, workflow_events.MeasurementRequest) and not may_ask(
        calling.api, calling.repository, asked.login
    ):
        return f"{asked.login} may not write to {calling.repository}"
    return asked


def _carry_over(
    calling: Calling, queued: workflow_events.Queued | None, app: int | None, *, strict: bool
) -> None:
    if queued is None:
        calling.show(state="no-request", message="No request: the queue waits for no check.")
        return
    # The pull request may have been merged or removed from the queue, which then no longer waits.
    with calling.showing(f"So {queued.commit} gets no conclusion.") as result:
        carried = carry_over(calling.api, calling.checks(app), queued, strict=strict)
        message = f"{queued.commit} gets the conclusion of {carried.measured}: {carried.conclusion}."
        result.update(state="carried-over", message=message)
        result.update(pull_request=queued.pull_request, commit=queued.commit, **asdict(carried))
