"""A tolerance within which a wrong answer passes is refused, and an honest one never is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness import Axis, Case, InOut, Input, Output, Problem
from harness.errors import ExitCode
from harness.measure import verify
from harness.measure.tolerances import LooseBoundError, check_numbers, too_wide
from harness.suite.loader import load_folder
from tests.support import caller, commit, make_repository

KERNELS = Path(__file__).parents[1] / "kernels"


class Twice(Problem):
    n = Axis((64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


class Transposed(Problem):
    m = Axis((16,))
    n = Axis((16,))
    x = Input("m", "n")
    y = Output("n", "m")

    def reference(self, case, x):
        return x.T


class Added(Problem):
    n = Axis((64,))
    x = Input("n")
    y = InOut("n")

    def reference(self, case, x, y):
        return y + 0.01 * x


class Scaled(Problem):
    n = Axis((64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 1.001 * x


class Total(Problem):
    n = Axis((64,))
    x = Input("n")
    y = Output()

    def reference(self, case, x):
        return x.sum()


class Counted(Problem):
    n = Axis((64,))
    x = Input("n")
    y = Output("n", dtype="int32")

    def reference(self, case, x):
        return np.floor(10 * x)


def case_of(problem, dtype="float32", **sizes):
    return Case(
        "toy", "one", {**{name: axis.default[0] for name, axis in problem.axes.items()}, **sizes}, dtype
    )


class Square(Problem):
    n = Axis((16,))
    x = Input("n", "n")
    y = Output("n", "n")

    def reference(self, case, x):
        return 2 * x


class Rows(Problem):
    """The sum of each row about its mean, which is zero but for rounding."""

    m = Axis((16,))
    n = Axis((4096,))
    x = Input("m", "n")
    y = Output("m")

    def reference(self, case, x):
        return (x - x.mean(axis=1, keepdims=True)).sum(axis=1)


def too_wide_of(problem, tolerance=None, data=None, dtype="float32", **sizes):
    """Return the message on this tolerance, or on the problem's own."""
    case = case_of(problem, dtype, **sizes)
    inputs = data or problem.data(case, np.random.default_rng(1))
    reference, own = verify.reference_of(problem, case, inputs)
    return too_wide(problem, case, inputs, reference, own if tolerance is None else tolerance)


EVEN = np.linspace(0, 1, 64, dtype="float32")
MIRRORED = np.tile([0, 9, 9, 0], 16) + 0.02 * EVEN
NORMAL = np.random.default_rng(3).standard_normal((16, 16))


@pytest.mark.parametrize(
    ("problem", "tolerance", "data", "said"),
    [
        pytest.param(Twice(), 1e6, None, "zero everywhere", id="zero"),
        pytest.param(Twice(), np.full(64, 9.0), None, "zero everywhere", id="zero, by an array"),
        pytest.param(Total(), 1e3, None, "zero everywhere", id="zero for one element"),
        pytest.param(Counted(), 200, None, "zero everywhere", id="zero for integers"),
        pytest.param(Twice(), 1.1, {"x": 4 + EVEN}, "9 everywhere", id="a constant"),
        pytest.param(Added(), 0.1, None, "the input 'y' as it is", id="an output left as it was"),
        pytest.param(Scaled(), 0.01, None, "the input 'x' as it is", id="an input"),
        pytest.param(Twice(), 0.1, {"x": EVEN}, "neighbour's place along n", id="shifted"),
        pytest.param(Twice(), 0.1, {"x": MIRRORED}, "in reverse order along n", id="reversed"),
        pytest.param(
            Square(),
            0.1,
            {"x": NORMAL + NORMAL.T + 0.001 * np.arange(16)},
            "the transposed answers",
            id="transposed",
        ),
    ],
)
def test_a_tolerance_within_which_a_wrong_answer_passes(problem, tolerance, data, said):
    found = too_wide_of(problem, tolerance, data)
    assert f"{said} would pass" in found
    assert f"allows errors of up to {np.max(tolerance):.4g}" in found


