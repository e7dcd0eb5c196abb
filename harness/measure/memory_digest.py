"""A 128-bit digest of arrays, computed in device memory.

The bytes of an array, padded with zeros, are cut into pieces of 1024 words of 32 bits. Four functions compute
32 bits each of a piece: the upper half of

    key[0] + key[1] * word[0] + ... + key[1024] * word[1023]    modulo 2**64

with 64-bit keys of its own. The digest is BLAKE2b of the arrays' sizes and of these 16 bytes of every piece,
in order. A GPU that compiles the harness's kernels computes them in place. For other devices NumPy computes
the same from a copy.

Two different contents differ in a piece. For random keys each function is strongly universal (MULTILINEAR, of
Lemire and Kaser, "Strongly universal string hashing is fast", The Computer Journal 57, 2014): two different
pieces get the same 32 bits with probability 2**-32, and the same 16 bytes with probability 2**-128. BLAKE2b
adds no collision that anybody could find. The keys are SplitMix64 (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014) of four seeds. The seeds come from a random key for each
command, so no kernel can be written for them. They are passed as launch arguments, so a kernel that writes
outside its arrays cannot change them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import Device, Memory, Place
from harness.errors import MeasureError, OutOfMemoryError
from harness.measure.device_kernels import THREADS, DeviceKernels
from harness.system.threads import room_of_thread, side_by_side

FUNCTIONS = 4
WORDS = 1024
PIECE_BYTES = 4 * WORDS
_BATCH = 256
"""Pieces that a host thread processes at a time. Their products fit into its caches."""
_PART_BYTES = 2**24
"""Bytes read from the device at a time. A copy of everything would cost more memory than the digest saves."""
_GOLDEN, _MIX_1, _MIX_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""The constants of SplitMix64."""

TEXT = f"""
#define WORDS {WORDS}
#define THREADS {THREADS}

DEVICE u64 key_of(u64 seed, u32 number) {{
    u64 z = seed + (number + (u64)1) * (u64){_GOLDEN:#x}UL;
    z = (z ^ (z >> 30)) * (u64){_MIX_1:#x}UL;
    z = (z ^ (z >> 27)) * (u64){_MIX_2:#x}UL;
    return z ^ (z >> 31);
}}

DEVICE u64 word_at(GLOBAL const u8 *data, u64 size, u64 index) {{
    const u64 begin = 4 * index;
    if (begin + 4 <= size) return ((GLOBAL const u32 *)data)[index];
    u64 word = 0;
    for (u64 byte = begin; byte < size; ++byte) word |= (u64)data[byte] << (8 * (byte - begin));
    return word;
}}

KERNEL harness_pieces(
    GLOBAL const u8 *data, u64 size, u64 seed_0, u64 seed_1, u64 seed_2, u64 seed_3, GLOBAL u32 *out)
{{
    SHARED u64 sums[4 * THREADS];
    const u32 me = THREAD;
    const u64 seeds[4] = {{seed_0, seed_1, seed_2, seed_3}};
    u64 keys[WORDS / THREADS][4];
    for (u32 turn = 0; turn < WORDS / THREADS; ++turn)
        for (u32 f = 0; f < 4; ++f) keys[turn][f] = key_of(seeds[f], 1 + me + turn * THREADS);
    const u64 pieces = (size + 4 * WORDS - 1) / (4 * WORDS);
    for (u64 piece = BLOCK; piece < pieces; piece += BLOCKS) {{
        u64 sum[4] = {{0, 0, 0, 0}};
        for (u32 turn = 0; turn < WORDS / THREADS; ++turn) {{
            const u64 word = word_at(data, size, piece * WORDS + me + turn * THREADS);
            for (u32 f = 0; f < 4; ++f) sum[f] += word * keys[turn][f];
        }}
        for (u32 f = 0; f < 4; ++f) sums[f * THREADS + me] = sum[f];
        for (u32 step = THREADS / 2; step > 0; step /= 2) {{
            BARRIER;
            if (me < step)
                for (u32 f = 0; f < 4; ++f) sums[f * THREADS + me] += sums[f * THREADS + me + step];
        }}
        BARRIER;
        if (me < 4) out[4 * piece + me] = (u32)((sums[me * THREADS] + key_of(seeds[me], 0)) >> 32);
        BARRIER;
    }}
}}
"""


