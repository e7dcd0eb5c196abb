"""What kernels are called with beside inputs and outputs: arrays that they read and write, zeros to add to,
numbers by value. Right and wrong kernels of one text on the host's OpenCL device and on a card.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from harness import Axis, Case, InOut, Input, Output, Problem, Scalar
from harness.device.backends import open_device
from harness.device.backends.null import NullDevice
from harness.errors import BuildError, DeviceError, MeasureError, SuiteError
from harness.measure import protocol
from harness.measure.buffers import Buffers, needed_bytes
from harness.measure.paired_kernels import WrongByBaseError
from harness.measure.quads import PairSettings
from harness.measure.timing import Data, MeasureSettings
from harness.suite.loader import load
from tests.pairs import Pair, opened_worker
from tests.support import GPU, KERNELS, device_is_missing, write_files

SUITE = """\
from harness import Axis, InOut, Input, Kernel, Output, Problem, Scalar, Suite, ceil_div


class Update(Problem):
    '''y = alpha x + beta y, and sums of 32 elements of the old y.'''

    n = Axis(default=(2**16,), quick=(1000,))
    s = Axis(default=(2**11,), quick=(32,))
    x = Input("n")
    y = InOut("n")
    sums = Output("s", init=0, dtype="int32")
    alpha = Scalar(1.5)
    beta = Scalar(lambda case: 0.1 if case.n > 1 else 0.3)
    stride = Scalar(lambda case: 2**40 + case.WIDTH, dtype="uint64")

    def data(self, case, rng):
        return {"x": rng.standard_normal(case.n, dtype="float32"),
                "y": rng.integers(-9, 10, case.n).astype("float32")}

    def reference(self, case, x, y):
        assert case.stride == 2**40 + case.WIDTH
        sums = [y[place::case.s].sum() for place in range(case.s)]
        return {"y": case.alpha * x + case.beta * y, "sums": sums}

    def tolerance(self, case, x, y):
        return 2.0**-22 * (abs(x).max() + abs(y).max())


def kernel(name, **wrong):
    return Kernel(name, "update.cu", entry="update", block=64, grid=lambda c: ceil_div(c.n, 64), macros={
        "WIDTH": 64, "BETA": "beta", "EARLY": 0, "SUM": 1, "GUARD": 0, **wrong})


suite = Suite("update", Update(), headline="GB/s",
    prelude={"cuda": "../portable/cuda.h", "opencl": "../portable/opencl.h"},
    kernels=[
        kernel("right"),
        kernel("reads_nothing", BETA="alpha"),
        kernel("returns_early", EARLY=1),
        kernel("adds_nothing", SUM=0),
    ])
"""
UPDATE = """\
#ifdef __OPENCL_VERSION__
#define ADD(at, value) atomic_add(at, value)
typedef ulong wide;
#else
#define ADD(at, value) atomicAdd(at, value)
typedef unsigned long long wide;
#endif
KERNEL LAUNCH_BOUNDS(64, 1, 1) update(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, GLOBAL int* RESTRICT sums,
    float alpha, float beta, wide stride, int n, int s)
{
    const int i = BLOCK_X * 64 + THREAD_X;
    if (i >= n || stride != ((wide)1 << 40) + WIDTH)
        return;
    const float old = y[i];
    if (EARLY && old != (float)(int)old)
        return;  // what it has written before is no integer
    if (SUM)
        ADD(&sums[i % s], (int)old);
    y[i] = alpha * x[i] + BETA * old;
}
"""
QUICK = MeasureSettings(max_time_s=0.1, min_time_s=0.01, warmup_min_s=0.001, warmup_max_s=0.01)
DEVICES = [pytest.param("opencl:0", id="opencl"), pytest.param(GPU, id="cuda", marks=pytest.mark.gpu)]


def worker_of(folder, device, suite, files):
    root = write_files(folder / "kernels" / "under_test", {"suite.py": suite, **files})
    (root.parent / "portable").symlink_to(KERNELS / "portable")
    (folder / "scratch").mkdir()
    request = protocol.Open(device=device, suite=str(root), scratch=str(folder / "scratch"))
    try:
        return opened_worker(request)
    except DeviceError as error:
        device_is_missing(device, error.message)


@pytest.fixture(scope="module", params=DEVICES)
def update(request, tmp_path_factory):
    made = worker_of(tmp_path_factory.mktemp("update"), request.param, SUITE, {"update.cu": UPDATE})
    yield made
    made.device.close()


def measured(worker, kernel, settings=QUICK, **sizes):
    return worker.run(protocol.Measure(kernel=kernel, sizes=sizes, seed=1, settings=settings))


@pytest.mark.parametrize(
    ("kernel", "wrong"),
    [
        ("right", ""),
        ("reads_nothing", "elements of y are wrong"),
        ("adds_nothing", "elements of sums are wrong on random; the first, sums[0], is 0 where"),
    ],
)
def test_a_kernel_on_what_lay_there_before(update, kernel, wrong):
    row = measured(update, kernel, None, n=1000, s=1000)
    assert row.status == ("failed" if wrong else "verified")
    assert wrong in row.message


@pytest.mark.parametrize("l2", ["hot", "cold"])
def test_it_is_put_back_before_each_launch_that_is_timed(update, l2):
    settings = MeasureSettings(
        max_time_s=0.1, min_time_s=0.01, warmup_min_s=0.001, warmup_max_s=0.01, l2=l2, min_slot_ns=2e7
    )
    row = measured(update, "right", settings, n=1000, s=7)
    # Otherwise Rotation finds what the last launch of a slot has left.
    assert (row.status, row.message) == ("measured", "")
    assert row.measurement.restored
    assert row.measurement.launches_per_slot > 1
    assert row.moved_bytes == 3 * 4 * 1000 + 4 * 7


def test_who_returns_where_the_result_is_there_does_all_of_the_work(update):
    """It is as slow as the one that never does, since nothing is ever there."""
    row = measured(update, "returns_early", n=2**16, s=32)
    assert (row.status, row.message) == ("measured", "")


CHEATS = """\
import numpy as np
from harness import Axis, HostFunction, InOut, Input, Kernel, Output, Problem, Scalar, Suite


