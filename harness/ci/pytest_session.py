"""Runs a repository's pytest benchmarks in the job with the card: one session compares them with the base."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import MeasureError, StoreError
from harness.records.imports.pytest_benchmark_files import case_of_test
from harness.records.record_files import ComparisonResult
from harness.report.document.document import SourceLine
from harness.report.document.from_results import is_safe_path
from harness.run.stored_comparisons import newest_comparisons
from harness.system.python_module import python_module

_TEST = re.compile(r"( *)(?:class (\w+)|(?:async )?def (test\w*))")
_STANDARD_ERROR = 2
_FAILED = 1
"""pytest's exit status for failed tests. Lower values mean success, and higher ones an incomplete session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests that a session collects, and their folders."""

    paths: tuple[str, ...]
    project: Path
    out: Path
    """Folder for the session's records."""


def compare(tests: Tests, base: str, options: Sequence[str]) -> bool:
    """Run the session that compares every benchmark with the base. Return True if a test failed.

    A verdict can fail a test too. Raises MeasureError if the session did not finish.
    """
    words = (*tests.paths, "-p", "no:cacheprovider", "--perf-base", base, "--perf-gate", *options)
    variables = {
        **os.environ,
        "HARNESS_RESULTS": str(tests.out / "records"),
        "PYTHONDONTWRITEBYTECODE": "1",  # files that a session leaves would make the tree dirty
    }
    command = python_module("pytest", *words, packages=tests.project)
    done = subprocess.run(command, cwd=tests.project, env=variables, stdout=_STANDARD_ERROR, check=False)
    if done.returncode > _FAILED:
        raise MeasureError(
            f"pytest ended with status {done.returncode} and finished no session: see its output."
        )
    return done.returncode == _FAILED


def compared(tests: Tests, base: str, head: str) -> list[ComparisonResult]:
    """Return the stored comparisons of these commits from sessions; none if they compared nothing."""
    try:
        found = newest_comparisons(tests.out / "records")
    except StoreError:
        return []
    ends = (base, head)
    return [each for each in found if (each.comparison.base.commit, each.comparison.head.commit) == ends]


def places_of(tests: Tests, repository: Path, kernels: Iterable[str]) -> dict[str, SourceLine]:
    """Return the first line of each benchmark's test, by the benchmark's name in a report.

    A test that the files do not show, such as one made by a plugin, is left out.
    """
    begins = dict(_tests_below(tests, repository))
    found: dict[str, SourceLine] = {}
    for kernel in kernels:
        names = [name for name in begins if f"{kernel}_".startswith(f"{name}_")]
        if names:
            found[kernel] = begins[max(names, key=len)]
    return found


def _tests_below(tests: Tests, repository: Path) -> Iterator[tuple[str, SourceLine]]:
    for path in dict.fromkeys(tests.project / each.partition("::")[0] for each in tests.paths):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            place = os.path.relpath(file, repository)
            if not (is_safe_path(place) and file.is_file()):
                continue
            inside = ""
            for line, text in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
                if match := _TEST.match(text):
                    indent, of_class, test = match.groups()
                    inside = f"{of_class}::" if of_class else inside if indent else ""
                    if test:
                        name = f"{os.path.relpath(file, tests.project)}::{inside}{test}"
                        yield case_of_test(name, {})[0], SourceLine(path=place, line=line)
