"""Judges stored comparisons again by the current rules, and compares the verdicts with known truths."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from harness.device.peaks import BeyondPeakError
from harness.errors import StoreError, UsageError
from harness.judgement.case_trial import CaseTrial, NoisePriors, Precision, Round, settle
from harness.judgement.gates import CanaryLevel, Gated, canary_level, gate, usual_level
from harness.judgement.judge import Policy
from harness.judgement.noise import Calibration, noise_apart, noise_of_card, noise_of_case, read_calibration
from harness.judgement.statistics.paired import MIN_QUADS, log_ratios, more_quads, readable
from harness.measure.quads import PairSettings, least_quads
from harness.records.record_files import PACKED, ComparisonResult
from harness.records.types import TWINS, CaseBlock, Comparison, PairedBlock, Verdict
from harness.run.compare import with_twins
from harness.run.compare_settings import JudgeSettings, pair_settings_for, policy_for
from harness.suite.case_id import in_short
from harness.suite.problem import Case
from harness.system.decoding import decode
from harness.system.files import UNREADABLE, read_regular


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgeSettings:
    """Settings of a new judgement. Limits are shares. None means the record's value, or the calibration's."""

    margin: float | None = None
    tolerance: float | None = None
    confidence: float | None = None
    calibration: Calibration | None = None
    uncalibrated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgedRecord:
    path: Path
    comparison: Comparison
    complete: bool
    """False for a comparison that was interrupted."""
    policy: Policy
    calibration: Calibration | None
    """Calibration used for the new verdicts; None if an assumption is used."""
    cases: tuple[Rejudged, ...]
    twins: tuple[Rejudged, ...] = ()
    labels: Mapping[str, Label] = dataclasses.field(default_factory=dict)
    interrupted: bool = False
    problem: str = ""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(case.now for case in self.cases)

    def said(self, case: Rejudged) -> str | None:
        """Return the earlier status; the label's if the record has none."""
        label = self.labels.get(case.now.case)
        return case.then.status if case.then else (label and label.said) or None


def rejudge_record(
    path: Path, stored: ComparisonResult, limits: RejudgeSettings, known: Labels
) -> RejudgedRecord:
    """Judge a record again.

    Raises StoreError for an unusable record, UsageError for limits that contradict each other.
    """
    comparison = stored.comparison
    if not stored.blocks and not stored.every_verdict:
        raise StoreError(
            f"{path} holds no quads and no verdict: the comparison ended before it measured anything. "
            "Leave the record out."
        )
    policy = _policy(path, stored, limits)
    calibration = limits.calibration
    if calibration is None and not limits.uncalibrated:
        calibration = read_calibration(path.parent)
    pair = pair_settings_for(comparison.device, policy)
    try:
        again = rejudge(stored, policy, _noise(stored, calibration), pair)
    except ArithmeticError as error:
        raise StoreError(
            f"{path} holds figures that no device has measured ({error}): it was edited or damaged. Leave "
            "the record out."
        ) from None
    twins = [case for case in again if case.now.case in TWINS]
    labels = known.get(_bare(path.name), {})
    cases = [case for case in again if case not in twins]
    names = [case.now.case for case in cases]
    stand = with_twins([case.now for case in cases], [twin.now for twin in twins])
    return RejudgedRecord(
        path=path,
        comparison=comparison,
        complete=not stored.interrupted,
        policy=policy,
        calibration=calibration,
        cases=tuple(dataclasses.replace(case, now=now) for case, now in zip(cases, stand, strict=True)),
        twins=tuple(twins),
        labels={name: labels[in_short(name)] for name in names if in_short(name) in labels},
    )


def _policy(path: Path, stored: ComparisonResult, limits: RejudgeSettings) -> Policy:
    """Return the requested limits, else the record's, else the device's defaults."""
    given: dict[str, Any] = {}
    for name in ("margin", "tolerance", "confidence"):
        if not (value := getattr(limits, name)):
            value = stored.comparison.settings.get(name)
            if value is not None and not (isinstance(value, float) and 0 < value < 1):
                raise StoreError(
                    f"{path} was judged by a {name} of {value!r}; expected a share between 0 and 1. "
                    f"Give another with --{name}."
                )
        if value:
            given[name] = value
    return policy_for(stored.comparison.device, JudgeSettings(**given))


def _noise(stored: ComparisonResult, calibration: Calibration | None) -> dict[str, NoisePriors]:
    """Return the noise of each case. A twin or planted slowdown has the noise of its original case."""
    device, suite = stored.comparison.device, stored.comparison.head.suite
    card = noise_of_card(calibration, device)
    cases = {block.case: block.case for block in stored.blocks}
    for verdict in stored.every_verdict:
        cases[verdict.case] = Case(suite, verdict.kernel, verdict.sizes, verdict.dtype).id
    apart = {block.case for block in stored.blocks if block.block.in_turns}
    return {
        name: noise_apart(device, calibration, case)
        if case in apart
        else noise_of_case(card, calibration, case)
        for name, case in cases.items()
    }


