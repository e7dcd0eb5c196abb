"""The trial of one case: the measurements of its processes so far, and the verdict. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median, stdev

from harness.errors import Side
from harness.judgement.attribution import SoloRun, attribute, mean_of_known
from harness.judgement.gates import Gated, combine
from harness.judgement.judge import (
    DIRECTIONS,
    Direction,
    Judgement,
    MetricEffects,
    MetricName,
    Policy,
    judge,
    p_again,
)
from harness.judgement.statistics import paired
from harness.judgement.statistics.moderated import DEFAULT_PRIOR, Prior
from harness.judgement.statistics.paired import ProcessEffect
from harness.judgement.statistics.rates import holm
from harness.numbers import percent
from harness.records.types import (
    Arm,
    Diagnosis,
    Effect,
    Outputs,
    PairedBlock,
    Quad,
    Strays,
    Verdict,
    VerdictStatus,
    fields_of,
)
from harness.suite.problem import Case

CYCLES_MEAN_WORK = 0.8
"""Clock exponent from which on time is cycles over clock."""
SPARE_PROCESSES = 2
"""Processes beyond those of a look, for a case whose blocks hold too few quads that can be read."""
ORDER_ERROR = 1e-3
"""Error rate at which the order of slots is taken to matter although it does not."""
_WRAPPED = 4.0
"""The largest ratio of two clocks of one quad; beyond it a counter has wrapped."""
FIRST_ERROR, LATER_ERROR = 0.6, 0.2
"""Standard error of a block's effect, over the margin, at which it ends: most cases are settled at the first
look, by the tolerance, and only those that are not need more."""
TAIL_QUADS = 50
"""The fewest quads of a block where slots strayed on one side: strays are few, and have to be counted."""


@dataclass(frozen=True, slots=True)
class NoisePriors:
    """Spread of effects between processes on this device, and its origin."""

    time: Prior = DEFAULT_PRIOR
    cycles: Prior = DEFAULT_PRIOR
    calibrated: bool = False
    floor: float | None = None
    """Smallest visible slowdown of this case when the device was calibrated."""
    launch_ns: float = 0.0
    """Standard deviation of a launch's time between processes, in nanoseconds; not part of the priors."""

    def at(self, time_ns: float) -> NoisePriors:
        """Return the priors of a case whose launches take `time_ns`."""
        more = (self.launch_ns / time_ns) ** 2 if time_ns > 0 else 0.0
        time, cycles = (
            dataclasses.replace(prior, variance=prior.variance + more) for prior in (self.time, self.cycles)
        )
        return dataclasses.replace(self, time=time, cycles=cycles)


@dataclass(frozen=True, slots=True)
class Precision:
    """The goal of the next block of a case, at which the block ends."""

    standard_error: float
    """The standard error of its effect at which it ends."""
    min_quads: int = 0


@dataclass(frozen=True, slots=True)
class _Effects:
    """Effects of some quads of a process; None where too few of them can be read."""

    time: ProcessEffect | None = None
    cycles: ProcessEffect | None = None

    @classmethod
    def of(cls, block: PairedBlock, quads: Sequence[Quad]) -> _Effects:
        if len(quads) < paired.MIN_QUADS:
            return cls()
        times = [quad.times_ns for quad in quads]
        slot_ns = block.launches_per_slot * median(time_ns for quad in times for time_ns in quad)
        resolution = paired.tick_error(block.tick_ns, slot_ns, len(times))
        time = paired.process_effect(paired.log_ratios(_orders(quads), times), resolution)
        counted = [quad for quad in quads if _counted(quad)]
        if len(counted) < max(paired.MIN_QUADS, len(quads) / 2):
            return cls(time)
        cycles = [quad.cycles for quad in counted if quad.cycles]
        return cls(time, paired.process_effect(paired.log_ratios(_orders(counted), cycles)))


