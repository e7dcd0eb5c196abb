"""Inputs and references that earlier commands have computed, in the cache folder.

The key of an entry covers the suite's files, its imports and installed packages (`origin_sha256`), the case,
the seed, and the harness's code that makes data. Each file has checksums, so a torn or edited entry is a
miss. The cache has a size limit; the least recently used entries are removed first. An entry that another
user owns or can write is ignored. If the cache is full or read-only, arrays are computed anew.

A suite's own process writes its entries, so a hostile suite can write entries of other suites too, with a
reference that makes its wrong results look right. It can write any file of its user, including binaries in
the cache. If another user runs suites, the command gives workers no such folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.system.array_files import read_arrays, write_arrays
from harness.system.decoding import decode
from harness.system.files import read_regular
from harness.system.threads import side_by_side

MOST_BYTES = 2**31
"""Size of all entries together, in bytes."""
LEAST_ENTRY_BYTES = 2**21
"""Smallest entry in bytes. Smaller arrays are computed faster than the suite's files are hashed."""
_MOST_ENTRY_BYTES = MOST_BYTES // 4
_SPARE = 4
"""Free disk space that an entry needs, in sizes of the entry."""
_PART_BYTES = 2**24
_CHECKSUMS = "checksums.json"
_MAKERS = ("problem.py", "suite_data.py", "reference_function.py", "layout.py")
"""Modules in harness/suite/ that make data and references."""
_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Key:
    """A key of arrays. Without a hash, the arrays are not kept."""

    name: str = ""
    sha256: str = ""


class EarlierArrays:
    """Arrays of one suite. `origin` returns its `origin_sha256`, from the process that has loaded it."""

    def __init__(self, folder: Path, origin: Callable[[], str]) -> None:
        self.folder, self._origin = folder, origin

    def key(self, name: str) -> Key:
        """Return the key of arrays with this name. The name includes the case, the seed and the kind of
        arrays.
        """
        if not (origin := self._origin()):
            return Key()
        return Key(name, hashlib.sha256(repr((origin, name, _maker())).encode()).hexdigest())

    def get(self, key: Key) -> Path | None:
        """Return the folder of an entry's arrays; None if there is no valid entry."""
        entry = self.folder / key.sha256
        try:
            if not key.sha256 or not (_is_ours(self.folder) and _is_ours(entry)):
                return None
            known = decode(read_regular(entry / _CHECKSUMS), dict[str, list[int]])
            if known != _checksums(read_arrays(entry)):
                return None
            os.utime(entry)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        return entry

    def put(self, key: Key, arrays: Mapping[str, NDArray[Any]]) -> Path | None:
        """Write an entry and return its folder; None if it is not kept.

        It is not kept if computing the arrays changed the key: the suite then read or imported something
        unknown when the key was made.
        """
        size_bytes = sum(array.nbytes for array in arrays.values())
        fits = LEAST_ENTRY_BYTES <= size_bytes <= _MOST_ENTRY_BYTES
        if not (key.sha256 and fits and self.key(key.name) == key):
            return None
        with contextlib.suppress(OSError, ValueError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(self.folder) and shutil.disk_usage(self.folder).free > _SPARE * size_bytes:
                self._make_room(size_bytes)
                return self._write(self.folder / key.sha256, arrays)
        return None

    def _write(self, entry: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
        unfinished = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            write_arrays(unfinished, arrays)
            checksums = msgspec.json.encode(_checksums(read_arrays(unfinished)))
            (unfinished / _CHECKSUMS).write_bytes(checksums)
            shutil.rmtree(entry, ignore_errors=True)  # a torn entry
            unfinished.rename(entry)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return entry

    def _make_room(self, size_bytes: int) -> None:
        """Remove the least recently used entries, and leftovers of killed processes, until there is room."""
        found = sorted((entry for entry in self.folder.iterdir()), key=lambda entry: entry.lstat().st_mtime)
        sizes = {entry: sum(file.lstat().st_size for file in entry.glob("*")) for entry in found}
        left = sum(sizes.values())
        for entry in found:
            if left + size_bytes <= MOST_BYTES:
                return
            shutil.rmtree(entry, ignore_errors=True)
            left -= sizes[entry]


def _is_ours(folder: Path) -> bool:
    """Tell whether this user owns a folder and no other user can write to it. Raises OSError."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _FOR_OTHERS


def _checksums(arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[int]]:
    """Return checksums of each array's type, shape and bytes, part by part."""
    found = {}
    for name, array in arrays.items():
        data = np.ravel(array, "K").view(np.uint8).data
        parts = [data[begin : begin + _PART_BYTES] for begin in range(0, len(data), _PART_BYTES)]
        head = zlib.crc32(repr((array.dtype.str, array.shape, array.flags.f_contiguous)).encode())
        found[name] = [head, *side_by_side(zlib.crc32, parts)]
    return found


@cache
def _maker() -> str:
    """Return the versions of everything that makes arrays: this harness's modules, NumPy and Python."""
    suite = Path(__file__).parents[1] / "suite"
    ours = [hashlib.sha256(read_regular(suite / name)).hexdigest() for name in _MAKERS]
    return repr((ours, np.__version__, sys.version, os.uname().machine))
