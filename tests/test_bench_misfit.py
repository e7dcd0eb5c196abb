"""scripts/bench_misfit.py: a simulation can show a broken promise, and its result does not depend on how the
work is split.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scripts import bench_misfit
from scripts.bench_misfit import EFFECTS, POLICY, Cell, Count, breaches

CELLS = {cell.name: cell for cell in bench_misfit.cells()}


def told(cell: Cell, **counts: Any) -> tuple[Cell, Count]:
    return cell, Count(trials=1000, **counts)


def broken(*counted: tuple[Cell, Count]) -> list[tuple[str, str, bool]]:
    found = breaches([cell for cell, _ in counted], [count for _, count in counted])
    return [(each.promise, each.cell, each.surely) for each in found]


def test_what_is_as_assumed_is_found_and_the_table_says_so(capsys, tmp_path):
    file = tmp_path / "misfit.json"
    asked = ["--cells", "spread 0.1/default/+[01] %", "--trials", "6", "--more", "2", "--jobs", "1"]
    assert bench_misfit.main([*asked, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()[2:4]]
    # Of twelve comparisons without an alarm no more can be said than that fewer than one in five has one.
    assert [row[:8] for row in rows] == [
        ["spread 0.1", "default", "+0 %", "0", "0 (≤ 22)", "100", "0", "100"],
        ["spread 0.1", "default", "+1 %", "100", "100", "0", "0", "100"],
    ]
    assert "Every promise was kept." in printed
    book = json.loads(file.read_bytes())
    assert [each["reasons"] for each in book["cells"]] == [
        {"unchanged: within-tolerance": 12},
        {"regression: slower-in-time": 6},
    ]
    assert book["breaches"] == []


def test_trials_are_the_same_whatever_else_is_simulated():
    cell = CELLS["two clocks, exponent 1/0.03 known/+0.5 %"]
    again = [bench_misfit.simulate(cell, 1, 0, 2) for _ in range(2)]
    assert again[0] == again[1]
    assert bench_misfit.simulate(cell, 1, 1, 2) != again[0]


BIASED = ("after base", "of head's slots")
"""Noises that favour base by design."""
UNBIASED = {cell.noise: cell for cell in CELLS.values() if not any(what in cell.noise for what in BIASED)}


@pytest.mark.parametrize("cell", UNBIASED.values(), ids=UNBIASED)
def test_slots_have_the_effect_that_the_cell_names_and_no_bias(cell):
    rng = np.random.default_rng(1)
    effect = math.log1p(cell.effects[-1])
    found = []
    for _ in range(150):
        head = np.where(rng.random((100, 1)) < 0.5, [[0.0, 1.0, 1.0, 0.0]], [[1.0, 0.0, 0.0, 1.0]])
        slots = cell.make(rng, head, effect)
        found.append(((head - 0.5) * slots.logs).sum(axis=1).mean())
        if slots.clocks is not None:
            # Cycles are clock by time, or nothing would be told by both.
            assert slots.cycles - slots.clocks == pytest.approx(slots.logs)
    error = np.std(found) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(effect, abs=4 * error)


SINGLE = {effect: CELLS[f"spread 0.1/default/{100 * effect:+g} %"] for effect in EFFECTS}


def test_each_promise_is_held_against_the_cells_that_it_is_of():
    margin, more, most = (SINGLE[effect] for effect in (POLICY.margin, 0.02, 0.1))
    assert (
        broken(told(margin, confirmed=1, same=999), told(more, confirmed=950), told(most, confirmed=960))
        == []
    )
    assert broken(told(margin, confirmed=2)) == [("false", margin.name, False)]
    assert broken(told(margin, confirmed=10)) == [("false", margin.name, True)]
    assert broken(told(more, confirmed=990, same=10)) == [("same", more.name, True)]
    assert broken(told(more, confirmed=950), told(most, confirmed=900)) == [("power", most.name, True)]
    # What chance may do is no fall, and nor is the difference to another kind of noise.
    other = replace(most, noise="other")
    assert broken(told(more, confirmed=950), told(most, confirmed=940), told(other, confirmed=10)) == []


def test_of_many_cases_those_are_counted_that_are_as_the_first():
    cell = CELLS["20 cases, spread 0.1/default/+0.25 %"]
    count = bench_misfit.simulate(replace(cell, effects=(0.02, 0.0)), 1, 0, 1)
    assert (count.called, count.confirmed, count.same, count.undecided) == (1, 1, 0, 0)
    assert sum(count.reasons.values()) == 1
    assert count.processes == 4
