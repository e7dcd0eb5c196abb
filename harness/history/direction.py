"""Which way is better for one of asv's benchmarks; asv by itself takes every rise for a regression."""

from __future__ import annotations

__all__ = ["DIRECTIONS", "Direction", "direction_of"]

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

Direction: TypeAlias = Literal["higher", "lower", "none"]
"""Which figures are the better ones. "none": neither, the benchmark is there to explain others."""

DIRECTIONS: tuple[Direction, ...] = ("higher", "lower", "none")

# Only what nobody can mean otherwise: "GFLOPs" is also an amount of work, and faults/s had better be few.
_RATE = re.compile(
    r"[kKMGTPE]?FLOPS|IOPS|fps|FPS"
    r"|(?i:"
    r"(?:[kmgtpe]?flops?|(?:[kmgtpe]i?)?(?:b|bytes?|bits?)"
    r"|[kmgt]?(?:cell|edge|element|frame|image|item|iteration|message|op|operation|particle|pixel|point"
    r"|query|querie|record|request|row|sample|step|token|transaction|update)s?)"
    r"(?:/| per )s(?:ec(?:ond)?)?)"
)


def direction_of(benchmark: Mapping[str, Any]) -> Direction:
    """Which way is better for a benchmark as in benchmarks.json.

    Its attribute `direction` decides; without one, a track in an unmistakable rate counts as "higher", and
    everything else as "lower", which is what asv takes it for.
    """
    for direction in DIRECTIONS:
        if benchmark.get("direction") == direction:
            return direction
    unit = benchmark.get("unit")
    is_rate = benchmark.get("type") == "track" and isinstance(unit, str) and _RATE.fullmatch(unit.strip())
    return "higher" if is_rate else "lower"
