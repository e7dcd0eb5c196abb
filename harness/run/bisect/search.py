"""Finds the commits between two that made a case slower or faster.

Commits are compared with the good commit. Commits after a found step are compared with a commit between that
step and the next. A suspect is compared with the commit right before it, unless earlier comparisons prove its
step. `harness.judgement.statistics.bisection` chooses the pairs and weighs the answers.
`harness.run.bisect.commit_pairs` compares the pairs.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, Protocol

import numpy as np

import harness
from harness.device.machine import machine_name
from harness.errors import MeasureError, NoSuiteError, SuiteError, UsageError
from harness.judgement.statistics import bisection
from harness.judgement.statistics.bisection import Answer, Beliefs, Block, Pair, SoughtStep
from harness.numbers import percent
from harness.records.types import DeviceInfo, Effect, Verdict
from harness.run.bisect.commit_pairs import WITHOUT, PairDevices, PairJournal, PairResult, Question
from harness.run.compare_settings import CompareSettings
from harness.run.pair_session import CompareObserver
from harness.suite.case_id import CaseId
from harness.suite.loader import WORKING_TREE, LoadedSuite
from harness.suite.suite_files import files_outside, include_folders
from harness.system import git
from harness.system.cache import export_root
from harness.system.git import Commit
from harness.system.process import Failed

_WIDEST = 0.6
"""Largest tolerance. A case that is several times slower needs no larger one."""
_WITHOUT = (*WITHOUT.values(), NoSuiteError.reason)
_OF_SUITES = (*_WITHOUT, SuiteError.reason)
_SUITE_FROM = (
    "Where its kernel is there, --suite-from HEAD measures it by a later suite.py; or name a later commit."
)
_MOST_ANSWERS = 4
"""Answers allowed per doubling of the number of commits: four times the number for clear answers."""
_CLEAR = 0.99
"""Probability from which a commit is called good or bad."""
_PART = 1 / 6
"""Least distance from both ends, in whole changes, of a commit that has a part of the change."""
_OTHERS = 0.3
"""Probability of another step from which a compared pair is compared again."""
_DOUBTED = 1 / 20
"""Least standard deviation among explanations of a pair, in whole changes, from which it is
compared again."""
_MOST_SURE = 0.9999
"""Largest probability that a user sees."""


class BisectObserver(CompareObserver, Protocol):
    def asking(self, against: Commit, commit: Commit) -> None: ...
    def looked(self, looked: Looked, suspects: int) -> None:
        """Report a commit's result, and the number of remaining suspects."""


