"""Events: which changes one commit explains, and which commit that is."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from harness.history.changes import Change
from harness.history.events import events_of, on_one_card_alone, settled, settling
from harness.history.series import Shift
from harness.history.triage import Decision, Stated
from tests.histories import line, series_case

COMMITS = line(300)


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


@pytest.mark.parametrize(
    ("key", "cause"), [("number", "measurement"), ("numpy", "dependency"), ("os", "card"), ("", "unknown")]
)
def test_what_asv_tells_of_measuring_is_a_cause(key, cause):
    shifts = (Shift(at=10, key=key, before="10", after="1"),) if key else ()
    [event] = events(replace(change(9, 10, attribution="unknown"), shifts=shifts))
    assert event.cause == cause


def test_what_moved_on_one_card_alone_is_that_cards_doing():
    cases = [f"suite.kernel@{size}" for size in range(6)]
    [event] = events(*(change(9, 10, case=case, attribution="unknown") for case in cases))
    measured = dict.fromkeys(cases, (0, 19))
    assert on_one_card_alone(event, {"a": measured, "b": measured})
    assert not on_one_card_alone(event, {"a": measured})
    assert not on_one_card_alone(event, {"a": measured, "b": dict.fromkeys(cases, (0, 9))})
    assert not on_one_card_alone(event, {"a": measured, "a/py3.12": measured})
    many = measured | {f"other.kernel@{size}": (0, 19) for size in range(7)}
    assert not on_one_card_alone(event, {"a": many, "b": many})


NEXT = Decision(id="0123456789", commit=COMMITS[10].hash[:12], reason="x", author="Ada")


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        pytest.param(replace(NEXT, id=COMMITS[10].hash[:10], commit="f" * 12), "acknowledged", id="its id"),
        pytest.param(NEXT, "acknowledged", id="a commit of it"),
        pytest.param(replace(NEXT, commit=COMMITS[11].hash[:12]), "new", id="another commit"),
        pytest.param(replace(NEXT, case="copy.copy@64"), "new", id="of one case"),
        pytest.param(replace(NEXT, expires=dt.date(2020, 1, 1)), "expired", id="no longer"),
        pytest.param(replace(NEXT, card="b"), "new", id="of one card"),
    ],
)
def test_one_decision_is_of_all_that_a_commit_did(decision, state):
    found = events(change(8, 10), change(9, 11, card="b"), change(7, 10, case="copy.copy@64", card="b"))
    [event] = settled(found, (decision,), COMMITS, dt.date(2026, 11, 1))
    assert event.state == state
    if state == "acknowledged":
        assert not any(each.is_open for each in event.changes)


def test_a_drift_is_no_commits_and_goes_by_its_id():
    drift = change(20, 90, kind="drift")
    step, slide = sorted(events(change(49, 50), drift), key=lambda event: event.kind == "drift")
    assert (step.kind, slide.kind, slide.by_commit) == ("regression", "drift", False)
    accepted = replace(NEXT, commit=COMMITS[50].hash[:12])
    states = {
        each.kind: each.state for each in settled((step, slide), (accepted,), COMMITS, dt.date(2026, 11, 1))
    }
    assert states == {"regression": "acknowledged", "drift": "new"}


@pytest.mark.parametrize(
    ("state", "card", "metric", "command"),
    [
        ("unjudged", "h200", "gflops", "harness compare 00000006..00000008 matmul.naive@1024"),
        (
            "unjudged",
            "opencl-cpu",
            "gflops",
            "harness compare 00000006..00000008 matmul.naive@1024 --device opencl",
        ),
        ("unjudged", "h200", "time", r"asv continuous --bench '^matmul\.naive@1024' 00000006 00000008"),
        ("new", "h200", "gflops", "harness bisect matmul.naive@1024 00000006 00000008"),
        ("new", "static-sm_86", "spill_bytes", ""),
        ("unjudged", "nvbench-quadro-gv100", "time_ms", ""),
        ("unjudged", "google-benchmark-host", "time_ms", ""),
    ],
)
def test_the_command_that_settles_it_is_one_to_type(state, card, metric, command):
    [event] = events(change(5, 7, card=card), state=state)
    told = settling(event, series_case(metric=metric), COMMITS)
    assert told.replace("00 ", " ").replace("00..", "..").removesuffix("00") == command


def test_the_command_holds_the_commit_that_is_accused():
    """A change that misses its event's commits by little is compared over both."""
    sharp = [change(10, 11, case=f"x{n}", card="b", effect=0.2) for n in range(3)]
    [event] = events(*sharp, change(11, 19), state="unjudged")
    assert (event.good, event.bad, event.worst.change.good) == (10, 11, 11)
    base, head = COMMITS[10].hash[:10], COMMITS[19].hash[:10]
    assert settling(event, series_case(), COMMITS) == f"harness compare {base}..{head} matmul.naive@1024"


def test_what_is_open_is_explained_by_the_fewest_commits():
    """However narrow the range of what is fixed, nobody has to look there."""
    fixed = [change(9, 11, case=f"x{n}", card="b", effect=0.2) for n in range(3)]
    opened = [change(4, 12), change(11, 14, card="c")]
    found = events(*fixed, *opened)
    assert [[each.change for each in event.changes] for event in found if event.is_open] == [opened]
    assert [(event.good, event.bad) for event in found] == [(11, 12), (9, 11)]


def test_a_range_that_misses_the_commit_by_little_makes_no_event_of_its_own():
    """One in twenty does; what was compared in pairs does not."""
    sharp = [change(10, 11, case=f"x{n}", card="b") for n in range(3)]
    missed = change(11, 19)
    [event] = events(*sharp, missed)
    assert (event.good, event.bad, len(event.changes)) == (10, 11, 4)
    for apart in (change(12, 16), replace(missed, compared=True)):
        assert len(events(*sharp, apart)) == 2, apart
