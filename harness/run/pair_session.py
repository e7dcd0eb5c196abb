"""Two loaded suites on one device, and the worker processes that hold both of them or only one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from harness.device.toolchains import environment_of
from harness.errors import HarnessError, SuiteError, UsageError
from harness.judgement.case_trial import CaseTrial, bare_verdict
from harness.measure import protocol
from harness.measure.protocol import SideName, SidesByPair
from harness.records.types import Arm, Verdict, fields_of
from harness.run.compare_settings import CompareSettings
from harness.run.device_session import DeviceObserver, DeviceSession, most_ahead, most_cards, unfit
from harness.run.two_workers import SIDES, PairsAhead, TurnPair
from harness.run.worker_process import Answered, WorkerProcess, worker_variables
from harness.suite.kernel import HostFunction, Kernel, PythonFunction, TorchFunction
from harness.suite.loader import LoadedSuite
from harness.suite.packages_ahead import packages_ahead
from harness.suite.planning import PlannedCase, Refusal
from harness.suite.problem import Case, ceil_div
from harness.suite.suite_data import DefinitionCall, Loading, SuiteCall, SuiteData
from harness.system.decoding import decode
from harness.system.process import Failed, Query, template_with

if TYPE_CHECKING:
    from typing_extensions import Self

    from harness.system.ready import Template

Purpose = Literal["look", "confirm", "attribute", "explain"]
PURPOSES: Mapping[Purpose, str] = {
    "look": "",
    "confirm": ", confirming",
    "attribute": ", each side alone",
    "explain": ", reading counters",
}
"""Purpose of a process, as shown behind its number."""


class CompareObserver(DeviceObserver, Protocol):
    def process(self, number: int, cases: int, purpose: Purpose) -> None: ...
    def started(self, case: str) -> None: ...
    def measured(self, case: str) -> None: ...


@dataclass(slots=True)
class CaseEntry:
    """A case that both commits have: the request to the worker, and its trial so far."""

    pair: protocol.PairOf
    trial: CaseTrial
    digests: dict[str, str] = field(default_factory=dict)
    """Digests of outputs that were verified in full, by side."""
    by_base: bool = False
    """True if base's problem is in other files than head's, so that head is verified by both."""
    built: Mapping[SideName, protocol.SideFacts] | None = None
    """Facts of each built side; None before it is built, and if the compiler crashed."""
    in_turns: bool = False
    """True if each side has its own process, because the side's own code runs in it."""

    def take(self, facts: Mapping[SideName, protocol.SideFacts]) -> None:
        """Store the facts of the built sides in the trial."""
        self.trial.sides = {
            side: Arm(source_sha256=each.source_sha256, launch=each.launch, resources=each.resources)
            for side, each in facts.items()
        }


def match(
    base: Sequence[PlannedCase], head: Sequence[PlannedCase]
) -> tuple[list[tuple[protocol.PairOf, Case]], list[Verdict]]:
    """Return the cases that both commits have, and verdicts of cases that only one has."""
    of_base = {planned.case.id: planned.case for planned in base}
    of_head = {planned.case.id: planned.case for planned in head}
    both: list[tuple[protocol.PairOf, Case]] = []
    alone: list[Verdict] = []
    for name, case in of_head.items():
        if name in of_base:
            base_side, head_side = (protocol.PairSide(suite=side, kernel=case.kernel) for side in SIDES)
            pair = protocol.PairOf(id=name, sizes=case.sizes, base=base_side, head=head_side)
            both.append((pair, case))
        else:
            alone.append(bare_verdict(name, case, "new", "only-in-head"))
    gone = {name: case for name, case in of_base.items() if name not in of_head}
    alone += [bare_verdict(name, case, "missing", "only-in-base") for name, case in gone.items()]
    return both, alone


def failed_by(verdict: Verdict, failed: Failed | HarnessError) -> Verdict:
    """Return the verdict of a case that failed with this error."""
    return replace(verdict, status="failed", **fields_of(failed, "reason", "message", "log", "side"))


