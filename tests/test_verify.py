"""Right passes, wrong fails: at the last element, at every size, whole or cut into bands."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from harness import Axis, Case, Input, Output, Problem
from harness.errors import SuiteError
from harness.measure import verify
from harness.suite.layout import numpy_dtype
from harness.suite.loader import load_folder
from harness.suite.problem import rounded
from tests.sampling import given, st

MATMUL = load_folder(Path(__file__).parents[1] / "kernels" / "matmul")


def case(**sizes):
    return Case("toy", "one", sizes)


REFERENCE = np.arange(12, dtype=np.float64).reshape(3, 4)


def output(changes=(), dtype="float32"):
    made = REFERENCE.astype(dtype)
    for where, value in changes:
        made[where] = value
    return made


@pytest.mark.parametrize(
    ("changes", "tolerance", "wrong", "first"),
    [
        pytest.param([], 0.0, 0, None, id="exact"),
        pytest.param([((2, 3), 11.5)], 0.5, 0, None, id="at the bound"),
        pytest.param([((2, 3), 11.75)], 0.5, 1, (2, 3), id="beyond the bound"),
        pytest.param([((2, 3), 10.25)], 0.5, 1, (2, 3), id="below the bound"),
        pytest.param([((2, 3), np.nan)], 1e30, 1, (2, 3), id="NaN"),
        pytest.param([((2, 3), np.inf)], 1e30, 1, (2, 3), id="infinity"),
        pytest.param([((2, 3), -np.inf)], 1e30, 1, (2, 3), id="minus infinity"),
        pytest.param([((1, 1), 0), ((0, 2), 0), ((2, 0), 0)], 0.5, 3, (0, 2), id="the first of three"),
        pytest.param([(slice(None), np.nan)], 1.0, 12, (0, 0), id="never written"),
        pytest.param([((0, 0), -0.0)], 0.0, 0, None, id="minus zero"),
    ],
)
def test_each_element_counts(changes, tolerance, wrong, first):
    found = verify.compare(output(changes), REFERENCE, tolerance)
    assert (found.elements, found.wrong, found.first_wrong) == (12, wrong, first)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_bound_of_infinity_still_refuses_what_is_no_number(value):
    assert verify.compare(output([((1, 2), value)]), REFERENCE, np.inf).wrong == 1


SHAPES = st.sampled_from(
    [(1,), (7,), (2**16,), (200_001,), (1, 140_000), (140_000, 1), (3, 70_001), (401, 601)]
)
PLANTED = st.sampled_from([np.nan, np.inf, -np.inf, 100.0, -3.0, 0.0])
DTYPES = st.sampled_from(["float32", "float64", "float16", "bfloat16", "int32", "uint8"])


@given(
    shape=SHAPES | st.tuples(st.integers(1, 400), st.integers(1, 500)),
    dtype=DTYPES,
    planted=st.lists(
        st.tuples(st.integers(0, 2**31), PLANTED, st.sampled_from(["found", "expected", "both"])), max_size=4
    ),
    tolerance=st.sampled_from([0.0, 0.5, np.inf, np.nan, "of each element", "of each column"]),
    by_columns=st.booleans(),
    alike=st.booleans(),
)
def test_parts_and_the_whole_get_the_same_verdict(shape, dtype, planted, tolerance, by_columns, alike):
    rng = np.random.default_rng(shape[0])
    reference = np.asarray(rng.integers(0, 9, shape), np.float64, order="F" if by_columns else "C")
    found = reference.astype(numpy_dtype(dtype))
    for at, value, planted_in in planted:
        where = np.unravel_index(at % reference.size, shape)
        if planted_in != "found":
            reference[where] = value
        if planted_in != "expected":
            found[where] = value if dtype not in ("int32", "uint8") else 77
    if isinstance(tolerance, str):
        tolerance = rng.random(shape if tolerance == "of each element" else shape[-1:])
    whole = verify.compare(found, reference, tolerance, (5,), alike=alike)
    parts = verify.compare_in_parts(found, reference, tolerance, (5,), alike=alike)
    assert len(parts) > 1 or found.size <= verify.PART_ELEMENTS
    in_own_type = rounded(reference, dtype)
    whole_rounded = verify.compare(found, in_own_type.astype(np.float64), tolerance, (5,), alike=alike)
    short = verify.compare_in_parts(found, in_own_type, tolerance, (5,), alike=alike)
    for together, cut in (([whole], parts), ([whole_rounded], short)):
        one, other = (verify.combine({"y": each}, "random", 1, beside_base=alike) for each in (together, cut))
        assert repr(one) == repr(other)  # NaN is itself here


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_no_number_is_near_infinity_however_wide_the_bound(value):
    reference = REFERENCE.copy()
    reference[1, 2] = value
    found = verify.compare(output(), reference, np.abs(1e-6 * reference).max())
    assert (found.wrong, found.first_wrong) == (1, (1, 2))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reference_that_is_no_number_fails(value):
    reference = REFERENCE.copy()
    reference[1, 2] = value
    found = verify.compare(reference.astype("float32"), reference, np.inf if np.isnan(value) else 1.0)
    assert (found.wrong, found.first_wrong, found.largest_error) == (1, (1, 2), None)


def test_a_bound_that_is_no_number_fails():
    assert verify.compare(output(), REFERENCE, np.nan).wrong == 12


@pytest.mark.parametrize("shape", [(3, 4), (4,), (3, 1), ()], ids=str)
def test_a_bound_is_broadcast(shape):
    bound = np.full(shape, 0.5)
    assert verify.compare(output([((2, 3), 11.5)]), REFERENCE, bound).wrong == 0
    assert verify.compare(output([((2, 3), 11.75)]), REFERENCE, bound).wrong == 1


def test_a_bound_per_element():
    bound = np.zeros((3, 4))
    bound[2, 3] = 1.0
    assert verify.compare(output([((2, 3), 12)]), REFERENCE, bound).wrong == 0
    assert verify.compare(output([((2, 2), 11)]), REFERENCE, bound).first_wrong == (2, 2)


def test_how_far_the_worst_element_is():
    found = verify.compare(
        output([((0, 1), 1.5), ((2, 3), 11.25)]), REFERENCE, np.arange(1, 13, dtype=np.float64).reshape(3, 4)
    )
    assert found.largest_error == 0.5
    assert found.largest_ratio == 0.25
    assert verify.compare(output([((0, 1), 1.5)]), REFERENCE, 0.0).largest_ratio is None
    assert verify.compare(output(), REFERENCE, 0.0).largest_ratio == 0.0


def test_what_was_found_and_expected():
    found = verify.compare(output([((1, 1), 7)]), REFERENCE, 0.5)
    assert (found.found, found.expected) == (7.0, 5.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_every_type_of_output(dtype):
    assert verify.compare(output(dtype=dtype), REFERENCE, 0.0).wrong == 0
    assert verify.compare(output([((2, 3), 12)], dtype), REFERENCE, 0.0).wrong == 1


def test_a_half_that_overflowed_is_wrong():
    reference = np.array([70000.0])
    with np.errstate(over="ignore"):
        assert verify.compare(reference.astype("float16"), reference, 1e9).wrong == 1


class Rows(Problem):
    """Two outputs, one of them turned over, each row by itself."""

    m = Axis((16,))
    n = Axis((4,))
    a = Input("m", "n")
    b = Input("n")
    c = Output("m", "n")
    t = Output("n", "m")
    independent: ClassVar[str | None] = "m"

    def reference(self, case, a, b):
        return {"c": a + b, "t": (a * b).T}

    def tolerance(self, case, a, b):
        return 1e-3


def computed(problem, sizes):
    rng = np.random.default_rng(1)
    inputs = problem.data(case(**sizes), rng)
    reference, _ = verify.reference_of(problem, case(**sizes), inputs)
    return inputs, {name: array.astype("float32") for name, array in reference.items()}


def judged(problem, sizes, inputs, outputs):
    """Compare outputs as a worker does."""
    found: dict[str, list[verify.OutputComparison]] = {name: [] for name in problem.outputs}
    for part, band in verify.bands(problem, case(**sizes)):
        reference, tolerance = verify.reference_of(problem, part, verify.cut(problem, inputs, band))
        for name, values in verify.cut(problem, outputs, band).items():
            place = verify.origin(problem, name, band)
            found[name].append(verify.compare(values, reference[name], tolerance, place))
    return verify.combine(found, "random", 1)


@pytest.mark.parametrize("most", [1, 4, 7, 8, 12, 20, 28, 29, 63, 64, 10**9])
@pytest.mark.parametrize("rows", [1, 7, 16])
def test_bands_cover_the_case_once(monkeypatch, most, rows):
    monkeypatch.setattr(verify, "BAND_ELEMENTS", most)
    parts = list(verify.bands(Rows(), case(m=rows, n=4)))
    covered = [row for _, band in parts for row in range(rows)[band]]
    assert covered == list(range(rows))
    assert [part.m for part, _ in parts] == [len(range(rows)[band]) for _, band in parts]
    assert all(part.n == 4 for part, _ in parts)
    assert all(part.m * 4 <= most or part.m == 1 for part, _ in parts)


def test_a_small_case_is_one_band_of_everything():
    whole = case(m=16, n=4)
    assert list(verify.bands(Rows(), whole)) == [(whole, slice(None))]


def test_without_an_independent_axis_there_is_one_band(monkeypatch):
    class Whole(Rows):
        independent = None

    monkeypatch.setattr(verify, "BAND_ELEMENTS", 1)
    assert len(list(verify.bands(Whole(), case(m=16, n=4)))) == 1


@pytest.mark.parametrize("most", [1, 4, 12, 64, 10**9])
def test_a_sample_is_a_band_anywhere(monkeypatch, most):
    monkeypatch.setattr(verify, "SAMPLE_ELEMENTS", most)
    sampled = (verify.sample(Rows(), case(m=16, n=4), np.random.default_rng(seed)) for seed in range(200))
    found = [each for each in sampled if each]
    assert len(found) == 200
    rows = min(16, max(1, most // 4))
    for part, band in found:
        assert (part.m, part.n) == (rows, 4)
        assert len(range(16)[band]) == rows
    assert {row for _, band in found for row in range(16)[band]} == set(range(16))


def test_what_cannot_be_cut_has_no_sample():
    class Whole(Rows):
        independent = None

    assert verify.sample(Whole(), case(m=16, n=4), np.random.default_rng(1)) is None


def test_a_band_keeps_the_cases_type_and_macros(monkeypatch):
    monkeypatch.setattr(verify, "BAND_ELEMENTS", 4)
    whole = Case("toy", "one", {"m": 16, "n": 4}, "float16", {"TILE": 8})
    for part, _ in verify.bands(Rows(), whole):
        assert (part.suite, part.kernel, part.dtype, part.TILE) == ("toy", "one", "float16", 8)


def test_a_cut_is_along_the_independent_axis_wherever_it_is():
    arrays = {"a": np.zeros((16, 4)), "b": np.zeros(4), "t": np.zeros((4, 16))}
    cut = verify.cut(Rows(), arrays, slice(2, 5))
    assert {name: array.shape for name, array in cut.items()} == {"a": (3, 4), "b": (4,), "t": (4, 3)}


DAMAGE = {
    "nothing": [],
    "the first element": [("c", (0, 0))],
    "the last element": [("c", (15, 3))],
    "the turned output": [("t", (3, 15)), ("t", (0, 0))],
    "both outputs": [("c", (7, 2)), ("t", (1, 8))],
}


@pytest.mark.parametrize("most", [4, 12, 20, 63])
@pytest.mark.parametrize("value", [99.0, np.nan, np.inf], ids=str)
@pytest.mark.parametrize("damage", DAMAGE)
def test_bands_judge_as_the_whole_does(monkeypatch, damage, value, most):
    sizes = {"m": 16, "n": 4}
    inputs, outputs = computed(Rows(), sizes)
    for name, where in DAMAGE[damage]:
        outputs[name][where] = value
    whole = judged(Rows(), sizes, inputs, outputs)
    monkeypatch.setattr(verify, "BAND_ELEMENTS", most)
    assert len(list(verify.bands(Rows(), case(**sizes)))) > 1
    cut = judged(Rows(), sizes, inputs, outputs)
    assert dataclasses.astuple(cut) == dataclasses.astuple(whole)
    assert cut.passed is (not DAMAGE[damage])
    assert cut.wrong == len(DAMAGE[damage])
    assert bool(cut.message) is bool(DAMAGE[damage])


def test_matmul_is_judged_in_bands_as_in_one(monkeypatch):
    problem, sizes = MATMUL.problem, {"m": 33, "n": 17, "k": 5}
    inputs, outputs = computed(problem, sizes)
    outputs["c"][32, 16] += 1
    whole = judged(problem, sizes, inputs, outputs)
    monkeypatch.setattr(verify, "BAND_ELEMENTS", 17 * 4)
    assert judged(problem, sizes, inputs, outputs).wrong == whole.wrong == 1


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (np.zeros((16, 4)), "gave nothing for output 't'; expected shape (4, 16)"),
        (
            {"c": np.zeros((16, 4)), "t": np.zeros((16, 4))},
            "gave (16, 4) for output 't'; expected shape (4, 16)",
        ),
        ({"t": np.zeros((4, 16))}, "gave nothing for output 'c'; expected shape (16, 4)"),
        ({}, "gave nothing for output 'c'; expected shape (16, 4)"),
    ],
    ids=["one of two", "a wrong shape", "the other of two", "none"],
)
def test_a_reference_of_the_wrong_shape_is_a_sentence(result, sentence):
    class Wrong(Rows):
        def reference(self, case, a, b):
            return result

    inputs, _ = computed(Rows(), {"m": 16, "n": 4})
    with pytest.raises(SuiteError) as raised:
        verify.reference_of(Wrong(), case(m=16, n=4), inputs)
    assert raised.value.message == f"reference() of toy {sentence}."


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_without_a_tolerance_one_rounding_is_right_and_a_second_is_not(dtype):
    class Sum(Problem):
        n = Axis(default=(4096,))
        x = Input("n", dtype=dtype)
        y = Output("n", dtype=dtype)

        def reference(self, case, x):
            return x + 0.1

    of_type = numpy_dtype(dtype)
    x = np.random.default_rng(1).standard_normal(4096).astype(of_type)
    expected, tolerance = verify.reference_of(Sum(), case(n=4096), {"x": x})
    once = (x.astype(np.float64) + 0.1).astype(of_type)
    twice = (x + np.asarray(0.1, of_type)).astype(of_type)
    assert not verify.compare(once, expected["y"], tolerance).wrong
    check = verify.combine({"y": [verify.compare(twice, expected["y"], tolerance)]}, "random", 1)
    assert check.wrong
    assert "The tolerance is 0: if the kernel rounds, write a tolerance()." in check.message


def test_a_reference_rounded_to_its_type_takes_its_memory():
    kept = rounded(np.array([0.1, np.nan, -np.inf, -0.0]), "float32")
    np.testing.assert_array_equal(kept, np.array([0.1, np.nan, -np.inf, -0.0], np.float32), strict=True)
    assert rounded(np.array([0.1, 1e39]), "float32")[1] == 1e39


def test_a_result_that_its_type_cannot_hold_is_wrong_and_named():
    class Doubled(Problem):
        n = Axis(default=(1,))
        x = Input("n", dtype="float16")
        y = Output("n", dtype="float16")

        def reference(self, case, x):
            return 2 * x

    expected, tolerance = verify.reference_of(Doubled(), case(n=1), {"x": np.full(1, 4e4, "float16")})
    check = verify.combine(
        {"y": [verify.compare(np.full(1, np.inf, "float16"), expected["y"], tolerance)]}, "random", 1
    )
    assert "is inf where 80000 was expected" in check.message


def test_reference_and_tolerance_may_work_in_place():
    class InPlace(Counting):
        def reference(self, case, x):
            x *= 2
            return x

        def tolerance(self, case, x):
            x *= 0.5
            return x

    found, tolerance = verify.reference_of(InPlace(), case(n=4), {"x": np.ones(4, "float32")})
    assert (found["y"] == 2).all()
    assert (tolerance == 0.5).all()


def test_the_reference_is_computed_in_float64():
    class Precise(Rows):
        def reference(self, case, a, b):
            assert a.dtype == b.dtype == np.float64
            return super().reference(case, a, b)

    inputs, _ = computed(Rows(), {"m": 16, "n": 4})
    assert inputs["a"].dtype == np.float32
    verify.reference_of(Precise(), case(m=16, n=4), inputs)


@pytest.mark.parametrize(
    ("tolerance", "found"),
    [
        (np.full((4, 1), 1e-6), "of shape (4, 1)"),
        (np.full(3, 1e-6), "of shape (3,)"),
        (None, "None"),
        ("small", "'small'"),
    ],
    ids=["one axis more", "too few", "nothing", "a word"],
)
def test_a_bound_that_is_none_of_the_outputs_is_a_sentence(tolerance, found):
    class Bounded(Counting):
        def tolerance(self, case, x):
            return tolerance

    with pytest.raises(SuiteError) as raised:
        verify.reference_of(Bounded(), case(n=4), {"x": np.ones(4, "float32")})
    expected = "expected a number, or an array that is broadcast to output 'y' of shape (4,)"
    assert raised.value.message == f"tolerance() of toy gave {found}; {expected}."


class Counting(Problem):
    n = Axis(default=(4,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize(("value", "name"), [(2**53 + 1, "x"), (2**52, "y")], ids=["in", "out"])
def test_integers_that_float64_does_not_hold_apart_are_refused(dtype, value, name):
    counted = dataclasses.replace(case(n=4), dtype=dtype)
    x = np.array([1, value, 2, 3], dtype)
    with pytest.raises(SuiteError, match=rf"^'{name}' of toy has integers of 2\*\*53 or more"):
        verify.reference_of(Counting(), counted, {"x": x})
    x[1] = 2**52 - 1
    found, tolerance = verify.reference_of(Counting(), counted, {"x": x})
    assert verify.compare(2 * x + np.array([0, 1, 0, 0], dtype), found["y"], tolerance).wrong == 1


@pytest.mark.parametrize("bound", [1, 3])
def test_integer_data_stay_in_their_bound_and_use_all_of_it(bound):
    data = verify.integer_data(Rows(), case(m=100, n=9), bound, np.random.default_rng(1))
    assert {name: (array.shape, array.dtype.name) for name, array in data.items()} == {
        "a": ((100, 9), "float32"),
        "b": ((9,), "float32"),
    }
    assert set(np.unique(data["a"])) == set(range(-bound, bound + 1))


def parts(*comparisons):
    return {"c": list(comparisons)}


GOOD = verify.OutputComparison(elements=10, wrong=0, largest_error=0.5, largest_ratio=0.25)
BAD = verify.OutputComparison(
    elements=10, wrong=2, largest_error=4.0, largest_ratio=8.0, first_wrong=(1, 2), found=5.0, expected=1.0
)
POISONED = verify.OutputComparison(
    elements=10,
    wrong=10,
    largest_error=None,
    largest_ratio=None,
    first_wrong=(0, 0),
    found=np.nan,
    expected=1.0,
)


def test_a_check_of_what_is_right():
    check = verify.combine({"c": [GOOD, GOOD], "d": [GOOD]}, "integers", 7)
    assert (check.passed, check.wrong, check.elements, check.message) == (True, 0, 30, "")
    assert (check.data, check.seed, check.largest_error, check.largest_ratio) == ("integers", 7, 0.5, 0.25)


def test_a_check_of_what_is_wrong_says_what_where():
    check = verify.combine({"c": [GOOD, BAD], "d": [GOOD]}, "random", 7)
    assert (check.passed, check.wrong, check.elements) == (False, 2, 30)
    assert (check.largest_error, check.largest_ratio) == (4.0, 8.0)
    assert check.message.startswith("2 of 20 elements of c are wrong on random")
    assert check.message.endswith("; the first, c[1, 2], is 5 where 1 was expected.")


def test_a_check_of_what_was_never_written_says_so():
    check = verify.combine(parts(GOOD, POISONED), "random", 7)
    assert (check.largest_error, check.largest_ratio, check.wrong) == (None, None, 10)
    assert (
        "is nan (NaN: never written, or computed from outside the inputs; an array that kernels add"
        in check.message
    )


def test_a_reference_that_is_no_number_is_told_to_be_the_reference():
    check = verify.combine(parts(GOOD, dataclasses.replace(POISONED, expected=np.nan)), "random", 7)
    assert "the reference has NaN there: write a data() of values that it can take" in check.message
    assert "never written" not in check.message


def test_a_write_outside_fails_a_right_result():
    check = verify.combine(parts(GOOD), "random", 7, "The kernel wrote outside its arrays: 4 bytes after c.")
    assert (check.passed, check.wrong) == (False, 0)
    assert check.message == "The kernel wrote outside its arrays: 4 bytes after c."


def test_every_wrong_output_and_the_damage_are_told():
    check = verify.combine({"c": [BAD], "d": [BAD]}, "random", 7, "Damage.")
    assert [check.message.count(words) for words in ("of c are", "of d are", "Damage.")] == [1, 1, 1]


def matmul(m, n, k, seed):
    made = Case("matmul", "one", {"m": m, "n": n, "k": k})
    inputs = MATMUL.problem.data(made, np.random.default_rng(seed))
    reference, tolerance = verify.reference_of(MATMUL.problem, made, inputs)
    return inputs, reference["c"], tolerance


def in_float32(a, b, order):
    """A[m, k] @ B[k, n], one term after the other, rounded to float32 after each product and each sum."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for index in order:
        total += a[:, index, None] * b[None, index, :]
    assert total.dtype == np.float32
    return total


