"""Two commits of a suite against each other on one device: pairs of kernels in fresh processes, judged at
planned looks, and measured again where something was found.
"""

from __future__ import annotations

__all__ = [
    "TWIN_PLANTED",
    "TWIN_SAME",
    "CompareObserver",
    "CompareSettings",
    "Comparing",
    "ComparisonResult",
    "Entry",
    "Purpose",
    "against_itself",
    "held",
    "match",
    "pair_settings_for",
    "policy_for",
]

import dataclasses
import datetime as dt
import itertools
import math
import os
import random
import secrets
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import harness
from harness.bench import protocol
from harness.bench.abba import Alone, PairSettings
from harness.bench.problem_changes import Changes, demanding, sentences
from harness.device.host import describe_host
from harness.device.lock import Busy
from harness.device.machine import machine_name
from harness.device.peaks import BeyondPeakError
from harness.errors import HarnessError, UsageError, WorkerError
from harness.judgement.attribution import Solo, SoloBlocks, solo_of
from harness.judgement.case_trial import Contest, Noise, SideNote, settle
from harness.judgement.gates import CanaryLevel, Gated, GatePolicy, canary_level, gate, usual_level
from harness.judgement.judge import Policy
from harness.judgement.noise import Calibration, noise_of_card, noise_of_case, read_calibration
from harness.records import (
    CaseBlock,
    Comparison,
    DeviceInfo,
    L2Policy,
    PairedBlock,
    Row,
    Verdict,
    VerdictStatus,
)
from harness.run.device_session import DeviceObserver, Station, Workplace
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase
from harness.spec.suite import Case, ceil_div, size_label
from harness.store.records_file import Journal, RecordWriter

if TYPE_CHECKING:
    from typing_extensions import Self

MARK_S = 0.1
"""Between full snapshots: as finely can the quads that a gate catches be told from the others."""
WARM_S = 0.01
"""Warm-up of a pair on a card that another pair has just warmed."""
TWIN_SAME, TWIN_PLANTED = "twin.same", "twin.planted"
"""A comparison's test of itself: a kernel against itself, and against itself with a slowdown planted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """How a comparison is carried out."""

    command: str = "compare"
    device: str | None = None
    margin: float | None = None
    tolerance: float | None = None
    """Like the margin, None takes what suits the device."""
    confidence: float = 0.999
    l2: L2Policy | None = None
    pair: PairSettings | None = None
    """How many quads; None takes what suits the device."""
    gates: GatePolicy = field(default_factory=GatePolicy)
    timeout_s: float = 120.0
    """For one case in one process."""
    busy: Busy = "wait"
    """What to do where another process measures on the device."""
    budget_s: float | None = None
    """Device time after which no process is begun."""
    seed: int = 1
    solo_s: float = 1.0
    """How long each side of a flagged case runs by itself, to tell what power it draws; 0 for not."""
    twins: bool | None = None
    """None: in CI, unless the device is a CPU, whose noise would hide the planted one."""
    measure_identical: bool = False
    """Whether to measure kernels that are the same in compiled code: to learn of the noise."""
    machine: str | None = None
    """Name of the device's folder of records; None makes one from the device."""
    results: Path | None = None
    """Folder of all records, where calibrations are looked for; None has none."""
    save: bool = True


Purpose = Literal["look", "confirm", "attribute"]


class CompareObserver(DeviceObserver, Protocol):
    """Who is told how a comparison goes."""

    def process(self, number: int, cases: int, purpose: Purpose) -> None: ...
    def started(self, case: str) -> None: ...
    def measured(self, case: str) -> None: ...


