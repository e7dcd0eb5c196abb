"""Kernels that are several functions, with memory of their own and what a setup gives them."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess

import numpy as np
import pytest

from harness import Axis, Input, Kernel, Output, Problem, Step, Suite
from harness.device.backends import open_device
from harness.device.backends.cubin import parameters
from harness.device.backends.cuda.built import formats
from harness.errors import LaunchError, MeasureError, SuiteError
from harness.measure.buffers import Buffers
from harness.records.types import Launch
from harness.suite.loader import load
from harness.suite.planning import launch_of
from tests.support import GPU, write_files
from tests.test_operands import DEVICES, QUICK, measured, worker_of

SUITE = """\
import numpy as np
from harness import Axis, Input, Kernel, Output, Problem, Step, Suite, ceil_div


class Sums(Problem):
    '''y = the sums of the columns of x.'''

    m = Axis((512,))
    n = Axis((100,))
    x = Input("m", "n")
    y = Output("n")

    def reference(self, case, x):
        return x.sum(axis=0)

    def tolerance(self, case, x):
        return 2.0**-22 * abs(x).sum(axis=0)

    def integer_bound(self, case):
        return 3


def setup(case, arrays):
    x = arrays["x"]
    assert (x.shape, x.dtype, x.strides) == ((case.m, case.n), "float32", (4 * case.n, 4))
    assert arrays["partials"].size_bytes == 4 * case.SPLITS * case.n
    return {"start": np.float32(case.START), "name": 3}


def kernel(name, reduce="reduce", room=0, **wrong):
    threads = lambda c: ceil_div(c.n, 32)
    return Kernel(name, "sums.cu", entry="partial", block=32, grid=lambda c: (threads(c), c.SPLITS),
        args=("x", "partials", "m", "n"), macros={"SPLITS": 8, "KEEP": 0, "OVER": 0, "START": 0, **wrong},
        workspace={"partials": lambda c: (c.SPLITS * c.n - room,)}, setup=setup if not room else None,
        steps=[Step(reduce, 32, threads, ("partials", "y", "n") + (() if room else ("start",)))])


suite = Suite("sums", Sums(), headline="GB/s",
    prelude={"cuda": "../portable/cuda.h", "opencl": "../portable/opencl.h"},
    kernels=[kernel("right"), kernel("other_start", START=1), kernel("keeps", KEEP=1),
        kernel("short_room", reduce="reduce_from_zero", room=5)])
"""
SUMS = """\
KERNEL LAUNCH_BOUNDS(32, 1, 1) partial(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT partials, int m, int n)
{
    const int j = BLOCK_X * 32 + THREAD_X;
    if (j >= n || (KEEP && partials[BLOCK_Y * n + j] == partials[BLOCK_Y * n + j]))
        return;
    float sum = 0;
    for (int i = BLOCK_Y; i < m; i += SPLITS)
        sum += x[i * n + j];
    partials[BLOCK_Y * n + j] = sum;
}
KERNEL LAUNCH_BOUNDS(32, 1, 1) reduce(
    const GLOBAL float* RESTRICT partials, GLOBAL float* RESTRICT y, int n, float start)
{
    const int j = BLOCK_X * 32 + THREAD_X;
    if (j >= n)
        return;
    float sum = start;
    for (int split = 0; split < SPLITS; ++split)
        sum += partials[split * n + j];
    y[j] = sum;
}
KERNEL LAUNCH_BOUNDS(32, 1, 1) reduce_from_zero(
    const GLOBAL float* RESTRICT partials, GLOBAL float* RESTRICT y, int n)
{
    const int j = BLOCK_X * 32 + THREAD_X;
    float sum = 0;
    for (int split = 0; j < n && split < SPLITS; ++split)
        sum += partials[split * n + j];
    if (j < n)
        y[j] = sum;
}
"""


@pytest.fixture(scope="module", params=DEVICES)
def sums(request, tmp_path_factory):
    made = worker_of(
        tmp_path_factory.mktemp("sums"), request.param, SUITE.replace(', "name": 3', ""), {"sums.cu": SUMS}
    )
    yield made
    made.device.close()


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("right", ""),
        ("other_start", "100 of 100 elements of y are wrong on integers"),
        ("short_room", "The kernel wrote outside its arrays: 20 bytes after partials."),
    ],
)
def test_functions_in_sequence_are_one_kernel(sums, kernel, told):
    row = measured(sums, kernel, None if told else QUICK, m=512, n=100)
    assert row.status == ("failed" if told else "measured"), row.message
    assert told in row.message
    assert row.launch.grid == (4, 8, 1)
    assert row.launch.steps == (Launch(grid=(4, 1, 1), block=(32, 1, 1)),)


def test_a_step_whose_partials_are_there_does_not_pass_for_work(sums):
    """On long columns the first function is nearly all of the time, and it leaves that out. Times tell, and
    those of a host that has other work too may hide it once.
    """
    for _ in range(1 if sums.device.info.kind == "gpu" else 3):
        try:
            measured(sums, "keeps", m=2**18, n=100)
        except MeasureError as error:
            assert error.reason in ("skips-work", "wrong-when-timed")  # noqa: PT017 - it may not be raised
            return
    pytest.fail("It passed for work.")


def test_a_setup_gives_what_has_a_width(tmp_path):
    worker = worker_of(tmp_path, "opencl:0", SUITE, {"sums.cu": SUMS})
    with pytest.raises(SuiteError, match="its setup gave 'name' as int; expected bytes, or a NumPy"):
        measured(worker, "right", None, m=512, n=100)
    worker.device.close()


OF_A_STRUCTURE = """\
import numpy as np
from harness import Axis, Input, Kernel, Output, Problem, Suite

