"""Which way is better for a benchmark of asv, which by itself takes every rise for a regression.

A benchmark's direction is its function's attribute `direction`, which asv copies into benchmarks.json. It is
heeded by asv's commands (`harness.integrations.asv.commands`) and by the published pages (`asv_pages`).
"""

from __future__ import annotations

__all__ = [
    "KNOWN_SOURCES",
    "Direction",
    "UnknownAsvError",
    "check_asv",
    "check_sources",
    "direction_of",
    "directions_of",
    "warn_of_unknown_directions",
]

import hashlib
import io
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import asv
from asv.console import log
from asv.util import UserError

from harness.errors import ConfigError
from harness.history.direction import DIRECTIONS, Direction, direction_of

KNOWN_SOURCES: Mapping[str, str] = {
    "commands/compare.py": "e35c3c78155fe871275da2c499dfc2d57026f007749b31862449036917ef8757",
    "commands/continuous.py": "1e6135a2470523ecd0b81326f607494f814e4117c180459b31eea14ea1aa992a",
    "commands/find.py": "72f1ffb4df1f22e8c19aafd489f7f29e165676d34eea5095971de9e743bb3a38",
    "plugins/regressions.py": "e4a2e06d675befa9eba01ba3a27fa215ca41759c993c06ec14888780e3d3cc42",
    "step_detect.py": "52db5851e70bf7c754f5a35a079ad047d2d6fe81645e3621989536aed3fd7ea6",
    "www/asv.js": "f68b8120e25bf46610c04a3d111f08eab6e1bd5c0603a65ea97ccfcb350e3a0a",
    "www/graphdisplay.js": "07e5125f5f5c1d527bb12cf137a1d3d2b54a1b4b57d87f31e9ee5d5560ca43d1",
    "www/regressions.js": "03e94118b303b2052f3308699083a08dfdf6faa497b5009ba55d74c1077b2deb",
    "www/summarylist.css": "4a3c108b64b239269071770f8977e268e3441b1f404d790b315b629f79052aff",
    "www/summarylist.js": "afa9b5613b9201e23bb8054fcc69f0780e859b96000bef053e3acb6309696cd8",
}
"""Files of asv 0.6.6 whose work is changed or reckoned with, by path in its package; SHA-256, of
Python without comments and blank lines."""


class UnknownAsvError(ConfigError, UserError):  # type: ignore[misc]  # asv is untyped
    """A file of asv is not the one of 0.6.6; asv prints the message as one line."""


def directions_of(benchmarks: Mapping[str, Mapping[str, Any]]) -> dict[str, Direction]:
    """By benchmark name."""
    return {name: direction_of(benchmark) for name, benchmark in benchmarks.items()}


def warn_of_unknown_directions(benchmarks: Mapping[str, Mapping[str, Any]]) -> None:
    """A mistyped direction must not be taken for none in silence."""
    for name, benchmark in benchmarks.items():
        declared = benchmark.get("direction")
        if declared is not None and declared not in DIRECTIONS:
            log.warning(
                f"{name} has the direction {declared!r}, which is none of {', '.join(DIRECTIONS)}: "
                f"taken as {direction_of(benchmark)}"
            )


def check_asv(*names: str) -> None:
    """Raise UnknownAsvError unless these files of the asv that runs are those of 0.6.6."""
    check_sources(Path(asv.__file__).parent, names)


def check_sources(folder: Path, names: Iterable[str]) -> None:
    """Raise UnknownAsvError unless the files below a folder are those of asv 0.6.6.

    `names` are keys of KNOWN_SOURCES; a name's "www/" is left out below a published folder.
    """
    for name in names:
        path = folder / name
        path = path if path.is_file() else folder / name.removeprefix("www/")
        found = hashlib.sha256(_code_of(path)).hexdigest() if path.is_file() else None
        if found != KNOWN_SOURCES[name]:
            raise UnknownAsvError(
                f"{path} is {'not there' if found is None else 'not that of asv 0.6.6'} (asv here is "
                f"{asv.__version__}). The plugin teaches asv which way is better by changing what that file "
                "does; with another one it could show a regression as an improvement. To get the known one: "
                "pip install --force-reinstall asv==0.6.6"
            )


def _code_of(path: Path) -> bytes:
    """What a file tells the machine: of Python all but comments and blank lines."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return content
    try:
        lines = content.decode("utf-8").split("\n")
        for token in tokenize.tokenize(io.BytesIO(content).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    except (SyntaxError, ValueError, tokenize.TokenError):
        return content
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()
