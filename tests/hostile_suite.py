"""Attacks of a hostile suite, and a watcher that sees their effect from outside, in one program.

It runs under a separate systemd (test_runner_limits.py), with the system's interpreter and standard library
alone.

    hostile_suite.py watch FOLDER BYTES  as root, in its own unit: starts the others, writes seen.json
    hostile_suite.py ATTACK [WORD...]    as a suite's process, by the socket
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import pwd
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
STEP_BYTES = 4 * MIB
PYTHON = "/usr/bin/python3"
THERE = "/opt/there"
SOCKET = "/run/gpu-harness-suite.socket"
BRIEF = "/run/gpu-harness-brief.socket"
"""The same units, but for a time of four seconds."""
PATIENCE_S = 10.0
CLONE_NEWUSER, PTRACE_TRACEME, ADDR_NO_RANDOMIZE = 0x10000000, 0, 0x0040000
TRIES = 5


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def tried(what: Callable[[], Any]) -> str:
    """Return the name of the error of a call, or `done`."""
    try:
        what()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def called(name: str, *arguments: object) -> str:
    """Call a function of the C library: the name of its error, or done."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    return "done" if function(*arguments) >= 0 else errno.errorcode[ctypes.get_errno()]


def opened(device: Path) -> str:
    return tried(lambda: os.close(os.open(device, os.O_RDWR)))


# What a suite does


def hog(most_bytes: str, hold_s: str) -> None:
    """Takes memory, and tells how much it has."""
    kept = []
    for taken in range(STEP_BYTES, int(most_bytes) + 1, STEP_BYTES):
        kept.append(b"x" * STEP_BYTES)
        say(taken)
    time.sleep(float(hold_s))


def bomb() -> None:
    """Starts processes until none can be started, and tells how many there were."""
    count = 1  # itself
    with contextlib.suppress(OSError):
        while True:
            os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
            count += 1
    say(count)
    sys.stdin.readline()


