"""Files of hyperfine, written with --export-json: wall-clock times of commands, in seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.records.imports import imported
from harness.records.imports.quantities import file_of_figures, quantity_of, with_values


class _Result(msgspec.Struct):
    command: str
    times: list[float] = []
    exit_codes: list[int | None] = []
    parameters: dict[str, str] = {}

    @property
    def label(self) -> str:
        """Return the command with its parameters, which a name from --command-name does not include."""
        return f"{self.command}[{','.join(f'{key}={value}' for key, value in self.parameters.items())}]"


class _Export(msgspec.Struct):
    results: list[_Result]


def is_export(content: Any) -> bool:
    """Return True for a list of results, each with a command."""
    results = content.get("results") if isinstance(content, dict) else None
    return isinstance(results, list) and all(isinstance(each, dict) and "command" in each for each in results)


def read_hyperfine(path: Path, content: Any) -> imported.ImportedFile:
    """Read a file. Raises StoreError for another format, and without results."""
    results = imported.converted(path, content, _Export, "hyperfine").results
    often = Counter(each.command for each in results)
    cases = [_case(each, each.command if often[each.command] == 1 else each.label) for each in results]
    return file_of_figures(path, "hyperfine", "hyperfine", cases, [])


def _case(result: _Result, name: str) -> imported.ImportedCase:
    case = imported.ImportedCase(
        kernel=imported.identifier(name), sizes={}, name=name, launches=1, clock="hyperfine's wall clock"
    )
    if failed := [code for code in result.exit_codes if code != 0]:
        why = f"The command ended with exit status {failed[0]} in {len(failed)} of its runs."
        return replace(case, failed=why)
    return with_values(case, result.times, quantity_of("s", "lower"))
