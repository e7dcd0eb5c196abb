"""Summarizes the measurements of a history job from its records, for the page of its run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from harness.ci.requirements import extras_with
from harness.errors import StoreError
from harness.numbers import counted
from harness.records.record_files import RunResult, read_run
from harness.report.templates import code

_MOST = 50
"""Most sentences of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSuite:
    """A suite on a device, over the commits that the job measured."""

    device: str
    """The device's name and spec."""
    suite: str
    commits: int
    measured: int
    failed: int
    skipped: Counter[str]
    """Omitted cases, by reason."""
    lacking: tuple[str, ...]
    """A sentence for each kernel that lacks a package."""


def read_measured(folder: Path) -> tuple[list[MeasuredSuite], list[str]]:
    """Return the measured suites in records below a results folder, and why some records are unreadable."""
    runs: list[RunResult] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*/*.jsonl*")):
        if ".." in path.name:
            continue  # a comparison's record, which a calibration leaves too
        try:
            stored = read_run(path)
        except StoreError as error:
            problems.append(error.message)
            continue
        if stored.rows or stored.interrupted:
            runs.append(stored)
    runs.sort(key=_place)
    return [_measured(*place, list(group)) for place, group in groupby(runs, _place)], problems


def _place(stored: RunResult) -> tuple[str, str]:
    device = stored.run.device
    return f"{device.name} ({device.spec})", stored.run.source.suite


def _measured(device: str, suite: str, runs: Sequence[RunResult]) -> MeasuredSuite:
    rows = [row for stored in runs for row in stored.rows]
    lacking = (f"{suite}.{row.message}" for row in rows if row.reason == "needs-package")
    return MeasuredSuite(
        device=device,
        suite=suite,
        commits=len({stored.run.source.commit for stored in runs}),
        measured=sum(row.status == "measured" for row in rows),
        failed=sum(row.status == "failed" for row in rows),
        skipped=Counter(row.reason for row in rows if row.status == "skipped"),
        lacking=tuple(dict.fromkeys(lacking)),
    )


def markdown(found: Sequence[MeasuredSuite], problems: Sequence[str], extras: Sequence[str] = ()) -> str:
    """Return the job's summary, with untrusted texts escaped. `extras` are those of the job's
    requirements.
    """
    return "\n".join(_lines(found, problems, extras)) + "\n"


def _lines(found: Sequence[MeasuredSuite], problems: Sequence[str], extras: Sequence[str]) -> Iterator[str]:
    yield "### Measured\n"
    if not found:
        yield "Nothing new: these commits were measured before, or none could be."
    else:
        yield "| Device | Suite | Commits | Measured | Failed | Left out |"
        yield "|---|---|--:|--:|--:|---|"
    for each in found:
        left_out = ", ".join(f"{count} {code(reason)}" for reason, count in sorted(each.skipped.items()))
        figures = f"{each.commits} | {each.measured} | {each.failed} | {left_out or 'nothing'}"
        yield f"| {code(each.device)} | {code(each.suite)} | {figures} |"
    for device, sentences in _lacking(found):
        yield f"\n**Left out because of a missing package** on {code(device)}:\n"
        yield from (f"- {code(sentence)}" for sentence in sentences[:_MOST])
        if len(sentences) > _MOST:
            yield f"- and {counted(len(sentences) - _MOST, 'kernel')} more"
        if more := [extra for extra in brought_by(sentences) if extra not in extras]:
            command = f"harness ci init --with {','.join(sorted([*extras, *more]))} --force"
            yield f"\n{code(command)} writes requirements that have them."
    if problems:
        yield "\n**Could not be read:**\n"
        yield from (f"- {code(problem)}" for problem in problems[:_MOST])


def warnings(found: Sequence[MeasuredSuite], problems: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each device that lacks packages for kernels, and for each broken record."""
    for device, sentences in _lacking(found):
        more = f" And {len(sentences) - 1} more: see the summary." if len(sentences) > 1 else ""
        yield f"{device} leaves out {counted(len(sentences), 'kernel')}: {sentences[0]}{more}"
    yield from problems


def _lacking(found: Sequence[MeasuredSuite]) -> Iterator[tuple[str, list[str]]]:
    for device, group in groupby(found, lambda each: each.device):
        if sentences := [sentence for each in group for sentence in each.lacking]:
            yield device, sentences


def brought_by(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return the extras that contain the packages which these kernels lack."""
    names = (re.search(r" needs (?:the package )?([A-Za-z0-9._-]+)", sentence) for sentence in sentences)
    return tuple(sorted({extra for name in names if name for extra in extras_with(name[1])[:1]}))
