"""Does the harness name the right cause? Slowdowns planted by their cause, in kernels of three sources.

    SGEMM_CUDA=/path/to/SGEMM_CUDA python scripts/bench_causes.py --device cuda:0 --json causes.json

The sources are this repository's kernels, Triton kernels, and those of github.com/siboehm/SGEMM_CUDA (MIT
licence) in the folder that $SGEMM_CUDA names. Each line shows the verdict, the causes that are right by the
physics of the edit, and the first cause that the harness names. Controls are the same code twice: the harness
must name no cause. One process measures each case, and another process confirms it: the bench judges causes,
not verdicts. `--build sm_90` needs no card: it compiles both sides and says how their code differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.measure.quads import PairSettings
from harness.records.record_files import ComparisonResult
from harness.records.types import Diagnosis, Verdict, fields_of
from harness.run.builds.build_only import code_differences
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.suite.loader import LoadedSuite, load
from harness.suite.planning import PlannedCase, plan

ROOT = Path(__file__).resolve().parent.parent
SOUND_SHARE = 0.9
"""Share of the planted slowdowns whose cause has to be named first."""

Edits = Sequence[tuple[str, str]]
"""Pieces of a source and their replacements."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A slowdown: base's source, the edits of head, and the causes that are right by the edit's physics."""

    kernel: str
    expected: tuple[str, ...]
    """Kinds of causes; none for a control."""
    why: str
    size: str = ""
    head: Edits = ()
    both: Edits = ()
    """Edits of both sides, for a base that is not published as it is needed here."""
    macros: Mapping[str, int] = field(default_factory=dict)
    """Macros of head that differ."""
    shared: int = 0
    """Dynamic shared memory of head, in bytes."""


