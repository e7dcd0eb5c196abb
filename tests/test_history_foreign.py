"""Results of any asv project: environments apart, nothing merged and nothing dropped without a word."""

from __future__ import annotations

import csv
import datetime as dt
import json
from dataclasses import replace

import pytest

from harness.errors import ExitCode
from harness.history.export import export
from harness.history.reading import concluded, open_results, read_card
from harness.history.sources.our_records import Commits, read_commits
from harness.history.triage import Decision
from harness.report.terminal.history_tables import exit_code, print_history
from harness.system.git import Commit
from tests.support import commit, git, make_repository

X, Y = "bench.Sort.time_x", "bench.Sort.time_y"
OLD, NEW = "virtualenv-py3.12-numpy1.26", "virtualenv-py3.13-numpy1.26"


@pytest.fixture(autouse=True)
def cache(own_cache):
    return own_cache


def line(count):
    return Commits(
        tuple(Commit(f"{number:040x}", 1_700_000_000 + 86_400 * number, "Ada", "") for number in range(count))
    )


class Project:
    """A results folder of asv's in the making, of commits that are numbers."""

    def __init__(self, results):
        self.results, self.listed = results, {}

    def lists(self, name, kind="time", unit="seconds", params=(), **more):
        self.listed[name] = {"type": kind, "unit": unit, "params": params, "version": "1", **more}

    def put(
        self, at, figures, environment=OLD, *, machine="box", system="Linux 6.8", named="", number=1, **more
    ):
        """A result file of one commit; `figures` by benchmark, one for each of its parameters."""
        folder = self.results / machine
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "machine.json").write_text(json.dumps({"machine": machine, "os": system, "version": 1}))
        rows = {}
        for name, values in figures.items():
            params = self.listed.get(name, {}).get("params", ())
            rows[name] = [values if isinstance(values, list) else [values], params, "1", 1000 * at, [number]]
        content = {
            "commit_hash": f"{at:040x}",
            "env_name": environment,
            "params": {"machine": machine, "os": system},
            "result_columns": ["result", "params", "version", "started_at", "stats_number"],
            "results": rows,
            "version": 2,
            **more,
        }
        path = folder / f"{named or f'{at:08x}'}-{environment}.json"
        path.write_text(json.dumps(content))

    def read(self, count=20, directions=None, decisions=()):
        """Every card by its name."""
        (self.results / "benchmarks.json").write_text(json.dumps({**self.listed, "version": 2}))
        commits = line(count)
        found = open_results(self.results, commits, directions)
        return {card.name: read_card(card, found, commits, decisions) for card in found.cards}


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path / "results")
    made.lists(X)
    made.lists(Y)
    return made


def points(card):
    """Return the figures of each case by position."""
    return {
        one.series.case.name: dict(
            zip(one.series.positions.tolist(), one.series.values.tolist(), strict=True)
        )
        for one in card.analysed
    }


# Environments


def test_environments_that_overlap_are_cards_of_their_own_that_share_nothing(project):
    for at in range(4):
        project.put(at, {X: 1 + at, Y: 5}, OLD)
        project.put(at, {X: 101 + at}, NEW, system="Windows 11")
    found = project.read()
    assert list(found) == ["box/py3.12", "box/py3.13"]
    assert points(found["box/py3.12"]) == {X: {0: 1, 1: 2, 2: 3, 3: 4}, Y: dict.fromkeys(range(4), 5)}
    assert points(found["box/py3.13"]) == {X: {0: 101, 1: 102, 2: 103, 3: 104}}
    assert [card.machine["os"] for card in found.values()] == ["Linux 6.8", "Windows 11"]
    assert {one.series.card for one in found["box/py3.13"].analysed} == {"box/py3.13"}


def test_environments_that_alternate_are_apart_and_those_that_follow_each_other_are_one_card(project):
    for at in range(6):
        project.put(at, {X: at}, NEW if at % 2 else OLD)
    assert [points(card)[X] for card in project.read().values()] == [{0: 0, 2: 2, 4: 4}, {1: 1, 3: 3, 5: 5}]
    for at in (1, 3):
        (project.results / "box" / f"{at:08x}-{NEW}.json").unlink()
    [card] = project.read().values()
    assert card.name == "box"
    assert points(card)[X] == {0: 0, 2: 2, 4: 4, 5: 5}
    [series] = [one.series for one in card.analysed]
    assert series.epoch.tolist() == [0, 0, 0, 1]
    assert series.epochs[1].changed == (f"asv's environment {OLD} → {NEW}",)


