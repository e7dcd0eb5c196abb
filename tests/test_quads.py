"""Quads on the null device: what is done in which order, when it ends, and when it was to the host."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections import Counter
from statistics import median

import pytest

from harness.device.backends.base import MOST_HELD_NS, Stamp
from harness.device.backends.null import NullBuilt, NullDevice, devices
from harness.judgement.statistics.paired import log_ratios, process_effect
from harness.measure.quads import CANARY_EVERY, KernelPair, PairSettings, SlotRunner, measure_pair, run_alone
from harness.measure.timing import UNWATCHED, Data, Subject, launches_per_slot
from harness.records.types import Launch, PairedBlock
from harness.suite.sources import Program
from tests.recording import START_NS, Clock, RecordingDevice

US, MS = 1e3, 1e6
LAUNCH = Launch(grid=(1, 1, 1), block=(32, 1, 1))
SHORT = PairSettings(l2="hot", warmup_min_s=0, warmup_max_s=0, lead_in_s=0.0)


class Recording(RecordingDevice):
    """Writes down A3 and B3 for three launches of base and of head, C for a canary, | for a stamp and O where
    it is occupied.
    """

    warms_up = True
    flush_ns = 7 * US

    def __init__(self, clock: Clock, *, stamp_cycles: float = 0.0, cycles: bool = True, **info):
        super().__init__(clock, **info)
        self.stamp_cycles, self.tells = stamp_cycles, cycles
        self.device_ns = self.counted = 0.0
        self.globaltimer_ns: float | None = 1.0

    def timed(self, built, launch, arguments, launches):
        assert launch is LAUNCH
        time_ns = self.run(built, arguments, launches)
        self.log.append(f"{arguments[0]}{launches}")
        return self._later(time_ns)

    def canary(self):
        self.log.append("C")
        return self._later(50 * US)

    def _later(self, time_ns):
        self.enqueue(time_ns)
        return self.after_wait(time_ns)

    def enqueue(self, time_ns):
        super().enqueue(time_ns)
        self.device_ns += time_ns
        self.counted += 2.0 * time_ns  # 2000 MHz

    def stamp(self):
        self.log.append("|")
        self.counted += self.stamp_cycles
        return self.after_wait(Stamp(self.counted, self.device_ns) if self.tells else None)

    def occupy(self, duration_ns):
        self.log.append("O")
        self.enqueue(duration_ns)

    def globaltimer_tick_ns(self):
        return self.globaltimer_ns if self.tells else None

    @property
    def slots(self) -> list[str]:
        """The log of the batches, without stamps: all behind the wait that ends the warm-up and the one that
        counts nothing.
        """
        waits = [at for at, what in enumerate(self.log) if what == "S"]
        return [what for what in self.log[waits[-1 - self.batches] + 1 :] if what not in ("|", "O")]

    batches = 1


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in ("quads", "timing"):
        monkeypatch.setattr(f"harness.measure.{module}.time", made)
    return made


def subject(name: str, *times_ns: float) -> Subject:
    built = NullBuilt(Program("toy.one", "one", name), "", itertools.cycle(times_ns))
    return Subject(built, LAUNCH, [name])


def pair(base=(MS,), head=(MS,)) -> KernelPair:
    return KernelPair(subject("A", *base), subject("B", *head))


def settings(**given) -> PairSettings:
    return dataclasses.replace(SHORT, **given)


def measured(device, contestants=None, *, seed=1, **given):
    return measure_pair(device, contestants or pair(), settings(**given), random.Random(seed))


def test_both_orders_occur_and_times_are_in_the_order_measured(clock):
    device = Recording(clock)
    block = measured(device, pair((MS,), (2 * MS,)), min_quads=40, max_quads=40)
    orders = Counter(quad.order for quad in block.quads)
    assert set(orders) == {"ABBA", "BAAB"}
    assert min(orders.values()) > 8
    for quad in block.quads:
        assert quad.times_ns == tuple({"A": MS, "B": 2 * MS}[side] for side in quad.order)
    slots = "".join(what[0] for what in device.slots if what[0] in "AB")
    assert slots.endswith("".join(quad.order for quad in block.quads))


def test_the_order_is_the_seeds(clock):
    def orders(seed):
        return [quad.order for quad in measured(Recording(clock), seed=seed).quads]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)


def test_the_effect_of_exact_times_is_exact(clock):
    block = measured(Recording(clock), pair((MS,), (1.01 * MS,)))
    ratios = log_ratios([quad.order for quad in block.quads], [quad.times_ns for quad in block.quads])
    assert process_effect(ratios).value == pytest.approx(math.log(1.01))


def test_what_a_function_returned_is_put_in_place_outside_of_times_and_cycles(clock):
    class Delivering(Recording):
        def deliver(self, built, arguments):
            self.enqueue(MS)

    block = measured(Delivering(clock), pair((MS,), (1.5 * MS,)))
    for quad in block.quads:
        assert quad.cycles == pytest.approx([2.0 * time_ns for time_ns in quad.times_ns])


def test_a_canary_goes_before_every_second_quad(clock):
    device = Recording(clock)
    block = measured(device, min_quads=9, max_quads=9)
    assert CANARY_EVERY == 2
    assert [quad.canary_ns for quad in block.quads] == [50 * US, None] * 4 + [50 * US]
    assert [quad.canary_cycles is not None for quad in block.quads] == [True, False] * 4 + [True]
    # One more at the start of the batch, before the lead-in: its time is nobody's.
    assert device.slots[0] == "C"
    assert device.slots.count("C") == 6
    quads = "".join(what[0] for what in device.slots[3:-1])
    assert [len(part) for part in quads.split("C")[1:]] == [8, 8, 8, 8, 4]


def test_a_device_without_a_canary_has_none(clock, monkeypatch):
    device = Recording(clock)
    monkeypatch.setattr(device, "canary", lambda: None)
    assert {(quad.canary_ns, quad.canary_cycles) for quad in measured(device).quads} == {(None, None)}


def test_a_lead_in_of_both_sides_goes_before_the_first_quad(clock):
    device = Recording(clock)
    measured(device, min_quads=5, max_quads=5, lead_in_s=0.01)
    assert device.slots[:11] == ["C", *["A1", "B1"] * 5]
    assert device.slots[11] == "C"


@pytest.mark.parametrize(("time_ns", "pairs"), [(MS, 15), (1.5 * US, 20), (1e9, 1)])
def test_the_lead_in_is_neither_endless_nor_nothing(clock, time_ns, pairs):
    device = Recording(clock)
    measured(device, pair((time_ns,), (time_ns,)), min_quads=5, max_quads=5, lead_in_s=0.03, max_time_s=1e6)
    slots = device.slots[1:]
    assert slots.index("C") == 2 * pairs


class Watching(Data):
    """Writes X for a change of data into a device's log, and down which kernels are begun and finished."""

    def __init__(self, log):
        self.log = log
        self.begun, self.finished = [], []

    def change(self):
        self.log.append("X")

    def begin(self, subject, time_ns):
        self.begun.append((subject.arguments[0], time_ns))

    def finish(self, subjects, launches):
        self.finished = ["".join(subject.arguments[0] for subject in subjects), launches]


