"""Rules for the workflows of this project, checked on their parsed YAML.

The linters know GitHub's rules. zizmor checks that actions are pinned, checkouts keep no credentials, runs
have a concurrency group and secrets are not inherited. The rules here are our own. A rule that cannot decide
refuses: an expression as `runs-on` counts as a machine of ours, and an unlisted trigger as a stranger's.
"""

from __future__ import annotations

__all__ = [
    "OPEN_PYTHON",
    "Script",
    "Workflow",
    "jobs_of",
    "load",
    "scripts_of",
    "triggers_of",
    "violations",
    "workflows_below",
]

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

Workflow: TypeAlias = dict[str, Any]
Job: TypeAlias = dict[str, Any]

DEFAULT_BRANCH = "${{ github.event.repository.default_branch }}"
OURS = frozenset({"push", "schedule", "workflow_dispatch", "workflow_call"})
"""Triggers that nobody without the right to write can pull."""
NEVER = frozenset({"pull_request_target"})
LOOKED_AT = "pull-request/[0-9]+"
BRANCHES = frozenset({"main", "master", LOOKED_AT})
"""Pushes to which may start a job on a machine of ours: what was merged, or what was looked at."""
LONGEST_MINUTES = 360
CONDITIONS = {
    "workflow_run": (
        "github.event.workflow_run.head_repository.full_name == github.repository",
        "github.event.workflow_run.event ==",
    ),
    "Static facts": ("github.event.workflow_run.event == 'pull_request'",),
    "issue_comment": ("github.event.issue.pull_request", "startsWith(github.event.comment.body,"),
    "pull_request": ("github.event.pull_request.head.repo.full_name == github.repository",),
}
"""Condition of a job that may write, by trigger; or by the name of a workflow that anybody may start on
GitHub's machines, in any repository.
"""

_HOSTED = re.compile(r"(ubuntu|windows|macos)-[a-z0-9.-]+")
_SECRET = re.compile(
    r"\bsecrets\b|\bgithub\.token\b|\bgithub\[|GITHUB_TOKEN|toJSON\(\s*github\s*\)", re.IGNORECASE
)
_MINTING = "actions/create-github-app-token@"
_STRICT = re.compile(r"bash .*-euo pipefail \{0\}")
_INSTALL = re.compile(r"\bpip3?\s+(install|download|wheel)\b|-m\s+venv\b|\buv\s")
_PRIVATE = "${{ runner.temp }}/"
OPEN_PYTHON = re.compile(r"\bpython[0-9.]*\"?(?:\s|\\\n)+(?!-[PI]\s)-\S*")
"""Python without a leading `-P` or `-I`, which imports modules of the folder that it works in."""


def load(text: str) -> Workflow:
    """A workflow's YAML. YAML 1.1 reads the key `on` as true."""
    parsed = yaml.safe_load(text)
    if True in parsed:
        parsed["on"] = parsed.pop(True)
    return parsed  # type: ignore[no-any-return]


def violations(workflow: Workflow) -> list[str]:
    """Return a sentence for each violation."""
    found = list(_of_the_whole(workflow))
    for name, job in jobs_of(workflow).items():
        found += [f"job {name}: {problem}" for rule in RULES for problem in rule(workflow, job)]
    return found


def jobs_of(workflow: Workflow) -> dict[str, Job]:
    return workflow.get("jobs") or {}


def triggers_of(workflow: Workflow) -> dict[str, Any]:
    """Events by name, with their settings."""
    on = workflow.get("on")
    if isinstance(on, str):
        return {on: None}
    return dict(on) if isinstance(on, dict) else dict.fromkeys(on or ())


class Script(NamedTuple):
    """The script of a step."""

    name: str
    """Name of its job and step."""
    text: str
    variables: frozenset[str]
    """Variables that the workflow, the job or the step sets."""


def scripts_of(workflow: Workflow) -> Iterator[Script]:
    for name, job in jobs_of(workflow).items():
        for number, step in enumerate(_steps(job)):
            if "run" in step:
                variables = {key for each in (workflow, job, step) for key in each.get("env") or ()}
                yield Script(f"{name}/{step.get('name', number)}", step["run"], frozenset(variables))


