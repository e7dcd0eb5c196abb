"""Makes events of changes: one commit that changed fifty cases on four cards is one thing that happened.

Every change tells a range of commits, after `good` and up to `bad`, one of which did it. Ranges that can have
the same commit in common, or miss it by little, are taken to have it: the fewest commits are looked for that
explain what is open, and then the fewest more for the rest. What the card did by itself happens on that card
alone, and a drift is no commit's.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from harness.history.changes import BUILT, Change, Kind
from harness.history.figures import METRICS, SeriesCase
from harness.history.sources.cards import machine_of
from harness.history.sources.our_records import Commits
from harness.history.triage import WORSE, Decision, State, Stated, decided
from harness.records.imports.imported import FORMATS

Cause = Literal["code", "dependency", "measurement", "card", "unknown"]
"""What an event goes back to: kernels or what they are built of; what the project depends on; what says how
it is measured; the card by itself; nobody knows."""

_STATES: tuple[State, ...] = ("new", "expired", "unjudged", "acknowledged", "stale", "fixed", "")
"""The state of an event is the first of these that one of its changes has."""
_KINDS: tuple[Kind, ...] = ("drift", "regression", "improvement", "change", "environment")
"""The kind of an event is the first of these that one of its changes has."""
_CODE = ("code",)
_DIGITS = 10
_MARGIN = 0.25
"""Share of a range, on either side of it, in which the commit may lie all the same: one in twenty misses
its own, and of a history with hundreds each that does would make an event of its own.
"""
_SEVERAL = 5
"""Cases that have to move on one card alone to be that card's doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Changes that one commit explains, or one card by itself; of any cases, cards and directions."""

    id: str
    """Ten hexadecimal digits: those that the hash of `bad` begins with, of what a commit did."""
    kind: Kind
    """regression where anything became worse."""
    state: State
    cause: Cause
    good: int
    bad: int
    """The commit is in good+1..bad: what the ranges of its changes have in common."""
    suspects: tuple[int, ...]
    """Positions of these commits, those first that touch what was changed, and then the oldest first."""
    likely: int
    """Number of suspects, from the first, that touch it; all of them where nothing tells."""
    changes: tuple[Stated, ...]
    """Worst first."""

    @property
    def accused(self) -> int | None:
        """The position of the only likely commit; None where there are more."""
        return self.suspects[0] if self.likely == 1 else None

    @property
    def is_told(self) -> bool:
        """True if the changes themselves tell the cause, whatever the commits touch."""
        return self.cause not in ("code", "unknown")

    @property
    def by_commit(self) -> bool:
        """Whether it is what a commit did: neither what the card did by itself nor a drift."""
        return self.kind not in ("environment", "drift")

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


def events_of(changes: Iterable[Stated], commits: Commits) -> tuple[Event, ...]:
    """All changes of a history's cards as events: open ones first, then unjudged ones, then the newest."""
    apart: dict[tuple[str, ...], list[Stated]] = defaultdict(list)
    for each in changes:
        apart[_apart(each.change)].append(each)
    found = [_event(key, group, commits) for key, every in apart.items() for group in _groups(key, every)]
    return tuple(sorted(found, key=_order))


def _apart(change: Change) -> tuple[str, ...]:
    """Return the properties that all changes of one event share, besides a commit."""
    if change.kind == "environment":
        return ("environment", change.card)
    return ("drift", change.case) if change.kind == "drift" else _CODE


def _order(event: Event) -> tuple[bool, int, int, float]:
    return not event.is_open, _STATES.index(event.state), -event.bad, -event.worst.change.size


def _groups(key: tuple[str, ...], changes: Sequence[Stated]) -> Iterator[list[Stated]]:
    """Groups of changes whose ranges have a commit in common: the fewest of what is open, as that is what
    somebody has to look at, and the fewest more for the rest.
    """
    if key[0] == "drift":
        yield list(changes)
        return
    opened = _places([each.change for each in changes if each.is_open])
    left = [each.change for each in changes if not any(_reaches(each.change, at) for at in opened)]
    counts = {at: sum(_holds(each.change, at) for each in changes) for at in (*opened, *_places(left))}
    alike: dict[tuple[str, bool], list[Change]] = defaultdict(list)
    for each in changes:
        alike[_what(each.change)].append(each.change)
    groups: dict[int, list[Stated]] = defaultdict(list)
    for each in changes:
        places = {at: counts[at] for at in opened} if each.is_open else counts
        groups[_nearest(each.change, places, alike[_what(each.change)])].append(each)
    by_end: dict[int, list[Stated]] = defaultdict(list)
    for group in groups.values():
        by_end[_common([each.change for each in group])[1]] += group
    yield from by_end.values()


