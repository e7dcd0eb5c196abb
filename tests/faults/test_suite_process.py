"""Suites that end, hang, flood or patch their process: an error that names them, or no effect."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from tests import commits, toy
from tests.support import IMPORT_PATH, STARTED, run_command, write_files, write_null_script

pytestmark = pytest.mark.fault

COMMANDS = {
    "list": ("list",),
    "check": ("check", "--device", "null"),
    "run": ("run", "--device", "null", "--no-save"),
}


def project(folder, hostile, suite=toy.SUITE):
    return write_files(folder, {**toy.FILES, "kernels/toy/suite.py": f"{hostile}\n{suite}"})


ENDS = {
    "os._exit": ("import os; os._exit(0)", "exited with status 0 while loading it"),
    "sys.exit": ("import sys; sys.exit(0)", "raised SystemExit: 0"),
    "a signal": ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL while loading it"),
    "closed files": ("import os; os.closerange(0, 64)", "exited with status 1 while loading it"),
    "a loop": ("while True: pass", "loading it took longer than 1 s"),
    "a stop": ("import os; os.kill(os.getpid(), 19)", "loading it took longer than 1 s"),
    "an interrupt": ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_suite_that_does_not_load_is_an_error_that_names_it(tmp_path, end):
    hostile, words = ENDS[end]
    timeout = "1" if end in ("a loop", "a stop") else "20"
    done = run_command("check", "--device", "null", "--timeout", timeout, cwd=project(tmp_path, hostile))
    assert (done.returncode, done.stdout) == (2, "")
    assert str(tmp_path / "kernels" / "toy" / "suite.py") in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_is_ended_by_a_suite(tmp_path, command):
    done = run_command(*COMMANDS[command], cwd=project(tmp_path, ENDS["os._exit"][0]))
    assert (done.returncode, done.stdout) == (2, "")


def test_a_comparison_is_not_ended_by_a_suite(tmp_path):
    root = commits.make_project(tmp_path, commits.only("changed"))
    suite = root / "kernels/toy/suite.py"
    suite.write_text("import os; os._exit(0)\n" + suite.read_text())
    done = run_command("compare", "HEAD", "--device", "null", "--no-save", cwd=root)
    assert done.returncode == 1
    assert "exited with status 0 while loading it" in " ".join(done.stdout.split())


HARMLESS = {
    "a hook at exit": "import atexit, os; atexit.register(os._exit, 0)",
    "a thread that stays": "import threading, time; threading.Thread(target=time.sleep, args=[999]).start()",
    "a thread that turns": (
        "import threading\ndef turn():\n    while True: pass\nthreading.Thread(target=turn).start()"
    ),
    "a child that stays": "import os, time\nif os.fork() == 0: time.sleep(1000)",
    "a child in a session of its own": "import os, time\nif os.fork() == 0: os.setsid(); time.sleep(1000)",
    "patches": (
        "import harness.errors, harness.suite.suite_data, harness.cli, sys\n"
        "harness.errors.ExitCode.REGRESSION._value_ = 0\n"
        "harness.cli.sys.exit = sys.exit = lambda *_: None"
    ),
    "output": "print('x' * 2**20 * 20, end='')",
}


@pytest.mark.parametrize("hostile", HARMLESS)
def test_a_suite_changes_no_exit_status_and_leaves_nothing_behind(tmp_path, hostile):
    """A kernel is wrong, so the status is 1, whatever the suite does."""
    root = project(tmp_path / "project", HARMLESS[hostile])
    script = write_null_script(tmp_path / "script.json", {"toy.plain": {"fault": "wrong"}})
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    run_command("--version", cwd=root)  # whatever commands are forked from is there
    before = mine()
    env = {"HARNESS_NULL_SCRIPT": script, "TMPDIR": str(temporary)}
    env |= STARTED if "session" in hostile else {}  # its supervisor is who ends it
    done = run_command("check", "--device", "null", cwd=root, env=env)
    assert done.returncode == 1, done.stderr
    assert "toy.plain[n=64] failed (wrong-result)" in done.stderr
    assert len(done.stderr) < 100_000
    assert not list(temporary.iterdir())
    left = mine() - before
    for _ in range(50):  # processes of other tests end by themselves
        if not (left := left & mine()):
            break
        time.sleep(0.1)
    assert not left


def mine():
    """Return processes that run a suite or a worker, of this test's interpreter or of none."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline", "ppid"])
        if any(
            "harness.suite.suite_server" in word or "harness.measure.worker" in word
            for word in process.info["cmdline"] or ()
        )
        and process.info["ppid"] in (1, os.getpid())
    }


FUNCTIONS = {
    "os._exit": (
        "__import__('os')._exit(0)",
        "failed (crashed): The worker process exited with status 0 while building the kernel",
    ),
    "a loop": ("sum(iter(int, 1))", "failed (timed-out): No answer within 1 s while building the kernel"),
    "sys.exit": ("__import__('sys').exit(0)", "failed (error): SystemExit: 0"),
    "an error": ("c.nothing", "raised AttributeError: case has no axis, macro or scalar named 'nothing'"),
    "a value that is none": ("object()", "has grid <object object at"),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_of_a_suite_is_asked_with_a_deadline(tmp_path, function):
    code, words = FUNCTIONS[function]
    suite = toy.SUITE.replace("grid=lambda c: ceil_div(c.n, 32)", f"grid=lambda c: {code}")
    timeout = "1" if function == "a loop" else "20"
    done = run_command("check", "--device", "null", "--timeout", timeout, cwd=project(tmp_path, "", suite))
    assert done.returncode == 3
    assert words in done.stderr


REFERENCES = {
    "a pool": (
        "import concurrent.futures as f; return 2 * [*f.ProcessPoolExecutor(2).map(abs, [1])][0] * x",
        {"not-built"},
    ),
    "a fork whose parent ends": ("os.fork() or time.sleep(1000); os._exit(0)", {"failed"}),
    "a fork that answers too": ("os.fork(); return 2 * x", {"not-built", "failed"}),
    "sys.exit": ("sys.exit(0)", {"failed"}),
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_suite_that_forks_does_not_hang_a_run(tmp_path, reference):
    code, expected = REFERENCES[reference]
    suite = toy.SUITE.replace("return 2 * x", code)
    root = project(tmp_path, "import os, sys, time", suite)
    done = run_command("check", "--device", "null", "--json", "--timeout", "20", cwd=root)
    assert '"status": "' in done.stdout, done.stderr
    found = {line.split('"')[3] for line in done.stdout.splitlines() if '"status": "' in line}
    assert found <= expected
    assert done.returncode == (0 if found == {"not-built"} else 3)


def test_ctrl_c_works_while_a_suite_hangs(tmp_path):
    root = project(tmp_path, "open('/dev/stderr', 'w').write('hanging'); import time; time.sleep(1000)")
    with subprocess.Popen(
        [sys.executable, "-c", "from harness.cli import main; main()", "list"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not psutil.Process(process.pid).children() and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(2)
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()
