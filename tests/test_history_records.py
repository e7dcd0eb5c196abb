"""Histories out of records: without asv, beside its results, and beside those of other projects."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import shlex
import shutil

import numpy as np
import pytest

from harness.errors import ExitCode
from harness.history.reading import read_history
from harness.history.sources.unrecorded import UnrecordedCount
from harness.records.record_files import RecordWriter, read_run
from tests.support import caller
from tests.synthetic_history import CARDS, DriverChange, Failed, History, Step, Suite, make_newer, write

H200, A100 = CARDS[:2]
SMALL = Suite(kernels=("naive", "tiled"), sizes=(1024, 2048))
EVENTS = (
    Step(case="naive 1024", at=14, effect=-0.1, registers=6),
    DriverChange(card=A100.name, at=7, driver="590.44.01", effect=0.03),
    Failed(case="tiled 2048", start=27, stop=30),
)


@pytest.fixture(autouse=True)
def cache(own_cache):
    return own_cache


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    history = History(
        commits=30, cards=(H200, A100), suites=(SMALL,), noise=0.003, events=EVENTS, records=True
    )
    return write(history, tmp_path_factory.mktemp("history"))


@pytest.fixture
def made(template, tmp_path):
    """A copy of its results, to be changed."""
    shutil.copytree(template.results, tmp_path / "results")
    return dataclasses.replace(template, results=tmp_path / "results")


def without_asv(made):
    for path in made.results.rglob("*.json"):
        path.unlink()


def told(made, **options):
    return read_history(made.results, made.repository, **options)


def series_of(history, card=H200):
    [found] = [each for each in history.cards if each.name == card.machine]
    return {one.series.case.name: one.series for one in found.analysed}


def record_of(made, commit, card=H200):
    [path] = (made.results / card.machine).glob(f"*-{made.commits[commit][:8]}-*.jsonl")
    return path


def measured_again(made, commit, change, *, card=H200, **described):
    """A later run of the first commit that a change is made to; `change` is of its rows."""
    stored = read_run(record_of(made, commit, card))
    described = {"started_at": "2030-01-01T00:00:00+00:00", "run_id": "0123456789abcdef", **described}
    run = dataclasses.replace(stored.run, **described)
    with RecordWriter(made.results / card.machine, run) as writer:
        for row in change(stored.rows):
            writer.add(row)
        writer.finish(complete=True)
    return writer.path


def at_rate(row, factor):
    times = tuple(time_ns / factor for time_ns in row.measurement.times_ns)
    return dataclasses.replace(row, measurement=dataclasses.replace(row.measurement, times_ns=times))


def test_runs_at_commits_are_a_history_without_asv(capsys, monkeypatch, project, null_script):
    commits = [
        project.commit({"kernels/toy/plain.cu": f"#define NULL_DEVICE_NS {n}\n"}) for n in (500, 600, 700)
    ]
    harness = caller(capsys, monkeypatch)
    for commit in commits:
        assert harness("run", "toy", "--device", "null", "--commit", commit).status == ExitCode.FINE
    done = harness("history", "--json")
    assert done.status == ExitCode.INCONCLUSIVE
    [card] = done.json["cards"]
    assert (card["name"], card["problems"]) == ("null", [])
    assert {each["case"]["name"] for each in card["cases"]} == {"toy.plain@64", "toy.tiled@64"}
    assert harness("history", "toy.plain@64", "--metric", "time_ms").status == ExitCode.INCONCLUSIVE
    assert harness("history", "toy.tiled@64").status == ExitCode.FINE
    assert not list((project.root / ".asv").rglob("*.json"))
    [found] = read_history(project.root / ".asv" / "results", project.root, metric="time_ms").cards
    figures = {one.series.case.name: one.series.values.tolist() for one in found.analysed}
    assert figures["toy.plain@64"] == pytest.approx([500e-6, 600e-6, 700e-6])


def test_the_command_that_history_proposes_settles_what_is_too_early_to_judge(
    capsys, monkeypatch, project, null_script
):
    source = "kernels/toy/plain.cu"
    commits = [project.commit({source: f"#define NULL_DEVICE_NS {n}\n"}) for n in (500, 500, 600)]
    harness = caller(capsys, monkeypatch)
    for commit in commits:
        assert harness("run", "toy", "--device", "null", "--commit", commit).status == ExitCode.FINE
    [event] = harness("history", "--json").json["events"]
    assert (event["state"], event["bad"], event["cause"]) == ("unjudged", commits[2], "code")
    command = shlex.split(event["command"])
    assert command[-2:] == ["--device", "null"]
    assert harness(*command[1:]).status == ExitCode.REGRESSION
    done = harness("history", "--json")
    assert done.status == ExitCode.REGRESSION
    [event] = done.json["events"]
    assert (event["state"], event["accused"]) == ("new", commits[2])
    [change] = done.json["cards"][0]["changes"]
    assert change["effect"] == pytest.approx(0.2 if change["unit"] == "ms" else 1 / 1.2 - 1, abs=0.01)
    assert change["sentence"].endswith("By a comparison of two commits.")


def test_records_alone_tell_what_they_tell_beside_asvs_results(made):
    both = told(made)
    without_asv(made)
    alone = told(made)
    for ours, theirs in zip(alone.cards, both.cards, strict=True):
        assert ours.changes == theirs.changes
        assert ours.failing == theirs.failing
        assert ours.machine == theirs.machine
        assert ours.problems == theirs.problems == ()
    for name, one in series_of(alone, A100).items():
        other = series_of(both, A100)[name]
        assert one.case == other.case
        assert one.epochs == other.epochs
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.failed, other.failed)


def test_figures_of_records_are_those_of_asvs_results(made):
    recorded = told(made)
    for path in made.results.rglob("*.jsonl"):
        path.unlink()
    of_asv = told(made)
    for name, one in series_of(recorded).items():
        np.testing.assert_allclose(one.values, series_of(of_asv)[name].values, rtol=1e-6)
        for beside, figures in series_of(of_asv)[name].beside.items():
            np.testing.assert_allclose(one.beside[beside], figures, rtol=1e-6)


def test_a_suite_with_records_has_no_figure_of_asvs_files(made):
    """Neither where both have a case, nor where asv's file alone has it: that result is counted."""
    before = series_of(told(made))
    path = made.result(5)
    document = json.loads(path.read_text("utf-8"))
    for row in document["results"].values():
        row[0] = [1.0] * len(row[0])
    path.write_text(json.dumps(document), "utf-8")
    history = told(made)
    for name, one in series_of(history).items():
        np.testing.assert_array_equal(one.values, before[name].values)
    assert [(card.unrecorded.results, card.problems) for card in history.cards] == [(0, ())] * 2
    record_of(made, 5).unlink()
    history = told(made, cards=[H200.machine])
    for name, one in series_of(history).items():
        assert 5 not in one.positions
        np.testing.assert_array_equal(one.values, np.delete(before[name].values, 5))
    [card] = history.cards
    assert (card.unrecorded, card.problems) == (UnrecordedCount(results=4, hidden=4, failed=0), ())


