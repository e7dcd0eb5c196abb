"""A commit that changes what is right along with its kernels: it is told, and head is held to base's problem."""

from __future__ import annotations

import pytest

from tests.commits import MS
from tests.support import Done, caller, commit, make_repository

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
LOOSE = ("return 1e-6", "return 1e6")


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


@pytest.fixture
def compare(capsys, monkeypatch, tmp_path):
    """Compares two trees by `harness compare`."""
    monkeypatch.delenv("CI", raising=False)
    call = caller(capsys, monkeypatch)
    repository = make_repository(tmp_path / "project")

    def compared(base: dict[str, str | None], head: dict[str, str | None], *options: str) -> Done:
        commit(repository, base, 1)
        commit(repository, head, 2)
        return call("compare", "HEAD~1", "HEAD", "--device", "null", *options, cwd=repository)

    compared.report = lambda *options: call("report", *options, cwd=repository)
    compared.root = repository
    return compared


def verdicts(done: Done) -> dict[str, dict[str, str]]:
    [result] = done.json
    return {verdict["kernel"]: verdict for verdict in result["verdicts"]}


def changes(done: Done) -> str:
    [result] = done.json
    return "\n".join(result["problem_changes"])


def test_a_wrong_kernel_that_loosens_its_own_tolerance_fails(compare):
    done = compare(tree(), tree(changed(LOOSE), first=source("first", MS // 2, WRONG)), "--json")
    verdict = verdicts(done)["first"]
    assert (done.status, verdict["status"], verdict["reason"]) == (1, "failed", "wrong-by-base")
    assert verdict["side"] == "head"
    assert "1 of 64 elements of y are wrong" in verdict["message"]
    assert "up to 1e-06, head of up to 1e+06" in verdict["message"]
    assert "a commit of its own first" in verdict["message"]
    assert "largest tolerance: 1e-06 → 1e+06 at 64 float32" in changes(done)
    assert verdicts(done)["second"]["status"] == "identical"


def test_a_right_kernel_in_the_commit_that_loosens_passes_and_it_is_told(compare):
    done = compare(tree(), tree(changed(LOOSE), first=source("first", MS // 2)))
    assert done.status == 0, done.out
    assert "improvement" in done.out
    assert "Problem changed: largest tolerance: 1e-06 → 1e+06 at 64 float32." in done.out
