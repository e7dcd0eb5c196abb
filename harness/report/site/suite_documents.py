"""Documents of a suite about its kernels: published values, and the kernels' demands on a card."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

from harness.device.static.accesses import Access, accesses
from harness.device.static.occupancy import CAPABILITIES, CARDS, CardModel, residency
from harness.errors import HarnessError
from harness.history.figures import SeriesCase
from harness.history.ladders import CardFigures, Figure, LadderLine, curves, figures_of_rung, is_plain, placed
from harness.numbers import number, times
from harness.records.types import DeviceInfo, Row
from harness.report.terminal.ladder_tables import given
from harness.suite.case_id import Size, size_label
from harness.suite.kernel import Kernel
from harness.suite.planning import at_least_one, launch_of
from harness.suite.suite import Ladder, Suite
from harness.suite.suite_files import first_line

_OF_LADDER = ("name", "title", "source", "publication", "author", "url", "date", "card", "against", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """Data of a site's cards for ladders, in the order of the cards' numbers."""

    gpus: Sequence[str]
    """Models of the cards."""
    hosts: Sequence[str]
    """CPUs of the cards' machines."""
    newest: Mapping[tuple[int, int], float]
    """The newest values by card and case."""

    def of_suite(self, suite: Suite, cases: Iterable[SeriesCase]) -> CardFigures:
        """Return the values of a suite's cases in its unit."""
        figures = {
            (card, case.kernel, case.size): Figure(case.order, self.newest[card, case.order])
            for case in cases
            for card in range(len(self.gpus))
            if case.suite == suite.name and case.unit == suite.headline and (card, case.order) in self.newest
        }
        return CardFigures(self.hosts, figures)


def suite_document(
    suite: Suite, cards: Cards, cases: Sequence[SeriesCase], repository: Path | None = None
) -> dict[str, Any]:
    """Return a suite's ladders, the location of its kernels' sources, and the memory accesses of these cases.

    Ladders have the authors' values and ours.
    """
    newest = cards.of_suite(suite, cases)
    return {
        "suite": suite.name,
        "unit": suite.headline,
        "ladders": [_ladder(suite, ladder, cards.gpus, newest) for ladder in suite.ladders],
        "sources": dict(_sources(suite, repository)) if repository else {},
        "accesses": _accesses(suite, [each for each in cases if each.suite == suite.name]),
    }


def _sources(suite: Suite, repository: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the file and the first line of each kernel, if the file is in the repository."""
    for kernel in suite.kernels:
        for file in kernel.files[:1]:
            path = suite.root / file
            with suppress(OSError, ValueError):
                within = path.resolve().relative_to(repository.resolve()).as_posix()
                yield kernel.name, {"path": within, "line": first_line(path, kernel.function)}


def _ladder(suite: Suite, ladder: Ladder, gpus: Sequence[str], newest: CardFigures) -> dict[str, Any]:
    lines = [line for line in placed(suite, ladder) if not line.repairs and not line.reference]
    return {
        **{name: getattr(ladder, name) for name in _OF_LADDER},
        "cards": [number for number, gpu in enumerate(gpus) if is_of_family(gpu, ladder.card)],
        "rungs": [
            _rung(suite, ladder, line)
            | {"ours": [asdict(each) for each in figures_of_rung(suite, ladder, line, newest)]}
            for line in lines
        ],
        "curves": [asdict(each) for each in curves(suite, ladder, lines, newest)],
    }


def is_of_family(gpu: str, card: str) -> bool:
    """Return whether a device's name has every word of an author's.

    For example, ``NVIDIA GeForce RTX 3060 Ti`` is of the family ``RTX 3060``.
    """
    return bool(card) and _words(card) <= _words(gpu)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _rung(suite: Suite, ladder: Ladder, line: LadderLine) -> dict[str, Any]:
    """Return values as numbers for drawing, and as published texts."""
    rung = line.rung
    counted = "" if rung.kernel == ladder.against else times(line.speed_up)
    return {
        "label": rung.label,
        "kernel": rung.kernel,
        "repaired": rung.repaired,
        "size": size_label(line.sizes) if line.sizes else "",
        "backend": rung.backend,
        "macros": {name: str(value) for name, value in rung.macros.items()},
        "plain": is_plain(line, suite),
        "rate": rung.rate,
        "speed_up": line.speed_up,
        "told": {
            "rate": given(rung.rate, ladder.decimals),
            "average": given(rung.average),
            "time_ms": given(rung.time_ms),
            "speed_up": f"{rung.speed_up:g}x" if rung.speed_up else counted,
            "peak_percent": number(line.peak_percent, 3),
        },
    }


def _accesses(suite: Suite, cases: Sequence[SeriesCase]) -> list[dict[str, Any]]:
    """Return the accesses of each kernel at the largest size measured, since analysing them takes long."""
    largest: dict[str, dict[str, int]] = {}
    for case in cases:
        try:
            point = Size.parse(case.size).at(suite.problem.axes)
        except HarnessError:  # the suite had other axes then
            continue
        before = largest.get(case.kernel)
        if case.kernel in suite.by_name and (before is None or max(point.values()) > max(before.values())):
            largest[case.kernel] = point
    with ThreadPoolExecutor(cpu_count()) as pool:
        return list(pool.map(lambda each: _followed(suite, suite.by_name[each[0]], each[1]), largest.items()))


def _followed(suite: Suite, kernel: Kernel, point: dict[str, int]) -> dict[str, Any]:
    found: tuple[Access, ...] = ()
    problem = ""
    if isinstance(kernel.source_for("cuda"), str):
        try:
            # Memory accesses of a warp are the same on every card. A grid that needs a card gets an arbitrary
            # one.
            case = suite.case(kernel, point, device=CARDS["h200"].facts)
            found = accesses(suite, kernel, case, launch_of(kernel, case, at_least_one))
        except HarnessError as error:
            problem = error.message
    else:
        problem = "It has no CUDA source, or one that a library or a function makes where it is built."
    return {
        "kernel": kernel.name,
        "size": size_label(point),
        "found": [asdict(each) | {"fewest_sectors": each.fewest_sectors} for each in found],
        "problem": problem,
    }


def demand_document(device: DeviceInfo, row: Row) -> dict[str, Any] | None:
    """Return what a measured kernel needed of its card, computed from the driver's values and the launch.

    None without these, for example for devices other than NVIDIA cards.
    """
    launch, resources, capability = row.launch, row.resources, device.compute_capability
    if launch is None or resources is None or not resources.registers:
        return None
    if capability is None or capability not in CAPABILITIES or device.compute_units is None:
        return None
    card = CardModel(device.name, capability, device.compute_units)
    static_bytes = resources.static_shared_bytes or 0
    held = residency(card, launch, resources.registers, static_bytes)
    return {
        "multiprocessors": card.multiprocessors,
        "block": launch.block,
        "grid": launch.grid,
        "attributes": launch.attributes,
        "registers": resources.registers,
        "shared_bytes": static_bytes + launch.dynamic_shared_bytes,
        "local_bytes": resources.local_bytes,
        "blocks": held.blocks,
        "occupancy": held.occupancy,
        "limit": held.limit,
        "waves": held.waves,
        "last_wave": held.last_wave if held.blocks else None,
    }
