"""Which cases to run: selection by glob, sizes from the command line, launches from a kernel's spec."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from harness.config import FILES, Config, suites_said
from harness.errors import NoSuiteError, SuiteError, UsageError
from harness.records import DeviceInfo, Launch
from harness.spec.case_id import CaseId, Selector, Size
from harness.spec.loader import Begun, LoadedSuite, begin, discover, discover_at, remember
from harness.spec.suite import Case, Geometry, Kernel, Suite
from harness.system import git


@dataclass(frozen=True, slots=True)
class PlannedCase:
    kernel: Kernel
    case: Case


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a case is not run on a device, known before anything is built, or why files are not judged."""

    reason: str
    message: str


def plan(
    suite: Suite, patterns: Sequence[str] = (), sizes: Sequence[str] = (), *, quick: bool = False
) -> list[PlannedCase]:
    """Every selected case of a suite, kernel by kernel in ladder order.

    A pattern names a suite, a kernel or a case, or is a glob of any (`Selector`). Where it names a size, that
    counts; otherwise `sizes` that fit the suite's axes count, and without them the suite's own.
    """
    axes = suite.problem.axes
    asked = [size.at(axes) for size in map(Size.parse, sizes) if size.fits(axes)]
    points = asked if sizes else list(suite.problem.points(quick=quick))
    selectors = [Selector.parse(pattern) for pattern in patterns] or [Selector("*")]
    return [
        PlannedCase(kernel, suite.case(kernel, dict(point)))
        for kernel in suite.kernels
        for point in _points(suite, kernel, selectors, points)
    ]


def _points(
    suite: Suite, kernel: Kernel, selectors: Sequence[Selector], points: Sequence[Mapping[str, int]]
) -> Iterator[Mapping[str, int]]:
    """Where a kernel is asked for, each point once. A glob of sizes that none of `points` fits selects among
    all of the suite's.
    """
    problem = suite.problem
    seen: list[Mapping[str, int]] = []
    for selector in selectors:
        if not selector.names(suite.name, kernel.name):
            continue
        every = [*problem.points(), *problem.points(quick=True)] if selector.has_glob_size else []
        found = selector.points(problem.axes, points) or selector.points(problem.axes, every)
        for point in found:
            if point not in seen:
                seen.append(point)
                yield point


def divided(
    plan: Sequence[PlannedCase], patterns: Sequence[str], device: DeviceInfo
) -> tuple[list[PlannedCase], dict[str, list[str]]]:
    """The cases to run, and what was made for other backends: kernels by the backends that they are for.

    A kernel that is asked for by name stays, to be refused with its reason.
    """
    kept: list[PlannedCase] = []
    others: dict[str, list[str]] = {}
    for planned in plan:
        kernel = planned.kernel
        named = any(Selector.parse(pattern).name.rpartition(".")[2] == kernel.name for pattern in patterns)
        if named or kernel.source_for(device.backend) is not None:
            kept.append(planned)
        elif kernel.name not in (names := others.setdefault(" or ".join(kernel.sources), [])):
            names.append(kernel.name)
    return kept, others


