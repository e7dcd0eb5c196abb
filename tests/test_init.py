"""`harness init`: it finds kernels and benchmarks, guesses their arguments, and writes suites."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.config import load_config
from harness.init.cpp import read, text_of
from harness.init.guess import suites_of
from harness.init.repository import Repository
from harness.init.written_files import suite_text
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of, plan
from tests.support import caller, write_files

SCALE = """\
#include <cstdio>
// __global__ void in_a_comment(float *x) {}
const char *text = "__global__ void in_a_string(float *x) {}";
const char *raw = R"(__global__ void in_a_raw_string(float *x) {})";
#if 0
__global__ void taken_out(float *x) {}
#endif
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
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
SIGNATURE = "(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)"
NAIVE = f"""\
__global__ void sgemm_naive{SIGNATURE}
{{
    const uint x = blockIdx.x * blockDim.x + threadIdx.x;
    const uint y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < M && y < N) {{
        float sum = 0.0;
        for (int i = 0; i < K; ++i) {{ sum += A[x * K + i] * B[i * N + y]; }}
        C[x * N + y] = alpha * sum + beta * C[x * N + y];
    }}
}}
"""
TILED = """\
const int THREADS = 64;
template <const int BM, const int BN, typename T = float>
__global__ void __launch_bounds__(THREADS)
    sgemm_tiled(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C)
{
    A += blockIdx.y * BM * K;
    load<BM>(K, A, B);
    reinterpret_cast<float4 *>(&C[threadIdx.x * N])[0] = alpha_of(C);
}
"""
RUNNER = """\
void run_naive(int rows, int cols, int K, float alpha, float *A, float *B, float beta, float *C)
{
    dim3 grid(CEIL_DIV(rows, 32), (cols + 31) / 32);
    dim3 block(32, 32);
    sgemm_naive<<<grid, block>>>(rows, cols, K, alpha, A, B, beta, C);
}
void run_tiled(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C)
{
    const uint BN = 2 * 64;
    if (M > 64) {
        const uint BM = 64;
        sgemm_tiled<BM, BN><<<dim3(M / BM, N / BN), THREADS>>>(M, N, K, alpha, A, B, beta, C);
    }
}
"""


@pytest.fixture
def call(capsys, monkeypatch):
    return caller(capsys, monkeypatch)


def guessed(top: Path):
    """The suites by name, and why kernels were left out by theirs."""
    suites, left = suites_of(Repository(top))
    return {suite.name: suite for suite in suites}, {each.kernel: each.why for each in left}


def test_a_kernel_becomes_a_suite_that_loads_and_is_listed(theirs, call):
    top = theirs({"src/scale.cu": SCALE})
    assert call("init", "--yes").status == 0
    suite = load_folder(top / "perf" / "scale")
    kernel = suite.by_name["scale"]
    case = suite.case(kernel, {"n": 1000})
    launch = launch_of(kernel, case)
    assert (launch.block[0], launch.grid[0]) == (128, 8)
    assert [parameter.name for parameter in suite.parameters(kernel, case)] == ["in_", "out", "n"]
    assert suite.problem.reference(case, in_=3.0) == 7.0
    assert suite.problem.tolerance(case, in_=3.0) == 2 * 2.0**-24 * 7
    assert [each["suite"] for each in json.loads(call("list", "--json").out)] == ["scale"]
    assert call("check", "--device", "null").status == 0
    for name in ("asv.conf.json", "benchmarks/__init__.py", "benchmarks/test_kernels.py"):
        assert (top / name).is_file()
    assert 'folder = "perf/scale"' in (top / "benchmarks/suites.py").read_text()


def test_kernels_of_one_problem_share_a_suite_with_what_their_launches_say(theirs):
    suites, left = guessed(theirs({"a.cuh": NAIVE, "b.cuh": TILED, "run.cu": RUNNER}))
    assert not left
    suite = suites["sgemm"]
    assert {array.name: (array.role, array.shape) for array in suite.arrays} == {
        "A": ("Input", ("M", "K")), "B": ("Input", ("K", "N")), "C": ("InOut", ("M", "N")),
    }  # fmt: skip
    assert suite.args == ("M", "N", "K", "alpha", "A", "B", "beta", "C")
    assert suite.reference is None  # a tiled kernel's name alone says so
    assert suite.proposal is not None
    assert suite.proposal.expression == "case.alpha * (A @ B) + case.beta * C"
    naive, tiled = suite.kernels
    assert (naive.block, naive.grid) == ("(32, 32)", "lambda c: (ceil_div(c.M, 32), ceil_div(c.N, 32))")
    assert tiled.instantiate == "sgemm_tiled<{BM}, {BN}, float>"
    assert tiled.macros == {"BM": 64, "BN": 128}
    assert (tiled.block, tiled.grid) == ("64", "lambda c: (c.M // c.BM, c.N // c.BN)")


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("if (i < n) y[i] = x[i];", "x"),
        ("if (i >= n) return; y[i] = x[i];", "x"),
        ("if (i >= n) { return; } y[i] = a * x[i] + y[i];", "case.a * x + y"),
        ("if (i < n) y[i] += a * x[i];", "y + case.a * x"),
        ("if (i < n) { const float v = __ldg(&x[i]); y[i] = v * v; }", "x * x"),
        ("if (i < n) y[i] = x[i] + 1e-5f;", "x + 1e-05"),
        ("if (i < n) y[i] = a * x[i] - y[i] * x[i];", "case.a * x - y * x"),
        ("if (i < n) y[i] = a * expf(x[i]);", "case.a * np.exp(x)"),
        ("for (int k = i; k < n; k += blockDim.x * gridDim.x) y[k] = x[k];", None),  # k is no thread's own
        (f"for ({INDEX.replace('i =', 'k =')} k < n; k += blockDim.x * gridDim.x) y[k] = x[k];", "x"),
        ("for (; i < n; i += gridDim.x * blockDim.x) y[i] += x[i];", "y + x"),
        ("int step = blockDim.x * gridDim.x; for (; i < n; i += step) y[i] += x[i];", "y + x"),
        # What is more than that is not told: each of these would be wrong.
        ("if (i < n) { float s = 0; for (int j = 0; j < n; ++j) s += x[j]; y[i] = s; }", None),
        ("if (i < n) y[i] = x[n - 1 - i];", None),
        ("if (i < n) y[i] = x[i] > 0 ? x[i] : 0;", None),
        ("if (i < n) { y[i] = x[i]; y[i] = 2 * x[i]; }", None),
        ("if (i < n) { float s = x[i]; s *= 2; y[i] = s; }", None),
        ("if (i < n) y[i] = f(x[i]);", None),
        ("if (i < n) y[i] = a;", None),
        ("if (i < n && x[i] > 0) y[i] = x[i];", None),
        ("if (i < n) if (a > 1) y[i] = x[i];", None),
        ("if (i < n) for (int k = 0; k < 5; ++k) y[i] += x[i];", None),
        ("for (; i < n; i += 512) y[i] += x[i];", None),
        ("int j = threadIdx.x; if (j < n) y[j] = x[j];", None),
        ("if (n) y[0] = x[0];", None),
        # The guard leaves an element out, or lets another thread through.
        ("if (i < n - 1) y[i] = x[i];", None),
        ("if (i < n / 2) y[i] = x[i];", None),
        ("if (i > 0 && i < n) y[i] = x[i];", None),
        ("if (i < n) return; y[i] = x[i];", None),
        ("int j = 2 * i; if (j < n) y[i] = x[i];", None),
        ("if (i < n) { y[i] = x[i]; } else { y[0] = 1; }", None),
        # Another place than i.
        ("if (i < n) y[2 * i] = x[2 * i];", None),
        ("int at = i + 1; if (at < n) y[at] = x[at];", None),
        ("x += 1; if (i < n) y[i] = x[i];", None),
        ("const float *z = x + 1; if (i < n) y[i] = z[i];", None),
        ("i += 1; if (i < n) y[i] = x[i];", None),
        # An array or a scalar is ignored.
        ("if (i < n) y[i] = 2;", None),
        ("float b = a; if (i < n) y[i] = x[i];", None),
        ("y[i] = x[i];", None),
        # A value is cut or divided as integers are.
        ("if (i < n) y[i] = (int)x[i];", None),
        ("if (i < n) y[i] = (unsigned int)x[i];", None),
        ("if (i < n) y[i] = static_cast<int>(x[i]);", None),
        ("if (i < n) { int v = x[i]; y[i] = v; }", None),
        ("if (i < n) y[i] = 1 / 2 * x[i];", None),
        # Terms that may cancel are more than their magnitudes.
        ("if (i < n) y[i] = 1.f / tanhf(x[i]) - 1.f / x[i];", None),
        ("if (i < n) y[i] = 1.0f + expf(x[i]);", None),
        ("if (i < n) y[i] = x[i] - a / x[i];", None),
        ("if (i < n) y[i] = a / (x[i] - a);", None),
        ("if (i < n) y[i] = expf(x[i]) * (x[i] - a);", None),
        ("if (i < n) y[i] = expf(a * x[i]);", None),
        ("if (i < n) y[i] = sqrtf(x[i]);", None),  # which is NaN below 0
    ],
)
def test_a_reference_is_written_where_one_assignment_says_it_and_nowhere_else(theirs, body, reference):
    scalar = "float a, " if re.search(r"\ba\b", body) else ""
    kernel = f"__global__ void f(const float *x, float *y, {scalar}int n) {{ {INDEX} {body} }}"
    suites, _ = guessed(theirs({"f.cu": kernel}))
    found = suites["f"].reference
    assert (found and found.expression) == reference


@pytest.mark.parametrize(
    ("x", "y", "value"),
    [
        ("double", "float", "x[i]"),
        ("float", "double", "x[i] * x[i]"),
        ("long", "int", "(int)x[i]"),
        ("double", "double", "0.1f * x[i]"),
        ("int", "int", "x[i] / 2"),
        ("unsigned", "unsigned", "x[i] - 20"),
        ("signed char", "signed char", "x[i] * x[i] * x[i]"),
    ],
)
def test_no_reference_is_written_where_a_type_changes_the_value(theirs, x, y, value):
    kernel = f"__global__ void f(const {x} *x, {y} *y, int n) {{ {INDEX} if (i < n) y[i] = {value}; }}"
    suites, _ = guessed(theirs({"f.cu": kernel}))
    assert suites["f"].reference is None


def test_a_tolerance_adds_the_magnitudes_of_the_terms_and_counts_what_is_rounded(theirs, call):
    given = "const float *x, const float *y, float *z, float a, int n"
    body = f"{INDEX} if (i < n) z[i] = a * x[i] - 0.1f * y[i];"
    theirs({"f.cu": f"__global__ void f({given}) {{ {body} }}"})
    call("init", "--yes")
    suite = load_folder(Path("perf/f").resolve())
    case = suite.case(suite.by_name["f"], {"n": 1})
    magnitude = case.a * 2 + 0.1 * 3
    assert suite.problem.tolerance(case, x=-2.0, y=-3.0) == pytest.approx(4 * 2.0**-24 * magnitude)


@pytest.mark.parametrize("flag", ["", " --use_fast_math"])
def test_fast_arithmetic_has_no_error_that_a_tolerance_could_say(theirs, flag):
    kernel = f"__global__ void f(const float *x, float *y, int n) {{ {INDEX} if (i < n) y[i] = expf(x[i]); }}"
    suites, _ = guessed(theirs({"f.cu": kernel, "Makefile": f"f:\n\tnvcc -O3{flag} f.cu\n"}))
    assert (suites["f"].reference is None) == bool(flag)


def test_a_name_alone_proposes_a_reference_that_its_author_completes(theirs, call):
    """A product by its name is one of a matrix and a vector by its body."""
    theirs({
        "a.cu": "__global__ void vectorMatrixMult(const float *A, const float *B, float *C, int N)\n"
        f"{{ {INDEX} if (i < N) {{ float sum = 0; for (int j = 0; j < N; j++) sum += A[i * N + j] * B[j];\n"
        "C[i] = sum; } }\n"
        "__global__ void transpose(const float *x, float *y, int m, int n) { y[0 * m * n] = g(x); }\n"
        "__global__ void softmax(const float *x, float *y, int m, int n) { y[m * n] = g(x); }\n"
        "__global__ void sum(const float *x, float *y, int n) { atomicAdd(y, x[1]); }\n"
    })  # fmt: skip
    suites, _ = guessed(Path())
    assert [suite.reference for suite in suites.values()] == [None] * 4
    by_vector = suites["vector_matrix_mult"]
    assert [array.shape for array in by_vector.arrays] == [("N", "N"), ("N",), ("N",)]
    assert by_vector.proposal is None
    assert "sum" in suites
    assert call("init", "--yes", "--only", "*").status == 0
    text = Path("perf/sum/suite.py").read_text()
    assert "    # Proposed by its name, and because it adds to one element: a sum. No body proves it" in text
    assert "    #     return x.sum()" in text
    (line,) = call("run", "--device", "null", "--json", "--quick", "sum").json[0]["rows"]
    assert (line["row"]["status"], line["row"]["outputs"]["held_to"]) == ("measured", "nothing")


