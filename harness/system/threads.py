"""Runs NumPy and hashlib work in threads: both release the interpreter lock in long operations."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def side_by_side(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return the results of a function for each item, in order. A single item needs no thread."""
    return list((_pool(os.getpid()).map if len(items) > 1 else map)(function, items))


@functools.cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return a process's own threads. A forked process has none of its parent's threads."""
    return ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="side-by-side")
