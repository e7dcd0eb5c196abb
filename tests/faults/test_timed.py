"""A verified kernel is also right while it is timed, and an impossible rate is no result."""

from __future__ import annotations

import dataclasses

import pytest

from harness.device.backends import null
from harness.device.peaks import BeyondPeakError, check_rates
from harness.errors import ExitCode
from harness.history.row_summary import summary_of
from harness.measure import protocol
from harness.measure.quads import PairSettings
from harness.measure.timing import MeasureSettings
from harness.report.terminal.run_tables import run_tables
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load
from harness.suite.planning import plan
from harness.suite.problem import Axis, Case, Input, Output, Problem
from tests import toy
from tests.pairs import opened_worker
from tests.support import Recorder, write_files
from tests.test_compare import Watching

pytestmark = pytest.mark.fault

MIB = 2**20
CARD = dataclasses.replace(null.devices()[0], name="A Card", l2_bytes=MIB)
QUICK = PairSettings(min_quads=5, max_quads=5, warmup_min_s=0, warmup_max_s=0, lead_in_s=0.005)


class Sum(Problem):
    n = Axis((2**20,))
    x = Input("n")
    y = Output("n")

    def flop(self, case):
        return 2**20


CASE = Case("toy", "one", {"n": 2**20})
MS = 1e6


@pytest.mark.parametrize(
    ("l2", "l2_bytes", "peaks", "told"),
    [
        # 4 MiB of inputs and as many of outputs in 1 ms are 8.389 GB/s.
        pytest.param("cold", MIB, {"memory": 7.3}, "", id="cold: outputs may stay in the L2"),
        pytest.param(
            "cold", MIB, {"memory": 6.9}, "7 GB/s, where A Card can do 7 at most", id="cold: not all"
        ),
        pytest.param("cold", 64 * MIB, {"memory": 4.2}, "", id="cold: inputs come from memory"),
        pytest.param("cold", 64 * MIB, {"memory": 3.9}, "4 GB/s", id="cold: all of them"),
        pytest.param("hot", 7 * MIB, {"memory": 1.0}, "", id="hot: what the L2 cannot hold"),
        pytest.param("hot", 7 * MIB, {"memory": 0.9}, "1 GB/s", id="hot: crosses"),
        pytest.param("hot", 64 * MIB, {"memory": 1e-9}, "", id="hot: or nothing"),
        pytest.param("hot", None, {"memory": 1e-9}, "", id="an L2 of unknown size"),
        pytest.param("cold", MIB, {}, "", id="unknown peaks"),
        pytest.param("cold", MIB, {"float32": 1.0}, "", id="5 % above is ticks"),
        pytest.param(
            "cold", MIB, {"float32": 0.9}, "1 GFLOP/s, where A Card can do 1 at most in float32", id="FLOP"
        ),
        pytest.param("cold", MIB, {"float16": 0.1}, "", id="of another type"),
    ],
)
def test_a_rate_beyond_the_peak(l2, l2_bytes, peaks, told):
    card = dataclasses.replace(CARD, l2_bytes=l2_bytes)
    if not told:
        check_rates(card, peaks, Sum(), CASE, l2, MS)
        return
    with pytest.raises(BeyondPeakError, match=told) as raised:
        check_rates(card, peaks, Sum(), CASE, l2, MS)
    assert (raised.value.reason, raised.value.exit_code) == ("beyond-peak", ExitCode.NOT_MEASURED)


AMPERE = dataclasses.replace(CARD, compute_capability=(8, 0))


@pytest.mark.parametrize(
    ("card", "dtype", "peaks", "told"),
    [
        pytest.param(CARD, "float32", {"float32": 0.5, "tf32": 1.0}, "", id="within TF32's"),
        pytest.param(
            CARD, "float32", {"float32": 0.5, "tf32": 0.9}, "can do 1 at most in tf32", id="beyond it"
        ),
        pytest.param(
            CARD, "float32", {"float32": 0.9, "tf32": 0.5}, "at most in float32", id="TF32 is no faster"
        ),
        pytest.param(CARD, "float32", {"float32": 0.5}, "at most in float32", id="a card without TF32"),
        pytest.param(AMPERE, "float32", {"float32": 0.5}, "", id="a card whose TF32 is not known"),
        pytest.param(CARD, "float64", {"float64": 0.5, "tf32": 1.0}, "at most in float64", id="another type"),
    ],
)
def test_a_function_that_may_compute_in_tf32(card, dtype, peaks, told):
    case = dataclasses.replace(CASE, dtype=dtype)
    if not told:
        check_rates(card, peaks, Sum(), case, "hot", MS, tensor_cores=True)
    for tensor_cores in (False, True) if told else (False,):
        with pytest.raises(BeyondPeakError, match=told if tensor_cores else f"at most in {dtype}"):
            check_rates(card, peaks, Sum(), case, "hot", MS, tensor_cores=tensor_cores)


def test_a_time_that_reads_nothing_is_beyond_any_peak_that_is_known():
    check_rates(CARD, {}, Sum(), CASE, "cold", 0.0)
    with pytest.raises(BeyondPeakError, match="inf GB/s"):
        check_rates(CARD, {"memory": 1000.0}, Sum(), CASE, "cold", 0.0)


def test_a_problem_that_needs_less_says_so():
    class Few(Sum):
        def moved_bytes(self, case):
            return 100

    check_rates(CARD, {"memory": 0.001}, Few(), CASE, "cold", MS)


