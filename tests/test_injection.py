"""A slowdown planted into a kernel: found in any source, right in its results, and slow."""

from __future__ import annotations

import re
import shutil
import statistics
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from harness.device.backends import null, open_device
from harness.errors import BuildError, DeviceError, MeasureError, SuiteError
from harness.measure import verify
from harness.measure.buffers import Buffers
from harness.measure.injection import planted, steps_for
from harness.measure.paired_kernels import launch_on
from harness.records.types import Launch
from harness.suite.device_facts import facts_of
from harness.suite.kernel import on_device
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of
from harness.suite.sources import Program, program
from tests.support import KERNELS, device_is_missing

DEVICE = "opencl:0"
SIZES = {"matmul": (127, 65, 33), "copy": (127, 65), "transpose": (127, 65)}
SUITES = {name: load_folder(KERNELS / name) for name in SIZES}
ALL = [
    (name, kernel)
    for name, suite in SUITES.items()
    for kernel in suite.kernels
    if isinstance(kernel.source, str) and "cuda" in kernel.sources
]
PORTABLE_KERNELS = [
    (suite, kernel.name)
    for suite, kernel in ALL
    if kernel.requires is None
    and kernel.source_for("opencl")
    and not kernel.name.endswith("_as_published")
    and kernel.name != "thread_tiling_2d"
]
"""Without those that take longest to compile and have a kernel of the same kind beside them."""


def program_of(suite_name, kernel_name, backend, size=None):
    """A kernel of this project's as a program, with its case and its launch."""
    suite = SUITES[suite_name]
    kernel = suite.by_name[kernel_name]
    case = suite.case(kernel, dict(zip(suite.problem.axes, size or SIZES[suite_name], strict=True)))
    return suite, kernel, case, program(suite, kernel, case, backend)


def plant(text, backend="cuda", function="one"):
    """The planted text without the chain before it."""
    chain, line, rest = planted(Program("line.one", function, text), backend).text.partition("#line 1\n")
    assert line
    assert chain.count("harness_planted(") == 1
    return rest


# @P and @B stand where a parameter and a call are added; @L where the parameter goes before another one.
ADDED = {"@P": ", int harness_steps", "@B": " harness_planted(harness_steps);", "@L": " int harness_steps,"}


def sides_of(marked):
    before, after = marked, marked
    for mark, added in ADDED.items():
        before, after = before.replace(mark, ""), after.replace(mark, added)
    return before, after


DECOY = "__global__ void one(int n) {}"

