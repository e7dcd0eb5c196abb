"""Kernels under sanitizers: what no result shows is found, and what is right is clean."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from harness.device.backends import compute_sanitizer, oclgrind
from harness.errors import DeviceError, ExitCode
from harness.run.device_session import find_device
from tests.support import GPU, caller, device_is_missing, write_files

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, ceil_div

class Shift(Problem):
    n = Axis(default=(1024,), quick=(40,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        raise NotImplementedError

suite = Suite("shift", Shift(), headline="GB/s", prelude={"opencl": "opencl.h", "cuda": "cuda.h"}, kernels=[
    Kernel(name, f"{name}.cu", block=64, grid=lambda c: ceil_div(c.n, 64))
    for name in NAMES
])
"""
CUDA = """\
#define __kernel extern "C" __global__
#define __global
#define __local __shared__
#define get_global_id(axis) (blockIdx.x * blockDim.x + threadIdx.x)
#define get_local_id(axis) threadIdx.x
#define barrier(fence) __syncthreads()
"""
RIGHT = """\
__kernel void right(__global const float* x, __global float* y, int n)
{
    __local float tile[64];
    const int i = get_global_id(0), t = get_local_id(0);
    tile[t] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float own = x[min(i, n - 1)];
    const float value = tile[(t + 1) % 64];
    if (i < n)
        y[i] = value + own;
}
"""
BROKEN = {
    "no_barrier": ("    barrier(CLK_LOCAL_MEM_FENCE);\n", ""),
    "off_by_one": ("if (i < n)", "if (i <= n)"),
    "no_clamp": ("x[min(i, n - 1)]", "x[i]"),
    "unwritten": ("y[i] = value", "y[i] += value"),
    "some_wait": ("    barrier(", "    if (t < 40) barrier("),
    "endless": ("    barrier(", "    while (tile[t] != -1.0f) barrier("),
}


def project(folder: Path, *names: str) -> Path:
    """A repository with these kernels, each broken but for one."""
    texts = {
        f"{name}.cu": RIGHT.replace("right", name).replace(*BROKEN.get(name, ("", ""))) for name in names
    }
    texts |= {"suite.py": SUITE.replace("NAMES", repr(names)), "opencl.h": "", "cuda.h": CUDA}
    return write_files(
        folder, {f"kernels/shift/{name}": text for name, text in texts.items()} | {"harness.toml": ""}
    )


def told(rows) -> dict[tuple[str, str], set[tuple[str, str]]]:
    return {
        (row["case"].partition("[")[0].partition(".")[2], row["tool"]): {
            (each["kind"], each["place"]) for each in row["findings"]
        }
        for row in rows
    }


def test_a_race_an_access_beyond_and_a_load_that_is_never_stored_are_found(tmp_path, capsys, monkeypatch):
    try:
        with tempfile.TemporaryDirectory() as folder:
            oclgrind.environment(Path(folder), Path(folder, "log"))
    except DeviceError as error:
        device_is_missing("oclgrind", error)
    project(tmp_path, "right", "no_barrier", "off_by_one", "no_clamp")
    harness = caller(capsys, monkeypatch)
    done = harness("check", "--sanitize", "--tool", "oclgrind", "--json", cwd=tmp_path)
    assert done.status == ExitCode.REGRESSION, done.err
    found = told(done.json)
    assert found["right", "oclgrind"] == set()
    assert ("race", "no_barrier.cu:5") in found["no_barrier", "oclgrind"]
    assert ("bounds", "off_by_one.cu:10") in found["off_by_one", "oclgrind"]
    # Its value is never stored, and the array is no longer than it says.
    assert ("bounds", "no_clamp.cu:7") in found["no_clamp", "oclgrind"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sanitize", "--device", "null"), "null is none"),
        (("--sanitize", "--device", "cuda:0", "--tool", "oclgrind"), "needs no device"),
        (("--tool", "memcheck"), "--sanitize"),
    ],
)
def test_a_tool_and_a_device_that_do_not_go_together_are_refused(
    options, said, tmp_path, capsys, monkeypatch
):
    done = caller(capsys, monkeypatch)("check", *options, cwd=project(tmp_path, "right"))
    assert done.status == ExitCode.USAGE
    assert said in done.err


@pytest.mark.gpu
def test_compute_sanitizer_finds_what_is_planted_on_a_card(tmp_path, capsys, monkeypatch):
    card()
    names = ("right", "no_barrier", "off_by_one", "unwritten", "some_wait")
    harness = caller(capsys, monkeypatch)
    done = harness("check", "--sanitize", "--device", GPU, "--json", cwd=project(tmp_path, *names))
    print(done.out, done.err)  # noqa: T201 - what the tools say, for whoever runs this with -s
    assert done.status == ExitCode.REGRESSION, done.err
    found = told(done.json)
    assert {tool for _, tool in found} == {*compute_sanitizer.TOOLS}
    assert [found["right", tool] for tool in compute_sanitizer.TOOLS] == [set()] * 4, done.json
    # The write and the read of shared memory, whichever it names first.
    assert found["no_barrier", "racecheck"] & {("race", f"no_barrier.cu:{line}") for line in (5, 7)}
    assert found["off_by_one", "memcheck"] == {("bounds", "off_by_one.cu:10")}
    assert found["unwritten", "initcheck"] == {("uninitialised", "unwritten.cu:10")}
    assert {kind for kind, _ in found["some_wait", "synccheck"]} == {"barrier"}


@pytest.mark.gpu
def test_a_kernel_that_never_ends_under_a_tool_is_ended(tmp_path, capsys, monkeypatch):
    card()
    given = ("--device", GPU, "--tool", "memcheck", "--timeout", "15", "--json")
    harness = caller(capsys, monkeypatch)
    done = harness("check", "--sanitize", *given, cwd=project(tmp_path, "endless"))
    assert done.status == ExitCode.NOT_MEASURED
    [row] = done.json
    assert (row["status"], row["reason"], row["tool"]) == ("failed", "timed-out", "memcheck")


def card() -> None:
    try:
        find_device(GPU)
        compute_sanitizer.program()
    except DeviceError as error:
        device_is_missing(GPU, error.message)


def test_a_log_is_read_by_its_messages():
    race = "Read-write data race at local memory address {}\n\tKernel: k\n\t\n\tFirst entity:  {}\n"
    place = "\tAt line 4 (column 7) of /tmp/k.cu:\n\t  t[l] = a[g];\n\t\n\tSecond entity: Global(0,0,0)\n\t\n"
    text = (
        f"\n{race.format('0x10', 'Global(1,0,0)')}{place}\n{race.format('0x14', 'Global(2,0,0)')}{place}"
        "\nInvalid read of size 4 at global memory address 0x20\n\tKernel: k\n\tEntity: Global(2,0,0)\n"
        "Work-group divergence detected (barrier):\n\tKernel: k\n"
        "\nOclgrind: 3 errors generated\n"
    )
    told = [(each.kind, each.place, each.count, each.thread) for each in oclgrind.findings(text)]
    assert told == [
        ("race", "k.cu:4", 2, "Global(1,0,0)"),
        ("bounds", "", 1, "Global(2,0,0)"),
        ("barrier", "", 1, ""),
    ]
