"""Times a pair of kernels in two alternating worker processes, one for each side, on one device.

In one process both sides share the arrays and the addresses of code; in two they do not. So the blocks differ
more from each other, and are judged with a wider prior.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

import msgspec

from harness.errors import HarnessError, WorkerError
from harness.measure import protocol
from harness.measure.protocol import SideName, SidesByPair
from harness.measure.quads import CANARY_EVERY, Order, PairSettings, Turn, all_four, clock_noise, wanted_quads
from harness.measure.timing import is_one_interval, launches_per_slot
from harness.records.types import KernelLaunch, PairedBlock, Quad
from harness.run.worker_process import Pending, WorkerProcess
from harness.system.process import Failed, Request, failure

R = TypeVar("R")

SIDES: tuple[SideName, ...] = ("base", "head")
HEAD_FIRST = SIDES[::-1]
"""The order in which sides are blamed: if both are wrong, head fails."""
ORDERS: Mapping[Order, tuple[SideName, ...]] = {
    "ABBA": ("base", "head", "head", "base"),
    "BAAB": ("head", "base", "base", "head"),
}
MIN_SLOT_NS = 2e6
"""Shortest slot of back-to-back launches, in nanoseconds. The hand-over takes some tenths of a millisecond
and may affect the first launch."""
MIN_SPLIT_SLOT_NS = 3e5
"""Shortest slot whose launches are timed one by one, in nanoseconds of kernel time. With flushes and events
such a slot lasts about five times as long, and its quads are still more precise than pairs of processes."""
LEAD_IN_S = 0.005
"""Length of untimed launches before a slot, in seconds. It is long compared with the hand-over, so that
clock, caches and the other process's threads are at rest."""


