"""Kernels broken on purpose, which a check must find: each is one change of text in one kernel here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.suite.loader import LoadedSuite, load
from harness.suite.planning import PlannedCase
from tests.support import KERNELS


@dataclass(frozen=True)
class Mutation:
    suite: str
    kernel: str
    what: str
    old: str
    new: str
    size: tuple[int, ...]
    occurrence: int = 0
    """Which of several occurrences of `old` is replaced."""

    @property
    def name(self) -> str:
        return f"{self.kernel}_{'_'.join(self.what.split())}"

    def __str__(self) -> str:
        return f"{self.kernel}: {self.what}"

    def apply(self, source: str) -> str:
        parts = source.split(self.old)
        assert len(parts) > self.occurrence + 1, f"{self}: {self.old!r} is no longer in the kernel"
        before, after = parts[: self.occurrence + 1], parts[self.occurrence + 1 :]
        mutated = self.old.join(before) + self.new + self.old.join(after)
        assert mutated != source
        return mutated


EDGES = (127, 65, 33)
"""No edge is a multiple of a tile, and k needs a second tile of one element."""
WIDE = (70, 200, 100)
"""Several tiles of every kernel in every direction, none of them whole at the end."""

MATMUL = [
    Mutation("matmul", "naive", "no last k", "p < k;", "p < k - 1;", (64, 64, 700)),
    Mutation("matmul", "naive", "no row guard", "row >= m || column >= n", "column >= n", (127, 64, 33)),
    Mutation("matmul", "naive", "no column guard", "row >= m || column >= n", "row >= m", (128, 65, 33)),
    Mutation("matmul", "naive_coalesced", "no guard", "row >= m || column >= n", "false", EDGES),
    Mutation("matmul", "block_tiling", "no first barrier", "BARRIER();", "", EDGES, 0),
    Mutation("matmul", "block_tiling", "no second barrier", "BARRIER();", "", EDGES, 1),
    Mutation("matmul", "block_tiling", "stride of b", "(index_t)TILE * n;", "(index_t)TILE * m;", EDGES),
    Mutation("matmul", "shared_tile", "no first barrier", "BARRIER();", "", EDGES, 0),
    Mutation("matmul", "shared_tile", "no second barrier", "BARRIER();", "", EDGES, 1),
    Mutation("matmul", "shared_tile", "no bound of a", "x < left ? *a : 0.0f", "*a", EDGES),
    Mutation("matmul", "shared_tile", "no bound of b", "y < left ? *b : 0.0f", "*b", EDGES),
    Mutation("matmul", "shared_tile", "no row guard", "row < m && column < n", "column < n", EDGES),
    Mutation("matmul", "shared_tile", "no column guard", "row < m && column < n", "row < m", EDGES),
    Mutation("matmul", "shared_tile", "last tile left out", "left > 0;", "left >= TILE;", (64, 64, 33)),
    Mutation("matmul", "shared_tile", "transposed tile", "tile_b[p][x]", "tile_b[x][p]", (32, 32, 32)),
    Mutation("matmul", "thread_tiling", "no first barrier", "BARRIER();", "", EDGES, 0),
    Mutation("matmul", "thread_tiling", "no bound of a", "x < left ? a", "true ? a", EDGES),
    Mutation("matmul", "thread_tiling", "store past the end", "<= last_row &&", "<= last_row + 1 &&", EDGES),
    Mutation("matmul", "thread_tiling_2d", "no second barrier", "BARRIER();", "", WIDE, 1),
    Mutation(
        "matmul", "thread_tiling_2d", "no bound of b", "r + row_b < left ? b", "true ? b", (70, 200, 65)
    ),
    Mutation("matmul", "thread_tiling_2d", "no store guard", "x + j <= last_column", "true", EDGES),
    Mutation("matmul", "thread_tiling_2d", "one index", "sum[i][j] +=", "sum[i][TN - 1 - j] +=", WIDE),
    Mutation("matmul", "warp_tiling", "no second barrier", "BARRIER();", "", WIDE, 1),
    Mutation("matmul", "warp_tiling", "wrong row", "PATCH * STEP_Y + i", "PATCH * STEP_X + i", WIDE),
    Mutation("matmul", "double_buffering", "no barrier", "BARRIER();", "", WIDE),
    Mutation("matmul", "double_buffering", "no last k", "left > -BK", "left > 0", WIDE),
    Mutation("matmul", "async_copy", "no barrier", "BARRIER();", "", WIDE),
    Mutation("matmul", "async_copy", "no last k", "left > -AHEAD", "left > BK - AHEAD", WIDE),
    Mutation("matmul", "loop_tiling", "first column left out", "+ THREAD_X;", "+ THREAD_X + 1;", (1, 513, 1)),
    Mutation("matmul", "loop_tiling_shared", "no first barrier", "BARRIER();", "", EDGES, 0),
    Mutation("matmul", "loop_tiling_shared", "no second barrier", "BARRIER();", "", (300, 300, 33), 1),
    Mutation("matmul", "loop_tiling_shared", "no last k", "p < k; ++p", "p < k - 1; ++p", EDGES),
    Mutation("matmul", "outer_product", "no second barrier", "BARRIER();", "", EDGES, 1),
    Mutation("matmul", "outer_product", "wrong row", "column_a[p][y]", "column_a[p][x]", EDGES),
    Mutation("matmul", "outer_product_loop_tiling", "no second barrier", "BARRIER();", "", EDGES, 1),
    Mutation(
        "matmul",
        "outer_product_loop_tiling",
        "step too wide",
        "GRID_Y * TILE",
        "GRID_Y * TILE * 2",
        (1100, 40, 9),
    ),
]
MEMORY = [
    Mutation("copy", "copy", "no bound", "i < (index_t)rows * cols", "true", (10, 33)),
    Mutation("copy", "copy", "last element left out", "cols)", "cols - 1)", (10, 33), 1),
    Mutation("copy", "copy_unrolled", "one element too many", "THREADS < left;", "THREADS <= left;", (8, 64)),
    Mutation("copy", "copy_vectorized", "last element left out", "i < left)", "i < left - 1)", (10, 33)),
    Mutation("transpose", "transpose_naive", "no row guard", "i < rows - row0", "true", (33, 65)),
    Mutation("transpose", "transpose_tiled", "no barrier", "BARRIER();", "", (65, 33)),
    Mutation("transpose", "transpose_tiled", "no store guard", " && THREAD_X < tile_rows)", ")", (65, 33)),
    Mutation(
        "transpose",
        "transpose_vectorized",
        "wrong swizzle",
        "tile[SWIZZLED(i, ",
        "tile[(i) * CHUNKS + (",
        (68, 132),
    ),
]
MUTATIONS = [*MATMUL, *MEMORY]
"""For every device."""
TENSOR = [
    Mutation("matmul", "wmma", "last tile left out", "(; left > 0; left", "(; left >= EDGE; left", EDGES),
    Mutation(
        "matmul", "wmma", "no row guard", "tile, sum, n, rows, columns", "tile, sum, n, EDGE, columns", EDGES
    ),
    Mutation("matmul", "wmma_warp_tiling", "wrong fragment", "tile, b + j * EDGE, n", "tile, b, n", WIDE),
    Mutation("matmul", "register_prefetch", "no last k", "(left > -AHEAD", "(left > BK - AHEAD", WIDE),
    Mutation("matmul", "mma_sync", "wrong fragment", "j % 2 * 2 + 1]", "j % 2 * 2]", WIDE),
    Mutation("matmul", "mma_sync_tf32", "wrong fragment", "[j][1]);", "[j][0]);", WIDE),
    Mutation("matmul", "wgmma", "no row guard", "row < m && at < n", "at < n", (70, 200, 104)),
    Mutation("matmul", "wgmma_store", "wrong row", "row += consumer * WGMMA_M;", "", (130, 200, 104)),
    Mutation("matmul", "wgmma_multicast", "wrong half", "rank * (BN", "0 * (BN", (130, 264, 104)),
]
"""For CUDA alone."""


def broken_suite(
    suite: str, mutations: Sequence[Mutation], root: Path
) -> tuple[LoadedSuite, list[PlannedCase]]:
    """A copy of a suite that has every mutation as a kernel of its own, and a case for each."""
    folder = root / "kernels" / suite
    shutil.copytree(KERNELS, root / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    lines = ["", "from dataclasses import replace", "", "mutated = []"]
    for mutation in mutations:
        original = (folder / f"{mutation.kernel}.cu").read_text(encoding="utf-8")
        (folder / f"{mutation.name}.cu").write_text(mutation.apply(original), encoding="utf-8")
        lines.append(
            f"mutated.append(replace(suite.by_name[{mutation.kernel!r}], name={mutation.name!r}, "
            f"source={mutation.name + '.cu'!r}, entry={mutation.kernel!r}))"
        )
    lines += ["suite = replace(suite, kernels=[*suite.kernels, *mutated])", ""]
    with (folder / "suite.py").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines))
    loaded = load(folder)
    axes = list(loaded.suite.problem.axes)
    cases = []
    for mutation in mutations:
        kernel = loaded.suite.by_name[mutation.name]
        sizes = dict(zip(axes, mutation.size, strict=True))
        cases.append(PlannedCase(kernel, loaded.suite.case(kernel, sizes)))
    return loaded, cases
