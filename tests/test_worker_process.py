"""Requests and answers of a worker process. Both are typed, a field says whose fault a failure is, and no
answer to an abandoned request reaches the next one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from harness.errors import DeviceError, UsageError, WorkerError
from harness.measure import protocol
from harness.run.run import Session, SessionSettings
from harness.run.worker_process import WorkerProcess
from harness.suite.loader import load
from harness.suite.sources import Program
from harness.system.file_access import commands_told, watch
from harness.system.process import Failed, Process, Progress, failure, module_command
from tests import toy
from tests.pairs import opened_worker
from tests.support import KERNELS, Recorder, write_files

TICKS = '{"type":"Reply","value":{"tick_ns":500.0}}'
FAKE = """\
import fcntl, os, signal, sys, time
for line in sys.stdin:
    for answer in {answers!r}:
        if answer == "end":
            os._exit(3)
        if answer == "signal":
            os.kill(os.getpid(), signal.SIGRTMIN + 1)
        if answer == "hang":
            time.sleep(60)
        if answer == "babble":
            fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 2**20)
            while True:  # faster than anybody reads
                os.write(1, 1000 * b'{{"type":"Progress","stage":"verify","side":"head"}}\\n')
        if answer == "deep":
            answer = '{{"type":"Reply","value":{{"tick_ns":500.0,"more":' + "[" * 100_000
        sys.stdout.buffer.write(answer.encode(errors="surrogateescape") + b"\\n")
        sys.stdout.flush()
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    """A child that answers every request with these lines."""
    begun: list[WorkerProcess] = []

    def begin(*answers: str) -> WorkerProcess:
        (tmp_path / "fake_worker.py").write_text(FAKE.format(answers=answers))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        real = Process.__init__
        monkeypatch.setattr(
            Process, "__init__", lambda self, _module, **given: real(self, "fake_worker", **given)
        )
        begun.append(WorkerProcess(tmp_path))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


@pytest.mark.parametrize(
    ("name", "value"), [("CUDA_LAUNCH_BLOCKING", "0"), ("CUDA_DEVICE_MAX_CONNECTIONS", "8")]
)
def test_what_would_spoil_times_is_taken_back(tmp_path, monkeypatch, name, value):
    monkeypatch.setenv(name, "1")
    text = f"import os\nraise ValueError('it is ' + os.environ[{name!r}])\n"
    write_files(tmp_path, {"suite.py": text})
    with closing(WorkerProcess(tmp_path)) as worker, pytest.raises(UsageError, match=f"it is {value}"):
        worker.begin_open("null", tmp_path)()


def test_cases_are_compiled_side_by_side_before_one_is_measured(tmp_path):
    opened = protocol.Open(device="null", suite=str(KERNELS / "copy"), scratch=str(tmp_path))
    worker = opened_worker(opened)
    names = ("copy", "copy_unrolled")
    compiled: list[Program] = []
    worker.device.compile = compiled.append  # type: ignore[assignment,method-assign]
    cases = tuple(protocol.CaseOf(kernel=name, sizes={"rows": 8, "cols": 8}) for name in names)
    worker.pairs.build_all(protocol.BuildAll(cases=cases))
    assert {program.name for program in compiled} == {f"copy.{name}" for name in names}


def test_the_answer_has_the_type_that_the_request_says(child):
    heard: list[Progress] = []
    answer = child('{"type":"Progress","stage":"verify","side":"head"}', TICKS).ask(
        protocol.Timers(), 10, heard.append
    )
    assert answer == protocol.TimersReply(tick_ns=500.0)
    assert heard == [Progress("verify", "head")]


@pytest.mark.parametrize(
    "line",
    [
        *("hello", "{}", "deep", '{"type":"Progress","stage":"\udcff"}'),
        '{"type":"Reply","value":3}',
        '{"type":"Reply","value":{"tick_ns":"much"}}',
    ],
)
def test_another_answer_is_none(child, line):
    with pytest.raises(WorkerError, match="sent no valid answer while building the kernel"):
        child(line).ask(protocol.Timers(), 10)


