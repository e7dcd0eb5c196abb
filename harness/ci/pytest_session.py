"""A repository's pytest benchmarks in the job with the card.

One session compares kernels with the base. Other benchmarks run at base and head in turns, and their files
are judged.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import MeasureError, StoreError
from harness.judgement.saved_runs import FilesResult, judge_files
from harness.records.imports.imported_files import read_saved
from harness.records.record_files import ComparisonResult
from harness.run.executables.side_code import SideFolders, SideRecorder
from harness.run.stored_comparisons import newest_comparisons
from harness.system import git
from harness.system.files import scratch_folder
from harness.system.python_module import python_module

ROUNDS = 4
"""Processes of each commit that other benchmarks are judged by: the fewest that can tell anything."""
_STANDARD_ERROR = 2
_FAILED = 1
"""pytest's exit status where tests failed; below it all is well, above it there was no whole session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests that a session collects, and their folders."""

    paths: tuple[str, ...]
    project: Path
    out: Path
    """The folder for the session's files and records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutcome:
    failed: bool
    """True if a test failed, also by a verdict."""
    others: bool
    """True if there are benchmarks outside of suites."""


def compare_kernels(tests: Tests, base: str, options: Sequence[str]) -> SessionOutcome:
    """Run the session that compares every kernel with the base. Raises MeasureError if it did not finish."""
    saved = tests.out / "pytest" / "kernels.json"
    words = ["--perf-base", base, "--perf-gate", *options]
    status = _run(tests, tests.project, saved, words)
    if status > _FAILED:
        raise MeasureError(f"pytest ended with status {status} and finished no session: see its output.")
    return SessionOutcome(failed=status == _FAILED, others=_has_others(saved))


def compared(tests: Tests, base: str, head: str) -> list[ComparisonResult]:
    """Return the comparisons of these commits that sessions stored; none if they compared nothing."""
    try:
        found = newest_comparisons(tests.out / "records")
    except StoreError:
        return []
    ends = (base, head)
    return [each for each in found if (each.comparison.base.commit, each.comparison.head.commit) == ends]


def judge_others(tests: Tests, base: str, head: str, tell: Callable[[str], None]) -> FilesResult:
    """Run the benchmarks that are no kernels of a suite at base and head in turns, and judge their files.

    Raises MeasureError if a session of head does not finish, OtherCodeError if one imports the other side's
    code, GitError if base cannot be checked out.
    """
    repository = git.repository_of(tests.project) or tests.project
    checkout = tests.out / "pytest" / "base"
    git.ask(repository, "worktree", "add", "--detach", "--force", str(checkout), base)
    try:
        below = tests.project.resolve().relative_to(repository.resolve())
        sides = (
            SideFolders("base", checkout, checkout / below, (repository,)),
            SideFolders("head", repository, tests.project, (checkout,)),
        )
        files: dict[str, list[Path]] = {folders.side: [] for folders in sides}
        for number in range(ROUNDS):
            for folders in sides:
                side = folders.side
                tell(f"pytest of {side}, {number + 1} of {ROUNDS}")
                saved = tests.out / "pytest" / f"{side}-{number}.json"
                with scratch_folder() as scratch:
                    recorder = SideRecorder(folders, scratch / "python")
                    words = ["--perf-others", "--benchmark-only"]
                    status = _run(tests, folders.project, saved, words, recorder.variables)
                    recorder.imported()
                if saved.exists() and saved.stat().st_size:
                    files[side].append(saved)
                elif side == "head":
                    raise MeasureError(f"pytest of {head[:10]} ended with status {status} and saved nothing.")
    finally:
        git.ask(repository, "worktree", "remove", "--force", str(checkout))
    return judge_files(*([read_saved(path) for path in files[folders.side]] for folders in sides))


def _run(
    tests: Tests, place: Path, saved: Path, words: Sequence[str], more: Mapping[str, str] | None = None
) -> int:
    saved.parent.mkdir(parents=True, exist_ok=True)
    words = [*tests.paths, "-p", "no:cacheprovider", *words, f"--benchmark-json={saved}"]
    variables = {
        **os.environ,
        "HARNESS_RESULTS": str(tests.out / "records"),
        "PYTHONDONTWRITEBYTECODE": "1",  # what a session leaves behind would make the tree one with changes
        **(more or {}),
    }
    command = python_module("pytest", *words, packages=place)
    done = subprocess.run(command, cwd=place, env=variables, stdout=_STANDARD_ERROR, check=False)
    return done.returncode


def _has_others(saved: Path) -> bool:
    """Return whether there are benchmarks that the harness did not time."""
    try:
        found = json.loads(saved.read_bytes() or b"{}")
    except (OSError, ValueError):
        return False
    benchmarks = found.get("benchmarks", []) if isinstance(found, dict) else []
    return any("harness_version" not in (each.get("extra_info") or {}) for each in benchmarks)
