"""asv's configuration found and read as asv does it, and its limits of regressions."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("asv")

from asv.config import Config
from asv.plugins.regressions import _GraphDataFilter
from asv.repo import Repo, get_repo
from asv.step_detect import detect_regressions, detect_steps
from asv.util import UserError

from harness.errors import ExitCode
from harness.history.asv_limits import limits_of
from harness.history.sources.our_records import Commits, read_commits
from harness.integrations.asv import conf as conf_module
from harness.records.imports.asv_configuration import read_plainly
from tests.support import commit_each, make_repository, write_files

COMMITS = 24
NAME = "b.time_a"
SLOWER = [1.0] * 12 + [1.3] * 12


@pytest.fixture(autouse=True)
def cache(own_cache):
    return own_cache


class Measured(NamedTuple):
    repository: Path
    line: list[str]
    commits: Commits
    asv: Repo
    """asv's view of the repository, which asks git each question once: asv forks this process for each
    question.
    """


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A repository of many commits; configurations name it, wherever they lie."""
    repository = make_repository(tmp_path_factory.mktemp("measured") / "repository")
    line = commit_each(repository, [{"n": f"{number}"} for number in range(COMMITS)])
    asv = get_repo(SimpleNamespace(repo=str(repository), project="", dvcs=None))
    for question in ("get_hash_from_name", "get_hashes_from_range"):
        setattr(asv, question, functools.cache(getattr(asv, question)))
    return Measured(repository, line, read_commits(repository), asv)


def settings(measured: Measured, **more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "repo": str(measured.repository),
        "branches": ["main"],
        "results_dir": "res",
        **more,
    }


def results(measured: Measured, factors: Sequence[float] = SLOWER) -> dict[str, str]:
    """The files of a results folder of asv's: a time a commit, with a little noise."""
    listed = {NAME: {"type": "time", "unit": "seconds", "params": [], "version": "1"}, "version": 2}
    files = {
        "benchmarks.json": json.dumps(listed),
        "box/machine.json": json.dumps({"machine": "box", "version": 1}),
    }
    for at, (commit, time_s) in enumerate(zip(measured.line, figures(factors), strict=True)):
        content = {
            "commit_hash": commit,
            "env_name": "virtualenv-py3.12",
            "date": 1000 * at,
            "params": {"machine": "box"},
            "python": "3.12",
            "requirements": {},
            "env_vars": {},
            "durations": {},
            "result_columns": ["result", "params", "version", "started_at"],
            "results": {NAME: [[time_s], [], "1", 1000 * at]},
            "version": 2,
        }
        files[f"box/{commit[:8]}-virtualenv-py3.12.json"] = json.dumps(content)
    return files


def topmost(folder: Path) -> Path:
    """A repository that has no configuration of asv's at its top."""
    top = make_repository(folder / "top")
    commit_each(top, [{"README.md": "read\n"}])
    return top


def figures(factors: Sequence[float]) -> list[float]:
    return [0.1 * factor * (1 + 0.001 * (at * 7 % 5 - 2)) for at, factor in enumerate(factors)]


def project(
    folder: Path, measured: Measured, name: str, text: str, factors: Sequence[float] = SLOWER
) -> Path:
    """Write a configuration, and results where it says; return its folder."""
    place = (folder / name).parent
    write_files(folder, {name: text})
    write_files(place / "res", results(measured, factors))
    return place


# Where it lies

COMMENTED = "// a comment: {}\n/* and\nanother */\n"


@pytest.mark.parametrize("has_asv", [True, False], ids=["with asv", "without"])
@pytest.mark.parametrize(
    "name", ["asv.conf.json", "asv.conf.jsonc", "bench/asv.conf.json", "a/b/asv.conf.jsonc"]
)
def test_a_configuration_is_found_at_the_top_and_in_a_folder_below(
    harness, measured, tmp_path, monkeypatch, name, has_asv
):
    top = topmost(tmp_path)
    text = json.dumps(settings(measured), indent=1).removesuffix("\n}") + ",  // last\n}\n"
    place = project(top, measured, name, COMMENTED + text)
    if not has_asv:
        monkeypatch.setattr(conf_module, "find_spec", lambda _: None)
    for start in {top, place}:
        monkeypatch.chdir(start)
        done = harness("history", "--json")
        assert done.status == ExitCode.REGRESSION, done.err
        [event] = done.json["events"]
        assert event["bad"] == measured.line[12]


