"""Kernels run once under what sees races, accesses beyond an array and values that nobody wrote: a simulator,
or on a card each of compute-sanitizer's tools.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from harness.bench.protocol import Open, Sanitize
from harness.device.backends import compute_sanitizer, oclgrind
from harness.device.findings import Finding
from harness.errors import HarnessError
from harness.records import DeviceInfo
from harness.run.device_session import DeviceObserver, DeviceSession, WorkerProcess, opened
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase
from harness.system.files import scratch_folder
from harness.system.process import Failed

OCLGRIND = "oclgrind"
TOOLS = (*compute_sanitizer.TOOLS, OCLGRIND)
_SIMULATED = "opencl:0"
_END_S = 30.0
"""For a tool to sum up what it has seen, once the kernel has ended."""
_LOG_CHARACTERS = 4000
_PROCESS_BYTES = 2**31
"""Of the card, for one process: its context, the tool's own memory, small arrays."""
SIZE = 37
"""Of every axis, where no size is given: no multiple of a tile, and little to simulate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """What became of one case under one tool."""

    case: str
    tool: str
    status: Literal["clean", "found", "skipped", "failed"]
    reason: str = ""
    message: str = ""
    log: str = ""
    findings: tuple[Finding, ...] = ()


class SanitizeObserver(DeviceObserver, Protocol):
    def sanitizing(self, case: str) -> None: ...


class _Settings(NamedTuple):
    loaded: LoadedSuite
    timeout_s: float
    """Of one case under one tool."""
    seed: int


def sanitize(
    loaded: LoadedSuite,
    plan: Sequence[PlannedCase],
    tools: Sequence[str],
    device: str,
    timeout_s: float,
    seed: int,
    observer: SanitizeObserver,
) -> list[Sanitized]:
    """Run every case once under each of the tools, each time in a process of its own; `device` is the card
    for those that need one. Raises DeviceError where a tool is missing or does not run here.
    """
    settings = _Settings(loaded, timeout_s, seed)
    found: list[Sanitized] = []
    if on_card := [each for each in tools if each != OCLGRIND]:
        found += _on_card(settings, plan, on_card, device, observer)
    if OCLGRIND in tools:
        found += _simulated(settings, plan, observer)
    order = {each.case.id: at for at, each in enumerate(plan)}
    return sorted(found, key=lambda each: order[each.case])


def _on_card(
    settings: _Settings,
    plan: Sequence[PlannedCase],
    tools: Sequence[str],
    device: str,
    observer: SanitizeObserver,
) -> list[Sanitized]:
    program, loaded = compute_sanitizer.program(), settings.loaded
    found: list[Sanitized] = []
    with DeviceSession(
        observer, loaded.suite.root, device=device, command="check", work_tree=loaded.work_tree
    ) as session:
        session.builder.kill()  # it has done its part, and holds memory of the card
        pairs: list[tuple[PlannedCase, str]] = []
        for each in plan:
            if refused := session.refusal(each):
                found.append(_skipped(each, ", ".join(tools), refused.reason, refused.message))
            else:
                pairs += [(each, tool) for tool in tools]

        def run(pair: tuple[PlannedCase, str]) -> Sanitized:
            return _under(settings, pair[0], program, pair[1], session.device.spec)

        with ThreadPoolExecutor(_side_by_side(session.device)) as pool:
            for (planned, _), told in zip(pairs, pool.map(run, pairs), strict=True):
                observer.sanitizing(planned.case.short_id)
                found.append(told)
    return found


def _side_by_side(device: DeviceInfo) -> int:
    """Processes that share the card, as nothing is timed."""
    room = (device.memory_bytes or 0) // _PROCESS_BYTES
    return max(1, min(room, os.cpu_count() or 1))


def _under(settings: _Settings, planned: PlannedCase, program: str, tool: str, device: str) -> Sanitized:
    with scratch_folder() as scratch:
        log = scratch / f"{tool}.log"
        told = _run(
            settings,
            planned,
            tool,
            scratch,
            device=device,
            before=compute_sanitizer.before(program, tool, log),
            options=compute_sanitizer.OPTIONS,
        )
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    compute_sanitizer.check(text)
    if found := tuple(compute_sanitizer.findings(text)):
        return Sanitized(case=told.case, tool=tool, status="found", findings=found)
    if told.status == "failed":
        return replace(told, log=f"{told.log}\n{text}".strip()[-_LOG_CHARACTERS:])
    if not compute_sanitizer.ended(text):
        message = f"{tool} said nothing of what it saw, not even how many errors: nobody knows."
        return Sanitized(
            case=told.case,
            tool=tool,
            status="failed",
            reason="crashed",
            message=message,
            log=text[-_LOG_CHARACTERS:],
        )
    return told


def _simulated(
    settings: _Settings, plan: Sequence[PlannedCase], observer: SanitizeObserver
) -> list[Sanitized]:
    found = []
    for each in plan:
        observer.sanitizing(each.case.short_id)
        if "opencl" not in each.kernel.sources:
            message = f"{each.kernel.name} has no source for OpenCL: with a card, compute-sanitizer runs it."
            found.append(_skipped(each, OCLGRIND, "needs-backend", message))
            continue
        with scratch_folder() as scratch:
            log = scratch / "oclgrind.log"
            environment = oclgrind.environment(scratch, log)
            told = _run(
                settings,
                each,
                OCLGRIND,
                scratch,
                device=_SIMULATED,
                environment=environment,
                options=oclgrind.OPTIONS,
            )
            text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        if told.status == "clean" and (seen := tuple(oclgrind.findings(text))):
            told = Sanitized(case=told.case, tool=OCLGRIND, status="found", findings=seen)
        found.append(told)
    return found


def _skipped(planned: PlannedCase, tool: str, reason: str, message: str) -> Sanitized:
    return Sanitized(case=planned.case.id, tool=tool, status="skipped", reason=reason, message=message)


def _run(
    settings: _Settings,
    planned: PlannedCase,
    tool: str,
    scratch: Path,
    *,
    device: str,
    options: tuple[str, ...],
    environment: Mapping[str, str] = {},
    before: Sequence[str] = (),
) -> Sanitized:
    """What became of the process, as far as it knows itself."""
    case, loaded = planned.case.id, settings.loaded
    try:
        with closing(WorkerProcess(scratch, env=environment, before=before)) as child:
            work_tree = str(loaded.work_tree) if loaded.work_tree else None
            root = str(loaded.suite.root)
            opened(child, Open(device=device, suite=root, scratch=str(scratch), work_tree=work_tree))
            request = Sanitize(
                kernel=planned.kernel.name, sizes=planned.case.sizes, seed=settings.seed, options=options
            )
            reply = child.ask(request, settings.timeout_s)
            child.finish(_END_S)
    except HarnessError as error:
        return Sanitized(
            case=case, tool=tool, status="failed", reason=error.reason, message=error.message, log=error.log
        )
    if isinstance(reply, Failed):
        message = loaded.explained(reply.message, reply.log)
        return Sanitized(
            case=case, tool=tool, status="failed", reason=reply.reason, message=message, log=reply.log
        )
    return Sanitized(case=case, tool=tool, status="clean")
