"""Bounds beside what was measured, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import quantiles

from harness.numbers import number
from harness.output.sheet import Cell, Column, Sheet
from harness.run.bounds_held import Held
from harness.spec.case_id import CaseId


def bounds_tables(held: Sequence[Held]) -> Iterator[Sheet]:
    """Of each card every case, the farthest from its bound first; then how far they are from it in all."""
    for card in dict.fromkeys(each.card for each in held):
        of_card = sorted((each for each in held if each.card == card), key=lambda each: each.reached)
        yield Sheet(
            title=f"Measured on {card}, beside the shortest time by arithmetic",
            columns=[
                Column("case", [CaseId.parse(each.case).short for each in of_card], text=True, heads=True),
                Column("ms", [number(each.time_ns / 1e6) for each in of_card]),
                Column("≥ ms", [number(each.bound_ns / 1e6) for each in of_card], over="bound"),
                Column("by", [each.by for each in of_card], text=True, over="bound"),
                Column("reached %", [_reached(each) for each in of_card]),
            ],
        )
        yield _distribution(card, of_card)


def _reached(held: Held) -> Cell:
    return Cell(f"{100 * held.reached:.1f}", "failed" if held.reached > 1 else "")


def _distribution(card: str, held: Sequence[Held]) -> Sheet:
    groups: dict[str, list[float]] = {}
    for each in held:
        groups.setdefault(each.by, []).append(100 * each.reached)
    if len(groups) > 1:
        groups["all"] = [100 * each.reached for each in held]
    # Sorted already.
    cuts = [
        (each[0], *(quantiles(each, n=4, method="inclusive") if len(each) > 1 else 3 * each), each[-1])
        for each in groups.values()
    ]
    names = ("least", "lower quarter", "median", "upper quarter", "most")
    return Sheet(
        title=f"Share of the bound that was reached on {card}, in %",
        columns=[
            Column("bound by", [*groups], text=True, heads=True),
            Column("cases", [str(len(each)) for each in groups.values()]),
            *(Column(name, [f"{values[at]:.1f}" for values in cuts]) for at, name in enumerate(names)),
        ],
    )
