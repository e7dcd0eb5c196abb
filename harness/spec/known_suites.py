"""What suites are called and hold, as the last command that loaded them saw it: for completion in a shell,
which must be quick and runs nothing of a project's own.
"""

from __future__ import annotations

__all__ = ["KnownSuite", "known_suites", "remember"]

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.spec.suite import Suite, size_label
from harness.system.cache import cache_dir, write_atomically
from harness.system.files import read_regular


@dataclass(frozen=True, slots=True)
class KnownSuite:
    name: str
    kernels: Mapping[str, str]
    """What each is about, by its name."""
    tuned: tuple[str, ...]
    """Kernels that can be swept."""
    sizes: tuple[str, ...]
    """Labels of the suite's own, small ones too."""
    ladders: tuple[str, ...]


def remember(folder: Path, suite: Suite) -> None:
    """Keep what a suite in a folder of the working tree holds. A cache that cannot be written is no error."""
    points = [*suite.problem.points(), *suite.problem.points(quick=True)]
    seen = KnownSuite(
        name=suite.name,
        kernels={kernel.name: kernel.about for kernel in suite.kernels},
        tuned=tuple(kernel.name for kernel in suite.kernels if kernel.tune),
        sizes=tuple(dict.fromkeys(size_label(point) for point in points)),
        ladders=tuple(ladder.name for ladder in suite.ladders),
    )
    if [*known_suites([folder])] != [seen]:
        try:
            write_atomically(_file(folder), msgspec.json.encode(seen), durable=False)
        except OSError:
            return


def known_suites(folders: Iterable[Path]) -> Iterator[KnownSuite]:
    """Of each folder whose suite was ever loaded."""
    for folder in folders:
        try:
            yield msgspec.json.decode(read_regular(_file(folder)), type=KnownSuite)
        except (OSError, msgspec.MsgspecError):
            continue


def _file(folder: Path) -> Path:
    return cache_dir() / "suites" / f"{hashlib.sha256(bytes(folder.resolve())).hexdigest()}.json"
