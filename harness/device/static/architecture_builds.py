"""Builds kernels for architectures that need not be present.

It returns nvcc's result, ptxas' resources of each kernel, and whether its parameters match the harness's
arguments.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import cpu_count
from typing import Literal

import msgspec

from harness.device.backends import cubin, nvcc
from harness.device.backends.cubin import kernel_code
from harness.device.backends.cubin_lines import lines_of
from harness.device.static.disassembly import Listed, disassembled
from harness.device.static.occupancy import CAPABILITIES, CardModel
from harness.device.static.sass import Instructions
from harness.errors import BuildError, HarnessError, UsageError
from harness.suite.device_facts import DeviceFacts
from harness.suite.kernel import Generated, HostLibrary, Kernel, is_for
from harness.suite.layout import Parameter
from harness.suite.planning import PlannedCase, Refusal
from harness.suite.sources import Program, lacking
from harness.system.cache import BinaryCache

_COMPILING = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_BARRIERS = re.compile(r"used (\d+) barriers")
_STACK = re.compile(r"(\d+) bytes stack frame")
_WARNING = re.compile(r"^ptxas warning *: *(.*)$", re.MULTILINE)
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_ARCH = re.compile(r"sm_(\d+)(\d)[af]?\Z")
_BITS = re.compile(r"\d+\Z")
_POINTER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """ptxas' resources of a kernel for one architecture."""

    registers: int
    """Registers of a thread."""
    shared_bytes: int
    """Static shared memory of a block. The launch may add more."""
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int | None = None
    """Stack of a thread: spills, and arrays that are not in registers."""
    barriers: int | None = None


class Kept(msgspec.Struct, frozen=True):
    """A cached compilation, from which a reader with other rules need not compile again."""

    said: str
    binary: bytes


