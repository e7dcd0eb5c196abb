"""NVIDIA's compute-sanitizer, which checks the kernels of a process on a card.

Its tools find accesses beyond an allocation (memcheck), races in shared memory (racecheck), reads of
unwritten device memory (initcheck) and barrier errors (synccheck). It precedes the process's command line.

https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer documents its options and output. A message begins
after `=========`, and its details are indented further.
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
"""Options of nvcc for line numbers. Code stays optimised, because that code runs."""
OLDEST = (2023, 1)
"""Oldest supported version, from CUDA 12.1. Older ones were not tried."""
MOST = 1_000
"""Messages of one process after which it only counts."""
_PADDING_BYTES = 1_024
"""Padding between allocations. They can be 512 bytes apart, and an overrun must not reach the next one."""
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
"""Prefixes of messages that do not come from a kernel. The last one is for calls after a kernel's fault."""
_REFUSALS = (
    "Device not supported",
    "Unable to find injection library",
    "No attachable process found",
    "couldn't find exit code",
    "driver",
)
"""Messages that the tool does not run here at all.

The last but one comes from PyPI packages that lack a program, such as 13.0.85.
"""


@functools.cache
def path() -> str | None:
    """Return the program from PATH, the toolkit or the PyPI package, in this order; None without one."""
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return (
        shutil.which("compute-sanitizer")
        or shutil.which("compute-sanitizer", path=f"{toolkit}/bin:{toolkit}/compute-sanitizer")
        or nvcc.packaged(PACKAGE, "compute-sanitizer")
    )


def program() -> str:
    """Return the program. Raises DeviceError if it is missing or too old."""
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
    """Return the words before a command that check its kernels and write `log`."""
    own = {
        "memcheck": ("--padding", str(_PADDING_BYTES), "--report-api-errors", "no"),
        "racecheck": ("--racecheck-report", "analysis"),
    }
    return [
        program,
        *("--tool", tool, "--log-file", str(log), "--print-limit", str(MOST)),
        *("--target-processes", "application-only", "--launch-timeout", str(_CONNECT_S)),
        # A kernel with an overrun is ended, and the process reports that itself.
        *("--destroy-on-device-error", "kernel", "--show-backtrace", "device"),
        *own.get(tool, ()),
    ]


def check(text: str) -> None:
    """Raise DeviceError if a log says that the tool does not work here."""
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
    """Tell whether the tool reached its summary. Without it, the absence of messages means nothing."""
    return _SUMMARY.search(text) is not None


def findings(text: str) -> list[SanitizerFinding]:
    """Return the findings in a log, one for each kind and line, in order."""
    return together(filter(None, map(_finding, _messages(text))))


def _messages(text: str) -> Iterator[str]:
    """Yield the messages with their indented details, without the marks and without a kernel's own output."""
    lines = "\n".join(line for line in text.splitlines() if line.startswith("========="))
    for part in _MESSAGE.split(lines)[1:]:
        yield part.replace("\n=========", "\n").strip()


def _kind(first: str) -> Kind | None:
    """Return the kind of finding by a message's first line; None if the message is not about a kernel."""
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
    """Return a race, such as ``Write access, Read access at file.cu:18``, and its number of bytes."""
    accesses = list(_RACE.finditer(message))
    if not accesses:
        return message.partition("\n")[0].strip(), 1
    others = ", ".join(
        f"{each['access']} access at {_place(each['at']) or each['at']}" for each in accesses[1:]
    )
    count = sum(int(each["hazards"] or 0) for each in accesses)
    return f"{accesses[0]['access']} access, and {others}", count or 1


def _place(text: str) -> str:
    """Return the first place outside of the toolkit's headers, which contain barriers."""
    places = [f"{Path(each['file']).name}:{each['line']}" for each in _PLACE.finditer(text)]
    return next((each for each in places if "_intrinsics.h" not in each), places[0] if places else "")
