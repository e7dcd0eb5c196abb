"""`harness ci audit` in a job of GitLab, on projects with good and bad settings. The answers have the form
that GitLab's documentation shows for each of these addresses.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from harness.ci import forge as forge_api
from tests.github_reports import WAITS
from tests.gitlab_server import PROJECT, TOKEN, job, serving

SECRET = "glpat-never-to-be-shown"


def branch(name: str, level: int = 40, *, force: bool = False) -> dict[str, Any]:
    told = {0: "No one", 30: "Developers + Maintainers", 40: "Maintainers"}[level]
    levels = [{"id": 1, "access_level": level, "access_level_description": told}]
    return {
        "id": 100,
        "name": name,
        "push_access_levels": levels,
        "merge_access_levels": levels,
        "allow_force_push": force,
        "code_owner_approval_required": False,
    }


def runner(number: int = 5, **over: Any) -> dict[str, Any]:
    return {
        "id": number,
        "description": "card-1",
        "paused": False,
        "is_shared": False,
        "runner_type": "project_type",
        "projects": [{"id": PROJECT, "path_with_namespace": "group/kernels"}],
        "tag_list": ["gpu-h200"],
        "run_untagged": False,
        "locked": True,
        "access_level": "ref_protected",
        **over,
    }


def variable(
    key: str, *, protected: bool = True, masked: bool = True, scope: str = "perf-report"
) -> dict[str, Any]:
    return {
        "variable_type": "env_var",
        "key": key,
        "value": SECRET,
        "protected": protected,
        "masked": masked,
        "hidden": False,
        "raw": True,
        "environment_scope": scope,
        "description": None,
    }


WELL: dict[str, Any] = {
    "": {
        "id": PROJECT,
        "path_with_namespace": "group/kernels",
        "default_branch": "main",
        "visibility": "public",
        "ci_allow_fork_pipelines_to_run_in_parent_project": False,
        "ci_pipeline_variables_minimum_override_role": "maintainer",
        "ci_push_repository_for_job_token_allowed": False,
        "ci_separated_caches": True,
        "keep_latest_artifact": False,
        "only_allow_merge_if_pipeline_succeeds": True,
    },
    "/protected_branches/main": branch("main"),
    "/protected_branches/perf-data": branch("perf-data"),
    "/runners": [{"id": 5, "description": "card-1", "runner_type": "project_type"}],
    "/runners/5": runner(),
    "/variables": [
        variable("GITLAB_TOKEN"),
        variable("PERF_STRICT", protected=False, masked=False, scope="*"),
    ],
    "/job_token_scope": {"inbound_enabled": True, "outbound_enabled": False},
    "/approval_rules": [{"id": 1, "name": "all", "rule_type": "any_approver", "approvals_required": 1}],
    "/approvals": {"reset_approvals_on_push": True, "merge_requests_author_approval": False},
}
BADLY: dict[str, Any] = WELL | {
    "": WELL[""]
    | {
        "ci_allow_fork_pipelines_to_run_in_parent_project": True,
        "ci_pipeline_variables_minimum_override_role": "developer",
        "ci_push_repository_for_job_token_allowed": True,
        "ci_separated_caches": False,
        "keep_latest_artifact": True,
        "only_allow_merge_if_pipeline_succeeds": False,
    },
    "/protected_branches/main": branch("main", 30, force=True),
    "/runners/5": runner(
        runner_type="group_type", locked=False, run_untagged=True, access_level="not_protected"
    ),
    "/variables": [variable("GITLAB_TOKEN", protected=False, masked=False), variable("KEY", scope="*")],
    "/job_token_scope": {"inbound_enabled": False, "outbound_enabled": False},
    "/approval_rules": [],
    "/approvals": {"reset_approvals_on_push": False, "merge_requests_author_approval": True},
}
del BADLY["/protected_branches/perf-data"]
RELIED = {
    "branch main",
    "runners are this project's",
    "runners are protected",
    "runners take tagged jobs",
    "variable GITLAB_TOKEN",
}


@pytest.fixture
def gitlab():
    with serving() as server:
        server.settings = copy.deepcopy(WELL)
        yield server


@pytest.fixture
def audit(gitlab, tmp_path, monkeypatch, harness):
    monkeypatch.setattr(forge_api, "Waits", lambda: WAITS)
    for name, value in job(gitlab).items():
        monkeypatch.setenv(name, value)

    def run(*words: str) -> Any:
        done = harness("ci", "audit", *words, cwd=tmp_path)
        assert TOKEN not in done.out + done.err
        assert SECRET not in done.out + done.err
        return done

    return run


def test_of_a_project_that_is_kept_well_nothing_is_missing(audit):
    done = audit()
    assert (done.status, done.err) == (0, "")
    assert all(line.startswith("good  ") for line in done.out.splitlines() if not line.startswith(" "))
    assert "good runners are protected all 1" in " ".join(done.out.split())


def test_of_one_that_is_kept_badly_everything_is_told_with_what_to_do(gitlab, audit):
    gitlab.settings = BADLY
    done = audit("--json")
    assert done.status == 1
    found = {each["what"]: each for each in done.json}
    assert {each["state"] for each in found.values()} == {"missing"}
    assert all(each["to_do"] for each in found.values())
    assert {what for what, each in found.items() if each["relied"]} == RELIED
    assert found["branch perf-data"]["seen"] == "not protected"
    assert found["runners are protected"]["seen"].startswith("card-1 (5) take jobs of every branch")
    assert {each["what"] for each in audit("--relied", "--json").json} == RELIED


@pytest.mark.parametrize(
    ("path", "answer", "what"),
    [
        ("/runners/5", runner(access_level="not_protected"), "runners are protected"),
        ("/runners/5", runner(run_untagged=True), "runners take tagged jobs"),
        ("/runners/5", runner(locked=False), "runners are this project's"),
        ("/runners/5", runner(projects=[{"id": 42}, {"id": 43}]), "runners are this project's"),
        ("/runners/5", runner(runner_type="instance_type", is_shared=True), "runners are this project's"),
        ("/variables", [variable("GITLAB_TOKEN", masked=False)], "variable GITLAB_TOKEN"),
        ("/variables", [variable("GITLAB_TOKEN", protected=False)], "variable GITLAB_TOKEN"),
        ("/variables", [variable("GITLAB_TOKEN", scope="*")], "variable GITLAB_TOKEN"),
        ("/variables", [], "variable GITLAB_TOKEN"),
        ("/protected_branches/main", branch("main", 30), "branch main"),
        ("/protected_branches/main", branch("main", force=True), "branch main"),
    ],
)
def test_one_fault_is_one_finding(gitlab, audit, path, answer, what):
    gitlab.settings[path] = answer
    assert [each["what"] for each in audit("--json").json if each["state"] == "missing"] == [what]
    assert audit("--relied").status == 1


def test_nobody_may_push_is_good(gitlab, audit):
    gitlab.settings["/protected_branches/main"] = branch("main", 0)
    assert audit().status == 0


def test_what_the_token_may_not_see_is_unknown_and_not_missing(gitlab, audit):
    """A developer's token, or a GitLab without Premium, cannot read these settings."""
    gitlab.unseen = ("/variables", "/job_token_scope", "/approval_rules", "/runners")
    del gitlab.settings[""]["keep_latest_artifact"]
    done = audit("--json")
    assert done.status == 0
    states = {each["what"]: each["state"] for each in done.json}
    unknown = {what for what, state in states.items() if state == "unknown"}
    assert unknown == {
        "variable GITLAB_TOKEN",
        "other variables",
        "job tokens",
        "approvals",
        "runners with a card",
        "artifacts expire",
    }


def test_runners_of_others_tell_nothing_of_the_card(gitlab, audit):
    gitlab.settings["/runners"].append({"id": 6, "description": "shared", "runner_type": "instance_type"})
    gitlab.settings["/runners/6"] = runner(6, runner_type="instance_type", tag_list=["docker"], locked=False)
    assert audit().status == 0
    gitlab.unseen = ("/runners/6",)
    assert "runners are protected all 1" in " ".join(audit().out.split())
    gitlab.settings["/runners/5"] = runner(tag_list=[])
    states = {each["what"]: each["state"] for each in audit("--json").json}
    assert states["runners with a card"] == "unknown"
