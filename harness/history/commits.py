"""The commits of a history, oldest first."""

from __future__ import annotations

__all__ = ["Commit", "Commits", "read_commits"]

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.system import git


@dataclass(frozen=True, slots=True)
class Commit:
    hash: str
    time: int
    """Of the committer, in seconds since 1970: shown, never used to order, as clocks of authors differ."""
    author: str
    subject: str


@dataclass(frozen=True)
class Commits:
    """A line of first parents. What is called a position elsewhere is an index into it."""

    line: tuple[Commit, ...]

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Position by full hash."""
        return {commit.hash: position for position, commit in enumerate(self.line)}

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, position: int) -> Commit:
        return self.line[position]


def read_commits(repository: Path, revision: str = "HEAD") -> Commits:
    """The first parents of a revision. Raises GitError where it cannot be read."""
    return Commits(tuple(Commit(*fields) for fields in git.first_parents(repository, revision)))
