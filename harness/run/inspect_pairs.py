"""Builds pairs of kernels, compares their code and verifies them, before anything is timed."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from harness.errors import Side, WorkerError
from harness.measure import protocol
from harness.measure.problem_changes import Changes, demanding, sentences
from harness.measure.protocol import SideName
from harness.records.types import Outputs, Verdict
from harness.run.pair_session import CaseEntry, PairSession
from harness.run.two_workers import HEAD_FIRST, SIDES
from harness.suite.case_id import size_label
from harness.suite.problem import Case
from harness.system.interrupts import heed
from harness.system.process import Failed


@dataclass(frozen=True, slots=True)
class ProblemChanges:
    """The differences of head's problem from base's."""

    sentences: tuple[str, ...] = ()
    dtypes: frozenset[str] = frozenset()
    """Dtypes for which kernels may be right by one side's problem and wrong by the other's."""


def inspect(session: PairSession, entries: Sequence[CaseEntry]) -> ProblemChanges:
    """Build both sides of these entries, and settle the identical and the broken ones."""
    shared = [entry for entry in entries if not entry.in_turns]
    # Nothing is identical in two environments.
    by_name = session.head.suite.by_name
    in_turns = [
        entry
        for entry in entries
        if entry.in_turns and not session.is_elsewhere(by_name[entry.trial.case.kernel])
    ]
    session.build_ahead(in_turns)
    if shared:
        session.open_ahead(1)
    interrupted = threading.Event()
    with ThreadPoolExecutor(1, initializer=heed, initargs=(interrupted,)) as pool:
        beginning = pool.submit(session.begin_ahead)  # packages of functions take seconds to import
        try:
            _build(session, shared)
            with session.wall_time.during("open"):
                beginning.result()
        except BaseException:
            interrupted.set()
            raise
    changes = ProblemChanges() if session.same_problem() else _problem_changes(session, entries)
    if in_turns:
        by_side = session.inspect_in_turns(tuple(entry.pair for entry in in_turns))
        if not isinstance(by_side, Failed):
            for entry in in_turns:
                _settle_built(session, entry, {side: by_side[side][entry.pair.id][side] for side in SIDES})
    return changes


def _build(session: PairSession, entries: Sequence[CaseEntry]) -> None:
    """Build entries whose sides share a process, and settle the identical and the broken ones."""
    pairs = tuple(entry.pair for entry in entries)
    session.stage("build")
    # If a compiler hangs or kills its process, the case that needs it reports that.
    with suppress(WorkerError):
        request = protocol.Inspect(pairs=pairs)
        reply = session.builder.ask(request, session.build_timeout_s(len(pairs)), session.heard)
        if not isinstance(reply, Failed):
            for entry in entries:
                _settle_built(session, entry, reply[entry.pair.id])
    session.end_soon(session.builder)
    session.wall_time.enter("judge")


def _settle_built(
    session: PairSession, entry: CaseEntry, built: Mapping[SideName, protocol.SideFacts]
) -> None:
    entry.built = built
    entry.take(built)
    of_base, of_head = (built[side].identities(one_compiler=not session.has_compilers) for side in SIDES)
    if not of_base.isdisjoint(of_head) and not session.settings.measure_identical:
        entry.trial.end("identical", "same-code", "")
        return
    for side in HEAD_FIRST:
        if (facts := built[side]).reason:
            entry.trial.end("failed", facts.reason, facts.message, facts.log, side=side)
            return


def _problem_changes(session: PairSession, entries: Sequence[CaseEntry]) -> ProblemChanges:
    """Find how head's problem differs from base's.

    Head's kernels are checked by both problems in any case: a problem may describe itself differently from
    how it judges.
    """
    asked = _telling(entries)
    seed = session.settings.seed
    questions = [protocol.Differences(case=None, seed=seed)]
    for entry, reference in asked:
        case = protocol.CaseOf(kernel=entry.pair.head.kernel, sizes=entry.pair.sizes)
        questions.append(protocol.Differences(case=case, seed=seed, reference=reference))
    found: list[Changes] = []
    unknown: tuple[str, ...] = ()
    for question in questions:
        reply = session.ask(question, session.settings.timeout_s)
        if isinstance(reply, Failed):
            # A problem that hangs or raises may do so for every case, and each would take its time.
            unknown = (f"What changed could not be told: {reply.message}",)
            break
        found.append(reply)
    session.leave()
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
    return ProblemChanges((*sentences(of_suite, places), *unknown), frozenset(changed))


def _telling(entries: Sequence[CaseEntry]) -> list[tuple[CaseEntry, bool]]:
    """Return the cases that reveal a change of the problem, and whether to compute their references too.

    They are all cases to be measured. Of the others it takes one for each size and dtype, with the reference
    of the smallest of each dtype.
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


def verify_identical(session: PairSession, entries: Sequence[CaseEntry], changed: Collection[str]) -> None:
    """Verify identical code of changed dtypes: it was right by base's problem, but may be wrong by head's."""
    identical = {
        entry.pair.id: entry.trial
        for entry in entries
        if entry.trial.verdict().status == "identical" and entry.trial.case.dtype in changed
    }
    cases = {name: trial.case for name, trial in identical.items()}
    for name, found in checked_at_head(session, cases).items():
        if isinstance(found, Failed):
            identical[name].end("failed", found.reason, found.message, found.log, side=found.side)


def checked_at_head(
    session: PairSession, cases: Mapping[str, Case | Verdict], by_base: Collection[str] = ()
) -> dict[str, Failed | Outputs | None]:
    """Launch these cases of head. Return by id its error or the reference of its outputs.

    Cases of `by_base` dtypes are checked by base's problem too. If base's problem fails, base is at fault.
    """
    found: dict[str, Failed | Outputs | None] = {}
    if cases:
        session.leave()
    for name, case in cases.items():
        session.observer.started(name)
        # If head's own code runs in the process, it gets a process of its own.
        on_host = session.head.suite.by_name[case.kernel].runs_on_host(session.device.backend)
        session.have_load("head" if on_host else None)
        request = protocol.Measure(
            kernel=case.kernel,
            sizes=case.sizes,
            seed=session.settings.seed,
            settings=None,
            by_base=case.dtype in by_base,
        )
        reply = session.ask(request, session.settings.timeout_s)
        if not isinstance(reply, Failed):
            if not reply.reason:
                found[name] = reply.outputs
                continue
            session.leave()
            reply = Failed(reason=reply.reason, message=reply.message, log=reply.log)
        side: Side = "base" if reply.side == "base" else "head"
        found[name] = msgspec.structs.replace(reply, side=side)
    if cases:
        session.have_load(None)
    return found
