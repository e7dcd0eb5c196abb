"""Workers that open the device before their turn, on the null device, which takes any number of them."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from harness.measure import early_worker, protocol, worker
from harness.measure.timing import MeasureSettings
from harness.run import device_session, worker_process
from harness.run.device_session import DeviceSession
from harness.run.run import Session, SessionSettings
from harness.run.worker_process import WorkerProcess, opening
from harness.suite.loader import load
from harness.suite.planning import plan
from harness.system.process import Failed
from tests import toy
from tests.support import Recorder, statuses, write_files


@pytest.fixture(autouse=True)
def room_for_two(monkeypatch):
    """Open ahead as on a GPU: the null device's processes disturb none, and take next to nothing."""
    monkeypatch.setattr(device_session, "most_ahead", lambda device: 2)


@pytest.fixture
def opened(monkeypatch):
    """The workers that were asked to open a device, in order."""
    begin, asked = WorkerProcess.begin_open, []

    def watched(worker, *given, **named):
        asked.append(worker)
        return begin(worker, *given, **named)

    monkeypatch.setattr(WorkerProcess, "begin_open", watched)
    return asked


def session_of(project, **given):
    return DeviceSession(Recorder(), project.suite, device="null", **given)


def ticks(session):
    reply = session.ask(protocol.Timers(), 20)
    assert not isinstance(reply, Failed), reply
    return session._child


def test_three_open_together_and_none_opens_while_another_may_be_timed(project, opened):
    with session_of(project) as session:
        session.wanted = 5
        first = ticks(session)
        assert opened == [session.builder, first, *(ahead.worker for ahead in session._ahead)]
        assert all(ahead.opened is None for ahead in session._ahead)
        assert {*session._own_pids()} >= {pid for worker in opened[1:] for pid in worker.pids()}
        for number in (1, 2):
            session.leave()
            assert ticks(session) is opened[1 + number]
            assert len(opened) == 4
        session.leave()
        assert ticks(session) is opened[4]
        assert len(opened) == 6
    assert all(worker.has_ended() for worker in opened)


@pytest.mark.parametrize("at_once", [False, True], ids=["shared imports", "imports of its own"])
def test_the_first_session_takes_the_worker_that_opens_its_device_early(
    project, opened, at_once, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker_process, "_NVIDIA", tmp_path if at_once else tmp_path / "none")
    with opening("null"):
        [early] = opened
        for builds in (True, False):
            with session_of(project) as session:
                assert (session.builder is early) == builds
                assert session.builder.ask(protocol.Timers(), 20)
        assert len(opened) == 3  # twice for suites, and once by the second session
    assert all(worker.has_ended() for worker in opened)


@pytest.mark.parametrize(
    ("spec", "index"), [("", 0), ("cuda", 0), ("cuda:3", 3), ("null", None), ("opencl:0", None)]
)
def test_an_early_worker_retains_the_context_of_the_card_that_it_will_open(spec, index, monkeypatch):
    calls = []

    class Driver:
        def __getattr__(self, name):
            def call(*given):
                calls.append((name, given))
                return 0

            return call

    monkeypatch.setattr("ctypes.CDLL", lambda name: Driver())
    assert early_worker._card(spec) == index
    assert early_worker.retain_context(index or 0)
    assert [name for name, _ in calls] == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]
    assert calls[1][1][1] == (index or 0)
    monkeypatch.undo()
    assert not early_worker.retain_context(0, "libnothing.so.9"), "PyCUDA says why"


@pytest.mark.parametrize(("spec", "others"), [("cuda:1", [2, 3]), ("null:1", [])])
def test_a_worker_opens_the_cards_after_its_own(spec, others, monkeypatch):
    opened: list[int] = []
    monkeypatch.setattr(worker, "retain_context", opened.append)
    device = SimpleNamespace(info=SimpleNamespace(spec=spec))
    monkeypatch.setattr(worker, "open_device", lambda spec: device)
    asked = protocol.Open(device=spec, suite=None, scratch="", cards=3)
    worker.Worker(asked, None)  # type: ignore[arg-type]
    assert opened == others


def test_an_early_worker_on_another_device_is_ended(project, opened, null_script):
    null_script({"cards": [{}, {}]})
    with opening("null:1"), session_of(project) as session:
        assert session.device.spec == "null:0"
        assert opened[0].has_ended()


