"""What others published, with what we measured of the same kernels beside it: read from records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.output.tables import summary_of
from harness.records import DeviceInfo, Host, RowStatus, Source
from harness.spec.case_id import size_label
from harness.spec.suite import Case, Kernel, Ladder, Rung, Suite, Value
from harness.store.records_file import StoredRow

SLOW_FLOP = 4e9
"""Of one launch on a processor that stands in for a card: beyond, measuring takes more than some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What became of a rung on one device when it was last measured there."""

    device: DeviceInfo
    machine: str
    """The device's folder of records."""
    kernel: str
    status: RowStatus
    reason: str = ""
    message: str = ""
    time_ms: float | None = None
    rate: float | None = None
    """In the unit of the suite's headline; of several configurations, the best."""
    average: float | None = None
    speed_up: float | None = None
    peak_percent: float | None = None
    library_percent: float | None = None
    """Of the rate of the vendor's own kernel, measured in turns with it."""
    library: str = ""
    """That kernel; or, where there is no share, why, as a sentence."""
    measured_at: str
    """When the run began: UTC, ISO 8601."""
    commit: str | None
    dirty: bool
    stale: bool
    """Whether the suite's files were others than they are now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A device that has records of a ladder."""

    machine: str
    device: DeviceInfo
    host: Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A rung at a point of the axes, the author's figures and ours."""

    rung: Rung
    kernel: Kernel
    sizes: Mapping[str, int]
    """Empty for what stands for a whole sweep."""
    speed_up: float | None = None
    """The author's."""
    peak_percent: float | None = None
    """The author's."""
    ours: Mapping[str, Ours] = field(default_factory=dict)
    """By machine."""
    slow: frozenset[str] = frozenset()
    """Machines on which measuring it must be asked for."""
    reference: bool = False
    """Whether it is no rung of the author's but a vendor's own kernel, beside which the others stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderReport:
    suite: str
    unit: str
    ladder: Ladder
    lines: tuple[Line, ...]
    places: tuple[Place, ...]
    best: Mapping[str, Mapping[str, Ours]] = field(default_factory=dict)
    """Of a ladder that holds kernels against another: by machine and size, the one that stands for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One configuration that a sweep has measured."""

    machine: str
    device: DeviceInfo
    host: Host
    source: Source
    measured_at: str
    kernel: str
    sizes: Mapping[str, int]
    parameters: Mapping[str, Value]
    time_ms: float
    rate: float
    peak: float | None
    """Of the card, in the unit of the rate."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is to draw on."""

    suite: Suite
    tree: str
    rows: Mapping[str, Mapping[str, StoredRow]]
    """By machine and case."""
    swept: Sequence[Swept]


def placed(suite: Suite, ladder: Ladder, sizes: Sequence[Mapping[str, int]] = ()) -> list[Line]:
    """A ladder's rungs with the author's figures, nothing of ours yet; at other sizes where they are asked
    for.

    A ladder of one size moves to another with its figures; of several, figures stay at the sizes they are of.
    """
    lines = [_line(suite, ladder, rung) for rung in ladder.rungs]
    if not sizes:
        return [*lines, *_references(suite, ladder, lines)]
    chosen = [line for line in lines if line.rung.swept]
    for point in sizes:
        there = [line for line in lines if line.sizes == point]
        chosen += there or _moved(lines, point)
    return [*chosen, *_references(suite, ladder, chosen)]


def _references(suite: Suite, ladder: Ladder, lines: Sequence[Line]) -> Iterator[Line]:
    """The vendors' own kernels of the types that a ladder's are of, at its sizes."""
    if ladder.against:
        return
    dtypes = {line.kernel.dtype for line in lines}
    rungs = {(line.kernel.name, size_label(line.sizes)) for line in lines}
    for point in {size_label(line.sizes): line.sizes for line in lines if line.sizes}.values():
        for kernel in suite.kernels:
            known = (kernel.name, size_label(point)) in rungs
            if kernel.library and kernel.dtype in dtypes and not known:
                rung = Rung(kernel.name, kernel.name, sizes=point)
                yield Line(rung=rung, kernel=kernel, sizes=point, reference=True)


