"""Configurations of a kernel for a sweep, in our own form or in Kernel Tuner's."""

from __future__ import annotations

import builtins
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from harness.errors import SuiteError
from harness.numbers import Value
from harness.suite.problem import IDENTIFIER, Case, number, twice_in


@dataclass(frozen=True)
class Tuning:
    """Configurations that `harness sweep` tries: all combinations of `parameters`, or `configurations`.

    Parameters replace values of the kernel's macros. `rules` select valid combinations, in Kernel Tuner's
    form: expressions over parameters and axes, ``"block_size_x * block_size_y <= 1024"``, or functions of the
    case.
    """

    parameters: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    configurations: Sequence[Mapping[str, Value]] = ()
    rules: Sequence[str | Callable[[Case], bool]] = ()
    sizes: Sequence[int | Mapping[str, int]] = ()
    """Points of the axes, or numbers for all axes; if empty, the problem's own."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Parameters that share a column in tables: ``{"block tile": ("BM", "BN")}``. Others have their own
    column."""

    def __post_init__(self) -> None:
        if bool(self.parameters) == bool(self.configurations):
            raise SuiteError("Tuning() takes either parameters or configurations.")
        grouped = [name for group in self.groups.values() for name in group]
        if unknown := [name for name in grouped if name not in self.names]:
            names = ", ".join(self.names)
            raise SuiteError(f"Tuning() groups {unknown[0]!r}, which is no parameter; expected of {names}.")
        if twice := twice_in(grouped):
            raise SuiteError(f"Tuning() has {twice!r} in its groups twice; expected once.")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parameters' names, in order."""
        return tuple(self.parameters) or tuple(dict.fromkeys(itertools.chain(*self.configurations)))

    @classmethod
    def from_kernel_tuner(
        cls,
        tune_params: Mapping[str, Iterable[Any]],
        restrictions: Any = None,
        *,
        sizes: Sequence[int | Mapping[str, int]] = (),
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> Tuning:
        """Return the tuning of Kernel Tuner's `tune_params` and `restrictions`. Raises SuiteError.

        A restriction is a string, a function of a dict of the parameters, a function of parameters by name,
        or a pair of a function and the names of its arguments. These are the forms of kernel_tuner 1.5.0,
        without python-constraint's objects. Booleans become 0 and 1.
        """
        parameters = {name: _brought_values(name, tune_params[name]) for name in tune_params}
        given = () if restrictions is None else restrictions
        if not isinstance(given, (list, tuple)) or _is_selective(given):
            given = (given,)
        rules = tuple(_brought_rule(each, tuple(parameters)) for each in given)
        return cls(parameters=parameters, rules=rules, sizes=sizes, groups=groups or {})


def _brought_values(name: str, values: Any) -> tuple[Value, ...]:
    """Return values of a Kernel Tuner parameter for macros."""
    if not IDENTIFIER.match(name):
        raise SuiteError(f"Kernel Tuner's parameter {name!r} is no identifier, and a macro must be one.")
    if name.startswith("nvml_"):
        raise SuiteError(
            f"Kernel Tuner's parameter {name!r} sets the card's clocks or power limit, which the harness "
            "never does: leave it out, or set the card yourself and sweep once for each setting."
        )
    try:
        listed = [] if isinstance(values, str) else list(values)
    except TypeError:
        listed = []
    if not listed:
        raise SuiteError(f"Kernel Tuner's parameter {name!r} is {values!r}; expected values, as in [32, 64].")
    brought: list[Value] = []
    for value in listed:
        plain = number(value)
        if not isinstance(plain, int) and not (isinstance(plain, str) and IDENTIFIER.match(plain)):
            raise SuiteError(
                f"Kernel Tuner's parameter {name!r} has the value {plain!r} ({type(plain).__name__}), which "
                "no macro can have: expected an integer, a boolean or a word. Number what you choose "
                "between, and let the source say what each number means."
            )
        brought.append(plain if isinstance(plain, str) else int(plain))
    return tuple(brought)


def _is_selective(restriction: Any) -> bool:
    """Tell whether it is a function with the names of its parameters."""
    if not isinstance(restriction, tuple) or len(restriction) != 2:
        return False
    return callable(restriction[0]) and isinstance(restriction[1], (list, tuple))


def _brought_rule(restriction: Any, names: tuple[str, ...]) -> str | Callable[[Case], bool]:
    if isinstance(restriction, str):
        return _brought_expression(restriction.strip())
    if _is_selective(restriction):
        function, selected = restriction
        return _rule(function, lambda values: function(*(values[name] for name in selected)), names)
    if not callable(restriction):
        raise SuiteError(
            f"Kernel Tuner's restriction {restriction!r} is a {type(restriction).__name__}; expected a "
            "string or a function."
        )
    by_name = inspect.signature(restriction).parameters
    if all(name in names for name in by_name):
        return _rule(restriction, lambda values: restriction(*(values[name] for name in by_name)), names)
    if len(by_name) == 1:
        return _rule(restriction, restriction, names)
    raise SuiteError(
        f"Kernel Tuner's restriction {restriction!r} takes {', '.join(by_name)}; expected one dict of the "
        f"parameters, or of these by their names: {', '.join(names)}."
    )


def _brought_expression(text: str) -> str | Callable[[Case], bool]:
    """Return the expression, or a function if it calls a Python builtin, which rules cannot."""
    try:
        code = compile(text, "<restriction>", "eval")
    except (SyntaxError, ValueError) as error:
        raise SuiteError(f"Kernel Tuner's restriction {text!r} is no expression: {error}.") from None
    if not any(hasattr(builtins, name) for name in code.co_names):
        return text

    def rule(case: Case) -> bool:
        return bool(eval(code, {**case.sizes, **case.macros}))  # noqa: S307 - of suite.py's author

    rule.__name__ = text
    return rule


def _rule(
    restriction: Callable[..., Any], call: Callable[[dict[str, Value]], Any], names: tuple[str, ...]
) -> Callable[[Case], bool]:
    """Return a rule with the name of the restriction."""

    @wraps(restriction, updated=())
    def rule(case: Case) -> bool:
        return bool(call({name: case.macros[name] for name in names}))

    return rule
