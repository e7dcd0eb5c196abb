"""`harness init`: benchmarks that a project has already, OpenCL's kernels, and frameworks without suites."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from harness.init.guess import suites_of
from harness.init.own_benchmarks import OwnBenchmark, other_frameworks, own_benchmarks
from harness.init.repository import Repository
from harness.suite.loader import load_folder
from tests.support import caller

DO_BENCH = """\
import torch
import triton

def main():
    print(triton.testing.do_bench(lambda: torch.softmax(torch.rand(9), 0)))

if __name__ == "__main__":
    main()
"""
OWN_TIMER = """\
import time, torch

def timed(fn, times):
    fn()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times

print(timed(lambda: torch.rand(9), 10))
"""
INLINE = """\
import time, torch

x = torch.rand(9)
for _ in range(3):
    begin = time.perf_counter()
    x + x
    torch.cuda.synchronize()
    print(time.perf_counter() - begin)
"""
PYTEST = "def test_softmax(benchmark):\n    benchmark(len, [1])\n"
CL = """\
__attribute__((reqd_work_group_size(256, 1,
                                    1)))
__kernel void scale(__global const float *restrict in_, global float *out, const uint n)
{
    const size_t i = get_global_id(0);
    if (i < n)
        out[i] = 3.0f * in_[i];
}

kernel void flip(global float *out, constant float *x, uint w, uint h, __local float *tile)
{
    tile[get_local_id(0)] = x[get_global_id(0)];
}
"""


@pytest.fixture
def call(capsys, monkeypatch):
    return caller(capsys, monkeypatch)


def found(top: Path) -> dict[str, OwnBenchmark]:
    return {each.path: each for each in own_benchmarks(Repository(top))}


def option(benchmark: OwnBenchmark, name: str) -> str:
    """The value of an option in the command, as a shell would hand it over."""
    words = shlex.split(benchmark.command)
    return words[words.index(name) + 1]


@pytest.mark.parametrize(
    ("import_", "call_", "timer"),
    [
        ("from triton.testing import do_bench", "do_bench(f)", "do_bench"),
        ("import triton", "triton.testing.do_bench_cudagraph(f)", "do_bench_cudagraph"),
        ("import torch.utils.benchmark as tub", "tub.Timer('f()').timeit(3)", "torch.utils.benchmark.Timer"),
        ("from torch.utils import benchmark", "benchmark.Timer('f()')", "torch.utils.benchmark.Timer"),
        ("from cupyx.profiler import benchmark as b", "b(f, ())", "cupyx.profiler.benchmark"),
        ("from flashinfer.testing import bench_gpu_time", "bench_gpu_time(f)", "bench_gpu_time"),
    ],
)
def test_a_script_is_known_by_the_timer_that_it_calls(theirs, import_, call_, timer):
    top = theirs({"my bench/x.py": f"{import_}\nf = min\nfor _ in range(3):\n    {call_}\n"})
    script = found(top)["my bench/x.py"]
    assert (script.kind, script.timers) == ("script", (timer,))
    assert shlex.split(option(script, "--script")) == ["python", "my bench/x.py"]
    assert "--timer" not in script.command


def test_an_author_s_own_timer_is_named(theirs):
    top = theirs(
        {
            "here.py": OWN_TIMER,
            "pkg/tools.py": OWN_TIMER.partition("print")[0],
            "pkg/bench.py": "import torch\nfrom .tools import time_it\nfor _ in '12':\n    time_it(len)\n",
        }
    )
    scripts = found(top)
    assert option(scripts["here.py"], "--timer") == "timed"
    assert option(scripts["pkg/bench.py"], "--timer") == "pkg.tools:time_it"
    assert option(scripts["pkg/bench.py"], "--script") == "python -m pkg.bench"
    assert "pkg/tools.py" not in scripts  # it does nothing when it is run


def test_options_that_a_script_requires_stand_in_its_command(theirs):
    parser = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--op-name", required=True)
parser.add_argument("--fast", action="store_true")
parser.add_argument("sizes")
parser.add_argument("rest", nargs="*")
"""
    script = found(theirs({"bench.py": parser + DO_BENCH}))["bench.py"]
    assert option(script, "--script") == "python bench.py --op-name OP_NAME SIZES"


