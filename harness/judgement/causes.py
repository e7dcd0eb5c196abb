"""Names why a kernel became slower, by the hardware counters of both sides.

The extra cycles of head are divided in two ways:

- By stall reason. `warp_cycles` counts the cycles in which warps were resident. Each stall counter holds the
  part of them in which warps waited for one reason.
- By busy unit: its share of its peak rate, times all cycles. A unit can bound the time only if it is busy
  most of the time.

A group joins the stalls and units of one kind of work. The extra cycles of a group are divided among the
amounts that grew. A cause is reported only if its amount grew and if it explains at least a third of the
extra cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
_SHARED = _Group(("short_scoreboard", "mio_throttle"), ("l1_data",))
_ARITHMETIC = _Group(("math_pipe_throttle", "gmma"), ("fma", "alu", "fp64", "xu", "tensor"))
_ISSUE = _Group(("selected", "not_selected", "dispatch_stall"), ("issue",))
_BARRIER = _Group(("barrier",))
_CHAIN = _Group(("wait",))
_FETCH = _Group(("no_instruction", "branch_resolving", "imc_miss"))


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
    found = [*_of_memory(sides), *_of_shared(sides), *_of_arithmetic(sides), *_of_instructions(sides)]
    found += [*_of_waits(sides), *_of_occupancy(sides)]
    largest: dict[CauseKind, Cause] = {}
    for cause in sorted(found, key=lambda cause: -cause.share):
        if cause.share >= LEAST_SHARE:
            largest.setdefault(cause.kind, cause)
    return tuple(largest.values())


class _Sides:
    """Counters of both sides. A counter that one side lacks counts as 0 on both."""

    def __init__(self, base: Counters, head: Counters) -> None:
        known = base.keys() & head.keys()
        self._of = tuple({name: side[name] for name in known} for side in (base, head))
        self.extra = head.get("cycles", 0.0) - base.get("cycles", 0.0)
        self._elapsed = self.both("elapsed_cycles" if "elapsed_cycles" in known else "cycles")
        """Cycles that the shares of peak rates are of: those of the launch, and some before and after it."""

    def both(self, *names: str) -> tuple[float, float]:
        """Return the sum of these counters, of base and of head."""
        base, head = (sum(side.get(name, 0.0) for name in names) for side in self._of)
        return base, head

    def rose(self, *names: str) -> float:
        base, head = self.both(*names)
        return max(0.0, head - base)

    def share(self, group: _Group) -> float:
        """Return the share of the extra cycles that a group's stalls, or its busiest unit, took."""
        stalled = sum(self._stalled(each) for each in group.stalls)
        busy = [self._busy(unit) for unit in group.units]
        return min(1.0, max(0.0, stalled, *busy) / self.extra)

    def _stalled(self, reason: str) -> float:
        """Return the extra cycles for which warps waited for a reason."""
        cycles, all_warps = self.both("cycles"), self.both("warp_cycles")
        waited = self.both(f"stalled_{reason}")
        base, head = (c * w / a if a else 0.0 for c, w, a in zip(cycles, waited, all_warps, strict=True))
        return head - base

    def _busy(self, unit: str) -> float:
        """Return the extra cycles in which a unit was busy; 0 where it does not bound head's time."""
        base, head = (e * b / 100 for e, b in zip(self._elapsed, self.both(f"{unit}_busy"), strict=True))
        return head - base if head >= _BOUND * self.both("cycles")[1] else 0.0


def _divided(sides: _Sides, group: _Group, grown: Sequence[_Grown]) -> Iterator[Cause]:
    """Divide a group's share among the amounts that grew, by how much."""
    grown = [each for each in grown if each.growth >= _GREW]
    total = sum(each.growth for each in grown)
    share = sides.share(group)
    for each in grown:
        yield Cause(kind=each.kind, share=share * each.growth / total, message=each.message)


_LOADS_AND_STORES = ("load", "store")


