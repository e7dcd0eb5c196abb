"""Two commits of a suite compared on one device, in fresh processes, judged at planned looks."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from harness.device.lock import Busy
from harness.device.machine import machine_name
from harness.device.peaks import BeyondPeakError, unit_of
from harness.device.process_state import differences
from harness.device.telemetry import Sampler
from harness.device.toolchains import FoundToolchain, environment_of
from harness.errors import HarnessError, Side, SuiteError, UsageError, WorkerError
from harness.judgement.attribution import solo_of
from harness.judgement.case_trial import CaseTrial, NoisePriors, bare_verdict, settle
from harness.judgement.gates import CanaryLevel, canary_level, gate, usual_level
from harness.judgement.judge import Policy, policy_of
from harness.judgement.limits import JUDGED, USUAL_LIMITS, wrong_twin
from harness.judgement.noise import Calibration, noise_apart, noise_of_card, noise_of_case, read_calibration
from harness.measure import protocol
from harness.measure.problem_changes import Changes, demanding, sentences
from harness.measure.protocol import SideName, SidesByPair
from harness.measure.quads import PairSettings
from harness.records.record_files import ComparisonResult, Journal, RecordWriter
from harness.records.types import (
    TWIN_PLANTED,
    TWIN_SAME,
    Arm,
    CaseBlock,
    Comparison,
    DeviceInfo,
    L2Policy,
    Verdict,
    VerdictStatus,
)
from harness.run.device_session import DeviceObserver, DeviceSession, WorkerProcess, unfit
from harness.run.two_workers import HEAD_FIRST, SIDES, PairsAhead, ToBuild, TurnPair, most_ahead
from harness.suite.case_id import size_label
from harness.suite.kernel import HostFunction, Kernel, PythonFunction, TorchFunction
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase, Refusal
from harness.suite.problem import Case, ceil_div
from harness.suite.suite_data import DefinitionCall, Loading, SuiteCall, SuiteData
from harness.system.process import Failed, Query, failure

if TYPE_CHECKING:
    from typing_extensions import Self

WARM_S = 0.01
"""Warm-up of a pair on a card that another pair has just warmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How anything is compared on a device."""

    device: str | None = None
    margin: float | None = None
    tolerance: float | None = None
    """None for margin or tolerance takes what suits the device."""
    confidence: float = 0.999
    timeout_s: float = 120.0
    """Timeout of one case in one process; of executables, of one process."""
    busy: Busy = "wait"
    """What to do where another process measures on the device."""
    budget_s: float | None = None
    """Device time after which no process is begun; of executables, time of processes."""
    seed: int = 1
    results: Path | None = None
    """Folder of all records, where calibrations are looked for; None has none."""
    save: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(JudgeSettings):
    command: str = "compare"
    l2: L2Policy | None = None
    pair: PairSettings | None = None
    """How many quads; None takes what suits the device."""
    solo_s: float = 1.0
    """How long each side of a flagged case runs by itself, to see what power it draws; 0 for not at all."""
    twins: bool | None = None
    """Whether to measure twins. None does in CI, unless on a CPU, whose noise would hide the planted one."""
    measure_identical: bool = False
    """Whether to measure kernels whose compiled code is the same, to learn of the noise."""
    toolchains: Mapping[SideName, FoundToolchain] = field(default_factory=dict)
    """What compiles each side, where both are of one source; empty for what is found."""


Purpose = Literal["look", "confirm", "attribute"]


class CompareObserver(DeviceObserver, Protocol):
    def process(self, number: int, cases: int, purpose: Purpose) -> None: ...
    def started(self, case: str) -> None: ...
    def measured(self, case: str) -> None: ...


@dataclass(slots=True)
class CaseEntry:
    """A case that both commits have: what is asked of the worker, and its trial so far."""

    pair: protocol.PairOf
    trial: CaseTrial
    digests: dict[str, str] = field(default_factory=dict)
    """Digests of outputs that were verified in full, by side."""
    by_base: bool = False
    """Whether base's problem lies in other files than head's, so that head is verified by both."""
    built: Mapping[SideName, protocol.SideFacts] | None = None
    """What each side became when it was built; None until then, and where the compiler died of it."""
    in_turns: bool = False
    """Whether each side has a process of its own, as code of its own runs in it."""


def policy_for(device: DeviceInfo, settings: JudgeSettings) -> Policy:
    """What was asked for, else what suits the device. Raises UsageError where that makes no sense."""
    usual = USUAL_LIMITS[device.kind]
    return policy_of(usual, settings.margin, settings.tolerance, confidence=settings.confidence)


def recorded_settings(settings: JudgeSettings, policy: Policy) -> dict[str, str | float | None]:
    """What the record of any comparison says of how it was measured and judged."""
    return {
        "seed": settings.seed,
        "timeout_s": settings.timeout_s,
        "budget_s": settings.budget_s,
        "margin": policy.margin,
        "tolerance": policy.tolerance,
        "confidence": policy.confidence,
        "looks": ",".join(map(str, policy.looks)),
    }


def pair_settings_for(device: DeviceInfo, policy: Policy) -> PairSettings:
    """As many quads as bring their own error well below what is to be seen; fewer where launches are long."""
    few = device.kind == "cpu"
    return PairSettings(
        min_quads=10 if few else 6,
        max_quads=30 if few else 100,
        standard_error=policy.margin / 5,
        max_time_s=10.0 if few else 1.0,
    )


def match(
    base: Sequence[PlannedCase], head: Sequence[PlannedCase]
) -> tuple[list[tuple[protocol.PairOf, Case]], list[Verdict]]:
    """The cases that both commits have, and verdicts of those that only one has."""
    of_base = {planned.case.id: planned.case for planned in base}
    of_head = {planned.case.id: planned.case for planned in head}
    both: list[tuple[protocol.PairOf, Case]] = []
    alone: list[Verdict] = []
    for name, case in of_head.items():
        if name in of_base:
            base_side, head_side = (protocol.PairSide(suite=s, kernel=case.kernel) for s in ("base", "head"))
            pair = protocol.PairOf(id=name, sizes=case.sizes, base=base_side, head=head_side)
            both.append((pair, case))
        else:
            alone.append(bare_verdict(name, case, "new", "only-in-head"))
    gone = {name: case for name, case in of_base.items() if name not in of_head}
    alone += [bare_verdict(name, case, "missing", "only-in-base") for name, case in gone.items()]
    return both, alone


def against_itself(case: Case, name: str, steps: int | None = None) -> protocol.PairOf:
    """A case of head against itself; with a slowdown of so many steps planted, where `steps` are given."""
    base = protocol.PairSide(suite="head", kernel=case.kernel, planted=steps is not None)
    head = msgspec.structs.replace(base, steps=steps or 0)
    return protocol.PairOf(id=name, sizes=case.sizes, base=base, head=head)


def failed_by(verdict: Verdict, failed: Failed | HarnessError) -> Verdict:
    reason, message, log, side = failed.reason, failed.message, failed.log, failed.side
    return dataclasses.replace(verdict, status="failed", reason=reason, message=message, log=log, side=side)


class Comparing(DeviceSession):
    """A comparison of two loaded suites on one device; a context manager like its base."""

    observer: CompareObserver
    mark_s = 0.1
    """The shorter, the fewer quads a gate has to catch along with one that was disturbed."""

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
        )
        self.base, self.head, self.settings = base, head, settings
        self._compilers = {side: tool.nvcc for side, tool in settings.toolchains.items() if tool.nvcc}
        self.policy = Policy()
        self.pair = PairSettings()
        self.calibration: Calibration | None = None
        self._noise = NoisePriors()
        self._rng = random.Random(settings.seed)  # noqa: S311 - an order, not a secret
        self._processes = 0
        self._spent_s = 0.0
        self._canaries: list[CanaryLevel] = []
        """Levels of all blocks so far, in every comparison of the session."""
        self.unplanted: list[str] = []
        """Why slowdowns could not be planted, a sentence each."""
        self._journal = Journal(None)
        self._blocks: list[CaseBlock] = []
        self._turns: TurnPair | None = None
        self._ahead = PairsAhead()
        loadings = {"base": base.loading, "head": head.loading}
        self._loadings: dict[str, Loading] = {side: each for side, each in loadings.items() if each}
        self._told = self._told_to(None)
        self._inspected: tuple[tuple[str, ...], set[str]] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._check_compilers()
            self.policy = policy_for(self.device, self.settings)
            self.pair = self.settings.pair or pair_settings_for(self.device, self.policy)
            self.pair = dataclasses.replace(self.pair, l2=self.settings.l2)
            self._ahead.most = most_ahead(self.device)
            self.judge_by(read_calibration(self.folder) if self.folder else None)
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

    def judge_by(self, calibration: Calibration | None) -> None:
        """Take the device's noise from this calibration, in what is begun from now on."""
        self.calibration = calibration
        self._noise = noise_of_card(calibration, self.device)

    @property
    def folder(self) -> Path | None:
        """The folder of the device's records; None where none are kept."""
        results = self.settings.results
        return results and results / machine_name(self.device)

    def run(self, base: Sequence[PlannedCase], head: Sequence[PlannedCase]) -> ComparisonResult:
        """Compare the planned cases of both commits.

        A case that fails, crashes or hangs costs its own verdict only. Raises StoreError where no record can
        be begun. An interrupt ends the comparison early: what is finished is stored, judged and returned.
        """
        fit, left_out = self.divide(head)
        both, alone = match(self.divide(base)[0], fit)
        if any(self._is_elsewhere(each.kernel) for each in fit):
            self._check_environments()
        # A case that head has, only not for this device, has not vanished.
        of_head = {planned.case.id for planned in head}
        alone = [self._explained(v) for v in alone if v.status == "new" or v.case not in of_head]
        entries = [self.entry(pair, case) for pair, case in both]
        return self.compare(entries, alone, left_out)

    def refusal(self, planned: PlannedCase) -> Refusal | None:
        elsewhere = self._is_elsewhere(planned.kernel)
        refused = unfit(planned, self.device, elsewhere=elsewhere)
        if refused or elsewhere or not self.settings.toolchains:
            return refused
        return untouched(planned.kernel, self.device.backend, has_compilers=bool(self._compilers))

    def _is_elsewhere(self, kernel: Kernel) -> bool:
        """Whether a kernel is a function that runs in the environments of the two toolchains."""
        named = self.settings.toolchains.values()
        source = kernel.source_for(self.device.backend)
        if not named or not isinstance(source, (HostFunction, PythonFunction)):
            return False
        # An extension of PyTorch's is built by an nvcc, of which its workers are told.
        return all(each.python for each in named) or (
            isinstance(source, TorchFunction) and bool(self._compilers)
        )

    def _check_environments(self) -> None:
        """Raise UsageError where a worker could not even start in one of them."""
        for each in self.settings.toolchains.values():
            if each.python and each.missing:
                raise UsageError(
                    f"--toolchain {each.given} lacks {', '.join(each.missing)}, which a worker imports: "
                    f"{each.python} -m pip install {' '.join(each.missing)}."
                )

    def _explained(self, verdict: Verdict) -> Verdict:
        """The verdict of a case that one commit has: failed, where the other's suite cannot be loaded."""
        side: Side = "base" if verdict.status == "new" else "head"
        problem = (self.base if side == "base" else self.head).problem
        if problem is None:
            return verdict
        return failed_by(verdict, msgspec.structs.replace(failure(problem), side=side))

    def _with_what_is_missing(self, verdict: Verdict) -> Verdict:
        """A failed verdict that says which files its commit lacks."""
        if verdict.status != "failed" or not verdict.side:
            return verdict
        side = self.base if verdict.side == "base" else self.head
        return dataclasses.replace(verdict, message=side.explained(verdict.message, verdict.log))

    def entry(self, pair: protocol.PairOf, case: Case) -> CaseEntry:
        in_turns = self._has_processes(pair)
        noise = noise_of_case(self._noise, self.calibration, case.id)
        trial = CaseTrial(pair.id, case, self.policy, noise_apart(self.device) if in_turns else noise)
        return CaseEntry(pair, trial, in_turns=in_turns)

    def _has_processes(self, pair: protocol.PairOf) -> bool:
        """Return whether each side of a pair gets a process of its own.

        It does where code of a side's suite runs in the process that measures it, and where the suites give
        variables of the environment different values, which a compiler or a driver may read.
        """
        if len({repr(sorted(each.variables.items())) for each in self._told.values()}) > 1:
            return True
        suites = {"base": self.base.suite, "head": self.head.suite}
        kernels = (suites[side.suite].by_name[side.kernel] for side in pair.sides.values())
        return any(kernel.runs_on_host(self.device.backend) for kernel in kernels)

    def inspect(self, entries: Sequence[CaseEntry]) -> None:
        """Build both sides of these entries ahead of comparing them: what was built, they then know."""
        self._inspected = self._inspect(entries)

    def compare(
        self, entries: list[CaseEntry], alone: Sequence[Verdict] = (), left_out: Sequence[str] = ()
    ) -> ComparisonResult:
        described = self.describe()
        interrupted = False
        twins: list[CaseEntry] = []
        self._blocks = []
        changes: tuple[str, ...] = ()
        folder = self.folder if self.settings.save else None
        with Journal(RecordWriter(folder, described) if folder else None) as self._journal:
            try:
                changes, changed = self._inspected or self._inspect(entries)
                self._verify_identical(entries, changed)
                alone = self._verified(alone, changed)
                twins = self._twins(entries) if self._wants_twins() else []
                self._measure_all([*entries, *twins])
                self._run_alone(entries)
            except KeyboardInterrupt:
                interrupted = True
                for entry in (*entries, *twins):
                    entry.trial.interrupt()
                settle([entry.trial for entry in (*entries, *twins)], self.policy)
            of_twins = tuple(twin.trial.verdict() for twin in twins)
            stand = with_twins([entry.trial.verdict() for entry in entries], of_twins)
            verdicts = tuple(self._with_what_is_missing(verdict) for verdict in (*stand, *alone))
            for verdict in (*verdicts, *of_twins):
                self._journal.add(verdict)
            left_out = (*left_out, *(self.unplanted if len(twins) == 1 else ()))
            self._journal.finish(complete=not interrupted, left_out=left_out, problem_changes=changes)
        return ComparisonResult(
            comparison=described,
            verdicts=verdicts,
            twins=of_twins,
            blocks=tuple(self._blocks),
            left_out=tuple(left_out),
            problem_changes=changes,
            interrupted=interrupted,
            problem=self._journal.problem,
            path=self._journal.path,
            calibration=self.calibration,
        )

    def describe(self) -> Comparison:
        settings = self.settings
        return Comparison(
            **self.description(),
            command=settings.command,
            base=self.base.source,
            head=self.head.source,
            kernels=tuple(kernel.name for kernel in self.head.suite.kernels),
            settings={
                **recorded_settings(settings, self.policy),
                "twins": self._wants_twins(),
                **{name: getattr(self.pair, name) for name in self.pair.__slots__},
                **{f"{side}_toolchain": each.given for side, each in settings.toolchains.items()},
            },
            toolchains={side: each.record for side, each in settings.toolchains.items()},
            calibrated_at=self.calibration.measured_at if self.calibration else None,
        )

    def _inspect(self, entries: Sequence[CaseEntry]) -> tuple[tuple[str, ...], set[str]]:
        """Build both sides, settle what is identical or broken, and return what `_problem_changes` does."""
        shared = [entry for entry in entries if not entry.in_turns]
        # Of two environments nothing is the same.
        in_turns = [
            entry
            for entry in entries
            if entry.in_turns and not self._is_elsewhere(self.head.suite.by_name[entry.trial.case.kernel])
        ]
        self._ahead.wanted = self._to_build(in_turns)
        self._ahead.start(self._new_turns, 1)
        pairs = tuple(entry.pair for entry in shared)
        self.observer.stage("build")
        # A compiler that hangs or kills its process is reported by the case that needs it.
        with suppress(WorkerError):
            request = protocol.Inspect(pairs=pairs)
            reply = self.builder.ask(request, self._build_timeout_s(len(pairs)), self._heard)
            if not isinstance(reply, Failed):
                for entry in shared:
                    self._settle_built(entry, reply[entry.pair.id])
        self.builder.kill()
        self._ahead.prepare(1)
        changes = ((), set[str]()) if self._same_problem() else self._problem_changes(entries)
        self._inspect_in_turns(in_turns)
        return changes

    def _same_problem(self) -> bool:
        """Return whether both suites define their problem in the same files."""
        if self.base.suite.root == self.head.suite.root:
            return True
        answers = [self._loadings[side].answer(DefinitionCall()) for side in SIDES if side in self._loadings]
        return len(answers) == 2 and answers[0] == answers[1] and not isinstance(answers[0], Failed)

    def _build_timeout_s(self, pairs: int) -> float:
        return max(1, ceil_div(2 * pairs, os.cpu_count() or 1)) * self.settings.timeout_s

    def _inspect_in_turns(self, entries: Sequence[CaseEntry]) -> None:
        """Build both sides of these entries, each in the process that will measure it first."""
        if not entries:
            return
        pairs = tuple(entry.pair for entry in entries)

        def answer() -> Mapping[SideName, SidesByPair] | Failed:
            return self._side_processes().inspect(pairs, self._build_timeout_s(len(pairs)))

        reply = self._answered(answer)
        if isinstance(reply, Failed):
            return
        for entry in entries:
            self._settle_built(entry, {side: reply[side][entry.pair.id][side] for side in SIDES})

    def _settle_built(self, entry: CaseEntry, built: Mapping[SideName, protocol.SideFacts]) -> None:
        trial, entry.built = entry.trial, built
        trial.sides = {side: _arm(facts) for side, facts in built.items()}
        of_base, of_head = (
            built[side].identities(one_compiler=not self._compilers) for side in ("base", "head")
        )
        if not of_base.isdisjoint(of_head) and not self.settings.measure_identical:
            trial.end("identical", "same-code", "")
            return
        for side in HEAD_FIRST:
            if facts := built[side] if built[side].reason else None:
                trial.end("failed", facts.reason, facts.message, facts.log, side=side)
                return

    def _problem_changes(self, entries: Sequence[CaseEntry]) -> tuple[tuple[str, ...], set[str]]:
        """How head's problem differs from base's, a sentence each, and the dtypes that kernels may be wrong
        for.

        Head's kernels are held to both problems whatever is found: a problem that says one thing when it is
        asked may say another when it judges.
        """
        asked = _telling(entries)
        seed = self.settings.seed
        questions = [protocol.Differences(case=None, seed=seed)]
        for entry, reference in asked:
            case = protocol.CaseOf(kernel=entry.pair.head.kernel, sizes=entry.pair.sizes)
            questions.append(protocol.Differences(case=case, seed=seed, reference=reference))
        found: list[Changes] = []
        unknown: tuple[str, ...] = ()
        for question in questions:
            reply = self.ask(question, self.settings.timeout_s)
            if isinstance(reply, Failed):
                # What hangs or raises may do so in every case, and each would take its time.
                unknown = (f"What changed could not be told: {reply.message}",)
                break
            found.append(reply)
        self.leave()
        of_suite, *of_cases = found or [{}]
        places: dict[str, Changes] = {}
        changed: set[str] = set()
        for (entry, _), changes in itertools.zip_longest(asked, of_cases):
            dtype = entry.trial.case.dtype
            place = f"{size_label(entry.pair.sizes)} {dtype}"
            places[place] = {**places.get(place, {}), **(changes or {})}
            if changes is None or demanding(changes):
                changed.add(dtype)
        for entry in entries:
            entry.by_base = True
        return (*sentences(of_suite, places), *unknown), changed

    def _verify_identical(self, entries: Sequence[CaseEntry], changed: Collection[str]) -> None:
        """Code that is identical, and was right by base's problem, need not be right by head's."""
        identical = {
            entry.pair.id: entry.trial
            for entry in entries
            if entry.trial.verdict().status == "identical" and entry.trial.case.dtype in changed
        }
        for name, found in self._wrong({name: trial.case for name, trial in identical.items()}).items():
            identical[name].end("failed", found.reason, found.message, found.log, side=found.side)

    def _verified(self, alone: Sequence[Verdict], changed: Collection[str]) -> list[Verdict]:
        """The verdicts of cases that one commit has; a new one must be right, by a changed base's problem
        too.
        """
        new = {verdict.case: verdict for verdict in alone if verdict.status == "new"}
        wrong = self._wrong(new, by_base=changed)
        return [failed_by(each, wrong[each.case]) if each.case in wrong else each for each in alone]

    def _wrong(self, cases: Mapping[str, Case | Verdict], by_base: Collection[str] = ()) -> dict[str, Failed]:
        """What failed of these cases of head, by id; those of `by_base` dtypes are held to base's problem
        too.

        Base is at fault where its problem fails.
        """
        wrong: dict[str, Failed] = {}
        if cases:
            self.leave()
        for name, case in cases.items():
            self.observer.started(name)
            # Code of head's that runs in the process has that process to itself.
            on_host = self.head.suite.by_name[case.kernel].runs_on_host(self.device.backend)
            self._tell(self._told_to("head" if on_host else None))
            request = protocol.Measure(
                kernel=case.kernel,
                sizes=case.sizes,
                seed=self.settings.seed,
                settings=None,
                by_base=case.dtype in by_base,
            )
            reply = self.ask(request, self.settings.timeout_s)
            if not isinstance(reply, Failed):
                if not reply.reason:
                    continue
                self.leave()
                reply = Failed(reason=reply.reason, message=reply.message, log=reply.log)
            side: Side = "base" if reply.side == "base" else "head"
            wrong[name] = msgspec.structs.replace(reply, side=side)
        if cases:
            self._tell(self._told_to(None))
        return wrong

    def _told_to(self, own: SideName | None) -> dict[SideName, SuiteData]:
        """The suites that a worker is told of: all but the side's own, which it loads itself."""
        return {
            side: loading.data
            for side in SIDES
            if side != own and (loading := self._loadings.get(side)) and loading.data
        }

    def _tell(self, told: Mapping[SideName, SuiteData]) -> None:
        """Have the worker processes from now on load all suites but these."""
        if told != self._told:
            self.leave()
            self._told = told

    def _new_worker(self, python: str = "", env: Mapping[str, str] = {}) -> WorkerProcess:
        return WorkerProcess(self.scratch, python, env, answered=_Answering(self._loadings))

    def _twins(self, entries: Sequence[CaseEntry]) -> list[CaseEntry]:
        """A kernel against itself, as it is and slowed by the tolerance: the first case that can be."""
        measured = [entry.trial.case for entry in entries if not entry.trial.settled and not entry.in_turns]
        for case in measured:
            (steps,) = self.find_steps([against_itself(case, TWIN_PLANTED, 0)], [self.policy.tolerance])
            if steps is not None:
                same = self.entry(against_itself(case, TWIN_SAME), case)
                return [same, self.entry(against_itself(case, TWIN_PLANTED, steps), case)]
        return [self.entry(against_itself(case, TWIN_SAME), case) for case in measured[:1]]

    def _wants_twins(self) -> bool:
        wanted = self.settings.twins
        return bool(os.environ.get("CI")) and self.device.kind != "cpu" if wanted is None else wanted

    def find_steps(self, pairs: Sequence[protocol.PairOf], targets: Sequence[float]) -> list[int | None]:
        """How many planted steps slow each pair's head by its target; None where none can be planted."""
        self.observer.stage("plant")
        found: list[int | None] = []
        for pair, target in zip(pairs, targets, strict=True):
            request = protocol.FindSteps(pair=pair, seed=self.settings.seed, target=target)
            reply = self.ask(request, self.settings.timeout_s)
            if isinstance(reply, Failed):
                self.unplanted.append(f"{pair.id} +{100 * target:g} %: {reply.message}")
                found.append(None)
            else:
                found.append(reply)
        self.leave()
        return found

    def _measure_all(self, entries: Sequence[CaseEntry]) -> None:
        """Measure, in as many processes as it takes, what is undecided or is to be confirmed."""
        trials = [entry.trial for entry in entries]
        while wanting := [entry for entry in entries if not entry.trial.settled]:
            if self.settings.budget_s is not None and self._spent_s >= self.settings.budget_s:
                for entry in wanting:
                    entry.trial.interrupt("budget-spent")
            else:
                self._process(wanting)
            settle(trials, self.policy)
        self._ahead.close()

    def _process(self, entries: Sequence[CaseEntry]) -> None:
        """One fresh process for all of these, in random order; another after one that failed."""
        self._processes += 1
        confirming = all(entry.trial.confirming for entry in entries)
        self.observer.process(self._processes, len(entries), "confirm" if confirming else "look")
        shuffled = self._rng.sample(list(entries), len(entries))
        self._ahead.wanted = self._to_build([entry for entry in entries if entry.in_turns])
        for in_turns in (True, False):  # the processes that built functions are there already
            for entry in shuffled:
                if entry.in_turns == in_turns and not entry.trial.settled:
                    self.observer.started(entry.pair.id)
                    self._measure(entry)
                    self.observer.measured(entry.pair.id)
            self.leave()

    def _measure(self, entry: CaseEntry) -> None:
        trial, wanted = entry.trial, entry.trial.precision
        request = protocol.Compare(
            pair=entry.pair,
            seed=self.settings.seed,
            order_seed=self._rng.getrandbits(32),
            settings=dataclasses.replace(  # it ends where more of it would not matter for the verdict
                self.pair,
                warmup_min_s=WARM_S if self.started else self.pair.warmup_min_s,
                standard_error=self.pair.standard_error if self.settings.pair else wanted.standard_error,
                min_quads=max(self.pair.min_quads, wanted.min_quads),
            ),
            verified=entry.digests,
            by_base=entry.by_base,
        )
        ask = self._ask_in_turns if entry.in_turns else self.ask
        reply = ask(request, self.settings.timeout_s)
        if isinstance(reply, Failed):
            status: VerdictStatus = "invalid" if reply.reason == BeyondPeakError.reason else "failed"
            trial.end(status, reply.reason, reply.message, reply.log, side=reply.side)
            return
        entry.digests = {side: facts.digest for side, facts in reply.sides.items()}
        trial.sides = {side: _arm(facts) for side, facts in reply.sides.items()}
        trial.settings_changed = _arithmetic(self.peaks, reply)
        if not self.settings.toolchains:  # two environments differ in most
            trial.settings_changed += differences(*(reply.sides[side].state for side in SIDES))
        telemetry = self.seen(reply.block.quads[0].started_ns, reply.block.quads[-1].ended_ns)
        block = dataclasses.replace(reply.block, telemetry=telemetry)
        usual = None if entry.in_turns else usual_level(self._canaries)
        gated = gate(block, usual=usual)
        self._spent_s += block.gpu_s
        self._blocks.append(
            CaseBlock(
                case=entry.pair.id,
                process=self._processes,
                confirming=trial.confirming,
                block=block,
                touched=gated.touched,
            )
        )
        self._journal.add(self._blocks[-1])
        if not entry.in_turns:
            self._canaries.append(canary_level(block.quads))
        trial.add(block, gated)

    def _ask_in_turns(self, request: protocol.Compare, timeout_s: float) -> protocol.CompareReply | Failed:
        """What a pair of processes answers; one is started where there is none, and ended where it fails."""
        ahead = self._ahead
        return self._answered(lambda: self._side_processes().compare(request, timeout_s, ahead.prepare))

    def _side_processes(self) -> TurnPair:
        """A process for each side, which have opened the device; they are begun where there are none."""
        if self._turns is None:
            with ExitStack() as stack:
                self._sampler = stack.enter_context(Sampler(self.probe, mark_s=self.mark_s))
                turns = self._ahead.next(self._new_turns)
                stack.callback(turns.close)
                turns.open()
                self._worker = stack.pop_all()
            self._turns = turns
        return self._turns

    def _new_turns(self, first: SideName) -> TurnPair:
        return TurnPair(self._new_side, self._open_side, self.observer.stage, first)

    def _to_build(self, entries: Sequence[CaseEntry]) -> ToBuild:
        return tuple(entry.pair for entry in entries), self._build_timeout_s(len(entries))

    def _new_side(self, side: SideName) -> WorkerProcess:
        """A worker for one side, with what its toolchain asks of it."""
        toolchain = self.settings.toolchains.get(side)
        if toolchain is None:
            return self._new_worker()
        return self._new_worker(toolchain.python, environment_of(toolchain))

    def _open_side(self, side: SideName, worker: WorkerProcess) -> None:
        """Have a side's process load that side's suite, and be told of the other."""
        self._open(worker, self._told_to(side))

    def _end_spare(self) -> None:
        super()._end_spare()
        self._ahead.close()

    def leave(self) -> None:
        self._turns = None
        super().leave()

    @property
    def started(self) -> bool:
        return self._turns is not None or super().started

    def _own_pids(self) -> list[int]:
        return [*self._ahead.pids, *(super()._own_pids() if self._turns is None else self._turns.pids)]

    def _run_alone(self, entries: Sequence[CaseEntry]) -> None:
        """Run each side of what is confirmed by itself, as in quads one that draws more power slows both.

        A card that is not at its power limit slows nobody. Verdicts stand without it.
        """
        found = [entry for entry in entries if entry.trial.confirmed and not entry.trial.ended]
        found = [entry for entry in found if entry.trial.power_capped is not False and not entry.in_turns]
        seconds = self.settings.solo_s
        if not found or seconds <= 0 or self.device.kind != "gpu":
            return
        self.observer.process(self._processes + 1, len(found), "attribute")
        for entry in found:
            self.observer.started(entry.pair.id)
            request = protocol.RunAlone(
                pair=entry.pair,
                seed=self.settings.seed,
                order_seed=self._rng.getrandbits(32),
                duration_s=seconds,
            )
            reply = self.ask(request, self.settings.timeout_s + 2 * seconds)
            if not isinstance(reply, Failed):
                seen, runs = self.snapshots, reply.items()
                entry.trial.solo = {side: solo_of(seen, **dataclasses.asdict(run)) for side, run in runs}
            self.observer.measured(entry.pair.id)
        self.leave()


