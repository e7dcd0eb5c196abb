"""Demands of a kernel on a card, without one: accesses as counted by hand, residency as CUDA computes it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from harness.device.backends import nvcc
from harness.device.static import demand
from harness.device.static.accesses import Access, accesses
from harness.device.static.architecture_builds import Kept, Usage, _parsed
from harness.device.static.host_code import without_host_code
from harness.device.static.occupancy import CARDS, card, residency
from harness.errors import BuildError, UsageError
from harness.records.types import Launch
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of, plan
from tests.support import KERNELS, caller, write_files

SUITES = {name: load_folder(KERNELS / name) for name in ("matmul", "transpose")}


def accesses_of(name, size):
    suite, kernel = SUITES[name.partition(".")[0]], name.partition(".")[2]
    case = suite.case(suite.by_name[kernel], dict.fromkeys(suite.problem.axes, size), {})
    found = accesses(suite, suite.by_name[kernel], case, launch_of(suite.by_name[kernel], case))
    return {each.describe: each.requests for each in found}


BY_HAND = {
    # A warp is a column of C: 32 rows of A, one element of B, 32 rows of C.
    "matmul.naive": {
        "load of a: 32 sectors": 128,
        "load of b: 1 sectors": 128,
        "store of c: 32 sectors": 1,
    },
    # A warp is 16 rows by 2 columns; in a tile 16 floats wide, every second row begins in the same bank.
    "matmul.block_tiling_as_published": {
        "load of a: 16 sectors": 8,
        "load of b: 16 sectors": 8,
        "store of c: 16 sectors": 1,
        "load of tile_a: 8-way": 128,
        "store of tile_a: 8-way": 8,
        "load of tile_b: no conflict": 128,
        "store of tile_b: 8-way": 8,
    },
    # In a tile 32 floats wide all 32 rows begin in the same bank.
    "matmul.outer_product_as_published": {
        "load of a: 32 sectors": 4,
        "load of b: 32 sectors": 4,
        "store of c: 32 sectors": 1,
        "load of tile_a: 32-way": 128,
        "store of tile_a: 32-way": 4,
        "load of tile_b: no conflict": 128,
        "store of tile_b: 32-way": 4,
    },
    # 8 patches of 8 rows by 4 of 8 columns; the 8 rows of a patch apart are 512 floats: one bank.
    "matmul.thread_tiling_2d_as_published": {
        "load of a: 32 sectors": 128,
        "load of b: 32 sectors": 128,
        "store of c: 32 sectors": 64,
        "load of tile_a: 8-way": 1024,
        "store of tile_a: 8-way": 128,
        "load of tile_b: no conflict": 1024,
        "store of tile_b: 8-way": 128,
    },
    # A warp stores to 4 rows of C at once, 8 threads a row: of each 16 bytes of 32, half of a sector.
    "matmul.thread_tiling_2d_vectorized": {
        "load of a: 16 sectors": 32,
        "load of b: 16 sectors": 32,
        "store of c: 32 sectors": 16,
        "load of tile_a: 4-way": 1024,
        "store of tile_a: no conflict": 32,
        "load of tile_b: 2-way": 1024,
        "store of tile_b: no conflict": 32,
    },
    # Whole lines both ways, and a column more than 32 in the tile.
    "transpose.transpose_tiled": {
        "load of x: 4 sectors": 4,
        "store of y: 4 sectors": 4,
        "load of tile: no conflict": 4,
        "store of tile: no conflict": 4,
    },
}


COPY = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite

class Copy(Problem):
    n = Axis(default=(1024,), quick=(1024,))
    x = Input("n")
    y = Output("n")

kernel = Kernel("copy", "copy.cu", include=("include",), block=256, grid=4)
suite = Suite("copy", Copy(), headline="GB/s", kernels=[kernel])
"""


def test_accesses_are_followed_into_headers_in_folders_as_these_are_now(tmp_path):
    write_files(tmp_path, {
        "suite/suite.py": COPY,
        "suite/copy.cu": '#include "stride.h"\n'
        'extern "C" __global__ void copy(const float *x, float *y, int n)\n'
        "{ int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i * STRIDE % n]; }\n",
    })  # fmt: skip
    for stride, sectors in ((1, 4), (2, 8)):
        write_files(tmp_path, {"include/stride.h": f"#define STRIDE {stride}\n"})
        suite = load_folder(tmp_path / "suite")
        case = suite.case(suite.by_name["copy"], {"n": 1024}, {})
        found = accesses(suite, suite.by_name["copy"], case, launch_of(suite.by_name["copy"], case))
        assert [each.sectors for each in found if each.array == "x"] == [sectors]


