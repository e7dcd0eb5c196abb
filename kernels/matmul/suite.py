"""Matrix multiplication from naive to tensor cores: each kernel changes one thing over an earlier one."""

from __future__ import annotations

from typing import Any

import host
import libraries
import numpy as np
import published
import schedules
import tensor_maps

from harness import (
    Axis,
    Case,
    Generated,
    HostFunction,
    HostLibrary,
    Input,
    Kernel,
    Output,
    Problem,
    Suite,
    Tuning,
    ceil_div,
)

ERROR_CONSTANT = 8.0
"""Rounding error allowed, in units of u * |row of A| * |column of B|. On normal data, simulated for k from 1
to 1,000,000, right kernels with single-precision chains reach 3.2 at any k."""
TRUNCATION_CONSTANT = 1 / 12
"""The same for tensor cores, by sqrt(k). They cut sums off instead of rounding them: each step takes a little
of the sum, always towards zero, and the sum grows with sqrt(k). Simulated, right kernels reach 1 / 14 at
most; a Hopper card was seen at 1 / 31."""


class Matmul(Problem):
    """C[m, n] = A[m, k] @ B[k, n], row major."""

    m = n = k = Axis(default=(1024, 2048, 4096), quick=(256, 512))
    a = Input("m", "k")
    b = Input("k", "n")
    c = Output("m", "n", dtype="float32")
    independent = "m"

    def reference(self, case: Case, a: Any, b: Any) -> Any:
        return a @ b

    def tolerance(self, case: Case, a: Any, b: Any) -> Any:
        """Proportional to the norms of the row and the column, which grow with k as the error does; on tensor
        cores the error grows faster.
        """
        unit, constant = 2.0**-24, ERROR_CONSTANT
        if case.dtype not in ("float32", "tf32"):
            unit, constant = 2.0**-22, max(ERROR_CONSTANT, TRUNCATION_CONSTANT * case.k**0.5)
        # What TF32 drops of a and of b: at most 2^-10 of each, where it is cut off and not rounded.
        # Beside that, what its tensor cores cut off the sums is small.
        dropped = 2.0**-9 if case.dtype == "tf32" else 0.0
        rows = np.linalg.norm(a, axis=1)
        columns = np.linalg.norm(b, axis=0)
        return (constant * unit + dropped) * np.outer(rows, columns)

    def integer_bound(self, case: Case) -> int | None:
        return next((bound for bound in (3, 2, 1) if case.k * bound**2 < 2**24), None)

    def flop(self, case: Case) -> int:
        return 2 * case.m * case.n * case.k


# Grids that cover C have one dimension: CUDA allows 65 535 blocks in the others, too few for a long matrix.
# TVM's schedules keep the two of their author: beyond 65 535 blocks in y they are refused.
def square_tiles(case: Case) -> int:
    return ceil_div(case.m, case.TILE) * ceil_div(case.n, case.TILE)


def square_block(case: Case) -> tuple[int, int]:
    return case.TILE, case.TILE


def block_tiles(case: Case) -> int:
    return ceil_div(case.m, case.BM) * ceil_div(case.n, case.BN)


def fragment_tiles(case: Case) -> int:
    edge = 16 * case.FRAGMENTS
    return ceil_div(case.m, edge) * ceil_div(case.n, edge)


def offset_bits(case: Case) -> int:
    """Of what holds every offset into A and B."""
    return 32 if case.k * max(case.m, case.n) < 2**31 else 64


def vector_width(case: Case) -> int:
    """Elements of an access: four where every row of A, B and C begins at a multiple of four."""
    return 1 if case.k % 4 or case.n % 4 else 4


def one_wave(case: Case) -> int:
    """As many blocks as the card holds at once; on a device that does not tell it, a few a compute unit."""
    return case.device.sm_count * getattr(case, "resident_blocks", 4)


def warps_block(case: Case) -> int:
    """Threads that cover a block's tile, each with TM x TN elements of C."""
    return case.BM // case.TM * (case.BN // case.TN)


