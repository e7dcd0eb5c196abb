"""`make bench`: how long the command line itself takes, as multiples of an interpreter that does nothing, and
how long it takes to tell what a suite's kernels are made of.

Commands take turns, so that a machine that speeds up or slows down does so for all of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from harness.sources import program
from harness.suite_file import load_folder

ROOT = Path(__file__).resolve().parent.parent
HARNESS = "import sys; from harness.cli import main; sys.argv[0] = 'harness'; main()"

COMMANDS = {
    "python -c pass": (["-c", "pass"], 1.0),
    "harness --help": (["-c", HARNESS, "--help"], 8.0),
    "harness list": (["-c", HARNESS, "list"], 20.0),
}
"""What is run, and the most that it may take, in times of the first."""


FILES = 100
MOST_IDENTITY_MS = 50.0
SUITE = """\
from harness import Axis, HostFunction, Kernel, Output, Problem, Suite


class Line(Problem):
    n = Axis((8,))
    y = Output("n")


def call(case, stream):
    return lambda y, n: None


texts = [Kernel(f"k{number}", f"k{number}.cu", block=32, grid=1) for number in range(FILES)]
suite = Suite("line", Line(), [*texts, Kernel("call", {"cuda": HostFunction(call)})], headline="GB/s")
"""


def identity_ms(rounds: int) -> float:
    """Of a suite of FILES sources, from its files to every kernel's hash, its files being in memory."""
    times_ms = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "suite.py").write_text(f"FILES = {FILES}\n{SUITE}")
        for number in range(FILES):
            (folder / f"k{number}.cu").write_text("y[i] += x[i]; // one of many\n" * 100)
        for _ in range(rounds + 1):
            suite = load_folder(folder)
            started = time.perf_counter()
            for kernel in suite.kernels:
                made = program(suite, kernel, suite.case(kernel, {"n": 8}), "cuda")
                assert made.sha256 != made.code_sha256
            times_ms.append(1e3 * (time.perf_counter() - started))
    return median(times_ms[1:])


def wall_s(arguments: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="how often each command runs (default: 15)")
    rounds = parser.parse_args().rounds
    for arguments, _ in COMMANDS.values():
        wall_s(arguments)  # bytecode and file caches are not what is measured
    times = [[wall_s(arguments) for arguments, _ in COMMANDS.values()] for _ in range(rounds)]
    over = False
    for column, (name, (_, most)) in enumerate(COMMANDS.items()):
        ratio = median(row[column] / row[0] for row in times)
        over |= ratio > most
        typical_ms = 1e3 * median(row[column] for row in times)
        print(f"{name:16} {typical_ms:7.1f} ms  {ratio:5.1f}x  (at most {most:g}x)")
    took_ms = identity_ms(rounds)
    print(f"identity of {FILES} files {took_ms:7.1f} ms  (at most {MOST_IDENTITY_MS:g} ms)")
    return int(over or took_ms > MOST_IDENTITY_MS)


if __name__ == "__main__":
    sys.exit(main())
