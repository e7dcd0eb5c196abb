"""asv's regressions that the card explains: none is in regressions.json or the feed, all others are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("asv")

from tests.support import IMPORT_PATH, run_forked
from tests.synthetic_history import CARDS, History, Step, Suite, Throttle, write

SUITE = Suite(kernels=("naive", "tiled"), sizes=(1024, 2048))


def published(folder, monkeypatch, *events):
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
    history = History(commits=60, cards=CARDS[:1], suites=(SUITE,), events=events, records=True, seed=3)
    written = write(history, folder / "project")
    command = [sys.executable, "-m", "asv", "publish", "--config", str(written.conf)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = run_forked(command, cwd=written.repository, timeout=120, **pipes)
    assert done.returncode == 0, done.stderr
    html = written.repository / ".asv" / "html"
    found = json.loads((html / "regressions.json").read_text())["regressions"]
    entries = (html / "regressions.xml").read_text().count("<entry>")
    return {regression[0] for regression in found}, entries, done.stdout


def test_a_throttled_card_is_no_regression_and_the_code_beside_it_is(tmp_path, monkeypatch):
    fall = Step(case="naive 1024", at=25, effect=-0.1)
    found, entries, told = published(
        tmp_path, monkeypatch, fall, Throttle(card=CARDS[0].name, start=45, stop=60)
    )
    assert found == {
        "suites.Matmul.track_gflops('naive', 1024)",
        "suites.Matmul.track_time_ms('naive', 1024)",
    }
    assert entries == 2
    assert "regression(s) left out: the card's clocks moved" in told


def test_without_the_card_s_doing_everything_is_as_asv_finds_it(tmp_path, monkeypatch):
    found, entries, told = published(tmp_path, monkeypatch, Step(case="tiled", at=30, effect=-0.1))
    assert {name for name in found if "track_gflops" in name} == {
        "suites.Matmul.track_gflops('tiled', 1024)",
        "suites.Matmul.track_gflops('tiled', 2048)",
    }
    assert entries == len(found)
    assert "left out" not in told
