"""Interrupts of threads. Ctrl-C raises KeyboardInterrupt in the main thread, which passes it on to others."""

from __future__ import annotations

import threading
from contextvars import ContextVar

_asked: ContextVar[threading.Event | None] = ContextVar("asked", default=None)


def heed(asked: threading.Event) -> None:
    """Let this thread be interrupted: `check` raises once `asked` is set."""
    _asked.set(asked)


def check() -> None:
    """Raise KeyboardInterrupt where this thread is asked to end. It is raised once, as for Ctrl-C.

    What waits for long calls this again and again.
    """
    asked = _asked.get()
    if asked is not None and asked.is_set():
        asked.clear()
        raise KeyboardInterrupt
