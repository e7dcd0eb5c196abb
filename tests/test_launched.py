"""The kernels that a function launches: when they are listed, and what is said of a difference."""

from __future__ import annotations

import ctypes
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from harness.device.backends.cuda import cupti
from harness.device.backends.cuda.graphs import Graph, Node
from harness.errors import GraphRefusedError, MeasureError
from harness.judgement.case_trial import NoisePriors
from harness.judgement.judge import Policy
from harness.measure import protocol
from harness.measure.quads import PairSettings
from harness.records.record_files import read_comparison
from harness.records.types import Arm, KernelLaunch, Verdict
from harness.report.document.from_results import _without_evidence, review_of
from harness.report.pull_request.machine_formats import sarif
from harness.report.terminal.comparison_tables import lines_of, with_sentence
from harness.report.words.of_launches import launches
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.run.rejudge import rejudge
from harness.suite.loader import load
from harness.suite.planning import plan
from tests import toy
from tests.nvperf import package_folder
from tests.pairs import Pair
from tests.support import write_files
from tests.test_compare import Watching

ADD = KernelLaunch(
    symbol="add_kernel", grid=(256, 1, 1), block=(128, 1, 1), static_shared_bytes=0, registers=32
)
FILL = replace(ADD, symbol="_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_T1_")
GEMM = replace(ADD, symbol="gemm_tile_128x64", dynamic_shared_bytes=49_152)
XMMA = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tile_{}_stage3_kernel"
SHORT = PairSettings(min_quads=8, max_quads=8, warmup_min_s=0, warmup_max_s=0, lead_in_s=0.001)
SUITE = (
    toy.TWICE
    + """\
{told}


def function(case, stream):
    return lambda x, y, n: None


suite = Suite("toy", Twice(), [Kernel("called", {{"cpu": HostFunction(function)}})], headline="GFLOP/s")
"""
)


def told_of(*kernels: KernelLaunch) -> str:
    scripted = json.dumps(msgspec.to_builtins(kernels))
    return f"#define NULL_DEVICE_NS 1000000\n#define NULL_DEVICE_LAUNCHES {scripted}"


def verdict_of(base: list[KernelLaunch], head: list[KernelLaunch]) -> Verdict:
    given: Any = {"base": Arm(launches=tuple(base)), "head": Arm(launches=tuple(head))}
    given |= {"case": "a", "kernel": "a", "sizes": {}, "dtype": "", "reason": "", "message": ""}
    return Verdict(status="regression", **given)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ([ADD], [ADD], ""),
        ([], [ADD], ""),
        ([ADD], [ADD, FILL], "Head launches one kernel more: vectorized_elementwise_kernel."),
        (
            [ADD, replace(FILL, count=3)],
            [ADD],
            "Head launches 3 kernels fewer: vectorized_elementwise_kernel.",
        ),
        ([ADD], [replace(ADD, count=2)], "Head launches one kernel more: add_kernel."),
        (
            [GEMM],
            [replace(GEMM, symbol="gemm_tile_64x64")],
            "Kernel gemm_tile_128x64 became gemm_tile_64x64.",
        ),
        (
            [replace(GEMM, symbol=XMMA.format("128x64"))],
            [replace(GEMM, symbol=XMMA.format("64x64"))],
            "Kernel tile_128x64 became tile_64x64.",
        ),
        (
            [replace(GEMM, symbol="_ZN7cutlass7Kernel2I24cutlass_80_gemm_128x64_nEEvNT_6ParamsE")],
            [replace(GEMM, symbol="_ZN7cutlass7Kernel2I23cutlass_80_gemm_64x64_nEEvNT_6ParamsE")],
            "Kernel cutlass_80_gemm_128x64_n became cutlass_80_gemm_64x64_n.",
        ),
        (
            [FILL],
            [replace(FILL, symbol=FILL.symbol.replace("Li4", "Li2"))],
            "Kernel vectorized_elementwise_kernel became another instance of its template.",
        ),
        ([ADD], [replace(ADD, grid=(512, 1, 1))], "Grid 256 became 512 of add_kernel."),
        (
            [ADD],
            [replace(ADD, block=(16, 16, 1), registers=40, cluster=(2, 1, 1))],
            "Block 128 became 16x16 and cluster none became 2 and registers 32 became 40 of add_kernel.",
        ),
        ([ADD], [replace(ADD, registers=None, static_shared_bytes=None)], ""),
        (
            [ADD],
            [replace(ADD, symbol=name) for name in ("one", "two", "three", "four", "add_kernel")],
            "Head launches 4 kernels more: one, two, three and 1 more.",
        ),
        (
            [replace(ADD, symbol=name) for name in ("one", "two", "three", "four", "five")],
            [replace(ADD, symbol=name, grid=(1, 1, 1)) for name in ("one", "two", "three", "four", "five")],
            "Grid 256 became 1 of one; grid 256 became 1 of two; grid 256 became 1 of three; and 2 more.",
        ),
    ],
)
def test_a_difference_is_a_sentence(base, head, said):
    assert launches(verdict_of(base, head)) == said