@pytest.mark.parametrize(
    ("template", "given", "value", "why"),
    [
        ("template <typename P, float (*OP)(float, const P &)> ", "P p", "OP(x[i], p)", "parameter OP"),
        ("template <typename F> ", "F f", "f(x[i])", "calls its parameter f"),
    ],
)
def test_a_kernel_that_is_handed_a_function_is_left_out_and_the_others_are_proposed(
    theirs, template, given, value, why
):
    act = f"{template}__global__ void act(const float *x, float *y, {given}, int n)\n"
    top = theirs({"act.cu": f"{act}{{ {INDEX} if (i < n) y[i] = {value}; }}\n", "scale.cu": SCALE})
    suites, left = guessed(top)
    assert list(suites) == ["scale"]
    assert why in left["act"]


PARAMS_H = """\
#pragma once
struct Params {
  float alpha, beta;  // of y = alpha x + beta y
  int n;
  unsigned int mask[2];
};
"""
OF_A_STRUCTURE = """\
#include "params.h"
extern "C" __global__ void saxpby(const float *x, float *y, Params p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) y[i] = p.alpha * x[i] + p.beta * y[i];
}
void run(float *x, float *y, Params p) { saxpby<<<(p.n + 255) / 256, 256>>>(x, y, p); }
"""


def test_a_structure_by_value_comes_from_a_setup(theirs, call):
    top = theirs({"saxpby.cu": OF_A_STRUCTURE, "params.h": PARAMS_H})
    suites, left = guessed(top)
    assert not left
    assert suites["saxpby"].axes[0].names == ("n",)
    assert call("init", "--yes").status == 0
    suite = load_folder(top / "perf" / "saxpby")
    kernel = suite.by_name["saxpby"]
    case = suite.case(kernel, {"n": 100})
    assert kernel.setup is not None
    given = kernel.setup(case, {})["p"]
    assert [*given.dtype.fields] == ["alpha", "beta", "n", "mask"]
    assert given.nbytes == 20
    assert given["n"] == 100
    assert [each.name for each in suite.parameters(kernel, case)] == ["x", "y", "p"]


def test_a_structure_of_many_members_is_written_on_several_lines(theirs):
    many = ", ".join(f"member_{number}" for number in range(40))
    header = PARAMS_H.replace("unsigned int mask[2];", f"int64_t {many};")
    suites, _ = guessed(theirs({"saxpby.cu": OF_A_STRUCTURE, "params.h": header}))
    text = suite_text(suites["saxpby"], "perf/saxpby")
    assert text.count('("member_') == 40
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    "wrong", ["float *where;", "struct Other o;", "float (*f)(float);", "alignas(16) float x;", "T x;"]
)
def test_a_structure_of_more_than_numbers_is_left_out_with_the_way_to_pass_it(theirs, wrong):
    header = PARAMS_H.replace("unsigned int mask[2];", wrong)
    _, left = guessed(theirs({"saxpby.cu": OF_A_STRUCTURE, "params.h": header}))
    assert "parameter p is of type Params, which is no number" in left["saxpby"]
    assert "Kernel(setup=...) makes such values on the host" in left["saxpby"]


@pytest.mark.parametrize("declaration", ['{0} = Input("n")', '{0} = Output("n")', "{0} = Scalar(1)"])
def test_an_array_or_a_scalar_that_would_hide_an_attribute_is_refused_in_a_sentence(
    theirs, call, declaration
):
    theirs({"scale.cu": SCALE})
    call("init", "--yes")
    suite = Path("perf/scale/suite.py")
    text = suite.read_text().replace("import Axis", "import Axis, Scalar")
    suite.write_text(text.replace("    n = Axis", f"    {declaration.format('data')}\n    n = Axis"))
    done = call("list")
    assert done.status == 2
    assert "'data' of Scale has the name of an attribute that every Problem has" in done.err


@pytest.mark.parametrize("header", ["<hip/hip_runtime.h>", '"wrapped.h"'])
def test_a_kernel_of_hip_is_left_out_beside_the_same_one_of_cuda(theirs, header):
    kernel = f"__global__ void scale(const float *x, float *y, int n) {{ {INDEX} if (i < n) y[i] = x[i]; }}\n"
    suites, left = guessed(theirs({
        "a/main.cu": f"#include {header}\n{kernel}",
        "a/wrapped.h": "#include <hip/hip_runtime.h>\n",
        "b/main.cu": kernel,
    }))  # fmt: skip
    assert [kernel.file for suite in suites.values() for kernel in suite.kernels] == ["b/main.cu"]
    assert "not proposed: HIP (it includes hip/hip_runtime.h)" in left["scale"]


def test_a_file_of_hip_is_told_by_its_suffix_and_compiled_for_no_header(theirs):
    kernel = "__global__ void f(const type *x, type *y, int n) { y[n] = x[n]; }\n"
    suites, left = guessed(theirs({
        "a.cuh": kernel,
        "a.cpp": '#include <hip/hip_runtime.h>\ntypedef float type;\n#include "a.cuh"\n',
        "b.hip": kernel.replace("f(", "g(").replace("type", "float"),
    }))  # fmt: skip
    assert not suites
    assert "type type" in left["f"]
    assert "not proposed: HIP (by its name, .hip)" in left["g"]


def test_a_kernel_gets_the_flags_of_the_build_nearest_to_its_file(theirs):
    kernel = (
        f"__global__ void {{0}}(const float *x, float *y, int n) {{{{ {INDEX} if (i < n) y[i] = x[i]; }}}}\n"
    )
    suites, _ = guessed(theirs({
        "one/one.cu": kernel.format("scale"), "one/Makefile": "one: one.cu\n\tnvcc -O3 one.cu -c\n",
        "two/two.cu": kernel.format("other").replace("x[i]", "2 * x[i]"),
        "two/Makefile": "two: two.cu\n\tnvcc -O3 --use_fast_math two.cu -c\n",
    }))  # fmt: skip
    options = {kernel.name: kernel.options for suite in suites.values() for kernel in suite.kernels}
    assert options == {"scale": (), "other": ("--use_fast_math",)}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("CMakeLists.txt", "add_compile_options(--expt-relaxed-constexpr)\ninclude_directories(include)\n"),
        ("Makefile", "NVCC_FLAGS = --expt-relaxed-constexpr\n"),
        ("setup.py", "cuda_cflags = ['--expt-relaxed-constexpr']\n"),
    ],
)
def test_a_build_file_speaks_for_its_folder_and_below_alone(theirs, file, text):
    kernel = "#include <util.h>\n__global__ void {0}(const float *x, float *y, int n) {{ y[n] = x[n]; }}\n"
    suites, _ = guessed(theirs({
        f"one/{file}": text, "one/include/util.h": "",
        "one/deep/f.cu": kernel.format("f"), "two/g.cu": kernel.format("g"), "top.cu": kernel.format("h"),
    }))  # fmt: skip
    kernels = {name: suite.kernels[0] for name, suite in suites.items()}
    assert kernels["f"].options == ("--expt-relaxed-constexpr",)
    assert kernels["f"].include == (("one/include",) if file == "CMakeLists.txt" else ())
    assert [(kernels[name].options, kernels[name].include) for name in "gh"] == [((), ())] * 2


@pytest.mark.parametrize(
    ("name", "of"),
    [
        *((name, "Problem") for name in ("points", "data", "layout", "flop", "inputs", "outputs")),
        *((name, "Case") for name in ("kernel", "dtype", "id", "sizes", "scalars")),
    ],
)
def test_an_axis_that_would_hide_an_attribute_is_refused_in_a_sentence(theirs, call, name, of):
    top = theirs({"scale.cu": SCALE})
    call("init", "--yes")
    suite = top / "perf/scale/suite.py"
    suite.write_text(
        suite.read_text().replace('"n"', f'"{name}"').replace("    n = Axis", f"    {name} = Axis")
    )
    done = call("list")
    assert done.status == 2
    assert f"Axis '{name}' of Scale has the name of an attribute that every {of} has" in done.err
    assert f"such as {name}_." in done.err


def test_a_bound_that_is_no_length_of_the_arrays_proves_nothing(theirs):
    kernel = f"__global__ void f(const float *x, float *y) {{ {INDEX} if (i < COUNT) y[i] = x[i]; }}"
    suites, _ = guessed(theirs({"f.cu": f"#define COUNT 100\n{kernel}"}))
    assert suites["f"].reference is None


def test_arrays_of_a_product_of_two_lengths_have_both(theirs):
    kernel = "__global__ void {0}(const float *x, float *y, int rows, int neighbours)\n{{ {1} {2} }}\n"
    suites, _ = guessed(theirs({
        "a.cu": kernel.format("a", INDEX, "if (i >= rows * neighbours) return; y[i] = x[i];")
        + kernel.format("b", INDEX, "if (i < rows) y[i] = x[i];"),
    }))  # fmt: skip
    assert {array.shape for array in suites["a"].arrays} == {("rows", "neighbours")}
    assert suites["a"].reference.expression == "x"
    assert suites["b"].reference is None


@pytest.mark.parametrize(
    ("signature", "body", "role"),
    [
        ("float *x, float *y, int n", "y[0] = x[0];", "Output"),
        ("float *x, float *y, int n", "y[0] += x[0];", "InOut"),
        ("float *x, float *y, int n", "float4 *v = (float4 *)y; v[0] = g(x);", "Output"),
        ("float *x, float *y, int n", "atomicAdd(&y[0], x[0]);", "Output"),
        ("float *x, float *y, int n", "atomicAdd(&(y[0]), x[0]);", "Output"),
        ("const float *x, float *out, int n", "g(x, out);", "Output"),
        ("const float *x, float *y, float beta, int n", "y[0] = beta_of(x);", "InOut"),
    ],
)
def test_an_output_is_told_by_what_the_body_does(theirs, signature, body, role):
    suites, _ = guessed(theirs({"f.cu": f"__global__ void f({signature}) {{ {body} }}"}))
    x, y = suites["f"].arrays
    assert (x.role, y.role, y.init) == ("Input", role, "atomic" in body)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("*y = *x + 1;", ()),
        ("y[0] = x[0];", ()),
        ("atomicAdd(y, x[0]);", ()),
        ("y[1] = x[1];", ("n",)),
        ("*(y + 1) = *(x + 1);", ("n",)),
        ("float4 *v = (float4 *)y; v[0] = g(x);", ("n",)),
        ("if (n) y[0] = x[0]; y += n; y[0] = x[n];", ("n",)),
        ("g(x, y);", ("n",)),
    ],
)
def test_an_array_of_one_element_is_one_that_has_no_other_index(theirs, body, shape):
    suites, _ = guessed(theirs({"f.cu": f"__global__ void f(const float *x, float *y, int n) {{ {body} }}"}))
    assert suites["f"].arrays[1].shape == shape


def test_a_number_alone_is_written_to_every_element(theirs, call):
    theirs(
        {"f.cu": f"__global__ void f(float *y, float value, int n) {{ {INDEX} if (i < n) y[i] = value; }}"}
    )
    call("init", "--yes")
    suite = load_folder(Path("perf/f").resolve())
    case = suite.case(suite.by_name["f"], {"n": 1000})
    assert suite.problem.reference(case).shape == (1000,)


def test_the_scalars_of_a_suite_are_distinct_and_two_that_are_swapped_are_wrong(theirs, call):
    floats = (
        "a",
        "b",
        "c",
        "lo",
        "eps",
        "rms_eps",
        "alpha",
        "beta_1",
        "value",
        *(f"w{n}" for n in range(12)),
    )
    integers = ("seed", "iters", "repeats", "thread_id")
    given = [f"float {name}" for name in floats] + [f"int {name}" for name in (*integers, "n")]
    kernel = f"__global__ void f(const float *x, float *y, {', '.join(given)}) {{ y[n] = g(x); }}\n"
    body = f"{INDEX} if (i < n) y[i] = scale * x[i] + shift;"
    kernel += f"__global__ void h(const float *x, float *y, float scale, float shift, int n) {{ {body} }}"
    theirs({"f.cu": kernel})
    call("init", "--yes", "--only", "*")
    first = load_folder(Path("perf/f").resolve())
    of_case = first.case(first.by_name["f"], {"n": 1000})
    values = {name: getattr(of_case, name) for name in (*floats, *integers)}
    assert len({*values.values()}) == len(values)
    assert not {*values.values()} & {0, 0.5, 1, -1, 2}
    assert [values[name] for name in integers] == [3, 5, 7, 11]
    suite = load_folder(Path("perf/h").resolve())
    case = suite.case(suite.by_name["h"], {"n": 1000})
    x = np.random.default_rng(1).standard_normal(1000)
    result = case.shift * x + case.scale
    difference = abs(result - suite.problem.reference(case, x))
    assert np.mean(difference > 100 * suite.problem.tolerance(case, x)) > 0.99


@pytest.mark.parametrize(
    ("name", "parameters", "body"),
    [
        (
            "count",
            "const float *x, int *n",
            "atomicAdd(n, x[i] > 0);",
        ),  # without a length, the axis would be n
        ("f", "const float *__x, float *__y, int __n", "if (i < __n) __y[i] = __x[i];"),
        ("none", "const float *x, float *y, int n", "y[i] = x[i];"),
        # Names of the suite interface.
        ("two", "const float *Input, const float *w, float *Output, int n", "Output[i] = Input[i] * w[i];"),
        (
            "scaled",
            "const float *abs, float *y, float super, int points",
            "if (i < points) y[i] = super * abs[i];",
        ),
        ("filter", "const float *kernel, float *data, int dtype", "if (i < dtype) data[i] = kernel[i];"),
        ("of_case", "const float *case, float *self, float id, int sizes", "self[i] = id * case[i];"),
    ],
)
def test_a_suite_loads_whatever_names_the_source_has(theirs, call, name, parameters, body):
    theirs({"f.cu": f"__global__ void {name}({parameters}) {{ {INDEX} {body} }}"})
    call("init", "--yes")
    suite = load_folder(Path(f"perf/{name}").resolve())
    case = next(each.case for each in plan(suite, quick=True))
    assert len(suite.parameters(suite.by_name[name], case)) == parameters.count(",") + 1
    assert isinstance(launch_of(suite.by_name[name], case).grid[0], int)
    if suite.problem.held_to == "reference":
        ones = dict.fromkeys(suite.problem.inputs, 1.0)
        assert suite.problem.reference(case, **ones) is not None
        assert suite.problem.tolerance(case, **ones) >= 0


