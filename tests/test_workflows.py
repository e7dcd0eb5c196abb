"""The workflows: what linters say of them, our own policy, and their scripts run as a runner would."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from harness.cli import cli
from tests.support import ROOT, git, make_repository
from tests.support import commit as commit_files
from tests.workflow_policy import (
    Script,
    Workflow,
    jobs_of,
    load,
    scripts_of,
    triggers_of,
    violations,
    workflows_below,
)

GITHUB = ROOT / ".github"
WORKFLOWS = workflows_below(GITHUB / "workflows")
"""Workflows that a repository may have beside them."""
CALLABLE = ("pages.yml", "perf-history.yml", "perf-pr.yml", "perf-report.yml")

# Read here, when tests are collected: later on no HARNESS_* variable of the user's reaches a test.
REQUIRED = bool(os.environ.get("HARNESS_REQUIRE_LINTERS"))
"""True if a missing linter fails its test instead of skipping it: for CI machines."""

IGNORE = re.compile(r"# zizmor: ignore\[([a-z-]+)\](.*)")
RUNNERS = frozenset({"GITHUB_OUTPUT", "GITHUB_SHA", "GITHUB_STEP_SUMMARY", "RUNNER_TEMP"})
"""Variables that every step gets."""
VERSION = re.compile(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")

every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def text_of(name: str) -> str:
    return (GITHUB / "workflows" / name).read_text(encoding="utf-8")


def workflow(name: str) -> Workflow:
    return load(text_of(name))


def script_of(name: str, place: str) -> Script:
    return next(script for script in scripts_of(workflow(name)) if script.name == place)


def linter(name: str) -> str:
    """A program beside this interpreter, or on PATH."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    if found is None and REQUIRED:
        pytest.fail(f"HARNESS_REQUIRE_LINTERS asks for {name}: install the extra dev.")
    if found is None:
        pytest.skip(f"{name} is not installed; the extra dev has it")
    return found


def lint(name: str, *arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [linter(name), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


# What linters say


def zizmor(*arguments: object) -> list[dict[str, Any]]:
    options = ("--offline", "--no-config", "--strict-collection", "--persona=auditor", "--format=json")
    done = lint("zizmor", *options, "--no-exit-codes", *arguments)
    assert done.returncode == 0, done.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)
    return findings


def kind_and_file(finding: dict[str, Any]) -> tuple[str, str]:
    """A finding's rule, and the file it is in."""
    primary = next(each for each in finding["locations"] if each["symbolic"]["kind"] == "Primary")
    return finding["ident"], Path(primary["symbolic"]["key"]["Local"]["verbatim_path"]).name


def test_zizmor_finds_nothing():
    assert zizmor(GITHUB / "workflows") == []


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="the newest zizmor for Python 3.10 does not know all that is ignored"
)
def test_every_ignored_finding_is_one_and_has_its_reason_beside_it():
    asked = [
        (rule, path.name, reason.strip())
        for path in WORKFLOWS
        for rule, reason in IGNORE.findall(path.read_text(encoding="utf-8"))
    ]
    assert all(len(reason.split()) >= 4 for _, _, reason in asked), asked
    found = [kind_and_file(finding) for finding in zizmor("--no-ignores", GITHUB / "workflows")]
    assert sorted((rule, name) for rule, name, _ in asked) == sorted(found)


def test_no_file_beside_the_workflows_silences_zizmor():
    assert not [*GITHUB.glob("zizmor.y*ml"), *ROOT.glob("zizmor.y*ml")]


def test_zizmor_sees_what_is_planted(tmp_path):
    """Our own policy does not check this, but zizmor does."""
    made = workflow("ci.yml")
    steps = made["jobs"]["demo"]["steps"]
    del steps[0]["with"]["persist-credentials"]
    steps += [{"uses": "actions/cache@v7"}, {"uses": "./.github/actions/own"}, {"uses": "docker://alpine:3"}]
    steps.append({"run": 'echo "${{ github.head_ref }}"'})
    made["jobs"]["call"] = {"uses": f"o/r/.github/workflows/w.yml@{SHA}", "secrets": "inherit"}
    del made["concurrency"]
    (tmp_path / "bad.yml").write_text(yaml.safe_dump(made), encoding="utf-8")
    assert {finding["ident"] for finding in zizmor(tmp_path / "bad.yml")} >= {
        *("unpinned-uses", "unpinned-images", "self-repository", "template-injection"),
        *("artipacked", "concurrency-limits", "secrets-inherit"),
    }


