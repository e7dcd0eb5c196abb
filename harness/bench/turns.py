"""One side of a pair in a process of its own, which takes turns with that of the other side: for what one
process cannot hold twice, such as operators that PyTorch registers, or two versions of Triton.

Between two turns the device is idle for as long as the host takes to hand over, and was the other process's
before. So each turn begins with launches whose times are thrown away.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass

from harness.bench import protocol
from harness.bench.abba import KernelPair, SlotRunner, Turn
from harness.bench.measure import l2_policy, warm_up
from harness.bench.pair_runner import PairBench, PlacedSide, owned_by
from harness.bench.verifier import Rotation
from harness.device.process_state import process_state
from harness.records import L2Policy
from harness.system.file_access import check_committed


@dataclass
class _JoinedSide:
    """The side that is in this process, its arrays on the device."""

    side: PlacedSide
    data: Rotation
    l2: L2Policy
    time_ns: float
    stack: ExitStack
    runner: SlotRunner | None = None


class TurnTaker:
    """Joins, takes turns and finishes, one pair after another. Errors name their side."""

    def __init__(self, bench: PairBench) -> None:
        self.bench, self.device = bench, bench.device
        self._joined: _JoinedSide | None = None

    def join(self, asked: protocol.Join) -> protocol.JoinReply:
        bench, request, settings = self.bench, asked.compare, asked.compare.settings
        rng = random.Random(request.order_seed)  # noqa: S311 - an order, not a secret
        with ExitStack() as stack:
            buffers, sides = stack.enter_context(bench.placed(request, rng, only=asked.side))
            side = sides[asked.side]
            case = bench.case_for_checking(side.prepared)
            verified = request.verified.get(side.name)
            data = Rotation(bench.checker, buffers, case, request.seed, rng, sets=2 if verified else 3)
            facts = bench.verified(side, buffers, request, data)
            bench.report("measure", side=side.name)
            l2 = l2_policy(self.device, settings.l2)
            with owned_by(side.name):
                warm = warm_up(self.device, [side.subject], settings, data)
                data.begin(side.subject, warm.time_ns)
            self._joined = _JoinedSide(side, data, l2, warm.time_ns, stack.pop_all())
        return protocol.JoinReply(
            facts=facts,
            time_ns=warm.time_ns,
            l2=l2,
            clock=self.device.clock,
            tick_ns=self.device.tick_ns(),
            globaltimer_tick_ns=self.device.globaltimer_tick_ns(),
            warmup_s=warm.duration_s,
            settled=warm.settled,
            restored=data.restores,
        )

    def take(self, request: protocol.Take) -> Turn:
        joined = self._joined
        assert joined is not None, "Join comes first"
        subject, data, rng = joined.side.subject, joined.data, joined.data.rng
        with owned_by(joined.side.name):
            if joined.runner is None:
                pair = KernelPair(subject, subject)
                joined.runner = SlotRunner(
                    self.device, pair, joined.l2, request.launches, rng, data, joined.time_ns
                )
            rng.seed(request.data_seed)
            data.change()
            return joined.runner.turn(request.lead_in_s, canary=request.canary)

    def finish(self, request: protocol.Finish) -> protocol.FinishReply:
        joined = self._joined
        assert joined is not None, "Join comes first"
        self._joined = None
        side = joined.side
        with joined.stack, owned_by(side.name):
            joined.data.finish([side.subject], joined.runner.launches if joined.runner else 1)
            self.bench.check_rates(side.prepared, joined.l2, request.time_ns)
            check_committed([side.prepared.suite.root])
        state = {**process_state(side.prepared.suite.root), **self.device.context_limits()}
        return protocol.FinishReply(state=state)
