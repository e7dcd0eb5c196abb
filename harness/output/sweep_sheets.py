"""What the rows of a sweep come to: rates, averages by parameter, and who is how far behind the best."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from statistics import fmean

from harness.numbers import counted, half_width, milliseconds, number, percent_figure
from harness.output.sentences import commit_label
from harness.output.sheet import Column, Sheet
from harness.records import Effect
from harness.spec.case_id import size_label
from harness.spec.suite import Value
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
            found[_figure_values(row.configuration, names)].append(row)
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


def _figure_values(configuration: Configuration, names: Sequence[str]) -> tuple[Value, ...]:
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


BEST = 10
"""Configurations of a size in its table."""
PANELS = 12
"""More than this many parts of one heat map nobody looks through: then each cell is the best over them."""
STEPS = (0.10, 0.25, 0.50, 0.75, 0.90, 0.97)
"""Shares of the best rate of a size, where one colour of a heat map ends and the next begins."""
LEGEND = {"best": "*", "rejected": "-", "failed": "!", "not tried": "."}
"""What stands in a cell that holds no rate, or with the best one."""


def title_of(result: SweepResult) -> str:
    sweep = result.sweep
    commit = commit_label(sweep.source.commit, dirty=sweep.source.dirty)
    name = sweep.kernel if "." in sweep.kernel else f"{sweep.source.suite}.{sweep.kernel}"
    cards = f", {len(sweep.devices)} devices" if len(sweep.devices) > 1 else ""
    return f"{name} at {commit} on {sweep.device.name} ({sweep.device.spec}{cards})"


def sheets(result: SweepResult) -> Iterator[Sheet]:
    """What became of the configurations, the failed ones, the rates by group, and the best of each size."""
    figures = SweepFigures(result)
    yield _counts(result)
    if failed := failures(result):
        yield _failed(figures, failed)
    if figures.measured:
        yield from _by_group(figures)
        yield from (_best_ten(figures, size) for size in figures.sizes if figures.ranking(size))
        yield _best(figures)


def _counts(result: SweepResult) -> Sheet:
    found = standings(result)
    return Sheet(
        kind="standings",
        title=counted(result.sweep.total, "configuration") + ("" if result.complete else ", not complete"),
        columns=[
            Column("configurations", [f"{each.configurations:,}" for each in found]),
            Column("became", [each.standing for each in found], text=True, heads=True),
            Column("why", [each.why for each in found], text=True),
        ],
    )


def _failed(figures: SweepFigures, failed: Sequence[SweepRow]) -> Sheet:
    return Sheet(
        kind="failures",
        title="failed",
        columns=[
            Column("no.", [str(row.configuration.number) for row in failed], heads=True),
            Column("size", [size_of(row.configuration) for row in failed]),
            Column("configuration", _configurations(figures, failed), text=True),
            Column("reason", [row.reason for row in failed], text=True),
            Column("message", [" ".join(row.message.split()) for row in failed], text=True),
        ],
        cut=True,
    )


def _by_group(figures: SweepFigures) -> Iterator[Sheet]:
    sizes = figures.sizes if len(figures.sizes) > 1 else ()
    for name, lines in figures.by_group().items():
        best = max(line.best or 0.0 for line in lines)
        names = figures.groups[name]
        of = f" ({', '.join(names)})" if names != (name,) else ""
        yield Sheet(
            kind="group",
            title=f"by {name}{of}, {figures.unit}",
            columns=[
                Column(name, [label_of(line.values) for line in lines], text=True, heads=True),
                Column("measured", [f"{line.measured} of {line.configurations}" for line in lines]),
                Column("average", [number(line.average) for line in lines]),
                Column("best", [number(line.best) for line in lines]),
                Column("% peak", [number(line.peak_percent, 3) for line in lines]),
                Column("best at", [line.best_size for line in lines], spare=1),
                Column("no.", [str(line.best_number or "") for line in lines], spare=2),
                *(
                    Column(f"avg {size}", [number(line.averages.get(size)) for line in lines], spare=3)
                    for size in sizes
                ),
            ],
            marks=["best" if line.best == best else "" for line in lines],
        )


def _best_ten(figures: SweepFigures, size: str) -> Sheet:
    placed = figures.ranking(size)
    shown = placed[:BEST]
    rows = [each.row for each in shown]
    more = f", {len(shown)} of {len(placed)}" if len(placed) > len(shown) else ""
    places = [f"{each.place} =" if each.tied else str(each.place) for each in shown]
    return Sheet(
        kind="ranking",
        title=f"best at {size}{more}; = is tied with the first",
        columns=[
            Column("", places, text=True),
            Column("configuration", _configurations(figures, rows), text=True, heads=True),
            Column(figures.unit, [number(each.rate) for each in shown]),
            Column("±%", [percent_figure(each.half_width) for each in shown], spare=4),
            Column("% peak", [number(each.peak_percent, 3) for each in shown], spare=1),
            Column("behind, %", list(map(_behind, shown))),
            Column("threads", list(map(_threads, rows))),
            Column("regs", list(map(_registers, rows)), spare=3),
            Column("no.", [str(row.configuration.number) for row in rows], spare=5),
            Column("same code", [", ".join(map(str, each.also)) for each in shown], text=True, spare=6),
        ],
        marks=["best" if each.winner else "tied" if each.tied else "" for each in shown],
    )


def _best(figures: SweepFigures) -> Sheet:
    first = {size: placed[0] for size in figures.sizes if (placed := figures.ranking(size))}
    rows = [each.row for each in first.values()]
    tied = [", ".join(f"no. {other}" for other in _tied(figures, size)) for size in first]
    return Sheet(
        kind="best",
        title="best configuration of each size",
        columns=[
            Column("size", list(first), heads=True),
            Column("configuration", _configurations(figures, rows), text=True),
            Column(figures.unit, [number(each.rate) for each in first.values()]),
            Column("% peak", [number(each.peak_percent, 3) for each in first.values()]),
            Column("threads", list(map(_threads, rows))),
            Column("ms", [milliseconds(each.time_ns) for each in first.values()], spare=1),
            Column("measured", [_how(figures, size) for size in first], text=True, spare=2),
            Column("tied with", tied, text=True, spare=3),
        ],
    )


def _how(figures: SweepFigures, size: str) -> str:
    final = figures.finals.get(size)
    if final is None:
        return "when screened"
    return f"in {counted(len(final.process_times_ns), 'fresh process', 'fresh processes')}"


def _tied(figures: SweepFigures, size: str) -> tuple[int, ...]:
    final = figures.finals.get(size)
    return final.tied if final else ()


def _configurations(figures: SweepFigures, rows: Sequence[SweepRow]) -> list[str]:
    return [parts_of(row.configuration, figures.sweep, figures.groups) for row in rows]


def _behind(each: Placed) -> str:
    if each.winner:
        return "best"
    if each.behind is None:
        return ""
    return f"{percent_figure(each.behind.effect, sign=True)} ±{percent_figure(half_width(each.behind))}"


def _threads(row: SweepRow) -> str:
    if row.launch is None:
        return ""
    x, y, z = row.launch.block
    return f"{x * y * z:,}"


def _registers(row: SweepRow) -> str:
    known = row.resources.registers if row.resources else None
    return "" if known is None else str(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The best of the configurations that fall into one place of a heat map."""

    text: str
    share: float | None = None
    """Of the best rate of its size."""
    standing: str = "not tried"
    """best, measured, failed, rejected or not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """The rates of one size over two groups."""

    title: str
    down: str
    across: str
    """Names of the two groups; `down` is empty where there is one group only."""
    columns: tuple[str, ...]
    """Values of `across`."""
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of a heat map, in which every other group has one value."""

    title: str
    lines: tuple[tuple[str, tuple[Place, ...]], ...]
    """A value of `down`, and the cells of its line."""


