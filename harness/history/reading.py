"""A whole history: the project's commits, and every card that a results folder has results of."""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from harness.device.machine import machine_entry
from harness.errors import StoreError, UsageError
from harness.history.changes import BUILT, Analysed, Change, analyse
from harness.history.facts import Commits, RunFacts, card_records, read_commits, suites_of
from harness.history.figures import Case, Figures, Group, united
from harness.history.series import Series, cases_of, series_of
from harness.history.tables import (
    Benchmark,
    figures_of,
    groups_of,
    has_results,
    no_history,
    read_benchmarks,
    read_table,
)
from harness.history.triage import Decision, Stated, read_triage, stated
from harness.judgement.noise import Calibration, read_calibration
from harness.numbers import moved, percent
from harness.records import Row
from harness.spec.case_id import Selector, in_short, size_label
from harness.store.records_file import read_run

_MANY = 4000
"""Files, from which on cards are read side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A results folder, and what is measured in it."""

    folders: tuple[Path, ...]
    benchmarks: Mapping[str, Benchmark]
    """What asv lists; nothing where there are no results of asv's."""
    groups: tuple[Group, ...]
    """What the series are of, in their order."""
    asv_problem: str = ""
    """Why asv's results cannot be read; empty where they can."""
    built: bool = False
    """Whether there is a card of kernels that were compiled and not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A case that has had a figure, and failed when its card was last measured."""

    case: str
    good: int
    """Position of the last commit with a figure."""
    bad: int
    """Position of the first one after it that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHistory:
    folder: str
    """Its name in the results, which is the machine's name."""
    machine: Mapping[str, str]
    analysed: tuple[Analysed, ...]
    changes: tuple[Stated, ...]
    """The changes of all series, newest commit first."""
    failing: tuple[Failing, ...]
    facts: tuple[RunFacts, ...]
    calibration: Calibration | None
    problems: tuple[str, ...]


@contextmanager
def side_by_side(folders: Sequence[Path]) -> Iterator[Callable[..., Any]]:
    """`map` over cards' folders, in processes where there is much to do."""
    cores = min(len(folders), os.cpu_count() or 1)
    if cores <= 1 or sum(len(os.listdir(each)) for each in folders) < _MANY:  # noqa: PTH208 - counts alone
        yield map
        return
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        yield pool.map


def open_results(results: Path, commits: Commits) -> Results:
    """What a results folder holds of the commits of a history: our records, and results of asv's, whoever's.

    Raises StoreError where there is neither, or the folder cannot be read.
    """
    try:
        folders = card_folders(results)
    except StoreError:
        folders = ()
        if results.exists():
            raise
    with side_by_side(folders) as mapped:
        cards = list(mapped(card_records, folders))
    benchmarks, problem = {}, ""
    try:
        benchmarks = read_benchmarks(results)
    except StoreError as error:
        if not any(each.commit for card in cards for each in card.facts):
            raise
        is_there = (results / "benchmarks.json").exists()
        why = error.message if is_there else "benchmarks.json is missing."
        problem = f"Results of asv's are left out: {why}"
    groups = united((*suites_of(cards, commits), *groups_of(benchmarks)))
    return Results(
        folders=folders,
        benchmarks=benchmarks,
        groups=groups,
        asv_problem=problem,
        built=any(is_built(card.facts) for card in cards),
    )


def card_folders(results: Path) -> tuple[Path, ...]:
    """Folders of cards, by name. Raises StoreError where the results cannot be read.

    asv makes no name that is not UTF-8, and no page could show one, so such a folder is none.
    """
    try:
        folders = [path for path in results.iterdir() if path.is_dir()]
    except OSError as error:
        raise StoreError(f"Cannot read {results}: {error.strerror or error}.") from None
    named = [path for path in folders if path.name.encode(errors="ignore").decode() == path.name]
    return tuple(sorted(path for path in named if any(path.glob("*.json")) or any(path.glob("*.jsonl*"))))


def read_card(
    folder: Path,
    results: Results,
    commits: Commits,
    decisions: Sequence[Decision] = (),
    *,
    wanted: Callable[[Series], bool] = lambda _: True,
    metric: str | None = None,
    smallest: float | None = None,
    today: dt.date | None = None,
) -> CardHistory:
    """Read one card's folder and search its series. `smallest` takes the place of the calibration's floors.

    Raises StoreError where the folder cannot be read; a file that cannot be read is one of `problems`.
    """
    table, records = read_table(folder, results.benchmarks), card_records(folder)
    facts, problems = records.facts, list(table.problems)
    figures = records.over(figures_of(table, results.benchmarks))
    problems += [each.problem for each in facts if each.problem]
    if results.asv_problem and has_results(folder):
        problems.append(results.asv_problem)
    machine = {**table.machine, **_machine(folder, facts)}
    if table.machine_problem and not machine:
        problems.insert(0, table.machine_problem)
    calibration, problem = _calibration(folder)
    problems += filter(None, (problem, _unknown_commits(figures, commits)))
    known = calibration.cases if calibration else {}
    floors = {in_short(case): noise.smallest_visible for case, noise in known.items()}
    records_of = _Records(folder, facts, commits)
    analysed = tuple(
        analyse(series, smallest or floors.get(series.case.name), commits, records_of.row)
        for series in series_of(
            folder.name, figures, results.groups, commits, metric, built=metric is None and is_built(facts)
        )
        if wanted(series)
    )
    day = today or dt.datetime.now(tz=dt.timezone.utc).date()
    changes = [each for one in analysed for each in stated(one, decisions, commits, day)]
    return CardHistory(
        folder=folder.name,
        machine=machine,
        analysed=analysed,
        changes=tuple(sorted(changes, key=lambda each: -each.change.bad)),
        failing=tuple(_failing([one.series for one in analysed])),
        facts=facts,
        calibration=calibration,
        problems=tuple(problems),
    )


