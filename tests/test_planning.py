"""Which cases, at which sizes, with which launch, or why not."""

from __future__ import annotations

import dataclasses
from unittest.mock import Mock

import pytest

from harness import Axis, Case, HostFunction, Kernel, Output, Problem, Step, Suite
from harness.device.backends import null
from harness.errors import LaunchError, NotToldError, NotYetKnownError, SuiteError, UsageError
from harness.records.types import Launch
from harness.suite.device_facts import DeviceFacts, facts_of
from harness.suite.kernel import on_device
from harness.suite.planning import at_least_one, check_patterns, launch_of, plan, refusal


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


@pytest.mark.parametrize(
    ("patterns", "sizes", "cases"),
    [
        pytest.param(["boxes.naive@5"], (), ["naive[m=5,n=5,k=5]"], id="a size that is not the suite's"),
        pytest.param(["boxes.naive@1x2x3"], (), ["naive[m=1,n=2,k=3]"], id="in short"),
        pytest.param(["boxes.naive[k=3,m=1,n=2]"], (), ["naive[m=1,n=2,k=3]"], id="in full, in any order"),
        pytest.param(["track_time_ms('naive', '1x2x3')"], (), ["naive[m=1,n=2,k=3]"], id="asv's"),
        pytest.param(
            ["suites.Boxes.track_x('naive', 5)"], (), ["naive[m=5,n=5,k=5]"], id="asv's, of a class"
        ),
        pytest.param(["suites.Lines.track_x('naive', 5)"], (), [], id="asv's, of another class"),
        pytest.param(["tests/test_x.py::test_k[boxes.naive@5]"], (), ["naive[m=5,n=5,k=5]"], id="pytest's"),
        pytest.param(["*tiling@2"], (), ["tiling[m=2,n=2,k=2]"], id="a glob of kernels"),
        pytest.param(["naive@8x*"], (), ["naive[m=8,n=8,k=3]"], id="a glob of sizes"),
        pytest.param(["naive[m=16,*]"], (), ["naive[m=16,n=16,k=3]"], id="a glob of named sizes"),
        pytest.param(["naive@4x*"], (), ["naive[m=4,n=4,k=3]"], id="a glob that only small sizes fit"),
        pytest.param(["naive@2,2", "naive@5"], (), ["naive[m=5,n=5,k=5]"], id="one that does not fit"),
        pytest.param(
            ["tiling", "naive@5", "boxes.naive@5x5x5"],
            ["1,2,3"],
            ["naive[m=5,n=5,k=5]", "tiling[m=1,n=2,k=3]"],
            id="sizes are for those that name none",
        ),
    ],
)
def test_a_case_names_its_size(patterns, sizes, cases):
    assert names(plan(BOXES, patterns, sizes)) == [f"boxes.{case}" for case in cases]


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


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("boxes.niave@8", "No kernel matches 'boxes.niave@8'. Did you mean boxes.naive or lines.naive"),
        ("boxes.naive@8x8", "No case matches 'boxes.naive@8x8'. Size 8x8 has 2 numbers; expected one, or 3"),
        ("boxes.naive[m=8]", "No case matches 'boxes.naive[m=8]'. Size m=8 is of m; expected one, or 3"),
        ("boxes.naive@eight", "No case matches 'boxes.naive@eight'. Size eight: 'eight' is not an integer."),
        ("boxes.naive@7*", "No case matches 'boxes.naive@7*'. There are boxes.naive@8x8x3, boxes.naive@16x"),
    ],
)
def test_a_case_that_is_none_is_an_error_that_says_why(pattern, sentence):
    with pytest.raises(UsageError) as raised:
        check_patterns([pattern], [BOXES, LINES])
    assert raised.value.message.startswith(sentence)


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


CARD = DeviceFacts("Card", "cuda", {"sm_count": 28, "capability": 121, "threads_per_sm": 1536})


def test_a_step_has_a_launch_of_its_own():
    step = Step("add", lambda c: (c.n, 2), grid=3, dynamic_shared_bytes=lambda c: 8 * c.n, programmatic=True)
    made = kernel(block=64, grid=7, dynamic_shared_bytes=16, steps=[step])
    launch = launch_of(made, LINES.case(made, {"n": 5}))
    assert (launch.block, launch.grid, launch.dynamic_shared_bytes) == ((64, 1, 1), (7, 1, 1), 16)
    of_step = Launch(grid=(3, 1, 1), block=(5, 2, 1), dynamic_shared_bytes=40, programmatic=True)
    assert (launch.steps, of_step.attributes) == ((of_step,), "programmatic")


