"""Several cards at once, as a user meets them: `--gpus` on cards that are alike, unlike, busy or lost."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from distributed import Nanny, Scheduler, SpecCluster

from harness.device.backends.null import devices
from harness.errors import DeviceError, ExitCode
from harness.judgement.noise import read_calibration
from harness.records.record_files import RunResult, read_comparison, read_run
from harness.records.types import Row, Run
from harness.report.terminal.progress import CompareProgress
from harness.run.pair_session import Purpose
from harness.run.run import Session, SessionSettings
from harness.run.several_cards import Card, CaseOfSuite, alike, assign, spread
from harness.suite.loader import load
from harness.suite.planning import plan
from harness.system import git
from tests.commits import BASE, HEAD, MS, SOURCE, files, make_project, takes
from tests.sampling import given, st
from tests.support import COMMAND, IMPORT_PATH, Done, Recorder, caller, commit, programs, write_null_script

TWO = ("--gpus", "null:0,null:1")
A, B = {"uuid": "NULL-a"}, {"uuid": "NULL-b"}
KERNELS = tuple(f"k{number}" for number in range(6))
CASES = [f"toy.{kernel}[n=64]" for kernel in KERNELS]
LOST = {f"toy.{kernel}": {"fault": "lost"} for kernel in KERNELS}


class Cards(Done):
    """A command on several cards."""

    @property
    def found(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Rows or verdicts of each card, by its UUID and by case."""
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for result in self.json:
            device = (result.get("run") or result.get("comparison"))["device"]
            rows = [each["row"] for each in result.get("rows", ())] or result.get("verdicts", ())
            for row in rows:
                assert row["case"] not in found.setdefault(device["uuid"], {})
                found[device["uuid"]][row["case"]] = row
        return found

    @property
    def statuses(self) -> Counter[str]:
        return Counter(row["status"] for rows in self.found.values() for row in rows.values())


@pytest.fixture(scope="module")
def first_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of six kernels, of which head makes the first slower."""
    sides = {kernel: (BASE, takes(1_030_000) if kernel == "k0" else HEAD) for kernel in KERNELS}
    return make_project(tmp_path_factory.mktemp("first") / "project", sides)


@pytest.fixture
def root(first_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that repository."""
    monkeypatch.setenv("HARNESS_LOCK_DIR", str(tmp_path))
    return Path(shutil.copytree(first_root, tmp_path / "project"))


@pytest.fixture
def harness(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, root: Path
) -> Callable[..., Cards]:
    monkeypatch.chdir(root)
    call: Callable[..., Cards] = caller(capsys, monkeypatch, Cards)
    return call


@pytest.fixture
def cards(null_script: Callable[[Mapping[str, Any]], Path]) -> Callable[..., Path]:
    """Gives the null device cards of these scripts."""
    return lambda *scripts: null_script({"cards": scripts})


