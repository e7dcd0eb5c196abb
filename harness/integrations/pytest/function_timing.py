"""Times a Python function: by events of its framework on a card, else by the host's clock.

It only uses frameworks that the test has imported.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from harness.errors import UsageError
from harness.records.types import L2Policy

Wait = Callable[[object], None]
"""Waits until a card has finished. Its argument is the function's result."""
_FLUSHED_BYTES = 256 * 2**20
"""Size of the array written to clear the L2, as in `triton.testing.do_bench`."""
_SHORTEST_ROUND_S = 1e-4
"""Shortest round for the host's clock. A shorter one would measure the clock and the call."""
_MOST_LAUNCHES = 2**20
_WARMUP_SHARE = 0.1
"""Share of the time limit for the warm-up."""
_ARRAY = ("is_cuda", "__cuda_array_interface__", "__array_interface__", "block_until_ready")
"""Attributes that identify types of arrays."""


class Clock(Protocol):
    """Times calls of a function."""

    @property
    def name(self) -> str: ...
    @property
    def l2(self) -> L2Policy: ...
    @property
    def device(self) -> str: ...
    @property
    def words(self) -> str: ...
    def time_s(self, call: Callable[[], object], launches: int) -> tuple[float, object]:
        """Return the mean time of one of `launches` calls, and the result of the last."""
        ...


@dataclass(frozen=True, slots=True)
class EventClock:
    """Times each call by two events of the device, after clearing the L2."""

    name: str
    device: str
    event: Callable[[], Any]
    elapsed_ms: Callable[[Any, Any], float]
    flush: Callable[[], object]
    l2: L2Policy = "cold"

    @property
    def words(self) -> str:
        return f"{self.name} on {self.device}, L2 cleared before each call"

    def time_s(self, call: Callable[[], object], launches: int) -> tuple[float, object]:
        __tracebackhide__ = True
        spent_ms, result = 0.0, None
        for _ in range(launches):
            self.flush()
            begin, end = self.event(), self.event()
            begin.record()
            result = call()
            end.record()
            end.synchronize()
            spent_ms += self.elapsed_ms(begin, end)
        return spent_ms / 1e3 / launches, result


@dataclass(frozen=True, slots=True)
class HostClock:
    """Times calls by the host's clock, and synchronizes at both ends if a card may be working."""

    wait: Wait | None = None
    device: str = ""
    l2: L2Policy = "hot"

    @property
    def name(self) -> str:
        return "perf_counter, with a wait for the device" if self.wait else "perf_counter"

    @property
    def words(self) -> str:
        return f"the host's clock, {self.name}"

    def time_s(self, call: Callable[[], object], launches: int) -> tuple[float, object]:
        __tracebackhide__ = True
        result: object = None
        if self.wait:
            self.wait(result)
        begin_s = time.perf_counter()
        for _ in range(launches):
            result = call()
        if self.wait:
            self.wait(result)
        return (time.perf_counter() - begin_s) / launches, result


def clock_of(values: object) -> Clock:
    """Return the clock for a function with these arguments and this result.

    Arrays on a card decide. A function without visible arrays is timed on the card that PyTorch has opened.
    """
    arrays = [*_arrays(values)]
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch and any(getattr(each, "is_cuda", False) for each in arrays):
        return _torch_clock(torch)
    if cupy and any(isinstance(each, cupy.ndarray) for each in arrays):
        return _cupy_clock(cupy)
    if torch and not arrays and torch.cuda.is_initialized():
        return _torch_clock(torch)
    waits = [*_waits(arrays)]

    def wait(result: object) -> None:
        for each in waits:
            each(result)

    return HostClock(wait if waits else None)


def _arrays(value: object, deep: int = 3) -> Iterator[Any]:
    """Yield the arrays in a value and in its lists, tuples and dictionaries."""
    if any(hasattr(type(value), name) for name in _ARRAY):
        yield value
    elif deep and isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _arrays(each, deep - 1)


