"""Documents on disk, twice: for the pages, which cannot fetch where they are opened from a disk, and for
programs.
"""

from __future__ import annotations

__all__ = ["COMMITS_A_FILE", "EVERY", "SCHEMA_VERSION", "Numbers", "Rows", "Site", "file_name"]

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from harness.errors import StoreError
from harness.system.cache import write_atomically

SCHEMA_VERSION = 1
"""Of every document; raised when a page or program that knows the older one would read it wrongly."""
COMMITS_A_FILE = 128
EVERY = 64
"""Commits between two whose times the first document has, and in a file of figures by commit."""

Array = npt.NDArray[Any]
_DTYPES = {"f32": "<f4", "u32": "<u4", "u16": "<u2", "u8": "<u1"}


class Numbers:
    """Many numbers of one kind: base64 for the pages, a list for programs. NaN is no figure."""

    # No dataclass: msgspec would take it apart by itself.
    def __init__(self, values: Array, kind: Literal["f32", "u32", "u16", "u8"] = "f32") -> None:
        self.values, self.kind = values, kind

    def packed(self) -> dict[str, Any]:
        """As the pages read them. Whole numbers that move little are kept as first value and differences, of
        one byte or all the same: most of a page is numbers.
        """
        if self.kind == "f32":
            return {"t": "f32", "d": _base64(self.values.astype("<f4"))}
        whole = self._whole()
        steps = np.diff(whole.astype(np.int64))
        if steps.size and (steps == steps[0]).all():
            return {"t": self.kind, "n": whole.size, "first": int(whole[0]), "step": int(steps[0])}
        if steps.size and np.abs(steps).max() <= np.iinfo(np.int8).max:
            return {"t": self.kind, "first": int(whole[0]), "steps": _base64(steps.astype(np.int8))}
        return {"t": self.kind, "d": _base64(whole)}

    def _whole(self) -> Array:
        dtype, values = np.dtype(_DTYPES[self.kind]), self.values
        if values.dtype.kind == "f":
            largest = np.iinfo(dtype).max
            values = np.where(np.isfinite(values), np.clip(np.rint(values), 0, largest - 1), largest)
        return values.astype(dtype)

    def plain(self) -> list[Any]:
        if self.values.dtype.kind != "f":
            whole: list[Any] = self.values.tolist()
            return whole
        values = _rounded(self.values.astype(np.float64))
        return [value if value == value else None for value in values.tolist()]  # noqa: PLR0124 - NaN


class Rows:
    """Many objects with the same keys: for the pages the keys once, for programs as they are."""

    def __init__(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self.objects = objects

    def packed(self) -> dict[str, Any]:
        keys = list(self.objects[0]) if self.objects else []
        return {"keys": keys, "rows": [[each[key] for key in keys] for each in self.objects]}

    def plain(self) -> list[Any]:
        return list(self.objects)


def _base64(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Six significant digits: what single precision and a glance can tell apart."""
    sizes = np.abs(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.where(sizes > 0, 5 - np.floor(np.log10(np.where(sizes > 0, sizes, 1))), 0)
        scale = 10.0**digits
        return np.where(np.isfinite(values), np.round(values * scale) / scale, np.nan)


@dataclass(frozen=True, slots=True)
class Site:
    """The folder of the pages."""

    folder: Path

    def write(self, name: str, document: Any, *, api: bool = True) -> None:
        """Write a document by its name. Raises StoreError where it cannot be written."""
        packed = msgspec.json.encode(document, enc_hook=lambda value: value.packed())
        # Scripts once did not allow two line ends that JSON does, and what they hold may end up in a page.
        for unsafe, safe in ((b"</", b"<\\/"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029")):
            packed = packed.replace(unsafe, safe)
        call = b"harness.data(%s, %s);\n" % (msgspec.json.encode(name), packed)
        self.put(f"data/{name}.js", call)
        if api:
            self.write_json(f"api/{name}.json", document)

    def write_json(self, name: str, document: Any) -> None:
        self.put(name, msgspec.json.encode(document, enc_hook=lambda value: value.plain()) + b"\n")

    def put(self, name: str, content: bytes) -> None:
        path = self.folder / name
        try:
            write_atomically(path, content, durable=False)
        except OSError as error:
            raise StoreError(
                f"Cannot write {path}: {error.strerror or error}. Publish again once there is room; what was "
                "published before may be mixed with what is new."
            ) from None

    def remove(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"Cannot remove {self.folder / name}: {error.strerror or error}.") from None


def file_name(text: str) -> str:
    """A name for a file and a URL: the text itself where that will do, else with a digest of it."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")
    if plain == text and 0 < len(text) <= 80:
        return text
    return f"{plain[:60]}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}".strip("-")
