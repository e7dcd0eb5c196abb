"""Times two kernels against each other on one device, in quads of four slots, ABBA or BAAB at random.

The card is never idle between quads. A fixed order would bias the result. So would a rest before each quad,
because the clock would fall inside every quad in the same way. Both effects were measured; docs/comparison.md
has the numbers.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from harness.device.backends.base import MOST_HELD_NS, Device, Stamp
from harness.measure.timing import (
    ENQUEUE_NS,
    MOST_LAUNCHES_QUEUED,
    UNWATCHED,
    Data,
    Slot,
    SlotSettings,
    Subject,
    enqueue_slot,
    is_one_interval,
    l2_policy,
    launches_per_slot,
    no_stamp,
    time_to_enqueue,
    timed,
    warm_up,
)
from harness.records.types import L2Policy, PairedBlock, Quad

CANARY_EVERY = 2
"""Quads between canaries. An outlier among the canaries costs the quads on both sides: less than a fifth of
the fewest."""
SHORT_S = 0.06
"""A block is short if its first quads take at most this time, in seconds."""
_EMPTY_SLOTS = 12
_HOST_BOUND = 0.7
_STARVED = 1.2
"""A canary that takes this many times the shortest one waited for the host."""

Order = Literal["ABBA", "BAAB"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSettings(SlotSettings):
    warmup_max_s: float = 0.5
    settled: float = 0.005
    min_quads: int = 6
    """Fewest quads of a block; twice as many if they take at most SHORT_S, since outliers are rare."""
    max_quads: int = 100
    standard_error: float = 0.0005
    """Stop if the quads' standard error of the effect is below this, or small relative to the effect."""
    max_time_s: float = 1.0
    """Expected device time beyond which no further quads begin. At least one batch always runs."""
    lead_in_s: float = 0.03
    """Duration of the launches before the first quad whose times are discarded."""


@dataclass(frozen=True, slots=True)
class KernelPair:
    """Two kernels that compute the same result from the same arrays."""

    base: Subject
    head: Subject


class _SlotRead(NamedTuple):
    time_ns: float
    cycles: float | None
    clock_mhz: float | None
    first: Stamp | None
    last: Stamp | None


class _QuadRead(NamedTuple):
    order: Order
    slots: list[_SlotRead]
    canary: _SlotRead | None


def _read(slot: Slot, empty_cycles: float) -> _SlotRead:
    spans = [(start(), end()) for start, end in slot.stamps]
    (first, _), (_, last) = spans[0], spans[-1]
    cycles = None
    if all(start and end for start, end in spans):
        cycles = math.fsum(end.cycles - start.cycles - empty_cycles for start, end in spans if start and end)
    return _SlotRead(slot.time_ns(), cycles and cycles / slot.launches, _clock_mhz(first, last), first, last)


def measure_pair(
    device: Device, pair: KernelPair, settings: PairSettings, rng: random.Random, data: Data = UNWATCHED
) -> PairedBlock:
    """Return raw quads of a pair, as many as its noise requires. Raises the errors of `data` for wrong
    outputs.
    """
    by_graph = pair.base.launch.graph or pair.head.launch.graph
    l2 = l2_policy(device, settings.l2, by_graph=by_graph)
    warmup = warm_up(device, [pair.base, pair.head], settings, data)
    time_ns = warmup.time_ns
    for subject in (pair.head, pair.base):
        data.begin(subject, time_ns)
    tick_ns = device.tick_ns()
    one_graph = by_graph and is_one_interval(l2, restored=data.restores)
    launches = launches_per_slot(time_ns, tick_ns, settings.min_slot_ns, one_graph=one_graph)
    runner = SlotRunner(device, pair, l2, launches, rng, data, time_ns)
    quads: list[Quad] = []
    least = least_quads(settings, launches * time_ns)
    while (count := wanted_quads(quads, settings, least) - len(quads)) > 0:
        if quads:
            affordable = int((settings.max_time_s - runner.busy_s) / runner.busy_s * len(quads))
            if affordable < 1:
                break
            count = min(count, affordable)
        quads += runner.batch(count, settings.lead_in_s)
    data.finish([pair.base if runner.last is pair.head else pair.head, runner.last], launches)
    return PairedBlock(
        quads=tuple(quads),
        launches_per_slot=launches,
        l2=l2,
        clock=device.clock,
        tick_ns=tick_ns,
        warmup_s=warmup.duration_s,
        settled=warmup.settled,
        gpu_s=runner.busy_s,
        # A quad is four slots. The time between them belongs to the quad too, for the clocks.
        clock_noise=clock_noise(
            device.globaltimer_tick_ns(), median(quad.ended_ns - quad.started_ns for quad in quads) / 4
        ),
        restored=data.restores,
    )


