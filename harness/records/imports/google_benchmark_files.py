"""Files that a Google Benchmark executable writes with ``--benchmark_out=FILE``."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import StoreError
from harness.records.imports import imported
from harness.records.imports.identity import Identity, identity_of, names_model
from harness.records.types import DeviceInfo

_KNOWN = 1
"""Version of its JSON's schema. Files from before 2023 lack it, and equal the first version."""
_UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_HOW_LONG = re.compile(r"(iterations|repeats|min_time|min_warmup_time):[\d.]+s?")
"""Parts of a benchmark's name that say only how long it is measured."""
_SUMMARY = re.compile(r"(.+)_(mean|median|stddev|cv|min|max|BigO|RMS)")
_UNKNOWN = "unavailable: Google Benchmark's JSON does not tell it"
_MACHINE = ("host_name", "num_cpus", "cpu_scaling_enabled", "aslr_enabled", "caches", "library_build_type")
"""Keys of the context that can change a time. `mhz_per_cpu` may be a momentary clock."""
_OTHERS = ("executable", "library_version", "json_schema_version", "date", "load_avg", "mhz_per_cpu")
_TIMES_ITSELF = "manual_time"


class _Cache(msgspec.Struct):
    level: imported.Integer = 0
    size: imported.Integer = 0


class _Context(msgspec.Struct):
    num_cpus: imported.Integer
    mhz_per_cpu: float = 0
    date: str = ""
    host_name: str = ""
    executable: str = ""
    caches: list[_Cache] = []
    library_version: str = ""


class _GoogleEntry(msgspec.Struct):
    name: str
    run_name: str = ""
    run_type: str = ""
    aggregate_name: str = ""
    family_index: imported.Integer | None = None
    per_family_instance_index: imported.Integer | None = None
    repetition_index: imported.Integer | None = None
    iterations: imported.Integer = 0
    real_time: float = 0.0
    cpu_time: float = 0.0
    time_unit: str = "ns"
    label: str = ""
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False
    skip_message: str = ""
    bytes_per_second: float = 0.0


class _GoogleFile(msgspec.Struct):
    context: _Context
    benchmarks: list[_GoogleEntry]


def read_google_benchmark(path: Path, content: Mapping[str, Any]) -> imported.ImportedFile:
    """Read a file. Raises StoreError for another version, and for anything Google Benchmark does
    not write.
    """
    version = content["context"].get("json_schema_version", _KNOWN)
    if version != _KNOWN:
        raise StoreError(
            f"{path} has version {str(version)[:40]!r} of Google Benchmark's JSON; known here is {_KNOWN}. "
            "Upgrade gpu-harness to read it."
        )
    given = imported.converted(path, content, _GoogleFile, "Google Benchmark")
    context = given.context
    labels = sorted({each.label for each in given.benchmarks if names_model(each.label)})
    identity = _identity(path, {**content["context"], **({"label": labels} if labels else {})}, context)
    # Two names that differ only in the measuring time are the same, and so get a digest.
    found = [_case(path, runs, identity) for runs in _runs(given.benchmarks)]
    cases = imported.with_unique_names(found)
    imported.check_not_empty(path, cases)
    return imported.ImportedFile(
        path=path,
        format="google-benchmark",
        version=identity.written_by,
        executable=imported.executable_name(context.executable),
        # Older versions write local time without a zone, which is no moment.
        started_at=imported.utc_moment(context.date),
        host=context.host_name,
        devices=(
            imported.DeviceCases(device=_device(context, identity), cases=tuple(cases), identity=identity),
        ),
        problems=(*_unknown_card(given, identity), *imported.renamings(found, cases)),
    )


def _identity(path: Path, content: Mapping[str, Any], context: _Context) -> Identity:
    return identity_of(
        str(path),
        f"google-benchmark {context.library_version}".strip(),
        machine={"harness": "google-benchmark", **{key: content[key] for key in _MACHINE if key in content}},
        clocks={"mhz_per_cpu": context.mhz_per_cpu} if 0 < context.mhz_per_cpu < 1e6 else {},
        others={"executable": imported.executable_name(context.executable)},
        given={key: value for key, value in content.items() if key not in (*_MACHINE, *_OTHERS)},
    )


def _unknown_card(given: _GoogleFile, identity: Identity) -> tuple[str, ...]:
    """Return a sentence that a benchmark with its own timer may have run on an unnamed card."""
    named = next((each.name for each in given.benchmarks if _TIMES_ITSELF in each.name.split("/")), None)
    if named is None or identity.cards:
        return ()
    told = f"{named} times itself, and the file names no card, so its host stands for the device."
    return (f"{told} If it ran on a GPU, name that one: --benchmark_context=gpu_name=NAME.",)


