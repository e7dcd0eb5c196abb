"""The folder for what the harness can make again: exported commits and compiled binaries."""

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
"""Begins every entry. An entry that begins otherwise is another version's, and a miss."""
EXPORTS = "commits"
"""The folder of exported commits."""
ARRAYS = "arrays"
"""The folder of inputs and references."""
_EXPORT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})(?:-[0-9a-f]{12})?")
"""A commit, and where its submodules are not all there, which: another clone may have them."""


def cache_dir() -> Path:
    """$HARNESS_CACHE_DIR, else `harness` in the user's cache folder."""
    if chosen := os.environ.get("HARNESS_CACHE_DIR"):
        return Path(chosen).absolute()
    return platformdirs.user_cache_path("harness", appauthor=False)


@functools.cache
def own_code() -> str:
    """Return a hash of the harness's sources: its version stays while it is worked on. Raises OSError."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).resolve().parent.parent.rglob("*.py")):
        digest.update(hashlib.sha256(read_regular(file)).digest())
    return digest.hexdigest()


def export_root(folder: Path) -> Path | None:
    """Return the top of the exported commit that holds `folder`; None where none does."""
    tops = (top for top in (folder, *folder.parents) if top.parent.name == EXPORTS)
    return next((top for top in tops if _EXPORT.fullmatch(top.name)), None)


@contextlib.contextmanager
def replacing(path: Path, *, make_parents: bool = True) -> Iterator[Path]:
    """Yield a path to write a replacement to: a reader sees all of it or the old file."""
    if make_parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    # Not mkstemp, whose files are private: results and caches are shared like any other file.
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        yield scratch
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # where the folder is a file there is nothing to be rid of
            scratch.unlink()
        raise


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file as `replacing` does. Without `durable`, a crash of the machine may leave it damaged."""
    with replacing(path) as scratch, scratch.open("xb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def write_file(path: Path, data: bytes, advice: str = "", *, durable: bool = True) -> None:
    """Write a file as `write_atomically` does. Raises StoreError, with the advice, where that fails."""
    try:
        write_atomically(path, data, durable=durable)
    except OSError as error:
        reason = f"Cannot write {path}: {error.strerror or error}."
        raise StoreError(f"{reason} {advice}" if advice else reason) from None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The headers that a compiler read, and where it searched: a new file there may replace one."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each header's content, by path."""
    folders: tuple[str, ...] = ()
    """Folders that the compiler searches, beside the headers' own."""
    asked: tuple[str, ...] = ()
    """Further names that a header asks for, there or not."""
    found: str = ""
    """SHA-256 of the paths in all these folders that may be meant by one of these names."""

    @classmethod
    def of(cls, headers: Iterable[str], folders: Iterable[str], asked: Iterable[str] = ()) -> Manifest:
        """Return the manifest of what is there now. Raises OSError where a header cannot be read."""
        read = {path: _file_sha256(path) for path in sorted(set(headers))}
        folders, asked = tuple(folders), tuple(sorted(set(asked)))
        return cls(read, folders, asked, _found_sha256(read, folders, asked))

    def is_current(self) -> bool:
        """Tell whether all is as it was."""
        try:
            return _found_sha256(self.headers, self.folders, self.asked) == self.found and all(
                _file_sha256(path) == sha256 for path, sha256 in self.headers.items()
            )
        except OSError:
            return False


def _file_sha256(path: str) -> str:
    return hashlib.sha256(read_regular(Path(path))).hexdigest()


def _found_sha256(headers: Iterable[str], folders: Iterable[str], asked: Iterable[str]) -> str:
    """A hash of the headers that are found. Every end of a header's path may be the name that includes it."""
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
    """Compiled kernels by everything that could change them. If it cannot be written, all is only slower.

    An entry holds its own hash: one that is torn or was edited is a miss. So is one whose manifest is no
    longer what the disk holds.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_dir() / "binaries"
        self._manifests: set[bytes] = set()
        self._is_whole = True

    def forgo(self) -> None:
        """Note that something was compiled that cannot be kept."""
        self._is_whole = False

    @property
    def relied_on(self) -> tuple[Manifest, ...] | None:
        """The manifests of all that came from here or went here; None where something was not kept."""
        if not self._is_whole:
            return None
        return tuple(decode(each, Manifest) for each in sorted(self._manifests))

    @staticmethod
    def key(text: str, options: tuple[str, ...], compiler: str, arch: str) -> str:
        parts = (text, *options, compiler, arch)
        # Lengths keep ("ab", "c") and ("a", "bc") apart.
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
    """The hash of a key and its content: an entry that was moved to another's place is not that other's."""
    return hashlib.sha256(key.encode() + b"\n" + content).hexdigest().encode()
