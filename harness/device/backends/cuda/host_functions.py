"""Host functions that enqueue work on a card: of a shared library, or in Python.

Functions of frameworks are in `harness.device.frameworks`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.device.backends.arguments import as_python
from harness.device.backends.base import Argument, host_function
from harness.errors import BuildError, HarnessError, LaunchError
from harness.suite.layout import Parameter
from harness.suite.sources import Program
from harness.system.files import scratch_folder


def library_function(program: Program, binary: bytes, stream: int) -> Callable[[Sequence[Argument]], None]:
    """Return a function that enqueues the work of a library's function on a stream, given by its handle."""
    with scratch_folder() as folder:
        file = folder / "library.so"
        file.write_bytes(binary)
        try:
            function = ctypes.CDLL(str(file))[program.function]
        except (OSError, AttributeError) as error:
            raise BuildError(
                f"{program.name}: its library has no function {program.function!r} ({error}). "
                f'Declare it extern "C" int {program.function}(void *stream, ...).'
            ) from None
    function.argtypes = [ctypes.c_void_p] + [
        ctypes.c_void_p if parameter.layout else _c_type(program, parameter)
        for parameter in program.parameters
    ]
    function.restype = ctypes.c_int

    def enqueue(arguments: Sequence[Argument]) -> None:
        if code := function(stream, *map(as_python, arguments)):
            meaning = program.errors.get(code, "its documentation says what that is")
            raise LaunchError(f"{program.name} returned {code}: {meaning}.")

    return enqueue


def _c_type(program: Program, parameter: Parameter) -> Any:
    """Return the ctypes type for a scalar or an axis."""
    try:
        return np.ctypeslib.as_ctypes_type(np.dtype(parameter.dtype))
    except (NotImplementedError, TypeError):
        raise BuildError(
            f"{program.name} is a HostLibrary, whose function cannot be given {parameter.name!r} as "
            f"{parameter.dtype} by value: pass a float, and round it there."
        ) from None


def python_function(program: Program, stream: int) -> Callable[[Sequence[Argument]], None]:
    """Return a call of the function that `program.host` makes for a stream; it raises LaunchError."""
    call = host_function(program, stream)

    def enqueue(arguments: Sequence[Argument]) -> None:
        try:
            call(*map(as_python, arguments))
        except HarnessError:
            raise
        except Exception as error:
            raise LaunchError(f"{program.name} raised {type(error).__name__}: {error}") from error

    return enqueue
