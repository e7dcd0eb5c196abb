"""Demands of a case on a card: ptxas' registers and memory, computed residency, and accesses.

Without nvcc or g++, or if they cannot compile the kernel, that part is left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import cpu_count

from harness.device.static.accesses import Access, accesses
from harness.device.static.architecture_builds import Usage, usage
from harness.device.static.occupancy import CardModel, Residency, residency
from harness.errors import BuildError, HarnessError
from harness.records.types import Launch
from harness.suite.kernel import on_device
from harness.suite.planning import PlannedCase, launch_of
from harness.suite.sources import program
from harness.suite.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    planned: PlannedCase
    launch: Launch | None = None
    """The launch; None if its grid needs unknown facts, which `problems` then names."""
    usage: Usage | None = None
    residency: Residency | None = None
    accesses: tuple[Access, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons for missing parts."""

    def worst(self, space: str) -> Access | None:
        """Return the most expensive access to global or to shared memory."""
        found = [each for each in self.accesses if each.space == space]
        if space == "shared":
            return max(found, key=lambda each: each.conflicts, default=None)
        return max(found, key=lambda each: each.sectors / each.fewest_sectors, default=None)


def demands(suite: Suite, planned: Sequence[PlannedCase], card: CardModel) -> list[Demand]:
    """Return the demands of each case on a card. Compilers run in parallel."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        return list(pool.map(lambda each: _demand(suite, each, card), planned))


def _demand(suite: Suite, planned: PlannedCase, card: CardModel) -> Demand:
    kernel = planned.kernel
    source = kernel.source_for("cuda")
    if not isinstance(source, str):
        why = "no CUDA source" if source is None else "its code is a library's, or made where it is built"
        return Demand(planned=planned, problems=(why,))
    problems: list[str] = []
    found = Demand(planned=planned)
    with _collected(problems):
        case = on_device(kernel, planned.case, card.facts)
        with _collected(problems):
            used = usage(program(suite, kernel, case, "cuda", card.arch), card.arch)
            found = replace(found, usage=used)

        def held(launch: Launch) -> Residency:
            if found.usage is None:
                raise BuildError("Its grid depends on the number of resident blocks, which needs nvcc.")
            return residency(card, launch, found.usage.registers, found.usage.shared_bytes)

        launch = launch_of(kernel, case, lambda launch: held(launch).blocks)
        found = replace(found, launch=launch, residency=held(launch) if found.usage else None)
        found = replace(found, accesses=accesses(suite, kernel, case, launch))
    return replace(found, problems=tuple(problems))


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Add errors to the problems, so that other parts still work."""
    try:
        yield
    except HarnessError as error:
        problems.append(error.message)