CALM = History(
    commits=12,
    cards=(H200,),
    suites=(SMALL,),
    events=(Failed(case="tiled 2048", start=11, stop=12),),
    records=True,
)


def test_a_commit_that_failed_in_asvs_file_alone_leaves_no_history_fine(tmp_path, harness, monkeypatch):
    """A suite that does not load at a commit leaves no record: asv's file alone says that it failed."""
    made = write(CALM, tmp_path / "calm")
    monkeypatch.chdir(made.repository)
    record_of(made, 11).unlink()
    said = harness("history")
    assert (said.status, "harness import asv" in said.err) == (ExitCode.INCONCLUSIVE, True)
    assert harness("import", "asv").status == ExitCode.FINE
    assert harness("history").status == ExitCode.REGRESSION


def test_a_hidden_figure_is_told_and_a_history_is_fine(tmp_path, harness, monkeypatch):
    """A result that no import can make a record of, such as one without a time, must not block a gate for
    ever.
    """
    made = write(dataclasses.replace(CALM, events=()), tmp_path / "calm")
    record_of(made, 5).unlink()
    monkeypatch.chdir(made.repository)
    said = harness("history")
    assert (said.status, "harness import asv" in said.err) == (ExitCode.FINE, True)


HAS_FOUR = "asv's file of this commit has 4 results of the suite: run 'harness import asv'."


