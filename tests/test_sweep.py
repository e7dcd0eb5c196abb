"""A sweep on the null device: what is rejected, failed, measured, found best; and what an end in the middle
costs.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness.errors import DeviceError, MeasureError, StoreError, SuiteError
from harness.measure import protocol
from harness.records.sweep_journal import SweepState, read_sweep
from harness.records.sweep_types import (
    Configuration,
    Duel,
    Final,
    PreparedConfiguration,
    Repeat,
    Sweep,
    SweepRow,
    SweepSettings,
)
from harness.records.types import Effect, PairedBlock, Quad, Row
from harness.report.terminal.progress import SweepProgress
from harness.run.sweep.engine import SCREENING, identity
from harness.run.sweep.executors import Job, LocalExecutor
from harness.run.sweep.halving import Duels, HalvingResult, duel_effect, next_step
from harness.suite.configurations import configurations, points
from harness.suite.loader import load
from harness.system.process import Failed
from tests.support import IMPORT_PATH, ROOT, caller, run_command, run_forked
from tests.sweeps import MS, Here, project, sweep

TIMES = (1_300_000, 1_100_000, 1_000_000, 1_200_000)
BY_TIME = "parameters={'NULL_DEVICE_NS': (1_300_000, 1_100_000, 1_000_000, 1_200_000)}"
FAULTS = {
    "build": "build-failed",
    "wrong": "wrong-result",
    "crash": "crashed",
    "hang": "timed-out",
    "error": "launch-refused",
    "memory": "out-of-memory",
}


def statuses(result):
    return [(row.status, row.reason) for row in result.rows]


# Configurations and rules


def kernel_of(root):
    suite = load(root / "kernels" / "toy").suite
    return suite, suite.by_name["tuned"]


def test_configurations_are_numbered_size_by_size_in_the_suites_order(tmp_path):
    suite, kernel = kernel_of(project(tmp_path, "parameters={'A': (1, 2), 'B': ('x', 'y')}"))
    found = configurations(suite, kernel, kernel.tune, points(suite, kernel.tune))
    assert [each.number for each in found] == list(range(1, 9))
    assert [each.sizes["n"] for each in found] == [128] * 4 + [256] * 4
    assert [tuple(each.parameters.values()) for each in found[:4]] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert found[0].case == "toy.tuned[n=128]"


def test_configurations_are_taken_as_they_stand(tmp_path):
    suite, kernel = kernel_of(
        project(tmp_path, "configurations=[{'A': 2, 'B': 1}, {'A': 1}], sizes=(5, {'n': 7})")
    )
    found = configurations(suite, kernel, kernel.tune, points(suite, kernel.tune))
    assert [(each.sizes["n"], dict(each.parameters)) for each in found] == [
        (5, {"A": 2, "B": 1}),
        (5, {"A": 1}),
        (7, {"A": 2, "B": 1}),
        (7, {"A": 1}),
    ]


def test_sizes_asked_for_go_before_the_tunings_and_the_problems(tmp_path):
    suite, kernel = kernel_of(project(tmp_path, "parameters={'A': (1,)}, sizes=(5, 5)"))
    assert points(suite, kernel.tune) == ({"n": 5},)
    assert points(suite, kernel.tune, ["9", "8", "9"]) == ({"n": 9}, {"n": 8})
    plain = replace(kernel.tune, sizes=())
    assert points(suite, plain, quick=True) == ({"n": 64},)


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        ("parameters={'A': ()}", "without a configuration"),
        ("parameters={'A': (1.5,)}", "A = 1.5"),
        ("parameters={'A': (1,)}, sizes=({'m': 3},)", "expected a number, or one above 0 for each of n"),
        ("parameters={'A': (1,)}, sizes=(0,)", "above 0"),
    ],
)
def test_a_tuning_that_is_broken_is_named(tmp_path, tuning, words):
    suite, kernel = kernel_of(project(tmp_path, tuning))
    with pytest.raises(SuiteError, match=words):
        configurations(suite, kernel, kernel.tune, points(suite, kernel.tune))


def test_what_breaks_a_rule_is_a_row_and_is_never_built(tmp_path):
    rules = "rules=('A * B <= 8 or n > 100', 'A != 3', lambda case: case.A < case.B * 4)"
    root = project(tmp_path, f"parameters={{'A': (1, 2, 3, 9), 'B': (1, 4)}}, {rules}")
    result, executor = sweep(root)
    told = {
        (row.configuration.parameters["A"], row.configuration.parameters["B"]): (row.status, row.message)
        for row in result.rows
    }
    assert told == {
        (1, 1): ("measured", ""),
        (1, 4): ("measured", ""),
        (2, 1): ("measured", ""),
        (2, 4): ("measured", ""),
        (3, 1): ("rejected", "A != 3 does not hold: A = 3."),
        (3, 4): ("rejected", "A * B <= 8 or n > 100 does not hold: A = 3, B = 4, n = 64."),
        (9, 1): ("rejected", "A * B <= 8 or n > 100 does not hold: A = 9, B = 1, n = 64."),
        (9, 4): ("rejected", "A * B <= 8 or n > 100 does not hold: A = 9, B = 4, n = 64."),
    }
    assert {row.reason for row in result.rows if row.status == "rejected"} == {"rule"}
    assert [each["A"] for each in executor.prepared] == [1, 1, 2, 2]


def test_what_the_device_cannot_launch_is_rejected_with_the_limit(tmp_path):
    root = project(tmp_path, "parameters={'A': (32, 1024, 1025)}", block="lambda case: case.A")
    result, executor = sweep(root)
    assert statuses(result) == [("measured", ""), ("measured", ""), ("rejected", "launch-refused")]
    assert "1025x1x1 = 1025 threads is more than the 1024" in result.rows[-1].message
    assert [each["A"] for each in executor.prepared] == [32, 1024]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("'A <'", "'A <', which is no expression"),
        ("'A' + 100_000 * ' + A'", "which is no expression: "),
        ("'A < C'", "'A < C': name 'C' is not defined. It may use n, A"),
        ("'A / 0'", "'A / 0' at 64 with A = 1 raised ZeroDivisionError"),
        ("'len(str(A))'", "name 'len' is not defined"),
        ("'A and ().__class__.__base__.__subclasses__()'", "which asks for '__subclasses__'; expected"),
        ("'[each for each in (A for _ in (1,)).gi_frame.f_back.f_builtins]'", "asks for 'f_builtins'"),
        ("lambda case: case.C", "has no axis, macro or scalar named 'C'"),
    ],
)
def test_a_rule_that_is_broken_ends_the_sweep_before_anything_is_stored(tmp_path, rule, words):
    root = project(tmp_path, f"parameters={{'A': (1,)}}, rules=({rule},)")
    with pytest.raises(SuiteError) as caught:
        sweep(root)
    assert words in caught.value.message
    assert not (root / "results").exists()


# Measuring


def test_a_configuration_that_fails_is_a_row_and_the_others_are_measured(tmp_path):
    words = ("none", *FAULTS, "also_none")
    root = project(
        tmp_path, f"parameters={{'NULL_DEVICE_FAULT': {words!r}}}", macros=f"{{'NULL_DEVICE_NS': {MS}}}"
    )
    result, _ = sweep(root, real=True, timeout_s=4.0)
    assert {
        row.configuration.parameters["NULL_DEVICE_FAULT"]: (row.status, row.reason) for row in result.rows
    } == {
        "none": ("measured", ""),
        **{fault: ("failed", reason) for fault, reason in FAULTS.items()},
        "also_none": ("measured", ""),
    }
    assert result.complete
    assert all(row.message for row in result.rows if row.status == "failed")
    assert "scripted fault" in next(row.log for row in result.rows if row.reason == "build-failed")
    (final,) = result.finals
    assert final.number == 1
    assert final.tied == (8,)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of twelve configurations, three of which are another's duplicate, and what was asked for it."""
    root = tmp_path_factory.mktemp("swept")
    text = (
        "f'#define NULL_DEVICE_NS {case.A // 2 * 100_000 + case.B * 1_000}\\n// {case.A * (case.A > 3)}\\n'"
    )
    project(root, "parameters={'A': (2, 3, 4, 5), 'B': (7, 2, 5)}, rules=('B < 9',)", text=text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(root / "cache"))
        return root, *sweep(root, real=True)