def _of_memory(sides: _Sides) -> Iterator[Cause]:
    requests = sides.both("load_requests", "store_requests")
    sectors = sides.both("load_sectors", "store_sectors")
    dram = sides.both("dram_read_bytes", "dram_written_bytes")
    local, atomic = ("local_load_requests", "local_store_requests"), ("atomic_requests", "reduction_requests")
    accesses = max(1.0, requests[0])
    found = [
        _Grown(
            "local-memory",
            sides.rose(*local) / accesses,
            _from_to("accesses to local memory", *sides.both(*local)),
        ),
        _Grown("atomics", sides.rose(*atomic) / accesses, _from_to("atomic requests", *sides.both(*atomic))),
        *(_scattered(sides, name, max(1.0, sectors[0])) for name in _LOADS_AND_STORES),
    ]
    more = _growth(*requests)
    if more >= _GREW:
        narrow = _growth(*sectors) < more / 2
        words = "requests to global memory" + (", each for fewer bytes" if narrow else "")
        kind: CauseKind = "narrower-accesses" if narrow else "more-accesses"
        found.append(_Grown(kind, more, _from_to(words, *requests)))
    hits, l2 = sides.both("l2_hit_rate"), sides.both("l2_sectors")
    more_dram = _growth(*dram)
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
    yield from _divided(sides, _MEMORY, found)


def _scattered(sides: _Sides, name: str, all_sectors: float) -> _Grown:
    """Return the growth of sectors that is due to more sectors a request."""
    requests, sectors = sides.both(f"{name}_requests"), sides.both(f"{name}_sectors")
    base, head = (s / r if r else 0.0 for s, r in zip(sectors, requests, strict=True))
    more = (head - base) * min(requests) if base else 0.0
    message = f"sectors of a {name} request rose from {base:.3g} to {head:.3g}: addresses are further apart"
    return _Grown("uncoalesced", more / all_sectors, message)


def _of_shared(sides: _Sides) -> Iterator[Cause]:
    conflicts, wavefronts = sides.both("shared_conflicts"), sides.both("shared_wavefronts")
    ideal = tuple(w - c for w, c in zip(wavefronts, conflicts, strict=True))
    each = [c / i if i > 0 else 0.0 for c, i in zip(conflicts, ideal, strict=True)]
    all_base = max(1.0, wavefronts[0])
    message = f"bank conflicts of a shared-memory access rose from {each[0]:.2g} to {each[1]:.2g}"
    found = [
        _Grown("bank-conflicts", max(0.0, each[1] - each[0]) * ideal[1] / all_base, message),
        _Grown(
            "more-shared-accesses",
            (ideal[1] - ideal[0]) / all_base,
            _from_to("accesses to shared memory", *ideal),
        ),
    ]
    yield from _divided(sides, _SHARED, found)


def _of_arithmetic(sides: _Sides) -> Iterator[Cause]:
    doubles, tensor = sides.both("fp64_instructions"), sides.both("tensor_instructions")
    instructions = max(1.0, sides.both("instructions")[0])
    found = [
        _Grown(
            "double-precision",
            (doubles[1] - doubles[0]) / instructions,
            _from_to("float64 instructions", *doubles),
        )
    ]
    yield from _divided(sides, _ARITHMETIC, found)
    if tensor[0] > 0 and tensor[1] < tensor[0] / 2:
        share = max(map(sides.share, (_ARITHMETIC, _ISSUE)))
        yield Cause("tensor-cores-unused", share, _from_to("instructions of tensor cores", *tensor))


def _of_instructions(sides: _Sides) -> Iterator[Cause]:
    instructions = sides.both("instructions")
    more = _growth(*instructions)
    if more >= _GREW:
        share = sides.share(_ISSUE) + sides.share(_CHAIN) + sides.share(_FETCH)
        yield Cause("more-instructions", min(1.0, share), _from_to("instructions", *instructions))


def _of_waits(sides: _Sides) -> Iterator[Cause]:
    yield Cause("barriers", sides.share(_BARRIER), "warps wait longer for one another at barriers")
    if _growth(*sides.both("instructions")) < _GREW:
        waits = "instructions wait longer for the results of those before: a longer chain, or fewer at a time"
        yield Cause("dependencies", sides.share(_CHAIN), waits)
        fetch = "warps wait longer for their next instruction: the code no longer fits its cache"
        yield Cause("instruction-fetch", sides.share(_FETCH), fetch)


def _is_less_occupied(sides: _Sides) -> bool:
    base, head = sides.both("warps")
    return head < (1 - _GREW) * base


def _of_occupancy(sides: _Sides) -> Iterator[Cause]:
    """By Little's law: with latency unchanged, fewer warps do proportionally less at a time."""
    base, head = sides.both("warps")
    if _is_less_occupied(sides) and head > 0 and _growth(*sides.both("instructions")) < _GREW:
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
