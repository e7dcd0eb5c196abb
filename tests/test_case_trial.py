"""Every verdict that a case can have, from blocks and gates made by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest

from harness.device.telemetry.fixed import STEADY
from harness.judgement.attribution import SoloRun
from harness.judgement.case_trial import SPARE_PROCESSES, TAIL_QUADS, CaseTrial, NoisePriors, settle
from harness.judgement.gates import CanaryLevel, Gated, GatePolicy, gate
from harness.judgement.judge import Policy
from harness.judgement.statistics.moderated import Prior
from harness.records.types import Arm, Launch, PairedBlock, Quad, Resources, Snapshot, Telemetry, Verdict
from harness.report.words.of_verdict import explained
from harness.suite.problem import Case

MS = 1_000_000
CASE = Case("toy", "plain", {"n": 64})
START_NS = 10**9
GRANTED = Launch(grid=(2, 1, 1), block=(32, 1, 1))


def quads(
    effect: float = 0.0,
    *,
    cycles: float | None = None,
    clocks: Sequence[float] | None = None,
    count: int = 25,
    seed: int = 1,
    noise: float = 5e-4,
    after_other: float = 0.0,
    strays: float = 0.0,
) -> tuple[Quad, ...]:
    """Quads of 1 ms and 1 ms * (1 + effect); `cycles` is their effect on cycles, `clocks` one a quad.

    `after_other` makes a slot of head's slower that comes right after one of base's; of head's slots the
    share `strays` takes three times as long.
    """
    rng = random.Random(seed)
    made = []
    for number in range(count):
        order: Literal["ABBA", "BAAB"] = "ABBA" if rng.random() < 0.5 else "BAAB"
        mhz = clocks[number % len(clocks)] if clocks else 1000.0

        def slot(index: int, order: str = order, mhz: float = mhz) -> float:
            head = order[index] == "B"
            scatter = 1 + rng.gauss(0, noise) + after_other * (head and order[index - 1 : index] == "A")
            stray = 3 if head and rng.random() < strays else 1
            return MS * (1 + effect * head) * scatter * stray * 1000.0 / mhz

        times = tuple(slot(index) for index in range(4))
        counted = None
        if cycles is not None:
            counted = tuple(1000 * (1 + cycles * (side == "B")) * (1 + rng.gauss(0, noise)) for side in order)
        began = START_NS + 5 * MS * number
        made.append(
            Quad(
                order=order,
                times_ns=times,  # type: ignore[arg-type]
                cycles=counted,  # type: ignore[arg-type]
                sm_clock_mhz=None if cycles is None else (mhz, mhz, mhz, mhz),
                canary_ns=5e4 if number % 2 == 0 else None,
                started_ns=began,
                ended_ns=began + 4 * MS,
            )
        )
    return tuple(made)


def block(
    made: tuple[Quad, ...], *, capped: bool = False, hot: float = 0.0, foreign: tuple[int, ...] = ()
) -> PairedBlock:
    """The quads with what the card said meanwhile: that it was at its power limit half of the time, if
    `capped`; too hot for a share of the block from its start on; and used by others.
    """
    began, ended = made[0].started_ns - 1, made[-1].ended_ns + 1

    def at(moment_ns: int) -> Snapshot:
        passed = moment_ns - began
        spent = {
            "sw_power_cap": passed // 2 if capped else 0,
            "sw_thermal": min(passed, int(hot * (ended - began))),
        }
        return replace(STEADY, at_ns=moment_ns, throttle_ns={**(STEADY.throttle_ns or {}), **spent})

    moments = [began + (ended - began) * step // 8 for step in range(9)]
    return PairedBlock(
        quads=made,
        launches_per_slot=1,
        l2="hot",
        clock="scripted",
        tick_ns=1.0,
        warmup_s=0.1,
        settled=True,
        gpu_s=0.25,
        clock_noise=1e-6,
        telemetry=Telemetry(
            probe="scripted",
            before=at(moments[0]),
            during=tuple(at(moment) for moment in moments[1:-1]),
            after=at(moments[-1]),
            foreign_processes=foreign,
        ),
    )


def fresh(**given) -> Any:  # so that a test may read what could be None in other verdicts
    return CaseTrial("toy.plain[n=64]", CASE, Policy(), **given)


def add(trial: CaseTrial, made: PairedBlock, usual: CanaryLevel | None = None) -> Gated:
    gated = gate(made, GatePolicy(), usual=usual)
    trial.add(made, gated)
    settle([trial], trial.policy)
    return gated


def fed(*blocks: PairedBlock, usual: CanaryLevel | None = None, **given) -> Any:
    """A trial with a process for each block, as long as it wants more."""
    made = fresh(**given)
    for each in blocks:
        if made.settled:
            break
        add(made, each, usual)
    return made


def trial(*effects: float, again: Sequence[float] = (), capped: bool = False, **given) -> Any:
    """A trial whose processes read these effects, and `again` these."""
    noise = given.pop("noise_of_device", NoisePriors())
    seeds = (*range(len(effects)), *range(100, 100 + len(again)))
    blocks = [
        block(quads(effect, seed=seed, **given), capped=capped)
        for seed, effect in zip(seeds, (*effects, *again), strict=True)
    ]
    return fed(*blocks, noise=noise)


def test_processes_of_their_own_differ_by_so_much_a_launch():
    """Launches of 1 ms by a hundredth of a per cent, or by one, which two processes cannot exclude."""
    prior = NoisePriors().time
    assert NoisePriors(prior, prior, launch_ns=1e4).at(1e6).cycles.variance == pytest.approx(1e-6 + 1e-4)
    few = trial(0.0, 0.0, noise_of_device=NoisePriors(prior, prior, launch_ns=100.0))
    assert (few.settled, few.verdict().status) == (True, "unchanged")
    many = trial(0.0, 0.0, noise_of_device=NoisePriors(prior, prior, launch_ns=1e4))
    assert not many.settled
    assert many.precision.standard_error == pytest.approx(0.01 / 3, rel=0.01)


def told(found: Verdict) -> tuple[str, str]:
    return found.status, found.reason


@pytest.mark.parametrize(
    ("effect", "status", "reason"),
    [(0.02, "regression", "slower-in-time"), (-0.02, "improvement", "faster-in-time")],
)
def test_what_is_found_twice_is_so(effect, status, reason):
    made = trial(effect, effect, again=[effect, effect])
    verdict = made.verdict()
    assert told(verdict) == (status, reason)
    assert verdict.time.effect == pytest.approx(effect, abs=1e-3)
    assert verdict.time.low < effect < verdict.time.high
    assert (verdict.time.processes, verdict.time.quads) == (2, 50)
    word = "slower" if effect > 0 else "faster"
    assert explained(verdict).startswith(f"{100 * abs(verdict.time.effect):.2f} % {word} (")
    assert "in 2 processes." in explained(verdict)
    assert verdict.complete
    assert verdict.case == "toy.plain[n=64]"
    assert (verdict.kernel, verdict.sizes, verdict.dtype) == ("plain", {"n": 64}, "float32")


@pytest.mark.parametrize("effect", [0.0, 0.001, -0.001])
def test_what_is_within_the_tolerance_for_sure_is_unchanged(effect):
    verdict = trial(effect, effect).verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert "within the tolerance for sure" in explained(verdict)
    assert 0.0025 < verdict.smallest_visible < 0.01


def test_what_looks_beyond_the_margin_waits_for_another_look():
    made = trial(0.0028, 0.0028)
    assert made.looks == 1
    assert not made.settled
    assert made.judgement.status == "undecided"


def test_processes_that_differ_by_more_than_is_known_are_too_noisy():
    made = trial(*([0.03, -0.03] * 4))
    verdict = made.verdict()
    assert (made.looks, made.settled) == (3, True)
    assert told(verdict) == ("inconclusive", "too-noisy")
    assert "Processes differ by more than this device's history explains" in explained(verdict)
    assert verdict.complete


def test_an_effect_too_small_to_be_seen_is_too_noisy_and_says_what_would_show():
    noise = NoisePriors(Prior(variance=0.02**2, df=30.0), Prior(variance=0.02**2, df=30.0))
    verdict = trial(*([0.004] * 8), noise_of_device=noise).verdict()
    assert told(verdict) == ("inconclusive", "too-noisy")
    assert f"only a change beyond {100 * verdict.smallest_visible:.2f} % would show" in explained(verdict)


def test_what_fresh_processes_show_to_be_the_same_is_unchanged():
    verdict = trial(0.02, 0.02, again=[0.0, 0.0]).verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    # The effect told is the one of which nobody knew that it would be large.
    assert verdict.time.effect == pytest.approx(0.0, abs=1e-3)


def test_what_fresh_processes_leave_open_to_the_last_is_not_confirmed():
    made = trial(0.02, 0.02, again=[0.02, -0.02] * 4)
    assert (len(made.again), made.settled, made.unfinished) == (8, True, False)
    verdict = made.verdict()
    assert told(verdict) == ("inconclusive", "not-confirmed")
    assert "Not confirmed by fresh processes. It looked slower at first." in explained(verdict)


def test_the_effect_is_that_of_the_confirming_processes_alone():
    verdict = trial(0.03, 0.03, again=[0.02, 0.021]).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert verdict.time.process_effects == pytest.approx((0.02, 0.021), abs=1e-3)
    assert verdict.time.effect == pytest.approx(0.0205, abs=1e-3)
    assert explained(verdict).startswith("2.0")


@pytest.mark.parametrize(("again", "processes"), [(0.03, 2), (0.014, 4), (0.0075, 8)])
def test_what_two_fresh_processes_leave_open_more_of_them_confirm(again, processes):
    noise = NoisePriors(Prior(variance=0.004**2, df=5.0), Prior(variance=0.004**2, df=5.0))
    made = trial(0.04, 0.04, again=[again] * 8, noise_of_device=noise)
    assert (len(made.rounds), len(made.again)) == (2, processes)
    assert told(made.verdict()) == ("regression", "slower-in-time")


ONE_LOOK = Policy(looks=(2,), spending=(1.0,), same_spending=(1.0,))


def test_at_the_last_look_other_cases_may_still_decide():
    """Holm's step-down: of two cases the first needs half the error, and the other then has all of it."""

    def flagged(again: float) -> CaseTrial:
        made = CaseTrial("toy.plain[n=64]", CASE, ONE_LOOK)
        for seed, effect in enumerate((0.05, 0.05, again, again)):
            each = block(quads(effect, seed=seed, noise=1e-6))
            made.add(each, gate(each, GatePolicy(), usual=None))
        return made

    low, high = 0.0025, 0.05
    while not 0.0006 < flagged((low + high) / 2).p_value < 0.0009:
        middle = (low + high) / 2
        low, high = (middle, high) if flagged(middle).p_value >= 0.0009 else (low, middle)
    weak, open_still = flagged((low + high) / 2), replace(fresh(), id="other")
    settle([weak, open_still], ONE_LOOK)
    assert weak.settled
    assert told(weak.verdict()) == ("inconclusive", "not-confirmed")
    strong = replace(flagged(0.05), id="other")
    settle([weak, strong], ONE_LOOK)
    assert told(strong.verdict()) == told(weak.verdict()) == ("regression", "slower-in-time")


