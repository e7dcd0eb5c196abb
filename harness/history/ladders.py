"""Ladders: published values of a series of kernels, next to our measurements of the same kernels.

Our values come from records, sweeps and the newest points of a history's cards. Cases that still have to be
measured are listed.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness.device import backends
from harness.device.machine import machine_name
from harness.device.peaks import peak_of
from harness.errors import HarnessError, UsageError
from harness.history.row_summary import summary_of
from harness.numbers import Value
from harness.records.record_files import StoredRow, newest_rows
from harness.records.sweep_journal import SweepState, read_sweep
from harness.records.sweep_types import Configuration, Sweep, SweepRow
from harness.records.types import DeviceInfo, Host, RowStatus, Source
from harness.suite.case_id import Selector, Size, size_label
from harness.suite.configurations import configurations
from harness.suite.kernel import Kernel
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase
from harness.suite.problem import Case
from harness.suite.suite import Ladder, Rung, Suite

SLOW_FLOP = 4e9
"""Operations of a launch from which a CPU in place of a card measures it only on request."""
MORE_DEVICES = ("opengl:0", "cpu:0")
"""Devices for ladders beside the default one: for compute shaders, and the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The newest result of a rung on one device."""

    device: DeviceInfo
    machine: str
    """Folder of the device's records."""
    kernel: str
    status: RowStatus
    reason: str = ""
    message: str = ""
    time_ms: float | None = None
    rate: float | None = None
    """Rate in the unit of the suite's headline; of several configurations, the best."""
    average: float | None = None
    speed_up: float | None = None
    peak_percent: float | None = None
    library_percent: float | None = None
    """Rate over that of the vendor's kernel, measured alternately with it, in percent."""
    library: str = ""
    """Name of the vendor's kernel; without a share, a sentence with the reason."""
    measured_at: str
    """Start of the run in UTC, ISO 8601."""
    commit: str | None
    dirty: bool
    stale: bool
    """True if the suite's files have changed since."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device that has records of a ladder, named by their folder."""

    name: str
    device: DeviceInfo
    host: Host


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderLine:
    """A rung at a point of the axes, with the author's values and ours."""

    rung: Rung
    kernel: Kernel
    sizes: Mapping[str, int]
    """Sizes; empty for a line that covers a whole sweep."""
    speed_up: float | None = None
    peak_percent: float | None = None
    ours: Mapping[str, Ours] = field(default_factory=dict)
    slow: frozenset[str] = frozenset()
    repairs: str = ""
    """Label of the author's rung that this kernel of ours fixes; empty for a rung."""
    reference: bool = False
    """True for a vendor's kernel, shown beside the author's rungs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderReport:
    suite: str
    unit: str
    ladder: Ladder
    lines: tuple[LadderLine, ...]
    machines: tuple[Machine, ...]
    best: Mapping[str, Mapping[str, Ours]] = field(default_factory=dict)
    """The kernel that represents a machine at a size, if a ladder compares machines."""


@dataclass(frozen=True, slots=True)
class SweptConfiguration:
    machine: str
    sweep: Sweep
    sizes: Mapping[str, int]
    parameters: Mapping[str, Value]
    time_ms: float
    rate: float
    peak: float | None
    """Return the card's peak in the unit of the rate."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """Rows and sweeps of a suite, whose files now have the hash `tree`."""

    suite: Suite
    tree: str
    rows: Mapping[str, Mapping[str, StoredRow]]
    """Rows by machine and case."""
    swept: Sequence[SweptConfiguration]


def placed(suite: Suite, ladder: Ladder, sizes: Sequence[Mapping[str, int]] = ()) -> list[LadderLine]:
    """Return a ladder's rungs with the author's values, without ours; at other sizes if requested.

    A ladder of one size moves to another size with its values. With several sizes, values stay at their own.
    """
    lines = [_line(suite, ladder, rung) for rung in ladder.rungs]
    if sizes:
        chosen = [line for line in lines if line.rung.swept]
        for point in sizes:
            there = [line for line in lines if line.sizes == point]
            chosen += there or _moved(lines, point)
        lines = chosen
    return [*lines, *_repaired(suite, lines), *_references(suite, ladder, lines)]


