"""Maps a cubin's instructions to source lines, by the data of nvcc -lineinfo.

The section .debug_line is DWARF's line number program (DWARF 3, section 6.2), of which CUDA writes versions 2
and 3. Its extended operations 0x90 and 0x91 are NVIDIA's, describe inlined calls, and are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from harness.device.backends.cubin import DAMAGE, content_of, relocations, sections, symbols

_VERSIONS = (2, 3)
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


@dataclass(frozen=True, slots=True)
class LineEntry:
    at: int
    """Bytes from the kernel's start to the first instruction of the line."""
    file: str
    line: int


def lines_of(binary: bytes, symbol: str) -> tuple[LineEntry, ...]:
    """Return a kernel's lines in the order of its instructions; empty if the file has none or is damaged."""
    with suppress(*DAMAGE):
        held = sections(binary)
        code = next((at for at, each in enumerate(held) if each.name == f".text.{symbol}"), None)
        program, defined = content_of(held, ".debug_line"), symbols(held)
        # Positions in the program of addresses in the kernel's section.
        own = {
            offset
            for offset, _, number, _ in relocations(held, ".debug_line")
            if defined[number].section == code
        }
        lines = [line for begin in _units(program) for line in _unit(program, begin, own)]
        return tuple(sorted(lines, key=lambda line: line.at))
    return ()


def _units(program: bytes) -> Iterator[int]:
    at = 0
    while at + 4 <= len(program):
        yield at
        at += 4 + int(struct.unpack_from("<I", program, at)[0])


class _DwarfReader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def fixed(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def leb(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        return value - (1 << shift) if signed and byte & 0x40 else value

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return found


def _unit(program: bytes, begin: int, own: set[int]) -> Iterator[LineEntry]:
    """Yield the lines of one unit, from sequences whose address is at one of these positions."""
    read = _DwarfReader(program, begin)
    end = begin + 4 + read.fixed("<I")
    if read.fixed("<H") not in _VERSIONS:
        return
    start = read.fixed("<I") + read.at
    unit, _, base, span, first = read.byte(), read.byte(), read.fixed("<b"), read.byte(), read.byte()
    machine = _LineRegisters(read, own, unit, [read.byte() for _ in range(first - 1)])
    files = _files(read)
    read.at = start
    while read.at < end:
        operation = read.byte()
        if operation >= first:
            machine.at += (operation - first) // span * unit
            machine.line += base + (operation - first) % span
        elif operation == 0:
            machine.extended()
        elif operation == _CONST_ADD_PC:
            machine.at += (255 - first) // span * unit
        elif operation != _COPY:
            machine.standard(operation)
        if (operation >= first or operation == _COPY) and machine.counts:
            yield LineEntry(machine.at, files.get(machine.file, ""), machine.line)


class _LineRegisters:
    """The registers of the line number program."""

    def __init__(self, read: _DwarfReader, own: set[int], unit: int, operands: list[int]) -> None:
        """Start with the registers' defaults. `operands` holds the number of operands of each standard
        operation.
        """
        self.read, self.own, self.unit, self.operands = read, own, unit, operands
        self.begin()

    def begin(self) -> None:
        self.at, self.file, self.line, self.counts = 0, 1, 1, False

    def extended(self) -> None:
        length = self.read.leb()
        following, operation = self.read.at + length, self.read.byte()
        if operation == _SET_ADDRESS:
            self.counts, self.at = self.read.at in self.own, self.read.fixed("<Q")
        elif operation == _END_SEQUENCE:
            self.begin()
        self.read.at = following

    def standard(self, operation: int) -> None:
        if operation == _ADVANCE_PC:
            self.at += self.read.leb() * self.unit
        elif operation == _ADVANCE_LINE:
            self.line += self.read.leb(signed=True)
        elif operation == _SET_FILE:
            self.file = self.read.leb()
        elif operation == _FIXED_ADVANCE_PC:
            self.at += self.read.fixed("<H")
        else:
            for _ in range(self.operands[operation - 1]):
                self.read.leb()


def _files(read: _DwarfReader) -> dict[int, str]:
    """Return the files by number. Files in the compilation folder have no folder in their names."""
    folders = [""]
    while name := read.text():
        folders.append(name)
    found: dict[int, str] = {}
    while name := read.text():
        folder, _, _ = read.leb(), read.leb(), read.leb()
        # The first folder is where the compiler ran: a deleted scratch folder.
        found[len(found) + 1] = f"{folders[folder]}/{name}" if folder > 1 else name
    return found
