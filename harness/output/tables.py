"""Tables for the terminal. Functions return a table; only `print_out` prints."""

from __future__ import annotations

__all__ = [
    "check_table",
    "console",
    "devices_table",
    "ladder_tables",
    "natural_width",
    "plain_table",
    "print_out",
]

import os
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from harness.output.summary import RowSummary, summary_of
from harness.records import DeviceInfo, Row, Run
from harness.run.run import RunResult
from harness.spec.suite import size_label

LOG_WIDTH = 120
_RULER = Console(width=1000)
"""To measure how wide a table would be if it could."""

_STATUS_STYLE = {"measured": "green", "verified": "green", "failed": "red", "skipped": "dim"}


def console() -> Console:
    """Standard output, as wide as the terminal; a log gets the room it needs, unless COLUMNS is set."""
    out = Console()
    return out if out.is_terminal or "COLUMNS" in os.environ else Console(width=LOG_WIDTH)


def print_out(table: Table) -> None:
    out = console()
    # Printed apart: what is inside is wrapped at the table's width, which may be a few words.
    title, table.title = table.title, None
    caption, table.caption = table.caption, None
    if title:
        out.print(title, style="bold", highlight=False, soft_wrap=True)
    out.print(table)
    if caption:
        out.print(caption, style="dim", highlight=False, markup=False, soft_wrap=True)


def natural_width(table: Table) -> int:
    """Columns that a table takes where nothing wraps."""
    return Measurement.get(_RULER, _RULER.options, table).maximum


def devices_table(devices: Sequence[DeviceInfo]) -> Table:
    table = plain_table("spec", "device", "arch", ">units", ">memory", "driver")
    for number, device in enumerate(devices):
        table.add_row(
            device.spec + (" (default)" if number == 0 else ""),
            device.name,
            device.arch if device.backend == "cuda" else "",
            str(device.compute_units),
            f"{device.memory_bytes / 2**30:.0f} GiB",
            device.driver,
        )
    return table


def check_table(result: RunResult) -> Table:
    """A line a kernel and size: verified or not, and how far the largest error is from its bound."""
    table = plain_table("kernel", ">size", "result", ">error / bound")
    table.title = _title(result.run)
    for row in result.rows:
        checks = row.verification.checks if row.verification else ()
        ratios = [check.largest_ratio for check in checks]
        worst = max((ratio for ratio in ratios if ratio is not None), default=None)
        told = f"{worst:.2f}" if worst is not None and None not in ratios else ""
        table.add_row(row.kernel, size_label(row.sizes), _status(row), told)
    return table


def ladder_tables(result: RunResult, width: int) -> Iterator[Table]:
    """A ladder per size: rate, speed-up over the first kernel, share of peak, clock, temperature, verified.

    What else there is to say (power, interval, time) is left out, in this order, where it does not fit in
    `width` columns.
    """
    for size in dict.fromkeys(size_label(row.sizes) for row in result.rows):
        rows = [row for row in result.rows if size_label(row.sizes) == size]
        columns = _columns(result.run, rows)
        for left_out in ("W", "±%", "ms", None):
            table = _ladder(f"{_title(result.run)}, size {size}", rows, columns)
            if left_out is None or natural_width(table) <= width:
                break
            columns.pop(left_out, None)
        table.caption = "\n".join(_library_notes(rows)) or None
        yield table


def _columns(run: Run, rows: Sequence[Row]) -> dict[str, list[str]]:
    """Cells by heading. A column that a device has nothing to say in is left out."""
    summaries = [summary_of(row, run) for row in rows]
    first = next(
        (s.rate for row, s in zip(rows, summaries, strict=True) if row.kernel == run.kernels[0]), None
    )
    columns = {
        "ms": [_number(s.time_ms, 4) for s in summaries],
        "±%": [_half_width(s) for s in summaries],
        run.headline: [_number(s.rate, 4) for s in summaries],
        "speed-up": [f"{s.rate / first:.1f}x" if s.rate and first else "" for s in summaries],
        "% peak": [_number(s.peak_percent, 3) for s in summaries],
        f"% {_library_name(rows)}": [_number(s.library_percent, 3) for s in summaries],
        "SM MHz": [_number(s.sm_clock_mhz, 4) for s in summaries],
        "°C": [_number(s.temperature_c, 2) for s in summaries],
        "W": [_number(s.power_w, 3) for s in summaries],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


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


def _ladder(title: str, rows: Sequence[Row], columns: Mapping[str, list[str]]) -> Table:
    table = plain_table("kernel", *(f">{name}" for name in columns), "result")
    table.title = title
    for index, row in enumerate(rows):
        table.add_row(row.kernel, *(cells[index] for cells in columns.values()), _status(row))
    return table


def _title(run: Run) -> str:
    commit = (run.source.commit or "no commit")[:10] + (" + changes" if run.source.dirty else "")
    return f"{run.source.suite} at {commit} on {run.device.name} ({run.device.spec})"


def plain_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if right else "left", overflow="fold", no_wrap=right
        )
    return table


def _status(row: Row) -> str:
    """``verified``, or why not: a measured row is a verified one too."""
    return f"[{_STATUS_STYLE[row.status]}]{row.reason or 'verified'}[/]"


def _half_width(summary: RowSummary) -> str:
    if summary.time_ms is None or summary.time_low_ms is None or summary.time_high_ms is None:
        return ""
    return f"{100 * (summary.time_high_ms - summary.time_low_ms) / (2 * summary.time_ms):.2f}"


def _number(value: float | None, digits: int) -> str:
    """A number with this many significant digits, thousands apart, never in powers of ten; empty for None."""
    if value is None:
        return ""
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(0, digits - whole)}f}"
