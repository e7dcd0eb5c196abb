"""What sweeps have measured, configuration by configuration, for the rungs that are of a sweep."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.device import backends
from harness.device.machine import machine_name
from harness.errors import HarnessError, UsageError
from harness.output.ladders import (
    LadderReport,
    Line,
    Swept,
    fastest,
    is_plain,
    is_slow,
    ladder_report,
    placed,
)
from harness.records import DeviceInfo
from harness.spec.case_id import Selector, Size, size_label
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase
from harness.spec.suite import Case, Kernel, Ladder, Suite
from harness.store.records_file import StoredRow, newest_rows
from harness.sweep.journal import SweepState, read_sweep
from harness.sweep.model import Configuration, Sweep, SweepRow, configurations


def newest_swept(results: Path, suite: Suite, kernels: Collection[str]) -> tuple[list[Swept], list[str]]:
    """Every configuration of the newest sweep of each kernel on each device that came to its end, and what
    could not be read, a sentence each.
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


def _swept(suite: Suite, machine: str, sweep: Sweep, found: SweepState) -> Iterator[Swept]:
    finals = {final.number: final.time_ns for final in found.finals}
    for configuration, row in _rows(suite, sweep, found):
        time_ns = finals.get(row.configuration.number) or row.time_ns
        work = row.flop if suite.headline == "GFLOP/s" else row.moved_bytes
        if time_ns and work:
            yield Swept(
                machine=machine,
                device=sweep.device,
                host=sweep.host,
                source=sweep.source,
                measured_at=sweep.started_at,
                kernel=sweep.kernel,
                sizes=configuration.sizes,
                parameters=configuration.parameters,
                time_ms=time_ns / 1e6,
                rate=work / time_ns,
                peak=sweep.peaks.get(row.dtype if suite.headline == "GFLOP/s" else "memory"),
            )


def _rows(suite: Suite, sweep: Sweep, found: SweepState) -> Iterator[tuple[Configuration, SweepRow]]:
    """Configurations with the row that holds for each: its own, or that of one whose code is the same."""
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
    """Every configuration of a sweep; none where the suite's list is another now."""
    kernel = suite.by_name.get(sweep.kernel)
    if kernel is None or kernel.tune is None:
        return ()
    by_number = [found.rows[number].configuration for number in sorted(found.rows)]
    points = list({tuple(each.sizes.items()): each.sizes for each in by_number}.values())
    every = configurations(suite, kernel, kernel.tune, points)
    same = len(every) == sweep.total and all(every[each.number - 1] == each for each in by_number)
    return every if same else ()


