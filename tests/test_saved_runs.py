"""Files of pytest-benchmark of two commits: read strictly, judged closed, told as a user meets them."""

from __future__ import annotations

import copy
import datetime as dt
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import ExitCode, StoreError, UsageError
from harness.judgement.saved_runs import (
    MIN_PAIRS,
    ROBUST_PAIRS,
    FilesResult,
    judge_files,
    judge_pairs,
    policy_for,
)
from harness.records.imports import imported
from harness.records.imports.imported_files import read_saved
from harness.records.imports.pytest_benchmark_files import BenchmarkFile, find_files
from harness.records.types import Verdict
from harness.report.terminal.comparison_tables import exit_code
from scripts import bench_stock
from tests.support import (
    IMPORT_PATH,
    commit,
    make_repository,
    no_oftener_than,
    run_forked,
    write_files,
)

pytest.importorskip("pytest_benchmark")

BASE, HEAD = "a" * 40, "b" * 40
START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
OURS = {
    "case": "toy.one[n=64]",
    "unit": "GFLOP/s",
    "direction": "higher",
    "device": "cuda:0",
    "driver": "580",
}

PROJECT = {
    "test_it.py": """\
import pytest


def test_sum(benchmark):
    benchmark(sum, range(1000))


@pytest.mark.parametrize("n", [10, 20], ids=["red", "/bold"])
def test_sorted(benchmark, n):
    benchmark.pedantic(sorted, (range(n),), rounds=20, iterations=5)


def test_wrong(benchmark):
    benchmark(divmod, 1, 0)
""",
    "pytest.ini": "[pytest]\n",
    ".gitignore": ".benchmarks\n__pycache__\nraw.json\n",
}
SUM, RED, BOLD = "test_it.py::test_sum", "test_it.py::test_sorted[red]", "test_it.py::test_sorted[/bold]"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What the installed pytest-benchmark itself writes: with --benchmark-save, and with --benchmark-json."""
    root = make_repository(tmp_path_factory.mktemp("saved") / "project")
    head = commit(root, dict(PROJECT), 1)
    done = run_forked(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-save=one"),
            *("--benchmark-json=raw.json", "--benchmark-max-time=0.01", "--benchmark-min-rounds=3"),
        ],
        cwd=root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    (stored,) = (root / ".benchmarks").rglob("*.json")
    return {"save": stored, "json": root / "raw.json", "commit": head}


@pytest.fixture(scope="module")
def real(saved):
    """A document with raw data."""
    return json.loads(saved["json"].read_text("utf-8"))


@dataclass
class Process:
    """A process of a saved run: the values that replace those of the real file."""

    at_min: float
    """When it was saved: minutes after START."""
    side: str = "base"
    time_us: Mapping[str, float] = field(default_factory=lambda: {SUM: 100.0})
    """Median of each benchmark."""
    commit: str = ""
    dirty: bool = False
    machine: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    timer: str = "perf_counter"
    data_us: Sequence[float] = ()
    busy_s: float = 1.0

    def document(self, real: Mapping[str, Any]) -> dict[str, Any]:
        found = copy.deepcopy(dict(real))
        cpu = {**found["machine_info"]["cpu"], "hz_actual": [int(self.at_min * 1e6), 0]}
        found["machine_info"] |= {"cpu": cpu, **self.machine}
        found["commit_info"] |= {"id": self.commit or {"base": BASE, "head": HEAD}[self.side]}
        found["commit_info"]["dirty"] = self.dirty
        found["datetime"] = (START + dt.timedelta(minutes=self.at_min)).isoformat()
        found["benchmarks"] = [self.benchmark(real, name, each) for name, each in self.time_us.items()]
        return found

    def benchmark(self, real: Mapping[str, Any], name: str, time_us: float) -> dict[str, Any]:
        found = copy.deepcopy(real["benchmarks"][0])
        time_s = 1e-6 * time_us
        given = dict.fromkeys(("min", "max", "mean", "median", "q1", "q3", "ld15iqr", "hd15iqr"), time_s)
        rounds = len(self.data_us) or max(1, round(self.busy_s / time_s))
        found["stats"] = {**given, "rounds": rounds, "iterations": 1, "stddev": 0.0, "total": self.busy_s}
        if self.data_us:
            found["stats"]["data"] = [1e-6 * each for each in self.data_us]
            found["stats"] |= {"min": 1e-6 * min(self.data_us), "max": 1e-6 * max(self.data_us)}
        found["options"]["timer"] = self.timer
        found["extra_info"] = dict(self.extra)
        return {**found, "name": name.partition("::")[2], "fullname": name}


def turns(
    ratios: Sequence[float], order: str = "swapped", base_us: Sequence[float] | float = 100.0
) -> list[Process]:
    """Pairs of processes of one benchmark: head over base; base head head base, or base head base head."""
    processes = []
    for pair, ratio in enumerate(ratios):
        first = base_us if isinstance(base_us, float) else base_us[pair]
        both = [
            Process(at_min=0, side="base", time_us={SUM: first}),
            Process(at_min=0, side="head", time_us={SUM: first * ratio}),
        ]
        processes += both[::-1] if order == "swapped" and pair % 2 else both
    for place, process in enumerate(processes):
        process.at_min = place
    return processes


def written(folder: Path, real: Mapping[str, Any], processes: Sequence[Process]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, process in enumerate(processes):
        path = folder / f"{number:04}_{process.side}.json"
        path.write_text(json.dumps(process.document(real)), encoding="utf-8")
        paths.append(path)
    return paths


@pytest.fixture
def judged(tmp_path, real):
    """Judges made-up processes, by way of their files."""

    def judge(processes: Sequence[Process], **given: Any) -> FilesResult:
        files = [read_saved(path) for path in written(tmp_path / "files", real, processes)]
        sides = list(zip(files, processes, strict=True))
        base, head = ([file for file, each in sides if each.side == side] for side in ("base", "head"))
        return judge_files(base, head, **given)

    return judge


def only(result: FilesResult) -> Any:
    (verdict,) = result.verdicts
    return verdict


def told(result: FilesResult) -> dict[str, tuple[str, str]]:
    return {verdict.case: (verdict.status, verdict.reason) for verdict in result.verdicts}


QUIET = (1.001, 0.999, 1.002, 0.998)
SLOW = tuple(1.08 * each for each in QUIET)


# Reading


@pytest.mark.parametrize("how", ["save", "json"])
def test_what_pytest_benchmark_writes_is_read(saved, how):
    path = saved[how]
    document = json.loads(path.read_text("utf-8"))
    found = read_saved(path)
    # The one that failed is not in the file.
    assert list(found.benchmarks) == [SUM, RED, BOLD]
    assert (found.identity.commit, found.identity.dirty, found.on_gpu) == (saved["commit"], False, False)
    assert found.saved_at == dt.datetime.fromisoformat(document["datetime"])
    assert found.began_at < found.saved_at
    assert found.identity.machine["node"] == document["machine_info"]["node"]
    for given in document["benchmarks"]:
        benchmark = found.benchmarks[given["fullname"]]
        assert benchmark.name == given["name"]
        assert benchmark.median_ns == pytest.approx(1e9 * given["stats"]["median"])
        assert benchmark.timer == "perf_counter"
        assert len(benchmark.times_ns) == (given["stats"]["rounds"] if how == "json" else 0)
    assert found.benchmarks[RED].busy_s == pytest.approx(
        100 * document["benchmarks"][1]["stats"]["mean"], rel=1e-6
    )


def changed(real: Mapping[str, Any], where: Sequence[str | int], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(dict(real))
    place: Any = document
    for key in where[:-1]:
        place = place[key]
    if value is KeyError:
        del place[where[-1]]
    else:
        place[where[-1]] = value
    return document


@pytest.fixture
def in_tokyo():
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
@pytest.mark.parametrize(
    "text", ["2026-01-01T12:00:00.500000", "2026-01-01T12:00:00.500000Z", "2026-01-01T13:00:00.500000+01:00"]
)
@pytest.mark.parametrize("version", ["2.5.0", "4.0.0"])
def test_versions_before_5_write_utc_without_saying_so(tmp_path, real, text, version):
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**real, "version": version, "datetime": text}), encoding="utf-8")
    assert read_saved(path).saved_at == START + dt.timedelta(seconds=0.5)


@pytest.mark.parametrize("id_", ["unversioned", "unknown", ""])
def test_outside_a_repository_there_is_no_commit(tmp_path, real, id_):
    path = tmp_path / "file.json"
    path.write_text(json.dumps(changed(real, ["commit_info", "id"], id_)), encoding="utf-8")
    assert read_saved(path).identity.commit is None


STATS = ("benchmarks", 1, "stats")


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ([*STATS, "median"], math.nan, [RED, "a time of nan in median"]),
        ([*STATS, "max"], math.inf, [RED, "a time of inf in max"]),
        ([*STATS, "min"], 0.0, [RED, "a time of 0.0 in min", "too coarse"]),
        ([*STATS, "max"], 1e300, [RED, "a time of 1e+300 in max", "at most 1e+09"]),
        ([*STATS, "min"], 5e-324, [RED, "a time of 5e-324 in min"]),
        ([*STATS, "mean"], -1e-3, [RED, "a time of -0.001 in mean"]),
        ([*STATS, "data", 3], 0.0, [RED, "a time of 0.0 in data"]),
        ([*STATS, "data", 3], math.nan, [RED, "a time of nan in data"]),
        ([*STATS, "median"], "1e-3", [RED, "Expected `float`, got `str`", "$.stats.median"]),
        ([*STATS, "median"], None, [RED, "got `null`"]),
        ([*STATS, "median"], True, [RED, "got `bool`"]),
        ([*STATS, "data"], [[1.0]], [RED, "got `array`"]),
        ([*STATS, "median"], 1e6, [RED, "contradict each other"]),
        ([*STATS, "rounds"], 0, [RED, "contradict each other"]),
        ([*STATS, "iterations"], -1, [RED, "contradict each other"]),
        (STATS, KeyError, [RED, "missing required field `stats`"]),
        (["benchmarks", 1, "options"], {}, [RED, "missing required field `timer`"]),
        (["benchmarks", 1, "fullname"], "", ["benchmark 2", "no fullname"]),
        (["benchmarks", 1, "fullname"], 5, ["benchmark 2", "got `int`"]),
        (["benchmarks", 1], [], ["no file of pytest-benchmark", "$.benchmarks[1]"]),
        (["benchmarks"], KeyError, ["no file of pytest-benchmark", "benchmarks"]),
        (["benchmarks"], {}, ["no file of pytest-benchmark"]),
        (["machine_info"], None, ["no file of pytest-benchmark"]),
        (["machine_info", "node"], KeyError, ["machine_info has no node"]),
        (["machine_info", "node"], "", ["machine_info has no node"]),
        (["commit_info"], KeyError, ["no file of pytest-benchmark", "commit_info"]),
        (["version"], "6.0.0", ["pytest-benchmark '6.0.0'", "versions 2 to 5", "Upgrade"]),
        (["version"], "1.0.0", ["pytest-benchmark '1.0.0'"]),
        (["version"], "next", ["pytest-benchmark 'next'"]),
        (["version"], 5, ["no file of pytest-benchmark"]),
        (["datetime"], "yesterday", ["'yesterday' is not when it was saved"]),
        (["datetime"], "0001-01-01T00:00:00+14:00", ["is not when it was saved"]),
        (["datetime"], 1.0, ["no file of pytest-benchmark"]),
        (["benchmarks"], "\ud800", ["no file of pytest-benchmark"]),
        ([*STATS, "rounds"], 10**400, [RED, "not as pytest-benchmark writes it"]),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, list | tuple) else None,
)
def test_what_pytest_benchmark_does_not_write_is_refused_by_name(tmp_path, real, where, value, words):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(changed(real, where, value)), encoding="utf-8")
    with pytest.raises(StoreError) as caught:
        read_saved(path)
    for word in (str(path), *words):
        assert word in caught.value.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty: nothing was measured"),
        (b"{", "damaged, or no JSON"),
        (b"\x80\x81", "damaged, or no JSON"),
        (b"\0" * 1000, "damaged, or no JSON"),
        (b"[" * 100_000, "damaged, or no JSON"),
        (b'{"a": 1}', "no file of pytest-benchmark"),
        (b"[]", "no file of pytest-benchmark"),
        (b"null", "no file of pytest-benchmark"),
        (b'{"schema_version": 2, "run": {}}', "no file of pytest-benchmark"),
    ],
    ids=["empty", "cut off", "bytes", "zeros", "deep", "object", "list", "null", "record"],
)
def test_what_is_no_such_file_is_refused(tmp_path, content, words):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words):
        read_saved(path)


def test_a_file_without_end_is_not_read(tmp_path, saved, monkeypatch):
    monkeypatch.setattr(imported, "LARGEST_BYTES", 1000)
    with pytest.raises(StoreError, match="without --benchmark-save-data"):
        read_saved(saved["save"])


def test_files_are_found_by_name_folder_and_glob(tmp_path, monkeypatch):
    names = [".benchmarks/Linux/0001_base.json", ".benchmarks/Linux/0002_head.json", "x/y/0003_base.json"]
    write_files(tmp_path, dict.fromkeys([*names, "x/notes.txt"], "{}"))
    monkeypatch.chdir(tmp_path)

    def found(*words: str) -> list[str]:
        return [path.as_posix() for path in find_files(words, "--base")]

    assert found(names[0], names[2]) == [names[0], names[2]]
    assert found(".benchmarks") == names[:2]
    assert found(".benchmarks/*/*_base.json") == names[:1]
    assert found("**/*_base.json") == names[2:]
    assert found(str(tmp_path / "x" / "*" / "*.json")) == [str(tmp_path / names[2])]
    for nothing in ("x/notes", "*.json", "x/y/z", ""):
        with pytest.raises(UsageError, match="--base"):
            found(nothing)
    with pytest.raises(UsageError, match="twice"):
        found("x/y", names[2])


# Judging


@pytest.mark.parametrize(
    ("ratios", "status", "reason"),
    [
        (QUIET, "unchanged", "within-tolerance"),
        (SLOW, "regression", "slower-in-time"),
        ([0.92 * each for each in QUIET], "improvement", "faster-in-time"),
        ((1.3, 0.8, 1.1, 0.9), "inconclusive", "too-noisy"),
        (QUIET[:3], "inconclusive", "too-few-pairs"),
        (SLOW[:1], "inconclusive", "too-few-pairs"),
        # One burst among eight costs nothing; among four it costs the verdict, and makes no false one.
        ((*QUIET, *QUIET[:3], 1.7), "unchanged", "within-tolerance"),
        ((*SLOW, *SLOW[:3], 0.6), "regression", "slower-in-time"),
        ((*QUIET[:3], 1.7), "inconclusive", "too-noisy"),
        ((*SLOW[:3], 0.6), "inconclusive", "too-noisy"),
    ],
)
def test_pairs_are_judged(judged, ratios, status, reason):
    result = judged(turns(ratios))
    verdict = only(result)
    assert (verdict.status, verdict.reason) == (status, reason), verdict.message
    assert result.pairs == len(ratios)
    assert (verdict.case, verdict.kernel, verdict.sizes) == (SUM, "test_sum", {})


def test_a_verdict_has_its_figures(judged):
    verdict = only(judged(turns(SLOW)))
    assert verdict.time.effect == pytest.approx(0.08, abs=1e-3)
    assert verdict.time.low < verdict.time.effect < verdict.time.high
    assert verdict.time.processes == 4
    assert verdict.time.process_effects == pytest.approx([ratio - 1 for ratio in SLOW])
    assert verdict.base.time_ns == pytest.approx(1e5)
    assert 0.02 < verdict.smallest_visible < 0.08
    assert verdict.unavailable == {"sm-clock": "8 of 8 files do not tell it"}


def test_what_moves_both_processes_of_a_pair_is_no_noise(judged):
    """As much as 30 % from pair to pair, and the same in either order."""
    moving, still = (
        only(judged(turns(SLOW, base_us=base_us))) for base_us in ([100.0, 130.0, 90.0, 110.0], 100.0)
    )
    assert moving.status == "regression"
    assert (moving.time.low, moving.time.high) == pytest.approx((still.time.low, still.time.high))


def test_files_may_be_given_in_any_order(judged):
    processes = turns(SLOW)
    assert told(judged(processes[::-1])) == told(judged(processes)) == {SUM: ("regression", "slower-in-time")}


def test_raw_data_give_a_trimmed_mean_where_every_file_has_them(judged):
    """Medians of a coarse timer stick to one tick; one wild round moves no trimmed mean."""

    def processes() -> list[Process]:
        made = turns([1.0] * 4)
        for process in made:
            ticks = [100.0] * 11 + [102.0] * (2 if process.side == "base" else 8)
            process.data_us = [*ticks, 5000.0]
        return made

    with_all = only(judged(processes()))
    assert with_all.time.effect == pytest.approx(0.008, abs=2e-3)
    some = processes()
    some[3].data_us = ()
    without = only(judged(some))
    assert without.time.effect == pytest.approx(0.0, abs=1e-9)


def test_pairs_that_agree_to_the_last_tick_are_not_believed_to_do_so_always(judged):
    """All of four read one tick more, 2.1 %: beyond the margin, but not for sure."""
    assert only(judged(turns([1.021] * 4))).status == "unchanged"
    assert only(judged(turns([1.05] * 4))).status == "regression"
    assert only(judged(turns([1.0201] * 8))).status == "unchanged"
    assert only(judged(turns([1.0] * 4))).status == "unchanged"


@pytest.mark.parametrize(
    ("given", "margin", "tolerance"),
    [
        ({}, 0.02, 0.1),
        ({"margin": 0.005}, 0.005, 0.1),
        ({"margin": 0.08}, 0.08, 0.16),
        ({"tolerance": 0.01}, 0.005, 0.01),
        ({"margin": 0.005, "tolerance": 0.03}, 0.005, 0.03),
    ],
)
def test_limits(judged, given, margin, tolerance):
    policy = judged(turns(QUIET), **given).policy
    assert (policy.margin, policy.tolerance) == pytest.approx((margin, tolerance))


def test_limits_by_a_gpus_own_clock_are_tighter(judged):
    processes = turns(QUIET)
    for kind, limits in {"gpu": (0.01, 0.05), "cpu": (0.02, 0.1)}.items():
        for process in processes:
            process.machine = {"gpu": {"name": "NVIDIA H200", "kind": kind}}
        result = judged(processes)
        assert (result.policy.margin, result.policy.tolerance) == limits
        assert result.device == "NVIDIA H200"


def test_limits_that_make_no_sense_are_refused(judged):
    for given in ({"margin": 0.1, "tolerance": 0.05}, {"confidence": 0.3}, {"margin": 0.6}):
        with pytest.raises(UsageError, match=r"cannot be judged by|is not below the tolerance"):
            judged(turns(QUIET), **given)


# What the files do not bear out


def verdicts_are(result: FilesResult, status: str, reason: str) -> list[Verdict]:
    assert {(verdict.status, verdict.reason) for verdict in result.verdicts} == {(status, reason)}
    assert exit_code([result]) != ExitCode.FINE
    return list(result.verdicts)


@pytest.mark.parametrize(
    ("order", "alternated"),
    [
        ("bhbhbhbh", True),
        ("bhhbbhhb", True),
        ("hbhbhbhb", True),
        ("hbbhbhhb", True),
        ("bbbbhhhh", False),
        ("hhhhbbbb", False),
        ("bbhhbbhh", False),
        ("bhhhbbbh", False),
        ("bhbhbhb", False),
        ("bhbhbhbhb", False),
        ("bhbhbhbbhhhb", False),
    ],
)
def test_base_and_head_must_take_turns(judged, order, alternated):
    processes = [
        Process(at_min=place, side={"b": "base", "h": "head"}[side], time_us={SUM: 100.0 + place % 3 / 10})
        for place, side in enumerate(order)
    ]
    if alternated:
        assert only(judged(processes)).status == "unchanged"
    else:
        (verdict,) = verdicts_are(judged(processes), "invalid", "not-alternated")
        assert "would look like a change" in verdict.message


@pytest.mark.parametrize("order", ["bbbbhhhh", "bhbh"], ids=["not in turns", "too few"])
@pytest.mark.parametrize(
    ("base", "head", "reason", "words"),
    [
        (
            {"sm_clock_mhz": 1980.0},
            {"sm_clock_mhz": 1500.0},
            "sm-clock",
            "base at 1,980 MHz and head at 1,500",
        ),
        ({"device": "H100"}, {"device": "H200"}, "other-machine", "its device is H100 and H200"),
    ],
    ids=["clock", "card"],
)
def test_another_card_or_clock_is_told_before_the_order_and_the_number_of_files(
    judged, order, base, head, reason, words
):
    sides = {"b": ("base", base), "h": ("head", head)}
    processes = [
        Process(at_min=place, side=sides[each][0], extra={**OURS, **sides[each][1]})
        for place, each in enumerate(order)
    ]
    (verdict,) = verdicts_are(judged(processes), "invalid", reason)
    assert words in verdict.message
    assert ("not measured alternately" in verdict.message) == (order == "bbbbhhhh")


def test_another_machine_is_told_before_another_clock(judged):
    processes = [
        Process(at_min=place, side=side, machine={"node": side}, extra={**OURS, "sm_clock_mhz": mhz})
        for place, (side, mhz) in enumerate([("base", 1980.0), ("head", 1500.0)] * 4)
    ]
    (verdict,) = verdicts_are(judged(processes), "invalid", "other-machine")
    assert verdict.message.index("node is base") < verdict.message.index("base at 1,980 MHz")


@pytest.mark.parametrize(("order", "reason"), [("fixed", "drift"), ("swapped", "within-tolerance")])
@pytest.mark.parametrize("pairs", [4, 9])
def test_a_machine_that_gets_warmer_is_no_change(judged, order, reason, pairs):
    """2 % with every process: base first, head looks 2 % slower."""
    processes = turns([1.0] * pairs, order)
    for place, process in enumerate(processes):
        process.time_us = {SUM: 100.0 * 1.02**place * QUIET[place % 4]}
    assert only(judged(processes, tolerance=0.2)).reason == reason


def test_a_slowdown_is_still_found_where_the_order_is_fixed_and_nothing_drifts(judged):
    assert only(judged(turns(SLOW, "fixed"))).status == "regression"


def test_a_stray_pair_is_no_drift(judged):
    """A straight line through one slow pair, the last, rises too; but not for sure."""
    stray = judged(turns(QUIET, "fixed", base_us=[100.0, 100.0, 100.0, 140.0]))
    assert only(stray).status == "unchanged"


def test_processes_that_ran_at_once_are_not_believed(judged):
    processes = turns(QUIET)
    processes[4].busy_s = 90.0
    (verdict,) = verdicts_are(judged(processes), "invalid", "overlapping")
    assert "0004_base.json began 30.0 s" in verdict.message
    for process in processes:
        process.timer = "device_clock"  # which runs apart from the clock on the wall
    assert only(judged(processes)).status == "unchanged"


@pytest.mark.parametrize(
    ("machine", "word"),
    [
        ({"node": "other"}, "node"),
        ({"release": "5.0"}, "release"),
        ({"python_version": "3.9.1"}, "python_version"),
        ({"python_compiler": "Clang"}, "python_compiler"),
        ({"cpu": {"brand_raw": "Other", "count": 2}}, "cpu."),
        ({"gpu": {"name": "NVIDIA H200", "uuid": "GPU-1"}}, "gpu.name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("place", [0, 5])
def test_other_machines_are_not_compared(judged, machine, word, place):
    processes = turns(SLOW)
    processes[place].machine = machine
    (verdict,) = verdicts_are(judged(processes), "invalid", "other-machine")
    assert word in verdict.message
    assert f"{place:04}_" in verdict.message


def test_another_gpu_or_driver_is_not_compared(judged):
    processes = turns(SLOW)
    for number, process in enumerate(processes):
        process.machine = {"gpu": {"name": "NVIDIA H200", "driver": "580" if number < 6 else "581"}}
    (verdict,) = verdicts_are(judged(processes), "invalid", "other-machine")
    assert "gpu.driver is 580 in" in verdict.message


def test_readings_of_the_moment_and_keys_of_the_project_are_no_identity(judged):
    processes = turns(SLOW)  # hz_actual differs in all of them
    for number, process in enumerate(processes):
        process.machine = {"load": number}
    assert only(judged(processes)).status == "regression"


@pytest.mark.parametrize("change", [{"commit": "c" * 40}, {"dirty": True}, {"commit": "unversioned"}])
@pytest.mark.parametrize("place", [0, 1, 6])
def test_each_side_is_one_commit(judged, place, change):
    processes = turns(SLOW)
    for name, value in change.items():
        setattr(processes[place], name, value)
    (verdict,) = verdicts_are(judged(processes), "invalid", "mixed-commits")
    assert f"{place:04}_" in verdict.message


def test_one_commit_may_be_compared_with_itself_and_changes_are_said(judged):
    processes = turns(QUIET)
    for process in processes:
        process.commit, process.dirty = BASE, process.side == "head"
    result = judged(processes)
    assert only(result).status == "unchanged"
    assert (result.base.commit, result.base.dirty) == (BASE, False)
    assert (result.head.commit, result.head.dirty) == (BASE, True)


def test_the_commit_of_the_kernels_goes_before_that_of_the_checkout(judged):
    """The harness's own fixture measures kernels of another commit than the tests', if asked to."""
    processes = turns(QUIET)
    for process in processes:
        process.commit = HEAD
        process.extra = {**OURS, "commit": BASE if process.side == "base" else HEAD}
    result = judged(processes)
    assert (result.base.commit, result.head.commit) == (BASE, HEAD)


def test_everything_that_is_wrong_is_said_at_once(judged):
    processes = [Process(at_min=place, side=side) for place, side in enumerate(["base"] * 4 + ["head"] * 4)]
    processes[2].machine = {"node": "other"}
    processes[3].dirty = True
    (verdict,) = verdicts_are(judged(processes), "invalid", "other-machine")
    for words in ("node is", "not of one commit", "4 of base, 4 of head"):
        assert words in verdict.message


def test_one_process_counts_once(judged):
    processes = turns(SLOW)
    processes[3].at_min = processes[4].at_min
    with pytest.raises(UsageError, match=r"0003_base\.json and .*0004_base\.json .* same instant"):
        judged(processes)


def test_both_sides_have_files(judged):
    for side in ("base", "head"):
        with pytest.raises(UsageError, match=f"No file of {side}"):
            judged([process for process in turns(SLOW) if process.side != side])


def test_inventory(judged):
    """By benchmark: in how many of the four files of base, and of head."""
    cases = {
        "both": (4, 4, "unchanged"),
        "gone": (4, 0, "missing"),
        "hardly gone": (1, 0, "missing"),
        "fresh": (0, 4, "new"),
        "failing at head": (4, 3, "invalid"),
        "failing at base": (2, 4, "invalid"),
        "failing as new": (0, 3, "invalid"),
    }
    processes = turns(QUIET)
    seen = Counter[str]()
    for process in processes:
        process.time_us = {
            name: 100.0
            for name, (base, head, _) in cases.items()
            if seen[process.side] < (base if process.side == "base" else head)
        }
        seen[process.side] += 1
    result = judged(processes)
    assert {verdict.case: verdict.status for verdict in result.verdicts} == {
        name: status for name, (_, _, status) in cases.items()
    }
    by_case = {verdict.case: verdict for verdict in result.verdicts}
    assert by_case["failing at head"].reason == "incomplete"
    assert "1 of 4 files of head do not have it" in by_case["failing at head"].message
    assert (by_case["gone"].reason, by_case["fresh"].reason) == ("only-in-base", "only-in-head")
    assert exit_code([result]) == ExitCode.REGRESSION


def test_with_too_few_pairs_nothing_passes(judged):
    """New benchmarks do not pass either: base's only file may have lost them."""
    processes = turns(QUIET[:1])
    processes[0].time_us = {}
    verdicts_are(judged(processes), "inconclusive", "too-few-pairs")


