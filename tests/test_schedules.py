"""TVM's schedules of the matrix product: right on the host's processor, and as CUDA text without a card."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from typing import cast

import numpy as np
import pytest

from harness.device.backends import cpu
from harness.device.backends.base import check_launch
from harness.errors import BuildError, LaunchError
from harness.measure import protocol
from harness.run.sweep.rules import Rules
from harness.suite.configurations import configurations
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of
from harness.suite.sources import lacking, program
from harness.suite.tuning import Tuning
from tests.pairs import opened_worker
from tests.support import IMPORT_PATH, KERNELS, MATMUL_SIZES, ROOT, caller

MATMUL = load_folder(KERNELS / "matmul")
PLAIN, SCHEDULE = (MATMUL.by_name[name] for name in ("schedule_plain", "schedule"))
TUNE = cast("Tuning", SCHEDULE.tune)
PATTERNS = ("standard", "k_after_threads", "k_innermost")
ARCH = "sm_90"

SEEDS_BLOCK_TILES = ((32, 32, 32), (32, 64, 32), (64, 32, 32), (64, 64, 32), (64, 64, 64))
SEEDS_THREAD_TILES = ((2, 2), (4, 4), (4, 8), (8, 4), (8, 8))
"""As the author lists them."""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def tvm():
    return pytest.importorskip("tvm")


@pytest.fixture(scope="module")
def worker(tvm, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("cpu")
    request = protocol.Open(device="cpu:0", suite=str(KERNELS / "matmul"), scratch=str(scratch))
    return opened_worker(request)


def sized(*size):
    return dict(zip(MATMUL.problem.axes, size * 3 if len(size) == 1 else size, strict=True))


def case_of(kernel, size, **macros):
    return MATMUL.case(kernel, sized(*size), macros)


def text_of(kernel, size, **macros):
    return program(MATMUL, kernel, case_of(kernel, size, **macros), "cuda", ARCH).text


def test_there_are_150_configurations_and_138_without_those_of_1024_threads():
    pairs = [(block, thread) for block in SEEDS_BLOCK_TILES for thread in SEEDS_THREAD_TILES]
    listed = [tuple(each.values()) for each in TUNE.configurations]
    assert listed == [(*block, *thread, pattern) for block, thread in pairs for pattern in PATTERNS]
    assert all(tuple(each) == ("BM", "BN", "BK", "TM", "TN", "PATTERN") for each in TUNE.configurations)
    assert TUNE.sizes == (512, 1024)
    assert len(listed) * len(TUNE.sizes) == 150
    few = [pair for pair in pairs if pair[0][0] // pair[1][0] * (pair[0][1] // pair[1][1]) < 1024]
    assert len(few) * len(PATTERNS) * len(TUNE.sizes) == 138


def test_no_configuration_of_the_authors_breaks_a_rule():
    rules = Rules(MATMUL, SCHEDULE, TUNE, cpu.devices()[0])
    sizes = [sized(size) for size in TUNE.sizes]
    found = configurations(MATMUL, SCHEDULE, TUNE, sizes)
    assert [rules.rejected(each) for each in found] == [None] * 150


@pytest.mark.parametrize(
    ("size", "broken"),
    [
        ((48, 512, 512), "m % BM == 0 does not hold: m = 48, BM = 32."),
        ((512, 300, 512), "n % BN == 0 does not hold: n = 300, BN = 32."),
        ((512, 512, 33), "k % BK == 0 does not hold: k = 33, BK = 32."),
    ],
)
def test_tiles_that_do_not_divide_the_matrix_are_no_configuration_of_a_sweep(size, broken):
    rules = Rules(MATMUL, SCHEDULE, TUNE, cpu.devices()[0])
    first = configurations(MATMUL, SCHEDULE, TUNE, [sized(*size)])[0]
    row = rules.rejected(first)
    assert row is not None
    assert (row.status, row.reason, row.message) == ("rejected", "rule", broken)


@pytest.mark.parametrize(
    ("tiles", "broken"),
    [
        (
            (64, 64, 32, 2, 1),
            "(BM // TM) * (BN // TN) <= 1024 does not hold: BM = 64, TM = 2, BN = 64, TN = 1.",
        ),
        ((32, 32, 32, 5, 4), "BM % TM == 0 does not hold: BM = 32, TM = 5."),
        ((32, 32, 32, 8, 64), "BN % TN == 0 does not hold: BN = 32, TN = 64."),
    ],
)
def test_threads_that_no_block_has_are_rejected_by_rule(tiles, broken):
    one = dict(zip(("BM", "BN", "BK", "TM", "TN"), tiles, strict=True))
    tuning = Tuning(configurations=[{**one, "PATTERN": "standard"}], rules=TUNE.rules)
    (configuration,) = configurations(MATMUL, SCHEDULE, tuning, [sized(512)])
    row = Rules(MATMUL, SCHEDULE, tuning, cpu.devices()[0]).rejected(configuration)
    assert row is not None
    assert row.message == broken


@pytest.mark.parametrize(
    ("kernel", "macros", "size"),
    [
        ("schedule_plain", {}, (127, 65, 33)),
        *(("schedule", {"PATTERN": PATTERNS[0]}, size) for size in MATMUL_SIZES),
        *(("schedule", {"PATTERN": pattern}, (127, 65, 33)) for pattern in PATTERNS[1:]),
    ],
    ids=str,
)
def test_a_schedule_is_right_on_the_hosts_processor(worker, kernel, macros, size):
    request = protocol.Measure(kernel=kernel, sizes=sized(*size), seed=1, settings=None, macros=macros)
    row = worker.run(request)
    assert (row.status, row.message) == ("verified", "")
    assert {check.data for check in row.verification.checks} >= {"random"}


@pytest.mark.parametrize("tiles", [(64, 32, 32, 2, 2), (32, 64, 32, 4, 8), (64, 64, 64, 8, 8)], ids=str)
def test_other_tiles_are_right_too(worker, tiles):
    macros = {**dict(zip(("BM", "BN", "BK", "TM", "TN"), tiles, strict=True)), "PATTERN": "standard"}
    request = protocol.Measure(
        kernel="schedule", sizes=sized(100, 60, 70), seed=1, settings=None, macros=macros
    )
    assert worker.run(request).status == "verified"


def test_arrays_reach_the_hosts_code_without_a_copy(tvm):
    host = program(MATMUL, SCHEDULE, case_of(SCHEDULE, (64,)), "cpu").host
    assert host is not None
    device = cpu.open_device(0)
    a, b, c = (device.allocate(4 * 64 * 64).view("float32").reshape(64, 64) for _ in range(3))
    a[:], b[:], c[:] = 1.0, 2.0, np.nan
    host(0)(a, b, c)
    assert (c == 128.0).all()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_function_has_the_name_and_the_threads_that_the_suite_launches(tvm, pattern):
    case = case_of(SCHEDULE, (512,), PATTERN=pattern)
    text = program(MATMUL, SCHEDULE, case, "cuda", ARCH).text
    block = launch_of(SCHEDULE, case).block
    assert block == (4, 8, 1)
    assert f'extern "C" __global__ void __launch_bounds__(32) {SCHEDULE.function}(' in text
    assert re.findall(r"float\* __restrict__ (\w)_ptr", text) == ["a", "b", "c"] * 2


def test_only_the_order_of_the_loops_over_k_tells_the_patterns_apart(tvm):
    loops = {
        pattern: re.findall(r"for \(int (\w+) = 0", text_of(SCHEDULE, (512,), PATTERN=pattern))
        for pattern in PATTERNS
    }
    assert loops["standard"] == ["k_0", "k_1", "i_2", "j_2"]
    assert loops["k_innermost"] == ["k_0", "i_2", "j_2", "k_1"]
    texts = {pattern: text_of(SCHEDULE, (512,), PATTERN=pattern) for pattern in PATTERNS}
    assert texts["standard"] == texts["k_after_threads"] != texts["k_innermost"]


def test_a_matrix_too_large_for_32_bits_gets_64_bit_offsets(tvm):
    assert "int64_t k_0" not in text_of(SCHEDULE, (46336,))
    assert "int64_t k_0" in text_of(SCHEDULE, (46368,))


GENERATE = """\
import sys
from pathlib import Path
from harness.suite.loader import load_folder
suite = load_folder(Path(sys.argv[1]))
kernel = suite.by_name["schedule"]
case = suite.case(kernel, {"m": 500, "n": 300, "k": 700})
kernel.sources["cpu"].function(case, 0)
Path(sys.argv[2]).write_text(kernel.sources["cuda"].function(case, "sm_90"), encoding="utf-8")
"""


def test_every_process_writes_the_same_text_and_says_nothing(tvm, tmp_path):
    written = tmp_path / "schedule.cu"
    done = subprocess.run(
        [sys.executable, "-c", GENERATE, str(KERNELS / "matmul"), str(written)],
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert written.read_text(encoding="utf-8") == text_of(SCHEDULE, (500, 300, 700))


ONE_THREAD_AT_A_TIME = """
#include <cstdint>
#define __global__
#define __launch_bounds__(threads)
static struct {{ int x, y; }} blockIdx, threadIdx;
{kernel}
extern "C" void launch(float *a, float *b, float *c) {{
    for (blockIdx.x = 0; blockIdx.x < {grid[0]}; ++blockIdx.x)
    for (blockIdx.y = 0; blockIdx.y < {grid[1]}; ++blockIdx.y)
    for (threadIdx.x = 0; threadIdx.x < {block[0]}; ++threadIdx.x)
    for (threadIdx.y = 0; threadIdx.y < {block[1]}; ++threadIdx.y)
        schedule_kernel(a, b, c);
}}
"""


def run_on_the_host(kernel, case, folder, a, b):
    """The product that the CUDA text computes, thread by thread, under the suite's own grid and block."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    text = program(MATMUL, kernel, case, "cuda", ARCH).text
    launch = launch_of(kernel, case)
    source, made = folder / "schedule.cpp", folder / "schedule.so"
    source.write_text(
        ONE_THREAD_AT_A_TIME.format(
            kernel=text[text.index('extern "C"') :], grid=launch.grid, block=launch.block
        )
    )
    subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", "-o", made, source], check=True)
    c = np.full((case.m, case.n), np.nan, "float32")
    ctypes.CDLL(str(made)).launch(*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, c)))
    return c


