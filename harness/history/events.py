"""Groups changes into events: one commit that changed fifty cases on four cards is one event.

Every change has a range of commits, after `good` and up to `bad`. One of them made it. An event joins changes
whose ranges share a commit. The algorithm finds the fewest commits that explain the open changes, then the
fewest more that explain the rest. A change of the same case on another card, or of another case of the same
source, narrows the range if its size is similar. A case of another source does not, since another commit may
have changed it. Changes that a card caused by itself are limited to that card, and a drift has no commit.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import math
import re
import shlex
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, TypeAlias

from harness.history.changes import BUILT, Change, Kind
from harness.history.figures import METRICS, SeriesCase
from harness.history.sources.cards import machine_of
from harness.history.sources.our_records import Commits
from harness.history.triage import WORSE, Decision, State, Stated, decided
from harness.records.imports.imported import FORMATS

Cause = Literal["code", "dependency", "measurement", "card", "not the code", "unknown"]
"""Cause of an event.

- `code`: a kernel, or a file that it is built from.
- `dependency`: a file that the project depends on.
- `measurement`: a file that defines how it is measured.
- `card`: the card by itself.
- `not the code`: anything else, such as a host, a driver or an installed dependency.
"""

_STATES: tuple[State, ...] = ("new", "expired", "unjudged", "acknowledged", "stale", "fixed", "")
"""The state of an event is the first of these states that one of its changes has."""
_KINDS: tuple[Kind, ...] = ("drift", "regression", "improvement", "change", "environment")
"""The kind of an event is the first of these kinds that one of its changes has."""
_CODE = ("code",)
_DIGITS = 10
_Relation: TypeAlias = tuple[str, bool]
"""Part of the names of cases, and True if their values fell."""
_SOURCE = re.compile("[@(]")
"""Characters that end the part of a case's name that all of its sizes or parameters share."""
_ALIKE = 2.0
"""Largest ratio of the sizes of two changes, as logarithms, for one to narrow the range of the other."""
_SEVERAL = 5
"""Fewest cases that must change on one card alone to be attributed to that card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Changes that one commit, or one card by itself, explains; of any cases, cards and directions."""

    id: str
    """Ten hexadecimal digits.

    For a commit's event, the first digits of the last commit in `common`; for drifts, the id of the largest.
    """
    kind: Kind
    """Kind; regression if any change is for the worse."""
    state: State
    cause: Cause
    good: int
    bad: int
    """Any commit of good+1..bad may have made any of its changes."""
    narrowest: range
    """Positions of the commits to examine first, by the sources with the largest changes; else
    good+1..bad."""
    loose: int
    """Number of cases that a commit outside of the narrowest range may have changed."""
    suspects: tuple[int, ...]
    """Positions in good+1..bad: first commits that touch the changed code, then the rest of the narrowest
    range."""
    likely: int
    """Number of leading suspects that touch the changed code; if unknown, the size of the narrowest range."""
    changes: tuple[Stated, ...]
    """Changes, the worst first."""

    @property
    def accused(self) -> int | None:
        """Return the position of the only likely commit, or None.

        It is None if several are likely, if the commit does not explain all changes, or if most cases were
        also measured in another way from there on.
        """
        shifted = sum(bool(each.change.shifts) for each in self.changes)
        if self.likely != 1 or self.cause == "card" or self.moved_twice or 2 * shifted >= len(self.changes):
            return None
        return self.suspects[0] if self.suspects[0] in self.common else None

    @property
    def common(self) -> range:
        """Return the positions of commits that each explain all changes."""
        return _common(each.change for each in self.changes)

    @property
    def may_be_several(self) -> bool:
        """Return True if several commits explain the changes as well as one."""
        return self.by_commit and (bool(self.loose) or len(self.common) < len(self.narrowest))

    @property
    def moved_twice(self) -> str:
        """Return the case that changed twice on one card, which one commit cannot do; "" if there is none."""
        series = Counter(_series(each.change) for each in self.changes)
        return next((case for (_, case), count in series.items() if count > 1 and self.by_commit), "")

    @property
    def cause_in_words(self) -> str:
        """Return the cause in words. They say so if only the touched files suggest the code."""
        measured = any(each.change.attribution == "code" for each in self.changes)
        return "code, by the files it touches" if self.cause == "code" and not measured else self.cause

    @property
    def is_told(self) -> bool:
        """Return True if the changes themselves show the cause, regardless of the files that
        commits touch.
        """
        return self.cause not in ("code", "unknown")

    @property
    def by_commit(self) -> bool:
        """Return True if a commit made it: neither a card by itself nor a drift."""
        return self.kind not in ("environment", "drift")

    @property
    def surroundings(self) -> tuple[str, ...]:
        """Return other differences in how the cases were measured there, the most frequent first."""
        found = Counter(str(shift) for each in self.changes for shift in each.change.shifts)
        return tuple(what for what, _ in found.most_common())

    @property
    def worst(self) -> Stated:
        return self.changes[0]

    @property
    def is_open(self) -> bool:
        return any(each.is_open for each in self.changes)

    @property
    def gravity(self) -> float:
        """Return the size of its open changes over cases and cards: the root of the sum of squares of their
        sure sizes.
        """
        return math.hypot(*(each.change.sure_size for each in self.changes if each.is_open))

    @property
    def cards(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.change.card for each in self.changes))

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.change.case for each in self.changes))


