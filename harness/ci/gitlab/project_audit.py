"""Audits a project's protections and its cards at GitLab, through its API.

A merge request's pipeline takes its jobs from the merge request's own .gitlab-ci.yml. So runner and token of
a card must be limited to protected branches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harness.ci.audit_findings import Asking, AuditFinding, Protection, audited, should
from harness.ci.data_branch.data_git import BRANCH
from harness.ci.forge import Api, ApiError, quoted
from harness.ci.gitlab.gitlab_api import GITLAB, path_of

_MAINTAINER = 40
_NEEDS = "read_api as a maintainer"
ENVIRONMENT = "perf-report"
"""Environment of the jobs that post and store, which run no code of a merge request."""
_TAG = "gpu"
"""Prefix of the tag of a runner with a card, as in the shipped pipeline."""


def audit(api: Api, project: str, *, relied_only: bool = False) -> list[AuditFinding]:
    """Return existing and missing protections. Raises RemoteError if GitLab does not answer at all."""
    about = api.get(path_of(project), dict[str, Any], needs="read_api")
    return audited(Asking(api, path_of, project, about), _PROTECTIONS, relied_only=relied_only)


Find = Callable[[Asking], Iterator[AuditFinding]]


def _every(asking: Asking, *parts: str) -> list[Any]:
    """Return all pages of a list. Raises ApiError."""
    pages = asking.api.pages(path_of(asking.repository, *parts), list[Any], needs=_NEEDS)
    return [each for page in pages for each in page]


def _protected(branch: str = "") -> Find:
    """Return a check that only maintainers push to a branch, by default the default branch, without force."""

    def find(asking: Asking) -> Iterator[AuditFinding]:
        name = branch or asking.default_branch
        to_do = f"Settings, Repository, Protected branches, {name}: maintainers push, without force"
        found = asking.is_there("protected_branches", name, needs=_NEEDS)
        if found is None:
            yield should(False, "not protected", to_do)
            return
        lower = [
            quoted(str(each.get("access_level_description")))
            for each in found.get("push_access_levels", ())
            if 0 < (each.get("access_level") or 0) < _MAINTAINER
        ]
        faults = [f"pushed to by {', '.join(lower)}"] if lower else []
        faults += ["force pushes are allowed"] if found.get("allow_force_push") else []
        yield should(not faults, "; ".join(faults) or "protected", to_do)

    return find


def _runner(asking: Asking, number: int) -> Mapping[str, Any]:
    """Return GitLab's description of a runner; empty for others' runners, which only their owners see."""
    try:
        return asking.api.get(f"/runners/{number}", dict[str, Any], needs=_NEEDS)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return {}


def _runners(asking: Asking) -> Iterator[AuditFinding]:
    details = [_runner(asking, int(each["id"])) for each in _every(asking, "runners")]
    cards = [each for each in details if any(str(tag).startswith(_TAG) for tag in each.get("tag_list", ()))]
    if not cards:
        seen = f"none has a tag that begins with {_TAG}: nothing is measured"
        yield AuditFinding(state="unknown", seen=seen)
        return

    def those(what: str, bad: Callable[[Mapping[str, Any]], object], fault: str, to_do: str) -> AuditFinding:
        named = [f"{quoted(str(each.get('description')))} ({each.get('id')})" for each in cards if bad(each)]
        seen = f"{', '.join(named)} {fault}" if named else f"all {len(cards)}"
        return should(not named, seen, f"Settings, CI/CD, Runners: {to_do}", what=what)

    yield those(
        "runners are this project's",
        lambda each: (
            each.get("runner_type") != "project_type"
            or not each.get("locked")
            or len(each.get("projects", ())) > 1
        ),
        "may take jobs of other projects",
        "a project runner of this one alone, locked to it",
    )
    yield those(
        "runners are protected",
        lambda each: each.get("access_level") != "ref_protected",
        "take jobs of every branch, and so what any member has pushed",
        "Protected, so that only a maintainer starts a measurement",
    )
    yield those(
        "runners take tagged jobs",
        lambda each: each.get("run_untagged", True),
        "take jobs without a tag",
        "no untagged jobs: others would wait for the card, and keep it busy",
    )


_VARIABLES = "Settings, CI/CD, Variables"
_OURS = re.compile(rf"{GITLAB.credential}\Z|PERF_")
"""The token, which has its own finding, and settings of the shipped pipeline, which are not secret."""


def _token(asking: Asking) -> Iterator[AuditFinding]:
    ours = [each for each in _every(asking, "variables") if each.get("key") == GITLAB.credential]
    faults = [] if ours else ["there is none: nothing is posted"]
    faults += [] if all(each.get("protected") for each in ours) else ["every branch's jobs have it"]
    faults += [] if all(each.get("masked") for each in ours) else ["logs may show it"]
    faults += ["jobs with a card have it"] if any(map(_for_every_job, ours)) else []
    to_do = f"{_VARIABLES}, {GITLAB.credential}: protected, masked, and of the environment {ENVIRONMENT}"
    seen = "; ".join(faults) or f"protected, masked, of {ENVIRONMENT}"
    yield should(not faults, seen, to_do)


def _for_every_job(variable: Mapping[str, Any]) -> bool:
    return bool(variable.get("environment_scope", "*") == "*")


def _other_variables(asking: Asking) -> Iterator[AuditFinding]:
    others = [each for each in _every(asking, "variables") if not _OURS.match(str(each.get("key")))]
    count = sum(map(_for_every_job, others))
    seen = f"{count} in every job, those with a card too" if count else f"{len(others)}, of environments"
    to_do = f"{_VARIABLES}: give what is secret an environment, as a stranger's suite can read the others"
    yield should(not count, seen, to_do)


def _setting(what: str, name: str, good: Sequence[Any], seen: Mapping[Any, str], to_do: str) -> Protection:
    """Return a check that a project setting has one of the good values."""

    def find(asking: Asking) -> Iterator[AuditFinding]:
        if name not in asking.about:
            unseen = "not seen: ask with a maintainer's token, or a newer GitLab"
            yield AuditFinding(state="unknown", seen=unseen)
            return
        value = asking.about[name]
        yield should(value in good, seen.get(value, quoted(str(value))), to_do)

    return Protection(what, find)


def _job_tokens(asking: Asking) -> Iterator[AuditFinding]:
    limited = bool(asking.get("job_token_scope", needs=_NEEDS).get("inbound_enabled"))
    seen = "of chosen projects alone" if limited else "every project's jobs may use theirs here"
    to_do = "Settings, CI/CD, Job token permissions: only this project and the allowlist"
    yield should(limited, seen, to_do)


def _approvals(asking: Asking) -> Iterator[AuditFinding]:
    rules = _every(asking, "approval_rules")
    most = max((int(each.get("approvals_required") or 0) for each in rules), default=0)
    page = "Settings, Merge requests, Approvals (Premium)"
    yield should(most > 0, f"{most} required", f"{page}: at least one")
    found = asking.get("approvals", needs=_NEEDS)
    faults = ["a push keeps them"] if not found.get("reset_approvals_on_push") else []
    faults += ["authors may approve"] if found.get("merge_requests_author_approval") else []
    to_do = f"{page}: remove them when commits are added, none by the author"
    yield should(not faults, "; ".join(faults) or "yes", to_do, what="approvals are of the merged commit")


_PROTECTIONS = (
    Protection("branch {branch}", _protected(), relied=True),
    Protection("runners with a card", _runners, relied=True),
    Protection(f"variable {GITLAB.credential}", _token, relied=True),
    _setting(
        "pipelines of forks",
        "ci_allow_fork_pipelines_to_run_in_parent_project",
        (False,),
        {True: "a member may run a fork's .gitlab-ci.yml here", False: "run in the fork alone"},
        "by API: PUT /projects/:id with ci_allow_fork_pipelines_to_run_in_parent_project = false",
    ),
    _setting(
        "who sets variables",
        "ci_pipeline_variables_minimum_override_role",
        ("maintainer", "owner"),
        {},
        "Settings, CI/CD, Variables: pipeline variables for maintainers, as one names the commit to measure",
    ),
    _setting(
        "job tokens do not push",
        "ci_push_repository_for_job_token_allowed",
        (False,),
        {True: "they may", False: "they may not"},
        "Settings, CI/CD, Job token permissions: no Git push, as a suite can read its job's token",
    ),
    _setting(
        "merging waits for pipelines",
        "only_allow_merge_if_pipeline_succeeds",
        (True,),
        {True: "yes", False: "no", None: "no"},
        "Settings, Merge requests: pipelines must succeed",
    ),
    _setting(
        "caches of protected branches",
        "ci_separated_caches",
        (True,),
        {True: "their own", False: "shared with every branch's jobs"},
        "Settings, CI/CD, General pipelines: separate caches for protected branches",
    ),
    _setting(
        "artifacts expire",
        "keep_latest_artifact",
        (False,),
        {True: "not the newest of each branch, whatever a job says", False: "as their jobs say"},
        "Settings, CI/CD, Artifacts: do not keep the most recent ones",
    ),
    Protection("other variables", _other_variables),
    Protection("job tokens", _job_tokens),
    Protection("approvals", _approvals),
    Protection(f"branch {BRANCH}", _protected(BRANCH)),
)
