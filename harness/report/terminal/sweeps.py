"""A sweep's results as tables, heat map, JSON and a page.

The page has no scripts and sends no requests, so it works from a disk.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.text import Text

from harness.device.peaks import peak_of
from harness.numbers import Value, counted, half_width, milliseconds, number, percent_figure
from harness.records.sweep_types import Configuration, Final, Sweep, SweepResult, SweepRow
from harness.records.types import Effect, fields_of
from harness.report.table import CLOSING, SHADES, Cell, Column, Sheet, opening
from harness.report.templates import html_environment
from harness.report.terminal.run_tables import STYLES
from harness.report.words.of_verdict import source_label
from harness.suite.case_id import size_label
from harness.system.cache import write_file

SCHEMA_VERSION = 1
BEST = 10
"""Configurations of a size in its table."""
PANELS = 12
"""Largest number of parts of a heat map. With more, each cell is the best over the parts."""
STEPS = (0.10, 0.25, 0.50, 0.75, 0.90, 0.97)
"""Shares of a size's best rate that separate the colours of a heat map."""
LEGEND = {"best": "*", "rejected": "-", "failed": "!", "not tried": "."}
"""Signs in cells without a rate, and the sign of the best rate."""
_NUMBER = r"\d+(?:[.,]\d+)*"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRow:
    """A measured configuration among those of its size. Identical ones are counted once."""

    place: int
    row: SweepRow
    half_width: float | None
    """Half the interval of its time over the time; for a winner, half the range of its processes."""
    behind: Effect | None
    winner: bool
    """True if the configuration was measured again in fresh processes."""
    tied: bool
    also: tuple[int, ...]
    """Numbers of the configurations with the same code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """All configurations with these values."""

    values: Mapping[str, Value]
    configurations: int
    measured: int
    average: float | None
    best: float | None
    best_number: int | None
    best_size: str
    peak_percent: float | None
    averages: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Number of configurations with one outcome and one reason."""

    standing: str
    why: str
    configurations: int


