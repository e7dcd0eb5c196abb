"""Numbers as people read them: in Python, and by the same rules on the pages of the site."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import harness
from harness.numbers import (
    binary,
    clock,
    counted,
    duration,
    effect,
    exact,
    interval,
    moved,
    number,
    percent,
    percent_figure,
    rough,
    seconds,
    times,
    typeset,
)
from harness.records.types import Effect

FORMAT = Path(harness.__file__).parent / "report" / "site" / "assets" / "static" / "format.js"


def change(middle: float, half: float = 0.0007) -> Effect:
    return Effect(effect=middle, low=middle - half, high=middle + half, processes=2, quads=50)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, ""),
        (float("nan"), ""),
        (0.0, "0"),
        (3, "3"),
        (16.0, "16.00"),
        (-3, "-3"),
        (12345.6, "12,346"),
        (123.46, "123.5"),
        (1.23456, "1.235"),
        (0.0123456, "0.01235"),
        (-0.5, "-0.5000"),
        (9.99996, "10.00"),
        (0.099999, "0.1000"),
        (0.00001234, "1.23e-5"),
        (1.5e9, "1.50e+9"),
    ],
)
def test_a_number_has_four_digits_and_a_count_its_own(value, told):
    assert number(value) == told


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (None, ""),
        (0.017, "1.70 %"),
        (-1e-6, "0.00 %"),
        (0.0999, "9.99 %"),
        (0.09996, "10.0 %"),
        (-0.134, "-13.4 %"),
        (1.5, "150 %"),
        (99.9, "9,990 %"),
        (0.2625, "26.2 %"),
    ],
)
def test_a_share_is_told_in_percent(share, told):
    assert percent(share) == told
    if share is not None:
        assert percent(abs(share), sign=True) == f"+{told.removeprefix('-')}"


def test_what_is_thousands_of_times_as_large_is_told_as_a_factor():
    assert percent(9.97e20, sign=True) == "\N{MULTIPLICATION SIGN}9.97e+20"
    assert percent(12_344.0) == "\N{MULTIPLICATION SIGN}12,345"
    assert effect(change(9.97e20)) == "\N{MULTIPLICATION SIGN}9.97e+20"
    assert interval(5e5, 2e6) == "\N{MULTIPLICATION SIGN}500,001 to \N{MULTIPLICATION SIGN}2,000,001"


def test_figures_that_belong_together():
    assert effect(change(0.017)) == "+1.70 % ± 0.07"
    assert effect(None) == ""
    assert interval(0.0163, 0.0177) == "+1.63 to +1.77 %"
    assert moved(change(0.017), "slower", "faster") == "1.70 % slower (+1.63 to +1.77 %)"
    assert moved(change(-0.017), "slower", "faster") == "1.70 % faster (-1.77 to -1.63 %)"
    assert moved(change(0.1, 5.0), "slower", "faster") == "10.0 % slower (no interval)"
    assert effect(change(0.1, 5.0)) == "+10.0 %"


def test_a_width_is_never_negative():
    wild = Effect(effect=0.5, low=1.0, high=-1.0, processes=1, quads=0)
    assert effect(wild) == "+50.0 % ± 100"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (duration(None), ""),
        (duration(812.3), "812.3 ns"),
        (duration(1204.1), "1.204 µs"),
        (duration(1.25e6), "1.250 ms"),
        (duration(3.5e9), "3.500 s"),
        (binary(12), "12 B"),
        (binary(48 * 1024), "48 KiB"),
        (binary(150_754_820_096), "140 GiB"),
        (clock(1979.6), "1,980"),
        (seconds(12.34), "12.3 s"),
        (times(1.84), "1.8x"),
        (times(123.4), "123x"),
        (times(99.97), "100x"),
        (exact(0.0025), "0.25 %"),
        (exact(0.9999), "99.99 %"),
        (rough(0.00123), "0.12 %"),
        (counted(1, "case"), "1 case"),
        (counted(1200, "process", "processes"), "1,200 processes"),
    ],
)
def test_a_quantity_has_its_unit(found, told):
    assert found == told


def test_a_page_has_a_minus_and_no_lines_that_end_before_a_unit():
    told = typeset("-1.70 % ± 0.07, 3 ms, 1,980 MHz, sm-90, 2026-07-01")
    assert told.replace("\N{NO-BREAK SPACE}", "~") == (
        "\N{MINUS SIGN}1.70~%~±~0.07, 3~ms, 1,980~MHz, sm-90, 2026-07-01"
    )


VALUES: tuple[float, ...] = (
    0.0,
    1e-7,
    -1e-7,
    3e-5,
    0.000321,
    0.0099999,
    0.0123456,
    -0.0171,
    0.0999,
    0.09996,
    0.1337,
    -0.99949,
)
VALUES += (
    0.2625,
    0.26375,
    0.00125,
    1.125,
    0.99951,
    1.2346,
    9.99996,
    7,
    -42,
    123.456,
    9876.54,
    123460,
    -33_000_000,
    2.5e9,
)


def test_the_pages_of_the_site_write_the_same_numbers():
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node here")
    script = (
        f"globalThis.window = {{ harness: {{}} }}; require({json.dumps(str(FORMAT))});"
        f"const f = window.harness.format, values = {json.dumps(VALUES)};"
        "const pairs = values.map((v) => f.interval(v, v + 1));"
        "console.log(JSON.stringify([values.map((v) => f.number(v)), values.map((v) => f.rough(v)), "
        "values.map(f.change), values.map(f.share), pairs]));"
    )
    done = subprocess.run(
        [node, "-e", script], capture_output=True, text=True, check=True, env={**os.environ, "LANG": "C"}
    )
    assert json.loads(done.stdout) == [
        [typeset(number(value)) for value in VALUES],
        [typeset(rough(value)) for value in VALUES],
        [typeset(percent(value, sign=True)) for value in VALUES],
        [typeset(percent(value)) for value in VALUES],
        [typeset(interval(value, value + 1)) for value in VALUES],
    ]
    assert percent_figure(VALUES[0]) == "0.00"