AGAIN = "#define AGAIN (*(const volatile float*)(b + ((offset_t)p * n + column)))"
SCALARS = "__device__ float4 scalars(const volatile float *x) { return make_float4(x[0], x[1], x[2], x[3]); }"
SCALAR_MATMUL = """\
#include <cuda_fp16.h>
KERNEL LAUNCH_BOUNDS(32, 1, 1) wmma(
    const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    const int tiles_m = (m - 1) / 16 + 1;
    const int row = BLOCK_X % tiles_m * 16 + THREAD_X / 16 * 8;
    const int column = BLOCK_X / tiles_m * 16 + THREAD_X % 16;
    float sum[8] = {};
    for (int p = 0; p < k; ++p) {
        const float other = __half2float(b[(index_t)p * n + column]);
        #pragma unroll
        for (int r = 0; r < 8; ++r) sum[r] += __half2float(a[(index_t)(row + r) * k + p]) * other;
    }
    for (int r = 0; r < 8; ++r) c[(index_t)(row + r) * n + column] = sum[r];
}
"""
OWN: Mapping[str, Mapping[str, Planted]] = {
    "transpose": {
        "padding_removed": Planted(
            kernel="transpose_tiled",
            size="4096",
            head=[("[TILE + 1]", "[TILE]")],
            expected=("bank-conflicts",),
            why="a column of the tile lies in one bank",
        ),
        "control_transpose": Planted(
            kernel="transpose_tiled",
            size="4096",
            head=[("// The tile goes", "// A tile goes")],
            expected=(),
            why="another comment",
        ),
    },
    "copy": {
        "occupancy_by_shared_memory": Planted(
            kernel="copy",
            size="4096",
            shared=56 * 1024,
            expected=("occupancy",),
            why="four blocks fit in place of eight, with one load a thread",
        ),
        "strided": Planted(
            kernel="copy_unrolled",
            size="4096",
            head=[
                ("+ THREAD_X;", "+ THREAD_X * ITEMS;"),
                ("left > THREADS * (ITEMS - 1)", "left >= ITEMS"),
                ("x[i * THREADS]", "x[i]"),
                ("y[i * THREADS]", "y[i]"),
                ("i * THREADS < left", "i < left"),
            ],
            expected=("uncoalesced",),
            why="neighbouring threads are four elements apart: 16 sectors a request in place of 4",
        ),
        "atomic_stores": Planted(
            kernel="copy_unrolled",
            size="4096",
            head=[("y[i * THREADS] = items[i];", "atomicExch(y + i * THREADS, items[i]);")],
            expected=("atomics",),
            why="every store is an atomic",
        ),
        "control_copy": Planted(
            kernel="copy_unrolled",
            size="4096",
            head=[("items", "kept")],
            expected=(),
            why="another name of a variable",
        ),
    },
    "matmul": {
        "swizzle_removed": Planted(
            kernel="outer_product_swizzled",
            size="2048",
            head=[("[y ^ x]", "[y]"), ("[y ^ p]", "[y]")],
            expected=("bank-conflicts",),
            why="a warp stores a column of the tile into one bank",
        ),
        "unroll_lost": Planted(
            kernel="shared_tile",
            size="2048",
            head=[("#pragma unroll\n", "#pragma unroll 1\n")],
            expected=("more-instructions", "more-shared-accesses"),
            why="a branch and an addition for each multiplication, and reads of 4 bytes in place of 16",
        ),
        "spilled_by_bounds": Planted(
            kernel="warp_tiling",
            size="2048",
            head=[("LAUNCH_BOUNDS(THREADS, 1, 1)", "__launch_bounds__(THREADS, 4)")],
            expected=("local-memory",),
            why="64 registers hold no 8 x 8 sums and their operands",
        ),
        "copy_waited_for": Planted(
            kernel="async_copy",
            size="2048",
            head=[("    CLOSE_GROUP();\n", "    CLOSE_GROUP(); WAIT_GROUPS(0);\n")],
            expected=("exposed-latency",),
            why="each tile is waited for before the multiplication begins",
        ),
        "barrier_each_step": Planted(
            kernel="warp_tiling",
            size="2048",
            head=[("float element_a[TM], element_b[TN];", "BARRIER(); float element_a[TM], element_b[TN];")],
            expected=("barriers",),
            why="one barrier a step along k in place of two a tile",
        ),
        "double_constant": Planted(
            kernel="block_tiling",
            size="2048",
            head=[("sum += tile_a", "sum += 1.0 * tile_a")],
            expected=("double-precision",),
            why="a constant of type double converts both operands and the sum",
        ),
        "tensor_cores_unused": Planted(
            kernel="wmma",
            size="2048",
            head=[("", SCALAR_MATMUL)],
            expected=("tensor-cores-unused",),
            why="the same product by scalar multiplications",
        ),
        "vectors_lost": Planted(
            kernel="thread_tiling_2d_vectorized",
            size="2048",
            macros={"VECTOR": 1},
            expected=("narrower-accesses", "more-instructions"),
            why="four loads with addresses and bounds of their own in place of one of 16 bytes",
        ),
        "loaded_again": Planted(
            kernel="naive_coalesced",
            size="2048",
            head=[
                ("typedef int offset_t;", f"{AGAIN}\ntypedef int offset_t;"),
                ("p * n + column];", "p * n + column] + 0.0f * (AGAIN + AGAIN);"),
            ],
            expected=("more-accesses",),
            why="each element of B is loaded three times",
        ),
        "control_matmul": Planted(
            kernel="warp_tiling",
            size="2048",
            head=[],
            expected=(),
            why="the same source",
        ),
    },
}


class Published(NamedTuple):
    """A kernel of SGEMM_CUDA with its author's launch."""

    file: str
    instance: str
    threads: int
    tile: tuple[int, int]


