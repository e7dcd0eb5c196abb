"""Formats numbers for readers, in the same way everywhere. An unknown number is an empty text.

The pages of the site follow the same rules: site/assets/static/format.js.
"""

from __future__ import annotations

import math
import re
from typing import Protocol

Value = int | str
"""A value of a macro or a sweep's parameter: an integer or a word."""

_MINUS, _NBSP, _TIMES = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}", "\N{MULTIPLICATION SIGN}"
_FACTOR = 1e4
"""Share from which a factor is shown instead of percent: 10^12 over a time of almost nothing."""
_TOO_WIDE = 4.0
"""Ratio of an interval's ends, larger over smaller, from which there were too few processes."""


class IntervalEstimate(Protocol):
    """Head over base, minus 1, with its interval."""

    @property
    def effect(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with `digits` significant digits: ``1,234``, ``56.78``, ``0.01234``; a
    count is whole.
    """
    if value is None or not math.isfinite(value):
        return ""
    size = abs(value)
    if size and not 1e-4 <= size < 1e9:
        return _power_of_ten(value)
    # By the rounded value: 9.99996 has four digits as 10.00.
    exponent = int(f"{size:.{digits - 1}e}".partition("e")[2])
    decimals = 0 if not size or isinstance(value, int) else max(0, digits - 1 - exponent)
    return f"{value:,.{decimals}f}"


def _power_of_ten(value: float) -> str:
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def percent_figure(share: float | None, *, sign: bool = False) -> str:
    """Return a share in percent for a column whose heading has the unit: ``1.70``, ``18.9``, ``271``.

    A share from 10,000 on is shown as a factor: 9.97e+20.
    """
    if share is None or not math.isfinite(share):
        return ""
    if share >= _FACTOR:
        return f"{_TIMES}{number(1 + share, 3)}"
    value = 100 * share
    size = abs(value)
    if size >= 100 * _FACTOR:
        return _power_of_ten(value)
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{round(value, decimals) + 0.0:{'+' if sign else ''},.{decimals}f}"  # no minus before zero


def percent(share: float | None, *, sign: bool = False) -> str:
    """Return ``1.70 %``; a factor has no unit."""
    figure = percent_figure(share, sign=sign)
    return figure if not figure or figure.startswith(_TIMES) else f"{figure} %"


def exact(share: float) -> str:
    """Return a setting with all its digits: ``0.25 %``, ``99.99 %``."""
    return f"{100 * share:g} %"


def rough(share: float) -> str:
    """Return a bound with two digits: ``0.57 %``."""
    return f"{number(100 * share, 2)} %"


def half_width(change: IntervalEstimate | None) -> float | None:
    """Return half of an effect's interval; None if it is too wide to be useful."""
    return None if change is None or _is_too_wide(change) else abs(change.high - change.low) / 2


def _is_too_wide(change: IntervalEstimate) -> bool:
    return not (1 + change.high) <= _TOO_WIDE * (1 + change.low)  # an unknown value has no interval


def is_unsure(change: IntervalEstimate) -> bool:
    """Return whether an effect's interval is unknown or so wide that the value is only approximate."""
    half = half_width(change)
    return half is None or not half <= abs(change.effect)


def half_of(confidence: float) -> str:
    """Return the meaning of ±, for the caption of a table."""
    return f"±: half of the {exact(confidence)} confidence interval."


def effect(change: IntervalEstimate | None) -> str:
    """Return an effect with its interval: ``+1.70 % ± 0.07``."""
    if change is None:
        return ""
    half = half_width(change)
    told = percent(change.effect, sign=True)
    return told if half is None or told.startswith(_TIMES) else f"{told} ± {percent_figure(half)}"


def interval(low: float, high: float) -> str:
    """Return an interval: ``+1.63 to +1.77 %``."""
    return f"{percent_figure(low, sign=True)} to {percent(high, sign=True)}"


def moved(change: IntervalEstimate, more: str, less: str) -> str:
    """Return ``1.70 % slower (+1.63 to +1.77 %)`` or ``1.70 % faster (-1.77 to -1.63 %)``."""
    size = f"{percent(abs(change.effect))} {more if change.effect >= 0 else less}"
    if _is_too_wide(change):
        return f"{size} (no interval)"
    return f"{size} ({interval(change.low, change.high)})"


def milliseconds(time_ns: float | None) -> str:
    """Return ``1.204``, for a column whose heading has the unit."""
    return "" if time_ns is None else number(time_ns / 1e6)


def duration(time_ns: float | None) -> str:
    """Return ``1.204 ms``, in a suitable unit."""
    if time_ns is None:
        return ""
    for unit, scale in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        if time_ns < 1000 * scale:
            return f"{number(time_ns / scale)} {unit}"
    return f"{number(time_ns / 1e9)} s"


def seconds(value: float) -> str:
    """Return ``12.3 s``, for device time or waiting."""
    return f"{value:,.1f} s"


def clock(mhz: float | None) -> str:
    """Return whole megahertz: ``1,980``."""
    return "" if mhz is None else f"{mhz:,.0f}"


def binary(size_bytes: float | None) -> str:
    """Return a size: ``139 GiB``, ``48 KiB``, ``12 B``."""
    if size_bytes is None:
        return ""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= scale:
            found = size_bytes / scale
            return f"{number(int(found) if found == int(found) else found, 3)} {unit}"
    return f"{size_bytes:.0f} B"


def times(ratio: float | None) -> str:
    """Return a ratio: ``1.8x``, ``123x``, ``0.036x``."""
    if ratio is None:
        return ""
    if 0 < ratio < 0.95:
        return f"{ratio:.2g}x"
    return f"{ratio:,.0f}x" if ratio >= 99.95 else f"{ratio:.1f}x"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: ``1 case``, ``24 cases``."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def typeset(text: str) -> str:
    """Return our own text for a page: with real minus signs, and without a line break before a unit."""
    text = re.sub(r"(?<![\w.-])-(?=\d)", _MINUS, text)
    text = text.replace(" ± ", f"{_NBSP}±{_NBSP}")
    return re.sub(r"(?<=\d) (?=(?:%|[nµm]?s|MHz|[KMG]iB|B|W|°C)(?!\w))", _NBSP, text)
