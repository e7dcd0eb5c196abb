"""Aligns the instructions of the hottest loop of base and head.

Two instructions are alike where their operations and the kinds of their operands are: registers, addresses
and constants differ between any two builds. The alignment keeps the longest common subsequence. An
instruction that is left over on both sides only moved. What then remains was added or removed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Literal

from harness.device.static.sass import Instructions, InstructionText
from harness.records.types import CodeLine, LoopDifference

_SHAPES = (
    (re.compile(r"\.reuse\b"), ""),
    (re.compile(r"\bU?[RPB]\d+\b"), "R"),
    (re.compile(r"c\[[^\]]*\]\[[^\]]*\]"), "c[]"),
    (re.compile(r"(?<=BRA )0x[0-9a-f]+"), ""),
    (re.compile(r"\bIMAD\.MOV(?:\.U32)? (\w+), RZ, RZ, "), r"MOV \1, "),
    (re.compile(r"\bHFMA2(?:\.MMA)? (\w+), -RZ, RZ, 0, 0"), r"MOV \1, RZ"),
    (re.compile(r"\bVIADD (\w+), (\w+), (.*)"), r"IADD3 \1, \2, \3, RZ"),
)
"""Patterns of choices that a compiler makes anew for the same code, with their replacements: registers, jump
targets, and the name of a move or an addition by the pipe that is free.
"""
_CONSTANTS = (
    (re.compile(r"\[[^\]]*\]"), "[]"),
    (re.compile(r"-?\b(?:0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]\d+)?)\b"), "#"),
)
_OPERATION = re.compile(r"(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
_GAP = 15
"""Alike instructions between two others up to which these are told together."""
_LINES = 3
"""Distance of two source lines that are told as one span, at most."""
MOST_LINES = 48
_TOLD: tuple[Literal["removed", "added", "readdressed"], ...] = ("removed", "added", "readdressed")
_Change = Literal["added", "removed", "moved", "readdressed", "alike"]


def loop_difference(base: Instructions, head: Instructions) -> LoopDifference | None:
    """Return how the hottest loops differ; None where they do not, or where a side has no loop."""
    if base.hottest is None or head.hottest is None:
        return None
    sides = base.hottest.written, head.hottest.written
    lines = list(_aligned(*sides))
    changes = Counter(change for change, _ in lines)
    if not changes.keys() - {"alike", "moved"}:
        return None
    return LoopDifference(
        base_place=_extent(sides[0]),
        head_place=_extent(sides[1]),
        base_count=len(sides[0]),
        head_count=len(sides[1]),
        added=changes["added"],
        removed=changes["removed"],
        moved=changes["moved"],
        readdressed=changes["readdressed"],
        lines=tuple(islice(_folded(lines), MOST_LINES)),
    )


def _key(text: str) -> str:
    """``@R LDG.E R, []``: what two alike instructions have in common."""
    return _replaced(_with_constants(text), _CONSTANTS)


def _with_constants(text: str) -> str:
    """``@R LDG.E R, [R.64+0x10]``: what two instructions have in common that also have the same constants."""
    return _replaced(text, _SHAPES)


def _replaced(text: str, patterns: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, shape in patterns:
        text = pattern.sub(shape, text)
    return text


def _aligned(
    base: Sequence[InstructionText], head: Sequence[InstructionText]
) -> Iterator[tuple[_Change, InstructionText]]:
    """Yield every instruction, the removed before the added; of alike and moved ones head's."""
    before, after = ([_key(each.text) for each in side] for side in (base, head))
    matched = [*_longest_common(before, after), (len(before), len(after))]
    common = Counter(before[i] for i, _ in matched[:-1])
    moved = (Counter(before) - common) & (Counter(after) - common)
    of_base, of_head = moved.copy(), moved.copy()
    i = j = 0
    for stop_i, stop_j in matched:
        for each, key in zip(base[i:stop_i], before[i:stop_i], strict=True):
            if of_base[key]:
                of_base[key] -= 1
            else:
                yield "removed", each
        for each, key in zip(head[j:stop_j], after[j:stop_j], strict=True):
            if of_head[key]:
                of_head[key] -= 1
                yield "moved", each
            else:
                yield "added", each
        if stop_j < len(head):
            same = _with_constants(base[stop_i].text) == _with_constants(head[stop_j].text)
            yield "alike" if same else "readdressed", head[stop_j]
        i, j = stop_i + 1, stop_j + 1


def _longest_common(base: Sequence[str], head: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence (Hyyrö 2004: a row of the table is a number)."""
    whole = (1 << len(base)) - 1
    places: defaultdict[str, int] = defaultdict(int)
    for at, key in enumerate(base):
        places[key] |= 1 << at
    rows = [whole]
    for key in head:
        row = rows[-1]
        hits = row & places[key]
        rows.append((row + hits | row - hits) & whole)

    def length(i: int, j: int) -> int:
        return i - (rows[j] & (1 << i) - 1).bit_count()

    found = []
    i, j = len(base), len(head)
    while i and j:
        if base[i - 1] == head[j - 1]:
            i, j = i - 1, j - 1
            found.append((i, j))
        elif length(i - 1, j) >= length(i, j - 1):
            i -= 1
        else:
            j -= 1
    return found[::-1]


def _folded(lines: Sequence[tuple[_Change, InstructionText]]) -> Iterator[CodeLine]:
    """Yield what differs between longer runs of alike instructions, each operation once.

    Other addresses and constants are told where nothing else differs: in another loop they mean nothing.
    """
    told = {change for change, _ in lines} & {"added", "removed"} or {"readdressed"}
    differing: list[tuple[_Change, InstructionText]] = []
    alike = 0
    for differs, group in groupby(lines, lambda line: line[0] in told):
        run = [*group]
        if differs:
            differing += run
            continue
        alike += len(run)
        if len(run) > _GAP:
            yield from _by_operation(differing)
            yield CodeLine("alike", count=alike)
            differing, alike = [], 0
    yield from _by_operation(differing)
    if alike:
        yield CodeLine("alike", count=alike)


def _by_operation(lines: Iterable[tuple[_Change, InstructionText]]) -> Iterator[CodeLine]:
    found: dict[tuple[str, str], list[InstructionText]] = {}
    for which, each in lines:
        found.setdefault((which, _OPERATION.findall(each.text)[0]), []).append(each)
    for change in _TOLD:
        for (of, _), [first, *others] in found.items():
            if of == change:
                # The folder of a toolkit's header is the machine's own.
                yield CodeLine(change, first.text, first.place.rpartition("/")[2], 1 + len(others))


def _extent(written: Sequence[InstructionText]) -> str:
    """``file.cu:9-11, 14``: the lines of the file that most instructions come from."""
    places = [each.place.rpartition(":") for each in written if each.place]
    files = Counter(file for file, _, _ in places if not file.startswith("/"))
    if not files:
        return ""
    [(name, _)] = files.most_common(1)
    numbers = sorted({int(line) for file, _, line in places if file == name})
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number - spans[-1][1] <= _LINES:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return f"{name}:" + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
