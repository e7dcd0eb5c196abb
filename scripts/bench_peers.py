"""Part of scripts/bench_verdicts.py in its own process: other tools time and judge the harness's builds.

    python scripts/bench_peers.py SPEC.json

Each tool times arm A before arm B in its own way, and judges them by its own rule. The spec names the parts,
the device and the cases. Answers go to the file that the spec names, one a line.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import importlib.metadata
import math
import os
import random
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec
import numpy as np

from harness.device.backends import open_device, parse_spec
from harness.device.backends.base import Device
from harness.measure.buffers import Buffers
from harness.measure.injection import planted
from harness.measure.timing import Subject
from harness.measure.verifier import Checker, emulator
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of
from harness.suite.sources import program

Said = Literal["slower", "faster", "same", "undecided"]
Line = dict[str, Any]

EVENT_WARM_UPS, EVENT_LAUNCHES = 10, 100
ASV_ROUNDS, ASV_SAMPLES, ASV_SAMPLE_S, ASV_WARM_UP_S = 2, 5, 0.01, 0.1
"""asv's defaults for a timing benchmark of two rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseToTime:
    id: str
    folder: str
    """Folder of its suite."""
    scratch: str
    """Folder of the inputs."""
    kernel: str
    sizes: dict[str, int]
    steps: dict[str, int]
    """Steps of the planted chain by the slowdown in percent; "0" is the kernel against itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    parts: tuple[str, ...]
    device: str
    seed: int
    """Seed of the inputs."""
    order_seed: int
    """Seed of the order of the pairs."""
    cases: tuple[CaseToTime, ...]
    answers: str
    nvbench_timeout_s: float
    """nvbench's own is 15 s, which it uses up where a launch's noise stays above 0.5 %."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A case at a level: arm A has 0 steps, arm B the steps of the level."""

    case: str
    level: str
    base: Subject
    head: Subject


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one arm by one tool, in ns of a launch."""

    times_ns: list[float]
    gpu_s: float
    """Time for which the card was held without the warm-up, in seconds."""
    warmup_s: float = 0.0

    def __add__(self, other: Timed) -> Timed:
        return Timed(self.times_ns + other.times_ns, self.gpu_s + other.gpu_s, self.warmup_s + other.warmup_s)


@contextmanager
def placed(spec: Spec) -> Iterator[tuple[Device, list[Pair]]]:
    """The device with every pair built and its arrays filled, pairs in random order."""
    device = open_device(spec.device)
    with ExitStack() as stack:
        pairs = [pair for case in spec.cases for pair in _pairs(device, case, spec.seed, stack)]
        random.Random(spec.order_seed).shuffle(pairs)  # noqa: S311 - an order, not a secret
        yield device, pairs


def _pairs(device: Device, told: CaseToTime, seed: int, stack: ExitStack) -> list[Pair]:
    suite = load_folder(Path(told.folder))
    kernel = suite.by_name[told.kernel]
    case = suite.case(kernel, told.sizes)
    source = program(suite, kernel, case, device.info.backend)
    source = dataclasses.replace(source, emulate=emulator(suite.problem, kernel, case))
    source = planted(source, device.info.backend)
    buffers = stack.enter_context(Buffers(device, suite.problem, case))
    buffers.write(Checker(device, suite, Path(told.scratch), lambda _stage: None).inputs(case, seed))
    launch, arguments = launch_of(kernel, case), buffers.arguments(kernel)
    # One binary, loaded once for each arm, as two commits would be.
    built = [device.build(source) for _ in range(2)]

    def subject(arm: int, steps: int) -> Subject:
        return Subject(built[arm], launch, (*arguments, np.int32(steps)))

    return [Pair(told.id, level, subject(0, 0), subject(1, steps)) for level, steps in told.steps.items()]


def beyond(effect: float, limit: float) -> Said:
    """A threshold on the ratio of two figures, either way."""
    return "slower" if effect > limit else "faster" if effect < -limit else "same"


def ratio(statistic: Callable[[Sequence[float]], float], base: Timed, head: Timed) -> float:
    return statistic(head.times_ns) / statistic(base.times_ns) - 1


def line(part: str, pair: Pair, arms: tuple[Timed, Timed], wall_s: float, verdicts: Sequence[Line]) -> Line:
    """Return the answer on a pair that a part timed once and judged by one or more rules."""
    return {
        "part": part,
        "case": pair.case,
        "level": pair.level,
        "verdicts": list(verdicts),
        "gpu_s": arms[0].gpu_s + arms[1].gpu_s,
        "warmup_s": arms[0].warmup_s + arms[1].warmup_s,
        "wall_s": wall_s,
        "raw": {"base_ns": arms[0].times_ns, "head_ns": arms[1].times_ns},
    }


def verdict(rule: str, said: Said, effect: float, why: str = "") -> Line:
    return {"rule": rule, "said": said, "effect": effect, "why": why}


def time_events(device: Device, subject: Subject) -> Timed:
    """Time like most scripts: some warm-ups, an event before and after each launch, one wait at the end."""
    began = time.perf_counter()
    device.timed(subject.built, subject.launch, subject.arguments, EVENT_WARM_UPS)
    device.synchronize()
    warm = time.perf_counter()
    timings = [
        device.timed(subject.built, subject.launch, subject.arguments, 1) for _ in range(EVENT_LAUNCHES)
    ]
    device.synchronize()
    return Timed([timing() for timing in timings], time.perf_counter() - warm, warm - began)


def pytest_benchmark_says(base: Timed, head: Timed) -> Said:
    """--benchmark-compare-fail=mean:5%, which knows no faster."""
    percent = statistics.fmean(head.times_ns) / statistics.fmean(base.times_ns) * 100 - 100
    return "slower" if percent > 5 else "same"


def events(device: Device, pairs: Sequence[Pair]) -> Iterator[Line]:
    for pair in pairs:
        began = time.perf_counter()
        base, head = time_events(device, pair.base), time_events(device, pair.head)
        wall_s = time.perf_counter() - began
        by_median = ratio(statistics.median, base, head)
        yield line(
            "events",
            pair,
            (base, head),
            wall_s,
            [
                verdict("median of 100 events, > 1 %", beyond(by_median, 0.01), by_median),
                verdict(
                    "pytest-benchmark, mean:5%",
                    pytest_benchmark_says(base, head),
                    ratio(statistics.fmean, base, head),
                ),
            ],
        )


def time_asv_round(device: Device, subject: Subject) -> Timed:
    """Time a round of asv: the warm-up finds the launches of a sample of 10 ms, then five samples follow."""

    def launch(number: int) -> float:
        timing = device.timed(subject.built, subject.launch, subject.arguments, number)
        device.synchronize()
        return timing()

    began, spent_s, number = time.perf_counter(), 0.0, 1
    while True:
        sample_s = launch(number) / 1e9
        spent_s += sample_s
        if sample_s < ASV_SAMPLE_S:
            number = max(number + 1, int(min(10.0, max(1.1, ASV_SAMPLE_S / sample_s)) * number))
        # Device time where it is scripted and takes no real one.
        elif max(spent_s, time.perf_counter() - began) > ASV_WARM_UP_S:
            break
    warm = time.perf_counter()
    times_ns = [launch(number) / number for _ in range(ASV_SAMPLES)]
    return Timed(times_ns, time.perf_counter() - warm, warm - began)


Better = Callable[[Sequence[float], Sequence[float], float], bool]
"""Return True if the first samples are better than the second by a factor."""


def asv_better() -> Better:
    """Asv's own rule. Raises ImportError where it is not installed."""
    from asv.commands.compare import _is_result_better
    from asv_runner.statistics import compute_stats

    def better(one: Sequence[float], other: Sequence[float], factor: float) -> bool:
        (a, a_stats), (b, b_stats) = compute_stats(list(one), 1), compute_stats(list(other), 1)
        return bool(_is_result_better(a, b, (a_stats, list(one)), (b_stats, list(other)), factor))

    return better


