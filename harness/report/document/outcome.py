"""Groups the cases of a review by the required action, and states the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.judgement.limits import wrong_twin
from harness.numbers import binary, counted, effect, exact, percent, typeset
from harness.records.types import Arm, Resources, Verdict, nothing_compared
from harness.report.document.document import CardReview, Review
from harness.report.words.of_verdict import EXECUTABLES, PROCESSES, ROUNDS, basis, clocks, leading, reason
from harness.suite.case_id import CaseId


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Addresses from the renderer of a review, never from the review itself; empty if unknown."""

    run: str = ""
    """The workflow run that measured."""
    page: str = ""
    """The artifact with the review's page."""
    history: str = ""
    """The published pages."""
    repository: str = ""
    """The repository's own page. Addresses of commits and files begin with it."""


_TIMES = "\N{MULTIPLICATION SIGN}"


def verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def by_effect(case: Verdict) -> str:
    """Return the effect that a verdict is based on, as ``+1.19 % ± 0.06 in cycles``; empty without a
    measurement.
    """
    change, what = leading(case)
    return typeset(effect(change)) + (" in cycles" if what == "cycles" else "")


def outcome(case: Verdict) -> str:
    """Return the effect on time, and on cycles if the verdict is based on them."""
    told = [effect(case.time)]
    if leading(case)[1] == "cycles":
        told.append(f"cycles {effect(case.cycles)}")
    return typeset(", ".join(filter(None, told)))


def facts(case: Verdict) -> list[str]:
    """Return other facts about both sides: clocks, registers, memory, launch, source."""
    found = clocks(case)
    told = [f"SM clock {found} MHz{'' if '→' in found else ' on both sides'}"] if found else []
    if case.energy and not case.energy.low <= 0 <= case.energy.high:
        told.append(f"energy {effect(case.energy)}")
    sides = case.base or Arm(), case.head or Arm()
    pairs = zip(*map(_static, sides), strict=True)
    told += [f"{name} {a} → {b}" for (name, a), (_, b) in pairs if a and b and a != b]
    base, head = (side.source_sha256 for side in sides)
    if base and head:
        told.append("same source" if base == head else "source changed")
    return [typeset(each) for each in told]


def _static(side: Arm) -> list[tuple[str, str]]:
    built, launch = side.resources or Resources(), side.launch
    shared = built.static_shared_bytes
    if shared is not None and launch:
        shared += launch.dynamic_shared_bytes
    return [
        ("registers", "" if built.registers is None else f"{built.registers:,}"),
        ("shared memory", binary(shared)),
        ("spills", binary(built.local_bytes)),
        ("grid", _TIMES.join(map(str, launch.grid)) if launch else ""),
        ("block", _TIMES.join(map(str, launch.block)) if launch else ""),
        ("launch", launch.attributes or "plain" if launch else ""),
    ]


def rules(card: CardReview) -> str:
    return typeset(
        f"Changes up to {percent(card.margin)} are ignored, and unchanged means within "
        f"{percent(card.tolerance)}, both with {exact(card.confidence)} confidence."
    )


def units_of(card: CardReview) -> tuple[str, str]:
    """Return the unit of measurement of effects, singular and plural."""
    return ROUNDS if card.executables else PROCESSES


def calibrated(card: CardReview) -> str:
    """Return what is known about false alarms on the card; empty without a measurement."""
    if card.executables:
        return EXECUTABLES
    known = card.calibrated
    if known and known.verdicts:
        return typeset(basis(known.verdicts, known.false_alarms, known.measured_at))
    return basis(0, 0, "") if any(case.time for case in card.cases) else ""


def twin(case: Verdict) -> str:
    """Return the result of a comparison's test of itself."""
    what = "a slowdown planted in a kernel" if case.case.endswith("planted") else "a kernel against itself"
    shown = f" ({typeset(effect(case.time))})" if case.time else ""
    return f"{what} came out as {case.status}{shown}"