def test_the_fastest_wins_and_is_measured_again_in_fresh_processes(swept):
    _, result, executor = swept
    (final,) = result.finals
    assert dict(result.rows[final.number - 1].configuration.parameters) == {"A": 2, "B": 2}
    assert final.time_ns == 102_000
    assert final.process_times_ns == (102_000,) * 3
    assert executor.repeated == [{"A": 2, "B": 2}] * 3
    assert final.tied == ()


def test_rows_have_their_figures(swept):
    _, result, _ = swept
    row = result.rows[1]
    assert (row.time_ns, row.time_low_ns, row.time_high_ns) == (102_000, 102_000, 102_000)
    assert (row.flop, row.dtype, row.device) == (64, "float32", "null:0")
    assert row.launch.block == (32, 1, 1)
    assert row.gpu_s > 0
    assert row.host_s > 0
    assert result.complete
    assert [row.configuration.number for row in result.rows] == list(range(1, 13))


def test_doubles_are_measured_once(swept):
    _, result, executor = swept
    assert {row.configuration.number: row.same_as for row in result.rows if row.same_as} == {4: 1, 5: 2, 6: 3}
    assert len(executor.prepared) == 12
    assert len(executor.measured) == 9
    assert not [each for each in executor.measured if each["A"] == 3]
    first, duplicate = result.rows[0], result.rows[3]
    assert (duplicate.time_ns, duplicate.round, duplicate.behind) == (
        first.time_ns,
        first.round,
        first.behind,
    )
    assert (duplicate.gpu_s, duplicate.place) == (0.0, 0)


