"""Measures on several cards of this machine at once.

Cards of one model with the same settings share the cases. Of different cards, each measures all cases. Both
sides of a case are measured on one card. A thread drives each card, with its own worker processes.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from harness.device.backends import parse_spec
from harness.device.lock import identity_of
from harness.device.telemetry import probe_for
from harness.errors import DeviceError, HarnessError, MeasureError, UsageError
from harness.measure.protocol import DescribeDevices
from harness.records.record_files import ComparisonResult, RunResult
from harness.records.types import DeviceInfo, Row, Verdict
from harness.run.calibrate import CalibrationResult
from harness.run.device_session import identified
from harness.run.worker_process import OPEN_TIMEOUT_S, Pending, WorkerProcess
from harness.suite.planning import PlannedCase
from harness.suite.problem import ceil_div
from harness.system.files import scratch_folder
from harness.system.interrupts import heed
from harness.system.process import Failed

R = TypeVar("R", RunResult, ComparisonResult, CalibrationResult)

Measure = Callable[["Card", int, frozenset[str]], R]
"""Measures some cases of the suite with this number on a card."""

_SETTINGS = ("power_limit_w", "ecc", "mig", "compute_mode", "application_sm_clock_mhz")
"""Settings of a card that affect its times."""
_GLANCE_S = 0.2
"""Time between two checks for an interrupt, in seconds."""
_FIELDS = {RunResult: "rows", ComparisonResult: "verdicts"}
"""The field of a result that holds the outcome of each case."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card of this machine, with the properties that cards must share to be alike."""

    device: DeviceInfo
    model: tuple[str, ...]
    place: str
    """Its spec; on a cluster with its worker's name."""

    @property
    def label(self) -> str:
        return f"{self.place} ({self.device.name})"


class CaseOfSuite(NamedTuple):
    """A case that a card is to measure."""

    suite: int
    """Position of the suite in the command."""
    id: str
    like: tuple[str, bool]
    """Label of its size, and True if the suite's own code runs in its processes. Cases that are alike in both
    take similar time."""
    cards: int = 1
    """Cards that its kernel spans."""


class Lost(NamedTuple):
    """A card that stopped measuring, and why."""

    card: Card
    error: HarnessError
    cases: tuple[str, ...]
    """Ids of the cases that it did not measure."""
    heirs: tuple[Card, ...]
    """Cards that took over these cases; empty if there was none."""

    @property
    def message(self) -> str:
        """Return a sentence on why the card stopped, and what happened to its cases."""
        heirs = ", ".join(heir.place for heir in self.heirs)
        fate = f"went to {heirs}" if heirs else "were not measured"
        cases = f" These cases {fate}: {', '.join(self.cases)}." if self.cases else ""
        return f"{self.card.place} measured no more: {self.error.message}{cases}"


@dataclass(frozen=True, slots=True)
class CardResults(Generic[R]):
    """The results of work on several cards."""

    results: tuple[tuple[int, R], ...]
    """Results with their suite's number, ordered by suite, and by card within a suite."""
    lost: tuple[Lost, ...]


# Finding the cards


def specs_of(gpus: str) -> tuple[str, ...]:
    """Return the specs in ``0,1`` or ``cuda:0,cuda:1``; none for ``all``. Raises UsageError."""
    if gpus == "all":
        return ()
    words = [word.strip() for word in gpus.split(",")]
    if not all(words):
        raise UsageError(f"Unknown cards {gpus!r}: expected 'all', or cards such as 0,1 or cuda:0,cuda:1.")
    named = [parse_spec(f"cuda:{word}" if word.isdecimal() else word) for word in words]
    specs = [f"{backend}:{index}" for backend, index in named]
    if twice := [spec for spec, count in Counter(specs).items() if count > 1]:
        raise UsageError(f"Cards {gpus!r} hold {twice[0]} twice. Name each card once.")
    return tuple(specs)


_Described = Pending[tuple[DeviceInfo, ...]]
_described: ContextVar[tuple[str, _Described] | None] = ContextVar("described", default=None)
"""Value of --gpus, and a function that waits for the description of its cards."""


@contextmanager
def _describing(gpus: str) -> Iterator[_Described]:
    """Ask a process for the description of cards. Raises UsageError, WorkerError."""
    request = DescribeDevices(specs=specs_of(gpus))
    with scratch_folder() as scratch, closing(WorkerProcess(scratch)) as worker:
        described = worker.begin(request, OPEN_TIMEOUT_S)
        yield described


@contextmanager
def finding(gpus: str) -> Iterator[None]:
    """Describe cards while this block loads suites. `find_cards` takes the description, once.

    Raises UsageError, WorkerError.
    """
    with _describing(gpus) as described:
        before = _described.set((gpus, described))
        try:
            yield
        finally:
            _described.reset(before)