@dataclass(frozen=True, slots=True)
class _Answering:
    """Has the process that loaded a side's suite answer for it. It holds no session alive."""

    loadings: Mapping[str, Loading]

    def __call__(self, question: Query, deadline: float) -> object:
        try:
            call = msgspec.json.decode(question.request, type=SuiteCall)
            return self.loadings[question.side].answer(call, max(0.1, deadline - time.monotonic()))
        except HarnessError as error:
            return Failed(reason=type(error).__name__, message=error.message, log=error.log)
        except (msgspec.MsgspecError, KeyError) as error:
            return Failed(
                reason=SuiteError.__name__, message=f"No suite has what a worker asked for: {error}."
            )


def _telling(entries: Sequence[CaseEntry]) -> list[tuple[CaseEntry, bool]]:
    """The cases by which a change of problem is found, and whether to compute their references too.

    These are all that are to be measured; of the others one for each size and dtype, the smallest of a dtype
    with its reference.
    """
    asked: list[tuple[CaseEntry, bool]] = []
    sizes, dtypes = set[tuple[str, str]](), set[str]()
    ordered = sorted(entries, key=lambda each: (each.trial.settled, math.prod(each.pair.sizes.values())))
    for entry in ordered:
        dtype = entry.trial.case.dtype
        point = size_label(entry.pair.sizes), dtype
        if not entry.trial.settled or point not in sizes:
            asked.append((entry, not entry.trial.settled or dtype not in dtypes))
            dtypes.add(dtype)
            sizes.add(point)
    return asked


