"""A commit changes the problem along with its kernels: this is reported, and head must satisfy base's problem
too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.errors import DeviceError
from harness.run.device_session import find_device
from tests.commits import MS
from tests.support import IMPORT_PATH, Done, caller, commit, device_is_missing, make_repository, run_forked

pytestmark = pytest.mark.fault

SUITE = """\
import numpy as np
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(1024,), quick=(64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x

    def tolerance(self, case, x):
        return 1e-6

    def flop(self, case):
        return case.n


suite = Suite("toy", Twice(), [Kernel(name, f"{name}.cl", block=32, grid=2) for name in ("first", "second")])
"""
WRONG = "#define NULL_DEVICE_FAULT wrong"
LOOSE = ("return 1e-6", "return 1.5")


def source(name: str, time_ns: int = MS, said: str = "") -> str:
    return f"#define NULL_DEVICE_NS {time_ns}\n{said}\n__kernel void {name}(__global float* x) {{}}\n"


def tree(suite: str = SUITE, **kernels: str) -> dict[str, str | None]:
    sources = {"first": source("first"), "second": source("second"), **kernels}
    return {
        "pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\nresults = 'results'\n",
        "kernels/toy/suite.py": suite,
        **{f"kernels/toy/{name}.cl": text for name, text in sources.items()},
    }


def changed(*pairs: tuple[str, str], suite: str = SUITE) -> str:
    for old, new in pairs:
        assert old in suite
        suite = suite.replace(old, new)
    return suite


def with_method(name: str, returned: str, *arguments: str) -> str:
    """The suite whose problem has this method as well."""
    taken = ", ".join(("self", "case", *arguments))
    return changed(("    def flop", f"    def {name}({taken}):\n        return {returned}\n\n    def flop"))


class Project:
    """A repository in which two commits after each other are compared on the null device."""

    def __init__(self, root: Path, call: Callable[..., Done]) -> None:
        self.root, self.call = make_repository(root), call

    def compare(
        self,
        base: Mapping[str, str | None],
        head: Mapping[str, str | None],
        *options: str,
        device: str = "null",
    ) -> Done:
        commit(self.root, base, 1)
        commit(self.root, head, 2)
        return self.call("compare", "HEAD~1", "HEAD", "--device", device, *options, cwd=self.root)

    def report(self, form: str, *options: str) -> Done:
        return self.call("report", "--format", form, *options, cwd=self.root)


@pytest.fixture
def project(capsys, monkeypatch, tmp_path):
    return Project(tmp_path / "project", caller(capsys, monkeypatch))


def verdicts(done: Done) -> dict[str, dict[str, str]]:
    [result] = done.json
    return {verdict["kernel"]: verdict for verdict in result["verdicts"]}


def changes(done: Done) -> str:
    [result] = done.json
    return "\n".join(result["problem_changes"])


# A looser bound.


def test_a_wrong_kernel_that_loosens_its_own_tolerance_fails(project):
    done = project.compare(tree(), tree(changed(LOOSE), first=source("first", MS // 2, WRONG)), "--json")
    verdict = verdicts(done)["first"]
    assert (done.status, verdict["status"], verdict["reason"]) == (1, "failed", "wrong-by-base")
    assert verdict["side"] == "head"
    assert "1 of 64 elements of y are wrong" in verdict["message"]
    assert "up to 1e-06, head of up to 1.5" in verdict["message"]
    assert "a commit of its own first" in verdict["message"]
    assert "largest tolerance: 1e-06 → 1.5 at 64 float32" in changes(done)
    assert verdicts(done)["second"]["status"] == "identical"


HELPER = changed(("1e-6", "bounds.MOST"), ("import numpy", "import bounds\nimport numpy"))
ELSEWHERE = changed(
    (
        "import bounds",
        "import os, sys\nsys.path.insert(0, os.path.dirname(__file__) + '/../shared')\nimport bounds",
    ),
    suite=HELPER,
)
FIGURE = changed(
    ("import numpy", "import os\nimport numpy"),
    ("1e-6", "float(open(os.path.dirname(__file__) + '/most.txt').read())"),
)
LOOSENED = {
    "a helper beside the suite": (
        {"kernels/toy/suite.py": HELPER},
        ("kernels/toy/bounds.py", "MOST = 1e-6\n", "MOST = 1.5\n"),
    ),
    "a helper of all suites": (
        {"kernels/toy/suite.py": ELSEWHERE},
        ("kernels/shared/bounds.py", "MOST = 1e-6\n", "MOST = 1.5\n"),
    ),
    "a file of figures": ({"kernels/toy/suite.py": FIGURE}, ("kernels/toy/most.txt", "1e-6", "1.5")),
    "one kernel's bound": (
        {},
        ("kernels/toy/suite.py", SUITE, changed(("1e-6", "1.5 if case.kernel == 'first' else 1e-6"))),
    ),
    "the reference": (
        {},
        ("kernels/toy/suite.py", SUITE, changed(("return 2 * x", "return 2 * x + (np.arange(64) == 32)"))),
    ),
    "the data": (
        {},
        ("kernels/toy/suite.py", SUITE, with_method("data", "{'x': np.full(64, 1e12, 'f')}", "rng")),
    ),
}


@pytest.mark.parametrize("how", LOOSENED)
def test_it_does_not_matter_where_what_is_right_is_written(project, how):
    suite, (file, before, after) = LOOSENED[how]
    # The null device computes head's reference, whatever it is.
    said = "" if how == "the reference" else WRONG
    base = {**tree(), **suite, file: before}
    head = {**tree(first=source("first", MS // 2, said)), **suite, file: after}
    done = project.compare(base, head, "--json")
    verdict = verdicts(done)["first"]
    assert (done.status, verdict["status"]) == (1, "failed"), verdict
    # A bound for one kernel alone: whichever was asked first is that of all.
    assert verdict["reason"] in ("wrong-by-base", *(["wrong-result"] if how == "one kernel's bound" else []))
    assert changes(done)


def test_a_new_kernel_is_held_to_bases_problem_too(project):
    suite = changed(('("first", "second")', '("first", "second", "third")'))
    head = {**tree(changed(LOOSE, suite=suite)), "kernels/toy/third.cl": source("third", said=WRONG)}
    done = project.compare(tree(), head, "--json")
    verdict = verdicts(done)["third"]
    assert (done.status, verdict["status"], verdict["reason"]) == (1, "failed", "wrong-by-base")
    assert "up to 1e-06, head of up to 1.5" in verdict["message"]


def test_a_new_dtype_brings_its_own_bound(project):
    """Base has never said what is right for it."""
    third = "[*(Kernel(name, f'{name}.cl', block=32, grid=2) for name in ('first', 'second')), "
    third += "Kernel('third', 'third.cl', block=32, grid=2, dtype='float16')])"
    suite = SUITE[: SUITE.index("[Kernel")] + third
    suite = changed(("return 1e-6", "return 1e-6 if case.dtype == 'float32' else 1.5"), suite=suite)
    head = {**tree(suite), "kernels/toy/third.cl": source("third", said=WRONG)}
    done = project.compare(tree(), head, "--json")
    assert (done.status, verdicts(done)["third"]["status"], changes(done)) == (0, "new", "")


def test_a_right_kernel_in_the_commit_that_loosens_passes_and_it_is_told(project):
    done = project.compare(tree(), tree(changed(LOOSE), first=source("first", MS // 2)))
    assert done.status == 0, done.out
    assert "improvement" in done.out
    assert "Problem changed: largest tolerance: 1e-06 → 1.5 at 64 float32." in done.out


def test_a_bound_for_kernels_that_did_not_change_is_told(project):
    done = project.compare(tree(), tree(changed(LOOSE)), "--json")
    assert (done.status, {v["status"] for v in verdicts(done).values()}) == (0, {"identical"})
    assert changes(done) == "largest tolerance: 1e-06 → 1.5 at 64 float32."


# A stricter one, and what is broken.


def test_identical_code_that_is_wrong_by_a_stricter_bound_fails(project):
    wrong = source("first", said=WRONG)
    done = project.compare(tree(changed(LOOSE), first=wrong), tree(first=wrong), "--json")
    verdict = verdicts(done)["first"]
    assert (done.status, verdict["status"], verdict["reason"]) == (1, "failed", "wrong-result")
    assert verdicts(done)["second"]["status"] == "identical"


def test_a_base_that_is_wrong_by_heads_stricter_bound_has_failed_there(project):
    wrong = source("first", said=WRONG)
    done = project.compare(tree(changed(LOOSE), first=wrong), tree(first=source("first")), "--json")
    verdict = verdicts(done)["first"]
    assert (done.status, verdict["status"], verdict["side"]) == (3, "failed", "base")
    assert "right by base's own problem" in verdict["message"]


BROKEN = ("return 2 * x", "raise RuntimeError('no reference today')")


def test_a_reference_that_head_broke_fails_what_is_identical(project):
    done = project.compare(tree(), tree(changed(BROKEN)), "--json")
    assert done.status == 1
    assert {v["status"] for v in verdicts(done).values()} == {"failed"}
    assert "no reference today" in changes(done)


def test_a_reference_that_base_broke_is_bases_fault(project):
    done = project.compare(tree(changed(BROKEN)), tree(first=source("first", MS // 2)), "--json")
    verdict = verdicts(done)["first"]
    assert (done.status, verdict["status"], verdict["side"]) == (3, "failed", "base")
    assert verdicts(done)["second"]["status"] == "identical"
    assert "no reference today" in changes(done)


def test_a_new_kernel_that_a_broken_base_cannot_judge_is_bases_fault(project):
    suite = SUITE.replace('("first", "second")', '("first", "second", "third")')
    head = {**tree(suite), "kernels/toy/third.cl": source("third")}
    done = project.compare(tree(changed(BROKEN)), head, "--json")
    verdict = verdicts(done)["third"]
    assert (done.status, verdict["status"], verdict["side"]) == (3, "failed", "base"), verdict


def test_a_reference_that_hangs_costs_its_deadline(project):
    hangs = changed(("return 2 * x", "import time; time.sleep(3600)"))
    done = project.compare(tree(), tree(hangs), "--json", "--timeout", "1")
    assert done.status == 1
    assert "No answer within 1 s" in changes(done)


# What is told.

METHODS = """\
    def integer_bound(self, case):
        return 7

    def moved_bytes(self, case):
        return 1

    def flop"""
TOLD = {
    "data": (with_method("data", "{'x': np.zeros(case.n, 'f')}", "rng"), ["data (digest): "]),
    "reference": (changed(("return 2 * x", "return 3 * x")), ["reference (digest): "]),
    "bound of one element": (
        changed(("return 1e-6", "return np.where(np.arange(case.n) == 3, 0, 1e-6)")),
        ["tolerance (digest): "],
    ),
    "an array": (
        changed(('y = Output("n")', 'y = Output("n", dtype="float64")')),
        ["output y: dtype of the kernel [n] → float64 [n].", "bytes moved: 512 → 768 at 64 float32."],
    ),
    "what is counted": (
        changed(
            ("quick=(64,)", "quick=(64, 128)"),
            ("Twice(), [", 'Twice(), headline="GB/s", kernels=['),
            ("return case.n", "return 2 * case.n"),
            ("    def flop", METHODS),
        ),
        [
            "headline: GFLOP/s → GB/s.",
            "axis n: 1024 (quick: 64) → 1024 (quick: 64, 128).",
            "integer bound: None → 7 at 64 float32.",
            "FLOP: 64 → 128 at 64 float32.",
            "bytes moved: 512 → 1 at 64 float32.",
        ],
    ),
}


@pytest.mark.parametrize("what", TOLD)
def test_every_change_of_the_problem_is_told(project, what):
    suite, told = TOLD[what]
    found = changes(project.compare(tree(), tree(suite), "--json")).splitlines()
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told, strict=True))


def test_a_dtype_is_told_with_all_that_follows_from_it(project):
    retyped = changed(("block=32, grid=2)", "block=32, grid=2, dtype='float64')"))
    told = changes(project.compare(tree(), tree(retyped), "--json"))
    assert "dtype of first: float32 → float64." in told
    assert "bytes moved: 512 → 1024 at 64 float64." in told


def test_it_is_told_everywhere(project, tmp_path):
    told = "largest tolerance: 1e-06 → 1.5 at 64 float32."
    done = project.compare(tree(), tree(changed(LOOSE)))
    assert f"Problem changed: {told}" in done.out
    assert f"Problem changed: {told}" in project.report("terminal").out
    for form in ("markdown", "html"):
        shown = project.report(form).out
        assert "The problem of toy changed" in shown
        assert f"<code>{told}</code>" in shown
    project.report("github", "--out", str(tmp_path / "faces"))
    assert told in (tmp_path / "faces" / "summary.md").read_text(encoding="utf-8")


def test_a_bound_that_is_looser_at_one_size_alone_is_told(project):
    suite = changed(("quick=(64,)", "quick=(64, 128, 256)"))
    loose = changed(("return 1e-6", "return 1.5 if case.n == 128 else 1e-6"), suite=suite)
    done = project.compare(tree(suite), tree(loose), "--json")
    assert {v["status"] for v in done.json[0]["verdicts"]} == {"identical"}
    assert changes(done) == "largest tolerance: 1e-06 → 1.5 at 128 float32."


def test_pytest_tells_it(project):
    tests = "def test_kernel(gpu_benchmark, gpu_case):\n    gpu_benchmark(gpu_case)\n"
    commit(project.root, {**tree(), "benchmarks/test_kernels.py": tests}, 1)
    commit(project.root, tree(changed(LOOSE), first=source("first", MS // 2, WRONG)), 2)
    done = run_forked(
        [
            *(sys.executable, "-m", "pytest", "benchmarks"),
            *("--perf-base=HEAD~1", "--perf-device=null", "-p", "no:cacheprovider"),
        ],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    assert done.returncode == 1
    assert "Problem changed: largest tolerance: 1e-06 → 1.5 at 64 float32." in done.stdout
    assert "(wrong-by-base)" in done.stdout


ASKED = changed(("import numpy", "import os\nimport numpy"), ("1e-6", "1e-9 * os.getpid()"))
"""A problem that is told as changed whenever it is asked."""


@pytest.mark.parametrize(
    ("begin", "is_asked"), [("", False), ("open(__file__.replace('suite.py', 'head.h')).read()\n", True)]
)
def test_a_header_is_of_the_problem_only_where_the_suite_reads_it(project, begin, is_asked):
    suite = begin + changed(('"second")])', '"second")], prelude={"null": "head.h"})'), suite=ASKED)
    base, head = ({**tree(suite), "kernels/toy/head.h": f"#define SIDE {side}\n"} for side in (1, 2))
    assert bool(changes(project.compare(base, head, "--json"))) == is_asked


def test_files_that_define_the_same_problem_are_not_a_change(project):
    other = "# the same in other words\n" + changed(("return 2 * x", "return x + x"))
    done = project.compare(tree(), tree(other, first=source("first", MS + 1)), "--json")
    assert (done.status, changes(done)) == (0, "")


BODY = """\
__kernel void first(__global const float* x, __global float* y, int n)
{
    int i = get_global_id(0);
    for (; i < n; i += get_global_size(0)) y[i] = FACTOR * x[i];
}
"""


def test_a_real_device_shows_the_same(project):
    try:
        find_device("opencl:0")
    except DeviceError as error:
        device_is_missing("opencl:0", error.message)
    suite = changed(('("first", "second")', '("first",)'))
    one = tree(suite, first=BODY.replace("FACTOR", "2"))
    other = tree(changed(LOOSE, suite=suite), first=BODY.replace("FACTOR", "2.5f"))
    done = project.compare(one, other, "--json", device="opencl:0")
    verdict = verdicts(done)["first"]
    assert (done.status, verdict["status"], verdict["reason"]) == (1, "failed", "wrong-by-base")
    assert "64 of 64 elements of y are wrong" in verdict["message"]
    assert changes(done) == "largest tolerance: 1e-06 → 1.5 at 64 float32."
