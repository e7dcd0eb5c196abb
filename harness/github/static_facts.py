"""From a run that compiled a pull request, anybody's, to the comment that tells what changed."""

from __future__ import annotations

from harness.forges.api import Api
from harness.forges.comments import Posted, StaleError, Stamp
from harness.github.artifacts import fetch_static
from harness.github.events import CompiledRun
from harness.github.posting import current_pull, post_comment, pull_of_branch
from harness.output.review.grouping import Links
from harness.output.review.static import static_comment


def post_static(
    api: Api, repository: str, run: CompiledRun, *, server: str, author: str
) -> tuple[int, Posted]:
    """Post what a run has left, on the pull request that GitHub says it is of: its number, and what became
    of the comment.

    Raises StaleError where there is nothing to post or nowhere to, RefusedError for a report that is not what
    it should be, ApiError, RemoteError.
    """
    pull = pull_of_branch(api, repository, run.label, run.head)
    report = fetch_static(api, repository, run.id)
    if report is None:
        raise StaleError("The run has left no static facts: its log says why.")
    page = f"{server}/{repository}"
    links = Links(run=f"{page}/actions/runs/{run.id}", repository=page)
    stamp = Stamp(run=run.id, attempt=run.attempt, head=run.head, static=True)
    text = static_comment(report, links, marker=stamp.marker, about=f"{run.head[:10]} on {pull.base.ref}")

    def still_current() -> None:
        current_pull(api, repository, pull.number, run.head)

    posted = post_comment(
        api, repository, pull.number, stamp, text, author=author, still_current=still_current
    )
    return pull.number, posted