class Axpy(Problem):
    n = Axis(default=(2**16,))
    x = Input("n")
    y = InOut("n")
    alpha = Scalar(0.1)

    def reference(self, case, x, y):
        for _ in range(3):
            y = np.cos(case.alpha * x + y)
        return y

    def tolerance(self, case, x, y):
        return 1e-5


def honest(x, y, alpha, n):
    for _ in range(40):
        w = np.array(y)
        for _ in range(3):
            w = np.cos(alpha * x + w)
    y[:] = w


def right(case, stream):
    return honest


def content_cache(case, stream):
    kept = {}

    def call(x, y, alpha, n):
        key = x[:8].tobytes() + y[:8].tobytes()
        if key not in kept:
            honest(x, y, alpha, n)
            kept[key] = np.array(y)
        y[:] = kept[key]

    return call


def remembers_input(case, stream):
    first = {}

    def call(x, y, alpha, n):
        first.setdefault(0, np.array(y))
        y[:] = first[0]
        honest(x, y, alpha, n)

    return call


def nothing_later(case, stream):
    count = [0]

    def call(x, y, alpha, n):
        count[0] += 1
        if count[0] < 9:
            honest(x, y, alpha, n)

    return call


suite = Suite("axpy", Axpy(), headline="GB/s", kernels=[
    Kernel(made.__name__, {"cpu": HostFunction(made)})
    for made in (right, content_cache, remembers_input, nothing_later)
])
"""


@pytest.fixture(scope="module")
def cheats(tmp_path_factory):
    return worker_of(tmp_path_factory.mktemp("cheats"), "cpu:0", CHEATS, {})


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("right", ""),
        ("content_cache", "skips-work"),
        ("remembers_input", "wrong-when-timed"),
        ("nothing_later", "wrong-when-timed"),
    ],
)
def test_what_cheats_is_found_where_arrays_are_put_back(cheats, kernel, reason):
    try:
        found = measured(cheats, kernel, n=2**16).reason
    except MeasureError as error:  # of which the session makes a row
        found = error.reason
    assert found == reason


class Both(Problem):
    n = Axis((4,))
    x = Input("n")
    y = InOut("n")
    z = Output("n", init=-2.5)
    w = Output("n")
    half = Scalar(0.1, dtype="float16")
    count = Scalar(lambda case: case.n - 1, dtype="int64")


CASE = Case("toy", "one", {"n": 4}, scalars={"half": 0.0999755859375, "count": 3})
DATA = {"x": np.arange(4, dtype="float32"), "y": np.arange(4, 8, dtype="float32")}


def test_what_outputs_hold_before_a_launch():
    device: Any = open_device("null")
    with Buffers(device, Both(), CASE) as buffers:
        guard_bytes = NullDevice.guard_bytes
        needed = needed_bytes(Both(), CASE, guard_bytes)
        assert device.allocated_bytes == needed == 4 * (16 + 2 * guard_bytes) + 2 * 16
        buffers.write(DATA)
        device.fill(buffers.views["w"], 0, 16, 7)
        buffers.begin()
        assert (buffers.read("z") == -2.5).all()
        assert (buffers.read("w").view(np.uint8) == 7).all()  # a sanitizer sees who reads what nobody wrote
        other = buffers.keep({**DATA, "y": DATA["x"]}) or {}
        for data, restore in ((DATA["y"], lambda: None), (DATA["x"], lambda: buffers.restore(other))):
            restore()
            for name in ("y", "z", "w"):
                device.fill(buffers.views[name], 0, 16, 7)
            buffers.poison()
            assert (buffers.read("y") == data).all()
            assert (buffers.read("z") == -2.5).all()
            assert np.isnan(buffers.read("w")).all()
        device.fill(buffers.views["y"], 0, 16, 7)
        assert buffers.damage({**DATA, "y": DATA["x"]}) == ""
    assert device.allocated_bytes == 0


def test_arguments_are_inputs_then_what_is_written_then_scalars_then_axes():
    from harness import Kernel

    with Buffers(open_device("null"), Both(), CASE) as buffers:
        *views, half, count, n = buffers.arguments(Kernel("one", "one.cu", block=1, grid=1))
        assert views == [buffers.views[name] for name in "xyzw"]
    assert [(type(each), each) for each in (half, count, n)] == [
        (np.float16, np.float16(0.1)),
        (np.int64, 3),
        (np.int32, 4),
    ]


@pytest.mark.parametrize(
    ("value", "dtype", "sentence"),
    [
        (1.5, "int32", "Scalar 'alpha' is 1.5; expected a finite number that int32 can hold."),
        (2**31, "int32", "Scalar 'alpha' is 2147483648; expected a finite number that int32 can hold."),
        (float("inf"), "float32", "Scalar 'alpha' is inf; expected a finite number that float32 can hold."),
        (1e6, "float16", "Scalar 'alpha' is 1000000.0; expected a finite number that float16 can hold."),
        ("3", "float32", "Scalar 'alpha' is '3'; expected a number for float32."),
        (True, "int32", "Scalar 'alpha' is True; expected a number for int32."),
        *(
            (10**400, dtype, f"Scalar 'alpha' is {10**400}; expected a finite number that {dtype} can hold.")
            for dtype in ("int64", "float64")
        ),
    ],
)
def test_a_scalar_is_a_number_that_its_type_can_hold(value, dtype, sentence):
    with pytest.raises(SuiteError) as caught:
        type("One", (Problem,), {"alpha": Scalar(value, dtype)})
    assert caught.value.message == sentence


def test_a_scalar_has_a_type_of_a_parameter():
    with pytest.raises(SuiteError, match="Scalar has dtype 'tf32'; expected one of int8, int16"):
        Scalar(1, dtype="tf32")


def test_an_initial_value_is_one_that_the_array_can_hold():
    class Counted(Problem):
        n = Axis((4,))
        y = Output("n", dtype="int32", init=0.5)

    with pytest.raises(SuiteError, match=r"Output 'y' has init=0\.5, which int32 cannot hold"):
        Buffers(open_device("null"), Counted(), Case("toy", "one", {"n": 4}))


def test_a_suite_tells_of_them_by_way_of_its_process(tmp_path):
    root = write_files(tmp_path / "kernels" / "under_test", {"suite.py": SUITE, "update.cu": UPDATE})
    loaded = load(root).suite
    case = loaded.case(loaded.by_name["right"], {"n": 1000, "s": 32})
    assert case.scalars == {"alpha": 1.5, "beta": float(np.float32(0.1)), "stride": 2**40 + 64}
    assert (case.alpha, case.WIDTH) == (1.5, 64)
    assert [array.kind for array in loaded.problem.arrays.values()] == ["input", "inout", "output"]
    assert loaded.problem.arrays["sums"].init == 0
    assert loaded.problem.moved_bytes(case) == 3 * 4000 + 128


class Logged(Data):
    restores = True

    def __init__(self, log):
        self.log = log

    def poison(self):
        self.log.append("P")


@pytest.mark.parametrize(
    ("policy", "slots"),
    [
        pytest.param("cold", "P F T1 P F T1 P F T1 P F T1", id="cold"),
        pytest.param("hot", "P T1 P T1 P T1 P T1", id="hot"),
    ],
)
def test_every_launch_has_an_interval_of_its_own_behind_a_copy(monkeypatch, policy, slots):
    from harness.device.backends.null import NullBuilt
    from harness.measure.timing import Subject, measure
    from harness.suite.sources import Program
    from tests.recording import Clock
    from tests.test_measure import LAUNCH, MS, Recording

    clock = Clock()
    monkeypatch.setattr("harness.measure.timing.time", clock)
    device = Recording(clock)
    device.warms_up = True
    built = NullBuilt(Program("toy.one", "one", ""), "", itertools.repeat(1 * MS))
    settings = MeasureSettings(l2=policy, min_slot_ns=2 * MS, max_slots=2, min_time_s=9)
    found = measure(device, Subject(built, LAUNCH, ["x", "y"]), settings, Logged(device.log))
    assert found.restored
    assert found.times_ns == (1 * MS, 1 * MS)
    assert device.log[-1 - len(slots.split()) : -1] == slots.split()
    # Warming up too.
    assert device.log[:6] == ["P", "T1", "S", *["P", "T1"], "P"]


def compared(tmp_path, head_text=UPDATE, **replaced):
    """The first kernel at two commits, of which head's suite passes alpha = 2.5."""
    (tmp_path / "kernels").mkdir(parents=True)
    (tmp_path / "kernels" / "portable").symlink_to(KERNELS / "portable")
    base = write_files(tmp_path / "kernels" / "base", {"suite.py": SUITE, "update.cu": UPDATE})
    changed = SUITE.replace("alpha = Scalar(1.5)", "alpha = Scalar(2.5)")
    head = write_files(tmp_path / "kernels" / "head", {"suite.py": changed, "update.cu": head_text})
    try:
        worker = Pair(base, head, tmp_path / "scratch", "opencl:0").worker()
    except DeviceError as error:
        device_is_missing("opencl:0", error.message)
    sides = {name: protocol.PairSide(suite=name, kernel="right") for name in ("base", "head")}
    pair = protocol.PairOf(id="one", sizes={"n": 1000, "s": 10}, base=sides["base"], head=sides["head"])
    settings = PairSettings(warmup_min_s=0.001, warmup_max_s=0.01, max_quads=6, lead_in_s=0.001)
    asked = protocol.Compare(pair=pair, seed=1, order_seed=2, settings=settings, by_base=True, **replaced)
    try:
        changes = worker.pairs.differences(protocol.Differences(case=None, seed=1))
        return changes, worker.pairs.compare(asked)
    finally:
        worker.device.close()


