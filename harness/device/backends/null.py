"""A device without hardware: it computes each kernel's reference on the host, and makes up the times.

Times are deterministic: a function of the program's text and the bytes it touches, or of the script in
$HARNESS_NULL_SCRIPT, a JSON file of kernel name (such as ``matmul.naive``) to behaviour::

    {"matmul.naive": {"times_ns": [1000.0, 1010.0], "graph_times_ns": [900.0], "fault": "wrong"}}

A replay of a CUDA graph takes a time of `graph_times_ns`, or without it of `times_ns`, for each launch in it.
Faults: build, wrong, nan, unwritten, overrun, crash, lost, hang, error, memory, capture. After `lost` the
device no longer opens. A kernel's text can set its own time or fault, which may then differ between commits:
``#define NULL_DEVICE_NS 1000000``, ``#define NULL_DEVICE_FAULT wrong``; and its hardware counters,
``#define NULL_DEVICE_COUNTERS {"cycles": 1000}``; and what a function launches, in its suite's file,
``#define NULL_DEVICE_LAUNCHES [{"symbol": "k", "grid": [1, 1, 1], "block": [32, 1, 1]}]``. Further keys of
the script:

- ``noise``: one of the kinds in harness.device.backends.null_noise, ``{"kind": "quiet", "seed": 1}``. Then
  times vary, and the device has clocks.
- ``compilers``: the factor by which an nvcc (by its path) or a Python slows everything.
- ``opens_in_s``: time that each process needs to open the device, as a card's driver does.
- ``uuid``: an identity, by which the device is locked like a card.
- ``cards``: several devices, each as a script whose keys replace those of the whole script.

The tests run on this device, and authors of suites can try a pipeline with it. Its times say nothing about a
kernel.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.device.backends.base import Argument, Built, HostMemory, Memory, Stamp, Stamping, Timing, Work
from harness.device.backends.null_noise import SimulatedNoise
from harness.errors import (
    BuildError,
    ConfigError,
    DeviceError,
    GraphRefusedError,
    LaunchError,
    MeasureError,
    OutOfMemoryError,
)
from harness.records.types import DeviceInfo, KernelLaunch, Launch, Resources, Toolchain
from harness.suite.sources import Program
from harness.system.decoding import decode

T = TypeVar("T")

MEMORY_BYTES = 8 * 2**30
_TIME = re.compile(r"^#define NULL_DEVICE_NS (\d+(?:\.\d+)?)$", re.MULTILINE)
_FAULT = re.compile(r"^#define NULL_DEVICE_FAULT (\w+)$", re.MULTILINE)
_COUNTERS = re.compile(r"^#define NULL_DEVICE_COUNTERS (\{.*\})$", re.MULTILINE)
_LAUNCHES = re.compile(r"^#define NULL_DEVICE_LAUNCHES (\[.*\])$", re.MULTILINE)
_STEP = 1e-5
"""Share of a time that each step of a planted slowdown adds."""
_CANARY_NS = 50_000.0


def devices() -> list[DeviceInfo]:
    """Return the devices of the script. Raises ConfigError for a script that cannot be read."""
    return [_described(index, script) for index, script in enumerate(_scripts())]


def _described(index: int, script: Mapping[str, Any]) -> DeviceInfo:
    return DeviceInfo(
        spec=f"null:{index}",
        backend="null",
        name=script.get("name", "null"),
        uuid=script.get("uuid"),
        vendor="none",
        driver="1",
        kind="other",
        arch="null",
        compute_units=1,
        memory_bytes=MEMORY_BYTES,
        l2_bytes=1,
        max_threads_per_block=1024,
        max_block=(1024, 1024, 64),
        max_grid=(2**31 - 1, 65535, 65535),
        max_shared_bytes=64 * 1024,
        warp_size=32,
        max_threads_per_sm=1024,
        registers_per_sm=64 * 1024,
        shared_bytes_per_sm=64 * 1024,
    )


def _scripts() -> list[Mapping[str, Any]]:
    """Return the script of each device. Raises ConfigError for a script that cannot be read."""
    script: Any = {}
    if path := os.environ.get("HARNESS_NULL_SCRIPT"):
        try:
            script = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"HARNESS_NULL_SCRIPT names {path}, which is no readable JSON file: {error}"
            ) from None
        if not isinstance(script, dict):
            raise ConfigError(f"HARNESS_NULL_SCRIPT names {path}, which holds no JSON object.")
    return [{**script, **card} for card in script.get("cards", [{}])]


def open_device(index: int) -> NullDevice:
    """Return the device of the script.

    Raises ConfigError for a script that cannot be read, and DeviceError for a lost device.
    """
    script = _scripts()[index]
    info = _described(index, script)
    if _lost_mark(info).exists():
        raise DeviceError(f"{info.spec} ({info.name}) was lost.")
    time.sleep(script.get("opens_in_s", 0))
    return NullDevice(info, script)


def _lost_mark(info: DeviceInfo) -> Path:
    """Return the file beside the script that marks a lost device."""
    return Path(f"{os.environ.get('HARNESS_NULL_SCRIPT', '')}.{info.spec}.lost")


@dataclass
class NullBuilt(Built):
    program: Program
    fault: str
    times_ns: Iterator[float] | None
    planted: bool = False
    factor: float = 1.0
    graph_times_ns: Iterator[float] | None = None


class NullDevice(HostMemory):
    clock = "scripted"
    guard_bytes = 2**16  # no kernel writes into it, except what a script has written there
    warms_up = False

    def __init__(self, info: DeviceInfo, script: Mapping[str, Any]) -> None:
        self.info = info
        self.toolchain = Toolchain(compiler="null 1")
        self.script = script
        self.allocated_bytes = 0
        wanted = script.get("noise")
        try:
            # Each process draws differently, unless the script fixes the seed.
            self.noise = None if wanted is None else SimulatedNoise(**{"seed": os.getpid(), **wanted})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"HARNESS_NULL_SCRIPT has the noise {wanted!r}: {error}.") from None
        self.waits = 0
        """Number of calls of synchronize()."""
        self._launched: NullBuilt | None = None
        self._writes = 0
        """Number of possible changes of inputs. Results are cached until the next one."""
        self._computed: dict[tuple[int, ...], tuple[int, Any, list[tuple[Any, np.ndarray[Any, Any]]]]] = {}

    def build(self, program: Program) -> NullBuilt:
        behaviour = self.script.get(program.name, {})
        in_text, time_in_text = _FAULT.search(program.text), _TIME.search(program.text)
        fault = behaviour.get("fault") or (in_text[1] if in_text else "")
        if fault == "build":
            raise BuildError(
                f"{program.name} does not compile.", log=f"{program.name}: error: scripted fault"
            )
        factor = self.script.get("compilers", {}).get(program.compiler or sys.executable, 1.0)
        times = behaviour.get("times_ns") or (time_in_text and [float(time_in_text[1])])
        by_graph = behaviour.get("graph_times_ns") or times
        return NullBuilt(
            program,
            fault,
            itertools.cycle(times) if times else None,
            planted="harness_steps" in program.text,
            resources=Resources(binary_sha256=_binary_sha256(program, factor)),
            factor=factor,
            graph_times_ns=itertools.cycle(by_graph) if by_graph else None,
        )

    def resident_blocks(self, built: Built, launch: Launch) -> int:  # noqa: ARG002
        """Return 1: it runs one block at a time."""
        return 1

    def free_bytes(self) -> int:
        return MEMORY_BYTES - self.allocated_bytes

    def allocate(self, size_bytes: int) -> Memory:
        if size_bytes > self.free_bytes():
            raise OutOfMemoryError(
                f"{size_bytes} bytes do not fit in the {self.free_bytes()} free of the null device."
            )
        self.allocated_bytes += size_bytes
        return np.zeros(size_bytes, np.uint8)

    def release(self, memory: Memory) -> None:
        self.allocated_bytes -= memory.nbytes

    def write(self, memory: Memory, offset_bytes: int, data: np.ndarray[Any, Any]) -> None:
        super().write(memory, offset_bytes, data)
        self._writes += 1

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        super().copy(source, destination, offset_bytes, size_bytes)
        self._writes += 1

    def capture(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:  # noqa: ARG002
        assert isinstance(built, NullBuilt)
        if built.fault == "capture":
            raise GraphRefusedError("The null device's script makes this capture fail.")

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:  # noqa: ARG002
        assert isinstance(built, NullBuilt)
        self._misbehave(built.fault)
        self._run(built, arguments)
        self._launched = built

    def _run(self, built: NullBuilt, arguments: Sequence[Argument]) -> None:
        if built.program.emulate is None:
            return
        key = (id(built), *map(id, arguments))
        kept = self._computed.get(key)
        if kept is None or kept[0] != self._writes:
            # Keep the arguments too, so that their ids stay unique.
            kept = self._writes, (built, arguments), built.program.emulate(*arguments)
            self._computed = {**dict(list(self._computed.items())[-1:]), key: kept}
        for view, values in kept[2]:
            target = view.view(values.dtype)
            if built.fault != "unwritten":
                target[:] = values.reshape(-1)
            if built.fault in ("wrong", "nan"):
                target[target.size // 2] = np.nan if built.fault == "nan" else target[target.size // 2] + 1
            if built.fault == "overrun":
                view.base[: view.nbytes] = 0

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:
        return self.after_wait(self.run(built, arguments, launches, graph=launch.graph))

    def run(
        self, built: Built, arguments: Sequence[Argument], launches: int, *, graph: bool = False
    ) -> float:
        """Run launches, and return their total time in ns."""
        assert isinstance(built, NullBuilt)
        if built.fault != "memory":
            self._misbehave(built.fault)
        self._run(built, arguments)
        times_ns = built.graph_times_ns if graph else built.times_ns
        if times_ns is not None:
            total_ns = sum(itertools.islice(times_ns, launches))
        else:
            touched_bytes = sum(getattr(argument, "nbytes", 0) for argument in arguments)
            total_ns = launches * touched_bytes * (1 + int(built.program.sha256[:4], 16) / 0xFFFF)
        total_ns *= built.factor
        if built.planted:
            total_ns *= 1 + _STEP * int(arguments[-1])
        if self.noise is not None:
            total_ns = self.noise.spend(total_ns / launches, launches, built.resources.binary_sha256)
        return total_ns

    def synchronize(self) -> None:
        self.waits += 1

    def after_wait(self, value: T) -> Callable[[], T]:
        """Return a reader of a value that raises MeasureError before the next synchronize(), as on a card."""
        waits = self.waits

        def read() -> T:
            if self.waits == waits:
                raise MeasureError("A time was read before synchronize().")
            return value

        return read

    def stamp(self) -> Stamping:
        now = None if self.noise is None else Stamp(self.noise.cycles, self.noise.now_ns)
        return self.after_wait(now)

    def count(self, works: Sequence[Work]) -> list[dict[str, float]]:
        found: list[dict[str, float]] = []
        for prepare, run in works:
            prepare()
            self._launched = None
            run()
            if self._launched is None or not (told := _COUNTERS.search(self._launched.program.text)):
                return super().count(works)
            found.append({name: float(value) for name, value in json.loads(told[1]).items()})
        return found

    def launched(self, run: Callable[[], object]) -> list[tuple[KernelLaunch, float]]:
        self._launched = None
        run()
        if self._launched is None or not (told := _LAUNCHES.search(self._launched.program.text)):
            return []
        return [(each, 0.0) for each in decode(told[1], list[KernelLaunch])]

    def canary(self) -> Timing | None:
        if self.noise is None:
            return None
        return self.after_wait(self.noise.spend(_CANARY_NS, 1, "canary"))

    def globaltimer_tick_ns(self) -> float | None:
        return None if self.noise is None else 1.0

    def tick_ns(self) -> float:
        return 1.0

    def _misbehave(self, fault: str) -> None:
        if fault == "lost":
            _lost_mark(self.info).touch()
        if fault in ("crash", "lost"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(3600)
        if fault == "error":
            raise LaunchError("The null device's script makes this launch fail.")
        if fault == "memory":
            raise OutOfMemoryError("The null device's script makes it run out of memory.")


def _binary_sha256(program: Program, factor: float) -> str:
    """Return a hash of the binary: equal for two compilers, unless one makes the program slower."""
    if factor == 1.0:
        return program.sha256
    return hashlib.sha256(f"{program.sha256} {factor}".encode()).hexdigest()
