"""Grids launched in parts: which parts, what programs are made for it, and how large a part may be."""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
from dataclasses import replace

import pytest

from harness import Axis, Generated, HostFunction, Input, Kernel, Output, Problem, Suite
from harness.device.backends import null
from harness.device.backends.base import check_launch
from harness.errors import LaunchError
from harness.measure import protocol
from harness.measure.timing import Subject, largest_dispatch, limited
from harness.records.types import Launch
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of
from harness.suite.sources import Program, program
from tests.support import KERNELS, PORTABLE, write_files
from tests.test_kernels_opencl import workers_in


def launch(grid, dispatch, block=(1, 1, 1)):
    return Launch(grid=grid, block=block, dispatch=dispatch)


# Parts of a launch


@pytest.mark.parametrize(
    ("grid", "dispatch"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((7, 5, 3), (2, 2, 2)),
        ((7, 5, 3), (3, 1, 1)),
        ((7, 5, 3), (100, 2, 100)),
        ((7, 5, 3), None),
        ((66, 66, 1), (64, 64, 1)),
    ],
    ids=str,
)
def test_the_parts_are_the_grid(grid, dispatch):
    blocks: list[tuple[int, ...]] = []
    for origin, extent in launch(grid, dispatch).parts():
        assert all(1 <= size <= most for size, most in zip(extent, dispatch or grid, strict=True))
        ranges = (range(first, first + size) for first, size in zip(origin, extent, strict=True))
        blocks += itertools.product(*ranges)
    assert sorted(blocks) == list(itertools.product(*map(range, grid)))


@pytest.mark.parametrize(
    ("dispatch", "cut"),
    [(None, False), ((7, 5, 3), False), ((99, 99, 99), False), ((6, 5, 3), True), ((7, 5, 1), True)],
)
def test_a_launch_is_in_parts_where_its_grid_is_larger(dispatch, cut):
    assert launch((7, 5, 3), dispatch).in_parts == cut
    assert (len(list(launch((7, 5, 3), dispatch).parts())) > 1) == cut


def test_the_devices_largest_grid_is_that_of_a_part():
    (info,) = null.devices()
    height = info.max_grid[1] + 1
    check_launch(launch((1, height, 1), (1, 1000, 1)), info)
    with pytest.raises(LaunchError, match="exceeds null's largest grid"):
        check_launch(launch((1, height, 1), None), info)
    with pytest.raises(LaunchError, match="at least 1 in every direction"):
        check_launch(launch((1, 8, 1), (1, 0, 1)), info)


# Programs for it


class Any(Problem):
    n = Axis(default=(8,))
    x = Input("n")
    y = Output("n")


def text_of(tmp_path, source, backend, *, cut=True, prelude=PORTABLE, suffix="cu"):
    file = f"kernel.{suffix}"
    given = source
    if isinstance(source, str):
        write_files(tmp_path, {file: source})
        given = dict.fromkeys(("cuda", "opencl", "opengl"), file)
    kernel = Kernel("kernel", given, block=4, grid=(5, 3))
    suite = Suite("s", Any(), [kernel], prelude=prelude, root=tmp_path)
    how = launch((5, 3, 1), (2, 2, 1) if cut else None, (4, 1, 1))
    return program(suite, kernel, suite.case(kernel, {"n": 8}), backend, "sm_90", how)


PORTABLE_TEXT = "KERNEL kernel(GLOBAL float* y) { y[BLOCK_Y * GRID_X + BLOCK_X] = 1.0f; }\n"
SHADER = "uniform int x0, y0;\nvoid main() {}\n"


@pytest.mark.parametrize("backend", ["cuda", "opencl"])
def test_only_a_launch_in_parts_changes_the_program(tmp_path, backend):
    whole = text_of(tmp_path, PORTABLE_TEXT, backend, cut=False)
    parted = text_of(tmp_path, PORTABLE_TEXT, backend)
    told = ["DISPATCH 1", "GRID_X 5", "GRID_Y 3", "GRID_Z 1"]
    assert parted.text == "".join(f"#define HARNESS_{each}\n" for each in told) + whole.text
    assert "#define HARNESS_DISPATCH" not in whole.text
    assert (whole.in_parts, parted.in_parts) == (False, True)


def test_a_shader_keeps_its_version_in_front(tmp_path):
    made = text_of(tmp_path, SHADER, "opengl", suffix="glsl")
    lines = made.text.splitlines()
    assert lines[:3] == ["#version 430", "#define HARNESS_DISPATCH 1", "#define HARNESS_GRID_X 5"]


@pytest.mark.parametrize("backend", ["cpu", "null"])
def test_the_host_has_no_parts(tmp_path, backend):
    source = {"cpu": HostFunction(lambda case, stream: print)}
    assert not text_of(tmp_path, source, backend).in_parts


