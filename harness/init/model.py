"""What is guessed of a suite, before it is written as Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Array:
    name: str
    role: str
    """Input, Output or InOut."""
    shape: tuple[str, ...]
    dtype: str
    why: str
    init: bool = False
    """Whether it must begin at 0."""
    column_major: bool = False


@dataclass(frozen=True)
class Number:
    name: str
    value: str
    """In Python."""
    dtype: str
    why: str


@dataclass(frozen=True)
class Axes:
    """Axes that move together."""

    names: tuple[str, ...]
    default: tuple[int, ...]
    quick: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class KernelGuess:
    name: str
    file: str
    """Below the repository's top."""
    line: int
    source: str
    """What is compiled: the file, or one that includes it after what it needs."""
    instantiate: str
    entry: str
    block: str
    grid: str
    shared: str
    macros: Mapping[str, int]
    include: tuple[str, ...]
    notes: Mapping[str, str]
    """What was guessed, by the field that it is of; by the empty name, of the whole."""
    arch: str = ""
    options: tuple[str, ...] = ()
    """Of nvcc."""
    function: str = ""
    """Of Python's world: TritonFunction and its like; `entry` is then the function's name."""


@dataclass(frozen=True)
class Reference:
    expression: str
    """What it returns, after lines of its own if need be."""
    tolerance: str
    """What it returns, likewise; `{arrays}` stands for the reference's arguments."""
    why: str
    flop: str = ""


@dataclass(frozen=True)
class SuiteGuess:
    name: str
    arrays: tuple[Array, ...]
    numbers: tuple[Number, ...]
    axes: tuple[Axes, ...]
    dtype: str
    args: tuple[str, ...]
    """Names in the kernels' own order; empty where it is the problem's."""
    reference: Reference | None
    kernels: tuple[KernelGuess, ...]
    about: str = ""
    """What its author says of it; empty where nothing does."""


@dataclass(frozen=True)
class LeftOut:
    kernel: str
    where: str
    """file:line"""
    why: str
