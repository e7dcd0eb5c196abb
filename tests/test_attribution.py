"""Attribution of effects to code or clocks by evidence, and the power that one side draws by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from harness.judgement import attribution
from harness.judgement.attribution import SoloRun, solo_of
from harness.judgement.case_trial import bare_verdict
from harness.judgement.gates import GATES
from harness.records.types import Arm, Attribution, Effect, Snapshot, VerdictStatus
from harness.suite.problem import Case

MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    status: VerdictStatus
    invalid: str = ""
    time: Effect | None = None
    cycles: Effect | None = None
    clock_exponent: float | None = None
    base_sm_clock_mhz: float | None = None
    head_sm_clock_mhz: float | None = None
    solo: Mapping[str, SoloRun] = field(default_factory=dict)
    power_capped: bool | None = None
    touched: Mapping[str, int] = field(default_factory=dict)


def attribute(evidence: Evidence) -> Attribution | None:
    alone = {side: run.sm_clock_mhz for side, run in evidence.solo.items()}
    as_it_is = ("status", "time", "cycles", "clock_exponent", "power_capped", "touched")
    bare = bare_verdict("toy.plain[n=64]", Case("toy", "plain", {"n": 64}), "failed", evidence.invalid)
    verdict = replace(
        bare,
        base=Arm(sm_clock_mhz=evidence.base_sm_clock_mhz, alone_mhz=alone.get("base")),
        head=Arm(sm_clock_mhz=evidence.head_sm_clock_mhz, alone_mhz=alone.get("head")),
        **{name: getattr(evidence, name) for name in as_it_is},
    )
    return attribution.attribute(verdict)


def effect(percent: float, half: float = 0.1, quads: int = 100) -> Effect:
    """An effect in per cent, and half of its interval."""
    low, middle, high = ((percent + side * half) / 100 for side in (-1, 0, 1))
    return Effect(effect=middle, low=low, high=high, processes=2, quads=quads)


def solo(
    base_mhz: float, head_mhz: float, base_w: float | None = 600, head_w: float | None = 690
) -> Mapping[str, SoloRun]:
    return {
        "base": SoloRun(time_ns=1e6, sm_clock_mhz=base_mhz, power_w=base_w),
        "head": SoloRun(time_ns=1e6, sm_clock_mhz=head_mhz, power_w=head_w),
    }


SLOWER = Evidence(
    status="regression",
    time=effect(1.0),
    base_sm_clock_mhz=1980.0,
    head_sm_clock_mhz=1980.0,
    power_capped=False,
)
BY_CODE = replace(SLOWER, cycles=effect(1.02))
BY_CLOCKS = replace(SLOWER, cycles=effect(0.02), head_sm_clock_mhz=1980.0 / 1.0099)
COUPLED = solo(1905.0, 1890.0)


# The code


def test_cycles_in_proportion_are_the_code():
    assert attribute(BY_CODE) == "code"
    faster = replace(SLOWER, status="improvement", time=effect(-2.0), cycles=effect(-2.1))
    assert attribute(faster) == "code"


@pytest.mark.parametrize(
    ("cycles", "head_mhz", "cause"),
    [
        (effect(1.0), 1980, "code"),
        (effect(0.7, 0.5), 1980, "code"),
        (effect(0.2, 0.15), 1970, "clocks"),
        (effect(0.2, 0.8), 1965, "clocks"),
        (effect(0.2, 0.8), 1980, "code"),
        (effect(0.2, 0.6), 1980, None),
        (effect(0.2, 0.8), None, None),
        (effect(0.6, 0.05), 1972, "code"),
        (effect(3.0, 0.1), 2019.6, "code"),
        (effect(0.0, 0.1), 1980, None),
        (effect(-1.0, 0.1), 1980, None),
        (effect(-1.0, 0.1), 1941, "clocks"),
    ],
)
def test_cycles_that_explain_most_of_the_time_are_the_code(cycles, head_mhz, cause):
    evidence = replace(SLOWER, cycles=cycles, head_sm_clock_mhz=head_mhz)
    assert attribute(evidence) == cause


@pytest.mark.parametrize(("half", "cause"), [(0.1, "code"), (0.3, "code"), (0.41, None)])
def test_cycles_that_surely_changed_are_the_code_wherever_time_may_have_changed_as_little(half, cause):
    unsure = replace(SLOWER, time=effect(1.0, 0.8), cycles=effect(0.4, half), head_sm_clock_mhz=None)
    assert attribute(unsure) == cause
    faster = replace(unsure, status="improvement", time=effect(-1.0, 0.8), cycles=effect(-0.4, half))
    assert attribute(faster) == cause


@pytest.mark.parametrize(
    ("head_mhz", "cause"),
    [
        (1980.0, "code"),
        (1976.1, "code"),
        (1980.0 / 1.004, "code"),
        (1980.0 / 1.006, "clocks"),
        (1980.0 / 1.01, "clocks"),
        (1980.0 * 1.01, "code"),
        (None, None),
    ],
)
def test_without_cycles_equal_clocks_leave_the_code(head_mhz, cause):
    assert attribute(replace(SLOWER, head_sm_clock_mhz=head_mhz)) == cause
    if head_mhz == 1980.0:
        assert attribute(replace(SLOWER, status="improvement", time=effect(-1.0))) == cause


def test_clocks_as_close_as_that_explain_not_even_a_small_effect():
    small = replace(SLOWER, time=effect(0.3), head_sm_clock_mhz=1980.0 / 1.0019)
    assert attribute(small) == "code"
    assert attribute(replace(small, head_sm_clock_mhz=1980.0 / 1.0021)) == "clocks"


# The clocks


def test_a_higher_clock_makes_an_improvement():
    faster = replace(BY_CLOCKS, status="improvement", time=effect(-1.0), head_sm_clock_mhz=2000.0)
    assert attribute(faster) == "clocks"
    assert attribute(replace(faster, head_sm_clock_mhz=1960.0)) is None


@pytest.mark.parametrize(
    ("gate", "cause"),
    [
        ("thermal-throttle", "thermal"),
        ("temperature", "thermal"),
        ("power-brake", "power"),
        ("canary", "clocks"),
        ("p-state", "clocks"),
    ],
)
def test_what_lowers_clocks_and_was_seen_is_behind_them(gate, cause):
    assert attribute(replace(BY_CLOCKS, touched={gate: 3, "contention": 9})) == cause
    assert attribute(replace(BY_CODE, touched={gate: 3})) == "code"


# Kernels that do not follow the clock


@pytest.mark.parametrize(
    ("exponent", "head_mhz", "cause"),
    [
        (0.79, 1980.0, "code"),
        (0.3, 1980.0 / 1.0099, "code"),
        (0.0, 1980.0 / 1.05, "code"),
        (-0.1, 1980.0 / 1.05, "code"),
        (0.7, 1980.0 / 1.0099, "clocks"),
        (0.8, 1980.0 / 1.0099, "clocks"),
        (1.2, 1980.0 / 1.0099, "clocks"),
        (None, 1980.0 / 1.0099, "clocks"),
    ],
)
def test_where_time_hardly_follows_the_clock_cycles_are_left_aside(exponent, head_mhz, cause):
    evidence = replace(BY_CLOCKS, clock_exponent=exponent, head_sm_clock_mhz=head_mhz)
    assert attribute(evidence) == cause


@pytest.mark.parametrize(("cycles", "cause"), [(1.02, "code"), (0.52, "code"), (0.3, None), (-1.0, None)])
def test_cycles_that_say_what_time_says_are_the_code_whatever_the_exponent(cycles, cause):
    """If time and cycles agree, no clock can be the cause, so the code is."""
    no_clocks = replace(BY_CODE, cycles=effect(cycles), clock_exponent=0.2, head_sm_clock_mhz=None)
    assert attribute(no_clocks) == cause


# Power


def test_clocks_that_differ_for_an_arm_alone_are_power():
    assert attribute(replace(BY_CLOCKS, solo=COUPLED)) == "power"


@pytest.mark.parametrize("status", ["unchanged", "inconclusive"])
@pytest.mark.parametrize(
    ("head_mhz", "cause"),
    [(1905.0, None), (1899.4, None), (1899.2, "power"), (1910.6, None), (1910.8, "power")],
)
def test_power_shows_where_turns_hide_it(status, head_mhz, cause):
    same = Evidence(status=status, time=effect(0.0), solo=solo(1905.0, head_mhz))
    assert attribute(same) == cause


def test_the_code_stays_the_cause_with_a_word_on_power():
    assert attribute(replace(BY_CODE, solo=COUPLED)) == "code"


@pytest.mark.parametrize("watts", [(None, None), (600.0, None), (None, 690.0)])
def test_power_without_a_sensor_is_told_by_clocks(watts):
    assert attribute(replace(BY_CLOCKS, solo=solo(1905.0, 1890.0, *watts))) == "power"
    unknown = {"base": SoloRun(time_ns=1.0), "head": SoloRun(time_ns=1.0, sm_clock_mhz=1.0)}
    assert attribute(replace(BY_CLOCKS, solo=unknown)) == "clocks"


HIDDEN = Evidence(status="unchanged", time=effect(0.1), cycles=effect(1.0), power_capped=True)


@pytest.mark.parametrize("status", ["unchanged", "inconclusive", "regression"])
def test_work_that_the_power_limit_hides_is_the_code(status):
    assert attribute(replace(HIDDEN, status=status)) == "code"


@pytest.mark.parametrize(
    "change",
    [
        {"power_capped": False},
        {"power_capped": None},
        {"cycles": effect(0.3, 0.1)},
        {"cycles": effect(1.0, 0.76)},
        {"cycles": None},
        {"clock_exponent": 0.5},
        {"time": effect(0.1, 0.9)},
        {"time": effect(0.6, 0.1)},
    ],
)
def test_work_is_hidden_only_if_all_of_it_is_known(change):
    assert attribute(replace(HIDDEN, **change)) is None


def test_a_small_change_of_work_is_told_once_it_is_sure():
    assert attribute(replace(HIDDEN, cycles=effect(0.4, 0.1), time=effect(0.1, 0.1))) == "code"


def test_saved_work_can_be_hidden_too():
    assert attribute(replace(HIDDEN, cycles=effect(-1.0))) == "code"


# Gates


@pytest.mark.parametrize(
    ("gate", "cause"),
    [
        ("contention", "contention"),
        ("thermal-throttle", "thermal"),
        ("power-brake", "power"),
        ("memory-clock", "environment"),
        ("p-state", "environment"),
        ("sm-clock", "clocks"),
        ("clocks-apart", "clocks"),
        ("temperature", "thermal"),
        ("canary", "contention"),
    ],
)
def test_an_invalid_case_goes_back_to_its_gate(gate, cause):
    evidence = Evidence(status="invalid", invalid=gate, touched={gate: 30, "other": 1})
    assert attribute(evidence) == cause
    unclear = replace(SLOWER, head_sm_clock_mhz=None, touched={gate: 3})
    assert attribute(unclear) == cause


def test_every_gate_has_a_cause():
    assert all(attribute(Evidence(status="invalid", invalid=gate)) for gate in GATES)


def test_too_few_quads_have_no_cause():
    assert attribute(Evidence(status="invalid", invalid="too-few-quads")) is None


@pytest.mark.parametrize(
    ("status", "lost", "cause"),
    [
        ("inconclusive", 10, "thermal"),
        ("inconclusive", 9, None),
        ("inconclusive", 0, None),
        ("unchanged", 10, None),
    ],
)
def test_an_inconclusive_case_goes_back_to_what_touched_much_of_it(status, lost, cause):
    evidence = Evidence(
        status=status, time=effect(0.3, 1.0, quads=100), touched={"thermal-throttle": lost, "canary": 0}
    )
    assert attribute(evidence) == cause


# Nothing to attribute


@pytest.mark.parametrize("status", ["identical", "new", "missing", "failed"])
def test_what_was_not_measured_has_no_cause(status):
    assert attribute(Evidence(status=status)) is None
    assert attribute(replace(BY_CODE, status=status)) is None


@pytest.mark.parametrize("status", ["unchanged", "inconclusive"])
def test_no_effect_has_no_cause(status):
    assert attribute(replace(BY_CODE, status=status, time=effect(0.1), cycles=effect(0.1))) is None
    assert attribute(Evidence(status=status)) is None


def test_nothing_known_but_time_is_said():
    assert attribute(Evidence(status="regression", time=effect(1.0))) is None


# An arm by itself


def trace(
    watts: float,
    *,
    seconds: float = 2.0,
    every_ms: int = 20,
    update_ms: int = 100,
    offset_ms: int = 37,
    mhz: float | None = 1900.0,
) -> list[Snapshot]:
    """A card that draws so much, with a counter of energy that moves every so often."""
    found = []
    for ms in range(-200, int(seconds * 1000) + 200, every_ms):
        updated_ms = (ms - offset_ms) // update_ms * update_ms + offset_ms
        found.append(
            Snapshot(at_ns=ms * MS, sm_clock_mhz=mhz, power_w=watts, energy_j=1e4 + watts * updated_ms / 1000)
        )
    return found


def test_energy_is_counted_between_updates():
    alone = solo_of(trace(600.0), 0, 2000 * MS, 1000)
    assert alone.time_ns == 2 * MS
    assert alone.sm_clock_mhz == 1900.0
    assert alone.power_w == 600.0
    # 600 W for 2 ms each.
    assert alone.energy_j == pytest.approx(1.2)
    assert alone.energy_error == pytest.approx(20 / 1900)


@pytest.mark.parametrize("offset_ms", range(0, 100, 7))
@pytest.mark.parametrize("every_ms", [20, 33])
def test_energy_is_off_by_no_more_than_it_says(offset_ms, every_ms):
    alone = solo_of(trace(600.0, every_ms=every_ms, offset_ms=offset_ms), 0, 2000 * MS, 1000)
    assert alone.energy_j is not None
    assert alone.energy_error is not None
    assert alone.energy_error < 0.02
    assert abs(alone.energy_j / 1.2 - 1) <= alone.energy_error


def test_launches_are_counted_in_the_block_alone():
    alone = solo_of(trace(600.0), 100 * MS, 1900 * MS, 600)
    assert alone.time_ns == 3 * MS
    assert alone.energy_j == pytest.approx(1.8)


def test_a_counter_that_moves_with_every_sample_is_exact():
    alone = solo_of(trace(600.0, update_ms=20, offset_ms=0), 0, 2000 * MS, 1000)
    assert alone.energy_j == pytest.approx(1.2)


@pytest.mark.parametrize(("ended_ms", "known"), [(90, False), (130, False), (140, True)])
def test_one_update_is_not_enough(ended_ms, known):
    # Updates are at 37 and 137 ms, and seen 3 ms later.
    alone = solo_of(trace(600.0), 0, ended_ms * MS, 100)
    assert (alone.energy_j is not None) is known
    assert (alone.energy_error is not None) is known


def test_what_lies_outside_the_block_does_not_count():
    before = [replace(s, sm_clock_mhz=210.0, power_w=60.0) for s in trace(60.0) if s.at_ns < 0]
    within = [s for s in trace(600.0) if s.at_ns >= 0]
    assert solo_of([*before, *within], 0, 2000 * MS, 1000) == solo_of(trace(600.0), 0, 2000 * MS, 1000)


def test_the_devices_own_figures_come_first():
    alone = solo_of(trace(600.0), 0, 2000 * MS, 1000, time_ns=1.5e6, sm_clock_mhz=1913.2)
    assert (alone.time_ns, alone.sm_clock_mhz) == (1.5e6, 1913.2)
    # Energy goes by the launches in the span, whatever one of them takes.
    assert alone.energy_j == pytest.approx(1.2)


def test_a_card_that_tells_nothing_leaves_all_unknown():
    silent = [Snapshot(at_ns=ms * MS) for ms in range(0, 2000, 20)]
    assert solo_of(silent, 0, 2000 * MS, 1000) == SoloRun(time_ns=2 * MS)
    assert solo_of([], 0, 2000 * MS, 1000) == SoloRun(time_ns=2 * MS)


@pytest.mark.parametrize(("ended_ns", "launches"), [(0, 5), (-1, 5), (10, 0)])
def test_a_block_without_launches_or_time_is_refused(ended_ns, launches):
    with pytest.raises(ValueError, match="expected launches in a span of time"):
        solo_of([], 0, ended_ns, launches)
