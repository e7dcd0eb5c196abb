"""A suite.py seen from its parent: what it says, as data, and what its functions answer, with a deadline."""

from __future__ import annotations

__all__ = ["LOAD_TIMEOUT_S", "Loading"]

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
from harness.spec.suite_data import Call, Described, Failed, Function, Raised, Reply, Returned, rebuild
from harness.system.process import Process
from harness.system.texts import harmless

LOAD_TIMEOUT_S = 60.0
"""For running a suite.py, and for each of its functions."""

_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class Loading:
    """A suite.py that another process has begun to run. Several run side by side until they are asked for."""

    def __init__(self, folder: Path, timeout_s: float | None = None) -> None:
        self.folder, self.file = folder, folder / "suite.py"
        self.timeout_s = timeout_s or LOAD_TIMEOUT_S
        self._lock = threading.Lock()
        self._answers: dict[bytes, Returned | Raised] = {}
        self._deadline = time.monotonic() + self.timeout_s
        self._process = Process("harness.spec.suite_server", cwd=Path("/"))
        self._end = weakref.finalize(self, self._process.close)
        self._process.ask(msgspec.json.encode(str(folder)) + b"\n", self._deadline)

    def suite(self) -> Suite:
        """Raises SuiteError, with what it printed as its log, where there is none."""
        reply = self._answer("loading it", self._deadline)
        if isinstance(reply, Failed):
            self._end()
            raise SuiteError(reply.message, log=reply.log)
        if not isinstance(reply, Described):
            raise self._lost(f"{self.file} wrote into its own description, which only the harness does.")
        if printed := self._process.log():
            sys.stderr.write(harmless(printed, keep="\n") + "\n")
        self._process.rest()
        return dataclasses.replace(rebuild(reply.suite, self._function), root=self.folder)

    def _function(self, function: Function) -> Callable[[Case], Any]:
        def ask(case: Case) -> Any:
            reply = self._asked(function, case)
            if isinstance(reply, Raised):
                raise type(reply.kind, (Exception,), {})(reply.message)
            return reply.value

        ask.__name__ = function.name
        return ask

    def _asked(self, function: Function, case: Case) -> Returned | Raised:
        """What a function says of a case, asked once."""
        line = msgspec.json.encode(Call(function.number, case)) + b"\n"
        with self._lock:
            if line not in self._answers:
                self._answers[line] = self._ask(function, line)
            return self._answers[line]

    def _ask(self, function: Function, line: bytes) -> Returned | Raised:
        deadline = time.monotonic() + self.timeout_s
        doing = f"calling its function {function.name}"
        self._process.wake()
        try:
            self._process.ask(line, deadline)
        except (BrokenPipeError, ValueError, OSError):
            raise self._lost(f"{self.file} {self._process.how_it_ended()} before {doing}.") from None
        reply = self._answer(doing, deadline)
        self._process.rest()
        if not isinstance(reply, (Returned, Raised)):
            raise self._lost(f"{self.file} wrote into an answer of its own, which only the harness does.")
        return reply

    def _answer(self, doing: str, deadline: float) -> Reply:
        try:
            line = self._process.answer(deadline)
        except TimeoutError:
            raise self._lost(
                f"{self.file} was ended: {doing} took longer than {self.timeout_s:g} s. Does it loop, or "
                "wait for something? Give it more with --timeout."
            ) from None
        if line is None:
            how = self._process.how_it_ended()
            raise self._lost(
                f"The process that runs {self.file} {how} while {doing}: a suite must not end its process."
            )
        try:
            return _replies.decode(line)
        except msgspec.MsgspecError as error:
            raise self._lost(f"{self.file} gave what is no suite ({error}).") from None

    def _lost(self, message: str) -> SuiteError:
        """The error, once the process is gone."""
        self._process.kill()
        lost = SuiteError(message, log=self._process.log())
        self._end()
        return lost
