"""Files of other benchmark harnesses, as their executables write them: what they have in common.

A file is what one process measured. What its format does not tell is None here, and stays so.
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
"""An integer that a record can hold; one of more digits is no float either."""

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
"""The formats that a program writes with its own times, so that two commits can be compared."""
LARGEST_BYTES = 256 * 2**20
"""The largest file that is read: as Python objects it takes some ten times that in memory."""
LARGEST_SIZE = 2**31 - 1
"""The largest that a case can have on an axis."""
_LONGEST_NAME = 100
_SHORTEST_NS, _LONGEST_NS = 1e-6, 1e18
"""Times that anything takes: beyond them ratios leave the range of a float."""
NO_REASON = "It gives no reason."


_MOST = 2**31 - 1


def device_of(unknown: str, identity: Identity, host: str | None, **of_host: Any) -> DeviceInfo:
    """Describe the card that a file names; without one the host, by its name and what `of_host` tells of it.

    Several cards are one device, as nothing tells which benchmark ran on which. A file whose `host` is None
    tells nothing of its machine, and its device has no name.
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
        spec="gpu",  # without a number, which nobody knows
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
    """Return a device of which a file tells only the `known` fields; `unknown` stands in the other texts."""
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
    """The executable's name of the case, with its axes."""
    times_ns: tuple[float, ...] = ()
    """Times of one launch, in the order measured: each sample, or one mean where the file has no more."""
    launches: int | None = None
    """Number of launches that each time is the mean of; None where the file does not tell."""
    clock: str = ""
    """The clock that measured the time."""
    device_clock: bool = False
    """True where the file says that the device's own clock measured the time."""
    l2: L2Policy = "hot"
    """Cold where it was flushed before each launch."""
    warmup_launches: int | None = None
    moved_bytes: int | None = None
    """Bytes that one launch moves, by the benchmark's own account."""
    flop: int | None = None
    """Floating-point operations of one launch, by the same account."""
    rate: str = ""
    """Unit of the file's own figures where they are rates: a launch is then one unit of their work."""
    sm_clock_mhz: float | None = None
    skipped: str = ""
    """The author's reason for not measuring it; empty where it was measured."""
    failed: str = ""
    """The failure that left it without a time; empty without one."""

    @property
    def id(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        return self.kernel, tuple(self.sizes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCases:
    """Everything that a file has of one device."""

    device: DeviceInfo
    cases: tuple[ImportedCase, ...]
    """The benchmarks, in the file's order."""
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of one process, with what it measured on each of its devices."""

    path: Path
    format: Format
    version: str
    """The library that measured, and its version: ``nvbench 0.1.0``."""
    executable: str
    """The executable's name without folder and ending; empty where the file does not tell."""
    started_at: dt.datetime | None
    host: str = ""
    """The name of the machine; empty where the file does not tell."""
    devices: tuple[DeviceCases, ...]
    """The devices that have a benchmark; at least one."""
    problems: tuple[str, ...] = ()
    """Problems in reading the file, a sentence each."""

    @property
    def commit(self) -> str | None:
        """The commit that the file says was measured; None where it says none."""
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
    """Read JSON with NaN and Infinity in it, which these harnesses write. Raises ValueError, RecursionError.

    A question mark stands for each half of a surrogate pair, which no record and no terminal can hold.
    """
    found = json.loads(content)
    if b"\\ud" not in content.lower():
        return found
    return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))


def converted(where: str | Path, content: Any, kind: type[T], harness: str) -> T:
    """JSON as a type. Raises StoreError where it is not as this harness writes it."""
    try:
        return convert(content, kind)
    except ValueError as error:  # msgspec's, and that of half a character
        raise StoreError(f"{where} is not as {harness} writes it: {error}.") from None


_SPELT = {"*": "_ptr", "&": "_ref", "!": "_bang"}
"""Signs of which two names may differ alone."""


def identifier(text: str) -> str:
    """Return a name as kernels and suites have them: letters, digits and underscores. ``sort_float_T_F32`` of
    ``sort<float>/T=F32``; what is longer ends in a digest.
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
    """Raise StoreError for a file without a benchmark: nothing was measured, which is no success."""
    if not cases:
        raise StoreError(
            f"{path} holds no benchmark: nothing was measured. A filter that fits none leaves such a file, "
            "and so does a process that ended early. List the benchmarks, and run it again."
        )


def with_unique_names(cases: Sequence[ImportedCase]) -> list[ImportedCase]:
    """Return the cases under names of their own.

    Cases of one kernel and size whose names differ get a digest of the name. Cases of one name get their
    place among so many: ``BM_k_1_of_2``, so a file with three of them has none in common with it.
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
    """Say which benchmarks `with_unique_names` gave another name."""
    return tuple(
        f"{before.name} is called {after.kernel} here: another benchmark of the file has the same name."
        for before, after in zip(given, named, strict=True)
        if before.kernel != after.kernel
    )


def executable_name(text: Any) -> str:
    """``bench.axes`` of ``./build/bench.axes.exe``."""
    name = re.split(r"[/\\]", text)[-1] if isinstance(text, str) else ""
    return re.sub(r"\.(exe|py)$", "", name)


def placed(name: str, axes: Sequence[tuple[str, str | int]]) -> tuple[str, dict[str, int]]:
    """Kernel and sizes of a benchmark: what a case can have as a size is one, every other value of an axis
    is in the kernel's name.
    """
    sizes: dict[str, int] = {}
    others: list[str] = []
    for axis, value in axes:
        # Without CCCL's marks: {ct} is of the compiler, {io} of input.
        label = identifier(re.sub(r"\{\w*\}", "", axis))
        if isinstance(value, int) and 1 <= value <= LARGEST_SIZE and label not in sizes:
            sizes[label] = value
        else:
            others.append(f"_{label}_{value}")
    return identifier(name + "".join(others)), sizes


def utc_moment(text: str, zone: dt.tzinfo | None = None) -> dt.datetime | None:
    """The moment that a text in ISO 8601 tells, in UTC; None where it tells none, nor its zone unless one is
    given for that.
    """
    try:
        moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        moment = moment.replace(tzinfo=moment.tzinfo or zone)
        return moment.astimezone(dt.timezone.utc) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def rounded(value: float) -> int | None:
    """The nearest integer; None for 0, which stands for what is unknown, and for what no record can hold."""
    return (round(value) or None) if abs(value) < 2**63 else None


def wrong_time(times_ns: Iterable[float]) -> str:
    """Say what is wrong with times; empty where nothing is."""
    times = list(times_ns)
    if not times:
        return "The file has no time of it."
    wrong = next((each for each in times if not _SHORTEST_NS <= each <= _LONGEST_NS), None)
    return "" if wrong is None else f"A time of {wrong:g} ns, which nothing takes: look at its unit."
