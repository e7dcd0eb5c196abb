"""Ladders: what others published, and ours beside it, out of records that are there or are made."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness import Ladder, Rung, Suite
from harness.cli import report_ladder_command
from harness.device.backends import null
from harness.device.static.architecture_builds import Usage
from harness.device.static.demand import Demand
from harness.device.static.occupancy import residency
from harness.errors import ExitCode, SuiteError
from harness.history.ladders import LadderLine, fastest, is_slow, ladder_report, placed
from harness.records.record_files import RecordWriter, newest_rows
from harness.records.sweep_journal import SweepJournal
from harness.records.sweep_types import PreparedConfiguration, Sweep, SweepRow, SweepSettings
from harness.records.types import DeviceInfo, Host, Launch, LibraryShare, Measurement, Row, Run
from harness.report.terminal.ladder_tables import NOTHING, WITH_SLOW, markdown
from harness.report.terminal.progress import ProgressObserver
from harness.suite.configurations import configurations, points
from harness.suite.loader import load, load_folder
from tests import toy
from tests.support import KERNELS, ROOT, caller, run_command

DASH, WITH = NOTHING, WITH_SLOW[0]

PUBLISHED = """\
from harness import Ladder, Rung

LADDERS = [
    Ladder(
        "first",
        "Plain, then tiled",
        source="By hand.",
        card="Old card",
        sizes=64,
        peak=400,
        rungs=[Rung("plain", "plain", 10), Rung("tiled", "tiled", 40)],
    ),
    Ladder(
        "held",
        "A card against the host",
        card="Old card",
        against="host",
        rungs=[
            rung
            for n, slow in ((64, False), (4096, True))
            for rung in (
                Rung("CPU", "host", 2, time_ms=8, sizes=n, backend="cpu", slow=slow),
                Rung("card", "tiled", 9, time_ms=1, speed_up=4, sizes=n),
                Rung("NumPy", "numpy", sizes=n, backend="cpu"),
            )
        ],
        note="A note.",
    ),
]
"""
HOST = """\
def twice(case, stream):
    def call(x, y, n):
        y[:] = 2 * x

    return call
"""
SUITE = (
    toy.SUITE.replace(
        "from harness import", "import host\nimport published\nfrom harness import HostFunction,"
    )
    .replace('    headline="GB/s",\n', '    headline="GB/s",\n    ladders=published.LADDERS,\n')
    .replace(
        "    ],\n)",
        '        Kernel("host", {"cpu": HostFunction(host.twice)}),\n'
        '        Kernel("numpy", {"cpu": HostFunction(host.twice)}),\n'
        "    ],\n)",
    )
)
FILES = {
    **toy.FILES,
    "kernels/toy/suite.py": SUITE,
    "kernels/toy/published.py": PUBLISHED,
    "kernels/toy/host.py": HOST,
}


@pytest.fixture
def harness(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return caller(capsys, monkeypatch)


@pytest.fixture
def laddered(project):
    """The toy project with ladders of its own."""
    project.commit(FILES)
    return project


CARD = dataclasses.replace(null.devices()[0], spec="cuda:0", backend="cuda", name="New card", kind="gpu")
PROCESSOR = dataclasses.replace(CARD, spec="cpu:0", backend="cpu", name="Old CPU", kind="cpu")
BOX = Host(os="Linux", kernel="6", cpu="Old CPU", cpu_count=1, memory_bytes=1, python="3")


def row(kernel: str, time_ns: float, size: int = 64, given: Mapping[str, Any] | None = None) -> Row:
    """A measured row of the toy suite, but for what is `given`."""
    return Row(
        **{
            "case": f"toy.{kernel}[n={size}]",
            "kernel": kernel,
            "sizes": {"n": size},
            "dtype": "float32",
            "status": "measured",
            "flop": size,
            "moved_bytes": 8 * size,
            "measurement": Measurement(
                times_ns=(time_ns,) * 5,
                launches_per_slot=1,
                l2="hot",
                clock="scripted",
                tick_ns=1,
                warmup_launches=1,
                warmup_s=0,
                settled=True,
                stopped_by="slots",
                started_ns=0,
                ended_ns=1,
            ),
            **(given or {}),
        }
    )


class Shelf:
    """A folder of results that tests write records into."""

    def __init__(self, suite_folder: Path, results: Path) -> None:
        self.source = load(suite_folder).source
        self.results = results
        self.count = 0

    def put(
        self,
        *rows: Row,
        machine: str = "card",
        device: DeviceInfo = CARD,
        day: int = 8,
        stale: bool = False,
        command: str = "run",
    ) -> Path:
        source = self.source
        if stale:
            source = dataclasses.replace(source, tree_sha256="another", commit="0" * 40)
        self.count += 1
        run = Run(
            harness_version="1",
            run_id=f"{self.count:08x}00000000",
            started_at=f"2026-01-{day:02}T12:00:00+00:00",
            command=command,
            source=source,
            headline="GB/s",
            kernels=("plain", "tiled", "host", "numpy"),
            device=device,
            toolchain=None,
            host=BOX,
            settings={},
            peaks={"memory": 1000.0},
        )
        with RecordWriter(self.results / machine, run) as writer:
            for each in rows:
                writer.add(each)
            return writer.finish(complete=True)


@pytest.fixture
def shelf(laddered):
    return Shelf(laddered.suite, laddered.root / ".asv" / "results")


def lines_of(text: str) -> list[list[str]]:
    """Cells of lines, which stand two blanks apart."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


