"""Names of cases: every spelling is read, and our two spellings are written."""

from __future__ import annotations

import contextlib

import pytest

from harness.errors import UsageError
from harness.suite.case_id import MAX_AXIS, CaseId, Selector, Size, parse_asv_name
from tests.sampling import given, st

AXES = ("m", "n", "k")
FULL = "matmul.naive[m=500,n=300,k=700]"


NAMES = st.from_regex(r"[A-Za-z_]\w{0,9}", fullmatch=True, alphabet=st.characters(codec="ascii"))
LENGTHS = st.integers(1, MAX_AXIS)
AXIS_NAMES = st.lists(NAMES, min_size=1, max_size=4, unique=True).map(tuple)
SIZES = AXIS_NAMES.flatmap(
    lambda axes: st.builds(
        Size,
        st.tuples(*[LENGTHS] * len(axes)) | LENGTHS.map(lambda length: (length,) * len(axes)),
        st.just(axes),
    )
)
"""Lengths by axis, in half of the examples alike."""
CASES = st.builds(CaseId, NAMES, NAMES, SIZES, st.sampled_from(["", "+2 %", "+0.5 %"]))


@given(CASES)
def test_what_is_written_is_read(case):
    assert CaseId.parse(str(case)) == case
    axes = case.size.axes
    read = CaseId.parse(case.short)
    assert (read.suite, read.kernel, read.planted) == (case.suite, case.kernel, case.planted)
    assert read.size
    assert read.size.at(axes) == case.size.at(axes)
    assert str(read) == read.short == case.short
    for size in (str(case.size), case.size.label, ",".join(map(str, case.size.lengths))):
        assert Size.parse(size).at(axes) == case.size.at(axes)


@given(st.text() | st.from_regex(r"[ab.*]{0,4}[\[@]?[ax0-9=,*]{0,6}\]?( \+2 %)?", fullmatch=True))
def test_any_text_names_cases_or_is_refused(text):
    with contextlib.suppress(UsageError):
        found = CaseId.parse(text)
        assert CaseId.parse(str(found)) == found
    with contextlib.suppress(UsageError):
        size = Size.parse(text)
        assert Size.parse(str(size)) == size
    Selector.parse(text).has_label("64")


@pytest.mark.parametrize(
    "text",
    [
        *("twin.same", "matmul.naive", "s.k[]", FULL, f"{FULL} +2 %", "a.b@64x1", "a.b@64 +2 %"),
        *("a.b@64,graph=1", "a.b[n=64,graph=1] +2 %"),
    ],
)
def test_what_is_read_is_written(text):
    assert str(CaseId.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        FULL,
        f"{FULL} +2 %",
        "matmul.naive@500x300x700",
        "matmul.naive@500,300,700",
        "matmul.naive@m=500,n=300,k=700",
        "suites.Matmul.track_gflops('naive', '500x300x700')",
        "Matmul.track_time_ms(naive, 500x300x700)",
        f"tests/test_kernels.py::test_kernel[{FULL}]",
        "test_kernel[matmul.naive@500x300x700]",
    ],
)
def test_one_case_has_many_spellings(text):
    case = CaseId.parse(text)
    assert (case.suite, case.kernel) == ("matmul", "naive")
    assert case.size
    assert case.size.at(AXES) == {"m": 500, "n": 300, "k": 700}
    selector = Selector.parse(text)
    assert selector.names("matmul", "naive")
    assert not selector.names("matmul", "tiled")
    assert selector.has_label("500x300x700")
    assert not selector.has_label("500")


@pytest.mark.parametrize("text", ["", "naive", "a.", ".b", "a.*@64", "track_gflops('naive', 64)", "a.b@*"])
def test_what_is_no_single_case_is_an_error(text):
    with pytest.raises(UsageError):
        CaseId.parse(text)


def test_a_size_that_is_the_same_on_every_axis_is_one_number():
    case = CaseId.of("matmul", "naive", {"m": 64, "n": 64, "k": 64})
    assert (str(case), case.short) == ("matmul.naive[m=64,n=64,k=64]", "matmul.naive@64")
    assert Size.parse("64x64x64").label == "64"


@pytest.mark.parametrize(
    ("text", "axes", "sizes"),
    [
        ("64", "mnk", (64, 64, 64)),
        ("1,2,3", "mnk", (1, 2, 3)),
        (" 1 , 2 ,3 ", "mnk", (1, 2, 3)),
        ("1x2x3", "mnk", (1, 2, 3)),
        ("k=3,m=1,n=2", "mnk", (1, 2, 3)),
        (" x=5, y=6", "xy", (5, 6)),
        ("+7", "n", (7,)),
        ("007", "n", (7,)),
        ("2147483647", "n", (2**31 - 1,)),
    ],
)
def test_sizes(text, axes, sizes):
    assert Size.parse(text).at(axes) == dict(zip(axes, sizes, strict=True))
    assert [*Size.parse(text).at(axes)] == [*axes]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0", "Size 0: 0 is out of range. Expected sizes from 1 to 2147483647."),
        ("-1", "Size -1: -1 is out of range. Expected sizes from 1 to 2147483647."),
        ("8,0,8", "Size 8,0,8: 0 is out of range. Expected sizes from 1 to 2147483647."),
        ("2147483648", "Size 2147483648: 2147483648 is out of range. Expected sizes from 1 to 2147483647."),
        ("9" * 5000, f"Size {'9' * 5000}: {'9' * 5000} is out of range."),
        *(
            (text, f"Size {text}: {wrong!r} is not an integer. Expected sizes from 1 to 2147483647, such as")
            for text, wrong in [
                *((text, text) for text in ("1.5", "abc", "1e3", "1_0", "", "x", "1x", "1xb", "٣", "6*")),
                ("1,,2", ""),
                ("1x2,3", "1x2"),
                ("m=,n=2,k=3", ""),
            ]
        ),
        ("m=1,n=2,m=3", "Size m=1,n=2,m=3: 'm=3' is not one axis and its size, such as m=500."),
        ("m=1,2,3", "Size m=1,2,3: '2' is not one axis and its size, such as m=500."),
        ("=1", "Size =1: '=1' is not one axis and its size, such as m=500."),
        ("1,2", "Size 1x2 has 2 numbers; expected one, or 3 for the axes m, n, k."),
        ("1x2x3x4", "Size 1x2x3x4 has 4 numbers; expected one, or 3 for the axes m, n, k."),
        ("m=1,z=2", "Size m=1,z=2 is of m, z; expected one, or 3 for the axes m, n, k."),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_sizes_that_make_no_sense(text, sentence):
    with pytest.raises(UsageError) as raised:
        Size.parse(text).at(AXES)
    assert raised.value.message.startswith(sentence)


@pytest.mark.parametrize("text", ["matmul.[nt]a*", "matmul.naive[ab]", "[m]atmul.naive"])
def test_brackets_without_axes_are_a_globs(text):
    assert Selector.parse(text) == Selector(text)


def test_what_another_projects_parameters_are_is_no_size_but_can_be_asked_for():
    assert Selector.parse("bench.run@big").has_label("big")
    assert not Selector.parse("bench.run@big").has_label("64")


@pytest.mark.parametrize(
    "name", ["track_gflops", "suites.Matmul.time_run('naive', 64)", "f('naive', 64)", ""]
)
def test_what_is_no_track_of_asvs(name):
    assert parse_asv_name(name) is None
