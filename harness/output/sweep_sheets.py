"""What a user sees of a sweep, as tables of texts that a terminal and a page show alike."""

from __future__ import annotations

__all__ = [
    "LEGEND",
    "Cell",
    "Column",
    "Heat",
    "Kind",
    "Panel",
    "Sheet",
    "heats",
    "level_of",
    "number",
    "sheets",
    "step_names",
    "title_of",
]

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from harness.output.sweep_figures import (
    Placed,
    SweepFigures,
    failures,
    label_of,
    parts_of,
    size_of,
    standings,
)
from harness.records import Effect
from harness.sweep.model import Configuration, SweepResult, SweepRow

BEST = 10
"""Configurations of a size in its table."""
PANELS = 12
"""More than this many parts of one heat map nobody looks through: then each cell is the best over them."""
STEPS = (0.10, 0.25, 0.50, 0.75, 0.90, 0.97)
"""Shares of the best rate of a size, where one colour of a heat map ends and the next begins."""
LEGEND = {"best": "*", "rejected": "-", "failed": "!", "not tried": "."}
"""What stands in a cell that holds no rate, or with the best one."""


Kind = Literal["standings", "failures", "group", "ranking", "best"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    text: bool = False
    """Whether it holds words, which may be folded; numbers never are."""
    spare: int = 0
    """Where a table is too wide, columns with the highest of these go first; 0 never goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table before it has a look. Its texts are raw: whoever shows them makes them harmless."""

    kind: Kind
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marks: tuple[str, ...] = ()
    """Of each row: best, tied or nothing."""
    cut: bool = False
    """Whether the last column is cut where a line has no room for it, so that each row is one line."""

    def filled(self) -> list[int]:
        """Which columns have something to say. A device without a peak has none of it, for one."""
        return [at for at, _ in enumerate(self.columns) if any(row[at] for row in self.rows)]


def title_of(result: SweepResult) -> str:
    sweep = result.sweep
    commit = (sweep.source.commit or "no commit")[:10] + (" + changes" if sweep.source.dirty else "")
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
    total = result.sweep.total
    state = "" if result.complete else ", not complete"
    return Sheet(
        kind="standings",
        title=f"{total:,} configuration{'' if total == 1 else 's'}{state}",
        columns=(
            Column(name="configurations"),
            Column(name="became", text=True),
            Column(name="why", text=True),
        ),
        rows=tuple((f"{each.configurations:,}", each.standing, each.why) for each in standings(result)),
    )


def _failed(figures: SweepFigures, failed: Sequence[SweepRow]) -> Sheet:
    return Sheet(
        kind="failures",
        title="failed",
        columns=(
            Column(name="no."),
            Column(name="size"),
            Column(name="configuration", text=True),
            Column(name="reason", text=True),
            Column(name="message", text=True),
        ),
        rows=tuple(
            (
                str(row.configuration.number),
                size_of(row.configuration),
                _parts(figures, row.configuration),
                row.reason,
                " ".join(row.message.split()),
            )
            for row in failed
        ),
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
            columns=(
                Column(name=name, text=True),
                Column(name="measured"),
                Column(name="average"),
                Column(name="best"),
                Column(name="% peak"),
                Column(name="best at", spare=1),
                Column(name="no.", spare=2),
                *(Column(name=f"avg {size}", spare=3) for size in sizes),
            ),
            rows=tuple(
                (
                    label_of(line.values),
                    f"{line.measured} of {line.configurations}",
                    number(line.average),
                    number(line.best),
                    number(line.peak_percent, 3),
                    line.best_size,
                    str(line.best_number or ""),
                    *(number(line.averages.get(size)) for size in sizes),
                )
                for line in lines
            ),
            marks=tuple("best" if line.best == best else "" for line in lines),
        )


def _best_ten(figures: SweepFigures, size: str) -> Sheet:
    placed = figures.ranking(size)
    shown = placed[:BEST]
    more = f", {len(shown)} of {len(placed)}" if len(placed) > len(shown) else ""
    return Sheet(
        kind="ranking",
        title=f"best at {size}{more}; = is tied with the first",
        columns=(
            Column(name="", text=True),
            Column(name="configuration", text=True),
            Column(name=figures.unit),
            Column(name="±%", spare=4),
            Column(name="% peak", spare=1),
            Column(name="behind, %"),
            Column(name="threads"),
            Column(name="regs", spare=3),
            Column(name="no.", spare=5),
            Column(name="same code", text=True, spare=6),
        ),
        rows=tuple(
            (
                f"{each.place} =" if each.tied else str(each.place),
                _parts(figures, each.row.configuration),
                number(each.rate),
                _percent(each.half_width),
                number(each.peak_percent, 3),
                _behind(each),
                _threads(each.row),
                _registers(each.row),
                str(each.row.configuration.number),
                ", ".join(map(str, each.also)),
            )
            for each in shown
        ),
        marks=tuple("best" if each.winner else "tied" if each.tied else "" for each in shown),
    )


def _best(figures: SweepFigures) -> Sheet:
    first = {size: placed[0] for size in figures.sizes if (placed := figures.ranking(size))}
    return Sheet(
        kind="best",
        title="best configuration of each size",
        columns=(
            Column(name="size"),
            Column(name="configuration", text=True),
            Column(name=figures.unit),
            Column(name="% peak"),
            Column(name="threads"),
            Column(name="ms", spare=1),
            Column(name="measured", text=True, spare=2),
            Column(name="tied with", text=True, spare=3),
        ),
        rows=tuple(
            (
                size,
                _parts(figures, each.row.configuration),
                number(each.rate),
                number(each.peak_percent, 3),
                _threads(each.row),
                f"{each.time_ns / 1e6:.4g}",
                _how(figures, size),
                ", ".join(f"no. {other}" for other in _tied(figures, size)),
            )
            for size, each in first.items()
        ),
    )


def _how(figures: SweepFigures, size: str) -> str:
    final = figures.finals.get(size)
    if final is None:
        return "when screened"
    count = len(final.process_times_ns)
    return f"in {count} fresh process{'' if count == 1 else 'es'}"


def _tied(figures: SweepFigures, size: str) -> tuple[int, ...]:
    final = figures.finals.get(size)
    return final.tied if final else ()


def _parts(figures: SweepFigures, configuration: Configuration) -> str:
    return parts_of(configuration, figures.sweep, figures.groups)


def _behind(each: Placed) -> str:
    if each.winner:
        return "best"
    return _effect(each.behind) if each.behind else ""


def _effect(effect: Effect) -> str:
    half = (effect.high - effect.low) / 2
    digits = 2 if abs(effect.effect) < 0.1 and half < 0.1 else 1
    return f"{100 * effect.effect:+.{digits}f} ±{100 * half:.{digits}f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def _threads(row: SweepRow) -> str:
    if row.launch is None:
        return ""
    x, y, z = row.launch.block
    return f"{x * y * z:,}"


def _registers(row: SweepRow) -> str:
    known = row.resources.registers if row.resources else None
    return "" if known is None else str(known)


def number(value: float | None, digits: int = 4) -> str:
    """With this many significant digits, thousands apart, never in powers of ten; empty for None."""
    if value is None:
        return ""
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(0, digits - whole)}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
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
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]
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