def events_of(changes: Iterable[Stated], commits: Commits) -> tuple[Event, ...]:
    """Return all changes of a history's cards as events: open events first, the largest of them first."""
    apart: dict[tuple[str, ...], list[Stated]] = defaultdict(list)
    for each in changes:
        apart[_apart(each.change)].append(each)
    found = [_event(key, group, commits) for key, every in apart.items() for group in _groups(key, every)]
    return tuple(sorted(found, key=_order))


def _apart(change: Change) -> tuple[str, ...]:
    """Return the properties that all changes of one event share, apart from a commit."""
    if change.kind == "environment":
        return ("environment", change.card)
    return ("drift",) if change.kind == "drift" else _CODE


def _order(event: Event) -> tuple[bool, int, float, int]:
    """Return the sort key: open events by size, then others by state and age."""
    if event.is_open:
        return False, 0, -event.gravity, -event.common[-1]
    return True, _STATES.index(event.state), 0.0, -event.common[-1]


def _groups(key: tuple[str, ...], changes: Sequence[Stated]) -> Iterator[list[Stated]]:
    """Yield groups of changes whose ranges share a commit, and of drifts that end at the same commit.

    Two changes of one series come from two commits. They stay in one group only if their ranges end at the
    same commit.
    """
    by_end: dict[int, list[Stated]] = defaultdict(list)
    if key[0] == "drift":
        for each in changes:
            by_end[each.change.bad].append(each)
    left = [] if by_end else list(changes)
    while left:
        groups, left = _fewest_groups(left), []
        for group in groups:
            group.sort(key=lambda each: -each.change.commits)
            narrowest = {_series(each.change): each for each in group}
            by_end[_common(each.change for each in narrowest.values())[-1]] += narrowest.values()
            left += [each for each in group if narrowest[_series(each.change)] is not each]
    yield from by_end.values()


def _fewest_groups(changes: Sequence[Stated]) -> Iterable[list[Stated]]:
    """Return the fewest groups that explain the open changes, and the fewest more that explain the rest.

    Somebody has to examine each group. If several groups fit, a change joins the group of its closest
    relations.
    """
    opened = _places(each.change for each in changes if each.is_open)
    unexplained = (each.change for each in changes if not _within(each.change, opened))
    places = sorted([*opened, *_places(unexplained)])
    counts: Counter[int] = Counter()
    weights: dict[tuple[_Relation, int], float] = defaultdict(float)
    for change in (each.change for each in changes):
        for at in _within(change, places):
            counts[at] += 1
            for relation in set(_relations(change)):
                weights[relation, at] += 1 / change.commits

    def fit(change: Change, at: int) -> tuple[float, ...]:
        return *(weights[relation, at] for relation in _relations(change)), counts[at], at

    groups: dict[int, list[Stated]] = defaultdict(list)
    for each in changes:
        held = _within(each.change, opened if each.is_open else places)
        groups[max(held, key=functools.partial(fit, each.change))].append(each)
    return groups.values()


def _relations(change: Change) -> tuple[_Relation, ...]:
    """Return the names that a change may share with others, the closest first: case, source,
    suite or module.
    """
    source, worse = _source(change), change.effect < 0
    return (change.case, worse), source, (source[0].rpartition(".")[0], worse)


def _places(changes: Iterable[Change]) -> list[int]:
    """Return the fewest positions of commits that explain all changes. Each is the end of a range."""
    found = list[int]()
    for each in sorted(changes, key=lambda change: change.bad):
        if not found or not _holds(each, found[-1]):
            found.append(each.bad)
    return found


def _holds(change: Change, at: int) -> bool:
    return change.good < at <= change.bad


def _common(changes: Iterable[Change]) -> range:
    """Return the positions in the ranges of all changes."""
    ranges = [(each.good, each.bad) for each in changes]
    return range(max(good for good, _ in ranges) + 1, min(bad for _, bad in ranges) + 1)