@pytest.mark.parametrize(("l2", "slots"), [("hot", [2 + 5 * 4]), ("cold", [2 + 4, 4, 4, 4, 4])])
def test_data_change_before_a_batch_and_where_the_cache_is_flushed_before_each_quad(clock, l2, slots):
    device = Recording(clock, l2_bytes=2**20)
    data = Watching(device.log)
    measure_pair(device, pair(), settings(l2=l2, min_quads=5, max_quads=5), random.Random(1), data)
    launches = "".join(what[0] for what in device.log if what[0] in "XAB")
    assert [len(part) for part in launches.split("X")[1:]] == slots


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_kernels_are_looked_at_in_the_end_and_last_the_one_that_ran_last(clock, seed):
    data = Watching([])
    asked = settings(min_slot_ns=3 * MS)
    block = measure_pair(Recording(clock), pair((MS,), (2 * MS,)), asked, random.Random(seed), data)
    assert data.begun == [("B", MS), ("A", MS)]
    last = block.quads[-1].order[-1]
    assert data.finished == ["BA" if last == "A" else "AB", 3]


def test_every_cold_launch_has_a_flush_of_its_own_before_it(clock):
    device = Recording(clock, l2_bytes=2**20)
    block = measured(device, pair((40 * US,), (40 * US,)), l2=None, min_quads=5, max_quads=5)
    assert block.l2 == "cold"
    assert block.launches_per_slot == 3
    launches = [at for at, what in enumerate(device.slots) if what[0] in "AB"]
    assert len(launches) == 3 * (2 + 5 * 4)  # a lead-in of one pair
    assert all(device.slots[at] in ("A1", "B1") for at in launches)
    assert all(device.slots[at - 1] == "F" for at in launches)
    assert device.slots.count("F") == len(launches)
    assert {time for quad in block.quads for time in quad.times_ns} == {40 * US}
    # Stamps are behind the flush: cycles are those of the kernel.
    assert {cycles for quad in block.quads for cycles in quad.cycles} == {80 * US}
    assert {clock for quad in block.quads for clock in quad.sm_clock_mhz} == {2000.0}