def _cells(figures: SweepFigures, size: str, groups: Sequence[str]) -> Mapping[tuple[str, ...], Cell]:
    found: dict[tuple[str, ...], list[SweepRow]] = defaultdict(list)
    for row in figures.result.rows:
        if size_of(row.configuration) == size:
            place = tuple(_label(row.configuration, figures.groups[name]) for name in groups)
            found[place].append(row)
    best = max(
        (figures.rate(row) for row in figures.measured if size_of(row.configuration) == size), default=0.0
    )
    cells = {place: _cell(figures, rows, best) for place, rows in found.items()}
    return defaultdict(lambda: Cell(text=LEGEND["not tried"]), cells)


def _cell(figures: SweepFigures, rows: Sequence[SweepRow], best: float) -> Cell:
    rates = [figures.rate(row) for row in rows if row.status == "measured" and row.time_ns]
    if rates:
        rate = max(rates)
        mark = LEGEND["best"] if rate == best else ""
        return Cell(
            text=f"{number(rate, 3)}{mark}", share=rate / best, standing="best" if mark else "measured"
        )
    standing = "failed" if any(row.status == "failed" for row in rows) else "rejected"
    return Cell(text=LEGEND[standing], standing=standing)


def level_of(share: float) -> int:
    """Which of the colours, 0 for the slowest."""
    return sum(share >= step for step in STEPS)


def step_names() -> tuple[str, ...]:
    """What each colour stands for, in shares of the best."""
    low, *others = (f"{100 * step:g}" for step in STEPS)
    between = zip((low, *others), others, strict=False)
    return (f"< {low} %", *(f"{a}-{b} %" for a, b in between), f">= {others[-1]} %")
