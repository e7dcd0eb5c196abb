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

from tests.support import ROOT, open_folder

PYTHON = "/usr/bin/python3"
HELPER = ROOT / "harness" / "ci" / "runner" / "suite-user.py"
RELAY = ROOT / "harness" / "system" / "relay.py"
USER, NUMBER = "nobody", 65534
PATIENCE = "PATIENCE_S = 5.0\n"
"""Time that a client has for its request. A test need not wait as long."""
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
    made = open_folder("suite-user-")
    (made / "probe.py").write_text(PROBE)
    (made / "cache").mkdir()
    text = HELPER.read_text(encoding="utf-8")
    assert PATIENCE in text
    (made / "suite-user.py").write_text(text.replace(PATIENCE, "PATIENCE_S = 0.5\n"), encoding="utf-8")
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
            with connection, (folder / "journal").open("a") as journal:
                started.append(subprocess.Popen(command, stdin=connection.fileno(), stderr=journal))

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


ATTACKS = """
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": {"clone": 56, "clone3": 435}, "aarch64": {"clone": 220, "clone3": 435}}
def answer(call, *arguments):
    status = call(*arguments)
    return "done" if status >= 0 else errno.errorcode[ctypes.get_errno()]
by_number = numbers[__import__("os").uname().machine]
wanted = (ctypes.c_uint64 * 8)(0x10000000, *[0] * 7)
print(json.dumps({
    "unshare user": answer(libc.unshare, 0x10000000),
    "unshare net": answer(libc.unshare, 0x40000000),
    "clone user": answer(libc.syscall, by_number["clone"], 0x10000011, 0, 0, 0, 0),
    "clone3 user": answer(libc.syscall, by_number["clone3"], wanted, 64),
    "mount": answer(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None),
    "umount": answer(libc.umount2, b"/proc", 2),
    "setns": answer(libc.setns, 0, 0),
}))
__import__("threading").Thread(target=print, args=["a thread"]).start()
"""


def outcome(address: str, *command: str, **environ: str) -> tuple[int, str, str]:
    """Run a command as the second user: its status, its output, its errors."""
    variables = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **environ}
    done = subprocess.run(
        [PYTHON, "-I", str(RELAY), address, *command],
        env=variables,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_it_makes_no_namespace_and_no_mount(address: str) -> None:
    status, said, errors = outcome(address, PYTHON, "-c", ATTACKS)
    assert (status, errors) == (0, "")
    attacks, thread = said.splitlines()
    assert json.loads(attacks) == {
        "unshare user": "EPERM",
        "unshare net": "EPERM",
        "clone user": "EPERM",
        "clone3 user": "ENOSYS",
        "mount": "EPERM",
        "umount": "EPERM",
        "setns": "EPERM",
    }
    assert thread == "a thread"
    script = "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /mnt && echo MOUNTED'"
    status, said, errors = outcome(address, "/bin/sh", "-c", script)
    assert (status, said) == (1, "")
    assert "Operation not permitted" in errors


@pytest.mark.parametrize("kilobytes", [1, 100, 1000])
def test_a_request_of_any_size_works(address: str, kilobytes: int) -> None:
    texts = {f"HARNESS_{number}": "z" * 100_000 for number in range(kilobytes // 100)}
    status, said, errors = outcome(address, "/usr/bin/env", **texts)
    assert (status, errors) == (0, "")
    assert sum(len(line) - len("HARNESS_0=") for line in said.splitlines() if "=zz" in line) == sum(
        map(len, texts.values())
    )


def test_what_linux_does_not_start_is_refused_with_a_sentence(address: str) -> None:
    assert outcome(address, "/bin/true", "x" * 130_000) == (0, "", "")
    answer = refusal(address, request("/bin/true", "x" * 140_000))
    assert answer == (
        "refused: The request cannot be started: [Errno 7] Argument list too long: '/usr/bin/unshare'. "
        "Change its arguments or its environment.\n"
    )


def request(*arguments: object, **over: object) -> bytes:
    return json.dumps({"arguments": arguments, "cwd": "/", "env": {}, **over}).encode()


def refusal(address: str, text: bytes, files: int = 3) -> str:
    """Send a request and nothing after it: what it is answered."""
    with socket.socket(socket.AF_UNIX) as connection, Path(os.devnull).open("r+b") as null:
        connection.connect(address)
        sent = socket.send_fds(connection, [text], [null.fileno()] * files) if text else 0
        connection.sendall(text[sent:])
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read().decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"}", "The request of 1 bytes has another form (JSONDecodeError: "),
        (b"{}", "The request of 2 bytes has another form (KeyError: 'arguments'). Expected {"),
        (b"[" * 100_000, "has another form (RecursionError: "),
        (b'"\xff"}', "has another form (UnicodeDecodeError: "),
        (request("/bin/true")[:-1], "has another form (JSONDecodeError: "),
        (request(), "The request has values of another type. Expected {"),
        (request("/bin/true", 7), "The request has values of another type. Expected {"),
        (request(arguments="/bin/true"), "The request has values of another type. Expected {"),
        (request("/bin/true", env={"A": None}), "The request has values of another type. Expected {"),
        (request("/bin/true", env=["A"]), "another form (AttributeError: "),
        (request("/bin/true", "\0"), "The request cannot be started: embedded null byte. Change its"),
        (request("/bin/true", "x" * (16 << 20)), "The request is larger than 16777216 bytes. Shorten its"),
    ],
    ids=range(12),
)
def test_a_request_that_cannot_be_is_answered_with_a_sentence(address: str, text: bytes, why: str) -> None:
    answer = refusal(address, text)
    assert answer.startswith("refused: ")
    assert why in answer
    assert answer.endswith(".\n")
    assert outcome(address, "/bin/echo", "next") == (0, "next\n", "")


