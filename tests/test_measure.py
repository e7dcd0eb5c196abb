"""Timing on the null device, whose clock is a script: what is done in which order, and when it ends."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.device.backends.base import MOST_GRAPH_LAUNCHES, MOST_HELD_NS
from harness.device.backends.null import NullBuilt
from harness.measure.timing import MOST_LAUNCHES_QUEUED, Data, MeasureSettings, Subject, measure
from harness.records.types import Launch
from harness.suite.sources import Program
from tests.recording import START_NS, Clock, RecordingDevice

MS = 1_000_000.0
LAUNCH = Launch(grid=(1, 1, 1), block=(32, 1, 1))


class Recording(RecordingDevice):
    """Writes down what it is asked for, in the language of `said`."""

    def __init__(self, clock, *, tick_ns=1.0, flush_ns=0.0, **info):
        super().__init__(clock, **info)
        self.tick, self.flush_ns = tick_ns, flush_ns

    def timed(self, built, launch, arguments, launches):
        assert replace(launch, graph=False) == LAUNCH
        assert list(arguments) == ["x", "y"]
        time_ns = self.run(built, arguments, launches)
        self.log.append(f"T{launches}")
        self.enqueue(time_ns)
        return self.after_wait(time_ns)

    def occupy(self, duration_ns):
        self.log.append(f"O{duration_ns}")

    def tick_ns(self):
        return self.tick

    def launch(self, *_):
        raise AssertionError("an untimed launch")


def said(text: str) -> list[str]:
    """A log in words: T3 is three launches timed together, F a flush, O5 an occupation of 5 ns, S a wait;
    2*(F T1) is F T1 F T1.
    """
    innermost = re.compile(r"(\d+)\*\(([^()]*)\)")
    while match := innermost.search(text):
        text = text[: match.start()] + " ".join([match[2]] * int(match[1])) + text[match.end() :]
    return text.split()


def test_the_language():
    assert said("T1 2*(O5 2*(F T1) S)") == ["T1", *["O5", "F", "T1", "F", "T1", "S"] * 2]


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("harness.measure.timing.time", made)
    return made


@pytest.fixture
def measured(clock):
    def run(times, *, tick_ns=1.0, flush_ns=0.0, info=None, warms_up=True, graph=False, **settings):
        """Measure a kernel whose launches take these times, again and again."""
        device = Recording(clock, tick_ns=tick_ns, flush_ns=flush_ns, **(info or {}))
        device.warms_up = warms_up
        times = itertools.cycle(times) if isinstance(times, (list, tuple)) else times
        built = NullBuilt(Program("toy.one", "one", ""), "", iter(times))
        subject = Subject(built, replace(LAUNCH, graph=graph), ["x", "y"])
        found = measure(device, subject, MeasureSettings(**settings))
        return SimpleNamespace(found=found, log=device.log)

    return run


WARM_1_MS = "T1 S 10*(T10 S)"
"""A window of one launch, then windows of a tenth of the least warm-up until it is over."""
NOISY = [1.0 * MS, 1.2 * MS]


@pytest.mark.parametrize(
    ("times", "settings", "log"),
    [
        pytest.param(
            [1 * MS], {"l2": "cold"}, f"{WARM_1_MS} 10*(20*(F T1) S)", id="cold: a flush before every launch"
        ),
        pytest.param([1 * MS], {"l2": "hot"}, f"{WARM_1_MS} 10*(20*(T1) S)", id="hot: none"),
        pytest.param(
            [1 * MS],
            {"l2": "cold", "min_slot_ns": 4 * MS},
            f"{WARM_1_MS} 10*(5*(F T1 F T1 F T1 F T1) S)",
            id="cold: launches of a slot are timed one by one",
        ),
        pytest.param(
            [1 * MS],
            {"l2": "hot", "min_slot_ns": 4 * MS},
            f"{WARM_1_MS} 10*(5*(T4) S)",
            id="hot: launches of a slot are timed together",
        ),
        pytest.param(
            [1000.0],
            {"l2": "hot", "max_slots": 5, "min_time_s": 9},
            "T1 S 500*(T200 S) O4000000 T100 T100 S O4000000 T100 T100 S O2000000 T100 S",
            id="short kernels queue behind an occupied device",
        ),
        pytest.param(
            [1000.0],
            {"l2": "cold", "max_slots": 3, "min_time_s": 9},
            "T1 S 500*(T200 S) O4000000 200*(F T1) S O2000000 100*(F T1) S",
            id="cold short kernels too",
        ),
        pytest.param(
            [1 * MS],
            {"l2": "hot", "max_slots": 45, "min_time_s": 9, "max_time_s": 9},
            f"{WARM_1_MS} 2*(20*(T1) S) 5*(T1) S",
            id="the last batch is cut to the slots that are left",
        ),
        pytest.param([2000 * MS], {"l2": "cold"}, "T1 S 3*(F T1 S)", id="a launch longer than all budgets"),
    ],
)  # fmt: skip
def test_the_order_of_operations(measured, times, settings, log):
    assert measured(times, **settings).log == said(log)


class Watching(Data):
    """Writes P for poison, X for a change of data and C for a sample into a device's log."""

    def __init__(self, log):
        self.log = log
        self.told = []

    def poison(self):
        self.log.append("P")

    def change(self):
        self.log.append("X")

    def begin(self, subject, time_ns):
        self.told.append(("begin", time_ns))

    def sample(self, subject):
        self.log.append("C")

    def finish(self, subjects, launches):
        self.told.append(("finish", len(subjects), launches))


