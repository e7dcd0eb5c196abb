"""A benchmark of nvbench's on a real card: `pytest -m gpu`, where its Python package cuda-bench is there."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from harness.errors import DeviceError, ExitCode
from harness.records.record_files import read_run
from harness.run.device_session import find_device
from tests.support import GPU, caller, commit, device_is_missing, make_repository

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

BENCH = '''\
import gc
import sys

import numpy as np
import pycuda.autoprimaryctx
import pycuda.driver as driver
from pycuda.compiler import SourceModule

import cuda.bench as bench

STEPS = @STEPS@
spin = SourceModule("""
__global__ void spin(float* y, int steps)
{
    float value = threadIdx.x;
    for (int i = 0; i < steps; ++i) value = value * 0.5f + 1.0f;
    y[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
""").get_function("spin")
stream = driver.Stream()
y = driver.mem_alloc(4 * 2**20)


class Ours:
    def __cuda_stream__(self):
        return 0, int(stream.handle)


def launch(_launch=None):
    spin(y, np.int32(STEPS), grid=(4096, 1), block=(256, 1, 1), stream=stream)


def spinning(state):
    state.set_stream(Ours())
    state.exec(launch, batched=False)


launch()  # loading a kernel waits for nvbench's blocking kernel, and that for the launch
stream.synchronize()
bench.register(spinning).add_int64_axis("Blocks", [4096])
gc.collect()
gc.disable()  # what frees memory of the card while nvbench blocks its stream waits for ever
bench.run_all_benchmarks(sys.argv)
'''
COMMAND = f"{shlex.quote(sys.executable)} bench.py --devices 0 --min-time 0.02 --timeout 2"


@pytest.fixture
def repository(tmp_path):
    pytest.importorskip("cuda.bench")
    if GPU != "cuda:0":
        pytest.skip(f"{GPU} is not the first card, which nvbench is asked for")
    try:
        find_device(GPU)
    except DeviceError as error:
        device_is_missing(GPU, error)
    made = make_repository(tmp_path / "project")
    for day, steps in ((1, 4000), (2, 4200)):
        commit(made, {"harness.toml": "", "bench.py": BENCH.replace("@STEPS@", str(steps))}, day)
    return made


def test_builds_of_an_nvbench_executable_are_judged(repository, capsys, monkeypatch):
    harness = caller(capsys, monkeypatch)
    given = ("--with-command", COMMAND, "--suite", "spin", "--json")
    done = harness("compare", "HEAD~1", "HEAD", *given, cwd=repository)
    assert done.out, done.err
    [told] = done.json
    [said] = told["verdicts"]
    assert (said["case"], said["status"]) == ("spin.spinning[Blocks=4096]", "regression"), said
    assert said["time"]["effect"] == pytest.approx(0.05, abs=0.015)
    assert told["comparison"]["device"]["uuid"]
    assert done.status == ExitCode.REGRESSION
    done = harness("compare", "HEAD", "HEAD", *given, cwd=repository)
    [told] = done.json
    assert told["verdicts"][0]["status"] in ("unchanged", "inconclusive"), told["verdicts"]


def test_samples_of_an_nvbench_executable_are_kept(repository, capsys, monkeypatch, tmp_path):
    harness = caller(capsys, monkeypatch)
    out = tmp_path / "out.json"
    subprocess.run([*shlex.split(COMMAND), "--jsonbin", str(out)], cwd=repository, check=True)
    done = harness("import", "nvbench", str(out), "--suite", "spin", "--json", cwd=repository)
    [told] = done.json
    assert told["problems"] == []
    [row] = read_run(repository / told["record"]).rows
    assert row.measurement
    assert len(row.measurement.times_ns) >= 10
    assert row.verification is None