def test_a_number_of_a_template_may_have_the_name_of_an_attribute_of_a_case(theirs, call):
    body = f"{{ {INDEX} if (i < n) y[i] = x[i]; }}"
    theirs({
        "f.cu": f"template <int id> __global__ void f(const float *x, float *y, int n) {body}\n"
        "void run(float *x, float *y, int n) { f<64><<<n / id, id>>>(x, y, n); }\n"
    })  # fmt: skip
    call("init", "--yes")
    suite = load_folder(Path("perf/f").resolve())
    case = suite.case(suite.by_name["f"], {"n": 640})
    assert suite.by_name["f"].instance(case) == "f<64>"
    assert launch_of(suite.by_name["f"], case).grid[0] == 10


def test_sizes_follow_the_largest_array_and_say_where_no_parameter_is_a_length(theirs):
    product = "(const float *A, const float *B, float *C, int N) { int i = threadIdx.y, j = threadIdx.x;"
    suites, _ = guessed(theirs({
        "f.cu": f"__global__ void pairs{product} C[i * N + j] = A[i * N] * B[j * N]; }}",
        "g.cu": "__global__ void g(float *y) { y[threadIdx.x] = 1; }",
        "h.cu": f"__global__ void matrixMultiply{product} C[i * N + j] = g(A, B); }}",
    }))  # fmt: skip
    (pairs,), (g,), (matrix,) = (suites[name].axes for name in ("pairs", "g", "matrix_multiply"))
    assert (pairs.default, g.default, matrix.default) == ((4096,), (2**22, 2**24), (1024, 2048, 4096))
    assert "no parameter is a length" in g.why
    assert suites["matrix_multiply"].reference is None
    assert suites["matrix_multiply"].proposal.expression == "A @ B"


@pytest.mark.parametrize(
    ("host", "grid"),
    [
        ("dim3 b(16, 8); dim3 g((w + b.x - 1) / b.x, h / b.y, b.z);", "(ceil_div(c.w, 16), c.h // 8)"),
        ("dim3 b(16, 8); dim3 g; g.x = (w + b.x - 1) / b.x; g.y = h;", "(ceil_div(c.w, 16), c.h)"),
        ("dim3 b(16, 8); dim3 g((w + b.x - 1) / b.x, 1); g.y = h;", "(ceil_div(c.w, 16), c.h)"),
        ("dim3 b(16, 8); dim3 g; g.y = w * h / b.y;", "(1, c.w * c.h // 8)"),
        ("const dim3 b{16, 8}; dim3 g{(w + b.x - 1) / b.x, h / b.y};", "(ceil_div(c.w, 16), c.h // 8)"),
        ("dim3 const b(16, 8), g(w, h / b.y);", "(c.w, c.h // 8)"),
        ("dim3 b = {16, 8}, g; g = dim3(w, h / b.y);", "(c.w, c.h // 8)"),
        ("auto b = dim3{16, 8}; auto g = dim3{w / b.x, h};", "(c.w // 16, c.h)"),
        ("dim3 b(16, 8); int g = w; w *= 2;", "c.w"),
        ("dim3 b(16, 8); int g = 0; ask(&g);", "(ceil_div(c.w, 16), ceil_div(c.h, 8))"),
        ("dim3 b(16, 8); int g = 2; { g *= w; }", "(ceil_div(c.w, 16), ceil_div(c.h, 8))"),
        ("dim3 b(16, 8); int g = 1; ++g;", "(ceil_div(c.w, 16), ceil_div(c.h, 8))"),
        ("dim3 b(16, 8), g(unheard_of(w));", "(ceil_div(c.w, 16), ceil_div(c.h, 8))"),
    ],
)
def test_a_grid_is_what_the_launch_says_or_covers_the_array_from_its_last_axis(theirs, host, grid):
    kernel = (
        "__global__ void f(const float *x, float *y, int w, int h)\n"
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  y[j * w + i] = g(x[j * w + i]); }\n"
    )
    launch = f"void run(float *x, float *y, int w, int h) {{ {host} f<<<g, b>>>(x, y, w, h); }}"
    suites, _ = guessed(theirs({"f.cu": kernel + launch}))
    (found,) = suites["f"].kernels
    assert found.grid == f"lambda c: {grid}"
    assert ("grid" in found.notes) == ("ceil_div(c.h, 8)" in grid)


@pytest.mark.parametrize(
    ("index", "test", "grid"),
    [
        ("{0} * {1} + {2}", "if (j >= h || i >= w) return;", "(ceil_div(c.w, 16), ceil_div(c.h, 16))"),
        ("{1} * {0} + {2}", "if (i < h && j < w)", "(ceil_div(c.h, 16), ceil_div(c.w, 16))"),
        ("{0}", "if (i < h && j < w)", "(c.h, c.w)"),
        ("2 * {0} * {1} + {2}", "if (i < h && j < w)", "(ceil_div(c.h, 16), ceil_div(c.w, 16), c.d)"),
        ("{0} * {1} + {2}", "if (i < h / 2 && j < w)", "(ceil_div(c.h, 16), ceil_div(c.w, 16), c.d)"),
    ],
)
def test_a_guessed_grid_covers_what_the_kernel_compares_its_indices_with(theirs, index, test, grid):
    x, y = (
        index.format(*(f"{word}.{axis}" for word in ("blockIdx", "blockDim", "threadIdx"))) for axis in "xy"
    )
    body = f"int i = {x}; int j = {y}; {test} y[(j * w + i) * h] = blockIdx.z * d * threadIdx.y;"
    if "c.d" not in grid:
        body = body.replace("blockIdx.z", "2")
    suites, _ = guessed(theirs({"f.cu": f"__global__ void f(float *y, int d, int w, int h) {{ {body} }}"}))
    (kernel,) = suites["f"].kernels
    assert kernel.grid == f"lambda c: {grid}"
    assert kernel.notes["grid"] == "guessed: no launch was found"


@pytest.mark.parametrize(
    ("body", "doubted"),
    [
        ("if (i < n) y[i * 3 + 1] = 0;", True),
        ("if (i >= n) return; int at = 4 * i; y[at] = 0;", True),
        ("if (i < n) { int k = n - i; y[(k + 1) * 3] = 0; }", True),
        ("for (; i < n; i += 512) y[2 * (i + 1)] = 0;", True),
        ("if (i < n / 4) y[i * 4] = 0;", False),
        ("i = 4 * i; if (i < n) y[i] = 0;", False),
        ("int at = 2 * i; if (at < n) y[at] = 0;", False),
        ("for (int k = 0; k < n; ++k) y[k * 2] = 0;", False),  # no thread's own index
        ("y[i * 3] = 0;", False),  # n may be the number of all
    ],
)
def test_an_array_whose_index_is_multiplied_by_a_number_is_doubted(theirs, body, doubted):
    suites, _ = guessed(theirs({"f.cu": f"__global__ void f(float *y, int n) {{ {INDEX} {body} }}"}))
    assert ("it may have more" in suites["f"].arrays[0].why) == doubted


@pytest.mark.parametrize(
    ("blocks", "grid"),
    [
        ("ceil(n / 32.0)", "ceil_div(c.n, 32)"),
        ("std::ceil((float)n / config::block)", "ceil_div(c.n, 64)"),
        ("ceilf(n / 1.0f)", "c.n"),
        ("ceil(n)", None),
        ("ceil(n / 32)", None),  # which rounds down
        ("ceil(n / 2.5)", None),
        ("ceil(1.5 * n / 32)", None),
        ("n / other::two", None),
        ("n / own", "c.n // 8"),
        ("n / hidden", None),
    ],
)
def test_a_launch_may_round_up_and_name_a_namespaces_constants(theirs, blocks, grid):
    suites, _ = guessed(theirs({
        "config.h": "namespace a { namespace config { const int block = 64, two = 2; } }\n"
        "const int own = 8; namespace other { const int two = 3, own = 4; } struct S { int hidden = 5; };",
        "f.cu": '#include "config.h"\n'
        "__global__ void f(const float *x, float *y, int n) { y[n] = x[n]; }\n"
        f"void run(float *x, float *y, int n) {{ f<<<dim3({blocks}), 64>>>(x, y, n); }}"
    }))  # fmt: skip
    (kernel,) = suites["f"].kernels
    assert ("not understood" in kernel.notes.get("grid", "")) == (grid is None)
    assert grid is None or kernel.grid == f"lambda c: {grid}"


def test_a_guessed_grid_has_as_many_dimensions_as_the_kernel(theirs):
    at = "blockIdx.{0} * blockDim.{0} + threadIdx.{0}"
    index = f"int i = {at.format('x')}, j = {at.format('y')}, k = {at.format('z')};"
    suites, _ = guessed(theirs({
        "f.cu": "__global__ void f(const float *x, float *y, int nx, int ny, int nz)\n"
        f"{{ {index} y[k * ny * nx + j * nx + i] = x[k * ny * nx + j * nx + i]; }}",
        "g.cu": "template <int NUM_THREADS = 128> __global__ void g(const float *x, float *y, int n)\n"
        f"{{ {INDEX} y[i] = x[i]; }}",
        "h.cu": "template <int BLOCK_SIZE = 32> __global__ void h(const float *x, float *y, int n)\n"
        f"{{ int i = {at.format('x')}, j = {at.format('y')}; y[j * n + i] = x[i * n + j]; }}",
    }))  # fmt: skip
    launches = {name: suite.kernels[0] for name, suite in suites.items()}
    assert launches["f"].grid == "lambda c: (ceil_div(c.nx, 16), ceil_div(c.ny, 16), c.nz)"
    assert launches["g"].block == "lambda c: c.NUM_THREADS"
    assert launches["h"].block == "lambda c: (c.BLOCK_SIZE, c.BLOCK_SIZE)"


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("const __grid_constant__ CUtensorMap map, float *y", "CUtensorMap"),
        ("float **x, float *y", "pointer to pointers"),
        ("Args... args", "cannot be guessed"),
        ("void (*f)(int), float *y", "cannot be guessed"),
        ("float4 *x, float *y, int n", "4 elements of float"),
        ("const float *x, int n", "writes no array"),
        ("", "writes no array"),
        ("float *x,\n#ifdef W\nint w,\n#endif\nint n", "preprocessor"),
    ],
)
def test_a_signature_that_cannot_be_guessed_is_left_out_with_the_reason(theirs, call, signature, why):
    theirs({"f.cu": f"__global__ void f({signature}) {{ }}"})
    for only in ((), ("--only", "*")):
        done = call("init", "--yes", *only)
        assert done.status == 3
        assert "f (f.cu:1)" in done.out
        assert why in done.out


def test_numbers_of_the_standard_library_are_numbers(theirs):
    given = "const std::int32_t *x, ::std::uint8_t *y, latch_t *z, cuda::std::size_t n"
    suites, left = guessed(theirs({
        "f.cu": f"typedef volatile int latch_t;\n__global__ void f({given}) {{ y[n] = x[n]; z[n] = x[n]; }}",
        "g.cu": "__global__ void g(_GRID_CONSTANT size_t n, float *y) { y[n] = 1; }",
    }))  # fmt: skip
    assert [array.dtype for array in suites["f"].arrays] == ["int32", "uint8", "int32"]
    assert suites["f"].numbers[0].dtype == "uint64"
    assert "of type _GRID_CONSTANT size_t," in left["g"]


def test_a_type_that_a_launch_does_not_say_is_guessed_whatever_it_is_called(theirs):
    kernel = "template <typename Key> __global__ void f(const Key *x, Key *y, int n) { y[n] = x[n]; }\n"
    launched = "template <typename Key> void run() { f<Key><<<1, 32>>>(x, y, 1); }"
    suites, _ = guessed(theirs({"f.cu": kernel + launched}))
    assert "Key = float is a guess" in suites["f"].kernels[0].notes["instantiate"]


def test_a_type_of_indices_is_guessed_to_be_of_integers_and_none_of_them_is_below_0(theirs, call):
    theirs({
        "f.cu": "template <typename T, typename IndexT>\n"
        "__global__ void f(const T *x, const IndexT *indices, T *y) { y[n] = x[indices[n]]; }\n"
    })  # fmt: skip
    call("init", "--yes")
    written = Path("perf/f/suite.py").read_text()
    assert "T = float, IndexT = int is a guess: no launch has a type" in " ".join(written.split())
    assert 'instantiate="f<float, int>"' in written
    assert 'found["indices"] = rng.integers(0, 9, (case.n,))' in written


