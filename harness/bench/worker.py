"""The child process that touches the device: ``python -m harness.bench.worker``.

Whatever a kernel does to its process, its context or its card's driver ends here. Requests come on standard
input, replies go to what was standard output; anything that a kernel or a library prints goes to standard
error.
"""

from __future__ import annotations

__all__ = ["main"]

import contextlib
import dataclasses
import os
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Literal

from harness.bench import protocol
from harness.bench.buffers import Arena
from harness.bench.chunks import limited, single_blocks
from harness.bench.library_ratio import Held, check_library, library_share
from harness.bench.measure import Subject, measure
from harness.bench.pair_runner import PairBench, SideError
from harness.bench.rotation import Rotation
from harness.bench.verifier import Checker, emulator
from harness.device.backends import open_device
from harness.device.backends.base import Built, Device, check_launch, compile_all
from harness.device.peaks import check_rates
from harness.errors import HarnessError
from harness.records import Launch, LibraryShare, Row
from harness.spec.planning import launch_of
from harness.spec.sources import Program, program
from harness.spec.suite import Case, Kernel, Suite
from harness.spec.suite_file import imports_of, load_folder
from harness.spec.tampering import TamperCheck
from harness.system.file_access import check_committed, watch
from harness.system.process import serve


class Worker:
    """One open device and one suite, or two to compare."""

    def __init__(self, request: protocol.Open, report: Callable[[protocol.Reply], object]) -> None:
        self.report = report
        self.device: Device = open_device(request.device)
        self._tamper_check = TamperCheck(self.device)
        scratch = Path(request.scratch)
        watch(Path(request.work_tree) if request.work_tree else None)
        if request.suite is not None:
            path = list(sys.path)
            base = None if request.base is None else load_folder(Path(request.base))
            sys.path[:] = path  # what base's code added is not head's to import from
            self.suite: Suite = load_folder(Path(request.suite))
            self.checker = Checker(self.device, self.suite, scratch, self._progress)
            suites = {"base": base or self.suite, "head": self.suite}
            self.pairs = PairBench(self.device, suites, scratch, self._progress, request.peaks)

        self.peaks = request.peaks
        self._held: Held | None = None

    def _progress(self, stage: str) -> None:
        self.report(protocol.Progress(stage=stage))

    def answer(self, request: protocol.Request) -> protocol.Done:
        """Raises TamperedError where the suite has changed what it is judged by."""
        self._tamper_check.check()
        try:
            return self._answer(request)
        finally:
            self._tamper_check.check()

    def _answer(self, request: protocol.Request) -> protocol.Done:
        match request:
            case protocol.BuildAll():
                return self.build_all(request)
            case protocol.Measure():
                return protocol.Done(row=self.run(request))
            case protocol.HoldAgainst():
                return protocol.Done(library=self.hold_against(request))
            case protocol.Timers():
                return protocol.Done(ticks=self.ticks())
            case _:
                assert not isinstance(request, protocol.Open)
                return self.pairs.answer(request)

    def ticks(self) -> protocol.Ticks:
        tick_ns = self.device.tick_ns()
        try:
            return protocol.Ticks(tick_ns=tick_ns, globaltimer_tick_ns=self.device.globaltimer_tick_ns())
        except HarnessError as error:
            return protocol.Ticks(tick_ns=tick_ns, problem=error.message, log=error.log)

    def build_all(self, request: protocol.BuildAll) -> protocol.Done:
        """Compile what the cases need, several at a time; whoever needs a broken one gets the error then."""
        programs: list[Program] = []
        for name, sizes in request.cases:
            with contextlib.suppress(HarnessError):
                kernel = self.suite.by_name[name]
                case = self.suite.case(kernel, sizes)
                programs.append(self._program(kernel, case, launch_of(kernel, case)))
        compile_all(self.device, programs)
        return protocol.Done()

    def _program(self, kernel: Kernel, case: Case, launch: Launch) -> Program:
        info = self.device.info
        with imports_of(self.suite, kernel, info.backend):
            made = program(self.suite, kernel, case, info.backend, info.arch, launch, self.checker.scratch)
        return dataclasses.replace(made, emulate=emulator(self.suite.problem, kernel, case))

    def _build(self, kernel: Kernel, source: Program, launch: Launch) -> Built:
        with imports_of(self.suite, kernel, self.device.info.backend):
            built = self.device.build(source)
        check_launch(launch, self.device.info, built.resources)
        return built

    def _launch(self, request: protocol.Measure, kernel: Kernel, case: Case) -> Launch:
        """The kernel's own launch, or the same in parts that each take less than was asked for."""
        launch = launch_of(kernel, case)
        if request.max_launch_ms is None or self.device.info.backend == "cpu":
            return launch
        self._progress("parts")
        parted = single_blocks(launch)
        check_launch(parted, self.device.info)
        built = self._build(kernel, self._program(kernel, case, parted), parted)
        with Arena(self.device, self.suite.problem, case) as arena:
            arena.write(self.checker.inputs(case, request.seed))
            subject = Subject(built, parted, arena.arguments(kernel))
            return limited(self.device, subject, launch, request.max_launch_ms)

    def run(self, request: protocol.Measure) -> Row:
        self._release()
        kernel = self.suite.by_name[request.kernel]
        case = self.suite.case(kernel, request.sizes, request.macros)
        launch = self._launch(request, kernel, case)
        check_launch(launch, self.device.info)
        self._progress("build")
        source = self._program(kernel, case, launch)
        built = self._build(kernel, source, launch)
        with contextlib.ExitStack() as stack:
            arena = stack.enter_context(Arena(self.device, self.suite.problem, case))
            subject = Subject(built, launch, arena.arguments(kernel))
            # Before the suite's own data, which are what is timed.
            by_base = ""
            if request.by_base:
                by_base = self.pairs.wrong_by_base(case, arena, subject, request.seed)
            verification = self.checker.check(case, arena, subject, request.seed)
            measurement = None
            if verification.passed and request.settings is not None:
                rng = random.Random(request.seed)  # noqa: S311 - an order, not a secret
                # A sweep's configurations are many, and of one source: their data cost more than they show.
                sets: Literal[1, 3] = 1 if request.macros else 3
                rotation = Rotation(self.checker, arena, case, request.seed, rng, sets=sets)
                rotation.admit(subject, case)
                self._progress("measure")
                measurement = measure(self.device, subject, request.settings, rotation)
                check_committed([self.suite.root])
                time_ns = median(measurement.times_ns)
                check_rates(self.device.info, self.peaks, self.suite.problem, case, measurement.l2, time_ns)
                if request.hold:
                    self._held = Held(case, arena, subject, rotation, measurement, stack.pop_all())
        wrong = next((check.message for check in verification.checks if not check.passed), "")
        failure = wrong or by_base
        return Row(
            case=case.id,
            kernel=kernel.name,
            sizes=case.sizes,
            dtype=kernel.dtype,
            status="failed" if failure else "verified" if measurement is None else "measured",
            reason="wrong-result" if wrong else "wrong-by-base" if by_base else "",
            message=failure,
            flop=self.suite.problem.flop(case),
            moved_bytes=self.suite.problem.moved_bytes(case),
            source_sha256=source.sha256,
            launch=launch,
            resources=built.resources,
            verification=verification,
            measurement=measurement,
        )

    def hold_against(self, request: protocol.HoldAgainst) -> LibraryShare:
        assert self._held is not None, "a Measure with hold comes first"
        library = self.suite.by_name[request.library]
        case = self.suite.case(library, self._held.case.sizes)
        launch = launch_of(library, case)
        check_launch(launch, self.device.info)
        self._progress("library")
        built = self._build(library, self._program(library, case, launch), launch)
        subject = Subject(built, launch, self._held.arena.arguments(library))
        check_library(self.checker, self._held, case, subject)
        self._progress("library")
        share = library_share(self.device, self._held, library.name, subject)
        l2 = self._held.measurement.l2
        check_rates(self.device.info, self.peaks, self.suite.problem, case, l2, share.library_time_ns)
        self._release()
        return share

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.stack.close()


