"""Do real edits show? Edits that engineers make to kernels, in a copy of this repository, against the
originals.

    python scripts/bench_edits.py --size 1024 --size 4096

The edits of the first set change twelve cases of three suites at two sizes. The third set changes the stages
that are nearest to the libraries. The table shows what `harness compare` said of each case, and the device
time and wall time of each suite in seconds. An edit may change nothing, or help: the figures say so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one kernel: in its source or, by its macros, in its suite."""

    suite: str
    kernel: str
    what: str
    old: str
    new: str
    in_suite: bool = False


def _defined(macro: str, value: int, before: str) -> tuple[str, str]:
    """Return an edit's texts that give a macro of the suite another value, above this line of the source."""
    return before, f"#undef {macro}\n#define {macro} {value}\n{before}"


_STEP = "for (int p = 0; p < BK; ++p) {"

SETS: tuple[tuple[Edit, ...], ...] = (
    (
        Edit(
            "matmul",
            "naive_coalesced",
            "block shape",
            '"BX": 64, "BY": 4',
            '"BX": 16, "BY": 16',
            in_suite=True,
        ),
        Edit(
            "matmul",
            "block_tiling",
            "unroll",
            "        #pragma unroll\n        for (int p",
            "        #pragma unroll 2\n        for (int p",
        ),
        Edit("matmul", "thread_tiling_2d", "unroll", "#pragma unroll 4", "#pragma unroll 1"),
        Edit(
            "matmul",
            "wmma_warp_tiling",
            "loop order",
            """            #pragma unroll
            for (int j = 0; j < FRAGMENTS; ++j)
                tc::load_matrix_sync(fragment_b[j], b + j * EDGE, n);
            #pragma unroll
            for (int i = 0; i < FRAGMENTS; ++i) {
                tc::load_matrix_sync(fragment_a, a + (index_t)i * EDGE * k, k);
                #pragma unroll
                for (int j = 0; j < FRAGMENTS; ++j)
                    tc::mma_sync""",
            """            #pragma unroll
            for (int i = 0; i < FRAGMENTS; ++i) {
                tc::load_matrix_sync(fragment_a, a + (index_t)i * EDGE * k, k);
                #pragma unroll
                for (int j = 0; j < FRAGMENTS; ++j)
                    tc::load_matrix_sync(fragment_b[j], b + j * EDGE, n);
                __syncwarp();
                #pragma unroll
                for (int j = 0; j < FRAGMENTS; ++j)
                    tc::mma_sync""",
        ),
        Edit("transpose", "transpose_tiled", "padding", "tile[TILE][TILE + 1]", "tile[TILE][TILE]"),
        Edit("copy", "copy_unrolled", "items a thread", '"ITEMS": 4', '"ITEMS": 1', in_suite=True),
    ),
    (
        Edit(
            "matmul",
            "thread_tiling_2d",
            "spills",
            "KERNEL LAUNCH_BOUNDS(THREADS_X, THREADS_Y, 1) thread_tiling_2d",
            "KERNEL __launch_bounds__(THREADS_X * THREADS_Y, 12) thread_tiling_2d",
        ),
        Edit(
            "matmul",
            "thread_tiling",
            "rows a thread",
            '"TILE": 32, "TM": 8',
            '"TILE": 32, "TM": 4',
            in_suite=True,
        ),
        Edit(
            "matmul",
            "shared_tile",
            "barrier",
            "            sum += tile_a[y][p] * tile_b[p][x];\n        BARRIER();",
            "            sum += tile_a[y][p] * tile_b[p][x];\n        BARRIER();\n        BARRIER();",
        ),
        Edit("matmul", "outer_product", "padding", "column_a[TILE][TILE + 1]", "column_a[TILE][TILE]"),
        Edit(
            "transpose", "transpose_naive", "block shape", '"THREADS_Y": 8', '"THREADS_Y": 2', in_suite=True
        ),
        Edit("copy", "copy", "block shape", '"THREADS": 256', '"THREADS": 64', in_suite=True),
    ),
    (  # of the stages that are nearest to the libraries: in their sources, as an edit of suite.py may
        # change the problem, and costs another reference
        Edit("matmul", "warp_tiling", "padding", "#define PITCH_A (BM + PATCH)", "#define PITCH_A BM"),
        Edit("matmul", "double_buffering", "barriers", _STEP, f"{_STEP}\n                BARRIER();"),
        Edit("matmul", "async_copy", "waits for all", "WAIT_GROUPS(AHEAD - 1)", "WAIT_GROUPS(0)"),
        Edit("matmul", "register_prefetch", "copies at once", *_defined("SPREAD", 1, "#define WARP 32")),
        Edit("matmul", "mma_sync", "swizzle", "(chunk ^ row / ROWS % PLACES)", "chunk"),
        Edit("matmul", "wgmma", "half the stages", *_defined("STAGES", 2, "#define CONSUMERS")),
        Edit("matmul", "wgmma_store", "half the stages", *_defined("STAGES", 2, "#define CONSUMERS")),
        Edit("matmul", "wgmma_multicast", "a stage less", *_defined("STAGES", 2, "#define CONSUMERS")),
        Edit(
            "transpose",
            "transpose_vectorized",
            "block order",
            """(rows - 1) / TILE + 1;  // below each other in X, beside each other in Y
    const int row0 = BLOCK_X % tiles * TILE;
    const int column0 = BLOCK_X / tiles * TILE;""",
            """(cols - 1) / TILE + 1;
    const int row0 = BLOCK_X / tiles * TILE;
    const int column0 = BLOCK_X % tiles * TILE;""",
        ),
        Edit(
            "copy",
            "copy_vectorized",
            "single elements",
            "        *(GLOBAL float4*)(y + first) = *(const GLOBAL float4*)(x + first);",
            "        for (int i = 0; i < 4; ++i)\n            y[first + i] = x[first + i];",
        ),
    ),
)


