"""A kernel or a host function built for a card, and the passing of a kernel's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.device.backends.base import Argument, Built
from harness.device.backends.cuda.graphs import Graph
from harness.device.backends.cuda.libcuda import DriverFunction
from harness.device.frameworks import FrameworkFunction
from harness.errors import LaunchError
from harness.records.types import Launch


@dataclass(kw_only=True)
class CudaBuilt(Built):
    function: Any = None
    call: Callable[[Sequence[Argument]], None] | None = None
    """Enqueues the work of a host function. Then there is no `function`."""
    parameters: tuple[tuple[int, int], ...] | None = None
    """Offset and size in bytes of each parameter in the compiler's layout; None if unknown."""
    name: str = ""
    python: FrameworkFunction | None = None
    """The framework's function behind `call`, if any."""
    filled: set[int] = field(default_factory=set)
    """Addresses of the results that were last filled."""
    image: tuple[bytes, str] | None = None
    """The binary that the driver loads, and the name of the function in it."""
    with_attributes: DriverFunction | None = None
    """The kernel as it is launched with attributes, once it was."""
    graphs: dict[tuple[Launch, int, int], Graph] = field(default_factory=dict)
    """Captured graphs by launch, id of the list of arguments, and number of launches in the graph."""
    replayed: Graph | None = None
    """The graph that ran last; None after an eager launch."""
    origin: int | None = None
    """Address at which a kernel launched in parts finds its part's first block."""


def formats(
    name: str, arguments: Sequence[Argument], laid_out: Sequence[tuple[int, int]] | None
) -> list[str]:
    """Return each argument's code for the module struct. Raises LaunchError if sizes do not match."""
    sizes = [len(argument) if isinstance(argument, bytes) else argument.nbytes for argument in arguments]
    wanted = [size for _, size in laid_out or ()]
    if laid_out is not None and sizes != wanted:
        raise LaunchError(
            f"{name} has parameters of {', '.join(map(str, wanted)) or 'no'} bytes and is given arguments of "
            f"{', '.join(map(str, sizes)) or 'no'} bytes: check its args, and the dtypes of its scalars."
        )
    written, end = [], 0
    for number, (argument, size) in enumerate(zip(arguments, sizes, strict=True)):
        begin = laid_out[number][0] if laid_out is not None else end + -end % _alignment(argument, size)
        code = f"{size}s" if isinstance(argument, bytes) else np.dtype(type(argument)).char
        written.append(f"{begin - end}x{code}" if begin > end else code)
        end = begin + size
    return written


def _alignment(argument: Argument, size: int) -> int:
    """Return an alignment: 64 bytes for a tensor map; for another structure by its size, up to 16."""
    most = size if not isinstance(argument, bytes) else 64 if size == 128 else 16
    return min(size & -size, most)
