"""Whatever a process of ours starts ends with it, and it ends with the process that asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from harness.measure import protocol
from harness.system import process, ready, supervisor
from harness.system.process import LostError, Process, run_shell
from harness.system.ready import FRESH, ForkedProcess
from tests.support import IMPORT_PATH, write_files

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("started_workers")]

CHILD = """\
import ctypes, os, signal, sys, threading, time

def daemon(work):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            work()
        os._exit(0)
    os.wait()

def sleep():
    time.sleep(1000)

def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sleep()

def hop():
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)

def adopt():
    ctypes.CDLL(None).prctl(36, 1)  # the subreaper of what it leaves
    daemon(sleep)
    sleep()

def stop_supervisor():
    supervisor = os.getppid()
    while True:
        os.kill(supervisor, signal.SIGSTOP)

def answer(line):
    os.write(1, b'{"type":"Reply","value":{"tick_ns":500.0}}\\n')

"""
SERVE = "\nfor line in sys.stdin:\n    answer(line)\n"


def module(code: str) -> str:
    """A module that does nothing when it is imported, and runs this code when it is the main one."""
    body = textwrap.indent(code + SERVE, "    ")
    return f"{CHILD}\ndef main():\n{body}    return 0\n\nif __name__ == '__main__':\n    sys.exit(main())\n"


LEAVE = """\
for work in (sleep, ignore_signals, hop, adopt):
    daemon(work)
for _ in range(50):
    if os.fork() == 0:
        sleep()
"""


@pytest.fixture(params=["started", "forked"])
def begin(request, tmp_path, monkeypatch) -> Callable[[str], Process]:
    """Starts a module with this code, under a name that no other process has; or forks what imported it."""
    if request.param == "forked":
        request.getfixturevalue("ready_workers")

    def start(code: str) -> Process:
        write_files(tmp_path / "modules", {f"{name_in(tmp_path)}.py": module(code)})
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
        if request.param == "forked":
            process.begin_ready([name_in(tmp_path)])
        child = Process(name_in(tmp_path))
        assert isinstance(child._process, ForkedProcess) == (request.param == "forked"), child.why_fresh
        return child

    return start


def name_in(folder: Path) -> str:
    return f"child_of_{os.getpid()}_{folder.name.replace('-', '_')}"


def living(name: str) -> list[psutil.Process]:
    """Processes that run a module, and their supervisors; not the template of this process's forks."""
    found = psutil.process_iter(["cmdline"])
    template = ready._template and ready._template.pid
    return [each for each in found if name in " ".join(each.info["cmdline"] or ()) and each.pid != template]


@pytest.mark.parametrize("end", ["closed", "killed", "by itself"])
def test_all_that_a_process_has_left_ends_with_it(tmp_path, begin, end):
    code = LEAVE + ("def answer(line): os._exit(3)\n" if end == "by itself" else "")
    with closing(begin(code)) as child:
        if end == "by itself":
            with pytest.raises(LostError, match="exited with status 3"):
                child.ask(protocol.Timers(), 20)
        else:
            child.ask(protocol.Timers(), 20)
            assert len(living(name_in(tmp_path))) > 50
        if end == "killed":
            os.kill(child.pids()[-1], signal.SIGKILL)
            with pytest.raises(LostError, match="was ended by SIGKILL"):
                child.ask(protocol.Timers(), 20)
    assert not living(name_in(tmp_path))


ASKING = """\
import os, sys, time
from harness.measure import protocol
from harness.system.process import Process, begin_ready
begin_ready(sys.argv[1:])
child = Process(sys.argv[1])
child.ask(protocol.Timers(), 20)
if copy := os.fork():  # has each pipe open too
    print(copy, flush=True)
time.sleep(1000)
"""


