"""The pipeline that `harness ci init --gitlab` writes. Linters accept it, few of its jobs get the token, and
its scripts run as in a runner, with the variables that GitLab documents.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.ci.scaffold import scaffold
from harness.errors import UsageError
from tests.support import ROOT, commit, git, make_repository
from tests.test_workflows import lint
from tests.workflow_policy import OPEN_PYTHON

FILE = ROOT / "harness" / "ci" / "gitlab" / "perf.yml"
RUNNERS = frozenset(
    {
        "CARD",
        "DEVICES",
        "ARGUMENTS",
        "CI_COMMIT_SHA",
        "CI_DEFAULT_BRANCH",
        "CI_PROJECT_DIR",
        "CI_PROJECT_URL",
        "CI_REPOSITORY_URL",
        "CI_SERVER_URL",
    }
)
"""Defaults of a job."""
SCHEMA = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")


class _Loader(yaml.SafeLoader):
    """With GitLab's `!reference [job, key]`, as a tuple."""


_Loader.add_constructor(
    "!reference", lambda loader, node: tuple(loader.construct_object(each) for each in node.value)
)
PIPELINE: dict[str, Any] = yaml.load(FILE.read_text(encoding="utf-8"), _Loader)
JOBS = {
    name: PIPELINE.get(made.get("extends", ""), {}) | made
    for name, made in PIPELINE.items()
    if isinstance(made, dict) and name != "variables" and not name.startswith(".")
}
WITH_CARD = {name for name, made in JOBS.items() if "tags" in made}
WITH_TOKEN = {name for name, made in JOBS.items() if "environment" in made}


def script_of(lines: list[Any]) -> str:
    found = [script_of(PIPELINE[line[0]][line[1]]) if isinstance(line, tuple) else line for line in lines]
    return "\n".join(found)


def test_gitlabs_schema_accepts_it(tmp_path):
    done = lint("check-jsonschema", *SCHEMA, FILE)
    assert done.returncode == 0, done.stdout
    (tmp_path / "bad.yml").write_text(FILE.read_text().replace("parallel:", "paralel:"))
    assert lint("check-jsonschema", *SCHEMA, tmp_path / "bad.yml").returncode == 1


@pytest.mark.parametrize("name", JOBS)
def test_shellcheck_finds_nothing(name):
    job = JOBS[name]
    token = {"GITLAB_TOKEN"} if name in WITH_TOKEN else set()
    known = " ".join(sorted({*PIPELINE["variables"], *RUNNERS, *job.get("variables", {}), *token}))
    text = f"export {known}\nread -r {known}\n{script_of(job['script'])}"
    done = lint("shellcheck", "--shell=bash", "--enable=all", "--exclude=SC2250,SC2312", "-", text=text)
    assert done.stdout == ""
    assert job["script"][0] == "set -euo pipefail"


def test_no_job_has_both_the_card_and_the_token():
    """A suite can read every variable of the job that it runs in."""
    assert ({"perf-measure", "perf-history"}, {"perf-post", "perf-store"}) == (WITH_CARD, WITH_TOKEN)
    for name in WITH_TOKEN:
        assert JOBS[name]["environment"] == {"name": "perf-report", "action": "access"}
    for name in JOBS.keys() - WITH_TOKEN:
        assert "GITLAB_TOKEN" not in script_of(JOBS[name]["script"])


def test_the_job_with_the_token_unpacks_nothing_of_the_job_that_ran_strangers_code():
    assert JOBS["perf-post"]["needs"] == [{"job": "perf-measure", "artifacts": False}]


@pytest.mark.parametrize("name", JOBS)
def test_no_job_imports_modules_of_the_folder_that_it_works_in(name):
    assert not OPEN_PYTHON.findall(script_of(JOBS[name]["script"]))


def test_nothing_starts_by_itself_but_what_the_default_branch_or_a_variable_asks_for():
    for name, job in JOBS.items():
        conditions = [" ".join(rule["if"].split()) for rule in job["rules"]]
        assert conditions, name
        for condition in conditions:
            merged = condition.startswith("$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH && $PERF_")
            trusted = condition.startswith('$PERF_MEMBERS == "yes" && ')
            assert merged or trusted, condition
            if trusted:
                assert condition.endswith("$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID")


def test_everything_that_is_kept_expires_and_every_job_ends():
    for job in JOBS.values():
        assert job["timeout"]
        assert "artifacts" not in job or job["artifacts"]["expire_in"]


def test_what_is_posted_is_what_the_jobs_leave():
    from harness.ci.gitlab.measured_pipeline import JOB, REPORT
    from harness.ci.gitlab.project_audit import ENVIRONMENT

    assert REPORT in JOBS[JOB]["artifacts"]["paths"]
    assert {JOBS[name]["environment"]["name"] for name in WITH_TOKEN} == {ENVIRONMENT}


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "theirs")


PINNED = f"gpu-harness @ git+https://example.org/o/r@{'1' * 40}"


