"""Progress on standard error: a live bar in a terminal, a line a case in a log."""

from __future__ import annotations

__all__ = ["CompareProgress", "DeviceProgress", "ProgressObserver"]

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from harness.output.summary import outcome
from harness.records import DeviceInfo, Row
from harness.spec.planning import PlannedCase

if TYPE_CHECKING:
    from typing_extensions import Self

    from harness.run.compare import Purpose


_PURPOSES: dict[Purpose, str] = {
    "look": "",
    "confirm": ", confirming",
    "attribute": ", each side alone",
}


class DeviceProgress:
    """A bar on standard error, with the time that has passed unless other columns are given; a context
    manager.
    """

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

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def opened(self, device: DeviceInfo) -> None:
        if device.spec != self.device:
            self.console.print(f"Device: {device.spec}, {device.name}", highlight=False)
        self.device = device.spec

    def waiting(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def stage(self, stage: str) -> None:
        self.progress.update(self.task, description=f"{self.name} [dim]{stage}[/]" if self.name else stage)


class ProgressObserver(DeviceProgress):
    """Shows a run as it goes."""

    def started(self, planned: PlannedCase, number: int, total: int) -> None:
        self.name = planned.case.short_id
        self.began = time.monotonic()
        self.progress.update(self.task, description=self.name, completed=number - 1, total=total)

    def finished(self, row: Row) -> None:
        self.progress.advance(self.task)
        if not self.console.is_terminal:
            took = time.monotonic() - self.began
            self.console.print(
                f"{self.name}: {outcome(row)} ({took:.1f} s in all)", highlight=False, soft_wrap=True
            )


class CompareProgress(DeviceProgress):
    """Shows a comparison as it goes: the process, and the case it is at."""

    label = ""

    def process(self, number: int, cases: int, purpose: Purpose) -> None:
        self.label = f"process {number}" + _PURPOSES[purpose]
        self.began = time.monotonic()
        self.progress.update(self.task, description=self.label, completed=0, total=cases)
        if not self.console.is_terminal:
            self.console.print(f"{self.label}: {cases} case{'s' if cases > 1 else ''}", highlight=False)

    def started(self, case: str) -> None:
        self.name = f"{self.label}: {escape(case)}"
        self.progress.update(self.task, description=self.name)

    def measured(self, case: str) -> None:  # noqa: ARG002 - a bar moves whatever the case
        self.progress.advance(self.task)