@contextmanager
def held(folder: Path, uuid: str) -> Iterator[None]:
    """Have another process measure on a card."""
    with (folder / f"harness-{uuid}.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Like cards


def test_like_cards_share_the_cases_and_each_has_a_record(harness, cards, root):
    cards(A, B)
    done = harness("run", *TWO, "--json")
    assert done.status == ExitCode.FINE
    assert sorted(case for rows in done.found.values() for case in rows) == CASES
    assert [len(rows) for rows in done.found.values()] == [3, 3]
    records = [read_run(path) for path in sorted(root.glob("results/*/*.jsonl"))]
    assert {each.run.device.uuid: {row.case for row in each.rows} for each in records} == {
        uuid: set(rows) for uuid, rows in done.found.items()
    }


def test_both_sides_of_a_case_are_compared_on_one_card(harness, cards):
    slow = {f"toy.{kernel}": {"times_ns": [1.08 * MS]} for kernel in KERNELS[1:]}
    cards(A, B | slow)
    done = harness("compare", "HEAD~1", "HEAD", *TWO, "--json")
    assert done.status == ExitCode.REGRESSION
    assert sorted(case for rows in done.found.values() for case in rows) == CASES
    assert done.statuses == {"regression": 1, "unchanged": 5}
    times = {row["base"]["time_ns"] for row in done.found["NULL-b"].values()}
    assert 1.08 * MS in times, "the slower card has measured"


def test_what_one_commit_has_is_shared_too(harness, cards, root):
    cards(A, B)
    sides = dict.fromkeys(KERNELS, (BASE, HEAD))
    commit(root, files(1, sides | {"k0": (BASE, None), "k6": (None, HEAD)}), 3)
    done = harness("compare", "HEAD~1", "HEAD", *TWO, "--json")
    assert done.statuses == {"missing": 1, "new": 1, "identical": 5}


def test_each_card_has_a_calibration_of_all_cases(harness, cards, root):
    cards(A, B)
    done = harness("calibrate", *TWO, "--trials", "1", "--planted-trials", "0", "k0", "k1")
    assert done.status == ExitCode.FINE
    assert "null (null:0)" in done.out
    assert "null (null:1)" in done.out
    known = [read_calibration(folder) for folder in sorted((root / "results").iterdir())]
    assert [(each.uuid, sorted(each.cases)) for each in known if each] == [
        ("NULL-a", CASES[:2]),
        ("NULL-b", CASES[:2]),
    ]


def test_a_line_of_progress_names_its_card(harness, cards):
    cards(A, B)
    done = harness("run", *TWO, "--no-save", "--profile-wall")
    for spec in ("null:0", "null:1"):
        assert f"Device: {spec}, null" in done.err
        assert sum(line.startswith(f"{spec}: toy.k") for line in done.err.splitlines()) == 3
        assert f" s, {spec}: queue" in done.err


# Unlike cards


def test_each_of_unlike_cards_measures_all_cases(harness, cards):
    cards(A, B | {"name": "other"})
    done = harness("run", *TWO, "--json")
    assert done.status == ExitCode.FINE
    assert {uuid: sorted(rows) for uuid, rows in done.found.items()} == {"NULL-a": CASES, "NULL-b": CASES}


def card(name: str, uuid: str, *settings: str) -> Card:
    (device,) = devices()
    device = replace(device, name=name, uuid=uuid)
    return Card(device, (name, *settings), device.spec)


def test_cards_of_one_model_and_settings_are_alike():
    first, second = card("H100", "a", "power_limit_w 700"), card("H100", "b", "power_limit_w 700")
    other = card("H100", "c", "power_limit_w 500")
    assert alike([first, other, second]) == [(first, second), (other,)]


# Lost cards


def test_a_lost_card_leaves_its_cases_to_a_like_card(harness, cards):
    cards(A, B | LOST)
    done = harness("run", *TWO, "--json")
    assert done.status == ExitCode.NOT_MEASURED
    assert done.statuses == {"measured": 5, "failed": 1}
    [(case, row)] = done.found["NULL-b"].items()
    assert row["reason"] == "crashed"
    assert sorted([case, *done.found["NULL-a"]]) == CASES
    assert "null:1 measured no more: null (null:1) cannot be opened any more" in done.err
    assert "These cases went to null:0: " in done.err


def test_what_a_card_measured_before_it_was_lost_is_kept(harness, cards):
    cards(A, B)
    own = harness("run", *TWO, "--json", "--no-save").found["NULL-b"]
    last = max(own).partition("[")[0]
    cards(A, B | {last: {"fault": "lost"}})
    done = harness("run", *TWO, "--json")
    assert [row["status"] for row in done.found["NULL-b"].values()] == ["measured", "measured", "failed"]
    assert done.status == ExitCode.NOT_MEASURED


def test_a_comparison_on_a_lost_card_is_begun_anew_on_a_like_card(harness, cards):
    cards(A, B | LOST)
    done = harness("compare", "HEAD~1", "HEAD", *TWO, "--json")
    assert len(done.found["NULL-b"]) == 1
    assert sorted([*done.found["NULL-b"], *done.found["NULL-a"]]) == CASES
    assert done.statuses["failed"] == 1
    assert done.statuses["unchanged"] >= 4


def test_without_a_like_card_the_cases_are_not_measured(harness, cards, root):
    commit(
        root, {"kernels/two/suite.py": (root / "kernels/toy/suite.py").read_text().replace("toy", "two")}, 3
    )
    for kernel in KERNELS:
        text = SOURCE.format(said=BASE.said, name=kernel)
        (root / f"kernels/two/{kernel}.cu").write_text(text)
    cards(A, B | {"name": "other"} | LOST)
    done = harness("run", *TWO, "--json")
    assert done.status == ExitCode.NOT_MEASURED
    assert len(done.found["NULL-a"]) == 12
    lost = [row["reason"] for row in done.found["NULL-b"].values()]
    assert lost == ["crashed", *["no-device"] * 5]
    assert "These cases were not measured: " in done.err
    assert "two.k5[n=64]" in done.err, "a suite that the card has not begun"


def test_a_card_that_never_opens_is_told_once(harness, cards):
    script = cards(A, B)
    Path(f"{script}.null:1.lost").touch()
    done = harness("run", *TWO, "--json")
    assert done.status == ExitCode.FINE
    assert sorted(done.found["NULL-a"]) == CASES
    assert done.err.count("null:1 measured no more: null:1 (null) was lost.") == 1
    Path(f"{script}.null:0.lost").touch()
    refused = harness("run", *TWO)
    assert "was lost" in refused.failed_with(ExitCode.NOT_MEASURED)


def test_an_unlike_card_that_never_opens_costs_its_cases(harness, cards):
    script = cards(A, B | {"name": "other"})
    Path(f"{script}.null:1.lost").touch()
    done = harness("run", *TWO, "--json")
    assert sorted(done.found["NULL-a"]) == CASES
    assert "null:1 measured no more" in done.failed_with(ExitCode.NOT_MEASURED)
    assert f"These cases were not measured: {', '.join(CASES)}." in done.err


@pytest.mark.parametrize("name", "abcdefgh")
def test_a_case_is_measured_as_long_as_a_card_is_left(name):
    """Whichever of the idle cards gets it first, and is lost too, while the other one still waits."""
    asked: list[str] = []

    def measure(card: Card, _suite: int, cases: frozenset[str]) -> RunResult:
        if name in cases:
            asked.append(card.label)
            if len(asked) < 3:
                raise DeviceError("lost")
        return RunResult(cast("Run", None), (), None)

    three = [card("H100", f"GPU-{number}") for number in range(3)]
    found = spread(three, lambda _: [CaseOfSuite(0, name, ("64", False))], measure)
    assert len(asked) == 3
    assert [len(lost.heirs) for lost in found.lost] in ([1, 2], [2, 1])
    assert len(found.results) == 1


def test_nothing_more_is_asked_of_a_lost_device(cards, root):
    """It may open again later: whoever waits for it in each case waits long."""
    script = cards(A | LOST)

    class Reviving(Recorder):
        def finished(self, row: Row) -> None:
            super().finished(row)
            if row.reason == "no-device":
                Path(f"{script}.null:0.lost").unlink(missing_ok=True)

    loaded = load(root / "kernels/toy")
    with Session(loaded, SessionSettings(device="null:0"), Reviving()) as session:
        result = session.run(plan(loaded.suite, quick=True))
    assert [row.reason for row in result.rows] == ["crashed", *["no-device"] * 5]


# Busy cards


def test_a_busy_card_is_waited_for(harness, cards, tmp_path):
    cards(A, B)
    holder = ExitStack()
    holder.enter_context(held(tmp_path, "NULL-b"))
    threading.Timer(1.0, holder.close).start()
    done = harness("run", *TWO, "--json")
    assert "null:1: null:1 (null) is being measured by another process: waiting." in done.err
    assert done.status == ExitCode.FINE
    assert [len(rows) for rows in done.found.values()] == [3, 3]


def test_a_busy_card_is_left_out_where_nobody_waits(harness, cards, tmp_path):
    cards(A, B)
    with held(tmp_path, "NULL-b"):
        done = harness("run", *TWO, "--json", "--no-wait")
        assert done.status == ExitCode.FINE
        assert sorted(done.found["NULL-a"]) == CASES
        assert "null:1 measured no more: null:1 (null) is being measured by another process." in done.err
        with held(tmp_path, "NULL-a"):
            refused = harness("run", *TWO, "--no-wait")
    assert "is being measured by" in refused.failed_with(ExitCode.NOT_MEASURED)


# A Dask cluster


@pytest.fixture
def cluster(root: Path, tmp_path: Path, forked_dask_workers: None) -> Iterator[SpecCluster]:
    """A cluster of two workers, each with a card, which do not see the repository."""
    script = write_null_script(tmp_path / "cluster.json", {"cards": [A, B]})
    shared = {"HARNESS_NULL_SCRIPT": script, "HARNESS_LOCK_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    workers = {
        number: {
            "cls": Nanny,
            "options": {
                "env": {**shared, "HARNESS_DEVICE": f"null:{number}"},
                "resources": {"GPU": 1},
            },
        }
        for number in range(2)
    }
    local = {"host": "127.0.0.1", "dashboard": False}
    scheduler = {"cls": Scheduler, "options": local}
    with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL) as found:
        yield found


