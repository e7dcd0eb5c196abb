"""harness static: builds suites, prints facts or differences, returns an exit status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from harness.ci.github.workflow_events import append_summary, links_of_run
from harness.cli import echo_json, options, show_sheets, tell_lines
from harness.cli.build import built, built_suite, status_of, tell_left_out, wanted_archs
from harness.config import StaticConfig, load_config
from harness.device.static.architecture_builds import capability_of
from harness.device.static.differences import Difference, differences
from harness.device.static.occupancy import CardModel, card
from harness.device.static.static_facts import StaticFacts, facts
from harness.errors import ExitCode
from harness.report.document.document import encode
from harness.report.pull_request.comment_markdown import SUMMARY_BYTES
from harness.report.pull_request.static_comment import static_comment
from harness.report.terminal import static_differences
from harness.report.terminal.static_tables import facts_json, facts_tables
from harness.report.words.of_verdict import source_label
from harness.run.builds.build_only import BuildResult
from harness.run.builds.static_records import write_static
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase, SuitePair
from harness.system.cache import write_file


def show(chosen: options.Selection, given: Mapping[str, Any]) -> int:
    """Print the demands of one commit's kernels. Raises UsageError for an unknown architecture or card."""
    config, cards = load_config(), {words: card(words) for words in given["cards"]}
    archs = _wanted(given["archs"], cards.values(), config.static)
    found: list[tuple[BuildResult, list[StaticFacts]]] = []
    for result, planned in built(chosen, archs, instructions=True):
        case_facts = facts(result.loaded.suite.problem, planned, result.builds, cards)
        if chosen.commit is not None and not given["no_save"]:
            write_static(result, planned, case_facts, given["results"] or config.results_folder)
        found.append((result, case_facts))
    if chosen.as_json:
        echo_json([row for result, some in found for row in facts_json(result, some)])
    else:
        show_sheets(sheet for result, some in found for sheet in facts_tables(result, some))
    results = [result for result, _ in found]
    tell_left_out(results)
    _tell_missing([each for _, some in found for each in some])
    return status_of(results)


def _tell_missing(found: Sequence[StaticFacts]) -> None:
    """Print ptxas' warnings and reasons for missing values on standard error, with the architectures."""
    archs_of_line: dict[str, list[str]] = {}
    for each in found:
        build = each.build
        lines = [f"{build.kernel}: ptxas warns: {warning}" for warning in build.warnings]
        for line in filter(None, (*lines, build.code.problem if build.code else "", each.problem)):
            archs_of_line.setdefault(line, []).append(build.arch)
    tell_lines(f"{line} ({', '.join(dict.fromkeys(archs))})" for line, archs in archs_of_line.items())


def _wanted(archs: str | None, cards: Iterable[CardModel], settings: StaticConfig) -> list[str]:
    """Return the requested architectures, and each card's own unless a similar one is requested."""
    wanted = wanted_archs(archs) if archs is not None else []
    for each in cards:
        if each.capability not in map(capability_of, wanted):
            wanted.append(each.arch)
    return wanted or wanted_archs(",".join(settings.archs))


def against(chosen: options.Selection, given: Mapping[str, Any]) -> int:
    """Print the differences from a base. Raises UsageError, ConfigError."""
    config = load_config()
    failing = {*(given["fail_on"] or config.static.fail_on)}
    archs = _wanted(given["archs"], [card(words) for words in given["cards"]], config.static)
    compared: list[tuple[SuitePair, list[Difference]]] = []
    heads: list[BuildResult] = []
    pairs = chosen.pairs(config, given["base"], chosen.commit)
    for pair, sizes in pairs:
        one, other = (each.source.tree_sha256 for each in pair)
        if one and one == other and not (pair.base.absent or pair.head.absent):
            click.echo(f"{pair.head.suite.name}: no file that a build can read differs.", err=True)
            continue
        base, head = pair.plans(chosen.cases, sizes, quick=chosen.quick)
        timeout_s = chosen.timeout or config.timeout_s
        _, before = _built(pair.base, base, archs, timeout_s, libraries=False)
        result, after = _built(pair.head, head, archs, timeout_s, libraries=False)
        built_before = {"", *(each.build.library_sha256 for each in before)}
        new = {case for each in after if each.build.library_sha256 not in built_before for case in each.cases}
        of_new = [each for each in head if each.case.id in new]
        libraries, compiled = _built(pair.head, of_new, archs, timeout_s, libraries=True)
        after = [*(each for each in after if new.isdisjoint(each.cases)), *compiled]
        compared.append((pair, differences(before, after, most_registers=config.static.max_registers)))
        heads += filter(None, [result, libraries])
    ends = [side.source.commit for side in pairs[0][0]] if pairs else [None, None]
    _tell(compared, chosen, given, [each.compiler for each in heads], (ends[0], ends[1]))
    tell_left_out(heads)
    risks = {risk.kind for _, found in compared for each in found for risk in each.risks}
    if risks & failing:
        return ExitCode.REGRESSION
    statuses = {each.status for _, found in compared for each in found}
    is_fine = not compared or ("failed" not in statuses and statuses & {"identical", "changed", "new"})
    return ExitCode.FINE if is_fine else ExitCode.NOT_MEASURED


def _built(
    loaded: LoadedSuite,
    planned: Sequence[PlannedCase],
    archs: Sequence[str],
    timeout_s: float,
    *,
    libraries: bool,
) -> tuple[BuildResult | None, list[StaticFacts]]:
    """Return a build of some cases and its facts; no build if the suite has none of them."""
    if not planned:
        return None, []
    result = built_suite(loaded, planned, archs, timeout_s, instructions=True, libraries=libraries)
    return result, facts(loaded.suite.problem, planned, result.builds, {})


def _tell(
    pairs: Sequence[tuple[SuitePair, list[Difference]]],
    chosen: options.Selection,
    given: Mapping[str, Any],
    compilers: Sequence[str],
    commits: tuple[str | None, str | None],
) -> None:
    if chosen.as_json:
        echo_json(
            [row for pair, found in pairs for row in static_differences.as_json(pair.head.suite.name, found)]
        )
    else:
        for pair, found in pairs:
            base, head = (source_label(side.source) for side in pair)
            title = f"{pair.head.suite.name}, {base} → {head}"
            show_sheets(
                [static_differences.differences_table(title, found), *static_differences.loop_sheets(found)]
            )
            click.echo()
    report = static_differences.static_report(
        ((pair.head.suite.name, found) for pair, found in pairs), compilers, base=commits[0], head=commits[1]
    )
    text = static_comment(report, links_of_run(), limit_bytes=SUMMARY_BYTES)
    append_summary(text)
    for path, content in ((given["markdown"], text.encode()), (given["report"], encode(report))):
        if path is not None:
            write_file(path, content, "Name a file in a folder with room.")
