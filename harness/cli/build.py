"""Builds kernels without their cards, for 'check --build-only' and 'static'."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.cli import echo_json, options, show_sheets, tell_failed, tell_lines
from harness.config import load_config
from harness.device.static.architecture_builds import check_arch
from harness.errors import ExitCode, UsageError
from harness.report.terminal.progress import Waiting
from harness.report.terminal.static_tables import build_table, builds_json
from harness.report.words.of_verdict import source_label
from harness.run.builds.build_only import BuildResult, build_only
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase, plan

_PLACE = re.compile(r"^\S+?(?::\d+)+: ", re.MULTILINE)
"""The source position at the start of a compiler's message."""
_MOST_LINES = 20
"""Most lines of a compiler's output that are shown: later errors mostly follow from the first."""


def build(chosen: options.Selection, archs: str) -> int:
    """Build the selection for architectures such as `sm_86,sm_90a`. Raises UsageError."""
    wanted = wanted_archs(archs)
    if chosen.device is not None:
        raise UsageError(f"--build-only runs on no device: leave out --device {chosen.device}.")
    results = [result for result, _ in built(chosen, wanted)]
    if chosen.as_json:
        echo_json(builds_json(results))
    else:
        show_sheets(map(build_table, results))
    tell_left_out(results)
    return status_of(results)


def wanted_archs(text: str) -> list[str]:
    """Return each architecture of a text such as ``sm_86, sm_90a`` once. Raises UsageError."""
    return list(dict.fromkeys(check_arch(each.strip()) for each in text.split(",")))


def built(
    chosen: options.Selection, archs: Sequence[str], *, instructions: bool = False
) -> Iterator[tuple[BuildResult, list[PlannedCase]]]:
    """Yield the selected suites, built one after another, each with its cases."""
    config = load_config()
    for loaded, sizes in chosen.suites(config):
        planned = plan(loaded.suite, chosen.cases, sizes, quick=chosen.quick)
        timeout_s = chosen.timeout or config.timeout_s
        yield built_suite(loaded, planned, archs, timeout_s, instructions=instructions), planned


def built_suite(
    loaded: LoadedSuite,
    planned: Sequence[PlannedCase],
    archs: Sequence[str],
    timeout_s: float,
    *,
    instructions: bool,
    libraries: bool = True,
) -> BuildResult:
    """Build a suite's cases while a line shows the progress."""
    at = source_label(loaded.source)
    with Waiting(f"Compiling {loaded.suite.name} of {at} for {', '.join(archs)}") as waiting:
        return build_only(
            loaded,
            planned,
            archs,
            timeout_s,
            instructions=instructions,
            libraries=libraries,
            tell=waiting.tell,
        )


def tell_left_out(results: Sequence[BuildResult]) -> None:
    """Print on standard error what was not built, and failures with the compiler's output."""
    rows = [row for result in results for row in result.builds]
    tell_lines(f"Not built: {row.message}" for row in rows if row.status == "not-built" and row.message)
    failed: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        if row.status == "failed":
            # If a sentence repeats for several architectures, it names them.
            message = row.message.replace(row.arch, "{arch}")
            failed.setdefault((row.cases[0], row.reason, message, row.log), []).append(row.arch)
    alike: dict[tuple[str, str], list[str]] = {}
    for (case, reason, message, log), archs in failed.items():
        kernel = case.partition("[")[0]
        others = alike.setdefault((message.replace(kernel, "{kernel}"), _PLACE.sub("", log)), [])
        others.append(kernel)
        if len(others) == 1 or not log:
            listed = ", ".join(archs)
            sentence = f"{case} failed for {listed} ({reason}): {message.replace('{arch}', archs[0])}"
            tell_failed(sentence, _beginning(log))
    for (_, log), (first, *others) in alike.items():
        if log and others:
            tell_lines([f"As {first} failed, so did {', '.join(others)}."])


def _beginning(log: str) -> str:
    lines = log.splitlines()
    more = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], f"... {more} more lines: --json has them"]) if more > 1 else log


def status_of(results: Sequence[BuildResult]) -> ExitCode:
    statuses = {row.status for result in results for row in result.builds}
    return ExitCode.NOT_MEASURED if "failed" in statuses or "built" not in statuses else ExitCode.FINE
