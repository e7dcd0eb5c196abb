#!/usr/bin/python3 -I
"""Runs one process of a measurement as another user: no network, no sight of others, nothing of the runner's.

suite-user@.service starts it as root for each connection to suite-user.socket, which the runner's user alone
may open. Who connects sends a request and three open files, and is told the process's number and its exit
status. What is asked for runs as the suite's user whatever it is, so a request needs no checking. When the
connection ends, everything that it started is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

USER = "gpu-suite"
CACHE = "/var/lib/gpu-harness-suite"
MOST_BYTES = 1 << 20
APART = ("--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")
NOTHING = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL")
WAITING = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""To a namespace's first process its own signals do nothing: so it waits for the one that is asked for."""


def command(user: str, arguments: list[str], folder: str, variables: dict[str, str]) -> list[str]:
    who = pwd.getpwnam(user)
    become = ("/usr/bin/setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", *NOTHING)
    there = ("/usr/bin/env", "--ignore-environment", f"--chdir={folder}")
    named = [f"{name}={value}" for name, value in variables.items()]
    return ["/usr/bin/unshare", *APART, "--", *become, "--", *there, *named, *WAITING, *arguments]


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def namespace(pid: int | str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def members(first: int) -> list[int]:
    """The processes in a namespace, by their numbers out here."""
    wanted = namespace(first)
    names = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [int(name) for name in names if wanted and namespace(name) == wanted]


def begun(child: subprocess.Popen[bytes]) -> tuple[int, int]:
    """The first process of the namespace, and the one that was asked for; 0 where there is none any more."""
    while child.poll() is None:
        for first in children(child.pid):
            for asked in children(first):
                return first, asked
        time.sleep(0.001)
    return 0, 0


def serve(connection: socket.socket, user: str, cache: str) -> None:
    request, files, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    if len(files) != 3:
        return
    asked = json.loads(request)
    own = {"HOME": cache, "HARNESS_CACHE_DIR": cache, "USER": user, "LOGNAME": user}
    child = subprocess.Popen(
        command(user, asked["arguments"], asked["cwd"], {**asked["env"], **own}),
        stdin=files[0],
        stdout=files[1],
        stderr=files[2],
        cwd="/",
        env={},  # a PATH or an LD_PRELOAD of the request's would be root's
        start_new_session=True,
    )
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child.pid)
    try:
        # By this number the card's driver lists it, and who asked knows it for its own.
        first, number = begun(child)
        connection.sendall(f"{number}\n".encode())
        while True:
            ready, _, _ = select.select([connection.fileno(), ended], [], [])
            if ended in ready:
                connection.sendall(str(child.wait()).encode())
                return
            word = connection.recv(1)
            if not word:
                return
            for pid in members(first):
                with contextlib.suppress(ProcessLookupError):  # it has ended since they were listed
                    os.kill(pid, signal.SIGSTOP if word == b"s" else signal.SIGCONT)
    finally:
        child.kill()  # and with it, by --kill-child, the first process of the namespace, and so all of them
        child.wait()


if __name__ == "__main__":
    user, cache = sys.argv[1:] or (USER, CACHE)
    serve(socket.socket(fileno=os.dup(0)), user, cache)