def heats(result: SweepResult) -> Iterator[Heat]:
    """A heat map for each size, over the two groups that have most values."""
    figures = SweepFigures(result)
    values = {name: _values(result, names) for name, names in figures.groups.items()}
    order = sorted(values, key=lambda name: -len(values[name]))
    if not figures.measured or not order:
        return
    down, across = order[:2] if len(order) > 1 else ("", order[0])
    rest = [name for name in values if name not in (down, across) and len(values[name]) > 1]
    over = ""
    if prod(len(values[name]) for name in rest) > PANELS:
        over, rest = f", each the best over {', '.join(rest)}", []
    for size in figures.sizes:
        cells = _cells(figures, size, (*rest, *filter(None, (down, across))))
        yield Heat(
            title=f"{figures.unit} at {size}{over}",
            down=down,
            across=across,
            columns=values[across],
            panels=tuple(
                Panel(
                    title=" ".join(panel),
                    lines=tuple(
                        (" ".join(line), tuple(cells[(*panel, *line, column)] for column in values[across]))
                        for line in itertools.product(*([values[down]] if down else []))
                    ),
                )
                for panel in itertools.product(*(values[name] for name in rest))
            ),
        )


def _values(result: SweepResult, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_label(row.configuration, names) for row in result.rows))


def _label(configuration: Configuration, names: Sequence[str]) -> str:
    return label_of(
        {name: configuration.parameters[name] for name in names if name in configuration.parameters}
    )


def _cells(figures: SweepFigures, size: str, groups: Sequence[str]) -> Mapping[tuple[str, ...], Place]:
    found: dict[tuple[str, ...], list[SweepRow]] = defaultdict(list)
    for row in figures.result.rows:
        if size_of(row.configuration) == size:
            place = tuple(_label(row.configuration, figures.groups[name]) for name in groups)
            found[place].append(row)
    best = max(
        (figures.rate(row) for row in figures.measured if size_of(row.configuration) == size), default=0.0
    )
    cells = {place: _cell(figures, rows, best) for place, rows in found.items()}
    return defaultdict(lambda: Place(text=LEGEND["not tried"]), cells)


def _cell(figures: SweepFigures, rows: Sequence[SweepRow], best: float) -> Place:
    rates = [figures.rate(row) for row in rows if row.status == "measured" and row.time_ns]
    if rates:
        rate = max(rates)
        mark = LEGEND["best"] if rate == best else ""
        return Place(
            text=f"{number(rate, 3)}{mark}", share=rate / best, standing="best" if mark else "measured"
        )
    standing = "failed" if any(row.status == "failed" for row in rows) else "rejected"
    return Place(text=LEGEND[standing], standing=standing)


def level_of(share: float) -> int:
    """Which of the colours, 0 for the slowest."""
    return sum(share >= step for step in STEPS)


def step_names() -> tuple[str, ...]:
    """What each colour stands for, in shares of the best."""
    low, *others = (f"{100 * step:g}" for step in STEPS)
    between = zip((low, *others), others, strict=False)
    return (f"< {low} %", *(f"{a}-{b} %" for a, b in between), f">= {others[-1]} %")