def test_a_suite_that_fails_at_head_altogether_is_missing(judged):
    processes = turns(QUIET)
    for process in processes:
        process.time_us = {} if process.side == "head" else {SUM: 100.0, RED: 1.0}
    assert told(judged(processes)) == dict.fromkeys([SUM, RED], ("missing", "only-in-base"))


def test_nothing_at_all_is_no_success(judged):
    result = judged([Process(at_min=each.at_min, side=each.side, time_us={}) for each in turns(QUIET)])
    assert result.verdicts == ()
    assert exit_code([result]) == ExitCode.INCONCLUSIVE


def test_another_timer_is_another_quantity(judged):
    processes = turns(SLOW)
    for process in processes:
        if process.side == "head":
            process.timer = "process_time"
    (verdict,) = verdicts_are(judged(processes), "invalid", "other-timer")
    assert "perf_counter and process_time" in verdict.message


@pytest.mark.parametrize("key", ["device", "uuid", "driver"])
def test_another_device_of_the_same_machine_is_not_compared(judged, key):
    processes = turns(SLOW)
    for process in processes:
        process.extra = {**OURS, key: "this one" if process.side == "base" else "that one"}
    (verdict,) = verdicts_are(judged(processes), "invalid", "other-machine")
    assert f"its {key} is this one and that one" in verdict.message


