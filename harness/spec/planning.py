"""Which cases to run: selection by glob, sizes from the command line, launches from a kernel's spec."""

from __future__ import annotations

__all__ = [
    "PlannedCase",
    "Refusal",
    "check_patterns",
    "divided",
    "launch_of",
    "plan",
    "refusal",
]

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import SuiteError, UsageError
from harness.records import DeviceInfo, Launch
from harness.spec.case_id import CaseId, Selector, Size
from harness.spec.suite import Case, Geometry, Kernel, Suite


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
