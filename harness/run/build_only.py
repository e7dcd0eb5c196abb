"""Building a suite's kernels for architectures that need not be here. No device is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from harness.bench.protocol import BuildOnly, BuiltOnly, CaseOf, Open
from harness.errors import BuildError, ExitCode, UsageError
from harness.run import kept_builds
from harness.run.device_session import WorkerProcess, opened
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase
from harness.spec.problem import ceil_div
from harness.static import disassembly
from harness.static.builds import Build
from harness.system.files import scratch_folder
from harness.system.process import Failed


@dataclass(frozen=True, slots=True)
class BuildResult:
    loaded: LoadedSuite
    compiler: str
    """Empty where there is none."""
    disassembler: str
    """Likewise, and where nobody asked for instructions."""
    builds: tuple[Build, ...]


def build_only(
    loaded: LoadedSuite,
    plan: Sequence[PlannedCase],
    archs: Sequence[str],
    timeout_s: float,
    *,
    instructions: bool = False,
    tell: Callable[[str], object] = lambda _stage: None,
) -> BuildResult:
    """Build every case's kernel for every architecture, several at a time; with `instructions`, tell what
    they are. `tell` is called with how far it has come.

    `timeout_s` is for one compilation. Raises BuildError where the process that does it is lost, SuiteError
    where it cannot load the suite.
    """
    cases = tuple(CaseOf(kernel=each.kernel.name, sizes=each.case.sizes) for each in plan)
    request = BuildOnly(cases=cases, archs=tuple(archs), instructions=instructions, timeout_s=timeout_s)
    key = kept_builds.key_of(loaded.suite, request)
    if (reply := kept_builds.kept(key)) is None:
        reply = _asked(loaded, request, timeout_s, tell)
        if kept_builds.key_of(loaded.suite, request) == key:  # no file was edited meanwhile
            kept_builds.keep(key, reply)
    explained = (
        replace(each, message=loaded.explained(each.message, each.log)) if each.message else each
        for each in reply.builds
    )
    disassembler = disassembly.version() if instructions else ""
    return BuildResult(loaded, reply.compiler, disassembler and f"nvdisasm {disassembler}", tuple(explained))


def _asked(
    loaded: LoadedSuite, request: BuildOnly, timeout_s: float, tell: Callable[[str], object]
) -> BuiltOnly:
    """A worker's answer."""
    turns = ceil_div(len(request.cases) * len(request.archs), os.cpu_count() or 1)
    with scratch_folder() as scratch, closing(WorkerProcess(scratch)) as child:
        work_tree = str(loaded.work_tree) if loaded.work_tree else None
        # The null device: a suite is loaded and no card touched.
        opened(
            child,
            Open(device="null", suite=str(loaded.suite.root), scratch=str(scratch), work_tree=work_tree),
        )
        reply = child.ask(request, timeout_s * (1 + turns), lambda progress: tell(progress.stage))
    if isinstance(reply, Failed):
        kind = UsageError if reply.exit_code == ExitCode.USAGE else BuildError
        raise kind(loaded.explained(reply.message, reply.log), log=reply.log)
    return reply
