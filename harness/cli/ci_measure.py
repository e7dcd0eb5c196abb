"""harness ci, in the job with the card: compare, devices, measured."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.ci.github import workflow_events
from harness.ci.gitlab.gitlab_api import in_pipeline
from harness.ci.scaffold import extras_there
from harness.cli import echo_json, executable_options, options, script_options
from harness.cli.ci_calling import warn
from harness.errors import DeviceError, ExitCode, MeasureError, UsageError
from harness.report.document.document import LIMITS, Review
from harness.report.pull_request.comment_markdown import summary
from harness.report.pull_request.faces import faces, workflow_commands, write_faces
from harness.report.templates import code
from harness.system import git

if TYPE_CHECKING:
    from harness.config import Config
    from harness.records.record_files import ComparisonResult
    from harness.run.compare_settings import CompareSettings
    from harness.suite.loader import LoadedSuite


@click.command(
    "compare",
    short_help="In the job with the card: compare a pull request with its base, and write the report.",
)
@options.cases
@options.case_options
@options.comparison
@options.explain
@options.commit("--base", required=True, help="The branch that the pull request targets.")
@options.commit("--head", default="HEAD", show_default=True, help="The pull request's commit.")
@options.path(
    "--out", "Folder for the report and the records.", default=Path("perf-review"), show_default=True
)
@options.several(
    "--pytest", "PATH", "Measure the pytest benchmarks in this folder or file instead of CASES", to="tests"
)
@script_options.options_of_scripts
@executable_options.build_command
@options.history_url
def compare(selection: options.Selection, base: str, head: str, tests: tuple[str, ...], **given: Any) -> int:
    """Compare a pull request with its merge base, and write the report that 'harness ci post' posts.

    --device cuda:0,opengl:0 measures on several devices, one after another. The report names a device that
    does not open; the command fails only if none opens. In a workflow it also writes the job's summary and
    annotations. The exit status is that of 'harness compare', and the report is written whatever the verdicts
    are.

    --script measures benchmark scripts. Without a suite, the configuration's scripts are the default.

    --pytest runs the project's own pytest session, with --perf-base and --perf-gate. Benchmarks outside
    suites run in alternating processes of base and head.
    """
    from harness.cli.compare_command import repository_of, settings_from
    from harness.config import load_config
    from harness.report.document.from_results import kernel_places, review_of

    if tests and selection.cases:
        raise UsageError("CASES and --pytest exclude each other: give one of them.")
    config = load_config()
    repository = repository_of(config)
    head = git.resolve(repository, head)
    left = git.merge_base(repository, base, head)
    if left == head:
        raise UsageError(f"{head[:10]} is part of {base} already: there is nothing to compare.")
    if tests:
        return _compare_tests(config, selection, tests, (left, head), given)
    if scripts := script_options.scripts_in(config, given):
        ends = executable_options.Ends(repository, (left, head), tuple(selection.cases or ()))
        given["results"] = given["out"] / "records"
        results = script_options.compare(config, selection, ends, scripts, given)
        return _tell(review_of(results), results, selection, given)
    settings = settings_from(config, selection, given | {"results": given["out"] / "records"})
    results, heads = _on_each_device(config, selection, settings, left, head)
    places = {loaded.suite.name: kernel_places(loaded) for loaded in heads}
    return _tell(review_of(results, places), results, selection, given)


def _tell(
    review: Review,
    results: list[ComparisonResult],
    selection: options.Selection,
    given: Mapping[str, Any],
) -> int:
    """Write all files of a review, print its results, and return the exit status."""
    from harness.ci.gitlab.measured_pipeline import links_of_job
    from harness.report.terminal import comparison_tables

    history = given["history"]
    links = (
        links_of_job(os.environ, history=history) if in_pipeline() else workflow_events.links_of_run(history)
    )
    write_faces(given["out"], faces(review, links))
    workflow_events.append_summary(summary(review, links))
    status = comparison_tables.exit_code(results, given["fail_on"])
    if selection.as_json:
        echo_json([comparison_tables.as_json(result) for result in results])
    else:
        comparison_tables.print_comparison(results, status)
    for line in workflow_commands(review) if workflow_events.in_workflow() and not selection.as_json else ():
        click.echo(line)
    return status


def _compare_tests(
    config: Config,
    selection: options.Selection,
    tests: tuple[str, ...],
    ends: tuple[str, str],
    given: Mapping[str, Any],
) -> int:
    """Measure with the project's own pytest benchmarks, and report them like any comparison."""
    from harness.ci import pytest_session
    from harness.cli.compare_command import repository_of
    from harness.records.imports.pytest_benchmark_files import TESTS
    from harness.report.document.from_results import kernel_places, review_of
    from harness.report.terminal.comparison_tables import exit_code
    from harness.suite.planning import load_suites

    base, head = ends
    repository = repository_of(config)
    if (checked_out := git.resolve(repository, "HEAD")) != head:
        raise UsageError(f"pytest measures the checkout, {checked_out[:10]}: check {head[:10]} out.")
    session = pytest_session.Tests(paths=tests, project=config.root, out=given["out"].resolve())
    words = [word for size in selection.size for word in ("--perf-size", size)]
    words += ["--perf-quick"] if selection.quick else []
    failed = False
    for spec in (selection.device or config.device or "").split(","):
        on_it = [*words, *(["--perf-device", spec] if spec else [])]
        failed = pytest_session.compare(session, base, on_it) or failed
    results = pytest_session.compared(session, base, head)
    if not results:
        raise MeasureError(
            f"No benchmark in {', '.join(tests)} compared anything: see pytest's output above."
        )
    if failed and exit_code(results, given["fail_on"]) == ExitCode.FINE:
        problem = "A test failed in pytest's session, although no verdict does: see the job's log."
        results = [dataclasses.replace(result, problem=result.problem or problem) for result in results]
    suites = {result.comparison.head.suite for result in results} - {TESTS}
    loaded = load_suites(config, head) if suites else []
    places = {each.suite.name: kernel_places(each) for each in loaded}
    kernels = {
        each.kernel for result in results for each in result.verdicts if result.comparison.head.suite == TESTS
    }
    places[TESTS] = pytest_session.places_of(session, repository, kernels)
    return _tell(review_of(results, places), results, selection, given)