@pytest.mark.parametrize(
    ("host", "instance"),
    [
        ("template void run<half, 64>(const half *, half *, int);", 3),
        ("template void run<half, 64>(half const *x, half *y, int n);", 3),
        ("template <typename U> void call(U *x) { run<U, 64>(x, x, 1); }\ntemplate void call(half *x);", 4),
        ("void call(void *x) { run<half, 64>((half *)x, (half *)x, 1); }", 3),
        ("void call(half *x) { using T = half; f<T, 64><<<1, 64>>>(x, x, 1); }", 0),
        ("void call(half *x) { f<decltype(*x), 64><<<1, 64>>>(x, x, 1); }", None),
    ],
)
def test_a_template_is_what_an_instantiation_of_the_function_around_its_launch_says(theirs, host, instance):
    top = theirs({
        "f.cu": "template <typename T, int N> __global__ void f(const T *x, T *y, int n) { y[n] = N; }\n"
        "template <class T, int B> void run(const T *x, T *y, int n) { f<T, B><<<n, B>>>(x, y, n); }\n"
        f"{host}",
    })  # fmt: skip
    suites, left = guessed(top)
    if instance is None:
        assert "of type decltype" in left["f"]
        return
    (kernel,) = suites["f"].kernels
    assert (kernel.instantiate, kernel.macros) == ("f<half, {N}>", {"N": 64})
    assert kernel.block == ("lambda c: c.N" if instance else "64")
    assert kernel.notes.get("instantiate", "") == (f"as instantiated at f.cu:{instance}" if instance else "")


@pytest.mark.parametrize(
    ("run", "types"),
    [
        ("void run(double *x, char *y) { f<<<1, 64>>>(x, y, 1); }", "double, char"),
        ("void run(void *x, void *y) { f<<<1, 64>>>((const double *)x, (char *)y, 1); }", "double, char"),
        ("void run(void *x, char *y) { f<<<1, 64>>>(static_cast<double *>(x), y, 1); }", "double, char"),
        ("template __global__ void f(const double *, char *y, int n);", "double, char"),
        ("void run(double x, char *y) { f<<<1, 64>>>(g(x), y, 1); }", "float, char"),
        ("void run(double x, char *y) { f<<<1, 64>>>(&x, y, 1); }", "float, char"),
    ],
)
def test_types_are_deduced_of_what_a_launch_passes(theirs, run, types):
    kernel = "template <class T, class U> __global__ void f(const T *x, U *y, int n) { y[n] = x[n]; }\n"
    suites, _ = guessed(theirs({"f.cu": kernel + run}))
    (found,) = suites["f"].kernels
    assert found.instantiate == f"f<{types}>"
    assert ("guess" in found.notes.get("instantiate", "")) == ("float" in types)


def test_a_kernel_that_launches_another_says_what_it_is_instantiated_with(theirs):
    one = "template <class T> __global__ void {}(const T *x, T *y, int n) {{ {} y[n] = x[n]; }}\n"
    suites, _ = guessed(theirs({
        "f.cu": one.format("f", "") + one.format("g", "if (n > 1) { f<<<1, 64>>>(x, y, n); }"),
        "run.cu": "void run(double *x) { g<<<1, 32>>>(x, x, 1); }",
    }))  # fmt: skip
    kernels = {kernel.name: kernel for suite in suites.values() for kernel in suite.kernels}
    assert {name: kernels[name].instantiate for name in "fg"} == {"f": "f<double>", "g": "g<double>"}


def test_a_functions_instantiation_is_not_that_of_another_file(theirs):
    kernel = "template <typename T> __global__ void {0}(const T *x, T *y, int n) {{ y[n] = x[n]; }}\n"
    run = "template <typename T> void run(const T *x, T *y, int n) {{ {0}<<<1, 64>>>(x, y, n); }}\n"
    suites, _ = guessed(theirs({
        "f.cu": (kernel + run).format("f") + "template void run(const double *, double *, int);",
        "g.cu": (kernel + run).format("g"),
    }))  # fmt: skip
    assert [suites[name].kernels[0].instantiate for name in "fg"] == ["f<double>", "g<float>"]


def test_arguments_of_a_pack_are_no_other_parameters(theirs):
    suites, _ = guessed(theirs({
        "f.cu": "template <typename T> __global__ void f(const T *x, T *y, int n) { y[n] = x[n]; }\n"
        "template <int... Ns, typename T> void run(const T *x, T *y) { f<T><<<1, 64>>>(x, y, 1); }\n"
        "void call(double *x) { run<32, 64>(x, x); }"
    }))  # fmt: skip
    assert suites["f"].kernels[0].instantiate == "f<double>"


def test_a_number_of_the_arrays_type_is_no_length(theirs):
    suites, _ = guessed(theirs({
        "f.cu": "template <typename T, typename I> __global__ void f(T *y, I n, T least) { y[n] = least; }\n"
        "template __global__ void f<int, int>(int *, int, int);"
    }))  # fmt: skip
    (number,) = suites["f"].numbers
    assert (number.name, number.why) == ("least", "guessed: it is of the arrays' type")
    assert [group.names for group in suites["f"].axes] == [("n",)]


def test_a_template_without_a_launch_is_left_out_and_names_its_parameter(theirs):
    kernel = "template <int N> __global__ void f(float *y) {{ y[0] = N; }}"
    _, left = guessed(theirs({"f.cu": kernel}))
    assert "parameter N" in left["f"]


def test_a_templates_own_defaults_are_values_where_nothing_launches_it(theirs):
    kernel = "template <int N = 128 / 4> __global__ void f(const float *x, float *y, int n) { y[n] = N; }"
    suites, _ = guessed(theirs({"f.cu": kernel}))
    (kernel,) = suites["f"].kernels
    assert kernel.macros == {"N": 32}
    assert "instantiate" not in kernel.notes


def test_template_and_geometry_are_of_one_launch(theirs):
    one = "f<T, {0}><<<(n + {0} - 1) / {0}, {0}>>>(x, y, n);"
    suites, _ = guessed(theirs({
        "f.cu": "template <typename T, int N> __global__ void f(const T *x, T *y, int n)\n"
        f"{{ {INDEX} y[i] = x[i]; }}\n"
        "template <typename T> void run(const T *x, T *y, int n)\n"
        f"{{ if (n > 99) {{ {one.format(128)} }} else {{ {one.format(32)} }} }}\n"
    }))  # fmt: skip
    (kernel,) = suites["f"].kernels
    assert (kernel.macros, kernel.block) == ({"N": 128}, "128")


@pytest.mark.parametrize(
    ("launch", "number", "block"),
    [
        ("cudaLaunchKernelEx(&config, chosen, x, y, n);", 128, "256"),
        ("chosen<<<n, 32>>>(x, y, n);", 32, "32"),
    ],
)
def test_a_kernel_may_be_chosen_by_name_before_its_launch(theirs, launch, number, block):
    suites, _ = guessed(theirs({
        "f.cu": "template <int N> __global__ void f(const float *x, float *y, int n)\n"
        f"{{ {INDEX} y[i] = x[i]; }}\n"
        f"void run(const float *x, float *y, int n) {{ auto chosen = f<128>; chosen = f<32>; {launch} }}"
    }))  # fmt: skip
    (kernel,) = suites["f"].kernels
    assert (kernel.macros, kernel.block) == ({"N": number}, block)


def test_a_name_of_a_namespace_is_no_macro_that_the_build_gives(theirs):
    suites, _ = guessed(theirs({
        "f.cu": "#include <cub/cub.cuh>\n__global__ void f(const float *x, float *y, int n)\n"
        f"{{ {INDEX} cub::Load<float, 4, cub::BLOCK_LOAD_DIRECT> load; y[i] = x[i] * SCALE; }}"
    }))  # fmt: skip
    (kernel,) = suites["f"].kernels
    assert kernel.notes["macros"].startswith("SCALE: ")


def test_two_kernels_of_one_name(theirs):
    one = "__global__ void f(const float *x, float *y, int n) { int i = threadIdx.x; y[i] = x[i]; }\n"
    launched = one + "void run() { f<<<1, 64>>>(x, y, n); }"
    suites, left = guessed(theirs({"a.cu": one, "b.cu": launched, "c.cu": one + one.replace("float", "int")}))
    assert {kernel.name: kernel.block for kernel in suites["f"].kernels} == {"f": "256", "f_b": "64"}
    assert "more than one kernel of this name" in left["f"]


def test_headers_are_found_where_the_build_looks_for_them(theirs):
    top = theirs({
        "CMakeLists.txt": 'include_directories("${PROJECT_SOURCE_DIR}/common")\n'
        "configure_file(made.h.in made.h)\n",
        "common/tile.h": "#pragma once\n#define TILE 8\ntypedef __half element;\n",
        "dev/cuda_fp16.h": "what another compiler is given",
        "src/f.cu": '#include "tile.h"\n#include <made.h>\n#include <cuda_fp16.h>\n'
        "__global__ void f(const element *x, element *y, int n) { int i = threadIdx.x; y[i] = x[i]; }",
    })  # fmt: skip
    suites, _ = guessed(top)
    (kernel,) = suites["f"].kernels
    assert kernel.include == ("common",)
    assert suites["f"].dtype == "float16"
    assert "made.h" in kernel.notes["source"]


def test_a_build_below_the_top_names_folders_from_where_it_stands(theirs):
    top = theirs({
        "samples/f/CMakeLists.txt": "include_directories(../../common .)\n",
        "common/tile.h": '#pragma once\n#include "cuda_runtime.h"\n#define TILE 8\n',
        "samples/f/local.h": "",
        "samples/f/src/f.cu": "#include <tile.h>\n#include <local.h>\n"
        "__global__ void f(const float *x, float *y, int n) { y[TILE] = x[TILE]; }",
    })  # fmt: skip
    suites, _ = guessed(top)
    (kernel,) = suites["f"].kernels
    assert kernel.include == ("common", "samples/f")
    assert "source" not in kernel.notes  # cuda_runtime.h is the toolkit's


def test_a_header_of_the_toolkit_in_quotes_is_left_to_the_compiler(theirs, call):
    kernel = "__global__ void f(const float *x, float *y, int n) { y[n] = x[n]; }"
    theirs({"src/f.cu": '#include "beside.h"\n' + kernel, "src/beside.h": '#include "cuda.h"\n'})
    call("init", "--yes", "--only", "f")
    found = load_folder(Path("perf/f").resolve()).by_name["f"]
    assert found.include == ("src",)
    assert "cuda.h" not in call("list").err


def test_a_header_that_is_not_there_is_named(theirs):
    kernel = "__global__ void f(const float *x, float *y, int n) { y[n] = x[n]; }"
    suites, _ = guessed(theirs({
        "src/f.cu": '#include "lib/core.h"\n#include "../tests/util.h"\n#include "cub/cub.cuh"\n' + kernel,
        "tests/util.h": "",
    }))  # fmt: skip
    (found,) = suites["f"].kernels
    assert found.notes["source"].startswith("it includes lib/core.h, which the repository does not have")


def test_a_header_that_another_of_its_kernels_needs_its_includer_for_is_compiled_as_that(theirs):
    scaled = "__global__ void {0}(const float *x, float *y, int n) {{ y[n] = {1} * x[n]; }}\n"
    suites, _ = guessed(theirs({
        "all.cu": '#define SCALE 2.0f\n#include "f.cuh"\n',
        "f.cuh": scaled.format("plain", "3.0f") + scaled.format("scaled", "SCALE"),
    }))  # fmt: skip
    assert [kernel.source for suite in suites.values() for kernel in suite.kernels] == ["all.cu"] * 2


def test_a_header_that_needs_its_includer_is_compiled_as_that(theirs):
    suites, _ = guessed(theirs({
        "all.cu": 'typedef __nv_bfloat16 bf16;\n#include "f.cuh"\n',
        "f.cuh": "namespace deep { __global__ void f(const bf16 *x, bf16 *y, int n)"
        " { int i = threadIdx.x; y[i] = x[i]; } }",
    }))  # fmt: skip
    (kernel,) = suites["f"].kernels
    assert (kernel.file, kernel.source, kernel.instantiate) == ("f.cuh", "all.cu", "deep::f")


def test_a_header_that_does_not_define_half_is_compiled_as_what_includes_it(theirs):
    kernel = "__global__ void {0}(const half *x, half *y, int n) {{ int i = threadIdx.x; y[i] = x[i]; }}"
    suites, left = guessed(theirs({
        "all.cu": '#include <cuda_fp16.h>\n#include "f.cuh"\n',
        "f.cuh": kernel.format("f"),
        "operator.cu": '#include <torch/all.h>\n#include "g.cuh"\n',
        "g.cuh": kernel.format("g"),
    }))  # fmt: skip
    assert [kernel.source for suite in suites.values() for kernel in suite.kernels] == ["all.cu"]
    assert "without PyTorch's headers" in left["g"]


def test_what_a_build_says_and_an_instruction_needs_is_given_to_the_compiler(theirs):
    suites, _ = guessed(theirs({
        "Makefile": "NVCC_FLAGS = -O3 --expt-relaxed-constexpr\n",
        "f.cu": '__global__ void f(const float *x, float *y, int n) { asm("wgmma.fence;"); y[0] = x[0]; }',
    }))  # fmt: skip
    (kernel,) = suites["f"].kernels
    assert (kernel.arch, kernel.options) == ("sm_90a", ("--expt-relaxed-constexpr",))


