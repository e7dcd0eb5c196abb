"""Two kernels on the same arrays in one process: base's and head's, or a suite's and a vendor's.

Times measured separately differ because the clocks do. Here each quad contains both kernels, so their ratio
hardly depends on the clock.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec
import numpy as np

from harness.device.backends.base import (
    Argument,
    Built,
    Device,
    Work,
    check_launch,
    check_resident,
    compile_all,
)
from harness.device.peaks import check_rates
from harness.errors import HarnessError, MeasureError, SuiteError
from harness.judgement.statistics.moderated import DEFAULT_PRIOR, moderate
from harness.judgement.statistics.paired import MIN_QUADS, log_ratios, process_effect
from harness.measure import protocol
from harness.measure.base_outputs import BaseChecker, checker_of
from harness.measure.buffers import Buffers
from harness.measure.earlier_arrays import EarlierArrays
from harness.measure.injection import planted, steps_for
from harness.measure.problem_changes import Changes, case_changes, suite_changes
from harness.measure.protocol import SideName
from harness.measure.quads import Alone, KernelPair, PairSettings, measure_pair, run_alone
from harness.measure.timing import Subject, launches_per_slot
from harness.measure.verifier import Checker, NotAsVerifiedError, Restoring, Rotation, emulator
from harness.measure.verify import Arrays, first_wrong
from harness.numbers import rough
from harness.records.types import (
    KernelLaunch,
    L2Policy,
    Launch,
    LibraryShare,
    Measurement,
    Outputs,
    PairedBlock,
)
from harness.suite.device_facts import facts_of
from harness.suite.kernel import Kernel, argument_names, workspaces
from harness.suite.layout import numpy_dtype
from harness.suite.loader import imports_of
from harness.suite.planning import at_least_one, launch_of
from harness.suite.problem import Case, Problem
from harness.suite.sources import Program, program
from harness.suite.suite import Suite
from harness.suite.suite_files import functions_sha256
from harness.system.file_access import commands_told, reaches_beside

T = TypeVar("T")

MOST_QUADS = 10
TIME_S = 0.3
"""Device time for all quads of a case, in seconds. A single longer quad still runs."""
_CONFIDENCE = 0.999
_PRIOR = dataclasses.replace(DEFAULT_PRIOR, proportion=0.0)
"""Prior of the spread between processes, as for verdicts, but not proportional to the effect. A kernel ten
times slower than the library is no uncertain case."""


@dataclass(frozen=True, slots=True)
class HeldKernel:
    """A kernel after verification and measurement. Its arrays are still on the device, with random data."""

    subject: Subject
    rotation: Rotation
    measurement: Measurement
    stack: ExitStack
    """Closing it frees the arrays."""


def pair_settings(time_ns: float, tick_ns: float, l2: L2Policy) -> PairSettings:
    """Return settings for as many quads as fit into TIME_S, with a short warm-up because the card was just
    busy.
    """
    slot_ns = time_ns * launches_per_slot(time_ns, tick_ns, PairSettings().min_slot_ns)
    quads = max(1, min(MOST_QUADS, int(TIME_S * 1e9 / (4 * slot_ns))))
    quick = PairSettings(l2=l2, max_time_s=TIME_S, warmup_min_s=0.0, warmup_max_s=0.0, lead_in_s=0.02)
    return dataclasses.replace(quick, min_quads=quads, max_quads=quads)


def library_share(checker: Checker, held: HeldKernel, case: Case, library: Subject) -> LibraryShare:
    """Verify a library's kernel on the arrays of a held kernel, then time the two against each other."""
    _check_library(checker, held, case, library)
    checker.report("library")
    own, data = held.measurement, held.rotation
    settings = pair_settings(median(own.times_ns), own.tick_ns or 0.0, own.l2)
    block = measure_pair(checker.device, KernelPair(held.subject, library), settings, data.rng, data)
    return share_of(case.kernel, block)


def share_of(name: str, block: PairedBlock) -> LibraryShare:
    """Return the library's time over the kernel's. In the quads, A is the kernel and B is the library."""
    orders = [quad.order for quad in block.quads]
    ratios = log_ratios(orders, [quad.times_ns for quad in block.quads])
    value, half = float(np.mean(ratios)), None
    if len(ratios) >= MIN_QUADS:
        estimate = moderate([process_effect(ratios)], _PRIOR)
        value, half = estimate.mean, estimate.quantile((1 - _CONFIDENCE) / 2) * estimate.standard_error
    return LibraryShare(
        kernel=name,
        share=math.exp(value),
        low=None if half is None else math.exp(value - half),
        high=None if half is None else math.exp(value + half),
        quads=len(ratios),
        library_time_ns=block.median_ns("B"),
    )


