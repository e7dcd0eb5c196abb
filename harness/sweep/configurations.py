"""Which configurations a sweep tries, and which of them rules rule out before anything is compiled."""

from __future__ import annotations

__all__ = ["Rules", "configurations", "parameters", "points"]

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from harness.device.backends.base import check_launch
from harness.errors import LaunchError, SuiteError
from harness.records import DeviceInfo
from harness.spec.case_id import Size
from harness.spec.planning import launch_of
from harness.spec.suite import Case, Kernel, Suite, Tuning, Value, point_of
from harness.sweep.model import Configuration, SweepRow


def parameters(tuning: Tuning) -> tuple[str, ...]:
    """Their names, in the suite's order."""
    if tuning.parameters:
        return tuple(tuning.parameters)
    return tuple(dict.fromkeys(name for chosen in tuning.configurations for name in chosen))


def points(
    suite: Suite, tuning: Tuning, sizes: Sequence[str] = (), *, quick: bool = False
) -> tuple[dict[str, int], ...]:
    """The sizes to sweep: those asked for, else the tuning's, else the problem's own.

    Raises UsageError for a size that is none, SuiteError for one of the tuning's.
    """
    if sizes:
        found = [Size.parse(size).at(suite.problem.axes) for size in sizes]
    else:
        found = [_point(suite, size) for size in tuning.sizes] or list(suite.problem.points(quick=quick))
    return tuple(point for place, point in enumerate(found) if point not in found[:place])


def _point(suite: Suite, size: int | Mapping[str, int]) -> dict[str, int]:
    point = point_of(suite.problem, size)
    if point is None:
        raise SuiteError(
            f"Suite {suite.name!r} has a tuning with the size {size!r}; "
            f"expected a number, or one above 0 for each of {', '.join(suite.problem.axes)}."
        )
    return point


def configurations(
    suite: Suite, kernel: Kernel, tuning: Tuning, sizes: Sequence[Mapping[str, int]]
) -> tuple[Configuration, ...]:
    """Every configuration at every size, numbered from 1, size by size.

    Raises SuiteError where there is none, or a value is neither an integer nor a word.
    """
    chosen = list(_combinations(tuning))
    if not chosen:
        raise SuiteError(
            f"Kernel {kernel.name!r} has a tuning without a configuration: a parameter without a value?"
        )
    numbers = itertools.count(1)
    return tuple(
        Configuration(
            number=next(numbers),
            case=suite.case(kernel, point, each).id,
            sizes=dict(point),
            parameters=dict(each),
        )
        for point in sizes
        for each in chosen
    )


def _combinations(tuning: Tuning) -> list[Mapping[str, Value]]:
    if tuning.configurations:
        return [dict(each) for each in tuning.configurations]
    names = list(tuning.parameters)
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*tuning.parameters.values())
    ]


@dataclass(frozen=True, slots=True)
class _Rule:
    told: str
    """How it is named to a person."""
    holds: Callable[[Case], Any]
    names: tuple[str, ...]
    """What it looks at, where it is an expression."""


class Rules:
    """The rules of a kernel's tuning, and those that every kernel on a device has to keep.

    Raises SuiteError for a rule that is no expression.
    """

    def __init__(self, suite: Suite, kernel: Kernel, tuning: Tuning, device: DeviceInfo) -> None:
        self.suite, self.kernel, self.device = suite, kernel, device
        self.rules = [self._rule(number, rule) for number, rule in enumerate(tuning.rules, 1)]

    def _rule(self, number: int, rule: str | Callable[[Case], bool]) -> _Rule:
        if callable(rule):
            name = getattr(rule, "__name__", "<lambda>")
            return _Rule(f"rule {number}" if name == "<lambda>" else name, rule, ())
        try:
            code = compile(rule.strip(), "<rule>", "eval")
        except (SyntaxError, ValueError) as error:
            raise SuiteError(
                f"Kernel {self.kernel.name!r} has the rule {rule!r}, which is no expression: {error}."
            ) from None
        return _Rule(rule.strip(), _evaluated(code), code.co_names)

    def rejected(self, configuration: Configuration) -> SweepRow | None:
        """The row of a configuration that breaks a rule; None for one that may be tried.

        Raises SuiteError for a rule that cannot be evaluated.
        """
        case = self.suite.case(self.kernel, configuration.sizes, configuration.parameters)
        for rule in self.rules:
            if not self._holds(rule, case):
                message = f"{rule.told} does not hold: {self._values(rule, case, configuration)}."
                return SweepRow(
                    configuration=configuration, status="rejected", reason="rule", message=message
                )
        try:
            check_launch(launch_of(self.kernel, case), self.device)
        except LaunchError as error:
            return SweepRow(
                configuration=configuration, status="rejected", reason=error.reason, message=error.message
            )
        return None

    def _holds(self, rule: _Rule, case: Case) -> bool:
        try:
            return bool(rule.holds(case))
        except NameError as error:
            known = ", ".join({**case.sizes, **case.macros})
            raise SuiteError(
                f"Kernel {self.kernel.name!r}: rule {rule.told!r}: {error}. It may use {known}."
            ) from None
        except Exception as error:
            raise SuiteError(
                f"Kernel {self.kernel.name!r}: rule {rule.told!r} at {case.size_label} with "
                f"{_told(case.macros)} raised {type(error).__name__}: {error}"
            ) from error

    def _values(self, rule: _Rule, case: Case, configuration: Configuration) -> str:
        known = {**case.sizes, **case.macros}
        named = {name: known[name] for name in rule.names if name in known}
        return _told(named or {**configuration.sizes, **configuration.parameters})


def _evaluated(code: CodeType) -> Callable[[Case], Any]:
    """An expression over parameters and axes, in Kernel Tuner's form. Nothing of Python's own is at hand."""

    def holds(case: Case) -> Any:
        known: dict[str, Any] = {**case.sizes, **case.macros, "__builtins__": {}}
        return eval(code, known)  # noqa: S307 - it is suite.py's author who wrote it

    return holds


def _told(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
