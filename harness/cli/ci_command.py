"""harness ci: what the workflows call."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import echo_json, options, tell
from harness.errors import (
    ConfigError,
    DeviceError,
    ExitCode,
    HarnessError,
    MeasureError,
    RefusedError,
    UsageError,
)
from harness.forges import audits
from harness.forges.api import Api, check_address
from harness.forges.comments import Posted, StaleError
from harness.forges.reports import Outcome, Prepared
from harness.forges.requirements import chosen_extras
from harness.forges.scaffold import (
    FLEET_FILE,
    Scaffolded,
    extras_there,
    is_light,
    matrix_of,
    narrowed,
    own_requirement,
    read_fleet,
    scaffold,
)
from harness.github import audit as github_audit
from harness.github import events, reporting
from harness.github.api import GITHUB, check_repository
from harness.github.data_git import BRANCH
from harness.github.posting import Checks, carry_over
from harness.github.reporting import AUTHOR, given_reviews
from harness.github.requesting import may_ask, start_measurement
from harness.gitlab.api import GITLAB, in_pipeline
from harness.output.review.faces import check_name, faces, workflow_commands, write_faces
from harness.output.review.markdown import code, summary
from harness.output.review.model import LIMITS, Review
from harness.system import git
from harness.system.texts import harmless

if TYPE_CHECKING:
    from harness.config import Config
    from harness.github.data_files import Stored
    from harness.judgement.saved_runs import FilesResult
    from harness.run.compare import CompareSettings, ComparisonResult
    from harness.spec.loader import LoadedSuite

_LISTED = 20
"""Files of a dry run of `store` that are named."""
_NEXT = """
What no file can do, in this order (docs/runners.md of gpu-harness has the reasons):
  1. .github/fleet.json: your cards, with the labels of their runners. Then 'harness ci fleet'.
  2. Settings, Actions, General: require approval for all external contributors; read-only token by default.
  3. Settings, Environments: gpu, with required reviewers, allowed to the branch perf-dispatch alone;
     gpu-history, allowed to the default branch alone. 'harness ci audit' says whether they are.
  4. Settings, Actions, Runners: a group for this repository only; ephemeral ones, with a card's labels.
  5. Settings, Pages: the source is GitHub Actions. Where it will be: the variable PERF_HISTORY_URL.
     The variable PERF_STRICT, set to anything, makes a check run fail that could not be judged.
     The variable PERF_AUTOMATIC measures pushes to branches of this repository unasked.
     The variable PERF_APP_ID, with a key in the environment perf-report, posts check runs as an App of
     yours, which a rule can name: docs/pull-requests.md.
  6. Commit to the default branch: perf-request.yml and perf-report.yml work from there.
Then comment '/perf SHA' on a pull request, with the commit that you have read."""


_NEXT_GITLAB = """
What no file can do, in this order (docs/other-ci.md of gpu-harness has the reasons):
  1. .gitlab/perf.yml: your cards, with the tags of their runners. A .gitlab-ci.yml that was there needs
     'include: [local: .gitlab/perf.yml]'.
  2. Settings, Repository, Protected branches: the default branch, and perf-data.
  3. Settings, CI/CD, Runners: a project runner with a card's tag: protected, locked, no untagged jobs.
  4. Settings, Access tokens: one of the scopes api and write_repository, a maintainer. Settings, CI/CD,
     Variables: it is GITLAB_TOKEN, masked, protected, of the environment perf-report. Pipeline variables
     for maintainers.
  5. Build, Pipeline schedules: every night, with PERF_HISTORY=yes.
