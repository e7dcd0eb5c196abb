"""A repository's pytest benchmarks in the job with the card: one session compares them with the base."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import MeasureError, StoreError
from harness.records.record_files import ComparisonResult
from harness.run.stored_comparisons import newest_comparisons
from harness.system.python_module import python_module

_STANDARD_ERROR = 2
_FAILED = 1
"""pytest's exit status where tests failed; below it all is well, above it there was no whole session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests that a session collects, and their folders."""

    paths: tuple[str, ...]
    project: Path
    out: Path
    """The folder for the session's records."""


def compare(tests: Tests, base: str, options: Sequence[str]) -> bool:
    """Run the session that compares every benchmark with the base. Return True if a test failed, also by a
    verdict. Raises MeasureError if the session did not finish.
    """
    words = (*tests.paths, "-p", "no:cacheprovider", "--perf-base", base, "--perf-gate", *options)
    variables = {
        **os.environ,
        "HARNESS_RESULTS": str(tests.out / "records"),
        "PYTHONDONTWRITEBYTECODE": "1",  # what a session leaves behind would make the tree one with changes
    }
    command = python_module("pytest", *words, packages=tests.project)
    done = subprocess.run(command, cwd=tests.project, env=variables, stdout=_STANDARD_ERROR, check=False)
    if done.returncode > _FAILED:
        raise MeasureError(
            f"pytest ended with status {done.returncode} and finished no session: see its output."
        )
    return done.returncode == _FAILED


def compared(tests: Tests, base: str, head: str) -> list[ComparisonResult]:
    """Return the comparisons of these commits that sessions stored; none if they compared nothing."""
    try:
        found = newest_comparisons(tests.out / "records")
    except StoreError:
        return []
    ends = (base, head)
    return [each for each in found if (each.comparison.base.commit, each.comparison.head.commit) == ends]
