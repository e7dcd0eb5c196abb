"""Sweeps on several devices: real worker processes, really killed, on a device that needs no hardware."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.errors import DeviceError, MeasureError, StoreError, UsageError, WorkerError
from harness.measure import protocol
from harness.records.types import DeviceInfo, Row
from harness.run.sweep import dask_worker
from harness.run.sweep.cluster import DaskExecutor
from harness.run.sweep.executors import Job, JobResult
from harness.suite.loader import load
from harness.system.process import Failed
from tests import toy
from tests.support import IMPORT_PATH, write_files

pytest.importorskip("distributed")
pytestmark = pytest.mark.usefixtures("forked_dask_workers")

HOLD, FALL = 77, 66
"""Sizes at which the suite below waits to be killed, or takes its device down."""

SUITE = toy.SUITE.replace(
    "from harness import Axis",
    """\
import os
import signal
import time
from pathlib import Path

TOLD = Path(@TOLD@)
BROKEN = TOLD / "broken"
WORKER = os.getppid()
if Path(f"/proc/{WORKER}/comm").read_text().startswith("for "):  # a supervisor, the worker's child
    WORKER = int(Path(f"/proc/{WORKER}/stat").read_text().rpartition(")")[2].split()[1])
if BROKEN.exists() and BROKEN.read_text() in ("all", str(WORKER)):
    raise RuntimeError("this device is gone")

from harness import Axis""",
).replace(
    "        return 2 * x\n",
    """\
        place = TOLD / str(case.n)
        place.mkdir(exist_ok=True)
        mine = place / str(WORKER)
        if not mine.exists():
            others = list(place.iterdir())
            mine.write_text(__file__)
            if case.n == @HOLD@ and not others:
                time.sleep(600)
            if case.n == @FALL@ and not BROKEN.exists():
                BROKEN.write_text(str(WORKER))
                os.kill(os.getpid(), signal.SIGSEGV)
        return 2 * x
""",
)
"""Says, for every size, which worker's child computed its reference: a file named for the worker's pid."""


class Told:
    """A suite in a folder of its own, and what it says of where it ran."""

    def __init__(self, root: Path) -> None:
        self.place = root / "told"
        self.place.mkdir(parents=True)
        text = SUITE
        for word, value in {"@TOLD@": str(self.place), "@HOLD@": HOLD, "@FALL@": FALL}.items():
            text = text.replace(word, repr(value))
        self.suite = write_files(root, {**toy.FILES, "kernels/toy/suite.py": text}) / "kernels" / "toy"

    def workers(self, size: int) -> list[int]:
        """Pids of the workers that had a job of this size."""
        place = self.place / str(size)
        return [int(found.name) for found in place.iterdir()] if place.is_dir() else []

    def done_by(self, worker: int) -> set[str]:
        """Keys of the jobs that a worker had, but for the one it holds."""
        return {f"job {found.parent.name}" for found in self.place.glob(f"*/{worker}")} - {f"job {HOLD}"}

    def files(self) -> set[str]:
        """Where the suite lay when it ran."""
        return {found.read_text() for found in self.place.glob("*/*")}


@pytest.fixture(autouse=True)
def checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for workers looks for lost ones ten times a second."""
    monkeypatch.setattr("harness.run.sweep.cluster.CHECK_S", 0.1)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def jobs(*sizes: int, kernel: str = "plain", timeout_s: float = 60.0) -> list[Job]:
    return [
        Job(
            key=f"job {size}",
            request=protocol.Measure(kernel=kernel, sizes={"n": size}, seed=1, settings=None),
            timeout_s=timeout_s,
        )
        for size in sizes
    ]


def local(told: Told, *devices: str) -> DaskExecutor:
    return DaskExecutor(told.suite, scheduler=None, devices=devices)


def verified(answers: list[JobResult]) -> list[str]:
    """Keys of the jobs that came out as they should."""
    return sorted(
        answer.key
        for answer in answers
        if isinstance(answer.reply, Row) and answer.reply.status in ("verified", "not-built")
    )


def keys(*sizes: int) -> list[str]:
    return sorted(f"job {size}" for size in sizes)


