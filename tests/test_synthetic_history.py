"""tests/synthetic_history.py writes files that asv and the store read, with the events that it names.
scripts/bench_history.py times their publication.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("asv")

from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.machine import iter_machine_files
from asv.results import Results, iter_results
from asv.util import write_json
from asv_runner.statistics import compute_stats

from harness.history.row_summary import summary_of
from harness.integrations.asv.tracks import TRACKS
from harness.records.record_files import read_run
from scripts import bench_history
from tests import synthetic_history as synthetic
from tests.support import IMPORT_PATH, git, run_forked
from tests.synthetic_history import (
    CARDS,
    Absent,
    DriverChange,
    Failed,
    History,
    Missing,
    Step,
    Suite,
    Throttle,
    numbers,
    show,
    write,
)

SMALL = Suite(kernels=("naive", "tiled"), sizes=(1024, 2048))
COPY = Suite(name="copy", headline="GB/s", kernels=("copy",), sizes=(2**20,))
CARD = CARDS[0]


def small(**changes):
    return History(**{"commits": 12, "suites": (SMALL,), "noise": 0.002, **changes})


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The history to look at; not to be changed."""
    return write(show(), tmp_path_factory.mktemp("shown"))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A short history with asv's pages, a failure and commits that were not measured; not to be changed."""
    history = small(
        cards=CARDS[:2],
        suites=(SMALL, COPY),
        tracks=("gflops", "gbytes_per_s"),
        events=(Failed(case="naive", start=3, stop=5), Missing(card=CARDS[1].name, start=7, stop=9)),
    )
    written = write(history, tmp_path_factory.mktemp("published"))
    done = publish(written)
    assert done.returncode == 0, done.stdout
    return written


def publish(written):
    return run_forked(
        [sys.executable, "-m", "asv", "publish", "--no-pull"],
        cwd=written.repository,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
    )


def conf_of(written):
    conf = Config.load(str(written.conf))
    conf.results_dir = str(written.results)
    return conf


def content(path):
    return json.loads(path.read_text(encoding="utf-8"))