def test_screening_is_in_random_order_which_is_recorded(swept):
    _, result, executor = swept
    screened = sorted((row for row in result.rows if row.place), key=lambda row: row.place)
    assert [row.place for row in screened] == list(range(1, 10))
    assert [dict(row.configuration.parameters) for row in screened] == executor.measured
    assert [row.configuration.number for row in screened] != [1, 2, 3, 7, 8, 9, 10, 11, 12]


def test_only_the_best_come_to_be_compared(swept):
    _, result, executor = swept
    assert {row.configuration.number for row in result.rows if row.round} == {1, 2, 3, 4, 5, 6}
    assert {each.pair.base.macros["B"] for each in executor.compared} == {2}
    behind = result.rows[2].behind
    assert behind.low < 105 / 102 - 1 < behind.high
    assert result.rows[1].behind is None


def test_a_second_run_measures_nothing_and_finds_the_same(swept):
    root, result, _ = swept
    again, executor = sweep(root)
    assert executor.jobs == []
    assert again.reused == 12
    assert replace(again, reused=0, compile_s=0, measure_s=0) == replace(
        result, reused=0, compile_s=0, measure_s=0
    )


def test_the_file_alone_tells_the_sweep(swept):
    root, result, _ = swept
    (path,) = (root / "results").rglob("*.jsonl")
    assert path.parent == root / "results" / "null" / "sweeps"
    assert path.name == f"toy.tuned-{result.sweep.sweep_id}.jsonl"
    stored, found = read_sweep(path)
    assert stored == result.sweep
    assert found.complete
    assert tuple(found.finals) == result.finals
    assert len(found.prepared) == 12


def test_anew_is_anew_and_keeps_the_old_file(swept):
    root, result, _ = swept
    fresh, executor = sweep(root, fresh=True)
    assert fresh.reused == 0
    assert len(executor.measured) == 9
    assert figures(fresh) == figures(result)
    assert len(list((root / "results").rglob("*.old"))) == 1
    assert len(list((root / "results").rglob("*.jsonl"))) == 1


def test_each_size_has_its_own_best(tmp_path):
    text = "f'#define NULL_DEVICE_NS {MS + case.A * 1000 if case.n > 100 else MS - case.A * 1000}\\n'"
    root = project(tmp_path, "parameters={'A': (1, 50, 90)}", text=text.replace("MS", str(MS)))
    result, _ = sweep(root, sizes=("64", "128"))
    found = {final.sizes["n"]: result.rows[final.number - 1].configuration for final in result.finals}
    assert {size: each.parameters["A"] for size, each in found.items()} == {64: 90, 128: 1}
    assert {each.sizes["n"] for each in found.values()} == {64, 128}


def test_what_is_lucky_once_does_not_win(tmp_path):
    root = project(tmp_path, "parameters={'NULL_DEVICE_NS': (1_000_000, 1_030_000, 1_060_000)}")
    lucky = 3

    def first_seen_fast(answer, job):
        row = answer.reply
        if not isinstance(row, Row) or job.fresh or job.request.macros["NULL_DEVICE_NS"] != 1_060_000:
            return answer
        assert row.measurement is not None
        times = tuple(0.9 * time for time in row.measurement.times_ns)
        row = replace(row, measurement=replace(row.measurement, times_ns=times))
        return replace(answer, reply=row)

    result, _ = sweep(root, changed=first_seen_fast, near=1.0)
    assert min(result.rows, key=lambda row: row.time_ns or 0.0).configuration.number == lucky
    (final,) = result.finals
    assert final.number == 1
    behind = result.rows[lucky - 1].behind
    assert behind
    assert behind.low > 0.05


def test_what_fails_in_a_pair_is_a_row_and_the_next_best_wins(tmp_path):
    root = project(tmp_path, BY_TIME)

    def breaks(answer, job):
        if isinstance(job.request, protocol.Compare) and 1_000_000 in job.request.pair.base.macros.values():
            failed = Failed(reason="wrong-result", message="Element 3 is wrong.", side="base")
            return replace(answer, reply=failed)
        return answer

    result, _ = sweep(root, changed=breaks, near=1.0)
    assert statuses(result) == [("measured", "")] * 2 + [("failed", "wrong-result"), ("measured", "")]
    (final,) = result.finals
    assert (final.number, final.time_ns) == (2, 1_100_000)


