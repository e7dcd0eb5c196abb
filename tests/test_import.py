"""`harness import`: what other harnesses measured, kept as records that nobody takes for verified ones."""

from __future__ import annotations

import json

import pytest

from harness.errors import StoreError
from harness.history.reading import read_history
from harness.store.imported_files import read_imported
from harness.store.records_file import read_run
from tests.benchmark_json import google_entry, google_file, nvbench_file, nvbench_state, with_samples
from tests.support import caller, commit, make_repository


@pytest.fixture
def harness(capsys, monkeypatch, own_cache):
    return caller(capsys, monkeypatch)


@pytest.fixture
def project(tmp_path):
    repository = make_repository(tmp_path / "project")
    commit(repository, {"a.cpp": "1", "harness.toml": ""}, 1)
    commit(repository, {"a.cpp": "2"}, 2)
    return repository


def cases_of(file):
    return {(case.kernel, tuple(case.sizes.items())): case for _, cases in file.devices for case in cases}


def test_a_history_is_made_of_nvbench_files(harness, project, tmp_path):
    for revision, factor in (("HEAD~1", 1.0), ("HEAD", 1.2)):
        path = tmp_path / f"{revision}.json"
        state = with_samples(nvbench_state({"Elements": 2**20, "T": "F32"}), path, [factor * 1e-3] * 20)
        nvbench_file(path, {"copy": [state]})
        done = harness("import", "nvbench", str(path), "--commit", revision, cwd=project)
        assert done.status == 0, done.err
        assert "not verified" in done.out
    history = read_history(project / ".asv/results", project)
    [card] = history.cards
    assert card.folder == "nvbench-quadro-gv100"
    [series] = [each.series for each in card.analysed]
    assert (series.case.name, series.case.unit) == ("my_bench.copy<T=F32>@1048576", "ms")
    assert series.values.tolist() == pytest.approx([1.0, 1.2], rel=1e-6)


def test_a_record_tells_what_its_file_does_and_nothing_else(harness, project, tmp_path):
    path = nvbench_file(tmp_path / "a.json", {"copy": [nvbench_state({"n": 64})]})
    done = harness("import", "nvbench", str(path), "--json", cwd=project)
    [told] = done.json
    stored = read_run(project / told["record"])
    [row] = stored.rows
    assert stored.complete
    assert (stored.run.command, stored.run.settings["method"]) == ("import", "nvbench 1.0.0")
    assert (row.case, row.status, row.verification) == ("my_bench.copy[n=64]", "measured", None)
    assert row.measurement is not None
    assert (row.measurement.times_ns, row.measurement.launches_per_slot) == ((1e6,), 500)
    assert (row.measurement.tick_ns, row.measurement.started_ns, row.telemetry) == (None, None, None)


def test_google_benchmarks_repetitions_are_the_times_of_one_case(tmp_path):
    entries = [google_entry("BM_copy/8192/threads:2", time) for time in (100, 110, 105)]
    path = google_file(tmp_path / "a.json", entries)
    [case] = cases_of(read_imported(path)).values()
    assert (case.kernel, case.sizes) == ("BM_copy", {"arg1": 8192, "threads": 2})
    assert (case.times_ns, case.launches, case.clock) == ((100, 110, 105), 1000, "google-benchmark cpu")


def test_a_file_of_another_version_says_which_are_known(tmp_path):
    path = nvbench_file(tmp_path / "a.json", {}, version=(2, 0, 0))
    with pytest.raises(StoreError, match=r"version '2.0.0' of nvbench's JSON; known here is 1.x"):
        read_imported(path)
    path.write_text(json.dumps({"context": {"num_cpus": 1, "json_schema_version": 2}, "benchmarks": []}))
    with pytest.raises(StoreError, match="version '2' of Google Benchmark's JSON; known here is 1"):
        read_imported(path)
