"""Files of an nvbench executable, written with ``--json`` or ``--jsonbin``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.errors import StoreError
from harness.records.imports import imported
from harness.records.imports.identity import Identity, identity_of
from harness.records.types import DeviceInfo, L2Policy
from harness.system.decoding import convert
from harness.system.files import read_regular

_KNOWN = 1
"""Major version of its JSON. Minor versions only add to it."""
_SAMPLES = "nv/json/bin:nv/cold/sample_times"
_MEANS: Sequence[tuple[str, str, str, L2Policy]] = (
    ("nv/cold/time/gpu/mean", "nv/cold/sample_size", "nvbench cold", "cold"),
    ("nv/cpu_only/time/cpu/mean", "nv/cpu_only/sample_size", "nvbench cpu-only", "hot"),
    ("nv/batch/time/gpu/mean", "nv/batch/sample_size", "nvbench batch", "hot"),
)
"""Tags of a mean time and of its number of launches, the best first, with its clock and the state
of the L2."""
_WRITES = ("--csv", "--json", "--jsonbin", "--markdown", "--md")
_LOCKS = ("--lgc", "--lock-gpu-clocks")
_FASTEST_MHZ = 1e4
_MAX_BLOCK, _MAX_GRID = (1024, 1024, 64), (2**31 - 1, 65535, 65535)
"""Largest block and grid of every card since compute capability 3.0."""


class _JsonVersion(msgspec.Struct):
    major: int
    string: str


class _Library(msgspec.Struct):
    string: str = ""


class _Versions(msgspec.Struct):
    json: _JsonVersion
    nvbench: _Library = msgspec.field(default_factory=_Library)


class _Meta(msgspec.Struct):
    version: _Versions
    argv: list[str] | None = None


class _NvbenchHead(msgspec.Struct):
    meta: _Meta


class _Device(msgspec.Struct):
    id: imported.Integer
    name: str
    sm_version: imported.Integer
    number_of_sms: imported.Integer
    max_threads_per_block: imported.Integer
    global_memory_size: imported.Integer
    shared_memory_per_block: imported.Integer
    l2_cache_size: imported.Integer
    sm_default_clock_rate: imported.Integer


class _Value(msgspec.Struct):
    name: str
    type: str
    value: str | float | None


class _Summary(msgspec.Struct):
    tag: str
    data: list[_Value] | None = None


class _State(msgspec.Struct):
    name: str
    device: imported.Integer | None = None
    axis_values: list[_Value] | None = None
    summaries: list[_Summary] | None = None
    is_skipped: bool = False
    skip_reason: str = ""
    cold_warmup_runs: imported.Integer | None = None


class _NvbenchBenchmark(msgspec.Struct):
    name: str
    states: list[_State] | None


class _NvbenchFile(msgspec.Struct):
    devices: list[_Device] | None
    benchmarks: list[_NvbenchBenchmark]


def read_nvbench(path: Path, content: Mapping[str, Any]) -> imported.ImportedFile:
    """Read a file. Raises StoreError for another version, and for anything that nvbench does not write."""
    meta = _meta(path, content)
    given = imported.converted(path, content, _NvbenchFile, "nvbench")
    devices = {each.id: _device(each) for each in given.devices or ()}
    cases: dict[int, list[imported.ImportedCase]] = {number: [] for number in devices}
    problems: list[str] = []
    for benchmark in given.benchmarks:
        for state in benchmark.states or ():
            where = f"{path}, {benchmark.name} [{state.name}]"
            case = _case(path, benchmark.name, state, problems)
            number = _device_of(state, devices)
            found = None if number is None else cases.get(number)
            if found is None:
                raise StoreError(f"{where}: its device is {state.device}; the file has {[*devices]}.")
            found.append(case)
    imported.check_not_empty(path, [case for found in cases.values() for case in found])
    unique = {number: imported.with_unique_names(found) for number, found in cases.items() if found}
    return imported.ImportedFile(
        path=path,
        format="nvbench",
        version=_version(meta),
        executable=imported.executable_name(meta.argv[0] if meta.argv else ""),
        started_at=None,
        devices=tuple(
            imported.DeviceCases(
                device=devices[number],
                cases=tuple(named),
                identity=_identity(path, content, meta, number),
            )
            for number, named in unique.items()
        ),
        problems=(
            *problems,
            *(each for number, named in unique.items() for each in imported.renamings(cases[number], named)),
        ),
    )


def _version(meta: _Meta) -> str:
    return f"nvbench {meta.version.nvbench.string}".strip()


def _identity(path: Path, content: Mapping[str, Any], meta: _Meta, number: int) -> Identity:
    """Return the identity of one device's results."""
    device = next(each for each in content["devices"] if each["id"] == number)
    lock, rest = _arguments(meta.argv or ())
    return identity_of(
        str(path),
        _version(meta),
        machine={
            "harness": "nvbench",
            **{f"device.{key}": value for key, value in device.items()},
            **({"clock lock": lock} if lock else {}),
        },
        others={"arguments": " ".join(rest)},
        given={key: value for key, value in content["meta"].items() if key not in ("argv", "version")},
    )


