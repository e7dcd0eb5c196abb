"""Interrupts of threads. Ctrl-C raises KeyboardInterrupt in the main thread, which forwards it to others."""

from __future__ import annotations

import threading
from contextvars import ContextVar

_asked: ContextVar[threading.Event | None] = ContextVar("asked", default=None)


def heed(asked: threading.Event) -> None:
    """Make this thread interruptible: `check` raises once `asked` is set."""
    _asked.set(asked)


def check() -> None:
    """Raise KeyboardInterrupt once if this thread is asked to end, as for Ctrl-C.

    Functions that wait for long call it repeatedly.
    """
    asked = _asked.get()
    if asked is not None and asked.is_set():
        asked.clear()
        raise KeyboardInterrupt