def test_init_writes_the_pipeline_and_what_it_installs(repository, harness):
    done = harness("ci", "init", "--gitlab", "--harness", PINNED, "--with", "tvm", cwd=repository)
    assert done.status == 0
    assert "PERF_MERGE_REQUEST=12" in done.out
    files = {path.relative_to(repository).as_posix() for path in repository.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith(".git/")} == {
        ".gitlab-ci.yml",
        ".gitlab/perf.yml",
        *(f".gitlab/requirements/{name}.txt" for name in ("harness", "measure", "report")),
    }
    assert (repository / ".gitlab" / "perf.yml").read_bytes() == FILE.read_bytes()
    assert yaml.safe_load((repository / ".gitlab-ci.yml").read_text()) == {
        "include": [{"local": ".gitlab/perf.yml"}]
    }
    assert "apache-tvm==" in (repository / ".gitlab/requirements/measure.txt").read_text()
    again = scaffold(repository, PINNED, gitlab=True)
    assert (again.written, again.extras, again.kept) == ((), ("tvm",), (".gitlab-ci.yml",))


def test_a_pipeline_that_is_there_is_kept(repository):
    (repository / ".gitlab-ci.yml").write_text("mine: {script: [make]}\n")
    assert scaffold(repository, PINNED, gitlab=True, force=True).kept == (".gitlab-ci.yml",)
    assert (repository / ".gitlab-ci.yml").read_text() == "mine: {script: [make]}\n"


def test_pytest_is_a_cards_argument_there(repository, harness):
    done = harness("ci", "init", "--gitlab", "--harness", PINNED, "--pytest", "tests", cwd=repository)
    assert (done.status, UsageError.__name__) == (2, "UsageError")
    assert "ARGUMENTS" in done.err


# The scripts, with the variables of GitLab's documentation; what they install is not installed.


HARNESS = """\
#!/bin/sh
echo "$@" >> "$CI_PROJECT_DIR/called"
env > "$CI_PROJECT_DIR/called.env"
[ "$2" != devices ] || echo "$3" | tr , '\\n'
exit "${HARNESS_ENDS:-0}"
"""
PYTHON = f"""\
#!/bin/sh
[ "$1 $3" = "-I venv" ] || exit 1
mkdir -p "$5/bin" && cd "$5/bin"
echo '#!/bin/sh' > python
cat > asv <<'END'
#!/bin/sh
mkdir -p .asv/results/card && echo "$HARNESS_DEVICE" >> .asv/results/card/new.json
[ "$HARNESS_DEVICE" != opengl:0 ]
END
cat > harness <<'END'
{HARNESS}END
chmod +x python asv harness
"""
"""In place of a virtual environment: a harness that writes down its words and its environment."""
INSTALLER = """\
#!/bin/sh
pwd -P >> "$CI_PROJECT_DIR/installed"
cat "$PERF_REQUIREMENTS/harness.txt" >> "$CI_PROJECT_DIR/installed"
"""
"""In place of pip: it writes down its folder and the requirements that it finds there."""


@pytest.fixture
def runner(tmp_path):
    """A clone as a runner makes it, of a project with a merge request, and programs that tell how they are
    called.
    """
    origin = make_repository(tmp_path / "origin")
    base = commit(origin, {"a": "1", ".gitlab/requirements/harness.txt": "the default branch's\n"}, day=1)
    branch = git(origin, "symbolic-ref", "--short", "HEAD")
    head = commit(origin, {"a": "2"}, day=2)
    git(origin, "update-ref", "refs/merge-requests/12/head", head)
    git(origin, "reset", "--quiet", "--hard", base)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--single-branch", str(origin), str(clone))
    programs = tmp_path / "bin"
    programs.mkdir()
    python = programs / "python3"
    python.write_text(PYTHON)
    (programs / "python").write_text(INSTALLER)
    (programs / "harness").write_text(HARNESS)
    for program in programs.iterdir():
        program.chmod(0o755)
    return clone, programs, branch, head


def run(runner: Any, name: str, **over: str) -> subprocess.CompletedProcess[str]:
    clone, programs, branch, head = runner
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(clone.parent),
        "CI_PROJECT_DIR": str(clone),
        "CI_COMMIT_SHA": head,
        "CI_DEFAULT_BRANCH": branch,
        "CI_JOB_TOKEN": "secret",
        "CI_REPOSITORY_URL": "https://gitlab-ci-token:secret@gitlab.example/x.git",
        "CARD": "my-card",
        "DEVICES": "cuda:0,opengl:0",
        "ARGUMENTS": "matmul.* --quick",
        **{key: str(value) for key, value in PIPELINE["variables"].items()},
        **over,
    }
    script = script_of(JOBS[name]["script"])
    return subprocess.run(
        ["bash", "-c", script], env=variables, cwd=clone, capture_output=True, text=True, check=False
    )


