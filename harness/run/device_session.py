"""A device found, and the worker processes on it: what a run and a comparison have in common."""

from __future__ import annotations

__all__ = ["DeviceObserver", "Station", "Workplace", "find_device", "unfit"]

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from harness.bench import protocol
from harness.device.backends.base import check_launch
from harness.device.lock import Busy, held
from harness.device.peaks import peaks
from harness.device.telemetry import Probe, Sampler, probe_for, telemetry_of
from harness.errors import DeviceError, ExitCode, HarnessError, LaunchError, UsageError
from harness.records import DeviceInfo, L2Policy, Telemetry
from harness.run.worker_process import Child
from harness.spec.planning import PlannedCase, Refusal, launch_of, refusal
from harness.spec.sources import lacking
from harness.system.files import scratch_folder

if TYPE_CHECKING:
    from typing_extensions import Self

OPEN_TIMEOUT_S = 60.0


class DeviceObserver(Protocol):
    """Who is told how anything on a device goes."""

    def opened(self, device: DeviceInfo) -> None: ...
    def waiting(self, sentence: str) -> None:
        """Another process measures on the device, or nothing keeps others off it."""

    def stage(self, stage: str) -> None: ...


class Workplace:
    """A device, and what its worker processes need; a context manager. Entering it finds the device.

    `suite` is a suite's folder, `base` that of the one to compare it with. The `builder` is the process that
    found the device: it compiles, and is ended before anything is timed. `busy` says what to do where another
    process measures on the device.

    Raises UsageError for a device or policy that makes no sense, DeviceError where there is no such device,
    BusyError where it is busy and nobody wants to wait.
    """

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
    ) -> None:
        self.observer = observer
        self._suite, self._base, self._spec, self._l2 = suite, base, device, l2
        self._command, self._busy, self._work_tree = command, busy, work_tree
        self.peaks: Mapping[str, float] = {}
        """What the device can do at most; empty until it is known."""
        self._stack = ExitStack()
        self._spare: Child | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.scratch = stack.enter_context(scratch_folder())
            stack.callback(self._end_spare)
            self.builder = stack.enter_context(Child(self.scratch))
            opened = self.open(self.builder)
            self.toolchain = opened.toolchain
            self.probe = stack.enter_context(closing(probe_for(opened.device)))
            self.device = _identified(opened.device, self.probe)
            limits = self.probe.limits()
            self.peaks = peaks(
                self.device, limits.max_sm_clock_mhz, limits.max_memory_clock_mhz, limits.memory_bus_bits
            )
            self._spec = self.device.spec
            self._wait_for_turn(stack)
            if self._l2 == "cold" and self.device.l2_bytes is None:
                raise UsageError(
                    f"{self.device.name} has no cache that can be flushed: measure with --l2 hot."
                )
            self.observer.opened(self.device)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _wait_for_turn(self, stack: ExitStack) -> None:
        """Have the device to ourselves, which another process may be measuring."""

        def wait(sentence: str) -> None:
            self.builder.kill()  # its context on the device would disturb whoever measures there
            self.observer.waiting(sentence)

        if stack.enter_context(held(self.device, self._command, self._busy, wait)):
            self.builder = stack.enter_context(Child(self.scratch))
            self.open(self.builder)

    def divide(self, plan: Sequence[PlannedCase]) -> tuple[list[PlannedCase], list[str]]:
        """The cases that the device can run, and why it cannot run the others, each reason once.

        That some are made for other backends goes without saying, unless all are.
        """
        refusals = [(planned, unfit(planned, self.device)) for planned in plan]
        fit = [planned for planned, refused in refusals if refused is None]
        told = [refused for _, refused in refusals if refused]
        if fit:
            told = [refused for refused in told if refused.reason != "needs-backend"]
        return fit, list(dict.fromkeys(refused.message for refused in told))

    def next_child(self) -> Child:
        """A process that has not opened the device yet."""
        child, self._spare = self._spare or Child(self.scratch), None
        return child

    def start_spare(self) -> None:
        """Start the next process ahead of time: its imports take as long as a measurement. Where the host is
        the device they would disturb one.
        """
        if self.device.kind == "gpu" and self._spare is None:
            self._spare = Child(self.scratch)

    def _end_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()

    def open(self, child: Child) -> protocol.Opened:
        """Open the device and the suites in a worker."""
        return _open(
            child,
            protocol.Open(
                device=self._spec,
                suite=str(self._suite),
                scratch=str(self.scratch),
                base=str(self._base) if self._base else None,
                work_tree=str(self._work_tree) if self._work_tree else None,
                peaks=self.peaks,
            ),
        )


class Station:
    """A worker process, with a sampler that has watched the card since before it started."""

    def __init__(self, workplace: Workplace, *, mark_s: float = 0.5) -> None:
        self._observer = workplace.observer
        with ExitStack() as stack:
            self.sampler = stack.enter_context(Sampler(workplace.probe, mark_s=mark_s))
            self._child = workplace.next_child()
            stack.callback(self._child.close)
            workplace.open(self._child)
            workplace.start_spare()
            self._stack = stack.pop_all()

    def ask(self, request: protocol.Request, timeout_s: float) -> protocol.Done | protocol.Failed:
        """Raises WorkerError where the process dies or does not answer in time."""
        reply = self._child.ask(request, timeout_s, self._observer.stage)
        assert not isinstance(reply, protocol.Opened)
        return reply

    def seen(self, started_ns: int, ended_ns: int) -> Telemetry:
        """What the card said between two moments; ask at once, while the worker is still there."""
        return telemetry_of(self.sampler, started_ns, ended_ns, own_pids=[self._child.pid])

    def close(self) -> None:
        self._stack.close()


def unfit(planned: PlannedCase, device: DeviceInfo) -> Refusal | None:
    """Why the device cannot run the case, as far as its spec alone tells."""
    if refused := refusal(planned.kernel, device):
        return refused
    if missing := lacking(planned.kernel, device.backend):
        return Refusal("needs-package", missing)
    try:
        check_launch(launch_of(planned.kernel, planned.case), device)
    except LaunchError as error:
        known = f"{planned.kernel.name} cannot run at {planned.case.size_label}. {error.message}"
        return Refusal(error.reason, known)
    except HarnessError:
        pass  # a spec that is wrong is an error of the suite's, which the worker reports
    return None


def _identified(device: DeviceInfo, probe: Probe) -> DeviceInfo:
    """The device with what its driver knows better: the card's UUID, and the driver's own version."""
    # A fact that the card refuses to tell says "unavailable: ..." instead, which is no UUID.
    told = {name: fact for name, fact in probe.identity().items() if not fact.startswith("unavailable")}
    return dataclasses.replace(
        device, uuid=device.uuid or told.get("uuid"), driver=told.get("driver") or device.driver
    )


def find_device(spec: str | None) -> DeviceInfo:
    """The device that `spec` names, or the default. Raises UsageError, DeviceError."""
    with scratch_folder() as scratch, Child(scratch) as child:
        device = _open(child, protocol.Open(device=spec, suite=None, scratch=str(scratch))).device
        with closing(probe_for(device)) as probe:
            return _identified(device, probe)


def _open(child: Child, request: protocol.Open) -> protocol.Opened:
    reply = child.ask(request, OPEN_TIMEOUT_S)
    if isinstance(reply, protocol.Failed):
        kind = UsageError if reply.exit_code == ExitCode.USAGE else DeviceError
        raise kind(reply.message, log=reply.log)
    assert isinstance(reply, protocol.Opened)
    return reply
