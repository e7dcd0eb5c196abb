"""Packages that jobs with a card install, with hashes: a base, and the packages of each extra.

The files are shipped, so no package index is asked. They come from one resolution by scripts/requirements.py
and are compatible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import StoreError, UsageError

DEVICES: Mapping[str, str] = {"opengl": "opengl:0", "cpu": "cpu:0"}
"""Extras with a backend of their own, and the device that a runner then measures on too."""

_FOLDER = Path(__file__).resolve().with_name("locked")
_BASE = "measure"
_ABOUT = """\
# What the jobs that measure install, by hash. PyCUDA has no wheels: it is compiled once, by whoever makes the
# runner's image, and the job's environment takes it from there.
"""
_WITH = "# With the extras: "
_PIN = re.compile(r"[A-Za-z0-9][^\n]* \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+")


def measuring_extras() -> tuple[str, ...]:
    """Return the selectable extras: those with packages that a kernel needs."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.txt") if path.stem != _BASE))


def chosen_extras(text: str) -> tuple[str, ...]:
    """Return ``tvm,opengl`` as sorted names without duplicates; none for "". Raises UsageError for others."""
    names = sorted({name.strip() for name in text.split(",")} - {""})
    available = measuring_extras()
    if "cuda" in names:
        raise UsageError(
            "The extra 'cuda' cannot be installed by hash: PyCUDA has no wheels, and comes from the runner's "
            "image (docs/runners.md). Leave it out."
        )
    if unknown := [name for name in names if name not in available]:
        raise UsageError(
            f"This project has no extra for kernels called {', '.join(unknown)!r}: "
            f"expected some of {', '.join(available)}, with commas between them."
        )
    return tuple(names)


def compiling(extras: Sequence[str]) -> tuple[str, ...]:
    """Return the packages of these extras that a compiling job needs beside the compiler."""
    return tuple(sorted({"static", *extras} & {"static", "libraries", "tvm"}))


def composed(extras: Sequence[str]) -> bytes:
    """Return one file of requirements with hashes: the base and these extras. Raises StoreError."""
    pins: dict[str, str] = {}
    for name in (_BASE, *extras):
        pins |= _pins(name)
    heading = f"{_WITH}{', '.join(extras) or 'none'}\n"
    again = "# Others: harness ci init --with NAMES --force\n"
    by_name = sorted(pins, key=lambda pin: pin.split("==", 1))
    return "".join([_ABOUT, heading, again, *(pins[name] for name in by_name)]).encode()


def extras_of(content: bytes) -> tuple[str, ...]:
    """Return the known extras named in a composed file; none if it names none."""
    said = re.search(rf"^{_WITH}([a-z, ]+)$", content.decode("utf-8", "replace"), re.MULTILINE)
    return tuple(name for name in said[1].split(", ") if name in measuring_extras()) if said else ()


def extras_with(package: str) -> tuple[str, ...]:
    """Return the requirements of a file with their hashes, by their first lines."""
    start = f"{re.sub('[-_.]+', '-', package).lower()}=="
    return tuple(extra for extra in measuring_extras() if any(pin.startswith(start) for pin in _pins(extra)))


def pins_of(text: str) -> dict[str, str]:
    """The requirements of a file, with their hashes, by their first lines."""
    return {pin.partition(" \\\n")[0]: pin for pin in _PIN.findall(text)}


def _pins(name: str) -> dict[str, str]:
    return pins_of(read_shipped(_FOLDER / f"{name}.txt", "requirements").decode())


def read_shipped(path: Path, what: str) -> bytes:
    """Return a file of this package. Raises StoreError, which calls it `what`, if it is missing."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"The {what} are not where this harness should have them: {error.strerror or error} "
            f"({error.filename}). Install gpu-harness again."
        ) from None
