"""Turns the quads of one process into its effect: the log ratio of head over base, and its standard error.

A quad is four slots in a row, ABBA or BAAB, with A for base and B for head. Linear drift over a quad and a
common factor of all four slots cancel in the log ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from harness.judgement.statistics.summary import MAD_SCALE

MIN_QUADS = 5
"""Fewest quads that leave three after trimming."""
TRIM = 0.2
"""Share of the quads that is trimmed at each end."""

Floats = NDArray[np.float64]

_ABBA = np.array([-1.0, 1.0, 1.0, -1.0])
_FIRST = {"ABBA": 1.0, "BAAB": -1.0}
_MAX_REFITS = 20
_EXPONENT_STEP = 0.05
_EXPONENTS = np.arange(-10, 31) * _EXPONENT_STEP
_ROUNDING = 1e-6
"""Largest relative spread of clocks that counts as no spread."""
_MANY = 500
"""Number of values from which numpy finds the middle ones faster by partition than by sorting."""
_STRAY = 0.1
"""A slot is an outlier if it is this share and six standard deviations above its side's median."""
_STRAY_DEVIATIONS = 6.0
_LEAST, _MOST = 1e-6, 1e18
_PRECISE = 40.0
_FEWEST_MORE = 3
"""Fewest extra quads worth a new batch, because each batch has its own lead-in."""


@dataclass(frozen=True, slots=True)
class ProcessEffect:
    """The effect in one process: the natural logarithm of head over base, positive if head is slower."""

    value: float
    standard_error: float
    """Standard error of `value` from the scatter of the quads. Differences between processes are not
    included."""
    df: int
    quads: int


def of_arm(order: str, values: Sequence[float], arm: str) -> list[float]:
    """Return the values of one arm's slots, A or B, of a quad."""
    return [value for each, value in zip(order, values, strict=True) if each == arm]


def log_ratios(orders: Sequence[str], values: ArrayLike) -> Floats:
    """Return for each quad half of ln B1 + ln B2 - ln A1 - ln A2.

    `orders` has ABBA or BAAB for each quad. `values` has the quad's four slots in the order measured, in any
    unit. Raises ValueError for another order or shape, and for values that are not positive and finite.
    """
    return _ratios(orders, _logs(values, len(orders), "values"))


def _ratios(orders: Sequence[str], logs: Floats) -> Floats:
    ratios: Floats = 0.5 * _base_first(orders) * (logs @ _ABBA)
    return ratios


def readable(values: Sequence[float]) -> bool:
    """Tell whether all values are possible times, cycles or clocks.

    A launch shorter than the timer's tick reads 0. The largest value is thirty years in ns.
    """
    return all(_LEAST < value < _MOST for value in values)