@pytest.mark.parametrize(
    ("source", "backend", "suffix", "told"),
    [
        ("__global__ void kernel(float *y) { y[blockIdx.x] = 1; }", "cuda", "cu", "by blockIdx"),
        ("KERNEL kernel(GLOBAL int* y) { y[BLOCK_X] = gridDim.x; }", "cuda", "cu", "by gridDim"),
        ("KERNEL kernel(GLOBAL int* y) { y[get_group_id(0)] = 1; }", "opencl", "cu", "by get_group_id"),
        ("KERNEL kernel(GLOBAL int* y) { y[THREAD_X] = 1; }", "cuda", "cu", "does not find its block"),
        ("KERNEL kernel(GLOBAL int* y) { y[0] = 1; /* BLOCK_X */ }", "cuda", "cu", "does not find its block"),
        ("uniform int x0;\nvoid main() {}\n", "opengl", "glsl", "no uniform int y0"),
        ("void main() {} // uniform int x0, y0;\n", "opengl", "glsl", "no uniform int x0"),
        (SHADER.replace("{}", "{ uint g = gl_NumWorkGroups.x; }"), "opengl", "glsl", "by gl_NumWorkGroups"),
        ({"cuda": HostFunction(lambda case, stream: print)}, "cuda", "", "the host enqueues its work"),
        ({"cuda": Generated(lambda case, arch: "blockIdx.x")}, "cuda", "", "by blockIdx"),
    ],
)
def test_a_kernel_that_cannot_be_cut_is_refused_with_the_reason(
    tmp_path, monkeypatch, source, backend, suffix, told
):
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(LaunchError, match=rf"s\.kernel cannot be launched in parts of .*{told}"):
        text_of(tmp_path, source, backend, suffix=suffix)


def test_an_older_prelude_is_refused_as_every_part_would_do_the_same(tmp_path):
    write_files(tmp_path, {"old.h": "#define KERNEL\n#define BLOCK_X ((int)blockIdx.x)\n"})
    with pytest.raises(LaunchError, match="prelude knows nothing of HARNESS_DISPATCH"):
        text_of(tmp_path, PORTABLE_TEXT, "cuda", prelude={"cuda": "old.h"})


def test_opencl_counts_threads_from_the_origin_itself(tmp_path):
    source = "__kernel void kernel(__global int* y) { y[get_global_id(0)] = 1; }\n"
    assert text_of(tmp_path, source, "opencl", prelude={}).in_parts


def test_only_the_directions_that_are_cut_need_a_uniform(tmp_path):
    write_files(tmp_path, {"kernel.glsl": "uniform int x0;\nvoid main() {}\n"})
    kernel = Kernel("kernel", "kernel.glsl", block=4, grid=(5, 3))
    suite = Suite("s", Any(), [kernel], root=tmp_path)
    how = launch((5, 3, 1), (2, 3, 1))
    assert program(suite, kernel, suite.case(kernel, {"n": 8}), "opengl", launch=how).in_parts


# How large a part may be


class Clock:
    """A device on which a part takes so much for its blocks, and remembers what it was asked."""

    def __init__(self, time_ns):
        self.time_ns, self.asked = time_ns, []

    def __call__(self, extent):
        self.asked.append(extent)
        return self.time_ns(math.prod(extent))


@pytest.mark.parametrize(
    ("most", "most_ns", "found"),
    [
        ((1000, 1, 1), 1e9, (1000, 1, 1)),
        ((1000, 1, 1), 20_000, (180, 1, 1)),
        ((10, 100, 1), 20_000, (10, 18, 1)),
        ((10, 4, 100), 20_000, (10, 4, 4)),
        ((1000, 1, 1), 100, (1, 1, 1)),
    ],
)
def test_the_largest_part_that_fits_is_found(most, most_ns, found):
    clock = Clock(lambda blocks: 100.0 * blocks)
    assert largest_dispatch(clock, most, most_ns) == (found, 100.0 * math.prod(found))
    assert clock.asked[0] == (1, 1, 1)


@pytest.mark.parametrize("wave", [1, 16, 132])
@pytest.mark.parametrize("most_ns", [1_000, 30_000, 1_000_000])
def test_nothing_is_launched_that_is_foretold_to_take_longer(wave, most_ns):
    clock = Clock(lambda blocks: 900.0 * math.ceil(blocks / wave))
    found, taken_ns = largest_dispatch(clock, (50, 50, 50), most_ns)
    assert found is not None
    assert taken_ns <= most_ns
    sizes = [math.prod(extent) for extent in clock.asked]
    times = [clock.time_ns(size) for size in sizes]
    for (before, taken), after in itertools.pairwise(zip(sizes, times, strict=True)):
        assert taken * after[0] / before <= most_ns
    assert len(clock.asked) < 30


def test_a_part_that_took_longer_than_foretold_is_not_used():
    clock = Clock(lambda blocks: 10.0 * blocks if blocks < 50 else 1e9)
    found, taken_ns = largest_dispatch(clock, (1000, 1, 1), 5000)
    assert found == (8, 1, 1)
    assert taken_ns == 80


def test_a_block_that_takes_too_long_leaves_nothing():
    assert largest_dispatch(Clock(lambda blocks: 500.0), (9, 1, 1), 400) == (None, 500.0)


