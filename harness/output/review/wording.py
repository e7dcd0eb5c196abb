"""Figures and sentences of a review, made from its numbers: what its job wrote in words is not used.

They are plain text, without a sign that HTML or a workflow command would mind.
"""

from __future__ import annotations

__all__ = [
    "calibrated",
    "cause",
    "clocks",
    "counted",
    "duration",
    "effect",
    "facts",
    "in_cycles",
    "interval",
    "label",
    "leading",
    "outcome",
    "percent",
    "reason",
    "remedy",
    "rounded",
    "twin",
    "verb",
]

from collections.abc import Mapping

from harness.output.review.model import Card, CaseReview, Change, Side
from harness.spec.case_id import CaseId
from harness.statistics.rates import false_alarm_bound

_MINUS, _TIMES, _NBSP = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{NO-BREAK SPACE}"
_REASONS: Mapping[str, tuple[str, str]] = {
    "too-noisy": ("too noisy to tell", "quieten the card (harness doctor), or allow a wider tolerance"),
    "not-confirmed": ("not confirmed by fresh processes", "run it again"),
    "budget-spent": ("the budget of device time was spent", "allow more with --budget, or name fewer cases"),
    "interrupted": ("interrupted before there was enough to judge by", "run it again"),
    "record-ends": ("the record ends before there was enough to judge by", "measure it again"),
    "clocks": ("time and cycles contradict each other", "lock the SM clock, and run it again"),
    "order": ("it depends on which kernel ran before", "look at what they leave behind in caches or clocks"),
    "contention": ("other processes were on the card", "end them, or make the card exclusive"),
    "thermal-throttle": ("heat held the clock down", "look at the cooling, or lock a lower clock"),
    "power-brake": ("the power supply held the clock down", "look at the supply, or lower the power limit"),
    "memory-clock": ("the memory clock changed", "keep other work off the card"),
    "p-state": ("the performance state changed", "keep other work off the card"),
    "sm-clock": ("the SM clock moved", "lock it below what the card reaches by itself"),
    "clocks-apart": ("base and head saw different SM clocks", "lock the clock below what the card reaches"),
    "temperature": ("the temperature moved", "warm the card up first, and look at its cooling"),
    "canary": ("something else slowed the card", "find what else runs on it"),
    "too-few-quads": ("too few times can be read", "compare larger sizes"),
    "twin-flagged": ("a kernel came out as different from itself", "calibrate, and look at the card"),
    "twin-missed": ("a planted slowdown was not found", "calibrate, and look at the card"),
    "build-failed": ("build failed", ""),
    "wrong-result": ("wrong results", ""),
    "wrong-by-base": (
        "right by its own problem, and wrong by base's",
        "land the change of reference, tolerance or data in a commit of its own first, if it is meant",
    ),
    "wrong-when-timed": ("right when verified, and not when timed", "it may keep something, or have a race"),
    "skips-work": ("work left out that was found done", ""),
    "foreign-stream": ("work on a stream that nobody times", "put all work on the stream that it is given"),
    "beyond-peak": ("faster than the card can be", "look at what is left out, at flop() and moved_bytes()"),
    "tampered": ("the suite replaced what judges it", ""),
    "kernel-fault": ("fault on the device", "compute-sanitizer finds the line"),
    "launch-refused": ("launch refused", ""),
    "out-of-memory": ("out of memory", "compare smaller sizes"),
    "crashed": ("the process crashed", ""),
    "timed-out": ("timed out", "allow more with --timeout if it is only slow"),
    "suite": ("broken suite", ""),
    "no-suite": ("no suite.py in its folder", ""),
    "not-comparable": ("base and head take other arrays", ""),
    "no-device": ("the card could not be opened again", "look at it with nvidia-smi"),
}
"""By reason: what is the matter, and what to do about it."""