def read_labels(files: Sequence[Path]) -> dict[str, dict[str, Label]]:
    """Return the labels of cases, by file and case. Raises UsageError for a file that cannot be read."""
    known: dict[str, dict[str, Label]] = {}
    for file in files:
        try:
            labels = decode(read_regular(file), list[Label])
        except OSError as error:
            raise UsageError(f"Cannot read the labels in {file}: {error.strerror or error}.") from None
        except UNREADABLE as error:
            raise UsageError(
                f"{file} holds no labels ({error}); expected a list of objects with file, case, and as truth "
                "slower, same or faster."
            ) from None
        for label in labels:
            other = known.setdefault(_bare(label.file), {}).setdefault(in_short(label.case), label)
            if other.truth != label.truth:
                raise UsageError(
                    f"{file} says that {label.case} of {label.file} is {label.truth}, and another label that "
                    f"it is {other.truth}: keep the true one."
                )
    return known


def unmatched(known: Labels, judged: Iterable[RejudgedRecord]) -> str:
    """Return a sentence if labels name cases that were not judged; else ""."""
    every = {(_bare(record.path.name), in_short(case.now.case)) for record in judged for case in record.cases}
    labels = [label for of_record in known.values() for label in of_record.values()]
    astray = [label for label in labels if (_bare(label.file), in_short(label.case)) not in every]
    which = f", the first of {astray[0].case} in {astray[0].file}" if astray else ""
    return f"{len(astray)} of {len(labels)} labels are of no case that was judged{which}." if astray else ""


def _bare(name: str) -> str:
    """Return a record's name without the extension of packed ones."""
    return name.removesuffix(PACKED)


_ON_QUADS = ("regression", "improvement", "unchanged")
"""Statuses that need quads. Without quads they cannot be judged again."""


@dataclass(frozen=True, slots=True)
class Rejudged:
    """The recorded verdict of one case, and the new one."""

    then: Verdict | None
    """Recorded verdict; None if the comparison ended before it."""
    now: Verdict
    """The new verdict. Its device time covers only the blocks that were used."""
    blocks: int = 0
    """Number of blocks that were used."""
    then_gpu_s: float = 0.0
    """Device time of all measurements, in seconds."""

    @property
    def same(self) -> bool:
        return self.then is not None and self.then.status == self.now.status