def test_launch_attributes_are_of_the_case():
    made = kernel(cooperative=True, cluster=lambda c: (c.n // 4, 2))
    assert made.sources.keys() == {"cuda"}
    launch = launch_of(made, Case("s", "k", {"n": 8}))
    assert (launch.cooperative, launch.cluster) == (True, (2, 2, 1))
    assert launch.attributes == "cooperative, cluster 2x2x1"
    asking = dataclasses.replace(made, grid=lambda c: 4 * c.resident_blocks)
    resident = Mock(return_value=2)
    assert launch_of(asking, Case("s", "k", {"n": 8}, device_facts=CARD), resident).grid == (8, 1, 1)
    assert resident.call_args.args[0].attributes == ""  # one block is no whole cluster
    assert launch_of(kernel(), Case("s", "k", {"n": 8})).attributes == ""
    with pytest.raises(SuiteError, match=r"has cluster 0\.5; expected one to three integers"):
        launch_of(kernel(cluster=0.5), Case("s", "k", {"n": 8}))
    for changes in (
        {"dispatch": (1,)},
        {"source": HostFunction(lambda *_: print)},
        {"source": {"cuda": "one.cu", "opencl": "one.cl"}},
    ):
        with pytest.raises(SuiteError, match="has cooperative or cluster; expected a source that cuda"):
            dataclasses.replace(made, **changes)


def test_a_case_by_graph_follows_the_eager_one():
    def ids(*patterns, **asked):
        return [each.partition(".")[2] for each in names(plan(LINES, patterns, **asked))]

    eager = ids("naive")
    assert len(eager) > 1
    marked = [case.replace("]", ",graph=1]") for case in eager]
    both = [each for pair in zip(eager, marked, strict=True) for each in pair]
    assert ids("naive", graph=True) == both
    assert ids("naive[*]", graph=True) == both
    assert ids("naive[*graph=1]", graph=True) == ids("naive[*graph=1]") == marked
    assert ids("naive@5", graph=True) == ["naive[n=5]", "naive[n=5,graph=1]"]
    assert ids("naive@5,graph=1") == ids("naive[n=5,graph=1]", graph=True) == ["naive[n=5,graph=1]"]
    (planned,) = plan(LINES, ["naive@5,graph=1"])
    assert launch_of(planned.kernel, planned.case).attributes == "graph"
    always = dataclasses.replace(LINES, kernels=[dataclasses.replace(LINES.kernels[0], graph=True)])
    assert [each.case.by_graph for each in plan(always, graph=True)] == [True] * len(eager)


def test_an_axis_may_have_the_name_of_the_mark():
    class Nodes(Problem):
        n, graph = Axis((8,)), Axis((1, 2))
        y = Output("n", "graph")

    suite = Suite("nodes", Nodes(), [kernel()])
    cases = [planned.case for planned in plan(suite)]
    assert [case.by_graph for case in cases] == [False] * 2
    assert [plan(suite, [case.id])[0].case for case in cases] == cases
    with pytest.raises(UsageError, match=r"nodes has an axis named graph.* write graph=True in its kernels"):
        plan(suite, graph=True)
    with pytest.raises(SuiteError, match=r"has graph=True; expected a source for cuda"):
        Kernel("one", {"opencl": "one.cl"}, block=32, grid=1, graph=True)


def test_a_grid_of_as_many_blocks_as_stay_resident():
    """Counted for the block and the shared memory that the kernel asks for, which may know the device too."""
    made = kernel(
        macros={"THREADS": lambda c: c.device.threads_per_sm // 6},
        block=lambda c: c.THREADS,
        dynamic_shared_bytes=lambda c: c.device.sm_count * 4,
        grid=lambda c: c.device.sm_count * c.resident_blocks,
    )
    case = LINES.case(made, {"n": 5}, device=CARD)
    asked = []

    def resident(launch):
        asked.append(launch)
        return 6

    launch = launch_of(made, case, resident)
    assert [(each.block, each.dynamic_shared_bytes) for each in asked] == [((256, 1, 1), 112)]
    assert launch == dataclasses.replace(asked[0], grid=(168, 1, 1))
    assert (case.id, case.device.capability) == ("lines.one[n=5]", (12, 1))
    assert launch_of(made, case, at_least_one).grid == (28, 1, 1)


def test_a_grid_that_does_not_ask_is_not_built_for():
    made = kernel(grid=lambda c: c.device.sm_count)
    assert launch_of(made, LINES.case(made, {"n": 5}, device=CARD)).grid == (28, 1, 1)


def test_a_kernel_of_which_not_one_block_fits():
    made = kernel(grid=lambda c: c.resident_blocks)
    with pytest.raises(LaunchError, match=r"Not one block of one fits on a multiprocessor of Card at 5"):
        launch_of(made, LINES.case(made, {"n": 5}, device=CARD), lambda _: 0)


RESIDENT = r"asks for case\.resident_blocks, which is known once the kernel is built: only its grid"
UNTOLD = r"asks for case\.device\.warp_size, which cuda does not tell of Card: .*getattr\(case\.device, "


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"block": lambda c: c.resident_blocks}, NotYetKnownError, rf"'one': block at 5 {RESIDENT}"),
        ({"dynamic_shared_bytes": lambda c: c.resident_blocks}, NotYetKnownError, RESIDENT),
        ({"macros": {"A": lambda c: c.resident_blocks}}, NotYetKnownError, rf"macro A at 5 {RESIDENT}"),
        ({"grid": lambda c: c.device.warp_size}, NotToldError, rf"'one': grid at 5 {UNTOLD}"),
        ({"macros": {"A": lambda c: c.device.warp_size}}, NotToldError, rf"macro A at 5 {UNTOLD}"),
        (
            {"grid": lambda c: c.resident_blocks},
            NotToldError,
            r"grid at 5 asks for case\.resident_blocks, w",
        ),
        ({"grid": lambda c: c.device.sms}, SuiteError, r"grid at 5 raised AttributeError: .*'sms'"),
    ],
)
def test_what_is_not_known_of_a_device_says_who_asked(changes, error, words):
    made = kernel(**changes)
    with pytest.raises(error, match=words) as raised:
        launch_of(made, LINES.case(made, {"n": 5}, device=CARD), lambda _: None)
    assert isinstance(raised.value, SuiteError)


