"""Functions of Triton, PyTorch, CuPy and numba on a real card: right, timed by the harness's stream.

Run with `pytest -m gpu`; $HARNESS_DEVICE names the card. What is not installed is skipped.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
from pathlib import Path

import pytest

from harness.errors import DeviceError
from harness.measure.timing import MeasureSettings
from harness.records.record_files import read_comparison
from harness.records.types import CompiledKernel, Row
from harness.run.device_session import find_device
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load
from harness.suite.planning import divided, plan
from tests.support import GPU, Recorder, commit, device_is_missing, make_repository, run_command, write_files

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, ceil_div
from harness import CupyFunction, NumbaFunction, TorchFunction, TritonFunction


class Scaled(Problem):
    n = Axis(default=(2**22,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


def elements(case):
    return ceil_div(case.n, 256)


suite = Suite("scaled", Scaled(), headline="GB/s", kernels=[KERNELS])
"""
TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def given(x, y, n, BLOCK):
    kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK, num_warps=WARPS)


WARPS = 8


CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=2), triton.Config({"BLOCK": 1024}, num_warps=4)]


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def tuned_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def tuned(x):
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


@triton.jit
def broken_kernel(x, y, n):
    tl.no_such_word(x)


def broken(x, y):
    broken_kernel[(1,)](x, y, 1)
"""
TORCH = """\
import torch

aside = torch.cuda.Stream()


def given(x, y):
    torch.mul(x, 2, out=y)


def returned(x):
    return 2 * x


def several(x):
    return (x.float() + x.float()).to(x.dtype)  # with a temporary of another size


def aside_given(x, y):
    with torch.cuda.stream(aside):
        torch.mul(x, 2, out=y)


def aside_returned(x):
    with torch.cuda.stream(aside):
        return 2 * x


def aside_waited(x, y):
    with torch.cuda.stream(aside):
        torch.mul(x, 2, out=y)
    torch.cuda.synchronize()


def waited(x, y):
    torch.mul(x, 2, out=y)
    torch.cuda.synchronize()


def on_host(x):
    return 2 * x.cpu()
"""
CUPY = """\
import cupy

TEXT = r'''
extern "C" __global__ void kernel(const float *x, float *y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
'''
kernel = cupy.RawKernel(TEXT, "kernel")


def given(x, y):
    cupy.multiply(x, 2, out=y)


def returned(x):
    return 2 * x
"""
NUMBA = """\
from numba import cuda


@cuda.jit
def kernel(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]