def asv(device: Device, pairs: Sequence[Pair]) -> Iterator[Line]:
    better = asv_better()
    yield {"about": {"asv": importlib.metadata.version("asv")}}
    for pair in pairs:
        began = time.perf_counter()
        arms = {"base": Timed([], 0.0), "head": Timed([], 0.0)}
        # Rounds take turns in who comes first, as asv's do.
        for name in ("base", "head", "head", "base") * (ASV_ROUNDS // 2):
            arms[name] += time_asv_round(device, pair.base if name == "base" else pair.head)
        wall_s = time.perf_counter() - began
        base, head = arms["base"], arms["head"]
        effect = ratio(statistics.median, base, head)
        yield line(
            "asv",
            pair,
            (base, head),
            wall_s,
            [
                verdict(f"asv continuous, factor {factor:g}", _asv_says(better, base, head, factor), effect)
                for factor in (1.1, 1.01)
            ],
        )


def _asv_says(better: Better, base: Timed, head: Timed, factor: float) -> Said:
    if better(base.times_ns, head.times_ns, factor):
        return "slower"
    return "faster" if better(head.times_ns, base.times_ns, factor) else "same"


def time_do_bench(device: Device, subject: Subject) -> Timed:
    """triton.testing.do_bench with its defaults, on the harness's own stream, which torch shares."""
    torch, testing = importlib.import_module("torch"), importlib.import_module("triton.testing")
    launches = 0

    def launch() -> None:
        nonlocal launches
        launches += 1
        device.launch(subject.built, subject.launch, subject.arguments)

    began = time.perf_counter()
    with torch.cuda.stream(torch.cuda.ExternalStream(cast("Any", device).stream.handle)):
        times_ms = testing.do_bench(launch, return_mode="all")
    held_s = time.perf_counter() - began
    # One launch before all, five to estimate; what is neither these nor timed was warm-up.
    warmup_s = (launches - len(times_ms) - 6) * statistics.fmean(times_ms) / 1e3
    return Timed([1e6 * each for each in times_ms], held_s - warmup_s, warmup_s)


def time_do_bench_cudagraph(device: Device, subject: Subject) -> Timed:
    """triton.testing.do_bench_cudagraph with its defaults: ten replays of a graph of 20 ms."""
    torch, testing = importlib.import_module("torch"), importlib.import_module("triton.testing")
    own = torch.cuda.ExternalStream(cast("Any", device).stream.handle)
    eager = dataclasses.replace(subject.launch, graph=False)

    def launch() -> None:
        captured = torch.cuda.current_stream()
        own.wait_stream(captured)
        device.launch(subject.built, eager, subject.arguments)
        captured.wait_stream(own)

    began = time.perf_counter()
    times_ms = testing.do_bench_cudagraph(launch, return_mode="all")
    return Timed([1e6 * each for each in times_ms], time.perf_counter() - began)


def do_bench(device: Device, pairs: Sequence[Pair], part: str = "do_bench") -> Iterator[Line]:
    torch, triton = importlib.import_module("torch"), importlib.import_module("triton")
    torch.cuda.init()
    torch.cuda.set_device(parse_spec(device.info.spec)[1])
    yield {"about": {"torch": str(torch.__version__), "triton": str(triton.__version__)}}
    timer = time_do_bench_cudagraph if part == GRAPHS else time_do_bench
    timer(device, pairs[0].base)  # what triton and torch load and compile at first is not measured
    for pair in pairs:
        began = time.perf_counter()
        base, head = timer(device, pair.base), timer(device, pair.head)
        wall_s = time.perf_counter() - began
        effect = ratio(statistics.fmean, base, head)
        rule = "do_bench_cudagraph, > 1 %" if part == GRAPHS else "triton do_bench, mean > 1 %"
        said = verdict(rule, beyond(effect, 0.01), effect)
        yield line(part, pair, (base, head), wall_s, [said])


class StreamOf:
    """The harness's stream in the way that nvbench asks for one."""

    def __init__(self, device: Device) -> None:
        self.handle = int(cast("Any", device).stream.handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def nvbench(device: Device, pairs: Sequence[Pair], timeout_s: float) -> Iterator[Line]:
    """Every pair's arms one after the other in one run, which is all that nvbench does in a process."""
    bench = importlib.import_module("cuda.bench")
    robust = importlib.import_module("cuda.bench.scripts.nvbench_compare_robust")
    robust.load_nvbench_compare_tooling(load_color=False)
    yield {"about": {"cuda-bench": str(bench.__version__)}}
    subjects = {
        f"{number}.{arm}": subject
        for number, pair in enumerate(pairs)
        for arm, subject in (("base", pair.base), ("head", pair.head))
    }
    for subject in subjects.values():
        # Loading a kernel, at its first launch, waits for nvbench's blocking kernel, and that for the launch.
        device.launch(subject.built, subject.launch, subject.arguments)
    device.synchronize()
    stream = StreamOf(device)

    def arms(state: Any) -> None:
        subject = subjects[state.get_string("Arm")]
        state.set_stream(stream)
        state.set_timeout(timeout_s)
        state.exec(
            lambda _launch: device.launch(subject.built, subject.launch, subject.arguments), batched=False
        )

    bench.register(arms).add_string_axis("Arm", list(subjects))
    gc.collect()
    gc.disable()  # what frees memory of the card while nvbench blocks its stream waits for ever
    index = parse_spec(device.info.spec)[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        bench.run_all_benchmarks(["bench_peers", "--devices", str(index), "--jsonbin", str(file)])
        states = nvbench_states(msgspec.json.decode(file.read_bytes()))
        for number, pair in enumerate(pairs):
            try:
                yield nvbench_line(robust, pair, file, states[f"{number}.base"], states[f"{number}.head"])
            except NoSampleError as error:
                yield {"missed": f"nvbench, {pair.case} +{pair.level} %: {error}"}


class NoSampleError(Exception):
    """A measurement of nvbench without a time, for example because the card throttled in every launch."""


def nvbench_states(root: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {
        next(value["value"] for value in state["axis_values"] if value["name"] == "Arm"): state
        for state in root["benchmarks"][0]["states"]
    }


def nvbench_line(
    robust: Any, pair: Pair, file: Path, base: Mapping[str, Any], head: Mapping[str, Any]
) -> Line:
    """Both of nvbench's comparisons: the older one by its rule, the newer one by its own functions."""
    timings, arms = [], []
    for state in (base, head):
        if state.get("is_skipped") or not state.get("summaries"):
            raise NoSampleError(str(state.get("skip_reason") or "skipped, and not said why"))
        timing = robust.extract_gpu_timing_data(state["summaries"], str(file.parent), json_path=str(file))
        if timing.samples is None or not len(timing.samples):
            raise NoSampleError("no launch that it kept")
        held_s = robust.extract_summary_float(state["summaries"], "nv/cold/walltime")
        timings.append(timing)
        arms.append(Timed([1e9 * float(each) for each in timing.samples], float(held_s)))
    found = robust.compare_gpu_timings(*timings)
    effect = timings[1].mean / timings[0].mean - 1
    told = line(
        "nvbench",
        pair,
        (arms[0], arms[1]),
        arms[0].gpu_s + arms[1].gpu_s,
        [
            verdict(
                "nvbench-compare-legacy",
                nvbench_legacy_says(effect, [timing.stdev_relative for timing in timings]),
                effect,
            ),
            verdict(
                "nvbench-compare-robust",
                ROBUST.get(found.status.value, "undecided"),
                found.frac_diff if found.frac_diff is not None else math.nan,
                found.reason.code,
            ),
        ],
    )
    clocks = [timing.frequencies for timing in timings]
    told["raw"]["clocks_mhz"] = [
        [float(each) / 1e6 for each in clock] if clock is not None else None for clock in clocks
    ]
    return told


ROBUST: Mapping[str, Said] = {"SLOW": "slower", "FAST": "faster", "SAME": "same"}
"""Its AMBG and ???? are undecided."""


def nvbench_legacy_says(effect: float, noises: Sequence[float | None]) -> Said:
    """The same where means differ by no more than the smaller relative deviation of one launch's time."""
    known = [noise for noise in noises if noise and math.isfinite(noise)]
    return beyond(effect, min(known)) if known else "undecided"


Part = Callable[[Device, Sequence[Pair]], Iterator[Line]]
GRAPHS = "do_bench_cudagraph"
"""The part that times the cases by CUDA graph; the others time eager launches."""


def parts_of(spec: Spec) -> Mapping[str, Part]:
    return {
        "events": events,
        "asv": asv,
        "do_bench": do_bench,
        GRAPHS: functools.partial(do_bench, part=GRAPHS),
        "nvbench": functools.partial(nvbench, timeout_s=spec.nvbench_timeout_s),
    }


def answer(spec: Spec, file: BinaryIO) -> None:
    def say(told: Line) -> None:
        file.write(msgspec.json.encode(told) + b"\n")

    with placed(spec) as (device, pairs):
        for part in spec.parts:
            own = [pair for pair in pairs if pair.base.launch.graph == (part == GRAPHS)]
            if not own:
                continue
            try:
                for told in parts_of(spec)[part](device, own):
                    say(told)
            except ImportError as error:
                say({"part": part, "absent": str(error)})
            except Exception as error:  # noqa: BLE001 - whatever a peer's library does costs that peer alone
                traceback.print_exc()
                say({"part": part, "failed": f"{type(error).__name__}: {error}"})


def main() -> int:
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Spec)
    with Path(spec.answers).open("wb", buffering=0) as file:
        answer(spec, file)
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:  # noqa: BLE001 - told of here, since the interpreter does not end in its own way
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Three libraries share the card's context here, and each takes it down in a way of its own.
    os._exit(status)