KS = [1, 2, 3, 5, 16, 64, 100, 255, 1000, 4096]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("k", KS)
def test_a_right_matrix_product_passes_with_margin(k, seed):
    inputs, reference, tolerance = matmul(33, 65, k, seed)
    orders = {
        "upwards": range(k),
        "downwards": reversed(range(k)),
        "by tiles": [index for start in range(min(8, k)) for index in range(start, k, 8)],
    }
    for order in orders.values():
        found = verify.compare(in_float32(inputs["a"], inputs["b"], order), reference, tolerance)
        assert found.wrong == 0
        assert found.largest_ratio is not None
        assert found.largest_ratio < 0.5


@pytest.mark.parametrize("k", KS)
def test_a_missing_term_fails(k):
    """An element that is short of one term is caught nearly always; a tile or a row that is, always."""
    inputs, reference, tolerance = matmul(33, 65, k, 1)
    for missing in {0, k // 2, k - 1}:
        short = in_float32(inputs["a"], inputs["b"], [index for index in range(k) if index != missing])
        found = verify.compare(short, reference, tolerance)
        assert found.wrong > 0.98 * found.elements


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_shifted_index_fails(k, side):
    """A kernel that reads its neighbour's element of one input is wrong."""
    inputs, reference, tolerance = matmul(33, 65, k, 1)
    shifted = dict(inputs)
    shifted[side] = np.roll(inputs[side], 1, axis=0 if side == "a" else 1)
    found = verify.compare(in_float32(shifted["a"], shifted["b"], range(k)), reference, tolerance)
    assert found.wrong > 0.98 * found.elements


@pytest.mark.parametrize("k", KS)
def test_two_swapped_elements_fail(k):
    inputs, reference, tolerance = matmul(33, 65, k, 1)
    result = in_float32(inputs["a"], inputs["b"], range(k))
    result[[0, 32], [5, 64]] = result[[32, 0], [64, 5]]
    found = verify.compare(result, reference, tolerance)
    assert (found.wrong, found.first_wrong) == (2, (0, 5))


@pytest.mark.parametrize("k", KS)
def test_the_integers_are_exact_in_float32(k):
    made = Case("matmul", "one", {"m": 9, "n": 7, "k": k})
    bound = MATMUL.problem.integer_bound(made)
    assert bound == 3
    # The worst that inputs within the bound can do.
    most = bound * bound * k
    assert np.float32(most - 1) + np.float32(1) == most
    data = verify.integer_data(MATMUL.problem, made, bound, np.random.default_rng(1))
    reference, _ = verify.reference_of(MATMUL.problem, made, data)
    assert verify.compare(in_float32(data["a"], data["b"], range(k)), reference["c"], 0.0).wrong == 0
    short = in_float32(data["a"][:, 1:], data["b"][1:], range(k - 1))
    assert verify.compare(short, reference["c"], 0.0).wrong > 0


@pytest.mark.parametrize(
    ("k", "bound"),
    [
        (1, 3),
        (4096, 3),
        (1_864_135, 3),
        (1_864_136, 2),
        (4_194_303, 2),
        (4_194_304, 1),
        (2**24 - 1, 1),
        (2**24, None),
    ],
)
def test_integers_get_smaller_as_sums_get_longer(k, bound):
    assert MATMUL.problem.integer_bound(Case("matmul", "one", {"m": 1, "n": 1, "k": k})) == bound


# Long sums, and tensor cores, which cut sums off.


def on_tensor_cores(a, b, block, bits):
    """C[m, n] as a tensor core computes it: `block` products and the sum so far are aligned to the largest of
    them, cut off after so many bits, added, and cut off to float32 (Fasi, Higham, Mikaitis and Pranesh,
    Numerical behavior of NVIDIA tensor cores, 2021).
    """
    a, b = (np.asarray(each, np.float64) for each in (a, b))
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], block):
        terms = a[:, start : start + block, None] * b[None, start : start + block]
        terms = np.concatenate((terms, total[:, None]), axis=1)
        step = np.ldexp(1.0, np.frexp(np.abs(terms).max(axis=1))[1] - bits)[:, None]
        exact = (np.trunc(terms / step) * step).sum(axis=1)
        ulp = np.ldexp(1.0, np.frexp(exact)[1] - 24)
        total = np.trunc(exact / ulp) * ulp
    return total.astype(np.float32)


