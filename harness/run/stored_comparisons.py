"""Reads comparisons back from the folder of results."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from harness.errors import StoreError
from harness.judgement.noise import read_calibration
from harness.records.record_files import ComparisonResult, read_comparison

_NAME = re.compile(r"(?P<stamp>[0-9TZ]+)-(?P<ends>[^-]+\.\.[^-]+)-(?P<suite>\w+)-[0-9a-f]+\.jsonl")


def stored_result(path: Path) -> ComparisonResult:
    """Return a comparison from its record, with the device's calibration. Raises StoreError."""
    return replace(read_comparison(path), calibration=read_calibration(path.parent))


def newest_comparisons(results: Path) -> list[ComparisonResult]:
    """Return the newest comparison below a folder of results, with those of the same two commits.

    The latter are the newest of each other suite and card. Raises StoreError if there is none.
    """
    found = [(match, path) for path in results.glob("*/*.jsonl") if (match := _NAME.fullmatch(path.name))]
    ends = None
    chosen: dict[tuple[str, str], ComparisonResult] = {}
    for match, path in sorted(found, key=lambda each: each[1].name, reverse=True):
        key = (path.parent.name, match["suite"])
        if (ends and match["ends"] != ends) or key in chosen:
            continue
        result = stored_result(path)
        if result.comparison.command == "compare":  # a calibration's record looks similar
            ends = match["ends"]
            chosen[key] = result
    if not chosen:
        raise StoreError(
            f"No comparison is stored in {results}: run 'harness compare BASE HEAD' first, or name records."
        )
    return list(reversed(chosen.values()))