@dataclass(frozen=True, slots=True)
class Compiled:
    """The kernels of a compilation by symbol."""

    arch: str
    """The architecture that it was built for."""
    usage: Mapping[str, Usage]
    parameters: Mapping[str, tuple[int, ...]]
    """Sizes of each kernel's parameters in bytes, in order."""
    warnings: tuple[str, ...]
    binary: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The instructions of a kernel, for one architecture."""

    bytes: int
    """Size of the instructions, without the padding at the end."""
    constant_bytes: int
    """Size of the constant bank with its parameters, after those of the launch itself."""
    sha256: str
    """Equal for two kernels that are the same to the card: see `cubin.kernel_code`."""
    instructions: Instructions | None = None
    problem: str = ""
    """Reason for unknown instructions; empty if they were not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A kernel built for an architecture, or why it was not."""

    kernel: str
    arch: str
    """The requested architecture."""
    status: Literal["built", "failed", "not-built"]
    reason: str = ""
    message: str = ""
    log: str = ""
    cases: tuple[str, ...] = ()
    """Ids of the cases with this program."""
    built_for: str = ""
    entry: str = ""
    """Symbol of the launched function."""
    usage: Usage | None = None
    warnings: tuple[str, ...] = ()
    """Warnings of ptxas."""
    code: Code | None = None
    library_sha256: str = ""
    """Hash of the sources of a host library, its only known fact."""


def check_arch(arch: str) -> str:
    """Return an architecture as nvcc calls it. Raises UsageError for an unknown one."""
    if not is_arch(arch):
        raise UsageError(f"{arch!r} is no architecture: expected the form sm_86 or sm_90a.")
    return arch


def is_arch(text: str) -> bool:
    """Return whether this is an architecture as nvcc calls it."""
    return _ARCH.match(text) is not None


def facts_of_arch(arch: str) -> DeviceFacts:
    """Return facts of any card of an architecture, without the number of multiprocessors."""
    capability = capability_of(arch)
    if capability not in CAPABILITIES:
        return DeviceFacts(arch, "cuda", {"capability": 10 * capability[0] + capability[1]})
    return CardModel(arch, capability, multiprocessors=0).facts


Making = Callable[[PlannedCase, str], Program]
"""Returns the program of a case for an architecture; raises HarnessError if that is impossible."""


def builds(
    planned: Sequence[PlannedCase],
    archs: Sequence[str],
    making: Making,
    *,
    cache: BinaryCache | None = None,
    instructions: bool = False,
    libraries: bool = True,
    timeout_s: float | None = None,
    tell: Callable[[int, int], object] = lambda _done, _all: None,
) -> list[Build]:
    """Build every distinct program for every architecture in parallel, each for at most `timeout_s`.

    `tell` gets the numbers of finished and of all builds. Without `libraries`, these are only identified.
    """
    kernels = list({each.kernel.name: each.kernel for each in planned}.values())
    asked: list[tuple[Build, Program | None]] = []
    for kernel in kernels:
        cases = [each for each in planned if each.kernel is kernel]
        for arch in archs:
            asked += _programs(kernel, cases, arch, making)
    found, kept = [], cache or BinaryCache()
    with ThreadPoolExecutor(cpu_count()) as pool:
        waiting = [
            pool.submit(_build, each, made if libraries or not each.library_sha256 else None, kept, timeout_s)
            for each, made in asked
        ]
        for done, each in enumerate(waiting, 1):
            found.append(each.result())
            tell(done, len(waiting))
        return _disassembled(found, pool) if instructions else [build for build, _ in found]


def _disassembled(found: Sequence[tuple[Build, Listed | None]], pool: ThreadPoolExecutor) -> list[Build]:
    """Return the builds with their instructions."""
    by_arch: dict[str, list[Listed]] = {}
    for build, code in found:
        if code is not None:
            by_arch.setdefault(build.built_for, []).append(code)
    listings = dict(zip(by_arch, pool.map(disassembled, by_arch, by_arch.values()), strict=True))
    return [
        build if code is None else _with_instructions(build, listings[build.built_for][code])
        for build, code in found
    ]


def _with_instructions(build: Build, instructions: Instructions | BuildError) -> Build:
    assert build.code is not None, "there are instructions"
    if isinstance(instructions, BuildError):
        return replace(build, code=replace(build.code, problem=instructions.message))
    return replace(build, code=replace(build.code, instructions=instructions))


def _programs(
    kernel: Kernel, cases: Sequence[PlannedCase], arch: str, making: Making
) -> list[tuple[Build, Program | None]]:
    """Return each program for an architecture with all its cases, or the reason why there is none."""
    build = Build(kernel=kernel.name, arch=arch, status="built")
    if why := next(_refusals(kernel, arch), None):
        ids = tuple(each.case.id for each in cases)
        return [(replace(build, status="not-built", reason=why.reason, message=why.message, cases=ids), None)]
    found: dict[tuple[str, ...], tuple[Build, Program | None]] = {}
    for each in cases:
        made: Program | None = None
        try:
            made = making(each, arch)
            key, one = made.compiled, build
            if made.kind == "library":
                one = replace(build, status="not-built", reason="library", library_sha256=_identity(made))
        except HarnessError as error:
            key, one = (error.message,), _failed(build, error)
        if key in found:
            one, made = found[key]
        found[key] = replace(one, cases=(*one.cases, each.case.id)), made
    return list(found.values())


def _identity(library: Program) -> str:
    """Return a hash that is equal for libraries with the same text, options and headers."""
    made_of = library if library.folders else replace(library, tree_sha256="")
    return hashlib.sha256(f"{library.function}\0{made_of.sha256}".encode()).hexdigest()


def _refusals(kernel: Kernel, arch: str) -> Iterator[Refusal]:
    """Yield why a kernel is not built for this architecture."""
    name, source, capability = kernel.name, kernel.source_for("cuda"), capability_of(arch)
    if source is None:
        backends = " or ".join(kernel.sources)
        yield Refusal("needs-backend", f"{name} has no CUDA source: it runs on {backends}.")
    if not isinstance(source, (str, Generated, HostLibrary)):
        what = f"{name} is a function of the host, which builds itself what it launches"
        yield Refusal("host-function", f"{what}: 'harness check' calls it on a device.")
    if missing := lacking(kernel, "cuda"):
        yield Refusal("needs-package", missing)
    if (refused := _compiler_lacks(arch)) and isinstance(source, str):
        yield refused
    if kernel.capability is not None and capability < kernel.capability:
        yield Refusal("needs-capability", f"{name} needs {kernel.requires or kernel.arch}.")
    if kernel.cluster is not None and capability < (9, 0):
        yield Refusal("needs-capability", f"{name} needs sm_90, for its clusters.")
    if kernel.arch and not is_for(kernel.arch, capability):
        yield Refusal("needs-capability", f"{name} is built for {kernel.arch}, which is not {arch}.")


def _compiler_lacks(arch: str) -> Refusal | None:
    """Return why this nvcc does not compile for an architecture: it is missing, too old, or too new."""
    supported = nvcc.architectures()
    if not supported or not nvcc.version():
        return None  # the kernel that needs it gets the reason
    if {arch, arch.rstrip("af")} & {*supported}:
        return None
    listed = ", ".join(supported)
    return Refusal("needs-compiler", f"{nvcc.version()} compiles nothing for {arch}, only for {listed}.")


def capability_of(arch: str) -> tuple[int, int]:
    match = _ARCH.match(arch)
    assert match is not None, "check_arch comes first"
    return int(match[1]), int(match[2])


def _failed(build: Build, error: HarnessError) -> Build:
    return replace(build, status="failed", reason=error.reason, message=error.message, log=error.log)


def _build(
    asked: Build, made: Program | None, cache: BinaryCache, timeout_s: float | None
) -> tuple[Build, Listed | None]:
    if made is None:
        return asked, None
    try:
        if made.kind == "library":
            return _library(asked, made, cache), None
        if made.kind == "image":
            return _image(asked, made), None
        compiled = compiled_for(made, asked.arch, timeout_s, cache)
        entry = nvcc.entry_among(made, compiled.parameters)
        for part in functions_of(made):
            check_parameters(part, compiled.parameters[nvcc.entry_among(part, compiled.parameters)])
        code = kernel_code(compiled.binary, entry)
        used, warnings = compiled.usage.get(entry), compiled.warnings
        built = replace(asked, built_for=compiled.arch, entry=entry, usage=used, warnings=warnings)
        if code is None:
            return built, None
        facts = Code(bytes=len(code.instructions), constant_bytes=code.constant_bytes, sha256=code.sha256)
        return replace(built, code=facts), Listed(code.instructions, lines_of(compiled.binary, entry))
    except HarnessError as error:
        return _failed(asked, error), None


def _image(asked: Build, made: Program) -> Build:
    """Return the facts of a prebuilt binary."""
    nvcc.check_image(made, asked.arch)
    kernels = cubin.entries(made.content)
    symbol = nvcc.entry(made, made.content)
    for part in functions_of(made) if kernels else ():
        check_parameters(part, kernels[nvcc.entry_among(part, kernels)])
    return replace(
        asked,
        status="not-built",
        reason="prebuilt",
        message=f"{asked.kernel} is a binary already.",
        built_for=cubin.built_for(made.content) or "",
        entry=symbol,
    )


def _library(asked: Build, made: Program, cache: BinaryCache) -> Build:
    whole = "" if made.content else made.arch or nvcc.specific(asked.arch)
    if not cubin.exports(nvcc.binary_of(cache, made, whole), made.function):
        raise BuildError(
            f"{made.name}: its library has no function {made.function!r}. "
            f'Declare it extern "C" int {made.function}(void *stream, ...).'
        )
    return replace(asked, status="built", reason="", built_for=whole, entry=made.function)


def compiled_for(
    made: Program, arch: str, timeout_s: float | None = None, cache: BinaryCache | None = None
) -> Compiled:
    """Return the compilers' output for a program, from the cache if possible. Raises BuildError."""
    if made.kind == "image":
        raise BuildError(f"{made.name} is a binary: ptxas says nothing of it.")

    def compile_(options: tuple[str, ...]) -> bytes:
        binary, said = nvcc.cubin(made, options, arch, timeout_s)
        return msgspec.msgpack.encode(Kept(said, binary))

    # Line numbers change no instruction, and show its source.
    options = (*nvcc.STANDARD, *made.all_options, "-lineinfo", "-Xptxas=-v")
    kept = nvcc.through_cache(cache or BinaryCache(), made, options, arch, compile_)
    return _parsed(msgspec.msgpack.decode(kept, type=Kept), arch)


