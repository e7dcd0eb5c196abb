"""Eight hundred verdicts on the null device, whose noise is made up and whose truth is known.

Here in one process: a fresh null device stands for a fresh worker, whose programs it slows or speeds up as
the places of code and data do on a card. All else is as `Comparing` has it: blocks as long as the verdict
needs them, gates, looks, fresh processes to confirm.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import pytest

from harness.device.backends.null import NullDevice, devices
from harness.device.backends.null_noise import KINDS
from harness.device.telemetry.fixed import STEADY
from harness.judgement.case_trial import CaseTrial, settle
from harness.judgement.gates import CanaryLevel, GatePolicy, canary_level, gate, usual_level
from harness.judgement.judge import Policy
from harness.measure.quads import KernelPair, PairSettings, measure_pair
from harness.measure.timing import Subject
from harness.records.types import Launch, PairedBlock, Snapshot, Telemetry, Verdict
from harness.suite.problem import Case
from harness.suite.sources import Program
from tests.support import no_oftener_than

MS = 1_000_000
LAUNCH = Launch(grid=(1, 1, 1), block=(32, 1, 1))
POLICY = Policy()
# Neither warm-up nor more than a short lead-in: the clock is made up. No block ends by the host's.
SETTINGS = PairSettings(warmup_min_s=0, warmup_max_s=0, lead_in_s=0.005, max_time_s=1e6)

SAME, MARGIN, HALF, ONE = 0.0, POLICY.margin, 0.005, 0.01
SUITE = (*[SAME] * 12, *[MARGIN] * 2, *[HALF] * 2, *[ONE] * 4)
"""Slowdown of each kernel of a suite at head. A suite is one comparison."""
SEEDS = range(4)
"""Comparisons by their seeds: 80 verdicts of each kind of noise."""
FEWEST_FOUND = {HALF: 0.9, ONE: 0.99}
"""Share of slowdowns that are called regressions, at least, whatever the noise."""


@dataclass(frozen=True)
class Outcome:
    slower: float
    verdict: Verdict
    flagged: bool
    """True if it was called slower or faster before it was measured again."""


def pair(device: NullDevice, number: int, slower: float) -> KernelPair:
    """Kernel `number` at base and at head, as texts that differ and say how long they take."""
    sides = []
    for name, time_ns in (("base", float(MS)), ("head", MS * (1 + slower))):
        text = f"#define NULL_DEVICE_NS {time_ns}\n// {name} of {number}\n"
        sides.append(Subject(device.build(Program("toy.one", "one", text)), LAUNCH, ()))
    return KernelPair(*sides)


def watched(block: PairedBlock) -> PairedBlock:
    """The block with what a card that works undisturbed says of it."""
    began, ended = block.quads[0].started_ns, block.quads[-1].ended_ns

    def at(moment_ns: int) -> Snapshot:
        return replace(STEADY, at_ns=moment_ns)

    return replace(
        block,
        telemetry=Telemetry(
            probe="scripted",
            before=at(began - 1),
            during=tuple(at(began + (ended - began) * step // 4) for step in range(5)),
            after=at(ended + 1),
            foreign_processes=(),
        ),
    )


class Comparison:
    """A comparison of one suite at two commits, on a card with one kind of noise."""

    def __init__(
        self, kind: str, seed: int, suite: Sequence[float] = SUITE, offset: float | None = None
    ) -> None:
        self.noise = {"kind": kind} if offset is None else {"kind": kind, "offset": offset}
        self.suite, self.rng = suite, random.Random(seed)
        self.trials = [CaseTrial(str(n), Case("toy", f"k{n}", {"n": 64}), POLICY) for n in range(len(suite))]
        self.levels: list[CanaryLevel] = []

    def outcomes(self) -> Iterator[Outcome]:
        while wanting := [one for one in self.trials if not one.settled]:
            self.process(wanting)
            settle(self.trials, POLICY)
        for trial, slower in zip(self.trials, self.suite, strict=True):
            yield Outcome(slower, trial.verdict(), trial.confirming)

    def process(self, trials: Sequence[CaseTrial]) -> None:
        device = NullDevice(devices()[0], {"noise": {**self.noise, "seed": self.rng.getrandbits(32)}})
        for trial in self.rng.sample(list(trials), len(trials)):
            number, wanted = int(trial.id), trial.precision
            settings = replace(
                SETTINGS,
                standard_error=wanted.standard_error,
                min_quads=max(SETTINGS.min_quads, wanted.min_quads),
            )
            order = random.Random(self.rng.getrandbits(32))
            block = watched(measure_pair(device, pair(device, number, self.suite[number]), settings, order))
            trial.add(block, gate(block, GatePolicy(), usual=usual_level(self.levels)))
            self.levels.append(canary_level(block.quads))


class Battery:
    """The outcomes of many comparisons."""

    def __init__(self, kind: str, seeds: range, **given) -> None:
        self.outcomes = [outcome for seed in seeds for outcome in Comparison(kind, seed, **given).outcomes()]

    def of(self, slower: float) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.slower == slower]

    def statuses(self, slower: float) -> Counter[str]:
        return Counter(outcome.verdict.status for outcome in self.of(slower))

    def mean_effect(self, slower: float) -> float:
        return fmean(outcome.verdict.time.effect for outcome in self.of(slower) if outcome.verdict.time)


def check_false_alarms(battery: Battery) -> None:
    """Code that is the same, or slower by what is nobody's business, is never called slower or faster."""
    for slower in (SAME, MARGIN):
        found = battery.statuses(slower)
        assert found["regression"] + found["improvement"] == 0, found
    # Before it is measured again: what all looks may spend, and the tail as much, at the margin itself.
    edge = battery.of(MARGIN)
    assert no_oftener_than(2 * POLICY.flag, sum(each.flagged for each in edge), len(edge))
    same = battery.of(SAME)
    assert no_oftener_than(4 * POLICY.flag, sum(each.flagged for each in same), len(same))