class TurnPair:
    """A worker process of each side, until `close` ends them.

    `start` starts a process, and `open_device` makes it open the device, first for the side `first`. It
    returns a function that waits until the process has loaded its suite: both processes import at once. On an
    H100 the process that opened second was slower by up to 2 % at 5 us, so the next pair opens in the other
    order.
    """

    def __init__(
        self,
        start: Callable[[SideName], WorkerProcess],
        open_device: Callable[[SideName, WorkerProcess], Callable[[], object]],
        report: Callable[[str], object],
        first: SideName,
    ) -> None:
        self._open_device, self._report = open_device, report
        self._sides: tuple[SideName, ...] = SIDES if first == "base" else SIDES[::-1]
        self.is_open = False
        self._begun: dict[SideName, Pending[SidesByPair]] = {}
        """Requests sent ahead whose answers have not been read."""
        with ExitStack() as stack:
            # Start both before waiting for either: their imports take long.
            self._workers = {side: stack.enter_context(closing(start(side))) for side in self._sides}
            self._stack = stack.pop_all()

    @property
    def pids(self) -> list[int]:
        return [pid for worker in self._workers.values() for pid in worker.pids()]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.kill_soon()  # drivers take time to clean up
        self._stack.close()

    def open(self) -> None:
        """Make both processes open the device, and load their suites. After an error, the pair has to be
        closed.
        """
        if not self.is_open:
            loading = [self._open_device(side, worker) for side, worker in self._workers.items()]
            for loaded in loading:
                loaded()
            self.is_open = True

    def prepare(self, pairs: tuple[protocol.PairOf, ...], timeout_s: float) -> None:
        """Open the device and ask both processes to build, without waiting. Raises as `open`, and
        WorkerError.
        """
        self.open()
        self._begun = self._begin_inspect(pairs, timeout_s)

    def is_prepared(self) -> bool:
        """Wait for the builds of `prepare`, if any. A pair that failed has to be closed."""
        begun, self._begun = self._begun, {}
        try:
            self._answers(begun)
        except (_FailedError, HarnessError):
            return False
        return True

    def inspect(
        self, pairs: tuple[protocol.PairOf, ...], timeout_s: float
    ) -> Mapping[SideName, SidesByPair] | Failed:
        """Build each side of the pairs in its own process. A pair that fails has to be closed."""
        return _or_failed(lambda: self._answers(self._begin_inspect(pairs, timeout_s)))

    def list_launches(
        self, request: protocol.ListLaunches, timeout_s: float
    ) -> dict[SideName, tuple[KernelLaunch, ...]] | Failed:
        """List the kernels that each side launches. Nothing is to be timed by these processes afterwards."""

        def listed() -> dict[SideName, tuple[KernelLaunch, ...]]:
            begun = self._begin_all(
                lambda side: msgspec.structs.replace(request, side=side), timeout_s, self._sides
            )
            return {side: of_side[side] for side, of_side in self._answers(begun).items()}

        return _or_failed(listed)

    def count(
        self, request: protocol.CountEvents, timeout_s: float
    ) -> Mapping[SideName, protocol.Counted] | Failed:
        """Read the counters of one side after the other, because a card has one set of counters."""

        def counted() -> dict[SideName, protocol.Counted]:
            asked = ((side, msgspec.structs.replace(request, side=side)) for side in self._sides)
            return {side: self._ask(side, of_side, timeout_s)[side] for side, of_side in asked}

        return _or_failed(counted)

    def _begin_inspect(
        self, pairs: tuple[protocol.PairOf, ...], timeout_s: float
    ) -> dict[SideName, Pending[SidesByPair]]:
        return self._begin_all(lambda side: protocol.Inspect(pairs=pairs, side=side), timeout_s, self._sides)

    def compare(
        self, request: protocol.Compare, timeout_s: float, meanwhile: Callable[[], object] = lambda: None
    ) -> protocol.CompareReply | Failed:
        """Answer like one process that holds both sides. A pair that fails has to be closed.

        `meanwhile` is called while both sides verify, when nothing is timed. Its time counts towards their
        timeout.
        """
        return _or_failed(lambda: self._compare(request, timeout_s, meanwhile))

    def _compare(
        self, request: protocol.Compare, timeout_s: float, meanwhile: Callable[[], object]
    ) -> protocol.CompareReply:
        rng = random.Random(request.order_seed)  # noqa: S311 - an order, not a secret
        # Both at once: building an extension takes a minute, and imports some seconds.
        pair = request.pair
        building = self._begin_all(
            lambda side: protocol.BuildSide(pair=pair, side=side), timeout_s, self._sides
        )
        self._answers(building)
        for side in HEAD_FIRST:
            own = msgspec.structs.replace(request, order_seed=rng.getrandbits(32))
            self._ask(side, protocol.Join(compare=own, side=side), timeout_s)
        # Head reads base's outputs if they are its reference.
        first: tuple[SideName, ...] = ("base",) if request.base_first else HEAD_FIRST
        verifying = self._begin_all(lambda _side: protocol.Verify(), timeout_s, first)
        verified = self._answers_at_once(verifying, meanwhile)
        if request.base_first:
            verified["head"] = self._ask("head", protocol.Verify(), timeout_s)
        warm = {side: self._ask(side, protocol.WarmUp(), timeout_s) for side in HEAD_FIRST}
        block = self._block(warm, request.settings, rng, timeout_s)
        times_ns: dict[SideName, float] = {"base": block.median_ns("A"), "head": block.median_ns("B")}
        finishing = self._begin_all(lambda side: protocol.Finish(time_ns=times_ns[side]), timeout_s)
        ended = self._answers_at_once(finishing)
        return protocol.CompareReply(
            block=block,
            sides={side: msgspec.structs.replace(verified[side], state=ended[side]) for side in HEAD_FIRST},
        )

    def _block(
        self,
        warm: Mapping[SideName, protocol.WarmUpReply],
        settings: PairSettings,
        rng: random.Random,
        timeout_s: float,
    ) -> PairedBlock:
        base = warm["base"]
        time_ns = min(each.time_ns for each in warm.values())
        is_whole = is_one_interval(base.l2, restored=base.restored)
        least_ns = max(settings.min_slot_ns, MIN_SLOT_NS if is_whole else MIN_SPLIT_SLOT_NS)
        one_graph = is_whole and base.by_graph
        launches = launches_per_slot(time_ns, base.tick_ns, least_ns, one_graph=one_graph)
        for side in self._sides:  # the first turn of each process prepares more than the others
            self._take(side, launches, rng.getrandbits(32), timeout_s)
        quads: list[Quad] = []
        spent_s = 0.0
        while (count := wanted_quads(quads, settings, settings.min_quads) - len(quads)) > 0:
            if quads:
                count = min(count, int((settings.max_time_s - spent_s) / spent_s * len(quads)))
                if count < 1:
                    break
            began = len(quads)
            quads += (self._quad(number, launches, rng, timeout_s) for number in range(count))
            spent_s += (quads[-1].ended_ns - quads[began].started_ns) / 1e9
        return PairedBlock(
            quads=tuple(quads),
            launches_per_slot=launches,
            l2=base.l2,
            clock=base.clock,
            tick_ns=base.tick_ns,
            warmup_s=math.fsum(each.warmup_s for each in warm.values()),
            settled=all(each.settled for each in warm.values()),
            gpu_s=spent_s,
            clock_noise=clock_noise(base.globaltimer_tick_ns, launches * time_ns),
            restored=any(each.restored for each in warm.values()),
            in_turns=True,
        )

    def _quad(self, number: int, launches: int, rng: random.Random, timeout_s: float) -> Quad:
        order: Order = "ABBA" if rng.random() < 0.5 else "BAAB"
        data_seed = rng.getrandbits(32)
        turns = [
            self._take(side, launches, data_seed, timeout_s, canary=place == 0 and number % CANARY_EVERY == 0)
            for place, side in enumerate(ORDERS[order])
        ]
        a, b, c, d = turns
        return Quad(
            order=order,
            times_ns=(a.time_ns, b.time_ns, c.time_ns, d.time_ns),
            cycles=all_four(*(turn.cycles for turn in turns)),
            sm_clock_mhz=all_four(*(turn.sm_clock_mhz for turn in turns)),
            canary_ns=a.canary_ns,
            canary_cycles=a.canary_cycles,
            started_ns=a.started_ns,
            ended_ns=d.ended_ns,
        )

    def _take(
        self, side: SideName, launches: int, data_seed: int, timeout_s: float, *, canary: bool = False
    ) -> Turn:
        request = protocol.Take(launches=launches, data_seed=data_seed, lead_in_s=LEAD_IN_S, canary=canary)
        return self._ask(side, request, timeout_s)

    def _ask(self, side: SideName, request: Request[R], timeout_s: float) -> R:
        """Return the answer of one side's process. Raises _FailedError and WorkerError, with the side at
        fault.
        """
        pending = self._begin(side, request, timeout_s)
        return self._answer(side, pending)

    def _begin_all(
        self,
        request_of: Callable[[SideName], Request[R]],
        timeout_s: float,
        sides: Sequence[SideName] = HEAD_FIRST,
    ) -> dict[SideName, Pending[R]]:
        begun: dict[SideName, Pending[R]] = {}
        for side in sides:
            pending = self._begin(side, request_of(side), timeout_s)
            begun[side] = pending
        return begun

    def _answers(self, begun: Mapping[SideName, Pending[R]]) -> dict[SideName, R]:
        """Return the answers of all sides that have a request, head's first. Raises as `_ask`."""
        return {side: self._answer(side, begun[side]) for side in HEAD_FIRST if side in begun}

    def _answers_at_once(
        self, begun: Mapping[SideName, Pending[R]], meanwhile: Callable[[], object] = lambda: None
    ) -> dict[SideName, R]:
        """Return the same as `_answers`. A thread for each side answers the questions of its process.

        Otherwise a process that asks for arrays of the other side's suite would wait until that side is done,
        and that side for arrays that this process makes.
        """
        with ThreadPoolExecutor(len(begun)) as pool:
            reading = {
                side: pool.submit(copy_context().run, self._answer, side, pending)
                for side, pending in begun.items()
            }
            try:
                meanwhile()
                return {side: reading[side].result() for side in HEAD_FIRST if side in reading}
            except BaseException:
                for worker in self._workers.values():
                    worker.kill_soon()  # ends the other thread
                raise

    def _begin(self, side: SideName, request: Request[R], timeout_s: float) -> Pending[R]:
        with _at_fault(side):
            return self._workers[side].begin(request, timeout_s)

    def _answer(self, side: SideName, pending: Pending[R]) -> R:
        with _at_fault(side):
            reply = pending(lambda progress: self._report(f"{progress.stage} {side}"))
        if isinstance(reply, Failed):
            raise _FailedError(msgspec.structs.replace(reply, side=reply.side or side))
        return reply