SETTINGS = MeasureSettings(min_time_s=0.01, warmup_min_s=0.01, max_time_s=0.05)
ASKED = protocol.Measure(kernel="plain", sizes={"n": 64}, seed=1, settings=SETTINGS)


def test_a_run_fails_the_row(tmp_path):
    root = write_files(tmp_path, toy.FILES)
    request = protocol.Open(
        device="null:0", suite=str(root / "kernels" / "toy"), scratch=str(tmp_path), peaks={"float32": 1e-12}
    )
    with pytest.raises(BeyondPeakError, match="GFLOP/s, where null can do 0 at most in float32"):
        opened_worker(request).run(ASKED)


def test_a_comparison_is_invalid(tmp_path):
    loaded = load(write_files(tmp_path, toy.FILES) / "kernels" / "toy")
    slower = {**toy.FILES, "kernels/toy/plain.cu": "#define NULL_DEVICE_NS 5\n"}
    head = load(write_files(tmp_path / "head", slower) / "kernels" / "toy")
    with Comparing(loaded, head, CompareSettings(device="null", pair=QUICK), Watching()) as comparing:
        comparing.peaks = {"float32": 1e-12}
        result = comparing.run(plan(loaded.suite), plan(head.suite))
    found = {verdict.kernel: verdict for verdict in result.verdicts}
    assert (found["plain"].status, found["plain"].reason) == ("invalid", "beyond-peak")
    assert found["plain"].message.startswith("At head: ")
    assert found["tiled"].status == "identical"


LONGER = dataclasses.replace(QUICK, min_quads=25, max_quads=25)


def toy_of(root, time_ns, said=""):
    kernel = f"#define NULL_DEVICE_NS {time_ns}\n{said}\n"
    return load(write_files(root, {**toy.FILES, "kernels/toy/plain.cu": kernel}) / "kernels" / "toy")


@pytest.mark.parametrize("said", ["wmma::mma_sync(d, a, b, c);", "// wmma", "gamma = comma * summary;"])
def test_a_comparison_says_which_side_must_compute_in_tf32(tmp_path, said):
    """Base has 64e-6 GFLOP/s, head twice as many, and float32's peak lies between the two."""
    base, head = toy_of(tmp_path / "base", 1_000_000, said), toy_of(tmp_path / "head", 500_000, said)
    settings = CompareSettings(device="null", pair=LONGER)
    with Comparing(base, head, settings, Watching()) as comparing:
        comparing.peaks = {"float32": 100e-6, "tf32": 200e-6}
        result = comparing.run(*(plan(side.suite, ["plain"], ["64"]) for side in (base, head)))
    [verdict] = [each for each in result.verdicts if each.kernel == "plain"]
    if said.startswith("wmma"):
        assert verdict.status == "improvement"
        [changed] = verdict.settings_changed
        assert changed.startswith("arithmetic: float32 → TF32 (")
    else:
        assert (verdict.status, verdict.reason) == ("invalid", "beyond-peak")


@pytest.mark.parametrize("float32", [32e-6, 100e-6])
def test_a_comparison_says_nothing_where_both_sides_compute_alike(tmp_path, float32):
    said = "wmma::mma_sync(d, a, b, c);"
    base, head = toy_of(tmp_path / "base", 1_000_000, said), toy_of(tmp_path / "head", 900_000, said)
    settings = CompareSettings(device="null", pair=LONGER)
    with Comparing(base, head, settings, Watching()) as comparing:
        comparing.peaks = {"float32": float32, "tf32": 200e-6}
        result = comparing.run(*(plan(side.suite, ["plain"], ["64"]) for side in (base, head)))
    [verdict] = [each for each in result.verdicts if each.kernel == "plain"]
    assert (verdict.status, verdict.settings_changed) == ("improvement", ())


MAKE = """
def make(case, stream):
    def call(x, y, n):
        y[:] = 2 * x

    return call


"""


@pytest.mark.parametrize(("float32", "unit", "peak"), [(1e-9, "tf32", 1e9), (1e6, "float32", 1e6)])
def test_a_row_of_a_function_says_what_it_is_held_to(tmp_path, float32, unit, peak):
    suite = toy.SUITE.replace(
        '"plain.cu", block=32, grid=lambda c: ceil_div(c.n, 32)', '{"cpu": HostFunction(make)}'
    )
    for before, after in (
        ("import Axis", "import HostFunction, Axis"),
        ("suite = ", f"{MAKE}suite = "),
        ("GB/s", "GFLOP/s"),
    ):
        suite = suite.replace(before, after, 1)
    loaded = load(write_files(tmp_path, {**toy.FILES, "kernels/toy/suite.py": suite}) / "kernels" / "toy")
    [planned, *_] = plan(loaded.suite, sizes=["4096"])
    with Session(loaded, SessionSettings(device="cpu:0", measure=SETTINGS), Recorder()) as session:
        session.peaks = {"float32": float32, "tf32": 1e9}
        result = session.run([planned])
    [row] = result.rows
    found = summary_of(row, result.run)
    assert (row.status, found.unit) == ("measured", unit)
    assert found.gflops is not None
    assert found.peak_percent == pytest.approx(100 * found.gflops / peak)
    [table] = run_tables(result)
    note = "Faster than float32's peak, so computed in tf32, of whose peak % peak is: plain."
    assert (note in table.caption) == (unit == "tf32")
