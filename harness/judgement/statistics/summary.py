"""Centre, spread and interval of a sample of times, robust to outliers. Pure functions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

CONFIDENCE = 0.999
"""Confidence of every interval that a user sees: the default of a comparison, whose interval decides."""
MAD_SCALE = 1.4826
"""Factor from a median absolute deviation to a normal distribution's standard deviation."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Centre, spread and interval of times per launch, in ns."""

    median_ns: float
    low_ns: float
    high_ns: float
    """Ends of the interval of the population's median, at the requested confidence."""
    spread: float
    """Scaled median absolute deviation over the median, an estimate of the relative standard deviation."""
    count: int

    @property
    def half_width(self) -> float:
        """Return half the interval over the median."""
        return (self.high_ns - self.low_ns) / (2 * self.median_ns)


def summarize(times_ns: Sequence[float], confidence: float = CONFIDENCE) -> Summary:
    """Return the median, distribution-free interval and spread of at least one time."""
    ordered = sorted(times_ns)
    middle = median(ordered)
    low, high = _median_ranks(len(ordered), confidence)
    deviations = [abs(time - middle) for time in ordered]
    spread = MAD_SCALE * median(deviations) / middle
    return Summary(middle, ordered[low], ordered[high], spread, len(ordered))


@functools.lru_cache(maxsize=2**12)
def _median_ranks(count: int, confidence: float) -> tuple[int, int]:
    """Return the indices of the order statistics that enclose the median with this confidence; else the
    extremes.

    The number of values below the median is binomial(count, 1/2) for any distribution: David & Nagaraja,
    Order Statistics, 3rd ed., section 7.1.
    """
    low, choices, below = 0, 1, 0
    most = 2**count // round(2 / (1 - confidence))
    for index in range(count // 2):
        below += choices
        if below > most:
            break
        low = index
        choices = choices * (count - index) // (index + 1)
    return low, count - 1 - low
