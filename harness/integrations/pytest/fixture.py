"""The fixture gpu_benchmark: a case verified and measured, then shown to pytest-benchmark."""

from __future__ import annotations

__all__ = ["GpuBenchmark"]

from typing import Any, NoReturn

import pytest

from harness.errors import HarnessError
from harness.integrations.pytest.bench import Bench
from harness.integrations.pytest.cases import GpuCase, Side
from harness.integrations.pytest.replay import refuse, replay, spoil
from harness.integrations.pytest.report import info_of_arm, info_of_row, sentence, times_of
from harness.output.sentences import explained
from harness.output.verdicts import fails
from harness.records import Verdict
from harness.run.device_session import unfit


class GpuBenchmark:
    """Called with a gpu_case it fails the test, with a sentence, where the case is wrong or, with
    --perf-gate, its verdict fails; it skips the test where there is nothing to measure.

    `told` collects comparison and case of the failing verdicts that a test has told.
    """

    def __init__(self, bench: Bench, benchmark: Any, side: Side | None, told: set[tuple[str, str]]) -> None:
        self._bench, self._benchmark, self._side, self._told = bench, benchmark, side, told

    def __call__(self, case: GpuCase) -> dict[str, Any]:
        """Measure, and return what pytest-benchmark keeps of it in extra_info."""
        if not isinstance(case, GpuCase):
            self._refuse(f"gpu_benchmark takes what the fixture gpu_case gives; it was given {case!r}.")
        try:
            return self._alone(case) if self._side is None else self._paired(case, self._side)
        except KeyboardInterrupt:
            spoil(self._benchmark)
            raise
        except HarnessError as error:
            told = sentence(error.reason, error.message, error.log)
        return self._refuse(told)  # outside, where pytest shows no exception behind it

    def _alone(self, case: GpuCase) -> dict[str, Any]:
        measured = self._bench.measure(case, timed=self._benchmark.enabled)
        row = measured.row
        if row.status == "skipped":
            pytest.skip(row.message)
        if row.status == "failed":
            self._refuse(sentence(row.reason, row.message, row.log))
        info = info_of_row(measured)
        self._benchmark.extra_info.update(info)
        replay(self._benchmark, [each / 1e9 for each in row.measurement.times_ns] if row.measurement else [0])
        return info

    def _paired(self, case: GpuCase, side: Side) -> dict[str, Any]:
        result = self._bench.compare(case)
        if refused := unfit(case.planned, result.comparison.device):
            pytest.skip(refused.message)
        verdict = next(each for each in result.verdicts if each.case == case.case.id)
        times_s = times_of(result, verdict.case, side)
        failing = side == case.judged and self._fails(verdict)
        if failing:
            self._told.add((result.comparison.run_id, verdict.case))
        word = verdict.reason if verdict.status == "failed" else verdict.status
        if not times_s:
            if failing:
                self._refuse(sentence(word, explained(verdict), verdict.log))
            pytest.skip(sentence(word, explained(verdict)))
        info = info_of_arm(case, side, verdict, result)
        self._benchmark.extra_info.update(info)
        replay(self._benchmark, times_s)
        if failing:
            pytest.fail(sentence(word, explained(verdict), verdict.log), pytrace=False)
        return info

    def _fails(self, verdict: Verdict) -> bool:
        """By the gate; without it only what does not work at head."""
        options = self._bench.options
        if options.gate:
            return fails(verdict, options.fail_on)
        return verdict.status == "failed" and verdict.side != "base"

    def _refuse(self, message: str) -> NoReturn:
        refuse(self._benchmark, message)
