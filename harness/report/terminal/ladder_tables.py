"""Ladders as text: tables for a terminal of 80 columns, or Markdown for a README."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from harness.history.ladders import LadderLine, LadderReport, Machine, Ours
from harness.numbers import counted, number, times
from harness.records.types import fields_of
from harness.report.table import Column, Sheet
from harness.report.templates import inline
from harness.report.terminal.run_tables import console, print_out
from harness.report.words.of_verdict import commit_label
from harness.suite.case_id import size_label
from harness.suite.suite import Ladder
from harness.system.texts import harmless

NOTHING = "\N{EN DASH}"
WITH_SLOW = (f"{NOTHING}, with", "--slow")
"""Two neighbouring cells for a value that takes minutes to measure."""


def print_ladder(report: LadderReport, now: dt.datetime) -> None:
    """Print a ladder on standard output, with the age of its values at `now`."""
    out = console()
    ladder = report.ladder
    out.print(f"{report.suite}.{ladder.name}: {ladder.title}", style="bold")
    for theirs in filter(None, (_theirs(report), publication(ladder))):
        out.print(theirs)
    for heading, columns, notes in _parts(report, now):
        out.print()
        if heading:
            out.print(heading, style="cyan")
        print_out(Sheet(columns=columns))
        for note in notes:
            out.print(harmless(note, keep="\n"), style="dim")
    if ladder.note:
        out.print(ladder.note, style="dim")


def markdown(report: LadderReport) -> str:
    """Return a ladder as Markdown, with a heading of level three. Values have dates instead of ages."""
    ladder = report.ladder
    told = [f"### {inline(ladder.title)}", inline(_theirs(report)), inline(publication(ladder))]
    for heading, columns, notes in _parts(report, None):
        told += [inline(heading), Sheet(columns=columns).markdown(), *map(inline, notes)]
    return "\n\n".join(part for part in (*told, inline(ladder.note)) if part) + "\n"


def print_hints(reports: Sequence[LadderReport]) -> None:
    """Print the commands that measure the missing values."""
    found: dict[str, dict[str, None]] = {"": {}, "missing": {}, "slow": {}, "swept": {}}
    for report in reports:
        for machine in report.machines or (None,):
            for line in report.lines:
                what, told = _wanting(report, line, machine)
                found[what][told] = None
    out = console()
    if found["missing"]:
        out.print(f"{NOTHING}: not measured. 'harness report ladder --measure' measures what is missing.")
    if found["slow"]:
        out.print(f"With --measure --slow, what takes minutes too: {', '.join(found['slow'])}.")
    for name in found["swept"]:
        out.print(f"'harness sweep {name}' measures the rungs that are of a sweep.")


def _wanting(report: LadderReport, line: LadderLine, machine: Machine | None) -> tuple[str, str]:
    """Return the kind of command that measures a missing value, and its name."""
    name = machine.name if machine else ""
    backend = line.rung.backend or (machine.device.backend if machine else "")
    if name in line.ours or (backend and line.kernel.source_for(backend) is None):
        return "", ""
    if line.rung.swept:
        return "swept", f"{report.suite}.{line.rung.kernel}"
    label = f"{line.rung.label} at {size_label(line.sizes)}"
    return ("slow" if line.rung.slow or name in line.slow else "missing"), label


def _theirs(report: LadderReport) -> str:
    ladder = report.ladder
    size = ""
    if ladder.sizes is not None:
        size = f", size {ladder.sizes if isinstance(ladder.sizes, int) else size_label(ladder.sizes)}"
    card = f"Author: {ladder.card}{size}. " if ladder.card else ""
    return f"{card}{ladder.source}".strip()


def publication(ladder: Ladder) -> str:
    """Return the publication of the values: author, title, date and address, as far as known."""
    title = f"\u201c{ladder.publication}\u201d" if ladder.publication else ""
    told = ", ".join(filter(None, (ladder.author, title, ladder.date)))
    return " ".join(filter(None, (f"{told}." if told else "", ladder.url)))


def _parts(report: LadderReport, now: dt.datetime | None) -> Iterator[tuple[str, list[Column], list[str]]]:
    """Yield heading, table and notes for each device, or once if kernels are compared with another."""
    if report.ladder.against:
        yield "", _held_against(report), list(_sources(report, now))
        return
    if not report.machines:
        lines = _shown(report, None)
        yield "Not measured here.", _ladder(lines, [None] * len(lines), [""] * len(lines), report), []
    for machine in report.machines:
        lines = _shown(report, machine)
        sizes = {size_label(line.sizes) for line in lines if line.sizes}
        at = f", size {sizes.pop()}" if len(sizes) == 1 else ""
        gains = [_gain(report, line, machine) for line in lines]
        ours = [line.ours.get(machine.name) for line in lines]
        notes = [*_notes(lines, ours, now), *_of_libraries(ours), *_not_for(lines, machine)]
        heading = f"Ours: {machine.device.name} ({machine.device.spec}){at}"
        yield heading, _ladder(lines, ours, gains, report), notes


def _sources(report: LadderReport, now: dt.datetime | None) -> Iterator[str]:
    """Yield the device of each line, the kernel that it ran, and the age of its values."""
    lines = [line for line in report.lines if line.rung.backend]
    for machine in report.machines:
        best = report.best.get(machine.name, {})
        kernels = ", ".join(dict.fromkeys(ours.kernel for ours in best.values())) or "nothing measured"
        yield f"{machine.device.spec}: {machine.device.name}, {kernels}"
        ours = [line.ours.get(machine.name) for line in lines]
        yield from _notes(lines, ours, now, tuple(best.values()))


def _shown(report: LadderReport, machine: Machine | None) -> list[LadderLine]:
    """Return the author's rungs, and the vendors' kernels for a device, size by size."""
    lines = [
        line
        for line in report.lines
        if not line.repairs
        and (not line.reference or (machine and line.kernel.source_for(machine.device.backend) is not None))
    ]
    order = list(dict.fromkeys(size_label(line.sizes) for line in lines))
    if any(line.reference for line in lines):
        lines.sort(key=lambda line: order.index(size_label(line.sizes)))
    return lines


def _gain(report: LadderReport, line: LadderLine, machine: Machine) -> str:
    """Return the rate of the kernel that fixes a rung over the rung's rate."""
    twins = (
        each.ours[machine.name]
        for each in report.lines
        if each.repairs == line.rung.label and each.sizes == line.sizes and machine.name in each.ours
    )
    repaired, published = next(twins, None), line.ours.get(machine.name)
    if repaired is None or published is None or not repaired.rate or not published.rate:
        return ""
    return times(repaired.rate / published.rate)


