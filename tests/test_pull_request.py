"""A whole pull request, played on this machine: the scripts of the workflows themselves, a bare repository,
the null device in place of a card, and a loopback server in place of GitHub.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.report.document.check import problems
from harness.report.document.document import LIMITS, Review, decode_review
from tests.commits import SUITE, Side, files, takes
from tests.github_server import REPOSITORY, TOKEN, Artifact, GitHub, run_event, serving
from tests.support import IMPORT_PATH, commit, git, make_repository, programs, run_command, write_null_script
from tests.test_audit import WELL
from tests.workflow_steps import Job

NUMBER, RUN = 12, 4711
STEADY = takes(1_000_000)
FLEET = {"cards": [{"name": "null", "labels": ["self-hosted"], "device": "null", "sizes": ["64"]}]}
EXPRESSIONS = {
    "inputs.fleet || '.github/fleet.json'": ".github/fleet.json",
    "inputs.requirements || '.github/requirements'": ".github/requirements",
    "vars.PERF_APP_ID": "",
    "vars.PERF_AUTOMATIC": "",
    "vars.PERF_HISTORY_URL": "https://kernels.example/harness/",
    "vars.PERF_STRICT": "",
    "github.event.repository.default_branch": "main",
}


class Play:
    """The repository, its pull request, and the machines that workflows run on."""

    def __init__(self, root: Path, github: GitHub) -> None:
        self.root, self.github = root, github
        self.origin = root / "origin.git"
        self.author = make_repository(root / "author")
        git(root, "clone", "--quiet", "--bare", str(self.author), str(self.origin))
        git(self.author, "remote", "add", "origin", str(self.origin))
        self.base = commit(self.author, {**self.tree(STEADY), ".github/fleet.json": json.dumps(FLEET)}, 1)
        git(self.author, "push", "--quiet", "origin", "main")
        self.machines = 0

    @staticmethod
    def tree(kernel: Side, **more: Side) -> dict[str, str]:
        kernels = {"scale": kernel, "steady": STEADY, **more}
        return files(0, {name: (side, None) for name, side in kernels.items()})

    def propose(self, changes: dict[str, str | None], day: int = 2) -> str:
        """The pull request's next commit, vetted and mirrored."""
        if "topic" not in git(self.author, "branch", "--list", "topic"):
            git(self.author, "checkout", "--quiet", "-b", "topic")
        head = commit(self.author, changes, day)
        git(self.author, "push", "--quiet", "--force", "origin", f"{head}:refs/heads/pull-request/{NUMBER}")
        self.github.open_pull(NUMBER, head)
        self.github.merge_bases["main"] = self.base
        return head

    def onto_main(self, files: dict[str, str]) -> None:
        self.base = commit(self.author, files, 1)
        git(self.author, "push", "--quiet", "origin", "main")

    def machine(self, workflow: str, name: str, known: dict[str, str], **environ: str) -> Job:
        self.machines += 1
        workspace = self.root / f"machine-{self.machines}"
        workspace.mkdir()
        return Job(workflow, name, workspace, {**EXPRESSIONS, **known}, environ)

    def plan(self, head: str, event: str = "push", **asked: str) -> Job:
        self.github.settings = WELL
        known = {
            "github.token": TOKEN,
            "github.event_name": event,
            "github.ref_name": f"pull-request/{NUMBER}" if event == "push" else "perf-dispatch",
            "github.sha": head if event == "push" else self.base,
            "inputs.pull_request": asked.get("pull_request", ""),
            "inputs.sha": asked.get("sha", ""),
            "inputs.cases": asked.get("cases", ""),
        }
        there = {"GITHUB_API_URL": self.github.url, "GITHUB_REPOSITORY": REPOSITORY}
        job = self.machine("perf-pr.yml", "plan", known, **there)
        self.checkout(job.workspace, "main")
        return job

    def checkout(self, folder: Path, ref: str) -> None:
        git(self.root, "clone", "--quiet", "--no-checkout", str(self.origin), str(folder / "clone"))
        (folder / "clone" / ".git").rename(folder / ".git")
        git(folder, "reset", "--quiet", "--hard", ref if len(ref) == 40 else f"origin/{ref}")

    def measure(self, head: str, *, pushed: bool = True) -> tuple[int, Job]:
        """What the job with the card does; its report is then an artifact of the run."""
        asked = {"event": "workflow_dispatch", "pull_request": str(NUMBER), "sha": head}
        planned = self.plan(head) if pushed else self.plan(head, **asked)
        assert planned.run() == 0, planned.said
        assert planned.outputs["request"] == {"pull_request": str(NUMBER), "sha": head}
        [card] = json.loads(planned.outputs["fleet"]["matrix"])["card"]
        known = {
            "matrix.card.arguments": card["arguments"],
            "needs.plan.outputs.sha": planned.outputs["request"]["sha"],
        }
        job = self.machine("perf-pr.yml", "measure", known, GITHUB_SHA=head if pushed else self.base)
        job.known = {**job.known, "runner.temp": str(job.temp)}
        for folder, ref in (("tool", "main"), ("code", head)):
            (job.workspace / folder).mkdir()
            self.checkout(job.workspace / folder, ref)
        status = job.run()
        self.upload(job)
        return status, job

    def upload(self, job: Job) -> None:
        review = job.temp / "review" / "review.json"
        self.github.artifacts[RUN] = []
        if review.exists():
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
                zipped.write(review, "review.json")
            self.github.artifacts[RUN].append(Artifact(1, "perf-review-null", archive.getvalue()))

    def report(self, head: str, *, status: int = 0, pushed: bool = True, strict: str = "") -> tuple[int, Job]:
        """What the job that may write does."""
        event = run_event(
            NUMBER,
            head,
            event="push" if pushed else "workflow_dispatch",
            run=RUN,
            conclusion="failure" if status else "success",
        )
        path = self.root / "event.json"
        path.write_text(json.dumps(event), encoding="utf-8")
        job = self.machine(
            "perf-report.yml",
            "report",
            {"github.token": TOKEN, "vars.PERF_STRICT": strict},
            GITHUB_EVENT_PATH=str(path),
            GITHUB_REPOSITORY=REPOSITORY,
            GITHUB_API_URL=self.github.url,
            GITHUB_SERVER_URL="https://github.example",
        )
        return job.run(), job

    def whole(self, head: str) -> tuple[int, Job]:
        status, _ = self.measure(head)
        return self.report(head, status=status)


