#!/usr/bin/python3 -I
"""Run one process of a measurement as another user, without network and without sight of other processes.

suite-user@.service starts this script as root for each connection to suite-user.socket. The runner's user
alone may open that socket. A client sends one JSON object and, with its first byte, three open files. The
object's closing brace ends the request. The server answers with a line that holds the process's number, and
later with the process's exit status. If it refuses, it answers with a line that begins with "refused: ".

Whatever a request asks for runs as the suite's user, so the server does not judge it. When the connection
ends, the server kills everything that the request started.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import pwd
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

USER = "gpu-suite"
CACHE = "/var/lib/gpu-harness-suite"
MOST_BYTES = 16 << 20
"""Largest request, in bytes. It is more than Linux gives a process as arguments and environment."""
PATIENCE_S = 5.0
"""Time in which the whole request must arrive, in seconds."""
CHUNK_BYTES = 1 << 16
FILES = 3
REFUSED_STATUS = 3

APART = ("--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")
SHUT_IN = (sys.executable, "-I", "-S", str(Path(__file__).resolve()), "--shut-in")
NOTHING = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL")
WAITING = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""A shell that waits for the process that is asked for. The first process of a namespace ignores the signals
that it sends itself."""

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
"""Return values of the filter: the system call runs, or fails with EPERM or ENOSYS."""
LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_OFFSET, MACHINE_OFFSET, FLAGS_OFFSET = 0, 4, 16
"""Offsets in the kernel's seccomp_data, in bytes. The flags are the lower half of the first argument."""
OTHER_TABLE = 0x40000000
"""Numbers from here on belong to x32, a second table of system calls on x86-64."""
NAMESPACES = 0x7E020000
"""Flags of clone(): a new cgroup, IPC, mount, network, PID, user or UTS namespace."""
UNSHARED = 0x00000200 | 0x00000400 | 0x00040000
"""Flags of unshare() that make no namespace: CLONE_FS, CLONE_FILES and CLONE_SYSVSEM."""


class Refused(Exception):  # noqa: N818 - a refusal is the server's answer
    """A sentence that says why the server does not run what a client asks for."""


class Table(NamedTuple):
    """Numbers of the system calls that the filter looks at, on one kind of machine."""

    machine: int
    """AUDIT_ARCH_* of the kernel's linux/audit.h."""
    clone: int
    unshare: int
    refused: tuple[int, ...]
    """chroot, mount, pivot_root, setns and umount2."""


TABLES = {
    "x86_64": Table(machine=0xC000003E, clone=56, unshare=272, refused=(161, 165, 155, 308, 166)),
    "aarch64": Table(machine=0xC00000B7, clone=220, unshare=97, refused=(51, 40, 41, 268, 39)),
}
REFUSED_EVERYWHERE = (428, 429, 430, 431, 432, 433, 442, 467)
"""Numbers that all machines share: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
and open_tree_attr."""
CLONE3 = 435


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def flag_check(number: int, refused_flags: int) -> list[bytes]:
    """Return instructions that decide on a system call by its flags, and skip every other system call."""
    return [
        instruction(IF_EQUAL, number, if_false=4),
        instruction(LOAD, FLAGS_OFFSET),
        instruction(IF_ANY_BIT, refused_flags, if_false=1),
        instruction(RETURN, REFUSE),
        instruction(RETURN, ALLOW),
    ]


def filter_program(table: Table) -> bytes:
    """Return the seccomp program that refuses new namespaces, mounts, and system calls of other tables.

    clone3 keeps its flags in memory, where no filter sees them. After ENOSYS the C library calls clone.
    """
    answers = dict.fromkeys((*table.refused, *REFUSED_EVERYWHERE), REFUSE) | {CLONE3: UNKNOWN}
    program = [
        instruction(LOAD, MACHINE_OFFSET),
        instruction(IF_EQUAL, table.machine, if_true=1),
        instruction(RETURN, REFUSE),
        instruction(LOAD, NUMBER_OFFSET),
        instruction(IF_AT_LEAST, OTHER_TABLE, if_false=1),
        instruction(RETURN, REFUSE),
    ]
    for number, answer in answers.items():
        program += [instruction(IF_EQUAL, number, if_false=1), instruction(RETURN, answer)]
    program += flag_check(table.clone, NAMESPACES)
    program += flag_check(table.unshare, 0xFFFFFFFF & ~UNSHARED)
    return b"".join([*program, instruction(RETURN, ALLOW)])


def shut_in() -> None:
    """Take the right to make namespaces and mounts from this process and from all that it starts.

    Raises Refused.
    """
    machine = os.uname().machine
    if machine not in TABLES:
        known = " and ".join(TABLES)
        raise Refused(
            f"This machine is {machine}, and the system call filter knows {known} alone. "
            "Run without the second user, or on such a machine."
        )
    program = filter_program(TABLES[machine])
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HP", len(program) // len(instruction(0, 0)), ctypes.addressof(held))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    if prctl(PR_SET_NO_NEW_PRIVS, 1, None, 0, 0) or prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0
    ):
        why = os.strerror(ctypes.get_errno())
        raise Refused(
            f"The kernel does not accept the system call filter: {why}. "
            "Boot a kernel with CONFIG_SECCOMP_FILTER, or run without the second user."
        )


