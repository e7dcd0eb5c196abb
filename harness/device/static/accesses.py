"""Memory accesses of a kernel's warps: sectors of 32 bytes per request, and bank conflicts.

The kernel's CUDA text is compiled for the host as the work of one thread, with a call at each access, as for
thread sanitizers. The threads of a block's warps run one after another on arrays of the case's sizes. The
recorded addresses are those that the card would see. Only g++ is needed. Accesses that the card's compiler
merges or keeps in registers, and effects of caches, are not modelled.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from harness.device.static.host_code import without_host_code
from harness.errors import BuildError
from harness.records.types import Launch
from harness.suite.kernel import Kernel
from harness.suite.layout import Parameter
from harness.suite.problem import Case
from harness.suite.sources import Program, program
from harness.suite.suite import Suite
from harness.system.cache import BinaryCache
from harness.system.decoding import decode
from harness.system.process import finished

WARPS = 8
"""Most warps of one block that are examined, evenly chosen."""
TIMEOUT_S = 60.0

_ASSETS = Path(__file__).resolve().with_name("thread_runner")
_OPTIONS = (
    *("-std=c++17", "-O2", "-w", "-fsanitize=thread", "-fno-pie"),
    # A compiler that merges accesses of one thread would change a warp's requests.
    *("-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-tree-loop-distribute-patterns"),
    "-fno-tree-sra",  # splits a structure that is stored at once
    "-fno-threadsafe-statics",  # shared memory is static here
)
_RUNNER_OPTIONS = ("-std=c++17", "-O2", "-w", "-fno-pie")
_C_TYPES = {
    **{f"int{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "float64": "double",
}
"""C types of scalars by dtype. Any other is a float."""
_TOOLKIT = (
    *("cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h", "device_functions.h"),
    *("cuda_profiler_api.h", "vector_types.h", "cooperative_groups.h"),
)
"""Headers of CUDA's toolkit whose declarations are in the assets' cuda.h, as far as kernels use them."""
_OWN = {"threadIdx", "blockIdx", "blockDim", "gridDim"}


@dataclass(frozen=True, slots=True)
class Access:
    """All reads, or all writes, of one array by the warps of one block."""

    array: str
    space: Literal["global", "shared"]
    stores: bool
    bytes: int
    """Bytes that one thread reads or writes at once; the largest if they differ."""
    requests: float
    """Requests of one warp."""
    sectors: float
    """Mean number of 32-byte sectors of a request. 32 neighbours of 4 bytes touch 4."""
    conflicts: float
    """Mean number of times that a shared memory request is served. It is 1 without bank conflicts."""

    @property
    def fewest_sectors(self) -> int:
        """Return the sectors of a request whose 32 threads access neighbours."""
        return self.bytes

    @property
    def describe(self) -> str:
        """Return a description: ``store of tile_a: 8-way``, or ``load of a: 16 sectors``."""
        what = f"{'store' if self.stores else 'load'} of {self.array}"
        if self.space == "global":
            return f"{what}: {self.sectors:.3g} sectors"
        return f"{what}: {f'{self.conflicts:.3g}-way' if self.conflicts >= 1.005 else 'no conflict'}"


def accesses(suite: Suite, kernel: Kernel, case: Case, launch: Launch) -> tuple[Access, ...]:
    """Return the accesses of the warps of a block in the middle of the grid, arrays of the problem first.

    Raises BuildError without CUDA text or g++, if g++ cannot compile the text, and after the timeout.
    """
    compiler = _compiler()
    if not compiler:
        raise BuildError("Access patterns need g++, which is not installed.")
    source = kernel.source_for("cuda")
    made = program(suite, kernel, case, "cuda", "sm_80") if source is not None else None
    if made is None or made.kind != "kernel":
        raise BuildError(f"{suite.name}.{kernel.name} has no CUDA source whose accesses could be followed.")
    if kernel.steps or kernel.setup:
        raise BuildError("The accesses of a kernel with steps or a setup are not followed.")
    if "mma.h" in made.text:
        raise BuildError("With tensor cores, the addresses of threads do not show what a warp reads.")
    parameters = suite.parameters(kernel, case)
    text = _host_text(made, parameters, case)
    runner = (_ASSETS / "run.cpp").read_text(encoding="utf-8")
    cache = BinaryCache()
    facts = (f"{launch.grid} {launch.block}", runner, (_ASSETS / "cuda.h").read_text(encoding="utf-8"))
    key = cache.key(text, (*_OPTIONS, *facts, repr(parameters)), compiler, "accesses")
    if made.folders:  # the key does not cover its headers
        return tuple(_run(text, made.folders, parameters, launch))
    if (found := cache.get(key)) is None:
        found = msgspec.json.encode(_run(text, (), parameters, launch))
        cache.put(key, found)
    return decode(found, tuple[Access, ...])


@functools.cache
def _compiler() -> str:
    if shutil.which("g++") is None:
        return ""
    return finished(["g++", "--version"])[1]


def _host_text(made: Program, parameters: Sequence[Parameter], case: Case) -> str:
    """Return the kernel's text in host C++, and a function that calls it on arrays."""
    text = without_host_code(made.text)
    text = re.sub(r"#pragma unroll(?!\s*\d)", "#pragma GCC unroll 64", text)
    text = text.replace("#pragma unroll", "#pragma GCC unroll")
    # Shared memory sized by the launch is defined in the code that runs the threads.
    text = re.sub(r"\bextern\s+__shared__", "extern", text)
    arrays = [each.name for each in parameters if each.layout]
    given = (
        f"arrays[{arrays.index(each.name)}]" if each.layout else f"harness_{each.name}" for each in parameters
    )
    called = made.instance or made.function
    axes = (f"volatile int harness_{name} = {size};\n" for name, size in case.sizes.items())
    scalars = (
        f"volatile {_C_TYPES.get(each.dtype, 'float')} harness_{each.name} = {case.scalars[each.name]};\n"
        for each in parameters
        if each.name in case.scalars
    )
    return (
        f'#include "cuda.h"\n{text}\n{"".join(axes)}{"".join(scalars)}'
        # It converts to any pointer type of the kernel.
        "struct harness_array { void* at; "
        "template <class harness_t> operator harness_t*() const { return (harness_t*)at; } };\n"
        f'extern "C" void harness_call(harness_array* arrays) {{ {called}({", ".join(given)}); }}\n'
    )


def _run(text: str, folders: Sequence[str], parameters: Sequence[Parameter], launch: Launch) -> list[Access]:
    """Compile, run, and add up by array."""
    arrays = {each.name: each.layout for each in parameters if each.layout}
    with tempfile.TemporaryDirectory() as scratch:
        kernel, binary = Path(scratch, "kernel.cpp"), Path(scratch, "accesses")
        kernel.write_text(text, encoding="utf-8")
        for name in _TOOLKIT:
            Path(scratch, name).touch()
        searched = [f"-I{folder}" for folder in (_ASSETS, scratch, *folders)]
        _output(["g++", *_OPTIONS, *searched, "-c", str(kernel), "-o", f"{kernel}.o"])
        dynamic = [f"-Wl,--defsym={name}=harness_dynamic_shared" for name in _undefined(f"{kernel}.o", text)]
        runner = Path(scratch, "run.o")
        runner.write_bytes(_runner())
        _output(["g++", "-no-pie", str(runner), f"{kernel}.o", *dynamic, "-o", str(binary)])
        sizes = [layout.size_bytes for layout in arrays.values()]
        output = ""
        # If the grid does not depend on the size, blocks in its middle may have no work.
        for block in ([extent // 2 for extent in launch.grid], [0, 0, 0]):
            numbers = (*launch.grid, *launch.block, *block, WARPS, *sizes)
            output = _output([str(binary), *map(str, numbers)])
            if any(not line.startswith("-1") and line.split()[1] == "1" for line in output.splitlines()):
                break
        shared = _shared_symbols(binary)
    warps = min(WARPS, -(-launch.block[0] * launch.block[1] * launch.block[2] // 32))
    return _added_up(output, list(arrays), shared, warps)


def _runner() -> bytes:
    """Return the part that runs a kernel's threads, compiled once: it takes five times as long as
    a kernel.
    """
    source = _ASSETS / "run.cpp"
    cache = BinaryCache()
    key = cache.key(source.read_text(encoding="utf-8"), _RUNNER_OPTIONS, _compiler(), "accesses")
    if (found := cache.get(key)) is None:
        with tempfile.TemporaryDirectory() as scratch:
            unit = Path(scratch, "run.o")
            _output(["g++", *_RUNNER_OPTIONS, "-c", str(source), "-o", str(unit)])
            found = unit.read_bytes()
        cache.put(key, found)
    return found


def _output(command: Sequence[str]) -> str:
    try:
        status, out, err = finished(command, timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{Path(command[0]).name} took more than {TIMEOUT_S:.0f} s.") from error
    if status:
        lines = [line for line in err.splitlines() if "error" in line] or err.splitlines()
        said = lines[0] if lines else f"ended with {status}"
        raise BuildError(f"The kernel's accesses cannot be followed: {said}", log=err[-8000:])
    return out


def _undefined(unit: str, text: str) -> list[str]:
    """Return the names of arrays whose size comes from the launch."""
    names = (line.split()[-1] for line in _output(["nm", "-u", unit]).splitlines())
    return [name for name in names if name not in _OWN and re.search(rf"\b{re.escape(name)}\s*\[", text)]


def _shared_symbols(binary: Path) -> dict[int, str]:
    """Return the arrays in shared memory by offset."""
    symbols = [line.split(maxsplit=2) for line in _output(["nm", "--demangle", str(binary)]).splitlines()]
    at = {symbol[2]: int(symbol[0], 16) for symbol in symbols if len(symbol) == 3 and symbol[1] in "dDbB"}
    begin, end = (at.get(f"__{edge}_harness_shared", 0) for edge in ("start", "stop"))
    return {
        address - begin: re.sub(r"\W.*", "", name.rpartition("::")[2])
        for name, address in at.items()
        if begin <= address < end and "harness_shared" not in name
    }


def _added_up(output: str, names: Sequence[str], shared: Mapping[int, str], warps: int) -> list[Access]:
    """Return one Access for all places with the same access to the same array, weighted by requests."""
    places: dict[tuple[int, str, bool], list[tuple[int, float, float, float]]] = defaultdict(list)
    for line in output.splitlines():
        array, writes, width, offset, requests, looked_at, sectors, wavefronts = map(float, line.split())
        begins = [begin for begin in shared if begin <= offset]
        name = names[int(array)] if array >= 0 else shared[max(begins)] if begins else "shared"
        order = int(array) if array >= 0 else len(names)
        each = (int(width), requests, sectors / looked_at, wavefronts / looked_at)
        places[order, name, bool(writes)].append(each)
    found = []
    for (order, name, writes), all_of_it in sorted(places.items()):
        requests = sum(each[1] for each in all_of_it)
        sectors, conflicts = (sum(each[1] * each[at] for each in all_of_it) / requests for at in (2, 3))
        space: Literal["global", "shared"] = "global" if order < len(names) else "shared"
        widest = max(each[0] for each in all_of_it)
        found.append(Access(name, space, writes, widest, requests / warps, sectors, conflicts))
    return found
