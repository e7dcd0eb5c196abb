"""Layouts of arrays in memory: rows or columns, gaps between lines, types of a byte and less."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from harness import Axis, Case, Input, Output, Problem
from harness.device.backends import open_device
from harness.errors import SuiteError
from harness.measure import verify
from harness.measure.buffers import Buffers
from harness.suite.layout import Layout, exact_limits, integer_limits, numpy_dtype
from harness.suite.loader import load
from tests.support import write_files
from tests.test_operands import DEVICES, QUICK, measured, worker_of


@pytest.mark.parametrize(
    "dtype", ["complex64", "complex128", "object", "S4", "float32,int32", "datetime64[s]"]
)
def test_what_is_not_of_real_numbers_is_refused(dtype):
    # The reference is float64: of a complex array only the real part would be compared.
    with pytest.raises(SuiteError, match="is not of real numbers"):
        numpy_dtype(dtype)


SHAPES: list[tuple[tuple[int, ...], int | None]] = [
    *[((6,), None), ((4, 6), None), ((4, 6), 6), ((4, 6), 10), ((2, 4, 6), 8), ((), None)],
]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("shape", "ld"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float8_e5m2", "int4", "uint4"])
def test_bytes_and_array_tell_each_other(shape, ld, order, dtype):
    if dtype.endswith("int4") and not shape:
        pytest.skip("half a byte")
    layout = Layout(shape, dtype, order, ld)
    values = np.random.default_rng(1).integers(0, 8, shape).astype(numpy_dtype(dtype))
    raw = layout.pack(values, 0xAB)
    assert raw.size == layout.size_bytes
    assert layout.unpack(raw).shape == shape
    assert (layout.unpack(raw).astype(float) == values.astype(float)).all()
    assert layout.written_between(raw, 0xAB) == 0
    # Every element at its place, and what is at no element's is padding.
    held = np.full(layout.size_bytes * 8 // (4 if dtype.endswith("int4") else 8 * values.itemsize), -1.0)
    for index in np.ndindex(*shape):
        held[sum(at * step for at, step in zip(index, layout.strides, strict=True))] = float(values[index])
    found = raw.reshape(-1)
    if dtype.endswith("int4"):
        elements = np.stack((found & 15, found >> 4), axis=-1).reshape(-1).astype(float)
    else:
        elements = found.view(numpy_dtype(dtype)).astype(float)
    assert (elements[held >= 0] == held[held >= 0]).all()
    assert (held < 0).sum() == held.size - values.size


def test_every_int4_is_itself():
    layout = Layout((16,), "int4")
    values = np.arange(-8, 8).astype(numpy_dtype("int4"))
    assert (layout.unpack(layout.pack(values, 0)).astype(int) == np.arange(-8, 8)).all()
    assert layout.size_bytes == 8


@pytest.mark.parametrize(
    ("dtype", "limits", "exact"),
    [
        ("int4", (-8, 7), (-8, 7)),
        ("uint8", (0, 255), (0, 255)),
        ("float8_e4m3fn", None, (-16, 16)),
        ("float8_e5m2", None, (-8, 8)),
        ("bfloat16", None, (-256, 256)),
        ("float32", None, (-(2**24), 2**24)),
    ],
)
def test_the_integers_of_a_type(dtype, limits, exact):
    assert (integer_limits(dtype), exact_limits(dtype)) == (limits, exact)

    class One(Problem):
        n = Axis((4,))
        x = Input("n", dtype=dtype)

    case = Case("toy", "one", {"n": 4000})
    values = verify.integer_data(One(), case, 20, np.random.default_rng(1))["x"].astype(float)
    assert (values.min(), values.max()) == (max(-20, exact[0]), min(20, exact[1]))
    assert (values == np.rint(values)).all()


def test_data_of_small_integers_are_all_of_them():
    class One(Problem):
        n = Axis((4,))
        x = Input("n", dtype="int8")
        y = Input("n", dtype="uint4")
        z = Input("n", dtype="float8_e4m3fn")

    data = One().data(Case("toy", "one", {"n": 20_000}), np.random.default_rng(1))
    assert (data["x"].min(), data["x"].max()) == (-128, 127)
    assert sorted(set(data["y"].astype(int).tolist())) == list(range(16))
    assert abs(data["z"].astype(float).std() - 1) < 0.05


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (
            lambda: Input("m", "n", ld=3),
            "Array 'a' has ld=3 at 4x6; expected an integer of at least 6, the elements of a row.",
        ),
        (
            lambda: Input("m", "n", order="F", ld=lambda c: c.m - 1),
            "Array 'a' has ld=3 at 4x6; expected an integer of at least 4, the elements of a column.",
        ),
        (
            lambda: Input("m", "n", ld=lambda c: c.m / 2),  # type: ignore[arg-type,return-value]
            "Array 'a' has ld=2.0 at 4x6; expected an integer of at least 6, the elements of a row.",
        ),
        (
            lambda: Input("m", "n", dtype="int4", ld=9),
            (
                "Array 'a' is of int4, two to a byte, with 6 side by side and ld=9 at 4x6; "
                "expected even numbers."
            ),
        ),
        (lambda: Input("n", ld=8), "Input has ld=8 and 1 axes; expected two or more."),
        (lambda: Input("m", "n", order=cast("Any", "K")), "Input has order='K'; expected 'C' or 'F'."),
    ],
)
def test_a_layout_that_makes_no_sense(array, sentence):
    def lay_out():
        members: dict[str, Any] = {"m": Axis((4,)), "n": Axis((6,)), "a": array()}
        made = type("One", (Problem,), members)()
        made.layout("a", Case("toy", "one", {"m": 4, "n": 6}))

    with pytest.raises(SuiteError) as caught:
        lay_out()
    assert caught.value.message == sentence


class Padded(Problem):
    m = Axis((3,))
    n = Axis((5,))
    a = Input("m", "n", ld=8)
    c = Output("m", "n", order="F", ld=lambda case: case.m + 1)


def test_padding_is_a_guard_and_no_traffic():
    case = Case("toy", "one", {"m": 3, "n": 5})
    assert Padded().moved_bytes(case) == 2 * 3 * 5 * 4
    device = open_device("null")
    data = {"a": np.arange(15, dtype="float32").reshape(3, 5)}
    with Buffers(device, Padded(), case) as buffers:
        assert buffers.sizes == {"a": 3 * 8 * 4, "c": 5 * 4 * 4}
        assert not buffers.restores
        buffers.write(data)
        buffers.poison()
        assert (buffers.read("a") == data["a"]).all()
        assert buffers.read("c").shape == (3, 5)
        assert np.isnan(buffers.read("c")).all()
        inside = buffers.views["a"].view("float32").reshape(3, 8)
        assert np.isnan(inside[:, 5:]).all()
        assert buffers.damage(data) == ""
        device.fill(buffers.whole["c"], buffers.guard_bytes + 3 * 4, 4, 0)
        assert buffers.damage(data) == "The kernel wrote outside its arrays: 4 bytes in the padding of c."
        buffers.poison()
        assert buffers.damage(data) == ""
        device.fill(buffers.whole["a"], buffers.guard_bytes + 5 * 4, 1, 0)
        assert buffers.damage(data) == "The kernel wrote outside its arrays: 1 bytes in the padding of a."


SUITE = """\
from harness import Axis, InOut, Input, Kernel, Output, Problem, Scalar, Suite, ceil_div