def _repaired(suite: Suite, lines: Sequence[LadderLine]) -> Iterator[LadderLine]:
    """Yield the kernels that fix the authors' rungs, at the same sizes."""
    for line in lines:
        if name := line.rung.repaired:
            rung = dataclasses.replace(
                line.rung, label=f"{line.rung.label}, repaired", kernel=name, rate=None
            )
            yield LadderLine(rung=rung, kernel=suite.by_name[name], sizes=line.sizes, repairs=line.rung.label)


def _references(suite: Suite, ladder: Ladder, lines: Sequence[LadderLine]) -> Iterator[LadderLine]:
    """Yield the vendors' kernels for a ladder's types, at its sizes."""
    if ladder.against:
        return
    dtypes = {line.kernel.dtype for line in lines}
    rungs = {(line.kernel.name, size_label(line.sizes)) for line in lines}
    for label, point in {size_label(line.sizes): line.sizes for line in lines if line.sizes}.items():
        for kernel in suite.kernels:
            if kernel.library and kernel.dtype in dtypes and (kernel.name, label) not in rungs:
                rung = Rung(kernel.name, kernel.name, sizes=point)
                yield LadderLine(rung=rung, kernel=kernel, sizes=point, reference=True)


def _line(suite: Suite, ladder: Ladder, rung: Rung) -> LadderLine:
    sizes = {} if rung.swept else suite.rung_sizes(ladder, rung)
    bases = (each for each in ladder.rungs if _is_base(ladder, each) and not each.swept)
    base = next((each for each in bases if suite.rung_sizes(ladder, each) == sizes), None)
    counted = rung.rate / base.rate if rung.rate and base and base.rate and not rung.swept else None
    return LadderLine(
        rung=rung,
        kernel=suite.by_name[rung.kernel],
        sizes=sizes,
        speed_up=rung.speed_up or counted,
        peak_percent=100 * rung.rate / ladder.peak if rung.rate and ladder.peak else None,
    )


def _is_base(ladder: Ladder, rung: Rung) -> bool:
    """Return whether speed-ups at its sizes are relative to it."""
    if ladder.against:
        return rung.kernel == ladder.against
    first = ladder.rungs[0]
    return (rung.kernel, rung.macros) == (first.kernel, first.macros)


def _moved(lines: Sequence[LadderLine], point: Mapping[str, int]) -> list[LadderLine]:
    lines = [line for line in lines if not line.rung.swept]
    figures_move = len({size_label(line.sizes) for line in lines}) == 1
    largest = max(point.values())
    slow = {line.rung.label for line in lines if line.rung.slow and max(line.sizes.values()) <= largest}
    moved: dict[str, LadderLine] = {}
    for line in lines:
        rung = dataclasses.replace(line.rung, slow=line.rung.label in slow)
        there = dataclasses.replace(line, rung=rung, sizes=dict(point))
        if not figures_move:
            rung = dataclasses.replace(rung, rate=None, time_ms=None, speed_up=None)
            there = LadderLine(rung=rung, kernel=line.kernel, sizes=dict(point))
        moved.setdefault(rung.label, there)
    return list(moved.values())


def is_slow(line: LadderLine, suite: Suite, device: DeviceInfo) -> bool:
    """Return whether measuring it takes so long that it needs a request."""
    if line.rung.slow or line.rung.swept:
        return line.rung.slow
    if line.rung.backend or device.kind == "gpu" or device.backend == "null":
        return False
    return (suite.problem.flop(suite.case(line.kernel, line.sizes)) or 0) > SLOW_FLOP


def is_plain(line: LadderLine, suite: Suite) -> bool:
    """Return whether the rung is the plain kernel, and not a configuration of a sweep."""
    if line.rung.swept:
        return False
    own = suite.case(line.kernel, line.sizes).macros
    return all(own.get(name) == value for name, value in line.rung.macros.items())