def test_the_cards_of_a_cluster_share_the_cases_of_one_that_vanishes(harness, cluster, root, monkeypatch):
    there = ("--scheduler", cluster.scheduler_address)
    done = harness("calibrate", *there, "--trials", "1", "--planted-trials", "0", "k0")
    assert done.status == ExitCode.FINE
    known = [read_calibration(folder) for folder in sorted((root / "results").iterdir())]
    assert [(each.uuid, [*each.cases]) for each in known if each] == [
        ("NULL-a", CASES[:1]),
        ("NULL-b", CASES[:1]),
    ]

    class Killing(CompareProgress):
        def process(self, number: int, cases: int, purpose: Purpose) -> None:
            super().process(number, cases, purpose)
            if self.card == "null:1 of 1":
                cluster.workers[1].auto_restart = False
                os.kill(cluster.workers[1].pid, signal.SIGKILL)

    monkeypatch.setattr("harness.report.terminal.progress.CompareProgress", Killing)
    monkeypatch.setattr("harness.run.sweep.cluster.CHECK_S", 0.1)
    done = harness("compare", "HEAD~1", "HEAD", "k0", "k1", "k2", *there, "--json")
    assert done.status == ExitCode.REGRESSION
    assert sorted(done.found["NULL-a"]) == CASES[:3]
    assert "null:1 of 1 measured no more: The Dask worker of null:1 of 1 was lost." in done.err
    assert "These cases went to null:0 of 0: toy.k" in done.err
    head = git.resolve(root, "HEAD")
    for result in done.json:
        stored = read_comparison(root / result["record"])
        assert stored.comparison.head.commit == head
        assert stored.comparison.calibrated_at


