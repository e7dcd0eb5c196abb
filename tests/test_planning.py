"""Which cases, at which sizes, with which launch, or why not."""

from __future__ import annotations

import dataclasses

import pytest

from harness import Axis, Case, Kernel, Output, Problem, Suite
from harness.device.backends import null
from harness.errors import SuiteError, UsageError
from harness.spec.planning import check_patterns, launch_of, parse_size, plan, refusal


class Box(Problem):
    m = n = Axis((8, 16), quick=(4,))
    k = Axis((3,))
    y = Output("m", "n")


class Line(Problem):
    n = Axis((8, 16), quick=(4,))
    y = Output("n")


def kernel(name="one", **changes):
    return Kernel(name, "one.cu", **{"block": 32, "grid": 1, **changes})


BOXES = Suite("boxes", Box(), [kernel("naive"), kernel("tiling"), kernel("tiling_2d")])
LINES = Suite("lines", Line(), [kernel("naive"), kernel("fast")])


@pytest.mark.parametrize(
    ("text", "problem", "sizes"),
    [
        ("64", Box(), {"m": 64, "n": 64, "k": 64}),
        ("1,2,3", Box(), {"m": 1, "n": 2, "k": 3}),
        (" 1 , 2 ,3 ", Box(), {"m": 1, "n": 2, "k": 3}),
        ("+7", Line(), {"n": 7}),
        ("007", Line(), {"n": 7}),
        ("2147483647", Line(), {"n": 2**31 - 1}),
    ],
)
def test_sizes(text, problem, sizes):
    assert parse_size(text, problem) == sizes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0", "--size 0: 0 is out of range. Expected sizes from 1 to 2147483647."),
        ("-1", "--size -1: -1 is out of range. Expected sizes from 1 to 2147483647."),
        ("8,0,8", "--size 8,0,8: 0 is out of range. Expected sizes from 1 to 2147483647."),
        ("2147483648", "--size 2147483648: 2147483648 is out of range. Expected sizes from 1 to 2147483647."),
        ("1.5", "--size 1.5: '1.5' is not an integer. Expected sizes from 1 to 2147483647, such as 1024."),
        ("abc", "--size abc: 'abc' is not an integer. Expected sizes from 1 to 2147483647, such as 1024."),
        ("1e3", "--size 1e3: '1e3' is not an integer. Expected sizes from 1 to 2147483647, such as 1024."),
        ("1_0", "--size 1_0: '1_0' is not an integer. Expected sizes from 1 to 2147483647, such as 1024."),
        ("", "--size : '' is not an integer. Expected sizes from 1 to 2147483647, such as 1024."),
        ("1,,2", "--size 1,,2: '' is not an integer. Expected sizes from 1 to 2147483647, such as 1024."),
        ("1,2", "--size 1,2 has 2 numbers; expected one, or 3 for the axes m, n, k."),
        ("1,2,3,4", "--size 1,2,3,4 has 4 numbers; expected one, or 3 for the axes m, n, k."),
        (
            "1x2x3",
            "--size 1x2x3: '1x2x3' is not an integer. Expected sizes from 1 to 2147483647, such as 1024.",
        ),
    ],
    ids=repr,
)
def test_sizes_that_make_no_sense(text, sentence):
    with pytest.raises(UsageError) as raised:
        parse_size(text, Box())
    assert raised.value.message == sentence


def test_a_size_of_more_digits_than_python_reads_is_out_of_range():
    with pytest.raises(UsageError, match=r"is out of range\. Expected sizes from 1 to 2147483647\."):
        parse_size("9" * 5000, Line())


def names(planned):
    return [each.case.id for each in planned]


@pytest.mark.parametrize(
    ("patterns", "kernels"),
    [
        pytest.param((), ["naive", "tiling", "tiling_2d"], id="all"),
        pytest.param(("boxes",), ["naive", "tiling", "tiling_2d"], id="a suite"),
        pytest.param(("tiling",), ["tiling"], id="a name alone"),
        pytest.param(("boxes.tiling",), ["tiling"], id="a full name"),
        pytest.param(("boxes.*tiling*",), ["tiling", "tiling_2d"], id="a glob"),
        pytest.param(("*.tiling_?d",), ["tiling_2d"], id="a question mark"),
        pytest.param(("*tiling_2d", "boxes.naive"), ["naive", "tiling_2d"], id="two, in ladder order"),
        pytest.param(("*tiling", "boxes.tiling"), ["tiling"], id="twice the same"),
        pytest.param(("BOXES.*",), [], id="case matters"),
        pytest.param(("lines.*",), [], id="another suite"),
    ],
)
def test_selection(patterns, kernels):
    assert names(plan(BOXES, patterns, ["1,2,3"])) == [f"boxes.{name}[m=1,n=2,k=3]" for name in kernels]