def planned(suite: Suite, report: LadderReport) -> list[PlannedCase]:
    """Return the CUDA kernels of a ladder's rungs and of their fixes, each at its largest size, in suite
    order.
    """
    largest: dict[str, LadderLine] = {}
    for line in sorted(report.lines, key=lambda line: max(line.sizes.values(), default=0)):
        if is_plain(line, suite) and isinstance(line.kernel.source_for("cuda"), str):
            largest[line.kernel.name] = line
    return [
        PlannedCase(kernel, suite.case(kernel, largest[kernel.name].sizes))
        for kernel in suite.kernels
        if kernel.name in largest
    ]


def ladder_report(
    suite: Suite,
    tree: str,
    ladder: Ladder,
    lines: Sequence[LadderLine],
    rows: Sequence[StoredRow],
    swept: Sequence[SweptConfiguration] = (),
    *,
    shown: Callable[[DeviceInfo], bool] = lambda _: True,
    against: str = "",
) -> LadderReport:
    """Fill the lines of a ladder with our values.

    `tree` is the current hash of the suite. `shown` selects devices. `against` names the kernel to compare
    with the host's, instead of the author's or the fastest.
    """
    by_machine: dict[str, dict[str, StoredRow]] = {}
    for stored in rows:
        by_machine.setdefault(stored.machine, {})[stored.row.case] = stored
    measured = _Measured(suite, tree, by_machine, swept)
    machines = tuple(each for each in _machines(measured, ladder, lines) if shown(each.device))
    filled = [
        dataclasses.replace(
            line,
            ours={m.name: ours for m in machines if (ours := _ours(measured, line, m))},
            slow=frozenset(m.name for m in machines if is_slow(line, suite, m.device)),
        )
        for line in lines
    ]
    filled = [_with_speed_ups(line, filled, ladder) for line in filled]
    best = {m.name: _best(measured, ladder, filled, m, against) for m in machines} if ladder.against else {}
    return LadderReport(
        suite=suite.name,
        unit=suite.headline,
        ladder=ladder,
        lines=tuple(filled),
        machines=machines,
        best=best,
    )


def _machines(measured: _Measured, ladder: Ladder, lines: Sequence[LadderLine]) -> list[Machine]:
    """Return the devices of ladders: the host's CPU only if a kernel is measured there on
    purpose, or alone.
    """
    suite = measured.suite
    cases = {_case(suite, line) for line in lines if not line.rung.backend and not line.reference}
    if ladder.against:
        cases = {Case(suite.name, k.name, line.sizes).id for k in suite.kernels for line in lines}
        cases -= {_case(suite, line) for line in lines if line.rung.backend}
    found = _with_rows(measured, cases)
    if ladder.against:
        found = {name: each for name, each in found.items() if not _is_host(suite, ladder, each.device)}
    configured = {line.kernel.name for line in lines if line.rung.macros}
    for each in measured.swept:
        if each.sweep.kernel in configured:
            found.setdefault(each.machine, Machine(each.machine, each.sweep.device, each.sweep.host))
    return list((found or _with_rows(measured, {_case(suite, line) for line in lines})).values())


def _with_rows(measured: _Measured, cases: Collection[str]) -> dict[str, Machine]:
    """Return the devices with a row of any of these cases, described by their newest run."""
    found: dict[str, Machine] = {}
    for machine, rows in measured.rows.items():
        if runs := [stored.run for case, stored in rows.items() if case in cases]:
            newest = max(runs, key=lambda run: run.started_at)
            found[machine] = Machine(machine, newest.device, newest.host)
    return found


def _is_host(suite: Suite, ladder: Ladder, device: DeviceInfo) -> bool:
    return (
        any(rung.backend == device.backend for rung in ladder.rungs if rung.kernel == ladder.against)
        and suite.by_name[ladder.against].source_for(device.backend) is not None
    )


def _case(suite: Suite, line: LadderLine) -> str:
    return Case(suite.name, line.kernel.name, line.sizes).id


