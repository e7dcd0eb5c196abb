"""Differences between two builds of a kernel for one architecture, and the risks among them.

A risk is known to slow kernels down. It is no verdict: only a measurement decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.device.static.loop_difference import loop_difference
from harness.device.static.sass import LOOP, Instructions, Loop, arithmetic, by_width
from harness.device.static.static_facts import StaticFacts
from harness.records.types import DifferenceStatus, LoopDifference, Risk

_MORE = 1.02
"""Ratio, head over base, of the hottest loop's instructions per arithmetic one. Smaller changes come from
scheduling."""
_LOST_UNROLL = 0.5
_LOADS_AND_STORES = ("LDG", "LDS", "STG", "STS")
_WORDS = {
    "LDG": "loads",
    "LDS": "loads from shared memory",
    "STG": "stores",
    "STS": "stores to shared memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference of a kernel for one architecture and one shape."""

    base: StaticFacts | None
    """Facts at base; None if base has no such kernel."""
    head: StaticFacts | None
    status: DifferenceStatus
    changes: tuple[str, ...] = ()
    """Changes, such as ``registers 40 → 64``."""
    risks: tuple[Risk, ...] = ()
    loop: LoopDifference | None = None
    """Difference of the hottest loops; None where they are alike or not known."""

    @property
    def shown(self) -> StaticFacts:
        found = self.head or self.base
        assert found is not None, "one of them is there"
        return found


def differences(
    base: Sequence[StaticFacts], head: Sequence[StaticFacts], *, most_registers: int | None = None
) -> list[Difference]:
    """Return the difference of every kernel and architecture in head's order, then missing ones.

    A kernel of head with more than `most_registers` is a risk, regardless of base.
    """
    before, after = ({key: facts for facts in side for key in _keys(facts)} for side in (base, head))
    found = []
    for facts in head:
        old = next((before[key] for key in _keys(facts) if key in before), None)
        found.append(_difference(old, facts, most_registers))
    vanished = [facts for facts in base if after.keys().isdisjoint(_keys(facts))]
    return found + [_difference(facts, None, None) for facts in vanished]


def _keys(facts: StaticFacts) -> list[tuple[str, str]]:
    """Return architecture and case, for each case of a kernel."""
    return [(facts.build.arch, case) for case in facts.cases]


def _difference(base: StaticFacts | None, head: StaticFacts | None, most_registers: int | None) -> Difference:
    if head is None:
        return Difference(base=base, head=None, status="missing")
    if base and base.build.library_sha256 and base.build.library_sha256 == head.build.library_sha256:
        return Difference(base=base, head=head, status="identical")
    if head.build.status != "built":
        return Difference(base=base, head=head, status=head.build.status)
    registers = head.build.usage.registers if head.build.usage else 0
    budget: tuple[Risk, ...] = ()
    if most_registers is not None and registers > most_registers:
        budget = (Risk("registers", f"{registers} registers, where {most_registers} are allowed"),)
    if base is None or (base.build.status != "built" and not base.build.library_sha256):
        return Difference(base=base, head=head, status="new", risks=budget)
    if _same(base, head):
        return Difference(base=base, head=head, status="identical", risks=budget)
    return Difference(
        base=base,
        head=head,
        status="changed",
        changes=tuple(_changes(base, head)),
        risks=(*_risks(base, head), *budget),
        loop=_loops(base, head),
    )


def _loops(base: StaticFacts, head: StaticFacts) -> LoopDifference | None:
    before, after = _instructions(base), _instructions(head)
    return loop_difference(before, after) if before and after else None


def _same(base: StaticFacts, head: StaticFacts) -> bool:
    """Tell whether the card gets the same code with the same shape of blocks."""
    codes = [each.build.code and (each.build.code.sha256, each.build.built_for) for each in (base, head)]
    shapes = [(each.block, each.dynamic_shared_bytes) for each in (base, head)]
    return codes[0] is not None and codes[0] == codes[1] and shapes[0] == shapes[1]


def _numbers(facts: StaticFacts) -> Mapping[str, float]:
    """Return the known values of a build by name."""
    used, code, held = facts.build.usage, facts.build.code, facts.residency
    found: dict[str, float] = {}
    if used:
        found["registers"] = used.registers
        found["stack bytes"] = used.stack_bytes or 0
        found["bytes spilled"] = used.spill_store_bytes
        found["shared bytes"] = used.shared_bytes + (facts.dynamic_shared_bytes or 0)
        found["barriers"] = used.barriers or 0
    if held:
        found["occupancy %"] = round(100 * held.occupancy, 1)
    if code:
        found["constant bytes"] = code.constant_bytes
        found["code bytes"] = code.bytes
    if code and code.instructions:
        found["instructions"] = code.instructions.count
        found["in the hottest loop"] = code.instructions.hottest.count if code.instructions.hottest else 0
    return found


