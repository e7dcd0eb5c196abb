"""Launches by CUDA graph on a card. Run with `pytest -m gpu`; $HARNESS_DEVICE names the card."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.device import backends
from harness.errors import DeviceError, ExitCode
from harness.records.types import Launch
from harness.suite.sources import Program
from tests.support import GPU, commit, device_is_missing, make_repository, run_command, write_files

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SUITE = """\
from harness import Axis, CupyFunction, HostLibrary, Input, InOut, Kernel, Output, Problem, Suite
from harness import NumbaFunction, TorchFunction, TritonFunction


class Doubled(Problem):
    n = Axis(default=(2**16,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


suite = Suite("doubled", Doubled(), headline="GB/s", kernels=[KERNELS])
"""
SHORT = """\
#define STEPS 200

extern "C" __global__ void brief(const float *x, float *y, int n)
{
    const int i = blockIdx.x * 256 + threadIdx.x;
    float value = x[i];
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) value = fmaf(value, 0.5f, 0.5f * value);
    y[i] = 2 * value;
}
"""
BRIEF = 'Kernel("brief", "brief.cu", requires="sm_70", block=256, grid=lambda c: c.n // 256)'
LIBRARY = """\
#include <cuda_runtime.h>

__global__ void twice(const float *x, float *y, int n)
{
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) y[i] = 2 * x[i];
}

static int calls;

#define FUNCTION(name) extern "C" int name(void *given, const float *x, float *y, int n)
#define STREAM static_cast<cudaStream_t>(given)

FUNCTION(plain)
{
    twice<<<n / 256, 256, 0, STREAM>>>(x, y, n);
    return cudaGetLastError();
}

FUNCTION(waits)
{
    twice<<<n / 256, 256, 0, STREAM>>>(x, y, n);
    return cudaStreamSynchronize(STREAM);
}

FUNCTION(allocates)
{
    void *memory = nullptr;
    if (const int failed = cudaMallocAsync(&memory, 4096, STREAM)) return failed;
    twice<<<n / 256, 256, 0, STREAM>>>(x, y, n);
    return cudaFreeAsync(memory, STREAM);
}

FUNCTION(elsewhere)
{
    twice<<<n / 256, 256>>>(x, y, n);
    return cudaGetLastError();
}

FUNCTION(changes)
{
    twice<<<n / 256 + ++calls, 256, 0, STREAM>>>(x, y, n);
    return cudaGetLastError();
}

FUNCTION(lazy)
{
    static void *memory;
    if (++calls == 2) {
        if (const int failed = cudaMalloc(&memory, 4096)) return failed;
    }
    twice<<<n / 256, 256, 0, STREAM>>>(x, y, n);
    return cudaGetLastError();
}
"""
TORCH = """\
import torch

aside = torch.cuda.Stream()


def given(x, y):
    torch.mul(x, 2, out=y)


def returned(x):
    return (x.double() + x.double()).to(x.dtype)  # with temporaries


def waits(x, y):
    torch.mul(x, 2, out=y)
    torch.cuda.synchronize()


def on_host(x, y):
    torch.mul(x, 2 if x[0].item() else 2.0, out=y)


def elsewhere(x, y):
    with torch.cuda.stream(aside):
        torch.mul(x, 2, out=y)
"""
TRITON = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def of_triton(x, y, n):
    kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
"""
NUMBA = """\
from numba import cuda


@cuda.jit
def of_numba(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i] + x[i]
"""
CUPY = """\
def of_cupy(x):
    return (x.astype("float64") + x).astype("float32")
"""


@pytest.fixture
def card():
    device = backends.open_device(GPU)
    yield device
    device.close()


@pytest.fixture(autouse=True, scope="module")
def _has_card():
    """Skip without a card. Where a process has it open, a command would tell of another process."""
    try:
        backends.open_device(GPU).close()
    except DeviceError as error:
        device_is_missing(GPU, error.message)


def project(folder: Path, kernels: str, files: dict[str, str]) -> Path:
    root = make_repository(folder / "project")
    suite = SUITE.replace("KERNELS", kernels)
    settings = "[tool.harness]\nsuites = ['kernels/*']\n"
    named = {f"kernels/doubled/{name}": text for name, text in files.items()}
    commit(root, {"pyproject.toml": settings, "kernels/doubled/suite.py": suite, **named}, 1)
    return root