_OF_STATUS: Mapping[str, str] = {
    "regression": "slower",
    "missing": "missing",
    "inconclusive": "inconclusive",
    "improvement": "faster",
    "new": "new",
    "unchanged": "same",
    "identical": "same",
}
_OF_THE_CARD = ("clocks", "thermal", "contention", "environment")
_SLOWED_BY_CARD = "slower by the card and not by the code"
_ENDED_EARLY = ("budget-spent", "interrupted")
"""Reasons for which a planted twin has no verdict although the comparison is sound."""


@dataclass(frozen=True, slots=True)
class CaseOnCard:
    """A case and the card that it was compared on."""

    card: CardReview
    case: Verdict

    @property
    def label(self) -> str:
        """Return the name, such as ``matmul.naive@1024``."""
        return CaseId.of(self.card.suite, self.case.kernel, self.case.sizes).short


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    slower: tuple[CaseOnCard, ...]
    broken: tuple[CaseOnCard, ...]
    """Cases that failed at head."""
    missing: tuple[CaseOnCard, ...]
    invalid: tuple[CaseOnCard, ...]
    """Cases that are invalid, failed at base, or failed at an unknown side."""
    inconclusive: tuple[CaseOnCard, ...]
    by_card: tuple[CaseOnCard, ...]
    """Cases slowed by the card's clocks, its heat or other work on it, and not by the code."""
    faster: tuple[CaseOnCard, ...]
    new: tuple[CaseOnCard, ...]
    same: tuple[CaseOnCard, ...]

    @property
    def failing(self) -> tuple[CaseOnCard, ...]:
        return (*self.slower, *self.broken, *self.missing)

    @property
    def unjudged(self) -> tuple[CaseOnCard, ...]:
        return (*self.invalid, *self.inconclusive, *self.by_card)


def every_case(review: Review) -> list[CaseOnCard]:
    return [CaseOnCard(card, case) for card in review.cards for case in card.cases]


def total(review: Review) -> int:
    return sum(len(card.cases) for card in review.cards)


def grouped(review: Review) -> Groups:
    found: dict[str, list[CaseOnCard]] = {name: [] for name in Groups.__dataclass_fields__}
    for each in every_case(review):
        found[group_of(each.case)].append(each)
    found["slower"].sort(key=_effect_of, reverse=True)
    found["faster"].sort(key=_effect_of)
    return Groups(**{name: tuple(members) for name, members in found.items()})


def group_of(case: Verdict) -> str:
    """Return the name of a case's group in `Groups`."""
    if is_by_card(case):
        return "by_card"
    at_head = case.status == "failed" and case.side == "head"
    return "broken" if at_head else _OF_STATUS.get(case.status, "invalid")


def is_by_card(case: Verdict) -> bool:
    """Return True if the card slowed a case. Power belongs to the code: a kernel that draws more
    runs slower.
    """
    return case.status == "regression" and case.attribution in _OF_THE_CARD


def _effect_of(found: CaseOnCard) -> float:
    change = leading(found.case)[0]
    return change.effect if change else 0.0


def shortcomings(card: CardReview) -> list[str]:
    """Return sentences on the weaknesses of a card's verdicts."""
    told = []
    if not card.cases:
        told.append("No case was compared.")
    if not card.complete:
        told.append("Interrupted: verdicts use finished measurements only.")
    if wrong_twins(card):
        told.append("The test of the comparison itself went wrong: its verdicts are not to be trusted.")
    if card.problem:
        told.append("The comparison itself reports a problem.")
    return told


def wrong_twins(card: CardReview) -> list[Verdict]:
    """Return twins in which a kernel differs from itself, or a planted slowdown was not found."""
    return [
        each
        for each in card.twins
        if wrong_twin(each.case, each.status, complete=each.reason not in _ENDED_EARLY)
    ]


