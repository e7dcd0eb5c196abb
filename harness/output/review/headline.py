"""The one sentence that a review comes to."""

from __future__ import annotations

__all__ = ["headline"]

from collections.abc import Callable, Sequence

from harness.numbers import counted, percent, typeset
from harness.output.review.grouping import Found, Groups, shortcomings, total
from harness.output.review.model import Review
from harness.output.review.wording import verb
from harness.output.sentences import leading, reason


def headline(review: Review, groups: Groups, mark: Callable[[str], str] = str) -> str:
    """``1 of 24 cases is slower: matmul.shared_tile@1024 by 1.70 %.``

    `mark` makes of a case's name what is to stand for it.
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
    foremost = f"{': ' if len(found) == 1 else ', most of all '}{mark(found[0].label)}{_by(found[0])}"
    if found is not groups.slower and len(found) > 1:
        foremost = f", {mark(found[0].label)} among them"
    return [f"{len(found):,} of {counted(every, 'case')} {what}{foremost}", *clauses[1:]]


def _by(found: Found) -> str:
    change, what = leading(found.case)
    if found.case.status != "regression" or change is None:
        return ""
    return f" by {typeset(percent(abs(change.effect)))}{' in cycles' if what == 'cycles' else ''}"


def _unjudged(unjudged: Sequence[Found], every: int) -> list[str]:
    reasons = {reason(found.case) for found in unjudged}
    why = reasons.pop() if len(reasons) == 1 else ""
    clause = f"{len(unjudged):,} of {counted(every, 'case')} could not be judged{': ' if why else ''}{why}"
    return [clause, "none of the others is slower"] if len(unjudged) < every else [clause]


def _judged(review: Review, groups: Groups, every: int) -> list[str]:
    held = [(card, sentence) for card in review.cards for sentence in shortcomings(card)]
    fine = f"None of {counted(every, 'case')} is slower" if every > 1 else "The only case is not slower"
    if held:
        cards = len({id(card) for card, _ in held})
        where = f" (on {cards} of {len(review.cards)} cards)" if len(review.cards) > 1 else ""
        return [f"{held[0][1].removesuffix('.')}{where}", fine[0].lower() + fine[1:]]
    faster, new = len(groups.faster), len(groups.new)
    identical = sum(found.case.status == "identical" for found in groups.same)
    clauses = [f"{fine}: their code is the same" if identical == every > 1 else fine]
    if faster:
        clauses.append(f"{faster:,} {verb(faster, 'is', 'are')} faster")
    if new:
        clauses.append(f"{new:,} {verb(new, 'is', 'are')} new")
    return clauses