@dataclass(slots=True)
class Entry:
    """A case that both commits have: what is asked of the worker, and how the contest stands."""

    pair: protocol.PairOf
    contest: Contest
    digests: dict[str, str] = field(default_factory=dict)
    """By side, of outputs that were verified in full."""
    by_base: bool = False
    """Whether base's problem stands in other files than head's, so that head is held to both."""


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    comparison: Comparison
    verdicts: tuple[Verdict, ...]
    """Of the cases, in ladder order."""
    twins: tuple[Verdict, ...]
    left_out: tuple[str, ...]
    """Why cases were not compared at all, a sentence each."""
    calibration: Calibration | None
    """What the verdicts rest on; None for an assumption."""
    path: Path | None
    interrupted: bool = False
    problem: str = ""
    """Why the record is not whole, such as a full disk."""
    kept: Mapping[str, tuple[PairedBlock, ...]] = field(default_factory=dict)
    """By case, what every process measured, in order, with the quads that can be read."""
    problem_changes: tuple[str, ...] = ()
    """What head's problem asks for otherwise than base's, a sentence each."""


def policy_for(device: DeviceInfo, settings: CompareSettings) -> Policy:
    """What was asked for, and for the rest what suits the device. Raises UsageError where that makes no
    sense.
    """
    margin, tolerance = (0.0025, 0.01) if device.kind != "cpu" else (0.02, 0.1)
    if settings.margin is not None:
        margin, tolerance = settings.margin, max(tolerance, 2 * settings.margin)
    tolerance = tolerance if settings.tolerance is None else settings.tolerance
    margin = margin if settings.margin is not None else min(margin, tolerance / 2)
    if margin >= tolerance:
        raise UsageError(
            f"A margin of {100 * margin:g} % is not below the tolerance of {100 * tolerance:g} %: give a "
            "smaller --margin or a larger --tolerance."
        )
    try:
        return Policy(margin=margin, tolerance=tolerance, confidence=settings.confidence)
    except ValueError as error:
        raise UsageError(f"These cannot be judged by: {error}") from None


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
    both = [(_pair_of(case, case.id), case) for name, case in of_head.items() if name in of_base]
    alone = [
        *(_alone(case, "new") for name, case in of_head.items() if name not in of_base),
        *(_alone(case, "missing") for name, case in of_base.items() if name not in of_head),
    ]
    return both, alone


def _pair_of(case: Case, name: str) -> protocol.PairOf:
    base = protocol.Side(suite="base", kernel=case.kernel)
    return protocol.PairOf(
        id=name, sizes=case.sizes, base=base, head=protocol.Side(suite="head", kernel=case.kernel)
    )


def against_itself(case: Case, name: str, steps: int | None = None) -> protocol.PairOf:
    """A case of head against itself; with a slowdown of so many steps planted, where `steps` are given."""
    planted = steps is not None
    base = protocol.Side(suite="head", kernel=case.kernel, planted=planted)
    head = protocol.Side(suite="head", kernel=case.kernel, planted=planted, steps=steps or 0)
    return protocol.PairOf(id=name, sizes=case.sizes, base=base, head=head)


def _alone(case: Case, status: Literal["new", "missing"]) -> Verdict:
    reason = {"new": "only-in-head", "missing": "only-in-base"}[status]
    return Verdict(
        case=case.id,
        kernel=case.kernel,
        sizes=case.sizes,
        dtype=case.dtype,
        status=status,
        reason=reason,
        message="",
    )


def _failed_at(
    verdict: Verdict, side: Literal["base", "head"], reason: str, message: str, log: str
) -> Verdict:
    return dataclasses.replace(verdict, status="failed", reason=reason, message=message, log=log, side=side)


