"""Results of any asv project: environments apart, nothing merged and nothing dropped without a word."""

from __future__ import annotations

import json

import pytest

from harness.errors import ExitCode
from harness.history.facts import Commit, Commits
from harness.history.reading import History, open_results, read_card
from harness.output.histories import exit_code, print_history

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

    def put(self, at, figures, environment=OLD, *, machine="box", system="Linux 6.8", named="", **more):
        """A result file of one commit; `figures` by benchmark, one for each of its parameters."""
        folder = self.results / machine
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "machine.json").write_text(json.dumps({"machine": machine, "os": system, "version": 1}))
        rows = {}
        for name, values in figures.items():
            params = self.listed.get(name, {}).get("params", ())
            rows[name] = [values if isinstance(values, list) else [values], params, "1", 1000 * at]
        content = {
            "commit_hash": f"{at:040x}",
            "env_name": environment,
            "params": {"machine": machine, "os": system},
            "result_columns": ["result", "params", "version", "started_at"],
            "results": rows,
            "version": 2,
            **more,
        }
        path = folder / f"{named or f'{at:08x}'}-{environment}.json"
        path.write_text(json.dumps(content))

    def read(self, count=20, directions=None):
        """Every card by its name."""
        (self.results / "benchmarks.json").write_text(json.dumps({**self.listed, "version": 2}))
        commits = line(count)
        found = open_results(self.results, commits, directions)
        return {card.name: read_card(card, found, commits) for card in found.cards}


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path / "results")
    made.lists(X)
    made.lists(Y)
    return made


def points(card):
    """Of each case its figures by position."""
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
    assert {card.folder for card in found.values()} == {"box"}
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
        history = History(commits=line(40), cards=tuple(cards.values()))
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
