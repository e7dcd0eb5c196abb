"""Names why a kernel became slower, by the hardware counters of both sides.

The extra cycles of head are divided in two ways:

- By stall reason. `warp_cycles` counts the cycles in which warps were resident. Each stall counter holds the
  part of them in which warps waited for one reason.
- By busy unit: its share of its peak rate, times all cycles. A unit can bound the time only if it is busy
  most of the time.

A group joins the stalls and units of one kind of work. The extra cycles of a group are divided among the
amounts that grew, in proportion to their growth. The parts of one cause are added up. A cause is reported
only if its amount grew and if it explains at least a third of the extra cycles.

Warps wait at a barrier for the slowest of them. If head executes no more barriers than base, the cause is
what the slowest warp waits for. Then the cycles at barriers are divided like the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.records.types import Cause, CauseKind

Counters = Mapping[str, float]
"""Values by name, as in harness.device.counters."""

LEAST_SHARE = 1 / 3
_GREW = 0.05
"""Relative growth of an amount from which it can be a cause."""
_BOUND = 0.6
"""Share of its peak rate from which a unit may bound the time."""
_SEEN = 0.5
"""Share of the judged slowdown that must also appear under the profiler."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The stalls and units that belong to one kind of work."""

    stalls: tuple[str, ...]
    units: tuple[str, ...] = ()


_MEMORY = _Group(
    ("long_scoreboard", "lg_throttle", "tex_throttle", "drain", "membar"), ("dram", "l2", "l1_tag")
)
_QUEUE = _Group(("short_scoreboard", "mio_throttle"), ("l1_data",))
"""The queue of memory accesses, special functions and barriers (MIO), and the data stage of the L1 cache."""
_FETCH = _Group(("no_instruction", "branch_resolving", "imc_miss"))
_CHAIN = _Group(("wait",))
_INSTRUCTIONS = _Group(
    (
        "selected",
        "not_selected",
        "dispatch_stall",
        "math_pipe_throttle",
        "gmma",
        *_FETCH.stalls,
        *_CHAIN.stalls,
    ),
    ("issue", "fma", "alu", "fp64", "xu", "tensor"),
)
_BARRIER = "barrier"
_UNITS = (*_MEMORY.units, *_QUEUE.units, *_INSTRUCTIONS.units)


@dataclass(frozen=True, slots=True)
class _Grown:
    """An amount that grew from base to head, and may explain the time of a group."""

    kind: CauseKind
    growth: float
    """Growth relative to base. Amounts of one group divide its share by their growth."""
    message: str


def causes(base: Counters, head: Counters, slowdown: float) -> tuple[Cause, ...]:
    """Return the causes of a slowdown, the largest share first.

    Args:
        base: Counters of one launch of base, each a median of several.
        head: The same of head.
        slowdown: The judged effect, as a share of base's time. At 0 or below there is no cause.

    """
    sides = _Sides(base, head)
    if slowdown <= 0 or sides.extra <= _SEEN * slowdown * base.get("cycles", 0):
        return ()
    found = [*_of_queue(sides), *_of_instructions(sides)]
    found = [*_of_tensor_cores(sides, found), *_of_barriers(sides), *_of_occupancy(sides), *found]
    joined: dict[CauseKind, Cause] = {}
    for cause in sorted(found, key=lambda cause: -cause.share):
        first = joined.setdefault(cause.kind, cause)
        if first is not cause:
            joined[cause.kind] = replace(first, share=min(1.0, first.share + cause.share))
    told = (cause for cause in joined.values() if cause.share >= LEAST_SHARE)
    return tuple(sorted(told, key=lambda cause: -cause.share))


