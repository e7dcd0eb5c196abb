"""Converts JSON and plain values to typed objects, from any thread.

msgspec analyses a type when it first decodes it, and caches the result. If two threads analyse one type at
the same time, the process crashes (a segmentation fault in msgspec 0.22). So all typed decoding of the
harness uses this module, where a lock allows one analysis at a time.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_looking = threading.Lock()


@overload
def decode(content: bytes | str, kind: type[T]) -> T: ...
@overload
def decode(content: bytes | str, kind: Any) -> Any: ...
def decode(content: bytes | str, kind: Any) -> Any:
    """Return JSON as an object of a type. Raises msgspec.DecodeError and its subclass ValidationError."""
    return decoder(kind).decode(content)


def convert(value: object, kind: type[T], *, strict: bool = True, from_attributes: bool = False) -> T:
    """Return a plain value as an object of a type, with the behaviour and errors of msgspec.convert."""
    decoder(kind)
    return msgspec.convert(value, kind, strict=strict, from_attributes=from_attributes)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type, or of a union of types."""
    with _looking:
        return _decoder(kind)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
