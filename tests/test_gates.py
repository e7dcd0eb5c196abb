"""Every gate on traces that trip it, on traces that just do not, and on cards that do not tell."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from harness.device.telemetry import Sampler, telemetry_of
from harness.device.telemetry.fixed import STEADY
from harness.judgement.gates import (
    GATES,
    CanaryLevel,
    Gated,
    GatePolicy,
    canary_level,
    combine,
    gate,
    usual_level,
)
from harness.records.types import PairedBlock, Quad, Snapshot, Telemetry
from tests.probes import ScriptedProbe

MS = 1_000_000
QUAD_NS, GAP_NS = 8 * MS, 2 * MS
SAMPLE_NS = 20 * MS
START_NS = 1_000 * MS
OWN, OTHER = 4242, 77
POLICY = GatePolicy(
    sm_clock_spread=0.005, canary_apart=0.02, canary_above_usual=0.05, temperature_apart_c=10.0
)
"""Tight ones, for small numbers; `test_free_clocks_may_move_by_two_steps` has the default."""
OF_CLOCKS = {"sm-clock", "clocks-apart"}
SLOW = (900.0, 1000.0, 1000.0, 1000.0)
"""SM clocks of a quad whose first slot ran slower."""
FOLLOWED = replace(STEADY, processes=(OWN,))

Trace = Callable[[float], Snapshot]
"""What the card says at a moment, in ms since the first quad began."""


class Clock:
    """A clock that goes on by one sampling interval each time it is read."""

    def __init__(self) -> None:
        self.now_ns = START_NS - 10 * SAMPLE_NS - SAMPLE_NS // 2

    def __call__(self) -> int:
        self.now_ns += SAMPLE_NS
        return self.now_ns


def quads(count: int = 50, **given: Mapping[int, object]) -> tuple[Quad, ...]:
    """`count` quads of 8 ms every 10 ms with steady clocks, and a canary before every fifth.

    `given` overrides fields by the quad's number.
    """
    made = []
    for number in range(count):
        canary = 1000.0 if number % 5 == 0 else None
        quad = Quad(
            order="ABBA" if number % 3 else "BAAB",
            times_ns=(2e6, 2.1e6, 2.1e6, 2e6),
            cycles=(2e6, 2.1e6, 2.1e6, 2e6),
            sm_clock_mhz=(1000.0, 1000.0, 1000.0, 1000.0),
            canary_ns=canary,
            canary_cycles=canary,
            started_ns=START_NS + number * (QUAD_NS + GAP_NS),
            ended_ns=START_NS + number * (QUAD_NS + GAP_NS) + QUAD_NS,
        )
        changes = {name: values[number] for name, values in given.items() if number in values}
        made.append(replace(quad, **changes))  # type: ignore[arg-type]
    return tuple(made)


def every(value: object, count: int = 50) -> Mapping[int, object]:
    return dict.fromkeys(range(count), value)


def block(
    measured: Sequence[Quad],
    trace: Trace | None = lambda _: FOLLOWED,
    unavailable: Mapping[str, str] | None = None,
    *,
    clock_noise: float | None = None,
) -> PairedBlock:
    """A block and what a sampler makes of a card that follows this trace."""
    return PairedBlock(
        quads=tuple(measured),
        launches_per_slot=1,
        l2="cold",
        clock="scripted",
        tick_ns=1.0,
        warmup_s=0.1,
        settled=True,
        gpu_s=1.0,
        clock_noise=clock_noise,
        telemetry=trace and recorded(measured, trace, unavailable or {}),
    )


def recorded(measured: Sequence[Quad], trace: Trace, unavailable: Mapping[str, str]) -> Telemetry:
    """A light snapshot every 20 ms and a mark every 100 ms, from before the first quad until the last."""
    clock = Clock()
    probe = ScriptedProbe(
        lambda at_ns: trace((at_ns - START_NS) / MS), clock_ns=clock, unavailable=dict(unavailable)
    )
    sampler = Sampler(probe, interval_s=None)
    ended_ns = measured[-1].ended_ns
    samples = 0
    while clock.now_ns < ended_ns:
        if samples % 5 == 0:
            sampler.mark()
        else:
            sampler.sample()
        samples += 1
    return telemetry_of(sampler, measured[0].started_ns, ended_ns, own_pids=(OWN,))


def told(**fields: object) -> Trace:
    """A card that always says this."""
    return lambda _: replace(FOLLOWED, **fields)  # type: ignore[arg-type]


def during(first_ms: float, last_ms: float, **fields: object) -> Trace:
    """A card that says this from one moment to another."""
    return lambda ms: replace(FOLLOWED, **fields) if first_ms <= ms <= last_ms else FOLLOWED  # type: ignore[arg-type]


def throttled(share: float, from_ms: float = -1e9, to_ms: float = 1e9, cause: str = "sw_power_cap") -> Trace:
    """A card whose counter runs for a share of the time from one moment to another."""

    def trace(ms: float) -> Snapshot:
        ran_ms = min(max(ms, from_ms), to_ms) - max(from_ms, -1e6)
        counters = {**(STEADY.throttle_ns or {}), cause: int(share * ran_ms * MS)}
        return replace(FOLLOWED, throttle_ns=counters)

    return trace


def without(*causes: str, **fields: object) -> Snapshot:
    """A card that does not keep these counters."""
    kept = {cause: 0 for cause in STEADY.throttle_ns or {} if cause not in causes}
    return replace(FOLLOWED, throttle_ns=kept or None, **fields)  # type: ignore[arg-type]


NO_COUNTERS = tuple(STEADY.throttle_ns or {})


def gated(measured: PairedBlock, *, usual: CanaryLevel | None = None) -> Gated:
    """The gates' answer, with what must hold of every answer."""
    result = gate(measured, POLICY, usual=usual)
    assert result.quads == measured.quads
    assert set(result.clean) <= set(measured.quads)
    assert list(result.clean) == sorted(result.clean, key=lambda quad: quad.started_ns)
    assert list(result.touched) == [code for code in GATES if code in result.touched]
    assert all(result.touched.values())
    assert {found.partition(":")[0] for found in result.findings} >= set(result.touched)
    spoilt = len(result.quads) - len(result.clean)
    # A quad counts under one gate only, and may be unclean by another one after it.
    alone = sum(count for code, count in result.touched.items() if code not in OF_CLOCKS)
    assert alone <= spoilt <= sum(result.touched.values())
    assert result.disturbance == 0 or "contention" in result.touched
    return result