def test_a_long_look_at_what_is_obvious_is_not_asked_for():
    margin = Policy().margin
    first, obvious, small = fresh(), trial(0.2, 0.2), trial(0.008, 0.008)
    assert first.precision.standard_error < margin
    assert obvious.confirming
    assert small.confirming
    assert obvious.precision.standard_error > 4 * margin > small.precision.standard_error
    assert trial(0.2, 0.2, again=[0.1, 0.4]).precision.standard_error < margin  # not confirmed at once


# Cycles, which count at the power limit.


def test_both_metrics_say_what_the_code_did():
    made = trial(0.02, 0.02, again=[0.02, 0.02], cycles=0.02)
    assert [metric.name for metric in made.metrics(made.rounds)] == ["time", "cycles"]
    verdict = made.verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert verdict.cycles.effect == pytest.approx(0.02, abs=1e-3)
    assert verdict.attribution == "code"


def test_where_cycles_alone_show_it_and_clocks_are_free_neither_is_believed():
    verdict = trial(*[0.0] * 8, cycles=0.02).verdict()
    assert told(verdict) == ("inconclusive", "clocks")
    assert "Time and cycles contradict each other" in explained(verdict)
    assert verdict.power_capped is False


def test_away_from_the_power_limit_time_is_believed_where_it_shows_what_cycles_do_not():
    verdict = trial(0.02, 0.02, again=[0.02, 0.02], cycles=0.0).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert verdict.attribution is None
    assert "Neither cycles nor clocks explain it" in explained(verdict)


