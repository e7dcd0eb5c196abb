"""How large a dispatch may be, so that none keeps the device for longer than is allowed.

A card that drives a display is reset by its system after a second or two in one kernel.
"""

from __future__ import annotations

__all__ = ["largest_dispatch", "limited", "single_blocks"]

import math
from collections.abc import Callable
from dataclasses import replace

from harness.bench.measure import Subject
from harness.device.backends.base import Device
from harness.errors import LaunchError
from harness.records import Extent3, Launch

_AIM = 0.9
"""Of what is allowed: times differ from launch to launch."""
_GROWTH = 8
"""Most that a part grows at a time, as caches and clocks may not scale as its blocks do."""
_WORTHWHILE = 1.1


def single_blocks(launch: Launch) -> Launch:
    """The launch a block at a time: what a program must be made for to be launched in any parts."""
    return replace(launch, dispatch=(1, 1, 1))


def limited(device: Device, subject: Subject, launch: Launch, most_ms: float) -> Launch:
    """The launch with the largest dispatch that takes no longer than `most_ms`, found by trying.

    `subject` is built for parts. Raises LaunchError where a single block takes longer.
    """

    def time_ns(extent: Extent3) -> float:
        part = replace(launch, grid=extent, dispatch=extent)
        times = []
        for _ in range(2):  # the first launch of all also loads
            timing = device.timed(subject.built, part, subject.arguments, 1)
            device.synchronize()
            times.append(timing())
        return min(times)

    width, height, depth = map(min, launch.grid, launch.dispatch or launch.grid)
    most = width, height, depth
    found, least_ns = largest_dispatch(time_ns, most, most_ms * 1e6)
    if found is None:
        raise LaunchError(
            f"One block takes {least_ns / 1e6:.3g} ms on {device.info.name}, more than the {most_ms:g} ms "
            "of --max-launch-ms, and no part is smaller: allow more, or use a smaller size."
        )
    return launch if found == most else replace(launch, dispatch=found)


def largest_dispatch(
    time_ns: Callable[[Extent3], float], most: Extent3, most_ns: float
) -> tuple[Extent3 | None, float]:
    """The largest part, within `most` blocks, that takes at most `most_ns`, and its time.

    Nothing is tried that the last part's time says would take longer, block for block. None, with the time
    of one block, where that is too long already.
    """
    found = 1, 1, 1
    taken_ns = time_ns(found)
    if taken_ns > most_ns:
        return None, taken_ns
    while found != most:
        blocks = math.prod(found)
        fitting = int(blocks * min(_GROWTH, _AIM * most_ns / max(taken_ns, 1.0)))
        larger = _extent(fitting, most)
        if math.prod(larger) < _WORTHWHILE * blocks:
            break
        larger_ns = time_ns(larger)
        if larger_ns > most_ns:
            break
        found, taken_ns = larger, larger_ns
    return found, taken_ns


def _extent(blocks: int, most: Extent3) -> Extent3:
    """At most so many blocks, and at least one: whole rows before a second row, whole planes likewise."""
    width = min(max(blocks, 1), most[0])
    height = min(max(blocks // width, 1), most[1]) if width == most[0] else 1
    depth = min(max(blocks // (width * height), 1), most[2]) if height == most[1] else 1
    return width, height, depth