@pytest.mark.parametrize("files", [0, 2])
def test_a_request_without_its_files_is_refused(address: str, files: int) -> None:
    answer = refusal(address, request("/bin/true"), files)
    assert answer == f"refused: The request has {files} open files. Send 3: input, output and errors.\n"


def test_a_slow_client_is_refused_when_its_time_is_up(address: str) -> None:
    """It sends a byte now and then, each of which could be the request's last."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.settimeout(0.01)
        answer = b""

        def tried() -> bytes:
            nonlocal answer
            with contextlib.suppress(TimeoutError, BrokenPipeError):
                connection.send(b"}")
                answer += connection.recv(1000)
            return answer

        assert until(tried)
    assert b"refused: The request is not complete after 0 s: " in answer
    assert answer.endswith(b" bytes have arrived. Send one whole JSON object.\n")


def test_a_client_that_hangs_up_is_no_fault_of_the_server(address: str, folder: Path) -> None:
    for text in (b"", b'{"arguments": ', request("/bin/sleep", "100")):
        with socket.socket(socket.AF_UNIX) as connection, Path(os.devnull).open("r+b") as null:
            connection.connect(address)
            if text:
                socket.send_fds(connection, [text], [null.fileno()] * 3)
    assert outcome(address, "/bin/echo", "next") == (0, "next\n", "")
    journal = folder / "journal"
    assert until(lambda: "The request of 14 bytes has another form" in journal.read_text())
    assert until(lambda: not of_user())
    assert "Traceback" not in journal.read_text()


def test_what_a_server_refuses_is_told_with_a_status_of_its_own(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "other"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"refused: It is full.\n")
                while connection.recv(1 << 16):
                    pass

        answers = threading.Thread(target=answer)
        answers.start()
        status, said, errors = outcome(str(folder / "other"), "/bin/true")
        answers.join()
    assert (status, said) == (3, "")
    assert errors == f"The second user's server at {folder}/other: refused: It is full.\n"


def test_no_word_to_stop_gets_into_a_request(folder: Path) -> None:
    """The client waits in the middle of a large request when it is told to stop the process."""
    variables = {f"HARNESS_{number}": "z" * 100_000 for number in range(10)}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "slow"))
        listener.listen()
        command = [PYTHON, "-I", str(RELAY), str(folder / "slow"), "/bin/true"]
        with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL) as client:
            connection, _ = listener.accept()
            with connection:
                text = connection.recv(1)
                waits_in = Path(f"/proc/{client.pid}/wchan")
                assert until(lambda: "sock" in waits_in.read_text())
                os.kill(client.pid, signal.SIGUSR1)
                while not text.endswith(b"}}") and (more := connection.recv(1 << 16)):
                    text += more
                assert json.loads(text)["env"].items() >= variables.items()
                connection.sendall(b"5\n")
                assert connection.recv(1) == b"s"
                connection.sendall(b"0")
