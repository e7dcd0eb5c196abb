"""Centre, spread and interval of a sample of times, robust to stray slots. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Summary:
    """Centre, spread and interval of times per launch, in ns."""

    median_ns: float
    low_ns: float
    high_ns: float
    """The interval that holds the median of the population with 99 % confidence."""
    spread: float
    """Scaled median absolute deviation over the median: an estimate of the relative standard deviation."""
    count: int

    @property
    def half_width(self) -> float:
        """Half the interval over the median."""
        return (self.high_ns - self.low_ns) / (2 * self.median_ns)


def summarize(times_ns: Sequence[float]) -> Summary:
    """Median, distribution-free interval and spread of at least one time."""
    ordered = sorted(times_ns)
    middle = median(ordered)
    low, high = _median_ranks(len(ordered))
    deviations = [abs(time - middle) for time in ordered]
    # 1.4826 makes the median absolute deviation estimate the standard deviation of a normal distribution.
    return Summary(middle, ordered[low], ordered[high], 1.4826 * median(deviations) / middle, len(ordered))


def _median_ranks(count: int) -> tuple[int, int]:
    """Indices of the order statistics that bracket the median with CONFIDENCE, or the extremes if none do.

    The number of values below the median is binomial(count, 1/2) whatever the distribution: David & Nagaraja,
    Order Statistics, 3rd ed., section 7.1.
    """
    low, tail = 0, 0.0
    for index in range(count // 2):
        choices = math.lgamma(count + 1) - math.lgamma(index + 1) - math.lgamma(count - index + 1)
        # Of large counts the powers of two overflow a float.
        exact = count < 1000
        tail += math.comb(count, index) / 2.0**count if exact else math.exp(choices - count * math.log(2))
        if tail > (1 - CONFIDENCE) / 2:
            break
        low = index
    return low, count - 1 - low
