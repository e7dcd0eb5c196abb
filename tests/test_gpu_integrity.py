"""Changes that must not pass as fine, on a real card: kernels of Triton, CuPy and PyTorch made slower in a
file that they import, and kernels that only seem fast. Each is compared with the commit before.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.support import GPU, commit, make_repository, run_command

pytestmark = [pytest.mark.gpu, pytest.mark.fault]

SUITE = """\
import ops
from harness import Axis, HostFunction, Input, Kernel, Output, Problem, Suite, ceil_div


class Scaled(Problem):
    n = Axis(default=(2**24,))
    x = Input("n")
    z = Output("n")

    def reference(self, case, x):
        return 2 * x

    def flop(self, case):
        return case.n


def host(name):
    return Kernel(name, HostFunction(getattr(ops, name)))


suite = Suite(
    "scaled",
    Scaled(),
    headline="GB/s",
    kernels=[
        Kernel("plain", "plain.cu", block=256, grid=lambda c: ceil_div(c.n, 256)),
        *(host(name) for name in ops.NAMES),
    ],
)
"""
PLAIN = """\
extern "C" __global__ void plain(const float *x, float *z, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    SKIP
    z[i] = 2.0f * x[i];
}
"""
OPS = """\
from settings import REPEATS, FOREIGN, SLEEP_NS, BLOCK

NAMES = [NAMES]


class Address:
    def __init__(self, address, n):
        self.__cuda_array_interface__ = {
            "shape": (n,), "typestr": "<f4", "data": (int(address), False), "version": 3,
        }


def pytorch(case, stream):
    import torch

    own = torch.cuda.ExternalStream(stream)

    def launch(x, z, n):
        with torch.cuda.stream(own):
            a, b = (torch.as_tensor(Address(p, n), device="cuda") for p in (x, z))
            for _ in range(REPEATS):
                torch.mul(a, 2, out=b)

    return launch


def foreign(case, stream):
    import torch

    elsewhere = torch.cuda.Stream() if FOREIGN else torch.cuda.ExternalStream(stream)

    def launch(x, z, n):
        with torch.cuda.stream(elsewhere):
            a, b = (torch.as_tensor(Address(p, n), device="cuda") for p in (x, z))
            torch.mul(a, 2, out=b)

    return launch


def cupy(case, stream):
    import cupy as cp

    own = cp.cuda.ExternalStream(stream)
    kernel = cp.RawKernel(
        'extern "C" __global__ void scale(const float *x, float *z, int n) {'
        f"const long long end = clock64() + {SLEEP_NS};"
        "const int i = blockIdx.x * blockDim.x + threadIdx.x;"
        "if (i < n) z[i] = 2.0f * x[i];"
        f"while ({SLEEP_NS} && clock64() < end);"
        "}",
        "scale",
    )

    def launch(x, z, n):
        import numpy as np

        with own:
            kernel(((n + 255) // 256,), (256,), (np.uint64(x), np.uint64(z), np.int32(n)))

    return launch


def triton(case, stream):
    import torch
    from triton_scale import scale

    own = torch.cuda.ExternalStream(stream)

    def launch(x, z, n):
        with torch.cuda.stream(own):
            a, b = (torch.as_tensor(Address(p, n), device="cuda") for p in (x, z))
            scale[((n + BLOCK - 1) // BLOCK,)](a, b, n, BLOCK=BLOCK)

    return launch
"""
TRITON = """\
import triton
import triton.language as tl


@triton.jit
def scale(x, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + i, 2.0 * tl.load(x + i, mask=i < n), mask=i < n)
"""
BASE = {"REPEATS": 1, "FOREIGN": 0, "SLEEP_NS": 0, "BLOCK": 1024}
HEAD = {"REPEATS": 2, "FOREIGN": 1, "SLEEP_NS": 3000, "BLOCK": 32}
SKIP = "if (z[i] == z[i]) return;  // it is there already"


def files(values, skip):
    settings = "".join(f"{name} = {value}\n" for name, value in values.items())
    names = ", ".join(
        repr(name)
        for name, package in {
            "pytorch": "torch",
            "foreign": "torch",
            "cupy": "cupy",
            "triton": "triton",
        }.items()
        if importlib.util.find_spec(package)
    )
    return {
        "harness.toml": "suites = ['kernels/*']\nresults = 'results'\n",
        "kernels/scaled/suite.py": SUITE,
        "kernels/scaled/plain.cu": PLAIN.replace("SKIP", skip),
        "kernels/scaled/ops.py": OPS.replace("[NAMES]", f"[{names}]"),
        "kernels/scaled/triton_scale.py": TRITON,
        "kernels/scaled/settings.py": settings,
    }


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    root = make_repository(tmp_path_factory.mktemp("integrity"))
    commit(root, files(BASE, ""), 1)
    commit(root, files(HEAD, SKIP), 2)
    done = run_command("compare", "HEAD~1", "HEAD", "--device", GPU, "--json", cwd=root, timeout_s=290)
    assert done.returncode in (1, 3), done.stderr
    [compared] = json.loads(done.stdout)
    return {verdict["kernel"]: verdict for verdict in compared["verdicts"]}


EXPECTED = {
    "plain": {"regression", "failed", "invalid"},
    "pytorch": {"regression"},
    "cupy": {"regression"},
    "triton": {"regression"},
    "foreign": {"failed", "invalid"},
}


@pytest.mark.parametrize("kernel", EXPECTED)
def test_what_is_slower_or_wrong_is_never_fine(verdicts, kernel):
    if kernel not in verdicts:
        pytest.skip(f"the package of {kernel} is not installed")
    verdict = verdicts[kernel]
    print(kernel, verdict["status"], verdict["reason"], verdict["message"])  # noqa: T201
    assert verdict["status"] in EXPECTED[kernel]
