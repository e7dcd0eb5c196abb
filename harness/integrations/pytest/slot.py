"""Runs only the benchmarks of one commit in one process of a comparison of tests, and records their calls."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

OPTION = "--perf-slot"
"""Option of such a process. It names the file to which the process writes its benchmarks as JSON."""
_OPTIONS: Mapping[str, Any] = {
    "perf_base": None,
    "perf_gate": False,
    "perf_fail_on": [],
    "perf_outputs": None,
    "benchmark_json": None,
    "benchmark_save": None,
    "benchmark_autosave": None,
    "benchmark_save_data": False,
    "benchmark_compare": None,
    "benchmark_compare_fail": [],
    "benchmark_histogram": None,
    "benchmark_cprofile": None,
    "basetemp": None,
    "xmlpath": None,
    "maxfail": 0,
    "usepdb": False,
    "randomly_seed": 1,
    "randomly_reorganize": False,
}
"""Options of the user's session that do not apply here.

They compare, stop early, write files, or change random numbers and order per process, like pytest-randomly.
"""


def prepare(config: pytest.Config) -> SlotSession | None:
    """Turn a process that was started for a comparison into a slot of it; return None for another process."""
    file = config.getoption("perf_slot", None)
    if file is None:
        return None
    for name, value in _OPTIONS.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    asked = list(config.args)
    if not config.option.pyargs:
        config.args[:] = _existing_files(asked, config.invocation_params.dir)
    return SlotSession(asked, Path(file))


def _existing_files(arguments: Sequence[str], folder: Path) -> list[str]:
    """Return the files and folders in arguments, without the tests in them, which a commit may lack."""
    places = dict.fromkeys(argument.partition("::")[0] for argument in arguments)
    return [place for place in places if (folder / place).exists()]


def asked_for(config: pytest.Config, arguments: Iterable[str], test: str) -> bool:
    """Return whether the arguments include a test with this id."""
    file, _, inside = test.partition("::")
    place = (config.rootpath / file).resolve()
    for argument in arguments:
        path, _, wanted = argument.partition("::")
        asked = (config.invocation_params.dir / path).resolve()
        if not wanted and place.is_relative_to(asked):
            return True
        if wanted and place == asked and f"{inside}[".startswith((f"{wanted}[", f"{wanted}::")):
            return True
    return False


def asks_for(name: str, test: Any, package: str = f"{__package__}.") -> bool:
    """Return whether a test gets a package's fixture of this name, directly or through another of that name.

    A project may have its own fixture or parameter of the same name.
    """
    known = getattr(getattr(test, "_fixtureinfo", None), "name2fixturedefs", {})
    for fixture in reversed(known.get(name, ())):
        if fixture.func.__module__.startswith(package):
            return True
        if name not in fixture.argnames:
            return False
    return False


def params_of(item: pytest.Item) -> dict[str, Any]:
    """Return a test's parameters by name."""
    found: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found


class SlotSession:
    """Hooks of such a process."""

    def __init__(self, asked: Sequence[str], report: Path) -> None:
        self._asked, self._report = asked, report
        self._params: dict[str, Any] = {}
        """Parameters of each collected benchmark, by node id."""
        self._untimed: dict[str, dict[str, Any]] = {}
        """Reason why a benchmark has no time, and whether it was skipped, by node id."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        from harness.run.scripts.recorder.timers import plain_params

        chosen = [item for item in items if self._is_asked_for(config, item)]
        self._params = {item.nodeid: plain_params(params_of(item)) for item in chosen}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._params])
        items[:] = chosen
        if config.pluginmanager.hasplugin("timeout"):
            for item in items:
                # A call waits until the other side has measured; the comparison has its own time limit.
                item.add_marker(pytest.mark.timeout(0), append=False)

    def _is_asked_for(self, config: pytest.Config, item: pytest.Item) -> bool:
        return asks_for("benchmark", item, "pytest_benchmark.") and (
            config.option.pyargs or asked_for(config, self._asked, item.nodeid)
        )

    def _leave_out(self, test: str, why: str, *, skipped: bool) -> None:
        self._untimed.setdefault(test, {"why": why, "skipped": skipped})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self._params:
            return
        if report.skipped:
            reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
            why = str(getattr(report, "wasxfail", reason)).removeprefix("Skipped: ")
            self._leave_out(report.nodeid, why, skipped=True)
        elif report.failed:
            self._leave_out(report.nodeid, _why(report), skipped=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        if session.exitstatus in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.OK  # the file shows which have failed
        told = [
            {"test": test, "params": params, **self._untimed.get(test, {})}
            for test, params in self._params.items()
        ]
        part = self._report.with_suffix(".part")
        part.write_text(json.dumps(told), "utf-8")
        part.replace(self._report)  # the comparison may end this process at any moment
        return (yield)


def _why(report: pytest.TestReport) -> str:
    """Return ``AssertionError: assert 1 == 2``, with the phase if it was not the test itself."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr)
    lines = message.strip().splitlines() or [""]
    return lines[0] if report.when == "call" else f"{lines[0]} (in {report.when})"
