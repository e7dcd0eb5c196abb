"""Made-up records come back as they were. Damaged files of other harnesses are read or refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from harness.errors import StoreError
from harness.records import record_files, sweep_journal, sweep_types
from harness.records.imports.imported_files import read_imported, read_saved
from harness.records.types import SCHEMA_VERSION, CaseBlock, Comparison, Row, Run, Source, Verdict
from tests.benchmark_json import google_entry, google_file, nvbench_file, nvbench_state, with_samples
from tests.sampling import JSON, given, replaced, settings, st, values

RECORDS = 8
"""Examples of records, which have hundreds of fields."""
NAMES = {
    "run_id": "0123456789abcdef",
    "started_at": "2026-01-02T03:04:05+00:00",
    "schema_version": SCHEMA_VERSION,
}
"""Fields from which a record's file gets its name, and the version that this harness reads."""
SUITE = Source(suite="toy", path=".", commit="c" * 40)
RUNS = values(Run).map(lambda made: dataclasses.replace(made, **NAMES, source=SUITE))
COMPARISONS = values(Comparison).map(lambda made: dataclasses.replace(made, **NAMES, base=SUITE, head=SUITE))
SWEEPS = values(sweep_types.Sweep).map(
    lambda made: dataclasses.replace(
        made, sweep_id="0123", kernel="plain", source=SUITE, schema_version=sweep_types.SCHEMA_VERSION
    )
)


def written(folder: Path, described: Any, items: list[Any]) -> Path:
    with record_files.RecordWriter(Path(tempfile.mkdtemp(dir=folder)), described) as writer:
        for item in items:
            writer.add(item)
        return writer.finish(complete=True)


@settings(max_examples=RECORDS)
@given(described=RUNS, rows=st.lists(values(Row), max_size=2))
def test_a_run_is_read_as_it_was_written_and_written_as_it_was_read(tmp_path, described, rows):
    first = written(tmp_path, described, rows)
    found = record_files.read_run(first)
    assert found == record_files.RunResult(described, tuple(rows), first)
    assert written(tmp_path, found.run, [*found.rows]).read_bytes() == first.read_bytes()


@settings(max_examples=RECORDS)
@given(
    described=COMPARISONS,
    blocks=st.lists(values(CaseBlock), max_size=1),
    verdicts=st.lists(values(Verdict), max_size=1),
)
def test_a_comparison_is_read_as_it_was_written_and_written_as_it_was_read(
    tmp_path, described, blocks, verdicts
):
    first = written(tmp_path, described, [*blocks, *verdicts])
    found = record_files.read_comparison(first)
    assert (found.comparison, [*found.blocks], [*found.verdicts]) == (described, blocks, verdicts)
    again = written(tmp_path, found.comparison, [*found.blocks, *found.verdicts])
    assert again.read_bytes() == first.read_bytes()


@settings(max_examples=RECORDS)
@given(sweep=SWEEPS, items=st.lists(st.one_of(*map(values, sweep_journal._FIELDS)), max_size=2))
def test_a_sweep_is_read_as_it_was_written(tmp_path, sweep, items):
    with sweep_journal.SweepJournal(Path(tempfile.mkdtemp(dir=tmp_path)), sweep) as writing:
        for item in items:
            writing.add(item)
        writing.finish()
        assert writing.problem == ""
        assert writing.path
    assert sweep_journal.read_sweep(writing.path) == (sweep, writing.state)


# Files of other harnesses


TIMES = st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=4)


@given(times_ns=TIMES, size=st.integers(1, 2**31 - 1))
def test_google_benchmarks_times_and_sizes_are_read(tmp_path, times_ns, size):
    runs = [google_entry(f"BM_a/{size}", time, repetition_index=at) for at, time in enumerate(times_ns)]
    [found] = read_imported(google_file(tmp_path / "a.json", runs)).devices
    [case] = found.cases
    assert (case.times_ns, dict(case.sizes)) == (tuple(times_ns), {"arg1": size})


@given(
    times_s=st.lists(st.floats(2**-40, 2**20, width=32), min_size=1, max_size=4),
    size=st.integers(1, 2**31 - 1),
)
def test_nvbenchs_samples_and_sizes_are_read(tmp_path, times_s, size):
    state = with_samples(nvbench_state({"n": size}), tmp_path / "a.json", times_s)
    [found] = read_imported(nvbench_file(tmp_path / "a.json", {"copy": [state]})).devices
    [case] = found.cases
    assert (case.times_ns, dict(case.sizes)) == (tuple(1e9 * each for each in times_s), {"n": size})


def saved_by_pytest_benchmark(path: Path) -> Path:
    times = {"min": 0.1, "max": 0.4, "mean": 0.2, "median": 0.2, "rounds": 3, "data": [0.1, 0.2, 0.4]}
    benchmark = {
        "name": "test_a",
        "fullname": "t.py::test_a",
        "extra_info": {"case": "toy.a@64", "direction": "lower", "commit": "c" * 40, "power_w": 70.0},
        "options": {"timer": "perf_counter", "disable_gc": False},
        "stats": times,
    }
    content = {
        "machine_info": {"node": "box", "cpu": {"brand_raw": "CPU"}, "gpu": {"name": "H100"}},
        "commit_info": {"id": "c" * 40, "dirty": False},
        "benchmarks": [benchmark],
        "datetime": "2026-01-02T03:04:05+00:00",
        "version": "5.3.1",
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def saved_by_google_benchmark(path: Path) -> Path:
    mean = google_entry("BM_b_mean", run_name="BM_b", run_type="aggregate", aggregate_name="mean")
    return google_file(path, [google_entry("BM_a/64/n:8"), mean], gpu_name="H100")


def saved_by_nvbench(path: Path) -> Path:
    sampled = with_samples(nvbench_state({"n": 64, "T": "F32"}), path, [1e-3, 2e-3])
    return nvbench_file(path, {"copy": [sampled, nvbench_state(is_skipped=True)]})


@pytest.mark.parametrize("save", [saved_by_google_benchmark, saved_by_nvbench, saved_by_pytest_benchmark])
@given(value=JSON)
def test_a_file_with_any_value_replaced_is_read_or_refused_with_a_sentence(tmp_path, save, value):
    path = save(tmp_path / "a.json")
    for content in replaced(json.loads(path.read_text(encoding="utf-8")), value):
        path.write_text(json.dumps(content), encoding="utf-8")
        for read in (read_imported, read_saved):
            with contextlib.suppress(StoreError):
                read(path)
