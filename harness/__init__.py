"""Which commit slowed which GPU kernel, on which card, by how much and how surely.

What a suite.py imports comes from here: `Axis`, `Case`, `CupyFunction`, `DeviceFacts`, `Generated`,
`HostFunction`, `HostLibrary`, `InOut`, `Input`, `Kernel`, `Ladder`, `NumbaFunction`, `Output`, `Problem`,
`ReferenceFunction`, `Rung`, `Scalar`, `Step`, `Suite`, `TorchFunction`, `TritonFunction`, `Tuning`,
`ceil_div`. What a benchmark program writes its results with: `report`.
"""

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
