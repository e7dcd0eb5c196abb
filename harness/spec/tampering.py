"""Whether what judges a suite is still what it was before the suite was loaded.

A suite's own code runs in the process that times and compares. One that replaces a clock or a comparison by
one of its own is found out. One that puts the old one back in time is not, nor one that writes to the
process's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from copy import copy
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
    "pycuda._driver",
    "pycuda.driver",
    "pyopencl",
    "pyopencl._cl",
    "random",
    "statistics",
    "time",
)
"""What the harness times and compares by, besides modules of its own."""
_ANYBODYS = ("__import__", "open", "print")
"""Builtins that packages replace in good faith, and that no figure rests on."""
_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
"""What can be changed within a function. New defaults where there are none change no call that is right."""
_all, _map = all, map
"""A suite that replaces a builtin replaces it not here. Loops of Python's own take three times as long."""


class TamperedError(MeasureError):
    reason = "tampered"


class TamperCheck:
    """The functions and classes of every module that has a say, as they are when it is made."""

    def __init__(self, *instances: object) -> None:
        """`instances` do their work by their classes' methods alone."""
        self._instances = instances
        names = [name for name in sys.modules if name.partition(".")[0] == "harness"]
        modules = [sys.modules[name] for name in (*names, *_TRUSTED) if name in sys.modules]
        self._owners = [each for module in modules for each in _members(module)]
        functions = {
            value
            for _, members in self._owners
            for value in members.values()
            if isinstance(value, FunctionType)
        }
        self._parts = [(part, *_having(part, functions)) for part in _PARTS]

    def check(self) -> None:
        """Raises TamperedError for the first that is another now."""
        for instance in self._instances:
            for name in vars(instance):
                if callable(getattr(type(instance), name, None)):
                    raise TamperedError(_message(type(instance), f".{name}"))
        for owner, members in self._owners:
            current = vars(owner).get
            if not _all(_map(is_, _map(current, members), members.values())):
                replaced = next(name for name, value in members.items() if current(name) is not value)
                raise TamperedError(_message(owner, f".{replaced}"))
        for part, functions, known in self._parts:
            if [*_map(attrgetter(part), functions)] != known:
                was = dict(zip(functions, known, strict=True))
                changed = next(each for each in functions if getattr(each, part) != was[each])
                raise TamperedError(_message(changed))


def _having(part: str, functions: Iterable[FunctionType]) -> tuple[list[FunctionType], list[object]]:
    """The functions that have this part, and the part of each."""
    found = {function: getattr(function, part) for function in functions}
    having = {function: copy(value) for function, value in found.items() if value is not None}
    return list(having), list(having.values())


def _message(owner: Any, member: str = "") -> str:
    place = owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
    return (
        f"{place}{member} is no longer what it was before the suite was loaded: the suite, or a package that "
        "it imports, has replaced it. No time or comparison made with it counts."
    )


def _members(module: ModuleType) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What a module does its work by: functions, the modules it uses, classes and what these are made of."""
    named = {
        name: value
        for name, value in vars(module).items()
        if name not in _ANYBODYS and (callable(value) or isinstance(value, ModuleType))
    }
    yield module, named
    for value in named.values():
        if isinstance(value, type) and value.__module__ == module.__name__ and not _is_immutable(value):
            yield value, {name: each for name, each in vars(value).items() if _does_work(each)}


def _is_immutable(value: type) -> bool:
    """Whether Python itself refuses to replace what it is made of, as of `int` and of NumPy's array."""
    return bool(value.__flags__ & 1 << 8)  # Py_TPFLAGS_IMMUTABLETYPE


def _does_work(member: object) -> bool:
    return callable(member) or isinstance(member, (property, classmethod, staticmethod))
