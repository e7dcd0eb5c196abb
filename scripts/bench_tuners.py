"""How fast `harness sweep` and Kernel Tuner find the best tiles of a kernel, and how good what they find is.

    pip install kernel_tuner==1.5.0
    python scripts/bench_tuners.py [--device cuda:0] [--size 1024] [--repeats 3] [--json tuners.json]

Both tune the suite's thread_tiling_2d over the same configurations, from a cold compiler's cache, each time
in a process of its own, in turns. Kernel Tuner has its defaults, brute force and the mean of 7 launches, and
is given an answer to check results with. Whatever either chose is then held against the others in pairs, by
the harness, which is not neutral ground: `behind` says how much slower a choice is than the best of all.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.spec.loader import load_folder
from harness.spec.sources import program

ROOT = Path(__file__).resolve().parents[1]
KERNEL = "thread_tiling_2d"
PARAMETERS = {"BM": [32, 64], "BN": [32, 64, 128], "BK": [8, 16, 32], "TM": [2, 4, 8], "TN": [2, 4, 8]}
RULES = [
    "(BM // TM) * (BN // TN) <= 512",
    "(BM // TM) * (BN // TN) >= BK",
    "(BM // TM) * (BN // TN) % BK == 0",
    "(BM // TM) * (BN // TN) % BN == 0",
    "(BM // TM) * (BN // TN) // BK <= BM",
    "BM % ((BM // TM) * (BN // TN) // BK) == 0",
    "BK % ((BM // TM) * (BN // TN) // BN) == 0",
    "(BM // TM) * (BN // TN) // BN <= BK",
]
"""What the kernel's source demands of its tiles."""
THREADS = ("block_size_x == BN // TN", "block_size_y == BM // TM")
"""Kernel Tuner knows a block only by parameters of these names."""
MACROS = 'macros={"BM": 64, "BN": 64, "BK": 64, "TM": 8, "TN": 8},'
"""As they stand in the suite, where a tuning is put beside them."""
LAUNCHER = "import sys; sys.argv[0] = 'harness'; from harness.cli import main; main()"

Choice = dict[str, int]


