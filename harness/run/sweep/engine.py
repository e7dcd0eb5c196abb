"""Runs a sweep from start to end.

It lists configurations, applies rules, compiles, screens, compares with the best, and measures the winner
again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Protocol, TypeVar

import msgspec

import harness
from harness.device.machine import describe_host, machine_name
from harness.device.peaks import peaks
from harness.device.telemetry import probe_for
from harness.errors import MeasureError
from harness.judgement.statistics import summarize
from harness.measure import protocol
from harness.measure.quads import PairSettings
from harness.measure.timing import MeasureSettings
from harness.records import sweep_types
from harness.records.sweep_journal import SweepJournal, SweepState
from harness.records.sweep_types import Configuration, Sweep, SweepResult, SweepRow, SweepSettings
from harness.records.types import DeviceInfo, Measurement, Outcome, Row, Toolchain, fields_of
from harness.run.sweep.executors import Executor, Job, JobResult
from harness.run.sweep.halving import Contender, Duels, HalvingResult, duel_effect, next_step
from harness.run.sweep.rules import Rules
from harness.suite.configurations import configurations, points
from harness.suite.kernel import Kernel
from harness.suite.loader import LoadedSuite
from harness.suite.planning import refusal
from harness.suite.problem import ceil_div
from harness.suite.sources import lacking
from harness.suite.tuning import Tuning
from harness.system import packages
from harness.system.process import Failed

SCREENING = MeasureSettings(
    min_slots=5, max_slots=10, min_time_s=0.0, max_time_s=0.25, warmup_min_s=0.02, warmup_max_s=0.1
)
FINAL = MeasureSettings(min_time_s=0.1, max_time_s=1.0, warmup_min_s=0.05, warmup_max_s=0.3)
PAIRS = PairSettings(
    min_quads=8, max_quads=16, standard_error=0.001, max_time_s=1.0,
    warmup_min_s=0.02, warmup_max_s=0.1, lead_in_s=0.005,
)  # fmt: skip
FINALISTS = PairSettings(
    min_quads=20, max_quads=60, standard_error=0.0003, max_time_s=3.0,
    warmup_min_s=0.03, warmup_max_s=0.2, lead_in_s=0.01,
)  # fmt: skip
METHOD = 1
"""Version of the procedure. Sweeps of another version are not continued."""
CHUNK = 8
"""Fewest configurations that one job prepares: compilers run in parallel within a job."""


T = TypeVar("T")


class SweepObserver(Protocol):
    def started(self, sweep: Sweep, state: SweepState) -> None: ...
    def phase(self, name: str, total: int) -> None: ...
    def moved(self, row: SweepRow | None = None) -> None:
        """Report that one step of the phase is done, with its row if it made one."""


class Sweeping:
    """Sweeps one kernel on one executor, at `sizes` or at the tuning's sizes.

    Raises SuiteError for a broken tuning, UsageError for an invalid size, MeasureError for a kernel that the
    device cannot run.
    """

    def __init__(
        self,
        loaded: LoadedSuite,
        kernel: Kernel,
        executor: Executor,
        settings: SweepSettings,
        observer: SweepObserver,
        sizes: Sequence[str] = (),
    ) -> None:
        assert kernel.tune is not None
        self.loaded, self.suite, self.kernel, self.executor = loaded, loaded.suite, kernel, executor
        self.settings, self.observer = settings, observer
        self.device = executor.devices[0]
        refused = refusal(kernel, self.device)
        if refused:
            raise MeasureError(f"{refused.message} Choose one by --device; 'harness devices' lists them.")
        if problem := lacking(kernel, self.device.backend):
            raise MeasureError(problem)
        if self.suite.problem.held_to == "base":
            raise MeasureError(
                f"{self.suite.name} compares outputs with base's, and a sweep has no base: a wrong "
                "configuration could win. Write a reference() in its suite.py, or name a ReferenceFunction."
            )
        at = points(self.suite, kernel.tune, sizes, quick=self.device.kind != "gpu")
        self.all = configurations(self.suite, kernel, kernel.tune, at)
        self._by_number: Mapping[int, Configuration] = {each.number: each for each in self.all}
        tuning = replace(kernel.tune, rules=(*kernel.tune.rules, *self.settings.rules))
        rules = Rules(self.suite, kernel, tuning, self.device)
        self.rejected = {each.number: row for each in self.all if (row := rules.rejected(each))}
        self.sweep = self._described(kernel.tune)
        self.journal = SweepJournal(None, self.sweep)
        self.state = self.journal.state
        self.compile_s = self.measure_s = 0.0
        self._digests: dict[int, str] = {}
        """Digests of outputs that were verified in full, by configuration number."""

    def run(self, results: Path | None, *, fresh: bool = False) -> SweepResult:
        """Execute everything that is not stored yet in the folder of all records, or everything if `fresh`.

        None stores nothing. A configuration that fails, crashes or hangs loses only its own row. Raises
        StoreError if no record can be begun. An interrupt or a lost device ends the sweep early: finished
        rows are stored and returned, and the next run continues from there.
        """
        interrupted, problem = False, ""
        folder = results / machine_name(self.device) / "sweeps" if results else None
        with SweepJournal(folder, self.sweep, fresh=fresh) as self.journal:
            self.state = self.journal.state
            reused = len(self._rows())
            self.observer.started(self.journal.sweep, self.state)
            try:
                if not self.state.complete:
                    self._carry_out()
            except KeyboardInterrupt:
                interrupted = True
            except MeasureError as error:
                problem = error.message
            return SweepResult(
                sweep=self.journal.sweep,
                rows=self._rows(),
                finals=tuple(sorted(self.state.finals, key=lambda final: final.number)),
                path=str(self.journal.path or ""),
                complete=self.state.complete,
                reused=reused,
                compile_s=self.compile_s,
                measure_s=self.measure_s,
                problem=self.journal.problem or problem,
                interrupted=interrupted,
            )

    def _carry_out(self) -> None:
        began = time.monotonic()
        try:
            for number, row in self.rejected.items():
                if number not in self.state.rows:
                    self.journal.add(row)
            self._prepare()
        finally:
            prepared = time.monotonic()
            self.compile_s = prepared - began
        try:
            self._screen()
            while not self._decided():
                pass
            self.journal.finish()
        finally:
            self.measure_s = time.monotonic() - prepared

    def _described(self, tuning: Tuning) -> Sweep:
        with closing(probe_for(self.device)) as probe:
            limits = probe.limits()
        now = dt.datetime.now(dt.timezone.utc)
        source = self.loaded.source
        return Sweep(
            harness_version=harness.__version__,
            sweep_id=identity(
                source.tree_sha256, self.kernel, self.device, self.executor.toolchain, self.all, self.settings
            ),
            started_at=now.isoformat(timespec="seconds"),
            source=source,
            kernel=self.kernel.name,
            parameters=tuning.names,
            groups={name: tuple(names) for name, names in tuning.groups.items()},
            total=len(self.all),
            device=self.device,
            devices=tuple(device.uuid or device.spec for device in self.executor.devices),
            toolchain=self.executor.toolchain,
            host=describe_host(),
            settings=self.settings,
            peaks=peaks(
                self.device, limits.max_sm_clock_mhz, limits.max_memory_clock_mhz, limits.memory_bus_bits
            ),
        )

    # Before measuring

    def _prepare(self) -> None:
        """Generate, compile and load, several in parallel. A job that fails is repeated configuration by
        configuration.
        """
        known = {*self.state.prepared, *self.state.rows}
        wanted = [each for each in self.all if each.number not in known]
        for prepared in tuple(self.state.prepared.values()):  # it may have ended between the two lines
            self._settle(prepared)
        if not wanted:
            return
        self.observer.phase("prepare", len(wanted))
        again: list[Configuration] = []
        size = max(CHUNK, 4 * (os.cpu_count() or 1))
        chunks = [wanted[at : at + size] for at in range(0, len(wanted), size)]
        for chunk, result in self._run(chunks, map(self._preparing, chunks)):
            if isinstance(result.reply, Failed) and len(chunk) > 1:
                again += chunk
            else:
                self._keep_prepared(chunk, result)
        single = [[each] for each in again]
        for chunk, result in self._run(single, map(self._preparing, single)):
            self._keep_prepared(chunk, result)

    def _run(self, about: Iterable[T], jobs: Iterable[Job]) -> Iterator[tuple[T, JobResult]]:
        """Run one job for each item, and yield the item with its result."""
        by_key = {job.key: (each, job) for each, job in zip(about, jobs, strict=True)}
        if by_key:
            for result in self.executor.run([job for _, job in by_key.values()]):
                yield by_key[result.key][0], result

    def _preparing(self, chunk: Sequence[Configuration]) -> Job:
        name = self.kernel.name
        cases = tuple(
            protocol.CaseOf(kernel=name, sizes=each.sizes, macros=each.parameters) for each in chunk
        )
        return Job(
            key=f"prepare {chunk[0].number}-{chunk[-1].number}",
            request=protocol.Prepare(cases=cases),
            # Sources are generated one after another, then compiled in rounds of one core each.
            timeout_s=self.settings.timeout_s * max(1, ceil_div(len(chunk), os.cpu_count() or 1)),
        )

    def _keep_prepared(self, chunk: Sequence[Configuration], result: JobResult) -> None:
        reply = result.reply
        if isinstance(reply, Failed):
            facts = [protocol.SideFacts(reason=reply.reason, message=reply.message, log=reply.log)]
        else:
            assert isinstance(reply, tuple)
            facts = list(reply)
        for each, fact in zip(chunk, facts, strict=True):
            prepared = sweep_types.PreparedConfiguration(
                number=each.number,
                **fields_of(fact, *Outcome.__slots__),
                code="" if fact.reason else _code(fact),
                device=result.device,
                host_s=result.host_s / len(chunk),
            )
            self.journal.add(prepared)
            self._settle(prepared)
            self.observer.moved()

    def _settle(self, prepared: sweep_types.PreparedConfiguration) -> None:
        if prepared.reason and prepared.number not in self.state.rows:
            self.journal.add(self._failed(prepared.number, prepared))

    def _failed(self, number: int, why: sweep_types.PreparedConfiguration | Failed | Row) -> SweepRow:
        prepared = self.state.prepared[number]
        return SweepRow(
            configuration=self._by_number[number],
            status="failed",
            dtype=self.kernel.dtype,
            **fields_of(why, "reason", "message", "log"),
            **fields_of(prepared, "launch", "resources", "source_sha256", "device", "host_s"),
        )

    def _duplicates(self) -> dict[int, int]:
        """Return configurations that duplicate another, with the first configuration of the same code and
        size.
        """
        first: dict[tuple[str, str], int] = {}
        duplicates: dict[int, int] = {}
        for each in self.all:
            prepared = self.state.prepared.get(each.number)
            if prepared is not None and prepared.code:
                original = first.setdefault((each.case, prepared.code), each.number)
                if original != each.number:
                    duplicates[each.number] = original
        return duplicates

    # Measuring

    def _screen(self) -> None:
        """Verify and time each once, in random order, so that drift does not look like an effect of a
        parameter.
        """
        left_out = self.rejected.keys() | self._duplicates().keys()
        left_out |= {number for number, prepared in self.state.prepared.items() if prepared.reason}
        order = [each for each in self.all if each.number not in left_out]
        random.Random(self.settings.seed).shuffle(order)  # noqa: S311 - an order, not a secret
        wanted = [(place, each) for place, each in enumerate(order, 1) if each.number not in self.state.rows]
        if wanted:
            self.observer.phase("screen", len(wanted))
        jobs = [self._measuring(f"screen {each.number}", each, SCREENING) for _, each in wanted]
        for (place, each), result in self._run(wanted, jobs):
            row = self._screened(each.number, place, result)
            self.journal.add(row)
            self.observer.moved(row)

    def _measuring(
        self, key: str, each: Configuration, settings: MeasureSettings, *, fresh: bool = False
    ) -> Job:
        name, seed = self.kernel.name, self.settings.seed
        request = protocol.Measure(
            kernel=name, sizes=each.sizes, seed=seed, settings=settings, macros=each.parameters
        )
        return Job(key=key, request=request, timeout_s=self.settings.timeout_s, fresh=fresh)

    def _screened(self, number: int, place: int, result: JobResult) -> SweepRow:
        measured = _measured_row(result)
        row = self._failed(number, measured)
        row = replace(row, place=place, device=result.device, host_s=row.host_s + result.host_s)
        if isinstance(measured, Failed):
            return row
        row = replace(row, **fields_of(measured, "flop", "moved_bytes", "launch", "resources"))
        if measured.measurement is None:
            return row
        times = summarize(measured.measurement.times_ns)
        return replace(
            row,
            status="measured",
            time_ns=times.median_ns,
            time_low_ns=times.low_ns,
            time_high_ns=times.high_ns,
            gpu_s=_gpu_s(measured.measurement),
        )

    def _decided(self) -> bool:
        """Take one step with every size without a final result. Return True if no such size is left."""
        decided = {self._by_number[final.number].case for final in self.state.finals}
        steps = [self._next_step(rows)[0] for case, rows in self._measured().items() if case not in decided]
        duels = [step for step in steps if isinstance(step, Duels)]
        if duels:
            self._duel(duels)
        elif steps:
            self._repeat([step for step in steps if isinstance(step, HalvingResult)])
        return not steps

    def _measured(self) -> dict[str, list[SweepRow]]:
        found: dict[str, list[SweepRow]] = defaultdict(list)
        for _, row in sorted(self.state.rows.items()):
            if row.status == "measured":
                found[row.configuration.case].append(row)
        return found

    def _next_step(self, rows: Sequence[SweepRow]) -> tuple[Duels | HalvingResult, dict[int, Contender]]:
        times = {row.configuration.number: row.time_ns for row in rows if row.time_ns is not None}
        return next_step(times, self.state.duels, self.settings)

    def _duel(self, rounds: Sequence[Duels]) -> None:
        wanted = [(each, number) for each in rounds for number in each.numbers]
        self.observer.phase("duel", len(wanted))
        # After its first verified comparison, the best's outputs only have to stay the same.
        first = [(each, each.numbers[0]) for each in rounds if each.against not in self._digests]
        self._duel_all(first)
        self._duel_all([pair for pair in wanted if pair not in first])

    def _duel_all(self, pairs: Sequence[tuple[Duels, int]]) -> None:
        wanted = [pair for pair in pairs if self.state.rows[pair[0].against].status == "measured"]
        jobs = [self._duelling(each, number) for each, number in wanted]
        for (each, number), result in self._run(wanted, jobs):
            reply = result.reply
            if isinstance(reply, Failed):
                # An error of neither side is attributed to the newcomer: the other side has been compared
                # before.
                self._undo(each.against if reply.side == "base" else number, reply)
            else:
                assert isinstance(reply, protocol.CompareReply)
                self._digests[number] = reply.sides["head"].digest
                self._digests[each.against] = reply.sides["base"].digest
                self.journal.add(
                    sweep_types.Duel(
                        round=each.round,
                        number=number,
                        against=each.against,
                        effect=duel_effect(reply.block),
                        device=result.device,
                        gpu_s=reply.block.gpu_s + (reply.block.warmup_s or 0.0),
                        host_s=result.host_s,
                    )
                )
            self.observer.moved()

    def _duelling(self, each: Duels, number: int) -> Job:
        key = f"duel {each.round} {number} {each.against}"
        head, base = self._by_number[number], self._by_number[each.against]
        pair = protocol.PairOf(
            id=key,
            sizes=head.sizes,
            base=protocol.PairSide(suite="base", kernel=self.kernel.name, macros=base.parameters),
            head=protocol.PairSide(suite="head", kernel=self.kernel.name, macros=head.parameters),
        )
        drawn = hashlib.sha256(f"{self.settings.seed} {key}".encode())
        sides = (("base", each.against), ("head", number))
        request = protocol.Compare(
            pair=pair,
            seed=self.settings.seed,
            order_seed=int.from_bytes(drawn.digest()[:4], "big"),
            settings=FINALISTS if each.last else PAIRS,
            verified={side: self._digests[of] for side, of in sides if of in self._digests},
        )
        # Both sides are verified.
        return Job(key=key, request=request, timeout_s=2 * self.settings.timeout_s)

    def _undo(self, number: int, failed: Failed | Row) -> None:
        row = self.state.rows[number]
        if row.status == "measured":
            why = fields_of(failed, "reason", "message", "log")
            self.journal.add(replace(row, status="failed", **why))

    def _repeat(self, winners: Sequence[HalvingResult]) -> None:
        """Measure the winners again in fresh processes, because each was partly chosen for its luck."""
        done = {(repeat.number, repeat.process) for repeat in self.state.repeats}
        wanted = [
            (each.winner, process)
            for each in winners
            for process in range(1, self.settings.final_processes + 1)
            if (each.winner, process) not in done
        ]
        self.observer.phase("repeat", len(wanted))
        jobs = [
            self._measuring(f"repeat {number} {process}", self._by_number[number], FINAL, fresh=True)
            for number, process in wanted
        ]
        for (number, process), result in self._run(wanted, jobs):
            self._keep_repeat(number, process, result)
            self.observer.moved()
        for each in winners:
            if self.state.rows[each.winner].status == "measured":
                self._keep_final(each)

    def _keep_repeat(self, number: int, process: int, result: JobResult) -> None:
        measured = _measured_row(result)
        if isinstance(measured, Failed) or measured.measurement is None:
            self._undo(number, measured)
            return
        self.journal.add(
            sweep_types.Repeat(
                number=number,
                process=process,
                time_ns=summarize(measured.measurement.times_ns).median_ns,
                device=result.device,
                gpu_s=_gpu_s(measured.measurement),
                host_s=result.host_s,
            )
        )

    def _keep_final(self, decision: HalvingResult) -> None:
        repeats = [repeat for repeat in self.state.repeats if repeat.number == decision.winner]
        repeats.sort(key=lambda repeat: repeat.process)
        times_ns = tuple(repeat.time_ns for repeat in repeats)
        self.journal.add(
            sweep_types.Final(
                sizes=self._by_number[decision.winner].sizes,
                number=decision.winner,
                time_ns=median(times_ns),
                process_times_ns=times_ns,
                tied=decision.tied,
                gpu_s=sum(repeat.gpu_s for repeat in repeats),
            )
        )

    # Results so far

    def _rows(self) -> tuple[SweepRow, ...]:
        """Return the rows of all settled configurations, in order. The duels show how far each came."""
        own = dict(self.state.rows)
        for rows in self._measured().values():
            for number, contender in self._next_step(rows)[1].items():
                duels = [duel for duel in self.state.duels if duel.number == number]
                own[number] = replace(
                    own[number],
                    round=contender.round,
                    behind=contender.behind,
                    gpu_s=own[number].gpu_s + sum(duel.gpu_s for duel in duels),
                    host_s=own[number].host_s + sum(duel.host_s for duel in duels),
                )
        for number, original in self._duplicates().items():
            if original in own:
                prepared = self.state.prepared[number]
                own[number] = replace(
                    own[original],
                    configuration=self._by_number[number],
                    same_as=original,
                    place=0,
                    source_sha256=prepared.source_sha256,
                    gpu_s=0.0,
                    host_s=prepared.host_s,
                )
        return tuple(own[number] for number in sorted(own))


def identity(
    tree_sha256: str,
    kernel: Kernel,
    device: DeviceInfo,
    toolchain: Toolchain,
    all_: Sequence[Configuration],
    settings: SweepSettings,
) -> str:
    """Return sixteen hexadecimal digits of everything that could change a sweep's result."""
    needs = getattr(kernel.source_for(device.backend), "needs", ())
    asked = {
        "method": METHOD,
        "tree": tree_sha256,
        "kernel": kernel.name,
        "device": (device.backend, device.name, device.arch, device.driver),
        "toolchain": toolchain,
        "packages": packages.versions(needs),  # another version may generate another text
        "configurations": all_,
        "settings": (settings, SCREENING, PAIRS, FINALISTS, FINAL),
    }
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()[:16]


def _code(facts: protocol.SideFacts) -> str:
    """Return a key that is equal for configurations that run the same code in the same way."""
    resources = facts.resources
    code = (resources and (resources.code_sha256 or resources.binary_sha256)) or facts.code_sha256
    if code is None:
        return ""
    identity = msgspec.json.encode((code, facts.launch, facts.passed))
    return hashlib.sha256(identity).hexdigest()


def _measured_row(result: JobResult) -> Row | Failed:
    assert isinstance(result.reply, Row | Failed)
    return result.reply


def _gpu_s(measurement: Measurement) -> float:
    started_ns, ended_ns = measurement.span_ns
    return (ended_ns - started_ns) / 1e9 + (measurement.warmup_s or 0.0)
