"""From the comment on a pull request to its report, and from the merge to the results and the pages:
every job of the workflows in turn, with the actions' own JavaScript, the null device in place of cards, and
loopback services in place of GitHub. What is left out: installing, and the two actions that deploy pages.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.actions_service import Artifacts, serving
from tests.commits import takes
from tests.github_server import (
    ACTIONS,
    APP_TOKEN,
    REPOSITORY,
    RUN,
    TOKEN,
    Artifact,
    GitHub,
    comment_event,
    run_event,
)
from tests.github_server import serving as serving_github
from tests.pinned_actions import COMPOSITE, PINNED, Use
from tests.support import ROOT, commit, git, make_repository, write_null_script
from tests.test_audit import WELL
from tests.test_pull_request import EXPRESSIONS, STEADY, Play
from tests.workflow_steps import WORKFLOWS, Job

pytest.importorskip("asv")

NUMBER = 12
CARDS = 2
"""Number of cards. test_actions.py tests a single card, whose artifact is unpacked in another place."""
SERVER = (
    "https://github.com"  # elsewhere the artifact actions take it for GitHub Enterprise Server, and refuse
)
# As actions/checkout leaves it for later steps, beside the workspace, where it is not told otherwise.
TOKEN_FORMS = (TOKEN.encode(), base64.b64encode(f"x-access-token:{TOKEN}".encode()))
BENCHMARKS = """\
from harness.integrations.asv import tracks


class Toy(tracks.SuiteTracks):
    folder = "kernels/toy"

    def setup_cache(self):
        return self.measure()
