"""Causes of slowdowns by hardware counters: made-up counters of planted causes, and NVIDIA's own tables."""

from __future__ import annotations

import ctypes
import json
import math
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.device.backends import nvcc
from harness.device.backends.cuda import cupti
from harness.device.counters import STALL, metrics_of
from harness.device.static import disassembly
from harness.errors import MeasureError
from harness.history.figures import METRICS, figure_of
from harness.judgement.causes import causes
from harness.records.types import Diagnosis, LaunchedKernel
from harness.report.words.of_diagnosis import _COUNTERS, counter_sheet, loop_places
from harness.report.words.of_verdict import why
from harness.run.run import Session, SessionSettings
from harness.suite.planning import plan
from tests.commits import Side, make_project
from tests.nvperf import HostLibrary, header_fields, package_folder
from tests.support import Recorder
from tests.test_compare import LADDER, compare, ladder, takes

BASE = {
    "cycles": 1_000_000.0,
    "warps": 32.0,
    "dram_read_bytes": 4e8,
    "dram_written_bytes": 4e8,
    "dram_busy": 30.0,
    "l2_sectors": 2.5e7,
    "l2_busy": 25.0,
    "l2_hit_rate": 60.0,
    "l1_tag_busy": 30.0,
    "l1_data_busy": 30.0,
    "load_requests": 4e6,
    "load_sectors": 1.6e7,
    "store_requests": 1e6,
    "store_sectors": 4e6,
    "local_load_requests": 0.0,
    "local_store_requests": 0.0,
    "atomic_requests": 0.0,
    "reduction_requests": 0.0,
    "shared_wavefronts": 1e7,
    "shared_conflicts": 0.0,
    "instructions": 1e8,
    "issue_busy": 40.0,
    "fp64_instructions": 0.0,
    "tensor_instructions": 0.0,
    "fma_busy": 30.0,
    "fp64_busy": 0.0,
    "tensor_busy": 0.0,
    "warp_cycles": 1e9,
    "stalled_long_scoreboard": 4e8,
    "stalled_short_scoreboard": 1e8,
    "stalled_mio_throttle": 1e8,
    "stalled_barrier": 5e7,
    "stalled_wait": 1.5e8,
    "stalled_selected": 1.5e8,
    "stalled_math_pipe_throttle": 5e7,
}
TENSOR = {**BASE, "tensor_instructions": 1e6, "tensor_busy": 40.0}


def slowed(base, stall, **changed):
    """Return counters of a head that waits for one reason half as long again as base takes in all."""
    extra = 0.5 * base["warp_cycles"]
    head = {**base, "cycles": 1.5 * base["cycles"], "warp_cycles": base["warp_cycles"] + extra, **changed}
    head[STALL + stall] += extra
    return head


