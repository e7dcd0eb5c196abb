"""Calibrations count, store and report verdicts: on the null device, and made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from harness.device.backends.null import devices
from harness.errors import StoreError
from harness.judgement.case_trial import NoisePriors, bare_verdict
from harness.judgement.noise import (
    ELSEWHERE,
    FILE,
    Calibration,
    CaseNoise,
    PlantedRate,
    noise_apart,
    noise_of_card,
    noise_of_case,
    read_calibration,
    write_calibration,
)
from harness.judgement.statistics.moderated import DEFAULT_PRIOR, Prior
from harness.judgement.statistics.paired import ProcessEffect
from harness.measure import protocol
from harness.records.types import Effect, Verdict
from harness.report.terminal.calibrations import as_json, print_calibration
from harness.run.calibrate import (
    MOST_EFFECTS,
    CalibrateSettings,
    CalibrationResult,
    Planting,
    _newest,
    _with_planted,
    calibrate,
)
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.suite.planning import plan
from harness.suite.problem import Case
from tests.support import write_null_script
from tests.test_compare import MS, QUICK, Watching, breaks, interrupting, ladder, takes

NULL = devices()[0]
BLANK = Calibration(measured_at="2026-01-02T03:04:05+00:00", harness_version="1", uuid=None, driver="1")


def noise_of(calibration, case, device):
    return noise_of_case(noise_of_card(calibration, device), calibration, case)


def effect(value: float = 0.001, standard_error: float = 2e-4) -> ProcessEffect:
    return ProcessEffect(value, standard_error, 14, 25)


def verdict(status: Any, case: str = "toy.plain[n=64]", time: float | None = None) -> Verdict:
    def found(effect: float) -> Effect:
        low, high = effect - 0.001, effect + 0.001
        return Effect(
            effect=effect, low=low, high=high, processes=2, quads=50, process_effects=(effect, effect)
        )

    bare = bare_verdict(case, Case("toy", "plain", {"n": 64}), status, "because", "It is so.")
    return replace(bare, time=None if time is None else found(time), smallest_visible=0.005)


# The file.

KNOWN = replace(
    BLANK,
    uuid="GPU-1",
    cases={
        "toy.plain[n=64]": CaseNoise(
            time=(effect(0.001), effect(-0.002)),
            cycles=(effect(0.0001),),
            smallest_visible=0.0047,
            clock_exponent=0.98,
            sm_clock_mhz=1980.0,
            power_capped=False,
        )
    },
    verdicts=40,
    false_alarms=1,
    planted={"0.5": PlantedRate(planted=4, found=3), "10": PlantedRate(planted=4, found=4)},
)


def test_what_is_written_is_read(tmp_path):
    path = write_calibration(tmp_path, KNOWN)
    assert path == tmp_path / FILE
    assert path.suffix != ".json"
    assert read_calibration(tmp_path) == KNOWN
    assert json.loads(path.read_bytes())["schema_version"] == 1
    write_calibration(tmp_path, BLANK)
    assert read_calibration(tmp_path) == BLANK
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_no_file_is_no_calibration(tmp_path):
    assert read_calibration(tmp_path) is None
    assert read_calibration(tmp_path / "nowhere") is None
    (tmp_path / "file").write_text("")
    assert read_calibration(tmp_path / "file") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"schema_version": "one"}', b"[" * 100_000, b'{"measured_at": 1}'],
    ids=["empty", "truncated", "list", "not text", "wrong type", "deep", "number"],
)
def test_a_damaged_file_says_what_to_do(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(
        StoreError, match=r"is no calibration \(.*Delete it and run 'harness calibrate'"
    ) as caught:
        read_calibration(tmp_path)
    assert str(tmp_path / FILE) in caught.value.message


@pytest.mark.parametrize(
    "over", [{"value": 1e308}, {"standard_error": -1.0}, {"standard_error": 1e200}, {"df": 0}]
)
def test_figures_that_no_device_has_shown_say_what_to_do(tmp_path, over):
    effect = replace(ProcessEffect(0.0, 1e-3, 20, 40), **over)
    noise = CaseNoise(time=(effect, effect))
    cases = {"toy.one[n=64]": noise}
    made = Calibration(measured_at="", harness_version="", uuid=None, driver="", cases=cases)
    write_calibration(tmp_path, made)
    with pytest.raises(StoreError, match=r"no device has shown: .* Delete it and run 'harness calibrate'\.$"):
        read_calibration(tmp_path)


def test_a_newer_file_is_refused_whatever_more_it_has(tmp_path):
    known = json.loads(msgspec.json.encode(KNOWN))
    (tmp_path / FILE).write_text(json.dumps({**known, "schema_version": 2, "more": 1}))
    with pytest.raises(StoreError, match=r"has schema version 2; this harness reads up to 1\. Upgrade"):
        read_calibration(tmp_path)


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "results").write_text("in the way")
    with pytest.raises(StoreError, match="Choose another folder with --results"):
        write_calibration(tmp_path / "results", KNOWN)


# What it means for a verdict.


def test_without_a_calibration_noise_is_assumed():
    gpu, cpu = (noise_of(None, "any", replace(NULL, kind=kind)) for kind in ("gpu", "cpu"))
    assert (gpu.time, gpu.cycles, gpu.calibrated, gpu.floor) == (DEFAULT_PRIOR, DEFAULT_PRIOR, False, None)
    assert cpu.time == ELSEWHERE


def test_a_calibration_tells_how_processes_differ_and_the_floor_of_its_cases():
    cases = {
        f"toy.k{number}[n=64]": CaseNoise(
            time=tuple(effect(0.004 * (-1) ** each, 1e-4) for each in range(8)), smallest_visible=0.02
        )
        for number in range(4)
    }
    known = replace(KNOWN, cases=cases)
    found = noise_of(known, "toy.k1[n=64]", NULL)
    assert found.calibrated
    assert found.floor == 0.02
    assert math.sqrt(found.time.variance) == pytest.approx(0.004, rel=0.5)
    assert found.cycles == DEFAULT_PRIOR
    assert noise_of(known, "toy.other[n=64]", NULL).floor is None


def test_one_process_of_a_case_tells_nothing():
    known = replace(KNOWN, cases={"toy.plain[n=64]": CaseNoise(time=(effect(),))})
    found = noise_of(known, "toy.plain[n=64]", NULL)
    assert (found.time, found.calibrated) == (DEFAULT_PRIOR, False)


# What is counted and kept.


def test_the_newest_effects_are_kept():
    earlier = [effect(number / 1e4) for number in range(MOST_EFFECTS)]
    now = [effect(1.0), effect(math.nan), effect(2.0)]
    kept = _newest(earlier, now)
    assert len(kept) == MOST_EFFECTS
    assert [each.value for each in kept[-2:]] == [1.0, 2.0]
    assert kept[0] == earlier[2]
    assert _newest((), now[:1]) == (now[0],)


def test_slowdowns_are_counted_by_size_and_only_where_there_was_a_verdict():
    statuses = ("regression", "unchanged", "inconclusive", "failed", "invalid", "regression")
    levels = (0.005, 0.005, 0.01, 0.01, 0.02, 0.025)
    known = _with_planted(BLANK, levels, [verdict(status) for status in statuses])
    assert known.planted == {
        "0.5": PlantedRate(planted=2, found=1),
        "1": PlantedRate(planted=1, found=0),
        "2.5": PlantedRate(planted=1, found=1),
    }
    again = _with_planted(known, (0.01,), [verdict("regression")])
    assert again.planted["1"] == PlantedRate(planted=2, found=1)
    assert again.planted["0.5"] == known.planted["0.5"]


class Bench:
    """A suite, the device, and calibrations of it."""

    def __init__(self, folder, texts) -> None:
        self.folder, self.loaded = folder, ladder(folder / "tiny", texts)
        self.watching = Watching()

    @property
    def records(self):
        return self.folder / "results" / "null"

    def calibrate(self, prepare=None, *, save=True, keep=True, **settings: Any) -> CalibrationResult:
        chosen = CompareSettings(
            command="calibrate",
            device="null",
            pair=QUICK,
            measure_identical=True,
            solo_s=0.0,
            twins=False,
            timeout_s=20.0,
            results=self.folder / "results" if keep else None,
            save=save,
        )
        with Comparing(self.loaded, self.loaded, chosen, self.watching) as comparing:
            if prepare:
                prepare(comparing)
            return calibrate(comparing, plan(self.loaded.suite), CalibrateSettings(**settings))


@pytest.fixture
def bench(tmp_path, monkeypatch):
    script = write_null_script(tmp_path / "script.json", {"noise": {"kind": "quiet", "seed": 1}})
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", script)
    return Bench(tmp_path, {"one": takes(MS), "two": takes(2 * MS)})


WIDE = NoisePriors(Prior(variance=0.003**2, df=5.0), Prior(variance=0.003**2, df=5.0))
"""Noise of a card whose processes differ so much that two of them cannot prove `unchanged`."""
ONE, TWO = "tiny.one[n=32]", "tiny.two[n=32]"


def test_code_against_itself_and_with_slowdowns_planted(bench):
    result = bench.calibrate(trials=1, planted_trials=1, levels=(0.01, 0.03))
    known = result.calibration
    assert [(v.case, v.status) for v in result.same] == [(ONE, "unchanged"), (TWO, "unchanged")]
    assert (known.verdicts, known.false_alarms) == (2, 0)
    assert set(known.cases) == {ONE, TWO}
    for noise in known.cases.values():
        assert len(noise.time) == len(noise.cycles) >= 2
        assert noise.smallest_visible
        assert noise.sm_clock_mhz == pytest.approx(1980)
        assert noise.power_capped is False
    assert [(each.case, each.level, each.verdict.status) for each in result.planted] == [
        (case, level, "regression") for case in (ONE, TWO) for level in (0.01, 0.03)
    ]
    for each in result.planted:
        assert each.verdict.time is not None
        assert each.verdict.time.effect == pytest.approx(each.level, rel=0.3)  # it is planted by measuring
        assert each.verdict.case == f"{each.case} +{100 * each.level:g} %"
    assert known.planted == {level: PlantedRate(planted=2, found=2) for level in ("1", "3")}
    assert result.path == bench.records / FILE
    assert read_calibration(bench.records) == known
    assert len(list(bench.records.glob("*.jsonl"))) == 2
    assert not result.interrupted


def test_a_calibration_verifies_in_full_once(bench):
    """Later trials and slowdowns planted are held to what the first trial's outputs were."""
    asked: list[protocol.Compare] = []

    def prepare(comparing):
        ask = comparing.ask

        def listen(request, timeout_s):
            if isinstance(request, protocol.Compare):
                asked.append(request)
            return ask(request, timeout_s)

        comparing.ask = listen

    result = bench.calibrate(prepare, trials=2, planted_trials=1, levels=(0.03,))
    assert [v.status for v in result.same] == ["unchanged"] * 4
    assert [each.verdict.status for each in result.planted] == ["regression"] * 2
    assert {request.pair.id for request in asked[:2]} == {ONE, TWO}
    assert [set(request.verified) for request in asked] == [set()] * 2 + [{"base", "head"}] * (len(asked) - 2)