def unclean(result: Gated) -> list[int]:
    return [number for number, quad in enumerate(result.quads) if quad not in result.clean]


def touched_by(measured: PairedBlock) -> dict[str, int]:
    return dict(gated(measured).touched)


def test_on_a_card_that_works_undisturbed_every_quad_is_clean():
    result = gated(block(quads()))
    assert result == Gated(quads=quads(), clean=quads(), power_capped=False)


def test_without_telemetry_what_needs_it_is_unavailable():
    result = gated(block(quads(), None))
    assert result.clean == quads()
    assert result.power_capped is None
    needing = {"power-cap", *GATES} - {"canary", *OF_CLOCKS}
    assert dict(result.unavailable) == dict.fromkeys(needing, "no telemetry")


def test_a_probe_that_broke_is_the_reason_for_everything():
    result = gated(block(quads(), lambda _: Snapshot(at_ns=0), {"probe": "DeviceError: gone"}))
    assert {result.unavailable[code] for code in ("thermal-throttle", "p-state")} == {"DeviceError: gone"}
    assert len(result.clean) == 50


def test_a_block_without_quads():
    empty = replace(block(quads(), None), quads=())
    assert gate(empty, POLICY, usual=None) == Gated(quads=(), clean=())


# Contention


CROWDED = told(processes=(OWN, OTHER))


def test_another_process_on_the_card_touches_the_whole_block():
    result = gated(block(quads(), during(150, 250, processes=(OWN, OTHER))))
    assert result.touched == {"contention": 50}
    assert result.clean == ()
    assert result.findings == (f"contention: Other processes held a context on the device: {OTHER}.",)