def _check_library(checker: Checker, held: HeldKernel, case: Case, library: Subject) -> None:
    """Verify a library's kernel on the held arrays, in full once a run. Raises MeasureError.

    Later processes compare the digest of its outputs with the digest in the run's scratch folder.
    """
    rotation, buffers = held.rotation, held.rotation.buffers
    seed = rotation.first()
    identity = repr((case.id, case.dtype, sorted(case.macros.items()), seed))
    file = checker.scratch / f"library-{hashlib.sha256(identity.encode()).hexdigest()}"
    buffers.poison()
    checker.report("verify")
    checker.device.launch(library.built, library.launch, library.arguments)
    checker.device.synchronize()
    verified = False
    with suppress(OSError):
        verified = file.read_text(encoding="ascii") == checker.digest(buffers)
    if not verified:
        if wrong := first_wrong(checker.check(case, buffers, library, seed)):
            raise MeasureError(f"{case.kernel} gave a wrong result: {wrong}")
        with suppress(OSError):  # A full disk only costs time.
            file.write_text(checker.digest(buffers), encoding="ascii")
    rotation.admit(library, case)


COUNTED_LAUNCHES = 3
"""Launches of a side whose counters are read. The median of each counter is kept."""
MOST_LAUNCHES = 64
"""Different launches of a function that are listed: the first ones."""
MOST_KERNELS = 16
"""Kernels of a host function whose times are kept: the longest ones."""
PADDING_BYTES = 2**20
MOST_PADDING = 16
"""Largest random padding. The address of an array affects a kernel's speed a little, so each process uses
other addresses."""
_COMPILERS = frozenset(
    {"ninja", "make", "cmake", "nvcc", "ptxas", "c++", "g++", "gcc", "clang", "clang++", "cl"}
)
_RIGHT_BY_BASE = (
    "It is right by base's own problem: head's asks for more, or for something else. Land the kernels that "
    "satisfy both first, and the problem in a commit of its own."
)
FIRST_STEPS = 64
MOST_STEPS = 2**26


class WrongResultError(MeasureError):
    reason = "wrong-result"


class WrongByBaseError(MeasureError):
    reason = "wrong-by-base"


class DiffersFromBaseError(MeasureError):
    reason = "differs-from-base"


class ArraysError(MeasureError):
    reason = "not-comparable"


@dataclass(frozen=True, slots=True)
class PreparedKernel:
    """A kernel of a suite at a case, ready to be built."""

    suite: Suite
    kernel: Kernel
    case: Case
    launch: Launch
    source: Program


def prepare(
    device: Device,
    suite: Suite,
    case: Case,
    scratch: Path,
    launch: Launch | None = None,
    compiler: str = "",
) -> PreparedKernel:
    """Return a kernel ready to be built by `compiler`, or by the nvcc that is found. Raises LaunchError."""
    kernel, info = suite.by_name[case.kernel], device.info
    launch = launch or launch_on(device, suite, case, scratch, compiler)
    check_launch(launch, info)
    with imports_of(suite, kernel, info.backend):
        source = program(suite, kernel, case, info.backend, info.arch, launch, scratch)
    source = dataclasses.replace(
        source, emulate=emulator(suite.problem, kernel, case), compiler=compiler if source.is_compiled else ""
    )
    return PreparedKernel(suite, kernel, case, launch, source)


def launch_on(device: Device, suite: Suite, case: Case, scratch: Path, compiler: str = "") -> Launch:
    """Return a kernel's own launch. If its grid depends on occupancy, the kernel is built first to ask for
    it.
    """

    def resident(launch: Launch) -> int | None:
        whole = prepare(device, suite, case, scratch, dataclasses.replace(launch, dispatch=None), compiler)
        return device.resident_blocks(build(device, whole), launch)

    return launch_of(suite.by_name[case.kernel], case, resident)