PUBLISHED = {
    "coalesce": Published("2_kernel_global_mem_coalesce", "sgemm_global_mem_coalesce<32>", 1024, (32, 32)),
    "shared": Published("3_kernel_shared_mem_blocking", "sgemm_shared_mem_block<32>", 1024, (32, 32)),
    "tiled_1d": Published("4_kernel_1D_blocktiling", "sgemm1DBlocktiling<64, 64, 8, 8>", 512, (64, 64)),
    "tiled_2d": Published(
        "5_kernel_2D_blocktiling", "sgemm2DBlocktiling<128, 128, 8, 8, 8>", 256, (128, 128)
    ),
    "vectorized": Published("6_kernel_vectorize", "sgemmVectorize<128, 128, 8, 8, 8>", 256, (128, 128)),
    "coalesce_16": Published("2_kernel_global_mem_coalesce", "sgemm_global_mem_coalesce<16>", 256, (16, 16)),
}
SGEMM: Mapping[str, Planted] = {
    "swapped_indices": Planted(
        kernel="coalesce",
        head=[
            ("threadIdx.x / BLOCKSIZE", "threadIdx.x @ BLOCKSIZE"),
            ("threadIdx.x % BLOCKSIZE", "threadIdx.x / BLOCKSIZE"),
            ("threadIdx.x @ BLOCKSIZE", "threadIdx.x % BLOCKSIZE"),
        ],
        expected=("uncoalesced",),
        why="a warp walks down the rows: 32 sectors a request of A",
        size="2048",
    ),
    "transposed_tile": Planted(
        kernel="shared",
        head=[
            ("Bs[threadRow * BLOCKSIZE + threadCol]", "Bs[threadCol * BLOCKSIZE + threadRow]"),
            ("Bs[dotIdx * BLOCKSIZE + threadCol]", "Bs[threadCol * BLOCKSIZE + dotIdx]"),
        ],
        expected=("bank-conflicts",),
        why="the threads of a warp read one bank",
        size="2048",
    ),
    "barrier_each_step": Planted(
        kernel="vectorized",
        size="2048",
        head=[
            (
                "    for (uint dotIdx = 0; dotIdx < BK; ++dotIdx) {",
                "    for (uint dotIdx = 0; dotIdx < BK; ++dotIdx) { __syncthreads();",
            )
        ],
        expected=("barriers",),
        why="one barrier a step along k in place of two a tile",
    ),
    "operand_read_again": Planted(
        kernel="tiled_1d",
        head=[("dotIdx] * tmpB;", "dotIdx] * ((volatile float *)Bs)[dotIdx * BN + threadCol];")],
        expected=("more-shared-accesses",),
        why="an operand is read from shared memory for each product",
        size="2048",
    ),
    "rolled_loop": Planted(
        kernel="tiled_2d",
        size="2048",
        head=[("      for (uint resIdxM", "#pragma unroll 1\n      for (uint resIdxM")],
        expected=("local-memory",),
        why="an array that a loop indexes has no registers",
    ),
    "register_limit": Planted(
        kernel="tiled_2d",
        head=[("(BM * BN) / (TM * TN), 1)", "(BM * BN) / (TM * TN), 4)")],
        expected=("local-memory",),
        why="64 registers hold no 8 x 8 sums and their operands",
        size="2048",
    ),
    "scalar_loads": Planted(
        kernel="vectorized",
        size="2048",
        head=[
            (
                "    float4 tmp =\n        reinterpret_cast<float4 *>(&A[innerRowA * K + innerColA * 4])[0];",
                "    float4 tmp = scalars(&A[innerRowA * K + innerColA * 4]);",
            ),
            (
                "reinterpret_cast<float4 *>(&B[innerRowB * N + innerColB * 4])[0];",
                "scalars(&B[innerRowB * N + innerColB * 4]);",
            ),
            ("template <", f"{SCALARS}\ntemplate <"),
        ],
        expected=("narrower-accesses", "more-accesses"),
        why="four requests of 4 bytes a thread in place of one of 16",
    ),
    "fewer_warps": Planted(
        kernel="coalesce_16",
        shared=102400,
        expected=("occupancy",),
        why="two blocks of 8 warps fit in place of eight",
        size="2048",
    ),
    "control_sgemm": Planted(
        kernel="tiled_2d",
        head=[("// advance blocktile", "// go on")],
        expected=(),
        why="another comment",
        size="2048",
    ),
}
FUNCTIONS: Mapping[str, Mapping[str, Planted]] = {
    "triton_matmul": {
        "one_stage": Planted(
            kernel="product",
            size="2048",
            head=[("num_stages=4", "num_stages=1")],
            expected=("exposed-latency",),
            why="no tile is on its way while one is multiplied",
        ),
        "ieee_product": Planted(
            kernel="single",
            size="2048",
            head=[('PRECISION="tf32"', 'PRECISION="ieee"')],
            expected=("tensor-cores-unused",),
            why="float32 is multiplied by the FMA pipe",
        ),
        "one_warp": Planted(
            kernel="product",
            size="2048",
            head=[("num_warps=8", "num_warps=1")],
            expected=("local-memory",),
            why="a thread has no 512 registers for its part of the sums",
        ),
        "control_product": Planted(
            kernel="product",
            size="2048",
            head=[("rows_a", "rows_of_a")],
            expected=(),
            why="another name of a variable",
        ),
    },
    "triton_rows": {
        "double_value": Planted(
            kernel="polynomial",
            size="2048",
            head=[("VALUE = tl.float32", "VALUE = tl.float64")],
            expected=("double-precision",),
            why="the loop computes in float64",
        ),
        "atomic_stores": Planted(
            kernel="scale",
            size="4096",
            head=[
                ("tl.store(y + at, 2 * value, mask=at < n)", "tl.atomic_xchg(y + at, 2 * value, mask=at < n)")
            ],
            expected=("atomics",),
            why="every store is an atomic",
        ),
        "mask_unknown": Planted(
            kernel="scale",
            size="4096",
            head=[
                ("@triton.jit\ndef scale_kernel", '@triton.jit(do_not_specialize=["n"])\ndef scale_kernel')
            ],
            expected=("narrower-accesses", "more-accesses", "uncoalesced"),
            why="four elements of a thread may not lie on one side of the mask: 4 bytes an access",
        ),
        "small_programs": Planted(
            kernel="scale",
            size="4096",
            both=[("BLOCK=1024, num_warps=4", "BLOCK=128, num_warps=4")],
            head=[("BLOCK=128, num_warps=4", "BLOCK=32, num_warps=1")],
            expected=("occupancy",),
            why="32 programs of one warp fit: 32 warps in place of 64",
        ),
        "two_loops": Planted(
            kernel="two_passes",
            size="8192x4096",
            head=[("APART = 0", "APART = 1")],
            expected=("cache-misses",),
            why="rows have left the cache before the second pass reads them",
        ),
        "one_chain": Planted(
            kernel="chains",
            size="128",
            head=[("SEVERAL = 1", "SEVERAL = 0")],
            expected=("dependencies",),
            why="one chain of multiplications in place of four, one warp a scheduler",
        ),
        "control_scale": Planted(
            kernel="scale",
            size="4096",
            head=[("# A program", "# Each program")],
            expected=(),
            why="another comment",
        ),
    },
}

