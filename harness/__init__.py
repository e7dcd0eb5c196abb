"""Which commit slowed which GPU kernel, on which card, by how much and how surely.

What a suite.py imports comes from here: `Axis`, `Case`, `DeviceFacts`, `Generated`, `HostFunction`,
`HostLibrary`, `InOut`, `Input`, `Kernel`, `Ladder`, `Output`, `Problem`, `Rung`, `Scalar`, `Step`, `Suite`,
`Tuning`, `ceil_div`.
"""

from harness.spec.device_facts import DeviceFacts
from harness.spec.suite import (
    Axis,
    Case,
    Generated,
    HostFunction,
    HostLibrary,
    InOut,
    Input,
    Kernel,
    Ladder,
    Output,
    Problem,
    Rung,
    Scalar,
    Step,
    Suite,
    Tuning,
    ceil_div,
)

__all__ = [
    "Axis",
    "Case",
    "DeviceFacts",
    "Generated",
    "HostFunction",
    "HostLibrary",
    "InOut",
    "Input",
    "Kernel",
    "Ladder",
    "Output",
    "Problem",
    "Rung",
    "Scalar",
    "Step",
    "Suite",
    "Tuning",
    "__version__",
    "ceil_div",
]

__version__ = "0.1.0.dev0"
