"""What a review comes to: that it fails closed, by the rules of the command, and says so in one sentence."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from harness.errors import ExitCode
from harness.records.record_files import ComparisonResult
from harness.records.types import Verdict
from harness.report.document.document import Review
from harness.report.document.outcome import Groups, grouped, review_outcome, total, wrong_twins
from harness.report.terminal.comparison_tables import exit_code
from tests.review_samples import SAMPLES, STATUSES, card, case, random_review, review, twins

FINE = ("unchanged", "identical", "improvement", "new")
OUTCOMES = [
    *((status, "") for status in STATUSES if status != "failed"),
    *(("failed", side) for side in ("base", "head", "")),
]
SEVERITY = {"success": 0, "neutral": 1, "failure": 2}


def of(outcome, name="naive") -> Verdict:
    status, side = outcome
    return case(name, 64, status, side=side)


def verdict(outcome, name="", *, reason="") -> Verdict:
    status, side = outcome
    return Verdict(
        case=name, kernel="", sizes={}, dtype="", status=status, reason=reason, message="", side=side
    )


def conclusion(*outcomes) -> str:
    return review_outcome(
        review(card(*(of(outcome, f"k{at}") for at, outcome in enumerate(outcomes))))
    ).conclusion


def severity(found: Review) -> int:
    return SEVERITY[review_outcome(found).conclusion]


def test_the_check_passes_where_the_command_passes_and_fails_where_it_finds_a_regression():
    meaning = {
        ExitCode.FINE: "success",
        ExitCode.REGRESSION: "failure",
        ExitCode.NOT_MEASURED: "neutral",
        ExitCode.INCONCLUSIVE: "neutral",
    }
    for count in range(4):
        for outcomes in combinations_with_replacement(OUTCOMES, count):
            verdicts = tuple(map(verdict, outcomes))
            result = ComparisonResult(comparison=None, verdicts=verdicts)  # type: ignore[arg-type]
            assert conclusion(*outcomes) == meaning[exit_code([result])], outcomes


@pytest.mark.parametrize(
    "over", [{"complete": False}, {"problem": "The disk is full."}, {"twins": (twins("naive")[1],)}]
)
def test_a_card_that_was_not_measured_to_its_end_and_in_order_never_passes(over):
    if "twins" in over:
        over = {"twins": (replace(over["twins"][0], status="unchanged"),)}
    fine, other = card(*map(of, [(status, "") for status in FINE])), card(of(("unchanged", "")))
    assert review_outcome(review(fine, other)).conclusion == "success"
    assert review_outcome(review(fine, replace(other, **over))).conclusion == "neutral"
    bad = card(of(("regression", "")), **over)
    assert review_outcome(review(fine, bad)).conclusion == "failure"


@pytest.mark.parametrize(
    ("cause", "conclusion"),
    [
        ("code", "failure"),
        (None, "failure"),
        ("power", "failure"),
        ("clocks", "neutral"),
        ("thermal", "neutral"),
        ("contention", "neutral"),
        ("environment", "neutral"),
    ],
)
def test_what_the_card_slowed_is_not_held_against_the_code_and_not_passed_either(cause, conclusion):
    found = review_outcome(
        review(card(case("a", 64, "regression", attribution=cause), case("b", 64, "unchanged")))
    )
    assert found.conclusion == conclusion
    if conclusion == "neutral":
        told = "1 of 2 cases could not be judged: slower by the card and not by the code"
        assert found.headline == f"{told}; none of the others is slower."


def test_a_card_without_a_case_never_passes():
    assert review_outcome(review()).conclusion == "neutral"
    assert review_outcome(review(card())).state == "empty"
    found = review_outcome(review(card(of(("unchanged", ""))), card()))
    assert (found.state, found.conclusion) == ("empty", "neutral")
    assert found.headline == "No case was compared (on 1 of 2 cards); the only case is not slower."


@pytest.mark.parametrize("reason", ["budget-spent", "interrupted"])
def test_a_planted_slowdown_that_there_was_no_time_for_is_no_reason_for_distrust(reason):
    missed = replace(twins("naive")[1], status="inconclusive", reason=reason)
    assert not wrong_twins(card(of(("unchanged", "")), twins=(missed,)))


@pytest.mark.parametrize("seed", range(60))
def test_success_is_said_only_of_cases_that_are_all_fine(seed):
    found = random_review(seed, most_cases=6)
    statuses = {each.status for card in found.cards for each in card.cases}
    fine = statuses <= {*FINE} and statuses != {"new"}
    whole = all(card.cases and card.complete and not card.problem for card in found.cards)
    assert (review_outcome(found).conclusion == "success") == (fine and whole and bool(found.cards))


@pytest.mark.parametrize("seed", range(60))
def test_no_change_of_one_case_makes_a_verdict_better_but_by_mending_that_case(seed):
    rng = random.Random(seed)
    found = random_review(seed, most_cases=8)
    before = severity(found)
    for at, each in enumerate(found.cards):
        for index, one in enumerate(each.cases):
            changed = replace(one, status=rng.choice(STATUSES), side=rng.choice(("head", "base", "")))
            alone = [severity(review(card(case_))) for case_ in (one, changed)]
            cases = [*each.cases[:index], changed, *each.cases[index + 1 :]]
            after = severity(_with(found, at, cases))
            assert after >= before or (alone[0] == before and alone[1] < before)
            dropped = severity(_with(found, at, [*each.cases[:index], *each.cases[index + 1 :]]))
            assert dropped >= before or alone[0] == before


def _with(found: Review, at: int, cases) -> Review:
    cards = list(found.cards)
    cards[at] = replace(cards[at], cases=tuple(cases))
    return replace(found, cards=tuple(cards))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_case_is_in_one_group(name):
    found = SAMPLES[name]()
    groups = grouped(found)
    named = [id(each.case) for group in Groups.__dataclass_fields__ for each in getattr(groups, group)]
    assert len(named) == len(set(named)) == total(found)


@pytest.mark.parametrize(
    ("cases", "sentence"),
    [
        ([case("a", 64, "regression")], "1 of 1 case is slower: matmul.a@64 by 1.70 %."),
        ([case("a", 64, "regression", time=None)], "1 of 1 case is slower: matmul.a@64."),
        (
            [case("a", 64, "regression", reason="slower-in-cycles")],
            "1 of 1 case is slower: matmul.a@64 by 1.68 % in cycles.",
        ),
        ([case("a", 64, "failed", side="head")], "1 of 1 case fails at head: matmul.a@64."),
        ([case("a", 64, "missing"), case("b", 64)], "1 of 2 cases is missing: matmul.a@64."),
        ([case("a", 64)], "The only case is not slower."),
        (
            [case("a", 64, "identical"), case("b", 64, "identical")],
            "None of 2 cases is slower: their code is the same.",
        ),
        ([case("a", 64, "new"), case("b", 64)], "None of 2 cases is slower; 1 is new."),
        (
            [case("a", 64, "inconclusive")],
            "1 of 1 case could not be judged: too noisy to tell.",
        ),
    ],
)
def test_the_headline_counts_in_english(cases, sentence):
    assert review_outcome(review(card(*cases))).headline == sentence