class _Sides:
    """Counters of both sides. A counter that one side lacks counts as 0 on both."""

    def __init__(self, base: Counters, head: Counters) -> None:
        known = base.keys() & head.keys()
        self._of = tuple({name: side[name] for name in known} for side in (base, head))
        self.extra = head.get("cycles", 0.0) - base.get("cycles", 0.0)
        self._elapsed = self.both("elapsed_cycles" if "elapsed_cycles" in known else "cycles")
        """Cycles that the shares of peak rates are of: those of the launch, and some before and after it."""
        waited = max(0.0, self._stalled(_BARRIER))
        barriers = self.both("adu_instructions")
        more_barriers = "adu_instructions" not in known or _growth(*barriers) >= _GREW
        self.others = self.extra - waited
        """Extra cycles that are not waits at barriers."""
        self.at_barriers = waited if more_barriers or self.others < LEAST_SHARE * self.extra else 0.0
        """Extra waits at barriers of which barriers are the cause."""

    def both(self, *names: str) -> tuple[float, float]:
        """Return the sum of these counters, of base and of head."""
        base, head = (sum(side.get(name, 0.0) for name in names) for side in self._of)
        return base, head

    def rose(self, *names: str) -> float:
        base, head = self.both(*names)
        return max(0.0, head - base)

    @property
    def multiprocessors(self) -> tuple[float, float]:
        """Return the number of multiprocessors that had work, of base and of head."""
        of = zip(self.both("warp_cycles"), self.both("warps"), self.both("cycles"), strict=True)
        base, head = (
            all_warps / (warps * cycles) if warps and cycles else 1.0 for all_warps, warps, cycles in of
        )
        return base, head

    def share(self, group: _Group) -> float:
        """Return the share of the extra cycles that a group's stalls, or its busiest unit, took."""
        stalled = sum(self._stalled(each) for each in group.stalls)
        if not self.at_barriers and self.others > 0:
            stalled *= self.extra / self.others
        busy = [self.busy(unit) for unit in group.units]
        extra = [head - base for base, head in busy if head >= _BOUND * self.both("cycles")[1]]
        return min(1.0, max(0.0, stalled, *extra) / self.extra)

    def _stalled(self, reason: str) -> float:
        """Return the extra cycles for which warps waited for a reason."""
        cycles, all_warps = self.both("cycles"), self.both("warp_cycles")
        waited = self.both(f"stalled_{reason}")
        base, head = (c * w / a if a else 0.0 for c, w, a in zip(cycles, waited, all_warps, strict=True))
        return head - base

    def busy(self, unit: str) -> tuple[float, float]:
        """Return the cycles that a unit would take at its peak rate, of base and of head."""
        base, head = (e * b / 100 for e, b in zip(self._elapsed, self.both(f"{unit}_busy"), strict=True))
        return base, head


def _divided(share: float, grown: Sequence[_Grown]) -> Iterator[Cause]:
    """Divide a group's share among the amounts that grew, by how much."""
    grown = [each for each in grown if each.growth >= _GREW]
    total = sum(each.growth for each in grown)
    for each in grown:
        yield Cause(kind=each.kind, share=share * each.growth / total, message=each.message)


_LINE_BYTES = 128
_LOADS, _STORES = ("load", "async"), ("store",)


def _of_memory(sides: _Sides, share: float) -> Iterator[Cause]:
    """Divide a share of the extra cycles among the amounts of device memory."""
    dram = sides.both("dram_read_bytes", "dram_written_bytes")
    local, atomic = ("local_load_requests", "local_store_requests"), ("atomic_requests", "reduction_requests")
    accesses = max(1.0, sides.both(*_named("requests", *_LOADS, *_STORES))[0])
    found = [
        _Grown(
            "local-memory",
            sides.rose(*local) / accesses,
            _from_to("accesses to local memory", *sides.both(*local)),
        ),
        _Grown("atomics", sides.rose(*atomic) / accesses, _from_to("atomic requests", *sides.both(*atomic))),
        _scattered(sides, "load", _LOADS),
        _scattered(sides, "store", _STORES),
        *_more_accesses(sides),
    ]
    hits, l2 = sides.both("l2_hit_rate"), sides.both("l2_sectors")
    # An atomic operation fetches its line, and local memory has lines of its own.
    own_lines = _LINE_BYTES * sides.rose(*local, *atomic) / max(1.0, dram[0])
    more_dram = _growth(*dram) - own_lines
    if more_dram >= _GREW and more_dram > 2 * _growth(*l2):
        message = (
            f"the L2 cache's hit rate fell from {hits[0]:.0f} to {hits[1]:.0f} %: "
            if hits[1] < hits[0]
            else ""
        )
        found.append(_Grown("cache-misses", more_dram, message + _from_to("bytes of DRAM", *dram)))
    if not any(each.growth >= _GREW for each in found) and not _is_less_occupied(sides):
        waits = "loads are waited for longer, though no more is moved: fewer are under way at a time"
        found.append(_Grown("exposed-latency", 1.0, waits))
    yield from _divided(share, found)