def test_actionlint_finds_nothing():
    # ShellCheck has a test of its own below, with the shell that GitHub uses here.
    done = lint("actionlint", "-oneline", "-shellcheck=", "-pyflakes=", *WORKFLOWS)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("${{ steps.fleet.outputs.matrix }}", "${{ steps.flet.outputs.matrix }}", "flet"),
        ("needs: plan", "needs: plans", "plans"),
        ("timeout-minutes: 60", "timeout-minute: 60", "timeout-minute"),
        ("fromJSON(needs.plan.outputs.matrix)", "fromJson5(needs.plan.outputs.matrix)", "fromJson5"),
    ],
)
def test_actionlint_sees_what_is_planted(right, wrong, said):
    bad = text_of("perf-pr.yml").replace(right, wrong)
    done = lint("actionlint", "-oneline", "-shellcheck=", "-pyflakes=", "-", text=bad)
    assert done.returncode == 1
    assert said in done.stdout


def test_the_schema_of_github_accepts_every_workflow(tmp_path):
    schema = ("--builtin-schema", "vendor.github-workflows")
    done = lint("check-jsonschema", *schema, *WORKFLOWS)
    assert done.returncode == 0, done.stdout
    (tmp_path / "bad.yml").write_text(text_of("ci.yml").replace("runs-on:", "runs_on:"))
    assert lint("check-jsonschema", *schema, tmp_path / "bad.yml").returncode == 1


def shellcheck(script: Script) -> str:
    """Return shellcheck's output on a script, given the variables of its step, job and workflow."""
    known = " ".join(sorted(script.variables | RUNNERS))
    text = f"set -euo pipefail\nexport {known}\nread -r {known}\n{script.text}"
    # Left out: a taste for braces, and statuses of commands whose output is read, which matter nowhere here.
    done = lint("shellcheck", "--shell=bash", "--enable=all", "--exclude=SC2250,SC2312", "-", text=text)
    return done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path):
    for script in scripts_of(load(path.read_text(encoding="utf-8"))):
        assert shellcheck(script) == "", script.name


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('"$folder" --branch', "$folder --branch", "SC2086"),
        ('"$DATA_BRANCH"', '"$DATA_BRANHC"', "SC2154"),
        ("done", "", "SC1073"),
    ],
)
def test_shellcheck_sees_what_is_planted(right, wrong, said):
    script = script_of("perf-history.yml", "store/Append to the branch")
    bad = script._replace(text=script.text.replace(right, wrong))
    assert bad != script
    assert said in shellcheck(bad)


# Our own policy


@every_workflow
def test_no_workflow_violates_the_policy(path):
    assert violations(load(path.read_text(encoding="utf-8"))) == []


Change = Callable[[Workflow], None]


def set_in(*keys: Any, to: Any) -> Change:
    def change(made: Workflow) -> None:
        place: Any = made
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return change


def without(*keys: Any) -> Change:
    def change(made: Workflow) -> None:
        place: Any = made
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


def with_step(job: str, step: dict[str, Any]) -> Change:
    return lambda made: made["jobs"][job]["steps"].append(step)


def with_download(path: str | None) -> Change:
    """Let the job that stores results unpack them elsewhere."""
    step = {"uses": f"actions/download-artifact@{SHA}", "with": {"path": path}}
    return with_step("store", step if path else {"uses": step["uses"]})


def with_trigger(trigger: str) -> Change:
    return set_in("on", trigger, to=None)


