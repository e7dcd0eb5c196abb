"""A sanitizer's findings about lines of kernels, in a common form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["race", "bounds", "uninitialised", "barrier", "other"]


@dataclass(frozen=True, slots=True)
class SanitizerFinding:
    """A tool's finding about one line of a kernel."""

    kind: Kind
    message: str
    """The tool's message: ``Invalid read of size 4 at global memory address 0x1000000000fa4``."""
    place: str
    """Place as ``file.cu:12``; empty if unknown."""
    thread: str
    """The first affected thread in the tool's words; empty if unknown."""
    count: int = 1


def together(found: Iterable[tuple[object, SanitizerFinding]]) -> list[SanitizerFinding]:
    """Return one finding for each key, in order: the first, with the total count."""
    first: dict[object, SanitizerFinding] = {}
    for key, finding in found:
        earlier = first.get(key)
        first[key] = replace(earlier, count=earlier.count + finding.count) if earlier else finding
    return list(first.values())
