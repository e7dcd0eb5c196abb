"""Note and commit status for a pipeline that measured a merge request.

Reports are read from the API into memory, because an unpacked artifact may put any file beside this code.
GitLab names the merge request's commit at each write.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from harness.ci.forge import Api, ApiError, quoted
from harness.ci.gitlab.gitlab_api import path_of
from harness.ci.posts import PostOutcome, PreparedPost, prepared, read_reviews, without_report
from harness.ci.sticky_comment import Comment, Posted, ReportKey, StaleError, StickyComment
from harness.errors import ConfigError, RefusedError, RemoteError
from harness.report.document.document import LIMITS, Review
from harness.report.document.outcome import Links

JOB = "perf-measure"
"""Name of the job with the card. A matrix has several, called ``perf-measure: [CARD, …]``."""
REPORT = "perf-review/review.json"
"""Path of the report, relative to the job's folder."""
_STATES = {"success": "success", "failure": "failed", "neutral": "skipped"}
"""Commit status by a check run's conclusion. GitLab has no neutral status: skipped is grey, and passes."""
_DESCRIPTION_CHARACTERS = 255
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_QUICK_ACTION = re.compile(r"^([ \t]*)/", re.MULTILINE)
_NEEDS = "the scope api and the role Developer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline with its merge request and measured commit, by the job's variables."""

    id: int
    merge_request: int
    head: str
    own: bool
    """True for the merge request's own pipeline, False for one started on another branch."""


def pipeline_of(environ: Mapping[str, str]) -> Pipeline:
    """Return the pipeline by GitLab's variables or by PERF_MERGE_REQUEST, PERF_COMMIT. Raises ConfigError."""
    asked = environ.get("PERF_MERGE_REQUEST", "")
    if asked:
        number, head = asked, environ.get("PERF_COMMIT", "")
    else:
        number = environ.get("CI_MERGE_REQUEST_IID", "")
        # For merged results, the pipeline's commit is a temporary merge.
        head = environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or environ.get("CI_COMMIT_SHA", "")
    this = environ.get("CI_PIPELINE_ID", "")
    if not (_NUMBER.fullmatch(number) and _NUMBER.fullmatch(this) and _COMMIT.fullmatch(head)):
        raise ConfigError(
            f"Pipeline {quoted(this)!r} is of merge request {quoted(number)!r} at commit {quoted(head)!r}: "
            "expected numbers and a full hash. Run this in a merge request's pipeline, or start one on the "
            "default branch with the variables PERF_MERGE_REQUEST and PERF_COMMIT."
        )
    return Pipeline(id=int(this), merge_request=int(number), head=head, own=not asked)


class _MergeRequest(msgspec.Struct):
    iid: int
    state: str
    sha: str | None
    target_branch: str
    source_branch: str
    source_project_id: int | None
    target_project_id: int
    web_url: str

    @property
    def ref(self) -> str:
        """Return the ref of its commit in the project: a fork's commit has no branch there."""
        is_own = self.source_project_id == self.target_project_id
        return self.source_branch if is_own else f"refs/merge-requests/{self.iid}/head"


class _Base(msgspec.Struct):
    id: str


class _Job(msgspec.Struct):
    id: int
    name: str
    status: str


class _Author(msgspec.Struct):
    id: int


class _Note(Comment, kw_only=True):
    author: _Author
    system: bool = False


class _Status(msgspec.Struct):
    id: int
    target_url: str | None = None


def links_of_job(environ: Mapping[str, str], page: str = "", history: str = "") -> Links:
    """Return links to the job's pipeline, its project and the page among its artifacts."""
    project, job = environ.get("CI_PROJECT_URL", ""), environ.get("CI_JOB_URL", "")
    return Links(
        run=environ.get("CI_PIPELINE_URL", ""),
        page=f"{job}/artifacts/file/{page}" if job and page else "",
        history=history,
        repository=f"{project}/-" if project else "",
    )


def prepare(
    api: Api,
    project: str,
    pipeline: Pipeline,
    *,
    links: Links,
    given: Mapping[str, Review] | None = None,
    strict: bool = False,
) -> PreparedPost:
    """Return everything to post for a pipeline. `given` are reports that need no download.

    With `strict` a skipped status fails. Raises StaleError, RefusedError for a malformed report, ApiError,
    RemoteError.
    """
    merge_request = _current(api, project, pipeline)
    jobs = _jobs(api, project, pipeline)
    reviews = read_reviews(_contents(api, project, jobs), "pipeline") if given is None else given
    key = ReportKey(run=pipeline.id, attempt=1, head=pipeline.head)
    silent = [job for job in jobs if job.name not in reviews] if given is None else []
    ended = ", ".join(f"{quoted(job.name)} ended as {quoted(job.status)}" for job in silent)
    if not reviews:
        summary = (
            f"No job left a report, so nothing is known of this commit: {ended or f'there is no {JOB}'}."
        )
        return without_report(links, key, summary, strict=strict)
    missing = f"A card is missing here: {ended} without a report." if ended else ""
    ends = {"refs[]": [merge_request.target_branch, pipeline.head]}
    left = api.get(path_of(project, "repository", "merge_base"), _Base, needs="read_api", query=ends)
    return prepared(
        list(reviews.values()),
        bases=[left.id],
        links=links,
        key=key,
        unfinished=lambda _conclusion: missing,
        strict=strict,
    )


