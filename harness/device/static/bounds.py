"""The shortest time that a kernel could take on a card that is not here. A bound, and never a measurement.

Each of these is counted as if nothing else took time, and the longest is the bound:

- arithmetic: the problem's operations at the card's peak for their type, for float32 that of TF32 unless the
  kernel's code is known and multiplies no matrices by tensor cores;
- memory: what has to cross between device memory and the L2, which is cold unless it is said to be hot, at
  the memory's full rate;
- issue slots: each of a multiprocessor's four schedulers issues one instruction a cycle, and the hottest loop
  has so many instructions for each that does the problem's multiply-adds;
- load/store units: of these instructions a multiprocessor takes one a cycle that reads or writes shared or
  device memory, from all four schedulers together.

All but memory are at the card's highest clock, and of the grid's busiest multiprocessor, which has the most
blocks where these do not divide evenly. One warp issues no more than one instruction a cycle.

Assumed: blocks do equal work, all of the problem's operations are those of the hottest loop, and the problem
needs as many as it says. A kernel of which only its work is known, such as a vendor's, has the first two.

Left out, and each only makes a kernel slower: latency that too few warps hide, bank conflicts, uncoalesced
accesses, the L2's own rate, prologues and epilogues, launching, and clocks below the highest.
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
"""Products of matrices on tensor cores whose edges are in the name; the peak bounds all others."""


@dataclass(frozen=True, slots=True)
class Bound:
    time_ns: float
    by: By


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseWork:
    """Work of a case, for any kernel."""

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
        """The share of the work that the busiest multiprocessor does."""
        blocks = prod(self.launch.grid)
        return ceil(blocks / card.multiprocessors) / blocks

    def schedulers(self, card: CardModel) -> int:
        """Schedulers of one multiprocessor that have a warp."""
        at_once = min(self.resident_blocks, ceil(prod(self.launch.grid) / card.multiprocessors))
        return max(1, min(_SCHEDULERS, at_once * ceil(prod(self.launch.block) / WARP)))


def bound(
    card: CardModel,
    work: CaseWork,
    instructions: Instructions | None = None,
    spread: Spread | None = None,
    l2: L2Policy = "cold",
) -> Bound | None:
    """Return the bound; None without known clocks. Without a `spread` all multiprocessors work alike."""
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
    """Turns of the hottest loop by all warps, if it did all operations; 0 if it does none that are known."""
    done = 0
    for kind, count in kinds.items():
        product = _PRODUCT.match(kind)
        done += count * (2 * prod(map(int, product.groups())) if product else _MULTIPLY_ADDS.get(kind, 0))
    return flop / done if done else 0.0