def test_a_test_that_calls_a_timer_is_run_by_pytest(theirs):
    text = (
        "import triton\n\ndef test_it():\n    triton.testing.do_bench(len)\n\ndef test_other():\n    pass\n"
    )
    script = found(theirs({"tests/test_it.py": text}))["tests/test_it.py"]
    assert option(script, "--script") == "python -m pytest tests/test_it.py::test_it"


def test_tests_with_pytest_benchmark_are_one_command_a_folder(theirs):
    top = theirs({"tests/perf/test_a.py": PYTEST, "tests/perf/test_b.py": PYTEST, "test_c.py": PYTEST})
    benchmarks = found(top)
    assert benchmarks["tests/perf"].command == "pytest tests/perf --perf-base HEAD~1"
    assert benchmarks["tests/perf"].tests == 2
    assert benchmarks["test_c.py"].command == "pytest test_c.py --perf-base HEAD~1"


@pytest.mark.parametrize("configured", [False, True])
def test_pytest_is_told_of_functions_of_other_names_unless_the_project_does(theirs, configured):
    settings = {"pytest.ini": "[pytest]\npython_functions = bench_*\n"} if configured else {}
    top = theirs({"bench/bench_a.py": PYTEST.replace("test_", "bench_"), **settings})
    words = shlex.split(found(top)["bench/bench_a.py"].command)
    told = [] if configured else ["-o", "python_functions=test bench"]
    assert words == ["pytest", *told, "bench/bench_a.py", "--perf-base", "HEAD~1"]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nimport torch.distributed as d\nd.init_process_group()\n" + DO_BENCH,
        "import triton\n\ndef helper(fn):\n    return triton.testing.do_bench(fn)\n",
        "import time\nprint(time.perf_counter())\n",
        "import triton\ndo_bench(\n",
    ],
    ids=["several ranks", "a module", "no GPU", "no Python"],
)
def test_what_no_command_can_measure_is_not_listed(theirs, text):
    assert not found(theirs({"bench.py": text}))


def test_a_project_with_benchmarks_alone_is_fine(theirs, call):
    theirs({"bench.py": DO_BENCH, "inline_bench.py": INLINE})
    done = call("init")
    assert done.status == 0
    assert "harness compare HEAD~1 --script 'python bench.py'  # do_bench" in done.out
    assert "Timed between two lines of their own: inline_bench.py." in done.out


def test_benchmarks_come_before_kernels_and_are_in_json(theirs, call):
    theirs({"bench.py": DO_BENCH, "a.cl": CL})
    plain, as_json = call("init", "--dry-run"), call("init", "--dry-run", "--json")
    assert plain.out.index("bench.py") < plain.out.index("a.cl")
    assert [each["path"] for each in as_json.json["benchmarks"]] == ["bench.py"]


def test_of_dozens_of_suites_json_lists_all_and_none_is_written_unasked(theirs, call):
    kernel = "__global__ void {0}(const float *x, float *y, int n) {{ g(x, y); }}\n"
    files = {f"{name}.cu": kernel.format(name) for name in (f"one_{letter}x" for letter in "abcdefghijklmno")}
    top = theirs(files)
    assert "what they compute is unknown" in call("init", "--yes").failed_with(2)
    assert len(call("init", "--dry-run", "--json").json["suites"]) == 15
    (top / "bench.py").write_text(DO_BENCH)
    done = call("init", "--yes")
    assert done.status == 0
    assert "--only NAME writes others" in done.err
    assert not (top / "perf").exists()


def test_an_opencl_kernel_becomes_a_suite_of_its_file(theirs, call):
    top = theirs({"src/a.cl": CL})
    assert call("init", "--yes").status == 0
    (kernel,) = load_folder(top / "perf" / "scale").kernels
    assert kernel.source == "../../src/a.cl"
    assert kernel.sources.keys() == {"opencl"}
    assert "src/a.cl:3" in (top / "perf" / "scale" / "suite.py").read_text()
    _, left = suites_of(Repository(top))
    assert [(each.kernel, each.where) for each in left] == [("flip", "src/a.cl:10")]
    assert "the host decides the size of its __local parameter tile" in left[0].why
    done = call("check", "--device", "opencl:0", "--size", "1000", "--json")
    assert done.status == 0
    assert [line["row"]["status"] for line in done.json[0]["rows"]] == ["verified"]