def given(x, y, n, stream):
    kernel[(n + 255) // 256, 256, stream](x, y, n)
"""


def needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed.")
    try:
        find_device(GPU)
    except DeviceError as error:
        device_is_missing(GPU, error)


def rows_of(
    folder, kernels: str, files: dict[str, str], measure: MeasureSettings | None = None, suite: str = SUITE
) -> dict[str, Row]:
    write_files(folder, {"suite.py": suite.replace("KERNELS", kernels), **files})
    settings = SessionSettings(device=GPU, measure=measure, timeout_s=120.0)
    with Session(load(folder), settings, Recorder()) as session:
        cases, _ = divided(plan(load(folder).suite), (), session.device)
        rows = session.run(cases).rows
    return {row.kernel: row for row in rows}


def compiled_of(row: Row) -> CompiledKernel:
    assert row.resources is not None
    assert row.resources.registers == row.resources.kernels[0].registers
    return row.resources.kernels[0]


@pytest.mark.parametrize(("kind", "file"), [("Torch", TORCH), ("Cupy", CUPY)])
def test_arrays_lie_as_the_problem_says(tmp_path, kind, file):
    needs(kind.lower())
    flat = '    n = Axis(default=(2**22,))\n    x = Input("n")\n    y = Output("n")\n'
    assert flat in SUITE
    lying = '    x = Input("n", "m", ld=256)\n    y = Output("n", "m", order="F")\n'
    suite = SUITE.replace(flat, "    n = Axis(default=(300,))\n    m = Axis(default=(200,))\n" + lying)
    kernels = ", ".join(f"Kernel({name!r}, {kind}Function('ops.py'))" for name in ("given", "returned"))
    rows = rows_of(tmp_path / "kernels/scaled", kernels, {"ops.py": file}, suite=suite)
    assert rows["given"].status == "verified", rows["given"].message
    assert "not in column order" in rows["returned"].message


QUICK = MeasureSettings(max_time_s=0.3)


def test_triton_is_timed_and_tells_what_it_compiled(tmp_path):
    needs("torch", "triton")
    kernels = """
        Kernel("given", TritonFunction("k.py"), macros={"BLOCK": 1024}),
        Kernel("tuned", TritonFunction("k.py"), dtype="bfloat16"),
        Kernel("kernel", TritonFunction("k.py"), macros={"BLOCK": 256}, block=128, grid=elements),
        Kernel("broken", TritonFunction("k.py")),
    """
    rows = rows_of(tmp_path, kernels, {"k.py": TRITON}, QUICK)
    told = {name: (row.status, row.reason, row.message) for name, row in rows.items()}
    assert [told[name][0] for name in ("given", "tuned", "kernel")] == ["measured"] * 3, told
    assert told["broken"][:2] == ("failed", "build-failed"), told
    compiled = {name: compiled_of(rows[name]) for name in ("given", "tuned", "kernel")}
    assert compiled["given"].settings["BLOCK"] == 1024
    assert compiled["given"].settings["num_warps"] == 8
    assert compiled["tuned"].settings["BLOCK"] in (512, 1024)
    assert compiled["kernel"].settings["num_warps"] == 4
    for kernel in compiled.values():
        assert kernel.registers
        assert kernel.spilled_bytes == 0
        assert kernel.code_sha256


def test_torch_is_timed_by_the_harness_stream_alone(tmp_path):
    needs("torch")
    kernels = """
        Kernel("given", TorchFunction("k.py"), dtype="bfloat16"),
        Kernel("returned", TorchFunction("k.py")),
        Kernel("several", TorchFunction("k.py"), dtype="float16"),
        Kernel("aside_given", TorchFunction("k.py")),
        Kernel("aside_returned", TorchFunction("k.py")),
        Kernel("aside_waited", TorchFunction("k.py")),
        Kernel("waited", TorchFunction("k.py")),
        Kernel("on_host", TorchFunction("k.py")),
        Kernel("in_place", TorchFunction("k.py", "given")),
    """
    rows = rows_of(tmp_path, kernels, {"k.py": TORCH}, QUICK)
    assert [(row.status, row.reason) for row in rows.values()] == [
        *[("measured", "")] * 3,
        *[("failed", "foreign-stream")] * 3,
        ("measured", ""),
        ("failed", "launch-refused"),
        ("measured", ""),
    ], [row.message for row in rows.values()]
    assert "is on cpu; expected cuda:" in rows["on_host"].message
    # A copy into the output, which takes as long as the work, is not in the time of what returns its result.
    medians = [
        statistics.median(measurement.times_ns)
        for name in ("in_place", "returned")
        if (measurement := rows[name].measurement) is not None
    ]
    assert medians[1] < 1.5 * medians[0]
    # What waits for the card does not wait until a card that is held lets go by itself, slot by slot.
    waited = rows["waited"].measurement
    assert waited is not None
    assert waited.started_ns is not None
    assert waited.ended_ns is not None
    assert waited.ended_ns - waited.started_ns < 3e9, "ten times what QUICK gives it"


def test_cupy_launches_arrays_and_raw_kernels(tmp_path):
    needs("cupy")
    kernels = """
        Kernel("kernel", CupyFunction("k.py"), block=256, grid=elements),
        Kernel("given", CupyFunction("k.py")),
        Kernel("returned", CupyFunction("k.py"), dtype="float16"),
    """
    rows = rows_of(tmp_path, kernels, {"k.py": CUPY}, QUICK)
    assert [row.status for row in rows.values()] == ["measured"] * 3, [row.message for row in rows.values()]
    assert compiled_of(rows["kernel"]).registers


def test_numba_launches_a_kernel_and_what_launches_one(tmp_path):
    needs("numba.cuda" if importlib.util.find_spec("numba") else "numba")
    kernels = """
        Kernel("kernel", NumbaFunction("k.py"), block=256, grid=elements),
        Kernel("given", NumbaFunction("k.py")),
    """
    rows = rows_of(tmp_path, kernels, {"k.py": NUMBA}, QUICK)
    if any("'numpy' has no attribute" in row.message for row in rows.values()):
        pytest.skip("This numba.cuda is older than this NumPy.")
    assert [row.status for row in rows.values()] == ["measured"] * 2, [row.message for row in rows.values()]
    assert compiled_of(rows["kernel"]).registers


def test_what_a_helper_does_shows_in_a_comparison(tmp_path):
    """Base and head import modules of one name, and each gets its own."""
    needs("torch", "triton")
    repository = make_repository(tmp_path / "project")
    twice = "    for _ in range(TIMES):\n        kernel[(triton.cdiv(n, BLOCK),)]"
    files = {
        "pyproject.toml": "[tool.harness]\n",
        "kernels/scaled/suite.py": SUITE.replace(
            "KERNELS", """Kernel("given", TritonFunction("k.py"), macros={"BLOCK": 1024})"""
        ),
        "kernels/scaled/k.py": TRITON.replace("WARPS = 8\n", "from helper import TIMES, WARPS\n").replace(
            "    kernel[(triton.cdiv(n, BLOCK),)]", twice
        ),
        "kernels/scaled/helper.py": "TIMES, WARPS = 1, 8\n",
    }
    base = commit(repository, files, 1)
    commit(repository, {"kernels/scaled/helper.py": "TIMES, WARPS = 2, 4\n"}, 2)
    done = run_command(
        "compare", base, "--device", GPU, "--no-twins", "--json", "scaled", cwd=repository, timeout_s=300
    )
    assert done.stdout, done.stderr
    (result,) = json.loads(done.stdout)
    (verdict,) = result["verdicts"]
    assert verdict["status"] == "regression", verdict
    assert verdict["time"]["effect"] > 0.3
    warps = [verdict[side]["resources"]["kernels"][0]["settings"]["num_warps"] for side in ("base", "head")]
    assert warps == [8, 4]


def test_cycles_are_of_the_function_and_not_of_putting_its_result_in_place(tmp_path):
    """A result that the function returns is copied to the output, which takes as long as the function."""
    needs("torch")
    repository = make_repository(tmp_path / "project")
    files = {
        "pyproject.toml": "[tool.harness]\n",
        "kernels/scaled/suite.py": SUITE.replace("KERNELS", 'Kernel("twice", TorchFunction("t.py"))'),
        "kernels/scaled/t.py": "def twice(x):\n    return x * 2\n",
    }
    base = commit(repository, files, 1)
    commit(repository, {"kernels/scaled/t.py": "def twice(x):\n    return x * 4 / 2\n"}, 2)
    arguments = ("compare", base, "--device", GPU, "--no-twins", "--json", "--size", str(2**24), "scaled")
    done = run_command(*arguments, cwd=repository, timeout_s=300)
    assert done.stdout, done.stderr
    ((verdict,),) = (result["verdicts"] for result in json.loads(done.stdout))
    assert verdict["status"] == "regression", verdict
    assert verdict["time"]["effect"] > 0.4
    assert verdict["cycles"]["effect"] == pytest.approx(verdict["time"]["effect"], rel=0.1)


JAX = """\
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["JAX_CUDA_VISIBLE_DEVICES"] = "@CARD@"
import jax
import torch

jax.devices()  # it leaves another card current when it starts, and PyTorch would refuse to lend it this one's


@jax.jit
def _twice(x):
    return 2 * x


def twice(x):
    return torch.from_dlpack(_twice(jax.dlpack.from_dlpack(x)))
"""


def test_jax_takes_part_by_dlpack(tmp_path):
    """It has a stream of its own, and waits for the harness's as that waits for it."""
    needs("torch", "jax")
    rows = rows_of(
        tmp_path,
        'Kernel("twice", TorchFunction("k.py", needs=("jax",)))',
        {"k.py": JAX.replace("@CARD@", GPU.partition(":")[2])},
        QUICK,
    )
    assert rows["twice"].status == "measured", rows["twice"].message


def test_a_function_that_makes_another_card_current_runs_on_its_own(tmp_path):
    needs("torch")
    other = "cuda:0" if GPU != "cuda:0" else "cuda:1"
    try:
        find_device(other)
    except DeviceError:
        pytest.skip("There is one card.")
    file = f"import torch\n\ntorch.cuda.set_device({other!r})\n\n\ndef twice(x):\n    return 2 * x\n"
    kernels = 'Kernel("twice", TorchFunction("k.py"))'
    row = rows_of(tmp_path, kernels, {"k.py": file}, QUICK)["twice"]
    assert row.status == "measured", row.message


OPERATOR = """\
import torch


@torch.library.custom_op("ours::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    {slower}
    return 2{point} * x


def call(x):
    return scale(x)
"""


@pytest.mark.parametrize(
    ("slower", "statuses"), [("x = x.clone()", {"regression"}), ("", {"unchanged", "inconclusive"})]
)
def test_two_versions_of_a_registered_operator_take_turns(tmp_path, slower, statuses):
    """A process can register only one version. A factor in another spelling is another version of the same
    speed, but eight pairs of processes may differ too much for `unchanged`.
    """
    needs("torch")
    text = SUITE.replace("KERNELS", "Kernel('scale', TorchFunction('ops.py', 'call'))")
    root = make_repository(tmp_path / "project")
    commit(root, {"kernels/py/suite.py": text, "kernels/py/ops.py": OPERATOR.format(slower="", point="")}, 1)
    commit(root, {"kernels/py/ops.py": OPERATOR.format(slower=slower, point=".0")}, 2)
    done = run_command("compare", "HEAD~1", "HEAD", "--device", GPU, "--json", cwd=root, timeout_s=560)
    assert done.stdout, done.stderr
    [result] = json.loads(done.stdout)
    assert result["verdicts"][0]["status"] in statuses, result["verdicts"]
    blocks = read_comparison(Path(result["record"])).blocks
    assert blocks
    assert all(each.block.in_turns for each in blocks)
