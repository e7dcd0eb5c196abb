"""The fixture gpu_benchmark: a case verified and measured, then shown to pytest-benchmark.

pytest-benchmark times a round as the difference of two readings of its timer. Its marker takes any function
for one, and `pedantic`, unlike a plain call, never tries how fine it ticks: so each round comes out as the
device's own time, to the last bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from harness.errors import HarnessError
from harness.integrations.pytest.bench import CaseRunner, CaseSide, GpuCase
from harness.integrations.pytest.report import info_of_arm, info_of_row, sentence, times_of
from harness.output.sentences import explained
from harness.output.verdicts import fails
from harness.records import Verdict
from harness.run.device_session import unfit


class GpuBenchmark:
    """Called with a gpu_case it fails the test, with a sentence, where the case is wrong or, with
    --perf-gate, its verdict fails; it skips the test where there is nothing to measure.

    `reported` collects comparison and case of the failing verdicts that a test has reported.
    """

    def __init__(
        self, runner: CaseRunner, benchmark: Any, side: CaseSide | None, reported: set[tuple[str, str]]
    ) -> None:
        self._runner, self._benchmark, self._side, self._reported = runner, benchmark, side, reported

    def __call__(self, case: GpuCase) -> dict[str, Any]:
        """Measure, and return what pytest-benchmark keeps of it in extra_info."""
        if not isinstance(case, GpuCase):
            wrong = f"gpu_benchmark takes what the fixture gpu_case gives; it was given {case!r}."
            refuse(self._benchmark, wrong)
        try:
            return self._alone(case) if self._side is None else self._paired(case, self._side)
        except KeyboardInterrupt:
            _spoil(self._benchmark)
            raise
        except HarnessError as error:
            why = sentence(error.reason, error.message, error.log)
        return refuse(self._benchmark, why)  # outside, where pytest shows no exception behind it

    def _alone(self, case: GpuCase) -> dict[str, Any]:
        measured = self._runner.measure(case, timed=self._benchmark.enabled)
        row = measured.row
        if row.status == "skipped":
            pytest.skip(row.message)
        if row.status == "failed":
            refuse(self._benchmark, sentence(row.reason, row.message, row.log))
        times_s = [each / 1e9 for each in row.measurement.times_ns] if row.measurement else [0]
        return self._replay(info_of_row(measured), times_s)

    def _paired(self, case: GpuCase, side: CaseSide) -> dict[str, Any]:
        result = self._runner.compare(case)
        if refused := unfit(case.planned, result.comparison.device):
            pytest.skip(refused.message)
        verdict = next(each for each in result.verdicts if each.case == case.case.id)
        times_s = times_of(result, verdict.case, side)
        failing = side == case.judged and self._fails(verdict)
        if failing:
            self._reported.add((result.comparison.run_id, verdict.case))
        word = verdict.reason if verdict.status == "failed" else verdict.status
        if not times_s:
            if failing:
                refuse(self._benchmark, sentence(word, explained(verdict), verdict.log))
            pytest.skip(sentence(word, explained(verdict)))
        info = self._replay(info_of_arm(case, side, verdict, result), times_s)
        if failing:
            pytest.fail(sentence(word, explained(verdict), verdict.log), pytrace=False)
        return info

    def _replay(self, info: dict[str, Any], times_s: Sequence[float]) -> dict[str, Any]:
        """Let pytest-benchmark measure these times, a round each; where it is disabled, none."""
        self._benchmark.extra_info.update(info)
        left = iter(times_s)

        def begin() -> None:
            _Clock.now_s = 0.0

        def launch() -> None:
            # Called more often than there are rounds where somebody profiles it.
            _Clock.now_s = next(left, 0.0)

        self._benchmark.pedantic(launch, setup=begin, rounds=len(times_s), iterations=1, warmup_rounds=0)
        return info

    def _fails(self, verdict: Verdict) -> bool:
        """Whether a verdict fails its test: by the gate, without it only where head does not work."""
        option = self._runner.option
        if option("perf_gate"):
            return fails(verdict, option("perf_fail_on"))
        return verdict.status == "failed" and verdict.side != "base"


class _Clock:
    now_s = 0.0


class _SpoiledError(Exception):
    pass


def device_clock() -> float:
    """Seconds that the device has spent on the round that is replayed."""
    return _Clock.now_s


def _spoil(benchmark: Any) -> None:
    """Let pytest-benchmark run what raises: then it neither keeps a benchmark nor warns that none was run."""

    def launch() -> None:
        raise _SpoiledError

    with contextlib.suppress(_SpoiledError):
        benchmark.pedantic(launch)


def refuse(benchmark: Any, message: str) -> NoReturn:
    """Fail the test with a sentence and no traceback, and without a benchmark."""
    _spoil(benchmark)
    pytest.fail(message, pytrace=False)