def test_a_winner_that_fails_in_a_fresh_process_does_not_win(tmp_path):
    root = project(tmp_path, BY_TIME)

    def breaks(answer, job):
        if job.fresh and 1_000_000 in job.request.macros.values():
            return replace(answer, reply=Failed(reason="crashed", message="It crashed."))
        return answer

    result, _ = sweep(root, changed=breaks, near=1.0)
    assert statuses(result)[2] == ("failed", "crashed")
    assert [final.number for final in result.finals] == [2]
    assert result.complete


def test_where_everything_fails_there_is_no_best(tmp_path):
    root = project(tmp_path, "parameters={'NULL_DEVICE_FAULT': ('wrong', 'build')}")
    result, _ = sweep(root)
    assert statuses(result) == [("failed", "wrong-result"), ("failed", "build-failed")]
    assert result.finals == ()
    assert result.complete


def test_a_compiler_that_takes_its_process_along_costs_one_row(tmp_path):
    text = "__import__('os').kill(__import__('os').getpid(), 9) if case.A == 2 else '// nothing'"
    root = project(tmp_path, "parameters={'A': (1, 2, 3)}", text=text)
    result, _ = sweep(root, real=True)
    assert statuses(result) == [("measured", ""), ("failed", "crashed"), ("measured", "")]
    assert "SIGKILL" in result.rows[1].message


def test_a_lost_device_ends_the_sweep_and_it_goes_on_later(tmp_path):
    root = project(tmp_path, BY_TIME)

    def lost(job, number):
        if number == 3:
            raise DeviceError("The card fell off the bus.")

    result, executor = sweep(root, lost)
    assert result.problem == "The card fell off the bus."
    assert not result.complete
    assert len(result.rows) == 2
    rest, more = sweep(root)
    assert rest.complete
    assert rest.reused == 2
    assert sorted(map(str, executor.measured + more.measured)) == sorted(
        str({"NULL_DEVICE_NS": t}) for t in TIMES
    )


def test_a_kernel_that_the_device_cannot_run_is_no_sweep(tmp_path):
    root = project(tmp_path, BY_TIME)
    suite = root / "kernels" / "toy" / "suite.py"
    suite.write_text(suite.read_text().replace("grid=1, macros", "grid=1, requires='sm_70', macros"))
    with pytest.raises(MeasureError, match="tuned needs CUDA"):
        sweep(root)


# The end in the middle


WITH_A_TIE = BY_TIME.replace("1_200_000", "1_200_000, 1_001_000")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A sweep that came to its end, and what was asked for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(tmp_path_factory.mktemp("undisturbed-cache")))
        return sweep(project(tmp_path_factory.mktemp("undisturbed"), WITH_A_TIE))


@pytest.mark.parametrize("at", [3, 9])
def test_an_interrupted_sweep_goes_on_and_measures_nothing_twice(tmp_path, undisturbed, at):
    whole, every = undisturbed
    root = project(tmp_path, WITH_A_TIE)

    def interrupted(job, number):
        if number == at:
            raise KeyboardInterrupt

    first, before = sweep(root, interrupted)
    assert first.interrupted
    assert not first.complete
    second, after = sweep(root)
    assert second.complete
    assert [job.key for job in (*before.jobs, *after.jobs)] == [job.key for job in every.jobs]
    assert figures(second) == figures(whole)
    assert second.reused == len(first.rows)


def test_wherever_its_file_ends_it_goes_on_to_the_same_result(tmp_path):
    text = "f'#define NULL_DEVICE_NS {100_000 + case.A // 2}\\n#define NULL_DEVICE_FAULT {case.F}\\n'"
    tuning = "parameters={'A': (2, 3, 900), 'F': ('none', 'build')}, rules=('A < 900 or F == \\'none\\'',)"
    root = project(tmp_path, tuning.replace("\\'", '"'), text=text)
    whole, every = sweep(root)
    path = Path(whole.path)
    lines = path.read_bytes().splitlines(keepends=True)
    kinds = {next(iter(json.loads(line))) for line in lines}
    assert kinds == {"sweep", "prepared", "row", "duel", "repeat", "final", "complete"}
    # After the first line of each kind, and one more: what comes in between is as after these.
    first = {next(iter(json.loads(line))): number for number, line in reversed([*enumerate(lines, 1)])}
    for kept in sorted({0, *first.values(), *(number + 1 for number in first.values())} - {len(lines) + 1}):
        path.write_bytes(b"".join(lines[:kept]))
        result, executor = sweep(root)
        assert figures(result) == figures(whole), f"after {kept} lines"
        assert path.read_bytes().count(b"\n") == len(lines)
        assert len(executor.jobs) <= len(every.jobs)


