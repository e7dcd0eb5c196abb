"""What must not pass for identical, nor for what a cache holds: whatever else a kernel is made of."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import sources
from harness.backends import nvcc
from harness.cache import BinaryCache
from harness.loader import load_folder
from harness.sources import Program
from tests.support import Done, caller, commit, make_repository, write_files

pytestmark = pytest.mark.fault

SUITE = """\
import sys
from pathlib import Path
{imports}
from harness import Axis, Generated, HostFunction, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


{body}


suite = Suite("twice", Twice(), headline="GB/s", kernels=[Kernel("one", {source}, block=64, grid=1)])
"""
HELPER = "FACTOR = 2\nROUNDS = 1\n"
SLOW = "FACTOR = 2\nROUNDS = 400\n"
WRONG = "FACTOR = 3\nROUNDS = 1\n"

MAKE = """\
def one(case, stream):
    def call(x, y, n):
        for _ in range(helper.ROUNDS):
            y[:] = helper.FACTOR * x
    return call
"""
LAZY = MAKE.replace("    def call", "    import helper\n    def call", 1)
ON_CPU = "{'cpu': HostFunction(one)}"
ELSEWHERE = "sys.path.insert(0, str(Path(__file__).parent.parent / 'shared'))\n"

OPENCL = "__kernel void one(__global const float* x, __global float* y, int n)\n{ y[get_global_id(0)] = FACTOR * x[get_global_id(0)]; }\n"


def suite(imports: str = "import helper", body: str = MAKE, source: str = ON_CPU) -> str:
    return SUITE.format(imports=imports, body=body, source=source)


@pytest.fixture
def harness(capsys, monkeypatch):
    return caller(capsys, monkeypatch)


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "repository")


def verdict_of(harness, repository: Path, device: str = "cpu") -> tuple[str, str, int]:
    done: Done = harness("compare", "HEAD~1", "--device", device, "--no-save", "--json", cwd=repository)
    assert done.out, done.err
    (verdict,) = done.json[0]["verdicts"]
    return verdict["status"], verdict["reason"], done.status


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param(SLOW, ("regression", "slower-in-time", 1), id="slower"),
        pytest.param(WRONG, ("failed", "wrong-result", 1), id="wrong"),
    ],
)
def test_a_file_that_a_function_calls(harness, repository, changed, told):
    commit(repository, {"kernels/twice/suite.py": suite(), "kernels/twice/helper.py": HELPER}, 1)
    write_files(repository, {"kernels/twice/helper.py": changed})
    commit(repository, {"kernels/twice/helper.py": changed}, 2)
    assert verdict_of(harness, repository) == told


@pytest.mark.parametrize("body", [MAKE, LAZY], ids=["when it is loaded", "when it is made"])
def test_a_file_that_a_function_imports_from_beside(harness, repository, body):
    imports = ELSEWHERE + ("import helper" if body is MAKE else "")
    files = {"kernels/twice/suite.py": suite(imports, body), "kernels/shared/helper.py": HELPER}
    commit(repository, files, 1)
    commit(repository, {"kernels/shared/helper.py": WRONG}, 2)
    # Were base's module head's too, head would be right.
    assert verdict_of(harness, repository) == ("failed", "wrong-result", 1)


def test_a_launch_that_imports_cannot_tell_whose(harness, repository):
    body = MAKE.replace("        for", "        import helper\n        for")
    files = {"kernels/twice/suite.py": suite(ELSEWHERE, body), "kernels/shared/helper.py": HELPER}
    commit(repository, files, 1)
    commit(repository, {"kernels/shared/helper.py": SLOW}, 2)
    status, reason, code = verdict_of(harness, repository)
    assert (status, reason) == ("failed", "suite")
    assert code != 0
