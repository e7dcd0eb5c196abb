"""Writes a history as one table for other programs: CSV, or Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import StoreError, UsageError
from harness.history.reading import History
from harness.history.series import COMPANIONS
from harness.system.cache import replacing

_OF_CASE = ("suite", "kernel", "size", "metric", "unit", "direction")
COLUMNS = (
    *("card", "case", *_OF_CASE, "position", "commit", "committed_at", "value", "failed", "epoch"),
    *COMPANIONS,
)


def export(history: History, path: Path) -> int:
    """Write a row for each point, and return the number of rows. The file extension selects the format.

    Raises UsageError for another extension or without pyarrow, StoreError if the file cannot be written. An
    older file is then still whole.
    """
    writers = {".csv": _csv, ".parquet": _parquet}
    if path.suffix not in writers:
        raise UsageError(f"Cannot export to {path}: expected a name that ends in {' or '.join(writers)}.")
    try:
        with replacing(path, make_parents=False) as part:
            count = writers[path.suffix](history, part)
    except OSError as error:
        raise StoreError(
            f"Cannot write {path}: {error.strerror or error}. Name a file in a folder with room."
        ) from None
    return count


def _csv(history: History, path: Path) -> int:
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for columns in _tables(history):
            rows = list(zip(*(columns[name] for name in COLUMNS), strict=True))
            writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
            count += len(rows)
    return count


def _parquet(history: History, path: Path) -> int:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow: pip install pyarrow, or export to a name that ends in .csv."
        ) from None
    numbers = ("value", *COMPANIONS)
    kinds = {"position": pa.int32(), "epoch": pa.int32(), "failed": pa.bool_()}
    kinds |= {name: pa.float64() for name in numbers}
    kinds["committed_at"] = pa.timestamp("s", tz="UTC")
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for columns in _tables(history):
            times = [int(dt.datetime.fromisoformat(each).timestamp()) for each in columns["committed_at"]]
            table = pa.table({**columns, "committed_at": times}, schema=schema)
            writer.write_table(table)
            count += table.num_rows
    return count


def _tables(history: History) -> Iterator[dict[str, list[Any]]]:
    for card in history.cards:
        for one in card.analysed:
            series, case = one.series, one.series.case
            count = len(series.positions)
            line = [history.commits[at] for at in series.positions.tolist()]
            same = {
                "card": series.card,
                "case": case.name,
                **{name: getattr(case, name) for name in _OF_CASE},
            }
            yield {
                **{name: [value] * count for name, value in same.items()},
                "position": series.positions.tolist(),
                "commit": [commit.hash for commit in line],
                "committed_at": [
                    dt.datetime.fromtimestamp(commit.time_s, tz=dt.timezone.utc).isoformat(timespec="seconds")
                    for commit in line
                ],
                "value": _figures(series.values.tolist()),
                "failed": series.failed.tolist(),
                "epoch": series.epoch.tolist(),
                **dict.fromkeys(COMPANIONS, [None] * count),
                **{name: _figures(figures.tolist()) for name, figures in series.beside.items()},
            }


def _figures(values: list[float]) -> list[float | None]:
    # A history stores single precision. More digits would be meaningless.
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]
