"""A suite as one piece, for hosts that cannot read its folder."""

from __future__ import annotations

__all__ = ["pack", "unpack"]

import hashlib
import io
import os
import platform
import tempfile
import zipfile
from pathlib import Path

from harness.errors import StoreError, UsageError
from harness.spec.loader import load
from harness.spec.sources import tree_files

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""A date for files whose date does not matter; ZIP knows none before it."""


def pack(folder: Path) -> tuple[bytes, str]:
    """A suite's folder and the files elsewhere that a build can read, as a ZIP file; and its place in it.
    The same files are the same bytes.

    Raises SuiteError where it cannot be loaded, UsageError where it cannot be read.
    """
    suite = load(folder).suite
    folder, files = suite.root, tree_files(suite)
    root = Path(os.path.commonpath([folder, *(path.parent for path in files)]))
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(files):
                name = path.relative_to(root).as_posix()
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be sent to workers: {error.strerror or error}.") from None
    return packed.getvalue(), folder.relative_to(root).as_posix()


def unpack(sent: bytes, scratch: Path) -> Path:
    """The folder of what was packed, in `scratch`, written once. Raises StoreError."""
    folder = scratch / f"harness-suite-{hashlib.sha256(sent).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    try:
        with tempfile.TemporaryDirectory(dir=scratch) as unfinished:
            with zipfile.ZipFile(io.BytesIO(sent)) as archive:
                archive.extractall(Path(unfinished, "suite"))
            Path(unfinished, "suite").rename(folder)
    except OSError as error:
        raise StoreError(
            f"The suite cannot be unpacked in {scratch} on {platform.node()}: {error.strerror or error}."
        ) from None
    return folder
