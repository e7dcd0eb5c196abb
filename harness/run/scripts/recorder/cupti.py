"""Counts the work that a function enqueues on a card, as CUPTI's callbacks of the driver's functions tell."""

from __future__ import annotations

import ctypes
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_DRIVER_API = 1
"""CUPTI's number of the domain of the driver's functions."""
_ENTER = 0
_ENQUEUES = (b"cuLaunch", b"cuMemset", b"cuMemcpy", b"cuGraphLaunch")


class _Callback(ctypes.Structure):
    """The beginning of CUpti_CallbackData."""

    _fields_ = (("site", ctypes.c_int), ("function", ctypes.c_char_p))


_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_Callback))


def enqueued_by(run: Callable[[], Any]) -> int:
    """Return the number of launches, copies and fills that a function enqueues.

    0 is returned where CUPTI is not loaded, or another tool uses it. The function is called either way.
    """
    cupti = _cupti()
    found: list[bytes] = []

    def entered(_user: Any, _domain: int, _number: int, callback: Any) -> None:
        told = callback.contents
        if told.site == _ENTER and (told.function or b"").startswith(_ENQUEUES):
            found.append(told.function)

    handle, kept = ctypes.c_void_p(), _FUNCTION(entered)
    if cupti is None or cupti.cuptiSubscribe(ctypes.byref(handle), kept, None):
        run()
        return 0
    try:
        cupti.cuptiEnableDomain(1, handle, _DRIVER_API)
        run()
    finally:
        cupti.cuptiUnsubscribe(handle)
    return len(found)


def _cupti() -> Any:
    """Return the library of CUPTI that this process has loaded, as PyTorch does; None without one."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            found = re.search(r"/\S*libcupti\.so\S*", maps.read())
        return ctypes.CDLL(found[0]) if found else None
    except OSError:
        return None