def stay() -> None:
    """Leaves a process that wants to outlive everything."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(60)
        os._exit(0)
    os.wait()
    say("stays")
    while True:
        sys.stdin.readline()


def reach(folder: str, worker: str) -> None:
    """Try everything that a suite must not do, and print the answers."""
    there = Path(folder)

    def network(family: int) -> str:
        return tried(lambda: socket.socket(family, socket.SOCK_DGRAM))

    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    answers = {
        "internet": network(socket.AF_INET),
        "internet, the other": network(socket.AF_INET6),
        "the kernel's own sockets": network(socket.AF_NETLINK),
        "systemd": tried(lambda: socket.socket(socket.AF_UNIX).connect("/run/systemd/private")),
        "a folder that everybody may write": tried((there / "open" / "x").touch),
        "a token that everybody may read": tried(lambda: Path("/etc/gpu-harness-runner.token").read_text()),
        "a device that everybody may use": opened(there / "device"),
        "the runner's worker": tried(lambda: os.kill(int(worker), signal.SIGKILL)),
        "a namespace": called("unshare", CLONE_NEWUSER),
        "a mount": called("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "another process, traced": called("ptrace", PTRACE_TRACEME, 0, None, None),
        "another personality": called("personality", ADDR_NO_RANDOMIZE),
        "a real-time priority": tried(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))),
        "a set-user-ID file": tried(lambda: (Path(os.environ["HOME"]) / "s").touch(0o4755)),
        "its own folder": tried((Path(os.environ["HOME"]) / "x").touch),
        "its scratch": tried(lambda: Path("/tmp/of-a-suite").touch()),
        "its shared memory": tried(lambda: Path("/dev/shm/of-a-suite").touch()),
        "privileges": [status[name] for name in ("NoNewPrivs", "CapEff", "CapBnd")],
        "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
        "user": pwd.getpwuid(os.getuid()).pw_name,
    }
    # All that it may signal: itself is spared.
    signal.signal(signal.SIGCONT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    say(json.dumps(answers))


def use() -> None:
    """Print the answer to a process outside all units."""
    say(opened(Path(THERE) / "device"))


# What is seen of it


def of_suite() -> list[int]:
    number = pwd.getpwnam("gpu-suite").pw_uid
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                found += [int(path.name)] if path.stat().st_uid == number else []
    return found


def gone_after_s(since: float) -> float:
    while of_suite() and time.monotonic() - since < PATIENCE_S:
        time.sleep(0.02)
    return time.monotonic() - since


class Watch:
    runner = ("setpriv", "--reuid=gpu-runner", "--regid=gpu-runner", "--clear-groups")

    def start(self, *words: object, address: str = SOCKET) -> subprocess.Popen[str]:
        """A suite's process, as the runner's user asks for it."""
        command = [
            PYTHON,
            f"{THERE}/relay.py",
            address,
            PYTHON,
            f"{THERE}/hostile_suite.py",
            *map(str, words),
        ]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([*self.runner, *command], cwd="/", **pipes)

    def memory(self, limit_bytes: int) -> dict[str, Any]:
        taken, status = self.held(self.start("hog", 2 * limit_bytes, 0))
        return {"taken": taken / limit_bytes, "status": status}

    def memory_of_two(self, limit_bytes: int) -> dict[str, Any]:
        """Start two suites: each takes less than the limit, and both together take more."""
        most = int(limit_bytes * 0.45)
        both = [self.start("hog", most, 2) for _ in range(2)]
        found = [self.held(each) for each in both]
        return {"statuses": sorted(status for _, status in found)}

    def held(self, process: subprocess.Popen[str]) -> tuple[int, int]:
        lines = process.communicate()[0].split()
        return int(lines[-1]) if lines else 0, process.returncode

    def processes(self) -> dict[str, Any]:
        process = self.start("bomb")
        assert process.stdout
        count = int(process.stdout.readline() or 0)
        seen = len(of_suite())
        process.kill()
        ended = time.monotonic()
        process.communicate()
        return {"count": count, "seen": seen, "gone_after_s": gone_after_s(ended)}

    def staying(self) -> dict[str, Any]:
        """Return how many processes stay after a connection ends, and after the time is up."""
        found: dict[str, Any] = {}
        for name, address in (("connection", SOCKET), ("time", BRIEF)):
            for _ in range(TRIES):  # on a busy machine its time may be up before it begins
                process = self.start("stay", address=address)
                began = time.monotonic()
                assert process.stdout
                if process.stdout.readline():
                    break
                process.wait()
                gone_after_s(began)
            found[f"{name}: processes"] = len(of_suite())
            if name == "connection":
                process.kill()
                began = time.monotonic()
            found[f"{name}: gone_after_s"] = gone_after_s(began)
            process.kill()
            process.wait()
            assert process.stdout
            process.stdout.close()  # not read to its end, which what stays would keep from coming
        return found

    def reaching(self) -> dict[str, Any]:
        worker = subprocess.Popen([*self.runner, "sleep", "1000"])
        process = self.start("reach", THERE, worker.pid)
        said = process.communicate()[0]
        time.sleep(0.1)
        alive = worker.poll() is None
        worker.kill()
        worker.wait()
        done = subprocess.run(
            [*self.runner, PYTHON, f"{THERE}/hostile_suite.py", "use"],
            capture_output=True,
            text=True,
            check=False,
        )
        left = [str(path) for path in (Path("/tmp/of-a-suite"), Path("/dev/shm/of-a-suite")) if path.exists()]
        return {
            "answers": json.loads(said or "{}"),
            "worker lives": alive,
            "left": left,
            "device outside": done.stdout.strip(),
        }


def limits() -> dict[str, str]:
    """Return the limits as systemd has understood them."""
    asked = {
        "suite-user@0.service": ("Slice", "TasksMax", "RuntimeMaxUSec", "LimitCORE", "DevicePolicy"),
        "suite.slice": ("MemoryMax", "MemorySwapMax"),
    }
    found = {}
    for unit, names in asked.items():
        command = ["systemctl", "show", unit, *(f"--property={name}" for name in names)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        mark = "slice's " if unit.endswith(".slice") else ""
        found.update(
            {
                f"{mark}{name}": value
                for name, _, value in (x.partition("=") for x in done.stdout.splitlines())
            }
        )
    return found


def watch(folder: str, limit_bytes: str) -> None:
    watching = Watch()
    seen: dict[str, Any] = {"limits": limits()}
    for name, look in (
        ("reaching", watching.reaching),
        ("staying", watching.staying),
        ("processes", watching.processes),
        ("memory", lambda: watching.memory(int(limit_bytes))),
        ("memory of two", lambda: watching.memory_of_two(int(limit_bytes))),
    ):
        began = time.monotonic()
        seen[name] = look()
        seen[name]["took_s"] = time.monotonic() - began
        (Path(folder) / "seen.json").write_text(json.dumps(seen))
    (Path(folder) / "done").touch()


ROLES: dict[str, Callable[..., None]] = {each.__name__: each for each in (hog, bomb, stay, reach, use, watch)}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
