"""Events: which changes one commit explains, and which commit that is."""

from __future__ import annotations

import pytest

from harness.history.changes import Change
from harness.history.events import events_of
from harness.history.facts import Commit, Commits
from harness.history.triage import Stated

COMMITS = Commits(tuple(Commit(f"{n + 1:08x}".ljust(40, "0"), n, "Ada", f"Commit {n}") for n in range(300)))


def change(good, bad, *, case="matmul.naive@1024", card="a", effect=-0.1, kind="", attribution="code"):
    return Change(
        id=f"{card}{case}{good}",
        card=card,
        case=case,
        kind=kind or ("regression" if effect < 0 else "improvement"),
        attribution=attribution,
        at=bad,
        first=bad,
        last=bad,
        good=good,
        bad=bad,
        before=100.0,
        after=100 * (1 + effect),
        effect=effect,
        low=effect - 0.01,
        high=effect + 0.01,
        p_value=1e-6,
    )


def events(*changes, state="new"):
    return events_of(
        (Stated(change=each, state=state if each.effect < 0 else "") for each in changes), COMMITS
    )


@pytest.mark.parametrize(
    ("ranges", "accused"),
    [
        pytest.param([(246, 247)] * 3 + [(246, 248)], 247, id="three exact, one not"),
        pytest.param([(57, 61), (59, 61), (58, 60)], 60, id="what all have in common"),
        pytest.param([(247, 248), (246, 248), (240, 260)], 248, id="nested"),
    ],
)
def test_ranges_that_overlap_accuse_what_they_have_in_common(ranges, accused):
    [event] = events(*(change(*each, card=str(n)) for n, each in enumerate(ranges)))
    assert (event.accused, event.id) == (accused, COMMITS[accused].hash[:10])
    assert len(event.cards) == len(ranges)


def test_opposite_changes_by_one_commit_are_one_event():
    [event] = events(change(9, 10), change(9, 10, case="copy.copy@64", effect=0.2))
    assert (event.kind, event.state, len(event.cases)) == ("regression", "new", 2)


def test_two_commits_are_two_events_and_a_range_goes_where_its_case_changed_elsewhere():
    wide = change(5, 30, card="b")
    first, second = events(change(19, 20), change(9, 10, case="copy.copy@64"), change(9, 10, case="x"), wide)
    assert (first.accused, second.accused) == (20, 10)
    assert [each.change for each in first.changes if each.change.card == "b"] == [wide]


def test_what_a_card_did_is_no_event_of_a_commit_nor_of_another_card():
    hot = {"kind": "environment", "attribution": "thermal"}
    found = events(change(9, 10), change(9, 10, card="b", **hot), change(9, 10, card="c", **hot))
    assert sorted(event.cause for event in found) == ["card", "card", "code"]