def test_keys_of_a_stranger_mean_something_else(judged):
    processes = turns(SLOW)
    for number, process in enumerate(processes):
        clock = 1000.0 if process.side == "base" else 2000.0
        process.extra = {"device": f"shard {number}", "sm_clock_mhz": clock, "commit": "v1"}
    verdict = only(judged(processes))
    assert (verdict.status, verdict.attribution) == ("regression", None)


@pytest.mark.parametrize(
    ("head_mhz", "status", "reason", "attribution"),
    [
        (1980.0, "regression", "slower-in-time", "code"),
        (1965.0, "regression", "slower-in-time", "code"),
        (1830.0, "invalid", "sm-clock", "clocks"),
        (2150.0, "invalid", "sm-clock", "clocks"),
    ],
)
def test_clocks_that_differ_tell_nothing_of_the_code(judged, head_mhz, status, reason, attribution):
    processes = turns(SLOW)
    for process in processes:
        clock = 1980.0 if process.side == "base" else head_mhz
        process.extra = {**OURS, "sm_clock_mhz": clock, "temperature_c": 50.0, "power_w": 400.0}
    verdict = only(judged(processes))
    assert (verdict.status, verdict.reason, verdict.attribution) == (status, reason, attribution)
    assert verdict.head.sm_clock_mhz == head_mhz
    assert (verdict.temperature_c, verdict.power_w) == (50.0, 400.0)
    assert verdict.unavailable == {}


