"""Changes that one side's Python makes to its process never reach the other side."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.measure.quads import PairSettings
from harness.records.record_files import ComparisonResult
from harness.run import pair_session
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.run.two_workers import TurnPair
from harness.suite.loader import load
from harness.suite.planning import plan
from tests import toy
from tests.support import write_files
from tests.test_compare import Watching

pytestmark = pytest.mark.fault

MAKE = """\
def make(case, stream):
    {make}

    def call(x, y, n):
        {launch}
        np.multiply(x, 2 if getattr(colorsys, "OWNER", {side!r}) == {side!r} else 3, out=y)

    return call
"""
IMPORTS = "import colorsys, os, threading\nimport numpy as np\n"
ON_CPU = "{'cpu': HostFunction(make)}"
NOTHING = {"imports": "", "reference": "pass", "make": "pass", "launch": "pass", "source": ON_CPU}
QUICK = PairSettings(min_quads=5, max_quads=5, warmup_min_s=0.001, warmup_max_s=0.002)


def compared(
    folder: Path,
    sides: dict[str, dict[str, str]],
    observer: Watching | None = None,
    budget_s: float | None = 1e-9,
    tolerance: float | None = None,
    **files: str,
) -> ComparisonResult:
    """The comparison of two suites on the CPU, each with these lines in its places; by default one process of
    each.
    """
    loaded = []
    for side, given in sides.items():
        lines = {**NOTHING, **given}
        body = MAKE.format(side=side, make=lines["make"], launch=lines["launch"])
        imports = IMPORTS + lines["imports"]
        text = toy.twice(imports, body, lines["source"], reference=lines["reference"], n=4096)
        named = {f"{name}.py": each.replace("SIDE", side) for name, each in files.items()}
        loaded.append(load(write_files(folder / side, {"suite.py": text, **named})))
    settings = CompareSettings(device="cpu:0", pair=QUICK, budget_s=budget_s, tolerance=tolerance, save=False)
    base, head = loaded
    with Comparing(base, head, settings, observer or Watching()) as comparing:
        return comparing.run(*(plan(each.suite) for each in loaded))


def own(line: str, place: str) -> dict[str, dict[str, str]]:
    return {side: {place: line.replace("SIDE", side)} for side in ("base", "head")}


FLAG = "colorsys.OWNER = 'SIDE'"


@pytest.mark.parametrize(
    ("place", "line", "alone"),
    [
        pytest.param("imports", FLAG, "base", id="import"),
        pytest.param("reference", FLAG, "head", id="reference of head"),
        pytest.param("imports", "import dependency", "base", id="dependency"),
    ],
)
def test_a_flag_of_one_side_is_that_sides_alone(tmp_path, place, line, alone):
    """A kernel is wrong where it finds the other side's flag."""
    sides: dict[str, dict[str, str]] = {**own(line, place)}
    sides[{"base": "head", "head": "base"}[alone]] = {}
    result = compared(tmp_path, sides, dependency=f"import colorsys\n{FLAG}\n")
    [verdict] = result.verdicts
    assert (verdict.status, verdict.reason) == ("inconclusive", "budget-spent"), verdict.message
    [block] = [each.block for each in result.blocks]
    assert block.in_turns


def test_neither_side_can_reach_the_others_objects(tmp_path):
    """In one process with base, head found base's suite by the garbage collector, and could change it."""
    other = "import gc; other = 'headbase'.replace('SIDE', '')"
    search = (
        f"{other}; reach = [each for each in gc.get_objects() if f'/{{other}}/suite.py' in "
        "getattr(getattr(each, '__code__', None), 'co_filename', '')]; assert not reach, reach"
    )
    [verdict] = compared(tmp_path, own(search, "launch")).verdicts
    assert verdict.reason == "budget-spent", verdict.message


def test_settings_that_differ_are_told_in_both_directions(tmp_path):
    sides: dict[str, Any] = own("np.setbufsize({'base': 16, 'head': 8192}['SIDE'])", "imports")
    sides["head"]["make"] = "os.environ['OF_HEAD'] = 'yes'"
    [verdict] = compared(tmp_path, sides).verdicts
    assert verdict.settings_changed == ("environment OF_HEAD: none → yes", "numpy.getbufsize: 16 → 8192")
    [same] = compared(tmp_path / "same", {"base": {}, "head": {"make": "x = 1"}}).verdicts
    assert same.settings_changed == ()


def test_a_new_function_of_heads_is_made_and_verified_by_a_process_that_has_it(tmp_path):
    both = f"{ON_CPU}, block=64, grid=1), Kernel('fresh', {ON_CPU}"
    result = compared(tmp_path, {"base": {}, "head": {"source": both}})
    [fresh] = [verdict for verdict in result.verdicts if verdict.kernel == "fresh"]
    assert (fresh.status, fresh.reason) == ("new", "only-in-head"), fresh.message


@pytest.mark.parametrize("side", ["base", "head"])
def test_an_interpreter_that_dies_at_one_side_is_that_sides(tmp_path, side):
    sides: dict[str, dict[str, str]] = {"base": {}, "head": {"make": "x = 1"}}
    sides[side] = {"launch": "os._exit(7)"}
    [verdict] = compared(tmp_path, sides).verdicts
    assert (verdict.status, verdict.reason, verdict.side) == ("failed", "crashed", side), verdict.message


class TwoPairs(Watching):
    """Ends a comparison after two pairs of processes."""

    def process(self, number: int, cases: int, purpose: str) -> None:
        super().process(number, cases, purpose)
        if number == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("dies", [False, True])
def test_pairs_of_processes_are_begun_ahead_and_replaced_where_they_die(tmp_path, monkeypatch, dies):
    """A GPU's are; here a CPU's, to see them work."""
    monkeypatch.setattr(pair_session, "most_ahead", lambda device: 2)
    prepare, prepared, alive = TurnPair.prepare, [], []

    def watched(turns: TurnPair, *asked: Any) -> None:
        prepare(turns, *asked)
        prepared.append(turns)
        for pid in turns.pids if dies else ():
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(TurnPair, "prepare", watched)
    close = TurnPair.close

    def closed(turns: TurnPair) -> None:
        alive.extend(turns.pids)
        close(turns)

    monkeypatch.setattr(TurnPair, "close", closed)
    # No noise is so small that two processes settle it.
    sides: dict[str, dict[str, str]] = {"base": {}, "head": {"make": "x = 1"}}
    result = compared(tmp_path, sides, TwoPairs(), budget_s=None, tolerance=1e-9)
    [verdict] = result.verdicts
    assert verdict.reason == "interrupted", verdict.message
    assert [each.block.in_turns for each in result.blocks if each.case == verdict.case] == [True, True]
    assert prepared
    assert not any(Path(f"/proc/{pid}").exists() for pid in alive)