def usage(made: Program, arch: str) -> Usage:
    """Return registers, shared memory and spills for an architecture such as sm_86. Raises BuildError."""
    if not nvcc.version():
        raise BuildError("Registers and residency need nvcc, which is not installed.")
    compiled = compiled_for(made, arch)
    return compiled.usage[nvcc.entry_among(made, compiled.parameters)]


def _parsed(kept: Kept, arch: str) -> Compiled:
    """Return a compilation with ptxas' output for each function."""
    found: dict[str, Usage] = {}
    marks = list(_COMPILING.finditer(kept.said))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        part = kept.said[mark.end() : following.start() if following else None]

        def number(pattern: re.Pattern[str], group: int = 1, part: str = part) -> int:
            return int(match[group]) if (match := pattern.search(part)) else 0

        found[mark[1]] = Usage(
            registers=number(_USED),
            shared_bytes=number(_SHARED),
            spill_store_bytes=number(_SPILLS),
            spill_load_bytes=number(_SPILLS, 2),
            stack_bytes=number(_STACK),
            barriers=number(_BARRIERS),
        )
    return Compiled(
        arch=marks[0][2] if marks else arch,
        usage=found,
        parameters=cubin.entries(kept.binary),
        warnings=tuple(dict.fromkeys(_WARNING.findall(kept.said))),
        binary=kept.binary,
    )