class Comparing(Workplace):
    """A comparison of two loaded suites on one device; a context manager like its base."""

    observer: CompareObserver

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
        self.policy = Policy()
        self.pair = PairSettings()
        self.calibration: Calibration | None = None
        self._noise = Noise()
        self._rng = random.Random(settings.seed)  # noqa: S311 - an order, not a secret
        self._processes = 0
        self._spent_s = 0.0
        self._canaries: list[CanaryLevel] = []
        """Not the blocks: a calibration has thousands."""
        self.unplanted: list[str] = []
        """Why slowdowns could not be planted, a sentence each."""
        self._journal = Journal(None)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._prepare()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _prepare(self) -> None:
        self.policy = policy_for(self.device, self.settings)
        self.pair = self.settings.pair or pair_settings_for(self.device, self.policy)
        self.pair = dataclasses.replace(self.pair, l2=self.settings.l2)
        self.judge_by(read_calibration(self.folder) if self.folder else None)

    def judge_by(self, calibration: Calibration | None) -> None:
        """Take the device's noise from this calibration, in what is begun from now on."""
        self.calibration = calibration
        self._noise = noise_of_card(calibration, self.device)

    @property
    def folder(self) -> Path | None:
        """Of the device's records."""
        results = self.settings.results
        return results and results / (self.settings.machine or machine_name(self.device))

    def run(self, base: Sequence[PlannedCase], head: Sequence[PlannedCase]) -> ComparisonResult:
        """Compare the planned cases of both commits.

        A case that fails, crashes or hangs costs its own verdict only. Raises StoreError where no record can
        be begun. An interrupt ends the comparison early: what is finished is stored, judged and returned.
        """
        fit, left_out = self.divide(head)
        both, alone = match(self.divide(base)[0], fit)
        # A case that head has, only not for this device, has not vanished.
        there = {planned.case.id for planned in head}
        alone = [self._explained(v) for v in alone if v.status == "new" or v.case not in there]
        return self.hold([self.entry(pair, case) for pair, case in both], alone, left_out)

    def _explained(self, verdict: Verdict) -> Verdict:
        """The verdict of a case that one commit has: failed, where the other's suite cannot be loaded."""
        side: Literal["base", "head"] = "base" if verdict.status == "new" else "head"
        problem = (self.base if side == "base" else self.head).problem
        if problem is None:
            return verdict
        return _failed_at(verdict, side, problem.reason, problem.message, problem.log)

    def _with_what_is_missing(self, verdict: Verdict) -> Verdict:
        """A failed verdict that says which files its commit lacks."""
        if verdict.status != "failed" or not verdict.side:
            return verdict
        side = self.base if verdict.side == "base" else self.head
        return dataclasses.replace(verdict, message=side.explained(verdict.message, verdict.log))

    def entry(self, pair: protocol.PairOf, case: Case) -> Entry:
        noise = noise_of_case(self._noise, self.calibration, case.id)
        return Entry(pair, Contest(pair.id, case, self.policy, noise))

    def hold(
        self, entries: list[Entry], alone: Sequence[Verdict] = (), left_out: Sequence[str] = ()
    ) -> ComparisonResult:
        """Measure and judge these entries."""
        described = self.describe()
        interrupted = False
        twins: list[Entry] = []
        changes: tuple[str, ...] = ()
        with self._new_journal(described) as self._journal:
            try:
                same_problem = self._inspect(entries) or self.base.suite.root == self.head.suite.root
                changed: set[str] = set()
                if not same_problem:
                    changes, changed = self._problem_changes(entries)
                self._verify_identical(entries, changed)
                alone = self._verified(alone, changed)
                twins = self._twins(entries) if self._wants_twins() else []
                self._measure_all([*entries, *twins])
                self._alone(entries)
            except KeyboardInterrupt:
                interrupted = True
                for entry in (*entries, *twins):
                    entry.contest.interrupt()
                settle([entry.contest for entry in (*entries, *twins)], self.policy)
            of_twins = tuple(twin.contest.verdict() for twin in twins)
            stand = held([entry.contest.verdict() for entry in entries], of_twins)
            verdicts = tuple(self._with_what_is_missing(verdict) for verdict in (*stand, *alone))
            for verdict in (*verdicts, *of_twins):
                self._journal.add(verdict)
            left_out = (*left_out, *(self.unplanted if len(twins) == 1 else ()))
            self._journal.finish(complete=not interrupted, left_out=left_out, problem_changes=changes)
        return ComparisonResult(
            described,
            verdicts,
            of_twins,
            tuple(left_out),
            self.calibration,
            self._journal.path,
            interrupted,
            self._journal.problem,
            {entry.pair.id: _kept(entry.contest) for entry in entries},
            changes,
        )

    def describe(self) -> Comparison:
        settings = self.settings
        now = dt.datetime.now(dt.timezone.utc)
        return Comparison(
            harness_version=harness.__version__,
            run_id=secrets.token_hex(8),
            started_at=now.isoformat(timespec="seconds"),
            command=settings.command,
            base=self.base.source,
            head=self.head.source,
            kernels=tuple(kernel.name for kernel in self.head.suite.kernels),
            device=self.device,
            toolchain=self.toolchain,
            host=describe_host(),
            settings={
                "seed": settings.seed,
                "timeout_s": settings.timeout_s,
                "budget_s": settings.budget_s,
                "twins": self._wants_twins(),
                **{name: getattr(self.pair, name) for name in self.pair.__slots__},
                "margin": self.policy.margin,
                "tolerance": self.policy.tolerance,
                "confidence": self.policy.confidence,
                "looks": ",".join(map(str, self.policy.looks)),
            },
            calibrated_at=self.calibration.measured_at if self.calibration else None,
            identity=self.probe.identity(),
        )

    def _new_journal(self, described: Comparison) -> Journal:
        if self.folder is None or not self.settings.save:
            return Journal(None)
        return Journal(RecordWriter(self.folder, described))

    def _inspect(self, entries: Sequence[Entry]) -> bool:
        """Build both sides of everything, and settle what needs no device time: code that is identical, or
        broken. Tells whether the problem is for sure the same.
        """
        pairs = tuple(entry.pair for entry in entries)
        self.observer.stage("build")
        turns = max(1, ceil_div(2 * len(pairs), os.cpu_count() or 1))
        try:
            reply = self.builder.ask(protocol.Inspect(pairs=pairs), turns * self.settings.timeout_s)
        except WorkerError:
            return False  # a compiler that hangs or kills its process is reported by the case that needs it
        finally:
            self.builder.kill()
        if not isinstance(reply, protocol.Done):
            return False
        for entry in entries:
            found = reply.inspected[entry.pair.id]
            entry.contest.sides = {"base": _note(found.base), "head": _note(found.head)}
            if found.head.reason:
                entry.contest.end(
                    "failed", found.head.reason, found.head.message, found.head.log, side="head"
                )
            elif found.base.reason:
                entry.contest.end(
                    "failed", found.base.reason, found.base.message, found.base.log, side="base"
                )
            elif found.identical and not self.settings.measure_identical:
                entry.contest.end("identical", "same-code", "")
        return reply.same_problem

    def _problem_changes(self, entries: Sequence[Entry]) -> tuple[tuple[str, ...], set[str]]:
        """What head's problem asks for otherwise than base's, a sentence each, at every size and dtype; and
        of which dtypes kernels may be wrong by one and right by the other.

        Head's kernels are held to both problems whatever is found: a problem that says one thing when it is
        asked may say another when it judges.
        """
        asked = _telling(entries)
        told: list[Changes] = []
        untold: tuple[str, ...] = ()
        with closing(self._ask_each(self._questions(asked))) as replies:
            for reply in replies:
                if isinstance(reply, protocol.Failed):
                    # What hangs or raises may do so in every case, and each would take its time.
                    untold = (f"What changed could not be told: {reply.message}",)
                    break
                told.append(reply.differences)
        of_suite, *of_cases = told or [{}]
        places: dict[str, Changes] = {}
        changed: set[str] = set()
        for (entry, _), changes in itertools.zip_longest(asked, of_cases):
            dtype = entry.contest.case.dtype
            place = f"{size_label(entry.pair.sizes)} {dtype}"
            places[place] = {**places.get(place, {}), **(changes or {})}
            if changes is None or demanding(changes):
                changed.add(dtype)
        for entry in entries:
            entry.by_base = True
        return (*sentences(of_suite, places), *untold), changed

    def _questions(self, asked: Sequence[tuple[Entry, bool]]) -> Iterator[protocol.Differences]:
        """First of the suites as they are written, then of the cases."""
        yield protocol.Differences(case=None, seed=self.settings.seed)
        for entry, reference in asked:
            yield protocol.Differences(case=_case_of(entry), seed=self.settings.seed, reference=reference)

    def _verify_identical(self, entries: Sequence[Entry], changed: Collection[str]) -> None:
        """Code that is identical, and was right by base's problem, need not be right by head's."""
        identical = {
            entry.pair.id: entry
            for entry in entries
            if entry.contest.verdict().status == "identical" and entry.contest.case.dtype in changed
        }
        requests = {
            name: protocol.Measure(
                kernel=entry.pair.head.kernel,
                sizes=entry.pair.sizes,
                seed=self.settings.seed,
                settings=None,
            )
            for name, entry in identical.items()
        }
        for name, found in self._wrong_at_head(requests).items():
            entry = identical[name]
            entry.contest.end("failed", found.reason, found.message, found.log, side=_side_of(found))

    def _verified(self, alone: Sequence[Verdict], changed: Collection[str]) -> list[Verdict]:
        """The verdicts of cases that one commit has; a new one must be right, though there is nothing to
        compare it with: by base's problem too, where that is another for its dtype.
        """
        new = {
            verdict.case: protocol.Measure(
                kernel=verdict.kernel,
                sizes=verdict.sizes,
                seed=self.settings.seed,
                settings=None,
                by_base=verdict.dtype in changed,
            )
            for verdict in alone
            if verdict.status == "new"
        }
        wrong = self._wrong_at_head(new)
        return [
            _failed_at(verdict, _side_of(found), found.reason, found.message, found.log)
            if (found := wrong.get(verdict.case))
            else verdict
            for verdict in alone
        ]

    def _wrong_at_head(self, cases: Mapping[str, protocol.Measure]) -> dict[str, protocol.Failed | Row]:
        """Of these cases, by id, those that are not right, with what says so."""
        wrong: dict[str, protocol.Failed | Row] = {}
        with closing(self._ask_each(cases.values())) as replies:
            for name in cases:
                self.observer.started(name)
                reply = next(replies)
                found = reply if isinstance(reply, protocol.Failed) else reply.row
                if found is not None and found.reason:
                    wrong[name] = found
        return wrong

    def _twins(self, entries: Sequence[Entry]) -> list[Entry]:
        """A kernel against itself, as it is and with a slowdown of the tolerance planted: the first that is
        measured and takes one.
        """
        measured = [entry.contest.case for entry in entries if not entry.contest.settled]
        for case in measured:
            (steps,) = self.find_steps([against_itself(case, TWIN_PLANTED, 0)], [self.policy.tolerance])
            if steps is not None:
                slowed = against_itself(case, TWIN_PLANTED, steps)
                return [self._same_twin(case), self.entry(slowed, case)]
        return [self._same_twin(case) for case in measured[:1]]

    def _same_twin(self, case: Case) -> Entry:
        return self.entry(against_itself(case, TWIN_SAME), case)

    def _wants_twins(self) -> bool:
        wanted = self.settings.twins
        return bool(os.environ.get("CI")) and self.device.kind != "cpu" if wanted is None else wanted

    def find_steps(self, pairs: Sequence[protocol.PairOf], targets: Sequence[float]) -> list[int | None]:
        """How long a planted chain slows each pair's head by its target; None where none can be planted."""
        self.observer.stage("plant")
        found: list[int | None] = []
        requests = [
            protocol.FindSteps(pair=pair, seed=self.settings.seed, target=target)
            for pair, target in zip(pairs, targets, strict=True)
        ]
        for request, reply in zip(requests, self._ask_each(requests), strict=True):
            if isinstance(reply, protocol.Failed):
                self.unplanted.append(f"{request.pair.id} +{100 * request.target:g} %: {reply.message}")
            found.append(reply.steps if isinstance(reply, protocol.Done) else None)
        return found

    def _ask_each(
        self, requests: Iterable[protocol.Request]
    ) -> Generator[protocol.Done | protocol.Failed, None, None]:
        """The answers in order: of one process, and of another after each failure, which may harm it."""
        station: Station | None = None
        try:
            for request in requests:
                try:
                    station = station or Station(self)
                    reply = station.ask(request, self.settings.timeout_s)
                except HarnessError as error:
                    side = error.side if isinstance(error, WorkerError) else ""
                    reply = protocol.Failed(
                        reason=error.reason, message=error.message, log=error.log, side=side
                    )
                yield reply
                fine = isinstance(reply, protocol.Done) and not (reply.row and reply.row.reason)
                if not fine and station is not None:
                    station.close()
                    station = None
        finally:
            if station is not None:
                station.close()

    def _measure_all(self, entries: Sequence[Entry]) -> None:
        """Measure in as many processes as it takes: what is undecided, and beside it in the same processes
        what is to be confirmed.
        """
        contests = [entry.contest for entry in entries]
        while wanting := [entry for entry in entries if not entry.contest.settled]:
            if self._budget_spent():
                for entry in wanting:
                    entry.contest.interrupt("budget-spent")
            else:
                self._process(wanting)
            settle(contests, self.policy)

    def _alone(self, entries: Sequence[Entry]) -> None:
        """Run each side of what is confirmed by itself: in quads, one that draws more power slows both. Where
        the card is known not to be at its power limit, it slows nobody.
        """
        found = [entry for entry in entries if entry.contest.confirmed and not entry.contest.ended]
        found = [entry for entry in found if entry.contest.power_capped is not False]
        if not found or self.settings.solo_s <= 0 or self.device.kind != "gpu":
            return
        self.observer.process(self._processes + 1, len(found), "attribute")
        try:
            with closing(Station(self, mark_s=MARK_S)) as station:
                for entry in found:
                    self._run_alone(entry, station)
        except HarnessError:
            return  # the verdicts stand without it

    def _run_alone(self, entry: Entry, station: Station) -> None:
        self.observer.started(entry.pair.id)
        request = protocol.Solo(
            pair=entry.pair,
            seed=self.settings.seed,
            order_seed=self._rng.getrandbits(32),
            duration_s=self.settings.solo_s,
        )
        reply = station.ask(request, self.settings.timeout_s + 2 * self.settings.solo_s)
        if isinstance(reply, protocol.Done):
            runs = {side: _solo(run, station) for side, run in reply.solo.items()}
            entry.contest.solo = SoloBlocks(base=runs["base"], head=runs["head"])
        self.observer.measured(entry.pair.id)

    def _budget_spent(self) -> bool:
        return self.settings.budget_s is not None and self._spent_s >= self.settings.budget_s

    def _process(self, entries: Sequence[Entry]) -> None:
        """One fresh process for all of these, in random order; another after one that failed."""
        self._processes += 1
        confirming = all(entry.contest.confirming for entry in entries)
        self.observer.process(self._processes, len(entries), "confirm" if confirming else "look")
        station: Station | None = None
        try:
            for entry in self._rng.sample(list(entries), len(entries)):
                self.observer.started(entry.pair.id)
                cold = station is None
                try:
                    station = station or Station(self, mark_s=MARK_S)
                    good = self._measure(station, entry, cold=cold)
                except HarnessError as error:
                    side = error.side if isinstance(error, WorkerError) else ""
                    entry.contest.end("failed", error.reason, error.message, error.log, side=side)
                    good = False
                if not good and station is not None:
                    station.close()
                    station = None
                self.observer.measured(entry.pair.id)
        finally:
            if station is not None:
                station.close()

    def _measure(self, station: Station, entry: Entry, *, cold: bool) -> bool:
        """One block of an entry; false where the worker failed at it."""
        contest = entry.contest
        request = protocol.Compare(
            pair=entry.pair,
            seed=self.settings.seed,
            order_seed=self._rng.getrandbits(32),
            settings=self._pair_settings(contest, cold=cold),
            verified=entry.digests,
            by_base=entry.by_base,
        )
        reply = station.ask(request, self.settings.timeout_s)
        if isinstance(reply, protocol.Failed):
            status: VerdictStatus = "invalid" if reply.reason == BeyondPeakError.reason else "failed"
            contest.end(status, reply.reason, reply.message, reply.log, side=reply.side)
            return False
        assert reply.block is not None
        entry.digests = {side: facts.digest for side, facts in reply.sides.items()}
        contest.sides = {side: _note(facts) for side, facts in reply.sides.items()}
        quads = reply.block.quads
        seen = station.seen(quads[0].started_ns, quads[-1].ended_ns)
        block = dataclasses.replace(reply.block, telemetry=seen)
        gated = gate(block, self.settings.gates, usual=usual_level(self._canaries))
        self._spent_s += block.gpu_s
        self._record(entry, block, gated)
        if level := canary_level([block]):
            self._canaries.append(level)
        contest.add(block, gated)
        return True

    def _pair_settings(self, contest: Contest, *, cold: bool) -> PairSettings:
        """For one block, which ends where more of it would not matter for the verdict."""
        wanted = contest.precision
        asked = self.settings.pair
        return dataclasses.replace(
            self.pair,
            warmup_min_s=self.pair.warmup_min_s if cold else WARM_S,
            standard_error=self.pair.standard_error if asked else wanted.standard_error,
            min_quads=max(self.pair.min_quads, wanted.min_quads),
        )

    def _record(self, entry: Entry, block: PairedBlock, gated: Gated) -> None:
        self._journal.add(
            CaseBlock(
                case=entry.pair.id,
                process=self._processes,
                confirming=entry.contest.confirming,
                block=block,
                touched=gated.touched,
            )
        )


