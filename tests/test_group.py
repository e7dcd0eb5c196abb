"""Evidence over machines: which hints count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judgement.statistics.group import Hint, confirmed

SURE = Hint(machine="a", case="one", good=57, bad=61, effect=-0.2, sure=True)
HINT = Hint(machine="b", case="one", good=59, bad=63, effect=-0.1, sure=False)


def test_a_hint_counts_where_another_machine_is_sure():
    assert confirmed([HINT, SURE]) == (0,)
    assert confirmed([SURE, HINT, replace(HINT, machine="c")]) == (1, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"machine": "b"},
        {"case": "two"},
        {"effect": 0.2},
        {"effect": -0.5},
        {"effect": -0.03},
        {"good": 63, "bad": 65},
        {"good": 50, "bad": 59},
        {"sure": False},
    ],
    ids=str,
)
def test_it_does_not_where_that_is_something_else(other):
    assert confirmed([HINT, replace(SURE, **other)]) == ()


def test_sizes_are_compared_as_ratios():
    up = replace(SURE, effect=1.0)
    assert confirmed([replace(HINT, effect=0.26), up]) == (0,)
    assert confirmed([replace(HINT, effect=0.25), up]) == ()


def test_nothing_is_confirmed_of_nothing():
    assert confirmed([]) == ()