@pytest.mark.parametrize("size", [(127, 65, 33), (3, 1100, 5)], ids=str)
@pytest.mark.parametrize(
    ("kernel", "macros"),
    [
        pytest.param(PLAIN, {}, id="plain"),
        pytest.param(SCHEDULE, {"PATTERN": "standard"}, id="standard"),
        pytest.param(SCHEDULE, {"BM": 64, "BN": 32, "TM": 8, "TN": 2}, id="64x32-8x2"),
    ],
)
def test_the_cuda_text_is_right_under_the_suites_grid_and_block(tvm, tmp_path, kernel, macros, size):
    case = case_of(kernel, size, **macros)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype("float32") for shape in ((case.m, case.k), (case.k, case.n)))
    assert np.array_equal(run_on_the_host(kernel, case, tmp_path, a, b), a @ b)


def compiled(text, folder):
    """PTX, as nvcc makes it with the options that the backend gives it."""
    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc")
    source, made = folder / "schedule.cu", folder / "schedule.ptx"
    source.write_text(text, encoding="utf-8")
    command = ["nvcc", "-ptx", f"-arch={ARCH}", "-std=c++17", "-o", made, source]
    subprocess.run(command, check=True, capture_output=True)
    return made.read_text(encoding="utf-8")


def test_only_k_innermost_keeps_the_element_in_a_register(tvm, tmp_path):
    stores = {}
    for pattern in ("standard", "k_innermost"):
        ptx = compiled(text_of(SCHEDULE, (512,), PATTERN=pattern), tmp_path)
        stores[pattern] = ptx.count("st.global") / ptx.count("fma.rn.f32")
    assert stores["standard"] >= 1
    assert stores["k_innermost"] < 0.25


@pytest.mark.parametrize(
    ("macros", "message"),
    [
        (
            {"PATTERN": "k_first"},
            "PATTERN is k_first; expected one of standard, k_after_threads, k_innermost.",
        ),
        ({"TM": 5}, "A thread tile of 5x4 does not divide a block tile of 32x32."),
        ({"TN": 64}, "A thread tile of 8x64 does not divide a block tile of 32x32."),
    ],
)
def test_a_schedule_that_is_none_is_refused_on_either_side(tvm, macros, message):
    case = case_of(SCHEDULE, (64,), **macros)
    with pytest.raises(BuildError, match="could not be generated") as generated:
        program(MATMUL, SCHEDULE, case, "cuda", ARCH)
    assert generated.value.message.endswith(message)
    with pytest.raises(BuildError, match="could not be made") as made:
        cpu.open_device(0).build(program(MATMUL, SCHEDULE, case, "cpu"))
    assert made.value.message.endswith(message)


def test_an_interface_that_tvm_no_longer_has_is_named(tvm, monkeypatch):
    monkeypatch.delattr(tvm, "s_tir")
    with pytest.raises(BuildError, match=r"could not be generated: AttributeError: .*'s_tir'"):
        text_of(SCHEDULE, (96,))


def version_of_tvm(monkeypatch, found):
    """Let TVM be installed in this version, or not at all."""
    real = metadata.version

    def version(name):
        if name != "apache-tvm":
            return real(name)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("0.27.0", ""),
        ("0.27.0.post1", ""),
        ("0.26.1", "schedule needs apache-tvm<0.28,>=0.27; installed is 0.26.1: "),
        ("0.28.0", "schedule needs apache-tvm<0.28,>=0.27; installed is 0.28.0: "),
        (None, "schedule needs the package apache-tvm, which is not installed: "),
    ],
)
def test_another_version_of_tvm_or_none_is_told_with_what_to_do(monkeypatch, found, told):
    version_of_tvm(monkeypatch, found)
    for backend in ("cuda", "cpu"):
        assert lacking(SCHEDULE, backend) == (told and f"{told}pip install 'apache-tvm<0.28,>=0.27'.")