def asks(code: str, word: str, modules: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, word],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([IMPORT_PATH, str(modules)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("fresh", ["1", ""], ids=["started", "forked"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=lambda end: end.name)
def test_all_ends_with_the_process_that_asked(tmp_path, monkeypatch, end, fresh):
    monkeypatch.setenv(FRESH, fresh)
    name = name_in(tmp_path)
    write_files(tmp_path / "modules", {f"{name}.py": module("daemon(sleep)\n")})
    with asks(ASKING, name, tmp_path / "modules") as asking:
        assert asking.stdout is not None
        copy = psutil.Process(int(asking.stdout.readline()))
        asking.send_signal(end)
        asking.wait()
        deadline = time.monotonic() + 30
        while (left := {*living(name)} - {copy}) and time.monotonic() < deadline:
            time.sleep(0.02)
        copy.kill()
    assert not left


ASKING_TWICE = """\
import sys
from harness.measure import protocol
from harness.system.process import Process
child = Process(sys.argv[1])
for _ in range(2):
    print(child.ask(protocol.Timers(), 0.5).tick_ns, flush=True)
    sys.stdin.readline()
child.close()
"""


def test_a_process_that_has_answered_has_no_deadline(tmp_path):
    name = name_in(tmp_path)
    write_files(tmp_path / "modules", {f"{name}.py": module("")})
    with asks(ASKING_TWICE, name, tmp_path / "modules") as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == b"500.0\n"
        asking.send_signal(signal.SIGSTOP)
        time.sleep(0.5 + supervisor._GRACE_S + 0.5)
        asking.send_signal(signal.SIGCONT)
        assert asking.communicate(b"\n\n")[0] == b"500.0\n"


RUNNING_A_SHELL = """\
import sys
from pathlib import Path
from harness.system.process import run_shell
print(run_shell(sys.argv[1], Path.cwd(), 1).status)
"""


def test_a_shell_that_stops_who_runs_it_has_its_deadline(tmp_path):
    told = tmp_path / "told"
    stops = f"echo $$ > {told}; kill -STOP $(sed 's/.*) . //; s/ .*//' /proc/$PPID/stat); sleep 1000"
    with asks(RUNNING_A_SHELL, stops, tmp_path) as asking:
        while psutil.Process(asking.pid).status() != psutil.STATUS_STOPPED:
            assert asking.poll() is None
            time.sleep(0.02)
        psutil.Process(int(told.read_text())).wait(timeout=60)
        asking.send_signal(signal.SIGCONT)
        assert asking.communicate()[0] == b"None\n"


@pytest.mark.parametrize("often", ["once", "always"])
def test_a_process_that_stops_its_supervisor_has_its_deadline(tmp_path, begin, monkeypatch, often):
    monkeypatch.setattr(process, "_PATIENCE_S", 0.5)
    stops = {"once": "os.kill(os.getppid(), signal.SIGSTOP)", "always": "stop_supervisor()"}[often]
    with closing(begin(f"daemon(stop_supervisor)\ndef answer(line): {stops}; sleep()\n")) as child:
        with pytest.raises(LostError) as caught:
            child.ask(protocol.Timers(), 1)
        assert caught.value.why == "timed-out"
    _, left = psutil.wait_procs(living(name_in(tmp_path)), timeout=20)  # a kill takes its time on a busy host
    assert not left


def test_a_process_that_kills_its_supervisor_ends_with_it(tmp_path, begin):
    child = begin("def answer(line): os.kill(os.getppid(), signal.SIGKILL); sleep()\n")
    with closing(child), pytest.raises(LostError, match="was ended by SIGKILL"):
        child.ask(protocol.Timers(), 20)
    assert not living(name_in(tmp_path))


def test_what_a_command_of_a_shell_leaves_ends_with_it(tmp_path):
    left = tmp_path / "left"
    done = run_shell(
        f"setsid sh -c 'echo $$ > {left}; sleep 1000' & until [ -s {left} ]; do :; done", tmp_path, 20
    )
    assert (done.status, done.log) == (0, "")
    assert not psutil.pid_exists(int(left.read_text()))
    late = run_shell(f"setsid sh -c 'echo $$ > {left}; sleep 1000'", tmp_path, 1)
    assert late.status is None
    assert not psutil.pid_exists(int(left.read_text()))


def test_parents_come_before_their_children():
    with subprocess.Popen(["sh", "-c", "sh -c 'echo; sleep 1000; :'; :"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout
        shell.stdout.readline()
        while len(below := [*supervisor.descendants(shell.pid)]) < 2:
            pass
        try:
            assert [psutil.Process(pid).ppid() for pid in below] == [shell.pid, below[0]]
        finally:
            supervisor.kill_descendants(shell.pid)
            shell.kill()


def test_a_process_starts_in_an_empty_folder_of_its_own(begin):
    tells = "os.write(2, b'%d in %s' % (len(os.listdir()), os.getcwd().encode()))\nopen('left', 'w')\n"
    folders = set()
    for _ in range(2):
        with closing(begin(tells)) as child:
            child.ask(protocol.Timers(), 20)
            entries, _, folder = child.log().partition(" in ")
            assert entries == "0"
            assert (Path(folder) / "left").exists()
        assert not Path(folder).parent.exists()
        folders.add(folder)
    assert len(folders) == 2


def test_an_import_path_names_no_folder_that_a_process_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"modules{os.pathsep}")
    tells = "os.write(2, repr(sys.path).encode())\n"
    write_files(tmp_path / "modules", {f"{name_in(tmp_path)}.py": module(tells)})
    with closing(Process(name_in(tmp_path))) as child:
        child.ask(protocol.Timers(), 20)
        assert repr(str(tmp_path / "modules")) in child.log()
        assert not any(repr(each) in child.log() for each in ("", str(tmp_path)))
