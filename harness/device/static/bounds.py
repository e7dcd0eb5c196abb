"""A lower bound of a kernel's time on a card that need not be present. It is never a measurement.

Each of these is computed as if nothing else took time, and the longest is the bound:

- Arithmetic: the problem's operations at the card's peak for their type. For float32 it is TF32's peak,
  unless the kernel's code is known and multiplies no matrices on tensor cores.
- Memory: the bytes that have to cross between device memory and the L2, at full rate. The L2 is cold unless
  it is said to be hot.
- Issue slots: each of a multiprocessor's four schedulers issues one instruction a cycle. The hottest loop has
  a certain number of instructions for each that does the problem's multiply-adds.
- Load/store units: of instructions that read or write shared or device memory, a multiprocessor takes one a
  cycle, from all four schedulers together.

All except memory are at the card's highest clock, for the busiest multiprocessor, which has the most blocks
if these do not divide evenly. One warp issues at most one instruction a cycle.

It assumes that blocks do equal work, that all of the problem's operations are those of the hottest loop, and
that the problem needs as many as it declares. For a kernel of which only the work is known, such as a
vendor's, only the first two bounds apply.

It ignores latency that too few warps hide, bank conflicts, uncoalesced accesses, the L2's own rate, prologues
and epilogues, launching, and lower clocks. Each of these only makes a kernel slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from harness.device.peaks import fastest_unit, peaks
from harness.device.static.occupancy import WARP, CardModel
from harness.device.static.sass import LOADS_AND_STORES, Instructions
from harness.records.types import L2Policy, Launch

By = Literal["arithmetic", "memory", "issue slots", "load/store units"]
_SCHEDULERS = 4
_MULTIPLY_ADDS = {"FFMA": 2 * WARP, "FFMA2": 4 * WARP, "HFMA2": 4 * WARP}
"""Operations of one instruction of a warp."""
_PRODUCT = re.compile(r"HMMA\.(16)(8)(8|16)\Z")
"""Matrix products on tensor cores with the edges in the name. The peak bounds all others."""


@dataclass(frozen=True, slots=True)
class Bound:
    time_ns: float
    by: By


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseWork:
    """Work of a case, independent of the kernel."""

    flop: int | None
    read_bytes: int
    written_bytes: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Spread of a launch over a card."""

    launch: Launch
    resident_blocks: int
    """Blocks that one multiprocessor holds at once."""

    def busiest(self, card: CardModel) -> float:
        """Return the share of the work of the busiest multiprocessor."""
        blocks = prod(self.launch.grid)
        return ceil(blocks / card.multiprocessors) / blocks

    def schedulers(self, card: CardModel) -> int:
        """Return the schedulers of one multiprocessor that have a warp."""
        at_once = min(self.resident_blocks, ceil(prod(self.launch.grid) / card.multiprocessors))
        return max(1, min(_SCHEDULERS, at_once * ceil(prod(self.launch.block) / WARP)))


def bound(
    card: CardModel,
    work: CaseWork,
    instructions: Instructions | None = None,
    spread: Spread | None = None,
    l2: L2Policy = "cold",
) -> Bound | None:
    """Return the bound; None without known clocks. Without a `spread`, all multiprocessors have
    equal work.
    """
    if card.clock_mhz is None or card.memory_gbytes_per_s is None:
        return None
    crossing = work.read_bytes + max(0, work.written_bytes - card.l2_bytes)
    if l2 == "hot":
        crossing = max(0, work.read_bytes + work.written_bytes - card.l2_bytes)
    found: dict[By, float] = {"memory": crossing / card.memory_gbytes_per_s}
    share = spread.busiest(card) if spread else 1 / card.multiprocessors
    known = peaks(card.device, card.clock_mhz)
    may_use_tensor_cores = instructions is None or any("MMA" in kind for kind in instructions.kinds)
    peak = known.get(fastest_unit(card.device, known, work.dtype) if may_use_tensor_cores else work.dtype)
    if work.flop and peak:
        found["arithmetic"] = work.flop * share * card.multiprocessors / peak
    if work.flop and instructions and instructions.hottest:
        turns = _turns(instructions.hottest.kinds, work.flop) * share
        every, kinds = instructions.hottest.count, instructions.hottest.kinds
        moving = sum(count for kind, count in kinds.items() if kind.partition(".")[0] in LOADS_AND_STORES)
        cycle_ns = 1e3 / card.clock_mhz
        found["issue slots"] = turns * every / (spread.schedulers(card) if spread else _SCHEDULERS) * cycle_ns
        found["load/store units"] = turns * moving * cycle_ns
    by = max(found, key=found.__getitem__)
    return Bound(found[by], by)


def _turns(kinds: Mapping[str, int], flop: int) -> float:
    """Return the iterations of the hottest loop by all warps, if it did all operations; 0 if it does no known
    ones.
    """
    done = 0
    for kind, count in kinds.items():
        product = _PRODUCT.match(kind)
        done += count * (2 * prod(map(int, product.groups())) if product else _MULTIPLY_ADDS.get(kind, 0))
    return flop / done if done else 0.0
