"""Error rates of many verdicts. It avoids NumPy, because a job that holds a token imports it."""

from __future__ import annotations

import math
from collections.abc import Mapping


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a binomial probability, with at least this confidence.

    Clopper & Pearson, Biometrika 26 (1934) 404-413. Without trials it is 0 to 1. Raises ValueError for
    impossible counts.
    """
    _check(successes, trials, confidence)
    tail = (1 - confidence) / 2
    return 1 - _upper(trials - successes, trials, tail), _upper(successes, trials, tail)


def false_alarm_bound(alarms: int, verdicts: int, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound (Clopper-Pearson) of the rate of false alarms.

    After 3000 verdicts without an alarm it is 0.001.
    """
    _check(alarms, verdicts, confidence)
    return _upper(alarms, verdicts, 1 - confidence)


def holm(p_values: Mapping[str, float], alpha: float) -> frozenset[str]:
    """Return the rejected hypotheses; the probability of rejecting any true one is at most `alpha`.

    It holds for any dependence between them: Holm, Scandinavian Journal of Statistics 6 (1979) 65-70. Raises
    ValueError for a p-value outside of 0 to 1.
    """
    for name, p_value in p_values.items():
        if not 0 <= p_value <= 1:
            raise ValueError(f"The p-value of {name} is {p_value}; expected 0 to 1.")
    rejected: set[str] = set()
    for name in sorted(p_values, key=lambda name: p_values[name]):
        if p_values[name] > alpha / (len(p_values) - len(rejected)):
            break
        rejected.add(name)
    return frozenset(rejected)


def _check(successes: int, trials: int, confidence: float) -> None:
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials} cannot be.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected between 0 and 1.")


def _upper(successes: int, trials: int, tail: float) -> float:
    if successes == trials:
        return 1.0
    if not successes:
        return -math.expm1(math.log(tail) / trials)
    # Imported here and not at the top: the process that posts holds a token, and should load as little as it
    # can.
    from scipy.special import betaincinv

    return float(betaincinv(successes + 1, trials - successes, 1 - tail))
