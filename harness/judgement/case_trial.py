"""The trial of one case: the measurements of its processes so far, and the verdict. Pure functions."""

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
    KernelLaunch,
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
"""Clock exponent from which time is taken to be cycles over clock."""
SPARE_PROCESSES = 2
"""Extra processes for a case whose blocks hold too few readable quads."""
ORDER_ERROR = 1e-3
"""Error rate of the test for an effect of the order of slots."""
_WRAPPED = 4.0
"""Largest ratio of two clocks of one quad. A larger ratio means that a counter has wrapped."""
FIRST_ERROR, LATER_ERROR = 0.6, 0.2
"""Standard errors of a block's effect, in margins, at which the block ends: at the first look and later. Most
cases are settled at the first look, by the tolerance. The others need a more precise estimate."""
TAIL_QUADS = 50
"""Fewest quads of a block in which one side had outliers. Outliers are rare, so counting them needs more
quads."""


@dataclass(frozen=True, slots=True)
class NoisePriors:
    """Spread of effects between processes on this device, and where that estimate comes from."""

    time: Prior = DEFAULT_PRIOR
    cycles: Prior = DEFAULT_PRIOR
    calibrated: bool = False
    floor: float | None = None
    """Smallest visible slowdown of this case when the device was calibrated."""
    launch_ns: float = 0.0
    """Standard deviation of a launch's time between processes, in nanoseconds. The priors do not include it.
    """

    def at(self, time_ns: float) -> NoisePriors:
        """Return the priors of a case whose launches take `time_ns`."""
        more = (self.launch_ns / time_ns) ** 2 if time_ns > 0 else 0.0
        time, cycles = (
            dataclasses.replace(prior, variance=prior.variance + more) for prior in (self.time, self.cycles)
        )
        return dataclasses.replace(self, time=time, cycles=cycles)


@dataclass(frozen=True, slots=True)
class Precision:
    """The precision that the next block of a case must reach. The block ends when it is reached."""

    standard_error: float
    """Standard error of the block's effect at which the block ends."""
    min_quads: int = 0