Then start a pipeline on the default branch with PERF_MERGE_REQUEST=12 and PERF_COMMIT, which you have read.
'GITLAB_CI=true harness ci audit' says what of 2 to 4 is there."""


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


@click.group("ci", cls=_InOrder)
def command() -> None:
    """What the workflows call: everything they do can be done by hand."""


@command.command(
    "compare",
    short_help="In the job with the card: compare a pull request with its base, and write the report.",
)
@options.cases
@options.case_options
@options.comparison
@options.commit("--base", required=True, help="The branch that the pull request goes to.")
@options.commit("--head", default="HEAD", show_default=True, help="The pull request's commit.")
@options.path("--out", "Where the report and the records go.", default=Path("perf-review"), show_default=True)
@options.several("--pytest", "PATH", "Measure the pytest benchmarks there in place of CASES", to="tests")
@options.history_url
def compare(selection: options.Selection, base: str, head: str, tests: tuple[str, ...], **given: Any) -> int:
    """Compare a pull request with where it left its base, and write the report that 'harness ci post' posts.

    Of several devices, --device cuda:0,opengl:0, each is measured in turn; one that does not open is told,
    and is an error where none does. In a workflow the job's summary and annotations are written too. The exit
    status is that of 'harness compare'; the report is written whatever the verdicts are.

    With --pytest the project's own pytest session measures, with --perf-base and --perf-gate. Its other
    benchmarks, which are no kernels of a suite, are run at base and head in turns, and their files judged.
    """
    from harness.cli.compare_command import repository_of, settings_from
    from harness.config import load_config
    from harness.output.review.building import kernel_places, review_of

    if tests and selection.cases:
        raise UsageError("CASES are compared by themselves, and --pytest by its own tests: give one of them.")
    config = load_config()
    repository = repository_of(config)
    head = git.resolve(repository, head)
    left = git.merge_base(repository, base, head)
    if left == head:
        raise UsageError(f"{head[:10]} is part of {base} already: there is nothing to compare.")
    if tests:
        return _compare_tests(config, selection, tests, (left, head), given)
    settings = settings_from(config, selection, given | {"results": given["out"] / "records"})
    results, heads = _on_each_device(config, selection, settings, left, head)
    places = {loaded.suite.name: kernel_places(loaded) for loaded in heads}
    return _tell(review_of(results, places), results, None, selection, given)


def _tell(
    review: Review,
    results: list[ComparisonResult],
    judged: FilesResult | None,
    selection: options.Selection,
    given: Mapping[str, Any],
) -> int:
    """Write every face of a review, print what it rests on, and return the exit status."""
    from harness.gitlab.reporting import links_of_job
    from harness.output import verdicts

    history = given["history"]
    links = links_of_job(os.environ, history=history) if in_pipeline() else events.links_of_run(history)
    write_faces(given["out"], faces(review, links))
    events.append_summary(summary(review, links))
    every: list[ComparisonResult | FilesResult] = [*results, *([judged] if judged else [])]
    status = verdicts.exit_code(every, given["fail_on"])
    if selection.as_json:
        told = [verdicts.as_json(result) for result in results]
        echo_json([*told, *([verdicts.judgement_as_json(judged)] if judged else [])])
    else:
        if results:
            verdicts.print_comparison(results, status)
        if judged:
            verdicts.print_judgement(judged, status)
    for line in workflow_commands(review) if events.in_workflow() and not selection.as_json else ():
        click.echo(line)
    return status


def _compare_tests(
    config: Config,
    selection: options.Selection,
    tests: tuple[str, ...],
    ends: tuple[str, str],
    given: Mapping[str, Any],
) -> int:
    """Measure by the project's own pytest benchmarks, and report as of any comparison."""
    from harness.cli.compare_command import repository_of
    from harness.github import pytest_session
    from harness.output.review.building import kernel_places, review_of_tests
    from harness.output.verdicts import exit_code
    from harness.spec.planning import load_suites

    base, head = ends
    if (checked_out := git.resolve(repository_of(config), "HEAD")) != head:
        raise UsageError(f"pytest measures what is checked out, {checked_out[:10]}: check {head[:10]} out.")
    session = pytest_session.Tests(paths=tests, project=config.root, out=given["out"].resolve())
    words = [word for size in selection.size for word in ("--perf-size", size)]
    words += ["--perf-quick"] if selection.quick else []
    failed = others = False
    for spec in (selection.device or config.device or "").split(","):
        on_it = [*words, *(["--perf-device", spec] if spec else [])]
        done = pytest_session.compare_kernels(session, base, on_it)
        failed, others = failed or done.failed, others or done.others
    results = pytest_session.compared(session, base, head)
    judged = pytest_session.judge_others(session, base, head, tell) if others else None
    if not results and judged is None:
        raise MeasureError(
            f"No benchmark in {', '.join(tests)} compared anything: see pytest's output above."
        )
    every: list[ComparisonResult | FilesResult] = [*results, *([judged] if judged else [])]
    if failed and exit_code(every, given["fail_on"]) == ExitCode.FINE:
        problem = "A test failed in pytest's session, although no verdict does: see the job's log."
        results = [dataclasses.replace(result, problem=result.problem or problem) for result in results]
    places = {loaded.suite.name: kernel_places(loaded) for loaded in load_suites(config, head)}
    review = review_of_tests(results, judged, ends, places)
    return _tell(review, results, judged, selection, given)


