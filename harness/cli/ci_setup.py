"""harness ci, for the repository itself: store, fleet, audit, init."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.ci import audit_findings
from harness.ci.data_branch.data_git import BRANCH
from harness.ci.github import repository_audit as github_audit
from harness.ci.github import workflow_events
from harness.ci.github.github_api import check_repository
from harness.ci.gitlab.gitlab_api import GITLAB, in_pipeline
from harness.ci.requirements import chosen_extras
from harness.ci.scaffold import (
    FLEET_FILE,
    UNKNOWN_HARNESS,
    Scaffolded,
    check_folder,
    matrix_of,
    narrowed,
    next_steps,
    own_requirement,
    read_fleet,
    scaffold,
)
from harness.cli import echo_json, options, tell
from harness.cli.ci_calling import api_of, api_root_option, given, repository_option, warn
from harness.errors import ExitCode, HarnessError, UsageError
from harness.system.texts import harmless

if TYPE_CHECKING:
    from harness.ci.data_branch.data_files import Stored


_LISTED = 20
"""Most files of a dry run of `store` that are listed."""


@click.command("store", short_help="Append results to the branch that keeps them.")
@options.path("--from", "Folder of results, laid out like asv's; default: the project's.")
@click.option(
    "--branch", default=BRANCH, show_default=True, help="The branch, which is created if it does not exist."
)
@options.value(
    "--remote",
    "URL|NAME",
    "A remote of the project's repository, an address or a path.",
    default="origin",
    show_default=True,
)
@options.value("--message", "TEXT", "Message of the commit.", default="")
@options.flag("--dry-run", "Say what would be stored, and store nothing.")
@options.json
def store(as_json: bool, **given: Any) -> None:
    """Append results and records to the branch that keeps them.

    Several machines may do so at once: the second machine appends to the new state and pushes again. Nothing
    is force-pushed, and no stored record or result is changed. asv's results are left out if records hold the
    same. The working tree and its branches stay as they are.

    With GITHUB_TOKEN set, git shows it to the host of GITHUB_SERVER_URL.
    """
    from harness.ci.data_branch.data_files import store_results
    from harness.config import load_config

    config = load_config()
    folder: Path = given.pop("from") or config.results_folder
    stored = store_results(folder, config.root, tell=tell, **given)
    if as_json:
        echo_json(asdict(stored))
    else:
        for line in _stored_lines(stored):
            click.echo(harmless(line))


def _stored_lines(stored: Stored) -> Iterator[str]:
    for path in stored.left_out:
        yield f"left out, not finished: {path}"
    if stored.derived:
        some = "1 result" if len(stored.derived) == 1 else f"{len(stored.derived)} results"
        yield f"left out, as records hold the same: {some} of asv's; 'harness rebuild' makes them anew"
    where = f"{stored.branch} of {stored.remote}"
    if not (stored.added or stored.merged):
        already = f" ({stored.unchanged} unchanged)" if stored.unchanged else ""
        yield f"Nothing to store on {where}{already}."
        return
    counts = f"{len(stored.added)} added, {len(stored.merged)} merged, {stored.unchanged} unchanged"
    if not stored.dry_run:
        yield f"Stored on {where}: {counts} (commit {stored.commit}, attempt {stored.attempts})."
        return
    for what, paths in (("would be added", stored.added), ("would be merged", stored.merged)):
        yield from (f"{what}: {path}" for path in paths[:_LISTED])
        if len(paths) > _LISTED:
            yield f"{what}: {len(paths) - _LISTED} more"
    yield f"Nothing was stored on {where}; there would be {counts}."


@click.command("fleet", short_help="Print the cards to measure on, as a job matrix.")
@click.argument("file", type=click.Path(path_type=Path), default=FLEET_FILE)
@options.value("--cases", "TEXT", "Cases that replace each card's own, separated by spaces.", default="")
@click.option("--json", "as_json", is_flag=True, help="Print the matrix in a workflow too.")
def fleet(file: Path, cases: str, as_json: bool) -> None:
    """Check the file of cards, and print it as a job's matrix: one line of JSON.

    In a workflow it sets the step's outputs instead: `matrix`, and `count`, the number of cards.
    """
    cards = narrowed(read_fleet(file), cases.split())
    matrix = matrix_of(cards)
    outputs = f"matrix={matrix}\ncount={len(cards.cards)}\n"
    if as_json or not workflow_events.append_file("GITHUB_OUTPUT", "step's outputs", outputs):
        click.echo(matrix)
    else:
        click.echo(f"{file}: {', '.join(card.name for card in cards.cards) or 'no card'}")


@click.command("audit", short_help="Check the protections of the repository and its cards.")
@repository_option
@api_root_option
@options.flag("--relied", "Check only the settings that jobs with a card rely on.")
@options.json
def audit(repository: str | None, api: str | None, relied: bool, as_json: bool) -> ExitCode:
    """Check the settings that no file can hold, and say what is missing and what to do.

    At GitHub: environments with their branches, reviewers and secrets, the token's default, forks, rules of
    branches, runners and their groups, caches. In a job of GitLab's: protected branches, runners, variables,
    forks, job tokens, approvals. A setting that the token cannot see is unknown.

    Exit status 1 if something is missing.
    """
    name = given(repository, "CI_PROJECT_ID" if in_pipeline() else "GITHUB_REPOSITORY", "--repository")
    found = _audited(name, api, relied=relied)
    if as_json:
        echo_json([asdict(each) for each in found])
    else:
        _tell_audit(found)
    return ExitCode.REGRESSION if audit_findings.missing(found) else ExitCode.FINE


def _audited(repository: str, api: str | None, *, relied: bool = False) -> list[audit_findings.AuditFinding]:
    calling = api_of(api)
    if calling.forge is GITLAB:
        from harness.ci.gitlab import project_audit as gitlab_audit

        return gitlab_audit.audit(calling, repository, relied_only=relied)
    return github_audit.audit(calling, check_repository(repository), relied_only=relied)


def _tell_audit(found: list[audit_findings.AuditFinding]) -> None:
    for line in audit_findings.lines(found, max(60, shutil.get_terminal_size().columns)):
        click.echo(harmless(line))
    if workflow_events.in_workflow():
        for each in audit_findings.missing(found):
            message = f"{each.what}: {each.seen}. {each.to_do}."
            click.echo(workflow_events.annotation("error", "A protection is missing", message), err=True)


@click.command("init", short_help="Write the workflows into a repository.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@options.value(
    "--harness",
    "REQUIREMENT",
    "What the workflows install: one commit, or one file by its hash; default: the source of this harness.",
    to="requirement",
)
@options.value(
    "--with",
    "NAMES",
    "Extras for the jobs that measure, such as tvm,libraries,opengl; default: those in the existing files; "
    "'' for none.",
    to="extras",
)
@options.value(
    "--pytest",
    "PATH",
    "Measure pull requests with the pytest benchmarks in this folder; repeatable. Adds the extra pytest.",
    to="tests",
    multiple=True,
)
@options.flag(
    "--light", "Measure pull requests at quick sizes, for a minute, as advice; measure everything at night."
)
@options.flag("--static", "Compile every pull request on GitHub's own machines, and post the differences.")
@options.flag("--gitlab", "Write GitLab's pipeline instead of GitHub's workflows.")
@options.flag("--force", "Overwrite existing workflows, but never the file of cards.")
@options.flag("--dry-run", "Show which files would be written, and write none.")
@options.json
def init(folder: Path, requirement: str | None, extras: str | None, as_json: bool, **asked: Any) -> None:
    """Write the workflows into a repository: they measure pull requests, report, and publish the history.

    FOLDER is the repository's top, by default the current one. All files are written, or none. If a kernel
    needs the package of an extra, name that extra: exact versions and hashes are shipped, and no index is
    asked. With the extras opengl or cpu the jobs measure on that device too, if the file of cards is new.
    With --gitlab the command writes .gitlab/perf.yml, which .gitlab-ci.yml includes.
    """
    if asked["light"] and asked["tests"]:
        raise UsageError("A light comparison measures no pytest benchmarks: give --light or --pytest.")
    check_folder(folder)
    wanted = None if extras is None else chosen_extras(extras)
    chosen = requirement or own_requirement()
    if not chosen and not asked["dry_run"]:
        raise UsageError(
            "What this harness was installed from is not one commit or one file; of an editable installation "
            "it is the commit of its clone, once that is pushed. Say with --harness what the workflows are "
            "to install, such as 'gpu-harness @ git+https://HOST/OWNER/REPOSITORY@COMMIT'."
        )
    if asked["gitlab"] and any(asked[name] for name in ("tests", "static", "light")):
        raise UsageError(
            "With --gitlab write '--pytest PATH' into a card's ARGUMENTS in .gitlab/perf.yml; what --static "
            "and --light write is for GitHub only."
        )
    done = scaffold(folder, chosen, extras=wanted, **asked)
    if not chosen:
        tell(UNKNOWN_HARNESS)
    if as_json:
        echo_json({**asdict(done), "harness": chosen})
        return
    written = "would write" if asked["dry_run"] else "written"
    for what, names in ((written, done.written), ("unchanged", done.unchanged), ("kept", done.kept)):
        for name in names:
            click.echo(f"{what:11}  {harmless(name)}")
    if asked["dry_run"]:
        return
    if asked["gitlab"]:
        click.echo(f"\n{next_steps('gitlab')}", nl=False)
    else:
        _tell_next(done, light=asked["light"])


def _tell_next(done: Scaffolded, *, light: bool) -> None:
    """Print the next steps at GitHub, and which are done."""
    for device in done.unmeasured:
        click.echo(
            f"No card of {FLEET_FILE} has the device {device}, so its kernels are not measured: where a "
            f'runner has it, write "also": ["{device}"].'
        )
    if done.untested:
        folders = json.dumps(list(done.untested))
        click.echo(
            f'{FLEET_FILE} is kept: for pytest in pull requests write "pytest": {folders} beside "cards".'
        )
    if light and not done.light:
        click.echo(f'{FLEET_FILE} is kept: for light comparisons write "light": true beside "cards".')
    click.echo(f"\n{next_steps('github')}", nl=False)
    name = os.environ.get("GITHUB_REPOSITORY", "")
    if not (name and os.environ.get("GITHUB_TOKEN")):
        click.echo(
            "With GITHUB_REPOSITORY and GITHUB_TOKEN set, 'harness ci audit' says what of 2 to 5 is there."
        )
        return
    try:
        click.echo(f"\nThe settings of {harmless(name)}, as 'harness ci audit' finds them:")
        _tell_audit(_audited(name, None))
    except HarnessError as error:  # the files are written already
        warn("Not audited", error.message)
