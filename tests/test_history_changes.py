"""Changes in a history: their place and size, and whether the code or the card caused them."""

from __future__ import annotations

import json
import math
import string
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from harness.history.changes import analyse, change_id, with_confirmed
from harness.history.reading import read_history, sentence
from harness.history.series import Epoch, Series, Shift
from harness.history.sources.our_records import Commits, read_commits
from harness.history.sources.unrecorded import UnrecordedCount
from harness.judgement.noise import Calibration, CaseNoise, write_calibration
from harness.records.types import Launch, Resources, Row
from harness.run.importing_asv import import_asv
from harness.system.git import Commit
from tests.histories import series_case
from tests.synthetic_history import (
    CARDS,
    DriverChange,
    History,
    Step,
    Suite,
    Throttle,
    truncate,
    write,
)

H200, A100 = CARDS[:2]
SUITE = Suite(kernels=("naive", "tiled", "wmma"), sizes=(1024, 2048))
COUNT, AT = 40, 20


@pytest.fixture(autouse=True)
def cache(own_cache):
    return own_cache


def noisy(level, noise=0.002, seed=0):
    """Figures about levels, one a commit; on them beside a step at AT, so that its place is beyond doubt."""
    level = np.asarray(level, dtype=np.float64)
    drawn = np.random.default_rng(seed).standard_normal(level.size)
    drawn[AT - 3 : AT + 3] = 0
    return level * np.exp(noise * drawn)


def step(before, after, at=AT, count=COUNT):
    return np.where(np.arange(count) < at, float(before), float(after))


def made(
    values, *, metric="gflops", unit="GFLOP/s", direction="higher", positions=None, epoch=None, **others
):
    """A series of a case; `others` are arrays beside it, `contexts` those of its epochs."""
    values = np.asarray(values, dtype=np.float64)
    epoch = np.zeros(values.size, np.int64) if epoch is None else np.asarray(epoch)
    contexts = others.pop("contexts", [{}] * (int(epoch.max()) + 1))
    starts = [int(np.flatnonzero(epoch == number)[0]) for number in range(len(contexts))]
    return Series(
        card="card",
        case=series_case(metric=metric, unit=unit, direction=direction),
        positions=np.arange(values.size) if positions is None else np.asarray(positions),
        values=values,
        failed=np.isnan(values),
        epoch=epoch,
        epochs=tuple(Epoch(start=at, context=each) for at, each in zip(starts, contexts, strict=True)),
        beside={name: np.asarray(figures, dtype=np.float64) for name, figures in others.items()},
    )


COMMITS = Commits(tuple(Commit(f"commit {number}", 0, "", "") for number in range(2000)))


def analysed(series, floor=None, evidence=lambda _series, _point: None):
    return analyse(series, floor, COMMITS, evidence)


def only(series, **others):
    [change] = analysed(series, **others).changes
    return change


# Show 1


FALL, RISE, THROTTLED, DRIVER = 30, 40, range(60, 75), 80
SEEDS = range(1, 11)


