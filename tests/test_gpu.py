"""Tests that need a real card. Run with `pytest -m gpu`; $HARNESS_DEVICE names the card, by default cuda:0. A
kernel that damages its context runs in a child process, so one card can run all tests in a row.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from harness.device.static.occupancy import CAPABILITIES, CardModel, residency
from harness.errors import DeviceError
from harness.history.row_summary import summary_of
from harness.measure.timing import MeasureSettings
from harness.records.types import DeviceInfo, Row
from harness.run.device_session import find_device
from harness.run.run import Session, SessionSettings
from harness.suite.device_facts import facts_of
from harness.suite.loader import load, load_folder
from harness.suite.planning import PlannedCase, plan
from tests import toy
from tests.mutations import MUTATIONS, TENSOR, broken_suite
from tests.support import (
    GPU,
    KERNELS,
    MATMUL_SIZES,
    PORTABLE,
    Recorder,
    device_is_missing,
    figures,
    records_below,
    run_command,
    write_files,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

# A tensor core's tile is 16 x 16, and it wants rows that start on 16 bytes: multiples of 8 in half precision.
TENSOR_SIZES = [
    (16, 16, 16),
    (24, 24, 24),
    (20, 12, 36),
    (17, 33, 15),
    (100, 52, 8),
    (130, 72, 200),
    (1000,) * 3,
]
MATRIX_SIZES = [(1, 1), (31, 5), (32, 32), (1, 5000), (5000, 1), (1025, 777), (68, 132)]
QUICK = MeasureSettings(max_time_s=0.5)


def sizes_of(suite: str, requires: str | None) -> list[tuple[int, ...]]:
    if suite != "matmul":
        return list(MATRIX_SIZES)
    return [*MATMUL_SIZES, *(TENSOR_SIZES if requires else [])]


CASES = {
    f"{suite}.{kernel.name}-{'x'.join(map(str, size))}": (suite, kernel.name, size)
    for suite in ("matmul", "copy", "transpose")
    for kernel in load_folder(KERNELS / suite).kernels
    for size in sizes_of(suite, kernel.requires or kernel.arch)
}


@pytest.fixture(scope="module")
def card():
    try:
        return find_device(GPU)
    except DeviceError as error:
        device_is_missing(GPU, error.message)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of compiled kernels for this file alone."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def use_cache(cache, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(cache))


@pytest.fixture(scope="module")
def verified(card, cache) -> dict[tuple[str, str, tuple[int, ...]], Row]:
    """Every kernel at every size, each kernel in a process of its own."""
    rows: dict[tuple[str, str, tuple[int, ...]], Row] = {}
    for suite in dict.fromkeys(suite for suite, _, _ in CASES.values()):
        loaded = load(KERNELS / suite)
        axes = list(loaded.suite.problem.axes)
        cases = []
        keys = [key for key in CASES.values() if key[0] == suite]
        for _, name, size in keys:
            kernel = loaded.suite.by_name[name]
            cases.append(PlannedCase(kernel, loaded.suite.case(kernel, dict(zip(axes, size, strict=True)))))
        with Session(loaded, SessionSettings(device=GPU, measure=None), Recorder()) as session:
            rows |= dict(zip(keys, session.run(cases).rows, strict=True))
    return rows


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_is_right(verified, case):
    row = verified[CASES[case]]
    if row.status == "skipped":
        pytest.skip(row.message)
    assert (row.status, row.message) == ("verified", ""), row.log
    assert row.verification.passed


GPU_MUTATIONS = [
    *TENSOR,
    *(
        mutation
        for mutation in MUTATIONS
        if str(mutation)
        in {
            "naive: no last k",
            "naive: no row guard",
            "shared_tile: no first barrier",
            "shared_tile: no bound of a",
            "shared_tile: no bound of b",
            "shared_tile: no column guard",
            "thread_tiling: store past the end",
            "thread_tiling_2d: no bound of b",
            "outer_product: wrong row",
            "copy: no bound",
            "transpose_tiled: no store guard",
        }
    ),
]


@pytest.fixture(scope="module")
def broken(card, cache, tmp_path_factory) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for suite in dict.fromkeys(mutation.suite for mutation in GPU_MUTATIONS):
        mutations = [mutation for mutation in GPU_MUTATIONS if mutation.suite == suite]
        loaded, cases = broken_suite(suite, mutations, tmp_path_factory.mktemp(suite))
        with Session(loaded, SessionSettings(device=GPU, measure=QUICK), Recorder()) as session:
            rows |= {row.kernel: row for row in session.run(cases).rows}
    return rows


@pytest.mark.parametrize("mutation", GPU_MUTATIONS, ids=str)
def test_a_broken_kernel_is_found_out_and_never_timed(broken, mutation):
    row = broken[mutation.name]
    if row.status == "skipped":
        pytest.skip(row.message)
    assert row.status == "failed"
    assert row.reason != "build-failed", row.log
    assert row.measurement is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["naive_coalesced", "thread_tiling_2d"])
def test_more_than_two_to_the_31_elements(card, name):
    """Offsets that are 32 bits wide somewhere would write, or read, elsewhere."""
    loaded = load(KERNELS / "matmul")
    kernel = loaded.suite.by_name[name]
    case = loaded.suite.case(kernel, {"m": 46400, "n": 46400, "k": 2})
    assert case.m * case.n > 2**31
    settings = SessionSettings(device=GPU, measure=None, timeout_s=1500)
    with Session(loaded, settings, Recorder()) as session:
        [row] = session.run([PlannedCase(kernel, case)]).rows
    if row.reason == "out-of-memory":
        pytest.skip(row.message)
    assert (row.status, row.message) == ("verified", ""), row.log


def test_telemetry_of_a_measurement(card):
    if card.backend != "cuda":
        pytest.skip(f"{card.spec} is no CUDA card")
    loaded = load(KERNELS / "matmul")
    with Session(loaded, SessionSettings(device=GPU, measure=MeasureSettings()), Recorder()) as session:
        result = session.run(plan(loaded.suite, ["naive_coalesced"], ["2048"]))
    [row] = result.rows
    times, seen = figures(row)
    assert seen.probe == "nvml", seen.unavailable
    started_ns, ended_ns = times.span_ns
    assert seen.before.at_ns <= started_ns < ended_ns <= seen.after.at_ns
    assert len(seen.during) > 1
    assert any(started_ns <= snapshot.at_ns <= ended_ns for snapshot in seen.during)
    for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c"):
        values = [getattr(snapshot, name) for snapshot in seen.during]
        assert any(values) or seen.unavailable[name], name
    summary = summary_of(row, result.run)
    assert summary.sm_clock_mhz
    assert summary.sm_clock_mhz > 0
    assert summary.temperature_c
    assert summary.power_w or seen.unavailable["power_w"]
    missing = {
        field.name
        for field in dataclasses.fields(seen.after)
        if all(getattr(snapshot, field.name) is None for snapshot in (seen.before, seen.after))
    }
    assert missing <= seen.unavailable.keys()
    assert times.l2 == "cold"
    assert times.clock == "cuda-event"
    assert times.tick_ns
    assert times.tick_ns > 0
    assert row.resources
    assert row.resources.registers
    assert result.run.device.uuid
    assert result.run.identity


# Kernels that harm their process, their context or their card's patience.

HARMFUL = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Double(Problem):
    n = Axis(default=(4096,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


suite = Suite(
    "harmful",
    Double(),
    headline="GB/s",
    prelude=PRELUDE,
    kernels=[
        Kernel(name, "harmful.cu", macros={"HARM": harm}, entry="harmful", block=64, grid=lambda c: c.n // 64)
        for name, harm in HARMS
    ],
)
"""