@pytest.mark.parametrize("unit", ["canary_cycles", "canary_ns"])
@pytest.mark.parametrize(
    ("values", "disturbance"),
    [
        ((1000, 1000, 1000), 0.0),
        ((1000, 1010, 1020), 0.02),
        ((1000, 1100, 1000), 0.1),
        # Of ten the lowest and the highest are left out.
        ((1000,) * 9 + (5000,), 0.0),
        ((1000,) * 8 + (1300, 5000), 0.3),
        ((500, 800) + (1000,) * 8, 0.25),
        ((0, 1000, 1000), 1.0),
    ],
)
def test_where_others_use_the_card_the_canaries_tell_how_much_they_disturb(values, disturbance, unit):
    measured = block(canaries(*values, unit=unit, count=5 * len(values)), CROWDED)
    alone = block(canaries(*values, unit=unit, count=5 * len(values)))
    assert gated(measured).disturbance == pytest.approx(disturbance)
    # Alone on the card, they vary for other reasons: of which quads they tell, and that is all.
    assert gated(alone).disturbance == 0


@pytest.mark.parametrize(("usual", "disturbance"), [(800.0, 0.25), (1000.0, 0.0), (2000.0, 0.0)])
def test_or_that_all_of_them_are_slower_than_usual(usual, disturbance):
    measured = block(canaries(1000), CROWDED)
    assert gated(measured, usual=CanaryLevel(cycles=usual)).disturbance == pytest.approx(disturbance)


@pytest.mark.parametrize("values", [(), (1000,), (1000, 1000)])
def test_too_few_canaries_tell_nothing_of_the_disturbance(values):
    told_by = {5 * place: values[place] if place < len(values) else None for place in range(2)}
    measured = quads(10, canary_ns=every(None), canary_cycles=told_by)
    assert gated(block(measured, CROWDED)).disturbance == 1


@pytest.mark.parametrize("field", ["foreign_processes", "processes"])
def test_an_unknown_list_of_processes_is_no_proof_of_being_alone(field):
    result = gated(block(quads(), told(processes=None), {field: "hidden by the hypervisor"}))
    assert result.unavailable == {"contention": "hidden by the hypervisor"}
    assert len(result.clean) == 50


# Throttling

CAUSES = [
    ("sw_thermal", "thermal-throttle"),
    ("hw_thermal", "thermal-throttle"),
    ("hw_power_brake", "power-brake"),
]


@pytest.mark.parametrize(("cause", "code"), CAUSES)
def test_a_counter_that_advances_touches_the_quads_between_two_marks(cause, code):
    # Marks are at 110 and 210 ms.
    measured = block(quads(), throttled(0.5, 120, 130, cause))
    result = gated(measured)
    assert unclean(result) == list(range(11, 22))
    assert result.touched == {code: 11}
    assert result.findings == (f"{code}: The card held back for {cause} in 11 of 50 quads.",)


@pytest.mark.parametrize(("cause", "_"), CAUSES)
def test_a_counter_that_stands_still_catches_nothing_whatever_moments_say(cause, _):
    measured = block(quads(), told(clock_event_reasons=(cause, "hw_slowdown")))
    assert touched_by(measured) == {}


@pytest.mark.parametrize(("cause", "_"), CAUSES)
def test_a_counter_that_ran_before_the_block_catches_nothing(cause, _):
    assert touched_by(block(quads(), throttled(1.0, -1e5, -95, cause))) == {}


@pytest.mark.parametrize(("cause", "code"), CAUSES)
def test_without_a_counter_a_sampled_reason_touches_the_quads_beside_it(cause, code):
    seen = during(285, 295, clock_event_reasons=(cause,))
    measured = block(quads(), lambda ms: replace(seen(ms), throttle_ns=without(cause).throttle_ns))
    result = gated(measured)
    # Samples are at 270, 290 and 310 ms.
    assert unclean(result) == [27, 28, 29, 30]
    assert result.touched == {code: 4}
    assert result.unavailable == {}
    assert f"{code}: Without its counter, {cause} was looked for in sampled moments alone." in result.findings


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (("hw_slowdown",), {"thermal-throttle": 50}),
        (("hw_slowdown", "hw_thermal"), {"thermal-throttle": 50}),
        (("hw_slowdown", "hw_power_brake"), {"power-brake": 50}),
        (("hw_slowdown", "hw_thermal", "hw_power_brake"), {"thermal-throttle": 50}),
        (("idle", "application_clocks", "sync_boost", "display_clocks"), {}),
    ],
)
def test_a_hardware_slowdown_is_heat_unless_it_is_the_power_brake(reasons, expected):
    measured = block(quads(), lambda _: without(*NO_COUNTERS, clock_event_reasons=reasons))
    assert touched_by(measured) == expected


