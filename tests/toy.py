"""The smallest project there is, as files: y = 2 x."""

from __future__ import annotations

from collections.abc import Mapping

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

TWICE = """\
from harness import Axis, HostFunction, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(64,), quick=(64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x

    def flop(self, case):
        return case.n


def double(case, stream):
    def call(x, y, n):
        y[:] = 2 * x

    return call


"""
"""How suites of the host's functions begin: the problem at one size, and a function that solves it."""

PERSISTENT_SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(100003,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


suite = Suite(
    "wave",
    Twice(),
    headline="GB/s",
    prelude=PRELUDE,
    kernels=[
        Kernel(
            name,
            "wave.cu",
            entry="wave",
            macros={"THREADS": lambda c: c.device.threads_per_block // 4, "SHARED_BYTES": shared_bytes},
            block=lambda c: c.THREADS,
            grid=lambda c: c.device.sm_count * c.resident_blocks,
        )
        for name, shared_bytes in (("wave", 256), ("wave_of_few", 40000))
    ],
)
"""

PERSISTENT_SOURCE = """\
KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) wave(const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int n)
{
    SHARED float staged[SHARED_BYTES / 4];
    staged[THREAD_X % (SHARED_BYTES / 4)] = 2.0f;
    BARRIER();
    for (int i = BLOCK_X * THREADS + THREAD_X; i < n; i += GRID_X * THREADS)
        y[i] = x[i] * staged[(THREAD_X + 1) % 64];
}
"""


def persistent(prelude: Mapping[str, str]) -> dict[str, str]:
    """A suite whose grids are as large as the device holds at once, as files; `prelude` by backend."""
    suite = PERSISTENT_SUITE.replace("PRELUDE", repr(dict(prelude)))
    return {"suite.py": suite, "wave.cu": PERSISTENT_SOURCE}


TWICE_SUITE = """\
import sys
from pathlib import Path
{imports}
from harness import Axis, Generated, HostFunction, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=({n},))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        {reference}
        return 2 * x


{body}


suite = Suite("twice", Twice(), headline="GB/s", kernels=[Kernel("one", {source}, block=64, grid=1)])
"""


def twice(imports: str, body: str, source: str, *, reference: str = "pass", n: int = 64) -> str:
    """A suite.py of one kernel, which `source` makes with what `body` defines."""
    return TWICE_SUITE.format(imports=imports, body=body, source=source, reference=reference, n=n)