def test_hot_launches_of_a_slot_are_timed_together(clock):
    device = Recording(clock)
    block = measured(device, pair((40 * US,), (50 * US,)))
    assert block.l2 == "hot"
    assert "F" not in device.log
    assert {what for what in device.slots if what[0] in "AB"} == {"A3", "B3"}
    assert {time for quad in block.quads for time in quad.times_ns} == {40 * US, 50 * US}
    assert {cycles for quad in block.quads for cycles in quad.cycles} == {80 * US, 100 * US}


@pytest.mark.parametrize(
    ("base", "head", "least", "launches"),
    [
        (MS, MS, 1e5, 1),
        (40 * US, 80 * US, 1e5, 3),
        (80 * US, 40 * US, 1e5, 3),
        (US, US, 1e5, 100),
        (40 * US, 40 * US, 1e6, 25),
    ],
)
def test_slots_are_as_long_as_asked_for_of_the_faster_side(clock, base, head, least, launches):
    block = measured(Recording(clock), pair((base,), (head,)), min_slot_ns=least)
    assert block.launches_per_slot == launches


def test_a_pair_whose_scatter_is_small_takes_the_least_number(clock):
    assert len(measured(Recording(clock), min_quads=25, max_quads=100).quads) == 25


def scattered(by: float = 0.05, effect: float = 0.0) -> KernelPair:
    noisy = [MS * (1 + by * random.Random(1).gauss(0, 1) * (n % 3)) for n in range(997)]
    return pair(noisy, [time_ns * (1 + effect) for time_ns in noisy[::-1]])


def test_a_pair_that_scatters_takes_quads_until_it_is_precise_or_has_the_most(clock):
    def count(contestants, most, precise):
        given = {"min_quads": 10, "max_quads": most, "standard_error": precise}
        return len(measured(Recording(clock), contestants, max_time_s=1e6, **given).quads)

    assert count(scattered(), 42, 0.001) == 42
    assert 10 < count(scattered(), 400, 0.012) < count(scattered(), 400, 0.006) < 400
    # What is far from the same need not be known as well.
    assert count(scattered(effect=1.0), 400, 0.006) < count(scattered(), 400, 0.006)


@pytest.mark.parametrize(("time_ns", "count"), [(10 * US, 12), (1.2 * MS, 12), (2 * MS, 6), (20 * MS, 6)])
def test_where_launches_are_long_half_as_many_quads_are_enough(clock, time_ns, count):
    assert len(measured(Recording(clock), pair((time_ns,), (time_ns,))).quads) == count


@pytest.mark.parametrize("effect", [1000.0, 1 / 1000])
def test_arms_a_thousandfold_apart_take_the_fewest_quads(clock, effect):
    block = measured(Recording(clock), pair((MS,), (MS * effect,)), max_time_s=1e6)
    assert len(block.quads) <= 12
    assert block.launches_per_slot == launches_per_slot(min(MS, MS * effect), 1.0, SHORT.min_slot_ns)


@pytest.mark.parametrize("cycles", [True, False])
def test_times_that_read_nothing_end_the_block_at_its_fewest_quads(clock, cycles):
    """A kernel shorter than the timer's tick, and one of which every second time is 0."""
    for times in ((0.0,), (0.0, US)):
        block = measured(Recording(clock, cycles=cycles), pair(times, times), max_quads=100)
        assert len(block.quads) == 12
        assert {time_ns for quad in block.quads for time_ns in quad.times_ns} <= {0.0, US, US / 2}
    assert block.clock_noise is None or math.isfinite(block.clock_noise)