# What a suite says


def suite_with(ladder: Ladder) -> Suite:
    return dataclasses.replace(load_folder(KERNELS / "copy"), ladders=[ladder])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ladder("a b", "T", [Rung("r", "copy", 1)], sizes=8), "'a b' is not an identifier"),
        (lambda: Ladder("a", "T", []), "no rungs"),
        (lambda: Ladder("a", "T", [Rung("r", "copy", 1)]), "'r' has no sizes"),
        (
            lambda: Ladder("a", "T", [Rung("r", "copy", 1)], sizes=8, against="x"),
            "'x', which none of its rungs",
        ),
        (
            lambda: suite_with(Ladder("a", "T", [Rung("r", "nosuch", 1)], sizes=8)),
            "'nosuch', which suite 'copy'",
        ),
        (lambda: suite_with(Ladder("a", "T", [Rung("r", "copy", 1)], sizes=0)), "sizes 0"),
        (
            lambda: suite_with(Ladder("a", "T", [Rung("r", "copy", sizes={"n": 1})])),
            "one for each of rows, cols",
        ),
    ],
)
def test_a_ladder_that_makes_no_sense_is_the_suites_error(make, words):
    with pytest.raises(SuiteError, match=re.escape(words)):
        make()


def test_two_ladders_of_one_name_are_an_error():
    ladder = Ladder("a", "T", [Rung("r", "copy", 1)], sizes=8)
    with pytest.raises(SuiteError, match="two ladders named 'a'"):
        dataclasses.replace(suite_with(ladder), ladders=[ladder, ladder])


# Every row of the five systems' tables

CUDA = {
    "naive": 103,
    "block_tiling_as_published": 411,
    "thread_tiling_as_published": 745,
    "thread_tiling_2d_as_published": 2150,
    "wmma": 3066,
    "wmma_warp_tiling": 6688,
}
PLAIN = {512: 91, 1024: 95}
BEST = {512: 466, 1024: 482, 2048: 222}
PATTERNS = {"standard": (19, 68), "k_after_threads": (19, 68), "k_innermost": (171, 482)}
BLOCK_TILES = {(32, 32, 32): (130, 482), (64, 64, 64): (59, 254)}
THREAD_TILES = {(8, 4): (109, 482), (4, 4): (77, 324), (2, 2): (37, 164)}
SHADER = {
    128: (2.35, 3.57, 0.31, 13.53, 4),
    256: (19.02, 3.53, 0.72, 46.60, 13),
    512: (236.7, 2.27, 4.02, 66.77, 29),
    1024: (7967.3, 0.54, 29.14, 73.70, 137),
    2048: (86792, 0.40, 230.85, 74.42, 188),
    4096: (763312, 0.36, 1831, 75.05, 208),
}
TO_CUTLASS = [
    "cpu_loop",
    "naive_coalesced",
    "loop_tiling_as_published",
    "loop_tiling_shared",
    "outer_product_as_published",
    "outer_product_loop_tiling",
    "cutlass",
]


