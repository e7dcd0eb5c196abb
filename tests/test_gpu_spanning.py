"""Functions that span two cards of one host: verified on each, timed as a whole, their mistakes found.

Run with `pytest -m gpu` where there are two cards; $HARNESS_DEVICE names the first.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.device.backends import devices_of
from harness.errors import DeviceError
from harness.measure.timing import MeasureSettings
from harness.records.record_files import read_comparison
from harness.records.types import Row
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load
from harness.suite.planning import plan
from tests.support import GPU, Recorder, commit, device_is_missing, make_repository, run_command, write_files

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, TorchFunction


class Reduced(Problem):
    cards = Axis(default=(2,))
    n = Axis(default=(2**20,))
    x = Input("cards", "n")
    y = Output("cards", "n")

    def reference(self, case, x):
        return x.sum(axis=0) + 0 * x


names = {names}
kernels = [Kernel(name, TorchFunction("ops.py"), cards=2) for name in names]
suite = Suite("reduced", Reduced(), headline="GB/s", kernels=kernels)
"""
OPS = """\
import os

import torch
import torch.cuda.nccl


def peer_copies(x, y):
    for rank, out in enumerate(y):
        with torch.cuda.device(out.device):
            out.copy_(x[1 - rank], non_blocking=True)
            out.add_(x[rank])


def by_nccl(x, y):
    torch.cuda.nccl.all_reduce(x, y)


def allocates(x, y):
    for rank, row in enumerate([2 * x[0], 2 * x[1]]):
        with torch.cuda.device(row.device):
            y[rank].copy_(row - x[rank] + x[1 - rank].to(row.device, non_blocking=True))


def wrong(x, y):
    peer_copies(x, y)
    y[1][-1:].add_(1)


def stray(x, y):
    peer_copies(x, y)
    with torch.cuda.device(y[1].device), torch.cuda.stream(torch.cuda.Stream()):
        torch.add(x[1], x[0].to(x[1].device), out=y[1])


def dead(x, y):
    peer_copies(x, y)
    os.abort()
"""


@pytest.fixture(scope="module", autouse=True)
def two_cards() -> None:
    pytest.importorskip("torch")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # a multicast over NVLink can hang a shared host
    try:
        if len(devices_of("cuda")) < 2:
            device_is_missing(GPU, "there is one card")
    except DeviceError as error:
        device_is_missing(GPU, error)


def measured(folder: Path, *names: str, graph: bool = False) -> dict[str, Row]:
    write_files(folder, {"suite.py": SUITE.format(names=names), "ops.py": OPS})
    loaded = load(folder)
    quick = MeasureSettings(max_time_s=0.2, min_time_s=0.05)
    settings = SessionSettings(device=GPU, measure=quick, timeout_s=60, library=False)
    with Session(loaded, settings, Recorder()) as session:
        return {row.case: row for row in session.run(plan(loaded.suite, graph=graph)).rows}


def test_each_card_has_its_row_and_its_telemetry(tmp_path):
    rows = measured(tmp_path / "reduced", "peer_copies", "by_nccl")
    for row in rows.values():
        assert row.status == "measured", row
        assert row.launch is not None
        assert row.launch.cards == 2
        assert row.telemetry is not None
        assert len(row.telemetry.beside) == 1


def test_a_mistake_on_the_second_card_is_found(tmp_path):
    rows = measured(tmp_path / "reduced", "wrong", "stray", "dead", "peer_copies")
    found = {case.partition("[")[0].rpartition(".")[2]: row.reason for case, row in rows.items()}
    assert found == {"wrong": "wrong-result", "stray": "foreign-stream", "dead": "crashed", "peer_copies": ""}


@pytest.mark.parametrize("name", ["peer_copies", "allocates"])
def test_both_cards_are_in_one_graph(tmp_path, name):
    rows = measured(tmp_path / "reduced", name, graph=True)
    assert {row.status for row in rows.values()} == {"measured"}, rows


def test_a_slowdown_is_found(tmp_path):
    root = make_repository(tmp_path / "project")
    files = {"kernels/reduced/suite.py": SUITE.format(names=["peer_copies"]), "kernels/reduced/ops.py": OPS}
    commit(root, files, day=1)
    slower = OPS.replace(
        "            out.add_(x[rank])\n", "            out.add_(x[rank])\n" + "            out.add_(0)\n"
    )
    commit(root, files | {"kernels/reduced/ops.py": slower}, day=2)
    run_command("compare", "HEAD~1", "HEAD", "--device", GPU, cwd=root)
    (path,) = root.glob(".asv/results/*/*.jsonl")
    (verdict,) = read_comparison(path).verdicts
    assert verdict.status == "regression", verdict
