"""Measures suites on the cards of a Dask cluster; see `harness.run.several_cards`.

A worker gets a command's work on one suite, does it on its own card with its own processes, and returns the
result with the files that the work has stored. Dask finds these functions by this module's name: client and
worker need the same version of the harness.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pickle
import secrets
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from harness.config import check_environment
from harness.device.machine import machine_name
from harness.errors import HarnessError, SuiteError, WorkerError
from harness.judgement import noise
from harness.records.record_files import writing_results
from harness.records.types import Row, Source
from harness.run.several_cards import Card, settings_of
from harness.run.sweep import cluster
from harness.run.sweep.cluster import DaskDevices, said
from harness.run.sweep.dask_worker import (
    OpenedDevice,
    WorkerSpecs,
    pack,
    restore_threads,
    this_worker,
    unpack,
)
from harness.run.sweep.executors import Silent
from harness.run.worker_process import WorkerProcess
from harness.suite.loader import LoadedSuite, load
from harness.system import interrupts
from harness.system.cache import write_atomically
from harness.system.files import read_regular, scratch_folder
from harness.system.process import begin_ready

Files = dict[str, bytes]
"""Files of a results folder, by path within it."""
GLANCE_S = 0.05
"""Time between two looks for an answer or an interrupt, in seconds."""


# Sending work


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSuite:
    """A loaded suite for a host that does not see its folder."""

    files: bytes
    folder: str
    """The suite's folder among the files."""
    source: Source
    absent: bool
    problem: SuiteError | None


class _Pickler(pickle.Pickler):
    """Replaces each loaded suite, which a process of this host holds, by its files."""

    def persistent_id(self, obj: Any) -> SentSuite | None:
        if not isinstance(obj, LoadedSuite):
            return None
        files, folder = pack(obj.suite)
        return SentSuite(
            files=files, folder=folder, source=obj.source, absent=obj.absent, problem=obj.problem
        )


class _Unpickler(pickle.Unpickler):
    """Loads each suite from its files."""

    def persistent_load(self, pid: SentSuite) -> LoadedSuite:
        folder = unpack(pid.files, Path(this_worker().local_directory)) / pid.folder
        loaded = dataclasses.replace(load(folder), repository=None, absent=pid.absent, problem=pid.problem)
        vars(loaded)["source"] = pid.source  # the commit, which is unknown on this host
        return loaded


def _of_suite(work: Any, suite: int, results: Path | None) -> Any:
    """Return the work on one suite, which stores its records in another folder."""
    settings = dataclasses.replace(work.settings, results=results)
    return dataclasses.replace(work, suites=(work.suites[suite],), settings=settings)


def _sent(work: Any) -> bytes:
    packed = io.BytesIO()
    _Pickler(packed).dump(work)
    return packed.getvalue()


# The client


class DaskCards(DaskDevices):
    """The cards of a cluster's workers; a context manager like its base."""

    goes_on = "Finished results are stored."

    def __init__(self, scheduler: str, device: str | None) -> None:
        super().__init__([device] if device else [], scheduler, Silent())  # each card reports itself
        self.cards: list[Card] = []
        self._name = f"harness-{secrets.token_hex(6)}"
        self._addresses: dict[str, str] = {}
        """Address of each worker, by the place of its card."""
        self._observers: dict[str, Any] = {}

    def _begin(self, stack: contextlib.ExitStack) -> None:
        for one in self._opened_by_all(open_card, self._specs):
            card = Card(one.device, (*one.model, *one.settings), f"{one.device.spec} of {one.worker}")
            self.cards.append(card)
            self._addresses[card.place] = one.address
        self._client.subscribe_topic(self._name, self._hear)
        stack.callback(self._client.unsubscribe_topic, self._name)

    def _hear(self, event: tuple[float, bytes]) -> None:
        """Report the progress of a worker."""
        place, name, given = pickle.loads(event[1])  # noqa: S301 - from a worker, as every result is
        getattr(self._observers[place], name)(*given)

    def measure(self, work: Any, card: Card, suite: int, cases: frozenset[str], observer: Any) -> Any:
        """Measure these cases of a suite on a card, and store its record and calibration here.

        Raises the errors of the work, and WorkerError for a lost worker.
        """
        self._observers[card.place] = observer
        address, results = self._addresses[card.place], work.settings.results
        task = Task(
            command=self._name,
            place=card.place,
            work=_sent(_of_suite(work, suite, None)),
            cases=cases,
            specs=self._specs,
            known=_known(results, card),
        )
        try:
            found = self._answer(self._submit(measure_there, task, workers=[address]), card)
        except HarnessError:
            raise
        except Exception as error:  # a lost scheduler, or a worker with other packages
            raise WorkerError(
                f"The Dask worker of {card.place} could not measure ({said(error)}).",
                log=traceback.format_exc(),
            ) from error
        if isinstance(found, HarnessError):
            raise found
        return _stored(found, results)

    def _answer(self, future: Any, card: Card) -> MeasuredThere | HarnessError:
        """Return a worker's answer; after an interrupt, what it had finished before."""
        try:
            self._wait(future, card)
        except KeyboardInterrupt:
            address = self._addresses[card.place]
            self._client.run(interrupt_there, self._name, workers=[address], on_error="ignore")
            self._wait(future, card)
        found: MeasuredThere | HarnessError = future.result()
        return found

    def _wait(self, future: Any, card: Card) -> None:
        """Wait until a worker has answered. Raises WorkerError once it is lost."""
        checked = time.monotonic()
        while not future.done():
            interrupts.check()
            time.sleep(GLANCE_S)
            if time.monotonic() > checked + cluster.CHECK_S:
                if self._addresses[card.place] not in self._announced():
                    raise WorkerError(f"The Dask worker of {card.place} was lost.")
                checked = time.monotonic()


