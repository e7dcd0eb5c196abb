"""`harness history` as a user sees it: its output, its files, and its exit status."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import re
import shutil
import sys
import unicodedata
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.errors import ExitCode
from harness.history import reading
from harness.history.export import COLUMNS, export
from harness.history.reading import read_history
from harness.history.sources.our_records import Commits
from harness.history.triage import FILE, Decision, read_triage
from harness.report.terminal.history_tables import print_history
from harness.report.terminal.run_tables import distinct
from tests import synthetic_history as synthetic
from tests.support import Done, caller, git, run_command
from tests.synthetic_history import (
    CARDS,
    HOSTILE_TEXTS,
    Absent,
    Card,
    DriverChange,
    Failed,
    History,
    Missing,
    Step,
    Suite,
    Throttle,
    numbers,
    write,
)

H200, A100 = CARDS[:2]
SUITE = Suite(kernels=("naive", "tiled"), sizes=(1024,))
COPY = Suite(name="copy", headline="GB/s", kernels=("copy",), sizes=(2**20,))
FALL, RISE, COMMITS = 20, 30, 70
SHOWN = History(
    commits=COMMITS,
    cards=(H200, A100),
    suites=(SUITE, COPY),
    tracks=("gflops", "gbytes_per_s", "time_ms", "sm_clock_mhz", "temperature_c", "power_w", "registers"),
    events=(
        Step(case="naive", at=FALL, effect=-0.10, card=H200.name, registers=8),
        Step(case="tiled", at=RISE, effect=0.10),
        Throttle(card=H200.name, start=45, stop=58),
        DriverChange(card=A100.name, at=50, driver="590.44.01", effect=-0.04),
        Missing(card=A100.name, start=10, stop=13),
        Failed(case="tiled", start=5, stop=7, card=A100.name),
    ),
    driver_in_params=True,
    noise=0.004,
)
NAIVE, TILED, COPIED = "matmul.naive@1024", "matmul.tiled@1024", "copy.copy@1048576"


class Told(Done):
    @property
    def changes(self):
        """Return the changes in the JSON output, by card and case."""
        return {(card["name"], each["case"]): each for card in self.json["cards"] for each in card["changes"]}


@pytest.fixture
def harness(capsys, monkeypatch, own_cache):
    """Calls `harness` in this process, on a terminal's 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    return caller(capsys, monkeypatch, Told)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return write(SHOWN, tmp_path_factory.mktemp("shown"))


