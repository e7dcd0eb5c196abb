"""The parts of a guessed suite, before it is written as Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from harness.init.structures import Structure
from harness.suite.problem import IDENTIFIER

_Made = TypeVar("_Made")
TOO_DEEP = (RecursionError, MemoryError)
"""Python's exceptions for deeply nested text, such as a sum of a thousand terms."""

INDICES = re.compile(r"(?i)(.*_)?(ids|idx|index|indices|seqlens|labels|counts)")
"""Names of integer arrays with indices or lengths, which are never negative."""


@dataclass(frozen=True)
class ArrayGuess:
    """A guessed array of a problem."""

    name: str
    role: str
    """Input, Output or InOut."""
    shape: tuple[str, ...]
    dtype: str
    why: str
    init: bool = False
    """True if its initial value must be 0."""
    column_major: bool = False


@dataclass(frozen=True)
class Number:
    """A guessed scalar of a problem."""

    name: str
    value: str
    """The value in Python, or a lambda of the case."""
    dtype: str
    why: str


@dataclass(frozen=True)
class Axes:
    """Axes that change together."""

    names: tuple[str, ...]
    default: tuple[int, ...]
    quick: tuple[int, ...]
    why: str


def sizes_of(axes: Sequence[str], *, product: bool, rank: int, why: str = "") -> tuple[Axes, ...]:
    """Return sizes for the axes of a problem, in suite.py's names. Those of a matrix product change together.

    `rank` is that of its largest array, which gets about 2**24 elements.
    """
    if product:
        why = "sizes are guessed; square, and multiples of any tile"
        return (Axes(tuple(axes), (1024, 2048, 4096), (256,), why),)
    if len(axes) == 1 and rank < 2:
        return (Axes(tuple(axes), (2**22, 2**24), (2**16,), why or "sizes are guessed"),)
    side = 2 ** max(1, 24 // max(min(len(axes), 4), rank))
    return tuple(Axes((axis,), (side,), (min(side, 256),), why or "its size is guessed") for axis in axes)


def snake_case(name: str) -> str:
    """Return ``matMul`` as ``mat_mul``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True)
class KernelGuess:
    name: str
    file: str
    """Its path from the repository's top."""
    line: int
    source: str
    """The compiled file: the kernel's own, or one that includes it after its requirements."""
    notes: Mapping[str, str]
    """Comments on guesses by field name. The empty name has the comment on the whole kernel."""
    instantiate: str = ""
    entry: str = ""
    block: str = ""
    grid: str = ""
    shared: str = ""
    macros: Mapping[str, int] = field(default_factory=dict)
    include: tuple[str, ...] = ()
    arch: str = ""
    options: tuple[str, ...] = ()
    """Options for nvcc."""
    function: str = ""
    """A class such as TritonFunction for the function `entry` of a Python file; empty for C++."""


@dataclass(frozen=True)
class Reference:
    expression: str
    """The returned expression, possibly after other lines."""
    tolerance: str
    """The returned tolerance, possibly after other lines. `{arrays}` stands for the reference's arguments."""
    why: str
    flop: str = ""


@dataclass(frozen=True)
class SuiteGuess:
    name: str
    arrays: tuple[ArrayGuess, ...]
    numbers: tuple[Number, ...]
    axes: tuple[Axes, ...]
    dtype: str
    args: tuple[str, ...]
    """Names in the kernels' own order; empty if it is the problem's."""
    reference: Reference | None
    kernels: tuple[KernelGuess, ...]
    structures: tuple[tuple[Structure, str], ...] = ()
    """Structure parameters, each with its values in Python."""
    proposal: Reference | None = None
    """Reference suggested by a kernel's name but not proved by its body."""
    reference_function: tuple[str, str] | None = None
    """File and name of a repository function that seems to compute the same; no body proves it."""
    about: str = ""
    """The author's description; empty without one."""

    @property
    def held_to(self) -> str:
        """Return the kind of reference: "written" for a proved one, a function's name, or "base"."""
        if self.reference:
            return "written"
        return self.reference_function[1] if self.reference_function else "base"


@dataclass(frozen=True)
class LeftOut:
    kernel: str
    where: str
    """file:line"""
    why: str


class NotReadError(Exception):
    """The reason why a kernel is left out."""


def check_name(kernel: str) -> None:
    """Raise NotReadError for a kernel name that cannot be part of a case's name."""
    if not IDENTIFIER.match(kernel):
        raise NotReadError("its name has other signs than letters (a-z), digits and _, as no case's has")


def attempt(kernel: str, where: str, make: Callable[[], _Made]) -> _Made | LeftOut:
    """Return the result of `make`, or why the kernel is left out. A strange kernel does not affect others."""
    try:
        return make()
    except NotReadError as error:
        return LeftOut(kernel, where, str(error))
    except TOO_DEEP:
        return LeftOut(kernel, where, "its source is nested too deeply to be read")
    except Exception as error:  # noqa: BLE001 - whatever a reader raises, the other kernels are proposed
        failed = f"reading it failed ({type(error).__name__}: {error})"
        return LeftOut(kernel, where, f"{failed}: write its suite yourself, and report this")
