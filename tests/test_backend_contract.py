"""Tests of the promises of harness.device.backends.base on every backend. A missing backend is skipped,
unless HARNESS_REQUIRE_DEVICE names it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness import Axis, Input, Kernel, Output, Problem, Suite
from harness.device.backends import null, open_device
from harness.device.backends.base import check_launch, check_resident
from harness.errors import BuildError, DeviceError, GraphRefusedError, LaunchError, OutOfMemoryError
from harness.records.types import DeviceInfo, Launch, Resources
from harness.suite.layout import Layout, Parameter
from harness.suite.sources import Program, program
from tests.support import PORTABLE, device_is_missing, write_files, write_null_script

MIB = 2**20
COUNT = 1000
THREADS = 64
C_DIALECT = [pytest.param("opencl:0", id="opencl"), pytest.param("cuda:0", id="cuda", marks=pytest.mark.gpu)]
REAL = [*C_DIALECT, pytest.param("opengl:0", id="opengl")]
NULL = [pytest.param("null:0", id="null"), pytest.param("null:0 with noise", id="noisy null")]
LAUNCHING = [*NULL, *REAL]
EVERY = [*LAUNCHING, pytest.param("cpu:0", id="cpu")]

ARRAYS = {name: Parameter(name, dtype) for name, dtype in (("x", "float32"), ("y", "float32"))}
PARAMETERS = {
    "combine": (
        ARRAYS["x"],
        Parameter("shift", "int32"),
        ARRAYS["y"],
        Parameter("count", "int32"),
        Parameter("factor", "float32"),
        Parameter("offset", "float64"),
    ),
    "reverse": tuple(replace(each, layout=Layout((THREADS,), "float32")) for each in ARRAYS.values()),
    "geometry": (Parameter("y", "int32"),),
    "pieces": (Parameter("y", "int32"),),
    "spin": (ARRAYS["y"], Parameter("rounds", "int32")),
}
"""Arguments of each kernel. Arrays without a layout are given as they are."""

SOURCES = {
    "combine.cu": """\
KERNEL combine(const GLOBAL float* RESTRICT x, const GLOBAL int* RESTRICT shift, GLOBAL float* RESTRICT y,
    int count, float factor, double offset)
{
    const int i = BLOCK_X * BLOCK_SIZE_X + THREAD_X;
    if (i < count)
        y[i] = factor * x[i] + (float)offset + shift[i] + GRID_X;
}
""",
    "reverse.cu": """\
KERNEL reverse(const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y DYNAMIC_SHARED_PARAMETER(float, tile))
{
    DYNAMIC_SHARED(float, tile);
    const int first = BLOCK_X * BLOCK_SIZE_X;
    tile[THREAD_X] = x[first + THREAD_X];
    BARRIER();
    y[first + THREAD_X] = tile[BLOCK_SIZE_X - 1 - THREAD_X];
}
""",
    "geometry.cu": """\
KERNEL geometry(GLOBAL int* RESTRICT y)
{
    const int block = (BLOCK_Z * GRID_Y + BLOCK_Y) * GRID_X + BLOCK_X;
    const int thread = (THREAD_Z * BLOCK_SIZE_Y + THREAD_Y) * BLOCK_SIZE_X + THREAD_X;
    y[block * (BLOCK_SIZE_X * BLOCK_SIZE_Y * BLOCK_SIZE_Z) + thread] = 1000 * block + thread;
}
""",
    "spin.cu": """\
KERNEL spin(GLOBAL float* RESTRICT y, int rounds)
{
    float value = y[THREAD_X];
    for (int i = 0; i < rounds; ++i)
        value = value * 0.5f + 1.0f;
    y[THREAD_X] = value;
}
""",
    "lines.h": "// one\n// two\nthis is no kernel;\n",
    "broken.cu": '// one\n#include "fine.h"\n\nKERNEL broken(GLOBAL float* y) { y[0] = undeclared_name; }\n',
    "fine.h": "// a line\n// and another\n",
    "through.cu": '#include "lines.h"\nKERNEL through(GLOBAL float* y) { y[0] = 1.0f; }\n',
    "misnamed.cu": "KERNEL another_name(GLOBAL float* y) { y[0] = 1.0f; }\n",
    "combine.glsl": """\