class SweepFigures:
    """Values of a result, each computed once."""

    def __init__(self, result: SweepResult) -> None:
        self.result = result
        self.sweep = result.sweep

    @cached_property
    def measured(self) -> tuple[SweepRow, ...]:
        return tuple(filter(_is_measured, self.result.rows))

    @cached_property
    def unit(self) -> str:
        """Return the unit: GFLOP/s; GB/s if operations are not counted; launches/s if bytes are
        not either.
        """
        if all(row.flop for row in self.measured):
            return "GFLOP/s"
        return "GB/s" if all(row.moved_bytes for row in self.measured) else "launches/s"

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return the names of parameters by group. A parameter without a group is its own group."""
        grouped = {name for names in self.sweep.groups.values() for name in names}
        own = {name: (name,) for name in self.sweep.parameters if name not in grouped}
        return {**{name: tuple(names) for name, names in self.sweep.groups.items()}, **own}

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_size(row) for row in self.result.rows))

    @cached_property
    def finals(self) -> dict[str, Final]:
        return {size_label(final.sizes): final for final in self.result.finals}

    def time_ns(self, row: SweepRow) -> float:
        """Return the time of a row. For a winner and its duplicates it comes from fresh processes."""
        final = self.finals.get(_size(row))
        if final and final.number in (row.configuration.number, row.same_as):
            return final.time_ns
        return row.time_ns or 0.0

    def rate(self, row: SweepRow) -> float:
        """Return the rate in `unit`."""
        if self.unit == "launches/s":
            return 1e9 / self.time_ns(row)
        work = row.flop if self.unit == "GFLOP/s" else row.moved_bytes
        return (work or 0) / self.time_ns(row)

    def peak_percent(self, row: SweepRow) -> float | None:
        """Return the share of the card's theoretical peak, in percent."""
        rate = self.rate(row)
        peak = peak_of(self.sweep.peaks, self.unit, row.dtype, rate)
        return 100 * rate / peak if peak else None

    def by_group(self) -> dict[str, list[GroupLine]]:
        """Return a line for each value of each group, in the suite's order."""
        found: dict[str, list[GroupLine]] = {}
        for group, names in self.groups.items():
            rows: dict[tuple[Value, ...], list[SweepRow]] = defaultdict(list)
            for row in self.result.rows:
                rows[tuple(row.configuration.parameters.get(name, "") for name in names)].append(row)
            found[group] = [
                self._group_line(dict(zip(names, values, strict=True)), members)
                for values, members in rows.items()
            ]
        return found

    def _group_line(self, values: Mapping[str, Value], rows: Sequence[SweepRow]) -> GroupLine:
        measured = list(filter(_is_measured, rows))
        best = max(measured, key=self.rate, default=None)
        rates: dict[str, list[float]] = defaultdict(list)
        for row in measured:
            rates[_size(row)].append(self.rate(row))
        return GroupLine(
            values=values,
            configurations=len(rows),
            measured=len(measured),
            average=fmean(map(self.rate, measured)) if measured else None,
            best=self.rate(best) if best else None,
            best_number=best.configuration.number if best else None,
            best_size=_size(best) if best else "",
            peak_percent=self.peak_percent(best) if best else None,
            averages={size: fmean(rates[size]) for size in self.sizes if size in rates},
        )

    def ranking(self, size: str) -> list[RankedRow]:
        """Return the measured configurations of a size, the best first.

        Paired effects decide if there are any, because screening times were measured one after another.
        """
        rows = [row for row in self.measured if _size(row) == size]
        also: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            if row.same_as is not None:
                also[row.same_as].append(row.configuration.number)
        alone = [row for row in rows if row.same_as is None]
        final = self.finals.get(size)
        best = _best_so_far(alone, final)
        base = (best.time_ns or 0.0) if best else 0.0

        def estimate(row: SweepRow) -> tuple[bool, float]:
            time_ns = base * (1 + row.behind.effect) if row.behind else row.time_ns or 0.0
            return row is not best, time_ns

        ranked = []
        for place, row in enumerate(sorted(alone, key=estimate), 1):
            at = row.configuration.number
            winner = final is not None and final.number == at
            ranked.append(
                RankedRow(
                    place=place,
                    row=row,
                    half_width=_half_width(row, final if winner else None),
                    behind=None if winner else row.behind,
                    winner=winner,
                    tied=final is not None and at in final.tied,
                    also=tuple(also[at]),
                )
            )
        return ranked


def _is_measured(row: SweepRow) -> bool:
    return row.status == "measured" and bool(row.time_ns)


def _size(row: SweepRow) -> str:
    return size_label(row.configuration.sizes)


def _best_so_far(rows: Sequence[SweepRow], final: Final | None) -> SweepRow | None:
    """Return the winner; else the configuration that won its pairs; else the fastest."""
    if final:
        return next((row for row in rows if row.configuration.number == final.number), None)
    paired = [row for row in rows if row.round and row.behind is None]
    return min(paired or rows, key=lambda row: (-row.round, row.time_ns or 0.0), default=None)


def _half_width(row: SweepRow, final: Final | None) -> float | None:
    if final:
        times = final.process_times_ns
        return (max(times) - min(times)) / (2 * final.time_ns) if len(times) > 1 else None
    if row.time_low_ns is None or row.time_high_ns is None or not row.time_ns:
        return None
    return (row.time_high_ns - row.time_low_ns) / (2 * row.time_ns)


def label_of(values: Mapping[str, Value]) -> str:
    """Return ``32x64x32`` for numbers, ``k_innermost`` for a word, ``word, 4`` for both."""
    numbers = all(isinstance(value, int) for value in values.values())
    return ("x" if numbers else ", ").join(map(str, values.values()))


def _label(configuration: Configuration, names: Sequence[str]) -> str:
    found = configuration.parameters
    return label_of({name: found[name] for name in names if name in found})


def parts_of(configuration: Configuration, sweep: Sweep, groups: Mapping[str, Sequence[str]]) -> str:
    """Return a short form of a configuration: groups as in tables, other parameters by name."""
    labels = {group: _label(configuration, names) for group, names in groups.items()}
    parts = (label if group in sweep.groups else f"{group}={label}" for group, label in labels.items())
    return " ".join(filter(None, parts))


