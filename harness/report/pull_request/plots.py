"""Effects along one axis: their positions, and the lines of text in a summary."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.numbers import typeset
from harness.records.types import Effect
from harness.report.document.document import CardReview

_FINEST = 1e-4
_TICKS = tuple(digit * 10.0**power for power in range(6, -5, -1) for digit in (5, 2, 1))
_TICKS_APART = 0.07
_BEYOND = 1.2
"""Ratio of a scale's range to the largest effect on it."""
_WIDE = 5
"""Number of tolerances beyond which an interval is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Positions of effects from 0 (left) to 1.

    The scale is linear near zero and logarithmic further out, so that small effects stay visible beside a
    large one.
    """

    linear: float
    """Effect up to which the scale is about linear."""
    reach: float
    margin: float

    def place(self, share: float) -> float:
        """Return the position of an effect. An effect beyond the scale is drawn at its end."""
        at = math.asinh(share / self.linear) / math.asinh(self.reach / self.linear)
        return min(max((1 + at) / 2, 0.0), 1.0)

    def interval(self, change: Effect) -> tuple[float, float]:
        """Return the positions of the ends of an effect's interval."""
        low, high = sorted((change.low, change.high))
        return self.place(low), self.place(high)

    def ticks(self) -> list[float]:
        """Return zero, and round effects on both sides with distinct positions, the largest first."""
        chosen = [0.0]
        last = 1.0 + _TICKS_APART / 2
        for tick in (tick for tick in _TICKS if tick <= self.reach):
            at = self.place(tick)
            if min(last - at, at - 0.5) >= _TICKS_APART:
                chosen += [tick, -tick]
                last = at
        return chosen


def scale_of(card: CardReview) -> Scale:
    """Return a scale that holds every effect of a card, and intervals unless they are wide."""
    changes = [case.time for case in card.cases if case.time]
    linear = max(card.tolerance, _FINEST)
    bounds = (min(abs(bound), _WIDE * linear) for change in changes for bound in (change.low, change.high))
    reach = max(2 * linear, *bounds, *(abs(change.effect) for change in changes), 0.0)
    return Scale(linear=linear, reach=_BEYOND * reach, margin=max(card.margin, 0.0))


def axis_text(scale: Scale, columns: int) -> str:
    """Return the ticks above lines of text. A tick that would touch another is left out."""
    line = [" "] * (columns + 8)
    for tick in scale.ticks():
        told = tick_label(tick)
        start = max(_column(scale, tick, columns) - len(told) // 2, 0)
        if not "".join(line[max(start - 1, 0) : start + len(told) + 1]).strip():
            line[start : start + len(told)] = told
    return "".join(line).rstrip() + " %"


def strip_text(scale: Scale, change: Effect | None, columns: int) -> str:
    """Return a line of text, ``..:.. |---o---|``: the margin as dots around zero, and the interval with its
    effect.
    """
    line = [" "] * columns
    _fill(line, _column(scale, -scale.margin, columns), _column(scale, scale.margin, columns), ".")
    line[_column(scale, 0.0, columns)] = ":"
    if change:
        low, high = sorted((change.low, change.high))
        first, last = _column(scale, low, columns), _column(scale, high, columns)
        if last - first > 1:
            _fill(line, first, last, "-")
            line[first] = "|" if scale.place(low) > 0 else "<"
            line[last] = "|" if scale.place(high) < 1 else ">"
        line[_column(scale, change.effect, columns)] = "o"
    return "".join(line)


def _column(scale: Scale, share: float, columns: int) -> int:
    return round(scale.place(share) * (columns - 1))


def _fill(line: list[str], first: int, last: int, mark: str) -> None:
    line[first : last + 1] = mark * (last + 1 - first)


def tick_label(tick: float) -> str:
    return typeset(f"{100 * tick:+g}") if tick else "0"


def across(place: float) -> str:
    """Return a position as a coordinate of a picture, such as ``25.00%``."""
    return f"{100 * place:.2f}%"