def _within(change: Change, places: Sequence[int]) -> Sequence[int]:
    """Return those of the ordered positions that are in the range of a change."""
    return places[bisect_right(places, change.good) : bisect_right(places, change.bad)]


def _series(change: Change) -> tuple[str, str]:
    return change.card, change.case


def _source(change: Change) -> _Relation:
    """Return the key of changes that may narrow each other's ranges: source and direction."""
    return _SOURCE.split(change.case, maxsplit=1)[0], change.effect < 0


def _by_source(changes: Sequence[Change]) -> list[list[Change]]:
    """Return groups of changes that narrow each other's ranges, those with the narrowest common range first.

    They have the same source and a similar size: a small change does not show which commit made a large one.
    Two changes of one series come from two commits, so neither narrows the other.
    """
    apart: dict[tuple[_Relation, int], list[Change]] = defaultdict(list)
    seen = Counter[tuple[str, str]]()
    for each in changes:
        apart[_source(each), seen[_series(each)]].append(each)
        seen[_series(each)] += 1
    alike = (every for source in apart.values() for every in _by_size(source))
    return sorted(alike, key=lambda every: len(_common(every)))


def _by_size(changes: Iterable[Change]) -> list[list[Change]]:
    """Return groups of changes in which the largest is at most _ALIKE times the smallest."""
    groups = list[list[Change]]()
    for each in sorted(changes, key=lambda change: -change.size):
        if groups and groups[-1][0].size <= _ALIKE * each.size:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def settled(
    events: Sequence[Event], decisions: Iterable[Decision], commits: Commits, today: dt.date
) -> tuple[Event, ...]:
    """Return events with the decisions about whole events applied.

    A decision matches by id, or by commit if more data have moved the event's last possible commit.
    """
    of: dict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        if any(event.id == decision.id for event in events):
            of[decision.id].append(decision)
        elif decision.case is None and (event := _of_commit(decision.commit, events, commits)):
            of[event.id].append(decision)
    return tuple(sorted((_settled(event, of[event.id], today) for event in events), key=_order))


def _of_commit(commit: str, events: Iterable[Event], commits: Commits) -> Event | None:
    """Return the event that a commit explains; of several, the event with the fewest possible commits."""
    found = [
        event
        for event in events
        if event.by_commit and any(commits[at].hash.startswith(commit.lower()) for at in event.common)
    ]
    return min(found, key=lambda event: len(event.common), default=None)


def _settled(event: Event, decisions: Sequence[Decision], today: dt.date) -> Event:
    if not decisions:
        return event
    changes = [
        decided(each.change, own, today)
        if each.is_open and (own := [one for one in decisions if one.is_of(each.change.card)])
        else each
        for each in event.changes
    ]
    return replace(event, changes=tuple(sorted(changes, key=_badness)), state=_state(changes))


def _state(changes: Sequence[Stated]) -> State:
    states = [each.state for each in changes if each.change.kind in WORSE] or [each.state for each in changes]
    return next(state for state in _STATES if state in states)


def _event(key: tuple[str, ...], changes: Sequence[Stated], commits: Commits) -> Event:
    every = [each.change for each in changes]
    sources = [every] if key[0] == "drift" else _by_source(every)
    common, ranges = _common(every), list(map(_common, sources))
    if key[0] == "drift":
        ranges = [range(min(each.good for each in every) + 1, common.stop)]
    whole = range(min(each.start for each in ranges), max(each.stop for each in ranges))
    narrowest = whole if key[0] == "drift" else _narrowest(sources, whole)
    wider = zip(sources, ranges, strict=True)
    loose = {change.case for source, left in wider if len(left) > len(narrowest) for change in source}
    in_order = sorted(changes, key=_badness)
    kinds = [each.change.kind for each in in_order]
    return Event(
        id=_id(key, changes, commits[common[-1]].hash[:_DIGITS]),
        kind=next(kind for kind in _KINDS if kind in kinds),
        state=_state(changes),
        cause=_cause(key, changes),
        good=whole.start - 1,
        bad=whole.stop - 1,
        narrowest=narrowest,
        loose=len(loose),
        suspects=(*narrowest, *(at for at in whole if at not in narrowest)),
        likely=len(narrowest),
        changes=tuple(in_order),
    )


