"""What the method promises of its verdicts, held against noise that is as assumed and noise that is not.

    python scripts/bench_misfit.py --json misfit.json > misfit.md

Slots are made up, and the product's own functions do the rest as in a comparison: blocks end early, gates,
looks, confirmation by fresh processes, verdict. Each cell is one kind of noise, one prior and one effect, one
case per comparison, of a kernel of 1 ms. Three promises are held against the counts:

1. false: in at most 0.1 % of comparisons a case whose effect is within the margin is confirmed as slower or
   faster;
2. power: a larger effect is not confirmed less often;
3. same: at most 0.1 % of the cases whose effect is at the tolerance or beyond are called the same.

Cells whose noise is ten times what the prior says, or of two states, are marked as misfits: they show what a
wrong assumption costs, and break no promise. So are those whose slowdown is in a few stray slots: the quads
of a first look may have met none.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import scipy
from numpy.typing import NDArray

from harness.judgement.case_trial import CaseTrial, NoisePriors, settle
from harness.judgement.gates import Gated, GatePolicy, gate
from harness.judgement.judge import Policy
from harness.judgement.statistics.moderated import DEFAULT_PRIOR, PROPORTION, Prior, prior_of_case
from harness.judgement.statistics.paired import MIN_QUADS, ProcessEffect, log_ratios, more_quads
from harness.judgement.statistics.rates import clopper_pearson, false_alarm_bound
from harness.measure.quads import PairSettings, least_quads
from harness.records.types import PairedBlock, Quad, Snapshot, Telemetry, Verdict
from harness.suite.problem import Case

Floats = NDArray[np.float64]

POLICY, SETTINGS, GATES = Policy(), PairSettings(), GatePolicy()
KERNEL_NS = 1e6
BUSY = 1.1
"""Device time over slots' time: flushes and canaries."""
SCATTER = 0.003
"""Standard deviation of a slot."""
CLOCK_MHZ = 1800.0
MOST_FALSE, MOST_SAME = POLICY.confirm, 0.001
CHUNK = 100
"""Trials that a job does at a time."""
EFFECTS = (0.0, POLICY.margin, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
SOME = tuple(effect for effect in EFFECTS if effect not in (0.05, 0.5))
CASE = Case("made-up", "kernel", {"n": 1})


@dataclass(frozen=True, slots=True)
class Slots:
    """Readings of the slots of one process, a row for each quad."""

    logs: Floats
    """Logarithms of times over the usual time."""
    cycles: Floats | None = None
    """Logarithms, over the usual number."""
    clocks: Floats | None = None
    """Logarithms, over the usual clock."""
    capped: bool = False
    """True if the card reported that its power limit ruled the clocks."""


Maker = Callable[[np.random.Generator, Floats, float], Slots]
"""From the slots that are head's, as 1 and 0, and the effect as a logarithm."""


def noise(rng: np.random.Generator, head: Floats) -> Floats:
    return rng.normal(0.0, SCATTER, head.shape)


def spread(rng: np.random.Generator, head: Floats, effect: float, *, sd: float) -> Slots:
    """Processes that differ: where code and data lie is drawn once for each."""
    return Slots(head * (effect + rng.normal(0.0, sd)) + noise(rng, head))


def quiet(rng: np.random.Generator, head: Floats, effect: float, *, sd: float) -> Slots:
    """The same with slots that hardly scatter: processes alone decide."""
    return Slots(head * (effect + rng.normal(0.0, sd)) + noise(rng, head) / 10)


def layout(rng: np.random.Generator, head: Floats, effect: float, *, share: float) -> Slots:
    """Processes differ by a share of the effect."""
    return spread(rng, head, effect + rng.normal(0.0, share) * effect, sd=0.0003)


def states(rng: np.random.Generator, head: Floats, effect: float, *, apart: float) -> Slots:
    """Put each side of a process at random into one of two states."""
    slow = math.log1p(apart) * (int(rng.integers(2)) - int(rng.integers(2)))
    return Slots(head * (effect + slow) + noise(rng, head))


def shaken(
    rng: np.random.Generator, head: Floats, effect: float, *, by: Callable[[np.random.Generator, int], Floats]
) -> Slots:
    """What goes on in a process from slot to slot, whoever runs there."""
    shake = by(rng, head.size).reshape(head.shape)
    return Slots(head * (effect + rng.normal(0.0, 0.0003)) + noise(rng, head) + shake)


def ar1(rng: np.random.Generator, count: int) -> Floats:
    rho, sd = 0.95, 0.01
    steps = rng.normal(0.0, sd * math.sqrt(1 - rho**2), count)
    steps[0] = rng.normal(0.0, sd)
    found: Floats = scipy.signal.lfilter([1.0], [1.0, -rho], steps)
    return found


def pink(rng: np.random.Generator, count: int) -> Floats:
    """1/f, with a standard deviation of 1 %."""
    spectrum = np.fft.rfft(rng.normal(0.0, 1.0, 4 * count))
    spectrum[1:] /= np.sqrt(np.arange(1, spectrum.size))
    spectrum[0] = 0.0
    found = np.fft.irfft(spectrum, 4 * count)[:count]
    return np.asarray(0.01 * found / found.std(), dtype=np.float64)


def drift(rng: np.random.Generator, count: int) -> Floats:
    """Up to 0.1 % a slot, either way."""
    return np.asarray(rng.uniform(-0.001, 0.001) * np.arange(count), dtype=np.float64)


def sawtooth(rng: np.random.Generator, count: int, *, period: float) -> Floats:
    """1 % high, with a period near a quad's length."""
    return np.asarray(0.01 * ((np.arange(count) / period + rng.random()) % 1.0), dtype=np.float64)


def heavy(rng: np.random.Generator, count: int) -> Floats:
    return np.asarray(np.clip(SCATTER * rng.standard_t(2.0, count), -0.5, 3.0), dtype=np.float64)


def bursts(rng: np.random.Generator, count: int) -> Floats:
    """20 % slower for some five slots, in every tenth slot or so."""
    begin = rng.random(count) < 0.02
    lengths = rng.geometric(0.2, count)
    found = np.zeros(count)
    for start in np.flatnonzero(begin):
        found[start : start + lengths[start]] = math.log(1.2)
    return found


def both_tails(rng: np.random.Generator, count: int) -> Floats:
    """5 % of all slots three times slower."""
    return np.where(rng.random(count) < 0.05, math.log(3.0), 0.0)


def after_base(rng: np.random.Generator, head: Floats, effect: float, *, by: float) -> Slots:
    """Head is slower right after base, and base right after head is not."""
    flat = head.ravel()
    before = np.concatenate(([0.0], flat[:-1]))
    slower = (by * flat * (1 - before)).reshape(head.shape)
    return Slots(head * (effect + rng.normal(0.0, 0.0003)) + slower + noise(rng, head))


def place(rng: np.random.Generator, head: Floats, effect: float, *, slot: int, by: float) -> Slots:
    """One place of the quad is slower, whoever runs there."""
    slower = np.zeros(4)
    slower[slot] = by
    return Slots(head * (effect + rng.normal(0.0, 0.0003)) + slower + noise(rng, head))


def stray(rng: np.random.Generator, head: Floats, effect: float, *, share: float, times: float) -> Slots:
    """Some of head's slots are many times slower."""
    strays = head * (rng.random(head.shape) < share) * math.log(times)
    return Slots(head * (effect + rng.normal(0.0, 0.0003)) + strays + noise(rng, head))


def switching(
    rng: np.random.Generator, head: Floats, effect: float, *, apart: float, follows: float
) -> Slots:
    """The card goes to and fro between two clocks, and stays for some six slots. Time follows the clock with
    an exponent; what it does not follow of it, cycles do.
    """
    flips = np.cumsum(rng.random(head.size) < 1 / 6) % 2
    clocks = np.asarray(-math.log1p(apart) * flips, dtype=np.float64).reshape(head.shape)
    code = head * (effect + rng.normal(0.0, 0.0003)) + noise(rng, head)
    return Slots(code - follows * clocks, code + (1 - follows) * clocks, clocks)


def own_clock(rng: np.random.Generator, head: Floats, effect: float, *, cycles: float, capped: bool) -> Slots:
    """Head runs at a clock of its own: what it takes in time and in cycles, the clock explains."""
    counted = head * (math.log1p(cycles) + rng.normal(0.0, 0.0003)) + noise(rng, head)
    clocks = head * (math.log1p(cycles) - effect)
    return Slots(counted - clocks, counted, clocks, capped)


def ruled(rng: np.random.Generator, head: Floats, effect: float, *, wander: float) -> Slots:
    """At the power limit: the clock wanders from slot to slot, and time is cycles over clock."""
    clocks = rng.normal(0.0, wander, head.shape)
    counted = head * (effect + rng.normal(0.0, 0.0003)) + noise(rng, head)
    return Slots(counted - clocks, counted, clocks, capped=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of noise under one prior, with the effects of the cases of a comparison."""

    noise: str
    prior: str
    make: Maker
    effects: tuple[float, ...]
    """Counted is what is said of those that are as the first."""
    misfit: bool = False
    """True if the noise is known to be far from the assumptions."""
    truth: float | None = None
    """Change that verdicts confirm or not and that intervals should hold; None for the effect."""

    @property
    def effect(self) -> float:
        return self.effects[0] if self.truth is None else self.truth

    @property
    def name(self) -> str:
        return f"{self.noise}/{self.prior}/{self.told_effects}"

    @property
    def told_effects(self) -> str:
        return " and ".join(f"{100 * each:+g} %" for each in dict.fromkeys(self.effects))

    @property
    def within(self) -> bool:
        """Return True if a confirmation is a false alarm."""
        return abs(self.effect) <= POLICY.margin

    @property
    def counts_alarms(self) -> bool:
        """Return True if a low rate is promised, so that many trials are needed."""
        return self.within and not self.misfit and len(self.effects) == 1


@dataclass(slots=True)
class Count:
    """Verdicts in the trials of a cell."""

    trials: int = 0
    called: int = 0
    """Slower or faster at a look, and measured again."""
    confirmed: int = 0
    faster: int = 0
    """Confirmed verdicts `faster`."""
    same: int = 0
    undecided: int = 0
    """Invalid ones too."""
    covered: int = 0
    """Whose interval holds the truth."""
    seconds: float = 0.0
    processes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Counts of all cases by status and reason."""

    def add(self, other: Count) -> None:
        for name in ("trials", "called", "confirmed", "faster", "same", "undecided", "covered", "processes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.seconds += other.seconds
        for reason, times in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + times

    def share(self, name: str) -> float:
        return float(getattr(self, name)) / max(1, self.trials)


def card(sd: float) -> Prior:
    """Return the prior of a card whose calibration is worth thirty degrees of freedom."""
    return Prior(sd**2, 30.0, proportion=PROPORTION)


def known(sd: float) -> Prior:
    """Return the prior of a case that was calibrated there, by five processes that differ as usual."""
    values = sd * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])
    return prior_of_case(card(sd), [ProcessEffect(float(value), 0.0, 20, 25) for value in values])


PRIORS: Mapping[str, Prior] = {
    "default": DEFAULT_PRIOR,
    "0.03 known": known(0.0003),
    "0.05 known": known(0.0005),
    "0.03 unknown": prior_of_case(card(0.0003), ()),
}


def cells() -> Iterator[Cell]:
    """All of them, those of one noise and prior in order of their effects."""
    for name, make, priors, effects in _kinds():
        for prior in priors:
            for effect in effects:
                yield Cell(name, prior, make, (effect,), _is_misfit(name, prior))
    yield from _special()


def _is_misfit(name: str, prior: str) -> bool:
    what, _, size = name.rpartition(" ")
    if what.endswith("spread"):
        return float(size) / 100 > 9.99 * math.sqrt(PRIORS[prior].variance)
    return name.startswith("two states")


def _kinds() -> Iterator[tuple[str, Maker, Sequence[str], Sequence[float]]]:
    every, two, tight = tuple(PRIORS), ("default", "0.03 known"), ("0.03 known",)
    for percent in (0.03, 0.05, 0.1, 0.15, 0.3, 1.0):
        yield f"spread {percent:g}", partial(spread, sd=percent / 100), every, EFFECTS
    for percent in (0.03, 0.1, 0.3):
        yield f"quiet, spread {percent:g}", partial(quiet, sd=percent / 100), two, SOME
    yield "two states 3 % apart", partial(states, apart=0.03), every, EFFECTS
    shakes: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
        "AR(1)": ar1,
        "1/f": pink,
        "drift": drift,
        "sawtooth 2": partial(sawtooth, period=2.0),
        "sawtooth 3.9": partial(sawtooth, period=3.9),
        "sawtooth 4": partial(sawtooth, period=4.0),
        "heavy tails": heavy,
        "bursts": bursts,
        "strays on both sides": both_tails,
    }
    for name, by in shakes.items():
        yield name, partial(shaken, by=by), tight, SOME
    for follows in (1.0, 0.3):
        make = partial(switching, apart=0.05, follows=follows)
        yield f"two clocks, exponent {follows:g}", make, tight, SOME
    yield "power limit", partial(ruled, wander=0.02), tight, SOME
    for slot in (0, 1):
        yield f"place {slot} slow", partial(place, slot=slot, by=0.005), tight, SOME
    for share in (5, 30):
        yield f"layout {share} %", partial(layout, share=share / 100), two, EFFECTS[1:]