@pytest.mark.parametrize(
    ("problem", "tolerance", "data"),
    [
        pytest.param(Twice(), 0.0, {"x": np.zeros(64)}, id="exact, and zero"),
        pytest.param(Counted(), 0, None, id="exact integers"),
        pytest.param(Twice(), 1e-6, {"x": np.zeros(64)}, id="answers of zero"),
        pytest.param(Rows(), 1e-4, None, id="sums that cancel to zero"),
        pytest.param(Twice(), 1e-5, {"x": np.full(64, 0.7)}, id="answers that are all one number"),
        pytest.param(Twice(), 1e-5, {"x": EVEN}, id="a ramp"),
        pytest.param(Square(), 0.1, {"x": NORMAL + NORMAL.T}, id="a symmetric matrix"),
        pytest.param(Scaled(), 1e-4, None, id="close to the input"),
        pytest.param(Added(), 1e-4, None, id="close to the output before"),
        pytest.param(Total(), 1e-3, None, id="one element"),
        pytest.param(Twice(), 1e-6, {"x": np.full(64, np.nan)}, id="a reference that is no number"),
        pytest.param(Twice(), 9.0, {"x": np.append(EVEN[1:], np.nan)}, id="one answer that is no number"),
        pytest.param(Twice(), 9.0, {"x": np.append(EVEN[1:], np.inf)}, id="one answer that is infinite"),
    ],
)
def test_a_tolerance_that_tells_right_from_wrong(problem, tolerance, data):
    assert too_wide_of(problem, tolerance, data) == ""


@pytest.mark.parametrize(("dtype", "refused"), [("float32", True), ("float16", True), ("bfloat16", False)])
def test_half_precision_need_not_tell_apart_what_it_rounds_to_the_same(dtype, refused):
    """Answers from 1 to 1.02 within 0.02, which is 5 roundings of bfloat16 and 41 of float16."""
    pytest.importorskip("ml_dtypes")
    data = {"x": 0.5 + 0.01 * EVEN}
    assert bool(too_wide_of(Twice(), 0.02, data, dtype)) == refused


@pytest.mark.parametrize(("tolerance", "refused"), [(0.1, False), (0.6, True)])
def test_a_type_of_few_bits_does_not_excuse_every_answer(tolerance, refused):
    """Answers from 1 to 1.5. Sixteen roundings of float8_e4m3fn would be as large as the answers."""
    pytest.importorskip("ml_dtypes")
    found = too_wide_of(Twice(), tolerance, {"x": 0.5 + 0.25 * EVEN}, "float8_e4m3fn")
    assert bool(found) == refused


FAR = 2**16 + 8
"""More elements than are looked at first."""


def test_a_constant_that_suits_every_element_is_found_beyond_the_first_ones():
    """The first answers allow 0 to 2, the last ones 1.5 to 3.5."""
    answers = np.append(np.full(FAR - 8, 1.0), np.full(8, 2.5))
    assert "1.75 everywhere would pass" in too_wide_of(Twice(), 1.0, {"x": answers / 2}, n=FAR)


def test_a_bound_that_is_tight_beyond_the_first_elements_is_fine():
    data = {"x": np.random.default_rng(1).random(FAR)}
    bound = np.append(np.full(FAR - 8, 9.0), np.zeros(8))
    assert too_wide_of(Twice(), bound, data, n=FAR) == ""


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_of_few_elements_only_zero_is_tried(size):
    data = {"x": 1 + EVEN[:size]}
    assert too_wide_of(Twice(), 1.5, data, n=size) == ""
    assert "zero everywhere" in too_wide_of(Twice(), 5.0, data, n=size)


SIZES = ((1, 1, 1), (2, 2, 2), (1, 2, 3), (33, 31, 1003), (127, 65, 33))


@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("name", ["matmul", "copy", "transpose"])
def test_our_own_suites_are_fine_at_every_size(name, dtype):
    pytest.importorskip("ml_dtypes")
    problem = load_folder(KERNELS / name).problem
    for sizes in SIZES:
        assert too_wide_of(problem, dtype=dtype, **dict(zip(problem.axes, sizes, strict=False))) == ""


def numbers(tolerance, reference=None):
    problem = Twice()
    case = case_of(problem, n=4)
    check_numbers(problem, case, {"y": np.ones(4) if reference is None else reference}, tolerance)


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        (np.inf, "gives inf for y[0] at 4, within which every number passes"),
        ([1, 1, np.inf, 1], "gives inf for y[2]"),
        (np.nan, "gives nan for y[0] at 4, within which no answer passes, not even the right one"),
        ([1, np.nan, 1, 1], "gives nan for y[1]"),
        (-1e-9, "gives -1e-09 for y[0] at 4, within which no answer passes"),
        ([1, 1, 1, -np.inf], "gives -inf for y[3] at 4, within which no answer passes"),
    ],
    ids=str,
)
def test_a_bound_that_is_no_bound(tolerance, said):
    with pytest.raises(LooseBoundError) as raised:
        numbers(tolerance)
    assert said in raised.value.message
    assert (raised.value.reason, raised.value.exit_code) == ("loose-bound", ExitCode.USAGE)


