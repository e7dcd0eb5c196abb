"""asv benchmarks of a suite: measured once per commit, read by many ``track_*``.

benchmarks/ has one small class for each suite::

    from harness.integrations import asv_tracks

    class Matmul(asv_tracks.SuiteTracks):
        folder = "kernels/matmul"

        def setup_cache(self):
            return self.measure()

(setup_cache is written out because asv distinguishes caches by the line that defines them.)
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from harness.config import Config, load_config
from harness.errors import HarnessError
from harness.history.figures import METRICS, METRICS_OF_COUNTERS, Metric
from harness.measure.timing import MeasureSettings
from harness.records.types import METHOD_VERSION, DeviceInfo, Row
from harness.report.terminal.run_tables import outcome
from harness.run.run import Session, SessionSettings
from harness.run.worker_process import opening
from harness.suite.case_id import size_label
from harness.suite.loader import load
from harness.suite.planning import divided, plan
from harness.system import ready, supervisor
from harness.system.decoding import decode
from harness.system.process import begin_ready

ANSWERS = "harness-answers.json"
"""File in the folder that a class's benchmarks share: an answer per track and parameter combination, in asv's
order."""
SETUP_TIMEOUT_S = 6 * 3600.0

Answer = dict[str, Any]
"""{"value": ...} in asv's form, or {"error": text}."""

Parameters = tuple[str, "int | str"]
"""A kernel's name and a size's label."""

_VARIABLE = "HARNESS_ASV"


class AsvRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The plugin's request, from asv's process to the processes that asv starts: JSON in a variable."""

    device_kind: str = "gpu"
    machine: str | None = None
    environment: str = ""
    """Name of asv's environment, which is part of the names of its result files."""
    results: str | None = None
    repository: str | None = None
    """The repository with the commits: a mirror, if asv.conf.json's "repo" is an address."""
    selected: dict[str, list[int]] = {}
    """Positions, in asv's order, of the parameters to measure, by class. Other classes are measured whole."""
    dry_run: bool = False
    scratch: str | None = None
    """A folder that exists as long as asv's command: records go there instead of beside the results."""
    progress: str | None = None
    only: str = ""
    """Name of the class whose setup_cache is to run; empty if all classes are to be found."""
    asv_pid: int | None = None

    @classmethod
    def given(cls, **facts: Any) -> AsvRequest:
        asked = decode(os.environ.get(_VARIABLE) or "{}", cls)
        return msgspec.structs.replace(asked, **facts)

    @property
    def variables(self) -> dict[str, str]:
        return {_VARIABLE: msgspec.json.encode(self).decode()}


@contextlib.contextmanager
def requesting(**facts: Any) -> Iterator[None]:
    """Add these facts to the request for asv's processes in this block."""
    given = AsvRequest.given()
    before = {name: getattr(given, name) for name in facts}
    os.environ.update(AsvRequest.given(**facts).variables)
    try:
        yield
    finally:
        os.environ.update(AsvRequest.given(**before).variables)


_NOTHING: Answer = {"value": math.nan}
"""An answer that asv shows as n/a: no such kernel at this commit, or not on this device."""
TRACKS: dict[str, Metric] = {
    f"track_{name}": metric for name, metric in METRICS.items() if name not in METRICS_OF_COUNTERS
}
"""Metric of each track. asv copies a track's direction into benchmarks.json, but treats every
rise as worse."""


