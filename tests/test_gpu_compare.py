"""Comparisons on a real card. Run with `pytest -m gpu`; $HARNESS_DEVICE names the card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.device import backends
from harness.device.backends import nvcc
from harness.errors import DeviceError, ExitCode
from harness.records.record_files import read_comparison
from tests.support import GPU, IMPORT_PATH, device_is_missing, make_repository, run_command, write_files
from tests.support import commit as commit_files

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, ceil_div


class Polynomial(Problem):
    n = Axis(default=(2**24,))
    x = Input("n")
    y = Output("n")
    independent = "n"

    def data(self, case, rng):
        return {"x": rng.random(case.n, dtype="float32")}

    def reference(self, case, x):
        return 2 * x  # where y = 0.5 * y + x comes to rest

    def tolerance(self, case, x):
        return 1e-4


def kernel(name):
    return Kernel(name, name + ".cu", block=256, grid=lambda c: ceil_div(c.n, 256))


suite = Suite("poly", Polynomial(), headline="GB/s", kernels=[kernel("steady"), kernel("other")])
"""
BODY = """\
extern "C" __global__ void NAME(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float at = x[i];
    float value = at;
#pragma unroll 1
    for (int step = 0; step < 400; ++step) value = fmaf(value, 0.5f, at);
    EXTRA
    y[i] = value;
}
"""
NOTHING = ""
WASTE = """
#pragma unroll 1
    for (int step = 0; step < 12; ++step) value = fmaf(value, 0.5f, at);
"""
"""Three percent more of the same arithmetic, which has long converged."""


def body(name: str, extra: str = NOTHING) -> str:
    return BODY.replace("NAME", name).replace("EXTRA", extra)


FILES = {
    "pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\n",
    "kernels/poly/suite.py": SUITE,
    "kernels/poly/steady.cu": body("steady"),
    "kernels/poly/other.cu": body("other"),
}


@pytest.fixture(scope="module")
def card():
    try:
        device = backends.open_device(GPU)
    except DeviceError as error:
        device_is_missing(GPU, error.message)
    info = device.info
    device.close()
    return info


@pytest.fixture
def project(tmp_path, card):
    root = make_repository(tmp_path / "project")
    commit_files(root, FILES, 1)
    return root