CUDA = {
    "a comment before it": f"// {DECOY}\n/* {DECOY}\n{DECOY}\n */ __global__ void one(int n@P) {{@B}}\n",
    "a comment that goes on": f"// as in \\\n {DECOY} \\\n\n__global__ void one(int n@P) {{@B}}\n",
    "a comment inside": "__global__ void one /* one( */ (int n /* ) { */ // )\n@P) /* { */ // {\n{@B // }\n}",
    "a prototype before it": "__global__ void one(int@P);\n__global__ void one(int n@P) {@B}\n",
    "a macro in the list": (
        "#define POINTER(type) type* __restrict__\n"
        "__global__ void one(POINTER(float) x, POINTER(float) y@P) {@B y[0] = x[0]; }\n"
    ),
    "a macro at its end": "#define N(x) int x\n__global__ void one(N(n)@P) {@B}\n",
    "an array in the list": "struct Row {};\n__global__ void one(int (*x)[4], Row row@P)\n\n{@B\n}\n",
    "bounds before the name": (
        "__global__ void __launch_bounds__(256, (1 + 1)) one(\n    float* x, // (\n    int n@P)\n{@B\n}\n"
    ),
    "bounds before the type": 'extern "C" __launch_bounds__(64) __global__ void\none(int n@P){@B}\n',
    "attributes after the list": "#define LATER(x)\n__global__ void one(int n@P) LATER((1)) {@B}\n",
    "a C block": 'extern "C" {\nvoid two(int n);\n__global__ void one(int n@P)\n{@B\n}\n}\n',
    "a namespace and a template": (
        "namespace a { template <typename T> __device__ T one(T x) { return x; } }\n"
        "template <int N> __device__ int more(int x) { return a::one(x) + N; }\n"
        "__global__ void one(int* x@P) {@B *x = more<1>(a::one<int>(2)); }\n"
    ),
    "an overload that is no kernel": (
        "__device__ float one(float x) { return x; }\n"
        "__global__ void one(float* x@P) {@B *x = one(*x); if (one(*x)) { return; } }\n"
    ),
    "a member that looks like it": (
        "struct Two { int one; __device__ Two(int x) : one(x) {} };\n"
        "__global__ void one(int n@P) {@B Two two(n); (void)two; }\n"
    ),
    "a name that begins with it": "__device__ void one_() {}\n__global__ void one(int n@P) {@B one_(); }\n",
    "a name that ends with it": "__global__ void none(int n) {}\n__global__ void one(int n@P) {@B}\n",
    "strings": (
        "constexpr const char* a = \"\\\" one(int n) {\"; constexpr char b = '{', c = '\"', d = '\\'';\n"
        f'constexpr const char* e = R"x( " {DECOY} )x";\n__global__ void one(int n@P) {{@B}}\n'
    ),
    "digits with marks": "constexpr int a = 1'0; __global__ void one(int n@P) {@B n = 0x1'0; }\n",
    "a macro that calls it": "#define CALL(x) \\\n  one(x) \\\n  {\n__global__ void one(int n@P) {@B}\n",
    "a directive with a comment": f"#define N 1 /*\n{DECOY} */\n__global__ void one(int n@P) {{@B}}\n",
    "a directive with an apostrophe": "#if 0\n#error don't\n#endif\n__global__ void one(int n@P) {@B}\n",
    "a directive in the list": (
        "__global__ void one(int n\n#ifdef MORE\n    , int more\n#endif\n@P)\n"
        "#pragma nv_diag_suppress 1\n{@B\n}\n"
    ),
    "alternatives with one body": (
        "#ifdef MORE\n__global__ void one(int n, int more@P)\n"
        "#else\n__global__ void one(int n@P)\n#endif\n{@B\n}\n"
    ),
    "alternatives with two bodies": (
        "#ifdef MORE\n__global__ void one(int n, int more@P) {@B}\n"
        "#else\n__global__ void one(int n@P) {@B}\n#endif\n"
    ),
    "qualifiers from macros": (
        '#define GLOBAL __global__ void  // not __device__\n#define KERNEL(x) extern "C" GLOBAL x\n'
        "__device__ void one(float x) {}\nKERNEL() one(int n@P) {@B}\n"
    ),
    "shared memory from a macro": "#define PARAMETER(x)\n__global__ void one(int n PARAMETER((1))@P) {@B}\n",
    "ends of lines as on Windows": f"// \\\r\n{DECOY}\r\n__global__ void one(int n@P)\r\n{{@B\r\n}}\r\n",
    "an unfinished comment at the end": "__global__ void one(int n@P) {@B}\n//",
}
LOCAL = (
    "#define SHARED(type, name) , __local type* name\n#define LOCAL __local  // what a work-group shares\n"
)
OPENCL = {
    "a kernel": "__kernel void one(__global float* x, int n@P) {@B}\n",
    "a kernel in short": "kernel void one(global float* x@P) {@B}\n",
    "a helper of other arguments": "kernel void one_(int n) {}\nkernel void one(int n@P) {@B}\n",
    "bounds": "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void one(int n@P) {@B}\n",
    "macros of the chain's words": (
        "#define x 1\n#define i 2\n#define steps 3\n#define fma 4\nkernel void one(int n@P) {@B}\n"
    ),
    "local memory": "__kernel void one(int n,@L __local float* x) {@B}\n",
    "local memory alone": "__kernel void one(@Llocal float* x) {@B}\n",
    "local memory from a macro": f"{LOCAL}__kernel void one(int n,@L LOCAL float* x) {{@B}}\n",
}


@pytest.mark.parametrize("marked", CUDA.values(), ids=CUDA)
def test_the_definition_is_found(marked):
    before, after = sides_of(marked)
    assert after != before
    assert plant(before) == after