layout(local_size_x = LX) in;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) readonly buffer Shift { int shift[]; };
layout(std430, binding = 2) writeonly buffer Y { float y[]; };
uniform int count;
uniform float factor;
uniform double offset;

void main()
{
    const uint i = gl_GlobalInvocationID.x;
    if (i < uint(count))
        y[i] = factor * x[i] + float(offset) + float(shift[i]) + float(gl_NumWorkGroups.x);
}
""",
    "reverse.glsl": """\
layout(local_size_x = LX) in;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) writeonly buffer Y { float y[]; };
shared float tile[LX];

void main()
{
    const uint i = gl_LocalInvocationID.x;
    tile[i] = x[gl_GlobalInvocationID.x];
    barrier();
    y[gl_GlobalInvocationID.x] = tile[LX - 1 - i];
}
""",
    "geometry.glsl": """\
layout(local_size_x = LX, local_size_y = LY, local_size_z = LZ) in;
layout(std430, binding = 0) writeonly buffer Y { int y[]; };

void main()
{
    const uvec3 grid = gl_NumWorkGroups, place = gl_WorkGroupID;
    const uint block = (place.z * grid.y + place.y) * grid.x + place.x;
    y[block * LX * LY * LZ + gl_LocalInvocationIndex] = int(1000 * block + gl_LocalInvocationIndex);
}
""",
    "pieces.cu": """\
KERNEL pieces(GLOBAL int* RESTRICT y)
{
    const int block = (BLOCK_Z * GRID_Y + BLOCK_Y) * GRID_X + BLOCK_X;
    y[block * BLOCK_SIZE_X + THREAD_X] += 1000 * block + THREAD_X;
}
""",
    "pieces.glsl": """\
layout(local_size_x = LX) in;
layout(std430, binding = 0) buffer Y { int y[]; };
uniform int x0, y0, z0;

void main()
{
    const ivec3 place = ivec3(gl_GlobalInvocationID) + ivec3(x0, y0, z0);
    const int block = (place.z * HARNESS_GRID_Y + place.y) * HARNESS_GRID_X + place.x / LX;
    y[block * LX + place.x % LX] += 1000 * block + place.x % LX;
}
""",
    "spin.glsl": """\
layout(local_size_x = LX) in;
layout(std430, binding = 0) buffer Y { float y[]; };
uniform int rounds;

