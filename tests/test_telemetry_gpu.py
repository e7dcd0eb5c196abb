"""Telemetry of a real NVIDIA card. Run with `pytest -m gpu -s` to see it all."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import fields

import pynvml
import pytest

from harness.device.telemetry import Sampler, telemetry_of
from harness.device.telemetry.nvml import NvmlProbe

pytestmark = pytest.mark.gpu


@pytest.fixture
def probe():
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"no NVIDIA driver here: {error}")
    bus_id = pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).busId
    pynvml.nvmlShutdown()
    with closing(NvmlProbe(bus_id)) as opened:
        yield opened


def test_a_card_tells_the_least_that_a_verdict_needs(probe):
    snapshot = probe.snapshot()
    print(snapshot, dict(probe.unavailable), dict(probe.identity()), probe.limits(), sep="\n")  # noqa: T201
    assert snapshot.sm_clock_mhz
    assert snapshot.memory_clock_mhz
    assert snapshot.temperature_c
    missing = {field.name for field in fields(snapshot) if getattr(snapshot, field.name) is None}
    assert missing <= set(probe.unavailable)


def test_what_a_snapshot_costs(probe):
    for full in (False, True):
        costs = []
        for _ in range(50):
            started = time.perf_counter()
            probe.snapshot(full=full)
            costs.append(time.perf_counter() - started)
        print(f"full={full}: median {statistics.median(costs) * 1e3:.2f} ms, worst {max(costs) * 1e3:.2f} ms")  # noqa: T201


def test_counters_never_run_backwards(probe):
    with Sampler(probe) as sampler:
        started_ns = time.monotonic_ns()
        time.sleep(0.2)
        telemetry = telemetry_of(sampler, started_ns, time.monotonic_ns(), own_pids=())
    assert telemetry.before.at_ns <= started_ns
    assert telemetry.during
    assert "probe" not in telemetry.unavailable
    before, after = telemetry.before.throttle_ns or {}, telemetry.after.throttle_ns or {}
    assert before.keys() == after.keys()
    assert all(before[cause] <= after[cause] for cause in before)
