"""asv itself, on a small made-up history, with the plugin and without what the plugin teaches it."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("asv")

import asv

from harness.history.figures import direction_of
from harness.integrations.asv.directions import direction_in_asv
from harness.integrations.asv.publish import ASSETS, HISTORY, SCRIPT, DirectedPages, link_pages
from harness.integrations.asv.tracks import TRACKS
from tests.browser.asv_tree import OFFLINE, OFFLINE_CODE
from tests.browser.chromium import Site, chromium, serve
from tests.support import IMPORT_PATH, commit_each, make_repository, run_command, run_forked

COMMITS = 16
STEP_AT = 8
A, B = "card-a", "card-b"
ENV = "checkout-pyany"
KERNELS, SIZES = ["'naive'", "'tiled'"], ["1024", "2048"]
ATOM = "{http://www.w3.org/2005/Atom}"

PLUGIN = ".harness.integrations.asv_plugin"
BLIND = ".blind"
"""Module of the same plugin without directions for asv. Every test here must detect the difference."""
BLIND_CODE = """\
from harness.integrations.asv import commands as asv_commands
asv_commands.setup = lambda: None
from harness.integrations.asv.plugin import setup
"""


class Series(NamedTuple):
    """A benchmark and its figure before and after the step, on card A and on card B."""

    kind: str
    unit: str
    direction: str | None
    a: tuple[Any, Any]
    b: tuple[Any, Any] = (math.nan, math.nan)


GRID = ([100.0, 50.0, math.nan, 8.0], [80.0, 60.0, math.nan, None])
"""naive: falls, rises; tiled: never measured, fails from the step on."""

SERIES = {
    "m.time_slower": Series("time", "seconds", None, (0.010, 0.012)),
    "m.time_faster": Series("time", "seconds", "lower", (0.012, 0.010)),
    "m.track_errors": Series("track", "errors/s", None, (10.0, 20.0)),
    "m.track_odd": Series("track", "score", "up", (10.0, 20.0)),
    "m.track_falls": Series("track", "GFLOP/s", "higher", (100.0, 90.0), (100.0, 110.0)),
    "m.track_rises": Series("track", "GFLOP/s", "higher", (100.0, 110.0), (100.0, 90.0)),
    "m.track_by_unit": Series("track", "GB/s", None, (1000.0, 900.0)),
    "m.track_right": Series("track", "1 if right, 0 if wrong", "higher", (1, 0)),
    "m.track_balance": Series("track", "points", "higher", (5.0, -5.0)),
    "m.track_recovery": Series("track", "points", "higher", (-5.0, 5.0)),
    "m.track_clock": Series("track", "MHz", "none", (1700, 1400)),
    "m.track_heat": Series("track", "°C", "none", (50, 75)),
    "m.track_grid": Series("track", "GFLOP/s", "higher", GRID),
    "m.track_gone": Series("track", "", None, (5.0, 4.0)),
    "m.track_gflops": Series("track", "", None, (5.0, 4.0)),
}
REMOVED = {"m.track_gone", "m.track_gflops"}
"""In the results and no longer in benchmarks.json; the second is called as a track of the harness's."""


class Project(NamedTuple):
    root: Path
    commits: list[str]

    def asv(self, *arguments: str, plugins: tuple[str, ...] = (PLUGIN,)) -> subprocess.CompletedProcess[str]:
        conf = {**json.loads((self.root / "asv.conf.json").read_text(encoding="utf-8")), "plugins": plugins}
        (self.root / "asv.conf.json").write_text(json.dumps(conf), encoding="utf-8")
        return run_forked(
            [sys.executable, "-m", "asv", *arguments],
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONPATH": IMPORT_PATH,
                "HARNESS_DEVICE": "null",
                "HOME": str(self.root),
                "TZ": "UTC",
                "PYTHONHASHSEED": "0",  # asv walks a set: it would order its regressions by chance
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )

    def publish(self, *plugins: str, into: str) -> Path:
        done = self.asv("publish", "--no-pull", "--html-dir", into, plugins=plugins)
        assert done.returncode == 0, done.stdout
        (self.root / f"{into}.log").write_text(done.stdout, encoding="utf-8")
        return self.root / into

    def compare(self, *arguments: str, plugins: tuple[str, ...] = (PLUGIN,)) -> dict[str, list[str]]:
        """The cells of each row by benchmark, in the order printed."""
        before, after = self.commits[0], self.commits[-1]
        done = self.asv("compare", "--machine", A, *arguments, before, after, plugins=plugins)
        assert done.returncode == 0, done.stdout
        return rows_of(done.stdout)


