"""The common form of other benchmark harnesses' files.

A file holds the measurements of one process. A value that its format lacks is None.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from msgspec import Meta

from harness.errors import StoreError
from harness.records.imports.identity import Identity
from harness.records.types import DeviceInfo, L2Policy
from harness.system.decoding import convert
from harness.system.files import read_regular

T = TypeVar("T")
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that a record can hold. A longer one has no exact float either."""

Format = Literal[
    "nvbench",
    "google-benchmark",
    "pytest-benchmark",
    "hyperfine",
    "lines",
    "csv",
    "github-action-benchmark",
    "bencher",
]
FORMATS: tuple[Format, ...] = get_args(Format)
PROGRAM_FORMATS: tuple[Format, ...] = (
    "nvbench",
    "google-benchmark",
    "pytest-benchmark",
    "hyperfine",
    "lines",
)
"""Formats with a program's own times, so that two commits can be compared."""
LARGEST_BYTES = 256 * 2**20
"""Largest file that is read, in bytes. In memory, Python objects take about ten times as much."""
LARGEST_SIZE = 2**31 - 1
"""Largest size of a case on an axis."""
_LONGEST_NAME = 100
_SHORTEST_NS, _LONGEST_NS = 1e-6, 1e18
"""Shortest and longest plausible time. Beyond them ratios exceed the range of a float."""
NO_REASON = "It gives no reason."


_MOST = 2**31 - 1


def device_of(unknown: str, identity: Identity, host: str | None, **of_host: Any) -> DeviceInfo:
    """Describe the card in a file; without one the host, by its name and `of_host`.

    Several cards count as one device, because the file does not say which benchmark ran on which. A file
    whose `host` is None says nothing about its machine, and its device has no name.
    """
    if not identity.cards and host is None:
        return undescribed_device(unknown, spec="unknown", kind="other", name="")
    if not identity.cards:
        fields = {"spec": "cpu:0", "backend": "cpu", "kind": "cpu", "name": host or "a host without a name"}
        return undescribed_device(unknown, **fields, **of_host)
    name, units = ", ".join(identity.cards), identity.fact("sm", "sms", "multiprocessors", "cus") or ""
    nvidia = re.search(r"NVIDIA|GeForce|Quadro|Tesla|RTX|GTX", name) is not None
    return undescribed_device(
        unknown,
        spec="gpu",  # without a number, which is unknown
        backend="cuda" if nvidia else "gpu",
        vendor="NVIDIA" if nvidia else unknown,
        name=name,
        driver=identity.fact("driver") or unknown,
        kind="gpu",
        uuid=identity.fact("uuid"),
        pci_bus_id=identity.fact("pci"),
        compute_units=int(units) if re.fullmatch(r"[1-9][0-9]{0,5}", units) else None,
    )


def undescribed_device(unknown: str, **known: Any) -> DeviceInfo:
    """Return a device with only the `known` fields. `unknown` is the text for the others."""
    fields: dict[str, Any] = {
        **dict.fromkeys(("spec", "backend", "vendor", "driver", "arch"), unknown),
        **dict.fromkeys(("compute_units", "memory_bytes")),
        **dict.fromkeys(("max_threads_per_block", "max_shared_bytes"), _MOST),
        **dict.fromkeys(("max_block", "max_grid"), (_MOST, _MOST, _MOST)),
        **known,
    }
    return DeviceInfo(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCase:
    """A benchmark at one point of its axes, measured in one process."""

    kernel: str
    sizes: Mapping[str, int]
    name: str
    """The executable's name of the case, including its axes."""
    times_ns: tuple[float, ...] = ()
    """Times of one launch in the order measured: each sample, or a single mean if the file has no samples."""
    launches: int | None = None
    """Number of launches that each time is the mean of; None if unknown."""
    clock: str = ""
    """Clock of the times."""
    device_clock: bool = False
    """True if the file says that the device's clock measured the time."""
    l2: L2Policy = "hot"
    """Cold if the L2 was flushed before each launch."""
    warmup_launches: int | None = None
    moved_bytes: int | None = None
    """Bytes that one launch moves, according to the benchmark."""
    flop: int | None = None
    """Floating-point operations of one launch, according to the benchmark."""
    rate: str = ""
    """Unit of the file's values if they are rates. Then a launch stands for one unit of work."""
    sm_clock_mhz: float | None = None
    skipped: str = ""
    """The author's reason to skip it; empty if it was measured."""
    failed: str = ""
    """The failure that prevented a time; empty without one."""

    @property
    def id(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        return self.kernel, tuple(self.sizes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCases:
    """All results of one device in a file."""

    device: DeviceInfo
    cases: tuple[ImportedCase, ...]
    """The benchmarks, in the file's order."""
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of one process, with its results for each device."""

    path: Path
    format: Format
    version: str
    """The measuring library and its version: ``nvbench 0.1.0``."""
    executable: str
    """The executable's name without folder and extension; empty if unknown."""
    started_at: dt.datetime | None
    host: str = ""
    """Name of the machine; empty if unknown."""
    devices: tuple[DeviceCases, ...]
    """Devices with at least one benchmark; never empty."""
    problems: tuple[str, ...] = ()
    """Sentences on problems in reading the file."""

    @property
    def commit(self) -> str | None:
        """Return the measured commit in the file; None if there is none."""
        return next((each.identity.commit for each in self.devices if each.identity.commit), None)


def read_content(path: Path) -> bytes:
    """Return the content of a file of any harness. Raises StoreError, for an empty file too."""
    try:
        content = read_regular(path, LARGEST_BYTES)
    except OSError as error:
        smaller = " Save without --benchmark-save-data." if error.errno == errno.EFBIG else ""
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.{smaller}") from None
    if not content.strip():
        raise StoreError(
            f"{path} is empty: nothing was measured. A process that was ended before it wrote leaves such a "
            "file, and so does a filter that fits no benchmark: run it again."
        )
    return content


def parsed(path: Path, content: bytes) -> Any:
    """Return a file's content as JSON. Raises StoreError."""
    try:
        return loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged, or no JSON at all: {error}. A process that was ended while it wrote leaves "
            "such a file: run it again."
        ) from None


def loads(content: bytes) -> Any:
    """Read JSON that may contain NaN and Infinity. Raises ValueError, RecursionError.

    An unpaired surrogate becomes a question mark, because no record and no terminal can hold it.
    """
    found = json.loads(content)
    if b"\\ud" not in content.lower():
        return found
    return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))