MEASURE = ("jobs", "measure")
SHA = "0" * 40
PLANTED = [
    ("perf-pr.yml", with_trigger("pull_request"), "a machine of ours on pull_request"),
    ("perf-pr.yml", with_trigger("pull_request_target"), "a machine of ours on pull_request_target"),
    ("ci.yml", with_trigger("pull_request_target"), "a stranger's pull request this repository's rights"),
    ("perf-pr.yml", with_trigger("issue_comment"), "a machine of ours on issue_comment"),
    ("perf-history.yml", with_trigger("workflow_run"), "a machine of ours on workflow_run"),
    (
        "ci.yml",
        set_in("jobs", "tests", "runs-on", to=["self-hosted", "gpu"]),
        "a machine of ours on pull_request",
    ),
    ("ci.yml", set_in("jobs", "tests", "runs-on", to="gpu-h200"), "a machine of ours on pull_request"),
    ("ci.yml", set_in("jobs", "tests", "runs-on", to={"group": "gpu"}), "a machine of ours on pull_request"),
    (
        "ci.yml",
        set_in("jobs", "tests", "runs-on", to="${{ inputs.where }}"),
        "a machine of ours on pull_request",
    ),
    (
        "ci.yml",
        set_in("jobs", "gpu", to={"uses": f"o/r/.github/workflows/perf-pr.yml@{SHA}", "permissions": {}}),
        "calls a workflow on pull_request",
    ),
    ("perf-history.yml", set_in("on", "push", to=None), "pushes to any branch"),
    ("perf-history.yml", set_in("on", "push", "branches", to=["main", "topic/**"]), "pushes to any branch"),
    ("ci.yml", set_in("permissions", to="write-all"), "permissions at the top are 'write-all'"),
    ("ci.yml", set_in("permissions", to={"contents": "read"}), "permissions at the top"),
    ("ci.yml", without("permissions"), "permissions at the top are None"),
    ("ci.yml", without("jobs", "demo", "permissions"), "job demo: permissions are None"),
    ("ci.yml", set_in("jobs", "demo", "permissions", to="read-all"), "job demo: permissions are 'read-all'"),
    (
        "perf-pr.yml",
        set_in(*MEASURE, "permissions", "contents", to="write"),
        "a machine of ours may contents",
    ),
    ("perf-pr.yml", set_in(*MEASURE, "permissions", "actions", to="read"), "a machine of ours may actions"),
    (
        "perf-history.yml",
        set_in(*MEASURE, "permissions", "contents", to="write"),
        "machine of ours may contents",
    ),
    (
        "perf-pr.yml",
        set_in("jobs", "plan", "permissions", "checks", to="write"),
        "taken from a pull request's commit",
    ),
    ("perf-pr.yml", set_in(*MEASURE, "env", to={"KEY": "${{ secrets.KEY }}"}), "is given a secret"),
    ("perf-pr.yml", set_in(*MEASURE, "env", to={"KEY": "${{ SECRETS['KEY'] }}"}), "is given a secret"),
    ("perf-pr.yml", set_in(*MEASURE, "env", to={"GITHUB_TOKEN": "${{ github.token }}"}), "is given a secret"),
    ("perf-pr.yml", set_in("env", "TOKEN", to="${{ github.token }}"), "is given a secret"),
    ("perf-pr.yml", set_in("env", "TOKEN", to="${{ github['token'] }}"), "is given a secret"),
    ("perf-pr.yml", set_in("env", "ALL", to="${{ toJSON(github) }}"), "is given a secret"),
    (
        "perf-pr.yml",
        with_step("plan", {"run": "true", "env": {"KEY": "${{ secrets.PERF_APP_KEY }}"}}),
        "is given a secret",
    ),
    (
        "perf-report.yml",
        set_in("jobs", "report", "env", to={"KEY": "${{ secrets.PERF_APP_KEY }}"}),
        "the job as a whole is given a secret",
    ),
    ("perf-report.yml", without("jobs", "report", "environment"), "an App's key with no environment"),
    (
        "perf-queue.yml",
        set_in("jobs", "carry", "steps", 3, "with", "permission-contents", to="write"),
        "asks for more of an App",
    ),
    (
        "perf-queue.yml",
        without("jobs", "carry", "steps", 3, "with", "permission-checks"),
        "asks for more of an App",
    ),
    (
        "perf-queue.yml",
        set_in("jobs", "carry", "steps", 3, "with", "owner", to="example"),
        "asks for more of an App",
    ),
    ("perf-queue.yml", set_in("jobs", "carry", "if", to="vars.PERF_APP_ID"), "does not look at"),
    (
        "perf-request.yml",
        set_in("jobs", "request", "environment", to="perf-report"),
        "where the workflow file is a commit's own, by 'perf-report'",
    ),
    (
        "perf-request.yml",
        set_in("jobs", "request", "steps", 3, "if", to="vars.PERF_APP_ID"),
        "where the workflow file is a commit's own, by 'vars.PERF_APP_ID'",
    ),
    ("perf-pr.yml", with_step("measure", {"uses": f"actions/cache@{SHA}"}), "reads a cache"),
    ("perf-pr.yml", with_step("measure", {"uses": f"actions/cache/restore@{SHA}"}), "reads a cache"),
    (
        "perf-report.yml",
        set_in("jobs", "report", "steps", 1, "with", "cache", to="pip"),
        "reads a cache",
    ),
    (
        "perf-pr.yml",
        with_step("measure", {"name": "Title", "run": "echo ${{ github.head_ref }}"}),
        "an expression in the script of Title",
    ),
    (
        "perf-report.yml",
        with_step(
            "report", {"uses": f"actions/github-script@{SHA}", "with": {"script": "f(${{ github.event }})"}}
        ),
        "an expression in the script",
    ),
    ("ci.yml", without("defaults"), "goes on after an error"),
    ("ci.yml", set_in("jobs", "demo", "steps", 2, "shell", to="sh"), "goes on after an error"),
    ("perf-pr.yml", without(*MEASURE, "timeout-minutes"), "timeout-minutes is None"),
    ("perf-pr.yml", set_in(*MEASURE, "timeout-minutes", to=4000), "timeout-minutes is 4000"),
    ("perf-pr.yml", without(*MEASURE, "environment"), "no environment to hold it back"),
    ("perf-history.yml", without(*MEASURE, "environment"), "no environment to hold it back"),
    ("pages.yml", without("jobs", "deploy", "environment"), "no environment to hold it back"),
    ("pages.yml", with_step("deploy", {"run": "true"}), "proves who it is beside a script"),
    (
        "perf-report.yml",
        set_in("jobs", "report", "steps", 0, "with", "ref", to="${{ github.event.workflow_run.head_sha }}"),
        "checks out '${{ github.event.workflow_run.head_sha }}'",
    ),
    (
        "perf-report.yml",
        set_in(
            "jobs",
            "report",
            "steps",
            0,
            "with",
            "repository",
            to="${{ github.event.workflow_run.head_repository.full_name }}",
        ),
        "where only the default branch is to be trusted",
    ),
    ("pages.yml", without("jobs", "build", "steps", 0, "with", "ref"), "checks out None"),
    (
        "perf-request.yml",
        set_in(
            "jobs", "request", "steps", 0, "with", "ref", to="refs/pull/${{ github.event.issue.number }}/head"
        ),
        "where only the default branch is to be trusted",
    ),
    (
        "ci.yml",
        set_in("jobs", "demo", "permissions", "pull-requests", to="write"),
        "job demo: checks out None where only the default branch",
    ),
    ("perf-history.yml", without("jobs", "store", "steps", 0, "with", "ref"), "job store: checks out None"),
    (
        "perf-static-report.yml",
        set_in("jobs", "report", "permissions", "checks", to="write"),
        "may write ['checks'] for what anybody's run has left",
    ),
    ("perf-static-report.yml", without("jobs", "report", "steps", 0, "with", "ref"), "checks out None"),
    (
        "perf-report.yml",
        with_step("report", {"uses": f"actions/download-artifact@{SHA}"}),
        "unpacks what another run",
    ),
    ("perf-history.yml", with_download(None), "unpacks artifacts into None, outside runner.temp"),
    ("perf-history.yml", with_download("results"), "unpacks artifacts into results, outside"),
    (
        "perf-history.yml",
        with_download("${{ runner.temp }}/../x"),
        "unpacks artifacts into ${{ runner.temp }}/..",
    ),
    (
        "perf-history.yml",
        with_step("store", {"name": "More", "run": "python -P -m pip install more"}),
        "More installs after artifacts are unpacked",
    ),
    ("ci.yml", with_step("demo", {"run": "python -m pip list"}), "runs 'python -m' without -P or -I"),
    ("ci.yml", with_step("demo", {"run": "python3.12 -um pip"}), "runs 'python3.12 -um' without"),
    ("ci.yml", with_step("demo", {"run": '"$V/python" \\\n  -c 1'}), "without -P or -I"),
]


