"""The measurements of one pytest session: single cases, or a whole suite against another commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from harness.config import Config, has_settings, load_config
from harness.device.lock import Busy
from harness.errors import HarnessError, UsageError
from harness.measure.timing import MeasureSettings
from harness.records.record_files import ComparisonResult, RunResult
from harness.records.types import DeviceInfo, L2Policy, Row, Run
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.run.device_session import find_device
from harness.run.pair_session import CompareObserver
from harness.run.run import Session, SessionSettings
from harness.run.several_cards import Card, CaseOfSuite, cases_of, find_cards, specs_of, spread
from harness.suite import planning
from harness.suite.planning import PlannedCase, SuitePair
from harness.suite.problem import Case
from harness.system.process import begin_ready

CaseSide = Literal["base", "head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOptions:
    patterns: tuple[str, ...] = ()
    """Globs of kernels; empty for all."""
    sizes: tuple[str, ...] = ()
    quick: bool = False
    margin: float | None = None
    tolerance: float | None = None
    """A share, like the margin; None for the device's default."""
    requires: str | None = None
    l2: L2Policy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCase:
    """A case from the fixture gpu_case: at base, at head, or both."""

    label: str = ""
    """Label, such as ``matmul.naive@512``; with its axes if they distinguish it from another."""
    config: Config
    pair: SuitePair
    """The suites of both sides; twice the working tree's without a comparison."""
    base: PlannedCase | None = None
    head: PlannedCase | None = None
    options: CaseOptions

    @property
    def planned(self) -> PlannedCase:
        """Return the case at head, or at base if only base has it."""
        planned = self.head or self.base
        assert planned is not None
        return planned

    @property
    def case(self) -> Case:
        """Return the case itself, with axis sizes and macros as attributes."""
        return self.planned.case

    @property
    def judged(self) -> CaseSide:
        """Return the side whose test reports the verdict: head, or base for a missing case."""
        return "head" if self.head else "base"

    @property
    def sides(self) -> tuple[CaseSide, ...]:
        both: tuple[CaseSide, ...] = ("base", "head")
        return tuple(side for side in both if getattr(self, side))


def case_options(marks: Iterable[pytest.Mark]) -> CaseOptions:
    """Return the options in a test's gpu_cases markers. The closest marker has priority. Raises
    UsageError.
    """
    options = CaseOptions()
    for mark in reversed([*marks]):
        if not all(isinstance(pattern, str) for pattern in mark.args):
            raise UsageError(f"gpu_cases{mark.args!r}: expected names of kernels, such as 'matmul.*tiling*'.")
        if mark.args:
            options = replace(options, patterns=mark.args)
        for name, value in mark.kwargs.items():
            if name not in _KEYWORDS:
                raise UsageError(f"gpu_cases has no {name!r}; it has {', '.join(_KEYWORDS)}.")
            expected, fits, read = _KEYWORDS[name]
            if not fits(value):
                raise UsageError(f"gpu_cases has {name}={value!r}; expected {expected}.")
            options = replace(options, **{name: read(value)})
    return options


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _are_sizes(value: Any) -> bool:
    sizes = _listed(value)
    return bool(sizes) and all(isinstance(size, int | str) and not isinstance(size, bool) for size in sizes)


_PERCENT = (
    "percent, above 0 and below 100",
    lambda value: type(value) in (int, float) and 0 < value < 100,
    lambda value: value / 100,
)
_KEYWORDS: Mapping[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sizes": (
        "sizes, such as [512] or ['500,300,700']",
        _are_sizes,
        lambda value: tuple(map(str, _listed(value))),
    ),
    "quick": ("True or False", lambda value: isinstance(value, bool), bool),
    "margin": _PERCENT,
    "tolerance": _PERCENT,
    "requires": (
        "a compute capability, such as 'sm_80'",
        lambda value: isinstance(value, str) and re.fullmatch(r"sm_\d{2,}", value),
        str,
    ),
    "l2": ("'cold' or 'hot'", lambda value: value in ("cold", "hot"), str),
}
"""Keywords of gpu_cases, each with a description of its value, a test of a value, and its conversion."""