@pytest.fixture(scope="module")
def listed():
    done = run_command("list", "--json", "matmul", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (suite,) = json.loads(done.stdout)
    return suite


def rungs(listed: Any, ladder: str, **wanted: Any) -> list[Any]:
    (found,) = (each for each in listed["ladders"] if each["name"] == ladder)
    return [rung for rung in found["rungs"] if all(rung[key] == value for key, value in wanted.items())]


def square(n: int) -> dict[str, int]:
    return {"m": n, "n": n, "k": n}


def test_the_hand_written_ladder_is_listed_in_its_order(listed):
    found = rungs(listed, "cuda", sizes=square(4096))
    assert [(rung["kernel"], rung["rate"]) for rung in found] == list(CUDA.items())


def test_the_schedules_are_listed_with_what_is_best_and_what_is_plain(listed):
    for n, rate in PLAIN.items():
        (plain,) = rungs(listed, "schedule", kernel="schedule_plain", sizes=square(n))
        assert plain["rate"] == rate
    best = {"BM": 32, "BN": 32, "BK": 32, "TM": 8, "TN": 4, "PATTERN": "k_innermost"}
    for n, rate in BEST.items():
        (found,) = rungs(listed, "schedule", kernel="schedule", sizes=square(n))
        assert (found["rate"], found["macros"]) == (rate, best)
    assert {each["peak"] for each in listed["ladders"] if each["card"] == "RTX A500 laptop"} == {3072}


def test_the_sweep_is_listed_by_pattern_and_tile(listed):
    values: list[dict[str, Any]] = [{"PATTERN": name} for name in PATTERNS]
    values += [dict(zip(("BM", "BN", "BK"), tile, strict=True)) for tile in BLOCK_TILES]
    values += [dict(zip(("TM", "TN"), tile, strict=True)) for tile in THREAD_TILES]
    figures = [*PATTERNS.values(), *BLOCK_TILES.values(), *THREAD_TILES.values()]
    for macros, (average, best) in zip(values, figures, strict=True):
        (found,) = rungs(listed, "schedule_sweep", macros=macros)
        assert (found["average"], found["rate"]) == (average, best)
    (schedule,) = (kernel for kernel in listed["kernels"] if kernel["name"] == "schedule")
    assert schedule["tune"]["configurations"] == 150
    assert schedule["tune"]["parameters"] == ["BM", "BN", "BK", "TM", "TN", "PATTERN"]


def test_the_taught_kernel_is_listed(listed):
    assert [rung["kernel"] for rung in rungs(listed, "taught", sizes=square(1024))] == ["shared_tile"]


@pytest.mark.parametrize("n", SHADER)
def test_the_host_is_listed_against_the_shader(listed, n):
    cpu_ms, cpu_rate, card_ms, card_rate, speed_up = SHADER[n]
    (cpu,) = rungs(listed, "shader", kernel="cpu_loop", sizes=square(n))
    (card,) = rungs(listed, "shader", kernel="compute_shader", sizes=square(n))
    assert (cpu["time_ms"], cpu["rate"]) == (cpu_ms, cpu_rate)
    assert (card["time_ms"], card["rate"], card["speed_up"]) == (card_ms, card_rate, speed_up)


def test_the_way_to_cutlass_is_listed_in_its_order(listed):
    assert [rung["kernel"] for rung in rungs(listed, "to_cutlass")] == TO_CUTLASS


def test_every_rung_has_a_kernel_that_says_what_it_does(listed):
    about = {kernel["name"]: kernel["about"] for kernel in listed["kernels"]}
    assert all(about[rung["kernel"]] for ladder in listed["ladders"] for rung in ladder["rungs"])


def test_a_pattern_leaves_out_the_ladders_that_it_does_not_touch():
    done = run_command("list", "--json", "matmul.wmma*", cwd=ROOT)
    (suite,) = json.loads(done.stdout)
    assert [ladder["name"] for ladder in suite["ladders"]] == ["cuda"]


# Records


def test_the_newest_row_of_each_case_counts(shelf):
    shelf.put(row("plain", 100), row("tiled", 50), day=1)
    shelf.put(row("plain", 80), day=3)
    shelf.put(row("plain", 90), day=2)
    found, problems = newest_rows(shelf.results, "toy", {"toy.plain[n=64]", "toy.tiled[n=64]"})
    assert problems == []
    times = {each.row.kernel: each.row.measurement.times_ns[0] for each in found if each.row.measurement}
    assert times == {"plain": 80, "tiled": 50}


def test_rows_of_other_cases_suites_and_commands_do_not_count(shelf):
    shelf.put(row("plain", 100, size=128))
    shelf.put(row("plain", 100), command="check")
    shelf.put(row("plain", 100, given={"status": "verified", "measurement": None}))
    (path,) = (path for path in shelf.results.rglob("*.jsonl") if '"check"' in path.read_text("utf-8"))
    path.rename(path.with_name(path.name.replace("-toy-", "-other-")))
    assert newest_rows(shelf.results, "toy", {"toy.plain[n=64]"}) == ([], [])


def test_a_newer_skip_hides_no_figure_but_a_newer_failure_does(shelf):
    none = {"measurement": None, "reason": "r", "message": "M."}
    shelf.put(row("plain", 100), row("tiled", 100), day=1)
    shelf.put(
        row("plain", 1, given={**none, "status": "skipped"}),
        row("tiled", 1, given={**none, "status": "failed"}),
        day=2,
    )
    found, _ = newest_rows(shelf.results, "toy", {"toy.plain[n=64]", "toy.tiled[n=64]"})
    assert {each.row.kernel: each.row.status for each in found} == {"plain": "measured", "tiled": "failed"}


def test_a_damaged_record_is_told_and_the_others_are_read(shelf, harness):
    shelf.put(row("plain", 64), day=1)
    broken = shelf.put(row("plain", 32), day=2)
    broken.write_text("nonsense\n", encoding="utf-8")
    done = harness("report", "ladder", "first")
    assert done.status == ExitCode.FINE
    assert "is no run record" in done.err
    assert ["plain", "10", "1.0x", "2.50", "8.000", "1.0x", "0.800"] in lines_of(done.out)


# The report


def test_without_records_there_are_dashes_and_the_command_to_run(laddered, harness):
    done = harness("report", "ladder")
    assert done.status == ExitCode.FINE
    assert ["plain", "10", "1.0x", "2.50", DASH] in lines_of(done.out)
    assert ["64", "Old card", "8", "2", "1", "9", "4x"] in lines_of(done.out)
    assert ["ours", DASH, DASH, DASH, DASH, DASH] in lines_of(done.out)
    assert ["ours", WITH, "--slow", DASH, DASH, DASH] in lines_of(done.out)
    assert "harness report ladder --measure" in done.out
    assert "A note." in done.out


def test_figures_of_other_sources_are_marked_and_named(shelf, harness):
    shelf.put(row("plain", 64), day=8)
    shelf.put(row("tiled", 32), day=9, stale=True)
    done = harness("report", "ladder", "first")
    assert re.search(r"^tiled .* 16\.00\* ", done.out, re.MULTILINE)
    assert re.search(r"^plain .* 8\.000 ", done.out, re.MULTILINE)
    assert re.search(
        r"^\* at 0000000000, .* when the suite's files were others: tiled$", done.out, re.MULTILINE
    )
    assert re.search(rf"^at {shelf.source.commit[:10]}, \d+ days ago$", done.out, re.MULTILINE)


def test_each_device_has_a_table_and_may_be_asked_for(shelf, harness):
    other = dataclasses.replace(CARD, spec="cuda:1", name="Other card")
    shelf.put(row("plain", 64))
    shelf.put(row("plain", 128), machine="other", device=other)
    both = harness("report", "ladder", "first").out
    assert "Ours: New card (cuda:0)" in both
    assert "Ours: Other card (cuda:1)" in both
    alone = harness("report", "ladder", "first", "--device", "cuda:1").out
    assert "New card" not in alone
    assert "Other card" in alone


def test_a_failure_is_told_in_place_of_a_figure(shelf, harness):
    failed = {"status": "failed", "measurement": None, "reason": "wrong-result", "message": "It is wrong."}
    shelf.put(row("plain", 64), row("tiled", 1, given=failed))
    done = harness("report", "ladder", "first")
    assert ["tiled", "40", "4.0x", "10.0", DASH] in lines_of(done.out)
    assert "tiled: wrong-result. It is wrong." in done.out


def test_a_failure_turns_no_terminal_around(shelf, harness):
    failed = {"status": "failed", "measurement": None, "reason": "error", "message": "\x1b[2J\u202eno\nway"}
    shelf.put(row("plain", 64), row("tiled", 1, given=failed))
    assert "tiled: error. \ufffd[2J\ufffdno\nway\n" in harness("report", "ladder", "first").out


def test_the_share_of_a_vendors_kernel_is_shown_with_its_name(shelf, harness):
    share = LibraryShare(kernel="vendors", share=0.5, quads=9, library_time_ns=32)
    shelf.put(row("plain", 64, given={"library": share}))
    done = harness("report", "ladder", "first")
    assert ["plain", "10", "1.0x", "2.50", "8.000", "1.0x", "0.800", "50.0"] in lines_of(done.out)
    assert "% lib: of vendors, measured alternately" in done.out


def test_a_card_is_held_against_the_host_size_by_size(shelf, harness):
    shelf.put(row("tiled", 32), row("plain", 16), row("tiled", 4096, 4096))
    shelf.put(row("host", 320), row("numpy", 160), machine="cpu", device=PROCESSOR)
    found = lines_of(harness("report", "ladder", "held").out)
    assert ["64", "Old card", "8", "2", "1", "9", "4x"] in found
    # The author's kernel stands for the card though another is faster.
    assert ["cuda:0", "0.0003200", "1.600", "3.20e-5", "16.00", "10.0x", "3.200"] in found
    assert ["cuda:0", WITH, "--slow", "0.004096", "8.000", DASH] in found
    faster = harness("report", "ladder", "held", "--against", "plain").out
    assert ["cuda:0", "0.0003200", "1.600", "1.60e-5", "32.00", "20.0x", "3.200"] in lines_of(faster)
    assert "cuda:0: New card, plain" in faster


def test_where_the_authors_kernel_does_not_run_the_fastest_stands_for_the_card(shelf, harness):
    shelf.put(row("plain", 16))
    shelf.put(row("host", 320), machine="cpu", device=PROCESSOR)
    assert ["cuda:0", "0.0003200", "1.600", "1.60e-5", "32.00", "20.0x", DASH] in lines_of(
        harness("report", "ladder", "held").out
    )


def test_the_host_of_another_machine_is_not_taken(shelf, harness):
    shelf.put(row("tiled", 32))
    elsewhere = dataclasses.replace(BOX, cpu="Another CPU")
    path = shelf.put(row("host", 320), machine="cpu", device=PROCESSOR)
    text = path.read_text("utf-8").replace(f'"cpu":"{BOX.cpu}"', f'"cpu":"{elsewhere.cpu}"')
    path.write_text(text, encoding="utf-8")
    assert ["cuda:0", DASH, DASH, "3.20e-5", "16.00", DASH] in lines_of(
        harness("report", "ladder", "held").out
    )


def test_other_sizes_have_the_authors_figures_only_where_the_ladder_has_one_size(shelf, harness):
    shelf.put(row("plain", 128, 128), row("tiled", 64, 128))
    done = harness("report", "ladder", "--size", "128")
    assert ["plain", "10", "1.0x", "2.50", "8.000", "1.0x", "0.800"] in lines_of(done.out)
    assert "Ours: New card (cuda:0), size 128" in done.out
    assert "Author: Old card, size 64." in done.out
    assert ["128", "cuda:0", DASH, DASH, "6.40e-5", "16.00", DASH] in lines_of(done.out)


def test_json_says_what_the_tables_say(shelf, harness):
    shelf.put(row("plain", 64), row("tiled", 32), stale=True)
    first, held = harness("report", "ladder", "--json").json
    assert (first["suite"], first["ladder"], first["unit"], first["card"]) == (
        "toy",
        "first",
        "GB/s",
        "Old card",
    )
    tiled = first["rungs"][1]
    assert tiled["published"] == {
        "rate": 40,
        "average": None,
        "time_ms": None,
        "speed_up": 4,
        "peak_percent": 10,
    }
    (ours,) = tiled["ours"]
    assert (ours["device"], ours["rate"], ours["speed_up"], ours["stale"]) == ("cuda:0", 16, 2, True)
    assert held["held_against"]["card"]["64"]["kernel"] == "tiled"


def test_every_line_fits_a_terminal_of_80_columns(shelf, harness):
    long = {"status": "failed", "measurement": None, "reason": "r", "message": "A long message. " * 20}
    shelf.put(row("plain", 64), row("tiled", 1, given=long), stale=True)
    shelf.put(row("host", 1e9), row("numpy", 1e9), machine="cpu", device=PROCESSOR)
    for line in harness("report", "ladder").out.splitlines():
        assert len(line) <= 80, line


def test_the_real_ladders_fit_a_terminal_of_80_columns(harness, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(report_ladder_command, "demands", asked)
    done = harness("report", "ladder", "--results", str(tmp_path))
    assert "harness sweep matmul.schedule" in done.out
    assert (
        "on GeForce RTX 3060 (sm_86, 28 multiprocessors)" in done.out
    )  # of the one author whose card is known
    assert "thread_tiling_2d_as_published   255" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def asked(suite, planned, card):
    """What compilers would say, at once."""
    usage = Usage(registers=255, shared_bytes=32_768, spill_store_bytes=0, spill_load_bytes=0)
    held = residency(card, Launch(grid=(2**20, 1, 1), block=(64, 1, 1)), 255, 32_768)
    return [Demand(planned=each, usage=usage, residency=held, problems=("why " * 40,)) for each in planned]


def test_a_card_is_asked_for_by_name(shelf, harness, monkeypatch):
    monkeypatch.setattr(report_ladder_command, "demands", asked)
    shelf.put(row("plain", 64))
    assert (
        "multiprocessors" not in harness("report", "ladder", "toy.first").out
    )  # the author's card is not known
    told = harness("report", "ladder", "toy.first", "--card", "h200").out
    assert "on H200 (sm_90, 132 multiprocessors)" in told
    assert "e+" not in told  # 1,324 waves
    assert "| 255 |" in harness("report", "ladder", "toy.first", "--card", "h200", "--format", "markdown").out
    (first,) = harness("report", "ladder", "toy.first", "--card", "sm_86:28", "--json").json
    assert first["demands"]["card"]["multiprocessors"] == 28
    assert {case["usage"]["registers"] for case in first["demands"]["cases"]} == {255}
    (first,) = harness("report", "ladder", "toy.first", "--json").json
    assert first["demands"] is None
    wrong = harness("report", "ladder", "--card", "h300")
    assert (wrong.status, wrong.out) == (2, "")
    assert "'h300' is no card that is known: rtx3060" in wrong.err


def test_markdown_is_tables_with_every_rungs_idea(shelf, laddered):
    shelf.put(row("plain", 64))
    suite = load_folder(laddered.suite)
    ladder = suite.ladders[0]
    rows, _ = newest_rows(shelf.results, "toy", {"toy.plain[n=64]"})
    lines = [
        dataclasses.replace(each, kernel=dataclasses.replace(each.kernel, about="It is so."))
        for each in placed(suite, ladder)
    ]
    report = ladder_report(suite, shelf.source.tree_sha256, ladder, lines, rows)
    text = markdown(report)
    assert text.startswith("### Plain, then tiled\n")
    assert f"at {shelf.source.commit[:10]}, measured 2026-01-08" in text
    tables = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    assert len({len(cells) for cells in tables}) == 1
    assert tables[0][-2].strip() == "idea"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "No suite or ladder is called 'nosuch'. Ladders: toy.first, toy.held."),
        (["--against", "nosuch"], "no such kernel"),
        (["--size", "1,2"], "Size 1x2 has 2 numbers"),
        (["--device", "nosuch"], "Unknown device 'nosuch'"),
    ],
)
def test_wrong_usage_is_told(laddered, harness, arguments, words):
    done = harness("report", "ladder", *arguments)
    assert done.status == ExitCode.USAGE
    assert words in done.err


