"""Run the steps that prepare.sh made ready on a card: list, check, compare, run, asv, pytest, nvbench.

    python scripts/repositories/measure.py FOLDER OUT

OUT gets steps.tsv (step, seconds from the start, wall seconds, exit status, command) and each step's output.
Builds run side by side, and measurements one after the other. Nothing begins after --deadline. Everything
takes about ten minutes of a card. --only names steps, to run them in parts.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

TIMED = ("sgemm_cu", "triton_tutorial", "cupy_gemm", "fast_cu", "sgemm_cuda", "llm_c", "cuda_examples")
EXTENSION = "torch_extension"
BENCH = "./bench --devices 0 --min-time 0.02 --timeout 1 --no-batch --throttle-threshold 0 --axis Blocks=8448"
BUILDS = {"base": "HEAD~2", "head": "HEAD~1", "same": "HEAD"}
SESSION = "-p no:cacheprovider benchmarks/test_kernels.py"
GRACE_S = 12


@dataclass(frozen=True)
class Steps:
    folder: Path
    out: Path
    deadline_s: float
    only: tuple[str, ...] = ("*",)
    """Patterns of repository.step."""
    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, repository: str, name: str, most_s: float, command: str) -> None:
        if not any(fnmatchcase(f"{repository}.{name}", pattern) for pattern in self.only):
            return
        at_s = time.monotonic() - self.started
        if at_s > self.deadline_s:
            self._tell(repository, name, at_s, "", "skipped", command)
            return
        status: int | str
        most_s = min(most_s, self.deadline_s + GRACE_S - at_s)
        with (self.out / f"{repository}.{name}.txt").open("w") as file:
            try:
                done = subprocess.run(
                    shlex.split(command),
                    cwd=self.folder / repository,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=most_s,
                    check=False,
                )
                status = done.returncode
            except (subprocess.TimeoutExpired, OSError) as error:
                status = type(error).__name__
        wall = f"{time.monotonic() - self.started - at_s:.1f}"
        self._tell(repository, name, at_s, wall, status, command)

    def _tell(
        self, repository: str, name: str, at_s: float, wall: str, status: int | str, command: str
    ) -> None:
        row = f"{repository}.{name}\t{at_s:.1f}\t{wall}\t{status}\t{command}"
        with self.lock, (self.out / "steps.tsv").open("a") as file:
            file.write(f"{row}\n")
            print(row[:150], flush=True)


def builds(steps: Steps, repository: str, most_s: float) -> None:
    steps.run(repository, "list", 30, "harness list")
    for name, commit in (("check", ""), ("check-base", " --commit HEAD~1")):
        steps.run(repository, name, most_s, f"harness check --quick --timeout {most_s:.0f}{commit}")


def nvbench(steps: Steps) -> None:
    """Two builds, and one against its like: by us, and by nvbench's own scripts."""
    with_command = f"--with-command '{BENCH}' --suite polynomial --format nvbench"
    for name, head in (("compare", "HEAD~1"), ("compare-same", "HEAD")):
        steps.run("nvbench", name, 90, f"harness compare HEAD~2 {head} {with_command}")
    folder = steps.folder / "nvbench"
    for name, commit in BUILDS.items():
        shown = subprocess.run(
            ["git", "-C", str(folder), "show", f"{commit}:bench"], capture_output=True, check=True
        )
        (folder / f"{name}.bench").write_bytes(shown.stdout)
        (folder / f"{name}.bench").chmod(0o755)
        own = f"./{name}.bench --devices 0 --axis Blocks=8448 --jsonbin {name}.json"
        steps.run("nvbench", f"own-{name}", 15, own)
    for script in ("nvbench_compare", "nvbench_compare_robust"):
        for other in ("head", "same"):
            command = f"{sys.executable} scripts/{script}.py --no-color base.json {other}.json"
            steps.run("nvbench", f"{script}-{other}", 15, command)
    steps.run("nvbench", "import", 15, "harness import nvbench base.json --suite polynomial")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--deadline", type=float, default=570, metavar="SECONDS", help="(default: 570)")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="REPOSITORY.STEP", help="patterns")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ |= {"COLUMNS": "150", "NO_COLOR": "1", "MAX_JOBS": "4"}
    steps = Steps(asked.folder.resolve(), asked.out.resolve(), asked.deadline, tuple(asked.only))
    with ThreadPoolExecutor() as pool:
        wait([pool.submit(builds, steps, each, 130) for each in (EXTENSION, *TIMED)])
    if (steps.folder / "nvbench").is_dir():
        nvbench(steps)
    for each in (*TIMED, EXTENSION):
        steps.run(each, "compare", 240, "harness compare HEAD~1 HEAD --no-twins")
        steps.run(each, "asv", 60, "asv run --show-stderr HEAD^!")
        session = f"{sys.executable} -m pytest -q {SESSION} --perf-base HEAD~1"
        steps.run(each, "pytest", 120, session)
        steps.run(each, "run", 30, "harness run --max-time 0.3")


if __name__ == "__main__":
    main()