def process_effect(ratios: ArrayLike, resolution: float = 0.0) -> ProcessEffect:
    """Return the 20 % trimmed mean of the quads' log ratios, with the standard error of Tukey and McLaughlin.

    The trimmed mean is unaffected if up to a fifth of the quads is disturbed in one direction. Unlike a
    median, it averages times in coarse ticks. Its squared standard error is the winsorised sum of squares
    over h (h - 1), if h quads remain, with h - 1 degrees of freedom: Tukey & McLaughlin, Sankhya A 25 (1963)
    331-352; Yuen, Biometrika 61 (1974) 165-170.

    With coarse ticks, ties between quads can make it 0. `resolution` is its lower limit, from `tick_error`.
    Raises ValueError for fewer than MIN_QUADS ratios or a ratio that is not finite.
    """
    ordered = np.sort(np.asarray(ratios, dtype=np.float64))
    if ordered.ndim != 1:
        raise ValueError(f"ratios have {ordered.ndim} axes; expected one, a ratio for each quad.")
    count = ordered.size
    if count < MIN_QUADS:
        raise ValueError(f"{count} quads; at least {MIN_QUADS} are needed for a trimmed mean.")
    # NaN and infinities are sorted to the ends.
    if not (math.isfinite(ordered[0]) and math.isfinite(ordered[-1])):
        raise ValueError("A log ratio is not a finite number.")
    cut = int(TRIM * count)
    kept = ordered[cut : count - cut]
    left = kept.size
    mean = float(kept.sum()) / left
    # Trimmed values are replaced by the nearest kept value. Subtract the mean first: squares of the ratios
    # themselves would cancel.
    off = kept - mean
    total = cut * float(off[0] + off[-1])
    squares = float(off @ off) + cut * float(off[0] ** 2 + off[-1] ** 2) - total**2 / count
    standard_error = math.sqrt(max(squares, 0.0) / (left * (left - 1)))
    return ProcessEffect(mean, max(standard_error, resolution), left - 1, count)


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the 20 % trimmed mean of times, which a burst of other work does not affect."""
    ordered = np.sort(np.asarray(values))
    cut = int(TRIM * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def more_quads(ratios: ArrayLike, standard_error: float, *, at_least: int, at_most: int) -> int:
    """Return how many quads a block should have in all after its next batch. It is the current number if it
    knows enough.

    A block knows enough at `standard_error`, or at a fortieth of its effect: a slowdown of 20 % needs no
    precision of half a percent. Near the margin that fortieth is below any requested standard error, so there
    the effect does not influence when a block ends. By the scatter so far, the next batch is enough. It makes
    the number of quads at most three times as large.
    """
    values = np.asarray(ratios, dtype=np.float64)
    count = values.size
    if count < at_least:
        return min(at_least, at_most)
    if count >= at_most:
        return count
    effect = process_effect(values)
    wanted = max(standard_error, abs(effect.value) / _PRECISE)
    if effect.standard_error <= wanted:
        return count
    needed = math.ceil(1.1 * count * (effect.standard_error / wanted) ** 2)
    return min(at_most, 3 * count, max(needed, count + _FEWEST_MORE))


def tick_error(tick_ns: float, slot_ns: float, quads: int) -> float:
    """Return the largest standard error of a process effect that a timer with ticks of `tick_ns` causes by
    itself.

    A slot of a whole number of ticks and a half reads one tick more or less at random: half a tick of
    standard deviation, which the log ratio of four slots has too. Trimming few discrete values adds up to a
    quarter. The observed scatter of discrete values is often too small: without this lower limit, a p-value
    of 0.01 occurs four times too often. `slot_ns` is the length of a slot with all its launches.
    """
    return 1.25 * 0.5 * tick_ns / slot_ns / math.sqrt(quads)


def order_effect(orders: Sequence[str], ratios: ArrayLike) -> float:
    """Return the two-sided p-value that ABBA and BAAB quads measure the same effect.

    They differ if the position of a slot in its quad matters, for example if the clock falls after every
    pause. It is the Mann-Whitney rank sum test with mid-ranks and the normal approximation, with tie and
    continuity corrections: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3rd ed., section
    4.1. It is 1 if either order has fewer than four quads.
    """
    abba = _signs(orders)[:, 1] > 0
    values = np.asarray(ratios, dtype=np.float64)
    if values.shape != abba.shape or not np.isfinite(values).all():
        raise ValueError(f"Expected {abba.size} finite log ratios, one for each order.")
    count, first = values.size, int(abba.sum())
    second = count - first
    if min(first, second) < 4:
        return 1.0
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[place]
    excess = abs(float(ranks[abba].sum()) - first * (count + 1) / 2)
    ties = float((times**3 - times).sum()) / (count * (count - 1))
    variance = first * second / 12 * (count + 1 - ties)
    if variance <= 0:
        return 1.0
    return min(1.0, 2 * float(scipy.special.ndtr(-max(excess - 0.5, 0.0) / math.sqrt(variance))))


@dataclass(frozen=True, slots=True)
class OrderBias:
    """Bias of an effect by the order of slots, as a logarithm; positive is slower."""

    between_p: float
    """p-value that ABBA and BAAB quads measure the same."""
    carried: float
    """Half of the extra time that head loses right after base, compared with base right after head."""
    carried_p: float
    """p-value that there is no carry-over."""

    def doubt(self, error: float) -> float:
        """Return the possible error of the effect by carry-over between slots; 0 if it may be chance.

        The error is twice the carry-over. The slot that begins a quad may follow the other kernel as well,
        which adds a quarter. The uncertainty of a barely significant carry-over is a third of it. The
        position of a slot in its quad causes no bias, because the order is random. It is part of the quads'
        scatter.
        """
        return 2 * abs(self.carried) if self.carried_p < error else 0.0


def order_bias(processes: Sequence[tuple[Sequence[str], ArrayLike]]) -> OrderBias:
    """Return the bias by the order of slots over several processes.

    `processes` holds the orders and slot values of each process, in the form that `log_ratios` takes.

    In ABBA, head's first slot follows base and its second follows head. In BAAB the roles are exchanged. The
    drift within a quad is the same in both orders and cancels. The size is estimated by medians and the
    p-values by rank sums, which are robust to outliers.
    """
    orders = [order for own, _ in processes for order in own]
    ratios: list[Floats] = []
    middles: list[Floats] = []
    for own, values in processes:
        if not len(own):
            continue
        logs = _logs(values, len(own), "values")
        found = _ratios(own, logs)
        ratios.append(found - median(found))
        middles.append(logs[:, 1] - logs[:, 2])
    if not ratios:
        return OrderBias(1.0, 0.0, 1.0)
    by_order, middle = np.concatenate(ratios), np.concatenate(middles)
    abba = np.array([order == "ABBA" for order in orders])
    apart = median(middle[abba]) - median(middle[~abba]) if abba.any() and not abba.all() else 0.0
    return OrderBias(order_effect(orders, by_order), apart / 2, order_effect(orders, middle))


@dataclass(frozen=True, slots=True)
class Tail:
    """Outliers: slots far above the others of their side, which a trimmed mean ignores."""

    base: int
    head: int
    """Number of head's slots that are outliers."""
    slots: int
    """Number of slots of each side."""
    cost: float
    """Mean extra time of head in outliers, as a share of the usual time."""
    p_slower: float
    """p-value of as many quads with more lost time on head, or more quads, if both sides were alike."""
    p_faster: float

    def toward(self, direction: Literal["slower", "faster"]) -> tuple[float, float]:
        """Return the cost and p-value in one direction. A negative cost means the other direction."""
        return (self.cost, self.p_slower) if direction == "slower" else (-self.cost, self.p_faster)


