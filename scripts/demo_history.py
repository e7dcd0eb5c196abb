"""Make and measure the history of `harness demo`: commits whose effect is known, on a card.

    python scripts/demo_history.py FOLDER --device cuda:0 --seconds 165

FOLDER becomes a repository with the kernels of this one. Its commits make real edits of this repository's
history again, plant slowdowns, or change nothing that runs. FOLDER/truth.json says which. The script compares
the commits around a planted slowdown. Then it measures every commit, in random order, so that a card that
becomes warm favours none. In the time that is left it compares the other edits, and measures commits again.
scripts/demo_data.py packs the records.
"""

from __future__ import annotations

import argparse
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
from typing import Any, Literal

if __package__ in (None, ""):  # run as a command: the folder above is where `scripts` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_edits import ROOT, Edit, edited, git

CASES = {
    "copy": ("copy_unrolled@4096",),
    "transpose": ("transpose_tiled@4096",),
    "matmul": ("naive_coalesced@2048", "shared_tile@2048", "wmma_warp_tiling@2048"),
}
"""Kernels that are measured, by suite; each takes below 5 ms."""
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


_CAP = Edit(
    "matmul",
    "wmma_warp_tiling",
    "168 registers at most",
    "KERNEL LAUNCH_BOUNDS(WARP, 1, 1) wmma_warp_tiling",
    "KERNEL __launch_bounds__(WARP, 12) wmma_warp_tiling",
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
_EMPTY = "    __shared__ __align__(32) Tile tile;\n"
BEFORE = (_CAP, _WIDE, _SQUARE, _ITEMS)
"""Edits that make the first commit of the kernels as they are."""
STEPS = (
    Step("Kernels: copies, transposes and products of matrices"),
    Step(
        "transpose_tiled: say why the tile is padded",
        edits=_comment("transpose", "transpose_tiled", "padded"),
    ),
    Step("copy_unrolled: name the unit", edits=_comment("copy", "copy_unrolled", "elements, not bytes")),
    Step(
        "wmma_warp_tiling: give it its registers back",
        "real",
        "faster",
        _reversed(_CAP),
        "432fdece of gpu-harness, which measured 11 % at 4096 on an H200",
    ),
    Step(
        "shared_tile: a remark on banks",
        edits=_comment("matmul", "shared_tile", "no two threads share a bank"),
    ),
    Step("naive_coalesced: a remark", edits=_comment("matmul", "naive_coalesced", "one element a thread")),
    Step(
        "shared_tile: wait until every warp has finished",
        "planted",
        "slower",
        (_BARRIERS,),
        "three barriers too many; one costs 1.5 to 2.3 % on an H200",
    ),
    Step(
        "copy_unrolled: a remark",
        edits=_comment("copy", "copy_unrolled", "see copy for one element a thread"),
    ),
    Step("transpose_tiled: a remark", edits=_comment("transpose", "transpose_tiled", "32 banks")),
    Step(
        "naive_coalesced: 32-bit offsets, blocks of 64 x 4",
        "real",
        "faster",
        _reversed(_WIDE, _SQUARE),
        "e9f0fc02 of gpu-harness, which measured 10 % and 5 % at 4096 on an H200",
    ),
    Step(
        "wmma_warp_tiling: leave empty matrices at once",
        "planted",
        "same",
        (Edit("matmul", "wmma_warp_tiling", "guard", _EMPTY, f"{_EMPTY}    if (m < 1)\n        return;\n"),),
        "other code that takes the same time",
    ),
    Step(
        "copy_unrolled: four elements a thread",
        "planted",
        "faster",
        _reversed(_ITEMS),
        "the first commit had one element a thread",
    ),
    Step("shared_tile: a remark", edits=_comment("matmul", "shared_tile", "a warp owns a row")),
    Step(
        "naive_coalesced: offsets that no matrix outgrows",
        "planted",
        "slower",
        (_WIDE,),
        "64-bit offsets again; they cost 10 % at 4096 on an H200",
    ),
    Step(
        "transpose_tiled: another remark",
        edits=_comment("transpose", "transpose_tiled", "reads run along rows"),
    ),
    Step("wmma_warp_tiling: a remark", edits=_comment("matmul", "wmma_warp_tiling", "a warp owns 64 x 64")),
    Step(
        "shared_tile: two barriers a step are enough",
        "planted",
        "faster",
        _reversed(_BARRIERS),
        "takes the planted barriers back",
    ),
    Step(
        "copy_unrolled: one more remark", edits=_comment("copy", "copy_unrolled", "loads leave before stores")
    ),
    Step("naive_coalesced: one more remark", edits=_comment("matmul", "naive_coalesced", "64 x 4 threads")),
    Step("shared_tile: one more remark", edits=_comment("matmul", "shared_tile", "tiles of 32 x 32")),
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
    longest, told = 0.0, 0
    for words in work(commits, asked.size):
        start = time.monotonic()
        if start - began + 1.2 * longest > asked.seconds:
            break
        harness(asked.folder, *words, "--device", asked.device)
        longest = max(longest, time.monotonic() - start)
        told += 1
    print(f"{told} commands in {time.monotonic() - began:.0f} s")
    return 0


def work(commits: Sequence[str], size: str | None) -> Iterator[tuple[str, ...]]:
    """Yield the commands in the order of their worth: the time may end before they do."""
    rng = random.Random(1)  # noqa: S311 - an order, not a secret
    every = [f"{suite}.{kernel}" for suite, kernels in CASES.items() for kernel in kernels]
    cases = [f"{case.partition('@')[0]}@{size}" for case in every] if size else every

    def compared(number: int) -> tuple[str, ...]:
        edit = STEPS[number].edits[0]
        own = [case for case in cases if case.startswith(f"{edit.suite}.{edit.kernel}@")]
        return ("compare", commits[number - 1], commits[number], *own, "--explain")

    runs = [("run", "--commit", commit, "--max-time", "0.5", *cases) for commit in commits]
    yield compared(FIRST_COMPARED)
    yield from rng.sample(runs, len(runs))
    for number, step in enumerate(STEPS):
        if step.kind != "none" and number != FIRST_COMPARED:
            yield compared(number)
    yield from rng.sample(runs, len(runs))


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
    """Run a command of the harness; its output goes to ours, shortened. A regression is no failure."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    print(
        f"{words[0]} {words[2][:8]}: exit status {done.returncode} in {time.monotonic() - began:.1f} s",
        flush=True,
    )
    with (folder / ".asv/demo.log").open("a", encoding="utf-8") as log:
        log.write(f"$ harness {' '.join(words)}\n{done.stdout}\n{done.stderr}\n")


if __name__ == "__main__":
    sys.exit(main())