def _torch_clock(torch: Any) -> EventClock:
    buffer = torch.empty(_FLUSHED_BYTES // 4, dtype=torch.int32, device="cuda")
    return EventClock(
        name="torch.cuda.Event",
        device=torch.cuda.get_device_name(),
        event=partial(torch.cuda.Event, enable_timing=True),
        elapsed_ms=lambda begin, end: float(begin.elapsed_time(end)),
        flush=buffer.zero_,
    )


def _cupy_clock(cupy: Any) -> EventClock:
    buffer = cupy.empty(_FLUSHED_BYTES // 4, dtype=cupy.int32)
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return EventClock(
        name="cupy.cuda.Event",
        device=properties["name"].decode(),
        event=cupy.cuda.Event,
        elapsed_ms=lambda begin, end: float(cupy.cuda.get_elapsed_time(begin, end)),
        flush=partial(buffer.fill, 0),
    )


def _waits(arrays: list[Any]) -> Iterator[Wait]:
    """Yield the wait functions of every framework that may have started work on a card."""
    torch = sys.modules.get("torch")
    kinds = {each.device.type for each in arrays if hasattr(type(each), "is_cuda")} - {"cpu"}
    if torch and torch.cuda.is_initialized():
        kinds.add("cuda")
    for kind in sorted(kinds):
        synchronize = getattr(getattr(torch, kind, None), "synchronize", None)
        if synchronize:
            yield _without_result(synchronize)
    if any(hasattr(type(each), "block_until_ready") for each in arrays):
        yield _block_until_ready
    numba = sys.modules.get("numba.cuda")
    if numba and any(numba.is_cuda_array(each) for each in arrays):
        yield _without_result(numba.synchronize)


def _without_result(synchronize: Callable[[], object]) -> Wait:
    def wait(_: object) -> None:
        synchronize()

    return wait


def _block_until_ready(result: object) -> None:
    for each in _arrays(result):
        if hasattr(type(each), "block_until_ready"):
            each.block_until_ready()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFunction:
    times_s: tuple[float, ...]
    """Time of one call for each round, in the order measured."""
    launches: int
    """Number of calls that each time is the mean of."""
    clock: Clock
    result: object
    """Result of the last call."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkCall:
    """A function with the setup and teardown of each round.

    The recorder of comparisons looks for arrays in its fields.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any]
    setup: Callable[[], Any] | None = None
    """Called before each round, untimed. It may return the arguments as a pair of args and kwargs."""
    teardown: Callable[..., Any] | None = None
    """Called with the arguments after each round, untimed."""
    test: str = ""
    """The test's id, which names the case together with its parameters."""
    params: Mapping[str, Any] = field(default_factory=dict)

    def prepared(self) -> BenchmarkCall:
        """Return this call with the arguments of one round. Raises UsageError."""
        given = self.setup() if self.setup else None
        if not given:
            return self
        if self.args or self.kwargs:
            raise UsageError(
                "gpu_benchmark was given arguments, and setup returned arguments as well: drop the ones or "
                "the others."
            )
        try:
            args, kwargs = given
            return replace(self, args=tuple(args), kwargs=dict(kwargs))
        except (TypeError, ValueError):
            raise UsageError(
                f"setup returned {given!r:.80}; expected (args, kwargs) or nothing, such as ((x, y), {{}})."
            ) from None

    def end(self) -> None:
        if self.teardown:
            self.teardown(*self.args, **self.kwargs)

    def __call__(self) -> object:
        """Call the function for its result, without timing."""
        return self._once()[0]

    def _once(self) -> tuple[object, object]:
        """Return the result, and all values that the call accessed."""
        __tracebackhide__ = True
        ready = self.prepared()
        result = ready.function(*ready.args, **ready.kwargs)
        ready.end()
        return result, (ready.args, ready.kwargs, result)

    @functools.cached_property
    def clock(self) -> Clock:
        """Return the clock for the function, which is called once to find out."""
        __tracebackhide__ = True
        return clock_of(self._once()[1])

    @functools.cached_property
    def launches(self) -> int:
        """Return the calls of a round: more than one for a short host-timed function without setup."""
        __tracebackhide__ = True
        if isinstance(self.clock, EventClock) or self.setup or self.teardown:
            return 1
        launches = 1
        while launches < _MOST_LAUNCHES:
            time_s, _ = self.clock.time_s(partial(self.function, *self.args, **self.kwargs), launches)
            if time_s * launches >= _SHORTEST_ROUND_S:
                break
            launches *= 2
        return launches

    def rounds(
        self, launches: int, max_time_s: float, fewest: int, most: float
    ) -> tuple[list[float], object]:
        """Return the times of rounds within the time limit, and the result of the last."""
        __tracebackhide__ = True
        times_s: list[float] = []
        result: object = None
        until_s = time.perf_counter() + max_time_s
        while len(times_s) < most and (len(times_s) < fewest or time.perf_counter() < until_s):
            ready = self.prepared()
            time_s, result = self.clock.time_s(partial(ready.function, *ready.args, **ready.kwargs), launches)
            ready.end()
            times_s.append(time_s)
        return times_s, result


def time_function(
    call: BenchmarkCall,
    *,
    max_time_s: float,
    min_rounds: int = 1,
    rounds: int | None = None,
    warmup_rounds: int | None = None,
    launches: int | None = None,
) -> TimedFunction:
    """Time a function: a warm-up, then rounds until the time limit, or exactly `rounds`.

    In a process of a comparison, the recorder of `harness.run.scripts` replaces this function.
    """
    __tracebackhide__ = True
    each = launches or call.launches
    if warmup_rounds is None:
        call.rounds(each, _WARMUP_SHARE * max_time_s, 1, math.inf)
    else:
        call.rounds(each, 0.0, warmup_rounds, warmup_rounds)
    fewest, most = (min_rounds, math.inf) if rounds is None else (rounds, rounds)
    times_s, result = call.rounds(each, max_time_s, fewest, most)
    return TimedFunction(times_s=tuple(times_s), launches=each, clock=call.clock, result=result)
