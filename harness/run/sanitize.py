"""Kernels run once in a simulator that sees races, accesses beyond an array and values that nobody wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from harness.bench.protocol import Open, Sanitize
from harness.device.backends import oclgrind
from harness.device.backends.oclgrind import Finding
from harness.errors import HarnessError
from harness.run.device_session import WorkerProcess, opened
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase
from harness.system.files import scratch_folder
from harness.system.process import Failed

DEVICE = "opencl:0"
SIZE = 37
"""Of every axis, where no size is given: no multiple of a tile, and little to simulate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """What became of one case."""

    case: str
    status: Literal["clean", "found", "skipped", "failed"]
    reason: str = ""
    message: str = ""
    log: str = ""
    findings: tuple[Finding, ...] = ()


def sanitize(
    loaded: LoadedSuite,
    plan: Sequence[PlannedCase],
    timeout_s: float,
    seed: int,
    tell: Callable[[str], object] = lambda _case: None,
) -> list[Sanitized]:
    """Run every case once, each in a process of its own. Raises DeviceError where there is no simulator."""
    found = []
    for each in plan:
        tell(each.case.short_id)
        if "opencl" not in each.kernel.sources:
            message = f"{each.kernel.name} has no source for OpenCL: with a card, compute-sanitizer runs it."
            found.append(
                Sanitized(case=each.case.id, status="skipped", reason="needs-backend", message=message)
            )
        else:
            found.append(_sanitized(loaded, each, timeout_s, seed))
    return found


def _sanitized(loaded: LoadedSuite, planned: PlannedCase, timeout_s: float, seed: int) -> Sanitized:
    case = planned.case.id
    with scratch_folder() as scratch:
        log = scratch / "oclgrind.log"
        environment = oclgrind.environment(scratch, log)
        try:
            with closing(WorkerProcess(scratch, env=environment)) as child:
                work_tree = str(loaded.work_tree) if loaded.work_tree else None
                root = str(loaded.suite.root)
                opened(child, Open(device=DEVICE, suite=root, scratch=str(scratch), work_tree=work_tree))
                request = Sanitize(
                    kernel=planned.kernel.name,
                    sizes=planned.case.sizes,
                    seed=seed,
                    options=oclgrind.OPTIONS,
                )
                reply = child.ask(request, timeout_s)
        except HarnessError as error:
            return Sanitized(
                case=case, status="failed", reason=error.reason, message=error.message, log=error.log
            )
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if isinstance(reply, Failed):
        message = loaded.explained(reply.message, reply.log)
        return Sanitized(case=case, status="failed", reason=reply.reason, message=message, log=reply.log)
    found = tuple(oclgrind.findings(text))
    return Sanitized(case=case, status="found" if found else "clean", findings=found)