@pytest.mark.parametrize(
    ("policy", "slots"),
    [
        pytest.param("cold", "X 5*(2*(P F T1) C) S", id="cold: poison before each flush"),
        pytest.param("hot", "X 5*(P T2 C) S", id="hot: before each slot"),
    ],
)
def test_outputs_are_poisoned_and_sampled_outside_every_time(clock, policy, slots):
    device = Recording(clock)
    built = NullBuilt(Program("toy.one", "one", ""), "", itertools.repeat(1 * MS))
    data = Watching(device.log)
    settings = MeasureSettings(l2=policy, min_slot_ns=2 * MS, max_slots=5, min_time_s=9)
    measure(device, Subject(built, LAUNCH, ["x", "y"]), settings, data)
    assert device.log[-len(said(slots)) :] == said(slots)
    assert data.told == [("begin", 1 * MS), ("finish", 1, 2)]


@pytest.mark.parametrize(
    ("l2_bytes", "asked", "policy"),
    [(None, None, "hot"), (50_000_000, None, "cold"), (50_000_000, "hot", "hot"), (1, "cold", "cold")],
)
def test_cold_where_the_cache_can_be_flushed_unless_told(measured, l2_bytes, asked, policy):
    run = measured([1 * MS], info={"l2_bytes": l2_bytes}, l2=asked)
    assert run.found.l2 == policy
    assert ("F" in run.log) is (policy == "cold")


@pytest.mark.parametrize("policy", ["cold", "hot"])
def test_a_slots_time_is_the_mean_of_its_launches(measured, policy):
    times = [1 * MS, 2 * MS, 3 * MS, 6 * MS]
    found = measured(times, l2=policy, min_slot_ns=6 * MS, max_slots=3, min_time_s=9).found
    launches = itertools.islice(itertools.cycle(times), found.warmup_launches, None)
    each = found.launches_per_slot
    assert each > 1
    assert found.times_ns == tuple(sum(itertools.islice(launches, each)) / each for _ in range(3))


def test_times_are_kept_in_the_order_measured(measured):
    found = measured(itertools.count(1 * MS), l2="hot", max_slots=50, min_time_s=9).found
    assert found.times_ns == tuple(1 * MS + found.warmup_launches + index for index in range(50))