def figures(result):
    """Return a sweep's results, without durations and places."""
    rows = tuple(replace(row, gpu_s=0.0, host_s=0.0) for row in result.rows)
    return rows, tuple(replace(final, gpu_s=0.0) for final in result.finals)


KILLED = """\
import os, signal, sys
from pathlib import Path
from tests.sweeps import sweep

def stop(job, number):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

sweep(Path(sys.argv[1]), stop, real=True)
"""


def test_a_killed_sweep_goes_on_and_measures_nothing_twice(tmp_path, undisturbed):
    whole, every = undisturbed
    root = project(tmp_path, WITH_A_TIE)
    done = run_forked(
        [sys.executable, "-c", KILLED, str(root), "4"],
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    result, executor = sweep(root)
    assert result.complete
    assert [job.key for job in executor.jobs] == [job.key for job in every.jobs][4:]
    assert figures(result) == figures(whole)


def test_half_a_line_is_dropped_and_its_row_measured_again(tmp_path):
    root = project(tmp_path, BY_TIME)
    whole, _ = sweep(root)
    path = Path(whole.path)
    lines = path.read_bytes().splitlines(keepends=True)
    screened = [number for number, line in enumerate(lines) if b'"row"' in line]
    path.write_bytes(b"".join(lines[: screened[-1]]) + lines[screened[-1]][:40])
    result, executor = sweep(root)
    assert len(executor.measured) == 1
    assert figures(result) == figures(whole)
    assert read_sweep(path)[1].complete


def test_a_damaged_line_is_named(tmp_path):
    root = project(tmp_path, BY_TIME)
    path = Path(sweep(root)[0].path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"row": 3}\n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(StoreError, match=r"line 3 is damaged.*--fresh"):
        sweep(root)


@pytest.mark.parametrize(
    ("content", "words"), [(b"what\n", "is no sweep"), (b'{"sweep": {"schema_version": 99}}\n', "Upgrade")]
)
def test_a_file_that_is_no_sweep_is_left_alone(tmp_path, content, words):
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words):
        read_sweep(path)


def test_two_at_once_are_refused(tmp_path):
    root = project(tmp_path, BY_TIME)
    refused = []

    def meanwhile(job, number):
        if number == 2:
            with pytest.raises(StoreError) as caught:
                sweep(root)
            refused.append(caught.value.message)
            with pytest.raises(StoreError):
                sweep(root, fresh=True)

    result, _ = sweep(root, meanwhile)
    assert result.complete
    assert "is running in another process" in refused[0]


def test_what_could_find_something_else_is_another_sweep(tmp_path):
    root = project(tmp_path, "parameters={'A': (1,)}")
    seen = {sweep(root)[0].sweep.sweep_id}
    for changed in ({"seed": 2}, {"timeout_s": 21.0}, {"sizes": ("65",)}, {}):
        if not changed:
            (root / "kernels" / "toy" / "k.cu").write_text("// another\n")
        found, executor = sweep(root, **changed)
        assert found.reused == 0, changed
        assert len(executor.measured) == 1, changed
        assert found.sweep.sweep_id not in seen, changed
        seen.add(found.sweep.sweep_id)


def test_device_driver_and_compiler_are_part_of_the_identity(tmp_path):
    result, _ = sweep(project(tmp_path, "parameters={'A': (1,)}"), save=False)
    _, kernel = kernel_of(tmp_path)
    chosen = [row.configuration for row in result.rows]
    device, toolchain = result.sweep.device, result.sweep.toolchain
    assert toolchain

    def sweep_id(device=device, toolchain=toolchain):
        tree = result.sweep.source.tree_sha256
        return identity(tree, kernel, device, toolchain, chosen, result.sweep.settings)

    assert sweep_id() == result.sweep.sweep_id
    assert sweep_id(replace(device, uuid="another")) == result.sweep.sweep_id
    others = (
        sweep_id(replace(device, driver="2")),
        sweep_id(replace(device, name="other")),
        sweep_id(toolchain=replace(toolchain, compiler="null 2")),
    )
    assert len({result.sweep.sweep_id, *others}) == 4
    assert result.path == ""
    assert not (tmp_path / "results").exists()


def test_a_disk_that_fills_up_costs_the_record_and_not_the_result(tmp_path):
    root = project(tmp_path, BY_TIME)
    whole, _ = sweep(root, save=False)
    done = run_command("sweep", "tuned", "--device", "null", "--json", cwd=root, file_limit_bytes=5000)
    assert done.returncode == 3, done.stderr
    assert "Cannot write to" in done.stderr
    told = json.loads(done.stdout)
    assert told["complete"]
    assert [row["row"]["status"] for row in told["rows"]] == ["measured"] * 4
    assert [final["number"] for final in told["finals"]] == [final.number for final in whole.finals]
    (path,) = (root / "results").rglob("*.jsonl")
    assert not read_sweep(path)[1].complete
    rest, _ = sweep(root, timeout_s=60.0)
    assert rest.complete
    assert read_sweep(path)[1].complete