def _steps(job: Job) -> list[dict[str, Any]]:
    return job.get("steps") or []


def _uses(job: Job, action: str) -> list[dict[str, Any]]:
    return [step for step in _steps(job) if str(step.get("uses", "")).startswith(action)]


def _is_ours(job: Job) -> bool:
    """Return True if the job runs on a machine of ours instead of GitHub's."""
    runs_on = job.get("runs-on", "")
    return "uses" not in job and not (isinstance(runs_on, str) and _HOSTED.fullmatch(runs_on))


def _scopes(job: Job, *levels: str) -> set[str]:
    permissions = job.get("permissions")
    return (
        {scope for scope, level in permissions.items() if level in levels}
        if isinstance(permissions, dict)
        else set()
    )


def _of_the_whole(workflow: Workflow) -> Iterator[str]:
    if workflow.get("permissions") != {}:
        yield f"permissions at the top are {workflow.get('permissions')!r}, not {{}}"
    for trigger in NEVER & set(triggers_of(workflow)):
        yield f"{trigger} gives a stranger's pull request this repository's rights"


def _permissions(_: Workflow, job: Job) -> Iterator[str]:
    permissions = job.get("permissions")
    if not isinstance(permissions, dict):
        yield f"permissions are {permissions!r}, not a list of scopes"


def _pushes_to(workflow: Workflow) -> set[str]:
    triggers = triggers_of(workflow)
    return set((triggers["push"] or {}).get("branches") or ["**"]) if "push" in triggers else set()


def _triggers(workflow: Workflow, job: Job) -> Iterator[str]:
    strangers = ", ".join(sorted(set(triggers_of(workflow)) - OURS))
    if strangers and "uses" in job:
        yield f"calls a workflow on {strangers}, on machines that are not to be seen here"
    if strangers and _is_ours(job):
        yield f"a machine of ours on {strangers}"
    if _is_ours(job) and not _pushes_to(workflow) <= BRANCHES:
        yield "a machine of ours on pushes to any branch"
    if LOOKED_AT in _pushes_to(workflow) and _scopes(job, "write"):
        yield "may write, in a workflow that is taken from a pull request's commit"


def _machine(workflow: Workflow, job: Job) -> Iterator[str]:
    if not _is_ours(job):
        return
    if wider := _scopes(job, "read", "write") - {"contents"} | _scopes(job, "write"):
        yield f"a machine of ours may {', '.join(sorted(wider))}"
    if not job.get("environment"):
        yield "a machine of ours with no environment to hold it back"
    if _SECRET.search(json.dumps([job, workflow.get("env"), workflow.get("defaults")])):
        yield "a machine of ours is given a secret"


def _secrets(workflow: Workflow, job: Job) -> Iterator[str]:
    """An App's key is for its action alone, in a job that an environment holds to the default branch."""
    keyed = _uses(job, _MINTING)
    for name, part in [
        *((step.get("name", step.get("uses", "?")), step) for step in _steps(job) if step not in keyed),
        ("the job as a whole", {**job, "steps": []}),
    ]:
        if re.search(r"\bsecrets\b", json.dumps(part), re.IGNORECASE):
            yield f"{name} is given a secret"
    if not keyed:
        return
    if "perf-report" not in str(job.get("environment", "")):
        yield "has an App's key with no environment to hold it back"
        return
    for step in keyed:
        asked = {name: level for name, level in step["with"].items() if name.startswith("permission-")}
        if asked != {"permission-checks": "write"} or {"owner", "repositories"} & set(step["with"]):
            yield "asks for more of an App than to write checks of this repository"
        of_commit = {"pull_request", "merge_group"} & set(triggers_of(workflow))
        for condition in (job["environment"], step.get("if")) if of_commit else ():
            if "github.event_name == 'issue_comment'" not in str(condition):
                yield f"has an App's key where the workflow file is a commit's own, by {condition!r}"


