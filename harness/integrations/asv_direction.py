"""Which way is better for a benchmark of asv, which by itself takes every rise for a regression.

A benchmark's direction is its function's attribute `direction`, which asv copies into benchmarks.json. It is
heeded by asv's commands (`harness.integrations.asv_commands`) and by the published pages (`asv_pages`).
"""

from __future__ import annotations

__all__ = [
    "KNOWN_SOURCES",
    "Direction",
    "UnknownAsvError",
    "check_sources",
    "direction_of",
    "directions_of",
    "warn_of_unknown_directions",
]

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import asv
from asv.console import log
from asv.util import UserError

from harness.errors import ConfigError
from harness.history.direction import DIRECTIONS, Direction, direction_of

KNOWN_SOURCES: Mapping[str, str] = {
    "commands/compare.py": "cafef5b88be795907cb2bb16533befc6a356563a0a9e57f13543de50b8a8ccca",
    "commands/continuous.py": "17073e61d2207519c2b350503c45d1c8f3cafb9df300a8b258589e50b76f2380",
    "commands/find.py": "0b93db0e80fc517c0331801ed63219c7d3df95457f5d213abda13d495d579994",
    "plugins/regressions.py": "53f0bb150ca3bef8104eb593d782f1f7bc454b20049a59669c286ac7bde44a84",
    "step_detect.py": "1a657ca6f4a826bc0919950949676b5a17b8a703ef6476808045ccbf6b0323ff",
    "www/asv.js": "f68b8120e25bf46610c04a3d111f08eab6e1bd5c0603a65ea97ccfcb350e3a0a",
    "www/graphdisplay.js": "07e5125f5f5c1d527bb12cf137a1d3d2b54a1b4b57d87f31e9ee5d5560ca43d1",
    "www/regressions.js": "03e94118b303b2052f3308699083a08dfdf6faa497b5009ba55d74c1077b2deb",
    "www/summarylist.css": "4a3c108b64b239269071770f8977e268e3441b1f404d790b315b629f79052aff",
    "www/summarylist.js": "afa9b5613b9201e23bb8054fcc69f0780e859b96000bef053e3acb6309696cd8",
}
"""Files of asv 0.6.6 whose work is changed or reckoned with, by path in its package; SHA-256."""


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


def check_sources(folder: Path, names: Iterable[str]) -> None:
    """Raise UnknownAsvError unless the files below a folder are those of asv 0.6.6.

    `names` are keys of KNOWN_SOURCES; a name's "www/" is left out below a published folder.
    """
    for name in names:
        path = folder / name
        path = path if path.is_file() else folder / name.removeprefix("www/")
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if found != KNOWN_SOURCES[name]:
            raise UnknownAsvError(
                f"{path} is {'not there' if found is None else 'not that of asv 0.6.6'} (asv here is "
                f"{asv.__version__}). The plugin teaches asv which way is better by changing what that file "
                "does; with another one it could show a regression as an improvement. To get the known one: "
                "pip install --force-reinstall asv==0.6.6"
            )
