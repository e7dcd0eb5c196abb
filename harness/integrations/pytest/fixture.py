"""The fixture gpu_benchmark: measures a case of a suite or a function, and reports it to pytest-benchmark.

pytest-benchmark computes a round's time as the difference of two readings of its timer. Its marker accepts
any function as timer, and `pedantic`, unlike a plain call, does not test the timer's resolution. So each
round gets exactly the device's own time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness.errors import HarnessError, UsageError
from harness.integrations.pytest.function_timing import BenchmarkCall, time_function
from harness.integrations.pytest.report import (
    Info,
    info_of_arm,
    info_of_function,
    info_of_row,
    sentence,
    times_of,
)
from harness.integrations.pytest.session import CaseSide, GpuCase
from harness.report.words.of_verdict import explained
from harness.run.device_session import unfit

if TYPE_CHECKING:
    from harness.integrations.pytest.shared_session import SharedSession


def _shared(name: str) -> Any:
    """Return a property that reads and sets pytest-benchmark's attribute of the same name."""

    def read(fixture: GpuBenchmark) -> Any:
        return getattr(fixture._benchmark, name)  # noqa: SLF001

    def write(fixture: GpuBenchmark, value: Any) -> None:
        setattr(fixture._benchmark, name, value)  # noqa: SLF001

    return property(read, write)


