"""The pytest plugin: cases of the project's suites as tests, on top of pytest-benchmark::

    def test_kernel(gpu_benchmark, gpu_case):
        gpu_benchmark(gpu_case)

Every pytest session of an environment loads this module, so it imports nothing but pytest until a test asks
for one of its fixtures.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest

from harness.integrations.pytest import slot
from harness.integrations.pytest.function_verdicts import FunctionVerdicts
from harness.integrations.pytest.on_benchmark import OnBenchmark, keep_warnings_harmless

if TYPE_CHECKING:
    from harness.integrations.pytest.session import CaseRunner, CaseSide, GpuCase
    from harness.records.record_files import ComparisonResult
    from harness.records.types import DeviceInfo, Verdict
    from harness.run.pair_session import CompareObserver, Purpose

MARKER = (
    "gpu_cases(*kernels, sizes, quick, margin, tolerance, requires, l2): which cases of the project's suites "
    "gpu_case stands for, by globs of kernels, and how they are measured; margin and tolerance in percent"
)


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


def _value(metavar: str, text: str, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": text, **more}


_REPEATABLE: dict[str, Any] = {"action": "append", "default": []}
_OPTIONS = {
    "--perf-device": _value("SPEC", "cuda:0, opencl:0, cpu:0 or null; default: the first that works."),
    "--perf-gpus": _value("all|0,1", "Like cards of this machine that share the work of --perf-base."),
    "--perf-size": _value("N|MxNxK", "One number for every axis, or one an axis; repeatable.", **_REPEATABLE),
    "--perf-quick": _flag("The suites' small sizes; the default on a CPU."),
    "--perf-graph": _flag("Run each case of a suite by replay of a CUDA graph too, as with --graph."),
    "--perf-base": _value(
        "REV", "Compare the working tree with this commit: paired, benchmark by benchmark."
    ),
    "--perf-gate": _flag(
        "Fail where --perf-base finds a benchmark slower or gone, or --benchmark-compare one gone."
    ),
    "--perf-fail-on": _value(
        "VERDICT",
        "Verdicts that fail the gate; repeatable. Default: all but improvement and new.",
        **_REPEATABLE,
    ),
    "--perf-outputs": _value(
        "check|note",
        "What becomes of a function whose outputs differ from base's: it fails, or that is noted.",
        choices=("check", "note"),
    ),
    "--perf-budget": _value(
        "SECONDS",
        "Time after which no process of a comparison of functions is begun; what is open is inconclusive.",
        type=float,
    ),
    "--perf-explain": _flag("Name the cause of each regression by hardware counters and compiled code."),
    "--perf-no-wait": _flag("Fail where another process measures on the device, instead of waiting for it."),
    "--perf-profile-wall": _flag("Print the wall time of each stage of the measurements of suites."),
    "--perf-any-machine": _flag("Let --benchmark-compare show times of another card, or of another driver."),
    slot.OPTION: {"help": argparse.SUPPRESS},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu-harness", "GPU benchmarks (gpu-harness)")
    for name, how in _OPTIONS.items():
        group.addoption(name, **how)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if in_slot := slot.prepare(config):
        config.pluginmanager.register(in_slot, "gpu-harness-slot")
    _check_options(config)
    session = GpuSession(config)
    config.pluginmanager.register(session, "gpu-harness-session")
    if session.option("perf_base") is not None:
        config.pluginmanager.register(session.functions, "gpu-harness-functions")
    has_benchmark = config.getoption("benchmark_storage", None) is not None
    if has_benchmark:
        keep_warnings_harmless()  # pytest restores its filters; pytest-benchmark is configured after this
    fixture = OnBenchmark(session) if has_benchmark else WithoutBenchmark()
    config.pluginmanager.register(fixture, "gpu-harness-fixture")


def _check_options(config: pytest.Config) -> None:
    """Raise UsageError for invalid options, and for options that exclude each other."""
    base, gate, fail_on = (config.getoption(f"perf_{name}") for name in ("base", "gate", "fail_on"))
    if gate and base is None and not config.getoption("benchmark_compare", None):
        raise pytest.UsageError(
            "--perf-gate has nothing to judge by: give --perf-base REV, or --benchmark-compare."
        )
    if fail_on:
        _check_verdicts(fail_on, gate=gate)
    disabled = config.getoption("benchmark_disable", None) and not config.getoption("benchmark_enable", None)
    if base is not None and disabled:
        raise pytest.UsageError("--perf-base compares times, and --benchmark-disable takes none: drop one.")
    if (budget_s := config.getoption("perf_budget")) is not None and not budget_s > 0:
        raise pytest.UsageError(f"--perf-budget {budget_s:g}: expected a number of seconds above 0.")
    distributed = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    given = [name for name in _OPTIONS if config.getoption(name)]
    if distributed and given:
        raise pytest.UsageError(f"{given[0]} cannot be used with pytest-xdist: {GpuSession.NO_XDIST}")
    if device := config.getoption("perf_device"):
        _check_device(device)
    if gpus := config.getoption("perf_gpus"):
        _check_cards(gpus, device, base)


def _check_device(spec: str) -> None:
    from harness.device.backends import parse_spec
    from harness.errors import UsageError

    try:
        parse_spec(spec)
    except UsageError as error:
        raise pytest.UsageError(f"--perf-device: {error.message}") from None


def _check_cards(gpus: str, device: str | None, base: str | None) -> None:
    from harness.errors import UsageError
    from harness.run.several_cards import specs_of

    if device:
        raise pytest.UsageError("--perf-gpus and --perf-device exclude each other: give one of them.")
    if base is None:
        raise pytest.UsageError(
            "--perf-gpus shares out the comparison of --perf-base, and without it tests are measured one by "
            "one: give --perf-base REV, or --perf-device."
        )
    try:
        specs_of(gpus)
    except UsageError as error:
        raise pytest.UsageError(f"--perf-gpus: {error.message}") from None


def _check_verdicts(fail_on: list[str], *, gate: bool) -> None:
    from harness.errors import FAILING

    if not gate:
        raise pytest.UsageError("--perf-fail-on says which verdicts fail the gate: give --perf-gate as well.")
    unknown = [name for name in fail_on if name not in (*FAILING, "none")]
    if unknown:
        raise pytest.UsageError(
            f"--perf-fail-on {unknown[0]}: there is no such verdict. Expected {', '.join(FAILING)}, or none."
        )


class Baseline(NamedTuple):
    """The card and our benchmarks in a file saved by pytest-benchmark.

    `card` is empty if the file names none.
    """

    card: Mapping[str, Any]
    names: tuple[str, ...]


def baseline_of(content: dict[str, Any]) -> Baseline | None:
    """Return the baseline in a saved file, or None if the file has no benchmark of ours.

    The card is removed from the content. pytest-benchmark warns about any difference, and would compare it
    before this session's card is known.
    """
    card = content.get("machine_info", {}).pop("gpu", None)
    names = tuple(
        str(each.get("fullname"))
        for each in content.get("benchmarks", ())
        if "harness_version" in (each.get("extra_info") or {})
    )
    return Baseline(card if isinstance(card, dict) else {}, names) if names else None


class MissingBenchmark(pytest.Item):
    """A benchmark that a baseline has and this session lacks, as a failing test.

    As a test it obeys -k, -m and --deselect like any other, and has its line in pytest's summary.
    """

    fixturenames = ("benchmark",)
    """Fixture by which pytest-benchmark recognizes benchmarks."""
    funcargs: ClassVar[dict[str, Any]] = {}
    """An attribute that pytest-benchmark 5.0.0 expects."""

    @classmethod
    def like(cls, nodeid: str, session: pytest.Session, items: Sequence[pytest.Item]) -> MissingBenchmark:
        """Return an item of this name, with the parent and markers of the most similar test among `items`."""
        file, test = nodeid.partition("::")[0], nodeid.partition("[")[0]
        relatives = [item for item in items if item.nodeid.partition("[")[0] == test]
        near = next((item for item in [*relatives, *items] if item.nodeid.partition("::")[0] == file), None)
        module = near.getparent(pytest.Module) if near else None
        name = nodeid.rpartition("::")[2]
        made: MissingBenchmark = cls.from_parent(module or session, name=name, nodeid=nodeid)
        made.own_markers += [mark for item in relatives[:1] for mark in item.own_markers]
        made.extra_keyword_matches.update(Path(file).parts)
        return made

    def runtest(self) -> None:
        pytest.fail(
            "missing: the baseline has this benchmark and this run has not. It was renamed or removed, or is "
            "measured at other sizes now.",
            pytrace=False,
        )

    def reportinfo(self) -> tuple[str, None, str]:
        return self.nodeid.partition("::")[0], None, self.name


_STAND_INS = str.maketrans("@=,", ":/+")
"""Characters that pytest's -k cannot parse, and their replacements in its expression and in names."""
CaseKey = tuple[str, str, str]
"""File and class, function, label."""


