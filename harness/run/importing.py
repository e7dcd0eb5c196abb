"""Stores files of other harnesses as records, marked as neither verified nor watched by this harness."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import harness
from harness.errors import UsageError
from harness.records.imports.identity import Identity
from harness.records.imports.imported import DeviceCases, ImportedCase, ImportedFile, identifier
from harness.records.record_files import RecordWriter
from harness.records.types import (
    DeviceInfo,
    Host,
    L2Policy,
    Measurement,
    Row,
    Run,
    Snapshot,
    Source,
    Telemetry,
)
from harness.suite.case_id import CaseId

COMMAND = "import"
HEADLINE = "ms"
NOT_VERIFIED = "The executable's own figure: nothing was verified or watched here."


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A new record, and its source file."""

    file: Path
    machine: str
    run: Run
    rows: tuple[Row, ...]
    path: Path
    """The record's file."""
    problems: tuple[str, ...]
    """Sentences on problems in reading the file."""


def write_imported(
    file: ImportedFile, source: Source, results: Path, machine: str | None
) -> list[ImportedRun]:
    """Store a file's measurements of `source` in the machine's folder below `results`.

    Raises UsageError for one machine name with several devices, and for no name if the file has none either;
    StoreError.
    """
    if machine and len(file.devices) > 1:
        names = ", ".join(each.device.name for each in file.devices)
        raise UsageError(
            f"{file.path} is of {len(file.devices)} devices ({names}), which cannot all be {machine}: leave "
            "out --machine, or measure on one device at a time."
        )
    written = []
    for told in file.devices:
        found = _named(file, told, machine)
        run = _run(file, found, source)
        rows = tuple(_row(file, case, source) for case in found.cases)
        folder = machine if machine and found is told else machine_of(file, run.device)
        with RecordWriter(results / folder, run) as writer:
            for row in rows:
                writer.add(row)
            path = writer.finish(complete=True)
        written.append(
            ImportedRun(file=file.path, machine=folder, run=run, rows=rows, path=path, problems=file.problems)
        )
    return written


def _named(file: ImportedFile, found: DeviceCases, machine: str | None) -> DeviceCases:
    """Return a device's cases. A device without a name in the file gets the machine's name."""
    if found.device.name:
        return found
    if not machine:
        raise UsageError(
            f"{file.path} does not tell on which machine it was measured, and figures of two machines are no "
            "history: name the machine, such as --machine h100-runner."
        )
    return replace(found, device=replace(found.device, name=machine))


