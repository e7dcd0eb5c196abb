"""Turns results that exist only in asv's result files into records: one for each commit, suite and card."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import StoreError, UsageError
from harness.history.figures import HEADLINES, Group, Key
from harness.history.reading import open_results
from harness.history.sources.asv_results import CardTable, figures_of, groups_of, read_contents, read_table
from harness.history.sources.cards import CardSource
from harness.history.sources.our_records import CardRecords, Commits, card_records
from harness.history.sources.unrecorded import Unrecorded, unrecorded
from harness.records.imports.imported import identifier, undescribed_device, wrong_time
from harness.records.record_files import RecordWriter
from harness.records.types import Check, Resources, Row, Snapshot, Source, Verification
from harness.run.importing import imported_measurement, imported_run, imported_telemetry
from harness.suite.case_id import CaseId, Size

FORMAT = "asv"
_UNKNOWN = "unavailable: asv's files do not tell it"
_NO_MORE = "asv's file tells no more."
_HEADLINES = {metric: unit for unit, metric in HEADLINES.items()}
_HASH = re.compile("[0-9a-f]{40,64}")

Numbers = Mapping[str, float]
"""Values of one case at one commit by metric: NaN for none, infinite if the kernel failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCard:
    """New records from one card's result files."""

    card: str
    records: tuple[Path, ...]
    results: int
    """Number of results in these records. Each is one case at one commit."""
    left_out: int
    """Number of results that a record cannot hold, such as results without a time."""


def import_asv(results: Path, commits: Commits) -> Iterator[ImportedCard]:
    """Write records of results that only asv's files hold, card by card. A second call finds nothing to do.

    Raises StoreError if results or asv's list of benchmarks cannot be read, or a record cannot be written.
    """
    found = open_results(results, commits)
    if found.asv_problem:
        raise StoreError(found.asv_problem)
    suites = {each.name: each for each in groups_of(found.benchmarks) if each.is_suite}
    for card in found.cards:
        known = card_records(card.folder).of(card.environment)
        environments = read_contents(card.folder).commits if card.environment is None else [card.environment]
        missing = 0
        written: list[tuple[Path, int]] = []
        for environment in environments:
            table = read_table(card.folder, found.benchmarks, environment)
            of_suites, _ = figures_of(table, found.benchmarks)
            for left in unrecorded(known, of_suites):
                missing += left.count
                written += _write(card, table, suites[left.figures.group], left, known, commits)
        count = sum(rows for _, rows in written)
        if missing:
            paths = tuple(path for path, _ in written)
            yield ImportedCard(card=card.name, records=paths, results=count, left_out=missing - count)


def _write(
    card: CardSource, table: CardTable, suite: Group, left: Unrecorded, known: CardRecords, commits: Commits
) -> Iterator[tuple[Path, int]]:
    """Write a record for each commit; yield its path and its number of rows."""
    if suite.name != identifier(suite.name):
        return  # records are files, named after it
    figures = left.figures
    folder = next((each.path for each in known.facts if each.suite == suite.name and each.path), "")
    for at, commit in enumerate(figures.commits):
        numbers = {name: values[at].tolist() for name, values in figures.values.items()}
        cells = left.cells[at].nonzero()[0].tolist()
        cases = [(figures.keys[cell], {name: each[cell] for name, each in numbers.items()}) for cell in cells]
        rows = [row for key, case in cases if (row := _row(suite.name, key, case))]
        if not rows or not _HASH.fullmatch(commit):
            continue
        machine, context, place = table.machine, figures.contexts[at], commits.positions.get(commit)
        # Without a moment of its own it is older than every record of its commit.
        committed_s = 0 if place is None else commits[place].time_s
        run = imported_run(
            _moment(table.started_at_ms[at] / 1000) or _moment(committed_s),
            {"method": context.get("method"), "format": FORMAT, "environment": machine["environment"]},
            source=Source(suite=suite.name, path=folder, commit=commit),
            headline=next((unit for name, unit in _HEADLINES.items() if name in suite.metrics), "ms"),
            kernels=suite.kernels,
            device=undescribed_device(
                _UNKNOWN,
                name=machine.get("gpu", ""),
                driver=context.get("driver", _UNKNOWN),
                kind="cpu" if machine.get("compute_capability") == "none" else "gpu",
                uuid=context.get("gpu_uuid"),
            ),
            identity={key: value for key, value in context.items() if key not in ("method", "environment")},
        )
        with RecordWriter(card.folder, run) as writer:
            for row in rows:
                writer.add(row)
            yield writer.finish(complete=True), len(rows)


