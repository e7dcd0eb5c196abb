"""Finds reasons why a review cannot be true, beyond the limits of its types. Pure functions.

A review comes from a job that ran untrusted code. A review without such a reason may still be false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from harness.judgement.limits import USUAL_LIMITS
from harness.numbers import exact, percent
from harness.records.types import TWINS, Arm, Effect, Verdict, VerdictStatus
from harness.report.document.document import CardReview, Review
from harness.report.document.outcome import wrong_twins
from harness.suite.case_id import CaseId

T = TypeVar("T", bound=Hashable)

_LOOSEST = 10
"""Largest multiple of the default limits, since a pull request must not loosen its own gate."""
_MOST = 0.5
"""The largest margin or tolerance on any device."""
_CONFIDENCE = (0.9, 0.999999)
"""Allowed confidences. Above the range no regression would ever be certain enough."""
_JUDGED: tuple[VerdictStatus, ...] = ("regression", "improvement", "unchanged")
_UNMEASURED: tuple[VerdictStatus, ...] = ("identical", "new", "missing", "failed")
_MOST_TOLD = 20
_ROUNDING = 1e-9


def problems(review: Review, *, bases: Collection[str], head: str) -> list[str]:
    """Return why the review cannot be a measurement of the job with the card, in at most twenty sentences.

    `bases` are the commits that base may be, and `head` is the commit that must be head.
    """
    return list(islice(_all(review, frozenset(bases), head), _MOST_TOLD))


def _all(review: Review, bases: frozenset[str], head: str) -> Iterator[str]:
    yield from _commits(review, bases, head)
    if not review.cards:
        yield "There is no card in it."
    for (suite, device, spec), times in _counted((c.suite, c.device, c.spec) for c in review.cards):
        yield (
            f"Suite {suite} on {device} ({spec}) is in it {times} times: one job for each kind of card, and "
            "no card of the same name twice."
        )
    for card in review.cards:
        for problem in _of_card(card):
            yield f"{card.suite} on {card.device}: {problem}"


def _commits(review: Review, bases: frozenset[str], head: str) -> Iterator[str]:
    if review.head != head:
        yield f"It is of head {review.head or 'unknown'}; expected {head}."
    if review.base not in bases:
        yield (
            f"It compares with base {review.base or 'unknown'}; expected {' or '.join(sorted(bases))}. "
            "Measure again if the base branch has moved."
        )
    if review.base is not None and review.base == review.head:
        yield "Base and head are the same commit."


def _of_card(card: CardReview) -> Iterator[str]:
    yield from _settings(card)
    if card.head_dirty:
        yield "It measured a working tree with changes, not a commit."
    if card.calibrated and card.calibrated.false_alarms > card.calibrated.verdicts:
        yield "Its calibration has more false alarms than verdicts."
    yield from _names(card)
    wrong = wrong_twins(card)
    judged = [case for case in card.cases if case.status in (*_JUDGED, "inconclusive")]
    if wrong and judged:
        yield (
            f"{judged[0].case} is {judged[0].status}, although {wrong[0].case} came out as "
            f"{wrong[0].status}: with that every case is invalid."
        )
    for case in (*card.cases, *card.twins):
        for problem in _of_case(case, card):
            yield f"{case.case}: {problem}"


def _names(card: CardReview) -> Iterator[str]:
    for name, times in _counted(case.case for case in (*card.cases, *card.twins)):
        yield f"{name} is in it {times} times."
    kernels = {case.kernel for case in card.cases}
    for unknown in sorted({*card.places, *(twin.kernel for twin in card.twins)} - kernels):
        yield f"It tells of {unknown}, which is the kernel of no case."
    for case in card.cases:
        if case.case != (expected := str(CaseId.of(card.suite, case.kernel, case.sizes))):
            yield f"{case.case} should be called {expected}."
    for twin in card.twins:
        if twin.case not in TWINS:
            yield f"{twin.case} is no test that a comparison does of itself."


def _settings(card: CardReview) -> Iterator[str]:
    for name, value, usual in zip(
        ("margin", "tolerance"), (card.margin, card.tolerance), USUAL_LIMITS[card.kind], strict=True
    ):
        most = min(_LOOSEST * usual, _MOST)
        if not 0 < value <= most:
            yield f"A {name} of {exact(value)} is not above 0 and up to {exact(most)}."
    if card.margin >= card.tolerance:
        yield f"A margin of {exact(card.margin)} is not below the tolerance of {exact(card.tolerance)}."
    low, high = _CONFIDENCE
    if not low <= card.confidence <= high:
        yield f"A confidence of {card.confidence:g} is not from {low:g} to {high:g}."


def _of_case(case: Verdict, card: CardReview) -> Iterator[str]:
    for name, change in (("time", case.time), ("cycles", case.cycles), ("energy", case.energy)):
        if change is not None:
            for problem in _of_change(change, processes_have_quads=name != "energy"):
                yield f"its {name} {problem}"
    for name, value in (("smallest visible", case.smallest_visible), ("noise floor", case.noise_floor)):
        if value is not None and value < 0:
            yield f"its {name} slowdown is negative."
    if case.status in _JUDGED and case.outputs and (case.outputs.error or 0) > 1:
        told = f"{case.outputs.error:.3g} times the tolerance"
        yield f"it is {case.status}, although its outputs are off by {told}."
    if case.side and case.status != "failed":
        yield f"it is {case.status}, and yet failed at {case.side}."
    if case.status in _UNMEASURED:
        yield from _unmeasured(case)
    elif case.status in _JUDGED:
        yield from _judged(case, card)


def _of_change(change: Effect, *, processes_have_quads: bool) -> Iterator[str]:
    if not change.low <= change.effect <= change.high:
        yield (
            f"changed by {_signed(change.effect)}, which is outside its interval, {_signed(change.low)} to "
            f"{_signed(change.high)}."
        )
    if processes_have_quads and change.quads < change.processes:
        yield f"rests on {change.quads} quads in {change.processes} processes: each has one at least."
    each = change.process_effects
    if not each:
        return
    if len(each) != min(change.processes, 64):
        yield f"has effects of {len(each)} processes, and says {change.processes}."
    elif change.processes <= 64 and not _within(change.effect, min(each), max(each)):
        yield f"changed by {_signed(change.effect)}, and in no process by as much or more."


def _unmeasured(case: Verdict) -> Iterator[str]:
    figures = (case.time, case.cycles, case.energy, case.smallest_visible)
    times = [side.time_ns for side in (case.base, case.head) if side is not None]
    if any(figure is not None for figure in (*figures, *times)):
        yield f"it is {case.status}, and yet has measured figures."
    absent: dict[str, Arm | None] = {"new": case.base, "missing": case.head}
    if absent.get(case.status) is not None:
        yield f"it is {case.status}, and yet was seen at both commits."


def _judged(case: Verdict, card: CardReview) -> Iterator[str]:
    if case.time is None:
        yield f"it is {case.status}, and nothing was measured."
        return
    margin, tolerance = card.margin, card.tolerance
    changes = [change for change in (case.time, case.cycles) if change is not None]
    if case.status == "unchanged":
        yield from _unchanged(case.time, tolerance)
        return
    sign = 1 if case.status == "regression" else -1
    told = " and ".join(_signed(change.effect) for change in changes)
    if case.reason.endswith("-in-tail"):
        # A review has no numbers on outliers. They decide only if usual times are uncertain.
        edge = margin + _ROUNDING
        if all(sign * each.effect < 0 and not (each.low <= edge and -edge <= each.high) for each in changes):
            yield f"it is called {case.status} for its outliers, although usual times are {told} for sure."
    elif max(sign * change.effect for change in changes) < margin - _ROUNDING:
        yield f"it is called {case.status} for {told}, within the margin of {exact(margin)}."


def _unchanged(time: Effect, tolerance: float) -> Iterator[str]:
    if not 0 < tolerance <= _MOST:
        return  # reported as a setting
    # It was within the tolerance in two one-sided tests. The interval is two-sided, so a little wider; with
    # one degree of freedom or more, at most twice as wide.
    low = (1 - tolerance) ** 2 / (1 + tolerance) - 1
    high = (1 + tolerance) ** 2 / (1 - tolerance) - 1
    if not _within(time.effect, -tolerance, tolerance) or not (
        _within(time.low, low, time.effect) and _within(time.high, time.effect, high)
    ):
        yield (
            f"it is called unchanged for {_signed(time.effect)} ({_signed(time.low)} to "
            f"{_signed(time.high)}) with a tolerance of {exact(tolerance)}."
        )


def _within(value: float, low: float, high: float) -> bool:
    return low - _ROUNDING <= value <= high + _ROUNDING


def _signed(share: float) -> str:
    return percent(share, sign=True)


def _counted(names: Iterable[T]) -> list[tuple[T, int]]:
    """Return the names that occur more than once, with their number."""
    return [(name, times) for name, times in Counter(names).items() if times > 1]