def test_one_benchmark_again_in_a_second_environment_hides_nothing_of_the_first(project):
    for at in range(6):
        project.put(at, {X: 1, Y: 2}, OLD)
    before = points(project.read()["box"])
    project.put(3, {Y: 7}, NEW)
    found = project.read()
    assert points(found["box/py3.12"]) == before
    assert points(found["box/py3.13"]) == {Y: {3: 7}}


def test_a_decision_for_a_machine_holds_in_each_of_its_environments(project):
    for at in range(40):
        for environment in (OLD, NEW):
            project.put(at, {X: (1 if at < 20 else 2) + 1e-3 * (at % 4)}, environment)
    given = Decision(id="none", case=X, commit=f"{20:040x}", reason="on purpose", author="Ada", card="box")
    for card, states in (("box", ["acknowledged"] * 2), ("box/py3.13", ["new", "acknowledged"])):
        found = project.read(40, decisions=[replace(given, card=card)])
        assert [each.state for card in found.values() for each in card.changes] == states


def test_one_environment_on_two_systems_is_two(project):
    for at in range(4):
        project.put(at, {X: 1}, OLD, named=f"a{at}")
        project.put(at, {X: 3}, OLD, named=f"b{at}", system="Windows 11")
    found = project.read()
    assert {name: set(points(card)[X].values()) for name, card in found.items()} == {
        "box/Linux": {1},
        "box/Windows": {3},
    }


@pytest.mark.parametrize(
    ("environments", "names"),
    [
        (["virtualenv-py3.12", "conda-py3.12"], ["box/conda", "box/virtualenv"]),
        (["v-py3.12", "v-py3.12-numpy1.26"], ["box/v-py3.12", "box/numpy1.26"]),
        (["v-a-b", "v-b-a"], ["box/v-a-b", "box/v-b-a"]),
        (["a-b-x", "a-b-y", "b-a-x"], ["box/a-b-x", "box/y", "box/b-a-x"]),
        (
            ["v-py3.12-np1", "v-py3.12-np2", "v-py3.13-np2"],
            ["box/py3.12-np1", "box/py3.12-np2", "box/py3.13-np2"],
        ),
    ],
)
def test_a_card_is_called_by_what_tells_its_environment_from_the_others(project, environments, names):
    for environment in environments:
        project.put(1, {X: 1}, environment)
    assert list(project.read()) == names


def test_environments_of_many_requirements_have_names_that_fit_and_differ(project):
    for last in "ab":
        requirements = "-".join(f"{last}{number}" for number in range(99))
        project.put(1, {X: 1}, f"v-{requirements}"[:200])
    assert [(len(name), name[:12]) for name in project.read()] == [(64, "box/a0-a1-a2"), (64, "box/b0-b1-b2")]


def test_an_environment_of_unknown_commits_alone_is_told_of(project):
    project.put(1, {X: 1}, OLD)
    project.put(2, {X: 2}, OLD)
    project.put(99, {X: 9}, NEW)
    [card] = project.read().values()
    assert points(card)[X] == {1: 1, 2: 2}
    assert card.problems[0].startswith("1 of 3 results are of commits that are not in the history at hand")
    project.put(1, {X: 4}, "virtualenv-py3.14-numpy1.26")
    found = project.read()
    assert list(found) == ["box/py3.12", "box/py3.13", "box/py3.14"]
    assert found["box/py3.13"].problems[0].startswith("1 of 1 results are of commits that are not")


def test_a_file_that_names_no_environment_is_of_that_in_its_name(project):
    for at in (1, 2):
        project.put(at, {X: 1}, "virtualenv-py3.11", env_name=None)
        project.put(at, {X: 2}, "virtualenv-py3.12")
    assert {name: points(card)[X] for name, card in project.read().items()} == {
        "box/py3.11": {1: 1, 2: 1},
        "box/py3.12": {1: 2, 2: 2},
    }


# Which way is better


TODAY = dt.date(2024, 6, 1)
SCORE = "bench.Game.track_score"