class MemoryDigests:
    """Digests of arrays on one device. Digests of two processes are comparable if both have the
    same `key`.
    """

    def __init__(self, device: Device, key: str) -> None:
        self.device = device
        self._seeds = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * FUNCTIONS).digest(), "<u8")
        self._kernels = DeviceKernels(device, TEXT)
        self._room: tuple[Memory, int] | None = None
        self._agrees = functools.cache(self._compared_with_host)

    @property
    def are_fast(self) -> bool:
        """True if a GPU computes the digests, faster than the arrays could be copied to the host."""
        return self._may_use_gpu()

    def of(self, places: Iterable[Place]) -> str:
        """Return the digest of the bytes in these places, in order."""
        found = hashlib.blake2b(digest_size=16)
        for place in places:
            found.update(place[2].to_bytes(8, "little"))
            found.update(self._pieces(place).data)
        return found.hexdigest()

    def of_host(self, arrays: Iterable[NDArray[np.uint8]]) -> str:
        """Return the digest of places that hold the bytes of these arrays."""
        found = hashlib.blake2b(digest_size=16)
        for data in arrays:
            found.update(data.size.to_bytes(8, "little"))
            found.update(self.on_host(data).data)
        return found.hexdigest()

    def holds(self, place: Place, data: NDArray[np.uint8]) -> bool:
        """Tell whether a place holds these bytes: by digests on a GPU, else by reading it."""
        if (found := self._on_gpu(place)) is not None:
            return np.array_equal(found, self.on_host(data))
        begin = 0
        for part in self._parts(*place):
            if not np.array_equal(part, data[begin : begin + part.size]):
                return False
            begin += part.size
        return True

    def _pieces(self, place: Place) -> NDArray[np.uint32]:
        if (found := self._on_gpu(place)) is not None:
            return found
        return np.concatenate([self.on_host(part) for part in self._parts(*place)])

    def _on_gpu(self, place: Place) -> NDArray[np.uint32] | None:
        """Return the pieces of a place, computed on the GPU; None if that is impossible."""
        if not place[2] or not self._may_use_gpu():
            return None
        with contextlib.suppress(OutOfMemoryError):
            return self.on_device(*place)
        return None

    def _may_use_gpu(self) -> bool:
        return self._kernels.available and self._agrees()

    def _compared_with_host(self) -> bool:
        """Tell whether device and host compute the same digest of some bytes."""
        data = np.arange(2 * PIECE_BYTES + 5, dtype=np.uint32).astype(np.uint8)
        try:
            memory = self.device.allocate(data.size)
            try:
                self.device.write(memory, 0, data)
                return np.array_equal(self.on_device(memory, 0, data.size), self.on_host(data))
            finally:
                self.device.release(memory)
        # There is no compiler, for example on a machine that runs only PyTorch functions.
        except MeasureError:
            return False

    def _parts(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the bytes of a place in parts. Each part overwrites the previous one."""
        held = np.empty(min(size_bytes, _PART_BYTES), np.uint8)
        for begin in range(0, max(1, size_bytes), _PART_BYTES):
            part = held[: size_bytes - begin]
            self.device.read(memory, offset_bytes + begin, part)
            yield part

    def on_host(self, data: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Return four numbers for each piece of these bytes."""
        keys = np.stack([keys_of(seed) for seed in self._seeds])
        starts = range(0, data.size, _BATCH * PIECE_BYTES)
        batches = [data[start : start + _BATCH * PIECE_BYTES] for start in starts]
        made = side_by_side(lambda batch: _multilinear(batch, keys), batches)
        return np.concatenate([np.empty((0, FUNCTIONS), np.uint32), *made])

    def on_device(self, memory: Memory, offset_bytes: int, size_bytes: int) -> NDArray[np.uint32]:
        """Return the same four numbers for bytes on the device. Raises OutOfMemoryError."""
        out = np.empty((-(-size_bytes // PIECE_BYTES), FUNCTIONS), np.uint32)
        room = self._room_of(out.nbytes)
        view = self.device.view(memory, offset_bytes, size_bytes)
        arguments = [view, np.uint64(size_bytes), *self._seeds, self.device.view(room, 0, out.nbytes)]
        self._kernels.launch("harness_pieces", len(out), arguments)
        self.device.read(room, 0, out)
        return out

    def _room_of(self, size_bytes: int) -> Memory:
        if self._room is None or self._room[1] < size_bytes:
            earlier, self._room = self._room, None
            if earlier is not None:
                self.device.release(earlier[0])
            self._room = self.device.allocate(size_bytes), size_bytes
        return self._room[0]


def keys_of(seed: np.uint64) -> NDArray[np.uint64]:
    """Return the keys of one function: the summand, then a factor for each word."""
    with np.errstate(over="ignore"):
        z = seed + np.arange(1, WORDS + 2, dtype=np.uint64) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
    found: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return found


def _multilinear(data: NDArray[np.uint8], keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    padded = np.pad(data, (0, -data.size % PIECE_BYTES)) if data.size % PIECE_BYTES else data
    short = padded.view("<u4").reshape(-1, WORDS)
    words = room_of_thread(*short.shape, np.uint64)
    words[...] = short
    sums = [np.einsum("ij,j->i", words, each[1:]) + each[0] for each in keys]
    return (np.stack(sums, axis=1) >> np.uint64(32)).astype(np.uint32)