def test_where_no_record_has_a_result_asvs_files_are_the_source(made):
    """A run that was killed before its first row leaves the head of a record."""
    recorded = series_of(told(made))
    for path in made.results.rglob("*.jsonl"):
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    history = told(made)
    assert {card.unrecorded for card in history.cards} == {UnrecordedCount(results=120, hidden=0, failed=0)}
    for name, one in series_of(history).items():
        np.testing.assert_allclose(one.values, recorded[name].values, rtol=1e-6)


@pytest.mark.parametrize("damage", ["all of it", "its later rows"])
def test_of_a_damaged_record_it_is_told_what_asvs_file_has(made, damage):
    path = record_of(made, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    kept = {"all of it": [b"{\n"], "its later rows": [*lines[:2], b"{\n"]}[damage]
    path.write_bytes(b"".join(kept))
    [card] = told(made, cards=[H200.machine]).cards
    assert card.unrecorded == UnrecordedCount(results=4, hidden=4, failed=0)
    assert card.problems[0].startswith(f"{path.name} is left out: ")
    assert card.problems[0].endswith(f". {HAS_FOUR}")
    made.result(5).unlink()
    [card] = told(made, cards=[H200.machine]).cards
    assert (card.unrecorded.results, len(card.problems)) == (0, 1)
    assert "asv's file" not in card.problems[0]


def test_a_results_folder_of_a_later_version_is_told_of_and_the_rest_is_shown(made):
    """A record and a result file of schemas that are yet to come."""
    before = series_of(told(made))
    path = record_of(made, 5)
    path.write_text(path.read_text("utf-8").replace('"schema_version":4', '"schema_version":5'), "utf-8")
    make_newer(made.result(7))
    history = told(made, cards=[H200.machine])
    [card] = history.cards
    assert card.problems == (
        f"{made.result(7).name} is left out: the format is 3, and this harness reads 2.",
        f"{path.name} is left out: its schema is 5, and this harness reads up to 4. {HAS_FOUR}",
    )
    for name, one in series_of(history).items():
        np.testing.assert_array_equal(one.values, np.delete(before[name].values, 5))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_records_of_every_earlier_schema_are_read(made, version):
    without_asv(made)
    before = series_of(told(made))
    for path in made.results.rglob("*.jsonl"):
        text = path.read_text("utf-8").replace('"schema_version":4', f'"schema_version":{version}')
        path.write_text(text, "utf-8")
    history = told(made)
    assert [card.problems for card in history.cards] == [(), ()]
    for name, one in series_of(history).items():
        np.testing.assert_array_equal(one.values, before[name].values)


def test_a_run_of_a_part_brings_its_own_cases_up_to_date(made):
    before = series_of(told(made))
    measured_again(made, 9, lambda rows: [at_rate(rows[0], 2.0)], command="run")
    after = series_of(told(made))
    assert after["matmul.naive@1024"].values[9] == pytest.approx(2 * before["matmul.naive@1024"].values[9])
    for name in set(before) - {"matmul.naive@1024"}:
        np.testing.assert_array_equal(after[name].values, before[name].values)


@pytest.mark.parametrize("how", [{"l2": "hot"}, {"method": "2"}], ids=["l2", "method"])
def test_what_was_measured_another_way_is_of_another_epoch_and_mixes_with_nothing(made, how):
    without_asv(made)
    settings = {**read_run(record_of(made, 9)).run.settings, **how}
    measured_again(made, 9, lambda rows: [at_rate(rows[0], 2.0)], settings=settings)
    after = series_of(told(made))
    assert [n for n, epoch in enumerate(after["matmul.naive@1024"].epoch.tolist()) if epoch] == [9]
    assert 9 not in after["matmul.tiled@1024"].positions


def test_a_failure_in_another_environment_hides_no_figure(made):
    without_asv(made)
    before = series_of(told(made))

    def failed(rows):
        nothing = {"status": "failed", "reason": "compile-failed", "measurement": None}
        return [dataclasses.replace(row, **nothing) for row in rows]

    settings = {**read_run(record_of(made, 9)).run.settings, "environment": "other"}
    path = measured_again(made, 9, failed, settings=settings)
    assert series_of(told(made))["matmul.naive@1024"].values[9] == before["matmul.naive@1024"].values[9]
    path.unlink()
    measured_again(made, 9, failed)
    assert series_of(told(made))["matmul.naive@1024"].failed[9]


def test_records_of_environments_that_overlap_are_apart_from_each_other_and_from_those_of_none(made):
    without_asv(made)
    before = series_of(told(made))["matmul.naive@1024"]
    for commit, minor in ((5, 11), (7, 12), (9, 11)):
        settings = {**read_run(record_of(made, commit)).run.settings, "environment": f"checkout-py3.{minor}"}
        measured_again(made, commit, lambda rows: [at_rate(rows[0], 2.0)], settings=settings)
    cards = {card.name: card for card in told(made, cards=[H200.machine]).cards}
    points = {
        name: {one.series.case.name: one.series for one in card.analysed}["matmul.naive@1024"]
        for name, card in cards.items()
    }
    assert {name: series.positions.tolist() for name, series in points.items()} == {
        H200.machine: before.positions.tolist(),
        f"{H200.machine}/py3.11": [5, 9],
        f"{H200.machine}/py3.12": [7],
    }
    np.testing.assert_array_equal(points[H200.machine].values, before.values)


@pytest.mark.parametrize("command", ["check", "compare"])
def test_what_was_not_timed_at_a_commit_is_no_point(made, command):
    before = series_of(told(made))
    measured_again(made, 9, lambda rows: [at_rate(rows[0], 2.0)], command=command)
    after = series_of(told(made))
    np.testing.assert_array_equal(after["matmul.naive@1024"].values, before["matmul.naive@1024"].values)


def test_packed_and_unfinished_records_are_read_like_others(made):
    without_asv(made)
    before = series_of(told(made))
    packed, killed = record_of(made, 3), record_of(made, 4)
    packed.with_name(f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    killed.rename(killed.with_name(f"{killed.name}.part"))
    after = series_of(told(made))
    for name, one in after.items():
        np.testing.assert_array_equal(one.values, before[name].values)


def test_kernels_are_those_that_the_newest_commit_has(made):
    without_asv(made)
    for commit, card in itertools.product(range(20, 30), (H200, A100)):
        path = record_of(made, commit, card)
        text = (
            path.read_text("utf-8").replace('"naive"', '"renamed"').replace("matmul.naive", "matmul.renamed")
        )
        path.write_text(text, "utf-8")
    found = series_of(told(made))
    assert set(found) == {
        "matmul.renamed@1024",
        "matmul.renamed@2048",
        "matmul.tiled@1024",
        "matmul.tiled@2048",
    }
    assert found["matmul.renamed@1024"].positions.tolist() == [*range(20, 30)]


def test_a_record_with_an_impossible_time_is_left_out_and_told(made):
    before = series_of(told(made))
    path = measured_again(made, 9, lambda rows: [at_rate(rows[0], float("inf"))])
    history = told(made)
    assert any(each.startswith(f"{path.name} is left out: ") for each in history.cards[1].problems)
    np.testing.assert_array_equal(
        series_of(history)["matmul.naive@1024"].values, before["matmul.naive@1024"].values
    )


# Results of other projects


def foreign(made, machine, environment="py3.12", factor=1.0):
    """An asv project of somebody else's, at the same commits: times with parameters, and a size."""
    params = [["'quick'", "'merge'"], ["10", "1000"]]
    listed: dict[str, dict[str, object]] = {
        "sorting.Sort.time_sort": {
            "type": "time",
            "unit": "seconds",
            "params": params,
            "param_names": ["how", "n"],
        },
        "track_size": {"type": "track", "unit": "bytes", "params": [], "param_names": []},
    }
    known = {name: {"name": name, "version": "1", **each} for name, each in listed.items()}
    (made.results / "benchmarks.json").write_text(json.dumps({"version": 2, **known}), "utf-8")
    folder = made.results / machine
    folder.mkdir(exist_ok=True)
    (folder / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}), "utf-8")
    for number, commit in enumerate(made.commits):
        times = [factor * (0.1 if number < 15 else 0.2), 0.3, None, 0.5 + 1e-4 * (number % 3)]
        rows = {"sorting.Sort.time_sort": [times, params, "1", number], "track_size": [[7], [], "1", number]}
        document = {
            "commit_hash": commit,
            "env_name": environment,
            "params": {"machine": machine},
            "result_columns": ["result", "params", "version", "started_at"],
            "results": rows,
            "version": 2,
        }
        (folder / f"{commit[:8]}-{environment}.json").write_text(json.dumps(document), "utf-8")