def test_clocks_that_one_file_does_not_tell_are_unknown(judged):
    processes = turns(SLOW)
    for process in processes[:-1]:
        process.extra = {**OURS, "sm_clock_mhz": 1980.0}
    processes[-1].extra = OURS
    verdict = only(judged(processes))
    assert verdict.unavailable == {"sm-clock": "1 of 8 files do not tell it"}
    assert verdict.attribution is None


# What an inconclusive verdict says


def test_it_says_how_many_pairs_would_help(judged):
    verdict = only(judged(turns((1.06, 0.97, 1.05, 0.98))))
    assert verdict.reason == "too-noisy"
    assert "pairs would settle it" in verdict.message
    hopeless = only(judged(turns((1.6, 0.6, 1.9, 0.7)), margin=0.001, tolerance=0.002))
    assert "Not even 64 pairs" in hopeless.message


def test_two_states_are_named(judged):
    verdict = only(judged(turns((1.12, 1.0, 1 / 1.12, 1.0), base_us=[100.0, 112.0, 112.0, 100.0])))
    assert "two groups 12.0 % apart" in verdict.message
    assert "two groups" not in only(judged(turns((1.3, 0.8, 1.1, 0.9)))).message


# How often it is wrong


@pytest.mark.parametrize("spread", [0.0002, 0.003, 0.03])
@pytest.mark.parametrize("pairs", [MIN_PAIRS, ROBUST_PAIRS - 1, ROBUST_PAIRS, 12])
def test_the_error_at_the_margin_is_as_promised(pairs, spread):
    """But for half as much again where the mean is a trimmed one."""
    policy = policy_for(0.02, 0.1, 0.999, on_gpu=False, pairs=pairs)
    rng = np.random.default_rng([1, pairs])
    ratios = rng.normal(math.log1p(policy.margin), spread, (4000, pairs)).tolist()
    found = Counter(judge_pairs(row, policy).status for row in ratios)
    allowed = (1 - policy.confidence) * (1.5 if pairs >= ROBUST_PAIRS else 1)
    assert no_oftener_than(allowed, found["slower"], found.total())
    assert found["faster"] == 0


