"""Benchmarks of no suite, compared with another commit.

Functions of gpu_benchmark are recorded: a process of pytest for each side waits at each call, and both take
turns. Benchmarks of pytest-benchmark's own fixture have a process of pytest for each side and slot.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.config import load_config
from harness.errors import HarnessError, UsageError
from harness.integrations.pytest.function_timing import plain
from harness.integrations.pytest.report import sentence
from harness.integrations.pytest.slot import OPTION, UNTIMED
from harness.measure.protocol import SideName
from harness.records.imports.pytest_benchmark_files import FUNCTIONS, TESTS, Untimed, read_untimed
from harness.records.record_files import ComparisonResult
from harness.records.types import Source, Verdict
from harness.run.executables.compare_executables import ComparingExecutables, ExecutablesSettings
from harness.run.executables.executable_build import ONLY, Executable, put_files, source_at
from harness.run.executables.side_code import SideFolders
from harness.run.pair_session import CompareObserver
from harness.run.scripts.call_names import CallName, name_of_test
from harness.run.scripts.compare_scripts import ComparingScripts, ScriptSettings
from harness.run.two_workers import SIDES
from harness.suite.problem import Case
from harness.system import git
from harness.system.files import scratch_folder

_ALL = "all benchmarks"
"""The name of the one verdict where pytest ended without a file on both sides."""


@dataclass(slots=True)
class TestComparison:
    """The comparison of a session's benchmarks with the commit of --perf-base."""

    __test__ = False

    option: Callable[[str], Any]
    place: TestPlace
    observer: CompareObserver
    tests: Mapping[str, Mapping[str, Any]]
    """Parameters of the session's benchmarks, by node id."""
    recorded: bool
    """True for functions of gpu_benchmark."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Node ids by the case of a verdict."""
    outcome: ComparisonResult | HarnessError | None = None

    def carry_out(self) -> None:
        """Compare, and keep the result or the error. Raises KeyboardInterrupt after an interrupt."""
        try:
            self.outcome = self._compare()
        except HarnessError as error:
            self.outcome = error
        if self.result and self.result.interrupted:
            raise KeyboardInterrupt

    def verdict(self, test: str) -> Verdict | None:
        """Return the verdict of a test; None where neither side measured it."""
        found = self.result.verdicts if self.result else ()
        verdicts = {self.names[each.case]: each for each in found}
        return verdicts.get(test) or verdicts.get(_ALL)

    @property
    def result(self) -> ComparisonResult | None:
        return self.outcome if isinstance(self.outcome, ComparisonResult) else None

    @property
    def problem(self) -> str:
        """The reason why the comparison could not be carried out; empty where it was."""
        error = self.outcome
        return sentence(error.reason, error.message, error.log) if isinstance(error, HarnessError) else ""

    def _compare(self) -> ComparisonResult:
        config = load_config(self.place.folder)
        settings: dict[str, Any] = {
            "device": self.option("perf_device") or config.device,
            "busy": "fail" if self.option("perf_no_wait") else "wait",
            "results": config.results_folder,
            "budget_s": self.option("perf_budget"),
        }
        with scratch_folder() as scratch:
            if self.recorded:
                notes = self.option("perf_outputs") == "note"
                return self._in_turns(
                    scratch, ScriptSettings(suite=FUNCTIONS, only_note_outputs=notes, **settings)
                )
            return self._by_processes(
                scratch, ExecutablesSettings(format="pytest-benchmark", suite=TESTS, **settings)
            )

    def _in_turns(self, scratch: Path, settings: ScriptSettings) -> ComparisonResult:
        base, head = self.place.sides(scratch, shlex.quote(str(scratch / "{side}.slot")))
        for side in SIDES:
            (scratch / f"{side}.slot").touch()

        def untimed() -> dict[SideName, dict[CallName, Untimed]]:
            return {side: _untimed(scratch / f"{side}{UNTIMED}") for side in SIDES}

        result = ComparingScripts(base, head, settings, self.observer, untimed=untimed).run()
        named = {_case_of(test, params): test for test, params in self.tests.items()}
        # A process that fails as a whole has a verdict of its own.
        self.names = {
            each.case: named.get(each.case, _ALL if each.kernel == "script" else each.kernel)
            for each in result.verdicts
        }
        return result

    def _by_processes(self, scratch: Path, settings: ExecutablesSettings) -> ComparisonResult:
        comparing = ComparingExecutables(*self.place.sides(scratch, ONLY), settings, self.observer)
        result = comparing.run(TESTS)
        self.names = {each.case: comparing.names.get(each.case, _ALL) for each in result.verdicts}
        return result


def _untimed(path: Path) -> dict[CallName, Untimed]:
    """Return what a side told of its tests without a time; nothing if it ended before it could."""
    found = read_untimed(path) if path.exists() else {}
    return {name_of_test(test, plain(each.params)): each for test, each in found.items()}


def _case_of(test: str, params: Mapping[str, Any]) -> str:
    name = name_of_test(test, plain(params))
    return Case(FUNCTIONS, name.kernel, dict(name.sizes), "").id


@dataclass(frozen=True, slots=True, kw_only=True)
class TestPlace:
    """Where a session of pytest runs, and with which words."""

    __test__ = False

    repository: Path
    folder: Path
    """Folder that the session was started in, inside the repository."""
    words: tuple[str, ...]
    """Words of the session's command line, with paths that hold on either side."""

    commits: Mapping[SideName, str | None]
    """Full hash of each side's commit; None is the working tree."""
    sources: Mapping[SideName, Source]
    """Each side as records have it, as it was before a record was written into the working tree."""

    def sides(self, scratch: Path, slot: str) -> tuple[Executable, Executable]:
        """Return base and head with their files in the scratch folder. `slot` is the word behind OPTION, in
        which {side} stands for the side's name. Raises GitError, StoreError.
        """
        return self._side("base", scratch, slot), self._side("head", scratch, slot)

    def _side(self, side: SideName, scratch: Path, slot: str) -> Executable:
        files = scratch / side
        put_files(self.repository, self.commits[side], files)
        project = files / self.folder.relative_to(self.repository)
        project.mkdir(parents=True, exist_ok=True)  # a commit may lack it, and then its tests
        others = self.repository, *(scratch / other for other in SIDES if other != side)
        command = shlex.join([sys.executable, "-m", "pytest", *self.words])
        return Executable(
            side,
            f"{command} {OPTION}={slot.replace('{side}', side)}",
            project,
            self.sources[side],
            folders=SideFolders(side, files, project, others),
        )


def place_of(config: pytest.Config, base: str) -> TestPlace:
    """Return where a session runs that compares with `base`.

    Raises UsageError outside of a repository, and for what is no commit of it.
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
    """Return a word with paths in the repository made relative: ``--confcutdir=/repository/tests`` too."""
    option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
    path, colons, test = value.partition("::")
    if not Path(path).is_absolute() or not Path(path).resolve().is_relative_to(repository):
        return word
    return f"{option}{equals}{os.path.relpath(Path(path).resolve(), folder)}{colons}{test}"