def _on_each_device(
    config: Config, selection: options.Selection, settings: CompareSettings, base: str, head: str
) -> tuple[list[ComparisonResult], list[LoadedSuite]]:
    """Return the comparisons on each device, and their suites at head. Raises DeviceError if none works."""
    from harness.cli.compare_command import compare_pairs
    from harness.device.backends import parse_spec
    from harness.suite.planning import plan

    results: list[ComparisonResult] = []
    heads: list[LoadedSuite] = []
    absent: list[str] = []
    specs = dict.fromkeys(settings.device.split(",")) if settings.device else {None: None}
    for spec in specs:
        if spec is not None:
            parse_spec(spec)  # before hours are spent on the first device
    for spec in specs:
        on_it = dataclasses.replace(settings, device=spec)
        try:
            pairs = selection.pairs(config, base, head, on_broken=None)  # no report may omit a suite
            done = compare_pairs(pairs, selection, on_it, most_cases=LIMITS["cases"])
        except DeviceError as error:
            if len(absent) + 1 == len(specs):
                raise
            absent.append(f"{spec} was not compared: {error.message}")
            warn(f"No comparison on {spec}", absent[-1])
            continue
        results += done.results
        heads += done.heads
        if any(result.interrupted for result in done.results):
            break

    def concerns(result: ComparisonResult, loaded: LoadedSuite) -> bool:
        backend = result.comparison.device.backend
        made = (planned.kernel.source_for(backend) for planned in plan(loaded.suite, selection.cases))
        return bool(result.verdicts or result.problem) or any(made)

    # A suite without kernels for a device is compared on the other devices, and its absence is no problem.
    concerned = [
        result for result, loaded in zip(results, heads, strict=True) if concerns(result, loaded)
    ] or results
    first, *others = concerned
    return [dataclasses.replace(first, left_out=(*first.left_out, *absent)), *others], heads


@click.command("devices", short_help="In the job with the card: print which of its devices work.")
@click.argument("specs", metavar="DEVICES")
@options.json
def devices(specs: str, as_json: bool) -> ExitCode:
    """Print which of a card's DEVICES, such as cuda:0,opengl:0, can be opened here, one per line.

    The reason for each other device is printed too, in a workflow as a warning of the run and in the job's
    summary.

    Exit status 3 if none can be opened.
    """
    from harness.run.device_session import find_device

    found: dict[str, str] = {}
    absent: dict[str, str] = {}
    for spec in specs.split(","):
        try:
            found[spec] = find_device(spec).name
        except DeviceError as error:
            absent[spec] = error.message
            warn(f"{spec} is not measured", f"{spec} is not measured: {error.message}")
    if absent:
        lines = (f"- {code(spec)}: {code(why)}" for spec, why in absent.items())
        workflow_events.append_summary(
            "\n".join(["**Not measured, as they do not open here:**\n", *lines, "\n"])
        )
    if as_json:
        echo_json({"devices": found, "absent": absent})
    else:
        click.echo("".join(f"{spec}\n" for spec in found), nl=False)
    return ExitCode.FINE if found else ExitCode.NOT_MEASURED


@click.command("measured", short_help="In a job of the history: print what it measured and what it left out.")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@options.json
def measured(folder: Path, as_json: bool) -> None:
    """Print what the records in FOLDER measured, and which kernels were left out because a package is
    missing.

    FOLDER is laid out like asv's results. In a workflow the text also goes to the job's summary, and
    omissions become warnings of the run.
    """
    from harness.ci.measured import markdown, read_measured, warnings

    found, problems = read_measured(folder)
    text = markdown(found, problems, extras_there(Path()))
    workflow_events.append_summary(text)
    if as_json:
        echo_json({"measured": found, "problems": problems})
        return
    click.echo(text, nl=False)
    for warning in warnings(found, problems):
        warn("Left out", warning)
