"""The wall: nothing in a document is without a limit, and what is made here is within them all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace

import pytest
from msgspec import inspect

from harness.errors import StoreError
from harness.records.types import CompiledKernel, Launch, Resources
from harness.report.document.document import Review, decode_review, encode
from harness.report.document.field_limits import clipped, strict
from harness.report.pull_request.static_comment import StaticReport
from tests.review_samples import card, case, change, review, side


def unlimited(found: inspect.Type, name: str) -> Iterator[str]:
    """Names of texts, numbers and lists that may be of any size, and of what takes unknown fields."""
    if not is_limited(found):
        yield name
    for inner, inner_type in inside(found):
        yield from unlimited(inner_type, f"{name}{inner}")


def is_limited(found: inspect.Type) -> bool:
    match found:
        case inspect.StructType():
            return found.forbid_unknown_fields
        case inspect.StrType():
            return found.pattern is not None or found.max_length is not None
        case inspect.IntType() | inspect.FloatType():
            return None not in (found.ge, found.le) or None not in (found.gt, found.lt)
        case inspect.VarTupleType() | inspect.DictType():
            return found.max_length is not None
    free = inspect.BoolType, inspect.NoneType, inspect.LiteralType, inspect.UnionType, inspect.TupleType
    return isinstance(found, free)


def inside(found: inspect.Type) -> Iterable[tuple[str, inspect.Type]]:
    match found:
        case inspect.StructType(fields=fields):
            return ((f".{each.name}", each.type) for each in fields)
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            return (("", each) for each in types)
        case inspect.VarTupleType(item_type=item) if found.max_length != 0:
            return [("[]", item)]
        case inspect.DictType(key_type=key, value_type=value) if found.max_length != 0:
            return [("{}", key), ("[]", value)]
    return ()


@pytest.mark.parametrize("kind", [Review, StaticReport])
def test_nothing_in_a_document_is_without_a_limit(kind):
    assert not list(unlimited(inspect.type_info(strict(kind)), kind.__name__))


@dataclass(frozen=True, kw_only=True)
class Later:
    """A record with a field that somebody adds."""

    case: str
    verse: str = ""


def test_a_new_field_of_a_record_needs_a_limit():
    with pytest.raises(TypeError, match=r"Later\.verse has no limit: give it one in FIELD_LIMITS"):
        strict(Later)


def test_what_no_face_shows_is_left_out():
    measured = side()
    assert measured.launch
    assert measured.resources
    step = Launch(grid=(1, 1, 1), block=(1, 1, 1))
    built = replace(measured.resources, kernels=(CompiledKernel(name="x"),), instructions={"FFMA": 1})
    full = replace(measured, launch=replace(measured.launch, steps=(step,)), resources=built)
    assert clipped(full) == measured
    assert clipped(measured) == measured
    assert clipped(Resources(arch="sm_90\n", registers=-1)) == Resources(arch="sm_90?", registers=0)


def extreme(value, number: float, text: str):
    """The same with every number and every text of others replaced."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return type(value)(number)
    if isinstance(value, str):
        return text
    if isinstance(value, tuple):
        return tuple(extreme(each, number, text) for each in value) * 100
    return value


@pytest.mark.parametrize("number", [-1e300, -1.0, 0.0, 1e300])
@pytest.mark.parametrize("text", ["", "\n\u202e<b>" * 5000])
def test_whatever_a_card_and_a_compiler_tell_passes_the_wall(number, text):
    built = case("a", 64, "regression", energy=change(0.1), order_p=0.5, clock_exponent=1.0)
    changes = {name: wild(getattr(built, name), number, text) for name in ("time", "cycles", "energy")}
    sides = {name: wild(getattr(built, name), number, text, but=("launch",)) for name in ("base", "head")}
    kept = ("case", "kernel", "sizes", "status", "side", *changes, *sides)
    verdict = wild(replace(built, **changes, **sides), number, text, but=kept)
    made = review(card(verdict, driver=text, problem=text, left_out=(text,)), created_at=text)
    assert decode_review(encode(clipped(made))) == clipped(made)


def wild(record, number: float, text: str, but: Collection[str] = ()):
    names = [each.name for each in fields(record) if each.name not in but]
    return replace(record, **{name: extreme(getattr(record, name), number, text) for name in names})


def test_a_report_that_nobody_would_read_is_not_written():
    with pytest.raises(
        StoreError, match=r"regex .* - at `\$\.cards\[0\]\.cases\[0\]\.kernel`\. Give that another"
    ):
        encode(review(card(case("no-name"), places={}, twins=())))