def clock_noise(tick_ns: float | None, slot_ns: float) -> float | None:
    """Return the relative standard deviation of a slot's length by rounding; None if the tick is unknown.

    Each end is rounded uniformly over one tick. Together that is a variance of tick^2 / 6.
    """
    return tick_ns / slot_ns / math.sqrt(6) if tick_ns is not None and slot_ns > 0 else None


def least_quads(settings: PairSettings, slot_ns: float) -> int:
    """Return the fewest quads of a block if a slot takes `slot_ns`."""
    least = settings.min_quads
    return 2 * least if 8 * least * slot_ns <= SHORT_S * 1e9 else least


def wanted_quads(quads: Sequence[Quad], settings: PairSettings, least: int) -> int:
    """Return the number of quads that a block needs, by the scatter of its quads so far."""
    # Imported here: a process that only asks a worker to measure needs no NumPy.
    from harness.judgement.statistics.paired import MIN_QUADS, log_ratios, more_quads, readable

    if not quads:
        return min(least, settings.max_quads)
    usable = [quad for quad in quads if readable(quad.times_ns)]
    ratios = log_ratios([quad.order for quad in usable], [quad.times_ns for quad in usable]) if usable else ()
    least = max(least, MIN_QUADS)
    return more_quads(ratios, settings.standard_error, at_least=least, at_most=settings.max_quads)


@dataclass(frozen=True, slots=True)
class Alone:
    """A kernel that ran alone, back to back."""

    started_ns: int
    ended_ns: int
    """Begin and end on the host's monotonic clock."""
    launches: int
    time_ns: float
    """Mean time of one launch."""
    sm_clock_mhz: float | None


def run_alone(device: Device, subject: Subject, duration_s: float, data: Data = UNWATCHED) -> Alone:
    """Launch a kernel for `duration_s` without flushes, to draw as much power as it can."""
    batch, launches, total_ns = 1, 0, 0.0
    first = last = None
    started_ns = ended_ns = time.monotonic_ns()
    while launches == 0 or ended_ns - started_ns < duration_s * 1e9:
        before = device.stamp()
        timing = timed(device, subject, data, batch)
        after = device.stamp()
        device.synchronize()
        ended_ns = time.monotonic_ns()
        first, last = first or before(), after()
        launches += batch
        total_ns += timing()
        # Batches of at most 50 ms keep waits few, and stop promptly.
        batch = max(1, min(MOST_LAUNCHES_QUEUED, int(5e7 * launches / max(total_ns, 1.0))))
    return Alone(started_ns, ended_ns, launches, total_ns / launches, _clock_mhz(first, last))


class Turn(msgspec.Struct, frozen=True):
    """A slot of a process that has the device to itself during the slot."""

    time_ns: float
    """Mean time of one launch in the slot."""
    cycles: float | None
    sm_clock_mhz: float | None
    started_ns: int
    ended_ns: int
    """Begin and end on the host's monotonic clock, including the launches before the slot."""
    canary_ns: float | None = None
    canary_cycles: float | None = None


