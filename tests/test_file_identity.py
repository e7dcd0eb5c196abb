"""One identity for every imported file: `judge`, `import` and `compare` share it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ExitCode
from harness.records.record_files import read_run
from harness.run.executables import compare_executables, executable_build
from harness.system import git
from tests.benchmark_json import (
    google_entry,
    google_file,
    google_script,
    nvbench_file,
    nvbench_state,
    nvbench_summary,
)
from tests.support import commit, make_repository

pytestmark = pytest.mark.usefixtures("own_cache")

PAIRS = 4
CONTEXT = {"host_name": "box", "num_cpus": 8, "library_version": "v1.9.1", "library_build_type": "release"}
SLOW = 1.3


@pytest.fixture
def judge(harness, tmp_path):
    """Judges `PAIRS` files of each side; `write` gets the path, the side and the pair."""

    def run(write, *more):
        words = {"base": ["--base"], "head": ["--head"]}
        for pair in range(PAIRS):
            for place, side in enumerate(words):
                path = write(tmp_path / f"{side}{pair}.json", side, pair)
                moment = 1_700_000_000 + 60 * (2 * pair + place)
                os.utime(path, (moment, moment))  # which tells nvbench's order
                words[side].append(str(path))
        return harness("judge", *words["base"], *words["head"], "--json", *more)

    return run


def google(contexts, entries=None, slow=SLOW):
    """Writes files of Google Benchmark whose sides have these contexts; head is slower."""

    def write(path, side, pair):
        time = 100 * (slow if side == "head" else 1) * (1 + pair / 2000)
        made = entries(side, time, pair) if entries else [google_entry("BM_k", time)]
        minute = 2 * pair + (side == "head")
        context = contexts(side, pair) if callable(contexts) else contexts[side]
        return google_file(path, made, **CONTEXT, date=f"2026-01-02T03:{minute:02}:00+00:00", **context)

    return write


def nvbench(change, slow=SLOW):
    """Writes files of nvbench; `change` gets the content and the side."""

    def write(path, side, pair):
        time_s = 1e-3 * (slow if side == "head" else 1) * (1 + pair / 2000)
        nvbench_file(path, {"mul": [nvbench_state({"n": 1}, time_s)]})
        content = json.loads(path.read_text())
        change(content, side)
        path.write_text(json.dumps(content))
        return path

    return write


def only(done):
    [verdict] = done.json["verdicts"]
    return verdict


def is_other_machine(done, *words):
    said = only(done)
    assert (said["status"], said["reason"], done.status) == ("invalid", "other-machine", 3), said["message"]
    for word in words:
        assert word in said["message"]


# Which facts make another machine


@pytest.mark.parametrize(
    ("key", "base", "head"),
    [
        ("gpu_name", "NVIDIA RTX A4000", "NVIDIA GeForce RTX 3090"),
        ("gpu", "one", "other"),
        ("Device", "one", "other"),
        ("cudaDeviceName", "one", "other"),
        ("num_gpus", "1", "2"),
        ("runs_on", "NVIDIA H100 PCIe", "NVIDIA H200"),
        ("gpu_uuid", "GPU-1", "GPU-2"),
        ("gpu_id", "0", "1"),
        ("gpu_driver_version", "12.4", "12.6"),
        ("ecc", "on", "off"),
        ("power_limit_w", "700", "500"),
        ("gpu_max_clock_mhz", "1980", "1500"),
        ("build_type", "opt", "fastbuild"),
        ("configuration", "RelWithDebInfo", "Debug"),
        ("compiler", "nvcc 12.4", "nvcc 13.0"),
        ("omp_num_threads", "8", "16"),
        ("gpu_name", "NVIDIA H100 PCIe", None),
        ("aslr_enabled", False, True),
        ("cpu_scaling_enabled", False, True),
        ("num_caches_of_gpu", ["a", "b"], ["a", "c"]),
    ],
)
def test_a_fact_that_can_change_time_and_is_no_code_makes_another_machine(judge, key, base, head):
    told = {"base": base, "head": head}
    contexts = {side: {} if value is None else {key: value} for side, value in told.items()}
    is_other_machine(judge(google(contexts)), key)


@pytest.mark.parametrize("key", ["library_build_type", "host_name", "num_cpus", "caches"])
def test_facts_of_google_benchmarks_own_make_another_machine(judge, key, tmp_path):
    write = google({"base": {}, "head": {}})

    def changed(path, side, pair):
        write(path, side, pair)
        if side == "head":
            content = json.loads(path.read_text())
            content["context"][key] = {"num_cpus": 9, "caches": []}.get(key, "other")
            path.write_text(json.dumps(content))
        return path

    is_other_machine(judge(changed), key)


@pytest.mark.parametrize(
    ("key", "base", "head"),
    [
        ("toolchain_image", "a", "b"),
        ("build_id", "17", "18"),
        ("data_set", "small", "large"),
        ("gpu_temperature_c", "40", "60"),
        ("power_w", "300.5", "310.25"),
    ],
)
def test_other_facts_are_reported_beside_the_verdict(judge, harness, key, base, head):
    done = judge(google({"base": {key: base}, "head": {key: head}}))
    assert (only(done)["status"], done.status) == ("regression", 1)
    assert f"Differs between base and head: {key}: {base} → {head}." in done.json["notes"]
    words = [str(path) for path in done.json["base"]["files"]], [*done.json["head"]["files"]]
    shown = harness("judge", "--base", *words[0], "--head", *words[1])
    assert f"{key}: {base} → {head}" in " ".join(shown.out.split())


def test_a_reading_that_varies_within_a_side_is_not_reported(judge):
    done = judge(google(lambda side, pair: {"load": f"{side}{pair}", "timestamp": side}))
    assert done.json["notes"] == []


def test_another_version_of_the_library_may_tell_more_and_is_reported(judge):
    write = google({"base": {}, "head": {"aslr_enabled": True}})

    def newer(path, side, pair):
        write(path, side, pair)
        if side == "head":
            path.write_text(path.read_text().replace("v1.9.1", "v1.9.2"))
        return path

    done = judge(newer)
    assert only(done)["status"] == "regression"
    assert done.json["notes"] == [
        "Differs between base and head: aslr_enabled: nothing → true.",
        "Differs between base and head: written by: google-benchmark v1.9.1 → google-benchmark v1.9.2.",
    ]


@pytest.mark.parametrize(("fact", "value"), [("library_build_type", "debug"), ("cpu_scaling_enabled", True)])
def test_what_google_benchmark_warns_of_is_told_where_it_is_true_of_all(judge, fact, value):
    write = google({"base": {}, "head": {}}, slow=1)

    def changed(path, side, pair):
        content = json.loads(write(path, side, pair).read_text())
        content["context"][fact] = value
        path.write_text(json.dumps(content))
        return path

    done = judge(changed)
    [note] = done.json["notes"]
    assert note.startswith(f"{fact} is {str(value).lower()} in all files")
    assert (only(done)["status"], done.status) == ("unchanged", 0)


def test_a_processors_clock_counts_where_all_readings_of_the_sides_are_apart(judge):
    def mhz(base, head):
        return judge(
            google(lambda side, pair: {"mhz_per_cpu": {"base": base, "head": head}[side] + 10 * pair})
        )

    is_other_machine(mhz(3000, 2000), "mhz_per_cpu is 3000 in", "and 2000 in")
    assert only(mhz(3000, 3015))["status"] == "regression"
    scattered = judge(
        google(lambda side, pair: {"mhz_per_cpu": [3600, 3000, 2400, 1900][pair] + 40 * (side == "head")})
    )
    assert only(scattered)["status"] == "regression"
    # Apart by 3 %, and each side scatters by more.
    near = judge(google(lambda side, pair: {"mhz_per_cpu": {"base": 3000, "head": 3490}[side] + 130 * pair}))
    assert only(near)["status"] == "regression"


def test_labels_that_name_a_card_are_its_identity(judge):
    def entries(side, time, _pair):
        card = {"base": "NVIDIA A100-SXM4-80GB", "head": "NVIDIA H100 PCIe"}[side]
        return [google_entry("BM_k", time, label=card)]

    is_other_machine(judge(google({"base": {}, "head": {}}, entries)), "label")
    plain = judge(google({"base": {}, "head": {}}, lambda s, time, _: [google_entry("BM_k", time, label=s)]))
    assert only(plain)["status"] == "regression"


def of_device(key, base, head):
    def change(content, side):
        content["devices"][0][key] = {"base": base, "head": head}[side]

    return change


@pytest.mark.parametrize(
    ("key", "base", "head"),
    [
        ("ecc_state", True, False),
        ("name", "NVIDIA H100 PCIe", "NVIDIA H200"),
        ("sm_default_clock_rate", 1627000000, 1620000000),
        ("global_memory_bus_width", 4096, 5120),
    ],
)
def test_every_fact_that_nvbench_tells_of_its_card_counts(judge, key, base, head):
    is_other_machine(judge(nvbench(of_device(key, base, head))), f"device.{key}")


def test_a_clock_that_one_side_locks_is_another_machine_and_other_arguments_are_reported(judge):
    def locks(content, side):
        content["meta"]["argv"] += ["--lgc", {"base": "base", "head": "unlocked"}[side]]

    is_other_machine(judge(nvbench(locks)), "clock lock is base in", "unlocked in")

    def takes(content, side):
        content["meta"]["argv"] += ["--min-time", {"base": "1", "head": "2"}[side]]

    done = judge(nvbench(takes))
    assert done.json["notes"] == ["Differs between base and head: arguments: --min-time 1 → --min-time 2."]


# The clock of a card


def at_clocks(**mhz):
    def change(content, side):
        [state] = content["benchmarks"][0]["states"]
        state["summaries"].append(nvbench_summary("nv/cold/sm_clock_rate/mean", 1e6 * mhz[side]))

    return change


@pytest.mark.parametrize(
    ("head_mhz", "slow", "status", "reason", "attribution"),
    [
        (1500, 1.32, "invalid", "sm-clock", "clocks"),
        (1952, 1.026, "invalid", "sm-clock", "clocks"),
        (1980, 1.32, "regression", "slower-in-time", "code"),
        (1960, 1.32, "regression", "slower-in-time", "code"),
        (1e7, 1.32, "regression", "slower-in-time", None),
    ],
)
def test_the_clock_that_nvbench_measured_takes_part(judge, head_mhz, slow, status, reason, attribution):
    """The last is a clock that no card has, and so unknown."""
    write = nvbench(at_clocks(base=1980, head=head_mhz), slow)
    said = only(judge(write, "--margin", "0.2", "--tolerance", "3"))
    assert (said["status"], said["reason"], said["attribution"]) == (status, reason, attribution)
    if status == "invalid":
        assert f"base at 1,980 MHz and head at {head_mhz:,} MHz" in said["message"]


# Skips, failures and names


def test_a_benchmark_that_is_skipped_or_fails_keeps_its_own_reason(judge):
    def skips(content, side):
        if side == "head":
            [state] = content["benchmarks"][0]["states"]
            state |= {"summaries": None, "is_skipped": True, "skip_reason": "needs 80 GB"}

    done = judge(nvbench(skips))
    said = only(done)
    assert (said["status"], said["reason"], said["side"]) == ("failed", "skips-itself", "head")
    assert (said["message"], done.status) == ("It skips itself at head. needs 80 GB", ExitCode.REGRESSION)


@pytest.mark.parametrize(
    ("gone", "where", "expected", "status"),
    [
        ({"error_occurred": True, "error_message": "no memory"}, "head", ("failed", "not-measured"), 1),
        ({"error_occurred": True, "error_message": "no memory"}, "base", ("failed", "not-measured"), 3),
        ({"skipped": True, "skip_message": "no memory"}, "head", ("failed", "skips-itself"), 1),
        ({"skipped": True, "skip_message": "no memory"}, "base", ("new", "skips-itself"), 4),
    ],
)
def test_google_benchmarks_reasons_are_kept(judge, gone, where, expected, status):
    def entries(side, time, _pair):
        return [google_entry("BM_k", time, **(gone if side == where else {}))]

    done = judge(google({"base": {}, "head": {}}, entries))
    said = only(done)
    assert (said["status"], said["reason"]) == expected
    assert "no memory" in said["message"]
    assert "There is no such case" not in said["message"]
    assert done.status == status


def test_what_fails_at_both_commits_is_no_fault_of_head(judge):
    def entries(side, time, _pair):
        failed = google_entry("BM_f", error_occurred=True, error_message=f"no memory at {side}")
        return [google_entry("BM_k", time), failed]

    done = judge(google({"base": {}, "head": {}}, entries, slow=1))
    said = {each["case"]: each for each in done.json["verdicts"]}["BM_f"]
    assert (said["status"], said["side"]) == ("failed", "base")
    assert said["message"].endswith("no memory at base")
    assert done.status == ExitCode.NOT_MEASURED


def test_an_error_in_one_process_of_head_is_told_with_its_reason(judge):
    def entries(side, time, pair):
        fails = side == "head" and pair == 2
        return [google_entry("BM_k", time, error_occurred=fails, error_message="no memory" if fails else "")]

    said = only(judge(google({"base": {}, "head": {}}, entries)))
    assert (said["status"], said["reason"]) == ("invalid", "incomplete")
    assert "1 of 4 files of head" in said["message"]
    assert "no memory" in said["message"]


def test_what_both_sides_skip_is_a_note_and_nothing_else_is_an_error(judge):
    skipped = google_entry("BM_other", skipped=True, skip_message="no such card")
    done = judge(google({"base": {}, "head": {}}, lambda *given: [google_entry("BM_k", given[1]), skipped]))
    assert only(done)["case"] == "BM_k"
    assert done.json["notes"] == ["BM_other is left out, as base and head skip it: no such card"]
    done = judge(google({"base": {}, "head": {}}, lambda *_: [skipped]))
    assert done.status == ExitCode.NOT_MEASURED
    assert "nothing was compared. BM_other is left out" in done.err


def test_two_benchmarks_of_one_name_are_kept_apart(judge):
    def entries(side, time, _pair):
        return [
            google_entry("BM_k", time, family_index=0, per_family_instance_index=0),
            google_entry("BM_k", 9000, family_index=1, per_family_instance_index=0),
        ]

    done = judge(google({"base": {}, "head": {}}, entries))
    assert {each["case"]: each["status"] for each in done.json["verdicts"]} == {
        "BM_k_1_of_2": "regression",
        "BM_k_2_of_2": "unchanged",
    }


def test_older_files_tell_two_of_one_name_by_a_repetition_that_comes_again(judge):
    def entries(side, time, _pair):
        times = [time, time, 9000, 9000]
        return [
            google_entry("BM_k", each, repetitions=2, repetition_index=number % 2)
            for number, each in enumerate(times)
        ]

    done = judge(google({"base": {}, "head": {}}, entries))
    assert [each["status"] for each in done.json["verdicts"]] == ["regression", "unchanged"]


def test_a_name_that_head_has_once_more_matches_nothing_by_chance(judge):
    def entries(side, time, _pair):
        fresh = [google_entry("BM_k", 100, family_index=0)] if side == "head" else []
        return [*fresh, google_entry("BM_k", 100, family_index=1), google_entry("BM_k", time, family_index=2)]

    done = judge(google({"base": {}, "head": {}}, entries))
    assert {each["status"] for each in done.json["verdicts"]} == {"missing", "new"}
    assert done.status == ExitCode.REGRESSION


def test_one_point_of_nvbenchs_axes_that_is_there_twice_is_kept_apart(judge):
    def twice(content, _side):
        [benchmark] = content["benchmarks"]
        benchmark["states"] *= 2

    done = judge(nvbench(twice))
    assert [each["case"] for each in done.json["verdicts"]] == ["mul_1_of_2[n=1]", "mul_2_of_2[n=1]"]
    told = "mul n=1 is called mul_{}_of_2 here: another benchmark of the file has the same name."
    assert done.json["notes"] == [told.format(place) for place in (1, 2)]


# pytest-benchmark


def pytest_file(path: Path, side: str, pair: int, info: dict[str, Any], times_s, **more) -> Path:
    benchmarks = [
        {
            "name": "test_a",
            "fullname": "t.py::test_a",
            "extra_info": more.get("extra_info", {}),
            "options": {"timer": "perf_counter", "disable_gc": more.get("disable_gc", False)},
            "stats": {**dict.fromkeys(("min", "max", "mean", "median"), time_s), "rounds": 5},
        }
        for time_s in times_s
    ]
    content = {
        "machine_info": {"node": "box", **info},
        "commit_info": {"id": {"base": "a", "head": "b"}[side] * 40, "dirty": False},
        "benchmarks": benchmarks,
        "datetime": f"2026-01-02T03:{2 * pair + (side == 'head'):02}:00+00:00",
        "version": "5.3.1",
    }
    path.write_text(json.dumps(content))
    return path


def slower(side, pair):
    return 0.01 * (SLOW if side == "head" else 1) * (1 + pair / 2000)


@pytest.mark.parametrize(
    ("base", "head", "words"),
    [
        ({"gpus": ["RTX A4000"]}, {"gpus": ["RTX 3090"]}, "gpus is RTX A4000"),
        ({"gpu": "RTX A4000"}, {"gpu": "RTX 3090"}, "gpu is RTX A4000"),
        ({"gpus": ["H100", "H100"]}, {"gpus": ["H100", "H200"]}, "gpus.1 is H100"),
        ({"gpus": [{"name": "one"}]}, {"gpus": [{"name": "other"}]}, "gpus.name is one"),
        ({"bench": {"on": "H100"}}, {"bench": {"on": "H200"}}, "bench.on is H100"),
        ({"gpus": ["H100"]}, {}, "gpus is H100"),
    ],
)
def test_a_card_in_pytests_machine_info_counts_however_it_is_written(judge, base, head, words):
    infos = {"base": base, "head": head}
    done = judge(lambda path, side, pair: pytest_file(path, side, pair, infos[side], [slower(side, pair)]))
    is_other_machine(done, words)
    assert done.json["device"] in (*map(str, base.values()), "RTX A4000", "H100", "H100, H100", "one")


def test_a_card_in_extra_info_counts_and_other_keys_do_not(judge):
    cards = {"base": "NVIDIA A100", "head": "NVIDIA H100"}

    def write(key, values):
        return lambda path, side, pair: pytest_file(
            path, side, pair, {}, [slower(side, pair)], extra_info={key: values[side]}
        )

    is_other_machine(judge(write("where", cards)), "NVIDIA A100 and NVIDIA H100")
    assert only(judge(write("where", {"base": "x", "head": "y"})))["status"] == "regression"


def test_of_a_test_that_ran_again_the_last_run_counts_and_this_is_told(judge):
    def write(path, side, pair):
        first = 0.05 if side == "head" and pair == 1 else 0.01
        return pytest_file(path, side, pair, {}, [first, 0.01 * (1 + pair / 2000)])

    done = judge(write)
    assert (only(done)["status"], done.status) == ("unchanged", 0)
    assert done.json["notes"] == [
        "t.py::test_a ran more than once in 8 of 8 files: the last run counts.",
    ]


def test_options_of_pytest_benchmark_that_differ_are_reported(judge):
    done = judge(
        lambda path, side, pair: pytest_file(path, side, pair, {}, [0.01], disable_gc=side == "head")
    )
    assert done.json["notes"] == ["Differs between base and head: options.disable_gc: false → true."]


# Import


@pytest.fixture
def project(tmp_path):
    repository = make_repository(tmp_path / "project")
    for day in (1, 2):
        commit(repository, {"harness.toml": "", "day": str(day)}, day)
    return repository


@pytest.mark.parametrize("command", ["import", "judge"])
@pytest.mark.parametrize("kind", ["google-benchmark", "nvbench"])
def test_a_file_without_a_benchmark_is_no_success(harness, project, kind, command):
    empty = {
        "google-benchmark": lambda: google_file(project / "a.json", []),
        "nvbench": lambda: nvbench_file(project / "a.json", {"copy": []}),
    }[kind]()
    other = project / "b.json"
    other.write_bytes(empty.read_bytes())
    given = (kind, str(empty)) if command == "import" else ("--base", str(empty), "--head", str(other))
    done = harness(command, *given, cwd=project)
    assert (done.status, "holds no benchmark" in done.err) == (ExitCode.NOT_MEASURED, True)
    assert not (project / ".asv").exists()


def test_import_tells_the_reason_of_every_benchmark_without_a_time(harness, project):
    failed = google_entry("BM_b", error_occurred=True, error_message="no memory")
    path = google_file(project / "a.json", [google_entry("BM_a"), failed])
    done = harness("import", "google-benchmark", str(path), cwd=project)
    assert done.status == ExitCode.FINE
    assert "my_bench.BM_b[] (not-measured): no memory" in done.err
    google_file(path, [failed])
    done = harness("import", "google-benchmark", str(path), cwd=project)
    assert (done.status, "No benchmark has a time" in done.err) == (ExitCode.NOT_MEASURED, True)


def imported(harness, project, path, *more):
    done = harness("import", "google-benchmark", str(path), *more, "--json", cwd=project)
    assert done.status == ExitCode.FINE, done.err
    [told] = done.json
    return told, read_run(project / told["record"]).run


def test_results_of_a_gpu_are_filed_under_the_card_that_the_file_names(harness, project):
    context = {
        "gpu_name": "NVIDIA RTX A4000",
        "gpu_sm_count": "48",
        "gpu_driver_version": "12.4",
        "gpu_uuid": "GPU-1",
    }
    path = google_file(project / "a.json", [google_entry("BM_k/manual_time")], **context)
    told, run = imported(harness, project, path)
    assert told["machine"] == "google-benchmark-nvidia-rtx-a4000"
    device = run.device
    assert (device.name, device.kind, device.spec) == ("NVIDIA RTX A4000", "gpu", "gpu")
    assert (device.driver, device.uuid, device.compute_units) == ("12.4", "GPU-1", 48)
    assert run.identity["gpu_driver_version"] == "12.4"
    assert told["problems"] == []


def test_several_cards_of_a_file_are_one_device_as_nobody_knows_which_measured(harness, project):
    cards = {"gpus": ["NVIDIA A100", "NVIDIA H100"]}
    path = google_file(project / "a.json", [google_entry("BM_k")], **cards)
    assert imported(harness, project, path)[1].device.name == "NVIDIA A100, NVIDIA H100"


def test_a_benchmark_that_times_itself_and_names_no_card_is_told(harness, project):
    path = google_file(project / "a.json", [google_entry("BM_k/manual_time")])
    told, run = imported(harness, project, path)
    assert run.device.spec == "cpu:0"
    [problem] = told["problems"]
    assert "--benchmark_context=gpu_name=NAME" in problem


@pytest.mark.parametrize(("ecc", "word"), [(True, "on"), (False, "off")])
def test_a_record_of_nvbench_has_the_cards_ecc_in_the_words_of_a_driver(harness, project, ecc, word):
    path = nvbench_file(project / "a.json", {"copy": [nvbench_state()]})
    content = json.loads(path.read_text())
    content["devices"][0]["ecc_state"] = ecc
    path.write_text(json.dumps(content))
    done = harness("import", "nvbench", str(path), "--json", cwd=project)
    assert read_run(project / done.json[0]["record"]).run.identity["ecc"] == word


def test_a_file_that_names_its_commit_is_kept_there(harness, project):
    first = git.resolve(project, "HEAD~1")
    path = google_file(project / "a.json", [google_entry("BM_k")], git_commit=first[:12])
    assert imported(harness, project, path)[1].source.commit == first
    done = harness("import", "google-benchmark", str(path), "--commit", "HEAD", cwd=project)
    assert (done.status, f"says that commit {first[:12]} was measured" in done.err) == (ExitCode.FINE, True)
    google_file(path, [google_entry("BM_k")], git_commit="0123456789")
    done = harness("import", "google-benchmark", str(path), cwd=project)
    assert (done.status, "0123456789" in done.err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_does_no_harm(harness, project, encoding):
    path = google_file(project / "a.json", [google_entry("BM_k")])
    path.write_bytes(path.read_text().encode(encoding))
    imported(harness, project, path)


@pytest.mark.parametrize(
    "harm", [lambda text: text[: len(text) // 2], lambda text: text.replace("200.0", "200,0")]
)
def test_what_is_cut_off_or_written_with_commas_is_told_as_damaged(harness, project, harm):
    path = google_file(project / "a.json", [google_entry("BM_k")])
    path.write_text(harm(path.read_text()))
    done = harness("import", "google-benchmark", str(path), cwd=project)
    assert (done.status, "is damaged" in done.err) == (ExitCode.NOT_MEASURED, True)


def test_half_a_character_in_a_name_ends_nothing(harness, project):
    path = google_file(project / "a.json", [google_entry("BM_\ud800", label="\ud800")], gpu_name="\ud800")
    assert imported(harness, project, path)[1].device.name == "?"


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_nothing_takes_is_a_failure_of_its_side(judge, time):
    def entries(side, usual, _pair):
        return [google_entry("BM_k", time if side == "head" else usual)]

    done = judge(google({"base": {}, "head": {}}, entries))
    said = only(done)
    assert (said["status"], said["reason"], said["side"]) == ("failed", "not-measured", "head")
    assert "which nothing takes" in said["message"]
    assert done.status == ExitCode.REGRESSION


# compare --with-command


def script(entries, **context):
    words = json.dumps(context)[1:-1]
    return google_script(entries).replace('"num_cpus": 2', f'"num_cpus": 2{", " * bool(words)}{words}')


@pytest.fixture
def compare(harness, tmp_path):
    """Compares two scripts that write what an executable would."""

    def run(base, head, *more):
        repository = make_repository(tmp_path / "p")
        for day, text in enumerate((base, head), 1):
            commit(repository, {"harness.toml": "", "day": str(day), "bench.sh": text}, day)
        command = ("--with-command", "sh bench.sh", "--json")
        return harness("compare", "HEAD~1", "HEAD", *command, *more, cwd=repository)

    return run


def compared(done):
    [told] = done.json
    [verdict] = told["verdicts"]
    return told["comparison"], verdict


@pytest.mark.parametrize(
    ("key", "base", "head"),
    [
        ("library_build_type", "release", "debug"),
        ("gpu_name", "NVIDIA RTX A4000", "NVIDIA RTX 3090"),
        ("gpu_driver", "12.4", "12.6"),
    ],
)
def test_executables_of_two_builds_or_cards_are_not_compared(compare, key, base, head):
    entries = [google_entry("copy", 100)], [google_entry("copy", 130)]
    done = compare(script(entries[0], **{key: base}), script(entries[1], **{key: head}), "--no-save")
    _, said = compared(done)
    assert (said["status"], said["reason"], done.status) == ("invalid", "other-machine", 3)
    assert f"{key} is {base} in base and {head} in head" in said["message"]
    assert "process 1" not in done.err  # nothing is measured that cannot be compared


def test_executables_that_name_a_card_are_of_that_card(compare):
    same = script([google_entry("copy", 100)], gpu_name="NVIDIA RTX A4000", tool="1")
    comparison, said = compared(compare(same, same.replace('"tool": "1"', '"tool": "2"')))
    assert (comparison["device"]["name"], comparison["device"]["kind"]) == ("NVIDIA RTX A4000", "gpu")
    assert (said["status"], comparison["settings"]["differences"]) == ("unchanged", "tool: 1 → 2")


def test_names_of_executables_that_occur_twice_are_told(compare):
    twice = script([google_entry("copy", 100, family_index=number) for number in (0, 1)])
    done = compare(twice, twice)
    assert len(done.json[0]["verdicts"]) == 2
    told = done.json[0]["comparison"]["settings"]["notes"]
    assert "copy is called copy_1_of_2 here: another benchmark of the file has the same name." in told


def test_a_later_run_on_another_card_is_no_regression(compare, monkeypatch):
    runs = []

    def run_once(executable, *given):
        runs.append(executable.side)
        found = executable_build.run_once(executable, *given)
        if len(runs) < 9 or executable.side == "base":
            return found
        machine = {**found.identity.machine, "gpu_name": "NVIDIA RTX 3090"}
        return replaced(found, machine)

    monkeypatch.setattr(compare_executables, "run_once", run_once)
    same = script([google_entry("copy", 100)], gpu_name="NVIDIA RTX A4000")
    _, said = compared(compare(same, same, "--no-save"))
    assert (said["status"], said["reason"]) == ("invalid", "other-machine")


def replaced(found, machine):
    return replace(found, identity=replace(found.identity, machine=machine))
