"""Names, facts and rules of a review, made from its numbers: what its job wrote in words is not used.

They are plain text, without a sign that HTML or a workflow command would mind.
"""

from __future__ import annotations

__all__ = ["by_effect", "calibrated", "facts", "label", "outcome", "rules", "twin", "verb"]

from harness.numbers import binary, effect, exact, percent, typeset
from harness.output.review.model import Card, CaseReview, Side
from harness.output.sentences import basis, clocks, leading
from harness.spec.case_id import CaseId

_TIMES = "\N{MULTIPLICATION SIGN}"


def verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def label(card: Card, case: CaseReview) -> str:
    """``matmul.naive@1024``."""
    return CaseId.of(card.suite, case.kernel, case.sizes).short


def by_effect(case: CaseReview) -> str:
    """``+1.19 % ± 0.06 in cycles``: what a verdict rests on; empty where nothing was measured."""
    change, what = leading(case)
    return typeset(effect(change)) + (" in cycles" if what == "cycles" else "")


def outcome(case: CaseReview) -> str:
    """Effect on time, and on cycles where the verdict rests on them."""
    told = [effect(case.time)]
    if leading(case)[1] == "cycles":
        told.append(f"cycles {effect(case.cycles)}")
    return typeset(", ".join(filter(None, told)))


def facts(case: CaseReview) -> list[str]:
    """What else is known of both sides: clocks, what was built, launch, source."""
    found = clocks(case)
    told = [f"SM clock {found} MHz{'' if '→' in found else ' on both sides'}"] if found else []
    if case.energy and not case.energy.low <= 0 <= case.energy.high:
        told.append(f"energy {effect(case.energy)}")
    told += _static(case.base or Side(), case.head or Side())
    if case.source_changed is not None:
        told.append("source changed" if case.source_changed else "same source")
    return [typeset(each) for each in told]


def _static(base: Side, head: Side) -> list[str]:
    pairs = {
        "registers": (_text(base.registers), _text(head.registers)),
        "shared memory": (binary(base.shared_bytes), binary(head.shared_bytes)),
        "spills": (binary(base.local_bytes), binary(head.local_bytes)),
        "grid": (_extent(base.grid), _extent(head.grid)),
        "block": (_extent(base.block), _extent(head.block)),
    }
    return [f"{name} {a} → {b}" for name, (a, b) in pairs.items() if a and b and a != b]


def _text(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _extent(value: tuple[int, int, int] | None) -> str:
    return "" if value is None else _TIMES.join(map(str, value))


def rules(card: Card) -> str:
    """By which limits a card's cases are judged."""
    return typeset(
        f"Up to {percent(card.margin)} is nobody's business; unchanged is within {percent(card.tolerance)}; "
        f"each is said with {exact(card.confidence)} confidence."
    )


def calibrated(card: Card) -> str:
    """What verdicts rest on; empty where nothing was measured."""
    known = card.calibrated
    if known and known.verdicts:
        return typeset(basis(known.verdicts, known.false_alarms, known.measured_at))
    return basis(0, 0, "") if any(case.time for case in card.cases) else ""


def twin(case: CaseReview) -> str:
    """What a comparison's test of itself came to."""
    what = "a slowdown planted in a kernel" if case.case.endswith("planted") else "a kernel against itself"
    shown = f" ({typeset(effect(case.time))})" if case.time else ""
    return f"{what} came out as {case.status}{shown}"
