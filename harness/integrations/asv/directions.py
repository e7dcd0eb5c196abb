"""Which way is better for a benchmark of asv's, and how to read asv where it does not know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import asv
from asv.console import log

from harness.config import load_config
from harness.history.figures import DIRECTIONS, Direction, direction_of

ASV = f"asv {asv.__version__}"
"""The asv that runs, as messages name it."""


def direction_in_asv(benchmark: Mapping[str, Any]) -> Direction:
    """Return the direction that asv compares by. An unknown direction is lower, as in asv."""
    direction = direction_of(benchmark, load_config().directions)
    return "lower" if direction == "unknown" else direction


def warn_of_unknown_directions(benchmarks: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn of a mistyped direction, which would else be taken for none in silence."""
    for name, benchmark in benchmarks.items():
        declared = benchmark.get("direction")
        if declared is not None and declared not in DIRECTIONS:
            log.warning(
                f"{name} has the direction {declared!r}, which is none of {', '.join(DIRECTIONS)}: "
                f"taken as {direction_in_asv(benchmark)}"
            )


def misread(benchmarks: Mapping[str, Mapping[str, Any]], place: str) -> str:
    """Return how to read a place where asv takes every rise for worse; empty where no benchmark needs it."""
    directions = {name: direction_in_asv(benchmark) for name, benchmark in benchmarks.items()}
    higher, neither = (_listed(directions, direction) for direction in ("higher", "none"))
    if not higher and not neither:
        return ""
    sentences = [f"{ASV} takes every rise for worse in {place}."]
    if higher:
        sentences.append(f"Read these the other way, as higher is better: {higher}.")
    if neither:
        sentences.append(f"Pass over these, as neither way is better: {neither}.")
    return " ".join(sentences)


def _listed(directions: Mapping[str, Direction], wanted: str) -> str:
    """Return the benchmarks of a direction, by the last parts of their names unless these are ambiguous."""
    found: dict[str, set[Direction]] = defaultdict(set)
    for name, direction in directions.items():
        found[_last(name)].add(direction)
    names = [name for name, direction in directions.items() if direction == wanted]
    return ", ".join(dict.fromkeys(_last(name) if len(found[_last(name)]) == 1 else name for name in names))


def _last(name: str) -> str:
    return name.rpartition(".")[2]
