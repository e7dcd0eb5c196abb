"""The cards that a repository's workflows measure on: one file, from which jobs are made."""

from __future__ import annotations

__all__ = ["FLEET_FILE", "Fleet", "FleetCard", "decode_fleet", "encode_fleet", "matrix_of", "read_fleet"]

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from harness.errors import ConfigError

FLEET_FILE = Path(".github/fleet.json")
"""From the repository's top."""

_END = r"(?![\s\S])"
"""Where $ may leave a line's end behind."""
_LARGEST_BYTES = 2**18

Name = Annotated[str, Meta(pattern=rf"^[a-z0-9][a-z0-9-]{{0,39}}{_END}")]
Label = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,99}}{_END}")]
Spec = Annotated[str, Meta(pattern=rf"^(cuda|opencl|null)(:[0-9]{{1,3}})?{_END}")]
# These two become words of a command: none begins with a dash, or holds what a shell would take for more.
Pattern = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_*?\[][A-Za-z0-9_.*?\[\]@=,-]{{0,199}}{_END}")]
_LENGTH = r"([A-Za-z_][A-Za-z0-9_]{0,39}=)?[1-9][0-9]{0,9}"
Sizes = Annotated[str, Meta(pattern=rf"^{_LENGTH}([,x]{_LENGTH}){{0,7}}{_END}")]


class FleetCard(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One card, and what pull requests are measured at on it."""

    name: Name
    """Of the job and of its artifacts."""
    labels: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=16)]
    """A runner takes the job that has all of them."""
    device: Spec = "cuda:0"
    cases: Annotated[tuple[Pattern, ...], Meta(max_length=64)] = ()
    """Which kernels; empty for all."""
    sizes: Annotated[tuple[Sizes, ...], Meta(max_length=16)] = ()
    """In place of the suites' own."""
    quick: bool = False
    """The suites' small sizes."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What `harness ci compare` is given."""
        sizes = (word for size in self.sizes for word in ("--size", size))
        return (*self.cases, "--device", self.device, *sizes, *(["--quick"] if self.quick else []))


class Fleet(Struct, frozen=True, forbid_unknown_fields=True):
    """All cards; none is allowed, and then nothing is measured."""

    cards: Annotated[tuple[FleetCard, ...], Meta(max_length=64)]


def read_fleet(path: Path) -> Fleet:
    """The cards of a file. Raises ConfigError where it cannot be read or is not one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"Cannot read {path}: {error.strerror or error}. 'harness ci init' writes one to begin with."
        ) from None
    return decode_fleet(content, str(path))


def decode_fleet(content: bytes, where: str) -> Fleet:
    """The cards of a document. Raises ConfigError, naming `where` it is from, where it is not one."""
    if len(content) > _LARGEST_BYTES:
        raise ConfigError(f"{where} has {len(content)} bytes; a file of cards has at most {_LARGEST_BYTES}.")
    try:
        fleet = msgspec.convert(json.loads(content, object_pairs_hook=_once), Fleet)
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors too
        raise ConfigError(f"{where} is no file of cards: {error}.") from None
    names = [card.name for card in fleet.cards]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{where} names {', '.join(twice)} more than once: each card has its own name.")
    return fleet


def encode_fleet(fleet: Fleet) -> bytes:
    """As people write it."""
    return msgspec.json.format(msgspec.json.encode(fleet), indent=2) + b"\n"


def matrix_of(fleet: Fleet) -> str:
    """The matrix of a job, one line of JSON. `arguments` are words, safe to split at the spaces."""
    cards = [
        {
            "name": card.name,
            "labels": card.labels,
            "device": card.device,
            "arguments": " ".join(card.arguments),
        }
        for card in fleet.cards
    ]
    return msgspec.json.encode({"card": cards}).decode()


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Of two equal keys a reviewer may read the first, and JSON's readers take the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it says {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return found
