"""Findings of an audit of a forge's settings, which no file in the repository can hold.

Some protections are required by jobs with a card; others are recommended. A setting that the token may not
see is unknown, and does not count as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Literal

from harness.ci.forge import Api, ApiError, quoted

State = Literal["good", "missing", "unknown"]
_UNSEEN = (401, 403, 404)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    what: str = ""
    """Name of the protection; empty for the check's own name."""
    state: State
    seen: str
    """The forge's setting in a few words."""
    to_do: str = ""
    relied: bool = False
    """True if a job with a card must not start without the protection."""


@dataclass(frozen=True, slots=True)
class Asking:
    """The settings of one repository or project, read through its forge's API."""

    api: Api
    path_of: Callable[..., str]
    repository: str
    about: Mapping[str, Any]
    """The forge's description of it. GitLab shows some settings only to maintainers."""

    @property
    def default_branch(self) -> str:
        return str(self.about.get("default_branch") or "main")

    def get(self, *parts: str, needs: str) -> Any:
        """Return the answer. Raises ApiError."""
        return self.api.get(self.path_of(self.repository, *parts), object, needs=needs)

    def is_there(self, *parts: str, needs: str) -> Any | None:
        """Return the answer, or None if there is no such thing. Raises ApiError for a forbidden request."""
        try:
            return self.get(*parts, needs=needs)
        except ApiError as error:
            if error.status != 404:
                raise
            return None


@dataclass(frozen=True, slots=True)
class Protection:
    """A protection, and the function for its findings. ``{branch}`` in its name is the default branch."""

    what: str
    find: Callable[[Asking], Iterator[AuditFinding]]
    relied: bool = False

    def findings(self, asking: Asking) -> Iterator[AuditFinding]:
        """Yield findings on this protection, or on others that they name; unknown if the token may not see
        it.
        """
        what = self.what.format(branch=quoted(asking.default_branch))
        try:
            for finding in self.find(asking):
                yield replace(finding, what=finding.what or what, relied=self.relied)
        except ApiError as error:
            if error.status not in _UNSEEN:
                raise
            seen = f"not seen ({error.status}): ask with a token that may read settings"
            yield AuditFinding(what=what, state="unknown", seen=seen, relied=self.relied)


def audited(asking: Asking, protections: Sequence[Protection], *, relied_only: bool) -> list[AuditFinding]:
    """Return the findings of all protections, or only of those that jobs with a card require."""
    some = [each for each in protections if each.relied or not relied_only]
    return [finding for each in some for finding in each.findings(asking)]


def should(good: object, seen: str, to_do: str, *, what: str = "") -> AuditFinding:
    """Return a finding that is good, or else missing with a remedy."""
    return AuditFinding(
        what=what, state="good" if good else "missing", seen=seen, to_do="" if good else to_do
    )


def missing(findings: Iterable[AuditFinding]) -> list[AuditFinding]:
    return [finding for finding in findings if finding.state == "missing"]


def lines(findings: list[AuditFinding], width: int) -> Iterator[str]:
    """Yield a table, with the remedy below each missing protection, in lines of this width."""
    column = max((len(each.what) for each in findings), default=0)
    for each in findings:
        yield from wrap(
            f"{each.state:7}  {each.what:{column}}  {each.seen}", width, subsequent_indent=" " * (column + 11)
        )
        if each.to_do:
            margin = " " * 9
            yield from wrap(f"To do: {each.to_do}.", width, initial_indent=margin, subsequent_indent=margin)