@dataclass
class SlotRunner:
    """Enqueues slots and reads their times: quads in batches, or one slot of base."""

    device: Device
    pair: KernelPair
    l2: L2Policy
    launches: int
    """Launches per slot."""
    rng: random.Random
    data: Data
    time_ns: float
    """Approximate time of one launch."""

    def __post_init__(self) -> None:
        self.last = self.pair.head
        self.busy_s = 0.0
        self._empty_cycles = self._cycles_of_nothing()
        self._brief = self.time_ns < 10 * ENQUEUE_NS
        self._held: frozenset[Subject] | None = None
        """Kernels before whose slots the card is held until they are enqueued; None while the host is faster
        than the card."""
        in_turns = self.pair.base is self.pair.head
        if self._brief or in_turns:
            # With alternating processes the card is idle before each slot, so there is no queue to fill.
            self._hold(anyway=in_turns)

    def _hold(self, *, anyway: bool) -> None:
        """Hold the card from now on, if `anyway` is set or a slot takes longer to enqueue than to run.

        That happens with short slots, and with launches through a library or a just-in-time compiler. Kernels
        that wait for the device themselves are never held, because they would wait for the end of the hold.
        """
        held, wanted = set(), anyway
        for subject in (self.pair.base, self.pair.head):
            host_ns, slot = time_to_enqueue(self.device, functools.partial(self._slot, subject))
            first, last = slot.stamps[0][0](), slot.stamps[-1][1]()
            if first and last:
                wanted = wanted or host_ns > _HOST_BOUND * (last.time_ns - first.time_ns)
            if host_ns < MOST_HELD_NS:
                held.add(subject)
        if wanted:
            self._held = frozenset(held)

    def batch(self, count: int, lead_in_s: float) -> list[Quad]:
        """Return `count` quads behind a lead-in, without waits; none if the card's queue ran empty once."""
        # The lead-in keeps the card busy until enough work is queued.
        began_ns = time.monotonic_ns()
        self.data.change()
        self._lead_in(lead_in_s, self.pair.base, self.pair.head)
        enqueued = [self._quad(number) for number in range(count)]
        at_end = self.device.stamp()
        self.device.synchronize()
        ended_ns = time.monotonic_ns()
        self.busy_s += (ended_ns - began_ns) / 1e9
        quads = _aligned([quad() for quad in enqueued], at_end(), began_ns, ended_ns)
        if self._held is None and _starved(quads):
            self._hold(anyway=True)
            return []
        return quads

    def turn(self, lead_in_s: float, *, canary: bool) -> Turn:
        """Time a slot of base behind launches of `lead_in_s`, and leave nothing on the device.

        Times of the lead-in are discarded: the device was idle, and caches hold the other process's data.
        """
        began_ns = time.monotonic_ns()
        self._lead_in(lead_in_s, self.pair.base, canary=canary)
        canary_slot = self._canary() if canary else None
        slot = self._slot(self.pair.base)
        self.device.synchronize()
        ended_ns = time.monotonic_ns()
        read = _read(slot, self._empty_cycles)
        read_canary = _read(canary_slot, self._empty_cycles) if canary_slot else None
        return Turn(
            time_ns=read.time_ns,
            cycles=read.cycles,
            sm_clock_mhz=read.clock_mhz,
            started_ns=began_ns,
            ended_ns=ended_ns,
            canary_ns=read_canary.time_ns if read_canary else None,
            canary_cycles=read_canary.cycles if read_canary else None,
        )

    def _lead_in(self, duration_s: float, *subjects: Subject, canary: bool = True) -> None:
        """Enqueue launches whose times are discarded."""
        if self._brief:
            self.device.occupy(min(2 * 10**6, 4 * self.launches * ENQUEUE_NS))
        if canary:
            # The first canary in a process, or after another process, is slower than others.
            self.device.canary()
        rounds = max(1, min(20, round(duration_s * 1e9 / (len(subjects) * self.launches * self.time_ns))))
        # There a slot may take the host far longer than the card, and there is no queue to fill.
        may_be_brief = self._held is not None or len(subjects) == 1
        began_ns = time.monotonic_ns()
        for _ in range(rounds):
            for subject in subjects:
                self._slot(subject)
            if may_be_brief and time.monotonic_ns() - began_ns > duration_s * 1e9:
                return

    def _quad(self, number: int) -> Callable[[], _QuadRead]:
        if self.l2 == "cold" and number:
            self.data.change()  # Otherwise a hot quad's first slot would not find its inputs in the cache.
        canary = self._canary() if number % CANARY_EVERY == 0 else None
        order: Order = "ABBA" if self.rng.random() < 0.5 else "BAAB"
        arms = {"A": self.pair.base, "B": self.pair.head}
        slots = [self._slot(arms[arm]) for arm in order]
        self.last = arms[order[-1]]
        empty = self._empty_cycles
        return lambda: _QuadRead(
            order, [_read(slot, empty) for slot in slots], _read(canary, empty) if canary else None
        )

    def _canary(self) -> Slot | None:
        release = self.device.hold() if self._held is not None else None
        before, timing = self.device.stamp(), self.device.canary()
        after = self.device.stamp()
        if release:
            release()
        return Slot((timing,), ((before, after),), 1) if timing else None

    def _slot(self, subject: Subject) -> Slot:
        # The first card's cycles are not those of all cards that a function spans.
        stamp = self.device.stamp if subject.launch.cards == 1 else no_stamp
        held = self._held is not None and subject in self._held
        return enqueue_slot(self.device, subject, self.data, self.launches, self.l2, stamp, held=held)

    def _cycles_of_nothing(self) -> float:
        """Return the cycles between two adjacent stamps on a busy card.

        A stamp that reaches the card late includes idle time, so the lower quartile is used.
        """
        # The first launch of a process is slow: it loads the kernel and allocates memory.
        self.device.stamp()
        self.device.synchronize()
        self.device.occupy(_EMPTY_SLOTS * 2 * ENQUEUE_NS)
        pairs = [(self.device.stamp(), self.device.stamp()) for _ in range(_EMPTY_SLOTS)]
        self.device.synchronize()
        read = [(start(), end()) for start, end in pairs]
        counts = sorted(end.cycles - start.cycles for start, end in read if start and end)
        return counts[len(counts) // 4] if counts else 0.0


def _starved(quads: Sequence[Quad]) -> bool:
    """Tell whether the canary, about 30 us long, is often slower than its minimum: the card waits for the
    host.
    """
    canaries = [quad.canary_ns for quad in quads if quad.canary_ns]
    strays = [time_ns for time_ns in canaries if time_ns > _STARVED * min(canaries)]
    return len(strays) >= max(2, len(canaries) / 4)


def _aligned(read: Sequence[_QuadRead], end: Stamp | None, began_ns: int, ended_ns: int) -> list[Quad]:
    """Return quads with their time on the host's clock: by the device's clock if known, else in
    proportion.
    """
    quads: list[Quad] = []
    total_ns = math.fsum(slot.time_ns for quad in read for slot in quad.slots)
    passed_ns = 0.0
    for quad in read:
        a, b, c, d = quad.slots
        length_ns = math.fsum(slot.time_ns for slot in quad.slots)
        if end and a.first and d.last:
            # The host notices the end of a batch at once, but not the start of its first launch.
            edges = (ended_ns - end.time_ns + a.first.time_ns, ended_ns - end.time_ns + d.last.time_ns)
        else:
            span_ns = (ended_ns - began_ns) / total_ns if total_ns > 0 else 0.0
            edges = (began_ns + passed_ns * span_ns, began_ns + (passed_ns + length_ns) * span_ns)
        passed_ns += length_ns
        found = Quad(
            order=quad.order,
            times_ns=(a.time_ns, b.time_ns, c.time_ns, d.time_ns),
            cycles=all_four(a.cycles, b.cycles, c.cycles, d.cycles),
            sm_clock_mhz=all_four(a.clock_mhz, b.clock_mhz, c.clock_mhz, d.clock_mhz),
            canary_ns=quad.canary.time_ns if quad.canary else None,
            canary_cycles=quad.canary.cycles if quad.canary else None,
            started_ns=int(edges[0]),
            ended_ns=int(edges[1]),
        )
        quads.append(found)
    return quads


def all_four(*values: float | None) -> tuple[float, float, float, float] | None:
    """Return the four values of a quad's slots; None if any is unknown."""
    found = [value for value in values if value is not None]
    return (found[0], found[1], found[2], found[3]) if len(found) == 4 else None


def _clock_mhz(first: Stamp | None, last: Stamp | None) -> float | None:
    if first is None or last is None or last.time_ns <= first.time_ns:
        return None
    return 1e3 * (last.cycles - first.cycles) / (last.time_ns - first.time_ns)
