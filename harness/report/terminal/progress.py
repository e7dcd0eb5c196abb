"""Progress on a terminal: bars for runs, comparisons and sweeps, a spinner for the rest."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape, render
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from harness.numbers import counted, effect
from harness.report.terminal.run_tables import outcome
from harness.suite.case_id import size_label

if TYPE_CHECKING:
    from typing_extensions import Self

    from harness.records.sweep_journal import SweepState
    from harness.records.sweep_types import Sweep, SweepRow
    from harness.records.types import DeviceInfo, Row
    from harness.run.bisect.search import Looked
    from harness.run.pair_session import Purpose
    from harness.system.git import Commit


def _purpose(purpose: Purpose) -> str:
    from harness.run.pair_session import PURPOSES  # slow to import, but imported by now

    return PURPOSES[purpose]


class Waiting:
    """A spinner on standard error, only in a terminal, with a text."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.console = Console(stderr=True)
        self.status = self.console.status(words)

    def tell(self, what: str) -> None:
        # Use one line: with two, each turn of the spinner would leave the first behind.
        room = self.console.width - len(self.words) - 5
        self.status.update(f"{self.words}: {escape(what if len(what) <= room else f'{what[: room - 1]}…')}")

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.status.stop()


class DeviceProgress:
    """A bar on standard error, by default with the elapsed time; a context manager."""

    def __init__(self, *columns: ProgressColumn) -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            *(columns or [TimeElapsedColumn()]),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("opening the device", total=None, note="")
        self.name = ""
        self.began = 0.0
        self.device = ""
        self.card = ""
        """Place of the card if several are shown; empty for a single device."""
        self._run: set[tuple[str, str, str]] = set()

    def of_card(self, place: str) -> Self:
        """Return an observer of one of several cards, with its own bar in the same display."""
        one = copy.copy(self)
        one.card = place
        one.task = self.progress.add_task(f"{place} waiting", total=None, note="")
        self.progress.update(self.task, visible=False)
        return one

    def show(self, description: str, **more: Any) -> None:
        """Describe the device's activity on the bar."""
        self.progress.update(self.task, description=f"{self.card} {description}".lstrip(), **more)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def opened(self, device: DeviceInfo) -> None:
        if device.spec != self.device:
            self._print(f"Device: {self.card or device.spec}, {device.name}")
        self.device = device.spec

    def waiting(self, sentence: str) -> None:
        self._print(f"{self.card}: {sentence}" if self.card else sentence)

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def stage(self, stage: str) -> None:
        if (
            stage.startswith("running ")
            and not self.console.is_terminal
            and (self.card, self.name, stage) not in self._run
        ):
            self._run.add(
                (self.card, self.name, stage)
            )  # a build of a minute, during which a log would be silent
            self.waiting(f"{render(self.name).plain}: {stage}" if self.name else stage)
        self.show(f"{self.name} [dim]{stage}[/]" if self.name else stage)


class ProgressObserver(DeviceProgress):
    def started(self, case: str, number: int, total: int) -> None:
        self.name = case
        self.began = time.monotonic()
        self.show(self.name, completed=number - 1, total=total)

    def finished(self, row: Row) -> None:
        self.progress.advance(self.task)
        if not self.console.is_terminal:
            took = time.monotonic() - self.began
            self.waiting(f"{self.name}: {outcome(row)} ({took:.1f} s in all)")


class SanitizeProgress(DeviceProgress):
    def sanitizing(self, case: str) -> None:
        self.progress.update(self.task, description=f"sanitizing {escape(case)}")


class CompareProgress(DeviceProgress):
    label = ""

    def process(self, number: int, cases: int, purpose: Purpose) -> None:
        self.label = f"process {number}{_purpose(purpose)}"
        self.began = time.monotonic()
        self.show(self.label, completed=0, total=cases)
        if not self.console.is_terminal:
            self.waiting(f"{self.label}: {counted(cases, 'case')}")

    def started(self, case: str) -> None:
        self.name = f"{self.label}: {escape(case)}"
        self.show(self.name)

    def measured(self, case: str) -> None:  # noqa: ARG002 - a bar moves whatever the case
        self.progress.advance(self.task)