@dataclass(frozen=True)
class Round:
    """The measurements of one process, and the findings of the gates."""

    block: PairedBlock
    gated: Gated
    quads: tuple[Quad, ...]
    """Quads whose times can be read."""
    all: _Effects
    clean: _Effects
    """Effects of the quads that nothing else touched."""

    @classmethod
    def of(cls, block: PairedBlock, gated: Gated) -> Round:
        quads = tuple(quad for quad in gated.quads if paired.readable(quad.times_ns))
        every = _Effects.of(block, quads)
        if len(gated.clean) == len(gated.quads):
            return cls(block, gated, quads, every, every)
        clean = _Effects.of(block, [quad for quad in gated.clean if paired.readable(quad.times_ns)])
        return cls(block, gated, quads, every, clean)

    @cached_property
    def losses(self) -> paired.Losses:
        """Its stray slots, which every further look asks for again."""
        return paired.losses(_orders(self.quads), [quad.times_ns for quad in self.quads])

    @cached_property
    def exponent(self) -> tuple[float, float] | None:
        """Return how time follows the SM clock, with its standard error."""
        quads, noise = self.quads, self.block.clock_noise
        clocks = [mhz for quad in quads if (mhz := quad.sm_clock_mhz) and paired.readable(mhz)]
        if noise is None or len(clocks) < len(quads) or len(quads) < paired.MIN_QUADS:
            return None
        return paired.clock_exponent([q.times_ns for q in quads], clocks, _orders(quads), noise)