Truth = Literal["slower", "same", "faster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The truth about a case, independent of its measurement."""

    file: str
    case: str
    truth: Truth
    said: str = ""
    """The status when it was measured; empty for the record's own."""


Labels = Mapping[str, Mapping[str, Label]]
"""Maps a record's name and a case's short id to the label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Numbers of statuses that agree with the known truth, and that do not."""

    changed: int = 0
    """Cases that are slower or faster: `found` if called so, `missed` if called unchanged or the contrary."""
    found: int = 0
    missed: int = 0
    same: int = 0
    """Cases that are neither: `unchanged` if called so, `false_alarms` if called slower or faster."""
    unchanged: int = 0
    false_alarms: int = 0
    undecided: int = 0
    """Cases of either kind without a decision."""


def score(known: Sequence[tuple[Truth, str]]) -> Score:
    counts: Counter[str] = Counter()
    for truth, status in known:
        said: Truth | None = _MEANS.get(status)
        total, right, wrong = (
            ("same", "unchanged", "false_alarms") if truth == "same" else ("changed", "found", "missed")
        )
        counts[total] += 1
        counts["undecided" if said is None else right if said == truth else wrong] += 1
    return Score(**counts)


_MEANS: Mapping[str, Truth] = {
    "regression": "slower",
    "improvement": "faster",
    "unchanged": "same",
    "identical": "same",
}


def rejudge(
    stored: ComparisonResult,
    policy: Policy,
    noise: Mapping[str, NoisePriors],
    pair: PairSettings | None = None,
) -> list[Rejudged]:
    """Judge every case again whose verdict depends on quads; the others stay. The order is the record's.

    `noise` is by case; `pair` gives today's number of quads, if not the GPU's.
    """
    said = {verdict.case: verdict for verdict in stored.every_verdict}
    # Earlier rules measured some cases twice in one process. Use the first measurement.
    blocks: dict[str, dict[int, CaseBlock]] = defaultdict(dict)
    spent: dict[str, float] = defaultdict(float)
    for each in stored.blocks:
        blocks[each.case].setdefault(each.process, each)
        spent[each.case] += each.block.gpu_s
    cases = {}
    for name in dict.fromkeys((*said, *blocks)):
        of_case = list(blocks[name].values())
        then = said.get(name)
        # The verdict of a removed case, or of one that failed in a process, needs no quads.
        failed = then is not None and (then.status == "failed" or then.reason == BeyondPeakError.reason)
        if then is None or then.status in _ON_QUADS or (of_case and not failed):
            trial = CaseTrial(name, _case(name, then), policy, noise[name])
            if then:
                trial.settings_changed, trial.outputs = then.settings_changed, then.outputs
                sides = {"base": then.base, "head": then.head}
                trial.launches = {side: arm.launches for side, arm in sides.items() if arm}
            cases[name] = _Replay(trial, of_case, pair or PairSettings())
    trials = [case.trial for case in cases.values()]
    levels: list[CanaryLevel] = []
    while sum(case.turn(levels) for case in cases.values()):
        settle(trials, policy)
    judged = {}
    for name, case in cases.items():
        looked_at = len(case.trial.rounds) + len(case.trial.again)
        then, now = said.get(name), case.trial.verdict()
        if then and now.status == then.status:  # a cause explains the verdict that it was found for
            now = dataclasses.replace(now, diagnosis=then.diagnosis)
        judged[name] = Rejudged(then, now, looked_at, spent[name])
    as_it_was = {name: Rejudged(then, then, 0, spent[name]) for name, then in said.items()}
    return list({**as_it_was, **judged}.values())


class _Replay:
    """Replays one case with its recorded processes."""

    def __init__(self, trial: CaseTrial, blocks: Sequence[CaseBlock], pair: PairSettings) -> None:
        self.trial, self.left, self.pair = trial, list(blocks), pair
        self.whole: dict[bool, list[PairedBlock]] = {False: [], True: []}
        """The blocks that were used, with all their quads, by whether they confirm."""
        self.stretched: set[bool] = set()

    def turn(self, levels: list[CanaryLevel]) -> bool:
        """Add one recorded process to the trial. Return False if the trial needs none, or none is left."""
        trial = self.trial
        if trial.settled:
            return False
        stage = trial.confirming
        # To confirm, use a process that was measured to confirm, while there is one.
        fitting = [place for place, each in enumerate(self.left) if each.confirming == stage]
        if not fitting and self._stretched(levels):
            return True
        if not self.left:
            trial.interrupt("record-ends")
            return False
        block = self.left.pop(fitting[0] if fitting else 0).block
        self.whole[stage].append(block)
        block = shortened(block, trial.precision, self.pair)
        gated = _gated(block, levels)
        if not block.in_turns:
            levels.append(canary_level(block.quads))
        trial.add(block, gated)
        return True

    def _stretched(self, levels: list[CanaryLevel]) -> bool:
        """Judge once with all quads of a stage that has no more processes; False if there are too few.

        What counts at a look is the precision. One process alone flags nothing, but may confirm.
        """
        trial, stage = self.trial, self.trial.confirming
        if stage in self.stretched:
            return False
        self.stretched.add(stage)
        whole = [Round.of(block, _gated(block, levels)) for block in self.whole[stage]]
        if sum(each.all.time is not None for each in whole) < (1 if stage else 2):
            return False
        (trial.again if stage else trial.rounds)[:] = whole
        trial.look(last=True)
        status = trial.judgement and trial.judgement.status
        unconfirmed = stage and status != "same" and trial.p_value > trial.policy.confirm
        if status == "undecided" or unconfirmed:
            # a real comparison would have measured more
            trial.stopped_by, trial.confirmed = "record-ends", None
        return True


def _gated(block: PairedBlock, levels: Sequence[CanaryLevel]) -> Gated:
    # Sides in separate processes have separate canaries, as in a comparison.
    return gate(block, usual=None if block.in_turns else usual_level(levels))


def shortened(block: PairedBlock, precision: Precision, pair: PairSettings) -> PairedBlock:
    """Return the block cut where today's rules would have ended it."""
    if not block.quads:
        return block
    count, most = 0, min(len(block.quads), pair.max_quads)
    pair = dataclasses.replace(pair, min_quads=max(pair.min_quads, precision.min_quads))
    slot_ns = block.launches_per_slot * median(time_ns for quad in block.quads for time_ns in quad.times_ns)
    least = max(least_quads(pair, slot_ns), MIN_QUADS)
    while count < most:
        quads = [quad for quad in block.quads[:count] if readable(quad.times_ns)]
        ratios = log_ratios([q.order for q in quads], [q.times_ns for q in quads]) if quads else ()
        wanted = more_quads(ratios, precision.standard_error, at_least=least, at_most=most)
        if wanted <= count:
            break
        count = wanted
        if (block.quads[count - 1].ended_ns - block.quads[0].started_ns) / 1e9 > pair.max_time_s:
            break
    if count == len(block.quads):
        return block
    return dataclasses.replace(block, quads=block.quads[:count], gpu_s=block.gpu_s * count / len(block.quads))


def _case(name: str, said: Verdict | None) -> Case:
    suite, _, rest = name.partition(".")
    if said is None:
        return Case(suite, rest.partition("[")[0], {})
    return Case(suite, said.kernel, said.sizes, said.dtype)
