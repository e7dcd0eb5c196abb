"""Hardware counters of a card by CUPTI's range profiler, and the kernels that a function launches.

The structures are those of cupti_range_profiler.h, cupti_profiler_host.h, cupti_profiler_target.h and
cupti_target.h in CUDA 12.6. Each begins with its size. A newer library accepts it and leaves out what came
later, but a library refuses a size that it does not know. A card counts few events at once: `counted` runs
the work once for each pass.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from harness.device.backends.base import Work
from harness.errors import MeasureError
from harness.records.types import MOST_SYMBOL, KernelLaunch

_RANGE_PROFILER, _USER_RANGE, _USER_REPLAY = 0, 2, 3
"""CUPTI_PROFILER_TYPE_RANGE_PROFILER, CUPTI_UserRange, CUPTI_UserReplay."""
_DELIMITER = b"/"
"""Separates the names of nested ranges."""
_CONCURRENT_KERNEL, _BUFFER_BYTES = 10, 2**20
"""CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL; size of a buffer of records."""
_CALLBACKS: list[Any] = []
_PASSES = 64
"""Most passes, in case a profiler never ends."""
_LIBRARIES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")
_HOST_LIBRARIES = ("libnvperf_host.so", "libnvperf_target.so")
_PACKAGES = ("nvidia.cu13", "nvidia.cuda_cupti")
"""Packages of CUPTI's wheels for CUDA 13 and CUDA 12."""

_Size, _Pointer, _Text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_Byte, _Short, _Int, _Unsigned = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_int, ctypes.c_uint32

_FIELDS: dict[str, tuple[tuple[str, Any], ...]] = {
    "cuptiProfilerInitialize": (),
    "cuptiDeviceGetChipName": (("index", _Size), ("chip", _Text)),
    "cuptiProfilerGetCounterAvailability": (
        ("context", _Pointer),
        ("size", _Size),
        ("image", _Pointer),
    ),
    "cuptiProfilerHostInitialize": (
        ("type", _Int),
        ("chip", _Text),
        ("availability", _Pointer),
        ("host", _Pointer),
    ),
    "cuptiProfilerHostConfigAddMetrics": (("host", _Pointer), ("metrics", _Pointer), ("count", _Size)),
    "cuptiProfilerHostGetConfigImageSize": (("host", _Pointer), ("size", _Size)),
    "cuptiProfilerHostGetConfigImage": (("host", _Pointer), ("size", _Size), ("image", _Pointer)),
    "cuptiProfilerHostEvaluateToGpuValues": (
        ("host", _Pointer),
        ("image", _Pointer),
        ("size", _Size),
        ("range", _Size),
        ("metrics", _Pointer),
        ("count", _Size),
        ("values", _Pointer),
    ),
    "cuptiRangeProfilerEnable": (("context", _Pointer), ("profiler", _Pointer)),
    "cuptiRangeProfilerDisable": (("profiler", _Pointer),),
    "cuptiRangeProfilerGetCounterDataSize": (
        ("profiler", _Pointer),
        ("metrics", _Pointer),
        ("count", _Size),
        ("ranges", _Size),
        ("nodes", _Unsigned),
        ("size", _Size),
    ),
    "cuptiRangeProfilerCounterDataImageInitialize": (
        ("profiler", _Pointer),
        ("size", _Size),
        ("image", _Pointer),
    ),
    "cuptiRangeProfilerSetConfig": (
        ("profiler", _Pointer),
        ("config_size", _Size),
        ("config", _Pointer),
        ("size", _Size),
        ("image", _Pointer),
        ("range_mode", _Int),
        ("replay_mode", _Int),
        ("ranges_in_pass", _Size),
        ("nesting_levels", _Short),
        ("least_nesting_level", _Short),
        ("pass_index", _Size),
        ("target_nesting_level", _Short),
    ),
    "cuptiRangeProfilerStart": (("profiler", _Pointer),),
    "cuptiRangeProfilerStop": (
        ("profiler", _Pointer),
        ("pass_index", _Size),
        ("target_nesting_level", _Size),
        ("all_submitted", _Byte),
    ),
    "cuptiRangeProfilerPushRange": (("profiler", _Pointer), ("name", _Text)),
    "cuptiRangeProfilerPopRange": (("profiler", _Pointer),),
    "cuptiRangeProfilerDecodeData": (("profiler", _Pointer), ("dropped", _Size)),
    "cuptiRangeProfilerCounterDataGetRangeInfo": (
        ("image", _Pointer),
        ("size", _Size),
        ("range", _Size),
        ("delimiter", _Text),
        ("name", _Text),
    ),
}
"""Fields of each function's parameters, after the size and a null pointer, as in CUDA 12.6 to 13.0.

Newer releases have more fields in three of them and also take shorter ones. Older ones refuse longer ones.
"""

