"""Reads a whole history: the project's commits, and every card with results in a folder."""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import gc
import math
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.device.machine import machine_entry
from harness.errors import StoreError, UsageError
from harness.history.asv_limits import AsvLimits, Limit
from harness.history.changes import (
    BUILT,
    Analysed,
    Change,
    RecordOf,
    analyse,
    confirmed_by,
    evidence_of,
    timed,
    with_confirmed,
)
from harness.history.comparisons import comparisons_of, with_comparisons
from harness.history.conclusion import CardFindings, Conclusion, conclude
from harness.history.ended import ended_cases
from harness.history.events import Event
from harness.history.figures import Figures, Group, SeriesCase, is_speed
from harness.history.series import Series, cases_of, series_of
from harness.history.sources import asv_results
from harness.history.sources.cards import CardSource, card_folders, cards_of
from harness.history.sources.kept_tables import is_kept
from harness.history.sources.our_records import (
    CardRecords,
    Commits,
    RunFacts,
    card_records,
    read_commits,
    suites_of,
)
from harness.history.sources.unrecorded import COMMAND, Unrecorded, UnrecordedCount, unrecorded
from harness.history.suspects import source_folders, with_suspects
from harness.history.triage import Decision, Stated, read_triage, stated
from harness.judgement.noise import Calibration, read_calibration
from harness.numbers import counted, moved, percent
from harness.records.record_files import commit_and_suite, read_run
from harness.records.types import Row
from harness.suite.case_id import Selector, in_short, size_label

