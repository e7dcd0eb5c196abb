"""Whether what judges a suite is still what it was before the suite was loaded.

A suite's own code runs in the process that times and compares. One that replaces a clock or a comparison by
one of its own is found out. One that puts the old one back in time is not, nor one that writes to the
process's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import compress
from operator import attrgetter, is_, ne
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

_OF_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: those of C lack it, and nothing can be set in them."""


class TamperedError(MeasureError):
    reason = "tampered"


class TamperCheck:
    """The functions and classes of every module that has a say, as they are when it is made.

    A worker looks before and after each request, at ten thousand names: those of one owner at once.
    """

    def __init__(self, *instances: object) -> None:
        """`instances` do their work by their classes' methods alone."""
        self._instances = instances
        names = [name for name in sys.modules if name.partition(".")[0] == "harness"]
        modules = [sys.modules[name] for name in (*names, *_TRUSTED) if name in sys.modules]
        self._known = [(owner, dict(vars(owner))) for module in modules for owner in _owners(module)]
        values = (value for _, held in self._known for value in held.values())
        self._functions = list(dict.fromkeys(each for each in values if isinstance(each, FunctionType)))
        self._insides = [
            (code, defaults, named and named.copy())
            for code, defaults, named in map(_inside, self._functions)
        ]

    def check(self) -> None:
        """Raises TamperedError for the first that is another now."""
        for instance in self._instances:
            for name in vars(instance):
                if callable(getattr(type(instance), name, None)):
                    raise TamperedError(_told(type(instance), name))
        for owner, before in self._known:
            now = vars(owner)
            if not all(map(is_, map(now.get, before), before.values())):
                for name, value in before.items():
                    if now.get(name) is not value and _does_work(owner, name, value):
                        raise TamperedError(_told(owner, name))
        insides = list(map(_inside, self._functions))
        if insides != self._insides:
            changed = next(compress(self._functions, map(ne, insides, self._insides)))
            raise TamperedError(_told(*self._place(changed)))

    def _place(self, function: FunctionType) -> tuple[Any, str]:
        """The first owner that has it, and by which name."""
        every = ((owner, name, value) for owner, held in self._known for name, value in held.items())
        return next((owner, name) for owner, name, value in every if value is function)


def _told(owner: Any, name: str) -> str:
    module = isinstance(owner, ModuleType)
    place = owner.__name__ if module else f"{owner.__module__}.{owner.__qualname__}"
    return (
        f"{place}.{name} is no longer what it was before the suite was loaded: the suite, or a package that "
        "it imports, has replaced it. No time or comparison made with it counts."
    )


def _owners(module: ModuleType) -> Iterator[Any]:
    """A module, and the classes that are made in it and that Python lets anybody change."""
    yield module
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__ and value.__flags__ & _OF_PYTHON:
            yield value


def _does_work(owner: Any, name: str, value: object) -> bool:
    """Whether an owner does its work by it: a function, a class, a module that it uses."""
    if isinstance(owner, ModuleType):
        return name not in _ANYBODYS and (callable(value) or isinstance(value, ModuleType))
    return callable(value) or isinstance(value, (property, classmethod, staticmethod))


_inside = attrgetter("__code__", "__defaults__", "__kwdefaults__")
"""What can be changed within a function."""
