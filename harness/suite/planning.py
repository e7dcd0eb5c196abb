"""Plans the cases to run: selection by glob, sizes from the command line, launches from a kernel's spec."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from harness.config import FILES, Config, suites_said
from harness.errors import LaunchError, NoSuiteError, NotYetKnownError, SuiteError, UsageError
from harness.records.types import DeviceInfo, Launch
from harness.suite.case_id import GRAPH, CaseId, Selector, Size, with_graph
from harness.suite.kernel import Geometry, Kernel, Step, is_for
from harness.suite.loader import (
    WORKING_TREE,
    LoadedSuite,
    PendingSuite,
    begin,
    discover,
    discover_at,
    remember,
)
from harness.suite.problem import Case, Problem, computed
from harness.suite.suite import Suite
from harness.system import git


@dataclass(frozen=True, slots=True)
class PlannedCase:
    kernel: Kernel
    case: Case
    has_reference: bool = True
    """True if the problem has a reference for the outputs."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason not to run a case on a device, known before the build, or not to judge files."""

    reason: str
    message: str


def plan(
    suite: Suite,
    patterns: Sequence[str] = (),
    sizes: Sequence[str] = (),
    *,
    quick: bool = False,
    graph: bool = False,
) -> list[PlannedCase]:
    """Return every selected case of a suite, kernel by kernel in ladder order.

    A pattern names a suite, a kernel or a case, or is a glob of these (`Selector`). A size in a pattern has
    priority, then `sizes` that fit the suite's axes, then the suite's own. With `graph` each case is followed
    by the same case by CUDA graph, unless its kernel is launched by graph anyway. Raises UsageError.
    """
    axes = suite.problem.axes
    if graph and GRAPH in axes:
        raise UsageError(
            f"{suite.name} has an axis named {GRAPH}, so --graph cannot mark its cases: write graph=True in "
            "its kernels."
        )
    asked = [size.at(axes) for size in map(Size.parse, sizes) if size.fits(axes)]
    points = asked if sizes else list(suite.problem.points(quick=quick))
    selectors = [Selector.parse(pattern) for pattern in patterns] or [Selector("*")]
    return [
        PlannedCase(kernel, suite.case(kernel, dict(point)), suite.problem.has_reference)
        for kernel in suite.kernels
        for point in _points(suite, kernel, selectors, points, graph=graph and not kernel.graph)
    ]


def _points(
    suite: Suite,
    kernel: Kernel,
    selectors: Sequence[Selector],
    points: Sequence[Mapping[str, int]],
    *,
    graph: bool,
) -> Iterator[Mapping[str, int]]:
    """Yield the requested points once each. A glob that matches none of `points` gets all of the suite's.

    With `graph` each point is followed by its marked one, unless a glob selects only one of them.
    """
    problem = suite.problem
    seen: list[Mapping[str, int]] = []
    for selector in selectors:
        if not selector.names(suite.name, kernel.name):
            continue
        if selector.has_glob_size:
            plain = points, _every_point(problem)
            marked = (_with_marked(problem, each) for each in plain)
            offered = marked if graph else (*plain, *marked)
            found = next(filter(None, (selector.points(problem.axes, each) for each in offered)), ())
        else:
            found = selector.points(problem.axes, points)
            found = _with_marked(problem, found) if graph else found
        for point in found:
            if point not in seen:
                seen.append(point)
                yield point


def _every_point(problem: Problem) -> list[Mapping[str, int]]:
    return [*problem.points(), *problem.points(quick=True)]