class GpuSession:
    """Hooks and fixtures of one session."""

    NO_XDIST = "GPU benchmarks cannot share a card. Run them in one process: -n 0, or -p no:xdist."

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reported: set[tuple[str, str]] = set()
        """Comparison and case of the failing verdicts that a test has reported."""
        self._problems: dict[str, None] = {}
        """Problems found during collection, reported at its end."""
        self._baselines: list[Baseline] = []
        self._cases: dict[CaseKey, GpuCase] = {}
        self.started: CaseRunner | None = None
        """The runner of cases, once a test has asked for it."""
        self.has_tests = False
        """True once a test with gpu_benchmark was collected."""
        self.notes: dict[str, str] = {}
        """Sentences for the end of the session, by subject."""
        self.clocks: dict[str, list[str]] = {}
        """The tests in which each clock has timed a function, by the clock's description."""
        self.functions = FunctionVerdicts(self)
        self._lines: list[str] = []
        """Reasons why the gate fails that belong to no single test."""
        self._passes = False

    def option(self, name: str) -> Any:
        return self.config.getoption(name, None)

    @property
    def in_worker(self) -> bool:
        """Return whether this process is a pytest-xdist worker."""
        return hasattr(self.config, "workerinput")

    @property
    def skipped(self) -> bool:
        """Return whether pytest-benchmark skips all benchmarks."""
        return bool(self.option("benchmark_skip") and not self.option("benchmark_only"))

    @property
    def measures(self) -> bool:
        """Return whether this process measures anything."""
        return not (self.skipped or self.in_worker or self.option("collectonly"))

    @property
    def progress(self) -> CompareObserver:
        return _PytestProgress(self.config)

    @property
    def runner(self) -> CaseRunner:
        """Return the runner of cases. The first call creates it."""
        if self.started is None:
            from harness.integrations.pytest.session import CaseRunner

            blind = self.in_worker or self.skipped
            observing = partial(_PytestProgress, self.config)
            self.started = CaseRunner(self.option, observing, self.config.rootpath, blind=blind)
            self.config.add_cleanup(self.started.close)
        return self.started

    # Collecting tests

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if not slot.asks_for("gpu_case", metafunc.definition):
            return
        if self.option("perf_slot"):
            metafunc.parametrize("gpu_case", [])  # one session compares all kernels
            return
        from harness.errors import HarnessError
        from harness.integrations.pytest.session import case_options

        definition = metafunc.definition
        try:
            wanted = case_options(definition.iter_markers("gpu_cases"))
            cases = self.runner.cases(definition.path.parent, wanted)
        except HarnessError as error:
            self._problems["\n".join(filter(None, [error.message, error.log]))] = None
            return
        for case in cases:
            self._cases[_place(definition, case.label)] = case
        if self.option("perf_base") is None or "gpu_side" not in metafunc.fixturenames:
            labels = [case.label for case in cases if case.head]
            metafunc.parametrize("gpu_case", labels, indirect=True, ids=labels)
        else:
            sides = [(case.label, side) for case in cases for side in case.sides]
            names = ["-".join(each) for each in sides]
            metafunc.parametrize(("gpu_case", "gpu_side"), sides, indirect=True, ids=names)

    @pytest.fixture
    def gpu_case(self, request: pytest.FixtureRequest) -> GpuCase:
        """A case of one of the project's suites: a kernel at a size. The test runs once for each."""
        return self._cases[_place(request.node, request.param)]

    @pytest.fixture
    def gpu_side(self, request: pytest.FixtureRequest) -> CaseSide | None:
        """The side that a test shows with --perf-base, base or head; else None."""
        return getattr(request, "param", None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        if self._problems:
            raise pytest.UsageError(*self._problems)
        if self.option("perf_slot"):
            self.has_tests = True
            items[:] = [item for item in items if not slot.asks_for("gpu_case", item)]
        for item in items:
            # Without pytest-benchmark there is no such marker, and the fixture reports that.
            if slot.asks_for("gpu_benchmark", item) and "benchmark" in getattr(item, "fixturenames", ()):
                self._prepare(item)
        if self.option("perf_gate"):
            collected = {item.nodeid for item in items}
            saved = dict.fromkeys(name for baseline in self._baselines for name in baseline.names)
            gone = [
                name
                for name in saved
                if name not in collected and slot.asked_for(self.config, self.config.args, name)
            ]
            items.extend([MissingBenchmark.like(name, session, items) for name in gone])
        self._let_k_name_cases(items)

    def _let_k_name_cases(self, items: Sequence[pytest.Item]) -> None:
        """Let -k accept the id of a case as it is printed, although pytest cannot parse all of its
        characters.
        """
        asked = self.option("keyword") or ""
        if not self._cases or asked == (legal := asked.translate(_STAND_INS)):
            return
        self.config.option.keyword = legal
        for item in items:
            case = self._case_of(item)
            names = [item.name, *([case.case.id] if case else [])]
            item.extra_keyword_matches.update(name.translate(_STAND_INS) for name in names)

    def _prepare(self, item: pytest.Item) -> None:
        """Give the test the device's clock. Other settings of its own marker stay."""
        from harness.integrations.pytest.fixture import device_clock

        self.has_tests = True
        case = self._case_of(item)
        paired = self.option("perf_base") is not None
        group = case and (case.label if paired else f"{case.case.suite}@{case.case.size_label}")
        own = item.get_closest_marker("benchmark")
        kwargs = {"group": group, **(own.kwargs if own else {}), "timer": device_clock}
        item.add_marker(pytest.mark.benchmark(**kwargs), append=False)
        # The harness has a time limit per case. A comparison of all cases happens in the first one's test.
        has_timeout = self.config.pluginmanager.hasplugin("timeout")
        if case and has_timeout and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(0))

    def _case_of(self, item: pytest.Item) -> GpuCase | None:
        label = slot.params_of(item).get("gpu_case")
        return self._cases.get(_place(item, label)) if isinstance(label, str) else None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Store the tests that remain after -k and similar options, for the comparison."""
        cases = [case for item in session.items if (case := self._case_of(item))]
        if self.option("perf_base") is not None:
            for case in cases:
                self.runner.select(case)
        if cases and self.measures:
            self._check_baselines(cases[0])
            self._check_histogram()

    # pytest-benchmark's baselines

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_compare_machine_info(self, compared_benchmark: dict[str, Any]) -> None:
        self._baselines += filter(None, [baseline_of(compared_benchmark)])

    def _check_baselines(self, case: GpuCase) -> None:
        """Raise UsageError if a baseline is another card's."""
        if not self._baselines or self.option("perf_any_machine"):
            return
        from harness.errors import HarnessError
        from harness.integrations.pytest.report import card_of, other_card

        try:
            own = card_of(self.runner.device(case.config))
        except HarnessError:
            return  # every test will report it
        for baseline in self._baselines:
            if why := other_card(baseline.card, own):
                raise pytest.UsageError(
                    f"The baseline of --benchmark-compare says nothing about the code. {why} Save one here, "
                    "measure both commits here with --perf-base REV, or give --perf-any-machine."
                )

    def _check_histogram(self) -> None:
        """Raise UsageError if pytest-benchmark cannot draw.

        It would report that only after the last measurement, and end the session without its tables.
        """
        if not self.option("benchmark_histogram"):
            return
        try:
            import_module("pytest_benchmark.histogram")
        except ImportError as error:
            raise pytest.UsageError(f"--benchmark-histogram cannot draw. {error.args[-1]}.") from None

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        if self.started and (device := self.started.seen_device):
            from harness.integrations.pytest.report import card_of

            machine_info["gpu"] = card_of(device)

    # The gate, and the output at the end

    @property
    def _judges(self) -> bool:
        elsewhere = self.option("collectonly") or self.in_worker
        return bool(self.option("perf_gate") and not elsewhere)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session for reasons that belong to no test."""
        if self._judges and self.option("perf_base") is not None and not session.exitstatus:
            self._lines = [*self._untold()]
        if self._lines:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._passes = session.exitstatus == pytest.ExitCode.OK or not self._gate_fails()

    def _untold(self) -> Iterator[str]:
        if self._nothing_compared:
            some = any(self._compared)
            why = "none of them was measured at both." if some else self.functions.why_none
            yield f"No benchmark was compared with {self.option('perf_base')}: {why}"
        if self.functions.problem:
            yield self.functions.problem
        for result, names in self._compared:
            if result.problem:
                yield "The record of the comparison is not whole."
            for verdict in self._failing(result):
                if (result.comparison.run_id, verdict.case) not in self.reported:
                    yield f"{verdict.status} {names[verdict.case]}: none of the tests that ran says so."

    @property
    def _compared(self) -> Iterator[tuple[ComparisonResult, Mapping[str, str]]]:
        """Yield the comparisons so far, each with the names of its cases."""
        for result, cases in self.started.compared if self.started else ():
            yield result, {name: case.label for name, case in cases.items()}
        yield from self.functions.results

    def _failing(self, result: ComparisonResult) -> list[Verdict]:
        return [verdict for verdict in result.verdicts if self.fails(verdict)]

    def fails(self, verdict: Verdict) -> bool:
        """Return whether a verdict fails its test: by the gate, or without it only if head does not work."""
        from harness.report.terminal.comparison_tables import fails

        if self.option("perf_gate"):
            return fails(verdict, self.option("perf_fail_on"))
        return verdict.status == "failed" and verdict.side != "base"

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, object, object]:
        """Write our sections after pytest-benchmark's wide tables, and before pytest's own summary."""
        try:
            return (yield)
        finally:
            self._write_sections(terminalreporter)

    def _write_sections(self, terminalreporter: pytest.TerminalReporter) -> None:
        runner, width = self.started, shutil.get_terminal_size().columns
        if runner and runner.measured:
            from harness.integrations.pytest.report import row_lines

            _write(terminalreporter, "GPU benchmarks", row_lines([*runner.measured.values()], width))
        if self._judges:
            _write(terminalreporter, "GPU performance gate", [*self._gate_section(width)])
        elif any(self._compared):
            title = f"GPU benchmarks against {self.option('perf_base')}"
            _write(terminalreporter, title, [*self._gate_section(width)])
        _write(terminalreporter, "Clocks of functions", [*self._clock_lines()])
        _write(terminalreporter, "Notes on GPU benchmarks", [*self.notes.values()])
        if runner and runner.notes:
            _write(terminalreporter, "GPU suites left out", [*runner.notes])
        if runner and self.option("perf_profile_wall"):
            from harness.run.wall_time import wall_time_lines

            _write(terminalreporter, "Wall time of GPU benchmarks", [*wall_time_lines(runner.results)])

    def _clock_lines(self) -> Iterator[str]:
        for words, tests in self.clocks.items():
            others = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
            yield f"{tests[0]}{others}: {words}."

    def _gate_section(self, width: int) -> Iterator[str]:
        if self.option("perf_base") is None:
            yield "Times of another session are not judged: only benchmarks that are gone fail. To"
            yield "judge the code, measure both commits in one session with --perf-base REV."
            if not self._baselines:
                yield "No saved run with GPU benchmarks was found. Save one with --benchmark-save NAME."
            return
        for result, names in self._compared:
            from harness.integrations.pytest.report import comparison_lines

            yield from comparison_lines(result, names, width)
        yield from self._lines
        if self.option("perf_gate"):
            yield f"The gate {'passes' if self._passes else 'fails'}."

    def _gate_fails(self) -> bool:
        """Return whether the gate is one of the reasons why the session fails."""
        broken = bool(self.started and self.started.broken) or bool(self.functions.problem)
        if self._nothing_compared or self._lines or broken:
            return True
        return any(result.interrupted or self._failing(result) for result, _ in self._compared)

    @property
    def _nothing_compared(self) -> bool:
        from harness.records.types import nothing_compared

        return nothing_compared(each.status for result, _ in self._compared for each in result.verdicts)


class WithoutBenchmark:
    @pytest.fixture
    def gpu_benchmark(self) -> None:
        """Verify a case on the device and time it: needs pytest-benchmark, which is not installed."""
        pytest.fail("gpu_benchmark needs pytest-benchmark: pip install 'gpu-harness[pytest]'.", pytrace=False)


class _PytestProgress:
    """Shows the progress of a comparison among pytest's own lines."""

    _turn: ClassVar[threading.Lock] = threading.Lock()
    """Lock that lets one card's thread write at a time, because pytest captures output per process."""

    def __init__(self, config: pytest.Config, card: str = "") -> None:
        self._config, self._prefix = config, f"{card}: " if card else ""

    def opened(self, device: DeviceInfo) -> None:
        self._say(f"Device: {device.spec}, {device.name}")

    def waiting(self, sentence: str) -> None:
        self._say(self._prefix + sentence, quiet=False)

    def process(self, number: int, cases: int, purpose: Purpose) -> None:
        from harness.run.pair_session import PURPOSES

        what = PURPOSES[purpose]
        self._say(f"{self._prefix}process {number}{what}: {cases} case{'s' if cases > 1 else ''}")

    def _say_nothing(self, *_: object) -> None:
        pass

    stage = started = measured = _say_nothing

    def _say(self, line: str, *, quiet: bool = True) -> None:
        """Write a line; with `quiet`, not under -q."""
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        if reporter is None or (quiet and self._config.get_verbosity() < 0):
            return
        disabled = capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
        with self._turn, disabled:
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()  # waiting is reported in a log too


def _place(node: Any, label: str) -> CaseKey:
    """Return a case of one test function. `node` is one of its items, or its definition."""
    return node.parent.nodeid, getattr(node, "originalname", None) or node.name, label


def _write(reporter: pytest.TerminalReporter, title: str, lines: Sequence[str]) -> None:
    if lines:
        reporter.section(title)
    for line in lines:
        reporter.write_line(line)
