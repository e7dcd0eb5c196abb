"""C++ structures of plain numbers that kernels take by value, and their values in suite.py."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.init.cpp import Token, text_of
from harness.init.scalars import Values

_MOST_SIGNS = 90
"""Most characters of a line in suite.py with members or values."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MEMBER = re.compile(
    r"(?P<type>(?:(?:const|unsigned|signed|long|short)\s+)*[\w:]+)\s+(?P<declared>[^*&()<>{}]+)"
)
_DECLARED = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?:\[\s*(?P<count>\d+)\s*\])?\s*(?:=.*)?", re.DOTALL)


@dataclass(frozen=True)
class Member:
    name: str
    dtype: str
    count: int = 1
    """Number of elements; 1 for a plain number."""


@dataclass(frozen=True)
class Structure:
    """A parameter whose type is a structure of plain numbers."""

    parameter: str
    type: str
    """Its name in C++."""
    members: tuple[Member, ...]

    @property
    def constant(self) -> str:
        """Name of its NumPy dtype in suite.py."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.type.rpartition("::")[2]).upper()

    @property
    def fields(self) -> str:
        """Return the members for NumPy's dtype."""
        counts = (f", {each.count}" if each.count > 1 else "" for each in self.members)
        told = [f'("{m.name}", "{m.dtype}"{count})' for m, count in zip(self.members, counts, strict=True)]
        return _wrapped("[", told, "]", indent=0)

    def lengths(self, body: Sequence[Token]) -> list[str]:
        """Return the integer members that a kernel's body compares with something, `i < p.n`."""
        compared = set(re.findall(rf"(?:<|>=){re.escape(self.parameter)}\.(\w+)", text_of(body)))
        return [each.name for each in self.members if each.name in compared and "int" in each.dtype]

    def values(self, numbers: Values, axis_of: Callable[[str], str]) -> str:
        """Return the values of the members as a Python tuple. A member that is an axis gets its size."""
        told = [self._value(each, numbers, axis_of(each.name)) for each in self.members]
        return _wrapped("(", told, ",)" if len(told) == 1 else ")", indent=8)

    @staticmethod
    def _value(member: Member, numbers: Values, axis: str) -> str:
        if axis and member.count == 1:
            return f"case.{axis}"
        number = numbers.integer if "int" in member.dtype else numbers.floating
        values = [number(member.name)[0] for _ in range(member.count)]
        return values[0] if member.count == 1 else f"[{', '.join(values)}]"


def _wrapped(opens: str, parts: Sequence[str], closes: str, *, indent: int) -> str:
    """Return parts in brackets, on several lines if one line is too short."""
    line = f"{opens}{', '.join(parts)}{closes}"
    if len(line) <= _MOST_SIGNS:
        return line
    margin = " " * (indent + 4)
    whole = ", ".join(part.replace(" ", "\0") for part in parts)  # parts are never broken
    inside = textwrap.fill(
        whole, _MOST_SIGNS, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    ).replace("\0", " ")
    return f"{opens}\n{inside},\n{margin[4:]}{closes}"


def structure_in(text: str, name: str, dtypes: Callable[[str], str | None]) -> tuple[Member, ...] | None:
    """Return the members of a structure in a file; None without it, or if it has more than plain numbers.

    That is pointers, functions, other structures, or its own alignment. `dtypes` returns NumPy's name of a
    C++ type, None for other types.
    """
    text = _COMMENT.sub(" ", text)
    found = re.search(rf"\bstruct\s+{re.escape(name)}\s*\{{([^{{}}]*)\}}\s*;", text) or re.search(
        rf"\btypedef\s+struct\s*\w*\s*\{{([^{{}}]*)\}}\s*{re.escape(name)}\s*;", text
    )
    if found is None:
        return None
    members: list[Member] = []
    for line in filter(str.strip, found[1].split(";")):
        said = _MEMBER.fullmatch(line.strip())
        dtype = said and dtypes(" ".join(said["type"].removeprefix("const ").split()))
        if not said or not dtype:
            return None
        for part in said["declared"].split(","):
            declared = _DECLARED.fullmatch(part)
            if declared is None:
                return None
            members.append(Member(declared["name"], dtype, int(declared["count"] or 1)))
    return tuple(members) or None
