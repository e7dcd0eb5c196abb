"""Where the harness keeps what it can make again: exported commits and compiled binaries."""

from __future__ import annotations

__all__ = ["BinaryCache", "cache_dir", "write_atomically"]

import hashlib
import os
import secrets
from pathlib import Path

import platformdirs

from harness.files import read_regular


def cache_dir() -> Path:
    """$HARNESS_CACHE_DIR, else `harness` in the user's cache folder."""
    if chosen := os.environ.get("HARNESS_CACHE_DIR"):
        return Path(chosen).absolute()
    return platformdirs.user_cache_path("harness", appauthor=False)


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file so that a reader sees all of it or none of it, whatever happens on the way.

    What can be made again need not be durable: a crash of the whole machine may then leave a damaged file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not mkstemp, whose files are private: results and caches are shared like any other file.
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with scratch.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


class BinaryCache:
    """Compiled kernels by everything that could change them. A cache that cannot be written is no error,
    only slower.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_dir() / "binaries"

    @staticmethod
    def key(text: str, options: tuple[str, ...], compiler: str, arch: str) -> str:
        parts = (text, *options, compiler, arch)
        # Lengths keep ("ab", "c") and ("a", "bc") apart.
        return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        try:
            return read_regular(self.folder / key[:2] / key) or None
        except OSError:
            return None

    def put(self, key: str, binary: bytes) -> None:
        try:
            write_atomically(self.folder / key[:2] / key, binary)
        except OSError:
            return
