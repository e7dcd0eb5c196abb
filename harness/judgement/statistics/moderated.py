"""Estimates an effect from a few processes, with the card's history as a prior of their spread.

Two processes leave one degree of freedom for the spread between processes, which is too little. The card's
history has many cases of a kernel compared with itself, in which processes differ by similar amounts. The
moderated t of limma weighs both: Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004),
article 3.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # loads its parts when they are used

from harness.judgement.statistics.paired import Floats, ProcessEffect
from harness.judgement.statistics.summary import MAD_SCALE

MIN_DF, MAX_DF = 4.0, 200.0
_LEAST_OF_CARD = 0.25
"""Smallest variance between processes of a quiet case, as a share of the card's."""
_EXCESS = 1e-3
"""p-value of the spread between processes below which the prior is rejected."""
_BOUND = 0.8
"""Confidence of the bounds used for the variance and its degrees of freedom."""
_INFLATION_CASES = 4
"""Fewest cases with relevant errors from which an inflation is estimated."""
_MOST_INFLATION = 25.0
_OTHERS_DF = 5.0
"""Weight of the other processes' quads beside a process's own quads, in degrees of freedom."""
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior of the spread of effects between processes on a card.

    The variance of one effect, as a natural logarithm, is inflation * standard_error**2 + variance.
    """

    variance: float
    """Variance of effects around their case's own, beyond the standard errors of the quads."""
    df: float
    """Weight of `variance`, in degrees of freedom."""
    inflation: float = 1.0
    """Factor on the quads' squared standard errors: above 1 if successive quads are correlated."""
    proportion: float = 0.0
    """Standard deviation between processes per unit of effect.

    Two different binaries react differently to where code and data lie in memory.
    """

    def __post_init__(self) -> None:
        given = (self.variance, self.df, self.inflation, self.proportion)
        in_range = min(self.df, self.inflation) > 0 and min(self.variance, self.proportion) >= 0
        if not (all(map(math.isfinite, given)) and in_range):
            raise ValueError(
                f"{self}: expected finite numbers, variance and proportion not negative, the others positive."
            )


PROPORTION = 0.02
"""On an H100 and an H200 processes differed by 0.1 to 5 % of the effect, and half of the kernels by less than
0.5 %.

The differences were largest if the change was in the layout of shared memory.
"""
UNKNOWN_DF = 5.0
"""Largest weight of a prior, in degrees of freedom, for a case without earlier measurements.

The card's other cases show the usual spread, and this case may be an exception. With 5 degrees of freedom two
processes that disagree are believed, and two that agree by chance are not believed too much.
"""
KNOWN_DF = 8.0
"""The same for a case with a history.

Simulated at the margin, with a spread of 0.15 % between processes and 0.05 % in the history: 9.5 % are
flagged with 30 degrees of freedom, and 5 % with these. The cost for identical code is the same.
"""
DEFAULT_PRIOR = Prior(variance=0.001**2, df=UNKNOWN_DF, proportion=PROPORTION)
"""Prior of a card without history. It assumes a difference of 0.1 % between processes, twice that of quiet
kernels on an H200."""


@dataclass(frozen=True, slots=True)
class Moderated:
    """The mean log ratio over processes, and its uncertainty."""

    mean: float
    standard_error: float
    df: float
    processes: int
    excess: bool
    """True if processes differ by more than the prior can explain.

    Then the prior is ignored: standard error and degrees of freedom are those of the processes alone.
    """

    def low(self, alpha: float) -> float:
        """Return the lower bound of the effect with error probability `alpha`."""
        return self.mean - self.quantile(alpha) * self.standard_error

    def high(self, alpha: float) -> float:
        """Return the upper bound of the effect with error probability `alpha`."""
        return self.mean + self.quantile(alpha) * self.standard_error

    def quantile(self, alpha: float) -> float:
        """Return the value that Student's t exceeds with probability `alpha`."""
        return _quantile(self.df, alpha)

    def p_above(self, margin: float) -> float:
        """Return the one-sided p-value that the effect is above `margin`."""
        return self._tail(self.mean - margin)

    def p_below(self, margin: float) -> float:
        """Return the one-sided p-value that the effect is below `margin`."""
        return self._tail(margin - self.mean)

    def _tail(self, distance: float) -> float:
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(scipy.special.stdtr(self.df, -distance / self.standard_error))


