"""`harness ci audit` on repositories with good and bad settings. The answers have the form that GitHub's
documentation shows for each of these addresses.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from harness.ci import forge as forge_api
from tests.github_reports import WAITS
from tests.github_server import REPOSITORY, TOKEN, GitHub, serving
from tests.support import make_repository


def environment(name: str, *, reviewers: int = 0, branches: bool = True) -> dict[str, Any]:
    policy = {"protected_branches": False, "custom_branch_policies": True}
    who = [{"type": "User", "reviewer": {"login": f"person-{number}"}} for number in range(reviewers)]
    rules = [{"id": 1, "type": "required_reviewers", "prevent_self_review": True, "reviewers": who}]
    return {
        "id": 1,
        "name": name,
        "can_admins_bypass": False,
        "protection_rules": [*(rules if who else []), {"id": 2, "type": "branch_policy"}],
        "deployment_branch_policy": policy if branches else None,
    }


def policies(*names: str) -> dict[str, Any]:
    listed = [{"id": number, "name": name, "type": "branch"} for number, name in enumerate(names)]
    return {"total_count": len(listed), "branch_policies": listed}


def requiring(*sources: int | None, name: str = "GPU performance") -> list[dict[str, Any]]:
    """Return the rules of a default branch that requires a check by one of these Apps."""
    checks = [
        {"context": name, **({} if source is None else {"integration_id": source})} for source in sources
    ]
    about = {"strict_required_status_checks_policy": False, "required_status_checks": checks}
    [made] = rules("required_status_checks")
    return [*rules("pull_request", "non_fast_forward"), {**made, "parameters": about}]


def rules(*types: str) -> list[dict[str, Any]]:
    return [{"type": each, "ruleset_source_type": "Repository", "ruleset_id": 42} for each in types]


WELL: dict[str, Any] = {
    "": {"full_name": REPOSITORY, "default_branch": "main", "private": False},
    "/environments/gpu": environment("gpu", reviewers=2),
    "/environments/gpu/deployment-branch-policies": policies("perf-dispatch"),
    "/environments/gpu/secrets": {"total_count": 0, "secrets": []},
    "/environments/gpu-history": environment("gpu-history"),
    "/environments/gpu-history/deployment-branch-policies": policies("main"),
    "/actions/secrets": {"total_count": 0, "secrets": []},
    "/actions/permissions": {"enabled": True, "allowed_actions": "all", "sha_pinning_required": True},
    "/actions/permissions/workflow": {
        "default_workflow_permissions": "read",
        "can_approve_pull_request_reviews": False,
    },
    "/actions/permissions/fork-pr-contributor-approval": {"approval_policy": "all_external_contributors"},
    "/rules/branches/main": rules("pull_request", "non_fast_forward", "deletion"),
    "/rules/branches/perf-dispatch": rules("update"),
    "/rules/branches/pull-request/1": rules("creation", "update", "deletion"),
    "/rules/branches/perf-data": rules("non_fast_forward", "deletion"),
    "/actions/runners": {"total_count": 1, "runners": [{"id": 1, "name": "gpu1-7", "ephemeral": True}]},
    "/actions/caches": {"total_count": 1, "actions_caches": [{"id": 1, "ref": "refs/heads/main"}]},
}
BADLY: dict[str, Any] = WELL | {
    "/environments/gpu": environment("gpu", branches=False) | {"can_admins_bypass": True},
    "/environments/gpu/secrets": {"total_count": 1, "secrets": [{"name": "TOKEN"}]},
    "/actions/secrets": {"total_count": 3, "secrets": []},
    "/actions/permissions": {"enabled": True, "allowed_actions": "all"},
    "/actions/permissions/workflow": {
        "default_workflow_permissions": "write",
        "can_approve_pull_request_reviews": True,
    },
    "/actions/permissions/fork-pr-contributor-approval": {"approval_policy": "first_time_contributors"},
    "/rules/branches/main": requiring(15368)[-1:],
    "/rules/branches/perf-dispatch": [],
    "/rules/branches/pull-request/1": rules("deletion"),
    "/rules/branches/perf-data": rules("deletion"),
    "/actions/runners": {"total_count": 1, "runners": [{"id": 1, "name": "pet", "ephemeral": False}]},
    "/actions/caches": {"total_count": 1, "actions_caches": [{"id": 1, "ref": "refs/heads/perf-dispatch"}]},
}
del BADLY["/environments/gpu-history"]
RELIED = {"environment gpu", "environment gpu-history", "no secrets of gpu"}


@pytest.fixture
def github():
    with serving() as server:
        server.settings = copy.deepcopy(WELL)
        yield server


@pytest.fixture
def audit(github: GitHub, tmp_path, monkeypatch, harness):
    monkeypatch.setattr(forge_api, "Waits", lambda: WAITS)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("GITHUB_API_URL", github.url)
    monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
    return lambda *words: harness("ci", "audit", *words, cwd=tmp_path)


def test_of_a_repository_that_is_kept_well_nothing_is_missing(audit):
    done = audit()
    assert (done.status, done.err) == (0, "")
    lines = [line for line in done.out.splitlines() if not line.startswith(" ")]
    assert sum(line.startswith("good  ") for line in lines) == len(lines) - 1
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert "good     environment gpu               for perf-dispatch" in done.out
    assert "unknown  runner groups " in done.out  # no organization has any here


def test_of_one_that_is_kept_badly_everything_is_told_with_what_to_do(github, audit):
    github.settings = BADLY
    done = audit("--json")
    assert done.status == 1
    found = {each["what"]: each for each in done.json}
    assert {what for what, each in found.items() if each["state"] == "good"} == set()
    assert all(each["to_do"] for each in found.values() if each["state"] == "missing")
    assert {what for what, each in found.items() if each["relied"]} == RELIED
    assert "without any protection" in found["environment gpu-history"]["seen"]
    assert found["environment gpu"]["seen"] == "for every branch"
    lines = audit().out.splitlines()
    assert sum("To do: " in line for line in lines) == len(found) - 1


@pytest.mark.parametrize(
    ("branches", "good"),
    [
        (["perf-dispatch"], True),
        (["perf-dispatch", "pull-request/*"], True),
        (["main", "perf-dispatch"], False),
        (["*"], False),
        ([], False),
    ],
)
def test_the_cards_are_for_the_branches_of_pull_requests_alone(github, audit, branches, good):
    """On the default branch a stranger's suite could write caches that others restore."""
    github.settings["/environments/gpu/deployment-branch-policies"] = policies(*branches)
    assert audit("--relied").status == (0 if good else 1)


