"""What protects a repository and its cards at GitHub, asked for by its API: settings that no file can hold.

A protection that jobs with a card rely on must be there; others should. What the token may not see is
unknown, and not taken for missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness.ci.audit_findings import AuditFinding, protection, should
from harness.ci.data_branch.data_git import BRANCH
from harness.ci.forge import Api, ApiError, quoted
from harness.ci.github.github_api import path_of
from harness.ci.github.posting import ACTIONS_APP
from harness.ci.github.workflow_events import DISPATCH_BRANCH
from harness.report.pull_request.faces import check_name

REPORT_ENVIRONMENT = "perf-report"
"""The environment that has the key of an App, where one posts the check runs."""
_APP_VARIABLE = "PERF_APP_ID"
_MIRRORS = "pull-request/*"


def audit(api: Api, repository: str, *, relied_only: bool = False) -> list[AuditFinding]:
    """What is there and what is missing. Raises RemoteError where GitHub does not answer at all."""
    about = api.get(path_of(repository), dict[str, Any], needs="metadata: read")
    asking = _Asking(
        api, repository, str(about.get("default_branch", "main")), private=bool(about.get("private"))
    )
    checks = _RELIED if relied_only else (*_RELIED, *_OTHERS)
    return [finding for check in checks for finding in check(asking)]


@dataclass(frozen=True, slots=True)
class _Asking:
    api: Api
    repository: str
    default_branch: str
    private: bool

    def get(self, *parts: str, needs: str) -> Any:
        """The answer. Raises ApiError."""
        return self.api.get(path_of(self.repository, *parts), object, needs=needs)

    def is_there(self, *parts: str, needs: str) -> Any | None:
        """The answer, or None where there is no such thing. Raises ApiError for what may not be seen."""
        try:
            return self.get(*parts, needs=needs)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def every(self, path: str, name: str, *, needs: str) -> list[Any]:
        """All pages of a list, which the answers have under a name. Raises ApiError."""
        pages = self.api.pages(path, dict[str, Any], needs=needs)
        return [each for page in pages for each in page.get(name, ())]


Check = Callable[[_Asking], Iterator[AuditFinding]]


def _environment(
    name: str, allowed: Callable[[_Asking], tuple[str, ...]], why: str, *, relied: bool = True
) -> Check:
    what = f"environment {name}"

    @protection(what, relied=relied)
    def check(asking: _Asking) -> Iterator[AuditFinding]:
        found = asking.is_there("environments", name, needs="actions: read")
        wanted = allowed(asking)
        to_do = f"Settings, Environments, {name}: deployment branches {', '.join(wanted)} and no others"
        if found is None:
            seen = "there is none: GitHub makes it when a job names it, without any protection"
            yield should(False, seen, to_do)
            return
        branches = _branches(asking, name, found)
        good = bool(branches) and set(branches) <= set(wanted)
        seen = f"for {', '.join(map(quoted, branches)) or 'every branch'}"
        yield should(good, seen, f"{to_do}: {why}")

    return check


def _branches(asking: _Asking, name: str, found: Any) -> list[str]:
    """The branches whose jobs may use an environment; empty for all."""
    policy = found.get("deployment_branch_policy")
    if not policy:
        return []
    if policy.get("protected_branches"):
        return ["protected branches"]
    listed = asking.get("environments", name, "deployment-branch-policies", needs="actions: read")
    return [str(each.get("name")) for each in listed.get("branch_policies", ())]


@protection("reviewers of gpu")
def _reviewers(asking: _Asking) -> Iterator[AuditFinding]:
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


@protection("no secrets of gpu", relied=True)
def _secrets(asking: _Asking) -> Iterator[AuditFinding]:
    found = asking.get("environments", "gpu", "secrets", needs="environments: read")
    count = int(found.get("total_count", 0))
    to_do = "Settings, Environments, gpu: remove its secrets, a job there is a stranger's"
    yield should(not count, f"{count} secrets" if count else "none", to_do)


@protection("no secrets of the repository")
def _repository_secrets(asking: _Asking) -> Iterator[AuditFinding]:
    count = int(asking.get("actions", "secrets", needs="secrets: read").get("total_count", 0))
    to_do = "move them into environments that the default branch alone may use"
    yield should(not count, f"{count} secrets" if count else "none", to_do)


@protection("token by default")
def _token(asking: _Asking) -> Iterator[AuditFinding]:
    found = asking.get("actions", "permissions", "workflow", needs="administration: read")
    level = quoted(str(found.get("default_workflow_permissions")))
    page = "Settings, Actions, General, Workflow permissions"
    yield should(level == "read", level, f"{page}: read repository contents")
    approves = bool(found.get("can_approve_pull_request_reviews"))
    seen = "may approve" if approves else "may not approve"
    to_do = f"{page}: no creating or approving"
    yield should(not approves, seen, to_do, what="no approval by workflows")


@protection("actions by hash")
def _pinning(asking: _Asking) -> Iterator[AuditFinding]:
    found = asking.get("actions", "permissions", needs="administration: read")
    pinned = bool(found.get("sha_pinning_required"))
    to_do = "Settings, Actions, General: require actions to be pinned to a full-length commit SHA"
    yield should(pinned, "required" if pinned else "not required", to_do)


@protection("runs of forks")
def _forks(asking: _Asking) -> Iterator[AuditFinding]:
    if asking.private:
        parts = ("actions", "permissions", "fork-pr-workflows-private-repos")
        found = asking.get(*parts, needs="administration: read")
        given = [
            name
            for name in ("send_write_tokens_to_workflows", "send_secrets_and_variables")
            if found.get(name)
        ]
        to_do = "Settings, Actions, General, Fork pull request workflows: neither write tokens nor secrets"
        seen = ", ".join(given).replace("_", " ") or "get neither write tokens nor secrets"
        yield should(not given, seen, to_do)
        return
    parts = ("actions", "permissions", "fork-pr-contributor-approval")
    policy = quoted(str(asking.get(*parts, needs="administration: read").get("approval_policy")))
    to_do = "Settings, Actions, General: require approval for all external contributors"
    good = policy == "all_external_contributors"
    yield should(good, f"approval for {policy.replace('_', ' ')}", to_do)


def _rules(branch: Callable[[_Asking], str], wanted: tuple[str, ...], to_do: str) -> Check:
    def check(asking: _Asking) -> Iterator[AuditFinding]:
        name = branch(asking)
        shown = _MIRRORS if name.startswith("pull-request/") else name

        @protection(f"rules of {shown}")
        def rules(asking: _Asking) -> Iterator[AuditFinding]:
            found = asking.get("rules", "branches", name, needs="metadata: read")
            types = {str(rule.get("type")) for rule in found}
            lacking = [each for each in wanted if each not in types]
            seen = f"no rule for {', '.join(lacking).replace('_', ' ')}" if lacking else ", ".join(wanted)
            yield should(not lacking, seen.replace("_", " "), to_do)

        yield from rules(asking)

    return check


def _app(asking: _Asking) -> int:
    """Number of the App that posts check runs; 0 where there is none. Raises ApiError."""
    found = asking.is_there("actions", "variables", _APP_VARIABLE, needs="variables: read") or {}
    number = str(found.get("value", ""))
    return int(number) if number.isdecimal() else 0


_report_environment = _environment(
    REPORT_ENVIRONMENT,
    lambda asking: (asking.default_branch,),
    "the key is for what was merged",
    relied=False,
)


@protection(f"environment {REPORT_ENVIRONMENT}")
def _key(asking: _Asking) -> Iterator[AuditFinding]:
    """The branches that may use the App's key."""
    if _app(asking):
        yield from _report_environment(asking)