class MeasuredCase(NamedTuple):
    case: GpuCase
    row: Row
    run: Run


@dataclass(slots=True)
class _Batch:
    """Cases that are compared together: in one comparison, or in one on each of several cards."""

    wanted: dict[str, GpuCase] = field(default_factory=dict)
    results: tuple[ComparisonResult, ...] = ()
    error: HarnessError | None = None
    """Error of cases without a result; None before the comparison, and if every case has a result."""

    def result_of(self, case: str) -> ComparisonResult:
        """Return the result that contains a case. Raises the error of a case without a result."""
        for result in self.results:
            if any(verdict.case == case for verdict in result.verdicts):
                return result
        if self.error is not None:
            raise self.error
        return self.results[0]  # it is not for this device


class _Silent:
    """Reports only waiting, because pytest itself shows the finished tests."""

    def __init__(self, waiting: Callable[[str], None]) -> None:
        self.waiting = waiting

    def _say_nothing(self, *_: object) -> None:
        pass

    opened = stage = started = finished = _say_nothing


Observing = Callable[[str], CompareObserver]
"""Returns the observer for a card by its spec; for a single device without a spec."""


def spec_of(option: Callable[[str], Any], config: Config) -> str | None:
    """Return the spec of the device, or of the first card of --perf-gpus; None for the first that works."""
    if gpus := option("perf_gpus"):
        return (specs_of(gpus) or ("cuda:0",))[0]
    return option("perf_device") or config.device