"""
PROJECT = {
    "asv.conf.json": (ROOT / "asv.conf.json").read_text(encoding="utf-8"),
    "benchmarks/__init__.py": "",
    "benchmarks/suites.py": BENCHMARKS,
    ".gitignore": ".asv/\n__pycache__/\n",
}
INPUTS = {
    "inputs.calibrate": "false",
    "inputs.commits || 20": "2",
    "inputs.retry": "false",
    "github.repository": REPOSITORY,
    "github.run_id": str(RUN),
    "github.server_url": SERVER,
    "github.token": TOKEN,
}


class Way:
    """A repository, its fleet, and the machines that its workflows run on."""

    def __init__(self, root: Path, bundled: Mapping[str, Path], github: GitHub) -> None:
        self.root, self.bundled = root, bundled
        self.origin = root / "there" / REPOSITORY
        self.origin.parent.mkdir(parents=True)
        self.author = make_repository(root / "author")
        fleet = {
            "cards": [
                {"name": f"card-{number}", "labels": ["self-hosted"], "device": "null", "sizes": ["64"]}
                for number in range(CARDS)
            ]
        }
        first = {**PROJECT, **Play.tree(STEADY), ".github/fleet.json": json.dumps(fleet)}
        commit(self.author, first, 1)
        git(root, "clone", "--quiet", "--bare", str(self.author), str(self.origin))
        # As GitHub's, it gives out every commit that it has, and keeps a pull request where no clone looks.
        git(self.origin, "config", "uploadpack.allowAnySHA1InWant", "true")
        git(self.author, "remote", "add", "origin", str(self.origin))
        settings = root / "gitconfig"
        settings.write_text(f'[url "file://{root}/there/"]\n\tinsteadOf = {SERVER}/\n', encoding="utf-8")
        self.there = {
            "GIT_CONFIG_GLOBAL": str(settings),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": str(RUN),
            "GITHUB_SERVER_URL": SERVER,
        }
        self.machines = 0
        self.host(github)

    def host(self, github: GitHub, key: str = "") -> None:
        """From now on the repository lies there, with an App of its own where there is a key."""
        self.github, self.key = github, key
        self.there["GITHUB_API_URL"] = github.url
        self.follow()

    def follow(self) -> str:
        """Bring GitHub's knowledge of the branches up to date, and return the tip of main."""
        tip = git(self.origin, "rev-parse", "main")
        self.github.branches["main"] = self.github.merge_bases["main"] = tip
        return tip

    def propose(self, changes: Mapping[str, str]) -> str:
        git(self.author, "checkout", "--quiet", "-b", "topic")
        head = commit(self.author, changes, 2)
        git(self.author, "push", "--quiet", "origin", f"{head}:refs/pull/{NUMBER}/head")
        return head

    def merge(self) -> str:
        git(self.author, "push", "--quiet", "origin", "topic:main")
        return self.follow()

    def run(
        self,
        workflow: str,
        name: str,
        artifacts: Artifacts,
        known: Mapping[str, str] | None = None,
        event: tuple[str, Any] = ("workflow_dispatch", {}),
        environ: Mapping[str, str] | None = None,
    ) -> Job:
        """Return a job on a new machine."""
        self.machines += 1
        workspace = self.root / f"machine-{self.machines}"
        path = self.root / f"event-{self.machines}.json"
        path.write_text(json.dumps(event[1]), encoding="utf-8")
        told = {"GITHUB_EVENT_NAME": event[0], "GITHUB_EVENT_PATH": str(path)}
        told_of_app = {"vars.PERF_APP_ID": str(self.github.app.id) if self.key else ""}
        of_event = {"github.event_name": event[0], "github.api_url": self.github.url}
        job = Job(
            workflow, name, workspace, {**EXPRESSIONS, **INPUTS, **told_of_app, **of_event, **(known or {})}
        )
        job.secrets = {"perf-report": {"PERF_APP_KEY": self.key}}
        job.known = {**job.known, "runner.temp": str(job.temp)}
        job.environ = {**self.there, **told, "HOME": str(job.temp), **(environ or {})}
        status = job.whole(Use(self.bundled, artifacts))
        assert status == 0, "\n".join(job.said[-3:])
        assert self.github.app.tokens.keys() <= {APP_TOKEN}  # what was made for the job was given back
        kept = [path for folder in (workspace, job.temp) for path in folder.rglob("*") if path.is_file()]
        forms = (*TOKEN_FORMS, *([self.key.encode()] if self.key else []))
        assert [path for path in kept if any(form in path.read_bytes() for form in forms)] == []
        return job

    def card(self, name: str) -> dict[str, str]:
        """Return the variables of a null device whose results are those of a separate card."""
        path = self.root / f"{name}.json"
        noise = {"kind": "quiet", "seed": 1}
        return {"HARNESS_NULL_SCRIPT": write_null_script(path, {"noise": noise, "name": f"null {name}"})}

    def planned(self, job: Job) -> list[dict[str, str]]:
        matrix = json.loads(job.outputs["fleet"]["matrix"])["card"]
        return [{f"matrix.card.{name}": str(value) for name, value in card.items()} for card in matrix]

    def request(self, line: str) -> dict[str, str]:
        with serving() as artifacts:
            event = ("issue_comment", comment_event(line, number=NUMBER))
            self.run("perf-request.yml", "request", artifacts, event=event)
        [dispatched] = self.github.dispatched
        assert dispatched["ref"] == "perf-dispatch"
        inputs: dict[str, str] = dispatched["inputs"]
        return inputs

    def measure(self, inputs: Mapping[str, str]) -> None:
        """The run that was dispatched; its artifacts are then to be had by the API."""
        main = git(self.origin, "rev-parse", "main")
        known = {f"inputs.{name}": value for name, value in inputs.items()}
        known |= {"github.event_name": "workflow_dispatch", "github.ref_name": "perf-dispatch"}
        known |= {"github.sha": main}
        with serving() as artifacts:
            plan = self.run("perf-pr.yml", "plan", artifacts, known)
            asked = {"needs.plan.outputs.sha": plan.outputs["request"]["sha"]}
            for card in self.planned(plan):
                told = {**self.card(card["matrix.card.name"]), "GITHUB_SHA": main}
                self.run("perf-pr.yml", "measure", artifacts, {**known, **asked, **card}, environ=told)
            assert artifacts.unknown == []
            self.github.artifacts[RUN] = [
                Artifact(each.id, each.name, each.content) for each in artifacts.kept.values()
            ]

    def report(self, head: str) -> Artifacts:
        main = git(self.origin, "rev-parse", "main")
        event = run_event(NUMBER, head, event="workflow_dispatch", run=RUN, head_sha=main)
        with serving() as artifacts:
            self.run("perf-report.yml", "report", artifacts, event=("workflow_run", event))
        return artifacts

    def queue(self) -> dict[str, Any]:
        """The check of the pull request's commit in the merge queue, where an App posts it."""
        commit = "9" * 40
        self.github.queue.add(commit)
        branch = f"gh-readonly-queue/main/pr-{NUMBER}-{'b' * 40}"
        event = run_event(event="merge_group", head_sha=commit, head_branch=branch)
        with serving() as artifacts:
            self.run("perf-queue.yml", "carry", artifacts, event=("workflow_run", event))
        check: dict[str, Any] = self.github.check_runs[-1]
        assert (check["head_sha"], check["app"]) == (commit, self.github.app.shown)
        return check

    def night(self) -> list[Job]:
        """The jobs that measure, and the one that stores."""
        with serving() as artifacts:
            plan = self.run("perf-history.yml", "plan", artifacts, event=("schedule", {}))
            jobs = [
                self.run(
                    "perf-history.yml",
                    "measure",
                    artifacts,
                    card,
                    environ=self.card(card["matrix.card.name"]),
                )
                for card in self.planned(plan)
            ]
            counts = {"needs.plan.outputs.count": plan.outputs["fleet"]["count"]}
            done = {**counts, "needs.measure.result": "success"}
            jobs.append(self.run("perf-history.yml", "store", artifacts, done))
        return jobs

    def pages(self) -> tarfile.TarFile:
        """Return the archive that goes to GitHub Pages."""
        with serving() as artifacts:
            self.run("pages.yml", "build", artifacts)
        [site] = artifacts.kept.values()
        assert site.name == "github-pages"
        with zipfile.ZipFile(io.BytesIO(site.content)) as zipped:
            return tarfile.open(fileobj=io.BytesIO(zipped.read("artifact.tar")))

    def stored(self) -> dict[str, str]:
        """The branch of results: git's name of each file's content, by path."""
        return {
            path: blob
            for line in git(self.origin, "ls-tree", "-r", "perf-data").splitlines()
            for _, _, blob, path in [line.replace("\t", " ").split(" ", 3)]
        }