Side = Literal["good", "part", "bad", "unsure", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The result for a commit, from its comparison with an earlier commit."""

    position: int
    commit: Commit
    against: Commit
    side: Side
    """Share of the change between the two commits: bad above half, part if clearly neither none nor all."""
    effect: Effect | None = None
    reason: str = ""
    message: str = ""
    same_as: str = ""
    """A commit with the same code, so that nothing was measured."""
    remembered: bool = False
    """True if an earlier bisection measured it."""
    derived: bool = False
    """True if nothing was measured, because comparisons with GOOD imply the result."""
    gpu_s: float = 0.0


Outcome = Literal["found", "range", "creep", "nothing", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStep:
    """A step, and the commits that may have made it."""

    suspects: tuple[Commit, ...]
    sure: float
    """Probability that at least one of the suspects made a step."""
    change: float
    """Estimated change, as a share."""
    comparison: Looked | None
    """Comparison of the last suspect with the commit right before the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectResult:
    case: str
    good: Commit
    bad: Commit
    commits: int
    """Number of commits after good, up to bad."""
    touching: int
    """Number of these commits that change a file which the suite's build may read."""
    devices: tuple[DeviceInfo, ...]
    outcome: Outcome
    ends: Looked | None
    """Comparison of bad with good; None if it was interrupted."""
    ruler: Literal["time", "cycles"] = "time"
    """Metric of the effects."""
    sure: float = 0.0
    """Probability of the outcome: of the least certain step, or of the creep."""
    others: float = 0.0
    """Probability that another commit made a step of at least a sixth of the change."""
    largest_share: float | None = None
    """Largest possible share of one commit in the change; only for a creep."""
    confidence: float
    """Confidence of each interval."""
    steps: tuple[FoundStep, ...] = ()
    """Steps that explain the change, in order of their commits; none for a creep."""
    looked: tuple[Looked, ...] = ()
    """All comparisons, in order of their commits."""
    comparisons: int = 0
    """Number of comparisons measured in this bisection."""
    gpu_s: float = 0.0
    notes: tuple[str, ...] = ()
    problem: str = ""
    interrupted: bool = False

    @property
    def suspects(self) -> tuple[Commit, ...]:
        return tuple(commit for step in self.steps for commit in step.suspects)


def _logarithms(effect: Effect) -> tuple[float, float, float]:
    return math.log1p(effect.effect), math.log1p(effect.low), math.log1p(effect.high)


def _limits_of(settings: CompareSettings) -> str:
    return f"{settings.margin} {settings.tolerance} {settings.confidence}"


# Commits


def line_of(repository: Path, good: str, bad: str) -> list[Commit]:
    """Return the commits from `good` to `bad`, by full hash, along first parents. Raises UsageError."""
    if good == bad:
        raise UsageError(f"GOOD and BAD are one commit, {good[:10]}: there is nothing between them.")
    whole = git.first_parents(repository, bad)
    for at, commit in enumerate(whole):
        if commit.hash == good:
            return whole[at:]
    base = git.merge_base(repository, good, bad)
    if base == bad:
        raise UsageError(
            f"BAD, {bad[:10]}, comes before GOOD, {good[:10]}: name the older commit first. The "
            "search finds whether it became slower or faster."
        )
    if base == good:
        raise UsageError(
            f"GOOD, {good[:10]}, came into BAD, {bad[:10]}, by a merge, and what is searched is the line of "
            f"first parents: name a commit of 'git log --first-parent {bad[:10]}'."
        )
    raise UsageError(
        f"GOOD, {good[:10]}, is no ancestor of BAD, {bad[:10]}: they part at {base[:10]}. Name that as GOOD, "
        f"if 'harness compare {base[:10]} {good[:10]}' finds no change."
    )


def touching(repository: Path, line: Sequence[Commit], suites: Sequence[LoadedSuite]) -> frozenset[int]:
    """Return the positions of commits that change a file which a build of the suite may read.

    Both ends define these files: the suite's folder, and files that its sources include from elsewhere. If no
    commit changes them, return all commits. A file that only commits in between use is missed, and so are
    files that Python code reads elsewhere. The comparison of a suspect with its parent reveals that.
    """
    if git.has(repository, line[-1].hash, ".gitmodules"):
        return frozenset(range(1, len(line)))  # git does not look into submodules
    paths: dict[str, None] = {}
    for loaded in suites:
        suite, top = loaded.suite, export_root(loaded.suite.root)
        folders = (Path(name) for kernel in suite.kernels for name in include_folders(suite, kernel))
        for path in (suite.root, *folders, *files_outside(suite)):
            if top and path.is_relative_to(top):
                paths[path.relative_to(top).as_posix()] = None
    changed = git.changing(repository, line[0].hash, line[-1].hash, *paths)
    found = frozenset(at for at, commit in enumerate(line) if at and commit.hash in changed)
    return found or frozenset(range(1, len(line)))


# The search


class Bisecting:
    """The search for a case's change between a good and a bad commit. `touching` holds the positions worth
    measuring.

    The ends are compared by `settings`. Commits between them are judged by the difference of the ends. All
    commits are measured by the suite.py of `suite_from`, a full hash or WORKING_TREE. With `fresh`, results
    of earlier bisections are measured again. Raises StoreError if the journal is not writable.
    """

    def __init__(
        self,
        case: CaseId,
        line: Sequence[Commit],
        touching: Collection[int],
        devices: PairDevices,
        settings: CompareSettings,
        observer: BisectObserver,
        *,
        suite_from: str | None = None,
        fresh: bool = False,
    ) -> None:
        self.case, self.line, self.observer = case, line, observer
        self.devices, self._compare = devices.devices, devices.ask
        self.settings, self._from = settings, suite_from or ""
        if self._from == WORKING_TREE:
            self._from = secrets.token_hex(8)  # it may have changed by the next bisection
        self.last = len(line) - 1
        self._touching = frozenset(touching)
        self._candidates = {0, *touching, self.last}
        """Positions worth measuring: commits that change a relevant file, and new suspects."""
        self._broken: dict[int, Looked] = {}
        self._codes: dict[int, frozenset[str]] = {}
        self._answers: list[Answer] = []
        self._asked: Counter[Pair] = Counter()
        self._looked: dict[Pair, Looked] = {}
        self._prior = np.array([1.0 if at in touching else bisection.UNLIKELY for at in range(1, len(line))])
        self._whole = 0.0
        """Logarithm of bad over good; 0 if they do not differ or are not yet compared."""
        self._size = 0.0
        """Logarithm of the size of the step being searched for."""
        self._metric: Literal["time", "cycles"] = "time"
        self._reach = NormalDist().inv_cdf((1 + settings.confidence) / 2)
        self._comparisons, self._gpu_s = 0, 0.0
        results, device, compiler = settings.results, self.devices[0], devices.toolchain.compiler
        folder = results / machine_name(device) / "bisects" if results and settings.save else None
        context = f"{harness.__version__}, driver {device.driver}, {compiler}, L2 {settings.l2}"
        self._journal = PairJournal(folder, case, context, fresh=fresh)

    def run(self) -> BisectResult:
        """Compare the ends, and the commits between them if the ends differ.

        Raises UsageError if an end lacks the case, MeasureError if the ends cannot be compared. An interrupt
        ends the search early: results are kept, and the next search continues from there.
        """
        interrupted, problem = False, ""
        try:
            self._look([self._ends])
            if self._whole:
                self._search()
        except KeyboardInterrupt:
            interrupted = True
        except MeasureError as error:
            if not self._whole:
                raise
            problem = error.message  # a lost device
        finally:
            self._journal.close()
        return self._result(interrupted=interrupted, problem=problem or self._journal.problem)

    @property
    def _ends(self) -> Pair:
        return 0, self.last

    def _search(self) -> None:
        most = _MOST_ANSWERS * (self.last.bit_length() + 1)
        budget_s = math.inf if self.settings.budget_s is None else self.settings.budget_s
        while self._asked.total() <= most and self._gpu_s < budget_s:
            pairs = self._questions()
            if not pairs:
                return
            if not self._derive(pairs[0]):
                self._look(pairs)

    def _questions(self) -> list[Pair]:
        """Return the pairs to compare next: for the largest unfound step, then for uncertain pairs."""
        found = self._beliefs
        if found.creep >= bisection.SURE:
            self._size = self._whole
            return self._within_creep()
        steps = found.steps()
        for step in sorted(steps, key=lambda step: -abs(step.size)):
            self._size = step.size
            if self._is_found(step, found):
                continue
            base = 0 if step is steps[0] else self._base(step)
            cuts, measurable, devices = self._cuts, self._measurable, len(self.devices)
            pairs = bisection.questions(
                step.likely, cuts, measurable, self._broken, self._asked, devices, base
            )
            if pairs:
                return pairs
        self._size = self._whole
        blocks = [self._block(step, found) for step in steps]
        sure = all(found.holds(block.after, block.upto) >= bisection.SURE for block in blocks)
        return [] if sure and found.others(blocks) < _OTHERS else self._doubtful(found)

    def _within_creep(self) -> list[Pair]:
        """Return the middle of the commits that may make a third of a creep; nothing if none do.

        If there are none, at least four commits share the change: more than an explanation by steps has.
        """
        share, _, block = max(self._shares())
        inside = [at for at in self._cuts if block.after < at < block.upto]
        middle = (block.after + block.upto) / 2
        return [(0, min(inside, key=lambda at: abs(at - middle)))] if share > 1 / 3 and inside else []

    def _shares(self) -> Iterator[tuple[float, float, Block]]:
        """Yield the change between neighbouring known levels, as a share and as its upper bound, with the
        commits.
        """
        for (after, (before, half_before)), (upto, (value, half)) in pairwise(
            sorted(self._over_good().items())
        ):
            share = abs(value - before) / abs(self._whole)
            yield share, share + math.hypot(half, half_before) / abs(self._whole), Block(after, upto, share)

    def _base(self, step: SoughtStep) -> int:
        """Return the last compared position that certainly precedes a step."""
        before = np.concatenate(([0.0], np.cumsum(step.likely)))
        return max(at for pair in self._looked for at in pair if before[at] <= 1 - bisection.SURE)

    def _doubtful(self, found: Beliefs) -> list[Pair]:
        """Return the compared pair on which explanations differ most, if another answer is worth its time."""
        doubts = {
            pair: found.doubt(*pair) for pair, times in self._asked.items() if times < bisection.MOST_ASKED
        }
        pair = max(doubts, key=doubts.__getitem__)
        return [pair] if doubts[pair] > _DOUBTED * abs(self._whole) else []

    def _is_found(self, step: SoughtStep, found: Beliefs) -> bool:
        """Tell whether a step's suspects are certain, and were compared with the commit right before them."""
        block = self._block(step, found)
        check = bisection.nearest_before(block.upto, self._measurable), block.upto
        return self._asked[check] > 0 and found.holds(block.after, block.upto) >= bisection.SURE

    def _block(self, step: SoughtStep, found: Beliefs) -> Block:
        """Return the smallest range of suspects that holds a step's commit with probability SURE."""
        block = bisection.likeliest(step.likely, self._cuts)
        if max(block.mass, found.holds(block.after, block.upto)) >= bisection.SURE:
            return block
        return bisection.smallest_range(step.likely)

    def _derive(self, pair: Pair) -> bool:
        """Tell whether earlier comparisons with GOOD already prove that the change lies in this pair.

        The proof has the confidence of a comparison. A derived result does not count as an answer, because
        the underlying comparisons have been counted.
        """
        over_good = self._over_good()
        if self._asked[pair] or not pair[0] or not over_good.keys() >= set(pair):
            return False
        (before, half_before), (after, half_after) = (over_good[at] for at in pair)
        value, half = after - before, math.hypot(half_before, half_after)
        low, high = value - half, value + half
        if bisection.chance_of(value, low, high, self._size, self._reach) < bisection.BELIEVED:
            return False
        effect, low, high = map(math.expm1, (value, low, high))
        self._asked[pair] += 1
        derived = Effect(effect=effect, low=low, high=high, processes=0, quads=0)
        self._looked[pair] = self._about(pair, side="bad", effect=derived, derived=True)
        self.observer.looked(self._looked[pair], self._suspected)
        return True

    def _about(self, pair: Pair, **known: Any) -> Looked:
        against, commit = (self.line[at] for at in pair)
        return Looked(position=pair[1], commit=commit, against=against, **known)

    def _over_good(self) -> dict[int, tuple[float, float]]:
        """Return the logarithm of each commit over GOOD and half its interval, by position.

        They come from the shortest chain of comparisons.
        """
        found = {0: (0.0, 0.0)}
        while True:
            more: dict[int, tuple[float, float]] = {}
            for (after, upto), looked in self._looked.items():
                if looked.effect and (after in found) != (upto in found):
                    value, low, high = _logarithms(looked.effect)
                    known, new, sign = (after, upto, 1) if after in found else (upto, after, -1)
                    level, half = found[known]
                    more.setdefault(new, (level + sign * value, math.hypot(half, (high - low) / 2)))
            if not more:
                return found
            found |= more

    @property
    def _beliefs(self) -> Beliefs:
        return bisection.beliefs(self._prior, self._answers)

    @property
    def _suspected(self) -> int:
        """Return the number of remaining suspects."""
        if not self._whole:
            return self.last
        return sum(bisection.suspected(step.likely) for step in self._beliefs.steps())

    @property
    def _measurable(self) -> list[int]:
        return [at for at in range(len(self.line)) if at not in self._broken]

    @property
    def _cuts(self) -> list[int]:
        return sorted(self._candidates - self._broken.keys())

    def _look(self, pairs: Sequence[Pair]) -> None:
        """Compare pairs, unless their results are known."""
        asked = {self._hashes(pair): pair for pair in pairs if not self._recall(pair)}
        for after, upto in asked.values():
            self.observer.asking(self.line[after], self.line[upto])
        for found in self._compare([self._question(pair) for pair in asked.values()]):
            self._hear(asked[found.question.base, found.question.head], found)

    def _hashes(self, pair: Pair) -> tuple[str, str]:
        return self.line[pair[0]].hash, self.line[pair[1]].hash

    def _question(self, pair: Pair) -> Question:
        known = () if self._asked[pair] else self._journal.known(self._limits(pair))
        base, head = self._hashes(pair)
        settings = self._settings_of(pair)
        if settings.budget_s is not None:
            settings = dataclasses.replace(settings, budget_s=settings.budget_s - self._gpu_s)
        return Question(base=base, head=head, case=str(self.case), settings=settings, known=known)

    def _limits(self, pair: Pair) -> str | None:
        """Return the limits that a stored verdict must have been reached by; None if any will do.

        For the ends the status matters, and it depends on the limits. For other pairs only the effect
        matters.
        """
        return _limits_of(self.settings) if pair == self._ends else None

    def _settings_of(self, pair: Pair) -> CompareSettings:
        """Return the settings for the comparison of a pair.

        Between the ends, the margin is a third of the searched step and the tolerance two thirds. So a commit
        before the step is distinguished from a commit after it.
        """
        if pair == self._ends:
            return self.settings
        margin, tolerance = (abs(math.expm1(part * self._size / 3)) for part in (1, 2))
        widest = min(1.0, _WIDEST / tolerance)
        return dataclasses.replace(self.settings, margin=widest * margin, tolerance=widest * tolerance)

    def _code(self, position: int) -> frozenset[str]:
        """Return the identities of a commit's code; before it is built, only its own hash."""
        own = f"{self.line[position].hash}{self._from}"
        return self._codes.get(position, frozenset()) | {own}

    def _recall(self, pair: Pair) -> bool:
        """Use known results for a pair's code. Return whether there are new ones."""
        base, head = map(self._code, pair)
        known = self._journal.verdicts(base, head, self._limits(pair))[self._asked[pair] :]
        for verdict, before in known:
            self._take(pair, verdict, before=before, now=False)
        return bool(known)

    def _hear(self, pair: Pair, found: PairResult) -> None:
        for position, code in zip(pair, (found.base_code, found.head_code), strict=True):
            self._codes[position] = self._codes.get(position, frozenset()) | code
        verdict = found.verdict
        if found.failed:
            self._skip(pair, found.failed)
        elif verdict is None:
            self._recall(pair)
        elif verdict.status in ("failed", "missing", "new"):
            self._skip(pair, verdict)
        else:
            self._comparisons += verdict.status != "identical"
            self._gpu_s += verdict.gpu_s
            if verdict.complete and verdict.status != "invalid":
                limits = _limits_of(self._settings_of(pair))
                self._journal.add(self._code(pair[0]), self._code(pair[1]), verdict, limits)
            self._take(pair, verdict, before=False, now=True)
        if found.interrupted:
            raise KeyboardInterrupt

    def _skip(self, pair: Pair, why: Failed | Verdict) -> None:
        """Exclude a commit that cannot be compared: the later one, unless the other one failed and is not the
        good end.
        """
        if pair == self._ends:
            end = "GOOD" if why.side == "base" else "BAD"
            kind = UsageError if why.reason in _OF_SUITES else MeasureError
            hint = f" {_SUITE_FROM}" if why.reason in _WITHOUT else ""
            raise kind(f"{end} cannot be compared ({why.reason}): {why.message}{hint}", log=why.log)
        position = pair[0] if why.side == "base" and pair[0] else pair[1]
        looked = self._about((pair[0], position), side="skipped", reason=why.reason, message=why.message)
        for each in self._alike(position):
            self._broken[each] = dataclasses.replace(looked, position=each, commit=self.line[each])
        self.observer.looked(looked, self._suspected)

    def _alike(self, position: int) -> range:
        """Return the commits that share the files of one that cannot be compared; only itself if they could
        be compared.
        """
        touching = sorted({0, *self._touching, self.last})
        first = position if position in touching else bisection.nearest_before(position, touching)
        if first in {0, *(upto for _, upto in self._looked)}:
            return range(position, position + 1)
        return range(first, min(at for at in (*touching, len(self.line)) if at > position))

    def _take(self, pair: Pair, verdict: Verdict, *, before: bool, now: bool) -> None:
        self._asked[pair] += 1
        if pair == self._ends and not self._whole:
            self._measure_ends(verdict)
        effect: Effect | None = getattr(verdict, self._metric)
        answer = self._answer(pair, verdict, effect)
        if answer and self._whole:
            self._answers.append(answer)
        if pair != self._ends:
            self._suspect(pair, self._chance(answer, self._size))
        looked = self._about(
            pair,
            side=self._side(answer, self._size if pair[0] else self._whole),
            effect=effect,
            reason=verdict.reason,
            message=verdict.message,
            same_as="" if now and verdict.status != "identical" else self._same_code(pair),
            remembered=before,
            gpu_s=verdict.gpu_s if now else 0.0,
        )
        self._looked[pair] = looked
        self.observer.looked(looked, self._suspected)

    def _measure_ends(self, verdict: Verdict) -> None:
        if verdict.status in ("regression", "improvement") and not verdict.reason.endswith("-in-tail"):
            self._metric = "cycles" if verdict.reason.endswith("-in-cycles") else "time"
            effect: Effect | None = getattr(verdict, self._metric)
            assert effect is not None  # the status was decided by this metric
            self._whole = self._size = math.log1p(effect.effect)

    def _answer(self, pair: Pair, verdict: Verdict, effect: Effect | None) -> Answer | None:
        if verdict.status == "identical":
            return Answer(*pair, 0.0, 0.0)
        if effect is None or verdict.status == "invalid":
            return None
        value, low, high = _logarithms(effect)
        return Answer(*pair, value, (high - low) / (2 * self._reach))

    def _chance(self, answer: Answer | None, change: float) -> float:
        """Return the probability that more than half of a change lies between two commits."""
        if answer is None or not change:
            return 0.5
        half = answer.deviation * self._reach
        low, high = answer.value - half, answer.value + half
        return bisection.chance_of(answer.value, low, high, change, self._reach)

    def _side(self, answer: Answer | None, change: float) -> Side:
        if answer and change:
            share, half = answer.value / change, answer.deviation * self._reach / abs(change)
            if share - half > _PART and share + half < 1 - _PART:
                return "part"
        chance = self._chance(answer, change)
        return "bad" if chance >= _CLEAR else "good" if chance <= 1 - _CLEAR else "unsure"

    def _suspect(self, pair: Pair, chance: float) -> None:
        """Add a suspect's parent to the candidates.

        If the change is older than the suspect, also add the commits before the parent that seem to change no
        relevant file.
        """
        parent = pair[0]
        if parent in self._candidates:
            return
        if chance < 0.5:
            start = bisection.nearest_before(parent, sorted(self._candidates))
            self._candidates |= set(range(start + 1, parent))
        self._candidates.add(parent)

    def _same_code(self, pair: Pair) -> str:
        """Return the commit with the same code as the pair's later commit: its base, or a measured commit."""
        code = self._code(pair[1])
        others = [pair[0], *(position for position in self._codes if position != pair[1])]
        return next((self.line[at].hash for at in others if not code.isdisjoint(self._code(at))), "")

    def _result(self, *, interrupted: bool, problem: str) -> BisectResult:
        ends = self._looked.get(self._ends)
        return BisectResult(
            case=str(self.case),
            confidence=self.settings.confidence,
            good=self.line[0],
            bad=self.line[-1],
            commits=self.last,
            touching=len(self._touching),
            devices=self.devices,
            ends=ends,
            ruler=self._metric,
            looked=self._in_order(),
            comparisons=self._comparisons,
            gpu_s=self._gpu_s,
            problem=problem,
            interrupted=interrupted,
            **self._conclusion(),
        )

    def _in_order(self) -> tuple[Looked, ...]:
        found = (each for pair, each in self._looked.items() if pair != self._ends)
        skipped = (each for at, each in self._broken.items() if at in self._candidates)
        return tuple(sorted((*found, *skipped), key=lambda each: each.position))

    def _conclusion(self) -> dict[str, Any]:
        if not self._whole:
            ends = self._looked.get(self._ends)
            nothing = ends is not None and ends.reason in ("within-tolerance", "same-code")
            return {"outcome": "nothing" if nothing else "inconclusive"}
        beliefs = self._beliefs
        if beliefs.creep > 0.5:
            share = min(1.0, max(most for _, most, _ in self._shares()))
            return {"outcome": "creep", "sure": min(beliefs.creep, _MOST_SURE), "largest_share": share}
        steps = tuple(self._found(step, beliefs) for step in beliefs.steps())
        others = beliefs.others([self._block(step, beliefs) for step in beliefs.steps()])
        sure = min(step.sure for step in steps)
        alone = all(len(step.suspects) == 1 for step in steps)
        return {
            "outcome": "found" if alone and sure >= bisection.SURE else "range",
            "steps": steps,
            "sure": sure,
            "others": others,
            "notes": tuple(self._notes(steps, others)),
        }

    def _found(self, step: SoughtStep, beliefs: Beliefs) -> FoundStep:
        block = self._block(step, beliefs)
        inside = range(block.after + 1, block.upto + 1)
        suspects = [at for at in inside if at in self._candidates or at in self._touching]
        return FoundStep(
            suspects=tuple(self.line[at] for at in suspects),
            sure=min(beliefs.holds(block.after, block.upto), _MOST_SURE),
            change=math.expm1(step.size),
            comparison=self._looked.get((bisection.nearest_before(block.upto, self._measurable), block.upto)),
        )

    def _notes(self, steps: Sequence[FoundStep], others: float) -> Iterator[str]:
        """Yield a sentence if the steps may not explain the whole change, or certainly do not."""
        if others > 1 - bisection.SURE:
            yield f"Another commit may have a part in the change, with a probability of {percent(others)}."
        whole = self._looked[self._ends].effect
        effects = [step.comparison.effect for step in steps if step.comparison and step.comparison.effect]
        if whole is None or len(effects) < len(steps):
            return
        values = [_logarithms(effect) for effect in effects]
        made = sum(value for value, _, _ in values)
        half = math.hypot(*((high - low) / 2 for _, low, high in values))
        if made + half < math.log1p(whole.low) or made - half > math.log1p(whole.high):
            of_all = f"{percent(math.expm1(made), sign=True)} of {percent(whole.effect, sign=True)} in all"
            if len(steps) > 1:
                yield f"Together they make {of_all}: other commits have a part in it."
                return
            yield (
                f"It makes {of_all}: other commits have a part in it. "
                "Bisect from it to BAD, and from GOOD to its parent."
            )