def find_cards(gpus: str) -> list[Card]:
    """Return the cards that `gpus` names, in the form that `specs_of` reads; every CUDA card for ``all``.

    Raises UsageError for an invalid name or a duplicate card, and DeviceError for a missing card.
    """
    early = _described.get()
    _described.set(None)
    with nullcontext(early[1]) if early and early[0] == gpus else _describing(gpus) as described:
        found = described(lambda _: None)
    if isinstance(found, Failed):
        raise DeviceError(found.message, log=found.log)
    cards = [_card(device) for device in found]
    first: dict[str, Card] = {}
    for card in cards:
        other = first.setdefault(identity_of(card.device), card)
        if other is not card:
            raise UsageError(
                f"{other.label} and {card.label} are the same hardware, and would disturb each other. "
                "Name each card once."
            )
    return cards


def _card(device: DeviceInfo) -> Card:
    device, settings = settings_of(device)
    return Card(device, (device.name, device.arch, *settings), device.spec)


def settings_of(device: DeviceInfo) -> tuple[DeviceInfo, tuple[str, ...]]:
    """Return a device with its driver's facts, and the settings that cards must share to be alike."""
    with closing(probe_for(device)) as probe:
        facts = probe.identity()
    device = identified(device, facts)
    settings = (f"{name} {facts[name]}" for name in _SETTINGS if name in facts)
    return device, (f"{device.memory_bytes} bytes", *settings)


def alike(cards: Sequence[Card]) -> list[tuple[Card, ...]]:
    """Return the cards in groups of one model."""
    return [
        tuple(card for card in cards if card.model == model)
        for model in dict.fromkeys(c.model for c in cards)
    ]


# Assigning cases to cards


def cases_of(suite: int, planned: Iterable[PlannedCase], backend: str) -> list[CaseOfSuite]:
    """Return the planned cases of a suite, each once."""
    found = {
        each.case.id: CaseOfSuite(
            suite,
            each.case.id,
            (each.case.size_label, each.kernel.runs_on_host(backend)),
            each.kernel.cards,
        )
        for each in planned
    }
    return list(found.values())


def assign(cases: Collection[CaseOfSuite], cards: Collection[Card]) -> dict[Card, list[CaseOfSuite]]:
    """Return the cases of each card. No card gets more than its share of similar cases, rounded up.

    Within that limit only a case's id and a card's identity decide. So a case goes to the same card in the
    next run, and a new case moves few others.
    """
    found: dict[Card, list[CaseOfSuite]] = {card: [] for card in cards}
    counts = Counter(case.like for case in cases)
    room = {(card, like): ceil_div(count, len(cards)) for card in cards for like, count in counts.items()}
    for case in sorted(cases, key=attrgetter("id")):
        free = [card for card in cards if room[card, case.like]]
        chosen = max(free, key=lambda card: _draw(case, card))
        room[chosen, case.like] -= 1
        found[chosen].append(case)
    return found


def _draw(case: CaseOfSuite, card: Card) -> bytes:
    return hashlib.sha256(f"{case.id} {identity_of(card.device)}".encode()).digest()


class _Sharing:
    """The cases that each card still has to measure. It is thread-safe."""

    def __init__(
        self, groups: Iterable[Collection[Card]], listed: Callable[[DeviceInfo], Collection[CaseOfSuite]]
    ) -> None:
        self._waiting: dict[Card, list[CaseOfSuite]] = {}
        self._like: dict[Card, Collection[Card]] = {}
        for group in groups:
            self._waiting |= assign(listed(next(iter(group)).device), group)
            self._like |= dict.fromkeys(group, group)
        self._working = set(self._waiting)
        """Cards that are measuring. Such a card may be lost, and leave its cases to a similar card."""
        self._stopped = False
        self._changed = threading.Condition()

    def next(self, card: Card) -> list[CaseOfSuite]:
        """Return the cases of the next suite for a card; none if nothing is left for it.

        A card that has finished waits for similar cards that still measure.
        """
        with self._changed:
            if not self._waiting[card]:
                self._working.discard(card)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting[card] or self._is_over(card))
            if self._stopped or not self._waiting[card]:
                return []
            self._working.add(card)
            suite = min(case.suite for case in self._waiting[card])
            taken = [case for case in self._waiting[card] if case.suite == suite]
            self._waiting[card] = [case for case in self._waiting[card] if case.suite != suite]
            return taken

    def _is_over(self, card: Card) -> bool:
        """Tell whether no similar card can be lost any more and leave its cases."""
        return self._stopped or not any(
            each in self._working or self._waiting.get(each) for each in self._like[card]
        )

    def leave(
        self, card: Card, unfinished: Iterable[CaseOfSuite], *, may_pass: bool
    ) -> tuple[list[CaseOfSuite], list[Card]]:
        """Remove a card. Return the cases that it has not measured, and the similar cards that
        may take them.
        """
        with self._changed:
            left = [*unfinished, *self._waiting.pop(card)]
            self._working.discard(card)
            heirs = [each for each in self._like[card] if each in self._waiting and may_pass]
            for heir, cases in assign(left, heirs).items() if heirs else ():
                self._waiting[heir] += cases
            self._changed.notify_all()
            return left, heirs

    def stop(self) -> None:
        """Stop handing out cases."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


# The threads


class _Driver(threading.Thread, Generic[R]):
    """Makes one card measure its cases, suite by suite."""

    def __init__(self, card: Card, sharing: _Sharing, measure: Measure[R]) -> None:
        super().__init__(name=card.place, daemon=True)
        self._card, self._sharing = card, sharing
        self._measure: Measure[R] = measure
        self.results: list[tuple[int, R]] = []
        """Results with their suite's number."""
        self.lost: Lost | None = None
        self.error: BaseException | None = None
        """An interrupt, or an internal error of the harness."""
        self.ended = threading.Event()
        """Set at the end. `join` does not work here: if interrupted, it can mark a running thread
        as ended."""
        self.interrupt = threading.Event()
        """Set to make this thread raise KeyboardInterrupt."""

    def run(self) -> None:
        heed(self.interrupt)
        try:
            while self.lost is None and (cases := self._sharing.next(self._card)):
                self._take(cases)
        except BaseException as error:  # noqa: BLE001 - the thread that waits for this one raises it
            self.error = error
        finally:
            self.ended.set()

    def _take(self, cases: Sequence[CaseOfSuite]) -> None:
        suite = cases[0].suite
        try:
            result = self._measure(self._card, suite, frozenset(case.id for case in cases))
        except HarnessError as error:
            self._leave(cases, error)
            return
        kept, unfinished = _split(result)
        if unfinished:
            why = DeviceError(next(iter(unfinished.values())))
            self._leave([case for case in cases if case.id in unfinished], why)
        self.results.append((suite, kept if self.lost and self.lost.heirs else result))

    def _leave(self, unfinished: Iterable[CaseOfSuite], error: HarnessError) -> None:
        # An invalid command is invalid on a similar card too.
        left, heirs = self._sharing.leave(self._card, unfinished, may_pass=isinstance(error, MeasureError))
        self.lost = Lost(self._card, error, tuple(case.id for case in left), tuple(heirs))


