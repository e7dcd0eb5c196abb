"""Represents a process that another user runs: forwards input, output and exit status.

    python -I relay.py SOCKET COMMAND...

The server of the socket (suite-user.py of the runner's files) runs the command with this process's open
files, without network and without sight of this user's processes. SIGUSR1 stops the command and SIGUSR2
resumes it. The server kills the command when this process ends. If the server refuses, this process prints
why and exits with status 3.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

KEPT = ("HARNESS_", "CUDA_", "LC_", "OCL_", "PYOPENCL_", "NVIDIA_")
NAMES = ("LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "PYTHONSAFEPATH", "VIRTUAL_ENV")
"""Variables that a suite or a compiler may need in addition to KEPT. A runner's environment
contains tokens."""
_BY_SIGNAL = 128
"""Statuses above this one mean a signal, as in shells."""
_TELLING = (signal.SIGUSR1, signal.SIGUSR2)
_REFUSED_STATUS = 3


def main() -> int:
    address, *command = sys.argv[1:]
    kept = {name: value for name, value in os.environ.items() if name in NAMES or name.startswith(KEPT)}
    kept.pop("HARNESS_SUITE_SOCKET", None)
    request = json.dumps({"arguments": command, "cwd": str(Path.cwd()), "env": kept}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        signal.pthread_sigmask(signal.SIG_BLOCK, _TELLING)  # no word of it gets into the request
        signal.signal(signal.SIGUSR1, lambda *_: connection.send(b"s"))
        signal.signal(signal.SIGUSR2, lambda *_: connection.send(b"c"))
        with contextlib.suppress(BrokenPipeError):  # the server has refused, and its answer says why
            sent = socket.send_fds(connection, [request], [0, 1, 2])
            connection.sendall(request[sent:])
        answers = connection.makefile("rb")
        inner = answers.readline().strip()
        if inner and not inner.isdigit():
            sys.stderr.write(f"The second user's server at {address}: {inner.decode()}\n")
            return _REFUSED_STATUS
        for number in (0, 1):  # so that its reader sees the end when the remote process ends
            os.close(number)
        if inner:
            Path("/proc/self/comm").write_bytes(b"for " + inner)  # where the starting process looks for it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TELLING)
        status = int(answers.read() or b"1")
    number = status - _BY_SIGNAL
    if number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):  # signals that no process can handle
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return abs(status)


if __name__ == "__main__":
    sys.exit(main())
