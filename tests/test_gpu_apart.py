"""Base and head that differ in a setting of a library alone, on a real card: each side has its own.

Run with `pytest -m gpu`; $HARNESS_DEVICE names the card. What is not installed is skipped.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.support import GPU, commit, make_repository, run_command

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SUITE = """\
import numpy as np
from harness import Axis, CupyFunction, Input, Kernel, NumbaFunction, Output, Problem, Suite, TorchFunction


class Product(Problem):
    n = Axis(default=(2048,))
    a = Input("n", "n")
    b = Input("n", "n")
    c = Output("n", "n")

    def reference(self, case, a, b):
        return a @ b

    def tolerance(self, case, a, b):
        return 2.0**-8 * (np.abs(a) @ np.abs(b)) / np.sqrt(case.n)  # TF32 rounds to 11 bits


class Twice(Problem):
    n = Axis(default=(2**22,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


suite = Suite("apart", {problem}(), headline="GB/s", kernels=[Kernel("one", {kind}("ops.py"))])
"""
PRODUCT = ("Product", "TorchFunction")
TWICE = ("Twice", "TorchFunction")
MATMUL = "import torch\n{setting}\n\n\ndef one(a, b):\n    return torch.matmul(a, b)\n"
TRITON = """\
import os
{setting}
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    for _ in range(64):
        value = value * 1.5 - value * 0.5
    tl.store(y + i, 2 * value, mask=i < n)


def one(x, y):
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
"""
CUPY = """\
import cupy
{setting}


def one(x, y):
    y[...] = cupy.add(x, x)  # with a temporary
"""
NUMBA = """\
from numba import config, cuda
{setting}


@cuda.jit
def kernel(x, y, n):
    i = cuda.grid(1)
    if i < n:
        value = x[i]
        for _ in range(64):
            value = value * 1.5 - value * 0.5
        y[i] = 2 * value


def one(x, y, n, stream):
    kernel[(n + 255) // 256, 256, stream](x, y, n)
"""
CONVOLUTION = """\
import torch
{setting}

weight = torch.ones(1, 1, 9, device="cuda")


def one(x, y):
    torch.nn.functional.conv1d(x.reshape(64, 1, -1), weight, padding=4)
    torch.mul(x, 2, out=y)
"""
SETTINGS = {
    "allow_tf32": ("torch", PRODUCT, MATMUL, "torch.backends.cuda.matmul.allow_tf32 = True", "faster"),
    "precision": ("torch", PRODUCT, MATMUL, "torch.set_float32_matmul_precision('high')", "faster"),
    "cudnn.benchmark": ("torch", TWICE, CONVOLUTION, "torch.backends.cudnn.benchmark = True", "either"),
    "DISABLE_PTXAS_OPT": ("triton", TWICE, TRITON, "os.environ['DISABLE_PTXAS_OPT'] = '1'", "slower"),
    "disable_ptxas_opt": (
        *("triton", TWICE, TRITON),
        "import triton\ntriton.knobs.nvidia.disable_ptxas_opt = True",
        "slower",
    ),
    "debug": (
        *("numba.cuda", ("Twice", "NumbaFunction"), NUMBA),
        "config.CUDA_DEBUGINFO_DEFAULT = 1",
        "slower",
    ),
    "memory pool": ("cupy", ("Twice", "CupyFunction"), CUPY, "cupy.cuda.set_allocator(None)", "slower"),
}
"""Package; problem and kind of kernel; the file; the setting; and what the setting makes of the kernel."""


@pytest.mark.parametrize("setting_of", ["base", "head"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_one_side_is_that_sides_alone(tmp_path, name, setting_of):
    package, (problem, kind), ops, setting, does = SETTINGS[name]
    if importlib.util.find_spec(package.partition(".")[0]) is None or not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    root = make_repository(tmp_path / "repository")
    suite = SUITE.replace("{problem}", problem).replace("{kind}", kind)
    files = {"harness.toml": "suites = ['kernels/*']\n", "kernels/apart/suite.py": suite}
    texts = {side: ops.format(setting=setting if side == setting_of else "") for side in ("base", "head")}
    commit(root, {**files, "kernels/apart/ops.py": texts["base"]}, 1)
    commit(root, {"kernels/apart/ops.py": texts["head"]}, 2)
    done = run_command("compare", "HEAD~1", "HEAD", "--device", GPU, "--json", "--no-save", cwd=root)
    [result] = json.loads(done.stdout)
    [verdict] = result["verdicts"]
    if "module 'numpy' has no attribute" in verdict["message"]:
        pytest.skip("This numba.cuda is older than this NumPy.")
    slower = (does == "slower") == (setting_of == "head")
    expected = {"regression" if slower else "improvement"}
    if does == "either":  # what the search finds may be what the heuristics choose
        expected = {"regression", "improvement", "unchanged", "inconclusive"}
    assert verdict["status"] in expected, verdict["message"]
    assert verdict["settings_changed"], verdict["message"]
    print(name, setting_of, verdict["message"])  # noqa: T201 - with -s, the figures