void main()
{
    float value = y[gl_LocalInvocationID.x];
    for (int i = 0; i < rounds; ++i)
        value = value * 0.5 + 1.0;
    y[gl_LocalInvocationID.x] = value;
}
""",
    "broken.glsl": '// one\n#include "fine.h"\n\nvoid main() { undeclared_name = 1; }\n',
    "through.glsl": '#include "lines.h"\nvoid main() {}\n',
    "misnamed.glsl": "void another_name() {}\n",
}


class AnyProblem(Problem):
    n = Axis(default=(COUNT,))
    x = Input("n")
    y = Output("n")


@pytest.fixture(scope="module")
def device(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("backend")
    script: dict[str, dict[str, object]] = {
        f"contract.{name}": {"fault": "build"} for name in ("broken", "through", "misnamed")
    }
    spec, _, noisy = request.param.partition(" with ")
    if noisy:
        script["noise"] = {"kind": "quiet", "seed": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(folder / "cache"))
        patch.setenv("HARNESS_NULL_SCRIPT", write_null_script(folder / "script.json", script))
        try:
            opened = open_device(spec)
        except DeviceError as error:
            device_is_missing(spec, error.message)
        yield opened
        opened.close()


@pytest.fixture
def make(device, tmp_path):
    """Programs by name, as the harness makes them, with what the null device computes in their place."""
    write_files(tmp_path, SOURCES)

    def make_program(name, emulate=None, block=(THREADS, 1, 1), launch=None, **options) -> Program:
        sources = {"cuda": f"{name}.cu", "opencl": f"{name}.cu", "opengl": f"{name}.glsl"}
        macros = {**dict(zip(("LX", "LY", "LZ"), block, strict=True)), **options.pop("macros", {})}
        kernel = Kernel(name, sources, block=THREADS, grid=1, macros=macros, **options)
        suite = Suite("contract", AnyProblem(), [kernel], prelude=PORTABLE, root=tmp_path)
        of_host = device.info.backend == "cpu"
        backend = "null" if of_host else device.info.backend
        made = program(suite, kernel, suite.case(kernel, {"n": COUNT}), backend, launch=launch)
        made = replace(made, parameters=PARAMETERS.get(name, ()), emulate=emulate)
        return (
            replace(made, kind="host", host=lambda stream: host_function(name, emulate)) if of_host else made
        )

    return make_program


def host_function(name, emulate):
    """Return the host function that the null device runs. Raises ValueError if the kernel cannot be built."""
    if name in ("broken", "misnamed"):
        raise ValueError(name)

    def call(*arguments):
        for view, values in emulate(*arguments):
            view[:] = values

    return call


def dynamic(device, shared_bytes):
    """Shared memory that a launch gives; a shader has what it declares."""
    return 0 if device.info.backend == "opengl" else shared_bytes


@pytest.fixture
def upload(device):
    """Device memory that holds a copy of an array, as an argument; freed after the test."""
    allocations = []

    def put(array):
        memory = device.allocate(array.nbytes)
        allocations.append(memory)
        device.write(memory, 0, array)
        return memory, device.view(memory, 0, array.nbytes)

    yield put
    for memory in allocations:
        device.release(memory)


def download(device, memory, like):
    out = np.empty_like(like)
    device.read(memory, 0, out)
    return out


every_backend = pytest.mark.parametrize("device", EVERY, indirect=True)
every_launching = pytest.mark.parametrize("device", LAUNCHING, indirect=True)
every_compiler = pytest.mark.parametrize("device", REAL, indirect=True)
every_c_dialect = pytest.mark.parametrize("device", C_DIALECT, indirect=True)


@every_backend
def test_a_device_describes_itself(device):
    info = device.info
    assert info.spec == f"{info.backend}:0"
    assert info.name
    assert info.arch
    assert info.memory_bytes > 0
    assert min(info.max_threads_per_block, *info.max_block, *info.max_grid, info.max_shared_bytes) > 0
    assert device.clock
    assert device.toolchain.compiler
    assert device.free_bytes() is None or 0 < device.free_bytes() <= info.memory_bytes


@every_backend
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "int32"])
def test_arrays_come_back_as_they_were_written(device, dtype):
    values = np.arange(4 * COUNT).reshape(4, COUNT).astype(dtype)
    memory = device.allocate(values.nbytes + 64)
    try:
        device.write(memory, 64, values)
        out = np.empty_like(values)
        device.read(memory, 64, out)
    finally:
        device.release(memory)
    assert np.array_equal(out, values)


@every_backend
def test_fill_reaches_its_bytes_and_no_others(device):
    memory = device.allocate(4096)
    out = np.empty(4096, np.uint8)
    try:
        device.fill(memory, 0, 4096, 0xFF)
        device.fill(memory, 100, 200, 7)
        device.read(memory, 0, out)
    finally:
        device.release(memory)
    assert set(out[100:300]) == {7}
    assert set(out[:100]) == set(out[300:]) == {0xFF}


@every_backend
def test_a_copy_comes_after_what_was_enqueued_before_it(device):
    source, destination = device.allocate(4096), device.allocate(2 * MIB)
    out = np.empty(2 * MIB, np.uint8)
    try:
        device.fill(destination, 0, 2 * MIB, 0xFF)
        device.fill(source, 0, 4096, 7)
        device.copy(source, destination, MIB, 4000)
        device.fill(source, 0, 4096, 8)
        device.read(destination, 0, out)
    finally:
        device.release(source)
        device.release(destination)
    assert set(out[MIB : MIB + 4000]) == {7}
    assert set(out[:MIB]) == set(out[MIB + 4000 :]) == {0xFF}


@every_backend
def test_what_waits_for_its_turn_is_not_seen_before_it(device, make, upload):
    memory, y = upload(np.zeros(THREADS, "float32"))
    _, x = upload(np.ones(THREADS, "float32"))
    built = device.build(make("reverse", lambda x, y: [(y, x)]))
    launch = Launch(grid=(1, 1, 1), block=(THREADS, 1, 1), dynamic_shared_bytes=dynamic(device, 4 * THREADS))
    seen = np.full(THREADS, 5, "float32")
    told = device.launch_held(built, launch, [x, y], [(memory, 0, seen)])
    assert not told or set(seen) == {0}
    assert set(download(device, memory, seen)) == {1}


@every_backend
def test_a_view_is_its_part_of_the_allocation(device, make, upload):
    x = np.linspace(0, 1, THREADS, dtype="float32")
    _, x_view = upload(x)
    memory = device.allocate(2 * MIB + x.nbytes)
    whole = np.empty(2 * MIB + x.nbytes, np.uint8)
    try:
        device.fill(memory, 0, whole.nbytes, 0xFF)
        built = device.build(make("reverse", lambda x, y: [(y, x.view("float32")[::-1])]))
        view = device.view(memory, MIB, x.nbytes)
        shared_bytes = dynamic(device, 4 * THREADS)
        launch = Launch(grid=(1, 1, 1), block=(THREADS, 1, 1), dynamic_shared_bytes=shared_bytes)
        device.launch(built, launch, [x_view, view])
        device.read(memory, 0, whole)
    finally:
        device.release(memory)
    assert np.array_equal(whole[MIB : MIB + x.nbytes].view("float32"), x[::-1])
    assert set(whole[:MIB]) == set(whole[MIB + x.nbytes :]) == {0xFF}


@every_launching
def test_a_kernel_computes_from_arrays_and_scalars(device, make, upload):
    x = np.linspace(-1, 1, COUNT, dtype="float32")
    shift = np.arange(COUNT, dtype="int32")
    y = np.full(COUNT, np.nan, "float32")
    grid = -(-COUNT // THREADS)

    def compute(x, shift, y, count, factor, offset):
        values = factor * x.view("float32") + np.float32(offset) + shift.view("int32") + grid
        return [(y, values[:count].astype("float32"))]

    built = device.build(make("combine", compute))
    memory, y_view = upload(y)
    scalars = np.int32(COUNT), np.float32(3), np.float64(0.5)
    device.launch(
        built,
        Launch(grid=(grid, 1, 1), block=(THREADS, 1, 1)),
        [upload(x)[1], upload(shift)[1], y_view, *scalars],
    )
    device.synchronize()
    assert np.allclose(download(device, memory, y), 3 * x + 0.5 + shift + grid)


@every_launching
def test_grid_counts_blocks_and_block_counts_threads(device, make, upload):
    grid, block = (3, 2, 2), (4, 2, 3)
    threads, blocks = int(np.prod(block)), int(np.prod(grid))
    expected = (1000 * np.arange(blocks)[:, None] + np.arange(threads)).astype("int32").reshape(-1)
    memory, view = upload(np.zeros_like(expected))
    built = device.build(make("geometry", lambda y: [(y, expected)], block))
    device.launch(built, Launch(grid=grid, block=block), [view])
    device.synchronize()
    assert np.array_equal(download(device, memory, expected), expected)


@every_launching
@pytest.mark.parametrize("dispatch", [(2, 2, 1), (1, 1, 1), (7, 1, 2), (9, 9, 9)], ids=str)
def test_a_launch_in_parts_does_every_block_once(device, make, upload, dispatch):
    grid, threads = (7, 3, 2), 4
    expected = (1000 * np.arange(7 * 3 * 2)[:, None] + np.arange(threads)).astype("int32").reshape(-1)
    launch = Launch(grid=grid, block=(threads, 1, 1), dispatch=dispatch)
    made = make("pieces", lambda y: [(y, expected)], launch.block, replace(launch, dispatch=(1, 1, 1)))
    built = device.build(made)
    memory, view = upload(np.zeros_like(expected))
    device.launch(built, launch, [view])
    device.synchronize()
    assert np.array_equal(download(device, memory, expected), expected)
    timing = device.timed(built, launch, [view], 3)
    device.synchronize()
    assert timing() > 0
    again = 1 if device.info.backend == "null" else 4
    assert np.array_equal(download(device, memory, expected), again * expected)


@every_c_dialect
def test_what_was_built_for_a_whole_grid_is_not_launched_in_parts(device, make, upload):
    launch = Launch(grid=(3, 1, 1), block=(4, 1, 1), dispatch=(2, 1, 1))
    _, view = upload(np.zeros(12, "int32"))
    built = device.build(make("pieces"))
    with pytest.raises(LaunchError, match="built for a whole one"):
        device.launch(built, launch, [view])


def reversed_by(device, upload, built, launch, x):
    """What the kernel makes of x."""
    memory, y = upload(np.zeros_like(x))
    check_launch(launch, device.info, built.resources)
    device.launch(built, launch, [upload(x)[1], y])
    device.synchronize()
    return download(device, memory, x)


@pytest.mark.parametrize("device", [*NULL, *C_DIALECT], indirect=True)
@pytest.mark.parametrize("shared_bytes", [4 * THREADS, 32 * 1024], ids=["what it needs", "32 KiB"])
def test_dynamic_shared_memory(device, make, upload, shared_bytes):
    x = np.arange(4 * THREADS, dtype="float32")
    expected = x.reshape(4, THREADS)[:, ::-1].reshape(-1)
    built = device.build(make("reverse", lambda x, y: [(y, expected)]))
    launch = Launch(grid=(4, 1, 1), block=(THREADS, 1, 1), dynamic_shared_bytes=shared_bytes)
    assert np.array_equal(reversed_by(device, upload, built, launch, x), expected)


@every_c_dialect
def test_the_most_shared_memory_that_the_device_claims_can_be_used(device, make, upload):
    x = np.arange(THREADS, dtype="float32")
    built = device.build(make("reverse"))
    most_bytes = device.info.max_shared_bytes - (built.resources.static_shared_bytes or 0)
    launch = Launch(grid=(1, 1, 1), block=(THREADS, 1, 1), dynamic_shared_bytes=most_bytes)
    assert np.array_equal(reversed_by(device, upload, built, launch, x), x[::-1])


@every_compiler
def test_the_largest_block_that_the_kernel_claims_can_be_run(device, make, upload):
    built = device.build(make("reverse", block=(device.info.max_threads_per_block, 1, 1)))
    threads = min(device.info.max_threads_per_block, built.resources.max_threads_per_block)
    x = np.arange(threads, dtype="float32")
    shared_bytes = dynamic(device, 4 * threads)
    launch = Launch(grid=(1, 1, 1), block=(threads, 1, 1), dynamic_shared_bytes=shared_bytes)
    assert np.array_equal(reversed_by(device, upload, built, launch, x), x[::-1])


@every_backend
def test_time_is_positive_and_grows_with_the_launches(device, make, upload):
    _, y = upload(np.ones(THREADS, "float32"))
    built = device.build(make("spin", lambda y, rounds: []))
    arguments = [y, np.int32(20_000)]

    def least_ns(launches):
        timings = [
            device.timed(built, Launch(grid=(1, 1, 1), block=(THREADS, 1, 1)), arguments, launches)
            for _ in range(5)
        ]
        device.synchronize()
        return min(timing() for timing in timings)

    least_ns(1)
    once_ns, often_ns = least_ns(1), least_ns(50)
    assert isinstance(once_ns, float | int)
    assert once_ns > 0
    assert often_ns > 5 * once_ns


@every_backend
def test_what_measuring_needs_besides_launches(device):
    device.flush_l2()
    device.flush_l2()
    device.occupy(10_000)
    device.synchronize()
    assert 0 < device.tick_ns() < 1e9


def spun(device, make, upload):
    """Return arguments of `timed` that keep the device busy for a moment."""
    built = device.build(make("spin", lambda y, rounds: []))
    _, y = upload(np.ones(THREADS, "float32"))
    return built, Launch(grid=(1, 1, 1), block=(THREADS, 1, 1)), [y, np.int32(20_000)]


@every_backend
def test_stamps_go_on_with_the_work_between_them(device, make, upload):
    subject = spun(device, make, upload)
    stampings = [device.stamp()]
    timings = []
    for _ in range(3):
        timings.append(device.timed(*subject, 50))
        stampings.append(device.stamp())
    device.synchronize()
    stamps = [stamping() for stamping in stampings]
    if device.globaltimer_tick_ns() is None:
        assert stamps == [None] * 4
        return
    for before, timing, after in zip(stamps, timings, stamps[1:], strict=False):
        assert after.cycles > before.cycles
        # The device's own time is that of the launches, give or take what lies between them.
        assert after.time_ns - before.time_ns == pytest.approx(timing(), rel=0.5)
    assert [stamping() for stamping in stampings] == stamps


@every_backend
def test_every_stamp_is_its_own_moment(device):
    """More of them than a ring of slots might hold, read after all are enqueued."""
    stampings = [device.stamp() for _ in range(3000)]
    device.synchronize()
    stamps = [stamping() for stamping in stampings]
    if device.globaltimer_tick_ns() is None:
        assert set(stamps) == {None}
        return
    moments = [stamp.time_ns for stamp in stamps]
    assert moments == sorted(moments)
    assert [stamp.cycles for stamp in stamps] == sorted(stamp.cycles for stamp in stamps)


@every_backend
def test_the_canary_is_a_small_kernel_that_takes_the_same_each_time(device):
    timings = [device.canary() for _ in range(9)]
    device.synchronize()
    if timings[0] is None:
        assert timings == [None] * 9
        return
    times_ns = sorted(timing() for timing in timings)
    assert times_ns[0] > 1e3
    assert times_ns[4] < 1e6
    assert times_ns[4] < 1.5 * times_ns[0]


@every_backend
def test_a_device_with_stamps_tells_how_its_timer_ticks(device):
    tick_ns = device.globaltimer_tick_ns()
    stamped = device.stamp()
    device.synchronize()
    assert (tick_ns is None) == (stamped() is None)
    assert tick_ns is None or 0 < tick_ns < 1e7


@every_backend
def test_a_second_build_has_the_same_binary(device, make):
    first, second = (device.build(make("combine", macros={"UNUSED": 1})) for _ in range(2))
    assert first.resources.binary_sha256
    assert first.resources.binary_sha256 == second.resources.binary_sha256


def entries(device) -> dict[Path, int]:
    """Return the files of a device's cache. A binary that is compiled again becomes another file."""
    folder = device.cache.folder if hasattr(device, "cache") else Path("none")
    return {path: path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


@every_c_dialect
def test_a_second_build_comes_from_the_cache(device, make):
    before = entries(device)
    first = device.build(make("combine", macros={"UNUSED": 2}))
    kept = entries(device)
    assert len(kept) == len(before) + 1
    second = device.build(make("combine", macros={"UNUSED": 2}))
    assert entries(device) == kept
    assert first.resources == second.resources


@every_backend
def test_different_text_is_a_different_binary(device, make):
    sums = {
        device.build(make(name, macros={"UNUSED": 3})).resources.binary_sha256
        for name in ("combine", "reverse")
    }
    assert len(sums) == 2


@every_backend
def test_programs_compile_in_several_threads_at_once(device, make):
    programs = [make("spin", macros={"UNUSED": 10 + number}) for number in range(6)]
    compile_one = getattr(device, "compile", device.build)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(compile_one, programs))
    kept = entries(device)
    for each in programs:
        device.build(each)
    assert entries(device) == kept