WHOLE_PROGRAM = """\
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <cstdio>
namespace cg = cooperative_groups;

__device__ inline float twice(float x) { return 2 * x; }
extern "C" __global__ void copy(const float *x, float *y, int n) {  // main() { <<< is no launch here
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cg::sync(cg::this_thread_block());
    if (i < n) y[i] = twice(x[i]);
}
namespace host {
template <typename T> void run(T *x, T *y, int n) { copy<<<dim3(4), 256>>>(x, y, n); }
cudaError_t checked(const char *words) { printf("%s", words); return cudaGetLastError(); }
void plain(int n) { run<float>(nullptr, nullptr, n); }
float kept(float x) { return x; }
}
int main(int argc, char **argv) {
    float *x;
    cudaMalloc(&x, 4096);
    host::plain(1024);
}
"""


def test_accesses_of_a_whole_program_are_those_of_its_kernel(tmp_path):
    write_files(tmp_path, {"suite.py": COPY.replace('include=("include",), ', ""), "copy.cu": WHOLE_PROGRAM})
    suite = load_folder(tmp_path)
    case = suite.case(suite.by_name["copy"], {"n": 1024}, {})
    found = accesses(suite, suite.by_name["copy"], case, launch_of(suite.by_name["copy"], case))
    assert [(each.array, each.stores, each.sectors) for each in found] == [("x", False, 4), ("y", True, 4)]


def test_only_what_the_host_runs_is_taken_out_and_lines_keep_their_numbers():
    left = without_host_code(WHOLE_PROGRAM)
    assert left.count("\n") == WHOLE_PROGRAM.count("\n")
    words = ("twice(float", "copy(const", "kept(float", "run(T", "checked(", "plain(int", "main(int")
    assert [word in left for word in words] == [True] * 3 + [False] * 4


def _is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_compiler_that_takes_too_long_ends_with_what_it_started(tmp_path, monkeypatch, own_cache):
    slow, told = tmp_path / "g++", tmp_path / "pid"
    slow.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {told}\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("harness.device.static.accesses._compiler", lambda: "slow")
    monkeypatch.setattr("harness.device.static.accesses.TIMEOUT_S", 2.0)
    with pytest.raises(BuildError, match="took more than 2 s"):
        accesses_of("matmul.naive", 128)
    pid = told.read_text().strip()
    deadline = time.monotonic() + 30
    while _is_alive(pid):  # for a moment, as what is killed ends by itself
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", BY_HAND)
def test_accesses_are_what_a_hand_counts(name):
    assert accesses_of(name, 128) == BY_HAND[name]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_what_runs_the_threads_is_compiled_once_for_all_kernels(tmp_path, monkeypatch, own_cache):
    name = "transpose.transpose_tiled"
    with pytest.raises(BuildError, match="no runner"):
        with_a_compiler_that_refuses_the_runner(tmp_path, monkeypatch, name)
    accesses_of("matmul.naive", 128)
    assert with_a_compiler_that_refuses_the_runner(tmp_path, monkeypatch, name) == BY_HAND[name]


def with_a_compiler_that_refuses_the_runner(folder, monkeypatch, name):
    compiler = folder / "g++"
    refuses = 'case "$*" in *run.cpp*) echo no runner >&2; exit 1;; esac'
    compiler.write_text(f'#!/bin/sh\n{refuses}\nexec {shutil.which("g++")} "$@"\n')
    compiler.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return accesses_of(name, 128)


VECTORS = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis((4096,))
    x = Input("n")
    y = Output("n")