@pytest.mark.parametrize("marked", OPENCL.values(), ids=OPENCL)
def test_the_definition_is_found_in_opencl(marked):
    before, after = sides_of(marked)
    assert plant(before, "opencl") == after


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", "int harness_steps"),
        ("void", "int harness_steps"),
        (" void /* none */ ", " int harness_steps /* none */ "),
        ("/* none */", "/* none */int harness_steps"),
        ("void* x", "void* x, int harness_steps"),
        ("\n    int n  // the size\n", "\n    int n  // the size\n, int harness_steps"),
    ],
)
def test_a_list_of_parameters(parameters, expected):
    text = plant(f"__global__ void one({parameters}) {{}}\n")
    assert text == f"__global__ void one({expected}) {{ harness_planted(harness_steps);}}\n"


def test_shared_memory_that_brings_its_comma_stays_last():
    text = plant(f"{LOCAL}kernel void one(int n SHARED(float, x)) {{}}\n", "opencl")
    assert "one(int n , int harness_steps SHARED(float, x)) {" in text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("#define NAME one\n__global__ void NAME(int n) {}\n", id="a macro for a name"),
        pytest.param("#define ONE __global__ void one(int n) {}\nONE\n", id="a macro for all"),
        pytest.param("__global__ void one(int n);\n", id="a prototype"),
        pytest.param("// __global__ void one(int n) {}\n", id="a comment"),
        pytest.param("/* __global__ void one(int n) {}\n", id="an unfinished comment"),
        pytest.param("__global__ void two() { one(1); one<<<1, 1>>>(2); }\n", id="calls"),
        pytest.param("__device__ int two() { if (one(1)) { return one; } }\n", id="a call before a brace"),
        pytest.param("__global__ void one(int n\n", id="an open list"),
        pytest.param("__global__ void one(int n)\n", id="no body"),
        pytest.param("int one = 1; struct one {};\n", id="other things of the name"),
    ],
)
@pytest.mark.parametrize("backend", ["cuda", "opencl", "null"])
def test_without_a_definition_nothing_is_planted(text, backend):
    with pytest.raises(
        SuiteError, match=r"^line\.one has no definition of 'one' .* no slowdown can be planted"
    ):
        plant(text, backend)


def test_a_backend_of_which_nothing_is_known():
    with pytest.raises(SuiteError, match="kernels for 'opengl'"):
        plant("void one() {}", "opengl")


def test_where_no_qualifier_is_seen_any_definition_will_do():
    assert plant("KERNEL one(int n) {}", "null") == (
        "KERNEL one(int n, int harness_steps) { harness_planted(harness_steps);}"
    )


def test_all_but_the_text_stays_and_the_emulator_gets_what_it_got():
    def emulate(*arguments):
        return arguments

    before = Program("line.one", "one", "void one(int n) {}", ("-w",), emulate)
    after = planted(before, "null")
    assert (after.name, after.function, after.options) == ("line.one", "one", ("-w",))
    assert after.sha256 != before.sha256
    assert after.emulate is not None
    assert after.emulate(1, 2, 1000) == (1, 2)
    assert planted(Program("line.one", "one", "void one(int n) {}"), "null").emulate is None


@pytest.mark.parametrize(
    ("suite", "kernel", "backend"),
    [(suite, kernel.name, backend) for suite, kernel in ALL for backend in kernel.sources],
)
def test_a_kernel_of_this_project_gets_one_parameter_one_call_and_no_lines(suite, kernel, backend):
    *_, source = program_of(suite, kernel, backend)
    text = plant(source.text, backend, source.function)
    assert text.count("int harness_steps") == 1
    assert text.count("harness_planted(harness_steps);") == 1
    assert text.count("\n") == source.text.count("\n")
    assert (
        text.replace(" harness_planted(harness_steps);", "").replace(", int harness_steps", "").split()
        == source.text.split()
    )