def _ours(measured: _Measured, line: LadderLine, machine: Machine) -> Ours | None:
    if not is_plain(line, measured.suite):
        return _of_sweep(measured, line, machine)
    case, wanted = _case(measured.suite, line), line.rung.backend
    rows = [stored for by_case in measured.rows.values() if (stored := by_case.get(case))]
    if wanted in ("", machine.device.backend):
        rows = [stored for stored in rows if stored.machine == machine.name]
    else:
        rows = [
            stored
            for stored in rows
            if stored.run.device.backend == wanted and stored.run.host.cpu == machine.host.cpu
        ]
    if rows:
        return _of_row(max(rows, key=lambda each: each.run.started_at), measured.tree)
    return _of_sweep(measured, line, machine) if line.rung.macros else None


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


def _of_sweep(measured: _Measured, line: LadderLine, machine: Machine) -> Ours | None:
    """Return the best of the configurations with the rung's parameters, or their average if requested."""
    matching = [
        each
        for each in measured.swept
        if each.machine == machine.name
        and each.sweep.kernel == line.kernel.name
        and (line.rung.swept or each.sizes == line.sizes)
        and all(each.parameters.get(name) == value for name, value in line.rung.macros.items())
    ]
    if not matching:
        return None
    best = max(matching, key=lambda each: each.rate)
    average = sum(each.rate for each in matching) / len(matching)
    return Ours(
        device=best.sweep.device,
        machine=best.machine,
        kernel=best.sweep.kernel,
        status="measured",
        time_ms=best.time_ms,
        rate=best.rate,
        average=average if line.rung.swept else None,
        peak_percent=100 * best.rate / best.peak if best.peak else None,
        measured_at=best.sweep.started_at,
        **_origin(best.sweep.source, measured.tree),
    )


def _with_speed_ups(line: LadderLine, lines: Sequence[LadderLine], ladder: Ladder) -> LadderLine:
    bases = (each for each in lines if each.sizes == line.sizes and _is_base(ladder, each.rung))
    base = next(bases, None)
    if base is None or line.rung.swept:
        return line
    return dataclasses.replace(line, ours={m: _sped(ours, base.ours.get(m)) for m, ours in line.ours.items()})


def _sped(ours: Ours, base: Ours | None) -> Ours:
    if not ours.rate or base is None or not base.rate:
        return ours
    return dataclasses.replace(ours, speed_up=ours.rate / base.rate)


def _best(
    measured: _Measured, ladder: Ladder, lines: Sequence[LadderLine], machine: Machine, against: str
) -> dict[str, Ours]:
    """Return the value that represents a device against the host, by size.

    It is the requested kernel, else the author's, else the fastest of the same type that is not a vendor's.
    """
    suite, rows = measured.suite, measured.rows.get(machine.name, {})
    theirs = [line.kernel.name for line in lines if not line.rung.backend]
    best: dict[str, Ours] = {}
    for line in (line for line in lines if line.kernel.name == ladder.against):
        for names in ([against],) if against else (theirs, comparable(suite, ladder)):
            cases = [Case(suite.name, name, line.sizes).id for name in names]
            ours = [_of_row(rows[case], measured.tree) for case in cases if case in rows]
            if timed := [each for each in ours if each.rate]:
                chosen = max(timed, key=lambda each: each.rate or 0)
                best[size_label(line.sizes)] = _sped(chosen, line.ours.get(machine.name))
                break
    return best


def comparable(suite: Suite, ladder: Ladder) -> list[str]:
    """Return the kernels that may represent a device: those of the host's type that are not a vendor's."""
    dtype = suite.by_name[ladder.against].dtype
    return [kernel.name for kernel in suite.kernels if kernel.dtype == dtype and not kernel.library]


def fastest(suite: Suite, ladder: Ladder, rows: Sequence[StoredRow]) -> Kernel | None:
    """Return the kernel that represents a device, by its rows; None if there is none."""
    timed = (
        (max(stored.row.sizes.values()), rate, stored.row.kernel)
        for stored in rows
        if (rate := summary_of(stored.row, stored.run).rate)
    )
    name = _fastest_of(timed, comparable(suite, ladder))
    return suite.by_name[name] if name else None