def test_without_tvm_the_row_says_that_it_needs_the_package(monkeypatch, capsys):
    version_of_tvm(monkeypatch, None)
    call = caller(capsys, monkeypatch)
    done = call("check", "--device", "cpu:0", "--size", "8", "--json", "matmul.schedule", cwd=ROOT)
    row = done.json[0]["rows"][0]["row"]
    assert (row["status"], row["reason"]) == ("skipped", "needs-package")
    assert "pip install" in row["message"]


def test_the_null_device_takes_a_schedule_without_tvm(monkeypatch):
    version_of_tvm(monkeypatch, None)
    monkeypatch.setitem(sys.modules, "tvm", None)
    assert program(MATMUL, SCHEDULE, case_of(SCHEDULE, (64,)), "null", "null").kind == "host"


def test_a_grid_of_two_dimensions_ends_at_65535_blocks_and_says_so(worker):
    widest = 32 * 65535
    assert launch_of(SCHEDULE, case_of(SCHEDULE, (32, widest, 1))).grid == (1, 65535, 1)
    card = dataclasses.replace(worker.device.info, name="card", max_grid=(2**31 - 1, 65535, 65535))
    with pytest.raises(LaunchError, match="Grid 1x65536x1 exceeds card's largest grid"):
        check_launch(launch_of(SCHEDULE, case_of(SCHEDULE, (32, widest + 1, 1))), card)
