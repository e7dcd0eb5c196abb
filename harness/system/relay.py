"""Stands in for a process that another user runs: its input and output are that process's, and so is its end.

    python -I relay.py SOCKET PYTHON -m MODULE

Whoever keeps the socket (suite-user.py of the runner's files) runs the command with the files that are open
here, without network and without sight of this user's processes. SIGUSR1 and SIGUSR2 stop and wake it; it is
killed when this process ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

KEPT = ("HARNESS_", "CUDA_", "LC_", "OCL_", "PYOPENCL_", "NVIDIA_")
NAMES = ("LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "PYTHONSAFEPATH", "VIRTUAL_ENV")
"""Variables of the environment that a suite or a compiler may need, besides those that begin as KEPT says. A
runner's environment has tokens in it."""
_BY_SIGNAL = 128
"""A status above this one says which signal ended a process, as shells have it."""


def main() -> int:
    address, *command = sys.argv[1:]
    kept = {name: value for name, value in os.environ.items() if name in NAMES or name.startswith(KEPT)}
    kept.pop("HARNESS_SUITE_SOCKET", None)
    request = {"arguments": command, "cwd": str(Path.cwd()), "env": kept}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        signal.signal(signal.SIGUSR1, lambda *_: connection.send(b"s"))
        signal.signal(signal.SIGUSR2, lambda *_: connection.send(b"c"))
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        for number in (0, 1):  # that its reader sees the end when the process there ends
            os.close(number)
        answers = connection.makefile("rb")
        if inner := answers.readline().strip():
            Path("/proc/self/comm").write_bytes(b"for " + inner)  # where whoever started this looks for it
        status = int(answers.read() or b"1")
    number = status - _BY_SIGNAL
    if number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):  # which no process may see to
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return abs(status)


if __name__ == "__main__":
    sys.exit(main())