HARMS = {
    "first": 0,
    "stray": 1,
    "after_stray": 0,
    "endless": 2,
    "after_endless": 0,
    "null_page": 3,
    "last": 0,
}

SOURCE = """\
KERNEL harmful(const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int n)
{
    const int i = BLOCK_X * BLOCK_SIZE_X + THREAD_X;
    if (i >= n)
        return;
#if HARM == 1
    y[((index_t)1 << 42) + i] = 1.0f;
#elif HARM == 2
    volatile GLOBAL float* flag = y + i;
    while (*flag != 12345.0f) {
    }
#elif HARM == 3
    y = (GLOBAL float*)8;
#endif
    y[i] = 2.0f * x[i];
}
"""


def test_a_grid_as_large_as_the_card_holds_at_once(card, cache, tmp_path):
    """The grid has as many blocks as the driver says; the limits of the card give the same number."""
    if card.backend != "cuda":
        pytest.skip(f"{card.spec} is no CUDA card")
    write_files(tmp_path / "wave", toy.persistent(PORTABLE))
    loaded = load(tmp_path / "wave")
    with Session(loaded, SessionSettings(device=GPU, measure=QUICK), Recorder()) as session:
        rows = session.run(plan(loaded.suite)).rows
        device = session.device
    assert device.compute_capability is not None
    assert device.compute_units is not None
    known = CardModel(device.name, device.compute_capability, device.compute_units)
    for row in rows:
        assert (row.status, row.message) == ("measured", ""), row.log
        assert row.launch is not None
        assert row.resources is not None
        registers, shared_bytes = row.resources.registers, row.resources.static_shared_bytes
        assert registers is not None
        assert shared_bytes is not None
        held = residency(known, row.launch, registers, shared_bytes)
        assert row.launch.grid == (device.compute_units * held.blocks, 1, 1)
        assert held.waves == 1


