"""Caches tables of values. A file is read again if its name, size or time has changed.

A history may have tens of thousands of files, and a new commit adds one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from harness.records.record_files import reading
from harness.system.cache import cache_dir, write_atomically
from harness.system.files import UNREADABLE, read_regular, stat_of

T = TypeVar("T")
KINDS = ("records", "table")
"""Endings of the cache's files: our records, and asv's results."""
_FORMAT = 6
"""The version of what is kept: raise it when figures are read in another way."""


class KeptFile(msgspec.Struct, frozen=True):
    """A file that was read, without its values."""

    file: str
    size: int
    mtime_ns: int = 0
    layouts: tuple[int, ...] = ()
    """Numbers of the table's layouts, in the order of the file's values."""
    problem: str = ""
    """Reason why the file could not be read, as a sentence; else empty."""


F = TypeVar("F", bound=KeptFile)
L = TypeVar("L")
Figures32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class KeptTable(Generic[F, L]):
    """Every file of one kind in a folder, by name."""

    facts: tuple[F, ...]
    layouts: tuple[L, ...]
    """Descriptions of blocks of values. Most files share a few."""
    values: Figures32
    """Values of all files, concatenated."""


class CachedTable(msgspec.Struct, Generic[F, L]):
    """A table in the cache. Each kind has its own class, because msgspec caches by class."""

    version: str
    facts: list[F]
    layouts: list[L]
    values: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader(Generic[F, L]):
    """Reads the files of one kind in a folder, or takes them from the cache."""

    kind: str
    """Extension of the cache's file."""
    version: str
    """Text that changes when values are read differently."""
    cached: type[CachedTable[F, L]]
    wanted: Callable[[str], bool]
    """Tells by name whether a file is read."""
    width: Callable[[L], int]
    """Returns the number of values of a layout."""
    read: Callable[[Path, KeptFile, dict[L, int]], tuple[F, Figures32]]
    """Reads one file of a folder, and adds a new layout to the dictionary of layouts and their numbers."""

    def table(self, folder: Path) -> KeptTable[F, L]:
        """Return the table of a folder. Raises StoreError if the folder cannot be read."""
        found = listing(folder, self.wanted)
        file = cache_file(folder, self.kind)
        known = self._load(file)
        if [(each.file, each.size, each.mtime_ns) for each in known.facts] == found:
            return known
        table = self._read_all(folder, found, known)
        content = self.cached(self._version, list(table.facts), list(table.layouts), table.values.tobytes())
        write_cached(file, content)
        return table

    def starts(self, table: KeptTable[F, L]) -> list[int]:
        """Return the start of each file's values in the table, and the end of the last."""
        widths = list(map(self.width, table.layouts))
        return list(accumulate((sum(widths[n] for n in each.layouts) for each in table.facts), initial=0))

    @property
    def _version(self) -> str:
        return f"{_FORMAT} {self.version}"

    def _load(self, file: Path) -> KeptTable[F, L]:
        """Return the cached table; an empty table if there is none, or it is unusable."""
        nothing: KeptTable[F, L] = KeptTable((), (), np.empty(0, np.float32))
        cached = read_cached(file, self.cached)
        if cached is None or cached.version != self._version:
            return nothing
        try:
            values = np.frombuffer(cached.values, np.float32)
            table: KeptTable[F, L] = KeptTable(tuple(cached.facts), tuple(cached.layouts), values)
            return table if self.starts(table)[-1] == len(values) else nothing
        except (ValueError, IndexError):
            return nothing

    def _read_all(
        self, folder: Path, found: Sequence[tuple[str, int, int]], before: KeptTable[F, L]
    ) -> KeptTable[F, L]:
        known = {
            (each.file, each.size, each.mtime_ns): (each, before.values[start:stop])
            for each, (start, stop) in zip(before.facts, pairwise(self.starts(before)), strict=True)
        }
        layouts = {layout: number for number, layout in enumerate(before.layouts)}
        read = [known.get(entry) or self.read(folder, KeptFile(*entry), layouts) for entry in found]
        values = np.concatenate([np.empty(0, np.float32), *(values for _, values in read)])
        return KeptTable(tuple(each for each, _ in read), tuple(layouts), values)


def listing(folder: Path, wanted: Callable[[str], bool]) -> list[tuple[str, int, int]]:
    """Return name, size and time of every wanted file, in order. Raises StoreError."""
    with reading(folder), os.scandir(folder) as entries:
        stats = [(entry.name, stat_of(entry)) for entry in entries if wanted(entry.name)]
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def cache_file(folder: Path, kind: str) -> Path:
    """Return the cache file for a results folder."""
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:24]
    return cache_dir() / "history" / f"{name}.{kind}"


def is_kept(folder: Path) -> bool:
    """Return whether the cache has a table of a results folder."""
    return any(cache_file(folder, kind).exists() for kind in KINDS)


def read_cached(file: Path, kind: type[T]) -> T | None:
    """Return the content of a cache file; None if there is none, or it is unusable."""
    try:
        return msgspec.msgpack.decode(read_regular(file), type=kind)
    except (OSError, *UNREADABLE):
        return None


def write_cached(file: Path, content: Any) -> None:
    """Write a table to the cache. If that fails, the next reading is slower."""
    with contextlib.suppress(OSError, OverflowError, UnicodeEncodeError):
        write_atomically(file, msgspec.msgpack.encode(content), durable=False)