OWN_SUITE = """\
from dataclasses import replace

from published_suite import suite as published

CHANGED = {changed!r}


def planted(name, kernel, macros, shared):
    found = published.by_name[kernel]
    return replace(
        found,
        name=name,
        source={{"cuda": f"{{name}}.cu"}},
        entry=found.entry or found.name,
        macros={{**found.macros, **macros}},
        dynamic_shared_bytes=shared or found.dynamic_shared_bytes,
    )


suite = replace(published, kernels=[planted(*each) for each in CHANGED], ladders=())
"""
SGEMM_SUITE = """\
import numpy as np

from harness import Axis, Input, Kernel, Output, Problem, Scalar, Suite, ceil_div


class Sgemm(Problem):
    m = n = k = Axis(default=(2048,))
    a = Input("m", "k")
    b = Input("k", "n")
    c = Output("m", "n", init=0)
    alpha = Scalar(1.0)
    beta = Scalar(0.0)
    independent = "m"

    def reference(self, case, a, b):
        return a @ b

    def tolerance(self, case, a, b):
        return 8 * 2.0**-24 * np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=0))

    def flop(self, case):
        return 2 * case.m * case.n * case.k


def planted(name, instance, threads, tile, shared):
    return Kernel(
        name,
        f"{{name}}.cu",
        instantiate=instance,
        block=threads,
        grid=lambda case: (ceil_div(case.n, tile[0]), ceil_div(case.m, tile[1])),
        args=("m", "n", "k", "alpha", "a", "b", "beta", "c"),
        dynamic_shared_bytes=shared,
    )


suite = Suite("sgemm", Sgemm(), [planted(*each) for each in {changed!r}])
"""
TRITON = '''\
"""Triton kernels in which bench_causes.py plants slowdowns by edits of their text."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

VALUE = tl.float32
APART = 0
SEVERAL = 1


@triton.jit
def product_kernel(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr
):
    tiles_n = tl.cdiv(n, BN)
    rows_a = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    columns_b = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    from_a = a + rows_a[:, None] * k + steps[None, :]
    from_b = b + steps[:, None] * n + columns_b[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        total = tl.dot(tl.load(from_a), tl.load(from_b), total, input_precision=PRECISION)
        from_a += BK
        from_b += BK * n
    tl.store(c + rows_a[:, None] * n + columns_b[None, :], total)


def product(a, b, c, m, n, k):
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 128),)
    product_kernel[grid](
        a, b, c, m, n, k, BM=128, BN=128, BK=64, PRECISION="tf32", num_stages=4, num_warps=8
    )


def single(a, b, c, m, n, k):
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
    product_kernel[grid](
        a, b, c, m, n, k, BM=64, BN=64, BK=32, PRECISION="tf32", num_stages=3, num_warps=4
    )


# A program scales a block of elements.
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, 2 * value, mask=at < n)


def scale(x, y):
    n = x.numel()
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, BLOCK=1024, num_warps=4)


@triton.jit
def polynomial_kernel(x, y, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + at).to(VALUE)
    value = given
    for _ in range(256):
        value = value * 0.5 + given  # comes to rest at 2 * given
    tl.store(y + at, value.to(tl.float32))


def polynomial(x, y):
    polynomial_kernel[(x.numel() // 1024,)](x, y, VALUE=VALUE, BLOCK=1024)


@triton.jit
def two_passes_kernel(x, y, rows, APART: tl.constexpr, COLUMNS: tl.constexpr):
    """Read each row twice: for its maximum, and to scale it. A program has the rows of a stride."""
    columns = tl.arange(0, COLUMNS)
    if APART:
        most = 0.0
        for row in range(tl.program_id(0), rows, tl.num_programs(0)):
            most = tl.maximum(most, tl.max(tl.load(x + row * COLUMNS + columns), 0))
        for row in range(tl.program_id(0), rows, tl.num_programs(0)):
            value = tl.load(x + row * COLUMNS + columns)
            tl.store(y + row * COLUMNS + columns, tl.where(value > most, 0.0, 2 * value))
    else:
        for row in range(tl.program_id(0), rows, tl.num_programs(0)):
            most = tl.max(tl.load(x + row * COLUMNS + columns), 0)
            tl.debug_barrier()
            value = tl.load(x + row * COLUMNS + columns, volatile=True)
            tl.store(y + row * COLUMNS + columns, tl.where(value > most, 0.0, 2 * value))


def two_passes(x, y):
    rows, columns = x.shape
    two_passes_kernel[(1056,)](x, y, rows, APART=APART, COLUMNS=columns, num_warps=8)


@triton.jit
def chains_kernel(x, y, SEVERAL: tl.constexpr, BLOCK: tl.constexpr):
    """The same multiplications in four chains that do not wait for one another, or in one."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + at)
    if SEVERAL:
        first, second, third, fourth = given, given + 1, given + 2, given + 3
        for _ in range(2048):
            first = first * 0.5 + given
            second = second * 0.5 + given
            third = third * 0.5 + given
            fourth = fourth * 0.5 + given
        value = (first + second + third + fourth) * 0.25
    else:
        value = given
        for _ in range(8192):
            value = value * 0.5 + given
    tl.store(y + at, value)


def chains(x, y):
    chains_kernel[(x.numel() // 128,)](x, y, SEVERAL=SEVERAL, BLOCK=128, num_warps=4)
'''
FUNCTION_SUITE = """\
import numpy as np

from harness import Axis, Input, Kernel, Output, Problem, Suite, TritonFunction


class Product(Problem):
    m = n = k = Axis(default=(2048,))
    a = Input("m", "k")
    b = Input("k", "n")
    c = Output("m", "n", dtype="float32")

    def reference(self, case, a, b):
        return a @ b

    def tolerance(self, case, a, b):
        unit = 2.0**-9 if case.dtype == "float32" else 2.0**-17
        return unit * np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=0))

    def flop(self, case):
        return 2 * case.m * case.n * case.k


class Rows(Problem):
    rows = cols = Axis(default=(8192,))
    x = Input("rows", "cols")
    y = Output("rows", "cols")

    def reference(self, case, x):
        return 2 * x

    def tolerance(self, case, x):
        return 2.0**-18 * np.abs(x)


problem = Product() if {name!r} == "triton_matmul" else Rows()
dtypes = {{"product": "float16"}}
kernels = [
    Kernel(name, TritonFunction(f"{{name}}.py", of), dtype=dtypes.get(of, "float32"))
    for name, of, *_ in {changed!r}
]
suite = Suite({name!r}, problem, kernels, headline="GB/s")
"""


