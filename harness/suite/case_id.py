"""Names of cases: ``matmul.naive[m=500,n=300,k=700]``, in short ``matmul.naive@500x300x700``.

All output of cases and sizes is formatted here, and all input is parsed here. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from harness.errors import UsageError

MAX_AXIS = 2**31 - 1
"""Axes reach kernels as 32-bit signed integers."""
GRAPH = "graph"
"""Name of the mark, beside the axes, of a case whose kernel is launched by a CUDA graph: ``n=64,graph=1``."""

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_BY_X = re.compile(r"[0-9]+(?:x[0-9]+)+\Z")
_FULL = re.compile(r"(?P<name>.+)\[(?P<size>[^\[\]]*=[^\[\]]*|\*|)\]\Z")
"""Brackets hold a size if they contain axes; otherwise they belong to a glob."""
_PLANTED = re.compile(r"(?P<case>.+) (?P<planted>\+\S+ %)\Z")
_ASV = re.compile(r"(?P<group>(?:\w+\.)*)track_(?P<track>\w+)\((?P<kernel>[^,()]+), *(?P<size>[^()]+)\)\Z")
_TEST = re.compile(r"(?:.*::)?test\w*\[(?P<case>\w+\..+)\]\Z")
_WILD = re.compile(r"[*?\[]")


def size_label(sizes: Mapping[str, int]) -> str:
    """Return the label of a point: ``4096`` if all axes are equal, else ``500x300x700``."""
    return Size.of(sizes).label


def with_graph(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes with the mark of a launch by graph."""
    return {**sizes, GRAPH: 1}