RATES = {
    # noise, pairs: fewest found of 5 and of 10 %, most alarms of code that is the same, fewest unchanged
    ("quiet", 4): (0.8, 0.99, 0.001, 0.99),
    ("quiet", 8): (0.99, 0.99, 0.001, 0.99),
    ("drift", 4): (0.85, 0.99, 0.001, 0.99),
    ("drift", 8): (0.99, 0.99, 0.001, 0.99),
    ("bursts", 8): (0.75, 0.75, 0.001, 0.75),
    ("two states", 4): (0.0, 0.0, 0.006, 0.0),
    ("two states", 8): (0.0, 0.0, 0.001, 0.0),
}


@pytest.mark.parametrize(("noise", "pairs"), RATES, ids=str)
def test_operating_characteristics(noise, pairs):
    five, ten, alarms, same = RATES[noise, pairs]
    rng = np.random.default_rng([2, pairs])
    found = {effect: bench_stock.statuses(rng, noise, pairs, effect, 300) for effect in (0.0, 0.05, 0.1)}
    for effect, least in ((0.05, five), (0.1, ten)):
        assert found[effect]["regression"] >= least * 300, found
        assert found[effect]["improvement"] <= 0.01 * 300
    wrong = found[0.0]["regression"] + found[0.0]["improvement"]
    assert no_oftener_than(alarms, wrong, 300), found
    assert found[0.0]["unchanged"] >= same * 300, found


