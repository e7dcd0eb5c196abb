"""Runs nvdisasm to turn a kernel's binary instructions into text.

The program takes half a second to start, so the instructions of many kernels of one architecture are passed
as one piece. The result is cached by the instructions' hash.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from harness.device.backends import nvcc
from harness.device.backends.cubin import INSTRUCTION_BYTES
from harness.device.backends.cubin_lines import LineEntry
from harness.device.static.sass import Instruction, Instructions, instructions_in, summarised
from harness.errors import BuildError
from harness.system.cache import BinaryCache
from harness.system.decoding import decode
from harness.system.files import scratch_folder
from harness.system.process import finished

PACKAGE = "nvidia-cuda-nvdisasm"
_FORMAT = "instructions 2"
"""Part of the cache's key: raise it when instructions are counted in another way."""
TIMEOUT_S = 120.0


@functools.cache
def path() -> str | None:
    """Return the nvdisasm on PATH, else that of the PyPI package; None without either."""
    return shutil.which("nvdisasm") or nvcc.packaged(PACKAGE, "nvdisasm")


@functools.cache
def version() -> str:
    """Return the version of nvdisasm, or "" without nvdisasm."""
    if path() is None:
        return ""
    found = re.search(r"\bV([\d.]+)", _run("--version"))
    return found[1] if found else "unknown"


class Listed(NamedTuple):
    """A kernel's code for nvdisasm, and its source lines."""

    instructions: bytes
    lines: tuple[LineEntry, ...]


Disassembled: TypeAlias = "dict[Listed, Instructions | BuildError]"


def disassembled(arch: str, codes: Iterable[Listed]) -> Disassembled:
    """Return each kernel's instructions, or why they are unknown; all for one architecture, such
    as sm_90a.
    """
    cache = BinaryCache()
    found: Disassembled = {}
    missing: dict[Listed, str] = {}
    for code in dict.fromkeys(codes):
        digest = hashlib.sha256(code.instructions + repr(code.lines).encode())
        key = cache.key(digest.hexdigest(), (_FORMAT,), version(), arch)
        if kept := cache.get(key):
            found[code] = decode(kept, Instructions)
        else:
            missing[code] = key
    for code, each in _together(arch, list(missing)).items():
        found[code] = each
        if isinstance(each, Instructions):
            cache.put(missing[code], msgspec.json.encode(each))
    return found


def _together(arch: str, codes: Sequence[Listed]) -> Disassembled:
    """Disassemble all in one call. After a failure use halves, so that one kernel does not affect
    the others.
    """
    if not codes:
        return {}
    try:
        return dict(zip(codes, _call(arch, codes), strict=True))
    except BuildError as error:
        if len(codes) == 1:
            return {codes[0]: error}
    half = len(codes) // 2
    return _together(arch, codes[:half]) | _together(arch, codes[half:])


def _call(arch: str, codes: Sequence[Listed]) -> list[Instructions]:
    with scratch_folder() as folder:
        file = folder / "instructions"
        file.write_bytes(b"".join(code.instructions for code in codes))
        every = instructions_in(_run("--binary", arch.replace("sm_", "SM"), str(file)))
    found, begin, at = [], 0, 0
    for code in codes:
        stop = begin + len(code.instructions)
        own: list[Instruction] = []
        while at < len(every) and every[at].at < stop:
            own.append(every[at].moved(-begin))
            at += 1
        if len(own) * INSTRUCTION_BYTES != stop - begin:
            raise BuildError(
                f"nvdisasm {version()} told {len(own)} instructions of {arch} where there are "
                f"{(stop - begin) // INSTRUCTION_BYTES}: this harness does not read what that version writes."
            )
        found.append(summarised(own, code.lines))
        begin = stop
    return found


def _run(*arguments: str) -> str:
    program = path()
    if program is None:
        raise BuildError(
            "Instructions need nvdisasm, which is not installed: install this project with its extra "
            "'static'."
        )
    try:
        status, out, err = finished([program, *arguments], timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BuildError(f"nvdisasm took more than {TIMEOUT_S:.0f} s.") from None
    if status:
        said = (err or out).strip().splitlines()
        raise BuildError(f"nvdisasm failed: {said[0] if said else status}", log=err[-4000:])
    return out
