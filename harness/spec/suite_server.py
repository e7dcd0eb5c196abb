"""The child process that runs a suite.py, so that nothing which it does can end, hang or change the process
that judges: ``python -m harness.spec.suite_server``.

The first line that it is sent is the suite's folder, answered by the suite as data. Each further line asks
for one of the suite's functions at a case.
"""

from __future__ import annotations

__all__ = ["main"]

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.errors import SuiteError
from harness.spec.suite_data import (
    Call,
    Described,
    Failed,
    Functions,
    Raised,
    Reply,
    describe,
)
from harness.spec.suite_file import load_folder
from harness.system.process import serve


class Server:
    """What has loaded one suite, and answers for it."""

    def __init__(self) -> None:
        self.functions: Functions | None = None

    def answer(self, line: bytes, send: Callable[[bytes], object]) -> None:
        send(msgspec.json.encode(self._reply(line)) + b"\n")

    def _reply(self, line: bytes) -> Reply:
        if self.functions is None:
            self.functions = Functions()
            return _described(Path(msgspec.json.decode(line, type=str)), self.functions)
        call = msgspec.json.decode(line, type=Call)
        try:
            return self.functions.call(call)
        except BaseException as error:  # noqa: BLE001 - whatever a suite's function raises is told
            return Raised(type(error).__name__, str(error))


def _described(folder: Path, functions: Functions) -> Reply:
    try:
        return Described(describe(load_folder(folder), functions))
    except SuiteError as error:
        return Failed(error.message, error.log)
    except (msgspec.MsgspecError, TypeError) as error:
        return Failed(f"{folder / 'suite.py'} describes what no suite can be: {error}.", "")


def main() -> int:
    with contextlib.suppress(ValueError):  # where PYTHONSAFEPATH keeps -m from putting it there
        sys.path.remove(str(Path.cwd()))
    serve(Server().answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