def test_a_machine_that_gets_warmer_makes_no_alarm():
    """1.5 % with every process, and base always first: half of the margin and more is nothing but that."""
    found = bench_stock.statuses(np.random.default_rng(3), "warming, base first", 8, 0.0, 200)
    assert found["regression"] == 0
    assert found["invalid"] == 200


def test_nothing_is_gained_by_leaving_something_out(real, tmp_path):
    """Whatever file, or benchmark of a file, is dropped from what fails: it still fails."""
    rng = np.random.default_rng(4)
    failing = 0
    for trial in range(24):
        pairs = int(rng.integers(1, 6))
        effect, spread = rng.choice([1.0, 1.08]), rng.choice([0.002, 0.05])
        processes = turns([1.0] * pairs)
        for process in processes:
            slower = effect if process.side == "head" else 1.0
            process.time_us = {
                SUM: 100 * slower * math.exp(rng.normal(0, spread)),
                RED: 100 * math.exp(rng.normal(0, 0.002)),
                **({BOLD: 100.0} if process.side == "base" or trial % 3 else {}),
            }
        files = [read_saved(path) for path in written(tmp_path / str(trial), real, processes)]
        sides = [process.side for process in processes]
        if passes(files, sides):
            continue
        failing += 1
        for kept, kept_sides in poorer(files, sides):
            assert not passes(kept, kept_sides)
    assert failing >= 10


