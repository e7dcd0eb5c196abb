"""What of a cubin the card runs: a cubin is a 64-bit ELF file with a section for each kernel's instructions.

Section names: CUDA Binary Utilities, "ELF and cubin"; fields: System V ABI, chapter 4.
"""

from __future__ import annotations

__all__ = ["code_sha256", "has_no_memory"]

import hashlib
import struct
from collections.abc import Iterator

_MAGIC = b"\x7fELF\x02\x01"
"""The first bytes of a 64-bit ELF file, least significant byte first."""
_NO_BITS = 8
_CODE = (".text.", ".nv.constant", ".nv.shared.", ".nv.global", ".nv.info", ".rel.text.", ".rela.text.")
"""Instructions; constants, initial values and the kernels' arguments; shared memory by its size; registers
and stacks; and what of another section an instruction points at."""


def code_sha256(binary: bytes) -> str | None:
    """Hash of what runs: instructions, constants, memory and registers, without text, lines and notes.

    None where the binary is no cubin, or is damaged.
    """
    if not binary.startswith(_MAGIC):
        return None
    digest = hashlib.sha256()
    instructions = 0
    try:
        for name, flags, size, content in _sections(binary):
            kind = next((kind for kind in _CODE if name.startswith(kind)), None)
            if kind is None:
                continue
            # Without what follows: a compiler may put a hash of the file's name into a symbol's.
            digest.update(f"{kind}:{flags}:{size}:".encode())
            digest.update(content)
            instructions += len(content) if kind == ".text." else 0
    except (struct.error, ValueError, OverflowError):
        return None
    return digest.hexdigest() if instructions else None


def has_no_memory(binary: bytes) -> bool:
    """Whether a kernel can keep nothing between launches: its module has no variable that it could write, not
    even a pointer to what it allocates. False where the binary is no cubin, or is damaged.
    """
    if not binary.startswith(_MAGIC):
        return False
    try:
        return not any(name.startswith(".nv.global") and size for name, _, size, _ in _sections(binary))
    except (struct.error, ValueError, OverflowError):
        return False


def _sections(binary: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    """Name, flags, size and content of each; without content where the file holds none."""
    (offset,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", binary, offset + entry_size * i) for i in range(count)]
    if names >= count:
        raise ValueError("There is no section of names.")
    start, size = headers[names][4:6]
    table = binary[start : start + size]
    for name, kind, flags, _, start, size, *_ in headers:
        content = b"" if kind == _NO_BITS else binary[start : start + size]
        if kind != _NO_BITS and len(content) < size:
            raise ValueError("A section goes beyond the end of the file.")
        yield table[name : table.index(b"\0", name)].decode(errors="replace"), flags, size, content