class CaseRunner:
    """Measures the cases of a session.

    `option` returns the value of a pytest option by name. `root` is the folder of a project without a
    configuration file. `blind` looks for no device, and uses the small sizes: then nothing will be measured.
    """

    def __init__(
        self, option: Callable[[str], Any], observing: Observing, root: Path, *, blind: bool
    ) -> None:
        self.option = option
        self._base: str | None = option("perf_base")
        """Revision to compare with; None measures only the working tree."""
        self._busy: Busy = "fail" if option("perf_no_wait") else "wait"
        self._root = root
        self.measured: dict[str, MeasuredCase] = {}
        """Cases measured without a comparison, by the node id of their test."""
        self.notes: dict[str, None] = {}
        """Sentences on why suites were left out."""
        self._observing, self._observer = observing, observing("")
        self._blind = blind
        self._pairs: dict[Config, list[SuitePair]] = {}
        self._devices: dict[str | None, DeviceInfo | HarnessError] = {}
        self._cards: list[Card] = []
        self._batches: dict[Hashable, _Batch] = {}
        self._stack = ExitStack()
        self._session: tuple[Hashable, Session] | None = None
        self._last: list[RunResult] = []
        """The last result of each session, which has the wall time of all results before it."""

    def cases(self, folder: Path, wanted: CaseOptions) -> list[GpuCase]:
        """Return the cases of a test in a folder, suite by suite in ladder order. Raises UsageError.

        Settings come from the nearest file upwards, else from pytest's root folder.
        """
        config = load_config(folder)
        config = config if has_settings(config.root) else load_config(self._root)
        pairs = self._suites(config)
        planning.check_patterns(wanted.patterns, [side.suite for pair in pairs for side in pair])
        sizes_asked = self.option("perf_size") or wanted.sizes
        asked = planning.fitting(pairs, wanted.patterns, sizes_asked)
        self.notes |= dict.fromkeys(asked.left_out)
        quick = not sizes_asked and self._quick(config, wanted)
        found: dict[str, GpuCase] = {}
        for pair, sizes in asked.chosen:
            for base, head in self._planned(pair, sizes, wanted, quick=quick):
                case = GpuCase(config=config, pair=pair, base=base, head=head, options=wanted)
                label = case.case.short_id if case.case.short_id not in found else case.case.id
                if label in found:
                    raise UsageError(f"Two suites have a case {label}: give one of them another name.")
                found[label] = replace(case, label=label)
        return list(found.values())

    def _suites(self, config: Config) -> list[SuitePair]:
        if config not in self._pairs:
            begin_ready()
            self._pairs[config] = (
                [SuitePair(loaded, loaded) for loaded in planning.load_suites(config)]
                if self._base is None
                else planning.load_pairs(config, self._base)
            )
        return self._pairs[config]

    def _quick(self, config: Config, wanted: CaseOptions) -> bool:
        if self._blind or self.option("perf_quick") or wanted.quick:
            return True
        try:
            return self.device(config).kind != "gpu"
        except HarnessError:
            return True  # every test will report why it cannot measure

    def _planned(
        self, pair: SuitePair, sizes: Sequence[str], wanted: CaseOptions, *, quick: bool
    ) -> Iterator[tuple[PlannedCase | None, PlannedCase | None]]:
        """Yield every case at base and at head; without a base, only of the working tree."""
        plans = pair.plans(wanted.patterns, sizes, quick=quick, graph=self.option("perf_graph"))
        base, head = ({each.case.id: _requiring(each, wanted.requires) for each in plan} for plan in plans)
        for name in dict.fromkeys([*head, *base]):
            yield None if self._base is None else base.get(name), head.get(name)

    @property
    def cards(self) -> list[Card]:
        """Return the cards of --perf-gpus; none without it. Raises UsageError for different cards,
        DeviceError.
        """
        if not self._cards and (gpus := self.option("perf_gpus")):
            found = find_cards(gpus)
            if len({card.model for card in found}) > 1:
                listed = "; ".join(f"{card.device.spec} is {', '.join(card.model)}" for card in found)
                raise UsageError(
                    f"--perf-gpus {gpus} names unlike cards, and a test has one verdict: {listed}. Name "
                    "cards that are alike."
                )
            self._cards = found
        return self._cards

    def device(self, config: Config) -> DeviceInfo:
        """Return the device for a project; of several similar cards, the first.

        Raises UsageError, DeviceError.
        """
        if self.cards:
            return self.cards[0].device
        spec = spec_of(self.option, config)
        if spec not in self._devices:
            try:
                self._devices[spec] = find_device(spec)
            except HarnessError as error:
                self._devices[spec] = error
        if isinstance(found := self._devices[spec], HarnessError):
            raise found
        return found

    @property
    def seen_device(self) -> DeviceInfo | None:
        """Return the device that was measured on, if any."""
        found = [each.run.device for each in self.measured.values()]
        return next(iter([*found, *(result.comparison.device for result, _ in self.compared)]), None)

    def measure(self, case: GpuCase, *, test: str, timed: bool, rounds: int | None = None) -> MeasuredCase:
        """Verify the case of a test, and time it unless `timed` is false.

        It takes `rounds` slots, or as many as the harness needs. Raises HarnessError if it cannot begin.
        """
        settings = _measure_settings(case, rounds) if timed else None
        before = self._session
        result = self._open(case, settings).run([case.planned])
        if self._session is before:
            self._last.pop()
        self._last.append(result)
        if result.interrupted:
            raise KeyboardInterrupt
        [row] = result.rows
        self.measured[test] = MeasuredCase(case, row, result.run)
        return self.measured[test]

    def _open(self, case: GpuCase, measure: MeasureSettings | None) -> Session:
        """Return the session of a case's suite. One at a time is open."""
        key = (case.config, case.pair.head.path, measure)
        if self._session is None or self._session[0] != key:
            self.close()
            settings = SessionSettings(
                command="pytest",
                device=spec_of(self.option, case.config),
                measure=measure,
                timeout_s=case.config.timeout_s,
                busy=self._busy,
            )
            opened = Session(case.pair.head, settings, _Silent(self._observer.waiting))
            self._session = (key, self._stack.enter_context(opened))
        return self._session[1]

    def close(self) -> None:
        self._session = None
        self._stack.close()

    def select(self, case: GpuCase) -> _Batch:
        """Add this case to the comparison of its suite."""
        # Tests with the same options are compared together, for all their kernels and sizes.
        wanted = replace(case.options, patterns=(), sizes=(), quick=False)
        batch = self._batches.setdefault((case.config, case.pair.head.path, wanted), _Batch())
        batch.wanted[case.case.id] = case
        return batch

    def compare(self, case: GpuCase) -> ComparisonResult:
        """Return the comparison that contains a case. It runs on the first request.

        Raises HarnessError, every time, if it failed. After an interrupt its state is kept, and
        KeyboardInterrupt propagates.
        """
        batch = self.select(case)
        if not batch.results and batch.error is None:
            try:
                self._compare(batch)
            except HarnessError as error:
                batch.error = error
        found = batch.result_of(case.case.id)
        if any(result.interrupted for result in batch.results):
            raise KeyboardInterrupt
        return found

    def _compare(self, batch: _Batch) -> None:
        cases = list(batch.wanted.values())
        if not self.cards:
            batch.results = (self._compared_on(spec_of(self.option, cases[0].config), cases, self._observer),)
            return

        def listed(device: DeviceInfo) -> list[CaseOfSuite]:
            return cases_of(0, [case.planned for case in cases], device.backend)

        def measure(card: Card, _suite: int, ids: frozenset[str]) -> ComparisonResult:
            spec = card.device.spec
            return self._compared_on(spec, [c for c in cases if c.case.id in ids], self._observing(spec))

        found = spread(self.cards, listed, measure)
        batch.results = tuple(result for _, result in found.results)
        for lost in found.lost:
            self._observer.waiting(lost.message)
            batch.error = batch.error or lost.error

    def _compared_on(
        self, device: str | None, cases: Sequence[GpuCase], observer: CompareObserver
    ) -> ComparisonResult:
        config, pair, wanted = cases[0].config, cases[0].pair, cases[0].options
        settings = CompareSettings(
            device=device,
            margin=wanted.margin,
            tolerance=wanted.tolerance,
            l2=wanted.l2 or config.l2,  # type: ignore[arg-type]
            timeout_s=config.timeout_s,
            busy=self._busy,
            explain="regressions" if self.option("perf_explain") else "",
            results=config.results_folder,
        )
        with Comparing(pair.base, pair.head, settings, observer) as comparing:
            return comparing.run(
                [case.base for case in cases if case.base], [case.head for case in cases if case.head]
            )

    @property
    def results(self) -> Iterator[RunResult | ComparisonResult]:
        """Yield results with the wall time of all sessions, each once."""
        yield from self._last
        yield from (result for result, _ in self.compared)

    @property
    def broken(self) -> bool:
        """Return whether a comparison failed to run."""
        return any(batch.error is not None for batch in self._batches.values())

    @property
    def compared(self) -> Iterator[tuple[ComparisonResult, dict[str, GpuCase]]]:
        for batch in self._batches.values():
            for result in batch.results:
                yield result, batch.wanted


def _measure_settings(case: GpuCase, rounds: int | None) -> MeasureSettings:
    settings = MeasureSettings(l2=case.options.l2 or case.config.l2)  # type: ignore[arg-type]
    if rounds is None:
        return settings
    # Only the case's own time limit ends rounds that a test requested.
    return replace(settings, min_slots=rounds, max_slots=rounds, max_time_s=case.config.timeout_s)


def _requiring(planned: PlannedCase, requires: str | None) -> PlannedCase:
    """Return the case with the test's requirement, if that is stricter than its kernel's."""
    if requires is None:
        return planned
    kernel = replace(planned.kernel, requires=requires)
    own, asked = planned.kernel.capability, kernel.capability
    return planned if own and asked and own >= asked else replace(planned, kernel=kernel)