def _fastest_of(timed: Iterable[tuple[int, float, str]], fair: Collection[str]) -> str:
    """Return the fastest of the `fair` kernels at the largest measured size; "" if there is none.

    `timed` holds size, rate and kernel.
    """
    return max((each for each in timed if each[2] in fair), default=(0, 0.0, ""))[2]


def newest_swept(
    results: Path, suite: Suite, kernels: Collection[str]
) -> tuple[list[SweptConfiguration], list[str]]:
    """Return every configuration of the newest complete sweep of each kernel on each device.

    Unreadable files are returned as sentences.
    """
    newest: dict[tuple[str, str], tuple[Sweep, SweepState]] = {}
    problems: list[str] = []
    for kernel in kernels:
        for path in sorted(results.glob(f"*/sweeps/{suite.name}.{kernel}-*.jsonl")):
            try:
                sweep, found = read_sweep(path)
            except HarnessError as error:
                problems.append(error.message)
                continue
            key = path.parent.parent.name, kernel
            if found.complete and (key not in newest or newest[key][0].started_at < sweep.started_at):
                newest[key] = sweep, found
    return [
        each
        for (machine, _), (sweep, found) in newest.items()
        for each in _swept(suite, machine, sweep, found)
    ], problems


def _swept(suite: Suite, machine: str, sweep: Sweep, found: SweepState) -> Iterator[SweptConfiguration]:
    finals = {final.number: final.time_ns for final in found.finals}
    for configuration, row in _rows(suite, sweep, found):
        time_ns = finals.get(row.configuration.number) or row.time_ns
        work = row.flop if suite.headline == "GFLOP/s" else row.moved_bytes
        if time_ns and work:
            yield SweptConfiguration(
                machine,
                sweep,
                configuration.sizes,
                configuration.parameters,
                time_ms=time_ns / 1e6,
                rate=work / time_ns,
                peak=peak_of(sweep.peaks, suite.headline, row.dtype, work / time_ns),
            )


def _rows(suite: Suite, sweep: Sweep, found: SweepState) -> Iterator[tuple[Configuration, SweepRow]]:
    """Yield configurations with their row: their own, or that of a configuration with the same code."""
    measured = {number: row for number, row in found.rows.items() if row.status == "measured"}
    first: dict[tuple[str, str], SweepRow] = {}
    for number, row in measured.items():
        yield row.configuration, row
        if prepared := found.prepared.get(number):
            first[row.configuration.case, prepared.code] = row
    for configuration in _all(suite, sweep, found):
        prepared = found.prepared.get(configuration.number)
        if prepared and prepared.code and configuration.number not in found.rows:
            original = first.get((configuration.case, prepared.code))
            if original is not None:
                yield configuration, original


def _all(suite: Suite, sweep: Sweep, found: SweepState) -> tuple[Configuration, ...]:
    """Return every configuration of a sweep; none if the suite's list has changed."""
    kernel = suite.by_name.get(sweep.kernel)
    if kernel is None or kernel.tune is None:
        return ()
    by_number = [found.rows[number].configuration for number in sorted(found.rows)]
    points = list({tuple(each.sizes.items()): each.sizes for each in by_number}.values())
    every = configurations(suite, kernel, kernel.tune, points)
    same = len(every) == sweep.total and all(every[each.number - 1] == each for each in by_number)
    return every if same else ()