class Columns(Problem):
    '''c = a + b, where a lies by rows, b by columns.'''

    m = Axis((33,))
    n = Axis((20,))
    a = Input("m", "n", ld=lambda case: case.n + 3)
    b = InOut("m", "n", order="F")
    c = Output("m", "n", order="F", ld=48)
    lda = Scalar(lambda case: case.n + 3, dtype="int64")

    def reference(self, case, a, b):
        return {"c": a + b, "b": 2 * b}

    def tolerance(self, case, a, b):
        return 1e-6

    def integer_bound(self, case):
        return 100


def kernel(name, **wrong):
    return Kernel(name, "add.cu", entry="add", block=(8, 8), args=("a", "b", "c", "lda", "m", "n"),
        grid=lambda c: (ceil_div(c.m, 8), ceil_div(c.n, 8)), macros={"LDA": "lda", "BOUND": "m", **wrong})


suite = Suite("columns", Columns(), headline="GB/s",
    prelude={"cuda": "../portable/cuda.h", "opencl": "../portable/opencl.h"},
    kernels=[kernel("right"), kernel("no_lda", LDA="n"), kernel("past_the_column", BOUND="m_and_more")])
"""
ADD = """\
#ifdef __OPENCL_VERSION__
typedef long wide;
#else
typedef long long wide;
#endif
KERNEL LAUNCH_BOUNDS(8, 8, 1) add(
    const GLOBAL float* RESTRICT a, GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    wide lda, int m, int n)
{
    const int i = BLOCK_X * 8 + THREAD_X, j = BLOCK_Y * 8 + THREAD_Y, m_and_more = m + 1;
    if (i >= BOUND || j >= n)
        return;
    if (i >= m) {
        c[i + j * 48] = 1.0f;
        return;
    }
    c[i + j * 48] = a[i * LDA + j] + b[i + j * m];
    b[i + j * m] *= 2.0f;
}
"""


@pytest.fixture(scope="module", params=DEVICES)
def columns(request, tmp_path_factory):
    made = worker_of(tmp_path_factory.mktemp("columns"), request.param, SUITE, {"add.cu": ADD})
    yield made
    made.device.close()


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("right", ""),
        ("no_lda", "elements of c are wrong"),
        ("past_the_column", "The kernel wrote outside its arrays: 80 bytes in the padding of c."),
    ],
)
def test_a_kernel_on_rows_and_columns(columns, kernel, told):
    row = measured(columns, kernel, None if told else QUICK, m=33, n=20)
    assert row.status == ("failed" if told else "measured"), row.message
    assert told in row.message
    assert row.moved_bytes == 4 * 4 * 33 * 20


def test_a_suite_tells_of_layouts_by_way_of_its_process(tmp_path):
    loaded = load(write_files(tmp_path / "kernels" / "columns", {"suite.py": SUITE, "add.cu": ADD})).suite
    case = loaded.case(loaded.by_name["right"], {"m": 33, "n": 20})
    layouts = [loaded.problem.layout(name, case) for name in "abc"]
    assert [(layout.order, layout.ld) for layout in layouts] == [("C", 23), ("F", None), ("F", 48)]


NARROW = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, ceil_div



class Narrow(Problem):
    '''Numbers of a byte and less as float32, and the same again.'''

    n = Axis((1000,))
    e5m2 = Input("n", dtype="float8_e5m2")
    four = Input("n", dtype="int4")
    byte = Input("n", dtype="int8")
    brain = Input("n", dtype="bfloat16")
    wide = Output("n")
    e5m2_out = Output("n", dtype="float8_e5m2")
    four_out = Output("n", dtype="int4")
    byte_out = Output("n", dtype="int8")
    brain_out = Output("n", dtype="bfloat16")

    def reference(self, case, e5m2, four, byte, brain):
        return {"wide": e5m2 + 16 * four + 256 * byte + brain, "e5m2_out": e5m2, "four_out": four,
                "byte_out": byte, "brain_out": brain}

    def tolerance(self, case, **inputs):
        return 2.0**-8

    def integer_bound(self, case):
        return 50


def kernel(name, **wrong):
    return Kernel(name, "narrow.cu", entry="narrow", block=64, grid=lambda c: ceil_div(c.n, 128),
        macros={"BIAS": 15, "LOW": "v", "FLIP": 0, **wrong})


suite = Suite("narrow", Narrow(), headline="GB/s",
    prelude={"cuda": "../portable/cuda.h", "opencl": "../portable/opencl.h"},
    kernels=[kernel("right"), kernel("bias", BIAS=14), kernel("halves", LOW="w"), kernel("flip", FLIP=1)])
"""
NARROW_CU = """\
typedef unsigned char byte_t;
typedef unsigned short half_t;
#ifdef __OPENCL_VERSION__
#define WORD as_float
#define INLINE static
#else
#define WORD __uint_as_float
#define INLINE static __device__
#endif
INLINE float of_e5m2(int b)
{
    const int e = (b >> 2) & 31;
    const float m = (float)(b & 3) / 4;
    const float v = e ? ldexp(1.0f + m, e - BIAS) : ldexp(m, -14);
    return b & 128 ? -v : v;
}
KERNEL LAUNCH_BOUNDS(64, 1, 1) narrow(
    const GLOBAL byte_t* RESTRICT e5m2, const GLOBAL byte_t* RESTRICT four,
    const GLOBAL byte_t* RESTRICT bytes, const GLOBAL half_t* RESTRICT brain, GLOBAL float* RESTRICT wide,
    GLOBAL byte_t* RESTRICT e5m2_out, GLOBAL byte_t* RESTRICT four_out, GLOBAL byte_t* RESTRICT byte_out,
    GLOBAL half_t* RESTRICT brain_out, int n)
{
    const int pair = BLOCK_X * 64 + THREAD_X;
    if (2 * pair >= n)
        return;
    four_out[pair] = four[pair] ^ FLIP;
    for (int side = 0; side < 2; ++side) {
        const int i = 2 * pair + side, v = side ? four[pair] >> 4 : four[pair] & 15, w = four[pair] & 15;
        wide[i] = of_e5m2(e5m2[i]) + 16.0f * (float)((LOW ^ 8) - 8) + 256.0f * (float)((bytes[i] ^ 128) - 128)
            + WORD((unsigned)brain[i] << 16);
        e5m2_out[i] = e5m2[i];
        byte_out[i] = bytes[i];
        brain_out[i] = brain[i];
    }
}
"""


