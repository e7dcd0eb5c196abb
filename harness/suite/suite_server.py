"""The child process that runs a suite.py: ``python -m harness.suite.suite_server``.

So a suite cannot end, hang or change the judging process. The first request loads a suite, and is answered by
the suite as data. Each further request calls one of its functions at a case.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from harness.errors import SuiteError
from harness.suite.import_path import importing_from
from harness.suite.loader import load_folder
from harness.suite.suite_data import (
    FunctionCall,
    Functions,
    Load,
    ReturnValue,
    SuiteCall,
    SuiteData,
    describe,
)
from harness.system.file_access import check_committed, variables_set_by, watch
from harness.system.process import Channel, Failed, serve


def main() -> int:
    functions, root = Functions(), Path()

    def answer(request: Load | SuiteCall, _channel: Channel) -> SuiteData | ReturnValue | Failed | None:
        nonlocal root
        if isinstance(request, Load):
            root = Path(request.folder)
            watch(Path(request.work_tree) if request.work_tree else None)
            return _described(root, functions)
        try:
            return _answer(request, functions, root)
        except BaseException as error:  # noqa: BLE001 - whatever a suite's function raises is told
            return Failed(reason=type(error).__name__, message=str(error))

    serve(Load | SuiteCall, answer)
    return 0


def _answer(call: SuiteCall, functions: Functions, root: Path) -> ReturnValue | None:
    if isinstance(call, FunctionCall) and call.arch is None:
        return functions.answer(call)
    generates = isinstance(call, FunctionCall)
    with importing_from(root) if generates else contextlib.nullcontext():
        answer = functions.answer(call)
    check_committed([root])
    return answer


def _described(folder: Path, functions: Functions) -> SuiteData:
    try:
        described = describe(load_folder(folder), functions)
        check_committed([folder])
        variables = {name: os.environ.get(name) for name in sorted(variables_set_by(folder))}
        return msgspec.structs.replace(described, variables=variables)
    except (msgspec.MsgspecError, TypeError) as error:
        file = folder / "suite.py"
        raise SuiteError(f"{file} describes no valid suite: {error}.") from None


if __name__ == "__main__":
    sys.exit(main())