names = ("made", "braces", "members", "pairs")
kernels = [
    Kernel(name, "v.cu", entry="v", requires="sm_70", macros={"HOW": how}, block=64, grid=16)
    for how, name in enumerate(names)
]
suite = Suite("vectors", Twice(), kernels, headline="GB/s")
"""

VECTORS_SOURCE = """\
extern "C" __global__ void v(const float* __restrict__ x, float* __restrict__ y, int n)
{
    __shared__ float4 staged[64];
    const int i = blockIdx.x * 64 + threadIdx.x;
    float4 a = *((const float4*)x + i), *to = (float4*)y + i;
#if HOW == 0
    *to = make_float4(2 * a.x, 2 * a.y, 2 * a.z, 2 * a.w);
#elif HOW == 1
    staged[threadIdx.x] = {2 * a.x, 2 * a.y, 2 * a.z, 2 * a.w};
    __syncthreads();
    *to = staged[threadIdx.x];
#elif HOW == 2
    union { float4 whole; float each[4]; } b;
    for (int j = 0; j < 4; ++j)
        b.each[j] = 2 * (&a.x)[j];
    *to = b.whole;
#else
    ((float2*)to)[0] = float2{2 * a.x, 2 * a.y};
    ((float2*)to)[1] = float2{2 * a.z, 2 * a.w};
#endif
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize(
    ("kernel", "stores"),
    [
        ("made", {("y", 16): (16, 1)}),
        ("braces", {("y", 16): (16, 1), ("staged", 16): (16, 1)}),
        ("members", {("y", 16): (16, 1)}),
        # 8 bytes of every 16: half of each sector.
        ("pairs", {("y", 8): (16, 2)}),
    ],
)
def test_a_vector_is_stored_at_once(tmp_path, kernel, stores):
    """However it was put together, as nvcc stores it; g++ would store its elements one by one."""
    write_files(tmp_path / "vectors", {"suite.py": VECTORS, "v.cu": VECTORS_SOURCE})
    suite = load_folder(tmp_path / "vectors")
    made = suite.by_name[kernel]
    case = suite.case(made, {"n": 4096})
    found = accesses(suite, made, case, launch_of(made, case))
    told = {(each.array, each.bytes): (each.sectors, each.requests) for each in found if each.stores}
    assert told == stores


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_shared_memory_of_the_launchs_size_is_followed():
    found = accesses_of("matmul.loop_tiling_shared", 64)
    assert "load of shared: no conflict" in found


@pytest.mark.parametrize(("kernel", "said"), [("cublas", "no CUDA source"), ("cpu_loop", "no CUDA source")])
def test_what_has_no_source_is_said(kernel, said):
    with pytest.raises(BuildError, match=said):
        accesses_of(f"matmul.{kernel}", 64)


@pytest.mark.parametrize(
    ("name", "launch", "registers", "shared", "expected"),
    [
        # The whole grid of loop_tiling: what was counted by hand when it was found to fill few cards.
        ("rtx3060", Launch(grid=(32, 8, 1), block=(32, 32, 1)), 32, 0, (1, 2 / 3, "threads", 9.143, 0.143)),
        ("a6000", Launch(grid=(32, 8, 1), block=(32, 32, 1)), 32, 0, (1, 2 / 3, "threads", 3.048, 0.048)),
        ("h200", Launch(grid=(32, 8, 1), block=(32, 32, 1)), 32, 0, (2, 1.0, "threads", 0.970, 0.970)),
        # CUDA's calculator: 64 threads of 168 registers and 32 KiB; then of 255 and nothing.
        ("a100", Launch(grid=(432, 1, 1), block=(64, 1, 1)), 168, 32768, (4, 0.125, "shared memory", 1, 1)),
        ("rtx4090", Launch(grid=(512, 1, 1), block=(64, 1, 1)), 255, 0, (4, 1 / 6, "registers", 1, 1)),
        # A warp's registers are given out 256 at a time: 33 of a thread take as many as 40.
        ("h200", Launch(grid=(3168, 1, 1), block=(64, 1, 1)), 33, 0, (24, 0.75, "registers", 1, 1)),
        ("a10", Launch(grid=(1, 1, 1), block=(64, 1, 1)), 32, 102400, (0, 0, "shared memory", 0, 1)),
    ],
)  # fmt: skip
def test_blocks_that_a_card_holds(name, launch, registers, shared, expected):
    held = residency(card(name), launch, registers, shared)
    found = (held.blocks, held.occupancy, held.limit, held.waves, held.last_wave)
    assert found == pytest.approx(expected, abs=5e-4)


def test_any_card_is_named_by_its_capability_and_multiprocessors():
    assert card("RTX 3060") is CARDS["rtx3060"]
    assert (card("sm_86:28").capability, card("sm_90a:78").multiprocessors) == ((8, 6), 78)


@pytest.mark.parametrize("text", ["rtx9090", "sm_86", "sm_86:0", ""])
def test_a_card_that_is_not_known_says_how_to_name_it(text):
    with pytest.raises(UsageError, match=r"rtx3060.*sm_86:28.*CARDS in harness/device/static/occupancy\.py"):
        card(text)


def test_a_capability_that_is_not_known_says_which_are():
    with pytest.raises(
        UsageError, match=r"'sm_61:28'.*sm_70, sm_75.*CAPABILITIES in harness/device/static/occ"
    ):
        card("sm_61:28")


USED = Usage(registers=32, shared_bytes=0, spill_store_bytes=0, spill_load_bytes=0)


@pytest.mark.parametrize(("name", "grid"), [("rtx3060", 28 * 6), ("a6000", 84 * 6), ("h200", 132 * 8)])
def test_loop_tiling_is_one_full_wave_on_every_card(monkeypatch, name, grid):
    """Its 256 threads of 32 registers fit six times on 1,536 threads, eight times on 2,048."""
    monkeypatch.setattr(demand, "usage", lambda made, arch: USED)
    monkeypatch.setattr(demand, "accesses", lambda *given: ())
    suite = SUITES["matmul"]
    [found] = demand.demands(suite, plan(suite, ["loop_tiling"], ["4096"]), card(name))
    assert found.problems == ()
    assert found.launch is not None
    assert found.launch.grid == (grid, 1, 1)
    assert found.residency is not None
    assert (found.residency.waves, found.residency.last_wave, found.residency.occupancy) == (1, 1, 1)


def test_without_nvcc_what_a_grid_asks_for_is_said(monkeypatch):
    monkeypatch.setattr(nvcc, "version", lambda: "")
    suite = SUITES["matmul"]
    [found] = demand.demands(suite, plan(suite, ["loop_tiling"], ["4096"]), card("h200"))
    assert found.launch is None
    assert found.problems == (
        "Registers and residency need nvcc, which is not installed.",
        "Its grid depends on the number of resident blocks, which needs nvcc.",
    )


def test_ptxas_is_read_for_the_function_that_is_launched():
    said = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_86'
ptxas info    : Used 12 registers, used 1 barriers
ptxas info    : Compiling entry function 'tiled' for 'sm_86'
ptxas info    : Function properties for tiled
    48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size, 32768 bytes smem
"""
    used = _parsed(Kept(said, b""), "sm_80").usage["tiled"]
    assert (used.registers, used.shared_bytes) == (255, 32768)
    assert (used.spill_store_bytes, used.spill_load_bytes) == (40, 44)


def test_the_worst_access_is_of_its_space_and_by_what_that_pays_for():
    def access(array, space, sectors, conflicts):
        return Access(array, space, False, 4, requests=1, sectors=sectors, conflicts=conflicts)

    [planned] = plan(SUITES["transpose"], ["transpose_tiled"], ["64"])
    found = (access("x", "global", 4, 0), access("y", "global", 32, 0))
    shared = (access("tile", "shared", 0, 1), access("other", "shared", 0, 8))
    asked = demand.Demand(planned=planned, accesses=(*shared, *found))
    assert (asked.worst("global"), asked.worst("shared")) == (found[1], shared[1])


def test_list_tells_what_cannot_be_told(project, capsys, monkeypatch):
    harness = caller(capsys, monkeypatch)
    done = harness("list", "--card", "rtx3060", "--card", "sm_90:78", "--size", "64", "--json", "toy.plain")
    assert done.status == 0
    assert [told["card"]["multiprocessors"] for told in done.json] == [28, 78]
    assert all(case["problems"] or case["usage"] for told in done.json for case in told["cases"])
    left_out = harness("list", "--card", "rtx3060", "--size", "64x64")
    assert (left_out.status, "expected" in left_out.err) == (2, True)
    assert harness("list", "--card", "rtx9090").status == 2