@pytest.mark.parametrize(("name", "change", "said"), PLANTED)
def test_a_planted_violation_is_found(name, change, said):
    made = copy.deepcopy(workflow(name))
    change(made)
    assert made != workflow(name)
    assert [problem for problem in violations(made) if said in problem]


@pytest.mark.parametrize(
    ("name", "job", "word"),
    [
        ("perf-report.yml", "report", "github.event.workflow_run.event =="),
        (
            "perf-report.yml",
            "report",
            "github.event.workflow_run.head_repository.full_name == github.repository",
        ),
        ("perf-static-report.yml", "report", "github.event.workflow_run.event == 'pull_request'"),
        ("perf-request.yml", "request", "startsWith(github.event.comment.body,"),
        ("perf-request.yml", "request", "github.event.issue.pull_request"),
    ],
)
def test_a_condition_that_looks_at_less_is_found(name, job, word):
    made = workflow(name)
    made["jobs"][job]["if"] = made["jobs"][job]["if"].replace(word, "true ==")
    assert [problem for problem in violations(made) if f"does not look at {word}" in problem]


@pytest.mark.parametrize("on", ["pull_request", ["push", "pull_request"], {"pull_request": None}])
def test_triggers_are_seen_however_they_are_written(on):
    made = load(yaml.safe_dump({"on": on, "jobs": {"a": {"runs-on": "self-hosted"}}}))
    assert "job a: a machine of ours on pull_request" in violations(made)


