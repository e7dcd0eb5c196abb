"""Every face of every command, as reviewers last agreed to it: see tests/golden/expected.

`python -m tests.golden` renews the files.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
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
from tests.synthetic_history import CARDS, History, Step, Suite, Throttle, write

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


# A history and its pages, from every kind of source


H200, A100 = CARDS[:2]
NAIVE = "matmul.naive@1024"
HISTORY = History(
    commits=40,
    cards=(H200, A100),
    suites=(Suite(kernels=("naive", "tiled"), sizes=(1024,)),),
    tracks=("gflops", "time_ms", "sm_clock_mhz", "temperature_c", "registers"),
    events=(
        Step(case="naive", at=10, effect=-0.10, card=H200.name, registers=8),
        Step(case="tiled", at=16, effect=0.10),
        Throttle(card=H200.name, start=24, stop=36),
    ),
    noise=0.003,
    records=True,
)
SECOND_ENVIRONMENT = "checkout-py3.13"


def keep_both(results: Path) -> None:
    """Leave records and asv's files as they are."""


def keep_records(results: Path) -> None:
    for path in results.rglob("*.json"):
        path.unlink()


def keep_asv(results: Path) -> None:
    for path in results.rglob("*.jsonl"):
        path.unlink()


def keep_two_environments(results: Path) -> None:
    """Leave asv's files alone, and copy the files of one card to a second environment of asv's."""
    keep_asv(results)
    for path in sorted((results / H200.machine).glob("*-checkout-pyany.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        changed = {**result, "env_name": SECOND_ENVIRONMENT}
        name = path.name.replace("checkout-pyany", SECOND_ENVIRONMENT)
        path.with_name(name).write_text(json.dumps(changed), encoding="utf-8")


SOURCES: Mapping[str, Callable[[Path], None]] = {
    "both": keep_both,
    "records": keep_records,
    "asv": keep_asv,
    "two-environments": keep_two_environments,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(HISTORY, tmp_path_factory.mktemp("history") / "project")


@pytest.fixture(params=SOURCES)
def source(request) -> str:
    return str(request.param)


@pytest.fixture
def measured(written, source, tmp_path, monkeypatch):
    """A copy of the history with the figures of one source, which is also the current folder."""
    root = Path(shutil.copytree(written.repository, tmp_path / "project", symlinks=True))
    SOURCES[source](root / ".asv" / "results")
    monkeypatch.chdir(root)
    return root


def test_history(harness, source, measured):
    outputs = both_forms(harness, "history", roots=(measured,))
    outputs["every.txt"] = said(harness("history", "--all"), measured)
    outputs["case.txt"] = said(harness("history", NAIVE, "--metric", "time_ms"), measured)
    hold(f"history/{source}", outputs)


LEFT_OUT = re.compile(r"static/|(api|data)/(runs|series)/|data/(cards|commits|events)/?")
"""Files of a site that say nothing new: scripts as they lie in the source, a document for each run and
series, and second copies of the documents in api/."""


def test_site(harness, source, measured):
    done = harness("publish", "--without-asv", "--json")
    folder = Path(done.json["folder"])
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files]
    firsts = [next(name for name in names if name.startswith("api/series/"))]
    firsts += [name for name in names if name.startswith("api/runs/")][-1:]
    shown = [name for name in names if not LEFT_OUT.match(name)] + firsts
    outputs = {name: readable(folder / name, measured) for name in shown}
    hold(
        f"site/{source}",
        {**outputs, "publish.txt": said(done, measured), "files.txt": "\n".join(names) + "\n"},
    )


def readable(path: Path, root: Path) -> str:
    """A published file for reviewers."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return normal.json_text(content, root)
    if data := re.fullmatch(r'harness\.data\(("[^"]*"), (.*)\);\n?', content, re.DOTALL):
        return f"harness.data({data[1]}, {normal.json_text(data[2], root)});\n"
    return normal.text(content, root)
