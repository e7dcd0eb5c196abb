"""Judges saved pytest-benchmark files of two commits whose processes alternated. Pure.

Rounds within a process do not show how much processes differ, so a process counts once. A base process and
the head process next to it in time make a pair. The judged value is the log ratio of their times.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import fmean, median

import numpy as np
import scipy  # its parts load when they are used

from harness.errors import UsageError
from harness.judgement.attribution import attribute
from harness.judgement.identities import other_machine, without_time
from harness.judgement.judge import Judgement, MetricEffects, Policy, Status, judge, policy_of
from harness.judgement.statistics.moderated import Prior
from harness.judgement.statistics.paired import TRIM, ProcessEffect, process_effect, trimmed_mean
from harness.judgement.statistics.summary import MAD_SCALE
from harness.numbers import clock, percent, seconds
from harness.records.imports.identity import Identity, reported_differences
from harness.records.imports.pytest_benchmark_files import Benchmark, BenchmarkFile, Untimed
from harness.records.types import Arm, Verdict, VerdictStatus
from harness.suite.planning import Refusal

MIN_PAIRS = 4
"""Fewest pairs.

On a machine that is slow a third of the time, all pairs can agree by chance. That gives a false alarm in one
comparison of 90 with three pairs, of 400 with four, and of some thousands with eight.
"""
ROBUST_PAIRS = 8
"""Number of pairs from which a fifth is left out at each end. On a shared machine a burst of other work
disturbs one process in twenty, and eight pairs seldom escape it."""
NO_PRIOR = Prior(variance=0.01**2, df=0.1)
"""Prior for an unknown machine, with almost no weight.