def _with_marked(problem: Problem, points: Iterable[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Return points, each followed by the same point by graph, if the problem's axes leave the name free."""
    if GRAPH in problem.axes:
        return list(points)
    return [each for point in points for each in (point, with_graph(point))]


def divided(
    plan: Sequence[PlannedCase], patterns: Sequence[str], device: DeviceInfo
) -> tuple[list[PlannedCase], dict[str, list[str]]]:
    """Return the cases to run, and the kernels for other backends, by backend.

    A kernel requested by name stays, and is refused with a reason later.
    """
    chosen: list[PlannedCase] = []
    others: dict[str, list[str]] = {}
    named = {Selector.parse(pattern).name.rpartition(".")[2] for pattern in patterns}
    for planned in plan:
        kernel = planned.kernel
        if kernel.name in named or kernel.source_for(device.backend) is not None:
            chosen.append(planned)
        elif kernel.name not in (names := others.setdefault(" or ".join(kernel.sources), [])):
            names.append(kernel.name)
    return chosen, others


def check_patterns(patterns: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raise UsageError for a pattern that selects nothing, so that a misspelt kernel does not look like
    success.
    """
    for pattern in patterns:
        selector = Selector.parse(pattern)
        every = [(suite, kernel) for suite in suites for kernel in suite.kernels]
        named = [(suite, kernel) for suite, kernel in every if selector.names(suite.name, kernel.name)]
        if not named:
            # The two commits of a suite share most names.
            names = list(dict.fromkeys(f"{suite.name}.{kernel.name}" for suite, kernel in every))
            ends = (each.partition(".")[2] for each in names)
            near = difflib.get_close_matches(selector.name, [*names, *ends], 3)
            hint = f"Did you mean {' or '.join(near)}?" if near else "'harness list' shows every kernel."
            raise UsageError(f"No kernel matches {pattern!r}. {hint}")
        problem = _problem_of_size(selector, *named[0])
        if problem and all(_problem_of_size(selector, *each) for each in named):
            raise UsageError(f"No case matches {pattern!r}. {problem}")


def _problem_of_size(selector: Selector, suite: Suite, kernel: Kernel) -> str:
    """Return why a kernel cannot have the size in a selector; empty if it can."""
    problem = suite.problem
    if selector.size and not selector.has_glob_size:
        try:
            Size.parse(selector.size).at(problem.axes)
        except UsageError as error:
            return error.message
    every = _every_point(problem)
    if selector.points(problem.axes, _with_marked(problem, every)):
        return ""
    cases = dict.fromkeys(CaseId.of(suite.name, kernel.name, point).short for point in every)
    return f"There are {', '.join(cases)}."


Resident = Callable[[Launch], int | None]
"""Returns the resident blocks of a launch on one multiprocessor, whatever its grid; None if unknown."""


def at_least_one(_launch: Launch) -> int:
    """Return 1, the assumed number of resident blocks of a kernel that is not built: its grid fits any
    device.
    """
    return 1


def launch_of(kernel: Kernel, case: Case, resident: Resident | None = None) -> Launch:
    """Return a case's launch geometry. `resident` is called only if the grid needs it.

    Raises SuiteError unless extents are one to three integers, NotYetKnownError and NotToldError for unknown
    facts of the device, and LaunchError if not even one block fits on a multiprocessor.
    """
    launch = dataclasses.replace(
        _shape(kernel, kernel, "", case),
        dispatch=_extents(kernel, "dispatch", kernel.dispatch, case) if kernel.dispatch else None,
        steps=tuple(
            dataclasses.replace(
                _shape(kernel, step, f" of {step.entry}", case),
                grid=_extents(kernel, f"grid of {step.entry}", step.grid, case),
                programmatic=step.programmatic,
            )
            for step in kernel.steps
        ),
    )
    try:
        grid = _extents(kernel, "grid", kernel.grid, case)
    except NotYetKnownError:
        if resident is None or case.device_facts is None:
            raise
        grid = _extents(kernel, "grid", kernel.grid, _built(kernel, case, resident(launch)))
    cluster = None if kernel.cluster is None else _extents(kernel, "cluster", kernel.cluster, case)
    return dataclasses.replace(
        launch,
        grid=grid,
        cooperative=kernel.cooperative,
        cluster=cluster,
        graph=case.by_graph,
        cards=kernel.cards,
    )


def _shape(kernel: Kernel, launched: Kernel | Step, of: str, case: Case) -> Launch:
    """Return the launch with a grid of one block."""
    block = _extents(kernel, f"block{of}", launched.block, case)
    shared = computed(kernel.name, "dynamic_shared_bytes", launched.dynamic_shared_bytes, case)
    if not isinstance(shared, int) or shared < 0:
        raise kernel.error(f"has dynamic_shared_bytes {shared!r}; expected an integer from 0.")
    return Launch(grid=(1, 1, 1), block=block, dynamic_shared_bytes=shared)


def _built(kernel: Kernel, case: Case, resident_blocks: int | None) -> Case:
    """Return the case of a built kernel."""
    assert case.device_facts is not None
    if resident_blocks == 0:
        raise LaunchError(
            f"Not one block of {kernel.name} fits on a multiprocessor of {case.device_facts.name} at "
            f"{case.size_label}: use a smaller block or tile, or fewer registers."
        )
    residency = {} if resident_blocks is None else {"resident_blocks": resident_blocks}
    facts = {**case.device_facts.facts, **residency}
    device = dataclasses.replace(case.device_facts, facts=facts, built=True)
    return dataclasses.replace(case, device_facts=device)


def _extents(kernel: Kernel, what: str, geometry: Geometry | None, case: Case) -> tuple[int, int, int]:
    value = 1 if geometry is None else computed(kernel.name, what, geometry, case)
    extents = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(extents) <= 3 or not all(isinstance(extent, int) for extent in extents):
        raise kernel.error(f"has {what} {value!r}; expected one to three integers, x first.")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def refusal(kernel: Kernel, device: DeviceInfo) -> Refusal | None:
    name, least, capability = kernel.name, kernel.requires or kernel.arch, device.compute_capability
    if kernel.capability is None:
        if kernel.source_for(device.backend) is not None:
            return None
        backends = " or ".join(kernel.sources)
        return Refusal("needs-backend", f"{name} runs on {backends}; {device.spec} is {device.name}.")
    if capability is None:
        return Refusal("needs-cuda", f"{name} needs CUDA ({least}); {device.spec} is {device.name}.")
    own = f"sm_{capability[0]}{capability[1]}"
    if tuple(capability) < kernel.capability:
        return Refusal("needs-capability", f"{name} needs {least}; {device.name} is {own}.")
    if kernel.arch and not is_for(kernel.arch, capability):
        built = f"{name} is built for {kernel.arch}, which {device.name}, {own}, does not run."
        return Refusal("needs-capability", built)
    return None


T = TypeVar("T")


class SuitePair(NamedTuple):
    """A suite at two commits. If a commit lacks it, the other commit's suite replaces it, marked absent."""

    base: LoadedSuite
    head: LoadedSuite

    def asked(self, patterns: Sequence[str] = ()) -> LoadedSuite:
        """Return the side that decides which sizes fit: head, unless only base has the selected kernels."""
        return self.head if plan(self.head.suite, patterns) else self.base

    def plans(
        self, patterns: Sequence[str], sizes: Sequence[str], *, quick: bool, graph: bool = False
    ) -> tuple[list[PlannedCase], list[PlannedCase]]:
        """Return the selected cases of base and of head. If their axes differ, each has the sizes that fit
        it.
        """
        base, head = (
            [] if side.absent else plan(side.suite, patterns, sizes, quick=quick, graph=graph)
            for side in self
        )
        return base, head


S = TypeVar("S", bound=LoadedSuite | SuitePair)


@dataclass(frozen=True, slots=True)
class SelectedSuites(Generic[S]):
    """The requested suites, each with the sizes that match its number of axes."""

    chosen: tuple[tuple[S, tuple[str, ...]], ...]
    left_out: tuple[str, ...]
    """Sentences on why selected suites are missing."""


def load_suites(
    config: Config,
    commit: str | None = None,
    patterns: Sequence[str] = (),
    *,
    timeout_s: float | None = None,
    suite_from: str | None = None,
    on_broken: Callable[[SuiteError], object] | None = None,
) -> list[LoadedSuite]:
    """Return the suites of the project, at least one. Raises SuiteError, UsageError.

    With `suite_from`, a commit or WORKING_TREE, kernels come from `commit` and suites from `suite_from`. With
    `on_broken`, a suite that does not load does not affect the others: `on_broken` gets its error.
    """
    if suite_from is not None and commit is None:
        raise UsageError("--suite-from is for the kernels of an earlier commit: say which, with --commit.")
    folders = discover(config.root, config.suites)
    if not folders:
        raise SuiteError(
            f"No suite in {config.root}: no folder with a suite.py matches {', '.join(config.suites)}. "
            "'harness init' writes suites for the kernels that a project has."
        )
    begun = [
        _or_error(partial(begin, folder, commit, timeout_s=timeout_s, suite_from=suite_from))
        for folder in folders
    ]
    found = [_or_error(each.result) if isinstance(each, PendingSuite) else each for each in begun]
    loaded = _without_broken(found, on_broken)
    if commit is None:
        for each in loaded:
            remember(each.path, each.suite)
    check_patterns(patterns, [each.suite for each in loaded])
    return loaded


def _without_broken(
    found: Sequence[T | SuiteError], on_broken: Callable[[SuiteError], object] | None
) -> list[T]:
    """Return the suites that load. `on_broken` gets each error; without it, or if nothing loads, raise the
    first.
    """
    broken = [each for each in found if isinstance(each, SuiteError)]
    for error in broken:
        nothing_loads = len(broken) == len(found) and error is broken[-1]
        if on_broken is None or nothing_loads:
            raise error
        on_broken(error)
    return [each for each in found if not isinstance(each, SuiteError)]


def load_pairs(
    config: Config,
    base: str,
    head: str | None = None,
    patterns: Sequence[str] = (),
    *,
    timeout_s: float | None = None,
    suite_from: str | None = None,
    on_broken: Callable[[SuiteError], object] | None = None,
) -> list[SuitePair]:
    """Return every suite that either revision has, at both; without `head`, base and the working tree.

    With `suite_from`, a commit or WORKING_TREE, all suites come from there. A suite that is broken at one
    revision is replaced by the other revision's, marked absent and with its problem. If it is broken at both,
    `on_broken` gets its error, which is raised without `on_broken`, or if nothing loads. Raises SuiteError
    without suites, UsageError outside of a git repository and for a pattern that selects nothing, and
    GitError for an unknown revision.
    """
    root = config.root
    repository = git.repository_of(root)
    if repository is None:
        raise UsageError(
            f"{root} is in no git repository: there are no commits to compare."
            " Make one with git init, and commit before and after a change."
        )
    base = git.resolve(repository, base)
    head = None if head is None else git.resolve(repository, head)
    revisions: tuple[str | None, ...] = (base, head)
    if suite_from is not None:
        revisions = (None if suite_from == WORKING_TREE else git.resolve(repository, suite_from),)
    globs = _globs(config, repository, *revisions)
    found = (discover(root, globs) if each is None else discover_at(root, globs, each) for each in revisions)
    folders = dict.fromkeys(folder for each in reversed([*found]) for folder in each)
    if not folders:
        raise SuiteError(
            f"No suite in {root} at either commit: no folder with a suite.py matches {', '.join(globs)}."
        )
    begun = [
        [
            _or_error(partial(begin, folder, commit, timeout_s=timeout_s, suite_from=commit and suite_from))
            for commit in (base, head)
        ]
        for folder in folders
    ]
    found_pairs: list[SuitePair | SuiteError] = []
    for folder, each in zip(folders, begun, strict=True):
        before, after = (_or_error(side.result) if isinstance(side, PendingSuite) else side for side in each)
        vanished = head is None and not (folder / "suite.py").is_file()
        there = None if vanished else after
        found_pairs.append(_or_error(partial(_pair, folder, repository, before, there, base, head)))
    pairs = _without_broken(found_pairs, on_broken)
    check_patterns(patterns, [side.suite for pair in pairs for side in pair])
    return pairs


def _globs(config: Config, repository: Path, *commits: str | None) -> list[str]:
    """Return the globs here and at each commit: a suite hidden by a change of settings counts as missing."""
    inside = config.root.resolve().relative_to(repository.resolve())
    globs = dict.fromkeys(config.suites)
    for commit in filter(None, commits):
        files = {name: git.read(repository, commit, (inside / name).as_posix()) for name in FILES}
        globs |= dict.fromkeys(
            suites_said({name: text.decode(errors="replace") for name, text in files.items() if text})
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
        assert isinstance(problem, SuiteError)  # one of them has it
        raise problem
    if isinstance(before, NoSuiteError):
        before = _folder_without_suite(before, folder, base, repository)
    if isinstance(after, NoSuiteError):
        after = None  # its cases are missing
    sides = (
        side
        if isinstance(side, LoadedSuite)
        else dataclasses.replace(present, commit=commit, absent=True, problem=side)
        for side, commit in ((before, base), (after, head))
    )
    return SuitePair(*sides)


def _folder_without_suite(
    error: NoSuiteError, folder: Path, base: str, repository: Path
) -> NoSuiteError | None:
    """Return the error for a base that has the suite's folder but no suite; None without the folder."""
    top = repository.resolve()
    inside = folder.relative_to(top).as_posix() if top in folder.parents else ""
    if inside and git.has(repository, base, f"{inside}/suite.py"):
        return error  # there is a suite, behind a link or in a submodule
    if inside and git.has(repository, base, inside):
        return NoSuiteError(f"Base {base[:12]} has the folder {inside}, but no suite.py in it.")
    return None


def _or_error(load: Callable[[], T]) -> T | SuiteError:
    try:
        return load()
    except SuiteError as error:
        return error


def fitting(
    suites: Sequence[S], patterns: Sequence[str] = (), sizes: Sequence[str] = ()
) -> SelectedSuites[S]:
    """Return the suites that patterns select, with the sizes that fit; without sizes, all of them.

    A kernel that only base has may be selected too, and is reported as missing. Raises UsageError for an
    invalid size, and for one that fits no suite.
    """
    sides = ((each, each.asked(patterns) if isinstance(each, SuitePair) else each) for each in suites)
    wanted = [(each, side.suite) for each, side in sides if plan(side.suite, patterns)]
    asked = {text: Size.parse(text) for text in sizes}
    for size in asked.values() if wanted else ():
        if not any(size.fits(suite.problem.axes) for _, suite in wanted):
            size.at(wanted[0][1].problem.axes)  # raises with the reason
    chosen: list[tuple[S, tuple[str, ...]]] = []
    left_out = []
    for each, suite in wanted:
        axes = suite.problem.axes
        if plan(suite, patterns, sizes):
            chosen.append((each, tuple(text for text, size in asked.items() if size.fits(axes))))
        else:
            left_out.append(f"{suite.name} is left out: no --size gives numbers for {', '.join(axes)}.")
    return SelectedSuites(tuple(chosen), tuple(left_out) if chosen else ())