@lru_cache(maxsize=256)
def _quantile(df: float, alpha: float) -> float:
    # Several bounds of one estimate use the same probability.
    return -float(scipy.special.stdtrit(df, alpha))


def moderate(effects: Sequence[ProcessEffect], prior: Prior) -> Moderated:
    """Return the mean of the processes' effects, weighted by the prior's variance and their own standard
    errors.

    A process whose quads scatter ten times as much as the others' hardly counts. Equally noisy processes
    count equally. The observed spread around the mean, relative to the expected spread, scales its variance
    (Hartung & Knapp, Statistics in Medicine 20 (2001) 3875-3889), moderated by the prior: expected and
    observed spread are weighted by their degrees of freedom. The prior gets no more of them than the quads'
    standard errors have, because it is built on these. Raises ValueError without effects.
    """
    if not effects:
        raise ValueError("No process has an effect; at least one is needed.")
    count = len(effects)
    parts = [prior.inflation * square for square in _squared_errors(effects)]
    middle, _ = _weighted(effects, [prior.variance + part for part in parts])
    between = prior.variance + (prior.proportion * middle) ** 2
    expected = [between + part for part in parts]
    mean, variance = _weighted(effects, expected)
    df = _df(effects, parts, expected, prior)
    if count == 1:
        return Moderated(mean, math.sqrt(variance), df, 1, excess=False)
    own_df = count - 1
    ratio = _spread(effects, expected, mean) / own_df
    if ratio > 1 and _f_tail(ratio, own_df, df) < _EXCESS:
        mean = math.fsum(effect.value for effect in effects) / count
        observed = math.fsum((effect.value - mean) ** 2 for effect in effects) / own_df
        return Moderated(mean, math.sqrt(observed / count), own_df, count, excess=True)
    scale = (df + own_df * ratio) / (df + own_df)
    return Moderated(mean, math.sqrt(scale * variance), df + own_df, count, excess=False)


def _squared_errors(effects: Sequence[ProcessEffect]) -> list[float]:
    """Return squared standard errors, each shrunk towards the processes' common variance of a quad.

    A block ends when its quads agree well enough. If they agree by chance, its standard error is too small,
    and it would get most of the weight. The common variance is limma's, by the mean of logarithms (Smyth
    2004, section 6.2), which a single extreme process does not dominate.
    """
    squares = [effect.standard_error**2 for effect in effects]
    if len(effects) == 1 or min(squares) == 0:
        return squares
    logs = math.fsum(
        effect.df * (math.log(square * effect.quads) + _shortfall(effect.df))
        for effect, square in zip(effects, squares, strict=True)
    )
    common = math.exp(logs / sum(effect.df for effect in effects))
    return [
        (effect.df * square + _OTHERS_DF * common / effect.quads) / (effect.df + _OTHERS_DF)
        for effect, square in zip(effects, squares, strict=True)
    ]


@lru_cache(maxsize=1024)
def _shortfall(df: int) -> float:
    """Return the bias of the logarithm of a variance estimate."""
    return math.log(df / 2) - float(scipy.special.digamma(df / 2))


def _weighted(effects: Sequence[ProcessEffect], variances: Sequence[float]) -> tuple[float, float]:
    """Return the mean weighted by inverse variance, and its variance."""
    if min(variances) <= 0:
        return math.fsum(effect.value for effect in effects) / len(effects), max(variances) / len(effects)
    total = math.fsum(1 / each for each in variances)
    mean = math.fsum(effect.value / each for effect, each in zip(effects, variances, strict=True)) / total
    return mean, 1 / total


