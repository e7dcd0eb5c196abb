"""Keeps one comment on a pull request up to date, even if others write there at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from harness.ci.forge import Api, ApiError
from harness.errors import RemoteError
from harness.report.pull_request.faces import check_name

_MARKER = re.compile(
    r"<!-- gpu-harness:(review|review-some|static) run=([0-9]{1,19}) attempt=([0-9]{1,9}) "
    r"head=([0-9a-f]{40}) -->"
)
_ROUNDS = 6


class StaleError(Exception):
    """The commit is no longer the one to be merged. This is no error: somebody pushed, merged or
    closed it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKey:
    run: int
    attempt: int
    head: str
    partial: bool = False
    """True for a report of some cases, which has its own comment beside the full report."""
    static: bool = False
    """True for a report of compiled kernels, which has its own comment."""

    @property
    def marker(self) -> str:
        which = "static" if self.static else "review-some" if self.partial else "review"
        return f"<!-- gpu-harness:{which} run={self.run} attempt={self.attempt} head={self.head} -->"

    @property
    def check_name(self) -> str:
        return check_name(partial=self.partial)

    @property
    def external_id(self) -> str:
        return f"{self.run}.{self.attempt}"

    def is_newer_than(self, other: ReportKey) -> bool:
        """Return whether the other report of the same commit is older. Runs are numbered by their start."""
        return self.head == other.head and (self.run, self.attempt) > (other.run, other.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    action: Literal["created", "updated", "left"]
    """Action taken. left: the comment belongs to a newer run."""
    id: int | None
    """Id of the comment; None in a dry run that would create it."""
    url: str = ""


class Comment(msgspec.Struct, kw_only=True):
    """A comment in a forge's description."""

    id: int
    text: str | None = msgspec.field(name="body", default=None)
    url: str = msgspec.field(name="html_url", default="")
    """Address of the comment; empty for GitLab, which reports none."""


def key_of(comment: Comment) -> ReportKey | None:
    found = _MARKER.match(comment.text or "")
    if not found:
        return None
    which, run, attempt, head = found.groups()
    return ReportKey(
        run=int(run),
        attempt=int(attempt),
        head=head,
        partial=which == "review-some",
        static=which == "static",
    )


@dataclass(kw_only=True)
class StickyComment:
    """Our single comment on a pull request. Its text begins with the key's marker.

    `still_current` runs before each write, and raises if the commit is no longer the head.
    """

    api: Api
    key: ReportKey
    text: str
    still_current: Callable[[], object]
    about: str
    """Name in messages, such as pull request 12."""
    comments: str
    """API path of all comments."""
    one: str
    """API path of one comment, without its id."""
    kind: type[Comment]
    """Type for decoding a comment."""
    ours: Callable[[Any], bool]
    """Tells whether the token's owner wrote a comment."""
    needs: str
    """Permission needed to write there."""
    made: Comment | None = field(default=None, init=False)
    """The new comment, which a listing may not show at once."""
    written: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._begins = self.key.marker.partition("run=")[0]

    def keep(self) -> Posted:
        """Set the comment to this text. Raises ApiError, RemoteError, and the errors of `still_current`."""
        for _ in range(_ROUNDS):
            if done := self._look():
                return done
        raise RemoteError(
            f"The comment on {self.about} was changed by others {_ROUNDS} times while it was "
            "written: run this again, and let one job at a time post."
        )

    def _look(self) -> Posted | None:
        """Read the comments once and act; return None if they must be read again."""
        found = {comment.id: comment for comment in ([self.made] if self.made else []) + self._ours()}
        ours = [found[number] for number in sorted(found)]
        if not ours:
            return self._create()
        first, *others = ours
        if any((key := key_of(each)) and key.is_newer_than(self.key) for each in ours):
            if self.made and self.made.id != first.id:
                self._delete(self.made)
            return Posted(action="left", id=first.id, url=first.url)
        if first.id not in self.written or key_of(first) != self.key:
            self._update(first)
            if not self.api.dry_run:
                return None
        for other in others:
            self._delete(other)
        created = self.made is not None and self.made.id == first.id
        return Posted(action="created" if created else "updated", id=first.id, url=first.url)

    def _ours(self) -> list[Comment]:
        pages = self.api.pages(self.comments, list[self.kind], needs=self.needs)  # type: ignore[name-defined]
        return [
            comment
            for page in pages
            for comment in page
            if self.ours(comment) and (comment.text or "").startswith(self._begins)
        ]

    def _create(self) -> Posted | None:
        def posted() -> Comment | None:
            same = [comment for comment in self._ours() if key_of(comment) == self.key]
            return min(same, key=lambda comment: comment.id, default=None)

        self.still_current()
        body = {"body": self.text}
        self.made = self.api.create(self.comments, body, self.kind, needs=self.needs, done=posted)
        if self.made is None:
            return Posted(action="created", id=None)
        self.written.add(self.made.id)
        return None

    def _update(self, comment: Comment) -> None:
        self.still_current()
        try:
            self.api.update(self._path(comment), {"body": self.text}, self.kind, needs=self.needs)
        except ApiError as error:
            if error.status not in (404, 410):  # deleted since it was listed
                raise
            self.made = None
        self.written.add(comment.id)

    def _delete(self, comment: Comment) -> None:
        self.api.delete(self._path(comment), needs=self.needs)

    def _path(self, comment: Comment) -> str:
        return f"{self.one}/{comment.id}"
