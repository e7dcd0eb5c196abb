"""`harness compare --with-command`: two builds of a benchmark executable, run in turns and judged."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DeviceError, ExitCode
from harness.records.imports.imported_files import read_imported
from harness.records.record_files import read_comparison
from harness.records.types import Snapshot, Telemetry
from harness.report.document.document import decode_review
from harness.run.executables import compare_executables, executable_build
from tests.benchmark_json import (
    google_entry,
    google_script,
    nvbench_file,
    nvbench_script,
    nvbench_state,
    nvbench_summary,
)
from tests.support import commit, git, make_repository, write_files

pytestmark = pytest.mark.usefixtures("own_cache")

RUN = "sh bench.sh"


def project(root, base, head):
    """A repository whose two commits have these scripts; None for none."""
    repository = make_repository(root)
    for day, script in enumerate((base, head), 1):
        files = {"bench.sh": script} if script else {}
        commit(repository, {"harness.toml": "", "day": str(day), **files}, day)
    return repository


@pytest.fixture
def compare(harness):
    """Compares a repository's two newest commits by what its script measures."""

    def run(repository, *more, command=RUN):
        asked = ("compare", "HEAD~1", "HEAD", "--with-command", command, "--json", *more)
        return harness(*asked, cwd=repository)

    return run


def verdicts_of(done):
    [told] = done.json
    return {verdict["kernel"]: verdict for verdict in told["verdicts"]}


BASE = [
    google_entry("slower/64", 100),
    google_entry("faster", 100),
    google_entry("same", 100),
    google_entry("gone", 100),
    google_entry("broken", 100),
    google_entry("skipped_later", 100),
    {**google_entry("never"), "skipped": True, "skip_message": "no such card"},
]
HEAD = [
    google_entry("slower/64", 110),
    google_entry("faster", 90),
    google_entry("same", 100.5),
    google_entry("fresh", 100),
    {**google_entry("broken"), "error_occurred": True, "error_message": "it went wrong"},
    {**google_entry("skipped_later"), "skipped": True, "skip_message": "no more"},
    {**google_entry("never"), "skipped": True, "skip_message": "no such card"},
]


@pytest.fixture
def done(compare, tmp_path):
    return compare(project(tmp_path / "p", google_script(BASE), google_script(HEAD)))


def test_every_case_has_its_verdict(done):
    said = verdicts_of(done)
    assert {name: (each["status"], each["reason"]) for name, each in said.items()} == {
        "slower": ("regression", "slower-in-time"),
        "faster": ("improvement", "faster-in-time"),
        "same": ("unchanged", "within-tolerance"),
        "gone": ("missing", "only-in-base"),
        "fresh": ("new", "only-in-head"),
        "broken": ("failed", "not-measured"),
        "skipped_later": ("failed", "skips-itself"),
    }
    assert (said["broken"]["side"], said["broken"]["message"].endswith("it went wrong")) == ("head", True)
    assert said["skipped_later"]["message"] == "It skips itself at head. no more"
    assert said["slower"]["case"] == "bench.slower[arg1=64]"
    assert said["slower"]["time"]["effect"] == pytest.approx(0.1)
    assert said["slower"]["message"].startswith("10.0 % slower (+")
    assert "rounds of 20 runs" in said["slower"]["message"]
    [told] = done.json
    assert told["left_out"] == ["never: no such card"]
    assert done.status == ExitCode.REGRESSION


def test_a_record_has_every_quad(harness, compare, tmp_path):
    script = google_script([google_entry("copy", 100)])
    repository = project(tmp_path / "p", script, script)
    [told] = compare(repository, "--suite", "mine").json
    stored = read_comparison(Path(told["record"]))
    assert not stored.interrupted
    assert [len(each.block.quads) for each in stored.blocks] == [5, 5]
    assert {each.case for each in stored.blocks} == {"mine.copy[]"}
    quads = [quad for each in stored.blocks for quad in each.block.quads]
    assert {time_ns for quad in quads for time_ns in quad.times_ns} == {100}
    assert stored.comparison.settings["base_command"] == RUN
    commits = [source.commit for source in (stored.comparison.base, stored.comparison.head)]
    assert commits == [git(repository, "rev-parse", name) for name in ("HEAD~1", "HEAD")]
    again = harness("rejudge", told["record"], cwd=repository)
    assert "1 as then" in again.out


