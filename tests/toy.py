"""The smallest project there is, as files: y = 2 x."""

from __future__ import annotations

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, ceil_div


class Twice(Problem):
    n = Axis(default=(1024, 4096), quick=(64,))
    x = Input("n")
    y = Output("n")
    independent = "n"

    def reference(self, case, x):
        return 2 * x

    def integer_bound(self, case):
        return 100

    def flop(self, case):
        return case.n


suite = Suite(
    "toy",
    Twice(),
    headline="GB/s",
    prelude={"null": "../portable/null.h", "opencl": "../portable/opencl.h"},
    kernels=[
        Kernel("plain", "plain.cu", block=32, grid=lambda c: ceil_div(c.n, 32)),
        Kernel("tiled", "tiled.cu", macros={"TILE": 64}, block=64, grid=lambda c: ceil_div(c.n, c.TILE)),
    ],
)
"""

BODY = """\
__kernel void {name}(__global const float* x, __global float* y, int n) {{
    int i = get_global_id(0);
    if (i < n) y[i] = 2 * x[i];
}}
"""

FILES = {
    "pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\n",
    "kernels/toy/suite.py": SUITE,
    "kernels/toy/plain.cu": BODY.format(name="plain"),
    "kernels/toy/tiled.cu": BODY.format(name="tiled"),
    "kernels/portable/null.h": "// null\n",
    "kernels/portable/opencl.h": "// opencl\n",
}
