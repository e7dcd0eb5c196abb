"""The better direction of asv's benchmarks, and how to read asv if it does not know the direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import asv
from asv.console import log

from harness.config import load_config
from harness.history.figures import DIRECTIONS, Direction, direction_of

ASV = f"asv {asv.__version__}"
"""The running asv, as named in messages."""


def direction_in_asv(benchmark: Mapping[str, Any]) -> Direction:
    """Return the direction that asv compares by. As in asv, the default is lower."""
    direction = direction_of(benchmark, load_config().directions)
    return "lower" if direction == "unknown" else direction


def warn_of_unknown_directions(benchmarks: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn about a mistyped direction, which would otherwise be ignored silently."""
    for name, benchmark in benchmarks.items():
        declared = benchmark.get("direction")
        if declared is not None and declared not in DIRECTIONS:
            log.warning(
                f"{name} has the direction {declared!r}, which is none of {', '.join(DIRECTIONS)}: "
                f"treated as {direction_in_asv(benchmark)}"
            )


def misread(benchmarks: Mapping[str, Mapping[str, Any]], place: str) -> str:
    """Return how to read an output in which asv treats every rise as worse; empty if no benchmark
    needs it.
    """
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
    """Return the benchmarks of a direction, by the last parts of their names unless ambiguous."""
    found: dict[str, set[Direction]] = defaultdict(set)
    for name, direction in directions.items():
        found[_last(name)].add(direction)
    names = [name for name, direction in directions.items() if direction == wanted]
    return ", ".join(dict.fromkeys(_last(name) if len(found[_last(name)]) == 1 else name for name in names))


def _last(name: str) -> str:
    return name.rpartition(".")[2]
