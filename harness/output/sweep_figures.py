"""What the rows of a sweep come to: rates, averages by parameter, and who is how far behind the best."""

from __future__ import annotations

__all__ = [
    "Count",
    "GroupLine",
    "Placed",
    "SweepFigures",
    "failures",
    "label_of",
    "parts_of",
    "size_of",
    "standings",
]

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from harness.records import Effect
from harness.spec.suite import Value, size_label
from harness.sweep.model import Configuration, Final, Sweep, SweepResult, SweepRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A measured configuration among those of its size, identical ones counted once."""

    place: int
    """From 1."""
    row: SweepRow
    time_ns: float
    half_width: float | None
    """Of the time, over it: half its interval; of a winner half the range of its processes."""
    rate: float
    peak_percent: float | None
    behind: Effect | None
    winner: bool
    """Whether it was measured again in fresh processes."""
    tied: bool
    also: tuple[int, ...]
    """Numbers of the configurations whose code is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """Every configuration that has these values."""

    values: Mapping[str, Value]
    configurations: int
    measured: int
    average: float | None
    best: float | None
    best_number: int | None
    best_size: str
    peak_percent: float | None
    """Of the best."""
    averages: Mapping[str, float]
    """By size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many configurations came to the same end, and why."""

    standing: str
    why: str
    configurations: int


class SweepFigures:
    """Figures of one result, each worked out once."""

    def __init__(self, result: SweepResult) -> None:
        self.result = result
        self.sweep = result.sweep

    @cached_property
    def measured(self) -> tuple[SweepRow, ...]:
        return tuple(filter(_is_measured, self.result.rows))

    @cached_property
    def unit(self) -> str:
        """GFLOP/s; GB/s where operations are not counted; launches/s where bytes are not either."""
        if all(row.flop for row in self.measured):
            return "GFLOP/s"
        return "GB/s" if all(row.moved_bytes for row in self.measured) else "launches/s"

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names of parameters by the name of their group. One that is in none is a group of its own."""
        grouped = {name for names in self.sweep.groups.values() for name in names}
        own = {name: (name,) for name in self.sweep.parameters if name not in grouped}
        return {**{name: tuple(names) for name, names in self.sweep.groups.items()}, **own}

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(size_of(row.configuration) for row in self.result.rows))

    @cached_property
    def finals(self) -> dict[str, Final]:
        return {size_label(final.sizes): final for final in self.result.finals}

    def time_ns(self, row: SweepRow) -> float:
        """What it took: as measured in fresh processes for a winner and what is identical to it."""
        final = self.finals.get(size_of(row.configuration))
        if final and final.number in (row.configuration.number, row.same_as):
            return final.time_ns
        return row.time_ns or 0.0

    def rate(self, row: SweepRow) -> float:
        """In `unit`."""
        if self.unit == "launches/s":
            return 1e9 / self.time_ns(row)
        work = row.flop if self.unit == "GFLOP/s" else row.moved_bytes
        return (work or 0) / self.time_ns(row)

    def peak_percent(self, row: SweepRow) -> float | None:
        """Share of what the card could do in theory."""
        limit = {"GFLOP/s": row.dtype, "GB/s": "memory"}.get(self.unit, "")
        peak = self.sweep.peaks.get(limit)
        return 100 * self.rate(row) / peak if peak else None

    def by_group(self) -> dict[str, tuple[GroupLine, ...]]:
        """For each group a line for each of its values, in the suite's order."""
        return {name: tuple(self._lines(names)) for name, names in self.groups.items()}

    def _lines(self, names: Sequence[str]) -> Iterator[GroupLine]:
        found: dict[tuple[Value, ...], list[SweepRow]] = defaultdict(list)
        for row in self.result.rows:
            found[_values(row.configuration, names)].append(row)
        for values, rows in found.items():
            yield self._line(dict(zip(names, values, strict=True)), rows)

    def _line(self, values: Mapping[str, Value], rows: Sequence[SweepRow]) -> GroupLine:
        measured = [row for row in rows if _is_measured(row)]
        best = max(measured, key=self.rate, default=None)
        rates: dict[str, list[float]] = defaultdict(list)
        for row in measured:
            rates[size_of(row.configuration)].append(self.rate(row))
        return GroupLine(
            values=values,
            configurations=len(rows),
            measured=len(measured),
            average=fmean(map(self.rate, measured)) if measured else None,
            best=self.rate(best) if best else None,
            best_number=best.configuration.number if best else None,
            best_size=size_of(best.configuration) if best else "",
            peak_percent=self.peak_percent(best) if best else None,
            averages={size: fmean(rates[size]) for size in self.sizes if size in rates},
        )

    def ranking(self, size: str) -> tuple[Placed, ...]:
        """The measured configurations of a size, the best first.

        Effects in pairs decide where there are some: times of screening were taken one after another.
        """
        rows = [row for row in self.measured if size_of(row.configuration) == size]
        also: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            if row.same_as is not None:
                also[row.same_as].append(row.configuration.number)
        alone = [row for row in rows if row.same_as is None]
        final = self.finals.get(size)
        ahead = self._ahead(alone, final)
        return tuple(
            self._placed(place, row, final, tuple(also[row.configuration.number]))
            for place, row in enumerate(ahead, 1)
        )

    def _ahead(self, rows: Sequence[SweepRow], final: Final | None) -> list[SweepRow]:
        best = _best_so_far(rows, final)
        base = (best.time_ns or 0.0) if best else 0.0

        def estimate(row: SweepRow) -> tuple[bool, float]:
            time_ns = base * (1 + row.behind.effect) if row.behind else row.time_ns or 0.0
            return row is not best, time_ns

        return sorted(rows, key=estimate)

    def _placed(self, place: int, row: SweepRow, final: Final | None, also: tuple[int, ...]) -> Placed:
        number = row.configuration.number
        winner = final is not None and final.number == number
        return Placed(
            place=place,
            row=row,
            time_ns=self.time_ns(row),
            half_width=_half_width(row, final if winner else None),
            rate=self.rate(row),
            peak_percent=self.peak_percent(row),
            behind=None if winner else row.behind,
            winner=winner,
            tied=final is not None and number in final.tied,
            also=also,
        )