def rows_of(text: str) -> dict[str, list[str]]:
    """A row's mark, values and ratio by its benchmark."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {row[4]: row[:4] for row in cells if row[0] != "Change" and not row[0].startswith("---")}


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def make_project(root: Path, series: dict[str, Series] = SERIES) -> Project:
    repository = make_repository(root / "repo")
    commits = commit_each(repository, [{"n": str(index)} for index in range(COMMITS)])
    conf = {
        "version": 1,
        "project": "sample",
        "project_url": "https://example.invalid/",
        "show_commit_url": "https://example.invalid/commit/",
        "repo": "repo",
        "branches": ["main"],
        "environment_type": "existing",
    }
    write(root / "asv.conf.json", conf)
    (root / "blind.py").write_text(BLIND_CODE, encoding="utf-8")
    known = {name: entry(name, one) for name, one in series.items() if name not in REMOVED}
    write(root / "results" / "benchmarks.json", {"version": 2, **known})
    for machine in (A, B):
        params = {"machine": machine, "os": "Linux", "arch": "x86_64"}
        write(root / "results" / machine / "machine.json", {**params, "version": 1})
        for index, revision in enumerate(commits):
            path = root / "results" / machine / f"{revision[:8]}-{ENV}.json"
            write(path, results(series, machine, params, index, revision))
    return Project(root, commits)


def entry(name: str, one: Series) -> dict[str, object]:
    grid = isinstance(one.a[0], list)
    made = {"name": name, "type": one.kind, "unit": one.unit, "code": "", "timeout": 60.0, "version": "1"}
    made |= {"param_names": ["kernel", "n"] if grid else [], "params": [KERNELS, SIZES] if grid else []}
    return made if one.direction is None else {**made, "direction": one.direction}


def results(
    series: dict[str, Series], machine: str, params: dict[str, str], index: int, revision: str
) -> dict[str, object]:
    rows = {}
    for name, one in series.items():
        value = (one.a if machine == A else one.b)[index >= STEP_AT]
        grid = isinstance(one.a[0], list)
        if not grid or machine == A:
            rows[name] = [value if grid else [value], [KERNELS, SIZES] if grid else [], "1"]
    return {
        "version": 2,
        "commit_hash": revision,
        "env_name": ENV,
        "date": 1_700_000_000_000 + index * 86_400_000,
        "params": {**params, "python": "any"},
        "python": "any",
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version"],
        "results": rows,
        "durations": {},
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a project for all tests, which may write only its html folders."""
    return make_project(tmp_path_factory.mktemp("direction"))


@pytest.fixture(scope="module")
def site(project):
    return project.publish(PLUGIN, into="html")


@pytest.fixture(scope="module")
def compared(project):
    return project.compare("--factor", "1.05")


@pytest.fixture(scope="module")
def blind_compared(project):
    return project.compare("--factor", "1.05", plugins=(BLIND,))


@pytest.fixture(scope="module")
def blind_site(project):
    """Published by asv alone, but so that a browser without a network can read it."""
    (project.root / "offline.py").write_text(OFFLINE_CODE, encoding="utf-8")
    return project.publish(OFFLINE, into="html-blind")


def regressions(html: Path) -> dict[tuple[str, str], tuple[float, float, list[list[Any]]]]:
    """Latest value, best value and jumps by benchmark and card."""
    found = json.loads((html / "regressions.json").read_text(encoding="utf-8"))["regressions"]
    by_key = {(row[0], row[2]["machine"]): (row[4], row[5], row[6]) for row in found}
    assert len(by_key) == len(found)
    return by_key


