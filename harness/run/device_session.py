"""Holds a device for a session, and starts the worker processes that measure on it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psutil

import harness
from harness.device.backends import parse_spec
from harness.device.backends.base import check_launch
from harness.device.lock import Busy, held, identity_of
from harness.device.machine import describe_host
from harness.device.peaks import peaks
from harness.device.telemetry import Probe, Sampler, probe_for, telemetry_of
from harness.device.telemetry.nvml import visible_card
from harness.errors import (
    DeviceError,
    HarnessError,
    KernelError,
    LaunchError,
    UsageError,
    WorkerError,
)
from harness.measure.protocol import Compare, DescribeDevices, Differences, Measure, OpenReply, SideName
from harness.records.types import DeviceInfo, L2Policy, Snapshot, Telemetry
from harness.run.wall_time import WallTime
from harness.run.worker_process import (
    OPEN_TIMEOUT_S,
    Ahead,
    Answered,
    TimedOutError,
    WorkerProcess,
    early_worker,
    fail,
)
from harness.suite.device_facts import facts_of
from harness.suite.kernel import on_device
from harness.suite.planning import PlannedCase, Refusal, at_least_one, launch_of, refusal
from harness.suite.sources import lacking
from harness.suite.suite import Suite
from harness.suite.suite_data import SuiteData
from harness.system.files import scratch_folder
from harness.system.process import Failed, Progress, Request, failure

if TYPE_CHECKING:
    from typing_extensions import Self


R = TypeVar("R")
P = TypeVar("P")
"""A process, or several, that answer a request."""

_MAY_BEGIN = (Compare, Differences, Measure)
"""Requests that may begin while other workers open the device: none of them times without waiting."""
_FAULTS = (KernelError.reason, WorkerError.reason, TimedOutError.reason)
"""Reasons of failures after which a device may be lost."""
RECOVERY_S = 2.0
"""Pause in seconds before opening a failed device once more: the driver needs time after a reset."""


def most_ahead(device: DeviceInfo) -> int:
    """Return how many processes, or pairs, may import, open the device and build before they are needed.

    The limit leaves processors and memory, of the host and of the card, to the measuring processes.
    """
    if device.kind != "gpu":  # On a CPU, their imports would disturb the measurement.
        return 0
    # A framework takes a gigabyte in each process.
    free_bytes = int(psutil.virtual_memory().available)
    return min(3, len(os.sched_getaffinity(0)) // 4, free_bytes // 2**32, (device.memory_bytes or 0) // 2**33)


class DeviceObserver(Protocol):
    def opened(self, device: DeviceInfo) -> None: ...
    def waiting(self, sentence: str) -> None:
        """Another process measures on the device, or no lock keeps others away."""

    def stage(self, stage: str) -> None: ...


class DeviceSession:
    """A device, and the worker processes on it, one after another. Entering the context manager finds the
    device.

    `suite` is a suite's folder, and `base` the folder of the suite to compare it with. The `builder` is the
    process that found the device: it compiles, and ends before anything is timed. `busy` says what to do if
    another process measures on the device. A session that is not `timed` only verifies. `cards` is the most
    that a kernel of its suites spans: the session keeps others from all of them, and samples each.

    Raises UsageError for an invalid device or policy, DeviceError if there is no such device, BusyError if it
    is busy and the session may not wait.
    """

    mark_s = 0.5
    """Time between two full snapshots of the card while a worker runs, in seconds."""

    def __init__(
        self,
        observer: DeviceObserver,
        suite: Path,
        base: Path | None = None,
        *,
        device: str | None = None,
        l2: L2Policy | None = None,
        command: str = "run",
        busy: Busy = "wait",
        work_tree: Path | None = None,
        timed: bool = True,
        cards: int = 1,
    ) -> None:
        self.observer = observer
        self._cards = cards
        self.beside: tuple[DeviceInfo, ...] = ()
        """The cards after the device that its kernels span too; fewer where the machine has no more."""
        self._probes: tuple[Probe, ...] = ()
        """Probes of the device and of the cards beside it."""
        self.wall_time = WallTime()
        self._suite, self._base, self._spec, self._l2 = suite, base, device, l2
        self._command, self._busy, self._work_tree, self._timed = command, busy, work_tree, timed
        self._fresh = False
        """True if each process is started by Python instead of a fork.

        If the host is the device, times depend on the addresses of libraries, which are the same in all
        forks.
        """
        self._compilers: Mapping[str, str] = {}
        self._told: Mapping[SideName, SuiteData] = {}
        """The suites that workers do not load themselves."""
        self.peaks: Mapping[str, float] = {}
        """The device's peak rates; empty until known."""
        self.lost: DeviceError | None = None
        """Error of a device that no longer opens. It gets no further requests."""
        self._stack = ExitStack()
        self._worker = ExitStack()
        self._child: WorkerProcess | None = None
        self._ahead: deque[Ahead] = deque()
        """Workers that open the device before they are needed."""
        self._ending: list[WorkerProcess] = []
        """Workers that are no longer needed, and may not have ended yet."""
        self.wanted = 1
        """Number of worker processes that the session still needs, as far as known."""
        self._most = 1
        self._at_rest: tuple[Snapshot, ...] = ()
        """The state of each card before any process that measures."""
        self._samplers: tuple[Sampler, ...] = ()
        """Samplers of the device and of the cards beside it, since the worker process started."""

    def __enter__(self) -> Self:
        with ExitStack() as stack, self.wall_time.during("open"):
            self.scratch = stack.enter_context(scratch_folder())
            stack.callback(self.end_ahead)
            self.builder = stack.enter_context(closing(self._first_worker()))
            found = self._open(self.builder)
            self.toolchain = found.toolchain
            self.probe = stack.enter_context(closing(probe_for(found.device)))
            self.device = identified(found.device, self.probe.identity())
            most = self.probe.limits()
            clocks = most.max_sm_clock_mhz, most.max_memory_clock_mhz
            self.peaks = peaks(self.device, *clocks, most.memory_bus_bits)
            self._watch(self.probe)
            self._fresh = self._timed and self.device.kind == "cpu"
            self._most = 1 + most_ahead(self.device)
            self._spec = self.device.spec
            self._find_beside(stack)
            self._wait_for_turn(stack)
            if self._l2 == "cold" and self.device.l2_bytes is None:
                cannot = f"{self.device.name} has no cache that can be flushed"
                raise UsageError(f"{cannot}: measure with --l2 hot.")
            stack.callback(self.end)
            self.observer.opened(self.device)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _find_beside(self, stack: ExitStack) -> None:
        """Find the cards after the device that its kernels span."""
        backend, index = parse_spec(self.device.spec)
        for other in range(index + 1, index + self._cards) if self.device.kind != "cpu" else ():
            found = self.builder.ask(DescribeDevices(specs=(f"{backend}:{other}",)), OPEN_TIMEOUT_S)
            if isinstance(found, Failed):
                break
            probe = stack.enter_context(closing(probe_for(found[0])))
            self.beside += (identified(found[0], probe.identity()),)
            self._watch(probe)

    def _watch(self, probe: Probe) -> None:
        """Add a card to those whose clocks and temperatures are recorded while a process measures."""
        self._probes += (probe,)
        self._at_rest += (Sampler(probe, mark_s=self.mark_s).mark(),)

    def _wait_for_turn(self, stack: ExitStack) -> None:
        """Wait until no other process measures on the device, or on the cards that its kernels span too."""
        sentences: list[str] = []

        def wait(sentence: str) -> None:
            self.builder.kill()  # its context on the device would disturb the other process
            self.observer.waiting(sentence)
            sentences.append(sentence)

        with self.wall_time.during("queue"):
            # In one order for all processes, or two of them could wait for each other.
            for each in sorted((self.device, *self.beside), key=identity_of):
                stack.enter_context(held(each, self._command, self._busy, wait))
        if sentences:
            self.builder = stack.enter_context(closing(self._new_worker()))
            self._open(self.builder)

    def divide(self, plan: Sequence[PlannedCase]) -> tuple[list[PlannedCase], list[str]]:
        """Return the cases that the device can run, and the reasons for the others, each once.

        Cases for other backends are left out silently, unless all are.
        """
        refusals = [(planned, self.refusal(planned)) for planned in plan]
        fit = [planned for planned, refused in refusals if refused is None]
        why = [refused for _, refused in refusals if refused]
        return fit, list(
            dict.fromkeys(each.message for each in why if not fit or each.reason != "needs-backend")
        )

    def refusal(self, planned: PlannedCase) -> Refusal | None:
        """Return why the device cannot run the case, as far as its spec shows."""
        return unfit(planned, self.device, cards=self.cards)

    @property
    def cards(self) -> int | None:
        """Return the cards that a kernel can span, at most the session's; None for the host: any number."""
        return None if self.device.kind == "cpu" else 1 + len(self.beside)

    def start(self) -> None:
        """Start a worker process that has opened the device, with telemetry from before its start.

        Raises the errors of entering the session, and WorkerError.
        """
        if self._child is None:
            with ExitStack() as stack, self.wall_time.during("open"):
                if not self._has_room():
                    self._end_left()  # else while the next process verifies
                self._sample(stack)
                child = self._next()
                stack.callback(self.end_soon, child)
                self._worker = stack.pop_all()
            self._child = child

    def _sample(self, stack: ExitStack) -> None:
        """Sample all cards until the stack is closed."""
        self._samplers = tuple(
            stack.enter_context(Sampler(probe, mark_s=self.mark_s, at_rest=at_rest))
            for probe, at_rest in zip(self._probes, self._at_rest, strict=True)
        )

    def _has_room(self) -> bool:
        """Return whether the card holds twice the memory in use with the last process, or before any."""
        marks = self._samplers[0].marks if self._samplers else self._at_rest[:1]
        used = max((mark.memory_used_bytes or 0 for mark in marks), default=0)
        return 0 < 2 * used < (self.device.memory_bytes or 0)

    def open_ahead(self, most: int | None = None) -> None:
        """Let the next workers open the device, as many as are needed and fit, and at most `most`.

        Call it only while nothing is timed: a process that opens the device disturbs the others. Drivers open
        a card for one process after the other, so a worker that is needed first should begin first.
        """
        if self._most == 1:
            self._end_left()
        while len(self._ahead) < min(self.wanted, self._most if most is None else most):
            worker = self._new_worker()
            self._ahead.append(Ahead(worker, self._begin_open(worker, cards=self._cards)))

    def _next(self) -> WorkerProcess:
        """Return a worker that has opened the device."""
        self.wanted = max(1, self.wanted)
        if self._ahead and not self._ahead[0].is_open():  # since another worker has the card or its memory
            self._open_alone()
        if not self._ahead:
            self.open_ahead()
        first = self._ahead.popleft()
        self.wanted -= 1
        try:
            first.wait()
            if not self._timed:
                self.open_ahead()
        except BaseException:
            first.worker.close()
            raise
        return first.worker

    def become_quiet(self) -> None:
        """Wait until no other worker opens the device or leaves it, because the next work is timed."""
        if not self._ending and all(other.opened is None for other in self._ahead):
            return
        with self.wall_time.during("open"):
            self._end_left()
            if not all(other.is_open() for other in self._ahead):
                self._open_alone()
        if self._child is not None:
            for sampler in self._samplers:
                sampler.mark()  # the processes on the card from here on

    def end_soon(self, worker: WorkerProcess) -> None:
        """Begin to end a worker: drivers take time to clean up, in which the command can do other work."""
        worker.kill_soon()
        self._ending.append(worker)

    def drop_ahead(self) -> None:
        """Begin to end the workers that are not needed any more."""
        while self._ahead:
            self.end_soon(self._ahead.popleft().worker)

    def _end_left(self) -> None:
        while self._ending:
            self._ending.pop().close()

    def end(self) -> None:
        """End all workers, and wait for it."""
        self.leave()
        self.drop_ahead()
        self._end_left()

    def _open_alone(self) -> None:
        """Stop opening the device ahead."""
        self._most = 1
        self.end_ahead()

    def keep_builder(self) -> None:
        """Let the process that found the device answer the first requests. Only if nothing is timed."""
        self._ahead.appendleft(Ahead(self.builder))

    @property
    def started(self) -> bool:
        return self._child is not None

    def ask(self, request: Request[R], timeout_s: float) -> R | Failed:
        """Ask the worker process. Start it if there is none, and end it if it fails."""

        def opened() -> WorkerProcess:
            self.start()
            assert self._child is not None
            if not isinstance(request, _MAY_BEGIN):
                self.become_quiet()
            elif self.wanted and self._most > 1 and not self._ahead:
                self.open_ahead()  # while it verifies
            return self._child

        return self._answered(opened, lambda child: child.ask(request, timeout_s, self.heard))

    def heard(self, progress: Progress) -> None:
        if progress.waits and self._timed:
            self.become_quiet()
        self.stage(f"{progress.stage} {progress.side}".strip())

    def stage(self, stage: str) -> None:
        """Report the next stage to the observer, and charge time to it."""
        self.wall_time.enter(stage)
        self.observer.stage(stage)

    def _answered(self, opening: Callable[[], P], answer: Callable[[P], R | Failed]) -> R | Failed:
        """Return the answer of processes that have opened the device, or their error. After an error, end
        them.
        """
        try:
            reply = answer(self._opened(opening))
        except HarnessError as error:
            reply = failure(error)
        except BaseException:
            self.leave()  # An interrupt: the answer is pending, and nobody waits for it.
            raise
        finally:
            self.wall_time.enter("judge")
        if isinstance(reply, Failed):
            self.leave()
            if reply.reason in _FAULTS:
                self.end_opened()
        return reply

    def _opened(self, opening: Callable[[], P]) -> P:
        """Return processes that have opened the device. Raises DeviceError for a lost device."""
        if self.lost is not None:
            raise self.lost
        try:
            return opening()
        except (DeviceError, WorkerError) as error:
            self._recover(error)
            return opening()

    def _recover(self, error: HarnessError) -> None:
        """Wait, and open a failed device once more without a suite. Raises DeviceError if that fails too."""
        with self.wall_time.during("open"):
            time.sleep(RECOVERY_S)
            try:
                with closing(WorkerProcess(self.scratch)) as worker:
                    worker.begin_open(self._spec)()
            except HarnessError as again:
                gone = f"{self.device.name} ({self.device.spec}) cannot be opened any more: {again.message}"
                self.lost = DeviceError(gone, log=again.log)
                raise self.lost from error

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the card's snapshots since before the worker process started."""
        return self._samplers[0].snapshots if self._samplers else ()

    def description(self) -> dict[str, Any]:
        """Return the fields that every record has: where and when it was measured."""
        identity = self.probe.identity()
        return {**begun(), "device": self.device, "toolchain": self.toolchain, "identity": identity}

    def seen(self, started_ns: int, ended_ns: int) -> Telemetry:
        """Return the telemetry between two moments. Call it at once, while the worker is still running."""
        first, *beside = (
            telemetry_of(sampler, started_ns, ended_ns, own_pids=self._own_pids())
            for sampler in self._samplers
        )
        return dataclasses.replace(first, beside=tuple(beside))

    def _own_pids(self) -> list[int]:
        assert self._child is not None
        return [*self._child.pids(), *self._pids_ahead()]

    def _pids_ahead(self) -> list[int]:
        return [pid for each in self._ahead for pid in each.worker.pids()]

    def leave(self) -> None:
        """End the worker process, if there is one. The next request gets a new one."""
        self._child = None
        with self.wall_time.during("open"):
            self._worker.close()

    def end_opened(self) -> None:
        """End every process that may have opened the device, because the device may be lost to
        all of them.
        """
        self.end_ahead()

    def end_ahead(self) -> None:
        """End the workers that are not yet needed."""
        self.drop_ahead()
        self._end_left()

    def _first_worker(self) -> WorkerProcess:
        """Return a worker that has opened the device already, if there is one.

        Variables that suites set may decide what a driver does, so they must be set before it is opened.
        """
        early = early_worker.get()
        if early is None or early.is_taken:
            return self._new_worker()
        early.is_taken = True
        if early.spec != self._spec or any(data.variables for data in self._told.values()):
            early.worker.close()
            return self._new_worker()
        early.wait()
        early.worker.scratch, early.worker.answered = self.scratch, self._answered_by()
        return early.worker

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(self.scratch, answered=self._answered_by(), fresh=self._fresh)

    def _answered_by(self) -> Answered | None:
        """Return what answers the questions of workers."""
        return None

    def _open(self, child: WorkerProcess, told: Mapping[SideName, SuiteData] | None = None) -> OpenReply:
        return self._begin_open(child, told)()

    def _begin_open(
        self, child: WorkerProcess, told: Mapping[SideName, SuiteData] | None = None, *, cards: int = 1
    ) -> Callable[[], OpenReply]:
        """Ask a process to open the device. Return a function that waits for the answer and may raise."""
        try:
            return child.begin_open(
                self._spec,
                self._suite,
                self._base,
                told=self._told if told is None else told,
                work_tree=self._work_tree,
                peaks=self.peaks,
                compilers=self._compilers,
                cards=cards,
            )
        except WorkerError as error:  # It has ended, which matters only to requests that need it.
            return partial(fail, error)