def long_product(k, dtype, integers=0):
    """Inputs of a 4 x 4 product in float32 or in what tensor cores read, with reference and bound."""
    made = Case("matmul", "one", {"m": 4, "n": 4, "k": k}, dtype)
    rng = np.random.default_rng(7)
    if integers:
        inputs = verify.integer_data(MATMUL.problem, made, integers, rng)
    else:
        inputs = MATMUL.problem.data(made, rng)
    reference, tolerance = verify.reference_of(MATMUL.problem, made, inputs)
    return inputs["a"], inputs["b"], reference["c"], 0.0 if integers else tolerance


@pytest.mark.parametrize(
    ("k", "block", "bits"),
    [
        (16_384, 4, 26),
        (100_003, 4, 24),
        (100_003, 4, 26),
        (100_003, 8, 26),
        (100_003, 16, 25),
        (300_000, 16, 26),
    ],
)
def test_what_tensor_cores_cut_off_a_long_sum_passes(k, block, bits):
    a, b, reference, tolerance = long_product(k, "float16")
    found = verify.compare(on_tensor_cores(a, b, block, bits), reference, tolerance)
    assert found.wrong == 0
    assert found.largest_ratio is not None
    assert found.largest_ratio < 0.8


def test_integers_are_exact_on_tensor_cores():
    a, b, reference, tolerance = long_product(100_003, "float16", integers=3)
    assert verify.compare(on_tensor_cores(a, b, 16, 24), reference, tolerance).wrong == 0
    short = on_tensor_cores(a[:, :-16], b[:-16], 16, 24)
    assert verify.compare(short, reference, tolerance).wrong > 0