def _caches(_: Workflow, job: Job) -> Iterator[str]:
    """A dispatched run of a stranger's commit can write caches in the default branch's scope."""
    for step in _steps(job):
        with_ = step.get("with") or {}
        if "cache" in str(step.get("uses", "")).partition("@")[0] or with_.get("cache", False) is not False:
            yield f"{step.get('uses')} reads a cache"


def _scripts(workflow: Workflow, job: Job) -> Iterator[str]:
    shell = ((workflow.get("defaults") or {}).get("run") or {}).get("shell", "")
    for step in _steps(job):
        script = step.get("run", (step.get("with") or {}).get("script", ""))
        if "${{" in script:
            yield f"an expression in the script of {step.get('name', '?')}"
        if "run" in step and not _STRICT.fullmatch(step.get("shell", shell)):
            yield f"the script of {step.get('name', '?')} goes on after an error"


def _timeout(_: Workflow, job: Job) -> Iterator[str]:
    minutes = job.get("timeout-minutes")
    if "uses" not in job and not (isinstance(minutes, int) and 0 < minutes <= LONGEST_MINUTES):
        yield f"timeout-minutes is {minutes!r}"


def _checkouts(workflow: Workflow, job: Job) -> Iterator[str]:
    strangers = set(triggers_of(workflow)) - OURS - {"pull_request"}
    trusted = bool(_scopes(job, "write")) or bool(strangers)
    for step in _uses(job, "actions/checkout@"):
        with_ = step.get("with") or {}
        if trusted and (with_.get("ref") != DEFAULT_BRANCH or "repository" in with_):
            yield f"checks out {with_.get('ref')!r} where only the default branch is to be trusted"


def _artifacts(workflow: Workflow, job: Job) -> Iterator[str]:
    """Check that a job installs nothing after it unpacks artifacts, and unpacks them in a private folder."""
    downloads = _uses(job, "actions/download-artifact@")
    if "workflow_run" in triggers_of(workflow) and downloads:
        yield "unpacks what another run has left"
    for step in downloads:
        path = str((step.get("with") or {}).get("path"))
        if not path.startswith(_PRIVATE) or ".." in path:
            yield f"unpacks artifacts into {path}, outside runner.temp"
    later = _steps(job)[_steps(job).index(downloads[0]) :] if downloads else []
    for step in later:
        if _INSTALL.search(step.get("run", "")):
            yield f"{step.get('name', '?')} installs after artifacts are unpacked"


def _imports(_: Workflow, job: Job) -> Iterator[str]:
    """Check every job: each has the job's token, and the folder it works in may hold anybody's files."""
    for step in _steps(job):
        for found in OPEN_PYTHON.finditer(step.get("run", "")):
            yield f"{step.get('name', '?')} runs {found[0]!r} without -P or -I"


def _started(workflow: Workflow, job: Job) -> Iterator[str]:
    """Anybody can make these events happen: who did is looked at before anything that may write."""
    condition = str(job.get("if", ""))
    triggers = dict(triggers_of(workflow))
    if (triggers.get("workflow_run") or {}).get("workflows") == ["Static facts"]:
        triggers["Static facts"] = triggers.pop("workflow_run")
        if wider := _scopes(job, "write") - {"pull-requests"}:
            yield f"may write {sorted(wider)} for what anybody's run has left"
    for trigger, words in CONDITIONS.items():
        writes = _scopes(job, "write") or _uses(job, _MINTING)
        if trigger in triggers and writes and "needs" not in job:
            yield from (
                f"may write on {trigger} and does not look at {word}"
                for word in words
                if word not in condition
            )


def _identity(_: Workflow, job: Job) -> Iterator[str]:
    if "id-token" in _scopes(job, "write"):
        if not job.get("environment"):
            yield "proves who it is with no environment to hold it back"
        if any("run" in step for step in _steps(job)):
            yield "proves who it is beside a script"


RULES: tuple[Callable[[Workflow, Job], Iterator[str]], ...] = (
    _permissions,
    _triggers,
    _machine,
    _secrets,
    _caches,
    _scripts,
    _timeout,
    _checkouts,
    _artifacts,
    _imports,
    _started,
    _identity,
)


def workflows_below(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.yml"), *folder.glob("*.yaml")])