# What they are agreed to be


@every_workflow
def test_every_action_has_its_version_beside_the_hash(path):
    used = [line for line in path.read_text(encoding="utf-8").splitlines() if re.search(r"\buses:", line)]
    assert [line for line in used if not VERSION.search(line)] == []


def test_an_action_has_one_version_in_all_workflows():
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for action, version in re.findall(r"uses: ([^@\s]+)@(.*)", path.read_text(encoding="utf-8")):
            pins.setdefault(action, set()).add(version)
    assert {action: versions for action, versions in pins.items() if len(versions) > 1} == {}


@pytest.mark.parametrize("name", CALLABLE)
def test_another_repository_can_call_it(name):
    called = triggers_of(workflow(name))["workflow_call"]
    for settings in called["inputs"].values():
        assert not settings.get("required")
        assert settings["description"]


def test_what_a_workflow_waits_for_is_the_name_of_another():
    names = {load(path.read_text(encoding="utf-8"))["name"] for path in WORKFLOWS}
    waiting = [triggers_of(load(path.read_text(encoding="utf-8"))).get("workflow_run") for path in WORKFLOWS]
    awaited = {name for each in waiting if each for name in each["workflows"]}
    assert awaited
    assert awaited <= names


def test_a_dispatched_run_is_called_what_the_report_reads():
    title = " ".join(workflow("perf-pr.yml")["run-name"].split())
    assert title.startswith(
        "${{ inputs.pull_request && format('Performance of #{0} at {1}{2}', inputs.pull_request, inputs.sha, "
        "inputs.cases && ', some cases' || '')"
    )


def test_reports_go_up_by_themselves_and_for_a_week():
    uploads = {
        step["with"]["name"]: step["with"]
        for step in workflow("perf-pr.yml")["jobs"]["measure"]["steps"]
        if "upload-artifact" in step.get("uses", "")
    }
    review = uploads["perf-review-${{ matrix.card.name }}"]
    assert review["path"] == "${{ runner.temp }}/review/review.json"
    assert {settings["retention-days"] for settings in uploads.values()} == {7}


def commands_in(script: str) -> list[list[str]]:
    """The words of every call of harness, from the command's name on."""
    found = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            if word == "harness" or word.endswith("/bin/harness"):
                rest = words[at + 1 :]
                end = next(
                    (n for n, each in enumerate(rest) if each in ("||", "&&", "|", ";", "do")), len(rest)
                )
                found.append(rest[:end])
    return found


def check_call(words: list[str]) -> None:
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), rest[0])
        assert found, f"there is no harness {rest[0]}"
        command, rest = found, rest[1:]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word for word in rest if word.startswith("--")} <= known, words


def test_scripts_call_commands_and_options_that_there_are():
    calls = [
        words
        for path in WORKFLOWS
        for script in scripts_of(load(path.read_text(encoding="utf-8")))
        for words in commands_in(script.text)
    ]
    assert {words[1] for words in calls if words[0] == "ci"} >= {
        "compare",
        "post",
        "request",
        "store",
        "fleet",
    }
    for words in calls:
        check_call(words)


@pytest.mark.parametrize("words", [["ci", "publish"], ["publish", "--branch", "x"]])
def test_a_call_of_what_there_is_not_is_found(words):
    with pytest.raises(AssertionError):
        check_call(words)


# Their scripts, run as a runner does


