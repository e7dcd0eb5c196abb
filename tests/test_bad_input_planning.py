from __future__ import annotations

import pytest

from harness import Axis, Case, Kernel, Output, Problem, Suite
from harness.errors import SuiteError, UsageError
from harness.planning import launch_of, parse_size, plan


class Line(Problem):
    n = Axis((8, 16), quick=(4,))
    y = Output("n")


def kernel(name="one", **changes):
    return Kernel(name, "one.cu", **{"block": 32, "grid": 1, **changes})


@pytest.mark.parametrize("given", [1.5, None, lambda c: c.n / 32, lambda c: None])
def test_geometry_no_sequence(given):
    with pytest.raises(SuiteError, match="expected one to three integers"):
        launch_of(kernel(grid=given), Case("s", "k", {"n": 5}))


def test_huge_size():
    with pytest.raises(UsageError, match="out of range"):
        parse_size("9" * 5000, Line())


def test_problem_class():
    with pytest.raises(SuiteError):
        Suite("lines", Line, [kernel()])


@pytest.mark.parametrize("macro", [lambda c: 1 // 0, lambda c: c.nope, lambda c: c.n / 2, "x\ny", 1.5])
def test_macro(macro):
    with pytest.raises(SuiteError):
        plan(Suite("lines", Line(), [kernel(macros={"X": macro})]))


@pytest.mark.parametrize("shared", [lambda c: c.n / 2, -1, None])
def test_shared(shared):
    with pytest.raises(SuiteError):
        launch_of(kernel(dynamic_shared_bytes=shared), Case("s", "k", {"n": 5}))


def test_axis_int():
    with pytest.raises(SuiteError):
        Axis(1024)
