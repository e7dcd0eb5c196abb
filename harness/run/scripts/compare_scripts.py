"""Compares a benchmark script at two commits: both processes stop at each timing call and alternate."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.device.lock import held
from harness.device.machine import machine_name
from harness.device.telemetry import Sampler, probe_for, telemetry_of
from harness.errors import HarnessError, MeasureError
from harness.judgement.case_trial import CaseTrial, bare_verdict, settle
from harness.judgement.gates import gate
from harness.judgement.identities import without_time
from harness.judgement.noise import Calibration, noise_apart, read_calibration
from harness.measure.protocol import SideName
from harness.measure.quads import PairSettings
from harness.records.imports.imported import identifier
from harness.records.imports.pytest_benchmark_files import Untimed
from harness.records.record_files import ComparisonJournal, ComparisonResult
from harness.records.types import CaseBlock, Comparison, DeviceInfo, Verdict
from harness.run.calibrate import CalibrationResult, blank, keep, with_same
from harness.run.compare_settings import JudgeSettings, policy_for, recorded_settings
from harness.run.device_session import begun, find_device, identified, most_ahead, program_device
from harness.run.executables.executable_build import Executable, name_of
from harness.run.executables.side_code import OtherCodeError
from harness.run.pair_session import CompareObserver, failed_by
from harness.run.scripts.call_names import CallName, names_of
from harness.run.scripts.script_files import caches_of
from harness.run.scripts.script_outputs import OutputsCheck
from harness.run.scripts.script_process import Call, Recorded, ScriptProcess, ScriptServer
from harness.run.scripts.script_turns import CallFailedError, Turns
from harness.run.two_workers import SIDES
from harness.suite.case_id import is_selected
from harness.suite.problem import Case
from harness.system.files import scratch_folder

_IF_MEANT = " If that is meant: --outputs note (in pytest --perf-outputs note) judges its time all the same."
_TWICE = " Both sides hold their data on the card at once: choose sizes that fit twice."


class NothingRecordedError(MeasureError):
    reason = "nothing-recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings(JudgeSettings):
    suite: str | None = None
    """Name of the suite; None for the script's name."""
    timeout_s: float = 600.0
    """Timeout of a script from one timing call to the next, in seconds."""
    recorded: Recorded = field(default_factory=Recorded)
    rtol: float | None = None
    """Tolerance of outputs as a share of an array's largest magnitude; None for the type's default."""
    only_note_outputs: bool = False
    """True to judge a case whose outputs differ, with a note."""


@dataclass(frozen=True, slots=True)
class _FirstPass:
    """The timing calls of a side, in order, and the failure that ended it, if any."""

    calls: Sequence[Call]
    error: HarnessError | None = None


UntimedBySide = Mapping[SideName, Mapping[CallName, Untimed]]
"""Calls without a time that did not end the script."""


@dataclass(slots=True)
class _ScriptCase:
    """A timing call that both sides have, with its position among each side's calls."""

    places: Mapping[SideName, int]
    trial: CaseTrial


def script_device(spec: str | None) -> DeviceInfo:
    """Return the device that a script measures on: the named one, else the first card, else the CPU.

    Raises UsageError, DeviceError.
    """
    return find_device(spec) if spec else program_device()


def only_that_card(device: DeviceInfo, spec: str | None) -> dict[str, str]:
    """Return the variable that hides other cards from the script; none if no card was requested."""
    return {"CUDA_VISIBLE_DEVICES": device.uuid} if spec and device.kind == "gpu" and device.uuid else {}


def nothing_recorded(command: str) -> NothingRecordedError:
    """Return the error of a script that called no timer."""
    return NothingRecordedError(
        f"{command!r} ended well, and called no timer that is known here: Triton's do_bench, "
        "torch.utils.benchmark.Timer, cupyx.profiler.benchmark and the like. Name the function that times "
        "with --timer NAME, or --timer MODULE:NAME. With python -I or -E nothing is recorded."
    )