def passes(files: Sequence[BenchmarkFile], sides: Sequence[str]) -> bool:
    base, head = (
        [file for file, each in zip(files, sides, strict=True) if each == side] for side in ("base", "head")
    )
    try:
        return exit_code([judge_files(base, head)]) == ExitCode.FINE
    except UsageError:
        return False


def poorer(
    files: Sequence[BenchmarkFile], sides: Sequence[str]
) -> Iterator[tuple[list[BenchmarkFile], list[str]]]:
    """All of it without one file, without one benchmark of one file, and without one of all files of head."""
    for place in range(len(files)):
        yield [*files[:place], *files[place + 1 :]], [*sides[:place], *sides[place + 1 :]]
        for name in files[place].benchmarks:
            yield [*files[:place], without(files[place], name), *files[place + 1 :]], list(sides)
    for name in {name for file in files for name in file.benchmarks}:
        yield (
            [
                without(file, name) if side == "head" else file
                for file, side in zip(files, sides, strict=True)
            ],
            list(sides),
        )


def without(file: BenchmarkFile, name: str) -> BenchmarkFile:
    kept = {key: value for key, value in file.benchmarks.items() if key != name}
    return BenchmarkFile(
        **{key: getattr(file, key) for key in file.__dataclass_fields__ if key != "benchmarks"},
        benchmarks=kept,
    )


# The command


@pytest.fixture
def files(tmp_path, real):
    """Writes processes to the current folder; returns the words that name them."""

    def write(processes: Sequence[Process]) -> list[str]:
        written(tmp_path / "saved", real, processes)
        return ["--base", f"{tmp_path}/saved/*_base.json", "--head", f"{tmp_path}/saved/*_head.json"]

    return write


@pytest.mark.parametrize(
    ("ratios", "options", "status"),
    [
        (QUIET, [], ExitCode.FINE),
        (SLOW, [], ExitCode.REGRESSION),
        (SLOW, ["--fail-on", "none"], ExitCode.FINE),
        (SLOW, ["--margin", "12"], ExitCode.FINE),
        ((1.3, 0.8, 1.1, 0.9), [], ExitCode.INCONCLUSIVE),
        ((1.3, 0.8, 1.1, 0.9), ["--fail-on", "regression"], ExitCode.FINE),
        (QUIET[:3], [], ExitCode.INCONCLUSIVE),
        ([0.9 * each for each in QUIET], [], ExitCode.FINE),
        ([0.9 * each for each in QUIET], ["--fail-on", "improvement"], ExitCode.REGRESSION),
        (SLOW, ["--margin", "5", "--tolerance", "2"], ExitCode.USAGE),
        (SLOW, ["--margin", "-1"], ExitCode.USAGE),
        (SLOW, ["--confidence", "100"], ExitCode.USAGE),
        (SLOW, ["--json", "stray"], ExitCode.USAGE),
    ],
)
def test_exit_statuses(harness, files, ratios, options, status):
    done = harness("judge", *files(turns(ratios)), *options)
    assert done.status == status, done
    assert "Traceback" not in done.err