def build(
    device: Device, prepared: PreparedKernel, report: Callable[[str], object] = lambda _: None
) -> Built:
    with imports_of(prepared.suite, prepared.kernel, device.info.backend), _compilers_told(prepared, report):
        built = device.build(prepared.source)
    check_launch(prepared.launch, device.info, built.resources)
    if prepared.launch.has_attributes:
        check_resident(prepared.launch, device.resident_grid(built, prepared.launch), device.info)
    return built


def arguments_of(buffers: Buffers, prepared: PreparedKernel, case: Case | None = None) -> list[Argument]:
    """Return the arguments of a kernel on these buffers, at `case` if it is not the kernel's own."""
    with imports_of(prepared.suite, prepared.kernel, buffers.device.info.backend):
        return buffers.arguments(prepared.kernel, prepared.suite.problem, case)


def first_launch(
    prepared: PreparedKernel,
    buffers: Buffers,
    subject: Subject,
    inputs: Callable[[], Arrays],
    report: Callable[[str], object],
) -> None:
    """Let a Python function compile on data of its own problem, so that it imports modules of its
    own commit. Then capture a launch by graph.
    """
    if prepared.source.python is None and not subject.launch.graph:
        return
    report("build")
    buffers.write(inputs())
    buffers.poison()
    device, launched = buffers.device, (subject.built, subject.launch, subject.arguments)
    if prepared.source.python is not None:
        backend = device.info.backend
        with imports_of(prepared.suite, prepared.kernel, backend), _compilers_told(prepared, report):
            device.first_launch(*launched)
    if subject.launch.graph:
        device.capture(*launched)


def _compilers_told(
    prepared: PreparedKernel, report: Callable[[str], object]
) -> AbstractContextManager[None]:
    """Report the compilers that a Python function runs: building a PyTorch extension takes a minute."""
    if prepared.source.python is None:
        return nullcontext()
    return commands_told(lambda name: report(f"running {name}") if name in _COMPILERS else None)


@dataclass(frozen=True, slots=True)
class PlacedSide:
    """A side of a pair, ready to be launched."""

    name: SideName
    prepared: PreparedKernel
    subject: Subject


