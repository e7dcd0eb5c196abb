"""Compares two builds of a benchmark executable, which run alternately, and judges them like kernels.

A slot is one process of one side. A quad is four slots, ABBA or BAAB. A block has as many quads as its effect
needs. The quads include the differences between processes, so a single lucky process does not count.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

from harness.device.lock import held
from harness.device.machine import machine_name
from harness.device.telemetry import Sampler, probe_for, telemetry_of
from harness.errors import DeviceError, HarnessError, UsageError
from harness.judgement.case_trial import CaseTrial, bare_verdict, settle
from harness.judgement.gates import gate
from harness.judgement.identities import SKIPS_ITSELF, other_machine, without_time
from harness.judgement.noise import noise_of_card
from harness.judgement.statistics.paired import MIN_QUADS, trimmed_mean
from harness.measure.protocol import SideName
from harness.measure.quads import Order
from harness.records.imports.identity import Identity, reported_differences
from harness.records.imports.imported import Format, ImportedCase, identifier
from harness.records.record_files import ComparisonJournal, ComparisonResult
from harness.records.types import (
    Arm,
    CaseBlock,
    Comparison,
    DeviceInfo,
    PairedBlock,
    Quad,
    Telemetry,
    Verdict,
)
from harness.run.compare_settings import JudgeSettings, policy_for, recorded_settings
from harness.run.device_session import begun, find_device, identified, program_device
from harness.run.executables.executable_build import Executable, ProcessRun, Stage, format_of, run_once
from harness.run.executables.side_code import OtherCodeError
from harness.run.pair_session import CompareObserver, failed_by
from harness.run.two_workers import ORDERS
from harness.suite.case_id import is_selected
from harness.suite.problem import Case
from harness.system.files import scratch_folder

RUNS_A_BLOCK = 4 * MIN_QUADS
_SNAPSHOTS_A_BLOCK = 500
_EVENT_TICK_NS, _CLOCK_TICK_NS = 500.0, 1.0
"""Resolution of CUDA events (documented as half a microsecond) and of Linux's clocks, in nanoseconds."""

FirstRuns = Mapping[SideName, ProcessRun | HarnessError]
"""Measurements of the first process of each side, or its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutablesSettings(JudgeSettings):
    format: Format | None = None
    """Format of the executables' results; None to detect it by their options, help or files."""
    suite: str | None = None
    """Name of the suite; None for the executable's name."""
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class _Slot:
    """The times and measurements of one process of a side."""

    started_ns: int
    ended_ns: int
    run: ProcessRun


@dataclass(frozen=True, slots=True)
class _Quad:
    order: Order
    slots: tuple[_Slot, ...]