def _is_measured(row: SweepRow) -> bool:
    return row.status == "measured" and bool(row.time_ns)


def size_of(configuration: Configuration) -> str:
    return size_label(configuration.sizes)


def _best_so_far(rows: Sequence[SweepRow], final: Final | None) -> SweepRow | None:
    """The winner; before there is one, who beat the others in pairs; before there are pairs, the fastest."""
    if final:
        return next((row for row in rows if row.configuration.number == final.number), None)
    paired = [row for row in rows if row.round and row.behind is None]
    return min(paired or rows, key=lambda row: (-row.round, row.time_ns or 0.0), default=None)


def _values(configuration: Configuration, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(configuration.parameters.get(name, "") for name in names)


def _half_width(row: SweepRow, final: Final | None) -> float | None:
    if final:
        times = final.process_times_ns
        return (max(times) - min(times)) / (2 * final.time_ns) if len(times) > 1 else None
    if row.time_low_ns is None or row.time_high_ns is None or not row.time_ns:
        return None
    return (row.time_high_ns - row.time_low_ns) / (2 * row.time_ns)


def label_of(values: Mapping[str, Value]) -> str:
    """``32x64x32`` for numbers, ``k_innermost`` for a word, ``word, 4`` for both."""
    numbers = all(isinstance(value, int) for value in values.values())
    return ("x" if numbers else ", ").join(map(str, values.values()))


def parts_of(configuration: Configuration, sweep: Sweep, groups: Mapping[str, Sequence[str]]) -> str:
    """A configuration in few words: groups as they are called in tables, other parameters by name."""
    found = configuration.parameters
    texts = []
    for group, names in groups.items():
        told = label_of({name: found[name] for name in names if name in found})
        texts.append(told if group in sweep.groups else f"{group}={told}")
    return " ".join(filter(None, texts))


def standings(result: SweepResult) -> tuple[Count, ...]:
    """How many configurations came to what, rejected ones by rule and failed ones by reason."""
    order = ("measured", "identical", "rejected", "failed", "not reached")
    found = Counter(_standing(row) for row in result.rows)
    if missing := result.sweep.total - len(result.rows):
        found["not reached", ""] = missing
    counts = [
        Count(standing=standing, why=why, configurations=count) for (standing, why), count in found.items()
    ]
    return tuple(sorted(counts, key=lambda each: order.index(each.standing)))


def _standing(row: SweepRow) -> tuple[str, str]:
    if row.status == "measured":
        return ("measured", "") if row.same_as is None else ("identical", "to another of its size")
    if row.status == "rejected" and row.reason == "rule":
        return "rejected", row.message.partition(" does not hold")[0]
    if row.status == "rejected":
        # Of sentences that differ in their numbers alone, one is enough.
        return "rejected", f"{row.reason}: {re.sub(_NUMBER, '…', row.message)}"
    return "failed", row.reason


_NUMBER = r"\d+(?:[.,]\d+)*"


def failures(result: SweepResult) -> tuple[SweepRow, ...]:
    return tuple(row for row in result.rows if row.status == "failed")