def test_the_results_of_another_asv_project_are_a_history(made):
    shutil.rmtree(made.results)
    made.results.mkdir()
    foreign(made, "one")
    foreign(made, "two", factor=3.0)
    history = told(made)
    assert [each.name for each in history.cards] == ["one", "two"]
    for card in history.cards:
        found = {one.series.case.name: one.series for one in card.analysed}
        assert [*found] == [
            *(
                f"sorting.Sort.time_sort({each})"
                for each in ("quick, 10", "quick, 1000", "merge, 10", "merge, 1000")
            ),
            "track_size",
        ]
        assert found["sorting.Sort.time_sort(merge, 10)"].failed.all()
        [change] = [each.change for each in card.changes]
        assert (change.case, change.bad, change.kind) == (
            "sorting.Sort.time_sort(quick, 10)",
            15,
            "regression",
        )
        assert change.effect == pytest.approx(1.0)


def test_they_stand_beside_the_suites_of_records(made):
    without_asv(made)
    foreign(made, H200.machine)
    found = series_of(told(made))
    assert [*found][:4] == [
        f"matmul.{kernel}@{size}" for kernel in ("naive", "tiled") for size in (1024, 2048)
    ]
    assert found["track_size"].values.tolist() == [7.0] * 30


def test_environments_of_results_that_cannot_be_read_divide_no_card(made):
    without_asv(made)
    for environment in ("py3.12", "py3.13"):
        foreign(made, H200.machine, environment)
    assert len(told(made, cards=[H200.machine]).cards) == 3
    (made.results / "benchmarks.json").unlink()
    [card] = told(made, cards=[H200.machine]).cards
    assert card.name == H200.machine


@pytest.mark.parametrize("content", [None, "{", '{"version": 7}'])
def test_without_a_list_of_benchmarks_records_are_read_and_the_rest_is_told(made, content):
    before = series_of(told(made))
    path = made.results / "benchmarks.json"
    path.unlink() if content is None else path.write_text(content, "utf-8")
    history = told(made)
    for card in history.cards:
        assert any(each.startswith("Results of asv's are left out: ") for each in card.problems)
    for name, one in series_of(history).items():
        np.testing.assert_array_equal(one.values, before[name].values)