def _special() -> Iterator[Cell]:
    margin = POLICY.margin
    for by in (0.002, 0.005, 0.02):
        make = partial(after_base, by=by)
        yield Cell(f"head {100 * by:g} % slower after base", "default", make, (0.0,))
    for share, times in ((0.08, 11.0), (0.05, 3.0), (0.02, 3.0), (0.01, 3.0)):
        name, make = f"{100 * share:g} % of head's slots {times:g}x", partial(stray, share=share, times=times)
        yield Cell(name, "default", make, (0.0,), misfit=True, truth=share * (times - 1))
    clocks = ((0.01, 0.0, False), (0.01, 0.0, True), (0.001, 0.01, True), (0.001, 0.01, False))
    for time_effect, cycles, capped in clocks:
        name = f"own clock: cycles {100 * cycles:+g} %{', at the power limit' if capped else ''}"
        make = partial(own_clock, cycles=cycles, capped=capped)
        yield Cell(name, "default", make, (time_effect,), truth=max(time_effect, cycles))
    for percent, prior in ((0.1, "default"), (0.1, "0.05 known")):
        make = partial(spread, sd=percent / 100)
        for effects in ((0.0,) * 20, (margin,) * 20, (margin,) * 10 + (0.02,) * 10):
            yield Cell(f"20 cases, spread {percent:g}", prior, make, effects)


