"""The fixture gpu_benchmark with pytest-benchmark, and its effects on a session.

Each test keeps one result. A file is written even if nothing was timed. Warnings do not end the session. Like
the plugin, this module imports only pytest until a test asks for the fixture.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.integrations.pytest.fixture import GpuBenchmark
    from harness.integrations.pytest.session import CaseSide
    from harness.integrations.pytest.shared_session import SharedSession


def keep_warnings_harmless() -> None:
    """Print pytest-benchmark's warnings even if `filterwarnings = error` would crash the session.

    It changes the current filters. Tests get those of the project.
    """
    from pytest_benchmark.logger import PytestBenchmarkWarning

    for_all = (
        action
        for action, message, kind, module, _ in warnings.filters
        if issubclass(PytestBenchmarkWarning, kind) and not (message or module)
    )
    if next(for_all, "default") == "error":
        warnings.filterwarnings("default", category=PytestBenchmarkWarning)


class _Untimed:
    """Replaces the benchmarks of a session that timed none: pytest-benchmark then writes an empty list."""

    has_error = True

    def __bool__(self) -> bool:
        return False


class OnBenchmark:
    """The fixture gpu_benchmark with pytest-benchmark, and the preparation of its saved results."""

    def __init__(self, session: SharedSession) -> None:
        self._session = session
        self._runs: Counter[str] = Counter()
        """Number of runs of each test."""
        self._latest: dict[str, Any] = {}
        """pytest-benchmark's fixture in the latest run of each test."""

    @pytest.fixture
    def gpu_benchmark(
        self, request: pytest.FixtureRequest, benchmark: Any, gpu_side: CaseSide | None
    ) -> Iterator[GpuBenchmark]:
        """Called with a function and its arguments: time it, and return its result. Called with gpu_case:
        verify the case on the device, time it, and show its times to pytest-benchmark.
        """
        from harness.integrations.pytest.fixture import GpuBenchmark, refuse

        session = self._session
        if not hasattr(benchmark, "fullname"):
            pytest.fail(
                f"gpu_benchmark needs pytest-benchmark's fixture benchmark; this test gets {benchmark!r} of "
                f"{type(benchmark).__module__}. Rename the project's own fixture, or switch the other plugin "
                "off, as in -p no:codspeed.",
                pytrace=False,
            )
        if session.in_worker and "gpu_case" in request.fixturenames:
            refuse(benchmark, session.NO_XDIST)
        self._begin(benchmark.fullname, benchmark)
        marker = request.node.get_closest_marker("benchmark")
        given = marker.kwargs if marker else {}
        limits = {
            name: given.get(name, session.option(f"benchmark_{name}")) for name in ("max_time", "min_rounds")
        }
        fixture = GpuBenchmark(session, benchmark, gpu_side, limits)
        yield fixture
        fixture.check_extra_info()

    @property
    def _saved(self) -> Any:
        """Return the pytest-benchmark session, which saves and shows its benchmarks."""
        return self._session.config.pluginmanager.getplugin("pytest-benchmark")

    def _begin(self, test: str, benchmark: Any) -> None:
        """Drop the measurements of an earlier run of the same test: the last run counts."""
        self._runs[test] += 1
        earlier, self._latest[test] = self._latest.get(test), benchmark
        if earlier is None:
            return
        self._session.runner.measured.pop(test, None)
        if earlier.stats in self._saved.benchmarks:
            self._saved.benchmarks.remove(earlier.stats)
        self._session.notes[test] = f"{test} ran {self._runs[test]} times: the last run counts."

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Prepare the results that pytest-benchmark saves before other plugins end the session."""
        session = self._session
        if session.has_tests and not (session.in_worker or session.option("collectonly")):
            self._allow_no_times()
        with warnings.catch_warnings():
            keep_warnings_harmless()
            return (yield)

    def _allow_no_times(self) -> None:
        """Let --benchmark-json write a file even if nothing was timed, for example with identical code."""
        saved = self._saved
        if saved.benchmarks or not saved.json:
            return
        saved.benchmarks.append(_Untimed())
        if saved.save or saved.autosave:
            saved.save = saved.autosave = None  # a baseline without benchmarks would hide the previous one
            self._session.notes["saved"] = "Nothing was timed, and no run was saved for --benchmark-compare."

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self) -> Generator[None, object, object]:
        with warnings.catch_warnings():
            keep_warnings_harmless()
            return (yield)