@pytest.mark.parametrize(
    ("cycles", "status", "reason", "word"),
    [(0.02, "regression", "slower-in-cycles", "more"), (-0.02, "improvement", "faster-in-cycles", "fewer")],
)
def test_at_the_power_limit_cycles_tell_what_time_hides(cycles, status, reason, word):
    made = trial(0.0, 0.0, again=[0.0, 0.0], cycles=cycles, capped=True)
    assert [metric.name for metric in made.metrics(made.rounds)] == ["time", "cycles"]
    verdict = made.verdict()
    assert told(verdict) == (status, reason)
    assert f"{word} cycles (" in explained(verdict)
    assert verdict.power_capped is True
    assert verdict.time.effect == pytest.approx(0.0, abs=1e-3)
    assert verdict.attribution == "code"


CLOCKS = [1000.0, 970.0, 940.0, 910.0, 1030.0]


def test_the_exponent_is_fitted_where_the_clock_moves():
    assert trial(0.0, 0.0, cycles=0.0, clocks=CLOCKS).exponent() == pytest.approx(1.0, abs=0.02)
    assert trial(0.0, 0.0, cycles=0.0).exponent() is None
    assert trial(0.0, 0.0).exponent() is None


def bound_by_memory(effect: float, cycles: float, seed: int) -> tuple[Quad, ...]:
    """Quads whose clock moves and whose times do not care: cycles follow the clock."""
    made = quads(effect, cycles=cycles, seed=seed)
    return tuple(
        replace(quad, sm_clock_mhz=(mhz, mhz, mhz, mhz))
        for quad, mhz in zip(made, (CLOCKS * len(made))[: len(made)], strict=True)
    )


