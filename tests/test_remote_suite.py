"""A suite that another process has loaded, asked for its functions and arrays: here within one process."""

from __future__ import annotations

import time
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from harness.errors import NotToldError
from harness.measure import protocol, worker
from harness.measure.remote_suite import remote_suite
from harness.run.pair_session import _Answering
from harness.suite.loader import load_folder
from harness.suite.suite_data import DefinitionCall, Functions, ReturnValue, describe
from harness.system.array_files import read_arrays, write_arrays
from harness.system.process import Failed, Query
from tests import toy
from tests.support import write_files

SUITE = """\
import numpy as np
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Mixed(Problem):
    n = Axis(default=(64,))
    x = Input("n", dtype="bfloat16")
    y = Output("n")

    def data(self, case, rng):
        return {"x": super().data(case, rng)["x"] + self.integer_bound(case)}

    def reference(self, case, x):
        if case.n == 1:
            raise SuiteErrorOf("one is too few")
        return 2 * x

    def tolerance(self, case, x):
        return 0.5 if case.n == 2 else abs(x)

    def integer_bound(self, case):
        return 3

    def flop(self, case):
        return case.n / 0 if case.n == 1 else 7 * case.n


class SuiteErrorOf(ValueError):
    pass


suite = Suite("mixed", Mixed(), headline="GB/s", kernels=[
    Kernel("one", "one.cu", block=32, grid=lambda c: c.device.sms),
])
"""


@pytest.fixture
def served(tmp_path):
    """The suite as a worker has it, the folder of its arrays, and what it asked for."""
    pytest.importorskip("ml_dtypes")
    folder = write_files(tmp_path / "mixed", {"suite.py": SUITE, "one.cu": ""})
    functions, asked = Functions(), []

    def ask(side, call):
        asked.append((side, call))
        try:
            return functions.answer(call)
        except Exception as error:  # noqa: BLE001 - as the suite's own process answers
            return Failed(reason=type(error).__name__, message=str(error))

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    data = describe(load_folder(folder), functions)
    suite = remote_suite("head", data, folder, SimpleNamespace(ask=ask), scratch)  # type: ignore[arg-type]
    return suite, scratch, asked


def case_at(suite, n):
    return suite.case(suite.by_name["one"], {"n": n})


def test_arrays_come_in_their_own_types_and_leave_no_file(served):
    suite, scratch, asked = served
    case = case_at(suite, 64)
    inputs = suite.problem.seeded(case, 1)
    assert inputs["x"].dtype == "bfloat16"
    assert inputs["x"].astype("f8").mean() > 2  # the suite's own data()
    references, tolerance = suite.problem.judged(case, inputs, reference=True)
    assert references["y"] == pytest.approx(2 * inputs["x"].astype("f8"))
    assert tolerance == pytest.approx(abs(inputs["x"].astype("f8")))
    assert [*scratch.iterdir()] == []
    assert {side for side, _ in asked} == {"head"}


def test_only_a_whole_array_of_a_file_is_linked_in_place_of_copied(tmp_path):
    write_arrays(tmp_path, {"whole": np.arange(6.0).reshape(2, 3)})
    whole = read_arrays(tmp_path)["whole"]
    views = {"same": whole[:], "part": whole[:1], "turned": whole.T, "back": whole[::-1]}
    views["bits"] = whole.view("i8")
    (folder := tmp_path / "others").mkdir()
    write_arrays(folder, views, link=True)
    found = read_arrays(folder)
    for name, view in views.items():
        np.testing.assert_array_equal(found[name], view, strict=True)
        assert (folder / f"{name}.npy").samefile(tmp_path / "whole.npy") == (name == "same")


def test_a_tolerance_that_is_one_number_stays_one_and_no_reference_is_made_unasked(served):
    suite, *_ = served
    case = case_at(suite, 2)
    inputs = suite.problem.seeded(case, 1)
    references, tolerance = suite.problem.judged(case, inputs, reference=False)
    assert (references, tolerance) == ({}, 0.5)
    assert isinstance(tolerance, float)


