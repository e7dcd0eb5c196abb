"""Tables of values that any program can write: CSV rows with a name, value and unit.

The columns `direction` and `commit` are optional. docs/benchmark-files.md describes the format.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.records.imports import imported
from harness.records.imports.quantities import (
    COMMIT,
    Better,
    file_of_figures,
    of_commit,
    quantity_of,
    with_values,
)
from harness.system.decoding import convert

_REQUIRED = ("name", "value", "unit")
_COLUMNS = (*_REQUIRED, "direction", "commit")
_SHOWN = 60
"""Characters of a cell in a message."""


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: float
    unit: str
    direction: Better = "lower"
    commit: str = ""


def is_table(content: bytes) -> bool:
    """Return True if the first line names the columns."""
    return set(_REQUIRED) <= set(_cells(content.partition(b"\n")[0].decode("utf-8-sig", "replace")))


def read_csv(path: Path, content: bytes) -> list[imported.ImportedFile]:
    """Return a file for each commit, in the table's order; rows without a commit are one file.

    Raises StoreError with the line's number for an invalid row.
    """
    commits: dict[str, dict[str, list[_Row]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(path, content.decode("utf-8-sig", "replace").splitlines()):
        commits[row.commit][row.name].append(row)
    if not commits:
        imported.check_not_empty(path, [])
    files = {commit: _file(path, names.values()) for commit, names in commits.items()}
    return [of_commit(file, commit) if commit else file for commit, file in files.items()]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _rows(path: Path, lines: Sequence[str]) -> Iterator[_Row]:
    header = _cells(lines[0])
    if unknown := [each for each in header if each not in _COLUMNS]:
        raise StoreError(
            f"{path} has a column {unknown[0][:_SHOWN]!r}; expected {', '.join(_COLUMNS)}. Remove the column."
        )
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        cells = _cells(line)
        if len(cells) != len(header):
            raise StoreError(
                f"{path}, line {number} has {len(cells)} cells; expected {len(header)}, as in line 1. "
                "Write a cell that has a comma in double quotes."
            )
        yield _row(f"{path}, line {number}", dict(zip(header, cells, strict=True)))


def _row(where: str, cells: dict[str, str]) -> _Row:
    """Return the row of cells. An empty direction or commit counts as missing."""
    given = {key: cell for key, cell in cells.items() if cell or key in _REQUIRED}
    try:
        row = convert(given, _Row, strict=False)
    except msgspec.ValidationError as error:
        raise StoreError(
            f"{where} is no figure: {error}. A row has a name, a number, a unit, a direction (lower or "
            "higher) and the hash of a commit."
        ) from None
    if not row.name:
        raise StoreError(f"{where} has no name, so no verdict could name it: give each figure a name.")
    if row.commit and not COMMIT.fullmatch(row.commit):
        raise StoreError(
            f"{where} has the commit {row.commit[:_SHOWN]!r}; expected 7 to 64 digits of its hash. 'git "
            "rev-parse REVISION' tells it."
        )
    return row


def _file(path: Path, names: Iterable[Sequence[_Row]]) -> imported.ImportedFile:
    """Return the file of one commit. Several rows of one name are its samples."""
    found, problems = list[imported.ImportedCase](), list[str]()
    for rows in names:
        name, unit, direction = rows[0].name, rows[0].unit, rows[0].direction
        if any((row.unit, row.direction) != (unit, direction) for row in rows):
            raise StoreError(
                f"{path} has {name[:_SHOWN]} of one commit with two units or directions, so its figures "
                "cannot be joined. Give them different names."
            )
        case = imported.ImportedCase(kernel=imported.identifier(name), sizes={}, name=name, clock="csv")
        try:
            found.append(with_values(case, [row.value for row in rows], quantity_of(unit, direction)))
        except ValueError as error:
            problems.append(f"{name[:_SHOWN]} is left out: {error}.")
    return file_of_figures(path, "csv", "CSV", found, problems)