class Runner:
    """A job's workspace, and bash as GitHub starts it here."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.temp = folder / "work", folder / "temp"
        self.workspace.mkdir(parents=True)
        self.temp.mkdir()

    def run(self, name: str, place: str, **env: str) -> subprocess.CompletedProcess[str]:
        made = workflow(name)
        job, _, step_name = place.partition("/")
        step = next(step for step in jobs_of(made)[job]["steps"] if step.get("name") == step_name)
        template = step.get("shell", made["defaults"]["run"]["shell"])
        script = self.temp / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        plain = {
            key: value
            for key, value in {**made.get("env", {}), **step.get("env", {})}.items()
            if "${{" not in str(value)
        }
        return subprocess.run(
            shlex.split(template.format(script)),
            cwd=self.workspace / step.get("working-directory", "."),
            env={
                **os.environ,
                **plain,
                "RUNNER_TEMP": str(self.temp),
                "GITHUB_OUTPUT": str(self.temp / "out"),
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def outputs(self) -> dict[str, str]:
        path = self.temp / "out"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return dict(line.split("=", 1) for line in lines)

    def install(self, name: str, script: str, folder: Path | None = None) -> None:
        """Put a program where the steps look for it."""
        path = (folder or self.temp / "venv" / "bin") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{script}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path / "runner")


REQUEST = {
    "EVENT": "workflow_dispatch",
    "BRANCH": "perf-dispatch",
    "PUSHED": "1" * 40,
    "PULL_REQUEST": "12",
    "SHA": "a" * 40,
}


def ask(runner, **env):
    return runner.run("perf-pr.yml", "plan/Which commit", **{**REQUEST, **env})


def test_a_dispatch_measures_what_it_was_given(runner):
    assert ask(runner).returncode == 0
    assert runner.outputs == {"pull_request": "12", "sha": "a" * 40}


def test_a_push_measures_what_was_pushed(runner):
    done = ask(runner, EVENT="push", BRANCH="pull-request/7", PULL_REQUEST="", SHA="")
    assert done.returncode == 0
    assert runner.outputs == {"pull_request": "7", "sha": "1" * 40}


@pytest.mark.parametrize(
    "env",
    [
        {"PULL_REQUEST": "0"},
        {"PULL_REQUEST": "12; id"},
        {"PULL_REQUEST": "12\nsha=x"},
        {"PULL_REQUEST": "1234567890"},
        {"PULL_REQUEST": ""},
        {"SHA": ""},
        {"SHA": "a" * 39},
        {"SHA": "A" * 40},
        {"SHA": "a" * 40 + "\nmatrix=x"},
        {"SHA": "$(touch pwned)"},
        {"SHA": "main"},
        {"BRANCH": "main"},
        {"BRANCH": "pull-request/7"},
        {"EVENT": "pull_request"},
        {"EVENT": "pull_request_target"},
        {"EVENT": "issue_comment"},
        {"EVENT": "push", "BRANCH": "main", "PULL_REQUEST": "", "SHA": ""},
        {"EVENT": "push", "BRANCH": "pull-request/7-x", "PULL_REQUEST": "", "SHA": ""},
    ],
)
def test_what_is_no_pull_request_and_commit_is_refused_and_not_printed(runner, env):
    done = ask(runner, **env)
    assert done.returncode == 2
    assert done.stdout.startswith("::error::")
    assert len(done.stdout.splitlines()) == 1
    assert runner.outputs == {}
    assert not list(runner.workspace.iterdir())


COMPARE = "measure/Compare with the default branch"
RECORDING = 'printf "%s\\n" "$@" > "$RUNNER_TEMP/said"; mkdir -p "$RUNNER_TEMP/review"; '


def compare(runner, script, **env):
    (runner.workspace / "code").mkdir(exist_ok=True)
    runner.install("harness", RECORDING + script)
    settings = {
        "ARGUMENTS": "matmul.* --device cuda:1 --size 64",
        "BASE": "origin/main",
        "HISTORY": "",
        "SHA": "a" * 40,
    }
    return runner.run("perf-pr.yml", COMPARE, **{**settings, "GITHUB_SHA": "a" * 40, **env})


def test_the_card_s_arguments_reach_the_comparison_as_words(runner):
    (runner.workspace / "code").mkdir()
    (runner.workspace / "code" / "matmul.x").touch()  # what a shell would make of the pattern
    assert compare(runner, "exit 0").returncode == 0
    said = (runner.temp / "said").read_text().splitlines()
    assert said[:7] == ["ci", "compare", "matmul.*", "--device", "cuda:1", "--size", "64"]
    assert said[said.index("--head") + 1] == "a" * 40
    assert said[said.index("--base") + 1] == "origin/main"


@pytest.mark.parametrize("status", [0, 1, 3, 4])
def test_a_pushed_commit_s_job_ends_as_its_comparison_does(runner, status):
    assert compare(runner, f'echo x > "$RUNNER_TEMP/review/review.json"; exit {status}').returncode == status


@pytest.mark.parametrize("status", [0, 1, 3, 4])
def test_a_dispatched_job_that_reported_does_not_paint_the_default_branch_red(runner, status):
    script = f'echo x > "$RUNNER_TEMP/review/review.json"; exit {status}'
    assert compare(runner, script, GITHUB_SHA="b" * 40).returncode == 0


@pytest.mark.parametrize("status", [1, 2, 3])
def test_a_dispatched_job_that_reported_nothing_fails(runner, status):
    assert compare(runner, f"exit {status}", GITHUB_SHA="b" * 40).returncode == status


@pytest.fixture
def data(runner):
    """Makes a checkout whose remote has the branch perf-data with these files, or no such branch."""

    def make(name: str, files: dict[str, str]) -> Path:
        there = make_repository(runner.temp.parent / "remote")
        commit_files(there, {"readme": "x"}, 1)
        if files:
            git(there, "checkout", "--quiet", "--orphan", "perf-data")
            git(there, "rm", "-rf", "--quiet", ".")
            commit_files(there, files, 2)
            git(there, "checkout", "--quiet", "main")
        target: Path = runner.workspace / name
        git(runner.workspace, "clone", "--quiet", str(there), str(target))
        return target

    return make


CALIBRATIONS = "measure/Fetch the cards' calibrations"


def test_calibrations_and_nothing_else_reach_a_pull_request_s_job(runner, data):
    data(
        "code",
        {
            "a card/calibration.harness": "1",
            "a card/x.json": "2",
            "b/calibration.harness": "3",
            "calibration.harness": "4",
        },
    )
    done = runner.run("perf-pr.yml", CALIBRATIONS)
    assert done.returncode == 0, done.stderr
    records = runner.temp / "review" / "records"
    found = {
        path.relative_to(records).as_posix(): path.read_text()
        for path in records.rglob("*")
        if path.is_file()
    }
    assert found == {"a card/calibration.harness": "1", "b/calibration.harness": "3"}


@pytest.mark.parametrize("files", [{}, {"a/x.json": "{}"}], ids=["no branch", "no calibration"])
def test_a_job_without_calibrations_goes_on(runner, data, files):
    data("code", files)
    done = runner.run("perf-pr.yml", CALIBRATIONS)
    assert done.returncode == 0, done.stderr
    assert not list((runner.temp / "review" / "records").iterdir())


HISTORY = (
    "measure/Fetch the results so far",
    "measure/Which devices work",
    "measure/Measure what is not measured yet",
    "measure/Pick what is new",
)
MEASURING = HISTORY[2]
ASV = """\
printf '%s\\n' "$@" > "$RUNNER_TEMP/said"
last=${@: -1}
cp "${last#HASHFILE:}" "$RUNNER_TEMP/asked"
mkdir -p .asv/results/card
echo new > .asv/results/card/new.json
echo newer > .asv/results/old.json
"""


def test_a_history_s_job_hands_on_what_is_new_and_nothing_else(runner, data):
    made = data("checkout", {"old.json": "old", "card/kept.json": "kept"})
    runner.workspace = made
    runner.install("asv", ASV)
    runner.install("harness", "echo cuda:0")
    asked = {"COMMITS": "20", "RETRY": "false", "DEVICES": "cuda:0,opengl:0", "CARD": "my-card"}
    for place in HISTORY:
        done = runner.run("perf-history.yml", place, **asked)
        assert done.returncode == 0, (place, done.stderr)
    results = runner.temp / "results"
    found = {
        path.relative_to(results).as_posix(): path.read_text()
        for path in results.rglob("*")
        if path.is_file()
    }
    listed = "./card/new.json\n./old.json\n"
    assert found == {
        "my-card/card/new.json": "new\n",
        "my-card/old.json": "newer\n",
        "my-card.files": listed,
    }
    said = (runner.temp / "said").read_text().splitlines()
    assert said == ["run", "--show-stderr", "--skip-existing", f"HASHFILE:{runner.temp / 'commits'}"]
    assert (runner.temp / "asked").read_text().split() == [git(made, "rev-parse", "HEAD")]


def test_what_failed_is_measured_again_when_it_is_asked_for(runner, data):
    runner.workspace = data("checkout", {})
    runner.install("asv", ASV)
    (runner.temp / "devices").write_text("cuda:0\n")
    assert runner.run("perf-history.yml", MEASURING, COMMITS="1", RETRY="true").returncode == 0
    assert "--skip-existing-successful" in (runner.temp / "said").read_text()


@pytest.mark.parametrize("commits", ["", "0", "-1", "1e9", "2; id", "99999"])
def test_a_number_of_commits_that_is_none_is_refused(runner, data, commits):
    runner.workspace = data("checkout", {})
    runner.install("asv", ASV)
    assert runner.run("perf-history.yml", MEASURING, COMMITS=commits, RETRY="false").returncode == 2
    assert not (runner.temp / "said").exists()


@pytest.mark.parametrize("place", [MEASURING, "measure/Calibrate"])
def test_a_job_goes_from_device_to_device_whatever_happens_on_one(runner, data, place):
    runner.workspace = data("checkout", {})
    # It reads all that there is to read: the list of devices must not be among it.
    each = """cat; said="$HARNESS_DEVICE $*"; echo "$said" >> "$RUNNER_TEMP/said"; [[ $said != *cuda:0* ]]"""
    runner.install("asv", f"{each} || exit 2")
    runner.install("harness", f"{each} || exit 2")
    (runner.temp / "devices").write_text("cuda:0\nopengl:0\n")
    assert runner.run("perf-history.yml", place, COMMITS="1", RETRY="false").returncode == 2
    said = (runner.temp / "said").read_text().splitlines()
    assert [re.findall(r"\b(?:cuda|opengl):0", line) for line in said] == [["cuda:0"], ["opengl:0"]]


def test_a_job_without_any_device_that_works_stops_before_it_measures(runner):
    runner.install("harness", "exit 3")
    assert runner.run("perf-history.yml", "measure/Which devices work", DEVICES="cuda:0").returncode == 3


def test_pages_are_not_made_without_results(runner, data):
    runner.workspace = data("checkout", {})
    done = runner.run("pages.yml", "build/Fetch the results")
    assert done.returncode == 3
    assert "Performance history" in done.stdout


def test_pages_are_made_of_all_results(runner, data):
    runner.workspace = data("checkout", {"card/a.json": "a"})
    assert runner.run("pages.yml", "build/Fetch the results").returncode == 0
    assert (runner.workspace / ".asv" / "results" / "card" / "a.json").read_text() == "a"


def test_the_cards_of_the_repository_become_the_jobs_of_its_workflows(runner, monkeypatch):
    programs = Path(sys.executable).parent
    if not (programs / "harness").exists():
        pytest.skip("the command is not installed here")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    done = runner.run("perf-pr.yml", "plan/Which cards", FLEET=str(GITHUB / "fleet.json"), CASES="")
    assert done.returncode == 0, done.stderr
    cards = json.loads(runner.outputs["matrix"])["card"]
    assert runner.outputs["count"] == str(len(cards))
    used = set(re.findall(r"matrix\.card\.(\w+)", text_of("perf-pr.yml") + text_of("perf-history.yml")))
    assert all(used <= set(card) for card in cards)


# What they install

PINNED = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)( ; .+?)? \\")


def pins(name: str) -> dict[str, set[str]]:
    """Names and versions of a file of requirements: all are exact, and each has its hashes."""
    found: dict[str, set[str]] = {}
    after = True
    for line in (GITHUB / "requirements" / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("    --hash=sha256:"):
            after = True
        elif not line.startswith("#"):
            pin = PINNED.fullmatch(line)
            assert pin, line
            assert after, f"{line} follows one without a hash"
            after = False
            found.setdefault(pin["name"], set()).add(pin["version"])
    assert after
    return found


def required(*extras: str) -> dict[str, Any]:
    """Return the project's requirements by name."""
    requirements = pytest.importorskip("packaging.requirements")
    if sys.version_info < (3, 11):
        import tomli as tomllib
    else:
        import tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in extras for each in project["optional-dependencies"][extra]),
    ]
    return {each.name.lower(): each.specifier for each in map(requirements.Requirement, wanted)}


@pytest.mark.parametrize(("name", "extras"), [("report.txt", ()), ("measure.txt", ("asv",))])
def test_what_the_project_needs_is_pinned_by_hash(name, extras):
    pinned = pins(name)
    assert "hatchling" in pinned
    for wanted, specifier in required(*extras).items():
        assert pinned.get(wanted), f"{name} lacks {wanted}"
        assert all(specifier.contains(version, prereleases=True) for version in pinned[wanted])


def test_what_makes_the_documentation_is_pinned_by_hash():
    pinned = pins("../../docs/site/requirements.txt")
    for wanted, specifier in required("docs").items():
        if wanted != "tomli":  # of an older Python than that of the workflow
            assert all(specifier.contains(version) for version in pinned[wanted])


def test_jobs_with_the_card_have_the_versions_of_the_others():
    report, measure = pins("report.txt"), pins("measure.txt")
    assert {name: measure.get(name) for name in report} == report


def test_no_requirement_names_an_index():
    for path in (GITHUB / "requirements").iterdir():
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert not [line for line in lines if "://" in line or line.startswith("-")]
