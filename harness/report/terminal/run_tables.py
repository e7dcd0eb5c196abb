"""The tables of a run in the terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.history.row_summary import RowSummary, summary_of
from harness.judgement.statistics import CONFIDENCE, summarize
from harness.numbers import binary, half_of, number, percent_figure, times
from harness.records.record_files import RunResult
from harness.records.types import DeviceInfo, Row, Run
from harness.report.table import Cell, Column, Sheet
from harness.report.words.of_verdict import source_label, suite_label, word_of_outputs
from harness.suite.case_id import Size, size_label, without_graph
from harness.system.texts import harmless


def outcome(row: Row) -> str:
    """Return a row in a few words for a progress line: ``measured, 1.234 ms``, or its failure and reason."""
    if row.measurement is not None:
        return f"{row.status}, {summarize(row.measurement.times_ns).median_ns / 1e6:.4g} ms"
    return f"{row.status} ({row.reason})" if row.reason else row.status


LOG_WIDTH = 120
STYLES: Mapping[str, str] = {
    "measured": "green",
    "verified": "green",
    "ran": "yellow",
    "built": "green",
    "not-built": "dim",
    "skipped": "dim",
    "best": "bold green",
    "tied": "green",
    "regression": "bold red",
    "improvement": "bold green",
    "unchanged": "green",
    "identical": "dim green",
    "inconclusive": "yellow",
    "invalid": "bold yellow",
    "missing": "bold red",
    "failed": "bold red",
    "new": "cyan",
    "open": "bold red",
    "expired": "bold red",
    "unjudged": "bold yellow",
    "stale": "dim",
    "acknowledged": "yellow",
    "fixed": "green",
    "environment": "cyan",
    "none": "dim",
    # Viridis: its brightness rises evenly, so that it works in grey too.
    "l0": "white on #440154",
    "l1": "white on #443983",
    "l2": "white on #31688e",
    "l3": "black on #21918c",
    "l4": "black on #35b779",
    "l5": "black on #90d743",
    "l6": "black on #fde725",
}
"""Styles of the terminal by mark."""


def console() -> Console:
    """Return standard output without markup, wide enough for a log unless COLUMNS is set."""
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = LOG_WIDTH
    return out


def distinct(names: Iterable[str], width: int) -> dict[str, str]:
    """Shorten each name between words to `width` characters, keeping the names distinct.

    The middle is cut first, then positions nearer to an end. Names that still look alike become longer.
    """
    plain = {name: harmless(name) for name in names}
    longest = max(map(len, plain.values()), default=0)
    different = len(set(plain.values()))
    while True:
        for share in _SHARES:
            cut = {name: _cut(text, width, share) for name, text in plain.items()}
            if width >= longest or len(set(cut.values())) == different:
                return cut
        width += 8


_SHARES = (0.5, 0.25, 0.75, 0.0)
"""Shares of a name's room for its beginning, in the order tried."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|.")


def _cut(text: str, width: int, share: float) -> str:
    """Return a text with an ellipsis in place of omitted words."""
    if len(text) <= width:
        return text
    room = width - 1
    starts = [found.start() for found in _WORD.finditer(text)]
    head = max((at for at in starts if at <= share * room), default=0)
    tail = min((at for at in starts if len(text) - at <= room - head), default=len(text))
    if head + len(text) - tail < room / 2:  # a word that fills the room
        head = int(share * room)
        tail = len(text) - (room - head)
    return f"{text[:head]}…{text[tail:]}"


def print_error(text: str) -> None:
    """Print a line on standard error without wrapping."""
    out = Console(stderr=True, highlight=False, markup=False, emoji=False)
    out.print(harmless(text), soft_wrap=True)


def print_end(problem: str, path: Path | str | None, interrupted: str) -> None:
    """Print a record's problem, its path, and the state of an interrupted run, on standard error."""
    for line in f"harness: {problem}".splitlines() if problem else ():
        print_error(line)
    if path:
        print_error(f"Record: {path}")
    if interrupted:
        print_error(f"Interrupted: {interrupted}.")


