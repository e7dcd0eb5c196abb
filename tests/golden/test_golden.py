"""Every face of every command, as reviewers last agreed to it: see tests/golden/expected.

`python -m tests.golden` renews the files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from harness import cli
from harness.output.review.faces import faces
from harness.output.review.reports import code_quality, junit, openmetrics, sarif
from tests.commits import make_project, only
from tests.golden import normal
from tests.golden.expected import hold
from tests.review_samples import LINKS, SAMPLES
from tests.support import Done, caller

Harness = Callable[..., Done]
NULL = ("--device", "null")


@pytest.fixture
def harness(capsys, monkeypatch, own_cache) -> Harness:
    """Calls `harness` in this process, on a terminal's 80 columns, and not as a CI job."""
    monkeypatch.delenv("CI", raising=False)  # it turns on a comparison's test of itself
    monkeypatch.setenv("COLUMNS", "80")
    return caller(capsys, monkeypatch)


def said(done: Done, *roots: Path) -> str:
    """Exit status, standard output and standard error of a command, as a reviewer reads them."""
    parts = {"standard output": done.out, "standard error": done.err}
    told = "".join(f"--- {name}\n{normal.text(part, *roots)}" for name, part in parts.items() if part)
    return f"--- exit status {done.status}\n{told}"


def both_forms(harness: Harness, *arguments: str, roots: tuple[Path, ...]) -> dict[str, str]:
    """Text and JSON of a command, by the names of their files."""
    return {
        "terminal.txt": said(harness(*arguments), *roots),
        "out.json": normal.document(harness(*arguments, "--json").json, *roots),
    }


# Help


def helps(command: click.Command, name: str, above: click.Context | None = None) -> dict[str, str]:
    """Help of a command and of every command below it, by the words that call it."""
    context = command.make_context(name, [], above, resilient_parsing=True)
    found = {context.command_path: f"{command.get_help(context)}\n"}
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            assert inner is not None
            found |= helps(inner, below, context)
    return found


def test_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = helps(cli.cli, "harness")
    hold("help", {f"{words.replace(' ', '-')}.txt": text for words, text in found.items()})


# Kernels measured on the null device, whose times their sources say


KERNELS = (
    *("slower", "faster", "changed", "untouched", "commented", "relaunched", "gone", "fresh"),
    *("build_head", "build_base", "wrong_head", "crash_head", "error_head", "retyped"),
    *("at_tolerance", "unfit"),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("kernels") / "project", only(*KERNELS))


@pytest.fixture
def kernels(repository, monkeypatch):
    """The repository of these kernels, which is also the current folder."""
    monkeypatch.chdir(repository)
    return repository


def test_list(harness, kernels):
    hold("list", both_forms(harness, "list", roots=(kernels,)))


def test_check(harness, kernels):
    hold("check", both_forms(harness, "check", *NULL, roots=(kernels,)))


def test_run(harness, kernels):
    hold("run", both_forms(harness, "run", *NULL, "--no-save", roots=(kernels,)))


def test_compare(harness, kernels):
    hold("compare", both_forms(harness, "compare", *NULL, "HEAD~1", roots=(kernels,)))


# What a pull request gets of a review


SHOWN = [name for name in SAMPLES if name not in ("many", "huge")]
"""Samples that a reviewer can read; the other two are about size."""


@pytest.mark.parametrize("sample", SHOWN)
def test_review(sample):
    review = SAMPLES[sample]()
    files = {name: content.decode() for name, content in faces(review, LINKS).items()}
    reports = {
        "junit.xml": junit(review),
        "sarif.json": sarif(review),
        "code-quality.json": code_quality(review),
        "openmetrics.txt": openmetrics(review),
    }
    hold(
        f"review/{sample}",
        {
            name: normal.json_text(text) if name.endswith(".json") else normal.text(text)
            for name, text in {**files, **reports}.items()
        },
    )