def test_a_quotient_of_opencl_has_no_known_error(theirs):
    top = theirs({"a.cl": CL.replace("3.0f * in_[i]", "in_[i] / 3.0f")})
    (suite,) = suites_of(Repository(top))[0]
    assert suite.reference is None


CLASS = """\
import torch
import triton
import triton.language as tl

@triton.jit
def twice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2.0 * tl.load(x_ptr + i, mask=i < n), mask=i < n)

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        n = x.numel()
        twice_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        ctx.save_for_backward(x)
        return y
"""


@pytest.mark.parametrize(
    "function",
    ["def twice(a: torch.Tensor):\n    return Twice.apply(a)\n", "twice = Twice.apply\n"],
    ids=["function", "alias"],
)
def test_a_function_of_a_class_that_launches_triton_is_proposed(theirs, function):
    top = theirs({"ops.py": f"{CLASS}\n{function}"})
    (suite,), left = suites_of(Repository(top))
    assert not left
    assert [array.role for array in suite.arrays] == ["Input", "Output"]
    assert (suite.kernels[0].entry, suite.kernels[0].line) == ("twice", CLASS.count("\n") + 2)


FRAMEWORKS = {
    "cuTile": "import cuda.tile as ct\n",
    "CuTe DSL": "import cutlass\nfrom cutlass import cutlass_dsl, cute\n",
    "TileLang": "import tilelang.language as T\n",
    "Helion": "import helion\n",
    "Warp": "import warp as wp\n",
    "Gluon": "from triton.experimental.gluon import language as gl\n",
    "Taichi": "import taichi as ti\n",
    "JAX Pallas": "from jax.experimental import pallas as pl\n",
    "torch.compile": "import torch\n\n@torch.compile(fullgraph=True)\ndef f(x):\n    return x + 1\n",
    "numba-cuda": "from numba import cuda\n\n@cuda.jit\ndef f(x):\n    pass\n",
    "PyCUDA": "from pycuda.compiler import SourceModule\n",
    "cuda.core": "from cuda.core.experimental import Device, Program\n",
    "CUDA graphs": "import torch\n\ng = torch.cuda.CUDAGraph()\n",
}
OTHER_FILES = {
    "a.metal": "Metal",
    "b.cu": "CUDA graphs",
    "c.cpp": "SYCL",
    "d.hip": "HIP",
    "e.comp": "GLSL",
    "f.mojo": "Mojo",
    "g.jl": "CUDA.jl",
}
TEXTS = {
    "b.cu": "void f(cudaGraphExec_t g, cudaStream_t s) { cudaGraphLaunch(g, s); }\n",
    "c.cpp": "#include <sycl/sycl.hpp>\n",
    "d.hip": "__global__ void f(float *x) { *x = 1; }\n",
    "g.jl": "using CUDA\n",
}


def test_frameworks_without_suites_are_named_with_what_measures_them(theirs, call):
    python = {f"{number}.py": text for number, text in enumerate(FRAMEWORKS.values())}
    nothing = "# torch.compile, cuda.graph\nfrom cutlass import other\nimport warping, cuda.bindings\n"
    theirs({**python, **{name: TEXTS.get(name, "") for name in OTHER_FILES}, "none.py": nothing})
    done = call("init")
    assert done.status == 3
    for name, file in (*zip(FRAMEWORKS, python, strict=True), *((n, f) for f, n in OTHER_FILES.items())):
        assert f"{name} ({file})" in done.out
    lines = done.out.splitlines()
    (of_tile,) = [line for line in lines if "cuTile" in line]
    assert of_tile.startswith("  a benchmark script (--script), a test (gpu_benchmark), a suite of yours")
    assert sum("CUDA graphs" in line for line in lines) == 2  # of Python and of C++
    named = call("init", "--json", "--dry-run").json["frameworks_without_suites"]
    assert {each["name"] for each in named} == {*FRAMEWORKS, *OTHER_FILES.values()}


def test_a_framework_whose_functions_have_a_suite_is_not_named(theirs):
    compiled = CLASS + "\n@torch.compile\ndef twice(a: torch.Tensor):\n    return Twice.apply(a)\n"
    repository = Repository(theirs({"ops.py": compiled}))
    assert [each.name for each in other_frameworks(repository, ())] == ["torch.compile"]
    assert not other_frameworks(repository, {"ops.py"})