PLAN = np.dtype([("flag", "int8"), ("a", "float32"), ("n", "int32"), ("b", "float64")], align=True)


class Affine(Problem):
    n = Axis((100,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2.5 * x + 4

    def tolerance(self, case, x):
        return 1e-5


def structures(case, arrays):
    return {"plan": np.array((1, 2.5, case.n, 4.0), PLAN)[()]}


suite = Suite("affine", Affine(), headline="GB/s", kernels=[
    Kernel("affine", "affine.cl", block=100, grid=1, args=("x", "y", "plan"), setup=structures)])
"""
AFFINE = """\
typedef struct { char flag; float a; int n; double b; } plan_t;
__kernel void affine(__global const float *x, __global float *y, plan_t plan) {
    const int i = get_global_id(0);
    if (plan.flag && i < plan.n) y[i] = plan.a * x[i] + (float)plan.b;
}
"""


def test_a_numpy_structure_goes_by_value_to_opencl(tmp_path):
    worker = worker_of(tmp_path, "opencl:0", OF_A_STRUCTURE, {"affine.cl": AFFINE})
    row = measured(worker, "affine", n=100)
    worker.device.close()
    assert (row.status, row.message) == ("measured", "")


def test_a_suite_tells_of_steps_by_way_of_its_process(tmp_path):
    suite = load(write_files(tmp_path / "kernels" / "sums", {"suite.py": SUITE, "sums.cu": SUMS})).suite
    kernel = suite.by_name["right"]
    launch = launch_of(kernel, suite.case(kernel, {"m": 512, "n": 100}))
    assert launch.steps == (Launch(grid=(4, 1, 1), block=(32, 1, 1)),)
    assert kernel.setup is not None
    assert list(kernel.workspace) == ["partials"]


class Copy(Problem):
    n = Axis((4,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return x


def copying(**changes):
    return Kernel("one", "one.cu", **{"block": 1, "grid": 1, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"workspace": {"room": 4}},
            "Kernel 'one' has the workspace 'room', which is in no args: say where it goes.",
        ),
        ({"setup": dict}, "Kernel 'one' has a setup and no args: say where what it returns goes."),
        (
            {"steps": [Step("two", 1, 1)], "dispatch": (1,)},
            "Kernel 'one' has steps; expected sources that cuda or opencl compiles, and no dispatch.",
        ),
        (
            {"workspace": {"x": 4}, "args": ("x",)},
            "Kernel 'one' has the workspace 'x', which is also of its problem.",
        ),
        (
            {"workspace": {"room": lambda c: c.n - 4}, "args": ("x", "room")},
            "Kernel 'one' has workspace room = 0 at 4; expected a number of bytes from 1, or a tuple of",
        ),
        (
            {"setup": lambda case, arrays: [case, arrays], "args": ("x", "y")},
            "its setup gave [Case(",
        ),
        (
            {"setup": lambda case, arrays: {"a": case.q}, "args": ("x", "y", "a")},
            "Kernel 'one': setup at 4 raised AttributeError: case has no axis, macro or scalar named 'q'",
        ),
        (
            {"setup": lambda case, arrays: {}, "args": ("x", "y", "a")},
            "which is no array, scalar or axis of its problem and nothing that its setup gave.",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_a_sentence(changes, sentence):
    def ask():
        kernel = copying(**changes)
        suite = Suite("toy", Copy(), kernels=[kernel])
        with Buffers(open_device("null"), suite.problem, suite.case(kernel, {"n": 4})) as buffers:
            buffers.arguments(kernel)

    with pytest.raises(SuiteError) as caught:
        ask()
    assert sentence in caught.value.message


def test_kernels_share_a_workspace_that_is_alike():
    device = open_device("null")
    suite = Suite("toy", Copy(), kernels=[copying()])
    case = suite.case(copying(), {"n": 4})
    with Buffers(device, suite.problem, case) as buffers:
        rooms = [
            buffers.arguments(copying(workspace={"w": room}, args=("w",)))[0] for room in (64, 64, (16,), 80)
        ]
        assert [room.ctypes.data - rooms[0].ctypes.data == 0 for room in rooms] == [True, True, True, False]
        rooms[3][:] = 0
        assert buffers.damage({}) == ""
        buffers.poison()
        assert (rooms[3] == 0xFF).all()
        given = buffers.arguments(
            copying(args=("map", "n"), setup=lambda case, arrays: {"map": struct.pack("q", case.n)})
        )
        assert given == [struct.pack("q", 4), 4]


# What a card is launched with can be laid out without one.

ARGUMENTS = [np.uintp(1), np.float32(1.5), np.int32(7), b"t" * 128, np.uint16(3), np.float64(2.5), np.int8(1)]


class AsC(ctypes.Structure):
    _fields_ = (
        ("p", ctypes.c_void_p),
        ("a", ctypes.c_float),
        ("n", ctypes.c_int),
        ("pad", ctypes.c_byte * 48),
        ("map", ctypes.c_byte * 128),
        ("half", ctypes.c_uint16),
        ("d", ctypes.c_double),
        ("c", ctypes.c_int8),
    )


def offsets(formats):
    found, end = [], 0
    for each in formats:
        end = struct.calcsize(each if not end else f"{end}x{each}")
        found.append(end)
    return found


def test_arguments_lie_where_c_has_them():
    wanted = [
        getattr(AsC, name).offset + getattr(AsC, name).size for name, _ in AsC._fields_ if name != "pad"
    ]
    assert offsets(formats("toy.one", ARGUMENTS, None)) == wanted


@pytest.fixture(scope="module")
def cubin(tmp_path_factory):
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH.")
    folder = tmp_path_factory.mktemp("cubin")
    (folder / "one.cu").write_text(
        "struct alignas(64) map_t { char bytes[128]; };\n"
        'extern "C" __global__ void one(float *p, float a, int n, const __grid_constant__ map_t map,\n'
        "    unsigned short half, double d, signed char c) { p[n] = a + map.bytes[n] + half + d + c; }\n"
        'extern "C" __global__ void none() {}\n'
    )
    command = ["nvcc", "-cubin", "-arch=sm_80", "-o", str(folder / "one.cubin"), str(folder / "one.cu")]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "one.cubin").read_bytes()


def test_a_cubin_tells_where_its_parameters_lie(cubin):
    found = parameters(cubin, "one")
    # The structure lies at a multiple of 64 of the constant bank, where parameters do not begin at one.
    assert found is not None
    assert [size for _, size in found] == [8, 4, 4, 128, 2, 8, 1]
    assert [offset for offset, _ in found[:3]] == [0, 8, 12]
    assert found[3][0] % 16 == 0
    assert offsets(formats("toy.one", ARGUMENTS, found)) == [offset + size for offset, size in found]
    assert parameters(cubin, "none") == ()
    assert parameters(cubin, "nobody") is None
    assert parameters(b"no cubin", "one") is None
    with pytest.raises(LaunchError) as caught:
        formats("toy.one", [*ARGUMENTS[:2], np.int64(7), *ARGUMENTS[3:]], found)
    assert caught.value.message == (
        "toy.one has parameters of 8, 4, 4, 128, 2, 8, 1 bytes and is given arguments of 8, 4, 8, 128, 2, 8, "
        "1 bytes: check its args, and the dtypes of its scalars."
    )


CUDA_SUITE = """\
import struct
import numpy as np
from harness import Axis, HostFunction, Input, Kernel, Output, Problem, Scalar, Suite


class Affine(Problem):
    n = Axis((1000,))
    x = Input("n")
    y = Output("n")
    a = Scalar(2.5, dtype=DTYPE)

    def reference(self, case, x):
        return case.a * x + 4

    def tolerance(self, case, x):
        return 1e-5


def setup(case, arrays):
    return {"plan": struct.pack("QQ", arrays["x"].address, arrays["y"].address) + struct.pack("f", 4.0)
        + bytes(108)}


suite = Suite("affine", Affine(), headline="GB/s", kernels=[
    Kernel("planned", "planned.cu", block=100, grid=10, args=("n", "plan", "a"), setup=setup,
        requires="sm_70")])
"""
PLANNED = """\
struct alignas(64) plan_t { const float *x; float *y; float b; char rest[104]; };
extern "C" __global__ void planned(int n, const __grid_constant__ plan_t plan, double a) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) plan.y[i] = (float)a * plan.x[i] + plan.b;
}
"""


@pytest.mark.gpu
def test_a_structure_goes_by_value_to_a_card(tmp_path):
    suite = CUDA_SUITE.replace("DTYPE", '"float64"')
    worker = worker_of(tmp_path, GPU, suite, {"planned.cu": PLANNED})
    row = measured(worker, "planned", n=1000)
    worker.device.close()
    assert (row.status, row.message) == ("measured", "")


@pytest.mark.gpu
def test_a_scalar_of_another_width_than_the_parameter_is_refused(tmp_path):
    suite = CUDA_SUITE.replace("DTYPE", '"float32"')
    worker = worker_of(tmp_path, GPU, suite, {"planned.cu": PLANNED})
    with pytest.raises(
        LaunchError, match="has parameters of 4, 128, 8 bytes and is given arguments of 4, 128, 4"
    ):
        measured(worker, "planned", n=1000)
    worker.device.close()