def _line(suite: Suite, ladder: Ladder, rung: Rung) -> Line:
    sizes = {} if rung.swept else suite.rung_sizes(ladder, rung)
    base = next(iter(_bases(suite, ladder, sizes)), None)
    counted = None
    if rung.rate and base and base.rate and not rung.swept:
        counted = rung.rate / base.rate
    peak = 100 * rung.rate / ladder.peak if rung.rate and ladder.peak else None
    return Line(
        rung=rung,
        kernel=suite.by_name[rung.kernel],
        sizes=sizes,
        speed_up=rung.speed_up or counted,
        peak_percent=peak,
    )


def _bases(suite: Suite, ladder: Ladder, sizes: Mapping[str, int]) -> Iterator[Rung]:
    """The rung that speed-ups at a point are counted from, if there is one."""
    first = ladder.rungs[0]
    for rung in ladder.rungs:
        same = rung.kernel == (ladder.against or first.kernel) and (
            ladder.against or rung.macros == first.macros
        )
        if same and not rung.swept and suite.rung_sizes(ladder, rung) == sizes:
            yield rung


def _moved(lines: Sequence[Line], point: Mapping[str, int]) -> list[Line]:
    lines = [line for line in lines if not line.rung.swept]
    points = {size_label(line.sizes) for line in lines}
    largest = max(point.values())
    slow = {line.rung.label for line in lines if line.rung.slow and max(line.sizes.values()) <= largest}
    kept: dict[str, Line] = {}
    for line in lines:
        if line.rung.label in kept:
            continue
        rung = (
            line.rung
            if len(points) == 1
            else dataclasses.replace(line.rung, rate=None, time_ms=None, speed_up=None)
        )
        given = line if len(points) == 1 else Line(rung=rung, kernel=line.kernel, sizes={})
        rung = dataclasses.replace(rung, slow=rung.label in slow)
        kept[rung.label] = dataclasses.replace(given, rung=rung, sizes=dict(point))
    return list(kept.values())


def is_slow(line: Line, suite: Suite, device: DeviceInfo) -> bool:
    """Whether measuring it takes so long that it must be asked for."""
    if line.rung.slow or line.rung.swept:
        return line.rung.slow
    if line.rung.backend not in ("", device.backend):
        return False
    if device.kind == "gpu" or device.backend == "null" or line.rung.backend:
        return False
    return (suite.problem.flop(suite.case(line.kernel, line.sizes)) or 0) > SLOW_FLOP


def is_plain(line: Line, suite: Suite) -> bool:
    """Whether the kernel as it stands is what the rung is, and not another configuration of a sweep's."""
    if line.rung.swept:
        return False
    own = suite.case(line.kernel, line.sizes).macros
    return all(own.get(name) == value for name, value in line.rung.macros.items())


def ladder_report(
    suite: Suite,
    tree: str,
    ladder: Ladder,
    lines: Sequence[Line],
    rows: Sequence[StoredRow],
    swept: Sequence[Swept] = (),
    *,
    shown: Callable[[DeviceInfo], bool] = lambda _: True,
    against: str = "",
) -> LadderReport:
    """Put figures to the lines of a ladder. `tree` is the hash of the suite as it is now; `shown` tells which
    devices it is for; `against` names the kernel to hold against the host's, in place of the author's or the
    fastest.
    """
    by_machine: dict[str, dict[str, StoredRow]] = {}
    for stored in rows:
        by_machine.setdefault(stored.machine, {})[stored.row.case] = stored
    found = _Found(suite, tree, by_machine, swept)
    places = tuple(place for place in _places(found, ladder, lines) if shown(place.device))
    filled = tuple(
        dataclasses.replace(
            line,
            ours={p.machine: ours for p in places if (ours := _ours(found, line, p))},
            slow=frozenset(p.machine for p in places if is_slow(line, suite, p.device)),
        )
        for line in lines
    )
    filled = tuple(_counted(line, filled, ladder) for line in filled)
    best = {}
    if ladder.against:
        best = {p.machine: _best(found, ladder, filled, p, against) for p in places}
    return LadderReport(
        suite=suite.name,
        unit=suite.headline,
        ladder=ladder,
        lines=filled,
        places=places,
        best=best,
    )


