"""Misspelt variables: an error with the name that was meant, wherever a configuration is loaded."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.config import VARIABLES, load_config
from harness.errors import ConfigError, ExitCode
from tests.support import IMPORT_PATH, ROOT, Done, commit, make_repository, run_command, run_forked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Project

pytestmark = pytest.mark.fault

_NAME = re.compile(r"HARNESS_[A-Z0-9_]*[A-Z0-9]")
OTHER = {"HARNESS_DISPATCH", "HARNESS_FILE"}
"""A macro in the sources of kernels, and a name of Python's in harness.ci.scaffold."""
_NO_SOURCE = {".git", ".asv", ".venv", "__pycache__", "node_modules"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("HARNESS_DEVCE", "HARNESS_DEVICE"),
        ("HARNESS_DEVICES", "HARNESS_DEVICE"),
        ("HARNESS_device", "HARNESS_DEVICE"),
        ("HARNESS_TIMEOUT", "HARNESS_TIMEOUT_S"),
        ("HARNESS_RESULT", "HARNESS_RESULTS"),
        ("HARNESS_CACHEDIR", "HARNESS_CACHE_DIR"),
        ("HARNESS_NULLSCRIPT", "HARNESS_NULL_SCRIPT"),
    ],
)
def test_a_misspelt_variable_is_told_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str, meant: str
) -> None:
    monkeypatch.setenv(written, "null")
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path)
    assert raised.value.message == f"{written}: no such variable. Did you mean {meant}?"


def test_a_name_that_is_like_none_is_told_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_BUILD_NUMBER_17", "1")
    with pytest.raises(ConfigError, match=r"no such variable.*unset it, or give it another name"):
        load_config(tmp_path)


@pytest.mark.parametrize("name", ["HARNESS", "MY_HARNESS_DEVCE", "harness_devce", "HARNESSDEVCE"])
def test_other_names_are_their_owners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setenv(name, "x")
    assert load_config(tmp_path).device is None


@pytest.mark.parametrize("command", [["check", "--device", "null"], ["devices"], ["history"], ["list"]])
def test_every_command_refuses_and_touches_nothing(
    harness: Callable[..., Done], project: Project, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("HARNESS_DEVCE", "null")
    done = harness(*command)
    assert (done.status, done.out) == (ExitCode.USAGE, "")
    assert done.err == "harness: HARNESS_DEVCE: no such variable. Did you mean HARNESS_DEVICE?\n"
    assert not (project.root / ".asv").exists()


def test_help_is_there_all_the_same(harness: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DEVCE", "null")
    assert harness("--help").status == ExitCode.FINE


def test_a_command_of_its_own_process(project: Project) -> None:
    done = run_command("check", "--device", "null", cwd=project.root, env={"HARNESS_L3": "cold"})
    assert done.returncode == ExitCode.USAGE
    assert "Did you mean HARNESS_L2?" in done.stderr


def test_asv_refuses(tmp_path: Path) -> None:
    pytest.importorskip("asv")
    from tests.test_asv import FILES

    root = make_repository(tmp_path / "measured")
    commit(root, FILES, 1)
    done = _in(root, "asv", "run", "HEAD^!")
    assert done.returncode != 0
    assert "HARNESS_DEVCE: no such variable. Did you mean HARNESS_DEVICE?" in done.stdout


def test_pytest_refuses_where_a_test_asks_for_a_card(project: Project) -> None:
    project.write(
        {"test_toy.py": "def test_it(gpu_case):\n    pass\n", "test_other.py": "def test_it(): pass\n"}
    )
    refused = _in(project.root, "pytest", "test_toy.py")
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "HARNESS_DEVCE: no such variable. Did you mean HARNESS_DEVICE?" in refused.stdout
    assert _in(project.root, "pytest", "test_other.py").returncode == 0, "it is none of our business"


def _in(root: Path, *module: str) -> subprocess.CompletedProcess[str]:
    return run_forked(
        [sys.executable, "-m", *module],
        cwd=root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, "HARNESS_DEVCE": "null"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )


def test_whatever_a_source_names_is_in_the_table() -> None:
    named = set(_named())
    assert sorted(named - VARIABLES - OTHER) == [], "a variable that harness.config does not know"
    settings = {"HARNESS_L2", "HARNESS_RESULTS", "HARNESS_SUITES", "HARNESS_TIMEOUT_S"}  # read by field
    assert sorted(VARIABLES - settings - named) == [], "a variable that nothing reads"


def _named() -> Iterator[str]:
    """Names in texts of Python's, and anywhere in shell scripts, workflows and unit files."""
    for top in ("harness", "scripts", "tests", "benchmarks", ".github", ".ci", "Makefile"):
        place = ROOT / top
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if not path.is_file() or _NO_SOURCE & {*path.parts} or path.parent.name == "faults":
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            if path.suffix == ".py":
                yield from _in_python(text) if _NAME.search(text) else ()
            elif path.suffix in ("", ".sh", ".yml", ".yaml", ".service", ".conf", ".toml"):
                yield from _NAME.findall(text)


def _in_python(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            yield node.value
