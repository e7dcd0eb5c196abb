"""Make and measure the history of `harness demo`: commits whose effect is known, on a card.

    python scripts/demo_history.py FOLDER --device cuda:0 --seconds 165

FOLDER becomes a repository with the kernels of this one. Its commits make real edits of this repository's
history again, plant slowdowns, or change nothing that runs. FOLDER/truth.json says which. The script compares
the commits around a planted slowdown. Then it measures every commit once, in random order, so that a card
that becomes warm favours none. In the time that is left it compares the other edits. Most commits that
change nothing edit a kernel that is not measured: it need not be compiled. scripts/demo_data.py packs the
records.

The search of a history counts points, and each commit is one. In 18 commits it needs four or five on both
sides of a step, however large the step is, and seven between two steps that undo each other.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

if __package__ in (None, ""):  # run as a command: the folder above is where `scripts` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.cli import main as main_of_harness
from scripts.bench_edits import ROOT, Edit, edited, git

CASES = ("copy.copy_unrolled@4096", "matmul.naive_coalesced@2048", "matmul.shared_tile@2048")
"""Kernels that are measured; each takes below 3 ms. At 2048 a copy takes 15 µs, and the host disturbs it."""
FIRST_DAY = "2026-11-{:02d}T09:00:00+00:00"
PEOPLE = ("Ada", "Grace", "Edsger")
Kind = Literal["real", "planted", "none"]
"""An edit of this repository's own history, a planted one, or nothing that a card executes otherwise."""


@dataclass(frozen=True, slots=True)
class Step:
    """A commit: its subject, its effect on the time of a kernel, and its edits."""

    subject: str
    kind: Kind = "none"
    expected: Literal["slower", "faster", "same"] = "same"
    edits: tuple[Edit, ...] = ()
    source: str = ""


def _comment(suite: str, kernel: str, text: str) -> tuple[Edit, ...]:
    return (Edit(suite, kernel, "comment", "KERNEL ", f"// {text}\nKERNEL "),)


def _reversed(*edits: Edit) -> tuple[Edit, ...]:
    return tuple(
        Edit(each.suite, each.kernel, each.what, each.new, each.old, each.in_suite) for each in edits
    )


_WIDE = Edit(
    "matmul", "naive_coalesced", "64-bit offsets", "typedef int offset_t;", "typedef index_t offset_t;"
)
_SQUARE = Edit(
    "matmul", "naive_coalesced", "blocks", '"BX": 64, "BY": 4', '"BX": 32, "BY": 32', in_suite=True
)
_ITEMS = Edit("copy", "copy_unrolled", "items a thread", '"ITEMS": 4', '"ITEMS": 1', in_suite=True)
_STEP = "            sum += tile_a[y][p] * tile_b[p][x];\n        BARRIER();"
_BARRIERS = Edit("matmul", "shared_tile", "barriers", _STEP, _STEP + "\n        BARRIER();" * 3)
BEFORE = (_WIDE, _SQUARE)
"""Edits that make the first commit of the kernels as they are."""
STEPS = (
    Step("Kernels: copies, transposes and products of matrices"),
    Step(
        "transpose_tiled: say why the tile is padded",
        edits=_comment("transpose", "transpose_tiled", "padded"),
    ),
    Step("copy_vectorized: name the unit", edits=_comment("copy", "copy_vectorized", "elements, not bytes")),
    Step(
        "shared_tile: a remark on banks",
        edits=_comment("matmul", "shared_tile", "no two threads share a bank"),
    ),
    Step("naive: a remark", edits=_comment("matmul", "naive", "one element a thread")),
    Step(
        "naive_coalesced: 32-bit offsets, blocks of 64 x 4",
        "real",
        "faster",
        _reversed(_WIDE, _SQUARE),
        "e9f0fc02 of gpu-harness, which measured 10 % and 5 % at 4096 on an H200",
    ),
    Step(
        "shared_tile: wait until every warp has finished",
        "planted",
        "slower",
        (_BARRIERS,),
        "three barriers too many; one costs 1.5 to 2.3 % on an H200",
    ),
    Step(
        "copy_vectorized: a remark",
        edits=_comment("copy", "copy_vectorized", "see copy for one element a thread"),
    ),
    Step("transpose_tiled: a remark", edits=_comment("transpose", "transpose_tiled", "32 banks")),
    Step(
        "copy_unrolled: one element a thread",
        "planted",
        "slower",
        (_ITEMS,),
        "four before; at 4096 on an H200 the kernel copy, with one, takes 1.5 times as long as this one",
    ),
    Step("warp_tiling: a remark", edits=_comment("matmul", "warp_tiling", "a warp owns a tile")),
    Step(
        "transpose_tiled: another remark",
        edits=_comment("transpose", "transpose_tiled", "reads run along rows"),
    ),
    Step(
        "naive_coalesced: offsets that no matrix outgrows",
        "planted",
        "same",
        (_WIDE,),
        "64-bit offsets again; they cost 10 % at 4096 on an H200, and nothing that was measured at 2048",
    ),
    Step(
        "shared_tile: two barriers a step are enough",
        "planted",
        "faster",
        _reversed(_BARRIERS),
        "takes the planted barriers back",
    ),
    Step("thread_tiling: a remark", edits=_comment("matmul", "thread_tiling", "a column of C a thread")),
    Step("naive_coalesced: one more remark", edits=_comment("matmul", "naive_coalesced", "64 x 4 threads")),
    Step("shared_tile: one more remark", edits=_comment("matmul", "shared_tile", "tiles of 32 x 32")),
    Step("transpose_tiled: one more remark", edits=_comment("transpose", "transpose_tiled", "no guard")),
)
FIRST_COMPARED = 6
"""The step whose comparison comes first: the planted barriers."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="new; becomes the repository")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=165.0, help="no command begins that may end later")
    parser.add_argument("--size", help="one size for all kernels, for a try without a card")
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    commits = build(asked.folder)
    cases = [f"{case.partition('@')[0]}@{asked.size}" for case in CASES] if asked.size else CASES
    importlib.import_module("harness.cli.run_command")  # once, and not in each command
    importlib.import_module("harness.cli.compare_command")
    longest: dict[str, float] = {}
    for words in work(commits, cases):
        start = time.monotonic()
        if start - began + 1.1 * longest.get(words[0], 0.0) < asked.seconds:
            harness(asked.folder, *words, "--device", asked.device)
            longest[words[0]] = max(longest.get(words[0], 0.0), time.monotonic() - start)
    print(f"{time.monotonic() - began:.0f} s")
    return 0


def work(commits: Sequence[str], cases: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the commands in the order of their worth: the time may end before they do."""
    rng = random.Random(1)  # noqa: S311 - an order, not a secret

    def compared(number: int) -> tuple[str, ...]:
        edit = STEPS[number].edits[0]
        own = [case for case in cases if case.startswith(f"{edit.suite}.{edit.kernel}@")]
        return ("compare", commits[number - 1], commits[number], *own, "--profile-wall")

    run = ("run", "--max-time", "0.2", "--no-library", "--profile-wall", *cases, "--commit")
    yield (*compared(FIRST_COMPARED), "--explain")
    yield from ((*run, commit) for commit in rng.sample(commits, len(commits)))
    others = [number for number, step in enumerate(STEPS) if step.kind != "none" and number != FIRST_COMPARED]
    yield from map(compared, sorted(others, key=lambda number: STEPS[number].expected != "slower"))


