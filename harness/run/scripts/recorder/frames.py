"""Describes the functions around a timing call and their variables in plain values, which
distinguish calls.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import os
import re
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MOST_FRAMES, _MOST_LOCALS, _MOST_TEXT = 12, 100, 40
_WORD = re.compile(r"[\w.+:-]+")
_AUTOTUNERS = (
    "triton/runtime/autotuner",
    "torch/_inductor",
    "torch/_dynamo",
    "helion/autotuner",
    "helion/_testing",
    "tilelang/autotuner",
    "flashinfer/autotuner",
)
_COUNTERS = ("i", "j", "idx", "index", "it", "count", "counter", "step", "rank", "seed")
"""Variables that distinguish calls only by their position."""
_HERE = os.path.dirname(os.path.realpath(__file__))


def plain(value: Any, *, floats: bool = False) -> int | str | None:
    """Return a value in the form that a name can hold: a whole number or a short word; else None."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)  # a label, such as 512
    if isinstance(value, int) and not isinstance(value, (bool, enum.Enum)):
        return int(value) if abs(value) < 2**63 else None
    word = _word(value, floats=floats)
    return word if word is not None and len(word) <= _MOST_TEXT and _WORD.fullmatch(word) else None


def _word(value: Any, *, floats: bool) -> str | None:
    word: str | None = None
    kind = type(value)
    if isinstance(value, enum.Enum):
        word = value.name
    elif isinstance(value, str):
        word = value
    elif value is None or isinstance(value, bool) or (floats and isinstance(value, float)):
        word = repr(value)
    elif (
        isinstance(value, (tuple, list)) and 0 < len(value) <= 6 and all(type(each) is int for each in value)
    ):
        word = "x".join(map(str, value))
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        word = value.__name__
    elif "dtype" in kind.__name__.lower() and kind.__module__.partition(".")[0] in ("torch", "numpy", "jax"):
        word = str(value).rpartition(".")[2]
    return word


def shape_of(value: Any) -> str | None:
    """Return the shape of an array as ``256x256``; None for anything else."""
    shape = getattr(value, "shape", None) if not isinstance(value, type) else None
    if not hasattr(value, "dtype"):
        return None
    try:
        lengths = tuple(int(each) for each in shape)  # type: ignore[union-attr]
    except (TypeError, ValueError):
        return None
    return None if 0 in lengths else "x".join(map(str, lengths)) or "scalar"


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of an object that holds options, such as a dataclass; else nothing."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return vars(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value))
    return {}


def _variables(names: dict[str, Any], *, floats: bool) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for name, value in list(names.items())[:_MOST_LOCALS]:
        if name.startswith("_"):
            continue
        fields = _fields(value) or {name: value}
        for inner, each in fields.items():
            told = plain(each, floats=floats)
            if told is not None:
                found.setdefault(inner, told)
    return found


def _shapes(names: dict[str, Any]) -> dict[str, int | str]:
    return {name: shape for name, value in names.items() if (shape := shape_of(value)) is not None}


def called_by(fn: Any) -> str:
    """Return the name of a function, or of the function that it calls; empty if that is not clear.

    Examples: ``softmax`` for ``lambda: softmax(x)``, ``norm.backward`` for ``lambda: norm(x).backward(x)``.
    """
    if isinstance(fn, functools.partial):
        return called_by(fn.func)
    if isinstance(fn, str):
        words = re.findall(r"([\w.]+)\s*\(", fn)
        return str(words[0]).rpartition(".")[2] if words else ""
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__name__", "")
    if code is None or name != "<lambda>":
        return name or type(fn).__name__
    reached = {**getattr(fn, "__globals__", {}), **_cells(fn)}
    functions = [
        str(getattr(value, "__name__", each))
        for each in (*code.co_freevars, *code.co_names)
        if callable(value := reached.get(each)) and not isinstance(value, type)
    ]
    methods = [each for each in code.co_names if each not in reached]
    return ".".join([*functions[:1], *methods[-1:]])


def _cells(fn: Any) -> dict[str, Any]:
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None)
    found = {}
    for name, cell in zip(code.co_freevars if code else (), cells or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _frames() -> Iterator[types.FrameType]:
    frame = sys._getframe(2)
    while frame is not None:
        if os.path.dirname(frame.f_code.co_filename) != _HERE:
            yield frame
        frame = frame.f_back  # type: ignore[assignment]


def in_autotuner(ignored: tuple[str, ...]) -> bool:
    """Return whether an autotuner is timing, and not the script."""
    return any(each in frame.f_code.co_filename for frame in _frames() for each in (*_AUTOTUNERS, *ignored))


def describe(fn: Any, is_authors: Callable[[str], bool], labels: dict[str, Any]) -> dict[str, Any]:
    """Return the functions around a call, innermost first, and the variables that may distinguish it.

    Each variable is in the first group that has it: labels passed to the timer, arguments, the called
    function, words and whole numbers of local variables, shapes of arrays, and counters.
    """
    functions: list[str] = []
    labelled = _variables(labels, floats=True)
    arguments: dict[str, int | str] = {}
    shapes: dict[str, int | str] = {}
    others = _variables(_cells(fn), floats=False)
    shapes.update(_shapes(_cells(fn)))
    seen = 0
    for frame in _frames():
        code = frame.f_code
        if seen == _MOST_FRAMES or not is_authors(code.co_filename):
            continue
        seen += 1
        functions.append(code.co_name)
        names = dict(frame.f_locals)
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        given = {name: names.pop(name) for name in code.co_varnames[:count] if name in names}
        for bundle in [name for name, value in given.items() if isinstance(value, dict)]:
            given.update({key: each for key, each in given.pop(bundle).items() if isinstance(key, str)})
        for target, found in (
            (arguments, _variables(given, floats=True)),
            (shapes, {**_shapes(given), **_shapes(names)}),
            (others, _variables(names, floats=False)),
        ):
            for name, value in found.items():
                target.setdefault(name, value)
    counters = {name: others.pop(name) for name in _COUNTERS if name in others}
    calls = called_by(fn)
    timed = {"calls": calls} if calls else {}
    return {
        "functions": functions,
        "calls": calls,
        "variables": [labelled, arguments, timed, others, shapes, counters],
    }
