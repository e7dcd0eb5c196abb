"""A table before it has a look: columns of texts, which a terminal, plain text, Markdown and HTML show alike.

Texts are raw. Each renderer makes them harmless: nobody's words become markup.
"""

from __future__ import annotations

__all__ = ["Cell", "Column", "Sheet", "inline", "safe"]

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from harness.numbers import typeset
from harness.system.texts import harmless

_GAP = 2
"""Spaces between two columns."""
_LEAST = 12
"""Characters of a text that is cut."""
_MARKDOWN = "\\`*_|<["


class Cell(NamedTuple):
    """A text with a word on what it is: a verdict's status, ``code``, best, tied."""

    text: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cells: Sequence[str | Cell]
    text: bool = field(default=False, kw_only=True)
    """Whether it holds words, on the left and folded where there is no room. Numbers never are."""
    whole: bool = field(default=False, kw_only=True)
    """Whether its words are never folded."""
    over: str = field(default="", kw_only=True)
    """What stands above the name, in a line of its own."""
    heads: bool = field(default=False, kw_only=True)
    """Whether it names the rows."""
    spare: int = field(default=0, kw_only=True)
    """Where a table is too wide, columns with the highest of these go first; 0 never goes."""

    @property
    def texts(self) -> list[str]:
        return [cell.text if isinstance(cell, Cell) else cell for cell in self.cells]

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
    """Of each row: best, tied or nothing."""
    cut: bool = False
    """Whether the last column is cut where a line has no room for it, so that each row is one line."""

    @property
    def shown(self) -> list[Column]:
        """The columns that have something to say; of a table without rows those of words."""
        rows = bool(self.columns and self.columns[0].cells)
        return [column for column in self.columns if (any(column.texts) if rows else column.text)]

    def fitting(self, width: int) -> Sheet:
        """With as many of its columns as fit into so many characters, in order of what can be spared."""
        sheet = replace(self, columns=self.shown)
        while sheet.width > width and (most := max(column.spare for column in sheet.columns)):
            sheet = replace(sheet, columns=[column for column in sheet.columns if column.spare < most])
        return _shortened(sheet, width) if self.cut else sheet

    @property
    def width(self) -> int:
        """Characters of a line where nothing is folded."""
        return sum(column.width + _GAP for column in self.shown) - _GAP

    def lines(self, width: int) -> list[str]:
        """As plain text: the headings, then a line a row."""
        columns = self.fitting(width).shown
        rows = zip(*([column.name, *column.texts] for column in columns), strict=True)
        return [
            (" " * _GAP)
            .join(
                harmless(cell).ljust(column.width) if column.text else harmless(cell).rjust(column.width)
                for cell, column in zip(row, columns, strict=True)
            )
            .rstrip()
            for row in rows
        ]

    def markdown(self) -> str:
        columns = self.shown
        names = [inline(f"{column.over} {column.name}".strip()) for column in columns]
        rulers = [":--" if column.text else "--:" for column in columns]
        rows = zip(*([inline(text.strip()) for text in column.texts] for column in columns), strict=True)
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, rulers, *rows))

    def html_head(self) -> str:
        """A row of headings."""
        cells = (
            f'<th scope="col"{_align(column)}>{safe(column.name)}</th>' if column.name else "<td></td>"
            for column in self.shown
        )
        return f"<tr>{''.join(cells)}</tr>"

    def html_rows(self) -> Iterator[str]:
        columns = self.shown
        marks = self.marks or ("",) * len(columns[0].cells)
        for mark, *row in zip(marks, *(column.cells for column in columns), strict=True):
            cells = "".join(_html(column, cell) for column, cell in zip(columns, row, strict=True))
            yield f'<tr class="{mark}">{cells}</tr>' if mark else f"<tr>{cells}</tr>"


def _shortened(sheet: Sheet, width: int) -> Sheet:
    *others, last = sheet.columns
    room = max(_LEAST, width - sum(column.width + _GAP for column in others))
    texts = [text if len(text) <= room else f"{text[: room - 1]}…" for text in last.texts]
    return replace(sheet, columns=[*others, replace(last, cells=texts)])


def inline(text: str) -> str:
    """Anybody's text in a line of Markdown, as text and nothing else."""
    for sign in _MARKDOWN:
        text = text.replace(sign, f"\\{sign}")
    return text


def safe(text: str) -> str:
    """Anybody's text in HTML, as text and nothing else."""
    return html.escape(harmless(text))


_LOUD = ("regression", "improvement", "inconclusive", "invalid", "missing", "failed")
_TAGS: Mapping[str, str] = {"code": "code", **dict.fromkeys(_LOUD, "b")}


def _html(column: Column, cell: str | Cell) -> str:
    text, mark = cell if isinstance(cell, Cell) else (cell, "")
    inner = safe(text) if column.text else safe(typeset(text))
    if tag := _TAGS.get(mark):
        inner = f"<{tag}>{inner}</{tag}>"
    if column.heads:
        return f'<th scope="row"{_align(column)}>{inner}</th>'
    return f"<td{_align(column) if text else ''}>{inner}</td>"


def _align(column: Column) -> str:
    return "" if column.text else ' align="right"'
