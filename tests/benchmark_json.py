"""JSON as nvbench, Google Benchmark and pytest-benchmark write it, made up for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def nvbench_summary(tag: str, value: float, kind: str = "float64") -> dict[str, Any]:
    return {"tag": tag, "name": tag, "data": [{"name": "value", "type": kind, "value": str(value)}]}


def nvbench_state(
    axes: Mapping[str, int | float | str] | None = None, time_s: float = 1e-3, device: int = 0, **more: Any
) -> dict[str, Any]:
    kinds = {int: "int64", float: "float64", str: "string"}
    values = [{"name": k, "type": kinds[type(v)], "value": str(v)} for k, v in (axes or {}).items()]
    return {
        "name": " ".join([f"Device={device}", *(f"{name}={value}" for name, value in (axes or {}).items())]),
        "cold_warmup_runs": 1,
        "device": device,
        "axis_values": values or None,
        "summaries": [
            nvbench_summary("nv/cold/sample_size", 500, "int64"),
            nvbench_summary("nv/cold/time/gpu/mean", time_s),
        ],
        "is_skipped": False,
        **more,
    }


def nvbench_file(
    path: Path,
    benchmarks: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    version: Sequence[int] = (1, 0, 0),
    devices: Sequence[str] = ("Quadro GV100",),
) -> Path:
    """A file with the states of each benchmark."""
    major, minor, patch = version
    told = {"major": major, "minor": minor, "patch": patch, "string": f"{major}.{minor}.{patch}"}
    content = {
        "meta": {
            "argv": ["./build/my.bench", "--json", str(path)],
            "version": {"json": told, "nvbench": told},
        },
        "devices": [
            {
                "id": number,
                "name": name,
                "sm_version": 700,
                "ptx_version": 700,
                "sm_default_clock_rate": 1627000000,
                "number_of_sms": 80,
                "max_threads_per_block": 1024,
                "global_memory_size": 34086060032,
                "l2_cache_size": 6291456,
                "shared_memory_per_block": 49152,
                "ecc_state": False,
            }
            for number, name in enumerate(devices)
        ],
        "benchmarks": [
            {"name": name, "index": index, "axes": None, "states": list(states)}
            for index, (name, states) in enumerate(benchmarks.items())
        ],
    }
    path.write_text(json.dumps(content))
    return path


def with_samples(state: Mapping[str, Any], path: Path, times_s: Sequence[float]) -> dict[str, Any]:
    """A state whose samples are in a file beside the JSON, as --jsonbin has it."""
    folder = path.with_name(f"{path.name}-bin")
    folder.mkdir(exist_ok=True)
    (folder / "0.bin").write_bytes(np.array(times_s, "<f4").tobytes())
    told = [
        {"name": "filename", "type": "string", "value": f"/elsewhere/{folder.name}/0.bin"},
        {"name": "size", "type": "int64", "value": str(len(times_s))},
    ]
    samples = {"tag": "nv/json/bin:nv/cold/sample_times", "hint": "file/sample_times", "data": told}
    return {**state, "summaries": [*state["summaries"], samples]}


def google_entry(name: str, time: float = 100.0, unit: str = "ns", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
        "iterations": 1000,
        "real_time": 2 * time,
        "cpu_time": time,
        "time_unit": unit,
        **more,
    }


def google_file(path: Path, entries: Sequence[Mapping[str, Any]], **context: Any) -> Path:
    head = {
        "date": "2026-11-22T12:00:00+01:00",
        "host_name": "myhost",
        "executable": "./build/my_bench",
        "num_cpus": 8,
        "mhz_per_cpu": 3600,
        "caches": [{"type": "Unified", "level": 3, "size": 33554432, "num_sharing": 8}],
        "library_version": "v1.9.5",
        "library_build_type": "release",
        "json_schema_version": 1,
    }
    path.write_text(json.dumps({"context": {**head, **context}, "benchmarks": list(entries)}))
    return path


def google_script(entries: Sequence[Mapping[str, Any]], before: str = "") -> str:
    """A shell script that does as a Google Benchmark executable does: writes JSON to --benchmark_out."""
    context = {"executable": "./bench", "num_cpus": 2, "library_version": "v1.9.5", "json_schema_version": 1}
    return _script(json.dumps({"context": context, "benchmarks": list(entries)}), before)


def pytest_entry(fullname: str, *times_s: float, **more: Any) -> dict[str, Any]:
    """A benchmark of pytest-benchmark, with the time of every round."""
    middle = sorted(times_s)[len(times_s) // 2]
    stats = {"min": min(times_s), "max": max(times_s), "mean": middle, "median": middle, "data": times_s}
    return {
        "name": fullname.partition("::")[2],
        "fullname": fullname,
        "params": None,
        "options": {"timer": "perf_counter"},
        "stats": {**stats, "rounds": len(times_s), "iterations": 1},
        "extra_info": {},
        **more,
    }


def pytest_content(entries: Sequence[Mapping[str, Any]], commit: str = "", **machine: Any) -> dict[str, Any]:
    return {
        "machine_info": {"node": "myhost", "cpu": {"brand_raw": "AMD EPYC"}, **machine},
        "commit_info": {"id": commit or "unversioned", "dirty": False},
        "benchmarks": list(entries),
        "datetime": "2026-11-22T12:00:00+00:00",
        "version": "5.3.1",
    }


def nvbench_script(file: Path) -> str:
    """A shell script that does as an nvbench executable does: writes a file's JSON after --jsonbin."""
    return f"""#!/bin/sh
if test "$1" = --help; then echo '* Provide a `nvbench::type_strings<T>` specialization'; fi
while test $# -gt 1; do shift; done
cat > "$1" <<'END'
{file.read_text()}
END
"""


def _script(content: str, before: str) -> str:
    return f"""#!/bin/sh
for word; do
  case "$word" in
    --benchmark_out=*) out="${{word#*=}}" ;;
    --help) echo "benchmark [--benchmark_list_tests={{true|false}}] [--benchmark_out=<filename>]"; exit 0 ;;
  esac
done
{before}
cat > "$out" <<'END'
{content}
END
"""
