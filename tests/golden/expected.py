"""Expected outputs: a folder of files for each case, compared as texts, and written anew on request."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

EXPECTED = Path(__file__).parent / "expected"
RENEWED = "GOLDEN_RENEWED"
"""Variable under which expected outputs are written and not compared."""
COMMAND = ".venv/bin/python -m tests.golden"
_MOST_LINES = 200
"""Lines of a difference that a failed test shows."""


def hold(case: str, outputs: Mapping[str, str]) -> None:
    """Fail with a unified diff unless these files, by name, are those of the case's folder and no others."""
    folder = EXPECTED / case
    if os.environ.get(RENEWED):
        _write(folder, outputs)
        return
    expected = _read(folder)
    lines = [
        line
        for name in sorted({*expected, *outputs})
        for line in _difference(f"{case}/{name}", expected.get(name), outputs.get(name))
    ]
    if lines:
        left_out = f"\n... and {len(lines) - _MOST_LINES} lines more" if len(lines) > _MOST_LINES else ""
        shown = "\n".join(lines[:_MOST_LINES])
        pytest.fail(
            f"The output of case {case!r} differs from tests/golden/expected/{case}:\n{shown}{left_out}\n"
            f"If you meant this change, renew the files with '{COMMAND}', read 'git diff', and commit them.",
            pytrace=False,
        )


def _read(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes().decode() for path in files}


def _write(folder: Path, outputs: Mapping[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in outputs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _difference(name: str, expected: str | None, found: str | None) -> list[str]:
    """Lines of a unified diff of a file, which one of the two sides may lack."""
    if expected == found:
        return []
    before, after = (
        f"{side}: {'no such file' if content is None else name}"
        for side, content in (("expected", expected), ("found", found))
    )
    old, new = (expected or "").split("\n"), (found or "").split("\n")
    lines = difflib.unified_diff(old, new, before, after, lineterm="")
    return list(lines) or [f"--- {before}", f"+++ {after} (empty)"]
