"""Ladders as text: tables for a terminal of 80 columns, or Markdown for a README."""

from __future__ import annotations

__all__ = ["markdown", "print_hints", "print_ladder"]

import dataclasses
import datetime as dt
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.markup import escape
from rich.table import Table

from harness.output.ladders import LadderReport, Line, Ours, Place
from harness.output.tables import console, natural_width, plain_table
from harness.spec.suite import size_label

NOTHING = "\N{EN DASH}"
WITH_SLOW = (f"{NOTHING}, with", "--slow")
"""In two cells that stand side by side."""
MOST_DECIMALS = 6
_DAY = 24 * 60


@dataclass(slots=True)
class _Grid:
    """Headings of two lines and cells of text; a column that starts with > is numbers."""

    headings: list[tuple[str, str]] = field(default_factory=list)
    columns: list[list[str]] = field(default_factory=list)

    def add(self, over: str, heading: str, cells: Sequence[str]) -> None:
        self.headings.append((over, heading))
        self.columns.append(list(cells))

    def add_where_told(self, over: str, heading: str, cells: Sequence[str]) -> None:
        if any(cell.strip() not in ("", NOTHING) for cell in cells):
            self.add(over, heading, cells)

    @property
    def rows(self) -> Iterator[tuple[str, ...]]:
        return zip(*self.columns, strict=True)


def print_ladder(report: LadderReport, now: dt.datetime) -> None:
    """A ladder on standard output; figures are as old as they are `now`."""
    out = console()
    ladder = report.ladder
    out.print(f"{report.suite}.{ladder.name}: {ladder.title}", style="bold", highlight=False, markup=False)
    if theirs := _theirs(report):
        out.print(theirs, highlight=False, markup=False)
    for heading, grid, notes, lines in _parts(report, now):
        out.print()
        if heading:
            out.print(heading, style="cyan", highlight=False, markup=False)
        out.print(_fitting(grid, [line.kernel.about for line in lines], out.width))
        for note in notes:
            out.print(note, style="dim", highlight=False, markup=False)
    if ladder.note:
        out.print(ladder.note, style="dim", highlight=False, markup=False)


def _fitting(grid: _Grid, ideas: Sequence[str], width: int) -> Table:
    """With what each rung's idea is where there is room."""
    if any(ideas):
        wide = _table(grid, ideas)
        if natural_width(wide) <= width:
            return wide
    return _table(grid)


def _table(grid: _Grid, ideas: Sequence[str] = ()) -> Table:
    names = [f"{over}\n{name}".lstrip(">") for over, name in grid.headings]
    marks = [">" if over.startswith(">") else "" for over, _ in grid.headings]
    table = plain_table(*(mark + name for mark, name in zip(marks, names, strict=True)))
    if ideas:
        table.add_column("\nidea")
    for number, row in enumerate(grid.rows):
        table.add_row(*map(escape, row), *map(escape, ideas[number : number + 1]))
    return table


def markdown(report: LadderReport) -> str:
    """A ladder as Markdown, with a heading of the third level. Figures have their dates: it is read later."""
    ladder = report.ladder
    told = [f"### {_inline(ladder.title)}", _inline(_theirs(report))]
    for heading, grid, notes, shown in _parts(report, None):
        if shown:
            grid.add("", "idea", [line.kernel.about for line in shown])
        names = [f"{over.lstrip('>')} {name}".strip() for over, name in grid.headings]
        rulers = ["--:" if over.startswith(">") else ":--" for over, _ in grid.headings]
        lines = [names, rulers, *([_inline(cell.strip()) for cell in row] for row in grid.rows)]
        told += [_inline(heading), "\n".join(f"| {' | '.join(cells)} |" for cells in lines)]
        told += [_inline(note) for note in notes]
    return "\n\n".join(part for part in (*told, _inline(ladder.note)) if part) + "\n"


def _inline(text: str) -> str:
    for sign in "\\`*_|<[":
        text = text.replace(sign, f"\\{sign}")
    return text


