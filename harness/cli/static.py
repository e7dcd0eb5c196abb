"""harness static: suites in, facts or what differs out, an exit status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from harness.cli import echo_json, options
from harness.cli.build import built, built_suite, status_of, tell_left_out, wanted_archs
from harness.config import StaticConfig, load_config
from harness.errors import ExitCode, UsageError
from harness.github.events import append_summary, links_of_run
from harness.output import static_differences
from harness.output.review.markdown import SUMMARY_BYTES
from harness.output.review.static import encode_static, static_comment
from harness.output.sentences import commit_label
from harness.output.static_tables import as_json, facts_tables
from harness.output.tables import print_out
from harness.run.build_only import BuildResult
from harness.run.static_records import write_static
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase, SuitePair, fitting, load_pairs
from harness.static.builds import capability_of
from harness.static.differences import Difference, differences
from harness.static.facts import Facts, facts
from harness.static.occupancy import Card, card
from harness.system.cache import write_atomically


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command is told beside the selection."""

    archs: str | None
    cards: tuple[str, ...]
    base: str | None
    markdown: Path | None
    report: Path | None
    fail_on: tuple[str, ...]
    results: Path | None
    no_save: bool

    def __post_init__(self) -> None:
        """Raises UsageError for options that would count for nothing."""
        for name, given in (
            ("--markdown", self.markdown),
            ("--report", self.report),
            ("--fail-on", self.fail_on),
        ):
            if given and self.base is None:
                raise UsageError(f"{name} is for a comparison: say with what, by --base COMMIT.")


def show(chosen: options.Selection, asked: Asked) -> int:
    """What the kernels of one commit need. Raises UsageError for an architecture or a card that is none."""
    config, cards = load_config(), {words: card(words) for words in asked.cards}
    archs = _wanted(asked.archs, cards.values(), config.static)
    found: list[tuple[BuildResult, list[Facts]]] = []
    for result, planned in built(chosen, archs, instructions=True):
        told = facts(result.loaded.suite.problem, planned, result.builds, cards)
        if chosen.commit is not None and not asked.no_save:
            write_static(result, planned, told, asked.results or config.results_folder)
        found.append((result, told))
    if chosen.as_json:
        echo_json([row for result, some in found for row in as_json(result, some)])
    else:
        for sheet in (sheet for result, some in found for sheet in facts_tables(result, some)):
            print_out(sheet)
            click.echo()
    results = [result for result, _ in found]
    tell_left_out(results)
    _tell_missing([each for _, some in found for each in some])
    return status_of(results)


def _tell_missing(found: Sequence[Facts]) -> None:
    """On standard error: what ptxas warns of, and why figures are not there, each with its architectures."""
    told: dict[str, list[str]] = {}
    for each in found:
        build = each.build
        lines = [f"{build.kernel}: ptxas warns: {warning}" for warning in build.warnings]
        for line in filter(None, (*lines, build.code.problem if build.code else "", each.problem)):
            told.setdefault(line, []).append(build.arch)
    for line, archs in told.items():
        click.echo(f"{line} ({', '.join(dict.fromkeys(archs))})", err=True)


def _wanted(archs: str | None, cards: Iterable[Card], settings: StaticConfig) -> list[str]:
    """The architectures asked for, and of each card its own unless one like it is asked for."""
    wanted = wanted_archs(archs) if archs is not None else []
    for each in cards:
        if each.capability not in map(capability_of, wanted):
            wanted.append(each.arch)
    return wanted or wanted_archs(",".join(settings.archs))


def against(chosen: options.Selection, asked: Asked) -> int:
    """What differs from a base. Raises UsageError and ConfigError."""
    config = load_config()
    assert asked.base is not None, "there is something to compare with"
    failing = {*(asked.fail_on or config.static.fail_on)}
    archs = _wanted(asked.archs, [card(words) for words in asked.cards], config.static)
    pairs = load_pairs(
        config,
        asked.base,
        chosen.commit,
        chosen.cases,
        timeout_s=chosen.timeout,
        suite_from=chosen.suite_from,
    )
    wanted = fitting(pairs, chosen.cases, chosen.size)
    for line in wanted.left_out:
        click.echo(line, err=True)
    told: list[tuple[SuitePair, list[Difference]]] = []
    heads: list[BuildResult] = []
    for pair, sizes in wanted.chosen:
        if _same_files(pair):
            click.echo(f"{pair.head.suite.name}: no file that a build can read differs.", err=True)
            continue
        base, head = pair.plans(chosen.cases, sizes, quick=chosen.quick)
        timeout_s = chosen.timeout or config.timeout_s
        _, before = _built(pair.base, base, archs, timeout_s)
        result, after = _built(pair.head, head, archs, timeout_s)
        told.append((pair, differences(before, after, most_registers=config.static.max_registers)))
        heads += filter(None, [result])
    ends = [side.source.commit for side in wanted.chosen[0][0]] if wanted.chosen else [None, None]
    _tell(told, chosen, asked, [each.compiler for each in heads], (ends[0], ends[1]))
    tell_left_out(heads)
    risks = {risk.kind for _, found in told for each in found for risk in each.risks}
    if risks & failing:
        return ExitCode.REGRESSION
    return status_of(heads) if told else ExitCode.FINE


def _built(
    loaded: LoadedSuite, planned: Sequence[PlannedCase], archs: Sequence[str], timeout_s: float
) -> tuple[BuildResult | None, list[Facts]]:
    """None where the suite has none of the cases."""
    if not planned:
        return None, []
    result = built_suite(loaded, planned, archs, timeout_s, instructions=True)
    return result, facts(loaded.suite.problem, planned, result.builds, {})


def _same_files(pair: SuitePair) -> bool:
    """Whether there is nothing to compile: all that a build can read is the same at both commits."""
    base, head = (each.source.tree_sha256 for each in pair)
    return bool(base) and base == head and not (pair.base.absent or pair.head.absent)


def _tell(
    told: Sequence[tuple[SuitePair, list[Difference]]],
    chosen: options.Selection,
    asked: Asked,
    compilers: Sequence[str],
    commits: tuple[str | None, str | None],
) -> None:
    if chosen.as_json:
        echo_json(
            [row for pair, found in told for row in static_differences.as_json(pair.head.suite.name, found)]
        )
    else:
        for pair, found in told:
            table = static_differences.differences_table(_title(pair), found)
            if table.columns:
                print_out(table)
            else:
                click.echo(f"{table.title}\n{table.caption}")
            click.echo()
    report = static_differences.static_report(
        ((pair.head.suite.name, found) for pair, found in told), compilers, base=commits[0], head=commits[1]
    )
    text = static_comment(report, links_of_run(), limit_bytes=SUMMARY_BYTES)
    append_summary(text)
    if asked.markdown is not None:
        write_atomically(asked.markdown, text.encode())
    if asked.report is not None:
        write_atomically(asked.report, encode_static(report))


def _title(pair: SuitePair) -> str:
    base, head = (commit_label(side.source.commit, dirty=side.source.dirty) for side in pair)
    return f"{pair.head.suite.name}, {base} → {head}"
