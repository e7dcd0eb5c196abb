"""Suites without a float64 reference: head's outputs held to base's, or to a function of the repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import MeasureError
from harness.measure import verify
from harness.suite.loader import load_folder
from harness.suite.problem import Case, Problem
from tests import sweeps
from tests.commits import MS
from tests.faults.test_problem import changed, source, tree, verdicts
from tests.support import Done, caller, commit, make_repository, write_files

REFERENCE = """\
    def reference(self, case, x):
        return 2 * x

    def tolerance(self, case, x):
        return 1e-6
"""
BY_BASE = changed((REFERENCE, '    reference = "base"\n'))
FASTER = source("first", MS // 2)
WRONG = source("first", MS // 2, "#define NULL_DEVICE_FAULT wrong")
HOST_SUITE = """\
from harness import Axis, HostFunction, InOut, Input, Kernel, Output, Problem, Suite
from ops import work

class Twice(Problem):
    n = Axis(default=(64,))
    x = Input("n")
    z = InOut("n")
    y = Output("n")
    reference = "base"

suite = Suite("toy", Twice(), headline="GB/s", kernels=[Kernel("work", {"cpu": HostFunction(work)})])
"""
HOST = """\
import numpy as np

KNOWN = {}

def work(case, stream):
    def call(x, z, y, n):
        z += x
        BODY
    return call
"""


HELD_TO_BASE = '    reference = "base"\n'
HOST_REFERENCE = HOST_SUITE.replace(
    HELD_TO_BASE,
    """\
    def reference(self, case, x, z):
        return {"z": x + z, "y": 2 * x}

    def tolerance(self, case, x, z):
        return 1e-5