def test_a_kernel_that_waits_for_its_grid_is_left_out_and_its_neighbour_is_proposed(theirs):
    suites, left = guessed(theirs({
        "wait.cuh": "__device__ void wait() { cooperative_groups::this_grid().sync(); }\n",
        "f.cu": '#include "wait.cuh"\n'
        "__global__ void f(float *x, int n) { x[0] = n; wait(); x[1] = n; }\n"
        "__global__ void g(float *x, int n) { x[0] = n; /* wait(); */ }\n",
    }))  # fmt: skip
    assert [kernel.name for suite in suites.values() for kernel in suite.kernels] == ["g"]
    assert "write a suite with cooperative=True" in left["f"]


def test_a_library_with_instructions_of_a_newer_card_asks_for_none(theirs):
    suites, _ = guessed(theirs({
        "CMakeLists.txt": "include_directories(include)\n",
        "include/library/all.h": "#ifdef NEW\n#define CLUSTER __cluster_dims__(2)\n#endif\n",
        "f.cu": "#include <library/all.h>\n__global__ void f(float *y, int n) { y[n] = 1; }",
    }))  # fmt: skip
    (kernel,) = suites["f"].kernels
    assert (kernel.arch, kernel.include) == ("", ("include",))


def test_a_constant_of_a_header_that_comes_before_is_found(theirs, call):
    kernel = "__global__ void {0}(const float *x, float *y, int n) {{ y[0] = WARPSIZE * x[1] + NAN; }}"
    suites, _ = guessed(theirs({
        "a.cuh": "const int WARPSIZE = 32;\n" + kernel.format("first"), "b.cuh": kernel.format("second"),
        "c.cu": kernel.format("third"), "all.cuh": '#include "a.cuh"\n#include "b.cuh"\n',
    }))  # fmt: skip
    found = {kernel.name: kernel for suite in suites.values() for kernel in suite.kernels}
    assert {name: kernel.source for name, kernel in found.items()} == {
        "first": "a.cuh", "second": "all.cuh", "third": "c.cu",
    }  # fmt: skip
    assert "WARPSIZE: no file" in found["third"].notes["macros"]


def test_what_is_there_and_differs_stays_unless_forced(theirs, call):
    top = theirs({"scale.cu": SCALE, "pyproject.toml": '[project]\nname = "theirs"\n'})
    call("init", "--yes")
    assert '[tool.harness]\nsuites = ["perf/*"]' in (top / "pyproject.toml").read_text()
    suite = top / "perf/scale/suite.py"
    written = suite.read_text()
    suite.write_text("# mine\n" + written)
    again = call("init", "--yes")
    assert again.status == 0
    assert "differs    perf/scale/suite.py" in again.out
    assert suite.read_text().startswith("# mine")
    call("init", "--yes", "--force")
    assert suite.read_text() == written
    assert (top / "pyproject.toml").read_text().count("[tool.harness]") == 1


def test_settings_that_nothing_can_be_added_to_are_left_and_have_a_file_of_their_own_beside(theirs, call):
    settings = "tool = { other = { x = 1 } }\n"
    top = theirs({"scale.cu": SCALE, "pyproject.toml": settings})
    assert call("init", "--yes").status == 0
    assert (top / "pyproject.toml").read_text() == settings
    assert 'suites = ["perf/*"]' in (top / "harness.toml").read_text()


@pytest.mark.parametrize(
    "files",
    [
        {"a.cuh": NAIVE, "b.cuh": TILED, "run.cu": RUNNER},
        {
            "Makefile": "NVCC_FLAGS = -O3 --expt-relaxed-constexpr\n",
            "f.cu": "__global__ void f(const half *x, const int *at, half *y, double by, int n)"
            '{ asm("wgmma.fence;"); y[0] = by * (double)x[at[n]]; }',
        },
        {
            "CMakeLists.txt": "include_directories(include)\n",
            "include/library/all.h": "#define ONE 1\n",
            "f.cu": '#include <library/all.h>\nextern "C" __global__ void f(float *y, int n) { y[n] = ONE; }',
        },
    ],
    ids=["templates and macros", "architecture, options and types", "folders of headers"],
)
def test_a_suite_that_is_written_says_of_its_kernels_what_was_guessed(theirs, call, files):
    top = theirs(files)
    suites, _ = guessed(top)
    assert suites
    assert call("init", "--yes").status == 0
    for name, guess in suites.items():
        written = load_folder(top / "perf" / name)
        assert [kernel.name for kernel in written.kernels] == [kernel.name for kernel in guess.kernels]
        for kernel in guess.kernels:
            found = written.by_name[kernel.name]
            assert (found.entry, found.instantiate) == (kernel.entry, kernel.instantiate)
            assert (found.macros, found.include) == (kernel.macros, kernel.include)
            assert (found.arch, found.options.get("cuda", ())) == (kernel.arch, kernel.options)
            assert (found.dtype, set(found.sources)) == (guess.dtype, {"cuda"})
        case = written.case(written.kernels[0], dict.fromkeys(written.problem.axes, 64))
        dtypes = {name: array.dtype_at(case) for name, array in written.problem.arrays.items()}
        dtypes |= {name: scalar.dtype for name, scalar in written.problem.scalars.items()}
        assert dtypes == {one.name: one.dtype for one in (*guess.arrays, *guess.numbers)}


def test_a_size_is_a_power_of_two_only_where_it_is_one(theirs):
    suites, _ = guessed(theirs({"scale.cu": SCALE}))
    suite = suites["scale"]
    (axis,) = suite.axes
    text = suite_text(
        replace(suite, axes=(replace(axis, default=(20_000, 2**20), quick=(64,)),)), "perf/scale"
    )
    assert "Axis(default=(20000, 2**20), quick=(64,))" in text


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("asv.conf.json", "perf"),
        ("asv.conf.jsonc", "perf"),
        ("benchmarks/asv.conf.json", "perf"),
        ("asv_bench/asv.conf.jsonc", "perf"),
        ("benchmarks/bench_core.py", ""),
        ("benchmarks/suites.py", ""),
        ("benchmarks/bench.cpp", ""),
    ],
)
def test_benchmarks_of_the_projects_own_are_left_alone_and_ours_lie_beside_the_suites(
    theirs, call, name, home
):
    top = theirs({"scale.cu": SCALE, name: "{}\n"})
    done = call("init", "--yes")
    assert f"asv run{' --config perf/asv.conf.json' if home else ''}; " in done.out
    assert "differs" not in done.out
    assert (f"benchmarks of its own ({name})," in done.out) is bool(home)
    # asv refuses to start in a folder with two configurations.
    theirs_at_top = {name} if "/" not in name else set()
    assert {file.name for file in top.glob("asv.conf.*")} == (theirs_at_top if home else {"asv.conf.json"})
    written = {str(file.relative_to(top)) for file in top.rglob("*") if ".git" not in file.parts} - {name}
    assert not {each for each in written if each.startswith("benchmarks/")}
    assert 'folder = "scale"' in (top / "perf/kernel_benchmarks/suites.py").read_text()
    conf = json.loads((top / home / "asv.conf.json").read_text())
    assert (top / home / conf["repo"]).samefile(top)
    assert (top / home / conf["benchmark_dir"]).samefile(top / "perf/kernel_benchmarks")
    # Records and asv's results are one history.
    assert top / home / conf["results_dir"] == load_config(top).results_folder
    assert f"Results will lie in {home and 'perf/'}.asv, which git does not ignore" in done.out
    call("init", "--yes")
    assert json.loads((top / home / "asv.conf.json").read_text()) == conf


def test_asvs_results_lie_where_the_projects_settings_have_its_records(theirs, call):
    top = theirs({"scale.cu": SCALE, "harness.toml": 'suites = ["perf/*"]\nresults = "measured"\n'})
    call("init", "--yes")
    assert json.loads((top / "asv.conf.json").read_text())["results_dir"] == "measured"


def test_a_suite_that_was_renamed_is_not_written_again(theirs, call):
    top = theirs({"scale.cu": SCALE})
    call("init", "--yes")
    (top / "perf/scale").rename(top / "perf/mine")
    done = call("init", "--yes")
    assert done.status == 0
    assert "measure every kernel" in done.out
    done = call("init", "--json")
    assert (done.status, done.json["suites"]) == (0, [])
    assert [folder.name for folder in (top / "perf").iterdir()] == ["mine"]


def test_a_file_of_one_name_in_two_folders_is_two_files(theirs, call):
    text = triton_file("x, gain", "rows, n_cols = x.shape", "y = torch.empty(rows, n_cols)",
                       "LAUNCH(y, x, gain)", "return y")  # fmt: skip
    theirs({"one/ops.py": text, "two/ops.py": text})
    assert call("init", "--yes").status == 0
    again = call("init", "--yes")
    assert [line.split()[0] for line in again.out.splitlines() if "suite.py" in line] == ["unchanged"] * 2


def test_a_dry_run_writes_nothing_and_a_folder_without_git_is_told(tmp_path, call):
    write_files(tmp_path, {"scale.cu": SCALE})
    done = call("init", str(tmp_path), "--dry-run")
    assert done.status == 0
    assert "would write  perf/scale/suite.py" in done.out
    assert "git init" in done.out
    assert [path.name for path in tmp_path.rglob("*")] == ["scale.cu"]


def test_nothing_found_says_what_was_looked_for(theirs, call):
    theirs({"main.cpp": "int main() {}"})
    done = call("init", "--yes")
    assert done.status == 3
    assert "__global__" in done.out
    assert "triton.jit" in done.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error_and_nothing_is_left(theirs, call):
    top = theirs({"scale.cu": SCALE})
    top.chmod(0o555)
    try:
        done = call("init", "--yes")
    finally:
        top.chmod(0o755)
    assert done.status == 3
    assert "Nothing was changed" in done.err


def test_a_file_that_grows_keeps_its_mode(theirs, call):
    file = theirs({"scale.cu": SCALE, "pyproject.toml": "[project]\nname = 'theirs'\n"}) / "pyproject.toml"
    file.chmod(0o640)
    assert call("init", "--yes").status == 0
    assert "tool.harness" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_in_the_way_is_an_error_and_nothing_is_left(theirs, call):
    top = theirs({"scale.cu": SCALE, "benchmarks": "a file where a folder should be"})
    done = call("init", "--yes")
    assert done.status == 3
    assert "Nothing was changed" in done.err
    assert {path.name for path in top.iterdir()} == {".git", "scale.cu", "benchmarks"}


@pytest.mark.parametrize("folder", ["/elsewhere", "../elsewhere", "."])
def test_suites_lie_below_the_project(theirs, call, folder):
    theirs({"scale.cu": SCALE})
    done = call("init", "--yes", "--suites", folder)
    assert done.status == 2
    assert "expected a folder below" in done.err


def test_the_projects_own_settings_say_where_suites_lie(theirs, call):
    top = theirs({"scale.cu": SCALE, "harness.toml": 'suites = ["bench/*"]\n'})
    assert call("init", "--yes").status == 0
    assert (top / "bench/scale/suite.py").is_file()
    assert call("init", "--yes", "--suites", "perf").status == 2


def test_without_a_terminal_nothing_is_asked_and_that_is_said(theirs, call, monkeypatch):
    theirs({"scale.cu": SCALE})
    monkeypatch.setattr(sys, "stdin", None)
    done = call("init")
    assert done.status == 0
    assert "no terminal" in done.err


def test_the_workflows_come_too(theirs, call):
    top = theirs({"scale.cu": SCALE})
    pinned = f"gpu-harness @ git+https://example.org/o/r@{'0' * 40}"
    assert call("init", "--yes", "--ci", "--harness", pinned).status == 0
    assert (top / ".github/workflows/perf-pr.yml").is_file()


def test_dozens_of_suites_are_not_written_unasked(theirs, call):
    kernel = "__global__ void k{0}x(const float *x, float *y, int n) {{ g(x, y); }}\n"
    top = theirs({"scale.cu": SCALE, "many.cu": "".join(map(kernel.format, "abcdefghijklmnopqrst"))})
    done = call("init", "--yes")
    assert [folder.name for folder in (top / "perf").iterdir()] == ["scale"]
    assert "--only" in done.err
    assert call("init", "--yes", "--only", "k[ab]x").status == 0
    assert {folder.name for folder in (top / "perf").iterdir()} == {"scale", "kax", "kbx"}


def test_results_that_git_does_not_ignore_are_told(theirs, call):
    top = theirs({"scale.cu": SCALE})
    told = "Results will lie in .asv, which git does not ignore: name .asv/ in .gitignore.\n"
    assert told in call("init", "--yes").out
    (top / ".gitignore").write_text(".asv/\n", encoding="utf-8")
    assert told not in call("init", "--yes").out
    (top / ".gitignore").unlink()
    (top / "harness.toml").write_text((top / "harness.toml").read_text() + 'results = "elsewhere"\n')
    assert told not in call("init", "--yes").out


def test_a_suite_without_a_reference_is_held_to_base_and_without_either_never_timed(theirs, call):
    top = theirs({"f.cu": 'extern "C" __global__ void f(const float *x, float *y, int n) { g(x, y); }'})
    assert "until you write a reference(): f." in call("init", "--yes").out
    assert "held to base's outputs" in call("list").out
    assert call("run", "--device", "null", "--quick").status == 0
    file = top / "perf/f/suite.py"
    written = file.read_text()
    file.write_text(written.replace('    reference = "base"\n', ""))
    assert "needs your reference()" in call("list").out
    done = call("run", "--device", "null", "--json")
    assert done.status == 3
    assert done.json[0]["rows"][0]["row"]["reason"] == "needs-reference"
    file.write_text(written)
    # What it offers instead is right as it stands, but for the marks.
    lines = (top / "perf/f/suite.py").read_text().splitlines()
    offered = [line.replace("# ", "", 1).rstrip("#") for line in lines if line.startswith("    # ")]
    ast.parse("class C:\n" + "\n".join(line for line in offered if line.startswith(("    def", "        "))))


