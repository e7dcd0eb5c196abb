"""Files with one result a line, which any program can write: the format is in docs/benchmark-files.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from harness.errors import StoreError
from harness.records.imports import imported
from harness.records.imports.identity import identity_of
from harness.records.imports.quantities import Better, quantity_of, with_values
from harness.records.types import L2Policy

NAME = "lines"
_REQUIRED = frozenset(("name", "times", "unit"))
_UNKNOWN = "unavailable: the file does not tell it"
_Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    times: list[float]
    unit: str
    params: dict[str, int | float | str | bool | None] = {}
    launches: _Count | None = None
    clock: Literal["device", "host"] | None = None
    l2: L2Policy = "hot"
    better: Better | None = None
    device: str = ""

    @property
    def how(self) -> tuple[object, ...]:
        """Return the measuring method, which is equal in all lines of a case."""
        return self.unit, self.launches, self.clock, self.l2, self.better


def is_line(content: bytes) -> bool:
    """Return True if the first line is a complete result."""
    first = content.lstrip().partition(b"\n")[0]
    try:
        found = imported.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and len(_REQUIRED & found.keys()) > 1


def read_lines(path: Path, content: bytes) -> imported.ImportedFile:
    """Read a file of results. Raises StoreError with the line's number for an invalid line."""
    lines: dict[str, dict[str, list[tuple[int, _Line]]]] = defaultdict(lambda: defaultdict(list))
    for number, line in _lines(path, content):
        lines[line.device][imported.label(line.name, line.params)].append((number, line))
    found = {device: [_case(path, of_case) for of_case in cases.values()] for device, cases in lines.items()}
    imported.check_not_empty(path, [case for cases in found.values() for case in cases])
    unique = {device: imported.with_unique_names(cases) for device, cases in found.items()}
    return imported.ImportedFile(
        path=path,
        format="lines",
        version="JSON lines",
        executable="",
        started_at=None,
        devices=tuple(_on_device(path, device, cases) for device, cases in unique.items()),
        problems=tuple(
            each for device, cases in unique.items() for each in imported.renamings(found[device], cases)
        ),
    )


def _lines(path: Path, content: bytes) -> Iterator[tuple[int, _Line]]:
    for number, text in enumerate(content.splitlines(), 1):
        if text.strip():
            yield number, _line(f"{path}, line {number}", text)


def _line(where: str, text: bytes) -> _Line:
    try:
        found = imported.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{where} is no JSON: {error}. A process that was ended while it wrote leaves half a line: run "
            "it again, and write each result as one line."
        ) from None
    line = imported.converted(where, found, _Line, "the line format")
    if not line.name.strip():
        raise StoreError(f"{where} has an empty name, so no verdict could name it: give each result a name.")
    return line


def _case(path: Path, lines: Sequence[tuple[int, _Line]]) -> imported.ImportedCase:
    """Join the lines of one case, which several calls in one process may have written."""
    (first_number, first), *others = lines
    label = imported.label(first.name, first.params)
    for number, other in others:
        if other.how != first.how:
            raise StoreError(
                f"{path}, line {number}: {label[:100]} has another unit, clock, l2, better or number of "
                f"launches than in line {first_number}, so its times cannot be joined. Give it another name."
            )
    try:
        quantity = quantity_of(first.unit, first.better)
    except ValueError as error:
        raise StoreError(
            f'{path}, line {first_number}: {error}. Correct its "unit", or "better", which is "higher" for '
            "rates alone."
        ) from None
    params = [(key, each if type(each) is int else str(each)) for key, each in first.params.items()]
    kernel, sizes = imported.placed(first.name, params)
    case = imported.ImportedCase(
        kernel=kernel,
        sizes=sizes,
        name=label,
        launches=first.launches,
        clock=f"program's {first.clock or 'own'} clock",
        device_clock=first.clock == "device",
        l2=first.l2,
    )
    return with_values(case, [time for _, line in lines for time in line.times], quantity)


def _on_device(path: Path, device: str, cases: Sequence[imported.ImportedCase]) -> imported.DeviceCases:
    given = {"gpu": device} if device else {}
    identity = identity_of(str(path), "JSON lines", machine={"harness": NAME}, others={}, given=given)
    return imported.DeviceCases(
        device=imported.device_of(_UNKNOWN, identity, None), cases=tuple(cases), identity=identity
    )
