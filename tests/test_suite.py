"""Suites that a kernel author may write, and the messages on wrong ones."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from typing import Any

import numpy as np
import pytest

from harness import Axis, Case, Input, Kernel, Output, Problem, Suite, ceil_div
from harness.errors import ExitCode, SuiteError


class Matrix(Problem):
    """Two axes that move by themselves, of which one has a name for each side."""

    m = n = Axis(default=(8, 16), quick=(4,))
    k = Axis(default=(3, 5, 7))
    a = Input("m", "k")
    b = Input("k", "n", dtype="float64")
    c = Output("m", "n", dtype="float32")

    def flop(self, case):
        return 2 * case.m * case.n * case.k


def kernel(name="one", **changes):
    return Kernel(name, "one.cu", **{"block": 32, "grid": 1, **changes})


def suite(**changes):
    return Suite(**{"name": "matrix", "problem": Matrix(), "kernels": [kernel()], **changes})


@pytest.mark.parametrize(
    ("dividend", "divisor", "expected"),
    [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (2**62 + 1, 2, 2**61 + 1)],
)
def test_ceil_div(dividend, divisor, expected):
    assert ceil_div(dividend, divisor) == expected


@pytest.mark.parametrize("size", [0, -1, 1.0, "8", True, None, 2**31, np.int64(8)], ids=repr)
@pytest.mark.parametrize("argument", ["default", "quick"])
def test_an_axis_takes_integers_that_a_kernel_can_be_passed(argument, size):
    with pytest.raises(SuiteError, match=r"^Axis size .* is not an integer from 1 to 2147483647\.$"):
        Axis(**{"default": (1,), argument: (size,)})


@pytest.mark.parametrize("sizes", [1024, "1024"], ids=repr)
@pytest.mark.parametrize("argument", ["default", "quick"])
def test_an_axis_takes_its_sizes_as_a_tuple(argument, sizes):
    with pytest.raises(SuiteError) as raised:
        Axis(**{"default": (1,), argument: sizes})
    assert raised.value.message == f"Axis {argument} is {sizes!r}; expected sizes, such as (1024, 2048)."


def test_an_axis_has_sizes():
    with pytest.raises(SuiteError, match="at least one"):
        Axis(default=())


def test_the_quick_size_is_the_first_unless_given():
    assert Axis(default=(8, 16)).quick == (8,)
    assert Axis(default=(8, 16), quick=(4,)) == Axis((8, 16), (4,))
    assert Axis((2**31 - 1,)).default == (2**31 - 1,)


def test_axes_of_one_object_move_together_and_others_make_a_product():
    assert list(Matrix().points()) == [{"m": m, "n": m, "k": k} for m in (8, 16) for k in (3, 5, 7)]


def test_quick_points():
    assert list(Matrix().points(quick=True)) == [{"m": 4, "n": 4, "k": 3}]


def test_equal_axes_are_not_one_axis():
    class Product(Problem):
        rows = Axis((1, 2))
        cols = Axis((1, 2))
        y = Output("rows", "cols")

    assert len(list(Product().points())) == 4


def test_points_name_axes_in_the_order_of_declaration():
    class Woven(Problem):
        a = c = Axis((1, 2))
        b = Axis((9,))
        y = Output("a")

    # Order is the order of arguments, whichever axes move together.
    assert [list(point) for point in Woven().points()] == [list(Woven.axes)] * 2


def test_a_problem_inherits_axes_and_arrays():
    class Batched(Matrix):
        batch = Axis((2,))
        d = Output("batch", "m")

    assert list(Batched.axes) == ["m", "n", "k", "batch"]
    assert list(Batched().inputs) == ["a", "b"]
    assert list(Batched().outputs) == ["c", "d"]
    assert "batch" not in Matrix.axes


def test_an_array_has_axes_of_its_problem():
    with pytest.raises(SuiteError, match=r"Array 'y' of Wrong has shape \('n', 'q'\), but 'q' is no axis"):

        class Wrong(Problem):
            n = Axis((1,))
            y = Output("n", "q")


def test_the_independent_axis_is_an_axis():
    with pytest.raises(SuiteError, match=r"Wrong\.independent is 'q', which is no axis of it"):

        class Wrong(Problem):
            n = Axis((1,))
            y = Output("n")
            independent = "q"


def test_shapes_and_types_of_arrays():
    case = suite().case(kernel(dtype="float16"), {"m": 2, "n": 3, "k": 5})
    described = {name: (a.shape_at(case), a.dtype_at(case)) for name, a in Matrix.arrays.items()}
    assert described == {"a": ((2, 5), "float16"), "b": ((5, 3), "float64"), "c": ((2, 3), "float32")}
    assert Matrix().moved_bytes(case) == 2 * 5 * 2 + 5 * 3 * 8 + 2 * 3 * 4


class Counted(Problem):
    n = Axis((8,))
    y = Output("n")
    counts: tuple[object, object] = (None, 0)

    def flop(self, case):
        return self.counts[0]

    def moved_bytes(self, case):
        return self.counts[1]


@pytest.mark.parametrize(
    ("flop", "moved", "expected"),
    [
        (5 * 12 * math.log2(12), np.prod([3, 4]), (215, 12)),
        (None, np.float32(2.5), (None, 2)),
        (True, 0, (1, 0)),
    ],
)
def test_operations_and_bytes_are_whole_numbers(flop, moved, expected):
    problem, case = Counted(), Case("s", "k", {"n": 8})
    problem.counts = flop, moved
    found = problem.flop(case), problem.moved_bytes(case)
    assert (found, [*map(type, found)]) == (expected, [*map(type, expected)])


@pytest.mark.parametrize(
    "count", ["many", float("nan"), float("inf"), 10**30, [1]], ids=lambda c: repr(c)[:9]
)
def test_what_is_no_count_is_a_sentence(count):
    problem, case = Counted(), Case("s", "k", {"n": 8})
    problem.counts = count, None
    for name, value in (("flop", count), ("moved_bytes", None)):
        with pytest.raises(SuiteError) as raised:
            getattr(problem, name)(case)
        assert raised.value.message.startswith(f"{name}() of Counted is {value!r} at 8; expected a number")


def test_a_count_may_be_any_function():
    class Static(Problem):
        n = Axis((8,))
        y = Output("n")
        flop = staticmethod(lambda case: case.n / 2)

    class Mixin:
        def flop(self, case):
            return 2.5 * super().flop(case)  # type: ignore[misc]

    class Further(Mixin, Static):
        pass

    case = Case("s", "k", {"n": 6})
    assert (Static().flop(case), Further().flop(case)) == (3, 7)


def test_moved_bytes_do_not_overflow():
    most = 2**31 - 1
    case = suite().case(kernel(), {"m": most, "n": most, "k": most})
    assert Matrix().moved_bytes(case) == most**2 * (4 + 8 + 4)


def test_data_is_random_repeatable_and_of_its_type():
    case = suite().case(kernel(dtype="float16"), {"m": 64, "n": 3, "k": 65})
    first, again, other = (Matrix().data(case, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert {name: (array.shape, array.dtype.name) for name, array in first.items()} == {
        "a": ((64, 65), "float16"),
        "b": ((65, 3), "float64"),
    }
    assert np.array_equal(first["a"], again["a"])
    assert not np.array_equal(first["a"], other["a"])
    assert abs(float(first["a"].astype("float64").std()) - 1) < 0.1


def test_a_problem_without_reference_says_why_it_needs_one():
    with pytest.raises(NotImplementedError, match=r"Matrix has no reference\(\): write one, or say"):
        Matrix().reference(suite().case(kernel(), {"m": 1, "n": 1, "k": 1}))


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("def reference(self, case, a, c): ...", "missing a required argument: 'c'"),
        ("def reference(self, a, b): ...", "multiple values for argument 'a'"),
        ("def tolerance(self, case, a): ...", "got an unexpected keyword argument 'b'"),
        ("def tolerance(self): ...", "too many positional arguments"),
    ],
)
def test_a_method_that_cannot_be_called_with_the_inputs_is_refused(method, said):
    found: dict[str, Any] = {}
    exec(method, found)
    name = "reference" if "reference" in found else "tolerance"
    problem = type("Odd", (Matrix,), {name: found[name]})()
    with pytest.raises(SuiteError) as raised:
        suite(problem=problem)
    assert raised.value.message.startswith(f"{name}(")
    assert said in raised.value.message
    assert raised.value.message.endswith(f"Write: def {name}(self, case, a, b).")


@pytest.mark.parametrize("method", ["def tolerance(self, *_, **__): ...", "def tolerance(s, c, b, a=1): ..."])
def test_a_method_may_call_its_parameters_as_it_likes(method):
    found: dict[str, Any] = {}
    exec(method, found)
    assert suite(problem=type("Free", (Matrix,), {"tolerance": found["tolerance"]})())


def test_a_decorator_may_give_a_method_more_than_the_inputs():
    def twice(method):
        @functools.wraps(method)
        def wrapper(self, case, **inputs):
            return method(self, case, 2, **inputs)

        return wrapper

    class Decorated(Matrix):
        @twice
        def reference(self, case, factor, a, b):
            return factor * (a @ b)

    assert suite(problem=Decorated())


def test_what_a_problem_leaves_out():
    class Bare(Problem):
        n = Axis((1,))
        y = Output("n")

    case = Case("s", "k", {"n": 1})
    assert (Bare().tolerance(case), Bare().integer_bound(case), Bare().flop(case)) == (0.0, None, None)


@pytest.mark.parametrize("name", ["", "9to5", "a b", "a-b", "a.b", "naïve", "a\n"], ids=repr)
def test_names_are_identifiers(name):
    with pytest.raises(SuiteError, match="is not an identifier"):
        kernel(name)
    with pytest.raises(SuiteError, match="is not an identifier"):
        suite(name=name)


@pytest.mark.parametrize("requires", ["", "70", "sm_7", "sm70", "SM_70", "sm_70a", "sm_70\n"], ids=repr)
def test_requires_is_a_capability(requires):
    with pytest.raises(SuiteError, match="expected the form 'sm_70'"):
        kernel(requires=requires)


@pytest.mark.parametrize(
    ("requires", "capability"), [(None, None), ("sm_70", (7, 0)), ("sm_89", (8, 9)), ("sm_120", (12, 0))]
)
def test_capability(requires, capability):
    assert kernel(requires=requires).capability == capability


def test_the_function_is_named_for_the_kernel_unless_it_is_named():
    assert kernel("fast").function == "fast"
    assert kernel("fast", entry="slow").function == "slow"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"headline": "TFLOPS"}, "expected 'GFLOP/s' or 'GB/s'", id="headline"),
        pytest.param({"kernels": []}, "Suite 'matrix' has no kernels", id="no kernels"),
        pytest.param(
            {"kernels": [kernel("b"), kernel("a"), kernel("a"), kernel("b")]},
            "has two kernels named 'a'",
            id="twice",
        ),
        pytest.param({"problem": Problem()}, "declares no Output", id="no output"),
        pytest.param({"problem": Matrix}, r"expected an instance, such as Matmul\(\)", id="a class"),
    ],
)
def test_a_suite_that_makes_no_sense(changes, sentence):
    with pytest.raises(SuiteError, match=sentence) as raised:
        suite(**changes)
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_case_reads_like_its_sizes_and_macros():
    made = suite().case(kernel(macros={"BM": 64, "BK": lambda c: c.k * 2}), {"m": 1, "n": 2, "k": 3})
    assert (made.m, made.n, made.k, made.BM, made.BK) == (1, 2, 3, 64, 6)
    with pytest.raises(AttributeError, match="case has no axis, macro or scalar named 'BN'"):
        _ = made.BN


@pytest.mark.parametrize(
    ("macro", "sentence"),
    [
        pytest.param(
            lambda c: c.k // 0,
            "Kernel 'one': macro BM at 1x2x3 raised ZeroDivisionError: ",
            id="a division by zero",
        ),
        pytest.param(
            lambda c: c.nope,
            "Kernel 'one': macro BM at 1x2x3 raised AttributeError: case has no axis, macro or scalar named "
            "'nope'",
            id="an axis that is not there",
        ),
        pytest.param(
            lambda c: c.k / 2,
            "Kernel 'one' has macro BM = 1.5; expected an integer or a word.",
            id="a computed fraction",
        ),
        pytest.param(1.5, "Kernel 'one' has macro BM = 1.5; expected an integer or a word.", id="a fraction"),
        pytest.param(
            "x\ny", r"Kernel 'one' has macro BM = 'x\ny'; expected an integer or a word.", id="a text"
        ),
    ],
)
def test_a_macro_that_makes_no_sense(macro, sentence):
    with pytest.raises(SuiteError) as raised:
        suite().case(kernel(macros={"BM": macro}), {"m": 1, "n": 2, "k": 3})
    assert raised.value.message.startswith(sentence)


def test_a_case_can_be_copied_and_sent():
    made = suite().case(kernel(macros={"BM": 64}), {"m": 1, "n": 2, "k": 3})
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


@pytest.mark.parametrize(
    ("sizes", "identity", "label"),
    [
        ({"m": 64, "n": 64, "k": 64}, "matrix.one[m=64,n=64,k=64]", "64"),
        ({"m": 500, "n": 300, "k": 700}, "matrix.one[m=500,n=300,k=700]", "500x300x700"),
        ({"n": 7}, "matrix.one[n=7]", "7"),
    ],
)
def test_a_case_has_a_stable_id_and_a_short_label(sizes, identity, label):
    made = Case("matrix", "one", sizes)
    assert (made.id, made.size_label) == (identity, label)


def test_kernels_by_name_keep_the_ladders_order():
    made = suite(kernels=[kernel("b"), kernel("a")])
    assert list(made.by_name) == ["b", "a"]
    assert made.by_name["a"].name == "a"
