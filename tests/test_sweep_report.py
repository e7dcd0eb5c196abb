"""Output of sweeps that were made by hand: tables, heat map, page, JSON, and files for Kernel Tuner."""

from __future__ import annotations

import dataclasses
import errno
import html
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from harness import Case, Kernel, Tuning, ceil_div
from harness.device.backends import null
from harness.errors import StoreError, SuiteError
from harness.numbers import typeset
from harness.records.sweep_types import Configuration, Final, Sweep, SweepResult, SweepRow, SweepSettings
from harness.records.types import Effect, Host, Launch, Resources, Source, Toolchain
from harness.report.table import SHADES, Sheet
from harness.report.terminal import sweeps
from harness.report.terminal.run_tables import STYLES, print_out
from harness.report.terminal.sweeps import write_page
from harness.run.sweep.t4_files import t4_results, write_t4
from tests.support import ROOT

SCHEMA = json.loads((ROOT / "tests/schemas/kernel_tuner/results-schema.json").read_text("utf-8"))
DOCUMENT = (ROOT / "docs" / "sweep.md").read_text("utf-8")

DEVICE = dataclasses.replace(
    null.devices()[0], spec="cuda:0", name="NVIDIA H200", driver="580.95", compute_units=132
)
SWEEP = Sweep(
    harness_version="0.1",
    sweep_id="0123456789abcdef",
    started_at="2026-01-01T00:00:00+00:00",
    source=Source(suite="matmul", path="kernels/matmul", commit="abcdef0123456789"),
    kernel="schedule",
    parameters=("PATTERN", "BM", "BN"),
    total=6,
    device=DEVICE,
    devices=("GPU-1",),
    toolchain=Toolchain(compiler="nvcc 13.0"),
    host=Host(os="Linux", kernel="6", cpu="x", cpu_count=2, memory_bytes=2**34, python="3.11"),
    settings=SweepSettings(),
    peaks={"float32": 1000.0, "memory": 500.0},
    groups={"pattern": ("PATTERN",), "tile": ("BM", "BN")},
)
FLOP = 2_000_000
"""At a time of t ns the rate is 2e6 / t GFLOP/s: 10,000 ns are 200."""


def row(number, pattern="first", tile=(32, 32), *, size=512, time_ns=None, **given):
    parameters = {"PATTERN": pattern, "BM": tile[0], "BN": tile[1]}
    configuration = Configuration(
        number=number,
        case=f"matmul.schedule[m={size},n={size}]",
        sizes={"m": size, "n": size},
        parameters=given.pop("parameters", parameters),
    )
    if time_ns is not None:
        given = {
            "status": "measured",
            "time_ns": time_ns,
            "time_low_ns": 0.99 * time_ns,
            "time_high_ns": 1.01 * time_ns,
            "flop": FLOP,
            "moved_bytes": 1_000_000,
            "launch": Launch(grid=(4, 4, 1), block=(8, 4, 1)),
            "resources": Resources(registers=40 + number),
            **given,
        }
    return SweepRow(configuration=configuration, **given)


def paired(effect, half=0.002):
    return Effect(effect=effect, low=effect - half, high=effect + half, processes=1, quads=40)


ROWS = (
    row(1, "first", (32, 32), time_ns=40_000.0),
    row(2, "first", (32, 64), time_ns=20_000.0, round=1, behind=paired(0.25)),
    row(3, "second", (32, 32), time_ns=10_000.0, round=2, behind=paired(0.001)),
    row(4, "second", (32, 64), time_ns=10_100.0, round=2),
    row(5, "second", (64, 64), status="rejected", reason="rule", message="BM < 64 does not hold: BM = 64."),
    row(6, "first", (64, 64), time_ns=40_000.0, same_as=1),
)
FINAL = Final(
    sizes={"m": 512, "n": 512},
    number=4,
    time_ns=8_000.0,
    process_times_ns=(7_960.0, 8_000.0, 8_040.0),
    tied=(3,),
)
RESULT = SweepResult(sweep=SWEEP, rows=ROWS, finals=(FINAL,), complete=True)
EMPTY = SweepResult(sweep=dataclasses.replace(SWEEP, total=6), rows=(), finals=())