class ComparingExecutables:
    """A comparison of two builds of an executable; `run` does everything.

    Raises UsageError for an unknown format or an invalid device, DeviceError, BusyError, StoreError if no
    record can be begun.
    """

    def __init__(
        self,
        base: Executable,
        head: Executable,
        settings: ExecutablesSettings,
        observer: CompareObserver,
        cases: Sequence[str] = (),
    ) -> None:
        """Prepare a comparison of the cases that `cases` selects; of all without a selection."""
        self.sides: Mapping[SideName, Executable] = {"base": base, "head": head}
        self.settings, self.observer, self._selected = settings, observer, cases
        self._rng = random.Random(settings.seed)  # noqa: S311 - an order, not a secret
        self._processes = 0
        self._spent_s = 0.0
        self._run_s = 0.0
        """Wall-clock time of the longest process so far, in seconds."""
        self._names: dict[str, str] = {}
        """The executable's own names of its cases, by label."""

    def run(self, name: str) -> ComparisonResult:
        """Compare. `name` is the suite's name if the executable has none."""
        with ExitStack() as stack:
            self.scratch = stack.enter_context(scratch_folder())
            self.format = self._format()
            device = self._find_device()
            if device is not None:
                stack.enter_context(held(device, "compare", self.settings.busy, self.observer.waiting))
            first = self._first_runs()
            self.format = self.format or next((run.format for run in _runs(first)), None)
            if (watched := self._to_watch(device, first)) is not device:
                stack.enter_context(held(watched, "compare", self.settings.busy, self.observer.waiting))
            device = watched
            self._check_device(device, first)
            self.probe = stack.enter_context(closing(probe_for(device)))
            self.device = identified(device, self.probe.identity())
            self.observer.opened(self.device)
            self.judged_as = _judged_as(self.device, _runs(first))
            self.policy = policy_for(self.judged_as, self.settings)
            return self._compare(name, first)

    # Before timed runs

    def _format(self) -> Format | None:
        """Return the format if it is known before the first run."""
        if self.settings.format:
            return self.settings.format
        able = [each for each in self.sides.values() if each.problem is None]
        return format_of(able[-1]) if able else None

    def _find_device(self) -> DeviceInfo | None:
        """Return the device to lock and watch; None if only the executable can name it."""
        given = self.settings.device
        if given or self.format == "google-benchmark":
            return find_device(given or "cpu:0")
        if self.format == "nvbench":
            try:
                return find_device("cuda:0")
            except (DeviceError, UsageError):
                return None  # PyCUDA is missing, which an nvbench executable does not need
        return program_device()

    def _first_runs(self) -> FirstRuns:
        """Run one process of each side, to find the cases and to fill the file caches."""
        found: dict[SideName, ProcessRun | HarnessError] = {}
        for side in ("head", "base"):
            self.observer.stage(f"first run {side}")
            try:
                found[side] = self._once(side, stage="first").run
            except OtherCodeError:
                raise
            except HarnessError as error:
                found[side] = error
        return found

    def _device_told(self, first: FirstRuns) -> DeviceInfo:
        for each in _runs(first):
            return each.device
        problem = first["head"]
        assert isinstance(problem, HarnessError)
        raise problem

    def _to_watch(self, device: DeviceInfo | None, first: FirstRuns) -> DeviceInfo:
        """Return the device to watch: the given one, or the card that an executable reports."""
        if device is None:
            return self._device_told(first)
        if self.settings.device or device.kind == "gpu":
            return device
        devices = (each.device for each in _runs(first))
        named = next((each for each in devices if each.kind == "gpu"), device)
        with suppress(DeviceError, UsageError):
            if named.kind == "gpu" and (here := find_device("cuda:0")).name == named.name:
                return here
        return named

    def _check_device(self, device: DeviceInfo, first: FirstRuns) -> None:
        """Raise UsageError unless nvbench measured on the watched device. Google Benchmark does not report a
        device.
        """
        for side, each in first.items():
            if isinstance(each, ProcessRun) and self.format == "nvbench" and each.device.name != device.name:
                raise UsageError(
                    f"{side} measured on {each.device.name}, and {device.spec} is {device.name}: name the "
                    "device with --device, or have the executable take it with --devices."
                )

    def _once(self, side: SideName, only: Sequence[str] = (), stage: Stage = "timed") -> _Slot:
        executable = self.sides[side]
        if executable.problem is not None:
            raise executable.problem
        began_ns = time.monotonic_ns()
        settings = self.settings
        where = self.scratch, settings.timeout_s, settings.device
        found = run_once(executable, self.format, *where, only, stage)
        ended_ns = time.monotonic_ns()
        self._run_s = max(self._run_s, (ended_ns - began_ns) / 1e9)
        return _Slot(began_ns, ended_ns, found)

    # The comparison

    def _compare(self, name: str, first: FirstRuns) -> ComparisonResult:
        runs = _runs(first)
        named = next((run.executable for run in runs if run.executable), name)
        self.suite = self.settings.suite or identifier(named)
        trials, alone, left_out = self._cases(first)
        described = self._describe(first, [trial.case.kernel for trial in trials.values()])
        results = self.settings.results if self.settings.save else None
        folder = results / machine_name(self.device) if results else None
        interrupted = False
        with ComparisonJournal(folder, described) as journal:
            try:
                self._measure(trials, journal)
            except KeyboardInterrupt:
                interrupted = True
                for trial in trials.values():
                    trial.interrupt()
                settle(trials.values(), self.policy)
            verdicts = [*(trial.verdict() for trial in trials.values()), *alone]
            return journal.result(verdicts, left_out=left_out, interrupted=interrupted)

    def _describe(self, first: FirstRuns, kernels: Sequence[str]) -> Comparison:
        runs = _runs(first)
        base, head = (dataclasses.replace(side.source, suite=self.suite) for side in self.sides.values())
        return Comparison(
            **begun(),
            command="compare",
            base=base,
            head=head,
            kernels=tuple(dict.fromkeys(kernels)),
            device=self.device,
            toolchain=None,
            identity=self.probe.identity(),
            settings={
                "format": self.format,
                "method": ", ".join(dict.fromkeys(run.version for run in runs)),
                "base_command": self.sides["base"].command,
                "head_command": self.sides["head"].command,
                **_imported(first),
                "processes_a_block": RUNS_A_BLOCK,
                "differences": "; ".join(reported_differences(*_identities(runs))),
                "notes": " ".join(dict.fromkeys(note for run in runs for note in run.notes)),
                **recorded_settings(self.settings, self.policy),
            },
        )

    def _cases(self, first: FirstRuns) -> tuple[dict[str, CaseTrial], list[Verdict], tuple[str, ...]]:
        """Return the trials by label, the verdicts of cases of one side, and why other cases are left out."""
        failed = {side: each for side, each in first.items() if isinstance(each, HarnessError)}
        found = {side: each.cases for side, each in first.items() if isinstance(each, ProcessRun)}
        if not found:
            whole = Case(self.suite, "executable", {}, "")
            return {}, [failed_by(bare_verdict(whole.id, whole, "failed", ""), failed["base"])], ()
        trials: dict[str, CaseTrial] = {}
        alone: list[Verdict] = []
        left_out: dict[str, None] = {}
        apart = other_machine(*_identities(first.values()))
        labels = dict.fromkeys(label for cases in found.values() for label in cases)
        for label in labels:
            sides = {side: found[side].get(label) if side in found else None for side in self.sides}
            case = next(each for each in sides.values() if each)
            self._names[label] = case.name
            if not is_selected(self._selected, self.suite, case.kernel, case.sizes):
                continue
            of_suite = Case(self.suite, case.kernel, case.sizes, "")
            bare = bare_verdict(of_suite.id, of_suite, "failed", "")
            if failed:
                alone.append(failed_by(bare, next(iter(failed.values()))))
            elif verdict := _not_at_both(bare, sides, left_out):
                alone.append(verdict)
            elif apart:
                alone.append(
                    dataclasses.replace(bare, status="invalid", reason=apart.reason, message=apart.message)
                )
            elif not any(each and each.skipped for each in sides.values()):
                noise = noise_of_card(None, self.judged_as)
                trials[label] = CaseTrial(of_suite.id, of_suite, self.policy, noise)
        return trials, alone, tuple(left_out)

    def _measure(self, trials: Mapping[str, CaseTrial], journal: ComparisonJournal) -> None:
        while wanting := {label: trial for label, trial in trials.items() if not trial.settled}:
            budget = self.settings.budget_s
            if budget is not None and self._spent_s >= budget:
                for trial in wanting.values():
                    trial.interrupt("budget-spent")
            else:
                self._block(wanting, journal)
            settle(trials.values(), self.policy)

    def _block(self, wanting: Mapping[str, CaseTrial], journal: ComparisonJournal) -> None:
        """Run as many quads of fresh processes as the effects need, for all of these cases at once."""
        self._processes += 1
        only = [self._names[label] for label in wanting] if len(wanting) < len(self._names) else []
        confirming = all(trial.confirming for trial in wanting.values())
        self.observer.process(self._processes, len(wanting), "confirm" if confirming else "look")
        interval_s = max(0.02, RUNS_A_BLOCK * self._run_s / _SNAPSHOTS_A_BLOCK)
        with Sampler(self.probe, interval_s=interval_s, mark_s=max(0.1, interval_s)) as sampler:
            try:
                quads = [self._quad(number, only) for number in range(MIN_QUADS)]
            except OtherCodeError:
                raise
            except HarnessError as error:
                for trial in wanting.values():
                    trial.end("failed", error.reason, error.message, error.log, side=error.side)
                return
            slots = [slot for quad in quads for slot in quad.slots]
            if apart := other_machine(*_identities(slot.run for slot in slots)):
                for trial in wanting.values():
                    trial.end("invalid", apart.reason, apart.message)
                return
            seen = _while_running(
                telemetry_of(sampler, slots[0].started_ns, slots[-1].ended_ns, own_pids=()), slots
            )
        took_s = sum(slot.ended_ns - slot.started_ns for slot in slots) / 1e9
        self._spent_s += took_s
        for label, trial in wanting.items():
            self._take(trial, label, quads, seen, took_s / len(wanting), journal)
            self.observer.measured(trial.id)

    def _quad(self, number: int, only: Sequence[str]) -> _Quad:
        order: Order = self._rng.choice(("ABBA", "BAAB"))
        slots = []
        for place, side in enumerate(ORDERS[order]):
            self.observer.started(f"run {4 * number + place + 1} of {RUNS_A_BLOCK}, {side}")
            slots.append(self._once(side, only))
        return _Quad(order, tuple(slots))

    def _take(
        self,
        trial: CaseTrial,
        label: str,
        quads: Sequence[_Quad],
        seen: Telemetry,
        took_s: float,
        journal: ComparisonJournal,
    ) -> None:
        for quad in quads:
            for side, slot in zip(ORDERS[quad.order], quad.slots, strict=True):
                case = slot.run.cases.get(label)
                why = case.failed or case.skipped if case else "A later process did not write it."
                if why:
                    reason = SKIPS_ITSELF if case and case.skipped else "not-measured"
                    trial.end("failed", reason, why, side=side)
                    return
        block = _block_of(label, quads, seen, took_s)
        gated = gate(block, usual=None)
        kept = CaseBlock(case=trial.id, process=self._processes, block=block, touched=gated.touched)
        journal.add(dataclasses.replace(kept, confirming=trial.confirming))
        trial.sides = {"base": Arm(), "head": Arm()}
        trial.add(block, gated)


