"""asv behaves as usual after faults: it keeps the results that it must keep, it removes the others, lost
results can be measured again, and whoever ends asv ends the measurement.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("asv")

import asv
from asv.results import Results

from harness.device.static.architecture_builds import Build, Usage
from harness.device.static.occupancy import Residency
from harness.device.static.static_facts import StaticFacts
from harness.history.sources.asv_results import read_benchmarks, read_table
from harness.integrations.asv.regressions import read_list
from harness.records.record_files import read_run
from harness.run.builds.build_only import BuildResult
from harness.run.builds.static_records import write_static
from harness.suite.loader import load
from harness.suite.planning import plan
from tests import toy
from tests.support import IMPORT_PATH, ROOT, commit, git, run_command, write_files, write_null_script
from tests.test_asv import PLAIN, Home, make_home

pytestmark = pytest.mark.fault

TIME = "suites.Toy.track_time_ms"
PLAIN_ONLY = r"\('plain', 64\)"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A project after `asv run ALL`; not to be changed."""
    made = make_home(tmp_path_factory.mktemp("asv"))
    done = made.asv("run", "ALL")
    assert done.returncode == 2, done.stdout  # two of its commits are broken
    return made


@pytest.fixture
def home(measured, tmp_path):
    """A copy of the measured project, for one test."""
    shutil.copytree(measured.root.parent, tmp_path / "copy", symlinks=True)
    return Home(tmp_path / "copy" / "project", tmp_path / "copy" / "home", measured.commits)


@pytest.fixture
def fresh(tmp_path):
    """A project that was never measured, on a machine that asv has never seen."""
    return make_home(tmp_path / "fresh")


def records(home: Home, name: str = "") -> list[Path]:
    """Records below a project's results, or those of one commit."""
    return sorted(home.results.rglob(f"*-{home.commits[name][:8] if name else ''}*.jsonl*"))


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Options that reach into a measurement


def test_a_dry_run_writes_nothing(fresh):
    done = fresh.asv("run", "--dry-run", "-b", "track_time_ms", f"{fresh.commits['first']}^!")
    assert "toy.plain@64: measured" in done.stdout
    assert not fresh.results.exists()
    assert not (fresh.home / ".asv-machine.json").exists()


def test_one_parameter_measures_one_case(home):
    others = {track: home.values("first", track) for track in ("track_time_ms", "track_power_w")}
    done = home.asv("run", "-b", f"track_time_ms{PLAIN_ONLY}", f"{home.commits['first']}^!")
    assert done.returncode == 0, done.stdout
    assert "[1/1] toy.plain@64: measured" in done.stdout
    run, rows, complete = home.record("first")
    assert complete
    assert [(row.kernel, row.sizes) for row in rows] == [("plain", {"n": 64})]
    assert run.settings["partial"] is True
    for track, before in others.items():
        assert home.values("first", track) == pytest.approx(before, nan_ok=True)


def test_a_whole_suite_is_not_called_a_part(measured):
    run, _, _ = measured.record("first")
    assert "partial" not in run.settings
    assert run.settings["environment"] == "checkout-pyany"


def test_a_case_that_a_commit_does_not_have_is_no_failure_and_leaves_the_others_open(fresh):
    write_files(fresh.root, {"kernels/toy/suite.py": toy.SUITE.replace('"tiled"', '"newer"')})
    done = fresh.asv("run", "-b", r"track_time_ms\('newer', 64\)", f"{fresh.commits['first']}^!")
    assert done.returncode == 0, done.stdout
    assert records(fresh) == []
    values = fresh.values("first", "track_time_ms")
    assert ("newer", "64") in values
    assert all(math.isnan(value) for value in values.values())


# asv find

FAST, SLOW = (PLAIN + f"#define NULL_DEVICE_NS {ns}\n" for ns in (1000, 2000))
NO_BUILD = {"kernels/toy/plain.cu": PLAIN + "#define NULL_DEVICE_FAULT build\n"}
NO_SUITE = {"kernels/toy/suite.py": "suite = 1 / 0\n"}


def searchable(root: Path, *changes: dict[str, str]) -> Home:
    """A project whose commits change one after the other, each from the files of the first."""
    made = make_home(root)
    before = {"kernels/toy/plain.cu": FAST, "kernels/toy/suite.py": toy.SUITE, "n": ""}
    commits = {"start": commit(made.root, {**before, "n": "start"}, 6)}
    for number, change in enumerate(changes, 1):
        commits[f"{number}"] = commit(made.root, {**before, "n": f"{number}", **change}, 6 + number)
        before |= {"kernels/toy/plain.cu": SLOW} if SLOW in change.values() else {}
    return Home(made.root, made.home, commits)


