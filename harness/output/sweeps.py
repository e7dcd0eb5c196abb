"""A sweep for the terminal and as JSON: who was measured, what made the difference, and what is best."""

from __future__ import annotations

__all__ = ["as_json", "heat_map", "sweep_tables"]

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from harness.output.sheet import Sheet
from harness.output.sweep_figures import Placed, SweepFigures, label_of, standings
from harness.output.sweep_sheets import LEGEND, Heat, Place, heats, level_of, sheets, step_names, title_of
from harness.output.tables import natural_width
from harness.sweep.model import SweepResult, SweepRow
from harness.system.texts import harmless

SCHEMA_VERSION = 1
_COLOURS = (
    "white on #440154",
    "white on #443983",
    "white on #31688e",
    "black on #21918c",
    "black on #35b779",
    "black on #90d743",
    "black on #fde725",
)
"""From the slowest to the fastest: viridis, whose brightness rises evenly, so that it also reads in grey."""


def sweep_tables(result: SweepResult) -> Iterator[Sheet]:
    """What became of the configurations, rates by group of parameters, and the best of each size."""
    first, *others = sheets(result)
    yield replace(first, title=f"{title_of(result)}: {first.title}")
    yield from others


def _text(text: str) -> Text:
    return Text(harmless(text))


def heat_map(result: SweepResult, width: int) -> Iterator[Table]:
    """The rates of each size over the two groups with most values, and a legend at the end.

    Where a map is too wide for `width` columns, its columns go on in another table.
    """
    found = list(heats(result))
    for heat in found:
        yield from _parts(heat, width)
    if found:
        yield _legend()


def _parts(heat: Heat, width: int) -> Iterator[Table]:
    columns = range(len(heat.columns))
    while columns:
        taken = len(columns)
        while taken > 1 and natural_width(_heat_table(heat, columns[:taken])) > width:
            taken -= 1
        yield _heat_table(heat, columns[:taken])
        columns = columns[taken:]


def _heat_table(heat: Heat, shown: Sequence[int]) -> Table:
    panels = any(panel.title for panel in heat.panels)
    table = _bare()
    table.title = _text(f"{heat.title}, {heat.across} across")
    for name in [""] * panels + [heat.down] * bool(heat.down):
        table.add_column(_text(name), no_wrap=True)
    for at in shown:
        table.add_column(_text(f" {heat.columns[at]}  "), justify="right", no_wrap=True)
    for panel in heat.panels:
        for count, (line, cells) in enumerate(panel.lines):
            titles = [_text(f"{panel.title}  " if count == 0 else "")] * panels
            titles += [_text(f"{line}  ")] * bool(heat.down)
            table.add_row(*titles, *(_heat_cell(cells[at]) for at in shown))
    return table


def _bare() -> Table:
    return Table(box=None, padding=(0, 0), pad_edge=False, header_style="dim")


def _heat_cell(cell: Place) -> Text:
    mark = "" if cell.text.endswith(LEGEND["best"]) else " "  # numbers stay one below the other
    style = "dim" if cell.share is None else _COLOURS[level_of(cell.share)]
    return Text(f" {cell.text}{mark} ", style=style)


def _legend() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    colours = Text(" ").join(
        Text(f" {name} ", style=colour) for name, colour in zip(step_names(), _COLOURS, strict=True)
    )
    table.add_row("of best", colours)
    table.add_row("", "  ".join(f"{mark} {standing}" for standing, mark in LEGEND.items()))
    return table


def as_json(result: SweepResult) -> dict[str, Any]:
    """The records as they are stored, with the rates and tables that were derived from them."""
    figures = SweepFigures(result)
    return {
        "schema_version": SCHEMA_VERSION,
        "sweep": result.sweep,
        "complete": result.complete,
        "interrupted": result.interrupted,
        "record": result.path,
        "problem": result.problem,
        "reused": result.reused,
        "compile_s": result.compile_s,
        "measure_s": result.measure_s,
        "unit": figures.unit,
        "standings": standings(result),
        "rows": [{"row": row, "summary": _summary(figures, row)} for row in result.rows],
        "finals": result.finals,
        "groups": {
            name: [{"label": label_of(line.values), **asdict(line)} for line in lines]
            for name, lines in figures.by_group().items()
        },
        "best": {size: [_placed_json(each) for each in figures.ranking(size)] for size in figures.sizes},
    }


def _summary(figures: SweepFigures, row: SweepRow) -> dict[str, Any] | None:
    if row.status != "measured" or not row.time_ns:
        return None
    return {
        "time_ms": figures.time_ns(row) / 1e6,
        "rate": figures.rate(row),
        "peak_percent": figures.peak_percent(row),
    }


def _placed_json(each: Placed) -> dict[str, Any]:
    return {
        "place": each.place,
        "number": each.row.configuration.number,
        "parameters": each.row.configuration.parameters,
        "time_ms": each.time_ns / 1e6,
        "half_width": each.half_width,
        "rate": each.rate,
        "peak_percent": each.peak_percent,
        "behind": each.behind,
        "winner": each.winner,
        "tied": each.tied,
        "same_code": each.also,
    }