def test_bounds_that_are_numbers_are_fine():
    numbers(0.0)
    numbers([0, 1e-6, 1, 1e9])


def test_a_bound_made_of_a_reference_that_is_no_number_leaves_the_word_to_the_comparison():
    numbers(np.nan, np.array([1, np.nan, 1, 1]))
    numbers(np.inf, np.array([1, np.inf, 1, 1]))


SUITE = """\
import numpy as np
from harness import Axis, HostFunction, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(4096,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x

    def tolerance(self, case, x):
        return TOLERANCE

    def integer_bound(self, case):
        return 100


def make(case, stream):
    def call(x, y, n):
        np.multiply(x, FACTOR, out=y)

    return call


suite = Suite("toy", Twice(), headline="GB/s", kernels=[Kernel("k", {"cpu": HostFunction(make)})])
"""


def tree(tolerance="1e-6", factor=2):
    text = SUITE.replace("TOLERANCE", tolerance).replace("FACTOR", str(factor))
    return {"pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\n", "kernels/toy/suite.py": text}


@pytest.fixture
def project(capsys, monkeypatch, tmp_path):
    root, call = make_repository(tmp_path / "project"), caller(capsys, monkeypatch)

    def harness(*commits, command):
        for number, files in enumerate(commits):
            commit(root, files, number + 1)
        return call(*command, "--device", "cpu:0", "--json", cwd=root)

    return harness


@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        ('float("inf")', "gives inf for y[0] at 4096"),
        ('float("nan")', "gives nan for y[0] at 4096"),
        ("-1e-6", "gives -1e-06 for y[0] at 4096"),
        ("1e6", "allows errors of up to 1e+06 in 'y' at 4096"),
    ],
)
def test_right_and_wrong_kernels_are_refused_alike(project, tolerance, said, factor):
    done = project(tree(tolerance, factor), command=["check"])
    [row] = [each["row"] for result in done.json for each in result["rows"]]
    assert (done.status, row["status"], row["reason"]) == (3, "failed", "loose-bound")
    assert said in row["message"]


def test_a_run_times_nothing_within_a_bound_that_proves_nothing(project):
    done = project(tree("1e6"), command=["run", "--no-save"])
    [row] = [each["row"] for result in done.json for each in result["rows"]]
    assert (done.status, row["reason"], row["measurement"]) == (3, "loose-bound", None)


@pytest.mark.parametrize("tolerance", ['float("inf")', "1e6"])
@pytest.mark.parametrize(
    ("loose", "side", "status"),
    [(("base",), "base", 3), (("head",), "head", 1), (("base", "head"), "head", 1)],
    ids=["base", "head", "both"],
)
def test_a_comparison_refuses_the_bound_of_either_side(project, tolerance, loose, side, status):
    base, head = (
        tree(tolerance if name in loose else "1e-6", factor)
        for name, factor in (("base", "2"), ("head", "2.0"))
    )
    done = project(base, head, command=["compare", "HEAD~1", "HEAD", "--no-save"])
    [result] = done.json
    [verdict] = result["verdicts"]
    assert (verdict["status"], verdict["reason"], verdict["side"]) == ("failed", "loose-bound", side)
    assert done.status == status


SUM = (
    SUITE.replace('y = Output("n")', 'one = Axis(default=(1,))\n    y = Output("one")')
    .replace("2 * x", "x.sum(keepdims=True)")
    .replace("np.multiply(x, FACTOR, out=y)", "np.sum(x, keepdims=True, out=y)")
    .replace("call(x, y, n)", "call(x, y, n, one)")
    .replace("TOLERANCE", "20.0")
)


def test_an_answer_that_is_small_by_chance_refuses_nothing(project):
    """Zero passes on the first set of data, and not on both of the next two."""
    sums = [
        abs(np.random.default_rng(seed).standard_normal(4096, dtype="float32").sum()) for seed in range(99)
    ]
    seed = next(number for number in range(97) if sums[number] < 20 < max(sums[number + 1 : number + 3]))
    files = {**tree(), "kernels/toy/suite.py": SUM}
    done = project(files, command=["check", "--seed", str(seed)])
    assert done.status == 0, done.err
