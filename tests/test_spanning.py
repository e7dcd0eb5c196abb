"""Functions that span cards: verified on each, locked and sampled on each, refused where there are too few.

The null device and the host have no second card to write to. What needs two cards is in test_gpu_spanning.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ExitCode, SuiteError
from harness.records.record_files import read_comparison, read_run
from harness.run import run
from harness.run.pair_session import PairSession
from harness.run.worker_process import WorkerProcess
from harness.suite.kernel import Kernel, NumbaFunction, TorchFunction
from harness.system.process import template_with
from harness.system.ready import Template
from tests.support import Done, caller, commit, make_repository, write_null_script

ALL_REDUCE = """\
from harness import Axis, Input, Kernel, NumbaFunction, Output, Problem, Suite, TorchFunction


class AllReduce(Problem):
    cards = Axis(default=(2,))
    n = Axis(default=(1000,))
    x = Input("cards", "n")
    y = Output("cards", "n")

    def reference(self, case, x):
        return x.sum(axis=0) + 0 * x


sources = {"cuda": TorchFunction("ops.py"), "cpu": NumbaFunction("ops.py")}
kernels = [Kernel("reduced", sources, cards=2), Kernel("alone", sources, cards=2)]
suite = Suite("collective", AllReduce(), headline="GB/s", kernels=kernels)
"""
OPS = """\
def reduced(x, y):
    for rank, out in enumerate(y):
        out[:] = x[rank] + x[1 - rank]


def alone(x, y):
    y[0][:] = x[0] + x[1]
    y[1][:] = x[1]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_repository(tmp_path / "project")
    commit(folder, {"kernels/collective/suite.py": ALL_REDUCE, "kernels/collective/ops.py": OPS}, day=1)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HARNESS_LOCK_DIR", str(tmp_path))
    return folder


def test_every_card_is_verified(root, capsys, monkeypatch):
    imported: list[Sequence[str]] = []

    def watched(packages: Sequence[str], *given: Any) -> Template | None:
        imported.append(packages)
        return template_with(packages, *given)

    monkeypatch.setattr(run, "template_with", watched)
    done = caller(capsys, monkeypatch, Done)("check", "--device", "cpu:0")
    assert done.status != ExitCode.FINE
    assert imported == [("numba",)], "once for both kernels"
    assert "collective.reduced@2x1000: verified" in done.err + done.out
    assert "1000 of 2000 elements of y are wrong on random; the first, y[1, 0]," in done.err + done.out


def test_each_card_is_locked_and_sampled(root, capsys, monkeypatch, tmp_path):
    begin, opened = WorkerProcess.begin_open, list[int]()

    def watched(worker: WorkerProcess, *given: Any, **named: Any) -> object:
        opened.append(named.get("cards", 1))
        return begin(worker, *given, **named)

    monkeypatch.setattr(WorkerProcess, "begin_open", watched)
    script = write_null_script(tmp_path / "null.json", {"cards": [{"uuid": "a"}, {"uuid": "b"}]})
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", str(script))
    harness = caller(capsys, monkeypatch, Done)
    done = harness("run", "--gpus", "null:0,null:1")
    assert done.status == ExitCode.FINE, done
    assert {file.name for file in tmp_path.glob("*.lock")} == {"harness-a.lock", "harness-b.lock"}
    (record,) = root.rglob("*.jsonl")  # of the first card alone
    rows = read_run(record).rows
    assert [row.launch and row.launch.cards for row in rows] == [2, 2]
    assert [row.telemetry and len(row.telemetry.beside) for row in rows] == [1, 1]
    assert opened[-2:] == [2, 2], "before anything is timed"
    refused = harness("run", "--device", "null:1")
    assert "reduced spans 2 cards; from null:1 on there is 1: run it" in refused.out + refused.err


def test_launches_of_code_against_itself_are_not_listed(root, capsys, monkeypatch):
    monkeypatch.setattr(PairSession, "list_launches", lambda *_: pytest.fail("CUPTI takes seconds to load"))
    root.joinpath("null.json").write_text('{"cards": [{}, {}], "noise": {"kind": "quiet", "seed": 1}}')
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", str(root / "null.json"))
    harness = caller(capsys, monkeypatch, Done)
    done = harness("calibrate", "--trials", "1", "--planted-trials", "0", "--device", "null:0", "reduced")
    assert "False alarms on this device so far: 0 of 1 verdict" in done.out, done
    (record,) = root.rglob("*.jsonl")
    (verdict,) = read_comparison(record).verdicts
    assert verdict.time
    assert verdict.cycles is None, "they are of the first card alone"


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ({"source": "a.cu", "block": 1, "grid": 1, "cards": 2}, "expected a function of a framework"),
        (
            {"source": NumbaFunction("a.py"), "cards": 2},
            "spans cards by NumbaFunction; expected Torch",
        ),
        ({"source": TorchFunction("a.py"), "cards": 0}, "has cards 0; expected an integer from 1"),
    ],
)
def test_what_cannot_span_cards_is_refused(kernel, said):
    with pytest.raises(SuiteError, match=said):
        Kernel("k", **kernel)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('y = Output("cards", "n")', 'y = Output("n", "cards")', "y is of shape"),
        (
            "def reduced(x, y):",
            "def reduced(x):",
            "spans 2 cards and returns y: let it take y as",
        ),
    ],
)
def test_an_array_without_a_row_for_each_card_is_refused(root, capsys, monkeypatch, old, new, said):
    for name in ("suite.py", "ops.py"):
        file = root / "kernels/collective" / name
        file.write_text(file.read_text().replace(old, new))
    done = caller(capsys, monkeypatch, Done)("check", "--device", "cpu:0")
    assert said in done.out + done.err