def test_cycles_do_not_count_where_time_does_not_follow_the_clock():
    made = fed(*[block(bound_by_memory(0.0, 0.02, seed), capped=True) for seed in (1, 2)])
    assert made.exponent() == pytest.approx(0.0, abs=0.02)
    verdict = made.verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert verdict.clock_exponent == pytest.approx(0.0, abs=0.02)
    assert verdict.power_capped is True


def test_cycles_are_no_metric_where_a_process_has_none():
    made = fed(block(quads(0.0, cycles=0.02)), block(quads(0.0, seed=2)))
    assert [metric.name for metric in made.metrics(made.rounds)] == ["time"]
    assert told(made.verdict()) == ("unchanged", "within-tolerance")
    assert made.verdict().cycles is None


Four = tuple[float, float, float, float]
WRONG_COUNTS: Mapping[str, Four] = {
    "nan": (math.nan, 1000.0, 1000.0, 1000.0),
    "zero": (0.0, 0.0, 0.0, 0.0),
    "wrapped": (1000.0 - 2**32, 1000.0, 1000.0, 1000.0),
    "wrapped, unsigned": (1000.0, 2.0**64 - 1000, 1000.0, 1000.0),
}


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("wrong", WRONG_COUNTS)
def test_counters_that_fail_leave_the_time(wrong, every):
    """Always, and in one quad of four."""
    blocks = []
    for seed in range(4):
        made = quads(0.02, cycles=0.02, seed=seed)
        spoilt = [q if at % every else replace(q, cycles=WRONG_COUNTS[wrong]) for at, q in enumerate(made)]
        blocks.append(block(tuple(spoilt)))
    verdict = fed(*blocks).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert verdict.time is not None
    if every == 1:
        assert verdict.cycles is None
    else:
        assert verdict.cycles.effect == pytest.approx(0.02, abs=1e-3)


# Strays, and the order of slots.


def test_strays_on_head_alone_are_slower_in_the_tail():
    made = trial(*[0.0] * 4, again=[0.0] * 8, strays=0.1, count=60)
    assert made.suspicious
    verdict = made.verdict()
    assert told(verdict) == ("regression", "slower-in-tail")
    assert abs(verdict.time.effect) < 0.002
    assert (verdict.strays.base, verdict.strays.slots) == (0, 120 * verdict.time.processes)
    assert verdict.strays.head == pytest.approx(0.1 * verdict.strays.slots, rel=0.5)
    assert "of head's slots took over 1.1 times their usual time and 0.00 % of base's" in explained(verdict)