def _ladder(
    lines: Sequence[LadderLine], ours: Sequence[Ours | None], gains: Sequence[str], report: LadderReport
) -> list[Column]:
    unit, decimals = report.unit, report.ladder.decimals
    sizes = [size_label(line.sizes) if line.sizes else "" for line in lines]
    best = "best" if any(line.rung.swept for line in lines) else unit
    mark = "*" if any(each and each.stale for each in ours) else ""
    several = len(lines) > 1

    def of_ours(name: str, digits: int = 4) -> list[str]:
        return [number(getattr(each, name) if each else None, digits) for each in ours]

    speed_ups = [times(each.speed_up if each and several else None) for each in ours]
    return [
        Column("rung", [line.rung.label for line in lines], text=True),
        Column("size", sizes if len(set(filter(None, sizes))) > 1 else [""] * len(lines)),
        Column("average", [given(line.rung.average) for line in lines], over="author"),
        Column(best, [given(line.rung.rate, decimals) for line in lines], over="author"),
        Column("speed-up", [times(line.speed_up if several else None) for line in lines], over="author"),
        Column("% peak", [number(line.peak_percent, 3) for line in lines], over="author"),
        Column("average", of_ours("average"), over="ours"),
        Column(best, [_rate(each, mark) for each in ours], over="ours"),
        Column("speed-up", speed_ups, over="ours"),
        Column("gains", gains, over="repaired"),
        Column("% peak", of_ours("peak_percent", 3), over="ours"),
        Column("% lib", of_ours("library_percent", 3), over="ours"),
        Column("idea", [line.kernel.about for line in lines], text=True, spare=1),
    ]