@pytest.mark.parametrize("reason", ["board_limit", "reliability"])
def test_what_has_no_counter_is_told_by_moments_beside_counters(reason):
    assert touched_by(block(quads(), told(clock_event_reasons=(reason,)))) == {"power-brake": 50}


def test_a_further_card_that_a_case_spans_counts_too():
    measured, other = block(quads(), told()), block(quads(), throttled(0.5, 120, 130, "hw_thermal"))
    assert measured.telemetry
    assert other.telemetry
    both = replace(measured, telemetry=replace(measured.telemetry, beside=(other.telemetry,)))
    assert unclean(gated(both)) == list(range(11, 22))
    found = "thermal-throttle: On card 2: The card held back for hw_thermal in 11 of 50 quads."
    assert gated(both).findings == (found,)
    assert gated(both).unavailable == {}


def test_neither_counters_nor_reasons_leave_throttling_unavailable():
    measured = block(
        quads(),
        lambda _: without(*NO_COUNTERS, clock_event_reasons=None),
        {"clock_event_reasons": "not supported", "throttle_ns": "no such field"},
    )
    result = gated(measured)
    assert result.unavailable == {
        "power-cap": "no such field",
        "thermal-throttle": "not supported",
        "power-brake": "not supported",
    }
    assert result.power_capped is None


def test_what_part_of_a_gate_is_unavailable_is_named():
    measured = block(
        quads(),
        lambda _: without("hw_thermal", clock_event_reasons=None),
        {"clock_event_reasons": "not supported"},
    )
    assert gated(measured).unavailable == {
        "thermal-throttle": "hw_thermal: not supported",
        "power-brake": "board_limit, reliability: not supported",
    }


def test_counters_that_do_not_enclose_the_block_are_no_proof():
    measured = block(quads(), told(clock_event_reasons=None), {"clock_event_reasons": "not supported"})
    assert measured.telemetry
    nothing = Snapshot(at_ns=measured.telemetry.before.at_ns)
    measured = replace(measured, telemetry=replace(measured.telemetry, before=nothing))
    assert gated(measured).unavailable["thermal-throttle"] == "not supported"


# The power limit


def test_the_power_limit_touches_no_quad():
    result = gated(block(quads(), throttled(0.3)))
    assert result.power_capped is True
    assert result.touched == {}
    assert result.findings == ("power-cap: The power limit lowered the clocks in 30 % of the time.",)


@pytest.mark.parametrize(("share", "capped"), [(0.0, False), (0.0099, False), (0.0101, True)])
def test_a_hundredth_of_the_time_is_the_power_limits_share(share, capped):
    assert gated(block(quads(), throttled(share))).power_capped is capped


def test_without_its_counter_the_power_limit_is_told_by_sampled_moments():
    capped = block(quads(), lambda _: without("sw_power_cap", clock_event_reasons=("sw_power_cap",)))
    result = gated(capped)
    assert result.power_capped is True
    assert "100 % of 25 samples, because there is no counter" in result.findings[0]
    free = block(quads(), lambda _: without("sw_power_cap", clock_event_reasons=("idle",)))
    assert gated(free).power_capped is False


# Memory clock, P-state and temperature


@pytest.mark.parametrize(
    ("code", "trips", "does_not"),
    [
        ("memory-clock", {"memory_clock_mhz": 1989.0}, {"memory_clock_mhz": 1990.0}),
        ("p-state", {"p_state": 2}, {"p_state": 0}),
        ("p-state", {"p_state": 1}, {"p_state": 0}),
        ("temperature", {"temperature_c": 61.0}, {"temperature_c": 60.0}),
        ("temperature", {"temperature_c": 39.0}, {"temperature_c": 40.0}),
    ],
)
def test_a_state_away_from_the_blocks_own_touches_the_quads_around_it(code, trips, does_not):
    measured = block(quads(), during(225, 235, **trips))
    result = gated(measured)
    # Snapshots are at 210, 230 and 250 ms; only the middle one strays.
    assert unclean(result) == [21, 22, 23, 24]
    assert result.touched == {code: 4}
    assert touched_by(block(quads(), during(225, 235, **does_not))) == {}


@pytest.mark.parametrize(
    ("code", "field"),
    [("memory-clock", "memory_clock_mhz"), ("p-state", "p_state"), ("temperature", "temperature_c")],
)
def test_a_state_that_the_card_does_not_tell_is_unavailable(code, field):
    result = gated(block(quads(), told(**{field: None}), {field: "not on this card"}))
    assert result.unavailable == {code: "not on this card"}
    assert len(result.clean) == 50