LATER = '{"context": {"num_cpus": 1, "json_schema_version": 7}, "benchmarks": []}'
FAILING = [
    ("exit 3", "crashed", "exited with status 3"),
    ("kill -SEGV $$", "crashed", "was ended by SIGSEGV"),
    ("sleep 30", "timed-out", "within 1 s"),
    ("exit 0", "no-json", "wrote no JSON"),
    ('echo \'{"context": {\' > "$out"; exit 0', "store", "is damaged"),
    (f"echo '{LATER}' > \"$out\"; exit 0", "store", "known here is 1"),
]


@pytest.mark.parametrize(
    ("does", "reason", "words"), FAILING, ids=[each[1] + str(n) for n, each in enumerate(FAILING)]
)
@pytest.mark.parametrize("side", ["base", "head"])
def test_an_executable_that_fails_at_one_commit_is_no_pass(compare, tmp_path, does, reason, words, side):
    good = google_script([google_entry("copy"), google_entry("scale")])
    bad = google_script([google_entry("copy")], f"echo 'what it said last' >&2\n{does}")
    repository = project(tmp_path / "p", *((bad, good) if side == "base" else (good, bad)))
    limit = ("--timeout", "1") if reason == "timed-out" else ()
    done = compare(repository, "--format", "google-benchmark", *limit)
    for verdict in verdicts_of(done).values():
        assert (verdict["status"], verdict["reason"], verdict["side"]) == ("failed", reason, side)
        assert words in verdict["message"]
        assert verdict["log"].startswith("what it said last")
    assert set(verdicts_of(done)) == {"copy", "scale"}
    assert done.status == (ExitCode.REGRESSION if side == "head" else ExitCode.NOT_MEASURED)


def test_one_executable_that_fails_costs_no_other_its_verdict(compare, tmp_path):
    repository = make_repository(tmp_path / "p")
    good = google_script([google_entry("copy")])
    for day in (1, 2):
        commit(repository, {"harness.toml": "", "good.sh": good, "bad.sh": "exit 1", "day": str(day)}, day)
    more = ("--with-command", "sh good.sh", "--format", "google-benchmark", "--no-save")
    done = compare(repository, *more, command="sh bad.sh")
    bad, good = (each["verdicts"] for each in done.json)
    assert [(each["case"], each["status"]) for each in bad] == [("bad_sh.executable[]", "failed")]
    assert [(each["case"], each["status"]) for each in good] == [("bench.copy[]", "unchanged")]


def test_each_commit_is_built_in_files_of_its_own(compare, tmp_path):
    script = google_script([google_entry("copy", 100)])
    repository = project(tmp_path / "p", script, script.replace('"cpu_time": 100', '"cpu_time": 120'))
    trace = tmp_path / "trace"
    build = f"test ! -e built && cp bench.sh built && pwd >> {trace}"
    done = compare(repository, "--no-save", "--build-command", build, command="sh built")
    assert verdicts_of(done)["copy"]["status"] == "regression"
    folders = [Path(line) for line in trace.read_text().split()]
    assert [folder.name for folder in folders] == ["base", "head"]
    assert not any(folder.exists() for folder in folders)
    assert git(repository, "status", "--porcelain") == ""


def test_a_build_that_fails_is_of_its_side(compare, tmp_path):
    script = google_script([google_entry("copy")])
    repository = project(tmp_path / "p", script, script)
    commit(repository, {"broken": ""}, 3)
    build = "if test -e broken; then echo 'error: no such type'; exit 1; fi"
    said = verdicts_of(compare(repository, "--no-save", "--build-command", build))["copy"]
    assert (said["status"], said["reason"], said["side"]) == ("failed", "build-failed", "head")
    assert said["log"] == "error: no such type"


def test_the_working_tree_is_compared_as_it_is(harness, tmp_path):
    script = google_script([google_entry("copy", 100)])
    repository = project(tmp_path / "p", script, script)
    write_files(repository, {"bench.sh": script.replace('"cpu_time": 100', '"cpu_time": 120')})
    (repository / "day").unlink()
    done = harness("compare", "HEAD", "--with-command", RUN, "--json", "--no-save", cwd=repository)
    assert verdicts_of(done)["copy"]["status"] == "regression"
    [told] = done.json
    assert (told["comparison"]["base"]["dirty"], told["comparison"]["head"]["dirty"]) == (False, True)