@dataclass(frozen=True, slots=True)
class _Effects:
    """Effects of some quads of a process; None where too few quads are readable."""

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
    """Quads with readable times."""
    all: _Effects
    clean: _Effects
    """Effects of the quads without a disturbance."""

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
        """Return the outliers of this process. Every later look uses them again, so they are cached."""
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

    Processes are added to `rounds` until a look decides. If the case is then called slower or faster, new
    processes are measured into `again`. Only these can confirm the call.
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
    """Facts about base and head other than their times."""
    settings_changed: tuple[str, ...] = ()
    """Settings that differ between base's process and head's, such as ``torch.get_num_threads: 8 → 1``."""
    launches: Mapping[str, tuple[KernelLaunch, ...]] = field(default_factory=dict)
    """Kernels that each side's function launches; empty if unknown."""
    outputs: Outputs | None = None
    """Reference that head's outputs were compared with; None if nothing ran."""
    judgement: Judgement | None = None
    """Judgement of `rounds`, or of `again` if these processes showed no change."""
    looks: int = 0
    """Number of looks so far in this stage."""
    settled: bool = False
    """True if no more processes are needed."""
    confirmed: bool | None = None
    p_value: float = 1.0
    stopped_by: str = ""
    """Reason for an early end: budget-spent, interrupted or record-ends."""
    solo: Mapping[str, SoloRun] = field(default_factory=dict)
    """Measurements of each side running alone; empty if there are none."""
    diagnosis: Diagnosis | None = None
    _flag: Judgement | None = None
    """The judgement that new processes must confirm."""
    _ending: Verdict | None = None

    def end(self, status: VerdictStatus, reason: str, message: str, log: str = "", side: Side = "") -> None:
        """Settle the case by a reason other than its times. `side` is the side that failed, if one did."""
        self.settled = True
        if side and status != "failed":
            side, message = "", f"At {side}: {message}"
        self._ending = dataclasses.replace(self._verdict(status, reason, message), log=log, side=side)

    @property
    def ended(self) -> bool:
        return self._ending is not None

    @property
    def confirming(self) -> bool:
        """Return whether the case was called slower or faster, and is now being confirmed."""
        return self._flag is not None

    @property
    def precision(self) -> Precision:
        """Return the precision that the next block needs."""
        wanted = self._precision
        least = 0.0
        if self.noise.launch_ns:
            # A smaller error is useless: differences between processes hide it, and long quads are expensive.
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
            # The effect must be distinguished from the tolerance, too.
            return Precision(2 * later, min_quads)
        if not self.confirming or "tail" in self.judgement.metrics:
            return Precision(later, min_quads)
        # An eighth: then two processes usually suffice to confirm an effect of the size that was seen.
        return Precision(max(later, beyond / 8) if self.looks == 0 else later, min_quads)

    @property
    def suspicious(self) -> bool:
        """Tell whether outliers cost one side more than tolerated, whether or not by chance."""
        return abs(self.tail(self.rounds).cost) > self.policy.tail_margin

    @property
    def unfinished(self) -> bool:
        """Tell whether the trial stopped undecided. Error rates cannot be estimated from such a trial."""
        return bool(self.stopped_by) or (self.confirming and self.confirmed is None)

    def add(self, block: PairedBlock, gated: Gated) -> None:
        """Add the measurements of one more process, and judge if a look is due."""
        self._stage.append(Round.of(block, gated))
        if self.settled:
            return
        count = self.policy.looks[self.looks]
        if len(_with_effect(self._stage)) >= count:
            self.look()
        elif len(self._stage) >= count + SPARE_PROCESSES:
            self.settled = True  # too few readable quads

    @property
    def _stage(self) -> list[Round]:
        return self.again if self.confirming else self.rounds

    def look(self, *, last: bool = False) -> None:
        """Judge all processes of the stage so far: at the next look, or at the last possible one."""
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
            # No look is left. `settle` may still confirm the case when the p-values of other cases fall.
            self.confirmed, self.settled = False, True

    def _confirm(self, look: int, *, last: bool) -> None:
        """Update the confirmation with this look.

        The power limit can hide work from the time. There cycles alone may confirm, with half of the error
        rate. The total error rate is unchanged, because what time and cycles confirm together, cycles confirm
        too.
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
        """Judge by the metrics, and by the outliers if the metrics do not decide."""
        metrics = self.metrics(rounds, clean=clean)
        again = rounds is self.again
        found = judge(metrics, self.policy, look, last=last, again=again, cycles_tell=self._cycles_tell)
        if found.status in ("slower", "faster"):
            return found
        if found.status == "undecided" and not last:
            return found  # If outliers decided now, the remaining looks would be lost.
        if any(each.block.in_turns for each in rounds):
            return found  # Outliers come in bursts within a process, so its quads are not independent trials.
        tail, alpha = self.tail(rounds), self.policy.flag_alpha(look, last=last)
        for direction in DIRECTIONS:
            cost, p_value = tail.toward(direction)
            if cost > self.policy.tail_margin and p_value < alpha:
                return dataclasses.replace(found, status=direction, metrics=("tail",))
        if found.status == "same" and abs(tail.cost) > self.policy.tail_margin and not last:
            return dataclasses.replace(found, status="undecided")
        return found

    def interrupt(self, why: str = "interrupted") -> None:
        """Stop measuring, and judge by the processes so far."""
        if self.settled:
            return
        if len(_with_effect(self._stage)) >= 2:
            self.look(last=True)
        self.stopped_by, self.settled = self.stopped_by or why, True
        if self._flag and self.judgement and self.judgement.status == self._flag.status:
            self.confirmed = None  # neither confirmed nor refuted, unless `settle` confirms it

    def metrics(self, rounds: Sequence[Round], *, clean: bool = False) -> list[MetricEffects]:
        """Return the effects in time, and in cycles if every process has them."""
        found = [each.clean if clean else each.all for each in rounds]
        time = tuple(each.time for each in found if each.time)
        cycles = tuple(each.cycles for each in found if each.cycles)
        noise = self.noise_of(rounds)
        metrics = [MetricEffects("time", time, noise.time)]
        if len(cycles) == len(time):
            metrics.append(MetricEffects("cycles", cycles, noise.cycles))
        return metrics

    def noise_of(self, rounds: Sequence[Round]) -> NoisePriors:
        """Return the priors for these processes. They depend on the median launch time of the faster side."""
        times = [min(each.block.median_ns("A"), each.block.median_ns("B")) for each in rounds if each.quads]
        return self.noise.at(median(times)) if times else self.noise

    @property
    def _cycles_tell(self) -> bool | None:
        """Return whether cycles decide if time disagrees with them; None if unknown.

        At the power limit cycles decide, because the limit hides work from the time. They do not decide if
        they follow the clock instead of the work.
        """
        exponent = self.exponent()
        if exponent is not None and exponent < CYCLES_MEAN_WORK:
            return False
        return True if self.power_capped else None

    @property
    def power_capped(self) -> bool | None:
        """Return whether the driver lowered clocks for the power limit; None if unknown."""
        return self._gated().power_capped

    def tail(self, rounds: Sequence[Round]) -> paired.Tail:
        return paired.tail_of([each.losses for each in rounds if each.quads])

    def order(self, rounds: Sequence[Round]) -> paired.OrderBias:
        found = [(_orders(each.quads), [q.times_ns for q in each.quads]) for each in rounds if each.quads]
        return paired.order_bias(found)

    def exponent(self) -> float | None:
        """Return the clock exponent of the process that determines it best."""
        found = [each.exponent for each in self.rounds if each.exponent is not None]
        return min(found, key=lambda fitted: fitted[1])[0] if found else None

    def _gated(self) -> Gated:
        return combine([each.gated for each in (*self.rounds, *self.again)])

    def verdict(self) -> Verdict:
        """Return the verdict by the measurements so far."""
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
        """Return the processes that the verdict is based on."""
        # Processes that confirm were not selected by the size of their effect, so their estimate is unbiased.
        return _with_effect(self.again if self.confirmed is not None and self.again else self.rounds)

    def _disturbed(self, gated: Gated, status: VerdictStatus) -> tuple[str, str] | None:
        """Return the reason code and sentence of a disturbance that could explain the verdict, or None.

        The verdict is compared with the verdict of the clean quads. If there are no clean quads, the
        disturbance of the canary's time decides.
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
                f"The {sum(len(each.gated.clean) for each in clean)} undisturbed quads give the verdict "
                f"{alone.status}, and all quads together do not: {told}"
            )
        claim = self.policy.tolerance
        if status != "unchanged":
            found = self._judge(self.telling, len(self.policy.looks) - 1).estimates.values()
            claim = min(min(abs(each.low), abs(each.high)) for each in found)
        if gated.disturbance <= claim:
            return None
        return reason, (
            f"Every quad was disturbed, and a fixed kernel's time varied by {percent(gated.disturbance)}, "
            f"which can cause or hide such an effect: {told}"
        )

    def _holds_too(self, alone: Judgement, status: VerdictStatus) -> bool:
        """Return whether another judgement supports the verdict. An effect can be both slower and within the
        tolerance.
        """
        metrics = alone.metrics or ("time", "cycles")
        sizes = [abs(found.effect) for name, found in alone.estimates.items() if name in metrics]
        if status == "unchanged":
            return max(sizes) < self.policy.tolerance
        return alone.status == "same" and min(sizes) > self.policy.margin

    def _order_matters(self, status: VerdictStatus) -> str:
        """Return why the order of slots could change the verdict, or "" if it could not."""
        # Use all processes: two short blocks could not show an order effect, and no process was selected by
        # its order.
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
            return verdict  # Neither the usual time nor the usual cycles explain a few outliers.
        return dataclasses.replace(verdict, attribution=attribute(verdict))

    def _verdict(self, status: VerdictStatus, reason: str, message: str) -> Verdict:
        bare = bare_verdict(self.id, self.case, status, reason, message)
        base, head = self._arm("base"), self._arm("head")
        told = fields_of(self, "settings_changed", "outputs", "diagnosis")
        return dataclasses.replace(bare, base=base, head=head, **told)

    def _arm(self, side: str, quads: Sequence[Quad] = (), every: Sequence[Quad] = ()) -> Arm | None:
        """Return a side with the median time of `quads` and the mean SM clock of `every` quad."""
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
            launches=self.launches.get(side, ()),
        )


