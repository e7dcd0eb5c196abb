"""Measures a timing call at which both sides' processes wait, in alternating slots."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.errors import MeasureError
from harness.judgement.statistics.paired import trimmed_mean
from harness.measure.protocol import SideName
from harness.measure.quads import Order, PairSettings, wanted_quads
from harness.records.types import PairedBlock, Quad
from harness.run.scripts.call_names import CallName
from harness.run.scripts.script_outputs import OutputsOrder
from harness.run.scripts.script_process import Call, Done, RaisedError, ScriptProcess
from harness.run.two_workers import ORDERS, SIDES

BUDGET_MS = 10.0
"""Length of a slot in ms. A longer launch is a slot by itself."""
WARM_UP_MS = 50.0
_HOST_TICK_NS, _EVENT_TICK_NS = 1.0, 500.0
"""Resolution of Linux's clocks and of CUDA events (documented as half a microsecond), in ns."""


class ChangedCallsError(MeasureError):
    reason = "other-calls"


class CallFailedError(MeasureError):
    """A call that cannot be measured. The script continues."""

    reason = "not-measured"


def sampled(process: ScriptProcess, budget_ms: float, timeout_s: float) -> Done:
    """Return one slot of the call at which a script waits. Raises CallFailedError, and the errors
    of `order`.
    """
    found = process.order(timeout_s, do="sample", budget_ms=budget_ms)
    if isinstance(found, Done) and found.times_ns:
        return found
    error = CallFailedError("The timer returned no time.")
    if isinstance(found, RaisedError):
        error = CallFailedError(f"The timed function raised {found.error}: {found.message}")
    error.side = process.side
    raise error


def tick_of(call: Call) -> float:
    """Return the resolution of a call's clock in nanoseconds."""
    return _HOST_TICK_NS if call.clock == "host" else _EVENT_TICK_NS


@dataclass(slots=True)
class Turns:
    """Two processes of a script at one call. Only one works at a time."""

    sides: Mapping[SideName, ScriptProcess]
    order: Sequence[SideName]
    timeout_s: float
    pair: PairSettings
    rng: random.Random

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.sides.values()]

    def reach(
        self, places: Mapping[SideName, int], names: Mapping[SideName, Sequence[CallName]], case: str
    ) -> None:
        """Let both sides run to their calls. Raises ChangedCallsError if a script makes other calls than
        before.
        """

        def reach(side: SideName) -> None:
            process = self.sides[side]
            while process.calls <= places[side]:
                if process.reach(self.timeout_s) is None:
                    error = ChangedCallsError(
                        f"{process.executable.command!r} made {len(names[side])} timing calls in its first "
                        f"process, and ended after {process.calls} in a later one, before {case}. A "
                        "script has to measure the same in each run."
                    )
                    error.side = side
                    raise error

        with ThreadPoolExecutor(len(SIDES)) as pool:
            try:
                list(pool.map(reach, self.order))
            except KeyboardInterrupt:
                for each in self.sides.values():
                    each.close()
                raise

    def observe(self, side: SideName, asked: OutputsOrder) -> Done | RaisedError:
        """Let a side run its function once, and return its outputs."""
        return self.sides[side].order(self.timeout_s, do="outputs", **dataclasses.asdict(asked))

    def block(self, standard_error: float) -> PairedBlock:
        """Measure quads of the call at which both sides wait. Raises CallFailedError."""
        warm: dict[SideName, Done] = {}
        for side in self.order:
            for budget_ms in (BUDGET_MS, WARM_UP_MS):
                warm[side] = self._sample(side, budget_ms)
        slowest_ns = max(trimmed_mean(each.times_ns) for each in warm.values())
        budget_ms = max(BUDGET_MS, 3 * slowest_ns / 1e6)
        settings = dataclasses.replace(
            self.pair, standard_error=max(self.pair.standard_error, standard_error)
        )
        quads: list[Quad] = []
        launches = 0
        spent_s = 0.0
        began_ns = time.monotonic_ns()
        while len(quads) < wanted_quads(quads, settings, settings.min_quads):
            if quads and len(quads) >= settings.min_quads and spent_s > settings.max_time_s:
                break
            quad, launches = self._quad(budget_ms)
            quads.append(quad)
            spent_s = (time.monotonic_ns() - began_ns) / 1e9
        call = self.sides["head"].at
        assert call is not None
        return PairedBlock(
            quads=tuple(quads),
            launches_per_slot=launches,
            l2="cold" if call.l2 == "cold" else "hot",
            clock=call.clock,
            tick_ns=tick_of(call),
            warmup_s=None,
            settled=None,
            gpu_s=spent_s,
            in_turns=True,
        )

    def _quad(self, budget_ms: float) -> tuple[Quad, int]:
        order: Order = self.rng.choice(("ABBA", "BAAB"))
        slots = [self._sample(side, budget_ms) for side in ORDERS[order]]
        a, b, c, d = (trimmed_mean(each.times_ns) for each in slots)
        quad = Quad(
            order=order,
            times_ns=(a, b, c, d),
            started_ns=slots[0].started_ns,
            ended_ns=slots[-1].ended_ns,
        )
        return quad, min(each.launches * len(each.times_ns) for each in slots)

    def _sample(self, side: SideName, budget_ms: float) -> Done:
        return sampled(self.sides[side], budget_ms, self.timeout_s)