@pytest.mark.parametrize(
    ("target", "steps", "effect", "expected"),
    [
        (0.01, 1000, 0.10, 100),
        (0.02, 100, 0.01, 200),
        (0.05, 3, 0.1, 2),
        (0.001, 64, 5.0, 1),
        (0.5, 7, 0.5, 7),
    ],
)
def test_steps_scale(target, steps, effect, expected):
    assert steps_for(target, steps, effect) == expected


@pytest.mark.parametrize("effect", [0.0, -0.01, float("nan")])
def test_steps_cannot_scale_from_nothing(effect):
    with pytest.raises(MeasureError, match=r"^64 planted steps changed the time by .*%: no slowdown"):
        steps_for(0.01, 64, effect)


def test_the_null_device_takes_longer_by_the_steps():
    device = null.open_device(0)
    built = device.build(planted(Program("line.one", "one", "void one(int n) {}"), "null"))
    launch = Launch(grid=(1, 1, 1), block=(1, 1, 1))
    array = device.allocate(1000)
    timings = [device.timed(built, launch, [array, np.int32(steps)], 1) for steps in (0, 1000, 10_000)]
    device.synchronize()
    times = [timing() for timing in timings]
    assert times[0] > 0
    ratios = [time / times[0] - 1 for time in times[1:]]
    assert ratios[1] == pytest.approx(10 * ratios[0])


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        try:
            opened = open_device(DEVICE)
        except DeviceError as error:
            device_is_missing(DEVICE, error.message)
        yield opened
        opened.close()


@pytest.mark.parametrize(("suite", "kernel"), PORTABLE_KERNELS)
def test_a_planted_kernel_is_right(device, suite, kernel, tmp_path):
    found, spec, case, source = program_of(suite, kernel, "opencl")
    case = on_device(spec, case, facts_of(device.info))
    launch = launch_on(device, found, case, tmp_path)
    built = device.build(planted(source, "opencl"))
    inputs = found.problem.data(case, np.random.default_rng(1))
    reference, tolerance = verify.reference_of(found.problem, case, inputs)
    with Buffers(device, found.problem, case) as buffers:
        buffers.write(inputs)
        for steps in (0, 100):
            buffers.poison()
            device.launch(built, launch, [*buffers.arguments(spec), np.int32(steps)])
            for name, expected in reference.items():
                assert verify.compare(buffers.read(name), expected, tolerance).wrong == 0
            assert buffers.damage(inputs) == ""


@pytest.mark.parametrize(
    ("suite", "kernel", "size", "steps"),
    [
        pytest.param("copy", "copy", (64, 64), 200_000, id="copy"),
        pytest.param("matmul", "naive", (40, 40, 40), 200_000, id="returns early"),
        pytest.param("matmul", "shared_tile", (40, 40, 40), 200_000, id="barriers"),
        pytest.param("matmul", "loop_tiling_shared", (16, 16, 64), 20_000, id="shared memory"),
    ],
)
def test_steps_take_time(device, suite, kernel, size, steps):
    found, spec, case, source = program_of(suite, kernel, "opencl", size)
    built = device.build(planted(source, "opencl"))
    with Buffers(device, found.problem, case) as buffers:
        buffers.write(found.problem.data(case, np.random.default_rng(1)))
        arguments = buffers.arguments(spec)

        def time_ns(taken, launches):
            times = []
            for _ in range(launches):
                timing = device.timed(built, launch_of(spec, case), [*arguments, np.int32(taken)], 1)
                device.synchronize()
                times.append(timing())
            return statistics.median(times)

        assert time_ns(steps, 3) > 2 * time_ns(0, 15)


@pytest.mark.parametrize("marked", OPENCL.values(), ids=OPENCL)
def test_what_the_scanner_made_is_opencl(device, marked):
    before, _ = sides_of(marked)
    assert device.build(planted(Program("line.one", "one", before), "opencl")).kernel.num_args > 0


def test_an_error_in_a_planted_kernel_keeps_its_line(device):
    text = '#define N 1\n#line 1 "one.cu"\n// first\n__kernel void one(\n    int n)\n{\n    nonsense;\n}\n'
    with pytest.raises(BuildError) as caught:
        device.build(planted(Program("line.one", "one", text), "opencl"))
    assert re.search(r"one\.cu:5\b", caught.value.log)