def trial(cell: Cell, rng: np.random.Generator) -> Count:
    """One comparison: of several cases, whether any was called or confirmed, and all were the same."""
    prior = PRIORS[cell.prior]
    case_trials = [
        CaseTrial(f"case-{number}", CASE, POLICY, NoisePriors(prior, prior))
        for number in range(len(cell.effects))
    ]
    count = Count(trials=1)
    while any(not each.settled for each in case_trials):
        count.processes += 1
        for case_trial, effect in zip(case_trials, cell.effects, strict=True):
            if not case_trial.settled:
                block, gated = measured(cell.make, effect, case_trial, rng)
                count.seconds += block.gpu_s
                case_trial.add(block, gated)
        settle(case_trials, POLICY)
    told = [
        (each, each.verdict())
        for each, effect in zip(case_trials, cell.effects, strict=True)
        if effect == cell.effects[0]
    ]
    said = [verdict.status for _, verdict in told]
    count.called = int(any(each.confirming for each, _ in told))
    count.confirmed = int("regression" in said or "improvement" in said)
    count.faster = int("improvement" in said)
    count.same = int(all(status == "unchanged" for status in said))
    count.undecided = int("inconclusive" in said or "invalid" in said)
    count.covered = int(all(_covers(verdict, cell) for _, verdict in told))
    count.reasons = dict(Counter(f"{verdict.status}: {verdict.reason}" for _, verdict in told))
    return count


