"""asv over the commits of a small repository: one measurement a commit, of that commit's own kernels.

Everything runs on the null device, whose times follow from the kernels' text.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("asv")

from harness.integrations.asv import checkout
from harness.integrations.asv.publish import find_remote_loads
from harness.integrations.asv.tracks import ANSWERS, TRACKS, SuiteTracks
from harness.suite.loader import discover, load
from tests import toy
from tests.support import (
    GIT_CONFIG,
    ROOT,
    commit,
    commit_each,
    git,
    make_repository,
    records_below,
    run_forked,
    write_files,
)

SUITES = """\
from harness.integrations import asv_tracks


class Toy(asv_tracks.SuiteTracks):
    folder = "kernels/toy"

    def setup_cache(self):
        return self.measure()
"""
CONF = (ROOT / "asv.conf.json").read_text(encoding="utf-8")
FILES = {
    **toy.FILES,
    "asv.conf.json": CONF,
    "benchmarks/__init__.py": "",
    "benchmarks/suites.py": SUITES,
    ".gitignore": ".asv/\n__pycache__/\n",
}
PLAIN = toy.BODY.format(name="plain")
GONE = {name: None for name in toy.FILES if name.startswith("kernels/toy/")}
KERNELS = ("plain", "tiled")


class Home(NamedTuple):
    """A project and the user whose it is."""

    root: Path
    home: Path
    commits: dict[str, str]

    @property
    def results(self) -> Path:
        return self.root / ".asv" / "results"

    def asv(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """asv, with nobody there to answer a question."""
        return run_forked(**self._command(*arguments, **env), timeout=120)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """Start asv as users do."""
        return subprocess.Popen(**self._command(*arguments, **env), text=True)

    def _command(self, *arguments: str, **env: str) -> dict[str, Any]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("HARNESS_", "GIT_"))
        }
        own = {
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "HARNESS_DEVICE": "null",
            "HARNESS_CACHE_DIR": str(self.home / "cache"),
            "GIT_CONFIG_GLOBAL": GIT_CONFIG,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        return {
            "args": [sys.executable, "-m", "asv", *arguments],
            "cwd": self.root,
            "env": {**kept, **own, **env},
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }

    def result(self, name: str) -> dict[str, Any]:
        [path] = self.results.glob(f"*/{self.commits[name][:8]}-*.json")
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return read

    def values(self, name: str, track: str) -> dict[tuple[str, str], Any]:
        """A commit's values of a track by kernel and size; None where asv has none."""
        result = self.result(name)["results"][f"suites.Toy.{track}"]
        kernels, sizes = result[1]
        keys = [(kernel.strip("'"), size) for kernel in kernels for size in sizes]
        return dict(zip(keys, result[0] or [None] * len(keys), strict=True))

    def record(self, name: str):
        """A commit's newest record."""
        found = [
            stored for stored in records_below(self.results) if stored[0].source.commit == self.commits[name]
        ]
        assert found, f"no record of {name}"
        return found[-1]