def edited(root: Path, edits: Sequence[Edit]) -> None:
    """Make the edits in a copy of the repository. Raises ValueError for one whose text is not there once."""
    for edit in edits:
        folder = root / "kernels" / edit.suite
        path = folder / ("suite.py" if edit.in_suite else f"{edit.kernel}.cu")
        text = path.read_text(encoding="utf-8")
        start = text.index(f'"{edit.kernel}"') if text.count(edit.old) > 1 and edit.in_suite else 0
        place = text.find(edit.old, start)
        if place < 0:
            raise ValueError(f"{path}: no {edit.old!r} to edit.")
        text = text[:place] + edit.new + text[place + len(edit.old) :]
        path.write_text(text, encoding="utf-8")


def copy_of(root: Path, to: Path, edits: Sequence[Edit]) -> None:
    """A repository of two commits: as it is, and with the edits."""
    for name in ("kernels", "asv.conf.json", "pyproject.toml"):
        source = root / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)
    git(to, "init", "--quiet")
    commit(to, "as it is")
    edited(to, edits)
    commit(to, "edited")


def commit(root: Path, message: str) -> None:
    git(root, "add", "--all")
    git(root, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--message", message)


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True)


def compared(root: Path, suite: str, kernels: Sequence[str], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the result of one `harness compare` of a suite, and its duration.

    An interrupt reaches `harness compare` too, which then tells what it has judged.
    """
    began = time.monotonic()
    asked = [f"{suite}.{kernel}" for kernel in kernels]
    command = [sys.executable, "-m", "harness", "compare", "HEAD~1", "HEAD", *asked, *arguments, "--json"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as running:
        try:
            text, _ = running.communicate()
        except KeyboardInterrupt:
            text, _ = running.communicate()
    if not text.strip():
        raise SystemExit(f"harness compare said nothing, and exited with {running.returncode}.")
    return {**json.loads(text)[0], "wall_s": time.monotonic() - began, "suite": suite}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--set", type=int, choices=range(1, len(SETS) + 1), action="append", dest="sets")
    parser.add_argument("--suite", action="append", help="Only the edits of this suite.", dest="suites")
    parser.add_argument("--size", action="append", default=None)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--records", type=Path, help="Keep the comparisons' records in this folder.")
    parser.add_argument("--explain", action="store_true", help="Print the first cause of each regression.")
    parser.add_argument("--json", type=Path, help="Write the results here, after each suite.")
    given = parser.parse_args()
    results = []
    for number in given.sets or range(1, len(SETS) + 1):
        edits = [edit for edit in SETS[number - 1] if edit.suite in (given.suites or [edit.suite])]
        with tempfile.TemporaryDirectory() as folder:
            copy_of(ROOT, Path(folder), edits)
            keep = ["--results", str(given.records.resolve())] if given.records else ["--no-save"]
            sizes = [word for size in given.size or ["1024", "4096"] for word in ("--size", size)]
            for suite in dict.fromkeys(edit.suite for edit in edits):
                kernels = [edit.kernel for edit in edits if edit.suite == suite]
                arguments = [*sizes, "--device", given.device, "--no-twins", *keep]
                arguments += ["--explain"] if given.explain else []
                results.append(compared(Path(folder), suite, kernels, arguments))
                tell(results[-1], edits)
                if given.json:
                    given.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
                if not results[-1]["complete"]:
                    raise SystemExit("Interrupted.")
    total = sum(result["wall_s"] for result in results)
    print(f"{total:.0f} s on the wall, {sum(map(device_s, results)):.1f} s of device time.")


def device_s(result: dict[str, Any]) -> float:
    return sum(float(case.get("gpu_s") or 0.0) for case in result["verdicts"])


def tell(result: dict[str, Any], edits: Sequence[Edit]) -> None:
    print(f"{result['suite']}: {result['wall_s']:.1f} s on the wall, {device_s(result):.2f} s of device time")
    what = {f"{edit.suite}.{edit.kernel}": edit.what for edit in edits}
    for case in result["verdicts"]:
        time_, cycles = case.get("time") or {}, case.get("cycles") or {}
        shown = [f"{100 * each['effect']:+8.2f}" if each else "" for each in (time_, cycles)]
        edit = what.get(case["case"].partition("[")[0], "")
        causes = (case.get("diagnosis") or {}).get("causes") or [{"kind": ""}]
        print(
            f"  {case['case']:52} {edit:14} {shown[0]:>9} % {shown[1]:>9} % {case['status']:12} "
            f"{case['reason']:16} {case.get('gpu_s') or 0:.2f} s {causes[0]['kind']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
