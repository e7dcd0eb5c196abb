"""A sweep's progress on standard error: a live bar in a terminal, some lines in a log."""

from __future__ import annotations

__all__ = ["SweepProgress"]

import time

from rich.markup import escape
from rich.progress import TextColumn, TimeRemainingColumn

from harness.output.progress import DeviceProgress
from harness.records import DeviceInfo
from harness.spec.suite import size_label
from harness.sweep.journal import SweepState
from harness.sweep.model import Sweep, SweepRow

_PHASES = {
    "prepare": "compiling",
    "screen": "verifying and measuring",
    "duel": "the best in pairs",
    "repeat": "the winner in fresh processes",
}
_EVERY_S = 10.0
"""Between two lines in a log."""


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
        """What a worker is about to do: too quick to follow."""

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
        # Later on they are held against each other, and what was fastest by itself says little.
        if self.best is None or self.best.time_ns is None or self.part != _PHASES["screen"]:
            return ""
        chosen = self.best.configuration
        values = ", ".join(f"{name} {value}" for name, value in chosen.parameters.items())
        return escape(
            f"best so far {self.best.time_ns / 1e6:.4g} ms at {size_label(chosen.sizes)} ({values})"
        )


def _speed(row: SweepRow) -> float:
    """Work in a time: times of two sizes cannot be held against each other."""
    assert row.time_ns
    return (row.flop or row.moved_bytes or 1) / row.time_ns