def counted(number: int, one: str, many: str = "") -> str:
    """``1 case``, ``24 cases``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def label(card: Card, case: CaseReview) -> str:
    """``matmul.naive@1024``."""
    return CaseId.of(card.suite, case.kernel, case.sizes).short


def percent(share: float, *, sign: bool = False) -> str:
    """``1.70 %``: three digits or so, with a space that no line breaks at."""
    value = 100 * share
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    told = f"{round(value, decimals) + 0.0:{'+' if sign else ''},.{decimals}f}"  # no minus before zero
    return f"{told.replace('-', _MINUS)}{_NBSP}%"


def rounded(share: float) -> str:
    """``1.7 %``: two digits, for a headline."""
    value = abs(100 * share)
    decimals = 2 if value < 0.995 else 1 if value < 9.95 else 0
    return f"{value:,.{decimals}f}{_NBSP}%"


def effect(change: Change) -> str:
    """``+1.70 % ± 0.07``."""
    return f"{percent(change.effect, sign=True)}{_NBSP}±{_NBSP}{_bare(abs(change.high - change.low) / 2)}"


def outcome(case: CaseReview) -> str:
    """Effect on time, and on cycles where the verdict rests on them; empty where none was measured."""
    return ", ".join(filter(None, (effect(case.time) if case.time else "", in_cycles(case))))


def in_cycles(case: CaseReview) -> str:
    """``cycles +1.19 % ± 0.06`` where the verdict rests on them, else empty."""
    change = leading(case)[0]
    return f"cycles {effect(change)}" if change and change is not case.time else ""


def interval(change: Change) -> str:
    """``+1.63 to +1.77 %``."""
    return f"{_bare(change.low, sign=True)} to {percent(change.high, sign=True)}"


def _bare(share: float, *, sign: bool = False) -> str:
    return percent(share, sign=sign)[:-2]


def leading(case: CaseReview) -> tuple[Change | None, str]:
    """What a verdict rests on, with the word for more of it."""
    if case.reason.endswith("-in-cycles") and case.cycles:
        return case.cycles, "more cycles"
    return case.time, "slower"


def cause(case: CaseReview) -> str:
    """One sentence on what an effect goes back to."""
    told = {
        "code": _code(case),
        "clocks": "The clocks explain it, not the code: look at the card first.",
        "thermal": "Heat set the clocks apart: look at the card first.",
        "power": "Power: base and head draw different amounts, or the supply held the clock down.",
        "contention": "Other work on the card: end it first.",
        "environment": "The card's memory clock or performance state changed: look at the card first.",
    }
    return told[case.attribution] if case.attribution else "Neither cycles nor clocks tell why."


def _code(case: CaseReview) -> str:
    if leading(case)[0] is case.cycles and case.time:
        return f"The code: at its power limit the card hides that from the time ({effect(case.time)})."
    if case.cycles is None:
        return "The code: the clocks do not explain it."
    more = "more" if case.cycles.effect > 0 else "fewer"
    return f"The code: {percent(abs(case.cycles.effect))} {more} cycles."


def clocks(case: CaseReview) -> str:
    """``1980 → 1975 MHz``; empty where the card did not tell."""
    known = [side.sm_clock_mhz if side else None for side in (case.base, case.head)]
    told = dict.fromkeys("?" if mhz is None else f"{mhz:.0f}" for mhz in known)
    return "" if known == [None, None] else f"{' → '.join(told)}{_NBSP}MHz"


def facts(case: CaseReview) -> list[str]:
    """What else is known of both sides: clocks, what was built, launch, source."""
    found = clocks(case)
    both = "" if "→" in found else " on both sides"
    told = [f"SM clock {found}{both}"] if found else []
    if case.energy and not case.energy.low <= 0 <= case.energy.high:
        told.append(f"energy {effect(case.energy)}")
    told += _static(case.base or Side(), case.head or Side())
    if case.source_changed is not None:
        told.append("source changed" if case.source_changed else "same source")
    return told


def _static(base: Side, head: Side) -> list[str]:
    pairs = {
        "registers": (_text(base.registers), _text(head.registers)),
        "shared memory": (_bytes(base.shared_bytes), _bytes(head.shared_bytes)),
        "spills": (_bytes(base.local_bytes), _bytes(head.local_bytes)),
        "grid": (_extent(base.grid), _extent(head.grid)),
        "block": (_extent(base.block), _extent(head.block)),
    }
    return [f"{name} {a} → {b}" for name, (a, b) in pairs.items() if a and b and a != b]


def _text(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _bytes(value: int | None) -> str:
    if value is None or value < 1024:
        return "" if value is None else f"{value}{_NBSP}B"
    return f"{value / 1024:,.4g}{_NBSP}KiB" if value < 2**20 else f"{value / 2**20:,.1f}{_NBSP}MiB"


def _extent(value: tuple[int, int, int] | None) -> str:
    return "" if value is None else _TIMES.join(map(str, value))


def reason(case: CaseReview) -> str:
    """What is the matter with a case that failed or could not be judged; empty where the code is unknown."""
    return _REASONS.get(case.reason, ("", ""))[0]


def remedy(card: Card, case: CaseReview) -> str:
    """What to do about it; empty where nothing can be said in general."""
    if (
        case.status == "inconclusive"
        and case.reason in ("too-noisy", "not-confirmed")
        and not card.calibrated
    ):
        return "calibrate the card once (harness calibrate), then run it again"
    hint = _REASONS.get(case.reason, ("", ""))[1]
    return hint or ("compare with a base on which it works" if case.side == "base" else "")


def duration(time_ns: float | None) -> str:
    """``1.204 ms``; empty for None."""
    if time_ns is None:
        return ""
    for unit, scale in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        if time_ns < 1000 * scale:
            return f"{time_ns / scale:.4g}{_NBSP}{unit}"
    return f"{time_ns / 1e9:,.2f}{_NBSP}s"


def calibrated(card: Card) -> str:
    """What false alarms are known of."""
    known = card.calibrated
    if known is None or not known.verdicts:
        return "Not calibrated: how processes differ on this card is assumed."
    shown = f"{known.false_alarms:,} of {known.verdicts:,} verdicts of code against itself were false alarms"
    if known.false_alarms > known.verdicts:
        return f"The calibration makes no sense: {shown}."
    bound = false_alarm_bound(known.false_alarms, known.verdicts)
    return f"{shown}, so fewer than {100 * bound:.2g} % are (95 % confidence)."


def twin(case: CaseReview) -> str:
    """What a comparison's test of itself came to."""
    what = "a slowdown planted in a kernel" if case.case.endswith("planted") else "a kernel against itself"
    shown = f" ({effect(case.time)})" if case.time else ""
    return f"{what} came out as {case.status}{shown}"
