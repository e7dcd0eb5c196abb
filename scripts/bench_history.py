"""How long pages of a long history take, and how much memory: `asv publish` and `harness publish`.

A synthetic history is written, or taken from --keep, and published by each in turn: from nothing, again with
nothing new, after a new commit on one card, and after one on all cards. asv loads no plugin here. Its own
pages are made anew each time, so with --full it runs once, from nothing.

Memory is the largest sum over the process tree, sampled: of RSS, in which pages shared after a fork count
once a process, and of PSS (Linux only), in which they count once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

if __package__ in (None, ""):  # run as a command: the folder above is where `scripts` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.synthetic_history import Written, extend, scale, write

ROOT = Path(__file__).resolve().parent.parent
QUICK, FULL = (2000, 50, 1), (10_000, 200, 4)
STEPS = ("from nothing", "nothing new", "one card", "all cards")
RSS_EVERY_S, PSS_EVERY_S = 0.05, 0.5
"""How often memory is sampled. PSS makes the kernel walk every page."""
KEPT = ("results", "sizes.json")
"""Below .asv, what is not made by publishing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Time and memory that a command took."""

    status: int
    wall_s: float
    cpu_s: float
    """CPU time of all its processes that have ended, in seconds."""
    rss_bytes: int
    pss_bytes: int | None
    """Proportional memory in bytes; None if the system does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One publisher at one step."""

    step: str
    publisher: str
    commits: int
    usage: Usage
    html_files: int
    html_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in zip(("commits", "cases", "cards"), QUICK, strict=True):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"(default: {default})")
    parser.add_argument("--full", action="store_true", help="{:,} commits, {} cases, {} cards".format(*FULL))
    parser.add_argument("--only", choices=("harness", "asv"), help="leave the other one out")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the history is, or is to stay")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, for other programs")
    asked = parser.parse_args(arguments)
    sizes = FULL if asked.full else (asked.commits, asked.cases, asked.cards)
    publishers = [asked.only] if asked.only else ["asv", "harness"]
    with _folder(asked.keep) as folder:
        began = time.perf_counter()
        written = _history(folder, sizes)
        _remove_pages(written)
        files, size = _count(written.results)
        print(f"{len(written.commits):,} commits x {sizes[1]} cases x {sizes[2]} cards:")
        print(
            f"{files:,} files, {size / 1e6:.0f} MB, there after {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        figures = list(_figures(written, publishers, once={"asv"} if asked.full else set()))
    print(f"\n{_about()}; RSS and PSS are summed over the process tree")
    if asked.json:
        asked.json.write_text(json.dumps(_as_json(sizes, figures), indent=2) + "\n", encoding="utf-8")
    return int(any(figure.usage.status for figure in figures))


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep:
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="bench-history-") as folder:
        yield Path(folder)


def _history(folder: Path, sizes: tuple[int, int, int]) -> Written:
    """The history in a folder, written there if there is none."""
    noted = folder / ".asv" / KEPT[1]
    if not noted.exists():
        written = write(scale(*sizes), folder)
        noted.write_text(json.dumps(sizes), encoding="utf-8")
        return written
    if tuple(json.loads(noted.read_text(encoding="utf-8"))) != sizes:
        raise SystemExit(f"{folder} holds a history of other sizes: {noted.read_text(encoding='utf-8')}")
    listed = ["git", "rev-list", "--first-parent", "--reverse", "HEAD"]
    commits = subprocess.run(listed, cwd=folder, check=True, capture_output=True, text=True).stdout.split()
    return Written(
        history=replace(scale(*sizes), commits=len(commits)),  # an earlier run has added some
        repository=folder,
        results=folder / ".asv" / "results",
        conf=folder / "asv.conf.json",
        commits=tuple(commits),
    )


def _remove_pages(written: Written) -> None:
    """Whatever was published before, caches included."""
    for path in written.results.parent.iterdir():
        if path.name in KEPT:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _figures(written: Written, publishers: Sequence[str], once: set[str]) -> Iterator[Figure]:
    """Publish at every step, and print each figure as it comes."""
    print(
        f"\n{'':22} {'wall s':>8} {'CPU s':>8} {'RSS MB':>8} {'PSS MB':>8} {'files':>7} {'MB':>7}  asv takes"
    )
    first_card = written.history.cards[:1]
    for step in STEPS:
        due = [publisher for publisher in publishers if step == STEPS[0] or publisher not in once]
        if not due:
            return
        if step in ("one card", "all cards"):
            written = extend(written, first_card if step == "one card" else None)
        asv_s = None
        for publisher in due:
            figure = _publish(written, publisher, step)
            asv_s = figure.usage.wall_s if publisher == "asv" else asv_s
            print(_line(figure, asv_s), flush=True)
            yield figure


def _publish(written: Written, publisher: str, step: str) -> Figure:
    below = written.results.parent
    if publisher == "asv":
        html = below / "html-of-asv"
        command = [
            sys.executable,
            "-m",
            "asv",
            "--config",
            str(_plain(written, html)),
            "publish",
            "--no-pull",
        ]
    else:
        html = below / "html"
        command = [sys.executable, "-m", "harness", "publish", "--without-asv"]
    log = below / f"{publisher}.log"
    usage = measure(command, written.repository, log)
    if usage.status:
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
        print(f"{publisher} ended with {usage.status}:", *said, sep="\n    ", file=sys.stderr)
    files, size = _count(html)
    return Figure(
        step=step,
        publisher=publisher,
        commits=len(written.commits),
        usage=usage,
        html_files=files,
        html_bytes=size,
    )


def _plain(written: Written, html: Path) -> Path:
    """A configuration of asv's that loads no plugin; of environments any will do, as none is built."""
    path = written.results.parent / "plain.conf.json"
    content = {
        "version": 1,
        "project": "synthetic",
        "repo": str(written.repository),
        "branches": ["HEAD"],
        "environment_type": "virtualenv",
        "results_dir": str(written.results),
        "html_dir": str(html),
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def measure(command: Sequence[str], folder: Path, log: Path) -> Usage:
    """Run a command in a folder and watch its process tree; what it says goes to a file."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "HARNESS_CACHE_DIR": str(log.parent / "cache"),
    }
    rss, pss, next_pss = 0, None, 0.0
    before = os.times()
    began = time.perf_counter()
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            tree = _tree(watched)
            rss = max(rss, _sum(tree, "memory_info", "rss") or 0)
            if time.perf_counter() >= next_pss:
                pss = _larger(pss, _sum(tree, "memory_full_info", "pss"))
                next_pss = time.perf_counter() + PSS_EVERY_S
            time.sleep(RSS_EVERY_S)
    wall_s, after = time.perf_counter() - began, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Usage(status=process.returncode, wall_s=wall_s, cpu_s=cpu_s, rss_bytes=rss, pss_bytes=pss)


def _tree(process: Any) -> list[Any]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _sum(tree: Sequence[Any], call: str, field: str) -> int | None:
    """Over what can be asked; None where nothing can."""
    values = []
    for process in tree:
        try:
            values.append(getattr(getattr(process, call)(), field))
        except (psutil.Error, AttributeError):
            continue  # it has ended, or this system does not tell
    return sum(values) if values else None


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _count(folder: Path) -> tuple[int, int]:
    """Files below a folder, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return len(sizes), sum(sizes)


def _line(figure: Figure, asv_s: float | None) -> str:
    usage = figure.usage
    pss = "-" if usage.pss_bytes is None else f"{usage.pss_bytes / 1e6:.0f}"
    ratio = ""
    if usage.status:
        ratio = "failed"
    elif figure.publisher != "asv" and asv_s:
        ratio = f"{asv_s / usage.wall_s:.1f} times as long"
    memory = f"{usage.rss_bytes / 1e6:8.0f} {pss:>8}"
    pages = f"{figure.html_files:7,} {figure.html_bytes / 1e6:7.1f}"
    times = f"{usage.wall_s:8.1f} {usage.cpu_s:8.1f}"
    return f"{figure.step:13} {figure.publisher:8} {times} {memory} {pages}  {ratio}".rstrip()


def _about() -> str:
    return f"Python {platform.python_version()}, {os.cpu_count()} processors"


def _as_json(sizes: tuple[int, int, int], figures: Sequence[Figure]) -> dict[str, object]:
    return {
        **dict(zip(("commits", "cases", "cards"), sizes, strict=True)),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "figures": [asdict(figure) for figure in figures],
    }


if __name__ == "__main__":
    sys.exit(main())