_WAYS_OUT = {
    35: (
        "The driver lets administrators alone read counters. CAP_SYS_ADMIN lifts that for one process, the "
        "option NVreg_RestrictProfilingToAdminUsers=0 of the kernel module nvidia for every user. Whoever "
        "reads counters learns something of what others run on the card."
    ),
    26: "Another profiler, such as ncu or DCGM, has the counters: end it.",
    39: "Another tool of CUPTI's is attached to this process: run without it.",
    40: "The host of this virtual machine has to allow counters for it.",
    43: "Counters of a part of a card (MIG) are not offered.",
    45: "Under WSL, Windows's NVIDIA control panel allows counters, under Developer.",
}
"""Advice for an error, by its number in cupti_result.h."""


def fields_of(function: str) -> type[ctypes.Structure]:
    """Return the structure of a function's parameters."""
    fields = [("size_bytes", _Size), ("null", _Pointer), *_FIELDS[function]]
    return type(function, (ctypes.Structure,), {"_fields_": fields})


def folders() -> Iterator[Path]:
    """Yield the folders that may contain CUPTI: first those of wheels, then those of toolkits."""
    for name in _PACKAGES:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        for place in (found.submodule_search_locations or ()) if found else ():
            yield Path(place) / "lib"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if toolkit := os.environ.get(name):
            yield Path(toolkit) / "extras" / "CUPTI" / "lib64"
    yield Path("/usr/local/cuda/extras/CUPTI/lib64")


@functools.cache
def _library() -> Any:
    for folder in folders():
        for name in _LIBRARIES:
            if (folder / name).is_file():
                for host in _HOST_LIBRARIES:  # it looks for these by name only
                    ctypes.CDLL(str(folder / host), mode=ctypes.RTLD_GLOBAL)
                return ctypes.CDLL(str(folder / name))
    raise MeasureError(
        "CUPTI is not installed, which reads a card's counters: pip install 'gpu-harness[counters]', or set "
        "CUDA_HOME to a CUDA toolkit."
    )


def _call(function: str, **given: Any) -> Any:
    """Call a function with these fields, and return all of its fields afterwards. Raises MeasureError."""
    library = _library()
    if not hasattr(library, function):
        raise MeasureError(f"This CUPTI has no {function}: CUDA 12.6 or newer is needed.")
    kind = fields_of(function)
    parameters = kind(**given)
    last = getattr(kind, kind._fields_[-1][0])
    parameters.size_bytes = last.offset + last.size
    if code := getattr(library, function)(ctypes.byref(parameters)):
        raise MeasureError(_explained(library, function, code))
    return parameters