def edited(text: str, edits: Edits) -> str:
    for old, new in edits:
        if not old:
            return new
        if old not in text:
            raise SystemExit(f"The source has no {old!r}.")
        text = text.replace(old, new)
    return text


def _write(folder: Path, files: Mapping[str, str]) -> LoadedSuite:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return load(folder / "suite")


def own(folder: Path, suite: str, side: str) -> LoadedSuite:
    """Write a suite of this repository's kernels: base's, or head's with the edits."""
    kernels, files, changed = ROOT / "kernels", {}, []
    for file in (kernels / suite).glob("*.py"):
        name = "published_suite.py" if file.name == "suite.py" else file.name
        files[f"suite/{name}"] = file.read_text(encoding="utf-8")
    for file in (kernels / "portable").iterdir():
        files[f"portable/{file.name}"] = file.read_text(encoding="utf-8")
    for name, planted in OWN[suite].items():
        text = (kernels / suite / f"{planted.kernel}.cu").read_text(encoding="utf-8")
        text = edited(text, [*planted.both, *(planted.head if side == "head" else ())])
        files[f"suite/{name}.cu"] = text
        of_head = (dict(planted.macros), planted.shared) if side == "head" else ({}, 0)
        changed.append((name, planted.kernel, *of_head))
    files["suite/suite.py"] = OWN_SUITE.format(changed=changed)
    return _write(folder, files)