def feed(html: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Title and text, its white space made plain, by benchmark and card."""
    entries = ET.parse(html / "regressions.xml").getroot().findall(f"{ATOM}entry")
    found = {}
    for one in entries:
        title, content = str(one.findtext(f"{ATOM}title")), str(one.findtext(f"{ATOM}content"))
        link = one.find(f"{ATOM}link")
        assert link is not None
        machine = re.search(r"machine=([\w-]+)", link.attrib["href"])
        assert machine
        found[title.partition(" ")[2], machine[1]] = title, re.sub(r"\s+", " ", content)
    return found


# Which way is better


def test_a_declared_direction_decides_whatever_the_unit():
    for direction in ("higher", "lower", "none"):
        assert direction_of({"type": "track", "unit": "GFLOP/s", "direction": direction}) == direction
        assert direction_of({"type": "time", "unit": "seconds", "direction": direction}) == direction


RATES = """GFLOP/s, GFLOPS, TFLOPS, gflops/s, Gflop/s, GB/s, MB/s, MiB/s, Gbit/s, bytes per second, items/s,
images/sec, tokens/s, frames per second, fps, IOPS, queries/s"""
COSTS = "seconds, s, ms, µs, bytes, MiB, cycles, s/item, ms/frame, s per item"
OTHERS = """unit, GFLOPs, GFLOP, gflops, faults/s, errors per second, J/s, 1/s, cache misses/s, GB/s/W, MHz,
dropped frames/s, GB allocated/s, x, %"""
MORE = """track_real_time_factor, track_fps, track_mean_throughput, track_memory_bandwidth, track_accuracy,
track_error_occupancy, track_bytes_per_second, track_simulation_steps_per_second, track_gflops,
trackStepsPerSecond, track_step_rate_hz, track_cache_hit_rate, b.TimeSuite.track_speedup,
track_throughput_per_cost"""
LESS = """track_p95_step_time, track_latency, track_gpu_memory, track_loop_ms, track_time_per_step,
trackPeakMem, track_error_rate, track_misses_per_second, track_accuracy_loss, track_frame_overrun_pct,
track_dropped_frame_rate"""
UNTOLD = """track_simulate, track_sm_clock_mhz, track_memory_clock, track_niter_max, bandwidth.Times.track_x,
track_rate, track_count_per_step, track_, , track_per"""


@pytest.mark.parametrize("unit", re.split(r",\s", RATES))
def test_an_unmistakable_rate_of_a_track_is_better_when_higher(unit):
    assert direction_of({"type": "track", "unit": unit}) == "higher"
    assert direction_of({"type": "time", "unit": unit}) == "lower"


@pytest.mark.parametrize("unit", re.split(r",\s", COSTS))
def test_time_and_memory_of_a_track_are_better_when_lower(unit):
    assert direction_of({"type": "track", "unit": unit, "name": "track_x"}) == "lower"


@pytest.mark.parametrize("unit", [*re.split(r",\s", OTHERS), "", None, 3])
def test_of_any_other_unit_none_is_told(unit):
    assert direction_of({"type": "track", "unit": unit}) == "unknown"
    assert direction_in_asv({"type": "track", "unit": unit}) == "lower"


@pytest.mark.parametrize(("names", "direction"), [(MORE, "higher"), (LESS, "lower"), (UNTOLD, "unknown")])
def test_where_the_unit_does_not_tell_the_name_does(names, direction):
    for name in re.split(r",\s", names):
        assert direction_of({"type": "track", "unit": "unit", "name": name}) == direction, name


def test_what_the_project_says_of_names_comes_first():
    said = {"track_x": "higher", "b.*": "none"}
    told = {"type": "track", "unit": "ms", "direction": "lower"}
    assert direction_of({**told, "name": "a.C.track_x"}, said) == "higher"
    assert direction_of({**told, "name": "b.C.track_y"}, said) == "none"
    assert direction_of({**told, "name": "c.C.track_y"}, said) == "lower"


def test_a_benchmark_of_which_nothing_is_known_stays_asvs():
    assert direction_of({}) == "lower"
    assert direction_of({"type": "peakmemory", "unit": "bytes", "direction": ["higher"]}) == "lower"


def test_every_track_of_the_harness_has_the_direction_it_declares():
    for track in TRACKS.values():
        assert direction_of({"type": "track", "unit": track.unit, "direction": track.direction}) == (
            track.direction
        )


def test_a_mistyped_direction_is_named(site):
    said = site.with_suffix(".log").read_text(encoding="utf-8")
    assert "m.track_odd has the direction 'up'" in said
    assert "treated as lower" in said


# Regressions


def test_a_fall_of_a_rate_is_one_regression_with_its_own_figures(project, site):
    last, best, jumps = regressions(site)["m.track_falls", A]
    assert (last, best) == (90.0, 100.0)
    assert jumps == [[None, revision_of(site, project.commits[STEP_AT]), 100.0, 90.0]]
    assert regressions(site)["m.track_by_unit", A][2][0][2:] == [1000.0, 900.0]


def test_a_rise_of_a_rate_is_none_and_each_card_has_its_own(site):
    found = regressions(site)
    assert ("m.track_rises", A) not in found
    assert ("m.track_falls", B) not in found
    assert found["m.track_rises", B][:2] == (90.0, 100.0)


def test_a_clock_and_a_temperature_are_never_regressions(site, blind_site):
    assert not {name for name, _ in regressions(site)} & {"m.track_clock", "m.track_heat"}
    assert ("m.track_heat", A) in regressions(blind_site)


def test_of_parameters_only_those_that_fell_are_reported(site):
    grid = [name for name, _ in regressions(site) if name.startswith("m.track_grid")]
    assert grid == ["m.track_grid('naive', 1024)"]


def test_asv_alone_has_it_the_wrong_way_round(blind_site):
    names = set(regressions(blind_site))
    assert ("m.track_rises", A) in names
    assert not names & {("m.track_falls", A), ("m.track_by_unit", A), ("m.track_right", A)}


def test_without_a_known_direction_the_list_and_its_words_are_asvs(project, site, blind_site):
    own = {name: one for name, one in SERIES.items() if direction_of(entry(name, one)) == "unknown"}
    assert own.keys() - REMOVED == {"m.track_odd"}
    for read in (regressions, feed):
        assert read(site)["m.track_odd", A] == read(blind_site)["m.track_odd", A]


def test_the_list_is_what_the_history_has_open(project, site):
    done = run_command("history", "--json", cwd=project.root, env={"HARNESS_CACHE_DIR": str(site / "cache")})
    cards = json.loads(done.stdout)["cards"]
    found = {
        (each["case"], card["name"])
        for card in cards
        for each in card["changes"]
        if each["state"] in ("new", "expired")
    }
    listed = {(name.replace("'", ""), card) for name, card in regressions(site)}
    assert listed - found == {("m.track_odd", A)}
    assert found <= listed


def revision_of(html: Path, commit_hash: str) -> int:
    index = json.loads((html / "index.json").read_text(encoding="utf-8"))
    return next(int(rev) for rev, known in index["revision_to_hash"].items() if known == commit_hash)


def test_a_threshold_is_that_of_the_time_that_the_rate_stands_for(tmp_path):
    # The rate's time rises by a half where the rate falls to 1 / 1.5.
    series = {}
    for name, after in (("within", 67.0), ("beyond", 66.0)):
        series[f"m.track_{name}"] = Series("track", "GFLOP/s", "higher", (100.0, after))
        series[f"m.time_{name}"] = Series("time", "seconds", None, (1 / 100.0, 1 / after))
    project = make_project(tmp_path, series)
    conf = json.loads((tmp_path / "asv.conf.json").read_text(encoding="utf-8"))
    write(tmp_path / "asv.conf.json", {**conf, "regressions_thresholds": {".*": 0.5}})
    found = {name for name, _ in all_regressions(project.publish(PLUGIN, into="html"))}
    assert found == {"m.track_beyond", "m.time_beyond"}


def all_regressions(html: Path) -> list[list[Any]]:
    found = json.loads((html / "regressions.json").read_text(encoding="utf-8"))["regressions"]
    return [row[:2] for row in found]


def test_the_feed_says_by_how_much_worse_than_the_highest(site):
    title, text = feed(site)["m.track_falls", A]
    assert title == "-10.00% m.track_falls"
    assert "New value: 90.0, old value: 100.0." in text
    assert "Latest value: 90.0 (10.00% worse than best value 100.0)." in text
    assert set(feed(site)) == set(regressions(site))


def test_the_feed_of_a_time_is_worded_as_before(site, blind_site):
    assert feed(site)["m.time_slower", A] == feed(blind_site)["m.time_slower", A]
    assert "(20.00% worse than best value" in feed(site)["m.time_slower", A][1]


# compare


def test_compare_marks_what_got_worse_as_worse(compared):
    marks = {name: row[0] for name, row in compared.items()}
    assert marks == {
        "m.time_slower": "+",
        "m.time_faster": "-",
        "m.track_errors": "+",
        "m.track_odd": "+",
        "m.track_falls": "+",
        "m.track_rises": "-",
        "m.track_by_unit": "+",
        "m.track_right": "+",
        "m.track_balance": "+",
        "m.track_recovery": "-",
        "m.track_clock": "",
        "m.track_heat": "",
        "m.track_grid('naive', 1024)": "+",
        "m.track_grid('naive', 2048)": "-",
        "m.track_grid('tiled', 1024)": "",
        "m.track_grid('tiled', 2048)": "!",
        "m.track_gone": "-",
        "m.track_gflops": "+",
    }


def test_compare_prints_the_figures_as_asv_does(compared, blind_compared):
    taught, blind = ({name: row[1:] for name, row in each.items()} for each in (compared, blind_compared))
    assert taught == blind
    assert taught["m.track_right"][:2] == ["1", "0"]
    assert taught["m.track_falls"] == ["100.0", "90.0", "0.90"]
    assert taught["m.track_grid('tiled', 1024)"] == ["n/a", "n/a", "n/a"]


def test_asv_alone_compares_the_wrong_way_round(blind_compared):
    marks = {name: row[0] for name, row in blind_compared.items()}
    assert (marks["m.track_falls"], marks["m.track_rises"], marks["m.track_heat"]) == ("-", "+", "+")


def test_a_factor_is_that_of_the_time_that_the_rate_stands_for(tmp_path):
    series = {
        "m.track_just": Series("track", "GFLOP/s", "higher", (110.0, 100.1)),
        "m.track_over": Series("track", "GFLOP/s", "higher", (110.0, 99.9)),
        "m.track_gain_just": Series("track", "GFLOP/s", "higher", (100.0, 109.9)),
        "m.track_gain_over": Series("track", "GFLOP/s", "higher", (100.0, 110.1)),
    }
    rows = make_project(tmp_path, series).compare()
    assert [rows[name][0] for name in series] == ["", "+", "", "-"]


def test_the_split_lists_hold_what_their_titles_say(project):
    before, after = project.commits[0], project.commits[-1]
    done = project.asv("compare", "--machine", A, "--split", "--factor", "1.05", before, after)
    parts = re.split(r"Benchmarks that have (.*):", done.stdout)
    lists = {title: set(rows_of(text)) for title, text in itertools.zip_longest(parts[1::2], parts[2::2])}
    assert {"m.track_falls", "m.time_slower"} <= lists["got worse"]
    assert {"m.track_rises", "m.time_faster"} <= lists["improved"]
    assert {"m.track_clock", "m.track_heat"} <= lists["stayed the same"]


def test_sorted_by_ratio_the_worst_comes_first_and_what_is_neither_last(tmp_path):
    series = {
        "m.time_twice": Series("time", "seconds", None, (1.0, 2.0)),
        "m.time_twelvefold": Series("time", "seconds", None, (1.0, 12.0)),
        "m.track_third": Series("track", "GFLOP/s", "higher", (300.0, 100.0)),
        "m.track_gain": Series("track", "GFLOP/s", "higher", (100.0, 300.0)),
        "m.track_zero": Series("track", "GFLOP/s", "higher", (100.0, 0.0)),
        "m.track_fails": Series("track", "GFLOP/s", "higher", (100.0, None)),
        "m.track_missing": Series("track", "GFLOP/s", "higher", (100.0, math.nan)),
        "m.track_clock": Series("track", "MHz", "none", (1000, 9000)),
    }
    rows = make_project(tmp_path, series).compare("--sort", "ratio")
    assert [name.partition("_")[2] for name in rows] == [
        "fails",
        "zero",
        "twelvefold",
        "third",
        "twice",
        "gain",
        "missing",
        "clock",
    ]


def test_with_several_environments_each_row_keeps_its_direction(tmp_path):
    series = {
        "m.time_more": Series("time", "seconds", None, (1.0, 1.5)),
        "m.track_half": Series("track", "GFLOP/s", "higher", (100.0, 50.0)),
        "m.track_twice": Series("track", "GFLOP/s", "higher", (100.0, 200.0)),
    }
    project = make_project(tmp_path, series)
    for path in (tmp_path / "results" / A).glob(f"*-{ENV}.json"):
        other = {**json.loads(path.read_text(encoding="utf-8")), "env_name": "other"}
        write(path.with_name(path.name.replace(ENV, "other")), other)
    rows = project.compare("--sort", "ratio")
    assert [(name, row[0]) for name, row in rows.items()] == [
        (f"m.{name} [{A}/{env}]", mark)
        for name, mark in (("track_half", "+"), ("time_more", "+"), ("track_twice", "-"))
        for env in (ENV, "other")
    ]


@pytest.mark.parametrize(("spread", "mark", "unsure"), [(0.2, "", True), (0.01, "+", False)])
def test_the_intervals_of_a_rate_decide_as_those_of_a_time(tmp_path, spread, mark, unsure):
    series = {"m.track_rate": Series("track", "GFLOP/s", "higher", (100.0, 80.0))}
    project = make_project(tmp_path, series)
    for path in (tmp_path / "results" / A).glob(f"*-{ENV}.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        (value,) = result["results"]["m.track_rate"][0]
        low, high = [value * (1 - spread)], [value * (1 + spread)]
        stats = {"stats_ci_99_a": low, "stats_ci_99_b": high, "stats_q_25": low, "stats_q_75": high}
        stats |= {"stats_number": [1], "stats_repeat": [5]}
        result["result_columns"] += [*stats]
        result["results"]["m.track_rate"] += stats.values()
        write(path, result)
    row = project.compare()["m.track_rate"]
    assert row[0] == mark
    assert row[3].startswith("~") == unsure


def test_what_the_marks_mean_is_said_where_more_is_better(project):
    before, after = project.commits[0], project.commits[-1]
    said = "+ is worse and - is better"
    assert said in project.asv("compare", "--machine", A, "--factor", "1.05", before, after).stdout
    assert said not in project.asv("compare", "--machine", A, before, before).stdout


# continuous and find measure: their figures lie in the commits

BENCHMARK = """\
import json
import os
import pathlib
import subprocess


def figure():
    repository = json.loads(os.environ["HARNESS_ASV"])["repository"]
    shown = subprocess.check_output(["git", "-C", repository, "show", os.environ["ASV_COMMIT"] + ":figure"])
    return float(shown)


def track_figure():
    return figure()


track_figure.unit = "{unit}"
track_figure.direction = "{direction}"
"""


def measurable(root: Path, direction: str, figures: list[float]) -> Project:
    repository = make_repository(root / "repo")
    changes = [{"figure": str(figure), "n": str(index)} for index, figure in enumerate(figures)]
    commits = commit_each(repository, changes)
    conf = {
        "version": 1,
        "project": "sample",
        "repo": "repo",
        "branches": ["main"],
        "environment_type": "checkout",
        "pythons": ["any"],
        "benchmark_dir": "suite",
    }
    write(root / "asv.conf.json", conf)
    (root / "blind.py").write_text(BLIND_CODE, encoding="utf-8")
    (root / "suite").mkdir()
    (root / "suite" / "__init__.py").write_text("", encoding="utf-8")
    code = BENCHMARK.format(unit="points", direction=direction)
    (root / "suite" / "m.py").write_text(code, encoding="utf-8")
    return Project(root, commits)


@pytest.mark.parametrize(
    ("direction", "figures", "status", "sentence"),
    [
        ("higher", [100.0, 80.0], 1, "PERFORMANCE DECREASED"),
        ("higher", [80.0, 100.0], 0, "PERFORMANCE INCREASED"),
        ("none", [80.0, 100.0], 0, "BENCHMARKS NOT SIGNIFICANTLY CHANGED"),
    ],
)
def test_continuous_exits_with_a_decrease_of_performance(tmp_path, direction, figures, status, sentence):
    done = measurable(tmp_path, direction, figures).asv("continuous", "main~1", "main")
    assert sentence in done.stdout
    assert done.returncode == status, done.stdout
    assert ("m.track_figure" in rows_of(done.stdout)) == (direction != "none")


def test_asv_alone_exits_with_an_increase(tmp_path):
    done = measurable(tmp_path, "higher", [80.0, 100.0]).asv("continuous", "main~1", "main", plugins=(BLIND,))
    assert "PERFORMANCE DECREASED" in done.stdout
    assert done.returncode == 1


FIGURES = [100.0, 100.0, 100.0, 130.0, 130.0, 130.0, 80.0, 80.0]
"""Figures with a rise at the fourth commit, and a larger fall at the seventh."""


@pytest.mark.parametrize(
    ("direction", "arguments", "plugin", "what", "at"),
    [
        ("higher", ["--invert"], PLUGIN, "improvement", 3),
        ("lower", [], PLUGIN, "regression", 3),
        ("higher", [], BLIND, "regression", 3),
    ],
)
def test_find_searches_for_what_it_says(tmp_path, direction, arguments, plugin, what, at):
    project = measurable(tmp_path, direction, FIGURES)
    span = f"{project.commits[0]}..{project.commits[-1]}"
    done = project.asv("find", *arguments, span, "track_figure", plugins=(plugin,))
    found = re.search(r"Greatest (\w+) found: (\w+)", done.stdout)
    assert found, done.stdout
    assert (found[1], project.commits.index(_whole(project, found[2]))) == (what, at)


def _whole(project: Project, short: str) -> str:
    (whole,) = [known for known in project.commits if known.startswith(short[:8])]
    return whole


# Another asv


def test_a_second_setup_changes_nothing(project, compared):
    (project.root / "twice.py").write_text(
        "from harness.integrations.asv.plugin import setup as once\ndef setup():\n    once()\n    once()\n",
        encoding="utf-8",
    )
    assert project.compare("--factor", "1.05", plugins=(".twice",)) == compared


REWRITES = """\
import gc, importlib, inspect
from pathlib import Path
from asv.publishing import OutputPublisher

def rewrite(name, changes):
    module = importlib.import_module(name)
    source = inspect.getsource(module)
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
        vars(module).pop(old, None)
    own = lambda each: inspect.isclass(each) and each.__module__ == module.__name__
    known = dict(inspect.getmembers(module, own))
    exec(compile(source, module.__file__, "exec"), vars(module))
    for name, each in known.items():
        for key, value in vars(vars(module).pop(name)).items():
            if key not in ("__dict__", "__weakref__"):
                setattr(each, key, value)
        setattr(module, name, each)
    gc.collect()  # asv runs every subclass of a publisher that there is

rewrite({name!r}, {changes!r})
"""
"""A plugin that turns a module of asv's into that of another release, which works by itself."""

CALLED_OTHERWISE = [
    ("unroll_result(benchmark_name, params, ", "unroll_result(params, benchmark_name, "),
    ("unroll_result(key, params, ", "unroll_result(params, key, "),
]
TABLES = {
    "renamed": [("_is_result_better", "_is_better")],
    "called": CALLED_OTHERWISE,
    "marked": [("mark = '+'", "mark = '>'")],
    "concluded": [("return worsened, improved", "return improved, worsened")],
    # No function fails here: what carries the direction gets lost on the way.
    "quiet": [("machine_env_name)] = value\n", "machine_env_name)] = value and value * 1\n")],
}
SEARCHES = {
    "renamed": [
        ("run_benchmarks", "measure_all"),
        ("import measure_all", "import run_benchmarks as measure_all"),
    ],
    "worded": [("Greatest {direction} found", "The greatest {direction}")],
    "quiet": [("results[i] = result\n", "results[i] = [each and float(each) for each in result]\n")],
}
LISTS = {
    "ordered": [("j, last_v, best_v, jumps]", "j, best_v, last_v, jumps]")],
    "named": [("{'regressions': regressions}", "{'found': regressions}")],
    "placed": [("'regressions.xml'", "'regressions.atom'")],
}
READ_OTHERWISE = (
    "Read these the other way, as higher is better: track_falls, track_rises, track_by_unit, track_right, "
    "track_balance, track_recovery, track_grid. Pass over these, as neither way is better: track_clock, "
    "track_heat."
)


def another_asv(root: Path, name: str, changes: list[tuple[str, str]], label: str) -> tuple[str, str]:
    """Return the plugins of an asv that differs. Each is a module of its own: bytecode knows only seconds."""
    module = f"{name.rpartition('.')[2]}_{label}"
    (root / f"{module}.py").write_text(REWRITES.format(name=name, changes=changes), encoding="utf-8")
    return f".{module}", PLUGIN


def plain(text: str) -> str:
    return " ".join(text.replace("·", " ").split())


@pytest.mark.parametrize("label", TABLES)
def test_a_table_that_cannot_be_directed_is_asvs_and_says_how_to_read_it(project, blind_compared, label):
    plugins = another_asv(project.root, "asv.commands.compare", TABLES[label], label)
    arguments = ("--machine", A, "--factor", "1.05", project.commits[0], project.commits[-1])
    done = project.asv("compare", *arguments, plugins=plugins)
    assert done.returncode == 0, done.stdout
    assert rows_of(done.stdout.replace("| > ", "| + ")) == blind_compared
    said = f"asv {asv.__version__} takes every rise for worse in this table. {READ_OTHERWISE}"
    assert plain(done.stdout).endswith(f"{said} Or compare two commits with: harness compare")


@pytest.mark.parametrize(
    ("direction", "figures", "status"), [("higher", [80.0, 100.0], 1), ("lower", [100.0, 80.0], 0)]
)
def test_a_gate_whose_direction_is_unknown_is_never_green(tmp_path, direction, figures, status):
    project = measurable(tmp_path, direction, figures)
    plugins = another_asv(tmp_path, "asv.commands.compare", TABLES["quiet"], "gate")
    done = project.asv("continuous", "main~1", "main", plugins=plugins)
    assert done.returncode == status, done.stdout
    told = (
        f"asv {asv.__version__} takes every rise for worse in this table and its sentence. Read these the "
        "other way, as higher is better: track_figure. So the exit status is 1 in any case. A gate that "
        "can be trusted: harness compare"
    )
    assert plain(done.stdout).endswith(told) == (direction == "higher")


@pytest.mark.parametrize("label", SEARCHES)
def test_a_search_that_cannot_be_directed_is_refused(tmp_path, label):
    project = measurable(tmp_path, "higher", FIGURES)
    plugins = another_asv(tmp_path, "asv.commands.find", SEARCHES[label], label)
    done = project.asv("find", f"{project.commits[0]}..main", "track_figure", plugins=plugins)
    assert done.returncode == 1
    assert plain(done.stdout) == (
        f"asv find could name the wrong commit: asv {asv.__version__} takes every rise for worse, and the "
        "harness cannot teach its search which way is better. Search with: harness bisect CASE GOOD BAD"
    )
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("label", LISTS)
def test_a_list_of_another_form_is_asvs_and_a_line_says_how_to_read_it(project, blind_site, label):
    plugins = another_asv(project.root, "asv.plugins.regressions", LISTS[label], label)
    html = project.publish(*plugins, into=f"html-{label}")
    if label == "placed":
        assert regressions(html) == regressions(blind_site)
    said = plain(html.with_suffix(".log").read_text(encoding="utf-8"))
    assert (
        f"asv {asv.__version__} lists regressions in a form that the harness does not know. asv "
        f"{asv.__version__} takes every rise for worse in its Regressions page and its feed. "
        f"{READ_OTHERWISE} The GPU history has the regressions: harness publish, harness history"
    ) in said


def test_what_the_project_says_of_names_fails_no_probe(tmp_path):
    project = make_project(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.harness]\ndirections = { track_falls = "higher", "*" = "lower" }\n', encoding="utf-8"
    )
    row = project.compare()["m.track_falls"]
    assert row[0] == "+"