def functions_of(made: Program) -> Iterator[Program]:
    """Yield a program for each function that a launch runs, with that function's own parameters."""
    begin = 0
    for name, count in made.steps:
        given = made.parameters[begin : begin + count]
        step = f"{made.name}'s step {name}"
        yield replace(made, name=step, function=name, instance="", steps=(), parameters=given)
        begin += count
    yield replace(made, steps=(), parameters=made.parameters[begin:])


def check_parameters(made: Program, sizes: Sequence[int]) -> None:
    """Raise BuildError if a kernel's parameters do not match its arguments in number and sizes."""
    given = [(parameter, _bytes_of(parameter)) for parameter in made.parameters]
    pairs = enumerate(zip(given, sizes, strict=False), 1)
    differs = next((place for place, ((_, passed), size) in pairs if passed not in (0, size)), None)
    if differs is None and len(given) == len(sizes):
        return
    listed = ", ".join(_parameter(parameter, size) for parameter, size in given)
    taken = f"takes {len(sizes)} parameters, of {', '.join(map(str, sizes)) or 'no'} bytes"
    first = f" The first that differs is number {differs}." if differs else ""
    raise BuildError(
        f"{made.name} {taken}; it is given {len(given)}: {listed}.{first} Say the order by args, or change "
        "the source."
    )


def _bytes_of(parameter: Parameter) -> int:
    """Return the size of an argument in bytes: a pointer, or a value; 0 if only the launch knows."""
    if parameter.layout:
        return _POINTER_BYTES
    bits = _BITS.search(parameter.dtype)
    return int(bits[0]) // 8 if bits else 0


def _parameter(parameter: Parameter, size: int) -> str:
    kind = "pointer" if parameter.layout else parameter.dtype
    return f"{parameter.name} ({kind}, {size or 'any'})"