def test_a_folder_that_cannot_be_written_ends_the_sweep_before_it_begins(tmp_path):
    root = project(tmp_path, BY_TIME)
    (root / "results").write_text("in the way")
    with pytest.raises(StoreError, match="--no-save"):
        sweep(root)


# Halving

SETTINGS = SweepSettings()


def duel(number, against, effect, round_=1, half=0.001):
    found = Effect(effect=effect, low=effect - half, high=effect + half, processes=1, quads=8)
    return Duel(round=round_, number=number, against=against, effect=found)


def play(times, truth, settings=SETTINGS):
    """Duels that follow the truth until there is a decision; it, the standing, and the duels."""
    duels: list[Duel] = []
    while True:
        step, standing = next_step(times, duels, settings)
        if isinstance(step, HalvingResult):
            return step, standing, duels
        assert isinstance(step, Duels)
        duels += [
            duel(number, step.against, truth[number] / truth[step.against] - 1, step.round)
            for number in step.numbers
        ]


def test_screening_keeps_a_share_and_what_is_near():
    times = {number: 100.0 + number for number in range(1, 5)} | {n: 200.0 + n for n in range(5, 41)}
    step, _ = next_step(times, [], SETTINGS)
    assert isinstance(step, Duels)
    assert (step.round, step.against, step.numbers) == (1, 1, tuple(range(2, 11)))
    step, _ = next_step({number: 100.0 + number / 10 for number in range(1, 41)}, [], SETTINGS)
    assert isinstance(step, Duels)
    assert len(step.numbers) == 39


def test_a_single_configuration_is_the_best():
    assert next_step({7: 100.0}, [], SETTINGS)[0] == HalvingResult(winner=7, tied=())


def test_what_is_clearly_slower_is_dropped_and_the_rest_measured_well():
    times = dict.fromkeys(range(1, 41), 100.0)
    truth = {number: 100.0 if number < 4 else 110.0 for number in times}
    decision, standing, duels = play(times, truth)
    assert decision == HalvingResult(winner=1, tied=(2, 3))
    assert {duel.number for duel in duels if duel.round == 2} == {2, 3}
    assert (standing[2].round, standing[40].round) == (2, 1)
    assert standing[40].behind is not None
    assert standing[40].behind.effect == pytest.approx(0.1)


def test_many_that_cannot_be_told_apart_are_halved():
    times = dict.fromkeys(range(1, 139), 100.0)
    _, _, duels = play(times, times)
    rounds = [sum(duel.round == round_ for duel in duels) for round_ in range(1, 6)]
    assert rounds[0] == 137
    assert rounds[1] <= 35
    assert len(duels) < 200


@pytest.mark.parametrize("seed", range(8))
def test_the_best_wins_however_screening_came_out(seed):
    """Times of screening within 5 % of the truth, effects of pairs within 0.05 %, of truths 0.2 % apart."""
    rng = random.Random(seed)
    truth = {number: 100.0 * 1.002**number for number in range(40)}
    times = {number: true * rng.uniform(0.95, 1.05) for number, true in truth.items()}
    noisy = {number: true * rng.uniform(0.99975, 1.00025) for number, true in truth.items()}
    kept = next_step(times, [], SETTINGS)[0]
    assert isinstance(kept, Duels)
    there = {kept.against, *kept.numbers}
    decision, standing, _ = play(times, noisy)
    assert decision.winner == min(there)
    for number in there - {decision.winner}:
        behind = standing[number].behind
        assert behind is not None
        assert behind.effect == pytest.approx(noisy[number] / noisy[decision.winner] - 1, abs=1e-9)


def test_what_goes_on_from_stored_duels_decides_the_same():
    rng = random.Random(3)
    truth = {number: 100.0 * rng.uniform(1, 1.02) for number in range(30)}
    decision, _, duels = play(truth, truth)
    for kept in range(len(duels)):
        assert not isinstance(next_step(truth, duels[:kept], SETTINGS)[0], HalvingResult)
    rng.shuffle(duels)
    assert next_step(truth, duels, SETTINGS)[0] == decision


def block(*ratios):
    """Quads in which head takes `ratios` times as long as base."""
    quads = tuple(
        Quad(order="ABBA", times_ns=(MS, MS * ratio, MS * ratio, MS), started_ns=0, ended_ns=4 * MS)
        for ratio in ratios
    )
    return PairedBlock(
        quads=quads, launches_per_slot=1, l2="hot", clock="scripted", tick_ns=1.0,
        warmup_s=0.0, settled=True, gpu_s=0.0,
    )  # fmt: skip