def _on_each_device(
    config: Config, selection: options.Selection, settings: CompareSettings, base: str, head: str
) -> tuple[list[ComparisonResult], list[LoadedSuite]]:
    """The comparisons on one device after the other, and their suites at head. Raises what comparing raises;
    DeviceError only where no device could be used.
    """
    from harness.cli.compare_command import compare_pairs
    from harness.device.backends import parse_spec
    from harness.spec.planning import plan

    results: list[ComparisonResult] = []
    heads: list[LoadedSuite] = []
    absent: list[str] = []
    specs = dict.fromkeys(settings.device.split(",")) if settings.device else {None: None}
    for spec in specs:
        if spec is not None:
            parse_spec(spec)  # before hours are spent on the first
    for spec in specs:
        on_it = dataclasses.replace(settings, device=spec)
        try:
            pairs = selection.pairs(config, base, head)
            done = compare_pairs(pairs, selection, on_it, most_cases=LIMITS["cases"])
        except DeviceError as error:
            if len(absent) + 1 == len(specs):
                raise
            absent.append(f"{spec} was not compared: {error.message}")
            _warn(f"No comparison on {spec}", absent[-1])
            continue
        results += done.results
        heads += done.heads
        if any(result.interrupted for result in done.results):
            break

    def concerns(result: ComparisonResult, loaded: LoadedSuite) -> bool:
        backend = result.comparison.device.backend
        made = (planned.kernel.source_for(backend) for planned in plan(loaded.suite, selection.cases))
        return bool(result.verdicts or result.problem) or any(made)

    # A suite without a kernel for a device is compared on the others: that it is not there is no lack.
    told = [
        result for result, loaded in zip(results, heads, strict=True) if concerns(result, loaded)
    ] or results
    return [dataclasses.replace(told[0], left_out=(*told[0].left_out, *absent)), *told[1:]], heads


def _warn(title: str, message: str) -> None:
    """On standard error; in a workflow as an annotation of the run."""
    line = events.annotation("warning", title, message) if events.in_workflow() else f"harness: {message}"
    click.echo(line, err=True)


@command.command("devices", short_help="In the job with the card: tell which of its devices work.")
@click.argument("specs", metavar="DEVICES")
@options.json
def devices(specs: str, as_json: bool) -> ExitCode:
    """Print which of a card's DEVICES, such as cuda:0,opengl:0, can be opened here, a line each.

    Of each other one it is told why not, in a workflow as a warning of the run and in the job's summary. The
    exit status is 3 where none can be opened.
    """
    from harness.run.device_session import find_device

    found: dict[str, str] = {}
    absent: dict[str, str] = {}
    for spec in specs.split(","):
        try:
            found[spec] = find_device(spec).name
        except DeviceError as error:
            absent[spec] = error.message
            _warn(f"{spec} is not measured", f"{spec} is not measured: {error.message}")
    if absent:
        lines = (f"- {code(spec)}: {code(why)}" for spec, why in absent.items())
        events.append_summary("\n".join(["**Not measured, as they do not open here:**\n", *lines, "\n"]))
    if as_json:
        echo_json({"devices": found, "absent": absent})
    else:
        click.echo("".join(f"{spec}\n" for spec in found), nl=False)
    return ExitCode.FINE if found else ExitCode.NOT_MEASURED


@command.command(
    "measured", short_help="In a job of the history: tell what it measured and what it left out."
)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@options.json
def measured(folder: Path, as_json: bool) -> None:
    """Tell what the records in FOLDER measured, and which kernels were left out for want of a package.

    FOLDER is laid out like asv's results. In a workflow the job's summary says it, and a warning of the run
    what was left out.
    """
    from harness.github.measured import markdown, read_measured, warnings

    found, problems = read_measured(folder)
    text = markdown(found, problems, extras_there(Path()))
    events.append_summary(text)
    if as_json:
        echo_json({"measured": found, "problems": problems})
        return
    click.echo(text, nl=False)
    for warning in warnings(found, problems):
        _warn("Left out", warning)