ARCH = "sm_80"
nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
cuobjdump = pytest.mark.skipif(shutil.which("cuobjdump") is None, reason="cuobjdump is not on PATH")


def run_nvcc(folder: Path, name: str, text: str) -> tuple[Path, str]:
    source = folder / f"{name}.cu"
    source.write_text(text, encoding="utf-8", newline="")
    done = subprocess.run(
        ["nvcc", "-cubin", f"-arch={ARCH}", "-std=c++17", "-Xptxas", "-v", "-o", f"{source}bin", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(f"{source}bin"), done.stdout + done.stderr


def registers_in(log: str) -> int:
    (registers,) = re.findall(r"Used (\d+) registers", log)
    return int(registers)


COMPILED = [
    ("copy", "copy"),
    ("matmul", "thread_tiling_2d_vectorized"),
    ("matmul", "wmma_warp_tiling"),
]
"""The least and the most that a kernel asks for, and tensor cores."""


@pytest.fixture(scope="module")
def cubins(tmp_path_factory):
    """Return binaries and the compiler's messages by suite, kernel, and whether a slowdown is planted."""
    folder = tmp_path_factory.mktemp("cubins")
    texts = {}
    for suite, kernel in COMPILED:
        *_, source = program_of(suite, kernel, "cuda", (256,) * len(SIZES[suite]))
        texts[suite, kernel, False] = source.text
        texts[suite, kernel, True] = planted(source, "cuda").text
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda key: run_nvcc(folder, "_".join(map(str, key)), texts[key]), texts)
        return dict(zip(texts, made, strict=True))


@nvcc
@pytest.mark.parametrize(("suite", "kernel"), COMPILED)
def test_a_planted_kernel_keeps_its_chain_and_its_registers(cubins, suite, kernel):
    """The timed code must be the original kernel and the chain, although compilers are good at removing
    chains.
    """
    (plain, plain_log), (slow, log) = cubins[suite, kernel, False], cubins[suite, kernel, True]
    assert slow.is_file(), log
    chains_end = struct.pack("<f", 1e30)
    assert chains_end in slow.read_bytes()
    assert chains_end not in plain.read_bytes()
    assert registers_in(log) <= registers_in(plain_log) + 2
    assert "0 bytes spill stores" in log


@nvcc
@cuobjdump
def test_the_chain_is_one_multiply_add_after_another(cubins):
    listing = subprocess.run(
        ["cuobjdump", "-sass", str(cubins["copy", "copy", True][0])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(\S.*?);", listing)
    at = {int(address, 16): text for address, text in lines}
    loops = [(int(m[1], 16), a) for a, text in at.items() if (m := re.search(r"BRA 0x([0-9a-f]+)", text))]
    loop = min((begin, end) for begin, end in loops if begin < end)
    inside = [text for address, text in at.items() if loop[0] <= address <= loop[1]]
    assert len([text for text in inside if "FFMA" in text]) == 1
    assert len(inside) <= 6


@nvcc
def test_what_the_scanner_made_is_cuda(tmp_path):
    """In one file, as each by itself takes half a second: every function has a name of its own."""
    parts = []
    for number, (what, marked) in enumerate(CUDA.items()):
        text = planted(Program("line.one", "one", sides_of(marked)[0]), "cuda").text
        lined = text.replace("#line 1\n", f'#line 1 "{what}"\n')
        parts.append(f"#define one one_{number}\nnamespace n{number} {{\n{lined}\n}}\n#undef one\n")
    binary, log = run_nvcc(tmp_path, "nasty", "".join(parts))
    assert binary.is_file(), log


@nvcc
def test_an_error_in_a_planted_cuda_kernel_keeps_its_line(tmp_path):
    text = '#line 1 "one.cu"\n// first\n__global__ void one(\n    int n)\n{\n    nonsense;\n}\n'
    _, log = run_nvcc(tmp_path, "wrong", planted(Program("line.one", "one", text), "cuda").text)
    assert re.search(r"one\.cu\(5\)", log)