def _runs(entries: Sequence[_GoogleEntry]) -> list[list[_GoogleEntry]]:
    """Return the entries of each benchmark: its repetitions, and their aggregates.

    Versions before 1.5 mark neither the name of a run nor aggregates, except by the ending of the name. If a
    benchmark has a mean and a standard deviation, these may be everything that was written. Two benchmarks
    may share a name: their positions in their families distinguish them, or a repeated repetition number.
    """
    names = {each.name for each in entries}
    names |= {name[: -len("_mean")] for name in names if name.endswith("_mean")} & {
        name[: -len("_stddev")] for name in names if name.endswith("_stddev")
    }
    runs: dict[Any, list[_GoogleEntry]] = defaultdict(list)
    seen: Counter[Any] = Counter()
    for entry in entries:
        old = None if entry.run_type else _SUMMARY.fullmatch(entry.name)
        if old and (old[1] in names or old[2] in ("BigO", "RMS")):
            entry.run_type, entry.aggregate_name, entry.run_name = "aggregate", old[2], old[1]
        if entry.aggregate_name in ("BigO", "RMS"):
            continue
        place = entry.run_name or entry.name, entry.family_index, entry.per_family_instance_index
        part = entry.aggregate_name or entry.repetition_index
        runs[place, seen[place, part]].append(entry)
        seen[place, part] += part is not None
    return list(runs.values())


def _placed(name: str) -> tuple[str, dict[str, int]]:
    """Return ``BM_copy/8192/threads:2/real_time`` as kernel ``BM_copy_real_time`` at arg1=8192, threads=2."""
    family, *parts = name.split("/")
    kept, sizes = [family], dict[str, int]()
    place = 0
    for part in parts:
        if _HOW_LONG.fullmatch(part):
            continue
        axis, colon, value = part.rpartition(":")
        if re.fullmatch(r"-?[0-9]{1,18}", value):
            place += not colon
            label = imported.identifier(axis) if colon else f"arg{place}"
            if 1 <= int(value) <= imported.LARGEST_SIZE and label not in sizes:
                sizes[label] = int(value)
                continue
        kept.append(part)
    return imported.identifier("/".join(kept)), sizes


def _case(path: Path, entries: Sequence[_GoogleEntry], identity: Identity) -> imported.ImportedCase:
    name = entries[0].run_name or entries[0].name
    kernel, sizes = _placed(name)
    case = imported.ImportedCase(kernel=kernel, sizes=sizes, name=name)
    for entry in entries:
        if entry.error_occurred:
            return replace(case, failed=entry.error_message or imported.NO_REASON)
        if entry.skipped:
            return replace(case, skipped=entry.skip_message or imported.NO_REASON)
        if entry.time_unit not in _UNITS_NS:
            raise StoreError(
                f"{path}, {name}: its time is in {entry.time_unit[:40]!r}; known are {', '.join(_UNITS_NS)}."
            )
    repeated = [entry for entry in entries if entry.run_type != "aggregate"]
    means = [entry for entry in entries if entry.aggregate_name == "mean"]
    # As the file itself says: times that are not wall-clock times are CPU times.
    on_wall = bool({"real_time", _TIMES_ITSELF} & set(name.split("/")))
    field, clock = ("real_time", "wall") if on_wall else ("cpu_time", "cpu")
    times_ns = tuple(getattr(each, field) * _UNITS_NS[each.time_unit] for each in repeated or means)
    if wrong := imported.wrong_time(times_ns):
        return replace(case, failed=wrong)
    first = (repeated or means)[0]
    counts = {each.iterations for each in repeated}
    return replace(
        case,
        times_ns=times_ns,
        launches=counts.pop() if len(counts) == 1 and min(counts) > 0 else None,
        clock=f"google-benchmark {clock}",
        device_clock=bool(identity.cards) and _TIMES_ITSELF in name.split("/"),
        moved_bytes=imported.rounded(first.bytes_per_second * times_ns[0] / 1e9),
    )


def _device(context: _Context, identity: Identity) -> DeviceInfo:
    last = max(context.caches, key=lambda each: each.level, default=None)
    return imported.device_of(
        _UNKNOWN,
        identity,
        context.host_name,
        compute_units=context.num_cpus,
        l2_bytes=last.size if last else None,
        max_clock_mhz=imported.rounded(context.mhz_per_cpu),
    )