def _judged_as(device: DeviceInfo, runs: Sequence[ProcessRun]) -> DeviceInfo:
    """Return the device whose default limits and noise apply: a CPU, if times come from the host's clock."""
    timed = [case for run in runs for case in run.cases.values() if case.times_ns]
    by_device = all(case.device_clock for case in timed)
    return device if by_device else dataclasses.replace(device, kind="cpu")


def _runs(first: FirstRuns) -> list[ProcessRun]:
    return [each for each in first.values() if isinstance(each, ProcessRun)]


def _identities(runs: Iterable[ProcessRun | HarnessError]) -> tuple[list[Identity], list[Identity]]:
    """Return the identities in base's files, and in head's."""
    told = [run.identity for run in runs if isinstance(run, ProcessRun)]
    base, head = ([each for each in told if each.of == side] for side in ("base", "head"))
    return base, head


def _imported(first: FirstRuns) -> dict[str, str]:
    """Return settings of the record that say whose Python code ran; none if no Python ran."""
    told = {side: each.imported for side, each in sorted(first.items()) if isinstance(each, ProcessRun)}
    own = ", ".join(f"{each.modules} of {side}" for side, each in told.items() if each.modules)
    silent = "; ".join(f"in {side} {why}" for side, each in told.items() for why in each.silent)
    return {name: words for name, words in (("own_modules", own), ("not_proved", silent)) if words}