def print_hints(reports: Sequence[LadderReport]) -> None:
    """What would measure what is a dash."""
    found: dict[str, dict[str, None]] = {"missing": {}, "slow": {}, "swept": {}}
    for report in reports:
        for place in report.places or (None,):
            for line in report.lines:
                what, told = _wanting(report, line, place)
                if what:
                    found[what][told] = None
    hints = []
    if found["missing"]:
        hints.append(f"{NOTHING}: not measured. 'harness report ladder --measure' measures what is missing.")
    if found["slow"]:
        hints.append(f"With --measure --slow, what takes minutes too: {', '.join(found['slow'])}.")
    hints += [f"'harness sweep {name}' measures the rungs that are of a sweep." for name in found["swept"]]
    for hint in hints:
        console().print(hint, highlight=False, markup=False)


def _wanting(report: LadderReport, line: Line, place: Place | None) -> tuple[str, str]:
    """Whether a figure is missing, and what for."""
    machine = place.machine if place else ""
    backend = line.rung.backend or (place.device.backend if place else "")
    if machine in line.ours or (backend and line.kernel.source_for(backend) is None):
        return "", ""
    if line.rung.swept:
        return "swept", f"{report.suite}.{line.rung.kernel}"
    label = f"{line.rung.label} at {size_label(line.sizes)}"
    return ("slow" if line.rung.slow or machine in line.slow else "missing"), label


def _theirs(report: LadderReport) -> str:
    ladder = report.ladder
    size = ""
    if ladder.sizes is not None:
        size = f", size {ladder.sizes if isinstance(ladder.sizes, int) else size_label(ladder.sizes)}"
    card = f"Author: {ladder.card}{size}. " if ladder.card else ""
    return f"{card}{ladder.source}".strip()


def _parts(
    report: LadderReport, now: dt.datetime | None
) -> Iterator[tuple[str, _Grid, list[str], tuple[Line, ...]]]:
    """A heading, a table, what is to be said below it and the lines that the table is of, for each device;
    one for all, and no lines, where kernels are held against another.
    """
    if report.ladder.against:
        yield "", _held_against(report), list(_sources(report, now)), ()
        return
    for place in report.places or (None,):
        shown = dataclasses.replace(report, lines=tuple(_shown(report, place)))
        ours = [line.ours.get(place.machine) if place else None for line in shown.lines]
        notes = [*_notes(shown.lines, ours, now), *_of_libraries(ours)]
        notes += _not_for(shown, place) if place else ()
        yield _heading(shown, place), _ladder(shown, ours), notes, shown.lines


def _shown(report: LadderReport, place: Place | None) -> Iterator[Line]:
    """The author's rungs, and the vendors' kernels that there are for a device; size by size."""
    lines = [
        line
        for line in report.lines
        if not line.reference or (place and line.kernel.source_for(place.device.backend) is not None)
    ]
    order = list(dict.fromkeys(size_label(line.sizes) for line in lines))
    if any(line.reference for line in lines):
        lines.sort(key=lambda line: order.index(size_label(line.sizes)))
    yield from lines


def _heading(report: LadderReport, place: Place | None) -> str:
    if place is None:
        return "Not measured here."
    sizes = dict.fromkeys(size_label(line.sizes) for line in report.lines if line.sizes)
    at = f", size {next(iter(sizes))}" if len(sizes) == 1 else ""
    return f"Ours: {place.device.name} ({place.device.spec}){at}"