def with_rows(*rows, total=None, finals=(), **given):
    sweep = dataclasses.replace(SWEEP, total=total or len(rows))
    return SweepResult(sweep=sweep, rows=rows, finals=finals, **given)


def told(tables, width=80, **options):
    """Return the text that a terminal of this width shows."""
    file = io.StringIO()
    out = Console(width=width, file=file, **options)
    for table in tables:
        print_out(table, out)
    return file.getvalue()


def tables(result, width=80):
    return told(sweeps.sweep_tables(result), width)


def line(text, start):
    return next(re.split(r"\s{2,}", each.strip()) for each in text.splitlines() if each.startswith(start))


def table_of(text, title):
    """The lines of one table, below its title."""
    return text[text.index(title) :]


# Tables


def test_rates_by_group_are_those_worked_out_by_hand():
    text = table_of(tables(RESULT), "by pattern (PATTERN), GFLOP/s")
    # first: 50, 100 and the double's 50; second: 200, and the winner's 250 of its fresh processes.
    assert line(text, "first") == ["first", "3 of 3", "66.67", "100.0", "10.0", "512", "2"]
    assert line(text, "second") == ["second", "2 of 3", "225.0", "250.0", "25.0", "512", "4"]
    text = table_of(text, "by tile (BM, BN), GFLOP/s")
    assert line(text, "32x32") == ["32x32", "2 of 2", "125.0", "200.0", "20.0", "512", "3"]
    assert line(text, "64x64") == ["64x64", "1 of 2", "50.00", "50.00", "5.00", "512", "6"]


def test_averages_of_several_sizes_stand_beside_the_overall_one():
    result = with_rows(*ROWS[:4], row(7, "first", size=1024, time_ns=4_000.0))
    text = tables(result, 120)
    assert line(table_of(text, "by pattern"), "first") == [
        "first", "3 of 3", "216.7", "500.0", "50.0", "1024", "7", "75.00", "500.0",
    ]  # fmt: skip
    assert "avg 1024" in text


def test_a_parameter_in_no_group_is_a_group_of_its_own():
    sweep = dataclasses.replace(SWEEP, groups={})
    text = tables(dataclasses.replace(RESULT, sweep=sweep), 120)
    assert "by BM, GFLOP/s" in text
    assert "PATTERN=second BM=32 BN=64" in text


def test_the_best_are_ranked_by_pairs_and_ties_are_marked():
    text = table_of(tables(RESULT, 120), "best at 512")
    ranked = [re.split(r"\s{2,}", each.strip()) for each in text.splitlines()[2:6]]
    assert ranked == [
        ["1", "second 32x64", "250.0", "0.50", "25.0", "best", "32", "44", "4"],
        ["2 =", "second 32x32", "200.0", "1.00", "20.0", "+0.10 ±0.20", "32", "43", "3"],
        ["3", "first 32x64", "100.0", "1.00", "10.0", "+25.0 ±0.20", "32", "42", "2"],
        ["4", "first 32x32", "50.00", "1.00", "5.00", "32", "41", "1", "6"],
    ]


def test_pairs_outrank_times_of_screening():
    rows = (
        row(1, time_ns=10_000.0, round=1),
        row(2, time_ns=9_000.0, round=1, behind=paired(0.5)),
        row(3, time_ns=11_000.0),
    )
    text = table_of(tables(with_rows(*rows)), "best at 512").splitlines()[2:5]
    assert [each.split()[2] for each in text] == ["32x32"] * 3
    assert [each.split()[3] for each in text] == ["200.0", "181.8", "222.2"]


def test_ten_of_many_are_shown():
    rows = [row(number, tile=(number, 1), time_ns=1000.0 * number) for number in range(1, 31)]
    text = table_of(tables(with_rows(*rows)), "best at 512, 10 of 30")
    assert [each.split()[0] for each in text.splitlines()[2:12]] == [str(place) for place in range(1, 11)]
    assert text.splitlines()[12] == "best configuration of each size"


