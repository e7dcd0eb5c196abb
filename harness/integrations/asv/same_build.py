"""Finds asv values from the same build, by the records beside asv's results. asv does not know it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.history.changes import TIMED
from harness.records.record_files import read_run
from harness.records.types import Row
from harness.suite.case_id import parse_asv_name, size_label


class Builds:
    """The rows of asv's records on one machine, by asv's names. Each commit is read once."""

    def __init__(self, folder: Path, benchmarks: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder, self._benchmarks = folder, benchmarks
        self._rows = functools.cache(self._read)

    def row(self, name: str, commit: str) -> Row | None:
        """Return the row of a track at a commit: ``suites.Toy.track_time_ms('plain', 64)``.

        None for a track that is not a time, for another project's benchmark, and without a record.
        """
        found = parse_asv_name(name)
        if found is None or found.track not in TIMED:
            return None
        return self._rows(commit).get((suite_of(name, self._benchmarks), found.kernel, found.size))

    def _read(self, commit: str) -> Mapping[tuple[str, str, str], Row]:
        """Return the newest row of each suite, kernel and size at a commit."""
        found: dict[tuple[str, str, str], Row] = {}
        for file in sorted(self._folder.glob(f"*-{commit[:8]}-*.jsonl*")):  # their names begin with the time
            with contextlib.suppress(HarnessError):
                stored = read_run(file)
                if stored.run.command == "asv" and stored.run.source.commit == commit:
                    suite = stored.run.source.suite
                    found |= {(suite, row.kernel, size_label(row.sizes)): row for row in stored.rows}
        return found


def suite_of(name: str, benchmarks: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the suite of a track by asv's list; the class's name if the list does not say."""
    found = parse_asv_name(name)
    told = benchmarks.get(name.partition("(")[0], {}).get("suite")
    return str(told or (found.group.lower() if found else ""))
