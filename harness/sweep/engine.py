"""A sweep from beginning to end: which configurations, which are ruled out, compiled, screened, held against
the best, and the winner measured again.
"""

from __future__ import annotations

__all__ = ["SweepObserver", "SweepOptions", "Sweeping", "identity"]

import dataclasses
import datetime as dt
import hashlib
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Protocol

import msgspec

import harness
from harness.bench import protocol
from harness.bench.abba import PairSettings
from harness.bench.measure import MeasureSettings
from harness.device.host import describe_host
from harness.device.machine import machine_name
from harness.device.peaks import peaks
from harness.device.telemetry import probe_for
from harness.errors import MeasureError
from harness.records import DeviceInfo, Measurement, Toolchain
from harness.spec.loader import LoadedSuite
from harness.spec.planning import refusal
from harness.spec.sources import lacking
from harness.spec.suite import Kernel, Tuning, ceil_div
from harness.statistics import summarize
from harness.sweep.configurations import Rules, configurations, parameters, points
from harness.sweep.crew import Answer, Crew, Job
from harness.sweep.halving import Contender, Decision, Duels, duel_effect, next_step
from harness.sweep.journal import Found, SweepJournal, Unsaved
from harness.sweep.model import (
    Configuration,
    Duel,
    Final,
    Prepared,
    Repeat,
    Sweep,
    SweepResult,
    SweepRow,
    SweepSettings,
)
from harness.system import packages

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
"""Counted up when sweeps are carried out in another way: older ones are then not gone on with."""
CHUNK = 8
"""The fewest configurations that one job prepares: compilers work side by side within a job."""


class SweepObserver(Protocol):
    """Who is told how a sweep goes."""

    def began(self, sweep: Sweep, found: Found) -> None: ...
    def phase(self, name: str, total: int) -> None: ...
    def moved(self, row: SweepRow | None = None) -> None:
        """One step of the phase is done: this row, where it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What is asked for, beyond the kernel."""

    sizes: tuple[str, ...] = ()
    settings: SweepSettings = field(default_factory=SweepSettings)
    results: Path | None = None
    """Folder of all records; None stores nothing."""
    fresh: bool = False
    """Measure anew what is stored."""