def _ladder(report: LadderReport, ours: Sequence[Ours | None]) -> _Grid:
    lines = report.lines
    grid = _Grid()
    grid.add("", "rung", [line.rung.label for line in lines])
    if len({size_label(line.sizes) for line in lines if line.sizes}) > 1:
        grid.add(">", "size", [size_label(line.sizes) if line.sizes else "" for line in lines])
    theirs = ">author"
    grid.add_where_told(theirs, "average", [_given(line.rung.average) for line in lines])
    best = "best" if any(line.rung.swept for line in lines) else report.unit
    grid.add_where_told(theirs, best, [_given(line.rung.rate) for line in lines])
    if len(lines) > 1:
        grid.add_where_told(theirs, "speed-up", [_times(line.speed_up) for line in lines])
    grid.add_where_told(theirs, "% peak", [_percent(line.peak_percent) for line in lines])
    averages = [each.average if each else None for each in ours]
    grid.add_where_told(">ours", "average", [_digits(average, 4) for average in averages])
    mark = "*" if any(each and each.stale for each in ours) else ""
    grid.add(">ours", best, [_rate(each, mark) for each in ours])
    if len(lines) > 1:
        grid.add_where_told(">ours", "speed-up", [_times(each.speed_up if each else None) for each in ours])
    for name, shares in (
        ("% peak", [each.peak_percent if each else None for each in ours]),
        ("% lib", [each.library_percent if each else None for each in ours]),
    ):
        grid.add_where_told(">ours", name, [_percent(share) for share in shares])
    return grid


def _rate(ours: Ours | None, mark: str) -> str:
    told = NOTHING if ours is None or ours.rate is None else _digits(ours.rate, 4)
    return told + (mark if ours and ours.stale else " " * len(mark))


def _held_against(report: LadderReport) -> _Grid:
    """A line a size and card: the author's, then ours."""
    grid = _Grid()
    table: list[list[str]] = []
    by_size: dict[str, list[Line]] = {}
    for line in report.lines:
        by_size.setdefault(size_label(line.sizes), []).append(line)
    for size, lines in by_size.items():
        base = next((line for line in lines if line.rung.kernel == report.ladder.against), None)
        held = next((line for line in lines if line is not base and not line.rung.backend), None)
        others = [line for line in lines if line is not base and line.rung.backend]
        if any(line.rung.rate or line.rung.time_ms for line in lines):
            table.append([size, report.ladder.card, *_published(base, held, others)])
        for place in report.places or (None,):
            named = "" if size in [row[0] for row in table] else size
            machine = place.machine if place else ""
            best = report.best.get(machine, {}).get(size)
            table.append([named, place.device.spec if place else "ours"])
            table[-1] += _measured(base, best, others, machine)
    names = _other_labels(report)
    base_label = next(line.rung.label for line in report.lines if line.rung.kernel == report.ladder.against)
    headings = [("", "size"), ("", "card"), (f">{base_label}", "ms"), (f">{base_label}", report.unit)]
    headings += [(">card", "ms"), (">card", report.unit), (">", "speed-up")]
    headings += [(f">{name}", report.unit) for name in names]
    for (over, name), cells in zip(headings, zip(*table, strict=True), strict=True):
        grid.add(over, name, cells)
    return grid


def _other_labels(report: LadderReport) -> list[str]:
    """Kernels beside the one that is held against."""
    others = (line for line in report.lines if line.rung.backend)
    return list(
        dict.fromkeys(line.rung.label for line in others if line.rung.kernel != report.ladder.against)
    )


def _published(base: Line | None, held: Line | None, others: Sequence[Line]) -> list[str]:
    return [
        *((_given(base.rung.time_ms), _given(base.rung.rate)) if base else ("", "")),
        *((_given(held.rung.time_ms), _given(held.rung.rate)) if held else ("", "")),
        f"{held.rung.speed_up:g}x"
        if held and held.rung.speed_up
        else _times(held.speed_up if held else None),
        *(_given(line.rung.rate) for line in others),
    ]


def _measured(
    base: Line | None,
    best: Ours | None,
    others: Sequence[Line],
    machine: str,
) -> list[str]:
    mine = base.ours.get(machine) if base else None
    if base and (mine is None or mine.rate is None) and (base.rung.slow or machine in base.slow):
        first = WITH_SLOW
    else:
        first = (_time(mine), _rate(mine, ""))
    beside = [_rate(line.ours.get(machine), "") for line in others]
    return [*first, _time(best), _rate(best, ""), _times(best.speed_up if best else None), *beside]