def test_an_effect_allows_for_what_another_process_would_say():
    found = duel_effect(block(*[1.02] * 8))
    assert found.effect == pytest.approx(0.02)
    assert found.low == pytest.approx(0.02 - 0.0013, abs=1e-4)
    assert found.high == pytest.approx(0.02 + 0.0013, abs=1e-4)
    noisy = duel_effect(block(1.0, 1.01, 1.02, 1.03, 1.04, 0.99, 1.05, 1.02))
    assert noisy.low < 0 < noisy.high


# One device


def measuring(fault="none", key="a", **given):
    request = protocol.Measure(
        kernel="tuned", sizes={"n": 64}, seed=1, settings=SCREENING, macros={"NULL_DEVICE_FAULT": fault}
    )
    return Job(key=key, request=request, **{"timeout_s": 20.0, **given})


def test_a_process_is_used_again_until_a_job_fails_in_it_or_must_be_fresh(tmp_path, started_workers):
    def workers() -> set[str]:
        return {
            pid
            for file in Path("/proc/self/task").glob("*/children")
            for pid in file.read_text().split()
            if "harness.measure.worker" in Path(f"/proc/{pid}/cmdline").read_text()
        }

    root = project(tmp_path, "parameters={'A': (1,)}")
    kinds, processes, others = [], [], workers()
    with LocalExecutor(root / "kernels" / "toy", "null") as executor:
        for job in (measuring(), measuring(), measuring("crash"), measuring(), measuring(fresh=True)):
            result = executor.run_one(job)
            assert result.device == "null:0"
            kinds.append(type(result.reply))
            processes.append(workers() - others)
    assert kinds == [Row, Row, Failed, Row, Row]
    first, again, failed, next_, fresh = processes
    assert first == again
    assert all([first, next_, fresh])
    assert first.isdisjoint(failed | next_ | fresh)
    assert next_.isdisjoint(fresh)


def test_a_device_that_does_not_open_again_is_no_result(tmp_path, monkeypatch):
    root = project(tmp_path, "parameters={'A': (1,)}")
    monkeypatch.setattr("harness.run.sweep.executors.RECOVERY_S", 0.0)
    with LocalExecutor(root / "kernels" / "toy", "null") as executor:
        (root / "kernels" / "toy" / "suite.py").unlink()
        with pytest.raises(DeviceError, match="cannot be opened any more"):
            executor.run_one(measuring())


# The command


@pytest.fixture
def harness_itself(capsys, monkeypatch):
    return caller(capsys, monkeypatch)


@pytest.fixture
def harness(harness_itself, monkeypatch):
    """With its worker in this process."""
    monkeypatch.setattr("harness.run.sweep.executors.LocalExecutor", Here)
    return harness_itself


def test_the_command_tells_the_best_and_that_it_was_reused(tmp_path, harness_itself):
    harness = harness_itself
    root = project(tmp_path, BY_TIME)
    first = harness("sweep", "toy.tuned", "--device", "null", cwd=root)
    assert first.status == 0, first.err
    assert "NULL_DEVICE_NS=1000000" in first.out
    assert "Record: " in first.err
    second = harness("sweep", "tuned", "--device", "null", cwd=root)
    assert second.out == first.out
    assert "4 of 4 configurations reused" in second.err


@pytest.mark.parametrize(
    ("tuning", "status"),
    [
        ("parameters={'NULL_DEVICE_FAULT': ('none', 'wrong')}", 1),
        ("parameters={'NULL_DEVICE_FAULT': ('none', 'build')}", 0),
        ("parameters={'NULL_DEVICE_FAULT': ('error', 'build')}", 3),
        ("parameters={'A': (1, 2)}, rules=('A > 2',)", 3),
        ("parameters={'A': (1, 2)}, rules=('A >',)", 2),
    ],
)
def test_the_exit_status_says_what_became_of_it(tmp_path, harness, tuning, status):
    root = project(tmp_path, tuning)
    done = harness("sweep", "tuned", "--device", "null", "--no-save", "--json", cwd=root)
    assert done.status == status, done.err
    assert not (root / "results").exists()


def test_a_rule_of_the_command_line_makes_another_sweep(tmp_path, harness):
    root = project(tmp_path, "parameters={'A': (1, 2, 3)}, rules=('A != 3',)")
    every = harness("sweep", "tuned", "--device", "null", "--json", cwd=root).json
    fewer = harness("sweep", "tuned", "--rule", "A < 2", "--device", "null", "--json", cwd=root).json
    rejected = [
        [row["row"]["message"] for row in done["rows"] if row["row"]["status"] == "rejected"]
        for done in (every, fewer)
    ]
    assert list(map(len, rejected)) == [1, 2]
    assert any("A < 2" in message for message in rejected[1])
    assert harness("sweep", "tuned", "--rule", "A <", "--device", "null", cwd=root).status == 2