def test_what_both_sides_launch_is_listed_once_and_a_difference_said_beside_the_verdict(tmp_path):
    sides = {"base": told_of(ADD), "head": told_of(ADD, FILL, FILL)}
    loaded = []
    for name, told in sides.items():
        write_files(tmp_path / name, {"suite.py": SUITE.format(told=told)})
        loaded.append(load(tmp_path / name))
    watching = Watching()
    chosen = CompareSettings(device="null", pair=SHORT, results=tmp_path / "results", budget_s=0.001)
    with Comparing(loaded[0], loaded[1], chosen, watching) as comparing:
        result = comparing.run(*(plan(side.suite) for side in loaded))
    assert [stage for stage in watching.stages if stage.startswith("launches")] == [
        "launches head",
        "launches base",
    ]
    assert result.path
    [verdict] = read_comparison(result.path).verdicts
    assert verdict.base
    assert verdict.head
    assert verdict.base.launches == (ADD,)
    assert verdict.head.launches == (ADD, replace(FILL, count=2))
    said = "Head launches 2 kernels more: vectorized_elementwise_kernel."
    assert said in with_sentence(verdict).message
    assert said in "".join(map(str, lines_of([verdict])))
    assert said in sarif(review_of([result]))

    [again] = rejudge(result, Policy(), {verdict.case: NoisePriors()})
    assert launches(again.now) == said


def test_equal_launches_take_no_room_in_a_document():
    equal = verdict_of([ADD], [ADD])
    assert _without_evidence(equal).base == Arm()


@pytest.mark.parametrize(("refused", "found"), [(False, (replace(ADD, count=2),)), (True, ())])
def test_without_cupti_a_graph_tells_the_launches(tmp_path, monkeypatch, refused, found):
    def told(*given: object) -> Any:
        raise MeasureError("CUPTI is not installed.")

    def captured(*given: object) -> list[KernelLaunch]:
        if refused:
            raise GraphRefusedError("It waits for the card.")
        return [ADD, ADD]

    write_files(tmp_path / "suite", {"suite.py": SUITE.format(told="")})
    pair = Pair(tmp_path / "suite", tmp_path / "suite", tmp_path / "scratch", "null")
    worker = pair.worker("head")
    monkeypatch.setattr(worker.device, "launched", told)
    monkeypatch.setattr(worker.device, "captured_launches", captured)
    request = protocol.ListLaunches(pair=pair.of("called", n=64), side="head", seed=1, order_seed=1)
    assert worker.answer(request) == {"head": found}


def test_kernels_of_a_graph_are_listed_without_its_copies():
    graph = object.__new__(Graph)
    node = Node("kernel", "add_kernel", (256, 1, 1), (128, 1, 1), 64)
    graph.nodes = Counter([node, Node("memset"), node])
    [first, second] = graph.launches()
    assert first == second == KernelLaunch("add_kernel", (256, 1, 1), (128, 1, 1), 64)


def test_the_record_of_a_kernel_is_the_one_in_cuptis_header():
    text = (package_folder() / "include" / "cupti_activity.h").read_text()
    newest = re.split(r"\} CUpti_ActivityKernel\d+;", text)[-2].rpartition("PACKED_ALIGNMENT {")[2]
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", newest, flags=re.DOTALL)
    body = re.sub(r"union \{.*?\} cacheConfig;", "uint8_t cacheConfig;", body, flags=re.DOTALL)
    fields: list[Any] = []
    for kind, star, name in re.findall(r"(\w+)\s+(\*?)\s*(\w+);", body):
        plain = getattr(ctypes, f"c_{kind.removesuffix('_t')}", ctypes.c_uint32)  # an enumeration
        fields.append((name, ctypes.c_void_p if star else plain))
    theirs: Any = type("Theirs", (ctypes.Structure,), {"_fields_": fields})
    names = {
        "registers": "registersPerThread",
        "start_ns": "start",
        "end_ns": "end",
        "grid": "gridX",
        "block": "blockX",
        "static_shared_bytes": "staticSharedMemory",
        "dynamic_shared_bytes": "dynamicSharedMemory",
        "name": "name",
        "cluster": "clusterX",
    }
    ours = cupti._KernelRecord
    assert {name: getattr(ours, name).offset for name in names} == {
        name: getattr(theirs, of_theirs).offset for name, of_theirs in names.items()
    }
