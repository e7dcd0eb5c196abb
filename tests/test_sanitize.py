"""Kernels in a simulator: what no result shows is found, and what is right is clean."""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.device.backends import oclgrind
from harness.errors import DeviceError, ExitCode
from tests.support import caller, device_is_missing, write_files

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, ceil_div

class Shift(Problem):
    n = Axis(default=(1024,), quick=(40,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        raise NotImplementedError

suite = Suite("shift", Shift(), headline="GB/s", prelude={"opencl": "opencl.h"}, kernels=[
    Kernel(name, f"{name}.cu", block=32, grid=lambda c: ceil_div(c.n, 32))
    for name in ("right", "no_barrier", "off_by_one", "no_clamp")
])
"""
RIGHT = """\
__kernel void right(__global const float* x, __global float* y, int n)
{
    __local float tile[32];
    const int i = get_global_id(0), t = get_local_id(0);
    tile[t] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float own = x[min(i, n - 1)];
    const float value = tile[(t + 1) % 32];
    if (i < n)
        y[i] = value + own;
}
"""
BROKEN = {
    "no_barrier": ("    barrier(CLK_LOCAL_MEM_FENCE);\n", ""),
    "off_by_one": ("if (i < n)", "if (i <= n)"),
    "no_clamp": ("x[min(i, n - 1)]", "x[i]"),
}


def test_a_race_an_access_beyond_and_a_load_that_is_never_stored_are_found(tmp_path, capsys, monkeypatch):
    try:
        with tempfile.TemporaryDirectory() as folder:
            oclgrind.environment(Path(folder), Path(folder, "log"))
    except DeviceError as error:
        device_is_missing("oclgrind", error)
    files = {
        f"kernels/shift/{name}.cu": RIGHT.replace("right", name).replace(*edit)
        for name, edit in BROKEN.items()
    }
    files |= {"kernels/shift/right.cu": RIGHT, "kernels/shift/suite.py": SUITE, "kernels/shift/opencl.h": ""}
    write_files(tmp_path, files | {"harness.toml": ""})
    harness = caller(capsys, monkeypatch)
    done = harness("check", "--sanitize", "--json", cwd=tmp_path)
    assert done.status == ExitCode.REGRESSION, done.err
    found = {
        row["case"].partition("[")[0]: {(each["kind"], each["place"]) for each in row["findings"]}
        for row in done.json
    }
    assert found["shift.right"] == set()
    assert ("race", "no_barrier.cu:5") in found["shift.no_barrier"]
    assert ("bounds", "off_by_one.cu:10") in found["shift.off_by_one"]
    # Its value is never stored, and the array is no longer than it says.
    assert ("bounds", "no_clamp.cu:7") in found["shift.no_clamp"]
    assert harness("check", "--sanitize", "--device", "null", cwd=tmp_path).status == ExitCode.USAGE


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