def test_rest_before_and_after_the_block_touches_nothing():
    resting = replace(FOLLOWED, p_state=8, memory_clock_mhz=405.0, temperature_c=33.0)
    assert touched_by(block(quads(), lambda ms: FOLLOWED if 0 <= ms <= 498 else resting)) == {}


def sampled(measured: PairedBlock, first_ms: float, last_ms: float) -> PairedBlock:
    """The same with no snapshots but from one moment to another."""
    assert measured.telemetry
    kept = [s for s in measured.telemetry.during if first_ms <= (s.at_ns - START_NS) / MS <= last_ms]
    return replace(measured, telemetry=replace(measured.telemetry, during=tuple(kept)))


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "silent"), [(0, 500, 25), (500, 1000, 26), (0, 750, 0), (250, 1000, 0)]
)
def test_sampling_of_a_part_leaves_the_rest_of_the_block_unjudged(first_ms, last_ms, silent):
    reason = gated(sampled(block(quads(100)), first_ms, last_ms)).unavailable.get("p-state")
    assert reason == (f"{silent} of 100 quads have no p_state within 0.25 s of them" if silent else None)


def test_snapshots_from_too_far_away_judge_nothing():
    measured = sampled(block(quads(100)), 990, 1000)
    late = replace(measured, quads=measured.quads[:50])
    reason = gated(late).unavailable["temperature"]
    assert reason == "50 of 50 quads have no temperature_c within 0.25 s of them"


# SM clocks


@pytest.mark.parametrize(("fast", "expected"), [(1005.0, {}), (1006.0, {"sm-clock": 1})])
def test_a_clock_that_moves_inside_a_quad_touches_it(fast, expected):
    clocks = {7: (1000.0, 1000.0, 1000.0, fast)}
    assert touched_by(block(quads(sm_clock_mhz=clocks))) == expected


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [
        ((1000.0, 1009.9, 1009.9, 1000.0), {}),
        ((1000.0, 1010.2, 1010.2, 1000.0), {"clocks-apart": 1}),
        ((1010.2, 1000.0, 1000.0, 1010.2), {"clocks-apart": 1}),
        ((1000.0, 1000.0, 1028.0, 1028.0), {}),
        ((1000.0, 1000.0, 1031.0, 1031.0), {"sm-clock": 1}),
        ((1000.0, 1031.0, 1031.0, 1000.0), {"sm-clock": 1}),
    ],
)
def test_at_the_power_limit_the_clock_may_move_but_not_between_the_arms(clocks, expected):
    assert touched_by(block(quads(sm_clock_mhz={7: clocks}), throttled(0.3))) == expected


def test_arms_that_cannot_be_told_apart_by_their_clocks_at_the_power_limit_are_not_judged():
    result = gated(block(quads(sm_clock_mhz=every(None)), throttled(0.3)))
    assert set(result.unavailable) == {"sm-clock", "clocks-apart"}
    assert len(result.clean) == 50


@pytest.mark.parametrize(
    ("mhz", "expected"), [(1049.9, {}), (1050.1, {"sm-clock": 50}), (949.9, {"sm-clock": 50}), (950.1, {})]
)
def test_without_the_quads_clocks_only_a_large_step_shows(mhz, expected):
    result = gated(block(quads(sm_clock_mhz=every(None)), during(260, 1e9, sm_clock_mhz=mhz)))
    assert result.touched == expected
    assert ("sm-clock" in result.unavailable) is not bool(expected)


def test_at_the_power_limit_a_step_of_the_snapshots_clock_says_nothing():
    falling = throttled(0.3)
    measured = block(
        quads(sm_clock_mhz=every(None)),
        lambda ms: replace(falling(ms), sm_clock_mhz=1000.0 if ms < 250 else 800.0),
    )
    result = gated(measured)
    assert result.touched == {}
    assert "by design" in result.unavailable["sm-clock"]


@pytest.mark.parametrize(("first_ms", "last_ms"), [(0, 200), (300, 500)])
def test_a_step_needs_snapshots_of_both_halves(first_ms, last_ms):
    measured = sampled(block(quads(sm_clock_mhz=every(None))), first_ms, last_ms)
    assert gated(measured).unavailable["sm-clock"] == "50 of 50 quads have no SM clocks of their own"