def test_what_a_function_raises_is_raised_under_its_own_name(served):
    suite, scratch, _ = served
    case = case_at(suite, 1)
    inputs = suite.problem.seeded(case, 1)
    with pytest.raises(Exception, match="one is too few") as raised:
        suite.problem.judged(case, inputs, reference=True)
    assert type(raised.value).__name__ == "SuiteErrorOf"
    with pytest.raises(Exception, match="division") as raised:
        suite.problem.flop(case)
    assert type(raised.value).__name__ == "ZeroDivisionError"
    assert suite.problem.flop(case_at(suite, 64)) == 448
    assert [*scratch.iterdir()] == []


# What a worker loads itself


def opened(tmp_path, base, head, told):
    folders = {
        side: write_files(tmp_path / side, {**toy.FILES, "kernels/toy/suite.py": text}) / "kernels" / "toy"
        for side, text in (("base", base), ("head", head))
    }
    data = {side: describe(load_folder(folders[side]), Functions()) for side in told}
    request = protocol.Open(
        device="null:0",
        suite=str(folders["head"]),
        base=str(folders["base"]),
        scratch=str(tmp_path),
        told=data,
    )
    return worker._suites(request, SimpleNamespace(ask=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("told", [("base",), ("head",), ("base", "head")])
def test_a_worker_runs_no_python_of_the_suites_that_it_is_told_of(tmp_path, told):
    base, head = toy.SUITE, toy.SUITE.replace("(64,)", "(32,)")
    suites = opened(tmp_path, base, head, told)
    is_told = {side: suite.problem.judged.__self__ is not suite.problem for side, suite in suites.items()}
    assert is_told == {side: side in told for side in ("base", "head")}
    assert {side: suite.problem.axes["n"].quick for side, suite in suites.items()} == {
        "base": (64,),
        "head": (32,),
    }
    assert suites["base"].root != suites["head"].root


def test_two_commits_of_a_suite_never_share_a_process(tmp_path):
    with pytest.raises(AssertionError, match="two commits of a suite must not share a process"):
        opened(tmp_path, toy.SUITE, toy.SUITE, ())


# What the harness answers for a suite


class Loaded:
    """Stands for the process of a suite; it notes how long it may take."""

    def __init__(self, error=None):
        self.error, self.timeouts_s = error, []

    def answer(self, call, timeout_s):
        self.timeouts_s.append(timeout_s)
        if self.error:
            raise self.error
        return ReturnValue(7)


DEFINITION = DefinitionCall()


def answered(loaded, request=DEFINITION, side="head", left_s=60.0):
    question = Query(side, msgspec.Raw(msgspec.json.encode(request)))
    return _Answering({"head": loaded})(question, time.monotonic() + left_s)


@pytest.mark.parametrize(("left_s", "least_s", "most_s"), [(60.0, 50.0, 60.0), (-5.0, 0.1, 0.1)])
def test_a_question_of_a_worker_is_answered_by_the_sides_suite_in_the_time_left(left_s, least_s, most_s):
    loaded = Loaded()
    assert answered(loaded, left_s=left_s) == ReturnValue(7)
    [timeout_s] = loaded.timeouts_s
    assert least_s <= timeout_s <= most_s


@pytest.mark.parametrize(
    ("loaded", "request_", "side", "failed"),
    [
        (Loaded(NotToldError("no sms", log="of it")), DEFINITION, "head", ("NotToldError", "no sms")),
        (Loaded(), DEFINITION, "base", ("SuiteError", "No suite has what a worker asked for: 'base'.")),
        (Loaded(), {"type": "Evil"}, "head", ("SuiteError", "No suite has what a worker asked for: Inv")),
    ],
    ids=["the suite's error", "no such side", "no such request"],
)
def test_a_question_that_cannot_be_answered_is_a_failure(loaded, request_, side, failed):
    found = answered(loaded, request_, side)
    assert isinstance(found, Failed)
    assert found.reason == failed[0]
    assert found.message.startswith(failed[1])
