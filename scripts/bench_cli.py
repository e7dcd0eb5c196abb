"""`make bench`: the time of the command line itself, as multiples of an interpreter that does nothing.

It also measures how long it takes to check the files of a commit that the cache has, and to compute the
hashes of kernels. Commands take turns, so that a change of the machine's speed affects all of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from harness.suite.exported_commit import export
from harness.suite.loader import load_folder
from harness.suite.sources import program

ROOT = Path(__file__).resolve().parent.parent
HARNESS = "import sys; from harness.cli import main; sys.argv[0] = 'harness'; main()"

COMMANDS = {
    "python -c pass": (["-c", "pass"], 1.0),
    "harness --help": (["-c", HARNESS, "--help"], 8.0),
    "harness list": (["-c", HARNESS, "list"], 20.0),
}
"""Commands, with the most time that each may take, in multiples of the first."""

CHECKED = {100: 50.0, 10_000: 1000.0}
"""Most milliseconds that checking a commit may take, by its number of files."""


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
    slow = [count for count, most_ms in CHECKED.items() if takes_ms(count) > most_ms]
    took_ms = identity_ms(rounds)
    print(f"{FILES:6} files told apart {took_ms:5.1f} ms  (at most {MOST_IDENTITY_MS:g} ms)")
    return int(over or bool(slow) or took_ms > MOST_IDENTITY_MS)


def takes_ms(count: int) -> float:
    """Milliseconds to check that many files, each time in a process that knows nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HARNESS_CACHE_DIR"] = f"{folder}/cache"
        repository, commit = commit_of(count, Path(folder, "repository"))
        export(repository, commit)
        code = "import sys, time; from pathlib import Path; from harness.suite.exported_commit import export"
        code += "; started = time.perf_counter(); export(Path(sys.argv[1]), sys.argv[2])"
        code += "; print(time.perf_counter() - started)"
        asked = [sys.executable, "-c", code, str(repository), commit]
        times = [float(subprocess.check_output(asked, cwd=ROOT)) for _ in range(5)]
    typical_ms = 1e3 * median(times)
    print(f"{count:6} files checked {typical_ms:7.1f} ms  (at most {CHECKED[count]:g} ms)")
    return typical_ms


def commit_of(count: int, repository: Path) -> tuple[Path, str]:
    """A repository with one commit of so many headers of 3 kB."""
    text = f"data 3000\n{'x' * 2999}\n"
    files = "".join(f"M 644 inline {number % 20}/{number}.h\n{text}" for number in range(count))
    head = "commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nx\n"
    git = ["git", "-C", str(repository)]
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    subprocess.run([*git, "fast-import", "--quiet"], input=head + files, text=True, check=True)
    return repository, subprocess.check_output([*git, "rev-parse", "main"], text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
