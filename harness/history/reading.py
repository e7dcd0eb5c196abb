"""A whole history: the project's commits, and every card that has results."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from harness.errors import StoreError, UsageError
from harness.history.cards import CardHistory, Results, open_results, read_card, side_by_side
from harness.history.changes import Change
from harness.history.facts import Commits, read_commits
from harness.history.figures import Case
from harness.history.series import Series, cases_of
from harness.history.tables import no_history
from harness.history.triage import Decision, Stated, read_triage, stated
from harness.numbers import moved, percent
from harness.spec.case_id import Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Which series; a function that other processes can be given."""

    patterns: tuple[str, ...] = ()

    def __call__(self, series: Series) -> bool:
        case = series.case
        return not self.patterns or any(
            fnmatchcase(case.name, pattern)
            or (selector.names(case.suite, case.kernel) and selector.has_label(case.size))
            for pattern, selector in zip(self.patterns, map(Selector.parse, self.patterns), strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A case that has had a figure, and failed when its card was last measured."""

    case: str
    good: int
    """Position of the last commit with a figure."""
    bad: int
    """Of the first one after it that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedCard:
    card: CardHistory
    changes: tuple[Stated, ...]
    """Of all series, newest commit first."""
    failing: tuple[Failing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    commits: Commits
    cards: tuple[StatedCard, ...]
    decisions: tuple[Decision, ...]

    @property
    def open(self) -> Iterator[Stated]:
        """Regressions that nobody has accepted and nothing has taken back."""
        return (each for card in self.cards for each in card.changes if each.is_open)


def read_history(
    results: Path,
    root: Path,
    *,
    revision: str = "HEAD",
    patterns: Sequence[str] = (),
    cards: Sequence[str] = (),
    metric: str | None = None,
    smallest: float | None = None,
    today: dt.date | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> History:
    """Read the history of the project in `root` from a results folder, and search it for changes.

    `patterns` are globs of case names, `cards` of cards' names. Raises StoreError where there is nothing to
    read, UsageError where nothing matches, GitError, ConfigError for the triage file.
    """
    if not results.exists():
        raise no_history(results)
    decisions, commits = read_triage(root), read_commits(root, revision)
    found = open_results(results, commits)
    folders = [each for each in found.folders if _matches(each.name, cards)]
    if not folders:
        raise _nothing(results, found, cards)
    wanted = Selected(patterns=tuple(patterns))
    read: list[CardHistory] = []
    with side_by_side(folders) as mapped:
        for card in mapped(_ReadCard(found, commits, wanted, metric, smallest), folders):
            tell(f"{card.folder}: {len(card.analysed)} cases")
            read.append(card)
    if not any(card.analysed for card in read):
        raise _no_case(results, patterns, metric, [case.name for case in cases_of(found.groups, metric)])
    day = today or dt.datetime.now(tz=dt.timezone.utc).date()
    return History(
        commits=commits,
        cards=tuple(stated_card(card, decisions, commits, day) for card in read),
        decisions=decisions,
    )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, each) for each in patterns)


def _nothing(results: Path, found: Results, cards: Sequence[str]) -> StoreError | UsageError:
    there = ", ".join(each.name for each in found.folders)
    if there:
        return UsageError(f"No card in {results} matches {', '.join(cards)}. There are: {there}.")
    return StoreError(f"There is no history in {results}: it has no card's results. Run 'asv run' first.")


def _no_case(
    results: Path, patterns: Sequence[str], metric: str | None, there: Sequence[str]
) -> StoreError | UsageError:
    if patterns or metric:
        asked = ", ".join([*patterns, *([f"metric {metric}"] if metric else [])])
        near = difflib.get_close_matches(patterns[0] if patterns else "", there, 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return UsageError(
            f"No case in {results} matches {asked}. Cases are called as in matmul.naive@1024; globs do.{hint}"
        )
    return StoreError(f"There is no figure in {results} of any commit of this history.")


@dataclass(frozen=True, slots=True)
class _ReadCard:
    """What is the same for every card; can be given to another process."""

    results: Results
    commits: Commits
    wanted: Selected
    metric: str | None
    smallest: float | None

    def __call__(self, folder: Path) -> CardHistory:
        return read_card(
            folder,
            self.results,
            self.commits,
            wanted=self.wanted,
            metric=self.metric,
            smallest=self.smallest,
        )


def stated_card(
    card: CardHistory, decisions: tuple[Decision, ...], commits: Commits, today: dt.date
) -> StatedCard:
    found = [each for one in card.analysed for each in stated(one, decisions, commits, today)]
    return StatedCard(
        card=card,
        changes=tuple(sorted(found, key=lambda each: -each.change.bad)),
        failing=tuple(_failing([one.series for one in card.analysed])),
    )


def _failing(every: Sequence[Series]) -> Iterator[Failing]:
    """A suite that is measured less often than another has a newest commit of its own."""
    newest: dict[str, int] = {}
    for series in every:
        newest[series.case.suite] = max(newest.get(series.case.suite, -1), int(series.positions[-1]))
    for series in every:
        good = np.flatnonzero(np.isfinite(series.values))
        if series.failed[-1] and series.positions[-1] == newest[series.case.suite] and good.size:
            last = int(good[-1])
            yield Failing(
                case=series.case.name, good=int(series.positions[last]), bad=int(series.positions[last + 1])
            )


_BY = {
    "clocks": "the SM clock moved and cycles did not: the card, not the code",
    "thermal": "the SM clock moved with the temperature and cycles did not: the card, not the code",
    "power": "the SM clock was held at the power limit and cycles did not change: the card, not the code",
    "environment": "the very same binary was timed on both sides: not the code",
    "unknown": "cycles are not known, so neither is whether it was the code",
}


def sentence(change: Change, case: Case) -> str:
    """A change in words: how much, how surely, and what did it."""
    less = change.effect < 0
    if case.direction == "higher" or case.unit in ("ms", "s", "seconds"):
        word = "slower" if less is (case.direction == "higher") else "faster"
    else:
        word = "less" if less else "more"
    told = moved(change, word, word)
    if change.cycles_effect is not None and change.attribution == "code":
        why = f"cycles changed by {percent(change.cycles_effect, sign=True)}: the code"
    else:
        why = _BY.get(change.attribution, "the code")
    static = f" {'; '.join(change.static).capitalize()}." if change.static else ""
    return f"{told}: {why}.{static}"