def _covers(verdict: Verdict, cell: Cell) -> bool:
    found, truth = verdict.time, cell.effects[0]
    return found is not None and found.low <= truth <= found.high


def measured(
    make: Maker, effect: float, case_trial: CaseTrial, rng: np.random.Generator
) -> tuple[PairedBlock, Gated]:
    """One block, which ends where the next look would not profit from more quads."""
    most = SETTINGS.max_quads
    first = rng.random(most) < 0.5
    head = np.where(first[:, np.newaxis], _ABBA, 1 - _ABBA)
    slots = make(rng, head, math.log1p(effect))
    times = KERNEL_NS * np.exp(slots.logs)
    orders = ["ABBA" if base_first else "BAAB" for base_first in first.tolist()]
    ratios = log_ratios(orders, times)
    wanted = case_trial.precision
    asked = replace(SETTINGS, min_quads=max(SETTINGS.min_quads, wanted.min_quads))
    least = least_quads(asked, KERNEL_NS * min(1.0, 1 + effect))
    count, seconds = 0, 0.0
    while seconds <= SETTINGS.max_time_s:
        due = more_quads(ratios[:count], wanted.standard_error, at_least=max(least, MIN_QUADS), at_most=most)
        if due == count:
            break
        seconds += SETTINGS.lead_in_s + BUSY * float(times[count:due].sum()) / 1e9
        count = due
    return _block(slots, times, orders, count, seconds)