def _current(api: Api, project: str, pipeline: Pipeline) -> _MergeRequest:
    """Return the merge request, if it is open with this commit as head."""
    path = path_of(project, "merge_requests", pipeline.merge_request)
    found = api.get(path, _MergeRequest, needs="read_api")
    if found.state != "opened":
        raise StaleError(f"Merge request {pipeline.merge_request} is {quoted(found.state)}.")
    if found.sha != pipeline.head:
        raise StaleError(
            f"The head of merge request {pipeline.merge_request} is {quoted(found.sha or 'nothing')} by now, "
            f"not {pipeline.head}."
        )
    return found


def _jobs(api: Api, project: str, pipeline: Pipeline) -> list[_Job]:
    """Return the jobs with a card, the newest of each name: GitLab omits retried ones."""
    pages = api.pages(path_of(project, "pipelines", pipeline.id, "jobs"), list[_Job], needs="read_api")
    found = [job for page in pages for job in page if job.name == JOB or job.name.startswith(f"{JOB}: ")]
    if len(found) > LIMITS["cards"]:
        raise RefusedError(f"The pipeline has {len(found)} jobs {JOB}; at most {LIMITS['cards']} are read.")
    return sorted(found, key=lambda job: job.name)


def _contents(api: Api, project: str, jobs: Iterable[_Job]) -> Iterator[tuple[str, bytes]]:
    """Yield the reports one at a time with the names of their jobs; none for a job without a report."""
    for job in jobs:
        # GitLab parses each part of the path, so the slash in it stays one part.
        path = f"{path_of(project, 'jobs', job.id, 'artifacts')}/{REPORT}"
        try:
            yield job.name, api.download(path, needs="read_api", limit_bytes=LIMITS["bytes"])
        except ApiError as error:
            if error.status != 404:
                raise


def post(api: Api, project: str, pipeline: Pipeline, prepared_post: PreparedPost) -> PostOutcome:
    """Post a note, if there is a report, and a commit status. If one fails, the other is still posted.

    Raises StaleError, ApiError, RemoteError.
    """
    merge_request = _current(api, project, pipeline)
    trouble: list[str] = []
    said = status = None
    try:
        if prepared_post.comment:
            said = _post_note(api, project, pipeline, merge_request, prepared_post)
    except RemoteError as error:
        trouble.append(error.message)
    newer = said if said and said.action == "left" else None
    try:
        status = newer or _post_status(api, project, pipeline, merge_request, prepared_post)
    except RemoteError as error:
        trouble.append(error.message)
    if trouble or status is None:
        raise RemoteError(" ".join(trouble))
    return PostOutcome(comment=said, check=status)


def _post_note(
    api: Api, project: str, pipeline: Pipeline, merge_request: _MergeRequest, prepared_post: PreparedPost
) -> Posted:
    me = api.get("/user", _Author, needs=_NEEDS)
    notes = path_of(project, "merge_requests", pipeline.merge_request, "notes")
    posted = StickyComment(
        api=api,
        key=prepared_post.key,
        text=without_actions(prepared_post.comment),
        still_current=partial(_current, api, project, pipeline),
        about=f"merge request {pipeline.merge_request}",
        comments=notes,
        one=notes,
        kind=_Note,
        ours=lambda note: note.author.id == me.id and not note.system,
        needs=_NEEDS,
    ).keep()
    url = f"{merge_request.web_url}#note_{posted.id}" if posted.id else ""
    return dataclasses.replace(posted, url=url)


def without_actions(text: str) -> str:
    """Return the text without a slash at the start of a line, which GitLab may execute in a note."""
    return _QUICK_ACTION.sub(r"\1&#47;", text)


def _post_status(
    api: Api, project: str, pipeline: Pipeline, merge_request: _MergeRequest, prepared_post: PreparedPost
) -> Posted:
    check = prepared_post.check
    where: dict[str, Any] = {"pipeline_id": pipeline.id} if pipeline.own else {"ref": merge_request.ref}
    body = {
        "name": check["name"],
        "state": _STATES[check["conclusion"]],
        "description": check["output"]["title"][:_DESCRIPTION_CHARACTERS],
        **({"target_url": prepared_post.links.run} if prepared_post.links.run else {}),
        **where,
    }
    _current(api, project, pipeline)
    made = api.create(path_of(project, "statuses", pipeline.head), body, _Status, needs=_NEEDS)
    return Posted(action="created", id=made.id if made else None, url=(made and made.target_url) or "")
