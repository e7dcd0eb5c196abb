"""Processes forked from a template: as fresh as those that Python starts, and apart from one another."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psutil
import pytest

from harness.errors import WorkerError
from harness.measure import protocol
from harness.run.device_session import DeviceSession
from harness.run.worker_process import WorkerProcess
from harness.system import process, ready
from harness.system.process import LostError, Process
from harness.system.ready import ForkedProcess
from tests.support import write_files

pytestmark = pytest.mark.usefixtures("ready_workers")

MODULE = """\
import os, sys
{imports}

def main():
    for line in sys.stdin:
        os.write(2, f"{{{told}}}\\n".encode())
        os.write(1, b'{{"type":"Reply","value":{{"tick_ns":500.0}}}}\\n')
    return 0

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Has a module be ready that imports this, and tells the value of an expression when it is asked."""

    def start(imports="", told="os.getpid()"):
        files = {"told_module.py": MODULE.format(imports=imports, told=told)}
        write_files(tmp_path / "modules", files)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
        process.begin_ready(["told_module"])

    return start


def told_by(**given):
    with closing(Process("told_module", **given)) as child:
        child.ask(protocol.Timers(), 20)
        return type(child._process) is ForkedProcess, child.log(), child.why_fresh


def test_no_two_forks_have_the_same_random_numbers(begin):
    begin("import random, numpy.random", "(random.random(), numpy.random.random())")
    pairs = [told_by() for _ in range(2)]
    assert all(forked for forked, _, _ in pairs)
    first, second = (eval(told) for _, told, _ in pairs)
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_forks_have_places_of_memory_of_their_own(begin):
    begin("import numpy", "numpy.empty(2**24).ctypes.data")
    places = {told for _, told, _ in (told_by() for _ in range(3))}
    assert len(places) == 3


def test_a_fork_has_the_threads_of_blas_though_the_template_has_none(begin, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    told = "(numpy.ones((600, 600)) @ numpy.ones((600, 600)))[0, 0], len(os.listdir('/proc/self/task'))"
    begin("import numpy", told)
    forked = told_by()
    assert forked == (True, forked[1], "")
    assert forked[1] == told_by(fresh=True)[1]


def test_the_template_outlives_its_forks_and_they_outlive_it(begin):
    begin()
    with closing(Process("told_module")) as first, closing(Process("told_module")) as second:
        os.kill(first.pids()[-1], signal.SIGKILL)
        with pytest.raises(LostError, match="was ended by SIGKILL"):
            first.ask(protocol.Timers(), 20)
        assert told_by()[0]
        assert ready._template
        psutil.Process(ready._template.pid).kill()
        second.ask(protocol.Timers(), 20)
        forked, _, why = told_by()
        assert not forked
        assert "does not answer" in why


def test_a_fork_can_be_ended_before_it_has_begun(begin, monkeypatch):
    monkeypatch.setattr(process, "kill_descendants", lambda pid: pytest.fail("it went on"))
    begin()
    assert told_by()[0]
    for _ in range(50):
        child = Process("told_module")
        child.kill()
        assert not psutil.pid_exists(child.pids()[0])
        child.close()


@pytest.mark.parametrize(
    ("imports", "why"),
    [
        ("import threading; threading.Timer(9, print).start()", "2 threads"),
        ("import os; left = os.open('/dev/zero', os.O_RDONLY)", "/dev/zero open"),
    ],
    ids=["a thread", "a device"],
)
def test_what_cannot_be_forked_is_started(begin, imports, why):
    begin(imports)
    for _ in range(2):
        forked, told, found = told_by()
        assert not forked
        assert told.strip().isdecimal()
        assert why in found


@pytest.mark.parametrize(("timed", "forked"), [(True, False), (False, True)])
def test_no_host_is_timed_in_a_fork(project, timed, forked):
    process.begin_ready()
    with DeviceSession(_Quiet(), project.suite, device="cpu:0", timed=timed) as session:
        session.start()
        assert type(session.builder._process) is ForkedProcess
        assert session._child
        assert (type(session._child._process) is ForkedProcess) == forked


class _Quiet:
    def opened(self, device): ...
    def waiting(self, sentence): ...
    def stage(self, stage): ...


def test_variables_that_are_read_early_need_a_fresh_process(begin):
    begin(told="os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('READ_EARLY')")
    assert told_by(env={"CUDA_VISIBLE_DEVICES": "1"})[:2] == (True, "('1', None)")
    forked, told, why = told_by(env={"READ_EARLY": "1"})
    assert (forked, told) == (False, "(None, '1')")
    assert "READ_EARLY" in why


def test_variables_that_are_no_utf_8_need_a_fresh_process(begin):
    begin(told="os.environb.get(b'CUDA_ANY')")
    assert told_by(env={"CUDA_ANY": "\udcff"})[:2] == (False, r"b'\xff'")
    assert told_by()[0]


def test_an_answer_that_nobody_waited_for_is_no_answer_to_the_next_order(begin, monkeypatch):
    begin()

    def interrupt(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ready.Template, "_ask", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Process("told_module")
    assert told_by()[::2] == (False, "the process that is ready was interrupted")


def test_a_failure_tells_why_a_worker_was_not_forked(begin, tmp_path):
    begin("import threading; threading.Timer(9, print).start()")
    told_by()  # the template has imported the module by then
    with closing(WorkerProcess(tmp_path)) as worker:
        os.kill(worker.pids()[0], signal.SIGKILL)
        with pytest.raises(WorkerError) as caught:
            worker.begin_open("null")()
        assert caught.value.log == "Started by Python: the process that is ready has 2 threads."


PACKAGE = """\
import os
WHERE = os.getpid()
SETTING = "none"
READ = os.environ.get("READ_AT_IMPORT")
os.environ["SET_AT_IMPORT"] = "1"
"""


@pytest.fixture
def template(tmp_path, monkeypatch):
    """Starts templates that import a package `told_package`, with the given text added."""
    with ExitStack() as stack:

        def start(told="", more="", names=()):
            module = MODULE.format(imports="", told=told or "__import__('told_package').WHERE")
            write_files(
                tmp_path / "modules", {"told_module.py": module, "told_package/__init__.py": PACKAGE + more}
            )
            monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
            monkeypatch.setattr(ready, "MODULES", ("told_module",))
            found = process.template_with(["told_package"], names, {"READ_AT_IMPORT": "yes"})
            assert found
            return stack.enter_context(closing(found))

        yield start


def told_with(template, **env):
    return told_by(template=template, env={"READ_AT_IMPORT": "yes", **env})[:2]


def test_forks_share_the_import_of_a_package_and_no_setting(template):
    package = "__import__('told_package')"
    values = f"os.getpid(), {package}.WHERE, {package}.READ, {package}.SETTING, os.environ['SET_AT_IMPORT']"
    threads = "len(os.listdir('/proc/self/task'))"
    started = template(f"({values}, setattr({package}, 'SETTING', 'mine'), {threads})")
    told = [told_with(started), told_with(started), told_with(started, CUDA_PATH="/read/at/import")]
    assert [forked for forked, _ in told] == [True, True, False]
    first, second, other = (eval(values) for _, values in told)
    assert first[1:] == second[1:] == (started.pid, "yes", "none", "1", None, 1)
    assert len({started.pid, first[0], second[0], other[0]}) == 4
    assert other[1] == other[0]


def test_a_template_outlives_the_thread_that_began_it(template):
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(template).result()
        assert pool.submit(told_with, started).result() == (True, str(started.pid))
    time.sleep(0.1)  # a signal at the thread's end would have arrived
    assert told_with(started) == (True, str(started.pid))


@pytest.mark.parametrize(
    ("more", "names", "why"),
    [
        ("raise OSError('no library')", (), "told_package could not be imported before: OSError: no library"),
        ("import colorsys", ("colorsys",), "colorsys is the name of a module of the suite too"),
    ],
    ids=["an error", "a name"],
)
def test_a_process_is_started_without_a_package_that_cannot_be_shared(template, more, names, why):
    started = template("sys.modules.get('told_package')", more, names)
    assert told_with(started) == (False, "None")
    assert why in started.reason