class PairBench:
    """Compares kernels of two suites, base and head, on one device. `report` gets each stage with
    its side.
    """

    def __init__(
        self,
        device: Device,
        suites: Mapping[str, Suite],
        scratch: Path,
        report: Callable[..., object],
        peaks: Mapping[str, float],
        compilers: Mapping[str, str] = {},
        earlier: Mapping[str, EarlierArrays] = {},
        told: Collection[str] = (),
    ) -> None:
        """`told` are the sides whose suites other processes have loaded."""
        self.device, self.suites, self.report, self.peaks = device, suites, report, peaks
        self.compilers = compilers
        # Head's problem defines what is right: both kernels are compared with it, and head's with base's as
        # well.
        self.checker = self._by_head = checker_of(
            device, suites["head"], scratch, report, earlier.get("head")
        )
        # Functions that run in this process could change the problem of the suite that it has loaded.
        self._by_either = self._by_head
        if "base" in told and "head" not in told:
            self._by_either = checker_of(device, suites["base"], scratch, report, earlier.get("base"))
        of_base = scratch / "base"
        of_base.mkdir(exist_ok=True)
        self.base_checker = checker_of(device, suites["base"], of_base, report, earlier.get("base"))

    def inspect(self, request: protocol.Inspect) -> dict[str, dict[SideName, protocol.SideFacts]]:
        """Build both sides of every pair, or one side, and return the facts of each."""
        asked = [
            (pair, name, side)
            for pair in request.pairs
            for name, side in pair.sides.items()
            if request.side in (None, name)
        ]
        self._compile_sides([(side, pair.sizes) for pair, _, side in asked])
        facts: dict[str, dict[SideName, protocol.SideFacts]] = {pair.id: {} for pair in request.pairs}
        for pair, name, side in asked:
            facts[pair.id][name] = self._facts(side, pair.sizes)
        return facts

    def differences(self, request: protocol.Differences) -> Changes:
        """Return the changes from base's problem to head's: for a case, or for the suite as written."""
        base, head, wanted = self.suites["base"], self.suites["head"], request.case
        if wanted is None:
            return suite_changes(base, head)
        of_base, of_head = (self._case(_side(name, wanted), wanted.sizes) for name in ("base", "head"))
        self.report("reference")
        return case_changes(
            self.base_checker, self.checker, of_base, of_head, request.seed, reference=request.reference
        )

    def build_all(self, request: protocol.BuildAll) -> None:
        """Compile what the cases need, in parallel. A broken kernel's error is raised later, by the case that
        needs it.
        """
        self._compile_sides([(_side("head", case), case.sizes) for case in request.cases])

    def prepare(self, request: protocol.Prepare) -> tuple[protocol.SideFacts, ...]:
        """Build every case, and return the facts of each."""
        sides = [(_side("head", case), case.sizes) for case in request.cases]
        self._compile_sides(sides)
        return tuple(self._facts(side, sizes) for side, sizes in sides)

    def build_side(self, request: protocol.BuildSide) -> None:
        """Build one side. Its errors name the side."""
        with owned_by(request.side):
            self._built(request.pair.sides[request.side], request.pair.sizes, request.side)

    def choose_judge(self, request: protocol.Compare) -> None:
        """Judge both sides by head's problem. If base's is the same, use a suite that is loaded elsewhere."""
        self.checker = self._by_head if request.by_base else self._by_either

    def compare(self, request: protocol.Compare) -> protocol.CompareReply:
        """Verify and time one pair. Raises HarnessError that names the failing side, unless it
        concerns both.
        """
        rng = random.Random(request.order_seed)  # noqa: S311 - an order, not a secret
        self.choose_judge(request)
        with self.placed(request, rng) as (buffers, sides):
            base, head = sides["base"], sides["head"]
            case = self.case_for_checking(head.prepared)
            # Unseen data only once a comparison: making them takes the host a long time.
            data = Rotation(self.checker, buffers, case, request.seed, rng, sets=2 if request.verified else 3)
            # Verify head first: if both are wrong, head fails. But if base's outputs are the reference, base
            # comes first.
            order = (base, head) if request.base_first else (head, base)
            facts: dict[SideName, protocol.SideFacts] = {
                side.name: self.verified(side, buffers, request, data) for side in order
            }
            self.report("measure")
            pair = KernelPair(base.subject, head.subject)
            try:
                block = measure_pair(self.device, pair, request.settings, rng, data)
            except NotAsVerifiedError as error:
                error.side = "head" if error.subject is pair.head else "base"
                raise
            for side, arm in ((head, "B"), (base, "A")):
                with owned_by(side.name):
                    self.check_rates(side.prepared, block.l2, block.median_ns(arm))
        return protocol.CompareReply(block=block, sides=facts)

    def find_steps(self, request: protocol.FindSteps) -> int:
        """Return the number of steps that slows head by about `target`: by doubling, then scaling, then one
        correction.
        """
        settings = PairSettings(max_quads=50, standard_error=0.0003, warmup_min_s=0.02, lead_in_s=0.005)
        rng = random.Random(request.seed)  # noqa: S311
        with self.placed(request, rng) as (buffers, sides):
            base, head = sides["base"], sides["head"]
            buffers.write(self.checker.inputs(head.prepared.case, request.seed))

            def slowdown(steps: int) -> float:
                arguments = (*head.subject.arguments[:-1], np.int32(steps))
                subject = dataclasses.replace(head.subject, arguments=arguments)
                if subject.launch.graph:
                    self.device.capture(subject.built, subject.launch, arguments)
                pair = KernelPair(base.subject, subject)
                block = measure_pair(self.device, pair, settings, rng, Restoring(buffers))
                cycles = [quad.cycles for quad in block.quads if quad.cycles]
                values = cycles if len(cycles) == len(block.quads) else [q.times_ns for q in block.quads]
                ratios = log_ratios([quad.order for quad in block.quads], values)
                return float(np.expm1(process_effect(ratios).value))

            steps = FIRST_STEPS
            while (effect := slowdown(steps)) < 2 * request.target and steps < MOST_STEPS:
                steps *= 2 if effect > request.target / 4 else 4
            for _ in range(2):
                steps = steps_for(request.target, steps, effect)
                effect = slowdown(steps)
                if not effect > 0:
                    raise MeasureError("A slowdown that was planted does not show.")
            if not 0.5 < effect / request.target < 1.5:
                raise MeasureError(
                    f"No slowdown of {100 * request.target:g} % can be planted: the nearest makes "
                    f"{rough(effect)}."
                )
            return steps_for(request.target, steps, effect)

    def solo(self, request: protocol.RunAlone) -> dict[SideName, Alone]:
        """Run each side by itself, in random order, long enough to show its power."""

        def run(subject: Subject, data: Restoring) -> Alone:
            return run_alone(self.device, subject, request.duration_s, data)

        return self._each_alone(request, "solo", run)

    def count(self, request: protocol.CountEvents) -> dict[SideName, protocol.Counted]:
        """Return hardware counters of each side: medians of a few launches, as they were judged."""
        with self._with_inputs(request, "count", request.side) as (sides, data):
            work = {side.name: self._work(side.subject, data, request.l2) for side in sides}
            order = [side.name for side in sides] * COUNTED_LAUNCHES
            counted = self.device.count([work[name] for name in order])
            found: dict[SideName, protocol.Counted] = {}
            for side in sides:
                each = [counters for name, counters in zip(order, counted, strict=True) if name == side.name]
                medians = {name: median(counters[name] for counters in each) for name in each[0]}
                # The hit rate of an unused cache is NaN.
                finite = {name: value for name, value in medians.items() if math.isfinite(value)}
                kernels = self._kernels(*work[side.name], side.subject)
                found[side.name] = protocol.Counted(counters=finite, kernels=kernels)
            return found

    def list_launches(self, request: protocol.ListLaunches) -> dict[SideName, tuple[KernelLaunch, ...]]:
        """Return the kernels that a side launches, by CUPTI or else from a CUDA graph; none if unknown."""
        return self._each_alone(request, "launches", self._launches, request.side)

    def _launches(self, subject: Subject, data: Restoring) -> tuple[KernelLaunch, ...]:
        eager = subject.built, dataclasses.replace(subject.launch, graph=False), subject.arguments

        def run() -> None:
            self.device.launch(*eager)

        run()  # A library may load its kernels now.
        data.poison()
        self.device.synchronize()
        found: list[KernelLaunch] = []
        with suppress(MeasureError):
            found = [each for each, _ in self.device.launched(run)]
        if not found:
            with suppress(HarnessError):
                found = self.device.captured_launches(*eager)
        counts = Counter(found)
        return tuple(
            dataclasses.replace(each, count=count) for each, count in islice(counts.items(), MOST_LAUNCHES)
        )

    def _each_alone(
        self,
        request: protocol.RunAlone | protocol.CountEvents | protocol.ListLaunches,
        stage: str,
        measure: Callable[[Subject, Restoring], T],
        only: SideName | None = None,
    ) -> dict[SideName, T]:
        """Measure each side, or one of them, by itself, in random order, on the same data."""
        with self._with_inputs(request, stage, only) as (sides, data):
            return {side.name: measure(side.subject, data) for side in sides}

    @contextmanager
    def _with_inputs(
        self,
        request: protocol.RunAlone | protocol.CountEvents | protocol.ListLaunches,
        stage: str,
        only: SideName | None = None,
    ) -> Iterator[tuple[list[PlacedSide], Restoring]]:
        """Yield each side, or one of them, in random order, and the data that all of them get."""
        rng = random.Random(request.order_seed)  # noqa: S311
        with self.placed(request, rng, only) as (buffers, sides):
            placed = [*sides.values()]
            buffers.write(self.checker.inputs(self.case_for_checking(placed[0].prepared), request.seed))
            self.report(stage)
            yield rng.sample(placed, len(placed)), Restoring(buffers)

    def _work(self, subject: Subject, data: Restoring, l2: L2Policy) -> Work:
        """Return a launch of a side as it was judged, whose counters can be read."""

        def run() -> None:
            # Counters belong to kernels, and a graph runs the same ones.
            eager = dataclasses.replace(subject.launch, graph=False)
            self.device.launch(subject.built, eager, subject.arguments)

        def prepare() -> None:
            run()  # Load the code, and warm the cache.
            data.poison()
            if l2 == "cold":
                self.device.flush_l2()

        return prepare, run

    def _kernels(
        self, prepare: Callable[[], object], run: Callable[[], object], subject: Subject
    ) -> dict[str, float]:
        """Return the time of each kernel that a host function launches, the median of a few calls."""
        if not subject.built.by_host:
            return {}
        times: dict[str, list[float]] = {}
        for call in range(COUNTED_LAUNCHES):
            prepare()
            self.device.synchronize()
            with suppress(MeasureError):  # The counters say why without the names, too.
                for launch, time_ns in self.device.launched(run):
                    of_kernel = times.setdefault(launch.symbol, [0.0] * COUNTED_LAUNCHES)
                    of_kernel[call] += time_ns
        longest = sorted(times, key=lambda name: -median(times[name]))[:MOST_KERNELS]
        return {name: median(times[name]) for name in longest}

    def _compile_sides(self, sides: Sequence[tuple[protocol.PairSide, Mapping[str, int]]]) -> None:
        programs: list[Program] = []
        for side, sizes in sides:
            with suppress(HarnessError):  # The error is reported by the request for the facts.
                # Nothing is launched here, and the build does not depend on the grid's parts.
                kernel = self.suites[side.suite].by_name[side.kernel]
                launch = launch_of(kernel, self._case(side, sizes), at_least_one)
                programs.append(self._prepare(side, sizes, launch).source)
        compile_all(self.device, programs)

    def _facts(self, side: protocol.PairSide, sizes: Mapping[str, int]) -> protocol.SideFacts:
        prepared = None
        try:
            prepared = self._prepare(side, sizes)
            built = build(self.device, prepared, self.report)
        except HarnessError as error:
            facts = protocol.SideFacts() if prepared is None else _facts_of(prepared, Built())
            return msgspec.structs.replace(
                facts, reason=error.reason, message=error.message, log=error.log, resources=None
            )
        # Asked after the build, which calls a host function for the first time.
        beside = prepared.source.kind == "host" and reaches_beside(self.suites[side.suite].root)
        return msgspec.structs.replace(_facts_of(prepared, built), reaches_beside=beside)

    def _case(self, side: protocol.PairSide, sizes: Mapping[str, int]) -> Case:
        suite = self.suites[side.suite]
        return suite.case(suite.by_name[side.kernel], sizes, side.macros, facts_of(self.device.info))

    def _prepare(
        self, side: protocol.PairSide, sizes: Mapping[str, int], launch: Launch | None = None
    ) -> PreparedKernel:
        suite, compiler = self.suites[side.suite], self.compilers.get(side.suite, "")
        case, scratch = self._case(side, sizes), self.checker.scratch
        prepared = prepare(self.device, suite, case, scratch, launch, compiler)
        if side.planted:
            source = planted(prepared.source, self.device.info.backend)
            prepared = dataclasses.replace(prepared, source=source)
        return prepared

    def _built(
        self, side: protocol.PairSide, sizes: Mapping[str, int], name: SideName
    ) -> tuple[PreparedKernel, Built]:
        prepared = self._prepare(side, sizes)
        return prepared, build(self.device, prepared, partial(self.report, side=name))

    @contextmanager
    def placed(
        self,
        request: protocol.Compare
        | protocol.FindSteps
        | protocol.RunAlone
        | protocol.CountEvents
        | protocol.ListLaunches,
        rng: random.Random,
        only: SideName | None = None,
    ) -> Iterator[tuple[Buffers, dict[SideName, PlacedSide]]]:
        """Yield base and head, or one of them, built in random order, and their arrays at random
        addresses.
        """
        pair = request.pair
        cases = {
            name: (self.suites[side.suite], self._case(side, pair.sizes)) for name, side in pair.sides.items()
        }
        asked = [(name, side) for name, side in pair.sides.items() if only in (None, name)]
        rng.shuffle(asked)
        self.report("build")
        kernels: dict[SideName, tuple[PreparedKernel, Built]] = {}
        for name, side in asked:
            with owned_by(name):
                kernels[name] = self._built(side, pair.sizes, name)
        of_base, of_head = (_arrays(suite.problem, case) for suite, case in (cases["base"], cases["head"]))
        if of_base != of_head:
            found = f"Base has the arrays {', '.join(of_base)}, head {', '.join(of_head)}"
            raise ArraysError(f"{found}: the problems differ.")
        padding = self.device.allocate(PADDING_BYTES * rng.randint(1, MOST_PADDING))
        try:
            suite, case = cases["head"]
            with Buffers(self.device, suite.problem, case) as buffers:
                sides: dict[SideName, PlacedSide] = {}
                for name, side in asked:
                    prepared, built = kernels[name]
                    with owned_by(name):
                        # Both sides get the arguments of head's problem, because both are compared with it.
                        scalars = {**prepared.case.scalars, **suite.own(prepared.case).scalars}
                        passed = dataclasses.replace(prepared.case, scalars=scalars)
                        arguments = arguments_of(buffers, prepared, passed)
                        if side.planted:
                            arguments.append(np.int32(side.steps))
                        subject = Subject(built, prepared.launch, arguments)
                        sides[name] = PlacedSide(name, prepared, subject)
                        data = partial(self.checker.inputs, self.case_for_checking(prepared), request.seed)
                        report = partial(self.report, side=name)
                        first_launch(prepared, buffers, subject, data, report)
                yield buffers, sides
        finally:
            self.device.release(padding)

    def verified(
        self, side: PlacedSide, buffers: Buffers, request: protocol.Compare, data: Rotation
    ) -> protocol.SideFacts:
        """Return facts of a side with right results: verified in full once, later by their digest."""
        subject = side.subject
        with owned_by(side.name):
            case = self.case_for_checking(side.prepared)
            self.checker.report = partial(self.report, side=side.name)
            self.checker.report("verify")
            if isinstance(self.checker, BaseChecker):
                self.checker.against = f"{request.pair.id} of {self.suites['base'].root.resolve()}"
            verified = request.verified.get(side.name)
            if verified:
                buffers.write(self.checker.inputs(case, request.seed))
                buffers.poison()
                self.device.launch(subject.built, subject.launch, subject.arguments)
            outputs, seen = None, self.checker.digest(buffers) if verified else ""
            if not verified or seen != verified:
                outputs, seen = self._check(side, case, buffers, request), ""
            facts = _facts_of(side.prepared, subject.built, data.admit(subject, case, seen))
            own = side.prepared.case
            flop = side.prepared.suite.problem.flop(own)
            return msgspec.structs.replace(facts, dtype=own.dtype, flop=flop, outputs=outputs)

    def _check(
        self, side: PlacedSide, case: Case, buffers: Buffers, request: protocol.Compare
    ) -> Outputs | None:
        """Check a side against head's problem, and head against base's problem too.

        Returns the reference that the side's outputs were compared with.

        Raises WrongResultError, WrongByBaseError and DiffersFromBaseError.
        """
        asked = case, buffers, side.subject, request.seed
        if isinstance(self.checker, BaseChecker) and side.name == "base":
            if wrong := self.checker.record(*asked):
                raise WrongResultError(wrong)
            return None
        suite = side.prepared.suite
        by_base = ""
        # First, because the data of head's problem are timed afterwards.
        if request.by_base and side.name == "head":
            by_base = self.wrong_by_base(*asked, suite)
        verification = self.checker.check(*asked)
        if wrong := first_wrong(verification):
            if request.by_base and side.name == "base" and not self.wrong_by_base(*asked, suite):
                wrong = f"{wrong} {_RIGHT_BY_BASE}"
            raise (DiffersFromBaseError if self.checker.beside_base else WrongResultError)(wrong)
        if by_base:
            raise WrongByBaseError(by_base)
        return self.checker.held(verification, case, request.seed)

    def wrong_by_base(self, case: Case, buffers: Buffers, subject: Subject, seed: int, suite: Suite) -> str:
        """Return why results are wrong by base's problem on base's data; empty if right, or for different
        arrays.

        If base's problem cannot decide, the error names base's side. `suite` is the kernel's own.
        """
        base, head = self.suites["base"], self.suites["head"]
        if base.problem.held_to == "base" or _arrays(base.problem, case) != _arrays(head.problem, case):
            return ""
        self.checker.check_tolerance(case, seed)  # If neither problem can decide, head has failed.
        with owned_by("base"):
            of_base = base.own(case)
        subject = _with_scalars(subject, suite, of_base)
        if subject.launch.graph:  # which runs the kernel, so before its data are written
            self.device.capture(subject.built, subject.launch, subject.arguments)
        self.report("reference", side="base")
        with owned_by("base"):
            self.base_checker.check_tolerance(of_base, seed)
            self.base_checker.compute_reference(of_base, seed)
        self.base_checker.report = self.checker.report
        wrong = first_wrong(self.base_checker.check(of_base, buffers, subject, seed))
        if not wrong:
            return ""
        with owned_by("base"):
            allowed = self.base_checker.demands(of_base, seed)["largest tolerance"]
        by_head = self.checker.demands(case, seed).get("largest tolerance")
        head_allows = f"head of up to {by_head}" if by_head else "head has no tolerance"
        return (
            f"By base's reference and tolerance on base's data {wrong} Base allows errors of up to "
            f"{allowed}, {head_allows}. If the change of the problem, such as a looser "
            "tolerance, is meant, land it in a commit of its own first."
        )

    def is_by_graph(self, pair: protocol.PairOf) -> bool:
        """Return whether either side of a pair is launched by a CUDA graph."""
        return any(self._case(side, pair.sizes).by_graph for side in pair.sides.values())

    def case_for_checking(self, prepared: PreparedKernel) -> Case:
        """Return the case of the suite with whose reference and data both sides are checked."""
        return self.checker.suite.own(prepared.case)

    def check_rates(self, prepared: PreparedKernel, l2: L2Policy, time_ns: float) -> None:
        """Raise BeyondPeakError for a launch that did more in its time than the device can."""
        check_rates(
            self.device.info,
            self.peaks,
            prepared.suite.problem,
            prepared.case,
            l2,
            time_ns,
            tensor_cores=prepared.source.may_use_tensor_cores,
        )


