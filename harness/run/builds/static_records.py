"""Stores static facts as records: an architecture counts as a card, and its toolchain starts an epoch.

A row stands for every size with the same program and shape, under the first such size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.device.static.architecture_builds import capability_of
from harness.device.static.occupancy import CardModel
from harness.device.static.static_facts import StaticFacts
from harness.records.record_files import RecordWriter
from harness.records.types import DeviceInfo, Launch, Resources, Row, RowStatus, Run, Toolchain
from harness.run.builds.build_only import BuildResult
from harness.run.device_session import begun
from harness.suite.planning import PlannedCase

COMMAND = "static"


def machine_of(arch: str) -> str:
    """``static-sm_86``: the folder of an architecture's records."""
    return f"static-{arch}"


def write_static(
    result: BuildResult, planned: Sequence[PlannedCase], facts: Sequence[StaticFacts], results: Path
) -> list[Path]:
    """Store the facts of a commit, one record per architecture. Raises StoreError."""
    by_id = {each.case.id: each for each in planned}
    written = []
    for arch in dict.fromkeys(each.build.arch for each in facts):
        own = [each for each in facts if each.build.arch == arch]
        with RecordWriter(results / machine_of(arch), _run(result, arch)) as writer:
            for each in own:
                writer.add(_row(each, by_id[each.cases[0]]))
            written.append(writer.finish(complete=True))
    return written


def _run(result: BuildResult, arch: str) -> Run:
    return Run(
        **begun(),
        command=COMMAND,
        source=result.loaded.source,
        headline=result.loaded.suite.headline,
        kernels=tuple(kernel.name for kernel in result.loaded.suite.kernels),
        device=_device(arch),
        toolchain=Toolchain(compiler=result.compiler),
        settings={"disassembler": result.disassembler or None},
    )


def _device(arch: str) -> DeviceInfo:
    """Return a device with the properties that all cards of an architecture share."""
    known = CardModel(f"any card of {arch}, by what was compiled", capability_of(arch), 0).device
    return replace(known, spec=COMMAND, backend=COMMAND, kind="other", arch=arch, compute_units=None)


_STATUSES: dict[str, RowStatus] = {"built": "built", "failed": "failed", "not-built": "skipped"}


def _row(facts: StaticFacts, planned: PlannedCase) -> Row:
    build, case = facts.build, planned.case
    return Row(
        case=case.id,
        kernel=build.kernel,
        sizes=case.sizes,
        dtype=case.dtype,
        status=_STATUSES[build.status],
        reason=build.reason,
        message=build.message or facts.problem,
        log=build.log,
        launch=_shape(facts),
        resources=_resources(facts),
    )


def _shape(facts: StaticFacts) -> Launch | None:
    """Return the launch with a grid of one block, because the number of blocks depends on the size."""
    if facts.block is None:
        return None
    return Launch(grid=(1, 1, 1), block=facts.block, dynamic_shared_bytes=facts.dynamic_shared_bytes or 0)


def _resources(facts: StaticFacts) -> Resources | None:
    used, code = facts.build.usage, facts.build.code
    if used is None:
        return None
    sass = code.instructions if code else None
    return Resources(
        registers=used.registers,
        static_shared_bytes=used.shared_bytes,
        local_bytes=used.stack_bytes,
        arch=facts.build.built_for or None,
        code_sha256=code.sha256 if code else None,
        spill_store_bytes=used.spill_store_bytes,
        spill_load_bytes=used.spill_load_bytes,
        constant_bytes=code.constant_bytes if code else None,
        code_bytes=code.bytes if code else None,
        occupancy=facts.residency.occupancy if facts.residency else None,
        instructions=sass.kinds if sass else {},
        loop_instructions=sass.hottest.kinds if sass and sass.hottest else {},
    )