_ABBA = np.array([0.0, 1.0, 1.0, 0.0])


def _block(
    slots: Slots, times: Floats, orders: Sequence[Any], count: int, seconds: float
) -> tuple[PairedBlock, Gated]:
    every = [None] * count
    cycles = _rows(slots.cycles, KERNEL_NS * CLOCK_MHZ / 1e3, count) or every
    clocks = _rows(slots.clocks, CLOCK_MHZ, count) or every
    quads = tuple(
        Quad(
            order=order,
            times_ns=tuple(four),
            cycles=counted,
            sm_clock_mhz=mhz,
            started_ns=5_000_000 * number,
            ended_ns=5_000_000 * number + 4_000_000,
        )
        for number, (order, four, counted, mhz) in enumerate(
            zip(orders[:count], times[:count].tolist(), cycles, clocks, strict=True)
        )
    )
    block = PairedBlock(
        quads=quads,
        launches_per_slot=1,
        l2="hot",
        clock="made-up",
        tick_ns=1.0,
        warmup_s=0.0,
        settled=True,
        gpu_s=seconds,
        clock_noise=1e-4 if slots.clocks is not None else None,
        telemetry=_telemetry(quads, capped=slots.capped) if slots.clocks is not None else None,
    )
    if slots.clocks is None:
        return block, Gated(quads=quads, clean=quads, power_capped=False)
    return block, gate(block, GATES, usual=None)


def _rows(logs: Floats | None, unit: float, count: int) -> list[Any] | None:
    return None if logs is None else [tuple(four) for four in (unit * np.exp(logs[:count])).tolist()]


_UNTHROTTLED = dict.fromkeys(("sw_thermal", "hw_thermal", "hw_power_brake", "sync_boost"), 0)


