"""Transposing a matrix: the same bytes as a copy, so copy's GB/s are what these kernels aim at."""

from __future__ import annotations

from typing import Any

from harness import Axis, Case, Input, Kernel, Output, Problem, Suite, ceil_div


class Transpose(Problem):
    """Y[cols, rows] = X[rows, cols] turned over."""

    rows = cols = Axis(default=(4096, 8192), quick=(1024, 2048))
    x = Input("rows", "cols")
    y = Output("cols", "rows")
    independent = "rows"

    def reference(self, case: Case, x: Any) -> Any:
        return x.T


def block(case: Case) -> tuple[int, int]:
    return case.TILE, case.THREADS_Y


def tiles(case: Case) -> int:
    return ceil_div(case.rows, case.TILE) * ceil_div(case.cols, case.TILE)


def vector_width(case: Case) -> int:
    """Elements of an access: four where every row of X and of Y begins at a multiple of four."""
    return 1 if case.rows % 4 or case.cols % 4 else 4


suite = Suite(
    "transpose",
    Transpose(),
    headline="GB/s",
    prelude={"cuda": "../portable/cuda.h", "opencl": "../portable/opencl.h"},
    kernels=[
        Kernel(
            "transpose_naive",
            "transpose_naive.cu",
            macros={"TILE": 32, "THREADS_Y": 8},
            block=block,
            grid=tiles,
            about="reads along rows, writes down columns, uncoalesced",
        ),
        Kernel(
            "transpose_tiled",
            "transpose_tiled.cu",
            macros={"TILE": 32, "THREADS_Y": 8},
            block=block,
            grid=tiles,
            about="by way of a padded tile in shared memory: reads and writes along rows",
        ),
        Kernel(
            "transpose_vectorized",
            "transpose_vectorized.cu",
            macros={"TILE": 64, "VECTOR": vector_width},
            block=lambda c: (c.TILE // 4) ** 2,
            grid=tiles,
            about="transpose_tiled with four elements an access: a thread turns 4x4 over in registers",
        ),
    ],
)