def _narrowest(sources: Sequence[Sequence[Change]], whole: range) -> range:
    """Return the commits to examine first: the range of the largest changes, with more than half of the
    weight.

    A source of small changes does not narrow the range of large ones, since another commit may have changed
    it.
    """
    weights = [math.fsum(each.sure_size**2 for each in every) for every in sources]
    in_order = sorted(range(len(sources)), key=lambda at: -weights[at])
    parts = list(accumulate(weights[at] for at in in_order))
    count = next((at for at, part in enumerate(parts, 1) if 2 * part > parts[-1]), len(parts))
    grave = [sources[at] for at in in_order[:count]]
    common = _common(each for every in grave for each in every)
    return common if any(_common(every) == common for every in grave) else whole


def _id(key: tuple[str, ...], changes: Iterable[Stated], end: str) -> str:
    if key == _CODE:
        return end
    if key[0] == "drift":  # the end moves with every point
        return max((each.change for each in changes), key=lambda change: (change.size, change.id)).id
    return hashlib.sha256(repr((*key, end)).encode()).hexdigest()[:_DIGITS]


def _cause(key: tuple[str, ...], changes: Sequence[Stated]) -> Cause:
    """Return the cause as far as the changes themselves show it."""
    if key[0] == "environment":
        return "card"
    shifted = Counter(kind for each in changes for kind in {shift.kind for shift in each.change.shifts})
    for kind, count in shifted.most_common(1):
        if 2 * count >= len(changes):
            return "card" if kind == "machine" else kind
    return "code" if any(each.change.attribution == "code" for each in changes) else "unknown"


def _badness(each: Stated) -> tuple[bool, int, float]:
    """Return the sort key: open regressions first, then other changes for the worse; larger ones first."""
    change = each.change
    return change.kind not in WORSE, _STATES.index(each.state), -change.size


Spans: TypeAlias = Mapping[str, Mapping[str, tuple[int, int]]]
"""Positions of the first and the last commit with a result of a case, by card and case."""


def by_cards_alone(events: Iterable[Event], spans: Spans) -> tuple[Event, ...]:
    """Return the events, with the card as the cause if too much changed on one card alone for a commit."""
    return tuple(
        replace(event, cause="card") if not event.is_told and on_one_card_alone(event, spans) else event
        for event in events
    )


def on_one_card_alone(event: Event, spans: Spans) -> bool:
    """Return whether the machine caused the event instead of a commit.

    It did if many cases changed on it, and no other machine that measured the same commits saw that.
    """
    machines, common = {machine_of(card) for card in event.cards}, event.common
    moved = set(event.cases)
    by_code = any(each.change.attribution == "code" for each in event.changes)
    if len(machines) > 1 or len(moved) < _SEVERAL or by_code:
        return False
    around = {
        card: {case for case, (first, last) in cases.items() if first < common.start and common[-1] <= last}
        for card, cases in spans.items()
    }
    own = set[str]().union(*(around[card] for card in event.cards))
    elsewhere = set[str]().union(*(around[card] for card in around if machine_of(card) not in machines))
    return 2 * len(moved) >= len(own) and 2 * len(moved & elsewhere) >= len(moved)


def settling(event: Event, case: SeriesCase, commits: Commits) -> str:
    """Return a command that clarifies an event's largest change; "" if nothing is unclear.

    That is the case if it is too early to judge, if no commit explains it alone, and if several may.
    """
    change = event.worst.change
    asked = event.state == "unjudged" or (event.is_open and event.accused is None)
    # Times say nothing about built-only metrics, and another harness's measurements need their own command.
    if not asked or event.kind == "environment" or case.metric in BUILT or change.card.startswith(FORMATS):
        return ""
    good, bad = (commits[at].hash[:_DIGITS] for at in (change.good, change.bad))
    if case.metric not in METRICS:  # a benchmark of asv's
        name = re.escape(case.name.partition("(")[0])
        return f"asv continuous --bench {shlex.quote(f'^{name}')} {good} {bad}"
    backend = next((each for each in _BACKENDS if change.card.startswith(each)), "")
    device = f" --device {backend}" if backend else ""
    if event.kind == "drift" or event.state == "unjudged" or event.cause == "not the code":
        return f"harness compare {good}..{bad} {shlex.quote(case.name)}{device}"
    good, bad = (commits[at].hash[:_DIGITS] for at in _narrowed(change, event))
    return f"harness bisect {shlex.quote(case.name)} {good} {bad}{device}"


def _narrowed(change: Change, event: Event) -> tuple[int, int]:
    """Return the range after narrowing by changes of the same source."""
    left = _common(each.change for each in event.changes if _source(each.change) == _source(change))
    return left.start - 1, left[-1]


_BACKENDS = ("opencl", "opengl", "cpu", "null")
"""Prefixes of the names of machines of these backends. A machine without a prefix is a CUDA card, the
default device.
"""