@protection("required check")
def _required(asking: _Asking) -> Iterator[AuditFinding]:
    """The Apps whose check of our name a ruleset asks for."""
    found = asking.get("rules", "branches", asking.default_branch, needs="metadata: read")
    sources = [
        check.get("integration_id")
        for rule in found
        if rule.get("type") == "required_status_checks"
        for check in (rule.get("parameters") or {}).get("required_status_checks", ())
        if check.get("context") == check_name()
    ]
    if not sources:
        yield should(True, "none of ours is required for merging", "")
        return
    app = _app(asking)
    named = {None: "anybody who may write checks", ACTIONS_APP: "GitHub Actions: any workflow here"}
    owners = (named.get(each, f"App {each}") for each in sources)
    seen = f"{check_name()} of {', '.join(dict.fromkeys(owners))}"
    source = f"App {app}" if app else "an App of your own, docs/pull-requests.md,"
    to_do = f"Settings, Rules, the required check {check_name()}: {source} as its source"
    yield should(app and set(sources) == {app}, seen, to_do)


@protection("runners")
def _runners(asking: _Asking) -> Iterator[AuditFinding]:
    path = path_of(asking.repository, "actions", "runners")
    found = asking.every(path, "runners", needs="administration: read")
    kept = [quoted(str(each.get("name"))) for each in found if each.get("ephemeral") is False]
    to_do = "register runners for one job each: docs/runners.md, Registration"
    seen = f"{', '.join(kept)} take more than one job" if kept else f"{len(found)}, for one job each"
    yield should(not kept, seen, to_do)


