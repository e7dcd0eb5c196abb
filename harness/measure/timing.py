"""Times one verified kernel on one device: warm-up, slot length, then slots until the interval is narrow
enough.

A slot is the unit of one time value: `launches_per_slot` launches, enough for the clock's resolution. If hot,
they run back to back in one interval, by CUDA graph in one replay. If cold, each launch has its own interval
after a flush of the L2, and the slot is their mean. Kernels that read their outputs also get one interval per
launch, after a copy that resets these. Outputs are poisoned before each interval. A kernel that skips
finished work would otherwise look faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from harness.device.backends.base import (
    MOST_GRAPH_LAUNCHES,
    MOST_HELD_NS,
    Argument,
    Built,
    Device,
    Stamping,
    Timing,
)
from harness.errors import LaunchError, MeasureError
from harness.judgement.statistics import summarize
from harness.records.types import Extent3, L2Policy, Launch, Measurement

TICKS_PER_SLOT = 100
"""Least ticks of a slot, so that the clock's resolution contributes under 1 %."""
MOST_LAUNCHES_QUEUED = 200
"""Launches between two waits. Drivers block the host at some thousand queued launches."""
GRAPH_SLOT_NS = 500_000.0
"""Least slot of replays of a graph, in ns: starting a replay takes about 3 us, which is then below 1 %."""
ENQUEUE_NS = 20_000
"""Host time to enqueue one launch and its surroundings, in ns, with margin. The device is kept busy
meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSettings:
    """State of the L2, warm-up and slot length, for one kernel or two."""

    l2: L2Policy | None = None
    """State of the L2. None: cold if the device can flush its cache, else hot; by graph hot."""
    warmup_min_s: float = 0.1
    """Least time of a warm-up, in seconds, for the clock to rise. A card that just ran another kernel needs
    less."""
    warmup_max_s: float = 1.0
    settled: float = 0.01
    """The kernel is warm if two successive windows of times differ by less than this share."""
    min_slot_ns: float = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings(SlotSettings):
    precision: float = 0.002
    """Stop when half the 99 % interval of the median is below this share of the median."""
    min_slots: int = 20
    max_slots: int = 2000
    min_time_s: float = 0.2
    """Least measuring time, in seconds: long enough for telemetry."""
    max_time_s: float | None = None
    """Most device time, in seconds. None: 2 s on a GPU, 1 s elsewhere, where more time does not narrow the
    interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A built kernel to measure, with its launch and its arguments. It is equal only to itself."""

    built: Built
    launch: Launch
    arguments: Sequence[Argument]


class Data:
    """The arrays that kernels are timed on. This class changes and checks nothing; see Rotation."""

    restores: bool = False
    """True if kernels read their outputs, so that poison() runs before each launch, outside of its time."""

    def poison(self) -> None:
        """Enqueue a fill of every output with NaN, or with its initial content if kernels read it."""

    def change(self) -> None:
        """Enqueue other inputs, or keep the present ones, at random."""

    def begin(self, subject: Subject, time_ns: float) -> None:
        """Run before the first slot. Raises MeasureError if `time_ns`, of one launch, does not measure its
        work.
        """

    def sample(self, subject: Subject) -> None:
        """Enqueue, at random after a slot of `subject`, a copy of its outputs for a later check."""

    def finish(self, subjects: Sequence[Subject], launches: int) -> None:
        """End the slots, the last of which ran the last subject. Raises MeasureError for wrong outputs."""


UNWATCHED = Data()
"""For times that no result depends on."""


def measure(
    device: Device, subject: Subject, settings: MeasureSettings, data: Data = UNWATCHED
) -> Measurement:
    """Return raw times of a kernel. Raises MeasureError for times of 0, and the errors of `data`."""
    if not device.warms_up:
        settings = replace(settings, min_time_s=0.0)
    l2 = l2_policy(device, settings.l2, by_graph=subject.launch.graph)
    tick_ns = device.tick_ns()
    warmup = warm_up(device, [subject], settings, data)
    data.begin(subject, warmup.time_ns)
    one_graph = subject.launch.graph and is_one_interval(l2, restored=data.restores)
    launches = launches_per_slot(warmup.time_ns, tick_ns, settings.min_slot_ns, one_graph=one_graph)
    enqueued = 1 if one_graph else launches
    most_s = settings.max_time_s or (2.0 if device.info.kind == "gpu" else 1.0)
    brief = warmup.time_ns < 10 * ENQUEUE_NS
    held = False
    if brief and subject.built.by_host:
        took_ns, _ = time_to_enqueue(device, lambda: enqueue_slot(device, subject, data, launches, l2))
        # For example Triton's launches from Python. A kernel that waits for the device would wait for the end
        # of the hold.
        held = enqueued * ENQUEUE_NS < took_ns < MOST_HELD_NS
    times: list[float] = []
    started_ns = time.monotonic_ns()
    stopped_by: Literal["precision", "time", "slots"] | None = None
    while stopped_by is None:
        # About 20 ms of work before a wait, so that stopping is prompt and the queue never runs empty.
        most = min(settings.max_slots - len(times), MOST_LAUNCHES_QUEUED // enqueued)
        batch = max(1, min(most, int(20e6 / (launches * warmup.time_ns))))
        data.change()
        if brief:
            device.occupy(batch * enqueued * ENQUEUE_NS)
        slots = [enqueue_slot(device, subject, data, launches, l2, held=held) for _ in range(batch)]
        device.synchronize()
        times += [slot.time_ns() for slot in slots]
        stopped_by = _stop(times, (time.monotonic_ns() - started_ns) / 1e9, most_s, settings)
    ended_ns = time.monotonic_ns()
    data.finish([subject], launches)
    if not median(times):
        raise MeasureError(
            f"A slot of {launches} launches takes no time by {device.clock}, whose smallest step is "
            f"{tick_ns:g} ns: the kernel does nothing, or too little to be timed. Use a larger size."
        )
    return Measurement(
        times_ns=tuple(times),
        launches_per_slot=launches,
        l2=l2,
        clock=device.clock,
        tick_ns=tick_ns,
        warmup_launches=warmup.launches,
        warmup_s=warmup.duration_s,
        settled=warmup.settled,
        stopped_by=stopped_by,
        started_ns=started_ns,
        ended_ns=ended_ns,
        restored=data.restores,
    )


def time_to_enqueue(device: Device, enqueue: Callable[[], Slot]) -> tuple[int, Slot]:
    """Return the host time in ns to enqueue a slot while the device is held, and that slot after it has run.

    Another slot precedes it, because the first one allocates memory and loads kernels, for which the host may
    wait.
    """
    enqueue()
    device.synchronize()
    release = device.hold()
    began_ns = time.monotonic_ns()
    slot = enqueue()
    took_ns = time.monotonic_ns() - began_ns
    release()
    device.synchronize()
    return took_ns, slot


def l2_policy(device: Device, wanted: L2Policy | None, *, by_graph: bool) -> L2Policy:
    """Return the requested policy; by default cold if the device can flush its cache, else hot.

    By graph it is hot, because nothing flushes the cache between the launches of a graph.
    """
    return wanted or ("hot" if by_graph or device.info.l2_bytes is None else "cold")


def is_one_interval(l2: L2Policy, *, restored: bool) -> bool:
    """Return True if the launches of a slot run back to back, without a flush or a copy between them."""
    return l2 == "hot" and not restored


@dataclass(frozen=True, slots=True)
class Slot:
    """The timings and stamps of a slot, readable once the device has run it."""

    timings: tuple[Timing, ...]
    stamps: tuple[tuple[Stamping, Stamping], ...]
    """Stamps before and after each interval."""
    launches: int

    def time_ns(self) -> float:
        """Return the mean time of one launch."""
        return math.fsum(timing() for timing in self.timings) / self.launches


def no_stamp() -> Stamping:
    """Count no cycles."""
    return lambda: None


def enqueue_slot(
    device: Device,
    subject: Subject,
    data: Data,
    launches: int,
    l2: L2Policy,
    stamp: Callable[[], Stamping] = no_stamp,
    *,
    held: bool = False,
) -> Slot:
    """Enqueue a slot: one interval if the L2 is hot and no output is reset, else one per launch.

    If `held`, no launch begins before all are enqueued.
    """
    release = device.hold() if held else None
    intervals, each = (1, launches) if is_one_interval(l2, restored=data.restores) else (launches, 1)
    timings, stamps = [], []
    for _ in range(intervals):
        data.poison()  # before the flush, which evicts the poison from the L2
        if l2 == "cold":
            device.flush_l2()
        timing, ends = _interval(device, subject, each, stamp)
        timings.append(timing)
        stamps.append(ends)
    data.sample(subject)
    if release:
        release()
    return Slot(tuple(timings), tuple(stamps), launches)


def _interval(
    device: Device, subject: Subject, launches: int, stamp: Callable[[], Stamping] = no_stamp
) -> tuple[Timing, tuple[Stamping, Stamping]]:
    """Enqueue back-to-back launches between two stamps, then store their results."""
    before = stamp()
    timing = device.timed(subject.built, subject.launch, subject.arguments, launches)
    after = stamp()
    device.deliver(subject.built, subject.arguments)
    return timing, (before, after)


def timed(device: Device, subject: Subject, data: Data, launches: int) -> Timing:
    """Enqueue launches, back to back except for resets by `data`, and return their total time."""
    if not data.restores:
        return _interval(device, subject, launches)[0]
    timings = []
    for _ in range(launches):
        data.poison()
        timings.append(_interval(device, subject, 1)[0])
    return lambda: math.fsum(timing() for timing in timings)


@dataclass(frozen=True, slots=True)
class Warmup:
    launches: int
    """Number of launches of each subject."""
    duration_s: float
    settled: bool
    time_ns: float
    """Time of one launch of the fastest subject at the end of the warm-up."""


def warm_up(device: Device, subjects: Sequence[Subject], settings: SlotSettings, data: Data) -> Warmup:
    """Launch kernels alternately until two successive windows of times agree. Then clocks are stable too."""
    least_s, started = settings.warmup_min_s if device.warms_up else 0.0, time.monotonic()
    windows: list[float] = []
    launches, batch = 0, 1
    while True:
        if data.restores and windows and windows[-1] < 10 * ENQUEUE_NS:
            # Otherwise the first event of each pair would wait for the host.
            device.occupy(len(subjects) * batch * ENQUEUE_NS)
        timings = [timed(device, each, data, batch) for each in subjects]
        device.synchronize()
        launches += batch
        times_ns = [max(timing() / batch, 1.0) for timing in timings]
        windows.append(sum(times_ns))
        duration_s = time.monotonic() - started
        several = len(windows) > 2
        agree = several and abs(windows[-1] / windows[-2] - 1) < settings.settled
        ended = duration_s >= settings.warmup_max_s or (several and not device.warms_up)
        if ended or (agree and duration_s >= least_s):
            return Warmup(launches, duration_s, agree, min(times_ns))
        # Windows of a tenth of the shortest warm-up: long enough to be meaningful.
        batch = max(1, min(MOST_LAUNCHES_QUEUED, int(least_s * 1e8 / windows[-1])))


def launches_per_slot(time_ns: float, tick_ns: float, min_slot_ns: float, *, one_graph: bool = False) -> int:
    """Return the launches for a slot of at least `min_slot_ns` and enough ticks of the clock.

    For `one_graph` that holds the whole slot, it is a power of two, as graphs are captured.
    """
    slot_ns = max(TICKS_PER_SLOT * tick_ns, min_slot_ns, GRAPH_SLOT_NS if one_graph else 0)
    launches = math.ceil(slot_ns / time_ns)
    if one_graph:
        return min(MOST_GRAPH_LAUNCHES, 1 << (launches - 1).bit_length())
    return max(1, min(MOST_LAUNCHES_QUEUED, launches))


def _stop(
    times: Sequence[float], elapsed_s: float, most_s: float, settings: MeasureSettings
) -> Literal["precision", "time", "slots"] | None:
    enough = len(times) >= settings.min_slots and elapsed_s >= settings.min_time_s
    if enough and (not median(times) or summarize(times, _STOPS).half_width < settings.precision):
        return "precision"
    if len(times) >= settings.max_slots:
        return "slots"
    return "time" if elapsed_s >= most_s and len(times) >= 3 else None


_STOPS = 0.99
"""Confidence of the interval that ends a measurement. The displayed interval is wider."""
_AIM = 0.9
"""Share of the allowed time to aim for, because launch times vary."""
_GROWTH = 8
"""Largest growth of a part in one step, because caches and clocks may not scale with its blocks."""
_WORTHWHILE = 1.1


def limited(
    device: Device, subject: Subject, launch: Launch, most_ms: float, data: Data = UNWATCHED
) -> Launch:
    """Return the launch in parts of at most `most_ms`, as large as possible, by trial. Raises LaunchError."""

    def time_ns(extent: Extent3) -> float:
        part = replace(launch, grid=extent, dispatch=extent, graph=False)
        times = []
        for _ in range(2):  # the first launch also loads the kernel
            timing = timed(device, replace(subject, launch=part), data, 1)
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
    """Return the largest part of at most `most_ns` and its time; None and a block's time if a block takes
    longer.

    It tries no part that would take longer, estimated per block.
    """
    found = 1, 1, 1
    taken_ns = time_ns(found)
    if taken_ns > most_ns:
        return None, taken_ns
    while found != most:
        blocks = math.prod(found)
        larger = _extent(int(blocks * min(_GROWTH, _AIM * most_ns / max(taken_ns, 1.0))), most)
        if math.prod(larger) < _WORTHWHILE * blocks or (larger_ns := time_ns(larger)) > most_ns:
            break
        found, taken_ns = larger, larger_ns
    return found, taken_ns


def _extent(blocks: int, most: Extent3) -> Extent3:
    """Return an extent of at most `blocks` blocks, and at least one.

    Rows are complete before a second row starts, and planes before a second plane starts.
    """
    width = min(max(blocks, 1), most[0])
    height = min(max(blocks // width, 1), most[1]) if width == most[0] else 1
    depth = min(max(blocks // (width * height), 1), most[2]) if height == most[1] else 1
    return width, height, depth