def make_home(root: Path) -> Home:
    repository = make_repository(root / "project")
    changes: dict[str, Mapping[str, str | None]] = {
        "first": FILES,
        "faster": {"kernels/toy/plain.cu": PLAIN + "// changed\n"},
        "broken": {"kernels/toy/suite.py": "suite = 1 / 0\n"},
        "without": GONE,
        "last": toy.FILES,
    }
    commits = dict(zip(changes, commit_each(repository, [*changes.values()]), strict=True))
    (root / "home").mkdir()
    return Home(repository, root / "home", commits)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A project after `asv run ALL`; not to be changed."""
    made = make_home(tmp_path_factory.mktemp("asv"))
    done = made.asv("run", "ALL", "--show-stderr")
    return made, done


@pytest.fixture
def home(measured, tmp_path):
    """A copy of the measured project, for one test."""
    made, _ = measured
    shutil.copytree(made.root.parent, tmp_path / "copy", symlinks=True)
    return Home(tmp_path / "copy" / "project", tmp_path / "copy" / "home", made.commits)


@pytest.fixture
def fresh(tmp_path):
    """A project that was never measured, on a machine that asv has never seen."""
    return make_home(tmp_path / "fresh")


@pytest.mark.parametrize("name", ["first", "faster", "last"])
def test_every_kernel_of_a_commit_has_its_values(measured, name):
    made, _ = measured
    for track in ("track_time_ms", "track_gbytes_per_s", "track_sm_clock_mhz", "track_temperature_c"):
        values = made.values(name, track)
        assert all(values[kernel, "64"] > 0 for kernel in KERNELS), track
    assert all(made.values(name, "track_error_ratio")[kernel, "64"] == 0 for kernel in KERNELS)


def test_sizes_that_this_device_does_not_measure_are_no_failures(measured):
    made, _ = measured
    values = made.values("first", "track_time_ms")
    assert {size for _, size in values} == {"64", "1024", "4096"}
    assert all(math.isnan(value) for (_, size), value in values.items() if size != "64")


def test_a_change_of_a_kernel_is_seen_in_its_own_row_alone(measured):
    made, _ = measured
    first, faster = (made.values(name, "track_time_ms") for name in ("first", "faster"))
    assert first["plain", "64"] != faster["plain", "64"]
    assert first["tiled", "64"] == faster["tiled", "64"]


def test_samples_give_a_median_with_an_interval(measured):
    made, _ = measured
    result = made.result("first")
    columns = dict(zip(result["result_columns"], result["results"]["suites.Toy.track_time_ms"], strict=False))
    assert columns["stats_repeat"][0] >= 20
    assert columns["stats_ci_99_a"][0] <= columns["result"][0] * 1.0001
    assert columns["version"] == "1"


def test_the_machine_is_registered_without_a_question(measured):
    made, done = measured
    assert "Machine: null (null)" in done.stdout
    machines = json.loads((made.home / ".asv-machine.json").read_text(encoding="utf-8"))
    assert machines["null"]["machine"] == "null"


def test_what_an_update_changes_is_no_part_of_a_series(measured):
    made, _ = measured
    machine = json.loads((made.results / "null" / "machine.json").read_text(encoding="utf-8"))
    assert machine["driver"] == "1"
    assert machine["kernel"]
    for name in ("first", "faster", "last"):
        params = made.result(name)["params"]
        assert not {"driver", "kernel"} & params.keys()
        assert params["gpu"] == "null"
        assert params["python"] == "any"


@pytest.mark.parametrize("name", ["first", "faster", "last"])
def test_a_commits_record_says_what_was_measured(measured, name):
    made, _ = measured
    run, rows, complete = made.record(name)
    assert complete
    assert run.command == "asv"
    assert run.source.commit == made.commits[name]
    assert not run.source.dirty
    assert run.source == load(made.root / "kernels" / "toy", made.commits[name]).source
    assert [(row.kernel, row.status) for row in rows] == [("plain", "measured"), ("tiled", "measured")]
    assert all(row.source_sha256 and row.telemetry for row in rows)


def test_a_commits_figures_in_asv_are_those_of_its_record(measured):
    made, _ = measured
    _, rows, _ = made.record("faster")
    for row in rows:
        [time_ns] = set(row.measurement.times_ns)
        assert made.values("faster", "track_time_ms")[row.kernel, "64"] == pytest.approx(time_ns / 1e6)
        rate = row.moved_bytes / time_ns
        assert made.values("faster", "track_gbytes_per_s")[row.kernel, "64"] == pytest.approx(rate)


def test_a_commit_whose_suite_is_broken_fails_with_its_traceback_and_the_next_is_measured(measured):
    made, done = measured
    assert done.returncode == 2
    assert "suite.py:1 raised ZeroDivisionError: division by zero" in done.stdout
    assert "Traceback" in done.stdout
    assert set(made.values("broken", "track_time_ms").values()) == {None}
    assert made.values("first", "track_time_ms")["plain", "64"] > 0


def test_a_commit_without_the_suite_fails_with_a_sentence(measured):
    made, done = measured
    assert re.search(rf"ommit {made.commits['without'][:12]}.* [Nn]o suite", done.stdout)
    assert set(made.values("without", "track_time_ms").values()) == {None}


def test_why_a_commit_failed_is_said_without_being_asked_for(fresh):
    done = fresh.asv("run", f"{fresh.commits['broken']}^!")
    assert "suite.py:1 raised ZeroDivisionError: division by zero" in done.stdout
    assert "Traceback" not in done.stdout


def test_progress_is_shown_a_line_a_case(measured):
    _, done = measured
    assert "[1/2] toy.plain@64: measured" in done.stdout


def test_asv_is_told_units_and_which_way_is_better(measured):
    made, _ = measured
    told = json.loads((made.results / "benchmarks.json").read_text(encoding="utf-8"))
    tracks = {name.rpartition(".")[2]: told[name] for name in told if name != "version"}
    assert tracks.keys() == TRACKS.keys() - {"track_gflops"}
    for name, track in tracks.items():
        assert (track["unit"], track["direction"]) == (TRACKS[name].unit, TRACKS[name].direction)
        assert track["version"] == "1"
        assert track["param_names"] == ["kernel", "size"]
    assert tracks["track_gbytes_per_s"]["direction"] == "higher"
    assert tracks["track_time_ms"]["direction"] == "lower"


# Acceptance: an older commit is measured as it was, whatever lies in the working tree.

EDITS = {
    "kernel": {"kernels/toy/plain.cu": PLAIN + "// not committed\n"},
    "suite": {
        "kernels/toy/suite.py": toy.SUITE.replace("return 2 * x", "return 3 * x")
        .replace("block=32", "block=16")
        .replace("return case.n", "return 7 * case.n")
    },
    "header": {"kernels/portable/null.h": "// another header\n"},
    "new file": {"kernels/toy/helper.py": "BROKEN = True\n"},
}


def test_edits_of_the_working_tree_do_not_change_what_is_measured_of_a_commit(measured, fresh):
    made, _ = measured
    folder = fresh.root / "kernels" / "toy"
    seen = {load(folder).source.tree_sha256}
    for edit in EDITS.values():
        write_files(fresh.root, edit)
        seen.add(load(folder).source.tree_sha256)
    assert len(seen) == 1 + len(EDITS), "each edit is one that a measurement could see"

    done = fresh.asv("run", f"{fresh.commits['faster']}^!")
    assert done.returncode == 0, done.stdout

    (before, rows_before, _), (after, rows_after, _) = made.record("faster"), fresh.record("faster")
    assert after.source == before.source
    for old, new in zip(rows_before, rows_after, strict=True):
        assert new.status == "measured"
        assert new.source_sha256 == old.source_sha256
        assert new.resources.binary_sha256 == old.resources.binary_sha256
        assert (new.launch, new.flop, new.verification) == (old.launch, old.flop, old.verification)
        assert set(new.measurement.times_ns) == set(old.measurement.times_ns)
    assert fresh.values("faster", "track_time_ms") == pytest.approx(
        made.values("faster", "track_time_ms"), nan_ok=True
    )


class Away(NamedTuple):
    """A first measurement in surroundings of one's own; the machines that asv knew before and after."""

    home: Home
    said: str
    known: dict[str, Any]
    machines: dict[str, Any]


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """Return one run for independent tests: commits of a mirrored clone, a kernel that was renamed since,
    modules by PYTHONPATH, another machine's entry.
    """
    home = make_home(tmp_path_factory.mktemp("away"))
    git(home.root, "clone", "--quiet", "--bare", ".", str(home.home / "mirror.git"))
    other = {"machine": "other", "os": "a", "arch": "b", "cpu": "c", "num_cpu": "1", "ram": "2", "own": "key"}
    files = {".asv-machine.json": json.dumps({"other": other, "version": 1}), "extra/only_by_path.py": ""}
    write_files(home.home, files)
    edits = {
        "asv.conf.json": CONF.replace('"repo": "."', '"repo": "../home/mirror.git"'),
        "benchmarks/suites.py": "import only_by_path\n" + SUITES,
        "kernels/toy/suite.py": toy.SUITE.replace('"tiled"', '"renamed"'),
    }
    write_files(home.root, edits)
    path = f"{ROOT}{os.pathsep}{home.home / 'extra'}"
    done = home.asv("run", f"{home.commits['first']}^!", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout
    machines = json.loads((home.home / ".asv-machine.json").read_text(encoding="utf-8"))
    return Away(home, done.stdout, other, machines)


def test_a_kernel_that_the_working_tree_does_not_know_is_measured_but_has_no_graph(away):
    _, rows, _ = away.home.record("first")
    assert [row.kernel for row in rows] == ["plain", "tiled"]
    values = away.home.values("first", "track_time_ms")
    assert {kernel for kernel, _ in values} == {"plain", "renamed"}
    assert values["plain", "64"] > 0
    assert math.isnan(values["renamed", "64"])


def test_other_machines_are_left_alone(away):
    assert away.machines["other"] == away.known
    assert away.home.result("first")["params"]["machine"] == "null"


def test_that_a_benchmark_of_no_suite_measures_what_is_installed_is_told_once(fresh):
    others = "def track_one():\n    return 1\n\n\ndef time_two():\n    pass\n"
    write_files(fresh.root, {"benchmarks/others.py": others})
    done = fresh.asv("run", f"{fresh.commits['first']}..{fresh.commits['last']}", "--quick", "-b", "others")
    assert done.stdout.count(" and 1 more: of no suite. 'checkout' builds nothing") == 1


def test_commits_may_come_from_another_clone(away):
    """asv.conf.json may give the address of a repository, which asv mirrors."""
    run, _, _ = away.home.record("first")
    assert (run.source.commit, run.source.path) == (away.home.commits["first"], "kernels/toy")


def test_a_kernel_that_does_not_build_costs_its_row_and_no_other(fresh):
    broken = commit(fresh.root, {"kernels/toy/plain.cu": PLAIN + "#define NULL_DEVICE_FAULT build\n"}, 6)
    mended = commit(fresh.root, {"kernels/toy/plain.cu": PLAIN}, 7)
    names = Home(fresh.root, fresh.home, {**fresh.commits, "unbuilt": broken, "mended": mended})
    done = names.asv("run", f"{names.commits['last']}..HEAD", "--show-stderr")
    assert "toy.plain: error: scripted fault" in done.stdout
    _, rows, complete = names.record("unbuilt")
    assert complete
    assert [(row.kernel, row.status, row.reason) for row in rows] == [
        ("plain", "failed", "build-failed"),
        ("tiled", "measured", ""),
    ]
    assert "toy.plain: error: scripted fault" in rows[0].log
    times = names.values("unbuilt", "track_time_ms")
    assert times["plain", "64"] is None
    assert times["tiled", "64"] > 0
    assert all(names.values("mended", "track_time_ms")[kernel, "64"] > 0 for kernel in KERNELS)


def test_a_newer_driver_does_not_split_a_series(home):
    machines = home.home / ".asv-machine.json"
    written = json.loads(machines.read_text(encoding="utf-8"))
    written["null"] |= {"driver": "0.9", "kernel": "older"}
    machines.write_text(json.dumps(written), encoding="utf-8")
    before = home.result("faster")["params"]
    assert home.asv("run", f"{home.commits['first']}^!").returncode == 0
    assert home.result("first")["params"] == before
    assert json.loads(machines.read_text(encoding="utf-8"))["null"]["driver"] == "1"
    assert json.loads((home.results / "null" / "machine.json").read_text(encoding="utf-8"))["driver"] == "1"


def test_figures_of_one_card_do_not_land_in_anothers_history(fresh):
    done = fresh.asv("run", "--machine", "other", f"{fresh.commits['first']}^!")
    assert done.returncode != 0
    assert "--machine is 'other', but the device to measure on is 'null'" in done.stdout
    assert not fresh.results.exists()


def test_a_published_site_needs_no_other_host(home):
    done = home.asv("publish")
    assert done.returncode == 0, done.stdout
    assert "Warning" not in done.stdout
    pages = list((home.root / ".asv" / "html").rglob("*.html"))
    assert pages
    assert not [page for page in pages if find_remote_loads(page.read_text(encoding="utf-8"))]
    index = json.loads((home.root / ".asv" / "html" / "index.json").read_text(encoding="utf-8"))
    assert "suites.Toy.track_time_ms" in index["benchmarks"]
    assert not {"driver", "kernel"} & index["params"].keys()
    [graph] = index["graph_param_list"]
    assert graph["machine"] == "null"


@pytest.mark.slow
def test_continuous_measures_two_commits(home):
    done = home.asv("continuous", home.commits["first"], home.commits["faster"], "--bench", "track_time_ms")
    assert "suites.Toy.track_time_ms" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_plugin_that_does_not_load_is_a_failure(fresh):
    assert '".harness.integrations.asv_plugin"' in CONF
    misspelt = CONF.replace(".harness.integrations.asv_plugin", ".harness.integrations.asv_plugn")
    write_files(fresh.root, {"asv.conf.json": misspelt})
    done = fresh.asv("run", f"{fresh.commits['first']}^!")
    assert done.returncode != 0
    assert not list(fresh.results.rglob("*-*.json"))


# Tracks are read in asv's own process; where that cannot be, asv starts a process for each.


@pytest.mark.slow
def test_asvs_own_processes_give_the_same_values(home):
    before = home.values("first", "track_time_ms")
    # Profiling is what the plugin leaves to asv.
    done = home.asv("run", "--profile", "--bench", "track_time_ms", f"{home.commits['first']}^!")
    assert done.returncode == 0, done.stdout
    result = home.result("first")
    profiles = dict(
        zip(result["result_columns"], result["results"]["suites.Toy.track_time_ms"], strict=False)
    )
    assert any(profiles["profile"]), "asv ran the track itself"
    assert home.values("first", "track_time_ms") == pytest.approx(before, nan_ok=True)


def test_an_answer_is_what_the_track_method_returns(tmp_path, monkeypatch, null_script):
    """Kernel by kernel and size by size, failures and missing figures included."""
    root = write_files(tmp_path / "project", FILES)
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path / "cache")
    monkeypatch.setenv("HARNESS_DEVICE", "null")
    monkeypatch.setenv("HARNESS_ASV", json.dumps({"results": str(tmp_path / "results")}))
    null_script({"toy.tiled": {"fault": "crash"}})
    spec = importlib.util.spec_from_file_location("toy_benchmarks", root / "benchmarks" / "suites.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    tracks = module.Toy()
    answers = tracks.setup_cache()

    assert json.loads(Path(ANSWERS).read_text(encoding="utf-8")).keys() == answers.keys()
    kernels, sizes = tracks.params
    kinds = set()
    for name in answers:
        for index, (kernel, size) in enumerate((kernel, size) for kernel in kernels for size in sizes):
            file = tmp_path / f"{name}-{index}.json"
            arguments = [
                "benchmark.py",
                "run",
                "folder",
                f"suites.Toy.{name}-{index}",
                "{}",
                "None",
                str(file),
            ]
            answered = checkout._answer(arguments, Path.cwd())
            value, error = returned(getattr(tracks, name), answers, kernel, size)
            assert answered == (error, "", 1 if error else 0)
            # As asv writes what a benchmark returns.
            assert file.exists() is not bool(error)
            assert error or file.read_text(encoding="utf-8") == json.dumps(value)
            assert not error or f"toy.{kernel}[n={size}] (crashed)" in error
            kinds.add("error" if error else type(value).__name__)
    assert kinds == {"error", "dict", "float", "int"}


def returned(track: Any, *arguments: object) -> tuple[Any, str]:
    """Return the result of a track's method, or the text of its error."""
    try:
        return track(*arguments), ""
    except RuntimeError as error:
        return None, str(error)


def test_without_answers_asv_starts_its_own_process(tmp_path):
    arguments = ["benchmark.py", "run", "folder", "suites.Toy.track_time_ms-0", "{}", "None", "file"]
    assert checkout._answer(arguments, tmp_path) is None
    (tmp_path / ANSWERS).write_text('{"track_time_ms": []}', encoding="utf-8")
    assert checkout._answer(arguments, tmp_path) is None
    (tmp_path / ANSWERS).write_text('{"track_time_ms": [{"value": 1', encoding="utf-8")
    assert checkout._answer(arguments, tmp_path) is None


@pytest.fixture(scope="module")
def own_suites():
    """The benchmarks of this project; its suites are loaded to make them."""
    return importlib.import_module("benchmarks.suites")


def test_every_suite_of_this_project_is_benchmarked(own_suites):
    classes = [
        value
        for value in vars(own_suites).values()
        if inspect.isclass(value) and issubclass(value, SuiteTracks)
    ]
    folders = {ROOT / tracks.folder for tracks in classes}
    assert folders == set(discover(ROOT, ["kernels/*"]))
    assert len(folders) == len(classes)


def test_every_kernel_of_this_project_has_graphs(own_suites):
    for tracks in (own_suites.Matmul, own_suites.Copy, own_suites.Transpose):
        suite = load(ROOT / tracks.folder).suite
        assert tracks.params[0] == [kernel.name for kernel in suite.kernels]
        headline = "track_gflops" if suite.headline == "GFLOP/s" else "track_gbytes_per_s"
        assert hasattr(tracks, headline)


def test_the_projects_own_configuration_names_the_plugin():
    assert '"plugins": [".harness.integrations.asv_plugin"]' in CONF
    assert '"environment_type": "checkout"' in CONF


def test_the_repository_is_not_touched(measured):
    made, _ = measured
    assert git(made.root, "status", "--porcelain") == ""
    assert git(made.root, "rev-parse", "HEAD") == made.commits["last"]


@pytest.mark.parametrize(("fault", "verified"), [({}, 1), ({"fault": "wrong"}, 0)], ids=["right", "wrong"])
def test_a_wrong_kernel_is_a_figure_of_one_track_and_a_failure_of_the_others(
    tmp_path, monkeypatch, null_script, fault, verified
):
    root = write_files(tmp_path / "project", FILES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_DEVICE", "null")
    monkeypatch.setenv("HARNESS_ASV", json.dumps({"results": str(tmp_path / "results")}))
    null_script({"toy.tiled": fault})
    spec = importlib.util.spec_from_file_location("toy_benchmarks", root / "benchmarks" / "suites.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    tracks = module.Toy()
    answers = tracks.setup_cache()
    tiled = list(itertools.product(*tracks.params)).index(("tiled", 64))
    assert answers["track_verified"][tiled] == {"value": verified}
    assert ("error" in answers["track_time_ms"][tiled]) is not bool(verified)
