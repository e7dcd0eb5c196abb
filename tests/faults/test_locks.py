"""A device has one measurement at a time: runs wait for each other, and no planted lock file stops them."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.device.backends import null
from harness.device.lock import busy_with, held
from harness.errors import BusyError, ExitCode
from tests import sweeps, toy
from tests.support import (
    COMMAND,
    IMPORT_PATH,
    STARTED,
    Done,
    Recorder,
    caller,
    commit,
    make_repository,
    programs,
    run_command,
    write_null_script,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.records.types import DeviceInfo
    from tests.conftest import Project

pytestmark = pytest.mark.fault

FILE = "harness-NULL-7.lock"
BY_TIME = "parameters={'NULL_DEVICE_NS': (1_300_000, 1_000_000)}"
LADDER = """
    ladders=[
        Ladder("one", "One", source="Us", card="Old", sizes=64, peak=4, rungs=[Rung("plain", "plain", 1)])
    ],
    kernels=[
"""
HOLDER = {"pid": 1234, "command": "run", "since": "2026-01-02 03:04 UTC"}
TOLD = "null:0 (null) is being measured by process 1234 (run, since 2026-01-02 03:04 UTC)"


@pytest.fixture(autouse=True)
def locks(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locks")
    monkeypatch.setenv("HARNESS_LOCK_DIR", str(folder))
    return folder


@pytest.fixture
def device(null_script: Callable[..., Path]) -> DeviceInfo:
    """The null device, with an identity by which it is locked."""
    null_script({"uuid": "NULL-7"})
    return null.open_device(0).info


@pytest.fixture
def harness(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, device: DeviceInfo
) -> Callable[..., Done]:
    assert device.uuid
    return caller(capsys, monkeypatch)


@contextlib.contextmanager
def somebody(folder: Path, told: bytes = json.dumps(HOLDER).encode()) -> Iterator[None]:
    """Another holder of the device's lock."""
    with (folder / FILE).open("wb") as file:
        file.write(told)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def started(*command: str, cwd: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process that says all it says in one stream; whatever is left of it at the end is killed."""
    with programs.popen(
        list(command),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def harness_with(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", COMMAND, "-1", *arguments)


def line_with(process: subprocess.Popen[str], words: str) -> str:
    """The line that has these words, once the process has said it."""
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        if words in line:
            return line
        said.append(line)
    pytest.fail(f"it ended without {words!r}:\n{''.join(said)}")


COMMANDS = {
    "run": ["run", "--device", "null"],
    "compare": ["compare", "HEAD", "--device", "null"],
    "calibrate": ["calibrate", "--device", "null", "--trials", "1", "--planted-trials", "0"],
    "ci compare": ["ci", "compare", "--base", "HEAD~1", "--device", "null"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=list(COMMANDS))
def test_what_need_not_wait_fails_with_a_sentence(
    harness: Callable[..., Done], project: Project, locks: Path, arguments: list[str]
) -> None:
    project.commit()
    with somebody(locks):
        done = harness(*arguments, "--no-wait")
    assert (done.status, done.out) == (ExitCode.NOT_MEASURED, "")
    assert f"harness: {TOLD}. Try again later, or wait for it: leave out --no-wait.\n" in done.err


def test_a_run_waits_until_the_other_is_done(project: Project, device: DeviceInfo, locks: Path) -> None:
    with contextlib.ExitStack() as stack:
        with somebody(locks):
            waiting = stack.enter_context(started(*harness_with("run", "--device", "null"), cwd=project.root))
            assert line_with(waiting, "waiting") == f"{TOLD}: waiting.\n"
            assert waiting.poll() is None
        line_with(waiting, "Record: ")
        assert waiting.wait(60) == ExitCode.FINE
    assert device.uuid
    assert (locks / FILE).read_bytes() == b"", "nobody holds it any more"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_waiting_can_be_ended(
    project: Project, locks: Path, device: DeviceInfo, ending: signal.Signals
) -> None:
    assert device.uuid
    with somebody(locks), started(*harness_with("run", "--device", "null"), cwd=project.root) as waiting:
        line_with(waiting, "waiting")
        waiting.send_signal(ending)
        assert waiting.wait(60) != ExitCode.FINE
    assert not list(project.root.glob(".asv/results/*/*")), "nothing was measured"


def test_a_killed_holder_lets_go(
    harness: Callable[..., Done], project: Project, locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.root.parent
    usual = write_null_script(folder / "usual.json", {"uuid": "NULL-7"})
    fault = {"uuid": "NULL-7", "toy.plain": {"fault": "hang"}}
    hanging = write_null_script(folder / "hanging.json", fault)
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", hanging)
    # Its supervisor ends the worker that hangs.
    with started(*harness_with("run", "--device", "null"), cwd=project.root, **STARTED) as holder:
        line_with(holder, "Device:")
        monkeypatch.setenv("HARNESS_NULL_SCRIPT", usual)
        refused = harness("run", "--device", "null", "--no-wait")
        assert refused.status == ExitCode.NOT_MEASURED
        assert f"process {holder.pid} (run, since " in refused.err
    assert harness("run", "--device", "null", "--no-wait").status == ExitCode.FINE
    assert (locks / FILE).exists(), "a name that is removed could be locked twice"


def test_who_times_nothing_waits_for_nobody(
    harness: Callable[..., Done], project: Project, locks: Path
) -> None:
    with somebody(locks):
        assert harness("check", "--device", "null").status == ExitCode.FINE
        assert harness("list").status == ExitCode.FINE


def test_the_null_device_is_never_busy_without_an_identity(
    harness: Callable[..., Done], project: Project, locks: Path, null_script: Callable[..., Path]
) -> None:
    null_script({})
    assert harness("run", "--device", "null", "--no-wait").status == ExitCode.FINE
    assert not list(locks.iterdir())


def test_one_process_gets_it_again(device: DeviceInfo, locks: Path) -> None:
    told: list[str] = []
    with held(device, "run", "fail", told.append), held(device, "compare", "fail", told.append):
        assert _taken(locks / FILE)
    assert not _taken(locks / FILE)
    assert told == []


def test_it_is_held_until_the_last_use_is_over(device: DeviceInfo, locks: Path) -> None:
    first, second = (held(device, "run", "fail", print) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert _taken(locks / FILE)
    second.__exit__(None, None, None)
    assert not _taken(locks / FILE)


def test_a_thread_that_waits_gets_it_from_its_own_process(device: DeviceInfo, locks: Path) -> None:
    told = threading.Event()
    with somebody(locks):
        waits = [threading.Thread(target=_hold, args=(device, told)) for _ in range(2)]
        for thread in waits:
            thread.start()
        assert told.wait(60)
    for thread in waits:
        thread.join(60)
        assert not thread.is_alive()


def _hold(device: DeviceInfo, told: threading.Event) -> None:
    with held(device, "sweep", "wait", lambda _: told.set()):
        pass


@pytest.mark.parametrize("words", [b"", b"{}", b"\xff\xfe", b'{"pid": 1, "command"', b"[" * 2000])
def test_a_holder_that_says_nonsense_is_another_process(
    device: DeviceInfo, locks: Path, words: bytes
) -> None:
    with (
        somebody(locks, words),
        pytest.raises(BusyError, match="is being measured by another process"),
        held(device, "run", "fail", print),
    ):
        pass


def test_what_a_holder_says_moves_no_cursor(device: DeviceInfo, locks: Path) -> None:
    told = {**HOLDER, "command": "run\n\x1b[2J" + "x" * 500}
    with (
        somebody(locks, json.dumps(told).encode()),
        pytest.raises(BusyError) as raised,
        held(device, "run", "fail", print),
    ):
        pass
    assert raised.value.message.isprintable()
    assert len(raised.value.message) < 300


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def _second_name(path: Path) -> None:
    path.hardlink_to(path.parent / "victim")


@pytest.mark.parametrize("plant", [_fifo, Path.mkdir, _link, _dangling, _second_name])
def test_what_is_planted_is_told_and_neither_waited_for_nor_written_to(
    harness: Callable[..., Done], project: Project, locks: Path, plant: Callable[[Path], None]
) -> None:
    (locks / "victim").write_text("of somebody", encoding="utf-8")
    plant(locks / FILE)
    done = harness("run", "--device", "null", "--no-wait")
    assert done.status == ExitCode.FINE
    assert (
        f"null:0 (null) is measured without a lock, so another run may disturb it: {locks / FILE}" in done.err
    )
    assert "HARNESS_LOCK_DIR names another folder for locks." in done.err
    assert (locks / "victim").read_text(encoding="utf-8") == "of somebody"
    assert not (locks / "nothing").exists()


@pytest.mark.parametrize("folder", ["missing", "a-file"])
def test_a_lock_folder_that_is_none_is_told(
    harness: Callable[..., Done], project: Project, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (project.root / "a-file").touch()
    monkeypatch.setenv("HARNESS_LOCK_DIR", str(project.root / folder))
    done = harness("run", "--device", "null", "--json")
    assert done.status == ExitCode.FINE
    assert done.json[0]["complete"]
    assert "is measured without a lock" in done.err


def test_without_a_lock_code_that_is_the_same_is_identical_all_the_same(
    harness: Callable[..., Done], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = "kernels/toy/plain.cu"
    project.commit({plain: f"// a comment\n{toy.FILES[plain]}"})
    monkeypatch.setenv("HARNESS_LOCK_DIR", str(project.root / "missing"))
    done = harness("compare", "HEAD~1", "HEAD", "--device", "null", "--no-save", "--json")
    assert {verdict["status"] for verdict in done.json[0]["verdicts"]} == {"identical"}
    assert "is measured without a lock" in done.err


def test_a_lock_is_for_every_user(device: DeviceInfo, locks: Path) -> None:
    before = os.umask(0o077)
    try:
        with held(device, "run", "fail", print):
            pass
    finally:
        os.umask(before)
    assert (locks / FILE).stat().st_mode & 0o777 == 0o666


def test_a_lock_that_can_only_be_read_still_locks(
    harness: Callable[..., Done], project: Project, locks: Path
) -> None:
    (locks / FILE).touch(mode=0o444)
    assert harness("run", "--device", "null", "--no-wait").status == ExitCode.FINE
    with (locks / FILE).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert harness("run", "--device", "null", "--no-wait").status == ExitCode.NOT_MEASURED


def test_a_record_says_nothing_of_waiting(project: Project, device: DeviceInfo) -> None:
    done = run_command("run", "--device", "null", "--json", "--no-wait", cwd=project.root)
    assert done.returncode == ExitCode.FINE
    assert "waiting" not in done.stdout + done.stderr


def test_a_sweep_need_not_wait(harness: Callable[..., Done], tmp_path: Path, locks: Path) -> None:
    root = sweeps.project(tmp_path / "swept", BY_TIME)
    with somebody(locks):
        done = harness("sweep", "tuned", "--device", "null", "--no-wait", cwd=root)
        assert (done.status, done.out) == (ExitCode.NOT_MEASURED, "")
        assert TOLD in done.err
    assert not list(root.glob("results/*/*")), "nothing was begun"


def test_a_dask_worker_waits_for_its_own_device(tmp_path: Path, device: DeviceInfo, locks: Path) -> None:
    pytest.importorskip("distributed")
    from harness.run.sweep.cluster import DaskExecutor

    told = Recorder()
    root = sweeps.project(tmp_path / "swept", BY_TIME)
    suite = root / "kernels" / "toy"
    with somebody(locks):
        with (
            pytest.raises(BusyError, match="is being measured by process 1234"),
            DaskExecutor(suite, scheduler=None, devices=["null:0"], busy="fail"),
        ):
            pass
        executor = DaskExecutor(suite, scheduler=None, devices=["null:0"], observer=told)
        with executor:
            [sentence] = told.stages
            assert sentence.endswith(f"{TOLD}: jobs there wait.")
    assert device.uuid
    assert not _taken(locks / FILE)


def test_a_ladder_is_not_shown_as_if_it_had_been_measured(
    harness: Callable[..., Done], project: Project, locks: Path
) -> None:
    suite = toy.SUITE.replace("import Axis", "import Ladder, Rung, Axis").replace(
        "    kernels=[\n", LADDER[1:]
    )
    project.write({"kernels/toy/suite.py": suite})
    with somebody(locks):
        arguments = ("report", "ladder", "--measure", "--device", "null", "--no-wait")
        done = harness(*arguments)
    assert (done.status, done.out) == (ExitCode.NOT_MEASURED, "")
    assert TOLD in done.err


def test_a_pytest_session_says_that_it_waits_and_need_not(
    project: Project, device: DeviceInfo, locks: Path
) -> None:
    pytest.importorskip("pytest_benchmark")
    project.write({"test_toy.py": "def test_it(gpu_benchmark, gpu_case):\n    gpu_benchmark(gpu_case)\n"})
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "--perf-device=null", "-kplain"]
    assert device.uuid
    with contextlib.ExitStack() as stack:
        with somebody(locks):
            with started(*command, "--perf-no-wait", cwd=project.root) as refused:
                assert line_with(refused, "Try again later")
                line_with(refused, "1 failed")
            waiting = stack.enter_context(started(*command, cwd=project.root))
            assert line_with(waiting, "waiting") == f"{TOLD}: waiting.\n"
        line_with(waiting, "1 passed")


def test_asv_says_that_it_waits(tmp_path: Path, device: DeviceInfo, locks: Path) -> None:
    pytest.importorskip("asv")
    from tests.test_asv import FILES

    root = make_repository(tmp_path / "measured")
    commit(root, FILES, 1)
    with contextlib.ExitStack() as stack:
        with somebody(locks):
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("HARNESS_DEVICE", "null")
            running = stack.enter_context(started(sys.executable, "-m", "asv", "run", "HEAD^!", cwd=root))
            assert running.stdout is not None
            said = b""
            while f"{TOLD}: waiting.".encode() not in said:  # asv ends a line when it begins the next
                more = os.read(running.stdout.fileno(), 4096)
                assert more, said
                said += more
        line_with(running, "toy.plain@64: measured")
    assert device.uuid


def test_a_lock_whose_file_was_removed_is_taken_in_its_place(device: DeviceInfo, locks: Path) -> None:
    told: list[str] = []

    def remove(sentence: str) -> None:
        told.append(sentence)
        (locks / FILE).unlink()

    with somebody(locks), held(device, "run", "wait", remove):
        assert _taken(locks / FILE)
    assert len(told) == 1


def _taken(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("backend", ["cuda", "opengl"])
def test_a_card_is_one_whichever_backend_names_it(device: DeviceInfo, locks: Path, backend: str) -> None:
    card = dataclasses.replace(device, backend=backend, spec=f"{backend}:0", name="A card", kind="gpu")
    with somebody(locks):
        assert busy_with(card).startswith(f"{backend}:0 (A card) is being measured by process 1234")
    assert busy_with(card) == ""
