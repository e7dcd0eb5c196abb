"""Reads a cubin, NVIDIA's ELF file of kernels: instructions, parameters, and hashes of code.

It needs no card.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

_MAGIC = b"\x7fELF\x02\x01"
"""First bytes of a 64-bit ELF file, least significant byte first."""
_NO_BITS = 8
_FUNCTION, _LAUNCHED = 2, 0x10
"""Types of a symbol: a function, and CUDA's own type for a function that a host can launch."""
_SIZED, _PARAMETER_INFO = 4, 0x17
"""Types of an entry in .nv.info: with a length, and about a parameter."""
_TARGET = re.compile(rb"-arch (sm_\w+)")

INSTRUCTION_BYTES = 16
"""Size of an instruction from Volta on."""
_OPERATION, _NOP = 0xFFF, 0x918
"""Bits of an instruction that contain the operation, and the value of NOP, from Volta on."""
_INFO = ".nv.info"
_LOADED = (".text.", ".nv.constant", ".nv.shared.", ".nv.global")
"""Section prefixes: instructions; constants, initial values and kernel arguments; sizes of shared memory."""
_POINTERS = tuple(f".{kind}{name}" for kind in ("rel", "rela") for name in _LOADED)
"""Sections with relocations of instructions, constants and initial values."""
_SHARED = (".nv.global", ".nv.constant3", ".nv.constant4")
"""Prefixes of sections with variables and constants of all kernels of a file."""
_OWN = (".nv.constant", ".nv.shared.", ".nv.local.")
"""Prefixes of sections with a kernel's own memory."""
_OF_SYMBOLS = {0x0A, 0x0F}
"""Attributes of a kernel that refer to symbols by number: its parameter bank, external functions."""
_NEWS = ((0x37, None), (0x66, 3), (0x6B, 1), (0x6D, 0))
"""Attributes that depend on the compiler: CUDA's version (any value), and ones that nvcc 13.5 adds and 13.0
does not."""
_BEGIN_WITH_SYMBOL = frozenset({0x0A, 0x11, 0x12, 0x23, 0x2F})
"""Attributes that begin with a symbol's number: location of arguments, frame, stacks and registers."""


class Section(NamedTuple):
    name: str
    flags: int
    size: int
    content: bytes
    """Content of the section; empty if the file has no data for it."""
    info: int
    """Information that depends on the section's kind, such as a kernel's registers."""


DAMAGE = (struct.error, ValueError, ArithmeticError, IndexError)
"""Errors from reading a file that is damaged or no 64-bit ELF file."""