def is_built(facts: Sequence[RunFacts]) -> bool:
    """Whether all that a card's records tell is of kernels that were compiled and not run."""
    commands = {each.command for each in facts if each.commit and each.command}
    return commands == {"static"}


def _calibration(folder: Path) -> tuple[Calibration | None, str]:
    """The card's calibration, or why it cannot be read."""
    try:
        return read_calibration(folder), ""
    except StoreError as error:
        return None, error.message


def _unknown_commits(figures: Sequence[Figures], commits: Commits) -> str:
    measured = {commit for each in figures for commit in each.commits}
    unknown = sum(commit not in commits.positions for commit in measured)
    if not unknown:
        return ""
    return (
        f"{unknown} of {len(measured)} results are of commits that are not in the history at hand "
        "(rebased away, of another branch, or the clone is shallow)."
    )


class _Records:
    """Reads rows of a card's records, when somebody asks."""

    def __init__(self, folder: Path, facts: tuple[RunFacts, ...], commits: Commits) -> None:
        self.folder, self.commits = folder, commits
        self.files: dict[tuple[str, str], list[str]] = defaultdict(list)
        for each in facts:
            if each.layout >= 0:
                self.files[each.commit, each.suite].append(each.file)
        self.rows = functools.lru_cache(maxsize=64)(self._rows)

    def row(self, series: Series, point: int) -> Row | None:
        case = series.case
        commit = self.commits[int(series.positions[point])].hash
        return self.rows(commit, case.suite).get((case.kernel, case.size))

    def _rows(self, commit: str, suite: str) -> Mapping[tuple[str, str], Row]:
        found: dict[tuple[str, str], Row] = {}
        for file in self.files[commit, suite]:
            with suppress(StoreError):
                rows = read_run(self.folder / file).rows
                found |= {(row.kernel, size_label(row.sizes)): row for row in rows if row.status != "skipped"}
        return found


def _machine(folder: Path, facts: Sequence[RunFacts]) -> Mapping[str, str]:
    for each in reversed(facts):
        if each.layout >= 0:
            with suppress(StoreError):
                run = read_run(folder / each.file).run
                return {**machine_entry(run.device, run.host), "machine": folder.name}
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    commits: Commits
    cards: tuple[CardHistory, ...]

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
    folders = [
        each for each in found.folders if not cards or any(fnmatchcase(each.name, glob) for glob in cards)
    ]
    if not folders and found.folders:
        there = ", ".join(each.name for each in found.folders)
        raise UsageError(f"No card in {results} matches {', '.join(cards)}. There are: {there}.")
    if not folders:
        raise StoreError(f"There is no history in {results}: it has no card's results. Run 'asv run' first.")
    # Another process can be given these.
    wanted = functools.partial(_is_selected, tuple(patterns))
    one = functools.partial(read_card, results=found, commits=commits, decisions=decisions, today=today)
    one = functools.partial(one, wanted=wanted, metric=metric, smallest=smallest)
    read: list[CardHistory] = []
    with side_by_side(folders) as mapped:
        for card in mapped(one, folders):
            tell(f"{card.folder}: {len(card.analysed)} cases")
            read.append(card)
    if not any(card.analysed for card in read):
        raise _no_case(
            results,
            patterns,
            metric,
            [case.name for case in cases_of(found.groups, metric, built=found.built)],
        )
    return History(commits=commits, cards=tuple(read))


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


def _is_selected(patterns: Sequence[str], series: Series) -> bool:
    case = series.case
    selectors = map(Selector.parse, patterns)
    return not patterns or any(
        fnmatchcase(case.name, pattern)
        or (selector.names(case.suite, case.kernel) and selector.has_label(case.size))
        for pattern, selector in zip(patterns, selectors, strict=True)
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
    if case.metric in BUILT:
        return f"{change.before:g} → {change.after:g} {case.unit}: the code."
    less = change.effect < 0
    if case.direction == "higher" or case.unit in ("ms", "s", "seconds"):
        word = "slower" if less is (case.direction == "higher") else "faster"
    else:
        word = "less" if less else "more"
    phrase = moved(change, word, word)
    if change.cycles_effect is not None and change.attribution == "code":
        why = f"cycles changed by {percent(change.cycles_effect, sign=True)}: the code"
    else:
        why = _BY.get(change.attribution, "the code")
    static = f" {'; '.join(change.static).capitalize()}." if change.static else ""
    return f"{phrase}: {why}.{static}"
