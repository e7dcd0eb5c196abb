"""Vendors' kernels on a real card: right at any size, and a ruler that reads one against itself.

Run with `pytest -m gpu`; $HARNESS_DEVICE names the card. What is not installed is skipped with its sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from harness.errors import DeviceError
from harness.measure.timing import MeasureSettings
from harness.records.types import DeviceInfo, Row
from harness.run.device_session import find_device, unfit
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load
from harness.suite.planning import PlannedCase
from tests.support import GPU, KERNELS, Recorder, device_is_missing

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

QUICK = MeasureSettings(max_time_s=0.5)
SIZES = [(127, 65, 33), (1, 1, 1), (1, 513, 1), (512, 512, 512), (1000, 504, 72), (8, 8, 8), (136, 8, 264)]
"""Multiples of 8, which is what the fast loads of 16-bit types want, and others."""
NAMES = ["cublas", "cublas_tf32", "cublas_f16", "cublas_bf16", "cutlass", "cutlass_f16"]


@cache
def card() -> DeviceInfo | str:
    """The card, or why there is none."""
    try:
        return find_device(GPU)
    except DeviceError as error:
        return str(error)


def rows_of(
    names: Sequence[str], sizes: Sequence[tuple[int, ...]], measure: MeasureSettings | None = None
) -> list[Row]:
    """The rows of a run of these kernels of the first suite. Skips where one cannot run there."""
    device = card()
    if isinstance(device, str):
        device_is_missing(GPU, device)
    loaded = load(KERNELS / "matmul")
    cases = [
        PlannedCase(kernel, loaded.suite.case(kernel, dict(zip("mnk", size, strict=True))))
        for kernel in (loaded.suite.by_name[name] for name in names)
        for size in sizes
    ]
    for case in cases:
        if refused := unfit(case, device):
            pytest.skip(refused.message)
    settings = SessionSettings(device=GPU, measure=measure, timeout_s=600.0)
    with Session(loaded, settings, Recorder()) as session:
        rows = session.run(cases).rows
    wrong = [(row.case, row.reason, row.message, row.log) for row in rows if row.status == "failed"]
    assert not wrong
    return list(rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_librarys_kernel_is_right_at_any_size(name):
    rows = rows_of([name], SIZES)
    assert [row.status for row in rows] == ["verified"] * len(SIZES)
    checked = [check.data for row in rows if row.verification for check in row.verification.checks]
    assert checked == ["integers", "random"] * len(SIZES)


LONG = [(33, 31, 100_003), (16, 16, 1_000_003)]


@pytest.mark.parametrize("name", [*NAMES, "wmma", "wmma_warp_tiling", "shared_tile"])
def test_a_long_sum_is_right(name):
    """Tensor cores cut their sums off: the error grows faster than k."""
    for row in rows_of([name], LONG):
        assert row.status == "verified"
        assert row.verification is not None
        ratio = row.verification.checks[-1].largest_ratio
        assert ratio is not None
        assert ratio < 0.8


@pytest.mark.parametrize("name", ["cublas", "cublas_tf32", "cublas_f16", "cublas_bf16"])
def test_a_library_held_against_itself_is_as_fast(name):
    rows = rows_of([name], [(1024,) * 3, (2048,) * 3], QUICK)
    for row in rows:
        assert row.library_missing == ""
        assert row.library is not None
        assert row.library.kernel == name
        assert row.library.quads >= 5
        assert row.library.low is not None
        assert row.library.low < 1.01, row.library
        assert (row.library.high or 0) > 0.99, row.library
        assert row.library.share == pytest.approx(1.0, abs=0.1)


def test_the_share_is_that_of_the_rows_own_figures():
    """Apart they were measured seconds after one another: near, and no nearer than the clock allows."""
    rows = {row.kernel: row for row in rows_of(["cublas", "shared_tile", "cutlass"], [(2048,) * 3], QUICK)}
    own = {name: row.measurement for name, row in rows.items()}
    library = own.pop("cublas")
    assert library is not None
    for name, measurement in own.items():
        share = rows[name].library
        assert share is not None
        assert measurement is not None
        apart = min(library.times_ns) / min(measurement.times_ns)
        assert share.share == pytest.approx(apart, rel=0.1)


def test_a_naive_kernel_is_far_behind_and_the_library_costs_it_little():
    row, _ = rows_of(["naive_coalesced", "cublas"], [(2048,) * 3], QUICK)
    assert row.library is not None
    assert row.library.share < 0.5
    assert row.library.library_time_ns > 0


def test_tensor_cores_are_held_against_the_library_of_their_type():
    row, _ = rows_of(["wmma_warp_tiling", "cublas_f16"], [(2048,) * 3], QUICK)
    assert row.library is not None
    assert row.library.kernel == "cublas_f16"
    assert row.library.share < 1
