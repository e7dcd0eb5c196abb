"""Whether what judges a suite is still what it was before the suite was loaded.

A suite's own code runs in the process that times and compares. One that replaces a clock or a comparison by
one of its own is found out. One that puts the old one back in time is not, nor one that writes to the
process's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
_MISSING = object()


class TamperedError(MeasureError):
    reason = "tampered"


class TamperCheck:
    """The functions and classes of every module that has a say, as they are when it is made."""

    def __init__(self, *instances: object) -> None:
        """`instances` do their work by their classes' methods alone."""
        self._instances = instances
        names = [name for name in sys.modules if name.partition(".")[0] == "harness"]
        self._known = [
            (owner, name, value, _code(value))
            for module in (sys.modules[name] for name in (*names, *_TRUSTED) if name in sys.modules)
            for owner, name, value in _members(module)
        ]

    def check(self) -> None:
        """Raises TamperedError for the first that is another now."""
        for instance in self._instances:
            for name in vars(instance):
                if callable(getattr(type(instance), name, None)):
                    raise TamperedError(_told(type(instance), name))
        for owner, name, value, code in self._known:
            found = vars(owner).get(name, _MISSING)
            if found is not value or _code(found) != code:
                raise TamperedError(_told(owner, name))


def _told(owner: Any, name: str) -> str:
    module = isinstance(owner, ModuleType)
    place = owner.__name__ if module else f"{owner.__module__}.{owner.__qualname__}"
    return (
        f"{place}.{name} is no longer what it was before the suite was loaded: the suite, or a package that "
        "it imports, has replaced it. No time or comparison made with it counts."
    )


def _members(module: ModuleType) -> Iterator[tuple[Any, str, Any]]:
    """What a module does its work by: functions, the modules it uses, classes and what these are made of."""
    for name, value in list(vars(module).items()):
        if name not in _ANYBODYS and (callable(value) or isinstance(value, ModuleType)):
            yield module, name, value
        if isinstance(value, type) and value.__module__ == module.__name__:
            for inner, member in vars(value).items():
                if callable(member) or isinstance(member, (property, classmethod, staticmethod)):
                    yield value, inner, member


def _code(value: object) -> tuple[object, ...]:
    """What can be changed within a function."""
    if not isinstance(value, FunctionType):
        return ()
    return value.__code__, value.__defaults__, value.__kwdefaults__ and tuple(value.__kwdefaults__.items())