class BisectProgress(CompareProgress):
    """A line for each comparison, below a bar for the running one."""

    pair = ""

    def asking(self, against: Commit, commit: Commit) -> None:
        self.pair = f"{against.hash[:10]}..{commit.hash[:10]}"

    def process(self, number: int, cases: int, purpose: Purpose) -> None:  # noqa: ARG002 - it is one
        self.label = f"{self.pair}, process {number}{_purpose(purpose)}"
        self.progress.update(self.task, description=self.label)

    def looked(self, looked: Looked, suspects: int) -> None:
        against = f"{looked.against.hash[:10]}..{looked.commit.hash[:10]}"
        told = f"{effect(looked.effect)} {looked.side}".strip()
        if looked.side == "skipped":
            against, told = looked.commit.hash[:10], f"skipped ({looked.reason})"
        elif looked.same_as:
            told = f"same code as {looked.same_as[:10]}, {looked.side}"
        before = ", measured before" if looked.remembered else ", by both over GOOD" if looked.derived else ""
        self.waiting(f"{against}: {told}{before}; {counted(suspects, 'suspect')}")


_PHASES = {
    "prepare": "compiling",
    "screen": "verifying and measuring",
    "duel": "the best in pairs",
    "repeat": "the winner in fresh processes",
}
_EVERY_S = 10.0
"""Time between two lines in a log, in seconds."""


class SweepProgress(DeviceProgress):
    """A bar for each part of a sweep, with the best so far and the time left."""

    def __init__(self) -> None:
        super().__init__(TimeRemainingColumn(compact=True), TextColumn("[dim]{task.fields[note]}[/]"))
        self.part = ""
        self.best: SweepRow | None = None
        self.done = self.total = 0

    def opened(self, device: DeviceInfo) -> None:
        self.waiting(f"Device: {device.spec}, {device.name}")

    def stage(self, stage: str) -> None:
        """Ignore the stages of a worker, which are too short to show."""

    def started(self, sweep: Sweep, state: SweepState) -> None:
        self.name = f"{sweep.source.suite}.{sweep.kernel}"
        for row in state.rows.values():
            self._consider(row)

    def phase(self, name: str, total: int) -> None:
        self.part, self.done, self.total = _PHASES[name], 0, total
        self.began = time.monotonic()
        self.progress.reset(
            self.task, description=f"{escape(self.name)}, {self.part}", total=total, note=self._best_so_far()
        )
        if not self.console.is_terminal:
            self.waiting(f"{self.name}: {self.part}, {total} to do")

    def moved(self, row: SweepRow | None = None) -> None:
        if row is not None:
            self._consider(row)
        self.done += 1
        best = self._best_so_far()
        self.progress.update(self.task, advance=1, note=best)
        if not self.console.is_terminal and time.monotonic() - self.began > _EVERY_S:
            self.began = time.monotonic()
            self.waiting(f"{self.name}: {self.part}, {self.done} of {self.total}{best and f', {best}'}")

    def _consider(self, row: SweepRow) -> None:
        if row.time_ns and (self.best is None or _speed(row) > _speed(self.best)):
            self.best = row

    def _best_so_far(self) -> str:
        # Later they are compared with each other, and the fastest time alone says little.
        if self.best is None or self.best.time_ns is None or self.part != _PHASES["screen"]:
            return ""
        chosen, time_ms = self.best.configuration, self.best.time_ns / 1e6
        values = ", ".join(f"{name} {value}" for name, value in chosen.parameters.items())
        return escape(f"best so far {time_ms:.4g} ms at {size_label(chosen.sizes)} ({values})")


def _speed(row: SweepRow) -> float:
    """Return the work per time. Times of two sizes are not comparable, but rates are."""
    assert row.time_ns
    return (row.flop or row.moved_bytes or 1) / row.time_ns
