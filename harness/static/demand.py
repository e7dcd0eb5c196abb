"""What a kernel's case asks of a card: registers and memory by ptxas, residency by arithmetic, accesses by
following them. nvcc and g++ do it; where one is missing, or has nothing to compile, that part is left out and
said.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import cpu_count
from pathlib import Path

import msgspec

from harness.errors import BuildError, HarnessError
from harness.records import Launch
from harness.spec.planning import PlannedCase, launch_of
from harness.spec.sources import Program, program
from harness.spec.suite import Suite, on_device
from harness.static.accesses import Access, accesses
from harness.static.occupancy import Card, Residency, residency
from harness.system.cache import BinaryCache

_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What ptxas says of a kernel, for one architecture."""

    registers: int
    """Of a thread."""
    shared_bytes: int
    """Of a block; what the launch asks for comes on top."""
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    planned: PlannedCase
    launch: Launch | None = None
    """None where it asks for what is not known, which is among the problems."""
    usage: Usage | None = None
    residency: Residency | None = None
    accesses: tuple[Access, ...] = ()
    problems: tuple[str, ...] = ()
    """Why a part is missing."""

    def worst(self, space: str) -> Access | None:
        """Of all accesses to global or to shared memory the one that a warp pays most for."""
        found = [each for each in self.accesses if each.space == space]
        if space == "shared":
            return max(found, key=lambda each: each.conflicts, default=None)
        return max(found, key=lambda each: each.sectors / each.fewest_sectors, default=None)


def demands(suite: Suite, planned: Sequence[PlannedCase], card: Card) -> list[Demand]:
    """Of each case what it asks of a card; compilers work side by side."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        return list(pool.map(lambda each: _demand(suite, each, card), planned))


def _demand(suite: Suite, planned: PlannedCase, card: Card) -> Demand:
    kernel = planned.kernel
    source = kernel.source_for("cuda")
    if not isinstance(source, str):
        why = "no CUDA source" if source is None else "its code is a library's, or made where it is built"
        return Demand(planned=planned, problems=(why,))
    problems: list[str] = []
    found = Demand(planned=planned)
    with _told(problems):
        case = on_device(kernel, planned.case, card.facts)
        with _told(problems):
            used = usage(program(suite, kernel, case, "cuda", card.arch), card.arch)
            found = replace(found, usage=used)

        def held(launch: Launch) -> Residency:
            if found.usage is None:
                raise BuildError("Its grid asks how many of its blocks stay resident, which nvcc tells.")
            return residency(card, launch, found.usage.registers, found.usage.shared_bytes)

        launch = launch_of(kernel, case, lambda launch: held(launch).blocks)
        found = replace(found, launch=launch, residency=held(launch) if found.usage else None)
        found = replace(found, accesses=accesses(suite, kernel, case, launch))
    return replace(found, problems=tuple(problems))


@contextmanager
def _told(problems: list[str]) -> Iterator[None]:
    """Errors as problems, so that what they do not concern is told all the same."""
    try:
        yield
    except HarnessError as error:
        problems.append(error.message)


@functools.cache
def _compiler() -> str:
    """What nvcc says of itself; empty where there is none."""
    if shutil.which("nvcc") is None:
        return ""
    return subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False).stdout


def usage(made: Program, arch: str) -> Usage:
    """Registers, shared memory and spills for an architecture such as sm_86. Raises BuildError."""
    if not (compiler := _compiler()):
        raise BuildError("Registers and residency need nvcc, which is not installed.")
    cache = BinaryCache()
    key = cache.key(made.sha256, (made.function,), f"ptxas -v\n{compiler}", arch)
    if (kept := cache.get(key)) is None:
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch, "kernel.cu")
            source.write_text(made.text, encoding="utf-8")
            command = ["nvcc", "-cubin", f"-arch={arch}", "-Xptxas", "-v", *made.options, str(source)]
            done = subprocess.run(
                [*command, "-o", f"{scratch}/cubin"], capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise BuildError(f"{made.name} does not compile for {arch}.", log=done.stderr[-8000:])
        kept = msgspec.json.encode(_read(done.stderr, made.function))
        cache.put(key, kept)
    return msgspec.json.decode(kept, type=Usage)


def _read(said: str, function: str) -> Usage:
    """Of all that ptxas compiled, the function that is launched."""
    parts = said.split("Compiling entry function")[1:]
    part = next((part for part in parts if part.startswith(f" '{function}'")), "")
    spilled, used, shared = (pattern.search(part) for pattern in (_SPILLS, _USED, _SHARED))
    if used is None:
        raise BuildError(
            f'It has no kernel function named {function!r}: check its entry, and that it is extern "C".'
        )
    return Usage(
        registers=int(used[1]),
        shared_bytes=int(shared[1]) if shared else 0,
        spill_store_bytes=int(spilled[1]) if spilled else 0,
        spill_load_bytes=int(spilled[2]) if spilled else 0,
    )
