"""Uses a card's stored comparisons of two commits as evidence for its history.

A paired comparison is more precise than a series. It narrows the range of a change, settles uncertain newest
points, and finds changes too small for a series. It measures time, so it counts only for metrics based on
time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.history.changes import TIMED, Analysed, Change, Kind, change_id, with_changes, with_confirmed
from harness.history.series import Series
from harness.history.sources.our_records import Commits, Judged, RunFacts

_SAME = ("unchanged", "identical")
_MOVED: Mapping[str, Kind] = {"regression": "regression", "improvement": "improvement"}
_CHANCE = 0.001
"""Probability that a comparison wrongly reports a change, at its default confidence."""
_SHARE = 0.25
"""Share of a drift at each end, within which commits count as that end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """A verdict of a case. `base` and `head` are positions."""

    base: int
    head: int
    judged: Judged

    def covers(self, change: Change) -> bool:
        """Return True if a commit that may have made the change lies between base and head."""
        return self.base < change.bad and change.good < self.head

    def judges(self, newest: Change) -> bool:
        """Return True if one side is among the newest points' commits, and the other is older."""
        return self.base <= newest.good and self.head >= newest.bad

    @property
    def is_same(self) -> bool:
        return self.judged.status in _SAME

    @property
    def kind(self) -> Kind | None:
        """Return the kind of the change that it found; None if it found none."""
        return _MOVED.get(self.judged.status)


def comparisons_of(facts: Iterable[RunFacts], commits: Commits) -> dict[str, tuple[ComparedCase, ...]]:
    """Return comparisons by case whose commits are in the history, the older one as base.

    Of several comparisons of the same two commits, the newest counts.
    """
    found: dict[str, dict[tuple[int, int], ComparedCase]] = defaultdict(dict)
    at = commits.positions
    for each in facts:
        if each.base in at and each.head in at and at[each.base] < at[each.head]:
            base, head = at[each.base], at[each.head]
            for judged in each.judged:
                found[judged.case][base, head] = ComparedCase(base=base, head=head, judged=judged)
    return {case: tuple(by_range.values()) for case, by_range in found.items()}


def with_comparisons(analysed: Analysed, compared: Sequence[ComparedCase], commits: Commits) -> Analysed:
    """Return a series' changes after comparisons narrowed them, settled them, or added to them."""
    told = [each for each in compared if each.is_same or each.kind]
    if not told or analysed.series.case.metric not in TIMED:
        return analysed
    sure = {change.id for change in analysed.candidates if any(_found(one, change) for one in told)}
    counting = with_confirmed(analysed, sure)
    changes = tuple(_weighed(change, told, counting.changes) for change in counting.changes)
    newest = counting.unjudged
    # A comparison with one of the newest commits settles the newest points, whatever its verdict.
    is_judged = newest is not None and any(one.judges(newest) for one in told)
    settled = replace(counting, changes=changes, unjudged=None if is_judged else newest)
    return with_changes(settled, tuple(_added(settled, newest, told, commits)))


def _weighed(change: Change, told: Sequence[ComparedCase], changes: Sequence[Change]) -> Change:
    """Return a change with the range that comparisons leave, or attributed to something other
    than the code.
    """
    others = [each for each in changes if each is not change and each.kind in _MOVED.values()]
    before = None
    while before != change:
        before = change
        for one in told:
            alone = not any(one.covers(each) for each in others)
            change = _weighed_by(one, change, alone=alone)
    return change


def _weighed_by(one: ComparedCase, change: Change, *, alone: bool) -> Change:
    if change.kind == "drift":
        within = (change.bad - change.good) * _SHARE
        spans = one.base <= change.good + within and one.head >= change.bad - within
        return _not_code(change) if spans and one.is_same else change
    if _found(one, change):
        good, bad = max(change.good, one.base), min(change.bad, one.head)
        diagnosis = one.judged.diagnosis or change.diagnosis
        return replace(change, good=good, bad=bad, compared=True, diagnosis=diagnosis)
    if one.is_same and alone and change.kind != "environment" and one.covers(change):
        return _without(one, change)
    return change


def _without(one: ComparedCase, change: Change) -> Change:
    """Return a change that is not between the two compared commits."""
    if one.base <= change.good and one.head >= change.bad:
        return _not_code(change)
    if one.base <= change.good:
        return replace(change, good=one.head, compared=True)
    return replace(change, bad=one.base, compared=True) if one.head >= change.bad else change


def _not_code(change: Change) -> Change:
    return replace(change, kind="environment", attribution="environment", compared=True)


def _found(one: ComparedCase, change: Change) -> bool:
    """Return True if a comparison found the change between its two commits."""
    return one.kind == change.kind and one.covers(change)


def _added(
    analysed: Analysed, unjudged: Change | None, told: Sequence[ComparedCase], commits: Commits
) -> Iterator[Change]:
    """Yield changes that comparisons found and the series does not show, from the narrowest comparison of
    each.
    """
    known = [change for change in analysed.changes if change.kind in _MOVED.values()]
    for one in sorted(told, key=lambda one: one.head - one.base):
        if one.kind is None or any(one.covers(change) for change in known):
            continue
        judged = unjudged if unjudged and one.judges(unjudged) else None
        if added := _change_of(one, analysed, judged, commits):
            known.append(added)
            yield added


def _change_of(
    one: ComparedCase, analysed: Analysed, unjudged: Change | None, commits: Commits
) -> Change | None:
    series, time = analysed.series, one.judged.time
    after = np.flatnonzero((series.positions >= one.head) & np.isfinite(series.values))
    if one.kind is None or time is None or not after.size:
        return None
    at = int(after[0])
    level = next((level for level in analysed.levels if level.start <= at < level.stop), None)
    if level is None:
        return None
    effect, low, high = (_as_figure(each, series) for each in (time.effect, time.low, time.high))
    before = unjudged.before if unjudged else level.level
    return Change(
        id=change_id(series.card, series.case.name, series.case.metric, commits[one.head].hash),
        card=series.card,
        case=series.case.name,
        kind=one.kind,
        attribution="code",
        good=max(one.base, unjudged.good) if unjudged else one.base,
        bad=min(one.head, unjudged.bad) if unjudged else one.head,
        at=at,
        first=at,
        last=at,
        before=before,
        after=before * (1 + effect),
        effect=effect,
        low=min(low, high),
        high=max(low, high),
        p_value=_CHANCE,
        epoch=int(series.epoch[at]),
        compared=True,
        diagnosis=one.judged.diagnosis,
    )


def _as_figure(time: float, series: Series) -> float:
    """Return an effect on time as an effect on the series' metric."""
    return 1 / (1 + time) - 1 if series.case.direction == "higher" else time