class Sweeping:
    """One kernel's sweep by one crew.

    Raises SuiteError for a tuning that is broken, UsageError for a size that is none, MeasureError for a
    kernel that the device cannot run.
    """

    def __init__(
        self, loaded: LoadedSuite, kernel: Kernel, crew: Crew, options: SweepOptions, observer: SweepObserver
    ) -> None:
        assert kernel.tune is not None
        self.loaded, self.suite, self.kernel, self.crew = loaded, loaded.suite, kernel, crew
        self.options, self.settings, self.observer = options, options.settings, observer
        self.device = crew.devices[0]
        _check_fit(kernel, self.device)
        sizes = points(self.suite, kernel.tune, options.sizes, quick=self.device.kind != "gpu")
        self.all = configurations(self.suite, kernel, kernel.tune, sizes)
        self._by_number: Mapping[int, Configuration] = {each.number: each for each in self.all}
        rules = Rules(self.suite, kernel, kernel.tune, self.device)
        self.rejected = {each.number: row for each in self.all if (row := rules.rejected(each))}
        self.sweep = self._described(kernel.tune)
        self.journal: SweepJournal | Unsaved = Unsaved(self.sweep)
        self.found = self.journal.found
        self.compile_s = self.measure_s = 0.0
        self._digests: dict[int, str] = {}
        """By number, of outputs that were verified in full."""

    def run(self) -> SweepResult:
        """Carry out what is not stored yet. A configuration that fails, crashes or hangs costs its own row.

        Raises StoreError where no record can be begun. An interrupt, or a device that is lost, ends the sweep
        early: what is finished is stored and returned, and the next run goes on from there.
        """
        interrupted, problem = False, ""
        with self._opened() as self.journal:
            self.found = self.journal.found
            reused = len(self._rows())
            self.observer.began(self.journal.sweep, self.found)
            try:
                if not self.found.complete:
                    self._carry_out()
            except KeyboardInterrupt:
                interrupted = True
            except MeasureError as error:
                problem = error.message
            return SweepResult(
                sweep=self.journal.sweep,
                rows=self._rows(),
                finals=tuple(sorted(self.found.finals, key=lambda final: final.number)),
                path=str(self.journal.path or ""),
                complete=self.found.complete,
                reused=reused,
                compile_s=self.compile_s,
                measure_s=self.measure_s,
                problem=self.journal.problem or problem,
                interrupted=interrupted,
            )

    def _carry_out(self) -> None:
        began = time.monotonic()
        try:
            self._reject()
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

    def _opened(self) -> SweepJournal | Unsaved:
        if self.options.results is None:
            return Unsaved(self.sweep)
        folder = self.options.results / machine_name(self.device) / "sweeps"
        return SweepJournal(folder, self.sweep, fresh=self.options.fresh)

    def _described(self, tuning: Tuning) -> Sweep:
        with closing(probe_for(self.device)) as probe:
            limits = probe.limits()
        now = dt.datetime.now(dt.timezone.utc)
        source = self.loaded.source
        return Sweep(
            harness_version=harness.__version__,
            sweep_id=identity(
                source.tree_sha256, self.kernel, self.device, self.crew.toolchain, self.all, self.settings
            ),
            started_at=now.isoformat(timespec="seconds"),
            source=source,
            kernel=self.kernel.name,
            parameters=parameters(tuning),
            groups={name: tuple(names) for name, names in tuning.groups.items()},
            total=len(self.all),
            device=self.device,
            devices=tuple(device.uuid or device.spec for device in self.crew.devices),
            toolchain=self.crew.toolchain,
            host=describe_host(),
            settings=self.settings,
            peaks=peaks(
                self.device, limits.max_sm_clock_mhz, limits.max_memory_clock_mhz, limits.memory_bus_bits
            ),
        )

    # Before anything is measured

    def _reject(self) -> None:
        for number, row in self.rejected.items():
            if number not in self.found.rows:
                self.journal.add(row)

    def _prepare(self) -> None:
        """Generate, compile and load, several side by side; a job that fails is done again one by one."""
        wanted = [
            each
            for each in self.all
            if each.number not in self.found.prepared and each.number not in self.found.rows
        ]
        for prepared in tuple(self.found.prepared.values()):  # it may have ended between the two lines
            self._settle(prepared)
        if not wanted:
            return
        self.observer.phase("prepare", len(wanted))
        again: list[Configuration] = []
        chunk = max(CHUNK, 4 * (os.cpu_count() or 1))
        for chosen, answer in self._prepared([wanted[i : i + chunk] for i in range(0, len(wanted), chunk)]):
            if isinstance(answer.reply, protocol.Failed) and len(chosen) > 1:
                again += chosen
            else:
                self._keep_prepared(chosen, answer)
        for chosen, answer in self._prepared([[each] for each in again]):
            self._keep_prepared(chosen, answer)

    def _prepared(
        self, chunks: Sequence[Sequence[Configuration]]
    ) -> Iterator[tuple[Sequence[Configuration], Answer]]:
        by_key = {f"prepare {chunk[0].number}-{chunk[-1].number}": chunk for chunk in chunks}
        jobs = [
            Job(
                key=key,
                request=protocol.Prepare(
                    cases=tuple(
                        protocol.CaseOf(kernel=self.kernel.name, sizes=each.sizes, macros=each.parameters)
                        for each in chunk
                    )
                ),
                # Text is generated one after another, then compiled in turns of a core each.
                timeout_s=self.settings.timeout_s * max(1, ceil_div(len(chunk), os.cpu_count() or 1)),
            )
            for key, chunk in by_key.items()
        ]
        for answer in self._answers(jobs):
            yield by_key[answer.key], answer

    def _answers(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        if jobs:
            yield from self.crew.do(jobs)

    def _keep_prepared(self, chosen: Sequence[Configuration], answer: Answer) -> None:
        reply = answer.reply
        if isinstance(reply, protocol.Failed):
            facts = [protocol.SideFacts(reason=reply.reason, message=reply.message, log=reply.log)]
        else:
            assert isinstance(reply, protocol.Prepared)
            facts = list(reply.sides)
        for each, fact in zip(chosen, facts, strict=True):
            prepared = Prepared(
                number=each.number,
                reason=fact.reason,
                message=fact.message,
                log=fact.log,
                launch=fact.launch,
                resources=fact.resources,
                source_sha256=fact.source_sha256,
                code="" if fact.reason else _code(fact),
                device=answer.device,
                host_s=answer.host_s / len(chosen),
            )
            self.journal.add(prepared)
            self._settle(prepared)
            self.observer.moved(self.found.rows.get(each.number))

    def _settle(self, prepared: Prepared) -> None:
        """What could not be prepared has failed."""
        if prepared.reason and prepared.number not in self.found.rows:
            each = self._by_number[prepared.number]
            self.journal.add(self._failed(each, prepared.reason, prepared.message, prepared.log))

    def _failed(self, each: Configuration, reason: str, message: str, log: str) -> SweepRow:
        prepared = self.found.prepared[each.number]
        return SweepRow(
            configuration=each,
            status="failed",
            reason=reason,
            message=message,
            log=log,
            dtype=self.kernel.dtype,
            launch=prepared.launch,
            resources=prepared.resources,
            source_sha256=prepared.source_sha256,
            device=prepared.device,
            host_s=prepared.host_s,
        )

    def _doubles(self) -> dict[int, int]:
        """Numbers of configurations that are another's double, and whose: the first of its size."""
        first: dict[tuple[str, str], int] = {}
        doubles: dict[int, int] = {}
        for each in self.all:
            prepared = self.found.prepared.get(each.number)
            if prepared is None or not prepared.code:
                continue
            original = first.setdefault((each.case, prepared.code), each.number)
            if original != each.number:
                doubles[each.number] = original
        return doubles

    # Measuring

    def _screen(self) -> None:
        """Verify and time each once, in random order: what drifts must not pass for a parameter's doing."""
        doubles = self._doubles()
        order = [
            each
            for each in self.all
            if each.number not in self.rejected
            and each.number not in doubles
            and not self.found.prepared[each.number].reason
        ]
        random.Random(self.settings.seed).shuffle(order)  # noqa: S311 - an order, not a secret
        places = {each.number: place for place, each in enumerate(order, 1)}
        by_key = {f"screen {each.number}": each for each in order if each.number not in self.found.rows}
        if not by_key:
            return
        self.observer.phase("screen", len(by_key))
        jobs = [self._measuring(key, each, SCREENING) for key, each in by_key.items()]
        for answer in self._answers(jobs):
            each = by_key[answer.key]
            row = self._screened(each, answer)
            self.journal.add(dataclasses.replace(row, place=places[each.number]))
            self.observer.moved(row)

    def _measuring(
        self, key: str, each: Configuration, settings: MeasureSettings, *, fresh: bool = False
    ) -> Job:
        request = protocol.Measure(
            kernel=self.kernel.name,
            sizes=each.sizes,
            seed=self.settings.seed,
            settings=settings,
            macros=each.parameters,
        )
        return Job(key=key, request=request, timeout_s=self.settings.timeout_s, fresh=fresh)

    def _screened(self, each: Configuration, answer: Answer) -> SweepRow:
        reply = answer.reply
        if isinstance(reply, protocol.Failed):
            row = self._failed(each, reply.reason, reply.message, reply.log)
            return dataclasses.replace(row, device=answer.device, host_s=row.host_s + answer.host_s)
        assert isinstance(reply, protocol.Measured)
        measured = reply.row
        row = self._failed(each, measured.reason, measured.message, measured.log)
        row = dataclasses.replace(
            row,
            flop=measured.flop,
            moved_bytes=measured.moved_bytes,
            launch=measured.launch,
            resources=measured.resources,
            device=answer.device,
            host_s=row.host_s + answer.host_s,
        )
        if measured.measurement is None:
            return row
        times = summarize(measured.measurement.times_ns)
        return dataclasses.replace(
            row,
            status="measured",
            time_ns=times.median_ns,
            time_low_ns=times.low_ns,
            time_high_ns=times.high_ns,
            gpu_s=_gpu_s(measured.measurement),
        )

    def _decided(self) -> bool:
        """One step further with every size that has no final yet; True where none is left."""
        duels: list[Duels] = []
        winners: list[Decision] = []
        for rows in self._undecided():
            step, _ = self._standing(rows)
            if isinstance(step, Duels):
                duels.append(step)
            else:
                winners.append(step)
        if duels:
            self._duel(duels)
        elif winners:
            self._repeat(winners)
        return not (duels or winners)

    def _undecided(self) -> Iterator[list[SweepRow]]:
        decided = {self._by_number[final.number].case for final in self.found.finals}
        for case, rows in self._measured().items():
            if case not in decided:
                yield rows

    def _measured(self) -> dict[str, list[SweepRow]]:
        """By case, the rows that have a time, in order."""
        found: dict[str, list[SweepRow]] = {}
        for number in sorted(self.found.rows):
            row = self.found.rows[number]
            if row.status == "measured":
                found.setdefault(row.configuration.case, []).append(row)
        return found

    def _standing(self, rows: Sequence[SweepRow]) -> tuple[Duels | Decision, dict[int, Contender]]:
        times = {row.configuration.number: row.time_ns for row in rows if row.time_ns is not None}
        return next_step(times, self.found.duels, self.settings)

    def _duel(self, rounds: Sequence[Duels]) -> None:
        wanted = [(each, number) for each in rounds for number in each.numbers]
        self.observer.phase("duel", len(wanted))
        # Once it has been verified beside another, the outputs of the best only have to be what they were.
        first = [(each, each.numbers[0]) for each in rounds if each.against not in self._digests]
        self._duel_all(first)
        self._duel_all([pair for pair in wanted if pair not in first])

    def _duel_all(self, pairs: Sequence[tuple[Duels, int]]) -> None:
        by_key = {
            f"duel {each.round} {number} {each.against}": (each, number)
            for each, number in pairs
            if self.found.rows[each.against].status == "measured"
        }
        jobs = [self._duelling(key, each, number) for key, (each, number) in by_key.items()]
        for answer in self._answers(jobs):
            each, number = by_key[answer.key]
            reply = answer.reply
            if isinstance(reply, protocol.Failed):
                # Nobody's side is the newcomer's: the other one has been through this before.
                self._undo(each.against if reply.side == "base" else number, reply)
            else:
                assert isinstance(reply, protocol.Compared)
                self._digests[number] = reply.sides["head"].digest
                self._digests[each.against] = reply.sides["base"].digest
                self.journal.add(
                    Duel(
                        round=each.round,
                        number=number,
                        against=each.against,
                        effect=duel_effect(reply.block),
                        device=answer.device,
                        gpu_s=reply.block.gpu_s + reply.block.warmup_s,
                        host_s=answer.host_s,
                    )
                )
            self.observer.moved()

    def _duelling(self, key: str, each: Duels, number: int) -> Job:
        head, base = self._by_number[number], self._by_number[each.against]
        pair = protocol.PairOf(
            id=key,
            sizes=head.sizes,
            base=protocol.PairSide(suite="base", kernel=self.kernel.name, macros=base.parameters),
            head=protocol.PairSide(suite="head", kernel=self.kernel.name, macros=head.parameters),
        )
        request = protocol.Compare(
            pair=pair,
            seed=self.settings.seed,
            order_seed=int.from_bytes(
                hashlib.sha256(f"{self.settings.seed} {key}".encode()).digest()[:4], "big"
            ),
            settings=FINALISTS if each.last else PAIRS,
            verified={
                side: self._digests[of]
                for side, of in (("base", each.against), ("head", number))
                if of in self._digests
            },
        )
        # Both sides are verified.
        return Job(key=key, request=request, timeout_s=2 * self.settings.timeout_s)

    def _undo(self, number: int, failed: protocol.Failed) -> None:
        """What was measured once and fails now is a failure."""
        row = self.found.rows[number]
        if row.status == "measured":
            self.journal.add(
                dataclasses.replace(
                    row, status="failed", reason=failed.reason, message=failed.message, log=failed.log
                )
            )

    def _repeat(self, winners: Sequence[Decision]) -> None:
        """Measure the winners again in fresh processes: each was chosen for being lucky too."""
        done = {(repeat.number, repeat.process) for repeat in self.found.repeats}
        by_key = {
            f"repeat {each.winner} {process}": (each.winner, process)
            for each in winners
            for process in range(1, self.settings.final_processes + 1)
            if (each.winner, process) not in done
        }
        self.observer.phase("repeat", len(by_key))
        jobs = [
            self._measuring(key, self._by_number[number], FINAL, fresh=True)
            for key, (number, _) in by_key.items()
        ]
        for answer in self._answers(jobs):
            number, process = by_key[answer.key]
            self._keep_repeat(number, process, answer)
            self.observer.moved()
        for each in winners:
            repeats = [repeat for repeat in self.found.repeats if repeat.number == each.winner]
            if self.found.rows[each.winner].status == "measured":
                self._keep_final(each, sorted(repeats, key=lambda repeat: repeat.process))

    def _keep_repeat(self, number: int, process: int, answer: Answer) -> None:
        reply = answer.reply
        if isinstance(reply, protocol.Failed):
            self._undo(number, reply)
            return
        assert isinstance(reply, protocol.Measured)
        measurement = reply.row.measurement
        if measurement is None:
            self._undo(number, protocol.Failed(reason=reply.row.reason, message=reply.row.message))
            return
        self.journal.add(
            Repeat(
                number=number,
                process=process,
                time_ns=summarize(measurement.times_ns).median_ns,
                device=answer.device,
                gpu_s=_gpu_s(measurement),
                host_s=answer.host_s,
            )
        )

    def _keep_final(self, decision: Decision, repeats: Sequence[Repeat]) -> None:
        self.journal.add(
            Final(
                sizes=self._by_number[decision.winner].sizes,
                number=decision.winner,
                time_ns=median(repeat.time_ns for repeat in repeats),
                process_times_ns=tuple(repeat.time_ns for repeat in repeats),
                tied=decision.tied,
                gpu_s=sum(repeat.gpu_s for repeat in repeats),
            )
        )

    # What is known so far

    def _rows(self) -> tuple[SweepRow, ...]:
        """Of everything that is settled, in order; how far each came follows from the duels."""
        own = dict(self.found.rows)
        for rows in self._measured().values():
            for number, contender in self._standing(rows)[1].items():
                duels = [duel for duel in self.found.duels if duel.number == number]
                own[number] = dataclasses.replace(
                    own[number],
                    round=contender.round,
                    behind=contender.behind,
                    gpu_s=own[number].gpu_s + sum(duel.gpu_s for duel in duels),
                    host_s=own[number].host_s + sum(duel.host_s for duel in duels),
                )
        for number, original in self._doubles().items():
            if original in own:
                own[number] = self._double(number, own[original])
        return tuple(own[number] for number in sorted(own))

    def _double(self, number: int, original: SweepRow) -> SweepRow:
        prepared = self.found.prepared[number]
        return dataclasses.replace(
            original,
            configuration=self._by_number[number],
            same_as=original.configuration.number,
            place=0,
            source_sha256=prepared.source_sha256,
            gpu_s=0.0,
            host_s=prepared.host_s,
        )


def identity(
    tree_sha256: str,
    kernel: Kernel,
    device: DeviceInfo,
    toolchain: Toolchain,
    all_: Sequence[Configuration],
    settings: SweepSettings,
) -> str:
    """Sixteen hexadecimal digits, of everything that could change what a sweep finds."""
    asked = {
        "method": METHOD,
        "tree": tree_sha256,
        "kernel": kernel.name,
        "device": (device.backend, device.name, device.arch, device.driver),
        "toolchain": toolchain,
        # Another version may write another text.
        "packages": packages.versions(getattr(kernel.source_for(device.backend), "needs", ())),
        "configurations": all_,
        "settings": (settings, SCREENING, PAIRS, FINALISTS, FINAL),
    }
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()[:16]


def _check_fit(kernel: Kernel, device: DeviceInfo) -> None:
    refused = refusal(kernel, device)
    message = refused.message if refused else lacking(kernel, device.backend)
    if message:
        raise MeasureError(message)


def _code(facts: protocol.SideFacts) -> str:
    """What is the same for configurations that run the same code in the same way."""
    resources = facts.resources
    code = (resources and (resources.code_sha256 or resources.binary_sha256)) or facts.code_sha256
    if code is None:
        return ""
    identity = msgspec.json.encode((code, facts.launch, facts.passed))
    return hashlib.sha256(identity).hexdigest()


def _gpu_s(measurement: Measurement) -> float:
    """Device time of a measurement with its warm-up."""
    return (measurement.ended_ns - measurement.started_ns) / 1e9 + measurement.warmup_s