def build(folder: Path) -> list[str]:
    """Make the repository and truth.json. Return its commits, oldest first."""
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "kernels", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "harness.toml").write_text('suites = ["kernels/*"]\n', "utf-8")
    (folder / ".gitignore").write_text(".asv/\n__pycache__/\ntruth.json\n", "utf-8")
    edited(folder, BEFORE)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commits = []
    for day, step in enumerate(STEPS, 1):
        edited(folder, step.edits)
        commits.append(committed(folder, step.subject, FIRST_DAY.format(day), PEOPLE[day % len(PEOPLE)]))
    told = [truth_of(step, commit) for step, commit in zip(STEPS, commits, strict=True)]
    (folder / "truth.json").write_text(f"{json.dumps(told, indent=1)}\n", "utf-8")
    return commits


def truth_of(step: Step, commit: str) -> Mapping[str, Any]:
    kernels = dict.fromkeys(f"{edit.suite}.{edit.kernel}" for edit in step.edits)
    return {
        "commit": commit,
        "subject": step.subject,
        "kind": step.kind,
        "kernels": [*kernels],
        "expected": step.expected,
        "source": step.source,
    }


def committed(folder: Path, subject: str, date: str, person: str) -> str:
    """Commit everything, and return the hash, which is always the same: day and author are made up."""
    person_of = {"NAME": person, "EMAIL": f"{person.lower()}@kernels.example", "DATE": date}
    variables = {
        f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in person_of.items()
    }
    git(folder, "add", "--all")
    subprocess.run(
        ["git", "commit", "--quiet", "--message", subject],
        cwd=folder,
        check=True,
        env={**os.environ, **variables},
    )
    asked = ["git", "rev-parse", "HEAD"]
    return subprocess.run(asked, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def harness(folder: Path, *words: str) -> None:
    """Run a command in a copy of this process, where all is imported. Tell its status and its time.

    Its output goes to the log. A regression is no failure.
    """
    began = time.monotonic()
    log = folder / ".asv/demo.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ harness {' '.join(words)}\n")
        output.flush()
        sys.stdout.flush()
        process = os.fork()
        if not process:
            _become_harness(folder, output.fileno(), *words)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    commit = next(each for each in words if len(each) == 40)
    print(f"{words[0]} {commit[:8]}: status {status} in {time.monotonic() - began:.1f} s", flush=True)


def _become_harness(folder: Path, output: int, *words: str) -> NoReturn:
    status = 1
    try:
        os.chdir(folder)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = ["harness", *words]
        main_of_harness()
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