@contextlib.contextmanager
def killing_who_holds(told: Told, answered: list[JobResult] | None = None) -> Iterator[list[int]]:
    """Kill the worker whose child waits at the size HOLD, once it does; and not before its other jobs are
    among those answered.
    """
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not (held := told.workers(HOLD)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in held:
            while answered is not None and not told.done_by(pid) <= {answer.key for answer in answered}:
                time.sleep(0.02)
            time.sleep(0.5)  # until the scheduler knows that they are
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    yield killed
    thread.join()


def test_a_killed_worker_costs_nothing_but_doing_its_job_again(told):
    sizes = (*range(1, 6), HOLD, *range(6, 16))
    with local(told, "null:0", "null:0") as executor:
        assert [device.name for device in executor.devices] == ["null", "null"]
        assert executor.toolchain.compiler == "null 1"
        answers: list[JobResult] = []
        with killing_who_holds(told, answers) as killed:
            for answer in executor.run(jobs(*sizes)):
                answers.append(answer)  # noqa: PERF402 - one by one, for who waits for them
        assert verified(answers) == keys(*sizes)
        assert len(told.workers(HOLD)) == 2
        # Every other job was done once, and not all by the worker that was killed.
        done_by = Counter(pid for size in sizes if size != HOLD for pid in told.workers(size))
        assert sum(done_by.values()) == len(sizes) - 1
        assert set(done_by) - set(killed)
        # The executor is whole again, or works on with who is left.
        assert verified(list(executor.run(jobs(101, 102, 103)))) == keys(101, 102, 103)


def test_the_only_worker_is_started_again_when_it_is_killed(told):
    with local(told, "null:0") as executor, killing_who_holds(told) as killed:
        assert verified(list(executor.run(jobs(1, HOLD, 2)))) == keys(1, HOLD, 2)
    assert len(killed) == 1


def test_a_lost_device_costs_nothing_while_another_is_left_and_ends_it_when_none_is(told):
    sizes = range(1, 12)
    with local(told, "null:0", "null:0") as executor:
        answers = {answer.key: answer for answer in executor.run(jobs(FALL, *sizes))}
        fallen = answers.pop(f"job {FALL}")
        assert isinstance(fallen.reply, Failed)
        assert "SIGSEGV" in fallen.reply.message
        assert verified(list(answers.values())) == keys(*sizes)
        # The last device is lost with its process: what runs needs none, but the next job does.
        (told.place / "broken").write_text("all")
        answering = executor.run(
            [*jobs(201), *(Job(key="n", request=jobs(202)[0].request, timeout_s=9, fresh=True),)]
        )
        with pytest.raises(DeviceError, match="this device is gone"):
            list(answering)


def test_what_was_finished_before_the_last_device_was_lost_is_told(told):
    with local(told, "null:0") as executor:
        assert verified(list(executor.run(jobs(9)))) == keys(9)
        (told.place / "broken").write_text("all")
        answers = []
        fresh = dataclasses.replace(jobs(3)[0], fresh=True)

        def take() -> None:
            for answer in executor.run([*jobs(1, 2), fresh]):
                answers.append(answer)
                until(lambda: all(each.status != "pending" for each in executor._client.futures.values()))

        with pytest.raises(DeviceError, match="this device is gone"):
            take()
        assert verified(answers) == keys(1, 2)


def test_an_executor_that_is_left_early_stops_what_runs_and_can_work_on(told):
    with local(told, "null:0") as executor:
        answering = executor.run(jobs(1, HOLD, 2))
        assert isinstance(answering, Generator)
        assert next(answering).key == "job 1"
        while not told.workers(HOLD):
            time.sleep(0.02)
        answering.close()
        assert verified(list(executor.run(jobs(3, 4)))) == keys(3, 4)


@contextlib.contextmanager
def session(told: Told, *devices: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, as from a terminal, that sweeps until its worker holds."""
    code = (
        "from pathlib import Path\nfrom tests.test_sweep_cluster import HOLD, DaskExecutor, jobs\n"
        "if __name__ == '__main__':\n"
        f"    with DaskExecutor(Path({str(told.suite)!r}), scheduler=None, devices={devices!r}) as x:\n"
        "        list(x.run(jobs(1, HOLD)))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: told.workers(HOLD))
        yield process
    finally:
        process.kill()
        process.communicate()


def test_workers_and_their_children_end_with_a_session_that_is_killed(told):
    with session(told, "null:0") as process:
        (worker,) = told.workers(HOLD)
        family = [worker, *children(worker)]
        assert len(family) > 1
        assert all(map(alive, family))
        process.kill()
        until(lambda: not any(map(alive, family)))


def test_an_interrupt_from_the_terminal_is_for_the_client_alone(told):
    with session(told, "null:0") as process:
        (worker,) = told.workers(HOLD)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        # One traceback, of the process that was interrupted; none of the workers'.
        assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1, said
        assert not alive(worker)


def children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: Callable[[], Any], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_devices_of_several_models_are_refused_and_listed(told):
    with pytest.raises(UsageError, match="one model") as caught, local(told, "null:0", "cpu:0"):
        pass
    assert "has null, null" in caught.value.message
    assert caught.value.message.count("worker ") == 2


def test_without_dask_the_extra_is_named(told, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"extra 'dask'"), local(told, "null:0"):
        pass


@contextlib.contextmanager
def started(*arguments: str, log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": IMPORT_PATH, **env},
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def cluster(folder: Path, workers: Mapping[str, tuple[str, ...]], *more: str) -> Iterator[str]:
    """The address of a scheduler, started with `more`, whose workers are started with what is given each."""
    with contextlib.ExitStack() as stack:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"tcp://127.0.0.1:{port}"
        quiet = ("--no-dashboard", "--host", "127.0.0.1")
        processes = [
            stack.enter_context(
                started("scheduler", "--port", str(port), *quiet, *more, log=folder / "scheduler.log")
            )
        ]
        processes += [
            stack.enter_context(
                started(
                    *("worker", address, "--nthreads", "1", "--name", name, *quiet, *arguments),
                    *("--local-directory", str(folder / name)),
                    log=folder / f"{name}.log",
                    HARNESS_CACHE_DIR=str(folder / "cache"),
                )
            )
            for name, arguments in workers.items()
        ]
        for name in workers:
            while b"Registered to" not in (folder / f"{name}.log").read_bytes():
                time.sleep(0.02)
        yield address
        for process in processes[::-1]:  # all at once: each takes a second to end
            process.terminate()


GPU = ("--resources", "GPU=1")
ALONE = ("--no-nanny",)
"""Without a second process, which would start the worker again when it is killed."""


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with two workers that announce a GPU, and one that does not."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, {"first": GPU, "second": GPU, "third": ALONE}) as address:
        yield address


def on(scheduler: str, told: Told, *devices: str) -> DaskExecutor:
    return DaskExecutor(told.suite, scheduler=scheduler, devices=devices)


class Seen:
    """Who is told of devices."""

    def __init__(self) -> None:
        self.devices: list[DeviceInfo] = []

    def opened(self, device: DeviceInfo) -> None:
        self.devices.append(device)

    def waiting(self, sentence: str) -> None:
        pass

    def stage(self, stage: str) -> None:
        pass


def test_a_cluster_gets_the_suite_sent_and_only_who_announces_a_gpu_works(told, scheduler):
    seen = Seen()
    executor = DaskExecutor(told.suite, scheduler=scheduler, devices=["null:0"], observer=seen)
    with executor:
        root = told.suite.parent.parent
        (root / "kernels").rename(root / "elsewhere")
        sizes = (*range(1, 8), HOLD, *range(8, 12))
        with killing_who_holds(told) as killed:
            assert verified(list(executor.run(jobs(*sizes)))) == keys(*sizes)
        until(lambda: len(executor._announced()) == 2)
    assert seen.devices == list(executor.devices)
    assert len(executor.devices) == 2
    assert len(killed) == 1
    assert not [file for file in told.files() if Path(file).is_relative_to(root)]
    # The folder is named for what was sent, and lies in each worker's own.
    (name,) = {Path(file).parts[-3] for file in told.files()}
    assert name.startswith("harness-suite-")


def test_the_same_suite_is_packed_the_same_and_comes_out_whole(told, tmp_path):
    text = told.suite / "suite.py"
    sent, place = dask_worker.pack(load(told.suite).suite)
    os.utime(text, (1, 1))
    write_files(told.suite, {"__pycache__/suite.pyc": "as this host compiled it"})
    assert dask_worker.pack(load(told.suite).suite) == (sent, place)
    folder = dask_worker.unpack(sent, tmp_path)
    assert (folder / place / "suite.py").read_bytes() == text.read_bytes()
    assert not list(folder.rglob("*.pyc"))
    text.write_text(f"{text.read_text()}# another\n")
    assert dask_worker.unpack(dask_worker.pack(load(told.suite).suite)[0], tmp_path) != folder
    # What is there already is not written again.
    (folder / "mark").touch()
    assert (dask_worker.unpack(sent, tmp_path) / "mark").exists()


def test_where_a_suite_cannot_be_unpacked_is_said(told, tmp_path):
    with pytest.raises(StoreError, match=r"cannot be unpacked in .*nowhere"):
        dask_worker.unpack(dask_worker.pack(load(told.suite).suite)[0], tmp_path / "nowhere")


def test_another_version_of_the_harness_is_refused(told, scheduler, monkeypatch):
    monkeypatch.setattr(harness, "__version__", "99.0")
    with pytest.raises(UsageError, match="do not fit") as caught, on(scheduler, told, "null:0"):
        pass
    assert "worker first: harness 0." in caught.value.message
    assert "the scheduler: harness 0." in caught.value.message
    assert "Expected harness 99.0" in caught.value.message
    assert "third" not in caught.value.message


def test_a_scheduler_without_the_harness_is_refused(told, tmp_path):
    """It reads what is sent to the workers, too."""
    without = ("--preload", "import sys\nsys.modules['harness'] = None\n")
    with (
        cluster(tmp_path, {"first": (*GPU, *ALONE)}, *without) as address,
        pytest.raises(UsageError, match="do not fit: the scheduler: no harness") as caught,
        on(address, told, "null:0"),
    ):
        pass
    assert "worker first" not in caught.value.message


def test_another_version_of_dask_is_refused(told, scheduler, monkeypatch):
    import distributed.versions

    ours = distributed.versions.get_versions()
    ours["packages"]["distributed"] = "1999.1.0"
    monkeypatch.setattr(distributed.versions, "get_versions", lambda **_asked: ours)
    with pytest.raises(UsageError, match="do not fit") as caught, on(scheduler, told, "null:0"):
        pass
    assert "the scheduler: distributed 2" in caught.value.message


def test_one_device_with_two_workers_is_refused(told, scheduler):
    with pytest.raises(UsageError, match="Several workers opened one device"), on(scheduler, told, "cpu:0"):
        pass


def test_a_device_that_is_not_there_is_said(told, scheduler):
    with pytest.raises(DeviceError, match="no device null:7"), on(scheduler, told, "null:7"):
        pass


def test_workers_of_a_cluster_are_told_one_device_at_most(told, scheduler):
    with (
        pytest.raises(UsageError, match="expected one device"),
        on(scheduler, told, "cuda:0", "cuda:1"),
    ):
        pass


def test_an_address_where_nothing_listens_or_answers_is_said(told, monkeypatch):
    monkeypatch.setattr("harness.run.sweep.cluster.CONNECT_S", 0.5)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(MeasureError, match="No Dask scheduler answers"), on(address, told):
            pass
    for nowhere in (address, "nonsense://x"):
        with pytest.raises(MeasureError, match="No Dask scheduler answers"), on(nowhere, told):
            pass


def test_a_cluster_without_a_gpu_is_said_with_what_to_do(told, tmp_path, monkeypatch):
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
        ) as empty,
        pytest.raises(MeasureError, match="--resources GPU=1"),
        on(empty.scheduler_address, told),
    ):
        pass


def test_a_scheduler_that_is_lost_ends_the_sweep_with_a_sentence(told, tmp_path):
    import distributed

    gone = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        resources={"GPU": 1},
    )
    with gone, on(gone.scheduler_address, told, "null:0") as executor:
        answering = executor.run(jobs(1, HOLD))
        assert next(answering).key == "job 1"
        gone.close()
        with pytest.raises(WorkerError, match="was lost"):
            list(answering)
