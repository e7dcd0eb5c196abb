"""A repository with a suite at two commits, base and head, for the null device: its kernels say in their
sources how long they take, or what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support import commit, make_repository

MS = 1_000_000

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(1024,), quick=(64,))
    a = Input("n")
    b = Input("n")
    y = Output("n")

    def reference(self, case, a, b):
        return 2 * a

    def integer_bound(self, case):
        return 100

    def flop(self, case):
        return case.n


def kernel(name, **given):
    return Kernel(name, f"{name}.cu", **{"block": 32, "grid": 2, **given})


suite = Suite("toy", Twice(), [KERNELS])
"""
SOURCE = """\
{said}
__kernel void {name}(__global const float* a, __global const float* b, __global float* y, int n) {{
    if (get_global_id(0) < n) y[get_global_id(0)] = 2 * a[get_global_id(0)];
}}
"""


class Side(NamedTuple):
    """A kernel at one commit: its text, and its entry in suite.py beyond the name."""

    said: str = f"#define NULL_DEVICE_NS {MS}"
    given: str = ""


def takes(time_ns: int) -> Side:
    return Side(f"#define NULL_DEVICE_NS {time_ns}")


def breaks(fault: str) -> Side:
    return Side(f"#define NULL_DEVICE_FAULT {fault}")


BASE, HEAD = takes(MS), takes(MS + 1)
"""Different code that takes the same time."""
KERNELS: Mapping[str, tuple[Side | None, Side | None]] = {
    "slower": (BASE, takes(1_030_000)),
    "faster": (BASE, takes(970_000)),
    "changed": (BASE, HEAD),
    "untouched": (BASE, BASE),
    "commented": (BASE, Side(f"{BASE.said}\n// a comment")),
    "swapped": (BASE, Side(given="args=('b', 'a', 'y', 'n')")),
    "relaunched": (BASE, Side(given="grid=3")),
    "clustered": (BASE, Side(given="cluster=2")),
    "gone": (BASE, None),
    "fresh": (None, HEAD),
    "fresh_wrong": (None, breaks("wrong")),
    "fresh_crash": (None, breaks("crash")),
    "fresh_build": (None, breaks("build")),
    "build_head": (BASE, breaks("build")),
    "build_base": (breaks("build"), BASE),
    "wrong_head": (BASE, breaks("wrong")),
    "wrong_base": (breaks("wrong"), BASE),
    "wrong_both": (breaks("wrong"), Side(f"{breaks('wrong').said}\nint other;")),
    "nan_head": (BASE, breaks("nan")),
    "overrun_head": (BASE, breaks("overrun")),
    "crash_head": (BASE, breaks("crash")),
    "crash_base": (breaks("crash"), BASE),
    "hang_head": (BASE, breaks("hang")),
    "hang_base": (breaks("hang"), BASE),
    "error_head": (BASE, breaks("error")),
    "memory_base": (breaks("memory"), BASE),
    "retyped": (Side(given="dtype='float64'"), BASE),
    "retyped_too": (Side(given="dtype='float64'"), HEAD),
    "unfit": (BASE, Side(given="requires='sm_70'")),
    "too_large": (BASE, Side(given="block=4096")),
    "unfit_both": (Side(given="requires='sm_70'"), Side(given="requires='sm_70'")),
    "at_tolerance": (BASE, takes(1_002_300)),
}


def files(side: int, kernels: Mapping[str, tuple[Side | None, Side | None]] = KERNELS) -> dict[str, str]:
    """The suite at base, 0, or at head, 1."""
    chosen = {name: found for name, sides in kernels.items() if (found := sides[side])}
    specs = ", ".join(f"kernel({name!r}, {given.given})" for name, given in chosen.items())
    return {
        "pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\nresults = 'results'\n",
        "kernels/toy/suite.py": SUITE.replace("KERNELS", specs),
        **{
            f"kernels/toy/{name}.cu": SOURCE.format(said=given.said, name=name)
            for name, given in chosen.items()
        },
    }


def make_project(root: Path, kernels: Mapping[str, tuple[Side | None, Side | None]] = KERNELS) -> Path:
    """A repository with two commits: base and head."""
    repository = make_repository(root)
    commit(repository, files(0, kernels), 1)
    commit(repository, files(1, kernels), 2)
    return repository


def only(*names: str) -> dict[str, tuple[Side | None, Side | None]]:
    return {name: KERNELS[name] for name in names}