def test_a_project_without_ladders_is_told_how_to_have_one(project, harness):
    done = harness("report", "ladder")
    assert done.status == ExitCode.USAGE
    assert "Suite(ladders=[Ladder(...)])" in done.err


def test_the_other_report_still_takes_files_and_nothing(project, harness):
    assert "No comparison is stored" in harness("report").err
    assert "nosuch.jsonl" in harness("report", "nosuch.jsonl").err
    help_text = harness("report", "--help").out
    assert "[OPTIONS] [RECORD]..." in help_text
    assert "ladder " in help_text


# Measuring


def test_what_is_missing_is_measured_once(laddered, harness):
    asked = ("report", "ladder", "first", "--device", "null", "--measure")
    done = harness(*asked)
    assert done.status == ExitCode.FINE, done.err
    assert "toy.plain@64: measured" in done.err
    assert "Ours: " in done.out
    assert DASH not in done.out
    again = harness(*asked)
    assert "measured" not in again.err
    assert again.out == done.out


def test_what_is_of_other_sources_is_measured_again(laddered, harness):
    asked = ("report", "ladder", "first", "--device", "null", "--measure")
    harness(*asked)
    assert "files were others" not in harness(*asked[:-1]).out
    laddered.write({"kernels/toy/plain.cu": toy.BODY.format(name="plain") + "// new\n"})
    assert "files were others" in harness(*asked[:-1]).out
    assert "toy.plain@64: measured" in harness(*asked).err


