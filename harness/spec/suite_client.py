"""A suite.py seen from its parent: what it says, as data, and what its functions answer, with a deadline."""

from __future__ import annotations

__all__ = ["LOAD_TIMEOUT_S", "Loading"]

import contextlib
import dataclasses
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import SuiteError
from harness.spec.suite import Case, Suite
from harness.spec.suite_data import Call, Function, Load, Returned, rebuild
from harness.system.process import Failed, LostError, Process
from harness.system.texts import harmless

LOAD_TIMEOUT_S = 60.0
"""For running a suite.py, and for each of its functions."""


class Loading:
    """A suite.py that another process has begun to run. Several run side by side until they are asked for."""

    def __init__(self, folder: Path, timeout_s: float | None = None) -> None:
        self.folder, self.file = folder, folder / "suite.py"
        self.timeout_s = timeout_s or LOAD_TIMEOUT_S
        self._lock = threading.Lock()
        self._answers: dict[tuple[int, bytes], Returned | Failed] = {}
        self._deadline = time.monotonic() + self.timeout_s
        self._process = Process("harness.spec.suite_server", cwd=Path("/"))
        self._end = weakref.finalize(self, self._process.close)
        self._load = Load(str(folder))
        with contextlib.suppress(LostError):  # told when the answer is asked for
            self._process.send(self._load, self._deadline)

    def suite(self) -> Suite:
        """Raises SuiteError, with what it printed as its log, where there is none."""
        try:
            reply = self._process.answer(self._load, self._deadline)
        except LostError as lost:
            raise self._lost(lost, "loading it") from None
        if isinstance(reply, Failed):
            self._end()
            raise SuiteError(reply.message, log=reply.log)
        if printed := self._process.log():
            sys.stderr.write(harmless(printed, keep="\n") + "\n")
        self._process.rest()
        return dataclasses.replace(rebuild(reply.suite, self._function), root=self.folder)

    def _function(self, function: Function) -> Callable[[Case], Any]:
        def ask(case: Case) -> Any:
            key = function.number, msgspec.json.encode(case)
            with self._lock:
                if key not in self._answers:
                    self._answers[key] = self._call(function, case)
                reply = self._answers[key]
            if isinstance(reply, Failed):
                raise type(reply.reason, (Exception,), {})(reply.message)
            return reply.value

        ask.__name__ = function.name
        return ask

    def _call(self, function: Function, case: Case) -> Returned | Failed:
        self._process.wake()
        try:
            reply = self._process.ask(Call(function.number, case), self.timeout_s)
        except LostError as lost:
            raise self._lost(lost, f"calling its function {function.name}") from None
        self._process.rest()
        return reply

    def _lost(self, lost: LostError, doing: str) -> SuiteError:
        """The error, once the process is gone."""
        messages = {
            "timed-out": f"{self.file} was ended: {doing} took longer than {self.timeout_s:g} s. Does it "
            "loop, or wait for something? Give it more with --timeout.",
            "garbled": f"{self.file} gave what is no answer ({lost.how}) while {doing}: something in it "
            "wrote where only the harness does.",
            "ended": f"The process that runs {self.file} {lost.how} while {doing}: a suite must not end its "
            "process.",
        }
        error = SuiteError(messages[lost.why], log=self._process.log())
        self._end()
        return error