@pytest.fixture(scope="module", params=DEVICES)
def narrow(request, tmp_path_factory):
    made = worker_of(tmp_path_factory.mktemp("narrow"), request.param, NARROW, {"narrow.cu": NARROW_CU})
    yield made
    made.device.close()


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("right", ""),
        ("bias", "elements of wide are wrong on integers"),
        ("halves", "elements of wide are wrong on integers"),
        ("flip", "500 of 1000 elements of four_out are wrong on integers"),
    ],
)
def test_a_kernel_on_types_of_a_byte_and_less(narrow, kernel, told):
    row = measured(narrow, kernel, None if told else QUICK, n=1000)
    assert row.status == ("failed" if told else "measured"), row.message
    assert told in row.message
    assert row.moved_bytes == 2 * (1000 + 500 + 1000 + 2000) + 4000


def test_the_null_device_and_the_host_know_layouts_too(tmp_path):
    files = {"add.cu": ADD}
    worker = worker_of(tmp_path, "null", SUITE, files)
    assert measured(worker, "right", QUICK, m=33, n=20).status == "measured"
    own = "Kernel('host', {'cpu': HostFunction(host)}, args=('a', 'b', 'c'))"
    host = SUITE.replace('kernel("right")', own).replace("suite = Suite", HOST + "suite = Suite")
    host = host.replace("import Axis,", "import Axis, HostFunction,")
    worker = worker_of(tmp_path / "of the host", "cpu:0", host, files)
    row = measured(worker, "host", QUICK, m=33, n=20)
    assert (row.status, row.message) == ("measured", "")


HOST = """\
def host(case, stream):
    def call(a, b, c):
        c[:] = a + b
        b *= 2
    return call


"""


class Numbers(Problem):
    m = Axis((4,))
    x = Input("m", "m")


@pytest.mark.parametrize("m", [1, 1024, 1025, 2000])
def test_inputs_of_any_size_are_normal_and_of_their_seed(m):
    """Beyond 2**20 numbers they are made in parts."""
    one, same, other = (
        Numbers().seeded(Case("toy", "one", {"m": m}), seed)["x"].reshape(-1) for seed in (1, 1, 2)
    )
    assert (one == same).all()
    assert (one != other).mean() > 0.99
    assert (one.size, one.dtype.name) == (m * m, "float32")
    if m > 1:
        assert abs(one.mean()) < 5 / m
        assert abs(one.std() - 1) < 5 / m
        starts = range(0, one.size, 2**16)
        assert len({one[start : start + 4].tobytes() for start in starts}) == len(starts)
    if m * m <= 2**20:
        assert (one == np.random.default_rng(1).standard_normal(m * m, dtype="float32")).all()