def test_find_blames_no_commit_that_could_not_be_measured(tmp_path):
    made = searchable(tmp_path, {}, {}, {}, NO_BUILD, NO_SUITE, {}, {"kernels/toy/plain.cu": SLOW}, {})
    done = made.asv("find", f"{made.commits['start']}..HEAD", "track_time_ms")
    for name in "45":
        assert f"{made.commits[name][:8]} is passed over: {TIME} failed" in done.stdout
    assert f"Greatest regression found: {made.commits['7'][:8]}" in done.stdout
    assert done.returncode == 0
    kernels = {row.kernel for path in records(made) for row in read_run(path).rows}
    assert kernels == {"plain", "tiled"}


def test_find_says_what_it_could_not_look_at(tmp_path):
    made = searchable(tmp_path, {}, NO_BUILD, {"kernels/toy/plain.cu": SLOW})
    done = made.asv("find", "--skip-save", f"{made.commits['start']}..HEAD", f"track_time_ms{PLAIN_ONLY}")
    assert f"No commit could be found: {made.commits['2'][:8]} have no figure" in done.stdout
    assert "[1/1] toy.plain@64: measured" in done.stdout
    assert "toy.tiled" not in done.stdout
    assert "Traceback" not in done.stdout
    assert done.returncode == 1
    assert not made.results.exists()


# asv rm


def test_what_asv_removes_takes_its_records_along(home):
    assert records(home, "first")
    assert records(home, "faster")
    done = home.asv("rm", "-y", "python=any", f"commit_hash={home.commits['first']}")
    assert done.returncode == 0, done.stdout
    assert "Removing 1 records" in done.stdout
    assert records(home, "first") == []
    assert records(home, "faster")


def test_what_asv_removes_takes_records_along_that_were_made_of_it(home):
    [path] = records(home, "first")
    path.unlink()
    done = run_command("import", "asv", cwd=home.root, env={"HARNESS_CACHE_DIR": str(home.home / "c")})
    assert done.returncode == 0, done.stderr
    [record] = records(home, "first")
    assert read_run(record).run.command == "import"
    assert home.asv("rm", "-y", f"commit_hash={home.commits['first']}").returncode == 0
    assert records(home, "first") == []


def test_records_stay_as_long_as_asv_has_anything_of_theirs(home):
    every = records(home)
    for pattern in ("benchmark=*power_w", "machine=other"):
        assert home.asv("rm", "-y", pattern).returncode == 0
        assert records(home) == every
    other = home.results / "null" / f"{home.commits['first'][:8]}-other.json"
    shutil.copyfile(home.results / "null" / f"{home.commits['first'][:8]}-checkout-pyany.json", other)
    other.write_text(other.read_text().replace("checkout-pyany", "other"))
    write_files(home.results / "null", {f"{home.commits['faster'][:8]}-torn.json": '{"commit_'})
    for name in ("first", "faster"):
        (home.results / "null" / f"{home.commits[name][:8]}-checkout-pyany.json").unlink()
    assert home.asv("rm", "-y", "benchmark=*time_ms", f"commit_hash={home.commits['first']}").returncode == 0
    assert records(home) == every
    assert home.asv("rm", "-y", "benchmark=suites.*", f"commit_hash={home.commits['first']}").returncode == 0
    assert [path for path in every if path not in records(home)] == [
        path for path in every if home.commits["first"][:8] in path.name
    ]


def test_what_is_not_confirmed_is_not_removed(home):
    before = files_below(home.results)
    home.asv("rm", f"commit_hash={home.commits['first']}")  # nobody answers
    assert files_below(home.results) == before


# asv gh-pages

COMMITTER = {f"GIT_{role}_{part}": "test" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}


def test_pages_that_cannot_be_made_are_not_committed(home):
    write_files(home.root, {"harness-triage.toml": "not = [toml"})
    done = home.asv("gh-pages", "--no-push")
    assert done.returncode == 1
    assert "harness-triage.toml" in done.stdout
    assert "gh-pages" not in git(home.root, "branch", "--list", "gh-pages")


# Another asv