@dataclass(frozen=True, slots=True)
class SuiteLadders:
    """Ladders of one suite, at the displayed sizes."""

    loaded: LoadedSuite
    ladders: tuple[tuple[Ladder, tuple[LadderLine, ...]], ...]
    results: Path
    devices: tuple[str, ...]
    """Devices to show or to measure on; empty for every device but the null one, whose times are made up."""
    against: str
    """The kernel to compare with the host; empty for the fastest."""
    slow: bool
    """True to measure cases that take minutes too."""

    @property
    def suite(self) -> Suite:
        return self.loaded.suite

    @property
    def lines(self) -> list[LadderLine]:
        return [line for _, lines in self.ladders for line in lines]

    def reports(self) -> tuple[list[LadderReport], list[str]]:
        """Return every ladder with our values, and sentences on unreadable files."""
        rows, problems = self._rows()
        tuned = {line.kernel.name for line in self.lines if line.kernel.tune}
        swept, unread = newest_swept(self.results, self.suite, sorted(tuned))
        rows = [each for each in rows if self._is_wanted(each.run.device)]
        swept = [each for each in swept if self._is_wanted(each.sweep.device)]
        tree = self.loaded.source.tree_sha256
        return [
            ladder_report(
                self.suite, tree, ladder, lines, rows, swept, shown=self._is_shown, against=self.against
            )
            for ladder, lines in self.ladders
        ], problems + unread

    def specs(self, default: str | None) -> list[str | None]:
        """Return the devices to measure on; None stands for the first that works."""
        if self.devices:
            return [*self.devices]
        there = {backend for kernel in self.loaded.suite.kernels for backend in kernel.sources}
        specs = dict.fromkeys((default, *MORE_DEVICES))
        return [spec for spec in specs if spec is None or spec.partition(":")[0] in there]

    def missing(self, device: DeviceInfo) -> list[PlannedCase]:
        """Return the cases that a device can measure and has no value of, for the suite's current files."""
        wanted = {
            (line.kernel.name, size_label(line.sizes)): self._planned(line.kernel, line)
            for line in self.lines
            if is_plain(line, self.suite)
            and line.rung.backend in ("", device.backend)
            and line.kernel.source_for(device.backend) is not None
            and (self.slow or not is_slow(line, self.suite, device))
        }
        order = [kernel.name for kernel in self.suite.kernels]
        plan = sorted(wanted.values(), key=lambda planned: order.index(planned.kernel.name))
        return self._not_stored(device, plan)

    def missing_fastest(self, device: DeviceInfo) -> list[PlannedCase]:
        """Return the kernel that represents the device against the host, if the author's cannot run there."""
        plan: list[PlannedCase] = []
        for ladder, lines in self.ladders if device.backend != "cpu" else ():
            kernel = self._standing(ladder, lines, device) if ladder.against else None
            if kernel is None:
                continue
            for line in (line for line in lines if line.kernel.name == ladder.against):
                rung = dataclasses.replace(line.rung, slow=False, backend="")
                moved = dataclasses.replace(line, kernel=kernel, rung=rung)
                if self.slow or not is_slow(moved, self.suite, device):
                    plan.append(self._planned(kernel, line))
        return self._not_stored(device, plan)

    def _standing(self, ladder: Ladder, lines: Sequence[LadderLine], device: DeviceInfo) -> Kernel | None:
        if self.against:
            kernel = self.suite.by_name[self.against]
            return kernel if kernel.source_for(device.backend) is not None else None
        theirs = [line.kernel for line in lines if not line.rung.backend]
        if any(kernel.source_for(device.backend) is not None for kernel in theirs):
            return None
        return fastest(self.suite, ladder, self._stored_on(device))

    def _planned(self, kernel: Kernel, line: LadderLine) -> PlannedCase:
        return PlannedCase(kernel, self.suite.case(kernel, line.sizes))

    def _not_stored(self, device: DeviceInfo, plan: Sequence[PlannedCase]) -> list[PlannedCase]:
        tree = self.loaded.source.tree_sha256
        fresh = {
            stored.row.case
            for stored in self._stored_on(device)
            if stored.row.status == "measured" and stored.run.source.tree_sha256 == tree
        }
        return [planned for planned in plan if planned.case.id not in fresh]

    def _stored_on(self, device: DeviceInfo) -> list[StoredRow]:
        return [stored for stored in self._rows()[0] if stored.machine == machine_name(device)]

    def _rows(self) -> tuple[list[StoredRow], list[str]]:
        """Return the stored rows of the suite's kernels at the sizes of its ladders."""
        points = {size_label(line.sizes): line.sizes for line in self.lines if line.sizes}
        kernels = self.suite.kernels
        cases = {Case(self.suite.name, k.name, point).id for k in kernels for point in points.values()}
        return newest_rows(self.results, self.suite.name, cases)

    def _is_wanted(self, device: DeviceInfo) -> bool:
        return device.backend != "null" or self._is_shown(device)

    def _is_shown(self, device: DeviceInfo) -> bool:
        specs = [backends.parse_spec(spec) for spec in self.devices]
        return backends.parse_spec(device.spec) in specs if specs else device.backend != "null"