def standings(result: SweepResult) -> tuple[Count, ...]:
    """Count the configurations by outcome: rejected ones by rule, failed ones by reason."""
    order = ("measured", "identical", "rejected", "failed", "not reached")
    found = Counter(map(_standing, result.rows))
    if missing := result.sweep.total - len(result.rows):
        found["not reached", ""] = missing
    counts = [Count(standing=standing, why=why, configurations=n) for (standing, why), n in found.items()]
    return tuple(sorted(counts, key=lambda each: order.index(each.standing)))


def _standing(row: SweepRow) -> tuple[str, str]:
    if row.status == "measured":
        return ("measured", "") if row.same_as is None else ("identical", "to another of its size")
    if row.status == "rejected" and row.reason == "rule":
        return "rejected", row.message.partition(" does not hold")[0]
    if row.status == "rejected":
        # Of sentences that differ only in numbers, one is enough.
        return "rejected", f"{row.reason}: {re.sub(_NUMBER, '…', row.message)}"
    return "failed", row.reason


def title_of(result: SweepResult) -> str:
    sweep = result.sweep
    commit = source_label(sweep.source)
    name = sweep.kernel if "." in sweep.kernel else f"{sweep.source.suite}.{sweep.kernel}"
    cards = f", {len(sweep.devices)} devices" if len(sweep.devices) > 1 else ""
    return f"{name} at {commit} on {sweep.device.name} ({sweep.device.spec}{cards})"


def sweep_tables(result: SweepResult) -> Iterator[Sheet]:
    """Yield the sheets for a terminal, where the first names the sweep."""
    first, *others = sheets(result)
    yield replace(first, title=f"{title_of(result)}: {first.title}")
    yield from others


def sheets(result: SweepResult) -> Iterator[Sheet]:
    """Yield tables of the outcomes, the failures, the rates by group, and the best of each size."""
    figures = SweepFigures(result)
    yield _counts(result)
    if failed := [row for row in result.rows if row.status == "failed"]:
        yield _failed(figures, failed)
    if figures.measured:
        yield from _by_group(figures)
        ranked = {size: found for size in figures.sizes if (found := figures.ranking(size))}
        yield from (_best_ten(figures, size, found) for size, found in ranked.items())
        yield _best(figures, {size: found[0] for size, found in ranked.items()})


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
            Column("size", list(map(_size, failed))),
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
        averages = {size: [number(line.averages.get(size)) for line in lines] for size in sizes}
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
                *(Column(f"avg {size}", cells, spare=3) for size, cells in averages.items()),
            ],
            marks=["best" if line.best == best else "" for line in lines],
        )


def _best_ten(figures: SweepFigures, size: str, ranked: Sequence[RankedRow]) -> Sheet:
    shown = ranked[:BEST]
    rows = [each.row for each in shown]
    registers = [number(row.resources.registers if row.resources else None) for row in rows]
    more = f", {len(shown)} of {len(ranked)}" if len(ranked) > len(shown) else ""
    return Sheet(
        kind="ranking",
        title=f"best at {size}{more}; = is tied with the first",
        columns=[
            Column("", [f"{each.place}{' =' if each.tied else ''}" for each in shown], text=True),
            Column("configuration", _configurations(figures, rows), text=True, heads=True),
            Column(figures.unit, [number(figures.rate(row)) for row in rows]),
            Column("±%", [percent_figure(each.half_width) for each in shown], spare=4),
            Column("% peak", [number(figures.peak_percent(row), 3) for row in rows], spare=1),
            Column("behind, %", list(map(_behind, shown))),
            Column("threads", list(map(_threads, rows))),
            Column("regs", registers, spare=3),
            Column("no.", [str(row.configuration.number) for row in rows], spare=5),
            Column("same code", [", ".join(map(str, each.also)) for each in shown], text=True, spare=6),
        ],
        marks=["best" if each.winner else "tied" if each.tied else "" for each in shown],
    )