def test_later_calibrations_add_to_earlier_ones(bench):
    first = bench.calibrate(trials=1, planted_trials=0).calibration
    second = bench.calibrate(trials=2, planted_trials=0)
    now = second.calibration
    assert (first.verdicts, now.verdicts) == (2, 6)
    assert len(second.same) == 4
    for case, noise in first.cases.items():
        assert now.cases[case].time[: len(noise.time)] == noise.time
        assert len(now.cases[case].time) >= len(noise.time) + 4
    assert read_calibration(bench.records) == now


def test_an_interrupt_keeps_the_finished_trials(bench):
    result = bench.calibrate(interrupting(3), trials=4, planted_trials=0)
    assert result.interrupted
    assert [v.status for v in result.same] == ["unchanged"] * 2 + ["inconclusive"] * 2
    known = read_calibration(bench.records)
    assert known == result.calibration
    assert known is not None
    assert {len(noise.time) for noise in known.cases.values()} == {2}
    # Verdicts that were never reached prove nothing of false alarms.
    assert (known.verdicts, known.false_alarms) == (2, 0)


@pytest.mark.parametrize("after", [3, 5])
def test_an_interrupted_planting_is_neither_found_nor_missed(bench, after):
    """Before anything could be said, and while it was being confirmed that it is slower."""
    result = bench.calibrate(interrupting(after), trials=1, planted_trials=1, levels=(0.03,))
    assert result.interrupted
    assert {each.verdict.status for each in result.planted} == {"inconclusive"}
    assert result.calibration.verdicts == 2
    assert result.calibration.planted == {}


