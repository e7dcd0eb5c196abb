"""The shortest time that a kernel could take on a card, by hand and beside what was measured."""

from __future__ import annotations

import dataclasses

import pytest

from harness.device.backends import nvcc
from harness.device.static import disassembly
from harness.device.static.architecture_builds import Build
from harness.device.static.bounds import Bound, CaseWork, Spread, bound
from harness.device.static.occupancy import CARDS, CardModel
from harness.device.static.sass import Instructions, Loop
from harness.device.static.static_facts import facts
from harness.errors import ExitCode
from harness.records.record_files import RecordWriter, read_run
from harness.records.types import Launch
from harness.run.bounded_cases import Record, suite_of
from harness.suite.loader import load
from harness.suite.planning import plan
from tests import toy
from tests.support import KERNELS, caller, commit, device_is_missing, make_repository, write_files
from tests.test_records_file import BLOCK, COMPARISON, ROW, RUN, compared

CARD = CardModel("Card", (8, 6), multiprocessors=10, clock_mhz=1000, memory_gbytes_per_s=100, l2_bytes=1000)
"""A cycle is a nanosecond; 128 lanes, 1,024 operations of tensor cores a cycle."""
NOTHING = CaseWork(flop=None, read_bytes=0, written_bytes=0, dtype="float32")
FLOP = 2 * 32 * 1000
"""A thousand multiply-adds of a warp."""


def work(flop=FLOP, dtype="float32"):
    return CaseWork(flop=flop, read_bytes=0, written_bytes=0, dtype=dtype)


def loop(**kinds):
    named = {kind.replace("_", "."): count for kind, count in kinds.items()}
    count = sum(named.values())
    return Instructions(
        count=count, kinds=named, loops=1, hottest=Loop(begins=0, ends=16, depth=1, count=count, kinds=named)
    )


def test_memory_is_what_is_read_and_what_is_written_beyond_the_l2():
    moved = CaseWork(flop=None, read_bytes=4000, written_bytes=1600, dtype="float32")
    assert bound(CARD, moved) == Bound(46.0, "memory")
    # Of 5,600 bytes a hot L2 holds 1,000 already.
    assert bound(CARD, moved, l2="hot") == Bound(46.0, "memory")
    assert bound(dataclasses.replace(CARD, l2_bytes=5000), moved, l2="hot") == Bound(6.0, "memory")
    assert bound(CARD, NOTHING) == Bound(0.0, "memory")


def test_arithmetic_is_the_peak_of_the_type():
    plain, products = loop(MOV=1), loop(HMMA_1688_F32_TF32=1)
    assert bound(CARD, work(), plain) == Bound(25.0, "arithmetic")  # 128 lanes on each of 10
    assert bound(CARD, work(dtype="float16"), plain) == Bound(6.25, "arithmetic")
    # Code that nobody has seen may compute float32 in TF32.
    assert bound(CARD, work()) == Bound(12.5, "arithmetic")
    assert bound(CARD, work(), products) == Bound(12.5, "arithmetic")
    older = dataclasses.replace(CARD, capability=(7, 5))
    assert bound(older, work()) == Bound(50.0, "arithmetic")  # 64 lanes, and no TF32


@pytest.mark.parametrize(
    ("kinds", "time_ns", "by"),
    [
        ({"FFMA": 10, "MOV": 10}, 50.0, "issue slots"),
        ({"FFMA": 10, "LDS_128": 5}, 50.0, "load/store units"),
        ({"FFMA": 10, "LDC_32": 5}, 37.5, "issue slots"),  # constants have a path of their own
        ({"FFMA2": 5, "MOV": 15}, 50.0, "issue slots"),  # two at once
        ({"IADD3": 100}, 25.0, "arithmetic"),  # whose multiply-adds are elsewhere
    ],
)
def test_a_loop_takes_its_instructions_and_its_loads(kinds, time_ns, by):
    assert bound(CARD, work(), loop(**kinds)) == Bound(time_ns, by)


def test_products_of_tensor_cores_count_by_their_shape():
    done = work(flop=2 * 16 * 8 * 16 * 1000, dtype="float16")
    assert bound(CARD, done, loop(HMMA_16816=1, LDG_32=9)) == Bound(900.0, "load/store units")


@pytest.mark.parametrize(
    ("grid", "block", "resident", "time_ns"),
    [
        ((10, 1, 1), (128, 1, 1), 8, 50.0),
        ((5, 1, 1), (128, 1, 1), 8, 100.0),  # five of ten have nothing to do
        ((11, 1, 1), (128, 1, 1), 8, 50.0 * 2 * 10 / 11),  # one of ten has two blocks
        ((10, 1, 1), (64, 1, 1), 8, 100.0),  # two warps for four schedulers
        ((40, 1, 1), (64, 1, 1), 1, 100.0),  # of four blocks one at a time
    ],
)
def test_the_busiest_multiprocessor_tells_how_long(grid, block, resident, time_ns):
    spread = Spread(launch=Launch(grid=grid, block=block), resident_blocks=resident)
    found = bound(CARD, work(), loop(FFMA=10, MOV=10), spread)
    assert found is not None
    assert found.time_ns == pytest.approx(time_ns)
    assert found.by == "issue slots"


