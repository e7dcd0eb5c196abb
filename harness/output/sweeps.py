"""A sweep as one page that needs nothing else: no script, no request, and it works from a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from harness.errors import StoreError
from harness.output.sheet import CLOSING, Sheet, opening, safe, scrolled
from harness.output.sweep_sheets import (
    LEGEND,
    Heat,
    Panel,
    Place,
    Placed,
    SweepFigures,
    heats,
    label_of,
    level_of,
    sheets,
    standings,
    step_names,
    title_of,
)
from harness.output.tables import natural_width
from harness.sweep.model import SweepResult, SweepRow
from harness.system.cache import write_atomically
from harness.system.texts import harmless

_STYLE = """\
p { margin: .4rem 0 }
.best th, .best td { color: var(--good); font-weight: 600 }
.tied th, .tied td { color: var(--good) }
.of-failures td:last-child { white-space: normal; min-width: 20rem }
.of-heat th, .of-heat td { padding: .3rem .6rem; border: 0 }
.of-heat th { padding-left: 0; vertical-align: top }
.of-heat thead [align=right] { padding-left: .6rem }
.of-heat tbody { border-top: 1px solid var(--rule) }
.of-heat td { border: 1px solid var(--page); text-align: right; min-width: 4.5rem }
.legend { display: flex; flex-wrap: wrap; gap: .3rem; list-style: none; padding: 0; font-size: .87rem }
.legend li { padding: .1rem .6rem; border: 1px solid var(--rule) }
.l0 { background: #440154; color: #fff } .l1 { background: #443983; color: #fff }
.l2 { background: #31688e; color: #fff } .l3 { background: #21918c; color: #000 }
.l4 { background: #35b779; color: #000 } .l5 { background: #90d743; color: #000 }
.l6 { background: #fde725; color: #000 }
.none { background: var(--soft); color: var(--muted) }
@media print { .scroll { overflow: visible } }
"""


def sweep_page(result: SweepResult) -> str:
    """The tables that the terminal shows and the heat map, as HTML."""
    found = list(sheets(result))
    parts = [
        _opening(result),
        *_of_kind(found, "best", ""),
        *_of_kind(found, "standings", "What became of the configurations"),
        *_of_kind(found, "group", "What made the difference"),
        *_heat_section(list(heats(result))),
        *_of_kind(found, "ranking", "The best of each size"),
        *_of_kind(found, "failures", "What failed"),
        _foot(result),
        CLOSING,
    ]
    return "\n".join(parts) + "\n"


def write_page(result: SweepResult, path: Path) -> None:
    """Raises StoreError where it cannot be written."""
    try:
        write_atomically(path, sweep_page(result).encode())
    except OSError as error:
        raise StoreError(
            f"Cannot write {path}: {error.strerror or error}. Name a file in a folder with room."
        ) from error


def _opening(result: SweepResult) -> str:
    title = f"Sweep of {title_of(result)}"
    return f"{opening(title, _STYLE)}\n<h1>{safe(title)}</h1>\n{''.join(_state(result))}"


def _state(result: SweepResult) -> Iterator[str]:
    if not result.complete:
        done = f"{len(result.rows):,} of {result.sweep.total:,}"
        yield f'<p class="problem">Not complete: {done} configurations have come to an end.</p>\n'
    if result.problem:
        yield f'<p class="problem">{safe(result.problem)}</p>\n'


def _of_kind(found: Sequence[Sheet], kind: str, heading: str) -> Iterator[str]:
    shown = [sheet for sheet in found if sheet.kind == kind]
    if shown and heading:
        yield f"<h2>{heading}</h2>"
    for sheet in shown:
        body = "\n".join(sheet.html_rows())
        inner = f"<thead>{sheet.html_head()}</thead>\n<tbody>{body}</tbody>"
        yield scrolled(sheet.title, sheet.kind, [inner])


def _heat_section(found: Sequence[Heat]) -> Iterator[str]:
    if not found:
        return
    yield "<h2>Heat map</h2>"
    steps = "".join(f'<li class="l{level}">{safe(name)}</li>' for level, name in enumerate(step_names()))
    marks = "".join(f"<li>{safe(mark)} {standing}</li>" for standing, mark in LEGEND.items())
    yield '<p class="muted">Colours are shares of the best rate of the size.</p>'
    yield f'<ul class="legend">{steps}{marks}</ul>'
    yield from map(_heat_html, found)


def _heat_html(heat: Heat) -> str:
    titled = any(panel.title for panel in heat.panels)
    names = [""] * titled + [heat.down] * bool(heat.down)
    head = "".join(f'<th scope="col">{safe(name)}</th>' if name else "<td></td>" for name in names)
    head += "".join(f'<th scope="col" align="right">{safe(column)}</th>' for column in heat.columns)
    panels = (_panel(panel, titled=titled, named=bool(heat.down)) for panel in heat.panels)
    title = f"{heat.title}, {heat.across} across"
    return scrolled(title, "heat", [f"<thead><tr>{head}</tr></thead>", *panels])


def _panel(panel: Panel, *, titled: bool, named: bool) -> str:
    title = f'<th scope="rowgroup" rowspan="{len(panel.lines)}">{safe(panel.title)}</th>' if titled else ""
    rows = []
    for line, cells in panel.lines:
        label = f'<th scope="row">{safe(line)}</th>' if named else ""
        rows.append(f"<tr>{title}{label}{''.join(map(_heat_cell_html, cells))}</tr>")
        title = ""
    return f"<tbody>{''.join(rows)}</tbody>"


def _heat_cell_html(cell: Place) -> str:
    if cell.share is None:
        return f'<td class="none" title="{cell.standing}">{safe(cell.text)}</td>'
    return f'<td class="l{level_of(cell.share)}">{safe(cell.text)}</td>'


def _foot(result: SweepResult) -> str:
    sweep = result.sweep
    built = f", {sweep.toolchain.compiler}" if sweep.toolchain else ""
    told = (
        f"Driver {sweep.device.driver}{built}. Sweep {sweep.sweep_id}, begun {sweep.started_at}, "
        f"by gpu-harness {sweep.harness_version}."
    )
    return f'<p class="muted">{safe(told)}</p>'


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
