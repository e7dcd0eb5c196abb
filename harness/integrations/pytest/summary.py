"""What a session says in the end of what it measured, and whether the gate lets it pass."""

from __future__ import annotations

__all__ = ["Summary"]

import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from harness.integrations.pytest.session import GpuSession

if TYPE_CHECKING:
    from harness.integrations.pytest.cases import GpuCase
    from harness.records import Verdict
    from harness.run.compare import ComparisonResult


class Summary:
    """Hooks at the end of a session."""

    def __init__(self, session: GpuSession) -> None:
        self._session = session
        self._option = session.option
        self._lines: list[str] = []
        """Why the gate fails where no test could tell."""
        self._passes = False

    @property
    def _judges(self) -> bool:
        """Whether this process decides over the gate."""
        return bool(
            self._option("perf_gate") and not self._option("collectonly") and not self._session.in_worker
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session for what no test could fail for."""
        if self._judges and self._option("perf_base") is not None and not session.exitstatus:
            self._lines = [*self._untold()]
        if self._lines:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._passes = session.exitstatus == pytest.ExitCode.OK or not self._gate_fails()

    def _untold(self) -> Iterator[str]:
        if self._nothing_compared:
            yield f"No kernel was compared with {self._option('perf_base')}."
        for result, cases in self._compared:
            if result.problem:
                yield "The record of the comparison is not whole."
            for verdict in self._failing(result):
                if (result.comparison.run_id, verdict.case) not in self._session.reported:
                    yield f"{verdict.status} {cases[verdict.case].label}: none of the tests that ran says so."

    @property
    def _compared(self) -> list[tuple[ComparisonResult, Mapping[str, GpuCase]]]:
        return [*self._session.started.compared] if self._session.started else []

    def _failing(self, result: ComparisonResult) -> list[Verdict]:
        from harness.output.verdicts import fails

        fail_on = self._option("perf_fail_on")
        return [verdict for verdict in result.verdicts if fails(verdict, fail_on)]

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, object, object]:
        """Behind pytest-benchmark's wide tables, and before pytest's own summary."""
        try:
            return (yield)
        finally:
            self._summarise(terminalreporter)

    def _summarise(self, terminalreporter: pytest.TerminalReporter) -> None:
        runner, width = self._session.started, shutil.get_terminal_size().columns
        if runner and runner.measured:
            from harness.integrations.pytest.report import row_lines

            _write(terminalreporter, "GPU benchmarks", row_lines(runner.measured, width))
        if self._judges:
            _write(terminalreporter, "GPU performance gate", [*self._gate_section(width)])
        elif self._compared:
            title = f"GPU kernels against {self._option('perf_base')}"
            _write(terminalreporter, title, [*self._gate_section(width)])
        if runner and runner.notes:
            _write(terminalreporter, "GPU suites left out", [*runner.notes])

    def _gate_section(self, width: int) -> Iterator[str]:
        if self._option("perf_base") is None:
            yield "Times of another session are not judged: only benchmarks that are gone fail. To"
            yield "judge the code, measure both commits in one session with --perf-base REV."
            return
        for result, cases in self._compared:
            from harness.integrations.pytest.report import comparison_lines

            yield from comparison_lines(result, cases, width)
        yield from self._lines
        if self._option("perf_gate"):
            yield f"The gate {'passes' if self._passes else 'fails'}."

    def _gate_fails(self) -> bool:
        """Of a session that does not pass: whether the gate has a part in it."""
        if self._nothing_compared or self._lines or (self._session.started and self._session.started.broken):
            return True
        return any(result.interrupted or self._failing(result) for result, _ in self._compared)

    @property
    def _nothing_compared(self) -> bool:
        from harness.records import nothing_compared

        return nothing_compared(each.status for result, _ in self._compared for each in result.verdicts)


def _write(reporter: pytest.TerminalReporter, title: str, lines: Sequence[str]) -> None:
    if lines:
        reporter.section(title)
    for line in lines:
        reporter.write_line(line)
