"""NVIDIA's compute-sanitizer, which watches the kernels of a process on a card: accesses beyond an allocation
(memcheck), races in shared memory (racecheck), device memory that nobody wrote (initcheck), barriers
(synccheck). It is put before the process's command line.

https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer has its options and what it prints, which is read
here: a message begins behind `=========`, and what belongs to it is indented further.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.device.backends import nvcc
from harness.device.findings import Kind, SanitizerFinding, together
from harness.errors import DeviceError
from harness.system.process import finished

PACKAGE = "nvidia-cuda-sanitizer-api"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = ("-lineinfo",)
"""Options of nvcc, for lines. Code stays optimised, as it is what runs."""
OLDEST = (2023, 1)
"""The version that came with CUDA 12.1. Which of the options below an older one has was not tried."""
MOST = 1_000
"""Messages of one process, after which it only counts."""
_PADDING_BYTES = 1_024
"""Between allocations, which lie 512 bytes apart at the least: what goes beyond one is not in another."""
_CONNECT_S = 60
_TOOL_S = 30.0
_VERSION = re.compile(r"^Version (\d+)\.(\d+)", re.MULTILINE)
_SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: ", re.MULTILINE)
_MESSAGE = re.compile(r"^========= (?=\S)", re.MULTILINE)
_PLACE = re.compile(r" in (?P<file>\S+?):(?P<line>\d+)(?=[:\s]|$)", re.MULTILINE)
_THREAD = re.compile(r"by thread (\S+) in block (\S+)")
_RACE = re.compile(
    r"(?P<access>Read|Write|Atomic) access at (?P<at>.*?)(?: \[(?P<hazards>\d+) hazards?\])?$", re.MULTILINE
)
_NEAREST = re.compile(
    r"(?:and is )?(?P<far>[\d,]+ bytes (?:before|after)) the nearest allocation at \S+ (?P<size>of size .*)"
)
_WRONG = re.compile(r"(misaligned|out of bounds)")
_KINDS: Mapping[str, Kind] = {
    "Race reported": "race",
    "hazard detected": "race",
    "Uninitialized": "uninitialised",
    "Barrier": "barrier",
    "Invalid": "bounds",
}
_ASIDE = (
    *("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "Error:", "Warning:"),
    *("Target application", "Tracking kernels", "Program hit"),
)
"""Beginnings of messages that do not come from a kernel; the last is of calls after a kernel's fault."""
_REFUSALS = (
    "Device not supported",
    "Unable to find injection library",
    "No attachable process found",
    "couldn't find exit code",
    "driver",
)
"""Words of messages that say that the tool does not run here at all. The last but one is that of a package
from PyPI that lacks a program of its own, as 13.0.85 does."""


@functools.cache
def path() -> str | None:
    """Return the program from PATH, the toolkit or the package of PyPI, in this order; None without one."""
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return (
        shutil.which("compute-sanitizer")
        or shutil.which("compute-sanitizer", path=f"{toolkit}/bin:{toolkit}/compute-sanitizer")
        or nvcc.packaged(PACKAGE, "compute-sanitizer")
    )


def program() -> str:
    """Return the program. Raises DeviceError where it is missing or too old."""
    found = path()
    if found is None:
        raise DeviceError(
            "Sanitising on a card needs compute-sanitizer, which is neither on PATH nor in $CUDA_HOME/bin: "
            f"install the CUDA toolkit, or pip install {PACKAGE}. '--tool oclgrind' needs no card."
        )
    try:
        _, out, err = finished([found, "--version"], timeout_s=_TOOL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"{found} does not start ({error}).") from None
    version = _VERSION.search(out)
    if version is None:
        said = (out + err).strip()
        raise DeviceError(f"{found} does not tell its version, but: {said or 'nothing'}.", log=said)
    if (int(version[1]), int(version[2])) < OLDEST:
        raise DeviceError(
            f"{found} is version {version[1]}.{version[2]}; expected {OLDEST[0]}.{OLDEST[1]}, which "
            f"came with CUDA 12.1, or later: put a newer one before it on PATH, or pip install {PACKAGE}."
        )
    return found