@dataclass
class CaseTrial:
    """A case that both commits have, from the first process to its verdict.

    Until a look decides, its processes are `rounds`. What is called slower or faster is then measured
    `again`, and by that alone confirmed or not.
    """

    id: str
    """The case's id, or a twin's name."""
    case: Case
    policy: Policy
    noise: NoisePriors = field(default_factory=NoisePriors)
    rounds: list[Round] = field(default_factory=list)
    again: list[Round] = field(default_factory=list)
    """Processes measured to confirm or refute what `rounds` said."""
    sides: Mapping[str, Arm] = field(default_factory=dict)
    """Base and head, apart from their times."""
    settings_changed: tuple[str, ...] = ()
    """Settings of base's process that head's has otherwise, such as ``torch.get_num_threads: 8 → 1``."""
    outputs: Outputs | None = None
    """Results that head's outputs were compared with; None where nothing ran."""
    judgement: Judgement | None = None
    """The judgement of `rounds`; or of `again` where these show that nothing changed."""
    looks: int = 0
    """Number of looks so far in this stage."""
    settled: bool = False
    """True where nothing more is to be measured."""
    confirmed: bool | None = None
    p_value: float = 1.0
    stopped_by: str = ""
    """Reason why it ended early: budget-spent, interrupted or record-ends."""
    solo: Mapping[str, SoloRun] = field(default_factory=dict)
    """By side, what it did when it ran alone; empty where none did."""
    diagnosis: Diagnosis | None = None
    _flag: Judgement | None = None
    """The judgement that is being confirmed."""
    _ending: Verdict | None = None

    def end(self, status: VerdictStatus, reason: str, message: str, log: str = "", side: Side = "") -> None:
        """Settle the case by something other than its times; `side` is the one that failed, if one did."""
        self.settled = True
        if side and status != "failed":
            side, message = "", f"At {side}: {message}"
        self._ending = dataclasses.replace(self._verdict(status, reason, message), log=log, side=side)

    @property
    def ended(self) -> bool:
        return self._ending is not None

    @property
    def confirming(self) -> bool:
        """Return whether it was called slower or faster, and what is measured now is to confirm it."""
        return self._flag is not None

    @property
    def precision(self) -> Precision:
        """Return how well the next block must know its effect for the verdict to profit."""
        wanted = self._precision
        least = 0.0
        if self.noise.launch_ns:
            # What processes differ by hides a smaller error than this, and their quads take long.
            found = [each.all.time.value for each in (*self.rounds, *self.again) if each.all.time]
            differ = stdev(found) if len(found) > 2 else 0.0
            least = max(differ, math.sqrt(self.noise_of(self.rounds).time.variance)) / 3
        return dataclasses.replace(wanted, standard_error=max(wanted.standard_error, least))

    @property
    def _precision(self) -> Precision:
        margin, later = self.policy.margin, LATER_ERROR * self.policy.margin
        if self.judgement is None:
            return Precision(FIRST_ERROR * margin)
        min_quads = TAIL_QUADS if self.suspicious else 0
        beyond = min(abs(each.effect) for each in self.judgement.estimates.values()) - margin
        if not self.confirming and beyond < 0:
            # It is the tolerance that it may still have to be told from.
            return Precision(2 * later, min_quads)
        if not self.confirming or "tail" in self.judgement.metrics:
            return Precision(later, min_quads)
        # An eighth: so that two processes are mostly enough to confirm what is as large as it looked.
        return Precision(max(later, beyond / 8) if self.looks == 0 else later, min_quads)

    @property
    def suspicious(self) -> bool:
        """Tell whether strays cost one side more than the tolerated amount, by chance or not."""
        return abs(self.tail(self.rounds).cost) > self.policy.tail_margin

    @property
    def unfinished(self) -> bool:
        """Tell whether the trial stopped undecided. Such a trial says nothing about error rates."""
        return bool(self.stopped_by) or (self.confirming and self.confirmed is None)

    def add(self, block: PairedBlock, gated: Gated) -> None:
        """Take what one more process measured, and judge where a look is due."""
        self._stage.append(Round.of(block, gated))
        if self.settled:
            return
        count = self.policy.looks[self.looks]
        if len(_with_effect(self._stage)) >= count:
            self.look()
        elif len(self._stage) >= count + SPARE_PROCESSES:
            self.settled = True  # too little can be read

    @property
    def _stage(self) -> list[Round]:
        return self.again if self.confirming else self.rounds

    def look(self, *, last: bool = False) -> None:
        """Judge by all processes of the stage so far, at its next look, or at the last that there can be."""
        look, self.looks = self.looks, self.looks + 1
        last = last or self.looks == len(self.policy.looks)
        found = self._judge(self._stage, look, last=last)
        if not self.confirming:
            self.judgement = found
            if found.status in ("slower", "faster"):
                self._flag, self.looks = found, 0
            else:
                self.settled = last or found.status == "same"
            return
        self._confirm(look, last=last)
        refuted = self.p_value > self.policy.confirm and found.status == "same"
        if refuted:
            self.judgement = found
        if refuted or last:
            # For want of another look. `settle` may still confirm it, as other cases' p-values fall.
            self.confirmed, self.settled = False, True

    def _confirm(self, look: int, *, last: bool) -> None:
        """Take in what this look says of the flag.

        At the power limit, which hides work from time, cycles may confirm alone, with half of the error: what
        both say they say as well, so that errs no more often.
        """
        assert self._flag is not None
        ways = [(self._p_again(look, self._flag.metrics, last=last), self._flag.metrics)]
        if len(self._flag.metrics) > 1 and self._cycles_tell:
            ways.append((2 * self._p_again(look, ("cycles",), last=last), ("cycles",)))
        p_value, metrics = min(ways)
        if p_value < self.p_value:
            self.p_value, self.judgement = p_value, dataclasses.replace(self._flag, metrics=metrics)

    def _p_again(self, look: int, names: Sequence[MetricName], *, last: bool) -> float:
        assert self._flag is not None
        direction: Direction = "slower" if self._flag.status == "slower" else "faster"
        if "tail" in names:
            cost, p_value = self.tail(self.again).toward(direction)
            if cost <= self.policy.tail_margin:
                return 1.0
            return min(1.0, p_value / self.policy.confirm_share(look, last=last))
        metrics = tuple(metric for metric in self.metrics(self.again) if metric.name in names)
        return p_again(direction, metrics, self.policy, look, last=last) if metrics else 1.0

    def _judge(
        self, rounds: Sequence[Round], look: int, *, last: bool = False, clean: bool = False
    ) -> Judgement:
        """By metrics, and by the tail where these say nothing."""
        metrics = self.metrics(rounds, clean=clean)
        again = rounds is self.again
        found = judge(metrics, self.policy, look, last=last, again=again, cycles_tell=self._cycles_tell)
        if found.status in ("slower", "faster"):
            return found
        if found.status == "undecided" and not last:
            return found  # what strays say would take the looks that are still to come
        if any(each.block.in_turns for each in rounds):
            return found  # a process strays as a whole, so its quads are no trials of their own
        tail, alpha = self.tail(rounds), self.policy.flag_alpha(look, last=last)
        for direction in DIRECTIONS:
            cost, p_value = tail.toward(direction)
            if cost > self.policy.tail_margin and p_value < alpha:
                return dataclasses.replace(found, status=direction, metrics=("tail",))
        if found.status == "same" and abs(tail.cost) > self.policy.tail_margin and not last:
            return dataclasses.replace(found, status="undecided")
        return found

    def interrupt(self, why: str = "interrupted") -> None:
        """Measure nothing more, and judge by what is known by then, whatever the number of processes."""
        if self.settled:
            return
        if len(_with_effect(self._stage)) >= 2:
            self.look(last=True)
        self.stopped_by, self.settled = self.stopped_by or why, True
        if self._flag and self.judgement and self.judgement.status == self._flag.status:
            self.confirmed = None  # neither confirmed nor refuted, unless `settle` does

    def metrics(self, rounds: Sequence[Round], *, clean: bool = False) -> list[MetricEffects]:
        """Time, and cycles where every process has them."""
        found = [each.clean if clean else each.all for each in rounds]
        time = tuple(each.time for each in found if each.time)
        cycles = tuple(each.cycles for each in found if each.cycles)
        noise = self.noise_of(rounds)
        metrics = [MetricEffects("time", time, noise.time)]
        if len(cycles) == len(time):
            metrics.append(MetricEffects("cycles", cycles, noise.cycles))
        return metrics

    def noise_of(self, rounds: Sequence[Round]) -> NoisePriors:
        """Return the priors for these processes, by the median time of the faster side's launches."""
        times = [min(each.block.median_ns("A"), each.block.median_ns("B")) for each in rounds if each.quads]
        return self.noise.at(median(times)) if times else self.noise

    @property
    def _cycles_tell(self) -> bool | None:
        """Return whether cycles count where time disagrees; None where unknown.

        At the power limit they do, as it hides work from time; not where they follow the clock, not the work.
        """
        exponent = self.exponent()
        if exponent is not None and exponent < CYCLES_MEAN_WORK:
            return False
        return True if self.power_capped else None

    @property
    def power_capped(self) -> bool | None:
        """Return whether the driver lowered clocks for the power limit; None where it cannot tell."""
        return self._gated().power_capped

    def tail(self, rounds: Sequence[Round]) -> paired.Tail:
        return paired.tail_of([each.losses for each in rounds if each.quads])

    def order(self, rounds: Sequence[Round]) -> paired.OrderBias:
        found = [(_orders(each.quads), [q.times_ns for q in each.quads]) for each in rounds if each.quads]
        return paired.order_bias(found)

    def exponent(self) -> float | None:
        """Return the clock exponent, from the process that shows it best."""
        found = [each.exponent for each in self.rounds if each.exponent is not None]
        return min(found, key=lambda fitted: fitted[1])[0] if found else None

    def _gated(self) -> Gated:
        return combine([each.gated for each in (*self.rounds, *self.again)])

    def verdict(self) -> Verdict:
        """Return the verdict as things stand."""
        if self._ending is not None:
            return self._ending
        gated = self._gated()
        if self.judgement is None:
            if self.rounds and self.settled and not self.stopped_by:
                return self._judged("invalid", "too-few-quads", "", gated)
            return self._judged("inconclusive", self.stopped_by or "interrupted", "", gated)
        status, reason, message = _outcome(self, self.judgement)
        if status in ("regression", "improvement", "unchanged"):
            if doubt := self._disturbed(gated, status):
                return self._judged("invalid", *doubt, gated)
            if doubt_on_order := self._order_matters(status):
                return self._judged("inconclusive", "order", doubt_on_order, gated)
        return self._judged(status, reason, message, gated)

    @property
    def telling(self) -> list[Round]:
        """The processes that the verdict rests on."""
        # What was measured again was not chosen for being large, so its effect is the unbiased one.
        return _with_effect(self.again if self.confirmed is not None and self.again else self.rounds)

    def _disturbed(self, gated: Gated, status: VerdictStatus) -> tuple[str, str] | None:
        """Return the reason code and sentence of a disturbance that may have made the verdict, or None.

        The verdict is compared with that of the clean quads. Without clean quads, the disturbance of a fixed
        kernel's time decides.
        """
        if len(gated.clean) == len(gated.quads):
            return None
        reason = max(gated.touched, key=lambda code: gated.touched[code])
        told = next((text for text in gated.findings if text.startswith(f"{reason}:")), "").partition(": ")[2]
        wanted: Mapping[str, str] = {"regression": "slower", "improvement": "faster", "unchanged": "same"}
        if clean := [each for each in self.telling if each.clean.time]:
            alone = self._judge(clean, len(self.policy.looks) - 1, clean=True)
            agrees = alone.status in ("undecided", wanted[status]) or "tail" in alone.metrics
            if agrees or self._holds_too(alone, status):
                return None
            return reason, (
                f"The {sum(len(each.gated.clean) for each in clean)} quads without a disturbance say "
                f"{alone.status}, and all together do not: {told}"
            )
        claim = self.policy.tolerance
        if status != "unchanged":
            found = self._judge(self.telling, len(self.policy.looks) - 1).estimates.values()
            claim = min(min(abs(each.low), abs(each.high)) for each in found)
        if gated.disturbance <= claim:
            return None
        return reason, (
            f"Every quad was disturbed, and a fixed kernel's time varied by {percent(gated.disturbance)}, "
            f"which can make such an effect or hide one: {told}"
        )

    def _holds_too(self, alone: Judgement, status: VerdictStatus) -> bool:
        """Return whether a verdict holds by another judgement too: an effect can be slower and tolerable."""
        metrics = alone.metrics or ("time", "cycles")
        sizes = [abs(found.effect) for name, found in alone.estimates.items() if name in metrics]
        if status == "unchanged":
            return max(sizes) < self.policy.tolerance
        return alone.status == "same" and min(sizes) > self.policy.margin

    def _order_matters(self, status: VerdictStatus) -> str:
        """Return why the bias from the order of slots could change the verdict, or "" where it could not."""
        # Of all processes: two blocks of few quads could not show it, and nobody chose any for its order.
        doubt = self.order((*self.rounds, *self.again)).doubt(ORDER_ERROR)
        if doubt == 0 or self.judgement is None or "tail" in self.judgement.metrics:
            return ""
        if (found := _effect(self.telling, "time", self)) is None:
            return ""
        effect = abs(math.log1p(found.effect))
        holds = effect + doubt < math.log1p(self.policy.tolerance)
        if status != "unchanged":
            holds = effect - doubt > math.log1p(self.policy.margin)
        return "" if holds else f"That alone makes up to {percent(doubt)}."

    def _judged(self, status: VerdictStatus, reason: str, message: str, gated: Gated) -> Verdict:
        judgement, rounds = self.judgement, self.telling
        both = (*self.rounds, *self.again)
        telemetry = [each.block.telemetry for each in both if each.block.telemetry]
        during = [snapshot for each in telemetry for snapshot in each.during]
        quads = tuple(quad for each in both for quad in each.quads)
        order, tail = self.order(both), self.tail(rounds)
        strays = Strays(base=tail.base, head=tail.head, slots=tail.slots, cost=tail.cost)
        verdict = dataclasses.replace(
            self._verdict(status, reason, message),
            time=_effect(rounds, "time", self),
            cycles=_effect(rounds, "cycles", self),
            energy=_energy(self.solo) if self.solo else None,
            strays=strays if rounds else None,
            smallest_visible=judgement.smallest_visible if judgement else None,
            noise_floor=self.noise.floor,
            clock_exponent=self.exponent(),
            power_capped=gated.power_capped,
            base=self._arm("base", quads, gated.quads),
            head=self._arm("head", quads, gated.quads),
            temperature_c=mean_of_known([snapshot.temperature_c for snapshot in during]),
            power_w=mean_of_known([snapshot.power_w for snapshot in during]),
            order_p=min(order.between_p, order.carried_p) if quads else None,
            touched=gated.touched,
            unavailable=gated.unavailable,
            gpu_s=math.fsum(each.block.gpu_s for each in both),
            complete=not self.stopped_by,
        )
        if judgement is not None and "tail" in judgement.metrics and status != "invalid":
            return verdict  # why a few slots stray, neither the usual time nor the usual cycles tell
        return dataclasses.replace(verdict, attribution=attribute(verdict))

    def _verdict(self, status: VerdictStatus, reason: str, message: str) -> Verdict:
        bare = bare_verdict(self.id, self.case, status, reason, message)
        base, head = self._arm("base"), self._arm("head")
        told = fields_of(self, "settings_changed", "outputs", "diagnosis")
        return dataclasses.replace(bare, base=base, head=head, **told)

    def _arm(self, side: str, quads: Sequence[Quad] = (), every: Sequence[Quad] = ()) -> Arm | None:
        """A side with the median time of `quads` and the mean SM clock of `every` quad."""
        letter, known = ("A" if side == "base" else "B"), self.sides.get(side)
        times = [time_ns for quad in quads for time_ns in paired.of_arm(quad.order, quad.times_ns, letter)]
        if known is None and not times:
            return None
        counted = [(quad.order, quad.sm_clock_mhz) for quad in every if quad.sm_clock_mhz]
        clocks = [mhz for order, slots in counted for mhz in paired.of_arm(order, slots, letter)]
        alone = self.solo.get(side)
        return dataclasses.replace(
            known or Arm(),
            time_ns=median(times) if times else None,
            sm_clock_mhz=mean_of_known(clocks),
            alone_mhz=alone.sm_clock_mhz if alone else None,
            alone_w=alone.power_w if alone else None,
        )


