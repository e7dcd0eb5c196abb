"""A run on the null device, with everything that can go wrong in it: one case's trouble is its own row's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.device.backends import null
from harness.errors import DeviceError, GitError, SuiteError, UsageError
from harness.history.row_summary import summary_of
from harness.measure.timing import MeasureSettings
from harness.records.record_files import read_run
from harness.records.types import Launch
from harness.report.terminal.run_tables import run_tables
from harness.run import device_session
from harness.run.device_session import find_device
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load
from harness.suite.planning import plan
from tests import toy
from tests.support import (
    IMPORT_PATH,
    PORTABLE,
    Recorder,
    commit,
    device_is_missing,
    make_repository,
    programs,
    records_below,
    statuses,
    write_files,
    write_null_script,
)

QUICK = MeasureSettings(min_time_s=0.01, warmup_min_s=0.01, warmup_max_s=0.05, max_time_s=0.1)

FAULTS = {
    "build": ("build-failed", "does not compile"),
    "wrong": ("wrong-result", "1 of 32 elements of y are wrong"),
    "nan": ("wrong-result", "never written, or computed from outside the inputs"),
    "unwritten": ("wrong-result", "32 of 32 elements of y are wrong"),
    "overrun": ("wrong-result", "wrote outside its arrays"),
    "crash": ("crashed", "SIGSEGV while verifying"),
    "hang": ("timed-out", "No answer within 4 s while verifying"),
    "error": ("launch-refused", "makes this launch fail"),
    "memory": ("out-of-memory", "run out of memory"),
}

LADDER = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Double(Problem):
    n = Axis(default=(32,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x

    def flop(self, case):
        return case.n


suite = Suite("tiny", Double(), kernels=[Kernel(name, "k.cu", block=32, grid=1) for name in NAMES])
"""


def ladder(folder: Path, names: list[str], text: str = LADDER) -> Path:
    write_files(folder, {"suite.py": text.replace("NAMES", repr(names)), "k.cu": "// nothing\n"})
    return folder


def run_all(folder: Path, **settings):
    loaded = load(folder)
    observer = Recorder()
    with Session(
        loaded, SessionSettings(**{"device": "null", "measure": QUICK, **settings}), observer
    ) as session:
        return session.run(plan(loaded.suite)), observer


