"""A limit for every text and number of a document.

Whoever controls the kernels controls the job that wrote the document. The document's own types have limits
beside their fields. Types of records have none, because old records must stay readable: `FIELD_LIMITS` has
limits for their fields.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, reduce
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from harness.records.types import MOST_SYMBOL, Cause, CodeLine, KernelLaunch, LaunchedKernel, Risk

T = TypeVar("T")
Cut = Callable[[str], str]
"""Shortens a text to its limit. A type without such a function keeps the text's beginning."""
_END = r"(?![\s\S])"
"""The end of a text, for patterns of Python and JavaScript, in which $ may ignore a final line break."""


Identifier = Annotated[str, Meta(pattern=rf"^[A-Za-z_][A-Za-z0-9_]{{0,99}}{_END}")]
CaseId = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_.=,\[\]-]{{1,400}}{_END}")]
Code = Annotated[
    str,
    Meta(pattern=rf"^[a-z0-9-]{{0,60}}{_END}"),
    lambda text: re.sub(r"[^a-z0-9-]+", "-", text.lower())[:60],
]
"""A stable code, such as too-noisy."""
Commit = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{40}}|[0-9a-f]{{64}}){_END}")]
Words = Annotated[
    str, Meta(pattern=rf"^[ -~]{{0,200}}{_END}"), lambda text: re.sub(r"[^ -~]+", "?", text)[:200]
]
"""A line of printable ASCII: a card's name, a driver's version."""
RelativePath = Annotated[str, Meta(pattern=rf"^(?!/)(?!.*(^|/)\.\.(/|$))[A-Za-z0-9_.+@/-]{{1,300}}{_END}")]
Text = Annotated[str, Meta(max_length=2000)]
"""A text by the author of the kernels. It is displayed as code, so that markup has no effect."""
Texts = Annotated[tuple[Text, ...], Meta(max_length=64)]
Log = Annotated[str, Meta(max_length=8000), lambda text: text[-8000:]]
Fraction = Annotated[float, Meta(ge=-1, le=1e6)]
"""A change of time or cycles. A single extreme process can make the bound of an interval very large."""
Size = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e7)]
_EXTENT = tuple[Size, Size, Size]
_RATE = Annotated[float, Meta(ge=0, le=1e5)]
_SHARE = Annotated[float, Meta(ge=0, le=1)]
_NO_LIST, _NO_NAMES = (Annotated[kind, Meta(max_length=0)] for kind in (tuple[Any, ...], Mapping[str, Any]))
"""Limits of lists and names that no report shows. The document has none of them."""

_FIELDS: Sequence[tuple[Any, str]] = (
    (CaseId, "case"),
    (Identifier, "kernel"),
    (Annotated[str, Meta(pattern=rf"^([A-Za-z_][A-Za-z0-9_]{{0,99}})?{_END}")], "array function"),
    (Code, "reason"),
    (Words, "arch binary_sha256 code_sha256 driver dtype measured_at source_sha256"),
    (Text, "message"),
    (Log, "log"),
    (Texts, "settings_changed"),
    (Fraction, "cost effect high low noise_floor smallest_visible"),
    (_SHARE, "occupancy order_p"),
    (Annotated[float, Meta(ge=0, le=1e15)], "error time_ns"),
    (_RATE, "alone_mhz alone_w power_w sm_clock_mhz"),
    (Seconds, "gpu_s"),
    (Annotated[float, Meta(ge=-273, le=1000)], "temperature_c"),
    (Annotated[float, Meta(ge=-1e6, le=1e6)], "clock_exponent"),
    (Annotated[int, Meta(ge=1, le=10_000)], "processes cards"),
    (Annotated[int, Meta(ge=0, le=1_000_000)], "quads"),
    (
        Size,
        "base code_bytes constant_bytes dynamic_shared_bytes false_alarms head local_bytes slots verdicts",
    ),
    (Size, "max_threads_per_block registers spill_load_bytes spill_store_bytes static_shared_bytes"),
    (_EXTENT, "block cluster dispatch grid"),
    (Annotated[tuple[Fraction, ...], Meta(max_length=64)], "process_effects"),
    (Annotated[Mapping[Identifier, Size], Meta(max_length=16)], "sizes"),
    (Annotated[Mapping[Code, Size], Meta(max_length=32)], "touched"),
    (Annotated[Mapping[Code, Text], Meta(max_length=32)], "unavailable"),
    (_NO_LIST, "kernels steps"),
    (_NO_NAMES, "instructions loop_instructions"),
    (
        Annotated[Mapping[Identifier, Annotated[float, Meta(ge=0, le=1e18)]], Meta(max_length=64)],
        "base_counters head_counters",
    ),
    (Annotated[tuple[Cause, ...], Meta(max_length=16)], "causes"),
    (Annotated[tuple[LaunchedKernel, ...], Meta(max_length=32)], "launched"),
    (Annotated[tuple[KernelLaunch, ...], Meta(max_length=64)], "launches"),
    (Annotated[float, Meta(ge=0, le=1e15)], "base_ns head_ns"),
    (Annotated[tuple[Risk, ...], Meta(max_length=16)], "risks"),
    (Annotated[tuple[CodeLine, ...], Meta(max_length=64)], "lines"),
    (Size, "added base_count count head_count moved readdressed removed"),
    (Annotated[str, Meta(max_length=200)], "base_place head_place place text"),
    (Annotated[str, Meta(max_length=MOST_SYMBOL)], "symbol"),
    (_SHARE, "share"),
    (Text, "problem"),
)
FIELD_LIMITS: Mapping[str, Any] = {name: limit for limit, names in _FIELDS for name in names.split()}
"""Limits of record fields by name. For an optional field it is the limit of the other type."""


@cache
def strict(kind: type) -> type[Struct]:
    """Return a copy of a dataclass type that refuses unknown fields and values beyond their limits.

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
    """Return a dataclass with every text, number and list reduced to its limit.

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
    """Return the limit of a type other than None, the function that shortens its texts, and its
    item types.
    """
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
    """Return a field's type with records replaced by their strict types, and with the limit for
    other types.
    """
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
    return _limited(limit, limit, name) if get_origin(limit) is Annotated else limit


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union type; empty for another type."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


def _default(of: Field[Any]) -> tuple[Any, ...]:
    if of.default_factory is not MISSING:
        return (msgspec.field(default_factory=of.default_factory),)
    return () if of.default is MISSING else (of.default,)
