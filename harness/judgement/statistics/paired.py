"""From the quads of one process to its effect: head over base as a log ratio, and how well the quads know it.

A quad is four slots in a row, ABBA or BAAB, A of base and B of head. What drifts linearly over a quad cancels
in its log ratio, and what scales all four does too.
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
"""The fewest that leave three after trimming."""
TRIM = 0.2
"""The share of the quads that is cut at each end."""

Floats = NDArray[np.float64]

_ABBA = np.array([-1.0, 1.0, 1.0, -1.0])
_FIRST = {"ABBA": 1.0, "BAAB": -1.0}
_MAX_REFITS = 20
_EXPONENT_STEP = 0.05
_EXPONENTS = np.arange(-10, 31) * _EXPONENT_STEP
_ROUNDING = 1e-6
"""Largest relative spread of clocks that counts as no spread."""
_MANY = 500
"""Values, from which on numpy finds the middle ones sooner than it sorts."""
_STRAY = 0.1
"""A slot this far above its arm's median, and six standard deviations, strays."""
_STRAY_DEVIATIONS = 6.0
_LEAST, _MOST = 1e-6, 1e18
_PRECISE = 40.0
_FEWEST_MORE = 3
"""Quads: a batch has a lead-in of its own."""


@dataclass(frozen=True, slots=True)
class ProcessEffect:
    """The effect in one process: the natural logarithm of head over base, positive where head takes more."""

    value: float
    standard_error: float
    """Standard error of `value` from the quads' scatter, without the differences between processes."""
    df: int
    quads: int


def of_arm(order: str, values: Sequence[float], arm: str) -> list[float]:
    """Return what the slots of one arm, A or B, have of a quad's values."""
    return [value for each, value in zip(order, values, strict=True) if each == arm]


def log_ratios(orders: Sequence[str], values: ArrayLike) -> Floats:
    """Per quad half of ln B1 + ln B2 - ln A1 - ln A2.

    `orders` says ABBA or BAAB of each quad, and `values` has its four slots, in the order measured and in any
    one unit. Raises ValueError for another order or shape, and for what is no positive finite number.
    """
    return _ratios(orders, _logs(values, len(orders), "values"))


def _ratios(orders: Sequence[str], logs: Floats) -> Floats:
    ratios: Floats = 0.5 * _base_first(orders) * (logs @ _ABBA)
    return ratios


def readable(values: Sequence[float]) -> bool:
    """Tell whether all values can be times, cycles or clocks.

    A launch shorter than its timer's tick reads 0. The largest value is thirty years in ns.
    """
    return all(_LEAST < value < _MOST for value in values)


def process_effect(ratios: ArrayLike, resolution: float = 0.0) -> ProcessEffect:
    """The 20 % trimmed mean of quads' log ratios, and the standard error of Tukey and McLaughlin.

    The trimmed mean stays put when up to a fifth of the quads are spoilt to one side, and unlike a median it
    averages where times come in coarse ticks. Its squared standard error is the winsorised sum of squares
    over h (h - 1), where h quads are left, with h - 1 degrees of freedom: Tukey & McLaughlin, Sankhya A 25
    (1963) 331-352; Yuen, Biometrika 61 (1974) 165-170.

    Where ticks are so coarse that quads tie, that may come out as 0: `resolution` is the least that it can
    be, as `tick_error` has it. Raises ValueError for fewer than MIN_QUADS ratios or one that is not finite.
    """
    ordered = np.sort(np.asarray(ratios, dtype=np.float64))
    if ordered.ndim != 1:
        raise ValueError(f"ratios have {ordered.ndim} axes; expected one, a ratio for each quad.")
    count = ordered.size
    if count < MIN_QUADS:
        raise ValueError(f"{count} quads; at least {MIN_QUADS} are needed for a trimmed mean.")
    # NaN and infinities sort to the ends.
    if not (math.isfinite(ordered[0]) and math.isfinite(ordered[-1])):
        raise ValueError("A log ratio is not a finite number.")
    cut = int(TRIM * count)
    kept = ordered[cut : count - cut]
    left = kept.size
    mean = float(kept.sum()) / left
    # The ends take the value of the last one kept. Deviations from the trimmed mean first: squares of
    # ratios themselves would cancel.
    off = kept - mean
    total = cut * float(off[0] + off[-1])
    squares = float(off @ off) + cut * float(off[0] ** 2 + off[-1] ** 2) - total**2 / count
    standard_error = math.sqrt(max(squares, 0.0) / (left * (left - 1)))
    return ProcessEffect(mean, max(standard_error, resolution), left - 1, count)


