"""A pair whose sides have a process each: what is made of the answers of two made-up processes, and what one
answers.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.device.peaks import BeyondPeakError
from harness.errors import BuildError, WorkerError
from harness.measure import protocol
from harness.measure.protocol import SideName
from harness.measure.quads import PairSettings, Turn
from harness.run.device_session import most_ahead
from harness.run.two_workers import PairsAhead, TurnPair
from harness.system.process import Failed, failure
from tests import toy
from tests.pairs import opened_worker
from tests.support import write_files

MS = 1_000_000
SIDE = protocol.PairSide(suite="base", kernel="one")
PAIR = protocol.PairOf(id="toy.one[n=1]", sizes={"n": 1}, base=SIDE, head=SIDE)
BASE = protocol.WarmUpReply(
    time_ns=MS,
    l2="cold",
    clock="scripted",
    tick_ns=1.0,
    globaltimer_tick_ns=1000.0,
    warmup_s=0.25,
    settled=True,
    restored=False,
    by_graph=False,
)
HEAD = msgspec.structs.replace(BASE, time_ns=2 * MS, warmup_s=0.5)

TEN_QUADS = PairSettings(min_quads=10, max_quads=10)


class Host:
    """The clock of both processes, and what they were asked: the side and the request."""

    def __init__(self, warm: Mapping[str, protocol.WarmUpReply], answers: Mapping[str, object]) -> None:
        self.warm, self.answers = warm, answers
        self.now_ns = 0
        self.asked: list[tuple[str, Any]] = []
        self.order: list[str] = []
        self.opened: list[str] = []
        self.killed: list[str] = []
        self.closed: list[str] = []
        self.opened_before_loading: list[int] = []

    def open(self, side: str, _worker: object) -> Callable[[], object]:
        """Open a device, and begin to load a suite."""
        self.opened.append(side)
        return lambda: self.opened_before_loading.append(len(self.opened))

    def of(self, kind: type) -> list[tuple[str, Any]]:
        return [(side, request) for side, request in self.asked if isinstance(request, kind)]


class Worker:
    def __init__(self, side: str, host: Host) -> None:
        self.side, self.host = side, host

    def pids(self) -> list[int]:
        return [{"base": 1, "head": 2}[self.side]]

    def kill_soon(self) -> None:
        self.host.killed.append(self.side)

    def close(self) -> None:
        assert self.side in self.host.killed
        self.host.closed.append(self.side)

    def begin(self, request: Any, timeout_s: float) -> Callable[[Callable[[Any], object]], object]:
        assert timeout_s == 9
        self.host.asked.append((self.side, request))
        self.host.order.append(type(request).__name__)

        def answer(report: Callable[[Any], object]) -> object:
            self.host.order.append(f"{type(request).__name__} answered")
            found = self.host.answers.get(f"{type(request).__name__} {self.side}")
            if isinstance(found, threading.Barrier):
                found.wait(9)
                found = None
            if isinstance(found, BaseException):
                raise found
            return found or self.answer(request)

        return answer

    def answer(self, request: Any) -> object:
        match request:
            case protocol.Verify():
                return protocol.SideFacts(code=self.side)
            case protocol.WarmUp():
                return self.host.warm[self.side]
            case protocol.Take():
                return self.turn(request)
        if isinstance(request, protocol.Finish):
            return {"side": self.side}
        return None

    def turn(self, request: protocol.Take) -> Turn:
        """A slot of 1 ms at base and 2 ms at head, at 2000 MHz, within 10 ms of the host."""
        began_ns, self.host.now_ns = self.host.now_ns, self.host.now_ns + 10 * MS
        time_ns = self.host.warm[self.side].time_ns
        return Turn(
            time_ns=time_ns,
            cycles=2 * time_ns,
            sm_clock_mhz=2000.0,
            started_ns=began_ns,
            ended_ns=self.host.now_ns,
            canary_ns=5e4 if request.canary else None,
            canary_cycles=1e5 if request.canary else None,
        )


def compared(
    settings: PairSettings = TEN_QUADS,
    *,
    base: protocol.WarmUpReply = BASE,
    head: protocol.WarmUpReply = HEAD,
    seed: int = 1,
    answers: Mapping[str, object] = {},
    first: SideName = "base",
) -> tuple[Host, Any]:
    """What the pair answers; `answers` are by the request and the side, as "Take head"."""
    host = Host({"base": base, "head": head}, answers)
    pair = TurnPair(
        lambda side: Worker(side, host),  # type: ignore[arg-type, return-value]
        host.open,
        lambda stage: None,
        first,
    )
    pair.open()
    asked = protocol.Compare(pair=PAIR, seed=3, order_seed=seed, settings=settings)
    answer = pair.compare(asked, 9)
    assert sorted(pair.pids) == [1, 2]
    pair.close()
    assert sorted(host.closed) == ["base", "head"]
    return host, answer


def test_quads_are_made_of_turns_in_their_order():
    host, reply = compared()
    quads = reply.block.quads
    assert {quad.order for quad in quads} == {"ABBA", "BAAB"}
    sides = [side for side, _ in host.of(protocol.Take)]
    assert sides[:2] == ["base", "head"]  # the first turn of each counts nothing
    assert sides[2:] == [{"A": "base", "B": "head"}[arm] for quad in quads for arm in quad.order]
    for number, quad in enumerate(quads):
        assert quad.times_ns == tuple({"A": MS, "B": 2 * MS}[arm] for arm in quad.order)
        assert quad.cycles == tuple(2 * time_ns for time_ns in quad.times_ns)
        assert quad.sm_clock_mhz == (2000.0,) * 4
        assert (quad.canary_ns, quad.canary_cycles) == ((None, None) if number % 2 else (5e4, 1e5))
        assert (quad.started_ns, quad.ended_ns) == ((20 + 40 * number) * MS, (60 + 40 * number) * MS)


def test_the_turns_of_a_quad_are_on_the_same_data_and_of_as_many_launches():
    host, reply = compared()
    turns = [turn for _, turn in host.of(protocol.Take)]
    seeds = [turn.data_seed for turn in turns[2:]]
    assert [len(set(seeds[at : at + 4])) for at in range(0, len(seeds), 4)] == [1] * 10
    assert len(set(seeds)) == 10
    assert {turn.launches for turn in turns} == {1}  # each launch has its own interval
    assert [turn.canary for turn in turns] == [False, False, *[True, *[False] * 7] * 5]
    assert reply.block.launches_per_slot == 1


def test_a_turn_by_graph_has_a_power_of_two_of_launches():
    brief = {"time_ns": 8000.0, "l2": "hot", "by_graph": True}
    base, head = (msgspec.structs.replace(each, **brief) for each in (BASE, HEAD))
    assert compared(base=base, head=head)[1].block.launches_per_slot == 256
    restored = msgspec.structs.replace(base, restored=True)
    assert compared(base=restored, head=head)[1].block.launches_per_slot == 38  # a graph for each


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sides_build_and_verify_at_once_join_and_warm_up_apart_and_finish_with_their_own_time(seed):
    host, _ = compared(seed=seed)
    together = ["BuildSide", "Join", "Verify", "WarmUp"]
    at_once = [f"{kind}{said}" for kind in together for said in ("", "", " answered", " answered")]
    apart = [f"{kind}{said}" for kind in together for said in ("", " answered", "", " answered")]
    assert host.order[:16] == [*at_once[:4], *apart[4:8], *at_once[8:12], *apart[12:]]
    joined = host.of(protocol.Join)
    assert [(side, request.side) for side, request in joined] == [("head", "head"), ("base", "base")]
    assert joined[0][1].compare.order_seed != joined[1][1].compare.order_seed
    assert {request.compare.seed for _, request in joined} == {3}
    assert dict(host.of(protocol.Finish)) == {
        "base": protocol.Finish(time_ns=MS),
        "head": protocol.Finish(time_ns=2 * MS),
    }


def test_the_block_says_how_it_was_measured():
    _, reply = compared()
    block = reply.block
    assert {side: facts.code for side, facts in reply.sides.items()} == {"base": "base", "head": "head"}
    assert (block.l2, block.clock, block.tick_ns) == ("cold", "scripted", 1.0)
    assert block.warmup_s == 0.75
    assert block.gpu_s == pytest.approx(10 * 0.040)
    assert block.clock_noise == pytest.approx(1000 / MS / math.sqrt(6))
    assert (block.settled, block.restored, block.in_turns) == (True, False, True)
    _, reply = compared(head=msgspec.structs.replace(HEAD, settled=False, restored=True))
    assert (reply.block.settled, reply.block.restored) == (False, True)


@pytest.mark.parametrize(("max_time_s", "count"), [(0.5, 12), (3.5, 87)])
def test_a_block_in_turns_takes_as_long_as_was_asked(monkeypatch, max_time_s, count):
    """A quad takes 40 ms, and the sides scatter so much that the time decides."""
    scattered = itertools.cycle([0.8, 1.3, 0.9, 1.1, 1.0])
    turn = Worker.turn

    def scatter(worker: Worker, request: protocol.Take) -> Turn:
        taken = turn(worker, request)
        return msgspec.structs.replace(taken, time_ns=taken.time_ns * next(scattered))

    monkeypatch.setattr(Worker, "turn", scatter)
    asked = PairSettings(min_quads=5, max_quads=400, standard_error=1e-9, max_time_s=max_time_s)
    _, reply = compared(asked)
    assert len(reply.block.quads) == count


FAILED = Failed(reason="wrong-result", message="y[0] is 1; expected 2.")


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.parametrize("request_kind", ["BuildSide", "Join", "Verify", "WarmUp", "Take", "Finish"])
def test_what_fails_is_its_sides(side, request_kind):
    _, reply = compared(answers={f"{request_kind} {side}": FAILED})
    assert reply == msgspec.structs.replace(FAILED, side=side)
    own = msgspec.structs.replace(FAILED, side="base")
    assert compared(answers={f"{request_kind} {side}": own})[1] == own
    lost = WorkerError("It ended.")
    assert compared(answers={f"{request_kind} {side}": lost})[1] == msgspec.structs.replace(
        failure(WorkerError("It ended.")), side=side
    )


@pytest.mark.parametrize("first", ["base", "head"])
def test_head_fails_where_both_do(first):
    for kind in ("BuildSide", "Join", "Verify"):
        _, reply = compared(answers={f"{kind} base": FAILED, f"{kind} head": FAILED}, first=first)
        assert reply.side == "head"


@pytest.mark.parametrize("first", ["base", "head"])
def test_the_side_that_is_named_opens_the_device_builds_and_runs_first(first):
    host, _ = compared(first=first)
    for found in (host.opened, [side for side, _ in host.of(protocol.BuildSide)]):
        assert found == sorted(["base", "head"], reverse=first == "head")
    assert host.of(protocol.Take)[0][0] == first


def test_a_process_that_cannot_be_started_leaves_none_behind():
    host = Host({}, {})

    def open_device(side: SideName, worker: Any) -> Callable[[], object]:
        if side == "head":
            raise BuildError("There is no such device.")
        return host.open(side, worker)

    pair = TurnPair(lambda side: Worker(side, host), open_device, lambda stage: None, "base")  # type: ignore[arg-type, return-value]
    with pytest.raises(BuildError):
        pair.open()
    pair.close()
    assert sorted(host.closed) == ["base", "head"]


SUITE = (
    toy.TWICE
    + """\