def reasons_of(rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each row without a time."""
    return [f"{row.case} ({row.reason}): {row.message}" for row in rows if row.measurement is None]


def machine_of(file: ImportedFile, device: DeviceInfo) -> str:
    """Return the machine's name: the format, and the file's only name for its device or host.

    Example: ``nvbench-quadro-gv100``.
    """
    number = "" if len(file.devices) < 2 else f"-{device.spec.rpartition(':')[2]}"
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")[:80]
    return f"{file.format}-{slug or 'device'}{number}"


def suite_of(file: ImportedFile, given: str | None) -> str:
    """Return the name of the suite: the given one, else the executable's. Raises UsageError."""
    if given is not None:
        return checked_suite(given)
    if not file.executable:
        raise UsageError(f"{file.path} does not tell the name of its executable: give one with --suite.")
    return identifier(file.executable)


def checked_suite(name: str) -> str:
    """Return the name. Raises UsageError if it is not valid for a suite."""
    if name != identifier(name):
        raise UsageError(f"{name!r} is no name of a suite; expected letters, digits and underscores.")
    return name


def _run(file: ImportedFile, found: DeviceCases, source: Source) -> Run:
    device = found.device
    return imported_run(
        file.started_at,
        {
            "method": file.version,
            "format": file.format,
            "file": file.path.name,
            "host_name": file.host or None,
        },
        source=source,
        headline=_headline(found.cases),
        kernels=tuple(dict.fromkeys(case.kernel for case in found.cases)),
        device=device,
        cpu_count=device.compute_units if device.kind == "cpu" else None,
        identity=_facts(found.identity),
    )


def imported_run(
    started_at: dt.datetime | None,
    settings: Mapping[str, str | None],
    *,
    cpu_count: int | None = None,
    **known: Any,
) -> Run:
    """Return the head of a record for a file, with the fields that the file provides."""
    now = dt.datetime.now(dt.timezone.utc)
    return Run(
        harness_version=harness.__version__,
        run_id=secrets.token_hex(8),
        started_at=(started_at or now).astimezone(dt.timezone.utc).isoformat(timespec="seconds"),
        command=COMMAND,
        toolchain=None,
        host=Host(os="", kernel="", cpu="", cpu_count=cpu_count, memory_bytes=None, python=""),
        settings={
            **settings,
            "imported_at": now.isoformat(timespec="seconds"),
            "moment": "of the file" if started_at else "of the import",
        },
        **known,
    )


def _headline(cases: Sequence[ImportedCase]) -> str:
    """Return the unit for the history: of the rates if there are only rates, else of a time."""
    timed = [case for case in cases if case.times_ns]
    rates = [case for case in timed if case.rate]
    if timed and len(rates) == len(timed):
        if all(case.flop for case in rates):
            return "GFLOP/s"
        if all(case.moved_bytes for case in rates):
            return "GB/s"
    return HEADLINE


def _facts(identity: Identity) -> dict[str, str]:
    """Return a file's facts of machine, build and versions, with ECC as drivers spell it."""
    ecc = {"true": "on", "false": "off"}.get(identity.machine.get("device.ecc_state", ""))
    clocks = {name: f"{value:g}" for name, value in identity.clocks.items()}
    return {**identity.others, **identity.machine, **clocks, **({"ecc": ecc} if ecc else {})}


def _row(file: ImportedFile, case: ImportedCase, source: Source) -> Row:
    row = Row(
        case=str(CaseId.of(source.suite, case.kernel, case.sizes)),
        kernel=case.kernel,
        sizes=case.sizes,
        dtype="",
        status="measured",
        flop=case.flop,
        moved_bytes=case.moved_bytes,
    )
    if case.skipped:
        return replace(row, status="skipped", reason="skips-itself", message=case.skipped)
    if case.failed:
        return replace(row, status="failed", reason="not-measured", message=case.failed)
    telemetry = None
    if case.sm_clock_mhz is not None:  # newer versions of nvbench report the mean
        unavailable = f"{file.version} tells no more than the mean SM clock"
        telemetry = imported_telemetry(
            file.format, Snapshot(at_ns=0, sm_clock_mhz=case.sm_clock_mhz), unavailable
        )
    measurement = imported_measurement(
        case.times_ns,
        case.clock,
        l2=case.l2,
        launches=case.launches,
        warmup_launches=case.warmup_launches,
    )
    return replace(row, message=NOT_VERIFIED, measurement=measurement, telemetry=telemetry)


def imported_measurement(
    times_ns: tuple[float, ...],
    clock: str,
    *,
    l2: L2Policy,
    launches: int | None = None,
    warmup_launches: int | None = None,
) -> Measurement:
    """Return times that another harness measured, with its method as far as its file states it."""
    return Measurement(
        times_ns=times_ns,
        launches_per_slot=launches,
        l2=l2,
        clock=clock,
        tick_ns=None,
        warmup_launches=warmup_launches,
        warmup_s=None,
        settled=None,
        stopped_by=None,
        started_ns=None,
        ended_ns=None,
    )


def imported_telemetry(probe: str, during: Snapshot, unavailable: str) -> Telemetry:
    """Return the card's values in a file, without a moment."""
    nothing = Snapshot(at_ns=0)
    return Telemetry(
        probe=probe, before=nothing, during=(during,), after=nothing, unavailable={"probe": unavailable}
    )