# --- Python ---------------------------------------------------------------------------------------

TRITON = '''\
import torch, triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    tl.store(output_ptr + offsets, output, mask=mask)

def add(x: torch.Tensor, y: torch.Tensor):
    """Adds two vectors."""
    output = torch.empty_like(x)
    n_elements = output.numel()
    add_kernel[(triton.cdiv(n_elements, 1024),)](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output
'''
NUMBA = """\
from numba import cuda

@cuda.jit
def matmul(A, B, C):
    i, j = cuda.grid(2)
    if i < C.shape[0] and j < C.shape[1]:
        tmp = 0.0
        for k in range(A.shape[1]):
            tmp += A[i, k] * B[k, j]
        C[i, j] = tmp

@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]
"""
CUPY = '''\
import cupy
add = cupy.RawKernel(r"""
extern "C" __global__ void my_add(const float* x1, const float* x2, float* y, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = x1[i] + x2[i];
}
""", "my_add")
'''
TORCH = """\
import torch
from torch import Tensor

def mymuladd(a: Tensor, b: Tensor, c: float) -> Tensor:
    return torch.ops.extension_cpp.mymuladd.default(a, b, c)

torch.library.register_fake("extension_cpp::mymuladd")

def scaled(x, seed, p):
    return torch.ops.extension_cpp.scaled(x, seed, p)

def _backward(ctx, grad):
    return torch.ops.extension_cpp.mymul.default(grad, grad)
"""


def test_functions_of_pythons_world_become_suites(theirs):
    suites, left = guessed(theirs({"t.py": TRITON, "n.py": NUMBA, "c.py": CUPY, "o.py": TORCH}))
    assert not left
    told = {
        name: (
            suite.kernels[0].function,
            suite.kernels[0].entry,
            suite.reference and suite.reference.expression,
        )
        for name, suite in suites.items()
    }
    assert told == {
        "add": ("TritonFunction", "add", "x + y"),
        "matmul": ("NumbaFunction", "matmul", None),
        "axpy": ("NumbaFunction", "axpy", "case.a * x + y"),
        "my_add": ("CupyFunction", "add", "x1 + x2"),
        "mymuladd": ("TorchFunction", "mymuladd", None),
        "scaled": ("TorchFunction", "scaled", None),
    }
    assert "" not in suites["mymuladd"].kernels[0].notes
    assert [(n.name, n.dtype) for n in suites["scaled"].numbers] == [("seed", "int32"), ("p", "float32")]
    assert [(a.name, a.shape) for a in suites["add"].arrays] == [
        ("x", ("n_elements",)), ("y", ("n_elements",)), ("output", ("n_elements",)),
    ]  # fmt: skip
    assert [(a.name, a.role, a.shape) for a in suites["matmul"].arrays] == [
        ("A", "Input", ("m", "k")), ("B", "Input", ("k", "n")), ("C", "Output", ("m", "n")),
    ]  # fmt: skip
    assert suites["axpy"].args == ("a", "x", "y")


def test_a_triton_kernel_that_is_compiled_first_and_launched_then_is_found(theirs):
    launch = "add_kernel[(triton.cdiv(n_elements, 1024),)](x, y, output, n_elements, BLOCK_SIZE=1024)"
    assert launch in TRITON
    compiled = "compiled = add_kernel.warmup(x, y, output, n_elements, BLOCK_SIZE=1024, grid=(1,))\n"
    suites, left = guessed(theirs({"t.py": TRITON.replace(launch, compiled + "    compiled[(8,)](x, y)")}))
    assert not left
    assert suites["add"].kernels[0].entry == "add"


ROWS = """\
import torch
import triton
import triton.language as tl

@triton.jit
def scale_kernel(y_ptr, x_ptr, gain_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * n_cols
    place = y_ptr + row * n_cols
    offsets = tl.arange(0, BLOCK)
    tl.store(place + offsets, tl.load(x_ptr + offsets) * tl.load(gain_ptr))

"""


def triton_file(parameters: str, *lines: str) -> str:
    """A file with a Triton kernel and a function f of these parameters and lines; LAUNCH(y, x, gain) stands
    for the launch.
    """
    launch = r"scale_kernel[(rows,)](\1, n_cols, BLOCK=1024)"
    host = re.sub(r"LAUNCH\((.*)\)", launch, "\n    ".join([f"def f({parameters}):", *lines]))
    return f"{ROWS}\n{host}\n"


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        # Returned, of the shape that it is allocated with; alpha is loaded, so it is a tensor.
        (
            triton_file("x, alpha", "rows, n_cols = x.shape", "y = torch.empty(rows, n_cols)",
                        "LAUNCH(y, x, alpha)", "return y.view(x.shape)"),
            {"x": "Input", "alpha": "Input", "y": "Output"},
        ),
        # What is named as an output is read, and what is written has another name.
        (
            triton_file("prefix_output, z, gain", "rows, n_cols = z.shape", "LAUNCH(z, prefix_output, gain)"),
            {"prefix_output": "Input", "z": "Output", "gain": "Input"},
        ),
        # In place, through another name for the same memory, and returned too.
        (
            triton_file("x, gain", "flat = x.view(-1)", "rows, n_cols = x.shape", "LAUNCH(flat, x, gain)",
                        "return x"),
            {"x": "InOut", "gain": "Input"},
        ),
        # An axis is handed over by its name, and is no scalar beside it.
        *(
            (
                triton_file(f"x, gain, {n_cols}", "rows = x.size(0)", "y = torch.empty((rows, n_cols))",
                            "LAUNCH(y, x, gain)", "return y"),
                {"x": "Input", "gain": "Input", "y": "Output"},
            )
            for n_cols in ("n_cols", "n_cols: int")
        ),
    ],
)  # fmt: skip
def test_what_a_triton_kernel_loads_and_stores_says_what_its_function_is_given(theirs, call, text, roles):
    suites, left = guessed(theirs({"f.py": text}))
    assert not left
    assert {array.name: array.role for array in suites["f"].arrays} == roles
    call("init", "--yes", "--only", "f")
    assert call("list").status == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            triton_file("x, gain, n_cols", "y = torch.empty_like(x)", "LAUNCH(y, x, gain)", "return y"),
            "what to pass for n_cols cannot be guessed",
        ),
        (
            triton_file("x, gain, mode", "y = torch.empty_like(x)", "y = y * 2 if mode else y",
                        "LAUNCH(y, x, gain)", "return y"),
            "what to pass for mode cannot be guessed",
        ),
        (
            triton_file("x, gain", "rows, n_cols = x.shape", "y = torch.empty_like(x)",
                        "LAUNCH(y, x, gain)", "return y, x, n_cols, None"),
            "it returns x, n_cols, None too: write a function that returns y alone",
        ),
        (
            triton_file("x", "return scale_kernel.warmup(x, x, x, 1, BLOCK=1024, grid=(1,))"),
            "no function at the top of its file launches it",
        ),
        # What an annotation names is a tensor or no tensor, however it is used.
        (
            triton_file("x: torch.Tensor, gain: torch.Tensor, state: quant.State", "y = torch.empty_like(x)",
                        "n_cols = state.shape[1]", "LAUNCH(y, x, gain)", "return y"),
            "what to pass for state cannot be guessed",
        ),
        (
            "import torch\ndef f(x: torch.Tensor, d: torch.dtype):\n    return torch.ops.mine.cast(x, d)\n",
            "what to pass for d cannot be guessed",
        ),
    ],
)  # fmt: skip
def test_a_function_that_no_case_can_call_is_left_out_with_the_reason(theirs, text, why):
    suites, left = guessed(theirs({"f.py": text}))
    assert not suites
    assert why in "".join(left.values())


def test_a_triton_reference_follows_the_order_of_the_launch(theirs):
    text = """\
import torch, triton, triton.language as tl

@triton.jit
def less(y_ptr, x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) - tl.load(y_ptr + at))

def subtract(x: torch.Tensor, y: torch.Tensor):
    out = torch.empty_like(x)
    n = out.numel()
    less[(n,)](y, x, out, n, BLOCK=1024)
    return out
"""
    suites, _ = guessed(theirs({"f.py": text}))
    assert suites["subtract"].reference.expression == "x - y"


def test_shapes_that_are_not_said_are_no_axes(theirs):
    allocated = "y = torch.zeros(rows, 2 * n_cols)"
    shape = "rows, n_cols, _, _ = x.shape"
    text = triton_file("x, gain", shape, allocated, "LAUNCH(y, x, gain)", "return y")
    suites, _ = guessed(theirs({"f.py": text}))
    assert [axis.names for axis in suites["f"].axes] == [("n",)]


@pytest.mark.parametrize(
    ("lines", "x"),
    [
        (["m, n, k = x.shape[0], x.shape[1], x.size(2)"], ("m", "n", "k")),
        (["m = x.shape[0]", "n = x.shape[1]"], ("m", "n")),
        (["b, t, d, v = *x.shape, gain.shape[-1]"], ("b", "t", "d")),
        (["t, d = x.numel(), x.shape[-1]"], ()),
        (["d = x.shape[1]"], ()),
    ],
)
def test_lengths_may_be_taken_one_at_a_time(theirs, lines, x):
    text = triton_file("x, gain", *lines, "y = torch.empty_like(gain)", "LAUNCH(y, x, gain)", "return y")
    suites, _ = guessed(theirs({"f.py": text}))
    array = next(array for array in suites["f"].arrays if array.name == "x")
    assert ("of its own shape" in array.why) == bool(x)
    assert not x or array.shape == x


def test_a_parameter_whose_name_is_given_to_a_new_array_is_read_only(theirs):
    text = triton_file("x, gain", "b, t = x.shape", "old, x = x, torch.empty_like(x)",
                       "LAUNCH(x, old, gain)", "return x")  # fmt: skip
    suites, _ = guessed(theirs({"f.py": text}))
    assert {array.name: array.role for array in suites["f"].arrays} == {
        "x": "Input", "gain": "Input", "x_out": "Output",
    }  # fmt: skip
    assert {array.shape for array in suites["f"].arrays} == {("b", "t")}


@pytest.mark.parametrize(("inplace", "roles"), [(True, ["InOut"]), (False, ["Input", "Output"])])
def test_what_a_flag_chooses_is_what_its_default_says(theirs, inplace, roles):
    text = triton_file(f"x, inplace={inplace}", "n = x.numel()", "y = x if inplace else torch.empty_like(x)",
                       "LAUNCH(y, x, x)", "return y")  # fmt: skip
    suites, _ = guessed(theirs({"f.py": text}))
    assert [array.role for array in suites["f"].arrays] == roles


def test_a_result_is_of_the_type_that_it_is_made_with(theirs):
    text = triton_file("x, gain", "n = x.numel()", "y = torch.zeros(n, dtype=torch.long)",
                       "z = torch.empty(n, dtype=torch.cfloat)", "LAUNCH(y, x, gain)", "LAUNCH(z, x, gain)",
                       "return y, z")  # fmt: skip
    suites, _ = guessed(theirs({"f.py": text}))
    assert [array.dtype for array in suites["f"].arrays] == ["float32", "float32", "int64", "float32"]


def test_an_array_that_is_made_only_where_none_is_given_is_a_parameter(theirs):
    text = triton_file("x, out", "n = x.numel()", "if out is None:", "    out = torch.empty_like(x)",
                       "LAUNCH(out, x, x)", "return out")  # fmt: skip
    suites, _ = guessed(theirs({"f.py": text}))
    x, out = suites["f"].arrays
    assert (x.role, out.role) == ("Input", "Output")
    assert {array.why.partition(";")[0] for array in (x, out)} == {"a parameter"}


def test_a_result_of_lengths_that_no_parameter_has_is_doubted(theirs):
    text = triton_file("x, gain", "b, t = x.shape", "nt = t // 64", "y = x.new_empty(b, nt)",
                       "LAUNCH(y, x, gain)", "return y")  # fmt: skip
    suites, _ = guessed(theirs({"f.py": text}))
    x, gain, y = suites["f"].arrays
    assert (x.shape, gain.shape, y.shape) == (("b", "t"), ("b", "t"), ("b", "nt"))
    assert "guessed: nt may follow from other lengths" in y.why


def test_types_are_of_annotations_and_names_and_else_told_as_a_guess(theirs, call):
    text = triton_file("x, ids: torch.IntTensor, block_indices, mask: 'torch.BoolTensor'", "n = x.numel()",
                       "y = torch.empty_like(x)", "LAUNCH(y, x, block_indices)", "return y")  # fmt: skip
    of_half = text.replace("def f(", "def g(").replace("_like(x)", "_like(x, dtype=torch.half)")
    suites, _ = guessed(theirs({"f.py": text, "g.py": of_half}))
    assert {array.name: array.dtype for array in suites["f"].arrays} == {
        "x": "float32", "ids": "int32", "block_indices": "int64", "mask": "bool", "y": "float32",
    }  # fmt: skip
    whys = {array.name: array.why for array in suites["f"].arrays}
    assert [name for name in whys if "by its name" in whys[name]] == ["block_indices"]
    assert suites["f"].kernels[0].notes["dtype"] == "float32 is a guess: nothing says a type"
    assert "dtype" not in suites["g"].kernels[0].notes
    call("init", "--yes", "--only", "f")
    written = Path("perf/f/suite.py").read_text()
    assert "# dtype: float32 is a guess" in written
    assert 'found["block_indices"] = rng.integers(0, 9, (case.n,))' in written


