"""What sweeps have measured, configuration by configuration, for the rungs that are of a sweep."""

from __future__ import annotations

__all__ = ["newest_swept"]

from collections.abc import Collection, Iterator
from pathlib import Path

from harness.errors import HarnessError
from harness.output.ladders import Swept
from harness.spec.suite import Suite
from harness.sweep.configurations import configurations
from harness.sweep.journal import SweepState, read_sweep
from harness.sweep.model import Configuration, Sweep, SweepRow


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