def test_a_shells_glob_may_be_spread_out(harness, files, tmp_path):
    files(turns(SLOW))
    base, head = (sorted(map(str, (tmp_path / "saved").glob(f"*_{side}.json"))) for side in ("base", "head"))
    for words in (
        ["--base", *base, "--head", *head],
        ["--head", *head, "--json", "--base", *base],
        [f"--base={base[0]}", *base[1:], "--margin", "3", f"--head={head[0]}", "--head", *head[1:]],
    ):
        assert harness("judge", *words).status == ExitCode.REGRESSION


def test_what_is_told(harness, files):
    processes = turns(SLOW)
    for process in processes:
        process.dirty = process.side == "head"
        process.time_us = {**process.time_us, RED: 0.05, "other.py::test_sum": 1.0e7, BOLD: 2000.0}
        process.busy_s = 1e-9
    done = harness("judge", *files(processes))
    assert done.status == ExitCode.REGRESSION
    lines = done.out.splitlines()
    assert lines[0].startswith("aaaaaaaaaa against bbbbbbbbbb + changes on ")
    rows = {line.split()[0]: line.split() for line in lines[2:6]}
    # Of a name that is there twice, the full one.
    assert rows[SUM][-1] == "regression"
    assert rows["other.py::test_sum"][1:3] == ["10.00", "s"]
    assert rows["test_sorted[red]"][1:3] == ["50.00", "ns"]
    assert rows["test_sorted[/bold]"][1:3] == ["2.000", "ms"]
    assert "4 of base and 4 of head. Margin 2 %, tolerance 10 %, confidence 99.9 %" in done.out
    assert "1 regression, 3 unchanged. Exit status 1." in done.out
    assert "device time" not in done.out
    assert done.err == ""


def test_bounds_that_can_lie_anywhere_take_no_room(harness, files):
    processes = turns([1e3, 1e-3, 1e6, 1e-6])
    for process in processes:
        process.timer = "device_clock"
    done = harness("judge", *files(processes))
    assert done.status == ExitCode.INCONCLUSIVE
    assert max(map(len, done.out.splitlines())) <= 120
    assert max(map(len, done.out.split())) <= 30


def test_what_is_wrong_with_all_is_said_once(harness, files):
    processes = [
        Process(at_min=place, side=side, time_us=dict.fromkeys([SUM, RED, BOLD], 100.0))
        for place, side in enumerate(["base"] * 4 + ["head"] * 4)
    ]
    done = harness("judge", *files(processes))
    assert done.status == ExitCode.NOT_MEASURED
    assert done.out.count("not-alternated") == 1
    assert f"{SUM} and 2 more (not-alternated)" in done.out
    assert "3 invalid. Exit status 3." in done.out


def test_names_do_nothing_to_the_terminal(harness, files):
    processes = turns(SLOW)
    for process in processes:
        process.time_us = {"t.py::test[\x1b[2J[bold red]]\n": next(iter(process.time_us.values()))}
    done = harness("judge", *files(processes))
    assert done.status == ExitCode.REGRESSION
    assert "\x1b" not in done.out
    assert "[bold red]]" in done.out


def test_as_json(harness, files):
    done = harness("judge", *files(turns(SLOW)), "--json", "--margin", "1")
    assert done.status == ExitCode.REGRESSION
    document = done.json
    assert {key: document[key] for key in ("pairs", "margin", "tolerance")} == {
        "pairs": 4,
        "margin": 0.01,
        "tolerance": 0.1,
    }
    assert document["base"]["commit"] == BASE
    assert [Path(each).name for each in document["base"]["files"]] == [
        "0000_base.json",
        "0003_base.json",
        "0004_base.json",
        "0007_base.json",
    ]
    (verdict,) = document["verdicts"]
    assert (verdict["case"], verdict["status"]) == (SUM, "regression")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--head", "{head}"], ExitCode.USAGE, "Missing option '--base'"),
        (["--base", "{base}", "--head", "nothing"], ExitCode.USAGE, "--head nothing: no file of that name"),
        (["--base", "{base}", "--head", "{base}"], ExitCode.USAGE, "as base and as head"),
        (["--base", "{base}", "{base}", "--head", "{head}"], ExitCode.USAGE, "twice"),
        (["--base", "{base}", "--head", "{bad}"], ExitCode.NOT_MEASURED, "damaged, or no JSON"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(harness, files, tmp_path, arguments, status, words):
    files(turns(SLOW))
    bad = tmp_path / "bad.json"
    bad.write_text("{", encoding="utf-8")
    named = {side: f"{tmp_path}/saved/*_{side}.json" for side in ("base", "head")}
    done = harness("judge", *(each.format(**named, bad=bad) for each in arguments))
    assert done.status == status
    assert words in done.err
    assert done.out == ""


def test_files_of_the_installed_pytest_benchmark_are_judged(harness, saved, tmp_path):
    """Each side has one file of the same commit: too few for a verdict, but every benchmark is listed."""
    copied = tmp_path / "head.json"
    document = json.loads(saved["save"].read_text("utf-8"))
    later = dt.datetime.fromisoformat(document["datetime"]) + dt.timedelta(minutes=1)
    copied.write_text(json.dumps({**document, "datetime": later.isoformat()}), encoding="utf-8")
    done = harness("judge", "--base", str(saved["save"]), "--head", str(copied))
    assert done.status == ExitCode.INCONCLUSIVE
    assert "3 inconclusive. Exit status 4." in done.out
    assert "at least 4 files of each commit" in " ".join(done.out.split())
