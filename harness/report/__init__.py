"""Results as people see them: words/ of verdicts, the terminal/, a pull_request/, the published site/.
Nothing here concludes anything from figures.
"""

import sys
from types import ModuleType
from typing import Any

from harness.records.line_writer import report


class _CallablePackage(ModuleType):
    """A package that `harness.report(...)` may call.

    Importing harness.report puts this package in the place of the function of that name in harness.
    """

    def __call__(self, *given: Any, **named: Any) -> None:
        report(*given, **named)


sys.modules[__name__].__class__ = _CallablePackage