def test_no_clock_at_all_is_unavailable():
    measured = block(
        quads(sm_clock_mhz=every(None)), told(sm_clock_mhz=None), {"sm_clock_mhz": "no cpufreq on this host"}
    )
    reason = gated(measured).unavailable["sm-clock"]
    assert reason == "50 of 50 quads have no SM clocks of their own; no cpufreq on this host"


@pytest.mark.parametrize("missing", [None, (0.0, 0.0, 0.0, 0.0)])
def test_quads_without_clocks_among_others_are_named(missing):
    result = gated(block(quads(sm_clock_mhz={3: missing, 4: missing, 5: SLOW})))
    assert result.touched == {"sm-clock": 1}
    assert result.unavailable == {"sm-clock": "2 of 50 quads have no SM clocks of their own"}


def test_what_the_ticks_of_the_timer_do_to_a_clock_is_no_movement():
    # A tick of 1.024 us on slots of 2 ms: a reading is off by 0.05 % at most, two by 0.1 %.
    noise = 1.024e-3 / 2 / 6**0.5
    assert touched_by(block(quads(sm_clock_mhz={7: (1000, 1000, 1000, 1006)}), clock_noise=noise)) == {}
    assert touched_by(block(quads(sm_clock_mhz={7: (1000, 1000, 1000, 1007)}), clock_noise=noise)) != {}


def test_a_clock_that_ticks_drown_is_unavailable():
    # The same tick on slots of 100 us.
    clocks = every((1000.0, 1000.0, 1000.0, 1020.0))
    result = gated(block(quads(sm_clock_mhz=clocks), clock_noise=1.024e-3 / 0.1 / 6**0.5))
    assert result.touched == {}
    assert "less than 2.55 % does not show" in result.unavailable["sm-clock"]


# Canaries


