"""Tables in the terminal, and those of runs, checks and devices. Only `print_out` prints."""

from __future__ import annotations

__all__ = ["check_table", "console", "devices_table", "natural_width", "print_out", "run_tables", "styled"]

import os
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.numbers import binary, number, percent_figure, times
from harness.output.sentences import commit_label
from harness.output.sheet import Cell, Column, Sheet
from harness.output.summary import RowSummary, summary_of
from harness.records import DeviceInfo, Row, Run
from harness.run.run import RunResult
from harness.spec.suite import size_label
from harness.system.texts import harmless

LOG_WIDTH = 120
_RULER = Console(width=1000)
"""To measure how wide a table would be if it could."""
_STYLES: Mapping[str, str] = {
    "measured": "green",
    "verified": "green",
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
    "acknowledged": "yellow",
    "fixed": "green",
    "environment": "cyan",
}
"""By mark."""


def console() -> Console:
    """Standard output, as wide as the terminal; a log gets the room it needs, unless COLUMNS is set."""
    out = Console()
    return out if out.is_terminal or "COLUMNS" in os.environ else Console(width=LOG_WIDTH)


def print_out(sheet: Sheet | Table, out: Console | None = None) -> None:
    """A sheet with its title and caption, with the columns that fit; a table as it is."""
    out = out or console()
    table = sheet if isinstance(sheet, Table) else _table(sheet.fitting(out.width))
    # Printed apart: what is inside is wrapped at the table's width, which may be a few words.
    title, table.title = table.title, None
    if title:
        out.print(title, style="bold", highlight=False, soft_wrap=True)
    out.print(table)
    if isinstance(sheet, Sheet) and sheet.caption:
        out.print(Text(harmless(sheet.caption, keep="\n")), style="dim", highlight=False, soft_wrap=True)


def _table(sheet: Sheet) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.title = Text(harmless(sheet.title)) if sheet.title else None
    columns = sheet.shown
    over = "\n" if any(column.over for column in columns) else ""
    for column in columns:
        heading = Text(f"{harmless(column.over)}{over}{harmless(column.name)}")
        table.add_column(
            heading,
            justify="left" if column.text else "right",
            overflow="fold",
            no_wrap=column.whole or not column.text,
        )
    marks = sheet.marks or ("",) * len(columns[0].cells)
    for mark, *row in zip(marks, *(column.cells for column in columns), strict=True):
        table.add_row(*map(_text, row), style=_STYLES.get(mark, ""))
    return table


def _text(cell: str | Cell) -> Text:
    return styled(cell.text, cell.mark) if isinstance(cell, Cell) else Text(harmless(cell))


def styled(text: str, mark: str) -> Text:
    return Text(harmless(text), style=_STYLES.get(mark, ""))


def natural_width(table: Table) -> int:
    """Columns that a table takes where nothing wraps."""
    return Measurement.get(_RULER, _RULER.options, table).maximum


def devices_table(devices: Sequence[DeviceInfo]) -> Sheet:
    specs = [each.spec + (" (default)" if at == 0 else "") for at, each in enumerate(devices)]
    return Sheet(
        columns=[
            Column("spec", specs, text=True),
            Column("device", [each.name for each in devices], text=True),
            Column("arch", [each.arch if each.backend == "cuda" else "" for each in devices], text=True),
            Column("units", [str(each.compute_units) for each in devices]),
            Column("memory", [binary(each.memory_bytes) for each in devices]),
            Column("driver", [each.driver for each in devices], text=True),
        ]
    )


def check_table(result: RunResult) -> Sheet:
    """A line a kernel and size: verified or not, and how far the largest error is from its bound."""
    return Sheet(
        title=_title(result.run),
        columns=[
            Column("kernel", [row.kernel for row in result.rows], text=True),
            Column("size", [size_label(row.sizes) for row in result.rows]),
            Column("result", [_status(row) for row in result.rows], text=True),
            Column("error / bound", [_error(row) for row in result.rows]),
        ],
    )


def _error(row: Row) -> str:
    ratios = [check.largest_ratio for check in (row.verification.checks if row.verification else ())]
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{max(known):.2f}" if known and len(known) == len(ratios) else ""


def run_tables(result: RunResult) -> Iterator[Sheet]:
    """A ladder per size: rate, speed-up over the first kernel, share of peak, clock, temperature, result."""
    for size in dict.fromkeys(size_label(row.sizes) for row in result.rows):
        rows = [row for row in result.rows if size_label(row.sizes) == size]
        yield Sheet(
            title=f"{_title(result.run)}, size {size}",
            columns=[
                Column("kernel", [row.kernel for row in rows], text=True),
                *_figures(result.run, rows),
                Column("result", [_status(row) for row in rows], text=True),
            ],
            caption="\n".join(_library_notes(rows)),
        )


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
    """What the vendor's own kernels are called: all alike but for their types, as a rule."""
    names = {row.library.kernel for row in rows if row.library}
    if len(names) > 1:
        names = {name.partition("_")[0] for name in names}
    return names.pop() if len(names) == 1 else "library"


def _library_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Which kernel is held against which, where that is not one, and why one is held against none."""
    name = _library_name(rows)
    held = {row.dtype: row.library.kernel for row in rows if row.library}
    if len(held) > 1:
        pairs = (f"{dtype} against {kernel}" for dtype, kernel in held.items())
        yield f"% {name}: {', '.join(pairs)}."
    for reason in dict.fromkeys(row.library_missing for row in rows if row.library_missing):
        yield f"% {name}: {reason}"


def _title(run: Run) -> str:
    commit = commit_label(run.source.commit, dirty=run.source.dirty)
    return f"{run.source.suite} at {commit} on {run.device.name} ({run.device.spec})"


def _status(row: Row) -> Cell:
    """``verified``, or why not: a measured row is a verified one too."""
    return Cell(row.reason or "verified", row.status)


def _half_width(summary: RowSummary) -> str:
    if summary.time_ms is None or summary.time_low_ms is None or summary.time_high_ms is None:
        return ""
    return percent_figure((summary.time_high_ms - summary.time_low_ms) / (2 * summary.time_ms))
