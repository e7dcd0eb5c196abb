"""Reads a file of any known harness, by its content."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from harness.errors import StoreError, UsageError
from harness.records.imports.bencher_files import is_metrics, read_bencher
from harness.records.imports.csv_files import is_table, read_csv
from harness.records.imports.github_action_files import SCRIPT, is_results, read_github_action, script_json
from harness.records.imports.google_benchmark_files import read_google_benchmark
from harness.records.imports.hyperfine_files import is_export, read_hyperfine
from harness.records.imports.imported import (
    PROGRAM_FORMATS,
    Format,
    ImportedCase,
    ImportedFile,
    label,
    parsed,
    read_content,
)
from harness.records.imports.line_files import is_line, read_lines
from harness.records.imports.nvbench_files import read_nvbench
from harness.records.imports.pytest_benchmark_files import (
    Benchmark,
    BenchmarkFile,
    Extra,
    Untimed,
    benchmark_file,
    read_pytest_benchmark,
)
from harness.records.imports.quantities import Better

_READERS: Mapping[Format, Callable[[Path, Any], ImportedFile]] = {
    "nvbench": read_nvbench,
    "google-benchmark": read_google_benchmark,
    "pytest-benchmark": read_pytest_benchmark,
    "hyperfine": read_hyperfine,
    "lines": read_lines,
    "bencher": read_bencher,
}
"""Readers of formats with one process per file. Files of the others may hold several commits."""


def read_imported(path: Path, wanted: Format | None = None) -> ImportedFile:
    """Read what one process of a program wrote, in any format or the `wanted` one. Raises StoreError."""
    found, content = _content(path)
    if found is None or found not in PROGRAM_FORMATS:
        raise StoreError(
            f"{path} is no file of {' or '.join(PROGRAM_FORMATS)}: expected what --json FILE or --jsonbin "
            "FILE of an nvbench executable writes, --benchmark_out=FILE of a Google Benchmark executable, "
            "pytest --benchmark-json=FILE or hyperfine --export-json FILE; or a JSON object a line with "
            "name, times and unit."
        )
    _check_format(path, found, wanted)
    return _READERS[found](path, content)


def read_for_import(path: Path, wanted: Format, better: Better | None) -> list[ImportedFile]:
    """Read a file for import. A history gives a file for each commit.

    `better` is the direction of results without their own. Raises StoreError, UsageError.
    """
    found, content = _content(path)
    if found is None:
        raise StoreError(f"{path} is no file of {wanted}, nor of any other known format.")
    _check_format(path, found, wanted)
    if found == "github-action-benchmark":
        return read_github_action(path, content, better)
    if better is not None:
        raise UsageError(f"A file of {found} states the better direction: leave out --better.")
    return read_csv(path, content) if found == "csv" else [_READERS[found](path, content)]


def _check_format(path: Path, found: Format, wanted: Format | None) -> None:
    if wanted and found != wanted:
        raise StoreError(f"{path} is a file of {found}, not of {wanted}: 'harness import {found}' reads it.")


def _content(path: Path) -> tuple[Format | None, Any]:
    """Return a file's format, and its content for the reader of that format. Raises StoreError."""
    content = read_content(path)
    if is_line(content):
        return "lines", content
    if is_table(content):
        return "csv", content
    json = parsed(path, script_json(content) if content.startswith(SCRIPT) else content)
    return _format_of(json), json


def _format_of(content: Any) -> Format | None:
    if is_results(content):
        return "github-action-benchmark"
    if is_export(content):
        return "hyperfine"
    if not isinstance(content, dict) or not isinstance(content.get("benchmarks"), list):
        return "bencher" if is_metrics(content) else None
    if isinstance(content.get("context"), dict):
        return "google-benchmark"
    if "meta" in content or "devices" in content:
        return "nvbench"
    return "pytest-benchmark" if "machine_info" in content else None


def read_saved(path: Path) -> BenchmarkFile:
    """Return the benchmarks that one process saved with pytest-benchmark or another known harness.

    Raises StoreError.
    """
    found, content = _content(path)
    if found is None or found not in _READERS or found == "pytest-benchmark":
        return benchmark_file(path, content)
    file = _READERS[found](path, content)
    if len(file.devices) != 1:
        raise StoreError(
            f"{path} is of {len(file.devices)} devices; expected one. Measure on one at a time: nvbench has "
            "--devices 0 for that."
        )
    [only] = file.devices
    device, timed = only.device, [case for case in only.cases if case.times_ns]
    return BenchmarkFile(
        path=str(path),
        saved_at=file.started_at or dt.datetime.fromtimestamp(path.stat().st_mtime, dt.timezone.utc),
        identity=only.identity,
        device=device.name,
        on_gpu=device.kind == "gpu" and all(case.device_clock for case in timed),
        benchmarks={label(case.kernel, case.sizes): _benchmark(case) for case in timed},
        harness=file.format,
        untimed={
            (name := label(case.kernel, case.sizes)): Untimed(
                name=name, why=case.skipped or case.failed, skipped=bool(case.skipped)
            )
            for case in only.cases
            if not case.times_ns
        },
        notes=file.problems,
    )


def _benchmark(case: ImportedCase) -> Benchmark:
    return Benchmark(
        name=label(case.kernel, case.sizes),
        fullname=label(case.kernel, case.sizes),
        timer=case.clock,
        median_ns=median(case.times_ns),
        times_ns=case.times_ns,
        extra=Extra(sm_clock_mhz=case.sm_clock_mhz),
    )
