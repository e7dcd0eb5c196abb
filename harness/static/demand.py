"""What a kernel's case asks of a card: registers and memory by ptxas, residency by arithmetic, accesses by
following them. nvcc and g++ do it; where one is missing, or has nothing to compile, that part is left out and
said.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import cpu_count

from harness.errors import HarnessError
from harness.spec.planning import PlannedCase, launch_of
from harness.spec.sources import program
from harness.spec.suite import Suite
from harness.static.accesses import Access, accesses
from harness.static.builds import Usage, usage
from harness.static.occupancy import Card, Residency, residency


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    planned: PlannedCase
    usage: Usage | None = None
    residency: Residency | None = None
    accesses: tuple[Access, ...] = ()
    problems: tuple[str, ...] = ()
    """Why a part is missing."""

    def worst(self, space: str) -> Access | None:
        """Of all accesses to global or to shared memory the one that a warp pays most for."""
        found = [each for each in self.accesses if each.space == space]
        if space == "shared":
            return max(found, key=lambda each: each.conflicts, default=None)
        return max(found, key=lambda each: each.sectors / each.fewest_sectors, default=None)


def demands(suite: Suite, planned: Sequence[PlannedCase], card: Card) -> list[Demand]:
    """Of each case what it asks of a card; compilers work side by side."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        return list(pool.map(lambda each: _demand(suite, each, card), planned))


def _demand(suite: Suite, planned: PlannedCase, card: Card) -> Demand:
    kernel, case = planned.kernel, planned.case
    source = kernel.source_for("cuda")
    if not isinstance(source, str):
        why = "no CUDA source" if source is None else "its code is a library's, or made where it is built"
        return Demand(planned=planned, problems=(why,))
    found, problems = Demand(planned=planned), []
    try:
        used = usage(program(suite, kernel, case, "cuda", card.arch), card.arch)
        held = residency(card, launch_of(kernel, case), used.registers, used.shared_bytes)
        found = replace(found, usage=used, residency=held)
    except HarnessError as error:
        problems.append(error.message)
    try:
        found = replace(found, accesses=accesses(suite, kernel, case))
    except HarnessError as error:
        problems.append(error.message)
    return replace(found, problems=tuple(problems))
