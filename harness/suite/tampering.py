"""Checks that a suite has not changed the code that judges it.

A suite's own code runs in the process that times and compares. The check detects a suite that replaces a
clock or a comparison. It does not detect one that restores the original in time, or that writes to the
process's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any

from harness.errors import MeasureError

_TRUSTED = (
    "builtins",
    "hashlib",
    "math",
    "moderngl",
    "numpy",
    *(f"numpy._core.{name}" for name in ("_methods", "fromnumeric", "multiarray", "numeric", "umath")),
    "numpy.linalg",
    "numpy.random",
    "pycuda._driver",
    "pycuda.driver",
    "pyopencl",
    "pyopencl._cl",
    "random",
    "statistics",
    "time",
)
"""Modules that the harness times and compares with, besides its own."""
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset)
_CONTAINERS = (dict, list, set)
_DRIVING = "harness.device."
"""Modules that drivers and frameworks use. They may change the contents of their containers."""
_ANYBODYS = ("__import__", "open", "print")
"""Builtins that packages replace in good faith, and that no measurement depends on."""
_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
"""Parts of a function that can be replaced. New defaults do not affect a correct call."""
_all, _map, _len = all, map, len
"""Copies, so that a suite that replaces these builtins has no effect here. Python loops take three times as
long."""


class TamperedError(MeasureError):
    reason = "tampered"


class TamperCheck:
    """The functions and values that each relevant module works with, when the check is made."""

    def __init__(self, *instances: object) -> None:
        """Prepare a check. `instances` work only by the methods of their classes."""
        self._instances = instances
        self._modules = {name: each for name, each in sys.modules.items() if _has_a_say(name)}
        self._known = [_now(name, each) for name, each in self._modules.items()]

    def check(self) -> None:
        """Raise TamperedError for the first changed function or value."""
        for instance in self._instances:
            for name in vars(instance):
                if callable(getattr(type(instance), name, None)):
                    raise TamperedError(_message(type(instance), f".{name}"))
        if not _all(_map(is_, _map(sys.modules.get, self._modules), self._modules.values())):
            replaced = next(name for name, each in self._modules.items() if sys.modules.get(name) is not each)
            raise TamperedError(_message(self._modules[replaced]))
        for known in self._known:
            known.check()


def look_ahead() -> None:
    """Inspect the modules imported so far, so that checks in forks of this process need not.

    A check inspects a module again if it has changed.
    """
    _looked_at.update((name, _Known(each)) for name, each in sys.modules.items() if _has_a_say(name))


class _Known:
    """The functions and values that a module works with, at some moment."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        owners = [*_members(module)]
        self._places = [(owner, vars(owner), members, _len(vars(owner))) for owner, members in owners]
        self._contents = [
            (owner, name, value, copy(value))
            for owner, members in owners
            for name, value in members.items()
            if isinstance(value, _CONTAINERS)
        ]
        values = (value for _, members in owners for value in members.values())
        functions = {value for value in values if isinstance(value, FunctionType)}
        self._parts = [(part, *_having(part, functions)) for part in _PARTS]

    def is_current(self) -> bool:
        if any(_len(names) != count for _, names, _, count in self._places):
            return False
        try:
            self.check()
        except TamperedError:
            return False
        return True

    def check(self) -> None:
        """Raise TamperedError for the first changed function or value."""
        for owner, names, members, count in self._places:
            if not _all(_map(is_, _map(names.get, members), members.values())):
                replaced = next(name for name, value in members.items() if names.get(name) is not value)
                raise TamperedError(_message(owner, f".{replaced}"))
            if _len(names) != count and (added := _added(owner, members)):
                raise TamperedError(_message(owner, f".{added}"))
        for owner, name, container, content in self._contents:
            if container != content:
                raise TamperedError(_message(owner, f".{name}"))
        for part, functions, known in self._parts:
            if [*_map(attrgetter(part), functions)] != known:
                was = dict(zip(functions, known, strict=True))
                changed = next(each for each in functions if getattr(each, part) != was[each])
                raise TamperedError(_message(changed))


_looked_at: dict[str, _Known] = {}


def _now(name: str, module: ModuleType) -> _Known:
    ahead = _looked_at.get(name)
    return ahead if ahead and ahead.module is module and ahead.is_current() else _Known(module)


def _having(part: str, functions: Iterable[FunctionType]) -> tuple[list[FunctionType], list[object]]:
    """Return the functions that have this part, and the part of each."""
    found = {function: getattr(function, part) for function in functions}
    having = {function: copy(value) for function, value in found.items() if value is not None}
    return list(having), list(having.values())


def _message(owner: Any, member: str = "") -> str:
    place = owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
    return (
        f"{place}{member} is no longer what it was before the suite was loaded: the suite, or a package that "
        "it imports, has replaced it. No time or comparison made with it counts."
    )


def _has_a_say(name: str) -> bool:
    return name.partition(".")[0] == "harness" or name in _TRUSTED


def _is_ours(owner: Any) -> bool:
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    return str(name).partition(".")[0] == "harness"


def _added(owner: Any, members: Iterable[str]) -> str:
    """Return a new name in the harness that affects its work, such as one that hides a builtin;
    else nothing.
    """
    if not _is_ours(owner):
        return ""
    return next((name for name, each in vars(owner).items() if name not in members and _does_work(each)), "")


def _members(module: ModuleType) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield what a module works with: functions, modules, classes; for the harness, constants too."""
    counts = partial(_is_constant, module.__name__) if _is_ours(module) else _is_number
    named = {
        name: value
        for name, value in vars(module).items()
        if name not in _ANYBODYS and (callable(value) or isinstance(value, ModuleType) or counts(name, value))
    }
    yield module, named
    for value in named.values():
        if isinstance(value, type) and value.__module__ == module.__name__ and not _is_immutable(value):
            made_of = vars(value).items()
            yield value, {name: each for name, each in made_of if _does_work(each) or counts(name, each)}


def _is_number(_name: str, value: object) -> bool:
    """Tell whether a value is a number, such as math.inf."""
    return isinstance(value, float)


def _is_constant(module: str, name: str, value: object) -> bool:
    """Tell whether a value is a constant of the harness: an immutable type, or a container with
    such a name.
    """
    if name.startswith("__"):  # Python's own, which it may add or change on demand
        return False
    named_so = name.isupper() and not module.startswith(_DRIVING)
    return isinstance(value, _CONSTANTS) or (named_so and isinstance(value, _CONTAINERS))


def _is_immutable(value: type) -> bool:
    """Tell whether Python itself refuses to replace a type's members, as for `int` and NumPy's array."""
    return bool(value.__flags__ & 1 << 8)  # Py_TPFLAGS_IMMUTABLETYPE


def _does_work(member: object) -> bool:
    return callable(member) or isinstance(member, (property, classmethod, staticmethod))