def _named(what: str, *kinds: str) -> list[str]:
    return [f"{kind}_{what}" for kind in kinds]


def _scattered(sides: _Sides, name: str, kinds: Sequence[str]) -> _Grown:
    """Return the growth of sectors that is due to more sectors a request."""
    all_sectors = max(1.0, sides.both(*_named("sectors", *_LOADS, *_STORES))[0])
    requests, sectors = (sides.both(*_named(what, *kinds)) for what in ("requests", "sectors"))
    base, head = (s / r if r else 0.0 for s, r in zip(sectors, requests, strict=True))
    more = (head - base) * min(requests) if base else 0.0
    message = f"sectors of a {name} request rose from {base:.3g} to {head:.3g}: addresses are further apart"
    return _Grown("uncoalesced", more / all_sectors, message)


def _more_accesses(sides: _Sides) -> Iterator[_Grown]:
    """Yield the growth of requests: as far as threads access more bytes, and as far as each has fewer.

    Where a card does not count the threads' bytes, the sectors stand in for them.
    """
    kinds = (*_LOADS, *_STORES)
    requests, bytes_moved = (sides.both(*_named(what, *kinds)) for what in ("requests", "bytes"))
    if not all(bytes_moved):
        bytes_moved = sides.both(*_named("sectors", *kinds))
    if not all(requests) or not all(bytes_moved):
        return
    more = _growth(*bytes_moved)
    narrower = _growth(*requests) - max(0.0, more)
    words = "requests to global memory"
    yield _Grown("more-accesses", min(more, _growth(*requests)), _from_to(words, *requests))
    yield _Grown("narrower-accesses", narrower, _from_to(f"{words}, each for fewer bytes", *requests))


def _of_queue(sides: _Sides) -> Iterator[Cause]:
    """Divide waits for the queue of memory accesses, special functions and barriers by its cycles.

    An access takes a cycle of the data stage for each of its wavefronts, and a special function two cycles.
    What accesses to device memory take of them counts as the waits for device memory do.
    """
    conflicts, wavefronts = sides.both("shared_conflicts"), sides.both("shared_wavefronts")
    ideal = tuple(w - c for w, c in zip(wavefronts, conflicts, strict=True))
    each = [c / i if i > 0 else 0.0 for c, i in zip(conflicts, ideal, strict=True)]
    multiprocessors = sides.multiprocessors
    every = tuple(
        max(w, n * b) for w, n, b in zip(wavefronts, multiprocessors, sides.busy("l1_data"), strict=True)
    )
    of = max(1.0, every[0])
    message = f"bank conflicts of a shared-memory access rose from {each[0]:.2g} to {each[1]:.2g}"
    special = 2 * sides.rose("xu_instructions")
    doubles = _doubles(sides, of, special)
    found = [
        _Grown("bank-conflicts", max(0.0, each[1] - each[0]) * ideal[1] / of, message),
        _Grown(
            "more-shared-accesses", (ideal[1] - ideal[0]) / of, _from_to("accesses to shared memory", *ideal)
        ),
        doubles,
    ]
    if not doubles.growth:
        words = "instructions of special functions and conversions"
        found.append(
            _Grown("more-instructions", special / of, _from_to(words, *sides.both("xu_instructions")))
        )
    if sides.at_barriers:
        found.append(_Grown("barriers", sides.rose("adu_instructions") / of, _AT_BARRIERS))
    device = max(0.0, (every[1] - wavefronts[1]) - (every[0] - wavefronts[0])) / of
    grown = [one for one in found if one.growth >= _GREW]
    waited = sides.share(_QUEUE)
    if not grown and device < _GREW:
        device = every[1] - wavefronts[1]
        if not _is_less_occupied(sides):
            waits = "reads of shared memory are waited for longer, though no more is read"
            grown = [_Grown("exposed-latency", max(_GREW, wavefronts[1]), waits)]
    total = device + sum(one.growth for one in grown)
    of_device = waited * device / total if total else 0.0
    yield from _divided(waited - of_device, grown)
    yield from _of_memory(sides, min(1.0, sides.share(_MEMORY) + of_device))


