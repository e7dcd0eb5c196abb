"""The cards of a results folder: one per machine, or one per environment of asv's.

asv measures a machine in one or several environments: another version of Python or of a requirement, or
another system. If environments follow each other in time, without a common commit, they are one card, and
each begins an epoch. That happens when an interpreter is updated. If two environments overlap, each is a
separate card, so that their values never share a series.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

from harness.history.sources.our_records import Commits
from harness.records.record_files import reading

_LONGEST = 60
"""Most characters of the text that distinguishes an environment from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSource:
    """The folder and environment of a series' values."""

    folder: Path
    """The folder of the machine's results."""
    environment: str | None = None
    """asv's environment of the values; "" for values measured without asv, None for all."""
    name: str
    """Name of the folder; for one of several environments, followed by a slash and its distinction."""

    def is_called(self, glob: str) -> bool:
        """Return whether the glob matches the card's own name or its machine's."""
        return any(fnmatchcase(name, glob) for name in (self.name, self.folder.name))


def machine_of(card: str) -> str:
    """Return the name of a card's machine. The name of a folder has no slash."""
    return card.partition("/")[0]


def card_folders(results: Path) -> tuple[Path, ...]:
    """Return the folders of cards by name. Raises StoreError if the results cannot be read.

    A name that is not UTF-8 is skipped: asv makes none, and no page could show it.
    """
    with reading(results):
        folders = [path for path in results.iterdir() if path.is_dir()]
    named = [path for path in folders if path.name.encode(errors="ignore").decode() == path.name]
    return tuple(sorted(path for path in named if any(path.glob("*.json")) or any(path.glob("*.jsonl*"))))


def cards_of(
    folder: Path, environments: Mapping[str, Collection[str]], commits: Commits
) -> tuple[CardSource, ...]:
    """Return the cards of a folder, by the commits with values in each of its environments."""
    named = {name: hashes for name, hashes in environments.items() if name}
    if _follow_each_other(named, commits):
        return (CardSource(folder=folder, name=folder.name),)
    labels = _labels(named)
    return tuple(
        CardSource(
            folder=folder, environment=name, name="/".join(filter(None, (folder.name, labels.get(name))))
        )
        for name in sorted(environments)
    )


def _follow_each_other(environments: Mapping[str, Collection[str]], commits: Commits) -> bool:
    known = commits.positions
    measured = [[known[each] for each in hashes if each in known] for hashes in environments.values()]
    spans = sorted((min(positions), max(positions)) for positions in measured if positions)
    return all(before[1] < after[0] for before, after in pairwise(spans))


def _labels(names: Collection[str]) -> dict[str, str]:
    """Return the parts of each environment's name that not all share, such as py3.12 or numpy1.26."""
    parts = {name: name.split("-") for name in names}
    common = set.intersection(*map(set, parts.values()))
    labels = {name: "-".join(part for part in parts[name] if part not in common) for name in names}
    count = Counter(labels.values())
    return {name: _cut(label if label and count[label] == 1 else name) for name, label in labels.items()}


def _cut(label: str) -> str:
    """Return the label, shortened so that an environment with many requirements does not fill the screen."""
    if len(label) <= _LONGEST:
        return label
    return f"{label[: _LONGEST - 9]}-{hashlib.sha256(label.encode(errors='replace')).hexdigest()[:8]}"