def sgemm(folder: Path, side: str) -> LoadedSuite:
    files, changed = {}, []
    for name, planted in SGEMM.items():
        published = PUBLISHED[planted.kernel]
        path = Path(os.environ["SGEMM_CUDA"]) / "src" / "kernels" / f"{published.file}.cuh"
        text = path.read_text(encoding="utf-8").replace("#include <cublas_v2.h>\n", "")
        files[f"suite/{name}.cu"] = edited(text, planted.head if side == "head" else ())
        changed.append((name, *published[1:], planted.shared if side == "head" else 0))
    files["suite/suite.py"] = SGEMM_SUITE.format(changed=changed)
    return _write(folder, files)


def functions(folder: Path, suite: str, side: str) -> LoadedSuite:
    files = {}
    for name, planted in FUNCTIONS[suite].items():
        edits = [*planted.both, *(planted.head if side == "head" else ())]
        files[f"suite/{name}.py"] = edited(TRITON, edits)
    changed = [(name, planted.kernel) for name, planted in FUNCTIONS[suite].items()]
    files["suite/suite.py"] = FUNCTION_SUITE.format(changed=changed, name=suite)
    return _write(folder, files)


def suites() -> Mapping[str, Mapping[str, Planted]]:
    """Return the planted slowdowns by suite."""
    found = dict(OWN)
    if os.environ.get("SGEMM_CUDA"):
        found["sgemm"] = SGEMM
    return {**found, **FUNCTIONS}


def written(folder: Path, suite: str, side: str) -> LoadedSuite:
    if suite in OWN:
        return own(folder, suite, side)
    return sgemm(folder, side) if suite == "sgemm" else functions(folder, suite, side)


def planned(loaded: LoadedSuite, planted: Mapping[str, Planted]) -> list[PlannedCase]:
    return [
        case
        for name, each in planted.items()
        for case in plan(loaded.suite, [f"{loaded.suite.name}.{name}"], [each.size])
    ]


