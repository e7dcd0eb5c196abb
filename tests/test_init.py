"""`harness init`: what is found in a repository, what is guessed of it, and what is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.spec.loader import load_folder
from harness.spec.planning import launch_of
from tests.support import caller, make_repository, write_files

SCALE = """\
#include <cstdio>
// __global__ void in_a_comment(float *x);
const char *text = "__global__ void in_a_string(float *x) {}";
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

extern "C" __global__ void scale(const float *__restrict__ in, float *out, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 2.0f * in[i] + 1.0f;
}

void run(const float *x, float *y, int count)
{
    dim3 block(128);
    dim3 grid(CEIL_DIV(count, 128));
    scale<<<grid, block>>>(x, y, count);
}
"""


@pytest.fixture
def call(capsys, monkeypatch):
    return caller(capsys, monkeypatch)


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """Makes a repository of these files, which is then the current folder."""

    def make(files: Mapping[str, str]) -> Path:
        top = write_files(make_repository(tmp_path / "theirs"), files)
        monkeypatch.chdir(top)
        return top

    return make


def test_a_kernel_becomes_a_suite_that_loads_and_is_listed(theirs, call):
    top = theirs({"src/scale.cu": SCALE})
    done = call("init", "--yes")
    assert done.status == 0
    suite = load_folder(top / "perf" / "scale")
    kernel = suite.by_name["scale"]
    case = suite.case(kernel, {"n": 1000})
    launch = launch_of(kernel, case)
    assert (launch.block[0], launch.grid[0]) == (128, 8)
    assert [parameter.name for parameter in suite.parameters(kernel, case)] == ["in_", "out", "n"]
    assert suite.problem.reference(case, in_=3.0) == 7.0
    listed = json.loads(call("list", "--json").out)
    assert [each["suite"] for each in listed] == ["scale"]
    checked = call("check", "--device", "null", "--json")
    assert checked.status == 0
    assert {file.relative_to(top).as_posix() for file in top.rglob("*.*") if ".git/" not in str(file)} >= {
        "harness.toml", "asv.conf.json",
        "benchmarks/__init__.py", "benchmarks/suites.py", "benchmarks/test_kernels.py",
    }  # fmt: skip
