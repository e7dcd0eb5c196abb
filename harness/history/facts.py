"""What the records beside asv's results say of each run: driver, compiler, card."""

from __future__ import annotations

__all__ = ["CONTEXT", "RunFacts", "read_facts"]

import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from harness.errors import StoreError
from harness.history.kept import kept_file, read_kept, write_kept
from harness.records import SCHEMA_VERSION
from harness.store.records_file import PART
from harness.system.files import MOST_BYTES, open_regular, stat_of

_RECORDS = (".jsonl", f".jsonl{PART}")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

CONTEXT = {
    "driver": "driver",
    "compiler": "compiler",
    "gpu_uuid": "card",
    "vbios": "VBIOS",
    "power_limit_w": "power limit, W",
    "application_sm_clock_mhz": "application SM clock, MHz",
    "ecc": "ECC",
    "mig": "MIG",
    "cuda": "CUDA",
    "method": "method of measuring",
    "environment": "asv's environment",
}
"""What begins an epoch when it changes, and how it is called."""


class _Device(msgspec.Struct):
    driver: str = ""
    uuid: str | None = None


class _Toolchain(msgspec.Struct):
    compiler: str = ""


class _Source(msgspec.Struct):
    suite: str = ""
    commit: str | None = None
    dirty: bool = False


class _Run(msgspec.Struct):
    schema_version: int
    started_at: str
    command: str
    source: _Source
    device: _Device
    toolchain: _Toolchain | None = None
    identity: dict[str, str] = msgspec.field(default_factory=dict)


class _Comparison(msgspec.Struct):
    base: _Source
    head: _Source
    command: str


class _FirstLine(msgspec.Struct):
    run: _Run | None = None
    comparison: _Comparison | None = None


class _LastLine(msgspec.Struct):
    problem_changes: tuple[str, ...] = ()


_TAIL_BYTES = 2**18
"""More than the last line of a comparison takes."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a record, as far as a history needs it."""

    file: str
    size: int
    suite: str = ""
    """Empty for what is no run of a commit: a comparison, or a run of the working tree."""
    commit: str = ""
    command: str = ""
    started_at: str = ""
    context: dict[str, str] = msgspec.field(default_factory=dict)
    """By key of CONTEXT; what was not told is not there."""
    problem: str = ""
    base: str = ""
    """Of a comparison that tells changes of the problem: both commits."""
    head: str = ""
    problem_changes: tuple[str, ...] = ()


class _Kept(msgspec.Struct):
    keys: list[str]
    """Of CONTEXT when they were read: with another one they have to be read anew."""
    facts: list[RunFacts]


def read_facts(folder: Path, *, cached: bool = True) -> tuple[RunFacts, ...]:
    """Facts of every record of a card's folder, by name, which is by time. Raises StoreError."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                (each.name, stat_of(each).st_size) for each in entries if each.name.endswith(_RECORDS)
            )
    except OSError as error:
        raise StoreError(f"Cannot read {folder}: {error.strerror or error}.") from None
    file = kept_file(folder, "facts")
    kept = read_kept(file, _Kept) if cached else None
    usable = kept.facts if kept and kept.keys == [*CONTEXT] else []
    known = {(facts.file, facts.size): facts for facts in usable}
    facts = tuple(known.get(entry) or _read(folder / entry[0], entry[1]) for entry in found)
    if cached and [*known.values()] != [*facts]:
        write_kept(file, _Kept([*CONTEXT], [*facts]))
    return facts


def _read(path: Path, size: int) -> RunFacts:
    try:
        with open_regular(path) as file:
            first = msgspec.json.decode(file.readline(MOST_BYTES), type=_FirstLine)
            if first.comparison:
                return _of_comparison(path.name, size, first.comparison, file)
            run = first.run
    except OSError as error:
        why = error.strerror or error
        return RunFacts(file=path.name, size=size, problem=f"{path.name} is left out: {why}.")
    except _UNREADABLE as error:
        return RunFacts(file=path.name, size=size, problem=f"{path.name} is left out: {error}.")
    if run is None or run.source.dirty or not run.source.commit or run.command not in ("asv", "run"):
        return RunFacts(file=path.name, size=size)
    if run.schema_version > SCHEMA_VERSION:
        why = f"its schema is {run.schema_version}, and this harness reads up to {SCHEMA_VERSION}"
        return RunFacts(file=path.name, size=size, problem=f"{path.name} is left out: {why}.")
    return RunFacts(
        file=path.name,
        size=size,
        suite=run.source.suite,
        commit=run.source.commit,
        command=run.command,
        started_at=run.started_at,
        context=_context(run),
    )


def _of_comparison(name: str, size: int, found: _Comparison, file: BinaryIO) -> RunFacts:
    base, head = found.base, found.head
    file.seek(max(0, size - _TAIL_BYTES))
    told = msgspec.json.decode(file.read().splitlines()[-1], type=_LastLine).problem_changes
    if found.command != "compare" or head.dirty or not (base.commit and head.commit and told):
        return RunFacts(file=name, size=size)
    return RunFacts(
        file=name,
        size=size,
        suite=head.suite,
        base=base.commit,
        head=head.commit,
        problem_changes=told,
    )


def _context(run: _Run) -> dict[str, str]:
    told = {
        **run.identity,
        "driver": run.device.driver,
        "gpu_uuid": run.device.uuid or "",
        "compiler": run.toolchain.compiler if run.toolchain else "",
    }
    known = {key: told.get(key, "") for key in CONTEXT}
    return {key: value for key, value in known.items() if value and not value.startswith("unavailable")}