def find_ladders(
    suites: Sequence[LoadedSuite],
    names: Sequence[str],
    sizes: Sequence[str],
    *,
    results: Path,
    devices: tuple[str, ...],
    against: str,
    slow: bool,
) -> Iterator[SuiteLadders]:
    """Yield the ladders of these names, or all.

    Raises UsageError for an unknown name, a size that does not fit, and if no suite has a ladder.
    """
    known = [(loaded, ladder) for loaded in suites for ladder in loaded.suite.ladders]
    if not known:
        raise UsageError(
            "No suite here has ladders: Suite(ladders=[Ladder(...)]) says what others published."
        )
    for name in names:
        if not any(_is_of(name, loaded.suite, ladder) for loaded, ladder in known):
            there = [f"{loaded.suite.name}.{ladder.name}" for loaded, ladder in known]
            near = difflib.get_close_matches(name, [*there, *(each.partition(".")[2] for each in there)], 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(f"No suite or ladder is called {name!r}.{hint} Ladders: {', '.join(there)}.")
    against = Selector.parse(against).name.rpartition(".")[2]
    for loaded in suites:
        suite = loaded.suite
        chosen = [
            (ladder, [Selector.parse(name) for name in names if _is_of(name, suite, ladder)])
            for ladder in suite.ladders
        ]
        chosen = [(ladder, selectors) for ladder, selectors in chosen if selectors or not names]
        if not chosen:
            continue
        if against and against not in suite.by_name:
            raise UsageError(f"--against {against}: suite {suite.name!r} has no such kernel.")
        ladders = []
        for ladder, selectors in chosen:
            wanted = dict.fromkeys((*sizes, *(each.size for each in selectors if each.size)))
            points = [Size.parse(size).at(suite.problem.axes) for size in wanted]
            ladders.append((ladder, tuple(placed(suite, ladder, points))))
        yield SuiteLadders(loaded, tuple(ladders), results, devices, against, slow)


def _is_of(name: str, suite: Suite, ladder: Ladder) -> bool:
    """Return whether a name is that of a ladder, of its suite, or of a kernel or case in it."""
    if name in (suite.name, ladder.name, f"{suite.name}.{ladder.name}"):
        return True
    selector = Selector.parse(name)
    return any(selector.names(suite.name, rung.kernel) for rung in ladder.rungs)


# --- the newest values of cards ---------------------------------------------------------------------


class Figure(NamedTuple):
    """The newest value of a case, and the case's number."""

    case: int
    value: float


@dataclass(frozen=True, slots=True)
class CardFigures:
    """The newest values of a suite's kernels on several cards, in the suite's unit. Cards have numbers."""

    hosts: Sequence[str]
    """The CPU of each card's host."""
    figures: Mapping[tuple[int, str, str], Figure]
    """Values by card, kernel and size."""

    def of(self, card: int, kernel: str, size: str) -> Figure | None:
        return self.figures.get((card, kernel, size))

    def base(self, ladder: Ladder, card: int, size: str) -> Figure | None:
        """Return the value that speed-ups on a card are relative to. A host's value counts for its cards."""
        if not ladder.against:
            return self.of(card, ladder.rungs[0].kernel, size)
        beside = (other for other, host in enumerate(self.hosts) if host == self.hosts[card])
        return next((found for each in beside if (found := self.of(each, ladder.against, size))), None)

    def over_base(self, ladder: Ladder, card: int, kernel: str, size: str) -> float | None:
        """Return a kernel's speed-up; None for the base itself, and if a value is missing."""
        mine, base = self.of(card, kernel, size), self.base(ladder, card, size)
        return mine.value / base.value if mine and base and mine.case != base.case else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RungFigure:
    """A card's values of a rung, and of the kernel that fixes it."""

    card: int
    own: Figure | None
    speed_up: float | None
    repaired: Figure | None
    gain: float | None
    """Rate of the fixed kernel over that of the rung's."""


def figures_of_rung(suite: Suite, ladder: Ladder, line: LadderLine, newest: CardFigures) -> list[RungFigure]:
    """Return the values of a rung on each card that has one."""
    size, found = size_label(line.sizes) if line.sizes else "", []
    for card in range(len(newest.hosts)):
        own = newest.of(card, line.rung.kernel, size) if is_plain(line, suite) else None
        repaired = newest.of(card, line.rung.repaired, size)
        if own or repaired:
            found.append(
                RungFigure(
                    card=card,
                    own=own,
                    speed_up=newest.over_base(ladder, card, line.rung.kernel, size) if own else None,
                    repaired=repaired,
                    gain=repaired.value / own.value if own and repaired else None,
                )
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Rates and speed-ups over the size: of a published rung, or of a kernel on a card."""

    name: str
    """Label of the rung, or name of the kernel."""
    card: int | None = None
    is_base: bool
    points: tuple[tuple[int, float, float | None], ...]
    """Size, rate and speed-up."""


def curves(suite: Suite, ladder: Ladder, lines: Sequence[LadderLine], newest: CardFigures) -> list[Curve]:
    """Return the curves over the size: published ones, then ours for each card.

    A ladder without two sizes of equal axes has none.
    """
    labels = dict.fromkeys(size_label(line.sizes) for line in lines if line.sizes)
    sizes = [label for label in labels if label.isdecimal()]
    if len(sizes) < 2:
        return []
    found = list(_published(ladder, lines, sizes))
    for card in range(len(newest.hosts)):
        for kernel in _drawn(suite, ladder, lines, newest, card, sizes):
            rates = {size: figure.value for size in sizes if (figure := newest.of(card, kernel, size))}
            points = tuple(
                (int(size), rate, newest.over_base(ladder, card, kernel, size))
                for size, rate in rates.items()
                if rate > 0
            )
            found.append(Curve(name=kernel, card=card, is_base=kernel == ladder.against, points=points))
    return [each for each in found if each.points]


def _published(ladder: Ladder, lines: Sequence[LadderLine], sizes: Sequence[str]) -> Iterator[Curve]:
    by_label: dict[str, list[LadderLine]] = {}
    for line in lines:
        by_label.setdefault(line.rung.label, []).append(line)
    for label, own in by_label.items():
        is_base = any(line.rung.kernel == ladder.against for line in own)
        by_size = {size_label(line.sizes): line for line in reversed(own) if line.sizes}
        points = tuple(
            (int(size), by_size[size].rung.rate or 0.0, None if is_base else by_size[size].speed_up)
            for size in sizes
            if size in by_size and by_size[size].rung.rate
        )
        yield Curve(name=label, is_base=is_base, points=points)


def _drawn(
    suite: Suite,
    ladder: Ladder,
    lines: Sequence[LadderLine],
    newest: CardFigures,
    card: int,
    sizes: Sequence[str],
) -> list[str]:
    """Return the rungs' kernels that a card has measured; in a comparison with a host, only the
    card's best.
    """
    plain = dict.fromkeys(line.rung.kernel for line in lines if is_plain(line, suite))
    own = [kernel for kernel in plain if any(newest.of(card, kernel, size) for size in sizes)]
    if ladder.against and set(own) <= {ladder.against}:
        fair = [kernel for kernel in comparable(suite, ladder) if kernel != ladder.against]
        timed = (
            (int(size), figure.value, kernel)
            for size in sizes
            for kernel in fair
            if (figure := newest.of(card, kernel, size))
        )
        own += filter(None, [_fastest_of(timed, fair)])
    return own