class GpuBenchmark:
    """Measures a gpu_case, times a function, or behaves like the fixture benchmark.

    Called with a gpu_case, it fails the test with a sentence if the case is wrong or, with --perf-gate, its
    verdict fails. It skips the test if there is nothing to measure. Called with a function and its arguments,
    it times the function and returns its result. Otherwise it has the attributes and methods of the fixture
    benchmark.
    """

    def __init__(
        self, session: SharedSession, benchmark: Any, side: CaseSide | None, limits: Mapping[str, Any]
    ) -> None:
        self._session, self._benchmark, self._side = session, benchmark, side
        self._limits = limits
        """pytest-benchmark's `max_time` and `min_rounds` for this test."""
        self._test: str = benchmark.fullname
        self._called = False
        self._info: Info = {}
        """The entries of extra_info that this fixture wrote."""

    def __call__(
        self,
        target: Any = None,
        *args: Any,
        setup: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Measure a case and return its extra_info; or time a function and return its result.

        `setup` runs before each round, untimed; it may return (args, kwargs).
        """
        __tracebackhide__ = True
        return self._measure(target, BenchmarkCall(function=target, args=args, kwargs=kwargs, setup=setup))

    def pedantic(
        self,
        target: Any,
        args: Any = (),
        kwargs: Any = None,
        setup: Any = None,
        teardown: Any = None,
        rounds: int | None = None,
        warmup_rounds: int | None = None,
        iterations: int | None = None,
    ) -> Any:
        """Measure a case or a function in exactly this many rounds.

        Without `rounds`, and for a case with --perf-base, the harness measures as many rounds as it needs, as
        in a plain call. The harness warms a case up, and chooses the number of launches per round. So
        `warmup_rounds` and `iterations` have no effect for cases.
        """
        counts: list[tuple[str, Any, int]] = [
            ("rounds", rounds, 1),
            ("warmup_rounds", warmup_rounds, 0),
            ("iterations", iterations, 1),
        ]
        for name, value, lowest in counts:
            if value is not None and (not isinstance(value, int) or value < lowest):
                self._refuse(
                    f"gpu_benchmark.pedantic has {name}={value!r}; expected a whole number of at least "
                    f"{lowest}."
                )
        __tracebackhide__ = True
        call = BenchmarkCall(
            function=target, args=tuple(args), kwargs=kwargs or {}, setup=setup, teardown=teardown
        )
        return self._measure(target, call, rounds, warmup_rounds, iterations)

    def weave(self, target: Any, **_: Any) -> NoReturn:
        """Fail the test: this fixture cannot replace functions by kernels."""
        self._refuse(
            f"gpu_benchmark cannot weave or patch {target!r}: it only times its arguments. Call "
            "gpu_benchmark(function, arguments), or use the fixture benchmark in a test of its own."
        )

    patch = weave

    def check_extra_info(self) -> None:
        """Fail a test that changed the harness's entries in extra_info."""
        kept = self._benchmark.extra_info
        self._refuse_entries([name for name, value in self._info.items() if kept.get(name) != value])

    def _refuse(self, message: str) -> NoReturn:
        refuse(self._benchmark, message)

    def _refuse_entries(self, names: Sequence[str]) -> None:
        if names:
            self._refuse(
                f"extra_info[{names[0]!r}] belongs to gpu_benchmark, and this test has set, changed or "
                "removed it. Add entries with other names, and do not replace the dictionary."
            )

    def _measure(self, target: Any, call: BenchmarkCall, *counts: int | None) -> Any:
        __tracebackhide__ = True
        if self._called:
            self._refuse(
                "gpu_benchmark was called twice in one test, which has one result. Measure each case in a "
                "test of its own: @pytest.mark.parametrize makes one for each."
            )
        self._called = True
        if isinstance(target, GpuCase):
            return self._measure_case(target, call, *counts[:1])
        if not callable(target):
            self._refuse(
                f"gpu_benchmark was called with {target!r:.80}, which is no function. It takes a function "
                "and its arguments, as in gpu_benchmark(softmax, x), or what the fixture gpu_case gives."
            )
        return self._time(call, *counts)

    def _time(
        self,
        call: BenchmarkCall,
        rounds: int | None = None,
        warmup_rounds: int | None = None,
        iterations: int | None = None,
    ) -> object:
        """Time a function and return its result; call it once if pytest-benchmark is disabled."""
        __tracebackhide__ = True
        if iterations not in (None, 1) and (call.setup or call.teardown):
            self._refuse(
                f"gpu_benchmark.pedantic has iterations={iterations}, and a setup or teardown that runs "
                "once a round: leave iterations out."
            )
        try:
            if not self._benchmark.enabled:
                return self._benchmark.pedantic(call)
            timed = time_function(
                replace(call, test=self._test, params=self._benchmark.params or {}),
                max_time_s=float(self._limits["max_time"]),
                min_rounds=int(self._limits["min_rounds"]),
                rounds=rounds,
                warmup_rounds=warmup_rounds,
                launches=iterations,
            )
        except UsageError as error:
            why = error.message
        except BaseException:
            _spoil(self._benchmark)
            raise
        else:
            self._session.clocks.setdefault(timed.clock.words, []).append(self._test)
            self._replay(info_of_function(timed), timed.times_s)
            return timed.result
        return self._refuse(why)

    def _measure_case(self, case: GpuCase, call: BenchmarkCall, rounds: int | None = None) -> Info:
        host = {
            "args": call.args,
            "kwargs": call.kwargs,
            "setup": call.setup,
            "teardown": call.teardown,
        }
        if given := [name for name, value in host.items() if value]:
            self._refuse(
                f"gpu_benchmark cannot use {given[0]}={host[given[0]]!r} with a gpu_case: the kernel is "
                f"launched in another process, on the data of its suite. Leave {given[0]} out; what a launch "
                "needs belongs in suite.py."
            )
        try:
            return self._alone(case, rounds) if self._side is None else self._paired(case, self._side)
        except KeyboardInterrupt:
            _spoil(self._benchmark)
            raise
        except HarnessError as error:
            why = sentence(error.reason, error.message, error.log)
        return refuse(self._benchmark, why)  # outside, so that pytest shows no chained exception

    def _alone(self, case: GpuCase, rounds: int | None) -> Info:
        timed = self._benchmark.enabled
        measured = self._session.runner.measure(case, test=self._test, timed=timed, rounds=rounds)
        row = measured.row
        if row.status == "skipped":
            pytest.skip(row.message)
        if row.status == "failed":
            refuse(self._benchmark, sentence(row.reason, row.message, row.log))
        times_s = [each / 1e9 for each in row.measurement.times_ns] if row.measurement else [0]
        return self._replay(info_of_row(measured), times_s)

    def _paired(self, case: GpuCase, side: CaseSide) -> Info:
        result = self._session.runner.compare(case)
        if refused := unfit(case.planned, result.comparison.device):
            pytest.skip(refused.message)
        verdict = next(each for each in result.verdicts if each.case == case.case.id)
        times_s = times_of(result, verdict.case, side)
        failing = side == case.judged and self._session.fails(verdict)
        if failing:
            self._session.reported.add((result.comparison.run_id, verdict.case))
        word = verdict.reason if verdict.status == "failed" else verdict.status
        if not times_s:
            if failing:
                refuse(self._benchmark, sentence(word, explained(verdict), verdict.log))
            pytest.skip(sentence(word, explained(verdict)))
        info = self._replay(info_of_arm(case, side, verdict, result), times_s)
        if failing:
            pytest.fail(sentence(word, explained(verdict), verdict.log), pytrace=False)
        return info

    def _replay(self, info: Info, times_s: Sequence[float]) -> Info:
        """Let pytest-benchmark measure these times as rounds; none if it is disabled."""
        self._refuse_entries([name for name in info if name in self._benchmark.extra_info])
        self._benchmark.extra_info.update(info)
        self._info = info
        left = iter(times_s)

        def begin() -> None:
            _Clock.now_s = 0.0

        def launch() -> None:
            # A profiler calls it more often than there are rounds.
            _Clock.now_s = next(left, 0.0)

        try:
            self._benchmark.pedantic(launch, setup=begin, rounds=len(times_s), iterations=1, warmup_rounds=0)
        finally:
            _Clock.now_s = None
        return info


for _name in (
    *("name", "fullname", "group", "param", "params", "extra_info", "stats"),
    *("enabled", "disabled", "skipped", "has_error"),
    *("cprofile", "cprofile_loops", "cprofile_dump", "cprofile_stats"),
):
    setattr(GpuBenchmark, _name, _shared(_name))


class _Clock:
    now_s: float | None = None
    """Time of the replayed round, in seconds; None outside of a replay."""


def device_clock() -> float:
    """Return the device time of the replayed round, in seconds. Raises UsageError outside of a replay."""
    if _Clock.now_s is None:
        raise UsageError(
            "The fixture benchmark was called in a test that has gpu_benchmark: the clock of such a test is "
            "the device's, and cannot time Python functions. Call benchmark in a test of its own."
        )
    return _Clock.now_s


def _spoil(benchmark: Any) -> None:
    """Let pytest-benchmark run a failing function, so that it neither stores a benchmark nor warns.

    A fixture that was used already raises as well.
    """

    def launch() -> NoReturn:
        raise RuntimeError

    with contextlib.suppress(Exception):
        benchmark.pedantic(launch)


def refuse(benchmark: Any, message: str) -> NoReturn:
    """Fail the test with a sentence, without a traceback and without a benchmark."""
    _spoil(benchmark)
    pytest.fail(message, pytrace=False)
