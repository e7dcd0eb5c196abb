"""Launches with attributes on a card. Run with `pytest -m gpu`; $HARNESS_DEVICE names the card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.device import backends
from harness.errors import DeviceError, ExitCode
from tests.support import GPU, commit, device_is_missing, make_repository, run_command, write_files

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Step, Suite


class Swapped(Problem):
    n = Axis(default=(2**22,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x.reshape(-1, 2, 256)[:, ::-1].reshape(-1)

    def integer_bound(self, case):
        return 100


suite = Suite(
    "swapped",
    Swapped(),
    headline="GB/s",
    kernels=[
        Kernel(
            "cooperative", "both.cu", block=256, cooperative=True, args=("x", "y", "kept", "n"),
            grid=lambda c: c.resident_blocks * c.device.sm_count, workspace={"kept": lambda c: 4 * c.n},
        ),
        Kernel("cluster", "both.cu", block=256, grid=lambda c: c.n // 256, cluster=(2, 1, 1)),
        Kernel(
            "both", "both.cu", block=256, cooperative=True, cluster=2, args=("x", "y", "kept", "n"),
            grid=lambda c: 2 * c.device.sm_count, workspace={"kept": lambda c: 4 * c.n},
        ),
        Kernel(
            "dependent", "both.cu", block=256, grid=lambda c: c.n // 256, args=("x", "kept", "n"),
            requires="sm_90", workspace={"kept": lambda c: 4 * c.n},
            steps=[Step("read", 256, lambda c: c.n // 256, args=("kept", "y", "n"), programmatic=True)],
        ),
    ],
)
"""
SOURCE = """\
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

#define STEPS 400

__device__ float work(float value)
{
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) value = fmaf(value, 0.5f, 0.5f * value);
    return value;
}

__device__ void through(cg::grid_group grid, const float *x, float *y, float *kept, int n)
{
    for (int i = grid.thread_rank(); i < n; i += grid.size()) kept[i] = 2 * work(x[i]);
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = __ldcg(&kept[i ^ 256]);
}

extern "C" __global__ void cooperative(const float *x, float *y, float *kept, int n)
{
    through(cg::this_grid(), x, y, kept, n);
}

extern "C" __global__ void both(const float *x, float *y, float *kept, int n)
{
    __shared__ unsigned int blocks;
    blocks = cg::this_cluster().num_blocks();
    cg::this_cluster().sync();
    if (blocks == 2) through(cg::this_grid(), x, y, kept, n);
}

extern "C" __global__ void dependent(const float *x, float *kept, int n)
{
    cudaTriggerProgrammaticLaunchCompletion();
    kept[blockIdx.x * 256 + threadIdx.x] = 2 * work(x[blockIdx.x * 256 + threadIdx.x]);
}

extern "C" __global__ void read(const float *kept, float *y, int n)
{
    cudaGridDependencySynchronize();
    y[blockIdx.x * 256 + threadIdx.x] = kept[(blockIdx.x * 256 + threadIdx.x) ^ 256];
}

extern "C" __global__ void cluster(const float *x, float *y, int n)
{
    __shared__ float staged[256];
    cg::cluster_group group = cg::this_cluster();
    staged[threadIdx.x] = 2 * work(x[blockIdx.x * 256 + threadIdx.x]);
    group.sync();
    y[blockIdx.x * 256 + threadIdx.x] = group.map_shared_rank(staged, group.block_rank() ^ 1)[threadIdx.x];
    group.sync();
}
"""
FILES = {
    "pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\n",
    "kernels/swapped/suite.py": SUITE,
    "kernels/swapped/both.cu": SOURCE,
}


@pytest.fixture(scope="module")
def card():
    try:
        device = backends.open_device(GPU)
    except DeviceError as error:
        device_is_missing(GPU, error.message)
    info = device.info
    device.close()
    if (info.compute_capability or (0, 0)) < (9, 0):
        pytest.skip(f"{info.name} has no clusters")
    return info