def _known(results: Path | None, card: Card) -> Files | None:
    """Return the card's calibration; None if there is no folder of records."""
    if results is None:
        return None
    path = results / machine_name(card.device) / noise.FILE
    with contextlib.suppress(OSError):
        return {path.relative_to(results).as_posix(): read_regular(path)}
    return {}


def _stored(found: MeasuredThere, results: Path | None) -> Any:
    """Write the files of a worker's work, and return its result. Raises StoreError."""
    if results is None:
        return found.result
    for name, content in found.files.items():
        with writing_results((results / name).parent):
            write_atomically(results / name, content)
    path = found.result.path
    return dataclasses.replace(found.result, path=path and results / path)


# Code that a worker runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command's work on one suite and one card."""

    command: str
    """A random name, by which progress and interrupts find it."""
    place: str
    work: bytes
    cases: frozenset[str]
    specs: WorkerSpecs
    known: Files | None
    """Files of the results folder that the work reads; None if it has no folder."""


class MeasuredThere(NamedTuple):
    """A result, whose path is relative to the results folder, and the files in that folder."""

    result: Any
    files: Files


def open_card(specs: WorkerSpecs) -> OpenedDevice | HarnessError:
    """Return the worker's device, with the settings that affect its times."""
    try:
        check_environment()
        restore_threads()
        begin_ready()
        with scratch_folder() as scratch, contextlib.closing(WorkerProcess(scratch)) as worker:
            found = worker.begin_open(specs.here())()
        device, settings = settings_of(found.device)
        return OpenedDevice.here(device, found.toolchain, settings=settings)
    except HarnessError as error:
        return error


_interrupts: dict[str, threading.Event] = {}  # by command


def measure_there(task: Task) -> MeasuredThere | HarnessError:
    """Measure on the worker's card."""
    asked = _interrupts[task.command] = threading.Event()
    interrupts.heed(asked)
    try:
        work = _Unpickler(io.BytesIO(task.work)).load()
        with scratch_folder() as scratch:
            if task.known is not None:
                for name, content in task.known.items():
                    write_atomically(scratch / name, content)
                work = _of_suite(work, 0, scratch)
            result = work.measure(0, task.specs.here(), task.cases, _Reporting(task, asked))
            path = result.path and result.path.relative_to(scratch)
            files = {file.relative_to(scratch).as_posix(): file.read_bytes() for file in scratch.glob("*/*")}
            return MeasuredThere(dataclasses.replace(result, path=path), files)
    except HarnessError as error:
        return error
    finally:
        del _interrupts[task.command]


def interrupt_there(command: str) -> None:
    """Interrupt a command's work on this worker, as Ctrl-C does."""
    if command in _interrupts:
        _interrupts[command].set()


class _Reporting:
    """An observer that reports to the client. It interrupts the work if the client is gone."""

    def __init__(self, task: Task, asked: threading.Event) -> None:
        self._task, self._asked = task, asked
        self._worker = this_worker()
        self._key = self._worker.get_current_task()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return partial(self._report, name)

    def finished(self, row: Row) -> None:
        self._report("finished", dataclasses.replace(row, telemetry=None, log=""))  # the scheduler keeps it

    def _report(self, name: str, *given: Any) -> None:
        known = self._worker.state.tasks.get(self._key)
        if known is None or known.state == "cancelled":
            self._asked.set()
        self._worker.log_event(self._task.command, pickle.dumps((self._task.place, name, given)))
