"""Runs NumPy and hashlib work in threads: both release the interpreter lock in long operations."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

S = TypeVar("S")
T = TypeVar("T")


def side_by_side(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return the results of a function for each item, in order. A single item needs no thread."""
    return list((_pool(os.getpid()).map if len(items) > 1 else map)(function, items))


_MOST_ROOM_BYTES = 2**22
"""Size of the memory that a thread keeps, in bytes."""
_of_thread = threading.local()


def room_of_thread(rows: int, length: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return an uninitialised array of rows, valid until this thread asks again.

    Memory is allocated once a thread: threads that get new pages for each part wait for each other.
    """
    import numpy as np

    size_bytes = rows * length * np.dtype(dtype).itemsize
    if size_bytes > _MOST_ROOM_BYTES:
        return np.empty((rows, length), dtype)
    if not hasattr(_of_thread, "room"):
        _of_thread.room = np.empty(_MOST_ROOM_BYTES, np.uint8)
    found: NDArray[Any] = _of_thread.room[:size_bytes].view(dtype).reshape(rows, length)
    return found


@functools.cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return a process's own threads. A forked process has none of its parent's threads."""
    return ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="side-by-side")