def check_patterns(patterns: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raise UsageError for a pattern that selects nothing: a misspelt kernel must not pass as an empty
    success.
    """
    for pattern in patterns:
        selector = Selector.parse(pattern)
        named = [
            (suite, kernel)
            for suite in suites
            for kernel in suite.kernels
            if selector.names(suite.name, kernel.name)
        ]
        if not named:
            raise _no_kernel(pattern, selector.name, suites)
        problem = _problem_of_size(selector, *named[0])
        if problem and all(_problem_of_size(selector, *each) for each in named):
            raise UsageError(f"No case matches {pattern!r}. {problem}")


def _no_kernel(pattern: str, name: str, suites: Sequence[Suite]) -> UsageError:
    every = (f"{suite.name}.{kernel.name}" for suite in suites for kernel in suite.kernels)
    names = list(dict.fromkeys(every))  # both commits of a suite have most of them
    near = difflib.get_close_matches(name, [*names, *(each.partition(".")[2] for each in names)], 3)
    hint = f" Did you mean {' or '.join(near)}?" if near else " 'harness list' shows every kernel."
    return UsageError(f"No kernel matches {pattern!r}.{hint}")


def _problem_of_size(selector: Selector, suite: Suite, kernel: Kernel) -> str:
    """Why a selector is of no size that a kernel can have; empty where it is."""
    problem = suite.problem
    if selector.size and not selector.has_glob_size:
        try:
            Size.parse(selector.size).at(problem.axes)
        except UsageError as error:
            return error.message
    every = [*problem.points(), *problem.points(quick=True)]
    if selector.points(problem.axes, every):
        return ""
    there = dict.fromkeys(CaseId.of(suite.name, kernel.name, point).short for point in every)
    return f"There are {', '.join(there)}."


def launch_of(kernel: Kernel, case: Case) -> Launch:
    """The launch geometry of a case. Raises SuiteError where the kernel's spec does not give one to three
    integers.
    """
    shared = _computed(kernel, "dynamic_shared_bytes", kernel.dynamic_shared_bytes, case)
    if not isinstance(shared, int) or shared < 0:
        raise SuiteError(
            f"Kernel {kernel.name!r} has dynamic_shared_bytes {shared!r}; expected an integer from 0."
        )
    return Launch(
        grid=_extents(kernel, "grid", kernel.grid, case),
        block=_extents(kernel, "block", kernel.block, case),
        dynamic_shared_bytes=shared,
        dispatch=_extents(kernel, "dispatch", kernel.dispatch, case) if kernel.dispatch else None,
    )


def _computed(kernel: Kernel, what: str, spec: Any, case: Case) -> Any:
    """What a spec says at a case. A suite's own function may raise anything."""
    if not callable(spec):
        return spec
    try:
        return spec(case)
    except Exception as error:
        raise SuiteError(
            f"Kernel {kernel.name!r}: {what} at {case.size_label} raised {type(error).__name__}: {error}"
        ) from error


def _extents(kernel: Kernel, what: str, geometry: Geometry | None, case: Case) -> tuple[int, int, int]:
    value = 1 if geometry is None else _computed(kernel, what, geometry, case)
    extents = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(extents) <= 3 or not all(isinstance(extent, int) for extent in extents):
        raise SuiteError(
            f"Kernel {kernel.name!r} has {what} {value!r}; expected one to three integers, x first."
        )
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def refusal(kernel: Kernel, device: DeviceInfo) -> Refusal | None:
    """Why a kernel cannot run on a device at all, or None."""
    if kernel.capability is None:
        if kernel.source_for(device.backend) is not None:
            return None
        there = " or ".join(kernel.sources)
        return Refusal("needs-backend", f"{kernel.name} runs on {there}; {device.spec} is {device.name}.")
    if device.compute_capability is None:
        return Refusal(
            "needs-cuda", f"{kernel.name} needs CUDA ({kernel.requires}); {device.spec} is {device.name}."
        )
    if tuple(device.compute_capability) < kernel.capability:
        major, minor = device.compute_capability
        return Refusal(
            "needs-capability", f"{kernel.name} needs {kernel.requires}; {device.name} is sm_{major}{minor}."
        )
    return None


T = TypeVar("T")


class SuitePair(NamedTuple):
    """A suite at two commits; where one of them does not have it, the other's stands in, marked absent."""

    base: LoadedSuite
    head: LoadedSuite

    def asked(self, patterns: Sequence[str] = ()) -> LoadedSuite:
        """The side that says which sizes fit: head, unless only base has what is selected."""
        return self.head if plan(self.head.suite, patterns) else self.base

    def plans(
        self, patterns: Sequence[str] = (), sizes: Sequence[str] = (), *, quick: bool = False
    ) -> tuple[list[PlannedCase], list[PlannedCase]]:
        """The selected cases of base and of head; where their axes differ, each at the sizes that fit it."""
        base, head = ([] if side.absent else plan(side.suite, patterns, sizes, quick=quick) for side in self)
        return base, head


@dataclasses.dataclass(frozen=True, slots=True)
class Fitting(Generic[T]):
    """What is asked for, each with the sizes that have as many numbers as it has axes."""

    chosen: tuple[tuple[T, tuple[str, ...]], ...]
    left_out: tuple[str, ...]
    """Why suites that patterns select are not there, a sentence each."""


def load_suites(
    config: Config,
    commit: str | None = None,
    patterns: Sequence[str] = (),
    *,
    timeout_s: float | None = None,
) -> list[LoadedSuite]:
    """Every suite of the project, at a commit or in the working tree; at least one. Raises SuiteError,
    UsageError.
    """
    folders = discover(config.root, config.suites)
    if not folders:
        raise SuiteError(
            f"No suite in {config.root}: no folder with a suite.py matches {', '.join(config.suites)}."
        )
    begun = [begin(folder, commit, timeout_s=timeout_s) for folder in folders]
    loaded = [each.result() for each in begun]
    if commit is None:
        for each in loaded:
            remember(each.path, each.suite)
    check_patterns(patterns, [each.suite for each in loaded])
    return loaded


def load_pairs(
    config: Config,
    base: str,
    head: str | None = None,
    patterns: Sequence[str] = (),
    *,
    timeout_s: float | None = None,
) -> list[SuitePair]:
    """Every suite that either revision has, at both; without `head`, base and the working tree.

    A suite that is broken at one of them stands in for itself, absent and with its problem; raises SuiteError
    where it is broken at both, or where there is none. Raises UsageError outside a git repository and for a
    pattern that selects nothing, GitError where there is no such revision.
    """
    root = config.root
    repository = git.repository_of(root)
    if repository is None:
        raise UsageError(f"{root} is in no git repository: there are no commits to compare.")
    base = git.resolve(repository, base)
    head = None if head is None else git.resolve(repository, head)
    globs = _globs(config, repository, base, head)
    at_head = discover(root, globs) if head is None else discover_at(root, globs, head)
    folders = dict.fromkeys([*at_head, *discover_at(root, globs, base)])
    if not folders:
        raise SuiteError(
            f"No suite in {root} at either commit: no folder with a suite.py matches {', '.join(globs)}."
        )
    begun = [[_begin(folder, commit, timeout_s) for commit in (base, head)] for folder in folders]
    pairs = [
        _pair(folder, repository, _result(before), _result(after), base, head)
        for folder, (before, after) in zip(folders, begun, strict=True)
    ]
    check_patterns(patterns, [side.suite for pair in pairs for side in pair])
    return pairs


def _globs(config: Config, repository: Path, *commits: str | None) -> list[str]:
    """Those of the configuration here, and those by which each commit finds its suites: one that a change of
    settings hides has vanished, and that must be seen.
    """
    inside = config.root.resolve().relative_to(repository.resolve())
    globs = dict.fromkeys(config.suites)
    for commit in filter(None, commits):
        told = {name: git.read(repository, commit, (inside / name).as_posix()) for name in FILES}
        globs |= dict.fromkeys(
            suites_said({name: text.decode(errors="replace") for name, text in told.items() if text})
        )
    return list(globs)


def _pair(
    folder: Path,
    repository: Path,
    before: LoadedSuite | SuiteError | None,
    after: LoadedSuite | SuiteError | None,
    base: str,
    head: str | None,
) -> SuitePair:
    present = next((side for side in (after, before) if isinstance(side, LoadedSuite)), None)
    if present is None:
        problem = after or before
        assert isinstance(problem, SuiteError)  # it was found at one of them
        raise problem
    if isinstance(before, NoSuiteError):
        before = _hollow(before, folder, base, repository)
    if isinstance(after, NoSuiteError):
        after = None  # its cases are missing
    return SuitePair(_standing_in(before, present, base), _standing_in(after, present, head))


def _hollow(error: NoSuiteError, folder: Path, base: str, repository: Path) -> NoSuiteError | None:
    """What is wrong with a base that has a suite's folder and no suite in it: there was something to compare
    with, so that the suite's cases are not simply new. None where base has nothing there.
    """
    top = repository.resolve()
    inside = folder.relative_to(top).as_posix() if top in folder.parents else ""
    if inside and git.has(repository, base, f"{inside}/suite.py"):
        return error  # there is one, behind a link or in a submodule
    if inside and git.has(repository, base, inside):
        return NoSuiteError(f"Base {base[:12]} has the folder {inside}, but no suite.py in it.")
    return None


def _begin(folder: Path, commit: str | None, timeout_s: float | None) -> Begun | SuiteError | None:
    """The suite at a commit, or its error: NoSuiteError where the commit does not have it. None where the
    working tree does not.
    """
    if commit is None and not (folder / "suite.py").is_file():
        return None
    try:
        return begin(folder, commit, timeout_s=timeout_s)
    except SuiteError as error:
        return error


def _result(begun: Begun | SuiteError | None) -> LoadedSuite | SuiteError | None:
    if not isinstance(begun, Begun):
        return begun
    try:
        return begun.result()
    except SuiteError as error:
        return error


def _standing_in(
    side: LoadedSuite | SuiteError | None, present: LoadedSuite, commit: str | None
) -> LoadedSuite:
    if isinstance(side, LoadedSuite):
        return side
    return dataclasses.replace(present, commit=commit, absent=True, problem=side)


def fitting(
    suites: Sequence[LoadedSuite], patterns: Sequence[str] = (), sizes: Sequence[str] = ()
) -> Fitting[LoadedSuite]:
    """The suites that patterns select, each with the sizes that fit it; without sizes, all of them.

    Raises UsageError for a size that is wrong, or that fits no suite.
    """
    return _fitting([(loaded, loaded) for loaded in suites], patterns, sizes)


def fitting_pairs(
    pairs: Sequence[SuitePair], patterns: Sequence[str] = (), sizes: Sequence[str] = ()
) -> Fitting[SuitePair]:
    """The same of suites at two commits. A kernel that only base has may be asked for too: that it vanished
    is the answer.
    """
    return _fitting([(pair, pair.asked(patterns)) for pair in pairs], patterns, sizes)


def _fitting(
    each: Sequence[tuple[T, LoadedSuite]], patterns: Sequence[str], sizes: Sequence[str]
) -> Fitting[T]:
    wanted = [(whole, side.suite) for whole, side in each if plan(side.suite, patterns)]
    asked = {text: Size.parse(text) for text in sizes}
    for size in asked.values() if wanted else ():
        if not any(size.fits(suite.problem.axes) for _, suite in wanted):
            size.at(wanted[0][1].problem.axes)  # says what is wrong with it
    chosen: list[tuple[T, tuple[str, ...]]] = []
    left_out = []
    for whole, suite in wanted:
        axes = suite.problem.axes
        if plan(suite, patterns, sizes):
            chosen.append((whole, tuple(text for text, size in asked.items() if size.fits(axes))))
        else:
            left_out.append(f"{suite.name} is left out: no --size gives numbers for {', '.join(axes)}.")
    return Fitting(tuple(chosen), tuple(left_out) if chosen else ())