CHANGES_PAGES = """\
from pathlib import Path
from asv.publishing import OutputPublisher
class Changes(OutputPublisher):
    name, order = 'changes', 9
    @classmethod
    def publish(cls, conf, *rest):
        for name, old, new in {changes!r}:
            path = Path(conf.html_dir, name)
            text = path.read_text()
            assert old in text, old
            path.write_text(text.replace(old, new))
"""


def publish_changed(project: Project, label: str, *changes: tuple[str, str, str]) -> tuple[Path, str]:
    """Return the pages of an asv whose own files differ, and what was said."""
    (project.root / f"pages_{label}.py").write_text(CHANGES_PAGES.format(changes=changes), encoding="utf-8")
    html = project.publish(f".pages_{label}", PLUGIN, into=f"html-pages-{label}")
    return html, plain(html.with_suffix(".log").read_text(encoding="utf-8"))


def test_pages_without_a_place_for_the_script_or_the_link_are_published_with_a_warning(project):
    html, said = publish_changed(
        project, "bare", ("index.html", 'src="regressions.js"', 'src="all.js"'), ("index.html", "<li ", "<p ")
    )
    assert SCRIPT not in (html / "index.html").read_text(encoding="utf-8")
    assert (
        f"index.html shows every rise in red, a rate's too: asv {asv.__version__} loads its scripts" in said
    )
    assert "does not link" not in said  # there is no history to link to
    done = run_command("publish", "--without-asv", "--html", str(html), cwd=project.root)
    assert done.returncode == 0, done.stderr
    assert f"does not link to the GPU history: asv {asv.__version__}" in done.stderr
    assert f"Open {html / HISTORY} itself." in done.stderr