def planted(seed, **changes):
    """A fall on one card, a rise on both, a hot stretch on one, and another driver on the other."""
    return History(
        commits=120,
        cards=(H200, A100),
        suites=(SUITE,),
        tracks=("gflops", "time_ms", "sm_clock_mhz", "temperature_c", "power_w", "registers"),
        driver_in_params=True,
        noise=0.01,
        seed=seed,
        events=(
            Step(case="naive 1024", at=FALL, effect=-0.10, card=H200.name, registers=6),
            Step(case="tiled 2048", at=RISE, effect=0.10, registers=-6),
            Throttle(card=H200.name, start=THROTTLED.start, stop=THROTTLED.stop),
            DriverChange(card=A100.name, at=DRIVER, driver="590.44.01", effect=-0.05),
        ),
        **changes,
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return the histories of `planted` as they are read, by seed."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        for seed in SEEDS:
            written = write(planted(seed), tmp_path_factory.mktemp("shown"))
            found[seed] = read_history(written.results, written.repository)
    return found


def by_kind(history, kind):
    """Card, case and change."""
    return [
        (card.name, each.change.case, each)
        for card in history.cards
        for each in card.changes
        if each.change.kind == kind
    ]


def near(change, at):
    """Return True if a change names few commits, with the planted one among them."""
    return change.good < at <= change.bad and change.commits <= 4


def test_the_fall_is_the_open_regression_of_the_card_where_it_happened(shown):
    for seed, history in shown.items():
        hits = [
            each
            for card, case, each in by_kind(history, "regression")
            if (card, case) == (H200.machine, "matmul.naive@1024") and near(each.change, FALL)
        ]
        assert len(hits) == 1, seed
        [hit] = hits
        assert (hit.state, hit.is_open) == ("new", True)
        assert hit.change.attribution == "code"
        assert hit.change.effect == pytest.approx(-0.10, abs=0.015)
        assert hit.change.cycles_effect == pytest.approx(1 / 0.9 - 1, abs=0.02)
        assert hit.change.static == ("registers 80 → 86",)


def test_the_rise_is_an_improvement_on_both_cards(shown):
    for seed, history in shown.items():
        hits = {
            card: each
            for card, case, each in by_kind(history, "improvement")
            if case == "matmul.tiled@2048" and near(each.change, RISE)
        }
        assert set(hits) == {H200.machine, A100.machine}, seed
        assert all(each.change.effect == pytest.approx(0.10, abs=0.02) for each in hits.values())
        assert {(each.state, each.change.attribution) for each in hits.values()} == {("", "code")}


def test_the_hot_stretch_is_the_cards_doing_in_every_case(shown):
    for seed, history in shown.items():
        changes = [(card, each.change) for card, _, each in by_kind(history, "environment")]
        assert {card for card, _ in changes} == {H200.machine}, seed
        assert {change.attribution for _, change in changes} <= {"clocks", "thermal"}
        for at, slower in ((THROTTLED.start, True), (THROTTLED.stop, False)):
            there = [change for _, change in changes if near(change, at)]
            assert len(there) >= len(SUITE.cases) - 1, (seed, at)
            assert all((change.effect < 0) is slower for change in there)
            assert all(abs(change.cycles_effect) < 0.02 for change in there)
            assert all((change.clock_after < change.clock_before) is slower for change in there)


def test_the_driver_is_an_epoch_and_its_step_no_change(shown):
    for history in shown.values():
        for card in history.cards:
            own = DRIVER if card.name == A100.machine else None
            for each in card.analysed:
                starts = [epoch.start for epoch in each.series.epochs]
                assert starts == ([0] if own is None else [0, own])
                assert own not in [change.at for change in each.changes]
            if own is not None:
                epoch = card.analysed[0].series.epochs[1]
                assert epoch.changed == ("driver 580.159.04 → 590.44.01",)


def test_of_all_other_commits_hardly_any_is_blamed(shown):
    """Ten histories of twelve series: one false change by chance is allowed for, not two."""
    places = {FALL, RISE, THROTTLED.start, THROTTLED.stop}
    false = [
        (seed, card, each.change)
        for seed, history in shown.items()
        for kind in ("regression", "improvement", "environment")
        for card, _, each in by_kind(history, kind)
        if not any(near(each.change, at) for at in places)
    ]
    assert len(false) <= 1, false
    opened = Counter(seed for seed, history in shown.items() for _ in history.conclusion.open)
    assert sum(opened.values()) <= len(SEEDS) + 1


@pytest.mark.parametrize(
    ("metric", "better", "worse"), [("time_ms", -1 / 11, 1 / 9), ("registers", -6 / 136, 6 / 80)]
)
def test_of_times_and_registers_a_rise_is_the_regression(tmp_path, metric, better, worse):
    written = write(planted(3), tmp_path / "shown")
    history = read_history(written.results, written.repository, metric=metric)
    [(card, case, each)] = by_kind(history, "regression")
    assert (card, case) == (H200.machine, "matmul.naive@1024")
    assert near(each.change, FALL)
    assert each.change.effect == pytest.approx(worse, abs=0.02)
    assert each.change.attribution == "code"
    improved = by_kind(history, "improvement")
    assert {(card, case) for card, case, _ in improved} == {
        (H200.machine, "matmul.tiled@2048"),
        (A100.machine, "matmul.tiled@2048"),
    }
    assert all(each.change.effect == pytest.approx(better, abs=0.02) for *_, each in improved)


def test_with_records_a_power_cap_is_told_from_code(tmp_path):
    events = (
        Step(case="naive 1024", at=20, effect=-0.10),
        Throttle(card=None, start=40, stop=60, cause="power"),
    )
    history = History(commits=80, suites=(SUITE,), events=events, records=True)
    written = write(history, tmp_path / "power")
    found = read_history(written.results, written.repository)
    [(_, case, each)] = by_kind(found, "regression")
    assert (case, each.change.at) == ("matmul.naive@1024", 20)
    assert each.change.good == 19
    assert each.change.bad in (20, 21)
    capped = [each.change for _, _, each in by_kind(found, "environment")]
    assert {change.attribution for change in capped} == {"power"}
    assert {change.at for change in capped} == {40, 60}
    assert len(capped) == 2 * len(SUITE.cases)


# What did it


def told(before, after, noise=0.0, seed=3):
    return noisy(step(before, after), noise, seed)


CLOCKS, FLAT = {"sm_clock_mhz": told(1980, 1822)}, {"sm_clock_mhz": told(1980, 1980)}
SLOWER = step(100, 92)


@pytest.mark.parametrize(
    ("values", "beside", "attribution"),
    [
        pytest.param(SLOWER, {"sm_clock_mhz": told(1980, 1980, 0.001)}, "code", id="clock flat"),
        pytest.param(SLOWER, CLOCKS, "clocks", id="clock down"),
        pytest.param(SLOWER, CLOCKS | {"temperature_c": told(60, 62)}, "clocks", id="hardly warmer"),
        pytest.param(SLOWER, CLOCKS | {"temperature_c": told(60, 78)}, "thermal", id="warmer"),
        pytest.param(SLOWER, CLOCKS | {"temperature_c": told(78, 60)}, "clocks", id="cooler"),
        pytest.param(SLOWER, CLOCKS | {"power_w": told(500, 697)}, "power", id="at the power limit"),
        pytest.param(SLOWER, CLOCKS | {"power_w": told(697, 500)}, "clocks", id="away from the limit"),
        pytest.param(
            SLOWER, CLOCKS | {"power_w": told(500, 697), "temperature_c": told(60, 78)}, "thermal", id="both"
        ),
        pytest.param(step(92, 100), {"sm_clock_mhz": told(1822, 1980)}, "clocks", id="clock up again"),
        pytest.param(
            step(92, 100),
            {"sm_clock_mhz": told(1822, 1980), "temperature_c": told(78, 60)},
            "thermal",
            id="cooler again",
        ),
        pytest.param(
            step(92, 100),
            {"sm_clock_mhz": told(1822, 1980), "power_w": told(697, 500)},
            "power",
            id="power free again",
        ),
        pytest.param(step(100, 85), {"sm_clock_mhz": told(1980, 1900)}, "code", id="more than the clock"),
        pytest.param(SLOWER, {"sm_clock_mhz": told(1822, 1980)}, "code", id="slower at a higher clock"),
        pytest.param(step(100, 98.5), {"sm_clock_mhz": told(1980, 1976)}, "code", id="clock hardly moved"),
        pytest.param(SLOWER, {"temperature_c": told(60, 78)}, "unknown", id="no clock known"),
    ],
)
def test_the_clock_explains_a_change_where_cycles_stayed(values, beside, attribution):
    series = made(noisy(values), contexts=[{"power_limit_w": "700"}], **beside)
    change = only(series)
    assert change.attribution == attribution
    falls = values[-1] < values[0]
    kind = "regression" if falls else "improvement"
    assert change.kind == (kind if attribution in ("code", "unknown") else "environment")
    if "sm_clock_mhz" in beside:
        clocks = np.median(beside["sm_clock_mhz"][:AT]), np.median(beside["sm_clock_mhz"][AT:])
        expected = values[0] / values[-1] * clocks[-1] / clocks[0] - 1
        assert change.cycles_effect == pytest.approx(expected, abs=0.003)
        assert change.clock_before == pytest.approx(clocks[0], rel=0.002)
        assert change.clock_after == pytest.approx(clocks[-1], rel=0.002)
    else:
        assert change.cycles_effect is None


@pytest.mark.parametrize("clocks", [(1980, math.nan), (math.nan, 1980)])
def test_a_clock_that_is_known_on_one_side_alone_explains_nothing(clocks):
    change = only(made(noisy(SLOWER), sm_clock_mhz=step(*clocks)))
    assert (change.attribution, change.cycles_effect) == ("unknown", None)


def test_a_clock_that_moves_by_less_than_its_own_steps_explains_nothing():
    series = made(noisy(step(100, 99.55), 0.0003), sm_clock_mhz=told(1980, 1973))
    assert only(series, floor=0.003).attribution == "code"


@pytest.mark.parametrize("contexts", [[{}], [{"power_limit_w": "unknown"}]])
def test_without_a_power_limit_that_is_known_it_is_the_clocks(contexts):
    series = made(noisy(SLOWER), contexts=contexts, power_w=told(500, 697), **CLOCKS)
    assert only(series).attribution == "clocks"


def test_of_a_time_the_clock_explains_a_rise():
    series = made(noisy(step(92, 100)), metric="time_ms", unit="ms", direction="lower", **CLOCKS)
    change = only(series)
    assert (change.kind, change.attribution) == ("environment", "clocks")
    flat = made(
        noisy(step(92, 100)), metric="time_ms", unit="ms", direction="lower", sm_clock_mhz=told(1980, 1980)
    )
    assert (only(flat).kind, only(flat).attribution) == ("regression", "code")


def test_registers_have_no_cycles_and_are_the_codes_doing():
    series = made(step(40, 64), metric="registers", unit="registers", direction="lower", **CLOCKS)
    change = only(series)
    assert (change.kind, change.attribution, change.cycles_effect) == ("regression", "code", None)
    assert sentence(change, series.case) == "40 → 64 registers: the code."


def test_power_has_no_cycles_and_nobody_to_blame():
    series = made(noisy(step(400, 500)), metric="power_w", unit="W", direction="lower", **CLOCKS)
    change = only(series)
    assert (change.attribution, change.cycles_effect) == ("unknown", None)


def built(source_sha256=None, binary_sha256=None, launch=None, code_sha256=None):
    """A row of a record."""
    return Row(
        case="matmul.naive@1024",
        kernel="naive",
        sizes={"n": 1024},
        dtype="float32",
        status="measured",
        source_sha256=source_sha256,
        resources=Resources(binary_sha256=binary_sha256, code_sha256=code_sha256) if binary_sha256 else None,
        launch=launch,
    )


def evidence_of(before, after):
    return lambda _series, point: before if point < AT else after


A, B = "a" * 64, "b" * 64
SMALL, LARGE = Launch(grid=(64, 64, 1), block=(16, 16, 1)), Launch(grid=(32, 32, 1), block=(32, 32, 1))


@pytest.mark.parametrize(
    ("before", "after", "attribution"),
    [
        (built(binary_sha256=A), built(binary_sha256=A), "environment"),
        (built(binary_sha256=A), built(binary_sha256=B), "code"),
        (built(source_sha256=A, binary_sha256=A), None, "code"),
        (None, built(source_sha256=A, binary_sha256=A), "code"),
        (built(source_sha256=A), built(source_sha256=A), "environment"),
        (built(binary_sha256=A, launch=SMALL), built(binary_sha256=A, launch=SMALL), "environment"),
        (built(binary_sha256=A, launch=SMALL), built(binary_sha256=A, launch=LARGE), "code"),
        (built(source_sha256=A), built(source_sha256=B), "code"),
        (
            built(source_sha256=A, binary_sha256=A),
            built(source_sha256=A, binary_sha256=B),
            "code",
        ),
        (
            built(source_sha256=A, binary_sha256=A),
            built(source_sha256=B, binary_sha256=A),
            "environment",
        ),
        (built(binary_sha256=A, code_sha256=A), built(binary_sha256=B, code_sha256=A), "environment"),
        (built(binary_sha256=A, code_sha256=A), built(binary_sha256=B, code_sha256=B), "code"),
        (built(), built(), "code"),
        (built(source_sha256=A, binary_sha256=A), built(source_sha256=A), "environment"),
    ],
)
def test_the_very_same_build_on_both_sides_clears_the_code(before, after, attribution):
    series = made(noisy(SLOWER), sm_clock_mhz=told(1980, 1980))
    change = only(series, evidence=evidence_of(before, after))
    assert change.attribution == attribution
    assert change.kind == ("environment" if attribution == "environment" else "regression")


def test_the_same_build_clears_the_code_where_no_clock_is_known_either():
    same = built(binary_sha256=A)
    assert only(made(noisy(SLOWER)), evidence=evidence_of(same, same)).attribution == "environment"


def test_what_the_clock_explains_stays_the_clocks_whatever_was_built():
    change = only(
        made(noisy(SLOWER), **CLOCKS),
        evidence=evidence_of(built(binary_sha256=A), built(binary_sha256=A)),
    )
    assert change.attribution == "clocks"


def same_binary(path):
    """A record whose kernels were all built to one binary, whatever their sources say."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        if resources := line.get("row", {}).get("resources"):
            resources["binary_sha256"] = A
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def recorded(root):
    """Records of a case that became slower at commit 25."""
    case = Suite(kernels=("naive",), sizes=(1024,))
    slower = Step(case=None, at=25, effect=-0.1)
    return write(History(commits=50, suites=(case,), events=(slower,), noise=0.003, records=True), root)


@pytest.mark.parametrize("same", [False, True])
def test_records_tell_whether_the_same_binary_was_timed(tmp_path, same):
    """A comment changes a source and no binary."""
    written = recorded(tmp_path)
    if same:
        for path in written.records(H200):
            same_binary(path)
    found = read_history(written.results, written.repository)
    [change] = [each.change for card in found.cards for each in card.changes]
    assert (change.kind, change.attribution) == (
        ("environment", "environment") if same else ("regression", "code")
    )


def test_a_damaged_record_clears_nobody_and_import_asv_brings_its_change_back(tmp_path):
    """Half a record has no row left of its only case, and asv's file has it."""
    written = recorded(tmp_path)
    commits = read_commits(written.repository)
    for path in written.records(H200)[1:]:
        same_binary(path)
        truncate(path)
    found = read_history(written.results, written.repository)
    assert not [*found.conclusion.open]
    [card] = found.cards
    assert card.unrecorded == UnrecordedCount(results=49, hidden=49, failed=0)
    assert [(len(one.records), one.left_out) for one in import_asv(written.results, commits)] == [(49, 0)]
    found = read_history(written.results, written.repository)
    [each] = found.conclusion.open
    assert each.change.attribution == "code"
    [card] = found.cards
    assert card.unrecorded.results == 0


def test_a_cards_calibration_says_what_is_the_smallest_change_of_a_case(tmp_path):
    history = History(
        commits=60,
        suites=(Suite(kernels=("naive", "tiled"), sizes=(1024,)),),
        tracks=("gflops",),
        events=(Step(case=None, at=30, effect=-0.03),),
        noise=0.002,
    )
    written = write(history, tmp_path / "calibrated")
    noise = CaseNoise(time=(), smallest_visible=0.05)
    calibration = Calibration(
        measured_at="2026-01-01T00:00:00+00:00",
        harness_version="0",
        uuid=None,
        driver="580",
        cases={"matmul.naive[m=1024,n=1024,k=1024]": noise, "odd": noise},
    )
    path = write_calibration(written.results / H200.machine, calibration)

    def read(**how):
        found = read_history(written.results, written.repository, **how)
        [card] = found.cards
        floors = {one.series.case.name: one.floor for one in card.analysed}
        return floors, {each.change.case for each in found.conclusion.open}, card.problems

    both = {"matmul.naive@1024", "matmul.tiled@1024"}
    floors = {"matmul.naive@1024": 0.05, "matmul.tiled@1024": 0.01}
    assert read() == (floors, {"matmul.tiled@1024"}, ())
    assert read(smallest=0.02) == (dict.fromkeys(both, 0.02), both, ())
    path.write_text("{")
    floors, cases, [problem] = read()
    assert (floors, cases) == (dict.fromkeys(both, 0.01), both)
    assert "is no calibration" in problem


def test_what_changed_in_the_build_is_told():
    series = made(noisy(SLOWER), registers=step(40, 64), local_bytes=step(0, 128), sm_clock_mhz=told(1, 1))
    assert only(series).static == ("registers 40 → 64", "bytes of local memory 0 → 128")
    assert only(made(noisy(SLOWER), registers=step(40, 40))).static == ()
    assert only(made(noisy(SLOWER), registers=np.full(COUNT, np.nan))).static == ()


def test_what_of_the_measuring_changed_right_there_is_told_and_of_a_slide_nothing():
    shifts = tuple(Shift(at=at, key="number", before="1", after="10") for at in (5, AT, AT + 10))
    series = replace(made(noisy(SLOWER)), shifts=shifts)
    assert only(series).shifts == (shifts[1],)
    slide = replace(made(noisy(np.linspace(100, 85, 120))), shifts=shifts)
    assert only(slide).shifts == ()


def test_another_step_nearby_does_not_colour_what_stood_beside():
    """A hot stretch before the change: the clock on both sides of the change itself is the same."""
    level = np.repeat([100.0, 92.0, 100.0, 90.0], 15)
    clock = np.repeat([1980.0, 1822.0, 1980.0, 1980.0], 15)
    first, second, third = analysed(made(noisy(level), sm_clock_mhz=clock)).changes
    assert [each.attribution for each in (first, second, third)] == ["clocks", "clocks", "code"]
    assert (third.kind, third.at) == ("regression", 45)


# Where


def test_the_commit_is_exact_where_every_one_was_measured():
    change = only(made(noisy(SLOWER)))
    assert (change.at, change.good, change.bad, change.commits) == (AT, AT - 1, AT, 1)


def test_it_is_a_range_where_commits_were_not_measured():
    positions = np.concatenate([np.arange(AT), np.arange(AT, COUNT) + 7])
    change = only(made(noisy(SLOWER), positions=positions))
    assert (change.good, change.bad, change.commits) == (AT - 1, AT + 7, 8)


def test_where_the_kernel_failed_in_between_nobody_knows():
    values = noisy(SLOWER)
    values[AT - 2 : AT + 3] = np.nan
    change = only(made(values))
    assert (change.good, change.bad) == (AT - 3, AT + 3)


def test_a_stray_figure_at_the_step_is_on_neither_side():
    values = noisy(SLOWER)
    values[AT - 1] = 150.0
    found = analysed(made(values))
    [change] = found.changes
    assert found.outliers == (AT - 1,)
    assert (change.good, change.bad) == (AT - 2, AT)


def test_the_figures_around_the_change_are_those_of_its_levels():
    change = only(made(noisy(SLOWER)))
    assert change.before == pytest.approx(100, rel=0.005)
    assert change.after == pytest.approx(92, rel=0.005)
    assert change.effect == pytest.approx(change.after / change.before - 1)
    assert change.low < change.effect < change.high < 0
    assert 0 <= change.p_value < 0.01


def briefly(level):
    """Four figures at another level than the rest, and none for a while when it was back."""
    values = noisy(np.full(60, 100.0))
    values[30:34] *= level / 100
    values[34] = math.nan
    return values


@pytest.mark.parametrize(
    ("level", "others"),
    [(80, {}), (125, {"metric": "time_ms", "unit": "ms", "direction": "lower"})],
    ids=["less of a rate", "more of a time"],
)
def test_a_brief_stretch_that_was_worse_is_two_changes(level, others):
    found = analysed(made(briefly(level), **others))
    worse, better = found.changes
    effect = level / 100 - 1
    assert [(each.kind, each.at, each.good, each.bad) for each in found.changes] == [
        ("regression", 30, 29, 30),
        ("improvement", 35, 33, 35),
    ]
    assert (worse.effect, better.effect) == (
        pytest.approx(effect, abs=0.005),
        pytest.approx(1 / (1 + effect) - 1, abs=0.005),
    )
    assert (worse.before, worse.after) == (better.after, better.before)
    assert worse.low < worse.effect < worse.high
    assert (better.low, better.high) == (
        pytest.approx(1 / (1 + worse.high) - 1),
        pytest.approx(1 / (1 + worse.low) - 1),
    )
    assert [(one.start, one.stop) for one in found.levels] == [(0, 30), (30, 35), (35, 60)]
    assert found.levels[1].level == pytest.approx(level, rel=0.005)
    assert found.outliers == ()


def test_a_brief_stretch_that_ends_in_a_level_that_stays_has_one_change_at_its_end():
    """Its end and the step of that level are one place, and so would have one id."""
    values = noisy(np.array([100.0] * 30 + [61.0] * 4 + [83.0] * 30))
    found = analysed(made(values))
    assert [each.at for each in found.changes] == [30, 34]


def test_newest_figures_that_another_card_confirms_are_judged():
    found = analysed(made(noisy(np.array([100.0] * 40 + [90.0]))))
    assert found.unjudged is not None
    candidate = replace(found.unjudged, p_value=0.05, low=-0.12, high=-0.08)
    judged = with_confirmed(replace(found, candidates=(candidate,)), {candidate.id})
    assert (judged.changes, judged.unjudged) == ((candidate,), None)


def test_a_brief_stretch_that_was_better_is_set_aside():
    found = analysed(made(briefly(125)))
    assert (found.changes, found.outliers) == ((), (30, 31, 32, 33))
    assert [(one.start, one.stop) for one in found.levels] == [(0, 60)]


def test_a_slide_is_one_change_from_where_it_was_best_to_the_newest_figure():
    found = analysed(made(noisy(np.linspace(100, 85, 120))))
    [slide] = found.changes
    assert (slide.kind, slide.attribution, slide.last, slide.bad) == ("drift", "unknown", 119, 119)
    assert (slide.first, slide.good) == (slide.at + 1, slide.at)
    assert slide.at < 12
    assert slide.id == change_id("card", "matmul.naive@1024", "gflops", "commit 0")
    assert slide.effect == pytest.approx(-0.137, abs=0.005)
    assert slide.low < slide.effect < slide.high < -0.12
    assert slide.after == pytest.approx(slide.before * (1 + slide.effect))
    assert slide.before == pytest.approx(100, rel=0.015)
    better = analysed(made(noisy(np.linspace(85, 100, 120)))).changes
    assert {each.kind for each in better} <= {"improvement"}


@pytest.mark.parametrize("over", [60, 100, 120])
def test_the_newest_figures_of_a_slide_are_no_question_beside_it(over):
    for seed in range(5):
        values = noisy(np.geomspace(100, 70, over), seed=seed)
        found = analysed(made(values))
        assert [change.kind for change in found.changes] == ["drift"]
        assert found.unjudged is None
        fallen = analysed(made(np.append(values, values[-1] * 0.93)))
        assert fallen.unjudged is not None
        assert fallen.unjudged.last == over


def test_a_step_before_a_slide_is_a_change_of_its_own():
    values = noisy(np.concatenate([np.full(40, 130.0), np.full(60, 100.0), np.linspace(100, 85, 120)]), 0.005)
    fall, slide = analysed(made(values)).changes
    assert (fall.kind, fall.bad, slide.kind, slide.bad) == ("regression", 40, "drift", 219)
    assert fall.effect == pytest.approx(100 / 130 - 1, abs=0.01)
    assert slide.before == pytest.approx(np.median(values[slide.at - 6 : slide.at + 7]))


# What is none


@pytest.mark.parametrize("metric", ["sm_clock_mhz", "temperature_c"])
def test_what_has_no_direction_has_no_changes(metric):
    series = made(noisy(SLOWER), metric=metric, unit="MHz", direction="none", **CLOCKS)
    found = analysed(series)
    assert (found.changes, found.levels, found.outliers) == ((), (), ())
    assert math.isnan(found.noise)


def test_a_step_from_one_epoch_to_the_next_is_no_change():
    series = made(noisy(SLOWER), epoch=[0] * AT + [1] * (COUNT - AT))
    found = analysed(series)
    assert found.changes == ()
    assert [level.start for level in found.levels] == [0, AT]
    assert found.levels[1].level == pytest.approx(92, rel=0.005)


def test_epochs_that_take_turns_are_searched_one_by_one():
    epoch = np.arange(80) % 2
    level = np.where(epoch == 0, 100.0, 80.0)
    assert analysed(made(noisy(level), epoch=epoch)).changes == ()
    level[(epoch == 1) & (np.arange(80) >= 41)] *= 0.9
    change = only(made(noisy(level), epoch=epoch))
    assert (change.epoch, change.at) == (1, 41)
    assert change.good < 41 <= change.bad
    assert (change.good % 2, change.bad % 2) == (1, 1)
    assert change.before == pytest.approx(80, rel=0.01)


def test_changes_of_several_epochs_are_in_order():
    level = np.repeat([100.0, 90.0, 150.0, 165.0], 20)
    found = analysed(made(noisy(level), epoch=np.repeat([0, 1], 40)))
    assert [(each.at, each.epoch, each.kind) for each in found.changes] == [
        (20, 0, "regression"),
        (60, 1, "improvement"),
    ]
    assert [level.start for level in found.levels] == [0, 20, 40, 60]


def test_what_only_failed_has_no_changes():
    found = analysed(made(np.full(COUNT, np.nan)))
    assert found.changes == ()
    assert math.isnan(found.noise)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_figures_have_no_changes(count):
    assert analysed(made(noisy(np.full(count, 100.0)))).changes == ()


def test_a_change_smaller_than_the_floor_is_none():
    series = made(noisy(step(100, 97), 0.001))
    assert only(series).effect == pytest.approx(-0.03, abs=0.005)
    found = analysed(series, floor=0.05)
    assert (found.changes, found.floor) == ((), 0.05)
    assert analysed(series).floor == 0.01
    assert analysed(made(noisy(step(100, 99.4), 0.0005))).changes == ()
    assert len(analysed(made(noisy(step(100, 99.4), 0.0005)), floor=0.003).changes) == 1


# The rest


def test_the_noise_is_that_of_the_newest_epoch_with_enough_figures():
    values = np.concatenate(
        [noisy([100] * 60, 0.002, 1), noisy([100] * 60, 0.02, 2), noisy([100] * 4, 0.3, 3)]
    )
    found = analysed(made(values, epoch=np.repeat([0, 1, 2], [60, 60, 4])))
    assert found.noise == pytest.approx(0.02, rel=0.4)


def test_where_every_epoch_is_short_the_noise_is_that_of_the_longest():
    values = np.concatenate([noisy([100] * 9, 0.02, 5), noisy([100] * 2, 0.5, 3)])
    found = analysed(made(values, epoch=np.repeat([0, 1], [9, 2])))
    assert 0.005 < found.noise < 0.05


@pytest.mark.parametrize("count", [1, 2])
def test_of_too_few_figures_no_noise_is_known(count):
    assert math.isnan(analysed(made([100.0] * count)).noise)


def test_points_measured_at_a_lower_clock_are_set_apart():
    clock = np.full(COUNT, 1980.0)
    clock[[5, 6]] = 1850.0
    clock[30] = 1975.0
    clock[31] = np.nan
    assert analysed(made(noisy([100] * COUNT), sm_clock_mhz=clock)).clocked == (5, 6)
    assert analysed(made(noisy([100] * COUNT))).clocked == ()


def test_what_clock_is_usual_is_a_matter_of_the_epoch():
    series = made(noisy([100] * COUNT), epoch=[0] * AT + [1] * (COUNT - AT), sm_clock_mhz=step(1980, 1500))
    assert analysed(series).clocked == ()


def test_an_id_is_that_of_card_case_metric_and_commit():
    args = ("card", "matmul.naive@1024", "gflops", "c" * 40)
    known = change_id(*args)
    assert len(known) == 10
    assert set(known) <= set(string.hexdigits.lower())
    assert change_id(*args) == known
    for place in range(4):
        others = [*args]
        others[place] = "other"
        assert change_id(others[0], others[1], others[2], others[3]) != known


def test_the_id_of_a_change_stays_when_more_commits_come():
    values = noisy(np.where(np.arange(90) < AT, 100.0, 90.0))
    ids = {only(made(values[:count])).id for count in (35, 50, 90)}
    assert ids == {change_id("card", "matmul.naive@1024", "gflops", f"commit {AT}")}


# In words


@pytest.mark.parametrize(
    ("values", "others", "beside", "words"),
    [
        (
            SLOWER,
            {},
            FLAT,
            ("8.69 % slower", "cycles changed by +8.69 %: the code."),
        ),
        (step(92, 100), {}, FLAT, ("8.00 % faster", "cycles changed by -8.00 %")),
        (SLOWER, {}, CLOCKS, ("slower", "the SM clock moved and cycles did not: the card, not the code.")),
        (
            SLOWER,
            {},
            CLOCKS | {"temperature_c": told(60, 78)},
            ("slower", "the SM clock moved with the temperature and cycles did not"),
        ),
        (SLOWER, {}, {}, ("slower", "cycles are not known")),
        (
            step(92, 100),
            {"metric": "time_ms", "unit": "ms", "direction": "lower"},
            {"sm_clock_mhz": told(1980, 1980)},
            ("8.70 % slower", "the code."),
        ),
        (
            SLOWER,
            {"metric": "power_w", "unit": "W", "direction": "lower"},
            {},
            ("8.00 % less", "cycles are not known"),
        ),
    ],
)
def test_a_change_in_words(values, others, beside, words):
    series = made(noisy(values, 0.0001), **others, **beside)
    said = sentence(only(series), series.case)
    for word in words:
        assert word in said


def test_a_change_in_words_tells_the_build_too():
    series = made(noisy(SLOWER), sm_clock_mhz=told(1980, 1980), registers=step(40, 64))
    assert sentence(only(series), series.case).endswith(": the code. Registers 40 → 64.")


def test_levels_of_newest_figures_lie_among_their_points():
    values = np.append(noisy(np.full(40, 10.0)), [4.0, 0.4])
    found = analysed(made(values)).unjudged
    assert found
    assert (found.before, found.after) == (pytest.approx(10, rel=0.02), pytest.approx(2.2))
    assert found.effect == pytest.approx(found.after / found.before - 1)


def test_newest_figures_among_zeros_are_of_the_others():
    """Tracks of other projects have zeros, and a zero has no ratio."""
    noise = np.random.default_rng(3).normal(1, 0.01, COUNT)
    values = np.concatenate([100 * noise, [50.0, 0.0, 0.0]])
    found = analysed(made(values)).unjudged
    assert found
    assert (found.before, found.after) == (pytest.approx(100, rel=0.01), 50)