T = TypeVar("T")
_MANY_BYTES = 30e6
"""Total size of files in bytes, from which cards are read in parallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A results folder, and its contents."""

    cards: tuple[CardSource, ...]
    benchmarks: Mapping[str, asv_results.AsvBenchmark]
    """Benchmarks that asv lists, by name; empty without results of asv's."""
    groups: tuple[Group, ...]
    """The groups that the series belong to, in order."""
    recorded: frozenset[str]
    """Suites whose values come from records. Values of all other groups come from asv's files."""
    asv_problem: str = ""
    """Reason why asv's results cannot be read; empty if they can."""
    built: bool = False
    """True if a card has kernels that were compiled and not run."""
    limits: AsvLimits = field(default_factory=AsvLimits)
    """Regressions that asv's configuration hides."""

    @property
    def unlisted(self) -> frozenset[str]:
        """Return the names of cases that the project no longer measures, by asv's list."""
        asvs = (group for group in self.groups if group.unlisted)
        return frozenset(group.name_of(key) for group in asvs for key in group.unlisted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A case that has had a value, and failed when its card was last measured."""

    case: str
    good: int
    """Position of the last commit with a value."""
    bad: int
    """Position of the first failed commit after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHistory:
    name: str
    """Name of the machine; of one with several environments, followed by a slash and the environment's
    distinction."""
    machine: Mapping[str, str]
    analysed: tuple[Analysed, ...]
    changes: tuple[Stated, ...]
    """The changes of all series, newest commit first."""
    failing: tuple[Failing, ...]
    """Failures of the newest measurement. On a card without recent results, it is unknown if they persist."""
    facts: tuple[RunFacts, ...]
    calibration: Calibration | None
    problems: tuple[str, ...]
    unrecorded: UnrecordedCount
    ended: Mapping[str, str]
    """Cases no longer measured, each with its possible successor under another name; else empty."""

    @property
    def findings(self) -> CardFindings:
        """Return the findings of this card for a conclusion."""
        return CardFindings(
            name=self.name,
            changes=self.changes,
            spans=self.spans,
            ended=self.ended,
            measured={int(at) for one in self.analysed for at in one.series.positions},
        )

    @property
    def cases(self) -> dict[str, SeriesCase]:
        """Return its cases by name."""
        return {one.series.case.name: one.series.case for one in self.analysed}

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Return the positions of the first and the last commit with a result of each case, by name."""
        ends = {one.series.case.name: one.series.positions[[0, -1]].tolist() for one in self.analysed}
        return {case: (first, last) for case, (first, last) in ends.items()}


Mapped = Callable[..., Iterable[Any]]
"""A `map` whose first argument is the folders that each call reads."""


def one_by_one(function: Callable[..., T], _folders: Sequence[Path], *arguments: Any) -> Iterable[T]:
    return map(function, *arguments)


@contextmanager
def side_by_side() -> Iterator[Mapped]:
    """Yield a map that uses processes for large amounts, always the same ones because their start is slow.

    Garbage collection is off meanwhile: it would take a fifth of the time over millions of objects, none in a
    cycle.
    """
    with ExitStack() as opened:
        if gc.isenabled():
            gc.disable()
            opened.callback(gc.enable)

        @functools.cache
        def pool(size: int) -> ProcessPoolExecutor:
            spawn = get_context("spawn")
            return opened.enter_context(ProcessPoolExecutor(size, mp_context=spawn, initializer=gc.disable))

        def mapped(function: Callable[..., T], folders: Sequence[Path], *arguments: Any) -> Iterable[T]:
            size = min(len(folders), os.cpu_count() or 1)
            if size <= 1 or sum(map(_bytes_in, folders)) < _MANY_BYTES:
                return map(function, *arguments)
            return pool(size).map(function, *arguments)

        yield mapped


def _bytes_in(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries)


def open_results(
    results: Path,
    commits: Commits,
    directions: Mapping[str, str] | None = None,
    mapped: Mapped = one_by_one,
    limits: AsvLimits | None = None,
) -> Results:
    """Return the contents of a results folder for a history's commits: our records, and asv's results.

    `directions` is the project's better direction of benchmarks outside of suites. Raises StoreError if there
    are neither, or the folder cannot be read.
    """
    try:
        folders = card_folders(results)
    except StoreError:
        folders = ()
        if results.exists():
            raise
    # Reading cached tables takes less time than starting a process.
    new = [folder for folder in folders if not is_kept(folder)]
    read = dict(zip(new, mapped(_contents, new, new), strict=True))
    found = [read.get(folder) or _contents(folder) for folder in folders]
    records = [each for each, _ in found]
    benchmarks, problem = {}, ""
    try:
        benchmarks = asv_results.read_benchmarks(results)
    except StoreError as error:
        if not any(each.commit for card in records for each in card.facts):
            raise
        is_there = (results / "benchmarks.json").exists()
        why = error.message if is_there else "benchmarks.json is missing; 'asv run' writes it."
        problem = f"Results of asv's are left out: {why}"
    columns: dict[str, dict[asv_results.Parameters, None]] = defaultdict(dict)
    for _, contents in found if not problem else ():
        for name, known in contents.columns.items():
            columns[name].update(dict.fromkeys(known))
    benchmarks |= asv_results.unlisted(columns, benchmarks)
    suites = tuple(suites_of(records, commits))
    recorded = frozenset(each.name for each in suites)
    of_asv = asv_results.groups_of(benchmarks, columns, directions)
    groups = (*suites, *(each for each in of_asv if each.name not in recorded))
    cards = [
        card
        for folder, (own, contents) in zip(folders, found, strict=True)
        for card in cards_of(folder, _measured(own, None if problem else contents), commits)
    ]
    return Results(
        cards=tuple(cards),
        benchmarks=benchmarks,
        groups=groups,
        recorded=recorded,
        asv_problem=problem,
        built=any(is_built(each.facts) for each in records),
        limits=limits or AsvLimits(),
    )


def _contents(folder: Path) -> tuple[CardRecords, asv_results.Contents]:
    return card_records(folder), asv_results.read_contents(folder)


def _measured(records: CardRecords, contents: asv_results.Contents | None) -> Mapping[str, Collection[str]]:
    """Return the commits with values by asv's environment; the environment is empty without asv."""
    commits: dict[str, set[str]] = defaultdict(set)
    for name, hashes in contents.commits.items() if contents else ():
        commits[name].update(hashes)
    for each in records.facts:
        if each.has_figures:
            commits[each.environment].add(each.commit)
    return commits


def read_card(
    card: CardSource,
    results: Results,
    commits: Commits,
    decisions: Sequence[Decision] = (),
    *,
    wanted: Callable[[Series], bool] = lambda _: True,
    metric: str | None = None,
    smallest: float | None = None,
    today: dt.date | None = None,
) -> CardHistory:
    """Read one card and search its series. `smallest` replaces the calibration's floors.

    Raises StoreError if its folder cannot be read. An unreadable file is added to `problems`.
    """
    folder = card.folder
    table = asv_results.read_table(folder, results.benchmarks, card.environment)
    records = card_records(folder).of(card.environment)
    facts, problems = records.facts, list(table.problems)
    of_suites, of_others = asv_results.figures_of(table, results.benchmarks)
    from_asv = [each for each in (*of_suites, *of_others) if each.group not in results.recorded]
    figures = {**records.figures, **{each.group: each for each in from_asv}}
    left = tuple(unrecorded(records, of_suites))
    hidden = [each for each in left if each.figures.group in results.recorded]
    problems += [_with_asvs(each, left) for each in facts if each.problem]
    if results.asv_problem and asv_results.has_results(folder):
        problems.append(results.asv_problem)
    machine = _machine(folder, facts, table.machine)
    if card.environment is not None:
        machine = {**machine, "machine": card.name}
    if table.machine_problem and not machine:
        problems.insert(0, table.machine_problem)
    calibration, problem = _calibration(folder)
    problems += filter(None, (problem, _unknown_commits(figures.values(), commits)))
    noises = calibration.every_case if calibration else {}
    floors = {in_short(case): noise.smallest_visible for case, noise in noises.items()}
    limits = _limits(results)
    problems += results.limits.problems
    row_of = _rows_of(folder, facts, commits)
    compared, built = comparisons_of(facts, commits), metric is None and is_built(facts)
    analysed = tuple(
        with_comparisons(
            analyse(
                series,
                smallest or floors.get(series.case.name),
                commits,
                row_of,
                limits.get((series.case.name, series.case.metric)),
            ),
            compared.get(series.case.name, ()),
            commits,
        )
        for series in series_of(card.name, figures.values(), results.groups, commits, metric, built=built)
        if wanted(series)
    )
    day = today or dt.datetime.now(tz=dt.timezone.utc).date()
    return CardHistory(
        name=card.name,
        machine=machine,
        analysed=analysed,
        changes=_stated(analysed, decisions, commits, day),
        failing=tuple(_failing([one.series for one in analysed])),
        facts=facts,
        calibration=calibration,
        problems=tuple(problems),
        unrecorded=UnrecordedCount(
            results=sum(each.count for each in left),
            hidden=sum(each.count for each in hidden),
            failed=sum(each.failed for each in hidden),
        ),
        ended=ended_cases([one.series for one in analysed], results.unlisted),
    )


def _with_asvs(damaged: RunFacts, left: Iterable[Unrecorded]) -> str:
    """Return the problem of an unreadable record, with the results that asv's file of its commit
    still has.
    """
    commit, suite = commit_and_suite(damaged.file)
    count = sum(each.count_at(commit) for each in left if each.figures.group == suite)
    if not commit or not count:
        return damaged.problem
    results = counted(count, "result")
    return f"{damaged.problem} asv's file of this commit has {results} of the suite: run '{COMMAND}'."


def _limits(results: Results) -> Mapping[tuple[str, str], Limit]:
    """Return the limits of series, by the name of the case and the metric."""
    if not results.limits.file:
        return {}
    named = asv_results.asv_names(results.benchmarks)
    found = {series: results.limits.of(name) for series, name in named.items()}
    return {series: limit for series, limit in found.items() if limit}


def is_built(facts: Sequence[RunFacts]) -> bool:
    """Return True if all of a card's records hold kernels that were compiled and not run."""
    commands = {each.command for each in facts if each.commit and each.command}
    return commands == {"static"}


def _calibration(folder: Path) -> tuple[Calibration | None, str]:
    """Return the card's calibration, or why it cannot be read."""
    try:
        return read_calibration(folder), ""
    except StoreError as error:
        return None, error.message


def _unknown_commits(figures: Iterable[Figures], commits: Commits) -> str:
    measured = {commit for each in figures for commit in each.commits}
    unknown = sum(commit not in commits.positions for commit in measured)
    if not unknown:
        return ""
    other = ' If another repository was measured, name a clone of it as "repo" in asv.conf.json.'
    return (
        f"{unknown} of {len(measured)} results are of commits that are not in the history at hand "
        f"(rebased away, of another branch, or the clone is shallow).{other * (unknown == len(measured))}"
    )


def _rows_of(folder: Path, facts: Iterable[RunFacts], commits: Commits) -> RecordOf:
    """Return a function that reads rows of a card's records on demand."""
    files: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in facts:
        if each.has_figures:
            files[each.commit, each.suite].append(each.file)

    @functools.lru_cache(maxsize=64)
    def rows(commit: str, suite: str) -> Mapping[tuple[str, str], Row]:
        found: dict[tuple[str, str], Row] = {}
        for file in files[commit, suite]:
            with suppress(StoreError):
                rows = read_run(folder / file).rows
                found |= {(row.kernel, size_label(row.sizes)): row for row in rows if row.status != "skipped"}
        return found

    def row(series: Series, point: int) -> Row | None:
        case, commit = series.case, commits[int(series.positions[point])].hash
        return rows(commit, case.suite).get((case.kernel, case.size))

    return row


def _machine(folder: Path, facts: Sequence[RunFacts], of_asv: Mapping[str, str]) -> Mapping[str, str]:
    """Return the machine's facts in the newest record, completed from asv's files."""
    for each in reversed(facts):
        if each.has_figures:
            with suppress(StoreError):
                run = read_run(folder / each.file).run
                entry = {**machine_entry(run.device, run.host), "machine": folder.name}
                # An imported record's file describes the machine less well than asv does.
                return {**entry, **of_asv} if each.command == "import" else {**of_asv, **entry}
    return of_asv


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    commits: Commits
    cards: tuple[CardHistory, ...]
    conclusion: Conclusion

    @property
    def events(self) -> tuple[Event, ...]:
        """Return the events of all cases: open events first, then those that are not judged yet."""
        return self.conclusion.events

    @property
    def cases(self) -> Mapping[str, SeriesCase]:
        return {name: case for card in self.cards for name, case in card.cases.items()}

    @property
    def undirected(self) -> tuple[str, ...]:
        """Return the benchmarks, by asv's name, whose better direction is unknown."""
        unknown = (case for card in self.cards for case in card.cases.values() if case.direction == "unknown")
        return tuple(sorted({".".join(filter(None, (case.suite, case.kernel))) for case in unknown}))


def read_history(
    results: Path,
    root: Path,
    *,
    repository: Path | None = None,
    revision: str = "HEAD",
    patterns: Sequence[str] = (),
    cards: Sequence[str] = (),
    metric: str | None = None,
    smallest: float | None = None,
    directions: Mapping[str, str] | None = None,
    limits: AsvLimits | None = None,
    today: dt.date | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> History:
    """Read the history of the project in `root` from a results folder, and search it for changes.

    `repository` holds the commits, if the project's own does not. `patterns` are globs of case names, and
    `cards` of card names. `limits` are asv's. Raises StoreError if there are no results, UsageError if
    nothing matches, GitError, and ConfigError for the triage file.
    """
    if not results.exists():
        raise asv_results.no_history(results)
    repository = repository or root
    today = today or dt.datetime.now(tz=dt.timezone.utc).date()
    decisions, commits = read_triage(root), read_commits(repository, revision)
    read: list[CardHistory] = []
    with side_by_side() as mapped:
        placed = limits and limits.placed(repository, commits)
        found = open_results(results, commits, directions, mapped, placed)
        chosen = _chosen(results, found, cards)
        read_one = functools.partial(  # another process can use it
            read_card,
            results=found,
            commits=commits,
            decisions=decisions,
            wanted=functools.partial(_is_selected, tuple(patterns)),
            metric=metric,
            smallest=smallest,
            today=today,
        )
        for card in mapped(read_one, [each.folder for each in chosen], chosen):
            tell(f"{card.name}: {len(card.analysed)} cases")
            read.append(card)
    if not any(card.analysed for card in read):
        cases = cases_of(found.groups, metric, built=found.built)
        told = ((card.name, each) for card in read for each in (*card.unrecorded.sentences, *card.problems))
        problems = [f"{name}: {each}" for name, each in told]
        metrics = sorted({name for group in found.groups if group.is_suite for name in group.metrics})
        if metric and metrics and metric not in metrics:
            raise UsageError(f"No metric in {results} is called {metric}. There are: {', '.join(metrics)}.")
        raise _no_case(results, patterns, metric, [case.name for case in cases], repository, problems)
    history = concluded(read, decisions, commits, today)
    kernels = {group.name: group.kernels for group in found.groups if group.is_suite}
    sources = source_folders((facts for card in read for facts in card.facts), kernels)
    events = with_suspects(history.events, repository, commits, history.cases, sources)
    return replace(history, conclusion=replace(history.conclusion, events=events))


def _chosen(results: Path, found: Results, cards: Sequence[str]) -> list[CardSource]:
    """Return the cards with these names; all cards without names. Raises UsageError, StoreError if there is
    none.
    """
    chosen = [each for each in found.cards if not cards or any(map(each.is_called, cards))]
    if chosen:
        return chosen
    if not found.cards:
        raise StoreError(f"There is no history in {results}: it has no card's results. Run 'asv run' first.")
    names = ", ".join(each.name for each in found.cards)
    raise UsageError(f"No card in {results} matches {', '.join(cards)}. There are: {names}.")


def concluded(
    cards: Sequence[CardHistory],
    decisions: Sequence[Decision],
    commits: Commits,
    today: dt.date,
) -> History:
    """Return the history of several cards, with candidates that another card confirms, and with events."""
    ids = confirmed_by(evidence_of(one for card in cards for one in card.analysed))
    read = [card_with_confirmed(card, ids, decisions, commits, today) for card in cards]
    conclusion = conclude([card.findings for card in read], decisions, commits, today)
    by_card: dict[str, list[Stated]] = defaultdict(list)
    for each in conclusion.changes:
        by_card[each.change.card].append(each)
    cards = tuple(
        replace(
            card, changes=_newest_first(by_card[card.name]), failing=tuple(_failing_yet(card, conclusion))
        )
        for card in read
    )
    return History(commits=commits, cards=cards, conclusion=conclusion)


def _failing_yet(card: CardHistory, conclusion: Conclusion) -> Iterator[Failing]:
    """Yield the newest failures that are not stale."""
    spans = card.spans
    return (one for one in card.failing if not conclusion.is_stale(spans[one.case][1]))


def since_commit(history: History, position: int) -> History:
    """Return only the changes by later commits: their events and changes, and the failures since."""
    events = tuple(event for event in history.events if event.common[-1] > position)
    kept = {each.change.id for event in events for each in event.changes}
    cards = tuple(
        replace(
            card,
            changes=tuple(each for each in card.changes if each.change.id in kept),
            failing=tuple(one for one in card.failing if one.bad > position),
        )
        for card in history.cards
    )
    return replace(history, cards=cards, conclusion=replace(history.conclusion, events=events))


def _stated(
    every: Iterable[Analysed], decisions: Sequence[Decision], commits: Commits, today: dt.date
) -> tuple[Stated, ...]:
    return _newest_first([each for one in every for each in stated(one, decisions, commits, today)])


def _newest_first(changes: Sequence[Stated]) -> tuple[Stated, ...]:
    return tuple(sorted(changes, key=lambda each: -each.change.bad))


def card_with_confirmed(
    card: CardHistory, ids: frozenset[str], decisions: Sequence[Decision], commits: Commits, today: dt.date
) -> CardHistory:
    """Return the card with the candidates of these ids as changes."""
    if not any(each.id in ids for one in card.analysed for each in one.candidates):
        return card
    analysed = tuple(with_confirmed(one, ids) for one in card.analysed)
    return replace(card, analysed=analysed, changes=_stated(analysed, decisions, commits, today))


def _no_case(
    results: Path,
    patterns: Sequence[str],
    metric: str | None,
    names: Sequence[str],
    repository: Path,
    problems: Sequence[str],
) -> StoreError | UsageError:
    if patterns or metric:
        asked = ", ".join([*patterns, *([f"metric {metric}"] if metric else [])])
        near = difflib.get_close_matches(patterns[0] if patterns else "", names, 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return UsageError(
            f"No case in {results} matches {asked}. Cases are called as in matmul.naive@1024; globs do.{hint}"
        )
    none = f"There is no figure in {results} of any commit of {repository}."
    return StoreError("\n".join((none, *problems[:5])))


def _is_selected(patterns: Sequence[str], series: Series) -> bool:
    case = series.case
    selectors = map(Selector.parse, patterns)
    return not patterns or any(
        fnmatchcase(case.name, pattern)
        or (selector.names(case.suite, case.kernel) and selector.has_label(case.size))
        for pattern, selector in zip(patterns, selectors, strict=True)
    )


def _failing(every: Sequence[Series]) -> Iterator[Failing]:
    """Yield failures. A suite that is measured less often has its own newest commit."""
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


def sentence(change: Change, case: SeriesCase) -> str:
    """Return a change in words: its size, its certainty and its cause."""
    if case.metric in BUILT:
        return f"{change.before:g} → {change.after:g} {case.unit}: the code."
    change = timed(change, case)
    more, less = ("slower", "faster") if is_speed(case) else ("more", "less")
    word = more if change.effect > 0 else less
    if math.isnan(change.p_value):
        return f"{percent(abs(change.effect))} {word} at the newest commits: too early to judge."
    phrase = moved(change, word, word)
    if change.kind == "drift":
        return f"{phrase} bit by bit, by no commit alone."
    if change.cycles_effect is not None and change.attribution == "code":
        why = f"cycles changed by {percent(change.cycles_effect, sign=True)}: the code"
    else:
        why = _BY.get(change.attribution, "the code")
    static = f" {'; '.join(change.static).capitalize()}." if change.static else ""
    if change.shifts:
        static += f" Measured otherwise: {', '.join(map(str, change.shifts))}."
    compared = " By a comparison of two commits." if change.compared else ""
    return f"{phrase}: {why}.{static}{compared}"