def test_a_worker_verifies_while_another_opens_the_device_and_times_when_it_has(project):
    with session_of(project) as session:
        session.wanted = 2
        session.open_ahead()
        slow = session._ahead[1].worker.pids()[-1]
        os.kill(slow, signal.SIGSTOP)
        seen: dict[str, bool] = {}

        def stage(name: str) -> None:
            seen.setdefault(name, session._ahead[0].opened is None)
            if name == "verify":
                os.kill(slow, signal.SIGCONT)

        session.observer.stage = stage
        asked = protocol.Measure(kernel="plain", sizes={"n": 64}, seed=1, settings=MeasureSettings())
        assert session.ask(asked, 20).status == "measured"
        assert (seen["reference"], seen["measure"]) == (False, True)
        session.leave()
        session.wanted = 2
        assert session.ask(asked, 20).status == "measured"
        assert [ahead.opened for ahead in session._ahead] == [None], "it was opened meanwhile"


def test_a_lost_device_is_lost_to_workers_that_opened_it_before(project, null_script):
    """On a card these would fail one case each, before anybody sees that the card is gone."""
    null_script({"toy.plain": {"fault": "lost"}})
    loaded = load(project.suite)
    with Session(loaded, SessionSettings(device="null:0"), Recorder()) as session:
        result = session.run(plan(loaded.suite, quick=True))
    assert [row.reason for row in result.rows] == ["crashed", "no-device"]


@pytest.mark.parametrize("early", [False, True], ids=["once asked", "before"])
@pytest.mark.parametrize("victim", ["next", "another"])
def test_a_worker_that_cannot_open_ahead_costs_no_case(project, opened, victim, early, monkeypatch):
    begin, number = WorkerProcess.begin_open, 0 if victim == "next" else 1

    def as_it_ends(worker, *given, **named):
        if len(opened) != before + number:
            return begin(worker, *given, **named)
        [pid, *_] = worker.pids()
        if early:
            worker.kill()
            return begin(worker, *given, **named)
        os.kill(pid, signal.SIGSTOP)  # once it has opened the device, a request is lost with it
        opening = begin(worker, *given, **named)
        os.kill(pid, signal.SIGKILL)
        return opening

    with session_of(project) as session:
        before = len(opened)
        monkeypatch.setattr(WorkerProcess, "begin_open", as_it_ends)
        session.wanted = 3
        session.open_ahead()
        dies = session._ahead[number].worker
        found = ticks(session)
        assert found is not dies
        assert not session._ahead
        session.leave()
        assert ticks(session) is opened[-1]
        assert not session._ahead


@pytest.fixture
def asked(monkeypatch):
    """The names of requests, each with the worker that was asked, in order."""
    ask, found = WorkerProcess.ask, []

    def watched(worker, request, *given):
        found.append((type(request).__name__, worker))
        return ask(worker, request, *given)

    monkeypatch.setattr(WorkerProcess, "ask", watched)
    return found


def test_a_check_asks_the_process_that_found_the_device_first(project, opened, asked):
    loaded = load(project.suite)
    planned = plan(loaded.suite, (), (), quick=True)
    with Session(loaded, SessionSettings(device="null", measure=None), Recorder()) as session:
        rows = session.run(planned).rows
        builder = session.builder
    assert {status for _, status, _ in statuses(rows)} == {"not-built"}
    measured = [worker for name, worker in asked if name == "Measure"]
    assert ("BuildAll", builder) in asked
    assert measured[0] is builder
    kernels = [row.kernel for row in rows]
    alone = {
        kernel: {id(measured[place]) for place, each in enumerate(kernels) if each == kernel}
        for kernel in kernels
    }
    assert all(len(workers) == 1 for workers in alone.values())
    assert len({next(iter(workers)) for workers in alone.values()}) == len(alone)
    assert all(worker.has_ended() for worker in opened)


def test_a_session_that_runs_case_by_case_asks_its_builder_once(project):
    loaded = load(project.suite)
    with Session(loaded, SessionSettings(device="null", measure=None), Recorder()) as session:
        assert not session.run([]).rows  # as where the device can run none of the cases
        rows = [row for each in plan(loaded.suite, (), (), quick=True) for row in session.run([each]).rows]
    assert len(rows) > 1
    assert {status for _, status, _ in statuses(rows)} == {"not-built"}


FUNCTIONS = (
    toy.TWICE
    + """\
kernels = [Kernel(name, {"cpu": HostFunction(double)}) for name in ("one", "two")]
suite = Suite("twice", Twice(), kernels, headline="GB/s")
"""
)


@pytest.mark.parametrize("names", [("one",), ("one", "two")], ids=" and ".join)
def test_no_function_is_verified_where_that_of_another_kernel_has_run(tmp_path, asked, names):
    write_files(tmp_path, {"twice/suite.py": FUNCTIONS})
    loaded = load(tmp_path / "twice")
    with Session(loaded, SessionSettings(device="cpu:0", measure=None), Recorder()) as session:
        rows = session.run(plan(loaded.suite, names, ())).rows
        builder = session.builder
    assert [status for _, status, _ in statuses(rows)] == ["verified"] * len(names), rows
    first = next(worker for name, worker in asked if name == "Measure")
    assert (first is builder) == (len(names) == 1)
