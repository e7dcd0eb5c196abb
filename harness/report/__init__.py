"""Presents results: words/ for verdicts, the terminal/, a pull_request/, the published site/.

It draws no conclusions from measurements.
"""

import sys
from types import ModuleType
from typing import Any

from harness.records.line_writer import report


class _CallablePackage(ModuleType):
    """A package that can be called as `harness.report(...)`.

    Importing harness.report replaces the function of that name in harness by this package.
    """

    def __call__(self, *given: Any, **named: Any) -> None:
        report(*given, **named)


sys.modules[__name__].__class__ = _CallablePackage
