"""The cards of a results folder: one a machine, and more where asv's environments of it are to be kept apart.

asv measures a machine in one environment or in several: another version of Python or of what is required, or
another system. Where they follow each other, each measured on commits later than all of the one before, as
when the interpreter at hand is updated, they are one card, and each begins an epoch. Where any two of them
overlap, all are apart, a card each: figures of two environments never share a series then.
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
"""Characters of what tells an environment from the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSource:
    """The folder and environment from which the figures of a series come."""

    folder: Path
    """The folder of the machine's results."""
    environment: str | None = None
    """The one of asv's whose figures it has; empty for those measured without asv, None for all there are."""
    name: str
    """The folder's; of one of several environments with what tells it from the others, after a slash."""

    def is_called(self, glob: str) -> bool:
        """Return whether the card's own name or its machine's matches."""
        return any(fnmatchcase(name, glob) for name in (self.name, self.folder.name))


def machine_of(card: str) -> str:
    """The name of a card's machine: a folder's has no slash."""
    return card.partition("/")[0]


def card_folders(results: Path) -> tuple[Path, ...]:
    """Folders of cards, by name. Raises StoreError where the results cannot be read.

    asv makes no name that is not UTF-8, and no page could show one, so such a folder is none.
    """
    with reading(results):
        folders = [path for path in results.iterdir() if path.is_dir()]
    named = [path for path in folders if path.name.encode(errors="ignore").decode() == path.name]
    return tuple(sorted(path for path in named if any(path.glob("*.json")) or any(path.glob("*.jsonl*"))))


def cards_of(
    folder: Path, environments: Mapping[str, Collection[str]], commits: Commits
) -> tuple[CardSource, ...]:
    """The cards of a folder, by the hashes of the commits that each of its environments has figures of."""
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
    """The parts of each environment's name that not all of them have, such as py3.12 or numpy1.26."""
    parts = {name: name.split("-") for name in names}
    common = set.intersection(*map(set, parts.values()))
    labels = {name: "-".join(part for part in parts[name] if part not in common) for name in names}
    count = Counter(labels.values())
    return {name: _cut(label if label and count[label] == 1 else name) for name, label in labels.items()}


def _cut(label: str) -> str:
    """Return the label, cut so that an environment with many requirements does not fill the screen."""
    if len(label) <= _LONGEST:
        return label
    return f"{label[: _LONGEST - 9]}-{hashlib.sha256(label.encode(errors='replace')).hexdigest()[:8]}"
