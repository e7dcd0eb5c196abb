"""Digests of device memory: the device's kernel against NumPy, and both against the formula."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest

from harness.device.backends import cubin, nvcc, open_device
from harness.errors import DeviceError
from harness.measure.device_kernels import program_of
from harness.measure.memory_digest import PIECE_BYTES, TEXT, WORDS, MemoryDigests, keys_of
from harness.system.cache import BinaryCache
from tests.sampling import given, settings, st
from tests.support import GPU, device_is_missing

SIZES = st.integers(1, 3 * PIECE_BYTES + 5) | st.sampled_from(
    [PIECE_BYTES, PIECE_BYTES + 1, 40 * PIECE_BYTES]
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("opencl:0", "cpu"), id="opencl"),
        pytest.param(("opencl:0", "gpu"), id="opencl taken for a GPU's"),
        pytest.param((GPU, "gpu"), id="gpu", marks=pytest.mark.gpu),
    ],
)
def device(request):
    spec, kind = request.param
    try:
        opened = open_device(spec)
    except DeviceError as error:
        device_is_missing(spec, error.message)
    opened.info = dataclasses.replace(opened.info, kind=kind)
    return opened


def content(size_bytes, seed):
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


@given(size_bytes=SIZES, seed=st.integers(0, 2**32), key=st.text(max_size=9))
def test_device_and_host_make_the_same_of_each_piece(device, size_bytes, seed, key):
    digests, data = MemoryDigests(device, key), content(size_bytes, seed)
    memory = device.allocate(2**20 + size_bytes + 8)
    try:
        device.fill(memory, 0, 2**20 + size_bytes + 8, 0xAB)  # what lies beside it does not count
        device.write(memory, 2**20, data)
        found = digests.on_device(memory, 2**20, size_bytes)
        told = digests.of([(memory, 2**20, size_bytes)])
    finally:
        device.release(memory)
    assert (found == digests.on_host(data)).all()
    assert told == of_host(data, key)


@given(size_bytes=SIZES, seed=st.integers(0, 2**32), at=st.integers(0, 2**32))
def test_a_changed_byte_in_the_device_s_memory_shows(device, size_bytes, seed, at):
    digests, data = MemoryDigests(device, "key"), content(size_bytes, seed)
    memory = device.allocate(size_bytes)
    try:
        device.write(memory, 0, data)
        assert digests.holds((memory, 0, size_bytes), data)
        device.fill(memory, at % size_bytes, 1, 255 - int(data[at % size_bytes]))
        assert not digests.holds((memory, 0, size_bytes), data)
    finally:
        device.release(memory)


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_device_that_disagrees_with_the_host_is_not_asked_again(device, monkeypatch, wrong):
    digests, data = MemoryDigests(device, "key"), content(5000, 1)
    right = digests.on_device
    monkeypatch.setattr(digests, "on_device", lambda *place: right(*place) + np.uint32(wrong))
    memory = device.allocate(data.size)
    try:
        device.write(memory, 0, data)
        assert digests.of([(memory, 0, data.size)]) == of_host(data, "key")
        asked = digests._on_gpu((memory, 0, data.size)) is not None
    finally:
        device.release(memory)
    assert asked == (device.info.kind == "gpu" and not wrong)


def of_host(data, key):
    device = open_device("null")
    memory = device.allocate(data.size)
    device.write(memory, 0, data)
    return MemoryDigests(device, key).of([(memory, 0, data.size)])


def test_what_is_read_in_parts_has_the_digest_of_the_whole(device):
    digests, data = MemoryDigests(device, ""), content(2**24 + 5, 1)
    whole = digests.on_host(data)
    digest = hashlib.blake2b(data.size.to_bytes(8, "little") + whole.tobytes(), digest_size=16).hexdigest()
    memory = device.allocate(data.size)
    device.write(memory, 0, data)
    few = digests.of([(memory, 0, 5)])  # in less room than all of it takes
    assert of_host(data, "") == digest == digests.of([(memory, 0, data.size)])
    assert digests.holds((memory, 0, data.size), data)
    assert digests.of([(memory, 0, 5)]) == few == of_host(data[:5], "")
    device.release(memory)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_nvcc_compiles_the_kernel_that_opencl_runs(arch):
    if not nvcc.version():
        device_is_missing("nvcc", "nvcc is not on PATH, and the extra 'static' is not installed")
    binary = nvcc.binary_of(BinaryCache(), program := program_of("harness_pieces", TEXT, "cuda"), arch)
    assert cubin.parameters(binary, nvcc.entry(program, binary)) == tuple((8 * each, 8) for each in range(7))


def test_the_host_computes_the_formula():
    digests = MemoryDigests(open_device("null"), "key")
    data = content(2 * PIECE_BYTES - 7, 1)
    words = [int(word) for word in np.pad(data, (0, 7)).view("<u4")]
    keys = [[int(key) for key in keys_of(seed)] for seed in digests._seeds]
    for number, found in enumerate(digests.on_host(data)):
        piece = words[number * WORDS : (number + 1) * WORDS]
        sums = [first + sum(map(int.__mul__, factors, piece)) for first, *factors in keys]
        assert [int(each) for each in found] == [(each % 2**64) >> 32 for each in sums]


def test_keys_are_those_of_splitmix64():
    """The first numbers that the authors' own program gives for the seed 1234567."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(key) for key in keys_of(np.uint64(1234567))[:3]] == known


@settings(max_examples=60)
@given(
    size_bytes=SIZES, seed=st.integers(0, 2**32), at=st.integers(0, 2**32), flipped=st.sampled_from([1, 128])
)
def test_a_change_of_one_bit_shows(size_bytes, seed, at, flipped):
    digests, data = MemoryDigests(open_device("null"), "key"), content(size_bytes, seed)
    other = data.copy()
    other[at % size_bytes] ^= flipped
    assert (digests.on_host(data) != digests.on_host(other)).any()


def test_order_and_size_count():
    device = open_device("null")
    digests, data = MemoryDigests(device, "key"), content(2 * PIECE_BYTES, 3)
    words, pieces = data.reshape(-1, 4), data.reshape(2, -1)
    alike = [
        data,
        words[::-1],
        pieces[::-1],
        np.pad(data, (0, 4)),
        np.zeros(4, np.uint8),
        np.zeros(5, np.uint8),
    ]
    found = set()
    for each in alike:
        memory = device.allocate(each.size)
        device.write(memory, 0, np.ascontiguousarray(each))
        found.add(digests.of([(memory, 0, each.size)]))
    found |= {digests.of([(memory, 0, 5)] * 2), MemoryDigests(device, "other").of([(memory, 0, 5)])}
    assert len(found) == len(alike) + 2