@pytest.mark.parametrize(
    ("time_ns", "tick_ns", "min_slot_ns", "launches"),
    [
        pytest.param(1000.0, 1.0, 0.0, 1, id="a launch is long enough"),
        pytest.param(1000.0, 10.0, 0.0, 1, id="a launch is a hundred ticks"),
        pytest.param(999.0, 10.0, 0.0, 2, id="a launch is less than a hundred ticks"),
        pytest.param(1000.0, 1000.0, 0.0, 100, id="a coarse clock"),
        pytest.param(1000.0, 1.0, 100_000.0, 100, id="the least slot"),
        pytest.param(30_000.0, 1.0, 100_000.0, 4, id="rounded up"),
        pytest.param(1000.0, 500.0, 100_000.0, 100, id="the least slot over the ticks"),
        pytest.param(1000.0, 1500.0, 100_000.0, 150, id="the ticks over the least slot"),
        pytest.param(1.0, 1.0, 100_000.0, MOST_LAUNCHES_QUEUED, id="no more than drivers queue"),
        pytest.param(1.0, 0.0, 0.0, 1, id="no bound at all"),
    ],
)
def test_launches_per_slot(measured, time_ns, tick_ns, min_slot_ns, launches):
    found = measured(
        [time_ns], tick_ns=tick_ns, min_slot_ns=min_slot_ns, l2="hot", max_slots=3, warmup_max_s=0.001
    ).found
    assert found.launches_per_slot == launches
    assert found.tick_ns == tick_ns


@pytest.mark.parametrize(
    ("time_ns", "l2", "launches", "slots"),
    [
        pytest.param(1 * MS, None, 1, "20*(T1) S", id="a launch is long enough"),
        pytest.param(3000.0, None, 256, "O520000 26*(T256) S", id="a power of two of short ones"),
        pytest.param(1.0, None, MOST_GRAPH_LAUNCHES, "O4000000 200*(T512) S", id="not too many"),
        pytest.param(50_000.0, "cold", 2, "O4000000 100*(F T1 F T1) S", id="cold: a graph for each launch"),
    ],
)
def test_a_slot_by_graph_is_one_replay(measured, time_ns, l2, launches, slots):
    run = measured([time_ns], graph=True, l2=l2, warmup_max_s=0.001, info={"l2_bytes": 1})
    assert (run.found.l2, run.found.launches_per_slot) == (l2 or "hot", launches)
    assert " ".join(said(slots)) in " ".join(run.log)


def test_a_steady_kernel_is_warm_when_the_least_time_is_over(measured):
    found = measured([1 * MS]).found
    assert (found.settled, found.warmup_launches) == (True, 101)
    assert found.warmup_s == pytest.approx(0.101)


def test_warm_up_lasts_until_times_settle(measured):
    speeding_up = (max(1 * MS, 3 * MS * 0.99**number) for number in itertools.count())
    found = measured(speeding_up).found
    assert found.settled
    # From 3 ms to 1 ms takes 110 launches.
    assert found.warmup_launches > 110
    assert found.warmup_s < 1.0


def test_warm_up_ends_with_its_budget_and_says_so(measured):
    slowing_down = (1 * MS * 1.02**number for number in itertools.count())
    found = measured(slowing_down, max_slots=3).found
    assert not found.settled
    assert 1.0 <= found.warmup_s < 1.1


@pytest.mark.parametrize(("least", "most"), [(0.0, 1.0), (0.3, 1.0), (0.1, 0.05)])
def test_warm_ups_bounds(measured, least, most):
    found = measured([1 * MS], warmup_min_s=least, warmup_max_s=most, max_slots=3).found
    assert found.warmup_s >= min(least, most)
    assert found.warmup_s <= min(least, most) + max(least / 10, 0.003)


def test_one_launch_may_be_the_whole_warm_up(measured):
    found = measured([2000 * MS]).found
    assert (found.warmup_launches, found.settled) == (1, False)


def test_two_windows_that_agree_are_not_yet_settled(measured):
    """The first window is of one launch, which may carry what happens once."""
    found = measured([1 * MS], warmup_min_s=0.0, max_slots=3).found
    assert found.warmup_launches == 3
    assert found.settled


def test_a_device_that_does_not_warm_up_is_kept_busy_for_no_least_time(measured):
    found = measured([1 * MS], warms_up=False, warmup_min_s=0.5, min_time_s=0.5, max_time_s=2).found
    assert (found.warmup_launches, found.settled) == (3, True)
    assert (len(found.times_ns), found.stopped_by) == (20, "precision")


@pytest.mark.parametrize(
    ("noise", "precision", "stopped_by"),
    [
        pytest.param(0.0, 0.002, "precision", id="no noise"),
        pytest.param(0.003, 0.002, "precision", id="less than asked"),
        pytest.param(0.005, 0.002, "time", id="more than asked"),
        pytest.param(0.005, 0.003, "precision", id="less asked"),
    ],
)
def test_it_stops_when_the_interval_is_narrow_enough(measured, noise, precision, stopped_by):
    found = measured([1 * MS, (1 + noise) * MS], precision=precision).found
    assert found.stopped_by == stopped_by
    low, high = min(found.times_ns), max(found.times_ns)
    half_width = (high - low) / (high + low)
    assert (half_width < precision) is (stopped_by == "precision")


