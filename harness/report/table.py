"""A table without a look: columns of texts that a terminal, plain text, Markdown and HTML can show.

Texts are raw. Each renderer escapes them, so that no text becomes markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from harness.numbers import typeset
from harness.report.templates import Markup, html_environment, inline
from harness.system.texts import harmless

_LEAST = 12
"""Fewest characters that remain of a shortened text."""
SHADES = tuple(f"l{level}" for level in range(7))
"""Marks of cells for the colours of a heat map, from the slowest to the fastest."""
_COLOURED = {*SHADES, "none"}


class Cell(NamedTuple):
    """A text with a mark for its meaning: a verdict's status, ``code``, best, tied, a shade."""

    text: str
    mark: str = ""
    hint: str = ""
    """Text that a page adds to a coloured cell with only a sign."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cells: Sequence[str | Cell]
    text: bool = field(default=False, kw_only=True)
    """True for words: aligned left, and wrapped if room is short. Numbers never wrap."""
    whole: bool = field(default=False, kw_only=True)
    over: str = field(default="", kw_only=True)
    """Heading above the name, on its own line."""
    heads: bool = field(default=False, kw_only=True)
    """True if the column names the rows."""
    spans: bool = field(default=False, kw_only=True)
    """True if a text also applies to the empty cells below it."""
    spare: int = field(default=0, kw_only=True)
    """Order in which columns of a table that is too wide are dropped, highest first; 0 is never dropped."""

    @property
    def texts(self) -> list[str]:
        return [cell.text if isinstance(cell, Cell) else cell for cell in self.cells]

    def rows_spanned(self) -> list[int]:
        """Return the number of rows that each row's cell spans; 0 if a cell above spans the row."""
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
    """Kind of content, for a page's style."""
    marks: Sequence[str] = ()
    """The mark of each row: best, tied or nothing."""
    cut: bool = False
    """True if the last column is shortened to the line width, so that each row is one line."""
    dense: bool = False
    """True if columns touch, because their texts include spaces."""

    @property
    def gap(self) -> int:
        """Return the spaces between two columns."""
        return 0 if self.dense else 2

    @property
    def shown(self) -> list[Column]:
        """Return the columns with content; in a table without rows, those of words."""
        rows = bool(self.columns and self.columns[0].cells)
        return [column for column in self.columns if (any(column.texts) if rows else column.text)]

    def fitting(self, width: int) -> Sheet:
        """Return the sheet without the columns that do not fit into `width`; the most dispensable
        go first.
        """
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
        """Yield sheets of at most `width` characters if possible: each has the naming columns, and as many
        others as fit.
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
        """Return the characters of a line without wrapping."""
        return sum(column.width + self.gap for column in self.shown) - self.gap

    def lines(self, width: int) -> list[str]:
        """Return plain text: the headings, then a line for each row."""
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

    def html_head(self) -> Markup:
        return Markup(_html().head(self.shown))

    def html_rows(self) -> Iterator[Markup]:
        columns = [(column, column.rows_spanned()) for column in self.shown]
        for at, (mark, row) in enumerate(self.marked_rows):
            cells = (
                HtmlCell.of(column, cell, spans[at])
                for (column, spans), cell in zip(columns, row, strict=True)
            )
            yield Markup(_html().row(mark, [cell for cell in cells if cell.rows]))

    def html(self) -> Markup:
        """Return the table in its own region, so that a narrow screen scrolls the table and not the page."""
        return Markup(_html().scrolled(self.title, self.kind, self.html_head(), self.html_rows()))


_LOUD = ("regression", "improvement", "inconclusive", "invalid", "missing", "failed")
_TAGS: Mapping[str, str] = {"code": "code", **dict.fromkeys(_LOUD, "b")}


class HtmlCell(NamedTuple):
    """A cell of a page's table, with unescaped text."""

    column: Column
    text: str
    rows: int
    """Number of rows that the cell spans; 0 if a cell above spans this row."""
    tag: str
    shade: str
    hint: str

    @classmethod
    def of(cls, column: Column, cell: str | Cell, rows: int) -> HtmlCell:
        text, mark, hint = cell if isinstance(cell, Cell) else (cell, "", "")
        text = text.strip()
        if not column.text:
            text = typeset(text).replace(" → ", "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}")
        return cls(column, text, rows, _TAGS.get(mark, ""), mark if mark in _COLOURED else "", hint)


_FOLDER = Path(__file__).parent


def _html() -> Any:
    """Return the macros that make a table's HTML."""
    return html_environment(_FOLDER).get_template("sheet.j2").module


CLOSING = Markup("</main></body></html>")


def opening(title: str, style: str) -> Markup:
    """Return the head of a page. Its policy allows its own style and nothing else.

    `style` follows the common style: light and dark, wide and narrow, contrast of at least 4.5 : 1.
    """
    style = (_FOLDER / "page.css").read_text(encoding="utf-8") + style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = html_environment(_FOLDER).get_template("opening.j2")
    return Markup(template.render(title=title, style=Markup(style), digest=digest).rstrip("\n"))
