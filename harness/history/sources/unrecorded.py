"""Finds values of suites that only asv's result files hold. A suite's values come from records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.history.figures import Figures
from harness.history.sources.our_records import CardRecords
from harness.numbers import counted

COMMAND = "harness import asv"
"""The command that makes records of these values."""


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Results of one suite on one card that no record of the card holds. A failure is a result too."""

    figures: Figures
    """All results of the suite in asv's files."""
    cells: npt.NDArray[np.bool_]
    """True for a result without a record; a row per commit and a column per case of `figures`."""

    @property
    def count(self) -> int:
        """Return the number of such results, each of one case at one commit."""
        return int(self.cells.sum())

    @property
    def failed(self) -> int:
        """Return the number of such results that are failures."""
        failures = np.any([np.isinf(values) for values in self.figures.values.values()], axis=0)
        return int((self.cells & failures).sum())

    def count_at(self, commit: str) -> int:
        """Return the number of such results at a commit, named by the first digits of its hash."""
        rows = [row for row, name in enumerate(self.figures.commits) if name.startswith(commit)]
        return int(self.cells[rows].sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedCount:
    """Number of results of suites that only asv's files hold, on one card."""

    results: int
    hidden: int
    """Number of these that are hidden, because records hold other results of their suites."""
    failed: int
    """Number of hidden results that are failures."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the count as a sentence that names the command; nothing without such results."""
        if not self.results:
            return ()
        hidden = f", and {self.hidden:,} of them are not shown" if self.hidden else ""
        results = counted(self.results, "result")
        return (f"Only asv's files hold {results} of suites{hidden}: '{COMMAND}' makes records of them.",)


def unrecorded(records: CardRecords, suites: Iterable[Figures]) -> Iterator[Unrecorded]:
    """Yield the asv results that a card's records lack, suite by suite."""
    for figures in suites:
        there = np.any([~np.isnan(values) for values in figures.values.values()], axis=0)
        left = there & ~records.holds(figures.group, figures.commits, figures.keys)
        if left.any():
            yield Unrecorded(figures, left)