def before(program: str, tool: str, log: Path) -> list[str]:
    """Return the words before a command that have its kernels watched and `log` written."""
    own = {
        "memcheck": ("--padding", str(_PADDING_BYTES), "--report-api-errors", "no"),
        "racecheck": ("--racecheck-report", "analysis"),
    }
    return [
        program,
        *("--tool", tool, "--log-file", str(log), "--print-limit", str(MOST)),
        *("--target-processes", "application-only", "--launch-timeout", str(_CONNECT_S)),
        # A kernel that goes beyond an array is ended, and the process tells so itself.
        *("--destroy-on-device-error", "kernel", "--show-backtrace", "device"),
        *own.get(tool, ()),
    ]


def check(text: str) -> None:
    """Raise DeviceError where a log says that the tool does not work here."""
    for message in _messages(text):
        first = message.partition("\n")[0].strip()
        if any(words in first for words in _REFUSALS) and _kind(first) is None:
            raise DeviceError(
                f"compute-sanitizer does not run here. It says: {first.removeprefix('Error: ')} Another "
                "version may: the CUDA toolkit's, as old as the driver or newer. '--tool oclgrind' needs no "
                "card.",
                log=text,
            )


def ended(text: str) -> bool:
    """Tell whether the tool ended and summed up: without that, no message means nothing."""
    return _SUMMARY.search(text) is not None


def findings(text: str) -> list[SanitizerFinding]:
    """Return the findings in a log, one for each kind and line, in order."""
    return together(filter(None, map(_finding, _messages(text))))


def _messages(text: str) -> Iterator[str]:
    """The messages with what is indented under them, without the marks. What a kernel prints is left out."""
    lines = "\n".join(line for line in text.splitlines() if line.startswith("========="))
    for part in _MESSAGE.split(lines)[1:]:
        yield part.replace("\n=========", "\n").strip()


def _kind(first: str) -> Kind | None:
    """Return the kind of finding by a message's first line; None where the message is not about a kernel."""
    kind = next((kind for words, kind in _KINDS.items() if words in first), None)
    return kind or (None if first.startswith(_ASIDE) else "other")


def _finding(message: str) -> tuple[object, SanitizerFinding] | None:
    first = message.partition("\n")[0].strip()
    kind = _kind(first)
    if kind is None:
        return None
    at, thread = _place(message), _THREAD.search(message)
    if kind == "race":
        said, count = _race(message)
    else:
        said, count = first.rstrip("."), 1
        if nearest := _NEAREST.search(message):
            said += f", {nearest['far']} an array {nearest['size']}"
        elif wrong := _WRONG.search(message):
            said += f", {wrong[1]}"
    who = f"thread {thread[1]} in block {thread[2]}" if thread else ""
    return (kind, first if kind != "race" else said, at), SanitizerFinding(kind, said, at, who, count)


def _race(message: str) -> tuple[str, int]:
    """``Write access, Read access at file.cu:18``, and of how many bytes."""
    accesses = list(_RACE.finditer(message))
    if not accesses:
        return message.partition("\n")[0].strip(), 1
    others = ", ".join(
        f"{each['access']} access at {_place(each['at']) or each['at']}" for each in accesses[1:]
    )
    count = sum(int(each["hazards"] or 0) for each in accesses)
    return f"{accesses[0]['access']} access, and {others}", count or 1


def _place(text: str) -> str:
    """Return the first place that is not in a header of the toolkit's, where barriers lie."""
    places = [f"{Path(each['file']).name}:{each['line']}" for each in _PLACE.finditer(text)]
    return next((each for each in places if "_intrinsics.h" not in each), places[0] if places else "")