class _Calling:
    """Where the forge is, as whom, and what for: from options and, for those not given, variables."""

    def __init__(
        self, event: Path | None, repository: str | None, api: str | None, *, dry_run: bool, as_json: bool
    ) -> None:
        self.api, self._as_json = _api(api, dry_run=dry_run), as_json
        if self.api.forge is GITLAB:
            self.repository = _given(repository, "CI_PROJECT_ID", "--repository")
            return
        server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
        self.repository = check_repository(_given(repository, "GITHUB_REPOSITORY", "--repository"))
        self.event = events.read_event(Path(_given(str(event or ""), "GITHUB_EVENT_PATH", "--event")))
        self.server = check_address(server.rstrip("/"), "GITHUB_SERVER_URL")

    def checks(self, app: int | None) -> Checks:
        """The check runs of an App, or of GitHub Actions. Raises ConfigError without the App's token."""
        token = os.environ.get(_OF_APP)
        if app is None or (token is None and self.api.dry_run):
            return Checks(self.api, self.repository, app)
        wanted = f"a token of App {app}, which may write checks"
        if token is None:
            raise ConfigError(f"{_OF_APP} is not set: set it to {wanted}.")
        permission = f"grant App {app} that, and accept it where the App is installed."
        api = self.api.with_token(token, credential=_OF_APP, credential_is=wanted, permission=permission)
        return Checks(api, self.repository, app)

    def show(self, **result: Any) -> None:
        """What was done, with its `message`, and what a dry run has not sent."""
        if self._as_json:
            click.echo(_line_safe({**result, "requests": [asdict(request) for request in self.api.held]}))
            return
        for request in self.api.held:
            headers = [f"{name}: {value}" for name, value in request.headers.items()]
            body = [] if request.body is None else ["", _line_safe(request.body)]
            click.echo("\n".join([f"{request.method} {request.url}", *headers, *body, ""]))
        click.echo(result["message"])


def _api(root: str | None, *, dry_run: bool = False) -> Api:
    """The API of GitLab in a job of GitLab's, of GitHub elsewhere."""
    forge = GITLAB if in_pipeline() else GITHUB
    token = os.environ.get(forge.credential)
    if token is None and not dry_run:
        raise ConfigError(f"{forge.credential} is not set: set it to {forge.credential_is}.")
    root = root or os.environ.get(forge.root) or forge.default_root
    return Api(forge, root, token, dry_run=dry_run)


