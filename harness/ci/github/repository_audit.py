"""Audits a repository's protections and its cards at GitHub, through its API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.ci.audit_findings import Asking, AuditFinding, Protection, audited, should
from harness.ci.data_branch.data_git import BRANCH
from harness.ci.forge import Api, quoted
from harness.ci.github.github_api import path_of
from harness.ci.github.posting import ACTIONS_APP
from harness.ci.github.workflow_events import DISPATCH_BRANCH
from harness.report.pull_request.faces import check_name

REPORT_ENVIRONMENT = "perf-report"
"""Environment with the key of an App, if an App posts the check runs."""
_APP_VARIABLE = "PERF_APP_ID"
_MIRRORS = "pull-request/*"


def audit(api: Api, repository: str, *, relied_only: bool = False) -> list[AuditFinding]:
    """Return existing and missing protections. Raises RemoteError if GitHub does not answer at all."""
    about = api.get(path_of(repository), dict[str, Any], needs="metadata: read")
    return audited(Asking(api, path_of, repository, about), _PROTECTIONS, relied_only=relied_only)


Find = Callable[[Asking], Iterator[AuditFinding]]


def _every(asking: Asking, path: str, name: str, *, needs: str) -> list[Any]:
    """Return all pages of a list, which the answers hold under a name. Raises ApiError."""
    pages = asking.api.pages(path, dict[str, Any], needs=needs)
    return [each for page in pages for each in page.get(name, ())]


def _environment(name: str, why: str, branches: Sequence[str] = ()) -> Find:
    """Return a check that an environment is only for these branches, or only for the default branch."""

    def find(asking: Asking) -> Iterator[AuditFinding]:
        found = asking.is_there("environments", name, needs="actions: read")
        wanted = branches or (asking.default_branch,)
        to_do = f"Settings, Environments, {name}: deployment branches {', '.join(wanted)} and no others"
        if found is None:
            seen = "there is none: GitHub makes it when a job names it, without any protection"
            yield should(False, seen, to_do)
            return
        allowed = _branches(asking, name, found)
        good = bool(allowed) and set(allowed) <= set(wanted)
        seen = f"for {', '.join(map(quoted, allowed)) or 'every branch'}"
        yield should(good, seen, f"{to_do}: {why}")

    return find


def _branches(asking: Asking, name: str, found: Any) -> list[str]:
    """Return the branches whose jobs may use an environment; empty for all."""
    policy = found.get("deployment_branch_policy")
    if not policy:
        return []
    if policy.get("protected_branches"):
        return ["protected branches"]
    listed = asking.get("environments", name, "deployment-branch-policies", needs="actions: read")
    return [str(each.get("name")) for each in listed.get("branch_policies", ())]


def _reviewers(asking: Asking) -> Iterator[AuditFinding]:
    found = asking.is_there("environments", "gpu", needs="actions: read") or {}
    rules = [rule for rule in found.get("protection_rules", ()) if rule.get("type") == "required_reviewers"]
    count = sum(len(rule.get("reviewers", ())) for rule in rules)
    yield should(
        count > 0,
        f"{count} people or teams" if count else "none: /perf alone decides",
        "Settings, Environments, gpu: required reviewers (public repositories, and Enterprise Cloud)",
    )
    if found:
        bypass = bool(found.get("can_admins_bypass", True))
        to_do = "Settings, Environments, gpu: do not allow administrators to bypass"
        seen = "administrators may" if bypass else "nobody may"
        yield should(not bypass, seen, to_do, what="no bypass of gpu")


def _secrets(asking: Asking) -> Iterator[AuditFinding]:
    found = asking.get("environments", "gpu", "secrets", needs="environments: read")
    count = int(found.get("total_count", 0))
    to_do = "Settings, Environments, gpu: remove its secrets, a job there is a stranger's"
    yield should(not count, f"{count} secrets" if count else "none", to_do)


def _repository_secrets(asking: Asking) -> Iterator[AuditFinding]:
    count = int(asking.get("actions", "secrets", needs="secrets: read").get("total_count", 0))
    to_do = "move them into environments that the default branch alone may use"
    yield should(not count, f"{count} secrets" if count else "none", to_do)


def _token(asking: Asking) -> Iterator[AuditFinding]:
    found = asking.get("actions", "permissions", "workflow", needs="administration: read")
    level = quoted(str(found.get("default_workflow_permissions")))
    page = "Settings, Actions, General, Workflow permissions"
    yield should(level == "read", level, f"{page}: read repository contents")
    approves = bool(found.get("can_approve_pull_request_reviews"))
    seen = "may approve" if approves else "may not approve"
    to_do = f"{page}: no creating or approving"
    yield should(not approves, seen, to_do, what="no approval by workflows")


def _pinning(asking: Asking) -> Iterator[AuditFinding]:
    found = asking.get("actions", "permissions", needs="administration: read")
    pinned = bool(found.get("sha_pinning_required"))
    to_do = "Settings, Actions, General: require actions to be pinned to a full-length commit SHA"
    yield should(pinned, "required" if pinned else "not required", to_do)


def _forks(asking: Asking) -> Iterator[AuditFinding]:
    if asking.about.get("private"):
        parts = ("actions", "permissions", "fork-pr-workflows-private-repos")
        found = asking.get(*parts, needs="administration: read")
        given = [
            name
            for name in ("send_write_tokens_to_workflows", "send_secrets_and_variables")
            if found.get(name)
        ]
        to_do = "Settings, Actions, General, Fork pull request workflows: no write tokens and no secrets"
        seen = ", ".join(given).replace("_", " ") or "get no write tokens and no secrets"
        yield should(not given, seen, to_do)
        return
    parts = ("actions", "permissions", "fork-pr-contributor-approval")
    policy = quoted(str(asking.get(*parts, needs="administration: read").get("approval_policy")))
    to_do = "Settings, Actions, General: require approval for all external contributors"
    good = policy == "all_external_contributors"
    yield should(good, f"approval for {policy.replace('_', ' ')}", to_do)


def _rules(wanted: Sequence[str], to_do: str, branch: str = "") -> Find:
    """Return a check that a branch, by default the default branch, has rules of these types."""

    def find(asking: Asking) -> Iterator[AuditFinding]:
        found = asking.get("rules", "branches", branch or asking.default_branch, needs="metadata: read")
        types = {str(rule.get("type")) for rule in found}
        lacking = [each for each in wanted if each not in types]
        seen = f"no rule for {', '.join(lacking)}" if lacking else ", ".join(wanted)
        yield should(not lacking, seen.replace("_", " "), to_do)

    return find


def _app(asking: Asking) -> int:
    """Return the id of the App that posts check runs; 0 without one. Raises ApiError."""
    found = asking.is_there("actions", "variables", _APP_VARIABLE, needs="variables: read") or {}
    number = str(found.get("value", ""))
    return int(number) if number.isdecimal() else 0


_report_environment = _environment(REPORT_ENVIRONMENT, "the key is for what was merged")


def _key(asking: Asking) -> Iterator[AuditFinding]:
    """Yield findings on the branches that may use the App's key."""
    if _app(asking):
        yield from _report_environment(asking)