def test_nobody_gets_made_up_times_without_asking(shelf, harness):
    null = dataclasses.replace(CARD, spec="null:0", backend="null")
    shelf.put(row("plain", 64), machine="null", device=null)
    assert "8.000" not in harness("report", "ladder", "first").out
    assert "8.000" in harness("report", "ladder", "first", "--device", "null").out


def test_the_host_is_measured_but_for_what_is_slow(laddered, harness):
    done = harness("report", "ladder", "held", "--device", "cpu:0", "--measure")
    assert done.status == ExitCode.FINE, done.err
    measured = re.findall(r"^toy\.(\w+@\d+): measured", done.err, re.MULTILINE)
    assert measured == ["host@64", "numpy@64", "numpy@4096"]
    done = harness("report", "ladder", "held", "--device", "cpu:0", "--measure", "--slow")
    assert re.findall(r"^toy\.(\w+@\d+): measured", done.err, re.MULTILINE) == ["host@4096"]
    assert "--slow" not in done.out


def test_a_wrong_result_is_a_regression(laddered, harness, null_script):
    null_script({"toy.tiled": {"fault": "wrong"}})
    done = harness("report", "ladder", "first", "--device", "null", "--measure")
    assert done.status == ExitCode.REGRESSION
    assert "tiled: wrong-result" in done.out


