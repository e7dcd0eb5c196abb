from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness import git
from harness.errors import GitError, HarnessError, SuiteError
from harness.loader import load, load_folder
from harness.sources import program
from tests import toy
from tests.conftest import *


def text_of(loaded, kernel="tiled"):
    suite = loaded.suite
    chosen = suite.by_name[kernel]
    return program(suite, chosen, suite.case(chosen, {"n": 64}), "null").text


def test_syntax_error_place(project):
    project.write({"kernels/toy/suite.py": "x = 1\ny = (\n"})
    with pytest.raises(SuiteError, match=r"suite\.py:2 raised SyntaxError"):
        load(project.suite)


def test_suite_error_place(project):
    project.write({"kernels/toy/suite.py": "from harness import Axis\n\nAxis((0,))\n"})
    with pytest.raises(SuiteError, match=r"suite\.py:3"):
        load(project.suite)


def test_byte_order_mark(project):
    (project.suite / "suite.py").write_bytes(b"\xef\xbb\xbf" + toy.SUITE.encode())
    load(project.suite)


def test_coding_cookie(project):
    (project.suite / "suite.py").write_bytes(b"# -*- coding: latin-1 -*-\nX = '\xe9'\n" + toy.SUITE.encode())
    load(project.suite)


def test_dataclass(project):
    project.write(
        {
            "kernels/toy/suite.py": "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
            + toy.SUITE
        }
    )
    load(project.suite)


def test_prints(project, capsys):
    project.write({"kernels/toy/suite.py": "print('hello')\n" + toy.SUITE})
    load(project.suite)
    assert capsys.readouterr().out == ""


def test_relative_folder(project):
    project.write({"kernels/toy/helper.py": "X = 1\n", "kernels/toy/suite.py": "import helper\n" + toy.SUITE})
    suite = load_folder(Path("kernels/toy"))
    assert "helper" not in sys.modules
    assert suite.root.is_absolute()


def test_relative_cache(project, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE_DIR", "my-cache")
    assert load(project.suite, "HEAD").suite.root.is_absolute()


def test_relative_cache_run(project, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE_DIR", "my-cache")
    done = subprocess.run([sys.executable, "-m", "harness.cli"], capture_output=True)
    done = subprocess.run(
        [str(Path(sys.executable).parent / "harness"), "check", "--device", "null", "--commit", "HEAD"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_top_level_suite_with_a_prelude_beside_it(project):
    suite = toy.SUITE
    commit = project.commit(
        {"mine/suite.py": suite, "mine/tiled.cu": "// here\n", "portable/null.h": "// null\n"}
    )
    assert "// null" in text_of(load(project.root / "mine"))
    assert "// null" in text_of(load(project.root / "mine", commit))


def test_absolute_link(project):
    (project.root / "kernels" / "data").symlink_to("/nonexistent/data")
    commit = project.commit()
    try:
        load(project.suite, commit)
    except HarnessError:
        pass


def test_unwritable_cache(project, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(HarnessError, match="HARNESS_CACHE_DIR"):
        load(project.suite, "HEAD")


def test_dubious_ownership(project, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitError, match="dubious ownership"):
        load(project.suite, "HEAD")


def test_dubious_ownership_tree(project, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitError, match="dubious ownership"):
        load(project.suite).source


def test_untracked_hidden_by_config(project):
    project.git("config", "status.showUntrackedFiles", "no")
    project.write({"kernels/toy/new.cu": ""})
    assert git.is_dirty(project.root, project.suite)


def test_included_from_beside_is_dirty(project):
    project.commit({"kernels/shared/x.h": "1", "kernels/toy/tiled.cu": '#include "../shared/x.h"\n'})
    project.write({"kernels/shared/x.h": "2"})
    assert load(project.suite).source.dirty


def test_no_suite_at_commit_names_commit(project):
    old = project.git("rev-parse", "HEAD")
    project.commit({"kernels/late/suite.py": toy.SUITE})
    with pytest.raises(SuiteError, match=old[:12]):
        load(project.root / "kernels" / "late", old)


def test_broken_at_commit_names_commit(project):
    bad = project.commit({"kernels/toy/suite.py": "1/0\n"})
    with pytest.raises(SuiteError, match=bad[:12]):
        load(project.suite, bad)


def test_suite_removes_syspath(project):
    project.write({"kernels/toy/suite.py": "import sys\nsys.path.pop(0)\n" + toy.SUITE})
    load(project.suite)


def test_suite_in_a_folder_named_like_a_module(project):
    project.write(
        {"kernels/toy/numpy/x.h": "", "kernels/toy/suite.py": "import numpy as np\nnp.ones\n" + toy.SUITE}
    )
    load(project.suite)
