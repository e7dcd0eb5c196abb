"""A level that slides: no single commit did it, so no step tells it.

Medians of blocks of figures are set against a line. What comes and goes with the seasons, or steps, fits a
line badly; a slide fits it in every part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from harness.judgement.statistics.paired import Floats, median
from harness.judgement.statistics.summary import CONFIDENCE

_BLOCKS = 10
_T = float(stdtrit(_BLOCKS - 2, (1 + CONFIDENCE) / 2))
"""Half of an interval that is shown, in standard errors of a line through the blocks."""
_FEWEST = 4
"""Figures of a block."""
_WINDOWS = (60, 120, 240, 480)
"""The newest figures that are looked at, as far as there are so many; so many as there are if fewer."""
_P = 1e-4
"""The largest p-value of a slide, of all windows together."""
_SMALLEST = 3.0
"""The least slide worth an alarm, in smallest relevant changes."""


_BEYOND = 0.5
"""The share of a slide that is beyond every level before it. What was there before is a season."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A slide of the level over values[start:stop]. Indices are into the values given."""

    start: int
    stop: int
    effect: float
    """The level at the end over that at `best`, minus 1."""
    low: float
    high: float
    """The ends of the effect's 99.9 % interval."""
    p_value: float
    best: int
    """The index about which the level was farthest from that at the end: where to compare the newest with."""


def find_drift(values: ArrayLike, *, smallest: float = 0.01) -> Drift | None:
    """Return the slide that the newest figures of `values` are in, if they are in one.

    What is not finite or not positive is no figure, and passed over. Raises ValueError for another number of
    axes than one.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"values have {array.ndim} axes; expected one.")
    place = np.flatnonzero((array > 0) & (array < math.inf))
    logs = np.log(array[place])
    sizes = sorted({min(place.size, window) for window in _WINDOWS} - set(range(_BLOCKS * _FEWEST)))
    slides = [_slide(logs, size, place, smallest, len(sizes)) for size in sizes]
    return max((slide for slide in slides if slide), key=lambda slide: abs(slide.effect), default=None)


def _slide(all_logs: Floats, size: int, place: Ints, smallest: float, windows: int) -> Drift | None:
    """Return the slide over the newest `size` figures, one of so many windows. `place` has indices."""
    logs, place, earlier = all_logs[-size:], place[-size:], all_logs[:-size]
    edges = np.linspace(0, logs.size, _BLOCKS + 1).astype(np.int64)
    levels = np.array([median(logs[a:b]) for a, b in pairwise(edges)])
    time = np.arange(_BLOCKS) - (_BLOCKS - 1) / 2
    slope = float(time @ levels) / float(time @ time)
    left = levels - levels.mean() - slope * time
    free = _BLOCKS - 2
    error = math.sqrt(max(float(left @ left), 1e-300) / free / float(time @ time))
    t = abs(slope) / error
    p_value = min(1.0, windows * _two_sided(t, free))
    effect = slope * (_BLOCKS - 1)
    if p_value > _P or abs(math.expm1(effect)) < _SMALLEST * smallest:
        return None
    side = math.copysign(1, slope)
    if earlier.size >= size // _BLOCKS and _highest(side * earlier, size // _BLOCKS) > side * (
        levels[-1] - _BEYOND * effect
    ):
        return None
    farthest = int(np.argmin(side * levels))
    margin = _T * error * (_BLOCKS - 1)
    return Drift(
        start=int(place[0]),
        stop=int(place[-1]) + 1,
        effect=math.expm1(effect),
        low=math.expm1(effect - margin),
        high=math.expm1(effect + margin),
        p_value=p_value,
        best=int(place[(edges[farthest] + edges[farthest + 1]) // 2]),
    )


def _highest(logs: Floats, size: int) -> float:
    """Return the highest level of so many figures in a row."""
    whole = logs[logs.size % size :].reshape(-1, size)
    return float(np.median(whole, axis=1).max())


def _two_sided(t: float, df: int) -> float:
    """The two-sided p-value of Student's t with an even number of degrees of freedom, in closed form."""
    cos2 = df / (df + t * t)
    term = total = 1.0
    for k in range(1, df // 2):
        term *= cos2 * (2 * k - 1) / (2 * k)
        total += term
    return max(0.0, 1 - t / math.sqrt(df + t * t) * total)
