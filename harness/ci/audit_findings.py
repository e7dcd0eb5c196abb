"""Findings of an audit of a forge's settings, which no file can hold.

A protection that jobs with a card rely on must be there; others should. A setting that the token may not see
is unknown, and does not count as missing.
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
    """The protection; empty for the one that the check is called after."""
    state: State
    seen: str
    """The forge's setting, in a few words."""
    to_do: str = ""
    relied: bool = False
    """True if a job with a card must not start without the protection."""


@dataclass(frozen=True, slots=True)
class Asking:
    """The settings of one repository or project, by its forge's API."""

    api: Api
    path_of: Callable[..., str]
    repository: str
    about: Mapping[str, Any]
    """The forge's description of it. GitLab tells maintainers alone of some of its settings."""

    @property
    def default_branch(self) -> str:
        return str(self.about.get("default_branch") or "main")

    def get(self, *parts: str, needs: str) -> Any:
        """The answer. Raises ApiError."""
        return self.api.get(self.path_of(self.repository, *parts), object, needs=needs)

    def is_there(self, *parts: str, needs: str) -> Any | None:
        """The answer, or None where there is no such thing. Raises ApiError for what may not be seen."""
        try:
            return self.get(*parts, needs=needs)
        except ApiError as error:
            if error.status != 404:
                raise
            return None


@dataclass(frozen=True, slots=True)
class Protection:
    """A protection, and how its findings are made; ``{branch}`` in its name is the default branch."""

    what: str
    find: Callable[[Asking], Iterator[AuditFinding]]
    relied: bool = False

    def findings(self, asking: Asking) -> Iterator[AuditFinding]:
        """Findings on this protection unless they name another; unknown where the token may not see it."""
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
    """The findings of all protections, or of those that jobs with a card rely on."""
    some = [each for each in protections if each.relied or not relied_only]
    return [finding for each in some for finding in each.findings(asking)]


def should(good: object, seen: str, to_do: str, *, what: str = "") -> AuditFinding:
    """A finding that is good, or else missing with what to do."""
    return AuditFinding(
        what=what, state="good" if good else "missing", seen=seen, to_do="" if good else to_do
    )


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
