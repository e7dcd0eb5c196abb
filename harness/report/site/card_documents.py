"""Documents of a card: its series, its ladder, its runs, its calibration."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness.device.peaks import peak_of
from harness.errors import StoreError
from harness.history.changes import BUILT, Analysed, Evidence, evidence_of
from harness.history.conclusion import STALE_COMMITS, CardFindings
from harness.history.figures import HEADLINES, METRICS, SeriesCase
from harness.history.reading import CardHistory, Results, card_with_confirmed, read_card
from harness.history.series import Series
from harness.history.sources.cards import CardSource
from harness.history.sources.our_records import CONTEXT, Commits, RunFacts
from harness.history.triage import Decision, Stated
from harness.judgement.statistics import summarize
from harness.numbers import counted
from harness.records.record_files import RunResult, StoredRow, read_run
from harness.records.types import Row
from harness.report.site.documents import (
    EVERY,
    SERIES_A_FILE,
    Numbers,
    Rows,
    Site,
    calibration_document,
    calibration_summary,
    case_name,
    figure,
    file_name,
    numbers,
    placed_change,
    rough,
    run_document,
    series_document,
    series_file,
)
from harness.report.site.suite_documents import demand_document
from harness.run.builds.static_records import machine_of
from harness.system.texts import harmless

RUNS = 24
"""Number of a card's newest runs that get a page."""
_QUARTER_S = 90 * 24 * 3600
_SLOTS = 40
"""Most slots of a value that a page shows, evenly chosen."""
_SPARK = 28
"""Points of a small line, each from two values."""
_API_CASES = 2000
"""Most cases whose series are also written as JSON for programs. `history --export` has no limit."""
_NAMED = 3
"""Most failing cases named in a card's health."""


