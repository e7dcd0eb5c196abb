"""Where each kernel of a suite begins, for a reviewer's eyes."""

from __future__ import annotations

__all__ = ["kernel_places"]

import contextlib
import posixpath
import re

from harness.errors import HarnessError
from harness.output.review.model import Place
from harness.spec.loader import LoadedSuite
from harness.spec.suite import Kernel

_SAFE = re.compile(r"[A-Za-z0-9_.+@/-]{1,300}")
_QUALIFIER = r"\b(?:KERNEL|__global__|__kernel|kernel)\b"


def kernel_places(loaded: LoadedSuite) -> dict[str, Place]:
    """By kernel: its file, from the repository's top, and the line on which its function begins.

    A kernel whose file is outside the repository, or cannot be read, is left out.
    """
    found: dict[str, Place] = {}
    if loaded.absent or loaded.repository is None:
        return found
    with contextlib.suppress(HarnessError):
        folder = loaded.source.path
        for kernel in loaded.suite.kernels:
            if not kernel.files:
                continue
            path = posixpath.normpath(posixpath.join(folder, kernel.files[0]))
            line = _line(loaded, kernel)
            if line and _SAFE.fullmatch(path) and not path.startswith(("../", "/")):
                found[kernel.name] = Place(path=path, line=line)
    return found


def _line(loaded: LoadedSuite, kernel: Kernel) -> int | None:
    try:
        text = (loaded.suite.root / kernel.files[0]).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The qualifier and the name may be lines apart, with launch bounds between them.
    declared = re.search(rf"{_QUALIFIER}[^;{{}}]*?\b{re.escape(kernel.function)}\s*\(", text)
    return text.count("\n", 0, declared.start()) + 1 if declared else 1