def test_of_several_below_the_user_says_which(harness, measured, tmp_path, monkeypatch):
    top = topmost(tmp_path)
    for name in ("one", "two"):
        project(top, measured, f"{name}/asv.conf.json", json.dumps(settings(measured)))
    monkeypatch.chdir(top)
    done = harness("history")
    assert done.status == ExitCode.USAGE
    assert "one/asv.conf.json, two/asv.conf.json" in done.err
    assert "--config one/asv.conf.json" in done.err
    assert harness("history", "--config", "two/asv.conf.json").status == ExitCode.REGRESSION
    assert "and several below" not in harness("history", "--results", "one/res").err
    missing = harness("history", "--config", "three/asv.conf.json")
    assert missing.status == ExitCode.USAGE
    assert "--config is three/asv.conf.json, which is no file" in missing.err


def test_two_in_one_folder_are_refused_as_by_asv(harness, measured, tmp_path, monkeypatch):
    for name in ("asv.conf.json", "asv.conf.jsonc"):
        project(tmp_path, measured, name, json.dumps(settings(measured)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="Multiple"):
        Config.load()
    for command in (["history"], ["publish", "--without-asv"], ["rebuild"]):
        done = harness(*command)
        assert done.status == ExitCode.USAGE
        assert "has asv.conf.json and asv.conf.jsonc" in done.err
        assert "--config asv.conf.json" in done.err
    assert harness("history", "--config", "asv.conf.jsonc").status == ExitCode.REGRESSION


def test_results_of_the_projects_own_come_before_a_folder_below(harness, measured, tmp_path, monkeypatch):
    top = topmost(tmp_path)
    project(top, measured, "bench/asv.conf.json", json.dumps(settings(measured)))
    (top / ".asv/results").mkdir(parents=True)
    monkeypatch.chdir(top)
    assert harness("history").status == ExitCode.NOT_MEASURED
    monkeypatch.chdir(top / "bench")
    assert harness("history").status == ExitCode.REGRESSION


def test_pages_go_where_a_configuration_in_a_folder_below_says(harness, measured, tmp_path, monkeypatch):
    top = topmost(tmp_path)
    text = json.dumps(settings(measured, html_dir="site"))
    project(top, measured, "bench/asv.conf.jsonc", text)
    monkeypatch.chdir(top)
    assert harness("publish", "--without-asv").status == ExitCode.FINE
    assert (top / "bench/site/harness/index.html").exists()
    done = harness("rebuild")
    assert (done.status, done.out) == (ExitCode.FINE, "0 files written, 0 as the records have it.\n")


TEXTS = {
    "plain": '{"version": 1, "repo": "."}',
    "comments": '// one\n{"version": 1, /* two */ "repo": "a//b", // three\n "x": "/* text */"}',
    "last commas": '{"version": 1, "repo": ".", "branches": ["a,}", "b",], "matrix": {"req": {},},}',
    "quotes": r'{"version": 1, "repo": "a\"//b", "project": "\\"}',
    "no version": '{"repo": "."}',
    "another version": '{"version": 2, "repo": "."}',
    "no repository": '{"version": 1}',
    "no branch": '{"version": 1, "repo": ".", "branches": []}',
    "no JSON": '{"version": 1, "repo" "."}',
    "a list": "[1]",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_without_asv_a_file_says_what_it_says_to_asv(tmp_path, kind):
    file = tmp_path / "asv.conf.json"
    file.write_text(TEXTS[kind], encoding="utf-8")
    try:
        expected = Config.load(str(file))
    except (UserError, ValueError, TypeError):
        expected = None
    if expected is None:
        with pytest.raises(ValueError, match=r"."):
            read_plainly(file)
    else:
        plain = vars(read_plainly(file))
        assert {name: vars(expected)[name] for name in plain if name != "version"} == {
            name: value for name, value in plain.items() if name != "version"
        }


# Limits of regressions


@pytest.mark.parametrize("name", [NAME, "b.time_a(1, 'x')", "c.track_b"])
@pytest.mark.parametrize(
    "thresholds",
    [
        {".*": 0.2},
        {"b": 0.1, ".*a": "0.3", "c": 0.01},
        {"time_a": 0.2},
        {r".*@main$": 0.2},
        {r"b\.time_a$": 0.2},
        {r"b\.time_a\(1, 'x'\)": 0.2},
    ],
)
@pytest.mark.parametrize(
    "first",
    [{}, {".*": 5}, {"b": 5, ".*": 9}, {"c": None, ".*": 3}, {"nothing": None}, {".*@other": None}],
)
def test_limits_are_those_that_asv_takes(measured, name, thresholds, first):
    commits = {key: None if at is None else measured.line[at] for key, at in first.items()}
    conf = Config.from_json(
        settings(measured, regressions_thresholds=thresholds, regressions_first_commits=commits)
    )
    positions = {commit: at for at, commit in enumerate(measured.line)}
    asv = _GraphDataFilter(conf, measured.asv, positions)
    graph = SimpleNamespace(params={"branch": "main"})
    limits = limits_of(conf, "asv.conf.json", "main")
    limit = limits.placed(measured.repository, measured.commits).of(name)
    # asv's own default counts where no pattern does.
    threshold = 0.05 if limit is None or limit.threshold is None else limit.threshold
    assert threshold == asv._get_threshold(graph, {}, name)
    start = asv._get_start_revision(graph, {}, name)
    assert (start is None) == bool(limit and limit.off_pattern)
    if start is not None:
        assert start == (0 if limit is None or limit.first < 0 else limit.first + 1)


class Case(NamedTuple):
    limits: Mapping[str, Any]
    factors: Sequence[float]
    open: Sequence[int]
    """Commits whose regressions are open."""
    accepted: Sequence[int]
    why: str = ""


STAIRS = [1.0] * 6 + [1.1] * 6 + [1.21] * 6 + [1.331] * 6
CASES = {
    "above the threshold": Case({"regressions_thresholds": {".*": 0.2}}, SLOWER, [12], []),
    "below it": Case(
        {"regressions_thresholds": {"b": 0.1, "b.t": 0.4}},
        SLOWER,
        [],
        [12],
        'regressions_thresholds has 40 % for "b.t"',
    ),
    "of another benchmark": Case({"regressions_thresholds": {"time_a": 0.4}}, SLOWER, [12], []),
    "bit by bit": Case({"regressions_thresholds": {"b": 0.2}}, STAIRS, [12], [6, 18]),
    "at the newest commit": Case({"regressions_thresholds": {"b": 0.5}}, [1.0] * 23 + [1.4], [], [23]),
    "turned off": Case(
        {"regressions_first_commits": {".*": None}},
        SLOWER,
        [],
        [12],
        'regressions_first_commits has null for ".*"',
    ),
    "before the first commit": Case({"regressions_first_commits": {"b": 12}}, SLOWER, [], [12], 'for "b"'),
    "right after it": Case({"regressions_first_commits": {"b": 11}}, SLOWER, [12], []),
    "of a small threshold": Case(
        {"regressions_thresholds": {"b": 0.004}}, [1.0] * 12 + [1.009] * 12, [12], []
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_asv_would_not_report_is_accepted_with_the_reason(
    harness, measured, tmp_path, monkeypatch, case
):
    limits = {
        setting: {pattern: measured.line[at] if isinstance(at, int) else at for pattern, at in given.items()}
        for setting, given in case.limits.items()
    }
    project(tmp_path, measured, "asv.conf.json", json.dumps(settings(measured, **limits)), case.factors)
    monkeypatch.chdir(tmp_path)
    done = harness("history", "--json")
    states: dict[str, list[str]] = {"new": [], "acknowledged": []}
    for change in done.json["cards"][0]["changes"]:
        states[change["state"]].append(change["bad"])
        if change["state"] == "acknowledged":
            assert change["decision"]["author"] == "asv.conf.json"
            assert case.why in change["decision"]["reason"]
    assert states == {
        "new": [measured.line[at] for at in reversed(case.open)],
        "acknowledged": [measured.line[at] for at in reversed(case.accepted)],
    }
    assert done.status == (ExitCode.REGRESSION if case.open else ExitCode.FINE)
    told = " ".join(harness("history").out.split())
    [setting] = case.limits
    assert (f"asv.conf.json: {setting} has " in told) == ("time_a" not in case.limits[setting])


def test_stairs_are_reported_where_asv_reports_them():
    steps = detect_steps(figures(STAIRS))
    _, _, jumps = detect_regressions(steps, 0.2)
    assert [after for _, after, *_ in jumps] == CASES["bit by bit"].open


def test_a_first_commit_that_the_history_lacks_is_told(harness, measured, tmp_path, monkeypatch):
    text = json.dumps(settings(measured, regressions_first_commits={".*": "gone"}))
    project(tmp_path, measured, "asv.conf.json", text)
    monkeypatch.chdir(tmp_path)
    done = harness("history")
    assert done.status == ExitCode.REGRESSION
    assert (
        "asv.conf.json: regressions_first_commits names gone, which is not in the history at hand" in done.err
    )


@pytest.mark.parametrize(
    ("setting", "given", "said"),
    [
        ("regressions_thresholds", {"(": 0.1}, "has the pattern '(', which is no regular expression"),
        ("regressions_thresholds", {".*": "much"}, "has 'much' for '.*'; expected a number"),
        ("regressions_thresholds", [0.1], "is [0.1]; expected an object of patterns"),
        ("regressions_first_commits", {".*": 3}, "has 3 for '.*'; expected a commit, or null"),
    ],
)
def test_limits_that_mean_nothing_are_refused(harness, measured, tmp_path, monkeypatch, setting, given, said):
    project(tmp_path, measured, "asv.conf.json", json.dumps(settings(measured, **{setting: given})))
    monkeypatch.chdir(tmp_path)
    done = harness("history")
    assert done.status == ExitCode.USAGE
    assert f"asv.conf.json: {setting} {said}" in done.err
