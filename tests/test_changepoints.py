"""Change points: which steps count, how soon they are found, and intervals that hold what they promise."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import scipy  # its parts load when they are used

from harness.judgement.statistics.changepoints import find_changes
from harness.judgement.statistics.windows import CANDIDATE, LOOK_AHEAD
from scripts import bench_changepoints as bench
from tests.support import no_oftener_than

CELLS = bench.CELLS


def no_seldomer_than(rate, count, trials):
    return scipy.stats.binomtest(int(count), trials, rate, alternative="less").pvalue > 1e-3


def noise(seed, count=200, sd=0.01):
    return sd * np.random.default_rng(seed).standard_normal(count)


def with_steps(logs, **at):
    """`logs` as figures about 1000, with steps: at_100=-0.05 makes index 100 the first that is 5 % less."""
    logs = logs.copy()
    for place, effect in at.items():
        logs[int(place.removeprefix("at_")) :] += math.log1p(effect)
    return 1000 * np.exp(logs)


def places(found):
    return [change.at for change in found.changes]


def the_newest(found):
    newest = found.newest
    assert newest is not None
    return newest.at, newest.figures


class TestWithoutNoise:
    @pytest.mark.parametrize("values", [[], [math.nan] * 5, [0.0, -1.0, math.inf]])
    def test_no_figures_have_no_levels(self, values):
        found = find_changes(values)
        assert (found.changes, found.levels, found.outliers) == ((), (), ())
        assert math.isnan(found.noise)

    @pytest.mark.parametrize("values", [[3.0], [3.0, 4.0], [32.0, 32.0, 40.0], [5.0] * 50])
    def test_too_few_figures_or_equal_ones_are_one_level(self, values):
        found = find_changes(values)
        assert found.changes == ()
        assert [(level.start, level.stop) for level in found.levels] == [(0, len(values))]

    @pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 2), (10, 2), (10, 3), (300, 2), (4, 300)])
    def test_a_count_of_registers_needs_two_figures_of_the_new_level(self, before, after):
        found = find_changes([32.0] * before + [40.0] * after)
        (change,) = found.changes
        assert (change.at, change.first, change.last) == (before, before, before)
        assert change.effect == pytest.approx(0.25)
        assert change.low == pytest.approx(0.25, abs=0.005)
        assert change.high == pytest.approx(0.25, abs=0.005)
        assert [change.before, change.after] == pytest.approx([32, 40])

    def test_one_figure_is_not_enough(self):
        found = find_changes([32.0] * 10 + [40.0])
        assert found.changes == ()
        assert the_newest(found) == (10, 1)
        assert found.outliers == ()

    def test_a_count_that_goes_back_after_three_is_two_changes(self):
        assert places(find_changes([32.0] * 10 + [40.0] * 3 + [32.0] * 5)) == [10, 13]

    @pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e12, 1e300])
    def test_magnitudes_do_not_matter(self, scale):
        (change,) = find_changes(scale * np.array([1.0] * 10 + [2.0] * 5)).changes
        assert change.at == 10
        assert change.effect == pytest.approx(1)

    def test_a_jump_that_no_float_can_hold(self):
        (change,) = find_changes([1e-300] * 10 + [1e300] * 10).changes
        assert change.at == 10
        assert change.effect > 1e300

    def test_two_axes_are_refused(self):
        with pytest.raises(ValueError, match="2 axes"):
            find_changes([[1.0, 2.0]])


class TestWhatIsSaid:
    def test_a_clear_step(self):
        found = find_changes(with_steps(noise(1), at_100=-0.05))
        (change,) = found.changes
        assert abs(change.at - 100) <= 1
        assert change.first <= 100 <= change.last
        assert change.low < -0.05 < change.high
        assert change.high - change.low < 0.02
        assert change.effect == pytest.approx(change.after / change.before - 1)
        assert change.before == pytest.approx(1000, rel=0.01)
        assert change.p_value < 1e-6

    def test_levels_are_between_the_changes(self):
        found = find_changes(with_steps(noise(2, 300), at_100=-0.05, at_200=0.1))
        first, second = places(found)
        assert [(level.start, level.stop) for level in found.levels] == [
            (0, first),
            (first, second),
            (second, 300),
        ]
        expected = [1000, 950, 1045]
        assert [level.level for level in found.levels] == pytest.approx(expected, rel=0.005)
        assert [level.sd for level in found.levels] == pytest.approx([0.01] * 3, rel=0.3)

    def test_figures_that_are_off_but_no_strays_hardly_move_a_level(self):
        off = []
        for seed in range(20):
            logs = noise([31, seed], sd=0.005)
            logs[50:100:7] += 0.02
            (change,) = find_changes(with_steps(logs, at_100=-0.05)).changes
            off.append(change.before / 1000 - 1)
        # Their mean would be 0.0032 off.
        assert np.mean(off) < 0.0022

    @pytest.mark.parametrize("sd", [0.0001, 0.01, 0.03])
    def test_the_noise_is_that_of_one_figure(self, sd):
        found = find_changes(with_steps(noise(3, 600, sd), at_300=0.2))
        assert found.noise == pytest.approx(sd, rel=0.15)
        assert found.autocorrelation < 0.15

    def test_noise_that_carries_over_is_told(self):
        found = find_changes(1000 * np.exp(CELLS["AR(1)"](np.random.default_rng(4), 1000)))
        assert found.autocorrelation == pytest.approx(0.6, abs=0.12)
        assert found.noise == pytest.approx(0.01, rel=0.2)

    @pytest.mark.parametrize("scale", [1e-9, 1024.0])
    def test_the_unit_does_not_matter(self, scale):
        values = with_steps(noise(5), at_100=-0.03)
        here, there = find_changes(values).changes, find_changes(values * scale).changes
        assert [(c.at, c.first, c.last) for c in here] == [(c.at, c.first, c.last) for c in there]
        assert [c.effect for c in here] == pytest.approx([c.effect for c in there])

    def test_seconds_tell_what_performance_tells(self):
        values = with_steps(noise(6), at_60=-0.05, at_120=0.08)
        speed, seconds = find_changes(values).changes, find_changes(1 / values).changes
        assert [c.at for c in speed] == [c.at for c in seconds]
        assert [1 / (1 + c.effect) - 1 for c in speed] == pytest.approx([c.effect for c in seconds])

    def test_it_is_the_same_twice_and_leaves_the_values_alone(self):
        values = with_steps(CELLS["throttle"](np.random.default_rng(7), 300), at_100=-0.05)
        values[50:60] = math.nan
        copy = values.copy()
        assert find_changes(values) == find_changes(values)
        np.testing.assert_array_equal(values, copy)

    def test_commits_without_a_figure_may_have_begun_the_new_level(self):
        values = with_steps(noise(8, sd=0.002), at_103=-0.05)
        values[98:103] = math.nan
        (change,) = find_changes(values).changes
        assert (change.first, change.at) == (98, 103)

    def test_what_is_no_figure_changes_nothing_else(self):
        values = with_steps(noise(9), at_100=-0.03)
        gaps = np.insert(values, np.arange(0, 200, 3), [math.nan, math.inf, 0.0, -5.0] * 16 + [math.nan] * 3)
        where = np.flatnonzero(np.isfinite(gaps) & (gaps > 0))
        without, within = find_changes(values).changes, find_changes(gaps).changes
        assert len(without) == 1
        assert [where[c.at] for c in without] == [c.at for c in within]
        assert [where[c.last] for c in without] == [c.last for c in within]
        assert [c.low for c in without] == [c.low for c in within]


class TestWhatIsNoChange:
    def test_strays_are_set_aside(self):
        logs = noise(10, sd=0.005)
        strays = (20, 21, 77, 150, 199)
        logs[list(strays)] -= 0.2
        found = find_changes(1000 * np.exp(logs))
        assert found.changes == ()
        assert found.outliers == strays[:-1]
        assert the_newest(found) == (199, 1)

    def test_a_stray_beside_a_step_does_not_hide_it(self):
        """GB/s of a copy on an H200 by commit: the second run of the faster code was disturbed."""
        old = (2153.1, 2152.4, 2167.6, 2143.8, 2118.9, 2157.6, 2168.7, 2150.9)
        values = np.array((*old, 2648.8, 1724.0, 2693.0, 2691.4, 2715.3, 2553.6))
        for series, at in ((values, 8), (values[::-1], 6)):
            found = find_changes(series, significance=0.002)
            assert places(found) == [at]
            assert [series[each] for each in found.outliers] == [1724.0]
            assert found.newest is None

    def test_a_burst_is_a_change_only_while_it_lasts(self):
        logs = noise(11)
        logs[100:105] += math.log(0.92)
        values = 1000 * np.exp(logs)
        (change,) = find_changes(values[:105]).changes
        assert change.at == 100
        after = find_changes(values)
        assert after.changes == ()
        assert set(range(100, 105)) <= set(after.outliers)
        (brief,) = after.brief
        assert (brief.start, brief.stop) == (100, 105)
        assert brief.low < -0.08 < brief.high < 0
        assert brief.p_value <= 0.015

    def test_a_steady_slope_of_twice_the_smallest_change_in_200(self):
        slope = 0.02 / 200 * np.arange(200)
        false = sum(bool(find_changes(np.exp(slope + noise([30, k], sd=0.005))).changes) for k in range(50))
        assert no_oftener_than(0.02, false, 50)

    def test_a_step_smaller_than_is_relevant(self):
        values = with_steps(noise(12, sd=0.001), at_100=-0.007)
        assert find_changes(values).changes == ()
        (change,) = find_changes(values, smallest=0.005).changes
        assert change.at == 100

    def test_a_stricter_significance_reports_less(self):
        values = with_steps(noise(13), at_100=-0.05)[:106]
        (change,) = find_changes(values).changes
        assert find_changes(values, significance=change.p_value).changes == (change,)
        assert find_changes(values, significance=change.p_value / 2).changes == ()

    def test_strays_so_many_that_they_are_noise_stay(self):
        rng = np.random.default_rng(14)
        logs = 0.003 * rng.standard_normal(400) + 0.03 * (rng.random(400) < 0.15)
        found = find_changes(1000 * np.exp(logs))
        assert found.outliers == ()
        assert found.noise > 0.007


class TestSeveral:
    @pytest.mark.parametrize("gap", [8, 20])
    @pytest.mark.parametrize("second", [-0.05, 0.05])
    def test_two_close_steps(self, gap, second):
        hits = 0
        for seed in range(30):
            values = with_steps(noise([15, seed]), at_100=-0.05, **{f"at_{100 + gap}": second})
            near = places(find_changes(values))
            hits += len(near) == 2 and abs(near[0] - 100) <= 1 and abs(near[1] - 100 - gap) <= 1
        assert no_seldomer_than(0.9, hits, 30)

    def test_two_steps_in_the_same_direction_are_two_however_close(self):
        one, two = find_changes(with_steps(noise(16, sd=0.003), at_100=-0.05, at_104=-0.05)).changes
        assert (one.at, two.at) == (100, 104)
        assert [one.effect, two.effect] == pytest.approx([-0.05, -0.05], abs=0.01)

    def test_what_lies_between_two_brief_stretches_is_the_level(self):
        values = np.repeat([100.0, 120.0, 100.0, 120.0, 100.0], [40, 5, 5, 5, 60])
        found = find_changes(values * np.exp(0.002 * np.random.default_rng(1).standard_normal(115)))
        assert [(one.start, one.stop) for one in found.brief] == [(40, 45), (50, 55)]
        assert found.changes == ()
        assert found.outliers == (*range(40, 45), *range(50, 55))

    def test_a_stretch_that_came_back_to_another_level_is_brief_beside_a_step(self):
        found = find_changes(with_steps(noise(36, sd=0.003), at_100=-0.25, at_103=0.5))
        (change,) = found.changes
        (brief,) = found.brief
        assert (change.at, brief.start, brief.stop) == (103, 100, 103)
        assert change.effect == pytest.approx(0.125, abs=0.01)

    def test_a_staircase(self):
        values = with_steps(noise(17, 240), **{f"at_{at}": -0.05 for at in range(30, 240, 30)})
        found = places(find_changes(values))
        assert len(found) == 7
        assert np.abs(np.array(found) - np.arange(30, 240, 30)).max() <= 2

    def test_a_ramp_over_several_commits_goes_one_way(self):
        logs = noise(18, sd=0.003)
        logs += np.interp(np.arange(200), [99, 109], [0, math.log(0.9)])
        found = find_changes(1000 * np.exp(logs))
        assert found.changes
        assert all(change.effect < 0 and 98 <= change.at <= 111 for change in found.changes)
        assert found.levels[0].level == pytest.approx(1000, rel=0.005)
        assert found.levels[-1].level == pytest.approx(900, rel=0.005)

    @pytest.mark.parametrize(
        ("at", "found"), [(1, []), (2, []), (5, [5]), (195, [195]), (198, []), (199, [])]
    )
    def test_steps_at_the_ends(self, at, found):
        assert places(find_changes(with_steps(noise(19, sd=0.005), **{f"at_{at}": -0.1}))) == found


@pytest.mark.parametrize("cell", ["1 %", "throttle", "AR(1)"])
def test_what_is_appended_does_not_change_what_is_old(cell):
    rng = np.random.default_rng(20)
    logs = CELLS[cell](rng, 2600)
    for at in rng.integers(50, 2550, 12):
        logs[at:] += rng.choice([-0.04, 0.05])
    values = np.exp(logs)
    whole = find_changes(values).changes
    checked = 0
    for count in range(1000, 2600, 61):
        old = [change for change in whole if change.at < count - LOOK_AHEAD]
        assert [c for c in find_changes(values[:count]).changes if c.at < count - LOOK_AHEAD] == old
        checked += len(old)
    assert checked > 20


@pytest.mark.parametrize("cell", CELLS)
def test_false_reports_are_few_in_every_kind_of_noise(cell):
    false = 0
    for seed in range(50):
        values = 1000 * np.exp(CELLS[cell](np.random.default_rng([21, seed]), 200))
        false += bool(find_changes(values).changes)
    assert no_oftener_than(0.02, false, 50)


@pytest.mark.parametrize("significance", [0.05, 0.3])
def test_a_p_value_is_not_met_oftener_than_it_says(significance):
    false = 0
    for seed in range(100):
        values = 1000 * np.exp(noise([22, seed]))
        false += bool(find_changes(values, smallest=0.001, significance=significance).changes)
    assert no_oftener_than(significance, false, 100)


@pytest.mark.parametrize(
    ("cell", "drop", "least"),
    [
        ("0.5 %", 0.02, 0.98),
        ("1 %", 0.02, 0.96),
        ("2 %", 0.02, 0.7),
        ("t3", 0.02, 0.97),
        ("throttle", 0.02, 0.93),
        ("AR(1)", 0.05, 0.96),
        ("drift", 0.02, 0.97),
        ("bimodal", 0.05, 0.98),
        ("burst", 0.02, 0.93),
    ],
)
def test_drops_are_found(cell, drop, least):
    hits = 0
    for seed in range(30):
        rng = np.random.default_rng([23, seed])
        at = int(rng.integers(60, 140))
        changes = find_changes(bench.with_drop(CELLS[cell](rng, 200), at, drop)).changes
        hits += bench.is_hit([(change.at, change.effect) for change in changes], at, drop)
    assert no_seldomer_than(least, hits, 30)


@pytest.mark.parametrize(
    ("cell", "drop", "least"),
    [
        ("0.5 %", 0.02, 0.97),
        ("1 %", 0.02, 0.75),
        ("1 %", 0.05, 0.98),
        ("2 %", 0.05, 0.93),
        ("t3", 0.02, 0.88),
        ("throttle", 0.05, 0.95),
        ("AR(1)", 0.05, 0.75),
        ("bimodal", 0.05, 0.95),
    ],
)
def test_drops_are_found_with_five_figures_after(cell, drop, least):
    hits = 0
    for seed in range(30):
        logs = CELLS[cell](np.random.default_rng([24, seed]), 105)
        changes = find_changes(bench.with_drop(logs, 100, drop)).changes
        hits += bench.is_hit([(change.at, change.effect) for change in changes], 100, drop)
    assert no_seldomer_than(least, hits, 30)


@pytest.mark.parametrize(("cell", "drop"), [("1 %", 0.02), ("1 %", 0.05), ("AR(1)", 0.04), ("t3", 0.03)])
def test_intervals_hold_the_effect_and_the_place(cell, drop):
    effects = held = 0
    for seed in range(50):
        rng = np.random.default_rng([25, seed])
        at = int(rng.integers(60, 140))
        changes = find_changes(bench.with_drop(CELLS[cell](rng, 200), at, drop)).changes
        near = [change for change in changes if abs(change.at - at) <= 20]
        effects += any(change.low <= -drop <= change.high for change in near)
        held += any(change.first <= at <= change.last for change in near)
    assert no_seldomer_than(0.999, effects, 50)
    assert no_seldomer_than(0.95, held, 50)


def test_places_are_told_more_narrowly_where_the_step_is_larger():
    def width(effect):
        (change,) = find_changes(with_steps(noise(26), at_100=effect)).changes
        return change.last - change.first

    assert width(-0.02) > width(-0.1) == 0


def test_whatever_comes_the_answer_is_sane():
    makers = [
        lambda rng, n: rng.integers(1, 4, n).astype(float),
        lambda rng, n: np.exp(rng.normal(0, 20, n)),
        lambda rng, n: np.where(rng.random(n) < 0.3, math.nan, 100 + rng.normal(0, 1, n)),
        lambda rng, n: np.repeat(rng.integers(1, 9, n // 4 + 1), 4).astype(float),
        lambda rng, n: 10.0 ** rng.integers(-300, 300, n),
        lambda rng, n: np.exp(
            rng.normal(0, 0.01, n) + 0.1 * (np.arange(n) > n / 3) * (np.arange(n) < n / 1.5)
        ),
    ]
    reported = 0
    for seed in range(240):
        rng = np.random.default_rng([27, seed])
        values = makers[seed % 6](rng, int(rng.integers(0, 80)))
        found = find_changes(values, smallest=float(rng.choice([0.001, 0.01, 0.2])))
        edges = [0, *places(found), values.size]
        assert edges == sorted(set(edges)) or not found.levels
        assert [(level.start, level.stop) for level in found.levels] == (
            list(pairwise(edges)) if found.levels else []
        )
        for change in found.changes:
            assert change.first <= change.at <= change.last
            assert change.low <= change.effect <= change.high
            assert 0 <= change.p_value <= 0.015
            assert change.at not in found.outliers
        reported += len(found.changes)
    assert reported > 50


class Told(bench.Method):
    """A method that reports the step only with `needs` figures after it."""

    name = "told"

    def __init__(self, at, needs):
        self.at, self.needs = at, needs

    def report(self, values):
        return [(self.at, -0.05)] if values.size >= self.at + self.needs else []


def test_two_figures_are_a_level_where_a_series_has_just_begun():
    (change,) = find_changes([6380.6, 6381.0, 6817.2, 6814.4, 6813.6, 6815.0]).changes
    assert (change.at, change.first, change.last) == (2, 2, 2)
    assert change.effect == pytest.approx(0.068, abs=0.002)


def test_a_series_that_has_just_begun_has_no_more_false_changes_than_another():
    rng = np.random.default_rng(7)
    found = sum(bool(find_changes(1000 * np.exp(rng.normal(0, 0.01, 8))).changes) for _ in range(500))
    assert found <= 7


@pytest.mark.parametrize("gap", [5, 6])
@pytest.mark.parametrize("seed", range(3))
def test_a_ramp_of_steps_is_told_step_by_step(gap, seed):
    falls = sum(np.arange(40 + 3 * gap) >= 20 + k * gap for k in range(4))
    values = 1000 * np.exp(falls * np.log(0.9) + np.random.default_rng(seed).normal(0, 0.003, falls.size))
    changes = find_changes(values).changes
    assert [change.at for change in changes] == [20 + k * gap for k in range(4)]
    assert all(change.effect == pytest.approx(-0.1, abs=0.02) for change in changes)


class TestShortSeries:
    def test_a_halving_is_no_autocorrelation(self):
        seconds = [0.5394, 0.5906, 0.5681, 0.5819, 0.5384, 0.5985, 0.6096, 0.5851]
        seconds += [0.2421, 0.215, 0.2111, 0.2571, 0.2602, 0.2131, 0.2393]
        found = find_changes(seconds, significance=0.0025)
        (change,) = found.changes
        assert (change.at, change.first, change.last) == (8, 8, 8)
        assert change.effect == pytest.approx(-0.594, abs=0.01)
        assert found.noise == pytest.approx(0.065, abs=0.02)
        assert found.autocorrelation < 0.3

    @pytest.mark.parametrize("count", [12, 60])
    def test_two_levels_in_turns_are_no_steps(self, count):
        false = 0
        for seed in range(2000 // count):
            values = 1000 * np.exp(CELLS["bimodal"](np.random.default_rng([32, seed, count]), count))
            false += len(find_changes(values, significance=0.0025).changes)
        assert no_oftener_than(0.005, false, 2000 // count * count // 200 * 100)

    def test_a_third_level_between_two_is_no_turn_of_theirs(self):
        """In pandas, group-by of float64 became 22 % slower at one commit and 10 % faster at a later one."""
        for seed in range(10):
            values = with_steps(noise([41, seed], 165), at_24=0.22, at_80=1.1 / 1.22 - 1)
            assert places(find_changes(values, significance=0.001)) == [24, 80]

    def test_a_level_and_a_stray_are_no_turns(self):
        """The memory of uxarray's grids was 16 % larger for fourteen commits."""
        for seed in range(10):
            values = with_steps(
                noise([42, seed], 160, sd=0.002), at_80=0.16, at_94=1 / 1.16 - 1, at_120=0.03, at_150=0.14
            )
            values[118] *= 1.12
            assert places(find_changes(values, significance=0.001)) == [80, 94, 120, 150]

    def test_a_doubling_is_found_in_twelve(self):
        hits = 0
        for seed in range(60):
            logs = noise([33, seed], 12, sd=0.1)
            logs[5 + seed % 3 :] += math.log(2)
            hits += places(find_changes(np.exp(logs), significance=0.0025)) == [5 + seed % 3]
        assert no_seldomer_than(0.9, hits, 60)

    def test_a_fall_that_ended_is_told_in_steps(self):
        logs = np.interp(np.arange(200), [50, 150], [0, math.log(0.7)])
        changes = find_changes(np.exp(logs + noise(34, sd=0.002)), significance=0.001).changes
        assert changes
        assert all(change.effect < 0 for change in changes)

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
    def test_the_noise_of_very_few_figures_is_unknown(self, count):
        assert math.isnan(find_changes(np.linspace(100, 101, count)).noise) == (count < 5)

    def test_what_is_not_sure_is_a_candidate(self):
        found = [
            find_changes(with_steps(noise([35, k], 40), at_20=-0.013), significance=1e-4) for k in range(40)
        ]
        hints = [hint for one in found for hint in one.candidates]
        assert sum(abs(hint.at - 20) <= 3 and hint.effect < 0 for hint in hints) >= 10
        assert all(hint.p_value <= CANDIDATE for hint in hints)
        for one in found:
            brackets = sorted((place.first, place.last) for place in (*one.changes, *one.candidates))
            assert all(a[1] < b[0] for a, b in pairwise(brackets))