def _given(value: str | None, variable: str, option: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise ConfigError(f"{variable} is not set: run this in a workflow, or give {option}.")
    return found


def _line_safe(value: Any) -> str:
    """JSON in which no line is a command to the runner, although it holds what others wrote."""
    return json.dumps(value, indent=2).replace("##[", "\\u0023#[")


_repository = options.value(
    "--repository", "OWNER/NAME", "Default: GITHUB_REPOSITORY, or GitLab's CI_PROJECT_ID."
)
_OF_APP = "GITHUB_CHECKS_TOKEN"
_app = options.value(
    "--app",
    "NUMBER",
    f"Post check runs as this App of yours, whose token is in {_OF_APP}; default: as GitHub Actions, with "
    "GITHUB_TOKEN.",
    type=click.IntRange(min=1),
)
_api_root = options.value(
    "--api", "URL", "The forge's API; default: GITHUB_API_URL, or GitLab's CI_API_V4_URL."
)


def _calling(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command a _Calling; in a workflow, show its errors on the page of the run too."""

    @functools.wraps(function)
    def call(**given: Any) -> None:
        names = ("event", "repository", "api", "dry_run", "as_json")
        try:
            calling = _Calling(**{name: given.pop(name) for name in names})
            function(calling, **given)
        except HarnessError as error:
            if events.in_workflow():
                name = f"harness ci {function.__name__.replace('_', '-')}"
                click.echo(events.annotation("error", name, error.message), err=True)
            raise

    decorated: Callable[..., None] = options.together(
        options.path("--event", "What started the workflow; default: GITHUB_EVENT_PATH.", metavar="FILE"),
        _repository,
        _api_root,
        options.flag("--dry-run", "Only read, and print the requests that would write, whole."),
    )(call)
    return decorated


@command.command("post", short_help="In the job that may write: check the report, and post it.")
@_calling
@click.option("--author", metavar="LOGIN", default=AUTHOR, show_default=True, help="Who the token is.")
@_app
@options.path(
    "--review",
    "A report or its archive, in place of the run's artifacts; repeatable.",
    metavar="FILE",
    multiple=True,
)
@options.flag(
    "--strict", "Fail the check run where nothing is known, which GitHub would let pass as neutral."
)
@options.path("--out", "Write what is posted, and the page, there.")
@options.path(
    "--fleet",
    "The file of cards, which may say light.",
    metavar="FILE",
    default=FLEET_FILE,
    show_default=True,
)
@options.history_url
@options.json
def post(
    calling: _Calling,
    author: str,
    app: int | None,
    review: tuple[Path, ...],
    strict: bool,
    out: Path | None,
    fleet: Path,
    history: str,
) -> None:
    """Check what the job with the card has left, and post it: one comment, and one check run.

    For a workflow started by workflow_run. The pull request and its commit are what GitHub says they are. A
    report that is not what it should be is refused, and then nothing is posted; where a run left none, a
    neutral check run says so. In a job of GitLab's it is one note on the merge request, and a commit status.

    Exit status 0 where it was posted, or the pull request has moved on; 2 where the report was refused; 3
    where the forge could not be reached, or refused.
    """
    history = check_address(history, "--history") if history else ""
    if calling.api.forge is GITLAB:
        _post_to_gitlab(calling, review, out, history, strict=strict)
        return
    checks = calling.checks(app)
    run = events.measured_run(calling.event, calling.repository)
    result: dict[str, Any] = {"pull_request": run.pull_request, "head": run.head, "run": run.id}
    try:
        prepared = reporting.prepare(
            calling.api,
            calling.repository,
            run,
            server=calling.server,
            history=history,
            given=given_reviews(review) if review else None,
            strict=strict,
            light=is_light(fleet),
        )
        _write(prepared, out)
        outcome = reporting.post(calling.api, checks, run, prepared, author=author)
    except StaleError as stale:
        reporting.end_unposted(checks, run, str(stale))
        result |= {"state": "stale", "message": f"{stale} So nothing of this run is shown there."}
    except RefusedError as refused:
        reporting.end_unposted(checks, run, refused.message, refused=True)
        raise
    else:
        names = (f"Pull request {run.pull_request}", "check run", "comment")
        result |= _posted(calling, prepared, outcome, names)
    calling.show(**result)


def _post_to_gitlab(
    calling: _Calling, review: Sequence[Path], out: Path | None, history: str, *, strict: bool
) -> None:
    from harness.gitlab import reporting
    from harness.output.review.reports import code_quality, openmetrics

    pipeline = reporting.pipeline_of(os.environ)
    result: dict[str, Any] = {
        "merge_request": pipeline.merge_request,
        "head": pipeline.head,
        "pipeline": pipeline.id,
    }
    # As an address it is a path below the job's folder, where `out` is one.
    page = (out / "review.html").as_posix() if out and not out.is_absolute() else ""
    links = reporting.links_of_job(os.environ, page, history)
    given = given_reviews(review) if review else None
    try:
        told = reporting.prepare(
            calling.api, calling.repository, pipeline, links=links, given=given, strict=strict
        )
        _write(told, out)
        if told.review is not None and out is not None:  # what GitLab reads of a job's artifacts
            made = {"code-quality.json": code_quality(told.review), "metrics.txt": openmetrics(told.review)}
            write_faces(out, {name: text.encode() for name, text in made.items()})
        outcome = reporting.post(calling.api, calling.repository, pipeline, told)
    except StaleError as stale:
        result |= {"state": "stale", "message": f"{stale} So nothing of this pipeline is shown there."}
    else:
        names = (f"Merge request {pipeline.merge_request}", "commit status", "note")
        result |= _posted(calling, told, outcome, names)
    calling.show(**result)


@command.command("post-static", short_help="In the job that may write: check static facts, and post them.")
@_calling
@click.option("--author", metavar="LOGIN", default=AUTHOR, show_default=True, help="Who the token is.")
@options.json
def post_static(calling: _Calling, author: str) -> None:
    """Check what the job that compiled a pull request has left, and post it as a comment of its own.

    For a workflow started by workflow_run, after 'harness static --base COMMIT --report FILE' in a job that
    anybody's pull request may start. The pull request is the one that GitHub says the run's commit is the
    head of.

    Exit status 0 where it was posted, or there is nothing to post; 2 where the report was refused; 3 where
    GitHub could not be reached, or refused.
    """
    run = events.compiled_run(calling.event, calling.repository)
    result: dict[str, Any] = {"head": run.head, "run": run.id}
    try:
        number, posted = reporting.post_static(
            calling.api, calling.repository, run, server=calling.server, author=author
        )
    except StaleError as stale:
        result |= {"state": "stale", "message": f"{stale} So nothing of this run is shown."}
    else:
        message = f"Pull request {number}: comment {_what(calling, posted)}."
        result |= {"state": "posted", "pull_request": number, "message": message, "comment": asdict(posted)}
    calling.show(**result)


def _write(prepared: Prepared, out: Path | None) -> None:
    """The files of what is about to be posted: what GitHub then refuses can be looked at."""
    review, links = prepared.review, prepared.links
    if review is None:
        events.append_summary(f"{prepared.check['output']['summary']}\n")
        return
    events.append_summary(summary(review, links))
    if out is not None:
        posted = {"comment.md": prepared.comment.encode(), "check.json": _line_safe(prepared.check).encode()}
        write_faces(out, {**faces(review, links), **posted})


def _posted(
    calling: _Calling, prepared: Prepared, outcome: Outcome, names: tuple[str, str, str]
) -> dict[str, Any]:
    request, check, comment = names
    parts = [f"{request}: {check} {_what(calling, outcome.check)}"]
    if outcome.comment:
        parts.append(f"{comment} {_what(calling, outcome.comment)}")
    if not prepared.review:
        parts.append("the run left no report")
    return {
        "state": "posted" if prepared.review else "no-report",
        "message": f"{'; '.join(parts)}.",
        "comment": outcome.comment and asdict(outcome.comment),
        "check": asdict(outcome.check),
    }


def _what(calling: _Calling, posted: Posted) -> str:
    if posted.action == "left":
        return f"left as it is, that of a newer run ({posted.url})"
    would = "would be " if calling.api.dry_run else ""
    return f"{would}{posted.action}{f' ({posted.url})' if posted.url else ''}"


@command.command("request", short_help="Start a measurement that a maintainer asked for in a comment.")
@_calling
@options.value(
    "--automatic",
    "WHICH",
    "Measure pushes to the repository's own branches unasked: 'drafts' those to drafts too, any other word "
    "those to pull requests that are ready; default: none.",
    default="",
)
@options.flag("--strict", "In a merge queue what was not measured fails, and is not neutral.")
@_app
@options.json
def request(calling: _Calling, automatic: str, strict: bool, app: int | None) -> None:
    """Start a measurement where the comment's first line is '/perf SHA [CASES]', with all 40 digits of the
    commit.

    For a workflow started by issue_comment. Whoever asks must be allowed to write to the repository, and the
    commit must be the pull request's head at that moment: what is measured is what somebody looked at. The
    comment gets a reaction, and a check shows that the run waits. What is refused is answered with the
    reason, '/perf' without a commit with the line to paste. The run is started on the branch perf-dispatch,
    which is moved to the default branch's commit.

    Started by pull_request, with --automatic, what somebody who may write pushes to a branch of the
    repository itself is measured unasked. Started by merge_group, or by the end of a run that it has started,
    the queue's commit gets the conclusion that the pull request's own has.

    Exit status 0 where a measurement was started or none was asked for, 2 where it was refused.
    """
    if calling.api.forge is GITLAB:
        raise UsageError(
            "No comment starts anything at GitLab: start a pipeline of the default branch with the variables "
            "PERF_MERGE_REQUEST and PERF_COMMIT."
        )
    kind = events.kind_of(calling.event)
    if kind in ("merge_group", "workflow_run"):
        read = events.queued if kind == "merge_group" else events.queued_run
        _carry_over(calling, read(calling.event, calling.repository), app, strict=strict)
        return
    asked: events.Asked | str | None
    if kind == "pull_request":
        asked = _pushed(calling, automatic)
    else:
        asked = events.measurement_asked(calling.event, calling.repository)
    if not isinstance(asked, events.Asked):
        why = asked or "the comment is not new, not on a pull request, or no /perf line"
        calling.show(state="no-request", message=f"No request: {why}.")
        return
    # The App's key is for the default branch's workflows, and a push is told by the pull request's own.
    checks = None if app and kind == "pull_request" else calling.checks(app)
    started = start_measurement(calling.api, calling.repository, asked, checks)
    what = " ".join((started.commit, *started.cases))
    message = (
        f"{'Would measure' if calling.api.dry_run else 'Measuring'} {what} of pull request "
        f"{asked.pull_request}, as {asked.login} asked.{f' {started.url}' if started.url else ''}"
    )
    about = {"pull_request": asked.pull_request, "login": asked.login, **asdict(started)}
    for trouble in started.untold:
        _warn("Not shown on the pull request", trouble)
    calling.show(state="requested", message=message, **about)


def _pushed(calling: _Calling, automatic: str) -> events.Asked | str:
    """What a push asks for, or why it asks for nothing. Raises RefusedError, ApiError, RemoteError."""
    if not automatic:
        return "no push is measured unasked here"
    asked = events.pushed(calling.event, calling.repository, drafts=automatic == "drafts")
    if isinstance(asked, events.Asked) and not may_ask(calling.api, calling.repository, asked.login):
        return f"{asked.login} may not write to {calling.repository}"
    return asked


def _carry_over(calling: _Calling, queued: events.Queued | None, app: int | None, *, strict: bool) -> None:
    if queued is None:
        calling.show(state="no-request", message="No request: the queue waits for no check.")
        return
    try:
        carried = carry_over(calling.api, calling.checks(app), queued, check_name(), strict=strict)
    except StaleError as stale:  # merged or taken out of the queue, which then waits no more
        calling.show(state="stale", message=f"{stale} So {queued.commit} gets no conclusion.")
        return
    message = f"{queued.commit} gets the conclusion of {carried.measured}: {carried.conclusion}."
    about = {"pull_request": queued.pull_request, "commit": queued.commit, **asdict(carried)}
    calling.show(state="carried-over", message=message, **about)


@command.command("store", short_help="Append results to the branch that keeps them.")
@options.path("--from", "Laid out like asv's results; default: the project's.")
@click.option("--branch", default=BRANCH, show_default=True, help="Made where there is none.")
@options.value(
    "--remote",
    "URL|NAME",
    "A remote of the project's repository, an address or a path.",
    default="origin",
    show_default=True,
)
@options.value("--message", "TEXT", "Of the commit.", default="")
@options.flag("--dry-run", "Say what would be stored, and store nothing.")
@options.json
def store(as_json: bool, **given: Any) -> None:
    """Append results and records to the branch that keeps them.

    Any number of machines may do so at once: who comes second appends to what is there and pushes again.
    Nothing is forced, and no record or result that is there is changed. asv's results are left out where the
    records hold all that they do. The working tree and its branches stay as they are.

    With GITHUB_TOKEN set, git shows it to the host of GITHUB_SERVER_URL.
    """
    from harness.config import load_config
    from harness.github.data_files import store_results

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


@command.command("fleet", short_help="Print the cards to measure on, as a job matrix.")
@click.argument("file", type=click.Path(path_type=Path), default=FLEET_FILE)
@options.value("--cases", "TEXT", "In place of each card's own cases, with spaces between them.", default="")
@click.option("--json", "as_json", is_flag=True, help="Print it in a workflow too.")
def fleet(file: Path, cases: str, as_json: bool) -> None:
    """Check the file of cards, and print it as a job's matrix: one line of JSON.

    In a workflow it becomes the step's outputs instead: `matrix`, and `count`, the number of cards.
    """
    cards = narrowed(read_fleet(file), cases.split())
    matrix = matrix_of(cards)
    outputs = f"matrix={matrix}\ncount={len(cards.cards)}\n"
    if as_json or not events.append_file("GITHUB_OUTPUT", "step's outputs", outputs):
        click.echo(matrix)
    else:
        click.echo(f"{file}: {', '.join(card.name for card in cards.cards) or 'no card'}")


@command.command("audit", short_help="Tell which protections of the repository and its cards are missing.")
@_repository
@_api_root
@options.flag("--relied", "Only what jobs with a card rely on.")
@options.json
def audit(repository: str | None, api: str | None, relied: bool, as_json: bool) -> ExitCode:
    """Ask the forge for the settings that no file can hold, and tell what is missing and what to do.

    At GitHub environments, their branches, reviewers and secrets, the token's default, forks, rules of
    branches, runners and their groups, caches. In a job of GitLab's its protected branches, runners,
    variables, forks, job tokens, approvals. What the token may not see is unknown. Exit status 1 where
    something is missing.
    """
    name = _given(repository, "CI_PROJECT_ID" if in_pipeline() else "GITHUB_REPOSITORY", "--repository")
    found = _audited(name, api, relied=relied)
    if as_json:
        echo_json([asdict(each) for each in found])
    else:
        _tell_audit(found)
    return ExitCode.REGRESSION if audits.missing(found) else ExitCode.FINE


def _audited(repository: str, api: str | None, *, relied: bool = False) -> list[audits.Finding]:
    calling = _api(api)
    if calling.forge is GITLAB:
        from harness.gitlab import audit as gitlab_audit

        return gitlab_audit.audit(calling, repository, relied_only=relied)
    return github_audit.audit(calling, check_repository(repository), relied_only=relied)


def _tell_audit(found: list[audits.Finding]) -> None:
    for line in audits.lines(found, max(60, shutil.get_terminal_size().columns)):
        click.echo(harmless(line))
    if events.in_workflow():
        for each in audits.missing(found):
            told = f"{each.what}: {each.seen}. {each.to_do}."
            click.echo(events.annotation("error", "A protection is missing", told), err=True)


@command.command("init", short_help="Write the workflows into a repository.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@options.value(
    "--harness",
    "REQUIREMENT",
    "What the workflows install, one commit or file of it; default: what this harness came from.",
    to="requirement",
)
@options.value(
    "--with",
    "NAMES",
    "Extras that the jobs which measure install too, such as tvm,libraries,opengl; default: those that the "
    "files there say.",
    to="extras",
)
@options.value(
    "--pytest",
    "PATH",
    "Measure pull requests by the pytest benchmarks there; repeatable. Brings the extra pytest.",
    to="tests",
    multiple=True,
)
@options.flag(
    "--light", "Measure pull requests at the quick sizes and for a minute, to advise; the nights measure all."
)
@options.flag("--static", "Compile every pull request on GitHub's own machines, and post what changed.")
@options.flag("--gitlab", "GitLab's pipeline in place of GitHub's workflows.")
@options.flag("--force", "Overwrite workflows that are there; never the file of cards.")
@options.json
def init(folder: Path, requirement: str | None, extras: str | None, as_json: bool, **asked: Any) -> None:
    """Write the workflows into a repository: pull requests measured and reported, the history published.

    With --gitlab it is .gitlab/perf.yml, which .gitlab-ci.yml includes.

    FOLDER is the repository's top, by default the current one. All files are written, or none. Where a
    kernel needs the package of an extra, name that extra: its exact versions and hashes are shipped, and no
    index is asked. With opengl or cpu the jobs measure on that device too, where the file of cards is new.
    """
    if asked["light"] and asked["tests"]:
        raise UsageError("A light comparison measures no pytest benchmarks: give --light or --pytest.")
    wanted = None if extras is None else chosen_extras(extras)
    chosen = requirement or own_requirement()
    if not chosen:
        raise UsageError(
            "What this harness was installed from is not one commit or one file; of an editable installation "
            "it is the commit of its clone, once that is pushed. Say with --harness what the workflows are "
            "to install, such as 'gpu-harness @ git+https://HOST/OWNER/REPOSITORY@COMMIT'."
        )
    if asked["gitlab"] and any(asked[name] for name in ("tests", "static", "light")):
        raise UsageError(
            "With --gitlab write '--pytest PATH' into a card's ARGUMENTS in .gitlab/perf.yml; what --static "
            "and --light write is GitHub's."
        )
    done = scaffold(folder, chosen, extras=wanted, **asked)
    if as_json:
        echo_json({**asdict(done), "harness": chosen})
        return
    for what, names in (("written", done.written), ("unchanged", done.unchanged), ("kept", done.kept)):
        for name in names:
            click.echo(f"{what:9}  {harmless(name)}")
    if asked["gitlab"]:
        click.echo(_NEXT_GITLAB)
    else:
        _tell_next(done, light=asked["light"])


def _tell_next(done: Scaffolded, *, light: bool) -> None:
    """What is to be done at GitHub, and what of it is done."""
    for device in done.unmeasured:
        click.echo(
            f"No card of {FLEET_FILE} has the device {device}, so its kernels are not measured: where a "
            f'runner has it, write "also": ["{device}"].'
        )
    if done.untested:
        told = json.dumps(list(done.untested))
        click.echo(
            f'{FLEET_FILE} is kept: for pytest in pull requests write "pytest": {told} beside "cards".'
        )
    if light and not done.light:
        click.echo(f'{FLEET_FILE} is kept: for light comparisons write "light": true beside "cards".')
    click.echo(_NEXT)
    name = os.environ.get("GITHUB_REPOSITORY", "")
    if not (name and os.environ.get("GITHUB_TOKEN")):
        click.echo(
            "With GITHUB_REPOSITORY and GITHUB_TOKEN set, 'harness ci audit' says what of 2 to 5 is there."
        )
        return
    try:
        click.echo(f"\nWhat is there of {harmless(name)}, as 'harness ci audit' sees it:")
        _tell_audit(_audited(name, None))
    except HarnessError as error:  # what was written is written
        _warn("Not audited", error.message)
