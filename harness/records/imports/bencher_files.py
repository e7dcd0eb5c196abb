"""Files of Bencher's metric format: a value for each measure of each benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.records.imports import imported
from harness.records.imports.quantities import Better, case_of, file_of_figures

_MEASURES: Mapping[str, tuple[str, Better]] = {"latency": ("ns", "lower"), "throughput": ("op/s", "higher")}
"""Unit and direction of Bencher's built-in measures. The file has neither for a project's own measures."""


_LONGEST = 80
"""Characters of a name in a message."""


class _Metric(msgspec.Struct):
    value: float
    lower_value: float | None = None
    upper_value: float | None = None

    @property
    def has_bounds(self) -> bool:
        return self.lower_value is not None or self.upper_value is not None


def is_metrics(content: Any) -> bool:
    """Return True for values by measure, by benchmark."""
    return (
        isinstance(content, dict)
        and bool(content)
        and all(
            isinstance(metric, dict) and "value" in metric
            for measures in content.values()
            for metric in (measures.values() if isinstance(measures, dict) else [None])
        )
    )


def read_bencher(path: Path, content: Any) -> imported.ImportedFile:
    """Read a file. Raises StoreError for another format, and if no benchmark has a latency or throughput."""
    given = imported.converted(path, content, dict[str, dict[str, _Metric]], "Bencher")
    found, problems = list[imported.ImportedCase](), list[str]()
    for name, measures in given.items():
        for measure, metric in measures.items():
            if measure in _MEASURES:
                unit, better = _MEASURES[measure]
                found.append(case_of(name, metric.value, unit, better, "bencher"))
            else:
                problems.append(
                    f"{name[:_LONGEST]}: measure {measure[:_LONGEST]} is left out, as the file does not tell "
                    f"its unit. Known are {' and '.join(_MEASURES)}."
                )
    if any(metric.has_bounds for measures in given.values() for metric in measures.values()):
        problems.append(
            f"{path}: lower_value and upper_value are left out, as the file does not tell which interval "
            "they are. Each value counts as one sample."
        )
    return file_of_figures(path, "bencher", "Bencher metric format", found, problems)
