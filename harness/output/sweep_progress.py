"""A sweep's progress on standard error: a live bar in a terminal, some lines in a log."""

from __future__ import annotations

__all__ = ["SweepProgress"]

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.records import DeviceInfo
from harness.spec.suite import size_label
from harness.sweep.journal import Found
from harness.sweep.model import Sweep, SweepRow

if TYPE_CHECKING:
    from typing_extensions import Self

_PHASES = {
    "prepare": "compiling",
    "screen": "verifying and measuring",
    "duel": "the best in pairs",
    "repeat": "the winner in fresh processes",
}
_EVERY_S = 10.0
"""Between two lines in a log."""


class SweepProgress:
    """A bar for each part of a sweep, with the best so far and the time left; a context manager."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("[dim]{task.fields[told]}[/]"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("opening the device", total=None, told="")
        self.name = self.part = ""
        self.best: SweepRow | None = None
        self.done = self.total = 0
        self.said_s = 0.0

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def opened(self, device: DeviceInfo) -> None:
        self._say(f"Device: {device.spec}, {device.name}")

    def waiting(self, sentence: str) -> None:
        self._say(sentence)

    def stage(self, stage: str) -> None:
        """What a worker is about to do: too quick to follow."""

    def began(self, sweep: Sweep, found: Found) -> None:
        self.name = f"{sweep.source.suite}.{sweep.kernel}"
        for row in found.rows.values():
            self._consider(row)

    def phase(self, name: str, total: int) -> None:
        self.part, self.done, self.total = _PHASES.get(name, name), 0, total
        self.said_s = time.monotonic()
        self.progress.reset(
            self.task, description=f"{escape(self.name)}, {self.part}", total=total, told=self._told()
        )
        if not self.console.is_terminal:
            self._say(f"{self.name}: {self.part}, {total} to do")

    def moved(self, row: SweepRow | None = None) -> None:
        if row is not None:
            self._consider(row)
        self.done += 1
        self.progress.update(self.task, advance=1, told=self._told())
        if not self.console.is_terminal and time.monotonic() - self.said_s > _EVERY_S:
            self.said_s = time.monotonic()
            told = self._told()
            self._say(f"{self.name}: {self.part}, {self.done} of {self.total}{told and f', {told}'}")

    def _consider(self, row: SweepRow) -> None:
        if row.time_ns and (self.best is None or _speed(row) > _speed(self.best)):
            self.best = row

    def _told(self) -> str:
        # Later on they are held against each other, and what was fastest by itself says little.
        if self.best is None or self.best.time_ns is None or self.part != _PHASES["screen"]:
            return ""
        chosen = self.best.configuration
        values = ", ".join(f"{name} {value}" for name, value in chosen.parameters.items())
        return escape(
            f"best so far {self.best.time_ns / 1e6:.4g} ms at {size_label(chosen.sizes)} ({values})"
        )

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)


def _speed(row: SweepRow) -> float:
    """Work in a time: times of two sizes cannot be held against each other."""
    assert row.time_ns
    return (row.flop or row.moved_bytes or 1) / row.time_ns
