"""The child process that runs a suite.py, so that nothing which it does can end, hang or change the process
that judges: ``python -m harness.spec.suite_server``.

The first request loads a suite, and is answered by the suite as data. Each further one calls one of its
functions at a case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.errors import SuiteError
from harness.spec.loader import load_folder
from harness.spec.suite_data import FunctionCall, Functions, Load, ReturnValue, SuiteData, describe
from harness.system.process import Failed, Progress, serve


def main() -> int:
    functions = Functions()

    def answer(
        request: Load | FunctionCall, _report: Callable[[Progress], object]
    ) -> SuiteData | ReturnValue | Failed:
        if isinstance(request, Load):
            return _described(Path(request.folder), functions)
        try:
            return functions.call(request)
        except BaseException as error:  # noqa: BLE001 - whatever a suite's function raises is told
            return Failed(reason=type(error).__name__, message=str(error))

    serve(Load | FunctionCall, answer)
    return 0


def _described(folder: Path, functions: Functions) -> SuiteData:
    try:
        return describe(load_folder(folder), functions)
    except (msgspec.MsgspecError, TypeError) as error:
        file = folder / "suite.py"
        raise SuiteError(f"{file} describes what no suite can be: {error}.") from None


if __name__ == "__main__":
    sys.exit(main())
