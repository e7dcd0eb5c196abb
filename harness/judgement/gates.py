"""Finds quads of a block that something other than the two kernels disturbed, by limits for the card's and
the quads' values.

Gates report disturbances and drop no quad. The order of a quad is random, so a disturbance is noise and
favours no side. Gates do not know the sides: they read neither a quad's order nor the times that a verdict is
made from. They judge whole quads, so clean quads can be compared with all quads.

A gate without data is listed as unavailable with the reason, and does not count as passed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from math import sqrt
from statistics import fmean, median, mode
from typing import Any

from harness.judgement.statistics.summary import MAD_SCALE
from harness.records.types import PairedBlock, Quad, Snapshot, Telemetry

_FEWEST_CANARIES = 3
"""Fewest canaries that can show an outlier: two values are equally far from their median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """Limits of the gates. Shares are fractions: 0.01 is 1 %. A value at its limit passes."""

    power_cap_share: float = 0.01
    """Largest share of a block in which the power limit lowers clocks, for a block that counts as not
    power-capped."""
    memory_clock_apart: float = 0.005
    """Largest relative distance of a memory clock from the block's most common one. Readings are rounded."""
    sm_clock_spread: float = 0.015
    """Largest (max - min) / mean of a quad's four SM clocks. An unlocked clock moves by two steps of 15 MHz.
    """
    sm_clock_spread_capped: float = 0.03
    """The same limit for a card at its power limit, whose clock moves all the time."""
    arms_apart: float = 0.01
    """Largest relative difference of the two sides' mean SM clocks in a quad at the power limit."""
    sm_clock_step: float = 0.05
    """Largest change of the snapshots' median SM clock between the halves of a block. A snapshot shows one
    moment."""
    temperature_apart_c: float = 20.0
    """Largest difference of a temperature from the block's median, in °C. An idle card heats by 15 °C in
    a few tenths of a second, which does not disturb quads."""
    canary_mads: float = 4.0
    """Largest distance of a canary from the block's median, in standard deviations by the scaled MAD."""
    canary_apart: float = 0.05
    """Relative distance from the median within which a canary is never an outlier, even among very quiet
    ones."""
    canary_above_usual: float = 0.15
    """Largest share by which a block's median canary may exceed the median of the comparison's other blocks.
    """
    nearby_s: float = 0.25
    """Time in seconds beyond which a snapshot is too far from a quad to describe it: about ten sampling
    intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryLevel:
    """Median time of the canary in a block, or in a comparison. None if it was not measured."""

    cycles: float | None = None
    ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """The findings of the gates on one block, or on all blocks of a case."""

    quads: tuple[Quad, ...]
    clean: tuple[Quad, ...]
    """Quads that no gate caught, or only a clock gate, because cycles account for clocks."""
    touched: Mapping[str, int] = field(default_factory=dict)
    """Number of quads by reason code, in the order of GATES, without zeros."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Reason why a gate could not judge every quad, by gate."""
    power_capped: bool | None = None
    """True if the driver lowered clocks for the power limit; None if unknown."""
    disturbance: float = 0.0
    """Share by which the canary's time varied, or rose because of other work on the card; 1 if unknown."""
    findings: tuple[str, ...] = ()
    """Sentences on the quads that gates caught, and on weaker signs of a disturbance."""


