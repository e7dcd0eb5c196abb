"""What a GPU is held against: the plain loop on one core of the host, and the host's BLAS on all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from harness import Case


@cache
def _compiled() -> Callable[..., None]:
    import numba

    @numba.njit  # type: ignore[untyped-decorator]
    def triple_loop(a: Any, b: Any, c: Any) -> None:
        m, k = a.shape
        n = b.shape[1]
        for i in range(m):
            for j in range(n):
                total = np.float32(0.0)
                for p in range(k):
                    total += a[i, p] * b[p, j]
                c[i, j] = total

    return triple_loop  # type: ignore[no-any-return]


def triple_loop(case: Case, stream: int) -> Callable[..., None]:
    """The textbook's three loops over i, j and k, compiled by Numba for one core, without fast-math."""
    loop = _compiled()

    def call(a: Any, b: Any, c: Any, m: int, n: int, k: int) -> None:
        loop(a, b, c)

    return call


def blas(case: Case, stream: int) -> Callable[..., None]:
    """NumPy's product: the BLAS that it was built with, on all cores."""

    def call(a: Any, b: Any, c: Any, m: int, n: int, k: int) -> None:
        np.matmul(a, b, out=c)

    return call
