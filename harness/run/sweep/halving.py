"""Successive halving of one size's configurations: from separate times to pairs against the best so far.

All decisions follow from stored times and duels, so a resumed sweep decides like an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import scipy  # loads its parts when they are used

from harness.judgement.statistics.paired import log_ratios, process_effect, tick_error
from harness.records.sweep_types import Duel, SweepSettings
from harness.records.types import Effect, PairedBlock

MOST_ROUNDS = 12
"""Most rounds. If the best still changes after these, it is a tie."""
CONFIDENCE = 0.99
PROCESS_ERROR = 0.0005
"""Standard deviation between the effects of two processes: 0.02 to 0.11 % on an H200, for kernels of 0.2 to
1.7 ms.

One process alone cannot show it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duels:
    """The next measurements: each configuration in `numbers` is compared with `against`."""

    round: int
    against: int
    numbers: tuple[int, ...]
    last: bool
    """True if few enough are left to be measured precisely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Progress of one configuration: its last round, and its distance from the best in that round."""

    round: int
    behind: Effect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingResult:
    winner: int
    tied: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Time over the best so far, as a natural logarithm, with half the width of its interval."""

    value: float
    half_width: float
    quads: int

    @classmethod
    def of(cls, effect: Effect) -> _Ratio:
        low, high = math.log1p(effect.low), math.log1p(effect.high)
        return cls(math.log1p(effect.effect), (high - low) / 2, effect.quads)

    def beside(self, best: _Ratio) -> _Ratio:
        """Return the ratio to another best, from that best's ratio to the previous one."""
        return _Ratio(
            self.value - best.value,
            math.hypot(self.half_width, best.half_width),
            min(self.quads, best.quads) or max(self.quads, best.quads),
        )

    @property
    def slower(self) -> bool:
        return self.value - self.half_width > 0

    @property
    def faster(self) -> bool:
        return self.value + self.half_width < 0

    @property
    def effect(self) -> Effect:
        low, high = self.value - self.half_width, self.value + self.half_width
        return Effect(
            effect=math.expm1(self.value),
            low=math.expm1(low),
            high=math.expm1(high),
            processes=1,
            quads=self.quads,
        )


_ITSELF = _Ratio(0.0, 0.0, 0)


def duel_effect(block: PairedBlock) -> Effect:
    """Return head over base in one process, with an interval that allows for differences between processes.

    It is Student's t with the degrees of freedom of the trimmed quads, on their standard error and
    PROCESS_ERROR together.
    """
    ratios = log_ratios([quad.order for quad in block.quads], [quad.times_ns for quad in block.quads])
    slot_ns = block.launches_per_slot * sum(block.quads[0].times_ns) / 4
    found = process_effect(ratios, tick_error(block.tick_ns, slot_ns, len(block.quads)))
    quantile = -float(scipy.special.stdtrit(found.df, (1 - CONFIDENCE) / 2))
    half_width = math.hypot(quantile * found.standard_error, 2.576 * PROCESS_ERROR)
    return _Ratio(found.value, half_width, found.quads).effect


def next_step(
    times_ns: Mapping[int, float], duels: Sequence[Duel], settings: SweepSettings
) -> tuple[Duels | HalvingResult, dict[int, Contender]]:
    """Return the next measurements or the winner, and the current state of each.

    `times_ns` are the screening times by number, at least one. `duels` are those of this size so far.
    """
    contenders = {number: Contender(round=0) for number in times_ns}
    best, rivals = _screened(times_ns, settings)
    round_ = 1
    while rivals and round_ <= MOST_ROUNDS:
        last = len(rivals) < settings.most_finalists
        found = {
            duel.number: _Ratio.of(duel.effect)
            for duel in duels
            if (duel.round, duel.against) == (round_, best)
        }
        if missing := tuple(number for number in rivals if number not in found):
            return Duels(round=round_, against=best, numbers=missing, last=last), contenders
        ratios = {best: _ITSELF, **{number: found[number] for number in rivals}}
        # The best stays the best unless others are certainly faster.
        faster = [number for number, ratio in ratios.items() if ratio.faster]
        winner = min(faster, key=lambda number: (ratios[number].value, number), default=best)
        if changed := winner != best:
            ratios = {number: ratio.beside(ratios[winner]) for number, ratio in ratios.items()}
            ratios[winner] = _ITSELF
        best = winner
        contenders |= {
            number: Contender(round=round_, behind=None if number == best else ratio.effect)
            for number, ratio in ratios.items()
        }
        rivals = _left(best, ratios, settings)
        if last and not changed:
            break
        round_ += 1
    return HalvingResult(winner=best, tied=tuple(sorted(rivals))), contenders


def _screened(times_ns: Mapping[int, float], settings: SweepSettings) -> tuple[int, list[int]]:
    """Return the fastest, and those that screening cannot distinguish from it or that a fixed share keeps."""
    order = sorted(times_ns, key=lambda number: (times_ns[number], number))
    near_ns = times_ns[order[0]] * (1 + settings.near)
    share = math.ceil(settings.keep * len(order))
    left = [number for place, number in enumerate(order) if place < share or times_ns[number] <= near_ns]
    return left[0], left[1:]


def _left(best: int, ratios: Mapping[int, _Ratio], settings: SweepSettings) -> list[int]:
    """Return the rivals that are not certainly slower; if many, the nearest share."""
    order = sorted(ratios, key=lambda number: (ratios[number].value, number))
    left = [number for number in order if number != best and not ratios[number].slower]
    most = max(settings.most_finalists - 1, math.ceil(settings.keep * len(ratios)))
    return left[:most]
