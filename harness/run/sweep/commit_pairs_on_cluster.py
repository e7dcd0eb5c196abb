"""Compares pairs of commits on several devices at once, each with a Dask worker.

Each worker makes whole comparisons on its own device, with its own processes. Dask finds these functions by
this module's name: client and worker need the same version of the harness.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import check_environment
from harness.errors import HarnessError, SuiteError, WorkerError
from harness.run.bisect.commit_pairs import Loader, PairResult, Question, answer, loader
from harness.run.device_session import DeviceObserver, DeviceSession
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
from harness.suite.loader import LoadedSuite, load


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWorkerSetup:
    """A worker's device and the place of its suites."""

    specs: WorkerSpecs
    suite: Path
    """The suite's folder, which our own workers see in this repository."""
    suite_from: str | None = None


Sent = Mapping[str, tuple[bytes, str] | SuiteError]
"""Suites for a host that does not see the repository, by commit.

Each is the files with the path of the suite's folder in them, or an error.
"""


class DaskPairDevices(DaskDevices):
    """Devices that compare pairs of commits; see `harness.run.bisect.commit_pairs.PairDevices`.

    Measurements of a worker on another host leave no record here except in the journal.
    """

    alike = "One bisection needs devices of one model, driver and compiler, or one would not confirm another"
    goes_on = "The same command goes on from what was measured."

    def __init__(
        self,
        loaded: LoadedSuite,
        devices: Sequence[str],
        observer: DeviceObserver,
        *,
        scheduler: str | None = None,
        suite_from: str | None = None,
    ) -> None:
        super().__init__(devices, scheduler, observer)
        self._loaded = loaded
        self._setup = PairWorkerSetup(specs=self._specs, suite=loaded.path, suite_from=suite_from)
        self._load = loader(loaded.path, suite_from)

    def _begin(self, _stack: contextlib.ExitStack) -> None:
        commit = self._loaded.commit or ""
        self._open(open_there, self._setup, commit, self._sent(commit))

    def ask(self, asked: Sequence[Question]) -> Iterator[PairResult]:
        """Yield the result of each question as soon as it is known. Raises WorkerError if a
        worker is lost.
        """
        import distributed

        futures = [
            self._submit(compare_there, self._setup, question, self._sent(question.base, question.head))
            for question in asked
        ]
        try:
            for future in distributed.as_completed(futures, loop=self._client.loop):
                yield _result(future)
        finally:
            self._client.cancel(futures, force=True)

    def _sent(self, *commits: str) -> Sent | None:
        """Return the suites at these commits; None for our own workers, which see the repository."""
        if self._scheduler is None:
            return None
        sent: dict[str, tuple[bytes, str] | SuiteError] = {}
        for commit in commits:
            try:
                sent[commit] = pack(self._load(commit).suite)
            except SuiteError as error:
                sent[commit] = error
        return sent


def _result(future: Any) -> Any:
    try:
        found = future.result()
    except Exception as error:
        raise WorkerError(
            f"A Dask worker was lost, or could not compare ({said(error)}). {DaskPairDevices.goes_on}"
        ) from error
    if isinstance(found, HarnessError):
        raise found
    return found


# Code that a worker runs


def open_there(setup: PairWorkerSetup, commit: str, sent: Sent | None) -> OpenedDevice | HarnessError:
    """Return the worker's device."""
    try:
        check_environment()
        restore_threads()
        suite = _loader(setup, sent)(commit).suite.root
        with DeviceSession(Silent(), suite, device=setup.specs.here(), busy="ignore") as session:
            return OpenedDevice.here(session.device, session.toolchain)
    except HarnessError as error:
        return error


def compare_there(setup: PairWorkerSetup, question: Question, sent: Sent | None) -> PairResult | HarnessError:
    """Answer the question on the worker's device."""
    settings = question.settings
    if sent:
        settings = dataclasses.replace(settings, results=None, save=False)
    try:
        asked = dataclasses.replace(question, settings=settings)
        found = answer(asked, _loader(setup, sent), setup.specs.here(), Silent())
    except HarnessError as error:
        return error
    return dataclasses.replace(found, question=question)


def _loader(setup: PairWorkerSetup, sent: Sent | None) -> Loader:
    def load_sent(commit: str) -> LoadedSuite:
        found = (sent or {})[commit]
        if isinstance(found, SuiteError):
            raise found
        files, folder = found
        return load(unpack(files, Path(this_worker().local_directory)) / folder)

    return load_sent if sent else loader(setup.suite, setup.suite_from)