def test_a_block_is_timed_once_it_is_loaded_and_is_too_long_with_its_time():
    device = null.NullDevice(null.devices()[0], {})
    whole = launch((8, 1, 1), None)
    text = Program("toy.one", "one", "")
    built = null.NullBuilt(text, "", itertools.cycle([50e6, 5e6]))
    assert limited(device, Subject(built, whole, []), whole, 60.0).dispatch is None
    built = null.NullBuilt(text, "", itertools.cycle([50e6, 5e6]))
    with pytest.raises(LaunchError, match=r"One block takes 5 ms on null, more than the 4 ms of --max-"):
        limited(device, Subject(built, whole, []), whole, 4.0)


# Kernels in parts, on a device


SMALL = {"matmul": (257, 265, 33), "copy": (127, 265), "transpose": (127, 265)}
CUT = [
    pytest.param(name, kernel.name, id=f"{name}.{kernel.name}")
    for name in SMALL
    for kernel in load_folder(KERNELS / name).kernels
    if "opencl" in kernel.sources
]


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    with workers_in(tmp_path_factory.mktemp("parts")) as worker_of:
        yield worker_of


OF_THE_DEVICE = {"loop_tiling"}
"""Kernels whose grid is as large as the device, which may be small."""


def ask(worker, kernel, **options):
    size = SMALL[worker.suite.name]
    sizes = dict(zip(worker.suite.problem.axes, size, strict=True))
    return protocol.Measure(kernel=kernel, sizes=sizes, seed=1, settings=None, **options)


@pytest.mark.parametrize(("suite", "kernel"), CUT)
def test_a_kernel_is_right_in_parts(workers, monkeypatch, suite, kernel):
    worker = workers(suite)
    by_name = worker.suite.by_name
    dispatch = (1, 1, 1) if kernel in OF_THE_DEVICE else (5, 2, 1)
    monkeypatch.setitem(by_name, kernel, replace(by_name[kernel], dispatch=dispatch))
    row = worker.run(ask(worker, kernel))
    assert (row.status, row.message) == ("verified", "")
    if kernel in OF_THE_DEVICE and worker.device.info.compute_units == 1:
        pytest.skip("a grid of one block cannot be cut")
    assert row.launch.dispatch == dispatch
    assert row.launch.in_parts, "the case is too small to be cut"


def test_parts_that_forget_their_origin_are_found_out(workers, monkeypatch):
    """Were every part to do the first one's work, most of the output would stay unwritten."""
    worker = workers("matmul")
    by_name = worker.suite.by_name
    monkeypatch.setitem(by_name, "naive", replace(by_name["naive"], dispatch=(3, 1, 1)))
    parts = Launch.parts
    monkeypatch.setattr(Launch, "parts", lambda self: (((0, 0, 0), extent) for _, extent in parts(self)))
    assert worker.run(ask(worker, "naive")).reason == "wrong-result"


def test_the_worker_finds_a_dispatch_of_its_own(workers):
    worker = workers("matmul")
    whole = worker.run(ask(worker, "loop_tiling", max_launch_ms=60_000))
    assert (whole.status, whole.launch.dispatch) == ("verified", None)
    ordinary = worker.run(ask(worker, "loop_tiling"))
    assert whole.source_sha256 == ordinary.source_sha256
    with pytest.raises(LaunchError, match="One block takes"):
        worker.run(ask(worker, "loop_tiling", max_launch_ms=1e-9))


def test_a_dispatch_that_was_found_is_launched_and_recorded(workers, monkeypatch):
    """With a clock that says 1 ms for each block, whatever the machine does meanwhile."""
    worker = workers("matmul")
    timed = type(worker.device).timed
    asked = []

    def scripted(self, built, launch, arguments, launches):
        timed(self, built, launch, arguments, launches)
        asked.append(launch.grid)
        return lambda: 1e6 * math.prod(launch.grid)

    monkeypatch.setattr(type(worker.device), "timed", scripted)
    row = worker.run(ask(worker, "outer_product_loop_tiling", max_launch_ms=50))
    assert (row.status, row.launch.grid, row.launch.dispatch) == ("verified", (32, 8, 1), (32, 1, 1))
    assert max(map(math.prod, asked)) <= 50


# Their text for CUDA, where no card is


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not on PATH")
@pytest.mark.parametrize("name", ["naive", "loop_tiling_shared", "wmma"])
def test_a_kernel_in_parts_compiles_for_cuda(tmp_path, name):
    suite = load_folder(KERNELS / "matmul")
    kernel = suite.by_name[name]
    case = suite.case(kernel, {"m": 500, "n": 300, "k": 64})
    how = replace(launch_of(kernel, case), dispatch=(1, 1, 1))
    made = program(suite, kernel, case, "cuda", "sm_80", how)
    (tmp_path / "kernel.cu").write_text(made.text, encoding="utf-8")
    command = ["nvcc", "-cubin", "-std=c++17", "-arch=sm_80", "-o", "kernel.cubin", "kernel.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"harness_origin" in (tmp_path / "kernel.cubin").read_bytes()
