"""Which cases a card measures no more, and what may have taken their place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.history.figures import Floats, SeriesCase, words_of
from harness.history.series import Series
from harness.judgement.statistics.paired import median

_MISSED = 3
"""More runs than these without a case, and twice as many as ever before, tell that it is measured no more."""
_FULL = 0.5
"""Share of the cases that a card's runs have in the middle, from which on a run tells what it leaves out."""
_ALIKE = 0.7
"""Share of words that two names have in common."""
_LEVELS = 5
_APART = 1.5
"""The largest ratio of the levels before and after a rename."""


def ended_cases(every: Sequence[Series], unlisted: frozenset[str]) -> dict[str, str]:
    """The cases that are missing in a card's newest runs, though these have others, and those `unlisted`. By
    name, with the case that may be the same under another name, as it began where this one ended; else empty.
    """
    if not every:
        return {}
    runs = _full_runs(every)
    ended = [one for one in every if one.case.name in unlisted or _is_overdue(one, runs)]
    renamed = _renamed(ended, every, runs)
    return {one.case.name: renamed.get(one.case.name, "") for one in ended}


def _full_runs(every: Sequence[Series]) -> npt.NDArray[np.int64]:
    """Positions of the commits of which a card measured more than a few of its cases."""
    counts = np.bincount(np.concatenate([one.positions for one in every]))
    positions = np.flatnonzero(counts)
    cases = counts[positions]
    return positions[cases >= _FULL * np.median(cases)]


def _is_overdue(one: Series, runs: npt.NDArray[np.int64]) -> bool:
    """Return True if the case is missing in more of the newest runs than ever before."""
    places = np.searchsorted(runs, one.positions)
    usual = int(np.diff(places).max(initial=1))
    missed = int((runs > one.positions[-1]).sum())
    return missed > max(_MISSED, 2 * usual)


def _renamed(ended: Sequence[Series], every: Sequence[Series], runs: npt.NDArray[np.int64]) -> dict[str, str]:
    """The cases that begin where others ended, are alike in name and lie on about their level."""
    born: dict[int, list[tuple[SeriesCase, float]]] = defaultdict(list)
    for one in every:
        born[int(np.searchsorted(runs, one.positions[0]))].append((one.case, _first_level(one.values)))
    pairs = [
        (old.case, new)
        for old in ended
        for level in [_first_level(old.values[::-1])]
        for new, other in born[int(np.searchsorted(runs, old.positions[-1], side="right"))]
        if new.unit == old.case.unit and _are_near(level, other)
    ]
    counts = Counter(old.case.suite for old in ended)
    kept = Counter((old.suite, new.suite) for old, new in pairs if _in_suite(old) == _in_suite(new))
    alike = [
        (1.0 if kept[old.suite, new.suite] == counts[old.suite] > 1 else _alike(old.name, new.name), old, new)
        for old, new in pairs
    ]
    alike.sort(key=lambda each: (-each[0], _in_suite(each[1]) != _in_suite(each[2])))
    found: dict[str, str] = {}
    for share, old, new in alike:
        if share >= _ALIKE and old.name not in found and new.name not in found.values():
            found[old.name] = new.name
    return found


def _in_suite(case: SeriesCase) -> tuple[str, str]:
    return case.kernel, case.size


def _alike(first: str, second: str) -> float:
    """The share of words that two names have in common."""
    ours, theirs = set(words_of(first)), set(words_of(second))
    return len(ours & theirs) / max(1, len(ours | theirs))


def _first_level(values: Floats) -> float:
    """Return the median of the first figures; 0 where there is none."""
    figures = values[np.isfinite(values)][:_LEVELS]
    return median(figures) if figures.size else 0.0


def _are_near(one: float, two: float) -> bool:
    low, high = sorted((one, two))
    return low == high or 0 < high <= _APART * low
