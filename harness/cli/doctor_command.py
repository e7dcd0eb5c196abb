"""harness doctor: checks if this machine can judge performance, and what to change."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

import click

from harness.cli import echo_json, options
from harness.config import load_config
from harness.errors import ExitCode
from harness.run.doctor.checks import CheckResult, diagnose, is_fit, verdict
from harness.run.doctor.gather import gather

_MARKS = {"good": "✓", "note": "·", "warn": "!", "bad": "✗", "unknown": "?"}
_COLOURS = {"good": "green", "note": "cyan", "warn": "yellow", "bad": "red", "unknown": "magenta"}
_STATUS_WIDTH = max(map(len, _MARKS))
_WIDEST = 100


@click.command("doctor")
@options.device
@options.json
def command(device: str | None, as_json: bool) -> int:
    """Check whether this machine can measure performance well, and say what to change.

    It looks at the idle card, its clocks and timers, the host and the project. It changes no setting.

    Exit status 3 if something is bad: then nothing can be measured before it is fixed.
    """
    config = load_config()
    facts = gather(device or config.device, config.root, config.results_folder)
    findings = diagnose(facts)
    said = verdict(facts, findings)
    if as_json:
        echo_json({"fit": is_fit(findings), "verdict": said, "device": facts.device, "findings": findings})
    else:
        encoding = sys.stdout.encoding or "ascii"
        width = min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
        for line in (*_lines(findings, width), *wrap(said, width)):
            click.echo(line.encode(encoding, "replace").decode(encoding))
    return ExitCode.FINE if is_fit(findings) else ExitCode.NOT_MEASURED


def _lines(findings: Sequence[CheckResult], width: int) -> Iterator[str]:
    """Yield the lines of each group: mark, status, id and finding, with the remedy below."""
    id_width = max(len(finding.id) for finding in findings)
    for group, members in groupby(findings, lambda finding: finding.group):
        yield click.style(group, bold=True)
        for finding in members:
            mark = f"{_MARKS[finding.status]} {finding.status:{_STATUS_WIDTH}}"
            status = click.style(mark, fg=_COLOURS[finding.status])
            # Two for the margin, two for the mark, two between columns.
            advice_at = 2 + 2 + _STATUS_WIDTH + 2
            found_at = advice_at + id_width + 2
            first, *rest = _wrapped(finding.found, width - found_at)
            yield f"  {status}  {finding.id:{id_width}}  {first}"
            yield from (f"{'':{found_at}}{line}" for line in rest)
            yield from (f"{'':{advice_at}}{line}" for line in _wrapped(finding.advice, width - advice_at))
        yield ""


def _wrapped(text: str, width: int) -> list[str]:
    """Return the wrapped lines of a text, with its own line breaks; long paths and commands stay whole."""
    return [
        line
        for paragraph in text.splitlines()
        for line in wrap(paragraph, max(width, 20), break_long_words=False, break_on_hyphens=False)
    ]
