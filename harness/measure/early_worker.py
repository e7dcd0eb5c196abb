"""A worker that opens a card while it imports: ``python -m harness.measure.early_worker``.

Only a process that times nothing begins like this. The driver opens a card in its own code, so a thread asks
for it while the imports run. Importing this module takes next to no time.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
import threading
from typing import Any

DEVICE = "HARNESS_EARLY_DEVICE"
"""Variable with the spec of the device to open; empty for the default."""


def main() -> int:
    index = _card(os.environ.pop(DEVICE, ""))
    if index is not None:
        threading.Thread(target=retain_context, args=(index,), name="early context", daemon=True).start()
    worker: Any = importlib.import_module("harness.measure.worker")
    return int(worker.main())


def _card(spec: str) -> int | None:
    """Return the index of the card that a spec names, 0 without a spec; None for another device."""
    found = re.fullmatch(r"cuda(?::(\d{1,3}))?|", spec)
    return int(found[1] or 0) if found else None


def retain_context(index: int, library: str = "libcuda.so.1") -> bool:
    """Retain the primary context of a card until the process ends, and return whether that succeeded.

    PyCUDA uses the same context. It reports the error of a card that cannot be opened.
    """
    device, context = ctypes.c_int(), ctypes.c_void_p()
    try:
        driver = ctypes.CDLL(library)
        return not (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(device), index)
            or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        )
    except (OSError, AttributeError):
        return False


if __name__ == "__main__":
    sys.exit(main())
