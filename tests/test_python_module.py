"""A module of Python that is run in somebody's folder imports nothing of the folder by a standard name."""

from __future__ import annotations

import json
import subprocess

import pytest

from harness.system.python_module import python_module
from tests.support import write_files

FACTS = """\
import json, sys
import msgspec
print(json.dumps([sys.argv, msgspec.__file__, "" in sys.path, __name__]))
"""


@pytest.mark.parametrize("safe", ["", "1"])
def test_standard_modules_are_pythons_and_packages_the_folder_s(tmp_path, monkeypatch, safe):
    monkeypatch.setenv("PYTHONSAFEPATH", safe)
    planted = dict.fromkeys(("json.py", "runpy.py", "statistics.py"), "raise SystemExit('planted')")
    write_files(tmp_path, {**planted, "msgspec.py": "", "own/__init__.py": "", "own/__main__.py": FACTS})
    command = python_module("own", "a word", packages=tmp_path)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    arguments, found, has_folder, name = json.loads(done.stdout)
    assert arguments == [str(tmp_path / "own" / "__main__.py"), "a word"]
    assert (found, has_folder, name) == (str(tmp_path / "msgspec.py"), False, "__main__")


def test_without_packages_the_folder_has_no_modules(tmp_path):
    write_files(tmp_path, {"own.py": ""})
    done = subprocess.run(python_module("own"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No module named own" in done.stderr