def _side_of(found: protocol.Failed | Row) -> Literal["base", "head"]:
    """Whose fault it is that head's kernel is not known to be right: base's where base's problem fails."""
    return "base" if isinstance(found, protocol.Failed) and found.side == "base" else "head"


def _telling(entries: Sequence[Entry]) -> list[tuple[Entry, bool]]:
    """The cases that tell what changed, and whether by their references too: all that are to be measured; of
    the others one for each size and dtype, the smallest of a dtype with its reference.
    """
    asked: list[tuple[Entry, bool]] = []
    sizes, dtypes = set[tuple[str, str]](), set[str]()
    for entry in sorted(
        entries, key=lambda each: (each.contest.settled, math.prod(each.pair.sizes.values()))
    ):
        dtype = entry.contest.case.dtype
        point = size_label(entry.pair.sizes), dtype
        if not entry.contest.settled or point not in sizes:
            asked.append((entry, not entry.contest.settled or dtype not in dtypes))
            dtypes.add(dtype)
            sizes.add(point)
    return asked


def _case_of(entry: Entry) -> protocol.CaseOf:
    return protocol.CaseOf(kernel=entry.pair.head.kernel, sizes=entry.pair.sizes)


def _solo(run: Alone, station: Station) -> Solo:
    return solo_of(
        station.sampler.snapshots,
        run.started_ns,
        run.ended_ns,
        run.launches,
        time_ns=run.time_ns,
        sm_clock_mhz=run.sm_clock_mhz,
    )