def bare_verdict(name: str, case: Case, status: VerdictStatus, reason: str, message: str = "") -> Verdict:
    """Return a verdict, by its name, of a case with nothing measured."""
    known = fields_of(case, "kernel", "sizes", "dtype")
    return Verdict(case=name, status=status, reason=reason, message=message, **known)


def settle(trials: Iterable[CaseTrial], policy: Policy) -> None:
    """Confirm what fresh processes, which no one chose a case by, have said again surely enough.

    Holm's step-down over all flagged (Scandinavian Journal of Statistics 6 (1979) 65-70): the chance
    that any case within the margin is confirmed is at most `policy.confirm`, however it was flagged.
    The two stages share no data: a false alarm must pass both by chance. A case's p-value is the least that
    `p_again` had for it so far. It can only fall as looks are added, so what is confirmed before the last of
    them would be so after it. A case that no look has decided yet may still be flagged, so it counts among
    those that are.
    """
    family = {each.id: each for each in trials if each.confirming or not each.settled}
    for name in holm({name: each.p_value for name, each in family.items()}, policy.confirm):
        family[name].confirmed = family[name].settled = True


def _outcome(trial: CaseTrial, judgement: Judgement) -> tuple[VerdictStatus, str, str]:
    """Status, reason, and what neither they nor the figures tell, of a case that has been judged."""
    if judgement.status in ("slower", "faster"):
        return _outcome_of_flagged(trial, judgement)
    if judgement.status == "same":
        return "unchanged", "within-tolerance", ""
    if trial.stopped_by:
        return "inconclusive", trial.stopped_by, ""
    if judgement.apart:
        return "inconclusive", "clocks", ""
    why = "Processes differ by more than this device's history explains." if judgement.excess else ""
    return "inconclusive", "too-noisy", why