APP = {"/actions/variables/PERF_APP_ID": {"name": "PERF_APP_ID", "value": "4242"}}


@pytest.mark.parametrize(
    ("app", "sources", "good", "seen"),
    [
        (APP, [4242], True, "GPU performance of App 4242"),
        (APP, [4242, None], False, "App 4242, anybody who may write checks"),
        (APP, [None], False, "anybody who may write checks"),
        (APP, [15368], False, "GitHub Actions: any workflow here"),
        (APP, [99], False, "App 99"),
        (APP, [], True, "no check of ours is required"),
        ({}, [], True, "no check of ours is required"),
        ({}, [15368], False, "GitHub Actions: any workflow here"),
        ({}, [99], False, "App 99"),
    ],
)
def test_whose_check_is_required_is_told(github, audit, app, sources, good, seen):
    report = {
        "/environments/perf-report": environment("perf-report"),
        "/environments/perf-report/deployment-branch-policies": policies("main"),
    }
    github.settings |= {**app, **report, "/rules/branches/main": requiring(*sources)}
    found = {each["what"]: each for each in audit("--json").json}
    assert (found["required check"]["state"] == "good") is good
    assert seen in found["required check"]["seen"]
    assert bool(found["required check"]["to_do"]) is not good
    assert ("environment perf-report" in found) is bool(app)


def test_a_check_of_another_name_is_none_of_ours(github, audit):
    github.settings["/rules/branches/main"] = requiring(15368, name="Tests")
    found = {each["what"]: each for each in audit("--json").json}
    assert found["required check"]["state"] == "good"


@pytest.mark.parametrize(
    ("branches", "good"), [(["main"], True), (["main", "perf-dispatch"], False), ([], False), (None, False)]
)
def test_an_app_s_key_is_for_the_default_branch_alone(github, audit, branches, good):
    github.settings |= APP
    if branches is not None:
        github.settings["/environments/perf-report"] = environment("perf-report")
        github.settings["/environments/perf-report/deployment-branch-policies"] = policies(*branches)
    done = audit("--json")
    found = {each["what"]: each for each in done.json}
    assert (found["environment perf-report"]["state"] == "good") is good
    assert done.status == (0 if good else 1)
    assert audit("--relied").status == 0  # no job with a card relies on it


@pytest.mark.parametrize(
    ("setting", "what", "lists", "bad"),
    [
        ("/actions/caches", "caches", "actions_caches", {"ref": "refs/heads/pull-request/7"}),
        ("/actions/runners", "runners", "runners", {"name": "pet", "ephemeral": False}),
    ],
)
def test_one_of_many_that_is_bad_is_told(github, audit, setting, what, lists, bad):
    """GitHub lists thirty at a time, a hundred where it is asked for them."""
    [good] = WELL[setting][lists]
    github.settings[setting] = {"total_count": 131, lists: [*([good] * 130), good | bad]}
    found = {each["what"]: each for each in audit("--json").json}
    assert found[what]["state"] == "missing"


def test_what_the_token_may_not_see_is_unknown_and_not_missing(github, audit):
    """A workflow's own token may read environments, but not their secrets or settings."""
    github.unseen = (
        "/environments/gpu/secrets",
        "/actions/permissions",
        "/actions/secrets",
        "/actions/runners",
    )
    done = audit("--json")
    assert done.status == 0
    states = {each["what"]: each["state"] for each in done.json}
    assert states["no secrets of gpu"] == states["token by default"] == states["runners"] == "unknown"
    assert states["environment gpu"] == "good"


def test_in_a_workflow_what_jobs_rely_on_is_an_error_of_the_run(github, audit, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    del github.settings["/environments/gpu"]
    done = audit("--relied")
    assert done.status == 1
    assert done.err.startswith("::error title=A protection is missing::environment gpu: there is none")
    assert {each.path.removeprefix(f"/repos/{REPOSITORY}") for each in github.log} <= {
        "",
        "/environments/gpu",
        "/environments/gpu/secrets",
        "/environments/gpu-history",
        "/environments/gpu-history/deployment-branch-policies",
    }


def test_a_server_that_does_not_answer_is_an_error_and_no_leave(github, audit):
    github.trouble("GET", "/environments/gpu$", 500, times=99)
    assert audit("--relied").status == 3


def test_init_ends_with_what_is_there(github, audit, tmp_path, harness, monkeypatch):
    git = tmp_path / "theirs"
    make_repository(git)
    done = harness("ci", "init", "--harness", ".", cwd=git)
    assert done.status == 0
    assert "The settings of example/kernels" in done.out
    assert "good     environment gpu " in done.out