@pytest.fixture
def play(tmp_path, monkeypatch) -> Iterator[Play]:
    script = write_null_script(tmp_path / "script.json", {"noise": {"kind": "quiet", "seed": 1}})
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", script)
    with serving() as github:
        yield Play(tmp_path, github)


def test_a_slower_kernel_is_reported_and_its_mending_replaces_the_report(play):
    slow = play.propose(play.tree(takes(1_030_000)))
    status, job = play.measure(slow)
    assert status == 1, job.said
    assert "toy.scale" in job.summary
    assert "::error file=kernels/toy/scale.cu,line=2" in job.said[-1]

    assert play.report(slow, status=status)[0] == 0
    [body] = play.github.bodies(NUMBER)
    assert "toy.scale@64" in body
    assert "slower" in body
    assert "+2." in body or "+3." in body
    assert "steady" in body
    [check] = play.github.check_runs
    assert (check["head_sha"], check["conclusion"]) == (slow, "failure")

    mended = play.propose(play.tree(takes(1_000_001)), day=3)
    assert play.whole(mended)[0] == 0
    [body] = play.github.bodies(NUMBER)
    assert "None of 2 cases is slower" in body
    assert mended in body
    assert [each["conclusion"] for each in play.github.check_runs] == ["failure", "success"]


