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
import hashlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from harness import protocol, verify
from harness.arena import Arena, same_bits
from harness.backends import open_device
from harness.backends.base import Device, check_launch
from harness.errors import HarnessError, OutOfMemoryError
from harness.loader import load_folder
from harness.measure import Subject, measure
from harness.planning import launch_of
from harness.records import Check, Row, Verification
from harness.sources import Program, program
from harness.suite import Case, Kernel, Problem, Suite

INTEGER_CHECK_ELEMENTS = 2**20
"""The exact check runs on cases with outputs up to this size: it is for indexing mistakes, which show when
small."""
TOLERANCE = "-tolerance"
"""Beside the outputs in a kept reference, under what no output can be called."""
RUNS_PER_CHECK = 2
"""A race need not show at the first run."""


class Worker:
    """One open device and one suite."""

    def __init__(self, request: protocol.Open, report: Callable[[protocol.Reply], None]) -> None:
        self.report = report
        self.device: Device = open_device(request.device)
        if request.suite is not None:
            self.suite: Suite = load_folder(Path(request.suite))
        self.scratch = Path(request.scratch)

    def build_all(self, request: protocol.BuildAll) -> None:
        """Compile what the cases need, several at a time; whoever needs a broken one gets the error then."""
        programs: dict[str, Program] = {}
        for name, sizes in request.cases:
            with contextlib.suppress(HarnessError):
                kernel = self.suite.by_name[name]
                source = program(self.suite, kernel, self.suite.case(kernel, sizes), self.device.info.backend)
                programs[source.sha256] = source

        def compile_one(source: Program) -> None:
            with contextlib.suppress(HarnessError):
                self.device.compile(source)

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(compile_one, programs.values()))

    def run(self, request: protocol.Measure) -> Row:
        kernel = self.suite.by_name[request.kernel]
        case = self.suite.case(kernel, request.sizes)
        launch = launch_of(kernel, case)
        check_launch(launch, self.device.info)
        self.report(protocol.Progress(stage="build"))
        source = program(self.suite, kernel, case, self.device.info.backend)
        source = dataclasses.replace(source, emulate=self._emulator(kernel, case))
        built = self.device.build(source)
        check_launch(launch, self.device.info, built.resources)
        with Arena(self.device, self.suite.problem, case) as arena:
            subject = Subject(built, launch, arena.arguments(kernel))
            verification = self._verify(case, arena, subject, request.seed)
            measurement = None
            if verification.passed and request.settings is not None:
                self.report(protocol.Progress(stage="measure"))
                measurement = measure(self.device, subject, request.settings)
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

    def _verify(self, case: Case, arena: Arena, subject: Subject, seed: int) -> Verification:
        checks = []
        bound = self.suite.problem.integer_bound(case)
        elements = max(
            int(np.prod(output.shape_at(case), dtype=np.int64))
            for output in self.suite.problem.outputs.values()
        )
        if bound is not None and elements <= INTEGER_CHECK_ELEMENTS:
            checks.append(self._check(case, arena, subject, "integers", seed, bound))
        # Last, so that what is timed afterwards is random data: integers draw less power and run faster.
        if not checks or checks[-1].passed:
            checks.append(self._check(case, arena, subject, "random", seed, 0))
        return Verification(passed=all(check.passed for check in checks), checks=tuple(checks))

    def _check(
        self,
        case: Case,
        arena: Arena,
        subject: Subject,
        data: Literal["integers", "random"],
        seed: int,
        bound: int,
    ) -> Check:
        problem = self.suite.problem
        self.report(protocol.Progress(stage="reference"))
        _check_host_memory(problem, case)
        inputs = self._inputs(case, data, seed, bound)
        arena.write(inputs)
        outputs: dict[str, NDArray[Any]] = {}
        found: dict[str, list[verify.Comparison]] = {}
        for _ in range(RUNS_PER_CHECK):
            self.report(protocol.Progress(stage="verify"))
            arena.poison()
            self.device.launch(subject.built, subject.launch, subject.arguments)
            self.device.synchronize()
            earlier, outputs = outputs, {name: arena.read(name) for name in problem.outputs}
            if earlier and all(same_bits(outputs[name], earlier[name]) for name in outputs):
                break  # what has been compared already
            found = self._compare(case, inputs, outputs, (data, seed))
            if any(comparison.wrong for parts in found.values() for comparison in parts):
                break
        return verify.combine(found, data, seed, arena.damage(inputs))

    def _compare(
        self, case: Case, inputs: verify.Arrays, outputs: verify.Arrays, key: tuple[str, int]
    ) -> dict[str, list[verify.Comparison]]:
        problem = self.suite.problem
        found: dict[str, list[verify.Comparison]] = {name: [] for name in outputs}
        for part, band in verify.bands(problem, case):
            reference, tolerance = self._reference(part, verify.cut(problem, inputs, band), (*key, band))
            allowed = 0.0 if key[0] == "integers" else tolerance
            for name, values in verify.cut(problem, outputs, band).items():
                place = verify.origin(problem, name, band)
                found[name].append(verify.compare(values, reference[name], allowed, place))
        return found

    def _inputs(self, case: Case, data: str, seed: int, bound: int) -> dict[str, NDArray[Any]]:
        rng = np.random.default_rng(seed)
        problem = self.suite.problem
        if data == "integers":
            return verify.integer_data(problem, case, bound, rng)
        return problem.data(case, rng)

    def _reference(
        self, case: Case, inputs: verify.Arrays, key: tuple[object, ...]
    ) -> tuple[dict[str, NDArray[np.float64]], Any]:
        """The reference, by way of the run's scratch folder: kernels of a ladder compute the same and
        share it.
        """
        if key[-1] != slice(None):  # a band of a case too large to keep
            return verify.reference_of(self.suite.problem, case, inputs)
        identity = repr((self.suite.name, sorted(case.sizes.items()), case.dtype, key))
        folder = self.scratch / hashlib.sha256(identity.encode()).hexdigest()
        if folder.is_dir():
            kept = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
            return kept, kept.pop(TOLERANCE)
        reference, tolerance = verify.reference_of(self.suite.problem, case, inputs)
        with contextlib.suppress(OSError):  # a full disk costs time, not the answer
            unfinished = Path(tempfile.mkdtemp(dir=self.scratch))
            for name, array in {**reference, TOLERANCE: np.asarray(tolerance)}.items():
                np.save(unfinished / f"{name}.npy", array)
            unfinished.rename(folder)
        return reference, tolerance

    def _emulator(self, kernel: Kernel, case: Case) -> Callable[..., list[tuple[Any, NDArray[Any]]]]:
        """What the kernel should compute, over the null device's byte arrays."""
        problem = self.suite.problem
        names = kernel.args or (*problem.inputs, *problem.outputs, *problem.axes)

        def emulate(*arguments: Any) -> list[tuple[Any, NDArray[Any]]]:
            views = dict(zip(names, arguments, strict=True))
            inputs = {
                name: views[name].view(array.dtype_at(case)).reshape(array.shape_at(case))
                for name, array in problem.inputs.items()
            }
            reference, _ = verify.reference_of(problem, case, inputs)
            return [
                (views[name], reference[name].astype(array.dtype_at(case)))
                for name, array in problem.outputs.items()
            ]

        return emulate


def _check_host_memory(problem: Problem, case: Case) -> None:
    """Refuse what the host could not verify: out of memory, the system ends a process of its own choice."""
    import psutil

    needed, free = verify.host_bytes(problem, case), psutil.virtual_memory().available
    if needed > free:
        raise OutOfMemoryError(
            f"Verifying {case.id} needs {needed / 2**30:.1f} GiB of host memory; "
            f"{free / 2**30:.1f} GiB are free: use a smaller size."
        )


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
            if isinstance(request, protocol.BuildAll):
                worker.build_all(request)
                report(protocol.Done())
            else:
                report(protocol.Done(row=worker.run(request)))
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