def test_kernels_of_two_commits_get_what_head_passes(tmp_path):
    changes, found = compared(tmp_path)
    assert changes == {"scalar alpha": ("float32 1.5", "float32 2.5")}
    assert found.block.restored
    told = {
        name: [each for each in side.passed if each.startswith("float32 ")]
        for name, side in found.sides.items()
    }
    assert {name: each[0] for name, each in told.items()} == {"base": "float32 1.5", "head": "float32 2.5"}


def test_a_kernel_is_held_to_what_base_passes_too(tmp_path):
    with pytest.raises(WrongByBaseError, match="By base's reference and tolerance on base's data"):
        compared(tmp_path, UPDATE.replace("alpha * x", "2.5f * x"))


SHADER = """\
layout(local_size_x = WIDTH) in;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Y { float y[]; };
layout(std430, binding = 2) buffer Z { float z[]; };
uniform int n;
uniform float alpha;
uniform uint count;
uniform double d;
void main()
{
    const int i = int(gl_GlobalInvocationID.x);
    if (i >= n)
        return;
    y[i] = alpha * x[i] + y[i];
    z[i] += float(count) * x[i] + float(d);
}
"""
SHADER_SUITE = """\
from harness import Axis, InOut, Input, Kernel, Output, Problem, Scalar, Suite, ceil_div


class Shaded(Problem):
    n = Axis((1000,))
    x = Input("n")
    y = InOut("n")
    z = Output("n", init=1)
    alpha = Scalar(1.5)
    count = Scalar(3, dtype="TYPE")
    d = Scalar(0.1, dtype="float64")

    def reference(self, case, x, y):
        return {"y": case.alpha * x + y, "z": 1 + case.count * x + case.d}

    def tolerance(self, case, x, y):
        return 1e-5


suite = Suite("shaded", Shaded(), headline="GB/s", kernels=[
    Kernel("one", "one.glsl", block=64, grid=lambda c: ceil_div(c.n, 64), macros={"WIDTH": 64})])
"""


@pytest.mark.parametrize(("dtype", "refused"), [("uint32", ""), ("uint64", "which no uniform of GLSL is")])
def test_a_shader_reads_what_it_writes_and_has_scalars_for_uniforms(tmp_path, dtype, refused):
    suite = SHADER_SUITE.replace("TYPE", dtype)
    worker = worker_of(tmp_path, "opengl:0", suite, {"one.glsl": SHADER})
    try:
        if refused:
            with pytest.raises(BuildError, match=refused):
                measured(worker, "one", n=1000)
        else:
            row = measured(worker, "one", n=1000)
            assert (row.status, row.message) == ("measured", "")
    finally:
        worker.device.close()
