"""Posts made from the reports of jobs with a card.

A kernel's author may have forged a report, so it is read strictly and must be for the forge's commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from harness.ci.forge import quoted
from harness.ci.sticky_comment import Posted, ReportKey
from harness.errors import RefusedError, StoreError
from harness.report.document.check import problems
from harness.report.document.document import LIMITS, Review, decode_review
from harness.report.document.outcome import Links
from harness.report.pull_request.comment_markdown import comment
from harness.report.pull_request.faces import check_run

T = TypeVar("T")

_LIGHT = (
    "A light comparison, as advice: quick sizes only, for a minute. The history measures every merged commit."
)
MAX_TOTAL_BYTES = 4 * LIMITS["bytes"]
"""Largest total size of a run's reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPost:
    """A comment and a check, ready to be posted."""

    links: Links
    review: Review | None
    """The merged reports; None if the run left none."""
    comment: str
    """Text of the comment; empty for none."""
    check: Mapping[str, Any]
    """A check run in GitHub's form: name, conclusion, output."""
    key: ReportKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PostOutcome:
    """The result of a post. The comment is None if there was none to post."""

    comment: Posted | None
    check: Posted


def prepared(
    reviews: Collection[Review],
    *,
    bases: Collection[str],
    links: Links,
    key: ReportKey,
    unfinished: Callable[[str], str],
    strict: bool = False,
    light: bool = False,
) -> PreparedPost:
    """Return the post for a run's reports, at least one.

    `bases` are the merge bases with its branches. `unfinished` returns what is missing for a conclusion, such
    as a card; a success is then neutral. With `strict` a neutral check fails. A `light` comparison says so
    and fails no check, unless somebody named its cases. Raises RefusedError for malformed reports.
    """
    review = merged(reviews)
    if found := problems(review, bases=frozenset(bases), head=key.head):
        why = " ".join(map(quoted, found))
        raise RefusedError(f"The report contradicts itself, so nothing is posted: {why}")
    check = check_run(review, links)
    missing = unfinished(check["conclusion"])
    advises = light and not key.partial
    notes = tuple(filter(None, (missing, _LIGHT if advises else "")))
    said = comment(review, links, marker=key.marker, notes=notes)
    if missing and check["conclusion"] == "success":
        output = {**check["output"], "title": missing, "text": missing}
        check = {**check, "conclusion": "neutral", "output": output}
    named = _named(check, key, strict=strict, light=light)
    return PreparedPost(links=links, review=review, comment=said, check=named, key=key)


def without_report(
    links: Links, key: ReportKey, summary: str, *, strict: bool, light: bool = False
) -> PreparedPost:
    """Return the post for a run without reports: a check without a verdict, and no comment."""
    check = {
        "status": "completed",
        "conclusion": "neutral",
        "details_url": links.run,
        "output": {"title": "No report", "summary": summary},
    }
    named = _named(check, key, strict=strict, light=light)
    return PreparedPost(links=links, review=None, comment="", check=named, key=key)


def _named(check: Mapping[str, Any], key: ReportKey, *, strict: bool, light: bool) -> dict[str, Any]:
    conclusion, output = check["conclusion"], check["output"]
    if light and not key.partial:
        conclusion = "neutral" if conclusion == "failure" else conclusion
        output = {**output, "title": f"Light: {output['title']}"[:255]}
    elif strict and conclusion == "neutral":
        conclusion = "failure"
    return {**check, "name": key.check_name, "conclusion": conclusion, "output": output}


def read_reviews(contents: Iterable[tuple[str, bytes]], whose: str) -> dict[str, Review]:
    """Return the reports of a run, by name. Raises RefusedError for malformed or too many bytes."""
    total = 0
    found: dict[str, Review] = {}
    for name, content in contents:
        total += len(content)
        if total > MAX_TOTAL_BYTES:
            raise RefusedError(f"The {whose}'s reports have more than {MAX_TOTAL_BYTES} bytes in all.")
        found[name] = read_report(content, name, decode_review)
    return found


def read_report(content: bytes, name: str, decode: Callable[[bytes], T]) -> T:
    """Return the report in a file, read strictly by `decode`. Raises RefusedError."""
    try:
        report = decode(content)
        json.loads(content, object_pairs_hook=_without_twice, parse_int=len, parse_float=len)
    except (StoreError, ValueError, RecursionError) as error:
        raise RefusedError(f"Artifact {quoted(name)} cannot be read: {quoted(str(error))}") from None
    return report


def _without_twice(pairs: Sequence[tuple[str, Any]]) -> None:
    """Refuse a duplicate name in an object: readers disagree on it, and no honest writer uses it."""
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        raise ValueError("an object has a name twice.")


def merged(reviews: Iterable[Review]) -> Review:
    """Return the reports of several cards as one. Raises RefusedError unless all have the same commits."""
    found = list(reviews)
    if len({(review.base, review.head) for review in found}) != 1:
        raise RefusedError("The run's reports are of different commits: they are not posted.")
    if len(found) > 1 and not all(review.cards for review in found):
        raise RefusedError("One of the run's reports has no card in it: they are not posted.")
    cards, most = tuple(card for review in found for card in review.cards), LIMITS["cards"]
    if len(cards) > most:
        raise RefusedError(f"The run's reports tell of {len(cards)} cards; at most {most} are shown.")
    return replace(
        found[0],
        harness_version=", ".join(sorted({review.harness_version for review in found}))[:200],
        created_at=max(review.created_at for review in found),
        cards=cards,
    )