def test_no_save_keeps_nothing(bench):
    result = bench.calibrate(save=False, trials=1, planted_trials=0)
    assert result.path is None
    assert result.calibration.verdicts == 2
    assert not (bench.folder / "results").exists()


def test_without_a_folder_nothing_is_kept_and_trials_still_add_up(bench):
    result = bench.calibrate(keep=False, trials=2, planted_trials=0)
    assert result.path is None
    assert result.calibration.verdicts == 4


def test_what_an_interrupt_had_judged_too_early_is_not_counted(bench, monkeypatch):
    """Three processes of cases that need four."""
    monkeypatch.setattr("harness.run.compare.noise_of_case", lambda *_: WIDE)
    result = bench.calibrate(interrupting(3), trials=1, planted_trials=1)
    assert result.interrupted
    assert {v.time.processes for v in result.same if v.time} == {3}
    assert result.calibration.verdicts == 0
    assert result.calibration.cases == {}


def test_a_kernel_that_fails_is_no_noise(bench):
    bench.loaded = ladder(bench.folder / "tiny", {"one": takes(MS), "bad": breaks("wrong")})
    result = bench.calibrate(trials=1, planted_trials=0)
    assert [v.status for v in result.same] == ["unchanged", "failed"]
    assert set(result.calibration.cases) == {ONE}
    assert result.calibration.verdicts == 1