def gate(
    block: PairedBlock,
    policy: GatePolicy = GatePolicy(),
    *,
    usual: CanaryLevel | None,
) -> Gated:
    """Find the quads that something other than the two kernels disturbed.

    `usual` is the canary level of the other blocks, None for the first block.
    """
    if not block.quads:
        return Gated(quads=(), clean=())
    # A clock reading of a slot is off by up to one tick either way. The factor is sqrt(6) standard
    # deviations.
    by_ticks = 2 * sqrt(6) * (block.clock_noise or 0.0)
    seen = _Seen(block.quads, block.telemetry or _NO_TELEMETRY, policy, by_ticks, usual)
    capped, outcomes = _judged(seen)
    for number, telemetry in enumerate(seen.telemetry.beside, 2):
        quads = tuple(replace(quad, **_ON_FIRST) for quad in block.quads)
        capped_there, there = _judged(replace(seen, quads=quads, telemetry=telemetry))
        capped = True if capped_there else capped
        outcomes = {code: _with_other(code, each, there[code], number) for code, each in outcomes.items()}
    touched: dict[str, int] = {}
    caught: set[int] = set()
    for code, outcome in outcomes.items():
        if fresh := outcome.caught - caught:
            touched[code] = len(fresh)
            caught |= fresh
    unclean = frozenset[int]().union(*(o.caught for code, o in outcomes.items() if code not in _OF_CLOCKS))
    return Gated(
        quads=block.quads,
        clean=tuple(quad for index, quad in enumerate(block.quads) if index not in unclean),
        touched=touched,
        unavailable={code: o.unavailable for code, o in outcomes.items() if o.unavailable},
        power_capped=capped,
        disturbance=_disturbance(block.quads, usual) if outcomes["contention"].caught else 0.0,
        findings=tuple(f"{code}: {found}" for code, o in outcomes.items() for found in o.findings),
    )


_ON_FIRST: Mapping[str, Any] = {"sm_clock_mhz": None, "canary_cycles": None, "canary_ns": None}
"""Readings of a quad that come from the first card, of the cards that a case spans."""
_BY_READINGS = ("sm-clock", "clocks-apart", "canary")
"""Gates that judge by readings. Of further cards they judge by snapshots, as far as these show it."""


def _judged(seen: _Seen) -> tuple[bool | None, dict[str, _Outcome]]:
    """Return whether the power limit lowered the clocks, and what each gate found."""
    capped, outcome = _power_cap(seen)
    seen = replace(seen, capped=capped)
    return capped, {"power-cap": outcome, **{code: find(seen) for code, find in _GATES.items()}}


def _with_other(code: str, first: _Outcome, there: _Outcome, number: int) -> _Outcome:
    """Return a gate's outcome of the first card with that of the card with a number, from 2."""
    return _Outcome(
        first.caught | there.caught,
        (*first.findings, *(f"On card {number}: {found}" for found in there.findings)),
        first.unavailable or ("" if code in _BY_READINGS else there.unavailable),
    )


def combine(results: Sequence[Gated]) -> Gated:
    """Combine the findings on the processes of one case.

    The case is power-capped if any process was. It is known not to be capped only if no process was.
    """
    counts: Counter[str] = Counter()
    unavailable: dict[str, str] = {}
    for result in results:
        counts.update(result.touched)
        unavailable = {**result.unavailable, **unavailable}
    capped = {result.power_capped for result in results} or {None}
    return Gated(
        quads=tuple(quad for result in results for quad in result.quads),
        clean=tuple(quad for result in results for quad in result.clean),
        touched={code: counts[code] for code in GATES if counts[code]},
        unavailable=unavailable,
        power_capped=True if True in capped else None if None in capped else False,
        disturbance=max((result.disturbance for result in results), default=0.0),
        findings=tuple(dict.fromkeys(found for result in results for found in result.findings)),
    )


def canary_level(quads: Sequence[Quad]) -> CanaryLevel:
    """Return the median canary of a block's quads."""
    return usual_level([CanaryLevel(cycles=quad.canary_cycles, ns=quad.canary_ns) for quad in quads])


def usual_level(levels: Sequence[CanaryLevel]) -> CanaryLevel:
    """Return the median of blocks' levels."""
    cycles = [level.cycles for level in levels if level.cycles is not None]
    ns = [level.ns for level in levels if level.ns is not None]
    return CanaryLevel(cycles=median(cycles) if cycles else None, ns=median(ns) if ns else None)