def trimmed_mean(values: Sequence[float]) -> float:
    """The 20 % trimmed mean of times, which a burst of other work leaves be."""
    ordered = np.sort(np.asarray(values))
    cut = int(TRIM * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def more_quads(ratios: ArrayLike, standard_error: float, *, at_least: int, at_most: int) -> int:
    """Return how many quads a block should have next, all counted: as many as it has once it knows enough.

    It does at `standard_error`, or at a fortieth of its effect: a verdict on 20 % does not need to know it to
    half a percent. Near the margin that fortieth is below any standard error asked for, so where it matters
    a block does not end by what it reads. As far as the scatter so far tells, the next batch is enough; it
    makes the quads no more than three times as many.
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
    """The largest standard error of a process effect that a timer in ticks of `tick_ns` leaves by itself.

    A slot that is half a tick over so many whole ones reads one more or one less at random: half a tick of
    standard deviation, and so has the log ratio of four. Trimming values so few and so far apart adds up to
    a quarter. As values fall on few steps their scatter often comes out too small: without this as its least,
    a p-value of 0.01 is met four times too often. `slot_ns` is the length of a whole slot, of all its
    launches.
    """
    return 1.25 * 0.5 * tick_ns / slot_ns / math.sqrt(quads)


def order_effect(orders: Sequence[str], ratios: ArrayLike) -> float:
    """Two-sided p-value that ABBA and BAAB quads measure different effects.

    They do where something within a quad depends on the place of a slot but not on what runs there: a clock
    that falls after every pause is the usual cause. Mann-Whitney rank sum with mid-ranks, the normal
    approximation with the tie and continuity corrections: Hollander, Wolfe & Chicken, Nonparametric
    Statistical Methods, 3rd ed., section 4.1. It is 1 where an order has fewer than four quads: they cannot
    tell.
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
    """p-value that ABBA and BAAB quads read alike."""
    carried: float
    """Half of how much more head loses right after base than base after head, against their own slots."""
    carried_p: float
    """p-value that neither does."""

    def doubt(self, error: float) -> float:
        """Return the possible error of the effect by carry-over between slots; 0 if it may be chance.

        The error is twice the carry-over. The slot that begins a quad may follow the other kernel as well,
        which adds a quarter. A carry-over that is barely significant is known to a third of itself. The place
        of a slot in its quad makes no bias, because the order was drawn. It is part of the quads' scatter.
        """
        return 2 * abs(self.carried) if self.carried_p < error else 0.0


def order_bias(processes: Sequence[tuple[Sequence[str], ArrayLike]]) -> OrderBias:
    """Return the bias by the order of slots over several processes.

    `processes` holds the orders and slot values of each process, as `log_ratios` takes them.

    In ABBA head's first slot follows base's and its second follows its own; in BAAB it is base that is in the
    middle. The drift within a quad is the same in both, so it is no part of their difference. The size is of
    medians, and the p-values are of rank sums, which a stray slot does not move.
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
    """Slots far above the others of their arm, which a trimmed mean does not see."""

    base: int
    head: int
    """Number of slots that strayed."""
    slots: int
    """The slots of each arm."""
    cost: float
    """Mean extra time that head loses to stray slots, as a share of the usual time."""
    p_slower: float
    """p-value of as many quads, or more, that lost more on head than on base, were the arms alike."""
    p_faster: float

    def toward(self, direction: Literal["slower", "faster"]) -> tuple[float, float]:
        """Cost and p-value in one direction; a negative cost is the other direction's."""
        return (self.cost, self.p_slower) if direction == "slower" else (-self.cost, self.p_faster)


@dataclass(frozen=True, slots=True)
class Losses:
    """The stray slots of one process."""

    base: int
    head: int
    slots: int
    """The slots of each arm."""
    lost: Floats
    """Extra time that head lost to strays in each quad, over the usual time of a slot."""


def losses(orders: Sequence[str], values: ArrayLike) -> Losses:
    """Find the stray slots of a process by its orders and its slots' times."""
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
    """Return what the stray slots of several processes say together.

    Had the kernels the same distribution, a quad that lost time to strays would be as likely to have lost
    more of it on head as on base, whatever else the card did: the order was drawn. So the quads that lost
    more on one of them are counted, in a sign test.
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
    """Chance of so many successes or more, each as likely as not."""
    return float(scipy.special.bdtrc(successes - 1, trials, 0.5)) if successes else 1.0


def clock_exponent(
    times_ns: ArrayLike, clocks_mhz: ArrayLike, orders: Sequence[str], clock_noise: float
) -> tuple[float, float] | None:
    """Epsilon in t ~ f^-epsilon, and its standard error: 1 where time is cycles over clock, 0 where the clock
    does not matter.

    Arrays have a row for each quad and a column for each slot in the order measured. Each arm's mean is taken
    off first, so that a slower head is no slope. The exponent of the least absolute residuals starts (Koenker
    & Bassett, Econometrica 46 (1978) 33-50), which stray slots do not move. Then least squares of ln t on
    ln f, repeated without the slots whose residual is beyond 3.5 scaled median absolute deviations until
    these stay the same. Its standard error is the larger of the textbook's and of the one that is right when
    the slots of a quad go together (Liang & Zeger, Biometrika 73 (1986) 13-22).

    `clock_noise` is the relative standard deviation of a clock reading. None where the clocks spread by less
    than five times that, as noise in them would pull the exponent towards 0 by more than 4 %, where the
    standard error is above 0.1, and for fewer than MIN_QUADS quads. Raises ValueError as `log_ratios` does.
    """
    head = (_signs(orders) > 0).ravel()
    y = _logs(times_ns, len(orders), "times").ravel()
    x = _logs(clocks_mhz, len(orders), "clocks").ravel()
    if len(orders) < MIN_QUADS:
        return None
    quad = np.repeat(np.arange(len(orders)), 4)
    residuals = _about_arm_medians(y + _start_exponent(x, y, head) * x, head)
    # How far a residual may be off for a start that is between two of those tried.
    doubt = _EXPONENT_STEP * np.abs(_about_arm_medians(x, head))
    kept: NDArray[np.bool_] = np.zeros(x.size, dtype=np.bool_)
    for _ in range(_MAX_REFITS):
        sizes = np.abs(residuals)
        # Where the relation is exact, residuals are nothing but rounding.
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
    """Return the median of at least one value in one axis; numpy's takes five times as long over so few."""
    middle = values.size // 2
    ordered = np.sort(values) if values.size < _MANY else np.partition(values, (middle - 1, middle))
    return float(ordered[middle] if ordered.size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def _about_arm_means(values: Floats, head: NDArray[np.bool_], kept: NDArray[np.bool_]) -> Floats:
    means: Floats = np.where(head, values[head & kept].mean(), values[~head & kept].mean())
    return values - means


def _signs(orders: Sequence[str]) -> Floats:
    """Return a sign for each slot: 1 where it is head's, -1 where it is base's."""
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
    # A least or largest value of NaN compares as false.
    if array.size and not (array.min() > 0 and array.max() < math.inf):
        raise ValueError(f"Some {what} are not positive finite numbers.")
    return np.log(array)