@pytest.mark.parametrize(("limit_s", "count"), [(0.001, 10), (0.1, 22), (100.0, 40)])
def test_no_quad_is_begun_beyond_the_time_but_the_first_batch_is_whole(clock, limit_s, count):
    """Batches of 10, 20 and 10 quads: some 45, 90 and 45 ms."""
    noisy = pair((MS, 1.1 * MS, 1.05 * MS), (1.1 * MS, MS, 1.07 * MS))
    block = measured(
        Recording(clock), noisy, min_quads=10, max_quads=40, max_time_s=limit_s, standard_error=1e-9
    )
    assert len(block.quads) == count


def test_at_least_five_quads_are_needed_to_be_precise(clock):
    assert len(measured(Recording(clock), min_quads=2, max_quads=100).quads) == 5


def test_quads_lie_in_order_inside_their_batch_by_the_devices_own_time(clock):
    device = Recording(clock)
    block = measured(device, pair((MS,), (2 * MS,)), min_quads=10, max_quads=10)
    quads = block.quads
    assert all(quad.ended_ns - quad.started_ns == pytest.approx(6 * MS, abs=2) for quad in quads)
    for before, after in itertools.pairwise(quads):
        gap_ns = 50 * US if after.canary_ns else 0
        assert after.started_ns - before.ended_ns == pytest.approx(gap_ns, abs=2)
    assert quads[-1].ended_ns == pytest.approx(clock.now_ns, abs=2)
    assert quads[0].started_ns > START_NS


def test_without_stamps_quads_are_spread_over_their_batch(clock):
    device = Recording(clock, cycles=False)
    block = measured(device, pair((MS,), (2 * MS,)), min_quads=10, max_quads=10)
    assert {(quad.cycles, quad.sm_clock_mhz, quad.canary_cycles) for quad in block.quads} == {
        (None, None, None)
    }
    assert block.clock_noise is None
    edges = [edge for quad in block.quads for edge in (quad.started_ns, quad.ended_ns)]
    assert edges == sorted(edges)
    assert edges[0] >= START_NS
    assert edges[-1] == pytest.approx(clock.now_ns, abs=2)
    lengths = [quad.ended_ns - quad.started_ns for quad in block.quads]
    assert max(lengths) == pytest.approx(min(lengths), abs=2)


def test_batches_do_not_overlap(clock):
    noisy = pair((MS, 1.1 * MS, 1.05 * MS), (1.1 * MS, MS, 1.07 * MS))
    block = measured(Recording(clock), noisy, min_quads=10, max_quads=40, standard_error=1e-9)
    edges = [edge for quad in block.quads for edge in (quad.started_ns, quad.ended_ns)]
    assert edges == sorted(edges)


def test_what_stamps_themselves_take_is_no_cycle_of_a_kernel(clock):
    with_cost = measured(Recording(clock, stamp_cycles=300.0))
    assert median(cycles for quad in with_cost.quads for cycles in quad.cycles) == pytest.approx(2 * MS)
    device = Recording(clock, stamp_cycles=300.0, l2_bytes=2**20)
    cold = measured(device, pair((40 * US,), (40 * US,)), l2="cold")
    assert median(cycles for quad in cold.quads for cycles in quad.cycles) == pytest.approx(80 * US)
    assert median(quad.canary_cycles for quad in cold.quads if quad.canary_cycles) == pytest.approx(100 * US)


@pytest.mark.parametrize("late", [1, 17])
def test_stamps_that_come_late_do_not_count_as_what_stamps_take(clock, late):
    class Starting(Recording):
        """The card waits for each of its first stamps, as for those of a process that has just begun."""

        stamps = 0

        def stamp(self):
            self.stamps += 1
            self.counted += 60_000.0 * (self.stamps <= late)
            return super().stamp()

    block = measured(Starting(clock, stamp_cycles=300.0))
    assert median(quad.canary_cycles for quad in block.quads if quad.canary_cycles) == pytest.approx(100 * US)
    assert median(cycles for quad in block.quads for cycles in quad.cycles) == pytest.approx(2 * MS)


def test_clocks_are_rounded_by_the_ticks_of_the_devices_timer(clock):
    device = Recording(clock)
    device.globaltimer_ns = 1000.0
    block = measured(device, pair((MS,), (MS,)))
    assert block.clock_noise == pytest.approx(1e-3 / math.sqrt(6), rel=1e-3)


def test_the_block_says_how_it_was_measured(clock):
    block = measured(Recording(clock), min_quads=10, max_quads=10)
    assert block.clock == "scripted"
    assert block.tick_ns == 1.0
    # Ten quads, a lead-in of a pair, six canaries, and what occupied the card meanwhile.
    assert block.gpu_s == pytest.approx(0.0423, abs=0.003)
    assert block.telemetry is None