# The end


def interrupted(root: Path, ending: signal.Signals, lines: int, *command: str) -> Cards:
    """End a command once null:0 has written so many lines of progress."""
    with programs.popen(
        [sys.executable, "-c", COMMAND, "-1", *command, *TWO, "--json"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = ""
            assert process.stderr is not None
            while said.count("null:0: ") < lines:
                said += process.stderr.readline()
            process.send_signal(ending)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == ExitCode.INTERRUPTED
    done = Cards(process.returncode, out, said)
    assert any(not result["complete"] for result in done.json)
    return done


HANG = {case: {"fault": "hang"} for case in LOST}


def test_an_interrupted_run_keeps_what_is_finished(cards, root):
    cards(A, B | HANG)
    done = interrupted(root, signal.SIGTERM, 3, "run")
    assert done.statuses == {"measured": 3}
    assert {read_run(path).interrupted for path in root.glob("results/*/*.jsonl")} == {True, False}


def test_an_interrupted_comparison_keeps_what_is_finished(cards, root):
    cards(A, B | HANG)
    done = interrupted(root, signal.SIGINT, 2, "compare", "HEAD~1", "HEAD")
    assert sorted(case for rows in done.found.values() for case in rows) == CASES
    assert {row["reason"] for row in done.found["NULL-b"].values()} == {"interrupted"}


def test_waiting_for_a_card_can_be_interrupted(cards, root, tmp_path):
    cards(A, B)
    with held(tmp_path, "NULL-b"):
        done = interrupted(root, signal.SIGINT, 3, "run")
    assert done.statuses == {"measured": 3}


# What makes no sense


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--gpus", "null:0", "--device", "null"], "--gpus and --device exclude each other"),
        (["run", "--gpus", "null:0,"], "Unknown cards 'null:0,': expected 'all', or cards such as 0,1"),
        (["run", "--gpus", "null:0,null"], "hold null:0 twice. Name each card once."),
        (["run", "--gpus", "what:0"], "Unknown device 'what:0'"),
        (["run", "--gpus", "null:0,null:1"], "(null) are the same hardware"),
        (["run", *TWO, "--script", "python x.py"], "a script runs on one device"),
        (["compare", "HEAD~1", *TWO, "--with-command", "./x"], "--gpus has no effect on executables"),
    ],
)
def test_what_makes_no_sense_is_said(harness, cards, words, told):
    cards(A, A)
    assert told in harness(*words).failed_with(ExitCode.USAGE)


def test_a_card_that_is_not_there_is_named(harness, cards):
    cards(A)
    assert "There is no device null:1." in harness("run", *TWO).failed_with(ExitCode.NOT_MEASURED)


# Which card gets a case


LIKE = st.tuples(st.sampled_from(["64", "128"]), st.booleans())
NAMES = st.dictionaries(st.text("abcdefg.", min_size=1, max_size=6), LIKE, max_size=40)


def given_to(names: Mapping[str, tuple[str, bool]], cards: list[Card]) -> dict[str, str | None]:
    cases = [CaseOfSuite(0, name, like) for name, like in names.items()]
    assigned = assign(cases, cards)
    return {case.id: card.device.uuid for card, of_card in assigned.items() for case in of_card}


@given(NAMES, st.integers(1, 5))
def test_each_card_gets_its_share_of_similar_cases(names, count):
    cards = [card("H100", f"GPU-{number}") for number in range(count)]
    found = given_to(names, cards)
    assert found.keys() == names.keys()
    for like in set(names.values()):
        of_like = [found[name] for name in names if names[name] == like]
        assert max(Counter(of_like).values()) <= -(-len(of_like) // count)
    assert found == given_to(dict(reversed(names.items())), cards[::-1])


def test_a_new_case_moves_few_others():
    names = {f"toy.kernel{number}": ("64", False) for number in range(40)}
    cards = [card("H100", f"GPU-{number}") for number in range(4)]
    moved = 0
    for more, fewer in pairwise([given_to(dict([*names.items()][: 40 - n]), cards) for n in range(20)]):
        moved += sum(more[name] != fewer[name] for name in fewer)
    assert moved < 20 * 5
