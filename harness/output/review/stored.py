"""Comparisons that were stored, as the results that they were."""

from __future__ import annotations

__all__ = ["newest_comparisons", "stored_result"]

import re
from pathlib import Path

from harness.errors import StoreError
from harness.judgement.limits import TWINS
from harness.judgement.noise import read_calibration
from harness.run.compare import ComparisonResult
from harness.store.records_file import read_comparison

_NAME = re.compile(r"(?P<stamp>[0-9TZ]+)-(?P<ends>[^-]+\.\.[^-]+)-(?P<suite>\w+)-[0-9a-f]+\.jsonl")


def stored_result(path: Path) -> ComparisonResult:
    """A comparison from its record; of one that was killed, without verdicts. Raises StoreError."""
    stored = read_comparison(path)
    verdicts = stored.verdicts
    return ComparisonResult(
        stored.comparison,
        tuple(verdict for verdict in verdicts if verdict.case not in TWINS),
        tuple(verdict for verdict in verdicts if verdict.case in TWINS),
        stored.left_out,
        read_calibration(path.parent),
        path,
        interrupted=not stored.complete,
        problem_changes=stored.problem_changes,
    )


def newest_comparisons(results: Path) -> list[ComparisonResult]:
    """The newest comparison below a folder of results, with those of the same two commits of other suites
    and cards: the newest of each. Raises StoreError where there is none.
    """
    found = [(match, path) for path in results.glob("*/*.jsonl") if (match := _NAME.fullmatch(path.name))]
    ends = None
    chosen: dict[tuple[str, str], ComparisonResult] = {}
    for match, path in sorted(found, key=lambda each: each[1].name, reverse=True):
        key = (path.parent.name, match["suite"])
        if (ends and match["ends"] != ends) or key in chosen:
            continue
        result = stored_result(path)
        if result.comparison.command == "compare":  # a calibration's record looks alike
            ends = match["ends"]
            chosen[key] = result
    if not chosen:
        raise StoreError(
            f"No comparison is stored in {results}: run 'harness compare BASE HEAD' first, or name records."
        )
    return list(reversed(chosen.values()))
