"""`harness compare` and `harness calibrate` as a user meets them: verdicts, words, exit statuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from harness.errors import ExitCode
from harness.records.record_files import ComparisonResult, read_comparison
from harness.records.types import Comparison, Verdict
from harness.report.terminal.comparison_tables import exit_code
from harness.run.wall_time import STAGES
from tests import toy
from tests.commits import (
    BASE,
    KERNELS,
    MS,
    SOURCE,
    files,
    make_project,
    only,
    takes,
)
from tests.conftest import Project
from tests.support import (
    Done,
    caller,
    commit,
    git,
    in_workers,
    make_repository,
    programs,
    run_command,
    write_files,
    write_null_script,
)

NULL = ("--device", "null")
TOLD: Mapping[str, tuple[str, str, str, int]] = {
    "slower": ("regression", "slower-in-time", "", 1),
    "faster": ("improvement", "faster-in-time", "", 0),
    "changed": ("unchanged", "within-tolerance", "", 0),
    "untouched": ("identical", "same-code", "", 0),
    "commented": ("identical", "same-code", "", 0),
    "swapped": ("unchanged", "within-tolerance", "", 0),
    "relaunched": ("unchanged", "within-tolerance", "", 0),
    "clustered": ("unchanged", "within-tolerance", "", 0),
    "gone": ("missing", "only-in-base", "", 1),
    "fresh": ("new", "only-in-head", "", 4),
    "fresh_wrong": ("failed", "wrong-result", "head", 1),
    "fresh_crash": ("failed", "crashed", "head", 1),
    "fresh_build": ("failed", "build-failed", "head", 1),
    "build_head": ("failed", "build-failed", "head", 1),
    "build_base": ("failed", "build-failed", "base", 3),
    "wrong_head": ("failed", "wrong-result", "head", 1),
    "wrong_base": ("failed", "wrong-result", "base", 3),
    "wrong_both": ("failed", "wrong-result", "head", 1),
    "nan_head": ("failed", "wrong-result", "head", 1),
    "overrun_head": ("failed", "wrong-result", "head", 1),
    "crash_head": ("failed", "crashed", "head", 1),
    "crash_base": ("failed", "crashed", "base", 3),
    "hang_head": ("failed", "timed-out", "head", 1),
    "hang_base": ("failed", "timed-out", "base", 3),
    "error_head": ("failed", "launch-refused", "head", 1),
    "memory_base": ("failed", "out-of-memory", "base", 3),
    "retyped": ("failed", "not-comparable", "", 3),
    "retyped_too": ("failed", "not-comparable", "", 3),
    "at_tolerance": ("unchanged", "within-tolerance", "", 0),
}
"""Status, reason, side and the exit status of a comparison of this kernel alone."""
LEFT_OUT = {"unfit", "too_large", "unfit_both"}


class Compared(Done):
    @property
    def statuses(self) -> dict[str, tuple[str, str]]:
        """Return status and reason by kernel."""
        return {
            verdict["kernel"]: (verdict["status"], verdict["reason"])
            for result in self.json
            for verdict in result["verdicts"]
        }


@pytest.fixture
def harness(capsys, monkeypatch):
    """Calls `harness` in this process."""
    return caller(capsys, monkeypatch, Compared)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Every kernel above, at both commits."""
    return make_project(tmp_path_factory.mktemp("compare") / "project")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, repository):
    """All of it compared once, on a card with a little noise."""
    folder = tmp_path_factory.mktemp("whole")
    script = write_null_script(folder / "script.json", {"noise": {"kind": "quiet", "seed": 1}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_NULL_SCRIPT", script)
        patch.setenv("HARNESS_CACHE_DIR", str(folder / "cache"))
        done = run_command(
            *("compare", "HEAD~1", "HEAD", *NULL, "--json", "--timeout", "4", "--results", str(folder)),
            cwd=repository,
        )
    assert "Traceback" not in done.stderr, done.stderr
    return Compared(done.returncode, done.stdout, done.stderr)


def verdict_of(done: Compared, kernel: str) -> Any:
    [result] = done.json
    return next(msgspec.convert(each, Verdict) for each in result["verdicts"] if each["kernel"] == kernel)


@pytest.mark.parametrize("kernel", TOLD)
def test_each_case_has_its_verdict_and_no_other_suffers(whole, kernel):
    status, reason, side, _ = TOLD[kernel]
    verdict = verdict_of(whole, kernel)
    assert (verdict.status, verdict.reason, verdict.side) == (status, reason, side), verdict
    assert verdict.message
    if side:
        assert f" at {side}." in verdict.message


def test_verdicts_come_once_each_and_what_the_device_cannot_run_is_left_out(whole):
    [result] = whole.json
    assert sorted(each["kernel"] for each in result["verdicts"]) == sorted(TOLD)
    told = " ".join(result["left_out"])
    assert all(name in told for name in LEFT_OUT)
    assert whole.status == ExitCode.REGRESSION


def test_effects_are_what_was_planted_and_cycles_agree(whole):
    for kernel, effect in {"slower": 0.03, "faster": -0.03, "changed": 0.0}.items():
        verdict = verdict_of(whole, kernel)
        assert verdict.time.effect == pytest.approx(effect, abs=2e-3)
        assert verdict.cycles.effect == pytest.approx(effect, abs=2e-3)
        assert verdict.time.low <= verdict.time.effect <= verdict.time.high
        assert verdict.time.processes >= 2
        assert verdict.base.sm_clock_mhz == pytest.approx(1980, rel=1e-3)
        assert verdict.base.time_ns == pytest.approx(MS, rel=2e-2)
    assert verdict_of(whole, "slower").attribution == "code"


def test_a_failure_brings_its_evidence(whole):
    assert "scripted fault" in verdict_of(whole, "build_head").log
    assert "scripted fault" in verdict_of(whole, "build_base").log
    assert "SIGSEGV while verifying head" in verdict_of(whole, "crash_head").message
    assert "SIGSEGV while verifying base" in verdict_of(whole, "crash_base").message
    assert "--timeout" in verdict_of(whole, "hang_head").message
    assert "1 of 64 elements of y are wrong" in verdict_of(whole, "wrong_head").message
    assert "float64" in verdict_of(whole, "retyped").message
    assert "float32" in verdict_of(whole, "retyped").message


def test_the_record_holds_what_was_told(whole):
    [result] = whole.json
    stored = read_comparison(Path(result["record"]))
    assert not stored.interrupted
    assert stored.comparison.run_id == result["comparison"]["run_id"]
    assert [v.case for v in stored.verdicts] == [v["case"] for v in result["verdicts"]]
    assert {v.case: v.status for v in stored.verdicts} == {v["case"]: v["status"] for v in result["verdicts"]}
    slower = [block for block in stored.blocks if block.case == "toy.slower[n=64]"]
    assert [block.confirming for block in slower] == [False, False, True, True]
    assert len({block.process for block in slower}) == 4
    assert all(result["wall_s"][stage] > 0 for stage in STAGES)
    assert not list(Path(result["record"]).parent.glob("*.part"))


def test_a_vanished_kernel_asked_for_at_a_size_is_missing(harness, repository):
    done = harness(
        *("compare", "HEAD~1..HEAD", "gone", "--size", "32", *NULL, "--json", "--no-save"), cwd=repository
    )
    assert done.status == ExitCode.REGRESSION
    [result] = done.json
    assert [each["case"] for each in result["verdicts"]] == ["toy.gone[n=32]"]
    assert done.statuses == {"gone": ("missing", "only-in-base")}


def test_cases_by_graph_have_verdicts_of_their_own(harness, repository):
    asked = ("--graph", *NULL, "--json", "--no-save")
    [result] = harness("compare", "HEAD~1", "HEAD", "slower", *asked, cwd=repository).json
    verdicts = {each["case"]: each for each in result["verdicts"]}
    assert {case: each["status"] for case, each in verdicts.items()} == dict.fromkeys(
        ("toy.slower[n=64]", "toy.slower[n=64,graph=1]"), "regression"
    )
    assert [each["head"]["launch"]["graph"] for each in verdicts.values()] == [False, True]


def test_what_the_device_cannot_run_is_not_compared_and_not_missing(harness, repository):
    done = harness("compare", "HEAD~1", "HEAD", "unfit", "too_large", *NULL, "--no-save", cwd=repository)
    assert done.status == ExitCode.INCONCLUSIVE
    assert "missing" not in done.out
    assert "no case was compared" in done.out
    assert "verdict" not in done.out  # no table without rows
    assert "Left out: unfit needs CUDA" in done.err


def told_of(done: Compared, *kernels: str, problem: str = "") -> ComparisonResult:
    """Return the comparison, with these kernels only."""
    [result] = done.json
    return ComparisonResult(
        comparison=msgspec.convert(result["comparison"], Comparison),
        verdicts=tuple(verdict_of(done, kernel) for kernel in kernels),
        problem=problem,
    )


@pytest.mark.parametrize("kernel", TOLD)
def test_each_verdict_has_its_exit_status(whole, kernel):
    assert exit_code([told_of(whole, kernel)]) == TOLD[kernel][3]


@pytest.mark.parametrize(
    ("kernels", "fail_on", "code"),
    [
        (["faster"], ["improvement"], 1),
        (["slower"], ["none"], 0),
        (["slower"], ["inconclusive"], 0),
        (["slower"], ["inconclusive", "regression"], 1),
        (["fresh"], ["new"], 1),
        (["fresh"], ["none"], 4),
        (["fresh", "changed"], [], 0),
        (["gone"], ["none"], 1),
        (["build_base"], ["none"], 3),
        (["build_head"], ["inconclusive"], 1),
        (["build_base", "slower"], [], 1),
        (["build_base", "changed"], [], 3),
        ([], [], 4),
    ],
)
def test_which_verdicts_fail(whole, kernels, fail_on, code):
    assert exit_code([told_of(whole, *kernels)], fail_on) == code
    others = 0 if code == ExitCode.INCONCLUSIVE else code  # nothing that was compared needs another beside it
    assert exit_code([told_of(whole, *kernels), told_of(whole, "changed")], fail_on) == others


def test_a_record_that_could_not_be_kept_is_a_failure_but_no_regression(whole):
    assert exit_code([told_of(whole, "changed", problem="The disk is full.")]) == 3
    assert exit_code([told_of(whole, "slower", problem="The disk is full.")]) == 1


def test_fail_on(harness, repository):
    done = harness(
        *("compare", "HEAD~1", "HEAD", "fresh", *NULL, "--no-save", "--fail-on", "new"), cwd=repository
    )
    assert done.status == 1
    assert "Exit status 1." in done.out


TOO_CLOSE = ("--tolerance", "0.26", "--margin", "0.25")
"""An effect of 0.23 % is neither beyond that margin nor, in 8 processes, within that tolerance for sure."""


def test_too_noisy_is_inconclusive(harness, repository):
    done = harness(
        *("compare", "HEAD~1", "HEAD", "at_tolerance", *NULL, *TOO_CLOSE, "--json", "--no-save"),
        cwd=repository,
    )
    assert done.statuses == {"at_tolerance": ("inconclusive", "too-noisy")}
    assert done.status == ExitCode.INCONCLUSIVE
    assert done.json[0]["verdicts"][0]["time"]["processes"] == 8
    assert done.json[0]["verdicts"][0]["complete"] is True


def test_a_spent_budget_is_inconclusive(harness, repository):
    done = harness(
        *("compare", "HEAD~1", "HEAD", "slower", "changed", *NULL, "--budget", "1e-9", "--json", "--no-save"),
        cwd=repository,
    )
    assert done.status == ExitCode.INCONCLUSIVE
    assert set(done.statuses.values()) == {("inconclusive", "budget-spent")}
    assert {each["complete"] for each in done.json[0]["verdicts"]} == {False}
    assert all("budget" in each["message"] for each in done.json[0]["verdicts"])


def test_clocks_that_jump_within_quads_are_told_beside_the_verdict(harness, tmp_path, null_script):
    null_script({"noise": {"kind": "throttled", "seed": 1}})
    kernels = {"long": (takes(40 * MS), takes(44 * MS))}
    done = harness("compare", "HEAD~1", "HEAD", *NULL, "--json", cwd=make_project(tmp_path / "p", kernels))
    assert done.status == ExitCode.REGRESSION
    assert done.statuses == {"long": ("regression", "slower-in-time")}
    [verdict] = done.json[0]["verdicts"]
    assert verdict["attribution"] == "code"
    assert verdict["touched"]["sm-clock"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["HEAD~9"], "No commit named 'HEAD~9'"),
        (["HEAD~9"], "'git log --oneline' lists what there is"),
        (["HEAD", "nosuch"], "No kernel matches 'nosuch'"),
        (["HEAD", "nothing*like*it"], "'harness list' shows every kernel"),
        (["HEAD~1", "slowest"], "Did you mean slower?"),
        (["HEAD..nosuch"], "No commit named 'nosuch'"),
        (["HEAD~1", "--margin", "1", "--tolerance", "1"], "not below the tolerance of 1 %"),
        (["HEAD~1", "--margin", "3", "--tolerance", "2"], "give a smaller --margin or a larger --tolerance"),
        (["HEAD~1", "--size", "0"], "0 is out of range"),
        (["HEAD~1", "--size", "8,8"], "has 2 numbers"),
        (["HEAD~1", "--fail-on", "nothing"], "'nothing' is not one of"),
        (["HEAD~1", "--fail-on", "regresion"], "Did you mean regression?"),
        (["HEAD~1", "--margin", "0"], "not in the range"),
        (["HEAD~1", "--budget", "0"], "not in the range"),
        ([], "Missing argument 'BASE'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_status_2(harness, repository, arguments, words):
    done = harness("compare", *arguments, *NULL, cwd=repository)
    assert done.status == ExitCode.USAGE
    assert words in done.err.replace("\n", " ")
    assert done.out == ""
    assert not (repository / "results").exists()


def test_a_shallow_clone_is_told_how_to_get_its_history(harness, repository, tmp_path):
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    done = harness("compare", "HEAD~1", *NULL, cwd=tmp_path / "shallow")
    assert done.status == ExitCode.USAGE
    assert "No commit named 'HEAD~1'" in done.err
    assert "git fetch --unshallow" in done.err


def test_outside_a_repository_there_is_nothing_to_compare(harness, tmp_path):
    done = harness("compare", "HEAD", *NULL, cwd=write_files(tmp_path / "p", files(0, only("changed"))))
    assert done.status == ExitCode.USAGE
    assert "is in no git repository: there are no commits to compare" in done.err


def test_no_suite_at_either_commit(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    commit(repository, {"harness.toml": "suites = ['kernels/*']\n"}, 1)
    done = harness("compare", "HEAD", *NULL, cwd=repository)
    assert done.status == ExitCode.USAGE
    assert "at either commit" in done.err


PLAIN_CUDA = """\
#include <cuda_runtime.h>
__global__ void scale(const float *x, float *y, int n) { y[threadIdx.x] = x[threadIdx.x]; }
int main() { scale<<<1, 32>>>(nullptr, nullptr, 0); }
"""
OF_PLAIN_CUDA = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Scale(Problem):
    n = Axis((32,))
    x = Input("n")
    y = Output("n")
    reference = "base"


suite = Suite("scale", Scale(), headline="GB/s", kernels=[Kernel("scale", "scale.cu", block=32, grid=1)])
"""


def test_plain_cuda_is_not_given_to_opencl_as_if_it_were_broken(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    commit(repository, {"kernels/scale/suite.py": OF_PLAIN_CUDA, "kernels/scale/scale.cu": PLAIN_CUDA}, 1)
    done = harness("compare", "HEAD", "--device", "opencl:0", "--no-save", cwd=repository)
    assert done.status == ExitCode.INCONCLUSIVE
    assert "Left out: scale runs on cuda; opencl:0 is " in done.err
    assert "These kernels need a CUDA card. Without a card, 'harness static --base " in done.err
    portable = PLAIN_CUDA + "#ifdef __OPENCL_VERSION__\n#endif\n"  # the author has thought of OpenCL
    write_files(repository, {"kernels/scale/scale.cu": portable})
    assert "(build-failed)" in harness("check", "--device", "opencl:0", cwd=repository).err


@pytest.fixture
def untouched(tmp_path):
    """A repository in which nothing that compiles differs between two commits: quick to compare."""
    repository = make_project(tmp_path / "project", only("untouched", "commented"))
    return repository, [git(repository, "rev-parse", revision) for revision in ("HEAD~1", "HEAD")]


def test_commits_are_named_in_any_of_gits_ways(harness, untouched):
    repository, hashes = untouched
    for arguments, sides in (
        (["HEAD~1"], (0, 1)),
        (["HEAD~1", "HEAD"], (0, 1)),
        (["HEAD~1..HEAD"], (0, 1)),
        (["HEAD~1...HEAD"], (0, 1)),
        (["HEAD~1.."], (0, 1)),
        (["HEAD", "HEAD~1"], (1, 0)),
        (["..HEAD~1"], (1, 0)),
    ):
        done = harness("compare", *arguments, "commented", *NULL, "--json", "--no-save", cwd=repository)
        [result] = done.json
        told = tuple(result["comparison"][side]["commit"] for side in ("base", "head"))
        assert told == tuple(hashes[n] for n in sides), arguments
        assert result["comparison"]["head"]["dirty"] is False
        assert result["record"] is None
        assert done.status == ExitCode.FINE
        assert {status for status, _ in done.statuses.values()} == {"identical"}


def test_what_compiles_to_the_same_is_not_measured(harness, untouched):
    done = harness("compare", "HEAD~1", "HEAD", *NULL, "--profile-wall", cwd=untouched[0])
    assert done.status == ExitCode.FINE
    assert "verify 0.00, measure 0.00, judge" in done.err
    assert "2 identical. 0.0 s of device time. Exit status 0." in done.out
    assert "process 1" not in done.err


def test_uncommitted_changes_are_said(harness, untouched):
    repository, (_, head) = untouched
    write_files(
        repository,
        {"kernels/toy/untouched.cu": "// now commented\n" + SOURCE.format(said=BASE.said, name="untouched")},
    )
    done = harness("compare", "HEAD", *NULL, cwd=repository)
    assert f"toy: {head[:10]} against {head[:10]} + changes on null (null:0)" in done.out
    assert done.status == ExitCode.FINE
    [record] = (repository / "results").rglob("*.jsonl")
    stored = read_comparison(record).comparison
    assert (stored.base.dirty, stored.head.dirty) == (False, True)
    done = harness("compare", "HEAD", *NULL, "--json", "--no-save", cwd=repository)
    assert done.json[0]["comparison"]["head"]["dirty"] is True


def test_no_save_keeps_nothing(harness, untouched):
    done = harness("compare", "HEAD~1", *NULL, "--no-save", cwd=untouched[0])
    assert done.status == ExitCode.FINE
    assert not (untouched[0] / "results").exists()
    assert "Record" not in done.err


def test_a_base_without_the_suite_has_new_cases_only(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    commit(repository, {"readme": "nothing yet\n"}, 1)
    commit(repository, files(1, only("fresh", "changed", "wrong_head")), 2)
    done = harness("compare", "HEAD~1", "fresh", "changed", *NULL, "--json", cwd=repository)
    assert done.status == ExitCode.INCONCLUSIVE
    assert done.statuses == dict.fromkeys(["fresh", "changed"], ("new", "only-in-head"))
    done = harness("compare", "HEAD~1", "wrong_head", *NULL, "--json", cwd=repository)
    assert done.status == ExitCode.REGRESSION
    assert done.statuses == {"wrong_head": ("failed", "wrong-result")}


@pytest.mark.parametrize("committed", [True, False])
def test_a_suite_that_vanished_is_missing(harness, tmp_path, committed):
    repository = make_repository(tmp_path / "p")
    commit(repository, files(0, only("untouched", "changed")), 1)
    (repository / "kernels/toy/suite.py").unlink()
    head = ["HEAD"] if committed else []
    if committed:
        commit(repository, {}, 2)
    base = "HEAD~1" if committed else "HEAD"
    done = harness("compare", base, *head, *NULL, "--json", cwd=repository)
    assert done.status == ExitCode.REGRESSION
    assert done.statuses == dict.fromkeys(["untouched", "changed"], ("missing", "only-in-base"))


def test_other_axes_are_other_cases(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    now = files(0, only("untouched"))
    then = now["kernels/toy/suite.py"].replace("a = Input", "m = Axis(default=(8,))\n    a = Input", 1)
    commit(repository, {**now, "kernels/toy/suite.py": then}, 1)
    commit(repository, now, 2)
    for size in ((), ("--size", "32")):
        done = harness("compare", "HEAD~1", *NULL, "--json", "--no-save", *size, cwd=repository)
        assert done.status == ExitCode.REGRESSION
        told = {each["case"]: each["status"] for each in done.json[0]["verdicts"]}
        n, m = (32, 32) if size else (64, 8)
        assert told == {f"toy.untouched[n={n}]": "new", f"toy.untouched[n={n},m={m}]": "missing"}


HIDING = "[tool.harness]\nsuites = ['others/*']\nresults = 'results'\n"


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "working tree"])
def test_settings_that_hide_a_suite_do_not_hide_its_kernels(harness, tmp_path, committed):
    root = make_project(tmp_path / "project", only("commented"))
    write_files(root, {"pyproject.toml": HIDING})
    if committed:
        commit(root, {}, 3)
    base, *head = ("HEAD~2", "HEAD") if committed else ("HEAD~1",)
    done = harness("compare", base, *head, *NULL, "--json", "--no-save", cwd=root)
    assert done.statuses == {"commented": ("identical", "same-code")}
    assert done.status == ExitCode.FINE


def test_a_suite_that_settings_and_a_move_hide_is_missing(harness, tmp_path):
    root = make_project(tmp_path / "project", only("changed"))
    git(root, "mv", "kernels", "others")
    commit(root, {"pyproject.toml": HIDING}, 3)
    done = harness("compare", "HEAD~1", "HEAD", *NULL, "--json", "--no-save", cwd=root)
    told = {verdict["status"] for result in done.json for verdict in result["verdicts"]}
    assert told == {"missing", "new"}
    assert done.status == 1


def test_what_the_environment_names_is_all_there_is(harness, tmp_path, monkeypatch):
    root = make_project(tmp_path / "project", only("slower"))
    git(root, "mv", "kernels/toy", "other")
    commit(root, {}, 3)
    monkeypatch.setenv("HARNESS_SUITES", "other")
    done = harness("compare", "HEAD~1", "HEAD", *NULL, "--json", "--no-save", cwd=root)
    assert done.statuses == {"slower": ("new", "only-in-head")}


@pytest.mark.parametrize(("broken", "side", "code"), [(0, "base", 3), (1, "head", 1)])
def test_a_suite_that_is_broken_at_one_commit_costs_its_cases(harness, tmp_path, broken, side, code):
    repository = make_repository(tmp_path / "p")
    sides = [files(0, only("untouched", "changed")) for _ in range(2)]
    sides[broken]["kernels/toy/suite.py"] = "import harness\nsuite = 1 / 0\n"
    for day, each in enumerate(sides, 1):
        commit(repository, each, day)
    done = harness("compare", "HEAD~1", "HEAD", *NULL, "--json", cwd=repository)
    assert done.status == code
    assert {status for status, _ in done.statuses.values()} == {"failed"}
    for verdict in done.json[0]["verdicts"]:
        assert verdict["side"] == side
        assert "ZeroDivisionError" in verdict["message"]
        assert "Traceback" in verdict["log"]


def test_a_suite_that_is_broken_at_both_commits_is_status_2(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    commit(repository, {**files(0, only("changed")), "kernels/toy/suite.py": "suite = 1 / 0\n"}, 1)
    done = harness("compare", "HEAD", *NULL, cwd=repository)
    assert done.status == ExitCode.USAGE
    assert "ZeroDivisionError" in done.err


def test_a_suite_that_is_broken_at_both_commits_costs_no_other_suite(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    for day in (1, 2):
        commit(repository, {**files(0, only("changed")), "kernels/bad/suite.py": f"suite = {day} / 0\n"}, day)
    done = harness("compare", "HEAD~1", "HEAD", *NULL, "--json", cwd=repository)
    assert "bad/suite.py:1 raised ZeroDivisionError" in done.failed_with(ExitCode.USAGE)
    assert len(done.json) == 1


def test_twins_test_the_comparison(harness, tmp_path, monkeypatch):
    repository = make_project(tmp_path / "p", only("changed"))
    monkeypatch.setenv("CI", "1")
    done = harness("compare", "HEAD~1", *NULL, cwd=repository)
    assert done.status == ExitCode.FINE, done
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[-1] for line in lines if line and line[0] in ("changed", "twin.same", "twin.planted")] == [
        "unchanged",
        "unchanged",
        "regression",
    ]
    [record] = (repository / "results").rglob("*.jsonl")
    stored = read_comparison(record)
    assert [v.case for v in stored.every_verdict] == ["toy.changed[n=64]", "twin.same", "twin.planted"]
    planted = stored.twins[-1].time
    assert planted is not None
    assert planted.effect == pytest.approx(0.01, rel=0.1)
    assert stored.comparison.settings["twins"] is True


def test_no_twins_are_measured_where_none_are_wanted(harness, untouched, monkeypatch):
    monkeypatch.setenv("CI", "1")
    done = harness("compare", "HEAD~1", *NULL, "--json", "--no-save", "--no-twins", cwd=untouched[0])
    [result] = done.json
    assert result["twins"] == []


def test_a_calibration_is_what_later_verdicts_rest_on(harness, tmp_path, null_script):
    null_script({"noise": {"kind": "quiet", "seed": 1}})
    repository = make_project(tmp_path / "p", only("changed"))
    done = harness("calibrate", *NULL, "--trials", "2", "--planted-trials", "0", "--json", cwd=repository)
    assert done.status == ExitCode.FINE
    [result] = done.json
    assert result["calibration"]["verdicts"] == 2
    assert Path(result["path"]) == repository / "results" / "null" / "calibration.harness"
    assert "calibration.harness" not in [path.name for path in repository.rglob("*.json*")]
    done = harness("compare", "HEAD~1", *NULL, cwd=repository)
    assert done.status == ExitCode.FINE
    assert f"Calibrated {result['calibration']['measured_at'][:10]}: 0 false alarms in 2 verdicts" in done.out
    [record] = [
        path for path in (repository / "results").rglob("*.jsonl") if ".." in path.name and _is_compare(path)
    ]
    stored = read_comparison(record)
    assert stored.comparison.calibrated_at == result["calibration"]["measured_at"]
    [verdict] = stored.verdicts
    assert verdict.noise_floor is not None
    assert verdict.noise_floor > 0


def _is_compare(path: Path) -> bool:
    return read_comparison(path).comparison.command == "compare"


def test_a_missing_calibration_is_not_told_where_nothing_was_measured(harness, repository):
    done = harness("compare", "HEAD~1", "HEAD", "fresh", *NULL, "--no-save", cwd=repository)
    assert "fresh" in done.out
    assert "calibrate" not in done.out


NEWER = b'{"schema_version": 99, "measured_at": "", "harness_version": "", "uuid": null, "driver": ""}'


def test_a_calibration_that_cannot_be_read_is_status_3(harness, untouched):
    file = untouched[0] / "results" / "null" / "calibration.harness"
    file.parent.mkdir(parents=True)
    for content, words in (
        (b"{", "Delete it and run 'harness calibrate'"),
        (b"\xff\xfe", "Delete it and run 'harness calibrate'"),
        (b'{"schema_version": 1}', "Delete it and run 'harness calibrate'"),
        (NEWER, "Upgrade gpu-harness"),
    ):
        file.write_bytes(content)
        done = harness("compare", "HEAD~1", *NULL, cwd=untouched[0])
        assert done.status == ExitCode.NOT_MEASURED
        assert words in done.err
        assert str(file) in done.err
        assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--levels", "a"], "expected percents between 0 and 100"),
        (["--levels", "0"], "expected percents between 0 and 100"),
        (["--levels", "1,100"], "expected percents between 0 and 100"),
        (["--trials", "0"], "not in the range"),
        (["nosuch"], "No kernel matches 'nosuch'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_calibration_that_makes_no_sense_is_status_2(harness, repository, arguments, words):
    done = harness("calibrate", *arguments, *NULL, cwd=repository)
    assert done.status == ExitCode.USAGE
    assert words in done.err


def test_a_full_disk_is_found_out_before_measuring(untouched):
    done = run_command("compare", "HEAD~1", "HEAD", *NULL, cwd=untouched[0], file_limit_bytes=0)
    assert done.returncode == ExitCode.NOT_MEASURED
    assert "Traceback" not in done.stderr
    assert "process 1" not in done.stderr


def test_a_disk_that_fills_up_on_the_way_costs_no_verdict(tmp_path, shared_cache):
    repository = make_project(tmp_path / "p", only("changed"))
    for revision in ("HEAD~1", "HEAD"):  # exported before
        run_command("list", "--commit", revision, cwd=repository)
    done = run_command("compare", "HEAD~1", "HEAD", *NULL, cwd=repository, file_limit_bytes=8192)
    assert done.returncode == ExitCode.NOT_MEASURED
    assert "Cannot write to" in done.stderr
    assert "Traceback" not in done.stderr
    assert "1 unchanged" in done.stdout
    assert "Record:" not in done.stderr


# What a kernel cannot do by itself, its worker does: end, or wait, while quads are measured.

IN_WORKER = """
import os, signal, time
from pathlib import Path

def counted(frame, event, argument):
    if event != "call" or frame.f_code.co_name != "measure_pair":
        return
    folder = Path(FOLDER)
    number = len(list(folder.iterdir()))
    folder.joinpath(f"call{number}").touch()
    if number == NUMBER:
        ACTION

sys.setprofile(counted)  # to replace the function would be found out
"""


def at_call(folder: Path, number: int, action: str) -> dict[str, str]:
    """The environment in which the `number`th measurement of all goes another way."""
    calls = folder / "calls"
    calls.mkdir()
    text = IN_WORKER.replace("FOLDER", repr(str(calls))).replace("NUMBER", str(number))
    return in_workers(folder / "site", text.replace("ACTION", action))


@pytest.mark.parametrize(
    ("action", "reason", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", "SIGKILL while measuring"),
        ("time.sleep(3600)", "timed-out", "No answer within 4 s while measuring"),
    ],
    ids=["crash", "hang"],
)
def test_what_fails_while_both_are_measured_is_nobodys_fault(
    harness, tmp_path, monkeypatch, action, reason, words
):
    for name, value in at_call(tmp_path, 1, action).items():
        monkeypatch.setenv(name, value)
    repository = make_project(tmp_path / "project", dict.fromkeys(("one", "two"), KERNELS["changed"]))
    done = harness("compare", "HEAD~1", "HEAD", *NULL, "--json", "--timeout", "4", cwd=repository)
    assert sorted(done.statuses.values()) == [("failed", reason), ("unchanged", "within-tolerance")]
    failed = next(each for each in done.json[0]["verdicts"] if each["status"] == "failed")
    assert failed["side"] == ""
    assert words in failed["message"]
    assert done.status == ExitCode.NOT_MEASURED


class Running:
    """`harness` in a process of its own, at the moment that its fourth measurement hangs."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        names = ("one", "two")
        self.repository = make_project(folder / "project", dict.fromkeys(names, KERNELS["changed"]))
        self.process = programs.popen(
            [sys.executable, "-c", "from harness.cli import main; main()", *arguments],
            cwd=self.repository,
            env={**os.environ, **at_call(folder, 3, "time.sleep(3600)")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not (folder / "calls" / "call3").exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the fourth measurement was never reached"
            time.sleep(0.02)
        self.workers = psutil.Process(self.process.pid).children(recursive=True)

    def interrupt(self) -> Compared:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        return Compared(self.process.returncode, out, err)


@pytest.fixture
def running(tmp_path):
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_an_interrupt_keeps_what_was_finished_and_judges_what_can_be(running):
    started = running("compare", "HEAD~1", "HEAD", *NULL, "--json")
    done = started.interrupt()
    assert done.status == ExitCode.INTERRUPTED
    assert "Traceback" not in done.err
    assert sorted(done.statuses.values()) == [
        ("inconclusive", "interrupted"),
        ("unchanged", "within-tolerance"),
    ]
    [result] = done.json
    assert result["complete"] is False
    for verdict in result["verdicts"]:
        assert verdict["complete"] is (verdict["status"] == "unchanged")
        assert ("nterrupted" in verdict["message"]) is (verdict["status"] == "inconclusive")
    [record] = (started.repository / "results").rglob("*.jsonl")
    stored = read_comparison(record)
    assert stored.interrupted
    assert len(stored.blocks) == 3
    assert len(stored.verdicts) == 2
    gone = psutil.wait_procs(started.workers, timeout=20)[1]
    assert gone == []


def test_an_interrupted_comparison_says_so_and_prints_its_table(running):
    done = running("compare", "HEAD~1", "HEAD", *NULL).interrupt()
    assert done.status == ExitCode.INTERRUPTED
    assert "Interrupted: verdicts use finished measurements only." in done.err
    assert "interrupted" in done.out
    assert "Exit status 130." in done.out


def test_the_working_tree_of_the_toy_project(harness, project: Project):
    """The suite of every other test file, against its own commit."""
    done = harness("compare", "HEAD", *NULL, "--json")
    assert done.status == ExitCode.FINE
    assert done.statuses == dict.fromkeys(["plain", "tiled"], ("identical", "same-code"))
    project.write({"kernels/toy/plain.cu": toy.BODY.format(name="plain").replace("2 * x", "x[i] + x")})
    assert harness("compare", "HEAD", "tiled", *NULL, "--json").statuses == {
        "tiled": ("identical", "same-code")
    }


@pytest.fixture
def written_later(tmp_path, monkeypatch):
    """Kernels of one commit, slower ones of the next, and a suite beside them that no commit has yet."""
    root = make_repository(tmp_path / "strangers")
    kernels = {name: text for name, text in toy.FILES.items() if name.endswith(".cu")}
    name = "kernels/toy/plain.cu"
    base = commit(root, {**kernels, name: f"#define NULL_DEVICE_NS {MS}\n{kernels[name]}"}, 1)
    head = commit(root, {name: f"#define NULL_DEVICE_NS {2 * MS}\n{kernels[name]}"}, 2)
    write_files(root, {name: text for name, text in toy.FILES.items() if name not in kernels})
    monkeypatch.chdir(root)
    return root, base, head


def test_kernels_of_before_the_suite_are_measured_by_a_later_one(harness, written_later):
    root, base, head = written_later
    asked = ("compare", f"{base}..{head}", "--suite-from")
    uncommitted = harness(*asked, ".", *NULL)
    assert uncommitted.status == ExitCode.REGRESSION, uncommitted.err
    assert "toy (suite.py of the working tree)" in uncommitted.out
    later = commit(root, {"kernels/toy/plain.cu": "wrong"}, 3)
    committed = harness(*asked, "HEAD", *NULL, "--json")
    [document] = committed.json
    assert {v["kernel"]: v["status"] for v in document["verdicts"]} == {
        "plain": "regression",
        "tiled": "identical",
    }
    record = read_comparison(Path(document["record"])).comparison
    assert (record.base.commit, record.head.commit) == (base, head)
    assert record.base.suite_from == record.head.suite_from == later
    assert git(root, "status", "--porcelain", "--untracked-files=no") == ""
    assert harness("run", "--commit", base, "--suite-from", "HEAD", *NULL).status == 0


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("compare", "{base}..{head}", "--suite-from", "{base}"), "No suite in"),
        (("run", "--suite-from", "{head}"), "say which, with --commit"),
        (("compare", "{base}", "--suite-from", "nothing"), "No commit named 'nothing'"),
    ],
)
def test_a_commit_without_the_suite_that_is_asked_for(harness, written_later, asked, says):
    _, base, head = written_later
    done = harness(*(word.format(base=base, head=head) for word in asked), *NULL)
    assert done.status == ExitCode.USAGE
    assert says in done.err