def _doubles(sides: _Sides, of: float, conversions: float) -> _Grown:
    """Return the growth of float64 instructions, with their conversions, relative to an amount of base."""
    doubles = sides.both("fp64_instructions")
    more = max(0.0, doubles[1] - doubles[0])
    growth = (more + conversions) / of if more else 0.0
    return _Grown("double-precision", growth, _from_to("float64 instructions", *doubles))


def _of_instructions(sides: _Sides) -> Iterator[Cause]:
    """Instructions take issue slots and pipes: those of local memory and float64, and all others."""
    instructions = sides.both("instructions")
    local = ("local_load_requests", "local_store_requests")
    spills = sides.rose(*local) / max(1.0, instructions[0])
    doubles = _doubles(sides, max(1.0, instructions[0]), sides.rose("xu_instructions"))
    rest = _growth(*instructions) - spills - doubles.growth
    found = [
        _Grown("local-memory", spills, _from_to("accesses to local memory", *sides.both(*local))),
        doubles,
        _Grown("more-instructions", rest, _from_to("instructions", *instructions)),
    ]
    yield from _divided(sides.share(_INSTRUCTIONS), found)
    if not any(each.growth >= _GREW for each in found):
        waits = "instructions wait longer for the results of those before: a longer chain, or fewer at a time"
        yield Cause("dependencies", sides.share(_CHAIN), waits)
        fetch = "warps wait longer for their next instruction: the code no longer fits its cache"
        yield Cause("instruction-fetch", sides.share(_FETCH), fetch)


def _of_tensor_cores(sides: _Sides, others: Sequence[Cause]) -> Iterator[Cause]:
    """Other instructions do what the tensor cores did before, each with operands of its own.

    So all growth of work has this cause. HFMA2 on tensor cores is not a matrix product.
    """
    hfma2 = sides.both("tensor_hfma2")
    tensor = tuple(t - h for t, h in zip(sides.both("tensor_instructions"), hfma2, strict=True))
    busy = sides.busy("tensor")
    if tensor[0] > 0 and tensor[1] < tensor[0] / 2 and busy[1] <= busy[0] / 2:
        share = sum(each.share for each in others if each.kind != "exposed-latency")
        yield Cause("tensor-cores-unused", min(1.0, share), _from_to("instructions of tensor cores", *tensor))


_AT_BARRIERS = "warps wait longer for one another at barriers"


def _of_barriers(sides: _Sides) -> Iterator[Cause]:
    share = min(1.0, sides.at_barriers / sides.extra)
    yield Cause("barriers", share, _AT_BARRIERS)


def _is_less_occupied(sides: _Sides) -> bool:
    base, head = sides.both("warps")
    return head < (1 - _GREW) * base


def _of_occupancy(sides: _Sides) -> Iterator[Cause]:
    """By Little's law: with latency unchanged, fewer warps do proportionally less at a time.

    Then the busiest unit also has less to do at a time.
    """
    base, head = sides.both("warps")
    rates = [zip(sides.busy(unit), sides.both("cycles"), strict=True) for unit in _UNITS]
    busiest = [
        max(each) for each in zip(*([b / c if c else 0.0 for b, c in rate] for rate in rates), strict=True)
    ]
    if not _is_less_occupied(sides) or head <= 0 or busiest[1] > busiest[0]:
        return
    if _growth(*sides.both("instructions")) < _GREW:
        longer = sides.both("cycles")[0] * (base / head - 1)
        message = f"warps on a multiprocessor fell from {base:.1f} to {head:.1f}"
        yield Cause("occupancy", min(1.0, longer / sides.extra), message)


def _growth(base: float, head: float) -> float:
    """Return the relative growth of an amount; 1 if it grew from zero."""
    return (head - base) / base if base > 0 else float(head > 0)


def _from_to(what: str, base: float, head: float) -> str:
    return (
        f"{what} rose from {base:,.0f} to {head:,.0f}"
        if head >= base
        else f"{what} fell from {base:,.0f} to {head:,.0f}"
    )