def _moment(time_s: float) -> dt.datetime | None:
    """Return a moment; None for 0, which means unknown, and for moments outside of the calendar."""
    try:
        return dt.datetime.fromtimestamp(time_s, dt.timezone.utc) if time_s else None
    except (ValueError, OverflowError, OSError):
        return None


def _row(suite: str, key: Key, numbers: Numbers) -> Row | None:
    """Return the row of one case from asv's tracks; None without a time or a size."""
    kernel, label = key
    try:
        lengths = Size.parse(label).lengths
    except UsageError:
        return None
    if Size(lengths).label != label:
        return None  # the record would describe another case
    # asv has a label for each size, without names of axes.
    axes = ["size"] if len(lengths) == 1 else [f"size{place}" for place in range(1, len(lengths) + 1)]
    sizes = dict(zip(axes, lengths, strict=True))
    failed = any(map(math.isinf, numbers.values()))
    is_wrong = numbers.get("verified") == 0
    time_ns = numbers.get("time_ms", math.nan) * 1e6
    row = Row(
        case=str(CaseId.of(suite, kernel, sizes)),
        kernel=kernel,
        sizes=sizes,
        dtype="",
        status="failed" if failed or is_wrong else "measured",
        resources=_resources(numbers),
    )
    if row.status == "failed":
        return replace(row, reason="wrong-result" if is_wrong else "not-measured", message=_NO_MORE)
    if wrong_time([time_ns]):
        return None
    return replace(
        row,
        flop=_integral(numbers, "gflops", time_ns),
        moved_bytes=_integral(numbers, "gbytes_per_s", time_ns),
        verification=_verification(numbers),
        measurement=imported_measurement((time_ns,), FORMAT, l2="cold"),
        telemetry=imported_telemetry(
            FORMAT,
            Snapshot(
                at_ns=0,
                sm_clock_mhz=_figure(numbers, "sm_clock_mhz"),
                memory_clock_mhz=_figure(numbers, "memory_clock_mhz"),
                temperature_c=_figure(numbers, "temperature_c"),
                power_w=_figure(numbers, "power_w"),
            ),
            _UNKNOWN,
        ),
    )


def _figure(numbers: Numbers, name: str) -> float | None:
    figure = numbers.get(name, math.nan)
    return figure if math.isfinite(figure) else None


def _integral(numbers: Numbers, name: str, unit: float = 1.0) -> int | None:
    figure = _figure(numbers, name)
    return None if figure is None else round(figure * unit)


def _verification(numbers: Numbers) -> Verification | None:
    if _figure(numbers, "verified") is None:
        return None
    ratio = _figure(numbers, "error_ratio")
    check = Check(
        data="random",
        seed=0,
        passed=True,
        largest_error=None,
        largest_ratio=ratio,
        wrong=0,
        elements=0,
        message=_NO_MORE,
    )
    return Verification(passed=True, checks=(check,) if ratio is not None else ())


def _resources(numbers: Numbers) -> Resources:
    occupancy, loop = _figure(numbers, "occupancy_percent"), _integral(numbers, "loop_instructions")
    return Resources(
        registers=_integral(numbers, "registers"),
        static_shared_bytes=_integral(numbers, "shared_bytes"),
        local_bytes=_integral(numbers, "local_bytes"),
        spill_store_bytes=_integral(numbers, "spill_bytes"),
        occupancy=None if occupancy is None else occupancy / 100,
        loop_instructions={"any": loop} if loop else {},
    )
