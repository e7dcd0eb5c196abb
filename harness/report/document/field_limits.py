"""The wall that a document passes: a limit for every text and number in it.

Whoever controls the kernels controls the job that wrote the document. The document's own types have limits
beside their fields. Records have none, as old ones are read as ever: `FIELD_LIMITS` has the limits of theirs.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, reduce
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

T = TypeVar("T")
Cut = Callable[[str], str]
"""What makes a text fit its limit. A type without one keeps the beginning of a text."""
_END = r"(?![\s\S])"
"""The end of a text, for patterns of Python and JavaScript: $ may leave a line's end behind."""


def _last_characters(text: str) -> str:
    return text[-8000:]


def _as_code(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.lower())[:60]


def _as_words(text: str) -> str:
    return re.sub(r"[^ -~]+", "?", text)[:200]


Identifier = Annotated[str, Meta(pattern=rf"^[A-Za-z_][A-Za-z0-9_]{{0,99}}{_END}")]
CaseId = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_.=,\[\]-]{{1,400}}{_END}")]
Code = Annotated[str, Meta(pattern=rf"^[a-z0-9-]{{0,60}}{_END}"), _as_code]
"""A stable code, such as too-noisy."""
Commit = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{40}}|[0-9a-f]{{64}}){_END}")]
Words = Annotated[str, Meta(pattern=rf"^[ -~]{{0,200}}{_END}"), _as_words]
"""One line of printable ASCII: a card's name, a driver's version."""
RelativePath = Annotated[str, Meta(pattern=rf"^(?!/)(?!.*(^|/)\.\.(/|$))[A-Za-z0-9_.+@/-]{{1,300}}{_END}")]
Text = Annotated[str, Meta(max_length=2000)]
"""Written by whoever wrote the kernels: shown as code, where no markup counts."""
Texts = Annotated[tuple[Text, ...], Meta(max_length=64)]
Log = Annotated[str, Meta(max_length=8000), _last_characters]
Fraction = Annotated[float, Meta(ge=-1, le=1e6)]
"""A change, or a share: one wild process can put the bound of an interval anywhere."""
Size = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e7)]
_Megahertz = Annotated[float, Meta(ge=0, le=1e5)]
_Watts = Annotated[float, Meta(ge=0, le=1e5)]
_Extent = tuple[Size, Size, Size]
_Nothing = Annotated[tuple[Any, ...], Meta(max_length=0)]
_NoNames = Annotated[Mapping[str, Any], Meta(max_length=0)]
"""What no face shows is left out of the document."""

FIELD_LIMITS: Mapping[str, Any] = {
    "alone_mhz": _Megahertz,
    "alone_w": _Watts,
    "arch": Words,
    "base": Size,
    "binary_sha256": Words,
    "block": _Extent,
    "case": CaseId,
    "clock_exponent": Annotated[float, Meta(ge=-1e6, le=1e6)],
    "code_bytes": Size,
    "code_sha256": Words,
    "constant_bytes": Size,
    "cost": Fraction,
    "dispatch": _Extent,
    "dtype": Words,
    "dynamic_shared_bytes": Size,
    "effect": Fraction,
    "gpu_s": Seconds,
    "grid": _Extent,
    "head": Size,
    "high": Fraction,
    "instructions": _NoNames,
    "kernel": Identifier,
    "kernels": _Nothing,
    "local_bytes": Size,
    "log": Log,
    "loop_instructions": _NoNames,
    "low": Fraction,
    "max_threads_per_block": Size,
    "message": Text,
    "noise_floor": Fraction,
    "occupancy": Annotated[float, Meta(ge=0, le=1)],
    "order_p": Annotated[float, Meta(ge=0, le=1)],
    "power_w": _Watts,
    "process_effects": Annotated[tuple[Fraction, ...], Meta(max_length=64)],
    "processes": Annotated[int, Meta(ge=1, le=10_000)],
    "quads": Annotated[int, Meta(ge=0, le=1_000_000)],
    "reason": Code,
    "registers": Size,
    "settings_changed": Texts,
    "sizes": Annotated[Mapping[Identifier, Size], Meta(max_length=16)],
    "slots": Size,
    "sm_clock_mhz": _Megahertz,
    "smallest_visible": Fraction,
    "source_sha256": Words,
    "spill_load_bytes": Size,
    "spill_store_bytes": Size,
    "static_shared_bytes": Size,
    "steps": _Nothing,
    "temperature_c": Annotated[float, Meta(ge=-273, le=1000)],
    "time_ns": Annotated[float, Meta(ge=0, le=1e15)],
    "touched": Annotated[Mapping[Code, Size], Meta(max_length=32)],
    "unavailable": Annotated[Mapping[Code, Text], Meta(max_length=32)],
}
"""Limits of fields of records, by the field's name; of a field that may be None, of what else it may be."""