def _not_at_both(
    bare: Verdict, sides: Mapping[SideName, ImportedCase | None], left_out: dict[str, None]
) -> Verdict | None:
    """Return the verdict of a case that cannot be compared; None if it can be.

    A case that both sides skip is added to `left_out`.
    """
    skipped = {side: case.skipped for side, case in sides.items() if case and case.skipped}
    if all(case is None or case.skipped for case in sides.values()):
        for text in skipped.values():
            left_out[f"{bare.kernel}: {text}"] = None
        return None
    for side, case in sides.items():
        if case and case.failed:
            return without_time(bare, case.failed, side, skipped=False)
    if skipped:
        [(side, why)] = skipped.items()
        return without_time(bare, why, side, skipped=True)
    if sides["base"] is None:
        return dataclasses.replace(bare, status="new", reason="only-in-head")
    if sides["head"] is None:
        return dataclasses.replace(bare, status="missing", reason="only-in-base")
    return None


def _while_running(seen: Telemetry, slots: Sequence[_Slot]) -> Telemetry:
    """Return the card's telemetry while processes ran, and the foreign processes that the driver listed then.

    Each slot is a separate process. So a process that is listed in two slots is foreign, regardless of how
    the driver numbers processes in a container. A driver that lists no process does not list ours either.
    """
    of_slots = [
        [each for each in seen.during if slot.started_ns <= each.at_ns <= slot.ended_ns] for slot in slots
    ]
    listed = Counter(
        pid for of_slot in of_slots for pid in {pid for each in of_slot for pid in each.processes or ()}
    )
    during = tuple(each for of_slot in of_slots for each in of_slot)
    if listed:
        foreign = tuple(sorted(pid for pid, times in listed.items() if times > 1))
        return dataclasses.replace(seen, during=during, foreign_processes=foreign)
    why = seen.unavailable.get("processes", "the driver's list does not even show the executable")
    unavailable = {**seen.unavailable, "foreign_processes": why}
    seen = dataclasses.replace(seen, during=during, unavailable=unavailable)
    return dataclasses.replace(seen, foreign_processes=None)


