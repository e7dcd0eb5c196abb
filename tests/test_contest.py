"""Every verdict that a case can have, from blocks and gates made by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pytest

from harness.attribution import Solo, SoloBlocks
from harness.contest import SPARE_PROCESSES, TAIL_QUADS, Contest, Noise, SideNote, settle
from harness.gates import CanaryLevel, Gated, GatePolicy, gate
from harness.judge import Policy
from harness.records import Launch, PairedBlock, Quad, Resources, Snapshot, Telemetry, Verdict
from harness.statistics.moderated import Prior
from harness.suite import Case
from harness.telemetry.scripted import STEADY

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
    made: tuple[Quad, ...], *, capped: bool = False, foreign: tuple[int, ...] = (), **card: object
) -> PairedBlock:
    """The quads with what the card said meanwhile; at its power limit half of the time if `capped`."""
    began, ended = made[0].started_ns - 1, made[-1].ended_ns + 1

    def at(moment_ns: int) -> Snapshot:
        spent = (moment_ns - began) // 2 if capped else 0
        throttled = {**(STEADY.throttle_ns or {}), "sw_power_cap": spent}
        return replace(STEADY, at_ns=moment_ns, throttle_ns=throttled, **card)  # type: ignore[arg-type]

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


def fresh(**given) -> Contest:
    return Contest("toy.plain[n=64]", CASE, Policy(), **given)


def add(contest: Contest, made: PairedBlock, usual: CanaryLevel | None = None) -> Gated:
    gated = gate(made, GatePolicy(), usual=usual)
    contest.add(made, gated)
    settle([contest], contest.policy)
    return gated


def fed(*blocks: PairedBlock, usual: CanaryLevel | None = None, **given) -> Contest:
    """A contest with a process for each block, as long as it wants more."""
    made = fresh(**given)
    for each in blocks:
        if made.settled:
            break
        add(made, each, usual)
    return made


def contest(*effects: float, again: Sequence[float] = (), capped: bool = False, **given) -> Contest:
    """A contest whose processes read these effects, and `again` these."""
    noise = given.pop("noise_of_device", Noise())
    seeds = (*range(len(effects)), *range(100, 100 + len(again)))
    blocks = [
        block(quads(effect, seed=seed, **given), capped=capped)
        for seed, effect in zip(seeds, (*effects, *again), strict=True)
    ]
    return fed(*blocks, noise=noise)


def told(found: Verdict) -> tuple[str, str]:
    return found.status, found.reason


@pytest.mark.parametrize(
    ("effect", "status", "reason"),
    [(0.02, "regression", "slower-in-time"), (-0.02, "improvement", "faster-in-time")],
)
def test_what_is_found_twice_is_so(effect, status, reason):
    made = contest(effect, effect, again=[effect, effect])
    verdict = made.verdict()
    assert told(verdict) == (status, reason)
    assert verdict.time is not None
    assert verdict.time.effect == pytest.approx(effect, abs=1e-3)
    assert verdict.time.low < effect < verdict.time.high
    assert (verdict.time.processes, verdict.time.quads) == (2, 50)
    word = "slower" if effect > 0 else "faster"
    assert verdict.message.startswith(f"{100 * abs(verdict.time.effect):.2f} % {word} (")
    assert "in 2 processes." in verdict.message
    assert verdict.complete
    assert verdict.case == "toy.plain[n=64]"
    assert (verdict.kernel, verdict.sizes, verdict.dtype) == ("plain", {"n": 64}, "float32")


@pytest.mark.parametrize("effect", [0.0, 0.001, -0.001])
def test_what_is_within_the_tolerance_for_sure_is_unchanged(effect):
    verdict = contest(effect, effect).verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert "within 1 % for sure" in verdict.message
    assert verdict.smallest_visible is not None
    assert 0.0025 < verdict.smallest_visible < 0.01


def test_what_looks_beyond_the_margin_waits_for_another_look():
    made = contest(0.0028, 0.0028)
    assert made.looks == 1
    assert not made.settled
    assert made.judgement is not None
    assert made.judgement.status == "undecided"


def test_processes_that_differ_by_more_than_is_known_are_too_noisy():
    made = contest(*([0.03, -0.03] * 4))
    verdict = made.verdict()
    assert (made.looks, made.settled) == (3, True)
    assert told(verdict) == ("inconclusive", "too-noisy")
    assert "processes differ by more than this device's history explains" in verdict.message
    assert verdict.complete


def test_an_effect_too_small_to_be_seen_is_too_noisy_and_says_what_would_show():
    noise = Noise(Prior(variance=0.02**2, df=30.0), Prior(variance=0.02**2, df=30.0))
    verdict = contest(*([0.004] * 8), noise_of_device=noise).verdict()
    assert told(verdict) == ("inconclusive", "too-noisy")
    assert verdict.smallest_visible is not None
    assert f"only a change beyond {100 * verdict.smallest_visible:.2f} % would show" in verdict.message


def test_what_fresh_processes_do_not_show_is_not_confirmed():
    verdict = contest(0.02, 0.02, again=[0.0, 0.0]).verdict()
    assert told(verdict) == ("inconclusive", "not-confirmed")
    assert "It looked slower, but fresh processes did not confirm it" in verdict.message
    # The effect told is the one of which nobody knew that it would be large.
    assert verdict.time is not None
    assert verdict.time.effect == pytest.approx(0.0, abs=1e-3)


def test_the_effect_is_that_of_the_confirming_processes_alone():
    verdict = contest(0.03, 0.03, again=[0.02, 0.021]).verdict()
    assert told(verdict) == ("regression", "slower-in-time")
    assert verdict.time is not None
    assert verdict.time.process_effects == pytest.approx((0.02, 0.021), abs=1e-3)
    assert verdict.time.effect == pytest.approx(0.0205, abs=1e-3)
    assert verdict.message.startswith("2.0")


def test_without_fresh_processes_it_is_not_confirmed():
    made = contest(0.02, 0.02)
    assert made.flagged
    verdict = made.verdict()
    assert told(verdict) == ("inconclusive", "not-confirmed")
    assert "too few quads" in verdict.message
    made.stopped_by = "budget-spent"
    verdict = made.verdict()
    assert told(verdict) == ("inconclusive", "budget-spent")
    assert "no time to measure it again" in verdict.message
    assert not verdict.complete


def test_a_flag_is_of_the_fresh_processes_alone():
    made = contest(0.02, 0.02)
    assert made.flag() is None
    add(made, block(quads(0.01, seed=9)), confirming=True)
    flag = made.flag()
    assert flag is not None
    assert (flag.direction, flag.leg.name) == ("slower", "time")
    assert [effect.value for effect in flag.leg.effects] == pytest.approx([math.log(1.01)], abs=5e-4)
    assert contest(0.0, 0.0).flag() is None


# Cycles, which count at the power limit.


def test_cycles_beside_the_time_are_told_and_are_no_leg_of_their_own():
    made = contest(0.0, 0.0, cycles=0.02)
    assert [leg.name for leg in made.legs(made.rounds)] == ["time"]
    verdict = made.verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert verdict.cycles is not None
    assert verdict.cycles.effect == pytest.approx(0.02, abs=1e-3)
    assert verdict.power_capped is False


@pytest.mark.parametrize(
    ("cycles", "status", "reason", "word"),
    [(0.02, "regression", "slower-in-cycles", "more"), (-0.02, "improvement", "faster-in-cycles", "fewer")],
)
def test_at_the_power_limit_cycles_count_too(cycles, status, reason, word):
    made = contest(0.0, 0.0, again=[0.0, 0.0], cycles=cycles, capped=True)
    assert [leg.name for leg in made.legs(made.rounds)] == ["time", "cycles"]
    verdict = made.verdict()
    assert told(verdict) == (status, reason)
    assert f"{word} cycles (" in verdict.message
    assert verdict.power_capped is True
    assert verdict.time is not None
    assert verdict.time.effect == pytest.approx(0.0, abs=1e-3)
    assert verdict.attribution == "code"


CLOCKS = [1000.0, 970.0, 940.0, 910.0, 1030.0]


def test_the_exponent_is_fitted_where_the_clock_moves():
    assert contest(0.0, 0.0, cycles=0.0, clocks=CLOCKS).exponent() == pytest.approx(1.0, abs=0.02)
    assert contest(0.0, 0.0, cycles=0.0).exponent() is None
    assert contest(0.0, 0.0).exponent() is None


def bound_by_memory(effect: float, cycles: float, seed: int) -> tuple[Quad, ...]:
    """Quads whose clock moves and whose times do not care: cycles follow the clock."""
    made = quads(effect, cycles=cycles, seed=seed)
    return tuple(
        replace(quad, sm_clock_mhz=(mhz, mhz, mhz, mhz))
        for quad, mhz in zip(made, (CLOCKS * len(made))[: len(made)], strict=True)
    )


def test_cycles_do_not_count_where_time_does_not_follow_the_clock():
    made = Contest("toy.plain[n=64]", CASE, Policy())
    for seed in (1, 2):
        add(made, block(bound_by_memory(0.0, 0.02, seed), capped=True))
    assert made.exponent() == pytest.approx(0.0, abs=0.02)
    assert [leg.name for leg in made.legs(made.rounds)] == ["time"]
    made.look()
    verdict = made.verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert verdict.clock_exponent == pytest.approx(0.0, abs=0.02)
    assert verdict.power_capped is True


def test_cycles_are_no_leg_where_a_process_has_none():
    made = Contest("toy.plain[n=64]", CASE, Policy())
    add(made, block(quads(0.0, cycles=0.02), capped=True))
    add(made, block(quads(0.0, seed=2), capped=True))
    assert [leg.name for leg in made.legs(made.rounds)] == ["time"]
    made.look()
    assert made.verdict().cycles is None


# What the gates threw out.


def test_a_case_whose_quads_were_dropped_is_invalid():
    made = Contest("toy.plain[n=64]", CASE, Policy())
    for seed in (1, 2):
        good = quads(0.02, cycles=0.02, seed=seed)
        moved = tuple(
            replace(quad, sm_clock_mhz=(900.0, 1000.0, 1000.0, 1000.0)) if number % 3 == 0 else quad
            for number, quad in enumerate(good)
        )
        assert add(made, block(moved)).invalid == "sm-clock"
    made.look()
    verdict = made.verdict()
    assert told(verdict) == ("invalid", "sm-clock")
    assert verdict.dropped == {"sm-clock": 18}
    assert verdict.message.startswith("18 of 50 quads had to be dropped (sm-clock)")
    assert "The SM clock moved" in verdict.message
    assert verdict.attribution == "clocks"
    assert verdict.time is not None
    assert verdict.time.quads == 32


def test_a_few_dropped_quads_are_counted_and_cost_nothing_else():
    made = Contest("toy.plain[n=64]", CASE, Policy())
    for seed in (1, 2):
        first, *others = quads(0.0, cycles=0.0, seed=seed)
        add(made, block((replace(first, sm_clock_mhz=(900.0, 1000.0, 1000.0, 1000.0)), *others)))
    made.look()
    verdict = made.verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert verdict.dropped == {"sm-clock": 2}
    assert verdict.time is not None
    assert verdict.time.quads == 48


def test_processes_with_too_few_quads_have_no_effect():
    made = Contest("toy.plain[n=64]", CASE, Policy())
    for seed in (1, 2):
        add(made, block(quads(0.0, count=4, seed=seed)))
    assert made.good() == 0
    assert made.rounds[0] == Round(made.rounds[0].block, made.rounds[0].gated, None, None)
    assert told(made.verdict()) == ("invalid", "too-few-quads")


def test_one_process_that_is_invalid_does_not_make_the_case_so():
    made = contest(0.0, 0.0, 0.0, 0.0)
    made.rounds += contest(0.0, 0.0, 0.0, 0.0).rounds
    bad = block(quads(0.0, count=4))
    assert add(made, bad).invalid
    assert told(made.verdict()) == ("unchanged", "within-tolerance")


def test_a_gate_that_has_nothing_to_go_by_is_told():
    made = Contest("toy.plain[n=64]", CASE, Policy())
    for seed in (1, 2):
        add(made, replace(block(quads(0.0, seed=seed)), telemetry=None))
    made.look()
    verdict = made.verdict()
    assert told(verdict) == ("unchanged", "within-tolerance")
    assert verdict.unavailable["temperature"] == "no telemetry"
    assert verdict.power_capped is None
    assert (verdict.temperature_c, verdict.power_w) == (None, None)


# What is told beside the verdict.


def test_arms_card_and_device_time_are_told():
    made = contest(0.02, 0.02, again=[0.02, 0.02], cycles=0.02)
    note = SideNote("0" * 64, GRANTED, Resources(registers=17))
    made.sides = {"base": note, "head": replace(note, source_sha256="1" * 64)}
    verdict = made.verdict()
    assert verdict.base is not None
    assert verdict.head is not None
    assert verdict.base.time_ns == pytest.approx(MS, rel=1e-3)
    assert verdict.head.time_ns == pytest.approx(1.02 * MS, rel=1e-3)
    assert (verdict.base.sm_clock_mhz, verdict.head.sm_clock_mhz) == (1000.0, 1000.0)
    assert (verdict.base.source_sha256, verdict.head.source_sha256) == ("0" * 64, "1" * 64)
    assert verdict.base.launch == GRANTED
    assert verdict.base.resources == Resources(registers=17)
    assert (verdict.temperature_c, verdict.power_w) == (50.0, 100.0)
    assert verdict.gpu_s == pytest.approx(4 * 0.25)
    assert verdict.attribution == "code"


def test_what_depends_on_a_slots_place_in_its_quad_shows():
    even, uneven = (contest(0.0, 0.0, place=place).verdict().order_p for place in (0.0, 0.004))
    assert even is not None
    assert uneven is not None
    assert even > 0.01
    assert uneven < 1e-6


def test_the_noise_floor_is_that_of_the_calibration():
    noise = Noise(calibrated=True, floor=0.0042)
    assert contest(0.0, 0.0, noise_of_device=noise).verdict().noise_floor == 0.0042
    assert contest(0.0, 0.0).verdict().noise_floor is None


def test_energy_is_that_of_each_side_alone():
    made = contest(0.02, 0.02, again=[0.02, 0.02], cycles=0.02)
    base = Solo(time_ns=MS, sm_clock_mhz=1000.0, power_w=300.0, energy_j=0.30, energy_error=0.03)
    head = Solo(time_ns=MS, sm_clock_mhz=950.0, power_w=300.0, energy_j=0.33, energy_error=0.04)
    made.solo = SoloBlocks(base=base, head=head)
    verdict = made.verdict()
    assert verdict.energy is not None
    assert verdict.energy.effect == pytest.approx(0.1)
    assert (verdict.energy.low, verdict.energy.high) == pytest.approx((0.05, 0.15))
    assert "POWER-COUPLED" in verdict.message
    made.solo = SoloBlocks(base=replace(base, energy_j=None), head=head)
    assert made.verdict().energy is None


# Endings.


@pytest.mark.parametrize(
    ("side", "message"), [("base", "At base: It broke."), ("head", "At head: It broke."), ("", "It broke.")]
)
def test_an_ending_is_the_verdict_whatever_was_measured(side, message):
    made = contest(0.02, 0.02)
    made.end("failed", "crashed", "It broke.", "evidence", side)
    verdict = made.verdict()
    assert told(verdict) == ("failed", "crashed")
    assert (verdict.message, verdict.log, verdict.side) == (message, "evidence", side)
    assert made.ended
    assert made.settled
    assert verdict.time is None


def test_identical_code_needs_no_process():
    made = Contest("toy.plain[n=64]", CASE, Policy())
    made.sides = {"base": SideNote("0" * 64), "head": SideNote("0" * 64)}
    made.end("identical", "same-code", "The same.")
    verdict = made.verdict()
    assert told(verdict) == ("identical", "same-code")
    assert verdict.base is not None
    assert verdict.base.source_sha256 == "0" * 64


def interrupted(*effects: float, again: Sequence[float] = ()) -> Verdict:
    made = Contest("toy.plain[n=64]", CASE, Policy())
    for seed, effect in enumerate(effects):
        add(made, block(quads(effect, seed=seed)))
        if made.good() == 2 and len(effects) > 2:
            made.look()
    for effect in again:
        made.look()
        add(made, block(quads(effect, seed=9)), confirming=True)
    made.interrupt()
    return made.verdict()


INTERRUPTED: Mapping[str, tuple[tuple[float, ...], tuple[float, ...], str, str, bool]] = {
    "nothing": ((), (), "inconclusive", "interrupted", False),
    "one process": ((0.0,), (), "inconclusive", "interrupted", False),
    "enough": ((0.0, 0.0), (), "unchanged", "within-tolerance", True),
    "between looks": ((0.0028, 0.0028, 0.0028), (), "inconclusive", "interrupted", False),
    "flagged": ((0.02, 0.02), (), "inconclusive", "interrupted", False),
    "half confirmed": ((0.02, 0.02), (0.02,), "inconclusive", "interrupted", False),
}


@pytest.mark.parametrize("what", INTERRUPTED)
def test_an_interrupt_judges_what_there_is(what):
    effects, again, status, reason, complete = INTERRUPTED[what]
    verdict = interrupted(*effects, again=again)
    assert told(verdict) == (status, reason)
    assert verdict.complete is complete
    assert verdict.message


def test_an_interrupt_leaves_what_is_settled_alone():
    made = contest(0.02, 0.02, again=[0.02, 0.02])
    before = made.verdict()
    made.interrupt()
    assert made.verdict() == before
    made = contest(0.0, 0.0)
    made.end("failed", "crashed", "It broke.")
    made.interrupt()
    assert told(made.verdict()) == ("failed", "crashed")


def test_an_interrupt_keeps_the_budget_as_the_reason():
    made = Contest("toy.plain[n=64]", CASE, Policy(), stopped_by="budget-spent")
    add(made, block(quads(0.0)))
    made.interrupt()
    assert told(made.verdict()) == ("inconclusive", "budget-spent")
