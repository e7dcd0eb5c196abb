"""What an audit of a forge's settings finds: settings that no file can hold.

A protection that jobs with a card rely on must be there; others should. What the token may not see is
unknown, and not taken for missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Literal, TypeVar

from harness.ci.forge import ApiError

State = Literal["good", "missing", "unknown"]
_UNSEEN = (401, 403, 404)

Asking = TypeVar("Asking")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    what: str = ""
    """The protection; empty for the one that the check is called after."""
    state: State
    seen: str
    """What the forge says, in a few words."""
    to_do: str = ""
    relied: bool = False
    """Whether a job with a card must not start without it."""


Check = Callable[[Asking], Iterator[AuditFinding]]


def should(good: object, seen: str, to_do: str, *, what: str = "") -> AuditFinding:
    """A finding that is good, or else missing with what to do."""
    return AuditFinding(
        what=what, state="good" if good else "missing", seen=seen, to_do="" if good else to_do
    )


def protection(what: str, *, relied: bool = False) -> Callable[[Check[Asking]], Check[Asking]]:
    """A check called `what`, which its findings are about unless they say otherwise. Where the token may not
    see something, nothing is known of it.
    """

    def decorate(check: Check[Asking]) -> Check[Asking]:
        def run(asking: Asking) -> Iterator[AuditFinding]:
            try:
                for finding in check(asking):
                    yield replace(finding, what=finding.what or what, relied=relied)
            except ApiError as error:
                if error.status not in _UNSEEN:
                    raise
                seen = f"not seen ({error.status}): ask with a token that may read settings"
                yield AuditFinding(what=what, state="unknown", seen=seen, relied=relied)

        return run

    return decorate


def missing(findings: Iterable[AuditFinding]) -> list[AuditFinding]:
    return [finding for finding in findings if finding.state == "missing"]


def lines(findings: list[AuditFinding], width: int) -> Iterator[str]:
    """A table, and below what is missing what to do about it, in lines of that width."""
    column = max((len(each.what) for each in findings), default=0)
    for each in findings:
        yield from wrap(
            f"{each.state:7}  {each.what:{column}}  {each.seen}", width, subsequent_indent=" " * (column + 11)
        )
        if each.to_do:
            margin = " " * 9
            yield from wrap(f"To do: {each.to_do}.", width, initial_indent=margin, subsequent_indent=margin)