class TestNewest:
    def test_a_halving_at_the_newest_commit_of_a_long_quiet_series(self):
        for count in (120, 1000):
            values = with_steps(noise(37, count, sd=0.002), **{f"at_{count - 1}": -0.5})
            found = find_changes(values)
            assert found.changes == ()
            assert count - 1 not in found.outliers
            assert the_newest(found) == (count - 1, 1)
            assert found.newest.effect == pytest.approx(-0.5, abs=0.01)  # type: ignore[union-attr]

    def test_three_figures_have_no_known_noise_and_may_be_off_by_far(self):
        assert the_newest(find_changes([100.0, 101.0, 50.0])) == (2, 1)
        assert find_changes([100.0, 101.0, 99.0]).newest is None

    def test_two_figures_may_be_off_together(self):
        found = find_changes(with_steps(noise(38, 100), at_98=-0.06))
        assert the_newest(found) == (98, 2)

    def test_it_is_nothing_once_there_is_a_verdict(self):
        values = with_steps(noise(39, 110), at_100=-0.1)
        assert find_changes(values).newest is None
        assert the_newest(find_changes(values[:101])) == (100, 1)

    def test_it_is_seldom_where_nothing_happened(self):
        off = sum(find_changes(1000 * np.exp(noise([40, k], 60))).newest is not None for k in range(400))
        assert no_oftener_than(0.01, off, 400)


