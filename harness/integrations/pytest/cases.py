"""Which cases a test is run for: the marker gpu_cases, the command line, and the project's suites."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from harness.config import Config
from harness.device.lock import Busy
from harness.errors import UsageError
from harness.records import L2Policy
from harness.spec.planning import PlannedCase, SuitePair
from harness.spec.suite import Case

CaseSide = Literal["base", "head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
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
class CaseOptions:
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
    options: CaseOptions

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
    def judged(self) -> CaseSide:
        """Whose test brings the verdict: head's, or base's for a case that vanished."""
        return "head" if self.head else "base"

    @property
    def sides(self) -> tuple[CaseSide, ...]:
        """The commits that have it."""
        sides: dict[CaseSide, PlannedCase | None] = {"base": self.base, "head": self.head}
        return tuple(side for side, planned in sides.items() if planned)


def case_options(marks: Iterable[pytest.Mark]) -> CaseOptions:
    """What a test's gpu_cases markers say, the closest first: it wins. Raises UsageError."""
    options = CaseOptions()
    for mark in reversed([*marks]):
        if not all(isinstance(pattern, str) for pattern in mark.args):
            raise UsageError(f"gpu_cases{mark.args!r}: expected names of kernels, such as 'matmul.*tiling*'.")
        if mark.args:
            options = replace(options, patterns=mark.args)
        for name, value in mark.kwargs.items():
            if name not in _KEYWORDS:
                raise UsageError(f"gpu_cases has no {name!r}; it has {', '.join(_KEYWORDS)}.")
            expected, fits, read = _KEYWORDS[name]
            if not fits(value):
                raise UsageError(f"gpu_cases has {name}={value!r}; expected {expected}.")
            options = replace(options, **{name: read(value)})
    return options


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _are_sizes(value: Any) -> bool:
    sizes = _listed(value)
    return bool(sizes) and all(isinstance(size, int | str) and not isinstance(size, bool) for size in sizes)


_PERCENT = (
    "percent, above 0 and below 100",
    lambda value: _is_number(value) and 0 < value < 100,
    lambda value: value / 100,
)
_KEYWORDS: Mapping[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sizes": (
        "sizes, such as [512] or ['500,300,700']",
        _are_sizes,
        lambda value: tuple(map(str, _listed(value))),
    ),
    "quick": ("True or False", lambda value: isinstance(value, bool), bool),
    "margin": _PERCENT,
    "tolerance": _PERCENT,
    "requires": (
        "a compute capability, such as 'sm_80'",
        lambda value: isinstance(value, str) and re.fullmatch(r"sm_\d{2,}", value),
        str,
    ),
    "l2": ("'cold' or 'hot'", lambda value: value in ("cold", "hot"), str),
}
"""What may be said of a test's cases: what is expected, whether a value is that, and what it stands for."""