class Watching:
    """Tells on standard error what begins when."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def process(self, number: int, cases: int, purpose: str) -> None:
        self._tell(f"process {number}, {purpose}: {cases} cases")

    def started(self, case: str) -> None:
        self._tell(case)

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {what}", file=sys.stderr, flush=True)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def measured(suite: str, device: str) -> ComparisonResult:
    with tempfile.TemporaryDirectory() as folder:
        base, head = (written(Path(folder) / side, suite, side) for side in ("base", "head"))
        pair = PairSettings(min_quads=6, max_quads=12, max_time_s=0.2)
        settings = CompareSettings(
            device=device, explain="all", solo_s=0.0, twins=False, measure_identical=True, pair=pair
        )
        with Comparing(base, head, settings, Watching()) as comparing:
            comparing.policy = replace(comparing.policy, looks=(1,), spending=(1.0,), same_spending=(1.0,))
            return comparing.run(*(planned(side, suites()[suite]) for side in (base, head)))


def told(suite: str, planted: Planted, verdict: Verdict) -> dict[str, Any]:
    """Return all facts of a planted slowdown, for a line and for the file."""
    found = verdict.diagnosis or Diagnosis()
    slower = verdict.status == "regression"
    kinds = [cause.kind for cause in found.causes]
    right = slower and kinds[:1] and kinds[0] in planted.expected
    return {
        "suite": suite,
        "name": verdict.kernel,
        **fields_of(planted, "kernel", "why", "expected"),
        **fields_of(verdict, "status", "message", "base", "head"),
        **fields_of(found, "causes", "problem", "risks", "launched", "base_counters", "head_counters"),
        "effect": verdict.time.effect if verdict.time else None,
        "slower": slower,
        "ok": bool(right if planted.expected else found.head_counters and not slower and not kinds),
    }


def line(fact: Mapping[str, Any]) -> str:
    effect = "" if fact["effect"] is None else f"{100 * fact['effect']:+.1f} %"
    first = f"{fact['causes'][0].kind} {100 * fact['causes'][0].share:.0f} %" if fact["causes"] else "none"
    expected = " or ".join(fact["expected"]) or "none"
    sound = "ok" if fact["ok"] else "not slower" if not fact["slower"] and fact["expected"] else "WRONG"
    problem = fact["problem"] or (fact["message"] if fact["status"] in ("failed", "invalid") else "")
    name, status = f"{fact['suite']}.{fact['name']}", fact["status"]
    return f"{name:<40} {status:<12} {effect:>9}  {expected:<34} {first:<26} {sound} {problem[:160]}"


def build(arch: str) -> None:
    """Compile both sides of all kernels that nvcc compiles, and tell how their code differs."""
    for suite, planted in suites().items():
        if suite in FUNCTIONS:
            continue
        with tempfile.TemporaryDirectory() as folder:
            base, head = (written(Path(folder) / side, suite, side) for side in ("base", "head"))
            cases = [each.case for each in planned(head, planted)]
            for name, found in code_differences(base, head, cases, arch, 120.0).items():
                risks = "; ".join(risk.message for risk in found.risks)
                print(f"{name:<60} {found.status:<10} {risks}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=os.environ.get("HARNESS_DEVICE") or "cuda:0")
    parser.add_argument("--suite", action="append", choices=list(suites()), help="repeatable; default: all")
    parser.add_argument("--json", type=Path, help="file for all counters, static facts and causes")
    parser.add_argument("--build", metavar="ARCH", help="compile alone, for this architecture")
    asked = parser.parse_args()
    if asked.build:
        build(asked.build)
        return 0
    facts: list[dict[str, Any]] = []
    for suite in asked.suite or suites():
        planted = suites()[suite]
        try:
            begun = time.monotonic()
            result = measured(suite, asked.device)
        except Exception as error:  # noqa: BLE001 - the other suites are still measured
            print(f"{suite}: {type(error).__name__}: {error}", flush=True)
            continue
        for verdict in result.verdicts:
            facts.append(told(suite, planted[verdict.kernel], verdict))
            print(line(facts[-1]), flush=True)
        split = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in result.wall_s.items())
        print(f"{suite}: {time.monotonic() - begun:.1f} s: {split}", flush=True)
        if asked.json:
            asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1))
    slower = [fact for fact in facts if fact["slower"] and fact["expected"]]
    right = sum(fact["ok"] for fact in slower)
    wrong = [fact["name"] for fact in facts if not fact["expected"] and not fact["ok"]]
    print(
        f"The first cause is right for {right} of {len(slower)} planted slowdowns. "
        f"Controls with a cause: {', '.join(wrong) or 'none'}."
    )
    return 0 if slower and right >= SOUND_SHARE * len(slower) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