def _block_of(label: str, quads: Sequence[_Quad], seen: Telemetry, took_s: float) -> PairedBlock:
    cases = [slot.run.cases[label] for quad in quads for slot in quad.slots]
    return PairedBlock(
        quads=tuple(_paired(label, quad) for quad in quads),
        launches_per_slot=min(len(case.times_ns) * (case.launches or 1) for case in cases),
        l2=cases[0].l2,
        clock=cases[0].clock,
        tick_ns=_EVENT_TICK_NS if cases[0].device_clock else _CLOCK_TICK_NS,
        warmup_s=None,
        settled=None,
        gpu_s=took_s,
        telemetry=seen,
    )


def _paired(label: str, quad: _Quad) -> Quad:
    """Return a quad of one case, with cycles if every process reports its SM clock."""
    cases = [slot.run.cases[label] for slot in quad.slots]
    a, b, c, d = (trimmed_mean(case.times_ns) for case in cases)
    clocks = [case.sm_clock_mhz for case in cases]
    paired = Quad(
        order=quad.order,
        times_ns=(a, b, c, d),
        started_ns=quad.slots[0].started_ns,
        ended_ns=quad.slots[-1].ended_ns,
    )
    if None in clocks:
        return paired
    w, x, y, z = (clock or 0.0 for clock in clocks)
    cycles = a * w / 1e3, b * x / 1e3, c * y / 1e3, d * z / 1e3
    return dataclasses.replace(paired, cycles=cycles, sm_clock_mhz=(w, x, y, z))
