"""scripts/bench_verdicts.py on the null device, from kernels to table; and the rules of others, which must
be those of their makers.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from harness.records.types import Launch
from scripts import bench_graphs, bench_peers, bench_verdicts

QUIET = {"noise": {"kind": "quiet"}, "toy.plain": {"times_ns": [1e6]}}
AA, UNDECIDED, FIGURES = "A/A false", "undecided", ["GPU s", "warm-up", "wall s"]


@pytest.fixture
def bench(project, tmp_path, capsys):
    """Run it on the toy suite: exit status, what it printed, and its JSON file."""

    def run(*arguments, device="null", kernel="toy.plain"):
        file = tmp_path / "verdicts.json"
        asked = ["--device", device, "--suite", str(project.suite), "--kernel", kernel, "--json", str(file)]
        status = bench_verdicts.main([*asked, *arguments])
        return status, capsys.readouterr(), file

    return run


def cells(printed):
    """Return the cells of the last table printed, by rule and column."""
    lines = printed.splitlines()
    start = max(number for number, line in enumerate(lines) if line.startswith("rule "))
    names = [AA, *re.findall(r"\+[\d.]+ %", lines[start]), UNDECIDED, *FIGURES]
    table = {}
    for line in lines[start + 1 : lines.index("", start)]:
        rule, values = line[:28].strip(), line[28:].split()
        table[rule] = "absent" if values[0] == "absent:" else dict(zip(names, values, strict=True))
    return table


def test_every_rule_judges_the_same_kernel_and_the_table_tells_how_it_did(bench, null_script):
    null_script(QUIET)
    status, printed, file = bench("--levels", "2", "--trials", "1")
    assert status == 0, printed.err
    assert all(len(line) <= bench_verdicts.WIDTH for line in printed.out.splitlines())
    table = cells(printed.out)
    # A slowdown of 2 % is beyond what any rule but those of 5 % and 10 % can overlook on so quiet a device.
    found = {rule: row if row == "absent" else (row[AA], row["+2 %"]) for rule, row in table.items()}
    assert found == {
        "harness compare": ("0/1", "1/1"),
        "nvbench-compare-robust": "absent",
        "nvbench-compare-legacy": "absent",
        "triton do_bench, mean > 1 %": "absent",
        "do_bench_cudagraph, > 1 %": "absent",
        "median of 100 events, > 1 %": ("0/1", "1/1"),
        "pytest-benchmark, mean:5%": ("0/1", "0/1"),
        "asv continuous, factor 1.1": ("0/1", "0/1"),
        "asv continuous, factor 1.01": ("0/1", "1/1"),
    }
    assert "needs a CUDA device" in printed.out
    assert "null, driver 1" in printed.out
    assert "not calibrated" in printed.out

    book = json.loads(file.read_bytes())
    case = "toy.plain[n=64]"
    assert book["steps"][case]["0"] == 0
    assert book["steps"][case]["2"] == pytest.approx(2000, rel=0.25)  # a hundred thousandth each
    assert {(each["part"], each["level"]) for each in book["measurements"]} == {
        (part, level) for part in ("ours", "events", "asv") for level in ("0", "2")
    }
    ours = next(each for each in book["measurements"] if each["part"] == "ours" and each["level"] == "2")
    assert ours["raw"]["processes"] == ours["raw"]["confirming"] == 2
    assert len(ours["raw"]["blocks"]) == 4
    assert ours["raw"]["cycles"]["effect"] == pytest.approx(0.02, abs=0.005)
    for each in book["measurements"]:
        if each["part"] != "ours":
            assert (
                len(each["raw"]["base_ns"])
                == len(each["raw"]["head_ns"])
                == {"events": 100, "asv": 10}[each["part"]]
            )

    assert bench("--show", str(file))[1].out == printed.out


def test_a_kernel_is_judged_eager_and_by_graph_in_one_table(project, null_script, tmp_path, capsys):
    null_script(QUIET)
    file = tmp_path / "graphs.json"
    asked = ["--device", "null", "--suite", str(project.suite), "--kernel", "toy.plain@64"]
    assert bench_graphs.main([*asked, "--our-trials", "1", "--json", str(file)]) == 0
    table = capsys.readouterr().out.splitlines()[-4:]
    assert bench_graphs.main(["--show", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == table
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert [row[:3] for row in rows] == [
        ["toy.plain[n=64]", way, "harness compare"] for way in ("eager", "graph")
    ]
    for row in rows:
        told = dict(zip(bench_graphs.HEADS, row, strict=True))
        assert (told["processes"], told["found"], told["false"]) == ("6", "1/1", "0/1")
        assert float(told["µs"]) == pytest.approx(1000, rel=0.01)
        assert float(told["seen %"]) == pytest.approx(2, abs=0.5)


def test_parts_that_fail_or_find_no_time_cost_their_own_lines_only(bench, null_script, tmp_path, monkeypatch):
    null_script(QUIET)
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('the card is on fire')", encoding="utf-8")
    monkeypatch.setattr(bench_verdicts, "PEERS", broken)
    status, printed, _ = bench("--levels", "2", "--trials", "2", "--only", "events")
    assert status == 0
    assert cells(printed.out) == dict.fromkeys(bench_verdicts.RULES["events"], "absent")
    assert "exit status 1: the card is on fire" in printed.out
    assert "trial 2" not in printed.err

    printed = bench("--levels", "2", "--only", "asv", "--budget", "0")[1]
    assert "asv: 0 of 3 trials, for the budget of 0 s was used up." in printed.out


def test_what_cannot_be_measured_says_why(bench, null_script):
    status, printed, _ = bench(device="cuda:99")
    assert status == 3
    assert printed.err.strip()
    assert "Traceback" not in printed.err

    status, printed, _ = bench(kernel="toy.plian")
    assert status == 2
    assert "There is no kernel 'toy.plian'" in printed.err

    null_script({"toy.plain": {"fault": "build"}})
    status, printed, _ = bench()
    assert status == 3
    assert "toy.plain[n=64] is left out: toy.plain does not compile." in printed.err

    with pytest.raises(SystemExit):
        bench("--levels", "0.5,much")


def measured(part, level, said, case="one", **more):
    verdicts = [
        {"rule": rule, "said": said, "effect": 0.0, "why": "why"} for rule in bench_verdicts.RULES[part]
    ]
    raw = {"cycles": {"effect": float(level) / 100}, "time": None, "clocks_mhz": [1500.0, None]}
    figures = {"gpu_s": 0.25, "warmup_s": 0.5, "wall_s": 1.0, "raw": raw}
    return {"part": part, "case": case, "level": level, "verdicts": verdicts, **figures, **more}


def told_of(measurements, **more):
    book = {
        "device": {"name": "Card", "driver": "1", "max_clock_mhz": 2000},
        "settings": {"levels": ["1"], "only": None},
        "identity": {},
        "calibrated_at": {"toy": "2026-11-21"},
        "steps": {"one": {}, "two": {}},
        "about": {"asv": "0.6.6"},
        "absent": {},
        "notes": [],
        "measurements": measurements,
        "wall_s": 9.0,
    }
    return "\n".join(bench_verdicts.report({**book, **more}))


def test_the_table_counts_either_way_for_an_alarm_and_slower_alone_for_a_find():
    printed = told_of(
        [
            *(measured("ours", "0", said) for said in ("same", "faster", "slower", "undecided", "failed")),
            *(measured("ours", "1", said, case="two") for said in ("slower", "faster", "undecided")),
        ],
        absent={"ours": "the driver left", "asv": "no such\nmodule"},
    )
    row = cells(printed)["harness compare"]
    assert (row[AA], row["+1 %"], row[UNDECIDED]) == ("2/4", "1/3", "2/7")
    assert [row[name] for name in FIGURES] == ["0.25", "0.50", "1.00"]
    assert "one +0 %: failed: why" in printed
    assert "harness compare called 1 planted slowdown faster." in printed
    assert "ours stopped midway: the driver left" in printed
    assert "asv continuous, factor 1.1   absent: no such module" in printed
    assert "two\nAs our quads see what was planted: +1 % is +1.00 %.\n" in printed
    assert printed.endswith(
        "Card, driver 1; SM clocks 1500 to 1500 MHz in our quads, at most 2000; calibrated: toy "
        "2026-11-21;\nasv 0.6.6; 9 s in all."
    )


def test_pytest_benchmarks_rule_written_again_is_its_own():
    utils = pytest.importorskip("pytest_benchmark.utils")
    check = utils.parse_compare_fail("mean:5%")
    for percent in (-10, 0, 4.9, 5.1, 20):
        base, head = bench_peers.Timed([1.0, 3.0], 0.0), bench_peers.Timed([2 + 0.02 * percent], 0.0)
        fails = bool(check.fails({"mean": 2 + 0.02 * percent}, {"mean": 2.0}))
        assert (bench_peers.pytest_benchmark_says(base, head) == "slower") == fails


def test_nvbenchs_older_rule_takes_the_smaller_noise_for_the_limit():
    says = bench_peers.nvbench_legacy_says
    assert says(0.004, [0.005, 0.02]) == "same"
    assert says(0.006, [0.005, 0.02]) == "slower"
    assert says(-0.006, [0.02, 0.005]) == "faster"
    assert says(0.006, [None, 0.02]) == "same"
    assert says(0.006, [None, float("inf")]) == "undecided"


def test_nvbenchs_states_are_told_apart_by_arm():
    state = {"axis_values": [{"name": "Arm", "type": "string", "value": "0.base"}], "summaries": []}
    assert bench_peers.nvbench_states({"benchmarks": [{"states": [state]}]}) == {"0.base": state}


class Stand:
    """A stand-in with these members."""

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)


def test_do_bench_times_on_the_harness_stream_and_its_warm_up_is_told_apart(monkeypatch):
    """Stand-ins launch as triton 3.6 does: once, five times to estimate, then to warm up and to measure."""
    used, launched = [], []

    class Entered:
        def __init__(self, stream):
            used.append(stream)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def do_bench(launch, return_mode):
        assert return_mode == "all"
        for _ in range(1 + 5 + 20 + 4):
            launch()
        return [2.0, 2.0, 3.0, 1.0]

    torch: Any = Stand(cuda=Stand(ExternalStream=lambda handle: ("stream", handle), stream=Entered))
    testing: Any = Stand(do_bench=do_bench)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "triton.testing", testing)
    device: Any = Stand(stream=Stand(handle=7), launch=lambda *what: launched.append(what))
    subject: Any = Stand(built="built", launch="launch", arguments=())
    timed = bench_peers.time_do_bench(device, subject)
    assert timed.times_ns == [2e6, 2e6, 3e6, 1e6]
    assert timed.warmup_s == pytest.approx(20 * 0.002)
    assert used == [("stream", 7)]
    assert launched == [("built", "launch", ())] * 30


def test_do_bench_cudagraph_captures_eager_launches_on_the_harness_stream(monkeypatch):
    said: list[Any] = []
    own, captured = (
        Stand(name=name, wait_stream=lambda other, name=name: said.append(f"{name} waits for {other.name}"))
        for name in ("own", "captured")
    )

    def do_bench_cudagraph(launch, return_mode):
        assert return_mode == "all"
        launch()
        return [0.002, 0.004]

    streams = Stand(ExternalStream=lambda handle: own, current_stream=lambda: captured)
    torch: Any = Stand(cuda=streams)
    testing: Any = Stand(do_bench_cudagraph=do_bench_cudagraph)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "triton.testing", testing)
    device: Any = Stand(stream=Stand(handle=7), launch=lambda _, launch, arguments: said.append(launch.graph))
    subject: Any = Stand(
        built="built", launch=Launch(grid=(1, 1, 1), block=(1, 1, 1), graph=True), arguments=()
    )
    assert bench_peers.time_do_bench_cudagraph(device, subject).times_ns == [2e3, 4e3]
    assert said == ["own waits for captured", False, "captured waits for own"]


def test_a_smallest_visible_change_is_told_from_the_spread_of_processes():
    """Five processes of each of two levels: 8 degrees of freedom, so 2.306 standard deviations."""
    assert bench_graphs.limit_of([[-0.01, 0, 0, 0, 0.01], [0.01, 0.02, 0.02, 0.02, 0.03]]) == pytest.approx(
        2.306 * (0.0004 / 8) ** 0.5, rel=1e-3
    )