def test_strays_have_to_be_confirmed_too():
    blocks = [block(quads(seed=seed, count=60, strays=0.1)) for seed in range(2)]
    made = fed(*blocks, *[block(quads(seed=seed, count=60)) for seed in range(2, 12)])
    assert told(made.verdict())[0] in ("unchanged", "inconclusive")


def test_a_case_with_strays_on_one_side_needs_more_quads():
    assert trial(0.0, strays=0.1, count=12).precision.min_quads == 0
    made = trial(0.0, 0.0, strays=0.1, count=12)
    assert (made.judgement.status, made.settled) == ("undecided", False)
    assert made.precision.min_quads == TAIL_QUADS


@pytest.mark.parametrize("count", [6, 25])
def test_what_is_slower_only_right_after_base_is_inconclusive(count):
    made = trial(*[0.0] * 8, again=[0.0] * 8, after_other=0.03, count=count)
    assert made.confirmed  # by its times alone it would be a regression
    verdict = made.verdict()
    assert told(verdict) == ("inconclusive", "order")
    assert "It depends on which kernel ran before. That alone makes up to 2.9" in explained(verdict)
    assert verdict.order_p < 1e-3


def test_what_is_much_slower_stays_so_whatever_the_order_did():
    verdict = trial(0.1, 0.1, again=[0.1, 0.1], after_other=0.03).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    even = trial(0.1, 0.1, again=[0.1, 0.1]).verdict()
    assert verdict.order_p < 1e-6 < 0.01 < even.order_p


# What else touched the quads.


def partly_hot(in_heat: float, in_cold: float, seed: int, noise: float = 5e-4) -> PairedBlock:
    """A block that is too hot for its first three quarters, with an effect of its own there. The noise is
    that of the rest.
    """
    hot, cold = quads(in_heat, count=48, seed=seed), quads(in_cold, count=48, seed=seed, noise=noise)
    return block((*hot[:36], *cold[36:]), hot=0.75)


@pytest.mark.parametrize(
    ("in_heat", "in_cold", "words"),
    [
        (0.02, 0.0, "give the verdict same"),
        (0.0, 0.02, "give the verdict slower"),
        (-0.02, 0.02, "give the verdict slower"),
    ],
)
def test_where_touched_and_clean_quads_contradict_each_other_it_is_invalid(in_heat, in_cold, words):
    verdict = fed(*[partly_hot(in_heat, in_cold, seed) for seed in range(8)]).verdict()
    assert told(verdict) == ("invalid", "thermal-throttle")
    assert "undisturbed quads " + words in explained(verdict)
    assert "held back for sw_thermal" in explained(verdict)
    assert verdict.attribution == "thermal"


@pytest.mark.parametrize(
    ("in_heat", "in_cold", "status"), [(0.008, 0.004, "regression"), (0.0, 0.0065, "unchanged")]
)
def test_between_margin_and_tolerance_the_same_is_no_contradiction(in_heat, in_cold, status):
    verdict = fed(*[partly_hot(in_heat, in_cold, seed) for seed in range(16)]).verdict()
    assert verdict.status == status


def test_clean_quads_that_say_nothing_contradict_nothing():
    verdict = fed(*[partly_hot(0.02, 0.0, seed, noise=0.03) for seed in range(8)]).verdict()
    assert verdict.status == "regression"


def test_where_they_agree_what_touched_them_is_told_and_costs_nothing():
    verdict = fed(*[partly_hot(0.02, 0.02, seed) for seed in range(8)]).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert 0.7 < verdict.touched["thermal-throttle"] / (4 * 48) < 0.85
    assert verdict.time.quads == 2 * 48


def test_clocks_that_jump_inside_quads_are_told_and_cycles_beside_the_time_decide():
    jumping = [
        block(
            tuple(
                replace(q, sm_clock_mhz=(900.0, 1000.0, 1000.0, 1000.0))
                for q in quads(0.02, cycles=0.02, seed=s)
            )
        )
        for s in range(4)
    ]
    verdict = fed(*jumping).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert verdict.touched == {"sm-clock": 100}
    assert verdict.attribution == "code"


