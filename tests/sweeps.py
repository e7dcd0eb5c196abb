"""A project whose kernel can be swept on the null device: a configuration says itself how long it takes, or
what is wrong with it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.measure import protocol
from harness.measure.worker import Worker
from harness.records.sweep_types import SweepResult, SweepSettings
from harness.records.types import DeviceInfo, Toolchain
from harness.run.sweep.engine import Sweeping
from harness.run.sweep.executors import Job, JobResult, LocalExecutor
from harness.suite.loader import LoadedSuite, load
from harness.system.process import Failed
from tests.pairs import opened_worker
from tests.support import write_files

if TYPE_CHECKING:
    from typing_extensions import Self

MS = 1_000_000

SUITE = """\
from harness import Axis, Generated, Input, Kernel, Output, Problem, Suite, Tuning


class Twice(Problem):
    n = Axis(default=(128, 256), quick=(64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x

    def flop(self, case):
        return case.n


def text(case, arch):
    with open(LOG, "a") as log:
        log.write(f"{case.sizes['n']} {dict(case.macros)}\\n")
    return TEXT


suite = Suite(
    "toy",
    Twice(),
    [
        Kernel("plain", "k.cu", block=32, grid=1),
        Kernel("tuned", SOURCE, block=BLOCK, grid=1, macros=MACROS, tune=Tuning(TUNING)),
    ],
)
"""


def project(
    root: Path,
    tuning: str,
    *,
    text: str | None = None,
    block: str = "32",
    macros: str = "{}",
) -> Path:
    """A project with the kernel toy.tuned; `text` is an expression over `case` that makes its source, in
    place of one that says nothing but its macros. What it is generated for is noted in generated.log.
    """
    suite = (
        SUITE.replace("SOURCE", '"k.cu"' if text is None else '{"cuda": Generated(text)}')
        .replace("LOG", repr(str(root / "generated.log")))
        .replace("TEXT", text or "''")
        .replace("BLOCK", block)
        .replace("MACROS", macros)
        .replace("TUNING", tuning)
    )
    return write_files(
        root,
        {
            "pyproject.toml": "[tool.harness]\nsuites = ['kernels/*']\nresults = 'results'\n",
            "kernels/toy/suite.py": suite,
            "kernels/toy/k.cu": "// nothing\n",
        },
    )


Stop = Callable[[Job, int], None]
"""Called before each job, with its number from 0."""
Change = Callable[[JobResult, Job], JobResult]


def _never(job: Job, number: int) -> None:
    pass


def _unchanged(result: JobResult, job: Job) -> JobResult:
    return result


class Here:
    """An executor of one null device whose worker is in this process: quick, as long as nothing crashes. See
    harness.run.sweep.executors.Executor.
    """

    def __init__(
        self, suite: Path, device: str | None = "null", observer: object = None, _busy: str = "wait"
    ) -> None:
        assert device == "null"
        self.suite, self.observer = suite, observer
        self.scratch = tempfile.TemporaryDirectory(prefix="harness-tests-")
        self.worker = self._opened()
        self.devices = (self.worker.device.info,)
        self.toolchain = self.worker.device.toolchain

    def _opened(self) -> Worker:
        request = protocol.Open(device="null", suite=str(self.suite), scratch=self.scratch.name)
        return opened_worker(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.scratch.cleanup()

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        for job in jobs:
            if job.fresh:
                self.worker = self._opened()
            yield JobResult(key=job.key, reply=self._reply(job), device="null:0", host_s=0.001)

    def _reply(self, job: Job) -> Any:
        try:
            return self.worker.answer(job.request)
        except HarnessError as error:
            return Failed(reason=error.reason, message=error.message, log=error.log)


class Watched:
    """An Executor of harness.run.sweep.executors that keeps what it was asked and can be stopped."""

    def __init__(
        self,
        suite: Path,
        stop: Stop = _never,
        changed: Change = _unchanged,
        *,
        real: bool = False,
    ) -> None:
        self.executor: LocalExecutor | Here = LocalExecutor(suite, "null") if real else Here(suite)
        self.stop, self.changed = stop, changed
        self.jobs: list[Job] = []
        self.devices: tuple[DeviceInfo, ...] = ()
        self.toolchain = Toolchain(compiler="")

    def __enter__(self) -> Self:
        self.executor.__enter__()
        self.devices, self.toolchain = self.executor.devices, self.executor.toolchain
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.executor.__exit__(kind, error, trace)

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        for job in jobs:
            self.stop(job, len(self.jobs))
            self.jobs.append(job)
            for result in self.executor.run([job]):
                yield self.changed(result, job)

    @property
    def prepared(self) -> list[dict[str, Any]]:
        """Parameters of what was compiled, in order."""
        asked = [job.request.cases for job in self.jobs if isinstance(job.request, protocol.Prepare)]
        return [dict(case.macros) for cases in asked for case in cases]

    @property
    def measured(self) -> list[dict[str, Any]]:
        """Parameters of what was screened, in order."""
        return [
            dict(job.request.macros)
            for job in self.jobs
            if isinstance(job.request, protocol.Measure) and not job.fresh
        ]

    @property
    def compared(self) -> list[protocol.Compare]:
        return [job.request for job in self.jobs if isinstance(job.request, protocol.Compare)]

    @property
    def repeated(self) -> list[dict[str, Any]]:
        return [
            dict(job.request.macros)
            for job in self.jobs
            if isinstance(job.request, protocol.Measure) and job.fresh
        ]


class Silent:
    """An observer that keeps its events."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.steps = 0

    def started(self, sweep: object, state: object) -> None:
        pass

    def phase(self, name: str, total: int) -> None:
        self.phases.append((name, total))

    def moved(self, row: object = None) -> None:
        self.steps += 1


def sweep(
    root: Path,
    stop: Stop = _never,
    *,
    changed: Change = _unchanged,
    save: bool = True,
    fresh: bool = False,
    real: bool = False,
    sizes: Sequence[str] = ("64",),
    **settings: Any,
) -> tuple[SweepResult, Watched]:
    """Sweep toy.tuned of a project on the null device, in processes of their own where it is to be `real`."""
    loaded: LoadedSuite = load(root / "kernels" / "toy")
    kernel, chosen = loaded.suite.by_name["tuned"], SweepSettings(**{"timeout_s": 20.0, **settings})
    with Watched(loaded.suite.root, stop, changed, real=real) as executor:
        sweeping = Sweeping(loaded, kernel, executor, chosen, Silent(), sizes)
        return sweeping.run(root / "results" if save else None, fresh=fresh), executor
