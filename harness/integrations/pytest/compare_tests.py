"""Compares benchmarks outside of suites with another commit.

For each side a pytest process stops at each call of gpu_benchmark, or of pytest-benchmark's own fixture. The
two alternate.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.config import load_config
from harness.errors import HarnessError, UsageError
from harness.integrations.pytest.report import sentence
from harness.integrations.pytest.session import spec_of
from harness.integrations.pytest.slot import OPTION
from harness.measure.protocol import SideName
from harness.records.imports.imported import converted, loads
from harness.records.imports.pytest_benchmark_files import TESTS, Untimed
from harness.records.record_files import ComparisonResult
from harness.records.types import Source, Verdict
from harness.run.executables.executable_build import Executable, put_files, source_at
from harness.run.executables.side_code import SideFolders
from harness.run.pair_session import CompareObserver
from harness.run.scripts.call_names import CallName, name_of_test
from harness.run.scripts.compare_scripts import ComparingScripts, NothingRecordedError, ScriptSettings
from harness.run.two_workers import SIDES
from harness.suite.problem import Case
from harness.system import git
from harness.system.files import scratch_folder

_ALL = "all benchmarks"
"""Name of the only verdict if a pytest process failed as a whole."""


@dataclass(slots=True)
class TestComparison:
    """The comparison of a session's benchmarks with the commit of --perf-base."""

    __test__ = False

    option: Callable[[str], Any]
    place: TestPlace
    observer: CompareObserver
    tests: frozenset[str]
    """Node ids of the session's benchmarks."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Node ids by the case of a verdict."""
    outcome: ComparisonResult | HarnessError | None = None

    def carry_out(self) -> None:
        """Compare, and store the result or the error. Raises KeyboardInterrupt after an interrupt."""
        try:
            self.outcome = self._compare()
        except NothingRecordedError as error:
            error.message = "No benchmark was called at either commit: its test was skipped or failed before."
            self.outcome = error
        except HarnessError as error:
            self.outcome = error
        if self.result and self.result.interrupted:
            raise KeyboardInterrupt

    def verdict(self, test: str) -> Verdict | None:
        """Return the verdict of a test; None if neither side measured it."""
        found = self.result.verdicts if self.result else ()
        verdicts = {self.names[each.case]: each for each in found}
        return verdicts.get(test) or verdicts.get(_ALL)

    @property
    def result(self) -> ComparisonResult | None:
        return self.outcome if isinstance(self.outcome, ComparisonResult) else None

    @property
    def problem(self) -> str:
        """Return why the comparison failed; empty if it did not."""
        error = self.outcome
        return sentence(error.reason, error.message, error.log) if isinstance(error, HarnessError) else ""

    def _compare(self) -> ComparisonResult:
        config = load_config(self.place.folder)
        settings = ScriptSettings(
            suite=TESTS,
            device=spec_of(self.option, config),
            busy="fail" if self.option("perf_no_wait") else "wait",
            results=config.results_folder,
            budget_s=self.option("perf_budget"),
            only_note_outputs=self.option("perf_outputs") == "note",
        )
        with scratch_folder() as scratch:

            def untimed() -> dict[SideName, dict[CallName, Untimed]]:
                return {
                    side: {each.name: why for each in _reported(side, scratch) if (why := each.untimed)}
                    for side in SIDES
                }

            base, head = self.place.sides(scratch)
            result = ComparingScripts(base, head, settings, self.observer, untimed=untimed).run()
            named = {each.case: each.test for side in SIDES for each in _reported(side, scratch)}
        # A process that fails as a whole has its own verdict.
        self.names = {
            each.case: named.get(each.case, _ALL if each.kernel == "script" else each.kernel)
            for each in result.verdicts
        }
        return result


class _Test(msgspec.Struct, frozen=True):
    """A benchmark, as reported by `slot`."""

    test: str
    """Node id of the test."""
    params: dict[str, int | float | str]
    why: str | None = None
    """Reason why it has no time; None if it may have one."""
    skipped: bool = False

    @property
    def name(self) -> CallName:
        return name_of_test(self.test, self.params)

    @property
    def case(self) -> str:
        return Case(TESTS, self.name.kernel, dict(self.name.sizes), "").id

    @property
    def untimed(self) -> Untimed | None:
        return None if self.why is None else Untimed(name=self.test, why=self.why, skipped=self.skipped)


def _report_of(side: SideName, scratch: Path) -> Path:
    """Return the file to which a side's process writes its benchmarks."""
    return scratch / f"{side}.json"


def _reported(side: SideName, scratch: Path) -> list[_Test]:
    """Return the benchmarks that a side reported; none if it ended before. Raises StoreError."""
    path = _report_of(side, scratch)
    return converted(path, loads(path.read_bytes()), list[_Test], "the plugin") if path.exists() else []


@dataclass(frozen=True, slots=True, kw_only=True)
class TestPlace:
    """Folders and command line of a pytest session."""

    __test__ = False

    repository: Path
    folder: Path
    """Working folder of the session, inside the repository."""
    words: tuple[str, ...]
    """Words of the session's command line, with paths that are valid on both sides."""

    commits: Mapping[SideName, str | None]
    """Full hash of each side's commit; None for the working tree."""
    sources: Mapping[SideName, Source]
    """Source of each side, determined before a record was written into the working tree."""

    def sides(self, scratch: Path) -> tuple[Executable, Executable]:
        """Return base and head with their files in the scratch folder. Raises GitError, StoreError."""
        return self._side("base", scratch), self._side("head", scratch)

    def _side(self, side: SideName, scratch: Path) -> Executable:
        files = scratch / side
        put_files(self.repository, self.commits[side], files)
        project = files / self.folder.relative_to(self.repository)
        project.mkdir(parents=True, exist_ok=True)  # a commit may lack it, and its tests
        others = self.repository, *(scratch / other for other in SIDES if other != side)
        slot = f"{OPTION}={_report_of(side, scratch)}"
        return Executable(
            side,
            shlex.join([sys.executable, "-m", "pytest", *self.words, slot]),
            project,
            self.sources[side],
            folders=SideFolders(side, files, project, others),
        )


def place_of(config: pytest.Config, base: str) -> TestPlace:
    """Return the place of a session that compares with `base`.

    Raises UsageError outside of a repository, and if `base` is no commit.
    """
    folder = config.invocation_params.dir.resolve()
    repository = git.repository_of(folder)
    if repository is None:
        raise UsageError(
            f"--perf-base compares commits, and {folder} is in no git repository: run pytest in one."
        )
    repository = repository.resolve()
    root = config.rootpath.resolve()
    if not root.is_relative_to(repository):
        raise UsageError(
            f"pytest's root folder {root} is outside of the repository {repository}, so that another commit "
            "has none: give --rootdir."
        )
    words = [_on_either_side(str(word), repository, folder) for word in config.invocation_params.args]
    commits: dict[SideName, str | None] = {"base": git.resolve(repository, base), "head": None}
    return TestPlace(
        repository=repository,
        folder=folder,
        words=(*words, f"--rootdir={os.path.relpath(root, folder)}"),
        commits=commits,
        sources={side: source_at(repository, commit, TESTS) for side, commit in commits.items()},
    )


def _on_either_side(word: str, repository: Path, folder: Path) -> str:
    """Return a word with paths in the repository made relative, also in
    ``--confcutdir=/repository/tests``.
    """
    option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
    path, colons, test = value.partition("::")
    if not Path(path).is_absolute() or not Path(path).resolve().is_relative_to(repository):
        return word
    return f"{option}{equals}{os.path.relpath(Path(path).resolve(), folder)}{colons}{test}"
