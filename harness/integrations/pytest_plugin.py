"""The pytest plugin: the fixture gpu_benchmark on top of pytest-benchmark's."""

from __future__ import annotations

__all__: list[str] = []
