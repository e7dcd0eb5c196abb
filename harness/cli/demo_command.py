"""harness demo: shows recorded measurements of real cards with the usual commands."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from harness.cli import cli, options
from harness.config import VARIABLES
from harness.errors import ExitCode, StoreError, UsageError
from harness.system import git

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_OPENING = """\
Which commit slowed which GPU kernel, on which card, by how much, and how surely.

Two slowdowns were planted in CUDA kernels: one was measured on an H100 whose clock moved, one on an H200. \
The first table below finds the slowdown on the H100, the second table the slowdown on the H200. The third \
table compares a commit with itself, beside other work on the card, and finds nothing.

All figures were recorded on real cards. Nothing is measured, compiled or downloaded now."""
_SLOWER = "results/*/*..*.jsonl.gz"
"""The first comparison of the history, which has the cause of a slowdown."""
_OVERVIEW = ".asv/html/harness/index.html"


@dataclass(frozen=True, slots=True)
class Screen:
    """A command of the demonstration, and a sentence on its output."""

    shows: str
    command: tuple[str, ...]
    has_truth: bool = False
    """True if the list of what each commit does follows the output."""


SCREENS = (
    Screen(
        "Verdicts: the size of each change with its interval, the verdict on the day of the measurement "
        "('then'), and the verdict by today's rules ('now').",
        ("rejudge", "--labels", "labels.json", "comparisons"),
    ),
    Screen(
        "History: commits of three kernels, each measured once on an H200, in random order. The list below "
        "the output is the truth.",
        ("history",),
        has_truth=True,
    ),
    Screen(
        "Pull request: the comment and the page that a pull request with this slowdown gets, with its cause.",
        ("report", "--format", "github", "--out", "pull-request", "--history", f"../{_OVERVIEW}", _SLOWER),
    ),
    Screen("Pages: the history for a browser; the pages need no server.", ("publish",)),
)
PAGES = ("pull-request/review.html", _OVERVIEW)
"""Pages that the commands write, in viewing order."""
_NEXT = (
    ("with CUDA, Triton or OpenCL kernels", ("harness init", "harness compare HEAD~1 --suite-from .")),
    ("with a benchmark script", ("harness compare HEAD~1 HEAD --script 'python bench.py'",)),
    ("with tests that use pytest-benchmark", ("pytest benchmarks/ --perf-base HEAD~1",)),
)


@click.command("demo")
@options.path(
    "--folder",
    "Folder for data and pages, new or empty; default: a temporary one, which is kept.",
    type=options.FOLDER,
)
@options.flag("--no-open", "Open no browser.")
def command(folder: Path | None, no_open: bool) -> int:
    """Show verdicts, a history and their pages from measurements that were recorded on real cards.

    It needs no GPU, compiler, network or repository.
    """
    place = _unpacked(folder)
    git.resolve(place, "HEAD")  # without git the second command would fail with a message about a repository
    _say(_OPENING)
    with _inside(place):
        for number, screen in enumerate(SCREENS, 1):
            status = _show(number, screen)
            if screen.has_truth:
                _say_truth(place)
            if status not in (ExitCode.FINE, ExitCode.REGRESSION):
                return status
    pages = [place / page for page in PAGES]
    opened = not no_open and _open(pages[0])
    _say("The browser shows the first of these pages:" if opened else "Open these pages in a browser:")
    for page in pages:
        click.echo(f"  {page}")
    click.echo()
    _say_next(place)
    return ExitCode.FINE


def _unpacked(folder: Path | None) -> Path:
    """Write the packed data into a folder, by default a temporary one. Return its absolute path."""
    place = folder.absolute() if folder else Path(tempfile.gettempdir())
    begun = False
    try:
        if folder is None:
            place = Path(tempfile.mkdtemp(prefix="harness-")) / "gpu-harness-demo"
        elif place.exists() and any(place.iterdir()):
            raise UsageError(
                f"{folder} is not empty, and the demonstration overwrites nothing: name a new folder."
            )
        place.mkdir(parents=True, exist_ok=True)
        begun = True
        _write(files("harness.cli") / "demo_data", place)
        (place / "git").rename(place / ".git")  # git cannot commit a folder of that name
    except OSError as error:
        if begun:  # remove a partial copy, which would prevent the next try
            shutil.rmtree(place, ignore_errors=True)
        raise StoreError(
            f"Cannot write the demonstration's data into {place}: {error.strerror or error}. Name another "
            "folder with --folder."
        ) from None
    return place


def _write(packed: Traversable, folder: Path) -> None:
    """Copy files and folders without permissions, because an installation may be read-only."""
    for each in packed.iterdir():
        target = folder / each.name
        if each.is_dir():
            target.mkdir()
            _write(each, target)
        else:
            target.write_bytes(each.read_bytes())


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Run commands in this folder, without the user's settings for another project."""
    before, variables = Path.cwd(), dict(os.environ)
    for name in VARIABLES - {"HARNESS_CACHE_DIR"}:
        os.environ.pop(name, None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.update(variables)


def _show(number: int, screen: Screen) -> int:
    """Print what a command shows, run it, and return its exit status.

    A word with * stands for the first such file.
    """
    words = [str(min(Path().glob(word))) if "*" in word else word for word in screen.command]
    _say(f"{number}. {screen.shows}")
    click.echo(f"$ {shlex.join(['harness', *words])}")
    status = int(cli.main(words, standalone_mode=False) or ExitCode.FINE)
    click.echo()
    return status


def _say_truth(place: Path) -> None:
    """Print the commits that change what a card executes, newest first, with their effect by one run."""
    truth = msgspec.json.decode((place / "truth.json").read_bytes())
    _say("The truth: commits that edit code that runs, with the change of time from the run before them:")
    for commit in reversed([each for each in truth if each["kind"] != "none"]):
        effect = f"{commit['effect']:+.1%}".replace("%", " %")
        click.echo(f"  {commit['commit'][:8]}  {commit['kind']:7}  {effect:>7}  {commit['subject']}")
    click.echo()


def _open(page: Path) -> bool:
    """Open a page if the user has a terminal and a display. Return True if a browser took it."""
    has_windows = sys.platform != "linux" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return sys.stdout.isatty() and has_windows and webbrowser.open(page.as_uri())


def _say_next(place: Path) -> None:
    _say("What to type next, in a git repository of your own, on a machine with a GPU:")
    for kind, commands in _NEXT:
        click.echo(f"  {kind}")
        for each in commands:
            click.echo(f"    {each}")
    click.echo()
    _say("Data and pages stay in this folder, where each command above can be typed again:")
    click.echo(f"  {place}")


def _say(text: str) -> None:
    width = shutil.get_terminal_size().columns
    click.echo(f"{click.wrap_text(text, width, preserve_paragraphs=True)}\n")
