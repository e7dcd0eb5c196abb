"""Results of a sweep as T4 documents, which other autotuners read and write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.records.sweep_types import Final, SweepResult, SweepRow
from harness.suite.case_id import size_label
from harness.system.cache import write_file

T4_VERSION = "1.0.0"
_INVALIDITY = {
    **dict.fromkeys(("build-failed", "needs-package", "suite"), "compile"),
    "wrong-result": "correctness",
    "timed-out": "timeout",
}
"""T4's word for a failure reason. Other reasons happened at run time."""


def t4_results(result: SweepResult) -> dict[str, dict[str, Any]]:
    """Return a document for each size, by the size's label, because T4 has one problem size per document.

    Rejected and failed configurations are included, with their reason among the measurements. `runtimes` are
    the stored times: for a winner the median of each fresh process, for others the median of screening.
    """
    sweep = result.sweep
    finals = {size_label(final.sizes): final for final in result.finals}
    documents: dict[str, dict[str, Any]] = {}
    for row in result.rows:
        size = size_label(row.configuration.sizes)
        if size not in documents:
            metadata = {
                "timeunit": "milliseconds",
                "kernel_name": sweep.kernel,
                "problem_size": dict(row.configuration.sizes),
                "device_name": sweep.device.name,
                "device_driver": sweep.device.driver,
                "compiler": sweep.toolchain.compiler if sweep.toolchain else "",
                "tool": f"gpu-harness {sweep.harness_version}",
                "sweep_id": sweep.sweep_id,
                "commit": sweep.source.commit or "",
                "complete": result.complete,
            }
            documents[size] = {"schema_version": T4_VERSION, "metadata": metadata, "results": []}
        documents[size]["results"].append(_t4_result(row, finals.get(size)))
    return documents


def write_t4(result: SweepResult, path: Path) -> tuple[Path, ...]:
    """Write the documents: to `path` for one size, else to ``name-512.json`` and so on beside it.

    Raises StoreError if they cannot be written.
    """
    documents = t4_results(result)
    written = []
    for size, document in documents.items():
        place = path if len(documents) == 1 else path.with_name(f"{path.stem}-{size}{path.suffix}")
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        write_file(place, text.encode(), "Name a file in a folder with room.")
        written.append(place)
    return tuple(written)


def _t4_result(row: SweepRow, final: Final | None) -> dict[str, Any]:
    if row.status == "measured":
        invalidity = "correct"
    else:
        invalidity = "constraints" if row.status == "rejected" else _INVALIDITY.get(row.reason, "runtime")
    times_ns: tuple[float, ...] = ()
    measurements: list[tuple[str, float | str | None, str]]
    measurements = [("reason", row.reason, ""), ("message", row.message, "")]
    if row.status == "measured" and row.time_ns is not None:
        won = final is not None and final.number in (row.configuration.number, row.same_as)
        times_ns = final.process_times_ns if final and won else (row.time_ns,)
        measurements = _t4_measurements(row, final.time_ns if final and won else row.time_ns)
    return {
        "configuration": dict(row.configuration.parameters),
        "objectives": ["time"],
        "times": {"benchmark": row.gpu_s * 1e3, "runtimes": [time / 1e6 for time in times_ns]},
        "invalidity": invalidity,
        # Only verified kernels are timed.
        "correctness": int(invalidity == "correct"),
        "measurements": [
            {"name": name, "value": value, "unit": unit}
            for name, value, unit in measurements
            if value is not None
        ],
    }


def _t4_measurements(row: SweepRow, time_ns: float) -> list[tuple[str, float | str | None, str]]:
    # A winner's time has no interval: the row's interval belongs to its screening time.
    low_ns, high_ns = (row.time_low_ns, row.time_high_ns) if time_ns == row.time_ns else (None, None)
    return [
        ("time", time_ns / 1e6, "ms"),
        ("time_low", low_ns and low_ns / 1e6, "ms"),
        ("time_high", high_ns and high_ns / 1e6, "ms"),
        ("gflops", row.flop / time_ns if row.flop else None, "GFLOP/s"),
        ("gbytes_per_s", row.moved_bytes / time_ns if row.moved_bytes else None, "GB/s"),
        ("behind", row.behind.effect if row.behind else None, ""),
        ("registers", row.resources.registers if row.resources else None, ""),
        ("same_as", row.same_as, ""),
        ("number", row.configuration.number, ""),
    ]
