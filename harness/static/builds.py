"""Building kernels for architectures that need not be here: nvcc's verdict, what ptxas says of each kernel,
and whether it takes what the harness will give it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import cpu_count
from typing import Literal

import msgspec

from harness.device.backends import nvcc
from harness.errors import BuildError, HarnessError, UsageError
from harness.spec.device_facts import DeviceFacts
from harness.spec.planning import PlannedCase, Refusal
from harness.spec.sources import Program, lacking
from harness.spec.suite import Generated, HostLibrary, Kernel, Parameter, is_for
from harness.static.occupancy import CAPABILITIES, Card
from harness.system.cache import BinaryCache

_COMPILING = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_ARCH = re.compile(r"sm_(\d+)(\d)[af]?\Z")
_BITS = re.compile(r"\d+\Z")
_POINTER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What ptxas says of a kernel, for one architecture."""

    registers: int
    """Of a thread."""
    shared_bytes: int
    """Of a block; what the launch asks for comes on top."""
    spill_store_bytes: int
    spill_load_bytes: int


class Compiled(msgspec.Struct, frozen=True):
    """What is kept of a compilation: each kernel in it, by its symbol."""

    arch: str
    """What it was built for."""
    usage: dict[str, Usage]
    parameters: dict[str, tuple[int, ...]]
    """Sizes in bytes, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A kernel built for an architecture, or why it was not."""

    kernel: str
    arch: str
    """What was asked for."""
    status: Literal["built", "failed", "not-built"]
    reason: str = ""
    message: str = ""
    log: str = ""
    cases: tuple[str, ...] = ()
    """Those whose program this is."""
    built_for: str = ""
    entry: str = ""
    """The symbol that is launched."""
    usage: Usage | None = None


def check_arch(arch: str) -> str:
    """An architecture as nvcc calls it. Raises UsageError for what is none."""
    if not _ARCH.match(arch):
        raise UsageError(f"{arch!r} is no architecture: expected the form sm_86 or sm_90a.")
    return arch


def facts_of_arch(arch: str) -> DeviceFacts:
    """What a case may know of any card of an architecture; nothing of how many multiprocessors one has."""
    capability = _capability(arch)
    if capability not in CAPABILITIES:
        return DeviceFacts(arch, "cuda", {"capability": 10 * capability[0] + capability[1]})
    told = Card(arch, capability, multiprocessors=1).facts.facts
    return DeviceFacts(arch, "cuda", {name: fact for name, fact in told.items() if name != "sm_count"})


Making = Callable[[PlannedCase, str], Program]
"""The program of a case for an architecture; raises HarnessError where it cannot be made."""


def builds(planned: Sequence[PlannedCase], archs: Sequence[str], making: Making) -> list[Build]:
    """Every distinct program of the cases for every architecture; compilers work side by side."""
    kernels = list({each.kernel.name: each.kernel for each in planned}.values())
    asked: list[tuple[Build, Program | None]] = []
    for kernel in kernels:
        cases = [each for each in planned if each.kernel is kernel]
        for arch in archs:
            asked += _programs(kernel, cases, arch, making)
    with ThreadPoolExecutor(cpu_count()) as pool:
        return list(pool.map(_build, *zip(*asked, strict=True))) if asked else []


def _programs(
    kernel: Kernel, cases: Iterable[PlannedCase], arch: str, making: Making
) -> list[tuple[Build, Program | None]]:
    """What is to be built for an architecture: a program, with all cases that have it; or why not."""
    named = tuple(each.case.id for each in cases)
    if left_out := _left_out(kernel, arch):
        reason, message = left_out.reason, left_out.message
        return [
            (
                Build(
                    kernel=kernel.name,
                    arch=arch,
                    status="not-built",
                    reason=reason,
                    message=message,
                    cases=named,
                ),
                None,
            )
        ]
    found: dict[tuple[str, ...], tuple[Build, Program | None]] = {}
    for each in cases:
        made: Program | None = None
        try:
            made = making(each, arch)
            key, one = made.compiled, Build(kernel=kernel.name, arch=arch, status="built")
        except HarnessError as error:
            key, one = (error.message,), _failed(kernel.name, arch, error)
        if key in found:
            one, made = found[key]
        found[key] = replace(one, cases=(*one.cases, each.case.id)), made
    return list(found.values())


def _left_out(kernel: Kernel, arch: str) -> Refusal | None:
    """Why a kernel is not for nvcc, or not for this architecture."""
    name, source = kernel.name, kernel.source_for("cuda")
    if source is None:
        return Refusal(
            "needs-backend", f"{name} has no CUDA source: it runs on {' or '.join(kernel.sources)}."
        )
    if not isinstance(source, (str, Generated, HostLibrary)):
        return Refusal(
            "host-function", f"{name} is a function of the host: it builds itself what it launches."
        )
    if missing := lacking(kernel, "cuda"):
        return Refusal("needs-package", missing)
    if kernel.capability is not None and _capability(arch) < kernel.capability:
        return Refusal("needs-capability", f"{name} needs {kernel.requires or kernel.arch}.")
    if kernel.arch and not is_for(kernel.arch, _capability(arch)):
        return Refusal("needs-capability", f"{name} is built for {kernel.arch}, which is not {arch}.")
    return None


