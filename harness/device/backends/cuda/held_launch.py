"""Checks that a host function waits for its stream.

The function is called while the stream is held, and its outputs are copied on another stream. Outputs written
by then did not wait. A function may also return results in its own memory. That memory is filled beforehand,
because the last call's results would look like work that did not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.device.backends.base import POISON, Device, Looks
from harness.device.backends.cuda import driver
from harness.device.frameworks import ReturnedArray, source_of
from harness.errors import LaunchError

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: a stream that is independent of the default stream."""
_SETTLE_S = 0.03
"""Time after a function's return in which work that does not wait for the stream becomes visible,
in seconds."""
_LOOK_NS, _LET_GO_NS = 350_000_000, 400_000_000
"""Times in ns of the check of outputs and of the hold's end, for a function that has not returned by then.

Both are longer than the card is ever held during timing.
"""
_MOST_FILLED = 8
"""Most calls of a function until it returns the same memory as in its last call."""
_NEVER_THE_SAME = (
    "It returns its result in other memory at each call, so it is unknown whether the work waited for the "
    "stream: let the function take the output as a parameter and write it there."
)

Call = Callable[[], list[ReturnedArray]]
"""Calls the function, which enqueues its work, and returns its results."""


def deliver(returned: Sequence[ReturnedArray], stream: Any) -> None:
    """Enqueue a copy of the results to the outputs, after their computation."""
    for result in returned:
        driver.api().memcpy_dtod_async(result.destination, result.address, result.size_bytes, stream)


def fill(returned: Sequence[ReturnedArray], stream: Any) -> None:
    """Enqueue a fill of the memory of results."""
    for result in returned:
        driver.api().memset_d8_async(result.address, POISON, result.size_bytes, stream)


def fill_results(call: Call, stream: Any, filled: set[int]) -> set[int]:
    """Call a function until it returns filled memory, and return the addresses of its results.

    `filled` holds the addresses of the last time. A framework gives a call the memory of the previous call,
    which is free again. Raises LaunchError for a function that keeps returning other memory.
    """
    with driver.translated("Filling results"):
        for _ in range(_MOST_FILLED):
            before, filled = filled, _call_and_fill(call, stream)
            if filled == before:
                return filled
    raise LaunchError(_NEVER_THE_SAME)


def _call_and_fill(call: Call, stream: Any) -> set[int]:
    """Return the results' addresses, and keep no result, because the next call would then get
    other memory.
    """
    returned = call()
    fill(returned, stream)
    return {result.address for result in returned}


def launch_held(
    device: Device,
    stream: Any,
    hold: Callable[[int, Any], Callable[[], None]],
    call: Call,
    filled: set[int],
    looks: Looks,
) -> bool:
    """Call a function while its stream is held, and read the looks. False if the stream was released before.

    `hold` enqueues a wait of a limited number of ns on a stream, and returns a function that ends it.
    `filled` comes from fill_results. Looks are enqueued before the call, because a function may wait for the
    card. Memory that the function returns is checked when it returns.
    """
    api = driver.api()
    aside, looked, held = api.Stream(_NON_BLOCKING), api.Event(), api.Event()
    device.synchronize()
    copies = device.allocate(sum(out.nbytes for _, _, out in looks))
    places, end = [], int(copies)
    for _, _, out in looks:
        places.append(end)
        end += out.nbytes
    with driver.translated("Looking aside"):
        look = hold(_LOOK_NS, aside)
        for (memory, offset_bytes, out), place in zip(looks, places, strict=True):
            api.memcpy_dtod_async(place, int(memory) + offset_bytes, out.nbytes, aside)
        looked.record(aside)
        let_go = hold(_LET_GO_NS, stream)
        held.record(stream)
    try:
        returned = call()
        time.sleep(_SETTLE_S)
        with driver.translated("Looking aside"):
            look()
            moved = _look_at_returned(returned, looks, aside)
            if held.query():
                moved = {}
    finally:
        let_go()
    if any(result.address not in filled for result in returned):
        raise LaunchError(_NEVER_THE_SAME)
    with driver.translated("Looking aside"):
        deliver(returned, stream)
        held.synchronize()
        was_held = bool(looked.time_till(held) > 0)
        for number, ((_, _, out), place) in enumerate(zip(looks, places, strict=True)):
            if number not in moved:
                api.memcpy_dtoh(out, place)
            elif (moved[number] != POISON).any():
                out[:] = moved[number]
    device.release(copies)
    return was_held


def _look_at_returned(
    returned: Sequence[ReturnedArray], looks: Looks, aside: Any
) -> dict[int, np.ndarray[Any, Any]]:
    """Return the current content of a function's results, by the number of the look."""
    moved = {}
    for number, (memory, offset_bytes, out) in enumerate(looks):
        address = int(memory) + offset_bytes
        place = source_of(address, returned)
        if place != address:
            moved[number] = np.empty_like(out)
            driver.api().memcpy_dtoh_async(moved[number], place, aside)
    aside.synchronize()
    return moved