def test_executables_that_are_built_already_need_no_commit(harness, tmp_path, monkeypatch):
    for name, time in (("old.sh", 120), ("new.sh", 100)):
        entries = [google_entry("copy/64", time), google_entry("scale", time)]
        (tmp_path / name).write_text(google_script(entries))
    given = ("--base-command", "sh old.sh", "--head-command", "sh new.sh", "--json", "--no-save")
    done = harness("compare", *given, cwd=tmp_path)
    assert {each["status"] for each in verdicts_of(done).values()} == {"improvement"}
    [told] = done.json
    assert told["comparison"]["base"]["commit"] is None


def test_cases_are_chosen_by_name(compare, tmp_path):
    script = google_script([google_entry("copy/64"), google_entry("copy/128"), google_entry("scale")])
    repository = project(tmp_path / "p", script, script)
    [told] = compare(repository, "--no-save", "*.copy@64").json
    assert [each["case"] for each in told["verdicts"]] == ["bench.copy[arg1=64]"]


def test_a_benchmark_that_vanishes_later_on_has_failed(compare, tmp_path):
    entries = [google_entry("copy"), google_entry("scale")]
    script = google_script(entries, "test -e ran && name=other; touch ran")
    script = script.replace("cat >", 'sed "s/copy/${name:-copy}/g" >')
    said = verdicts_of(compare(project(tmp_path / "p", script, script), "--no-save"))
    assert (said["copy"]["status"], said["copy"]["reason"]) == ("failed", "not-measured")
    assert said["scale"]["status"] == "unchanged"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("HEAD", "--build-command", "make"), "--build-command is of no use without --with-command"),
        (("HEAD", "--with-command", RUN, "--quick"), "--quick has no effect on executables"),
        (("HEAD", "--with-command", RUN, "--size", "64"), "--size has no effect on executables"),
        (("--with-command", RUN), "--with-command needs commits"),
        (("--base-command", RUN), "--base-command and --head-command go together"),
        (("HEAD", "--with-command", RUN, "--base-command", RUN), "--with-command runs both sides"),
        (("HEAD", "--with-command", "'", "--format", "nvbench"), "no command of a shell"),
    ],
)
def test_what_makes_no_sense_is_status_2(harness, tmp_path, arguments, words):
    repository = project(tmp_path / "p", None, None)
    done = harness("compare", *arguments, cwd=repository)
    assert (done.status, words in done.err.replace("\n", " ")) == (ExitCode.USAGE, True), done.err


def test_an_nvbench_executable_tells_its_card_and_its_clock(compare, tmp_path, monkeypatch):
    def no_card(_spec):
        raise DeviceError("PyCUDA is missing")

    monkeypatch.setattr(compare_executables, "find_device", no_card)
    scripts = []
    for time_s in (1e-3, 1.02e-3):
        state = nvbench_state({"Elements": 1024, "T": "F32"}, time_s)
        state["summaries"].append(nvbench_summary("nv/cold/sm_clock_rate/mean", 1.5e9))
        scripts.append(nvbench_script(nvbench_file(tmp_path / "a.json", {"copy": [state]})))
    [told] = compare(project(tmp_path / "p", *scripts)).json
    [said] = told["verdicts"]
    assert (said["case"], said["status"]) == ("my_bench.copy_T_F32[Elements=1024]", "regression")
    assert (said["base"]["sm_clock_mhz"], said["attribution"]) == (1500, "code")
    assert (said["time"]["effect"], said["cycles"]["effect"]) == pytest.approx((0.02, 0.02))
    described = told["comparison"]
    assert (described["device"]["name"], described["settings"]["margin"]) == ("Quadro GV100", 0.0025)
    assert said["unavailable"]["contention"]


def test_an_interrupted_comparison_leaves_what_it_has(compare, tmp_path, monkeypatch):
    script = google_script([google_entry("copy")])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    runs = []

    def run_once(*given):
        runs.append(given)
        if len(runs) == 30:
            raise KeyboardInterrupt
        return executable_build.run_once(*given)

    monkeypatch.setattr(compare_executables, "run_once", run_once)
    done = compare(project(tmp_path / "p", script, script))
    [told] = done.json
    stored = read_comparison(Path(told["record"]))
    assert (done.status, told["complete"], stored.interrupted) == (ExitCode.INTERRUPTED, False, True)
    assert [(each.status, each.reason) for each in stored.verdicts] == [("inconclusive", "interrupted")]
    assert len(stored.blocks) == 1