def test_an_interrupt_is_told_with_what_was_finished(tmp_path, harness, monkeypatch):
    root = project(tmp_path, BY_TIME)
    reply, asked = Here._reply, []

    def interrupted(self, job):
        asked.append(job)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return reply(self, job)

    monkeypatch.setattr(Here, "_reply", interrupted)
    done = harness("sweep", "tuned", "--device", "null", "--json", cwd=root)
    assert done.status == 130
    assert "the same command goes on from there" in done.err
    assert len(done.json["rows"]) == 2
    monkeypatch.setattr(Here, "_reply", reply)
    assert harness("sweep", "tuned", "--device", "null", cwd=root).status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plain"], "plain has no parameters to sweep"),
        (["nothing"], "No kernel matches 'nothing'"),
        (["toy.tuned", "--device", "null", "--size", "x"], "'x' is not an integer"),
        (["tuned", "--gpus", "0", "--device", "cuda:0"], "--gpus and --device exclude each other"),
        (["tuned", "--gpus", "0", "--scheduler", "tcp://a:1"], "--gpus and --scheduler exclude each other"),
        (["tuned", "--gpus", "0,"], "expected 'all', or cards such as 0,1"),
        (["tuned", "--export", "csv:x"], "expected html:FILE or t4:FILE"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path, harness, arguments, words):
    root = project(tmp_path, BY_TIME)
    done = harness("sweep", *arguments, cwd=root)
    assert done.status == 2
    assert words in done.err
    assert done.out == ""
    if len(arguments) == 1:
        assert "Kernels that can be: toy.tuned." in done.err


def test_a_device_that_is_not_there_is_named(tmp_path, harness_itself):
    root = project(tmp_path, BY_TIME)
    done = harness_itself("sweep", "tuned", "--device", "null:7", cwd=root)
    assert done.status == 3
    assert "There is no device null:7" in done.err


def test_one_kernel_is_swept_at_a_time(tmp_path, harness):
    root = project(tmp_path, BY_TIME)
    suite = root / "kernels" / "toy" / "suite.py"
    text = suite.read_text().replace(
        '"tuned", "k.cu"',
        '"other", "k.cu", block=1, grid=1, tune=Tuning({"A": (1,)})),\n        Kernel("tuned", "k.cu"',
    )
    suite.write_text(text)
    done = harness("sweep", "toy", "--device", "null", cwd=root)
    assert done.status == 2
    assert "names several kernels" in done.err
    assert "toy.other, toy.tuned" in done.err


def test_the_result_goes_out_as_a_page_and_in_kernel_tuners_format_too(tmp_path, harness):
    root = project(tmp_path, BY_TIME)
    exports = ("--export", "t4:out.json", "--export", "html:out.html")
    done = harness("sweep", "tuned", "--device", "null", *exports, cwd=root)
    assert done.status == 0
    assert len(json.loads((root / "out.json").read_text())["results"]) == 4
    assert f"T4: {Path('out.json')}" in done.err
    assert (root / "out.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "Page: out.html" in done.err


def test_progress_tells_the_best_so_far_in_a_terminal(tmp_path, capsys, monkeypatch):
    result, _ = sweep(project(tmp_path, BY_TIME), save=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with SweepProgress() as progress:
        progress.started(result.sweep, SweepState())
        progress.phase("screen", 4)
        for row in result.rows[:3]:
            progress.moved(row)
        progress.progress.refresh()
        shown = capsys.readouterr().err
    assert "toy.tuned, verifying and measuring" in shown
    assert "3/4" in shown
    assert "best so far 1 ms at 64 (NULL_DEVICE_NS 1000000)" in shown


@pytest.mark.parametrize(
    "record",
    [Sweep, Configuration, PreparedConfiguration, SweepRow, Duel, Repeat, Final],
    ids=lambda each: each.__name__,
)
def test_every_field_of_a_sweeps_records_is_documented(record):
    section = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    table = re.split(rf"^##+ {record.__name__}\n", section, flags=re.MULTILINE)[1].split("\n#")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = [word for cell in cells for word in re.findall(r"`(\w+)`", cell)]
    assert sorted(documented) == sorted(field.name for field in fields(record))


def test_the_settings_of_a_sweep_are_documented():
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    told = re.search(r"^\| `settings` \| \S \| (`seed`.*) \|$", text, re.MULTILINE)
    assert told
    assert re.findall(r"`(\w+)`", told[1]) == [field.name for field in fields(SweepSettings)]
