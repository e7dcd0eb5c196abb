"""Documents of all cards: the overview, events and changes, the feed and the badges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.history.changes import SMALLEST
from harness.history.conclusion import Conclusion
from harness.history.events import Event
from harness.history.figures import SeriesCase
from harness.history.sources.kept_tables import cache_file, read_cached, write_cached
from harness.history.sources.our_records import Commits
from harness.history.triage import Stated
from harness.records.types import fields_of
from harness.report.site.card_documents import CardSummary
from harness.report.site.documents import (
    COMMITS_A_FILE,
    EVERY,
    SCHEMA_VERSION,
    SERIES_A_FILE,
    CardStatus,
    Numbers,
    Rows,
    Site,
    atom,
    badge,
    badge_svg,
    change_document,
    placed_change,
    rough,
    series_document,
    series_file,
)

_CHANGES = 120
"""Most changes in the document for programs, open ones first. Every series has all of its own."""
_EVENTS = 60
"""Most events of the overview, open ones first. The page of a commit has all of its own."""
_CHANGES_OF_EVENT, _SUSPECTS = 12, 3
PAIR = {"errors": 3.29, "level": 0.999, "floor": SMALLEST}
"""For two values that a reader selects.

`errors`: standard errors on each side of the interval of their difference. `level`: the share of differences
of unchanged code inside it. `floor`: the smallest difference that counts.
"""
_KINDS = (
    *("new", "acknowledged", "expired", "fixed", "unjudged", "stale"),
    *("improvement", "environment", "change"),
)
_OF_CARD = ("file", "name", "gpu", "host", "driver", "kind", "newest", "points", "calibration")
_OF_CASE = frozenset(("sentence", "series", "fixed_by"))
"""Keys of a change that only the page of its case shows."""
_OF_BRIEF = ("id", "kind", "effect", "low", "high")


@dataclass(frozen=True)
class Overview:
    site: Site
    cards: Sequence[CardSummary]
    names: Sequence[str]
    """Card names as in Change.card, in the order of `cards`."""
    cases: Sequence[SeriesCase]
    commits: Commits
    conclusion: Conclusion

    def write(self, about: Mapping[str, Any]) -> None:
        """Write the documents of all cards. `about` holds further fields of the overview document."""
        events = self.conclusion.events
        changes = sorted(self.conclusion.changes, key=lambda each: (not each.is_open, -each.change.bad))
        self._settle(changes)
        documents = {each.change.id: self._change(each) for each in changes}
        listed = [self._event(event, documents) for event in events]
        self.site.write("events", listed[:_EVENTS])
        self.site.write_json("api/changes.json", [documents[each.change.id] for each in changes[:_CHANGES]])
        self._by_commit(list(documents.values()), listed)
        statuses = self._statuses()
        self._first(about, changes, events, statuses)
        fed = [event for event in listed if event["kind"] != "environment"][:100]
        names = [(card.file, card.gpu or card.name) for card in self.cards]
        self.site.put(
            "feed.xml",
            atom(fed, names, self.cases, about["project"], about["generated_at"]),
        )
        for (file, name), status in zip(names, statuses, strict=True):
            self.site.write_json(f"badges/{file}.json", badge(name, status))
            self.site.put(f"badges/{file}.svg", badge_svg(name, status))

    @property
    def _named(self) -> Iterator[tuple[str, CardSummary]]:
        return zip(self.names, self.cards, strict=True)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _by_name(self) -> dict[str, SeriesCase]:
        return {case.name: case for case in self.cases}

    def _change(self, each: Stated) -> dict[str, Any]:
        change = each.change
        return change_document(each, self._by_name[change.case], self._numbers[change.card], self.commits)

    def _settle(self, changes: Sequence[Stated]) -> None:
        """Update the documents of series with decisions about events, which may concern several cards."""
        before = {each.change.id: each for card in self.cards for each in card.changes}
        moved = {(each.change.card, each.change.case) for each in changes if before[each.change.id] != each}
        kept = cache_file(self.site.folder, "settled")
        shown = {(name, self.cases[row["case"]].name) for name, card in self._named for row in card.series}
        # Earlier decisions about events may have been withdrawn.
        earlier = shown.intersection(read_cached(kept, list[tuple[str, str]]) or ())
        write_cached(kept, sorted(moved))
        own: dict[tuple[str, str], list[Stated]] = defaultdict(list)
        for each in changes:
            own[each.change.card, each.change.case].append(each)
        again = moved | earlier
        files = {(card, self._by_name[name].order // SERIES_A_FILE) for card, name in again}
        in_files = defaultdict[tuple[str, int], list[dict[str, Any]]](list)
        for card, name in sorted(own.keys() | again, key=lambda key: self._by_name[key[1]].order):
            case, number = self._by_name[name], self._numbers[card]
            file = (card, case.order // SERIES_A_FILE)
            if file in files:
                in_order = sorted(own[card, name], key=lambda each: each.change.at)
                documents = [placed_change(each, case, number, self.commits) for each in in_order]
                in_files[file] += documents
                api = f"api/series/{series_file(card, case)}.json"
                if (card, name) in again and (self.site.folder / api).exists():
                    self.site.change(api, {"changes": documents})
        for (card, file_number), documents in in_files.items():
            name = series_document(self.cards[self._numbers[card]].file, file_number)
            self.site.change(f"data/{name}.js", {"changes": Rows(documents)})

    def _event(self, event: Event, documents: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        brief = [documents[each.change.id] for each in event.changes[:_CHANGES_OF_EVENT]]
        suspects = event.suspects[: min(_SUSPECTS, len(event.narrowest))]
        return {
            **fields_of(event, "id", "kind", "state", "cause", "good", "bad"),
            "good_hash": self.commits[event.good].hash,
            "bad_hash": self.commits[event.bad].hash,
            "accused": event.accused,
            "commits": len(event.narrowest),
            "loose": event.loose if event.may_be_several else 0,
            "likely": event.likely,
            "suspects": [self._suspect(position) for position in suspects],
            "cards": sorted(self._numbers[name] for name in event.cards),
            "cases": len(event.cases),
            "changes": len(event.changes),
            "worst": brief[0],
            "brief": Rows(
                [
                    {"card": each["card"], "case": each["case"], "state": each["state"]}
                    | {name: each[name] for name in _OF_BRIEF}
                    for each in brief
                ]
            ),
        }

    def _suspect(self, position: int) -> dict[str, Any]:
        commit = self.commits[position]
        return {
            "position": position,
            "hash": commit.hash,
            "subject": commit.subject[:200],
            "author": commit.author[:100],
            "time": commit.time_s,
        }

    def _by_commit(self, changes: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> None:
        """Write changes and events by their possible commits, for the page of a commit, without sentences."""
        changes = [{name: value for name, value in each.items() if name not in _OF_CASE} for each in changes]
        for first in range(0, len(self.commits), EVERY):
            own = [
                [each for each in every if each["bad"] >= first > each["good"] - EVERY]
                for every in (changes, events)
            ]
            if any(own):
                document = {"changes": Rows(own[0]), "events": own[1]}
                self.site.write(f"changed/{first // EVERY}", document, api=False)
            else:
                self.site.remove(f"data/changed/{first // EVERY}.js")

    def _statuses(self) -> list[CardStatus]:
        """Return the status of each card, in the order of `cards`."""
        opened = Counter(each.change.card for each in self.conclusion.open)
        unjudged = Counter(each.change.card for each in self.conclusion.unjudged)
        judged = {
            name: [row for row in card.series if self.cases[row["case"]].direction != "none"]
            for name, card in self._named
        }
        return [
            CardStatus(
                open=opened[name],
                unjudged=unjudged[name],
                unknown=sum(row["noise"] is None for row in judged[name]),
                series=len(judged[name]),
                stale=card.newest is not None and self.conclusion.is_stale(card.newest["commit"]),
            )
            for name, card in self._named
        ]

    def _first(
        self,
        about: Mapping[str, Any],
        changes: Sequence[Stated],
        events: Sequence[Event],
        statuses: Sequence[CardStatus],
    ) -> None:
        kinds: Counter[str] = Counter(each.state or each.change.kind for each in changes)
        of_events: Counter[str] = Counter(each.state or each.kind for each in events)
        newest = self.commits[-1]
        self.site.write(
            "site",
            {
                "schema": SCHEMA_VERSION,
                **about,
                "pair": PAIR,
                "asv": (self.site.folder.parent / "asv.js").exists(),
                "commits": {
                    "count": len(self.commits),
                    "chunk": COMMITS_A_FILE,
                    "every": EVERY,
                    **_days(self.commits),
                    "newest": {"hash": newest.hash, "time": newest.time_s, "subject": newest.subject[:500]},
                },
                "cards": [
                    {
                        **fields_of(card, *_OF_CARD),
                        **asdict(status),
                        "health": card.health + _behind(card, self.commits),
                    }
                    for card, status in zip(self.cards, statuses, strict=True)
                ],
                "series_a_file": SERIES_A_FILE,
                "cases": Rows([asdict(case) for case in self.cases]),
                "series": Rows(self._series(changes)),
                "counts": {kind: kinds[kind] for kind in _KINDS},
                "events": {kind: of_events[kind] for kind in _KINDS},
                "problems": [problem for card in self.cards for problem in card.problems],
                "unrecorded": [sentence for card in self.cards for sentence in card.unrecorded],
            },
        )

    def _series(self, changes: Sequence[Stated]) -> list[dict[str, Any]]:
        """Return the rows of series, with the worst open and the worst unjudged change."""
        opened: dict[tuple[str, str], float] = {}
        unjudged: dict[tuple[str, str], float] = {}
        for each in changes:
            found = opened if each.is_open else unjudged if is_unjudged(each) else None
            if found is not None:
                key = each.change.card, each.change.case
                found[key] = max(found.get(key, 0.0), each.change.effect, key=abs)
        return [
            row
            | {
                "open": rough(opened.get((name, self.cases[row["case"]].name))),
                "unjudged": rough(unjudged.get((name, self.cases[row["case"]].name))),
            }
            for name, card in self._named
            for row in card.series
        ]


def is_unjudged(each: Stated) -> bool:
    """Return whether the newest points are off their level, and the card does not explain it."""
    return each.state == "unjudged" and each.change.kind != "environment"


def _days(commits: Commits) -> dict[str, Numbers]:
    """Return the days since 1970 that have commits, and the first commit of each.

    Authors' clocks are unreliable, so a commit's day is never earlier than the previous commit's.
    """
    times = np.array([commit.time_s for commit in commits.line], np.int64)
    days = np.maximum.accumulate(times // 86_400)
    firsts = np.flatnonzero(np.diff(days, prepend=-1))
    return {"days": Numbers(days[firsts], "u32"), "firsts": Numbers(firsts, "u32")}


def _behind(card: CardSummary, commits: Commits) -> list[dict[str, str]]:
    behind = len(commits) - 1 - card.newest["commit"] if card.newest else 0
    text = f"{behind} commit{'s' if behind > 1 else ''} behind the newest."
    return [{"level": "warning" if behind > EVERY else "good", "text": text}] if behind else []