def told(clone: Path) -> tuple[str, str]:
    """The last words to the harness, and its environment."""
    return (clone / "called").read_text().splitlines()[-1], (clone / "called.env").read_text()


def test_the_commit_that_a_maintainer_names_is_measured(runner):
    clone, _, branch, head = runner
    done = run(runner, "perf-measure", PERF_MERGE_REQUEST="12", PERF_COMMIT=head)
    assert done.returncode == 0, done.stderr
    words, environment = told(clone)
    assert words == (
        f"ci compare matmul.* --quick --device cuda:0,opengl:0 --base origin/{branch} --head {head} "
        "--out perf-review"
    )
    assert "secret" not in environment
    assert git(clone, "cat-file", "-t", head) == "commit"  # a fork's too: it is on no branch


def test_in_a_merge_requests_own_pipeline_it_is_the_commit_of_that(runner):
    clone, _, branch, head = runner
    own = {"CI_MERGE_REQUEST_IID": "12", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": branch}
    merged_results = {"CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": head, "CI_COMMIT_SHA": "9" * 40}
    for more in ({}, {"CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": ""}, merged_results):
        assert run(runner, "perf-measure", **own, **more).returncode == 0
        assert f"--head {head} " in told(clone)[0]


@pytest.mark.parametrize(
    ("number", "sha"),
    [("12; touch x", "1" * 40), ("12", "main"), ("12", ""), ("-1", "1" * 40), ("", "1" * 40)],
)
def test_what_is_no_number_or_no_hash_is_refused_and_not_printed(runner, number, sha):
    done = run(runner, "perf-measure", PERF_MERGE_REQUEST=number, PERF_COMMIT=sha, CI_COMMIT_SHA="HEAD")
    assert done.returncode == 2
    assert "touch" not in done.stdout + done.stderr
    assert not (runner[0] / "called").exists()


@pytest.mark.parametrize("status", [1, 3, 4])
def test_a_verdict_does_not_fail_the_pipeline_and_a_mistake_does(runner, status):
    done = run(
        runner, "perf-measure", PERF_MERGE_REQUEST="12", PERF_COMMIT=runner[3], HARNESS_ENDS=str(status)
    )
    assert done.returncode == status
    assert JOBS["perf-measure"]["allow_failure"] == {"exit_codes": [1, 3, 4]}


def test_a_night_hands_on_what_is_new_whatever_happens_on_one_device(runner):
    clone, _, branch, _ = runner
    origin = Path(git(clone, "remote", "get-url", "origin"))
    git(origin, "checkout", "--quiet", "--orphan", "perf-data")
    commit(origin, {"card/old.json": "kept"}, day=3)
    git(origin, "checkout", "--quiet", "--force", branch)
    done = run(runner, "perf-history", PERF_HISTORY="yes", PERF_COMMITS="20")
    assert done.returncode == 1, done.stderr  # asv's on the second device
    results = clone / "perf-results" / "my-card"
    assert {path.relative_to(results).as_posix() for path in results.rglob("*.json")} == {"card/new.json"}
    assert (results / "card" / "new.json").read_text().split() == ["cuda:0", "opengl:0"]
    assert told(clone)[0] == "ci measured perf-results/my-card"


def store(runner: Any) -> subprocess.CompletedProcess[str]:
    """Run the job that stores results, with a repository that it can clone."""
    clone = runner[0]
    return run(
        runner,
        "perf-store",
        GITLAB_TOKEN="glpat-x",
        CI_SERVER_URL="https://gitlab.example",
        CI_PROJECT_URL="https://gitlab.example/group/kernels",
        CI_REPOSITORY_URL=f"file://{clone.parent / 'origin'}",
        TMPDIR=str(clone.parent),
    )


def test_what_each_card_measured_is_stored_by_the_token_and_for_its_host_alone(runner):
    clone = runner[0]
    for card in ("one", "two"):
        (clone / "perf-results" / card).mkdir(parents=True)
    done = store(runner)
    assert done.returncode == 0, done.stderr
    assert (clone / "called").read_text().splitlines() == [
        f"ci store --from {clone}/perf-results/{card}/ --branch perf-data "
        "--remote https://gitlab.example/group/kernels.git"
        for card in ("one", "two")
    ]
    environment = told(clone)[1]
    assert "GITHUB_TOKEN=glpat-x" in environment
    assert "GITHUB_SERVER_URL=https://gitlab.example" in environment


def test_what_artifacts_put_into_the_checkout_is_not_installed_and_not_run(runner):
    clone = runner[0]
    (clone / "perf-results" / "one").mkdir(parents=True)
    (clone / ".gitlab" / "requirements" / "harness.txt").write_text("a stranger's\n")
    (clone / ".git" / "config").write_text("no configuration of git's\n")
    done = store(runner)
    assert done.returncode == 0, done.stderr
    folder, *read = (clone / "installed").read_text().splitlines()
    assert clone not in Path(folder).parents
    assert read == ["the default branch's", folder, "the default branch's"]
