"""NVIDIA's own tables of counters, which its wheel has for every chip: they need no card and no driver."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.device.backends.cuda import cupti

_SIZE, _POINTER, _TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_REQUEST_BYTES = 12
"""NVPW_MetricEvalRequest without the padding at its end."""
_TYPES = {f"uint{bits}_t": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32)} | {"size_t": _SIZE}


def package_folder() -> Path:
    """Return the folder of NVIDIA's wheel that holds lib and include."""
    return next(folder for folder in cupti.folders() if (folder / "libnvperf_host.so").is_file()).parent


@functools.cache
def _headers(folder: Path) -> str:
    names = ("cupti_range_profiler", "cupti_profiler_host", "cupti_profiler_target", "cupti_target")
    text = "\n".join((folder / f"{name}.h").read_text() for name in names)
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def header_fields(folder: Path, function: str) -> list[tuple[str, Any]]:
    """Return name and type of each field of a function's parameters. An enumeration is an int."""
    text = _headers(folder)
    kind = re.search(rf"\b{function}\(\s*(\w+)\s*\*", text)
    assert kind
    body = re.search(rf"typedef struct {kind[1]}\s*\{{(.*?)\}}", text, re.DOTALL)
    assert body
    found = []
    for line in filter(None, map(str.strip, body[1].split(";"))):
        words = re.fullmatch(r"(.*?)\s*(\w+)", line, re.DOTALL)
        assert words
        pointer = "*" in words[1] or words[1] == "CUcontext"
        found.append((words[2], _POINTER if pointer else _TYPES.get(words[1], ctypes.c_int)))
    return found


class HostLibrary:
    """libnvperf_host, with the little of it that tells which metrics a chip has."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(package_folder() / "lib" / "libnvperf_host.so"))
        self._call("InitializeHost", [])

    def _call(self, function: str, fields: list[tuple[str, Any]], **given: Any) -> Any:
        kind: Any = type(
            function, (ctypes.Structure,), {"_fields_": [("bytes", _SIZE), ("null", _POINTER), *fields]}
        )
        parameters = kind(**given)
        last = getattr(kind, fields[-1][0] if fields else "null")
        parameters.bytes = last.offset + last.size
        if code := getattr(self._library, f"NVPW_{function}")(ctypes.byref(parameters)):
            raise LookupError(f"{function} gave {code}")
        return parameters

    def chips(self) -> list[str]:
        found = self._call("GetSupportedChipNames", [("names", ctypes.POINTER(_TEXT)), ("count", _SIZE)])
        return [found.names[number].decode() for number in range(found.count)]

    def evaluator(self, chip: str) -> Callable[[str], bool]:
        """Return a function that tells whether a chip has a metric."""
        name = chip.encode()
        fields = [("chip", _TEXT), ("availability", _POINTER), ("size", _SIZE)]
        size = self._call("CUDA_MetricsEvaluator_CalculateScratchBufferSize", fields, chip=name).size
        scratch = ctypes.create_string_buffer(size)
        fields = [("scratch", _POINTER), ("size", _SIZE), ("chip", _TEXT), ("availability", _POINTER)]
        fields += [("data", _POINTER), ("data_size", _SIZE), ("evaluator", _POINTER)]
        begun = {"scratch": ctypes.addressof(scratch), "size": size, "chip": name}
        evaluator = self._call("CUDA_MetricsEvaluator_Initialize", fields, **begun).evaluator

        def has(metric: str) -> bool:
            request = ctypes.create_string_buffer(16)
            asked = [("evaluator", _POINTER), ("metric", _TEXT), ("request", _POINTER), ("size", _SIZE)]
            address = ctypes.addressof(request)
            given = {"evaluator": evaluator, "metric": metric.encode(), "request": address}
            function = "MetricsEvaluator_ConvertMetricNameToMetricEvalRequest"
            try:
                self._call(function, asked, size=_REQUEST_BYTES, **given)
            except LookupError:
                return False
            return bool(scratch)

        return has