def test_a_budget_ends_it(compare, tmp_path):
    script = google_script([google_entry("copy")])
    done = compare(project(tmp_path / "p", script, script), "--no-save", "--budget", "1e-9")
    assert verdicts_of(done)["copy"]["reason"] == "budget-spent"
    assert done.status == ExitCode.INCONCLUSIVE


def test_a_project_below_the_top_runs_its_command_there(compare, tmp_path):
    repository = make_repository(tmp_path / "p")
    script = google_script([google_entry("copy")], "test -e ../top || exit 1")
    for day in (1, 2):
        commit(repository, {"sub/harness.toml": "", "sub/bench.sh": script, "top": str(day)}, day)
    done = compare(repository / "sub", "--no-save")
    assert verdicts_of(done)["copy"]["status"] == "unchanged"


def test_its_review_can_be_posted_and_says_how_it_was_measured(harness, compare, tmp_path):
    base, head = ([google_entry("BM_a<int*>/64/real_time", time)] for time in (100, 120))
    repository = project(tmp_path / "p", google_script(base), google_script(head))
    [told] = compare(repository).json
    assert told["verdicts"][0]["case"] == "bench.BM_a_int_ptr_real_time[arg1=64]"
    asked = ("report", "--format", "github", "--out", str(tmp_path / "out"), told["record"])
    done = harness(*asked, cwd=repository)
    assert done.status == ExitCode.REGRESSION, done.err
    review = decode_review((tmp_path / "out" / "review.json").read_bytes())
    assert review.cards[0].executables
    comment = (tmp_path / "out" / "comment.md").read_text()
    assert "2 rounds of runs" in comment
    assert "Nothing was verified" in comment
    assert "harness compare" not in comment


def test_a_process_that_is_there_in_two_slots_is_none_of_ours():
    def mark(at_ns, *pids):
        return Snapshot(at_ns=at_ns, processes=pids)

    run: Any = None
    slots = [compare_executables._Slot(at, at + 10, run) for at in (0, 20, 40)]
    seen = Telemetry(
        probe="nvml",
        before=mark(-1),
        during=(mark(5, 7, 100), mark(15, 100), mark(25, 8, 100), mark(45, 9)),
        after=mark(60),
    )
    found = compare_executables._while_running(seen, slots)
    assert found.foreign_processes == (100,)
    assert [each.at_ns for each in found.during] == [5, 25, 45]
    two = dataclasses.replace(seen, during=(mark(5, 7), mark(25, 8)))
    assert compare_executables._while_running(two, slots).foreign_processes == ()
    blind = compare_executables._while_running(dataclasses.replace(seen, during=(mark(5), mark(25))), slots)
    assert blind.foreign_processes is None
    assert blind.unavailable["foreign_processes"]


def test_another_card_than_the_one_that_is_watched_is_an_error(compare, tmp_path, monkeypatch):
    told = read_imported(nvbench_file(tmp_path / "b.json", {"copy": [nvbench_state()]})).devices[0].device
    other = dataclasses.replace(told, name="NVIDIA H200")
    monkeypatch.setattr(compare_executables, "find_device", lambda _spec: other)
    script = nvbench_script(nvbench_file(tmp_path / "a.json", {"copy": [nvbench_state()]}))
    done = compare(project(tmp_path / "p", script, script))
    assert done.status == ExitCode.USAGE
    assert "head measured on Quadro GV100, and cuda:0 is NVIDIA H200" in done.err


def test_a_benchmarks_name_is_taken_as_it_is_by_regular_expressions_of_any_library(tmp_path):
    """Google Benchmark's are those of C++, or without exceptions GNU's, which grep's are."""
    name = "BM_copy<float, 4>/n:64/[a]+(b)^c$d*e?f{2}|g\\h.i"
    given = shlex.split(executable_build.command_for("bench", "google-benchmark", tmp_path / "out", [name]))
    pattern = given[-1].removeprefix("--benchmark_filter=")
    assert re.search(pattern, name)
    for text, found in ((name, 0), (name.replace(".", "-"), 1)):
        done = subprocess.run(["grep", "-qE", pattern], input=text, text=True, check=False)
        assert done.returncode == found
