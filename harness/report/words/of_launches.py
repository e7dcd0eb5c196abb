"""Differences between the kernels that a function launches at base and at head, in a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import takewhile
from typing import TypeAlias

from harness.records.types import Arm, KernelLaunch, Verdict
from harness.report.words.of_diagnosis import plain_name

_MOST = 3
"""Most differences, and most kernels of a difference, that are named."""
_MOST_CHARACTERS = 40
"""Characters of a kernel's name beyond which only the part that differs is shown."""

_LENGTH = re.compile(r"L[a-z]n?\d+E|[ST]\d*_|(\d+)")
"""Length of a name in a mangled symbol. Numbers of arguments and of earlier names are no lengths."""

Mark = Callable[[str], str]
Launches: TypeAlias = "Counter[KernelLaunch]"


def launches(case: Verdict, mark: Mark = str) -> str:
    """Return ``Head launches one kernel more: fill; grid 256 became 512 of add.``; empty if none differ.

    Names are texts of a process, which `mark` escapes. Equal launches do not show that the code is equal.
    """
    base, head = (_comparable(side or Arm(), case) for side in (case.base, case.head))
    if not base or not head:  # unknown
        return ""
    old, new = base - head, head - base
    changes = [*_relaunched(old, new, mark), *_renamed(old, new, mark)]
    found = [*_more("more", new, mark), *_more("fewer", old, mark), *dict.fromkeys(changes)]
    if not found:
        return ""
    told = "; ".join(found[:_MOST])
    left = len(found) - _MOST
    more = f"; and {left:,} more" if left > 0 else ""
    return f"{told[0].upper()}{told[1:]}{more}."


def _comparable(side: Arm, case: Verdict) -> Launches:
    """Return the launches of a side, without what only CUPTI told of one side."""
    every = [each for arm in (case.base, case.head) if arm for each in arm.launches]
    found: Launches = Counter()
    for each in side.launches:
        launch = replace(each, count=1)
        if any(other.registers is None for other in every):
            launch = replace(launch, registers=None, static_shared_bytes=None, cluster=None)
        found[launch] += each.count
    return found


def _relaunched(old: Launches, new: Launches, mark: Mark) -> list[str]:
    """Take the launches of kernels that both sides have, and return what differs in them."""
    found = []
    for launch in [*old]:
        for other in [each for each in new if each.symbol == launch.symbol]:
            if launch in old:
                _take(old, launch, new, other)
                found.append(f"{' and '.join(_fields(launch, other))} of {mark(plain_name(launch.symbol))}")
    return found


def _take(old: Launches, launch: KernelLaunch, new: Launches, other: KernelLaunch) -> None:
    """Remove as many of two launches as both sides have."""
    count = min(old[launch], new[other])
    for side, each in ((old, launch), (new, other)):
        side[each] -= count
        if not side[each]:
            del side[each]


def _fields(old: KernelLaunch, new: KernelLaunch) -> Iterable[str]:
    told = {
        "grid": [_extent(each.grid) for each in (old, new)],
        "block": [_extent(each.block) for each in (old, new)],
        "cluster": [_extent(each.cluster) if each.cluster else "none" for each in (old, new)],
        "registers": [str(each.registers) for each in (old, new)],
        "dynamic shared memory": [f"{each.dynamic_shared_bytes:,} bytes" for each in (old, new)],
        "static shared memory": [f"{each.static_shared_bytes or 0:,} bytes" for each in (old, new)],
    }
    for name, (before, after) in told.items():
        if before != after:
            yield f"{name} {before} became {after}"


def _extent(extent: Sequence[int]) -> str:
    """``256``, ``16x16``: without directions of 1 at the end."""
    x, y, z = extent
    return "x".join(map(str, (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)))


def _renamed(old: Launches, new: Launches, mark: Mark) -> list[str]:
    """Take pairs of kernels with similar names, or the only ones that are left, and return both names."""
    found = []
    for launch in [*old]:
        by_name = {each.symbol: each for each in new}
        near = [*by_name] if len(new) == len(old) == 1 else get_close_matches(launch.symbol, by_name, 1)
        if near:
            _take(old, launch, new, by_name[near[0]])
            found.append(_became(launch.symbol, near[0], mark))
    return found


def _became(old: str, new: str, mark: Mark) -> str:
    before, after = plain_name(old), plain_name(new)
    if before == after:  # instances of one template, whose arguments may have names
        parts = [*zip(*map(_identifiers, (old, new)), strict=False)]
        differing = [pair for pair in parts if pair[0] != pair[1]]
        if len(differing) != 1 or len(_identifiers(old)) != len(_identifiers(new)):
            return f"kernel {mark(before)} became another instance of its template"
        [(before, after)] = differing
    if max(len(before), len(after)) > _MOST_CHARACTERS:
        before, after = _differing(before, after)
    return f"kernel {mark(before)} became {mark(after)}"


def _identifiers(symbol: str) -> list[str]:
    """Return the names in a mangled symbol, of its namespaces and arguments too."""
    found, place = [], 0
    while match := _LENGTH.search(symbol, place):
        begin, length = match.end(), int(match[1] or 0)
        name = symbol[begin : begin + length]
        is_name = len(name) == length and re.fullmatch(r"[A-Za-z_]\w*", name)
        place = begin + length if is_name else begin
        found += [name] if is_name else []
    return found


def _differing(before: str, after: str) -> tuple[str, str]:
    """Return ``tile_128x64`` and ``tile_64x64`` of two long names: the parts that differ, after a word."""
    old, new = before.split("_"), after.split("_")
    same = len([*takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))])
    ends = zip(old[same:][::-1], new[same:][::-1], strict=False)
    at_end = len([*takewhile(lambda pair: pair[0] == pair[1], ends)])
    begin = max(0, same - 1)
    cut = ["_".join(each[begin : len(each) - at_end]) for each in (old, new)]
    return cut[0], cut[1]


def _more(word: str, kernels: Launches, mark: Mark) -> list[str]:
    """``head launches one kernel more: fill``"""
    if not kernels:
        return []
    names = [*dict.fromkeys(plain_name(each.symbol) for each in kernels)]
    left = len(names) - _MOST
    listed = ", ".join(map(mark, names[:_MOST])) + (f" and {left} more" if left > 0 else "")
    count = "one kernel" if kernels.total() == 1 else f"{kernels.total():,} kernels"
    return [f"head launches {count} {word}: {listed}"]
