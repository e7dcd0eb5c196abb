"""A suite that another process has loaded. This worker process runs none of the suite's Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from harness.measure.protocol import SideName
from harness.suite.problem import Case, Problem
from harness.suite.suite import Suite
from harness.suite.suite_data import (
    REFERENCE,
    TOLERANCE,
    Answer,
    DataCall,
    JudgeCall,
    SuiteCall,
    SuiteData,
    as_declared,
    calling,
    check_answered,
    rebuild,
)
from harness.system.array_files import read_arrays, write_arrays
from harness.system.process import Channel


def remote_suite(side: SideName, data: SuiteData, folder: Path, channel: Channel, scratch: Path) -> Suite:
    """Return the suite of a side. The requesting process calls its functions; arrays pass through
    `scratch`.
    """

    def answer(call: SuiteCall) -> Any:
        return channel.ask(side, call)

    arrays = _Arrays(answer, scratch)
    suite = dataclasses.replace(rebuild(data, lambda each: calling(answer, each), arrays), root=folder)
    arrays.problem = suite.problem
    return suite


class _Arrays:
    """Requests a problem's arrays from the process that loaded the suite."""

    def __init__(self, answer: Answer, scratch: Path) -> None:
        self._answer, self._scratch = answer, scratch
        self.problem = Problem()

    def data(self, case: Case, seed: int) -> dict[str, NDArray[Any]]:
        with self._folder() as folder:
            found = self._asked(DataCall(case, seed, folder))
        return as_declared(self.problem, case, found)

    def judged(
        self, case: Case, inputs: Mapping[str, NDArray[Any]], *, reference: bool
    ) -> tuple[dict[str, NDArray[Any]], Any]:
        with self._folder() as folder:
            write_arrays(Path(folder), inputs, link=True)
            found = self._asked(JudgeCall(case, folder, reference))
        tolerance = found[TOLERANCE]
        references = {
            name.removeprefix(REFERENCE): array for name, array in found.items() if name.startswith(REFERENCE)
        }
        return references, tolerance if tolerance.ndim else tolerance.item()

    def _asked(self, call: DataCall | JudgeCall) -> dict[str, NDArray[Any]]:
        check_answered(self._answer(call))
        return read_arrays(Path(call.folder))

    def _folder(self) -> TemporaryDirectory[str]:
        """Return a folder for one call. Arrays mapped from its files stay valid after its removal."""
        return TemporaryDirectory(dir=self._scratch, ignore_cleanup_errors=True)
