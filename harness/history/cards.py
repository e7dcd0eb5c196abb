"""Everything a results folder tells of one card, read and searched."""

from __future__ import annotations

__all__ = ["CardHistory", "card_folders", "read_card"]

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.case_id import in_short, size_label
from harness.errors import StoreError
from harness.history.changes import Analysed, Evidence, analyse
from harness.history.commits import Commits
from harness.history.facts import RunFacts, read_facts
from harness.history.series import Series, series_of
from harness.history.tables import Benchmark, read_table
from harness.judgement.noise import Calibration, read_calibration
from harness.records import Row
from harness.store.records_file import read_run


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHistory:
    folder: str
    """Its name beside asv's results, which is the machine's name."""
    machine: Mapping[str, str]
    analysed: tuple[Analysed, ...]
    """In the suites' order."""
    facts: tuple[RunFacts, ...]
    calibration: Calibration | None
    problems: tuple[str, ...]


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
    benchmarks: Mapping[str, Benchmark],
    commits: Commits,
    *,
    wanted: Callable[[Series], bool] = lambda _: True,
    metric: str | None = None,
    smallest: float | None = None,
) -> CardHistory:
    """Read one card's folder and search its series. `smallest` takes the place of the calibration's floors.

    Raises StoreError where the folder cannot be read; a file that cannot be read is one of `problems`.
    """
    table, facts = read_table(folder, benchmarks), read_facts(folder)
    problems = [*table.problems, *(each.problem for each in facts if each.problem)]
    calibration = None
    try:
        calibration = read_calibration(folder)
    except StoreError as error:
        problems.append(error.message)
    unknown = sum(name not in commits.positions for name in table.hashes)
    if unknown:
        problems.append(
            f"{unknown} of {len(table.hashes)} results are of commits that are not in the history at hand "
            "(rebased away, of another branch, or the clone is shallow)."
        )
    floors = {} if smallest else _floors(calibration)
    evidence = _Records(folder, facts, commits)
    return CardHistory(
        folder=folder.name,
        machine=table.machine,
        analysed=tuple(
            analyse(series, smallest or floors.get(series.case.name), evidence.hash_of, evidence.of)
            for series in series_of(table, benchmarks, commits, facts, metric)
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
        self.files = {(each.commit, each.suite): each.file for each in facts if each.commit}
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
        file = self.files.get((commit, suite))
        try:
            rows = read_run(self.folder / file).rows if file else ()
        except StoreError:
            return {}
        return {(row.kernel, size_label(row.sizes)): row for row in rows}
