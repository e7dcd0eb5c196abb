"""docs/first-hour.md: its files are written, its commands run in order, and say what it shows."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest

import harness
from harness.cli import cli
from harness.suite.kernel import Kernel
from tests.benchmark_json import google_entry, google_script
from tests.support import ROOT, caller, git, make_repository, write_files

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|//) (\S+/\S+)\n")
PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
CONSOLES = [name for name in SECTIONS if "```console" in SECTIONS[name]]
"""Sections that show commands and what these print."""
COMPILER = """\
#!/bin/sh
for last; do :; done
cat > "$last" <<'PROGRAM'
{program}PROGRAM
chmod +x "$last"
"""
"""Stands in for g++, since Google Benchmark is no package of Python's: what it makes writes made-up JSON."""


@pytest.fixture
def call(capsys, monkeypatch):
    return caller(capsys, monkeypatch)


def steps(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a page's consoles, each with the lines that it is shown to print."""
    lines = [line for kind, code in FENCE.findall(text) if kind == "console" for line in code.splitlines()]
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def is_as_shown(said: str, shown: list[str]) -> bool:
    """Return True if a command printed the lines shown, where `...` matches any lines."""
    pattern = r"\n".join(".*" if line == "..." else re.escape(line.rstrip()) for line in shown)
    return re.fullmatch(pattern, "\n".join(map(str.rstrip, said.splitlines())), re.DOTALL) is not None


def lacking(folder: Path) -> str:
    """Return the names that suites there import from the harness and that it lacks; empty for none."""
    known = {*harness.__all__, *(field.name for field in dataclasses.fields(Kernel))}
    for suite in folder.glob("perf/*/suite.py"):
        text = suite.read_text(encoding="utf-8")
        (imported,) = re.findall(r"^from harness import (.+)$", text, re.MULTILINE)
        wanted = {*imported.split(", "), *re.findall(r"^            (\w+)=", text, re.MULTILINE)}
        if missing := wanted - known:
            return ", ".join(sorted(missing))
    return ""


def excerpts(text: str) -> list[str]:
    """The lines that a section shows of a suite that was written."""
    parts = [code for kind, code in FENCE.findall(text) if kind == "python" and not FILE.match(code)]
    return [line for part in parts if "def reference" not in part for line in part.splitlines()]


@pytest.mark.parametrize("author", CONSOLES)
def test_every_command_does_what_the_page_shows(tmp_path, monkeypatch, call, author):
    section = SECTIONS[author]
    top = make_repository(tmp_path / "theirs")
    write_files(top, {found[1]: code for _, code in FENCE.findall(section) if (found := FILE.match(code))})
    monkeypatch.chdir(top)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    compiler = write_files(
        tmp_path, {"bin/g++": COMPILER.format(program=google_script([google_entry("BM_sum")]))}
    )
    (compiler / "bin" / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler / "bin"), prepend=os.pathsep)
    for command, shown in steps(section):
        words = shlex.split(command)
        if words[0] == "git":
            git(top, *words[1:])
            continue
        if words[0] != "harness":
            subprocess.run(command, shell=True, check=True)
            continue
        if words[1] != "init" and (missing := lacking(top)):
            pytest.skip(f"suites that are written need {missing}")
        done = call(*words[1:])
        assert done.status == 0, command
        assert is_as_shown(done.out, shown), done.out
        written = "".join(path.read_text(encoding="utf-8") for path in top.glob("perf/*/suite.py"))
        assert [line for line in excerpts(section) if line.strip() not in written] == []


def test_the_page_has_a_first_look_and_every_kind_of_author():
    looks, *authors = CONSOLES
    assert looks == "A look before anything else"
    assert authors == ["CUDA source", "Templates", "Triton", "PyTorch", "JAX", "C++ benchmarks"]


def test_the_first_screen_of_help_is_a_page_and_begins_with_init():
    lines = cli.get_help(cli.make_context("harness", [], resilient_parsing=True)).splitlines()
    assert len(lines) <= 36
    assert lines[lines.index("Commands:") + 1].split()[0] == "init"