@pytest.mark.parametrize(
    ("end", "reason", "words"),
    [
        ("end", "crashed", "The worker process exited with status 3 while verifying head."),
        ("signal", "crashed", "The worker process was ended by signal 35 while verifying head."),
        ("hang", "timed-out", "No answer within 1 s while verifying head: the worker process was ended."),
        ("babble", "timed-out", "No answer within 1 s while verifying head: the worker process was ended."),
    ],
)
def test_whose_turn_it_was_is_a_field(child, end, reason, words):
    with pytest.raises(WorkerError) as caught:
        child('{"type":"Progress","stage":"verify","side":"head"}', end).ask(protocol.Timers(), 1)
    assert (caught.value.reason, caught.value.side) == (reason, "head")
    assert words in caught.value.message


def test_a_stage_that_ends_with_a_sides_name_is_nobodys_fault(child):
    with pytest.raises(WorkerError) as caught:
        child('{"type":"Progress","stage":"measure head"}', "end").ask(protocol.Timers(), 10)
    assert caught.value.side == ""


def test_an_error_is_told_with_its_side():
    error = DeviceError("Gone.", log="long")
    error.side = "base"
    assert failure(error) == Failed(reason="no-device", message="Gone.", log="long", exit_code=3, side="base")


def test_an_interrupted_request_leaves_no_answer_for_the_next(tmp_path, monkeypatch):
    loaded = load(write_files(tmp_path, toy.FILES) / "kernels" / "toy")
    with Session(loaded, SessionSettings(device="null"), Recorder()) as session:
        answer = session.ask(protocol.Timers(), 30)
        assert isinstance(answer, protocol.TimersReply)
        assert session.started

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(WorkerProcess, "ask", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.ask(protocol.Timers(), 30)
        assert not session.started
        answer = session.ask(protocol.Timers(), 30)
        assert isinstance(answer, protocol.TimersReply)


def test_a_process_that_watches_twice_notes_once():
    heard: list[str] = []
    watch()
    watch()
    with commands_told(heard.append):
        subprocess.run(["true"], check=True)
        subprocess.run(["true", "--version"], check=True)  # it compiles nothing
    assert heard == ["true"]


@pytest.mark.usefixtures("started_workers")
def test_what_a_suite_left_in_its_folder_is_not_run_as_this_user(tmp_path, monkeypatch):
    """The suite's user can write there; who asks for its processes is this user's, with its tokens."""
    planted = write_files(
        tmp_path / "scratch",
        {
            "harness/__init__.py": "",
            "harness/system/__init__.py": "",
            "harness/system/relay.py": "open('ran', 'w')",
            "json.py": "open('ran', 'w')",
        },
    )
    asked: list[list[str]] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                request, files, _, _ = socket.recv_fds(connection, 2**20, 3)
                asked.append(json.loads(request)["arguments"])
                for file in files:
                    os.close(file)
                connection.sendall(b"0\n7")

        monkeypatch.setenv("HARNESS_SUITE_SOCKET", str(tmp_path / "socket"))
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        process = Process("harness.measure.worker", python="/opt/python")
        assert process.wait(time.monotonic() + 20)
        log = process.log()
        assert not (planted / "ran").exists()
        assert process.kill() == 7, log
        process.close()
        thread.join(20)
    assert asked == [module_command("harness.measure.worker", None, "/opt/python")]


FIRST_LOOKS = """
import sys
import threading
import msgspec
from harness.measure import protocol, remote_suite
from harness.system import process

sys.setswitchinterval(1e-6)
at_once = threading.Barrier(4)

def decode_all():
    at_once.wait()
    for kind in process.Request.__subclasses__():
        for content in (b'{"type":"Reply","value":{}}', b'{"type":"Failed","reason":"a","message":"b"}'):
            try:
                process._decoder(kind).decode(content)
            except msgspec.ValidationError:
                pass

threads = [threading.Thread(target=decode_all) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_decode_a_message_for_the_first_time_do_not_end_the_process():
    """Each of several cards is driven by a thread. Without a lock this was a segmentation fault each time."""
    done = subprocess.run([sys.executable, "-c", FIRST_LOOKS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
