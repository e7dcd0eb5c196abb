"""Effects with their intervals, case under case, as text and as SVG (forest plots).

Drawn by hand: a strip of a few lines and dots needs no library, and stretches to any width since every place
on it is a percentage.
"""

from __future__ import annotations

__all__ = ["Scale", "axis_svg", "axis_text", "scale_of", "strip_svg", "strip_text"]

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.numbers import typeset
from harness.output.review.model import Card, Change

_FINEST = 1e-4
_TICKS = tuple(digit * 10.0**power for power in range(6, -5, -1) for digit in (5, 2, 1))
_TICKS_APART = 0.07
_BEYOND = 1.2
"""How much further a scale goes than what it is to hold."""
_WIDE = 5
"""Tolerances: where an interval ends further out it is cut off."""
_DOTS = 16
"""Processes that are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Places of effects from 0, on the left, to 1. Linear about no effect, logarithmic further out, so that
    one large effect leaves the small ones their room.
    """

    linear: float
    """An effect up to which it is about linear."""
    reach: float
    """The effect at its right end."""
    margin: float

    def place(self, share: float) -> float:
        """Where an effect is drawn; one beyond the scale at its end."""
        at = math.asinh(share / self.linear) / math.asinh(self.reach / self.linear)
        return min(max((1 + at) / 2, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """None, and round effects on both sides whose places are apart, the largest first."""
        chosen = [0.0]
        last = 1.0 + _TICKS_APART / 2
        for tick in (tick for tick in _TICKS if tick <= self.reach):
            at = self.place(tick)
            if min(last - at, at - 0.5) >= _TICKS_APART:
                chosen += [tick, -tick]
                last = at
        return chosen


def scale_of(card: Card) -> Scale:
    """One that holds every effect of a card, and intervals unless they are wide."""
    changes = [case.time for case in card.cases if case.time]
    linear = max(card.tolerance, _FINEST)
    bounds = (min(abs(bound), _WIDE * linear) for change in changes for bound in (change.low, change.high))
    reach = max(2 * linear, *bounds, *(abs(change.effect) for change in changes), 0.0)
    return Scale(linear=linear, reach=_BEYOND * reach, margin=max(card.margin, 0.0))


def axis_text(scale: Scale, columns: int) -> str:
    """The ticks above strips of text; one that would touch another is left out."""
    line = [" "] * (columns + 8)
    for tick in scale.ticks():
        told = _named(tick)
        start = max(_column(scale, tick, columns) - len(told) // 2, 0)
        if not "".join(line[max(start - 1, 0) : start + len(told) + 1]).strip():
            line[start : start + len(told)] = told
    return "".join(line).rstrip() + " %"


def strip_text(scale: Scale, change: Change | None, columns: int) -> str:
    """``..:..   |---o---|``: the margin's zone in dots about no effect, and the interval with its effect."""
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


def strip_svg(scale: Scale, change: Change, told: str) -> str:
    """One case: zone of the margin, no effect, interval, processes as dots, effect. `told` says it in words;
    the colours are the page's.
    """
    said = html.escape(told)
    drawn = "".join((_frame(scale), *_drawn(scale, change)))
    return (
        f'<svg class="strip" width="100%" height="22" role="img" aria-label="{said}">'
        f"<title>{said}</title>{drawn}</svg>"
    )


def _frame(scale: Scale) -> str:
    left, right = scale.place(-scale.margin), scale.place(scale.margin)
    return (
        f'<rect class="zone" x="{_x(left)}" width="{_x(right - left)}" y="0" height="22"/>'
        '<line class="zero" x1="50%" x2="50%" y1="0" y2="22"/>'
    )


def _drawn(scale: Scale, change: Change) -> Iterable[str]:
    low, high = (scale.place(share) for share in sorted((change.low, change.high)))
    yield f'<line class="interval" x1="{_x(low)}" x2="{_x(high)}" y1="11" y2="11"/>'
    for end in (low, high):
        if 0 < end < 1:  # elsewhere it goes on beyond the strip
            yield f'<line class="interval" x1="{_x(end)}" x2="{_x(end)}" y1="7" y2="15"/>'
    for each in change.each[:_DOTS]:
        yield f'<circle class="process" cx="{_x(scale.place(each))}" cy="11" r="2"/>'
    yield f'<circle class="effect" cx="{_x(scale.place(change.effect))}" cy="11" r="4"/>'


def axis_svg(scale: Scale) -> str:
    """The ticks above the strips."""
    marks = "".join(
        f'<line class="tick" x1="{_x(scale.place(tick))}" x2="{_x(scale.place(tick))}" y1="17" y2="22"/>'
        f'<text x="{_x(scale.place(tick))}" y="13" text-anchor="middle">{_named(tick)}</text>'
        for tick in scale.ticks()
    )
    return f'<svg class="axis" width="100%" height="22" aria-hidden="true">{marks}</svg>'


def _named(tick: float) -> str:
    return typeset(f"{100 * tick:+g}") if tick else "0"


def _x(place: float) -> str:
    return f"{100 * place:.2f}%"