# Pages


def nav(html: Path) -> int:
    return (html / "index.html").read_text(encoding="utf-8").count(f'<a href="{HISTORY}">GPU history</a>')


def test_the_history_is_linked_only_while_it_is_there(site, tmp_path):
    html = Path(shutil.copytree(site, tmp_path / "html"))
    plain = (html / "index.html").read_bytes()
    assert nav(html) == 0
    (html / HISTORY).parent.mkdir()
    (html / HISTORY).write_text("<title>GPU history</title>", encoding="utf-8")
    for _ in range(2):
        link_pages(html)
        assert nav(html) == 1
    (html / HISTORY).unlink()
    link_pages(html)
    assert (html / "index.html").read_bytes() == plain


def test_pages_that_another_publisher_wrote_are_linked(project):
    (project.root / "history.py").write_text(
        "from pathlib import Path\n"
        "from asv.publishing import OutputPublisher\n"
        "class History(OutputPublisher):\n"
        "    name, order = 'history', 9\n"
        "    @classmethod\n"
        "    def publish(cls, conf, *rest):\n"
        "        Path(conf.html_dir, 'harness').mkdir()\n"
        "        Path(conf.html_dir, 'harness', 'index.html').write_text('<p>')\n",
        encoding="utf-8",
    )
    assert nav(project.publish(PLUGIN, ".history", into="html-history")) == 1