# What is told.


def result_of(known: Calibration = KNOWN, **given: Any) -> CalibrationResult:
    long = "matmul.outer_product_loop_tiling[m=4096,n=4096,k=4096]"
    cases = {**known.cases, long: next(iter(known.cases.values()))}
    same = [verdict("unchanged", time=value) for value in (0.001, -0.001)]
    same += [verdict("unchanged", long, 0.0005), verdict("invalid", long)]
    planted = [
        Planting("toy.plain[n=64]", level, verdict(status, time=level))
        for level in (0.005, 0.01)
        for status in ("regression", "inconclusive", "inconclusive")
    ]
    known = replace(known, cases=cases)
    (device,) = devices()
    made = CalibrationResult(device, known, tuple(same), tuple(planted), ("wmma: no.",), None)
    return replace(made, **given)


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_calibration([result_of()])
    told = capsys.readouterr()
    assert max(len(line.rstrip()) for line in told.out.splitlines()) <= columns
    for word in ("mean %", "sd %", "visible %", "planted %", "found", "plain", "2 inconclusive", "0.115"):
        assert word in told.out


def test_rates_are_told_with_what_they_prove(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_calibration([result_of(interrupted=True)])
    told = capsys.readouterr()
    assert "False alarms on this device so far: 1 of 40 verdicts; below " in told.out
    lines = [line for line in told.out.splitlines() if "planted so far" in line]
    assert [line.partition(" ")[0] for line in lines] == ["+0.5", "+10"]  # by size, not by letter
    assert "3 of 4 found" in lines[0]
    assert "Left out: wmma: no." in told.err
    assert "invalid (because): It is so." in told.err
    assert "Interrupted: finished trials are kept." in told.err


def test_nothing_judged_has_no_rate(capsys):
    print_calibration([result_of(replace(KNOWN, verdicts=0, false_alarms=0, planted={}))])
    assert "so far" not in capsys.readouterr().out


def test_as_json():
    told = as_json(result_of())
    names = "device", "calibration", "false_alarm_bound", "same", "planted", "left_out", "complete", "path"
    assert set(told) == set(names)
    assert 1 / 40 < told["false_alarm_bound"] < 0.2
    assert told["planted"][0]["level"] == 0.005
    assert told["complete"] is True
    assert told["path"] is None
    assert as_json(result_of(replace(KNOWN, verdicts=0)))["false_alarm_bound"] is None
    msgspec.json.encode(told)


def test_a_case_whose_sides_had_a_process_each_is_judged_by_what_these_showed():
    """Pairs of processes of a launch of 10 us that differ by 3 %, where 1 % is assumed of it."""
    device = replace(devices()[0], kind="gpu")
    effects = tuple(ProcessEffect(0.03 * (-1) ** number, 1e-4, 9, 10) for number in range(8))
    known = replace(KNOWN, apart={"bench.add[]": CaseNoise(time=effects)})
    assumed, few, calibrated = (
        noise_apart(device, each, "bench.add[]").at(1e4).time.variance
        for each in (None, replace(KNOWN, apart={"bench.add[]": CaseNoise(time=effects[:3])}), known)
    )
    assert few == assumed == pytest.approx(0.01**2, rel=0.01)
    assert calibrated == pytest.approx(0.03**2, rel=0.2)
    assert noise_apart(device, known, "bench.other[]").at(1e4).time.variance == assumed