def test_a_change_of_which_nobody_knows_the_better_way_is_neither_a_regression_nor_an_improvement(
    project, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    project.lists(SCORE, "track", "unit")
    for at in range(40):
        project.put(at, {SCORE: (100 if at < 20 else 80) + at % 3, X: 1})

    def change(directions=None):
        cards = project.read(40, directions)
        history = concluded([*cards.values()], (), line(40), TODAY)
        [found] = [each for card in history.cards for each in card.changes]
        print_history(history, every=True)
        return found.change.kind, exit_code(history), capsys.readouterr().out

    kind, status, told = change()
    assert (kind, status) == ("change", ExitCode.FINE)
    assert "20.8 % less" in told or "19.8 % less" in told
    assert 'set directions = { "track_score" = "higher" }' in " ".join(told.split())
    assert "Changes: 1 either way." in told
    for said, expected in (("higher", "regression"), ("lower", "improvement")):
        kind, _, told = change({"track_*": said})
        assert kind == expected
        assert "directions" not in told


# What the suite has no more, and what is no figure


def test_benchmarks_and_parameters_that_the_suite_has_no_more_are_still_shown(project):
    size = "bench.Sort.peakmem_size"
    project.lists(size, "peakmemory", "bytes", params=[["'small'", "'large'"]])
    project.lists("old.track_fps", "track", "unit")
    project.put(1, {size: [1, 2], "old.track_fps": 60})
    del project.listed["old.track_fps"]
    project.lists(size, "peakmemory", "bytes", params=[["'large'", "'huge'"]])
    project.put(2, {size: [3, 4]})
    [card] = project.read().values()
    assert points(card) == {
        f"{size}(large)": {1: 2, 2: 3},
        f"{size}(huge)": {2: 4},
        f"{size}(small)": {1: 1},
        "old.track_fps": {1: 60},
    }
    assert card.problems == ()
    cases = {one.series.case.name: one.series.case for one in card.analysed}
    assert set(card.ended) == {"old.track_fps", f"{size}(small)"}
    assert (cases["old.track_fps"].direction, cases[f"{size}(small)"].unit) == ("higher", "bytes")


def test_a_track_of_texts_is_told_and_is_no_failure(project):
    version = "bench.track_version"
    project.lists(version, "track", "unit", params=[["1", "2", "3", "4"]])
    project.put(1, {version: ["v1.2", 7, None, True], X: 1})
    project.put(2, {version: [{"a": 1}, 8, 3, [2]], X: 1})
    [card] = project.read().values()
    found = {one.series.case.name: one.series for one in card.analysed}
    assert f"{version}(1)" not in found
    assert found[f"{version}(2)"].values.tolist() == [7, 8]
    assert found[f"{version}(3)"].failed.tolist() == [True, False]
    assert found[f"{version}(4)"].positions.tolist() == [1]
    assert card.problems == (f"Results that are no numbers are left out: {version}.",)
    assert card.failing == ()


def test_results_of_a_newer_asv_are_told_in_one_line(project):
    for at in range(9):
        project.put(at, {X: at}, version=3 if at > 4 else 2)
    [card] = project.read().values()
    assert points(card)[X] == {at: at for at in range(5)}
    assert card.problems == (
        f"4 files, such as 00000005-{OLD}.json, are left out: the format is 3, and this harness reads 2.",
    )


# How it was measured


def test_what_differs_in_how_a_case_was_measured_is_told_at_its_first_point(project):
    numpy = {"machine": "box", "os": "Linux 6.8", "numpy": "1.25"}
    project.put(0, {X: 1, Y: 1}, number=10, params=numpy)
    project.put(1, {X: 1, Y: 1}, number=1, params=numpy)
    project.put(2, {Y: 1}, params={**numpy, "numpy": "1.26", "machine": "renamed"})
    project.put(3, {X: 1, Y: 1}, params={**numpy, "numpy": "1.26", "os": "Linux 6.17"})
    [card] = project.read().values()
    told = {
        one.series.case.name: [
            (each.at, each.key, each.before, each.after, each.kind) for each in one.series.shifts
        ]
        for one in card.analysed
    }
    number = (1, "number", "10", "1", "measurement")
    system = ("os", "Linux 6.8", "Linux 6.17", "machine")
    assert told[X] == [number, (2, "numpy", "1.25", "1.26", "dependency"), (2, *system)]
    assert told[Y] == [number, (2, "numpy", "1.25", "1.26", "dependency"), (3, *system)]
    assert {len(one.series.epochs) for one in card.analysed} == {1}


def test_what_a_result_tells_of_its_machine_turns_no_terminal_around(project, capsys):
    for at in range(40):
        system = "Linux" if at < 20 else "\x1b]0;owned\x1b[2J\u202eevil"
        project.put(at, {X: (1 if at < 20 else 2) + 1e-3 * (at % 4)}, system=system)
    [card] = project.read(40).values()
    print_history(concluded([card], (), line(40), TODAY), every=True)
    shown = capsys.readouterr().out
    assert "Measured otherwise: os Linux → \ufffd]0;owned" in " ".join(shown.split())
    assert not {"\x1b", "\u202e"} & set(shown)


def test_a_number_that_asv_chooses_in_each_run_tells_nothing(project):
    project.lists(X, number=0)
    project.lists(Y, number=5)
    project.put(0, {X: 1, Y: 1}, number=53)
    project.put(1, {X: 1, Y: 1}, number=55)
    [card] = project.read().values()
    told = {one.series.case.name: [each.key for each in one.series.shifts] for one in card.analysed}
    assert told == {X: [], Y: ["number"]}


def test_a_version_that_asv_made_of_a_source_is_told_in_short(project):
    for at, version in enumerate(("a" * 64, "b" * 64)):
        project.put(at, {X: 1})
        path = project.results / "box" / f"{at:08x}-{OLD}.json"
        path.write_text(path.read_text().replace('[], "1"', f'[], "{version}"'))
    [card] = project.read().values()
    assert card.analysed[0].series.epochs[1].changed == ("method of measuring aaaaaaaa → bbbbbbbb",)


# What is measured no more


def test_a_case_that_is_missing_in_the_newest_runs_is_stale(project):
    for at in range(12):
        project.put(at, {X: 1, **({Y: 1} if at < 5 else {})})
    project.put(0, {X: 1}, machine="old")
    found = project.read(15)
    card = found["box"]
    assert (card.ended, card.spans) == ({Y: ""}, {X: (0, 11), Y: (0, 4)})
    assert found["old"].ended == {}


@pytest.mark.parametrize(("gone", "state"), [(False, "new"), (True, "stale")])
def test_a_regression_of_a_case_that_is_measured_no_more_is_stale_and_not_open(project, gone, state):
    for at in range(60):
        slower = {Y: (1 if at < 20 else 2) + 1e-3 * (at % 4)}
        project.put(at, {X: 1 + 1e-3 * (at % 3), **(slower if at < 40 or not gone else {})})
    history = concluded([*project.read(60).values()], (), line(60), TODAY)
    assert [(each.change.case, each.state) for each in history.conclusion.changes] == [(Y, state)]
    assert [event.state for event in history.events] == [state]
    assert exit_code(history) == (ExitCode.FINE if gone else ExitCode.REGRESSION)


def test_a_card_that_was_not_measured_for_long_has_stale_regressions(project):
    for at in range(40):
        project.put(at, {Y: (1 if at < 20 else 2) + 1e-3 * (at % 4)}, machine="old")
    for at in range(40, 200):
        project.put(at, {Y: 1 + 1e-3 * (at % 3)})
    history = concluded([*project.read(200).values()], (), line(200), TODAY)
    assert [(each.change.card, each.state) for each in history.conclusion.changes] == [("old", "stale")]


def test_a_case_that_is_measured_seldom_is_not_stale_and_a_run_of_a_few_makes_no_other_so(project):
    names = [f"bench.Sort.time_{letter}" for letter in "abcdef"]
    for name in names:
        project.lists(name)
    for at in range(40):
        project.put(at, dict.fromkeys(names[: 5 if at % 10 else 6], 1) if at < 35 else {names[0]: 1})
    [card] = project.read(40).values()
    assert card.ended == {}


def test_a_suite_that_was_renamed_is_told_of_each_case(project):
    before, after = (
        {f"{suite}.time_{letter}": 10.0**place for place, letter in enumerate("abc")}
        for suite in ("bench.Sort", "bench.Ordering")
    )
    for name in after:
        project.lists(name)
    for at in range(20):
        project.put(at, before if at < 9 else after)
    [card] = project.read().values()
    assert card.ended == dict(zip(before, after, strict=True))


def test_what_lies_on_another_level_or_began_later_is_no_rename(project):
    lost, other, later = "bench.Sort.time_old_way", "bench.Sort.time_way_old", "bench.Sort.time_old_way_2"
    for at in range(30):
        rows = {lost: 1} if at < 9 else {other: 5}
        project.put(at, {X: 1, Y: 1, **rows, **({later: 1} if at >= 15 else {})})
    [card] = project.read(30).values()
    assert card.ended[lost] == ""


@pytest.mark.parametrize(
    ("lost", "other"), [("bench.Sort.time_поиск", "bench.Sort.time_сумма"), ("ж.+", "ö.-")]
)
def test_words_of_any_alphabet_tell_names_apart(project, lost, other):
    for at in range(30):
        project.put(at, {X: 1, Y: 1, (lost if at < 9 else other): 1})
    [card] = project.read(30).values()
    assert card.ended[lost] == ""


# Histories that are not as they should be


def test_a_gap_of_fifty_failed_commits_hides_neither_side(project):
    for at in range(120):
        project.put(at, {X: None if 40 <= at < 90 else (1 if at < 40 else 2) + 1e-3 * (at % 3)})
    [card] = project.read(120).values()
    [one] = card.analysed
    assert one.series.failed.sum() == 50
    [change] = one.changes
    assert (change.good, change.bad) == (39, 90)
    assert card.failing == ()
    assert X not in card.ended


def test_a_history_of_one_commit_is_read(project):
    project.put(0, {X: 1, Y: None})
    [card] = project.read(1).values()
    assert points(card)[X] == {0: 1}
    assert (card.changes, card.failing) == ((), ())


def test_opposite_changes_on_two_machines_stay_what_each_is(project):
    for at in range(40):
        noise = 1e-3 * (at % 4)
        project.put(at, {X: (1 if at < 20 else 2) + noise}, machine="up")
        project.put(at, {X: (2 if at < 20 else 1) + noise}, machine="down")
    found = project.read(40)
    kinds = {name: [each.change.kind for each in card.changes] for name, card in found.items()}
    assert kinds == {"up": ["regression"], "down": ["improvement"]}


def shown_of(project, capsys, count=40):
    print_history(concluded(list(project.read(count).values()), (), line(count), TODAY))
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("overlap", "other", "is_told"),
    [(0, X, True), (1, X, False), (0, Y, False)],
    ids=["", "overlap", "cases"],
)
def test_a_machine_that_begins_where_one_like_it_ends_may_be_the_same(
    project, capsys, overlap, other, is_told
):
    for at in range(40):
        if at < 20 + overlap:
            project.put(at, {X: 1 + 1e-3 * (at % 4)}, machine="old")
        if at >= 20:
            project.put(at, {other: 2 + 1e-3 * (at % 4)}, machine="new")
    assert ("new begins where old ends, with its cases" in shown_of(project, capsys)) == is_told


