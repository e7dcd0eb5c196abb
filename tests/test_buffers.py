"""Arrays between guard zones, on the null device, whose memory can be looked at."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness import Axis, Case, Input, Kernel, Output, Problem
from harness.device.backends import open_device
from harness.device.backends.null import NullDevice
from harness.errors import ExitCode, OutOfMemoryError, SuiteError
from harness.measure.buffers import Buffers, needed_bytes, same_bits
from harness.measure.memory_digest import MemoryDigests
from harness.records.types import Launch
from harness.suite.sources import Program


class Scale(Problem):
    m = Axis((4,))
    n = Axis((8,))
    a = Input("m", "n")
    b = Input("n", dtype="float64")
    c = Output("m", "n")
    count = Output("m", dtype="int32")


GUARD_BYTES = NullDevice.guard_bytes
SIZES = {"m": 3, "n": 5}
BYTES = {"a": 3 * 5 * 4, "b": 5 * 8, "c": 3 * 5 * 4, "count": 3 * 4}


def case(**sizes):
    return Case("toy", "one", sizes or SIZES)


def kernel(**changes):
    return Kernel("one", "one.cu", block=32, grid=1, **changes)


@pytest.fixture
def device():
    return open_device("null")


@pytest.fixture
def buffers(device):
    with Buffers(device, Scale(), case()) as made:
        yield made


def test_what_a_case_needs():
    assert needed_bytes(Scale(), case(), GUARD_BYTES) == sum(BYTES.values()) + 4 * 2 * GUARD_BYTES
    most = 2**31 - 1
    assert needed_bytes(Scale(), case(m=most, n=most), GUARD_BYTES) > 8 * most**2


def test_memory_is_given_back(device):
    with Buffers(device, Scale(), case()):
        assert device.allocated_bytes == needed_bytes(Scale(), case(), GUARD_BYTES)
    assert device.allocated_bytes == 0


def test_memory_is_given_back_after_an_error(device):
    with pytest.raises(ZeroDivisionError), Buffers(device, Scale(), case()):
        _ = 1 / 0
    assert device.allocated_bytes == 0


def inputs(number):
    return {"a": np.full((3, 5), number, "float32"), "b": np.full(5, number, "float64")}


def test_data_that_were_put_aside_come_back(buffers):
    first, second = buffers.keep(inputs(1)), buffers.keep(inputs(2))
    for kept, number in ((first, 1), (second, 2), (first, 1)):
        buffers.restore(kept)
        assert buffers.damage(inputs(number)) == ""
    assert buffers.keep(inputs(3), first) is first
    buffers.restore(first)
    assert buffers.damage(inputs(3)) == ""
    buffers.write(inputs(4))
    written = buffers.keep_written()
    for kept, number in ((second, 2), (written, 4)):
        buffers.restore(kept)
        assert buffers.damage(inputs(number)) == ""


def test_memory_of_what_was_put_aside_is_given_back(device):
    with Buffers(device, Scale(), case()) as buffers:
        buffers.keep(inputs(1))
        assert device.allocated_bytes > needed_bytes(Scale(), case(), GUARD_BYTES)
    assert device.allocated_bytes == 0


def test_nothing_is_put_aside_where_memory_is_short(device, buffers, monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda: 2 * (BYTES["a"] + BYTES["b"]) - 1)
    assert buffers.keep(inputs(1)) is None


def test_data_of_another_shape_are_not_put_aside(buffers):
    with pytest.raises(SuiteError, match="gave float32 of shape"):
        buffers.keep({**inputs(1), "b": np.zeros(4, "float32")})


def test_a_digest_is_of_every_output(buffers):
    buffers.poison()
    digests = MemoryDigests(buffers.device, "key")
    seen = {digests.of(buffers.outputs())}
    for memory, offset_bytes, size_bytes in buffers.outputs():
        buffers.device.fill(memory, offset_bytes + size_bytes - 1, 1, 0)
        seen.add(digests.of(buffers.outputs()))
    assert len(seen) == 3


@pytest.mark.parametrize("fails_at", [1, 3, 4])
def test_memory_is_given_back_when_an_allocation_fails(device, monkeypatch, fails_at):
    calls = []
    allocate = device.allocate

    def failing(size_bytes):
        calls.append(size_bytes)
        if len(calls) == fails_at:
            raise OutOfMemoryError("full")
        return allocate(size_bytes)

    monkeypatch.setattr(device, "allocate", failing)
    with pytest.raises(OutOfMemoryError, match="full"):
        Buffers(device, Scale(), case())
    assert device.allocated_bytes == 0


def fails(*_):
    raise AssertionError("nothing is to be allocated")


@pytest.mark.parametrize("free", [10 * 2**30, None], ids=["told", "untold"])
def test_what_cannot_fit_is_refused_before_it_is_allocated(device, monkeypatch, free):
    device.info = dataclasses.replace(device.info, name="Card", memory_bytes=10 * 2**30)
    monkeypatch.setattr(device, "free_bytes", lambda: free)
    monkeypatch.setattr(device, "allocate", fails)
    with pytest.raises(OutOfMemoryError) as raised:
        Buffers(device, Scale(), case(m=65536, n=65536))
    assert raised.value.message == (
        "toy.one[m=65536,n=65536] needs 32.0 GiB on the device; Card has 10.0 GiB free: use a smaller size."
    )
    assert (raised.value.reason, raised.value.exit_code) == ("out-of-memory", ExitCode.NOT_MEASURED)


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_the_limit_is_exact(device, monkeypatch, spare, fits):
    monkeypatch.setattr(device, "free_bytes", lambda: needed_bytes(Scale(), case(), GUARD_BYTES) + spare)
    if fits:
        Buffers(device, Scale(), case()).close()
    else:
        with pytest.raises(OutOfMemoryError):
            Buffers(device, Scale(), case())


def test_the_largest_size_of_all_is_refused(device):
    with pytest.raises(OutOfMemoryError, match=r"null has 8\.0 GiB free"):
        Buffers(device, Scale(), case(m=2**31 - 1, n=2**31 - 1))


def data():
    rng = np.random.default_rng(1)
    return {"a": rng.standard_normal((3, 5)).astype("float32"), "b": rng.standard_normal(5)}


def test_what_is_written_is_read(buffers):
    buffers.write(data())
    for name, array in data().items():
        assert np.array_equal(buffers.read(name), array)
        assert buffers.read(name).dtype == array.dtype
    assert buffers.damage({}) == ""


def test_an_array_need_not_be_contiguous(buffers):
    turned = np.asfortranarray(data()["a"])
    for given in (turned, np.repeat(turned, 2, axis=1)[:, ::2]):
        buffers.write({**data(), "a": given})
        assert np.array_equal(buffers.read("a"), turned)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param(
            {**data(), "a": np.zeros((3, 5))},
            "float64 of shape (3, 5) for input 'a'; expected float32 of shape (3, 5)",
            id="another type",
        ),
        pytest.param(
            {**data(), "b": np.zeros(6)},
            "float64 of shape (6,) for input 'b'; expected float64 of shape (5,)",
            id="too long",
        ),
        pytest.param(
            {**data(), "a": np.zeros((5, 3), "float32")},
            "float32 of shape (5, 3) for input 'a'; expected float32 of shape (3, 5)",
            id="another shape",
        ),
        pytest.param(
            {**data(), "b": [1.0] * 5},
            "list of shape (5,) for input 'b'; expected float64 of shape (5,)",
            id="a list",
        ),
        pytest.param({}, "nothing; expected a, b", id="nothing"),
        pytest.param({**data(), "d": np.zeros(5)}, "a, b, d; expected a, b", id="an unknown name"),
    ],
)
def test_data_that_do_not_fit_are_a_sentence(buffers, given, sentence):
    with pytest.raises(SuiteError) as raised:
        buffers.write(given)
    assert raised.value.message == f"data() of toy gave {sentence}."
    assert buffers.damage({}) == ""


def test_poison_is_nan_in_every_output_and_no_input(buffers):
    buffers.write(data())
    buffers.poison()
    assert np.isnan(buffers.read("c")).all()
    assert (buffers.read("count") == -1).all()
    assert np.array_equal(buffers.read("a"), data()["a"])
    assert buffers.damage({}) == ""


def test_inputs_have_nan_on_either_side_and_outputs_something_else(buffers):
    """A copy from beyond an input to beyond an output must be detected."""
    for name, view in buffers.views.items():
        whole = buffers.whole[name]
        assert np.shares_memory(view, whole)
        assert view.nbytes == BYTES[name]
        zones = whole[:GUARD_BYTES], whole[GUARD_BYTES + view.nbytes :]
        for zone in zones:
            assert zone.nbytes == GUARD_BYTES
            assert np.isnan(zone.view("float32")).all() == (name in buffers.problem.inputs)


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize(
    ("side", "offset"),
    [("before", -1), ("before", -GUARD_BYTES), ("after", 0), ("after", GUARD_BYTES - 1)],
    ids=["just before", "far before", "just after", "far after"],
)
def test_one_byte_outside_is_seen(buffers, name, side, offset):
    start = GUARD_BYTES + (BYTES[name] if side == "after" else 0)
    buffers.whole[name][start + offset] = 0
    assert buffers.damage({}) == f"The kernel wrote outside its arrays: 1 bytes {side} {name}."


def test_all_damage_is_told(buffers):
    buffers.whole["a"][:4] = 1
    buffers.whole["c"][-8:] = 2
    assert buffers.damage({}) == ("The kernel wrote outside its arrays: 4 bytes before a, 8 bytes after c.")


def test_the_whole_of_an_array_may_be_written(buffers):
    for name in BYTES:
        buffers.views[name][:] = 0
    assert buffers.damage({}) == ""


class Laid(Problem):
    m = Axis((4,))
    n = Axis((8,))
    rows = Output("m", "n")
    columns = Output("m", "n", order="F")
    apart = Output("m", "n", ld=7)
    line = Output("m", dtype="float64")
    pairs = Output("m", "n", dtype="int4")


@pytest.mark.parametrize("name", Laid().outputs)
@pytest.mark.parametrize("band", [slice(None), slice(0, 1), slice(1, 3), slice(2, 3)])
def test_a_part_is_read_as_it_lies_in_the_whole(device, name, band):
    with Buffers(device, Laid(), case(m=3, n=6)) as made:
        made.views[name][:] = np.arange(made.sizes[name])
        whole = made.read(name)
        for axis in range(whole.ndim):
            part = (*(slice(None),) * axis, band)
            assert made.read(name, part).tobytes() == whole[part].tobytes()
        both = (band,) * whole.ndim
        assert made.read(name, both).tobytes() == whole[both].tobytes()


@pytest.mark.parametrize("at", [0, 2**20, -1])
def test_a_change_anywhere_in_a_large_input_is_seen(device, at):
    large = case(m=3, n=2**19 + 5)
    values = {
        name: np.ones(array.shape_at(large), array.dtype or "float32")
        for name, array in Scale().inputs.items()
    }
    with Buffers(device, Scale(), large) as made:
        made.write(values)
        made.views["a"].view("float32")[at] = 2
        assert made.damage(values) == "The kernel changed its inputs: a."


def test_a_changed_input_is_seen(buffers):
    buffers.write(data())
    assert buffers.damage(data()) == ""
    buffers.views["b"].view("float64")[2] *= -1
    assert buffers.damage(data()) == "The kernel changed its inputs: b."
    buffers.whole["c"][-1] = 0
    assert buffers.damage(data()) == (
        "The kernel wrote outside its arrays: 1 bytes after c. The kernel changed its inputs: b."
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([0.0], [-0.0], False),
        ([1.0, 2.0], [1.0, np.nextafter(2.0, 3.0)], False),
    ],
    ids=["NaN is itself", "minus zero is another", "the last bit counts"],
)
def test_bits(one, other, same):
    assert same_bits(np.array(one), np.array(other)) is same
    assert same_bits(np.array([one, one]).T, np.array([other, other]).T) is same


def test_arguments_come_in_the_problems_order(buffers):
    made = buffers.arguments(kernel())
    assert [id(argument) for argument in made[:4]] == [
        id(buffers.views[name]) for name in ("a", "b", "c", "count")
    ]
    assert [(argument.dtype.name, int(argument)) for argument in made[4:]] == [("int32", 3), ("int32", 5)]


def test_arguments_come_in_the_kernels_order(buffers):
    made = buffers.arguments(kernel(args=("n", "c", "a")))
    assert int(made[0]) == 5
    assert made[1] is buffers.views["c"]
    assert made[2] is buffers.views["a"]


def test_an_unknown_argument_is_a_sentence(buffers):
    with pytest.raises(SuiteError) as raised:
        buffers.arguments(kernel(args=("a", "nope")))
    assert raised.value.message == (
        "Kernel 'one' has argument 'nope', which is no array, scalar or axis of its problem."
    )


def test_the_largest_axis_is_a_32_bit_integer(device, monkeypatch):
    class Line(Problem):
        n = Axis((1,))
        y = Output()

    with Buffers(device, Line(), case(n=2**31 - 1)) as made:
        assert int(made.arguments(kernel())[1]) == 2**31 - 1


def test_the_null_devices_overrun_is_seen(buffers, null_script):
    """The scripted fault writes before the array: what the guard zones are for."""
    null_script({"toy.one": {"fault": "overrun"}})
    device = open_device("null")
    program = Program("toy.one", "one", "", emulate=lambda a, b, c, *_: [(c, np.zeros((3, 5), "float32"))])
    built = device.build(program)
    device.launch(built, Launch(grid=(1, 1, 1), block=(1, 1, 1)), buffers.arguments(kernel()))
    assert buffers.damage({}).startswith("The kernel wrote outside its arrays: ")
    assert buffers.damage({}).endswith("bytes before c.")