LOOP_GRID = (32, 8)
"""Where the grid does not depend on the matrix. 256 blocks of 1,024 threads are one wave on a card of 128
multiprocessors or more, and few enough rows of blocks that the quick sizes stride too."""


def warp_tiles_block(case: Case) -> int:
    """Threads of as many warps as tiles of a warp are in a block's tile."""
    return 32 * (case.BM // case.WM) * (case.BN // case.WN)


def staged_bytes(case: Case) -> int:
    """Of the tiles of A and of B in shared memory, in halves."""
    return 2 * case.STAGES * case.BK * (case.BM + case.BN)


def warpgroups_block(case: Case) -> int:
    """Threads of the warpgroup that copies, and of those that multiply 64 rows each."""
    return 128 * (1 + case.BM // 64)


def hopper_bytes(case: Case) -> int:
    """Of the tiles, of the pieces of C and of two barriers a stage, from a multiple of 1,024 bytes."""
    pieces = case.BM // 64 * getattr(case, "PIECES", 0)
    return staged_bytes(case) + pieces * 64 * 128 + 16 * case.STAGES + 1024


def persistent_grid(case: Case) -> int:
    """One block a multiprocessor, each of which computes several tiles of C."""
    return min(block_tiles(case), case.device.sm_count)


def persistent_clusters(case: Case) -> int:
    """As many clusters as there are multiprocessors for, each of which computes several tiles of C."""
    tiles = ceil_div(case.m, case.CLUSTER * case.BM) * ceil_div(case.n, case.BN)
    return case.CLUSTER * min(tiles, case.device.sm_count // case.CLUSTER)


def deep_tiles(case: Case) -> bool:
    """Whether three stages of tiles 64 deep along k fit into a block's shared memory: 147,456 bytes.

    Single elements, which go through registers, take too many of these with such tiles.
    """
    return case.device.shared_bytes_per_block >= 147_456 and libraries.alignment(case) == 8


def deep_prefetch(case: Case) -> bool:
    """Whether register_prefetch has three stages of tiles 32 deep along k.

    Where a multiprocessor computes more than two tiles of C, of 32,768 elements, and their 148,992 bytes fit.
    In one wave they are slower: its page has the figures.
    """
    several_waves = case.m * case.n > 2 * 32_768 * getattr(case.device, "sm_count", 1)
    return several_waves and case.device.shared_bytes_per_block >= 148_992


WARP_TILES = {"BM": 128, "BN": 128, "BK": 8, "WM": 64, "WN": 32, "TM": 8, "TN": 8}
"""Tiles of a block, of a warp and of a thread; warp_tiling.cu gives the reasons."""
MMA_TILES = {
    "BM": 256,
    "BN": 128,
    "BK": lambda c: 64 if deep_tiles(c) else 32,
    "WM": 64,
    "WN": 64,
    "STAGES": lambda c: 3 if deep_tiles(c) else 4,
    "GROUP": 8,
    "ALIGNMENT": libraries.alignment,
}
"""The same of mma_sync.cu, its pipeline and its order of blocks."""
MULTICAST_TILES = {
    "BM": 128,
    "BN": 256,
    "BK": 64,
    "STAGES": 3,
    "PIECES": 4,
    "GROUP": 4,
    "CLUSTER": 2,
    "ALIGNMENT": libraries.alignment,
}
"""The same of wgmma_multicast.cu."""

NVMATH = ("nvmath-python>=0.5",)
CUTLASS = ("nvidia-cutlass>=4.2,<5",)
CUTLASS_OPTIONS = {"cuda": ("-DNDEBUG", "--expt-relaxed-constexpr")}
"""As CUTLASS's own build has them: with its assertions on, its kernels are slower."""

TVM = ("apache-tvm>=0.27,<0.28",)
"""Another version has another interface."""

suite = Suite(
    "matmul",
    Matmul(),
    headline="GFLOP/s",
    prelude={"cuda": "../portable/cuda.h", "opencl": "../portable/opencl.h"},
    ladders=published.LADDERS,
    kernels=[
        Kernel(
            "naive",
            "naive.cu",
            macros={"TILE": 32},
            block=square_block,
            grid=square_tiles,
            about="one thread per element of C; a warp walks down the rows, uncoalesced",
        ),
        Kernel(
            "naive_coalesced",
            "naive_coalesced.cu",
            macros={"BX": 64, "BY": 4, "OFFSET_BITS": offset_bits},
            block=lambda c: (c.BX, c.BY),
            grid=lambda c: ceil_div(c.m, c.BY) * ceil_div(c.n, c.BX),
            about="one thread per element of C; a warp walks along the columns, coalesced",
        ),
        Kernel(
            "block_tiling",
            "block_tiling.cu",
            macros={"TILE": 16},
            block=square_block,
            grid=square_tiles,
            about="a block stages 16x16 tiles of A and B in shared memory",
        ),
        Kernel(
            "block_tiling_as_published",
            "block_tiling_as_published.cu",
            macros={"TILE": 16},
            block=square_block,
            grid=square_tiles,
            about="block_tiling by its author: a warp walks down the rows, uncoalesced",
        ),
        Kernel(
            "shared_tile",
            "shared_tile.cu",
            macros={"TILE": 32},
            block=square_block,
            grid=square_tiles,
            about="32x32 tiles: one warp per row of the tile, whole lines, no bank conflicts",
        ),
        Kernel(
            "thread_tiling",
            "thread_tiling.cu",
            macros={"TILE": 32, "TM": 8},
            block=lambda c: (c.TILE, c.TILE // c.TM),
            grid=square_tiles,
            about="a thread computes 8 elements of one column of a 32x32 tile",
        ),
        Kernel(
            "thread_tiling_as_published",
            "thread_tiling_as_published.cu",
            macros={"TILE": 32, "TM": 8},
            block=lambda c: (c.TILE // c.TM, c.TILE),
            grid=square_tiles,
            about="thread_tiling by its author: a warp spans 4 patches of rows and 8 columns",
        ),
        Kernel(
            "thread_tiling_2d",
            "thread_tiling_2d.cu",
            macros={"BM": 64, "BN": 64, "BK": 64, "TM": 8, "TN": 8},
            block=lambda c: (c.BN // c.TN, c.BM // c.TM),
            grid=block_tiles,
            about="a thread computes an 8x8 patch of a 64x64 tile",
        ),
        Kernel(
            "thread_tiling_2d_as_published",
            "thread_tiling_2d_as_published.cu",
            macros={"TILE": 64, "T": 8},
            block=lambda c: (c.TILE // c.T, c.TILE // c.T),
            grid=square_tiles,
            about="thread_tiling_2d by its author: each thread loads its own 8x8 patch of both tiles",
        ),
        Kernel(
            "thread_tiling_2d_vectorized",
            "thread_tiling_2d_vectorized.cu",
            macros={"BM": 64, "BN": 64, "BK": 64, "TM": 8, "TN": 8, "VECTOR": vector_width},
            block=lambda c: (c.BN // c.TN, c.BM // c.TM),
            grid=block_tiles,
            about="thread_tiling_2d with four elements an access",
        ),
        Kernel(
            "warp_tiling",
            "warp_tiling.cu",
            macros={**WARP_TILES, "VECTOR": vector_width},
            block=warps_block,
            grid=block_tiles,
            about="a warp computes 64x32 of a 128x128 tile, and reads A and B in 16 bytes without conflicts",
        ),
        Kernel(
            "double_buffering",
            "double_buffering.cu",
            macros={**WARP_TILES, "VECTOR": vector_width},
            block=warps_block,
            grid=block_tiles,
            about="warp_tiling with two tiles: the next one is loaded while this one is computed",
        ),
        Kernel(
            "async_copy",
            "async_copy.cu",
            macros={**WARP_TILES, "STAGES": 3, "VECTOR": vector_width},
            block=warps_block,
            grid=block_tiles,
            about="double_buffering with three tiles, which cp.async copies without registers",
        ),
        Kernel(
            "register_prefetch",
            "register_prefetch.cu",
            macros={
                "BM": 128,
                "BN": 256,
                "BK": lambda c: 32 if deep_prefetch(c) else 16,
                "WM": 64,
                "WN": 64,
                "TM": 16,
                "TN": 8,
                "STAGES": lambda c: 3 if deep_prefetch(c) else 4,
                "SPREAD": lambda c: 8 if deep_prefetch(c) else 4,
                "GROUP": 8,
                "VECTOR": vector_width,
            },
            requires="sm_80",
            block=warps_block,
            grid=block_tiles,
            dynamic_shared_bytes=lambda c: 4 * c.STAGES * c.BK * (c.BM + 4 + c.BN),
            tune=Tuning(
                parameters={
                    "BM": (128, 256),
                    "BN": (128, 256),
                    "BK": (16, 32),
                    "STAGES": (2, 3, 4),
                    "SPREAD": (2, 4, 8),
                },
                rules=("BM * BN == 32768",),
                sizes=(2048, 4096),
                groups={"block tile": ("BM", "BN"), "pipeline": ("BK", "STAGES", "SPREAD")},
            ),
            about="async_copy with 16x8 a thread, whose next elements are loaded while these are multiplied",
        ),
        Kernel(
            "loop_tiling",
            "loop_tiling.cu",
            macros={"BX": 64, "BY": 4, "OFFSET_BITS": offset_bits},
            block=lambda c: (c.BX, c.BY),
            grid=one_wave,
            about="naive_coalesced with as many blocks as the card holds at once, which stride over C",
        ),
        Kernel(
            "loop_tiling_as_published",
            "loop_tiling_as_published.cu",
            macros={"TILE": 32, "OFFSET_BITS": offset_bits},
            block=square_block,
            grid=LOOP_GRID,
            about="loop_tiling by its author: a warp walks down the rows, uncoalesced",
        ),
        Kernel(
            "loop_tiling_shared",
            "loop_tiling_shared.cu",
            macros={"TILE": 8},
            block=square_block,
            grid=LOOP_GRID,
            dynamic_shared_bytes=lambda c: 4 * 2 * c.TILE * c.k,
            about="inner product: whole rows of A and columns of B in shared memory, which grows with k",
        ),
        Kernel(
            "outer_product",
            "outer_product.cu",
            macros={"TILE": 32},
            block=square_block,
            grid=square_tiles,
            about="walks k in steps of the block, adding outer products; shared memory is bounded",
        ),
        Kernel(
            "outer_product_as_published",
            "block_tiling_as_published.cu",
            entry="block_tiling_as_published",
            macros={"TILE": 32},
            block=square_block,
            grid=square_tiles,
            about="outer_product by its author: block_tiling_as_published with tiles of 32x32",
        ),
        Kernel(
            "outer_product_swizzled",
            "outer_product_swizzled.cu",
            macros={"TILE": 32},
            block=square_block,
            grid=square_tiles,
            about="outer_product with swizzling in place of padding",
        ),
        Kernel(
            "outer_product_loop_tiling",
            "outer_product_loop_tiling.cu",
            macros={"TILE": 32},
            block=square_block,
            grid=LOOP_GRID,
            about="outer_product with a fixed grid whose blocks stride over C",
        ),
        Kernel(
            "wmma",
            "wmma.cu",
            macros={"FRAGMENTS": 1},
            dtype="float16",
            requires="sm_70",
            block=32,
            grid=fragment_tiles,
            about="one warp per 16x16 tile of C, tensor cores, fragments straight from device memory",
        ),
        Kernel(
            "wmma_warp_tiling",
            "wmma_warp_tiling.cu",
            macros={"FRAGMENTS": 4},
            dtype="float16",
            requires="sm_70",
            block=32,
            grid=fragment_tiles,
            about="one warp per 64x64 tile of C: 4x4 accumulators, fragments of B reused across rows",
        ),
        Kernel(
            "mma_sync",
            "mma_sync.cu",
            macros=MMA_TILES,
            dtype="float16",
            requires="sm_80",
            block=warp_tiles_block,
            grid=block_tiles,
            dynamic_shared_bytes=staged_bytes,
            tune=Tuning(
                parameters={"BM": (128, 256), "BN": (128, 256), "BK": (32, 64), "STAGES": (2, 3, 4)},
                rules=("BM * BN <= 32768",),
                sizes=(2048, 4096),
                groups={"block tile": ("BM", "BN"), "pipeline": ("BK", "STAGES")},
            ),
            about="a warp computes 64x64 by mma.sync; cp.async fills shared memory, ldmatrix reads it",
        ),
        Kernel(
            "mma_sync_bf16",
            "mma_sync.cu",
            entry="mma_sync",
            macros={"BFLOAT16": 1, **MMA_TILES},
            dtype="bfloat16",
            requires="sm_80",
            block=warp_tiles_block,
            grid=block_tiles,
            dynamic_shared_bytes=staged_bytes,
            about="mma_sync with bfloat16 inputs",
        ),
        Kernel(
            "mma_sync_tf32",
            "mma_sync_tf32.cu",
            macros={
                "BM": 256,
                "BN": 128,
                "BK": 16,
                "WM": 64,
                "WN": 64,
                "STAGES": 4,
                "GROUP": 8,
                "VECTOR": vector_width,
            },
            dtype="tf32",
            requires="sm_80",
            block=warp_tiles_block,
            grid=block_tiles,
            dynamic_shared_bytes=lambda c: 2 * staged_bytes(c),
            about="mma_sync with float32 inputs, of whose fractions the tensor cores read 10 bits",
        ),
        Kernel(
            "wgmma",
            "wgmma.cu",
            macros={
                "BM": 128,
                "BN": 256,
                "BK": 64,
                "STAGES": 4,
                "GROUP": 8,
                "ALIGNMENT": libraries.alignment,
            },
            dtype="float16",
            arch="sm_90a",
            block=warpgroups_block,
            grid=persistent_grid,
            dynamic_shared_bytes=hopper_bytes,
            args=("map_a", "map_b", "a", "b", "c", "m", "n", "k"),
            setup=tensor_maps.of_inputs,
            about="Hopper: one warpgroup copies tiles by TMA, two multiply them by wgmma",
        ),
        Kernel(
            "wgmma_store",
            "wgmma_store.cu",
            macros={
                "BM": 128,
                "BN": 256,
                "BK": 64,
                "STAGES": 4,
                "PIECES": 2,
                "GROUP": 8,
                "ALIGNMENT": libraries.alignment,
            },
            dtype="float16",
            arch="sm_90a",
            block=warpgroups_block,
            grid=persistent_grid,
            dynamic_shared_bytes=hopper_bytes,
            args=("map_a", "map_b", "map_c", "a", "b", "c", "m", "n", "k"),
            setup=tensor_maps.of_all,
            about="wgmma whose tiles of C the copy engine stores, while the next ones are multiplied",
        ),
        Kernel(
            "wgmma_multicast",
            "wgmma_multicast.cu",
            macros=MULTICAST_TILES,
            dtype="float16",
            arch="sm_90a",
            block=warpgroups_block,
            grid=persistent_clusters,
            dynamic_shared_bytes=hopper_bytes,
            args=("map_a", "map_b", "map_c", "a", "b", "c", "m", "n", "k"),
            setup=tensor_maps.of_all,
            about="wgmma_store in clusters of two blocks, each of which copies half a tile of B for both",
        ),
        Kernel(
            "wgmma_multicast_bf16",
            "wgmma_multicast.cu",
            entry="wgmma_multicast",
            macros={"BFLOAT16": 1, **MULTICAST_TILES},
            dtype="bfloat16",
            arch="sm_90a",
            block=warpgroups_block,
            grid=persistent_clusters,
            dynamic_shared_bytes=hopper_bytes,
            args=("map_a", "map_b", "map_c", "a", "b", "c", "m", "n", "k"),
            setup=tensor_maps.of_all,
            about="wgmma_multicast with bfloat16 inputs",
        ),
        Kernel(
            "compute_shader",
            "compute_shader.glsl",
            macros={"TILE": 32},
            block=square_block,
            grid=lambda c: (ceil_div(c.n, c.TILE), ceil_div(c.m, c.TILE)),
            dispatch=(64, 64),
            about="GLSL on any card: 32x32 tiles in shared memory, large matrices in several dispatches",
        ),
        Kernel(
            "cublas",
            {"cuda": HostFunction(libraries.cublas, NVMATH)},
            library=True,
            about="cuBLAS in single precision, TF32 off",
        ),
        Kernel(
            "cublas_tf32",
            {"cuda": HostFunction(libraries.cublas, NVMATH)},
            dtype="tf32",
            requires="sm_80",
            library=True,
            about="cuBLAS on tensor cores that read 10 bits of each element's fraction",
        ),
        Kernel(
            "cublas_f16",
            {"cuda": HostFunction(libraries.cublas, NVMATH)},
            dtype="float16",
            requires="sm_70",
            library=True,
            about="cuBLAS on tensor cores: half inputs, single-precision sums and C",
        ),
        Kernel(
            "cublas_bf16",
            {"cuda": HostFunction(libraries.cublas, (*NVMATH, "ml-dtypes>=0.3"))},
            dtype="bfloat16",
            requires="sm_80",
            library=True,
            about="cuBLAS on tensor cores: bfloat16 inputs, single-precision sums and C",
        ),
        Kernel(
            "cutlass",
            {"cuda": HostLibrary("cutlass.cu", CUTLASS, libraries.cutlass_headers, libraries.CUTLASS_ERRORS)},
            entry="cutlass_f32",
            macros={"BM": 256, "BN": 128, "BK": 8, "WM": 64, "WN": 64, "STAGES": 4, "SWIZZLE": 8},
            library=True,
            options=CUTLASS_OPTIONS,
            about="CUTLASS on the plain cores: tiles of blocks, warps and threads in turn",
        ),
        Kernel(
            "cutlass_f16",
            {
                "cuda": HostLibrary(
                    "cutlass_f16.cu", CUTLASS, libraries.cutlass_headers, libraries.CUTLASS_ERRORS
                )
            },
            macros={"ALIGNMENT": libraries.alignment, **libraries.COLLECTIVE},
            dtype="float16",
            requires="sm_75",
            library=True,
            options=CUTLASS_OPTIONS,
            about="CUTLASS on tensor cores: half inputs, single-precision sums and C",
        ),
        Kernel(
            "cpu_loop",
            {"cpu": HostFunction(host.triple_loop, needs=("numba>=0.59",))},
            about="the plain triple loop on one core of the host",
        ),
        Kernel(
            "cpu_blas",
            {"cpu": HostFunction(host.blas)},
            about="the host's BLAS, by way of NumPy, on all cores",
        ),
        Kernel(
            "schedule_plain",
            {
                "cpu": HostFunction(schedules.cpu_plain, TVM),
                "cuda": Generated(schedules.cuda_plain, TVM),
            },
            entry="schedule_kernel",
            macros={"THREADS": lambda c: min(c.n, 1024)},
            block=lambda c: c.THREADS,
            grid=lambda c: (c.m, ceil_div(c.n, c.THREADS)),
            args=("a", "b", "c"),
            about="TVM's schedule of one block per row of C, one thread per element",
        ),
        Kernel(
            "schedule",
            {"cpu": HostFunction(schedules.cpu, TVM), "cuda": Generated(schedules.cuda, TVM)},
            entry="schedule_kernel",
            macros={"BM": 32, "BN": 32, "BK": 32, "TM": 8, "TN": 4, "PATTERN": "k_innermost"},
            block=lambda c: (c.BM // c.TM, c.BN // c.TN),
            grid=lambda c: (ceil_div(c.m, c.BM), ceil_div(c.n, c.BN)),
            args=("a", "b", "c"),
            tune=Tuning(
                configurations=schedules.CONFIGURATIONS,
                rules=schedules.RULES,
                sizes=schedules.SIZES,
                groups={
                    "pattern": ("PATTERN",),
                    "block tile": ("BM", "BN", "BK"),
                    "thread tile": ("TM", "TN"),
                },
            ),
            about="TVM's schedule of block tiles, thread tiles and an order of the loops over k",
        ),
    ],
)