def _split(result: R) -> tuple[R, dict[str, str]]:
    """Return a result without the cases that the card was lost before, and these cases with the reason."""
    if (field := _FIELDS.get(type(result))) is None:
        return result, {}
    outcomes: Sequence[Row | Verdict] = getattr(result, field)
    lost = {each.case: each.message for each in outcomes if each.reason == DeviceError.reason}
    kept: dict[str, Any] = {field: tuple(each for each in outcomes if each.case not in lost)}
    return replace(result, **kept), lost


def spread(
    cards: Sequence[Card],
    listed: Callable[[DeviceInfo], Collection[CaseOfSuite]],
    measure: Measure[R],
    *,
    share: bool = True,
) -> CardResults[R]:
    """Measure on several cards at once. `listed` returns all cases that a device can measure.

    `measure` is called in a thread for each card, with a suite's number and the ids of some of its cases.
    Similar cards share the cases unless `share` is False. A lost card leaves its cases to similar cards.
    Suites with kernels that span cards are measured last, on the first card alone, because nothing else may
    run on the cards after it.
    """
    spanning = {case.suite for case in listed(cards[0].device) if case.cards > 1}

    def some(device: DeviceInfo, *, span: bool) -> list[CaseOfSuite]:
        return [case for case in listed(device) if (case.suite in spanning) == span]

    alone: CardResults[R] = _spread(cards, partial(some, span=False), measure, share=share)
    if not spanning or any(result.interrupted for _, result in alone.results):
        return alone
    together: CardResults[R] = _spread(cards[:1], partial(some, span=True), measure, share=share)
    results = alone.results + together.results
    return CardResults(tuple(sorted(results, key=itemgetter(0))), alone.lost + together.lost)


def _spread(
    cards: Sequence[Card],
    listed: Callable[[DeviceInfo], Collection[CaseOfSuite]],
    measure: Measure[R],
    *,
    share: bool,
) -> CardResults[R]:
    sharing = _Sharing(alike(cards) if share else [(card,) for card in cards], listed)
    drivers = [_Driver(card, sharing, measure) for card in cards]
    for driver in drivers:
        driver.start()
    interrupted = False
    try:
        _wait_for(drivers)
    except KeyboardInterrupt:
        interrupted = True
        sharing.stop()
        for driver in drivers:
            driver.interrupt.set()
        _wait_for(drivers)
    for driver in drivers:
        if driver.error is not None and not isinstance(driver.error, KeyboardInterrupt):
            raise driver.error
    results = sorted((each for driver in drivers for each in driver.results), key=itemgetter(0))
    if interrupted and not any(result.interrupted for _, result in results):
        if not results:
            raise KeyboardInterrupt
        suite, last = results.pop()
        results.append((suite, replace(last, interrupted=True)))
    return CardResults(tuple(results), tuple(driver.lost for driver in drivers if driver.lost))


def _wait_for(drivers: Iterable[_Driver[R]]) -> None:
    for driver in drivers:
        # A signal that arrives in another thread is noticed after this time.
        while not driver.ended.wait(_GLANCE_S):
            pass
