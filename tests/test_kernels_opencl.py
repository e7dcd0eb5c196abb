"""The kernels of this project on a real OpenCL device: right at awkward sizes, and found out when broken."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager

import pytest

from harness.errors import DeviceError
from harness.measure import protocol
from harness.measure.timing import MeasureSettings
from harness.measure.worker import Worker
from harness.records.types import Row
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load_folder
from harness.suite.planning import PlannedCase
from tests.mutations import MUTATIONS, TENSOR, broken_suite
from tests.pairs import opened_worker
from tests.support import KERNELS, MATMUL_SIZES, Recorder, device_is_missing

DEVICE = "opencl:0"
MATRIX_SIZES = [(1, 1), (32, 32), (1, 513), (257, 1), (127, 65), (68, 132)]

CASES = [
    pytest.param(name, kernel.name, size, id=f"{name}.{kernel.name}-{'x'.join(map(str, size))}")
    for name, sizes in (("matmul", MATMUL_SIZES), ("copy", MATRIX_SIZES), ("transpose", MATRIX_SIZES))
    for kernel in load_folder(KERNELS / name).kernels
    if "opencl" in kernel.sources
    for size in sizes
]


@contextmanager
def workers_in(scratch):
    """Workers in this process by the suite's name: a process each would be most of the time."""
    opened: dict[str, Worker] = {}

    def worker_of(suite):
        if suite not in opened:
            request = protocol.Open(device=DEVICE, suite=str(KERNELS / suite), scratch=str(scratch))
            try:
                opened[suite] = opened_worker(request)
            except DeviceError as error:
                device_is_missing(DEVICE, error.message)
        return opened[suite]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(scratch / "cache"))
        yield worker_of
    for worker in opened.values():
        worker.device.close()


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    with workers_in(tmp_path_factory.mktemp("opencl")) as worker_of:
        yield worker_of


@pytest.mark.parametrize(("suite", "kernel", "size"), CASES)
def test_a_kernel_is_right(workers, suite, kernel, size):
    worker = workers(suite)
    sizes = dict(zip(worker.suite.problem.axes, size, strict=True))
    row = worker.run(protocol.Measure(kernel=kernel, sizes=sizes, seed=1, settings=None))
    assert (row.status, row.message) == ("verified", "")
    assert row.verification.passed
    assert {check.data for check in row.verification.checks} >= {"random"}
    assert row.source_sha256
    assert row.resources.binary_sha256


def test_the_exact_check_comes_before_the_random_one(workers):
    worker = workers("matmul")
    request = protocol.Measure(kernel="naive", sizes={"m": 8, "n": 8, "k": 8}, seed=1, settings=None)
    checks = worker.run(request).verification.checks
    assert [check.data for check in checks] == ["integers", "random"]
    assert checks[0].largest_error == 0


def test_every_mutation_still_fits_its_kernel():
    for mutation in [*MUTATIONS, *TENSOR]:
        source = (KERNELS / mutation.suite / f"{mutation.kernel}.cu").read_text(encoding="utf-8")
        assert mutation.apply(source) != source, mutation


SIDES = {"first", "second", "row", "column", "a", "b"}


def size_of_source(mutation):
    return (KERNELS / mutation.suite / f"{mutation.kernel}.cu").stat().st_size


BROKEN = [
    *{
        frozenset({*mutation.what.split()} - SIDES): mutation
        for mutation in sorted(MUTATIONS, key=size_of_source, reverse=True)
    }.values()
]
"""A mutation of each kind, in the shortest kernel with that kind. Each takes a process and a compilation, and
its detection does not depend on the kernel.
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """What became of these mutations, by name, in a run that would have timed those that pass."""
    rows: dict[str, Row] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        for name in dict.fromkeys(mutation.suite for mutation in BROKEN):
            mutations = [mutation for mutation in BROKEN if mutation.suite == name]
            loaded, cases = broken_suite(name, mutations, tmp_path_factory.mktemp(name))
            kernel = loaded.suite.kernels[0]
            control = dataclasses.replace(cases[0].case, kernel=kernel.name)
            settings = SessionSettings(device=DEVICE, measure=MeasureSettings(max_time_s=0.1), timeout_s=60)
            try:
                with Session(loaded, settings, Recorder()) as session:
                    result = session.run([PlannedCase(kernel, control), *cases])
            except DeviceError as error:
                device_is_missing(DEVICE, error.message)
            control_row, *mutated = result.rows
            assert control_row.status == "measured", control_row.message
            rows |= {row.kernel: row for row in mutated}
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("mutation", BROKEN, ids=str)
def test_a_broken_kernel_is_found_out_and_never_timed(broken, mutation):
    row = broken[mutation.name]
    assert row.status == "failed"
    assert row.reason in ("wrong-result", "crashed")
    assert row.message
    assert row.measurement is None
    assert row.telemetry is None
