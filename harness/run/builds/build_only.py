"""Builds a suite's kernels for architectures that need not be present. No device is opened.

Results are cached by everything that they depend on. With a cached result no worker loads the suite,
generates a source or compiles. Only the process that runs no suite code reads and writes the cache, under a
hash of the suite's whole tree: an answer from a commit's code counts for that tree alone. The cache is as
trustworthy as the users who may write to it: see "Secrets and caches" in docs/runners.md.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness.device.backends import nvcc
from harness.device.static import disassembly
from harness.device.static.architecture_builds import Build
from harness.device.static.differences import Difference, differences
from harness.device.static.static_facts import StaticFacts, facts
from harness.errors import BuildError, ExitCode, SuiteError, UsageError
from harness.measure.protocol import BuildOnly, BuildOnlyReply, CaseOf
from harness.run.worker_process import WorkerProcess
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase
from harness.suite.problem import Case, ceil_div
from harness.suite.suite import Suite
from harness.suite.suite_files import tree_sha256
from harness.system.cache import BinaryCache, own_code
from harness.system.files import scratch_folder
from harness.system.process import Failed


@dataclass(frozen=True, slots=True)
class BuildResult:
    loaded: LoadedSuite
    compiler: str
    """Name and version of the compiler; empty without one."""
    disassembler: str
    """Name and version of the disassembler; empty without one, or if no instructions were requested."""
    builds: tuple[Build, ...]


def build_only(
    loaded: LoadedSuite,
    plan: Sequence[PlannedCase],
    archs: Sequence[str],
    timeout_s: float,
    *,
    instructions: bool = False,
    libraries: bool = True,
    tell: Callable[[str], object] = lambda _stage: None,
) -> BuildResult:
    """Build every case's kernel for every architecture, several at a time.

    With `instructions`, count the kinds of instructions. Without `libraries`, compile no host libraries.
    `tell` gets the progress. `timeout_s` is for one compilation. Raises BuildError if the building process is
    lost, SuiteError if it cannot load the suite.
    """
    cases = tuple(CaseOf(kernel=each.kernel.name, sizes=each.case.sizes) for each in plan)
    request = BuildOnly(
        cases=cases,
        archs=tuple(archs),
        instructions=instructions,
        libraries=libraries,
        timeout_s=timeout_s,
    )
    key = _key_of(loaded.suite, request)
    if (reply := _kept(key)) is None:
        reply = _asked(loaded, request, timeout_s, tell)
        if _key_of(loaded.suite, request) == key:  # no file was edited in the meantime
            _keep(key, reply)
    explained = (
        replace(each, message=loaded.explained(each.message, each.log)) if each.message else each
        for each in reply.builds
    )
    disassembler = disassembly.version() if instructions else ""
    return BuildResult(loaded, reply.compiler, disassembler and f"nvdisasm {disassembler}", tuple(explained))


def _asked(
    loaded: LoadedSuite, request: BuildOnly, timeout_s: float, tell: Callable[[str], object]
) -> BuildOnlyReply:
    turns = ceil_div(len(request.cases) * len(request.archs), os.cpu_count() or 1)
    with scratch_folder() as scratch, closing(WorkerProcess(scratch)) as child:
        # The null device loads a suite without using a card.
        child.begin_open("null", loaded.suite.root, work_tree=loaded.work_tree)()
        reply = child.ask(request, timeout_s * (1 + turns), lambda progress: tell(progress.stage))
    if isinstance(reply, Failed):
        kind = UsageError if reply.exit_code == ExitCode.USAGE else BuildError
        raise kind(loaded.explained(reply.message, reply.log), log=reply.log)
    return reply


def code_differences(
    base: LoadedSuite, head: LoadedSuite, cases: Sequence[Case], arch: str, timeout_s: float
) -> Mapping[str, Difference]:
    """Return by its id how the code of each compared case differs on an architecture.

    Raises BuildError, SuiteError.
    """
    with ThreadPoolExecutor(2) as pool:
        sides = pool.map(lambda side: _facts(side, cases, arch, timeout_s), (base, head))
    found = differences(*sides)
    return {case: each for each in found for case in each.shown.cases}


def _facts(loaded: LoadedSuite, cases: Sequence[Case], arch: str, timeout_s: float) -> list[StaticFacts]:
    suite = loaded.suite
    planned = [
        PlannedCase(kernel, suite.case(kernel, case.sizes))
        for case in cases
        for kernel in [suite.by_name[case.kernel]]
    ]
    result = build_only(loaded, planned, [arch], timeout_s, instructions=True, libraries=False)
    return facts(suite.problem, planned, result.builds, {})


# Cached results


def _key_of(suite: Suite, request: BuildOnly) -> str | None:
    """Return the key of everything that an answer depends on; None if the suite's files cannot be read."""
    try:
        tree = tree_sha256(suite)
    except SuiteError:
        return None
    # Headers found in folders are identified by their whole paths.
    root = str(suite.root) if suite.include or any(each.include for each in suite.kernels) else ""
    asked = repr((suite.name, request.cases, request.archs, request.instructions, request.libraries))
    tools = (*nvcc.identity(), disassembly.version() if request.instructions else "")
    return BinaryCache.key(tree, (asked, root, *tools, _installed(), sys.version), own_code(), "builds")


def _kept(key: str | None) -> BuildOnlyReply | None:
    """Return a cached answer, if everything that it depends on is unchanged."""
    if key is None or (entry := BinaryCache().get(key)) is None:
        return None
    try:
        found = msgspec.msgpack.decode(entry, type=BuildOnlyReply)
    except msgspec.MsgspecError:
        return None
    return found if all(each.is_current() for each in found.relied_on or ()) else None


def _keep(key: str | None, found: BuildOnlyReply) -> None:
    """Cache an answer, unless a compilation failed: it may have run out of time or memory."""
    problems = [each.code.problem for each in found.builds if each.code]
    failed = any(each.status == "failed" for each in found.builds)
    if key is not None and found.relied_on is not None and not failed and not any(problems):
        BinaryCache().put(key, msgspec.msgpack.encode(found))


@functools.cache
def _installed() -> str:
    """Return the packages that a suite can import, with versions, by the names of their folders."""
    folders = [Path(folder) for folder in dict.fromkeys(sys.path)]
    names = (folder.glob(f"*.{kind}-info") for folder in folders for kind in ("dist", "egg"))
    return "\n".join(sorted(str(name) for some in names for name in some))
