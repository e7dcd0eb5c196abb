"""`make bench`: how long the command line itself takes, as multiples of an interpreter that does nothing.

Commands take turns, so that a machine that speeds up or slows down does so for all of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
HARNESS = "import sys; from harness.cli import main; sys.argv[0] = 'harness'; main()"

COMMANDS = {
    "python -c pass": (["-c", "pass"], 1.0),
    "harness --help": (["-c", HARNESS, "--help"], 8.0),
    "harness list": (["-c", HARNESS, "list"], 20.0),
}
"""What is run, and the most that it may take, in times of the first."""


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
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
