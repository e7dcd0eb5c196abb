"""Device times replayed through pytest-benchmark: a clock that stands still, and a target that sets it.

pytest-benchmark times a round as the difference of two readings of its timer. Its marker takes any function
for one, and `pedantic`, unlike a plain call, never tries how fine it ticks: so each round comes out as the
device's own time, to the last bit.
"""

from __future__ import annotations

__all__ = ["device_clock", "refuse", "replay", "spoil"]

import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest


class _Clock:
    now_s = 0.0


class _RefusedError(Exception):
    pass


def device_clock() -> float:
    """Seconds that the device has spent on the round that is replayed."""
    return _Clock.now_s


def replay(benchmark: Any, times_s: Sequence[float]) -> None:
    """Let pytest-benchmark measure these times, a round each; where it is disabled, none."""
    left = iter(times_s)

    def begin() -> None:
        _Clock.now_s = 0.0

    def launch() -> None:
        # Called more often than there are rounds where somebody profiles it.
        _Clock.now_s = next(left, 0.0)

    benchmark.pedantic(launch, setup=begin, rounds=len(times_s), iterations=1, warmup_rounds=0)


def spoil(benchmark: Any) -> None:
    """Let pytest-benchmark run what raises: then it neither keeps a benchmark nor warns that none was run."""

    def launch() -> None:
        raise _RefusedError

    with contextlib.suppress(_RefusedError):
        benchmark.pedantic(launch)


def refuse(benchmark: Any, message: str) -> NoReturn:
    """Fail the test with a sentence and no traceback, and without a benchmark."""
    spoil(benchmark)
    pytest.fail(message, pytrace=False)