def project(folder: Path, tuning: str) -> Path:
    """A copy of the suites in which the kernel has this tuning."""
    shutil.copytree(ROOT / "kernels", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text('[tool.harness]\nsuites = ["kernels/*"]\n', encoding="utf-8")
    suite = folder / "kernels" / "matmul" / "suite.py"
    text = suite.read_text(encoding="utf-8")
    if text.count(MACROS) != 1:
        sys.exit(f"{suite} does not have {MACROS!r} once: the kernel has changed, and this script must too.")
    suite.write_text(text.replace(MACROS, f"{MACROS}\n            tune={tuning},"), encoding="utf-8")
    return folder


def sweep(root: Path, device: str, size: int, seed: int = 1) -> dict[str, Any]:
    """What `harness sweep` says, with the time that it took from a cold cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "HARNESS_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", LAUNCHER, "sweep", f"matmul.{KERNEL}", "--device", device]
        command += ["--size", str(size), "--seed", str(seed), "--no-save", "--json"]
        began = time.monotonic()
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"harness sweep ended with {done.returncode}:\n{done.stderr}")
        return {**json.loads(done.stdout), "wall_s": time.monotonic() - began}


def ours(device: str, size: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder), f"Tuning(parameters={PARAMETERS}, rules={RULES})")
        found = sweep(root, device, size, seed)
    (ranking,) = found["best"].values()
    measured = sum(each["configurations"] for each in found["standings"] if each["standing"] != "rejected")
    return {"wall_s": found["wall_s"], "configurations": measured, "choice": ranking[0]["parameters"]}


def theirs(device: str, size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        # The CUDA driver's own cache of binaries, and PyOpenCL's.
        cold = {"CUDA_CACHE_DISABLE": "1", "PYOPENCL_NO_CACHE": "1", "TMPDIR": folder}
        command = [sys.executable, __file__, "--device", device, "--size", str(size), "--theirs"]
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **cold, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        wall_s = time.monotonic() - began
    if done.returncode:
        sys.exit(f"Kernel Tuner ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return {"wall_s": wall_s, **json.loads(done.stdout.splitlines()[-1])}


def tune_theirs(device: str, size: int) -> dict[str, Any]:
    """Kernel Tuner in this process."""
    backend, _, index = device.partition(":")
    if backend == "opencl":
        # Finds the OpenCL runtime that pip installed, as the harness does.
        from harness.device.backends import open_device

        open_device(device).close()
    suite = load_folder(ROOT / "kernels" / "matmul")
    kernel = suite.by_name[KERNEL]
    sizes = dict.fromkeys(suite.problem.axes, size)

    def source(chosen: dict[str, Any]) -> str:
        case = suite.case(kernel, sizes, {name: chosen[name] for name in PARAMETERS})
        return program(suite, kernel, case, backend).text

    # One function: the solver that reads strings raises for "block_size_x == BN // TN".
    rules = [compile(rule, "<rule>", "eval") for rule in (*RULES, *THREADS)]

    def fits(chosen: dict[str, Any]) -> bool:
        return all(eval(rule, {}, dict(chosen)) for rule in rules)  # noqa: S307 - this script's own

    case = suite.case(kernel, sizes)
    inputs = suite.problem.data(case, np.random.default_rng(1))
    right = inputs["a"].astype("float64") @ inputs["b"].astype("float64")
    answer = right.astype("float32")
    arguments = [inputs["a"], inputs["b"], np.zeros_like(answer), *map(np.int32, sizes.values())]
    threads = sorted({bn // tn for bn, tn in itertools.product(PARAMETERS["BN"], PARAMETERS["TN"])})
    results, _ = importlib.import_module("kernel_tuner").tune_kernel(
        KERNEL,
        source,
        lambda p: -(-size // p["BM"]) * -(-size // p["BN"]),
        arguments,
        {**PARAMETERS, "block_size_x": threads, "block_size_y": threads},
        grid_div_x=[],
        restrictions=fits,
        answer=[None, None, answer, None, None, None],
        atol=1e-2,
        lang={"cuda": "PYCUDA", "opencl": "OpenCL"}[backend],
        device=int(index or 0),
        quiet=True,
    )
    best = min((each for each in results if "__error__" not in each), key=lambda each: each["time"])
    return {"configurations": len(results), "choice": {name: int(best[name]) for name in PARAMETERS}}


def refereed(device: str, size: int, choices: Sequence[Choice]) -> list[float]:
    """How much slower each choice is than the best of them: in pairs, or by its time where far behind."""
    distinct = [choice for at, choice in enumerate(choices) if choice not in choices[:at]]
    if len(distinct) == 1:
        return [0.0] * len(choices)
    with tempfile.TemporaryDirectory() as folder:
        found = sweep(project(Path(folder), f"Tuning(configurations={distinct})"), device, size)
    (ranking,) = found["best"].values()
    behind = {}
    for each in ranking:
        # What is far behind leaves the race in screening, and is known by its time alone.
        effect = each["behind"]["effect"] if each["behind"] else each["time_ms"] / ranking[0]["time_ms"] - 1
        for number in (each["number"], *each["same_code"]):
            parameters = found["rows"][number - 1]["row"]["configuration"]["parameters"]
            behind[json.dumps(parameters, sort_keys=True)] = effect
    return [behind[json.dumps(choice, sort_keys=True)] for choice in choices]


def lines(tuned: Sequence[tuple[str, dict[str, Any]]], behind: Sequence[float]) -> Iterator[str]:
    yield f"{'tuner':15} {'configurations':>14} {'wall s':>8} {'behind %':>9}  choice"
    for (name, each), effect in zip(tuned, behind, strict=True):
        choice = " ".join(f"{key}={value}" for key, value in each["choice"].items())
        yield f"{name:15} {each['configurations']:14} {each['wall_s']:8.1f} {100 * effect:+9.2f}  {choice}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0", help="cuda:0, opencl:0 and so on")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--theirs", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.theirs:
        print(json.dumps(tune_theirs(asked.device, asked.size)))
        return
    tuned: list[tuple[str, dict[str, Any]]] = []
    for repeat in range(asked.repeats):
        names = ("harness sweep", "Kernel Tuner")
        for name in names if repeat % 2 == 0 else names[::-1]:
            if name == "Kernel Tuner":
                found = theirs(asked.device, asked.size)
            else:
                found = ours(asked.device, asked.size, repeat + 1)
            tuned.append((name, found))
            print(f"{name}: {found['wall_s']:.1f} s", file=sys.stderr)
    behind = refereed(asked.device, asked.size, [each["choice"] for _, each in tuned])
    print(*lines(tuned, behind), sep="\n")
    if asked.json:
        stored = [
            {"tuner": name, **each, "behind": effect}
            for (name, each), effect in zip(tuned, behind, strict=True)
        ]
        asked.json.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