@dataclass(frozen=True, slots=True)
class _Outcome:
    caught: frozenset[int] = frozenset()
    """Indices of the quads that the gate caught."""
    findings: tuple[str, ...] = ()
    unavailable: str = ""


_UNCOUNTED = ("board_limit", "reliability")
"""Causes that only clock_event_reasons shows: no probe reads a counter for them."""
_OF_CLOCKS = ("sm-clock", "clocks-apart")

_NOTHING = Snapshot(at_ns=0)
_NO_TELEMETRY = Telemetry(
    probe="none",
    before=_NOTHING,
    during=(),
    after=_NOTHING,
    unavailable=dict.fromkeys([f.name for f in fields(Snapshot)] + ["foreign_processes"], "no telemetry"),
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The quads of a block, at least one, and the snapshots around each."""

    quads: tuple[Quad, ...]
    telemetry: Telemetry
    policy: GatePolicy
    by_ticks: float
    """Relative difference of two readings of one SM clock that the timer's resolution alone can cause."""
    usual: CanaryLevel | None
    capped: bool | None = None

    @property
    def every(self) -> frozenset[int]:
        return frozenset(range(len(self.quads)))

    @property
    def clocks(self) -> dict[int, tuple[float, float, float, float]]:
        """Return the SM clocks of the four slots in MHz by quad index, for the quads that have clocks."""
        found = {index: quad.sm_clock_mhz for index, quad in enumerate(self.quads)}
        return {index: mhz for index, mhz in found.items() if mhz and min(mhz) > 0}

    @property
    def span_ns(self) -> tuple[int, int]:
        """Return the begin of the first quad and the end of the last."""
        return min(quad.started_ns for quad in self.quads), max(quad.ended_ns for quad in self.quads)

    def why_not(self, name: str) -> str:
        reasons = self.telemetry.unavailable
        return reasons.get(name) or reasons.get("probe") or f"no snapshot of the block has {name}"

    def series(self, name: str) -> list[tuple[int, Any]]:
        """Return the moment in ns and the value of a field, wherever it is known during the block.

        The snapshots before and after the block are left out, because they may show an idle card.
        """
        values = [(snapshot.at_ns, getattr(snapshot, name)) for snapshot in self.telemetry.during]
        return sorted((at_ns, value) for at_ns, value in values if value is not None)

    def around(self, name: str) -> tuple[list[list[Any]], str]:
        """Return for each quad a field's values within it and just before and after it, and why quads have
        none.

        The reason is empty if every quad has values. A quad is shorter than the time between two snapshots,
        so the neighbouring snapshots show its state.
        """
        series = self.series(name)
        if not series:
            return [[] for _ in self.quads], self.why_not(name)
        moments = [at_ns for at_ns, _ in series]
        reach_ns = int(self.policy.nearby_s * 1e9)
        found = []
        for quad in self.quads:
            first = max(bisect_right(moments, quad.started_ns) - 1, 0)
            beyond = bisect_left(moments, quad.ended_ns) + 1
            near = range(quad.started_ns - reach_ns, quad.ended_ns + reach_ns + 1)
            found.append([value for at_ns, value in series[first:beyond] if at_ns in near])
        silent, count = sum(not values for values in found), len(self.quads)
        why = f"{silent} of {count} quads have no {name} within {self.policy.nearby_s:g} s of them"
        return found, why if silent else ""

    def counter(self, name: str) -> list[tuple[int, int]]:
        """Return the moment and value, both in ns, of a throttle counter in every full snapshot, oldest
        first.
        """
        snapshots = (self.telemetry.before, *self.telemetry.during, self.telemetry.after)
        return sorted(
            {(s.at_ns, s.throttle_ns[name]) for s in snapshots if s.throttle_ns and name in s.throttle_ns}
        )

    def encloses(self, counter: Sequence[tuple[int, int]]) -> bool:
        """Return whether a counter was read before and after the whole block."""
        started_ns, ended_ns = self.span_ns
        return len(counter) > 1 and counter[0][0] <= started_ns and ended_ns <= counter[-1][0]


def _disturbance(quads: Sequence[Quad], usual: CanaryLevel | None) -> float:
    """Return the relative spread of the canaries or their excess over other blocks, whichever is larger.

    The spread leaves out the lowest and the highest tenth of the values.
    """
    values = sorted(_canaries(quads).values())
    tenth = len(values) // 10
    if len(values) < _FEWEST_CANARIES or values[tenth] <= 0:  # zero is no reading
        return 1.0
    return max(values[-1 - tenth] / values[tenth] - 1, _above_usual(canary_level(quads), usual))


def _contention(seen: _Seen) -> _Outcome:
    foreign = seen.telemetry.foreign_processes
    if foreign is None:
        name = "foreign_processes" if "foreign_processes" in seen.telemetry.unavailable else "processes"
        return _Outcome(unavailable=seen.why_not(name))
    if not foreign:
        return _Outcome()
    found = f"Other processes held a context on the device: {', '.join(map(str, foreign))}."
    return _Outcome(seen.every, (found,))


def _throttled(seen: _Seen, *, causes: Sequence[str]) -> _Outcome:
    """Judge by throttle counters, which miss nothing, or by the reasons in the snapshots if there are no
    counters.
    """
    caught: frozenset[int] = frozenset()
    hits: list[str] = []
    notes: list[str] = []
    without: dict[str, list[str]] = {}
    for cause in causes:
        counter = seen.counter(cause)
        # A counter change at an edge counts, because a snapshot gets its time before its counters are read.
        moved = [(a[0], b[0]) for a, b in pairwise(counter) if b[1] > a[1]]
        hit = frozenset(
            index
            for index, quad in enumerate(seen.quads)
            if any(quad.started_ns <= to_ns and from_ns <= quad.ended_ns for from_ns, to_ns in moved)
        )
        if not seen.encloses(counter):
            sampled, why = seen.around("clock_event_reasons")
            hit |= {at for at, moments in enumerate(sampled) if any(cause in _causes(m) for m in moments)}
            if why:
                without.setdefault(why, []).append(cause)
            elif cause not in _UNCOUNTED:
                notes.append(f"Without its counter, {cause} was looked for in sampled moments alone.")
        if hit:
            caught |= hit
            hits.append(f"The card held back for {cause} in {len(hit)} of {len(seen.quads)} quads.")
    if list(without.values()) == [list(causes)]:
        return _Outcome(caught, (*hits, *notes), next(iter(without)))
    unavailable = "; ".join(f"{', '.join(names)}: {why}" for why, names in without.items())
    return _Outcome(caught, (*hits, *notes), unavailable)


def _causes(reasons: Iterable[str]) -> frozenset[str]:
    """Return a moment's reasons, with hw_slowdown replaced by its likely cause.

    The driver reports hw_slowdown for heat or the power brake. Without the power brake's own reason, it is
    taken as heat.
    """
    names = frozenset(reasons)
    vague = "hw_slowdown" in names and "hw_power_brake" not in names
    return names | {"hw_thermal"} if vague else names


def _power_cap(seen: _Seen) -> tuple[bool | None, _Outcome]:
    """Return whether the power limit lowered the clocks in the block as a whole; None if unknown.

    It is not judged per snapshot. How often the driver updates its counter is unknown, so over a few
    milliseconds one update could look like any share.
    """
    counter = seen.counter("sw_power_cap")
    if seen.encloses(counter) and counter[-1][0] > counter[0][0]:
        share = (counter[-1][1] - counter[0][1]) / (counter[-1][0] - counter[0][0])
        of_what = "of the time"
    elif reasons := seen.series("clock_event_reasons"):
        share = fmean("sw_power_cap" in names for _, names in reasons)
        of_what = f"of {len(reasons)} samples, because there is no counter"
    else:
        why = seen.telemetry.unavailable
        no_counter = why.get("throttle_ns.sw_power_cap") or why.get("throttle_ns")
        return None, _Outcome(unavailable=no_counter or seen.why_not("clock_event_reasons"))
    if share <= seen.policy.power_cap_share:
        return False, _Outcome()
    return True, _Outcome(findings=(f"The power limit lowered the clocks in {_percent(share)} {of_what}.",))


def _apart(
    seen: _Seen,
    *,
    name: str,
    centre_of: Callable[[Sequence[float]], float],
    allowed: Callable[[GatePolicy, float], float],
) -> _Outcome:
    """Catch the quads around which a field is further from the block's centre than allowed."""
    around, why = seen.around(name)
    values = [value for _, value in seen.series(name)]
    if not values:
        return _Outcome(unavailable=why)
    centre = centre_of(values)
    limit = allowed(seen.policy, centre)
    caught = frozenset(
        index for index, near in enumerate(around) if any(abs(value - centre) > limit for value in near)
    )
    found = (
        f"In the block {name} was between {min(values):g} and {max(values):g}, around {centre:g} as a rule, "
        f"and too far from that in {len(caught)} of {len(seen.quads)} quads."
    )
    return _Outcome(caught, (found,) if caught else (), why)


def _sm_clock(seen: _Seen) -> _Outcome:
    policy = seen.policy
    limit = policy.sm_clock_spread_capped if seen.capped else policy.sm_clock_spread
    spreads = {index: (max(mhz) - min(mhz)) / fmean(mhz) for index, mhz in seen.clocks.items()}
    return _wide(seen, spreads, limit, "The SM clock moved") if spreads else _sm_clock_step(seen)


def _wide(seen: _Seen, spreads: Mapping[int, float], limit: float, what: str) -> _Outcome:
    """Catch the quads whose clocks differ by more than the limit and the timer's resolution allow."""
    visible = limit + seen.by_ticks
    caught = frozenset(index for index, spread in spreads.items() if spread > visible)
    found = (
        f"{what} by more than {_percent(visible)} in {len(caught)} of {len(seen.quads)} quads, by "
        f"{_percent(max(spreads.values(), default=0.0))} at most."
    )
    why = _without_clocks(seen)
    if not why and seen.by_ticks > limit:
        why = f"the device's timer ticks so coarsely that less than {_percent(visible)} does not show"
    return _Outcome(caught, (found,) if caught else (), why)


def _without_clocks(seen: _Seen) -> str:
    silent = len(seen.quads) - len(seen.clocks)
    return f"{silent} of {len(seen.quads)} quads have no SM clocks of their own" if silent else ""


def _sm_clock_step(seen: _Seen) -> _Outcome:
    """Judge the snapshots' clock for quads without clocks of their own. It shows only a large step between
    halves.

    If no quad is caught the gate stays unavailable, since a change within a quad would not show.
    """
    why = _without_clocks(seen)
    middle_ns = sum(seen.span_ns) / 2
    known = [(at_ns, mhz) for at_ns, mhz in seen.series("sm_clock_mhz") if mhz > 0]
    first = [mhz for at_ns, mhz in known if at_ns <= middle_ns]
    second = [mhz for at_ns, mhz in known if at_ns > middle_ns]
    if not first or not second:
        return _Outcome(unavailable=why if known else f"{why}; {seen.why_not('sm_clock_mhz')}")
    step = abs(median(second) / median(first) - 1)
    if step <= seen.policy.sm_clock_step:
        return _Outcome(unavailable=f"{why}, and between the block's halves snapshots show only large steps")
    if seen.capped:
        return _Outcome(unavailable=f"{why}, and at the power limit the snapshots' clock moves by design")
    return _Outcome(
        seen.every,
        (f"The SM clock went from {median(first):g} to {median(second):g} MHz between the block's halves.",),
    )


def _clocks_apart(seen: _Seen) -> _Outcome:
    """Require that both sides saw the same clock at the power limit.

    In either order one side has the two outer slots and the other side the two inner ones.
    """
    if not seen.capped:
        return _Outcome()
    apart = {
        index: abs(mhz[0] + mhz[3] - mhz[1] - mhz[2]) / 2 / fmean(mhz) for index, mhz in seen.clocks.items()
    }
    return _wide(seen, apart, seen.policy.arms_apart, "The arms' SM clocks differed")


def _canary(seen: _Seen) -> _Outcome:
    canaries, policy = _canaries(seen.quads), seen.policy
    if not canaries:
        return _Outcome(unavailable="no canary was measured")
    above = _above_usual(canary_level(seen.quads), seen.usual)
    if above > policy.canary_above_usual:
        found = f"The block's median canary is {_percent(above)} above that of the other blocks."
        return _Outcome(seen.every, (found,))
    if len(canaries) < _FEWEST_CANARIES:
        return _Outcome(unavailable=f"fewer than {_FEWEST_CANARIES} canaries in the block")
    centre = median(canaries.values())
    deviation = MAD_SCALE * median(abs(value - centre) for value in canaries.values())
    limit = max(policy.canary_mads * deviation, policy.canary_apart * centre)
    strays = [index for index, value in canaries.items() if abs(value - centre) > limit]
    caught = frozenset(index for stray in strays for index in _between(canaries, stray, len(seen.quads)))
    found = f"{len(strays)} of {len(canaries)} canaries strayed, with {len(caught)} quads beside them."
    return _Outcome(caught, (found,) if strays else ())


def _canaries(quads: Sequence[Quad]) -> dict[int, float]:
    """Return the canaries by the index of the quad that followed: in cycles if available, else in ns."""
    for unit in ("canary_cycles", "canary_ns"):
        values = enumerate(getattr(quad, unit) for quad in quads)
        if found := {index: value for index, value in values if value is not None}:
            return found
    return {}


def _above_usual(level: CanaryLevel, usual: CanaryLevel | None) -> float:
    """Return the share by which a block's canary is slower than usual, in cycles if both have them; 0 if
    unknown.
    """
    if usual is None:
        return 0.0
    for own, others in ((level.cycles, usual.cycles), (level.ns, usual.ns)):
        if own is not None and others:
            return own / others - 1
    return 0.0


def _between(canaries: Iterable[int], stray: int, total: int) -> range:
    """Return the quads measured between the canary before the outlier and the canary after it."""
    # A canary is measured before the quad that carries it, so the canary before the outlier covers only later
    # quads.
    earlier = max((index for index in canaries if index < stray), default=0)
    later = min((index for index in canaries if index > stray), default=total)
    return range(earlier, later)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


_GATES: Mapping[str, Callable[[_Seen], _Outcome]] = {
    "contention": _contention,
    "thermal-throttle": partial(_throttled, causes=("sw_thermal", "hw_thermal")),
    "power-brake": partial(_throttled, causes=("hw_power_brake", *_UNCOUNTED)),
    "memory-clock": partial(
        _apart,
        name="memory_clock_mhz",
        centre_of=mode,
        allowed=lambda policy, mhz: policy.memory_clock_apart * mhz,
    ),
    "p-state": partial(_apart, name="p_state", centre_of=mode, allowed=lambda _policy, _state: 0.0),
    "sm-clock": _sm_clock,
    "clocks-apart": _clocks_apart,
    "temperature": partial(
        _apart,
        name="temperature_c",
        centre_of=median,
        allowed=lambda policy, _celsius: policy.temperature_apart_c,
    ),
    "canary": _canary,
}
GATES = tuple(_GATES)
"""Reason codes of touched quads, in the order of the gates. A quad counts under the first gate that catches
it.

`unavailable` may also name power-cap, which touches no quad.
"""
