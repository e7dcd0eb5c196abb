"""harness demo: it writes into its own folder, for any terminal, and opens a browser for people only."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import webbrowser
import xml.etree.ElementTree as ET
from importlib.resources import files
from pathlib import Path

import pytest

from harness.cli import demo_command
from harness.system import git
from scripts import demo_history
from scripts import record_demo as recording
from tests.support import caller

MOST_BYTES = 1_500_000
"""Size of the packed data that an installation may take."""


@pytest.fixture
def call(capsys, monkeypatch, own_cache):
    return caller(capsys, monkeypatch)


def sizes(folder, prefix=""):
    """Sizes of the packed files in bytes, by their paths."""
    found: dict[str, int] = {}
    for each in folder.iterdir():
        name = f"{prefix}{each.name}"
        found |= sizes(each, f"{name}/") if each.is_dir() else {name: len(each.read_bytes())}
    return found


def test_data_are_part_of_the_package():
    packed = files("harness.cli") / "demo_data"
    found = sizes(packed)
    labels = json.loads((packed / "labels.json").read_text(encoding="utf-8"))

    assert {f"comparisons/{each['file']}" for each in labels} == {
        name for name in found if name.startswith("comparisons/")
    }
    assert {"README.md", "git/HEAD"} <= found.keys()
    truth = json.loads((packed / "truth.json").read_text(encoding="utf-8"))
    records = (name for name in found if name.startswith("results/") and ".." not in name)
    measured = {name.split("-")[-3] for name in records}
    assert 12 < len(measured) <= len(truth)
    assert measured <= {each["commit"][:8] for each in truth}
    assert all(each["effect"] for each in truth if each["kind"] != "none")
    assert sum(found.values()) < MOST_BYTES


def test_folder_with_files_is_left_alone(call, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")

    done = call("demo", "--folder", str(tmp_path))

    assert done.status == 2
    assert f"{tmp_path} is not empty" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_place_that_cannot_be_a_folder_is_named(call, tmp_path):
    (tmp_path / "file").write_text("")

    done = call("demo", "--folder", str(tmp_path / "file/below"))

    assert done.status == 3
    assert str(tmp_path / "file/below") in done.err
    assert "--folder" in done.err


def test_a_full_disk_leaves_no_half_of_the_data(call, tmp_path, monkeypatch):
    def fill(folder, place):
        (place / "half").write_text("")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo_command, "_write", fill)
    done = call("demo", "--folder", str(tmp_path / "new"))
    assert done.status == 3
    assert "new: No space left on device. Name another folder" in done.err
    assert not (tmp_path / "new").exists()


OFF_LINUX = """\
import os, signal, socket, sys
# Libraries have their own ways on Windows; here they are loaded as they are on Linux.
import asyncio, click, jinja2, msgspec, numpy, platformdirs, psutil, rich.console, subprocess, tempfile
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in "fork getuid killpg setsid getloadavg sched_getaffinity pread pwrite".split():
    delattr(os, name)
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
for name in "SIGHUP SIGUSR1 SIGUSR2 SIGKILL SIGSTOP SIGCONT pthread_sigmask".split():
    delattr(signal, name)
del socket.AF_UNIX
from harness.cli import main
commands = "demo --no-open --folder d|judge --base a.json --head b.json|import lines a.json|list"
for words in commands.split("|"):
    sys.argv = ["harness", *words.split()]
    try:
        main()
    except SystemExit as end:
        print("ended", end.code, flush=True)
