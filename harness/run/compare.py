"""Compares two commits of a suite on one device, in fresh processes, and judges them at planned looks."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.device.machine import machine_name
from harness.device.peaks import BeyondPeakError, unit_of
from harness.device.process_state import differences
from harness.device.static.architecture_builds import is_arch
from harness.device.static.differences import Difference
from harness.errors import HarnessError, MeasureError, Side, UsageError
from harness.judgement.attribution import solo_of
from harness.judgement.case_trial import CaseTrial, NoisePriors, settle
from harness.judgement.causes import causes
from harness.judgement.gates import CanaryLevel, canary_level, gate, usual_level
from harness.judgement.judge import Policy
from harness.judgement.limits import JUDGED, wrong_twin
from harness.judgement.noise import Calibration, noise_apart, noise_of_card, noise_of_case, read_calibration
from harness.measure import protocol
from harness.measure.paired_kernels import DiffersFromBaseError
from harness.measure.protocol import SideName
from harness.measure.quads import PairSettings
from harness.records.record_files import ComparisonJournal, ComparisonResult
from harness.records.types import (
    TWIN_PLANTED,
    TWIN_SAME,
    CaseBlock,
    Comparison,
    Diagnosis,
    LaunchedKernel,
    Outputs,
    Verdict,
    VerdictStatus,
    fields_of,
)
from harness.run.builds.build_only import code_differences
from harness.run.compare_settings import CompareSettings, pair_settings_for, policy_for, recorded_settings
from harness.run.inspect_pairs import ProblemChanges, checked_at_head, inspect, verify_identical
from harness.run.pair_session import CaseEntry, CompareObserver, PairSession, failed_by, match
from harness.run.two_workers import SIDES
from harness.run.worker_process import import_beside
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase
from harness.suite.problem import Case
from harness.system.process import Failed, failure

if TYPE_CHECKING:
    from typing_extensions import Self

WARM_S = 0.01
"""Warm-up of a pair on a card that another pair has just warmed, in seconds."""


SUPPOSED = 0.02
"""Slowdown assumed for a case without a regression. Two launches of the same code differ by less."""


PROCESSES_AHEAD = 4
"""Number of processes that open the device ahead: two for the first look, and two that confirm."""


class Comparing(PairSession):
    """A comparison of two loaded suites on one device; a context manager like its base."""

    def __init__(
        self, base: LoadedSuite, head: LoadedSuite, settings: CompareSettings, observer: CompareObserver
    ) -> None:
        super().__init__(base, head, settings, observer)
        self.policy = Policy()
        self.pair = PairSettings()
        self.calibration: Calibration | None = None
        self._noise = NoisePriors()
        self._rng = random.Random(settings.seed)  # noqa: S311 - an order, not a secret
        self._processes = 0
        self._spent_s = 0.0
        self._canaries: list[CanaryLevel] = []
        """Levels of all blocks so far, from every comparison of the session."""
        self.wanted = PROCESSES_AHEAD
        self.unplanted: list[str] = []
        """Sentences on slowdowns that could not be planted."""
        self._journal: ComparisonJournal
        self._changes: ProblemChanges | None = None

    def __enter__(self) -> Self:
        # Judging needs it. Loading it takes as long as opening a device, for which this thread waits.
        import_beside("scipy.special")
        super().__enter__()
        try:
            self.policy = policy_for(self.device, self.settings)
            pair = self.settings.pair or pair_settings_for(self.device, self.policy)
            self.pair = dataclasses.replace(pair, l2=self.settings.l2)
            self.judge_by(read_calibration(self.folder) if self.folder else None)
        except BaseException:
            self.__exit__()
            raise
        return self

    def judge_by(self, calibration: Calibration | None) -> None:
        """Use this calibration's noise for all following comparisons."""
        self.calibration = calibration
        self._noise = noise_of_card(calibration, self.device)

    @property
    def folder(self) -> Path | None:
        """Return the folder of the device's records; None if no records are kept."""
        results = self.settings.results
        return results and results / machine_name(self.device)

    def run(self, base: Sequence[PlannedCase], head: Sequence[PlannedCase]) -> ComparisonResult:
        """Compare the planned cases of both commits.

        A case that fails, crashes or hangs loses only its own verdict. Raises StoreError if no record can be
        begun. An interrupt ends the comparison early: finished cases are stored, judged and returned.
        """
        fit, left_out = self.divide(head)
        both, alone = match(self.divide(base)[0], fit)
        if any(self.is_elsewhere(each.kernel) for each in fit):
            self._check_environments()
        # A case that head has for other devices only has not disappeared.
        of_head = {planned.case.id for planned in head}
        alone = [self._explained(v) for v in alone if v.status == "new" or v.case not in of_head]
        entries = [self.entry(pair, case) for pair, case in both]
        return self.compare(entries, alone, left_out)

    def _check_environments(self) -> None:
        """Raise UsageError if a worker cannot start in one of the environments."""
        for each in self.settings.toolchains.values():
            if each.python and each.missing:
                raise UsageError(
                    f"--toolchain {each.given} lacks {', '.join(each.missing)}, which a worker imports: "
                    f"{each.python} -m pip install {' '.join(each.missing)}."
                )

    def _explained(self, verdict: Verdict) -> Verdict:
        """Return the verdict of a case of one commit: failed, if the other commit's suite cannot
        be loaded.
        """
        side: Side = "base" if verdict.status == "new" else "head"
        problem = (self.base if side == "base" else self.head).problem
        if problem is None:
            return verdict
        return failed_by(verdict, msgspec.structs.replace(failure(problem), side=side))

    def _with_what_is_missing(self, verdict: Verdict) -> Verdict:
        """Return a failed verdict with the files that its commit lacks."""
        if verdict.status != "failed" or not verdict.side:
            return verdict
        side = self.base if verdict.side == "base" else self.head
        return dataclasses.replace(verdict, message=side.explained(verdict.message, verdict.log))

    def entry(self, pair: protocol.PairOf, case: Case) -> CaseEntry:
        in_turns = self.has_processes(pair)
        if in_turns:
            noise = noise_apart(self.device, self.calibration, case.id)
        else:
            noise = noise_of_case(self._noise, self.calibration, case.id)
        return CaseEntry(pair, CaseTrial(pair.id, case, self.policy, noise), in_turns=in_turns)

    def inspect(self, entries: Sequence[CaseEntry]) -> None:
        """Build both sides of these entries before comparing them, and store the facts in the entries."""
        self._changes = inspect(self, entries)

    def compare(
        self, entries: list[CaseEntry], alone: Sequence[Verdict] = (), left_out: Sequence[str] = ()
    ) -> ComparisonResult:
        interrupted = False
        twins: list[CaseEntry] = []
        changes = ProblemChanges()
        folder = self.folder if self.settings.save else None
        with ComparisonJournal(folder, self.describe()) as self._journal:
            try:
                changes = self._changes or inspect(self, entries)
                verify_identical(self, entries, changes.dtypes)
                alone = self._verified(alone, changes.dtypes)
                twins = self._twins(entries) if self._wants_twins() else []
                self._measure_all([*entries, *twins])
                self._run_alone(entries)
                self._explain(entries)
                self.ahead.close()
                self.drop_ahead()
            except KeyboardInterrupt:
                interrupted = True
                for entry in (*entries, *twins):
                    entry.trial.interrupt()
                settle([entry.trial for entry in (*entries, *twins)], self.policy)
            of_twins = tuple(twin.trial.verdict() for twin in twins)
            stand = with_twins([entry.trial.verdict() for entry in entries], of_twins)
            return self._journal.result(
                [self._with_what_is_missing(verdict) for verdict in (*stand, *alone)],
                twins=of_twins,
                left_out=(*left_out, *(self.unplanted if len(twins) == 1 else ())),
                problem_changes=changes.sentences,
                interrupted=interrupted,
                calibration=self.calibration,
                wall_s=self.wall_time.spent_s(),
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
                **fields_of(self.pair, *self.pair.__slots__),
                **{f"{side}_toolchain": each.given for side, each in settings.toolchains.items()},
            },
            toolchains={side: each.record for side, each in settings.toolchains.items()},
            calibrated_at=self.calibration.measured_at if self.calibration else None,
        )

    def _verified(self, alone: Sequence[Verdict], changed: Collection[str]) -> list[Verdict]:
        """Return verdicts of cases that one commit has. A new case must be right, by a changed base's problem
        too.
        """
        new = {verdict.case: verdict for verdict in alone if verdict.status == "new"}
        checked = checked_at_head(self, new, by_base=changed)
        verdicts = []
        for verdict in alone:
            found = checked.get(verdict.case)
            if isinstance(found, Failed):
                verdicts.append(failed_by(verdict, found))
            else:
                verdicts.append(dataclasses.replace(verdict, outputs=found))
        return verdicts

    def _twins(self, entries: Sequence[CaseEntry]) -> list[CaseEntry]:
        """Return two twins, from the first case that allows them: a kernel against itself, and against itself
        slowed by the tolerance.
        """
        measured = [entry.trial.case for entry in entries if not entry.trial.settled and not entry.in_turns]
        for case in measured:
            (steps,) = self.find_steps(
                [protocol.against_itself(case, TWIN_PLANTED, 0)], [self.policy.tolerance]
            )
            if steps is not None:
                same = self.entry(protocol.against_itself(case, TWIN_SAME), case)
                return [same, self.entry(protocol.against_itself(case, TWIN_PLANTED, steps), case)]
        return [self.entry(protocol.against_itself(case, TWIN_SAME), case) for case in measured[:1]]

    def _wants_twins(self) -> bool:
        wanted = self.settings.twins
        return bool(os.environ.get("CI")) and self.device.kind != "cpu" if wanted is None else wanted

    def find_steps(self, pairs: Sequence[protocol.PairOf], targets: Sequence[float]) -> list[int | None]:
        """Return the steps that slow each pair's head by its target; None if a search fails."""
        self.stage("plant")
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
        """Measure undecided cases and cases to be confirmed, in as many processes as needed."""
        trials = [entry.trial for entry in entries]
        while wanting := [entry for entry in entries if not entry.trial.settled]:
            if self.settings.budget_s is not None and self._spent_s >= self.settings.budget_s:
                for entry in wanting:
                    entry.trial.interrupt("budget-spent")
            else:
                self._process(wanting)
            settle(trials, self.policy)

    def _process(self, entries: Sequence[CaseEntry]) -> None:
        """Measure all of these in a fresh process, in random order. After a failure, continue in another
        process.
        """
        self.wanted = PROCESSES_AHEAD - self._processes % PROCESSES_AHEAD
        self._processes += 1
        confirming = all(entry.trial.confirming for entry in entries)
        self.wanted += confirming and bool(self.settings.explain)  # one more reads counters
        self.observer.process(self._processes, len(entries), "confirm" if confirming else "look")
        shuffled = self._rng.sample(list(entries), len(entries))
        self.build_ahead([entry for entry in entries if entry.in_turns])
        for in_turns in (True, False):  # The processes that built Python functions are already running.
            for entry in shuffled:
                if entry.in_turns == in_turns and not entry.trial.settled:
                    self.observer.started(entry.pair.id)
                    self._measure(entry)
                    self.observer.measured(entry.pair.id)
            if in_turns:
                self._list_launches(entries)
            self.leave()

    def _list_launches(self, entries: Sequence[CaseEntry]) -> None:
        """List what functions launch, in the processes that measured them first and time nothing more."""
        by_name, backend = self.head.suite.by_name, self.device.backend
        for entry in entries:
            measured_once = len(entry.trial.rounds) == 1 and not (entry.trial.again or entry.trial.ended)
            differs = entry.pair.base != entry.pair.head  # code against itself launches the same
            if measured_once and differs and by_name[entry.trial.case.kernel].hides_launches(backend):
                self.list_launches(entry)

    def _measure(self, entry: CaseEntry) -> None:
        trial, wanted = entry.trial, entry.trial.precision
        request = protocol.Compare(
            pair=entry.pair,
            seed=self.settings.seed,
            order_seed=self._rng.getrandbits(32),
            settings=dataclasses.replace(  # The block ends when more quads would not change the verdict.
                self.pair,
                warmup_min_s=WARM_S if self.started else self.pair.warmup_min_s,
                standard_error=self.pair.standard_error if self.settings.pair else wanted.standard_error,
                min_quads=max(self.pair.min_quads, wanted.min_quads),
            ),
            verified=entry.digests,
            by_base=entry.by_base,
            base_first=self.head.suite.problem.held_to == "base",
        )
        ask = self.ask_in_turns if entry.in_turns else self.ask
        reply = ask(request, self.settings.timeout_s)
        if isinstance(reply, Failed):
            status: VerdictStatus = "invalid" if reply.reason == BeyondPeakError.reason else "failed"
            if reply.reason == DiffersFromBaseError.reason:
                trial.outputs = Outputs(held_to="base")
            trial.end(status, reply.reason, reply.message, reply.log, side=reply.side)
            return
        entry.digests = {side: facts.digest for side, facts in reply.sides.items()}
        entry.take(reply.sides)
        trial.outputs = reply.sides["head"].outputs or trial.outputs
        trial.settings_changed = _arithmetic(self.peaks, reply)
        if not self.settings.toolchains:  # Two environments differ in most settings.
            trial.settings_changed += differences(*(reply.sides[side].state for side in SIDES))
        telemetry = self.seen(reply.block.quads[0].started_ns, reply.block.quads[-1].ended_ns)
        block = dataclasses.replace(reply.block, telemetry=telemetry)
        usual = None if entry.in_turns else usual_level(self._canaries)
        gated = gate(block, usual=usual)
        self._spent_s += block.gpu_s
        kept = CaseBlock(case=entry.pair.id, process=self._processes, block=block, touched=gated.touched)
        self._journal.add(dataclasses.replace(kept, confirming=trial.confirming))
        if not entry.in_turns:
            self._canaries.append(canary_level(block.quads))
        trial.add(block, gated)

    def _run_alone(self, entries: Sequence[CaseEntry]) -> None:
        """Run each side of a confirmed case alone: within quads, the side that draws more power slows both.

        Only a card at its power limit does this. The verdicts do not depend on it.
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

    def _explain(self, entries: Sequence[CaseEntry]) -> None:
        """Read the hardware counters of regressions or of all measured cases, after all timing is done."""
        entries = [each for each in entries if each.trial.rounds and not each.trial.ended]
        if self.settings.explain != "all":
            entries = [each for each in entries if each.trial.verdict().status == "regression"]
        if not entries or not self.settings.explain:
            return
        self.observer.process(self._processes + 1, len(entries), "explain")
        compiled = [entry for entry in entries if not entry.in_turns]
        with ThreadPoolExecutor(1) as pool:
            differing = pool.submit(self._code_differences, compiled)
            self._find_causes(entries)
        for entry in compiled:
            if differs := differing.result().get(entry.trial.case.id):
                found = entry.trial.diagnosis or Diagnosis()
                entry.trial.diagnosis = dataclasses.replace(found, **fields_of(differs, "risks", "loop"))

    def _find_causes(self, entries: Sequence[CaseEntry]) -> None:
        """Read hardware counters of both sides of each case. An interrupt keeps the causes found so far."""
        self.wanted = 1
        self.build_ahead([])
        for in_turns in (True, False):
            for entry in entries:
                if entry.in_turns == in_turns:
                    verdict = entry.trial.verdict()
                    slowdown = verdict.time.effect if verdict.time else 0.0
                    if verdict.status != "regression":
                        slowdown = max(slowdown, SUPPOSED)
                    entry.trial.diagnosis = diagnosis(self._count(entry), slowdown)
            self.leave()

    def _code_differences(self, entries: Sequence[CaseEntry]) -> Mapping[str, Difference]:
        """Return what differs in the compiled code of CUDA kernels, where one compiler made both sides."""
        arch = self.device.arch
        if not entries or not is_arch(arch) or self.settings.toolchains:
            return {}
        cases = [each.trial.case for each in entries]
        with contextlib.suppress(HarnessError):  # a kernel that does not compile here has no facts
            return code_differences(self.base, self.head, cases, arch, self.settings.timeout_s)
        return {}

    def _count(self, entry: CaseEntry) -> Counted:
        if self.is_elsewhere(self.head.suite.by_name[entry.trial.case.kernel]):
            return Failed(
                reason=MeasureError.reason,
                message="Counters are not read of functions in the environments of toolchains.",
            )
        self.observer.started(entry.pair.id)
        request = protocol.CountEvents(
            pair=entry.pair,
            seed=self.settings.seed,
            order_seed=self._rng.getrandbits(32),
            l2=entry.trial.rounds[-1].block.l2,
        )
        ask = self.count_in_turns if entry.in_turns else self.ask
        reply = ask(request, self.settings.timeout_s)
        self.observer.measured(entry.pair.id)
        return reply


Counted = Mapping[SideName, protocol.Counted] | Failed
"""Hardware counters by side, or the reason why there are none."""


def diagnosis(counted: Counted, slowdown: float) -> Diagnosis:
    """Return the causes of a slowdown, which is a share of base's time."""
    if isinstance(counted, Failed):
        return Diagnosis(problem=counted.message)
    base, head = counted["base"], counted["head"]
    of = base.counters, head.counters
    times = [
        LaunchedKernel(name[:200], base.kernels.get(name, 0.0), head.kernels.get(name, 0.0))
        for name in {**base.kernels, **head.kernels}
    ]
    slowest_first = tuple(sorted(times, key=lambda each: each.base_ns - each.head_ns))
    return Diagnosis(
        base_counters=of[0], head_counters=of[1], causes=causes(*of, slowdown), launched=slowest_first
    )


def _arithmetic(peaks: Mapping[str, float], reply: protocol.CompareReply) -> tuple[str, ...]:
    """Return a sentence if exactly one side computes float32 in TF32, by its rate in FLOP/s; else nothing."""
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
    """Return the verdicts, all of them invalid if a twin shows that the comparison is untrustworthy."""
    wrong = (wrong_twin(twin.case, twin.status, complete=twin.complete) for twin in twins)
    if not (reason := next(filter(None, wrong), "")):
        return list(verdicts)
    invalid = partial(dataclasses.replace, status="invalid", reason=reason, attribution=None)
    return [invalid(verdict) if verdict.status in JUDGED else verdict for verdict in verdicts]
