"""Verdicts by today's rules from the quads of a stored comparison, as if its processes were run now. Pure.

Where the rules would have ended a block, or asked for no further process, the rest is not looked at; where
they would have asked for more than was stored, the record ends.
"""

from __future__ import annotations

__all__ = ["Rejudged", "rejudge"]

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.contest import Contest, Noise, Precision, Round, settle
from harness.gates import CanaryLevel, Gated, GatePolicy, canary_level, gate, usual_level
from harness.judge import Policy
from harness.records import CaseBlock, PairedBlock, Quad, Verdict
from harness.statistics.paired import MIN_QUADS, log_ratios, more_quads, readable
from harness.suite import Case

LEAST_QUADS, MOST_QUADS = 6, 100
MOST_S = 1.0


class Stored(Protocol):
    """What is read of a stored comparison."""

    @property
    def verdicts(self) -> Sequence[Verdict]: ...
    @property
    def blocks(self) -> Sequence[CaseBlock]: ...


@dataclass(frozen=True, slots=True)
class Rejudged:
    """One case: what was said of it then, and what is said now."""

    then: Verdict | None
    """None where the comparison ended before it said anything."""
    now: Verdict
    blocks: int
    """That were looked at."""


def rejudge(stored: Stored, policy: Policy, noise: Mapping[str, Noise]) -> list[Rejudged]:
    """Judge every case that was measured; `noise` is by case. The cases' device time is in `now`."""
    said = {verdict.case: verdict for verdict in stored.verdicts}
    blocks: dict[str, list[CaseBlock]] = defaultdict(list)
    first: set[tuple[str, int]] = set()
    for told in stored.blocks:
        # What was measured a second time in one process was only so by the rules of then.
        if (told.case, told.process) not in first:
            first.add((told.case, told.process))
            blocks[told.case].append(told)
    cases = [
        _Replay(Contest(name, _case(name, said.get(name)), policy, noise[name]), told)
        for name, told in blocks.items()
    ]
    contests = [case.contest for case in cases]
    levels: list[CanaryLevel] = []
    while sum(case.turn(levels) for case in cases):
        settle(contests, policy)
    return [Rejudged(said.get(case.contest.id), case.contest.verdict(), case.looked_at) for case in cases]


class _Replay:
    """One case, and the processes that are left of it."""

    def __init__(self, contest: Contest, blocks: list[CaseBlock]) -> None:
        self.contest, self.left = contest, blocks
        self.whole: dict[bool, list[PairedBlock]] = {False: [], True: []}
        """Of each stage, confirming or not, the blocks that were looked at, with all their quads."""
        self.stretched: set[bool] = set()

    @property
    def looked_at(self) -> int:
        return len(self.contest.rounds) + len(self.contest.again)

    def turn(self, levels: list[CanaryLevel]) -> bool:
        """One more process, where one is wanted; false where none is, or none is left."""
        contest = self.contest
        if contest.settled:
            return False
        stage = contest.confirming
        # To confirm, a process that was measured for that, while there is one.
        fitting = [place for place, told in enumerate(self.left) if told.confirming == stage]
        if not fitting and self.whole[stage] and stage not in self.stretched:
            self._stretch(levels)
            return True
        if not self.left:
            contest.interrupt("record-ends")
            return False
        block = self.left.pop(fitting[0] if fitting else 0).block
        self.whole[stage].append(block)
        block = shortened(block, contest.precision)
        gated = self._gate(block, levels)
        if level := canary_level([block]):
            levels.append(level)
        contest.add(block, gated)
        return True

    def _stretch(self, levels: list[CanaryLevel]) -> None:
        """No process of the kind is left, but of those there were not all was looked at: what counts at a
        look is how much is known by then, not how many processes there are.
        """
        contest, stage = self.contest, self.contest.confirming
        self.stretched.add(stage)
        rounds = contest.again if stage else contest.rounds
        rounds[:] = [Round.of(block, self._gate(block, levels)) for block in self.whole[stage]]
        contest.look(last=True)

    def _gate(self, block: PairedBlock, levels: Sequence[CanaryLevel]) -> Gated:
        return gate(block, GatePolicy(), usual=usual_level(levels))


def shortened(block: PairedBlock, precision: Precision) -> PairedBlock:
    """The block as it would have been, had it ended where today's rules end it."""
    quads: Sequence[Quad] = ()
    for quads in _growing(block, precision):
        if (quads[-1].ended_ns - quads[0].started_ns) / 1e9 > MOST_S:
            break
    if len(quads) == len(block.quads):
        return block
    return dataclasses.replace(
        block, quads=tuple(quads), gpu_s=block.gpu_s * len(quads) / max(1, len(block.quads))
    )


def _growing(block: PairedBlock, precision: Precision) -> Iterator[Sequence[Quad]]:
    """The block's quads after each batch."""
    count = 0
    least = max(LEAST_QUADS, precision.min_quads, MIN_QUADS)
    most = min(len(block.quads), MOST_QUADS)
    while count < most:
        quads = [quad for quad in block.quads[:count] if readable(quad.times_ns)]
        ratios = log_ratios([q.order for q in quads], [q.times_ns for q in quads]) if quads else ()
        wanted = more_quads(ratios, precision.standard_error, at_least=least, at_most=most)
        if wanted <= count:
            return
        count = wanted
        yield block.quads[:count]


def _case(name: str, said: Verdict | None) -> Case:
    suite, _, rest = name.partition(".")
    if said is None:
        return Case(suite, rest.partition("[")[0], {})
    return Case(suite, said.kernel, said.sizes, said.dtype)
