"""A sweep's results in Kernel Tuner's T4 form, for the tools that read that.

T4 is the output half of the "FAIR" exchange formats of auto-tuners; this is its results schema 1.0.0 as
kernel_tuner 1.5.0 has it (kernel_tuner/schema/T4/1.0.0/results-schema.json) and writes it
(file_utils.get_t4_results). Times are in milliseconds there.
"""

from __future__ import annotations

__all__ = ["SCHEMA_VERSION", "t4_results", "write_t4"]

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import StoreError
from harness.spec.suite import size_label
from harness.sweep.model import Final, SweepResult, SweepRow
from harness.system.cache import write_atomically

SCHEMA_VERSION = "1.0.0"
_INVALIDITY = {
    "build-failed": "compile",
    "needs-package": "compile",
    "suite": "compile",
    "wrong-result": "correctness",
    "timed-out": "timeout",
}
"""T4's word for a reason of ours. The rest failed where it ran."""


def t4_results(result: SweepResult) -> dict[str, dict[str, Any]]:
    """A document for each size, by the size's label: T4 knows one problem size a document.

    What was rejected or failed is in it too, with its reason among the measurements. `runtimes` are the times
    that are kept: of a winner each fresh process's median, of others the median of screening.
    """
    finals = {size_label(final.sizes): final for final in result.finals}
    rows: dict[str, list[SweepRow]] = {}
    for row in result.rows:
        rows.setdefault(size_label(row.configuration.sizes), []).append(row)
    return {
        size: {
            "schema_version": SCHEMA_VERSION,
            "metadata": _metadata(result, found[0].configuration.sizes),
            "results": [_entry(row, finals.get(size)) for row in found],
        }
        for size, found in rows.items()
    }


def write_t4(result: SweepResult, path: Path) -> tuple[Path, ...]:
    """Write the documents: to `path` where there is one size, else to ``name-512.json`` and so on beside it.

    Raises StoreError where they cannot be written.
    """
    documents = t4_results(result)
    written = []
    for size, document in documents.items():
        place = path if len(documents) == 1 else path.with_name(f"{path.stem}-{size}{path.suffix}")
        try:
            write_atomically(place, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
        except OSError as error:
            raise StoreError(
                f"Cannot write {place}: {error.strerror or error}. Name a file in a folder with room."
            ) from error
        written.append(place)
    return tuple(written)


def _metadata(result: SweepResult, sizes: Mapping[str, int]) -> dict[str, Any]:
    sweep = result.sweep
    return {
        "timeunit": "milliseconds",
        "kernel_name": sweep.kernel,
        "problem_size": dict(sizes),
        "device_name": sweep.device.name,
        "device_driver": sweep.device.driver,
        "compiler": sweep.toolchain.compiler if sweep.toolchain else "",
        "tool": f"gpu-harness {sweep.harness_version}",
        "sweep_id": sweep.sweep_id,
        "commit": sweep.source.commit or "",
        "complete": result.complete,
    }


def _entry(row: SweepRow, final: Final | None) -> dict[str, Any]:
    invalidity = _invalidity(row)
    times_ns = _times_ns(row, final)
    return {
        "configuration": dict(row.configuration.parameters),
        "objectives": ["time"],
        "times": {"benchmark": row.gpu_s * 1e3, "runtimes": [time / 1e6 for time in times_ns]},
        "invalidity": invalidity,
        # Nothing is timed that was not verified.
        "correctness": int(invalidity == "correct"),
        "measurements": _measurements(row, final),
    }


def _invalidity(row: SweepRow) -> str:
    if row.status == "measured":
        return "correct"
    return "constraints" if row.status == "rejected" else _INVALIDITY.get(row.reason, "runtime")


def _is_winner(row: SweepRow, final: Final | None) -> bool:
    return final is not None and final.number in (row.configuration.number, row.same_as)


def _times_ns(row: SweepRow, final: Final | None) -> tuple[float, ...]:
    if row.status != "measured" or row.time_ns is None:
        return ()
    if final is not None and _is_winner(row, final):
        return final.process_times_ns
    return (row.time_ns,)


def _measurements(row: SweepRow, final: Final | None) -> list[dict[str, Any]]:
    if row.status != "measured" or row.time_ns is None:
        return [_measured("reason", row.reason), _measured("message", row.message)]
    time_ns = final.time_ns if final is not None and _is_winner(row, final) else row.time_ns
    limits = [("time_low", row.time_low_ns), ("time_high", row.time_high_ns)]
    registers = row.resources.registers if row.resources else None
    numbers: list[tuple[str, float | None, str]] = [
        ("time", time_ns / 1e6, "ms"),
        *((name, None if limit is None else limit / 1e6, "ms") for name, limit in limits),
        ("gflops", row.flop / time_ns if row.flop else None, "GFLOP/s"),
        ("gbytes_per_s", row.moved_bytes / time_ns if row.moved_bytes else None, "GB/s"),
        ("behind", row.behind.effect if row.behind else None, ""),
        ("registers", registers, ""),
        ("same_as", row.same_as, ""),
        ("number", row.configuration.number, ""),
    ]
    return [_measured(name, value, unit) for name, value, unit in numbers if value is not None]


def _measured(name: str, value: float | str, unit: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit}