@cache
def strict(kind: type) -> type[Struct]:
    """Return the twin of a dataclass that refuses fields it does not know and values beyond their limits.

    Raises TypeError for a field without a limit.
    """
    hints = _limited_fields(kind)
    return msgspec.defstruct(
        kind.__name__,
        [(each.name, hints[each.name], *_default(each)) for each in fields(kind)],
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
        omit_defaults="schema_version" not in hints,
    )


def clipped(record: T) -> T:
    """Return a dataclass with every text, number and list in it brought within its limit.

    A name that breaks its pattern stays as it is.
    """
    kind: type = type(record)
    hints = _limited_fields(kind)
    made: T = kind(**{name: _clipped(getattr(record, name), hint) for name, hint in hints.items()})
    return made


def _clipped(value: Any, hint: Any) -> Any:
    if value is None:
        return None
    if is_dataclass(value):
        return clipped(value)
    limit, cut, inner = _limit_of(hint)
    match value:
        case str():
            value = cut(value) if cut else value[: limit.max_length]
        case tuple():
            value = tuple(_clipped(each, inner[0]) for each in value[: limit.max_length])
        case Mapping():
            first = islice(value.items(), limit.max_length)
            value = {_clipped(name, inner[0]): _clipped(each, inner[1]) for name, each in first}
        case int() | float() if limit.le is not None:
            value = max(limit.ge, min(value, limit.le))
    return value


@cache
def _limit_of(hint: Any) -> tuple[Any, Cut | None, tuple[Any, ...]]:
    """The limit of a type that is not None, what cuts a text by it, and the types of what is inside."""
    hint = next((each for each in _choices(hint) if each is not NoneType), hint)
    hint, limit, *cuts = get_args(hint) if get_origin(hint) is Annotated else (hint, Meta())
    return limit, next(iter(cuts), None), get_args(hint)


@cache
def _limited_fields(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: _limited(hint, FIELD_LIMITS.get(name), f"{kind.__name__}.{name}")
        for name, hint in hints.items()
    }


def _limited(hint: Any, limit: Any, name: str) -> Any:
    """A field's type with the twin of each record, and the limit in place of what has none."""
    if is_dataclass(hint):
        return strict(cast("type", hint))
    if hint in (bool, NoneType) or get_origin(hint) is Literal:
        return hint
    if choices := _choices(hint):
        return reduce(operator.or_, (_limited(each, limit, name) for each in choices))
    if get_origin(hint) is Annotated:
        inner, *limits = get_args(hint)
        within = tuple(each if each is ... else _limited(each, each, name) for each in get_args(inner))
        return Annotated[(get_origin(inner)[within] if within else inner, *limits)]
    if limit is None:
        raise TypeError(f"{name} has no limit: give it one in FIELD_LIMITS.")
    return limit


def _choices(hint: Any) -> tuple[Any, ...]:
    """The members of a union; empty for another type."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


def _default(of: Field[Any]) -> tuple[Any, ...]:
    if of.default_factory is not MISSING:
        return (msgspec.field(default_factory=of.default_factory),)
    return () if of.default is MISSING else (of.default,)