def _explained(library: Any, function: str, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuptiGetErrorMessage(code, ctypes.byref(text))
    said = text.value.decode(errors="replace") if text.value else "no message"
    return f"Counters cannot be read: {function} gave {code} ({said}). {_WAYS_OUT.get(code, '')}".strip()


class _Setup(NamedTuple):
    """The metrics of a card, and how its counters are set for them. Until the process ends."""

    wanted: Mapping[str, str]
    """NVIDIA's name of each counter by ours."""
    names: Any
    host: int
    config: Any

    @property
    def metrics(self) -> dict[str, int]:
        return {"metrics": ctypes.addressof(self.names), "count": len(self.wanted)}


@functools.cache
def _set_up(index: int, context: int, metrics_of: Callable[[str], Mapping[str, str]]) -> _Setup:
    """Return what all readings of a card share, which takes longer than a reading."""
    _call("cuptiProfilerInitialize")
    chip = _call("cuptiDeviceGetChipName", index=index).chip
    wanted = metrics_of(chip.decode())
    names = (ctypes.c_char_p * len(wanted))(*[name.encode() for name in wanted.values()])
    availability = _availability(context)
    given = {"type": _RANGE_PROFILER, "chip": chip, "availability": ctypes.addressof(availability)}
    host = _call("cuptiProfilerHostInitialize", **given).host
    metrics = {"metrics": ctypes.addressof(names), "count": len(wanted)}
    _call("cuptiProfilerHostConfigAddMetrics", host=host, **metrics)
    config = ctypes.create_string_buffer(_call("cuptiProfilerHostGetConfigImageSize", host=host).size)
    _call("cuptiProfilerHostGetConfigImage", host=host, **_image(config))
    return _Setup(wanted, names, host, config)


def counted(
    index: int,
    context: int,
    metrics_of: Callable[[str], Mapping[str, str]],
    works: Sequence[Work],
) -> list[dict[str, float]]:
    """Return hardware counters of each of these works.

    A pass takes 20 ms to set up, so each has all works.

    Args:
        index: The card's number in CUDA's order.
        context: The handle of its context, which is current.
        metrics_of: Returns the metrics of a chip, such as GH100, by the names in the result.
        works: Their functions return when the card has finished.

    Raises:
        MeasureError: The card, the driver or this user has no counters.

    """
    setup, count = _set_up(index, context, metrics_of), len(works)
    with ExitStack() as stack:
        profiler = _call("cuptiRangeProfilerEnable", context=context).profiler
        stack.callback(_call, "cuptiRangeProfilerDisable", profiler=profiler)
        size = _call(
            "cuptiRangeProfilerGetCounterDataSize",
            profiler=profiler,
            ranges=count,
            nodes=count,
            **setup.metrics,
        ).size
        data = ctypes.create_string_buffer(size)
        _call("cuptiRangeProfilerCounterDataImageInitialize", profiler=profiler, **_image(data))
        _call(
            "cuptiRangeProfilerSetConfig",
            profiler=profiler,
            config_size=ctypes.sizeof(setup.config),
            config=ctypes.addressof(setup.config),
            **_image(data),
            range_mode=_USER_RANGE,
            replay_mode=_USER_REPLAY,
            ranges_in_pass=count,
            nesting_levels=1,
            least_nesting_level=1,
            target_nesting_level=1,
        )
        _run_passes(profiler, works)
        _call("cuptiRangeProfilerDecodeData", profiler=profiler)
        found = dict(_evaluated(setup, data, place) for place in range(count))
        return [found[place] for place in range(count)]


def _evaluated(setup: _Setup, data: Any, place: int) -> tuple[int, dict[str, float]]:
    """Return the counters of the range at this place of the data, and the number of its work."""
    range_info = "cuptiRangeProfilerCounterDataGetRangeInfo"
    name = _call(range_info, **_image(data), range=place, delimiter=_DELIMITER).name
    values = (ctypes.c_double * len(setup.wanted))()
    found = {"host": setup.host, "range": place, "values": ctypes.addressof(values)}
    _call("cuptiProfilerHostEvaluateToGpuValues", **found, **_image(data), **setup.metrics)
    return int(name), dict(zip(setup.wanted, values, strict=True))


def _run_passes(profiler: int, works: Sequence[Work]) -> None:
    for _ in range(_PASSES):
        _call("cuptiRangeProfilerStart", profiler=profiler)
        for number, (prepare, run) in enumerate(works):
            prepare()
            _call("cuptiRangeProfilerPushRange", profiler=profiler, name=str(number).encode())
            run()
            _call("cuptiRangeProfilerPopRange", profiler=profiler)
        if _call("cuptiRangeProfilerStop", profiler=profiler).all_submitted:
            return
    raise MeasureError(f"The counters were not all read in {_PASSES} passes.")


class _KernelRecord(ctypes.Structure):
    """The beginning of CUpti_ActivityKernel9 and of all later ones."""

    _fields_ = (
        ("kind", _Unsigned),
        ("configuration", _Byte * 2),
        ("registers", _Short),
        ("partitioned", _Unsigned * 2),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("completed_ns", ctypes.c_uint64),
        ("device", _Unsigned),
        ("context", _Unsigned),
        ("stream", _Unsigned),
        ("grid", _Unsigned * 3),
        ("block", _Unsigned * 3),
        ("static_shared_bytes", _Unsigned),
        ("dynamic_shared_bytes", _Unsigned),
        ("local", _Unsigned * 2),
        ("correlation", _Unsigned),
        ("grid_id", ctypes.c_int64),
        ("name", _Text),
        ("launch", _Byte * 64),
        ("cluster", _Unsigned * 3),
    )

    def launch_of(self) -> KernelLaunch:
        x, y, z = self.cluster
        return KernelLaunch(
            symbol=self.name.decode(errors="replace")[:MOST_SYMBOL],
            grid=tuple(self.grid),
            block=tuple(self.block),
            dynamic_shared_bytes=self.dynamic_shared_bytes,
            static_shared_bytes=self.static_shared_bytes,
            registers=self.registers,
            cluster=(x, y, z) if x * y * z > 1 else None,
        )


_Requested = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Pointer), ctypes.POINTER(_Size), ctypes.POINTER(_Size))
_Completed = ctypes.CFUNCTYPE(None, _Pointer, _Unsigned, _Pointer, _Size, _Size)


