"""Are the harness's counters those of Nsight Compute? Ten metrics of eight kernels, read by both.

    python scripts/bench_counters.py --device cuda:0 --ncu ncu

The kernels are this repository's. A second process launches them under `ncu` with the same inputs and grid.
Both read each kernel after a flush of the L2 cache. The table has the largest difference of each metric.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from harness.device.backends import open_device
from harness.device.backends.base import Device
from harness.device.counters import metrics_of
from harness.measure.buffers import Buffers
from harness.measure.paired_kernels import arguments_of, build, prepare
from harness.suite.device_facts import facts_of
from harness.suite.layout import numpy_dtype
from harness.suite.loader import load

ROOT = Path(__file__).resolve().parent.parent
KERNELS = (
    ("copy", "copy", {"rows": 4096, "cols": 4096}),
    ("copy", "copy_unrolled", {"rows": 4096, "cols": 4096}),
    ("transpose", "transpose_naive", {"rows": 4096, "cols": 4096}),
    ("transpose", "transpose_tiled", {"rows": 4096, "cols": 4096}),
    ("matmul", "naive_coalesced", {"m": 1024, "n": 1024, "k": 1024}),
    ("matmul", "shared_tile", {"m": 2048, "n": 2048, "k": 2048}),
    ("matmul", "warp_tiling", {"m": 2048, "n": 2048, "k": 2048}),
    ("matmul", "wmma_warp_tiling", {"m": 2048, "n": 2048, "k": 2048}),
)
METRICS = (
    "instructions",
    "load_requests",
    "load_sectors",
    "store_requests",
    "store_sectors",
    "shared_wavefronts",
    "shared_conflicts",
    "tensor_instructions",
    "l2_sectors",
    "dram_read_bytes",
)
ALSO = ("dram_written_bytes", "l2_hit_rate", "l1_hit_rate", "warps", "cycles", "stalled_long_scoreboard")
"""Metrics that vary from launch to launch, told beside the ten."""
LEAST = 1000.0
"""A metric below this on both sides is noise of a few events: it is told as equal."""
LAUNCHES = 3


@contextmanager
def placed(device: Device, suite_name: str, name: str, sizes: dict[str, int]) -> Iterator[Any]:
    """Yield a function that launches a kernel on arrays of random numbers."""
    suite = load(ROOT / "kernels" / suite_name).suite
    case = suite.case(suite.by_name[name], sizes, {}, facts_of(device.info))
    with tempfile.TemporaryDirectory() as scratch:
        prepared = prepare(device, suite, case, Path(scratch))
        built = build(device, prepared)
    rng = np.random.default_rng(1)
    with Buffers(device, suite.problem, case) as buffers:
        data = {}
        for array in suite.problem.inputs:
            of = suite.problem.arrays[array]
            values = rng.standard_normal(of.shape_at(case), dtype="float32")
            data[array] = values.astype(numpy_dtype(of.dtype_at(case)))
        buffers.write(data)
        yield partial(device.launch, built, prepared.launch, arguments_of(buffers, prepared))


def launched(device: Device) -> None:
    """Launch each kernel once, after a flush, for a profiler that watches the process."""
    for each in KERNELS:
        with placed(device, *each) as launch:
            for _ in range(LAUNCHES):
                device.flush_l2()
                launch()
                device.synchronize()


def counted(device: Device) -> dict[str, dict[str, float]]:
    found = {}
    for each in KERNELS:
        with placed(device, *each) as launch:

            def ready(launch: Any = launch) -> None:
                launch()
                device.flush_l2()

            counts = [device.count(ready, launch) for _ in range(LAUNCHES)]
            found[each[1]] = {name: median(one[name] for one in counts) for name in counts[0]}
    return found


def by_ncu(ncu: str, device: str, names: dict[str, str], log: Path) -> dict[str, dict[str, float]]:
    """Return the medians of each metric by kernel, as ncu tells them."""
    kernels = "|".join(name for _, name, _ in KERNELS)
    command = [ncu, "--clock-control", "none", "--cache-control", "all", "--csv", "--print-units", "base"]
    command += ["--print-fp", "--kernel-name", f"regex:^({kernels})$", "--metrics", ",".join(names.values())]
    command += [sys.executable, __file__, "--device", device, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or not lines:
        raise SystemExit(f"ncu ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    values: dict[str, dict[str, list[float]]] = {}
    ours = {metric: name for name, metric in names.items()}
    for row in csv.DictReader(lines):
        of_kernel = values.setdefault(row["Kernel Name"].partition("(")[0], {})
        number = float(row["Metric Value"].replace(",", ""))
        of_kernel.setdefault(ours[row["Metric Name"]], []).append(number)
    return {
        kernel: {name: median(each) for name, each in of_kernel.items()}
        for kernel, of_kernel in values.items()
    }


def difference(ours: float, theirs: float) -> float:
    return 0.0 if max(ours, theirs) < LEAST else abs(ours - theirs) / max(ours, theirs)


def table(ours: dict[str, Any], theirs: dict[str, Any], names: Sequence[str]) -> float:
    """Print the largest difference of each metric over all kernels, and return the largest of all."""
    worst = 0.0
    for name in names:
        both = {
            kernel: (ours[kernel][name], theirs[kernel][name]) for kernel in theirs if name in ours[kernel]
        }
        kernel, (one, other) = max(both.items(), key=lambda each: difference(*each[1]))
        found = difference(one, other)
        print(f"{name:<24} {100 * found:8.3f} %  {kernel:<20} harness {one:,.1f}  ncu {other:,.1f}")
        worst = max(worst, found)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--ncu", default="ncu", help="Nsight Compute's command")
    parser.add_argument("--chip", default="GH100", help="the chip's name, for the names of its metrics")
    parser.add_argument("--json", type=Path, help="file for all values")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    device = open_device(asked.device)
    if asked.launch:
        launched(device)
        device.close()
        return 0
    begun = time.monotonic()
    ours = counted(device)
    device.close()
    print(f"harness: {time.monotonic() - begun:.1f} s", flush=True)
    begun = time.monotonic()
    names = {name: metrics_of(asked.chip)[name] for name in (*METRICS, *ALSO)}
    log = (asked.json or Path("counters.json")).with_suffix(".ncu.txt")
    theirs = by_ncu(asked.ncu, asked.device, names, log)
    print(f"ncu: {time.monotonic() - begun:.1f} s, {len(theirs)} kernels", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({"harness": ours, "ncu": theirs}, indent=1), encoding="utf-8")
    worst = table(ours, theirs, METRICS)
    print("Metrics that vary from launch to launch:")
    table(ours, theirs, ALSO)
    print(f"The largest difference of the ten metrics is {100 * worst:.2f} %.")
    return 0 if worst <= 0.01 and len(theirs) == len(KERNELS) else 1


if __name__ == "__main__":
    sys.exit(main())