def files_below(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def graph(written, track, machine):
    """Points of a graph of asv's: [revision, one value a case]."""
    [path] = (written.repository / ".asv" / "html" / "graphs").rglob(f"machine-{machine}/**/{track}.json")
    return content(path)


def test_asv_reads_every_result_and_every_benchmark(shown):
    written = shown
    history = written.history
    results = list(iter_results(str(written.results)))
    expected = sum(int(numbers(history, card).measured.sum()) for card in history.cards)
    assert len(results) == expected == 120 + 116
    assert {result.commit_hash for result in results} == set(written.commits)
    benchmarks = Benchmarks.load(conf_of(written))
    assert all(result.get_result_keys(benchmarks) == set(benchmarks) for result in results)
    for benchmark in benchmarks.values():
        track = TRACKS[benchmark["name"].rpartition(".")[2]]
        assert (benchmark["unit"], benchmark["direction"]) == (track.unit, track.direction)


def test_a_file_is_what_asv_writes_itself(shown, tmp_path):
    written = shown
    for index in (0, 31, 50, 90):  # a failure, a wrong result and a skipped case among them
        for card in written.history.cards:
            path = written.result(index, card)
            (tmp_path / card.machine).mkdir(exist_ok=True)
            Results.load(str(path)).save(str(tmp_path))
            assert (tmp_path / card.machine / path.name).read_bytes() == path.read_bytes()
    path = written.results / "benchmarks.json"
    write_json(str(tmp_path / path.name), content(path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    path = written.results / CARD.machine / "machine.json"
    write_json(str(tmp_path / path.name), content(path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_card_is_a_machine_under_its_newest_driver(shown):
    written = shown
    entries = {entry["gpu"]: entry for entry in map(content, map(Path, iter_machine_files(written.results)))}
    assert set(entries) == {card.name for card in written.history.cards}
    assert entries["NVIDIA A100-SXM4-80GB"]["driver"] == "590.44.01"
    assert entries["NVIDIA H200"]["driver"] == CARD.driver
    for entry in entries.values():
        params = content(next((written.results / entry["machine"]).glob("*-checkout-pyany.json")))["params"]
        assert "driver" not in params  # it would cut the history in two
        assert all(entry[key] == value for key, value in params.items() if key != "python")


def test_asv_publishes_a_graph_of_each_track_with_the_numbers_that_were_meant(published):
    written = published
    for card in written.history.cards:
        truth = numbers(written.history, card)
        for suite, track in (
            (written.history.suites[0], "gflops"),
            (written.history.suites[1], "gbytes_per_s"),
        ):
            points = graph(written, f"{suite.benchmark}.track_{track}", card.machine)
            measured = np.flatnonzero(truth.measured)
            assert [revision for revision, _ in points] == measured.tolist()
            columns = written.history.columns(suite)
            for revision, values in points:
                good = truth.status[revision, columns] == synthetic.OK
                assert [value is not None for value in values] == good.tolist()
                found = np.array(values, dtype=float)[good]
                # asv keeps five digits in its graphs.
                assert found == pytest.approx(truth.rate[revision, columns][good], rel=1e-4)


def test_the_store_reads_records_that_agree_with_the_files_of_asv(shown):
    written = shown
    history = written.history
    for card in history.cards:
        truth = numbers(history, card)
        records = [read_run(path) for path in written.records(card)]
        assert len(records) == 2 * int(truth.measured.sum())
        for stored in records[::7]:
            index = written.commits.index(stored.run.source.commit)
            suite = next(suite for suite in history.suites if suite.name == stored.run.source.suite)
            assert not stored.interrupted
            assert stored.run.device.driver == stored.run.identity["driver"] == truth.drivers[index]
            rows = content(written.result(index, card))["results"]
            for track in ("track_gflops", "track_gbytes_per_s", "track_time_ms", "track_sm_clock_mhz"):
                if f"{suite.benchmark}.{track}" in rows:
                    check_track(stored, rows[f"{suite.benchmark}.{track}"], track)


def check_track(stored, row, track):
    """Check that asv's file holds the values that our plugin makes of the record."""
    for column, made in enumerate(stored.rows):
        value = (row[0] or [None] * len(stored.rows))[column]
        if made.status == "skipped":
            assert math.isnan(value)
        elif made.status == "failed":
            assert value is None
        else:
            answer = TRACKS[track].read(made)
            if not isinstance(answer, tuple):
                assert value == pytest.approx(answer, rel=1e-9)
                continue
            result, stats = compute_stats(list(answer), 1)
            assert value == pytest.approx(result, rel=1e-9)
            names = ("ci_99_a", "ci_99_b", "q_25", "q_75", "number", "repeat")
            found = [cells[column] for cells in row[5:11]]
            assert found == pytest.approx([stats[name] for name in names], rel=1e-4)


def test_a_wrong_result_counts_as_zero_verified_and_a_failure_as_nothing(tmp_path):
    events = (
        Failed(case="naive", start=3, stop=4, reason="wrong-result"),
        Failed(case="naive", start=5, stop=6),
        Failed(case=None, start=7, stop=8),
        Absent(case="tiled 1024", start=9),
    )
    written = write(small(events=events, records=True), tmp_path)
    rows = [content(written.result(index))["results"] for index in range(12)]
    verified = [row["suites.Matmul.track_verified"][0] for row in rows]
    assert verified[3] == [0, 0, 1, 1]
    assert verified[5] == [None, None, 1, 1]
    assert verified[7] is None
    assert verified[8] == [1, 1, 1, 1]
    assert [math.isnan(value) for value in verified[9]] == [False, False, True, False]
    gflops = rows[3]["suites.Matmul.track_gflops"]
    assert gflops[0][:2] == [None, None]
    assert gflops[5][:2] == [None, None]
    assert len(rows[7]["suites.Matmul.track_gflops"]) == 4  # nothing after the time it started, as in asv
    statuses = [[row.reason for row in read_run(path).rows] for path in written.records(CARD)]
    assert statuses[3] == ["wrong-result", "wrong-result", "", ""]
    assert statuses[5] == ["build-failed", "build-failed", "", ""]
    assert statuses[9] == ["", "", "launch-refused", ""]


def test_the_same_history_gives_the_same_bytes_and_another_seed_does_not(tmp_path):
    history = small(records=True, hostile=True, merge_every=5, tag_every=4)
    first, second = (write(history, tmp_path / name) for name in ("first", "second"))
    other = write(replace(history, seed=2), tmp_path / "other")
    assert first.commits == second.commits
    assert files_below(first.results) == files_below(second.results)
    assert first.commits != other.commits
    assert not (numbers(history, CARD).rate == numbers(other.history, CARD).rate).any()


def test_a_step_changes_the_rate_of_its_case_alone_and_the_source_of_its_kernel(tmp_path):
    step = Step(case="naive 1024", at=5, until=9, effect=-0.10, registers=6)
    plain = numbers(small(), CARD)
    stepped = numbers(small(events=(step,)), CARD)
    ratio = stepped.rate / plain.rate
    assert ratio[5:9, 0] == pytest.approx(0.90)
    ratio[5:9, 0] = 1
    assert ratio == pytest.approx(1)
    assert (stepped.registers - plain.registers)[:, 0].tolist() == [0] * 5 + [6] * 4 + [0] * 3
    written = write(small(events=(step,), records=True), tmp_path)
    changed = git(written.repository, "show", "--format=", "--name-only", written.commits[5])
    assert "kernels/matmul/naive.cu" in changed.splitlines()
    hashes = [read_run(path).rows[0].source_sha256 for path in written.records(CARD)]
    assert hashes[4] != hashes[5]
    assert hashes[8] != hashes[9]


def test_a_source_hash_changes_exactly_where_git_says_that_the_source_did(tmp_path):
    written = write(small(commits=40, records=True), tmp_path)
    path = SMALL.source("naive")
    blobs = [git(written.repository, "rev-parse", f"{commit}:{path}") for commit in written.commits]
    rows = [read_run(record).rows[0] for record in written.records(CARD)]
    pairs = set(zip(blobs, (row.source_sha256 for row in rows), strict=True))
    assert len(pairs) == len(set(blobs)) == len({row.source_sha256 for row in rows}) > 1


def test_a_throttled_stretch_slows_what_the_clock_limits_and_leaves_cycles_as_they_are():
    throttle = Throttle(card=CARD.name, start=4, stop=8, clock=-0.08)
    history = small(suites=(SMALL, COPY))
    plain = numbers(history, CARD)
    hot = numbers(replace(history, events=(throttle,)), CARD)
    slowed = hot.rate / plain.rate
    assert slowed[4:8, :4] == pytest.approx(0.92)
    assert slowed[4:8, 4] == pytest.approx(1)
    assert np.delete(slowed, range(4, 8), axis=0) == pytest.approx(1)
    assert hot.sm_clock_mhz[4:8] / plain.sm_clock_mhz[4:8] == pytest.approx(0.92, abs=1e-3)
    cycles = (hot.time_ns * hot.sm_clock_mhz) / (plain.time_ns * plain.sm_clock_mhz)
    assert cycles[:, :4] == pytest.approx(1, abs=1e-3)
    assert (hot.temperature_c - plain.temperature_c)[4:8].min() > 10
    assert (hot.power_w < plain.power_w)[4:8].all()


def test_what_throttles_is_told_by_the_records(tmp_path):
    events = (
        Throttle(card=None, start=2, stop=3),
        Throttle(card=None, start=4, stop=5, clock=-0.05, cause="power"),
    )
    written = write(small(events=events, records=True), tmp_path)
    stored = [read_run(path) for path in written.records(CARD)]
    reasons = [summary_of(run.rows[0], run.run).clock_event_reasons for run in stored]
    assert reasons[1:5] == [(), ("sw_thermal",), (), ("sw_power_cap",)]
    telemetry = stored[4].rows[0].telemetry
    assert telemetry
    assert telemetry.before.throttle_ns
    assert telemetry.after.throttle_ns
    assert telemetry.after.throttle_ns["sw_power_cap"] > telemetry.before.throttle_ns["sw_power_cap"]
    assert summary_of(stored[4].rows[0], stored[4].run).power_w == pytest.approx(0.995 * CARD.power_limit_w)


def test_a_change_of_driver_changes_one_card_and_cuts_no_history_unless_asked_to(tmp_path):
    change = DriverChange(card=CARD.machine, at=6, driver="590.1", effect=0.03)
    history = small(cards=CARDS[:2], events=(change,))
    mine, others = (
        numbers(history, card).rate / numbers(replace(history, events=()), card).rate for card in CARDS[:2]
    )
    assert mine[:6] == pytest.approx(1)
    assert mine[6:] == pytest.approx(1.03)
    assert others == pytest.approx(1)
    split = write(replace(history, driver_in_params=True), tmp_path)
    drivers = [content(split.result(index))["params"]["driver"] for index in (5, 6)]
    assert drivers == [CARD.driver, "590.1"]


def test_a_card_that_was_not_measured_left_neither_file_nor_record(tmp_path):
    events = (Missing(card=CARD.name, start=2, stop=5),)
    written = write(small(cards=CARDS[:2], events=events, records=True), tmp_path)
    for card, measured in ((CARD, [0, 1, *range(5, 12)]), (CARDS[1], [*range(12)])):
        assert [index for index in range(12) if written.result(index, card).exists()] == measured
        commits = [read_run(path).run.source.commit for path in written.records(card)]
        assert commits == [written.commits[index] for index in measured]


def test_an_event_of_a_case_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="naive 512"):
        numbers(small(events=(Step(case="naive 512", at=1, effect=0.1),)), CARD)


@pytest.mark.parametrize("merge_every", [0, 4])
def test_the_repository_is_the_history_that_was_asked_for(tmp_path, merge_every):
    written = write(small(merge_every=merge_every, tag_every=5), tmp_path)
    repository = written.repository
    assert git(repository, "rev-list", "--first-parent", "--reverse", "HEAD").split() == list(written.commits)
    assert git(repository, "status", "--short") == ""
    assert git(repository, "tag").split() == ["v0.1", "v0.2"]
    assert git(repository, "rev-parse", "v0.2") == written.commits[9]
    assert len(git(repository, "rev-list", "--merges", "HEAD").split()) == (3 if merge_every else 0)
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        "refs/tags/v0.1",
        "refs/tags/v0.2",
    ]
    dates = [content(written.result(index))["date"] for index in range(12)]
    assert dates == [1000 * int(git(repository, "log", "-1", "--format=%at", c)) for c in written.commits]
    assert dates == sorted(dates)


def test_hostile_texts_arrive_in_git_whole(tmp_path):
    written = write(small(commits=2 * (len(synthetic.HOSTILE_TEXTS) + 3), hostile=True), tmp_path)
    raw = subprocess.run(
        ["git", "log", "--reverse", "--format=%an%x00%ae%x00%B%x01%x01"],
        cwd=written.repository,
        check=True,
        capture_output=True,
    ).stdout
    for text in synthetic.HOSTILE_TEXTS:
        assert text.encode() in raw
    assert b"caf\xe9" in raw
    assert b"\x00\n\x01\x01" in raw or b"\x00\x01\x01" in raw  # a commit that says nothing
    assert b'x" onmouseover="alert(1)@example.invalid' in raw
    assert publish(written).returncode == 0


@pytest.mark.parametrize("cards", [None, [CARDS[1]]])
def test_a_history_that_was_added_to_is_the_longer_history(tmp_path, cards):
    events = (Step(case="naive", at=11, effect=0.1), Throttle(card=None, start=10, stop=20))
    history = small(commits=10, cards=CARDS[:2], events=events, records=True, merge_every=4, tag_every=4)
    added = synthetic.extend(write(history, tmp_path / "grown"), cards, commits=3)
    whole = write(replace(history, commits=13), tmp_path / "whole")
    assert added.commits == whole.commits
    assert git(added.repository, "rev-parse", "HEAD") == whole.commits[-1]
    grown, full = files_below(added.results), files_below(whole.results)
    unmeasured = {commit[:8] for commit in whole.commits[10:]} if cards else set()
    for path in [path for path in full if path.parts[0] == CARD.machine]:
        if path.name[:8] in unmeasured or any(f"-{commit}-" in path.name for commit in unmeasured):
            del full[path]
    assert grown == full


def test_a_history_with_nothing_in_it_is_still_a_project(tmp_path):
    empty = write(small(commits=0), tmp_path / "empty")
    assert empty.commits == ()
    assert content(empty.conf)["project"] == "synthetic"
    assert list(iter_results(str(empty.results))) == []
    unmeasured = write(small(cards=()), tmp_path / "unmeasured")
    assert list(iter_results(str(unmeasured.results))) == []
    assert publish(unmeasured).returncode == 0


def test_the_command_writes_a_history_and_leaves_a_full_folder_alone(tmp_path, capsys):
    folder = tmp_path / "new"
    asked = [str(folder), "--commits", "5", "--cases", "4", "--cards", "2", "--records", "--hostile"]
    assert synthetic.main(asked) == 0
    assert "5 commits, 4 cases, 2 cards" in capsys.readouterr().out
    assert len(list(folder.rglob("*-checkout-pyany.json"))) == 10
    assert len(list(folder.rglob("*.jsonl"))) == 10
    with pytest.raises(SystemExit):
        synthetic.main(asked)
    assert "is not empty" in capsys.readouterr().err


def test_the_bench_publishes_at_every_step_and_again_from_a_history_that_it_kept(tmp_path, capsys):
    sizes = ["--commits", "8", "--cases", "4", "--cards", "2"]
    asked = [*sizes, "--only", "asv", "--keep", str(tmp_path / "kept"), "--json", str(tmp_path / "figures")]
    assert bench_history.main(asked) == 0
    first = content(tmp_path / "figures")["figures"]
    assert [figure["step"] for figure in first] == list(bench_history.STEPS)
    assert [figure["commits"] for figure in first] == [8, 8, 9, 10]
    for figure in first:
        assert figure["usage"]["status"] == 0
        assert figure["html_files"] > 20
    name = "suites.Matmul.track_gflops"
    html = tmp_path / "kept" / ".asv" / "html-of-asv"
    lengths = [len(content(path)) for path in sorted((html / "graphs").rglob(f"machine-*/**/{name}.json"))]
    assert sorted(lengths) == [9, 10]  # the second card has one commit less
    assert bench_history.main(asked) == 0
    assert [figure["commits"] for figure in content(tmp_path / "figures")["figures"]] == [10, 10, 11, 12]
    with pytest.raises(SystemExit, match="other sizes"):
        bench_history.main([*asked, "--cases", "6"])
    assert "from nothing" in capsys.readouterr().out


def test_memory_of_a_child_of_the_command_counts(tmp_path):
    child = "x = bytearray(200_000_000); import time; time.sleep(1.5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); sys.exit(3)"
    usage = bench_history.measure([sys.executable, "-c", parent], tmp_path, tmp_path / "log")
    assert usage.status == 3
    assert 200e6 < usage.rss_bytes < 400e6
    assert usage.pss_bytes is None or 200e6 < usage.pss_bytes <= usage.rss_bytes
