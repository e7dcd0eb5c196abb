"""Pairs of kernels built, compared by their code and verified: all that is known before anything is timed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
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
from harness.system.process import Failed


@dataclass(frozen=True, slots=True)
class ProblemChanges:
    """The differences of head's problem from base's."""

    sentences: tuple[str, ...] = ()
    dtypes: frozenset[str] = frozenset()
    """The dtypes that kernels may be wrong for by a demand of base's or head's alone."""


def inspect(session: PairSession, entries: Sequence[CaseEntry]) -> ProblemChanges:
    """Build both sides of these entries, and settle those that are identical or broken."""
    shared = [entry for entry in entries if not entry.in_turns]
    # Of two environments nothing is the same.
    by_name = session.head.suite.by_name
    in_turns = [
        entry
        for entry in entries
        if entry.in_turns and not session.is_elsewhere(by_name[entry.trial.case.kernel])
    ]
    session.build_ahead(in_turns)
    session.begin_ahead()
    pairs = tuple(entry.pair for entry in shared)
    if shared:
        session.open_ahead()
    session.stage("build")
    # A compiler that hangs or kills its process is reported by the case that needs it.
    with suppress(WorkerError):
        request = protocol.Inspect(pairs=pairs)
        reply = session.builder.ask(request, session.build_timeout_s(len(pairs)), session.heard)
        if not isinstance(reply, Failed):
            for entry in shared:
                _settle_built(session, entry, reply[entry.pair.id])
    session.builder.kill()
    session.wall_time.enter("judge")
    session.ahead.prepare(1)
    changes = ProblemChanges() if session.same_problem() else _problem_changes(session, entries)
    if in_turns:
        by_side = session.inspect_in_turns(tuple(entry.pair for entry in in_turns))
        if not isinstance(by_side, Failed):
            for entry in in_turns:
                _settle_built(session, entry, {side: by_side[side][entry.pair.id][side] for side in SIDES})
    return changes


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

    Head's kernels are held to both problems whatever is found: a problem that says one thing when it is asked
    may say another when it judges.
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
            # What hangs or raises may do so in every case, and each would take its time.
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
    """Return the cases by which a change of problem is found, and whether to compute their references too.

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


def verify_identical(session: PairSession, entries: Sequence[CaseEntry], changed: Collection[str]) -> None:
    """Verify identical code of changed dtypes: it was right by base's problem, and need not be by head's."""
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
    """Launch these cases of head; return by id why each failed, or what its outputs were held to.

    Cases of `by_base` dtypes are held to base's problem too. Base is at fault where its problem fails.
    """
    found: dict[str, Failed | Outputs | None] = {}
    if cases:
        session.leave()
    for name, case in cases.items():
        session.observer.started(name)
        # Code of head's that runs in the process has that process to itself.
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