NewPair = Callable[[SideName], TurnPair]
ToBuild = tuple[tuple[protocol.PairOf, ...], float]
"""Pairs of kernels to build ahead, and the time limit for it in seconds."""


class PairsAhead:
    """Pairs of processes that are started before they are needed, until `close` ends them.

    They open the device while the previous pair verifies, and import and build while it is measured.
    Importing takes longer than measuring. `new` starts a pair whose named side opens the device first; the
    sides alternate. Each method gets `new` as an argument, because a stored method would keep the session
    alive that owns these pairs.
    """

    def __init__(self) -> None:
        self._pairs: deque[TurnPair] = deque()
        self._count = 0
        self.most = 0
        """Most pairs that wait."""
        self.wanted: ToBuild = ((), 0.0)
        """Kernels that the waiting pairs build; empty until something is to be measured."""

    @property
    def pids(self) -> list[int]:
        return [pid for pair in self._pairs for pid in pair.pids]

    def close(self) -> None:
        while self._pairs:
            self._pairs.popleft().close()

    def next(self, new: NewPair) -> TurnPair:
        """Return the pair that was started first, or a new pair if there is none or its build failed."""
        with ExitStack() as stack:
            pair = self._pairs.popleft() if self._pairs else self._another(new)
            stack.callback(pair.close)  # an interrupt may come during the wait
            self.start(new, min(1, self.most))  # an interpreter takes time to start
            if pair.is_prepared():
                stack.pop_all()
                return pair
        self._give_up()  # the failing case is reported when it is built alone
        return self._another(new)

    def start(self, new: NewPair, more: int = 0) -> None:
        """Start pairs until there are `most`, and `more` beyond that. They do not open the device yet."""
        while self.wanted[0] and len(self._pairs) < self.most + more:
            self._pairs.append(self._another(new))

    def prepare(self, most: int | None = None) -> None:
        """Make the first pairs, up to `most`, open the device and build the wanted kernels.

        Call it only while nothing is timed: a process that opens the device disturbs the others.
        """
        try:
            for pair in islice(self._pairs, self.most if most is None else most):
                if not pair.is_open:
                    pair.prepare(*self.wanted)
        except HarnessError:  # for example a card without room for so many
            self._give_up()

    def _give_up(self) -> None:
        self.most = 0
        self.close()

    def _another(self, new: NewPair) -> TurnPair:
        self._count += 1
        return new(SIDES[self._count % 2])


def _or_failed(answer: Callable[[], R]) -> R | Failed:
    try:
        return answer()
    except _FailedError as error:
        return error.failed
    except HarnessError as error:
        return failure(error)


@contextmanager
def _at_fault(side: SideName) -> Iterator[None]:
    try:
        yield
    except WorkerError as error:
        error.side = error.side or side
        raise


class _FailedError(Exception):
    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed
