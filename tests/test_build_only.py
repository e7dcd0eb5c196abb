"""Kernels built for cards that are not here: facts of each kernel, and mistakes found."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest

from harness.device.backends import cubin, nvcc
from harness.device.static.architecture_builds import check_parameters, functions_of, usage
from harness.errors import BuildError, ExitCode
from harness.measure.injection import planted
from harness.run.builds import build_only
from harness.suite.kernel import Kernel
from harness.suite.layout import Layout, Parameter
from harness.suite.loader import load
from harness.suite.problem import Axis, Output, Problem
from harness.suite.sources import Program, program
from harness.suite.suite import Suite
from harness.suite.suite_files import files_outside
from harness.system.cache import BinaryCache
from harness.system.files import scratch_folder
from harness.system.process import finished
from tests.support import caller, commit, device_is_missing, make_repository, write_files

SUITE = """\
from harness import Axis, HostFunction, HostLibrary, Input, Kernel, Output, Problem, Suite, ceil_div


class Twice(Problem):
    n = Axis(default=(1024, 4096), quick=(64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


def kernel(name, source="", **given):
    given = {"requires": "sm_70", "block": 32, "grid": lambda c: ceil_div(c.n, 32), **given}
    return Kernel(name, source or f"{name}.cu", **given)


suite = Suite("twice", Twice(), headline="GB/s", kernels=[
%s
])
"""
HEAD = 'extern "C" __global__ void'
BODY = "{ int i = blockIdx.x * 32 + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }\n"
RIGHT = f"{HEAD} right(const float *x, float *y, int n) {BODY}"


@pytest.fixture(scope="module", autouse=True)
def compiler():
    if not nvcc.version():
        device_is_missing("nvcc", "nvcc is not on PATH, and the extra 'static' is not installed")


@pytest.fixture
def project(tmp_path, capsys, monkeypatch):
    """Writes a suite with kernels and their sources, and calls `harness` there."""
    harness = caller(capsys, monkeypatch)

    def call(kernels, sources, *arguments):
        files = {f"kernels/twice/{name}": text for name, text in sources.items()}
        files |= {"kernels/twice/suite.py": SUITE % kernels, "harness.toml": ""}
        write_files(tmp_path, files)
        return harness(*arguments, cwd=tmp_path)

    return call


def built(project, kernels, sources, archs="sm_86"):
    done = project(kernels, sources, "check", "--build-only", archs, "--json")
    return done.status, done.json[0]["rows"]


def test_what_compiles_is_told_with_registers_spills_and_shared_memory(project):
    status, rows = built(project, 'kernel("right"),', {"right.cu": RIGHT}, "sm_86, sm_90a,sm_86")
    assert status == ExitCode.FINE
    assert [(row["arch"], row["status"], row["entry"], row["built_for"]) for row in rows] == [
        ("sm_86", "built", "right", "sm_86"),
        ("sm_90a", "built", "right", "sm_90a"),
    ]
    assert all(0 < row["usage"]["registers"] < 32 for row in rows)
    assert rows[0]["usage"]["spill_store_bytes"] == rows[0]["usage"]["shared_bytes"] == 0
    # Both sizes are one program.
    assert rows[0]["cases"] == ["twice.right[n=1024]", "twice.right[n=4096]"]


def test_a_cpp_function_is_found_by_its_own_name(project):
    text = RIGHT.replace('extern "C" ', "") + "__global__ void rightmost(float *x) {}"
    status, [row] = built(project, 'kernel("right"),', {"right.cu": text})
    assert (status, row["entry"]) == (ExitCode.FINE, "_Z5rightPKfPfi")


PLANTED = {
    "a mangled name of other parameters": (
        'kernel("bad", entry="_Z3badPKfPfl"),',
        f"__global__ void bad(const float *x, float *y, int n) {BODY}",
        "no kernel function named '_Z3badPKfPfl': check its entry. There is bad(float const*, float*, int)",
    ),
    "an entry that was renamed": (
        'kernel("bad", entry="bad"),',
        RIGHT,
        "no kernel function named 'bad': check its entry. There is right.",
    ),
    "a parameter of another size": (
        'kernel("bad", entry="bad"),',
        f"{HEAD} bad(const float *x, size_t n, float *y) {BODY}",
        "The first that differs is number 3.",
    ),
    "a header that is not there": (
        'kernel("bad", entry="bad"),',
        f'#include "missing.cuh"\n{HEAD} bad(const float *x, float *y, int n) {BODY}',
        "missing.cuh",
    ),
}


def test_mistakes_are_found_that_list_does_not_see(project):
    """check_parameters, below, is held to more of them."""
    kernels, sources = 'kernel("right"),', {"right.cu": RIGHT}
    for number, (kernel, text, _) in enumerate(PLANTED.values()):
        kernels += kernel.replace('"bad"', f'"bad{number}", "bad{number}.cu"', 1)
        sources[f"bad{number}.cu"] = text
    assert project(kernels, sources, "list").status == ExitCode.FINE
    status, [right, *rows] = built(project, kernels, sources)
    assert (status, right["status"]) == (ExitCode.NOT_MEASURED, "built")
    for (name, (_, _, words)), row in zip(PLANTED.items(), rows, strict=True):
        assert row["status"] == "failed", name
        assert words in row["message"] + row["log"], name


def test_what_fails_for_one_reason_is_told_once(project):
    names = ("one", "two", "other")
    lacks = dict.fromkeys(names[:2], "#include <not_there.h>\n") | {"other": "#include <nor_this.h>\n"}
    kernels = "".join(f'kernel("{name}"),' for name in names)
    sources = {f"{name}.cu": "\n" * at + lacks[name] for at, name in enumerate(names)}
    told = project(kernels, sources, "check", "--build-only", "sm_86").err
    assert (told.count("not_there.h: No such"), told.count("nor_this.h: No such")) == (1, 1)
    assert "As twice.one failed, so did twice.two.\n" in told


def test_a_compilers_errors_are_told_once_for_all_architectures_and_as_far_as_they_are_read(project):
    lines = "".join(f"\n y[{i}] = a{i};" for i in range(30))
    text = f"{HEAD} bad(const float *x, float *y, int n) {{{lines} }}"
    done = project('kernel("bad"),', {"bad.cu": text}, "check", "--build-only", "sm_86,sm_90")
    assert "failed for sm_86, sm_90 (build-failed)" in done.err
    assert ('"a0" is undefined' in done.err, '"a29" is undefined' in done.err) == (True, False)
    assert "more lines: --json has them" in done.err


def test_what_is_not_for_nvcc_is_listed_with_why(project):
    kernels = """
    kernel("right"), kernel("new", "right.cu", entry="right", requires="sm_90"),
    Kernel("host", HostFunction(lambda case, stream: None)),
    Kernel("shader", "shader.glsl", block=1, grid=1),
    """
    done = project(kernels, {"right.cu": RIGHT, "shader.glsl": ""}, "check", "--build-only", "sm_86")
    assert done.status == ExitCode.FINE
    assert "Not built: host is a function of the host" in done.err
    assert "'harness check' calls it on a device" in done.err
    assert [line.split()[-1] for line in done.out.splitlines()[2:6]] == [
        *("built", "needs-capability", "host-function", "needs-backend"),
    ]
    assert project(kernels, {}, "check", "--build-only", "sm_86", "host").status == ExitCode.NOT_MEASURED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--build-only", "sm_86,ampere"), "'ampere' is no architecture: expected the form sm_86"),
        (("--build-only", "sm_86", "--device", "null"), "leave out --device null"),
    ],
)
def test_wrong_usage_is_told(project, arguments, words):
    done = project('kernel("right"),', {"right.cu": RIGHT}, "check", *arguments)
    assert (done.status, words in done.err) == (ExitCode.USAGE, True)


def test_what_was_compiled_is_kept_until_a_header_changes(own_cache, tmp_path, monkeypatch):
    header = tmp_path / "two.h"
    header.write_text("#define TWO 2", encoding="utf-8")
    text = "#include <two.h>\n" + RIGHT.replace("2 *", "TWO *")
    made = Program("twice.right", "right", text, options=(f"-I{tmp_path}",))
    assert usage(made, "sm_86").registers
    compile_ = nvcc.cubin
    monkeypatch.setattr(nvcc, "cubin", None)
    assert usage(made, "sm_86").registers
    monkeypatch.setattr(nvcc, "cubin", compile_)
    header.write_text("#define TWOO 2", encoding="utf-8")
    with pytest.raises(BuildError, match="does not compile for sm_86") as caught:
        usage(made, "sm_86")
    assert "TWO" in caught.value.log


def test_a_size_that_is_another_program_has_a_line_of_its_own(project):
    text = RIGHT.replace("2 *", "N *")
    kernels = 'kernel("right", macros={"N": lambda c: c.n}),'
    done = project(kernels, {"right.cu": text}, "check", "--build-only", "sm_86")
    assert [line.split()[1] for line in done.out.splitlines()[2:4]] == ["1024", "4096"]
    assert (
        len(json.loads(project(kernels, {}, "check", "--build-only", "sm_86", "--json").out)[0]["rows"]) == 2
    )


def test_a_case_knows_of_the_architecture_and_not_how_many_multiprocessors_there_are(project):
    kernels = 'kernel("right", macros={"N": lambda c: c.device.capability[0], "S": lambda c: %s}),'
    sources = {"right.cu": RIGHT.replace("2 *", "N *")}
    status, [row] = built(project, kernels % "c.device.shared_bytes_per_block", sources)
    assert (status, row["status"]) == (ExitCode.FINE, "built")
    status, [row, _] = built(project, kernels % "c.device.sm_count", sources)
    assert (status, row["status"]) == (ExitCode.NOT_MEASURED, "failed")
    assert "sm_count" in row["message"]


def test_list_fails_where_a_source_is_missing(project, tmp_path):
    done = project('kernel("right"), kernel("gone"),', {"right.cu": RIGHT}, "list", "--json")
    assert done.status == ExitCode.USAGE
    assert f"twice.gone: there is no file {tmp_path}/kernels/twice/gone.cu" in done.err
    assert [kernel["name"] for kernel in done.json[0]["kernels"]] == ["right", "gone"]
    assert project('kernel("right"), kernel("gone"),', {}, "list", "right").status == ExitCode.FINE


def test_the_null_device_says_that_it_built_nothing(project):
    done = project(
        'Kernel("right", "right.cu", block=32, grid=1),',
        {"right.cu": "nonsense"},
        "check",
        "--device",
        "null",
    )
    assert done.status == ExitCode.FINE
    assert "not-built" in done.out
    assert "verified" not in done.out
    assert "harness check --build-only" in done.err


def test_parameters_are_held_against_what_is_passed():
    given = (
        Parameter("x", "float16", Layout((4,), "float16")),
        Parameter("n", "int32"),
        Parameter("alpha", "float64"),
    )
    made = Program("twice.right", "right", "", parameters=given)
    check_parameters(made, (8, 4, 8))
    with pytest.raises(BuildError, match=r"alpha \(float64, 8\)\. The first that differs is number 3"):
        check_parameters(made, (8, 4, 4))
    anything = (*given[:2], Parameter("map", "setup"))
    check_parameters(replace(made, parameters=anything), (8, 4, 128))
    with pytest.raises(BuildError, match="takes 0 parameters, of no bytes"):
        check_parameters(made, ())
    step, own = functions_of(replace(made, steps=(("add", 2),)))  # whose parameters come first
    assert (step.function, own.function) == ("add", "right")
    check_parameters(own, (8,))
    with pytest.raises(BuildError, match=r"twice\.right's step add takes 1 parameters, of 8 bytes"):
        check_parameters(step, (8,))


def test_damaged_binaries_have_no_kernels():
    assert cubin.entries(b"\x7fELF\x02\x01" + b"\xff" * 90) == {}
    assert cubin.entries(b"no ELF") == {}


TEMPLATES = """
namespace {
template <int M, int N = 2> __global__ void twice(const float *x, float *y, int n) { y[n] = x[M] * N; }
}
namespace deep {
struct Two {};
template <typename T, class U = Two> __global__ void twice(const T *x, T *y, int n, U u = {}) { y[n] = x[0]; }
__global__ void alone(const float *x, float *y, int n) { y[n] = x[0]; }
template <int A> __global__ void many(const float *x, float *y, int n) {}
template <int A, int B = 1> __global__ void many(const float *x, float *y, int n) {}
}
extern "C" __global__ void plain(const float *x, float *y, int n) { y[n] = x[0]; }
void host() { twice<1, 1><<<1, 1>>>(nullptr, nullptr, 1); twice<32><<<1, 1>>>(nullptr, nullptr, 1); }
"""


def instances(project, expressions):
    """Return the status, the launched function and the message of each expression."""
    kernels = "".join(
        f'kernel("of{number}", "templates.cu", instantiate={expression!r}, '
        f"macros={ {'M': 32} if '{M}' in expression else {} }),"
        for number, expression in enumerate(expressions)
    )
    sources = {"templates.cu": TEMPLATES}
    done = project(kernels, sources, "check", "--build-only", "sm_86", "--json", "--size", "64")
    rows = done.json[0]["rows"]
    return [
        (row["status"], nvcc.demangled(row["entry"]), row["message"] + row["log"])
        for row in sorted(rows, key=lambda row: row["kernel"])
    ]


def test_a_template_is_instantiated_by_its_expression(project):
    expected = {
        "twice<{M} / 2, {n}>": "void (anonymous namespace)::twice<16, 64>(float const*, float*, int)",
        "deep::alone": "deep::alone(float const*, float*, int)",
        "plain": "plain",
    }
    found = instances(project, expected)
    assert [each[:2] for each in found] == [("built", entry) for entry in expected.values()], found


def test_a_template_that_is_none_or_several_is_told(project):
    expected = {
        "deep::many<1>": "deep::many<1> names no kernel, or more than one.",
        "twice<{TILE}>": "'TILE' is no macro of it and no axis; there are n.",
    }
    found = instances(project, expected)
    for (status, _, said), words in zip(found, expected.values(), strict=True):
        assert (status, words in said) == ("failed", True), said


def test_a_template_argument_is_no_macro_and_other_macros_are(project):
    """A macro M would make nonsense of `template <int M>`; FACTOR must still be one."""
    text = "template <int M> __global__ void twice(const float *x, float *y, int n) { y[n] = FACTOR * M; }"
    kernels = 'kernel("twice", instantiate="twice<{M}>", macros={"M": 32, "FACTOR": 2}),'
    assert built(project, kernels, {"twice.cu": text})[0] == ExitCode.FINE


def test_a_sweep_tries_template_arguments_and_slowdowns_are_planted_in_templates(tmp_path):
    kernel = Kernel("twice", "t.cu", instantiate="deep::twice<{M}>", macros={"M": 32}, block=1, grid=1)
    text = "namespace deep { template <int M> __global__ void twice(float *y, int n) { y[n] = M; } }"
    write_files(tmp_path, {"t.cu": text})

    class Writes(Problem):
        n = Axis((1,))
        y = Output("n")

    suite = Suite("s", Writes(), [kernel], root=tmp_path)
    made = program(suite, kernel, suite.case(kernel, {"n": 1}, {"M": 64}), "cuda")
    assert made.instance == "deep::twice<64>"
    slowed = planted(made, "cuda")
    binary, _ = nvcc.cubin(slowed, nvcc.STANDARD, "sm_86")
    assert cubin.entries(binary)[nvcc.entry(slowed, binary)] == (8, 4, 4)


FEATURE = f'{HEAD} k(const float *x, float *y, int n) {{ asm volatile("wgmma.fence.sync.aligned;"); }}'


def test_what_only_sm_90a_has_is_built_for_it(project):
    kernels = 'kernel("k"), kernel("told", "k.cu", entry="k", arch="sm_90a"),'
    sources = {"k.cu": FEATURE}
    status, rows = built(project, kernels, sources, "sm_90,sm_100")
    told = [(row["kernel"], row["arch"], row["status"], row["reason"], row["built_for"]) for row in rows]
    assert told == [
        ("k", "sm_90", "built", "", "sm_90a"),
        ("k", "sm_100", "failed", "build-failed", ""),
        ("told", "sm_90", "built", "", "sm_90a"),
        ("told", "sm_100", "not-built", "needs-capability", ""),
    ]
    assert status == ExitCode.NOT_MEASURED


def test_that_a_source_needed_more_is_remembered(own_cache, monkeypatch):
    asked: list[str] = []
    made, run = Program("t.k", "k", FEATURE), finished

    def call(command, *given):
        asked.extend(word for word in command if word.startswith("-arch"))
        return run(command, *given)

    monkeypatch.setattr("harness.device.backends.nvcc.finished", call)
    for _ in range(2):
        binary = nvcc.through_cache(
            BinaryCache(), made, nvcc.STANDARD, "sm_90", lambda given: nvcc.cubin(made, given, "sm_90")[0]
        )
        assert cubin.built_for(binary) == "sm_90a"
    assert asked == ["-arch=sm_90", "-arch=sm_90a"]


OPS = "#pragma once\n#include <lib/two.h>\ntemplate <int N> __device__ float times(float x) { return N * x; }"
INCLUDING = {
    "harness.toml": "",
    "src/lib/two.h": "#pragma once\n#define TWO 2\n",
    "src/ops.cuh": OPS,
    "kernels/twice/beside.cuh": '#pragma once\n#include "ops.cuh"\n',
    "kernels/twice/right.cu": '#include "beside.cuh"\n#include <ops.cuh>\n#if __has_include("gone.h")\n'
    '#include "gone.h"\n#endif\n' + RIGHT.replace("2 * x[i]", "times<TWO>(x[i])"),
}


def test_headers_are_found_in_the_folders_of_a_kernel_or_of_its_suite(tmp_path):
    of_kernel = SUITE % 'kernel("right", include=("src",)),'
    of_suite = (SUITE % 'kernel("right"),').replace("kernels=[", "include=('src',), kernels=[")
    made = []
    for text in (of_kernel, of_suite):
        write_files(tmp_path, {**INCLUDING, "kernels/twice/suite.py": text})
        loaded = load(tmp_path / "kernels" / "twice")
        [kernel] = loaded.suite.kernels
        made.append(program(loaded.suite, kernel, loaded.suite.case(kernel, {"n": 64}), "cuda"))
        assert files_outside(loaded.suite) == {tmp_path / "src/ops.cuh", tmp_path / "src/lib/two.h"}
    assert made[0].all_options == made[1].all_options
    assert usage(made[0], "sm_86").registers


def test_each_commit_has_its_own_headers_and_one_that_changed_is_another_program(tmp_path):
    root = make_repository(tmp_path / "project")
    suite = {"kernels/twice/suite.py": SUITE % 'kernel("right", include=("src",)),'}
    commits = [
        commit(root, {**INCLUDING, **suite}, 1),
        commit(root, {"README": "nothing of a kernel"}, 2),
        commit(root, {"src/lib/two.h": "#define TWO 3\n"}, 3),
    ]
    write_files(root, {"src/lib/two.h": "#error of the working tree"})
    found, binaries = [], {}
    for each in commits:
        loaded = load(root / "kernels" / "twice", each)
        [kernel] = loaded.suite.kernels
        made = program(loaded.suite, kernel, loaded.suite.case(kernel, {"n": 64}), "cuda")
        if made.sha256 not in binaries:
            binaries[made.sha256] = nvcc.cubin(made, (*nvcc.STANDARD, *made.all_options), "sm_86")[0]
        code = cubin.code_sha256(binaries[made.sha256])
        found.append((made.sha256, loaded.source.tree_sha256, code))
        assert made.code_sha256 is None
    assert found[0] == found[1]
    assert all(here != before for here, before in zip(found[2], found[1], strict=True))


@pytest.mark.parametrize(
    ("include", "words"),
    [
        ("'src'", "expected a tuple of folders, such as ('src',)"),
        ("('../src',)", "expected a path relative to the project, without '..'"),
        ("('/usr/include',)", "expected a path relative to the project"),
        ("('gone',)", "there is no such folder as"),
        ("('out',)", "out of the project"),
    ],
)
def test_a_folder_outside_of_the_project_is_refused(project, tmp_path, include, words):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (tmp_path / "out").symlink_to(outside)
    kernels = f'kernel("right", include={include}),'
    done = project(kernels, {"right.cu": RIGHT}, "check", "--build-only", "sm_86")
    assert done.status != ExitCode.FINE
    assert words in done.err


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return nvcc's outputs of RIGHT for sm_80, by suffix."""
    folder = tmp_path_factory.mktemp("compiled")
    write_files(folder, {"right.cu": RIGHT})
    command = [str(nvcc.path()), "-fatbin", "-arch=sm_80", "--keep", "-o", "right.fatbin", "right.cu"]
    subprocess.run(command, cwd=folder, check=True)
    (folder / "right.sm_80.cubin").rename(folder / "right.cubin")
    return folder


def prebuilt(compiled, tmp_path, project, name, *, arch="sm_86", given=""):
    (tmp_path / "kernels/twice").mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels/twice" / name).write_bytes((compiled / name).read_bytes())
    kernels = f'kernel("right", {name!r}, {given}),'
    return project(kernels, {}, "check", "--build-only", arch, "--json")


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [("ptx", "built", ""), ("cubin", "not-built", "prebuilt"), ("fatbin", "not-built", "prebuilt")],
)
def test_what_is_compiled_already_is_a_source(compiled, tmp_path, project, name, status, reason):
    [row] = prebuilt(compiled, tmp_path, project, f"right.{name}").json[0]["rows"]
    assert (row["status"], row["reason"], row["entry"]) == (status, reason, "right"), row
    assert bool(row["usage"]) == (name == "ptx")
    loaded = load(tmp_path / "kernels" / "twice")
    [kernel] = loaded.suite.kernels
    assert tuple(kernel.sources) == ("cuda",)
    made = program(loaded.suite, kernel, loaded.suite.case(kernel, {"n": 64}), "cuda")
    # Of its bytes alone.
    assert made.code_sha256
    assert not made.tree_sha256
    file = tmp_path / f"kernels/twice/right.{name}"
    file.write_bytes(file.read_bytes() + b"\n.file 1")
    other = program(loaded.suite, kernel, loaded.suite.case(kernel, {"n": 64}), "cuda")
    assert other.sha256 != made.sha256


@pytest.mark.parametrize(
    ("name", "arch", "given", "words"),
    [
        ("right.ptx", "sm_75", "", "is PTX for sm_80, which sm_75 does not run. Write it anew for sm_75"),
        ("right.ptx", "sm_86", "entry='wrong'", "no kernel function named 'wrong'"),
        ("right.ptx", "sm_86", "args=('x', 'n', 'y')", "The first that differs is number 2"),
        ("right.cubin", "sm_90", "", "is a binary for sm_80, which sm_90 does not run"),
        ("right.cubin", "sm_86", "entry='wrong'", "no kernel function named 'wrong'"),
        ("right.cubin", "sm_86", "args=('x', 'n', 'y')", "The first that differs is number 2"),
    ],
)
def test_a_mistake_about_what_is_compiled_already_is_found(
    compiled, tmp_path, project, name, arch, given, words
):
    done = prebuilt(compiled, tmp_path, project, name, arch=arch, given=given)
    [row] = done.json[0]["rows"]
    assert (done.status, row["status"]) == (ExitCode.NOT_MEASURED, "failed")
    assert words in row["message"]


def test_ptx_of_sm_90a_is_for_that_alone():
    with scratch_folder() as folder:
        (folder / "k.cu").write_text(FEATURE, encoding="utf-8")
        command = [str(nvcc.path()), "-ptx", "-arch=sm_90a", "-o", "k.ptx", "k.cu"]
        subprocess.run(command, cwd=folder, check=True)
        made = Program("t.k", "k", (folder / "k.ptx").read_text(encoding="utf-8"), suffix=".ptx")
    assert cubin.built_for(nvcc.cubin(made, nvcc.STANDARD, "sm_90")[0]) == "sm_90a"
    with pytest.raises(BuildError, match="is PTX for sm_90a, which sm_100 does not run"):
        nvcc.cubin(made, nvcc.STANDARD, "sm_100")


LIBRARY = 'extern "C" int right(void *stream, const float *x, float *y, int n) { return 0; }'


def test_a_library_is_a_source(tmp_path, project):
    write_files(tmp_path, {"kernels/twice/right.cpp": LIBRARY})
    command = ["c++", "-shared", "-fPIC", "-o", "right.so", "right.cpp"]
    subprocess.run(command, cwd=tmp_path / "kernels/twice", check=True)
    kernels = 'kernel("right", HostLibrary("right.so")), kernel("wrong", HostLibrary("right.so")),'
    kernels += 'kernel("source", HostLibrary("source.cu"), entry="right"),'
    _, rows = built(project, kernels, {"source.cu": LIBRARY})
    told = [(row["status"], row["built_for"]) for row in rows]
    assert told == [("built", ""), ("failed", ""), ("built", "sm_86")]
    assert "its library has no function 'wrong'" in rows[1]["message"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("'k.so'", "expected HostLibrary('k.so')"),
        ("'k.ptx', instantiate='k<1>'", "which is compiled already: name the function by entry"),
        ("'k.cu', instantiate='k<1>', entry='k'", "an entry and a template to instantiate"),
        ("'k.cu', instantiate='<1>'", "expected a function's name and template arguments"),
        ("'k.cu', arch='ampere'", "expected the form 'sm_90a'"),
    ],
)
def test_a_kernel_that_makes_no_sense_is_refused(project, given, words):
    done = project(f'kernel("k", {given}),', {}, "list")
    assert (done.status, words in done.err) == (ExitCode.USAGE, True), done.err