@pytest.mark.parametrize("page", ["<p>", None])
def test_a_page_without_a_navigation_bar_stays_as_it_is_and_is_named(tmp_path, page):
    if page:
        (tmp_path / "index.html").write_text(page, encoding="utf-8")
    assert link_pages(tmp_path) == ""
    (tmp_path / HISTORY).parent.mkdir()
    (tmp_path / HISTORY).touch()
    assert f"Open {tmp_path / HISTORY} itself." in link_pages(tmp_path)
    assert [each.read_text(encoding="utf-8") for each in tmp_path.glob("*.html")] == ([page] if page else [])


def test_the_script_is_loaded_once_from_the_site_itself(site):
    html = (site / "index.html").read_text(encoding="utf-8")
    assert html.count(SCRIPT) == 1
    assert html.index("regressions.js") < html.index(SCRIPT)
    assert (site / SCRIPT).read_bytes() == (ASSETS / SCRIPT).read_bytes()
    assert DirectedPages.order < math.inf


def test_the_index_tells_the_pages_every_direction(site):
    benchmarks = json.loads((site / "index.json").read_text(encoding="utf-8"))["benchmarks"]
    assert benchmarks["m.track_by_unit"]["direction"] == "higher"
    assert "direction" not in benchmarks["m.time_slower"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


LIST = """\
return [...document.querySelectorAll('#summarylist-body tbody tr')].map(row => [
    row.cells[0].innerText.trim(),
    getComputedStyle(row.cells[2]).backgroundColor,
    row.cells[2].innerText.trim()])"""
RED, GREEN, CLEAR = "rgb(255, 221, 221)", "rgb(221, 255, 221)", "rgba(0, 0, 0, 0)"


def listed(browser: Any, html: Path, more: str = "") -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Colour and text of each row's change, in the order shown, and what the browser complained of."""
    with serve(html) as url:
        site = Site(browser, url)
        site.goto(f"#/summarylist?machine={A}{more}")
        site.wait(lambda: site.count("#summarylist-body :is(th.asc, th.desc)"), "the list")
        rows = {name.removeprefix("m."): (colour, text) for name, colour, text in site.script(LIST)}
        return rows, site.console_errors() + site.external_requests()


@pytest.mark.slow
def test_the_list_shows_a_worse_figure_in_red_and_a_better_one_in_green(browser, site, blind_site):
    rows, complaints = listed(browser, site)
    assert complaints == []
    assert {name: colour for name, (colour, _) in rows.items()} == {
        "time_slower": RED,
        "time_faster": GREEN,
        "track_errors": RED,
        "track_odd": RED,
        "track_falls": RED,
        "track_rises": GREEN,
        "track_by_unit": RED,
        "track_right": RED,
        "track_balance": RED,
        "track_recovery": GREEN,
        "track_clock": CLEAR,
        "track_heat": CLEAR,
        "track_grid ('naive', 1024)": RED,
        "track_grid ('naive', 2048)": GREEN,
        "track_grid ('tiled', 1024)": CLEAR,
        "track_grid ('tiled', 2048)": CLEAR,
    }
    assert rows["track_falls"][1] == "\u221210.0% (-10.0 GFLOP/s) worse"
    assert rows["track_rises"][1] == "+10.0% (+10.0 GFLOP/s) better"
    assert rows["track_clock"][1].endswith("MHz)")
    blind, _ = listed(browser, blind_site)
    assert (blind["track_falls"][0], blind["track_heat"][0]) == (GREEN, RED)


@pytest.mark.slow
def test_the_list_sorts_changes_by_how_much_worse(browser, site):
    rows, _ = listed(browser, site, "&sort=2&dir=desc")
    names = list(rows)
    assert set(names[:2]) == {"track_right", "track_balance"}
    assert set(names[2:4]) == {"track_errors", "track_odd"}
    assert names[4:6] == ["track_grid ('naive', 1024)", "time_slower"]
    assert set(names[6:8]) == {"track_falls", "track_by_unit"}
    # 12 to 10 ms falls by 16.7 %, 50 to 60 GFLOP/s stands for as much.
    assert names[-4] == "track_rises"
    assert set(names[-3:-1]) == {"time_faster", "track_grid ('naive', 2048)"}
    assert names[-1] == "track_recovery"


NOT_KNOWN = {
    "cells": ("summarylist.js", 'class="change"', 'class="delta"'),
    "colours": ("summarylist.js", "'positive-change'", "'a-rise'"),
    "links": ("summarylist.js", "name_td.append(bm_link)", "name_td.append(bm_link.text())"),
    "unsorted": ("summarylist.js", "setup_sort(table);", ""),
    "body": ("index.html", 'id="regressions-body"', 'id="regressions-list"'),
    "library": ("vendor/stupid-table-plugin-1.1.3/stupidtable.min.js", "stupidtable", "sortable"),
}


@pytest.mark.slow
def test_pages_that_the_script_does_not_know_keep_their_colours_and_say_so(browser, site, tmp_path):
    with serve(tmp_path) as url:
        page = Site(browser, url)
        line = "return [...document.querySelectorAll('#not-directed')].map(e => e.textContent)"
        for label, (name, old, new) in NOT_KNOWN.items():
            changed = Path(shutil.copytree(site, tmp_path / label)) / name
            text = changed.read_text(encoding="utf-8")
            assert old in text
            changed.write_text(text.replace(old, new), encoding="utf-8")
            in_list = name == "summarylist.js"
            page.goto(f"{label}/#/" + (f"summarylist?machine={A}" if in_list else ""))
            page.wait(lambda: page.script(line), f"the line about {label}")
            (told,) = page.script(line)
            assert "takes every rise for worse" in told
            assert page.count("#summarylist-body tbody tr") == (16 if in_list else 0)
            assert page.count("#summarylist-body td.change > span") == 0, label
        shutil.copytree(site, tmp_path / "known")
        for view in ("regressions", f"summarylist?machine={A}"):
            page.goto(f"known/#/{view}")
            page.wait(lambda: page.count("tbody tr"), view)
            assert page.script(line) == []


@pytest.fixture(scope="module")
def worse_site(tmp_path_factory):
    series = {
        "m.time_fifth": Series("time", "seconds", None, (0.010, 0.012)),
        "m.time_long": Series("time", "seconds", None, (1.0, 1.5)),
        "m.track_half": Series("track", "GFLOP/s", "higher", (4000.0, 2000.0)),
        "m.track_tenth": Series("track", "GFLOP/s", "higher", (500.0, 450.0)),
    }
    return make_project(tmp_path_factory.mktemp("worse"), series).publish(PLUGIN, into="html")


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True])
def test_the_regressions_page_shows_the_worst_first(browser, worse_site, grouped):
    rows = "#regressions-body .regression-div > table:first-child tbody tr"
    column = f"return [...document.querySelectorAll('{rows}')].map(r => r.cells[arguments[0]].innerText)"
    with serve(worse_site) as url:
        site = Site(browser, url)
        suffix = "?grouped=true" if grouped else ""
        site.goto(f"#/regressions{suffix}")
        site.wait(lambda: site.count("#regressions-body th.desc"), "the regressions")
        names = [name.removeprefix("m.") for name in site.script(column, 0)]
        assert names == ["track_half", "time_long", "time_fifth", "track_tenth"]
        assert site.script(column, 3) == ["0.50x", "1.50x", "1.20x", "0.90x"]
        site.script("document.querySelectorAll('#regressions-body th')[4].click()")
        in_order = ["4.00e+3 GFLOP/s", "500 GFLOP/s", "10.000ms", "1.000s"]
        site.wait(lambda: sorted(site.script(column, 4)) == sorted(in_order), "all rows")
        site.wait(
            lambda: site.script(column, 4) == ["500 GFLOP/s", "4.00e+3 GFLOP/s", "10.000ms", "1.000s"],
            "order",
        )
        assert site.console_errors() == []


