"""Files of a script's two sides: one script for both, and a cache of compiled code for each."""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import shlex
import shutil
from pathlib import Path

from harness.errors import StoreError, UsageError
from harness.run.executables.executable_build import Executable
from harness.system.cache import cache_dir

CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "TILELANG_CACHE_DIR": "tilelang",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUTE_DSL_CACHE_DIR": "cute",
    "CUDA_TILE_CACHE_DIR": "tile",
    "HELION_CACHE_DIR": "helion",
    "WARP_CACHE_PATH": "warp",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
}
"""Environment variables that name a compiler's folder of compiled code, and the folder's name here."""
_OF_BENCHMARKS = re.compile(r"bench|perf|test|example|script|tutorial", re.IGNORECASE)
_CHUNK_BYTES = 2**20


def script_of(command: str, folder: Path) -> Path | None:
    """Return the script's file in a command that runs in `folder`; None where it names none that is there.

    Raises UsageError for what is no command of a shell.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{command!r} is no command of a shell: {error}.") from None
    for place, word in enumerate(words):
        module = word == "-m" and place + 1 < len(words)
        path = folder / (f"{words[place + 1].replace('.', '/')}.py" if module else word)
        if path.suffix == ".py" and path.is_file():
            return path
    return None


def share_script(base: Executable, head: Executable) -> str:
    """Put head's script in the place of base's, with its folder where that holds benchmarks.

    Returns a sentence that says so; empty where base has the same. Raises StoreError.
    """
    script = script_of(head.command, head.folder)
    if script is None:
        return ""
    files = Path(os.path.realpath(head.files))
    real = Path(os.path.realpath(script))
    if not real.is_relative_to(files):
        return ""
    part = real.relative_to(files)
    own = [real]
    if _OF_BENCHMARKS.search(part.parent.as_posix()) and not (real.parent / "__init__.py").exists():
        own += [each for each in sorted(real.parent.iterdir()) if each.is_file() and each != real]
    changed = [each for each in own if _put(each, base.files / each.relative_to(files))]
    if not changed:
        return ""
    names = ", ".join(each.name for each in changed[:3]) + (" and others" if len(changed) > 3 else "")
    return f"Base ran head's {names}: both sides run one script. --script-from each runs each side's own."


def _put(source: Path, target: Path) -> bool:
    """Copy a file; False where the same is there already."""
    try:
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    except OSError as error:
        raise StoreError(f"Cannot copy {source.name} to base's files: {error.strerror or error}.") from None
    return True


def caches_of(executable: Executable) -> dict[str, str]:
    """Return the variables that give a side's compiled code a place of its own, by the content of its files.

    Raises StoreError.
    """
    place = cache_dir() / "scripts" / digest_of(executable.files)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot make {place}: {error.strerror or error}.") from None
    return {variable: str(place / name) for variable, name in CACHES.items()}


def digest_of(folder: Path) -> str:
    """Return a digest of all files in a folder, by their paths and bytes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode(errors="surrogateescape"))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:16]
