"""Slowdowns planted by their cause, and the cause that a card's counters name. Run with `pytest -m gpu`."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from harness.records.types import Diagnosis
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.suite.loader import load
from harness.suite.planning import plan
from tests.support import GPU, write_files
from tests.test_compare import Watching

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(2**22,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x

    def flop(self, case):
        return case.n


def kernel(name):
    shared = 200 * 1024 if name == "chain" else 0  # two warps a scheduler hide no latency
    return Kernel(
        name, f"{name}.cu", block=256, grid=lambda case: case.n // 1024, dynamic_shared_bytes=shared
    )


suite = Suite("planted", Twice(), [kernel(name) for name in NAMES])
"""
SOURCE = """\
// Each thread has four elements.
extern "C" __global__ void {name}(const float* __restrict__ x, float* __restrict__ y, int n) {{
    const int first = blockIdx.x * 1024 + threadIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float one = n > 0 ? 1.0f : 3.0f, zero = n > 0 ? 0.0f : 3.0f;
    {body}
}}
"""
EACH = "for (int e = 0; e < 4; ++e) {{ const int i = first + 256 * e; {} }}"


class Planted(NamedTuple):
    cause: str
    base: str
    head: str


def each(body: str) -> str:
    return EACH.format(body)


ROUNDS = "for (int r = 0; r < 64; ++r) {{ t[{place}] = v; v = ((volatile float*)t)[{place}]; }}"


def shared(stride: int) -> str:
    rounds = ROUNDS.format(place=f"lane * {stride} + warp")
    return f"__shared__ float t[32 * 33]; {each('float v = 2 * x[i]; ' + rounds + ' y[i] = v;')}"


def barriers(count: int) -> str:
    return each(f"float v = 2 * x[i]; for (int r = 0; r < {count}; ++r) __syncthreads(); y[i] = v;")


def arithmetic(number: str) -> str:
    steps = f"for (int r = 0; r < 64; ++r) v = v * ({number})one + ({number})zero;"
    return each(f"{number} v = 2 * x[i]; {steps} y[i] = v;")


def instructions(count: int) -> str:
    """Integer arithmetic whose result is never 1 for the elements that there are."""
    steps = f"unsigned b = i; for (int r = 0; r < {count}; ++r) b = (b ^ (b << 13)) + 2 * r;"
    return each(f"{steps} y[i] = b == 1 ? 0 : 2 * x[i];")


def chains(number: int) -> str:
    """The same number of multiplications, in chains that do not wait for one another."""
    names = [f"v{each}" for each in range(number)]
    weights = [2**number, *(-(2**place) for place in range(number - 1, 0, -1))]  # their sum is 2, exactly
    begin = " ".join(f"float {name} = {each} * x[i];" for each, name in zip(weights, names, strict=True))
    step = " ".join(f"{name} = {name} * one + zero;" for name in names)
    steps = f"for (int r = 0; r < {512 // number}; ++r) {{ {step} }}"
    return each(f"{begin} {steps} y[i] = {' + '.join(names)};")


PLANTED = {
    "strided": Planted(
        "uncoalesced",
        each("y[i] = 2 * x[i];"),
        "for (int e = 0; e < 4; ++e) { const int j = first + 256 * e; "
        "const int i = (j % 1024) * (n / 1024) + j / 1024; y[i] = 2 * x[i]; }",
    ),
    "scalar": Planted(
        "narrower-accesses",
        "const int i = blockIdx.x * 256 + threadIdx.x; float4 v = ((const float4*)x)[i]; "
        "v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2; ((float4*)y)[i] = v;",
        each("y[i] = 2 * ((volatile const float*)x)[i];"),
    ),
    "conflicts": Planted("bank-conflicts", shared(33), shared(32)),
    "barrier": Planted("barriers", barriers(0), barriers(64)),
    "doubles": Planted("double-precision", arithmetic("float"), arithmetic("double")),
    "spilled": Planted(
        "local-memory",
        each("float v = 2 * x[i]; y[i] = v;"),
        each(
            "float a[64]; for (int r = 0; r < 64; ++r) a[(r * 7 + i) % 64] = 2 * x[i]; "
            "y[i] = a[(i * 7 + n) % 64];"
        ),
    ),
    "atomic": Planted("atomics", each("y[i] = 2 * x[i];"), each("atomicExch(y + i, 2 * x[i]);")),
    "repeated": Planted("more-instructions", instructions(1), instructions(256)),
    "chain": Planted("dependencies", chains(4), chains(1)),
    "reread": Planted(
        "more-accesses",
        each("y[i] = 2 * x[i];"),
        each(
            "float v = 0; for (int r = 0; r < 16; ++r) "
            "v += ((volatile const float*)x)[(i + r * 4096) & (n - 1)] * zero; y[i] = 2 * x[i] + v;"
        ),
    ),
}
"""Base and head by the kernel's name. Both are right."""


def written(folder, side: str):
    files = {
        f"{name}.cu": SOURCE.format(name=name, body=getattr(planted, side))
        for name, planted in PLANTED.items()
    }
    write_files(folder, {**files, "suite.py": SUITE.replace("NAMES", repr(list(PLANTED)))})
    return load(folder)


@pytest.fixture(scope="module")
def diagnoses(tmp_path_factory) -> dict[str, Diagnosis | None]:
    base, head = (written(tmp_path_factory.mktemp(side), side) for side in ("base", "head"))
    settings = CompareSettings(device=GPU, explain="regressions", solo_s=0.0, twins=False)
    with Comparing(base, head, settings, Watching()) as comparing:
        result = comparing.run(*(plan(side.suite) for side in (base, head)))
    assert {verdict.kernel: verdict.status for verdict in result.verdicts} == dict.fromkeys(
        PLANTED, "regression"
    )
    return {verdict.kernel: verdict.diagnosis for verdict in result.verdicts}


@pytest.mark.parametrize("name", PLANTED)
def test_the_first_cause_is_the_planted_one(diagnoses, name):
    found = diagnoses[name]
    assert found is not None
    if "administrators" in found.problem:
        pytest.skip(found.problem)
    assert not found.problem
    assert found.causes, found
    assert found.causes[0].kind == PLANTED[name].cause, found


def test_counters_are_those_of_the_launch(diagnoses):
    """Four bytes of each of 32 neighbours are four sectors; a strided request has one each."""
    found = diagnoses["strided"]
    assert found is not None
    if "administrators" in found.problem:
        pytest.skip(found.problem)
    for counters, sectors in ((found.base_counters, 4), (found.head_counters, 32)):
        assert counters["load_requests"] == 2**22 / 32
        assert counters["load_sectors"] == sectors * 2**22 / 32
    assert found.base_counters["dram_read_bytes"] == pytest.approx(4 * 2**22, rel=0.2)
