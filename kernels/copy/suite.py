"""Copying an array: the most that a kernel bound by device memory can reach."""

from __future__ import annotations

from typing import Any

from harness import Axis, Case, Input, Kernel, Output, Problem, Suite, ceil_div


class Copy(Problem):
    """Y[rows, cols] = X[rows, cols]."""

    rows = cols = Axis(default=(4096, 8192), quick=(1024, 2048))
    x = Input("rows", "cols")
    y = Output("rows", "cols")
    independent = "rows"

    def reference(self, case: Case, x: Any) -> Any:
        return x


suite = Suite(
    "copy",
    Copy(),
    headline="GB/s",
    prelude={"cuda": "../portable/cuda.h", "opencl": "../portable/opencl.h"},
    kernels=[
        Kernel(
            "copy",
            "copy.cu",
            macros={"THREADS": 256},
            block=lambda c: c.THREADS,
            grid=lambda c: ceil_div(c.rows * c.cols, c.THREADS),
            about="one element per thread",
        ),
        Kernel(
            "copy_unrolled",
            "copy_unrolled.cu",
            macros={"THREADS": 256, "ITEMS": 4},
            block=lambda c: c.THREADS,
            grid=lambda c: ceil_div(c.rows * c.cols, c.THREADS * c.ITEMS),
            about="four elements per thread, loaded before the first is stored",
        ),
        Kernel(
            "copy_vectorized",
            "copy_vectorized.cu",
            macros={"THREADS": 256},
            block=lambda c: c.THREADS,
            grid=lambda c: ceil_div(c.rows * c.cols, c.THREADS * 4),
            about="copy with four elements an access",
        ),
    ],
)
