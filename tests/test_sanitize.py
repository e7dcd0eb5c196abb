"""Kernels under sanitizers: what no result shows is found, and what is right is clean."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from harness.device.backends import compute_sanitizer, nvcc, oclgrind
from harness.device.findings import SanitizerFinding
from harness.errors import DeviceError, ExitCode
from harness.report.terminal.progress import SanitizeProgress
from harness.report.terminal.sanitized import sanitized_table
from harness.run.device_session import find_device
from harness.run.sanitize import Sanitized, sanitize
from harness.suite.loader import load
from harness.suite.planning import plan
from tests.forked_command import first_lines
from tests.support import GPU, KERNELS, caller, device_is_missing, write_files

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


# As NVIDIA's Compute Sanitizer manual prints them, and as older versions wrote a place.
MEMCHECK = """\
========= COMPUTE-SANITIZER
Mallocing memory
========= Invalid __global__ write of size 4 bytes
=========     at unaligned_kernel()+0x100 in memcheck_demo.cu:34
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7cc43aa00001 is misaligned
=========     and is inside the nearest allocation at 0x7cc43aa00000 of size 4 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0xae61] in memcheck_demo
=========
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_function()+0xb0 in memcheck_demo.cu:39
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7cc43a800400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7cc43a800000 of size 1,024 bytes
=========         Device Frame: out_of_bounds_kernel()+0x30 in memcheck_demo.cu:44
=========
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_function()+0xb0 in memcheck_demo.cu:39
=========     by thread (1,0,0) in block (0,0,0)
=========     Access to 0x7cc43a800404 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7cc43a800000 of size 1,024 bytes
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in /home/block_error.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in /home/block_error.cu:51 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x70 in /home/memset_error.cu:41:vectorAdd(int *)
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Invalid arguments.
=========     at __syncwarp(unsigned int)+0xe0 in sm_30_intrinsics.hpp:110
=========     by thread (16,0,0) in block (0,0,0)
=========         Device Frame: myKernel(float *, unsigned long)+0xb0 in illegal_syncwarp.cu:12
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
REFUSED = (
    "========= COMPUTE-SANITIZER\n"
    '========= Error: Device not supported. Please refer to the "Supported Devices" section of the sanitizer '
    "documentation\n=========\n========= Target application returned an error\n"
)


def test_what_compute_sanitizer_prints_is_read():
    def read(text):
        return [
            (each.kind, each.message, each.place, each.thread, each.count)
            for each in compute_sanitizer.findings(text)
        ]

    write, first = "Invalid __global__ write of size 4 bytes", "thread (0,0,0) in block (0,0,0)"
    assert read(MEMCHECK) == [
        ("bounds", f"{write}, misaligned", "memcheck_demo.cu:34", first, 1),
        ("bounds", f"{write}, 1 bytes after an array of size 1,024 bytes", "memcheck_demo.cu:39", first, 2),
    ]
    assert read(RACECHECK) == [
        ("race", "Write access, and Read access at block_error.cu:51", "block_error.cu:41", "", 508)
    ]
    [(kind, message, place, thread, _)] = read(INITCHECK)
    assert (kind, message) == ("uninitialised", "Uninitialized __global__ memory read of size 4 bytes")
    assert (place, thread) == ("memset_error.cu:41", "thread (31,0,0) in block (1,0,0)")
    [(kind, _, place, *_)] = read(SYNCCHECK)
    assert (kind, place) == ("barrier", "illegal_syncwarp.cu:12")  # not the header that the barrier is in
    # What is not known is something all the same.
    assert [each[:2] for each in read("========= Malloc/Free error encountered : Double free\n" + CLEAN)] == [
        ("other", "Malloc/Free error encountered : Double free")
    ]
    for text in (MEMCHECK, RACECHECK, INITCHECK, SYNCCHECK, CLEAN):
        compute_sanitizer.check(text)
        assert compute_sanitizer.ended(text)
    assert read(CLEAN) == read(REFUSED) == []
    with pytest.raises(DeviceError, match="Device not supported"):
        compute_sanitizer.check(REFUSED)


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Installs a stand-in for compute-sanitizer: it writes a log and runs the command."""

    def install(logs: dict[str, str], version: str = "Version 2025.3.1.0 (build 36400806)"):
        program = tmp_path / "bin" / "compute-sanitizer"
        text = (
            f"{first_lines()}import os, sys\n"
            "if sys.argv[1] == '--version':\n"
            f"    sys.exit(print({version!r}))\n"
            "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
            f"open(given['--log-file'], 'w').write({logs!r}[given['--tool']])\n"
            "command = sys.argv[sys.argv.index(sys.executable) :]\n"
            "os.execv(command[0], command)\n"
        )
        write_files(tmp_path, {"bin/compute-sanitizer": text})
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        compute_sanitizer.path.cache_clear()

    yield install
    compute_sanitizer.path.cache_clear()


class Watching(SanitizeProgress):
    """Says nothing."""

    def waiting(self, sentence: str) -> None: ...


def test_a_tool_that_does_not_sum_up_says_nothing_and_one_that_is_refused_stops_all(tool):
    """On the null device, under a stand-in."""
    loaded = load(KERNELS / "copy")
    cases = plan(loaded.suite, ["copy.copy"], ["5"])
    tool({"memcheck": MEMCHECK, "racecheck": CLEAN, "synccheck": "========= COMPUTE-SANITIZER\n"})

    def run(*tools):
        return sanitize(loaded, cases, tools, "null", timeout_s=60, seed=1, observer=Watching())

    rows = {each.tool: each for each in run("memcheck", "racecheck", "synccheck")}
    assert (rows["memcheck"].status, len(rows["memcheck"].findings)) == ("found", 2)
    assert rows["racecheck"].status == "clean"
    assert (rows["synccheck"].status, rows["synccheck"].reason) == ("failed", "crashed")
    tool({"memcheck": REFUSED})
    with pytest.raises(DeviceError, match="does not run here"):
        run("memcheck")


def test_a_tool_that_is_missing_or_too_old_is_an_error_with_what_to_do(tool, monkeypatch):
    tool({}, version="Version 2021.1.0 (build 1)")
    with pytest.raises(DeviceError, match=r"2021\.1; expected 2023\.1"):
        compute_sanitizer.program()
    tool({}, version="something else")
    with pytest.raises(DeviceError, match="something else"):
        compute_sanitizer.program()
    for name in ("PATH", "CUDA_HOME"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setattr(nvcc, "packaged", lambda *_: None)
    compute_sanitizer.path.cache_clear()
    with pytest.raises(DeviceError, match="pip install"):
        compute_sanitizer.program()


def test_tools_that_found_the_same_of_a_case_share_a_line():
    source = load(KERNELS / "copy").source
    found = SanitizerFinding("race", "Write access", "a.cu:1", "")
    rows = [
        Sanitized(case="copy.copy[m=1,n=1]", tool=tool, status="clean", findings=())
        for tool in ("memcheck", "synccheck")
    ]
    rows.insert(1, Sanitized(case="copy.copy[m=1,n=1]", tool="racecheck", status="found", findings=(found,)))
    columns = {column.name: column.texts for column in sanitized_table(source, rows).columns}
    assert columns["tool"] == ["racecheck", "memcheck, synccheck"]