@pytest.fixture
def project(tmp_path, card):
    root = make_repository(tmp_path / "project")
    commit(root, FILES, 1)
    return root


def asked(root: Path, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run_command(command, "--device", GPU, "--json", *arguments, cwd=root)
    assert done.stdout, done.stderr
    (result,) = json.loads(done.stdout)
    return done.returncode, result


def test_blocks_wait_for_their_grid_and_read_from_their_cluster(project, card):
    code, result = asked(project, "run")
    rows = {each["row"]["kernel"]: each["row"] for each in result["rows"]}
    assert {name: (row["status"], row["message"]) for name, row in rows.items()} == dict.fromkeys(
        ("cooperative", "cluster", "both", "dependent"), ("measured", "")
    )
    assert code == ExitCode.FINE
    assert rows["both"]["launch"]["grid"] == [2 * card.compute_units, 1, 1]
    attributes = {
        name: (row["launch"]["cooperative"], row["launch"]["cluster"]) for name, row in rows.items()
    }
    assert attributes == {
        "cooperative": (True, None),
        "cluster": (False, [2, 1, 1]),
        "both": (True, [2, 1, 1]),
        "dependent": (False, None),
    }
    assert [step["programmatic"] for step in rows["dependent"]["launch"]["steps"]] == [True]


def test_each_is_replayed_by_graph(project):
    code, result = asked(project, "run", "--graph", "*[*graph=1]")
    rows = [each["row"] for each in result["rows"]]
    assert [(row["kernel"], row["status"], row["message"]) for row in rows] == [
        (name, "measured", "") for name in ("cooperative", "cluster", "both", "dependent")
    ]
    assert all(row["launch"]["graph"] for row in rows)
    assert code == ExitCode.FINE


def test_a_slowdown_of_each_is_found(project):
    slower = SOURCE.replace("STEPS 400", "STEPS 420")
    write_files(project, {"kernels/swapped/both.cu": slower})
    code, result = asked(project, "compare", "HEAD", "cooperative", "cluster", "dependent")
    found = {each["kernel"]: (each["status"], each["attribution"]) for each in result["verdicts"]}
    assert found == dict.fromkeys(("cooperative", "cluster", "dependent"), ("regression", "code"))
    assert code == ExitCode.REGRESSION


@pytest.mark.parametrize(
    ("old", "new", "kernel", "sentence"),
    [
        ("c.resident_blocks * c.device", "64 * c.device", "cooperative", "blocks that .* holds at once"),
        ("cluster=(2, 1, 1)", "cluster=(32, 1, 1)", "cluster", "A cluster of 32x1x1 blocks"),
        ("block=256, cooperative=True, args", "block=256, args", "cooperative", "waits for its whole grid"),
    ],
)
def test_a_launch_that_does_not_fit_is_a_sentence(project, old, new, kernel, sentence):
    row = changed(project, old, new, kernel)
    assert row["reason"] == "launch-refused"
    assert re.search(sentence, row["message"]), row["message"]


def test_a_cluster_of_16_runs_or_is_refused_with_a_sentence(project):
    """Cards with clusters run 8 blocks; some run 16."""
    row = changed(project, "cluster=(2, 1, 1)", "cluster=(16, 1, 1)", "cluster")
    refused = re.search("Not one cluster of 16x1x1|does not allow a cluster", row["message"])
    assert row["status"] == "measured" or (row["reason"] == "launch-refused" and refused), row["message"]


def changed(root: Path, old: str, new: str, kernel: str) -> dict[str, Any]:
    """The row of a kernel whose declaration was changed."""
    assert old in SUITE
    write_files(root, {"kernels/swapped/suite.py": SUITE.replace(old, new, 1)})
    _, result = asked(root, "run", kernel)
    (row,) = (each["row"] for each in result["rows"])
    return dict(row)
