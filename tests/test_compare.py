"""A comparison on the null device: what is matched, measured again, judged, and left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psutil
import pytest

from harness.device.backends.null import devices
from harness.errors import UsageError
from harness.judgement.case_trial import SPARE_PROCESSES, bare_verdict
from harness.judgement.judge import Policy
from harness.judgement.limits import JUDGED
from harness.measure.protocol import against_itself
from harness.measure.quads import PairSettings
from harness.records.record_files import ComparisonResult, read_comparison
from harness.records.types import TWIN_PLANTED, TWIN_SAME, Verdict
from harness.run import compare as compare_module
from harness.run.compare import Comparing, with_twins
from harness.run.compare_settings import CompareSettings, pair_settings_for, policy_for
from harness.run.device_session import DeviceSession
from harness.run.pair_session import PairSession, match
from harness.suite.kernel import Kernel
from harness.suite.loader import load
from harness.suite.planning import plan
from harness.suite.problem import Axis, Case, Input, Output, Problem
from harness.suite.suite import Suite
from tests.support import write_files, write_null_script

MS = 1_000_000
QUICK = PairSettings(min_quads=25, max_quads=25, warmup_min_s=0, warmup_max_s=0, lead_in_s=0.005)
NULL = devices()[0]

LADDER = """\
import os
from pathlib import Path

from harness import Axis, Input, Kernel, Output, Problem, Suite


