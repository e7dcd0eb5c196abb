"""Evidence over machines: what one series hints at counts where another is sure of the same.

A commit that changes a case tends to change it on every machine that runs it. So a place that is not sure by
itself counts where the same case on another machine surely changed: in commits that may be the same, in the
same direction, and by about as much.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_TIMES = 3.0
"""Largest ratio of two effects, as logarithms, that still agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A change of one series, or a candidate for one."""

    machine: str
    case: str
    good: int
    bad: int
    """It came after the commit at position `good`, and at the latest with `bad`."""
    effect: float
    sure: bool
    """True where it is a change by itself."""


def confirmed(hints: Sequence[Hint]) -> tuple[int, ...]:
    """Return the indices of those hints that are not sure, and count for what another machine is sure of."""
    sure: dict[str, list[Hint]] = defaultdict(list)
    for hint in hints:
        if hint.sure:
            sure[hint.case].append(hint)
    return tuple(
        index
        for index, hint in enumerate(hints)
        if not hint.sure and any(_agree(hint, other) for other in sure[hint.case])
    )


def _agree(one: Hint, other: Hint) -> bool:
    if one.machine == other.machine or max(one.good, other.good) >= min(one.bad, other.bad):
        return False
    small, large = sorted((math.log1p(one.effect), math.log1p(other.effect)), key=abs)
    return small * large > 0 and abs(large) <= _TIMES * abs(small)
