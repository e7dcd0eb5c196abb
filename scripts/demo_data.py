"""Make the data of `harness demo`: records of comparisons, and a part of CUDA.jl's public history.

    python scripts/demo_data.py RECORDS CLONE DATA_JS

RECORDS is a folder of comparisons with labels.json beside them. CLONE is a clone of JuliaGPU/CUDA.jl.
DATA_JS is bench/data.js of its branch gh-pages. The README.md of the data is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.system import git

TARGET = Path(__file__).resolve().parent.parent / "harness/cli/demo_data"
COMPARISONS = (
    "20261122T084616Z-5ee3ffde..a28c4b0b-fast-8db0f2f8.jsonl.gz",
    "20261122T090859Z-273091b0..bb193a2b-transpose-eebed665.jsonl.gz",
    "20261122T091024Z-273091b0..273091b0-matmul-c1ebbea4.jsonl.gz",
)
"""A slowdown planted on an H100, one planted on an H200, and identical code on the H200."""
BENCHMARKS = ("array/sorting/1d", "array/sorting/2d", "array/sorting/by", "array/random/rand!/Int64")
FIRST, LAST = "2024-03-16", "2024-04-25"
"""Days of the first and the last commit of the history."""
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"


def main(records: Path, clone: Path, data_js: Path) -> None:
    write_comparisons(records, TARGET / "comparisons")
    measured = cut(data_js.read_text("utf-8"), clone)
    write(TARGET / "history/data.js", measured.encode())
    write(TARGET / "history/LICENSE.md", git.ask(clone, "show", "HEAD:LICENSE.md"))


def write_comparisons(records: Path, folder: Path) -> None:
    """Copy the records, and the labels that tell the truth of their cases."""
    labels: list[dict[str, str]] = []
    for name in COMPARISONS:
        [found] = records.rglob(name)
        write(folder / name, found.read_bytes())
        known = json.loads((found.parent / "labels.json").read_text("utf-8"))
        labels += (each for each in known if each["file"] == name)
    write(TARGET / "labels.json", f"{json.dumps(labels, indent=1)}\n".encode())


def cut(history: str, clone: Path) -> str:
    """Return a data.js of some weeks and benchmarks. Writes the commits from its first to its last."""
    before, brace, text = history.partition("{")
    document = json.loads(brace + text)
    ((suite, entries),) = document["entries"].items()
    dated = [each for each in entries if FIRST <= each["commit"]["timestamp"][:10] <= LAST]
    line = write_repository(clone, dated[0]["commit"]["id"], dated[-1]["commit"]["id"], TARGET / "git")
    document["entries"] = {suite: [_without_others(each) for each in dated if each["commit"]["id"] in line]}
    return f"{before}{json.dumps(document, indent=1)}\n"


def write_repository(clone: Path, first: str, last: str, folder: Path) -> set[str]:
    """Write a .git folder of the commits from first to last, without their files. Returns their hashes."""
    between = git.ask(clone, "rev-list", "--first-parent", f"{first}..{last}").decode().split()
    line = [*between, first]
    packs = folder / "objects/pack"
    packs.mkdir(parents=True, exist_ok=True)
    for old in packs.iterdir():
        old.unlink()
    git.ask(clone, "pack-objects", "--quiet", str(packs / "pack"), stdin="\n".join(line).encode())
    for other in packs.glob("*.rev"):
        other.unlink()
    write(folder / "config", CONFIG.encode())
    write(folder / "HEAD", b"ref: refs/heads/main\n")
    write(folder / "refs/heads/main", f"{last}\n".encode())
    write(folder / "shallow", f"{first}\n".encode())
    return set(line)


def _without_others(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "benches": [each for each in entry["benches"] if each["name"] in BENCHMARKS]}


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
