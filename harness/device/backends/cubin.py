"""What a cubin holds of one kernel: its instructions, and a hash of all that the card gets of it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.device.backends.nvcc import MAGIC, Section, attributes, sections

_INSTRUCTION_BYTES = 16
_OPERATION, _NOP = 0xFFF, 0x918
"""The bits of an instruction that tell the operation, and that of none, from Volta on."""
_SHARED = (".nv.global", ".nv.constant3", ".nv.constant4")
"""Variables and constants of all kernels of a file, by the begin of a section's name."""
_OWN = (".nv.constant", ".nv.shared.", ".nv.local.")
"""What of a kernel's own is allocated beside its instructions."""
_OF_SYMBOLS = {0x0A, 0x0F}
"""Attributes of a kernel that name symbols by number: the bank of its parameters, external functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    instructions: bytes = field(repr=False)
    """Without the padding at the end."""
    constant_bytes: int
    """Of the bank that holds its parameters, behind those of the launch itself."""
    sha256: str
    """See `kernel_code`."""


def kernel_code(binary: bytes, symbol: str) -> KernelCode | None:
    """A kernel's own part of a cubin; None where it has none, as where the binary is no cubin or is damaged.

    The hash is of all that the card gets of the kernel, whatever it is called and whatever stands beside it:
    instructions with their scheduling but without the padding; constants and variables; registers, barriers
    and sizes of memory; parameters and clusters; and what relocations point at, by name, since the numbers of
    symbols move when another kernel is added. Branches of a cubin are relative already. Names of the kernel
    and of files, lines and notes are left out.
    """
    if not binary.startswith(MAGIC):
        return None
    try:
        held = {each.name: each for each in sections(binary)}
        text = held.get(f".text.{symbol}")
        if text is None or not (instructions := _without_padding(text.content)):
            return None
        digest = hashlib.sha256(repr((text.info >> 24, text.flags)).encode() + instructions)
        for each in held.values():
            if each.name.startswith(_SHARED) or (each.name.startswith(_OWN) and _is_of(each.name, symbol)):
                digest.update(repr((each.name.removesuffix(symbol), each.size)).encode() + each.content)
        for told in (*_relocations(held, symbol), *_attributes(held, symbol)):
            digest.update(repr(told).encode())
        constants = held.get(f".nv.constant0.{symbol}")
        return KernelCode(
            instructions=instructions,
            constant_bytes=constants.size if constants else 0,
            sha256=digest.hexdigest(),
        )
    except (struct.error, ValueError, OverflowError, IndexError):
        return None


def _is_of(section: str, symbol: str) -> bool:
    return section.endswith(f".{symbol}")


def _content(held: Mapping[str, Section], name: str) -> bytes:
    return held[name].content if name in held else b""


def _without_padding(text: bytes) -> bytes:
    end = len(text)
    while end and int.from_bytes(text[end - _INSTRUCTION_BYTES :][:2], "little") & _OPERATION == _NOP:
        end -= _INSTRUCTION_BYTES
    return text[:end]


def _attributes(held: Mapping[str, Section], symbol: str) -> Iterator[tuple[int, bytes]]:
    """What the file says of the kernel: parameters, limits; and in a list of all kernels, each by the number
    of its symbol, registers and stack.
    """
    for attribute, value in attributes(_content(held, f".nv.info.{symbol}")):
        if attribute not in _OF_SYMBOLS:
            yield attribute, value
    names = list(_symbols(held))
    for attribute, value in attributes(_content(held, ".nv.info")):
        number = int.from_bytes(value[:4], "little")
        if number < len(names) and names[number] == symbol:
            yield attribute, value[4:]


def _symbols(held: Mapping[str, Section]) -> Iterator[str]:
    """Their names, in order."""
    names = _content(held, ".strtab")
    for name, *_ in struct.iter_unpack("<IBBHQQ", _content(held, ".symtab")):
        yield names[name : names.index(b"\0", name)].decode(errors="replace")


def _relocations(held: Mapping[str, Section], symbol: str) -> Iterator[tuple[int, int, str, int]]:
    """Offset, kind, target's name and addend of each place of the instructions that the loader fills in."""
    names = [name.replace(symbol, "") for name in _symbols(held)]
    for offset, info in struct.iter_unpack("<QQ", _content(held, f".rel.text.{symbol}")):
        yield offset, info & 0xFFFFFFFF, names[info >> 32], 0
    for offset, info, addend in struct.iter_unpack("<QQq", _content(held, f".rela.text.{symbol}")):
        yield offset, info & 0xFFFFFFFF, names[info >> 32], addend