def begun() -> dict[str, Any]:
    """Return the fields of a new record: version, id, moment and host.

    The id begins with the fraction of the second in units of 16 µs, so that the names of records that begin
    in the same second sort by time.
    """
    now = dt.datetime.now(dt.timezone.utc)
    return {
        "harness_version": harness.__version__,
        "run_id": f"{now.microsecond // 16:04x}{secrets.token_hex(6)}",
        "started_at": now.isoformat(timespec="seconds"),
        "host": describe_host(),
    }


def most_cards(*suites: Suite) -> int:
    """Return the most cards that a kernel of the suites spans."""
    return max((kernel.cards for suite in suites for kernel in suite.kernels), default=1)


def unfit(
    planned: PlannedCase, device: DeviceInfo, *, elsewhere: bool = False, cards: int | None = None
) -> Refusal | None:
    """Return why the device cannot run the case, as far as its spec shows.

    If the case runs in another environment (`elsewhere`), installed packages are not checked. `cards` are the
    device and those after it; None if their number does not matter.
    """
    if refused := refusal(planned.kernel, device):
        return refused
    if cards is not None and planned.kernel.cards > cards:
        there = f"from {device.spec} on there {'is' if cards == 1 else 'are'} {cards}"
        return Refusal(
            "needs-cards",
            f"{planned.kernel.name} spans {planned.kernel.cards} cards; {there}: run it on a machine with "
            "more, or name an earlier card by --device.",
        )
    if not planned.has_reference:
        suite = planned.case.suite
        return Refusal(
            "needs-reference",
            f"{suite} needs your reference(): write what it computes in its suite.py, or reference = 'base'.",
        )
    if missing := not elsewhere and lacking(planned.kernel, device.backend):
        return Refusal("needs-package", missing)
    try:
        case = on_device(planned.kernel, planned.case, facts_of(device))
        check_launch(launch_of(planned.kernel, case, at_least_one), device)
    except LaunchError as error:
        known = f"{planned.kernel.name} cannot run at {planned.case.size_label}. {error.message}"
        return Refusal(error.reason, known)
    except HarnessError:
        pass  # The worker reports an error in the spec as the suite's error.
    return None


def identified(device: DeviceInfo, identity: Mapping[str, str]) -> DeviceInfo:
    """Return the device with the values that its driver knows better: the card's UUID and the driver's
    version.
    """
    # A fact that the card does not report is "unavailable: ...", which is no UUID.
    facts = {name: fact for name, fact in identity.items() if not fact.startswith("unavailable")}
    return dataclasses.replace(
        device, uuid=device.uuid or facts.get("uuid"), driver=facts.get("driver") or device.driver
    )


def program_device() -> DeviceInfo:
    """Return the device that a separate program measures on: the first card, else the host.

    A card is found through its driver, because a program needs no CUDA library of ours. Raises DeviceError.
    """
    with contextlib.suppress(DeviceError):
        if (found := find_device(None)).kind == "gpu":
            return found
    try:
        return visible_card(os.environ)
    except DeviceError:
        return find_device("cpu:0")


def find_device(spec: str | None) -> DeviceInfo:
    """Return the device that `spec` names, or the default. Raises UsageError, DeviceError."""
    with scratch_folder() as scratch, closing(WorkerProcess(scratch)) as child:
        device = child.begin_open(spec)().device
        with closing(probe_for(device)) as probe:
            return identified(device, probe.identity())