def command(user: str, arguments: list[str], folder: str, variables: dict[str, str]) -> list[str]:
    """Return the command that becomes the user and runs the arguments. Raises Refused for an unknown user."""
    try:
        who = pwd.getpwnam(user)
    except KeyError:
        raise Refused(f"There is no user {user}. Make that user: useradd --system {user}") from None
    become = ("/usr/bin/setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", *NOTHING)
    there = ("/usr/bin/env", "--ignore-environment", f"--chdir={folder}")
    named = [f"{name}={value}" for name, value in variables.items()]
    return ["/usr/bin/unshare", *APART, "--", *SHUT_IN, *become, "--", *there, *named, *WAITING, *arguments]


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
    """Return the processes of a PID namespace, by their numbers outside of it."""
    wanted = namespace(first)
    names = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [int(name) for name in names if wanted and namespace(name) == wanted]


def begun(child: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Return the first process of the namespace and the one that was asked for; zeros if both have ended."""
    while child.poll() is None:
        for first in children(child.pid):
            for asked in children(first):
                return first, asked
        time.sleep(0.001)
    return 0, 0


def received(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return the text and the files of a request; an empty text if the client sends none. Raises Refused."""
    text, files = bytearray(), list[int]()
    deadline = time.monotonic() + PATIENCE_S
    while (left_s := deadline - time.monotonic()) > 0:
        connection.settimeout(left_s)
        try:
            part, more, _, _ = socket.recv_fds(connection, CHUNK_BYTES, FILES)
        except TimeoutError:
            break
        text += part
        files += more
        if len(text) > MOST_BYTES:
            raise Refused(
                f"The request is larger than {MOST_BYTES} bytes. Shorten its arguments or its environment."
            )
        if not part or (part.rstrip().endswith(b"}") and is_whole(text)):
            connection.settimeout(None)
            return bytes(text), files
    raise Refused(
        f"The request is not complete after {PATIENCE_S:.0f} s: {len(text)} bytes have arrived. "
        "Send one whole JSON object."
    )


def is_whole(text: bytearray) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def parsed(text: bytes) -> tuple[list[str], str, dict[str, str]]:
    """Return the arguments, the folder and the environment that a request names. Raises Refused."""
    form = 'Expected {"arguments": [TEXT, ...], "cwd": TEXT, "env": {TEXT: TEXT, ...}}.'
    try:
        asked = json.loads(text)
        arguments, folder, variables = asked["arguments"], asked["cwd"], asked["env"]
        texts = [*arguments, folder, *variables, *variables.values()]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise Refused(f"The request of {len(text)} bytes has another form ({what}). {form}") from None
    if not (isinstance(arguments, list) and arguments and all(isinstance(each, str) for each in texts)):
        raise Refused(f"The request has values of another type. {form}")
    return arguments, folder, variables


def started(text: bytes, files: list[int], user: str, cache: str) -> subprocess.Popen[bytes]:
    """Start what a request asks for. Raises Refused."""
    if len(files) != FILES:
        raise Refused(f"The request has {len(files)} open files. Send {FILES}: input, output and errors.")
    arguments, folder, variables = parsed(text)
    own = {"HOME": cache, "HARNESS_CACHE_DIR": cache, "USER": user, "LOGNAME": user}
    try:
        return subprocess.Popen(
            command(user, arguments, folder, {**variables, **own}),
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            cwd="/",
            env={},  # a PATH or an LD_PRELOAD of the request's would be root's
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # too long for Linux, or a null byte in a text
        advice = "Change its arguments or its environment."
        raise Refused(f"The request cannot be started: {error}. {advice}") from None


def serve(connection: socket.socket, user: str, cache: str) -> None:
    """Carry out the request of a connection. Raises Refused, and ConnectionError if the client hangs up."""
    text, files = received(connection)
    if not text:
        return
    child = started(text, files, user, cache)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child.pid)
    try:
        # By this number the card's driver lists the process, and the client knows it as its own.
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


def refuse(connection: socket.socket, sentence: str) -> None:
    """Tell the client why, and read what it still sends: unread bytes would reset the connection."""
    sys.stderr.write(f"suite-user.py: {sentence}\n")
    deadline = time.monotonic() + PATIENCE_S
    with contextlib.suppress(OSError):  # the client has hung up, or sends for too long
        connection.sendall(f"refused: {sentence}\n".encode())
        connection.shutdown(socket.SHUT_WR)
        while (left_s := deadline - time.monotonic()) > 0:
            connection.settimeout(left_s)
            if not connection.recv(CHUNK_BYTES):
                return


def main() -> int:
    if sys.argv[1:2] == ["--shut-in"]:
        try:
            shut_in()
        except Refused as refusal:
            sys.stderr.write(f"suite-user.py: {refusal}\n")
            return REFUSED_STATUS
        os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - unshare starts this stage, and it starts setpriv
    user, cache = sys.argv[1:] or (USER, CACHE)
    connection = socket.socket(fileno=os.dup(0))
    try:
        serve(connection, user, cache)
    except Refused as refusal:
        refuse(connection, str(refusal))
        return REFUSED_STATUS
    except ConnectionError:
        return REFUSED_STATUS  # nobody is left to be told
    return 0


if __name__ == "__main__":
    sys.exit(main())