def compare(root: Path, *arguments: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    done = run_command("compare", "--device", GPU, "--json", *arguments, cwd=root)
    assert done.stdout, done.stderr
    (result,) = json.loads(done.stdout)
    return done.returncode, result, {verdict["kernel"]: verdict for verdict in result["verdicts"]}


def test_a_slower_kernel_is_found_and_put_down_to_the_code(project):
    commit_files(project, {"kernels/poly/steady.cu": body("steady", WASTE)}, 2)
    write_files(project, {"kernels/poly/other.cu": "// a comment\n" + body("other")})
    code, result, verdicts = compare(project, "HEAD~1")
    assert verdicts["steady"]["status"] == "regression"
    assert verdicts["steady"]["attribution"] == "code"
    assert 0.01 < verdicts["steady"]["time"]["effect"] < 0.06
    assert 0.01 < verdicts["steady"]["cycles"]["effect"] < 0.06
    assert verdicts["other"]["status"] == "identical"
    assert code == ExitCode.REGRESSION
    stored = read_comparison(Path(str(result["record"])))
    assert {block.case for block in stored.blocks} == {verdicts["steady"]["case"]}
    assert all(block.block.telemetry for block in stored.blocks)

    code, _, verdicts = compare(project, "HEAD..HEAD~1", "steady")
    assert verdicts["steady"]["status"] == "improvement"
    assert code == ExitCode.FINE


def test_what_is_obvious_takes_few_quads(project):
    twice = WASTE.replace("step < 12", "step < 400")
    commit_files(project, {"kernels/poly/steady.cu": body("steady", twice)}, 2)
    code, result, verdicts = compare(project, "HEAD~1", "steady")
    assert (code, verdicts["steady"]["status"]) == (ExitCode.REGRESSION, "regression")
    assert verdicts["steady"]["time"]["effect"] > 0.5
    blocks = read_comparison(Path(str(result["record"]))).blocks
    # Two processes to find it and two to confirm it.
    assert [block.confirming for block in blocks] == [False, False, True, True]
    assert all(len(block.block.quads) <= 24 for block in blocks)


def test_a_wrong_kernel_that_loosens_its_own_tolerance_fails(project):
    wrong = (
        body("steady").replace("y[i] = value;", "y[i] = value + 0.1f * (i == 12345);").replace("400;", "4;")
    )
    loose = SUITE.replace("return 1e-4", "return 0.2")
    commit_files(project, {"kernels/poly/steady.cu": wrong, "kernels/poly/suite.py": loose}, 2)
    code, result, verdicts = compare(project, "HEAD~1", "HEAD")
    assert (code, verdicts["steady"]["status"]) == (ExitCode.REGRESSION, "failed")
    assert (verdicts["steady"]["reason"], verdicts["steady"]["side"]) == ("wrong-by-base", "head")
    assert verdicts["other"]["status"] == "identical"
    assert result["problem_changes"] == ["largest tolerance: 0.0001 → 0.2 at 16777216 float32."]


def test_twins_hold(project):
    commit_files(project, {"kernels/poly/steady.cu": body("steady", WASTE)}, 2)
    _, result, verdicts = compare(project, "HEAD~1", "--twins", "steady")
    assert {twin["case"]: twin["status"] for twin in result["twins"]} == {
        "twin.same": "unchanged",
        "twin.planted": "regression",
    }
    assert verdicts["steady"]["status"] == "regression"


COMPETITOR = """\
import numpy as np
from pathlib import Path
from harness.device import backends
from harness.device.backends import nvcc
from harness.records.types import Launch
from harness.suite.sources import Program

device = backends.open_device("{device}")
text = '''extern "C" __global__ void busy(float* out, int rounds)
{{
    float x = threadIdx.x;
    for (int i = 0; i < rounds; ++i) x = fmaf(x, 0.999f, 1.0f);
    if (x == 3.0f) *out = x;
}}'''
built = device.build(Program("busy", "busy", text))
out = device.allocate(4096)
launch = Launch(grid=(4 * device.info.compute_units, 1, 1), block=(256, 1, 1))
arguments = (np.uintp(int(out)), np.int32(200_000))
device.launch(built, launch, arguments)
device.synchronize()
Path("{marker}").touch()
while True:
    for _ in range(20):
        device.launch(built, launch, arguments)
    device.synchronize()
"""


def test_beside_another_process_nothing_is_called_slower(project, tmp_path):
    """Code against itself while another process works on the card: whatever it is called, never an alarm."""
    marker = tmp_path / "busy"
    with subprocess.Popen(
        [sys.executable, "-c", COMPETITOR.format(device=GPU, marker=marker)],
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
    ) as busy:
        try:
            while not marker.exists():
                assert busy.poll() is None, "the other process could not start"
            done = run_command(
                "calibrate", "--device", GPU, "--json", "--trials", "2", "--planted-trials", "0", cwd=project
            )
        finally:
            busy.kill()
    (result,) = json.loads(done.stdout)
    found = {verdict["status"] for verdict in result["same"]}
    assert found <= {"invalid", "unchanged", "inconclusive"}, result["same"]
    assert result["calibration"]["false_alarms"] == 0


def test_stamps_count_cycles_and_time(card):
    device = backends.open_device(GPU)
    try:
        stamps = []
        for _ in range(4):
            stamps.append(device.stamp())
            device.occupy(1_000_000)
        device.synchronize()
        read = [stamp for stamping in stamps if (stamp := stamping())]
        assert len(read) == len(stamps)
        spans = [(b.cycles - a.cycles, b.time_ns - a.time_ns) for a, b in pairwise(read)]
        for cycles, time_ns in spans:
            assert time_ns >= 1_000_000
            assert 100 < 1e3 * cycles / time_ns < 5000  # a clock in MHz
        canary = device.canary()
        device.synchronize()
        assert canary
        assert canary() > 0
        assert (device.globaltimer_tick_ns() or 0) > 0
    finally:
        device.close()


@pytest.mark.parametrize("how", ["hold", "occupy"])
def test_the_host_enqueues_while_the_card_waits(card, how):
    """A call that waits for the card would wait until the card gives up, so any host would look slow."""
    device = backends.open_device(GPU)

    def enqueue() -> None:
        for _ in range(10):
            device.flush_l2()
            device.stamp()
            device.canary()

    try:
        enqueue()  # takes the memory
        device.hold()()
        device.synchronize()
        release = device.hold() if how == "hold" else None
        if release is None:
            device.occupy(100_000_000)
        began = time.monotonic()
        enqueue()
        enqueued_s = time.monotonic() - began
        if release:
            release()
        device.synchronize()
        assert enqueued_s < 0.05
    finally:
        device.close()


def test_a_compiler_that_makes_slower_code_is_found(project, tmp_path):
    """The other nvcc is the same one with a macro, under which one of the two kernels does more."""
    found = nvcc.path()
    assert found, "a card without a compiler"
    other = write_files(tmp_path / "other", {"bin/nvcc": f'#!/bin/sh\nexec {found} "$@" -DWASTES\n'})
    (other / "bin" / "nvcc").chmod(0o755)
    wasteful = body("other", f"#ifdef WASTES\n{WASTE}\n#endif\n")
    commit_files(project, {"kernels/poly/other.cu": wasteful}, 2)
    status, result, verdicts = compare(project, "--toolchain", found, "--toolchain", str(other))
    assert (status, verdicts["steady"]["status"]) == (ExitCode.REGRESSION, "identical")
    assert verdicts["other"]["status"] == "regression"
    assert 0.01 < verdicts["other"]["time"]["effect"] < 0.05
    assert result["comparison"]["settings"]["head_toolchain"] == str(other)
