"""Runs kernels once under tools that detect races, out-of-bounds accesses and reads of unwritten values.

The tool is a simulator, or on a card each of compute-sanitizer's tools.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from harness.device.backends import compute_sanitizer, oclgrind
from harness.device.findings import SanitizerFinding
from harness.errors import HarnessError
from harness.measure.protocol import Sanitize
from harness.run.device_session import DeviceObserver, DeviceSession, most_cards
from harness.run.worker_process import WorkerProcess
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase
from harness.system.files import scratch_folder
from harness.system.process import Failed

OCLGRIND = "oclgrind"
TOOLS = (*compute_sanitizer.TOOLS, OCLGRIND)
_SIMULATED = "opencl:0"
_END_S = 30.0
"""Time in seconds for a tool to summarize its findings after the kernel has ended."""
_LOG_CHARACTERS = 4000
_PROCESS_BYTES = 2**31
"""Card memory per process: its context, the tool's own data and small arrays."""
SIZE = 37
"""Default size of every axis: not a multiple of a tile, and fast to simulate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    case: str
    tool: str
    status: Literal["clean", "found", "skipped", "failed"]
    reason: str = ""
    message: str = ""
    log: str = ""
    findings: tuple[SanitizerFinding, ...] = ()


class SanitizeObserver(DeviceObserver, Protocol):
    def sanitizing(self, case: str) -> None: ...


def sanitize(
    loaded: LoadedSuite,
    plan: Sequence[PlannedCase],
    tools: Sequence[str],
    device: str,
    timeout_s: float,
    seed: int,
    observer: SanitizeObserver,
) -> list[Sanitized]:
    """Run every case once under each of the tools, each time in its own process.

    `device` is the card for tools that need one. `timeout_s` is for one case under one tool. Raises
    DeviceError if a tool is missing or does not run here.
    """
    sanitizing = _Sanitizing(loaded, timeout_s, seed, observer)
    found: list[Sanitized] = []
    if on_card := [each for each in tools if each != OCLGRIND]:
        found += sanitizing.on_card(plan, on_card, device)
    if OCLGRIND in tools:
        found += map(sanitizing.simulated, plan)
    order = {each.case.id: at for at, each in enumerate(plan)}
    return sorted(found, key=lambda each: order[each.case])


@dataclass(frozen=True, slots=True)
class _Sanitizing:
    loaded: LoadedSuite
    timeout_s: float
    seed: int
    observer: SanitizeObserver

    def on_card(self, plan: Sequence[PlannedCase], tools: Sequence[str], device: str) -> list[Sanitized]:
        program, loaded = compute_sanitizer.program(), self.loaded
        found: list[Sanitized] = []
        with DeviceSession(
            self.observer,
            loaded.suite.root,
            device=device,
            command="check",
            work_tree=loaded.work_tree,
            cards=most_cards(loaded.suite),
        ) as session:
            session.builder.kill()  # it is no longer needed, and holds card memory
            pairs: list[tuple[PlannedCase, str]] = []
            for each in plan:
                if refused := session.refusal(each):
                    found.append(_skipped(each, ", ".join(tools), refused.reason, refused.message))
                else:
                    pairs += [(each, tool) for tool in tools]
            # Processes share the card, because nothing is timed.
            room = (session.device.memory_bytes or 0) // _PROCESS_BYTES
            spec = session.device.spec
            with ThreadPoolExecutor(max(1, min(room, os.cpu_count() or 1))) as pool:
                rows = pool.map(lambda pair: self._under(pair[0], pair[1], program, spec), pairs)
                for (planned, _), one in zip(pairs, rows, strict=True):
                    self.observer.sanitizing(planned.case.short_id)
                    found.append(one)
        return found

    def _under(self, planned: PlannedCase, tool: str, program: str, device: str) -> Sanitized:
        with scratch_folder() as scratch:
            log = scratch / f"{tool}.log"
            before = compute_sanitizer.before(program, tool, log)
            child = WorkerProcess(scratch, before=before)
            ran = self._run(planned, tool, child, device, compute_sanitizer.OPTIONS)
            text = _text(log)
        compute_sanitizer.check(text)
        if found := tuple(compute_sanitizer.findings(text)):
            return Sanitized(case=ran.case, tool=tool, status="found", findings=found)
        if ran.status == "failed":
            return replace(ran, log=f"{ran.log}\n{text}".strip()[-_LOG_CHARACTERS:])
        if not compute_sanitizer.ended(text):
            message = f"{tool} said nothing of what it saw, not even how many errors: nobody knows."
            return replace(
                ran, status="failed", reason="crashed", message=message, log=text[-_LOG_CHARACTERS:]
            )
        return ran

    def simulated(self, planned: PlannedCase) -> Sanitized:
        self.observer.sanitizing(planned.case.short_id)
        if "opencl" not in planned.kernel.sources:
            name = planned.kernel.name
            message = f"{name} has no source for OpenCL: with a card, compute-sanitizer runs it."
            return _skipped(planned, OCLGRIND, "needs-backend", message)
        with scratch_folder() as scratch:
            log = scratch / "oclgrind.log"
            child = WorkerProcess(scratch, env=oclgrind.environment(scratch, log))
            ran = self._run(planned, OCLGRIND, child, _SIMULATED, oclgrind.OPTIONS)
            text = _text(log)
        if ran.status == "clean" and (found := tuple(oclgrind.findings(text))):
            return replace(ran, status="found", findings=found)
        return ran

    def _run(
        self, planned: PlannedCase, tool: str, child: WorkerProcess, device: str, options: tuple[str, ...]
    ) -> Sanitized:
        """Return the outcome of the process, as far as it reports one."""
        ran, loaded = Sanitized(case=planned.case.id, tool=tool, status="clean"), self.loaded
        kernel, sizes = planned.kernel.name, planned.case.sizes
        try:
            with closing(child):
                child.begin_open(device, loaded.suite.root, work_tree=loaded.work_tree)()
                request = Sanitize(kernel=kernel, sizes=sizes, seed=self.seed, options=options)
                reply = child.ask(request, self.timeout_s)
                child.finish(_END_S)
        except HarnessError as error:
            return replace(ran, status="failed", reason=error.reason, message=error.message, log=error.log)
        if isinstance(reply, Failed):
            message = loaded.explained(reply.message, reply.log)
            return replace(ran, status="failed", reason=reply.reason, message=message, log=reply.log)
        return ran


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def _skipped(planned: PlannedCase, tool: str, reason: str, message: str) -> Sanitized:
    return Sanitized(case=planned.case.id, tool=tool, status="skipped", reason=reason, message=message)
