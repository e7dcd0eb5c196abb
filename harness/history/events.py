"""From changes to events: one commit that changed fifty cases on four cards is one thing that happened.

Every change tells a range of commits, after `good` and up to `bad`, one of which did it. Ranges that can have
the same commit in common are taken to have it: the fewest commits that explain all changes are looked for,
those first that explain most. What the card did by itself happens on that card alone, and a drift is no
commit's.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.history.changes import Change
from harness.history.facts import Commits
from harness.history.triage import WORSE, Decision, State, Stated, decided

Cause = Literal["code", "dependency", "measurement", "card", "unknown"]
"""What an event goes back to: kernels or what they are built of; what the project depends on; what says how
it is measured; the card by itself; nobody knows."""

_STATES: tuple[State, ...] = ("new", "expired", "unjudged", "acknowledged", "fixed", "")
"""The state of an event is the first of these that one of its changes has."""


_CODE = ("code",)
_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Changes that one commit explains, or one card by itself; of any cases, cards and directions."""

    id: str
    """Ten hexadecimal digits: those that the hash of `bad` begins with, of what a commit did."""
    kind: Literal["regression", "improvement", "environment", "drift"]
    """regression where anything became worse."""
    state: State
    cause: Cause
    good: int
    bad: int
    """The commit is in good+1..bad: what all ranges of its changes have in common."""
    suspects: tuple[int, ...]
    """Positions of these commits, those first that touch what was changed, and then the oldest first."""
    likely: int
    """How many of the suspects, from the first, touch it; all where nobody can tell."""
    changes: tuple[Stated, ...]
    """Worst first."""

    @property
    def accused(self) -> int | None:
        """The position of the only likely commit; None where there are more."""
        return self.suspects[0] if self.likely == 1 else None

    @property
    def worst(self) -> Stated:
        return self.changes[0]

    @property
    def is_open(self) -> bool:
        return any(each.is_open for each in self.changes)

    @property
    def cards(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.change.card for each in self.changes))

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.change.case for each in self.changes))


Culprits = Callable[[Sequence[Stated], range], tuple[Cause, tuple[int, ...], int]]
"""For changes and the commits that may have done them: the cause, the suspects in their order, and how many of
them are likely."""


def nobody_knows(changes: Sequence[Stated], commits: range) -> tuple[Cause, tuple[int, ...], int]:
    """Where there are no sources to look at."""
    by_code = any(each.change.attribution == "code" for each in changes)
    return "code" if by_code else "unknown", tuple(commits), len(commits)


def events_of(
    changes: Iterable[Stated], commits: Commits, culprits: Culprits = nobody_knows
) -> tuple[Event, ...]:
    """All changes of a history's cards as events: open ones first, then unjudged ones, then the newest."""
    apart: dict[tuple[str, ...], list[Stated]] = defaultdict(list)
    for each in changes:
        apart[_apart(each.change)].append(each)
    found = [
        _event(key, group, commits, culprits) for key, every in apart.items() for group in _groups(key, every)
    ]
    return tuple(sorted(found, key=_order))


def _apart(change: Change) -> tuple[str, ...]:
    """What changes must have in common to be of one event, besides a commit."""
    if change.kind == "environment":
        return ("environment", change.card)
    return ("drift", change.case) if change.kind == "drift" else _CODE


def _order(event: Event) -> tuple[bool, int, int, float]:
    return (
        not event.is_open,
        _STATES.index(event.state),
        -event.bad,
        -abs(math.log1p(event.worst.change.effect)),
    )


def _groups(key: tuple[str, ...], changes: Sequence[Stated]) -> Iterator[list[Stated]]:
    """The fewest groups of changes whose ranges have a commit in common."""
    if key[0] == "drift":
        yield list(changes)
        return
    places = _places([each.change for each in changes])
    groups: dict[int, list[Stated]] = defaultdict(list)
    for each in changes:
        groups[_nearest(each.change, places)].append(each)
    by_end: dict[int, list[Stated]] = defaultdict(list)
    for group in groups.values():
        by_end[min(each.change.bad for each in group)] += group
    yield from by_end.values()


def _places(changes: Sequence[Change]) -> dict[int, Counter[tuple[str, bool]]]:
    """Positions of commits that explain all changes, few of them, and what each explains."""
    found: list[int] = []
    left = list(changes)
    while left:
        # Ranges have something in common right at the end of one of them, if anywhere. Of those that explain
        # as much the one that has the narrowest ranges explains it best.
        ends = {change.bad for change in left}
        best = max(ends, key=lambda at: _explained(at, left))
        found.append(best)
        left = [change for change in left if not change.good < best <= change.bad]
    return {at: Counter(_what(each) for each in changes if each.good < at <= each.bad) for at in found}


def _explained(at: int, changes: Iterable[Change]) -> tuple[int, float, int]:
    widths = [change.commits for change in changes if change.good < at <= change.bad]
    return len(widths), sum(1 / width for width in widths), at


def _what(change: Change) -> tuple[str, bool]:
    return change.case, change.effect < 0


def _nearest(change: Change, places: Mapping[int, Counter[tuple[str, bool]]]) -> int:
    """Of the places in a change's range that where the same case moved the same way, else where most did."""
    within = [at for at in places if change.good < at <= change.bad]
    return max(within, key=lambda at: (places[at][_what(change)] > 1, places[at].total(), at))


def settled(
    events: Iterable[Event], decisions: Sequence[Decision], commits: Commits, today: dt.date
) -> tuple[Event, ...]:
    """With what was decided about events as a whole: by their id, or by a commit and no case."""
    found = [_settled(event, decisions, commits, today) for event in events]
    return tuple(sorted(found, key=_order))


def _settled(event: Event, decisions: Sequence[Decision], commits: Commits, today: dt.date) -> Event:
    hashes = [commits[at].hash for at in event.suspects]
    concerning = [
        each
        for each in decisions
        if each.id == event.id
        or (each.case is None and any(name.startswith(each.commit.lower()) for name in hashes))
    ]
    if not concerning:
        return event
    changes = [
        decided(each.change, own, today)
        if each.is_open and (own := [one for one in concerning if one.card in (None, each.change.card)])
        else each
        for each in event.changes
    ]
    return replace(event, changes=tuple(sorted(changes, key=_badness)), state=_state(changes))


def _state(changes: Iterable[Stated]) -> State:
    states = [each.state for each in changes]
    return next(state for state in _STATES if state in states)


def _event(key: tuple[str, ...], changes: Sequence[Stated], commits: Commits, culprits: Culprits) -> Event:
    good, bad = max(each.change.good for each in changes), min(each.change.bad for each in changes)
    if key[0] == "drift":
        good, bad = min(each.change.good for each in changes), max(each.change.bad for each in changes)
    in_order = sorted(changes, key=_badness)
    cause, suspects, likely = culprits(in_order, range(good + 1, bad + 1))
    if key[0] == "environment":
        cause = "card"
    kinds = [each.change.kind for each in in_order]
    last = commits[bad].hash[:_DIGITS]
    return Event(
        id=last if key == _CODE else hashlib.sha256(repr((*key, last)).encode()).hexdigest()[:_DIGITS],
        kind=next((kind for kind in (*WORSE, *kinds) if kind in kinds), "environment"),
        state=_state(changes),
        cause=cause,
        good=good,
        bad=bad,
        suspects=suspects,
        likely=likely,
        changes=tuple(in_order),
    )


def _badness(each: Stated) -> tuple[bool, int, float]:
    """Open regressions first, then what else is worse; the largest of each."""
    change = each.change
    return change.kind not in WORSE, _STATES.index(each.state), -abs(math.log1p(change.effect))
