"""Are the harness's counters those of Nsight Compute? Ten metrics of eight kernels, read by both.

    python scripts/bench_counters.py --device cuda:0 --ncu ncu

The kernels are this repository's. A second process launches them under `ncu` with the same inputs and grid.
Both read each kernel several times, each time after a flush of the L2 cache, and their medians are compared.
The table has the largest difference of each metric, with each tool's own spread between launches.

The ten metrics count what a kernel's code and addresses determine. The others depend on when requests meet
in a cache or at a bank, or on what the cache held before. `ncu` empties the L2 cache, while the harness fills
it with other data. So `ncu` also reads four of them after the harness's flush.
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
    ("transpose", "transpose_naive", {"rows": 4096, "cols": 4096}),
    ("transpose", "transpose_tiled", {"rows": 4096, "cols": 4096}),
    ("matmul", "naive_coalesced", {"m": 1024, "n": 1024, "k": 1024}),
    ("matmul", "shared_tile", {"m": 2048, "n": 2048, "k": 2048}),
    ("matmul", "async_copy", {"m": 2048, "n": 2048, "k": 2048}),
    ("matmul", "warp_tiling", {"m": 2048, "n": 2048, "k": 2048}),
    ("matmul", "wmma_warp_tiling", {"m": 2048, "n": 2048, "k": 2048}),
)
METRICS = (
    "instructions",
    "adu_instructions",
    "tensor_instructions",
    "load_requests",
    "load_sectors",
    "load_bytes",
    "async_requests",
    "store_requests",
    "store_sectors",
    "store_bytes",
)
OF_CACHES = ("l2_sectors", "dram_read_bytes", "shared_wavefronts", "shared_conflicts")
"""Metrics that ncu reads once more, after the harness's flush. They are few, since only a launch's first pass
follows the flush."""
ALSO = ("l2_hit_rate", "l1_hit_rate", "dram_written_bytes", "warps", "cycles", "stalled_long_scoreboard")
RATES = frozenset({"l2_hit_rate", "l1_hit_rate"})
"""Metrics in percent."""
LEAST = 1000.0
"""A count below this on both sides is noise of a few events: it is told as equal."""
LAUNCHES = 5

Counts = dict[str, dict[str, list[float]]]
"""Values of each launch, by kernel and metric."""


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


def counted(device: Device) -> Counts:
    found: Counts = {}
    for each in KERNELS:
        with placed(device, *each) as launch:

            def ready(launch: Any = launch) -> None:
                launch()
                device.flush_l2()

            counts = device.count([(ready, launch)] * LAUNCHES)
            found[each[1]] = {name: [one[name] for one in counts] for name in counts[0]}
    return found


def by_ncu(ncu: str, device: str, names: dict[str, str], log: Path, flush: str = "all") -> Counts:
    """Return what ncu tells. It flushes all caches before each pass, or `none`."""
    kernels = "|".join(name for _, name, _ in KERNELS)
    command = [ncu, "--clock-control", "none", "--cache-control", flush, "--csv", "--print-units", "base"]
    command += ["--print-fp", "--kernel-name", f"regex:^({kernels})$", "--metrics", ",".join(names.values())]
    command += [sys.executable, __file__, "--device", device, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or not lines:
        raise SystemExit(f"ncu ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    values: Counts = {}
    ours = {metric: name for name, metric in names.items()}
    for row in csv.DictReader(lines):
        of_kernel = values.setdefault(row["Kernel Name"].partition("(")[0], {})
        number = float(row["Metric Value"].replace(",", ""))
        of_kernel.setdefault(ours[row["Metric Name"]], []).append(number)
    return values


def difference(name: str, one: float, other: float) -> float:
    """Return how far two values of a metric are apart, as a share of the larger one; rates, of the whole."""
    if name in RATES:
        return abs(one - other) / 100
    larger = max(one, other)
    return abs(one - other) / larger if larger > (0 if name == "warps" else LEAST) else 0.0


def table(ours: Counts, theirs: Counts, names: Sequence[str]) -> float:
    """Print the largest difference of each metric over all kernels, and return the largest of all."""
    print(f"{'metric':<24} {'differs':>10}  {'spread':>9}  {'of ncu':>9}  {'kernel':<18} harness and ncu")
    worst = 0.0
    for name in names:
        found = []
        for kernel in theirs:
            of_both = [side[kernel][name] for side in (ours, theirs)]
            medians = [median(each) for each in of_both]
            spreads = [difference(name, min(each), max(each)) for each in of_both]
            found.append((difference(name, *medians), max(medians), kernel, medians, spreads))
        apart, _, kernel, medians, spreads = max(found)
        shown = "  ".join(f"{100 * spread:7.3f} %" for spread in spreads)
        one, other = (f"{each:,.1f}" for each in medians)
        print(f"{name:<24} {100 * apart:8.3f} %  {shown}  {kernel:<18} {one}  {other}", flush=True)
        worst = max(worst, apart)
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
    metrics = metrics_of(asked.chip)
    names = {name: metrics[name] for name in (*METRICS, *OF_CACHES, *ALSO)}
    log = (asked.json or Path("counters.json")).with_suffix(".ncu.txt")
    theirs = by_ncu(asked.ncu, asked.device, names, log)
    print(f"ncu: {time.monotonic() - begun:.1f} s, {len(theirs)} kernels", flush=True)
    worst = table(ours, theirs, METRICS)
    print(f"The largest difference of the ten metrics is {100 * worst:.2f} %.")
    print("Metrics that vary from launch to launch, each tool after its own flush:")
    table(ours, theirs, (*OF_CACHES, *ALSO))
    of_caches = {name: metrics[name] for name in OF_CACHES}
    after_ours = by_ncu(asked.ncu, asked.device, of_caches, log.with_suffix(".flushed.txt"), "none")
    print("The same after the harness's flush:")
    table(ours, after_ours, OF_CACHES)
    print(f"ncu in all: {time.monotonic() - begun:.1f} s")
    if asked.json:
        found = {"harness": ours, "ncu": theirs, "ncu after the harness's flush": after_ours}
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0 if worst <= 0.01 and len(theirs) == len(KERNELS) else 1


if __name__ == "__main__":
    sys.exit(main())