@pytest.mark.parametrize(
    ("ratio", "told"), [(1000, "about 1,000 times as much"), (1e6, "about 1,000,000 times"), (500, "")]
)
def test_figures_that_may_be_in_another_unit_are_told(project, capsys, ratio, told):
    for at in range(40):
        project.put(at, {X: (1 if at < 20 else ratio) * (1 + 1e-3 * (at % 4))})
    shown = shown_of(project, capsys)
    assert told in shown
    assert ("look whether its unit changed" in shown) == bool(told)


def test_commits_of_dates_that_no_calendar_has_are_exported(tmp_path, project):
    repository = make_repository(tmp_path / "repo")
    for seconds in (0, 2**40, 2**62):
        git(repository, "commit", "-q", "--allow-empty", "-m", "A date", date=f"@{seconds} +0000")
    commits = read_commits(repository)
    for at, each in enumerate(commits.line):
        project.put(at, {X: at + 1}, commit_hash=each.hash)
    project.read()
    found = open_results(project.results, commits)
    card = read_card(found.cards[0], found, commits)
    path = tmp_path / "points.csv"
    assert export(concluded([card], (), commits, TODAY), path) == 3
    with path.open(newline="") as file:
        dates = [row["committed_at"][:10] for row in csv.DictReader(file)]
    assert dates == ["1970-01-01", "9999-12-31", "9999-12-31"]


def test_results_of_a_side_branch_are_counted_and_of_a_merge_shown(tmp_path, project):
    repository = make_repository(tmp_path / "repo")
    commit(repository, {"a": "1"}, 1)
    git(repository, "checkout", "-q", "-b", "side")
    side = commit(repository, {"b": "1"}, 2)
    git(repository, "checkout", "-q", "main")
    commit(repository, {"c": "1"}, 3)
    git(repository, "merge", "-q", "--no-ff", "side", "-m", "merge", date="2026-01-04T00:00:00Z")
    commits = read_commits(repository)
    for at, name in enumerate((*(each.hash for each in commits.line), side)):
        project.put(at, {X: at}, commit_hash=name)
    project.read()
    found = open_results(project.results, commits)
    card = read_card(found.cards[0], found, commits)
    assert points(card)[X] == {0: 0, 1: 1, 2: 2}
    assert card.problems[0].startswith("1 of 4 results are of commits that are not in the history at hand")
