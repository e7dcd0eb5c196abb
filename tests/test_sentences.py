"""A verdict's words: made from codes and numbers alone, and the same on every face."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import Any

import pytest

from harness.errors import ExitCode
from harness.integrations.pytest.report import comparison_lines
from harness.integrations.pytest.report import sentence as failure
from harness.numbers import typeset
from harness.records.record_files import ComparisonResult
from harness.records.types import Arm, Effect, Strays, Verdict
from harness.report.document.document import Review, SourceLine
from harness.report.document.from_results import review_of
from harness.report.document.outcome import Links
from harness.report.pull_request.comment_markdown import comment, summary
from harness.report.pull_request.faces import check_run, page, workflow_commands
from harness.report.pull_request.machine_formats import junit
from harness.report.terminal.comparison_tables import as_json, print_comparison
from harness.report.words.of_verdict import basis, explained, sentence
from tests.review_samples import case
from tests.test_rejudge import COMPARISON


def change(percent: float, half: float = 0.07, processes: int = 2) -> Effect:
    low, middle, high = ((percent + side * half) / 100 for side in (-1, 0, 1))
    return Effect(effect=middle, low=low, high=high, processes=processes, quads=25 * processes)


SLOWER = Verdict(
    case="toy.plain[n=64]",
    kernel="plain",
    sizes={"n": 64},
    dtype="float32",
    status="regression",
    reason="slower-in-time",
    message="",
    time=change(13.5, 0.31),
    cycles=change(13.1, 0.3),
    smallest_visible=0.0031,
    attribution="code",
    base=Arm(time_ns=1.204e6, sm_clock_mhz=1980.0),
    head=Arm(time_ns=1.367e6, sm_clock_mhz=1975.0),
)
SLOWER_BY = "13.5 % slower (+13.2 to +13.8 %) in 2 processes."
STATUSES: dict[str, tuple[dict[str, Any], str]] = {
    "slower": ({}, f"{SLOWER_BY} The code: 13.1 % more cycles."),
    "faster": (
        {"status": "improvement", "reason": "faster-in-time", "time": change(-2.0), "cycles": change(-2.1)},
        "2.00 % faster (-2.07 to -1.93 %) in 2 processes. The code: 2.10 % fewer cycles.",
    ),
    "cycles": (
        {"reason": "slower-in-cycles", "time": change(0.11)},
        (
            "13.1 % more cycles (+12.8 to +13.4 %) in 2 processes. The code: at its power limit the card "
            "hides that from the time (+0.11 % ± 0.07)."
        ),
    ),
    "cycles that show in the time": (
        {"reason": "slower-in-cycles", "time": change(6.91, 1.04)},
        (
            "13.1 % more cycles (+12.8 to +13.4 %) in 2 processes. The code: at its power limit the card "
            "hides part of that from the time (+6.91 % ± 1.04)."
        ),
    ),
    "tail": (
        {
            "reason": "slower-in-tail",
            "attribution": None,
            "strays": Strays(base=0, head=11, slots=120, cost=0.183),
        },
        (
            "9.17 % of head's slots took over 1.1 times their usual time and 0.00 % of base's: on average "
            "18.3 % slower."
        ),
    ),
    "no cause": (
        {"attribution": None, "touched": {"canary": 3}},
        (f"{SLOWER_BY} Neither cycles nor clocks explain it. Disturbed quads: canary 3."),
    ),
    "clocks": (
        {"attribution": "clocks", "cycles": None},
        (
            f"{SLOWER_BY} The clocks explain it, not the code: look at the "
            "card first. They ran at 1,980 → 1,975 MHz."
        ),
    ),
    "code without cycles": (
        {"cycles": None},
        f"{SLOWER_BY} The code: the clocks do not explain it.",
    ),
    "power": (
        {
            "attribution": "power",
            "base": Arm(time_ns=1e6, alone_mhz=1905.0, alone_w=600.0),
            "head": Arm(time_ns=1e6, alone_mhz=1755.0, alone_w=690.0),
            "energy": change(3.0, 0.1),
        },
        (
            f"{SLOWER_BY} Power: base and head draw different amounts, or the "
            "supply held the clock down. POWER-COUPLED: alone, head runs at 1,755 MHz and base at 1,905 MHz, "
            "drawing 690 W against 600 W, energy per launch +3.00 % ± 0.10."
        ),
    ),
    "noisy": (
        {"status": "inconclusive", "reason": "too-noisy", "time": change(0.4, 0.9), "attribution": None},
        (
            "0.40 % slower (-0.50 to +1.30 %) in 2 processes. Too noisy to tell: only a change beyond 0.31 % "
            "would show."
        ),
    ),
    "invalid": (
        {
            "status": "invalid",
            "reason": "contention",
            "attribution": "contention",
            "touched": {"contention": 30},
        },
        (f"{SLOWER_BY} Other processes were on the card. Disturbed quads: contention 30."),
    ),
    "failed": (
        {"status": "failed", "reason": "build-failed", "side": "head", "time": None, "attribution": None},
        "Build failed at head.",
    ),
    "missing": (
        {"status": "missing", "reason": "only-in-base", "time": None, "attribution": None, "head": None},
        "There is no such case at head.",
    ),
}


@pytest.mark.parametrize("name", STATUSES)
def test_a_verdict_is_told_by_its_codes_and_numbers(name):
    fields, told = STATUSES[name]
    verdict = replace(SLOWER, **fields)
    assert sentence(verdict) == told
    worded = replace(verdict, message="nvcc: no.")
    assert (sentence(worded), explained(worded)) == (told, f"{told} nvcc: no.")


@pytest.mark.parametrize(
    ("attribution", "told"),
    [
        ("code", "The code: 1.68 % more cycles."),
        ("thermal", "Heat set the clocks apart: look at the card first."),
        ("contention", "Other work on the card: end it first."),
        (None, "Neither cycles nor clocks explain it."),
    ],
)
def test_a_case_of_a_review_is_told_as_a_verdict_is(attribution, told):
    assert sentence(case("a", status="regression", attribution=attribution)).endswith(told)


def test_a_calibration_without_verdicts_is_none():
    assert basis(0, 0, "").startswith("Not calibrated")
    assert basis(600, 1, "2026-07-01T03:12:45+00:00") == (
        "Calibrated 2026-07-01: 1 false alarm in 600 verdicts of code against itself, so below 0.79 % (95 % "
        "confidence)."
    )
    assert basis(3, 5, "@everyone, look") == (
        "The calibration makes no sense: 5 false alarms in 3 verdicts of code against itself."
    )
    assert "@" not in basis(600, 1, "@everyone, look")


def compared(verdict: Verdict) -> ComparisonResult:
    return ComparisonResult(comparison=COMPARISON, verdicts=(verdict,))


def words(text: str) -> str:
    """A face as it is read: without tags, with the signs of a keyboard, on one line."""
    text = html.unescape(re.sub(r"<[^>]*>", "", text))
    text = text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")
    return " ".join(text.split())


def faces(verdict: Verdict, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    result = compared(verdict)
    print_comparison([result], ExitCode.REGRESSION)
    names = {verdict.case: "toy.plain@64"}
    place = SourceLine(path="toy/plain.cu", line=3)
    review: Review = review_of([result], {result.comparison.head.suite: {"plain": place}})
    check = check_run(review, Links())["output"]
    return {
        "terminal": capsys.readouterr().out,
        "pytest": "\n".join(comparison_lines(result, names, 120)),
        "json": as_json(result)["verdicts"][0].message,
        "comment": comment(review, Links()),
        "summary": summary(review, Links()),
        "page": page(review, Links()),
        "check": check["summary"],
        "annotation": check["annotations"][0]["message"],
        "workflow command": workflow_commands(review)[0].replace("%25", "%"),
    }


@pytest.mark.parametrize("name", ["slower", "cycles", "tail", "power"])
def test_no_face_disagrees_with_another(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    verdict = replace(SLOWER, **STATUSES[name][0])
    for face, shown in faces(verdict, capsys).items():
        assert STATUSES[name][1] in words(shown), face


def test_every_table_has_the_same_figures(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    shown = faces(SLOWER, capsys)
    figures = "1.204 +13.5 0.31 +13.1 0.31 1,980 → 1,975"
    for face in ("terminal", "pytest"):
        assert f"{figures} regression" in words(shown[face]), face
    for face in ("comment", "summary", "page", "check"):
        assert figures in words(shown[face].replace("</td>", " ")), face
    assert typeset("13.5 %") in shown["comment"]


def test_a_log_turns_no_terminal_around(capsys):
    log = "a.cu(1): error\n\x1b]0;owned\x07\x1b[2J \u202ered\n\tat line 3"
    print_comparison([compared(replace(SLOWER, status="failed", side="head", log=log))], ExitCode.REGRESSION)
    shown = capsys.readouterr().out
    assert "    a.cu(1): error\n" in shown
    assert "at line 3" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_a_compilers_colours_are_on_no_face(capsys, monkeypatch):
    """Nor do signs in their place: of what sets a colour nothing is left."""
    log = "a.cu(1): \x1b[1;31merror\x1b[0m: no \x1b[35mx\x1b[m\r\n\tat line 3"
    verdict = replace(SLOWER, **STATUSES["failed"][0], log=log)
    shown = faces(verdict, capsys)
    shown |= {"junit": junit(review_of([compared(verdict)])), "test": failure("failed", "", log)}
    for face in ("terminal", "comment", "summary", "page", "junit", "test"):
        assert "a.cu(1): error: no x" in words(shown[face]), face
        assert "\ufffd" not in shown[face], face


def test_nothing_measured_is_nothing_assumed(capsys):
    """Where no time was taken, no face speaks of a calibration."""
    gone = replace(SLOWER, **STATUSES["missing"][0])
    shown = faces(gone, capsys)
    for face in ("terminal", "pytest", "comment", "page"):
        assert "alibrated" not in shown[face], face