def _places(found: _Found, ladder: Ladder, lines: Sequence[Line]) -> tuple[Place, ...]:
    """The devices that ladders are shown for: the host's own processor where a kernel is measured there for
    its own sake, or where there is nothing else.
    """
    own = [line for line in lines if not line.rung.backend and not line.reference]
    cases = {_case(found.suite, line.kernel.name, line.sizes) for line in own}
    if ladder.against:
        sizes = [line.sizes for line in lines]
        cases = {_case(found.suite, k.name, point) for k in found.suite.kernels for point in sizes}
        cases -= {_case(found.suite, line.kernel.name, line.sizes) for line in lines if line.rung.backend}
    there: dict[str, Place] = {}
    for machine, rows in found.rows.items():
        runs = [stored.run for case, stored in rows.items() if case in cases]
        if runs and not (ladder.against and _is_host(found.suite, ladder, runs[0].device)):
            newest = max(runs, key=lambda run: run.started_at)
            there[machine] = Place(machine=machine, device=newest.device, host=newest.host)
    for each in found.swept:
        if each.kernel in {line.kernel.name for line in lines if line.rung.macros}:
            there.setdefault(each.machine, Place(machine=each.machine, device=each.device, host=each.host))
    if not there:
        everything = {_case(found.suite, line.kernel.name, line.sizes) for line in lines}
        for machine, rows in found.rows.items():
            for stored in (stored for case, stored in rows.items() if case in everything):
                there[machine] = Place(machine=machine, device=stored.run.device, host=stored.run.host)
    return tuple(there.values())


def _is_host(suite: Suite, ladder: Ladder, device: DeviceInfo) -> bool:
    """Whether a device is what the others are held against."""
    return (
        any(rung.backend == device.backend for rung in ladder.rungs if rung.kernel == ladder.against)
        and suite.by_name[ladder.against].source_for(device.backend) is not None
    )


def _case(suite: Suite, kernel: str, sizes: Mapping[str, int]) -> str:
    return Case(suite.name, kernel, sizes).id


def _ours(found: _Found, line: Line, place: Place) -> Ours | None:
    if not is_plain(line, found.suite):
        return _of_sweep(found, line, place)
    case = _case(found.suite, line.kernel.name, line.sizes)
    wanted = line.rung.backend
    machines = [place.machine] if wanted in ("", place.device.backend) else []
    if wanted and not machines:
        machines = [
            machine
            for machine, rows in found.rows.items()
            if (stored := rows.get(case))
            and stored.run.device.backend == wanted
            and stored.run.host.cpu == place.host.cpu
        ]
    rows = [stored for machine in machines if (stored := found.rows.get(machine, {}).get(case))]
    if rows:
        return _of_row(max(rows, key=lambda each: each.run.started_at), found.tree)
    return _of_sweep(found, line, place) if line.rung.macros else None


def _of_row(stored: StoredRow, tree: str) -> Ours:
    row, run = stored.row, stored.run
    summary = summary_of(row, run)
    return Ours(
        device=run.device,
        machine=stored.machine,
        kernel=row.kernel,
        status=row.status,
        reason=row.reason,
        message=row.message,
        time_ms=summary.time_ms,
        rate=summary.rate,
        peak_percent=summary.peak_percent,
        library_percent=summary.library_percent,
        library=row.library.kernel if row.library else row.library_missing,
        measured_at=run.started_at,
        **_origin(run.source, tree),
    )


def _origin(source: Source, tree: str) -> dict[str, Any]:
    return {"commit": source.commit, "dirty": source.dirty, "stale": source.tree_sha256 != tree}


def _of_sweep(found: _Found, line: Line, place: Place) -> Ours | None:
    """The best of the configurations that have the rung's parameters, and their average where it is asked."""
    matching = [
        each
        for each in found.swept
        if each.machine == place.machine
        and each.kernel == line.kernel.name
        and (line.rung.swept or each.sizes == line.sizes)
        and all(each.parameters.get(name) == value for name, value in line.rung.macros.items())
    ]
    if not matching:
        return None
    best = max(matching, key=lambda each: each.rate)
    average = sum(each.rate for each in matching) / len(matching)
    return Ours(
        device=best.device,
        machine=best.machine,
        kernel=best.kernel,
        status="measured",
        time_ms=best.time_ms,
        rate=best.rate,
        average=average if line.rung.swept else None,
        peak_percent=100 * best.rate / best.peak if best.peak else None,
        measured_at=best.measured_at,
        **_origin(best.source, found.tree),
    )