def _rate(ours: Ours | None, mark: str = "") -> str:
    told = number(ours.rate if ours else None) or NOTHING
    return told + (mark if ours and ours.stale else " " * len(mark))


def _held_against(report: LadderReport) -> list[Column]:
    """Return a line for each size and card: the author's, then ours."""
    against = report.ladder.against
    table: list[list[str]] = []
    by_size: dict[str, list[LadderLine]] = {}
    for line in report.lines:
        by_size.setdefault(size_label(line.sizes), []).append(line)
    for size, lines in by_size.items():
        base = next((line for line in lines if line.rung.kernel == against), None)
        held = next((line for line in lines if line is not base and not line.rung.backend), None)
        others = [line for line in lines if line is not base and line.rung.backend]
        rows = []
        if any(line.rung.rate or line.rung.time_ms for line in lines):
            rows.append([report.ladder.card, *_published(base, held, others, report.ladder.decimals)])
        for machine in report.machines or (None,):
            name = machine.name if machine else ""
            best = report.best.get(name, {}).get(size)
            spec = machine.device.spec if machine else "ours"
            rows.append([spec, *_measured(base, best, others, name)])
        table += [[size if row is rows[0] else "", *row] for row in rows]
    base_label = next(line.rung.label for line in report.lines if line.rung.kernel == against)
    # Kernels to compare with the chosen one.
    others = [line for line in report.lines if line.rung.backend and line.rung.kernel != against]
    figures = [(base_label, "ms"), (base_label, report.unit), ("card", "ms"), ("card", report.unit)]
    figures += [
        ("", "speed-up"),
        *((name, report.unit) for name in dict.fromkeys(each.rung.label for each in others)),
    ]
    cells = zip(*table, strict=True)
    return [
        *(Column(name, next(cells), text=True) for name in ("size", "card")),
        *(Column(name, next(cells), over=over) for over, name in figures),
    ]


def _published(
    base: LadderLine | None, held: LadderLine | None, others: Sequence[LadderLine], decimals: int
) -> list[str]:
    speed_up = times(held.speed_up if held else None)
    return [
        *((given(base.rung.time_ms), given(base.rung.rate, decimals)) if base else ("", "")),
        *((given(held.rung.time_ms), given(held.rung.rate, decimals)) if held else ("", "")),
        f"{held.rung.speed_up:g}x" if held and held.rung.speed_up else speed_up,
        *(given(line.rung.rate, decimals) for line in others),
    ]


def _measured(
    base: LadderLine | None, best: Ours | None, others: Sequence[LadderLine], machine: str
) -> list[str]:
    mine = base.ours.get(machine) if base else None
    first = _time(mine), _rate(mine)
    if base and (mine is None or mine.rate is None) and (base.rung.slow or machine in base.slow):
        first = WITH_SLOW
    beside = [_rate(line.ours.get(machine)) for line in others]
    return [*first, _time(best), _rate(best), times(best.speed_up if best else None), *beside]


