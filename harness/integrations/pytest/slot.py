"""One process of one commit in a comparison of tests: it runs the benchmarks that it is asked for.

It runs functions of gpu_benchmark where they are recorded, and else the benchmarks of pytest-benchmark's own
fixture. Its JSON tells of benchmarks without a time too, which pytest-benchmark leaves out.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

OPTION = "--perf-slot"
"""Option of such a process. It names a file with the ids of the tests to run, a line each; empty for all that
the other words of the command line ask for.
"""
UNTIMED = ".untimed"
"""Ending of a file beside that one: what a process whose functions are recorded tells as JSON of the rest."""
MAX_TIME_S = "0.2"
"""Seconds for the rounds of a benchmark, if the user gave none: a process counts once, however long it is."""
_USUAL_MAX_TIME_S = 1.0
_OPTIONS: Mapping[str, Any] = {
    "perf_base": None,
    "perf_gate": False,
    "perf_fail_on": [],
    "perf_outputs": None,
    "benchmark_save": None,
    "benchmark_autosave": None,
    "benchmark_save_data": False,
    "benchmark_compare": None,
    "benchmark_compare_fail": [],
    "benchmark_histogram": None,
    "basetemp": None,
    "xmlpath": None,
    "maxfail": 0,
    "usepdb": False,
    "randomly_seed": 1,
    "randomly_reorganize": False,
}
"""Options of the user's session that do not hold here: they compare, stop early, write files, or have each
process draw other numbers in another order, as pytest-randomly does.
"""

_MACHINE = ("node", "system", "release", "machine", "python_implementation", "python_version")
"""Facts of the machine, as both `platform` and pytest-benchmark call them."""


def prepare(config: pytest.Config) -> SlotSession | None:
    """Make a process that was started for a comparison a slot of it; return None for any other."""
    file = config.getoption("perf_slot", None)
    if file is None:
        return None
    for name, value in _OPTIONS.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    if float(config.getoption("benchmark_max_time", "0")) == _USUAL_MAX_TIME_S:
        config.option.benchmark_max_time = MAX_TIME_S
    asked = list(config.args)
    if not config.option.pyargs:
        config.args[:] = _existing_files(asked, config.invocation_params.dir)
    return SlotSession(asked, Path(file), recorded=_record_functions())


def _record_functions() -> bool:
    """Have functions of gpu_benchmark recorded, if this process is; return whether it is."""
    recording = sys.modules.get("harness_recorder.recording")
    if recording is None:
        return False
    from harness.integrations.pytest import function_timing

    recording.patch(function_timing)
    return True


def _existing_files(arguments: Sequence[str], folder: Path) -> list[str]:
    """Return the files and folders of arguments, without tests in them, which a commit may lack."""
    places = dict.fromkeys(argument.partition("::")[0] for argument in arguments)
    return [place for place in places if (folder / place).exists()]


def asked_for(config: pytest.Config, arguments: Iterable[str], test: str) -> bool:
    """Return whether a test of this id would lie in what the arguments name."""
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
    """Return whether a test gets a package's fixture of this name, by itself or by way of another of that
    name. A project that never heard of us may have one of its own, or a parameter.
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

    def __init__(self, asked: Sequence[str], file: Path, *, recorded: bool) -> None:
        self._asked, self._recorded = asked, recorded
        self._wanted = frozenset(file.read_text("utf-8").splitlines())
        self._report = file.with_suffix(UNTIMED) if recorded else None
        self._params: dict[str, Any] = {}
        """Parameters of each benchmark that was collected, by node id."""
        self._untimed: dict[str, dict[str, Any]] = {}
        """Reason and more of each benchmark that has no time, by node id."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen, others = [], []
        for item in items:
            if self._is_asked_for(config, item):
                self._params[item.nodeid] = params_of(item)
                if not self._wanted or item.nodeid in self._wanted:
                    chosen.append(item)
                    continue
                # It is named all the same, as the names of cases depend on the others of the file.
                self._leave_out(item.nodeid, "It was not asked for.", skipped=True)
            others.append(item)
        items[:] = chosen
        config.hook.pytest_deselected(items=others)
        if config.pluginmanager.hasplugin("timeout"):
            for item in chosen:
                # A call waits until the other side has measured; the comparison has a time limit of its own.
                item.add_marker(pytest.mark.timeout(0), append=False)

    def _is_asked_for(self, config: pytest.Config, item: pytest.Item) -> bool:
        return (
            asks_for("benchmark", item, "pytest_benchmark.")
            and asks_for("gpu_benchmark", item) == self._recorded
            and (config.option.pyargs or asked_for(config, self._asked, item.nodeid))
        )

    def _leave_out(self, test: str, why: str, *, skipped: bool) -> None:
        told = {"fullname": test, "params": self._params[test], "why": why, "skipped": skipped}
        self._untimed.setdefault(test, told)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self._params:
            return
        if report.skipped:
            reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
            why = str(getattr(report, "wasxfail", reason)).removeprefix("Skipped: ")
            self._leave_out(report.nodeid, why, skipped=True)
        elif report.failed:
            self._leave_out(report.nodeid, _why(report), skipped=False)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_generate_machine_info(self) -> dict[str, Any]:
        """Return the machine without its processor, which takes pytest-benchmark a second to find out about.
        The comparison knows it.
        """
        facts = {name: getattr(platform, name)() for name in _MACHINE}
        return {**facts, "cpu": {}}

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        # A test may fail after its benchmark: then its time is that of code that does not work.
        timed = output_json["benchmarks"]
        timed[:] = [each for each in timed if each["fullname"] not in self._untimed]
        names = {each["fullname"] for each in timed}
        for test in self._params.keys() - names - self._untimed.keys():
            self._leave_out(test, "The test called no benchmark.", skipped=True)
        output_json["harness_untimed"] = list(self._untimed.values())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        if session.exitstatus in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.OK  # the file tells which have failed
        if self._report:
            self._report.write_text(json.dumps(list(self._untimed.values()), default=str), "utf-8")
        return (yield)


def _why(report: pytest.TestReport) -> str:
    """``AssertionError: assert 1 == 2``, with the phase where it was not the test itself."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr)
    lines = message.strip().splitlines() or [""]
    return lines[0] if report.when == "call" else f"{lines[0]} (in {report.when})"
