"""Posts for a run that measured or compiled a pull request.

The run's job ran the pull request's code, so its files do not decide where to post. GitHub names pull request
and commit, and the commit must still be the head at each write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from harness.ci.forge import Api, quoted
from harness.ci.github import posting
from harness.ci.github.artifacts import fetch_reviews, fetch_static, unpacked
from harness.ci.github.posting import Checks
from harness.ci.github.workflow_events import CompiledRun, MeasuredRun, links_of_run
from harness.ci.posts import MAX_TOTAL_BYTES, PostOutcome, PreparedPost, prepared, read_report, without_report
from harness.ci.sticky_comment import Posted, ReportKey, StaleError
from harness.errors import ConfigError, RefusedError, RemoteError
from harness.report.document.document import Review, decode_review
from harness.report.document.outcome import Links
from harness.report.pull_request.static_comment import static_comment

AUTHOR = "github-actions[bot]"
"""Author of posts with a workflow's own token."""


def prepare(
    api: Api,
    repository: str,
    run: MeasuredRun,
    *,
    server: str,
    history: str = "",
    given: Mapping[str, Review] | None = None,
    strict: bool = False,
    light: bool = False,
) -> PreparedPost:
    """Return everything to post for a run. `given` are reports that need no download.

    With `strict` a neutral check fails, because GitHub accepts it where a check is required. A `light`
    comparison advises: unless somebody named its cases, its check never fails and says so. Raises StaleError,
    RefusedError for a malformed report, ApiError, RemoteError.
    """
    _check_workflow(api, repository, run)
    pull = posting.current_pull(api, repository, run.pull_request, run.head)
    reviews = fetch_reviews(api, repository, run.id) if given is None else given
    page = f"{server}/{repository}"
    this_run = links_of_run().run
    links = Links(
        run=f"{page}/actions/runs/{run.id}",
        page=f"{this_run}#artifacts" if this_run else "",
        history=history,
        repository=page,
    )
    if not reviews:
        summary = (
            f"The [run]({links.run}) that was to measure {run.head} ended as {run.ending} and left no "
            "report, so nothing is known of this commit. Its log says why. Reason: no-report."
        )
        return without_report(links, run.key, summary, strict=strict, light=light)
    return prepared(
        reviews.values(),
        bases=posting.merge_bases(api, repository, (pull.base.ref, run.default_branch), run.head),
        links=links,
        key=run.key,
        unfinished=lambda verdict: _unfinished(run, verdict),
        strict=strict,
        light=light,
    )


def _check_workflow(api: Api, repository: str, run: MeasuredRun) -> None:
    """Raise RefusedError unless a dispatched run used the default branch's workflow file."""
    if run.pushed:
        return
    commit = run.workflow_commit
    if commit not in posting.merge_bases(api, repository, (run.default_branch,), commit):
        raise RefusedError(
            f"The run's workflow file is from {commit}, which is no commit of {quoted(run.default_branch)}: "
            "its measurements are not trusted. Find out who moved the branch that it started on."
        )


def end_unposted(checks: Checks, run: MeasuredRun, error: StaleError | RefusedError) -> None:
    """End the waiting check of a run whose report was refused or came late. Raises RemoteError."""
    refused = isinstance(error, RefusedError)
    conclusion, title = ("failure", "The report was refused") if refused else ("cancelled", "Not posted")
    posting.end_check(checks, checks.with_key(run.key), conclusion, title, quoted(str(error), 1000))


def _unfinished(run: MeasuredRun, verdict: str) -> str:
    """Return a sentence on a run that its verdict does not explain, such as a broken job; else ""."""
    explained = run.pushed and run.conclusion == "failure" and verdict != "success"
    if explained or run.conclusion == "success":
        return ""
    return f"The run ended as {run.ending}: a card may be missing here."


def post(
    api: Api, checks: Checks, run: MeasuredRun, prepared: PreparedPost, *, author: str = AUTHOR
) -> PostOutcome:
    """Post a check run as the App of `checks`, and a comment as the author, if there is a report.

    If one fails, the other is still posted. Raises StaleError, ApiError, RemoteError.
    """
    still_current = partial(posting.current_pull, api, checks.repository, run.pull_request, run.head)
    trouble: list[str] = []
    check = said = None
    try:
        check = posting.post_check(checks, prepared.key, prepared.check, still_current=still_current)
    except RemoteError as error:
        trouble.append(error.message)
    try:
        if text := prepared.comment:
            about = (run.pull_request, prepared.key, text)
            said = posting.post_comment(
                api, checks.repository, *about, author=author, still_current=still_current
            )
    except RemoteError as error:
        trouble.append(error.message)
    if trouble or check is None:
        raise RemoteError(" ".join(trouble))
    return PostOutcome(comment=said, check=check)


def post_static(
    api: Api, repository: str, run: CompiledRun, *, server: str, author: str
) -> tuple[int, Posted]:
    """Post the report of a compiling run. Return its pull request's number and the result of the comment.

    Raises StaleError without a report or a pull request, RefusedError for a malformed report, ApiError,
    RemoteError.
    """
    pull = posting.pull_of_branch(api, repository, run.label, run.head)
    report = fetch_static(api, repository, run.id)
    if report is None:
        raise StaleError("The run has left no static facts: its log says why.")
    page = f"{server}/{repository}"
    links = Links(run=f"{page}/actions/runs/{run.id}", repository=page)
    key = ReportKey(run=run.id, attempt=run.attempt, head=run.head, static=True)
    text = static_comment(report, links, marker=key.marker, about=f"{run.head[:10]} on {pull.base.ref}")
    still_current = partial(posting.current_pull, api, repository, pull.number, run.head)
    posted = posting.post_comment(
        api, repository, pull.number, key, text, author=author, still_current=still_current
    )
    return pull.number, posted


def given_reviews(paths: Iterable[Path]) -> dict[str, Review]:
    """Return the reports in JSON files or archives. Raises ConfigError, RefusedError."""
    found: dict[str, Review] = {}
    for path in paths:
        name = quoted(str(path))
        try:
            with path.open("rb") as file:
                content = file.read(MAX_TOTAL_BYTES + 1)
        except OSError as error:
            raise ConfigError(
                f"{name} cannot be read: {error.strerror or error}. Give a review.json, or an archive that "
                "holds one."
            ) from None
        bare = unpacked(content, name) if content[:2] == b"PK" else content
        found[name] = read_report(bare, name, decode_review)
    return found