def _capability(arch: str) -> tuple[int, int]:
    match = _ARCH.match(arch)
    assert match is not None, "check_arch comes first"
    return int(match[1]), int(match[2])


def _failed(kernel: str, arch: str, error: HarnessError) -> Build:
    return Build(
        kernel=kernel, arch=arch, status="failed", reason=error.reason, message=error.message, log=error.log
    )


def _build(asked: Build, made: Program | None) -> Build:
    if made is None:
        return asked
    try:
        if made.kind == "library":
            return replace(asked, built_for=_library(made, asked.arch), entry=made.function)
        if made.kind == "image":
            return _image(asked, made)
        compiled = compiled_for(made, asked.arch)
        entry = nvcc.entry_among(made, compiled.parameters)
        check_parameters(made, compiled.parameters[entry])
        return replace(asked, built_for=compiled.arch, entry=entry, usage=compiled.usage.get(entry))
    except HarnessError as error:
        return replace(_failed(asked.kernel, asked.arch, error), cases=asked.cases)


def _image(asked: Build, made: Program) -> Build:
    """What can be told of a binary that is not built here."""
    nvcc.check_image(made, asked.arch)
    known = nvcc.entries(made.content)
    symbol = nvcc.entry(made, made.content)
    if known:
        check_parameters(made, known[symbol])
    return replace(
        asked,
        status="not-built",
        reason="prebuilt",
        message=f"{asked.kernel} is a binary already.",
        built_for=nvcc.built_for(made.content) or "",
        entry=symbol,
    )


def _library(made: Program, arch: str) -> str:
    whole = made.arch or nvcc.specific(arch)
    options = (*nvcc.STANDARD, *made.all_options)
    if made.content:
        whole, binary = "", made.content
    else:
        binary, _ = nvcc.through_cache(
            BinaryCache(), made, options, whole, lambda given: nvcc.library(made, given, whole)
        )
    if not nvcc.exports(binary, made.function):
        raise BuildError(
            f"{made.name}: its library has no function {made.function!r}. "
            f'Declare it extern "C" int {made.function}(void *stream, ...).'
        )
    return whole


def compiled_for(made: Program, arch: str) -> Compiled:
    """What the compilers say of a program for an architecture, from the cache where they did. Raises
    BuildError.
    """
    if made.kind == "image":
        raise BuildError(f"{made.name} is a binary: ptxas says nothing of it.")

    def compile_(options: tuple[str, ...]) -> bytes:
        binary, said = nvcc.cubin(made, options, arch)
        return msgspec.json.encode(_told(said, binary, arch))

    options = (*nvcc.STANDARD, *made.all_options, "-Xptxas=-v")
    kept, _ = nvcc.through_cache(BinaryCache(), made, options, arch, compile_)
    return msgspec.json.decode(kept, type=Compiled)


def usage(made: Program, arch: str) -> Usage:
    """Registers, shared memory and spills for an architecture such as sm_86. Raises BuildError."""
    if not nvcc.version():
        raise BuildError("Registers and residency need nvcc, which is not installed.")
    compiled = compiled_for(made, arch)
    return compiled.usage[nvcc.entry_among(made, compiled.parameters)]


def _told(said: str, binary: bytes, arch: str) -> Compiled:
    """Of each function that ptxas compiled, what it said."""
    found: dict[str, Usage] = {}
    marks = list(_COMPILING.finditer(said))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        part = said[mark.end() : following.start() if following else None]
        spilled, used, shared = (pattern.search(part) for pattern in (_SPILLS, _USED, _SHARED))
        found[mark[1]] = Usage(
            registers=int(used[1]) if used else 0,
            shared_bytes=int(shared[1]) if shared else 0,
            spill_store_bytes=int(spilled[1]) if spilled else 0,
            spill_load_bytes=int(spilled[2]) if spilled else 0,
        )
    return Compiled(marks[0][2] if marks else arch, found, nvcc.entries(binary))


def check_parameters(made: Program, sizes: Sequence[int]) -> None:
    """Raise BuildError where a kernel does not take what it will be given: as many values, of these sizes."""
    given = [(each, _bytes_of(each)) for each in made.parameters]
    pairs = enumerate(zip(given, sizes, strict=False), 1)
    differs = next((place for place, ((_, passed), size) in pairs if passed not in (0, size)), None)
    if differs is None and len(given) == len(sizes):
        return
    told = ", ".join(_parameter(each, size) for each, size in given)
    taken = f"takes {len(sizes)} parameters, of {', '.join(map(str, sizes)) or 'no'} bytes"
    first = f" The first that differs is number {differs}." if differs else ""
    raise BuildError(
        f"{made.name} {taken}; it is given {len(given)}: {told}.{first} Say the order by args, or change "
        "the source."
    )


def _bytes_of(parameter: Parameter) -> int:
    """Of what is passed by value its type's, which says its bits; 0 where only the launch knows."""
    if parameter.shape is not None:
        return _POINTER_BYTES
    bits = _BITS.search(parameter.dtype)
    return int(bits[0]) // 8 if bits else 0


def _parameter(parameter: Parameter, size: int) -> str:
    kind = "pointer" if parameter.shape is not None else parameter.dtype
    return f"{parameter.name} ({kind}, {size or 'any'})"