# Sweeps


def test_rungs_of_a_sweep_come_from_the_newest_that_came_to_its_end(shelf, harness, tmp_path):
    """Of four configurations two share their code: the one that was not measured has the other's figure."""
    root = ROOT / "kernels" / "matmul"
    loaded = load(root)
    suite, kernel = loaded.suite, loaded.suite.by_name["schedule"]
    assert kernel.tune
    every = configurations(suite, kernel, kernel.tune, points(suite, kernel.tune))

    def write(day: int, factor: float, *, complete: bool) -> None:
        sweep = Sweep(
            harness_version="1",
            sweep_id=f"{day:016}",
            started_at=f"2026-01-{day:02}T12:00:00+00:00",
            source=loaded.source,
            kernel="schedule",
            parameters=tuple(every[0].parameters),
            total=len(every),
            device=CARD,
            devices=("cuda:0",),
            toolchain=None,
            host=BOX,
            settings=SweepSettings(),
            peaks={"float32": 1000.0},
        )
        with SweepJournal(tmp_path / "card" / "sweeps", sweep) as journal:
            for each in every:
                # The second pattern becomes the same code as the first.
                duplicate = each.parameters["PATTERN"] == "k_after_threads"
                code = str((each.number - 1) if duplicate else each.number)
                journal.add(PreparedConfiguration(number=each.number, code=code))
                if not duplicate:
                    flop = 2 * each.sizes["m"] ** 3
                    time_ns = factor * flop / (each.sizes["m"] / 8)
                    journal.add(SweepRow(configuration=each, status="measured", time_ns=time_ns, flop=flop))
            if complete:
                journal.finish()

    write(1, 1, complete=True)
    write(2, 2, complete=True)
    write(3, 4, complete=False)
    done = harness("report", "ladder", "schedule_sweep", "--results", str(tmp_path), cwd=ROOT)
    found = lines_of(done.out)
    # 64 GFLOP/s at 512 and 128 at 1024, halved.
    assert ["standard", "19", "68", "2.21", "48.00", "64.00", "6.40"] in found
    assert ["k_after_threads", "19", "68", "2.21", "48.00", "64.00", "6.40"] in found
    assert "harness sweep" not in done.out


