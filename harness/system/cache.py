"""The folder for data that the harness can recreate: exported commits and compiled binaries."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import platformdirs

from harness.errors import StoreError
from harness.system.decoding import decode
from harness.system.files import read_regular

_FORMAT = b"harness binary 1"
"""Start of every entry. A different start belongs to another version, and is a miss."""
EXPORTS = "commits"
"""Folder of exported commits."""
ARRAYS = "arrays"
"""Folder of inputs and references."""
_EXPORT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})(?:-[0-9a-f]{12})?")
"""A commit, followed by a hash of its missing submodules: another clone may have them."""


def cache_dir() -> Path:
    """Return $HARNESS_CACHE_DIR, else `harness` in the user's cache folder."""
    if chosen := os.environ.get("HARNESS_CACHE_DIR"):
        return Path(chosen).absolute()
    return platformdirs.user_cache_path("harness", appauthor=False)


@functools.cache
def own_code() -> str:
    """Return a hash of the harness's sources, because the version stays the same during development. Raises
    OSError.
    """
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).resolve().parent.parent.rglob("*.py")):
        digest.update(hashlib.sha256(read_regular(file)).digest())
    return digest.hexdigest()


def export_root(folder: Path) -> Path | None:
    """Return the top of the exported commit that contains `folder`; None if none does."""
    tops = (top for top in (folder, *folder.parents) if top.parent.name == EXPORTS)
    return next((top for top in tops if _EXPORT.fullmatch(top.name)), None)


@contextlib.contextmanager
def replacing(path: Path, *, make_parents: bool = True) -> Iterator[Path]:
    """Yield a path to write a replacement to. A reader sees the complete new file or the old one."""
    if make_parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    # Not mkstemp, whose files are private: results and caches are shared like any other file.
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        yield scratch
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # if the folder is a file, there is nothing to remove
            scratch.unlink()
        raise


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file as `replacing` does. Without `durable`, a crash of the machine may damage it."""
    with replacing(path) as scratch, scratch.open("xb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def write_file(path: Path, data: bytes, advice: str = "", *, durable: bool = True) -> None:
    """Write a file as `write_atomically` does. Raises StoreError, with the advice, if that fails."""
    try:
        write_atomically(path, data, durable=durable)
    except OSError as error:
        reason = f"Cannot write {path}: {error.strerror or error}."
        raise StoreError(f"{reason} {advice}" if advice else reason) from None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The headers that a compiler read, and the folders that it searched: a new file there may
    replace one.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each header's content, by path."""
    folders: tuple[str, ...] = ()
    """Folders that the compiler searches, apart from the headers' own."""
    asked: tuple[str, ...] = ()
    """Further names that a header looks for, whether or not they exist."""
    found: str = ""
    """SHA-256 of the paths in all these folders that one of these names may refer to."""

    @classmethod
    def of(cls, headers: Iterable[str], folders: Iterable[str], asked: Iterable[str] = ()) -> Manifest:
        """Return the manifest of the current files. Raises OSError if a header cannot be read."""
        read = {path: _file_sha256(path) for path in sorted(set(headers))}
        folders, asked = tuple(folders), tuple(sorted(set(asked)))
        return cls(read, folders, asked, _found_sha256(read, folders, asked))

    def is_current(self) -> bool:
        """Return whether everything is unchanged."""
        try:
            return _found_sha256(self.headers, self.folders, self.asked) == self.found and all(
                _file_sha256(path) == sha256 for path, sha256 in self.headers.items()
            )
        except OSError:
            return False


def _file_sha256(path: str) -> str:
    return hashlib.sha256(read_regular(Path(path))).hexdigest()


def _found_sha256(headers: Iterable[str], folders: Iterable[str], asked: Iterable[str]) -> str:
    """Return a hash of the headers found. Every suffix of a header's path may be the name in an include."""
    below: dict[str, set[str]] = {}
    for path in (*headers, *asked):
        parts = path.strip("/").split("/")
        for begin, first in enumerate(parts):
            below.setdefault(first, set()).add("/".join(parts[begin:]))
    found = []
    for folder in sorted({*folders, *map(os.path.dirname, headers)}):
        try:
            present = below.keys() & os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
        except OSError:
            continue
        names = (f"{folder}/{name}" for first in present for name in below[first])
        found += [path for path in names if os.path.isfile(path)]  # noqa: PTH113 - thousands of them
    return hashlib.sha256(os.fsencode("\0".join(sorted(found)))).hexdigest()


class BinaryCache:
    """Compiled kernels by everything that could change them. If it cannot be written, work is only slower.

    An entry contains its own hash, so a torn or edited one is a miss. So is an entry whose manifest no longer
    matches the disk.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_dir() / "binaries"
        self._manifests: set[bytes] = set()
        self._is_whole = True

    def forgo(self) -> None:
        """Record that something was compiled that cannot be kept."""
        self._is_whole = False

    @property
    def relied_on(self) -> tuple[Manifest, ...] | None:
        """Return the manifests of all entries read or written; None if something was not kept."""
        if not self._is_whole:
            return None
        return tuple(decode(each, Manifest) for each in sorted(self._manifests))

    @staticmethod
    def key(text: str, options: tuple[str, ...], compiler: str, arch: str) -> str:
        parts = (text, *options, compiler, arch)
        # Lengths distinguish ("ab", "c") from ("a", "bc").
        return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        try:
            entry = read_regular(self.folder / key[:2] / key)
            begin, sha256, rest = entry.split(b"\n", 2)
            if (begin, sha256) != (_FORMAT, _entry_sha256(key, rest)):
                return None
            manifest, binary = rest.split(b"\n", 1)
            current = decode(manifest, Manifest).is_current()
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        if not (current and binary):
            return None
        self._manifests.add(manifest)
        return binary

    def put(self, key: str, binary: bytes, manifest: Manifest | None = None) -> None:
        manifest_json = msgspec.json.encode(manifest or Manifest.of((), ()))
        self._manifests.add(manifest_json)
        rest = manifest_json + b"\n" + binary
        entry = b"\n".join((_FORMAT, _entry_sha256(key, rest), rest))
        with contextlib.suppress(OSError):
            write_atomically(self.folder / key[:2] / key, entry)


def _entry_sha256(key: str, content: bytes) -> bytes:
    """Return the hash of a key and its content, so that an entry moved to another key is invalid."""
    return hashlib.sha256(key.encode() + b"\n" + content).hexdigest().encode()