def _places(changes: Sequence[Change]) -> list[int]:
    """The fewest positions of commits that explain all changes."""
    good, bad = (np.array([getattr(each, name) for each in changes]) for name in ("good", "bad"))
    low, high = np.array([_reach(each) for each in changes]).reshape(-1, 2).T
    left, found = np.ones(len(changes), np.bool_), list[int]()
    while left.any():
        # What explains the range that ends first lies in it, and at its end explains most of the others. Of
        # places that explain as many, that with the narrowest ranges explains them best, and else the newest.
        first = int(np.where(left, high, high.max() + 1).argmin())
        ends = np.unique([*bad[(low[first] < bad) & (bad <= high[first])], high[first]])
        reached = (low[:, None] < ends) & (ends <= high[:, None])
        holds = (good[:, None] < ends) & (ends <= bad[:, None])
        narrow = (holds / (bad - good)[:, None]).sum(axis=0)
        best = int(np.lexsort((narrow, reached[left].sum(axis=0)))[-1])
        found.append(int(ends[best]))
        left &= ~reached[:, best]
    return found


def _reach(change: Change) -> tuple[int, int]:
    """Its range with the margins; what was compared has none."""
    margin = 0 if change.compared else int((change.bad - change.good) * _MARGIN)
    return change.good - margin, change.bad + margin


def _reaches(change: Change, at: int) -> bool:
    low, high = _reach(change)
    return low < at <= high


def _holds(change: Change, at: int) -> bool:
    return change.good < at <= change.bad


def _common(changes: Sequence[Change]) -> tuple[int, int]:
    """The range that changes have in common: that of most of them, by the narrowest, where some miss it."""

    def held(at: int) -> list[Change]:
        return [each for each in changes if _holds(each, at)]

    best = max(
        {each.bad for each in changes}, key=lambda at: (sum(1 / each.commits for each in held(at)), at)
    )
    return max(each.good for each in held(best)), min(each.bad for each in held(best))


def _what(change: Change) -> tuple[str, bool]:
    return change.case, change.effect < 0


def _nearest(change: Change, places: Mapping[int, int], alike: Sequence[Change]) -> int:
    """The place in a change's range where the same case moved the same way elsewhere, by the narrowest
    ranges; else the one that explains most.
    """

    def fit(at: int) -> tuple[float, int, int]:
        others = [each for each in alike if each is not change and _holds(each, at)]
        return sum(1 / each.commits for each in others), places[at], at

    held = [at for at in places if _holds(change, at)]
    return max(held or [at for at in places if _reaches(change, at)], key=fit)


def settled(
    events: Sequence[Event], decisions: Iterable[Decision], commits: Commits, today: dt.date
) -> tuple[Event, ...]:
    """Events with what was decided about them as a whole: by id; or by the commit, where more data have moved
    the last one that it may be.
    """
    of: dict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        if any(event.id == decision.id for event in events):
            of[decision.id].append(decision)
        elif decision.case is None and (event := _of_commit(decision.commit, events, commits)):
            of[event.id].append(decision)
    return tuple(sorted((_settled(event, of[event.id], today) for event in events), key=_order))


