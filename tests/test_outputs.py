"""The words for what outputs were held to, on every face."""

from __future__ import annotations

import msgspec
import pytest

from harness.records.types import Outputs, Verdict
from harness.report.document.check import problems
from harness.report.pull_request.comment_markdown import comment
from harness.report.words.of_verdict import held_to, outputs_counted, sentence
from tests.review_samples import BASE, HEAD, LINKS, OUTPUTS, card, case, review


def test_a_record_from_before_this_field_loads_without_it():
    older = msgspec.json.decode(msgspec.json.encode(case("naive")))
    del older["outputs"]
    assert msgspec.convert(older, Verdict).outputs is None


@pytest.mark.parametrize("outputs", [each for each in OUTPUTS.values() if each.held_to != "reference"])
def test_only_a_reference_makes_outputs_verified(outputs):
    found = case("naive", outputs=outputs)
    told = (held_to(found), sentence(found), outputs_counted([found]))
    assert all(told)
    assert "verified" not in " ".join(told)


def test_verified_outputs_need_no_word_of_their_own():
    found = case("naive", outputs=OUTPUTS["verified"])
    assert outputs_counted([found, case("older")]) == ""
    assert sentence(found) == sentence(case("naive"))


def test_a_report_that_passes_outputs_beyond_the_tolerance_is_refused():
    wrong = Outputs(held_to="base", error=1.5)
    passed, failed = (
        review(card(case("naive", 1024, "unchanged", outputs=outputs)))
        for outputs in (Outputs(held_to="base", error=1.0), wrong)
    )
    assert not problems(passed, bases=[BASE], head=HEAD)
    assert any("1.5 times the tolerance" in told for told in problems(failed, bases=[BASE], head=HEAD))


@pytest.mark.parametrize(
    ("outputs", "executables", "told"),
    [
        (OUTPUTS["verified"], False, "is new, and right"),
        (OUTPUTS["not-compared"], False, "is new"),
        (None, True, "is new"),
    ],
)
def test_a_new_case_is_right_where_a_reference_says_so(outputs, executables, told):
    new = case("naive", 1024, "new", outputs=outputs)
    text = comment(review(card(case("other"), new, executables=executables)), LINKS)
    assert f"<b>1 {told}</b>" in text
