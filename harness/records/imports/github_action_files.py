"""Files of github-action-benchmark: the JSON from a custom tool, and the history in data.js."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.records.imports import imported
from harness.records.imports.quantities import COMMIT, Better, case_of, file_of_figures, of_commit

NAME: imported.Format = "github-action-benchmark"
SCRIPT = b"window.BENCHMARK_DATA"
"""The beginning of data.js. JSON follows an equals sign."""
_MORE_IS_BETTER = frozenset(("benchmarkjs", "customBiggerIsBetter", "pytest"))
"""Its tools with values that are better high. Those of every other tool are better low."""
_LONGEST = 80
"""Characters of a name in a message."""
_NEVER = dt.datetime.min.replace(tzinfo=dt.timezone.utc)


class _Bench(msgspec.Struct):
    name: str
    value: float
    unit: str


class _Commit(msgspec.Struct):
    id: str


class _Entry(msgspec.Struct):
    commit: _Commit
    tool: str
    benches: list[_Bench]
    date: float = 0.0
    """Milliseconds since 1970."""


class _History(msgspec.Struct):
    entries: dict[str, list[_Entry]]


def is_results(content: Any) -> bool:
    """Return True for the list that a custom tool writes, or a history."""
    if isinstance(content, dict):
        return isinstance(content.get("entries"), dict)
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(each, dict) and {"name", "value", "unit"} <= each.keys() for each in content)
    )


def script_json(content: bytes) -> bytes:
    """Return the JSON in the script data.js."""
    return content.partition(b"=")[2].rstrip().removesuffix(b";")


def read_github_action(path: Path, content: Any, better: Better | None) -> list[imported.ImportedFile]:
    """Return a file for each commit of a history, oldest first, or one for a list of results.

    `better` is the direction of a list. Raises UsageError for a list without a direction and a history with
    one, StoreError for another format.
    """
    if isinstance(content, list):
        if better is None:
            raise UsageError(
                f"{path} does not tell whether more or less is better: say --better higher for a tool "
                "customBiggerIsBetter of the workflow, --better lower for customSmallerIsBetter."
            )
        benches = imported.converted(path, content, list[_Bench], NAME)
        return [file_of_figures(path, NAME, NAME, *_cases(benches, better))]
    if better is not None:
        raise UsageError(
            f"{path} names the tool of each commit, which fixes the direction: leave out --better."
        )
    return _commits(path, imported.converted(path, content, _History, NAME))


def _commits(path: Path, history: _History) -> list[imported.ImportedFile]:
    """Return a file for each commit. The first one reports the commits that were left out."""
    files, lost = list[imported.ImportedFile](), list[str]()
    for suite, entries in history.entries.items():
        for entry in entries:
            found, problems = _cases(entry.benches, "higher" if entry.tool in _MORE_IS_BETTER else "lower")
            if not COMMIT.fullmatch(entry.commit.id):
                lost.append(
                    f"Results of {entry.commit.id[:_LONGEST]!r} are left out: that is no hash of a commit."
                )
            elif found:
                file = file_of_figures(path, NAME, f"{NAME} {entry.tool[:_LONGEST]}", found, problems)
                file = replace(file, executable=suite, started_at=_moment(entry.date))
                files.append(of_commit(file, entry.commit.id))
            else:
                lost += problems
    if not files:
        file_of_figures(path, NAME, NAME, [], lost)  # raises with the reason why none is left
    oldest, *others = sorted(files, key=lambda file: file.started_at or _NEVER)
    return [replace(oldest, problems=tuple(dict.fromkeys((*lost, *oldest.problems)))), *others]


def _moment(date_ms: float) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(date_ms / 1e3, dt.timezone.utc) if date_ms > 0 else None
    except (OverflowError, OSError, ValueError):
        return None


def _cases(benches: Sequence[_Bench], better: Better) -> tuple[list[imported.ImportedCase], list[str]]:
    """Return the cases of results, and why others are left out."""
    found, problems = list[imported.ImportedCase](), list[str]()
    for bench in benches:
        try:
            found.append(case_of(bench.name, bench.value, bench.unit, better, NAME))
        except ValueError as error:
            problems.append(f"{bench.name[:_LONGEST]} is left out: {error}.")
    return found, problems
