"""Timers of GPU libraries that time a given function, and how to get a short sample from each."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import sys
import time

from . import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    DeviceClock = Callable[[Callable[[], Any], int], "TimedLoop"]

_MS, _US, _S = 1e6, 1e3, 1e9
_LONGEST_LOOP = 100_000
_CACHE_BYTES = 2**28
"""Bytes cleared before each launch, as in Triton; more than the L2 cache of any card."""
_HOLDS = (1.5, 3, 6, 12)
"""Lengths of a hold of the card, in multiples of the host's time to enqueue a function.

A longer hold is used if the host was late. If the host was late at every length, the shortest is used: such a
function waits for the card itself.
"""
_LONGEST_HOLD_NS = 20e6
_LONGEST_QUEUE = 400
"""Most calls that are enqueued ahead: a driver's queue has room for some thousand launches."""
_FEWEST_PUNCTUAL = 0.1
"""Share of a sample's launches that must have been enqueued in time for the others to be dropped."""
_CYCLES_PER_NS = 1.5
"""Clock for converting a hold to cycles. On a faster clock the hold is a little shorter."""
_SHORTEST_ROUND_NS = 1e6
"""Shortest round of pytest-benchmark in ns. A shorter one would measure the clock and the loop as well."""
_MOST_ROUNDS = 200
_CALLED_AGAIN = (
    "A comparison calls a function more often than the test does. If it uses something up, give it a setup: "
    "benchmark.pedantic(fn, setup=...)."
)


class Timer:
    """A library's timing function: the meaning of its values, and how to make it brief."""

    def __init__(
        self,
        name: str,
        *,
        unit_ns: float = _MS,
        l2: str = "hot",
        brief: dict[str, Callable[[float], Any]] | None = None,
        every: dict[str, Any] | None = None,
        read: Callable[[Any], Sequence[float]] | None = None,
        labels: tuple[str, ...] = (),
        held: bool = False,
        clock: Callable[[Any], tuple[str, str]] | None = None,
        names: Callable[[Any], tuple[str, dict[str, Any]]] = lambda _fn: ("", {}),
    ) -> None:
        self.name, self.unit_ns, self.l2 = name, unit_ns, l2
        self.clock = clock or (lambda _fn: (name, l2))
        """Returns the clock, and whether the L2 is cold, for a timed function."""
        self.names = names
        """Returns the test and its parameters, if they name the timed function."""
        self.brief = brief or {}
        """Arguments that limit its duration to a number of milliseconds."""
        self.every = every or {}
        """Arguments that make it return each time."""
        self.read = read or _numbers
        self.held = held
        """True if it is replaced by timing behind a hold, once PyTorch has opened a card."""
        self.labels = labels
        """Arguments that label the timed function."""


def _numbers(found: Any) -> list[float]:
    """Return the numbers in a timer's result as a flat list."""
    if isinstance(found, bool) or found is None:
        return []
    if isinstance(found, (int, float)):
        return [float(found)]
    if hasattr(found, "tolist"):
        return _numbers(found.tolist())
    if isinstance(found, (list, tuple)):
        return [number for each in found for number in _numbers(each)]
    return []