@dataclass(frozen=True, slots=True)
class Losses:
    """The outliers of one process."""

    base: int
    head: int
    slots: int
    """Number of slots of each side."""
    lost: Floats
    """Extra time that head lost to outliers in each quad, over the usual time of a slot."""


def losses(orders: Sequence[str], values: ArrayLike) -> Losses:
    """Find the outliers of a process from its orders and the times of its slots."""
    logs = _logs(values, len(orders), "values")
    signs = _signs(orders)
    excess = np.zeros_like(logs)
    counts: list[int] = []
    for arm in (signs < 0, signs > 0):
        above = logs - median(logs[arm])
        strays = arm & (above > math.log1p(_STRAY))
        if strays.any():
            strays &= above > _STRAY_DEVIATIONS * MAD_SCALE * median(np.abs(above[arm]))
            excess[strays] = np.expm1(np.minimum(above[strays], 700.0))
        counts.append(int(strays.sum()))
    return Losses(counts[0], counts[1], 2 * len(orders), (signs * excess).sum(axis=1))


def tail_of(processes: Sequence[Losses]) -> Tail:
    """Combine the outliers of several processes.

    If both kernels had the same distribution, a quad with outliers would be equally likely to lose more time
    on either side, because the order is random. So a sign test counts the quads that lost more on one side.
    """
    slots = sum(each.slots for each in processes)
    quads = np.concatenate([each.lost for each in processes]) if processes else np.zeros(0)
    more, fewer = int((quads > 0).sum()), int((quads < 0).sum())
    return Tail(
        base=sum(each.base for each in processes),
        head=sum(each.head for each in processes),
        slots=slots,
        cost=float(quads.sum()) / slots if slots else 0.0,
        p_slower=_sign_test(more, more + fewer),
        p_faster=_sign_test(fewer, more + fewer),
    )


def _sign_test(successes: int, trials: int) -> float:
    """Return the probability of this many successes or more, if both results are equally likely."""
    return float(scipy.special.bdtrc(successes - 1, trials, 0.5)) if successes else 1.0