def untouched(kernel: Kernel, backend: str, *, has_compilers: bool) -> Refusal | None:
    """Why toolchains make no difference to a kernel that runs in the harness's own environment."""
    source = kernel.source_for(backend)
    if isinstance(source, (HostFunction, PythonFunction)):
        return Refusal(
            "not-compiled",
            f"{kernel.name} is a function of Python, which no nvcc compiles: name two Python environments.",
        )
    if not has_compilers:
        return Refusal("not-compiled", f"{kernel.name} is compiled by nvcc, and neither environment has one.")
    return None


def _arm(facts: protocol.SideFacts) -> Arm:
    return Arm(source_sha256=facts.source_sha256, launch=facts.launch, resources=facts.resources)


def _arithmetic(peaks: Mapping[str, float], reply: protocol.CompareReply) -> tuple[str, ...]:
    """Say that only one side must compute float32 in TF32, by its rate in FLOP/s; else nothing."""
    units, fastest = [], 0.0
    for side, arm in zip(SIDES, "AB", strict=True):
        facts, time_ns = reply.sides[side], reply.block.median_ns(arm)
        gflops = facts.flop / time_ns if facts.flop and time_ns else 0.0
        units.append(facts.dtype if unit_of(peaks, facts.dtype, gflops) == facts.dtype else _TF32)
        fastest = max(fastest, gflops)
    if units.count(_TF32) != 1:
        return ()
    beyond = f"{fastest:,.0f} GFLOP/s are beyond float32's peak, {peaks['float32']:,.0f}"
    return (f"arithmetic: {' → '.join(units)} ({beyond})",)


_TF32 = "TF32"


def with_twins(verdicts: Sequence[Verdict], twins: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, all of them invalid where a twin shows that the comparison could not be trusted."""
    wrong = (wrong_twin(twin.case, twin.status, complete=twin.complete) for twin in twins)
    if not (reason := next(filter(None, wrong), "")):
        return list(verdicts)
    invalid = partial(dataclasses.replace, status="invalid", reason=reason, attribution=None)
    return [invalid(verdict) if verdict.status in JUDGED else verdict for verdict in verdicts]