PLANTED = {
    "bank-conflicts": slowed(BASE, "mio_throttle", shared_wavefronts=3.2e8, shared_conflicts=3.1e8),
    "uncoalesced": slowed(BASE, "long_scoreboard", load_sectors=1.28e8),
    "narrower-accesses": slowed(BASE, "long_scoreboard", load_requests=1.6e7, instructions=1.02e8),
    "more-accesses": slowed(BASE, "long_scoreboard", load_requests=8e6, load_sectors=3.2e7),
    "local-memory": slowed(BASE, "long_scoreboard", local_load_requests=2e6, local_store_requests=1e6),
    "atomics": slowed(BASE, "long_scoreboard", atomic_requests=1e6),
    "cache-misses": slowed(BASE, "long_scoreboard", dram_read_bytes=1.2e9, l2_hit_rate=20.0, dram_busy=80.0),
    "exposed-latency": slowed(BASE, "long_scoreboard"),
    "barriers": slowed(BASE, "barrier"),
    "dependencies": slowed(BASE, "wait"),
    "more-instructions": slowed(BASE, "selected", instructions=1.6e8),
    "double-precision": slowed(BASE, "math_pipe_throttle", fp64_instructions=2e7, fp64_busy=90.0),
    "tensor-cores-unused": slowed(
        TENSOR, "math_pipe_throttle", tensor_instructions=0.0, tensor_busy=0.0, instructions=2e8
    ),
    "occupancy": {**BASE, "cycles": 1.9e6, "warps": 16.0},
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_cause_comes_first(planted):
    base = TENSOR if planted == "tensor-cores-unused" else BASE
    first, *_ = causes(base, PLANTED[planted], PLANTED[planted]["cycles"] / base["cycles"] - 1)
    assert first.kind == planted
    assert 0.5 < first.share <= 1


def test_each_message_has_the_figures():
    [cause] = causes(BASE, PLANTED["bank-conflicts"], 0.5)
    assert cause.message == "bank conflicts of a shared-memory access rose from 0 to 31"
    [cause] = causes(BASE, PLANTED["uncoalesced"], 0.5)
    assert "from 4 to 32" in cause.message


@pytest.mark.parametrize(("barriers", "kind"), [(1e5, "exposed-latency"), (3e5, "barriers")])
def test_a_barrier_waits_for_the_slowest_warp(barriers, kind):
    """Without more barriers, longer waits at them are due to what the slowest warp waits for."""
    base = {**BASE, "adu_instructions": 1e5}
    head = slowed(base, "barrier", adu_instructions=barriers)
    head["stalled_barrier"] -= 2e8
    head["stalled_long_scoreboard"] += 2e8
    assert causes(base, head, 0.5)[0].kind == kind


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_counters_is_no_cause(seed):
    """The verdict saw a slowdown that does not show under the profiler."""
    rng = random.Random(seed)
    base, head = ({name: value * rng.gauss(1, 0.01) for name, value in BASE.items()} for _ in range(2))
    assert causes(base, head, 0.1) == ()
    assert causes(base, head, -0.1) == ()


@pytest.mark.parametrize("absent", sorted(BASE))
def test_a_counter_that_a_chip_lacks_is_no_error(absent):
    for planted in PLANTED.values():
        base, head = ({n: v for n, v in side.items() if n != absent} for side in (BASE, planted))
        causes(base, head, 0.5)


# Counters of an H200

RECORDED = json.loads(Path(__file__).with_name("counters_h200.json").read_text())
SUPPOSED = 0.02
"""Slowdown that is supposed of the same code twice."""


@pytest.mark.parametrize("case", RECORDED["cases"])
def test_the_first_cause_is_the_planted_one(case):
    found = RECORDED["cases"][case]
    base, head = (dict(zip(RECORDED["counters"], found[side], strict=True)) for side in ("base", "head"))
    kinds = [cause.kind for cause in causes(base, head, found["effect"] if found["expected"] else SUPPOSED)]
    assert kinds[0] in found["expected"] if found["expected"] else kinds == []


# How they are read


def counters(figures) -> str:
    return f"#define NULL_DEVICE_COUNTERS {json.dumps(figures)}"


def test_a_regression_is_explained_after_its_verdict(tmp_path):
    base = {"k": f"{takes(1_000_000)}\n{counters(BASE)}", "same": takes(1_000_000)}
    head = {"k": f"{takes(1_500_000)}\n{counters(PLANTED['barriers'])}", "same": takes(1_000_001)}
    result, watching, _ = compare(tmp_path, base, head, explain="regressions")
    of = {verdict.kernel: verdict.diagnosis for verdict in result.verdicts}
    assert of["same"] is None
    assert of["k"] is not None
    assert [cause.kind for cause in of["k"].causes] == ["barriers"]
    assert of["k"].head_counters["stalled_barrier"] == PLANTED["barriers"]["stalled_barrier"]
    assert watching.processes[-1][1:] == (1, "explain")
    [slower] = [verdict for verdict in result.verdicts if verdict.diagnosis]
    assert (
        why(slower.diagnosis)
        == "Because warps wait longer for one another at barriers (100 % of the extra cycles)."
    )


def test_an_interrupt_keeps_the_causes_found_so_far(tmp_path):
    def prepare(comparing):
        count = comparing._count

        def interrupted(entry):
            if entry.trial.case.kernel == "late":
                raise KeyboardInterrupt
            return count(entry)

        comparing._count = interrupted

    base = dict.fromkeys(("k", "late"), f"{takes(1_000_000)}\n{counters(BASE)}")
    head = dict.fromkeys(("k", "late"), f"{takes(1_500_000)}\n{counters(PLANTED['barriers'])}")
    result, _, _ = compare(tmp_path, base, head, prepare, explain="regressions")
    assert result.interrupted
    found = {each.kernel: (each.status, each.diagnosis) for each in result.verdicts}
    assert found["late"] == ("regression", None)
    assert found["k"][0] == "regression"
    assert found["k"][1] is not None
    assert [cause.kind for cause in found["k"][1].causes] == ["barriers"]


def test_sides_with_a_process_each_are_counted_there(tmp_path, monkeypatch):
    """A kernel with a setup runs code of its own commit, as a function of Python does."""
    setup = "grid=1, setup=lambda case, arrays: {'one': np.int32(1)}, args=('x', 'y', 'n', 'one'))"
    suite = f"import numpy as np\n{LADDER.replace('grid=1)', setup)}"
    monkeypatch.setattr("tests.test_compare.LADDER", suite)
    base = {"k": f"{takes(1_000_000)}\n{counters(BASE)}"}
    head = {"k": f"{takes(1_500_000)}\n{counters(PLANTED['barriers'])}"}
    result, watching, _ = compare(tmp_path, base, head, explain="regressions")
    [verdict] = result.verdicts
    assert verdict.diagnosis is not None
    assert verdict.diagnosis.problem == ""
    assert [cause.kind for cause in verdict.diagnosis.causes] == ["barriers"]
    assert verdict.diagnosis.base_counters["stalled_barrier"] == BASE["stalled_barrier"]
    assert watching.processes[-1][1:] == (1, "explain")


@pytest.mark.skipif(not (nvcc.version() and disassembly.path()), reason="the extra 'static' is not installed")
def test_a_regression_without_counters_has_what_its_compiled_code_tells(tmp_path):
    """The null device times it; nvcc compiles it for a card that is not here."""
    cuda = (
        'extern "C" __global__ void k(const float *x, float *y, int n) {\n'
        "float s = 1;\n#pragma unroll 16\nfor (int i = 0; i < n; ++i) s = s * x[i] + y[i];\ny[0] = s;\n}\n"
        "#define k unused\n#define __kernel static __device__\n#define __global"
    )

    def on_a_card(comparing):
        comparing.device = replace(comparing.device, arch="sm_86")

    base = {"k": f"{takes(1_000_000)}\n{cuda}"}
    head = {"k": f"{takes(1_500_000)}\n{cuda.replace('16', '1')}"}
    result, _, _ = compare(tmp_path, base, head, on_a_card, explain="regressions")
    [verdict] = result.verdicts
    assert verdict.diagnosis is not None
    assert [(risk.kind, risk.place) for risk in verdict.diagnosis.risks] == [("unroll", "k.cu:5")]
    loop = verdict.diagnosis.loop
    assert loop is not None
    assert loop.base_count > loop.head_count
    assert loop.removed == sum(each.count for each in loop.lines if each.change == "removed") >= 15
    assert why(verdict.diagnosis).startswith(
        "Compiled code: a turn of the hottest loop does 16 → 1 arithmetic"
    )
    assert why(verdict.diagnosis).endswith(
        "No counters: The harness reads no hardware counters with the backend null."
    )
    assert loop_places(loop) == "k.cu:5"


def test_a_rate_of_nothing_is_left_out(tmp_path):
    """A cache that nothing asked has no hit rate: NVIDIA's library returns a NaN, which JSON has not."""
    nan = {"l1_hit_rate": float("nan")}
    base = {"k": f"{takes(1_000_000)}\n{counters(BASE | nan)}"}
    head = {"k": f"{takes(1_500_000)}\n{counters(PLANTED['barriers'] | nan)}"}
    result, _, _ = compare(tmp_path, base, head, explain="regressions")
    [verdict] = result.verdicts
    assert verdict.diagnosis is not None
    assert [cause.kind for cause in verdict.diagnosis.causes] == ["barriers"]
    assert "l1_hit_rate" not in verdict.diagnosis.base_counters


def test_counters_are_read_where_somebody_asks_and_a_reason_for_none_is_told(tmp_path):
    result, _, _ = compare(tmp_path, {"k": takes(1_000_000)}, {"k": takes(1_500_000)})
    [verdict] = result.verdicts
    assert (verdict.status, verdict.diagnosis, why(verdict.diagnosis)) == ("regression", None, "")
    kernel = LaunchedKernel("_ZN2at6native3addILi4EEEvv", 2e6, 3e6)
    assert why(Diagnosis(launched=(kernel,))).startswith("The kernel add: 2.000 ms → 3.000 ms. No cause")
    refused = Diagnosis(problem="Administrators alone may read them.")
    assert why(refused) == "No counters: Administrators alone may read them."


def test_named_cases_are_explained_without_a_regression_too(harness, tmp_path):
    sides = {"more": (BASE, PLANTED["barriers"]), "alike": (BASE, BASE | {"cycles": 1.005 * BASE["cycles"]})}
    kernels = {
        name: (Side(f"{takes(1_000_000)}\n{counters(base)}"), Side(f"{takes(1_000_001)}\n{counters(head)}"))
        for name, (base, head) in sides.items()
    }
    repository = make_project(tmp_path / "project", kernels)
    done = harness("explain", "HEAD~1", "HEAD", "--device", "null", cwd=repository)
    assert done.status == 0, done.err
    told = " ".join(done.out.split())
    assert "within the tolerance for sure. Because warps wait longer for one another at barriers" in told
    assert "within the tolerance for sure. No cause stands out among the hardware counters." in told
    assert "launch of toy.more[n=64] counter (waits in cycles) base head change %" in told
    assert "waited: other warps (barrier) 50.0 k 550 k +1,000" in told


def test_counters_of_runs_are_series(tmp_path):
    """A process that times nothing counts each case."""
    figures = {**BASE, "load_sectors": 8 * BASE["load_requests"]}
    loaded = ladder(tmp_path, {"k": f"{takes(1_000_000)}\n{counters(figures)}", "none": takes(1_000_000)})
    settings = SessionSettings(device="null", counters=True)
    with Session(loaded, settings, Recorder()) as session:
        rows = {row.kernel: row for row in session.run(plan(loaded.suite)).rows}
    assert rows["k"].counters == figures
    assert figure_of(METRICS["sectors_per_load"], rows["k"]) == 8
    assert figure_of(METRICS["dram_bytes"], rows["k"]) == 8e8
    assert rows["none"].counters == {}
    assert "no hardware counters" in rows["none"].counters_missing
    assert math.isnan(figure_of(METRICS["dram_bytes"], rows["none"]))


def test_every_counter_has_words_that_fit_into_80_columns():
    assert _COUNTERS.keys() | {"warp_cycles", "elapsed_cycles"} == metrics_of("GH100").keys()
    base, head = dict.fromkeys(_COUNTERS, 94.4), dict.fromkeys(_COUNTERS, 21.1)
    sheet = counter_sheet(Diagnosis(base_counters=base, head_counters=head))
    assert sheet is not None
    assert sum(column.width + 2 for column in sheet.columns) - 2 <= 80


def test_shares_of_peak_rates_are_of_the_launch_without_the_time_around_it():
    base = {"cycles": 100_000, "elapsed_cycles": 500_000, "dram_busy": 12.0, "l2_hit_rate": 50.0}
    head = {"cycles": 200_000, "elapsed_cycles": 400_000, "dram_busy": 15.0, "l2_hit_rate": 50.0}
    sheet = counter_sheet(Diagnosis(base_counters=base, head_counters=head))
    assert sheet is not None
    rows = list(zip(*(column.cells for column in sheet.columns), strict=True))
    assert rows == [
        ("cycles", "100 k", "200 k", "+100"),
        ("DRAM busy, % of peak", "60.0", "30.0", "-30.0 points"),
        ("L2 hits, %", "50.0", "50.0", ""),
    ]


# NVIDIA's tables

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the wheel is of Linux")


@on_linux
def test_every_chip_that_nvidias_library_knows_has_our_counters():
    library = HostLibrary()
    for chip in library.chips():
        known = library.evaluator(chip)
        metrics = metrics_of(chip)
        assert [name for name in metrics.values() if not known(name)] == [], chip
        assert len(metrics) > 40, chip


def test_each_pass_has_all_works_and_ranges_are_told_apart_by_name(monkeypatch):
    """The data's ranges are in another order here than the works."""
    done: list[str] = []
    stops = iter((0, 1))

    def call(function, **given):
        done.append(function.removeprefix("cuptiRangeProfiler") + given.get("name", b"").decode())
        if function.endswith("EvaluateToGpuValues"):
            ctypes.c_double.from_address(given["values"]).value = 10.0 * given["range"]
        return SimpleNamespace(
            profiler=1,
            size=8,
            all_submitted=next(stops) if function.endswith("Stop") else 0,
            name=str(1 - given.get("range", 0)).encode(),
        )

    names = (ctypes.c_char_p * 1)(b"sm__cycles_active.max")
    setup = cupti._Setup({"cycles": "sm__cycles_active.max"}, names, 0, ctypes.create_string_buffer(8))
    monkeypatch.setattr(cupti, "_set_up", lambda *_: setup)
    monkeypatch.setattr(cupti, "_call", call)
    works = [(partial(done.append, f"prepare {n}"), partial(done.append, f"run {n}")) for n in "01"]
    assert cupti.counted(0, 0, metrics_of, works) == [{"cycles": 10.0}, {"cycles": 0.0}]
    one_pass = [step for n in "01" for step in (f"prepare {n}", f"PushRange{n}", f"run {n}", "PopRange")]
    begun = done.index("Start")
    assert done[begun : begun + 20] == 2 * ["Start", *one_pass, "Stop"]


def test_a_refusal_names_the_setting_that_lifts_it_and_what_that_opens(monkeypatch):
    refusing = SimpleNamespace(cuptiProfilerInitialize=lambda _: 35, cuptiGetErrorMessage=lambda *_: 0)
    monkeypatch.setattr(cupti, "_library", lambda: refusing)
    with pytest.raises(MeasureError, match=r"NVreg_RestrictProfilingToAdminUsers=0 .* learns something of"):
        cupti.counted(0, -1, metrics_of, [])


NEWER = {
    "cuptiProfilerGetCounterAvailability": "bAllowDeviceLevelCounters",
    "cuptiProfilerHostInitialize": "pSinglePassMetricSetName",
    "cuptiRangeProfilerEnable": "cacheControlMode",
}
"""Fields that came after CUDA 12.6."""


@on_linux
@pytest.mark.parametrize("function", sorted(cupti._FIELDS))
def test_structures_are_those_of_nvidias_headers(function):
    ours, theirs = cupti.fields_of(function), header_fields(package_folder() / "include", function)
    layout = [(getattr(ours, name).offset, getattr(ours, name).size) for name, *_ in ours._fields_]
    expected = type("Expected", (ctypes.Structure,), {"_fields_": theirs})
    names = [name for name, _ in theirs]
    assert layout == [(getattr(expected, n).offset, getattr(expected, n).size) for n in names][: len(layout)]
    # A library refuses the size of a newer one: ours are those of CUDA 12.6.
    assert "".join(names[len(layout) :]) == NEWER.get(function, "")
