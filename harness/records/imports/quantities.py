"""Units of values in other programs' files: times, and rates, which become the time of one unit of work.

For example, 2,000 GB/s becomes 0.5 ms for each GB. That time is proportional to the launch's, so ratios show
the same change. The case's name contains the unit of work, and a record shows the file's rate again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.errors import StoreError
from harness.records.imports.identity import identity_of
from harness.records.imports.imported import (
    DeviceCases,
    Format,
    ImportedCase,
    ImportedFile,
    check_not_empty,
    device_of,
    identifier,
    renamings,
    with_unique_names,
    wrong_time,
)

Better = Literal["lower", "higher"]
_TIMES_NS: Mapping[str, float] = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_PER_LAUNCH = re.compile(r"/(iter|iteration|op|call|launch|run|round)s?$")
_RATE = re.compile(
    r"(?P<work>[A-Za-z][A-Za-z0-9 _.*()-]{0,40}?) ?(/|per )(s|sec|second)|(?P<flop>[kMGTP]?FLOP)S"
)
_BYTES = re.compile(r"(?P<prefix>[kKMGTP]?)(?P<binary>i?)(B|byte|bytes)")
_FLOP = re.compile(r"(?P<prefix>[kKMGTP]?)(FLOP|FLOPs|flop|flops)")
COMMIT = re.compile(r"[0-9a-f]{7,64}")
"""The hash of a commit, or its first digits."""
_PREFIXES = ("", "k", "M", "G", "T", "P")
_MOST_TOLD = 3
KNOWN = "ns, us, ms, s, or a rate such as GB/s"


@dataclass(frozen=True, slots=True)
class Quantity:
    """The quantity of a value: a time, or a rate."""

    unit: str
    unit_ns: float = 0.0
    """Length of the unit in nanoseconds; 0 for a rate."""
    work: str = ""
    """The unit of work of a rate, such as GB; empty for a time."""

    def times_ns(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return values as times. They must be positive."""
        if self.work:
            return tuple(1e9 / value for value in values)
        return tuple(self.unit_ns * value for value in values)

    @property
    def moved_bytes(self) -> int | None:
        """Return the bytes of one unit of work; None if it is not in bytes."""
        found = _BYTES.fullmatch(self.work)
        return _amount(found, 1024 if found["binary"] else 1000) if found else None

    @property
    def flop(self) -> int | None:
        """Return the floating-point operations of one unit of work; None if it is not in these."""
        found = _FLOP.fullmatch(self.work)
        return _amount(found, 1000) if found else None


def _amount(found: re.Match[str], base: int) -> int:
    return int(base ** _PREFIXES.index(found["prefix"].replace("K", "k")))


def quantity_of(unit: str, better: Better | None) -> Quantity:
    """Return the quantity of a unit. Raises ValueError with the reason for an unknown unit."""
    unit_ns = _TIMES_NS.get(_PER_LAUNCH.sub("", unit.strip()))
    if unit_ns is not None:
        if better == "higher":
            raise ValueError(f"{unit!r} is a time, and lower is better")
        return Quantity(unit, unit_ns=unit_ns)
    rate = _RATE.fullmatch(unit.strip())
    if rate is None:
        raise ValueError(f"{unit[:40]!r} is no unit that is known here; expected {KNOWN}")
    if better != "higher":
        raise ValueError(f"{unit!r} is a rate, and higher is better")
    return Quantity(unit, work=rate["work"] or rate["flop"])


def with_values(case: ImportedCase, values: Sequence[float], quantity: Quantity) -> ImportedCase:
    """Return a case with values as its times, or as failed if a value is invalid."""
    if quantity.work:
        case = replace(
            case,
            kernel=identifier(f"{case.kernel}_per_{quantity.work}"),
            rate=quantity.unit,
            moved_bytes=quantity.moved_bytes,
            flop=quantity.flop,
        )
    if not values:
        why = (
            "The file has no time of it, so nothing can be judged. Have the program measure it at least once."
        )
        return replace(case, failed=why)
    wrong = next((each for each in values if not 0 < each < math.inf), None)
    if wrong is not None:
        return replace(
            case,
            failed=f"A value of {wrong:g} {quantity.unit} is no measurement: it must be positive and finite. "
            "Where a clock is too coarse for one launch, time several and give their mean.",
        )
    times_ns = quantity.times_ns(values)
    if problem := wrong_time(times_ns):
        return replace(case, failed=problem)
    return replace(case, times_ns=times_ns)


def case_of(name: str, value: float, unit: str, better: Better, harness: str) -> ImportedCase:
    """Return the case of one value without repetitions. Raises ValueError as `quantity_of` does."""
    case = ImportedCase(kernel=identifier(name), sizes={}, name=name, clock=harness)
    return with_values(case, [value], quantity_of(unit, better))


def file_of_figures(
    path: Path, kind: Format, written_by: str, found: Sequence[ImportedCase], problems: Sequence[str]
) -> ImportedFile:
    """Return a file of such cases, without machine and program.

    Raises StoreError if no case is left.
    """
    if problems and not found:
        raise StoreError(f"{path} has no figure that can be kept. {' '.join(problems[:_MOST_TOLD])}")
    check_not_empty(path, found)
    identity = identity_of(str(path), written_by, machine={"harness": kind}, others={}, given={})
    cases = with_unique_names(found)
    device = device_of("unavailable: the file does not tell it", identity, None)
    return ImportedFile(
        path=path,
        format=kind,
        version=written_by,
        executable="",
        started_at=None,
        devices=(DeviceCases(device=device, cases=tuple(cases), identity=identity),),
        problems=(*problems, *renamings(found, cases)),
    )


def of_commit(file: ImportedFile, commit: str) -> ImportedFile:
    """Return a file of one device with a commit."""
    [found] = file.devices
    return replace(file, devices=(replace(found, identity=replace(found.identity, commit=commit)),))
