"""A table before it has a look: columns of texts, which a terminal, plain text, Markdown and HTML show alike.

Texts are raw. Each renderer makes them harmless: nobody's words become markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from harness.numbers import typeset
from harness.report.templates import inline, safe
from harness.system.texts import harmless

_LEAST = 12
"""Characters that are left of a text that is cut, at the least."""
SHADES = tuple(f"l{level}" for level in range(7))
"""Marks of cells with the colours of a heat map, from the slowest to the fastest."""
_COLOURED = {*SHADES, "none"}


class Cell(NamedTuple):
    """A text with a word on what it is: a verdict's status, ``code``, best, tied, a shade."""

    text: str
    mark: str = ""
    hint: str = ""
    """What a page says of a coloured cell that holds a sign only."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cells: Sequence[str | Cell]
    text: bool = field(default=False, kw_only=True)
    """Whether it holds words, on the left and folded where there is no room. Numbers never are."""
    whole: bool = field(default=False, kw_only=True)
    over: str = field(default="", kw_only=True)
    """What stands above the name, in a line of its own."""
    heads: bool = field(default=False, kw_only=True)
    """Whether it names the rows."""
    spans: bool = field(default=False, kw_only=True)
    """Whether a text also holds for the rows below it that have none."""
    spare: int = field(default=0, kw_only=True)
    """Where a table is too wide, columns with the highest of these go first; 0 never goes."""

    @property
    def texts(self) -> list[str]:
        return [cell.text if isinstance(cell, Cell) else cell for cell in self.cells]

    def rows_spanned(self) -> list[int]:
        """How many rows the cell of each row stands for; 0 where one above it does."""
        if not self.spans:
            return [1] * len(self.cells)
        starts = [at for at, text in enumerate(self.texts) if text]
        spans = {start: stop - start for start, stop in pairwise([*starts, len(self.cells)])}
        return [spans.get(at, 0) for at in range(len(self.cells))]

    @property
    def width(self) -> int:
        return max(map(len, (self.name, self.over, *self.texts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    columns: Sequence[Column]
    title: str = ""
    caption: str = ""
    kind: str = ""
    """A word for what it shows, by which a page styles it."""
    marks: Sequence[str] = ()
    """The mark of each row: best, tied or nothing."""
    cut: bool = False
    """Whether the last column is cut where a line has no room for it, so that each row is one line."""
    dense: bool = False
    """Whether columns touch: their texts have room around them."""

    @property
    def gap(self) -> int:
        """Spaces between two columns."""
        return 0 if self.dense else 2

    @property
    def shown(self) -> list[Column]:
        """The columns that have something to say; of a table without rows those of words."""
        rows = bool(self.columns and self.columns[0].cells)
        return [column for column in self.columns if (any(column.texts) if rows else column.text)]

    def fitting(self, width: int) -> Sheet:
        """The sheet with as many columns as fit into so many characters: what can be spared goes first."""
        sheet = replace(self, columns=self.shown)
        while sheet.width > width and (most := max(column.spare for column in sheet.columns)):
            sheet = replace(sheet, columns=[column for column in sheet.columns if column.spare < most])
        if not self.cut:
            return sheet
        *others, last = sheet.columns
        room = max(_LEAST, width - sum(column.width + self.gap for column in others))
        texts = [text if len(text) <= room else f"{text[: room - 1]}…" for text in last.texts]
        return replace(sheet, columns=[*others, replace(last, cells=texts)])

    def parts(self, width: int) -> Iterator[Sheet]:
        """Sheets no wider than so many characters, where that can be: each has the columns that name the
        rows, and as many of the others as fit.
        """
        naming = [column for column in self.columns if column.heads]
        others = [column for column in self.columns if not column.heads]
        while others:
            taken = len(others)
            while taken > 1 and replace(self, columns=[*naming, *others[:taken]]).width > width:
                taken -= 1
            yield replace(self, columns=[*naming, *others[:taken]])
            others = others[taken:]

    @property
    def width(self) -> int:
        """Characters of a line where nothing is folded."""
        return sum(column.width + self.gap for column in self.shown) - self.gap

    def lines(self, width: int) -> list[str]:
        """Plain text: the headings, then a line a row."""
        columns = [
            [
                f"{harmless(text):{'<' if column.text else '>'}{column.width}}"
                for text in (column.name, *column.texts)
            ]
            for column in self.fitting(width).shown
        ]
        return [(" " * self.gap).join(row).rstrip() for row in zip(*columns, strict=True)]

    def markdown(self) -> str:
        columns = self.shown
        names: list[str] = [inline(f"{column.over} {column.name}".strip()) for column in columns]
        rulers = [":--" if column.text else "--:" for column in columns]
        cells = ([inline(text.strip()) for text in column.texts] for column in columns)
        lines: list[Iterable[str]] = [names, rulers, *zip(*cells, strict=True)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    @property
    def marked_rows(self) -> Iterator[tuple[str, tuple[str | Cell, ...]]]:
        columns = self.shown
        marks = self.marks or ("",) * len(columns[0].cells)
        return zip(marks, zip(*(column.cells for column in columns), strict=True), strict=True)

    def html_head(self) -> str:
        cells = (
            f'<th scope="col"{_align(column)}>{safe(column.name.strip())}</th>'
            if column.name
            else "<td></td>"
            for column in self.shown
        )
        return f"<tr>{''.join(cells)}</tr>"

    def html_rows(self) -> Iterator[str]:
        columns = [(column, column.rows_spanned()) for column in self.shown]
        for at, (mark, row) in enumerate(self.marked_rows):
            cells = (
                _html(column, cell, spans[at]) for (column, spans), cell in zip(columns, row, strict=True)
            )
            yield f'<tr class="{mark}">{"".join(cells)}</tr>' if mark else f"<tr>{''.join(cells)}</tr>"


_LOUD = ("regression", "improvement", "inconclusive", "invalid", "missing", "failed")
_TAGS: Mapping[str, str] = {"code": "code", **dict.fromkeys(_LOUD, "b")}


def _html(column: Column, cell: str | Cell, rows: int) -> str:
    if not rows:
        return ""
    text, mark, hint = cell if isinstance(cell, Cell) else (cell, "", "")
    text = text.strip()
    if not column.text:
        text = typeset(text).replace(" → ", "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}")
    inner: str = safe(text)
    if tag := _TAGS.get(mark):
        inner = f"<{tag}>{inner}</{tag}>"
    if column.heads:
        span = f' rowspan="{rows}"' if rows > 1 else ""
        return f'<th scope="row"{span}{_align(column)}>{inner}</th>'
    if mark in _COLOURED:
        title = f' title="{hint}"' if hint else ""
        return f'<td class="{mark}"{title}>{inner}</td>'
    return f"<td{_align(column) if text else ''}>{inner}</td>"


def _align(column: Column) -> str:
    return "" if column.text else ' align="right"'


CLOSING = "</main></body></html>"
_STYLE = """\
:root { color-scheme: light dark; --page: #fff; --text: #1a2028; --muted: #566070; --rule: #dde1e7;
  --soft: #f1f4f7; --link: #0a5a8c; --zone: #dfeaf2; --dot: #4b7fa6; --bad: #a93800; --good: #00664a;
  --open: #765000 }
@media (prefers-color-scheme: dark) { :root { --page: #11151a; --text: #e3e7ec; --muted: #9ba6b3;
  --rule: #2d3540; --soft: #1d232b; --link: #72b9ea; --zone: #22384a; --dot: #6fa9d3; --bad: #ff9a70;
  --good: #54cfa6; --open: #edbd57 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, sans-serif; overflow-wrap: anywhere }
h1, h2 { line-height: 1.3; margin: 0 0 .6rem }
h1 { font-size: 1.35rem }
h2 { font-size: 1.1rem; margin-top: 2.2rem }
a { color: var(--link) }
.muted { color: var(--muted); font-size: .87rem }
.problem { color: var(--bad) }
.scroll { overflow-x: auto; margin: 0 0 1.4rem }
.scroll:focus-visible { outline: 2px solid var(--good) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
caption { text-align: left; font-weight: 600; padding: .2rem 0; white-space: nowrap }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  white-space: nowrap; overflow-wrap: normal; font-weight: 400 }
th[scope=col] { color: var(--muted); font-size: .87em }
[align=right] { text-align: right }
"""
"""Light and dark, wide and narrow; text at 4.5 : 1 and more."""


def opening(title: str, style: str) -> str:
    """Up to the first of what the page shows. Its policy allows its own style and nothing else."""
    style = _STYLE + style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rules = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{safe(title)}</title>\n<style>{style}</style></head><body><main>"
    )


def scrolled(title: str, kind: str, inner: Iterable[str]) -> str:
    """A table in a region of its own, so that a narrow screen moves the table and not the page."""
    name = safe(title)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table class="of-{kind}">'
        f"<caption>{name}</caption>\n{''.join(inner)}</table></div>"
    )
