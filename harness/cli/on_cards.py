"""Measures suites on the single device of a command, or on several cards at once with --gpus."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from harness.cli import options, tell, tell_at_end
from harness.errors import MeasureError

if TYPE_CHECKING:
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

    Without --gpus, `device` measures one suite after another until an interrupt. With --gpus there is a
    result for each suite and card. Similar cards share the cases unless `share` is False.
    """
    if selection.gpus is not None:
        return _on_cards(work, suites, selection.gpus, observer, share=share)
    results: list[tuple[int, R]] = []
    for suite in range(suites):
        results.append((suite, work.measure(suite, device, None, observer)))
        if results[-1][1].interrupted:
            break
    return results


def _on_cards(
    work: Work[Observer, R], suites: int, gpus: str, observer: Observer, *, share: bool
) -> list[tuple[int, R]]:
    from harness.run.several_cards import cases_of, find_cards, spread

    cards = find_cards(gpus)
    observers = {card: observer.of_card(card.device.spec) for card in cards}

    def listed(device: DeviceInfo) -> list[CaseOfSuite]:
        return [case for suite in range(suites) for case in cases_of(suite, work.planned(suite, device))]

    def measure(card: Card, suite: int, cases: frozenset[str]) -> R:
        return work.measure(suite, card.device.spec, cases, observers[card])

    found = spread(cards, listed, measure, share=share)
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