def _required(asking: Asking) -> Iterator[AuditFinding]:
    """Yield findings on the Apps whose check of our name a ruleset requires."""
    found = asking.get("rules", "branches", asking.default_branch, needs="metadata: read")
    sources = [
        check.get("integration_id")
        for rule in found
        if rule.get("type") == "required_status_checks"
        for check in (rule.get("parameters") or {}).get("required_status_checks", ())
        if check.get("context") == check_name()
    ]
    if not sources:
        yield should(True, "no check of ours is required for merging", "")
        return
    app = _app(asking)
    named = {None: "anybody who may write checks", ACTIONS_APP: "GitHub Actions: any workflow here"}
    owners = (named.get(each, f"App {each}") for each in sources)
    seen = f"{check_name()} of {', '.join(dict.fromkeys(owners))}"
    source = f"App {app}" if app else "an App of your own, docs/pull-requests.md,"
    to_do = f"Settings, Rules, the required check {check_name()}: {source} as its source"
    yield should(app and set(sources) == {app}, seen, to_do)


def _runners(asking: Asking) -> Iterator[AuditFinding]:
    path = path_of(asking.repository, "actions", "runners")
    found = _every(asking, path, "runners", needs="administration: read")
    kept = [quoted(str(each.get("name"))) for each in found if each.get("ephemeral") is False]
    to_do = "register runners for one job each: docs/runners.md, Registration"
    seen = f"{', '.join(kept)} take more than one job" if kept else f"{len(found)}, for one job each"
    yield should(not kept, seen, to_do)