class ComparingScripts:
    """A comparison of one script at two commits; `run` does everything.

    Raises UsageError for an invalid device, DeviceError, BusyError, OtherCodeError, NothingRecordedError,
    StoreError if no record can be begun.
    """

    def __init__(
        self,
        base: Executable,
        head: Executable,
        settings: ScriptSettings,
        observer: CompareObserver,
        cases: Sequence[str] = (),
        untimed: Callable[[], UntimedBySide] = dict,
    ) -> None:
        """Prepare a comparison of the calls that `cases` selects; of all without a selection.

        `untimed` reports calls that failed or were skipped in the first pass, as pytest tests do.
        """
        self._told_untimed = untimed
        self.sides: Mapping[SideName, Executable] = {"base": base, "head": head}
        self.settings, self.observer, self._selected = settings, observer, cases
        self.suite = settings.suite or identifier(name_of(head.command))
        self._rng = random.Random(settings.seed)  # noqa: S311 - an order, not a secret
        self._pairs = self._count = 0
        self._spent_s = 0.0
        self._trials: list[CaseTrial] = []
        self.calibration: Calibration | None = None
        self._names: dict[SideName, list[CallName]] = {}
        self._servers: dict[SideName, ScriptServer] = {}
        """Servers that will start the next runs."""

    def run(self) -> ComparisonResult:
        """Compare all calls that both sides have."""
        with self._opened():
            return self._compare(self._first_pass())

    def calibrate(self, trials: int) -> CalibrationResult:
        """Compare the calls of two identical sides `trials` times, and add them to the card's calibration.

        The calibration is written after each trial, so an interrupt keeps finished trials.
        """
        with self._opened():
            first = self._first_pass()
            known = self.calibration or blank(self.device)
            folder = self._folder if self.settings.save else None
            same: list[Verdict] = []
            path = None
            for _ in range(trials):
                result = self._compare(first, save=False)
                same += result.verdicts
                judged = result.verdicts[: len(self._trials)]
                known, path = keep(folder, known, partial(with_same, trials=self._trials, verdicts=judged))
                self.calibration = known
                if result.interrupted:
                    break
            return CalibrationResult(self.device, known, tuple(same), (), (), path, result.interrupted)

    @property
    def _folder(self) -> Path | None:
        return self.settings.results and self.settings.results / machine_name(self.device)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Hold the device and the measuring tools until the end."""
        with ExitStack() as stack:
            self.scratch = stack.enter_context(scratch_folder())
            self._caches = {side: caches_of(executable) for side, executable in self.sides.items()}
            device = script_device(self.settings.device)
            stack.enter_context(held(device, "compare", self.settings.busy, self.observer.waiting))
            self.probe = stack.enter_context(closing(probe_for(device)))
            self.device = identified(device, self.probe.identity())
            self.observer.opened(self.device)
            self.policy = policy_for(self.device, self.settings)
            self.calibration = read_calibration(self._folder) if self._folder else None
            self._may_start_ahead = most_ahead(self.device) > 0
            stack.callback(self._end_servers)
            few = self.device.kind == "cpu"
            self.pair = PairSettings(
                min_quads=6, max_quads=30 if few else 60, max_time_s=10.0 if few else 3.0
            )
            yield

    # Processes

    def _process(self, side: SideName) -> ScriptProcess:
        """Begin a run of a side: in a waiting server, or in a new one."""
        server = self._servers.pop(side, None)
        if server is None or not server.may_run:
            if server is not None:
                server.close()
            server = self._server(side)
        self._servers[side] = server
        return server.run()

    def _server(self, side: SideName) -> ScriptServer:
        executable = self.sides[side]
        if executable.problem is not None:
            raise executable.problem
        self._count = self._count + 1
        folder = self.scratch / f"{side}{self._count}"
        variables = {**self._caches[side], **only_that_card(self.device, self.settings.device)}
        what = dataclasses.replace(self.settings.recorded, variables=variables)
        return ScriptServer(executable, folder, what)

    @contextmanager
    def _next_pair(self) -> Iterator[Mapping[SideName, ScriptProcess]]:
        """Yield a fresh run of each side. Meanwhile the servers of the next pair import their framework."""
        with ExitStack() as stack:
            pair: dict[SideName, ScriptProcess] = {}
            for side in SIDES:
                pair[side] = self._process(side)
                stack.callback(pair[side].close)
            if self._may_start_ahead:
                for side in SIDES:
                    if not self._servers[side].makes_copies:
                        self._servers[side] = self._server(side)
            yield pair

    def _end_servers(self) -> None:
        for each in self._servers.values():
            each.close()

    def _first_pass(self) -> dict[SideName, _FirstPass]:
        """Run both sides to their ends, which lists their calls and fills the caches of compiled code."""
        self.observer.stage("first pass")
        with ThreadPoolExecutor(2) as pool:
            try:
                found = dict(zip(SIDES, pool.map(self._calls, SIDES), strict=True))
            except BaseException:
                self._end_servers()  # An interrupt: nobody waits for the scripts to end.
                raise
        for side, each in found.items():
            if each.error is not None and _is_out_of_memory(each.error):
                found[side] = self._calls(side)  # it may fit when it runs alone
        return found

    def _calls(self, side: SideName) -> _FirstPass:
        calls: list[Call] = []
        try:
            with closing(self._process(side)) as process:
                while (call := process.reach(self.settings.timeout_s)) is not None:
                    calls.append(call)
                process.imported()
        except OtherCodeError:
            raise
        except HarnessError as error:
            error.side = side
            return _FirstPass(calls, error)
        return _FirstPass(calls)

    # The comparison

    def _compare(self, first: Mapping[SideName, _FirstPass], *, save: bool = True) -> ComparisonResult:
        if not any(each.calls or each.error for each in first.values()):
            raise nothing_recorded(self.sides["head"].command)
        names = names_of([first[side].calls for side in SIDES])
        self._names = dict(zip(SIDES, names, strict=True))
        cases, alone = self._cases(first)
        self._trials = [case.trial for case in cases]
        self._spent_s = 0.0
        known = self.calibration
        if known is not None and not any(trial.id in known.apart for trial in self._trials):
            known = None
        interrupted = False
        described = self._describe(first, known)
        with ComparisonJournal(self._folder if save and self.settings.save else None, described) as journal:
            try:
                self._measure(cases, journal)
            except KeyboardInterrupt:
                interrupted = True
                for trial in self._trials:
                    trial.interrupt()
                settle(self._trials, self.policy)
            verdicts = [*(trial.verdict() for trial in self._trials), *alone]
            return journal.result(verdicts, interrupted=interrupted, calibration=known)

    def _cases(self, first: Mapping[SideName, _FirstPass]) -> tuple[list[_ScriptCase], list[Verdict]]:
        """Return the calls that both sides have, and the verdicts of calls that only one side has.

        A script that fails gets its own verdict, even if it measured something before.
        """
        places = {
            side: {name: place for place, name in enumerate(names)} for side, names in self._names.items()
        }
        both: list[_ScriptCase] = []
        alone = [
            self._failed(Case(self.suite, "script", {}, ""), each.error)
            for each in first.values()
            if each.error
        ][-1:]
        untimed = self._told_untimed()
        for name in dict.fromkeys((*self._names["head"], *self._names["base"])):
            case = Case(self.suite, name.kernel, dict(name.sizes), "")
            if not is_selected(self._selected, case.suite, case.kernel, case.sizes):
                continue
            if told := [(side, untimed[side][name]) for side in untimed if name in untimed[side]]:
                alone.append(_untimed_verdict(case, *told[0]))
                continue
            lacking = next((side for side in SIDES if name not in places[side]), None)
            if lacking is None:
                trial = CaseTrial(
                    case.id, case, self.policy, noise_apart(self.device, self.calibration, case.id)
                )
                both.append(_ScriptCase({side: places[side][name] for side in SIDES}, trial))
            elif (error := first[lacking].error) is not None:
                alone.append(self._failed(case, error))
            elif lacking == "base":
                alone.append(bare_verdict(case.id, case, "new", "only-in-head"))
            else:
                alone.append(bare_verdict(case.id, case, "missing", "only-in-base"))
        return both, alone

    @staticmethod
    def _failed(case: Case, error: HarnessError) -> Verdict:
        return failed_by(bare_verdict(case.id, case, "failed", ""), error)

    def _describe(self, first: Mapping[SideName, _FirstPass], known: Calibration | None) -> Comparison:
        base, head = (dataclasses.replace(side.source, suite=self.suite) for side in self.sides.values())
        timers = dict.fromkeys(call.timer for each in first.values() for call in each.calls)
        return Comparison(
            **begun(),
            command="compare",
            base=base,
            head=head,
            kernels=tuple(dict.fromkeys(trial.case.kernel for trial in self._trials)),
            device=self.device,
            toolchain=None,
            identity=self.probe.identity(),
            settings={
                "method": ", ".join(timers),
                "script": self.sides["head"].command,
                **recorded_settings(self.settings, self.policy),
            },
            calibrated_at=known.measured_at if known else None,
        )

    def _measure(self, cases: Sequence[_ScriptCase], journal: ComparisonJournal) -> None:
        while wanting := [case for case in cases if not case.trial.settled]:
            if self._is_spent:
                for case in wanting:
                    case.trial.interrupt("budget-spent")
            else:
                self._pair(in_order(wanting), journal)
            settle(self._trials, self.policy)

    @property
    def _is_spent(self) -> bool:
        return self.settings.budget_s is not None and self._spent_s >= self.settings.budget_s

    def _pair(self, cases: Sequence[_ScriptCase], journal: ComparisonJournal) -> None:
        """Measure these calls in order, in a fresh process of each side, while the budget lasts."""
        self._pairs += 1
        confirming = all(case.trial.confirming for case in cases)
        self.observer.process(self._pairs, len(cases), "confirm" if confirming else "look")
        order: Sequence[SideName] = SIDES if self._pairs % 2 else SIDES[::-1]
        with Sampler(self.probe, mark_s=0.1) as sampler, ExitStack() as stack:
            try:
                sides = stack.enter_context(self._next_pair())
                for case in cases:
                    if self._is_spent:
                        break
                    self.observer.started(case.trial.id)
                    self._at_call(
                        Turns(sides, order, self.settings.timeout_s, self.pair, self._rng),
                        case,
                        sampler,
                        journal,
                    )
                    self.observer.measured(case.trial.id)
            except HarnessError as error:
                message = f"{error.message}{_TWICE if _is_out_of_memory(error) else ''}"
                for case in cases:
                    if not case.trial.settled:
                        case.trial.end("failed", error.reason, message, error.log, side=error.side)

    def _at_call(self, turns: Turns, case: _ScriptCase, sampler: Sampler, journal: ComparisonJournal) -> None:
        trial = case.trial
        turns.reach(case.places, self._names, trial.id)
        if trial.outputs is None:
            found = OutputsCheck(turns.observe, self.scratch, self.settings.rtol).run()
            trial.outputs = found.outputs
            if found.difference and not self.settings.only_note_outputs:
                trial.end("failed", "differs-from-base", f"{found.difference}.{_IF_MEANT}", side="head")
                return
        try:
            block = turns.block(trial.precision.standard_error)
        except CallFailedError as error:
            trial.end("failed", error.reason, error.message, side=error.side)
            return
        seen = telemetry_of(sampler, block.quads[0].started_ns, block.quads[-1].ended_ns, own_pids=turns.pids)
        block = dataclasses.replace(block, telemetry=seen)
        gated = gate(block, usual=None)
        self._spent_s += block.gpu_s
        kept = CaseBlock(case=trial.id, process=self._pairs, block=block, touched=gated.touched)
        journal.add(dataclasses.replace(kept, confirming=trial.confirming))
        trial.add(block, gated)


def _is_out_of_memory(error: HarnessError) -> bool:
    return "out of memory" in f"{error.message}\n{error.log}".lower()


def _untimed_verdict(case: Case, side: SideName, untimed: Untimed) -> Verdict:
    bare = bare_verdict(case.id, case, "failed", "")
    return without_time(bare, untimed.why, side, skipped=untimed.skipped)


def in_order(cases: Sequence[_ScriptCase]) -> list[_ScriptCase]:
    """Return the longest sequence of calls that both sides make in the same order, preferring the least
    measured.

    The remaining calls are measured in a later pair of processes.
    """
    ordered = sorted(cases, key=lambda case: case.places["base"])
    at_head = [case.places["head"] for case in ordered]
    if at_head == sorted(at_head):
        return ordered
    fewest = min(_measured_times(case) for case in cases)
    chains: list[tuple[int, int]] = []
    """Weight of the best sequence that ends with each call, and the call before it."""
    for number, case in enumerate(ordered):
        weight = len(cases) if _measured_times(case) == fewest else 1
        before = ((chains[each][0], each) for each in range(number) if at_head[each] < at_head[number])
        score, previous = max(before, default=(0, -1))
        chains.append((score + weight, previous))
    at = chains.index(max(chains))
    found: list[_ScriptCase] = []
    while at >= 0:
        found.append(ordered[at])
        at = chains[at][1]
    return found[::-1]


def _measured_times(case: _ScriptCase) -> int:
    return len(case.trial.rounds) + len(case.trial.again)