def beside_another(effect: float, canary: float, seed: int) -> PairedBlock:
    """Another process uses the card, and every second canary takes longer by this share."""
    made = quads(effect, seed=seed)
    loud = [q if at % 4 else replace(q, canary_ns=5e4 * (1 + canary)) for at, q in enumerate(made)]
    return block(tuple(loud), foreign=(4711,))


@pytest.mark.parametrize(
    ("effect", "canary", "status"),
    [
        (0.0, 0.001, "unchanged"),
        (0.02, 0.001, "regression"),
        (0.0, 0.3, "invalid"),
        (0.02, 0.3, "invalid"),
        (1.0, 0.3, "regression"),
    ],
)
def test_beside_another_process_it_counts_what_a_fixed_kernel_suffered(effect, canary, status):
    verdict = fed(*[beside_another(effect, canary, seed) for seed in range(4)]).verdict()
    assert verdict.status == status
    assert verdict.touched == {"contention": 100 if effect else 50}
    if status == "invalid":
        assert (verdict.reason, verdict.attribution) == ("contention", "contention")
        assert "a fixed kernel's time varied by 30.0 %" in explained(verdict)
        assert "4711" in explained(verdict)


def test_beside_another_process_that_slows_all_alike_the_canaries_of_other_blocks_tell():
    blocks = [block(quads(seed=seed), foreign=(4711,)) for seed in range(4)]
    assert fed(*blocks).verdict().status == "unchanged"
    usual = CanaryLevel(ns=5e4 / 1.1)
    assert told(fed(*blocks, usual=usual).verdict()) == ("invalid", "contention")


def test_a_card_that_changes_its_clock_in_between_changes_no_verdict():
    slow = [0.7 * 1000.0]
    for effect, status in ((0.0, "unchanged"), (0.02, "regression")):
        blocks = []
        for seed in range(4):
            before = quads(effect, cycles=effect, seed=seed)
            after = quads(effect, cycles=effect, seed=seed, clocks=slow)
            half = (*before[:12], *after[12:])
            blocks.append(block((before, half, half, after)[seed]))
        verdict = fed(*blocks).verdict()
        assert verdict.status == status
        assert verdict.time.effect == pytest.approx(effect, abs=2e-3)


def test_a_gate_that_has_nothing_to_go_by_is_told():
    verdict = fed(*[replace(block(quads(0.02, seed=seed)), telemetry=None) for seed in range(4)]).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert verdict.unavailable["temperature"] == "no telemetry"
    assert verdict.power_capped is None
    assert (verdict.temperature_c, verdict.power_w) == (None, None)


# Too little to read, and too much.


@pytest.mark.parametrize("time_ns", [0.0, math.nan, math.inf, -1.0])
def test_times_that_cannot_be_read_count_for_nothing(time_ns):
    def spoilt(seed: int, every: int) -> PairedBlock:
        made = quads(0.0, seed=seed)
        return block(
            tuple(
                q if at % every else replace(q, times_ns=(MS, time_ns, MS, MS)) for at, q in enumerate(made)
            )
        )

    verdict = fed(*[spoilt(seed, 3) for seed in range(4)]).verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert verdict.time.quads == 2 * 16
    made = fed(*[spoilt(seed, 1) for seed in range(8)])
    assert len(made.rounds) == 2 + SPARE_PROCESSES
    assert told(made.verdict()) == ("invalid", "too-few-quads")
    assert made.verdict().time is None


def test_one_process_that_can_be_read_is_too_little():
    few = [block(quads(0.0, count=4, seed=seed)) for seed in range(5)]
    assert told(fed(block(quads(0.0)), *few).verdict()) == ("invalid", "too-few-quads")


def test_a_process_that_cannot_be_read_is_made_up_for():
    few = block(quads(0.02, count=4))
    good = [block(quads(0.02, seed=seed)) for seed in range(6)]
    made = fed(good[0], few, good[1], good[2], few, good[3])
    assert (len(made.rounds), len(made.again)) == (3, 3)
    assert told(made.verdict()) == ("regression", "slower-in-time")
    unread = fed(good[0], good[1], *[few] * 8)
    assert len(unread.again) == 2 + SPARE_PROCESSES
    verdict = unread.verdict()
    assert told(verdict) == ("inconclusive", "not-confirmed")
    assert "too few fresh processes" in explained(verdict)


