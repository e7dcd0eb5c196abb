"""The conclusion from several cards: which changes are stale, and the events that the others belong to.

The terminal, the pages, badges, the feed and the exit status all say what is concluded here.
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
    """The findings of one card that a conclusion needs."""

    name: str
    """As in Change.card."""
    changes: Sequence[Stated]
    """The changes of its series, before any decision about an event."""
    spans: Mapping[str, tuple[int, int]]
    """Positions of the first and the last commit that each case was measured at."""
    ended: Collection[str]
    """Cases that it measures no more."""
    measured: Collection[int]
    """Positions of the newest commits that it has measured: STALE_COMMITS + 1, or all if there are fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The events of all cards, open ones first, and what is stale."""

    events: tuple[Event, ...]
    is_stale: Callable[[int], bool]
    """Return True if a case last measured at this position is stale."""

    @property
    def changes(self) -> Iterator[Stated]:
        """Yield the changes of all events, as their events leave them."""
        return (each for event in self.events for each in event.changes)

    @property
    def open(self) -> Iterator[Stated]:
        """Yield the regressions that nobody has accepted and nothing has taken back."""
        return (each for each in self.changes if each.is_open)

    @property
    def unjudged(self) -> Iterator[Stated]:
        """Yield what became worse so lately that nobody can tell yet."""
        early = (each for each in self.changes if each.state == "unjudged")
        return (each for each in early if each.change.kind in WORSE)


def conclude(
    cards: Sequence[CardFindings], decisions: Sequence[Decision], commits: Commits, today: dt.date
) -> Conclusion:
    """Join the changes of cards to events, apply what was decided about these, and set stale ones apart.

    Which candidates count because of other cards is settled before, as it changes what each card has found.
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
    """Return a card's changes, open and unjudged ones as stale where the case or the card is measured no
    more. Nobody knows whether such a regression is still there.
    """
    stale = {case for case, (_, last) in spans.items() if case in ended or is_stale(last)}
    return [each.as_stale if each.change.case in stale else each for each in changes]


STALE_COMMITS = 30
_STALE_S = 90 * 86400
"""Before the newest commit that any card has measured, and how many of these since: longer ago is stale."""


def _staleness(measured: Iterable[int], commits: Commits) -> Callable[[int], bool]:
    """Return a function that tells of a position whether a last measurement there is stale.

    It is stale where it lies long before the newest commit that any card has measured, both by time and by
    the number of commits measured since: the clock of one commit may be wrong.
    """
    newest = sorted(set(measured))[-STALE_COMMITS - 1 :]
    if len(newest) <= STALE_COMMITS:
        return lambda _: False
    before_s = commits[newest[-1]].time_s - _STALE_S
    return lambda at: at <= newest[0] and commits[at].time_s < before_s