def _groups(asking: Asking) -> Iterator[AuditFinding]:
    owner = asking.repository.partition("/")[0]
    path = f"/orgs/{owner}/actions/runner-groups"
    wide = [
        quoted(str(group.get("name")))
        for group in _every(asking, path, "runner_groups", needs="runners: read")
        if group.get("visibility") == "all" and group.get("allows_public_repositories")
    ]
    to_do = "organization, Actions, Runner groups: cards in a group of this repository alone"
    seen = (
        f"{', '.join(wide)} take jobs of every repository, public ones too"
        if wide
        else "for chosen repositories"
    )
    yield should(not wide, seen, to_do)


def _caches(asking: Asking) -> Iterator[AuditFinding]:
    path = path_of(asking.repository, "actions", "caches")
    listed = _every(asking, path, "actions_caches", needs="actions: read")
    # Our workflows write none there, so an untrusted suite must have done it.
    written = [each for each in listed if str(each.get("ref")) == f"refs/heads/{DISPATCH_BRANCH}"]
    written += [each for each in listed if str(each.get("ref")).startswith("refs/heads/pull-request/")]
    to_do = "find out which pull request wrote them, and delete them (gh cache delete)"
    seen = f"{len(written)} of pull requests' runs" if written else "no cache of pull requests' runs"
    yield should(not written, seen, to_do)


_PROTECTIONS = (
    Protection(
        "environment gpu",
        _environment(
            "gpu",
            "from another one a job with the card could write caches, or be anything that a writer pushes",
            (DISPATCH_BRANCH, _MIRRORS),
        ),
        relied=True,
    ),
    Protection(
        "environment gpu-history",
        _environment("gpu-history", "its measurements enter the history"),
        relied=True,
    ),
    Protection("no secrets of gpu", _secrets, relied=True),
    Protection("reviewers of gpu", _reviewers),
    Protection("no secrets of the repository", _repository_secrets),
    Protection("token by default", _token),
    Protection("actions by hash", _pinning),
    Protection("runs of forks", _forks),
    Protection(
        "rules of {branch}",
        _rules(
            ("pull_request", "non_fast_forward"),
            "Settings, Rules: require a pull request, block force pushes",
        ),
    ),
    Protection(
        f"rules of {DISPATCH_BRANCH}",
        _rules(
            ("update",),
            "Settings, Rules: restrict updates to GitHub Actions and those who may put code on the cards",
            DISPATCH_BRANCH,
        ),
    ),
    Protection(
        f"rules of {_MIRRORS}",
        _rules(
            ("creation", "update"),
            f"Settings, Rules, {_MIRRORS}: restrict creations and updates, or mirror_branches = no",
            "pull-request/1",
        ),
    ),
    Protection(
        f"rules of {BRANCH}",
        _rules(("non_fast_forward", "deletion"), "Settings, Rules: block force pushes and deletion", BRANCH),
    ),
    Protection(f"environment {REPORT_ENVIRONMENT}", _key),
    Protection("required check", _required),
    Protection("runners", _runners),
    Protection("runner groups", _groups),
    Protection("caches", _caches),
)
