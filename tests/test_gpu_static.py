"""Static facts against what a card's driver says of the same kernels. `pytest -m gpu -s` prints both."""

from __future__ import annotations

from contextlib import closing, suppress
from math import prod

import pytest

from harness.device.backends import nvcc, open_device
from harness.device.backends.base import compile_all
from harness.device.static.occupancy import CardModel
from harness.device.static.static_facts import StaticFacts, facts
from harness.errors import DeviceError, HarnessError, LaunchError
from harness.measure.paired_kernels import build, prepare
from harness.run.builds.build_only import build_only
from harness.run.device_session import find_device
from harness.suite.device_facts import facts_of
from harness.suite.kernel import Generated
from harness.suite.loader import load
from harness.suite.planning import plan
from tests.support import GPU, KERNELS, device_is_missing

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
COMPARED = ("registers", "shared bytes", "local bytes", "resident blocks")


@pytest.fixture(scope="module")
def card():
    try:
        found = find_device(GPU)
    except DeviceError as error:
        device_is_missing(GPU, error.message)
    if found.backend != "cuda" or not nvcc.version():
        pytest.skip(f"{found.spec}: a CUDA card and nvcc are needed")
    return found


@pytest.mark.parametrize("suite", ["copy", "transpose", "matmul"])
def test_registers_memory_and_residency_are_those_of_the_driver(suite, card, tmp_path):
    """Every kernel of this repository is checked, at every shape of its block."""
    loaded = load(KERNELS / suite)
    # A library's kernels are its own, and CUTLASS takes a minute to compile.
    planned = {
        each.case.id: each
        for each in plan(loaded.suite)
        if isinstance(each.kernel.source_for("cuda"), (str, Generated))
    }
    result = build_only(loaded, list(planned.values()), [card.arch], 120)
    here = CardModel(card.name, card.compute_capability, card.compute_units)
    told = facts(loaded.suite.problem, list(planned.values()), result.builds, {"here": here})
    compared, differing = 0, []
    with closing(open_device(GPU)) as device:

        def made(each: StaticFacts):
            sizes = planned[each.cases[0]].case.sizes
            case = loaded.suite.case(
                loaded.suite.by_name[each.build.kernel], sizes, {}, facts_of(device.info)
            )
            return prepare(device, loaded.suite, case, tmp_path)

        built = [each for each in told if each.residency is not None]
        programs = []
        for each in built:
            with suppress(HarnessError):  # whoever builds it is told
                programs.append(made(each).source)
        compile_all(device, programs)
        say(f"\n{card.name}, {card.arch}, {nvcc.version()}")
        for each in told:
            used, held, block = each.build.usage, each.residency, each.block
            if used is None or held is None or block is None:
                say(f"{each.build.kernel:32} not compared: {each.build.message or each.problem}")
                continue
            try:
                prepared = made(each)
                loaded_there = build(device, prepared)
            except LaunchError as error:  # no block of it finds room there
                say(f"{each.build.kernel:32} {block!s:>13} static {held.blocks} resident: {error.message}")
                assert held.blocks == 0
                continue
            said, blocks = loaded_there.resources, device.resident_blocks(loaded_there, prepared.launch)
            ours = (used.registers, used.shared_bytes, used.stack_bytes, held.blocks)
            theirs = (said.registers, said.static_shared_bytes, said.local_bytes, blocks)
            most = said.max_threads_per_block
            say(f"{each.build.kernel:32} {block!s:>13} static {ours} driver {theirs} max threads {most}")
            compared += 1
            if ours != theirs:
                differing.append((each.build.kernel, COMPARED, ours, theirs))
            assert most is not None
            assert most >= prod(block)
    assert compared
    assert differing == []


def say(line: str) -> None:
    print(line)  # noqa: T201 - what both say, for whoever runs this with -s