def test_the_best_of_each_size_says_how_it_was_measured():
    result = with_rows(*ROWS, row(7, size=1024, time_ns=4_000.0), finals=(FINAL,))
    text = table_of(tables(result, 120), "best configuration of each size")
    shown = [re.split(r"\s{2,}", each.strip()) for each in text.splitlines()[2:4]]
    assert shown == [
        ["512", "second 32x64", "250.0", "25.0", "32", "0.008000", "in 3 fresh processes", "no. 3"],
        ["1024", "first 32x32", "500.0", "50.0", "32", "0.004000", "when screened"],
    ]


def test_what_became_of_the_configurations_adds_up():
    failed = row(7, status="failed", reason="timed-out", message="No answer in 60 s.")
    refused = [
        row(8 + at, status="rejected", reason="launch-refused", message=f"{at + 2},048 threads are too many.")
        for at in range(2)
    ]
    text = tables(with_rows(*ROWS, failed, *refused, total=20))
    assert "matmul.schedule at abcdef0123 on NVIDIA H200 (cuda:0): 20 configurations, not complete" in text
    shown = [re.split(r"\s{2,}", each.strip()) for each in text.splitlines()[2:8]]
    assert shown == [
        ["4", "measured"],
        ["1", "identical", "to another of its size"],
        ["1", "rejected", "BM < 64"],
        ["2", "rejected", "launch-refused: … threads are too many."],
        ["1", "failed", "timed-out"],
        ["11", "not reached"],
    ]


def test_each_failed_configuration_is_one_line():
    message = "nvcc does not compile this.\nIt goes on " + "and on " * 40
    rows = [row(n, tile=(n, n), status="failed", reason="build-failed", message=message) for n in range(1, 6)]
    text = table_of(tables(with_rows(*ROWS[:1], *rows)), "\nfailed\n")
    lines = text.splitlines()[3:8]
    assert [each.split()[0] for each in lines] == ["1", "2", "3", "4", "5"]
    assert all("nvcc does not compile" in each and each.rstrip().endswith("…") for each in lines)


def test_rates_are_bytes_where_operations_are_not_counted():
    text = tables(with_rows(row(1, time_ns=4_000.0, flop=None)))
    assert "by pattern (PATTERN), GB/s" in text
    assert line(table_of(text, "by pattern"), "first")[2:5] == ["250.0", "250.0", "50.0"]
    text = tables(with_rows(row(1, time_ns=4_000.0, flop=None, moved_bytes=None)))
    assert line(table_of(text, "by pattern (PATTERN), launches/s"), "first")[2:4] == ["250,000", "250,000"]


def test_without_a_peak_nothing_is_said_of_it():
    sweep = dataclasses.replace(SWEEP, peaks={})
    result = dataclasses.replace(RESULT, sweep=sweep)
    assert "% peak" not in tables(result) + sweeps.sweep_page(result)
    assert "% peak" in tables(RESULT)
    assert "% peak" in sweeps.sweep_page(RESULT)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("many", [False, True])