def _sources(report: LadderReport, now: dt.datetime | None) -> Iterator[str]:
    """Which device each line is of, which kernel it ran, and how old the figures are."""
    for place in report.places:
        best = report.best.get(place.machine, {})
        kernels = ", ".join(dict.fromkeys(ours.kernel for ours in best.values())) or "nothing measured"
        yield f"{place.device.spec}: {place.device.name}, {kernels}"
        lines = [line for line in report.lines if line.rung.backend]
        ours = [line.ours.get(place.machine) for line in lines]
        yield from _notes(lines, ours, now, tuple(best.values()))


def _notes(
    lines: Sequence[Line], ours: Sequence[Ours | None], now: dt.datetime | None, more: Sequence[Ours] = ()
) -> Iterator[str]:
    """Of which commits the figures are and how old; why there is none where it was tried."""
    origins: dict[tuple[str, bool], list[tuple[str, Ours]]] = {}
    named = [(line.rung.label, each) for line, each in zip(lines, ours, strict=True) if each]
    named += [(each.kernel, each) for each in more]
    for label, each in named:
        if each.rate is None:
            yield f"{label}: {each.reason or each.status}. {each.message}".rstrip()
        else:
            origins.setdefault((_commit(each), each.stale), []).append((label, each))
    for (commit, stale), found in sorted(origins.items(), key=lambda item: item[0][1]):
        ages = dict.fromkeys(_age(each.measured_at, now) for _, each in sorted(found, key=_when))
        told = f"at {commit}, {_span([*ages])}"
        if stale:
            labels = ", ".join(dict.fromkeys(label for label, _ in found))
            whose = "all" if len(origins) == 1 else labels
            told = f"* {told}, when the suite's files were others: {whose}"
        yield told


def _of_libraries(ours: Sequence[Ours | None]) -> Iterator[str]:
    """What the shares are of, and why there are none."""
    told = [each for each in ours if each and each.library]
    named = dict.fromkeys(each.library for each in told if each.library_percent is not None)
    if named:
        yield f"% lib: of {', '.join(named)}, measured in turns"
    for why in dict.fromkeys(each.library for each in told if each.library_percent is None):
        yield f"% lib: {why}"


def _span(ages: Sequence[str]) -> str:
    """From the oldest to the newest."""
    oldest, newest = ages[0], ages[-1]
    return (
        newest if oldest == newest else f"{oldest.removesuffix(' ago')} to {newest.removeprefix('measured ')}"
    )


def _not_for(report: LadderReport, place: Place) -> Iterator[str]:
    """Rungs that were never made for a device."""
    backend = place.device.backend
    others = [
        line.rung.label
        for line in report.lines
        if place.machine not in line.ours
        and (line.rung.backend or backend) == backend
        and line.kernel.source_for(backend) is None
    ]
    if others:
        yield f"Not for {place.device.spec}: {', '.join(dict.fromkeys(others))}"


def _when(named: tuple[str, Ours]) -> str:
    return named[1].measured_at


def _commit(ours: Ours) -> str:
    return (ours.commit or "no commit")[:10] + (" + changes" if ours.dirty else "")


def _age(started_at: str, now: dt.datetime | None) -> str:
    if now is None:
        return f"measured {started_at[:10]}"
    try:
        minutes = int((now - dt.datetime.fromisoformat(started_at)).total_seconds() // 60)
    except (ValueError, TypeError):
        return started_at
    for length, unit in ((_DAY, "day"), (60, "hour"), (1, "minute")):
        if minutes >= length:
            count = minutes // length
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def _given(value: float | None) -> str:
    """A published figure as it was published."""
    return "" if value is None else f"{value:,.6g}"


def _percent(value: float | None) -> str:
    return _digits(value, 3) if value is None or value >= 1 else f"{value:.2f}"


def _digits(value: float | None, digits: int) -> str:
    if value is None:
        return ""
    whole = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:,.{max(0, min(digits - whole, MOST_DECIMALS))}f}"


def _time(ours: Ours | None) -> str:
    return _digits(ours.time_ms, 4) if ours and ours.time_ms is not None else NOTHING


def _times(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}x" if value >= 100 else f"{value:.1f}x"