@every_backend
@pytest.mark.parametrize("name", ["broken", "misnamed"], ids=["syntax error", "no such function"])
def test_a_program_that_does_not_build_is_a_build_error(device, make, name):
    if name == "misnamed" and device.info.backend == "opengl":
        pytest.skip("a shader's function is always main; without it the shader does not link everywhere")
    with pytest.raises(BuildError) as caught:
        device.build(make(name))
    assert f"contract.{name}" in caught.value.message
    assert caught.value.reason == "build-failed"


@every_compiler
@pytest.mark.parametrize(
    ("name", "place"), [("broken", ("broken.cu", 4)), ("through", ("lines.h", 3))], ids=["kernel", "include"]
)
def test_the_log_names_the_line_in_the_authors_file(device, make, name, place):
    with pytest.raises(BuildError) as caught:
        device.build(make(name))
    file, line = place
    if device.info.backend == "opengl":
        file = file.replace(".cu", ".glsl")
    assert f"{file}:{line}" in caught.value.log or f"{file}({line})" in caught.value.log


@every_c_dialect
def test_a_missing_function_is_named(device, make):
    with pytest.raises(BuildError, match="no kernel function named 'misnamed'"):
        device.build(make("misnamed"))


@every_launching
def test_the_device_still_works_after_a_failed_build(device, make, upload):
    with pytest.raises(BuildError):
        device.build(make("broken"))
    test_grid_counts_blocks_and_block_counts_threads(device, make, upload)