def test_nothing_is_wider_than_the_terminal(width, many):
    rows = ROWS
    if many:
        rows = tuple(
            row(n, "a_pattern_with_a_long_name", (n % 13, n // 13), size=2 ** (5 + n % 3), time_ns=1e6 / n)
            for n in range(1, 200)
        )
    shown = tables(with_rows(*rows), width) + told(sweeps.heat_map(with_rows(*rows), width), width)
    titles = {"best", "by", "matmul.schedule", "GFLOP/s", "launches/s"}
    for each in shown.splitlines():
        assert len(each) <= width or each.split()[0] in titles, each


def test_eighty_columns_hold_what_matters():
    text = tables(RESULT, 80)
    for heading in ("GFLOP/s", "±%", "% peak", "behind, %", "threads", "regs"):
        assert heading in table_of(text, "best at 512")


# Heat map


def test_the_heat_map_has_a_number_in_each_cell():
    text = told(sweeps.heat_map(RESULT, 80))
    assert text.startswith("GFLOP/s at 512, pattern across\n")
    assert line(text, "tile") == ["tile", "first", "second"]
    assert line(text, "32x32") == ["32x32", "50.0", "200"]
    assert line(text, "32x64") == ["32x64", "100", "250*"]
    assert line(text, "64x64") == ["64x64", "50.0", "-"]
    assert "* best" in text
    assert "- rejected" in text


def test_other_groups_make_parts_of_the_heat_map():
    sweep = dataclasses.replace(SWEEP, groups={})
    rows = [
        row(n, pattern, (bm, bn), time_ns=1000.0 * n)
        for n, (pattern, bm, bn) in enumerate(
            [(p, bm, bn) for p in ("first", "second") for bm in (1, 2, 3) for bn in (4, 5, 6)], 1
        )
    ]
    text = told(sweeps.heat_map(dataclasses.replace(with_rows(*rows), sweep=sweep), 80))
    assert [each.split()[0] for each in text.splitlines() if "   " in each][1:7] == [
        "first", "2", "3", "second", "2", "3",
    ]  # fmt: skip


def test_too_many_parts_are_one_with_the_best_of_each():
    sweep = dataclasses.replace(SWEEP, groups={}, parameters=("A", "B", "C"))
    rows = [
        row(n, parameters={"A": n % 14, "B": n // 14 % 14, "C": n // 196 % 13}, time_ns=1000.0 * (n + 1))
        for n in range(14 * 14 * 13)
    ]
    text = told(sweeps.heat_map(dataclasses.replace(with_rows(*rows), sweep=sweep), 200), 200)
    assert text.startswith("GFLOP/s at 512, each the best over C, B across")
    assert "2,000*" in text


def test_columns_that_have_no_room_go_on_in_another_table():
    rows = [row(n, tile=(n % 15, n // 15), time_ns=1000.0 * (n + 1)) for n in range(225)]
    sweep = dataclasses.replace(SWEEP, groups={})
    result = dataclasses.replace(with_rows(*rows), sweep=sweep)
    shown = list(sweeps.heat_map(result, 60))
    parts = [each for each in shown if isinstance(each, Sheet)]
    assert isinstance(legend := shown[-1], Text)
    assert len(parts) > 1
    assert all(part.width <= 60 for part in parts)
    assert all(len(line) <= 80 for line in legend.plain.splitlines())
    assert told(parts, 60).count("2,000*") == 1


def test_one_group_alone_is_one_line():
    sweep = dataclasses.replace(SWEEP, groups={}, parameters=("BM",))
    rows = [row(n, parameters={"BM": n}, time_ns=1000.0 * n) for n in (1, 2)]
    text = told(sweeps.heat_map(dataclasses.replace(with_rows(*rows), sweep=sweep), 80))
    assert text.splitlines()[2].split() == ["2,000*", "1,000"]


def test_what_was_not_tried_and_what_failed_differ():
    rows = (*ROWS[:3], row(4, "second", (64, 64), status="failed", reason="crashed"))
    text = told(sweeps.heat_map(with_rows(*rows), 80))
    assert line(text, "64x64") == ["64x64", ".", "!"]


def escapes(result, **options):
    out = Console(width=80, **options)
    with out.capture() as captured:
        for table in sweeps.heat_map(result, 80):
            print_out(table, out)
    return re.findall(r"\x1b\[([\d;]*)m", captured.get())


def test_colours_are_shown_where_there_are_some_and_only_there(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert any(
        "48;2;253;231;37" in each for each in escapes(RESULT, force_terminal=True, color_system="truecolor")
    )
    assert escapes(RESULT, force_terminal=False) == []
    monkeypatch.setenv("NO_COLOR", "1")
    assert not [each for each in escapes(RESULT, force_terminal=True) if re.match(r"(3|4|9|10)\d", each)]


def luminance(colour):
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_numbers_can_be_read_on_every_colour_and_page_and_terminal_agree():
    names = {"white": "#fff", "black": "#000"}
    of_page = Path(sweeps.__file__).with_name("sweep.css").read_text(encoding="utf-8")
    for level, style in enumerate(STYLES[shade] for shade in SHADES):
        ink, _, ground = style.partition(" on ")
        assert f".l{level} {{ background: {ground}; color: {names[ink]} }}" in of_page
        bright, dark = sorted(
            (luminance(f"{names[ink]}fff"[:7]) if ink == "white" else 0.0, luminance(ground))
        )[::-1]
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, style


@pytest.mark.parametrize(
    ("share", "level"), [(0.0, 0), (0.099, 0), (0.10, 1), (0.5, 3), (0.9699, 5), (0.97, 6), (1.0, 6)]
)
def test_colours_are_shares_of_the_best(share, level):
    assert sweeps.level_of(share) == level
    assert len(sweeps.step_names()) == 7
    assert sweeps.step_names()[0] == "< 10 %"
    assert sweeps.step_names()[-1] == ">= 97 %"


# Sweeps that came to nothing


REJECTED = with_rows(*(dataclasses.replace(ROWS[4], configuration=each.configuration) for each in ROWS))


@pytest.mark.parametrize("result", [EMPTY, REJECTED], ids=["empty", "all rejected"])
def test_a_sweep_without_a_measurement_says_what_became_of_it(result):
    text = tables(result)
    assert "not complete" in text
    assert ("6  not reached" in text) == (result is EMPTY)
    assert ("6  rejected" in text) == (result is REJECTED)
    assert "by pattern" not in text
    assert list(sweeps.heat_map(result, 80)) == []
    assert "Heat map" not in sweeps.sweep_page(result)
    json.loads(msgspec.json.encode(sweeps.as_json(result)))


def test_an_interrupted_sweep_shows_what_it_has():
    text = tables(with_rows(*ROWS[:4], total=138, interrupted=True))
    assert "138 configurations, not complete" in text
    assert "134  not reached" in text
    assert "when screened" in tables(with_rows(*ROWS[:4], total=138), 120)
    page = sweeps.sweep_page(with_rows(*ROWS[:4], total=138, problem="The disk is full."))
    assert "4 of 138 configurations" in page
    assert "The disk is full." in page


# Texts of others


HOSTILE = '[red]x[/red] :smile: <script>alert(1)</script> & "q" \x1b[2J\u202e\r'


@pytest.fixture
def hostile():
    sweep = dataclasses.replace(
        SWEEP,
        kernel=HOSTILE,
        groups={HOSTILE: ("PATTERN",), "tile": ("BM", "BN")},
        device=dataclasses.replace(DEVICE, name=HOSTILE, driver=HOSTILE),
        toolchain=Toolchain(compiler=HOSTILE),
    )
    rows = (
        *(row(n, HOSTILE, (n, n), time_ns=1000.0 * n) for n in (1, 2)),
        row(3, HOSTILE, status="failed", reason="error", message=HOSTILE),
        row(4, HOSTILE, status="rejected", reason="rule", message=f"{HOSTILE} does not hold: no."),
    )
    return dataclasses.replace(with_rows(*rows, problem=HOSTILE), sweep=sweep)


def test_texts_of_others_are_texts_in_the_terminal(hostile):
    shown = tables(hostile, 400) + told(sweeps.heat_map(hostile, 400), 400)
    assert shown.count("[red]x[/red] :smile: <script>") > 8
    assert not set(shown) & set("\x1b\r\u202e")


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def tags(page):
    parser = Tags()
    parser.feed(page)
    return parser.found


def test_texts_of_others_are_texts_on_the_page(hostile):
    page = sweeps.sweep_page(hostile)
    assert page.count("&lt;script&gt;") > 8
    assert {tag for tag, _ in tags(page)} & {"script", "img", "link", "iframe"} == set()
    assert not set(page) & set("\x1b\r\u202e")
    known = {
        "class",
        "scope",
        "lang",
        "charset",
        "content",
        "name",
        "http-equiv",
        "aria-label",
        "role",
        "align",
    }
    assert {name for _, attributes in tags(page) for name in attributes} <= known | {
        "tabindex",
        "rowspan",
        "title",
    }


# The page


def test_the_page_needs_nothing_else():
    page = sweeps.sweep_page(RESULT)
    assert not re.search(r"\b(src|href|url|import|on\w+)\s*[=(]", page)
    (policy,) = [a["content"] for tag, a in tags(page) if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_tables_of_the_page_can_be_heard():
    page = sweeps.sweep_page(RESULT)
    found = tags(page)
    tables_, captions = (sum(tag == name for tag, _ in found) for name in ("table", "caption"))
    assert tables_ == captions == 6
    scopes = [attributes.get("scope") for tag, attributes in found if tag == "th"]
    assert set(scopes) == {"col", "row"}
    regions = [attributes for tag, attributes in found if attributes.get("role") == "region"]
    assert len(regions) == tables_
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in regions)
    # A number stands in every cell that has a colour.
    coloured = re.findall(r'<td class="l\d">([^<]*)</td>', page)
    assert coloured == ["50.0", "200", "100", "250*", "50.0"]


def test_the_page_says_what_the_terminal_says():
    page = html.unescape(re.sub(r"<[^>]+>", " ", sweeps.sweep_page(RESULT)))
    for sheet in sweeps.sheets(RESULT):
        assert sheet.title in page
        for column in sheet.columns:
            assert all(typeset(cell) in page for cell in column.texts)


def test_a_page_that_cannot_be_written_is_an_error_of_the_store(tmp_path):
    write_page(RESULT, tmp_path / "new" / "sweep.html")
    assert (tmp_path / "new" / "sweep.html").read_text("utf-8").startswith("<!doctype html>")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Cannot write"):
        write_page(RESULT, tmp_path / "file" / "sweep.html")


# JSON


def test_the_json_has_records_and_what_follows_from_them():
    found = json.loads(msgspec.json.encode(sweeps.as_json(RESULT)))
    assert (found["unit"], found["complete"], found["interrupted"]) == ("GFLOP/s", True, False)
    assert [each["row"]["configuration"]["number"] for each in found["rows"]] == [1, 2, 3, 4, 5, 6]
    assert found["rows"][3]["summary"] == {"time_ms": 0.008, "rate": 250.0, "peak_percent": 25.0}
    assert found["rows"][4]["summary"] is None
    assert [each["label"] for each in found["groups"]["tile"]] == ["32x32", "32x64", "64x64"]
    assert found["groups"]["pattern"][1] == {
        "label": "second",
        "values": {"PATTERN": "second"},
        "configurations": 3,
        "measured": 2,
        "average": 225.0,
        "best": 250.0,
        "best_number": 4,
        "best_size": "512",
        "peak_percent": 25.0,
        "averages": {"512": 225.0},
    }
    assert [(each["number"], each["winner"], each["tied"]) for each in found["best"]["512"]] == [
        (4, True, False),
        (3, False, True),
        (2, False, False),
        (1, False, False),
    ]
    assert found["best"]["512"][3]["same_code"] == [6]
    assert sum(each["configurations"] for each in found["standings"]) == SWEEP.total


def test_keys_of_the_json_are_documented():
    found = sweeps.as_json(RESULT)
    table = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", DOCUMENT[DOCUMENT.index("## JSON") :], re.MULTILINE))
    assert list(table) == list(found)
    for key, of in (("groups", found["groups"]["tile"][0]), ("best", found["best"]["512"][0])):
        assert re.findall(r"`(\w+)`", table[key]) == list(of)
    assert re.findall(r"`(\w+)`", table["rows"]) == ["row", "summary", *found["rows"][0]["summary"]]


def test_what_is_said_of_sweeps_is_so():
    settings = SweepSettings()
    assert (settings.keep, settings.near, settings.most_finalists, settings.final_processes) == (
        0.25,
        0.05,
        8,
        3,
    )
    for told_ in ("fastest quarter", "within 5 %", "at most eight", "three fresh processes", "the ten best"):
        assert told_ in DOCUMENT
    assert (sweeps.BEST, sweeps.PANELS) == (10, 12)
    assert "twelve parts" in DOCUMENT
    for standing, mark in sweeps.LEGEND.items():
        assert standing == "best" or f"`{mark}` " in DOCUMENT


def test_the_documented_tuning_comes_over():
    example = DOCUMENT[DOCUMENT.index("A vector addition") :]
    block = re.findall(r"^```python\n(.*?)^```", example, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(block[0].splitlines()[:2]), names)
    tuning = Tuning.from_kernel_tuner(names["tune_params"], names["restrictions"])
    kernel = eval(block[1], {"Kernel": Kernel, "Tuning": Tuning, "ceil_div": ceil_div})
    assert kernel.tune == tuning
    assert tuning.rules == tuple(names["restrictions"])


# Kernel Tuner's T4


def test_t4_is_what_kernel_tuners_schema_says():
    (document,) = t4_results(RESULT).values()
    jsonschema.validate(document, SCHEMA, jsonschema.Draft202012Validator)
    assert document["schema_version"] == "1.0.0"
    assert document["metadata"] == {
        "timeunit": "milliseconds",
        "kernel_name": "schedule",
        "problem_size": {"m": 512, "n": 512},
        "device_name": "NVIDIA H200",
        "device_driver": "580.95",
        "compiler": "nvcc 13.0",
        "tool": "gpu-harness 0.1",
        "sweep_id": "0123456789abcdef",
        "commit": "abcdef0123456789",
        "complete": True,
    }
    winner, other = document["results"][3], document["results"][2]
    assert winner["configuration"] == {"PATTERN": "second", "BM": 32, "BN": 64}
    assert winner["times"]["runtimes"] == [0.00796, 0.008, 0.00804]
    assert other["times"]["runtimes"] == [0.01]
    measured, screened = (
        {each["name"]: (each["value"], each["unit"]) for each in entry["measurements"]}
        for entry in (winner, other)
    )
    assert measured["time"] == (0.008, "ms")
    assert "time_low" not in measured  # it would be of another time
    assert (screened["time_low"], screened["time_high"]) == ((0.0099, "ms"), (0.0101, "ms"))
    assert (measured["gflops"], measured["registers"]) == ((250.0, "GFLOP/s"), (44, ""))
    assert winner["objectives"] == ["time"]


@pytest.mark.parametrize(
    ("status", "reason", "invalidity"),
    [
        ("rejected", "rule", "constraints"),
        ("rejected", "launch-refused", "constraints"),
        ("failed", "build-failed", "compile"),
        ("failed", "wrong-result", "correctness"),
        ("failed", "timed-out", "timeout"),
        ("failed", "crashed", "runtime"),
        ("failed", "launch-refused", "runtime"),
    ],
)
def test_what_was_not_measured_is_in_t4_with_its_reason(status, reason, invalidity):
    result = with_rows(row(1, status=status, reason=reason, message="So it was."))
    (document,) = t4_results(result).values()
    jsonschema.validate(document, SCHEMA, jsonschema.Draft202012Validator)
    (entry,) = document["results"]
    assert (entry["invalidity"], entry["correctness"], entry["times"]["runtimes"]) == (invalidity, 0, [])
    assert {"name": "reason", "value": reason, "unit": ""} in entry["measurements"]
    assert invalidity in SCHEMA["properties"]["results"]["items"]["properties"]["invalidity"]["enum"]


def test_each_size_is_a_t4_document_of_its_own(tmp_path):
    result = with_rows(*ROWS, row(7, size=1024, time_ns=4_000.0), finals=(FINAL,))
    written = write_t4(result, tmp_path / "out" / "sweep.json")
    assert [path.name for path in written] == ["sweep-512.json", "sweep-1024.json"]
    assert [len(json.loads(path.read_text("utf-8"))["results"]) for path in written] == [6, 1]
    assert write_t4(RESULT, tmp_path / "one.json") == (tmp_path / "one.json",)


def test_t4_that_cannot_be_written_is_an_error_of_the_store(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("harness.system.cache.write_atomically", full)
    with pytest.raises(StoreError, match="No space left on device"):
        write_t4(RESULT, tmp_path / "sweep.json")


# Bringing parameters over from Kernel Tuner


PARAMS: dict[str, list[Any]] = {
    "block_size_x": [16, 32],
    "block_size_y": [1, 2, 4],
    "use_shared": [False, True],
    "layout": ["row", "col"],
}


def case(**macros):
    chosen: dict[str, Any] = {"block_size_x": 32, "block_size_y": 2, "use_shared": 1, "layout": "row"}
    return Case("s", "k", {"n": 64}, "float32", {**chosen, **macros})


def test_parameters_of_kernel_tuner_come_over_as_they_stand():
    tuning = Tuning.from_kernel_tuner(
        PARAMS, ["block_size_x*block_size_y <= 64", "block_size_x > block_size_y "]
    )
    assert tuning.parameters == {
        "block_size_x": (16, 32), "block_size_y": (1, 2, 4), "use_shared": (0, 1), "layout": ("row", "col"),
    }  # fmt: skip
    assert tuning.rules == ("block_size_x*block_size_y <= 64", "block_size_x > block_size_y")


def test_numbers_of_numpy_are_numbers():
    tuning = Tuning.from_kernel_tuner(
        {"x": np.arange(2, 5), "y": [np.int32(7), np.bool_(True)], "z": range(2)}
    )
    assert tuning.parameters == {"x": (2, 3, 4), "y": (7, 1), "z": (0, 1)}
    assert {type(value) for values in tuning.parameters.values() for value in values} == {int}


def few_threads(p):
    return p["block_size_x"] * p["block_size_y"] <= 32


def by_name(block_size_y, block_size_x):
    return block_size_x * block_size_y <= 32


@pytest.mark.parametrize(
    "restriction",
    [
        few_threads,
        [few_threads],
        [lambda p: p["block_size_x"] * p["block_size_y"] <= 32],
        [by_name],
        (by_name, ["block_size_y", "block_size_x"]),
        [(lambda a, b: a * b <= 32, ("block_size_x", "block_size_y"))],
        ["max(block_size_x, 1) * block_size_y <= 32"],
    ],
    ids=["alone", "dict", "lambda", "names", "pair", "lambda pair", "builtin"],
)
def test_restrictions_that_are_functions_work(restriction):
    (rule,) = Tuning.from_kernel_tuner(PARAMS, restriction).rules
    assert callable(rule)
    assert rule(case(block_size_y=1)) is True
    assert rule(case(block_size_y=2)) is False


def test_a_rule_is_called_what_the_restriction_is_called():
    tuning = Tuning.from_kernel_tuner(PARAMS, [few_threads, by_name, "min(block_size_x, 2) == 2"])
    assert [getattr(rule, "__name__", "") for rule in tuning.rules] == [
        "few_threads",
        "by_name",
        "min(block_size_x, 2) == 2",
    ]


def test_no_restrictions_are_no_rules():
    assert Tuning.from_kernel_tuner(PARAMS).rules == ()
    assert Tuning.from_kernel_tuner(PARAMS, []).rules == ()


@pytest.mark.parametrize(
    ("params", "restrictions", "message"),
    [
        ({"x": [0.5, 1.0]}, None, r"'x' has the value 0.5 \(float\)"),
        ({"x": [[1, 2]]}, None, r"'x' has the value \[1, 2\] \(list\)"),
        ({"x": [(1, 2)]}, None, r"\(tuple\)"),
        ({"x": [None]}, None, r"\(NoneType\)"),
        ({"x": ["two words"]}, None, "'two words'"),
        ({"x": "abc"}, None, "expected values"),
        ({"x": 3}, None, "expected values"),
        ({"x": []}, None, "expected values"),
        ({"x y": [1]}, None, "no identifier"),
        ({"nvml_gr_clock": [1200]}, None, "never does"),
        ({"x": [1]}, ["x =="], "no expression"),
        ({"x": [1]}, [3], "is a int; expected a string"),
        ({"x": [1]}, [lambda a, b: a], "takes a, b; expected one dict"),
        ({}, None, "either parameters or configurations"),
    ],
)
def test_what_cannot_come_over_is_named(params, restrictions, message):
    with pytest.raises(SuiteError, match=message):
        Tuning.from_kernel_tuner(params, restrictions)


def test_groups_are_of_parameters():
    Tuning(parameters={"BM": (1,), "BN": (2,)}, groups={"tile": ("BM", "BN")})
    with pytest.raises(SuiteError, match="groups 'BK', which is no parameter; expected of BM, BN"):
        Tuning(configurations=[{"BM": 1, "BN": 2}], groups={"tile": ("BM", "BK")})
    with pytest.raises(SuiteError, match="'BM' in its groups twice"):
        Tuning(parameters={"BM": (1,)}, groups={"a": ("BM",), "b": ("BM",)})