def test_a_device_that_does_not_open_costs_the_others_nothing_and_is_said(play):
    [card] = FLEET["cards"]
    cards = {"cards": [{**card, "also": ["cpu:0", "cpu:7"], "cases": ["toy.s*"]}]}
    commit(play.author, {".github/fleet.json": json.dumps(cards)}, 1)
    git(play.author, "push", "--quiet", "origin", "main")
    play.base = git(play.author, "rev-parse", "HEAD")
    head = play.propose(play.tree(takes(1_000_001)))
    status, job = play.measure(head)
    assert status == 0, job.said
    [warning] = [line for line in job.said[-1].splitlines() if line.startswith("::warning")]
    assert "cpu%3A7 was not compared" in warning or "cpu:7 was not compared" in warning
    assert play.report(head)[0] == 0
    [body] = play.github.bodies(NUMBER)
    assert "None of 2 cases is slower" in body
    assert "cpu:7 was not compared" in body
    assert play.github.check_runs[0]["conclusion"] == "success"


def test_what_is_no_device_is_refused_before_anything_is_compared(play, tmp_path):
    head = play.propose(play.tree(takes(1_030_000)))
    play.checkout(tmp_path, head)
    for specs in ("null,", "null,vulkan:0"):
        asked = ("--base", play.base, "--head", head, "--device", specs, "--out", str(tmp_path / "out"))
        done = run_command("ci", "compare", *asked, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "Unknown device" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_kernel_that_does_not_build_and_one_that_vanished_fail_the_pull_request(play):
    broken = Side("#define NULL_DEVICE_FAULT build")
    tree = {**play.tree(broken), "kernels/toy/suite.py": None}
    tree["kernels/toy/suite.py"] = SUITE.replace("KERNELS", "kernel('scale')")
    head = play.propose(tree)
    assert play.whole(head)[0] == 0
    [body] = play.github.bodies(NUMBER)
    assert "fails at head" in body
    assert "toy.steady@64" in body
    assert "missing" in body
    assert play.github.check_runs[0]["conclusion"] == "failure"


def test_a_suite_that_cannot_be_loaded_fails_the_pull_request(play):
    head = play.propose({"kernels/toy/suite.py": "raise SystemExit('no')\n"})
    assert play.whole(head)[0] == 0
    assert "failed" in play.github.bodies(NUMBER)[0]
    assert play.github.check_runs[0]["conclusion"] == "failure"


def test_a_dispatched_run_says_its_verdict_on_the_pull_request_and_not_on_the_default_branch(play):
    slow = play.propose(play.tree(takes(1_030_000)))
    status, job = play.measure(slow, pushed=False)
    assert status == 0, job.said
    assert play.report(slow, pushed=False)[0] == 0
    assert play.github.check_runs[0]["head_sha"] == slow
    assert play.github.check_runs[0]["conclusion"] == "failure"


def test_more_cases_than_a_report_holds_are_refused_before_they_are_measured(play, harness, monkeypatch):
    monkeypatch.setitem(LIMITS, "cases", 1)
    head = play.propose(play.tree(takes(1_030_000)))
    done = harness(
        *("ci", "compare", "--base", "main", "--head", head, "--device", "null", "--size", "64"),
        cwd=play.author,
    )
    assert "Suite toy has 2 cases here, and a report holds 1: nothing of it was measured" in done.failed_with(
        2
    )
    assert not (play.author / "perf-review" / "records").exists()


KERNELS = {
    "benchmarks/test_kernels.py": "def test_kernel(gpu_benchmark, gpu_case): gpu_benchmark(gpu_case)\n"
}


@pytest.fixture
def by_pytest(play, harness, monkeypatch) -> Callable[..., tuple[int, Review]]:
    """Measure the pull request by these tests, as its job does; returns the status and the report."""

    def run(tests: dict[str, str], changes: dict[str, str | None]) -> tuple[int, Review]:
        play.onto_main(tests)
        head = play.propose(changes)
        monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
        monkeypatch.setattr("subprocess.Popen", programs.popen)  # pytest is forked, and what it asks for
        done = harness(
            *(
                "ci",
                "compare",
                "--base",
                "main",
                "--device",
                "null",
                "--size",
                "64",
                "--pytest",
                "benchmarks",
            ),
            *("--out", str(play.root / "review")),
            cwd=play.author,
        )
        assert (play.root / "review" / "review.json").exists(), done.err
        review = decode_review((play.root / "review" / "review.json").read_bytes())
        assert problems(review, bases={play.base}, head=head) == []
        assert git(play.author, "worktree", "list").count("\n") == 0
        return done.status, review

    return run


def test_pytest_s_kernels_and_its_other_benchmarks_are_in_one_report(play, by_pytest):
    host = {"benchmarks/test_host.py": "def test_sum(benchmark): benchmark(sum, range(64))\n"}
    status, review = by_pytest(KERNELS, {**play.tree(takes(1_030_000)), **host})
    assert status == 1
    found = {(card.suite, case.case): case.status for card in review.cards for case in card.cases}
    assert found == {
        ("toy", "toy.scale[n=64]"): "regression",
        ("toy", "toy.steady[n=64]"): "identical",
        ("pytest", "pytest.benchmarks_test_host_test_sum[]"): "new",
    }


def test_a_test_that_fails_by_itself_is_no_success(play, by_pytest):
    """No verdict does: both commits' kernels are the same."""
    tests = {**KERNELS, "benchmarks/test_plain.py": "def test_plain(): assert False\n"}
    status, review = by_pytest(tests, {"notes.txt": "x"})
    assert status == 3
    assert [card.problem for card in review.cards] == [
        "A test failed in pytest's session, although no verdict does: see the job's log."
    ]


@pytest.mark.parametrize(("strict", "conclusion"), [("", "neutral"), ("yes", "failure")])
def test_a_run_without_a_report_is_shown_as_not_known(play, strict, conclusion):
    head = play.propose(play.tree(takes(1_000_001)))
    play.github.artifacts[RUN] = []
    assert play.report(head, status=3, strict=strict)[0] == 0
    assert play.github.bodies(NUMBER) == []
    assert play.github.check_runs[0]["conclusion"] == conclusion


@pytest.mark.parametrize(
    ("event", "asked"),
    [
        ("pull_request", {}),
        ("pull_request_target", {}),
        ("issue_comment", {"pull_request": "12", "sha": "a" * 40}),
        ("workflow_dispatch", {"pull_request": "12; id", "sha": "a" * 40}),
        ("workflow_dispatch", {"pull_request": "12", "sha": "main"}),
        ("workflow_dispatch", {"pull_request": "12", "sha": "a" * 40 + "\n::warning::x"}),
        ("workflow_dispatch", {}),
    ],
)
def test_no_other_event_or_request_reaches_a_card(play, event, asked):
    job = play.plan("a" * 40, event, **asked)
    assert job.run("Which commit") == 2
    assert "::warning::" not in job.said[-1]
    assert job.outputs["request"] == {}


def test_the_cards_calibration_is_taken_from_the_branch_of_results(play):
    known = {
        "github.token": TOKEN,
        "github.server_url": str(play.root),
        "github.repository": "origin.git",
        "needs.plan.outputs.count": "1",
        "needs.measure.result": "success",
    }
    store = play.machine("perf-history.yml", "store", known)
    play.checkout(store.workspace, "main")
    measured = store.temp / "results" / "null"
    trials = ("--trials", "2", "--planted-trials", "0", "--results", str(measured))
    done = run_command("calibrate", "--device", "null", *trials, cwd=store.workspace)
    assert done.returncode == 0, done.stderr
    names = sorted(path.relative_to(measured).as_posix() for path in measured.rglob("*") if path.is_file())
    (measured.parent / "null.files").write_text("".join(f"./{name}\n" for name in names))
    assert store.run("Append to the branch") == 0, store.said

    head = play.propose(play.tree(takes(1_000_001)))
    assert play.whole(head)[0] == 0
    assert "false alarm" in play.github.bodies(NUMBER)[0]
