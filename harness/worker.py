"""The child process that touches the device: ``python -m harness.worker``.

Whatever a kernel does to its process, its context or its card's driver ends here. Requests come on standard
input, replies go to what was standard output; anything that a kernel or a library prints goes to standard
error.
"""

from __future__ import annotations

__all__ = ["main"]

import contextlib
import ctypes
import dataclasses
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import BinaryIO, Literal

from harness import protocol
from harness.arena import Arena
from harness.backends import open_device
from harness.backends.base import Device, check_launch, compile_all
from harness.checker import Checker, emulator
from harness.errors import HarnessError
from harness.loader import load_folder
from harness.measure import Subject, measure
from harness.pairs import PairBench, SideError
from harness.parts import limited, single_blocks
from harness.peaks import check_rates
from harness.planning import launch_of
from harness.records import Launch, LibraryShare, Row
from harness.rotation import Rotation
from harness.seal import Seal
from harness.shares import Held, check_library, library_share
from harness.sources import Program, program
from harness.suite import Case, Kernel, Suite


class Worker:
    """One open device and one suite, or two to compare."""

    def __init__(self, request: protocol.Open, report: Callable[[protocol.Reply], None]) -> None:
        self.report = report
        self.device: Device = open_device(request.device)
        self._seal = Seal(self.device)
        scratch = Path(request.scratch)
        if request.suite is not None:
            self.suite: Suite = load_folder(Path(request.suite))
            self.checker = Checker(self.device, self.suite, scratch, self._progress)
            base = self.suite if request.base is None else load_folder(Path(request.base))
            suites = {"base": base, "head": self.suite}
            self.pairs = PairBench(self.device, suites, scratch, self._progress, request.peaks)

        self.peaks = request.peaks
        self._held: Held | None = None

    def _progress(self, stage: str) -> None:
        self.report(protocol.Progress(stage=stage))

    def answer(self, request: protocol.Request) -> protocol.Done:
        """Raises TamperedError where the suite has changed what it is judged by."""
        self._seal.check()
        try:
            return self._answer(request)
        finally:
            self._seal.check()

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
        made = program(self.suite, kernel, case, info.backend, info.arch, launch)
        return dataclasses.replace(made, emulate=emulator(self.suite.problem, kernel, case))

    def _launch(self, request: protocol.Measure, kernel: Kernel, case: Case) -> Launch:
        """The kernel's own launch, or the same in parts that each take less than was asked for."""
        launch = launch_of(kernel, case)
        if request.max_launch_ms is None or self.device.info.backend == "cpu":
            return launch
        self._progress("parts")
        parted = single_blocks(launch)
        check_launch(parted, self.device.info)
        built = self.device.build(self._program(kernel, case, parted))
        check_launch(parted, self.device.info, built.resources)
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
        built = self.device.build(source)
        check_launch(launch, self.device.info, built.resources)
        with contextlib.ExitStack() as stack:
            arena = stack.enter_context(Arena(self.device, self.suite.problem, case))
            subject = Subject(built, launch, arena.arguments(kernel))
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
                time_ns = median(measurement.times_ns)
                check_rates(self.device.info, self.peaks, self.suite.problem, case, measurement.l2, time_ns)
                if request.hold:
                    self._held = Held(case, arena, subject, rotation, measurement, stack.pop_all())
        failure = next((check.message for check in verification.checks if not check.passed), "")
        return Row(
            case=case.id,
            kernel=kernel.name,
            sizes=case.sizes,
            dtype=kernel.dtype,
            status="failed" if failure else "verified" if measurement is None else "measured",
            reason="wrong-result" if failure else "",
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
        built = self.device.build(self._program(library, case, launch))
        check_launch(launch, self.device.info, built.resources)
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
    _die_with_parent()
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    # What a suite or a library reads and prints must not be the protocol.
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    serve(requests, replies)
    return 0


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    def report(reply: protocol.Reply) -> None:
        replies.write(protocol.encode(reply))

    worker: Worker | None = None
    for line in requests:
        try:
            request = protocol.decode_request(line)
            if isinstance(request, protocol.Open):
                worker = Worker(request, report)
                report(
                    protocol.Opened(
                        device=worker.device.info, toolchain=worker.device.toolchain, pid=os.getpid()
                    )
                )
                continue
            assert worker is not None, "the first request opens the device"
            report(worker.answer(request))
        except SideError as failure:
            error = failure.error
            report(
                protocol.Failed(reason=error.reason, message=error.message, log=error.log, side=failure.side)
            )
        except HarnessError as error:
            report(
                protocol.Failed(
                    reason=error.reason, message=error.message, log=error.log, exit_code=error.exit_code
                )
            )
        except Exception as error:  # noqa: BLE001 - a suite's own code may raise anything; it must cost one row only
            message = f"{type(error).__name__}: {error}"
            report(protocol.Failed(reason="error", message=message, log=traceback.format_exc()))


def _die_with_parent() -> None:
    """Do not outlive a session that was killed: the card would stay busy with nobody waiting."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main())
