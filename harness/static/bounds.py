"""The shortest time that a kernel could take on a card that is not here. A bound, and never a measurement.

Three things are counted, each as if nothing else took time:

- arithmetic: the problem's operations at the card's peak for their type;
- memory: what has to cross between device memory and a cold L2, at the memory's full rate;
- issue slots: each of a multiprocessor's four schedulers issues one instruction a cycle, and the hottest loop
  has so many instructions for each that does the problem's multiply-adds.

Left out, and each only makes a kernel slower: latency that too few warps hide, bank conflicts, uncoalesced
accesses, waves that are not full, prologues and epilogues, and clocks below the highest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.device.peaks import peaks
from harness.records import DeviceInfo
from harness.static.occupancy import Card
from harness.static.sass import Instructions

By = Literal["arithmetic", "memory", "issue slots"]
_SCHEDULERS = 4
_LANES = 32
_MULTIPLY_ADDS = {"FFMA": 2, "FFMA2": 4}
"""Operations of one thread; of what tensor cores do, the peak says enough."""


@dataclass(frozen=True, slots=True)
class Bound:
    time_ns: float
    by: By


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a case has to do, whatever its kernel."""

    flop: int | None
    read_bytes: int
    written_bytes: int
    dtype: str


def bound(card: Card, work: Work, instructions: Instructions | None) -> Bound | None:
    """None where the card's clocks are not known."""
    if card.clock_mhz is None or card.memory_gbytes_per_s is None:
        return None
    crossing = work.read_bytes + max(0, work.written_bytes - card.l2_bytes)
    found: dict[By, float] = {"memory": crossing / card.memory_gbytes_per_s}
    peak = peaks(_device(card), card.clock_mhz).get(work.dtype)
    if work.flop and peak:
        found["arithmetic"] = work.flop / peak
    if work.flop and work.dtype == "float32" and instructions and instructions.hottest:
        slots = _slots(instructions.hottest.kinds, instructions.hottest.count, work.flop)
        found["issue slots"] = slots / (_SCHEDULERS * card.multiprocessors * card.clock_mhz / 1e3)
    by = max(found, key=lambda each: found[each])
    return Bound(found[by], by)


def _slots(kinds: Mapping[str, int], count: int, flop: int) -> float:
    """Instructions of all warps, if all multiply-adds were those of the hottest loop; 0 where it has none."""
    done = _LANES * sum(flop_each * kinds.get(kind, 0) for kind, flop_each in _MULTIPLY_ADDS.items())
    return flop / done * count if done else 0.0


def _device(card: Card) -> DeviceInfo:
    """As far as peaks ask."""
    return DeviceInfo(
        spec="",
        backend="cuda",
        name=card.name,
        vendor="NVIDIA",
        driver="",
        kind="gpu",
        arch=card.arch,
        compute_capability=card.capability,
        compute_units=card.multiprocessors,
        memory_bytes=None,
        max_threads_per_block=1024,
        max_block=(1024, 1024, 64),
        max_grid=(2**31 - 1, 65_535, 65_535),
        max_shared_bytes=card.holds.shared_bytes_a_block,
    )