# What takes long, and what stands for a card


def line_at(n: int, **given: Any) -> LadderLine:
    suite = load_folder(KERNELS / "matmul")
    ladder = Ladder("a", "T", [Rung("r", **{"kernel": "naive", "sizes": n, **given})])
    return placed(suite, ladder)[0]


@pytest.mark.parametrize(
    ("backend", "kind", "n", "slow"),
    [
        ("cuda", "gpu", 8192, False),
        ("opencl", "gpu", 8192, False),
        ("opencl", "cpu", 1024, False),
        ("opencl", "cpu", 2048, True),
        ("opengl", "other", 4096, True),
        ("null", "other", 4096, False),
    ],
)
def test_large_matrices_are_slow_where_there_is_no_card(backend, kind, n, slow):
    suite = load_folder(KERNELS / "matmul")
    device = dataclasses.replace(CARD, backend=backend, kind=kind)
    assert is_slow(line_at(n), suite, device) is slow


def test_what_says_that_it_is_slow_is_slow_anywhere_and_the_hosts_own_only_then():
    suite = load_folder(KERNELS / "matmul")
    assert is_slow(line_at(64, slow=True), suite, CARD)
    assert not is_slow(line_at(4096, kernel="cpu_blas", backend="cpu"), suite, PROCESSOR)


