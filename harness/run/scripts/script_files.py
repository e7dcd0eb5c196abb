"""Files of a script's two sides: one common script, and a cache of compiled code for each side."""

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
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "TILELANG_CACHE_DIR": "tilelang",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUTE_DSL_CACHE_DIR": "cute",
    "CUDA_TILE_CACHE_DIR": "tile",
    "HELION_CACHE_DIR": "helion",
    "JAX_COMPILATION_CACHE_DIR": "jax",
    "WARP_CACHE_PATH": "warp",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
}
"""Environment variables of compilers' cache folders, with the folder's name here."""
_TRITON = "TRITON_CACHE_DIR", "TRITON_CACHE_AUTOTUNING"
"""Triton identifies code by its content, so both sides may share its folder and its autotuner's results.

An unchanged kernel is then not tuned to different configurations on base and head.
"""
_OF_BENCHMARKS = re.compile(r"bench|perf|test|example|script|tutorial", re.IGNORECASE)
_CHUNK_BYTES = 2**20


def script_of(command: str, folder: Path) -> Path | None:
    """Return the script's file in a command that runs in `folder`; None if it names no existing file.

    Raises UsageError for a command that a shell cannot parse.
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


def give_script(base: Executable, head: Executable, *, always: bool) -> str:
    """Copy head's script into base's files, if base has no such script, or `always`.

    If the script's folder holds benchmarks, the files beside it are copied too. Their code is then head's on
    both sides. Returns a sentence for the user, empty if both sides have the script. Raises StoreError.
    """
    script = script_of(head.command, head.folder)
    if script is None:
        return ""
    there = script_of(base.command, base.folder)
    if there is not None and not always:
        if filecmp.cmp(script, there, shallow=False):
            return ""
        return (
            f"{script.name} differs between the commits: each side runs its own. With --script-from head "
            "both run head's, with the files beside it."
        )
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
    return f"Base runs head's {names}: {'as --script-from head asks' if there else 'it has no such script'}."


def _put(source: Path, target: Path) -> bool:
    """Copy a file. Return False if the same file is there already."""
    try:
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    except OSError as error:
        raise StoreError(f"Cannot copy {source.name} to base's files: {error.strerror or error}.") from None
    return True


def caches_of(executable: Executable) -> dict[str, str]:
    """Return the variables that give a side's compiled code its own folder, by the content of its files.

    Raises StoreError.
    """
    shared = cache_dir() / "scripts"
    place = shared / digest_of(executable.files)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot make {place}: {error.strerror or error}.") from None
    folder, tuning = _TRITON
    return {
        folder: str(shared / "triton"),
        tuning: "1",
        **{variable: str(place / name) for variable, name in CACHES.items()},
    }


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