def canaries(*values: float, unit: str = "canary_cycles", count: int = 50) -> tuple[Quad, ...]:
    """Quads with these canaries, the last of them for the rest, in one unit or in both."""
    given = {5 * place: values[min(place, len(values) - 1)] for place in range(count // 5)}
    none = every(None, count)
    by_unit = {name: {**none, **(given if name == unit else {})} for name in ("canary_cycles", "canary_ns")}
    return quads(count, **by_unit)


@pytest.mark.parametrize("unit", ["canary_cycles", "canary_ns"])
@pytest.mark.parametrize(("value", "strays"), [(1020, False), (1021, True), (979, True), (980, False)])
def test_a_stray_canary_touches_the_quads_on_both_sides(unit, value, strays):
    measured = block(canaries(1000, 1000, value, 1000, unit=unit))
    result = gated(measured)
    assert unclean(result) == (list(range(5, 15)) if strays else [])


@pytest.mark.parametrize(
    ("values", "expected"), [((900, 1000), range(5)), ((1000,) * 9 + (900,), range(40, 50))]
)
def test_the_first_and_last_canary_have_quads_on_both_sides_too(values, expected):
    measured = block(canaries(*values))
    # Before the first canary there is no quad.
    assert unclean(gated(measured)) == list(expected)


def test_canaries_that_scatter_stray_by_four_deviations_only():
    noisy = [1000, 1030, 970, 1030, 970, 1030, 970, 1000, 1000]
    scaled = 4 * 1.4826 * 30
    assert touched_by(block(canaries(*noisy, 1000 + scaled - 1))) == {}
    assert touched_by(block(canaries(*noisy, 1000 + scaled + 1))) == {"canary": 10}


def test_cycles_of_the_canary_count_before_its_time():
    slower = quads(canary_ns={5 * place: 1500.0 if place == 2 else 1000.0 for place in range(10)})
    assert touched_by(block(slower)) == {}


@pytest.mark.parametrize(
    ("usual", "expected"),
    [
        (None, {}),
        (CanaryLevel(cycles=1000.0), {}),
        (CanaryLevel(cycles=953.0), {}),
        (CanaryLevel(cycles=952.0), {"canary": 50}),
        (CanaryLevel(cycles=1500.0), {}),
        (CanaryLevel(ns=952.0), {"canary": 50}),
        (CanaryLevel(cycles=1000.0, ns=500.0), {}),
        (CanaryLevel(), {}),
    ],
)
def test_a_block_whose_canary_is_slower_than_usual_is_touched_as_a_whole(usual, expected):
    result = gated(block(quads()), usual=usual)
    assert result.touched == expected
    assert len(result.clean) == (0 if expected else 50)


def test_too_few_canaries_are_unavailable():
    none = every(None)
    without_any = gated(block(quads(canary_ns=none, canary_cycles=none)))
    assert without_any.unavailable == {"canary": "no canary was measured"}
    two = gated(block(canaries(1000, 2000, count=10)))
    assert two.unavailable == {"canary": "fewer than 3 canaries in the block"}
    assert two.touched == {}
    three = gated(block(canaries(1000, 2000, 1000, count=15)))
    assert (three.unavailable, three.touched) == ({}, {"canary": 10})


def test_the_usual_level_is_the_median_over_blocks():
    levels = [canary_level(canaries(value)) for value in (1000, 1010, 5000)]
    assert usual_level(levels) == CanaryLevel(cycles=1010)
    levels.append(canary_level(canaries(700, unit="canary_ns")))
    assert usual_level(levels) == CanaryLevel(cycles=1010, ns=700)
    assert usual_level([CanaryLevel(), CanaryLevel(ns=3.0), CanaryLevel(ns=5.0)]) == CanaryLevel(ns=4.0)
    without = canary_level(quads(canary_ns=every(None), canary_cycles=every(None)))
    assert without == usual_level([without]) == usual_level([]) == CanaryLevel()


# All of them


def test_a_quad_counts_under_the_first_gate_that_catches_it():
    clocks = dict.fromkeys((12, 30), SLOW)
    measured = block(quads(sm_clock_mhz=clocks), throttled(0.5, 120, 130, "sw_thermal"))
    result = gated(measured)
    assert result.touched == {"thermal-throttle": 11, "sm-clock": 1}
    assert [found.partition(":")[0] for found in result.findings] == ["thermal-throttle", "sm-clock"]


@pytest.mark.parametrize(("clocks", "capped"), [(SLOW, 0.0), ((1010.2, 1000.0, 1000.0, 1010.2), 0.3)])
def test_what_a_clock_does_leaves_a_quad_clean(clocks, capped):
    """Cycles beside the times tell what it did."""
    result = gated(block(quads(sm_clock_mhz=every(clocks)), throttled(capped)))
    assert sum(result.touched.values()) == 50
    assert len(result.clean) == 50


def test_a_quad_that_a_clock_moved_in_is_unclean_by_what_else_touched_it():
    levels = {5 * place: 1500.0 if place == 2 else 1000.0 for place in range(10)}
    measured = quads(sm_clock_mhz=every(SLOW), canary_cycles=levels)
    result = gated(block(measured, throttled(0.5, 120, 130, "sw_thermal")))
    assert result.touched == {"thermal-throttle": 11, "sm-clock": 39}
    assert unclean(result) == list(range(5, 22))


def test_gates_compose():
    together = quads(sm_clock_mhz={40: SLOW})
    hot = throttled(0.5, 120, 121, "hw_thermal")
    swap = during(265, 275, p_state=2)
    measured = block(together, lambda ms: replace(swap(ms), throttle_ns=hot(ms).throttle_ns))
    parts = [block(quads(), hot), block(quads(), swap), block(together)]
    expected = {number for part in parts for number in unclean(gated(part))}
    assert set(unclean(gated(measured))) == expected
    assert gated(measured).touched == {"thermal-throttle": 11, "p-state": 4, "sm-clock": 1}


def trouble(seed: int) -> PairedBlock:
    """A block in which much goes wrong at random."""
    rng = random.Random(seed)
    count = rng.randrange(5, 60)
    clocks = {
        number: tuple(1000 * rng.gauss(1, rng.choice([0.0005, 0.004])) for _ in range(4))
        for number in range(count)
    }
    levels = {5 * place: rng.choice([1000.0, 1001.0, 1300.0]) for place in range(-(-count // 5))}
    edges = [(rng.uniform(0, 500), rng.uniform(0, 60)) for _ in range(3)]
    share = rng.choice([0.0, 0.0, 0.2])

    def trace(ms: float) -> Snapshot:
        hot, swap, warm = (first <= ms <= first + length for first, length in edges)
        ran_ms = min(max(ms - edges[0][0], 0), edges[0][1])
        return replace(
            FOLLOWED,
            throttle_ns={
                **(STEADY.throttle_ns or {}),
                "sw_thermal": int(ran_ms * MS),
                "sw_power_cap": int((ms + 1e4) * share * MS),
            },
            clock_event_reasons=("sw_thermal",) if hot else (),
            memory_clock_mhz=1000.0 if swap else 2000.0,
            temperature_c=65.0 if warm else 50.0,
        )

    return block(quads(count, sm_clock_mhz=clocks, canary_cycles=levels), trace)


def with_arms_swapped(measured: PairedBlock) -> PairedBlock:
    other = {"ABBA": "BAAB", "BAAB": "ABBA"}
    return replace(
        measured,
        quads=tuple(replace(quad, order=other[quad.order]) for quad in measured.quads),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("seed", range(20))
def test_gates_are_blind_to_the_arms(seed):
    measured = trouble(seed)
    own, other = gated(measured), gated(with_arms_swapped(measured))
    assert unclean(own) == unclean(other)
    assert replace(own, quads=(), clean=()) == replace(other, quads=(), clean=())


@pytest.mark.parametrize("seed", range(20))
def test_gates_do_not_look_at_what_a_verdict_is_made_from(seed):
    measured = trouble(seed)
    slower = replace(
        measured,
        quads=tuple(replace(q, times_ns=(1.0, 9.0, 9.0, 1.0), cycles=None) for q in measured.quads),
    )
    own, other = gated(measured), gated(slower)
    assert unclean(own) == unclean(other)
    assert own.touched == other.touched


def test_trouble_is_trouble():
    results = [gated(trouble(seed)) for seed in range(20)]
    assert {code for result in results for code in result.touched} >= {
        "thermal-throttle",
        "memory-clock",
        "sm-clock",
        "clocks-apart",
        "temperature",
        "canary",
    }
    assert {result.power_capped for result in results} == {True, False}


# Several processes


def test_processes_add_up():
    results = [gated(trouble(seed)) for seed in range(6)]
    combined = combine(results)
    assert combined.quads == tuple(quad for result in results for quad in result.quads)
    assert combined.clean == tuple(quad for result in results for quad in result.clean)
    assert combined.power_capped is True
    assert list(combined.touched) == [code for code in GATES if code in combined.touched]
    assert sum(combined.touched.values()) == sum(sum(result.touched.values()) for result in results)
    assert combine([combine(results[:2]), combine(results[2:])]) == combined


def test_no_process_at_all():
    assert combine([]) == Gated(quads=(), clean=())


def test_the_process_that_was_disturbed_most_counts():
    quiet, loud = (gated(block(canaries(1000, value, 1000, count=15), CROWDED)) for value in (1001, 1100))
    assert combine([quiet, loud, quiet]).disturbance == loud.disturbance == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("capped", "expected"),
    [
        ([False, False], False),
        ([False, None], None),
        ([True, None], True),
        ([False, True], True),
        ([], None),
    ],
)
def test_one_process_at_the_power_limit_is_enough(capped, expected):
    assert combine([Gated(quads=(), clean=(), power_capped=each) for each in capped]).power_capped is expected


def test_reasons_and_findings_are_told_once():
    nothing = Gated(quads=(), clean=())
    first = replace(nothing, unavailable={"canary": "first"}, findings=("a: x", "b: y"))
    more = {"canary": "second", "p-state": "none"}
    combined = combine([first, replace(nothing, unavailable=more, findings=("b: y", "c: z"))])
    assert combined.unavailable == {"canary": "first", "p-state": "none"}
    assert combined.findings == ("a: x", "b: y", "c: z")


def test_limits_are_the_policys():
    lenient = GatePolicy(sm_clock_spread=0.2)
    measured = block(quads(sm_clock_mhz=dict.fromkeys(range(20), SLOW)))
    assert gate(measured, lenient, usual=None).touched == {}
    assert touched_by(measured) == {"sm-clock": 20}


@pytest.mark.parametrize(("low_mhz", "count"), [(1000 / 1.012, 0), (1000 / 1.03, 20)])
def test_free_clocks_may_move_by_two_steps(low_mhz, count):
    clocks = (low_mhz, 1000.0, 1000.0, 1000.0)
    measured = block(quads(sm_clock_mhz=dict.fromkeys(range(20), clocks)))
    assert gate(measured, GatePolicy(), usual=None).touched.get("sm-clock", 0) == count