"""


def test_what_reads_stored_measurements_needs_nothing_that_windows_lacks(tmp_path, own_cache):
    for name in ("a.json", "b.json", "kernels/toy/suite.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    done = subprocess.run(
        [sys.executable, "-c", OFF_LINUX], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    ended = [line for line in done.stdout.splitlines() if line.startswith("ended")]
    assert ended == ["ended 0", "ended 3", "ended 3", "ended 2"], done.stderr
    assert " open regression" in done.stdout  # as publish says
    planted = r"  \w{8}  planted   \+\d\.\d %  shared_tile: wait until every warp has finished"
    assert re.search(planted, done.stdout)
    assert "a.json is empty: nothing was measured." in done.stderr
    assert "suite.py was not run. Suites and kernels run on Linux and macOS" in done.stderr
    assert "Traceback" not in done.stderr


def test_machine_without_git_is_told_before_anything_else(call, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    done = call("demo", "--folder", str(tmp_path / "demo"))

    assert (done.status, done.out) == (2, "")
    assert "install git" in done.err


@pytest.mark.parametrize(
    ("options", "terminal", "opened"), [((), True, True), ((), False, False), (("--no-open",), True, False)]
)
def test_browser_opens_at_a_terminal_unless_declined(call, tmp_path, monkeypatch, options, terminal, opened):
    pages = []

    def browser(page):
        pages.append(page)
        return True

    monkeypatch.setattr(demo_command, "SCREENS", ())
    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("DISPLAY", ":0")

    assert call("demo", "--folder", str(tmp_path / "demo"), *options).status == 0

    assert pages == [(tmp_path / "demo/pull-request/review.html").as_uri()] * opened


def test_current_folder_and_settings_are_those_of_before(call, tmp_path, monkeypatch):
    monkeypatch.setattr(demo_command, "SCREENS", ())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_RESULTS", "others")

    assert call("demo", "--folder", "demo").status == 0

    assert Path.cwd() == tmp_path
    assert os.environ["HARNESS_RESULTS"] == "others"


def test_screen_that_fails_ends_the_demonstration(call, tmp_path, monkeypatch):
    broken = demo_command.Screen("Nothing.", ("rejudge", "README.md"))
    monkeypatch.setattr(demo_command, "SCREENS", (broken,))

    done = call("demo", "--folder", str(tmp_path / "demo"))

    assert done.status == 3
    assert "What to type next" not in done.out


def test_narrow_terminal_of_another_encoding_beside_other_settings(tmp_path, own_cache):
    """Nothing is written to the current folder, nor to the results folder of the user's own settings."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "40", "NO_COLOR": "1"}
    current, temporary, others = (tmp_path / name for name in ("current", "temporary", "others"))
    current.mkdir()
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "harness", "demo"],
        cwd=current,
        env={**os.environ, **plain, "TMPDIR": str(temporary), "HARNESS_RESULTS": str(others)},
        capture_output=True,
        check=False,
    )

    said = done.stdout.decode("ascii")
    [folder] = temporary.glob("*/*")
    assert done.returncode == 0, done.stderr
    assert {f"  {folder}", *(f"  {folder / page}" for page in demo_command.PAGES)} <= {*said.splitlines()}
    assert all((folder / page).is_file() for page in demo_command.PAGES)
    assert "\x1b" not in said
    assert all(len(line) <= 40 for line in said.partition("$ ")[0].splitlines())
    assert not others.exists()
    assert list(current.iterdir()) == []


def test_a_recording_shows_the_lines_in_their_colours_and_fetches_nothing():
    told = "Opening\n1. First\n\x1b[31mslower\x1b[0m & sure\n\n2. Second\n\n3. Left out\n"
    lines = recording.shown(told)
    assert lines == ["$ harness demo", "", "1. First", "\x1b[31mslower\x1b[0m & sure", "", "2. Second", ""]
    for theme in recording.THEMES.values():
        drawn = recording.picture(lines, theme)
        assert drawn == recording.picture(lines, theme)
        assert f"fill: {theme.ansi_colors[1].hex}" in drawn
        assert {"slower", "\N{NO-BREAK SPACE}&\N{NO-BREAK SPACE}sure"} <= set(ET.fromstring(drawn).itertext())
        assert "url(http" not in drawn
    asks = "import os, sys; print(os.isatty(1), os.get_terminal_size().columns); print(1, file=sys.stderr)"
    assert recording.in_terminal([sys.executable, "-c", asks]) == "True 100\n"


def test_the_history_to_record_says_what_each_commit_does(tmp_path):
    commits = demo_history.build(tmp_path / "demo")
    truth = json.loads((tmp_path / "demo/truth.json").read_text("utf-8"))
    assert [each["commit"] for each in truth] == commits
    edits = [each for each in truth if each["kind"] != "none"]
    assert {each["kind"] for each in edits} == {"real", "planted"}
    assert [each["subject"] for each in edits if each["expected"] == "slower"] == [
        "shared_tile: wait until every warp has finished",
        "copy_unrolled: one element a thread",
    ]
    # At the end the offsets and the copy are planted: the kernels are otherwise those of this repository.
    left = git.ask(tmp_path / "demo", "grep", "-n", "typedef index_t offset_t;").decode()
    assert left.count("naive_coalesced.cu") == 2
    commands = [*demo_history.work(commits, demo_history.CASES)]
    assert sorted(words[-1] for words in commands if words[0] == "run") == sorted(commits)
    assert commands[0][:4] == ("compare", commits[5], commits[6], "matmul.shared_tile@2048")
