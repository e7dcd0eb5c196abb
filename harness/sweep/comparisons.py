"""Pairs of commits compared on several devices at once: a crew whose devices are Dask's workers.

Each worker carries out whole comparisons on its own device, with processes of its own. Dask finds these
functions by this module's name: client and worker need the same version of the harness.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import check_environment
from harness.errors import HarnessError, SuiteError, UsageError, WorkerError
from harness.records import DeviceInfo
from harness.run.commit_pairs import Found, Loader, Question, answer, loader
from harness.run.compare import Purpose
from harness.run.device_session import DeviceObserver, DeviceSession
from harness.spec.loader import LoadedSuite, load
from harness.sweep.bench import Silent
from harness.sweep.cluster import RESOURCE, check_cluster, connected, local, quiet, said
from harness.sweep.dask_worker import pack, restore_threads, unpack

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker finds its device and its suites."""

    specs: tuple[str, ...] = ()
    """Of each worker of a cluster of our own."""
    spec: str | None = None
    """Of any other; None leaves it to the worker."""
    suite: Path
    """The suite's folder, which workers of our own see in this repository."""
    suite_from: str | None = None


Sent = Mapping[str, tuple[bytes, str] | SuiteError]
"""Suites for a host that does not see the repository, by commit: files and the place of the suite's folder
among them, or why there is none.
"""


class DaskCrew:
    """Several devices, each with a worker of Dask's; see `harness.run.commit_pairs.Crew`. A context manager.

    Without `scheduler` there is a process for each device of `devices`, on this host. With one, the workers
    of that cluster are used that announce the resource GPU, each with the one spec of `devices`, its own
    $HARNESS_DEVICE, or the first device that works. What a worker measures elsewhere leaves no record here
    but in the journal.

    Entering raises UsageError where devices are not of one model, or Dask is missing or differs; DeviceError
    where a device does not open; MeasureError where nothing answers.
    """

    def __init__(
        self,
        loaded: LoadedSuite,
        devices: Sequence[str],
        observer: DeviceObserver,
        *,
        scheduler: str | None = None,
        suite_from: str | None = None,
    ) -> None:
        self._loaded, self._observer, self._scheduler = loaded, observer, scheduler
        if scheduler is not None and len(set(devices)) > 1:
            raise UsageError(
                f"Workers of {scheduler} were told to open {', '.join(devices)}; expected one device, which "
                "each of them opens: CUDA_VISIBLE_DEVICES says what it sees, where it is started."
            )
        self._place = Place(
            specs=() if scheduler else tuple(devices),
            spec=devices[0] if scheduler and devices else None,
            suite=loaded.path,
            suite_from=suite_from,
        )
        self._load = loader(loaded.path, suite_from)
        self.devices: tuple[DeviceInfo, ...] = ()
        self.compiler = ""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(quiet())
            if self._scheduler is None:
                self._client = local(stack, self._place.specs)
            else:
                self._client = connected(stack, self._scheduler)
                check_cluster(self._client, self._scheduler, self._announced())
            self._open()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def ask(self, asked: Sequence[Question]) -> Iterator[Found]:
        """What comes of questions, as each is answered. Raises WorkerError where a worker is lost."""
        import distributed

        futures = [
            self._submit(
                compare_there, question, self._scheduler and self._sent(question.base, question.head)
            )
            for question in asked
        ]
        try:
            for future in distributed.as_completed(futures, loop=self._client.loop):
                yield _result(future)
        finally:
            self._client.cancel(futures, force=True)

    def _sent(self, *commits: str) -> Sent:
        sent: dict[str, tuple[bytes, str] | SuiteError] = {}
        for commit in commits:
            try:
                sent[commit] = pack(self._load(commit).suite.root)
            except SuiteError as error:
                sent[commit] = error
        return sent

    def _submit(self, what: Callable[..., Any], *given: Any, workers: Sequence[str] | None = None) -> Any:
        return self._client.submit(
            what, self._place, *given, pure=False, resources={RESOURCE: 1}, workers=workers
        )

    def _announced(self) -> dict[str, Any]:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        return {address: each for address, each in workers.items() if each["resources"].get(RESOURCE, 0) > 0}

    def _open(self) -> None:
        commit = self._loaded.commit or ""
        sent = self._scheduler and self._sent(commit)
        futures = [self._submit(open_there, commit, sent, workers=[address]) for address in self._announced()]
        opened: list[tuple[DeviceInfo, str, str]] = [_result(future) for future in futures]
        named = [(device.uuid, host) for device, _, host in opened if device.uuid]
        if len(set(named)) < len(named):
            raise UsageError(
                "Several workers opened one device: expected one worker for each. Ask for each device once, "
                "or start each worker with its own CUDA_VISIBLE_DEVICES."
            )
        models = {(device.name, device.driver, compiler) for device, compiler, _ in opened}
        if len(models) > 1:
            listed = "; ".join(f"{name}, driver {driver}, {compiler}" for name, driver, compiler in models)
            raise UsageError(
                "One bisection needs devices of one model, driver and compiler, or one's answer would not be "
                f"another's: {listed}. Choose devices that are alike."
            )
        self.devices, self.compiler = tuple(device for device, _, _ in opened), opened[0][1]
        for device in self.devices:
            self._observer.opened(device)


def _result(future: Any) -> Any:
    try:
        found = future.result()
    except Exception as error:
        raise WorkerError(
            f"A Dask worker was lost, or could not compare ({said(error)}). The same command goes on from "
            "what was measured."
        ) from error
    if isinstance(found, HarnessError):
        raise found
    return found


# What a worker runs


class _Quiet(Silent):
    """A CompareObserver that tells nobody."""

    def process(self, number: int, cases: int, purpose: Purpose) -> None:
        pass

    def started(self, case: str) -> None:
        pass

    def measured(self, case: str) -> None:
        pass


def open_there(place: Place, commit: str, sent: Sent | None) -> tuple[DeviceInfo, str, str] | HarnessError:
    """The worker's device, its compiler and its host."""
    try:
        check_environment()
        restore_threads()
        suite = _loader(place, sent)(commit).suite.root
        with DeviceSession(_Quiet(), suite, device=_spec(place), busy="ignore") as session:
            return session.device, session.toolchain.compiler, platform.node()
    except HarnessError as error:
        return error


def compare_there(place: Place, question: Question, sent: Sent | None) -> Found | HarnessError:
    """What comes of a question on the worker's device."""
    settings = question.settings
    if sent:
        settings = dataclasses.replace(settings, results=None, save=False)
    try:
        asked = dataclasses.replace(question, settings=settings)
        found = answer(asked, _loader(place, sent), _spec(place), _Quiet())
    except HarnessError as error:
        return error
    return dataclasses.replace(found, question=question)


def _loader(place: Place, sent: Sent | None) -> Loader:
    def load_sent(commit: str) -> LoadedSuite:
        found = (sent or {})[commit]
        if isinstance(found, SuiteError):
            raise found
        files, folder = found
        return load(unpack(files, Path(_worker().local_directory)) / folder)

    return load_sent if sent else loader(place.suite, place.suite_from)


def _spec(place: Place) -> str | None:
    if place.specs:
        return place.specs[int(_worker().name)]
    return place.spec or os.environ.get("HARNESS_DEVICE") or None


def _worker() -> Any:
    from distributed import get_worker

    return get_worker()