def without_graph(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes without the mark of a launch by graph."""
    return {axis: length for axis, length in sizes.items() if (axis, length) != (GRAPH, 1)}


def short_id(suite: str, kernel: str, label: str) -> str:
    """Return the short id, such as ``matmul.naive@4096``. It also works for a size that only has a label, as
    in asv.
    """
    return f"{suite}.{kernel}{'@' if label else ''}{label}"


@dataclass(frozen=True, slots=True)
class Size:
    """A point of a problem's axes: one length for all axes, one for each in order, or lengths by name."""

    lengths: tuple[int, ...]
    axes: tuple[str, ...] = ()
    graph: bool = False
    """True if the case is marked by `GRAPH`."""

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Size:
        plain = without_graph(sizes)
        return cls(tuple(plain.values()), tuple(plain), len(plain) < len(sizes))

    @classmethod
    def parse(cls, text: str) -> Size:
        """Parse ``4096``, ``500x300x700``, ``500,300,700`` or ``m=500,n=300,k=700``. Raises UsageError.

        Each may end with ``,graph=1``.
        """
        before, _, last = text.rpartition(",")
        if last.strip() == f"{GRAPH}=1":
            return replace(cls.parse(before), graph=True) if before else cls((), graph=True)
        parts = [part.strip() for part in text.split("x" if _BY_X.match(text) else ",")]
        if "=" not in text:
            return cls(tuple(_length(text, part) for part in parts))
        named = {}
        for part in parts:
            axis, equals, length = part.partition("=")
            if not equals or not axis or axis in named:
                raise UsageError(f"Size {text}: {part!r} is not one axis and its size, such as m=500.")
            named[axis] = _length(text, length)
        return cls.of(named)

    def __str__(self) -> str:
        if self.axes:
            named = zip(self.axes, self.lengths, strict=True)
            return self._marked(",".join(f"{axis}={length}" for axis, length in named))
        return self._marked("x".join(map(str, self.lengths)))

    @property
    def label(self) -> str:
        """Return the label: ``4096`` if all axes are equal, else ``500x300x700``; marked ``4096,graph=1``."""
        alike = len(set(self.lengths)) == 1
        return self._marked(str(self.lengths[0]) if alike else "x".join(map(str, self.lengths)))

    @property
    def mark(self) -> str:
        """Return ``graph=1`` for a marked case, else nothing."""
        return f"{GRAPH}=1" if self.graph else ""

    def _marked(self, text: str) -> str:
        return ",".join(filter(None, (text, self.mark)))

    def fits(self, axes: Collection[str]) -> bool:
        """Tell whether it gives a length for exactly the axes of a problem."""
        own = self._without_mark(axes)
        return set(self.axes) == set(own) if self.axes else len(self.lengths) in (1, len(own))

    def _without_mark(self, axes: Collection[str]) -> list[str]:
        """Return the axes without one that has the name of the mark."""
        return [axis for axis in axes if not (self.graph and axis == GRAPH)]

    def at(self, axes: Collection[str]) -> dict[str, int]:
        """Return a length for each of a problem's axes, in the problem's order. Raises UsageError."""
        if not self.fits(axes):
            has = f"is of {', '.join(self.axes)}" if self.axes else f"has {len(self.lengths)} numbers"
            expected = f"or {len(axes)} for the axes {', '.join(axes)}"
            raise UsageError(f"Size {self} {has}; expected one, {expected}.")
        own = self._without_mark(axes)
        if self.axes:
            named = dict(zip(self.axes, self.lengths, strict=True))
            point = {axis: named[axis] for axis in own}
        else:
            lengths = self.lengths * len(own) if len(self.lengths) == 1 else self.lengths
            point = dict(zip(own, lengths, strict=True))
        return with_graph(point) if self.graph else point


def _length(text: str, part: str) -> int:
    if not _INTEGER.match(part):
        raise UsageError(
            f"Size {text}: {part!r} is not an integer. Expected sizes from 1 to {MAX_AXIS}, such as 1024, "
            "500x300x700 or m=500,n=300,k=700."
        )
    # Python refuses to parse an integer of more than 4300 digits.
    if len(part) > 4000 or not 1 <= int(part) <= MAX_AXIS:
        raise UsageError(f"Size {text}: {part} is out of range. Expected sizes from 1 to {MAX_AXIS}.")
    return int(part)


@dataclass(frozen=True, slots=True)
class CaseId:
    """A kernel of a suite at a size, the same on every machine and at every commit."""

    suite: str
    kernel: str
    size: Size | None = None
    """The point of the axes. None for any size, and for a comparison's twins such as twin.same."""
    planted: str = ""
    """The planted slowdown, such as ``+2 %``."""

    @classmethod
    def of(cls, suite: str, kernel: str, sizes: Mapping[str, int]) -> CaseId:
        return cls(suite, kernel, Size.of(sizes))

    @classmethod
    def parse(cls, text: str) -> CaseId:
        """Return the case of a full or short id, or of asv's name. Raises UsageError."""
        name, size, planted = _split(text)
        suite, dot, kernel = name.partition(".")
        if not dot or not suite or not kernel or _WILD.search(name):
            raise UsageError(
                f"{text!r} is the id of no case; expected one such as matmul.naive@4096 or "
                "matmul.naive[m=500,n=300,k=700]."
            )
        point = Size(()) if size == "" else Size.parse(size) if size else None
        return cls(suite, kernel, point, planted)

    def __str__(self) -> str:
        """Return the full id if the names of the axes are known, else the short one."""
        if self.size is None or (self.size.lengths and not self.size.axes):
            return self._with(short_id(self.suite, self.kernel, str(self.size or "")))
        return self._with(f"{self.suite}.{self.kernel}[{self.size}]")

    @property
    def short(self) -> str:
        return self._with(short_id(self.suite, self.kernel, self.size.label if self.size else ""))

    def _with(self, name: str) -> str:
        return f"{name} {self.planted}" if self.planted else name


def in_short(text: str) -> str:
    """Return the short id of a case in any spelling; another text stays as it is."""
    try:
        return CaseId.parse(text).short
    except UsageError:
        return text


def _split(text: str) -> tuple[str, str | None, str]:
    """Return name, size and planted slowdown of an id or a glob of ids, as written."""
    if test := _TEST.match(text):
        text = test["case"]
    if asv := parse_asv_name(text):
        return f"{asv.group.lower() or '*'}.{asv.kernel}", asv.size, ""
    planted = _PLANTED.match(text)
    case, slowdown = (planted["case"], planted["planted"]) if planted else (text, "")
    if full := _FULL.match(case):
        return full["name"], full["size"], slowdown
    name, at, size = case.rpartition("@")
    return (name, size, slowdown) if at else (case, None, slowdown)


class AsvName(NamedTuple):
    group: str
    """Class that contains the benchmark; empty if the name has no class."""
    track: str
    kernel: str
    size: str


def parse_asv_name(name: str) -> AsvName | None:
    """Return the parts of ``suites.Matmul.track_gflops('naive', 64)``; None if it is no track of a kernel."""
    found = _ASV.match(name)
    if found is None:
        return None
    kernel, size = (found[part].strip().strip("'\"") for part in ("kernel", "size"))
    return AsvName(found["group"].rstrip(".").rpartition(".")[2], found["track"], kernel, size)


@dataclass(frozen=True, slots=True)
class Selector:
    """A user's selection of cases: a suite, a kernel, a displayed id, or a glob of these."""

    name: str
    size: str | None = None
    """The size as written; None for every size."""

    @classmethod
    def parse(cls, text: str) -> Selector:
        name, size, _ = _split(text)
        return cls(name, size or None)

    @property
    def has_glob_size(self) -> bool:
        return bool(self.size and _WILD.search(self.size))

    def names(self, suite: str, kernel: str) -> bool:
        """Tell whether it selects a kernel, at any size."""
        return any(fnmatchcase(name, self.name) for name in (f"{suite}.{kernel}", kernel, suite))

    def points(
        self, axes: Collection[str], points: Sequence[Mapping[str, int]]
    ) -> Iterable[Mapping[str, int]]:
        """Return the selected points of a problem: the given one, else those of `points` that match."""
        if self.size is None:
            return points
        if self.has_glob_size:
            return [point for point in points if self._is_like(Size.of(point))]
        size = Size.parse(self.size)
        return [size.at(axes)] if size.fits(axes) else []

    def has_label(self, label: str) -> bool:
        """Tell whether it selects a size that only has a label."""
        if self.size is None or fnmatchcase(label, self.size):
            return True
        try:
            return Size.parse(self.size).label == label
        except UsageError:  # a glob, or a parameter of another project
            return False

    def _is_like(self, size: Size) -> bool:
        spelt = (size.label, str(size), *(sep.join(map(str, size.lengths)) for sep in "x,"))
        return any(fnmatchcase(each, self.size or "*") for each in spelt)


def is_selected(cases: Iterable[str], suite: str, kernel: str, sizes: Mapping[str, int]) -> bool:
    """Tell whether one of these selections has a case of no suite file; without a selection, every case."""
    selectors = [Selector.parse(case) for case in cases]
    label = size_label(sizes)
    return not selectors or any(each.names(suite, kernel) and each.has_label(label) for each in selectors)
