"""From a run that measured a pull request to what is posted of it.

The run's job with the card ran the pull request's code, so nothing that it left says where anything is
posted: pull request and commit are GitHub's own word, and the commit must still be the pull request's head at
each write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, RefusedError, RemoteError
from harness.github.api import Api
from harness.github.artifacts import MAX_TOTAL_BYTES, fetch_reviews, merged, read_review, unpacked
from harness.github.events import MeasuredRun, links_of_run, quoted
from harness.github.posting import (
    Posted,
    Stamp,
    current_pull,
    end_queued,
    merge_bases,
    post_check,
    post_comment,
)
from harness.output.review.faces import check_name, check_run
from harness.output.review.grouping import Links
from harness.output.review.markdown import comment
from harness.output.review.model import Review
from harness.output.review.plausible import problems

_LIGHT = (
    "A light comparison, to advise: the quick sizes only, and for a minute. The history measures all of what "
    "is merged."
)
AUTHOR = "github-actions[bot]"
"""Of what is posted with a workflow's own token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    repository: str
    run: MeasuredRun
    links: Links
    review: Review | None
    """None where the run left no report."""
    comment: str
    """Empty for none."""
    check: Mapping[str, Any]
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of what was to be posted; no comment where there was none."""

    comment: Posted | None
    check: Posted


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
) -> Prepared:
    """All that is posted of a run; `given` are its reports, where they are not to be fetched. With `strict`
    a check that would be neutral fails: GitHub lets a neutral one pass where it is required. A `light`
    comparison advises: unless somebody named its cases it is said to be one, and its check never fails.

    Raises StaleError, RefusedError for a report that is not what it should be, ApiError, RemoteError.
    """
    light = light and not run.partial
    _check_workflow(api, repository, run)
    pull = current_pull(api, repository, run.pull_request, run.head)
    reviews = fetch_reviews(api, repository, run.id) if given is None else given
    page = f"{server}/{repository}"
    here = links_of_run().run
    links = Links(
        run=f"{page}/actions/runs/{run.id}",
        page=f"{here}#artifacts" if here else "",
        history=history,
        repository=page,
    )
    stamp = _stamp(run)
    review = merged(reviews.values()) if reviews else None
    said, check = "", _without_report(run, links)
    if review is not None:
        bases = merge_bases(api, repository, (pull.base.ref, run.default_branch), run.head)
        if found := problems(review, bases=bases, head=run.head):
            why = " ".join(map(quoted, found))
            raise RefusedError(f"The report cannot be what was measured, so nothing is posted: {why}")
        check = check_run(review, links)
        unfinished = _unfinished(run, check["conclusion"])
        paragraphs = [unfinished, _LIGHT if light else ""]
        opening = "\n\n".join([stamp.marker, *(f"<p>{said}</p>" for said in paragraphs if said)])
        said = comment(review, links, marker=opening)
        if unfinished and check["conclusion"] == "success":
            output = {**check["output"], "title": unfinished, "text": unfinished}
            check = {**check, "conclusion": "neutral", "output": output}
    check = {**check, "name": check_name(partial=run.partial)}
    if light:
        check = _advisory(check)
    elif strict and check["conclusion"] == "neutral":
        check = {**check, "conclusion": "failure"}
    return Prepared(
        repository=repository, run=run, links=links, review=review, comment=said, check=check, stamp=stamp
    )


def _advisory(check: Mapping[str, Any]) -> dict[str, Any]:
    output = {**check["output"], "title": f"Light: {check['output']['title']}"[:255]}
    conclusion = "neutral" if check["conclusion"] == "failure" else check["conclusion"]
    return {**check, "conclusion": conclusion, "output": output}


def _check_workflow(api: Api, repository: str, run: MeasuredRun) -> None:
    """Raises RefusedError unless a dispatched run took its workflow file from the default branch: whoever may
    push could have moved the branch that it was dispatched on.
    """
    if run.pushed:
        return
    commit = run.workflow_commit
    if commit not in merge_bases(api, repository, (run.default_branch,), commit):
        raise RefusedError(
            f"The run's workflow file is from {commit}, which is no commit of {quoted(run.default_branch)}: "
            "nothing is known of what it measured. Find out who moved the branch that it was started on."
        )


def _stamp(run: MeasuredRun) -> Stamp:
    return Stamp(run=run.id, attempt=run.attempt, head=run.head, partial=run.partial)


def end_unposted(api: Api, repository: str, run: MeasuredRun, why: str, *, refused: bool = False) -> None:
    """End the check that waited for a run of which nothing is posted: its report was refused, or the pull
    request has moved on. Raises ApiError, RemoteError.
    """
    end_queued(
        api,
        repository,
        _stamp(run),
        check_name(partial=run.partial),
        conclusion="failure" if refused else "cancelled",
        title="The report was refused" if refused else "Not posted",
        why=quoted(why, 1000),
    )


def _unfinished(run: MeasuredRun, verdict: str) -> str:
    """What is said of a run that ended otherwise than its verdict explains, such as by a broken job."""
    explained = run.pushed and run.conclusion == "failure" and verdict != "success"
    if explained or run.conclusion == "success":
        return ""
    return f"The run ended as {run.ending}: a card may be missing here."


def _without_report(run: MeasuredRun, links: Links) -> dict[str, Any]:
    return {
        "name": check_name(partial=run.partial),
        "status": "completed",
        "conclusion": "neutral",
        "details_url": links.run,
        "output": {
            "title": "No report",
            "summary": f"The [run]({links.run}) that was to measure {run.head} ended as {run.ending} and "
            f"left no report, so nothing is known of this commit. Its log says why. Reason: no-report.",
        },
    }


def post(api: Api, prepared: Prepared, *, author: str = AUTHOR) -> Outcome:
    """Post a check run, and a comment where there is a report.

    One that cannot be posted does not keep the other from it. Raises StaleError, ApiError, RemoteError.
    """
    run, repository = prepared.run, prepared.repository

    def still_current() -> None:
        current_pull(api, repository, run.pull_request, run.head)

    trouble: list[str] = []
    check = said = None
    try:
        check = post_check(api, repository, prepared.stamp, prepared.check, still_current=still_current)
    except RemoteError as error:
        trouble.append(error.message)
    try:
        if text := prepared.comment:
            about = (run.pull_request, prepared.stamp, text)
            said = post_comment(api, repository, *about, author=author, still_current=still_current)
    except RemoteError as error:
        trouble.append(error.message)
    if trouble or check is None:
        raise RemoteError(" ".join(trouble))
    return Outcome(comment=said, check=check)


def given_reviews(paths: Iterable[Path]) -> dict[str, Review]:
    """Reports in files, archives or bare. Raises ConfigError, RefusedError."""
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
        found[name] = read_review(unpacked(content, name) if content[:2] == b"PK" else content, name)
    return found
