"""Which commit slowed which GPU kernel, on which card, by how much and how surely.

What a suite.py imports comes from here: `Axis`, `Case`, `Input`, `Kernel`, `Output`, `Problem`, `Suite`,
`ceil_div`.
"""

from harness.suite import Axis, Case, Input, Kernel, Output, Problem, Suite, ceil_div

__all__ = ["Axis", "Case", "Input", "Kernel", "Output", "Problem", "Suite", "__version__", "ceil_div"]

__version__ = "0.1.0.dev0"