def test_the_fastest_at_the_largest_size_stands_for_a_card_and_no_library_does(shelf, laddered):
    shelf.put(row("plain", 1), row("tiled", 64, 4096), row("plain", 128, 4096))
    suite = load_folder(laddered.suite)
    cases = {f"toy.{name}[n={n}]" for name in ("plain", "tiled") for n in (64, 4096)}
    rows, _ = newest_rows(shelf.results, "toy", cases)
    ladder = suite.ladders[1]
    found = fastest(suite, ladder, rows)
    assert found
    assert found.name == "tiled"
    vendors = [dataclasses.replace(k, library=k.name == "tiled") for k in suite.kernels]
    found = fastest(dataclasses.replace(suite, kernels=vendors), ladder, rows)
    assert found
    assert found.name == "plain"
    assert fastest(suite, ladder, []) is None


def test_an_interrupted_measurement_keeps_what_it_has(laddered, harness, monkeypatch):
    class Interrupted(ProgressObserver):
        def finished(self, row: Row) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("harness.cli.report_ladder_command.ProgressObserver", Interrupted)
    done = harness("report", "ladder", "first", "--device", "null", "--measure")
    assert done.status == ExitCode.INTERRUPTED
    assert "Interrupted" in done.err
    assert re.search(r"^plain .* 1\.0x", done.out, re.MULTILINE)
    assert re.search(rf"^tiled .* {DASH}", done.out, re.MULTILINE)


def test_vendors_kernels_of_the_same_types_stand_below_a_ladder_at_its_sizes():
    suite = load_folder(KERNELS / "matmul")
    ladders = {ladder.name: placed(suite, ladder) for ladder in suite.ladders}
    assert {line.kernel.name: line.sizes["m"] for line in ladders["cuda"] if line.reference} == {
        **dict.fromkeys(("cublas", "cublas_f16", "cutlass", "cutlass_f16"), 4096)
    }
    # CUTLASS is a rung there.
    assert [line.kernel.name for line in ladders["to_cutlass"] if line.reference] == ["cublas"]
    sizes = [
        line.sizes["m"] for line in ladders["schedule"] if line.reference and line.kernel.name == "cublas"
    ]
    assert sizes == [512, 1024, 2048]
    assert not [line for line in (*ladders["shader"], *ladders["schedule_sweep"]) if line.reference]


# What is written about it


@pytest.mark.parametrize("kind", [Rung, Ladder])
def test_every_field_is_documented(kind):
    text = (ROOT / "docs" / "suites.md").read_text("utf-8")
    table = text.partition(f"| Of a `{kind.__name__}` |")[2].partition("\n\n")[0]
    documented = [
        name for cells in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in cells.split(", ")
    ]
    assert sorted(name.strip("`") for name in documented) == sorted(f.name for f in dataclasses.fields(kind))


def test_every_key_of_our_figures_is_documented(shelf, harness):
    shelf.put(row("plain", 64))
    (first, _) = harness("report", "ladder", "--json").json
    text = (ROOT / "docs" / "commands.md").read_text("utf-8").partition("## harness report ladder")[2]
    table = text.partition("| Key | |")[2].partition("\n\n")[0]
    documented = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert documented == [*dict.fromkeys(documented)]
    assert set(documented) == set(first["rungs"][0]["ours"][0])
    told = re.findall(r"`(\w+)`", text.partition("With `--json` the output is")[2].partition("| Key")[0])
    assert set(told) == {*first, *first["rungs"][0]}