def test_what_a_device_does_not_tell_may_have_a_default():
    made = kernel(grid=lambda c: getattr(c, "resident_blocks", 4) * getattr(c.device, "warp_size", 16))
    case = LINES.case(made, {"n": 5}, device=CARD)
    assert launch_of(made, case, lambda _: None).grid == (64, 1, 1)
    assert launch_of(made, case, lambda _: 2).grid == (32, 1, 1)
    with pytest.raises(NotYetKnownError):  # of a device a default says nothing before it is asked
        launch_of(made, case)


def test_planning_needs_no_device():
    """Macros that ask for it wait until it is known."""
    made = kernel(macros={"A": 1, "B": lambda c: c.device.sm_count, "C": lambda c: c.n}, grid=lambda c: c.B)
    [planned] = plan(Suite("lines", Line(), [made]), sizes=["5"])
    assert planned.case.macros == {"A": 1, "C": 5}
    with pytest.raises(SuiteError, match="no axis, macro or scalar named 'B'"):
        launch_of(made, planned.case)
    there = on_device(made, planned.case, CARD)
    assert list(there.macros.items()) == [("A", 1), ("B", 28), ("C", 5)]
    assert launch_of(made, there).grid == (28, 1, 1)
    assert there.id == planned.case.id


def test_an_axis_of_an_old_suite_keeps_its_name():
    case = Case("s", "k", {"device": 3}, macros={"resident_blocks": 7}, device_facts=CARD)
    assert [getattr(case, name) for name in ("device", "resident_blocks")] == [3, 7]


def test_every_backend_says_what_it_knows():
    told = facts_of(null.devices()[0])
    assert (told.sm_count, told.threads_per_block, told.backend) == (1, 1024, "null")
    with pytest.raises(AttributeError, match="capability"):
        _ = told.capability
    with pytest.raises(NotToldError, match=r"case\.device\.sm_count, which null does not tell"):
        _ = facts_of(dataclasses.replace(null.devices()[0], compute_units=None)).sm_count


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