def test_kernels_of_cupy_that_no_function_calls_on_arrays_are_left_out_and_named(theirs):
    suites, left = guessed(theirs({
        "f.py": "import cupy as cp\ndef make(width):\n"
        "    scaled = cp.ElementwiseKernel('raw U x', 'raw U y', f'y[i] = x[i] * {width}', 'scaled')\n"
        "    return scaled\n"
        "summed = cp.ReductionKernel('T x', 'T y', 'x', 'a + b', 'y = a', '0', 'summed')\n"
        "def total(x):\n    y = cp.empty_like(x)\n    summed(x, y)\n    return y\n"
    }))  # fmt: skip
    assert list(suites) == ["total"]
    assert left == {
        "scaled": "no function at the top of its file launches it on tensors: write one that does"
    }


def test_a_parameter_that_names_a_type_is_no_length(theirs):
    kernel = "__global__ void f(const float *x, float *y, int n, int quant_type)"
    suites, _ = guessed(theirs({"f.cu": f"{kernel} {{ {INDEX} y[i] = quant_type == 1 ? x[i] : 0; }}"}))
    assert [axis.names for axis in suites["f"].axes] == [("n",)]
    assert [number.name for number in suites["f"].numbers] == ["quant_type"]


@pytest.mark.parametrize(
    ("parameters", "before", "shape"),
    [
        ("x, gain", "n_cols = x.numel()", ("n_cols",)),
        ("x, gain, n_cols: int", "", ("n_cols",)),
        ("x, gain", "n_cols = broadcast(x.shape)", ("n",)),
    ],
)
def test_a_name_alone_is_a_length_where_something_says_that_it_is(theirs, parameters, before, shape):
    lines = [line for line in (before, "y = torch.empty(n_cols)", "LAUNCH(y, x, gain)", "return y") if line]
    suites, _ = guessed(theirs({"f.py": triton_file(parameters, *lines)}))
    assert suites["f"].arrays[-1].shape == shape


@pytest.mark.parametrize("name", ["has_bias", "out_is_half", "pad_slot_id", "rankId", "j"])
def test_a_flag_and_a_number_of_one_thing_are_no_lengths(theirs, name):
    kernel = f"__global__ void f(const float *x, float *y, int I, int {name}) {{ {INDEX} y[i] = g(x); }}"
    suites, _ = guessed(theirs({"f.cu": kernel}))
    assert [axis.names for axis in suites["f"].axes] == [("I",)]
    assert [number.name for number in suites["f"].numbers] == [name]


def test_a_first_length_that_no_parameter_says_is_doubted(theirs):
    kernel = f"__global__ void f(const float *x, float *y, int n) {{ {INDEX} y[i] = x[i + 3 * n]; }}"
    suites, _ = guessed(theirs({"f.cu": kernel}))
    assert "its first length may not be n" in suites["f"].arrays[0].why


def test_a_grid_of_numbers_alone_is_doubted(theirs):
    kernel = "__global__ void f(float *x, float *y) { int i = blockIdx.x; y[i] = x[i]; }"
    launched = kernel + "\nint main() { const int size = 4096; f<<<size / 4, 256>>>(x, y); f2(); }"
    suites, _ = guessed(theirs({"f.cu": launched}))
    [found] = suites["f"].kernels
    assert (found.grid, found.notes["grid"]) == (
        "4096 // 4", "the launch's own number: correct it where it follows a size"
    )  # fmt: skip


def test_strides_are_no_lengths_and_an_array_with_strides_is_doubted(theirs):
    given = "const float *x, float *y, int ne0, int ne1, int nb0, int nb1, int s1, int pitch"
    suites, _ = guessed(theirs({
        "f.cu": f"__global__ void f({given})\n{{ {INDEX} if (i >= ne0) return;\n"
        "  int j = blockIdx.y; if (j < ne1) y[j * pitch + i] = x[i * nb0 + j * nb1 + s1 * 2]; unused(nb1); }",
        # Lengths that no index is compared with, as every block has its whole tile.
        "g.cu": "__global__ void g(const float *x, float *y, int s1, int s2)\n"
        "{ int i = threadIdx.x, j = blockIdx.x; y[i * s1 + j] = g(x[j * s2 + i]); }",
    }))  # fmt: skip
    f, g = suites["f"], suites["g"]
    assert [group.names for group in f.axes] == [("ne0",), ("ne1",)]
    assert [number.name for number in f.numbers] == ["nb0", "nb1", "s1", "pitch"]
    assert {array.shape for array in f.arrays} == {("ne0", "ne1")}
    assert "guessed: every axis, as its index is multiplied by nb0, nb1, s1" in f.arrays[0].why
    assert [group.names for group in g.axes] == [("s1",), ("s2",)]


def test_an_array_of_many_axes_has_not_many_elements(theirs):
    axes = [f"n{number}" for number in range(8)]
    given, index = ", int ".join(axes), "i".join(f" * {axis} + " for axis in axes)
    kernel = f"__global__ void f(const float *x, float *y, int {given}) {{ y[i{index}i] = g(x); }}"
    suites, _ = guessed(theirs({"f.cu": kernel}))
    sizes = {group.names[0]: group.default[0] for group in suites["f"].axes}
    shape = suites["f"].arrays[1].shape
    assert {*axes} <= {*shape}
    assert math.prod(sizes[axis] for axis in shape) <= 2**24


@pytest.mark.parametrize(
    ("one", "other", "given", "suites"),
    [
        ("gemm_m1_k6144", "gemm_m2_k6144", "int experts", 2),
        ("gemm_m1_k6144", "gemm_m1_k7168", "int experts", 2),
        ("gemm_m16n8k16", "gemm_m16n8k8", "int experts", 2),
        ("gemm_m64_n64", "gemm_m128_n64", "int m, int n", 1),
        ("sum_k1", "sum_k2", "int n", 1),
        ("reduce1", "reduce2", "int n", 1),
        ("tile_32x32", "tile_64x32", "int n", 1),
    ],
)
def test_kernels_of_two_sizes_are_two_problems(theirs, one, other, given, suites):
    kernel = "__global__ void {0}(const float *x, float *y, {1}) {{ y[0] = g(x); }}\n"
    found, _ = guessed(theirs({"f.cu": "".join(kernel.format(name, given) for name in (one, other))}))
    assert len(found) == suites


@pytest.mark.parametrize(
    ("kernels", "name"),
    [
        (["acc_f32"], "acc_f32"),
        (["quantize_int8"], "quantize_int8"),
        (["gemm_m1_k6144"], "gemm_m1_k6144"),
        (["sgemm_128x256x8_kernel"], "sgemm_128x256x8"),
        (["flush_l2_kernel"], "flush_l2"),
        (["kernel_reduce2_kernel"], "reduce"),
        (["reduce1", "reduce2"], "reduce"),
        (["copy_v1", "copy_v2"], "copy"),
        (["sum_k1", "sum_k2"], "sum"),
        (["add_f16x2", "add_f16x8"], "add_f16"),
    ],
)
def test_a_suites_name_keeps_the_numbers_of_types_and_sizes(theirs, kernels, name):
    kernel = "__global__ void {0}(const float *x, float *y, int n) {{ y[0] = g(x); }}\n"
    suites, _ = guessed(theirs({"f.cu": "".join(map(kernel.format, kernels))}))
    assert list(suites) == [name]


def test_a_torch_extensions_kernels_are_measured_through_their_operator(theirs):
    kernel = "#include <torch/all.h>\n__global__ void f(const float *x, float *y, int n) { y[0] = x[0]; }"
    suites, left = guessed(theirs({"ops.py": TORCH, "f.cu": kernel}))
    assert list(suites) == ["mymuladd", "scaled"]
    assert "TorchFunction" in left["f"]


def test_what_is_nested_too_deeply_costs_its_own_file_or_reference_alone(theirs):
    deep = "1" + " + 1" * 600
    kernel = f"__global__ void f(const float *x, float *y, int n) {{ {INDEX} y[i] = x[i] * ({deep}); }}"
    minus = "x = " + "-" * 50_000 + "1\n"
    triton = triton_file("x, gain", f"rows, n_cols = x.shape[0] + {deep}, 1", "y = torch.empty_like(x)",
                         "LAUNCH(y, x, gain)", "return y")  # fmt: skip
    suites, left = guessed(theirs({"sum.cu": kernel, "minus.py": ROWS + minus, "sum.py": triton + TRITON}))
    assert suites["f"].reference is None
    assert "add" in suites
    (function,) = {*left} - {"minus.py"}
    assert left == dict.fromkeys(["minus.py", function], "its source is nested too deeply to be read")


def test_an_odd_kernel_costs_itself_and_a_line_says_which_and_why(theirs, call):
    kernel = (
        f"__global__ void {{0}}(const float *{{1}}, float *y, int n) {{{{ {INDEX} y[i] = {{1}}[i]; }}}}\n"
    )
    top = theirs({
        "scale.cu": SCALE,
        "name.cu": kernel.format("gr\u00f6\u00dfe", "x") + kernel.format("beside", "x"),
        "parameter.cu": kernel.format("f", "gr\u00f6\u00dfe"),
        "twice.cu": kernel.format("g", "in").replace("*y", "*in_").replace("y[", "in_["),
        "open.py": f"{TRITON}\ndef (\n",
        "about.py": TRITON.replace('"""Adds two vectors."""', '"a \\ud800 b \\x00"'),
    })  # fmt: skip
    (top / "latin.cu").write_bytes(kernel.format("h", "x").encode() + b"// \xa9\n")
    (top / "wide.cu").write_text(kernel.format("w", "x"), encoding="utf-16")
    _, left = guessed(top)
    assert {name: why.partition(",")[0] for name, why in left.items()} == {
        "gr\u00f6\u00dfe": "its name has other signs than letters (a-z)",
        "f": "its parameter gr\u00f6\u00dfe has a name with other letters than a-z: rename it",
        "g": "two of its parameters would both be called in_ in suite.py: rename one",
        "h": "latin.cu is not in UTF-8",
        "w": "wide.cu is not in UTF-8",
        "open.py": left["open.py"].partition(",")[0],
    }
    assert "open.py, line" in left["open.py"]
    assert call("init", "--yes", "--only", "*").status == 0
    names = [each["suite"] for each in json.loads(call("list", "--json").out)]
    assert sorted(names) == ["add", "beside", "scale"]


@pytest.mark.parametrize(
    "reader", ["readings.elementwise", "guess.Geometry", "repository.read", "python_kernels.launches_in"]
)
def test_whatever_a_reader_raises_costs_the_kernel_that_it_reads(theirs, monkeypatch, reader):
    module, _, name = f"harness.init.{reader}".rpartition(".")
    read = getattr(sys.modules[module], name)

    def fails_on_odd(*args):
        if "odd" in str([getattr(getattr(each, "kernel", each), "name", each) for each in args]):
            raise KeyError("of a fault of ours")
        return read(*args)

    monkeypatch.setattr(f"{module}.{name}", fails_on_odd)
    body = f"{INDEX} if (i < n) y[i] = x[i];"
    kernel = f"__global__ void {{0}}(const float *x, float *y, int n) {{{{ {body} }}}}\n"
    suites, left = guessed(theirs({
        "add.py": TRITON, "odd.py": TRITON.replace("def add(", "def odd("),
        "odd.cu": kernel.format("odd"), "other.cu": kernel.format("other"),
    }))  # fmt: skip
    assert {kernel.name for suite in suites.values() for kernel in suite.kernels} >= {"add", "other"}
    assert [why for name, why in left.items() if name.startswith("odd")] == [
        "reading it failed (KeyError: 'of a fault of ours'): write its suite yourself, and report this"
    ]


def test_names_that_each_stand_for_many_more_take_no_time(theirs):
    sums = "".join(f"#define A{n} ({' + '.join([f'A{n + 1}'] * 12)})\n" for n in range(6))
    kernel = f"template <int B> __global__ void f(const float *x, float *y, int n) {{ {INDEX} y[i] = x[i]; }}"
    launch = "void run() { f<A0><<<A1, 32>>>(x, y, n); }"
    suites, _ = guessed(theirs({"f.cu": f"{sums}#define A6 1\n{kernel}\n{launch}"}))
    (found,) = suites["f"].kernels
    assert found.macros == {"B": 12**6}
    assert "A1, which was not understood" in found.notes["grid"]


def test_a_number_that_is_none_of_decimal_digits_stands_in_a_files_name(theirs):
    suites, _ = guessed(theirs({"1²2.cu": SCALE}))
    assert list(suites) == ["scale"]


def test_files_that_are_none_of_what_they_look_like_cost_nothing(theirs, call):
    top = theirs({
        "broken.py": "@triton.jit\ndef (", "binary.cu": "\0__global__\xff" * 50, "scale.cu": SCALE,
        "open.cu": "__global__ void f(float *x) { if (", "lone.cu": "__global__ \" ' R\"(", "empty.cu": "",
        "tests/t.cu": SCALE.replace("scale", "tested"), "third_party/v.cu": SCALE.replace("scale", "theirs"),
    })  # fmt: skip
    (top / os.fsdecode(b"not_utf_\xff.cu")).write_text(SCALE.replace("scale", "odd"), encoding="utf-8")
    os.mkfifo(top / "pipe.cu")
    (top / "loop.cu").symlink_to("loop.cu")
    done = call("init", "--yes")
    assert done.status == 0
    assert [folder.name for folder in (top / "perf").iterdir()] == ["scale"]
    assert "Passed over: names that are not UTF-8 (1), tests (1), third_party (1)" in done.out
    assert "not Python that can be read" in done.out


