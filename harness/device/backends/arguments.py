"""Changes arguments of kernels to the form that a driver takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.device.backends.base import Argument


def as_bits(argument: Argument) -> Argument:
    """Return a 16-bit scalar without a C type as an integer with the same bits; others unchanged."""
    if isinstance(argument, np.generic) and argument.dtype.name in ("float16", "bfloat16"):
        return np.asarray(argument).view(np.uint16)[()]
    return argument


def as_python(argument: Argument) -> Any:
    """Return an address or a number as a Python value; an argument of a setup unchanged."""
    return argument.item() if isinstance(argument, np.generic) else argument
