"""Demands of kernels on a card, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from harness.device.static.demand import Demand
from harness.device.static.occupancy import CardModel
from harness.numbers import number
from harness.report.table import Column, Sheet
from harness.report.templates import inline
from harness.report.terminal.run_tables import console, print_out
from harness.suite.suite import Suite
from harness.system.texts import harmless

SuiteDemands = Iterable[tuple[Suite, Sequence[Demand]]]


def print_demands(card: CardModel, found: SuiteDemands) -> None:
    """Print a table for each suite on standard output, with the reasons for missing values below."""
    for suite, demands in found:
        sheet = sheet_of(card, suite, demands)
        if sheet.columns:
            print_out(sheet)
        for line in problems_of(demands):
            console().print(harmless(line, keep="\n"), style="dim")


def sheet_of(card: CardModel, suite: Suite, demands: Sequence[Demand]) -> Sheet:
    """Return a table of the cases with known facts; without columns if there are none."""
    told = [demand for demand in demands if demand.usage or demand.accesses]
    sizes = {demand.planned.case.size_label for demand in told}
    at = f" at {sizes.pop()}" if len(sizes) == 1 else ""
    title = f"{suite.name}{at} on {card.name} ({card.arch}, {card.multiprocessors} multiprocessors)"
    return Sheet(columns=_columns(told) if told else (), title=title)


def problems_of(demands: Sequence[Demand]) -> list[str]:
    """Return why values are missing, a line for each reason."""
    problems: dict[str, dict[str, None]] = {}
    for demand in demands:
        for problem in demand.problems:
            problems.setdefault(problem, {})[demand.planned.kernel.name] = None
    return [f"{', '.join(kernels)}: {problem}" for problem, kernels in problems.items()]


def _columns(demands: Sequence[Demand]) -> list[Column]:
    used = [demand.usage for demand in demands]
    held = [demand.residency for demand in demands]
    sectors, conflicts = ([demand.worst(space) for demand in demands] for space in ("global", "shared"))
    sizes = [demand.planned.case.size_label for demand in demands]
    full = [100 * each.last_wave if each and each.blocks else None for each in held]
    spilled = [use.spill_store_bytes if use else 0 for use in used]
    return [
        Column(
            "kernel", [demand.planned.kernel.name for demand in demands], text=True, heads=True, whole=True
        ),
        Column("size", sizes if len(set(sizes)) > 1 else [""] * len(sizes)),
        Column("regs", [str(use.registers) if use else "" for use in used]),
        Column("spills B", [number(byte) if byte else "" for byte in spilled], spare=1),
        Column("shared B", [_shared(demand) for demand in demands], spare=3),
        Column("blocks", [str(each.blocks) if each else "" for each in held], over="an SM", spare=4),
        Column("occ. %", [f"{100 * each.occupancy:.0f}" if each else "" for each in held]),
        Column("waves", [number(each.waves, 3) if each else "" for each in held]),
        Column("last %", ["" if share is None else f"{share:.0f}" for share in full], spare=1),
        Column(
            "sectors",
            [f"{each.sectors:.3g}/{each.fewest_sectors}" if each else "" for each in sectors],
            over="a request",
        ),
        Column("conflicts", [f"{each.conflicts:.3g}" if each else "" for each in conflicts], over="banks"),
        Column("limit", [each.limit if each else "" for each in held], text=True, spare=2),
    ]


def _shared(demand: Demand) -> str:
    if demand.usage is None or demand.launch is None:
        return ""
    whole = demand.usage.shared_bytes + demand.launch.dynamic_shared_bytes
    return number(whole) if whole else ""


def as_json(card: CardModel, found: SuiteDemands) -> dict[str, Any]:
    return {
        "card": {"name": card.name, "arch": card.arch, "multiprocessors": card.multiprocessors},
        "cases": [
            {
                "case": demand.planned.case.id,
                "launch": asdict(demand.launch) if demand.launch else None,
                "usage": asdict(demand.usage) if demand.usage else None,
                "residency": asdict(demand.residency) | {"last_wave": demand.residency.last_wave}
                if demand.residency
                else None,
                "accesses": [asdict(each) for each in demand.accesses],
                "problems": demand.problems,
            }
            for _, demands in found
            for demand in demands
        ],
    }


def as_markdown(card: CardModel, suite: Suite, demands: Sequence[Demand]) -> str:
    """Return a table with its title, and why values are missing; empty if there are neither."""
    sheet = sheet_of(card, suite, demands)
    told = [inline(sheet.title), sheet.markdown()] if sheet.columns else []
    return "\n\n".join([*told, *map(inline, problems_of(demands))]) + "\n"
