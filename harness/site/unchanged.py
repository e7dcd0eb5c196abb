"""Cards of which nothing has changed since their pages were written, so that a new commit costs one card."""

from __future__ import annotations

__all__ = ["recall", "remember"]

import functools
import hashlib
import os
from pathlib import Path

import msgspec

from harness.history.commits import Commits
from harness.history.kept import kept_file, read_kept, write_kept
from harness.site.cards import CardSummary, PublishCard
from harness.store.records_file import PACKED, PART
from harness.system.files import stat_of

_READ = (".json", ".jsonl", PACKED, PART, ".harness")


class _Kept(msgspec.Struct):
    key: str
    commits: int
    line: str
    """Digest of the first so many commits: what a card's pages say stays right when commits are added."""
    summary: CardSummary


def recall(work: PublishCard, folder: Path) -> CardSummary | None:
    """What the card's pages came to, if they are there and would come out the same."""
    kept = read_kept(kept_file(folder, "published"), _Kept)
    if kept is None or kept.key != _key(work, folder) or kept.commits > len(work.commits):
        return None
    written = work.site.folder / f"data/cards/{kept.summary.file}.js"
    same_line = kept.line == _line(work.commits, kept.commits) and not _waited(work, folder, kept.commits)
    return kept.summary if same_line and written.exists() else None


def _waited(work: PublishCard, folder: Path, count: int) -> bool:
    """Whether a commit after so many has results that were there before it was: of a branch now merged, or in
    a clone now complete. asv's files and records have the first digits of a commit's hash in their names.
    """
    new = [each.hash for each in work.commits.line[count:]]
    told = {part for name in os.listdir(folder) for part in name.split("-")} if new else set()  # noqa: PTH208
    return any(name[:digits] in told for name in new for digits in range(4, len(name) + 1))


def remember(work: PublishCard, folder: Path, summary: CardSummary) -> None:
    count = len(work.commits)
    kept = _Kept(_key(work, folder), count, _line(work.commits, count), summary)
    write_kept(kept_file(folder, "published"), kept)


def _key(work: PublishCard, folder: Path) -> str:
    with os.scandir(folder) as entries:
        files = sorted(
            (each.name, stat_of(each).st_size, stat_of(each).st_mtime_ns)
            for each in entries
            if each.name.endswith(_READ)
        )
    # Only a decision that expires makes the day matter.
    day = work.today if any(each.expires for each in work.decisions) else None
    told = (_code(), work.site.folder.absolute(), work.number, work.cases, work.results, work.decisions)
    return hashlib.sha256(repr((*told, day, files)).encode(errors="replace")).hexdigest()


@functools.cache
def _code() -> str:
    """Digest of the code that makes a card's pages: a version does not change while it is worked on."""
    package = Path(__file__).resolve().parent.parent
    sources = sorted(
        path for folder in ("history", "site", "statistics") for path in (package / folder).glob("*.py")
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _line(commits: Commits, count: int) -> str:
    return hashlib.sha256("".join(each.hash for each in commits.line[:count]).encode()).hexdigest()
