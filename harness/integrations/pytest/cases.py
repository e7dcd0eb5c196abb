"""Which cases a test is run for: the marker gpu_cases, the command line, and the project's suites."""

from __future__ import annotations

__all__ = ["GpuCase", "Options", "Policy", "Side", "policy_of"]

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from harness.config import Config
from harness.device.lock import Busy
from harness.errors import UsageError
from harness.records import L2Policy
from harness.spec.planning import PlannedCase
from harness.spec.selection import SuitePair
from harness.spec.suite import Case

Side = Literal["base", "head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    device: str | None = None
    sizes: tuple[str, ...] = ()
    quick: bool = False
    base: str | None = None
    """The revision to compare with; None measures the working tree alone."""
    gate: bool = False
    fail_on: tuple[str, ...] = ()
    busy: Busy = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a test asks of its cases."""

    patterns: tuple[str, ...] = ()
    """Globs of kernels; empty for every one."""
    sizes: tuple[str, ...] = ()
    quick: bool = False
    margin: float | None = None
    tolerance: float | None = None
    """Like the margin a fraction, None for what suits the device."""
    requires: str | None = None
    l2: L2Policy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCase:
    """A case as the fixture gpu_case gives it: at base, at head, or both."""

    label: str
    """``matmul.naive@512``"""
    config: Config
    pair: SuitePair
    """Twice the working tree's, where nothing is compared."""
    base: PlannedCase | None = None
    head: PlannedCase | None = None
    policy: Policy

    @property
    def planned(self) -> PlannedCase:
        """At head, unless only base has it."""
        planned = self.head or self.base
        assert planned is not None
        return planned

    @property
    def case(self) -> Case:
        """The case itself: axis sizes and macros read as its attributes."""
        return self.planned.case

    @property
    def judged(self) -> Side:
        """Whose test brings the verdict: head's, or base's for a case that vanished."""
        return "head" if self.head else "base"

    @property
    def sides(self) -> tuple[Side, ...]:
        """The commits that have it."""
        sides: dict[Side, PlannedCase | None] = {"base": self.base, "head": self.head}
        return tuple(side for side, planned in sides.items() if planned)


def policy_of(marks: Iterable[pytest.Mark]) -> Policy:
    """What a test's gpu_cases markers say, the closest first: it wins. Raises UsageError."""
    policy = Policy()
    for mark in reversed([*marks]):
        if mark.args:
            policy = replace(policy, patterns=_patterns(mark.args))
        for name, value in mark.kwargs.items():
            if name not in _READERS:
                raise UsageError(f"gpu_cases has no {name!r}; it has {', '.join(_READERS)}.")
            policy = replace(policy, **{name: _READERS[name](name, value)})
    return policy


def _patterns(values: tuple[Any, ...]) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise UsageError(f"gpu_cases{values!r}: expected names of kernels, such as 'matmul.*tiling*'.")
    return values


def _sizes(name: str, value: Any) -> tuple[str, ...]:
    sizes = value if isinstance(value, (list, tuple)) else (value,)
    if not sizes or not all(isinstance(size, (int, str)) and not isinstance(size, bool) for size in sizes):
        raise _wrong(name, value, "sizes, such as [512] or ['500,300,700']")
    return tuple(str(size) for size in sizes)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def _percent(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 100:
        raise _wrong(name, value, "percent, above 0 and below 100")
    return value / 100


def _capability(name: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"sm_\d{2,}", value):
        raise _wrong(name, value, "a compute capability, such as 'sm_80'")
    return value


def _l2(name: str, value: Any) -> str:
    if value not in ("cold", "hot"):
        raise _wrong(name, value, "'cold' or 'hot'")
    return str(value)


def _wrong(name: str, value: Any, expected: str) -> UsageError:
    return UsageError(f"gpu_cases has {name}={value!r}; expected {expected}.")


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "sizes": _sizes,
    "quick": _flag,
    "margin": _percent,
    "tolerance": _percent,
    "requires": _capability,
    "l2": _l2,
}