MORE_DEVICES = ("opengl:0", "cpu:0")
"""Where ladders are measured too, beside the default device: the compute shader's, and what both are held
against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLadders:
    """Ladders of one suite, at the sizes to show."""

    loaded: LoadedSuite
    ladders: tuple[tuple[Ladder, tuple[Line, ...]], ...]
    results: Path
    devices: tuple[str, ...]
    """To show or to measure on; empty for every device but the null one, whose times are made up."""
    against: str
    """The kernel to hold against the host; empty for the fastest."""
    slow: bool
    """Whether to measure what takes minutes too."""

    @property
    def lines(self) -> list[Line]:
        return [line for _, lines in self.ladders for line in lines]

    def reports(self) -> tuple[list[LadderReport], list[str]]:
        """Every ladder with its figures, and what could not be read, a sentence each."""
        suite = self.loaded.suite
        rows, problems = self._rows()
        tuned = {line.kernel.name for line in self.lines if line.kernel.tune}
        swept, unread = newest_swept(self.results, suite, sorted(tuned))
        return [
            ladder_report(
                suite,
                self.loaded.source.tree_sha256,
                ladder,
                lines,
                [each for each in rows if self._is_wanted(each.run.device)],
                [each for each in swept if self._is_wanted(each.device)],
                shown=self._is_shown,
                against=self.against,
            )
            for ladder, lines in self.ladders
        ], problems + unread

    def specs(self, default: str | None) -> list[str | None]:
        """The devices to measure on; None for the first that works."""
        if self.devices:
            return [*self.devices]
        there = {backend for kernel in self.loaded.suite.kernels for backend in kernel.sources}
        specs = dict.fromkeys((default, *MORE_DEVICES))
        return [spec for spec in specs if spec is None or spec.partition(":")[0] in there]

    def missing(self, device: DeviceInfo) -> list[PlannedCase]:
        """What a device can be asked for, kernel by kernel, and has no figure of with the suite as it is."""
        suite = self.loaded.suite
        wanted = {
            (line.kernel.name, size_label(line.sizes)): PlannedCase(
                line.kernel, suite.case(line.kernel, line.sizes)
            )
            for line in self.lines
            if is_plain(line, suite)
            and line.rung.backend in ("", device.backend)
            and line.kernel.source_for(device.backend) is not None
            and (self.slow or not is_slow(line, suite, device))
        }
        order = [kernel.name for kernel in suite.kernels]
        plan = sorted(wanted.values(), key=lambda planned: order.index(planned.kernel.name))
        return self._not_stored(device, plan)

    def missing_fastest(self, device: DeviceInfo) -> list[PlannedCase]:
        """The kernel that stands for a device in a table against the host, where the author's cannot run."""
        if device.backend == "cpu":
            return []
        suite = self.loaded.suite
        plan: list[PlannedCase] = []
        for ladder, lines in self.ladders:
            kernel = self._standing(ladder, lines, device) if ladder.against else None
            if kernel is None:
                continue
            for line in (line for line in lines if line.kernel.name == ladder.against):
                rung = dataclasses.replace(line.rung, slow=False, backend="")
                moved = dataclasses.replace(line, kernel=kernel, rung=rung)
                if self.slow or not is_slow(moved, suite, device):
                    plan.append(PlannedCase(kernel, suite.case(kernel, line.sizes)))
        return self._not_stored(device, plan)

    def _standing(self, ladder: Ladder, lines: Sequence[Line], device: DeviceInfo) -> Kernel | None:
        suite = self.loaded.suite
        if self.against:
            kernel = suite.by_name[self.against]
            return kernel if kernel.source_for(device.backend) is not None else None
        theirs = [line.kernel for line in lines if not line.rung.backend]
        if any(kernel.source_for(device.backend) is not None for kernel in theirs):
            return None
        return fastest(suite, ladder, self._stored_on(device))

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
        """What is stored of any kernel of the suite at the sizes of its ladders."""
        points = {size_label(line.sizes): line.sizes for line in self.lines if line.sizes}
        suite = self.loaded.suite
        cases = {Case(suite.name, k.name, point).id for k in suite.kernels for point in points.values()}
        return newest_rows(self.results, suite.name, cases)

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
    """The ladders of these names, or all. Raises UsageError for a name that is none, a size that fits
    nothing, and where nobody published.
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
        chosen = {
            ladder.name: (ladder, [Selector.parse(name) for name in names if _is_of(name, suite, ladder)])
            for ladder in suite.ladders
        }
        chosen = {name: found for name, found in chosen.items() if found[1] or not names}
        if not chosen:
            continue
        if against and against not in suite.by_name:
            raise UsageError(f"--against {against}: suite {suite.name!r} has no such kernel.")
        axes = suite.problem.axes
        ladders = []
        for ladder, selectors in chosen.values():
            wanted = dict.fromkeys((*sizes, *(each.size for each in selectors if each.size)))
            points = [Size.parse(size).at(axes) for size in wanted]
            ladders.append((ladder, tuple(placed(suite, ladder, points))))
        yield SuiteLadders(
            loaded=loaded,
            ladders=tuple(ladders),
            results=results,
            devices=devices,
            against=against,
            slow=slow,
        )


def _is_of(name: str, suite: Suite, ladder: Ladder) -> bool:
    """Whether it names a ladder, its suite, or a kernel or case on it."""
    if name in (suite.name, ladder.name, f"{suite.name}.{ladder.name}"):
        return True
    selector = Selector.parse(name)
    return any(selector.names(suite.name, rung.kernel) for rung in ladder.rungs)