def test_submodules_that_nobody_fetched_are_named(theirs, call):
    modules = '[submodule "fmt"]\n\tpath = deps/fmt\n[submodule "json"]\n\tpath = deps/json\n'
    theirs({"scale.cu": SCALE, ".gitmodules": modules, "deps/json/json.h": ""})
    done = call("init", "--yes")
    assert "Not fetched: deps/fmt. " in done.out
    assert "git submodule update --init" in done.out


def test_names_that_python_would_stumble_over_are_written_so_that_it_does_not(theirs):
    top = theirs({
        'a "b"\n.cu': "__global__ void f(const float *lambda, float *layout, int data, int case_, int n)"
        " { int i = threadIdx.x; layout[i] = lambda[i]; }",
        "k.cu": "__global__ void kernel_2d(const float *self, float *np, int n) { np[0] = self[1]; }",
        "s.py": TRITON.replace("n_elements = output.numel()", "*_, n_elements = x.shape"),
    })  # fmt: skip
    suites, _ = suites_of(Repository(top))
    assert [suite.name for suite in suites] == ["f", "kernel_2d", "add"]
    for suite in suites:
        ast.parse(suite_text(suite, "perf/it"))
    assert [array.name for array in suites[0].arrays] == ["lambda_", "layout_"]
    assert suites[0].axes[0].names == ("data_",)


def test_the_work_of_a_product_is_counted_in_the_axes_that_its_suite_has(theirs):
    signature = "(const float *A, const float *B, float *C, int points, int n)"
    suites, _ = guessed(theirs({"m.cu": f"__global__ void matmul{signature} {{ C[0] = A[0] * B[1]; }}"}))
    assert suites["matmul"].axes[0].names == ("points_", "n")
    assert suites["matmul"].proposal.flop == "2 * case.points_ * case.n * case.points_"


def test_an_executables_benchmarks_are_named(theirs, call):
    theirs({"scale.cu": SCALE, "bench.cu": "NVBENCH_BENCH(one);\nNVBENCH_BENCH_TYPES(two, T);\n"})
    assert "bench.cu has 2 of nvbench's benchmarks" in call("init", "--yes").out


def test_many_executables_are_one_line(theirs, call):
    theirs({f"bench_{number}.cu": "NVBENCH_BENCH(one);\n" for number in range(5)})
    done = call("init", "--yes")
    assert done.status == 3
    assert "5 files, bench_0.cu, bench_1.cu, bench_2.cu and so on, have 5 of nvbench's" in done.out
    assert done.out.count("bench_") == 3
    assert "compare --with-command" in done.out


# --- C++ --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        (
            "const unsigned long long n, unsigned *x",
            [("unsigned long long", "n", False), ("unsigned", "x", True)],
        ),
        ("float const *__restrict__ x", [("float", "x", True)]),
        ("std::pair<int, float> p, T (y)[]", None),
        ("cutlass::half_t *x, int n = f(1, 2)", [("cutlass::half_t", "x", True), ("int", "n", False)]),
        ("float x[], struct S s", [("float", "x", True), ("S", "s", False)]),
        ("[[maybe_unused]] float *x, int n [[a::b(1)]]", [("float", "x", True), ("int", "n", False)]),
        ("float *__restrict__, int n", None),
        ("float *x, [3]", None),
    ],
)
def test_parameters(text, parameters):
    (kernel,) = read(f"__global__ void f({text}) {{}}").kernels
    found = [(each.type, each.name, each.pointer) for each in kernel.parameters]
    if parameters is None:
        assert any(each.problem for each in kernel.parameters)
    else:
        assert found == parameters


def test_branches_that_each_open_a_bracket_have_one_that_closes_it():
    source = read("""
        #if A
        #ifdef B
        __global__ void a(float *x) { if (x[0]) {
        #else
        __global__ void a(float *x) { if (x[1]) {
        #endif
        #elif C
        __global__ void a(float *x) { if (x[2]) {
        #endif
        x[4] = 1;
        #if C
        } }
        #else
        } }
        #endif
        #ifdef B
        __global__ void b(float *x) {}
        #else
        __global__ void b(int *x) {}
        #endif
        #ifdef __cplusplus
        extern "C" {
        #else
        __global__ void c(float *x) {}
        #endif
        __global__ void
        #ifdef B
        __launch_bounds__(64) d(
        #else
        d(
        #endif
        float *x) {}
    """)
    assert [(each.name, each.extern_c) for each in source.kernels] == [
        ("a", False), ("b", False), ("b", False), ("c", True), ("d", True),
    ]  # fmt: skip
    assert text_of(source.kernels[0].body) == "if(x[0]){x[4]=1;}"
    assert text_of(source.kernels[-1].bounds) == "64"


@pytest.mark.timeout(60)
def test_a_file_of_many_branches_is_read_in_time():
    """Looking at each branch anew for each other one takes minutes."""
    first = "void f() {\n" + "int a = 1;\n" * 30000
    source = read(
        f"#if A\n{first}" + "#elif B\nvoid g() {\n" * 15000 + "#endif\n}\n" + "__global__ void k() {}"
    )
    assert [each.name for each in source.kernels] == ["k"]


def test_attributes_templates_and_declarations_around_a_kernel():
    source = read("""
        template <int N, typename T> struct S { T x[N > 2 ? (N >> 1) : 1]; };
        __global__ void declared(float *x);
        static __global__ [[nodiscard]] void __attribute__((noinline)) a(float *x) { if (1) { } }
        namespace outer::inner { template <class T, int N = 4, bool B = (N > 2)>
        __launch_bounds__(N * 32, 2) __global__ void b(T *x) {} }
        #ifdef WIDE
        __global__ void c(float *x) {}
        #endif
        template __global__ void b<float, 8, true>(float *);
        void host() { auto *k = outer::inner::b<half, 2>; b<float, (1 << 3)><<<g(1), 2, 3>>>(x); }
    """)
    a, b, c = source.kernels
    assert (a.name, b.qualified, c.condition) == ("a", "outer::inner::b", "#ifdef WIDE")
    assert [(each.name, each.is_type, each.default) for each in b.template] == [
        ("T", True, ""), ("N", False, "4"), ("B", False, "(N>2)"),
    ]  # fmt: skip
    assert text_of(b.bounds) == "N*32"
    assert [launch.template for launch in source.launches if launch.name == "b"] == [
        ("float", "8", "true"), ("float", "(1<<3)"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("if i < x.size: data[i] = a * x[i]", "case.a * x"),
        ("for i in range(i, x.size, cuda.gridsize(1)): data[i] += a * x[i]", "data_ + case.a * x"),
        ("data[i] = a * max(x[i], 1e-5)", "case.a * np.maximum(x, 1e-05)"),
        # What is more than that is not told: each of these would be wrong.
        ("for i in range(i, x.size, 64): data[i] += a * x[i]", None),
        ("if i < x.size - 1: data[i] = a * x[i]", None),
        ("if i < x.size: data[i] = x[i]", None),
        ("i += 1; data[i] = a * x[i]", None),
        ("data[i] = a - x[i] / a", None),
        ("data[i] = x[i] if x[i] > 0 else a * x[i]", None),
        ("if x[i] > 0: data[i] = x[i]\n    else: data[i] = a * x[i]", None),
        ("if x[i] > 0: data[i] = x[i]", None),
        ("twice = a * 2; data[i] = twice * x[i]", None),
        ("data[i] = x[i] + i", None),
        ("data[i] = x[i] // a", None),
        ("data[i] = x[i].real", None),
        ("data[i] = *x, i", None),
        ("for j in range(9): data[i] += x[i]", None),
        ("if i < a: data[i] = a * x[i]", None),
        ("if i < limit.size: data[i] = a * x[i]", None),
        ("data[i] **= x[i]", None),
        ("data[i] /= a", None),
        ("data[i] = a * x[i]; data[i] = x[i]", None),
    ],
)
def test_a_numba_kernels_reference_is_written_where_one_store_says_it(theirs, body, reference):
    kernel = "from numba import cuda\n\n@cuda.jit\ndef f(a, x, data):\n    i = cuda.grid(1)\n"
    suites, _ = guessed(theirs({"k.py": f"{kernel}    {body}\n"}))
    found = suites["f"].reference
    assert (found and found.expression) == reference


GRID, SQUARE = "i, j = cuda.grid(2)", "data[i, j] = a * x[i, j]"


@pytest.mark.parametrize(
    ("decorator", "lines", "reference"),
    [
        ("@cuda.jit", (GRID, f"if i < x.shape[0] and j < x.shape[1]: {SQUARE}"), "case.a * x"),
        ("@cuda.jit", (GRID, f"if i < x.shape[1] and j < x.shape[0]: {SQUARE}"), None),
        ("@cuda.jit", (GRID, "for k in range(4): data[i, j] += a * x[i, j]"), None),
        ("@cuda.jit", ("j, i = cuda.grid(2)", SQUARE), None),
        ("@cuda.jit", ("i = cuda.threadIdx.x", "data[i] = a * x[i]"), None),
        ("@cuda.jit", ("i = cuda.grid(2)", "data[i] = a * x[i]"), None),
        ("@cuda.jit(fastmath=True)", ("i = cuda.grid(1)", "data[i] = a * x[i]"), None),
    ],
)
def test_a_numba_kernels_reference_takes_every_element_once(theirs, decorator, lines, reference):
    body = "".join(f"    {line}\n" for line in lines)
    suites, _ = guessed(
        theirs({"k.py": f"from numba import cuda\n\n{decorator}\ndef f(a, x, data):\n{body}"})
    )
    found = suites["f"].reference
    assert (found and found.expression) == reference


def test_a_numba_kernel_over_three_axes_is_a_product_where_it_adds_products(theirs):
    kernel = (
        "from numba import cuda\n\n@cuda.jit\ndef f(A, B, C):\n    i, j = cuda.grid(2)\n    t = 0.0\n"
        "    for k in range(A.shape[1]):\n        t {}\n    C[i, j] = t\n"
    )
    product = guessed(theirs({"k.py": kernel.format("+= A[i, k] * B[k, j]")}))[0]["f"]
    shortest = guessed(theirs({"k.py": kernel.format("= min(t, A[i, k] + B[k, j])")}))[0]["f"]
    assert (product.reference, shortest.reference) == (None, None)
    assert product.proposal.expression == "A @ B"
    assert shortest.proposal is None


@pytest.mark.parametrize(
    "store",
    [
        "tl.store(pointer=y + at, value=tl.load(x + at))",
        "tl.store(y + at, tl.load(pointer=x + at))",
        "v = tl.load(x + at)\n    v += 1\n    tl.store(y + at, v)",
        "v = tl.load(x + at)\n    w = v\n    if TWICE:\n        w = v * 2\n    tl.store(y + at, w)",
        "x += tl.load(x) * n\n    tl.store(y + at, tl.load(x + at))",
        "v = tl.load(x + at)\n    at += n\n    tl.store(y + at, v)",
    ],
)
def test_what_a_triton_kernel_stores_is_not_told_where_it_is_not_sure(theirs, store):
    text = (
        "import torch\nimport triton\nimport triton.language as tl\n\n@triton.jit\n"
        f"def kernel(x, y, n, TWICE: tl.constexpr):\n    at = tl.arange(0, 64)\n    {store}\n\n"
        "def run(x: torch.Tensor):\n    y = torch.empty_like(x)\n    n = x.numel()\n"
        "    kernel[(1,)](x, y, n, True)\n    return y\n"
    )
    suites, _ = guessed(theirs({"k.py": text}))
    assert suites["run"].reference is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return output", "return 2 * output"),
        ("return output", "output *= 2\n    return output"),
        ("return output", "output.mul_(2)\n    return output"),
        ("return output", "twice(output)\n    return output"),
        ("output = torch", "x = x * 2\n    output = torch"),
        ("    tl.store(", "    if n_elements > 1:\n        tl.store("),
        ("    add_kernel[", "    if n_elements > 1:\n        add_kernel["),
        ("offsets < n_elements", "offsets < n_elements - 1"),
        ("offsets < n_elements", "offsets > 0"),
        ("* BLOCK_SIZE +", "* 7 +"),
        ("n_elements = output.numel()", "n_elements = output.numel() // 2"),
        ("output = x + y", "output = x"),
        ("output = x + y", "output = x / y"),
    ],
)
def test_a_triton_function_that_does_more_than_its_store_has_no_reference(theirs, before, after):
    assert before in TRITON
    (whole,) = guessed(theirs({"t.py": TRITON}))[0].values()
    assert whole.reference is not None
    suites, _ = guessed(theirs({"t.py": TRITON.replace(before, after)}))
    assert [suite.reference for suite in suites.values()] == [None]


def test_a_numba_kernels_arrays_may_have_names_that_end_in_an_underscore(theirs):
    kernel = "from numba import cuda\n\n@cuda.jit\ndef twice(out_, x):\n    i = cuda.grid(1)\n"
    suites, _ = guessed(theirs({"k.py": kernel + "    out_[i] = x[i] * 2.0\n"}))
    assert [(array.name, array.role) for array in suites["twice"].arrays] == [
        ("out_", "Output"),
        ("x", "Input"),
    ]
