"""The child process that uses the device: ``python -m harness.measure.worker``.

A kernel can break its process, its context or its card's driver; the damage stays in this process. Requests
come on standard input. Replies go to the original standard output. Anything that a kernel or a library prints
goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

from harness.device.backends import described, devices_of, nvcc, open_device, parse_spec
from harness.device.backends.base import Built, Device
from harness.device.static.architecture_builds import builds, facts_of_arch
from harness.errors import HarnessError, Side
from harness.measure import protocol
from harness.measure.base_outputs import checker_of
from harness.measure.buffers import Buffers
from harness.measure.earlier_arrays import EarlierArrays
from harness.measure.early_worker import retain_context
from harness.measure.one_of_two_workers import TurnTaker
from harness.measure.paired_kernels import (
    HeldKernel,
    PairBench,
    PreparedKernel,
    arguments_of,
    build,
    first_launch,
    launch_on,
    library_share,
    prepare,
)
from harness.measure.protocol import SideName
from harness.measure.remote_suite import remote_suite
from harness.measure.timing import Subject, limited, measure
from harness.measure.verifier import Restoring, Rotation
from harness.measure.verify import first_wrong
from harness.numbers import Value
from harness.records.types import Launch, LibraryShare, Row, RowStatus
from harness.suite.device_facts import facts_of
from harness.suite.kernel import on_device
from harness.suite.loader import imports_of, load_folder
from harness.suite.planning import PlannedCase, launch_of
from harness.suite.problem import Case
from harness.suite.sources import Program, program
from harness.suite.suite import Suite
from harness.suite.suite_data import OriginCall, ReturnValue
from harness.suite.suite_files import origin_sha256
from harness.suite.tampering import TamperCheck, look_ahead
from harness.system.cache import BinaryCache
from harness.system.file_access import check_committed, reaches_beside, watch
from harness.system.process import Channel, Progress, serve

_TIMED = ("measure", "parts")
"""Stages with timed launches, which begin when no other process opens or leaves the device."""


def _suites(request: protocol.Open, channel: Channel) -> dict[str, Suite]:
    """Return the suite of each side. At most one of two commits is loaded in this process."""
    assert request.suite is not None
    folders: dict[SideName, str] = {"base": request.base or request.suite, "head": request.suite}
    here = {folder for side, folder in folders.items() if side not in request.told}
    assert len(here) <= 1, "two commits of a suite must not share a process"
    loaded = {folder: load_folder(Path(folder)) for folder in here}
    return {
        side: loaded.get(folder)
        or remote_suite(side, request.told[side], Path(folder), channel, Path(request.scratch))
        for side, folder in folders.items()
    }


def _earlier(
    request: protocol.Open, suites: Mapping[str, Suite], channel: Channel
) -> dict[str, EarlierArrays]:
    """Return the arrays of earlier commands for the suite of each side; nothing if they cannot be used."""

    def origin(side: SideName) -> str:
        if side not in request.told:
            return origin_sha256(suites[side])
        answer = channel.ask(side, OriginCall())
        return str(answer.value) if isinstance(answer, ReturnValue) else ""

    if request.arrays is None:
        return {}
    sides: tuple[SideName, ...] = ("base", "head")
    return {side: EarlierArrays(Path(request.arrays), partial(origin, side)) for side in sides}


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class Worker:
    """An open device, and once it is loaded one suite, or two to compare."""

    def __init__(self, request: protocol.Open, channel: Channel) -> None:
        """Open the device, and load the suites of the request, if any."""
        told = ""

        def tell(stage: str, side: Side = "") -> str:
            nonlocal told
            before, told = told, stage
            channel.send(Progress(stage, side, waits=stage in _TIMED))
            return before

        self.report = tell
        for data in request.told.values() if len(request.told) == 2 else ():
            _set(data.variables)  # Both sides have the same; otherwise each would have its own process.
        self.device: Device = open_device(request.device)
        self._open_beside(request.cards)
        self._tamper_check = TamperCheck(self.device)
        self._held: HeldKernel | None = None
        if request.suite is not None:
            self.load(request, channel)

    def _open_beside(self, cards: int) -> None:
        """Open the cards after the device now: a framework would open them while another process measures."""
        backend, index = parse_spec(self.device.info.spec)
        for other in range(index + 1, index + cards) if backend == "cuda" else ():
            retain_context(other)

    def load(self, request: protocol.Open, channel: Channel) -> None:
        """Load the suites, for requests about their kernels."""
        scratch = Path(request.scratch)
        watch(Path(request.work_tree) if request.work_tree else None)
        suites = _suites(request, channel)
        self.suite: Suite = suites["head"]
        earlier = _earlier(request, suites, channel)
        self.checker = checker_of(self.device, self.suite, scratch, self.report, earlier.get("head"))
        self.pairs = PairBench(
            self.device,
            suites,
            scratch,
            self.report,
            request.peaks,
            request.compilers,
            earlier,
            request.told,
        )
        self.turns = TurnTaker(self.pairs)

    def answer(self, request: protocol.WorkerRequest) -> object:
        """Answer a request. Raises TamperedError if the suite changed the code that judges it."""
        if not isinstance(request, protocol.Take):  # A turn follows the check after the turn before.
            self._tamper_check.check()
        try:
            return self._answer(request)
        finally:
            self._tamper_check.check()

    def _answer(self, request: protocol.WorkerRequest) -> object:
        if isinstance(request, protocol.Timers):
            return self.ticks()
        answers: dict[type, Callable[[Any], object]] = {
            protocol.BuildAll: self.pairs.build_all,
            protocol.BuildOnly: self.build_only,
            protocol.Sanitize: self.sanitize,
            protocol.Measure: self.run,
            protocol.HoldAgainst: self.hold_against,
            protocol.Prepare: self.pairs.prepare,
            protocol.Inspect: self.pairs.inspect,
            protocol.Differences: self.pairs.differences,
            protocol.Compare: self.pairs.compare,
            protocol.FindSteps: self.pairs.find_steps,
            protocol.RunAlone: self.pairs.solo,
            protocol.CountEvents: self.pairs.count,
            protocol.ListLaunches: self.pairs.list_launches,
            protocol.BuildSide: self.pairs.build_side,
            protocol.Join: self.turns.join,
            protocol.Verify: self.turns.verify,
            protocol.WarmUp: self.turns.warm_up,
            protocol.Take: self.turns.take,
            protocol.Finish: self.turns.finish,
        }
        return answers[type(request)](request)

    def ticks(self) -> protocol.TimersReply:
        tick_ns = self.device.tick_ns()
        try:
            return protocol.TimersReply(
                tick_ns=tick_ns, globaltimer_tick_ns=self.device.globaltimer_tick_ns()
            )
        except HarnessError as error:
            return protocol.TimersReply(tick_ns=tick_ns, problem=error.message, log=error.log)

    def build_only(self, request: protocol.BuildOnly) -> protocol.BuildOnlyReply:
        def make(planned: PlannedCase, arch: str) -> Program:
            kernel = planned.kernel
            with imports_of(self.suite, kernel, "cuda"):
                case = on_device(kernel, planned.case, facts_of_arch(arch))
                launch = launch_of(kernel, case) if kernel.dispatch else None
                return program(self.suite, kernel, case, "cuda", arch, launch, self.checker.scratch)

        kernels = [(self.suite.by_name[case.kernel], case.sizes) for case in request.cases]
        planned = [PlannedCase(kernel, self.suite.case(kernel, sizes)) for kernel, sizes in kernels]
        cache = BinaryCache()
        found = builds(
            planned,
            request.archs,
            make,
            cache=cache,
            instructions=request.instructions,
            libraries=request.libraries,
            timeout_s=request.timeout_s,
            tell=lambda done, every: self.report(f"compiled {done} of {every}"),
        )
        relied_on = None if reaches_beside(self.suite.root) else cache.relied_on
        return protocol.BuildOnlyReply(builds=tuple(found), compiler=nvcc.version(), relied_on=relied_on)

    def sanitize(self, request: protocol.Sanitize) -> None:
        case = self._case(request.kernel, request.sizes)
        prepared = self._prepare(case)
        source = replace(prepared.source, options=(*prepared.source.options, *request.options))
        built = build(self.device, replace(prepared, source=source))
        with Buffers(self.device, self.suite.problem, case, guarded=False) as buffers:
            buffers.write(self.checker.inputs(case, request.seed))
            buffers.begin()
            self.report("sanitize")
            eager = replace(prepared.launch, graph=False)
            self.device.launch(built, eager, arguments_of(buffers, prepared))
            self.device.synchronize()

    def _case(self, kernel: str, sizes: Mapping[str, int], macros: Mapping[str, Value] = {}) -> Case:
        return self.suite.case(self.suite.by_name[kernel], sizes, macros, facts_of(self.device.info))

    def _prepare(self, case: Case, launch: Launch | None = None) -> PreparedKernel:
        return prepare(self.device, self.suite, case, self.checker.scratch, launch)

    def _launch(self, request: protocol.Measure, case: Case) -> Launch:
        """Return the kernel's own launch, or the launch in parts that each take at most the
        requested time.
        """
        launch = launch_on(self.device, self.suite, case, self.checker.scratch)
        if request.max_launch_ms is None or self.device.info.backend == "cpu":
            return launch
        self.report("parts")
        parted = replace(launch, dispatch=(1, 1, 1))  # built for parts of any size
        prepared = self._prepare(case, parted)
        built = build(self.device, prepared)
        with Buffers(self.device, self.suite.problem, case) as buffers:
            buffers.write(self.checker.inputs(case, request.seed))
            subject = Subject(built, parted, arguments_of(buffers, prepared))
            return limited(self.device, subject, launch, request.max_launch_ms, Restoring(buffers))

    def run(self, request: protocol.Measure) -> Row:
        self._release()
        case = self._case(request.kernel, request.sizes, request.macros)
        launch = self._launch(request, case)
        self.report("build")
        prepared = self._prepare(case, launch)
        kernel, built = prepared.kernel, build(self.device, prepared, self.report)
        with contextlib.ExitStack() as stack:
            buffers = stack.enter_context(Buffers(self.device, self.suite.problem, case))
            subject = Subject(built, launch, arguments_of(buffers, prepared))
            inputs = partial(self.checker.inputs, case, request.seed)
            first_launch(prepared, buffers, subject, inputs, self.report)
            by_base = ""
            if request.by_base:  # before the suite's own data, which are timed
                by_base = self.pairs.wrong_by_base(case, buffers, subject, request.seed, self.suite)
            verification = self.checker.check(case, buffers, subject, request.seed)
            measurement = None
            if verification.passed and request.settings is not None:
                rng = random.Random(request.seed)  # noqa: S311 - an order, not a secret
                # A sweep has many configurations of one source. Data for each would cost more than they show.
                sets: Literal[1, 3] = 1 if request.macros else 3
                rotation = Rotation(self.checker, buffers, case, request.seed, rng, sets=sets)
                rotation.admit(subject, case)
                self.report("measure")
                measurement = measure(self.device, subject, request.settings, rotation)
                check_committed([self.suite.root])
                self.pairs.check_rates(prepared, measurement.l2, median(measurement.times_ns))
                if request.hold:
                    self._held = HeldKernel(subject, rotation, measurement, stack.pop_all())
        wrong = first_wrong(verification)
        failure = wrong or by_base
        return Row(
            case=case.id,
            kernel=kernel.name,
            sizes=case.sizes,
            dtype=kernel.dtype,
            status=self._status(failure, timed=measurement is not None),
            reason="wrong-result" if wrong else "wrong-by-base" if by_base else "",
            message=failure,
            flop=self.suite.problem.flop(case),
            moved_bytes=self.suite.problem.moved_bytes(case),
            launch=launch,
            verification=verification if verification.checks else None,
            outputs=None if failure else self.checker.held(verification, case, request.seed),
            measurement=measurement,
            **self._identity(prepared, built),
        )

    def _identity(self, prepared: PreparedKernel, built: Built) -> dict[str, Any]:
        """Return hashes and resources; no hashes if a host function reads or may import other files."""
        resources = built.resources
        if prepared.source.kind != "host" or not reaches_beside(self.suite.root):
            return {"source_sha256": prepared.source.sha256, "resources": resources}
        return {"resources": replace(resources, binary_sha256=None, code_sha256=None)}

    def _status(self, failure: str, *, timed: bool) -> RowStatus:
        if failure:
            return "failed"
        if timed:
            return "measured"
        if self.device.info.backend == "null":
            return "not-built"  # The reference replaces the kernel, and proves nothing about the source.
        return "verified" if self.suite.problem.held_to == "reference" else "ran"

    def hold_against(self, request: protocol.HoldAgainst) -> LibraryShare:
        assert self._held is not None, "a Measure with hold comes first"
        case = self._case(request.library, self._held.rotation.case.sizes)
        self.report("library")
        prepared = self._prepare(case)
        built = build(self.device, prepared)
        buffers, seed = self._held.rotation.buffers, self._held.rotation.first()
        launch = replace(prepared.launch, graph=self._held.subject.launch.graph)
        subject = Subject(built, launch, arguments_of(buffers, prepared, case))
        inputs = partial(self.checker.inputs, case, seed)
        first_launch(prepared, buffers, subject, inputs, self.report)
        share = library_share(self.checker, self._held, case, subject)
        self.pairs.check_rates(prepared, self._held.measurement.l2, share.library_time_ns)
        self._release()
        return share

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.stack.close()


def before_forks() -> None:
    """Do what is equal in all workers on a card. A process that forks workers calls this once.

    PyCUDA itself is left to the workers, because it loads the driver's library.
    """
    with contextlib.suppress(HarnessError, ImportError):  # a worker that needs it reports why it is missing
        nvcc.version()
        importlib.import_module("harness.device.backends.cuda")
        for each in ("pytools", "ml_dtypes", "numpy.random"):  # pytools is most of importing PyCUDA
            importlib.import_module(each)
    look_ahead()


def main() -> int:
    """Serve requests until standard input ends. The exit status is always 0, since replies carry errors."""
    worker: Worker | None = None

    def answer(request: protocol.WorkerRequest, channel: Channel) -> object:
        nonlocal worker
        if isinstance(request, protocol.DescribeDevices):
            return tuple(map(described, request.specs)) or tuple(devices_of("cuda"))
        if isinstance(request, protocol.Open):
            if worker is None:
                worker = Worker(request, channel)
            else:
                worker.load(request, channel)
            return protocol.OpenReply(device=worker.device.info, toolchain=worker.device.toolchain)
        assert worker is not None, "the first request opens the device"
        return worker.answer(request)

    serve(protocol.WorkerRequest, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
