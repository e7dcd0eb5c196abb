"""asv's Regressions page, our pages and the terminal: all three name the same regressions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("asv")

from harness.history.triage import FILE
from harness.integrations.asv.regressions import read_list
from harness.suite.case_id import parse_asv_name, short_id
from tests.support import IMPORT_PATH, git, run_command, run_forked
from tests.synthetic_history import CARDS, History, Step, Suite, Throttle, Written, write
from tests.test_asv_direction import ENV, PLUGIN, STEP_AT, A, Series, make_project

H200, A100 = CARDS[:2]
SUITE = Suite(kernels=("naive", "tiled", "blocked", "vector"), sizes=(1024,))
FALL, THROTTLED, COMMITS = 25, 45, 60
SMALL = "matmul.vector@1024"
EVENTS = (
    Step(case="naive", at=FALL, effect=-0.10),
    Step(case="tiled", at=30, effect=-0.08, card=A100.name),
    Step(case="blocked", at=15, until=35, effect=-0.12),
    Step(case="vector", at=20, effect=-0.03),
    Throttle(card=H200.name, start=THROTTLED, stop=COMMITS),
)
"""A fall on both cards, one that is accepted, one that is taken back, one below asv's 5 %, and a hot card."""


class Named(NamedTuple):
    """The regressions that each place names: card, case and commit of each."""

    asv: set[tuple[str, str, str]]
    feed: int
    page: set[str]
    """Ids of changes."""
    terminal: dict[str, tuple[str, str, str]]
    """The same by id."""


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Written:
    history = History(
        commits=COMMITS, cards=(H200, A100), suites=(SUITE,), events=EVENTS, records=True, seed=3
    )
    return write(history, tmp_path_factory.mktemp("written") / "project")