@pytest.mark.parametrize("effect", [999.0, -0.999])
def test_a_thousandfold_is_settled_at_once_and_told_in_figures(effect):
    # Its effect need not be known well to be confirmed.
    assert trial(effect, effect, cycles=effect, count=6).precision.standard_error > 0.1
    verdict = trial(effect, effect, again=[effect, effect], cycles=effect, count=6).verdict()
    assert verdict.status == ("regression" if effect > 0 else "improvement")
    figures = (verdict.time.low, verdict.time.effect, verdict.time.high)
    assert -1 < figures[0] < figures[1] < figures[2] < 10 * abs(effect)
    assert figures[1] == pytest.approx(effect, rel=1e-2)
    assert 0 < verdict.smallest_visible < 10


# What is told beside the verdict.


def test_arms_card_and_device_time_are_told():
    made = trial(0.02, 0.02, again=[0.02, 0.02], cycles=0.02)
    note = Arm(source_sha256="0" * 64, launch=GRANTED, resources=Resources(registers=17))
    made.sides = {"base": note, "head": replace(note, source_sha256="1" * 64)}
    verdict = made.verdict()
    assert verdict.base.time_ns == pytest.approx(MS, rel=1e-3)
    assert verdict.head.time_ns == pytest.approx(1.02 * MS, rel=1e-3)
    assert (verdict.base.sm_clock_mhz, verdict.head.sm_clock_mhz) == (1000.0, 1000.0)
    assert (verdict.base.source_sha256, verdict.head.source_sha256) == ("0" * 64, "1" * 64)
    assert verdict.base.launch == GRANTED
    assert verdict.base.resources == Resources(registers=17)
    assert (verdict.temperature_c, verdict.power_w) == (50.0, 100.0)
    assert verdict.gpu_s == pytest.approx(4 * 0.25)
    assert verdict.attribution == "code"


def test_the_noise_floor_is_that_of_the_calibration():
    noise = NoisePriors(calibrated=True, floor=0.0042)
    assert trial(0.0, 0.0, noise_of_device=noise).verdict().noise_floor == 0.0042
    assert trial(0.0, 0.0).verdict().noise_floor is None


def test_energy_is_that_of_each_side_alone():
    made = trial(0.02, 0.02, again=[0.02, 0.02], cycles=0.02)
    base = SoloRun(time_ns=MS, sm_clock_mhz=1000.0, power_w=300.0, energy_j=0.30, energy_error=0.03)
    head = SoloRun(time_ns=MS, sm_clock_mhz=950.0, power_w=300.0, energy_j=0.33, energy_error=0.04)
    made.solo = {"base": base, "head": head}
    verdict = made.verdict()
    assert verdict.energy.effect == pytest.approx(0.1)
    assert (verdict.energy.low, verdict.energy.high) == pytest.approx((0.05, 0.15))
    assert "POWER-COUPLED" in explained(verdict)
    made.solo = {"base": replace(base, energy_j=None), "head": head}
    assert made.verdict().energy is None


# Endings.


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("base", "The process crashed at base. It broke."),
        ("head", "The process crashed at head. It broke."),
        ("", "The process crashed. It broke."),
    ],
)
def test_an_ending_is_the_verdict_whatever_was_measured(side, message):
    made = trial(0.02, 0.02)
    made.end("failed", "crashed", "It broke.", "evidence", side)
    verdict = made.verdict()
    assert told(verdict) == ("failed", "crashed")
    assert (explained(verdict), verdict.log, verdict.side) == (message, "evidence", side)
    assert made.ended
    assert made.settled
    assert verdict.time is None


def test_identical_code_needs_no_process():
    made = fresh()
    made.sides = {"base": Arm(source_sha256="0" * 64), "head": Arm(source_sha256="0" * 64)}
    made.end("identical", "same-code", "The same.")
    verdict = made.verdict()
    assert told(verdict) == ("identical", "same-code")
    assert verdict.base.source_sha256 == "0" * 64