class _FileObserver:
    def __init__(self) -> None:
        self.path = AsvRequest.given().progress

    def opened(self, device: DeviceInfo) -> None:
        self.waiting(f"Device: {device.spec}, {device.name}")

    def started(self, case: str, number: int, total: int) -> None:
        self.name = f"[{number}/{total}] {case}"

    def stage(self, stage: str) -> None:
        pass

    def finished(self, row: Row) -> None:
        self.waiting(f"{self.name}: {outcome(row)}")

    def waiting(self, sentence: str) -> None:
        if self.path:
            with contextlib.suppress(OSError), open(self.path, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(sentence + "\n")


class SuiteTracks:
    """Base class. A subclass has `folder`, the suite's folder relative to the project, and its own
    setup_cache.
    """

    folder: ClassVar[str]
    params: ClassVar[list[list[Any]]] = []
    param_names: ClassVar[list[str]] = ["kernel", "size"]
    timeout = 60.0

    def __init_subclass__(cls) -> None:
        asked = AsvRequest.given()
        if asked.only not in ("", cls.__name__):
            return
        if os.environ.get(_VARIABLE):
            begin_ready(ready.MODULES if asked.only else ready.MODULES[:1])  # several suites are loaded
        # The working tree's suite defines the kernels and sizes with graphs. Each commit's own suite is
        # measured.
        suite = load(cls._path()).suite
        # One list for all machines, with the points of the current device first, because asv's pages open
        # with the first.
        quick = asked.device_kind != "gpu"
        points = [*suite.problem.points(quick=quick), *suite.problem.points(quick=not quick)]
        labels = dict.fromkeys(label_of(point) for point in points)
        cls.params = [[kernel.name for kernel in suite.kernels], [*labels]]
        for name, track in TRACKS.items():
            if track.headline in (None, suite.headline):
                setattr(cls, name, _method(name, track, suite.name))
        setup_cache: Any = cls.__dict__["setup_cache"]
        setup_cache.timeout = SETUP_TIMEOUT_S

    @classmethod
    def _path(cls) -> Path:
        return Path(inspect.getfile(cls)).parent.parent / cls.folder

    def measure(self) -> dict[str, list[Answer]]:
        """Measure the suite at asv's commit, and store an answer for every track, kernel and size.

        Raises HarnessError if the suite does not load at that commit, or there is no device.
        """
        observer = _FileObserver()
        try:
            with _ended_with_asv():
                return self._measure(observer)
        except HarnessError as error:
            observer.waiting(error.message)  # asv itself only says "failed"
            raise

    def _measure(self, observer: _FileObserver) -> dict[str, list[Answer]]:
        config, asked = load_config(self._path()), AsvRequest.given()
        repository = Path(asked.repository) if asked.repository else None
        selected = self._selected(asked)
        notes: dict[str, str | bool] = {"environment": asked.environment} if asked.environment else {}
        settings = SessionSettings(
            command="asv",
            device=config.device,
            measure=MeasureSettings(l2=config.l2),  # type: ignore[arg-type]
            timeout_s=config.timeout_s,
            results=_records_folder(asked, config),
            machine=asked.machine,
            notes=notes if selected is None else {**notes, "partial": True},
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(opening(config.device))
            loaded = load(self._path(), os.environ.get("ASV_COMMIT"), repository)
            session = stack.enter_context(Session(loaded, settings, observer))
            cases, _ = divided(plan(loaded.suite, quick=session.device.kind != "gpu"), (), session.device)
            if selected is not None:
                cases = [each for each in cases if (each.kernel.name, label_of(each.case.sizes)) in selected]
            result = session.run(cases) if cases or selected is None else None
        if result and result.interrupted:
            raise KeyboardInterrupt
        rows = {(row.kernel, label_of(row.sizes)): row for row in result.rows} if result else {}
        names = [name for name in TRACKS if hasattr(self, name)]
        answers = answers_of(rows, itertools.product(*self.params), names)
        Path(ANSWERS).write_text(json.dumps(answers), encoding="utf-8")
        return answers

    def _selected(self, asked: AsvRequest) -> set[Parameters] | None:
        """Return the requested kernels and sizes; None for all."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        keys = list(itertools.product(*self.params))
        for group, places in asked.selected.items():
            if f".{name}".endswith(f".{group}"):
                return {keys[place] for place in places}
        return None


def _records_folder(asked: AsvRequest, config: Config) -> Path | None:
    if asked.scratch:
        return Path(asked.scratch)
    return None if asked.dry_run else Path(asked.results or config.results_folder)


def answers_of(
    rows: Mapping[Parameters, Row], parameters: Iterable[Parameters], names: Sequence[str]
) -> dict[str, list[Answer]]:
    """Return answers for each kernel and size, by track; n/a without a row."""
    found = [rows.get(key) for key in parameters]
    return {name: [_answer(TRACKS[name], row) if row else _NOTHING for row in found] for name in names}


@contextlib.contextmanager
def _ended_with_asv() -> Iterator[None]:
    """End the measurement in this block if asv ends by a signal, as with Ctrl-C.

    Finished rows are stored, and workers and temporary folders are removed. asv sends TERM if it is
    interrupted and can still act; otherwise the system sends it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # both asv's and the system's may arrive
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    supervisor.prctl(supervisor.PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        if (asv := AsvRequest.given().asv_pid) and os.getppid() != asv:
            raise KeyboardInterrupt  # it has ended already
        yield
    finally:
        supervisor.prctl(supervisor.PR_SET_PDEATHSIG, 0)
        signal.signal(signal.SIGTERM, before)


def _method(name: str, track: Metric, suite: str) -> Callable[..., Any]:
    def read(self: SuiteTracks, answers: dict[str, list[Answer]], kernel: str, size: int | str) -> Any:
        """Return an answer. It is used if another environment than the plugin's runs the benchmarks."""
        answer = answers[name][list(itertools.product(*self.params)).index((kernel, size))]
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    read.__name__ = name
    # asv reads these.
    vars(read).update(unit=track.unit, direction=track.direction, suite=suite, version=METHOD_VERSION)
    return read


def _answer(metric: Metric, row: Row) -> Answer:
    if row.status == "failed" and not (row.reason == "wrong-result" and metric.wrong is not None):
        return {"error": f"{row.case} ({row.reason}): {row.message}\n{row.log}".strip()}
    found = metric.read(row) if row.status not in ("skipped", "failed") else None
    if isinstance(found, tuple):  # asv computes a median with an interval from this form
        return {"value": {"samples": list(found), "number": 1}}
    return {"value": metric.wrong if row.status == "failed" else math.nan if found is None else found}


def label_of(sizes: Mapping[str, int]) -> int | str:
    """Return a number if possible, which asv can put on an axis."""
    label = size_label(sizes)
    return int(label) if label.isdecimal() else label
