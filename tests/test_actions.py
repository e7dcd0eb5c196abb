"""The artifact actions that the workflows pin, run by Node: how results get from the cards to the branch, and
a report to the job that posts it.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.ci.github.artifacts import unpacked
from tests.actions_service import Artifacts, serving
from tests.pinned_actions import COMPOSITE, PINNED, Use
from tests.support import git, make_repository
from tests.workflow_steps import WORKFLOWS, Job


@pytest.fixture
def artifacts() -> Iterator[Artifacts]:
    with serving() as found:
        yield found
        assert found.unknown == []


@pytest.fixture
def use(bundled: Mapping[str, Path], artifacts: Artifacts) -> Use:
    return Use(bundled, artifacts)


def steps_using(job: Job, action: str) -> list[dict[str, Any]]:
    return [step for step in job.document["jobs"][job.name]["steps"] if action in step.get("uses", "")]


def archive(files: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)
    return made.getvalue()


def test_what_is_bundled_is_what_the_workflows_pin():
    used = {
        tuple(step["uses"].split("@"))
        for path in WORKFLOWS.glob("*.yml")
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        for step in job.get("steps", ())
        if step.get("uses", "").partition("@")[0] in {*PINNED, *COMPOSITE}
    }
    assert used == {*((action, pinned.commit) for action, pinned in PINNED.items()), *COMPOSITE.items()}


class History:
    """A night of the history: the cards' jobs, each on its machine, and the one that stores."""

    def __init__(self, root: Path, use: Use) -> None:
        self.root, self.use = root, use
        self.remote = root / "origin.git"
        git(root, "clone", "--quiet", "--bare", str(make_repository(root / "author")), str(self.remote))

    def job(self, name: str, folder: str, **known: str) -> Job:
        known = {
            "inputs.fleet || '.github/fleet.json'": "",
            "inputs.requirements || '.github/requirements'": "",
            "github.run_id": "4711",
            "github.token": "ghs_0123456789abcdefghij",
            "github.server_url": str(self.root),
            "github.repository": "origin.git",
            **known,
        }
        made = Job("perf-history.yml", name, self.root / folder, known)
        made.known = {**known, "runner.temp": str(made.temp)}
        return made

    def measure(self, card: str, results: Mapping[str, str]) -> None:
        """Upload the new results of a card."""
        job = self.job("measure", card, **{"matrix.card.name": card})
        (job.workspace / ".asv" / "results").mkdir(parents=True)
        (job.temp / "before").touch()
        os.utime(job.temp / "before", (0, 0))
        for name, text in results.items():
            path = job.workspace / ".asv" / "results" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert job.run("Pick what is new") == 0, job.said
        [step] = steps_using(job, "upload-artifact")
        done = self.use(job, step)
        assert done.returncode == 0, done.stdout + done.stderr

    def store(self, cards: int, *, measured: str = "success", harness: str = "") -> tuple[int, Job]:
        known = {"needs.plan.outputs.count": str(cards), "needs.measure.result": measured}
        job = self.job("store", "store", **known)
        if harness:
            (job.temp / "bin" / "harness").write_text(harness)
        git(job.workspace, "init", "--quiet")
        [step] = steps_using(job, "download-artifact")
        done = self.use(job, step)
        assert done.returncode == 0, done.stdout + done.stderr
        return job.run("Append to the branch"), job

    def stored(self) -> set[str]:
        return set(git(self.remote, "ls-tree", "-r", "--name-only", "perf-data").split())


@pytest.fixture
def history(tmp_path: Path, use: Use) -> History:
    return History(tmp_path, use)


BENCHMARKS = json.dumps({"version": 2})


def machine(card: str) -> dict[str, str]:
    return {
        f"{card}/machine.json": json.dumps({"machine": card, "version": 1}),
        "benchmarks.json": BENCHMARKS,
    }


RECORDING = '#!/usr/bin/env bash\nls "$4"\n'
"""In place of `harness`: what is in the folder that it is to store."""


def test_what_a_single_card_measured_is_stored(history):
    history.measure("card-1", machine("card-1"))
    status, job = history.store(1)
    assert status == 0, job.said
    assert history.stored() == {"benchmarks.json", "card-1/machine.json"}


def test_what_two_cards_measured_is_stored_though_there_is_nothing_new_on_one(history):
    history.measure("card-1", {})
    history.measure("card-2", machine("card-2"))
    status, job = history.store(2)
    assert status == 0, job.said
    assert history.stored() == {"benchmarks.json", "card-2/machine.json"}


def test_thirty_cards_are_stored_one_by_one(history, artifacts):
    for number in range(30):
        lines = f"./card-{number}/machine.json\n"
        artifacts.keep(
            f"perf-results-card-{number}",
            archive({f"card-{number}/card-{number}/machine.json": "{}", f"card-{number}.files": lines}),
        )
    artifacts.keep("perf-review-of-somebody", archive({"card-31.files": ""}))
    status, job = history.store(30, harness=RECORDING)
    assert (status, job.said[-1].split()) == (0, sorted(f"card-{number}" for number in range(30)))


@pytest.mark.parametrize(("measured", "expected"), [("success", 3), ("failure", 0)])
def test_a_card_whose_results_did_not_arrive_is_missed(history, artifacts, measured, expected):
    """A card whose own job failed is not reported again: that job is red already."""
    artifacts.keep(
        "perf-results-card-1", archive({"card-1/a/machine.json": "{}", "card-1.files": "./a/machine.json\n"})
    )
    status, job = history.store(2, measured=measured, harness=RECORDING)
    assert (status, "\na\n" in f"\n{job.said[-1]}") == (expected, True)
    assert ("Results of 1 of 2 cards arrived here" in job.said[-1]) == bool(expected)


def test_results_that_are_not_where_they_are_looked_for_are_no_success(history, artifacts):
    artifacts.keep("perf-results-card-1", archive({"card-1/machine.json": "{}", "benchmarks.json": "{}"}))
    status, job = history.store(1, measured="failure", harness=RECORDING)
    assert status == 3, job.said
    assert "Results of 0 of 1 cards arrived here" in job.said[-1]


def test_what_was_lost_on_the_way_is_not_stored(history, artifacts):
    lines = "./card-1/calibration.harness\n./card-1/machine.json\n"
    artifacts.keep(
        "perf-results-card-1", archive({"card-1/card-1/machine.json": "{}", "card-1.files": lines})
    )
    status, job = history.store(1, harness=RECORDING)
    assert status == 3
    assert "is not what its job handed on" in job.said[-1]
    assert "machine.json" not in job.said[-1]


def test_a_report_that_the_action_packed_is_read_back(history, artifacts, tmp_path):
    known = {"matrix.card.name": "card-1"}
    job = Job("perf-pr.yml", "measure", tmp_path / "pull-request", known)
    job.known = {**known, "runner.temp": str(job.temp)}
    (job.temp / "review" / "records").mkdir(parents=True)
    (job.temp / "review" / "review.json").write_text('{"a": 1}')
    (job.temp / "review" / "records" / "x.jsonl").write_text("{}")
    for step in steps_using(job, "upload-artifact"):
        done = history.use(job, step)
        assert done.returncode == 0, done.stdout + done.stderr
    assert unpacked(artifacts.kept["perf-review-card-1"].content, "perf-review-card-1") == b'{"a": 1}'
    with zipfile.ZipFile(io.BytesIO(artifacts.kept["perf-records-card-1"].content)) as zipped:
        assert zipped.namelist() == ["x.jsonl"]