def _of_commit(commit: str, events: Iterable[Event], commits: Commits) -> Event | None:
    """What a commit did; of several events that it may have done the one of the fewest commits."""
    found = [
        event
        for event in events
        if event.by_commit and any(commits[at].hash.startswith(commit.lower()) for at in event.suspects)
    ]
    return min(found, key=lambda event: event.bad - event.good, default=None)


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
    good, bad = _common([each.change for each in changes])
    if key[0] == "drift":
        good, bad = min(each.change.good for each in changes), max(each.change.bad for each in changes)
    in_order = sorted(changes, key=_badness)
    kinds = [each.change.kind for each in in_order]
    last = commits[bad].hash[:_DIGITS]
    return Event(
        id=last if key == _CODE else hashlib.sha256(repr((*key, last)).encode()).hexdigest()[:_DIGITS],
        kind=next(kind for kind in _KINDS if kind in kinds),
        state=_state(changes),
        cause=_cause(key, changes),
        good=good,
        bad=bad,
        suspects=tuple(range(good + 1, bad + 1)),
        likely=bad - good,
        changes=tuple(in_order),
    )


def _cause(key: tuple[str, ...], changes: Sequence[Stated]) -> Cause:
    """The cause as far as the changes tell themselves."""
    if key[0] == "environment":
        return "card"
    shifted = Counter(kind for each in changes for kind in {shift.kind for shift in each.change.shifts})
    for kind, count in shifted.most_common(1):
        if 2 * count >= len(changes):
            return "card" if kind == "machine" else kind
    return "code" if any(each.change.attribution == "code" for each in changes) else "unknown"


def _badness(each: Stated) -> tuple[bool, int, float]:
    """Open regressions first, then what else is worse; the largest of each."""
    change = each.change
    return change.kind not in WORSE, _STATES.index(each.state), -change.size


Spans: TypeAlias = Mapping[str, Mapping[str, tuple[int, int]]]
"""The positions of the first and the last commit at which a card measured a case, by card and case."""


def by_cards_alone(events: Iterable[Event], spans: Spans) -> tuple[Event, ...]:
    """Events, with the card as the cause where so much moved on one alone that it is no commit's."""
    return tuple(
        replace(event, cause="card") if not event.is_told and on_one_card_alone(event, spans) else event
        for event in events
    )


def on_one_card_alone(event: Event, spans: Spans) -> bool:
    """Whether so much moved on one machine, and on no other that measured the same before and after, that it
    is the machine's rather than a commit's.
    """
    machines = {machine_of(card) for card in event.cards}
    moved = set(event.cases)
    by_code = any(each.change.attribution == "code" for each in event.changes)
    if len(machines) > 1 or len(moved) < _SEVERAL or by_code:
        return False
    around = {
        card: {case for case, (first, last) in cases.items() if first <= event.good and event.bad <= last}
        for card, cases in spans.items()
    }
    own = set[str]().union(*(around[card] for card in event.cards))
    elsewhere = set[str]().union(*(around[card] for card in around if machine_of(card) not in machines))
    return 2 * len(moved) >= len(own) and 2 * len(moved & elsewhere) >= len(moved)


def settling(event: Event, case: SeriesCase, commits: Commits) -> str:
    """The command that tells more of an event's worst change: where it is too early to judge, where no commit
    did it by itself, and where several may have. Empty where there is nothing to tell. A change that misses
    its event's commits by little is compared over both.
    """
    change = event.worst.change
    asked = event.state == "unjudged" or (event.is_open and event.accused is None)
    # Of what is built alone no time tells, and what another harness measured needs its own command.
    if not asked or event.kind == "environment" or case.metric in BUILT or change.card.startswith(FORMATS):
        return ""
    ends = min(change.good, event.good), max(change.bad, event.bad)
    good, bad = (commits[at].hash[:_DIGITS] for at in ends)
    if case.metric not in METRICS:  # asv's own
        name = re.escape(case.name.partition("(")[0])
        return f"asv continuous --bench {shlex.quote(f'^{name}')} {good} {bad}"
    backend = next((each for each in _BACKENDS if change.card.startswith(each)), "")
    device = f" --device {backend}" if backend else ""
    if event.kind == "drift" or event.state == "unjudged":
        return f"harness compare {good}..{bad} {shlex.quote(case.name)}{device}"
    good, bad = commits[event.good].hash[:_DIGITS], commits[event.bad].hash[:_DIGITS]
    return f"harness bisect {shlex.quote(case.name)} {good} {bad}{device}"


_BACKENDS = ("opencl", "opengl", "cpu", "null")
"""What the name of a machine begins with unless it is CUDA's, which is the default where there is a card."""