_TRITON = {"warmup": lambda ms: max(1, round(ms / 4)), "rep": lambda ms: max(1, round(ms))}
_ALL = {"return_mode": "all", "quantiles": None}
_FLASHINFER = Timer(
    "flashinfer",
    l2="cold",
    brief={
        "dry_run_time_ms": lambda ms: max(1, round(ms / 4)),
        "repeat_time_ms": lambda ms: max(1, round(ms)),
        "dry_run_iters": lambda _ms: None,
        "repeat_iters": lambda _ms: None,
    },
)
_CUPY = Timer(
    "cupyx",
    unit_ns=_S,
    brief={"max_duration": lambda ms: ms / 1e3, "n_warmup": lambda _ms: 3},
    read=lambda found: _numbers(found.gpu_times[0]),
    labels=("name",),
)
_TILELANG = Timer(
    "tilelang",
    l2="cold",
    brief={**_TRITON, "_n_warmup": lambda _ms: 0, "_n_repeat": lambda _ms: 0},
    every={"quantiles": None, "return_mode": "mean"},
)
_CUTE = Timer(
    "cute.testing",
    unit_ns=_US,
    brief={"warmup_iterations": lambda _ms: 3, "iterations": lambda ms: max(5, round(2 * ms))},
)
_GPU_BENCHMARK = Timer(
    "gpu_benchmark",
    unit_ns=_S,
    brief={
        "max_time_s": lambda ms: ms / 1e3,
        "min_rounds": lambda _ms: 1,
        "rounds": lambda _ms: None,
        "warmup_rounds": lambda _ms: 0,
    },
    read=lambda found: _numbers(found.times_s),
    clock=lambda call: (
        call.clock.name if call.clock.l2 == "cold" else "host",
        call.clock.l2,
    ),
    names=lambda call: (call.test, plain_params(call.params)),
)
TIMERS: dict[str, dict[str, Timer]] = {
    "triton.testing": {
        "do_bench": Timer("do_bench", l2="cold", brief=_TRITON, every=_ALL, held=True),
        "do_bench_cudagraph": Timer("do_bench_cudagraph", brief={"rep": _TRITON["rep"]}, every=_ALL),
    },
    "tilelang.profiler.bench": {"do_bench": _TILELANG},
    "flashinfer.testing.utils": dict.fromkeys(
        (
            "bench_gpu_time",
            "bench_gpu_time_with_cuda_event",
            "bench_gpu_time_with_cudagraph",
            "bench_gpu_time_with_cupti",
        ),
        _FLASHINFER,
    ),
    "cutlass.cute.testing": {"benchmark": _CUTE},
    "cupyx.profiler._time": {"benchmark": _CUPY},
    "harness.integrations.pytest.function_timing": {"time_function": _GPU_BENCHMARK},
}
"""Timers by the module that defines them, and by name."""
PYTEST_FIXTURE = "pytest_benchmark.fixture"
_REPLAYING = "harness.integrations.pytest.fixture"
"""Module of the clock through which gpu_benchmark reports its own times to pytest-benchmark."""
TORCH_TIMER = "torch.utils.benchmark.utils.timer"
TORCH_METHODS = ("timeit", "blocked_autorange", "adaptive_autorange")


class TimedCall:
    """A call of a timer, with the function to time."""

    timer = ""
    clock = "host"
    l2 = "hot"
    fn: Any = None
    roots: tuple[Any, ...] = ()
    """Further objects that the function uses."""
    test = ""
    """Id of the test that makes the call; empty outside of tests."""
    params: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def __init__(self) -> None:
        self.labels: dict[str, Any] = {}

    def run(self) -> Any:
        """Call the function once."""
        return self.fn()

    def sample(self, budget_ms: float) -> tuple[list[float], int]:
        """Return times of one launch in nanoseconds, and the number of launches that each is the mean of."""
        raise NotImplementedError

    def result(self) -> Any:
        """Return the timer's result for the author, from a brief measurement."""
        raise NotImplementedError


class LibraryCall(TimedCall):
    """A call of one of TIMERS."""

    def __init__(self, timer: Timer, original: Callable[..., Any], args: Any, kwargs: Any) -> None:
        super().__init__()
        self._timer, self._original = timer, original
        self._parameters = inspect.signature(original).parameters
        bound = inspect.signature(original).bind(*args, **kwargs)
        self._given = dict(bound.arguments)
        first = next(iter(self._given))
        self.fn = self._given[first]
        self.timer, (self.clock, self.l2) = timer.name, timer.clock(self.fn)
        self.roots = tuple(value for name, value in self._given.items() if name != first)
        self.labels = {name: self._given[name] for name in timer.labels if name in self._given}
        self._cold: ColdLaunches | None = None
        self.test, self.params = timer.names(self.fn)

    def run(self) -> Any:
        args = self._given.get("args", self._given.get("input_args", ()))
        kwargs = self._given.get("kwargs", self._given.get("input_kwargs"))
        arguments = args if isinstance(args, (tuple, list)) else ()
        return self.fn(*arguments, **(kwargs if isinstance(kwargs, dict) else {}))

    def _call(self, more: dict[str, Any]) -> Any:
        given = {**self._given, **{name: each for name, each in more.items() if name in self._parameters}}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in given.items():
            kind = self._parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args += value
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif kind is inspect.Parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[name] = value
        return self._original(*args, **kwargs)

    def _brief(self, budget_ms: float) -> dict[str, Any]:
        return {name: of(budget_ms) for name, of in self._timer.brief.items()}

    def sample(self, budget_ms: float) -> tuple[list[float], int]:
        if self._timer.held and torch_on_card() is not None:
            if self._cold is None:
                self._cold = ColdLaunches(self.run, self._given.get("grad_to_none") or ())
            return self._cold.times_ns(budget_ms), 1
        brief = self._brief(budget_ms)
        try:
            found = self._call({**brief, **self._timer.every})
        except (AssertionError, ValueError, TypeError):
            if not self._timer.every:
                raise
            found = self._call({**brief, "quantiles": None})  # older versions have no "all"
        return [time * self._timer.unit_ns for time in self._timer.read(found)], 1

    def result(self) -> Any:
        return self._call(self._brief(2))


