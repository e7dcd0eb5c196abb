"""Which cases to run: selection by glob, sizes from the command line, launches from a kernel's spec."""

from __future__ import annotations

__all__ = [
    "PlannedCase",
    "Refusal",
    "check_patterns",
    "divided",
    "launch_of",
    "parse_size",
    "plan",
    "refusal",
    "selects",
]

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from harness.errors import SuiteError, UsageError
from harness.records import DeviceInfo, Launch
from harness.spec.suite import MAX_AXIS, Case, Geometry, Kernel, Problem, Suite

_INTEGER = re.compile(r"[+-]?\d+\Z")


@dataclass(frozen=True, slots=True)
class PlannedCase:
    kernel: Kernel
    case: Case


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a case is not run on a device, known before anything is built, or why files are not judged."""

    reason: str
    message: str


def parse_size(text: str, problem: Problem) -> dict[str, int]:
    """``1024`` for every axis, or one number an axis, ``500,300,700``. Raises UsageError."""
    axes = list(problem.axes)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (1, len(axes)):
        raise UsageError(
            f"--size {text} has {len(parts)} numbers; expected one, or "
            f"{len(axes)} for the axes {', '.join(axes)}."
        )
    for part in parts:
        if not _INTEGER.match(part):
            raise UsageError(
                f"--size {text}: {part!r} is not an integer. "
                f"Expected sizes from 1 to {MAX_AXIS}, such as 1024."
            )
        # Python refuses to read an integer of more than 4300 digits.
        if len(part) > 4000 or not 1 <= int(part) <= MAX_AXIS:
            raise UsageError(f"--size {text}: {part} is out of range. Expected sizes from 1 to {MAX_AXIS}.")
    values = [int(part) for part in parts]
    return dict(zip(axes, values * len(axes) if len(values) == 1 else values, strict=True))


def plan(
    suite: Suite, patterns: Sequence[str] = (), sizes: Sequence[str] = (), *, quick: bool = False
) -> list[PlannedCase]:
    """Every selected case of a suite, kernel by kernel in ladder order.

    A pattern is a glob on the kernel's name with its suite's, ``matmul.*tiling*``; a suite's name alone
    selects all of it.
    """
    points = [parse_size(size, suite.problem) for size in sizes] or list(suite.problem.points(quick=quick))
    chosen = [
        kernel for kernel in suite.kernels if not patterns or any(selects(p, suite, kernel) for p in patterns)
    ]
    return [PlannedCase(kernel, suite.case(kernel, point)) for kernel in chosen for point in points]


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
        named = any(pattern.rpartition(".")[2] == kernel.name for pattern in patterns)
        if named or kernel.source_for(device.backend) is not None:
            kept.append(planned)
        elif kernel.name not in (names := others.setdefault(" or ".join(kernel.sources), [])):
            names.append(kernel.name)
    return kept, others


def selects(pattern: str, suite: Suite, kernel: Kernel) -> bool:
    name = f"{suite.name}.{kernel.name}"
    return pattern in (suite.name, kernel.name) or fnmatchcase(name, pattern)


def check_patterns(patterns: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raise UsageError for a pattern that selects nothing: a misspelt kernel must not pass as an empty
    success.
    """
    for pattern in patterns:
        if not any(selects(pattern, suite, kernel) for suite in suites for kernel in suite.kernels):
            every = (f"{suite.name}.{kernel.name}" for suite in suites for kernel in suite.kernels)
            names = list(dict.fromkeys(every))  # both commits of a suite have most of them
            near = difflib.get_close_matches(
                pattern, [*names, *(name.partition(".")[2] for name in names)], 3
            )
            hint = f" Did you mean {' or '.join(near)}?" if near else " 'harness list' shows every kernel."
            raise UsageError(f"No kernel matches {pattern!r}.{hint}")


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