def sections(binary: bytes) -> list[Section]:
    """Return the sections of an ELF file. Raises one of DAMAGE."""
    if not binary.startswith(_MAGIC):
        raise ValueError("It is no ELF file.")
    (offset,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", binary, offset + entry_size * i) for i in range(count)]
    if names >= count:
        raise ValueError("There is no section of names.")
    start, size = headers[names][4:6]
    table, found = binary[start : start + size], []
    for name, kind, flags, _, start, size, _, info, *_ in headers:
        content = b"" if kind == _NO_BITS else binary[start : start + size]
        if kind != _NO_BITS and len(content) < size:
            raise ValueError("A section goes beyond the end of the file.")
        found.append(Section(_text(table, name), flags, size, content, info))
    return found


def _text(table: bytes, begin: int) -> str:
    return table[begin : table.index(b"\0", begin)].decode(errors="replace")


def content_of(held: Sequence[Section], name: str) -> bytes:
    return next((each.content for each in held if each.name == name), b"")


class Symbol(NamedTuple):
    name: str
    kind: int
    other: int
    section: int
    """Number of the section that defines it."""


def symbols(held: Sequence[Section]) -> list[Symbol]:
    names = content_of(held, ".strtab")
    table = struct.iter_unpack("<IBBHQQ", content_of(held, ".symtab"))
    return [Symbol(_text(names, name), *rest) for name, *rest, _, _ in table]


def relocations(held: Sequence[Section], section: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield offset, kind, symbol number and addend of each place in a section that the loader fills in."""
    for offset, info in struct.iter_unpack("<QQ", content_of(held, f".rel{section}")):
        yield offset, info & 0xFFFFFFFF, info >> 32, 0
    for offset, info, addend in struct.iter_unpack("<QQq", content_of(held, f".rela{section}")):
        yield offset, info & 0xFFFFFFFF, info >> 32, addend


def _pointed_at(
    held: Sequence[Section], section: str, names: Sequence[str]
) -> Iterator[tuple[int, int, str, int]]:
    """Yield the relocations with symbol names, because symbol numbers change when a kernel is added."""
    for offset, kind, number, addend in relocations(held, section):
        yield offset, kind, names[number], addend


class _InfoEntry(NamedTuple):
    """A compiler's note about one kernel or all, in .nv.info."""

    kind: int
    attribute: int
    value: int
    """The value, or the length of the content if there is any."""
    content: bytes

    @property
    def payload(self) -> bytes:
        return self.content if self.kind == _SIZED else self.value.to_bytes(2, "little")


def _info_entries(info: bytes) -> Iterator[_InfoEntry]:
    at = 0
    while at < len(info):
        kind, attribute, value = struct.unpack_from("<BBH", info, at)
        content = info[at + 4 : at + 4 + value] if kind == _SIZED else b""
        yield _InfoEntry(kind, attribute, value, content)
        at += 4 + len(content)


def code_sha256(binary: bytes) -> str | None:
    """Return a hash of instructions, constants, memory and registers; None without an intact cubin."""
    with suppress(*DAMAGE):
        digest, instructions = hashlib.sha256(), 0
        for name, flags, size, content, _ in sections(binary):
            # Without the suffix, in which some compilers put a hash of the file's name.
            if kind := next(filter(name.startswith, (*_LOADED, *_POINTERS, _INFO)), None):
                digest.update(f"{kind}:{flags}:{size}:".encode() + content)
                instructions += len(content) if kind == ".text." else 0
        return digest.hexdigest() if instructions else None
    return None


def code_of_any_compiler(binary: bytes) -> str:
    """Return a compiler-independent hash of the code; empty without an intact cubin."""
    with suppress(*DAMAGE):
        held = sections(binary)
        names = [each.name for each in symbols(held)]
        parts: list[str] = []
        for each in held:
            if each.name.startswith(_INFO):
                parts += (f"{each.name}:{note}" for note in _lasting(each.content, names))
            elif each.name.startswith(_LOADED):
                parts.append(f"{each.name}:{each.flags}:{each.size}:{each.content.hex()}")
                parts += (f"{each.name}:{place}" for place in _pointed_at(held, each.name, names))
        has_code = any(each.name.startswith(".text.") and each.content for each in held)
        return hashlib.sha256("\0".join(sorted(parts)).encode()).hexdigest() if has_code else ""
    return ""


def _lasting(info: bytes, names: Sequence[str]) -> Iterator[str]:
    """Yield the notes of one kernel or of all in a compiler-independent form."""
    for entry in _info_entries(info):
        number = int.from_bytes(entry.payload, "little")
        if (entry.attribute, None) in _NEWS or (entry.attribute, number) in _NEWS:
            continue
        of, content = "", entry.content
        if entry.attribute in _BEGIN_WITH_SYMBOL:
            of, content = names[int.from_bytes(content[:4], "little")], content[4:]
        yield f"{entry.kind}:{entry.attribute}:{entry.value}:{of}:{content.hex()}"


def has_no_memory(binary: bytes) -> bool:
    """Tell whether a cubin has no writable variable; False without an intact cubin."""
    with suppress(*DAMAGE):
        return not any(each.name.startswith(".nv.global") and each.size for each in sections(binary))
    return False


def parameters(binary: bytes, function: str) -> tuple[tuple[int, int], ...] | None:
    """Return offset and size in bytes of each parameter of a kernel, in order; None if unknown."""
    with suppress(*DAMAGE):
        held = sections(binary)
        if any(each.name == f"{_INFO}.{function}" for each in held):
            return _parameters(held, function)
    return None


def _parameters(held: Sequence[Section], function: str) -> tuple[tuple[int, int], ...]:
    found: dict[int, tuple[int, int]] = {}
    for entry in _info_entries(content_of(held, f"{_INFO}.{function}")):
        if entry.attribute == _PARAMETER_INFO:
            _, ordinal, offset, packed = struct.unpack("<IHHI", entry.payload)
            found[ordinal] = offset, packed >> 18
    return tuple(found[ordinal] for ordinal in sorted(found))


def entries(binary: bytes) -> dict[str, tuple[int, ...]]:
    """Return the sizes in bytes of each kernel's parameters, by symbol; empty without an intact cubin."""
    with suppress(*DAMAGE):
        held = sections(binary)
        return {
            each.name: tuple(size for _, size in _parameters(held, each.name))
            for each in symbols(held)
            if each.kind & 0xF == _FUNCTION and each.other & _LAUNCHED
        }
    return {}


def built_for(binary: bytes) -> str | None:
    """Return the architecture that ptxas built a cubin for; None if the file does not say."""
    with suppress(*DAMAGE):
        notes = (each.content for each in sections(binary) if each.name.startswith(".note.nv"))
        if match := _TARGET.search(b"".join(notes)):
            return match[1].decode()
    return None


def exports(binary: bytes, function: str) -> bool:
    """Tell whether a shared library has a function of this name; True if the file cannot be read."""
    with suppress(*DAMAGE):
        return f"\0{function}\0".encode() in content_of(sections(binary), ".dynstr")
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    instructions: bytes = field(repr=False)
    """The kernel's code, without padding at the end."""
    constant_bytes: int
    """Size of the constant bank with its parameters, after those of the launch itself."""
    sha256: str
    """Hash of everything that the card gets of the kernel: see `kernel_code`."""


def kernel_code(binary: bytes, symbol: str) -> KernelCode | None:
    """Return a kernel's own part of a cubin; None for another kernel's, a damaged or no cubin.

    The hash covers everything that the card gets of the kernel: instructions with their scheduling, without
    padding; constants and variables; registers, barriers and sizes of memory; parameters and clusters; and
    the targets of relocations. It leaves out names of the kernel and of files, lines and notes.
    """
    with suppress(*DAMAGE):
        held = sections(binary)
        text = next((each for each in held if each.name == f".text.{symbol}"), None)
        if text is None or not (instructions := _without_padding(text.content)):
            return None
        digest = hashlib.sha256(repr((text.info >> 24, text.flags)).encode() + instructions)
        constant_bytes, names = 0, [each.name for each in symbols(held)]
        for each in held:
            own = each.name.startswith(_OWN) and each.name.endswith(f".{symbol}")
            if own or each.name.startswith(_SHARED):
                digest.update(repr((each.name.removesuffix(symbol), each.size)).encode() + each.content)
            if own or each.name.startswith(_SHARED) or each is text:
                for offset, kind, name, addend in _pointed_at(held, each.name, names):
                    digest.update(repr((offset, kind, name.replace(symbol, ""), addend)).encode())
            if each.name == f".nv.constant0.{symbol}":
                constant_bytes = each.size
        for attribute in _attributes(held, symbol, names):
            digest.update(repr(attribute).encode())
        return KernelCode(instructions=instructions, constant_bytes=constant_bytes, sha256=digest.hexdigest())
    return None


def _without_padding(text: bytes) -> bytes:
    end = len(text)
    while end and int.from_bytes(text[end - INSTRUCTION_BYTES :][:2], "little") & _OPERATION == _NOP:
        end -= INSTRUCTION_BYTES
    return text[:end]


def _attributes(held: Sequence[Section], symbol: str, names: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    """Yield the file's attributes of a kernel: parameters and limits, then registers and stack."""
    for entry in _info_entries(content_of(held, f"{_INFO}.{symbol}")):
        if entry.attribute not in _OF_SYMBOLS:
            yield entry.attribute, entry.payload
    for entry in _info_entries(content_of(held, _INFO)):
        number = int.from_bytes(entry.payload[:4], "little")
        if number < len(names) and names[number] == symbol:
            yield entry.attribute, entry.payload[4:]