def _telemetry(quads: Sequence[Quad], *, capped: bool) -> Telemetry:
    """Half of the time at the power limit, or none of it."""
    ends = (quads[0].started_ns - 1, quads[-1].ended_ns + 1)
    before, after = (
        Snapshot(
            at_ns=at_ns,
            throttle_ns={**_UNTHROTTLED, "sw_power_cap": (at_ns - ends[0]) // 2 if capped else 0},
        )
        for at_ns in ends
    )
    return Telemetry(probe="made-up", before=before, during=(), after=after)


def simulate(cell: Cell, seed: int, chunk: int, trials: int) -> Count:
    """Some trials of a cell, the same whatever else is simulated."""
    rng = np.random.default_rng([seed, zlib.crc32(cell.name.encode()), chunk])
    count = Count()
    for _ in range(trials):
        count.add(trial(cell, rng))
    return count


def simulate_all(chosen: Sequence[Cell], asked: argparse.Namespace) -> list[Count]:
    """An interrupt ends it early: cells take turns, so each has about its share of trials by then."""
    jobs = [
        (place, chunk, min(CHUNK, total - chunk * CHUNK))
        for place, cell in enumerate(chosen)
        for total in [asked.trials * (asked.more if cell.counts_alarms else 1)]
        for chunk in range(math.ceil(total / CHUNK))
    ]
    jobs.sort(key=lambda job: job[1])
    counts = [Count() for _ in chosen]
    began = time.monotonic()
    try:
        for done, (place, count) in enumerate(_run(jobs, chosen, asked), 1):
            counts[place].add(count)
            if sys.stderr.isatty():
                print(f"\r{done}/{len(jobs)} {time.monotonic() - began:.0f} s", end="", file=sys.stderr)
    except KeyboardInterrupt:
        print("Interrupted: what follows is of the trials so far.", file=sys.stderr)
    return counts


def _run(
    jobs: Sequence[tuple[int, int, int]], chosen: Sequence[Cell], asked: argparse.Namespace
) -> Iterator[tuple[int, Count]]:
    if asked.jobs == 1:
        for place, chunk, trials in jobs:
            yield place, simulate(chosen[place], asked.seed, chunk, trials)
        return
    with ProcessPoolExecutor(asked.jobs) as pool:
        futures = [pool.submit(simulate, chosen[p], asked.seed, c, trials) for p, c, trials in jobs]
        for (place, _, _), future in zip(jobs, futures, strict=True):
            yield place, future.result()


@dataclass(frozen=True, slots=True)
class Breach:
    """A promise that a cell breaks."""

    promise: str
    cell: str
    told: str
    misfit: bool
    surely: bool
    """True if the lower bound too is beyond the promise."""


def breaches(chosen: Sequence[Cell], counts: Sequence[Count]) -> Iterator[Breach]:
    told = list(zip(chosen, counts, strict=True))
    for cell, count in told:
        if cell.within and (wrong := _beyond(count.confirmed, count.trials, MOST_FALSE)):
            yield Breach("false", cell.name, *wrong[:1], cell.misfit, wrong[1])
        if cell.effect >= POLICY.tolerance and (wrong := _beyond(count.same, count.trials, MOST_SAME)):
            yield Breach("same", cell.name, *wrong[:1], cell.misfit, wrong[1])
    for _, group in groupby(told, lambda each: (each[0].noise, each[0].prior)):
        rising = [each for each in group if len(each[0].effects) == 1 and not each[0].within]
        for (less, fewer), (more, found) in pairwise(rising):
            if fell := _fell(fewer, found):
                why = f"{100 * fewer.share('confirmed'):.2f} % at {100 * less.effect:g} %, then {fell}"
                yield Breach("power", more.name, why, more.misfit, surely=True)


def _beyond(count: int, trials: int, limit: float) -> tuple[str, bool] | None:
    if count <= limit * trials:
        return None
    low, high = clopper_pearson(count, trials)
    told = f"{count} of {trials}: {100 * count / trials:.3g} % ({100 * low:.2g} to {100 * high:.2g})"
    return told, low > limit


def _fell(fewer: Count, found: Count) -> str:
    before, after = fewer.share("confirmed"), found.share("confirmed")
    # Of an extreme count the error is that of one count more or less.
    error = math.sqrt(
        sum(max(p * (1 - p), 1 / c.trials) / c.trials for p, c in ((before, fewer), (after, found)))
    )
    return f"{100 * after:.2f} %" if after < before - 3.5 * error else ""


def table(chosen: Sequence[Cell], counts: Sequence[Count]) -> Iterator[str]:
    """A line for each cell."""
    columns = ("Noise", "Prior", "Effect", "Called", "Confirmed", "Same", "Undecided", "Covered")
    yield f"| {' | '.join((*columns, 'Device s', 'Processes'))} |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for cell, count in zip(chosen, counts, strict=True):
        confirmed = f"{100 * count.share('confirmed'):.4g}"
        if cell.within:
            confirmed += f" (≤ {100 * false_alarm_bound(count.confirmed, count.trials):.2g})"
        shares = (f"{100 * count.share(name):.4g}" for name in ("same", "undecided", "covered"))
        said = (*shares, f"{count.share('seconds'):.2f}", f"{count.share('processes'):.1f}")
        what = (cell.noise, cell.prior, cell.told_effects, f"{100 * count.share('called'):.4g}", confirmed)
        yield f"| {' | '.join((*what, *said))} |"


BRIEF = (0.0, 0.0025, 0.005, 0.01, 0.02)
"""Effects that have a column of their own in the brief table."""


def brief(chosen: Sequence[Cell], counts: Sequence[Count]) -> Iterator[str]:
    """A line for each noise and prior: how often it is confirmed as slower or faster, by effect."""
    columns = ("Noise", "Prior", *(f"{100 * effect:+g} %" for effect in BRIEF), "+5 % and more")
    yield f"| {' | '.join((*columns, 'Same at 0 %', 'Device s at 0 %', 'at +1 %'))} |"
    yield f"|{'---|' * (len(columns) + 3)}"
    rows: dict[tuple[str, str], dict[float, Count]] = {}
    for cell, count in zip(chosen, counts, strict=True):
        if len(cell.effects) == 1 and cell.truth is None:
            rows.setdefault((cell.noise, cell.prior), {})[cell.effects[0]] = count
    for (noise_, prior), by_effect in rows.items():
        told = [_confirmed(by_effect.get(effect)) for effect in BRIEF]
        beyond = [count.share("confirmed") for effect, count in by_effect.items() if effect > max(BRIEF)]
        zero, one = by_effect.get(0.0), by_effect.get(0.01)
        said = (
            f"{100 * min(beyond):.3g}" if beyond else "",
            f"{100 * zero.share('same'):.3g}" if zero else "",
            f"{zero.share('seconds'):.2f}" if zero else "",
            f"{one.share('seconds'):.2f}" if one else "",
        )
        yield f"| {' | '.join((noise_, prior, *told, *said))} |"


def _confirmed(count: Count | None) -> str:
    return "" if count is None else f"{100 * count.share('confirmed'):.3g}"


def told_breaches(found: Iterable[Breach]) -> Iterator[str]:
    for breach in found:
        note = " (misfit)" if breach.misfit else "" if breach.surely else " (within simulation error)"
        yield f"- {breach.promise}: {breach.cell}: {breach.told}{note}"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--trials", type=int, default=2000, help="comparisons of each cell (default: 2000)")
    add("--more", type=int, default=5, help="times as many where false alarms are counted (default: 5)")
    add("--cells", action="append", metavar="GLOB", help="by name, such as 'spread*/default/*'")
    add("--jobs", type=int, default=2, help="processes to simulate in (default: 2)")
    add("--seed", type=int, default=1)
    add("--json", type=Path, metavar="FILE", help="write all counts there")
    add("--brief", action="store_true", help="a line for each noise and prior, with what was confirmed")
    found = parser.parse_args(arguments)
    if min(found.trials, found.more, found.jobs) < 1:
        parser.error("--trials, --more and --jobs: expected at least 1")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parse(arguments)
    globs = asked.cells or ["*"]
    chosen = [cell for cell in cells() if any(fnmatchcase(cell.name, glob) for glob in globs)]
    if not chosen:
        print(f"No cell is called {', '.join(globs)}.", file=sys.stderr)
        return 2
    counts = simulate_all(chosen, asked)
    chosen = [cell for cell, count in zip(chosen, counts, strict=True) if count.trials]
    counts = [count for count in counts if count.trials]
    found = list(breaches(chosen, counts))
    if asked.json:
        told = [
            {
                "cell": cell.name,
                "noise": cell.noise,
                "prior": cell.prior,
                "effects": cell.effects,
                "truth": cell.effect,
                "misfit": cell.misfit,
                **msgspec.to_builtins(count),
            }
            for cell, count in zip(chosen, counts, strict=True)
        ]
        book = {"seed": asked.seed, "cells": told, "breaches": msgspec.to_builtins(found)}
        asked.json.write_text(json.dumps(book, indent=1) + "\n", encoding="utf-8")
    print("\n".join((brief if asked.brief else table)(chosen, counts)))
    print()
    print("\n".join(told_breaches(found)) or "Every promise was kept.")
    return int(any(each.surely and not each.misfit for each in found))


if __name__ == "__main__":
    sys.exit(main())