@pytest.mark.parametrize(
    ("kernel", "reason", "by"),
    [
        ("cublas", "host-function", "arithmetic"),
        ("cutlass", "needs-package", "arithmetic"),
        ("compute_shader", "needs-backend", "arithmetic"),
        ("cpu_blas", "needs-backend", None),  # no card runs it
        ("naive", "needs-compiler", None),
    ],
)
def test_a_kernel_whose_code_is_not_known_has_the_bound_of_its_work(kernel, reason, by):
    loaded = load(KERNELS / "matmul")
    planned = plan(loaded.suite, [f"matmul.{kernel}"], ["4096"])
    case = planned[0].case.id
    build = Build(kernel=kernel, arch="sm_86", status="not-built", reason=reason, cases=(case,))
    [found] = facts(loaded.suite.problem, planned, [build], {"rtx3060": CARDS["rtx3060"]})
    told = found.bounds.get("rtx3060", {}).get(case)
    assert (told and told.by) == by


def test_no_bound_without_clocks():
    assert bound(CardModel("sm_86:28", (8, 6), 28), work()) is None
    assert bound(CARDS["rtx3060"], work()) is not None


# What was measured


@pytest.fixture
def stored(tmp_path):
    """Writes the record of a run of kernels/copy, as it is now, on an RTX 3060."""
    if not nvcc.version() or disassembly.path() is None:
        device_is_missing("nvcc", "nvcc or nvdisasm is not on PATH, and the extra 'static' is not installed")
    source, measured = load(KERNELS / "copy").source, ROW.measurement
    assert measured is not None
    card = dataclasses.replace(
        RUN.device, name="NVIDIA GeForce RTX 3060", arch="sm_86", compute_capability=(8, 6), compute_units=28
    )

    def write(times_ns, tree_sha256=source.tree_sha256, **device):
        own = dataclasses.replace(source, tree_sha256=tree_sha256, commit=None)
        run = dataclasses.replace(RUN, source=own, device=dataclasses.replace(card, **device))
        with RecordWriter(tmp_path / "card", run) as writer:
            for case, time_ns in times_ns.items():
                measurement = dataclasses.replace(measured, times_ns=(time_ns,), l2="cold")
                writer.add(dataclasses.replace(ROW, case=case, measurement=measurement))
            return writer.finish(complete=True)

    return write


def test_of_a_comparison_base_counts_and_nothing_that_it_tests_itself_with(
    stored, tmp_path, capsys, monkeypatch
):
    case, bound_ns = "copy.copy[rows=2048,cols=2048]", (2**24 + 13 * 2**20) / 360
    run = read_run(stored({case: 1.0})).run
    described = dataclasses.replace(COMPARISON, base=run.source, head=run.source, device=run.device)
    times_ns = 2 * bound_ns, 1.0, 1.0, 2 * bound_ns
    quads = (dataclasses.replace(BLOCK.block.quads[1], times_ns=times_ns),)
    block = dataclasses.replace(BLOCK, block=dataclasses.replace(BLOCK.block, quads=quads))
    of = {name: dataclasses.replace(block, case=name) for name in (case, "twin.same", f"{case} +0.5 %")}
    monkeypatch.chdir(KERNELS.parent)
    harness = caller(capsys, monkeypatch)
    done = harness(
        "report", "bounds", str(compared(tmp_path / "card", *of.values(), described=described)), "--json"
    )
    assert done.status == ExitCode.FINE, done.err
    [row] = done.json
    assert (row["case"], row["reached"]) == (case, pytest.approx(0.5))
    assert "Left out" not in done.err
    of.pop(case)
    nothing = compared(tmp_path / "card", *of.values(), described=described)
    done = harness("report", "bounds", str(nothing))
    assert (done.status, "no case that was measured" in done.err) == (ExitCode.NOT_MEASURED, True)


def test_a_suite_that_is_broken_by_now_is_taken_from_its_commit(tmp_path):
    repository = make_repository(tmp_path / "project")
    measured = commit(repository, toy.FILES, 1)
    source = load(repository / "kernels/toy", measured).source
    record = Record(source=source, device=RUN.device, memory_gbytes_per_s=None, l2="cold", times_ns={})
    write_files(repository, {"kernels/toy/suite.py": "suite = nothing\n"})
    assert suite_of(record, repository).source.commit == measured
    (repository / "kernels/toy/suite.py").unlink()
    assert suite_of(record, repository).source.commit == measured


def test_what_was_measured_stands_beside_its_bound_and_faster_than_that_fails(stored, capsys, monkeypatch):
    # 16 MiB are read and 13 of 16 are beyond the L2, at 360 GB/s: 84.5 us.
    case, bound_ns = "copy.copy[rows=2048,cols=2048]", (2**24 + 13 * 2**20) / 360
    monkeypatch.chdir(KERNELS.parent)
    harness = caller(capsys, monkeypatch)
    record = stored({case: 2 * bound_ns, "copy.gone[rows=2048,cols=2048]": 1.0})
    done = harness("report", "bounds", str(record), "--json")
    assert done.status == ExitCode.FINE, done.err
    [row] = done.json
    assert (row["case"], row["card"], row["by"]) == (case, "GeForce RTX 3060", "memory")
    assert row["reached"] == pytest.approx(0.5)
    assert "copy.gone" in done.err
    done = harness("report", "bounds", str(stored({case: bound_ns / 2})), "--format", "markdown")
    assert done.status == ExitCode.REGRESSION
    assert "200.0" in done.out


def test_what_has_no_bound_is_left_out_with_the_reason(stored, capsys, monkeypatch):
    monkeypatch.chdir(KERNELS.parent)
    harness = caller(capsys, monkeypatch)
    case = "copy.copy[rows=2048,cols=2048]"
    done = harness("report", "bounds", str(stored({case: 1.0}, tree_sha256="other")))
    assert (done.status, "measure again" in done.err) == (ExitCode.NOT_MEASURED, True)
    done = harness("report", "bounds", str(stored({case: 1.0}, backend="opencl")))
    assert (done.status, "no CUDA card" in done.err) == (ExitCode.NOT_MEASURED, True)
    assert done.err.count(".jsonl") == 1
