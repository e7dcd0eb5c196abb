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
"""What the harness times and compares by, besides modules of its own; of a package, its modules too."""
_CHANGING = {
    "harness.device.frameworks": ("_OPERATORS",),  # what each folder registered
    "harness.device.lock": ("_ours",),  # locks that this process holds
    "harness.spec.loader": ("_own",),  # modules of suites
    "harness.system.file_access": ("_hearers", "_opened", "_since", "_variables", "_work_tree"),  # its notes
}
"""Containers of the harness whose contents change while it works."""
_LAZY = ("__annotations__", "__annotations_cache__", "__doc__", "__warningregistry__")
"""Names that Python itself adds to a module or a class when they are asked for."""
_ANYBODYS = ("__import__", "open", "print")
"""Builtins that packages replace in good faith, and that no figure rests on."""
_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
"""What can be changed within a function. New defaults where there are none change no call that is right."""
_all, _map, _len = all, map, len
"""A suite that replaces a builtin replaces it not here. Loops of Python's own take three times as long."""


class TamperedError(MeasureError):
    reason = "tampered"


class TamperCheck:
    """The functions and classes of every module that has a say, as they are when it is made."""

    def __init__(self, *instances: object) -> None:
        """`instances` do their work by their classes' methods alone."""
        self._instances = instances
        self._modules = {name: module for name, module in sys.modules.items() if _has_a_say(name)}
        self._owners = [each for module in self._modules.values() for each in _members(module)]
        self._counts = [_len(vars(owner)) if _is_ours(owner) else 0 for owner, _ in self._owners]
        held = {
            (owner, name): value
            for owner, members in self._owners
            for name, value in members.items()
            if _is_ours(owner) and isinstance(value, (dict, list, set))
            if name not in _CHANGING.get(owner.__name__, ()) and name != "__builtins__"
        }
        self._contents = {place: (value, copy(value)) for place, value in held.items()}
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
        if not _all(_map(is_, _map(sys.modules.get, self._modules), self._modules.values())):
            replaced = next(name for name, each in self._modules.items() if sys.modules.get(name) is not each)
            raise TamperedError(_message(self._modules[replaced]))
        for (owner, members), count in zip(self._owners, self._counts, strict=True):
            names = vars(owner)
            current = names.get
            if not _all(_map(is_, _map(current, members), members.values())):
                replaced = next(name for name, value in members.items() if current(name) is not value)
                raise TamperedError(_message(owner, f".{replaced}"))
            if count and _len(names) > count and (added := _added(owner, members)):
                raise TamperedError(_message(owner, f".{added}"))
        for (owner, name), (container, content) in self._contents.items():
            if container != content:
                raise TamperedError(_message(owner, f".{name}"))
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


def _has_a_say(name: str) -> bool:
    package = name.partition(".")[0]
    return package == "harness" or name in _TRUSTED or (package == "numpy" and ".tests" not in name)


def _is_ours(owner: Any) -> bool:
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    return str(name).partition(".")[0] == "harness"


def _added(owner: Any, members: Iterable[str]) -> str:
    """A name that is new in a module or class of the harness, as that of a builtin that it would hide; empty for
    modules that were imported since.
    """
    new = [name for name in vars(owner) if name not in {*members, *_LAZY}]
    return next((name for name in new if not isinstance(vars(owner)[name], ModuleType)), "")


def _members(module: ModuleType) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What a module does its work by: functions, the modules it uses, classes and what these are made of. Of
    the harness, and of numbers such as math.inf, constants too.
    """
    ours = _is_ours(module)
    named = {
        name: value
        for name, value in vars(module).items()
        if name not in (_LAZY if ours else _ANYBODYS)
        and (ours or callable(value) or isinstance(value, (ModuleType, float)))
    }
    yield module, named
    for value in named.values():
        if isinstance(value, type) and value.__module__ == module.__name__ and not _is_immutable(value):
            kept = vars(value).items()
            yield value, {name: each for name, each in kept if name not in _LAZY and (ours or _does_work(each))}


def _is_immutable(value: type) -> bool:
    """Whether Python itself refuses to replace what it is made of, as of `int` and of NumPy's array."""
    return bool(value.__flags__ & 1 << 8)  # Py_TPFLAGS_IMMUTABLETYPE


def _does_work(member: object) -> bool:
    return callable(member) or isinstance(member, (property, classmethod, staticmethod))