def asked(root: Path, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run_command(command, "--device", GPU, "--json", *arguments, cwd=root, timeout_s=500)
    assert done.stdout, done.stderr
    (result,) = json.loads(done.stdout)
    return done.returncode, result


def rows_of(root: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """The rows of a run by case, without the name of the suite."""
    _, result = asked(root, "run", *arguments)
    return {each["row"]["case"].partition(".")[2]: each["row"] for each in result["rows"]}


def needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


def test_a_brief_kernel_is_timed_by_graph_beside_eager(tmp_path, record_testsuite_property):
    root = project(tmp_path, BRIEF, {"brief.cu": SHORT})
    rows = rows_of(root, "--graph", "--l2", "hot")
    assert {name: (row["status"], row["message"]) for name, row in rows.items()} == dict.fromkeys(
        ("brief[n=65536]", "brief[n=65536,graph=1]"), ("measured", "")
    )
    eager, graph = rows.values()
    assert [row["launch"]["graph"] for row in (eager, graph)] == [False, True]
    times = [statistics.median(row["measurement"]["times_ns"]) for row in (eager, graph)]
    record_testsuite_property("ns of a launch, eager and by graph", times)
    assert times[1] < 1.1 * times[0]
    assert graph["measurement"]["launches_per_slot"] >= 64
    both = rows_of(root, "--graph")
    assert [row["measurement"]["l2"] for row in both.values()] == ["cold", "hot"]


def test_a_replay_costs_less_than_one_percent_of_a_brief_kernels_own_time(card, record_testsuite_property):
    """Half as many launches in a graph show what does not depend on their number."""
    built = card.build(Program("test.brief", "brief", SHORT))
    x, y = card.allocate(2**18), card.allocate(2**18)
    launch = Launch(grid=(256, 1, 1), block=(256, 1, 1), graph=True)
    arguments = [*(np.uintp(int(memory)) for memory in (x, y)), np.int32(2**16)]
    card.write(x, 0, np.ones(2**16, np.float32))
    card.capture(built, launch, arguments)

    def times(launches: int) -> list[float]:
        card.timed(built, launch, arguments, launches)
        found = []
        for _ in range(200):
            card.occupy(50_000)
            timing = card.timed(built, launch, arguments, launches)
            card.synchronize()
            found.append(timing())
        return found

    half, whole = (statistics.median(times(launches)) for launches in (128, 256))
    own_ns = (whole - half) / 128
    added = whole / 256 / own_ns - 1
    began = time.perf_counter_ns()
    for _ in range(1000):
        card.timed(built, launch, arguments, 256)
    host_ns = (time.perf_counter_ns() - began) / 1000
    card.synchronize()
    record_testsuite_property("own ns, added share, host's ns of a graph", (own_ns, added, host_ns))
    assert added < 0.01
    seen = np.empty(2**16, np.float32)
    card.read(y, 0, seen)
    assert (seen == 2).all()
    for memory in (x, y):
        card.release(memory)


def test_a_slowdown_is_found_by_graph(tmp_path, record_testsuite_property):
    root = project(tmp_path, BRIEF, {"brief.cu": SHORT})
    write_files(root, {"kernels/doubled/brief.cu": SHORT.replace("STEPS 200", "STEPS 230")})
    code, result = asked(root, "compare", "HEAD", "--graph", "brief[*graph=1]")
    (verdict,) = result["verdicts"]
    record_testsuite_property("change", verdict["time"])
    assert (verdict["status"], verdict["attribution"]) == ("regression", "code"), verdict["message"]
    assert code == ExitCode.REGRESSION


def test_functions_of_frameworks_are_captured(tmp_path, record_testsuite_property):
    needs("torch")
    kernels = 'Kernel("given", TorchFunction("t.py")), Kernel("returned", TorchFunction("t.py"))'
    files = {"t.py": TORCH}
    if importlib.util.find_spec("triton"):
        kernels += ', Kernel("of_triton", TritonFunction("r.py"))'
        files["r.py"] = TRITON
    if importlib.util.find_spec("cupy"):
        kernels += ', Kernel("of_cupy", CupyFunction("c.py"))'
        files["c.py"] = CUPY
    root = project(tmp_path, kernels, files)
    rows = rows_of(root, "--graph")
    assert {name: row["message"] for name, row in rows.items()} == dict.fromkeys(rows, "")
    for name, row in rows.items():
        record_testsuite_property(f"ns of {name}", statistics.median(row["measurement"]["times_ns"]))
    assert sum("graph=1" in name for name in rows) == len(rows) / 2
    slower = TORCH.replace("torch.mul(x, 2, out=y)", "torch.mul(x.abs().neg(), 2, out=y).copy_(2 * x)", 1)
    write_files(root, {"kernels/doubled/t.py": slower})
    _, result = asked(root, "compare", "HEAD", "given[*graph=1]", "--graph")
    (verdict,) = result["verdicts"]
    assert verdict["status"] == "regression", verdict["message"]


def test_a_kernel_of_numba_is_captured(tmp_path, record_testsuite_property):
    needs("numba.cuda" if importlib.util.find_spec("numba") else "numba")
    kernels = 'Kernel("of_numba", NumbaFunction("u.py"), block=256, grid=lambda c: c.n // 256)'
    rows = rows_of(project(tmp_path, kernels, {"u.py": NUMBA}), "--graph")
    if any("'numpy' has no attribute" in row["message"] for row in rows.values()):
        pytest.skip("This numba.cuda is older than this NumPy.")
    assert {name: row["message"] for name, row in rows.items()} == dict.fromkeys(rows, "")
    for name, row in rows.items():
        record_testsuite_property(f"ns of {name}", statistics.median(row["measurement"]["times_ns"]))


def refused(root: Path, names: Sequence[str]) -> dict[str, str]:
    """The messages of kernels whose cases by graph are all refused."""
    rows = rows_of(root, "--graph", *(f"{name}[*graph=1]" for name in names))
    messages = {row["kernel"]: row["message"] for row in rows.values()}
    reasons = {row["kernel"]: (row["status"], row["reason"]) for row in rows.values()}
    assert reasons == dict.fromkeys(names, ("failed", "graph-refused")), messages
    return messages


def test_a_function_that_cannot_be_captured_is_refused_with_a_sentence(tmp_path):
    needs("torch")
    sentences = {
        "waits": "not wait for the card",
        "on_host": "not wait for the card",
        "elsewhere": "holds no kernel, but nothing. Let it put its work on the stream",
    }
    kernels = ", ".join(f'Kernel("{name}", TorchFunction("t.py"))' for name in sentences)
    messages = refused(project(tmp_path, kernels, {"t.py": TORCH}), [*sentences])
    for name, sentence in sentences.items():
        assert re.search(sentence, messages[name]), messages[name]


def test_a_library_that_cannot_be_captured_is_refused_with_a_sentence(tmp_path):
    sentences = {
        "waits": "cannot be captured in a CUDA graph: .* not wait for the card",
        "allocates": "allocates memory in the capture",
        "elsewhere": "use the default stream",
        "changes": "its launches differ from one another",
    }
    kernels = ", ".join(
        f'Kernel("{name}", HostLibrary("k.cu"), args=("x", "y", "n"))'
        for name in (*sentences, "plain", "lazy")
    )
    root = project(tmp_path, kernels, {"k.cu": LIBRARY})
    messages = refused(root, [*sentences])
    for name, sentence in sentences.items():
        assert re.search(sentence, messages[name]), messages[name]
    rows = rows_of(root, "--graph", "plain[*graph=1]", "lazy[*graph=1]")
    assert [(row["status"], row["message"]) for row in rows.values()] == [("measured", "")] * 2


def test_a_kernel_that_reads_its_output_gets_it_anew_for_each_replay(tmp_path):
    text = 'extern "C" __global__ void adds(float *y, int n) { y[blockIdx.x * 256 + threadIdx.x] += 1; }'
    root = project(tmp_path, BRIEF, {"brief.cu": SHORT})
    suite = SUITE.replace('y = Output("n")', "").replace('x = Input("n")', 'x = InOut("n")')
    suite = suite.replace("return 2 * x", "return x + 1")
    suite = suite.replace(
        "KERNELS",
        'Kernel("adds", "adds.cu", requires="sm_70", block=256, grid=lambda c: c.n // 256, graph=True)',
    )
    write_files(root, {"kernels/doubled/suite.py": suite, "kernels/doubled/adds.cu": text})
    (row,) = rows_of(root).values()
    assert (row["status"], row["message"], row["measurement"]["restored"]) == ("measured", "", True)