def _spread(effects: Sequence[ProcessEffect], variances: Sequence[float], mean: float) -> float:
    """Return the sum of squared deviations, each over its expected variance."""
    squares = [(effect.value - mean) ** 2 for effect in effects]
    if max(squares) == 0:
        return 0.0
    return math.fsum(
        square / each if each > 0 else math.inf for square, each in zip(squares, variances, strict=True)
    )


def _df(
    effects: Sequence[ProcessEffect], parts: Sequence[float], expected: Sequence[float], prior: Prior
) -> float:
    """Return the degrees of freedom of the weighted mean's expected variance, at most the prior's.

    For a sum of estimates: Satterthwaite, Biometrics Bulletin 2 (1946) 110-114.
    """
    if min(expected) <= 0:
        return prior.df
    total = math.fsum(1 / each for each in expected)
    doubt = math.fsum(
        (part / each**2) ** 2 / effect.df for effect, part, each in zip(effects, parts, expected, strict=True)
    )
    return min(prior.df, total**2 / doubt) if doubt > 0 else prior.df


def _f_tail(ratio: float, own_df: float, df: float) -> float:
    return float(scipy.special.fdtrc(own_df, df, ratio)) if ratio < math.inf else 0.0


def fit_prior(history: Sequence[Sequence[ProcessEffect]]) -> Prior:
    """Return the prior of a card from kernels compared with themselves. `history` has the processes of each
    case.

    Variance and inflation are chosen so that the observed variances have the expected mean rank in their F
    distributions; the noisier half of the cases determines the inflation. Mean ranks are robust to a single
    extreme case. The inflation is 1 to 25, and 1 unless four cases have errors that matter beside the
    variance. The degrees of freedom match the spread of the logarithms of observed over expected variance, as
    in limma's fitFDist (Smyth 2004, section 6.2), with extreme cases winsorized. They are limited to 4 to 200
    and to those of the history itself.

    A short history errs on the safe side: the variance is an upper bound of 80 % confidence, and its degrees
    of freedom are a lower bound. Raises ValueError if no case has two processes.
    """
    cases = [case for case in history if len(case) >= 2]
    if not cases:
        raise ValueError("No case of the history has two processes: their spread is unknown.")
    return _History(
        own_df=np.array([len(case) - 1 for case in cases], dtype=np.float64),
        observed=np.array([np.var([effect.value for effect in case], ddof=1) for case in cases]),
        errors=np.array([np.mean([effect.standard_error**2 for effect in case]) for case in cases]),
    ).prior()


def prior_of_case(prior: Prior, history: Sequence[ProcessEffect]) -> Prior:
    """Return the prior of one case: its own history, shrunk towards that of its card.

    Both are weighted by their degrees of freedom (Smyth 2004, section 3). A noisy case among quiet cases is
    not judged as quiet: if its processes differ by more than the card explains, only its own history counts.

    The weight is UNKNOWN_DF at most for a case without history, and KNOWN_DF at most otherwise, since the
    history is of another binary.
    """
    if len(history) < 2:
        return dataclasses.replace(prior, df=min(prior.df, UNKNOWN_DF))
    own_df = len(history) - 1
    observed = float(np.var([effect.value for effect in history], ddof=1))
    error = prior.inflation * float(np.mean([effect.standard_error**2 for effect in history]))
    expected = prior.variance + error
    ratio = observed / expected if expected > 0 else math.inf if observed > 0 else 0.0
    if ratio > 1 and _f_tail(ratio, own_df, prior.df) < _EXCESS:
        return dataclasses.replace(prior, variance=observed - error, df=min(own_df, KNOWN_DF))
    total = (prior.df * expected + own_df * observed) / (prior.df + own_df)
    # Processes that agree better than their quads allow do so by chance.
    variance = max(total - error, prior.variance * _LEAST_OF_CARD)
    return dataclasses.replace(prior, variance=variance, df=min(prior.df + own_df, KNOWN_DF))