class TorchCall(TimedCall):
    """A call of a method of torch.utils.benchmark.Timer."""

    timer = "torch.utils.benchmark"
    clock = "host"

    def __init__(self, method: str, original: Callable[..., Any], args: Any, kwargs: Any) -> None:
        super().__init__()
        timer, *self._args = args
        self._object, self._method, self._original, self._kwargs = timer, method, original, kwargs
        self._timeit = getattr(type(timer), "_harness_timeit", None) or type(timer).timeit
        spec = timer._task_spec
        self._globals = dict(timer._globals)
        self.fn = spec.stmt
        self.roots = tuple(value for name, value in self._globals.items() if name in str(spec.stmt))
        self.labels = {
            name: getattr(spec, name, None) for name in ("label", "sub_label", "description", "env")
        }
        self._number = 0

    def run(self) -> Any:
        """Run the statement. Return its value if it is an expression."""
        names = dict(self._globals)
        spec = self._object._task_spec
        if spec.setup and spec.setup != "pass":
            exec(spec.setup, names)  # noqa: S102 - as the timer does
        try:
            code = compile(spec.stmt, "<stmt>", "eval")
        except SyntaxError:
            exec(spec.stmt, names)  # noqa: S102
            return None
        return eval(code, names)  # noqa: S307

    def sample(self, budget_ms: float) -> tuple[list[float], int]:
        if not self._number:
            once = self._timeit(self._object, 3).mean
            self._number = max(1, min(_LONGEST_LOOP, int(budget_ms / 1e3 / max(once, 1e-9))))
        return [self._timeit(self._object, self._number).mean * _S], self._number

    def result(self) -> Any:
        if self._method == "timeit":
            return self._timeit(self._object, 3)
        return self._original(self._object, *self._args, **{**self._kwargs, "min_run_time": 0.005})