def _outcome_of_flagged(trial: CaseTrial, judgement: Judgement) -> tuple[VerdictStatus, str, str]:
    metric = next((name for name in ("time", "cycles") if name in judgement.metrics), "tail")
    if trial.confirmed:
        status: VerdictStatus = "regression" if judgement.status == "slower" else "improvement"
        return status, f"{judgement.status}-in-{metric}", ""
    looked = f"It looked {judgement.status}"
    if trial.confirmed is False:
        return "inconclusive", "not-confirmed", f"{looked} at first."
    if trial.stopped_by or not trial.settled:
        return "inconclusive", trial.stopped_by or "not-confirmed", f"{looked}, and was not measured again."
    why = "too few fresh processes gave enough quads whose times can be read"
    return "inconclusive", "not-confirmed", f"{looked}, and {why}."


def _with_effect(rounds: Sequence[Round]) -> list[Round]:
    return [each for each in rounds if each.all.time is not None]


def _effect(rounds: Sequence[Round], name: MetricName, trial: CaseTrial) -> Effect | None:
    """Return the effect of these processes in one metric; None where one of them does not have it."""
    metric = next((each for each in trial.metrics(rounds) if each.name == name and each.effects), None)
    if metric is None:
        return None
    found = judge([metric], trial.policy, len(trial.policy.looks) - 1).estimates[name]
    effects = tuple(math.expm1(each.value) for each in metric.effects)
    return dataclasses.replace(found, process_effects=effects)


def _energy(solo: Mapping[str, SoloRun]) -> Effect | None:
    base, head = solo["base"], solo["head"]
    if base.energy_j is None or head.energy_j is None:
        return None
    effect = head.energy_j / base.energy_j - 1
    error = math.hypot(base.energy_error or 0.0, head.energy_error or 0.0)
    return Effect(effect=effect, low=effect - error, high=effect + error, processes=1, quads=0)


def _counted(quad: Quad) -> bool:
    """Tell whether the quad's cycles can be read. If clocks differ widely in one quad, a counter wrapped."""
    if quad.cycles is None or not paired.readable(quad.cycles):
        return False
    clocks = [cycles / time_ns for cycles, time_ns in zip(quad.cycles, quad.times_ns, strict=True)]
    return max(clocks) <= _WRAPPED * min(clocks)


def _orders(quads: Sequence[Quad]) -> list[str]:
    return [quad.order for quad in quads]