A heavier prior would cause false alarms on machines with a larger spread. The prior matters only if pairs
agree to the timer's last tick, which proves little.
"""
FLOOR = 0.0005
"""Smallest standard error of a trimmed mean. Pairs that agree to a timer's last tick prove little."""
MOST_PAIRS = 64
"""Most pairs that a message suggests."""
_CLOCKS_APART = 0.015
"""Relative difference of the sides' SM clocks that counts: at least two steps of an unlocked clock."""
_DRIFT_P = 0.05
_OVERLAP_S = 1.0
"""Overlap of two processes, in seconds, that a clock adjustment can explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSide:
    """The files of base or of head in order of time. `commit` is None unless all files name one commit."""

    commit: str | None
    dirty: bool
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesResult:
    base: FilesSide
    head: FilesSide
    pairs: int
    device: str
    harness: str
    """The harness that wrote the files, such as pytest-benchmark."""
    policy: Policy
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    """Sentences to show beside the verdicts."""
    interrupted: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _SavedRun:
    """A process, and its position in time among all processes."""

    side: str
    place: int
    file: BenchmarkFile


@dataclass(frozen=True, slots=True)
class _Turns:
    """All processes of a comparison, by side."""

    base: tuple[_SavedRun, ...]
    head: tuple[_SavedRun, ...]

    @property
    def sides(self) -> tuple[tuple[_SavedRun, ...], tuple[_SavedRun, ...]]:
        return self.base, self.head

    @property
    def in_time(self) -> list[_SavedRun]:
        return sorted((*self.base, *self.head), key=lambda run: run.place)

    @property
    def identities(self) -> tuple[list[Identity], list[Identity]]:
        base, head = ([run.file.identity for run in runs] for runs in self.sides)
        return base, head


def policy_for(
    margin: float | None, tolerance: float | None, confidence: float, *, on_gpu: bool, pairs: int
) -> Policy:
    """Return a policy with these limits, or with defaults for processes that run one after another.

    All limits are shares. Raises UsageError for limits that contradict each other.
    """
    return policy_of(
        (0.01, 0.05) if on_gpu else (0.02, 0.1),
        margin,
        tolerance,
        confidence=confidence,
        flag=1 - confidence,  # There is no second stage.
        looks=(max(pairs, 1),),
        spending=(1.0,),
        same_spending=(1.0,),
    )


def judge_files(
    base: Sequence[BenchmarkFile],
    head: Sequence[BenchmarkFile],
    *,
    margin: float | None = None,
    tolerance: float | None = None,
    confidence: float = 0.999,
) -> FilesResult:
    """Return a verdict for every benchmark of any file. Base's i-th process is paired with head's i-th.

    It fails closed: a benchmark without sufficient data on either side is invalid or inconclusive. Raises
    UsageError for a side without files, a duplicate process, or contradictory limits.
    """
    files = sorted(
        [*(("base", each) for each in base), *(("head", each) for each in head)],
        key=lambda file: file[1].saved_at,
    )
    runs = [_SavedRun(side, place, file) for place, (side, file) in enumerate(files)]
    turns = _Turns(*(tuple(run for run in runs if run.side == side) for side in ("base", "head")))
    _check_given(turns)
    pairs, on_gpu = min(map(len, turns.sides)), all(run.file.on_gpu for run in runs)
    policy = policy_for(margin, tolerance, confidence, on_gpu=on_gpu, pairs=pairs)
    refusals = [found for check in _CHECKS if (found := check(turns))]
    everything = [run.file for run in (*turns.head, *turns.base)]
    timed = dict.fromkeys(name for file in everything for name in file.benchmarks)
    untimed = dict.fromkeys(name for file in everything for name in file.untimed)
    failed = {name for file in everything for name, why in file.untimed.items() if not why.skipped}
    skipped = [name for name in untimed if name not in timed and name not in failed]
    names = [name for name in {**timed, **untimed} if name not in skipped]
    return FilesResult(
        base=_side(turns.base),
        head=_side(turns.head),
        pairs=policy.looks[0],
        device=runs[0].file.device,
        harness=runs[0].file.harness,
        policy=policy,
        verdicts=tuple(_verdict(name, turns, refusals, policy) for name in names),
        notes=_notes(turns, skipped),
    )


def judge_pairs(log_ratios: Sequence[float], policy: Policy) -> Judgement:
    """Judge the log ratios of pairs of processes, head over base, at a single look.

    Few pairs are judged by Student's t of all pairs. From ROBUST_PAIRS on it is the t of the trimmed mean
    (Tukey and McLaughlin). That test is slightly liberal in the far tail: of code at the margin it calls up
    to 1.5 in a thousand slower, where 1 is promised (scripts/bench_stock.py).
    """
    if len(log_ratios) < ROBUST_PAIRS:
        # The scatter within a process does not show how much processes differ.
        effects = tuple(ProcessEffect(each, 0.0, 1, 0) for each in log_ratios)
        return judge([MetricEffects("time", effects, NO_PRIOR)], policy, 0)
    effect = process_effect(log_ratios)
    return judge([MetricEffects("time", (effect,), Prior(variance=FLOOR**2, df=effect.df))], policy, 0)


def _check_given(turns: _Turns) -> None:
    for side, runs in zip(("base", "head"), turns.sides, strict=True):
        if not runs:
            raise UsageError(f"No file of {side}: there is nothing to compare.")
    for one, other in pairwise(run.file for run in turns.in_time):
        if one.saved_at == other.saved_at:
            raise UsageError(
                f"{one.path} and {other.path} were saved at the same instant, {one.saved_at.isoformat()}: "
                "they are one process, which counts once."
            )


# Checks of all files together


def _other_machine(turns: _Turns) -> Refusal | None:
    return other_machine(*turns.identities)


def _mixed_commits(turns: _Turns) -> Refusal | None:
    for first, *rest in turns.sides:
        for run in rest:
            one, other = first.file.identity, run.file.identity
            if (one.commit, one.dirty) != (other.commit, other.dirty):
                return Refusal(
                    "mixed-commits",
                    f"The files of {run.side} are not of one commit: {first.file.path} is of "
                    f"{_commit(first.file)} and {run.file.path} of {_commit(run.file)}.",
                )
    return None


def _not_alternated(turns: _Turns) -> Refusal | None:
    """Return a refusal if base and head did not alternate, because drift would look like a change."""
    sides = [run.side for run in turns.in_time]
    if len(sides) % 2 == 0 and all(sides[place] != sides[place + 1] for place in range(0, len(sides) - 1, 2)):
        return None
    order = ", ".join(f"{len(list(same))} of {side}" for side, same in groupby(sides))
    return Refusal(
        "not-alternated",
        f"Base and head were not measured alternately: in order of time there are {order}. A drift "
        "would look like a change. Save one file of each, then again, as many of base as of head.",
    )


def _overlapping(turns: _Turns) -> Refusal | None:
    for one, other in pairwise(turns.in_time):
        early_s = (one.file.saved_at - other.file.began_at).total_seconds()
        if early_s > _OVERLAP_S:
            return Refusal(
                "overlapping",
                f"Two processes ran at once: {other.file.path} began {seconds(early_s)} or more "
                f"before {one.file.path} was saved. They disturbed each other; run one after the other.",
            )
    return None


_CHECKS = (_other_machine, _mixed_commits, _not_alternated, _overlapping)


# Checks of one benchmark


def _verdict(name: str, turns: _Turns, refusals: Sequence[Refusal], policy: Policy) -> Verdict:
    base, head = (
        [run.file.benchmarks[name] for run in runs if name in run.file.benchmarks] for runs in turns.sides
    )
    why_base, why_head = (_untimed(name, runs) for runs in turns.sides)
    silent, total = sum(each.extra.sm_clock_mhz is None for each in (*base, *head)), len(base) + len(head)
    known: list[Benchmark | Untimed] = [*head, *base, *filter(None, (why_head, why_base))]
    bare = Verdict(
        case=name,
        kernel=known[0].name,
        sizes={},
        dtype="",
        status="missing",
        reason="only-in-base",
        message="Only base has it.",
        unavailable={"sm-clock": f"{silent} of {total} files do not tell it"} if silent else {},
    )
    if not head:
        return _absent_at_head(bare, why_base if not base else None, why_head)
    pairs, own = policy.looks[0], _measured_apart(base, head)
    if refusals or (own and pairs < MIN_PAIRS):
        told = sorted(filter(None, (own, *refusals)), key=lambda refusal: refusal.reason != "other-machine")
        message = " ".join(refusal.message for refusal in told)
        return replace(bare, status="invalid", reason=told[0].reason, message=message)
    if pairs < MIN_PAIRS:
        message = (
            f"{pairs} pair{'s' if pairs > 1 else ''} of processes: so few can agree by chance. Save at "
            f"least {MIN_PAIRS} files of each commit, in turns; {ROBUST_PAIRS} see far more."
        )
        if turns.base[0].file.harness != "pytest-benchmark":
            message += " 'harness compare BASE HEAD --with-command COMMAND' runs both in turns by itself."
        return replace(bare, status="inconclusive", reason="too-few-pairs", message=message)
    if absent := _absent_somewhere(name, turns):
        return replace(bare, status="invalid", reason="incomplete", message=absent)
    if not base:
        new = replace(bare, status="new", reason="only-in-head", message="Only head has it.")
        return without_time(bare, why_base.why, "base", skipped=why_base.skipped) if why_base else new
    return _compared(bare, base, head, turns, policy)


def _absent_at_head(bare: Verdict, why_base: Untimed | None, why_head: Untimed | None) -> Verdict:
    """Return the verdict of a benchmark without a time at head. If it fails at base too, head is not to
    blame.
    """
    if why_base and not why_base.skipped:
        return without_time(bare, why_base.why, "base", skipped=False)
    return without_time(bare, why_head.why, "head", skipped=why_head.skipped) if why_head else bare


def _untimed(name: str, runs: Sequence[_SavedRun]) -> Untimed | None:
    """Return why a side has no time of a benchmark. A failure has priority over a skip."""
    found = [run.file.untimed[name] for run in runs if name in run.file.untimed]
    return next((each for each in found if not each.skipped), found[0] if found else None)


def _absent_somewhere(name: str, turns: _Turns) -> str:
    for runs in turns.sides:
        without = [run for run in runs if name not in run.file.benchmarks]
        if without and len(without) < len(runs):
            why = _untimed(name, without)
            cause = f"it says {why.why!r}" if why else "it failed there, or was not chosen"
            return (
                f"{len(without)} of {len(runs)} files of {runs[0].side} do not have it, such as "
                f"{without[0].file.path}: {cause}. A benchmark that sometimes fails "
                "cannot be judged by the times when it does not."
            )
    return ""


def _notes(turns: _Turns, skipped: Sequence[str]) -> tuple[str, ...]:
    """Return sentences on differences, benchmarks that both sides skip, reruns and other cautions."""
    notes = [f"Differs between base and head: {each}." for each in reported_differences(*turns.identities)]
    for name in skipped:
        why = _untimed(name, turns.in_time)
        notes.append(f"{name} is left out, as base and head skip it: {why.why if why else ''}")
    again = Counter(name for run in turns.in_time for name in run.file.rerun)
    notes += [
        f"{name} ran more than once in {files} of {len(turns.in_time)} files: the last run counts."
        for name, files in again.items()
    ]
    notes += dict.fromkeys(note for run in turns.in_time for note in run.file.notes)
    for (fact, value), caution in _CAUTIONS.items():
        if {each.machine.get(fact) for side in turns.identities for each in side} == {value}:
            notes.append(f"{fact} is {value} in all files: {caution}.")
    return tuple(notes)


_CAUTIONS: Mapping[tuple[str, str], str] = {
    ("library_build_type", "debug"): "times of a release build may differ by another amount",
    ("cpu_scaling_enabled", "true"): "the processor's clock may move between processes",
}
"""Facts that Google Benchmark warns about, with the reason."""


def _compared(
    bare: Verdict, base: Sequence[Benchmark], head: Sequence[Benchmark], turns: _Turns, policy: Policy
) -> Verdict:
    everything = [*base, *head]
    raw = all(each.times_ns for each in everything)
    base_ns, head_ns = ([_time_ns(each, raw=raw) for each in side] for side in (base, head))
    pairs_ns = list(zip(base_ns, head_ns, strict=True))
    ratios = [math.log(after_ns / before_ns) for before_ns, after_ns in pairs_ns]
    judgement = judge_pairs(ratios, policy)
    estimate, effects = judgement.estimates["time"], tuple(math.expm1(each) for each in ratios)
    base_mhz, head_mhz = (_middle([each.extra.sm_clock_mhz for each in side]) for side in (base, head))
    status, reason = _OUTCOMES[judgement.status]
    message = ""
    if refusal := _measured_apart(base, head) or _drift(pairs_ns, turns, policy):
        status, reason, message = "invalid", refusal.reason, refusal.message
    elif status == "inconclusive":
        message = f"{_two_states([*base_ns, *head_ns], policy)} {_what_would_help(ratios, policy)}".strip()
    verdict = replace(
        bare,
        status=status,
        reason=reason,
        message=message,
        time=replace(estimate, processes=len(ratios), quads=0, process_effects=effects),
        smallest_visible=judgement.smallest_visible,
        base=Arm(time_ns=median(base_ns), sm_clock_mhz=base_mhz),
        head=Arm(time_ns=median(head_ns), sm_clock_mhz=head_mhz),
        temperature_c=_middle([each.extra.temperature_c for each in everything]),
        power_w=_middle([each.extra.power_w for each in everything]),
    )
    if base_mhz is None or head_mhz is None:
        return verdict  # Without the card's clocks there is no attribution.
    verdict = replace(verdict, attribution=attribute(verdict))
    if verdict.attribution != "clocks" or status == "invalid":
        return verdict
    apart = _at_other_clocks(base_mhz, head_mhz)
    return replace(verdict, status="invalid", reason=apart.reason, message=apart.message)


_OUTCOMES: Mapping[Status, tuple[VerdictStatus, str]] = {
    "slower": ("regression", "slower-in-time"),
    "faster": ("improvement", "faster-in-time"),
    "same": ("unchanged", "within-tolerance"),
    "undecided": ("inconclusive", "too-noisy"),
}


def _time_ns(benchmark: Benchmark, *, raw: bool) -> float:
    """Return a process's time: the 20 % trimmed mean of its rounds if all files have them, else their median.

    If the timer's ticks are coarse, the median stays on one tick; the mean does not.
    """
    return trimmed_mean(benchmark.times_ns) if raw else benchmark.median_ns


def _measured_apart(base: Sequence[Benchmark], head: Sequence[Benchmark]) -> Refusal | None:
    """Refuse to compare times of another timer, another card or another clock."""
    base_mhz, head_mhz = (_middle([each.extra.sm_clock_mhz for each in side]) for side in (base, head))
    return _measured_otherwise([*base, *head]) or _clocks_apart(base_mhz, head_mhz)


def _measured_otherwise(everything: Sequence[Benchmark]) -> Refusal | None:
    timers = dict.fromkeys(each.timer for each in everything)
    if len(timers) > 1:
        named = " and ".join(map(_short, timers))
        return Refusal("other-timer", f"Not all files were timed by the same clock: {named}.")
    for what in ("device", "uuid", "driver"):
        values = dict.fromkeys(getattr(each.extra, what) or "nothing" for each in everything)
        if len(values) > 1:
            named = " and ".join(map(_short, values))
            return Refusal("other-machine", f"Not all files are of one device: its {what} is {named}.")
    return None


def _clocks_apart(base: float | None, head: float | None) -> Refusal | None:
    if not base or not head or abs(math.log(head / base)) <= _CLOCKS_APART:
        return None
    return _at_other_clocks(base, head)


def _at_other_clocks(base_mhz: float, head_mhz: float) -> Refusal:
    return Refusal(
        "sm-clock",
        f"The card ran base at {clock(base_mhz)} MHz and head at {clock(head_mhz)} MHz, so times do not tell "
        "what the code did. 'harness compare' measures both at one clock.",
    )


def _drift(pairs_ns: Sequence[tuple[float, float]], turns: _Turns, policy: Policy) -> Refusal | None:
    """Refuse times that drifted steadily, if one side came first too often for the drift to cancel.

    The slope is fitted to the mean logarithm of each pair, which is independent of the ratio if both sides
    are equally noisy. It counts if it alone would make half of the margin and is significant (two-sided t
    test at 0.05).
    """
    pairs = list(zip(turns.base, turns.head, strict=True))
    ahead = fmean(head.place - base.place for base, head in pairs)
    places = np.array([(base.place + head.place) / 2 for base, head in pairs])
    places -= places.mean()
    levels = np.array([(math.log(base_ns) + math.log(head_ns)) / 2 for base_ns, head_ns in pairs_ns])
    levels -= levels.mean()
    squares = float(places @ places)
    slope = float(places @ levels) / squares
    bias = slope * ahead
    if abs(bias) <= math.log1p(policy.margin) / 2:
        return None
    left = levels - slope * places
    df = len(pairs) - 2
    error = math.sqrt(float(left @ left) / df / squares)
    if error > 0 and 2 * float(scipy.special.stdtr(df, -abs(slope) / error)) >= _DRIFT_P:
        return None
    return Refusal(
        "drift",
        f"Times moved by {percent(math.expm1(slope), sign=True)} from each process to the next, and "
        f"{'base' if ahead > 0 else 'head'} mostly ran first: that alone looks like a change of "
        f"{percent(math.expm1(bias), sign=True)}. Swap the order every other time: base head, head base.",
    )


def _two_states(times_ns: Sequence[float], policy: Policy) -> str:
    """Return a sentence if times fall into two distant groups. More processes hardly help then."""
    logs = sorted(map(math.log, times_ns))
    gaps = [after - before for before, after in pairwise(logs)]
    widest = max(range(len(gaps)), key=gaps.__getitem__)
    within = (logs[widest] - logs[0]) + (logs[-1] - logs[widest + 1])
    alone = min(widest + 1, len(logs) - widest - 1) < 2
    if alone or gaps[widest] <= max(3 * within, math.log1p(policy.margin)):
        return ""
    return (
        f"Processes fall into two groups {percent(math.expm1(gaps[widest]))} apart: something has two "
        "states, such as the clock, or the addresses of code and data."
    )


def _what_would_help(ratios: Sequence[float], policy: Policy) -> str:
    """Return how many pairs would settle it with a probability of 0.9, at this effect and noise."""
    middle = median(ratios)
    beyond = abs(middle) - math.log1p(policy.margin)
    reach = max(beyond, math.log1p(policy.tolerance) - abs(middle))
    for pairs in range(max(len(ratios) + 1, ROBUST_PAIRS), MOST_PAIRS + 1):
        kept = pairs - 2 * int(TRIM * pairs)
        quantiles = scipy.special.stdtrit(kept - 1, [1 - policy.confidence, 0.1])
        if -float(quantiles.sum()) * _spread(ratios) / math.sqrt(kept) <= reach:
            return f"About {pairs} pairs would settle it, were they like these."
    return f"Not even {MOST_PAIRS} pairs like these would settle it: quieten the machine, or allow more."


def _spread(ratios: Sequence[float]) -> float:
    """Return the standard deviation of a pair, without outliers."""
    if len(ratios) < ROBUST_PAIRS:
        middle = median(ratios)
        return MAD_SCALE * median(abs(ratio - middle) for ratio in ratios)
    return process_effect(ratios).standard_error * math.sqrt(len(ratios) - 2 * int(TRIM * len(ratios)))


# Wording and numbers


def _side(runs: Sequence[_SavedRun]) -> FilesSide:
    commits = {run.file.identity.commit for run in runs}
    return FilesSide(
        commit=commits.pop() if len(commits) == 1 else None,
        dirty=any(run.file.identity.dirty for run in runs),
        files=tuple(run.file.path for run in runs),
    )


def _commit(file: BenchmarkFile) -> str:
    identity = file.identity
    return (identity.commit or "no commit")[:10] + (" with changes" if identity.dirty else "")


def _short(value: str) -> str:
    return value if len(value) <= 80 else f"{value[:77]}..."


def _middle(values: Sequence[float | None]) -> float | None:
    """Return the median; None if a value is not known."""
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None