def test_what_a_card_tells_is_what_the_data_file_says(card):
    """The file has an entry for the card's capability."""
    if card.backend != "cuda" or card.compute_capability not in CAPABILITIES:
        pytest.skip(f"{card.spec} is no CUDA card that is known")
    assert facts_of(card) == CardModel(card.name, card.compute_capability, card.compute_units).facts


@pytest.fixture(scope="module")
def harmed(card, cache, tmp_path_factory) -> dict[str, Row]:
    folder = tmp_path_factory.mktemp("harmful")
    suite = HARMFUL.replace("PRELUDE", repr(PORTABLE)).replace("HARMS", repr(list(HARMS.items())))
    write_files(folder, {"suite.py": suite, "harmful.cu": SOURCE})
    loaded = load(folder)
    settings = SessionSettings(device=GPU, measure=QUICK, timeout_s=20)
    with Session(loaded, settings, Recorder()) as session:
        return {row.kernel: row for row in session.run(plan(loaded.suite)).rows}


@pytest.mark.parametrize("kernel", ["stray", "null_page"])
def test_an_illegal_address_is_a_failure_with_a_reason(harmed, kernel):
    row = harmed[kernel]
    assert row.status == "failed"
    assert row.reason not in ("build-failed", "wrong-result", "timed-out")
    assert row.message
    assert row.measurement is None


def test_an_endless_kernel_is_ended(harmed):
    """The harness's time limit ends it, or the driver's limit on a card that drives a screen."""
    row = harmed["endless"]
    assert row.status == "failed"
    assert row.reason not in ("build-failed", "wrong-result")
    assert row.measurement is None


@pytest.mark.parametrize("kernel", ["first", "after_stray", "after_endless", "last"])
def test_the_kernels_beside_are_measured(harmed, kernel):
    row = harmed[kernel]
    assert (row.status, row.message) == ("measured", ""), row.log


# The command, as a user runs it.


@pytest.fixture
def project(tmp_path) -> Path:
    suites = [str(KERNELS / name) for name in ("matmul", "copy")]
    return write_files(tmp_path / "user", {"harness.toml": f"suites = {suites}\nresults = 'results'\n"})


def test_a_run_stores_what_the_compiler_and_the_card_tell(card: DeviceInfo, project):
    arguments = ("run", "naive", "thread_tiling_2d", "copy", "--size", "256", "--max-time", "0.3")
    done = run_command(*arguments, "--device", GPU, cwd=project)
    assert done.returncode == 0, done.stderr
    records = records_below(project / "results")
    assert {run.source.suite for run, _, _ in records} == {"matmul", "copy"}
    for run, rows, complete in records:
        assert complete
        assert run.device.spec == GPU
        assert run.device.name == card.name
        assert run.toolchain
        assert run.toolchain.compiler
        for row in rows:
            times, _ = figures(row)
            assert len(times.times_ns) >= 3
            assert row.resources
            assert row.resources.binary_sha256
            assert bool(row.resources.registers) == (card.backend == "cuda")


def test_a_second_run_compiles_nothing(card: DeviceInfo, project, cache):
    arguments = ("check", "shared_tile", "copy", "--size", "96", "--device", GPU)

    def binaries() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (cache / "binaries").rglob("*") if path.is_file()}

    assert run_command(*arguments, cwd=project).returncode == 0
    compiled = binaries()
    assert compiled
    assert run_command(*arguments, cwd=project).returncode == 0
    assert binaries() == compiled


def test_devices_shows_the_card(card: DeviceInfo):
    found = json.loads(run_command("devices", "--json", cwd=KERNELS).stdout)["devices"]
    assert card.name in [device["name"] for device in found if device["spec"] == GPU]
