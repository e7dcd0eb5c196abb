"""The form of a judgement, and what several of them share."""

from __future__ import annotations

__all__ = ["Judge", "Status", "Told", "gib", "unknown"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.doctor.facts import Facts

Status = Literal["good", "note", "warn", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Told:
    """A status, what was found with its unit, and what to do about it."""

    status: Status
    found: str
    advice: str = ""


Judge = Callable[[Facts], "Told | None"]
"""None where the line does not apply."""


def unknown(why: str) -> Told:
    return Told("unknown", f"not told: {why}" if why else "not told")


def gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