def _notes(
    lines: Sequence[LadderLine],
    ours: Sequence[Ours | None],
    now: dt.datetime | None,
    more: Sequence[Ours] = (),
) -> Iterator[str]:
    """Yield the commits and ages of the values, and the reasons for missing ones."""
    origins: dict[tuple[str, bool], list[tuple[str, Ours]]] = {}
    named = [(line.rung.label, each) for line, each in zip(lines, ours, strict=True) if each]
    for label, each in [*named, *((each.kernel, each) for each in more)]:
        if each.rate is None:
            yield f"{label}: {each.reason or each.status}. {each.message}".rstrip()
        else:
            origin = commit_label(each.commit, dirty=each.dirty), each.stale
            origins.setdefault(origin, []).append((label, each))
    for (commit, stale), found in sorted(origins.items(), key=lambda item: item[0][1]):
        times_measured = [each.measured_at for _, each in found]
        oldest, newest = _age(min(times_measured), now), _age(max(times_measured), now)
        if oldest != newest:
            newest = f"{oldest.removesuffix(' ago')} to {newest.removeprefix('measured ')}"
        told = f"at {commit}, {newest}"
        if stale:
            labels = ", ".join(dict.fromkeys(label for label, _ in found))
            whose = "all" if len(origins) == 1 else labels
            told = f"* {told}, when the suite's files were others: {whose}"
        yield told


def _of_libraries(ours: Sequence[Ours | None]) -> Iterator[str]:
    told = [each for each in ours if each and each.library]
    named = dict.fromkeys(each.library for each in told if each.library_percent is not None)
    if named:
        yield f"% lib: of {', '.join(named)}, measured alternately"
    for why in dict.fromkeys(each.library for each in told if each.library_percent is None):
        yield f"% lib: {why}"


def _not_for(lines: Sequence[LadderLine], machine: Machine) -> Iterator[str]:
    backend = machine.device.backend
    others = [
        line.rung.label
        for line in lines
        if machine.name not in line.ours
        and (line.rung.backend or backend) == backend
        and line.kernel.source_for(backend) is None
    ]
    if others:
        yield f"Not for {machine.device.spec}: {', '.join(dict.fromkeys(others))}"


def _age(started_at: str, now: dt.datetime | None) -> str:
    if now is None:
        return f"measured {started_at[:10]}"
    try:
        minutes = int((now - dt.datetime.fromisoformat(started_at)).total_seconds() // 60)
    except (ValueError, TypeError):
        return started_at
    for length, unit in ((24 * 60, "day"), (60, "hour"), (1, "minute")):
        if minutes >= length:
            return f"{counted(minutes // length, unit)} ago"
    return "just now"


def given(value: float | None, decimals: int = 0) -> str:
    """Return a published value with its published digits."""
    if value is None:
        return ""
    return f"{value:,.{decimals}f}" if decimals else f"{value:,.6g}"


def _time(ours: Ours | None) -> str:
    return number(ours.time_ms if ours else None) or NOTHING


_PUBLISHED = ("title", "source", "publication", "author", "url", "date", "card", "peak", "against", "note")


def ladder_json(report: LadderReport) -> dict[str, Any]:
    """Return a ladder for --json."""
    return {
        "suite": report.suite,
        "unit": report.unit,
        "ladder": report.ladder.name,
        **fields_of(report.ladder, *_PUBLISHED),
        "rungs": [_line_json(line) for line in report.lines],
        "held_against": {
            machine: {size: _ours_json(ours) for size, ours in by_size.items()}
            for machine, by_size in report.best.items()
        },
    }


def _line_json(line: LadderLine) -> dict[str, Any]:
    rung = line.rung
    return {
        "label": rung.label,
        **fields_of(line, "reference", "repairs"),
        "kernel": rung.kernel,
        "about": line.kernel.about,
        "sizes": line.sizes,
        "macros": rung.macros,
        "published": fields_of(rung, "rate", "average", "time_ms")
        | fields_of(line, "speed_up", "peak_percent"),
        "ours": list(map(_ours_json, line.ours.values())),
    }


def _ours_json(ours: Ours) -> dict[str, Any]:
    given = fields_of(ours, *(name for name in Ours.__slots__ if name != "device"))
    return {"device": ours.device.spec, "name": ours.device.name, **given}