def clock_exponent(
    times_ns: ArrayLike, clocks_mhz: ArrayLike, orders: Sequence[str], clock_noise: float
) -> tuple[float, float] | None:
    """Return epsilon in t ~ f^-epsilon and its standard error: 1 if time is cycles over clock, 0 if the clock
    does not matter.

    Arrays have a row for each quad and a column for each slot in the order measured. Each side's mean is
    subtracted first, so that a slower head does not look like a slope. The search starts from least absolute
    residuals (Koenker & Bassett, Econometrica 46 (1978) 33-50), which outliers do not affect. Then least
    squares of ln t on ln f is repeated without the slots whose residual exceeds 3.5 scaled median absolute
    deviations, until these stay the same. The standard error is the larger of the usual one and of the one
    for correlated slots within a quad (Liang & Zeger, Biometrika 73 (1986) 13-22).

    `clock_noise` is the relative standard deviation of a clock reading. Returns None if the clocks spread by
    less than five times that (noise would then bias the exponent towards 0 by more than 4 %), if the standard
    error is above 0.1, and for fewer than MIN_QUADS quads. Raises ValueError as `log_ratios` does.
    """
    head = (_signs(orders) > 0).ravel()
    y = _logs(times_ns, len(orders), "times").ravel()
    x = _logs(clocks_mhz, len(orders), "clocks").ravel()
    if len(orders) < MIN_QUADS:
        return None
    quad = np.repeat(np.arange(len(orders)), 4)
    residuals = _about_arm_medians(y + _start_exponent(x, y, head) * x, head)
    # Largest error of a residual for a start between two of the tried ones.
    doubt = _EXPONENT_STEP * np.abs(_about_arm_medians(x, head))
    kept: NDArray[np.bool_] = np.zeros(x.size, dtype=np.bool_)
    for _ in range(_MAX_REFITS):
        sizes = np.abs(residuals)
        # If the relation is exact, residuals are only rounding errors.
        now = sizes <= max(3.5 * MAD_SCALE * median(sizes), 1e-12) + doubt
        if (now == kept).all():
            break
        if min(now[head].sum(), now[~head].sum()) < MIN_QUADS:
            return None
        kept, doubt = now, np.zeros_like(doubt)
        dx, dy = _about_arm_means(x, head, kept), _about_arm_means(y, head, kept)
        square = float(dx[kept] @ dx[kept])
        if square < kept.sum() * max(5 * clock_noise, _ROUNDING) ** 2:
            return None
        slope = float(dx[kept] @ dy[kept]) / square
        residuals = dy - slope * dx
    # Two means and the slope are fitted.
    textbook = float(residuals[kept] @ residuals[kept]) * square / (kept.sum() - 3)
    scores = np.bincount(quad[kept], weights=dx[kept] * residuals[kept])
    together = float(scores @ scores)
    standard_error = math.sqrt(max(textbook, together)) / square
    return (-slope, standard_error) if standard_error <= 0.1 else None


def _start_exponent(x: Floats, y: Floats, head: NDArray[np.bool_]) -> float:
    residuals = y + _EXPONENTS[:, np.newaxis] * x
    sizes = np.zeros(_EXPONENTS.size)
    for arm in (head, ~head):
        own = residuals[:, arm]
        sizes += np.abs(own - np.median(own, axis=1, keepdims=True)).sum(axis=1)
    return float(_EXPONENTS[sizes.argmin()])


def _about_arm_medians(values: Floats, head: NDArray[np.bool_]) -> Floats:
    medians: Floats = np.where(head, median(values[head]), median(values[~head]))
    return values - medians


def median(values: Floats) -> float:
    """Return the median of at least one value of a 1-D array; numpy's takes five times as long for few
    values.
    """
    middle = values.size // 2
    ordered = np.sort(values) if values.size < _MANY else np.partition(values, (middle - 1, middle))
    return float(ordered[middle] if ordered.size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def _about_arm_means(values: Floats, head: NDArray[np.bool_], kept: NDArray[np.bool_]) -> Floats:
    means: Floats = np.where(head, values[head & kept].mean(), values[~head & kept].mean())
    return values - means


def _signs(orders: Sequence[str]) -> Floats:
    """Return a sign for each slot: 1 for head, -1 for base."""
    signs: Floats = _base_first(orders)[:, np.newaxis] * _ABBA
    return signs


def _base_first(orders: Sequence[str]) -> Floats:
    """Return a sign for each quad: 1 for ABBA, -1 for BAAB."""
    try:
        return np.array([_FIRST[order] for order in orders], dtype=np.float64)
    except KeyError as error:
        raise ValueError(f"Order {error} of a quad; expected ABBA or BAAB.") from None


def _logs(values: ArrayLike, count: int, what: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (count, 4):
        raise ValueError(f"{what} have the shape {array.shape}; expected {(count, 4)}, a row for each quad.")
    # A minimum or maximum of NaN compares as false.
    if array.size and not (array.min() > 0 and array.max() < math.inf):
        raise ValueError(f"Some {what} are not positive finite numbers.")
    return np.log(array)
