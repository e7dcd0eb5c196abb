"""Rules that a configuration of a sweep must satisfy: its tuning's, and those of any kernel on a device."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.device.backends.base import check_launch
from harness.errors import LaunchError, SuiteError
from harness.numbers import Value
from harness.records.sweep_types import Configuration, SweepRow
from harness.records.types import DeviceInfo
from harness.suite.device_facts import facts_of
from harness.suite.kernel import Kernel
from harness.suite.planning import at_least_one, launch_of
from harness.suite.problem import Case
from harness.suite.suite import Suite
from harness.suite.tuning import Tuning

_METHODS = {*dir(int), *dir(str)} - {"format", "format_map"}
"""Attributes that a rule may use, unless they begin with an underscore.

Other attributes would give access to all of Python, and rules are evaluated in the process that runs no suite
code.
"""


@dataclass(frozen=True, slots=True)
class _ParsedRule:
    name: str
    holds: Callable[[Case], Any]
    names: tuple[str, ...]
    """Names that the rule uses, if it is an expression."""


class Rules:
    """The rules of a kernel's tuning, and those that every kernel on a device must satisfy.

    Raises SuiteError for a rule that is no valid expression.
    """

    def __init__(self, suite: Suite, kernel: Kernel, tuning: Tuning, device: DeviceInfo) -> None:
        self.suite, self.kernel, self.device = suite, kernel, device
        self.rules = [self._rule(number, rule) for number, rule in enumerate(tuning.rules, 1)]

    def _rule(self, number: int, rule: str | Callable[[Case], bool]) -> _ParsedRule:
        if callable(rule):
            name = getattr(rule, "__name__", "<lambda>")
            return _ParsedRule(f"rule {number}" if name == "<lambda>" else name, rule, ())
        try:
            tree = ast.parse(rule.strip(), "<rule>", "eval")
            code = compile(tree, "<rule>", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise SuiteError(
                f"Kernel {self.kernel.name!r} has the rule {rule!r}, which is no expression: {error}."
            ) from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (node.attr[:1] == "_" or node.attr not in _METHODS):
                raise SuiteError(
                    f"Kernel {self.kernel.name!r} has the rule {rule!r}, which asks for {node.attr!r}; "
                    "expected an expression of parameters and axes: a function may do more."
                )

        def holds(case: Case) -> Any:
            # Rules use parameters and axes, in Kernel Tuner's form. Python's builtins are not available.
            known: dict[str, Any] = {**case.sizes, **case.macros, "__builtins__": {}}
            return eval(code, known)  # noqa: S307 - without attributes it reaches no more than these

        return _ParsedRule(rule.strip(), holds, code.co_names)

    def rejected(self, configuration: Configuration) -> SweepRow | None:
        """Return the row of a configuration that breaks a rule; None for a valid one.

        Raises SuiteError for a rule that cannot be evaluated.
        """
        device = facts_of(self.device)
        case = self.suite.case(self.kernel, configuration.sizes, configuration.parameters, device)
        rejected = functools.partial(SweepRow, configuration=configuration, status="rejected")
        for rule in self.rules:
            if not self._holds(rule, case):
                known = {**case.sizes, **case.macros}
                named = {name: known[name] for name in rule.names if name in known}
                values = _listed(named or {**configuration.sizes, **configuration.parameters})
                return rejected(reason="rule", message=f"{rule.name} does not hold: {values}.")
        try:
            check_launch(launch_of(self.kernel, case, at_least_one), self.device)
        except LaunchError as error:
            return rejected(reason=error.reason, message=error.message)
        return None

    def _holds(self, rule: _ParsedRule, case: Case) -> bool:
        try:
            return bool(rule.holds(case))
        except NameError as error:
            known = ", ".join({**case.sizes, **case.macros})
            raise SuiteError(
                f"Kernel {self.kernel.name!r}: rule {rule.name!r}: {error}. It may use {known}."
            ) from None
        except Exception as error:
            raise SuiteError(
                f"Kernel {self.kernel.name!r}: rule {rule.name!r} at {case.size_label} with "
                f"{_listed(case.macros)} raised {type(error).__name__}: {error}"
            ) from error


def _listed(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
