"""Finds the cases that a card no longer measures, and cases that may have replaced them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.history.figures import Floats, SeriesCase, words_of
from harness.history.series import Series
from harness.judgement.statistics.paired import median

_MISSED = 3
"""Number of runs without a case after which it is no longer measured, if it is also twice the longest earlier
gap."""
_FULL = 0.5
"""Share of the cases in a median run, from which a run counts as complete."""
_ALIKE = 0.7
"""Share of common words that makes two names similar."""
_LEVELS = 5
_APART = 1.5
"""Largest ratio of the levels before and after a rename."""


def ended_cases(every: Sequence[Series], unlisted: frozenset[str]) -> dict[str, str]:
    """Return the cases missing from a card's newest runs, and those `unlisted`, with a possible successor.

    A successor begins where the case ended, and may be the same case under another name; empty if there is
    none.
    """
    if not every:
        return {}
    runs = _full_runs(every)
    ended = [one for one in every if one.case.name in unlisted or _is_overdue(one, runs)]
    renamed = _renamed(ended, every, runs)
    return {one.case.name: renamed.get(one.case.name, "") for one in ended}


def _full_runs(every: Sequence[Series]) -> npt.NDArray[np.int64]:
    """Return the positions of commits with runs of more than a few cases."""
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
    """Return the cases that begin where others ended, with similar names and similar levels."""
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
    """Return the share of words that two names have in common."""
    ours, theirs = set(words_of(first)), set(words_of(second))
    return len(ours & theirs) / max(1, len(ours | theirs))


def _first_level(values: Floats) -> float:
    """Return the median of the first points; 0 without points."""
    figures = values[np.isfinite(values)][:_LEVELS]
    return median(figures) if figures.size else 0.0


def _are_near(one: float, two: float) -> bool:
    low, high = sorted((one, two))
    return low == high or 0 < high <= _APART * low