class Double(Problem):
    n = Axis(default=(32,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        if case.kernel and os.environ.get("COUNT_IN"):
            Path(os.environ["COUNT_IN"], f"{os.getpid()}-{os.urandom(4).hex()}").touch()
        return 2 * x

    def flop(self, case):
        return case.n


suite = Suite("tiny", Double(), [Kernel(name, f"{name}.cu", block=32, grid=1) for name in NAMES])
"""
SOURCE = (
    "{said}\n__kernel void {name}(__global const float* x, __global float* y, int n) {{ y[0] = x[0]; }}\n"
)


class Watching:
    """An observer that keeps its events."""

    def __init__(self) -> None:
        self.processes: list[tuple[int, int, str]] = []
        self.order: list[str] = []
        self.stages: list[str] = []
        self.waited: list[str] = []

    def opened(self, device: object) -> None:
        pass

    def waiting(self, sentence: str) -> None:
        self.waited.append(sentence)

    def stage(self, stage: str) -> None:
        self.stages.append(stage)

    def process(self, number: int, cases: int, purpose: str) -> None:
        self.processes.append((number, cases, purpose))

    def started(self, case: str) -> None:
        self.order.append(case.partition(".")[2].partition("[")[0])

    def measured(self, case: str) -> None:
        pass


def ladder(folder, texts: Mapping[str, str]):
    files = {f"{name}.cu": SOURCE.format(said=said, name=name) for name, said in texts.items()}
    write_files(folder, {**files, "suite.py": LADDER.replace("NAMES", repr(list(texts)))})
    return load(folder)


def takes(time_ns: int) -> str:
    return f"#define NULL_DEVICE_NS {time_ns}"


def breaks(fault: str) -> str:
    return f"#define NULL_DEVICE_FAULT {fault}"


def compare(
    folder, base: Mapping[str, str], head: Mapping[str, str], prepare=None, **settings: Any
) -> tuple[ComparisonResult, Watching, Comparing]:
    sides = [ladder(folder / name, texts) for name, texts in (("base", base), ("head", head))]
    watching = Watching()
    chosen = CompareSettings(**{"device": "null", "pair": QUICK, **settings})
    with Comparing(sides[0], sides[1], chosen, watching) as comparing:
        if prepare:
            prepare(comparing)
        result = comparing.run(*(plan(side.suite) for side in sides))
    return result, watching, comparing


def statuses(result: ComparisonResult) -> dict[str, tuple[str, str]]:
    return {verdict.kernel: (verdict.status, verdict.reason) for verdict in result.verdicts}


# Which cases there are, and how they are judged.


class Twice(Problem):
    n = Axis(default=(32, 64))
    x = Input("n")
    y = Output("n")


def planned(*names: str, problem: type[Problem] = Twice):
    kernels = [Kernel(name, f"{name}.cu", block=32, grid=1) for name in names]
    return plan(Suite("tiny", problem(), kernels, headline="GB/s"))


def test_cases_are_matched_by_their_ids():
    both, alone = match(planned("one", "two"), planned("two", "three"))
    assert [(pair.id, case.id) for pair, case in both] == [(f"tiny.two[n={n}]",) * 2 for n in (32, 64)]
    for pair, case in both:
        assert (pair.base.suite, pair.head.suite) == ("base", "head")
        assert (pair.base.kernel, pair.head.kernel) == ("two", "two")
        assert not pair.base.planted
        assert not pair.head.planted
        assert pair.sizes == case.sizes
    assert [(v.case, v.status, v.reason) for v in alone] == [
        ("tiny.three[n=32]", "new", "only-in-head"),
        ("tiny.three[n=64]", "new", "only-in-head"),
        ("tiny.one[n=32]", "missing", "only-in-base"),
        ("tiny.one[n=64]", "missing", "only-in-base"),
    ]


def test_one_side_without_any_case():
    both, alone = match([], planned("one"))
    assert both == []
    assert {v.status for v in alone} == {"new"}
    both, alone = match(planned("one"), [])
    assert both == []
    assert {v.status for v in alone} == {"missing"}
    assert match([], []) == ([], [])


GPU, CPU = replace(NULL, kind="gpu"), replace(NULL, kind="cpu")


@pytest.mark.parametrize(
    ("device", "asked", "margin", "tolerance"),
    [
        (GPU, {}, 0.0025, 0.01),
        (NULL, {}, 0.0025, 0.01),
        (CPU, {}, 0.02, 0.1),
        (GPU, {"margin": 0.02}, 0.02, 0.04),
        (GPU, {"margin": 0.001}, 0.001, 0.01),
        (GPU, {"tolerance": 0.05}, 0.0025, 0.05),
        (GPU, {"tolerance": 0.002}, 0.001, 0.002),
        (CPU, {"tolerance": 0.01}, 0.005, 0.01),
        (GPU, {"margin": 0.03, "tolerance": 0.04}, 0.03, 0.04),
    ],
)
def test_margin_and_tolerance_suit_the_device_and_each_other(device, asked, margin, tolerance):
    policy = policy_for(device, CompareSettings(**asked))
    assert (policy.margin, policy.tolerance) == (margin, tolerance)
    assert policy.confidence == 0.999


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"margin": 0.01, "tolerance": 0.01}, "A margin of 1 % is not below the tolerance of 1 %"),
        ({"margin": 0.03, "tolerance": 0.02}, "give a smaller --margin or a larger --tolerance"),
        ({"margin": 0.6}, "cannot be judged by"),
        ({"confidence": 0.4}, "confidence 0.4: expected between 0.5 and 1"),
    ],
)
def test_what_cannot_be_judged_by(asked, words):
    with pytest.raises(UsageError, match=words):
        policy_for(GPU, CompareSettings(**asked))


def test_quads_suit_the_device():
    policy = Policy()
    gpu, cpu = pair_settings_for(GPU, policy), pair_settings_for(CPU, policy)
    assert (gpu.min_quads, gpu.max_quads) == (6, 100)
    assert (cpu.min_quads, cpu.max_quads) == (10, 30)


# Twins.


def verdict(status: Any, case: str = "tiny.one[n=32]", **given: Any) -> Verdict:
    bare = bare_verdict(case, Case("tiny", "one", {"n": 32}), status, "because", f"It is {status}.")
    return replace(bare, attribution="code", **given)


OTHERS = ("invalid", "identical", "new", "missing", "failed")


@pytest.mark.parametrize(
    ("same", "planted_status", "reason"),
    [
        ("unchanged", "regression", ""),
        ("inconclusive", "regression", ""),
        ("regression", "regression", "twin-flagged"),
        ("improvement", "regression", "twin-flagged"),
        ("unchanged", "unchanged", "twin-missed"),
        ("unchanged", "improvement", "twin-missed"),
        ("unchanged", "inconclusive", "twin-missed"),
        ("unchanged", "invalid", ""),
        ("unchanged", "failed", ""),
        ("invalid", "invalid", ""),
        ("failed", "failed", ""),
    ],
)
def test_a_wrong_twin_makes_what_was_measured_invalid(same, planted_status, reason):
    twins = [verdict(same, TWIN_SAME), verdict(planted_status, TWIN_PLANTED)]
    given = [verdict(status) for status in (*JUDGED, *OTHERS)]
    stand = with_twins(given, twins)
    assert stand[len(JUDGED) :] == given[len(JUDGED) :]
    if not reason:
        assert stand == given
        return
    for before, after in zip(given, stand[: len(JUDGED)], strict=False):
        assert (after.status, after.reason, after.attribution) == ("invalid", reason, None)
        assert after.message == before.message


def test_a_planted_twin_that_was_cut_short_is_not_missed():
    given = [verdict("unchanged")]
    twins = [verdict("inconclusive", TWIN_PLANTED, complete=False)]
    assert with_twins(given, twins) == given
    assert with_twins(given, []) == given


def test_twins_are_of_the_first_case_that_is_measured(tmp_path):
    texts = {"same": takes(MS), "other": takes(MS)}
    result, _, _ = compare(tmp_path, texts, {**texts, "other": takes(MS + 1)}, twins=True)
    assert statuses(result) == {
        "same": ("identical", "same-code"),
        "other": ("unchanged", "within-tolerance"),
    }
    assert [(v.case, v.kernel, v.status) for v in result.twins] == [
        (TWIN_SAME, "other", "unchanged"),
        (TWIN_PLANTED, "other", "regression"),
    ]
    assert result.twins[1].time is not None
    assert result.twins[1].time.effect == pytest.approx(0.01, rel=0.05)


def test_nothing_to_measure_has_no_twins(tmp_path):
    result, watching, _ = compare(tmp_path, {"same": takes(MS)}, {"same": takes(MS)}, twins=True)
    assert result.twins == ()
    assert watching.processes == []


# How it goes.


def test_looks_confirmation_and_processes(tmp_path):
    base = dict.fromkeys(("same", "slower", "faster", "identical"), takes(MS))
    head = {**base, "same": takes(MS + 1), "slower": takes(1_020_000), "faster": takes(980_000)}
    result, watching, _ = compare(tmp_path, base, head, results=tmp_path / "results")
    assert statuses(result) == {
        "same": ("unchanged", "within-tolerance"),
        "slower": ("regression", "slower-in-time"),
        "faster": ("improvement", "faster-in-time"),
        "identical": ("identical", "same-code"),
    }
    assert [v.kernel for v in result.verdicts] == list(head)
    assert watching.processes == [(1, 3, "look"), (2, 3, "look"), (3, 2, "confirm"), (4, 2, "confirm")]
    assert result.path is not None
    stored = read_comparison(result.path)
    assert stored == replace(result, calibration=None)
    assert Counter((each.process, each.confirming) for each in stored.blocks) == {
        (1, False): 3,
        (2, False): 3,
        (3, True): 2,
        (4, True): 2,
    }
    assert all(each.block.telemetry and each.block.telemetry.during for each in stored.blocks)


def test_cases_come_in_random_order_that_the_seed_repeats(tmp_path):
    base = {f"k{number}": takes(MS) for number in range(8)}
    head = {name: takes(MS + 1) for name in base}
    orders = [
        compare(tmp_path / str(number), base, head, seed=seed, budget_s=1e-9)[1].order
        for number, seed in enumerate((1, 1, 2))
    ]
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(order) == sorted(base) != order for order in orders)


def test_references_are_computed_once(tmp_path, monkeypatch):
    counted = tmp_path / "counted"
    counted.mkdir()
    monkeypatch.setenv("COUNT_IN", str(counted))
    result, _, _ = compare(tmp_path, {"one": takes(MS)}, {"one": takes(1_020_000)})
    assert statuses(result) == {"one": ("regression", "slower-in-time")}
    # The null device computes by each side's reference(). The verification needs head's alone, in the first
    # process: for integers, for two sets of random data and for data that nobody has seen.
    calls = Counter(path.name.partition("-")[0] for path in counted.iterdir())
    base, head = sorted(calls.values())
    assert head - base == 4


def test_digests_go_from_one_process_to_the_next(tmp_path, monkeypatch):
    asked = []
    ask = DeviceSession.ask

    def listening(place, request, timeout_s):
        if hasattr(request, "verified"):
            asked.append(dict(request.verified))
        return ask(place, request, timeout_s)

    monkeypatch.setattr(DeviceSession, "ask", listening)
    compare(tmp_path, {"one": takes(MS)}, {"one": takes(MS + 1)})
    assert asked[0] == {}
    assert set(asked[1]) == {"base", "head"}
    assert all(len(digest) == 32 for digest in asked[1].values())


@pytest.mark.parametrize("fault", ["crash", "error"])
def test_a_failure_costs_its_own_case_only(tmp_path, fault):
    base = dict.fromkeys(("one", "bad", "two", "three"), takes(MS))
    head = {**dict.fromkeys(base, takes(MS + 1)), "bad": breaks(fault)}
    result, watching, _ = compare(tmp_path, base, head)
    found = statuses(result)
    assert found.pop("bad")[0] == "failed"
    assert set(found.values()) == {("unchanged", "within-tolerance")}
    assert next(v.side for v in result.verdicts if v.kernel == "bad") == "head"
    assert [cases for _, cases, _ in watching.processes] == [4, 3]


def test_what_is_undecided_and_what_is_to_be_confirmed_share_processes(tmp_path):
    base = dict.fromkeys(("open", "slower"), takes(MS))
    head = {"open": takes(1_002_900), "slower": takes(1_050_000)}
    _, watching, _ = compare(tmp_path, base, head, results=tmp_path / "results")
    assert watching.processes[:4] == [(1, 2, "look"), (2, 2, "look"), (3, 2, "look"), (4, 2, "look")]
    [record] = (tmp_path / "results").rglob("*.jsonl")
    third = [each for each in read_comparison(record).blocks if each.process == 3]
    assert {each.case: each.confirming for each in third} == {
        "tiny.open[n=32]": False,
        "tiny.slower[n=32]": True,
    }


def blocks_of(result: ComparisonResult) -> list[int]:
    """Quads of each block, in order."""
    assert result.path is not None
    return [len(each.block.quads) for each in read_comparison(result.path).blocks]


def test_blocks_are_no_longer_than_the_verdict_needs(tmp_path, monkeypatch):
    script = write_null_script(tmp_path / "script.json", {"noise": {"kind": "quiet", "seed": 1}})
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", script)
    counts = {
        name: blocks_of(
            compare(
                tmp_path / name, {"one": takes(MS)}, {"one": takes(head)}, pair=None, results=tmp_path / name
            )[0]
        )
        for name, head in (("same", MS + 1), ("obvious", 2 * MS), ("small", 1_006_000))
    }
    # Which launches meet which noise hangs on the orders drawn: a block that just missed goes on once.
    assert len(counts["same"]) == 2
    assert max(counts["same"]) <= 24
    assert counts["obvious"] == [12] * 4
    assert max(counts["small"]) > 12
    assert sum(counts["small"]) > 100


@pytest.mark.parametrize(
    ("base", "head", "status"), [(10_000, 10 * MS, "regression"), (10 * MS, 10_000, "improvement")]
)
def test_a_thousandfold_takes_few_quads(tmp_path, base, head, status):
    result, _, _ = compare(
        tmp_path, {"one": takes(base)}, {"one": takes(head)}, pair=None, results=tmp_path / "results"
    )
    assert [found.status for found in result.verdicts] == [status]
    assert sum(blocks_of(result)) <= 4 * 12


def test_times_that_read_nothing_are_no_verdict(tmp_path):
    result, watching, _ = compare(tmp_path, {"one": takes(0)}, {"one": f"{takes(0)}\nint other;"}, pair=None)
    assert statuses(result) == {"one": ("invalid", "too-few-quads")}
    assert len(watching.processes) == 2 + SPARE_PROCESSES


def test_a_head_that_never_ends_costs_its_own_case_only(tmp_path):
    base = dict.fromkeys(("one", "bad"), takes(MS))
    head = {"one": takes(MS + 1), "bad": breaks("hang")}
    result, _, _ = compare(tmp_path, base, head, timeout_s=4.0)
    assert statuses(result) == {"one": ("unchanged", "within-tolerance"), "bad": ("failed", "timed-out")}


def test_a_budget_ends_it_between_processes(tmp_path):
    base = dict.fromkeys(("one", "two"), takes(MS))
    head = {"one": takes(MS + 1), "two": takes(1_050_000)}
    result, watching, _ = compare(tmp_path, base, head, budget_s=1e-9, results=tmp_path / "results")
    assert watching.processes == [(1, 2, "look")]
    assert set(statuses(result).values()) == {("inconclusive", "budget-spent")}
    assert not any(v.complete for v in result.verdicts)
    assert not result.interrupted
    assert result.path is not None
    assert not read_comparison(result.path).interrupted


def test_a_budget_that_ends_before_confirming(tmp_path):
    def nearly_spent(comparing):
        process = comparing._process

        def counting(entries):
            process(entries)
            comparing._spent_s = 0.0 if comparing._processes < 2 else 10.0

        comparing._process = counting

    result, watching, _ = compare(
        tmp_path, {"one": takes(MS)}, {"one": takes(1_050_000)}, nearly_spent, budget_s=5.0
    )
    assert [purpose for _, _, purpose in watching.processes] == ["look", "look"]
    assert statuses(result) == {"one": ("inconclusive", "budget-spent")}
    assert "was not measured again" in result.verdicts[0].message


def interrupting(number: int):
    """Have the comparison interrupted as it begins a process."""

    def prepare(comparing):
        process = comparing._process

        def interrupted(entries):
            if comparing._processes == number:
                raise KeyboardInterrupt
            process(entries)

        comparing._process = interrupted

    return prepare


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (0, {"same": ("inconclusive", "interrupted"), "slower": ("inconclusive", "interrupted")}),
        (1, {"same": ("inconclusive", "interrupted"), "slower": ("inconclusive", "interrupted")}),
        (2, {"same": ("unchanged", "within-tolerance"), "slower": ("inconclusive", "interrupted")}),
    ],
)
def test_an_interrupt_keeps_what_is_finished(tmp_path, after, told):
    base = dict.fromkeys(("same", "slower"), takes(MS))
    head = {"same": takes(MS + 1), "slower": takes(1_020_000), "fresh": takes(MS)}
    result, _, _ = compare(tmp_path, base, head, interrupting(after), results=tmp_path / "results")
    assert result.interrupted
    assert statuses(result) == {**told, "fresh": ("new", "only-in-head")}
    assert result.path is not None
    stored = read_comparison(result.path)
    assert stored == replace(result, calibration=None)
    assert len(stored.blocks) == {0: 0, 1: 2, 2: 4}[after]


def test_identical_code_can_be_measured_all_the_same(tmp_path):
    result, watching, _ = compare(tmp_path, {"one": takes(MS)}, {"one": takes(MS)}, measure_identical=True)
    assert statuses(result) == {"one": ("unchanged", "within-tolerance")}
    assert len(watching.processes) == 2


def test_what_it_was_done_with_is_described(tmp_path):
    result, _, comparing = compare(
        tmp_path, {"one": takes(MS)}, {"one": takes(MS)}, seed=7, margin=0.002, tolerance=0.02
    )
    described = result.comparison
    assert described.settings["seed"] == 7
    assert described.settings["margin"] == 0.002
    assert described.settings["tolerance"] == 0.02
    assert described.settings["looks"] == "2,4,8"
    assert described.settings["max_quads"] == 25
    assert described.kernels == ("one",)
    assert described.device.spec == "null:0"
    assert described.calibrated_at is None
    assert result.path is None
    assert comparing.folder is None


def test_no_process_is_left_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    head = {"one": takes(MS + 1), "bad": breaks("crash"), "fresh": breaks("crash")}
    compare(tmp_path / "suites", dict.fromkeys(("one", "bad"), takes(MS)), head)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert [path.name for path in tmp_path.iterdir()] == ["suites"]


def test_workers_are_ended_after_an_error_of_the_harness_itself(tmp_path, monkeypatch, started_workers):
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def broken(*_, **__):
        raise RuntimeError("broken")

    monkeypatch.setattr(compare_module, "gate", broken)
    with pytest.raises(RuntimeError, match="broken"):
        compare(tmp_path, {"one": takes(MS)}, {"one": takes(MS + 1)}, results=tmp_path / "results")
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_policy_that_makes_no_sense_leaves_no_process(tmp_path, started_workers):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(UsageError, match="margin"):
        compare(tmp_path, {"one": takes(MS)}, {"one": takes(MS)}, margin=0.02, tolerance=0.01)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_compiler_that_ends_its_process_leaves_it_to_the_case(tmp_path, monkeypatch):
    """If inspection fails, no case counts as identical, and all cases are measured."""

    def prepare(comparing):
        comparing.builder.kill()

    result, _, _ = compare(tmp_path, {"one": takes(MS)}, {"one": takes(MS)}, prepare)
    assert statuses(result) == {"one": ("unchanged", "within-tolerance")}


def test_on_a_noisy_card_what_is_slower_is_found_and_what_is_not_is_not(tmp_path, monkeypatch):
    script = write_null_script(tmp_path / "script.json", {"noise": {"kind": "bimodal", "seed": 1}})
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", script)
    base = dict.fromkeys(("same", "slower"), takes(MS))
    result, _, _ = compare(tmp_path, base, {"same": takes(MS + 1), "slower": takes(1_040_000)})
    assert statuses(result)["slower"] == ("regression", "slower-in-time")
    assert statuses(result)["same"][0] in ("unchanged", "inconclusive")
    for found in result.verdicts:
        assert found.cycles is not None
        assert found.base is not None
        assert found.base.sm_clock_mhz


APART = """\
import os
import sys
from pathlib import Path

from harness import Axis, Input, Kernel, Output, Problem, Suite, TorchFunction

class Double(Problem):
    n = Axis(default=(32,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


def setup(case, arrays):
    import torch
    with Path({told!r}).open("a") as told:
        print({side!r}, os.getpid(), torch.WHERE, torch.SETTING, file=told)
    torch.SETTING = {side!r}
    return {{"given": 1}}


kernels = [Kernel("one", TorchFunction("one.py"), setup=setup, args=("x", "y", "given"))]
suite = Suite("apart", Double(), kernels, headline="GB/s")
"""


@pytest.mark.usefixtures("ready_workers")
def test_a_framework_is_imported_once_for_both_sides(tmp_path, monkeypatch):
    installed = tmp_path / "installed"
    write_files(installed, {"torch.py": "import os\nWHERE, SETTING = os.getpid(), 'none'\n"})
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.syspath_prepend(installed)
    told, sides = tmp_path / "told", {}
    for side in ("base", "head"):
        files = {"suite.py": APART.format(told=str(told), side=side), "one.py": f"def one(x, y): {side}\n"}
        sides[side] = load(write_files(tmp_path / side, files))
    settings = CompareSettings(device="null", pair=replace(QUICK, min_quads=2, max_quads=2), budget_s=1e-9)
    with Comparing(sides["base"], sides["head"], settings, Watching()) as comparing:
        comparing.run(*(plan(side.suite) for side in sides.values()))
        assert comparing._template
        imported_by = str(comparing._template.pid)
        assert psutil.Process(comparing._template.pid).status() != psutil.STATUS_ZOMBIE, "for later pairs"
        itself = [against_itself(each.case, each.case.id) for each in plan(sides["head"].suite)]
        template = comparing._with_packages(itself)
        assert template, "a calibration has head on both sides"
        template.close()
    lines = [line.split() for line in told.read_text().splitlines()]
    first = {pid: (side, setting) for side, pid, _, setting in reversed(lines)}
    assert sorted(first.values()) == [("base", "none"), ("head", "none")]  # later calls see their own
    assert {where for _, _, where, _ in lines} == {imported_by}
    assert imported_by not in first
    assert not psutil.pid_exists(int(imported_by))


def test_a_comparison_tells_why_each_process_imports_its_framework(tmp_path):
    sides = {}
    for side in ("base", "head"):
        text = "import os\n\ndef one(x, y): os.environ['CUDA_MODULE_LOADING']\n"
        files = {"suite.py": APART.format(told=str(tmp_path / "told"), side=side), "one.py": text}
        sides[side] = load(write_files(tmp_path / side, files))
    watching = Watching()
    with PairSession(sides["base"], sides["head"], CompareSettings(device="null"), watching) as session:
        matched, _ = match(*(plan(side.suite) for side in sides.values()))
        pairs = [pair for pair, _ in matched]
        assert session._with_packages(pairs) is None
        assert session._with_packages(pairs) is None
    [told] = watching.waited
    assert told.startswith("Each process imports the packages of its functions again: ")
    assert told.endswith("one.py mentions environ, and may change what they find or read.")