@pytest.mark.parametrize(
    ("min_slots", "min_time_s", "slots"),
    [
        pytest.param(20, 0.0, 20, id="the least slots"),
        pytest.param(50, 0.0, 60, id="the least slots, to the end of a batch"),
        pytest.param(20, 0.2, 200, id="the least time"),
        pytest.param(0, 0.0, 20, id="a batch"),
    ],
)
def test_precision_waits_for_slots_and_time(measured, min_slots, min_time_s, slots):
    found = measured([1 * MS], min_slots=min_slots, min_time_s=min_time_s).found
    assert (found.stopped_by, len(found.times_ns)) == ("precision", slots)


@pytest.mark.parametrize("most", [1, 3, 20, 37, 400])
def test_it_stops_at_the_most_slots(measured, most):
    found = measured(NOISY, max_slots=most, max_time_s=9).found
    assert (found.stopped_by, len(found.times_ns)) == ("slots", most)


def elapsed_s(found):
    return (found.ended_ns - found.started_ns) / 1e9


@pytest.mark.parametrize(
    ("kind", "asked", "seconds"),
    [("gpu", None, 2.0), ("cpu", None, 1.0), ("other", None, 1.0), ("gpu", 0.5, 0.5)],
)
def test_it_stops_when_the_time_is_over(measured, kind, asked, seconds):
    found = measured(NOISY, info={"kind": kind}, max_time_s=asked).found
    assert found.stopped_by == "time"
    # Some 20 ms are enqueued at once.
    assert seconds <= elapsed_s(found) < seconds + 0.025


@pytest.mark.parametrize("policy", ["cold", "hot"])
def test_a_long_kernel_still_gets_three_slots(measured, policy):
    found = measured([700 * MS, 900 * MS], l2=policy, max_time_s=0.1).found
    assert (found.stopped_by, len(found.times_ns)) == ("time", 3)


def test_time_for_flushes_is_part_of_the_time_and_of_no_slot(measured):
    found = measured([1 * MS], flush_ns=9 * MS, l2="cold").found
    assert set(found.times_ns) == {1 * MS}
    assert elapsed_s(found) == pytest.approx(len(found.times_ns) * 0.010)


class SlowToEnqueue(Recording):
    """Its host takes so long for each timing, H in the log for a hold and h where it is released."""

    enqueue_ns = 50_000

    def timed(self, built, launch, arguments, launches):
        self.host.now_ns += self.enqueue_ns
        return super().timed(built, launch, arguments, launches)

    def hold(self):
        self.log.append("H")
        return lambda: self.log.append("h")


@pytest.mark.parametrize(
    ("by_host", "enqueue_ns", "slots"),
    [(True, 50_000, ["H", "T2", "h"]), (True, MOST_HELD_NS, ["T2"]), (False, 50_000, ["T2"])],
)
def test_code_of_the_hosts_that_is_slow_to_enqueue_has_the_device_wait_for_each_slot(
    clock, by_host, enqueue_ns, slots
):
    """But for what waits for the device itself: then that waits until the hold ends."""
    device = SlowToEnqueue(clock)
    device.enqueue_ns = enqueue_ns
    built = NullBuilt(Program("toy.one", "one", ""), "", itertools.repeat(0.05 * MS), by_host=by_host)
    settings = MeasureSettings(l2="hot", max_slots=20, min_time_s=9)
    measure(device, Subject(built, LAUNCH, ["x", "y"]), settings)
    assert device.log[-1 - 20 * len(slots) : -1] == slots * 20


def test_what_else_is_kept(measured, clock):
    run = measured([1 * MS], tick_ns=32.0, l2="cold")
    found = run.found
    assert (found.clock, found.tick_ns, found.l2) == ("scripted", 32.0, "cold")
    assert found.ended_ns == clock.monotonic_ns()
    assert found.started_ns == START_NS + 101 * MS
    assert math.fsum(found.times_ns) == pytest.approx(found.ended_ns - found.started_ns)
