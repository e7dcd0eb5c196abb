"""Finds a level that drifts. No single commit caused it, so no step shows it.

A line is fitted to medians of blocks of points. Seasonal changes and steps fit a line badly; a drift fits it
everywhere.
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
"""Half-width of a displayed interval, in standard errors of a line through the blocks."""
_FEWEST = 4
"""Fewest points of a block."""
_WINDOWS = (60, 120, 240, 480)
"""Numbers of newest points that are tested, as far as the series has that many; otherwise all."""
_P = 1e-4
"""Largest p-value of a drift, for all windows together."""
_SMALLEST = 3.0
"""Smallest drift worth an alarm, in smallest relevant changes."""


_BEYOND = 0.5
"""Share of a drift that must be beyond every earlier level. A level that was reached before is a season."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A drift of the level over values[start:stop]. Indices refer to the values passed in."""

    start: int
    stop: int
    effect: float
    """Level at the end over the level at `best`, minus 1."""
    low: float
    high: float
    """The ends of the effect's 99.9 % interval."""
    p_value: float
    best: int
    """Index around which the level was farthest from that at the end. Compare the newest commit with this
    one."""


def find_drift(values: ArrayLike, *, smallest: float = 0.01) -> Drift | None:
    """Return the drift of the newest points of `values`, or None.

    Values that are not finite or not positive are skipped. Raises ValueError for an array that is not 1-D.
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
    """Return the drift over the newest `size` points. `windows` windows are tested in all; `place` holds
    indices.
    """
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
    """Return the highest level of `size` successive points."""
    whole = logs[logs.size % size :].reshape(-1, size)
    return float(np.median(whole, axis=1).max())


def _two_sided(t: float, df: int) -> float:
    """Return the two-sided p-value of Student's t with an even number of degrees of freedom, in
    closed form.
    """
    cos2 = df / (df + t * t)
    term = total = 1.0
    for k in range(1, df // 2):
        term *= cos2 * (2 * k - 1) / (2 * k)
        total += term
    return max(0.0, 1 - t / math.sqrt(df + t * t) * total)
