"""The host's own processor: its kernels are right, and what goes wrong in them is a row."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from harness.device.backends import cpu
from harness.device.telemetry import probe_for
from harness.errors import BuildError, HarnessError, SuiteError
from harness.measure import protocol
from harness.measure.timing import MeasureSettings
from harness.records.types import Launch
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load, load_folder
from harness.suite.planning import divided, plan
from harness.suite.sources import Program
from tests import toy
from tests.pairs import opened_worker
from tests.support import KERNELS, MATMUL_SIZES, ROOT, Recorder, run_command, statuses, write_files

ANY_LAUNCH = Launch(grid=(1, 1, 1), block=(1, 1, 1))

SUITE = (
    toy.TWICE
    + """\
def right(case, stream):
    def call(x, y, n):
        assert (stream, x.shape, y.dtype.name, n) == (0, (case.n,), "float32", case.n)
        y[:] = 2 * x

    return call


def unmade(case, stream):
    raise ValueError("no such table")


def failing(case, stream):
    return lambda x, y, n: 1 / (n - case.n)


def wrong(case, stream):
    def call(x, y, n):
        y[:] = 3 * x

    return call


suite = Suite(
    "host",
    Twice(),
    headline="GB/s",
    kernels=[
        Kernel("right", {"cpu": HostFunction(right)}),
        Kernel("wrong", {"cpu": HostFunction(wrong)}),
        Kernel("unmade", {"cpu": HostFunction(unmade)}),
        Kernel("failing", {"cpu": HostFunction(failing)}),
        Kernel("absent", {"cpu": HostFunction(right, needs=("a-package-that-nobody-has>=1",))}),
        Kernel("for_a_card", "card.cu", block=32, grid=2),
    ],
)
"""
)


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    request = protocol.Open(
        device="cpu:0", suite=str(KERNELS / "matmul"), scratch=str(tmp_path_factory.mktemp("cpu"))
    )
    return opened_worker(request)


@pytest.mark.parametrize("kernel", ["cpu_loop", "cpu_blas"])
@pytest.mark.parametrize("size", MATMUL_SIZES, ids=lambda size: "x".join(map(str, size)))
def test_a_kernel_of_the_host_is_right(worker, kernel, size):
    if kernel == "cpu_loop":
        pytest.importorskip("numba")
    sizes = dict(zip("mnk", size, strict=True))
    row = worker.run(protocol.Measure(kernel=kernel, sizes=sizes, seed=1, settings=None))
    assert (row.status, row.message) == ("verified", "")
    assert {check.data for check in row.verification.checks} >= {"random"}


def test_parts_mean_nothing_to_the_host(worker):
    sizes = {"m": 64, "n": 64, "k": 64}
    request = protocol.Measure(kernel="cpu_blas", sizes=sizes, seed=1, settings=None, max_launch_ms=1e-9)
    row = worker.run(request)
    assert (row.status, row.launch.dispatch) == ("verified", None)


def run_suite(tmp_path):
    loaded_from = write_files(tmp_path / "host", {"suite.py": SUITE, "card.cu": "// none\n"})
    shutil.copytree(KERNELS / "portable", tmp_path / "portable")
    suite = load_folder(loaded_from)
    quick = MeasureSettings(max_time_s=0.05, min_time_s=0.01, warmup_min_s=0.001, warmup_max_s=0.01)
    return suite, SessionSettings(device="cpu:0", measure=quick, timeout_s=60)


def test_what_goes_wrong_costs_its_own_row(tmp_path):
    suite, settings = run_suite(tmp_path)
    with Session(load(suite.root), settings, Recorder()) as session:
        cases, others = divided(plan(suite), (), session.device)
        rows = session.run(cases).rows
    assert statuses(rows) == [
        ("right", "measured", ""),
        ("wrong", "failed", "wrong-result"),
        ("unmade", "failed", "build-failed"),
        ("failing", "failed", "kernel-fault"),
        ("absent", "skipped", "needs-package"),
    ]
    assert others == {"cuda or opencl": ["for_a_card"]}
    messages = {row.kernel: row.message for row in rows}
    assert "host.unmade could not be made: ValueError: no such table" in messages["unmade"]
    assert "host.failing raised ZeroDivisionError" in messages["failing"]
    assert "a-package-that-nobody-has" in messages["absent"]
    assert "pip install" in messages["absent"]
    assert rows[0].measurement
    assert rows[0].measurement.clock == "host"


def test_without_numba_the_loop_needs_a_package(tmp_path):
    """Hide numba from a Python that has everything else."""
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text(
        "from importlib import metadata\n"
        "found = metadata.version\n"
        "def version(name):\n"
        "    if name == 'numba':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "metadata.version = version\n",
        encoding="utf-8",
    )
    arguments = ("check", "--device", "cpu", "--size", "16", "cpu_loop", "cpu_blas")
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "HARNESS_CACHE_DIR": str(tmp_path)}
    done = run_command(*arguments, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert "needs-package" in done.stdout
    assert "cpu_loop needs the package numba" in done.stderr
    assert "verified" in done.stdout


def test_an_array_begins_where_vector_units_like_it():
    device = cpu.open_device(0)
    for size_bytes in (1, 100, 2**20 + 3):
        memory = device.allocate(size_bytes)
        assert memory.nbytes == size_bytes
        assert memory.ctypes.data % 256 == 0
        device.release(memory)


def test_a_program_for_a_card_is_a_build_error():
    with pytest.raises(BuildError, match="is no function of the host"):
        cpu.open_device(0).build(Program("t", "t", "__global__ void t() {}"))


def test_arguments_arrive_as_what_the_parameters_say(worker):
    device, suite = worker.device, worker.suite
    kernel = suite.by_name["cpu_blas"]
    case = suite.case(kernel, {"m": 2, "n": 3, "k": 4})
    seen = []

    def make(stream):
        return lambda *arguments: seen.extend(arguments)

    made = Program("t", "t", "", kind="host", host=make, parameters=suite.parameters(kernel, case))
    memory = device.allocate(4 * 24)
    views = [device.view(memory, 0, 4 * elements) for elements in (8, 12, 6)]
    scalars = [np.int32(value) for value in (2, 3, 4)]
    device.launch(device.build(made), ANY_LAUNCH, [*views, *scalars])
    assert [argument.shape for argument in seen[:3]] == [(2, 4), (4, 3), (2, 3)]
    assert {str(argument.dtype) for argument in seen[:3]} == {"float32"}
    assert seen[3:] == [2, 3, 4]
    assert {type(argument) for argument in seen[3:]} == {int}


def test_an_error_in_a_call_is_an_error_of_the_harness():
    device = cpu.open_device(0)

    def make(stream):
        def call():
            raise RuntimeError("the kernel gave up")

        return call

    built = device.build(Program("s.k", "k", "", kind="host", host=make))
    with pytest.raises(HarnessError, match=r"s\.k raised RuntimeError: the kernel gave up") as caught:
        device.launch(built, ANY_LAUNCH, [])
    assert caught.value.reason == "kernel-fault"


def test_an_error_of_the_harness_in_a_function_of_the_host_stays_what_it_is():
    device = cpu.open_device(0)

    def refuse(*_):
        raise SuiteError("There is no table for this size.")

    with pytest.raises(SuiteError, match=r"^There is no table"):
        device.build(Program("s.k", "k", "", kind="host", host=refuse))
    built = device.build(Program("s.k", "k", "", kind="host", host=lambda stream: refuse))
    with pytest.raises(SuiteError, match=r"^There is no table"):
        device.launch(built, ANY_LAUNCH, [])


def test_the_host_is_watched_meanwhile():
    probe = probe_for(cpu.devices()[0])
    try:
        assert probe.name == "host"
    finally:
        probe.close()