class PairSession(DeviceSession):
    """Two loaded suites on one device; a context manager like its base."""

    observer: CompareObserver
    mark_s = 0.1
    """Time between two full snapshots, in seconds. Short marks let a gate drop few samples around a
    disturbance."""

    def __init__(
        self, base: LoadedSuite, head: LoadedSuite, settings: CompareSettings, observer: CompareObserver
    ) -> None:
        super().__init__(
            observer,
            head.suite.root,
            base.suite.root,
            device=settings.device,
            l2=settings.l2,
            command=settings.command,
            busy=settings.busy,
            work_tree=base.work_tree,
            cards=most_cards(base.suite, head.suite),
        )
        self.base, self.head, self.settings = base, head, settings
        self._compilers = {side: tool.nvcc for side, tool in settings.toolchains.items() if tool.nvcc}
        self.has_compilers = bool(self._compilers)
        """True if the sides have different compilers."""
        self.ahead = PairsAhead()
        self._template: Template | None = None
        """A process that has imported the packages of both sides, from which their processes are forked."""
        self._told_slow = False
        """True once it is reported why each process imports packages again."""
        self._turns: TurnPair | None = None
        loadings = {"base": base.loading, "head": head.loading}
        self._loadings: dict[str, Loading] = {side: each for side, each in loadings.items() if each}
        self._told = self._told_to(None)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._check_compilers()
            self.ahead.most = most_ahead(self.device)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _check_compilers(self) -> None:
        named = self.settings.toolchains.values()
        if self.device.backend not in ("cuda", "null") and not all(each.python for each in named):
            raise UsageError(
                f"--toolchain names an nvcc, which compiles for cuda alone; {self.device.spec} is "
                f"{self.device.name}."
            )

    # The processes that a kernel needs

    def refusal(self, planned: PlannedCase) -> Refusal | None:
        elsewhere = self.is_elsewhere(planned.kernel)
        refused = unfit(planned, self.device, elsewhere=elsewhere, cards=self.cards)
        if refused or elsewhere or not self.settings.toolchains:
            return refused
        return untouched(planned.kernel, self.device.backend, has_compilers=self.has_compilers)

    def is_elsewhere(self, kernel: Kernel) -> bool:
        """Return whether a kernel is a function that runs in the environments of the two toolchains."""
        named = self.settings.toolchains.values()
        source = kernel.source_for(self.device.backend)
        if not named or not isinstance(source, (HostFunction, PythonFunction)):
            return False
        # An nvcc builds PyTorch's extensions, and the workers get its path.
        return all(each.python for each in named) or (
            isinstance(source, TorchFunction) and self.has_compilers
        )

    def has_processes(self, pair: protocol.PairOf) -> bool:
        """Return whether each side of a pair gets its own process.

        It does if code of a side's suite runs in the measuring process, or if the suites set environment
        variables to different values, which a compiler or a driver may read.
        """
        if len({repr(sorted(each.variables.items())) for each in self._told.values()}) > 1:
            return True
        suites = {"base": self.base.suite, "head": self.head.suite}
        kernels = (suites[side.suite].by_name[side.kernel] for side in pair.sides.values())
        return any(kernel.runs_on_host(self.device.backend) for kernel in kernels)

    def same_problem(self) -> bool:
        """Return whether both suites define their problem in the same files."""
        if self.base.suite.root == self.head.suite.root:
            return True
        answers = [self._loadings[side].answer(DefinitionCall()) for side in SIDES if side in self._loadings]
        return len(answers) == 2 and answers[0] == answers[1] and not isinstance(answers[0], Failed)

    # Processes that hold both suites

    def _told_to(self, own: SideName | None) -> dict[SideName, SuiteData]:
        """Return the suites that a worker is sent: all except the side's own, which it loads itself."""
        return {
            side: loading.data
            for side in SIDES
            if side != own and (loading := self._loadings.get(side)) and loading.data
        }

    def have_load(self, own: SideName | None) -> None:
        """Let the next worker processes load the suite of this side themselves; None for neither side."""
        told = self._told_to(own)
        if told != self._told:
            self.leave()
            self.end_ahead()
            self._told = told

    def _new_worker(self, python: str = "", env: Mapping[str, str] = {}) -> WorkerProcess:
        return WorkerProcess(self.scratch, python, env, answered=self._answered_by(), fresh=self._fresh)

    def _answered_by(self) -> Answered:
        return _Answering(self._loadings)

    def build_timeout_s(self, pairs: int) -> float:
        """Return the timeout in seconds for building so many pairs, one core each."""
        return max(1, ceil_div(2 * pairs, os.cpu_count() or 1)) * self.settings.timeout_s

    # Processes that hold one side each

    def ask_in_turns(self, request: protocol.Compare, timeout_s: float) -> protocol.CompareReply | Failed:
        """Ask a pair of processes. Start it if there is none, and end it if it fails."""
        return self._answered(
            self._side_processes, lambda turns: turns.compare(request, timeout_s, self._prepare_ahead)
        )

    def _prepare_ahead(self) -> None:
        with self.wall_time.during("open"):
            self.ahead.prepare()

    def inspect_in_turns(self, pairs: tuple[protocol.PairOf, ...]) -> Mapping[SideName, SidesByPair] | Failed:
        """Build each side of these pairs in the process that will measure it first."""
        timeout_s = self.build_timeout_s(len(pairs))
        return self._answered(self._side_processes, lambda turns: turns.inspect(pairs, timeout_s))

    def list_launches(self, entry: CaseEntry) -> None:
        """Store the kernels that each side of a case launches, if its processes still run and can tell.

        A profiler's library stays in a process, so nothing is to be timed by these processes afterwards.
        """
        if self._turns is None:
            return
        seeds = {"seed": self.settings.seed, "order_seed": self.settings.seed}
        request = protocol.ListLaunches(pair=entry.pair, side="head", **seeds)
        reply = self._answered(
            self._side_processes, lambda turns: turns.list_launches(request, self.settings.timeout_s)
        )
        if not isinstance(reply, Failed):
            entry.trial.launches = reply

    def count_in_turns(
        self, request: protocol.CountEvents, timeout_s: float
    ) -> Mapping[SideName, protocol.Counted] | Failed:
        """Read counters of each side in its process. Nothing is to be timed by these processes afterwards."""
        return self._answered(self._side_processes, lambda turns: turns.count(request, timeout_s))

    def build_ahead(self, entries: Sequence[CaseEntry]) -> None:
        """Let all processes started from now on build these before they are needed."""
        self.ahead.wanted = tuple(entry.pair for entry in entries), self.build_timeout_s(len(entries))

    def begin_ahead(self) -> None:
        """Start a pair of processes, if one is needed, and let them open the device and build.

        Another thread may call it while nothing is timed.
        """
        pairs, _ = self.ahead.wanted
        if pairs and self._template is None and not self._fresh and not self.settings.toolchains:
            self._template = self._with_packages(pairs)
        self.ahead.start(self._new_turns, 1)
        self.ahead.prepare(1)

    def _with_packages(self, pairs: Sequence[protocol.PairOf]) -> Template | None:
        """Return a process that imports the packages of these pairs; None if it must not.

        Both sides have it in common, because their libraries then have the same addresses: those of two
        processes differ, and forks would repeat the difference. So both sides must import the same.
        """
        suites = {"base": self.base.suite, "head": self.head.suite}
        found = []
        for side in SIDES:
            suite = suites[pairs[0].sides[side].suite]  # head's for both, where code is compared with itself
            kernels = {pair.sides[side].kernel for pair in pairs}
            found.append(packages_ahead(suite, map(suite.by_name.__getitem__, kernels), self.device.backend))
        base, head = found
        told = [loading.data for loading in self._loadings.values()]
        if variables := sorted({name for each in told if each for name in each.variables}):
            self._tell_slow(f"suite.py sets {variables[0]}")
        elif why_not := base.why_not or head.why_not:
            self._tell_slow(why_not)
        elif base.packages != head.packages:
            differing = sorted({*base.packages} ^ {*head.packages})
            self._tell_slow(f"only one side imports {differing[0]}")
        elif base.packages and all(told):
            return template_with(base.packages, sorted({*base.names, *head.names}), worker_variables())
        return None

    def _tell_slow(self, why: str) -> None:
        """Report once why each process imports the packages of functions itself."""
        if not self._told_slow:
            self._told_slow = True
            self.observer.waiting(f"Each process imports the packages of its functions again: {why}.")

    def _side_processes(self) -> TurnPair:
        """Return a process for each side that has opened the device. Start them if needed."""
        self.become_quiet()
        if self._turns is None:
            with ExitStack() as stack, self.wall_time.during("open"):
                self._sample(stack)
                turns = self.ahead.next(self._new_turns)
                stack.callback(turns.close)
                turns.open()
                self._worker = stack.pop_all()
            self._turns = turns
            if self._template and self._template.reason:
                self._tell_slow(self._template.reason)
        return self._turns

    def _new_turns(self, first: SideName) -> TurnPair:
        return TurnPair(self._new_side, self._open_side, self.stage, first)

    def _new_side(self, side: SideName) -> WorkerProcess:
        """Return a worker for one side, in the environment of the side's toolchain."""
        toolchain = self.settings.toolchains.get(side)
        if toolchain is None:
            answered = self._answered_by()
            return WorkerProcess(self.scratch, answered=answered, fresh=self._fresh, template=self._template)
        return self._new_worker(toolchain.python, environment_of(toolchain))

    def _open_side(self, side: SideName, worker: WorkerProcess) -> Callable[[], protocol.OpenReply]:
        """Let a side's process open the device. Return a function that waits until it has loaded that side's
        suite. The other suite is sent to it.
        """
        worker.begin_open(self._spec, cards=self._cards)()
        return self._begin_open(worker, self._told_to(side))

    def __exit__(self, *error: object) -> None:
        self.ahead.close()
        super().__exit__(*error)
        if self._template is not None:
            self._template.close()

    def end_opened(self) -> None:
        self.ahead.close()
        super().end_opened()

    def leave(self) -> None:
        self._turns = None
        super().leave()

    @property
    def started(self) -> bool:
        return self._turns is not None or super().started

    def _own_pids(self) -> list[int]:
        measuring = super()._own_pids() if self._turns is None else [*self._turns.pids, *self._pids_ahead()]
        return [*self.ahead.pids, *measuring]


@dataclass(frozen=True, slots=True)
class _Answering:
    """Answers questions by the process that loaded a side's suite, without keeping a session alive."""

    loadings: Mapping[str, Loading]

    def __call__(self, question: Query, deadline: float) -> object:
        try:
            call: SuiteCall = decode(question.request, SuiteCall)
            return self.loadings[question.side].answer(call, max(0.1, deadline - time.monotonic()))
        except HarnessError as error:
            return Failed(reason=type(error).__name__, message=error.message, log=error.log)
        except (msgspec.MsgspecError, KeyError) as error:
            return Failed(
                reason=SuiteError.__name__, message=f"No suite has what a worker asked for: {error}."
            )


def untouched(kernel: Kernel, backend: str, *, has_compilers: bool) -> Refusal | None:
    """Return why the toolchains make no difference to a kernel in the harness's own environment."""
    source = kernel.source_for(backend)
    if isinstance(source, (HostFunction, PythonFunction)):
        return Refusal(
            "not-compiled",
            f"{kernel.name} is a function of Python, which no nvcc compiles: name two Python environments.",
        )
    if not has_compilers:
        return Refusal("not-compiled", f"{kernel.name} is compiled by nvcc, and neither environment has one.")
    return None