class TestBench:
    def test_lateness_is_the_figures_that_a_method_needs(self):
        assert bench.lateness(Told(100, 7), "1 %", 0.05, [1], 3) == 7
        assert bench.lateness(Told(100, 41), "1 %", 0.05, [1], 3) is None
        assert bench.share_in_five(Told(100, 5), "1 %", 0.05, [1], 2) == 1
        assert bench.share_in_five(Told(100, 6), "1 %", 0.05, [1], 2) == 0

    def test_a_hit_is_near_in_place_and_size(self):
        assert bench.is_hit([(105, -0.03)], 100, 0.02)
        assert not bench.is_hit([(106, -0.03)], 100, 0.02)
        assert not bench.is_hit([(100, 0.03)], 100, 0.02)
        assert not bench.is_hit([(100, -0.07)], 100, 0.02)

    def test_a_report_counts_once_however_often_it_is_seen(self):
        assert bench.false_when_grown(Told(90, 20), "1 %", [1], 2) == 2

    def test_real_series(self, tmp_path):
        values = [1000.0, None, *with_steps(noise(28), at_100=-0.1)]
        file = tmp_path / "real.json"
        file.write_text(json.dumps([{"name": "one", "values": values, "steps": [104, 150]}]))
        result = bench.on_real(bench.Ours(0.01), bench.read_real(file))
        assert result == {"series": 1, "steps": 2, "found": 0.5, "false per 200": 0}

    def test_asv_is_given_seconds_so_that_a_drop_is_a_regression(self):
        step_detect = pytest.importorskip("asv.step_detect")
        method = bench.AsvPage(step_detect, {})
        ((at, effect),) = method.find(with_steps(noise(29), at_100=-0.1))
        assert at == 100
        assert effect == pytest.approx(-0.1, abs=0.01)
        assert method.find(with_steps(noise(29), at_100=0.1)) == []

    def test_otava_is_left_out_with_a_reason(self):
        methods, left_out = bench.methods_for(None)
        names = ["ours, 1 %", "ours, 1 %, sure", "ours, 0.5 %", "history"]
        assert [method.name for method in methods][:4] == names
        assert any("--otava" in line for line in left_out)


def test_a_stretch_elsewhere_at_the_old_level_does_not_hide_a_step():
    """A card throttled by as much as a commit had made it faster."""
    logs = np.repeat([0.0, 0.085, 0.0, 0.085], [9, 110, 6, 125])
    logs += 0.004 * np.random.default_rng(2).standard_normal(logs.size)
    assert 9 in [change.at for change in find_changes(np.exp(logs), significance=0.001).changes]


def test_what_carries_over_in_small_noise_is_no_doubt_about_a_large_step():
    logs = np.array([0.2, 0.1, -0.4, -0.1, 27.3, 26.4, 25.7, 25.7, 26.0, 26.3, 26.3, 25.9]) / 100
    [change] = find_changes(np.exp(logs), significance=0.002).changes
    assert change.at == 4
