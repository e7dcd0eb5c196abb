"""Commits and cases of histories that tests make by hand."""

from __future__ import annotations

from typing import Any

from harness.history.figures import SeriesCase
from harness.history.sources.our_records import Commits
from harness.system.git import Commit


def line(count: int) -> Commits:
    """So many commits, the first of a hash that begins with 00000001."""
    return Commits(
        tuple(Commit(f"{n + 1:08x}".ljust(40, "0"), n, "Ada", f"Commit {n}") for n in range(count))
    )


def series_case(name: str = "matmul.naive@1024", **changes: Any) -> SeriesCase:
    """A case of a suite by its name, of which a high rate is good."""
    kernel, _, size = name.partition("@")
    suite, _, kernel = kernel.partition(".")
    known = {"suite": suite, "kernel": kernel, "size": size, "metric": "gflops", "unit": "GFLOP/s"}
    return SeriesCase(**{"name": name, **known, "direction": "higher", "order": 0, **changes})