@pytest.mark.slow
def test_the_graph_says_which_way_is_better(browser, site):
    said = {}
    spy = """\
const axes = [], fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function(text) {
    axes.push(text);
    return fill.apply(this, arguments);
};
window.harness_texts = axes;"""
    with serve(site) as url:
        page = Site(browser, url)
        spying = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": spy})
        try:
            for name in ("m.track_falls", "m.track_clock", "m.time_slower", "m.time_faster"):
                page.goto(f"#{name}")
                page.wait(lambda: page.painted("#main-graph canvas.flot-base"), "the graph")
                said[name] = [text for text in page.script("return harness_texts") if "better" in text]
        finally:
            browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", spying)
        assert page.console_errors() == []
    assert set(said["m.track_falls"]) == {"GFLOP/s (higher is better)"}
    assert said["m.track_clock"] == said["m.time_slower"] == []
    assert said["m.time_faster"]


@pytest.mark.slow
def test_from_a_disk_the_pages_say_that_they_need_a_server(browser, site):
    page = Site(browser, site.as_uri())
    page.goto("index.html")
    told = page.text("#from-a-disk")
    assert "need a web server" in told
    assert f"python3 -m http.server --directory '{site}'" in told
    assert page.count("#from-a-disk a") == (site / "harness").exists()
