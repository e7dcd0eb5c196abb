"""A sweep as one page that needs nothing else: no script, no request, and it works from a disk."""

from __future__ import annotations

__all__ = ["sweep_page", "write_page"]

import base64
import hashlib
import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import StoreError
from harness.output.sweep_sheets import (
    LEGEND,
    Cell,
    Column,
    Heat,
    Kind,
    Panel,
    Sheet,
    heats,
    level_of,
    sheets,
    step_names,
    title_of,
)
from harness.sweep.model import SweepResult
from harness.system.cache import write_atomically
from harness.system.texts import harmless

_ROW_HEADING: dict[Kind, int] = {"standings": 1, "failures": 0, "group": 0, "ranking": 1, "best": 0}
"""Which column says what a line is of."""
_STYLE = """\
:root { color-scheme: light dark; --page: #fff; --text: #1a2028; --muted: #566070; --rule: #dde1e7;
  --soft: #f1f4f7; --good: #00664a; --bad: #a93800 }
@media (prefers-color-scheme: dark) { :root { --page: #11151a; --text: #e3e7ec; --muted: #9ba6b3;
  --rule: #2d3540; --soft: #1d232b; --good: #54cfa6; --bad: #ff9a70 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, sans-serif; overflow-wrap: anywhere }
h1, h2 { line-height: 1.3; margin: 0 0 .6rem }
h1 { font-size: 1.35rem }
h2 { font-size: 1.1rem; margin-top: 2.2rem }
p { margin: .4rem 0 }
.muted { color: var(--muted); font-size: .87rem }
.problem { color: var(--bad) }
.scroll { overflow-x: auto; margin: 0 0 1.4rem }
.scroll:focus-visible { outline: 2px solid var(--good) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
caption { text-align: left; font-weight: 600; padding: .2rem 0; white-space: nowrap }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  white-space: nowrap; overflow-wrap: normal; font-weight: 400 }
thead th { color: var(--muted); font-size: .87em }
.n { text-align: right }
.best th, .best td { color: var(--good); font-weight: 600 }
.tied th, .tied td { color: var(--good) }
.of-failures td:last-child { white-space: normal; min-width: 20rem }
.of-heat th, .of-heat td { padding: .3rem .6rem; border: 0 }
.of-heat th { padding-left: 0; vertical-align: top }
.of-heat thead .n { padding-left: .6rem }
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
        "</main></body></html>",
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
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    rules = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"Sweep of {title_of(result)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_safe(title)}</title>\n<style>{_STYLE}</style></head><body><main>\n"
        f"<h1>{_safe(title)}</h1>\n{''.join(_state(result))}"
    )


def _state(result: SweepResult) -> Iterator[str]:
    if not result.complete:
        done = f"{len(result.rows):,} of {result.sweep.total:,}"
        yield f'<p class="problem">Not complete: {done} configurations have come to an end.</p>\n'
    if result.problem:
        yield f'<p class="problem">{_safe(result.problem)}</p>\n'


def _of_kind(found: Sequence[Sheet], kind: Kind, heading: str) -> Iterator[str]:
    shown = [sheet for sheet in found if sheet.kind == kind]
    if shown and heading:
        yield f"<h2>{heading}</h2>"
    yield from map(_table, shown)


def _table(sheet: Sheet) -> str:
    shown = sheet.filled()
    head = "".join(_heading(sheet.columns[at]) for at in shown)
    marks = sheet.marks or ("",) * len(sheet.rows)
    body = "\n".join(
        f"<tr{_class(mark)}>{''.join(_cell(sheet, row, at) for at in shown)}</tr>"
        for row, mark in zip(sheet.rows, marks, strict=True)
    )
    return _scrolled(sheet.title, f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>", sheet.kind)


def _heading(column: Column) -> str:
    if not column.name:
        return "<td></td>"
    return f'<th scope="col"{_class("" if column.text else "n")}>{_safe(column.name)}</th>'


def _cell(sheet: Sheet, row: Sequence[str], at: int) -> str:
    names_row = at == _ROW_HEADING[sheet.kind]
    kind = _class("" if sheet.columns[at].text else "n")
    return f'<th scope="row"{kind}>{_safe(row[at])}</th>' if names_row else f"<td{kind}>{_safe(row[at])}</td>"


def _scrolled(title: str, inner: str, kind: str) -> str:
    """A table in a region of its own, so that a narrow screen moves the table and not the page."""
    safe = _safe(title)
    return (
        f'<div class="scroll" role="region" aria-label="{safe}" tabindex="0"><table class="of-{kind}">'
        f"<caption>{safe}</caption>\n{inner}</table></div>"
    )


def _heat_section(found: Sequence[Heat]) -> Iterator[str]:
    if not found:
        return
    yield "<h2>Heat map</h2>"
    steps = "".join(f'<li class="l{level}">{_safe(name)}</li>' for level, name in enumerate(step_names()))
    marks = "".join(f"<li>{_safe(mark)} {standing}</li>" for standing, mark in LEGEND.items())
    yield '<p class="muted">Colours are shares of the best rate of the size.</p>'
    yield f'<ul class="legend">{steps}{marks}</ul>'
    yield from map(_heat_table, found)


def _heat_table(heat: Heat) -> str:
    titled = any(panel.title for panel in heat.panels)
    names = [""] * titled + [heat.down] * bool(heat.down)
    head = "".join(_heading(Column(name=name, text=True)) for name in names)
    head += "".join(_heading(Column(name=column)) for column in heat.columns)
    panels = "".join(_panel(panel, titled=titled, named=bool(heat.down)) for panel in heat.panels)
    return _scrolled(f"{heat.title}, {heat.across} across", f"<thead><tr>{head}</tr></thead>{panels}", "heat")


def _panel(panel: Panel, *, titled: bool, named: bool) -> str:
    title = f'<th scope="rowgroup" rowspan="{len(panel.lines)}">{_safe(panel.title)}</th>' if titled else ""
    rows = []
    for line, cells in panel.lines:
        label = f'<th scope="row">{_safe(line)}</th>' if named else ""
        rows.append(f"<tr>{title}{label}{''.join(map(_heat_cell, cells))}</tr>")
        title = ""
    return f"<tbody>{''.join(rows)}</tbody>"


def _heat_cell(cell: Cell) -> str:
    if cell.share is None:
        return f'<td class="none" title="{cell.standing}">{_safe(cell.text)}</td>'
    return f'<td class="l{level_of(cell.share)}">{_safe(cell.text)}</td>'


def _foot(result: SweepResult) -> str:
    sweep = result.sweep
    built = f", {sweep.toolchain.compiler}" if sweep.toolchain else ""
    told = (
        f"Driver {sweep.device.driver}{built}. Sweep {sweep.sweep_id}, begun {sweep.started_at}, "
        f"by gpu-harness {sweep.harness_version}."
    )
    return f'<p class="muted">{_safe(told)}</p>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _safe(text: str) -> str:
    return html.escape(harmless(text))