class OwnCall(TimedCall):
    """A call of a timer that the author wrote. The recorder times the function by events, or by the host's
    clock.

    The author's timer is called first, because only it knows the function's arguments and its own result.
    """

    def __init__(self, name: str, original: Callable[..., Any], args: Any, kwargs: Any) -> None:
        super().__init__()
        self.timer = name
        self._given: tuple[Any, Any] = ((), {})
        values = [*args, *kwargs.values()]
        self.fn = next(each for each in values if callable(each) and not isinstance(each, type))
        self.roots = tuple(each for each in values if each is not self.fn)

        def timed(*inner: Any, **named: Any) -> Any:
            self._given = inner, named
            return self.fn(*inner, **named)

        def put(value: Any) -> Any:
            return timed if value is self.fn else value

        self._result = original(*map(put, args), **{key: put(each) for key, each in kwargs.items()})
        self._device = device_clock()
        self.clock = "event" if self._device else "host"
        self._number = 0
        self._host_ns = 0.0
        """Host time to enqueue a call, in ns."""
        self._may_hold = True
        """False if the host was late at every length of the hold: the function waits for the card."""

    def run(self) -> Any:
        args, kwargs = self._given
        return self.fn(*args, **kwargs)

    def sample(self, budget_ms: float) -> tuple[list[float], int]:
        if not self._number:
            self._loop(1)
            once_ns = max(self._loop(1), 1.0)
            self._number = max(1, min(self._longest(), int(budget_ms * _MS / once_ns)))
        self._loop(max(1, self._number // 4))
        return [self._loop(self._number) / self._number], self._number

    def _longest(self) -> int:
        """Return the most calls for which the card can be held until the host has enqueued them."""
        if self._device is None:
            return _LONGEST_LOOP
        return min(_LONGEST_QUEUE, int(_LONGEST_HOLD_NS / max(_HOLDS[1] * self._host_ns, 1.0)))

    def _loop(self, count: int) -> float:
        if self._device is not None:
            return self._on_device(self._device, count)
        returned = None
        began = time.perf_counter_ns()
        for _ in range(count):
            returned = self.run()
        arrays.wait_for(returned)
        return float(time.perf_counter_ns() - began)

    def _on_device(self, clock: DeviceClock, count: int) -> float:
        """Return the time of a loop, with the card held until the host has enqueued it.

        If the host was late, a longer hold is tried.
        """
        for longer in _HOLDS if self._may_hold else _HOLDS[:1]:
            hold(longer * self._host_ns * count)
            found = clock(self.run, count)
            self._host_ns = found.host_ns / count
            if not found.late:
                return found.time_ns
        self._may_hold = False
        return found.time_ns

    def result(self) -> Any:
        return self._result


def is_given_a_function(args: Any, kwargs: Any) -> bool:
    """Return whether an author's timer gets something to time."""
    return any(callable(each) and not isinstance(each, type) for each in (*args, *kwargs.values()))


class PytestCall(TimedCall):
    """A call of pytest-benchmark's fixture `benchmark`. Its own `pedantic` runs and times every round.

    So setup, teardown, the garbage collector and the timer stay as the author set them. The number of calls
    is the one that the comparison needs, not the author's number of rounds.
    """

    timer = "pytest-benchmark"

    def __init__(
        self, pedantic: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        super().__init__()
        self._pedantic = pedantic
        bound = inspect.signature(original).bind(*args, **kwargs).arguments
        (_, fixture), (_, self.fn), *given = bound.items()
        self._fixture, self._given = fixture, dict(given)
        self.roots = (*self._given.get("args", ()), *(self._given.get("kwargs") or {}).values())
        self.test, self.params = fixture.fullname, plain_params(fixture.params or {})
        # A function for `benchmark` may be called any number of times; a function for `pedantic` may not.
        self._warmups = self._given.get("warmup_rounds", 0) if original is pedantic else 1
        self._iterations = 0
        self._round_ns = 0.0

    def run(self) -> Any:
        return self._rounds(1, 1)[1]

    def sample(self, budget_ms: float) -> tuple[list[float], int]:
        try:
            if not self._iterations:
                self._calibrate()
            count = max(1, min(_MOST_ROUNDS, int(budget_ms * _MS / self._round_ns)))
            return self._rounds(count, self._iterations)[0], self._iterations
        except Exception as error:
            if not self._given.get("setup"):
                error.__notes__ = [_CALLED_AGAIN]
            raise

    def result(self) -> Any:
        asked = self._given.get("rounds", 1), self._warmups, self._given.get("iterations", 1)
        rounds, warmups, iterations = (min(each, 1) for each in asked)  # a failure stays a failure
        return self._call(self._fixture, rounds, warmups, iterations)

    def _calibrate(self) -> None:
        """Find the number of calls of a round, and its duration with setup and teardown."""
        self._rounds(1, 1)
        is_prepared = self._given.get("setup") or self._given.get("teardown")
        self._iterations = self._given.get("iterations", 1) if is_prepared else 1
        while True:
            began = time.perf_counter_ns()
            self._rounds(1, self._iterations)
            self._round_ns = time.perf_counter_ns() - began
            if is_prepared or self._round_ns >= _SHORTEST_ROUND_NS or self._iterations >= _LONGEST_LOOP:
                return
            self._iterations *= 2

    def _rounds(self, count: int, iterations: int) -> tuple[list[float], Any]:
        """Return the time of one call in nanoseconds for each round, and the result of the last.

        The rounds run on a copy of the fixture. The author's own fixture can be used once, and does not
        report these rounds.
        """
        quiet = copy.copy(self._fixture)
        quiet.cprofile, quiet._add_stats = False, lambda _stats: None
        if torch_on_card() is not None or "cupy" in sys.modules:
            quiet._timer = _waiting(quiet._timer)
        result = self._call(quiet, count, 0, iterations)
        return [time_s * _S for time_s in quiet.stats.stats.data], result

    def _call(self, fixture: Any, rounds: int, warmup_rounds: int, iterations: int) -> Any:
        counts = {"rounds": rounds, "warmup_rounds": warmup_rounds, "iterations": iterations}
        return self._pedantic(fixture, self.fn, **{**self._given, **counts})


def times_by_itself(args: Any, _kwargs: Any) -> bool:
    """Return whether a pytest-benchmark fixture times functions by itself, and not for gpu_benchmark."""
    fixture = args[0]
    return not fixture.disabled and getattr(fixture._timer, "__module__", "") != _REPLAYING


def _waiting(timer: Callable[[], Any]) -> Callable[[], Any]:
    """Return a timer that synchronizes with the card first, because enqueued work is not finished work."""

    def read() -> Any:
        arrays.synchronize()
        return timer()

    return read


def plain_params(params: Mapping[str, Any]) -> dict[str, int | float | str]:
    """Return a test's parameters if they are numbers and words; else none, since the test's id
    contains them.
    """
    if not all(isinstance(each, (int, float, str)) for each in params.values()):
        return {}
    return {name: _plain(each) for name, each in params.items()}


def _plain(value: Any) -> int | float | str:
    """Return a number as a plain Python type that JSON can hold; else a word."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, float) and math.isfinite(value) else str(value)


def torch_on_card() -> Any:
    """Return PyTorch if it has opened a card; else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


class TimedLoop:
    """Calls in a row, timed by a pair of events: the card's time, and the host's time to enqueue them.

    The loop is late if the card started before all calls were enqueued.
    """

    def __init__(self, time_ns: float, host_ns: float, *, late: bool) -> None:
        self.time_ns, self.host_ns, self.late = time_ns, host_ns, late


def device_clock() -> DeviceClock | None:
    """Return a function that times calls by events of the framework in use; None without a card."""
    torch, cupy = torch_on_card(), sys.modules.get("cupy")
    if torch is not None:
        event = functools.partial(torch.cuda.Event, enable_timing=True)
        return lambda run, count: _between(
            event(), event(), run, count, lambda one, other: float(one.elapsed_time(other)), held=True
        )
    if cupy is not None:
        cuda = cupy.cuda
        return lambda run, count: _between(
            cuda.Event(), cuda.Event(), run, count, cuda.get_elapsed_time, held=False
        )
    return None


def _between(
    start: Any,
    end: Any,
    run: Callable[[], Any],
    count: int,
    milliseconds: Callable[[Any, Any], float],
    *,
    held: bool,
) -> TimedLoop:
    began_ns = time.perf_counter_ns()
    start.record()
    for _ in range(count):
        run()
    end.record()
    host_ns = time.perf_counter_ns() - began_ns
    late = held and start.query()
    end.synchronize()
    return TimedLoop(milliseconds(start, end) * _MS, host_ns, late=late)


def hold(duration_ns: float) -> None:
    """Keep PyTorch's card busy for about this long, so that the host is ahead of the next timing."""
    torch = torch_on_card()
    if torch is not None:
        torch.cuda._sleep(int(min(duration_ns, _LONGEST_HOLD_NS) * _CYCLES_PER_NS))


class ColdLaunches:
    """Times launches like Triton's do_bench: each by a pair of events, after clearing the L2 cache.

    The card is held before each launch until the host has enqueued it. Otherwise the host limits a function
    of many small kernels, and host times differ between processes far more than card times. Launches that the
    host enqueued too late are dropped, unless nearly all are late, as for a function that waits for the card.
    """

    def __init__(self, run: Callable[[], Any], no_gradients: Sequence[Any]) -> None:
        self._torch: Any = sys.modules["torch"]
        self._run, self._no_gradients = run, no_gradients
        self._cache = self._torch.empty(_CACHE_BYTES, dtype=self._torch.int8, device="cuda")
        run()  # The first call may tune, and loads kernels.
        host_ns = min(self._host_ns() for _ in range(3))
        for longer in _HOLDS:
            self._hold_ns = longer * host_ns
            punctual, every = self._batch(3)
            if len(punctual) == len(every):
                break
        else:
            self._hold_ns = self._hold_ns if punctual else _HOLDS[0] * host_ns
        self._may_hold = bool(punctual)
        self._time_ns = min(every)

    def _host_ns(self) -> float:
        """Return the host time to enqueue the function, in ns."""
        self._torch.cuda.synchronize()
        began_ns = time.perf_counter_ns()
        self._run()
        taken_ns = time.perf_counter_ns() - began_ns
        self._torch.cuda.synchronize()
        return float(taken_ns)

    def _batch(self, count: int) -> tuple[list[float], list[float]]:
        """Return times in nanoseconds: of launches enqueued in time, and of all."""
        event = functools.partial(self._torch.cuda.Event, enable_timing=True)
        pairs = [(event(), event()) for _ in range(count)]
        late = [self._launched_late(*pair) for pair in pairs]
        self._torch.cuda.synchronize()
        every = [float(start.elapsed_time(end)) * _MS for start, end in pairs]
        return [time_ns for time_ns, is_late in zip(every, late) if not is_late], every

    def _launched_late(self, start: Any, end: Any) -> bool:
        """Launch once behind a hold. Return whether the card started before everything was enqueued."""
        for tensor in self._no_gradients:
            tensor.grad = None
        self._cache.zero_()
        hold(self._hold_ns)
        start.record()
        self._run()
        end.record()
        return bool(start.query())

    def times_ns(self, budget_ms: float) -> list[float]:
        """Return times in nanoseconds of as many launches as fit into the budget."""
        each_ns = self._time_ns + self._hold_ns
        punctual, every = self._batch(max(3, min(200, int(budget_ms * _MS / each_ns))))
        if self._may_hold and len(punctual) < len(every) / 2:
            self._hold_ns = min(2 * self._hold_ns, _LONGEST_HOLD_NS)
        return punctual if len(punctual) >= _FEWEST_PUNCTUAL * len(every) else every
