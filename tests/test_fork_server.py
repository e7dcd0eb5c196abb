"""A process that the tests fork is as one that Python starts."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.suite.suite_data import Loading
from tests import fork_server, toy
from tests.forked_command import shim
from tests.support import IMPORT_PATH, programs, write_files

FACTS = """\
import json, os, sys
print(json.dumps({
    "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
    "folder": (os.path.basename(os.getcwd()), os.listdir()),
    "environment": dict(os.environ),
    "path": sys.path,
    "arguments": sys.argv,
    "files": sorted(os.listdir("/proc/self/fd"), key=int),
}), file=sys.stderr)
"""


PROGRAM = """\
import json, os, sys
from pathlib import Path
from harness.suite.suite_data import Loading
Loading(Path.cwd() / "kernels/toy").suite()  # which starts a process
print(json.dumps({
    "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
    "parent": os.getppid(),
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "path": sys.path,
    "arguments": sys.argv,
    "named": [__name__, *sorted(name for name in globals() if not name.startswith("__"))],
    "streams": [(stream.encoding, stream.line_buffering) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "bytecode": sys.dont_write_bytecode,
    "read": sys.stdin.read(),
}))
sys.exit(3)
"""


def test_a_forked_program_is_as_one_that_is_started(project):
    def facts(popen):
        with popen(
            [sys.executable, "-c", PROGRAM, "an argument"],
            env={**os.environ, "PYTHONPATH": IMPORT_PATH, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        ) as process:
            return json.loads(process.communicate("asked")[0]), process.returncode

    assert facts(programs.popen) == facts(subprocess.Popen)


def test_what_python_reads_at_its_start_is_not_forked():
    seen = {**os.environ, "PYTHONPATH": IMPORT_PATH}
    command = [sys.executable, "-m", "asv"]
    assert programs.can_fork(command, seen, "/")
    assert programs.can_fork(command, seen, str(fork_server.ROOT))
    assert not programs.can_fork(command, {**seen, "PYTHONOPTIMIZE": "1"}, "/")
    assert not programs.can_fork(command, {**seen, "PYTHONHASHSEED": "1"}, "/")
    others = {**seen, "PYTHONPATH": os.pathsep.join(["other", IMPORT_PATH])}
    assert not programs.can_fork(command, others, "/")
    assert programs.can_fork(command, others, "other")  # as `-m` has it
    assert not programs.can_fork(["python", "-m", "asv"], seen, "/")
    assert not programs.can_fork([sys.executable, "-m", "pip"], seen, "/")


@pytest.mark.parametrize("missing", ["_execute_child", "_close_pipe_fds", "_child_created", "renamed"])
def test_where_python_lacks_a_private_part_processes_are_started(monkeypatch, missing):
    with monkeypatch.context() as patch:
        if missing == "renamed":
            patch.setattr(subprocess.Popen, "_execute_child", lambda self, command, folder: None)
        else:
            patch.delattr(subprocess.Popen, missing)
        assert fork_server._execution() is None
    assert fork_server._execution() is not None
    monkeypatch.setattr(fork_server, "_EXECUTE", None)
    monkeypatch.setattr(programs, "fork", lambda *_: pytest.fail("it was forked"))
    command = [sys.executable, "-c", "print(1)"]
    with programs.popen(command, env={**os.environ, "PYTHONPATH": IMPORT_PATH}, stdout=-1) as process:
        assert process.communicate() == (b"1\n", None)


@pytest.mark.parametrize("minor", range(10, 15))
def test_each_python_that_is_here_has_the_private_parts(minor):
    # Version managers have a folder for each Python, beside that of this one.
    beside = sorted(Path(sys.base_prefix).parent.glob(f"*3.{minor}.*/bin/python3.{minor}"))
    python = str(beside[-1]) if beside else shutil.which(f"python3.{minor}")
    if not python or subprocess.run([python, "-IS", "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"Python 3.{minor} is not installed")
    code = (
        f"import atexit, inspect, subprocess, sys, threading\n_PIPES = {fork_server._PIPES}\n"
        f"{inspect.getsource(fork_server._execution)}\nsys.exit(_execution() is None)"
    )
    assert subprocess.run([python, "-IS", "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("files", [[programs], []], ids=["forked", "started"])
def test_a_command_of_a_job_ends_as_it_does(tmp_path, files):
    text = shim("harness", "harness.cli", programs.socket, programs.variables, tmp_path / "own")
    write_files(tmp_path, {"harness": text}).joinpath("harness").chmod(0o755)

    def run(*arguments):
        return subprocess.run(
            [tmp_path / "harness", *arguments],
            pass_fds=[each.socket for each in files],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": IMPORT_PATH},
            capture_output=True,
            text=True,
            check=False,
        )

    fine, wrong = run("--version"), run("nonsense")
    assert (fine.returncode, wrong.returncode) == (0, 2)
    assert fine.stdout.startswith("harness")
    assert "nonsense" in wrong.stderr


def test_a_forked_process_is_as_one_that_is_started(tmp_path, capfd, request):
    folder = write_files(tmp_path, {"suite.py": FACTS + toy.SUITE, **toy.FILES})

    def facts():
        Loading(folder).suite()
        return json.loads(capfd.readouterr().err)

    forked = facts()
    request.getfixturevalue("started_workers")
    assert forked == facts()