@pytest.mark.parametrize(
    ("times", "settled", "warmup_s"), [((MS,), True, 0.1), ((MS, 3 * MS, 2 * MS, 7 * MS), False, 0.5)]
)
def test_both_kernels_warm_the_card_up_until_times_settle(clock, times, settled, warmup_s):
    device = Recording(clock)
    block = measured(device, pair(times, times), warmup_min_s=0.1, warmup_max_s=0.5)
    assert block.settled is settled
    assert block.warmup_s == pytest.approx(warmup_s, rel=0.3)
    assert device.log[:3] == ["A1", "B1", "S"]


def test_the_device_is_kept_busy_while_short_launches_are_enqueued(clock):
    short, long = Recording(clock), Recording(clock)
    measured(short, pair((US,), (US,)), max_quads=25)
    measured(long, pair((MS,), (MS,)), max_quads=25)
    # Both once for the cost of stamps; a queue of short launches must get ahead of the card.
    assert (short.log.count("O"), long.log.count("O")) == (2, 1)


def test_made_up_clocks_come_back_as_they_were():
    """The null device's own stamps and canary, on the real clock of the host."""
    device = NullDevice(devices()[0], {"noise": {"kind": "quiet", "seed": 1}})
    block = measured(device, min_quads=25, max_quads=25)
    assert all(clock == pytest.approx(1980) for quad in block.quads for clock in quad.sm_clock_mhz)
    for quad in block.quads:
        assert quad.cycles == pytest.approx([time * 1.98 for time in quad.times_ns])
    assert block.clock_noise == pytest.approx(1 / MS / math.sqrt(6), rel=0.05)


@pytest.mark.parametrize(("time_ns", "duration_s"), [(MS, 1.0), (10 * US, 0.2), (2e9, 1.0)])
def test_a_kernel_alone_runs_for_as_long_as_asked_without_flushes(clock, time_ns, duration_s):
    device = Recording(clock, l2_bytes=2**20)
    alone = run_alone(device, subject("A", time_ns), duration_s)
    assert "F" not in device.log
    assert alone.started_ns == START_NS
    assert alone.ended_ns == clock.monotonic_ns()
    took_s = (alone.ended_ns - alone.started_ns) / 1e9
    assert duration_s <= took_s <= max(duration_s + 0.06, time_ns / 1e9)
    assert alone.time_ns == pytest.approx(time_ns)
    assert alone.launches == pytest.approx(took_s * 1e9 / time_ns)
    assert alone.sm_clock_mhz == pytest.approx(2000.0)
    assert device.log[:5] == ["|", "A1", "|", "S", *device.log[4:5]]


def test_a_kernel_alone_waits_for_the_device_now_and_then_only(clock):
    device = Recording(clock)
    run_alone(device, subject("A", MS), 1.0)
    assert 15 <= device.log.count("S") <= 40


def test_a_kernel_alone_on_a_device_without_stamps_has_no_clock(clock):
    alone = run_alone(Recording(clock, cycles=False), subject("A", MS), 0.1)
    assert alone.sm_clock_mhz is None
    assert alone.launches >= 100


def test_a_turn_is_one_slot_behind_launches_that_count_nothing(clock):
    device, alone = Recording(clock), subject("A", MS)
    runner = SlotRunner(device, KernelPair(alone, alone), "hot", 3, random.Random(1), UNWATCHED, MS)
    device.log.clear()
    turn = runner.turn(0.006, canary=True)
    assert [what for what in device.log if what != "|"] == ["C", "A3", "A3", "C", "A3", "S"]
    assert (turn.time_ns, turn.canary_ns) == (MS, 50 * US)
    assert turn.sm_clock_mhz == pytest.approx(2000)
    assert turn.ended_ns - turn.started_ns == 9 * MS + 2 * 50 * US
    assert runner.turn(0.0, canary=False).canary_ns is None


class Slow(Recording):
    """Its host takes `enqueue_ns` for a launch, H in the log for a hold and h where it is released."""

    def __init__(self, clock: Clock, enqueue_ns: float, **given):
        super().__init__(clock, **given)
        self.enqueue_ns = enqueue_ns

    def timed(self, built, launch, arguments, launches):
        self.host.now_ns += self.enqueue_ns
        return super().timed(built, launch, arguments, launches)

    def hold(self):
        self.log.append("H")
        return lambda: self.log.append("h")