@pytest.mark.parametrize("k", [100_003, 1_000_000])
def test_a_long_sum_in_single_precision_passes(k):
    a, b, reference, tolerance = long_product(k, "float32")
    terms = (a[:, :, None] * b[None]).astype(np.float32)
    chain = np.add.accumulate(terms, axis=1)[:, -1]
    assert chain.dtype == np.float32
    found = verify.compare(chain, reference, tolerance)
    assert found.wrong == 0
    assert found.largest_ratio is not None
    assert found.largest_ratio < 0.5


def test_a_long_sum_without_its_last_tile_fails():
    a, b, reference, tolerance = long_product(100_003, "float16")
    short = on_tensor_cores(a[:, :-32], b[:-32], 16, 26)
    assert verify.compare(short, reference, tolerance).wrong > 12


@pytest.mark.parametrize(("k", "step"), [(4096, 2.0**-10), (100_003, 2.0**-10), (1_000_000, 2.0**-7)])
def test_less_precise_inputs_fail_where_float32_was_promised(k, step):
    """TF32 in place of float32; of a long sum, bfloat16 at least."""
    a, b, reference, tolerance = long_product(k, "float32")

    def cut(array):
        unit = np.ldexp(step, np.frexp(array)[1])
        return np.trunc(array / unit) * unit

    wrong = verify.compare((cut(a) @ cut(b)).astype(np.float32), reference, tolerance).wrong
    assert wrong > 8


def test_sums_in_half_precision_fail_where_single_was_promised():
    a, b, reference, tolerance = long_product(4096, "float16")
    sums = np.add.accumulate(a[:, :, None] * b[None], axis=1)[:, -1]
    assert sums.dtype == np.float16
    assert verify.compare(sums, reference, tolerance).wrong > 12
