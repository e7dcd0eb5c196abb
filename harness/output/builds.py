"""What was built without a card, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from harness.numbers import number
from harness.output.sentences import commit_label
from harness.output.sheet import Cell, Column, Sheet
from harness.run.build_only import BuildResult
from harness.spec.case_id import CaseId
from harness.static.builds import Build


def build_table(result: BuildResult) -> Sheet:
    """A line a kernel and architecture: built or not, and what ptxas says of it."""
    rows, source = result.builds, result.loaded.source
    used = [row.usage for row in rows]
    commit = commit_label(source.commit, dirty=source.dirty)
    return Sheet(
        title=f"{source.suite} at {commit}, built with {result.compiler or 'no compiler'}",
        columns=[
            Column("kernel", [row.kernel for row in rows], text=True, heads=True, whole=True),
            *size_columns([(row, row.cases) for row in rows]),
            Column("arch", list(map(arch_label, rows)), text=True, whole=True),
            Column("regs", [str(use.registers) if use else "" for use in used]),
            Column("spills B", [number(use.spill_store_bytes) if use else "" for use in used]),
            Column("shared B", [number(use.shared_bytes) if use else "" for use in used]),
            Column("result", [Cell(row.reason or row.status, row.status) for row in rows], text=True),
        ],
    )


def arch_label(row: Build) -> str:
    other = row.built_for and row.built_for != row.arch
    return f"{row.built_for} for {row.arch}" if other else row.arch


def size_columns(rows: Sequence[tuple[Build, Sequence[str]]]) -> list[Column]:
    """Of kernels that are another program at another size, which; no column where there is none. Each row is
    a build, and those of its cases that it is about.
    """
    programs = [(row.kernel, row.arch) for row, _ in rows]
    if len(set(programs)) == len(programs):
        return []
    labels = [
        ", ".join(CaseId.parse(case).short.partition("@")[2] for case in cases)
        if programs.count(key) > 1
        else ""
        for key, (_, cases) in zip(programs, rows, strict=True)
    ]
    return [Column("size", labels, text=True)]


def as_json(results: Iterable[BuildResult]) -> list[dict[str, Any]]:
    return [
        {
            "suite": result.loaded.source.suite,
            "source": result.loaded.source,
            "compiler": result.compiler,
            "rows": [asdict(row) for row in result.builds],
        }
        for result in results
    ]