def print_out(sheet: Sheet | Text, out: Console | None = None) -> None:
    """Print a sheet with its title, caption and the columns that fit, or a text."""
    out = out or console()
    if isinstance(sheet, Text):
        out.print(sheet)
        return
    # Separate from the table, at whose width it would wrap.
    if sheet.title:
        out.print(Text(harmless(sheet.title)), style="bold", soft_wrap=True)
    if sheet.columns[0].cells:
        out.print(_table(sheet.fitting(out.width)))
    if sheet.caption:
        out.print(Text(harmless(sheet.caption, keep="\n")), style="dim", soft_wrap=True)


def _table(sheet: Sheet) -> Table:
    table = Table(box=None, padding=(0, sheet.gap // 2), pad_edge=False, header_style="dim")
    columns = sheet.shown
    over = "\n" if any(column.over for column in columns) else ""
    for column in columns:
        table.add_column(
            Text(f"{harmless(column.over)}{over}{harmless(column.name)}"),
            justify="left" if column.text else "right",
            overflow="fold",
            no_wrap=column.whole or not column.text,
        )
    for mark, row in sheet.marked_rows:
        table.add_row(
            *(styled(*cell[:2]) if isinstance(cell, Cell) else styled(cell) for cell in row),
            style=STYLES.get(mark, ""),
        )
    return table


def styled(text: str, mark: str = "") -> Text:
    return Text(harmless(text), style=STYLES.get(mark, ""))


def devices_table(devices: Sequence[DeviceInfo]) -> Sheet:
    specs = [each.spec + (" (default)" if at == 0 else "") for at, each in enumerate(devices)]
    return Sheet(
        columns=[
            Column("spec", specs, text=True),
            Column("device", [each.name for each in devices], text=True),
            Column("arch", [each.arch if each.backend == "cuda" else "" for each in devices], text=True),
            Column("units", [str(each.compute_units or "") for each in devices]),
            Column("memory", [binary(each.memory_bytes) for each in devices]),
            Column("driver", [each.driver for each in devices], text=True),
        ]
    )


def check_table(result: RunResult) -> Sheet:
    """Return a line for each kernel and size: verified or not, and its largest error relative to
    the bound.
    """
    rows = result.rows
    return Sheet(
        title=_title(result.run),
        columns=[
            Column("kernel", [row.kernel for row in rows], text=True),
            Column("size", [size_label(row.sizes) for row in rows]),
            Column("result", list(map(_status, rows)), text=True),
            Column("error / bound", list(map(_error, rows))),
        ],
    )


def imported_table(run: Run, rows: Sequence[Row]) -> Sheet:
    """Return a line for each case of another harness's file: its time and number of samples, not verified."""
    found = [summary_of(row, run) for row in rows]
    return Sheet(
        title=_title(run),
        columns=[
            Column("kernel", [row.kernel for row in rows], text=True),
            Column("size", [size_label(row.sizes) for row in rows]),
            Column("ms", [number(s.time_ms) for s in found]),
            Column("±%", [_half_width(s) for s in found], spare=2),
            Column("samples", [str(s.slots or "") for s in found], spare=3),
            Column("GB/s", [number(s.gbytes_per_s) for s in found], spare=1),
            Column("GFLOP/s", [number(s.gflops) for s in found], spare=1),
            Column("SM MHz", [number(s.sm_clock_mhz) for s in found]),
            Column("result", list(map(_status, rows)), text=True),
        ],
        caption="\n".join(_interval_notes(rows)),
    )


def _error(row: Row) -> str:
    ratios = [check.largest_ratio for check in (row.verification.checks if row.verification else ())]
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{max(known):.2f}" if known and len(known) == len(ratios) else ""


def run_tables(result: RunResult) -> Iterator[Sheet]:
    """Yield a ladder per size: rate, speed-up over the first kernel, share of peak, clock, temperature,
    result.
    """
    sizes = [size_label(without_graph(row.sizes)) for row in result.rows]
    for size in dict.fromkeys(sizes):
        rows = [row for row, of_row in zip(result.rows, sizes, strict=True) if of_row == size]
        yield Sheet(
            title=f"{_title(result.run)}, size {size}",
            columns=[
                Column("kernel", [_name(row) for row in rows], text=True),
                *_figures(result.run, rows),
                Column("result", list(map(_status, rows)), text=True),
            ],
            caption="\n".join(
                (
                    *_interval_notes(rows),
                    *_l2_notes(rows),
                    *_unit_notes(result.run, rows),
                    *_library_notes(rows),
                )
            ),
        )


def _name(row: Row) -> str:
    """Return the kernel's name, followed by the mark of a case by graph."""
    return " ".join(filter(None, (row.kernel, Size.of(row.sizes).mark)))


def _interval_notes(rows: Sequence[Row]) -> Iterator[str]:
    if any(row.measurement for row in rows):
        yield half_of(CONFIDENCE)


def _l2_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows that were measured with a hot L2, if others were measured cold."""
    names = {
        policy: [_name(row) for row in rows if row.measurement and row.measurement.l2 == policy]
        for policy in ("hot", "cold")
    }
    if all(names.values()):
        yield f"With a hot L2 cache, and the others cold: {', '.join(names['hot'])}."


def _figures(run: Run, rows: Sequence[Row]) -> list[Column]:
    found = [summary_of(row, run) for row in rows]
    first = next((s.rate for row, s in zip(rows, found, strict=True) if row.kernel == run.kernels[0]), None)
    return [
        Column("ms", [number(s.time_ms) for s in found], spare=1),
        Column("±%", [_half_width(s) for s in found], spare=2),
        Column(run.headline, [number(s.rate) for s in found]),
        Column("speed-up", [times(s.rate / first if s.rate and first else None) for s in found]),
        Column("% peak", [number(s.peak_percent, 3) for s in found]),
        Column(f"% {_library_name(rows)}", [number(s.library_percent, 3) for s in found]),
        Column("SM MHz", [number(s.sm_clock_mhz) for s in found]),
        Column("°C", [number(s.temperature_c, 2) for s in found]),
        Column("W", [number(s.power_w, 3) for s in found], spare=3),
    ]


def _library_name(rows: Sequence[Row]) -> str:
    """Return the name of the vendor's kernels, without their types if these differ."""
    names = {row.library.kernel for row in rows if row.library}
    if len(names) > 1:
        names = {name.partition("_")[0] for name in names}
    return names.pop() if len(names) == 1 else "library"


def _unit_notes(run: Run, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the kernels that compute in another type than their dtype, by their rates."""
    units = [(row, summary_of(row, run).unit) for row in rows]
    for unit in dict.fromkeys(unit for row, unit in units if unit not in ("", row.dtype)):
        names = ", ".join(row.kernel for row, each in units if each == unit != row.dtype)
        yield f"Faster than float32's peak, so computed in {unit}, of whose peak % peak is: {names}."


def _library_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the library of each kernel's comparison, unless all share one, and why some have none."""
    name = _library_name(rows)
    held = {row.dtype: row.library.kernel for row in rows if row.library}
    if len(held) > 1:
        pairs = (f"{dtype} against {kernel}" for dtype, kernel in held.items())
        yield f"% {name}: {', '.join(pairs)}."
    for reason in dict.fromkeys(row.library_missing for row in rows if row.library_missing):
        yield f"% {name}: {reason}"


def _title(run: Run) -> str:
    suite, commit = suite_label(run.source), source_label(run.source)
    return f"{suite} at {commit} on {run.device.name} ({run.device.spec})"


def _status(row: Row) -> Cell:
    said = "verified" if row.verification else "not verified"
    if row.outputs is not None:
        said = word_of_outputs(row.outputs)
    return Cell(row.reason or (row.status if row.status == "not-built" else said), row.status)


def _half_width(summary: RowSummary) -> str:
    if summary.time_ms is None or summary.time_low_ms is None or summary.time_high_ms is None:
        return ""
    if summary.slots < 2:  # a single time shows no scatter
        return ""
    return percent_figure((summary.time_high_ms - summary.time_low_ms) / (2 * summary.time_ms))
