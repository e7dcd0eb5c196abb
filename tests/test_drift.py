"""Drift: slides of every length are found, and nothing else is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.judgement.statistics.drift import find_drift
from scripts.bench_changepoints import CELLS


def slide(effect, figures, sd, before=0, seed=1):
    logs = np.concatenate((np.zeros(before), math.log1p(effect) * np.arange(figures) / figures))
    return 1000 * np.exp(logs + sd * np.random.default_rng(seed).standard_normal(logs.size))


def told(values):
    drift = find_drift(values)
    assert drift is not None
    return drift


@pytest.mark.parametrize("before", [0, 300])
@pytest.mark.parametrize(
    ("effect", "figures", "sd"),
    [(-0.3, 100, 0.002), (-0.05, 120, 0.0005), (-0.1, 100, 0.01), (0.1, 100, 0.01)],
)
def test_a_slide_is_told(effect, figures, sd, before):
    drift = told(slide(effect, figures, sd, before))
    assert drift.stop == before + figures
    assert drift.effect == pytest.approx(effect, rel=0.3)
    assert drift.low < drift.effect < drift.high
    assert drift.best < before + figures // 2


def test_a_slide_in_noise_that_carries_over_is_told():
    count = 0
    for seed in range(40):
        logs = CELLS["AR(1)"](np.random.default_rng([2, seed]), 100) + math.log(0.9) * np.arange(100) / 100
        count += find_drift(np.exp(logs)) is not None
    assert count >= 36


@pytest.mark.parametrize("cell", ["1 %", "AR(1)", "t3", "throttle", "bimodal", "drift"])
@pytest.mark.parametrize("count", [60, 250])
def test_noise_does_not_slide(cell, count):
    drifts = (find_drift(np.exp(CELLS[cell](np.random.default_rng([3, seed]), count))) for seed in range(150))
    assert sum(drift is not None for drift in drifts) <= 1


@pytest.mark.parametrize("period", [50, 100, 200])
def test_seasons_do_not_slide(period):
    for seed in range(20):
        rng = np.random.default_rng([4, seed])
        logs = 0.03 * np.sin(2 * np.pi * (np.arange(400) / period + rng.random()))
        assert find_drift(np.exp(logs + 0.002 * rng.standard_normal(400))) is None


def test_a_step_does_not_slide():
    for at in (30, 60, 90):
        logs = 0.005 * np.random.default_rng([5, at]).standard_normal(120)
        logs[at:] -= 0.1
        assert find_drift(np.exp(logs)) is None


def test_gaps_do_not_move_it():
    values = slide(-0.1, 100, 0.002)
    holed = np.insert(values, np.arange(0, 100, 4), math.nan)
    whole, other = told(values), told(holed)
    assert other.effect == whole.effect
    assert holed[other.best] == values[whole.best]


def test_too_few_figures_and_two_axes():
    assert find_drift(np.linspace(100, 50, 39)) is None
    assert find_drift([]) is None
    with pytest.raises(ValueError, match="2 axes"):
        find_drift([[1.0]])