@every_backend
def test_an_allocation_that_cannot_fit_is_out_of_memory(device):
    with pytest.raises(OutOfMemoryError) as caught:
        device.allocate(4 * device.info.memory_bytes)
    assert str(4 * device.info.memory_bytes) in caught.value.message


@every_backend
def test_released_memory_can_be_allocated_again(device):
    # Mesa writes zeros to all of it.
    most = 256 if device.info.kind == "gpu" else 16
    size_bytes = min(device.info.memory_bytes // 16, most * MIB)
    for _ in range(20):
        device.release(device.allocate(size_bytes))


def illegal_launches(info: DeviceInfo) -> dict[str, Launch]:
    width, height, depth = info.max_block
    grid_x, grid_y, grid_z = info.max_grid
    one = (1, 1, 1)
    return {
        "too many threads": Launch(grid=one, block=(info.max_threads_per_block + 1, 1, 1)),
        "too wide a block": Launch(grid=one, block=(width + 1, 1, 1)),
        "too high a block": Launch(grid=one, block=(1, height + 1, 1)),
        "too deep a block": Launch(grid=one, block=(1, 1, depth + 1)),
        "too wide a grid": Launch(grid=(grid_x + 1, 1, 1), block=one),
        "too high a grid": Launch(grid=(1, grid_y + 1, 1), block=one),
        "too deep a grid": Launch(grid=(1, 1, grid_z + 1), block=one),
        "an empty grid": Launch(grid=(0, 1, 1), block=one),
        "an empty block": Launch(grid=one, block=(1, 0, 1)),
        "an empty dispatch": Launch(grid=one, block=one, dispatch=(1, 0, 1)),
        "a cluster of no block": Launch(grid=one, block=one, cluster=(0, 1, 1)),
        "too large a cluster": Launch(grid=(17, 1, 1), block=one, cluster=(17, 1, 1)),
        "a grid of two thirds of a cluster": Launch(grid=(2, 1, 1), block=one, cluster=(3, 1, 1)),
        "too much shared memory": Launch(grid=one, block=one, dynamic_shared_bytes=info.max_shared_bytes + 1),
    }


@every_backend
@pytest.mark.parametrize("what", illegal_launches(null.devices()[0]))
def test_an_illegal_launch_is_refused_with_its_numbers(device, what):
    with pytest.raises(LaunchError, match=r"\d") as caught:
        check_launch(illegal_launches(device.info)[what], device.info)
    assert caught.value.reason == "launch-refused"


@every_backend
def test_only_cuda_has_graphs(device):
    refused = pytest.raises(GraphRefusedError, match="has no CUDA graphs: run it there without --graph")
    with nullcontext() if device.info.backend in ("cuda", "null") else refused:
        check_launch(replace(LAUNCH_OF_ONE, graph=True), device.info)


LAUNCH_OF_ONE = Launch(grid=(1, 1, 1), block=(1, 1, 1))


def test_a_cooperative_grid_is_resident_at_once():
    card = replace(
        null.devices()[0], name="card", compute_units=4, max_threads_per_sm=1024, compute_capability=(8, 9)
    )
    launch = Launch(grid=(8, 2, 1), block=(256, 1, 1), cooperative=True)
    check_launch(launch, card)
    with pytest.raises(LaunchError, match="grid 17x1x1 has more than the 16 blocks that card holds at once"):
        check_launch(replace(launch, grid=(17, 1, 1)), card)
    with pytest.raises(LaunchError, match="more than the 12 blocks"):
        check_resident(launch, 12, card)
    check_resident(launch, None, card)
    in_clusters = replace(launch, cluster=(8, 2, 1))
    with pytest.raises(LaunchError, match="Clusters need sm_90; card is sm_89"):
        check_launch(in_clusters, card)
    check_launch(in_clusters, replace(card, compute_capability=(9, 0)))
    early = replace(LAUNCH_OF_ONE, steps=(replace(LAUNCH_OF_ONE, programmatic=True),))
    with pytest.raises(LaunchError, match="Programmatic dependent launch needs sm_90; card is sm_89"):
        check_launch(early, card)
    with pytest.raises(LaunchError, match="Not one cluster of 8x2x1 blocks fits on card"):
        check_resident(in_clusters, 0, card)


@every_backend
@pytest.mark.parametrize(
    "resources",
    [Resources(max_threads_per_block=THREADS - 1), Resources(static_shared_bytes=2**40)],
    ids=["threads", "shared memory"],
)
def test_what_a_built_kernel_needs_counts_too(device, resources):
    launch = Launch(grid=(1, 1, 1), block=(THREADS, 1, 1))
    check_launch(launch, device.info)
    with pytest.raises(LaunchError):
        check_launch(launch, device.info, resources)