@protection("runner groups")
def _groups(asking: _Asking) -> Iterator[AuditFinding]:
    owner = asking.repository.partition("/")[0]
    path = f"/orgs/{owner}/actions/runner-groups"
    wide = [
        quoted(str(group.get("name")))
        for group in asking.every(path, "runner_groups", needs="runners: read")
        if group.get("visibility") == "all" and group.get("allows_public_repositories")
    ]
    to_do = "organization, Actions, Runner groups: cards in a group of this repository alone"
    seen = (
        f"{', '.join(wide)} take jobs of every repository, public ones too"
        if wide
        else "for chosen repositories"
    )
    yield should(not wide, seen, to_do)


@protection("caches")
def _caches(asking: _Asking) -> Iterator[AuditFinding]:
    path = path_of(asking.repository, "actions", "caches")
    listed = asking.every(path, "actions_caches", needs="actions: read")
    # No workflow of ours writes any there: who has done so was a stranger's suite.
    written = [each for each in listed if str(each.get("ref")) == f"refs/heads/{DISPATCH_BRANCH}"]
    written += [each for each in listed if str(each.get("ref")).startswith("refs/heads/pull-request/")]
    to_do = "find out which pull request wrote them, and delete them (gh cache delete)"
    seen = f"{len(written)} of pull requests' runs" if written else "none of pull requests' runs"
    yield should(not written, seen, to_do)


_RELIED: tuple[Check, ...] = (
    _environment(
        "gpu",
        lambda _: (DISPATCH_BRANCH, _MIRRORS),
        "from another one a job with the card could write caches, or be anything that a writer pushes",
    ),
    _environment(
        "gpu-history", lambda asking: (asking.default_branch,), "what it measures enters the history"
    ),
    _secrets,
)
_OTHERS: tuple[Check, ...] = (
    _reviewers,
    _repository_secrets,
    _token,
    _pinning,
    _forks,
    _rules(
        lambda asking: asking.default_branch,
        ("pull_request", "non_fast_forward"),
        "Settings, Rules: require a pull request, block force pushes",
    ),
    _rules(
        lambda _: DISPATCH_BRANCH,
        ("update",),
        "Settings, Rules: restrict updates to GitHub Actions and those who may put code on the cards",
    ),
    _rules(
        lambda _: "pull-request/1",
        ("creation", "update"),
        "Settings, Rules, pull-request/*: restrict creations and updates, or mirror_branches = no",
    ),
    _rules(
        lambda _: BRANCH,
        ("non_fast_forward", "deletion"),
        "Settings, Rules: block force pushes and deletion",
    ),
    _key,
    _required,
    _runners,
    _groups,
    _caches,
)
