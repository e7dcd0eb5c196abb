"""Which commit slowed which GPU kernel, on which card, by how much and how surely.

What a suite.py imports comes from here: `Axis`, `Case`, `CupyFunction`, `DeviceFacts`, `Generated`,
`HostFunction`, `HostLibrary`, `InOut`, `Input`, `Kernel`, `Ladder`, `NumbaFunction`, `Output`, `Problem`,
`ReferenceFunction`, `Rung`, `Scalar`, `Step`, `Suite`, `TorchFunction`, `TritonFunction`, `Tuning`,
`ceil_div`. What a benchmark program writes its results with: `report`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.records.line_writer import report
    from harness.suite.device_facts import DeviceFacts
    from harness.suite.kernel import (
        CupyFunction,
        Generated,
        HostFunction,
        HostLibrary,
        Kernel,
        NumbaFunction,
        Step,
        TorchFunction,
        TritonFunction,
    )
    from harness.suite.problem import Axis, Case, InOut, Input, Output, Problem, Scalar, ceil_div
    from harness.suite.reference_function import ReferenceFunction
    from harness.suite.suite import Ladder, Rung, Suite
    from harness.suite.tuning import Tuning

__all__ = [
    "Axis",
    "Case",
    "CupyFunction",
    "DeviceFacts",
    "Generated",
    "HostFunction",
    "HostLibrary",
    "InOut",
    "Input",
    "Kernel",
    "Ladder",
    "NumbaFunction",
    "Output",
    "Problem",
    "ReferenceFunction",
    "Rung",
    "Scalar",
    "Step",
    "Suite",
    "TorchFunction",
    "TritonFunction",
    "Tuning",
    "__version__",
    "ceil_div",
    "report",
]

__version__ = "0.1.0.dev0"

_HOMES = {
    "report": "harness.records.line_writer",
    "DeviceFacts": "harness.suite.device_facts",
    "CupyFunction": "harness.suite.kernel",
    "Generated": "harness.suite.kernel",
    "HostFunction": "harness.suite.kernel",
    "HostLibrary": "harness.suite.kernel",
    "Kernel": "harness.suite.kernel",
    "NumbaFunction": "harness.suite.kernel",
    "Step": "harness.suite.kernel",
    "TorchFunction": "harness.suite.kernel",
    "TritonFunction": "harness.suite.kernel",
    "Axis": "harness.suite.problem",
    "Case": "harness.suite.problem",
    "InOut": "harness.suite.problem",
    "Input": "harness.suite.problem",
    "Output": "harness.suite.problem",
    "Problem": "harness.suite.problem",
    "Scalar": "harness.suite.problem",
    "ceil_div": "harness.suite.problem",
    "ReferenceFunction": "harness.suite.reference_function",
    "Ladder": "harness.suite.suite",
    "Rung": "harness.suite.suite",
    "Suite": "harness.suite.suite",
    "Tuning": "harness.suite.tuning",
}
"""Module of each public name. It is imported when the name is used: most processes need few of them."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
