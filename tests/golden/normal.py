"""Outputs without anything that the clock, the machine or chance decides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from harness import __version__

STARTED = datetime.now(timezone.utc) - timedelta(seconds=2)
"""Time of import. A time between this and now was read from the clock; any other is of a fixture."""
OF_THE_MACHINE = {
    *("host", "at_ns", "started_ns", "ended_ns", "warmup_s", "snapshots", "run_id", "throttle_ns"),
    *("memory_used_bytes", "host_s", "gpu_s", "compile_s", "measure_s", "sweep_id", "generated_at", "wall_s"),
}
"""Keys of JSON objects whose values differ from one machine or run to the next."""
DIGITS = 9
"""Significant digits kept of a number: NumPy's releases sum in another order."""

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")
_FILE = re.compile(r"(\d{8}T\d{6})Z(-[0-9a-f]{8}(?:\.\.[0-9a-f]{8})?-\w+-)[0-9a-f]{8}")
"""Name of a record: time, commit or two, suite, first digits of the run's id."""
_DAY = re.compile(r"(?<=measured )\d{4}-\d\d-\d\d")
_TOOK = re.compile(r"\d[\d.,]*(?= s (?:in all\)|of device\s+time))")
_AGE = re.compile(r"just now|\d+ minutes? ago")
_SWEEP = re.compile(r"(?<=Sweep )[0-9a-f]{16}")
_VERSION = re.compile(rf"\b(?:{re.escape(__version__)}|0\.1\.0)\b")
"""Our version, and that of fixtures: a release may be the same."""


def text(found: str, *roots: Path) -> str:
    """A text for people, with placeholders for folders, times, durations, ids and the version."""
    for root in roots:
        found = found.replace(str(root), "<root>").replace(str(root.resolve()), "<root>")
    found = _FILE.sub(_if_new("%Y%m%dT%H%M%S", r"<time>\2<id>"), found)
    found = _TIME.sub(_if_new("%Y-%m-%dT%H:%M:%S", "<time>"), found)
    today = {f"{STARTED:%Y-%m-%d}", f"{datetime.now(timezone.utc):%Y-%m-%d}"}
    found = _DAY.sub(lambda match: "<day>" if match[0] in today else match[0], found)
    found = _TOOK.sub("<duration>", found)
    found = _AGE.sub("<age>", found)
    found = _SWEEP.sub("<id>", found)
    return _VERSION.sub("<version>", found)


def document(found: object, *roots: Path, hidden: Collection[str] = OF_THE_MACHINE) -> str:
    """A JSON document for reviewers: a line for each field, and a line for each list of plain values.

    A placeholder stands for the values of the `hidden` keys.
    """
    return _written(_normal(found, roots, hidden)) + "\n"


def fixed_document(found: str, *roots: Path) -> str:
    """A JSON document that was made of a fixture's figures: only the time of writing is hidden."""
    return document(json.loads(found), *roots, hidden={"generated_at"})


def _if_new(form: str, put: str) -> Callable[[re.Match[str]], str]:
    """Return what replaces a time that was read from the clock; a time of a fixture stays.

    Newer git writes Z where older ones write +00:00.
    """

    def replaced(match: re.Match[str]) -> str:
        at = datetime.strptime(f"{match[1]}+0000", f"{form}%z")
        is_new = STARTED <= at <= datetime.now(timezone.utc)
        return match.expand(put) if is_new else re.sub(r"(?<=:\d\d)Z$", "+00:00", match[0])

    return replaced


def _normal(value: Any, roots: tuple[Path, ...], hidden: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            text(name, *roots): f"<{name}>" if name in hidden else _normal(each, roots, hidden)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_normal(each, roots, hidden) for each in value]
    if isinstance(value, str):
        return text(value, *roots)
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _written(value: Any, indent: str = "") -> str:
    inner = f"{indent}  "
    if isinstance(value, Mapping) and value:
        fields = (f"{inner}{json.dumps(name)}: {_written(each, inner)}" for name, each in value.items())
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(each, (Mapping, list)) for each in value):
        return "[\n" + ",\n".join(f"{inner}{_written(each, inner)}" for each in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)