SEEN = []


def function(case, stream):
    def call(x, y, n):
        SEEN.append(float(x[0]))
        y[:] = 2 * x

    return call


suite = Suite("turns", Twice(), headline="GFLOP/s", kernels=[Kernel("one", {"cpu": HostFunction(function)})])
"""
)
SHORT = PairSettings(warmup_min_s=0, warmup_max_s=0)
ASKED = protocol.Compare(
    pair=msgspec.structs.replace(PAIR, sizes={"n": 64}), seed=3, order_seed=1, settings=SHORT
)


class Side:
    """A process of one side on the CPU, and the data on which its kernel was called."""

    def __init__(self, folder: Path, **given: Any) -> None:
        write_files(folder, {"suite.py": SUITE})
        opened = protocol.Open(device="cpu:0", suite=str(folder), scratch=str(folder), **given)
        self.worker = opened_worker(opened)
        self.seen: list[float] = type(self.worker.suite.problem).reference.__globals__["SEEN"]

    def ask(self, request: Any) -> tuple[Any, list[float]]:
        """The answer, and the data of the calls meanwhile."""
        before = len(self.seen)
        answer = self.worker.answer(request)
        return answer, self.seen[before:]


def test_the_slots_of_a_quad_are_on_the_same_data_at_both_sides(tmp_path):
    def last(side: SideName, order_seed: int) -> list[float]:
        own = Side(tmp_path / side)
        asked = msgspec.structs.replace(ASKED, order_seed=order_seed)
        own.ask(protocol.Join(compare=asked, side=side))
        own.ask(protocol.Verify())
        own.ask(protocol.WarmUp())
        turns = (protocol.Take(launches=1, data_seed=seed, lead_in_s=0.0) for seed in (*range(10), 0, 0))
        return [own.ask(turn)[1][-1] for turn in turns]

    base, head = last("base", 1), last("head", 2)
    assert len(set(base)) == 2
    changed = [before != after for before, after in itertools.pairwise(base)]
    assert changed == [before != after for before, after in itertools.pairwise(head)]
    assert set(base) == set(head)


def test_a_side_that_nobody_verified_before_meets_data_in_the_end_that_it_has_not_seen(tmp_path):
    own = Side(tmp_path)
    verified: dict[str, str] = {}
    for new in (1, 0):
        own.ask(protocol.Join(compare=msgspec.structs.replace(ASKED, verified=verified), side="head"))
        found, seen = own.ask(protocol.Verify())
        seen += own.ask(protocol.WarmUp())[1]
        turn, _ = own.ask(protocol.Take(launches=1, data_seed=1, lead_in_s=0.0))
        done, at_end = own.ask(protocol.Finish(time_ns=turn.time_ns))
        assert done["sys.getrecursionlimit"]
        assert len(set(at_end) - set(seen)) == new
        verified = {"head": found.digest}


def test_a_side_that_is_faster_than_the_device_can_be_is_refused(tmp_path):
    own = Side(tmp_path, peaks={"float32": 1.0})
    own.ask(protocol.Join(compare=ASKED, side="head"))
    own.ask(protocol.Verify())
    with pytest.raises(BeyondPeakError, match="64 GFLOP/s") as caught:
        own.ask(protocol.Finish(time_ns=1.0))
    assert caught.value.side == "head"


def new_pair_of(host: Host) -> Callable[[SideName], TurnPair]:
    return lambda first: TurnPair(
        lambda side: Worker(side, host),  # type: ignore[arg-type, return-value]
        host.open,
        lambda stage: None,
        first,
    )


def pairs_ahead(most: int) -> PairsAhead:
    ahead = PairsAhead()
    ahead.most, ahead.wanted = most, ((PAIR,), 9.0)
    return ahead


def test_the_next_pairs_build_while_one_is_measured_and_another_side_comes_first_each_time():
    host, ahead = Host({"base": BASE, "head": HEAD}, {}), pairs_ahead(2)
    new = new_pair_of(host)

    def meanwhile() -> None:
        host.order.append("meanwhile")
        ahead.prepare()

    ahead.start(new, 1)
    ahead.prepare(1)
    assert host.opened == ["head", "base"]
    assert host.opened_before_loading == [2, 2]
    for first in ("head", "base", "head"):
        pair = ahead.next(new)
        assert pair.is_open
        opened = len(host.opened)
        asked = protocol.Compare(pair=PAIR, seed=3, order_seed=1, settings=TEN_QUADS)
        pair.compare(asked, 9, meanwhile)
        assert host.of(protocol.BuildSide)[-2][0] == first
        assert len(host.opened) - opened == (4 if host.order.count("meanwhile") == 1 else 2)
    begun = [each for each in host.order if not each.endswith("answered")]
    at = begun.index("meanwhile")
    assert begun[at - 2 : at] == ["Verify", "Verify"]
    assert begun[at + 1 : at + 5] == ["Inspect"] * 4  # of both pairs that wait
    assert len(ahead.pids) == 6  # two pairs that have the device open, and one more that does not
    ahead.close()
    assert len(host.closed) == 6


def test_the_questions_of_both_sides_are_answered_while_they_verify():
    both = threading.Barrier(2)
    host = Host({"base": BASE, "head": HEAD}, {"Verify head": both, "Verify base": both})
    asked = protocol.Compare(pair=PAIR, seed=3, order_seed=1, settings=TEN_QUADS)
    pair = new_pair_of(host)("base")
    assert not isinstance(pair.compare(asked, 9), Failed)
    assert not both.broken


def test_a_pair_that_had_no_time_to_open_the_device_is_not_a_failed_one():
    host, ahead = Host({}, {}), pairs_ahead(1)
    ahead.start(new_pair_of(host))
    assert not ahead.next(new_pair_of(host)).is_open
    assert (ahead.most, len(ahead.pids)) == (1, 4)
    ahead.close()


def test_without_room_for_pairs_ahead_there_are_none():
    host, ahead = Host({}, {"Inspect head": FAILED}), pairs_ahead(2)
    ahead.start(new_pair_of(host))
    ahead.prepare()
    assert not ahead.next(new_pair_of(host)).is_open
    assert (ahead.most, ahead.pids, len(host.closed)) == (0, [], 8)


def test_an_interrupt_while_the_next_pair_builds_leaves_no_process():
    host, ahead = Host({}, {"Inspect head": KeyboardInterrupt()}), pairs_ahead(1)
    ahead.start(new_pair_of(host))
    ahead.prepare()
    with pytest.raises(KeyboardInterrupt):
        ahead.next(new_pair_of(host))
    ahead.close()
    assert len(host.closed) == 6


@pytest.mark.parametrize(
    ("kind", "cpus", "free_gib", "gib", "most"),
    [
        ("gpu", 16, 64, 80, 3),
        ("gpu", 8, 64, 24, 2),
        ("gpu", 32, 64, 12, 1),
        ("gpu", 32, 7, 80, 1),
        ("gpu", 2, 64, 80, 0),
        ("cpu", 64, 64, 512, 0),
    ],
)
def test_pairs_ahead_leave_room_on_the_host_and_the_card(monkeypatch, kind, cpus, free_gib, gib, most):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free_gib * 2**30))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(cpus))
    device = SimpleNamespace(kind=kind, memory_bytes=gib * 2**30)
    assert most_ahead(device) == most  # type: ignore[arg-type]
