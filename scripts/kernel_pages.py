"""Write docs/kernels/: a page and a picture for every kernel of the suites, and the index.

    python scripts/kernel_pages.py                     write what has changed
    python scripts/kernel_pages.py --check             say what has drifted; exit status 1 where anything has
    python scripts/kernel_pages.py --record FOLDER...  take the figures from stored runs, then write

All of a page follows from the suite, but for two texts that are written by hand, in the page itself: those
below "The idea" and "What limits it". They are kept, and should be short. A new kernel needs an
entry in PICTURES below; its page is then made with both texts empty, and the check fails until they are
written.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

if __package__ in (None, ""):  # run as a command: the folder above is where `scripts` and `harness` are found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.device.static.accesses import Access, accesses
from harness.device.static.architecture_builds import usage
from harness.device.static.occupancy import CARDS, residency
from harness.errors import BuildError, HarnessError
from harness.history.row_summary import RowSummary, summary_of
from harness.records.record_files import read_run
from harness.records.types import Launch, Row, Run
from harness.report.templates import inline
from harness.report.terminal.ladder_tables import publication
from harness.suite.case_id import size_label
from harness.suite.kernel import Generated, HostFunction, HostLibrary, Kernel, KernelSource, PythonFunction
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of
from harness.suite.problem import Case
from harness.suite.sources import program
from harness.suite.suite import Ladder, Rung, Suite
from scripts import kernel_pictures as pictures

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "kernels"
FIGURES = "figures.json"
CARD = CARDS["h200"]
"""The device given to grids that depend on one."""
ACCESSES = "accesses.json"
"""What following the kernels' accesses found, by the text that was followed: it takes seconds a kernel."""
SUITES = ("matmul", "copy", "transpose")
SIZE = 4096
"""What launches and work are stated at, where the suite has this size."""

IDEA = "The idea"
LIMITS = "What limits it"
MADE = (
    "<!-- Made by scripts/kernel_pages.py from the suite. "
    f'Write only below "{IDEA}" and "{LIMITS}"; run the script after any change. -->'
)
COMMAND = "python scripts/kernel_pages.py"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One kernel at the size that its page states."""

    suite: Suite
    kernel: Kernel
    case: Case
    launch: Launch
    one_wave: bool = False
    """True if the grid depends on the number of resident blocks, and is therefore that of CARD."""

    @property
    def elements_per_thread(self) -> int:
        """Elements of the output for each thread of the grid at this size, rounded up."""
        outputs = list(self.suite.problem.outputs.values())
        elements = product(outputs[0].shape_at(self.case))
        return -(-elements // (product(self.launch.grid) * product(self.launch.block)))

    @property
    def macros(self) -> dict[str, int]:
        return {name: value for name, value in self.case.macros.items() if isinstance(value, int)}


def product(values: Iterable[int]) -> int:
    return functools.reduce(lambda x, y: x * y, values, 1)


def subjects(suite: Suite) -> Iterator[Subject]:
    points = list(suite.problem.points())
    point = next((point for point in points if set(point.values()) == {SIZE}), points[-1])
    return (_subject(suite, kernel, point) for kernel in suite.kernels)


def _subject(suite: Suite, kernel: Kernel, point: Mapping[str, int]) -> Subject:
    case = suite.case(kernel, point, device=CARD.facts)
    asked = False

    def resident(launch: Launch) -> int:
        nonlocal asked
        asked = True
        return resident_blocks(suite, kernel, case, launch)

    launch = launch_of(kernel, case, resident)
    return Subject(suite=suite, kernel=kernel, case=case, launch=launch, one_wave=asked)


# Pictures


def _square(s: Subject) -> dict[str, Any]:
    tile = s.case.TILE
    return {"bm": tile, "bn": tile, "bk": tile, "threads": (s.launch.block[0], s.launch.block[1])}


def _strided(s: Subject) -> dict[str, Any]:
    """Of a grid that does not depend on the matrix."""
    grid_x, grid_y, _ = s.launch.grid
    tile = s.case.TILE
    return {"footprint": (grid_y * tile, grid_x * tile), "problem": s.case.m}


def _turned(s: Subject) -> dict[str, Any]:
    """Likewise, where x counts the blocks down the rows."""
    grid_x, grid_y, _ = s.launch.grid
    tile = s.case.TILE
    return {"footprint": (grid_x * tile, grid_y * tile), "problem": s.case.m}


def _patches(s: Subject) -> pictures.Picture:
    return pictures.Staged(
        bm=s.case.BM,
        bn=s.case.BN,
        bk=s.case.BK,
        tm=s.case.TM,
        tn=s.case.TN,
        threads=(s.case.BN // s.case.TN, s.case.BM // s.case.TM),
    )


def _fragments(s: Subject) -> pictures.Picture:
    edge = 16 * s.case.FRAGMENTS
    return pictures.WarpFragments(bm=edge, bn=edge, bk=16, threads=(32, 1))


GRID = 1024
"""Edge of the C that a hierarchy's grid is drawn for."""


def _grid(bm: int, bn: int, *notes: str) -> pictures.Level:
    return pictures.Level(
        name="grid",
        rows=GRID,
        columns=GRID,
        deep=GRID // 2,
        held="pale",
        part=(bm, bn),
        notes=("of blocks", pictures.by(bm, bn), *notes),
    )


def _warp_tiles(s: Subject, *staged: str) -> pictures.Picture:
    """On the plain cores. A warp's threads lie as CUTLASS lays them (simt_get_warp_threads_m): 8 down and 4
    across a tile that is higher than wide, else 4 and 8, each with patches of 4 x 4.
    """
    wm, wn = s.case.WM, s.case.WN
    down = 8 if wm > wn else 4
    tm, tn = wm // down, wn // (32 // down)
    return pictures.Hierarchy(
        levels=(
            _grid(s.case.BM, s.case.BN, "inner products", "along all of k"),
            pictures.Level(
                name="block",
                rows=s.case.BM,
                columns=s.case.BN,
                deep=s.case.BK,
                held="shared",
                part=(wm, wn),
                notes=("of warps", pictures.by(wm, wn), *staged),
            ),
            pictures.Level(
                name="warp",
                rows=wm,
                columns=wn,
                deep=s.case.BK,
                held="shared",
                part=(tm, tn),
                patch=(4, 4),
                notes=("of 32 threads", pictures.by(tm, tn), "in patches", f"of {pictures.by(4, 4)}"),
            ),
            pictures.Level(
                name="thread",
                rows=tm,
                columns=tn,
                deep=1,
                held="solid",
                part=(1, 1),
                notes=("a column of A", "by a row of B,", "summed up in", "registers"),
            ),
        ),
    )


def _warp_tiles_in_stages(s: Subject) -> pictures.Picture:
    return _warp_tiles(s, f"{s.case.BK} along k,", f"{s.case.STAGES} stages")


def _mma_sync(s: Subject, along_k: int = 16) -> pictures.Picture:
    bm, bn, bk = s.case.BM, s.case.BN, s.case.BK
    warp = (s.case.WM, s.case.WN)
    return pictures.Hierarchy(
        levels=(
            _grid(bm, bn, f"{s.case.GROUP} rows of them", "at a time"),
            pictures.Level(
                name="block",
                rows=bm,
                columns=bn,
                deep=bk,
                held="shared",
                part=warp,
                notes=("of warps", pictures.by(*warp), f"{bk} along k,", f"{s.case.STAGES} stages"),
            ),
            pictures.Level(
                name="warp",
                rows=warp[0],
                columns=warp[1],
                deep=along_k,
                held="shared",
                part=(16, 8),
                notes=("of fragments", pictures.by(16, 8), f"{along_k} along k,", "by ldmatrix"),
            ),
            pictures.Level(
                name="instruction",
                rows=16,
                columns=8,
                deep=along_k,
                held="solid",
                part=(16, 8),
                notes=("mma.sync: A, B", "and the sum in", "registers of", "32 threads"),
            ),
        ),
    )


def _clustered(s: Subject) -> pictures.Picture:
    return _warpgroups(s, "in clusters", f"of {pictures.by(s.case.CLUSTER_M, s.case.CLUSTER_N)}")


def _paired(s: Subject) -> pictures.Picture:
    return _warpgroups(s, "in clusters", f"of {s.case.CLUSTER} blocks", told="")


def _warpgroups(s: Subject, *notes: str, told: str = "as on Hopper") -> pictures.Picture:
    """On Hopper: two warp groups of a block, and tensor core instructions as wide as the block's tile."""
    bm, bn, bk = s.case.BM, s.case.BN, s.case.BK
    group = (bm // 2, bn)
    return pictures.Hierarchy(
        levels=(
            _grid(bm, bn, *notes),
            pictures.Level(
                name="block",
                rows=bm,
                columns=bn,
                deep=bk,
                held="shared",
                part=group,
                notes=("of warp groups", pictures.by(*group), f"{bk} along k"),
            ),
            pictures.Level(
                name="warp group",
                rows=group[0],
                columns=bn,
                deep=bk,
                held="shared",
                part=group,
                notes=("4 warps, one", "instruction:", f"64 {pictures.TIMES} {bn},", "16 along k"),
            ),
            pictures.Level(
                name="instruction",
                rows=group[0],
                columns=bn,
                deep=16,
                held="shared",
                part=group,
                notes=("reads A and B", "where they lie,", "sums C up in", "registers"),
            ),
        ),
        told=told,
    )


PICTURES: Mapping[str, Callable[[Subject], pictures.Picture]] = {
    "naive": lambda s: pictures.Direct(**_square(s), along="rows"),
    "naive_coalesced": lambda s: pictures.Direct(bm=s.case.BY, bn=s.case.BX, threads=(s.case.BX, s.case.BY)),
    "block_tiling": lambda s: pictures.Staged(**_square(s)),
    "block_tiling_as_published": lambda s: pictures.Staged(**_square(s)),
    "shared_tile": lambda s: pictures.Staged(**_square(s)),
    "thread_tiling": lambda s: pictures.Staged(**_square(s), tm=s.case.TM),
    "thread_tiling_as_published": lambda s: pictures.Staged(**_square(s), tm=s.case.TM),
    "thread_tiling_2d_as_published": lambda s: pictures.Staged(**_square(s), tm=s.case.T, tn=s.case.T),
    "thread_tiling_2d": _patches,
    "thread_tiling_2d_vectorized": _patches,
    "warp_tiling": lambda s: _warp_tiles(s, f"{s.case.BK} along k"),
    "double_buffering": lambda s: _warp_tiles(s, f"{s.case.BK} along k,", "twice"),
    "async_copy": _warp_tiles_in_stages,
    "register_prefetch": _warp_tiles_in_stages,
    "loop_tiling": lambda s: pictures.Direct(
        bm=s.case.BY,
        bn=s.case.BX,
        threads=(s.case.BX, s.case.BY),
        footprint=(product(s.launch.grid) * s.case.BX * s.case.BY // s.case.n, s.case.n),
        problem=s.case.m,
    ),
    "loop_tiling_as_published": lambda s: pictures.Direct(**_square(s), **_turned(s), along="rows"),
    "loop_tiling_shared": lambda s: pictures.WholeRows(
        **_square(s), **_strided(s), shared_bytes=s.launch.dynamic_shared_bytes
    ),
    "outer_product": lambda s: pictures.Staged(**_square(s), outer=True),
    "outer_product_swizzled": lambda s: pictures.Staged(**_square(s), outer=True),
    "outer_product_as_published": lambda s: pictures.Staged(**_square(s)),
    "outer_product_loop_tiling": lambda s: pictures.Staged(**_square(s), **_strided(s), outer=True),
    "wmma": _fragments,
    "wmma_warp_tiling": _fragments,
    "mma_sync": _mma_sync,
    "mma_sync_bf16": _mma_sync,
    "mma_sync_tf32": lambda s: _mma_sync(s, along_k=8),
    "wgmma": lambda s: _warpgroups(s, "one block", "per SM", told=""),
    "wgmma_store": lambda s: _warpgroups(s, "one block", "per SM", told=""),
    "wgmma_multicast": _paired,
    "wgmma_multicast_bf16": _paired,
    "compute_shader": lambda s: pictures.Staged(
        **_square(s),
        part=(s.launch.dispatch[1] * s.case.TILE, s.launch.dispatch[0] * s.case.TILE)
        if s.launch.dispatch
        else None,
        problem=s.case.m,
    ),
    "cublas": lambda _: pictures.Levels(tiles=(("block", 128, 128), ("warp", 64, 64), ("thread", 8, 8))),
    "cublas_tf32": lambda _: pictures.Levels(),
    "cublas_f16": lambda _: pictures.Levels(),
    "cublas_bf16": lambda _: pictures.Levels(),
    "cutlass": _warp_tiles_in_stages,
    "cutlass_f16": _clustered,
    "schedule_plain": lambda s: pictures.Direct(
        bm=5,
        bn=64,
        told=f"Each block computes {s.case.THREADS:,} neighbouring elements of one row of C.",
        notes=("a block: one row of C,", f"{s.case.THREADS:,} elements of it"),
    ),
    "schedule": lambda s: pictures.Scheduled(
        bm=s.case.BM,
        bn=s.case.BN,
        bk=s.case.BK,
        tm=s.case.TM,
        tn=s.case.TN,
        threads=(s.launch.block[0], s.launch.block[1]),
    ),
    "cpu_loop": lambda _: pictures.HostLoop(),
    "cpu_blas": lambda _: pictures.HostBlas(),
    "copy": lambda s: pictures.Moved(threads=s.case.THREADS),
    "copy_unrolled": lambda s: pictures.Moved(threads=s.case.THREADS, items=s.case.ITEMS),
    "copy_vectorized": lambda s: pictures.Moved(threads=s.case.THREADS, items=1, vector=4),
    "transpose_naive": lambda s: pictures.Moved(tile=s.case.TILE),
    "transpose_tiled": lambda s: pictures.Moved(tile=s.case.TILE, by_shared=True),
    "transpose_vectorized": lambda s: pictures.Moved(tile=s.case.TILE, by_shared=True, vector=s.case.VECTOR),
}
"""Drawings of the kernels, by their macros and launches."""


# Shared memory that a source declares

_SHARED = re.compile(
    r"^[ \t]*(?:SHARED|__shared__|shared)[ \t]+(?:__align__\(\d+\)[ \t]+)?"
    r"(\w+)[ \t]+(\w+)((?:\[[^\]]+\])*)[ \t]*;",
    re.MULTILINE,
)
_DEFINE = re.compile(r"^#define[ \t]+(\w+)[ \t]+([^/\n]+(?:/(?!/)[^/\n]*)*)", re.MULTILINE)
_UNION = re.compile(r"^union (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"^[ \t]+(\w+)[ \t]+\w+((?:\[[^\]]+\])*);", re.MULTILINE)
_BYTES = {"float": 4, "float4": 16, "half": 2, "int": 4, "vec4": 16}
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.Div: lambda x, y: x // y,
}


def _value(text: str, names: Mapping[str, int | str]) -> int:
    """What a constant expression of C comes to: +, -, *, / of integers and macros."""

    def of(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            found = names[node.id]
            return found if isinstance(found, int) else _value(found, names)
        if isinstance(node, ast.BinOp):
            return _OPERATIONS[type(node.op)](of(node.left), of(node.right))
        raise ValueError(f"{text!r} is no sum or product of integers and macros.")

    return of(ast.parse(text.strip(), mode="eval").body)


def static_shared_bytes(source: str, macros: Mapping[str, int]) -> int:
    """Bytes of shared memory that a source declares, under these macros."""
    names: dict[str, int | str] = {**dict(_DEFINE.findall(source)), **macros}

    def size(kind: str, extents: str) -> int:
        return sizes[kind] * product(_value(extent, names) for extent in re.findall(r"\[([^\]]+)\]", extents))

    sizes = {**_BYTES, "vector_t": 4 * macros.get("VECTOR", 1)}
    for name, body in _UNION.findall(source):
        sizes[name] = max(size(kind, extents) for kind, extents in _MEMBER.findall(body))
    return sum(size(kind, extents) for kind, _, extents in _SHARED.findall(source))


# What a page says of a kernel


def language(source: KernelSource, kernel: Kernel) -> str:
    if isinstance(source, HostLibrary):
        return "C++, made a library by nvcc"
    if isinstance(source, Generated):
        return "CUDA C, written by a function of the suite"
    if isinstance(source, (HostFunction, PythonFunction)):
        return "Python"
    if Path(source).suffix in (".glsl", ".comp"):
        return "GLSL"
    return "CUDA C++" if kernel.requires or kernel.arch else "CUDA C and OpenCL C, one text"


def _link(path: Path, words: str) -> str:
    return f"[{words}](../../../{path.relative_to(ROOT).as_posix()})"


def _place(source: KernelSource, suite: Suite) -> str:
    """Where a source is found, as a link."""
    if isinstance(source, (str, HostLibrary, PythonFunction)):
        name = source if isinstance(source, str) else source.file
        return _link(suite.root / name, f"`{name}`")
    file = Path(inspect.getsourcefile(source.function) or "")
    return f"`{source.function.__name__}` in {_link(file, f'`{file.name}`')}"


def _sources(s: Subject) -> Iterator[tuple[str, str]]:
    by_source: dict[int, tuple[KernelSource, list[str]]] = {}
    for backend, source in s.kernel.sources.items():
        by_source.setdefault(id(source), (source, []))[1].append(backend)
    for source, backends in by_source.values():
        yield (
            "Source",
            f"{_place(source, s.suite)}: {language(source, s.kernel)}; for {' and '.join(backends)}",
        )
    needs = dict.fromkeys(need for source, _ in by_source.values() for need in getattr(source, "needs", ()))
    if s.kernel.requires:
        yield (
            "Requires",
            f"compute capability {s.kernel.requires.removeprefix('sm_')[:-1]}.{s.kernel.requires[-1]}",
        )
    if s.kernel.arch:
        yield "Requires", f"a card of {s.kernel.arch}"
    if needs:
        yield "Packages", ", ".join(f"`{need}`" for need in needs)


def _extent(extent: tuple[int, ...]) -> str:
    while len(extent) > 1 and extent[-1] == 1:
        extent = extent[:-1]
    return pictures.by(*extent)


def _counted(extent: tuple[int, ...]) -> str:
    shape, total = _extent(extent), f"{product(extent):,}"
    return total if shape == total else f"{shape} = {total}"


def _types(s: Subject) -> str:
    arrays = s.suite.problem.arrays.items()
    return ", ".join(f"{name} `{array.dtype_at(s.case)}`" for name, array in arrays)


def shared_bytes(s: Subject) -> int:
    texts = [
        (s.suite.root / source).read_text(encoding="utf-8")
        for source in dict.fromkeys(source for source in s.kernel.sources.values() if isinstance(source, str))
    ]
    static = max((static_shared_bytes(text, s.macros) for text in texts), default=0)
    return static + s.launch.dynamic_shared_bytes


def _launch(s: Subject) -> Iterator[tuple[str, str]]:
    if s.kernel.block is None:
        return
    threads = product(s.launch.block)
    warps = -(-threads // 32)
    yield "Block", f"{_counted(s.launch.block)} threads, {warps} warp{'s' * (warps > 1)}"
    waved = f", as many as an {CARD.name} holds at once" if s.one_wave else ""
    yield "Grid", f"{_counted(s.launch.grid)} blocks{waved}"
    if s.launch.dispatch:
        yield "Dispatch", f"at most {_extent(s.launch.dispatch)} blocks at a time"
    found = shared_bytes(s)
    yield (
        "Shared memory",
        f"{found:,} bytes a block" + (" (dynamic)" if s.launch.dynamic_shared_bytes else ""),
    )


def loaded_intensity(s: Subject) -> tuple[float, tuple[int, int]] | None:
    """FLOP for each byte that the tiles load, and the tile's rows and columns; None where nothing tells.

    Of a tile of bm by bn, each step along k loads bm + bn elements for bm * bn products and sums.
    """
    reused = PICTURES[s.kernel.name](s).reused
    if reused is None:
        return None
    bm, bn = reused
    return 2 * bm * bn / ((bm + bn) * itemsize(s.case.dtype)), (bm, bn)


def itemsize(dtype: str) -> int:
    """Bytes of an element, without asking for the package that has its type."""
    return {"bfloat16": 2, "float16": 2}.get(dtype, 4)


def moved_bytes(s: Subject) -> int:
    """Each array once."""
    arrays = s.suite.problem.arrays.values()
    return sum(itemsize(array.dtype_at(s.case)) * product(array.shape_at(s.case)) for array in arrays)


def _work(s: Subject) -> Iterator[tuple[str, str]]:
    problem = s.suite.problem
    flop, moved = problem.flop(s.case), moved_bytes(s)
    if s.kernel.block is not None:
        yield "Work of a thread", _thread_work(s)
    if flop is None:
        yield "Bytes of a launch", f"{moved:,}: each array read or written once"
        return
    if found := loaded_intensity(s):
        value, (bm, bn) = found
        of = (
            "one element, nothing reused but by caches"
            if bm == bn == 1
            else f"a tile of {pictures.by(bm, bn)}"
        )
        yield "FLOP per byte loaded", f"{value:,.3g} ({of})"
    yield "FLOP per byte at best", f"{flop / moved:,.0f} (each array moved once)"


def _thread_work(s: Subject) -> str:
    each = s.elements_per_thread
    elements = f"{each:,} element{'s' * (each > 1)} of {next(iter(s.suite.problem.outputs)).upper()}"
    if s.suite.problem.flop(s.case) is None:
        return elements
    return f"{elements}, {2 * each * s.case.k:,} FLOP"


def _macros(s: Subject) -> Iterator[tuple[str, str]]:
    if s.case.macros:
        yield "Macros", ", ".join(f"`{name}` = {value}" for name, value in s.case.macros.items())
    if s.kernel.tune:
        tune = s.kernel.tune
        tried = [f"`{name}` {', '.join(map(str, values))}" for name, values in tune.parameters.items()]
        if tune.configurations:
            tried = [f"{len(tune.configurations)} configurations"]
        sizes = ", ".join(str(size) if isinstance(size, int) else size_label(size) for size in tune.sizes)
        yield "A sweep tries", "; ".join(tried) + (f"; at {sizes}" if sizes else "")


def parameters(s: Subject) -> list[tuple[str, str]]:
    return [*_sources(s), ("Arrays", _types(s)), *_macros(s), *_launch(s), *_work(s)]


# Figures


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What one kernel reached at one size on one device, and in which run."""

    suite: str
    kernel: str
    size: str
    device: str
    backend: str
    driver: str
    compiler: str
    commit: str
    date: str
    unit: str
    dtype: str
    time_ms: float | None = None
    interval_percent: float | None = None
    """Half the 99 % interval of the median time."""
    rate: float | None = None
    peak_percent: float | None = None
    library_percent: float | None = None
    """Of the rate of the vendor's own kernel, measured in turns."""
    reason: str = ""
    """Why there is no figure, as records say it."""


def figures_of(path: Path) -> Iterator[tuple[tuple[str, ...], Figure]]:
    """The figures of a stored run with what sorts them: newer runs replace older ones."""
    stored = read_run(path)
    for row in stored.rows:
        if row.reason.startswith("needs-"):
            continue  # nothing of the kernel's: the device, or the machine, lacks what it is made with
        yield (row.case, stored.run.device.name, stored.run.device.backend), _figure(stored.run, row)


def _figure(run: Run, row: Row) -> Figure:
    found = summary_of(row, run)
    return Figure(
        suite=run.source.suite,
        kernel=row.kernel,
        size=size_label(row.sizes),
        device=run.device.name,
        backend=run.device.backend,
        driver=run.device.driver,
        compiler=run.toolchain.compiler if run.toolchain else "",
        commit=(run.source.commit or "")[:10] + ("+" if run.source.dirty else ""),
        date=run.started_at[:10],
        unit=run.headline,
        dtype=row.dtype,
        time_ms=_rounded(found.time_ms),
        interval_percent=_half_interval(found),
        rate=_rounded(found.rate),
        peak_percent=_rounded(found.peak_percent),
        library_percent=_rounded(found.library_percent),
        reason="" if row.measurement else row.reason or row.status,
    )


def _half_interval(found: RowSummary) -> float | None:
    if not found.time_ms or found.time_low_ms is None or found.time_high_ms is None:
        return None
    return _rounded(50 * (found.time_high_ms - found.time_low_ms) / found.time_ms)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def record(folders: Sequence[Path]) -> list[Figure]:
    """The newest figure of each case on each device, from the records of runs below the folders."""
    files = sorted(
        (path for folder in folders for path in folder.rglob("*.jsonl")), key=lambda path: path.name
    )
    found: dict[tuple[str, ...], Figure] = {}
    for path in files:
        with path.open("rb") as file:
            if not file.read(16).startswith(b'{"run"'):
                continue  # a comparison's record
        for key, figure in figures_of(path):
            if figure.rate is not None or key not in found:
                found[key] = figure
    return list(found.values())


def write_figures(figures: Sequence[Figure]) -> None:
    listed = [
        {name: value for name, value in vars(figure).items() if value not in (None, "")} for figure in figures
    ]
    lines = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in listed)
    (DOCS / FIGURES).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read_figures() -> list[Figure]:
    path = DOCS / FIGURES
    if not path.exists():
        return []
    optional = dict.fromkeys(("driver", "compiler", "commit"), "")
    return [Figure(**{**optional, **entry}) for entry in json.loads(path.read_text(encoding="utf-8"))]


def standing(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


class Measured:
    """The recorded figures, found by kernel, size and device."""

    def __init__(self, figures: Sequence[Figure], suite: Suite) -> None:
        self.suite = suite
        self.figures = [figure for figure in figures if figure.suite == suite.name]
        self._rate = {(f.kernel, f.size, f.device, f.backend): f.rate for f in self.figures if f.rate}

    def of(self, kernel: str) -> list[Figure]:
        return [figure for figure in self.figures if figure.kernel == kernel]

    def times_first(self, figure: Figure) -> float | None:
        """The rate over that of the suite's first kernel, at the same size on the same device."""
        first = self.suite.kernels[0].name
        base = self._rate.get((first, figure.size, figure.device, figure.backend))
        return figure.rate / base if figure.rate and base else None


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    ruler = ["---", *("---:" if name.startswith(">") else "---" for name in head[1:])]
    names = [name.removeprefix(">") for name in head]
    return [f"| {' | '.join(cells)} |" for cells in (names, ruler, *rows)]


def measured_lines(kernel: Kernel, measured: Measured) -> list[str]:
    figures = measured.of(kernel.name)
    if not figures:
        return ["None is recorded."]
    library = measured.suite.library_for(kernel)
    rows = [
        [
            f"{figure.device} ({figure.backend})",
            figure.size,
            standing(figure.rate) or f"[{figure.reason}](../../errors.md)",
            standing(figure.interval_percent),
            standing(measured.times_first(figure)),
            standing(figure.peak_percent),
            standing(figure.library_percent),
            figure.commit,
            figure.date,
        ]
        for figure in figures
    ]
    head = (
        "on",
        ">size",
        f">{measured.suite.headline}",
        ">±%",
        f">{pictures.TIMES} {measured.suite.kernels[0].name}",
        ">% of peak",
        f">% of {library.name if library else 'library'}",
        "commit",
        "date",
    )
    return [*table(*_dense(head, rows)), "", *_provenance(figures)]


def _dense(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """A table without the columns that are empty."""
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    return [head[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _provenance(figures: Sequence[Figure]) -> list[str]:
    found = dict.fromkeys((f.device, f.backend, f.driver, f.compiler) for f in figures)
    return [
        f"{device} ({backend}): driver {driver}" + (f"; {compiler}." if compiler else ".")
        for device, backend, driver, compiler in found
    ]


def _published(ladder: Ladder, rung: Rung) -> list[str]:
    size = ladder.sizes if rung.sizes is None else rung.sizes
    figures = (rung.rate, rung.average, rung.time_ms, rung.speed_up)
    return [
        f"{ladder.title}: {rung.label}",
        "its host" if rung.backend else ladder.card,
        size_label(size) if isinstance(size, Mapping) else str(size or ""),
        "" if rung.rate is None else f"{rung.rate:,.{ladder.decimals}f}",
        *("" if figure is None else f"{figure:,.12g}" for figure in figures[1:]),
    ]


def published_lines(s: Subject) -> list[str]:
    """What others measured with their own kernel of this kind."""
    found = [
        (ladder, rung)
        for ladder in s.suite.ladders
        for rung in ladder.rungs
        if rung.kernel == s.kernel.name and any((rung.rate, rung.average, rung.time_ms))
    ]
    if not found:
        return []
    head = ("as published", "on", ">size", f">{s.suite.headline}", ">average of a sweep", ">ms", ">speed-up")
    rows = [_published(ladder, rung) for ladder, rung in found]
    sources = [
        f"{inline(ladder.title)}: {inline(publication(ladder))} {inline(ladder.note)}".rstrip()
        for ladder in {ladder.name: ladder for ladder, _ in found}.values()
    ]
    return ["", *table(*_dense(head, rows)), *(line for source in sources for line in ("", source))]


# Accesses


@functools.cache
def kept_accesses() -> dict[str, Any]:
    text = _text(DOCS / ACCESSES)
    return json.loads(text) if text else {}


@functools.cache
def followed(suite: str, name: str) -> tuple[Access, ...]:
    """The accesses of a kernel at the size of its page: those that are kept, where the text is the same."""
    loaded = load_folder(ROOT / "kernels" / suite)
    s = next(each for each in subjects(loaded) if each.kernel.name == name)
    if not isinstance(s.kernel.source_for("cuda"), str):
        return ()
    made = program(loaded, s.kernel, s.case, "cuda", "sm_80")
    digest = hashlib.sha256(f"{made.text} {s.launch}".encode()).hexdigest()
    kept = kept_accesses().get(f"{suite}.{name}", {})
    if kept.get("text_sha256") == digest:
        return msgspec.convert(kept["accesses"], tuple[Access, ...])
    try:
        found = accesses(loaded, s.kernel, s.case, s.launch)
    except BuildError:
        found = ()
    kept_accesses()[f"{suite}.{name}"] = {
        **kept,
        "text_sha256": digest,
        "accesses": [msgspec.to_builtins(each) for each in found],
    }
    return found


def resident_blocks(suite: Suite, kernel: Kernel, case: Case, launch: Launch) -> int:
    """Blocks that a multiprocessor of CARD holds at once: kept with the accesses, as nvcc may be missing."""
    made = program(suite, kernel, case, "cuda", CARD.arch)
    digest = hashlib.sha256(made.text.encode()).hexdigest()
    kept = kept_accesses().setdefault(f"{suite.name}.{kernel.name}", {})
    if kept.get("built_sha256") != digest:
        used = usage(made, CARD.arch)
        kept["built_sha256"] = digest
        kept["resident_blocks"] = residency(CARD, launch, used.registers, used.shared_bytes).blocks
    return int(kept["resident_blocks"])


def access_lines(s: Subject) -> list[str]:
    """How a warp reaches memory, beside the same kernel as its author wrote it or as it was repaired."""
    pairs = {
        rung.repaired: rung.kernel for ladder in s.suite.ladders for rung in ladder.rungs if rung.repaired
    }
    names = [s.kernel.name]
    for repaired, published in pairs.items():
        if s.kernel.name in (repaired, published):
            names = [published, repaired]
    columns = [{_of(each): _pattern(each) for each in followed(s.suite.name, name)} for name in names]
    if not columns[names.index(s.kernel.name)]:
        return []
    labels = dict.fromkeys(label for column in columns for label in column)
    rows = [[label, *(column.get(label, "") for column in columns)] for label in labels]
    head = ("a warp's", *(f">{name}" for name in names)) if len(names) > 1 else ("a warp's", ">a request")
    return ["## Accesses", "", *table(head, rows), ""]


def _of(access: Access) -> str:
    return f"{'stores to' if access.stores else 'loads of'} {access.array}"


def _pattern(access: Access) -> str:
    if access.space == "global":
        return f"{access.sectors:.3g} sectors"
    return f"{access.conflicts:.3g}-way conflict" if access.conflicts >= 1.005 else "no conflict"


# Pages


def hand_written(text: str) -> dict[str, str]:
    """The texts below the two headings of a page; empty where there are none."""
    found = {}
    for heading in (IDEA, LIMITS):
        match = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        found[heading] = match[1].strip() if match else ""
    return found


def page(s: Subject, written: Mapping[str, str], measured: Measured) -> str:
    name = s.kernel.name
    drawn = PICTURES[name](s)
    return "\n".join(
        [
            MADE,
            "",
            f"# {s.suite.name}.{name}",
            "",
            f"{_sentence(s.kernel.about)} {_steps(s)}",
            "",
            f"![{drawn.words()}]({name}.svg)",
            "",
            f"## {IDEA}",
            "",
            written[IDEA],
            "",
            f"## {LIMITS}",
            "",
            written[LIMITS],
            "",
            "## Parameters",
            "",
            *table((f"at {s.case.size_label}", ""), parameters(s)),
            "",
            *access_lines(s),
            "## Figures",
            "",
            *measured_lines(s.kernel, measured),
            *published_lines(s),
            "",
        ]
    )


def _sentence(text: str) -> str:
    if not text:
        return ""
    if named := re.match(r"\w+_\w+", text):  # a kernel's name
        return f"`{named[0]}`{text[named.end() :]}."
    return f"{text[:1].upper()}{text[1:]}."


def _steps(s: Subject) -> str:
    """Links to the kernels before and after it, and to the index."""
    names = [kernel.name for kernel in s.suite.kernels]
    at = names.index(s.kernel.name)
    before = [f"before it [{names[at - 1]}]({names[at - 1]}.md)"] if at else []
    after = [f"after it [{names[at + 1]}]({names[at + 1]}.md)"] if at + 1 < len(names) else []
    return f"[Ladder](../index.md): {', '.join([*before, *after])}."


def index_rows(suite: Suite, measured: Measured) -> list[str]:
    best = _shown_figures(measured)
    rows = []
    for place, s in enumerate(subjects(suite)):
        name = s.kernel.name
        found = loaded_intensity(s) if suite.problem.flop(s.case) else None
        each = f"{s.elements_per_thread:,}" if s.kernel.block is not None else ""
        figure = best.get(name)
        rows.append(
            [
                str(place),
                f"[{name}]({suite.name}/{name}.md)",
                s.kernel.about,
                each,
                f"{found[0]:,.3g}" if found else "",
                standing(figure.rate) if figure else "",
                standing(figure.library_percent) if figure else "",
            ]
        )
    head = (
        "",
        "kernel",
        "what it does",
        ">elements a thread",
        ">FLOP/byte loaded",
        f">{suite.headline}",
        ">% of library",
    )
    return table(*_dense(head, rows))


def _shown_figures(measured: Measured) -> dict[str, Figure]:
    """One figure a kernel: on the device that most kernels have one on, at its largest size."""
    places: dict[tuple[str, str], dict[int, dict[str, Figure]]] = {}
    for figure in measured.figures:
        if figure.rate is not None and figure.size.isdigit():
            sizes = places.setdefault((figure.device, figure.backend), {})
            sizes.setdefault(int(figure.size), {})[figure.kernel] = figure
    most = max(places.values(), key=lambda sizes: max(map(len, sizes.values())), default={})
    return most[max(most)] if most else {}


def index(intro: str, suites: Sequence[Suite], figures: Sequence[Figure]) -> str:
    lines = [
        MADE.replace(f'"{IDEA}" and "{LIMITS}"', 'the heading "Kernels"'),
        "",
        "# Kernels",
        "",
        intro,
        "",
    ]
    for suite in suites:
        measured = Measured(figures, suite)
        shown = next(iter(_shown_figures(measured).values()), None)
        doc = (inspect.getdoc(type(suite.problem)) or "").splitlines()[:1]
        lines += [f"## {suite.name}", "", *doc, "", *index_rows(suite, measured), ""]
        if shown:
            lines += [f"Figures: {shown.device} ({shown.backend}), size {shown.size}, {shown.date}.", ""]
    return "\n".join(lines)


def introduction(text: str) -> str:
    match = re.search(r"^# Kernels\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match[1].strip() if match else ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _named(path: Path) -> str:
    """A file of docs/kernels/ as people are told of it, wherever DOCS lies."""
    return (Path("docs") / "kernels" / path.relative_to(DOCS)).as_posix()


def documents() -> dict[Path, str]:
    """Every file below docs/kernels/ that is made, and what it must hold."""
    suites = [load_folder(ROOT / "kernels" / name) for name in SUITES]
    figures = read_figures()
    made = {}
    for suite in suites:
        measured = Measured(figures, suite)
        for subject in subjects(suite):
            path = DOCS / suite.name / f"{subject.kernel.name}.md"
            made[path] = page(subject, hand_written(_text(path)), measured)
            drawn = PICTURES[subject.kernel.name](subject)
            made[path.with_suffix(".svg")] = drawn.svg(f"{suite.name}.{subject.kernel.name}")
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(kept)}" for name, kept in sorted(kept_accesses().items())
    )
    made[DOCS / ACCESSES] = f"{{\n{lines}\n}}\n"
    made[DOCS / "index.md"] = index(introduction(_text(DOCS / "index.md")), suites, figures)
    return made


def unwritten(made: Mapping[Path, str]) -> Iterator[str]:
    """Say which pages lack a hand-written text."""
    for path, text in made.items():
        if path.suffix != ".md" or path.name == "index.md":
            continue
        for heading, found in hand_written(text).items():
            if not found:
                yield f'{_named(path)}: write a few sentences below "{heading}".'


def drifted(made: Mapping[Path, str]) -> Iterator[str]:
    for path, text in made.items():
        if _text(path) != text:
            yield f"{_named(path)} is not what the suite says: run '{COMMAND}'."
    for path in sorted(DOCS.rglob("*")):
        if path.is_file() and path not in made and path.name != FIGURES:
            yield f"{_named(path)} belongs to no kernel: remove it."


def write(made: Mapping[Path, str]) -> None:
    for path, text in made.items():
        if _text(path) != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {_named(path)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say what has drifted")
    parser.add_argument(
        "--record", type=Path, nargs="+", metavar="FOLDER", help="take figures from stored runs"
    )
    chosen = parser.parse_args(arguments)
    if chosen.record:
        try:
            found = record(chosen.record)
        except HarnessError as error:
            parser.error(error.message)
        if not found:
            parser.error(f"No record of a run lies below {', '.join(map(str, chosen.record))}.")
        write_figures(found)
    made = documents()
    if not chosen.check:
        write(made)
    problems = [*drifted(made), *unwritten(made)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