def bare_verdict(name: str, case: Case, status: VerdictStatus, reason: str, message: str = "") -> Verdict:
    """Return a verdict without measurements."""
    known = fields_of(case, "kernel", "sizes", "dtype")
    return Verdict(case=name, status=status, reason=reason, message=message, **known)


def settle(trials: Iterable[CaseTrial], policy: Policy) -> None:
    """Confirm the flagged cases whose confirming processes give small enough p-values.

    Holm's step-down runs over all flagged cases (Scandinavian Journal of Statistics 6 (1979) 65-70). The
    probability of confirming any case that is within the margin is at most `policy.confirm`. The flag and its
    confirmation share no data, so a false alarm must pass both by chance. The p-value of a case is the
    smallest that `p_again` has returned for it. It can only fall with more looks, so a confirmation never has
    to be taken back. A case that no look has decided yet may still be flagged, so it counts as flagged.
    """
    family = {each.id: each for each in trials if each.confirming or not each.settled}
    for name in holm({name: each.p_value for name, each in family.items()}, policy.confirm):
        family[name].confirmed = family[name].settled = True


def _outcome(trial: CaseTrial, judgement: Judgement) -> tuple[VerdictStatus, str, str]:
    """Return the status, the reason and a sentence on what the status and the numbers do not show."""
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
    """Return the effect of these processes in one metric; None if a process lacks the metric."""
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
    """Tell whether the quad's cycles are readable. Widely different clocks in one quad mean that a counter
    wrapped.
    """
    if quad.cycles is None or not paired.readable(quad.cycles):
        return False
    clocks = [cycles / time_ns for cycles, time_ns in zip(quad.cycles, quad.times_ns, strict=True)]
    return max(clocks) <= _WRAPPED * min(clocks)


def _orders(quads: Sequence[Quad]) -> list[str]:
    return [quad.order for quad in quads]
