"""A kernel's instructions by kind, in total and in its hottest loop.

They are counted in nvdisasm's text. Loops are found by backward branches. The hottest loop is unknown before
a run. It is assumed to be the one with the most arithmetic of its own, weighted by a fixed number of
iterations per nesting depth.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from harness.device.backends.cubin_lines import LineEntry

_LINE = re.compile(
    r"^\s*(?:\{\s*)?/\*(?P<at>[0-9a-f]+)\*/\s+"
    r"(?P<text>(?:@!?U?P\w+\s+)?(?P<name>[A-Z][\w.]*)\s*(?P<operands>[^;]*?))\s*;",
    re.MULTILINE,
)
_TARGET = re.compile(r"0x([0-9a-f]+)\s*\Z")
_BRANCHES = ("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "BREAK", "BSYNC")
_JUMPS = {"BRA", "JMP"}
_TURNS = 8
"""Assumed iterations per nesting depth: the lower end for loops over k of a tile."""

ARITHMETIC = frozenset(
    {
        *("FADD", "FMUL", "FFMA", "FFMA2", "FADD2", "FMUL2", "DADD", "DMUL", "DFMA"),
        *("HADD2", "HMUL2", "HFMA2", "IDP", "HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA"),
        *("HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA"),
    }
)
"""Arithmetic on a kernel's data, on plain cores and tensor cores."""
_PAIRS = {"FADD2", "FMUL2", "FFMA2"}
_MEMORY = {
    **dict.fromkeys(("LDG", "LD"), "LDG"),
    **dict.fromkeys(("STG", "ST"), "STG"),
    **{name: name for name in ("LDS", "STS", "LDL", "STL", "LDSM", "STSM", "LDGSTS", "LDC", "RED")},
}
"""Names of accesses by width. A generic access counts as global."""
LOADS_AND_STORES = {*_MEMORY.values()} - {"LDC"}
"""Accesses that use a multiprocessor's load/store units. Constants have a path of their own."""
_WIDTH = re.compile(r"\.U?S?(8|16|32|64|128|256)\b")
_MATRICES = re.compile(r"\.([124])\b")
_SHAPE = re.compile(r"\.(\d+x?\d*x?\d*)\b")
LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Instruction:
    at: int
    """Bytes from the kernel's start."""
    name: str
    """The operation with its modifiers, such as LDG.E.128."""
    target: int | None = None
    """Target of a jump, where it says."""
    text: str = ""
    """The whole instruction, with its predicate and operands."""

    def moved(self, by: int) -> Instruction:
        """Return the same instruction where the kernel begins elsewhere."""
        if self.target is None:
            return replace(self, at=self.at + by)
        target = self.target + by
        return replace(self, at=self.at + by, target=target, text=_TARGET.sub(f"{target:#x}", self.text))

    @property
    def operation(self) -> str:
        return self.name.partition(".")[0]

    @property
    def kind(self) -> str:
        """Return the kind: ``FFMA``; a memory access with its width, ``LDG.128``; a product with its shape,
        ``HMMA.16816``.
        """
        operation = self.operation
        if operation in _MEMORY:
            return f"{_MEMORY[operation]}.{self.bits}"
        if operation.endswith("MMA") and (shape := _SHAPE.search(self.name)):
            return f"{operation}.{shape[1]}"
        return "branch" if operation in _BRANCHES else operation

    @property
    def bits(self) -> int:
        """Return the bits that a thread reads or writes at once; for a memory instruction."""
        if self.operation in ("LDSM", "STSM"):
            many = _MATRICES.search(self.name)
            return 32 * int(many[1]) if many else 32
        width = _WIDTH.search(self.name)
        return int(width[1]) if width else 32


class InstructionText(NamedTuple):
    """An instruction in nvdisasm's words."""

    text: str
    """``@P0 LDG.E.128 R4, desc[UR4][R2.64]``"""
    place: str
    """Line of the source, as ``file.cu:12``; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The instructions of one loop, without those of inner loops."""

    begins: int
    ends: int
    """Bytes from the kernel's start to its first instruction, and to the branch back."""
    depth: int
    """Nesting depth; 1 for an outermost loop."""
    count: int
    kinds: Mapping[str, int]
    written: tuple[InstructionText, ...] = ()
    """The instructions in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    count: int
    kinds: Mapping[str, int]
    """Number of instructions of each kind, the most frequent first."""
    loops: int = 0
    hottest: Loop | None = None
    """The loop with the most arithmetic; None without loops."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Source line of most instructions of each kind, as ``file.cu:12``, and of the LOOP; empty if unknown."""