def _counted(line: Line, lines: Sequence[Line], ladder: Ladder) -> Line:
    """The line with our own speed-ups."""
    first = lines[0].rung
    base = next(
        (
            each
            for each in lines
            if each.sizes == line.sizes
            and each.kernel.name == (ladder.against or first.kernel)
            and (ladder.against or each.rung.macros == first.macros)
        ),
        None,
    )
    if base is None or line.rung.swept:
        return line
    return dataclasses.replace(line, ours={m: _sped(ours, base.ours.get(m)) for m, ours in line.ours.items()})


def _sped(ours: Ours, base: Ours | None) -> Ours:
    if not ours.rate or base is None or not base.rate:
        return ours
    return dataclasses.replace(ours, speed_up=ours.rate / base.rate)


def _best(
    found: _Found, ladder: Ladder, lines: Sequence[Line], place: Place, against: str
) -> dict[str, Ours]:
    """By size, what a device has to hold against the host: the kernel that is asked for, else the author's,
    else the fastest that computes in the same type and is no vendor's own.
    """
    theirs = [line.kernel.name for line in lines if not line.rung.backend]
    fair = _comparable(found.suite, ladder)
    best: dict[str, Ours] = {}
    for line in (line for line in lines if line.kernel.name == ladder.against):
        for names in ([against],) if against else (theirs, fair):
            cases = [_case(found.suite, name, line.sizes) for name in names]
            rows = found.rows.get(place.machine, {})
            ours = [_of_row(rows[case], found.tree) for case in cases if case in rows]
            timed = [each for each in ours if each.rate]
            if timed:
                chosen = max(timed, key=lambda each: each.rate or 0)
                best[size_label(line.sizes)] = _sped(chosen, line.ours.get(place.machine))
                break
    return best


def _comparable(suite: Suite, ladder: Ladder) -> list[str]:
    """Kernels that may stand for a device: what computes in the host's type, and is no vendor's own."""
    dtype = suite.by_name[ladder.against].dtype
    return [kernel.name for kernel in suite.kernels if kernel.dtype == dtype and not kernel.library]


def fastest(suite: Suite, ladder: Ladder, rows: Sequence[StoredRow]) -> Kernel | None:
    """Which kernel stands for a device, by its rows: the fastest at the largest size that it has any of."""
    fair = _comparable(suite, ladder)
    timed = [
        (max(stored.row.sizes.values()), rate, stored.row.kernel)
        for stored in rows
        if stored.row.kernel in fair and (rate := summary_of(stored.row, stored.run).rate)
    ]
    return suite.by_name[max(timed)[2]] if timed else None


def as_json(report: LadderReport) -> dict[str, Any]:
    ladder = report.ladder
    return {
        "suite": report.suite,
        "unit": report.unit,
        "ladder": ladder.name,
        "title": ladder.title,
        "source": ladder.source,
        "card": ladder.card,
        "peak": ladder.peak,
        "against": ladder.against,
        "note": ladder.note,
        "rungs": [_line_json(line) for line in report.lines],
        "held_against": {
            machine: {size: _ours_json(ours) for size, ours in by_size.items()}
            for machine, by_size in report.best.items()
        },
    }


def _line_json(line: Line) -> dict[str, Any]:
    rung = line.rung
    return {
        "label": rung.label,
        "reference": line.reference,
        "kernel": rung.kernel,
        "about": line.kernel.about,
        "sizes": line.sizes,
        "macros": rung.macros,
        "published": {
            "rate": rung.rate,
            "average": rung.average,
            "time_ms": rung.time_ms,
            "speed_up": line.speed_up,
            "peak_percent": line.peak_percent,
        },
        "ours": [_ours_json(ours) for ours in line.ours.values()],
    }


def _ours_json(ours: Ours) -> dict[str, Any]:
    given = {name: getattr(ours, name) for name in Ours.__slots__ if name != "device"}
    return {"device": ours.device.spec, "name": ours.device.name, **given}
