"""One case of a comparison as it goes: what its processes measured, and the verdict of it. Pure."""

from __future__ import annotations

__all__ = ["Contest", "Noise", "Round", "SideNote"]

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from harness.attribution import Evidence, SoloBlocks, attribute
from harness.gates import Gated, GatePolicy, combine
from harness.judge import Flag, Interval, Judgement, Leg, Policy, judge
from harness.records import Arm, Effect, Launch, PairedBlock, Quad, Resources, Verdict, VerdictStatus
from harness.statistics.moderated import DEFAULT_PRIOR, Prior
from harness.statistics.paired import (
    MIN_QUADS,
    ProcessEffect,
    clock_exponent,
    log_ratios,
    order_effect,
    process_effect,
    tick_error,
)
from harness.suite import Case

FailedSide = Literal["base", "head", ""]

CYCLES_MEAN_WORK = 0.8
"""Clock exponent from which on time is cycles over clock."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How far processes differ on this device, and how that is known."""

    time: Prior = DEFAULT_PRIOR
    cycles: Prior = DEFAULT_PRIOR
    calibrated: bool = False
    floor: float | None = None
    """Smallest visible slowdown of this case when the device was calibrated."""


@dataclass(frozen=True, slots=True)
class SideNote:
    """What is known of one side of a case, apart from its times."""

    source_sha256: str | None = None
    launch: Launch | None = None
    resources: Resources | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What one process measured, gates applied."""

    block: PairedBlock
    gated: Gated
    time: ProcessEffect | None
    cycles: ProcessEffect | None

    @classmethod
    def of(cls, block: PairedBlock, gated: Gated) -> Round:
        if len(gated.kept) < MIN_QUADS:
            return cls(block, gated, None, None)
        orders = [quad.order for quad in gated.kept]
        times = [quad.times_ns for quad in gated.kept]
        slot_ns = block.launches_per_slot * median(time_ns for quad in times for time_ns in quad)
        resolution = tick_error(block.tick_ns, slot_ns, len(times))
        cycles = [quad.cycles for quad in gated.kept if quad.cycles and min(quad.cycles) > 0]
        return cls(
            block,
            gated,
            process_effect(log_ratios(orders, times), resolution),
            process_effect(log_ratios(orders, cycles)) if len(cycles) == len(times) else None,
        )


@dataclass
class Contest:
    """A case that both commits have, from the first process to its verdict."""

    id: str
    """The case's own, or a twin's name."""
    case: Case
    policy: Policy
    noise: Noise = field(default_factory=Noise)
    gates: GatePolicy = field(default_factory=GatePolicy)
    rounds: list[Round] = field(default_factory=list)
    again: list[Round] = field(default_factory=list)
    """Measured to confirm or refute what the others said."""
    sides: Mapping[str, SideNote] = field(default_factory=dict)
    judgement: Judgement | None = None
    looks: int = 0
    settled: bool = False
    """Nothing more is to be measured."""
    confirmed: bool | None = None
    stopped_by: str = ""
    """budget-spent or interrupted, where a look was still to come."""
    solo: SoloBlocks | None = None
    _ending: Verdict | None = None

    def end(
        self, status: VerdictStatus, reason: str, message: str, log: str = "", side: FailedSide = ""
    ) -> None:
        """Settle the case by something other than its times; `side` is the one that failed, if one did."""
        self.settled = True
        told = f"At {side}: {message}" if side else message
        bare = self._verdict(status, reason, told, log=log)
        self._ending = dataclasses.replace(bare, side=side if status == "failed" else "")

    @property
    def ended(self) -> bool:
        return self._ending is not None

    def add(self, block: PairedBlock, gated: Gated, *, confirming: bool) -> None:
        (self.again if confirming else self.rounds).append(Round.of(block, gated))

    def good(self, *, confirming: bool = False) -> int:
        """How many processes have an effect to judge by."""
        return len(_with_effect(self.again if confirming else self.rounds))

    def look(self) -> None:
        """Judge by all processes so far, at the next planned look."""
        self.judgement = judge(self.legs(self.rounds), self.policy, self.looks)
        self.looks += 1
        self.settled = self.judgement.status != "undecided" or self.looks == len(self.policy.looks)

    def interrupt(self) -> None:
        """Measure nothing more, and judge by what there is, if it is enough for the next look."""
        if not self.settled and self.good() >= self.policy.looks[self.looks]:
            self.look()
        if not self.settled or (self.flagged and self.confirmed is None):
            self.stopped_by = self.stopped_by or "interrupted"

    @property
    def flagged(self) -> bool:
        return self.judgement is not None and self.judgement.status in ("slower", "faster")

    def flag(self) -> Flag | None:
        """What is to be confirmed, by the fresh processes alone; None where these gave no effect."""
        judgement = self.judgement
        if judgement is None or judgement.status not in ("slower", "faster"):
            return None
        leg = next((leg for leg in self.legs(self.again) if leg.name == judgement.leg), None)
        if leg is None or not leg.effects:
            return None
        return Flag("slower" if judgement.status == "slower" else "faster", leg)

    def legs(self, rounds: Sequence[Round]) -> list[Leg]:
        """Time; and cycles, where the power limit hides work from time and cycles stand for work."""
        found = _with_effect(rounds)
        legs = [Leg("time", tuple(each.time for each in found if each.time), self.noise.time)]
        cycles = tuple(each.cycles for each in found if each.cycles)
        if self._cycles_count() and len(cycles) == len(found):
            legs.append(Leg("cycles", cycles, self.noise.cycles))
        return legs

    def _cycles_count(self) -> bool:
        if self._gated().power_capped is not True:
            return False
        exponent = self.exponent()
        return exponent is None or exponent >= CYCLES_MEAN_WORK

    def exponent(self) -> float | None:
        """How time follows the SM clock, by the process that tells best."""
        found = [
            fitted
            for each in self.rounds
            if (fitted := _exponent(each.gated.kept, each.block.clock_noise)) is not None
        ]
        return min(found, key=lambda fitted: fitted[1])[0] if found else None

    def _gated(self) -> Gated:
        return combine([each.gated for each in (*self.rounds, *self.again)], self.gates)

    def verdict(self) -> Verdict:
        """The verdict as things stand."""
        if self._ending is not None:
            return self._ending
        gated = self._gated()
        if (self.rounds or self.again) and (gated.invalid or not self.good()):
            reason = gated.invalid or "too-few-quads"
            return self._judged("invalid", reason, _invalid_message(gated, reason), gated)
        if self.judgement is None:
            reason = self.stopped_by or "interrupted"
            return self._judged("inconclusive", reason, _UNDECIDED[reason], gated)
        status, reason, message = _told(self)
        return self._judged(status, reason, message, gated)

    def _judged(self, status: VerdictStatus, reason: str, message: str, gated: Gated) -> Verdict:
        """A verdict with all that was measured."""
        judgement = self.judgement
        # What was measured again was not chosen for being large, so its effect is the unbiased one.
        rounds = _with_effect(self.again) if self.confirmed is not None and self.again else self.rounds
        rounds = _with_effect(rounds)
        time, cycles = (_effect(rounds, name, self) for name in ("time", "cycles"))
        energy = _energy(self.solo) if self.solo else None
        base_mhz, head_mhz = (_mean_clock(gated.kept, arm) for arm in ("A", "B"))
        cause, sentence = attribute(
            Evidence(
                status=status,
                time=time,
                cycles=cycles,
                energy=energy,
                clock_exponent=self.exponent(),
                base_sm_clock_mhz=base_mhz,
                head_sm_clock_mhz=head_mhz,
                solo=self.solo,
                power_capped=gated.power_capped,
                dropped=gated.dropped,
                invalid=reason if status == "invalid" else "",
            )
        )
        telemetry = [each.block.telemetry for each in (*self.rounds, *self.again) if each.block.telemetry]
        during = [snapshot for each in telemetry for snapshot in each.during]
        blocks = [each.block for each in (*self.rounds, *self.again)]
        bare = self._verdict(status, reason, " ".join(part for part in (message, sentence) if part))
        return dataclasses.replace(
            bare,
            time=time,
            cycles=cycles,
            energy=energy,
            smallest_visible=judgement.smallest_visible if judgement else None,
            noise_floor=self.noise.floor,
            clock_exponent=self.exponent(),
            power_capped=gated.power_capped,
            attribution=cause,
            base=self._arm("base", "A", gated.kept, base_mhz),
            head=self._arm("head", "B", gated.kept, head_mhz),
            temperature_c=_mean([snapshot.temperature_c for snapshot in during]),
            power_w=_mean([snapshot.power_w for snapshot in during]),
            order_p=_order_p(gated.kept),
            dropped=gated.dropped,
            unavailable=gated.unavailable,
            gpu_s=math.fsum(block.gpu_s for block in blocks),
            complete=not self.stopped_by,
        )

    def _verdict(self, status: VerdictStatus, reason: str, message: str, *, log: str = "") -> Verdict:
        return Verdict(
            case=self.id,
            kernel=self.case.kernel,
            sizes=self.case.sizes,
            dtype=self.case.dtype,
            status=status,
            reason=reason,
            message=message,
            log=log,
            base=self._arm("base", "A", (), None),
            head=self._arm("head", "B", (), None),
        )

    def _arm(self, side: str, letter: str, kept: Sequence[Quad], clock_mhz: float | None) -> Arm | None:
        note = self.sides.get(side)
        times = [time_ns for quad in kept for time_ns in _of_arm(quad.order, quad.times_ns, letter)]
        if note is None and not times:
            return None
        note = note or SideNote()
        return Arm(
            time_ns=median(times) if times else None,
            sm_clock_mhz=clock_mhz,
            source_sha256=note.source_sha256,
            launch=note.launch,
            resources=note.resources,
        )


_UNDECIDED = {
    "interrupted": "Interrupted before there was enough to judge by.",
    "budget-spent": "The budget of device time was spent before there was enough to judge by.",
}


def _told(contest: Contest) -> tuple[VerdictStatus, str, str]:
    """Status, reason and first sentence of a case that has been judged."""
    judgement, policy = contest.judgement, contest.policy
    assert judgement is not None
    shown = _shown(contest, judgement)
    if judgement.status in ("slower", "faster"):
        what = f"{judgement.status}-in-{judgement.leg}"
        if contest.confirmed:
            return ("regression" if judgement.status == "slower" else "improvement"), what, shown
        if contest.confirmed is None:
            why = "There was no time to measure it again and confirm it."
            if not contest.stopped_by:
                why = "Fresh processes that should confirm it gave too few quads that count."
            return "inconclusive", contest.stopped_by or "not-confirmed", f"{shown} {why}"
        return (
            "inconclusive",
            "not-confirmed",
            f"It looked {judgement.status}, but fresh processes did not confirm it: now {shown}",
        )
    if judgement.status == "same":
        return (
            "unchanged",
            "within-tolerance",
            f"{shown} That is within {100 * policy.tolerance:g} % for sure.",
        )
    if contest.stopped_by:
        return "inconclusive", contest.stopped_by, f"{shown} {_UNDECIDED[contest.stopped_by]}"
    why = (
        "processes differ by more than this device's history explains"
        if judgement.excess
        else f"only a change beyond {100 * judgement.smallest_visible:.2f} % would show"
    )
    return "inconclusive", "too-noisy", f"{shown} Too noisy to say more: {why}."


def _shown(contest: Contest, judgement: Judgement) -> str:
    """``1.02 % slower (+0.95 to +1.09 %) in 2 processes.``"""
    leg = judgement.leg or "time"
    rounds = contest.again if contest.confirmed is not None and contest.again else contest.rounds
    found = _effect(_with_effect(rounds), leg, contest)
    if found is None:
        return ""
    word = {"time": ("slower", "faster"), "cycles": ("more cycles", "fewer cycles")}[leg]
    size, low, high = abs(found.effect), found.low, found.high
    interval = (low, high) if found.effect >= 0 else (-high, -low)
    return (
        f"{100 * size:.2f} % {word[found.effect < 0]} "
        f"({100 * interval[0]:+.2f} to {100 * interval[1]:+.2f} %) "
        f"in {found.processes} process{'es' if found.processes > 1 else ''}."
    )


def _invalid_message(gated: Gated, reason: str) -> str:
    dropped = sum(gated.dropped.values())
    told = next((text for text in gated.findings if text.startswith(f"{reason}:")), "")
    return (
        f"{dropped} of {gated.total} quads had to be dropped ({reason}): nothing can be said of this case. "
        f"{told.partition(': ')[2]}"
    ).strip()


def _with_effect(rounds: Sequence[Round]) -> list[Round]:
    return [each for each in rounds if each.time is not None]


def _effect(rounds: Sequence[Round], name: str, contest: Contest) -> Effect | None:
    """The effect over these processes with its interval."""
    effects = [each.time if name == "time" else each.cycles for each in rounds]
    known = tuple(effect for effect in effects if effect is not None)
    if not known or len(known) < len(effects):
        return None
    prior = contest.noise.time if name == "time" else contest.noise.cycles
    leg = Leg("time" if name == "time" else "cycles", known, prior)
    found: Interval = judge([leg], contest.policy, len(contest.policy.looks) - 1).estimates[leg.name]
    return Effect(
        effect=found.effect,
        low=found.low,
        high=found.high,
        processes=found.processes,
        quads=found.quads,
        process_effects=tuple(math.expm1(effect.value) for effect in known),
    )


def _energy(solo: SoloBlocks) -> Effect | None:
    base, head = solo.base, solo.head
    if base.energy_j is None or head.energy_j is None:
        return None
    effect = head.energy_j / base.energy_j - 1
    error = math.hypot(base.energy_error or 0.0, head.energy_error or 0.0)
    return Effect(effect=effect, low=effect - error, high=effect + error, processes=1, quads=0)


def _exponent(quads: Sequence[Quad], noise: float | None) -> tuple[float, float] | None:
    clocks = [quad.sm_clock_mhz for quad in quads if quad.sm_clock_mhz]
    if noise is None or len(clocks) < len(quads) or len(quads) < MIN_QUADS:
        return None
    return clock_exponent([q.times_ns for q in quads], clocks, [q.order for q in quads], noise)


def _order_p(quads: Sequence[Quad]) -> float | None:
    if len(quads) < MIN_QUADS:
        return None
    orders = [quad.order for quad in quads]
    return order_effect(orders, log_ratios(orders, [quad.times_ns for quad in quads]))


def _of_arm(order: str, values: Sequence[float], letter: str) -> list[float]:
    return [value for place, value in zip(order, values, strict=True) if place == letter]


def _mean_clock(quads: Sequence[Quad], letter: str) -> float | None:
    clocks = [
        clock
        for quad in quads
        if quad.sm_clock_mhz
        for clock in _of_arm(quad.order, quad.sm_clock_mhz, letter)
    ]
    return fmean(clocks) if clocks else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
