"""Measures suites on the single device of a command, or on several cards with --gpus or --scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from harness.cli import options, tell, tell_at_end
from harness.errors import MeasureError

if TYPE_CHECKING:
    from harness.config import Config
    from harness.records.record_files import ComparisonResult, RunResult
    from harness.records.types import DeviceInfo
    from harness.report.terminal.progress import DeviceProgress
    from harness.run.calibrate import CalibrationResult
    from harness.run.several_cards import Card, CardResults, CaseOfSuite
    from harness.suite.planning import PlannedCase


Observer = TypeVar("Observer", bound="DeviceProgress")
R = TypeVar("R", "RunResult", "ComparisonResult", "CalibrationResult")
Observer_contra = TypeVar("Observer_contra", bound="DeviceProgress", contravariant=True)
R_co = TypeVar("R_co", "RunResult", "ComparisonResult", "CalibrationResult", covariant=True)


class Work(Protocol[Observer_contra, R_co]):
    """A command's work on suites, identified by number. Several threads call its methods."""

    def planned(self, suite: int, device: DeviceInfo) -> Iterable[PlannedCase]:
        """Return the cases of a suite that a device measures."""

    def measure(
        self, suite: int, device: str | None, only: Collection[str] | None, observer: Observer_contra
    ) -> R_co:
        """Measure a suite on a device. `only` holds ids of cases; None means all."""


def measure_suites(
    work: Work[Observer, R],
    suites: int,
    selection: options.Selection,
    device: str | None,
    observer: Observer,
    *,
    share: bool = True,
) -> list[tuple[int, R]]:
    """Measure `suites` suites. Return each result with its suite's number.

    Without --gpus and --scheduler, `device` measures one suite after another until an interrupt. With them
    there is a result for each suite and card. Similar cards share the cases unless `share` is False.
    """
    if selection.gpus is not None:
        from harness.run.several_cards import find_cards

        def here(card: Card, suite: int, cases: frozenset[str], of_card: Observer) -> R:
            return work.measure(suite, card.device.spec, cases, of_card)

        return _on_cards(find_cards(selection.gpus), here, work, suites, observer, share=share)
    if selection.scheduler is not None:
        from harness.run.sweep.work_on_cluster import DaskCards

        # This machine's configured device has no meaning on a cluster.
        with DaskCards(selection.scheduler, selection.device) as cluster:
            there = partial(cluster.measure, work)
            return _on_cards(cluster.cards, there, work, suites, observer, share=share)
    results: list[tuple[int, R]] = []
    for suite in range(suites):
        results.append((suite, work.measure(suite, device, None, observer)))
        if results[-1][1].interrupted:
            break
    return results


def opening(selection: options.Selection, config: Config) -> AbstractContextManager[None]:
    """Return a context that opens the command's device, or finds its cards, while it loads suites."""
    if selection.gpus is not None:
        from harness.run.several_cards import finding

        return finding(selection.gpus)
    if selection.scheduler is not None:
        return nullcontext()
    from harness.run import worker_process  # alone: several cards need as long to import as a card to open

    return worker_process.opening(selection.device or config.device)


def _on_cards(
    cards: Sequence[Card],
    measure: Callable[[Card, int, frozenset[str], Observer], R],
    work: Work[Observer, R],
    suites: int,
    observer: Observer,
    *,
    share: bool,
) -> list[tuple[int, R]]:
    from harness.run.several_cards import cases_of, spread

    observers = {card: observer.of_card(card.place) for card in cards}

    def listed(device: DeviceInfo) -> list[CaseOfSuite]:
        return [
            case
            for suite in range(suites)
            for case in cases_of(suite, work.planned(suite, device), device.backend)
        ]

    def measure_there(card: Card, suite: int, cases: frozenset[str]) -> R:
        return measure(card, suite, cases, observers[card])

    found = spread(cards, listed, measure_there, share=share)
    _tell_lost(found)
    return list(found.results)


def _tell_lost(found: CardResults[R]) -> None:
    """Report lost cards. If no other card has measured their cases, the command's exit status shows it.

    Raises the error of a lost card if there is no result at all.
    """
    for lost in found.lost:
        if not found.results:
            raise lost.error
        if lost.heirs:
            tell(lost.message)
        else:
            error = MeasureError(lost.message, log=lost.error.log)
            error.exit_code = lost.error.exit_code
            tell_at_end(error)
