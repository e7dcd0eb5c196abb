"""Tests pass wherever this checkout lies, whoever runs them and whatever the user's home folder holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.forked_command import first_lines
from tests.support import open_folder


@pytest.fixture(scope="module")
def home_of_fixtures() -> Path:
    """The home folder in fixtures that several tests share."""
    return Path.home()


def test_no_folder_of_the_user_is_a_home_of_tests(home_of_fixtures, tmp_path_factory):
    ours = tmp_path_factory.getbasetemp()
    folders = {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    folders = {name: value for name, value in folders.items() if name.endswith("_HOME")}
    assert len(folders) == 4
    for folder in (Path.home(), home_of_fixtures, *map(Path, folders.values())):
        assert folder.is_relative_to(ours)


def test_a_folder_for_every_user_is_in_none_that_is_closed(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert tmp_path.parent.parent.stat().st_mode & 0o001 == 0, "pytest's own are for their owner"
    made = open_folder("surroundings-")
    try:
        assert not made.is_relative_to(tmp_path)
        assert all(each.stat().st_mode & 0o001 for each in (made, *made.parents))
    finally:
        shutil.rmtree(made)


@pytest.mark.parametrize("folder", ["a folder", "it's", "long" * 60])
def test_a_script_finds_this_python_in_any_folder(monkeypatch, tmp_path, folder):
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    script = tmp_path / "script"
    script.write_text(first_lines("-IS") + "import sys\nprint(sys.argv[1:], sys.flags.isolated)\n")
    script.chmod(0o755)
    done = subprocess.run([script, "an argument"], capture_output=True, text=True, check=True)
    assert done.stdout == "['an argument'] 1\n"
