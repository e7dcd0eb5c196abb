"""Occupancy: the blocks that a card holds at once, and the waves in which a grid runs.

The limits are those of the CUDA C++ Programming Guide, table "Technical Specifications per Compute
Capability". Registers and shared memory are allocated as in the toolkit's cuda_occupancy.h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

from harness.errors import UsageError
from harness.records.types import DeviceInfo, Launch
from harness.suite.device_facts import DeviceFacts, facts_of
from harness.suite.problem import ceil_div

WARP = 32
_MIB = 2**20
_FILE = "harness/device/static/occupancy.py"
REGISTERS = 65_536
"""Registers of a multiprocessor. Its four parts share no registers."""
THREADS_A_BLOCK = 1024
_PARTS = 4
_REGISTERS_AT_ONCE = 256
"""Registers are allocated to warps in multiples of this."""


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Limits of one multiprocessor of a compute capability."""

    threads: int
    blocks: int
    shared_bytes: int
    shared_bytes_a_block: int
    reserved_bytes: int = 1024
    """Shared memory of each block that the system uses."""
    shared_at_once: int = 128


CAPABILITIES: Mapping[tuple[int, int], Multiprocessor] = {
    (7, 0): Multiprocessor(2048, 32, 96 * 1024, 96 * 1024, 0, 256),
    (7, 5): Multiprocessor(1024, 16, 64 * 1024, 64 * 1024, 0, 256),
    (8, 0): Multiprocessor(2048, 32, 164 * 1024, 163 * 1024),
    (8, 6): Multiprocessor(1536, 16, 100 * 1024, 99 * 1024),
    (8, 7): Multiprocessor(1536, 16, 164 * 1024, 163 * 1024),
    (8, 9): Multiprocessor(1536, 24, 100 * 1024, 99 * 1024),
    (9, 0): Multiprocessor(2048, 32, 228 * 1024, 227 * 1024),
    (10, 0): Multiprocessor(2048, 32, 228 * 1024, 227 * 1024),
    (10, 3): Multiprocessor(2048, 32, 228 * 1024, 227 * 1024),
    (12, 0): Multiprocessor(1536, 24, 100 * 1024, 99 * 1024),
    (12, 1): Multiprocessor(1536, 24, 100 * 1024, 99 * 1024),
}


@dataclass(frozen=True, slots=True)
class CardModel:
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_mhz: float | None = None
    """Highest specified clock; None if unknown, as for the next two."""
    memory_gbytes_per_s: float | None = None
    l2_bytes: int = 0

    @property
    def arch(self) -> str:
        """Return the architecture, such as ``sm_86``."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def holds(self) -> Multiprocessor:
        return CAPABILITIES[self.capability]

    @property
    def device(self) -> DeviceInfo:
        """Return it in a backend's form, as far as CAPABILITIES know it."""
        holds = CAPABILITIES.get(self.capability)
        return DeviceInfo(
            spec="",
            backend="cuda",
            name=self.name,
            vendor="NVIDIA",
            driver="",
            kind="gpu",
            arch=self.arch,
            compute_capability=self.capability,
            compute_units=self.multiprocessors,
            memory_bytes=None,
            max_threads_per_block=THREADS_A_BLOCK,
            max_block=(THREADS_A_BLOCK, THREADS_A_BLOCK, 64),
            max_grid=(2**31 - 1, 65_535, 65_535),
            max_shared_bytes=holds.shared_bytes_a_block if holds else 0,
            warp_size=WARP,
            max_threads_per_sm=holds.threads if holds else None,
            registers_per_sm=REGISTERS,
            shared_bytes_per_sm=holds.shared_bytes if holds else None,
        )

    @property
    def facts(self) -> DeviceFacts:
        """Facts that a kernel's grid and block may use."""
        return facts_of(self.device)


