"""Everything a results folder tells of one card, read and searched."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from harness.device.machine import machine_entry
from harness.errors import StoreError
from harness.history.changes import Analysed, Evidence, analyse
from harness.history.facts import Commits, RunFacts, card_records, suites_of
from harness.history.figures import Group, united
from harness.history.series import Series, series_of
from harness.history.tables import Benchmark, figures_of, groups_of, has_results, read_benchmarks, read_table
from harness.judgement.noise import Calibration, read_calibration
from harness.records import Row
from harness.spec.case_id import in_short, size_label
from harness.store.records_file import read_run

_MANY = 4000
"""Files, from which on cards are read side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A results folder, and what is measured in it."""

    folders: tuple[Path, ...]
    """Of cards, by name."""
    benchmarks: Mapping[str, Benchmark]
    """What asv lists; nothing where there are no results of asv's."""
    groups: tuple[Group, ...]
    """What the series are of, in their order."""
    asv_problem: str = ""
    """Why asv's results cannot be read; empty where they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHistory:
    folder: str
    """Its name in the results, which is the machine's name."""
    machine: Mapping[str, str]
    analysed: tuple[Analysed, ...]
    """In the suites' order."""
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
    return Results(folders=folders, benchmarks=benchmarks, groups=groups, asv_problem=problem)


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
    *,
    wanted: Callable[[Series], bool] = lambda _: True,
    metric: str | None = None,
    smallest: float | None = None,
) -> CardHistory:
    """Read one card's folder and search its series. `smallest` takes the place of the calibration's floors.

    Raises StoreError where the folder cannot be read; a file that cannot be read is one of `problems`.
    """
    table, records = read_table(folder, results.benchmarks), card_records(folder)
    facts = records.facts
    figures = records.over(figures_of(table, results.benchmarks))
    problems = [*table.problems, *(each.problem for each in facts if each.problem)]
    if results.asv_problem and has_results(folder):
        problems.append(results.asv_problem)
    machine = {**table.machine, **_machine(folder, facts)}
    if table.machine_problem and not machine:
        problems.insert(0, table.machine_problem)
    calibration = None
    try:
        calibration = read_calibration(folder)
    except StoreError as error:
        problems.append(error.message)
    measured = {commit for each in figures for commit in each.commits}
    if unknown := sum(commit not in commits.positions for commit in measured):
        problems.append(
            f"{unknown} of {len(measured)} results are of commits that are not in the history at hand "
            "(rebased away, of another branch, or the clone is shallow)."
        )
    floors = {} if smallest else _floors(calibration)
    evidence = _Records(folder, facts, commits)
    return CardHistory(
        folder=folder.name,
        machine=machine,
        analysed=tuple(
            analyse(series, smallest or floors.get(series.case.name), evidence.hash_of, evidence.of)
            for series in series_of(folder.name, figures, results.groups, commits, metric)
            if wanted(series)
        ),
        facts=facts,
        calibration=calibration,
        problems=tuple(problems),
    )


def _floors(calibration: Calibration | None) -> dict[str, float]:
    """The smallest visible change by the name that a history gives a case."""
    known = calibration.cases if calibration else {}
    return {in_short(case): noise.smallest_visible for case, noise in known.items() if noise.smallest_visible}


class _Records:
    """Reads what a run's record says of a build, when somebody asks."""

    def __init__(self, folder: Path, facts: tuple[RunFacts, ...], commits: Commits) -> None:
        self.folder, self.commits = folder, commits
        self.files: dict[tuple[str, str], list[str]] = {}
        for each in facts:
            if each.layout >= 0:
                self.files.setdefault((each.commit, each.suite), []).append(each.file)
        self.rows = functools.lru_cache(maxsize=64)(self._rows)

    def hash_of(self, position: int) -> str:
        return self.commits[position].hash

    def of(self, series: Series, point: int) -> Evidence | None:
        row = self.rows(self.hash_of(int(series.positions[point])), series.case.suite).get(
            (series.case.kernel, series.case.size)
        )
        if row is None:
            return None
        return Evidence(
            source_sha256=row.source_sha256,
            binary_sha256=row.resources.binary_sha256 if row.resources else None,
            launch=row.launch,
        )

    def _rows(self, commit: str, suite: str) -> Mapping[tuple[str, str], Row]:
        """The newest of each case, by kernel and size."""
        found: dict[tuple[str, str], Row] = {}
        for file in self.files.get((commit, suite), ()):
            with suppress(StoreError):
                rows = read_run(self.folder / file).rows
                found |= {(row.kernel, size_label(row.sizes)): row for row in rows if row.status != "skipped"}
        return found


def _machine(folder: Path, facts: Sequence[RunFacts]) -> Mapping[str, str]:
    """What the newest record says of the card; nothing without a record."""
    for each in reversed(facts):
        if each.layout >= 0:
            with suppress(StoreError):
                run = read_run(folder / each.file).run
                return {**machine_entry(run.device, run.host), "machine": folder.name}
    return {}