def _kept(contest: Contest) -> tuple[PairedBlock, ...]:
    rounds = (*contest.rounds, *contest.again)
    return tuple(dataclasses.replace(each.block, quads=each.quads) for each in rounds)


def _note(facts: protocol.SideFacts) -> SideNote:
    return SideNote(facts.source_sha256, facts.launch, facts.resources)


def held(verdicts: Sequence[Verdict], twins: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, all of them invalid where a twin shows that the comparison could not be trusted."""
    wrong = next((found for twin in twins if (found := _wrong_twin(twin))), "")
    if not wrong:
        return list(verdicts)
    measured: tuple[VerdictStatus, ...] = ("regression", "improvement", "unchanged", "inconclusive")
    return [
        dataclasses.replace(
            verdict,
            status="invalid",
            reason=wrong,
            attribution=None,
        )
        if verdict.status in measured
        else verdict
        for verdict in verdicts
    ]


def _wrong_twin(twin: Verdict) -> str:
    """The reason for which nothing that was measured beside this twin can be trusted; empty where it can."""
    if twin.case == TWIN_SAME and twin.status in ("regression", "improvement"):
        return "twin-flagged"
    missed = twin.status in ("unchanged", "improvement", "inconclusive")
    return "twin-missed" if twin.case == TWIN_PLANTED and missed and twin.complete else ""