def main() -> int:
    """Serve requests until standard input ends. The exit status says nothing: replies do."""
    worker: Worker | None = None

    def answer(line: bytes, send: Callable[[bytes], object]) -> None:
        nonlocal worker
        try:
            request = protocol.decode_request(line)
            if isinstance(request, protocol.Open):
                worker = Worker(request, lambda reply: send(protocol.encode(reply)))
                reply: protocol.Reply = protocol.Opened(
                    device=worker.device.info, toolchain=worker.device.toolchain, pid=os.getpid()
                )
            else:
                assert worker is not None, "the first request opens the device"
                reply = worker.answer(request)
        except SideError as failure:
            reply = _failed(failure.error, side=failure.side)
        except HarnessError as error:
            reply = _failed(error)
        except BaseException as error:  # noqa: BLE001 - a suite's own code may raise anything; it must cost one row only
            message = f"{type(error).__name__}: {error}"
            reply = protocol.Failed(reason="error", message=message, log=traceback.format_exc())
        send(protocol.encode(reply))

    serve(answer)
    return 0


def _failed(error: HarnessError, side: Literal["base", "head", ""] = "") -> protocol.Failed:
    return protocol.Failed(
        reason=error.reason, message=error.message, log=error.log, exit_code=error.exit_code, side=side
    )


if __name__ == "__main__":
    sys.exit(main())
