"""How far can the changes of a public history be trusted? Other machines confirm them, or not.

    python scripts/bench_events.py FOLDER [--labels DATA/labels.json]

FOLDER is a project with asv's results, such as scripts/newton_history.py makes. Each step on a machine that
no label names is looked up on another machine that measured the same case around it. This machine confirms
the step if it has a step of the same direction in commits that may be the same. Chance is the share of steps
that are confirmed at a random place of the other machines' series instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a command: the folder above is where `harness` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.history.changes import SIGNIFICANCE_OF_FEW, Change
from harness.history.reading import History, read_history
from harness.history.series import Series
from harness.history.sources.cards import machine_of

SEED = 1
SMALLEST_SHARE = 1 / 3
"""The least share of a step that another machine's step has, in logarithms, to be the same."""


@dataclass(frozen=True, slots=True)
class Range:
    """The commits after `good`, up to `bad`."""

    good: int
    bad: int

    def meets(self, other: Range) -> bool:
        return max(self.good, other.good) < min(self.bad, other.bad)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a project with asv's results")
    parser.add_argument("--results", type=Path, help="default: .asv/results in FOLDER")
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="changes that are known, which are left out"
    )
    asked = parser.parse_args()
    history = read_history(asked.results or asked.folder / ".asv/results", asked.folder)
    labels = json.loads(asked.labels.read_text("utf-8")) if asked.labels else []
    for name, value in {**of_events(history), **of_machines(history, labels)}.items():
        print(f"{name:60s} {value}")
    return 0


def of_events(history: History) -> dict[str, Any]:
    """Return how many events are open, and how many changes lie outside the suspects of their event."""
    outside = sum(
        not Range(each.change.good, each.change.bad).meets(Range(event.good, event.bad))
        for event in history.events
        for each in event.changes
    )
    opened = [event for event in history.events if event.is_open]
    largest = max(range(len(opened)), key=lambda at: opened[at].worst.change.size, default=-1) + 1
    widths = sorted(len(event.narrowest) for event in history.events if event.by_commit)
    return {
        "events, open of them": f"{len(history.events)}, {len(opened)}",
        "changes outside the suspects of their event": outside,
        "rank of the largest open change": largest or "none is open",
        "commits to look at first, median of events": widths[len(widths) // 2] if widths else "no event",
    }


def of_machines(history: History, labels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shares of steps that another machine confirms, and that it would confirm by chance."""
    series: dict[str, list[Series]] = defaultdict(list)
    steps: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for card in history.cards:
        for one in card.analysed:
            series[one.series.case.name].append(one.series)
            # What counts only because another machine is sure of it must not be its own witness.
            steps[card.name, one.series.case.name] += [
                each for each in one.changes if each.kind != "drift" and each.p_value <= SIGNIFICANCE_OF_FEW
            ]
    held, asked = 0, list[tuple[Change, list[Series]]]()
    for change in (each for every in steps.values() for each in every):
        if is_labelled(change, labels):
            held += 1
        elif others := [each for each in series[change.case] if is_around(each, change)]:
            asked.append((change, others))
    rng = np.random.default_rng(SEED)
    sure = sum(
        is_confirmed(change, Range(change.good, change.bad), others, steps) for change, others in asked
    )
    chance = sum(
        is_confirmed(change, elsewhere(change, others, rng), others, steps) for change, others in asked
    )
    total = len(asked)
    return {
        "changes that a label names": held,
        "other changes, which another machine measured too": total,
        "of these confirmed by another machine": f"{sure} ({sure / max(total, 1):.0%})",
        "the same at a random place": f"{chance} ({chance / max(total, 1):.0%})",
    }


def is_labelled(change: Change, labels: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a label of the same case holds a commit that may have made the change."""
    own = Range(change.good, change.bad)
    return any(
        each["case"] == change.case and own.meets(Range(each["after"], each["until"])) for each in labels
    )


def is_around(series: Series, change: Change) -> bool:
    """Return True if another machine measured commits before and after a change."""
    known = series.positions[np.isfinite(series.values)]
    return (
        machine_of(series.card) != machine_of(change.card)
        and known.size > 0
        and known[0] <= change.good
        and change.bad <= known[-1]
    )


def is_confirmed(
    change: Change, place: Range, others: Sequence[Series], steps: Mapping[tuple[str, str], list[Change]]
) -> bool:
    """Return True if one of the other machines has a step like a change at a place."""
    return any(
        place.meets(Range(each.good, each.bad))
        and each.effect * change.effect > 0
        and each.size >= SMALLEST_SHARE * change.size
        and change.size >= SMALLEST_SHARE * each.size
        for each in candidates(others, steps)
    )


def candidates(others: Sequence[Series], steps: Mapping[tuple[str, str], list[Change]]) -> Iterator[Change]:
    return (each for other in others for each in steps[other.card, other.case.name])


def elsewhere(change: Change, others: Sequence[Series], rng: np.random.Generator) -> Range:
    """Return a range of as many commits at a random place of what the other machines measured."""
    width = change.bad - change.good
    first = min(int(each.positions[0]) for each in others)
    last = max(int(each.positions[-1]) for each in others)
    good = int(rng.integers(first, max(first + 1, last - width)))
    return Range(good, good + width)


if __name__ == "__main__":
    sys.exit(main())
