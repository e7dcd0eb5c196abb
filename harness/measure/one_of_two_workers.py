"""A worker that holds one side of a pair and alternates with the other side's worker (run/two_workers.py).

Two workers are needed if one process cannot load both sides: operators registered with PyTorch, or two
versions of Triton. The device is idle between turns, and ran the other process's work before. So each turn
begins with launches whose times are discarded.
"""

from __future__ import annotations

import math
import random
from contextlib import ExitStack
from dataclasses import dataclass

from harness.device.process_state import process_state
from harness.measure import protocol
from harness.measure.buffers import Buffers
from harness.measure.paired_kernels import PairBench, PlacedSide, owned_by
from harness.measure.quads import KernelPair, SlotRunner, Turn
from harness.measure.timing import l2_policy, warm_up
from harness.measure.verifier import Rotation
from harness.records.types import L2Policy
from harness.system.file_access import check_committed


@dataclass
class _JoinedSide:
    """The side that this process holds, with its arrays on the device."""

    request: protocol.Compare
    side: PlacedSide
    buffers: Buffers
    data: Rotation
    l2: L2Policy
    stack: ExitStack
    time_ns: float = math.nan
    runner: SlotRunner | None = None


class TurnTaker:
    """Handles pairs one after another: join, verify, warm up, take turns, finish. Errors name their side."""

    def __init__(self, bench: PairBench) -> None:
        self.bench, self.device = bench, bench.device
        self._joined: _JoinedSide | None = None

    def join(self, asked: protocol.Join) -> None:
        bench, request = self.bench, asked.compare
        bench.choose_judge(request)
        rng = random.Random(request.order_seed)  # noqa: S311 - an order, not a secret
        with ExitStack() as stack:
            buffers, sides = stack.enter_context(bench.placed(request, rng, only=asked.side))
            side = sides[asked.side]
            case = bench.case_for_checking(side.prepared)
            verified = request.verified.get(side.name)
            data = Rotation(bench.checker, buffers, case, request.seed, rng, sets=2 if verified else 3)
            l2 = l2_policy(self.device, request.settings.l2, by_graph=bench.is_by_graph(request.pair))
            self._joined = _JoinedSide(request, side, buffers, data, l2, stack.pop_all())

    def _joined_side(self) -> _JoinedSide:
        assert self._joined is not None, "Join comes first"
        return self._joined

    def verify(self, _: protocol.Verify) -> protocol.SideFacts:
        joined = self._joined_side()
        return self.bench.verified(joined.side, joined.buffers, joined.request, joined.data)

    def warm_up(self, _: protocol.WarmUp) -> protocol.WarmUpReply:
        joined = self._joined_side()
        subject, data = joined.side.subject, joined.data
        self.bench.report("measure", side=joined.side.name)
        with owned_by(joined.side.name):
            warm = warm_up(self.device, [subject], joined.request.settings, data)
            data.begin(subject, warm.time_ns)
        joined.time_ns = warm.time_ns
        return protocol.WarmUpReply(
            time_ns=warm.time_ns,
            l2=joined.l2,
            clock=self.device.clock,
            tick_ns=self.device.tick_ns(),
            globaltimer_tick_ns=self.device.globaltimer_tick_ns(),
            warmup_s=warm.duration_s,
            settled=warm.settled,
            restored=data.restores,
            by_graph=self.bench.is_by_graph(joined.request.pair),
        )

    def take(self, request: protocol.Take) -> Turn:
        joined = self._joined_side()
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

    def finish(self, request: protocol.Finish) -> dict[str, str]:
        joined = self._joined_side()
        self._joined = None
        side = joined.side
        with joined.stack, owned_by(side.name):
            joined.data.finish([side.subject], joined.runner.launches if joined.runner else 1)
            self.bench.check_rates(side.prepared, joined.l2, request.time_ns)
            check_committed([side.prepared.suite.root])
        return {**process_state(side.prepared.suite.root), **self.device.context_limits()}
