"""Finds the commits that may have made an event, by the files that each commit touches.

For a case of a suite, these are files in the suite's folder and shared files beside it. The source named like
its kernel is its own. For another benchmark it is any file whose name does not mark it as documentation, a
test, continuous integration or another benchmark.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from harness.errors import GitError
from harness.history.events import Cause, Event
from harness.history.figures import SeriesCase
from harness.history.sources.our_records import Commits, RunFacts
from harness.records.imports.asv_configuration import NAMES
from harness.system import git

Role = Literal["own", "code", "dependency", "measurement", ""]
"""Role of a file for a case.

- `own`: its kernel's source.
- `code`: another file that it may be built from.
- `dependency`: a file that lists what the project is built with.
- `measurement`: a file that defines how it is measured.
"""

_MOST = 100
"""Most commits of an event whose files are examined."""
_WEIGHTS: Mapping[Role, int] = {"own": 4, "code": 2, "dependency": 1, "measurement": 1, "": 0}
_BUILT: tuple[Role, ...] = ("own", "code")
_CONCERNED: tuple[Role, ...] = ("dependency", "measurement")
_CAUSES: tuple[tuple[Role, Cause], ...] = (
    ("own", "code"),
    ("code", "code"),
    ("dependency", "dependency"),
    ("measurement", "measurement"),
)
_DEPENDENCY = re.compile(
    r"(requirements|constraints|environment|conda)[^/]*\.(txt|in|ya?ml)|[^/]*\.lock|pyproject\.toml|setup\.(py|cfg)"
    r"|Pipfile|Dockerfile[^/]*|\.gitmodules|(Project|Manifest|Cargo)\.toml|go\.(mod|sum)|package(-lock)?\.json"
)
_ASIDE = re.compile(
    r"(docs?|changelog|tests?|ci|\.[^/]+|examples?|asv|benchmarks?|asv_bench|perf)/.*|.*\.(md|rst)|LICENSE[^/]*"
    r"|[^/]*ignore|\.[^/]+|(appveyor|circle|azure-pipelines)\.ya?ml"
)
_BENCHMARKS = re.compile(r"(bench[^/]*|asv|perf[^/]*)/")
"""A folder of benchmarks. Outside of such folders, a file named like a benchmark is the measured code."""
_SETTINGS = (*NAMES, "suite.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSource:
    """The common source of cases that differ only in size or parameters."""

    suite: str = ""
    """Name of the suite; empty for a benchmark outside of suites."""
    kernel: str = ""
    modules: tuple[str, ...] = ()
    """Possible endings of the path of a benchmark's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFolders:
    """The folders of a history's suites, by paths in the repository."""

    folders: Mapping[str, PurePosixPath]
    """The folder of each suite."""
    kernels: Mapping[str, frozenset[str]]
    """All kernels that each suite has ever had."""

    def source_of(self, case: SeriesCase) -> CaseSource:
        if case.suite in self.folders:
            return CaseSource(suite=case.suite, kernel=case.kernel)
        return CaseSource(modules=_modules(case))

    def role(self, path: str, source: CaseSource) -> Role:
        file = PurePosixPath(path)
        if _DEPENDENCY.fullmatch(file.name) or file.parent.name == "requirements":
            return "dependency"
        if source.suite:
            return self._in_suite(file, source)
        if file.name in _SETTINGS or (_BENCHMARKS.search(path) and f"/{path}".endswith(source.modules)):
            return "measurement"
        return "" if _ASIDE.fullmatch(path) else "code"

    def _in_suite(self, file: PurePosixPath, source: CaseSource) -> Role:
        folder = self.folders[source.suite]
        if folder not in file.parents:
            others = any(each in file.parents for each in self.folders.values())
            return "code" if folder.parent in file.parents and folder.parent.name and not others else ""
        if file.name in _SETTINGS:
            return "measurement"
        if file.stem == source.kernel:
            return "own"
        return "" if file.stem in self.kernels.get(source.suite, ()) else "code"


def source_folders(facts: Iterable[RunFacts], kernels: Mapping[str, Iterable[str]]) -> SourceFolders:
    """Return the folders named in records. For each suite the newest record decides."""
    folders = {each.suite: PurePosixPath(each.path) for each in facts if each.commit and each.path}
    return SourceFolders(
        folders=folders, kernels={suite: frozenset(names) for suite, names in kernels.items()}
    )


def _modules(case: SeriesCase) -> tuple[str, ...]:
    """Return the possible endings of the path of a benchmark's file."""
    parts = case.name.partition("(")[0].split(".")[:-1]
    return tuple(f"/{'/'.join(parts[:count])}.py" for count in range(1, len(parts) + 1))


def with_suspects(
    events: Iterable[Event],
    repository: Path,
    commits: Commits,
    cases: Mapping[str, SeriesCase],
    sources: SourceFolders,
) -> tuple[Event, ...]:
    """Return events with ordered suspects, and with a cause by the touched files, if git can list them."""
    found = tuple(events)
    asked = {event.id for event in found if event.by_commit and len(event.narrowest) <= _MOST}
    positions = sorted({at for event in found if event.id in asked for at in event.narrowest})
    try:
        paths = git.touched(repository, [commits[at].hash for at in positions])
    except GitError:
        return found
    touched = {at: paths.get(commits[at].hash, ()) for at in positions}

    @functools.cache
    def role_of(at: int, source: CaseSource) -> Role:
        """Return the most important role of the files that a commit touches."""
        roles = (sources.role(path, source) for path in touched[at])
        return max(roles, key=lambda role: _WEIGHTS[role], default="")

    def judged(event: Event) -> Event:
        of_cases = Counter(sources.source_of(cases[name]) for name in event.cases)
        return _judged(event, touched, of_cases, role_of)

    return tuple(judged(event) if event.id in asked else event for event in found)


def _judged(
    event: Event,
    touched: Mapping[int, Sequence[str]],
    of_cases: Mapping[CaseSource, int],
    role_of: Callable[[int, CaseSource], Role],
) -> Event:
    """Return the event with its suspects in order.

    If the narrowest suspects touch only files that cannot change a value, the cause is not the code, and none
    is likely. `of_cases` are the sources with their cases.
    """
    roles = {at: {source: role_of(at, source) for source in of_cases} for at in event.narrowest}
    weights = {
        at: sum(_WEIGHTS[role] * of_cases[source] for source, role in found.items())
        for at, found in roles.items()
    }
    in_order = sorted(event.narrowest, key=lambda at: (-weights[at], at))
    likely = _with(in_order, roles, _BUILT) or _with(in_order, roles, _CONCERNED)
    of_likely = {role for at in likely for role in roles[at].values()}
    by_files: Cause = next((cause for role, cause in _CAUSES if role in of_likely), "not the code")
    if not any(touched[at] for at in in_order):
        likely, by_files = in_order, "unknown"
    cause = event.cause if event.is_told else by_files
    rest = [at for at in (*in_order, *event.suspects[len(in_order) :]) if at not in likely]
    return replace(event, cause=cause, suspects=(*likely, *rest), likely=len(likely))


def _with(
    positions: Sequence[int], roles: Mapping[int, Mapping[CaseSource, Role]], wanted: Sequence[Role]
) -> list[int]:
    return [at for at in positions if any(role in wanted for role in roles[at].values())]