def arithmetic(kinds: Mapping[str, int]) -> int:
    """Count the instructions that do a kernel's work. A double instruction of Blackwell counts as two."""
    return sum(
        (2 if kind in _PAIRS else 1) * count
        for kind, count in kinds.items()
        if kind.partition(".")[0] in ARITHMETIC
    )


def by_width(kinds: Mapping[str, int], operation: str) -> dict[int, int]:
    """Return the number of accesses of each width in bits, widest first; for LDG, LDS, STG and the like."""
    found = {
        int(kind.partition(".")[2]): count
        for kind, count in kinds.items()
        if kind.partition(".")[0] == operation
    }
    return dict(sorted(found.items(), reverse=True))


def instructions_in(text: str) -> list[Instruction]:
    """Return the instructions in nvdisasm's text, in order."""
    found = []
    for line in _LINE.finditer(text):
        name, operands = line["name"], line["operands"]
        target = _TARGET.search(operands) if name.partition(".")[0] in _JUMPS else None
        # The idle half of a multiplier sets a register to a constant.
        name = "MOV" if name.startswith("HFMA2") and "-RZ, RZ" in operands else name
        text = " ".join(line["text"].split())
        found.append(Instruction(int(line["at"], 16), name, int(target[1], 16) if target else None, text))
    return found


def summarised(instructions: Sequence[Instruction], lines: Sequence[LineEntry] = ()) -> Instructions:
    """Sum up the instructions of one kernel, with their source lines."""
    at_line = _placing(lines)
    loops = _loops(instructions, at_line)
    hottest = max(loops, key=_heat) if loops else None
    return Instructions(
        count=len(instructions),
        kinds=_kinds(instructions),
        loops=len(loops),
        hottest=hottest,
        places=_places(instructions, hottest, at_line),
    )


def _placing(lines: Sequence[LineEntry]) -> Callable[[Instruction], str]:
    """Return the function that tells an instruction's source line, as ``file.cu:12``; empty if unknown."""
    begins = [line.at for line in lines]

    def at_line(instruction: Instruction) -> str:
        place = bisect_right(begins, instruction.at)
        return f"{line.file}:{line.line}" if place and (line := lines[place - 1]).file else ""

    return at_line


def _places(
    instructions: Sequence[Instruction], hottest: Loop | None, at_line: Callable[[Instruction], str]
) -> dict[str, str]:
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in instructions:
        if place := at_line(each):
            # In the hottest loop an instruction matters more than anywhere else.
            hot = hottest is not None and hottest.begins <= each.at <= hottest.ends
            counted[each.kind][place] += _TURNS if hot else 1
            if hot:
                counted[LOOP][place] += 1
    return {kind: _most(found) for kind, found in counted.items()}


def _most(found: Counter[str]) -> str:
    """Return the most frequent place. Project files have priority over toolkit headers, which have absolute
    paths.
    """
    return max(found, key=lambda place: (not place.startswith("/"), found[place]))


def _kinds(instructions: Iterable[Instruction]) -> dict[str, int]:
    return dict(Counter(each.kind for each in instructions).most_common())


def _heat(loop: Loop) -> tuple[int, int]:
    turns = _TURNS**loop.depth
    return arithmetic(loop.kinds) * turns, loop.count * turns


def _loops(instructions: Sequence[Instruction], at_line: Callable[[Instruction], str]) -> list[Loop]:
    """Return the loops: from an instruction to the last branch back to it. A branch to itself is none."""
    ends: dict[int, int] = {}
    for each in instructions:
        if each.target is not None and each.target < each.at:
            ends[each.target] = max(each.at, ends.get(each.target, 0))
    spans = list(ends.items())
    found = []
    for begin, end in spans:
        within = [(first, last) for first, last in spans if begin <= first and last <= end]
        inner = [span for span in within if span != (begin, end)]
        own = [
            each
            for each in instructions
            if begin <= each.at <= end and not any(first <= each.at <= last for first, last in inner)
        ]
        depth = sum(first <= begin and end <= last for first, last in spans)
        written = tuple(InstructionText(each.text, at_line(each)) for each in own)
        found.append(
            Loop(begins=begin, ends=end, depth=depth, count=len(own), kinds=_kinds(own), written=written)
        )
    return found