INTERRUPTED: Mapping[str, tuple[tuple[float, ...], tuple[float, ...], str, str]] = {
    "nothing": ((), (), "inconclusive", "interrupted"),
    "one process": ((0.0,), (), "inconclusive", "interrupted"),
    "between looks": ((0.02, -0.02, 0.02), (), "inconclusive", "interrupted"),
    "between looks, and enough": ((0.0028, 0.0028, 0.0028), (), "unchanged", "within-tolerance"),
    "flagged": ((0.02, 0.02), (), "inconclusive", "interrupted"),
    "half confirmed": ((0.02, 0.02), (0.02,), "inconclusive", "interrupted"),
    "confirmed between looks": ((0.02, 0.02), (0.02, 0.01, 0.02), "regression", "slower-in-time"),
    "refuted between looks": ((0.02, 0.02), (0.003, 0.0028, 0.003), "unchanged", "within-tolerance"),
}


@pytest.mark.parametrize("what", INTERRUPTED)
def test_an_interrupt_judges_what_there_is(what):
    effects, again, status, reason = INTERRUPTED[what]
    made = trial(*effects, again=again)
    assert (len(made.rounds), len(made.again)) == (len(effects), len(again))
    assert not made.settled
    made.interrupt()
    settle([made], made.policy)
    verdict = made.verdict()
    assert told(verdict) == (status, reason)
    assert explained(verdict)
    # What was cut short tells nothing of how often such a case is found.
    assert (verdict.complete, made.unfinished, made.settled) == (False, True, True)


@pytest.mark.parametrize(("one", "other"), [(-0.8, 4.67), (0.03, -0.03), (1.0, 4.0), (-0.5, -0.9)])
def test_two_processes_that_disagree_have_no_interval(one, other):
    made = trial(one, other)
    made.interrupt()
    verdict = made.verdict()
    assert told(verdict) == ("inconclusive", "interrupted")
    assert "(no interval) in 2 processes." in explained(verdict)
    assert verdict.time.process_effects == pytest.approx((one, other), abs=5e-3)
    assert math.isfinite(verdict.time.high)


def test_an_interrupt_leaves_what_is_settled_alone():
    made = trial(0.02, 0.02, again=[0.02, 0.02])
    before = made.verdict()
    made.interrupt()
    assert made.verdict() == before
    made = trial(0.0, 0.0)
    made.end("failed", "crashed", "It broke.")
    made.interrupt()
    assert told(made.verdict()) == ("failed", "crashed")


def test_an_interrupt_keeps_the_budget_as_the_reason():
    made = trial(0.0)
    made.interrupt("budget-spent")
    made.interrupt()
    assert told(made.verdict()) == ("inconclusive", "budget-spent")


def test_strays_do_not_take_the_looks_of_an_effect_that_is_undecided():
    """Head is slower by 1 % in its usual time, and has fewer strays than base."""
    blocks = []
    for seed in range(12):
        made = quads(0.01, seed=seed, count=30, noise=0.02)
        times = [
            tuple(ns * (4 if side == "A" and at % 5 == 0 and place < 2 else 1) for place, (side, ns) in each)
            for at, each in enumerate(enumerate(zip(q.order, q.times_ns, strict=True)) for q in made)
        ]
        blocks.append(block(tuple(replace(q, times_ns=t) for q, t in zip(made, times, strict=True))))  # type: ignore[arg-type]
    found = fed(blocks[0], blocks[1])
    assert found.tail(found.rounds).p_faster < 0.002
    assert (found.judgement.status, found.confirming) == ("undecided", False)


@pytest.mark.parametrize("capped", [True, False])
def test_at_the_power_limit_cycles_may_confirm_alone(capped):
    """Both said slower at first; then the clock wanders so much that time cannot say it again so soon."""
    rng = random.Random(5)

    def wandering(seed: int) -> tuple[Quad, ...]:
        made = quads(0.01, cycles=0.01, seed=seed)
        return tuple(
            replace(quad, times_ns=tuple(ns * (1 + rng.gauss(0, 0.006)) for ns in quad.times_ns))  # type: ignore[arg-type]
            for quad in made
        )

    first = [block(quads(0.01, cycles=0.01, seed=seed), capped=capped) for seed in range(2)]
    made = fed(*first, *[block(wandering(seed), capped=capped) for seed in range(2, 4)])
    if not capped:
        assert (made.confirmed, made.settled) == (None, False)
        return
    verdict = made.verdict()
    assert told(verdict) == ("regression", "slower-in-cycles")
    assert "more cycles" in explained(verdict)
    assert verdict.cycles.effect == pytest.approx(0.01, abs=1e-3)
