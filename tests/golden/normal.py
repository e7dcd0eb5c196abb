"""Outputs without anything that the clock, the machine or chance decides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from harness import __version__

STARTED = datetime.now(timezone.utc) - timedelta(seconds=2)
"""Time of import. Any later time in an output was read from the clock; an earlier one is of a fixture."""
OF_THE_MACHINE = {
    *("host", "at_ns", "started_ns", "ended_ns", "warmup_s", "snapshots", "run_id", "throttle_ns"),
    *("memory_used_bytes", "host_s", "gpu_s", "compile_s", "measure_s", "sweep_id", "generated_at"),
}
"""Keys of JSON objects whose values differ from one machine or run to the next."""
DIGITS = 9
"""Significant digits kept of a number: NumPy's releases sum in another order."""

_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")
_FILE = re.compile(r"(\d{8}T\d{6})Z(-[0-9a-f]{8}(?:\.\.[0-9a-f]{8})?-\w+-)[0-9a-f]{8}")
"""Name of a record: time, commit or two, suite, first digits of the run's id."""
_TOOK = re.compile(r"\d[\d.,]*(?= s (?:in all\)|of device\s+time))")
_SWEEP = re.compile(r"(?<=Sweep )[0-9a-f]{16}")


def text(found: str, *roots: Path) -> str:
    """A text for people, with placeholders for folders, times, durations, ids and the version."""
    for root in roots:
        found = found.replace(str(root), "<root>")
    found = _FILE.sub(_if_new("%Y%m%dT%H%M%S", r"<time>\2<id>"), found)
    found = _TIME.sub(_if_new("%Y-%m-%dT%H:%M:%S", "<time>"), found)
    found = _TOOK.sub("<duration>", found)
    found = _SWEEP.sub("<id>", found)
    return found.replace(__version__, "<version>")


def document(found: object, *roots: Path) -> str:
    """A JSON document for reviewers: a line for each field, and a line for each list of plain values."""
    return _written(_normal(found, roots)) + "\n"


def json_text(found: str, *roots: Path) -> str:
    """The same of a document that is still text."""
    return document(json.loads(found), *roots)


def _if_new(form: str, put: str) -> Callable[[re.Match[str]], str]:
    """What replaces a time that was read from the clock; an older time stays."""

    def replaced(match: re.Match[str]) -> str:
        at = datetime.strptime(f"{match[1]}+0000", f"{form}%z")
        return match.expand(put) if at >= STARTED else match[0]

    return replaced


def _normal(value: Any, roots: tuple[Path, ...], key: str = "") -> Any:
    if key in OF_THE_MACHINE:
        return f"<{key}>"
    if isinstance(value, Mapping):
        return {text(name, *roots): _normal(each, roots, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_normal(each, roots) for each in value]
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