def test_github_pages_carry_our_pages_though_asvs_files_change_where_no_probe_notices(home, tmp_path):
    other = Path(shutil.copytree(Path(asv.__file__).parent, tmp_path / "path" / "asv"))
    for name in ("commands/compare.py", "commands/find.py", "plugins/regressions.py", "step_detect.py"):
        with (other / name).open("a", encoding="utf-8") as file:
            file.write("CHANGED = True\n")
    for script in other.glob("www/*.js"):
        script.write_text(f"/* changed */\n{script.read_text(encoding='utf-8')}", encoding="utf-8")
    changed = f"{tmp_path / 'path'}{os.pathsep}{ROOT}"
    done = home.asv("gh-pages", "--no-push", PYTHONPATH=changed, **COMMITTER)
    assert done.returncode == 0, done.stdout
    assert "takes every rise" not in done.stdout
    assert "/* changed */" in git(home.root, "show", "gh-pages:regressions.js")
    branch = git(home.root, "ls-tree", "-r", "--name-only", "gh-pages").splitlines()
    assert {"index.html", "harness/index.html"} <= {*branch}
    assert "harness/index.html" in git(home.root, "show", "gh-pages:index.html")
    assert "<html" in git(home.root, "show", "gh-pages:harness/index.html")
    assert git(home.root, "status", "--porcelain") == ""


# A second environment


def test_a_second_environment_hides_nothing_of_the_first(home):
    [first] = home.results.glob(f"null/{home.commits['first'][:8]}-*.json")
    told = json.loads(first.read_text())
    columns = told["result_columns"]
    before = home.values("first", "track_time_ms")
    for row in told["results"].values():
        row[columns.index("started_at")] += 1000
        row[columns.index("result")] = None
    told["env_name"] = "virtualenv-py3.12"
    write_files(first.parent, {first.name.replace("checkout-pyany", "virtualenv-py3.12"): json.dumps(told)})
    table = read_table(first.parent, read_benchmarks(home.results))
    row = table.commits.index(home.commits["first"])
    assert table.commits.count(home.commits["first"]) == 1
    for parameters, value in zip(table.columns[TIME], table.values[TIME][row], strict=True):
        kernel, size = (text.strip("'") for text in parameters)
        told = np.nan if np.isinf(value) else value  # infinite is what failed
        assert told == pytest.approx(before[kernel, size], nan_ok=True)


# harness rebuild