class CardSummary(msgspec.Struct, kw_only=True):
    """Facts about a card for pages of several cards."""

    file: str
    name: str
    gpu: str
    host: str
    """The CPU of its host."""
    driver: str
    kind: str
    newest: dict[str, Any] | None
    points: int
    calibration: dict[str, Any] | None
    health: list[dict[str, str]]
    series: list[dict[str, Any]]
    changes: list[Stated]
    """Changes as in the documents of series, newest first."""
    evidence: list[Evidence]
    """Changes and candidates found by this card alone."""
    confirmed: list[str]
    """Ids of candidates that other cards confirmed."""
    measured: list[int]
    """The newest measured commits, as many as needed to detect stale cases."""
    spans: dict[str, tuple[int, int]]
    """The first and the last commit with a result of each case."""
    ended: list[str]
    """Cases that the card no longer measures."""
    paths: dict[str, str]
    """Folder of each suite in the repository."""
    problems: list[str]
    unrecorded: list[str]
    """A sentence about results of suites that only asv's files hold; empty without any."""

    def findings(self, name: str) -> CardFindings:
        """Return the findings of the card for a conclusion, under the name that its changes use."""
        return CardFindings(
            name=name, changes=self.changes, spans=self.spans, ended=self.ended, measured=self.measured
        )

    def confirmable(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the ids that belong to candidates of this card."""
        return frozenset(ids) & {each for each, hint in self.evidence if not hint.sure}


@dataclass(frozen=True)
class CardPages:
    """Reads one card and writes its documents. It can be sent to another process."""

    site: Site
    source: CardSource
    number: int
    results: Results
    commits: Commits
    cases: tuple[SeriesCase, ...]
    decisions: tuple[Decision, ...]
    today: dt.date
    confirmed: frozenset[str] = frozenset()
    """Ids of candidates that count because of other cards."""
    only: frozenset[str] | None = None
    """Names of the cases to read; None for all."""

    @property
    def file(self) -> str:
        return file_name(self.source.name)

    @cached_property
    def card(self) -> CardHistory:
        own = read_card(
            self.source,
            self.results,
            self.commits,
            self.decisions,
            today=self.today,
            wanted=lambda series: self.only is None or series.case.name in self.only,
        )
        return card_with_confirmed(own, self.confirmed, self.decisions, self.commits, self.today)

    def write(self) -> CardSummary:
        series = self._series()
        self._by_commit()
        sparks = np.array(list(map(_spark, self.card.analysed)), np.float64)
        self.site.write(
            f"sparks/{self.file}", {"points": _SPARK, "values": Numbers(sparks.ravel(), "u8")}, api=False
        )
        newest, known = self._newest(), self.card.calibration
        # Data for pages that compare two commits, without the ladder.
        beside = {"epochs": self._epochs(), "runs": self._runs(), "problem_changes": self._problem_changes()}
        self.site.write(f"about/{self.file}", beside, api=False)
        self.site.write(
            f"cards/{self.file}",
            {
                "card": self.number,
                "annotations": dict(sorted(self.card.machine.items())),
                "peaks": self._newest_run.run.peaks if self._newest_run else {},
                "commit": newest["commit"] if newest else None,
                **beside,
                "ladder": Rows(list(map(self._rung, self.card.analysed))),
                "calibration": calibration_document(known) if known else None,
            },
        )
        machine = self.card.machine
        return CardSummary(
            file=self.file,
            name=machine.get("machine", self.source.name),
            gpu=machine.get("gpu", ""),
            host=machine.get("cpu", ""),
            driver=self._driver(),
            kind="cpu" if machine.get("compute_capability") == "none" else "gpu",
            newest=newest,
            points=sum(len(one.series.positions) for one in self.card.analysed),
            calibration=calibration_summary(known) if known else None,
            health=self._health(),
            series=series,
            changes=list(self.card.changes),
            evidence=evidence_of(self.card.analysed),
            confirmed=[],
            measured=self._measured(),
            spans=self.card.spans,
            ended=list(self.card.ended),
            paths={each.suite: each.path for each in self.card.facts if each.commit and each.path},
            problems=[f"{self.source.name}: {problem}" for problem in self.card.problems],
            unrecorded=[f"{self.source.name}: {each}" for each in self.card.unrecorded.sentences],
        )

    def again(self, confirmed: frozenset[str], names: Collection[str]) -> CardPages:
        """Return the same for these cases and others in the same files, with confirmations by other cards."""
        files = {case.order // SERIES_A_FILE for case in self.cases if case.name in names}
        only = frozenset(case.name for case in self.cases if case.order // SERIES_A_FILE in files)
        return replace(self, confirmed=confirmed, only=only)

    def write_again(self, before: CardSummary) -> CardSummary:
        """Write the series of some cases again, with confirmations by other cards."""
        again = {row["case"]: row for row in self._series()}
        kept = [each for each in before.changes if each.change.case not in (self.only or ())]
        return msgspec.structs.replace(
            before,
            series=[again.get(row["case"], row) for row in before.series],
            changes=sorted([*kept, *self.card.changes], key=lambda each: -each.change.bad),
            confirmed=sorted(self.confirmed),
        )

    def _series(self) -> list[dict[str, Any]]:
        """Write the series in files of several cases, and return the overview document's entry for each."""
        in_files = defaultdict[int, list[Analysed]](list)
        for one in self.card.analysed:
            in_files[one.series.case.order // SERIES_A_FILE].append(one)
        changes = defaultdict[str, list[dict[str, Any]]](list)
        for each in reversed(self.card.changes):
            case = self._cases[each.change.case]
            changes[case.name].append(placed_change(each, case, self.number, self.commits))
        for number, every in in_files.items():
            self._write_series(number, every, changes)
        return [self._listed(one, len(changes[one.series.case.name])) for one in self.card.analysed]

    def _write_series(
        self, number: int, every: Sequence[Analysed], changes: Mapping[str, list[dict[str, Any]]]
    ) -> None:
        """Write the series of one file. Positions that several of them share are stored once."""
        places = dict[bytes, int]()
        commits = list[Numbers]()
        documents = dict[int, dict[str, Any]]()
        for one in every:
            document, case, positions = self._document(one), one.series.case, one.series.positions
            place = places.setdefault(positions.tobytes(), len(places))
            shared = Numbers(positions, "u32")
            if place == len(commits):
                commits.append(shared)
            known = {name: value for name, value in document.items() if value is not None}
            documents[case.order] = known | {"commits": place}
            name = f"api/series/{document['file']}.json"
            if len(self.cases) <= _API_CASES:
                self.site.write_json(name, document | {"commits": shared, "changes": changes[case.name]})
            else:  # of an earlier publication with fewer cases
                self.site.remove(name)
        self.site.write(
            series_document(self.file, number),
            {
                "commits": commits,
                "series": documents,
                "changes": Rows([each for one in every for each in changes[one.series.case.name]]),
            },
            api=False,
        )

    def _document(self, one: Analysed) -> dict[str, Any]:
        """Return the document of a series, without its commits and changes."""
        series, beside = one.series, one.series.beside
        return {
            "file": series_file(self.source.name, series.case),
            "card": self.number,
            "case": series.case.order,
            "n": len(series.positions),
            "values": Numbers(series.values),
            "clock_mhz": numbers(beside.get("sm_clock_mhz"), "u16"),
            "memory_clock_mhz": numbers(beside.get("memory_clock_mhz"), "u16"),
            "temperature_c": numbers(beside.get("temperature_c"), "u8"),
            "power_w": numbers(beside.get("power_w"), "u16"),
            "registers": numbers(beside.get("registers"), "u16"),
            "work": _work(series),
            "samples": self._samples(series),
            "floor": one.floor,
            "noise": figure(one.noise),
            "levels": [
                {"start": each.start, "stop": each.stop, "level": figure(each.level)} for each in one.levels
            ],
            "outliers": one.outliers,
            "clocked": one.clocked,
            "failed": np.flatnonzero(series.failed).tolist(),
            "demand": self._demand(series.case),
            "epochs": [
                {"start": each.start, "label": each.label, "changed": each.changed} for each in series.epochs
            ],
        }

    def _listed(self, one: Analysed, changes: int) -> dict[str, Any]:
        series, case = one.series, one.series.case
        return {
            "file": series_file(self.source.name, case),
            "card": self.number,
            "case": case.order,
            "at": int(series.positions[-1]),
            "last": figure(float(series.values[-1])),
            "effect_90": rough(self._quarter(one)),
            "floor": rough(one.floor),
            "noise": rough(one.noise),
            "changes": changes,
        }

    def _samples(self, series: Series) -> list[dict[str, Any]]:
        """Return the newest points in detail: the interval of each, its slots, its share of the library's
        rate.
        """
        metric = METRICS.get(series.case.metric)
        if metric is None:
            return []
        samples = []
        for position, rows in self._recent_rows.items():
            row, point = rows.get(series.case.name), int(np.searchsorted(series.positions, position))
            if row is None or point == len(series.positions) or series.positions[point] != position:
                continue
            figures = metric.read(row)
            if isinstance(figures, tuple) and len(figures) > 1:
                summary = summarize(figures)
                samples.append(
                    {
                        "at": point,
                        "low": figure(summary.low_ns),
                        "high": figure(summary.high_ns),
                        "slots": [figure(each) for each in figures[:: -(-len(figures) // _SLOTS)]],
                        "library_share": row.library.share if row.library else None,
                    }
                )
        return sorted(samples, key=lambda each: each["at"])

    def _demand(self, case: SeriesCase) -> dict[str, Any] | None:
        found = self._newest_rows.get(case.name)
        return demand_document(found.run.device, found.row) if found else None

    def _quarter(self, one: Analysed) -> float | None:
        """Return the change of the level over 90 days, or since its epoch began."""
        if not one.levels:
            return None
        times = self._times[one.series.positions]
        same = one.series.epoch == one.series.epoch[-1]
        then = int(np.argmax(same & (times >= times[-1] - _QUARTER_S)))
        level = next((each.level for each in one.levels if each.start <= then < each.stop), None)
        return figure(one.levels[-1].level / level - 1) if level else None

    @cached_property
    def _cases(self) -> Mapping[str, SeriesCase]:
        return {case.name: case for case in self.cases}

    @cached_property
    def _times(self) -> npt.NDArray[np.int64]:
        return np.array([commit.time_s for commit in self.commits.line], np.int64)

    def _measured(self) -> list[int]:
        every = [one.series.positions[-STALE_COMMITS - 1 :] for one in self.card.analysed]
        found = np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)
        return [int(at) for at in found[-STALE_COMMITS - 1 :]]

    def _by_commit(self) -> None:
        """Write the same values by commit, with the changes there, for pages of one commit or of two."""
        every = [one.series for one in self.card.analysed]
        measured = np.unique(np.concatenate([np.empty(0, np.int64), *(each.positions for each in every)]))
        table = np.full((measured.size, len(every)), np.nan, np.float32)
        for column, series in enumerate(every):
            table[np.searchsorted(measured, series.positions), column] = series.values
        cases = np.array([series.case.order for series in every], np.int64)
        built = sorted(each for series in every for each in _built(series))
        for first in range(0, len(self.commits), EVERY):
            start, stop = np.searchsorted(measured, (first, first + EVERY))
            known = np.isfinite(table[start:stop])
            rows, columns = np.flatnonzero(known.any(axis=1)), np.flatnonzero(known.any(axis=0))
            if rows.size:
                document = {
                    "first": first,
                    "rows": (measured[start + rows] - first).tolist(),
                    "cases": Numbers(cases[columns], "u32"),
                    "values": Numbers(table[np.ix_(start + rows, columns)].ravel()),
                    "built": [each for each in built if first <= each[0] < first + EVERY],
                }
                self.site.write(f"at/{self.file}/{first // EVERY}", document, api=False)
            else:  # of the history before a rewrite
                self.site.remove(f"data/at/{self.file}/{first // EVERY}.js")

    def _epochs(self) -> list[dict[str, Any]]:
        """Return the epochs of each suite and their first commits, by the suite's longest series."""
        by_suite: dict[str, list[Series]] = defaultdict(list)
        for one in self.card.analysed:
            by_suite[one.series.case.suite].append(one.series)
        epochs = []
        for suite, every in by_suite.items():
            series = max(every, key=lambda one: len(one.positions))
            begins = np.flatnonzero(np.diff(series.epoch, prepend=-1))
            epochs.append(
                {
                    "suite": suite,
                    "starts": series.positions[begins].tolist(),
                    "epochs": series.epoch[begins].tolist(),
                    "contexts": [
                        {CONTEXT[key]: value for key, value in each.context.items()} for each in series.epochs
                    ],
                }
            )
        return epochs

    def _newest(self) -> dict[str, Any] | None:
        last = [int(one.series.positions[-1]) for one in self.card.analysed]
        if not last:
            return None
        position = max(last)
        measured_there = [one for one, at in zip(self.card.analysed, last, strict=True) if at == position]
        commit = self.commits[position].hash
        measured = [each.started_at for each in self.card.facts if each.commit == commit]
        return {
            "commit": position,
            "hash": commit,
            "measured_at": max(measured, default=""),
            "cases": len(measured_there),
            "failed": sum(bool(one.series.failed[-1]) for one in measured_there),
        }

    def _driver(self) -> str:
        drivers = [each.context["driver"] for each in self.card.facts if "driver" in each.context]
        return drivers[-1] if drivers else self.card.machine.get("driver", "")

    def _health(self) -> list[dict[str, str]]:
        known, failing = self.card.calibration, self.card.failing
        found = [
            ("problem", f"{one.case[:80]} fails since {self.commits[one.bad].hash[:8]}.")
            for one in failing[:_NAMED]
        ]
        if (more := len(failing) - _NAMED) > 0:
            fail = "case fails" if more == 1 else "cases fail"
            found.append(("problem", f"{more} more {fail} that had figures."))
        if self.card.name.startswith(machine_of("")):
            found.append(("good", "Compiled and not run: nothing to calibrate."))
        elif known is None:
            found.append(("warning", "Not calibrated: run 'harness calibrate' on it once."))
        elif known.driver != self._driver():
            found.append(("warning", f"Calibrated with driver {known.driver}: calibrate again."))
        else:
            found.append(("good", f"Calibrated {known.measured_at[:10]}."))
        if self.card.problems:
            found.append(("warning", f"{counted(len(self.card.problems), 'problem')} with its files."))
        return [{"level": level, "text": text} for level, text in found]

    @cached_property
    def _files(self) -> list[RunFacts]:
        """Return the records of runs at commits, newest first."""
        return sorted((each for each in self.card.facts if each.commit), key=lambda e: e.file, reverse=True)

    @cached_property
    def _recent(self) -> list[tuple[RunFacts, RunResult]]:
        """Return the newest readable runs."""
        read = [(each, self._read(each)) for each in self._files[:RUNS]]
        return [(facts, stored) for facts, stored in read if stored]

    @cached_property
    def _recent_rows(self) -> dict[int, dict[str, Row]]:
        """Return rows of the newest runs by commit and case. Of two runs of a commit, the newer counts."""
        found: dict[int, dict[str, Row]] = defaultdict(dict)
        for facts, stored in self._recent:
            position = self.commits.positions.get(facts.commit)
            if position is not None:
                for row in stored.rows:
                    found[position].setdefault(case_name(stored.run, row), row)
        return found

    @cached_property
    def _newest_run(self) -> RunResult | None:
        return self._read(self._files[0]) if self._files else None

    @cached_property
    def _newest_rows(self) -> dict[str, StoredRow]:
        """Return rows of the newest record of each suite, by case."""
        seen: dict[str, RunFacts] = {}
        for each in self._files:
            seen.setdefault(each.suite, each)
        stored = filter(None, map(self._read, seen.values()))
        return {
            case_name(one.run, row): StoredRow(self.source.name, one.run, row)
            for one in stored
            for row in one.rows
        }

    def _read(self, facts: RunFacts) -> RunResult | None:
        try:
            return read_run(self.source.folder / facts.file)
        except StoreError:
            return None

    def _problem_changes(self) -> list[dict[str, Any]]:
        """Return the changes of the problem between commits of the history, oldest first."""
        at = self.commits.positions
        return [
            {
                "suite": each.suite,
                "base": at[each.base],
                "head": at[each.head],
                "changes": [harmless(change) for change in each.problem_changes],
            }
            for each in self.card.facts
            if each.problem_changes and each.base in at and each.head in at
        ]

    def _rung(self, one: Analysed) -> dict[str, Any]:
        series, case = one.series, one.series.case
        stored = self._newest_rows.get(case.name)
        row = stored.row if stored else None
        value = figure(float(series.values[-1]))
        beside = {name: figure(float(figures[-1])) for name, figures in series.beside.items()}
        peaks = self._newest_run.run.peaks if self._newest_run else {}
        unit = {"gflops": "GFLOP/s", "gbytes_per_s": "GB/s"}.get(case.metric, "")
        peak = peak_of(peaks, unit, row.dtype if row else "float32", value)
        why = f"{row.reason}: {row.message}" if row and row.message else "failed"
        return {
            "case": case.order,
            "value": value,
            "failed": why if series.failed[-1] else "",
            "peak_share": value / peak if value and peak else None,
            "library_share": row.library.share if row and row.library else None,
            "library": row.library.kernel if row and row.library else "",
            "library_missing": row.library_missing if row else "",
            "flop": row.flop if row else None,
            "moved_bytes": row.moved_bytes if row else None,
            "dtype": row.dtype if row else "",
            "time_ms": beside.get("time_ms"),
            "clock_mhz": beside.get("sm_clock_mhz"),
            "temperature_c": beside.get("temperature_c"),
            "power_w": beside.get("power_w"),
            "registers": beside.get("registers"),
            "demand": self._demand(case),
        }

    def _runs(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        orders = {case.name: case.order for case in self.cases}
        later: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}
        for facts, stored in self._recent:
            binaries = _binaries(stored)
            if facts.suite in later:
                entry, theirs = later[facts.suite]
                both = binaries.keys() & theirs.keys() & orders.keys()
                entry["base"] = facts.commit
                entry["compared"] = len(both)
                entry["rebuilt"] = sorted(orders[name] for name in both if binaries[name] != theirs[name])
            file = file_name(facts.file.partition(".jsonl")[0])
            position = self.commits.positions.get(facts.commit)
            self.site.write(f"runs/{file}", run_document(stored, self.number, position))
            listed.append(
                {
                    "file": file,
                    "started_at": facts.started_at,
                    "suite": facts.suite,
                    "commit": position,
                    "hash": facts.commit,
                    "rows": len(stored.rows),
                    "failed": sum(row.status == "failed" for row in stored.rows),
                    "base": "",
                    "compared": 0,
                    "rebuilt": [],
                }
            )
            later[facts.suite] = listed[-1], binaries
        return listed


def _work(series: Series) -> float | None:
    """Return the work of a value (time times rate, in its unit and ms), if it is constant."""
    if series.case.metric not in HEADLINES.values() or "time_ms" not in series.beside:
        return None
    found = series.values * series.beside["time_ms"]
    found = found[np.isfinite(found)]
    if not found.size or np.ptp(found) > 0.002 * np.median(found):
        return None
    return figure(float(np.median(found)))


def _spark(one: Analysed) -> list[float]:
    """Return the newest values scaled to 0 to 254, NaN for none. Noise alone does not fill the height."""
    values = one.series.values[-2 * _SPARK :]
    values = np.concatenate([np.full(2 * _SPARK - values.size, np.nan), values])
    pairs = values.reshape(_SPARK, 2)
    means = np.where(np.isnan(pairs).any(axis=1), np.nanmax(np.nan_to_num(pairs), axis=1), pairs.mean(axis=1))
    means[np.isnan(pairs).all(axis=1)] = np.nan
    if np.isnan(means).all():
        return [math.nan] * _SPARK
    low, high, middle = np.nanmin(means), np.nanmax(means), np.nanmedian(means)
    noise = 0.0 if np.isnan(one.noise) else one.noise
    least = abs(middle) * max(4 * one.floor, 6 * noise)
    room = max(0.0, least - (high - low)) / 2
    told: list[float] = ((means - low + room) / (high - low + 2 * room or 1) * 254).tolist()
    return told


def _built(series: Series) -> Iterator[tuple[int, int, str, float, float]]:
    """Yield changes of a case's build: commit, case, name, value before and after."""
    for name in BUILT:
        if name not in series.beside:
            continue
        known = np.flatnonzero(np.isfinite(series.beside[name]))
        values = series.beside[name][known]
        for at in (np.flatnonzero(np.diff(values)) + 1).tolist():
            position = int(series.positions[known[at]])
            yield position, series.case.order, name, float(values[at - 1]), float(values[at])


def _binaries(stored: RunResult) -> dict[str, str]:
    """Return the hash of each case's binary, if the record has it."""
    return {
        case_name(stored.run, row): row.resources.binary_sha256
        for row in stored.rows
        if row.resources and row.resources.binary_sha256
    }