def _arguments(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Split the command line: how nvbench locked the clock, and all arguments without result files."""
    lock, rest, words = "", list[str](), iter(argv[1:])
    for word in words:
        if word in _WRITES:
            next(words, None)
        elif word in _LOCKS:
            lock = next(words, "")
        else:
            rest.append(word)
    return lock, rest


def _meta(path: Path, content: Mapping[str, Any]) -> _Meta:
    try:
        meta = convert(content, _NvbenchHead).meta
    except ValueError:
        raise StoreError(
            f"{path} does not say which version of nvbench's JSON it is, as files from before 2021 do not; "
            f"known here is {_KNOWN}.x. Run the benchmark anew with a newer nvbench."
        ) from None
    if meta.version.json.major != _KNOWN:
        raise StoreError(
            f"{path} is version {meta.version.json.string[:40]!r} of nvbench's JSON; known here is "
            f"{_KNOWN}.x. Upgrade gpu-harness to read it."
        )
    return meta


def _device(given: _Device) -> DeviceInfo:
    unknown = "unavailable: nvbench's JSON does not tell it"
    return DeviceInfo(
        spec=f"cuda:{given.id}",
        backend="cuda",
        name=given.name,
        vendor="NVIDIA",
        driver=unknown,
        kind="gpu",
        arch=f"sm_{given.sm_version // 10}",
        compute_capability=(given.sm_version // 100, given.sm_version // 10 % 10),
        compute_units=given.number_of_sms,
        memory_bytes=given.global_memory_size,
        l2_bytes=given.l2_cache_size,
        max_threads_per_block=given.max_threads_per_block,
        max_block=_MAX_BLOCK,
        max_grid=_MAX_GRID,
        max_shared_bytes=given.shared_memory_per_block,
        max_clock_mhz=round(given.sm_default_clock_rate / 1e6),
    )


def _device_of(state: _State, devices: Mapping[int, DeviceInfo]) -> int | None:
    """Return the device of a state. Host-only measurements have none, and count for the first device."""
    on_host = any(each.tag.startswith("nv/cpu_only/") for each in state.summaries or ())
    return next(iter(devices), None) if on_host and state.device not in devices else state.device


def _case(path: Path, name: str, state: _State, problems: list[str]) -> imported.ImportedCase:
    kernel, sizes = imported.placed(
        name, [(each.name, _axis_value(each)) for each in state.axis_values or ()]
    )
    axes = " ".join(f"{each.name}={each.value}" for each in state.axis_values or ())
    case = imported.ImportedCase(kernel=kernel, sizes=sizes, name=f"{name} {axes}".strip())
    if state.is_skipped:
        return replace(case, skipped=state.skip_reason or imported.NO_REASON)
    summaries = {each.tag: {one.name: one.value for one in each.data or ()} for each in state.summaries or ()}
    found = next((each for each in _MEANS if each[0] in summaries), None)
    if found is None:
        return replace(case, failed="The file has no time of it.")
    mean, size, clock, l2 = found
    mean_s, launches = _number(summaries, mean), imported.rounded(_number(summaries, size)) or 1
    times_s: Sequence[float] = ()
    if l2 == "cold" and _SAMPLES in summaries:
        times_s, problem = _samples(path, summaries[_SAMPLES])
        problems += [f"{kernel} [{state.name}]: {problem}"] if problem else []
    bytes_per_s = _number(summaries, "nv/cold/bw/global/bytes_per_second")
    clock_hz = _number(summaries, "nv/cold/sm_clock_rate/mean")
    times_ns = tuple(1e9 * each for each in times_s or (mean_s,))
    if wrong := imported.wrong_time(times_ns):
        return replace(case, failed=wrong)
    return replace(
        case,
        times_ns=times_ns,
        launches=1 if times_s else max(launches, 1),
        clock=clock,
        device_clock="/gpu/" in mean,
        l2=l2,
        warmup_launches=state.cold_warmup_runs,
        moved_bytes=imported.rounded(bytes_per_s * mean_s),
        sm_clock_mhz=clock_hz / 1e6 if 0 < clock_hz / 1e6 <= _FASTEST_MHZ else None,
    )


def _axis_value(axis: _Value) -> str | int:
    text = str(axis.value)
    return int(text) if axis.type == "int64" and re.fullmatch(r"-?[0-9]{1,18}", text) else text


def _number(summaries: Mapping[str, Mapping[str, str | float | None]], tag: str) -> float:
    """Return a summary's value; 0 if it is missing or no number."""
    try:
        value = float(summaries.get(tag, {}).get("value") or 0)
    except ValueError:
        return 0.0
    return value if np.isfinite(value) else 0.0


def _samples(path: Path, summary: Mapping[str, str | float | None]) -> tuple[Sequence[float], str]:
    """Return times of the samples in seconds, or why there are none.

    nvbench writes them to a folder beside the JSON. The path may be from another machine or version, so only
    its last two names are used.
    """
    names = str(summary.get("filename", "")).replace("\\", "/").split("/")[-2:]
    if len(names) < 2 or not all(re.fullmatch(r"(?!\.\.?$)[^\0]+", name) for name in names):
        return (), "it names no file of its samples; their mean is taken."
    file = path.parent.joinpath(*names)
    try:
        content = read_regular(file, imported.LARGEST_BYTES)
    except OSError as error:
        return (), f"its samples in {file} cannot be read ({error.strerror or error}); their mean is taken."
    if not content or len(content) % 4 or str(summary.get("size")) != str(len(content) // 4):
        return (), (
            f"its samples in {file} have {len(content)} bytes, and {summary.get('size')} samples have four "
            "each; their mean is taken."
        )
    samples: list[float] = np.frombuffer(content, "<f4").astype(np.float64).tolist()
    return samples, ""