def _changes(base: StaticFacts, head: StaticFacts) -> Iterator[str]:
    before, after = _numbers(base), _numbers(head)
    for name, old in before.items():
        if name in after and after[name] != old:
            yield f"{name} {old:,g} → {after[name]:,g}"


def _risks(base: StaticFacts, head: StaticFacts) -> Iterator[Risk]:
    before, after = base.build.usage, head.build.usage
    instructions = _instructions(head)
    places = instructions.places if instructions else {}
    spilled = False
    if before and after:
        if spilled := after.spill_store_bytes > before.spill_store_bytes:
            words = f"{before.spill_store_bytes} → {after.spill_store_bytes} bytes spilled"
            yield Risk("spill", words + _in_loop(instructions), _place(places, "STL", "LDL"))
        elif (after.stack_bytes or 0) > (before.stack_bytes or 0):
            words = f"{before.stack_bytes or 0} → {after.stack_bytes} bytes of stack: an array left registers"
            yield Risk("stack", words, _place(places, "STL", "LDL"))
    if base.residency and head.residency and head.residency.occupancy < base.residency.occupancy:
        old, new = (f"{100 * each.occupancy:.3g}" for each in (base.residency, head.residency))
        yield Risk("occupancy", f"occupancy {old} → {new} %, limited by {head.residency.limit}")
    if (earlier := _instructions(base)) and instructions:
        yield from _narrower(earlier, instructions)
        if not spilled:  # the loop shows it too
            yield from _loop(earlier, instructions)


def _in_loop(instructions: Instructions | None) -> str:
    kinds = instructions.hottest.kinds if instructions and instructions.hottest else {}
    count = sum(count for kind, count in kinds.items() if kind.startswith(("LDL.", "STL.")))
    return f", and {count} instructions of the hottest loop move them" if count else ""


def _narrower(base: Instructions, head: Instructions) -> Iterator[Risk]:
    """Yield risks: fewer accesses of base's largest width, and more of smaller widths."""
    for operation in _LOADS_AND_STORES:
        before, after = by_width(base.kinds, operation), by_width(head.kinds, operation)
        widest = max(before, default=0)
        narrow = [sum(n for bits, n in each.items() if bits < widest) for each in (before, after)]
        if widest and after.get(widest, 0) < before[widest] and narrow[1] > narrow[0]:
            listed = ", ".join(f"{count} {operation}.{bits}" for bits, count in after.items()) or "none"
            was = ", ".join(f"{count} {operation}.{bits}" for bits, count in before.items())
            kinds = [f"{operation}.{bits}" for bits in after if bits < widest]
            place = next((head.places[kind] for kind in kinds if kind in head.places), "")
            yield Risk("narrower", f"narrower {_WORDS[operation]}: {was} → {listed}", place)


def _loop(base: Instructions, head: Instructions) -> Iterator[Risk]:
    before, after = base.hottest, head.hottest
    place = head.places.get(LOOP, "")
    if (
        before is None
        and after is not None
        and arithmetic(head.kinds) <= _LOST_UNROLL * arithmetic(base.kinds)
    ):
        yield Risk(
            "unroll", f"a loop of {after.count} instructions where base has none: less is unrolled", place
        )
    if before is None or after is None:
        return
    old, new = arithmetic(before.kinds), arithmetic(after.kinds)
    if old and new and new <= _LOST_UNROLL * old and _arithmetic_kinds(after) <= _arithmetic_kinds(before):
        words = f"a turn of the hottest loop does {old} → {new} arithmetic instructions: less is unrolled"
        yield Risk("unroll", words, place)
    elif after.count / (new or 1) > _MORE * before.count / (old or 1):
        words = f"{before.count} → {after.count} instructions in the hottest loop"
        if old and new:
            words += f", {before.count / old:.2f} → {after.count / new:.2f} for each arithmetic one"
        yield Risk("loop", words, place)


def _arithmetic_kinds(loop: Loop) -> set[str]:
    return {kind for kind in loop.kinds if arithmetic({kind: 1})}


def _instructions(facts: StaticFacts) -> Instructions | None:
    return facts.build.code.instructions if facts.build.code else None


def _place(places: Mapping[str, str], *operations: str) -> str:
    """Return the source line of the first of these operations with a known line."""
    kinds: Iterable[str] = (kind for name in operations for kind in places if kind.startswith(f"{name}."))
    return next((places[kind] for kind in kinds), "")