def _best(figures: SweepFigures, first: Mapping[str, RankedRow]) -> Sheet:
    rows = [each.row for each in first.values()]
    finals = [figures.finals.get(size) for size in first]
    ways = [
        f"in {counted(len(final.process_times_ns), 'fresh process', 'fresh processes')}"
        if final
        else "when screened"
        for final in finals
    ]
    tied = [", ".join(f"no. {other}" for other in (final.tied if final else ())) for final in finals]
    return Sheet(
        kind="best",
        title="best configuration of each size",
        columns=[
            Column("size", list(first), heads=True),
            Column("configuration", _configurations(figures, rows), text=True),
            Column(figures.unit, [number(figures.rate(row)) for row in rows]),
            Column("% peak", [number(figures.peak_percent(row), 3) for row in rows]),
            Column("threads", list(map(_threads, rows))),
            Column("ms", [milliseconds(figures.time_ns(row)) for row in rows], spare=1),
            Column("measured", ways, text=True, spare=2),
            Column("tied with", tied, text=True, spare=3),
        ],
    )


def _configurations(figures: SweepFigures, rows: Sequence[SweepRow]) -> list[str]:
    return [parts_of(row.configuration, figures.sweep, figures.groups) for row in rows]


def _behind(each: RankedRow) -> str:
    if each.winner:
        return "best"
    if each.behind is None:
        return ""
    return f"{percent_figure(each.behind.effect, sign=True)} ±{percent_figure(half_width(each.behind))}"


def _threads(row: SweepRow) -> str:
    return f"{prod(row.launch.block):,}" if row.launch else ""


def heat_sheets(result: SweepResult) -> Iterator[Sheet]:
    """Yield the rates of each size over the two groups with most values. Other groups form separate parts."""
    figures = SweepFigures(result)
    values = {
        group: tuple(dict.fromkeys(_label(row.configuration, names) for row in result.rows))
        for group, names in figures.groups.items()
    }
    order = sorted(values, key=lambda name: -len(values[name]))
    if not figures.measured or not order:
        return
    down, across = order[:2] if len(order) > 1 else ("", order[0])
    rest = [name for name in values if name not in (down, across) and len(values[name]) > 1]
    over = ""
    if prod(len(values[name]) for name in rest) > PANELS:
        over, rest = f", each the best over {', '.join(rest)}", []
    lines = [(label,) for label in values[down]] if down else [()]
    rows = list(itertools.product(itertools.product(*(values[name] for name in rest)), lines))
    marks = ["" if at % len(lines) else "panel" for at in range(len(rows))]
    naming: list[Column] = []
    if rest:
        titles = [
            f"{' '.join(panel)}  " if mark else "" for (panel, _), mark in zip(rows, marks, strict=True)
        ]
        naming.append(Column("", titles, text=True, heads=True, whole=True, spans=True))
    if down:
        labels = [f"{' '.join(line)}  " for _, line in rows]
        naming.append(Column(down, labels, text=True, heads=True, whole=True))
    for size in figures.sizes:
        cells = _heat_cells(figures, size, (*rest, *filter(None, (down, across))))
        columns = [
            Column(f" {value}  ", [cells[panel + line + (value,)] for panel, line in rows])
            for value in values[across]
        ]
        yield Sheet(
            kind="heat",
            title=f"{figures.unit} at {size}{over}, {across} across",
            columns=[*naming, *columns],
            marks=marks,
            dense=True,
        )


def _heat_cells(figures: SweepFigures, size: str, groups: Sequence[str]) -> Mapping[tuple[str, ...], Cell]:
    """Return cells by labels of the groups. Their texts include spaces for the coloured background."""
    found: dict[tuple[str, ...], list[SweepRow]] = defaultdict(list)
    for row in figures.result.rows:
        if _size(row) == size:
            found[tuple(_label(row.configuration, figures.groups[name]) for name in groups)].append(row)
    best = max((figures.rate(row) for row in figures.measured if _size(row) == size), default=0.0)

    def cell(rows: Sequence[SweepRow]) -> Cell:
        rate = max(map(figures.rate, filter(_is_measured, rows)), default=None)
        if rate is not None:
            mark = LEGEND["best"] if rate == best else " "  # keep numbers aligned
            return Cell(f" {number(rate, 3)}{mark} ", SHADES[level_of(rate / best)])
        failed = any(row.status == "failed" for row in rows)
        return empty("failed" if failed else "rejected")

    def empty(standing: str) -> Cell:
        return Cell(f" {LEGEND[standing]}  ", "none", standing)

    return defaultdict(lambda: empty("not tried"), {place: cell(rows) for place, rows in found.items()})


