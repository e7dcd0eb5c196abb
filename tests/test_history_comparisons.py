"""Stored comparisons of two commits, as evidence in a card's history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.history.changes import analyse
from harness.history.comparisons import ComparedCase, with_comparisons
from harness.history.sources.our_records import Judged, TimeEffect
from harness.records.types import Diagnosis
from tests.test_history_triage import COMMITS, analysed

SLOWER = analysed(100, 90)
[FALL] = SLOWER.changes
LEVEL = analysed(100)
HALVED = analyse(
    replace(LEVEL.series, values=np.append(LEVEL.series.values[:-1], LEVEL.series.values[-1] / 2)),
    None,
    COMMITS,
)
"""The newest of twenty figures."""


DIAGNOSIS = Diagnosis(problem="Administrators alone may read them.")


def compared(base, head, status, effect=0.11):
    diagnosis = DIAGNOSIS if status == "regression" else None
    judged = Judged("matmul.naive@1024", status, TimeEffect(effect, effect - 0.01, effect + 0.01), diagnosis)
    return ComparedCase(base=base, head=head, judged=judged)


def after(found, *told):
    return with_comparisons(found, told, COMMITS)


def test_ranges_are_narrowed_by_what_was_found_and_by_what_was_not():
    wide = with_range(SLOWER, 10, 30)
    told = compared(10, 20, "unchanged"), compared(10, 26, "regression"), compared(24, 26, "identical")
    [change] = after(wide, *told).changes
    assert (change.good, change.bad, change.compared) == (20, 24, True)
    assert change.diagnosis == DIAGNOSIS


def test_what_a_comparison_does_not_find_is_not_the_codes():
    [change] = after(SLOWER, compared(FALL.good - 3, FALL.bad + 3, "unchanged", 0.0)).changes
    assert (change.kind, change.attribution) == ("environment", "environment")


def test_a_comparison_elsewhere_says_nothing_of_a_change():
    told = compared(0, FALL.good, "unchanged", 0.0), compared(FALL.bad, FALL.bad + 5, "inconclusive")
    assert after(SLOWER, *told).changes == (FALL,)


@pytest.mark.parametrize(
    ("status", "kinds"), [("regression", ["regression"]), ("unchanged", []), ("identical", [])]
)
def test_the_newest_figures_are_judged_by_a_comparison(status, kinds):
    assert HALVED.unjudged
    found = after(HALVED, compared(18, 19, status, 1.0))
    assert found.unjudged is None
    assert [change.kind for change in found.changes] == kinds
    for change in found.changes:
        assert (change.good, change.bad) == (18, 19)
        assert change.effect == pytest.approx(-0.5)


def test_an_inconclusive_one_leaves_them_unjudged():
    assert after(HALVED, compared(18, 19, "inconclusive", 0.3)).unjudged == HALVED.unjudged


def test_what_is_too_small_to_show_is_a_change_all_the_same():
    [change] = after(LEVEL, compared(7, 9, "regression", 0.02), compared(3, 12, "regression", 0.02)).changes
    assert (change.kind, change.good, change.bad) == ("regression", 7, 9)
    assert change.diagnosis == DIAGNOSIS
    assert change.effect == pytest.approx(1 / 1.02 - 1)
    assert change.low < change.effect < change.high


def test_comparisons_say_nothing_of_what_has_no_time_behind_it():
    registers = analysed(40, 50, metric="registers")
    assert after(registers, compared(0, 39, "unchanged", 0.0)) == registers


def with_range(found, good, bad):
    [change] = found.changes
    return replace(found, changes=(replace(change, good=good, bad=bad),))
