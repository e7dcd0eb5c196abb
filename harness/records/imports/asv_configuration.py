"""asv's configuration files: where asv looks for them, and how asv reads them.

The rules are those of asv's config.py, for code that must work without asv.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.errors import ConfigError, GitError
from harness.system import git
from harness.system.files import read_regular

NAMES = ("asv.conf.json", "asv.conf.jsonc")
"""The names that asv looks for in its working folder."""
_API_VERSION = 1
_DEFAULTS = {
    "project": "project",
    "branches": [None],
    "results_dir": "results",
    "html_dir": "html",
    "show_commit_url": "#",
    "regressions_thresholds": {},
    "regressions_first_commits": {},
}
"""asv's defaults of the settings that the harness reads."""
_TEXT = r'("(?:[^"\\]|\\.)*")'
_COMMENT = re.compile(_TEXT + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(_TEXT + r"|,(?=\s*[}\]])", re.DOTALL)


def confs_in(folder: Path) -> list[Path]:
    """Return the files in a folder with a name of asv's configuration."""
    return [folder / name for name in NAMES if (folder / name).exists()]


def conf_in(folder: Path) -> Path | None:
    """Return the configuration that asv reads when it starts in a folder; None if it finds none.

    Raises ConfigError if the folder has several: asv refuses to choose.
    """
    found = confs_in(folder)
    if len(found) > 1:
        raise ConfigError(
            f"{folder} has {' and '.join(NAMES)}: asv reads neither, as either may be meant. Delete one, or "
            f"name the other with --config, such as --config {found[0].name}."
        )
    return found[0] if found else None


def confs_below(folder: Path) -> list[Path]:
    """Return every asv configuration below a folder that git does not ignore.

    Returns none outside of a git repository.
    """
    patterns = [f":(glob)**/{name}" for name in NAMES]
    listed = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    try:
        names = git.ask(folder, *listed).split(b"\0")
    except GitError:
        return []
    files = sorted({folder / os.fsdecode(name) for name in names if name})
    return [file for file in files if file.is_file()]


def read_plainly(file: Path) -> SimpleNamespace:
    """Read a configuration without asv. The attributes are those of asv's Config.

    The text is JSON with comments and trailing commas. Raises ValueError for anything else, OSError if the
    file cannot be read.
    """
    text = _COMMENT.sub(lambda found: found[1] or " ", read_regular(file).decode("utf-8-sig"))
    try:
        settings = json.loads(_LAST_COMMA.sub(lambda found: found[1] or "", text))
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    if not isinstance(settings, dict):
        raise ValueError("it holds no JSON object")  # noqa: TRY004 - the file is wrong, not a caller
    if settings.get("version") != _API_VERSION:
        raise ValueError(f"its version is {settings.get('version')!r}; expected {_API_VERSION}")
    found: dict[str, Any] = {**_DEFAULTS, **settings}
    for needed in ("repo", "branches"):
        if not found.get(needed):
            raise ValueError(f"it names no {needed}")
    return SimpleNamespace(**found)
