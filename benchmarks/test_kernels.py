"""Every case of this project's suites, for ``pytest benchmarks/``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_kernel(gpu_benchmark: Callable[..., Any], gpu_case: Any) -> None:
    gpu_benchmark(gpu_case)
