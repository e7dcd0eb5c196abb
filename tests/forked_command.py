"""A command of ours on the PATH of a workflow's job: forked by the tests' server, where that can be.

Started by itself each takes half a second to import what it needs. This imports as little as it can.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shlex
import socket
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
SEED = "PYTHONHASHSEED"
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Python reads only at its start, without those that a fork is given."""
    others = (SEED, NO_BYTECODE, "PYTHONPATH")
    return {name: env[name] for name in env if name.startswith(READ_AT_START) and name not in others}


def first_lines(options: str = "") -> str:
    """Return the first lines of a script of this Python.

    A shell starts it, as in pip's scripts: behind #! Linux takes no path that is long or has a space.
    """
    return f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} {options} \"$0\" \"$@\"\n'''\n"


def shim(name: str, module: str, server: int, variables: Mapping[str, str], own: Path) -> str:
    """The text of the command: `main` of a module, by the open socket of a server that has imported it.

    `own` names files beside which nothing else writes.
    """
    code = f"sys.argv[0] = {name!r}\nfrom {module} import main\nsys.exit(main())\n"
    root = str(Path(__file__).resolve().parents[1])
    asked = (sys.executable, code, root, server, read_at_start(variables), str(own))
    return (
        f"{first_lines('-IS')}import sys\nsys.path.insert(0, {root!r})\n"
        f"from tests.forked_command import main\nmain(*{asked!r})\n"
    )


def main(python: str, code: str, root: str, server: int, started: Mapping[str, str], own: str) -> None:
    """Run it, and end as it does."""
    asking = None
    if (
        read_at_start(os.environ) == started
        and os.environ.get(SEED, "0") == "0"
        and os.environ.get("PYTHONPATH", "").split(os.pathsep)[0] == root
    ):
        with contextlib.suppress(OSError):  # whoever started this passed no files on
            asking = socket.socket(fileno=server)
    if asking is None:
        os.execv(python, [python, "-c", f"import sys\nimport tests.forking\n{code}", *sys.argv[1:]])
    # It is no child of this process, so it leaves its status in a file.
    status = f"{own}.{os.getpid()}"
    told = (
        f"import sys\ntry:\n{textwrap.indent(code, ' ')}"
        "except SystemExit as ended:\n"
        " known = ended.code is None or isinstance(ended.code, int)\n"
        f" with open({status!r}, 'w') as file: file.write(str((ended.code or 0) & 255 if known else 1))\n"
        " raise\n"
    )
    command = ["-c", told, *sys.argv[1:]]
    request = json.dumps([command, str(Path.cwd()), dict(os.environ), False]).encode()
    with open(own, "w") as file:  # noqa: PTH123
        fcntl.flock(file, fcntl.LOCK_EX)  # of several in a pipe, one after another
        socket.send_fds(asking, [request], [0, 1, 2])
        pid = int(asking.recv(64))
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    with contextlib.suppress(FileNotFoundError), open(status) as file:  # noqa: PTH123
        os._exit(int(file.read()))
    os._exit(1)