def enqueued(device: Recording) -> str:
    """Slots and canaries, and where the card was held and let go."""
    return "".join(what[0] for what in device.slots if what[0] in "ABCHh")


def held_before(what: str, block: PairedBlock) -> str:
    """What was enqueued for a block whose card is held before these alone."""
    slots = "".join(
        ("" if number % CANARY_EVERY else "C") + quad.order for number, quad in enumerate(block.quads)
    )
    return "".join(f"H{slot}h" if slot in what else slot for slot in slots)


@pytest.mark.parametrize(("enqueue_ns", "held"), [(40 * US, False), (400 * US, True)])
@pytest.mark.parametrize("host_bound", ["A", "B"])
def test_a_host_that_is_slower_than_the_card_has_it_wait_for_each_slot(clock, enqueue_ns, held, host_bound):
    times = {"A": (50 * US,), "B": (50 * US,)}
    device = Slow(clock, 0.0)
    timed = device.timed

    def slow(built, launch, arguments, launches):
        device.enqueue_ns = enqueue_ns if arguments[0] == host_bound else 0.0
        return timed(built, launch, arguments, launches)

    device.timed = slow  # type: ignore[method-assign]
    block = measured(device, pair(times["A"], times["B"]), min_quads=6, max_quads=6)
    assert enqueued(device).endswith(held_before("ABC" if held else "", block))


@pytest.mark.parametrize("time_ns", [50 * US, MS])
def test_in_turns_each_slot_is_held_until_it_is_enqueued(clock, time_ns):
    """Even of a kernel that a slow host's warm-up took for a long one: no queue is ahead of the card."""
    device, alone = Slow(clock, 0.0), subject("A", 50 * US)
    runner = SlotRunner(device, KernelPair(alone, alone), "cold", 3, random.Random(1), UNWATCHED, time_ns)
    device.log.clear()
    runner.turn(1e-6, canary=True)
    held = "".join(what[0] for what in device.log if what[0] in "ACHh")
    assert held == "CHAAAhHChHAAAh"


class Waiting(Slow):
    """Launches of B wait for the card: for one that is held, until that lets go by itself."""

    def timed(self, built, launch, arguments, launches):
        marks = [what for what in self.log if what in ("H", "h")]
        self.enqueue_ns = MOST_HELD_NS if arguments[0] == "B" and marks[-1:] == ["H"] else 400 * US
        return super().timed(built, launch, arguments, launches)


def test_what_waits_for_the_card_itself_is_not_held(clock):
    device = Waiting(clock, 0.0)
    block = measured(device, pair((50 * US,), (50 * US,)), min_quads=6, max_quads=6)
    assert enqueued(device).endswith(held_before("AC", block))


def test_launches_whose_times_are_thrown_away_take_no_longer_on_a_slow_host(clock):
    """Held, each slot takes the host 4 ms: two pairs fill 10 ms, which would take the card 100."""
    device = Slow(clock, 4 * MS)
    measured(device, pair((50 * US,), (50 * US,)), min_quads=6, max_quads=6, lead_in_s=0.01)
    assert enqueued(device).count("H") == 2 * 2 + 4 * 6 + 6 / CANARY_EVERY


def test_a_card_that_found_its_queue_empty_is_held_from_then_on(clock):
    """Every second canary waited for the host, which no slot of the trial did."""
    device = Slow(clock, 0.0)
    canaries = itertools.cycle([50 * US, 90 * US])
    device.canary = lambda: device._later(next(canaries) if "h" not in device.log[50:] else 50 * US)  # type: ignore[method-assign]
    block = measured(device, pair((50 * US,), (50 * US,)), min_quads=12, max_quads=12)
    assert len(block.quads) == 12
    assert {quad.canary_ns for quad in block.quads if quad.canary_ns} == {50 * US}
    # This device writes down no canary, but that it is held before one.
    assert enqueued(device).endswith(held_before("ABC", block).replace("C", ""))


def test_without_counters_nobody_knows_whether_the_host_is_slow(clock):
    device = Slow(clock, 400 * US, cycles=False)
    assert len(measured(device, pair((50 * US,), (50 * US,)), min_quads=6, max_quads=6).quads) == 6
    assert "H" not in device.slots