def rebuild(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("rebuild", *arguments, cwd=home.root, env={"HARNESS_CACHE_DIR": str(home.home / "c")})


def results_of(home: Home) -> dict[str, Any]:
    """Return asv's results by file and benchmark, without the times at which it ran them."""
    found = {}
    for path in sorted(home.results.glob("null/*-*.json")):
        told = json.loads(path.read_text())
        stamps = [told["result_columns"].index(name) for name in ("started_at", "duration")]
        for name, row in told.pop("results").items():
            told[name] = [value for place, value in enumerate(row) if place not in stamps]
        told.pop("durations")
        found[path.name] = json.dumps(told, sort_keys=True)
    return found


def test_results_that_are_as_the_records_have_them_are_not_touched(home):
    before = files_below(home.results)
    done = rebuild(home)
    assert (done.returncode, done.stdout) == (0, "0 files written, 3 as the records have it.\n"), done.stderr
    assert files_below(home.results) == before


def test_results_that_were_lost_are_made_again_as_they_were(home):
    """One file is torn, one holds something else, and one is missing."""
    before = results_of(home)
    torn, other, gone = (
        home.results / "null" / f"{home.commits[name][:8]}-checkout-pyany.json"
        for name in ("first", "faster", "last")
    )
    torn.write_bytes(torn.read_bytes()[:1000])
    other.write_text("[]")
    gone.unlink()
    done = rebuild(home, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (len(told["written"]), told["unchanged"], told["problems"]) == (3, 0, [])
    assert results_of(home) == before
    assert rebuild(home).stdout == "0 files written, 3 as the records have it.\n"


def test_wrong_kernels_and_those_that_fail_are_made_again_as_such(home):
    script = write_null_script(home.home / "null.json", {"toy.tiled": {"fault": "wrong"}})
    done = home.asv("run", f"{home.commits['first']}^!", HARNESS_NULL_SCRIPT=script)
    assert done.returncode == 2, done.stdout
    assert (home.values("first", "track_verified")["tiled", "64"]) == 0
    assert (home.values("first", "track_time_ms")["tiled", "64"]) is None
    before = results_of(home)
    (home.results / "null" / f"{home.commits['first'][:8]}-checkout-pyany.json").unlink()
    assert rebuild(home).stdout == "1 file written, 2 as the records have it.\n"
    assert results_of(home) == before


def test_what_no_record_has_is_kept(home):
    path = home.results / "null" / f"{home.commits['first'][:8]}-checkout-pyany.json"
    told = json.loads(path.read_text())
    told["results"]["others.time_own"] = [[1.5], [], "7", 1]
    time_ms = told["results"][TIME]
    was = time_ms[0][0]
    time_ms[0][0] = 2 * was  # by hand
    path.write_text(json.dumps(told))
    assert rebuild(home).stdout == "1 file written, 2 as the records have it.\n"
    again = json.loads(path.read_text())["results"]
    assert again[TIME][0][0] == was
    assert again["others.time_own"] == told["results"]["others.time_own"]
    others = {name: row for name, row in told["results"].items() if name != TIME}
    assert json.dumps({name: again[name] for name in others}) == json.dumps(others)


def test_samples_that_were_kept_are_kept_and_a_part_is_put_in_its_place(home):
    first = f"{home.commits['first']}^!"
    assert home.asv("run", "--record-samples", "-b", "track", first).returncode == 0
    assert home.asv("run", "--record-samples", "-b", f"track_.*{PLAIN_ONLY}", first).returncode == 0
    before = files_below(home.results)
    assert rebuild(home).stdout == "0 files written, 3 as the records have it.\n"
    assert files_below(home.results) == before


def test_a_damaged_result_without_a_record_is_told(home):
    for path in records(home, "first"):
        path.unlink()
    path = home.results / "null" / f"{home.commits['first'][:8]}-checkout-pyany.json"
    path.write_text("")
    done = rebuild(home)
    assert done.returncode == 3
    assert f"{path} is damaged, and no record holds its commit." in done.stderr
    assert path.read_text() == ""


def test_a_damaged_record_costs_itself_alone(home):
    [record] = records(home, "first")
    record.write_bytes(record.read_bytes().replace(b'"row"', b'"row', 1))
    (home.results / "null" / f"{home.commits['last'][:8]}-checkout-pyany.json").unlink()
    done = rebuild(home)
    assert done.returncode == 3
    assert f"{record}, line 2 is damaged" in done.stderr
    assert done.stdout == "1 file written, 1 as the records have it.\n"


def test_a_damaged_machine_is_made_again(home):
    path = home.results / "null" / "machine.json"
    before = path.read_bytes()
    path.write_text("")
    assert rebuild(home).stdout == "1 file written, 3 as the records have it.\n"
    assert path.read_bytes() == before


def test_a_folder_without_asv_has_nothing_to_rebuild(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    done = run_command("rebuild", cwd=tmp_path)
    assert done.returncode == 2
    assert "There is no" in done.stderr
    assert "asv.conf.json" in done.stderr


# An end from outside


def processes_of(home: Home) -> set[int]:
    """Every process that has this user's home, asv itself and what it has started."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if f"HOME={home.home}\0".encode() in environment:
            found.add(int(folder.name))
    return found


def waited_for(what: Any) -> Any:
    """Return the first true value of a function. The test's timeout ends the wait."""
    while not (found := what()):
        time.sleep(0.2)
    return found


class Hanging(NamedTuple):
    """`asv run` in the middle of a commit, one kernel measured and the next one hanging."""

    home: Home
    temporary: Path
    process: subprocess.Popen[str]

    def end(self, number: int) -> None:
        """End asv, and wait until all that it started has ended too."""
        self.process.send_signal(number)
        self.process.wait()
        waited_for(lambda: not processes_of(self.home))


@pytest.fixture
def run(fresh):
    hang = {"kernels/toy/tiled.cu": toy.BODY.format(name="tiled") + "#define NULL_DEVICE_FAULT hang\n"}
    home = Home(fresh.root, fresh.home, {**fresh.commits, "hangs": commit(fresh.root, hang, 6)})
    temporary = home.home / "tmp"
    temporary.mkdir()
    with home.start("run", "HEAD^!", TMPDIR=str(temporary)) as process:
        try:
            waited_for(lambda: any(b'"row"' in path.read_bytes() for path in records(home, "hangs")))
            waited_for(lambda: len(processes_of(home)) >= 3)  # asv, setup_cache and the kernel that hangs
            yield Hanging(home, temporary, process)
        finally:
            for left in processes_of(home):
                os.kill(left, signal.SIGKILL)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only there a parent's end is signalled")


@on_linux
def test_the_measurement_ends_with_an_asv_that_is_killed(run):
    run.end(signal.SIGKILL)
    [record] = records(run.home, "hangs")
    stored = read_run(record)
    assert record.suffix == ".jsonl"
    assert [row.kernel for row in stored.rows] == ["plain"]
    assert stored.interrupted
    assert [path for path in run.temporary.iterdir() if path.name.startswith("harness-")] == []
    assert not [*run.home.results.glob(f"null/{run.home.commits['hangs'][:8]}-*.json")]


@on_linux
def test_a_measurement_that_does_not_end_when_told_leaves_no_temporary_folder(run):
    for process in processes_of(run.home):
        with contextlib.suppress(FileNotFoundError):  # another one may have ended by now
            if b"\0setup_cache\0" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGSTOP)
    run.end(signal.SIGTERM)
    assert [*run.temporary.iterdir()] == []
    [part] = records(run.home, "hangs")
    assert [row.kernel for row in read_run(part).rows] == ["plain"]
    assert not [*run.home.results.glob(f"null/{run.home.commits['hangs'][:8]}-*.json")]


def compiled(home: Home, name: str, spill_bytes: int) -> None:
    """Leave a record of a kernel that was compiled for a card that is not here, at one of the commits."""
    loaded = load(home.root / "kernels" / "toy", home.commits[name])
    planned = plan(loaded.suite, ("toy.plain",), ("64",))
    ids = tuple(each.case.id for each in planned)
    spills = {"spill_store_bytes": spill_bytes, "spill_load_bytes": spill_bytes, "stack_bytes": spill_bytes}
    usage = Usage(registers=40, shared_bytes=512, **spills)
    build = Build(kernel="plain", arch="sm_86", status="built", cases=ids, usage=usage)
    held = Residency(blocks=3, occupancy=0.25, limit="registers", waves=1)
    facts = StaticFacts(build=build, cases=ids, block=(128, 1, 1), dynamic_shared_bytes=1024, residency=held)
    write_static(BuildResult(loaded, "nvcc 13.0", "", (build,)), planned, [facts], home.results)


def published(home: Home) -> list[list[Any]]:
    """Publish, and return the figures before and after each regression of a kernel that was compiled."""
    env = {"HARNESS_CACHE_DIR": str(home.home / "c"), "HOME": str(home.home), "PYTHONPATH": IMPORT_PATH}
    done = run_command("publish", cwd=home.root, env=env)
    assert done.returncode == 0, done.stderr
    rows = [each for each in read_list(home.root / ".asv" / "html") if "static-sm_86" in each.graph]
    assert {row.name for row in rows} == {"suites.Toy.track_spill_bytes('plain', 64)"}
    return [[*jump[2:]] for row in rows for jump in row.jumps]


def test_a_spill_that_a_commit_brought_is_on_asvs_regressions_page(home):
    compiled(home, "first", 0)
    compiled(home, "last", 48)
    assert published(home) == [[0, 48]]
    compiled(home, "last", 123456)  # a record that is newer than asv's file
    assert published(home) == [[0, 123456]]
    [path] = (home.results / "static-sm_86").glob(f"{home.commits['last'][:8]}-*.json")
    path.write_text(path.read_text().replace("123456", "654321"))  # a file that is newer than its records
    assert published(home) == [[0, 123456]]
    assert "654321" in path.read_text()
    assert rebuild(home).stdout.startswith("1 file written")
    assert "654321" not in path.read_text()


def test_what_was_compiled_for_a_card_that_is_not_here_is_a_machine_of_asv(home):
    compiled(home, "first", 48)
    done = rebuild(home)
    assert done.stdout == "2 files written, 3 as the records have it.\n", done.stderr
    [path] = (home.results / "static-sm_86").glob("*-*.json")
    results = Results.load(str(path), machine_name="static-sm_86")
    told = {}
    for name in results.get_all_result_keys():
        values = results.get_result_value(name, results.get_result_params(name))
        told[name.rpartition(".")[2]] = [value for value in values if not np.isnan(value)]
    assert told["track_time_ms"] == []
    assert told["track_registers"] == [40]
    assert told["track_spill_bytes"] == [48]
    assert told["track_shared_bytes"] == [1536]
    assert told["track_occupancy_percent"] == [25]
    listed = json.loads((home.results / "benchmarks.json").read_text())
    ways = {
        name.rpartition(".")[2]: each.get("direction") for name, each in listed.items() if name != "version"
    }
    assert (ways["track_spill_bytes"], ways["track_shared_bytes"]) == ("lower", "lower")
    assert ways["track_occupancy_percent"] == "higher"
