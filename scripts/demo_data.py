"""Make the data of `harness demo`: records of comparisons, and a history of commits whose effect is known.

    python scripts/demo_data.py RECORDS HISTORY

RECORDS is a folder of comparisons with labels.json beside or above them: harness/cli/demo_data itself, too.
HISTORY is the folder of scripts/demo_history.py. The README.md of the data is written by hand.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness.system import git

TARGET = Path(__file__).resolve().parent.parent / "harness/cli/demo_data"
COMPARISONS = (
    "20261122T084616Z-5ee3ffde..a28c4b0b-fast-8db0f2f8.jsonl.gz",
    "20261122T090859Z-273091b0..bb193a2b-transpose-eebed665.jsonl.gz",
    "20261122T091024Z-273091b0..273091b0-matmul-c1ebbea4.jsonl.gz",
)
"""A slowdown planted on an H100, one planted on an H200, and identical code on the H200."""
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"


def main(records: Path, history: Path) -> None:
    write_comparisons(records, TARGET / "comparisons")
    truth = json.loads((history / "truth.json").read_text("utf-8"))
    write_repository(history, [each["commit"] for each in truth], TARGET / "git")
    write_results(history / ".asv/results", TARGET / "results")
    told = with_effects(truth, times_of(history / ".asv/results"))
    write(TARGET / "truth.json", f"{json.dumps(told, indent=1)}\n".encode())


def times_of(results: Path) -> dict[str, dict[str, float]]:
    """Return the medians of each run by the start of its commit's hash, and by kernel."""
    times: dict[str, dict[str, float]] = {}
    for record in sorted(each for each in results.glob("*/*.jsonl") if ".." not in each.name):
        rows = (json.loads(line).get("row") for line in record.read_text("utf-8").splitlines())
        own = times.setdefault(record.name.split("-")[1], {})
        for row in filter(None, rows):
            own[f"{record.name.split('-')[2]}.{row['kernel']}"] = median(row["measurement"]["times_ns"])
    return times


def with_effects(
    truth: Sequence[dict[str, Any]], times: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Return the truth with the effect on the edited kernel's time: by the run of the commit, against the
    last run before it. It is None where the commit or its kernel was not measured.
    """
    told: list[dict[str, Any]] = []
    before: Mapping[str, float] = {}
    for each in truth:
        own = times.get(each["commit"][:8], {})
        edited = [name for name in each["kernels"] if name in own and name in before]
        effect = own[edited[0]] / before[edited[0]] - 1 if edited else None
        told.append({**each, "effect": effect})
        before = own or before
    return told


def write_comparisons(records: Path, folder: Path) -> None:
    """Copy the records, and the labels that tell the truth of their cases."""
    labels: list[dict[str, str]] = []
    for name in COMPARISONS:
        [found] = records.rglob(name)
        write(folder / name, found.read_bytes())
        [file] = [each / "labels.json" for each in found.parents if (each / "labels.json").exists()][:1]
        labels += (each for each in json.loads(file.read_text("utf-8")) if each["file"] == name)
    write(TARGET / "labels.json", f"{json.dumps(labels, indent=1)}\n".encode())


def write_repository(clone: Path, commits: Sequence[str], folder: Path) -> None:
    """Write a .git folder of these commits, oldest first, without their files."""
    packs = folder / "objects/pack"
    packs.mkdir(parents=True, exist_ok=True)
    for old in packs.iterdir():
        old.unlink()
    git.ask(clone, "pack-objects", "--quiet", str(packs / "pack"), stdin="\n".join(commits).encode())
    for other in packs.glob("*.rev"):
        other.unlink()
    write(folder / "config", CONFIG.encode())
    write(folder / "HEAD", b"ref: refs/heads/main\n")
    write(folder / "refs/heads/main", f"{commits[-1]}\n".encode())


def write_results(results: Path, folder: Path) -> None:
    """Write the records of runs and comparisons, packed so that the same records give the same bytes."""
    for old in folder.rglob("*.jsonl.gz"):
        old.unlink()
    for record in sorted(results.glob("*/*.jsonl")):
        packed = gzip.compress(record.read_bytes(), mtime=0)
        write(folder / record.parent.name / f"{record.name}.gz", packed)


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
