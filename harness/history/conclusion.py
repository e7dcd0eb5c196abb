"""Combines the findings of several cards: events of their changes, without stale ones.

The terminal, pages, badges, the feed and the exit status all use this conclusion.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.history.events import Event, by_cards_alone, events_of, settled
from harness.history.sources.our_records import Commits
from harness.history.triage import WORSE, Decision, Stated


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFindings:
    """The findings of one card for a conclusion."""

    name: str
    """Name of the card, as in Change.card."""
    changes: Sequence[Stated]
    """Changes of its series, before decisions about events."""
    spans: Mapping[str, tuple[int, int]]
    """Positions of the first and the last commit with a result of each case."""
    ended: Collection[str]
    """Cases that it no longer measures."""
    measured: Collection[int]
    """Positions of the newest measured commits: STALE_COMMITS + 1, or all if there are fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The events of all cards, open ones first, and the test for stale cases."""

    events: tuple[Event, ...]
    is_stale: Callable[[int], bool]
    """Return True if a case with its last result at this position is stale."""

    @property
    def changes(self) -> Iterator[Stated]:
        """Yield the changes of all events, with the decisions about the events applied."""
        return (each for event in self.events for each in event.changes)

    @property
    def open(self) -> Iterator[Stated]:
        """Yield the regressions that are neither accepted nor reverted."""
        return (each for each in self.changes if each.is_open)

    @property
    def unjudged(self) -> Iterator[Stated]:
        """Yield the newest slowdowns, which are too recent to be judged."""
        early = (each for each in self.changes if each.state == "unjudged")
        return (each for each in early if each.change.kind in WORSE)


def conclude(
    cards: Sequence[CardFindings], decisions: Sequence[Decision], commits: Commits, today: dt.date
) -> Conclusion:
    """Join the changes of cards into events, apply decisions to these, and mark stale changes.

    Candidates that other cards confirm have been added to the changes before.
    """
    is_stale = _staleness((at for card in cards for at in card.measured), commits)
    changes = (each for card in cards for each in _with_stale(card.changes, card.spans, card.ended, is_stale))
    events = settled(events_of(changes, commits), decisions, commits, today)
    spans = {card.name: card.spans for card in cards}
    return Conclusion(events=tuple(by_cards_alone(events, spans)), is_stale=is_stale)


def _with_stale(
    changes: Iterable[Stated],
    spans: Mapping[str, tuple[int, int]],
    ended: Collection[str],
    is_stale: Callable[[int], bool],
) -> list[Stated]:
    """Return a card's changes. Open and unjudged changes of cases that are no longer measured become stale.

    Nobody knows whether such a regression still exists.
    """
    stale = {case for case, (_, last) in spans.items() if case in ended or is_stale(last)}
    return [each.as_stale if each.change.case in stale else each for each in changes]


STALE_COMMITS = 30
_STALE_S = 90 * 86400
"""Age of a last measurement from which it is stale: in seconds, and in later measured commits of any card."""


def _staleness(measured: Iterable[int], commits: Commits) -> Callable[[int], bool]:
    """Return a function that tells whether a last measurement at a position is stale.

    It is stale if it is far behind the newest measured commit of any card, by time and by the number of
    commits measured since. Both must hold, because the clock of a single commit may be wrong.
    """
    newest = sorted(set(measured))[-STALE_COMMITS - 1 :]
    if len(newest) <= STALE_COMMITS:
        return lambda _: False
    before_s = commits[newest[-1]].time_s - _STALE_S
    return lambda at: at <= newest[0] and commits[at].time_s < before_s
