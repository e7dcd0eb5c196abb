"""Processes of a suite as another user: what such a process can and cannot reach, tried in namespaces.

The interpreter is the system's, which every user may run. Without root, or where no namespace can be made,
these skip.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

PYTHON = "/usr/bin/python3"
HELPER = ROOT / "harness" / "assets" / "runner" / "suite-user.py"
RELAY = ROOT / "harness" / "system" / "relay.py"
USER, NUMBER = "nobody", 65534
PROBE = """
import json, os, socket, sys
from pathlib import Path
asked = json.loads(sys.stdin.readline())
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
answer = {
    "uid": os.getuid(), "groups": os.getgroups(), "token": os.environ.get("ACTIONS_RUNTIME_TOKEN"),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "connected": tried(lambda: socket.create_connection(("127.0.0.1", asked["port"]), 2) and "yes"),
    "read": tried(lambda: Path(asked["secret"]).read_text()),
    "signalled": tried(lambda: os.kill(asked["pid"], 0)),
    "capabilities": [l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("CapEff")],
}
print(json.dumps(answer), flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "die":
        os.abort()
    if word == "be killed":
        os.kill(os.getpid(), 9)
    if word == "leave":
        if os.fork() == 0:
            os.setsid()
            while True: pass
    if word == "have brief ones":
        if os.fork() == 0:
            while True:
                if (brief := os.fork()) == 0:
                    os._exit(0)
                os.waitpid(brief, 0)
    if word.startswith("exit "):
        sys.exit(int(word[5:]))
    print("done", flush=True)
"""


def namespaces_work() -> bool:
    tools = all(map(shutil.which, ("unshare", "setpriv"))) and Path(PYTHON).exists()
    command = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"]
    if os.geteuid() != 0 or not tools:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not namespaces_work(), reason="only root can make these namespaces")


@pytest.fixture
def folder() -> Iterator[Path]:
    """That every user can read: pytest's own are for their owner."""
    made = Path(tempfile.mkdtemp(prefix="suite-user-"))
    made.chmod(0o755)
    (made / "probe.py").write_text(PROBE)
    (made / "cache").mkdir()
    shutil.copy(HELPER, made)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The socket, and behind it what systemd starts for each connection."""
    address = str(folder / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    started: list[subprocess.Popen[bytes]] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            command = [PYTHON, "-I", str(folder / "suite-user.py"), USER, str(folder / "cache")]
            with connection:
                started.append(subprocess.Popen(command, stdin=connection.fileno()))

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield address
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for each in started:
        each.wait(timeout=20)


Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(folder: Path, address: str) -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "ACTIONS_RUNTIME_TOKEN": "secret"}
        command = [PYTHON, str(RELAY), address, PYTHON, "-m", "probe"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen(command, cwd="/", env=variables, start_new_session=True, **pipes))
        return begun[-1]

    yield run
    for each in begun:
        each.kill()
        each.communicate()


def ask(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return process.stdout.readline()


def of_user() -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                found += [int(path.name)] if path.stat().st_uid == NUMBER else []
    return found


def until(what: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 20
    while not what() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(what())


def test_a_process_of_a_suite_reaches_nothing_of_the_runner_s(start: Start, folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text("token")
    secret.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asked = {"port": port, "secret": str(secret), "pid": os.getpid()}
        found = json.loads(ask(start(), json.dumps(asked)))
    assert (found["uid"], found["groups"], found["token"]) == (NUMBER, [], None)
    assert found["capabilities"] == ["CapEff:\t0000000000000000"]
    assert found["read"] == "PermissionError"
    assert found["connected"] == "OSError"  # no network at all, this machine's own neither
    assert found["signalled"] == "ProcessLookupError"
    assert len(found["processes"]) == 2  # itself, and what waits for it


NOTHING = json.dumps({"port": 9, "secret": "/", "pid": 1})


def test_it_ends_with_whoever_asked_for_it_and_what_it_left_ends_too(start: Start) -> None:
    before = set(of_user())
    process = start()
    ask(process, NOTHING)
    assert ask(process, "leave") == "done\n"
    assert until(lambda: len(set(of_user()) - before) >= 2)
    process.kill()
    assert until(lambda: set(of_user()) <= before)


@pytest.mark.parametrize(
    ("word", "status"), [("exit 7", 7), ("exit 255", 255), ("die", -6), ("be killed", -9)]
)
def test_its_end_is_the_end_of_who_stands_in_for_it(start: Start, word: str, status: int) -> None:
    process = start()
    ask(process, NOTHING)
    assert ask(process, word) == ""
    assert process.wait(timeout=20) == status


def test_it_is_stopped_and_woken_and_its_number_is_told(start: Start) -> None:
    process = start()
    ask(process, NOTHING)
    told = Path(f"/proc/{process.pid}/comm")
    assert until(lambda: told.read_text().startswith("for "))
    inner = int(told.read_text().split()[1])
    assert Path(f"/proc/{inner}").stat().st_uid == NUMBER

    def state() -> str:
        return Path(f"/proc/{inner}/stat").read_text().rpartition(") ")[2][0]

    os.kill(process.pid, signal.SIGUSR1)
    assert until(lambda: state() == "T")
    os.kill(process.pid, signal.SIGUSR2)
    assert until(lambda: state() != "T")
    assert ask(process, "more") == "done\n"


def test_one_of_it_may_end_while_all_are_stopped(start: Start) -> None:
    process = start()
    ask(process, NOTHING)
    ask(process, "have brief ones")
    for _ in range(200):
        os.kill(process.pid, signal.SIGUSR1)
        os.kill(process.pid, signal.SIGUSR2)
        time.sleep(0.002)
    assert ask(process, "more") == "done\n"


def test_what_a_request_names_is_never_root_s(address: str, folder: Path) -> None:
    """Tools and libraries of its own, and a folder that only root may enter."""
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "note").write_text("for root")
    marks = folder / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    tools = folder / "tools"
    tools.mkdir()
    for name in ("unshare", "setpriv", "env", "sh"):
        (tools / name).write_text(f'#!/bin/bash -p\nid -u >> {marks}/$$\nexec /usr/bin/"${{0##*/}}" "$@"\n')
        (tools / name).chmod(0o755)

    def answered(cwd: Path, env: dict[str, str]) -> str:
        request = {"arguments": ["sh", "-c", "id -u; cat note"], "cwd": str(cwd), "env": env}
        with socket.socket(socket.AF_UNIX) as connection, tempfile.TemporaryFile("w+") as out:
            connection.connect(address)
            socket.send_fds(connection, [json.dumps(request).encode()], [out.fileno()] * 3)
            connection.makefile("rb").read()
            out.seek(0)
            return out.read()

    answered(folder, {"PATH": f"{tools}:/usr/bin:/bin"})
    users = {mark.read_text().strip() for mark in marks.iterdir()}
    assert users == {str(NUMBER)}
    assert "for root" not in answered(hidden, {"PATH": "/usr/bin:/bin"})
