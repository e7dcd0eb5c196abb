"""Verdicts of benchmarks outside of suites: computed before any test runs, and reported by each test.

Like the plugin, this module imports only pytest until such a test is compared.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from harness.integrations.pytest.slot import asks_for

if TYPE_CHECKING:
    from harness.integrations.pytest.compare_tests import TestComparison
    from harness.integrations.pytest.shared_session import SharedSession
    from harness.records.record_files import ComparisonResult


class FunctionVerdicts:
    """Hooks of a session with --perf-base."""

    def __init__(self, session: SharedSession) -> None:
        self._session = session
        self._comparison: TestComparison | None = None
        self._foreign = ""
        """Package of a `benchmark` fixture that is not pytest-benchmark's."""

    @property
    def results(self) -> Iterator[tuple[ComparisonResult, Mapping[str, str]]]:
        """Yield the comparison with the node ids of its cases, if there is one."""
        if (comparison := self._comparison) and comparison.result:
            yield comparison.result, comparison.names

    @property
    def problem(self) -> str:
        """Return why the comparison failed; empty if it did not, or there was none."""
        return self._comparison.problem if self._comparison else ""

    @property
    def why_none(self) -> str:
        """Return why the session has no comparison."""
        others = f" The fixture benchmark of the tests is of {self._foreign}." if self._foreign else ""
        return f"no test with pytest-benchmark's fixture, or with gpu_benchmark, ran.{others}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        tests = [item for item in session.items if _is_function(item)]
        self._foreign = next(filter(None, map(_foreign_benchmark, session.items)), "")
        if tests and self._session.measures:
            self._prepare(tests)

    def _prepare(self, tests: Sequence[pytest.Item]) -> None:
        from harness.errors import HarnessError
        from harness.integrations.pytest.compare_tests import TestComparison, place_of

        try:
            place = place_of(self._session.config, self._session.option("perf_base"))
        except HarnessError as error:
            raise pytest.UsageError(error.message) from None
        self._comparison = TestComparison(
            option=self._session.option,
            place=place,
            observer=self._session.progress,
            tests=frozenset(item.nodeid for item in tests),
        )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Compare before a test makes this process use a card."""
        may_go_on = session.config.option.continue_on_collection_errors or not session.testsfailed
        if self._comparison and may_go_on:
            self._comparison.carry_out()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Add the verdict to a benchmark, which runs at head as usual."""
        result = yield
        comparison = self._comparison
        is_compared = comparison is not None and item.nodeid in comparison.tests
        if comparison and is_compared and (why := self._why_failed(comparison, item.nodeid)):
            pytest.fail(why, pytrace=False)
        return result

    def _why_failed(self, comparison: TestComparison, test: str) -> str:
        """Return why a test fails by its verdict; empty if it passes."""
        from harness.integrations.pytest.report import sentence
        from harness.report.terminal.comparison_tables import units_of
        from harness.report.words.of_verdict import explained

        session, result = self._session, comparison.result
        if result is None:
            return comparison.problem
        verdict = comparison.verdict(test)
        if verdict is None:
            why = " ".join(("Neither commit measured it in a separate process.", *result.left_out))
            return sentence("not-compared", why) if session.option("perf_gate") else ""
        if not session.fails(verdict):
            return ""
        session.reported.add((result.comparison.run_id, verdict.case))
        word = verdict.reason if verdict.status == "failed" else verdict.status
        return sentence(word, explained(verdict, units_of(result.comparison)), verdict.log)


def _is_function(item: pytest.Item) -> bool:
    """Return whether a test is a benchmark outside of suites: by pytest-benchmark's own fixture,
    or by ours.
    """
    return asks_for("benchmark", item, "pytest_benchmark.") and not asks_for("gpu_case", item)


def _foreign_benchmark(item: pytest.Item) -> str:
    """Return the module of a test's `benchmark` fixture; empty for none, and for pytest-benchmark's."""
    found: Any = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).get("benchmark", ())
    own = not found or asks_for("benchmark", item, "pytest_benchmark.")
    return "" if own else str(found[-1].func.__module__)