def test_a_plan_goes_kernel_by_kernel_over_the_suites_sizes():
    assert names(plan(LINES)) == [f"lines.{k}[n={n}]" for k in ("naive", "fast") for n in (8, 16)]
    assert names(plan(LINES, quick=True)) == ["lines.naive[n=4]", "lines.fast[n=4]"]


def test_sizes_asked_for_replace_the_suites():
    assert names(plan(LINES, ["fast"], ["5", "3"], quick=True)) == ["lines.fast[n=5]", "lines.fast[n=3]"]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        pytest.param("boxes.niave", "Did you mean boxes.naive", id="a full name"),
        pytest.param("tilling", "Did you mean tiling", id="a name alone"),
        pytest.param("fsat", "Did you mean fast", id="of another suite"),
        pytest.param("zzz", "'harness list' shows every kernel.", id="nothing near"),
        pytest.param("", "'harness list' shows every kernel.", id="empty"),
    ],
)
def test_a_misspelt_kernel_is_an_error_with_a_hint(pattern, hint):
    with pytest.raises(UsageError) as raised:
        check_patterns(["naive", pattern], [BOXES, LINES])
    assert raised.value.message.startswith(f"No kernel matches {pattern!r}. ")
    assert hint in raised.value.message


def test_a_pattern_may_select_in_one_suite_only():
    check_patterns(["tiling_2d", "lines", "*.fast"], [BOXES, LINES])


def told(value: object) -> str:
    """A test's id: the same in every process."""
    return "computed" if callable(value) else str(value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (32, (32, 1, 1)),
        ((32,), (32, 1, 1)),
        ((32, 8), (32, 8, 1)),
        ([32, 8], (32, 8, 1)),
        ((32, 8, 2), (32, 8, 2)),
        (lambda c: (c.n, c.TILE), (5, 7, 1)),
        (lambda c: c.n, (5, 1, 1)),
    ],
    ids=told,
)
def test_geometry(given, expected):
    made = kernel(block=given, grid=given, macros={"TILE": 7})
    launch = launch_of(made, LINES.case(made, {"n": 5}))
    assert (launch.block, launch.grid) == (expected, expected)


@pytest.mark.parametrize(("given", "expected"), [(0, 0), (128, 128), (lambda c: 4 * c.n, 20)], ids=told)
def test_dynamic_shared_memory(given, expected):
    assert (
        launch_of(kernel(dynamic_shared_bytes=given), Case("s", "k", {"n": 5})).dynamic_shared_bytes
        == expected
    )


@pytest.mark.parametrize("given", [-1, None, 1.5, "128"], ids=repr)
@pytest.mark.parametrize("how", ["given", "computed"])
def test_dynamic_shared_memory_that_makes_no_sense(how, given):
    made = kernel(dynamic_shared_bytes=given if how == "given" else lambda _: given)
    with pytest.raises(SuiteError) as raised:
        launch_of(made, Case("s", "k", {"n": 5}))
    assert raised.value.message == (
        f"Kernel 'one' has dynamic_shared_bytes {given!r}; expected an integer from 0."
    )


@pytest.mark.parametrize("given", [(), (1, 2, 3, 4), (1.5,), 1.5, None, "32", ("32", 1), (None,)], ids=repr)
@pytest.mark.parametrize("what", ["block", "grid"])
@pytest.mark.parametrize("how", ["given", "computed"])
def test_geometry_that_makes_no_sense(what, how, given):
    if how == "given" and given is None:
        with pytest.raises(SuiteError, match=r"Kernel 'one' needs a block and a grid"):
            kernel(**{what: given})
        return
    made = kernel(**{what: given if how == "given" else lambda _: given})
    with pytest.raises(SuiteError) as raised:
        launch_of(made, Case("s", "k", {"n": 5}))
    assert raised.value.message == (
        f"Kernel 'one' has {what} {given!r}; expected one to three integers, x first."
    )


def device(capability):
    return dataclasses.replace(null.devices()[0], spec="cuda:0", name="Card", compute_capability=capability)


@pytest.mark.parametrize(
    ("requires", "capability", "reason", "sentence"),
    [
        (None, None, None, None),
        (None, (7, 5), None, None),
        ("sm_80", (8, 0), None, None),
        ("sm_80", (8, 6), None, None),
        ("sm_80", (12, 0), None, None),
        ("sm_120", (9, 0), "needs-capability", "one needs sm_120; Card is sm_90."),
        ("sm_80", (7, 5), "needs-capability", "one needs sm_80; Card is sm_75."),
        ("sm_80", None, "needs-cuda", "one needs CUDA (sm_80); cuda:0 is Card."),
    ],
)
def test_refusal(requires, capability, reason, sentence):
    refused = refusal(kernel(requires=requires), device(capability))
    assert (refused and (refused.reason, refused.message)) == (reason and (reason, sentence))