def level_of(share: float) -> int:
    """Return the index of a colour, 0 for the slowest."""
    return sum(share >= step for step in STEPS)


def step_names() -> tuple[str, ...]:
    """Return the legend of the colours: ranges of the rate in percent of the best."""
    low, *others = (f"{100 * step:g}" for step in STEPS)
    between = (f"{a}-{b} %" for a, b in itertools.pairwise((low, *others)))
    return (f"< {low} %", *between, f">= {others[-1]} %")


def heat_map(result: SweepResult, width: int) -> Iterator[Sheet | Text]:
    """Yield the heat maps for a terminal, with a legend at the end.

    A map wider than `width` columns continues in another table.
    """
    found = list(heat_sheets(result))
    for sheet in found:
        yield from sheet.parts(width)
    if found:
        colours = (Text(f" {name} ", STYLES[shade]) for name, shade in zip(step_names(), SHADES, strict=True))
        marks = "  ".join(f"{mark} {standing}" for standing, mark in LEGEND.items())
        yield Text("of best  ").append(Text(" ").join(colours)).append(f"\n         {marks}")


def sweep_page(result: SweepResult) -> str:
    """Return the terminal's tables and the heat map as HTML."""
    folder, title = Path(__file__).parent, f"Sweep of {title_of(result)}"
    template = html_environment(folder.parent).get_template("terminal/sweep.html.j2")
    return template.render(
        opening=opening(title, (folder / "sweep.css").read_text(encoding="utf-8")),
        title=title,
        result=result,
        sheets=list(sheets(result)),
        heats=list(heat_sheets(result)),
        steps=list(zip(SHADES, step_names(), strict=True)),
        legend=LEGEND,
        closing=CLOSING,
    )


def write_page(result: SweepResult, path: Path) -> None:
    """Write the page. Raises StoreError if that fails."""
    write_file(path, sweep_page(result).encode(), "Name a file in a folder with room.")


def as_json(result: SweepResult) -> dict[str, Any]:
    """Return the stored records, with the rates and tables derived from them."""
    figures = SweepFigures(result)
    return {
        "schema_version": SCHEMA_VERSION,
        **fields_of(result, "sweep", "complete", "interrupted"),
        "record": result.path,
        **fields_of(result, "problem", "reused", "compile_s", "measure_s"),
        "unit": figures.unit,
        "standings": standings(result),
        "rows": [{"row": row, "summary": _summary(figures, row)} for row in result.rows],
        "finals": result.finals,
        "groups": {
            name: [{"label": label_of(line.values), **asdict(line)} for line in lines]
            for name, lines in figures.by_group().items()
        },
        "best": {
            size: [_ranked_json(figures, each) for each in figures.ranking(size)] for size in figures.sizes
        },
    }


def _summary(figures: SweepFigures, row: SweepRow) -> dict[str, Any] | None:
    if not _is_measured(row):
        return None
    return {
        "time_ms": figures.time_ns(row) / 1e6,
        "rate": figures.rate(row),
        "peak_percent": figures.peak_percent(row),
    }


def _ranked_json(figures: SweepFigures, each: RankedRow) -> dict[str, Any]:
    return {
        "place": each.place,
        "number": each.row.configuration.number,
        "parameters": each.row.configuration.parameters,
        "time_ms": figures.time_ns(each.row) / 1e6,
        "half_width": each.half_width,
        "rate": figures.rate(each.row),
        "peak_percent": figures.peak_percent(each.row),
        "behind": each.behind,
        "winner": each.winner,
        "tied": each.tied,
        "same_code": each.also,
    }
