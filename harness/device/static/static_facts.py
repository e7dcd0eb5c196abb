"""Static facts: what a built kernel needs, and how much of a card its launch fills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.device.static.architecture_builds import Build, Usage, capability_of
from harness.device.static.bounds import Bound, CaseWork, Spread, bound
from harness.device.static.occupancy import CAPABILITIES, CardModel, Residency, residency
from harness.errors import HarnessError
from harness.records.types import L2Policy, Launch
from harness.suite.kernel import on_device
from harness.suite.planning import PlannedCase, launch_of
from harness.suite.problem import Case, Problem

_WORK_ALONE = {"host-function", "needs-package", "needs-backend", "prebuilt"}
"""Reasons not to build a kernel here that a card may still run."""
_ON_CARDS = {"cuda", "opencl", "opengl"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFacts:
    """Facts of one kernel for one architecture and one shape of block."""

    build: Build
    cases: tuple[str, ...]
    """Ids of the cases with this program and shape."""
    block: tuple[int, int, int] | None = None
    dynamic_shared_bytes: int | None = None
    residency: Residency | None = None
    """Residency on any card of the architecture, without meaningful waves; None if unknown."""
    waves: Mapping[str, Mapping[str, Residency]] = field(default_factory=dict)
    """Residency of each case on each card: by card, then by case."""
    bounds: Mapping[str, Mapping[str, Bound]] = field(default_factory=dict)
    """Lower time bounds, by card with known clocks, then by case. For unknown code, by its work alone."""
    problem: str = ""
    """Reason for an unknown launch."""


def facts(
    problem: Problem,
    planned: Sequence[PlannedCase],
    builds: Sequence[Build],
    cards: Mapping[str, CardModel],
    l2: L2Policy = "cold",
) -> list[StaticFacts]:
    """Return the facts of every build. `cards`, by name, are those for waves and bounds."""
    by_id = {each.case.id: each for each in planned}
    found = [each for build in builds for each in _of_build(build, by_id, cards)]
    if not cards:
        return found
    return [replace(each, bounds=_bounds(problem, each, by_id, cards, l2)) for each in found]


def _bounds(
    problem: Problem,
    static_facts: StaticFacts,
    planned: Mapping[str, PlannedCase],
    cards: Mapping[str, CardModel],
    l2: L2Policy,
) -> dict[str, dict[str, Bound]]:
    build = static_facts.build
    instructions = build.code.instructions if build.code else None
    unknown = build.reason in _WORK_ALONE and planned[static_facts.cases[0]].kernel.sources.keys() & _ON_CARDS
    found: dict[str, dict[str, Bound]] = {}
    for words, card in cards.items():
        if capability_of(build.arch) != card.capability:
            continue
        for case in static_facts.cases if unknown else static_facts.waves.get(words, ()):
            spread = None
            if build.usage is not None:
                blocks = static_facts.waves[words][case].blocks
                if not blocks:  # it has no launch there
                    continue
                spread = Spread(launch=_launch(planned[case], card, build.usage), resident_blocks=blocks)
            shortest = bound(card, _work(problem, planned[case].case), instructions, spread, l2)
            if shortest is not None:
                found.setdefault(words, {})[case] = shortest
    return found


def _work(problem: Problem, case: Case) -> CaseWork:
    return CaseWork(
        flop=problem.flop(case),
        read_bytes=problem.size_bytes(case, problem.inputs),
        written_bytes=problem.size_bytes(case, problem.outputs),
        dtype=case.dtype,
    )


def _of_build(
    build: Build, planned: Mapping[str, PlannedCase], cards: Mapping[str, CardModel]
) -> Iterator[StaticFacts]:
    capability, used = capability_of(build.arch), build.usage
    if used is None or capability not in CAPABILITIES:
        why = f"How much a multiprocessor of {build.arch} holds is not known." if used else ""
        yield StaticFacts(build=build, cases=build.cases, problem=why)
        return
    # The number of multiprocessors does not affect the shape of a block.
    anywhere = CardModel(build.arch, capability, multiprocessors=1)
    shapes: dict[Launch | str, list[str]] = {}
    for case in build.cases:
        try:
            launch = _launch(planned[case], anywhere, None)
            key: Launch | str = Launch(
                grid=(1, 1, 1), block=launch.block, dynamic_shared_bytes=launch.dynamic_shared_bytes
            )
        except HarnessError as error:
            key = error.message
        shapes.setdefault(key, []).append(case)
    for shape, cases in shapes.items():
        if isinstance(shape, str):
            yield StaticFacts(build=build, cases=tuple(cases), problem=shape)
            continue
        yield StaticFacts(
            build=build,
            cases=tuple(cases),
            block=shape.block,
            dynamic_shared_bytes=shape.dynamic_shared_bytes,
            residency=residency(anywhere, shape, used.registers, used.shared_bytes),
            waves={
                words: _waves(card, used, [planned[case] for case in cases])
                for words, card in cards.items()
                if card.capability == capability
            },
        )


def _waves(card: CardModel, used: Usage, planned: Sequence[PlannedCase]) -> dict[str, Residency]:
    found = {}
    for each in planned:
        try:
            launch = _launch(each, card, used)
        except HarnessError:  # it needs something that this card lacks, so it has no launch there
            continue
        found[each.case.id] = residency(card, launch, used.registers, used.shared_bytes)
    return found


def _launch(planned: PlannedCase, card: CardModel, used: Usage | None) -> Launch:
    """Return a case's launch on a card; if `used` is None, for any number of resident blocks."""

    def resident(launch: Launch) -> int:
        return residency(card, launch, used.registers, used.shared_bytes).blocks if used else 1

    return launch_of(planned.kernel, on_device(planned.kernel, planned.case, card.facts), resident)