@pytest.fixture
def asked(monkeypatch, own_cache):
    """A list with an entry for each time that a worker was asked for builds."""
    found, ask = [], build_only._asked

    def noted(*given):
        found.append(given)
        return ask(*given)

    monkeypatch.setattr(build_only, "_asked", noted)
    return found


GENERATOR = """\
from pathlib import Path
from harness import Generated

def text(case, arch):
    return Path(__file__).with_name("right.txt").read_text()
"""


def test_builds_are_kept_until_a_file_of_the_suite_or_a_package_changes(project, asked, monkeypatch):
    """A file that a function makes a source of is one of the suite's too."""
    kernels = 'kernel("right", __import__("own").Generated(__import__("own").text)),'

    def shared_bytes(text):
        status, [row] = built(project, kernels, {"right.txt": text, "own.py": GENERATOR})
        assert status == ExitCode.FINE
        return row["usage"]["shared_bytes"]

    shared = RIGHT.replace("{ int", "{ __shared__ volatile int s[8]; s[0] = n; int")
    assert [shared_bytes(text) for text in (RIGHT, shared, RIGHT, shared)] == [0, 32, 0, 32]
    assert len(asked) == 2
    monkeypatch.setattr(build_only, "_installed", lambda: "another package")
    assert (shared_bytes(RIGHT), len(asked)) == (0, 3)


def test_builds_that_rest_on_more_than_the_suites_tree_are_asked_for_again(project, asked, tmp_path):
    (folder := tmp_path / "elsewhere").mkdir()
    header = folder / "two.h"
    kernels = f'kernel("right", options={{"cuda": ("-I{folder}",)}}),'
    text = "#include <two.h>\n" + RIGHT.replace("2 *", "TWO *")
    header.write_text("#define TWO 2")
    for calls in (1, 1):
        assert built(project, kernels, {"right.cu": text})[0] == ExitCode.FINE
        assert len(asked) == calls
    header.write_text("#define TOO 2")
    for calls in (2, 3):  # what failed is not kept
        assert built(project, kernels, {"right.cu": text})[0] == ExitCode.NOT_MEASURED
        assert len(asked) == calls


def test_builds_of_a_suite_that_reads_beside_its_folder_are_not_kept(project, asked, tmp_path):
    make_repository(tmp_path)
    (tmp_path / "beside.txt").write_text("4")
    read = 'int(open(__import__("os").path.dirname(__file__) + "/../../beside.txt").read())'
    for calls in (1, 2):
        assert built(project, f'kernel("right", macros={{"N": {read}}}),', {"right.cu": RIGHT})[0] == 0
        assert len(asked) == calls