""",
)
ON_CPU = ("--device", "cpu:0", "--budget", "0.001")


def on_host(body: str, suite: str = HOST_SUITE) -> dict[str, str]:
    return {
        "pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\nresults = 'results'\n",
        "kernels/toy/suite.py": suite,
        "kernels/toy/ops.py": HOST.replace("BODY", body),
    }


class Project:
    """A repository whose last two commits are compared."""

    def __init__(self, root: Path, call: Callable[..., Done]) -> None:
        self.root, self.call = make_repository(root), call

    def compare(
        self, base: Mapping[str, str | None], head: Mapping[str, str | None], *options: str
    ) -> dict[str, dict[str, Any]]:
        """The verdicts by kernel, with the exit status of each comparison under ``status``."""
        commit(self.root, base, 1)
        commit(self.root, head, 2)
        options = options or ("--device", "null")
        self.done = self.call("compare", "HEAD~1", "HEAD", "--json", *options, cwd=self.root)
        return verdicts(self.done)


@pytest.fixture
def project(capsys, monkeypatch, tmp_path):
    return Project(tmp_path / "project", caller(capsys, monkeypatch))


def test_head_is_measured_where_its_outputs_are_base_s(project):
    found = project.compare(tree(BY_BASE), tree(BY_BASE, first=FASTER))["first"]
    assert (project.done.status, found["status"]) == (0, "improvement")
    assert (found["outputs"]["held_to"], found["outputs"]["error"]) == ("base", 0.0)


@pytest.mark.parametrize("fault", ["wrong", "nan", "unwritten"])
def test_head_fails_where_its_outputs_are_others(project, fault):
    head = source("first", MS // 2, f"#define NULL_DEVICE_FAULT {fault}")
    found = project.compare(tree(BY_BASE), tree(BY_BASE, first=head))["first"]
    assert project.done.status == 1
    assert (found["status"], found["reason"], found["side"]) == ("failed", "differs-from-base", "head")
    assert "of 64 elements of y differ from base's on the same inputs; the first, y[" in found["message"]
    assert found["time"] is None


def test_a_head_that_writes_outside_its_arrays_fails_as_ever(project):
    head = source("first", MS // 2, "#define NULL_DEVICE_FAULT overrun")
    found = project.compare(tree(BY_BASE), tree(BY_BASE, first=head))["first"]
    assert (found["status"], found["side"]) == ("failed", "head")
    assert "wrote outside its arrays" in found["message"]


def test_a_base_that_writes_nothing_is_nobody_s_yardstick(project):
    unwritten = source("first", MS, "#define NULL_DEVICE_FAULT nan")
    base = {**tree(BY_BASE, first=unwritten), "kernels/toy/suite.py": BY_BASE.replace("(64,)", "(1,)")}
    found = project.compare(base, tree(BY_BASE.replace("(64,)", "(1,)"), first=FASTER))["first"]
    assert (found["status"], found["reason"], found["side"]) == ("failed", "wrong-result", "base")
    assert "Every element of y is NaN" in found["message"]


def test_a_tolerance_of_its_own_must_tell_right_from_wrong(project):
    suite = changed(
        (REFERENCE, '    reference = "base"\n\n    def tolerance(self, case, x):\n        return BOUND\n')
    )
    loose, narrow = (suite.replace("BOUND", bound) for bound in ("1e9", "0.5"))
    found = project.compare(tree(loose), tree(loose, first=FASTER))["first"]
    assert (found["status"], found["reason"]) == ("failed", "loose-bound")
    found = project.compare(tree(narrow), tree(narrow, first=FASTER))["first"]
    assert (found["status"], found["outputs"]["held_to"]) == ("improvement", "base")


def test_a_new_kernel_is_not_called_right(project):
    suite = BY_BASE.replace('("first", "second")', '("first", "second", "third")')
    found = project.compare(tree(BY_BASE), {**tree(suite), "kernels/toy/third.cl": source("third")})["third"]
    assert (found["status"], found["outputs"]["reason"]) == ("new", "not-compared")
    text = project.call("report", "--format", "markdown", cwd=project.root).out
    assert "<b>1 is new</b>" in text


def test_a_sweep_refuses_a_suite_in_which_a_wrong_configuration_could_win(tmp_path):
    root = sweeps.project(tmp_path, "{'T': [1, 2]}")
    file = root / "kernels/toy/suite.py"
    method = "    def reference(self, case, x):\n        return 2 * x\n"
    assert method in file.read_text()
    file.write_text(file.read_text().replace(method, '    reference = "base"\n'))
    with pytest.raises(MeasureError, match="a sweep has no base: a wrong configuration could win"):
        sweeps.sweep(root)


def test_giving_up_a_reference_is_told_and_does_not_let_a_wrong_kernel_pass(project):
    own = '    reference = "base"\n\n    def tolerance(self, case, x, z):\n        return 1.5\n'
    head = on_host("np.add(x, x, out=y); y[5] += 1", HOST_SUITE.replace(HELD_TO_BASE, own))
    found = project.compare(on_host("np.multiply(x, 2, out=y)", HOST_REFERENCE), head, *ON_CPU)["work"]
    assert (found["status"], found["reason"], found["side"]) == ("failed", "wrong-by-base", "head")
    assert "Base allows errors of up to 1e-05, head of up to 1.5" in found["message"]
    (result,) = project.done.json
    assert "outputs are held to: reference() → base's outputs." in result["problem_changes"]
    without = on_host("np.add(x, x, out=y); y[5] += 1")
    found = project.compare(on_host("np.multiply(x, 2, out=y)", HOST_REFERENCE), without, *ON_CPU)["work"]
    assert (found["status"], found["reason"]) == ("failed", "differs-from-base")


def test_without_a_base_nothing_is_compared_and_nothing_is_called_verified(project):
    commit(project.root, tree(BY_BASE), 1)
    checked, ran = (
        project.call(command, "--device", "null", "--json", cwd=project.root) for command in ("check", "run")
    )
    rows = [line["row"] for done in (checked, ran) for line in done.json[0]["rows"]]
    assert [row["outputs"]["held_to"] for row in rows] == ["nothing"] * 4
    assert {row["outputs"]["reason"] for row in rows} == {"not-compared"}
    assert all(row["verification"] is None for row in rows)
    table = project.call("run", "--device", "null", cwd=project.root).out
    assert "not compared" in table
    assert "verified" not in table


def test_what_only_ran_is_not_called_verified(project):
    commit(project.root, on_host("np.multiply(x, 2, out=y)"), 1)
    done = project.call("check", "--device", "cpu:0", "--json", cwd=project.root)
    ((row,),) = ([line["row"] for line in result["rows"]] for result in done.json)
    assert (done.status, row["status"], row["outputs"]["held_to"]) == (0, "ran", "nothing")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("pass", "Every element of y is NaN after a launch"),
        ("y[...] = x", ""),
    ],
)
def test_a_kernel_that_leaves_an_output_unwritten_is_not_timed(project, body, why):
    commit(project.root, on_host(body), 1)
    done = project.call("check", "--device", "cpu:0", "--json", cwd=project.root)
    ((row,),) = ([line["row"] for line in result["rows"]] for result in done.json)
    assert (row["status"], row["reason"]) == (("failed", "wrong-result") if why else ("ran", ""))
    assert why in row["message"]


def test_a_kernel_that_changes_nothing_is_no_yardstick(project):
    """Guessed scalars may leave it without work: then any head would be as right."""
    suite = HOST_SUITE.replace('    y = Output("n")\n', "")
    files = on_host("pass", suite)
    idle = {name: text.replace("x, z, y", "x, z").replace("z += x", "z *= 1") for name, text in files.items()}
    works = {name: text.replace("z *= 1", "z += x") for name, text in idle.items()}
    found = project.compare(idle, works, *ON_CPU)["work"]
    assert (found["status"], found["reason"], found["side"]) == ("failed", "wrong-result", "base")
    assert "A launch changes no array" in found["message"]


def test_a_damaged_array_fails_without_a_base_too(project):
    commit(project.root, tree(BY_BASE, first=source("first", MS, "#define NULL_DEVICE_FAULT overrun")), 1)
    done = project.call("check", "--device", "null", "--json", "toy.first", cwd=project.root)
    ((row,),) = ([line["row"] for line in result["rows"]] for result in done.json)
    assert (done.status, row["status"], row["reason"]) == (1, "failed", "wrong-result")


@pytest.mark.parametrize(
    ("body", "status", "held_to", "why"),
    [
        ("np.add(x, x, out=y)", "inconclusive", "base", ""),
        ("np.add(x, x, out=y); z[3] += 1", "failed", "base", "of z differ from base's"),
        ("y[...] = np.random.rand(n)", "failed", "base", "of y differ from base's"),
    ],
    ids=["same", "wrong", "random"],
)
def test_sides_with_a_process_each_hand_base_s_outputs_over(project, body, status, held_to, why):
    base, head = on_host("np.multiply(x, 2, out=y)"), on_host(body)
    found = project.compare(base, head, *ON_CPU)["work"]
    assert (found["status"], found["outputs"]["held_to"]) == (status, held_to)
    assert why in found["message"]


def test_a_head_that_answers_unseen_data_with_what_it_knows_fails(project):
    learns = (
        "KNOWN.update({x.tobytes(): 2 * x} if len(KNOWN) < 2 else {}); "
        "y[...] = KNOWN.get(x.tobytes(), next(iter(KNOWN.values())))"
    )
    suite = HOST_SUITE.replace('    z = InOut("n")\n', "")
    base, head = (
        {
            name: text.replace("x, z, y", "x, y").replace("        z += x\n", "")
            for name, text in on_host(body, suite).items()
        }
        for body in ("np.multiply(x, 2, out=y)", learns)
    )
    found = project.compare(base, head, *ON_CPU)["work"]
    assert (found["status"], found["reason"], found["side"]) == ("failed", "wrong-when-timed", "head")


def test_a_first_reference_is_what_head_is_held_to(project):
    base, head = on_host("np.multiply(x, 2, out=y)"), on_host("np.add(x, x, out=y)", HOST_REFERENCE)
    found = project.compare(base, head, *ON_CPU)["work"]
    assert (found["status"], found["outputs"]["held_to"]) == ("inconclusive", "reference")


@pytest.fixture
def two_runs():
    """The tolerance of an output of a type, of these values in two runs."""
    from harness import Axis, Output

    def made(dtype: str, one: list[float], other: list[float]) -> float:
        class Plain(Problem):
            n = Axis(default=(3,))
            y = Output("n", dtype=dtype)
            reference = "base"

        case = Case("toy", "one", {"n": 3}, "float32")
        arrays = [
            {"y": np.array(values, dtype if dtype != "bfloat16" else "float32")} for values in (one, other)
        ]
        return verify.tolerances_of_two_runs(Plain(), case, *arrays)["y"]

    return made


@pytest.mark.parametrize(
    ("dtype", "share"), [("float64", 1e-12), ("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 1.6e-2)]
)
def test_a_tolerance_is_a_share_of_the_largest_magnitude(two_runs, dtype, share):
    assert two_runs(dtype, [1, -8, 2], [1, -8, 2]) == pytest.approx(8 * share)
    assert two_runs(dtype, [1, -8, np.inf], [1, -8, np.inf]) == pytest.approx(8 * share)


def test_what_base_differs_from_itself_by_is_allowed_four_times(two_runs):
    assert two_runs("float32", [1, 8, 2], [1, 8.01, 2]) == pytest.approx(0.04, rel=1e-3)
    assert two_runs("float32", [1, 8, 2], [1, 8, np.nan]) == np.inf
    assert two_runs("float32", [1, 8, 2], [4, 8, 2]) == np.inf


def test_integers_are_equal_or_not(two_runs):
    assert two_runs("int32", [1, 8, 2], [1, 8, 2]) == 0


@pytest.mark.parametrize(
    ("found", "expected", "wrong"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], 0),
        ([1.0, np.nan, -np.inf], [1.0, 2.0, np.inf], 2),
        ([1.0, 2.0, 3.0], [1.0, np.nan, 3.0], 1),
    ],
)
def test_nan_agrees_with_nan_alone(found, expected, wrong):
    compared = verify.compare(np.array(found), np.array(expected), 0.1, alike=True)
    assert compared.wrong == wrong
    assert compared.largest_error == (0.0 if not wrong else None)


BY_FUNCTION = changed(
    (REFERENCE, '    reference = ReferenceFunction("../../ops/plain.py", "twice_ref", "numpy")\n'),
    ("Problem, Suite", "Problem, ReferenceFunction, Suite"),
)
OPS = "def twice_ref(x):\n    assert x.dtype == 'float64'\n    return x + x\n"


def with_ops(text: str = OPS, **kernels: str) -> dict[str, str | None]:
    return {**tree(BY_FUNCTION, **kernels), "ops/plain.py": text}


def test_outputs_are_held_to_a_function_of_the_repository(project):
    found = project.compare(with_ops(), with_ops(first=FASTER))["first"]
    assert found["status"] == "improvement"
    assert (found["outputs"]["held_to"], found["outputs"]["function"]) == ("function", "twice_ref")
    assert "Outputs are the same as twice_ref's" in found["message"]
    done = project.call("run", "--device", "null", cwd=project.root)
    assert "same as twice_ref" in done.out
    assert "verified" not in done.out


def test_a_kernel_that_differs_from_the_function_is_wrong(project):
    found = project.compare(with_ops(), with_ops(first=WRONG))["first"]
    assert (found["status"], found["reason"], found["side"]) == ("failed", "wrong-result", "head")


def test_a_changed_function_is_a_changed_problem(project):
    head = with_ops(OPS.replace("x + x", "x + x + 1"), first=FASTER)
    found = project.compare(with_ops(), head)["first"]
    assert (found["status"], found["reason"]) == ("failed", "wrong-by-base")
    assert any("reference (digest)" in told for told in project.done.json[0]["problem_changes"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def other(x):\n    return x\n", "has nothing named 'twice_ref'"),
        ("def twice_ref(x):\n    return x, x\n", "returns 2 arrays; expected one for each of y"),
        ("def twice_ref(a, b):\n    return a\n", "twice_ref of plain.py takes (a, b)"),
    ],
)
def test_a_function_that_cannot_be_called_is_told(project, text, why):
    commit(project.root, with_ops(text), 1)
    done = project.call("check", "--device", "null", "--json", "toy.first", cwd=project.root)
    ((row,),) = ([line["row"] for line in result["rows"]] for result in done.json)
    assert row["status"] == "failed"
    assert why in row["message"]


@pytest.mark.parametrize("given", ['"bases"', '""'])
def test_a_reference_of_another_word_is_refused(tmp_path, given):
    write_files(tmp_path, {"suite.py": BY_BASE.replace('"base"', given)})
    with pytest.raises(Exception, match=r"expected 'base', by which head's outputs are compared with base's"):
        load_folder(tmp_path)
