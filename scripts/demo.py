"""`make demo`: asv over the newest commits that touch kernels/, on the best device here; pages, a table."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.errors import HarnessError
from harness.history.row_summary import summary_of
from harness.records.record_files import RunResult, read_run
from harness.report.table import Column, Sheet
from harness.report.terminal.run_tables import print_out
from harness.run.doctor.checks import diagnose, verdict
from harness.run.doctor.gather import gather
from harness.run.doctor.machine_facts import MachineFacts
from harness.suite.case_id import size_label
from harness.suite.loader import load
from harness.system import git

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".asv" / "results"
LOG = ROOT / ".asv" / "demo.log"
BIN = Path(sys.executable).parent
ASV = [sys.executable, "-m", "asv"]
PAGES = ROOT / ".asv" / "html" / "harness" / "index.html"

# asv prints every table of every track; these lines say where it is.
SHOWN = re.compile(r"^·+ (?:Machine|Device)|For \S+ commit|\[\d+/\d+\]")

console = Console(highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, help="number of commits (default: 3; 2 on a CPU)")
    asked = parser.parse_args(arguments).commits
    started = time.monotonic()
    facts = gather(None, ROOT, RESULTS)
    on_cpu = facts.device is None or facts.device.kind == "cpu"
    count = asked or (2 if on_cpu else 3)
    try:
        newest = ("--first-parent", f"--max-count={count}", "--format=%H %s", "--", "kernels")
        subjects = git.ask(ROOT, "log", *newest).decode(errors="replace").splitlines()
    except HarnessError as error:
        console.print(error.message)
        return error.exit_code
    commits = [line.partition(" ")[0] for line in subjects]
    if len(commits) < count:
        console.print(
            f"Only {len(commits)} commits here touch kernels/; a shallow clone has no more to tell."
        )
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    before = set(RESULTS.rglob("*.jsonl"))
    console.rule("Measuring")
    for line in reversed(subjects):
        console.print(f"  {line[:8]}{line[40:]}", markup=False, soft_wrap=True)
    selection = ["--bench", at_largest_size()] if on_cpu else []
    command = [*ASV, "run", "--show-stderr", *selection, "HASHFILE:-"]
    if not logged(command, stdin="\n".join(reversed(commits))):
        return 3
    console.rule("Publishing")
    if not logged([sys.executable, "-m", "harness", "publish"]):
        return 3
    runs = [read_run(path) for path in sorted(set(RESULTS.rglob("*.jsonl")) - before)]
    if runs and runs[-1].run.device.kind == "cpu":
        console.print(of_a_cpu(facts))
    for suite in dict.fromkeys(run.run.source.suite for run in runs):
        print_out(history_table([run for run in runs if run.run.source.suite == suite]), console)
    console.rule("Done")
    if len(commits) > 1:
        console.print("This compares the oldest of these commits with the newest, kernel by kernel:")
        console.print(
            f"  {BIN}/harness compare {commits[-1][:8]} {commits[0][:8]}", style="bold", soft_wrap=True
        )
    console.print(
        f"Measured and published in {time.monotonic() - started:.0f} s. The log is {LOG.relative_to(ROOT)}."
    )
    console.print("Open the pages in a browser, from the disk; they need no server:")
    console.print(f"  {PAGES.relative_to(ROOT)}", style="bold")
    return 0


def at_largest_size() -> str:
    """Return asv's pattern of the cases at the largest size that each suite has for a CPU."""
    problems = [load(path.parent).suite.problem for path in sorted(ROOT.glob("kernels/*/suite.py"))]
    sizes = {size_label(list(problem.points(quick=True))[-1]) for problem in problems}
    return rf", ({'|'.join(sorted(sizes))})\)$"


def of_a_cpu(facts: MachineFacts) -> str:
    """Say what figures of this CPU are worth, before anybody reads them."""
    return (
        "The figures below are of a CPU. They show that everything works, and nothing about a GPU. Other "
        f"processes change them severalfold. harness doctor says: {verdict(facts, diagnose(facts))}"
    )


def logged(command: list[str], stdin: str = "") -> bool:
    """Run a command, show where it is, keep all it says in LOG; show the end of it where it fails."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(stdin)
    process.stdin.close()
    tail: deque[str] = deque(maxlen=30)
    with LOG.open("a", encoding="utf-8") as log:
        for line in process.stdout:
            log.write(line)
            tail.append(line.rstrip())
            if SHOWN.search(line):
                console.print(line.rstrip().removesuffix("ok").rstrip(), soft_wrap=True, markup=False)
    if process.wait() == 0:
        return True
    console.print("\n".join(tail), soft_wrap=True, markup=False)
    console.print(
        f"{shlex.join(command[1:])} failed with status {process.returncode}; all of its output is in {LOG}.",
        markup=False,
    )
    return False


def history_table(runs: Sequence[RunResult]) -> Sheet:
    """Kernels down, commits across, oldest first; a cell is the rate at the largest size."""
    newest = runs[-1].run
    label = size_label(max((row.sizes for row in runs[-1].rows), key=lambda sizes: tuple(sizes.values())))
    cells = {kernel: [cell(run, kernel, label) for run in runs] for kernel in newest.kernels}
    shown = {kernel: row for kernel, row in cells.items() if any(row)}  # a kernel for other devices has none
    commits = [(run.run.source.commit or "")[:8] for run in runs]
    return Sheet(
        title=f"{newest.source.suite}, {newest.headline} at size {label} on {newest.device.name}",
        columns=[
            Column("kernel", list(shown), text=True),
            *(Column(commit, [row[at] for row in shown.values()]) for at, commit in enumerate(commits)),
        ],
    )


def cell(run: RunResult, kernel: str, label: str) -> str:
    row = next((row for row in run.rows if row.kernel == kernel and size_label(row.sizes) == label), None)
    if row is None:
        return ""
    rate = summary_of(row, run.run).rate
    return f"{rate:,.1f}" if rate is not None else row.reason


if __name__ == "__main__":
    sys.exit(main())