def launched(run: Callable[[], object]) -> list[tuple[KernelLaunch, float]]:
    """Return each kernel that `run` has the card execute with its time in ns, in order.

    `run` returns when the card has finished. Raises MeasureError.
    """
    library, found, buffers = _library(), list[tuple[int, KernelLaunch, float]](), list[Any]()

    def requested(buffer: Any, size: Any, most_records: Any) -> None:
        buffers.append((ctypes.c_uint64 * (_BUFFER_BYTES // 8))())  # aligned as the records are
        buffer[0], size[0], most_records[0] = ctypes.addressof(buffers[-1]), _BUFFER_BYTES, 0

    def completed(_context: Any, _stream: int, buffer: Any, _size: int, valid_bytes: int) -> None:
        record = ctypes.POINTER(_KernelRecord)()
        while (
            library.cuptiActivityGetNextRecord(_Pointer(buffer), _Size(valid_bytes), ctypes.byref(record))
            == 0
        ):
            if record.contents.kind == _CONCURRENT_KERNEL:
                kernel = record.contents
                time_ns = float(kernel.end_ns - kernel.start_ns)
                found.append((kernel.start_ns, kernel.launch_of(), time_ns))

    callbacks = _Requested(requested), _Completed(completed)
    _CALLBACKS.append(callbacks)  # CUPTI keeps their addresses
    _plainly("cuptiActivityRegisterCallbacks", *callbacks)
    _plainly("cuptiActivityEnable", _CONCURRENT_KERNEL)
    try:
        run()
        _plainly("cuptiActivityFlushAll", 1)
    finally:
        _plainly("cuptiActivityDisable", _CONCURRENT_KERNEL)
    return [(launch, time_ns) for _, launch, time_ns in sorted(found, key=operator.itemgetter(0))]


def _plainly(function: str, *given: Any) -> None:
    """Call a function without a structure. Raises MeasureError."""
    library = _library()
    if code := getattr(library, function)(*given):
        raise MeasureError(_explained(library, function, code))


def _availability(context: int) -> Any:
    """Return the counters that the card offers here, in CUPTI's own form."""
    function = "cuptiProfilerGetCounterAvailability"
    image = ctypes.create_string_buffer(_call(function, context=context).size)
    _call(function, context=context, **_image(image))
    return image


def _image(buffer: Any) -> dict[str, int]:
    return {"size": ctypes.sizeof(buffer), "image": ctypes.addressof(buffer)}