CARDS: Mapping[str, CardModel] = {
    "rtx3060": CardModel("GeForce RTX 3060", (8, 6), 28, 1777, 360, 3 * _MIB),
    "a6000": CardModel("RTX A6000", (8, 6), 84, 1800, 768, 6 * _MIB),
    "a10": CardModel("A10", (8, 6), 72, 1695, 600, 6 * _MIB),
    "a100": CardModel("A100", (8, 0), 108, 1410, 1555, 40 * _MIB),
    "rtx4090": CardModel("GeForce RTX 4090", (8, 9), 128, 2520, 1008, 72 * _MIB),
    "rtx5090": CardModel("GeForce RTX 5090", (12, 0), 170, 2407, 1792, 96 * _MIB),
    "h100": CardModel("H100 SXM", (9, 0), 132, 1980, 3352, 50 * _MIB),
    "h200": CardModel("H200", (9, 0), 132, 1980, 4800, 60 * _MIB),
}
"""Cards by the words of `--card`, from NVIDIA's white papers of GA102, GA100, AD102, GB202 and GH100.

Boost clock, memory and L2 come from data sheets. GeForce cards of other makers, and overclocked cards, are
faster. Clock and L2 of H100 and H200 come from the driver. The A100 is the one with 40 GB.
"""


def card(text: str) -> CardModel:
    """Return ``rtx3060``, or any card by capability and multiprocessors: ``sm_86:28``. Raises UsageError."""
    if named := CARDS.get(text.lower().replace(" ", "").replace("-", "")):
        return named
    match = re.fullmatch(r"sm_(\d{1,2})(\d)[a-z]?:(\d{1,3})", text)
    if match is None or not int(match[3]):
        raise UsageError(
            f"{text!r} is no card that is known: {', '.join(CARDS)}. Any other is named by its compute "
            "capability and its number of multiprocessors, such as sm_86:28; both are in its white paper. "
            f"CARDS in {_FILE} is where to add it by name."
        )
    capability = int(match[1]), int(match[2])
    if capability not in CAPABILITIES:
        listed = ", ".join(f"sm_{major}{minor}" for major, minor in CAPABILITIES)
        raise UsageError(
            f"{text!r} has a compute capability whose limits are not known; expected one of {listed}. "
            f"CAPABILITIES in {_FILE} is where to add it, from the CUDA C++ Programming Guide."
        )
    return CardModel(text, capability, int(match[3]))


@dataclass(frozen=True, slots=True)
class Residency:
    blocks: int
    """Blocks that one multiprocessor holds at once; 0 if not even one fits."""
    occupancy: float
    """Resident warps, over those that a multiprocessor can hold."""
    limit: str
    """Resource that limits the blocks: threads, blocks, registers or shared memory."""
    waves: float
    """Number of times that the card is filled until the grid is done, with a fraction for a partial last
    wave."""

    @property
    def last_wave(self) -> float:
        """Return the filled share of the last wave."""
        return self.waves - ceil(self.waves) + 1


def residency(card: CardModel, launch: Launch, registers: int, static_shared_bytes: int) -> Residency:
    """Return how many blocks of a launch a card holds, by the kernel's registers and memory."""
    holds = card.holds
    warps = ceil(prod(launch.block) / WARP)
    a_warp = ceil_div(registers * WARP, _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    asked = static_shared_bytes + launch.dynamic_shared_bytes + holds.reserved_bytes
    shared = ceil_div(asked, holds.shared_at_once) * holds.shared_at_once
    limits = {
        "threads": holds.threads // WARP // warps,
        "blocks": holds.blocks,
        "registers": REGISTERS // _PARTS // a_warp * _PARTS // warps if a_warp else holds.blocks,
        "shared memory": holds.shared_bytes // shared if shared else holds.blocks,
    }
    if shared - holds.reserved_bytes > holds.shared_bytes_a_block:
        limits["shared memory"] = 0
    limit, blocks = min(limits.items(), key=lambda item: item[1])
    waves = prod(launch.grid) / (blocks * card.multiprocessors) if blocks else 0.0
    return Residency(blocks, blocks * warps * WARP / holds.threads, limit, waves)