def check_slowdowns(battery: Battery) -> None:
    for slower, share in FEWEST_FOUND.items():
        found = battery.statuses(slower)
        assert found["regression"] >= share * found.total(), found
        assert found["improvement"] == 0, found
    # What is missed is said to be so: a slowdown that lies at the tolerance itself may be called the same as
    # seldom as the confidence has it.
    found = battery.statuses(ONE)
    assert no_oftener_than(1 - POLICY.confidence, found["unchanged"], found.total())


def check_effects(battery: Battery) -> None:
    for slower in (SAME, MARGIN, HALF, ONE):
        # The standard error of a mean is a tenth of this, and a third where fewer were planted.
        assert battery.mean_effect(slower) == pytest.approx(slower, abs=2e-4 if slower == SAME else 6e-4)


def check_what_is_said(battery: Battery) -> None:
    for outcome in battery.outcomes:
        verdict = outcome.verdict
        # Nothing is invalid for noise alone.
        assert verdict.status in ("regression", "unchanged", "inconclusive"), verdict
        assert (verdict.status == "regression") <= outcome.flagged
        if verdict.status in ("regression", "unchanged"):
            assert verdict.time is not None
            assert verdict.time.low <= verdict.time.effect <= verdict.time.high
            # The bounds are at one in two thousand: so far off a truth never is.
            width = verdict.time.high - verdict.time.low
            assert verdict.time.low - width <= outcome.slower <= verdict.time.high + width


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_called_slower_that_is_not_and_what_is_slower_is_found(kind):
    battery = Battery(kind, SEEDS)
    assert len(battery.outcomes) == len(SUITE) * len(SEEDS)
    check_false_alarms(battery)
    check_slowdowns(battery)
    check_effects(battery)
    check_what_is_said(battery)


SPREAD = (*[SAME] * 8, *[MARGIN] * 4, *[ONE] * 3, *[0.02] * 3, *[0.05] * 3, *[0.5] * 3)
"""A suite for a card whose processes differ by more than is assumed of one that was never calibrated."""


@pytest.mark.parametrize(("offset", "found"), [(0.0007, 0.99), (0.003, 0.8)])
def test_where_processes_differ_by_more_than_assumed_power_still_grows_with_the_effect(offset, found):
    """Processes differ by as much as assumed, and by four times as much."""
    battery = Battery("quiet", SEEDS, suite=SPREAD, offset=offset)
    for slower in (SAME, MARGIN):
        told = battery.statuses(slower)
        assert no_oftener_than(POLICY.confirm, told["regression"] + told["improvement"], told.total())
    found_at = [battery.statuses(slower) for slower in (ONE, 0.02, 0.05, 0.5)]
    power = [each["regression"] / each.total() for each in found_at]
    assert power == sorted(power)
    assert power[0] >= found
    assert power[2:] == [1.0, 1.0]


def test_the_same_seed_gives_the_same_verdicts():
    first, second = (list(Comparison("throttled", 7, (SAME, ONE)).outcomes()) for _ in range(2))
    assert [replace(each.verdict, gpu_s=0.0) for each in first] == [
        replace(each.verdict, gpu_s=0.0) for each in second
    ]
