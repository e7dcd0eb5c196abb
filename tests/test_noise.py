"""Made-up noise behaves like the noise that it represents."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, median, pstdev

import pytest

from harness.device.backends.null_noise import FULL_CLOCK_MHZ, KINDS, SimulatedNoise

MS = 1e6
COUNT = 4000


def times(
    kind: str, count: int = COUNT, *, seed: int = 1, launches: int = 1, offset: float = 0.0
) -> list[float]:
    """Times of one launch of 1 ms, without what a process adds."""
    noise = SimulatedNoise(kind, seed, offset)
    return [noise.spend(MS, launches, "program") / launches for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_times_and_another_seed_others(kind):
    assert times(kind, 200) == times(kind, 200)
    assert times(kind, 200) != times(kind, 200, seed=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_times_are_positive_and_the_clocks_never_go_back(kind, seed):
    noise = SimulatedNoise(kind, seed)
    earlier = (0.0, 0.0)
    for _ in range(COUNT):
        time_ns = noise.spend(MS, 1, "program")
        assert time_ns > 0
        assert noise.now_ns == pytest.approx(earlier[0] + time_ns)
        assert noise.cycles > earlier[1]
        earlier = (noise.now_ns, noise.cycles)


@pytest.mark.parametrize("kind", KINDS)
def test_cycles_are_time_times_clock(kind):
    noise = SimulatedNoise(kind, 1)
    for _ in range(COUNT):
        before = noise.cycles
        time_ns = noise.spend(MS, 1, "program")
        assert noise.cycles - before == pytest.approx(time_ns * noise.clock_mhz / 1e3)


def test_a_kind_that_there_is_not():
    with pytest.raises(ValueError, match=r"noise 'loud'; expected one of quiet, drifting"):
        SimulatedNoise("loud", 1)


def test_quiet_scatters_a_little_about_the_time_itself():
    found = times("quiet")
    assert fmean(found) == pytest.approx(MS, rel=3e-4)
    assert pstdev(found) == pytest.approx(0.003 * MS, rel=0.1)


def test_the_mean_of_many_launches_scatters_less():
    assert pstdev(times("quiet", launches=100)) == pytest.approx(0.0003 * MS, rel=0.1)


def test_drifting_goes_up_by_a_hundredth_a_second_as_its_clock_goes_down():
    noise = SimulatedNoise("drifting", 1, offset=0.0)
    found, moments = [], []
    for _ in range(COUNT):
        moments.append(noise.now_ns / 1e9)
        found.append(noise.spend(MS, 1, "program") / MS)
    slope = sum((x - fmean(moments)) * (y - 1) for x, y in zip(moments, found, strict=True)) / sum(
        (x - fmean(moments)) ** 2 for x in moments
    )
    assert slope == pytest.approx(0.01, rel=0.05)
    assert noise.clock_mhz == pytest.approx(FULL_CLOCK_MHZ / (1 + 0.01 * moments[-1]), rel=1e-3)


def test_bimodal_has_two_modes_and_stays_in_each_for_a_while():
    found = times("bimodal")
    slow = [time_ns > 1.015 * MS for time_ns in found]
    assert median(t for t, is_slow in zip(found, slow, strict=True) if is_slow) == pytest.approx(
        1.03 * MS, rel=1e-3
    )
    assert median(t for t, is_slow in zip(found, slow, strict=True) if not is_slow) == pytest.approx(
        MS, rel=1e-3
    )
    assert 0.3 < fmean(slow) < 0.7
    switches = sum(a != b for a, b in pairwise(slow))
    assert switches / COUNT == pytest.approx(0.05, rel=0.3)


def test_bimodal_says_nothing_of_it_by_its_clock():
    noise = SimulatedNoise("bimodal", 1)
    for _ in range(100):
        noise.spend(MS, 1, "program")
        assert noise.clock_mhz == FULL_CLOCK_MHZ


def test_throttled_steps_down_for_short_spells_and_takes_the_same_cycles():
    noise = SimulatedNoise("throttled", 1, offset=0.0)
    clocks, cycles, found = [], [], []
    for _ in range(COUNT):
        before = noise.cycles
        found.append(noise.spend(MS, 1, "program"))
        clocks.append(noise.clock_mhz)
        cycles.append(noise.cycles - before)
    assert set(clocks) == {FULL_CLOCK_MHZ, 0.85 * FULL_CLOCK_MHZ}
    low = [clock < FULL_CLOCK_MHZ for clock in clocks]
    assert 0.02 < fmean(low) < 0.2
    assert median(t for t, is_low in zip(found, low, strict=True) if is_low) == pytest.approx(
        MS / 0.85, rel=2e-3
    )
    # The clock explains all of it: cycles scatter as times do on a quiet card.
    assert fmean(cycles) == pytest.approx(MS * FULL_CLOCK_MHZ / 1e3, rel=3e-4)
    assert pstdev(cycles) / fmean(cycles) == pytest.approx(0.003, rel=0.1)


def test_heavy_tails_stray_by_much_and_leave_the_middle_alone():
    found = times("heavy-tailed")
    strays = [time_ns for time_ns in found if time_ns == 0 or time_ns > 4.5 * MS]
    assert len(strays) / COUNT == pytest.approx(0.02, rel=0.4)
    assert median(found) == pytest.approx(MS, rel=1e-3)
    assert min(found) >= 0.45 * MS
    spread = [abs(time_ns / MS - 1) for time_ns in found if time_ns <= 4.5 * MS]
    # Of a normal distribution of this middle, not one in a billion would be so far off.
    assert max(spread) > 10 * median(spread)


def test_a_process_adds_the_same_to_a_program_each_time_and_something_else_to_another():
    noise = SimulatedNoise("quiet", 1, offset=0.2)
    first, second, again = (
        median([noise.spend(MS, 1, name) for _ in range(400)]) for name in ("one", "two", "one")
    )
    assert again == pytest.approx(first, rel=1e-3)
    assert abs(second / first - 1) > 0.01


def test_offsets_spread_as_they_are_told():
    offsets = [fmean(times("quiet", 50, seed=seed, offset=0.01)) / MS - 1 for seed in range(300)]
    assert fmean(offsets) == pytest.approx(0, abs=2.5e-3)
    assert pstdev(offsets) == pytest.approx(0.01, rel=0.2)


def test_time_passes_between_launches_too():
    noise = SimulatedNoise("quiet", 1)
    noise.pass_time(MS)
    assert (noise.now_ns, noise.cycles) == (MS, MS * FULL_CLOCK_MHZ / 1e3)
