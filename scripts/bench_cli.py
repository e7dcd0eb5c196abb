"""`make bench`: how long the command line itself takes, as multiples of an interpreter that does nothing, and
how long it takes to check the files of a commit that the cache has.

Commands take turns, so that a machine that speeds up or slows down does so for all of them.
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

from harness.export import export

ROOT = Path(__file__).resolve().parent.parent
HARNESS = "import sys; from harness.cli import main; sys.argv[0] = 'harness'; main()"

COMMANDS = {
    "python -c pass": (["-c", "pass"], 1.0),
    "harness --help": (["-c", HARNESS, "--help"], 8.0),
    "harness list": (["-c", HARNESS, "list"], 20.0),
}
"""What is run, and the most that it may take, in times of the first."""

CHECKED = {100: 50.0, 10_000: 1000.0}
"""How many files a commit has, and the most milliseconds that checking them may take."""


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
    return int(over or bool(slow))


def takes_ms(count: int) -> float:
    """Milliseconds to check that many files, each time in a process that knows nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HARNESS_CACHE_DIR"] = f"{folder}/cache"
        repository, commit = commit_of(count, Path(folder, "repository"))
        export(repository, commit)
        code = "import sys, time; from pathlib import Path; from harness.export import export"
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