def converted(where: str | Path, content: Any, kind: type[T], harness: str) -> T:
    """Convert JSON to a type. Raises StoreError if this harness does not write it so."""
    try:
        return convert(content, kind)
    except ValueError as error:  # msgspec's, and the error for an unpaired surrogate
        raise StoreError(f"{where} is not as {harness} writes it: {error}.") from None


_SPELT = {"*": "_ptr", "&": "_ref", "!": "_bang"}
"""Characters that may be the only difference between two names."""


def identifier(text: str) -> str:
    """Return a name for kernels and suites: letters, digits and underscores.

    ``sort<float>/T=F32`` becomes ``sort_float_T_F32``. A longer name ends in a digest.
    """
    spelt = re.sub(r"-(?=[0-9])", "m", "".join(_SPELT.get(each, each) for each in text.strip()))
    name = re.sub(r"[^A-Za-z0-9]+", "_", spelt).strip("_")
    if not name or name[0].isdigit():
        name = f"_{name}"
    return name if len(name) <= _LONGEST_NAME else with_digest(name, text)


def with_digest(name: str, of: str) -> str:
    """Return a name that ends in a digest of a text, so that names of other texts differ."""
    digest = hashlib.sha256(of.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"


def check_not_empty(path: Path, cases: Sequence[ImportedCase]) -> None:
    """Raise StoreError for a file without a benchmark, since measuring nothing is no success."""
    if not cases:
        raise StoreError(
            f"{path} holds no benchmark: nothing was measured. A filter that fits none leaves such a file, "
            "and so does a process that ended early. List the benchmarks, and run it again."
        )


def with_unique_names(cases: Sequence[ImportedCase]) -> list[ImportedCase]:
    """Return the cases with unique names.

    Cases of one kernel and size whose names differ get a digest of the name. Cases with the same name get
    their position and number, ``BM_k_1_of_2``. So a file with three of them shares no name with it.
    """
    often = Counter((case.id, case.name) for case in cases)
    seen: Counter[object] = Counter()
    apart = []
    for case in cases:
        seen[case.id, case.name] += 1
        if (of := often[case.id, case.name]) > 1:
            case = replace(case, kernel=identifier(f"{case.kernel}_{seen[case.id, case.name]}_of_{of}"))  # noqa: PLW2901
        apart.append(case)
    counts = Counter(case.id for case in apart)
    return [
        replace(case, kernel=with_digest(case.kernel, case.name)) if counts[case.id] > 1 else case
        for case in apart
    ]


def renamings(given: Sequence[ImportedCase], named: Sequence[ImportedCase]) -> tuple[str, ...]:
    """Return sentences on the benchmarks that `with_unique_names` renamed."""
    return tuple(
        f"{before.name} is called {after.kernel} here: another benchmark of the file has the same name."
        for before, after in zip(given, named, strict=True)
        if before.kernel != after.kernel
    )


def label(name: str, parameters: Mapping[str, object]) -> str:
    """Return ``scale[n=64]``, or the name alone without parameters."""
    listed = ",".join(f"{key}={value}" for key, value in parameters.items())
    return f"{name}[{listed}]" if listed else name


def executable_name(text: Any) -> str:
    """Return ``bench.axes`` for ``./build/bench.axes.exe``."""
    name = re.split(r"[/\\]", text)[-1] if isinstance(text, str) else ""
    return re.sub(r"\.(exe|py)$", "", name)


def placed(name: str, axes: Sequence[tuple[str, str | int]]) -> tuple[str, dict[str, int]]:
    """Return kernel and sizes of a benchmark. Values of axes that cannot be a size are added to the name."""
    sizes: dict[str, int] = {}
    others: list[str] = []
    for axis, value in axes:
        # Without CCCL's tags: {ct} for compile time, {io} for input.
        label = identifier(re.sub(r"\{\w*\}", "", axis))
        if isinstance(value, int) and 1 <= value <= LARGEST_SIZE and label not in sizes:
            sizes[label] = value
        else:
            others.append(f"_{label}_{value}")
    return identifier(name + "".join(others)), sizes


def utc_moment(text: str, zone: dt.tzinfo | None = None) -> dt.datetime | None:
    """Return the moment of an ISO 8601 text in UTC; None for another text, or without a zone."""
    try:
        moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        moment = moment.replace(tzinfo=moment.tzinfo or zone)
        return moment.astimezone(dt.timezone.utc) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def rounded(value: float) -> int | None:
    """Return the nearest integer; None for 0, which means unknown, and for numbers that no record
    can hold.
    """
    return (round(value) or None) if abs(value) < 2**63 else None


def wrong_time(times_ns: Iterable[float]) -> str:
    """Return what is wrong with times; empty if nothing is."""
    times = list(times_ns)
    if not times:
        return "The file has no time of it."
    wrong = next((each for each in times if not _SHORTEST_NS <= each <= _LONGEST_NS), None)
    return "" if wrong is None else f"A time of {wrong:g} ns, which nothing takes: look at its unit."