@contextmanager
def github_server() -> Iterator[GitHub]:
    with serving_github() as github:
        github.people["maintainer"] = {"permission": "write", "role_name": "write"}
        github.settings = WELL
        yield github


@pytest.fixture
def way(tmp_path, bundled, monkeypatch) -> Iterator[Way]:
    monkeypatch.delenv("GIT_CONFIG_NOSYSTEM", raising=False)
    with github_server() as github:
        yield Way(tmp_path, bundled, github)


def app_key(folder: Path, github: GitHub) -> str:
    """A new key of the App; the server gets the other half."""
    made = [str(folder / name) for name in ("key.pem", "public.pem")]
    for command in (["genrsa", "-out", made[0], "2048"], ["rsa", "-in", made[0], "-pubout", "-out", made[1]]):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    github.app.public_key = Path(made[1]).read_text()
    return Path(made[0]).read_text()


def asked(way: Way, head: str) -> dict[str, str]:
    """Return the request of a comment on a new pull request."""
    way.github.open_pull(NUMBER, head)
    inputs = way.request(f"/perf {head}")
    assert inputs == {"pull_request": str(NUMBER), "sha": head, "cases": ""}
    assert (way.github.reactions, way.github.check_runs[0]["status"]) == (["eyes"], "queued")
    return inputs


def reported(way: Way, head: str) -> None:
    page = way.report(head)
    [body] = way.github.bodies(NUMBER)
    assert "toy.scale@64" in body
    [check] = way.github.check_runs
    assert (check["head_sha"], check["status"], check["conclusion"]) == (head, "completed", "failure")
    assert check["app"] == (way.github.app.shown if way.key else ACTIONS)
    assert way.github.app.made == (2 if way.key else 0)
    assert set(page.kept) == {"perf-report"}


@pytest.mark.slow
@pytest.mark.timeout(1200)  # some thirty programs, one after the other
def test_from_the_comment_to_the_report_and_from_the_merge_to_the_pages(way):
    head = way.propose(Play.tree(takes(1_030_000)))
    way.measure(asked(way, head))
    measured = way.github.artifacts[RUN]
    assert {each.name for each in measured} == {
        f"perf-{what}-card-{number}" for what in ("review", "records") for number in range(CARDS)
    }
    reported(way, head)

    # Where an App of its own reports, nothing else changes: no other workflow knows of it.
    others = ("perf-pr.yml", "perf-history.yml", "pages.yml")
    assert not any("PERF_APP" in (WORKFLOWS / name).read_text(encoding="utf-8") for name in others)
    of_actions = way.github
    with github_server() as of_app:
        way.host(of_app, app_key(way.root, of_app))
        asked(way, head)
        of_app.artifacts[RUN] = measured
        reported(way, head)
        assert way.queue()["conclusion"] == "failure"
    way.host(of_actions)

    # Merged all the same: the history has both commits, of every card.
    way.merge()
    way.night()
    stored = way.stored()
    records = [path for path in stored if ".jsonl" in path]
    assert len({path.partition("/")[0] for path in records}) == CARDS
    assert len(records) == 2 * CARDS

    site = set(way.pages().getnames())
    assert {"./index.html", "./harness/index.html"} <= site


def test_every_action_of_the_workflows_is_run_here_or_said_to_be_left_out():
    used = {
        step["uses"].partition("@")[0]
        for path in WORKFLOWS.glob("*.yml")
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        for step in job.get("steps", ())
        if "uses" in step
    }
    left_out = {"actions/setup-python", "actions/configure-pages", "actions/deploy-pages"}
    assert used == {*PINNED, *COMPOSITE, *left_out}
