"""Values that Hypothesis makes up: records of every type, JSON, and documents with one value changed.

Tests take Hypothesis from here, and so get one profile: the same examples in every run, no deadline.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import os
import tempfile
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from hypothesis import HealthCheck, configuration, given, settings
from hypothesis import strategies as st

__all__ = ["JSON", "PLAIN", "given", "replaced", "settings", "st", "values"]

# Its table of characters. The checkout and the home folder may be closed to writing.
configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir(), f"hypothesis-{os.getuid()}"))
settings.register_profile(
    "tests",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=30,
    print_blob=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("tests")

PLAIN = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=20),
    types.NoneType: st.none(),
}
"""Values that JSON and a record hold alike, by type."""
_NO_RECORD_HOLDS = st.sampled_from([10**400, float("nan"), float("inf"), "\ud800"])
_NESTED = st.recursive(
    st.one_of(*PLAIN.values(), _NO_RECORD_HOLDS),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=9), below, max_size=3),
    max_leaves=6,
)
JSON = st.one_of(PLAIN[str], PLAIN[int] | PLAIN[float], _NO_RECORD_HOLDS, _NESTED)
"""Anything that Python's reader may find in a file of JSON."""


@functools.cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type; of a record's type, records whose every field is made up."""
    if kind in PLAIN:
        return PLAIN[kind]
    arguments = typing.get_args(kind)
    match typing.get_origin(kind):
        case types.UnionType | typing.Union:
            return st.one_of(*map(values, arguments))
        case typing.Literal:
            return st.sampled_from(arguments)
        case collections.abc.Mapping:
            return st.dictionaries(*map(values, arguments), max_size=2)
        case builtin if builtin is tuple:
            if arguments[-1] is ...:
                return st.lists(st.deferred(lambda: values(arguments[0])), max_size=2).map(tuple)
            return st.tuples(*map(values, arguments))
    assert dataclasses.is_dataclass(kind), kind
    hints, make = typing.get_type_hints(kind), cast("type", kind)
    return st.builds(make, **{each.name: values(hints[each.name]) for each in dataclasses.fields(kind)})


def replaced(document: Any, value: Any) -> Iterator[Any]:
    """The document of JSON again and again, each time with the value in place of another of its own."""
    for holder, key in list(_places(document)):
        own, holder[key] = holder[key], value
        yield document
        holder[key] = own


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or object of a document with each of its indices or keys."""
    if isinstance(document, dict | list):
        for key in range(len(document)) if isinstance(document, list) else list(document):
            yield document, key
            yield from _places(document[key])
