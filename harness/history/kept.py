"""What a history keeps in the harness's cache so as not to find it out again."""

from __future__ import annotations

__all__ = ["kept_file", "read_kept", "write_kept"]

import hashlib
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.system.cache import cache_dir, write_atomically
from harness.system.files import read_regular

T = TypeVar("T")


def kept_file(folder: Path, kind: str) -> Path:
    """Where to keep what was made of a results folder."""
    return (
        cache_dir() / "history" / f"{hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:24]}.{kind}"
    )


def read_kept(file: Path, kind: type[T]) -> T | None:
    """None where there is nothing kept, or it cannot be used."""
    try:
        return msgspec.msgpack.decode(read_regular(file), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def write_kept(file: Path, kept: Any) -> None:
    """What cannot be kept is no error, only slower."""
    try:
        write_atomically(file, msgspec.msgpack.encode(kept), durable=False)
    except OSError:
        return
