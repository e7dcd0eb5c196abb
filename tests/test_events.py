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
from tests.sampling import given, settings, st

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
    assert (event.cause, event.surroundings) == (cause, tuple(map(str, shifts)))


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


def test_what_is_open_is_explained_by_the_fewest_commits():
    """However narrow the range of what is fixed, nobody has to look there."""
    fixed = [change(9, 11, case=f"x{n}", card="b", effect=0.2) for n in range(3)]
    opened = [change(4, 12), change(11, 14, card="c")]
    found = events(*fixed, *opened)
    assert [[each.change for each in event.changes] for event in found if event.is_open] == [opened]
    assert [(event.good, event.bad) for event in found] == [(11, 12), (9, 11)]


def named(*ranges):
    """Changes by name: of one case each, with a range."""
    return [change(good, bad, case=case) for case, good, bad in ranges]


@pytest.mark.parametrize("between", [[], [("c.c@1", 195, 225)]], ids=["sharp", "with one that holds both"])
def test_two_commits_with_adjacent_ranges_are_two_events(between):
    cases = [(f"a.a{n}@1", 200, 210) for n in range(3)] + [(f"b.b{n}@1", 210, 220) for n in range(3)]
    found = events(*named(*cases, *between))
    assert sorted(event.narrowest[-1] for event in found) == [210, 220]
    assert [len(event.narrowest) for event in found] == [10, 10]


def test_a_range_that_holds_two_commits_goes_to_the_one_of_its_own_suite():
    wide = ("b.wide@1", 200, 220)
    found = events(*named(*((f"a.a{n}@1", 200, 210) for n in range(5)), ("b.b@1", 210, 220), wide))
    assert [event.good for event in found if "b.wide@1" in event.cases] == [200]
    assert [event.narrowest for event in found if "b.wide@1" in event.cases] == [range(211, 221)]


@pytest.mark.parametrize(
    ("second", "suspects", "several"),
    [
        pytest.param(("a.k@2", 20, 40), range(21, 31), False, id="another size of the kernel"),
        pytest.param(("b.other@1", 20, 40), range(11, 41), True, id="another kernel"),
    ],
)
def test_only_cases_of_one_source_narrow_a_range(second, suspects, several):
    [event] = events(*named(("a.k@1", 10, 30), second))
    assert (sorted(event.suspects), event.may_be_several) == (list(suspects), several)
    assert (event.id, event.accused) == (COMMITS[30].hash[:10], None)


def test_the_same_case_does_not_narrow_the_range_of_an_opposite_change():
    slower = change(10, 30, case="a.k@1", card="x")
    [event] = events(slower, change(20, 40, case="a.k@1", card="y", effect=0.2))
    assert (sorted(event.suspects), event.may_be_several) == (list(range(11, 41)), True)


def test_of_ranges_of_several_sources_that_overlap_no_commit_is_first():
    """The one commit that they have in common explains them no better than two others do."""
    [event] = events(*named(("a.k@1", 10, 30), ("b.k@1", 29, 40)))
    assert (event.narrowest, event.common, event.accused) == (range(11, 41), range(30, 31), None)


def test_a_change_that_only_a_card_made_accuses_no_commit():
    [event] = events(change(9, 10, kind="environment", attribution="thermal"))
    assert (event.suspects, event.accused) == ((10,), None)


def test_a_narrow_range_comes_first_and_others_stay_suspects():
    [event] = events(*named(("a.k@1", 20, 21), ("b.k@1", 15, 30)))
    assert (event.narrowest, event.accused, event.loose) == (range(21, 22), 21, 1)
    assert sorted(event.suspects) == list(range(16, 31))


def test_a_slight_change_of_another_source_does_not_narrow_the_range_of_a_grave_one():
    grave, slight = change(10, 30, case="a.k@1", effect=-0.5), change(20, 21, case="b.k@1", effect=-0.05)
    [event] = events(grave, slight)
    assert (event.narrowest, event.accused, event.may_be_several) == (range(11, 31), None, True)


def test_a_slight_change_of_the_same_source_does_not_narrow_the_range_of_a_grave_one():
    grave, slight = change(10, 30, case="a.k@1", effect=-0.5), change(20, 21, case="a.k@2", effect=-0.05)
    [event] = events(grave, slight)
    assert (sorted(event.suspects), event.may_be_several) == (list(range(11, 31)), True)


def test_two_changes_of_one_series_are_of_two_commits():
    first, second = sorted(
        events(*named(("a.k@1", 10, 15), ("a.k@1", 8, 19))), key=lambda event: event.narrowest[-1]
    )
    assert (first.suspects, len(second.suspects)) == (tuple(range(11, 16)), 11)
    [alike] = events(*named(("a.k@1", 14, 15), ("a.k@1", 11, 15)))
    assert (alike.moved_twice, alike.accused) == ("a.k@1", None)
    assert (alike.narrowest, sorted(alike.suspects)) == (range(15, 16), [12, 13, 14, 15])


CHANGES = st.builds(
    lambda good, width, case, card, effect, kind: change(
        good, good + width, case=case, card=card, effect=effect, kind=kind
    ),
    st.integers(0, 60),
    st.integers(1, 30),
    st.sampled_from(["a.k@1", "a.k@2", "a.other@1", "b.k@1"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from([-0.5, -0.1, 0.2]),
    st.sampled_from(["", "", "", "environment", "drift"]),
)


sampled_changes = given(st.lists(CHANGES, max_size=25))


@settings(max_examples=200)
@sampled_changes
def test_each_change_has_a_suspect_within_its_own_range(changes):
    found = events(*changes)
    assert sum(len(event.changes) for event in found) == len(changes)
    for event in found:
        assert sorted(event.suspects) == list(range(event.good + 1, event.bad + 1))
        assert set(event.suspects[: len(event.narrowest)]) == set(event.narrowest)
        for each in event.changes:
            assert set(event.common) & set(event.suspects)
            assert set(event.common) <= set(range(each.change.good + 1, each.change.bad + 1))


def test_what_is_open_comes_by_size_and_number():
    small = [change(199, 200, case=f"small.k{n}@1", effect=-0.02) for n in range(4)]
    many = [change(99, 100, case=f"many.k{n}@1", effect=-0.1) for n in range(9)]
    found = events(*small, *many, change(9, 10, effect=-0.2), change(29, 30, effect=0.5))
    assert [event.narrowest[-1] for event in found] == [100, 10, 200, 30]


def test_an_interval_that_nearly_holds_no_change_weighs_little():
    unsure = replace(change(99, 100, effect=-0.5), low=-0.9, high=-0.01)
    sure = change(9, 10, case="copy.copy@64", effect=-0.1)
    assert [event.worst.change for event in events(unsure, sure)] == [sure, unsure]


def test_drifts_that_end_at_one_commit_are_one_event():
    drifts = [
        change(good, 90, case=f"a.k{good}@1", effect=-good / 100, kind="drift") for good in (20, 30, 10)
    ]
    later = change(20, 91, case="b.k@1", kind="drift")
    found = {len(event.cases): event for event in events(*drifts, later)}
    assert (found[3].good, found[3].id, found[1].id) == (10, drifts[1].id, later.id)


@sampled_changes
def test_no_two_events_have_the_same_id(changes):
    found = [event for event in events(*changes) if event.by_commit]
    assert len({event.id for event in found}) == len(found)