def _side(suite: SideName, case: protocol.CaseOf) -> protocol.PairSide:
    return protocol.PairSide(suite=suite, kernel=case.kernel, macros=case.macros)


def _facts_of(prepared: PreparedKernel, built: Built, digest: str = "") -> protocol.SideFacts:
    source = prepared.source
    return protocol.SideFacts(
        source_sha256=source.sha256,
        code_sha256=source.code_sha256,
        passed=_passed(prepared),
        code=built.code or (source.python.code_sha256 if source.python else ""),
        function=" + ".join((source.instance or source.function, *(name for name, _ in source.steps))),
        launch=prepared.launch,
        resources=built.resources,
        digest=digest,
    )


def _with_scalars(subject: Subject, suite: Suite, case: Case) -> Subject:
    """Return the suite's kernel with the by-value arguments of `case`."""
    problem, arguments = suite.problem, list(subject.arguments)
    for place, name in enumerate(argument_names(problem, suite.by_name[case.kernel])):
        if name in problem.scalars and name in case.scalars:
            arguments[place] = type(arguments[place])(case.scalars[name])
    return dataclasses.replace(subject, arguments=arguments)


def _passed(prepared: PreparedKernel) -> tuple[str, ...]:
    """Return a description of a kernel's arguments by place in the problem. Other arguments mean
    other work.
    """
    problem, case = prepared.suite.problem, prepared.case
    passed = {name: str(size) for name, size in case.sizes.items()}
    for name, value in case.scalars.items():
        if name in problem.scalars:
            passed[name] = f"{problem.scalars[name].dtype} {value}"
    for what, arrays in (("input", problem.inputs), ("output", problem.outputs)):
        for number, name in enumerate(arrays):
            passed[name] = f"{what} {number} {_kind(problem, name, case)}"
    for number, (name, size_bytes) in enumerate(workspaces(prepared.kernel, case).items()):
        passed[name] = f"workspace {number} of {size_bytes} bytes"
    arguments = tuple(passed.get(name, name) for name in argument_names(problem, prepared.kernel))
    if prepared.kernel.setup is None:
        return arguments
    # The files decide the result, even if it stands in for an array.
    setup = hashlib.sha256((prepared.source.setup + functions_sha256(prepared.suite)).encode()).hexdigest()
    return *arguments, f"setup {setup}"


def _arrays(problem: Problem, case: Case) -> dict[str, None]:
    """Return name, type and shape of each array, and which are written; as keys, since their order does not
    count.
    """
    return dict.fromkeys(
        f"{name} {_kind(problem, name, case)}" + (" (output)" if name in problem.outputs else "")
        for name in problem.arrays
    )


def _kind(problem: Problem, name: str, case: Case) -> str:
    """Return the type, shape, layout and initial content of an array."""
    array, ld = problem.arrays[name], problem.layout(name, case).ld
    found = f"{numpy_dtype(array.dtype_at(case))}{list(array.shape_at(case))}"
    if array.order == "F":
        found += " by columns"
    if ld is not None:
        found += f" with ld {ld}"
    if array.kind == "inout":
        return f"{found} read and written"
    return found if array.init is None else f"{found} of {array.init:g} at first"


@contextmanager
def owned_by(side: SideName) -> Iterator[None]:
    """Mark errors inside as errors of this side."""
    try:
        yield
    except HarnessError as error:
        error.side = error.side or side  # It may already name a side.
        raise
    except Exception as error:  # a suite's own code may raise anything
        wrapped = SuiteError(f"{type(error).__name__}: {error}")
        wrapped.side = side
        raise wrapped from error