@pytest.fixture
def shown(template, tmp_path, monkeypatch):
    """The history to look at, which is also the current folder; a copy, to be changed at will."""
    root = tmp_path / "project"
    shutil.copytree(template.repository, root, symlinks=True)
    monkeypatch.chdir(root)
    return replace(template, repository=root, results=root / ".asv" / "results")


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Writes a history and goes there."""

    def make(history):
        written = write(history, tmp_path / "made")
        monkeypatch.chdir(written.repository)
        return written

    return make


def small(**changes):
    known = {"commits": 40, "suites": (SUITE,), "tracks": ("gflops", "sm_clock_mhz"), "noise": 0.003}
    return History(**{**known, **changes})


def id_of(done):
    """Return the id of the only open regression on the terminal."""
    [found] = re.findall(r"^new .* ([0-9a-f]{10})\s*$", done.out, re.MULTILINE)
    return found


# On the terminal


def test_without_an_open_regression_it_is_status_0(harness, shown):
    done = harness("history", "--card", A100.machine)
    assert done.status == ExitCode.FINE
    assert done.out.endswith("\nNo regression is open. Changes: 1 improvement. Exit status 0.\n")


@pytest.mark.parametrize("columns", ["60", "80", "100"])
@pytest.mark.parametrize("every", [(), ("--all",)])
def test_a_table_is_as_wide_as_the_terminal(harness, shown, monkeypatch, columns, every):
    monkeypatch.setenv("COLUMNS", columns)
    done = harness("history", *every)
    titles = [line for line in done.out.splitlines() if " cases, " in line]
    assert all(len(line) <= int(columns) for line in done.out.splitlines() if line not in titles)
    assert NAIVE in done.out


def test_long_names_and_ranges_fold_and_leave_ids_whole(harness, made):
    name = "a_kernel_with_a_long_name_for_what_it_is"
    suite = Suite(kernels=(name,), sizes=(1048576,))
    made(
        small(
            suites=(suite,),
            events=(Step(case=None, at=20, effect=-0.1), Missing(card=None, start=18, stop=25)),
        )
    )
    done = harness("history", "--all")
    assert all(len(line) <= 80 for line in done.out.splitlines() if " case, " not in line)
    [change] = harness("history", "--json").json["cards"][0]["changes"]
    assert id_of(done) == change["id"]
    lines = done.out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("new"))
    cells = [
        line[7:].split("  ")[0].strip() for line in lines[start : start + 4] if not line.startswith("matmul")
    ]
    assert "".join(cells) == f"matmul.{name}@1048576"
    assert f"{change['good'][:10]}..{change['bad'][:10]}" in done.out
    assert "(8)" in done.out


def test_two_commits_that_were_measured_together_are_not_told_as_one(harness, made):
    steps = [Step(case="naive", at=at, effect=-0.1) for at in (20, 22)]
    made(small(events=(*steps, Missing(card=None, start=18, stop=25))))
    assert "at least one of them did it" in harness("history").out


def test_problems_are_told_on_standard_error_and_change_no_status(harness, shown):
    synthetic.truncate(shown.result(60, A100))
    synthetic.make_newer(shown.result(61, A100))
    (shown.results / A100.machine / "machine.json").unlink()
    done = harness("history", "--card", "*a100*")
    assert done.status == ExitCode.FINE
    lines = done.err.splitlines()
    assert all(line.startswith(f"{A100.machine}: ") for line in lines)
    assert [shown.result(number, A100).name in done.err for number in (60, 61, 62)] == [True, True, False]
    assert "the format is 3, and this harness reads 2" in done.err
    assert "machine.json is missing or damaged (No such file or directory); the card is called" in done.err
    assert f"{A100.machine} (unknown card): 3 cases, {COMMITS - 5} commits" in done.out


# Which


@pytest.mark.parametrize(
    ("arguments", "cases"),
    [
        (["matmul.*"], {NAIVE, TILED}),
        ([NAIVE, "copy.*"], {NAIVE, COPIED}),
        (["*@1024"], {NAIVE, TILED}),
        (["matmul.naive[m=1024,n=1024,k=1024]", "copy@1048576"], {NAIVE, COPIED}),
        (["suites.Matmul.track_gflops('tiled', 1024)", "test_kernel[matmul.naive@1024]"], {NAIVE, TILED}),
        ([], {NAIVE, TILED, COPIED}),
        (["--metric", "time_ms"], {NAIVE, TILED, COPIED}),
        (["--metric", "gflops"], {NAIVE, TILED}),
    ],
)
def test_cases_are_chosen_by_globs(harness, shown, arguments, cases):
    done = harness("history", "--json", *arguments)
    for card in done.json["cards"]:
        assert {each["case"]["name"] for each in card["cases"]} == cases
    assert done.status == (ExitCode.REGRESSION if NAIVE in cases else ExitCode.FINE)


@pytest.mark.parametrize(
    ("globs", "cards"),
    [
        (["*a100*"], {A100.machine}),
        (["*a100*", "*h200*"], {A100.machine, H200.machine}),
        ([H200.machine], {H200.machine}),
    ],
)
def test_cards_are_chosen_by_globs(harness, shown, globs, cards):
    options = [word for glob in globs for word in ("--card", glob)]
    done = harness("history", "--json", *options)
    assert {card["name"] for card in done.json["cards"]} == cards


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["matmul.nosuch"], "matches matmul.nosuch. Cases are called as in matmul.naive@1024"),
        (["matmul.niave@1024"], "globs do. Did you mean matmul.naive@1024 or "),
        (["--metric", "nosuch"], "is called nosuch. There are: "),
        (["--card", "nosuch"], f"matches nosuch. There are: {A100.machine}, {H200.machine}."),
        (["--smallest", "0"], "not in the range"),
        (["--smallest", "-1"], "not in the range"),
        (["--branch", "nosuch"], "No commit named 'nosuch'"),
        (["--export", "points.txt"], "expected a name that ends in .csv or .parquet"),
        (["--expires", "soon", "--acknowledge", "x"], "does not match the format"),
        (["--largest", "0", "--acknowledge", "x"], "not in the range"),
        (
            ["--acknowledge", "0123456789", "--reason", "x"],
            "No regression has the id 0123456789. Open ones: ",
        ),
        (["--nosuch"], "No such option"),
        (
            ["--since", "2026-99-99"],
            "--since 2026-99-99 is no date: month must be",
        ),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_status_2_and_one_message(harness, shown, arguments, words):
    done = harness("history", *arguments)
    assert done.status == ExitCode.USAGE
    assert words in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert not (shown.repository / FILE).exists()


def test_a_broken_triage_file_is_status_2(harness, shown):
    (shown.repository / FILE).write_text("[[change]]\nid = 7\n")
    done = harness("history")
    assert done.status == ExitCode.USAGE
    assert f"{FILE}, change 1: id is 7; expected a text." in done.err


def test_the_smallest_change_may_be_chosen(harness, made):
    made(small(events=(Step(case="naive", at=20, effect=-0.04),)))
    assert harness("history").status == ExitCode.REGRESSION
    assert harness("history", "--smallest", "2").status == ExitCode.REGRESSION
    done = harness("history", "--smallest", "6", "--json")
    assert done.status == ExitCode.FINE
    assert {case["floor"] for case in done.json["cards"][0]["cases"]} == {0.06}


def test_another_branch_has_another_history(harness, shown):
    git(shown.repository, "branch", "before", f"HEAD~{COMMITS - FALL + 1}")
    done = harness("history", "--branch", "before", "--json")
    assert done.status == ExitCode.FINE
    assert done.json["commits"]["count"] == FALL - 1
    assert done.json["commits"]["newest"]["hash"] == shown.commits[FALL - 2]
    assert not done.changes
    assert {len(card["problems"]) for card in done.json["cards"]} == {1}


def test_results_may_lie_elsewhere(harness, shown):
    shutil.move(shown.results, shown.repository / "elsewhere")
    assert harness("history").status == ExitCode.NOT_MEASURED
    assert harness("history", "--results", "elsewhere").status == ExitCode.REGRESSION


def test_results_lie_where_asvs_configuration_says(harness, shown):
    told = harness("history").out
    shown.results.rename(shown.repository / "elsewhere")
    conf = shown.repository / "asv.conf.json"
    text = conf.read_text().replace(".asv/results", "elsewhere")
    conf.write_text("// as asv's own template\n" + text)
    assert harness("history").out == told
    shown.results.mkdir()
    done = harness("history")
    assert done.out == told
    assert f"For {shown.results} say --results." in done.err
    assert harness("history", "--results", str(shown.results)).status == ExitCode.NOT_MEASURED
    (shown.repository / "harness.toml").write_text('results = "there"')
    assert harness("history").status == ExitCode.NOT_MEASURED
    (shown.repository / "harness.toml").unlink()
    shown.results.rmdir()
    (shown.repository / "elsewhere").rename(shown.results)
    assert harness("history").out == told


@pytest.mark.parametrize("kept_as", ["folder", "clone", "nowhere"])
def test_results_beside_a_repository_that_is_elsewhere(harness, shown, tmp_path, monkeypatch, kept_as):
    """A project without git measures the commits of another project."""
    apart = tmp_path / "bench"
    shutil.move(shown.repository / ".asv/results", apart / "results")
    repo = str(shown.repository) if kept_as == "folder" else "https://example.invalid/made.git"
    conf = {"version": 1, "project": "made", "repo": repo, "results_dir": "results", "html_dir": "html"}
    (apart / "asv.conf.json").write_text(json.dumps(conf))
    if kept_as == "clone":
        shutil.copytree(shown.repository / ".git", apart / "made")
    monkeypatch.chdir(apart)
    done = harness("history", NAIVE)
    if kept_as == "nowhere":
        assert done.status == ExitCode.USAGE
        assert f"git clone --mirror {repo} {apart}/made" in done.err
    else:
        assert done.status == ExitCode.REGRESSION, done.err
        assert harness("publish", "--without-asv").status == ExitCode.FINE


def test_it_is_the_same_from_a_folder_below(harness, shown, monkeypatch):
    above = harness("history", "--json").json
    monkeypatch.chdir(shown.repository / "kernels" / "matmul")
    assert harness("history", "--json").json == above


# Nothing to read


def test_before_anything_was_measured_it_is_status_3(harness, shown):
    shutil.rmtree(shown.results)
    done = harness("history")
    assert done.status == ExitCode.NOT_MEASURED
    assert "There is no history in " in done.err
    assert "Run 'harness run --commit COMMIT' or 'asv run' first" in done.err
    assert done.out == ""


def test_without_any_card_it_is_status_3(harness, shown):
    for card in SHOWN.cards:
        shutil.rmtree(shown.results / card.machine)
    done = harness("history")
    assert done.status == ExitCode.NOT_MEASURED
    assert "it has no card's results" in done.err


def test_where_every_commit_was_rebased_away_it_is_status_3(harness, made):
    written = made(small(commits=6))
    synthetic.rebase_away(written, 0, 6)
    done = harness("history")
    assert done.status == ExitCode.NOT_MEASURED
    assert "There is no figure in " in done.err
    assert f"of any commit of {written.repository}." in done.err
    assert "6 of 6 results are of commits that are not in the history at hand" in done.err
    assert 'name a clone of it as "repo" in asv.conf.json' in done.err


def test_where_no_file_can_be_read_it_says_why(harness, made):
    for file in made(small(commits=6)).results.glob("*/*-*.json"):
        file.write_text('{"version": 1, "commit_hash": "00", "results": {}}')
    done = harness("history")
    assert done.status == ExitCode.NOT_MEASURED
    assert "are left out: the format is 1, and this harness reads 2: 'asv update' brings them" in done.err


def test_a_repository_without_a_commit_is_status_2(harness, made):
    made(small(commits=0))
    done = harness("history")
    assert done.status == ExitCode.USAGE
    assert "No commit named 'HEAD'" in done.err
    assert "The repository has no commit yet: 'git commit' makes the first one." in done.err


@pytest.mark.parametrize("command", [("history",), ("publish", "--without-asv")])
def test_outside_any_repository_it_is_status_2(harness, shown, command):
    shutil.rmtree(shown.repository / ".git")
    done = harness(*command)
    assert done.status == ExitCode.USAGE
    assert "is in no git repository, and commits are read there. Start in the repository" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_history_of_a_few_commits_has_no_changes(harness, made, commits):
    made(small(commits=commits))
    done = harness("history")
    assert done.status == ExitCode.FINE
    assert f"2 cases, {commits} commit{'s' if commits > 1 else ''}, newest" in done.out
    assert "No regression is open. Changes: none. Exit status 0." in done.out
    told = harness("history", "--json").json
    assert [case["noise"] is None for case in told["cards"][0]["cases"]] == [commits < 5] * 2


def test_a_card_that_has_failed_all_along_has_a_case_without_a_figure(harness, made):
    made(small(events=(Failed(case="naive", start=0, stop=40),)))
    done = harness("history", "--json")
    assert done.status == ExitCode.FINE
    case = done.json["cards"][0]["cases"][0]
    assert (case["failed"], case["points"], case["level"], case["noise"]) == (40, 40, None, None)


@pytest.mark.parametrize(
    ("events", "good", "bad"),
    [
        pytest.param([Failed(case="naive", start=39, stop=40)], 38, 39, id="the newest"),
        pytest.param([Failed(case="naive", start=30, stop=40)], 29, 30, id="for some time"),
        pytest.param(
            [Failed(case="naive", start=30, stop=40), Missing(card=None, start=28, stop=33)],
            27,
            33,
            id="since a commit that was not measured",
        ),
    ],
)
def test_a_case_that_had_figures_and_fails_now_is_status_1(harness, made, events, good, bad):
    written = made(small(events=tuple(events)))
    done = harness("history")
    assert done.status == ExitCode.REGRESSION
    assert re.search(rf"^failing {NAIVE} since .*{written.commits[bad][:10]}", done.out, re.MULTILINE)
    assert "1 case fails that had figures. Changes: none. Exit status 1." in " ".join(done.out.split())
    told = harness("history", "--json").json
    failing = {"case": NAIVE, "good": written.commits[good], "bad": written.commits[bad]}
    assert told["cards"][0]["failing"] == [failing]
    assert harness("history", TILED).status == ExitCode.FINE


def test_cases_that_fail_since_one_commit_are_one_line(harness, made):
    made(small(events=(Failed(case="naive", start=30, stop=40), Failed(case="tiled", start=30, stop=40))))
    told = [line for line in harness("history").out.splitlines() if line.startswith("failing")]
    assert len(told) == 1
    assert told[0].startswith(f"failing {NAIVE} and 1 other case since ")
    every = harness("history", "--all").out
    assert (f"failing {NAIVE} since" in every, f"failing {TILED} since" in every) == (True, True)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((Failed(case="naive", start=30, stop=39),), id="it runs again"),
        pytest.param((Failed(case="naive", start=0, stop=40),), id="it never ran"),
        pytest.param((Absent(case="naive", start=30),), id="it is no longer measured"),
        pytest.param(
            (Failed(case="naive", start=30, stop=33), Absent(case="naive", start=33)),
            id="it failed and is no longer measured",
        ),
    ],
)
def test_a_case_that_does_not_fail_now_or_always_has_is_none(harness, made, events):
    made(small(events=events))
    done = harness("history", "--json")
    assert done.status == ExitCode.FINE
    assert done.json["cards"][0]["failing"] == []


def test_what_failed_on_a_card_that_is_measured_no_more_is_none(harness, made):
    """The environment of asv for a Python that the project has dropped builds nothing any more."""
    gone = Failed(case=None, start=25, stop=30, card=H200.machine)
    known = {"commits": 800, "cards": (A100, H200), "tracks": ("gflops",)}
    made(small(events=(gone, Missing(card=H200.machine, start=30, stop=800)), **known))
    done = harness("history", "--json")
    assert done.status == ExitCode.FINE
    assert [card["failing"] for card in done.json["cards"]] == [[], []]


def test_what_has_failed_for_long_on_a_card_that_is_measured_still_fails(harness, made):
    made(small(events=(Failed(case="naive", start=25, stop=800),), commits=800, tracks=("gflops",)))
    done = harness("history", "--json")
    assert done.status == ExitCode.REGRESSION
    assert [one["case"] for one in done.json["cards"][0]["failing"]] == [NAIVE]


# As JSON


def test_json_tells_everything_but_points(harness, shown):
    done = harness("history", "--json")
    assert done.status == ExitCode.REGRESSION
    assert done.err == ""
    told = done.json
    assert told["schema_version"] == 2
    assert told["open"] == 1
    assert told["commits"]["count"] == COMMITS
    assert told["commits"]["newest"]["hash"] == shown.commits[-1]
    assert [card["name"] for card in told["cards"]] == [A100.machine, H200.machine]
    assert told["cards"][0]["machine"]["gpu"] == A100.name
    assert [len(case["epochs"]) for case in told["cards"][0]["cases"]] == [2, 2, 2]
    epoch = told["cards"][0]["cases"][0]["epochs"][1]
    assert epoch == {"from": shown.commits[50], "changed": ["driver 580.159.04 → 590.44.01"]}
    tiled = next(case for case in told["cards"][0]["cases"] if case["case"]["name"] == TILED)
    assert (tiled["failed"], tiled["points"]) == (2, COMMITS - 3)
    assert tiled["newest"] == shown.commits[-1]
    assert tiled["level"] == pytest.approx(numbers(SHOWN, A100).rate[50:, 1].mean(), rel=0.005)
    assert tiled["noise"] == pytest.approx(0.004, rel=0.6)


def test_json_tells_a_regression_in_full(harness, shown):
    change = harness("history", "--json").changes[H200.machine, NAIVE]
    truth = numbers(SHOWN, H200)
    # The throttled stretch came later, and its changes are told before this one.
    assert set(change) >= {"id", "low", "high", "p_value", "sentence", "direction", "unit"}
    assert (change["kind"], change["state"], change["attribution"]) == ("regression", "new", "code")
    assert change["effect"] == pytest.approx(-0.1, abs=0.01)
    assert change["low"] < change["effect"] < change["high"]
    assert change["cycles_effect"] == pytest.approx(1 / 0.9 - 1, abs=0.015)
    assert change["clock_before_mhz"] == pytest.approx(H200.clock_mhz, rel=0.005)
    assert change["before"] == pytest.approx(truth.rate[:FALL, 0].mean(), rel=0.005)
    before = truth.registers[0, 0]
    assert change["static"] == [f"registers {before} → {before + 8}"]
    assert (change["good"], change["bad"], change["commits"]) == (*shown.commits[FALL - 1 : FALL + 1], 1)
    assert change["subject"] == git(shown.repository, "log", "-1", "--format=%s", shown.commits[FALL])
    assert change["author"] == git(shown.repository, "log", "-1", "--format=%an", shown.commits[FALL])
    assert (change["decision"], change["fixed_by"]) == (None, None)
    assert change["id"] == id_of(harness("history", "--all"))


def test_json_is_json_whatever_is_in_it(harness, made):
    """No NaN, which Python would write and nobody else read."""
    made(small(commits=2, hostile=True))
    done = harness("history", "--json")
    json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_what_was_fixed_names_what_fixed_it(harness, made):
    made(small(commits=60, events=(Step(case="naive", at=20, until=40, effect=-0.1),)))
    done = harness("history", "--json")
    assert done.status == ExitCode.FINE
    rise, fall = done.json["cards"][0]["changes"]
    assert (fall["state"], fall["fixed_by"]) == ("fixed", rise["id"])
    assert (rise["kind"], rise["state"]) == ("improvement", "")
    terminal = harness("history").out
    assert re.search(
        r"^fixed +[0-9a-f]{10} \+\d+\.\d+ % matmul.naive@1024 on 1 card$", terminal, re.MULTILINE
    )
    assert re.search(r"^fixed  .*[0-9a-f]{10} *$", harness("history", "--all").out, re.MULTILINE)


# Events


def test_an_event_is_accepted_on_every_card_by_one_entry(harness, made):
    written = made(small(events=(Step(case=None, at=20, effect=-0.1),), cards=(A100, H200)))
    [event] = harness("history", "--json").json["events"]
    assert (event["id"], event["accused"]) == (written.commits[20][:10], written.commits[20])
    assert (len(event["cards"]), len(event["cases"]), len(event["changes"])) == (2, 2, 4)
    harness("history", "--acknowledge", event["id"], "--reason", "wanted", "--author", "Ada")
    [decision] = read_triage(written.repository)
    assert (decision.case, decision.card, decision.commit) == (None, None, written.commits[20][:12])
    done = harness("history", "--json")
    assert (done.status, done.json["events"][0]["state"]) == (ExitCode.FINE, "acknowledged")


def test_what_happened_since_a_commit_or_a_date(harness, shown):
    last = shown.commits[57]
    assert harness("history", "--since", last).status == ExitCode.FINE
    assert [each["good"] for each in harness("history", "--json", "--since", last).json["events"]] == [last]
    day = git(shown.repository, "log", "-1", "--format=%cs", shown.commits[FALL])
    assert harness("history", "--since", day).status == ExitCode.REGRESSION
    time_s = int(git(shown.repository, "log", "-1", "--format=%ct", shown.commits[FALL]))
    for moment, status in ((time_s, ExitCode.REGRESSION), (time_s + 1, ExitCode.FINE)):
        at = dt.datetime.fromtimestamp(moment, dt.timezone(dt.timedelta(hours=12)))
        assert harness("history", "--since", at.isoformat()).status == status
    done = harness("history", "--since", "nosuch")
    assert (done.status, "No commit named 'nosuch'" in done.err) == (ExitCode.USAGE, True)


def test_what_fell_at_the_newest_commit_is_unjudged_and_status_4(harness, made):
    written = made(small(commits=60, events=(Step(case="naive", at=59, effect=-0.5),)))
    done = harness("history")
    assert done.status == ExitCode.INCONCLUSIVE
    good, bad = written.commits[58][:10], written.commits[59][:10]
    assert re.search(rf"^Too early to judge\nunjudged +~\+(9\d|10\d).* %  {bad} ", done.out, re.MULTILINE)
    assert f"  harness compare {good}..{bad} matmul.naive@1024\n" in done.out
    assert "No regression is open. 1 case became worse too lately to judge." in done.out
    told = harness("history", "--json").json
    assert (told["unjudged"], told["events"][0]["state"]) == (1, "unjudged")
    [change] = told["cards"][0]["changes"]
    assert (change["low"], change["p_value"]) == (None, None)
    assert "too early to judge" in change["sentence"]


def test_a_line_says_all_of_what_fell_at_one_of_several_newest_commits(harness, made):
    every_third = (Missing(card=None, start=at + 1, stop=at + 3) for at in range(0, 60, 3))
    events = (Step(case="naive", at=59, effect=-0.5), *every_third)
    made(small(commits=61, cards=(H200,), events=events))
    told = harness("history", "--all").out
    assert re.search(r"^unjudged  matmul.naive@1024 .*\(3\)", told, re.MULTILINE)
    assert "at the newest commits: too early to judge" not in told


def test_two_names_that_are_cut_never_look_alike():
    names = [f"simulation.bench_{number}.{'x' * 60}.time_simulate(8192)" for number in range(3)]
    cut = distinct(names, 30)
    assert len(set(cut.values())) == 3
    assert distinct(["a" * 40], 21) == {"a" * 40: f"{'a' * 10}…{'a' * 10}"}


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        (
            "setup.bench_model.FastInitializeModel.time_solver('ant')",
            "setup.bench_model.….time_solver('ant')",
        ),
        ("x" * 72, f"{19 * 'x'}…{20 * 'x'}"),
    ],
)
def test_names_are_cut_between_words(name, cut):
    assert distinct([name, "short"], 40) == {name: cut, "short": "short"}


def test_names_that_differ_in_the_middle_are_cut_elsewhere():
    names = [f"{'begin.' * 5}{word}.{'end.' * 5}last" for word in ("solver", "model")]
    assert [len(each) <= 40 for each in distinct(names, 40).values()] == [True, True]
    assert len(set(distinct(names, 40).values())) == 2


def test_a_wide_terminal_has_the_case_beside_its_change(harness, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    [line] = (each for each in harness("history").out.splitlines() if each.startswith("new"))
    assert line.endswith(NAIVE)


# Accepting


def test_a_regression_is_accepted_for_a_reason(harness, shown):
    git(shown.repository, "config", "user.name", "Grace")
    change = id_of(harness("history", "--all"))
    done = harness("history", "--acknowledge", change, "--reason", 'shared memory, "on purpose"')
    assert (done.status, done.err) == (ExitCode.FINE, "")
    assert str(shown.repository / FILE) in done.out.replace("\n", "")
    assert read_triage(shown.repository) == (
        Decision(
            id=change,
            case=NAIVE,
            card=H200.machine,
            commit=shown.commits[FALL][:12],
            reason='shared memory, "on purpose"',
            author="Grace",
        ),
    )
    after = harness("history")
    assert after.status == ExitCode.FINE
    line = rf"^acknowledged +{shown.commits[FALL][:10]} \+.+ {NAIVE} on 1 card$"
    assert re.search(line, after.out, re.MULTILINE)
    told = harness("history", "--all")
    assert 'acknowledged: shared memory, "on purpose" (Grace)' in told.out
    told = harness("history", "--json").changes[H200.machine, NAIVE]
    assert told["state"] == "acknowledged"
    assert told["decision"]["author"] == "Grace"
    again = harness("history", "--acknowledge", change, "--reason", "again")
    assert again.status == ExitCode.USAGE
    assert f"has an entry for {change} already" in again.err


def test_it_is_accepted_as_far_as_was_said(harness, shown):
    change = id_of(harness("history", "--all"))
    done = harness(
        *("history", "--acknowledge", change, "--reason", "why not", "--author", "Ada", "--every-card"),
        *("--expires", "2099-01-31", "--largest", "12.5"),
    )
    assert done.status == ExitCode.FINE
    [decision] = read_triage(shown.repository)
    assert (decision.card, decision.author) == (None, "Ada")
    assert (decision.expires, decision.largest_percent) == (dt.date(2099, 1, 31), 12.5)
    assert harness("history").status == ExitCode.FINE


@pytest.mark.parametrize("more", [("--expires", "2020-01-31"), ("--largest", "5")])
def test_what_is_accepted_no_longer_is_open_again(harness, shown, more):
    change = id_of(harness("history", "--all"))
    harness("history", "--acknowledge", change, "--reason", "for now", "--author", "Ada", *more)
    done = harness("history")
    assert done.status == ExitCode.REGRESSION
    assert re.search(rf"^expired +\+.+\n  {NAIVE}$", done.out, re.MULTILINE)
    assert "expired: for now (Ada)" in done.out


def test_a_reason_and_an_author_are_asked_for(harness, shown):
    change = id_of(harness("history", "--all"))
    done = harness("history", "--acknowledge", change)
    assert done.status == ExitCode.USAGE
    assert "--acknowledge needs --reason" in done.err
    done = harness("history", "--acknowledge", change, "--reason", "x")
    assert done.status == ExitCode.USAGE
    assert "Give --author, or set git's user.name" in done.err
    assert not (shown.repository / FILE).exists()


def test_only_a_regression_can_be_accepted(harness, shown):
    changes = harness("history", "--json").changes
    rise = changes[A100.machine, TILED]
    assert rise["kind"] == "improvement"
    done = harness("history", "--acknowledge", rise["id"], "--reason", "x", "--author", "Ada")
    assert done.status == ExitCode.USAGE
    assert f"Open ones: {shown.commits[FALL][:10]}." in done.err


# Points


def cell(text):
    return None if text == "" else text


def needed_for(name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")


def table_of(path):
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return [{name: cell(text) for name, text in row.items()} for row in csv.DictReader(file)]
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


@pytest.mark.parametrize("name", ["points.csv", "points.parquet"])
def test_an_export_has_every_point_with_its_figures(harness, shown, tmp_path, name):
    needed_for(name)
    path = tmp_path / name
    done = harness("history", "--export", str(path), "--json")
    assert done.status == ExitCode.REGRESSION
    assert done.json["open"] == 1
    rows = table_of(path)
    assert done.err == f"{len(rows)} points written to {path}.\n"
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 3 * (COMMITS + COMMITS - 3)
    seen = {(row["card"], row["case"], row["commit"]): row for row in rows}
    assert len(seen) == len(rows)
    assert list(tmp_path.glob("points*")) == [path]
    for card in SHOWN.cards:
        truth = numbers(SHOWN, card)
        for column, (suite, kernel, size) in enumerate(SHOWN.cases):
            for at in np.flatnonzero(truth.measured).tolist():
                row = seen[card.machine, f"{suite.name}.{kernel}@{size}", shown.commits[at]]
                assert int(row["position"]) == at
                assert (row["kernel"], row["size"]) == (kernel, str(size))
                assert row["metric"] == ("gflops" if suite is SUITE else "gbytes_per_s")
                failed = truth.status[at, column] != synthetic.OK
                assert str(row["failed"]) == str(bool(failed))
                if failed:
                    assert row["value"] is None
                    continue
                assert float(row["value"]) == pytest.approx(truth.rate[at, column], rel=1e-6)
                assert float(row["sm_clock_mhz"]) == truth.sm_clock_mhz[at, column]
                assert float(row["registers"]) == truth.registers[at, column]
                assert row["error_ratio"] is None
    assert {int(row["epoch"]) for row in rows if row["card"] == A100.machine} == {0, 1}
    dates = {row["commit"]: row["committed_at"] for row in rows}
    expected = int(git(shown.repository, "log", "-1", "--format=%ct", shown.commits[-1]))
    told = dates[shown.commits[-1]]
    when = dt.datetime.fromisoformat(told) if isinstance(told, str) else told
    assert when.timestamp() == expected


def test_both_formats_hold_the_same(harness, shown, tmp_path):
    pytest.importorskip("pyarrow")
    for name in ("a.csv", "a.parquet"):
        harness("history", "--export", str(tmp_path / name), "--card", "*a100*")
    one, two = table_of(tmp_path / "a.csv"), table_of(tmp_path / "a.parquet")
    assert len(one) == len(two)
    for left, right in zip(one, two, strict=True):
        assert left["value"] == (None if right["value"] is None else str(right["value"]))
        assert left["commit"] == right["commit"]


def test_an_export_takes_what_was_chosen_alone(harness, shown, tmp_path):
    path = tmp_path / "one.csv"
    harness("history", NAIVE, "--card", "*h200*", "--metric", "time_ms", "--export", str(path))
    rows = table_of(path)
    assert len(rows) == COMMITS
    assert {(row["card"], row["case"], row["metric"], row["unit"]) for row in rows} == {
        (H200.machine, NAIVE, "time_ms", "ms")
    }


@pytest.mark.parametrize("name", ["points.csv", "points.parquet"])
def test_an_export_that_cannot_be_written_is_an_error_and_leaves_nothing(harness, shown, tmp_path, name):
    needed_for(name)
    path = tmp_path / "missing" / name
    done = harness("history", "--export", str(path))
    assert done.status == ExitCode.NOT_MEASURED
    assert f"Cannot write {path}: " in done.err
    assert "No such file or directory." in done.err
    assert done.out == ""


def test_an_older_export_stays_whole_where_the_disk_is_full(shown, tmp_path, own_cache):
    history = read_history(shown.results, shown.repository)
    path = tmp_path / "points.csv"
    path.write_text("older")
    done = run_command(
        *("history", "--export", str(path)),
        cwd=shown.repository,
        env={"HARNESS_CACHE_DIR": str(own_cache)},
        file_limit_bytes=4096,
    )
    assert done.returncode == ExitCode.NOT_MEASURED
    assert f"Cannot write {path}: " in done.stderr
    assert path.read_text() == "older"
    assert [each.name for each in tmp_path.iterdir() if "points" in each.name] == ["points.csv"]
    assert export(history, path) > 100


def test_without_pyarrow_parquet_says_what_to_install(harness, shown, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = harness("history", "--export", str(tmp_path / "points.parquet"))
    assert done.status == ExitCode.USAGE
    assert "Parquet needs pyarrow: pip install pyarrow" in done.err
    assert not list(tmp_path.glob("points*"))


# What others wrote


def is_harmless(text):
    """Nothing on a terminal but letters, and ends of lines that are the program's own."""
    bad = {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return bad <= {"\n"}


@pytest.fixture
def hostile(made):
    """A regression by each hostile text as a subject, on a card and of kernels that are out to break it."""
    kernels = tuple(f"{text[:70]}{number}" for number, text in enumerate((*HOSTILE_TEXTS, "[bold red]x[/]")))
    return made(
        small(
            commits=60,
            cards=(Card(name="evil\x1b[2J[red]\u202e card"),),
            suites=(Suite(kernels=kernels, sizes=(1024,)),),
            events=tuple(
                Step(case=None, at=at, effect=effect) for at, effect in ((15, -0.1), (31, -0.1), (45, -0.2))
            ),
            hostile=True,
        )
    )


@pytest.mark.parametrize("arguments", [(), ("--all",)], ids=["open", "all"])
def test_texts_of_others_are_harmless_on_the_terminal(harness, hostile, arguments):
    rows = len(hostile.history.cases)
    done = harness("history", *arguments)
    assert done.status == ExitCode.REGRESSION
    assert is_harmless(done.out + done.err)
    assert "evil\ufffd[2J[red]\ufffd card" in done.out
    if arguments:
        assert "matmul.[bold red]x[/]11@1024" in done.out
        assert len(re.findall(r"[0-9a-f]{10} *$", done.out, re.MULTILINE)) >= rows


def test_a_name_of_a_case_that_fails_is_harmless(harness, made):
    kernel = "[red]\x1b[2J:smile:"
    suite = Suite(kernels=(kernel, "tiled"), sizes=(1024,))
    made(small(suites=(suite,), events=(Failed(case=f"{kernel} 1024", start=30, stop=40),)))
    done = harness("history")
    assert is_harmless(done.out)
    assert "failing matmul.[red]\ufffd[2J:smile:@1024 since" in done.out


def test_a_subject_is_cut_to_a_line(harness, made):
    made(small(events=(Step(case="naive", at=13, effect=-0.1),), hostile=True))
    done = harness("history")
    assert "a line of ten kilobytes xxx" in done.out
    assert len(done.out) < 2000
    assert all(len(line) <= 80 for line in done.out.splitlines() if "newest" not in line)


def test_markup_in_subjects_and_authors_is_shown_as_it_is(shown, capsys, monkeypatch, own_cache):
    monkeypatch.setenv("COLUMNS", "80")
    history = read_history(shown.results, shown.repository)
    line = list(history.commits.line)
    line[FALL] = replace(line[FALL], subject="[/] [bold]loud[/bold] :smile:", author="[red]Ada[/red]")
    print_history(replace(history, commits=Commits(tuple(line))), every=False)
    assert "[/] [bold]loud[/bold] :smile: ([red]Ada[/red])" in capsys.readouterr().out


def test_names_in_problems_are_harmless_too(harness, made):
    written = made(small(commits=3))
    folder = written.results / H200.machine
    (folder / "\x1b[31m[red]evil\u202e.json").write_text("{")
    synthetic.rename_before(written, 2, {"suites.Matmul.track_gflops": "evil\x1b[2J[bold].track_gflops"})
    done = harness("history")
    assert is_harmless(done.out + done.err)
    assert "\ufffd[31m[red]evil\ufffd.json is left out" in done.err
    assert "evil\ufffd[2J[bold]" in done.err


def test_a_decision_of_others_is_harmless(harness, shown):
    change = id_of(harness("history", "--all"))
    nasty = "\x1b[2J[red]\u202e\u2028why"
    harness("history", "--acknowledge", change, "--reason", nasty, "--author", nasty)
    done = harness("history", "--all")
    assert is_harmless(done.out)
    assert "[red]" in done.out
    assert harness("history", "--json").changes[H200.machine, NAIVE]["decision"]["reason"] == nasty


def test_hostile_subjects_are_whole_as_json(harness, made):
    written = made(small(events=(Step(case="naive", at=5, effect=-0.1),), hostile=True))
    [change] = harness("history", "--json").json["cards"][0]["changes"]
    assert change["bad"] == written.commits[5]
    assert change["subject"] == HOSTILE_TEXTS[2]


# Much to read


def test_cards_that_are_read_side_by_side_are_as_one_by_one(shown, monkeypatch, own_cache):
    one = read_history(shown.results, shown.repository)
    monkeypatch.setattr(reading, "_MANY_BYTES", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    told: list[str] = []
    two = read_history(shown.results, shown.repository, tell=told.append)
    assert told == [f"{A100.machine}: 3 cases", f"{H200.machine}: 3 cases"]
    assert [card.name for card in two.cards] == [card.name for card in one.cards]
    assert [card.changes for card in two.cards] == [card.changes for card in one.cards]


def test_a_second_look_reads_no_result_again(harness, shown, monkeypatch):
    first = harness("history").out
    for path in (shown.results / A100.machine).glob("*-any.json"):
        before = path.stat()
        path.write_bytes(b"x" * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert harness("history").out == first


def test_an_error_that_names_what_others_made_is_harmless_on_the_terminal(harness, tmp_path):
    missing = tmp_path / "no\x1b[2Jthing\u202e"
    done = harness("history", "--results", str(missing))
    assert done.status != 0
    assert "\ufffd[2Jthing\ufffd" in done.err
    assert is_harmless(done.err)