def headline(review: Review, groups: Groups, mark: Callable[[str], str] = str) -> str:
    """Return the headline: ``1 of 24 cases is slower: matmul.shared_tile@1024 by 1.70 %.``

    `mark` formats the name of a case.
    """
    every = total(review)
    if groups.failing:
        clauses = _failing(groups, every, mark)
    elif len(groups.new) == every:
        clauses = [f"No case was compared{f': base has none of {every:,}' if every else ''}"]
    elif groups.unjudged:
        clauses = _unjudged(groups.unjudged, every)
    else:
        clauses = _judged(review, groups, every)
    return f"{'; '.join(clauses)}."


def _failing(groups: Groups, every: int, mark: Callable[[str], str]) -> list[str]:
    told = [
        (groups.slower, verb(len(groups.slower), "is slower", "are slower")),
        (groups.broken, verb(len(groups.broken), "fails at head", "fail at head")),
        (groups.missing, verb(len(groups.missing), "is missing", "are missing")),
        (groups.unjudged, "could not be judged"),
    ]
    clauses = [f"{len(found):,} {what}" for found, what in told if found]
    found, what = next((found, what) for found, what in told if found)
    foremost = f"{': ' if len(found) == 1 else ', most of all '}{mark(found[0].label)}"
    if found is groups.slower:
        change, basis_of = leading(found[0].case)
        foremost += f" by {typeset(percent(abs(change.effect)))}" if change else ""
        foremost += " in cycles" if change and basis_of == "cycles" else ""
    elif len(found) > 1:
        foremost = f", {mark(found[0].label)} among them"
    return [f"{len(found):,} of {counted(every, 'case')} {what}{foremost}", *clauses[1:]]


def _unjudged(unjudged: Sequence[CaseOnCard], every: int) -> list[str]:
    reasons = {_SLOWED_BY_CARD if is_by_card(found.case) else reason(found.case) for found in unjudged}
    why = reasons.pop() if len(reasons) == 1 else ""
    clause = f"{len(unjudged):,} of {counted(every, 'case')} could not be judged{': ' if why else ''}{why}"
    return [clause, "none of the others is slower"] if len(unjudged) < every else [clause]


def _judged(review: Review, groups: Groups, every: int) -> list[str]:
    held = [told for card in review.cards if (told := shortcomings(card))]
    fine = f"None of {counted(every, 'case')} is slower" if every > 1 else "The only case is not slower"
    if held:
        where = f" (on {len(held)} of {len(review.cards)} cards)" if len(review.cards) > 1 else ""
        return [f"{held[0][0].removesuffix('.')}{where}", fine[0].lower() + fine[1:]]
    faster, new = len(groups.faster), len(groups.new)
    identical = sum(found.case.status == "identical" for found in groups.same)
    clauses = [f"{fine}: their code is the same" if identical == every > 1 else fine]
    if faster:
        clauses.append(f"{faster:,} {verb(faster, 'is', 'are')} faster")
    if new:
        clauses.append(f"{new:,} {verb(new, 'is', 'are')} new")
    return clauses


State = Literal["clean", "regression", "inconclusive", "invalid", "empty"]
Conclusion = Literal["success", "failure", "neutral"]

_CONCLUSIONS: Mapping[State, Conclusion] = {"clean": "success", "regression": "failure"}


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    state: State
    """The worst result: regression if a case is slower, missing, or fails at head."""
    conclusion: Conclusion
    """The check's conclusion: success only if every case of every card was judged and is fine."""
    headline: str
    """A sentence of plain text."""


def review_outcome(review: Review) -> ReviewOutcome:
    groups = grouped(review)
    state = _state(review, groups)
    told = headline(review, groups).replace("\N{NO-BREAK SPACE}", " ")
    return ReviewOutcome(state, _CONCLUSIONS.get(state, "neutral"), told)


def _state(review: Review, groups: Groups) -> State:
    if groups.failing:
        return "regression"
    if nothing_compared(case.status for card in review.cards for case in card.cases):
        return "empty"
    if groups.invalid or any(card.problem or wrong_twins(card) for card in review.cards):
        return "invalid"
    if groups.inconclusive or groups.by_card or not all(card.complete for card in review.cards):
        return "inconclusive"
    return "clean" if all(card.cases for card in review.cards) else "empty"
