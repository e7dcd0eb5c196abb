"""Combines evidence of several machines: a weak change counts if another machine surely has the same.

A commit that changes a case usually changes it on every machine. So an uncertain change counts if the same
case surely changed on another machine, at possibly the same commits, in the same direction and by a similar
amount.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_TIMES = 3.0
"""Largest ratio of two effects, as logarithms, that still counts as agreement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A change of one series, or a candidate for one."""

    machine: str
    case: str
    good: int
    bad: int
    """The change came after the commit at position `good`, and at the latest with `bad`."""
    effect: float
    sure: bool
    """True if it is a change by the evidence of its own series."""


def confirmed(hints: Sequence[Hint]) -> tuple[int, ...]:
    """Return the indices of the uncertain hints that another machine confirms."""
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
