"""`harness import`: what other harnesses measured, kept as records that nobody takes for verified ones."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from harness.errors import ExitCode, StoreError
from harness.history.reading import read_history
from harness.records.imports.imported_files import read_imported
from harness.records.record_files import read_run
from tests.benchmark_json import (
    google_entry,
    google_file,
    nvbench_file,
    nvbench_state,
    nvbench_summary,
    with_samples,
)
from tests.support import commit, make_repository
from tests.synthetic_history import CARDS, DriverChange, Failed, History, Step, Suite, write

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def project(tmp_path):
    repository = make_repository(tmp_path / "project")
    commit(repository, {"a.cpp": "1", "harness.toml": ""}, 1)
    commit(repository, {"a.cpp": "2"}, 2)
    return repository


def cases_of(file):
    return {case.id: case for each in file.devices for case in each.cases}


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
    assert card.name == "nvbench-quadro-gv100"
    [series] = [each.series for each in card.analysed]
    assert (series.case.name, series.case.unit) == ("my_bench.copy_T_F32@1048576", "ms")
    assert series.values.tolist() == pytest.approx([1.0, 1.2], rel=1e-6)


def test_a_record_tells_what_its_file_does_and_nothing_else(harness, project, tmp_path):
    path = nvbench_file(tmp_path / "a.json", {"copy": [nvbench_state({"n": 64})]})
    done = harness("import", "nvbench", str(path), "--json", cwd=project)
    [told] = done.json
    stored = read_run(project / told["record"])
    [row] = stored.rows
    assert not stored.interrupted
    assert (stored.run.command, stored.run.settings["method"]) == ("import", "nvbench 1.0.0")
    assert (row.case, row.status, row.verification) == ("my_bench.copy[n=64]", "measured", None)
    assert "nothing was verified" in row.message
    assert row.measurement is not None
    assert (row.measurement.times_ns, row.measurement.launches_per_slot) == ((1e6,), 500)
    assert (row.measurement.tick_ns, row.measurement.started_ns, row.telemetry) == (None, None, None)


def test_google_benchmarks_repetitions_are_the_times_of_one_case(tmp_path):
    entries = [
        google_entry("BM_copy/8192/threads:2", time, repetitions=3, repetition_index=number)
        for number, time in enumerate((100, 110, 105))
    ]
    path = google_file(tmp_path / "a.json", entries)
    found = read_imported(path)
    assert [each.device.name for each in found.devices] == ["myhost"]
    [case] = cases_of(found).values()
    assert (case.kernel, case.sizes) == ("BM_copy", {"arg1": 8192, "threads": 2})
    assert (case.times_ns, case.launches, case.clock) == ((100, 110, 105), 1000, "google-benchmark cpu")


def test_a_file_of_another_version_says_which_are_known(tmp_path):
    path = nvbench_file(tmp_path / "a.json", {}, version=(2, 0, 0))
    with pytest.raises(StoreError, match=r"version '2.0.0' of nvbench's JSON; known here is 1.x"):
        read_imported(path)
    path.write_text(json.dumps({"context": {"num_cpus": 1, "json_schema_version": 2}, "benchmarks": []}))
    with pytest.raises(StoreError, match="version '2' of Google Benchmark's JSON; known here is 1"):
        read_imported(path)


def samples_of(path, state):
    return nvbench_file(path, {"copy": [state]})


def without(path):
    for file in path.parent.rglob("*.bin"):
        file.unlink()


def cut(path):
    for file in path.parent.rglob("*.bin"):
        file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("harm", "words"), [(without, "No such file"), (cut, "have 11 bytes, and 3 samples")]
)
def test_samples_that_cannot_be_read_leave_their_mean(tmp_path, harm, words):
    path = tmp_path / "a.json"
    state = with_samples(nvbench_state(time_s=2e-3), path, [1e-3, 2e-3, 3e-3])
    samples_of(path, state)
    [case] = cases_of(read_imported(path)).values()
    assert case.times_ns == pytest.approx([1e6, 2e6, 3e6])
    harm(path)
    file = read_imported(path)
    [case] = cases_of(file).values()
    assert (case.times_ns, case.launches) == ((2e6,), 500)
    [problem] = file.problems
    assert words in problem


def test_no_name_in_a_file_leads_anywhere_else(tmp_path):
    (tmp_path / "secret.bin").write_bytes(bytes(12))
    state = with_samples(nvbench_state(), tmp_path / "a.json", [1e-3] * 3)
    for name in ("../secret.bin", "/../secret.bin", "secret.bin", "..", ""):
        state["summaries"][-1]["data"][0]["value"] = name
        file = read_imported(samples_of(tmp_path / "a.json", state))
        assert "names no file of its samples" in file.problems[0]


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e308])
def test_what_is_no_whole_number_is_not_known(harness, project, number):
    entry = {**google_entry("BM_copy", 1e9), "bytes_per_second": number}
    google = google_file(project / "a.json", [entry], mhz_per_cpu=number)
    state = nvbench_state(time_s=1e3)
    state["summaries"][0] = nvbench_summary("nv/cold/sample_size", number)
    state["summaries"].append(nvbench_summary("nv/cold/bw/global/bytes_per_second", number))
    nvbench = nvbench_file(project / "b.json", {"copy": [state]})
    for kind, path in (("google-benchmark", google), ("nvbench", nvbench)):
        done = harness("import", kind, str(path), "--json", cwd=project)
        assert done.status == ExitCode.FINE, done.err
        stored = read_run(project / done.json[0]["record"])
        assert stored.run.device.max_clock_mhz in (None, 1627)
        assert stored.rows[0].moved_bytes is None


@pytest.mark.parametrize("date", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-10:00"])
def test_a_date_that_no_calendar_has_is_not_known(harness, project, date):
    path = google_file(project / "a.json", [google_entry("BM_copy", 1e9)], date=date)
    done = harness("import", "google-benchmark", str(path), "--json", cwd=project)
    assert done.status == ExitCode.FINE, done.err
    assert read_run(project / done.json[0]["record"]).run.settings["moment"] == "of the import"


def test_half_a_character_is_no_number(tmp_path):
    google = google_file(tmp_path / "a.json", [{**google_entry("BM_copy", 1), "real_time": "\ud800"}])
    nvbench = nvbench_file(tmp_path / "b.json", {"copy": [{**nvbench_state(), "device": "\ud800"}]})
    for path in (google, nvbench):
        with pytest.raises(StoreError, match="is not as"):
            read_imported(path)


def test_integers_of_many_digits_are_refused(tmp_path):
    google = google_file(tmp_path / "a.json", [{**google_entry("BM_copy", 1), "iterations": 10**400}])
    nvbench = nvbench_file(tmp_path / "b.json", {"copy": [{**nvbench_state(), "cold_warmup_runs": 10**400}]})
    for path in (google, nvbench):
        with pytest.raises(StoreError, match=r"is not as .* writes it: Expected `int` <="):
            read_imported(path)


def test_axes_are_sizes_where_a_case_can_have_them(tmp_path):
    states = [
        nvbench_state({"Elements{io}": 2**20, "T{ct}": "F32"}),
        nvbench_state({"Elements{io}": 2**32, "T{ct}": "F32"}),
        nvbench_state({"Entropy": 0.5, "n": 0}),
        nvbench_state({"T": "std::array<int, 3> *[?]"}),
    ]
    file = read_imported(nvbench_file(tmp_path / "a.json", {"sort": states}))
    assert set(cases_of(file)) == {
        ("sort_T_F32", (("Elements", 2**20),)),
        ("sort_Elements_4294967296_T_F32", ()),
        ("sort_Entropy_0_5_n_0", ()),
        ("sort_T_std_array_int_3_ptr", ()),
    }


def test_each_device_of_a_file_has_a_record(harness, project, tmp_path):
    skipped = nvbench_state(device=1, is_skipped=True, skip_reason="no peer access", summaries=[])
    path = nvbench_file(
        tmp_path / "a.json", {"copy": [nvbench_state(), skipped]}, devices=("Quadro GV100", "Quadro GP100")
    )
    done = harness("import", "nvbench", str(path), "--suite", "mine", "--json", cwd=project)
    assert [one["machine"] for one in done.json] == ["nvbench-quadro-gv100-0", "nvbench-quadro-gp100-1"]
    [row] = done.json[1]["rows"]
    assert (row["row"]["case"], row["row"]["status"], row["row"]["message"]) == (
        "mine.copy[]",
        "skipped",
        "no peer access",
    )
    done = harness("import", "nvbench", str(path), "--machine", "mine", cwd=project)
    assert (done.status, "is of 2 devices" in done.err) == (2, True)


AGGREGATE = {"run_name": "BM_a", "run_type": "aggregate"}
GOOGLE = {
    "old repetitions": (
        [{"name": "BM_a", "iterations": 10, "real_time": 2, "cpu_time": t, "time_unit": "us"} for t in (1, 3)]
        + [{"name": "BM_a_mean", "iterations": 10, "real_time": 2, "cpu_time": 2, "time_unit": "us"}],
        {("BM_a", ()): (1e3, 3e3)},
    ),
    "means alone": (
        [
            {
                **google_entry("BM_a_mean", 5),
                "run_name": "BM_a",
                "run_type": "aggregate",
                "aggregate_name": "mean",
            },
            {
                **google_entry("BM_a_cv", 9),
                "run_name": "BM_a",
                "run_type": "aggregate",
                "aggregate_name": "cv",
            },
        ],
        {("BM_a", ()): (5,)},
    ),
    "old means alone": (
        [
            {"name": name, "iterations": 10, "real_time": 2, "cpu_time": 5, "time_unit": "ns"}
            for name in ("BM_a/8_mean", "BM_a/8_median", "BM_a/8_stddev", "BM_b_mean")
        ],
        {("BM_a", (("arg1", 8),)): (5,), ("BM_b_mean", ()): (5,)},
    ),
    "complexity": (
        [
            google_entry("BM_a/8", 1, "ms"),
            {"name": "BM_a_BigO", "cpu_coefficient": 1, "big_o": "N", "time_unit": "ns"},
        ],
        {("BM_a", (("arg1", 8),)): (1e6,)},
    ),
    "wall": (
        [google_entry("BM_a/x:8/0/manual_time", 1, "s"), google_entry("BM_b/real_time", 1, "ns")],
        {("BM_a_0_manual_time", (("x", 8),)): (2e9,), ("BM_b_real_time", ()): (2,)},
    ),
    "how long": (
        [
            google_entry("BM_a/iterations:10"),
            google_entry("BM_b/min_time:0.5"),
            google_entry("BM_b/min_time:2.0"),
        ],
        {("BM_a", ()): (100,), ("BM_b_abb640d7", ()): (100,), ("BM_b_eb98ba84", ()): (100,)},
    ),
    "no time": (
        [google_entry("BM_a", 0.0), google_entry("BM_b", float("nan"))],
        {("BM_a", ()): (), ("BM_b", ()): ()},
    ),
}


@pytest.mark.parametrize("name", GOOGLE)
def test_whatever_google_benchmark_wrote_is_read(tmp_path, name):
    entries, expected = GOOGLE[name]
    file = read_imported(google_file(tmp_path / "a.json", entries))
    assert {key: case.times_ns for key, case in cases_of(file).items()} == expected
    assert all(case.times_ns or case.failed for case in cases_of(file).values())


WRONG = {
    "[]": "is no file of nvbench or google-benchmark",
    "{": "is damaged, or no JSON at all",
    '{"meta": {}, "benchmarks": []}': "does not say which version of nvbench's JSON it is",
    '{"context": {}, "benchmarks": []}': "is not as Google Benchmark writes it",
    '{"context": {"num_cpus": 1}, "benchmarks": [{"name": "a", "time_unit": "h"}]}': "is in 'h'",
    '{"context": {"num_cpus": 1}, "benchmarks": [{"name": 1}]}': "Expected `str`, got `int`",
}


@pytest.mark.parametrize("content", WRONG)
def test_what_is_no_such_file_says_what_was_expected(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(StoreError, match=WRONG[content]):
        read_imported(path)


def test_nothing_is_written_where_one_file_is_wrong(harness, project, tmp_path):
    good, bad = google_file(tmp_path / "a.json", [google_entry("BM_a")]), tmp_path / "b.json"
    bad.write_text("{")
    done = harness("import", "google-benchmark", str(good), str(bad), cwd=project)
    assert (done.status, (project / ".asv").exists()) == (3, False)
    done = harness("import", "nvbench", str(good), cwd=project)
    assert "'harness import google-benchmark' reads it" in done.err


def saved(tmp_path, side, number, time, minute):
    date = f"2026-11-22T12:{minute:02}:00+00:00"
    path = tmp_path / f"{side}{number}.json"
    return str(google_file(path, [google_entry("BM_copy/64", time)], date=date))


def test_files_saved_in_turns_are_judged_and_others_are_not(harness, tmp_path):
    base = [saved(tmp_path, "base", n, 100 + 0.1 * n, 2 * n) for n in range(8)]
    head = [saved(tmp_path, "head", n, 130 + 0.1 * n, 2 * n + 1) for n in range(8)]
    done = harness("judge", "--base", *base, "--head", *head, "--json")
    [verdict] = done.json["verdicts"]
    assert (verdict["case"], verdict["status"]) == ("BM_copy[arg1=64]", "regression")
    done = harness("judge", "--base", base[0], "--head", head[0])
    assert done.status == ExitCode.INCONCLUSIVE
    assert "--with-command" in done.out
    late = [saved(tmp_path, "late", n, 130, 30 + n) for n in range(8)]
    done = harness("judge", "--base", *base, "--head", *late, "--json")
    assert [each["reason"] for each in done.json["verdicts"]] == ["not-alternated"]


# Results of suites in asv's files


H200, A100 = CARDS[:2]
OF_ASV = History(
    commits=30,
    cards=(H200, A100),
    suites=(
        Suite(kernels=("naive", "tiled"), sizes=(1024, 2048)),
        Suite(name="copy", headline="GB/s", kernels=("copy",), sizes=(2**20,)),
    ),
    events=(
        Step(case="naive 1024", at=14, effect=-0.1, registers=6),
        DriverChange(card=A100.name, at=7, driver="590.44.01", effect=0.03),
        Failed(case="tiled 2048", start=20, stop=24),
        Failed(case="copy", start=27, stop=30, reason="wrong-result"),
    ),
    noise=0.003,
    driver_in_params=True,
)


@pytest.fixture
def measured_by_asv(tmp_path):
    """A project that asv alone has results of."""
    return write(OF_ASV, tmp_path / "asv")


def story(history):
    """Everything that a history tells of its cards but where figures come from."""
    return {
        card.name: (
            card.machine,
            [(each.change.case, each.change.bad, each.change.kind, each.state) for each in card.changes],
            card.failing,
            {
                one.series.case.name: (
                    one.series.positions.tolist(),
                    one.series.failed.tolist(),
                    one.series.epoch.tolist(),
                    [epoch.changed for epoch in one.series.epochs],
                )
                for one in card.analysed
            },
        )
        for card in history.cards
    }


def figures(history):
    return {
        (card.name, one.series.case.name, name): values.tolist()
        for card in history.cards
        for one in card.analysed
        for name, values in {"headline": one.series.values, **one.series.beside}.items()
    }


def test_records_of_asvs_results_tell_the_same_history_when_asvs_files_are_gone(harness, measured_by_asv):
    root = measured_by_asv.repository
    before = read_history(measured_by_asv.results, root)
    assert {card.unrecorded.results for card in before.cards} == {150}
    done = harness("import", "asv", cwd=root)
    assert (done.status, done.err) == (ExitCode.FINE, "")
    assert done.out == "".join(
        f"{card.machine}: 150 results of asv's files are in 60 records now.\n" for card in (A100, H200)
    )
    for path in measured_by_asv.results.glob("*/*-checkout-pyany.json"):
        path.unlink()
    after = read_history(measured_by_asv.results, root)
    assert story(after) == story(before)
    expected = figures(before)
    for key, values in figures(after).items():
        assert values == pytest.approx(expected.pop(key), rel=1e-6, nan_ok=True), key
    assert not expected
    assert not any(card.unrecorded.results for card in after.cards)


def test_a_second_import_finds_nothing_to_do(harness, measured_by_asv):
    root = measured_by_asv.repository
    assert len(harness("import", "asv", "--json", cwd=root).json) == 2
    records = sorted(measured_by_asv.results.rglob("*.jsonl"))
    done = harness("import", "asv", cwd=root)
    assert (done.status, done.out.startswith("Nothing to import: ")) == (ExitCode.FINE, True)
    assert harness("import", "asv", "--json", cwd=root).json == []
    assert sorted(measured_by_asv.results.rglob("*.jsonl")) == records


def test_only_what_no_record_holds_is_imported(harness, tmp_path):
    """If a record lost its last row, only this row is imported. The other rows and their order stay."""
    history = replace(OF_ASV, records=True, cards=(H200,))
    written = write(history, tmp_path / "both")
    assert harness("import", "asv", "--json", cwd=written.repository).json == []
    expected = read_history(written.results, written.repository)
    path = next(each for each in written.records(H200) if "-matmul-" in each.name)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    later = written.result(0)  # newer than the record, and silent on its L2
    document = json.loads(later.read_text("utf-8"))
    for row in document["results"].values():
        row[3] += 86_400_000
    later.write_text(json.dumps(document), "utf-8")
    [told] = harness("import", "asv", "--json", cwd=written.repository).json
    assert (told["results"], told["left_out"]) == (1, 0)
    [record] = told["records"]
    stored = read_run(written.repository / record)
    assert [(row.kernel, row.sizes) for row in stored.rows] == [("tiled", {"size": 2048})]
    assert (stored.run.command, stored.run.settings["format"]) == ("import", "asv")
    found = read_history(written.results, written.repository)
    assert [*figures(found)] == [*figures(expected)]
    for key, values in figures(found).items():
        assert values == pytest.approx(figures(expected)[key], rel=1e-6, nan_ok=True), key


def test_results_of_asvs_without_a_time_stay_where_they_are(harness, tmp_path):
    history = replace(OF_ASV, tracks=("gflops", "gbytes_per_s"), events=(), cards=(H200,))
    written = write(history, tmp_path / "rates")
    done = harness("import", "asv", cwd=written.repository)
    assert done.out == f"{H200.machine}: 0 results of asv's files are in 0 records now.\n"
    assert done.err.startswith(
        f"harness: {H200.machine}: 150 results stay in asv's files alone: no time, or "
    )
    assert not [*written.results.rglob("*.jsonl")]


def test_what_a_stranger_wrote_in_asvs_files_is_imported_or_left_out(harness, measured_by_asv):
    """Numbers that no record holds, a size in other digits, half a character, and names that are paths."""
    path = measured_by_asv.result(3, H200)
    document = json.loads(path.read_text("utf-8"))
    rows = document["results"]
    rows["suites.Matmul.track_gflops"][0] = [3e38, 1e-30, 5.0, 5.0]
    rows["suites.Matmul.track_time_ms"][0] = [5.0, 1e-30, 3e38, 5.0]
    rows["suites.Matmul.track_registers"][0] = [3e38, math.nan, math.nan, 0]
    for name, row in rows.items():
        if name.startswith("suites.Matmul."):
            row[1] = [row[1][0], ["1024", "'007'"]]
    path.write_text(json.dumps({**document, "env_name": "checkout-pyany\ud800"}), "utf-8")
    for name, full in (("ffffffff", "ffffffff/../../../evil"), ("eeeeeeee", "e" * 39)):
        text = json.dumps({**document, "commit_hash": full})
        path.with_name(f"{name}-checkout-pyany.json").write_text(text, "utf-8")
    benchmarks = measured_by_asv.results / "benchmarks.json"
    listed = json.loads(benchmarks.read_text("utf-8"))
    for name, described in listed.items():
        if name.startswith("suites.Copy."):
            described["suite"] = "../../copy"
    benchmarks.write_text(json.dumps(listed), "utf-8")
    before = {each for each in measured_by_asv.repository.rglob("*") if each.suffix != ".jsonl"}
    done = harness("import", "asv", "--json", cwd=measured_by_asv.repository)
    assert done.status == ExitCode.FINE, done.err
    again = harness("import", "asv", "--json", cwd=measured_by_asv.repository)
    assert [(each["results"], each["records"]) for each in again.json] == [(0, [])] * len(again.json)
    written = [record for each in done.json for record in each["records"]]
    assert {each.suffix for each in measured_by_asv.repository.rglob("*") if each not in before} == {".jsonl"}
    for record in written:
        assert "copy" not in record
        stored = read_run(measured_by_asv.repository / record)
        assert stored.run.source.commit in measured_by_asv.commits
        assert not stored.interrupted
        times = [row.measurement.times_ns[0] for row in stored.rows if row.measurement]
        assert all(1e-6 <= time_ns <= 1e18 for time_ns in times)


def test_records_of_two_environments_stay_apart(harness, measured_by_asv):
    folder = measured_by_asv.results / H200.machine
    for path in folder.glob("*-checkout-pyany.json"):
        text = path.read_text("utf-8").replace("checkout-pyany", "checkout-py3.13")
        path.with_name(path.name.replace("checkout-pyany", "checkout-py3.13")).write_text(text, "utf-8")
    before = read_history(measured_by_asv.results, measured_by_asv.repository)
    assert len(before.cards) == 3
    assert harness("import", "asv", cwd=measured_by_asv.repository).status == ExitCode.FINE
    after = read_history(measured_by_asv.results, measured_by_asv.repository)
    assert story(after) == story(before)
    assert not any(card.unrecorded.results for card in after.cards)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["asv", "out.json"], "reads a whole results folder: it takes --results alone"),
        (["asv", "--suite", "matmul"], "it takes --results alone"),
        (["nvbench"], "needs at least one FILE that nvbench wrote"),
    ],
)
def test_what_an_import_cannot_take_is_refused(harness, project, arguments, words):
    done = harness("import", *arguments, cwd=project)
    assert done.status == ExitCode.USAGE
    assert words in done.err


def test_without_a_list_of_benchmarks_nothing_is_imported(harness, measured_by_asv):
    (measured_by_asv.results / "benchmarks.json").unlink()
    done = harness("import", "asv", cwd=measured_by_asv.repository)
    assert done.status == ExitCode.NOT_MEASURED
    assert "no benchmarks.json" in done.err