@pytest.fixture
def project(written, tmp_path, monkeypatch) -> Written:
    """A copy of the history, for one test."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
    root = Path(shutil.copytree(written.repository, tmp_path / "project", symlinks=True))
    results, conf = (root / each.relative_to(written.repository) for each in (written.results, written.conf))
    copy: Written = replace(written, repository=root, results=results, conf=conf)
    return copy


def published(written: Written) -> Named:
    root = written.repository
    done = run_command("publish", cwd=root)
    assert done.returncode == 0, done.stderr
    html = root / ".asv" / "html"
    told = json.loads((html / "harness" / "api" / "changes.json").read_text(encoding="utf-8"))
    entries = ET.parse(html / "regressions.xml").getroot().findall("{http://www.w3.org/2005/Atom}entry")
    return Named(
        asv=set(listed(html)),
        feed=len(entries),
        page={each["id"] for each in told if each["state"] in ("new", "expired")},
        terminal=dict(in_terminal(root)),
    )


def listed(html: Path) -> list[tuple[str, str, str]]:
    index = json.loads((html / "index.json").read_text(encoding="utf-8"))
    rows = json.loads((html / "regressions.json").read_text(encoding="utf-8"))["regressions"]
    found = []
    for name, graph, _, place, _, _, jumps in rows:
        [machine] = [each.machine for each in CARDS if f"/machine-{each.machine}/" in graph]
        assert (html / graph).is_file()
        benchmark = index["benchmarks"][name.partition("(")[0]]
        assert name.endswith(f"({combinations(benchmark)[place]})")
        track = parse_asv_name(name)
        assert track
        case = short_id(track.group.lower(), track.kernel, track.size)
        found += [(machine, case, index["revision_to_hash"][str(jump[1])]) for jump in jumps]
    return found


def combinations(benchmark: dict[str, Any]) -> list[str]:
    kernels, sizes = benchmark["params"]
    return [f"{kernel}, {size}" for kernel in kernels for size in sizes]


def in_terminal(root: Path) -> list[tuple[str, tuple[str, str, str]]]:
    done = run_command("history", "--json", cwd=root)
    cards = json.loads(done.stdout)["cards"]
    return [
        (each["id"], (card["name"], each["case"], each["bad"]))
        for card in cards
        for each in card["changes"]
        if each["state"] in ("new", "expired")
    ]


def configured(conf: Path, **settings: Any) -> None:
    told = json.loads(conf.read_text(encoding="utf-8"))
    conf.write_text(json.dumps({**told, **settings}), encoding="utf-8")


def test_the_three_name_the_same_and_nothing_that_is_settled(project):
    before = published(project)
    assert before.asv == {*before.terminal.values()}
    assert before.page == {*before.terminal}
    assert before.feed == len(before.asv)
    expected = {(each.machine, case) for each in (H200, A100) for case in ("matmul.naive@1024", SMALL)}
    accepted = A100.machine, "matmul.tiled@1024"
    assert {each[:2] for each in before.asv} == {*expected, accepted}
    fallen = git(project.repository, "log", "-1", "--format=%H", f"--skip={COMMITS - 1 - FALL}").strip()
    assert (H200.machine, "matmul.naive@1024", fallen) in before.asv

    [change] = [each for each, told in before.terminal.items() if told[:2] == accepted]
    decision = ("--acknowledge", change, "--reason", "on purpose", "--author", "Ada")
    assert run_command("history", *decision, cwd=project.repository).returncode == 0
    configured(project.conf, regressions_first_commits={".*vector": None})
    after = published(project)
    assert after.asv == {*after.terminal.values()}
    assert {each[:2] for each in after.asv} == {each for each in expected if each[1] != SMALL}
    assert after.page == {*after.terminal}


def test_of_two_environments_and_branches_each_has_its_own_graphs(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    series = {
        "m.track_falls": Series("track", "GFLOP/s", "higher", (100.0, 90.0)),
        "m.track_stays": Series("track", "GFLOP/s", "higher", (100.0, 100.0)),
    }
    project = make_project(tmp_path, series)
    git(project.root / "repo", "branch", "early", project.commits[STEP_AT - 1])
    git(project.root / "repo", "branch", "unmeasured", project.commits[0])
    for path in (tmp_path / "results").glob(f"*/{project.commits[0][:8]}-*.json"):
        path.unlink()
    configured(tmp_path / "asv.conf.json", branches=["unmeasured", "early", "main"])
    for path in (tmp_path / "results" / A).glob(f"*-{ENV}.json"):
        results = json.loads(path.read_text(encoding="utf-8"))
        params = {**results["params"], "python": "3.13"}
        results |= {"env_name": "other", "python": "3.13", "params": params}
        rows = results["results"]
        rows["m.track_falls"], rows["m.track_stays"] = rows["m.track_stays"], rows["m.track_falls"]
        path.with_name(path.name.replace(ENV, "other")).write_text(json.dumps(results), encoding="utf-8")
    found = {row.benchmark: row for row in read_list(project.publish(PLUGIN, into="html"))}
    for name, python in (("m.track_falls", "any"), ("m.track_stays", "3.13")):
        assert found[name].params == {"branch": "main", "machine": A, "python": python}
        assert f"/branch-main/machine-card-a/os-Linux/python-{python}/" in found[name].graph
    assert len(found) == 2


def test_what_asv_has_no_results_of_is_named_and_written_from_the_records(project):
    for path in (project.results / H200.machine).glob("*.json"):
        if path.name != "machine.json":
            path.unlink()
    done = run_command("publish", cwd=project.repository)
    assert {each[0] for each in listed(project.repository / ".asv" / "html")} == {A100.machine}
    said = " ".join(done.stderr.split())
    assert (
        "asv's Regressions page lacks 2 open regressions, as asv has no results there: "
        f"matmul.naive@1024 on {H200.machine}, {SMALL} on {H200.machine}. 'harness history' lists them."
    ) in said
    assert "asv's pages lack figures that records have: A record in" in said
    assert f"was it renamed? {project.result(0).name} cannot be rebuilt. " in said
    assert f"'harness rebuild' names {COMMITS - 1} more." in said
    suites_named(project)
    named = published(project)
    assert named.asv == {*named.terminal.values()}
    assert {each[0] for each in named.asv} == {H200.machine, A100.machine}


def suites_named(written: Written) -> None:
    """Say in asv's list which suite each track is of, as the plugin does."""
    path = written.results / "benchmarks.json"
    listed = json.loads(path.read_text(encoding="utf-8"))
    for name, benchmark in listed.items():
        if name != "version":
            benchmark["suite"] = name.split(".")[-2].lower()
    path.write_text(json.dumps(listed), encoding="utf-8")


def test_a_history_that_cannot_be_read_leaves_asvs_list(project):
    (project.repository / FILE).write_text("nothing", encoding="utf-8")
    done = asv_publish(project)
    assert len(listed(project.repository / ".asv" / "html")) > 0
    said = " ".join(done.stdout.split())
    assert f"The history cannot be read: Cannot read {project.repository / FILE}" in said
    assert "takes every rise for worse in its Regressions page and its feed" in said


def asv_publish(written: Written) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "asv", "publish", "--config", str(written.conf)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = run_forked(command, cwd=written.repository, timeout=120, **pipes)
    assert done.returncode == 0, done.stdout
    return done