@dataclass(frozen=True, slots=True)
class _History:
    """Variances between processes by case, their degrees of freedom, and the mean squared errors."""

    own_df: Floats
    observed: Floats
    errors: Floats

    def prior(self) -> Prior:
        inflation, df = 1.0, min(DEFAULT_PRIOR.df, self.most_df())
        for _ in range(_ROUNDS):
            variance = self.variance(inflation, df)
            inflation = self.inflation(variance, df)
            df = self.df(inflation * self.errors + variance)
        return Prior(variance, df, inflation, PROPORTION)

    def variance(self, inflation: float, df: float) -> float:
        # The mean of n uniform ranks between 0 and 1 has a standard deviation of 1 / sqrt(12 n).
        wanted = 0.5 - float(scipy.special.ndtri(_BOUND)) / math.sqrt(12 * self.observed.size)
        most = 100 * float(self.observed.max())
        return _solve(lambda v: self.ranks(inflation * self.errors + v, df).mean(), wanted, 0.0, most)

    def inflation(self, variance: float, df: float) -> float:
        noisier = self.errors >= max(float(np.median(self.errors)), variance / 4)
        if noisier.sum() < _INFLATION_CASES:
            return 1.0
        return _solve(
            lambda times: self.ranks(times * self.errors + variance, df)[noisier].mean(),
            0.5,
            1.0,
            _MOST_INFLATION,
        )

    def df(self, expected: Floats) -> float:
        told = (self.observed > 0) & (expected > 0)
        if told.sum() < 3:
            return min(DEFAULT_PRIOR.df, self.most_df())
        half = self.own_df[told] / 2
        logs = np.log(self.observed[told] / expected[told]) - scipy.special.digamma(half) + np.log(half)
        middle = np.median(logs)
        logs = np.minimum(logs, middle + 3 * MAD_SCALE * np.median(np.abs(logs - middle)))
        beyond = float(np.var(logs, ddof=1) - scipy.special.polygamma(1, half).mean())
        # Allow for chance: the variance of n values has a variance from the fourth cumulant and twice the
        # squared variance, over n.
        fourth = float((scipy.special.polygamma(3, half) + 2 * scipy.special.polygamma(1, half) ** 2).mean())
        beyond += float(scipy.special.ndtri(_BOUND)) * math.sqrt(fourth / half.size)
        if beyond <= 0:
            return self.most_df()
        return min(max(2 * _trigamma_inverse(beyond), MIN_DF), self.most_df())

    def most_df(self) -> float:
        return min(max(float(self.own_df.sum()), MIN_DF), MAX_DF)

    def ranks(self, expected: Floats, df: float) -> Floats:
        """Return the rank of each case in its F distribution, from 0 to 1."""
        ratio = np.full_like(expected, np.inf)
        np.divide(self.observed, expected, out=ratio, where=expected > 0)
        ranks: Floats = np.where(np.isfinite(ratio), scipy.special.fdtr(self.own_df, df, ratio), 1.0)
        return np.where(self.observed > 0, ranks, 0.0)


def _solve(falling: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Return the argument at which a falling function is `wanted`, or the nearer end."""
    if falling(low) <= wanted:
        return low
    for _ in range(100):
        if high - low <= 1e-6 * high:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > wanted else (low, middle)
    return high


def _trigamma_inverse(value: float) -> float:
    """Invert the trigamma function by Newton's method on 1 / trigamma, which is nearly linear (Smyth 2004,
    appendix).
    """
    if value > 1e7:
        return 1 / math.sqrt(value)
    if value < 1e-6:
        return 1 / value
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(scipy.special.polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(scipy.special.polygamma(2, y))
        y += step
        if -step / y < 1e-8:
            break
    return y