@pytest.mark.parametrize("device", ["null", "opencl:0"])
def test_a_grid_as_large_as_the_device_holds_at_once(tmp_path, device):
    write_files(tmp_path / "wave", toy.persistent(PORTABLE))
    loaded = load(tmp_path / "wave")
    try:
        with Session(loaded, SessionSettings(device=device, measure=None), Recorder()) as session:
            rows = session.run(plan(loaded.suite, quick=True)).rows
    except DeviceError as error:
        device_is_missing(device, error.message)
    became = "not-built" if device == "null" else "verified"
    assert [(row.status, row.message) for row in rows] == [(became, "")] * 2
    assert session.device.compute_units is not None
    units, threads = session.device.compute_units, session.device.max_threads_per_block
    expected = Launch(grid=(units, 1, 1), block=(threads // 4, 1, 1))
    assert [row.launch for row in rows] == [expected] * 2


def test_launch_attributes_are_checked_and_recorded(tmp_path):
    of_launch = {
        "held": "grid=1, cooperative=True, cluster=(1, 1)",
        "too_many": "grid=2, cooperative=True",
        "odd": "grid=3, cluster=2",
        "plain": "grid=1",
    }
    kernels = "".join(f"Kernel('{name}', 'k.cu', block=32, {each})," for name, each in of_launch.items())
    text = LADDER.partition("suite = ")[0] + f"suite = Suite('tiny', Double(), kernels=[{kernels}])\n"
    waits = "__global__ void {}(float *x) {{ cooperative_groups::this_grid().sync(); }}\n"
    folder = write_files(tmp_path / "tiny", {"suite.py": text, "k.cu": waits.format("held")})
    result, _ = run_all(folder, results=tmp_path / "results")
    assert statuses(result.rows) == [
        ("held", "measured", ""),
        ("too_many", "failed", "launch-refused"),
        ("odd", "skipped", "launch-refused"),
        ("plain", "measured", ""),
    ]
    held, too_many, odd, _ = result.rows
    assert held.launch == Launch(grid=(1, 1, 1), block=(32, 1, 1), cooperative=True, cluster=(1, 1, 1))
    assert "cooperative grid 2x1x1 has more than the 1 blocks that null holds at once" in too_many.message
    assert "Grid 3x1x1 is no multiple of cluster 2x1x1" in odd.message
    ((_, rows, _),) = records_below(tmp_path / "results")
    assert rows[0].launch == held.launch
    write_files(folder, {"k.cu": waits.format("plain")})
    refused = run_all(folder)[0].rows[-1]
    assert refused.reason == "launch-refused"
    assert "plain of tiny.plain waits for its whole grid" in refused.message


def test_cases_by_graph_are_measured_beside_eager_ones(tmp_path, monkeypatch):
    brief = {"times_ns": [3000.0], "graph_times_ns": [2000.0]}
    script = {"tiny.brief": brief, "tiny.broken": {"fault": "capture"}, "tiny.always": brief}
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", write_null_script(tmp_path / "script.json", script))
    text = LADDER.replace("grid=1)", "grid=1, graph=name == 'always')")
    folder = ladder(tmp_path / "tiny", ["brief", "broken", "always"], text)
    loaded = load(folder)
    settings = SessionSettings(device="null", measure=QUICK, results=tmp_path / "results")
    with Session(loaded, settings, Recorder()) as session:
        result = session.run(plan(loaded.suite, graph=True))
    assert [(row.case, row.status, row.reason) for row in result.rows] == [
        ("tiny.brief[n=32]", "measured", ""),
        ("tiny.brief[n=32,graph=1]", "measured", ""),
        ("tiny.broken[n=32]", "measured", ""),
        ("tiny.broken[n=32,graph=1]", "failed", "graph-refused"),
        ("tiny.always[n=32]", "measured", ""),
    ]
    eager, graph, _, refused, always = result.rows
    for row, time_ns, l2, by_graph in (
        (eager, 3000, "cold", False),
        (graph, 2000, "hot", True),
        (always, 2000, "hot", True),
    ):
        assert row.measurement
        assert row.launch
        assert {*row.measurement.times_ns} == {time_ns}
        assert (row.measurement.l2, row.launch.graph) == (l2, by_graph)
    assert "makes this capture fail" in refused.message
    ((_, rows, _),) = records_below(tmp_path / "results")
    assert rows[1].launch == graph.launch
    ladder_of_32, *others = run_tables(result)
    assert not others
    assert ladder_of_32.columns[0].cells[:2] == ["brief", "brief graph=1"]
    assert "With a hot L2 cache, and the others cold: brief graph=1, always." in ladder_of_32.caption


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A ladder in which every second kernel has a fault, run once."""
    folder = tmp_path_factory.mktemp("faulty")
    names = ["first", *(name for fault in FAULTS for name in (fault, f"after_{fault}"))]
    script = {f"tiny.{fault}": {"fault": fault} for fault in FAULTS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_NULL_SCRIPT", write_null_script(folder / "script.json", script))
        patch.setenv("HARNESS_CACHE_DIR", str(folder / "cache"))
        result, observer = run_all(ladder(folder / "tiny", names), timeout_s=4.0, results=folder / "results")
    return result, observer


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_own_row_and_says_why(faulty, fault):
    result, _ = faulty
    reason, words = FAULTS[fault]
    row = next(row for row in result.rows if row.kernel == fault)
    assert (row.status, row.reason) == ("failed", reason)
    assert words in row.message
    assert row.message.endswith((".", "--timeout."))
    assert row.measurement is None
    assert row.telemetry is None


def test_every_other_kernel_is_measured(faulty):
    result, _ = faulty
    others = [row for row in result.rows if row.kernel not in FAULTS]
    assert len(others) == len(FAULTS) + 1
    assert {row.status for row in others} == {"measured"}
    assert all(row.measurement.times_ns for row in others)


def test_rows_come_in_ladder_order_as_they_finish(faulty):
    result, observer = faulty
    assert [row.kernel for row in result.rows] == list(result.run.kernels)
    assert tuple(observer.rows) == result.rows
    assert observer.stages[0] == "build"
    assert {"reference", "verify", "measure"} <= set(observer.stages)


def test_a_build_failure_keeps_the_compilers_log(faulty):
    result, _ = faulty
    assert "scripted fault" in next(row for row in result.rows if row.kernel == "build").log


def test_the_record_holds_what_the_run_returned(faulty):
    result, _ = faulty
    stored = read_run(result.path)
    assert stored.run == result.run
    assert stored.rows == result.rows
    assert not stored.interrupted
    assert result.path.parent.name == "null"


def test_measured_rows_have_telemetry_of_their_own_time(faulty):
    result, _ = faulty
    for row in (row for row in result.rows if row.status == "measured"):
        seen, times = row.telemetry, row.measurement
        assert seen.probe == "scripted"
        assert seen.before.at_ns <= times.started_ns <= times.ended_ns <= seen.after.at_ns
        assert seen.during
        assert {snapshot.sm_clock_mhz for snapshot in seen.during} == {1000.0}
        assert seen.unavailable["processes"]
        assert summary_of(row, result.run).temperature_c == 50.0


def test_a_failure_costs_the_size_it_happens_at(tmp_path):
    """A fault's process is not used again: the kernel's next size gets a new one."""
    text = LADDER.replace("(32,)", "(32, 64, 96)").replace(
        "return 2 * x", "return 2 * x if case.n != 64 else 1 // 0"
    )
    result, _ = run_all(ladder(tmp_path / "tiny", ["one", "two"], text))
    assert [(row.kernel, row.sizes["n"], row.status) for row in result.rows] == [
        (kernel, size, "failed" if size == 64 else "measured")
        for kernel in ("one", "two")
        for size in (32, 64, 96)
    ]
    broken = next(row for row in result.rows if row.status == "failed")
    assert broken.message.startswith("ZeroDivisionError")
    assert "suite.py" in broken.log
    assert "in reference" in broken.log


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return 2 * x", "return x[1:]", "expected shape (32,)"),
        ("return 2 * x", "raise SystemExit('leaving')", ""),
        ("return 2 * x", "import os; os._exit(7)", "exited with status 7"),
        ("block=32", "block=(32, 1, 1, 1)", "expected one to three integers"),
        ("block=32", "block=lambda case: case.missing", "no axis, macro or scalar named 'missing'"),
        ('"k.cu"', '"missing.cu"', "Cannot read kernel source"),
        ("grid=1", "grid=1, dynamic_shared_bytes=lambda case: 1 // 0", "ZeroDivisionError"),
        ("grid=1", "grid=1, args=('x', 'y', 'q')", "which is no array, scalar or axis"),
        ("return case.n", "return case.missing", "no axis, macro or scalar named 'missing'"),
    ],
    ids=[
        "shape",
        "exits",
        "dies",
        "block",
        "block raises",
        "no source",
        "shared memory raises",
        "arguments",
        "flop raises",
    ],
)
def test_a_suite_that_is_wrong_in_one_place_fails_its_rows(tmp_path, old, new, words):
    assert old in LADDER
    result, _ = run_all(ladder(tmp_path / "tiny", ["one", "two"], LADDER.replace(old, new)))
    assert [row.status for row in result.rows] == ["failed", "failed"]
    assert all(words in row.message for row in result.rows)
    assert all(row.reason for row in result.rows)


def test_a_kernel_that_the_device_cannot_run_is_skipped_with_a_reason(tmp_path):
    text = LADDER + "\nfrom dataclasses import replace\n"
    text += "suite = replace(suite, kernels=[*suite.kernels, replace(suite.kernels[0], name='tensor', "
    text += "requires='sm_70')])\n"
    result, _ = run_all(ladder(tmp_path / "tiny", ["one"], text))
    assert statuses(result.rows) == [("one", "measured", ""), ("tensor", "skipped", "needs-cuda")]
    assert "needs CUDA (sm_70)" in result.rows[1].message


def test_verifying_only_measures_nothing(tmp_path):
    result, observer = run_all(ladder(tmp_path / "tiny", ["one"]), measure=None)
    assert statuses(result.rows) == [("one", "not-built", "")]
    assert result.rows[0].measurement is None
    assert "measure" not in observer.stages


def test_times_are_the_scripted_ones(tmp_path, monkeypatch):
    script = {"tiny.one": {"times_ns": [4000.0]}}
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", write_null_script(tmp_path / "script.json", script))
    result, _ = run_all(ladder(tmp_path / "tiny", ["one"]))
    assert set(result.rows[0].measurement.times_ns) == {4000.0}
    assert summary_of(result.rows[0], result.run).gflops == 32 / 4000


def test_a_kernel_that_takes_no_time_fails_with_a_sentence(tmp_path, monkeypatch):
    script = {"tiny.one": {"times_ns": [0.0]}}
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", write_null_script(tmp_path / "script.json", script))
    [row] = run_all(ladder(tmp_path / "tiny", ["one"]))[0].rows
    assert (row.status, row.reason) == ("failed", "measure")
    assert "takes no time by scripted" in row.message


def test_a_seed_of_its_own_is_used_and_recorded(tmp_path):
    result, _ = run_all(ladder(tmp_path / "tiny", ["one"]), seed=7)
    assert {check.seed for check in result.rows[0].verification.checks} == {7}
    assert result.run.settings["seed"] == 7


@pytest.fixture
def history(tmp_path):
    """A repository whose suite breaks in the second commit and is mended in the third."""
    repository = make_repository(tmp_path / "project")
    hashes = [
        commit(repository, toy.FILES, 1),
        commit(repository, {"kernels/toy/suite.py": "import harness\nsuite = harness.Suit('toy')\n"}, 2),
        commit(repository, toy.FILES, 3),
    ]
    return repository, hashes


def test_a_suite_that_was_broken_at_one_commit_loads_at_the_others(history):
    repository, (first, second, third) = history
    folder = repository / "kernels" / "toy"
    sources = {revision: load(folder, revision).source for revision in (first, third)}
    assert sources[first].commit == first
    assert str(sources[first].committed_at).startswith("2026-01-01T12:00:00")
    assert sources[first].tree_sha256 == sources[third].tree_sha256
    with pytest.raises(SuiteError, match=r"suite\.py:2 raised AttributeError: .*'Suit'") as caught:
        load(folder, second)
    assert "Traceback" in caught.value.log


def test_an_older_commit_is_run_as_it_was(history):
    repository, (first, _, _) = history
    folder = repository / "kernels" / "toy"
    write_files(repository, {"kernels/toy/plain.cu": "no longer a kernel"})
    now, then = load(folder), load(folder, first)
    assert now.source.dirty
    assert not then.source.dirty
    with Session(then, SessionSettings(device="null", measure=QUICK), Recorder()) as session:
        rows = session.run(plan(then.suite, quick=True)).rows
    with Session(now, SessionSettings(device="null", measure=QUICK), Recorder()) as session:
        changed = session.run(plan(now.suite, quick=True)).rows
    assert [row.status for row in (*rows, *changed)] == ["measured"] * 4
    plain, tiled = (one.source_sha256 != two.source_sha256 for one, two in zip(rows, changed, strict=True))
    assert (plain, tiled) == (True, False)


def test_a_revision_that_is_not_there_is_named(history):
    repository, _ = history
    with pytest.raises(GitError, match="No commit named 'HEAD~9'"):
        load(repository / "kernels" / "toy", "HEAD~9")


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("foo", UsageError, "Unknown device 'foo'"),
        ("null:one", UsageError, "Unknown device 'null:one'"),
        ("null:" + "1" * 5000, UsageError, "Unknown device"),
        ("null:1", DeviceError, "There is no device null:1"),
    ],
)
def test_a_device_that_is_not_there(spec, error, words):
    with pytest.raises(error, match=words):
        find_device(spec)


def test_a_cache_that_cannot_be_flushed_is_not_called_cold(tmp_path):
    loaded = load(ladder(tmp_path / "tiny", ["one"]))
    settings = SessionSettings(device="opencl:0", measure=MeasureSettings(l2="cold"))
    try:
        device = find_device("opencl:0")
    except DeviceError as error:
        device_is_missing("opencl:0", error.message)
    if device.l2_bytes is not None:
        pytest.skip(f"{device.name} has a cache that can be flushed")
    with pytest.raises(UsageError, match="measure with --l2 hot"), Session(loaded, settings, Recorder()):
        pass


NOISY = """\
import os
import subprocess
import sys

print("a suite says hello")
os.write(1, b"and so does its file descriptor\\n")
subprocess.run([sys.executable, "-c", "print('and its child')"], check=True)
"""


def test_what_a_suite_prints_does_not_break_the_protocol(tmp_path):
    text = NOISY + LADDER.replace("return 2 * x", "print('{}'); sys.stdout.flush(); return 2 * x")
    result, _ = run_all(ladder(tmp_path / "tiny", ["one", "two"], text))
    assert [row.status for row in result.rows] == ["measured", "measured"]


def test_a_suite_that_reads_standard_input_does_not_swallow_requests(tmp_path):
    text = LADDER.replace("return 2 * x", "import sys; sys.stdin.read(); return 2 * x")
    result, _ = run_all(ladder(tmp_path / "tiny", ["one"], text), timeout_s=20.0)
    assert [row.status for row in result.rows] == ["measured"]


def test_what_a_kernel_prints_does_not_break_the_protocol(tmp_path):
    try:
        find_device("opencl:0")
    except DeviceError as error:
        device_is_missing("opencl:0", error.message)
    body = toy.BODY.format(name="plain").replace("if (i < n)", 'if (i == 0) printf("{}\\n"); if (i < n)')
    write_files(tmp_path, {**toy.FILES, "kernels/toy/plain.cu": body})
    loaded = load(tmp_path / "kernels" / "toy")
    settings = SessionSettings(device="opencl:0", measure=None)
    with Session(loaded, settings, Recorder()) as session:
        rows = session.run(plan(loaded.suite, quick=True)).rows
    assert [row.status for row in rows] == ["verified", "verified"]


# A real `harness run` that is ended while a kernel hangs.

HANGING = LADDER.replace(
    "    def reference",
    """    def data(self, case, rng):
        if case.kernel == "hangs":
            open(MARKER, "w").close()
        return super().data(case, rng)

    def reference""",
)


class Running:
    """`harness run` in a process of its own, at the moment that its second kernel hangs."""

    def __init__(self, folder: Path) -> None:
        marker = folder / "hangs"
        text = HANGING.replace("MARKER", repr(str(marker)))
        ladder(folder / "kernels" / "tiny", ["fine", "hangs", "never"], text)
        write_files(folder, {"harness.toml": 'suites = ["kernels/*"]\nresults = "results"\n'})
        script = write_null_script(folder / "script.json", {"tiny.hangs": {"fault": "hang"}})
        self.results, self.temporary = folder / "results", folder / "temporary"
        self.temporary.mkdir()
        self.process = programs.popen(
            [sys.executable, "-c", "from harness.cli import main; main()", "run", "--device", "null"],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": IMPORT_PATH,
                "HARNESS_NULL_SCRIPT": script,
                "TMPDIR": str(self.temporary),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not marker.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the second kernel was never reached"
            time.sleep(0.02)
        self.workers = psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        self.out, self.told = self.process.communicate(timeout=60)
        return self.process.returncode

    def survivors(self) -> list[psutil.Process]:
        deadline = time.monotonic() + 20
        while (alive := list(filter(_lives, self.workers))) and time.monotonic() < deadline:
            time.sleep(0.05)
        return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def running(tmp_path):
    started = Running(tmp_path)
    yield started
    for worker in started.workers:
        if _lives(worker):
            worker.kill()
    if started.process.poll() is None:
        started.process.kill()
        started.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_keeps_the_finished_rows_and_leaves_no_process(running, number):
    assert running.workers
    assert running.end(number) == 130
    assert running.survivors() == []
    assert "Traceback" not in running.told
    assert "Interrupted" in running.told
    [(run, rows, complete)] = records_below(running.results)
    assert not complete
    assert statuses(rows) == [("fine", "measured", "")]
    assert run.kernels == ("fine", "hangs", "never")
    assert not list(running.results.rglob("*.part"))
    assert "fine" in running.out
    assert not list(running.temporary.iterdir())


def test_workers_die_with_a_harness_that_is_killed(running):
    assert running.workers
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    assert running.survivors() == []
    [part] = running.results.rglob("*.part")
    stored = read_run(part)
    assert stored.interrupted
    assert statuses(stored.rows) == [("fine", "measured", "")]


def test_a_worker_outlives_no_session(tmp_path, started_workers):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    run_all(ladder(tmp_path / "tiny", ["one"]))
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.mark.parametrize(
    ("identity", "uuid", "driver"),
    [
        ({"uuid": "GPU-1", "driver": "580.1"}, "GPU-1", "580.1"),
        ({"uuid": "unavailable: not supported", "driver": "unavailable: unknown"}, None, "1"),
        ({}, None, "1"),
    ],
)
def test_a_fact_that_the_card_refuses_is_no_name(identity, uuid, driver):
    (device,) = null.devices()
    found = device_session.identified(device, identity)
    assert (found.uuid, found.driver) == (uuid, driver)
