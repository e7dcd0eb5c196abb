"""Static facts as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.numbers import number
from harness.output.builds import arch_label, size_columns
from harness.output.sentences import commit_label
from harness.output.sheet import Cell, Column, Sheet
from harness.run.build_only import BuildResult
from harness.spec.case_id import CaseId
from harness.static.facts import Facts
from harness.static.sass import Instructions, arithmetic, by_width

_MEMORY = ("LDG", "LDGSTS", "STG", "LDL", "STL", "LDS", "LDSM", "STS")


def facts_tables(result: BuildResult, facts: Sequence[Facts]) -> Iterator[Sheet]:
    """A line a kernel and architecture: what it needs; then what its hottest loop is made of."""
    source = result.loaded.source
    commit = commit_label(source.commit, dirty=source.dirty)
    rows = [each.build for each in facts]
    used, codes = [row.usage for row in rows], [row.code for row in rows]
    held = [each.residency for each in facts]
    yield Sheet(
        title=f"{source.suite} at {commit}, built with {result.compiler or 'no compiler'}",
        columns=[
            *_names(facts),
            Column("regs", [str(use.registers) if use else "" for use in used]),
            Column("stack B", [number(use.stack_bytes) if use else "" for use in used], spare=3),
            Column("spills B", [number(use.spill_store_bytes) if use else "" for use in used]),
            Column("shared B", [_shared(each) for each in facts], spare=1),
            Column("const B", [number(code.constant_bytes) if code else "" for code in codes], spare=6),
            Column("code B", [number(code.bytes) if code else "" for code in codes], spare=4),
            Column(
                "bars",
                [str(use.barriers) if use and use.barriers is not None else "" for use in used],
                spare=7,
            ),
            Column("blocks", [str(each.blocks) if each else "" for each in held], over="an SM", spare=5),
            Column("occ. %", [f"{100 * each.occupancy:.3g}" if each else "" for each in held]),
            Column("limit", [each.limit if each else "" for each in held], text=True, spare=2),
            Column(
                "SASS", [code.sha256[:8] if code else "" for code in codes], text=True, whole=True, spare=8
            ),
            Column("result", [_result(each) for each in facts], text=True),
        ],
    )
    if any(code and code.instructions for code in codes):
        yield _mix(facts)
    for card in dict.fromkeys(card for each in facts for card in (*each.waves, *each.bounds)):
        yield _on_card(card, facts)


def _on_card(card: str, facts: Sequence[Facts]) -> Sheet:
    rows = [
        (each, case)
        for each in facts
        for case in each.cases
        if case in each.waves.get(card, ()) or case in each.bounds.get(card, ())
    ]
    held = [each.waves.get(card, {}).get(case) for each, case in rows]
    bounds = [each.bounds.get(card, {}).get(case) for each, case in rows]
    return Sheet(
        title=f"On {card}, by arithmetic: no card was asked, and no kernel is this fast",
        columns=[
            Column("case", [CaseId.parse(case).short.partition(".")[2] for _, case in rows], text=True),
            Column("arch", [each.build.arch for each, _ in rows], text=True, spare=1),
            Column("waves", [f"{each.waves:.3g}" if each else "" for each in held]),
            Column(
                "last %", [f"{100 * each.last_wave:.0f}" if each and each.blocks else "" for each in held]
            ),
            Column("≥ ms", [number(each.time_ns / 1e6) if each else "" for each in bounds], over="bound"),
            Column("by", [each.by if each else "" for each in bounds], text=True, over="bound"),
        ],
    )


def _names(facts: Sequence[Facts]) -> list[Column]:
    rows = [each.build for each in facts]
    return [
        Column("kernel", [row.kernel for row in rows], text=True, heads=True, whole=True),
        *size_columns([(each.build, each.cases) for each in facts]),
        Column("arch", list(map(arch_label, rows)), text=True, whole=True),
    ]


def _result(facts: Facts) -> Cell:
    return Cell(facts.build.reason if facts.build.status != "built" else "", facts.build.status)


def _shared(facts: Facts) -> str:
    if facts.build.usage is None:
        return ""
    return number(facts.build.usage.shared_bytes + (facts.dynamic_shared_bytes or 0))


def _mix(facts: Sequence[Facts]) -> Sheet:
    told = [each for each in facts if each.build.code and each.build.code.instructions]
    every = [_instructions(each) for each in told]
    loops = [each.hottest.kinds if each.hottest else {} for each in every]
    work = [_work(kinds) for kinds in loops]
    return Sheet(
        title="Instructions, and of them in the hottest loop; loads and stores by bits",
        columns=[
            *_names(told),
            Column("all", [number(each.count) for each in every]),
            Column("loop", [number(each.hottest.count) if each.hottest else "" for each in every]),
            Column("arithmetic", work, text=True, whole=True),
            Column("memory", list(map(_memory, loops)), text=True),
            Column("branches", [number(kinds.get("branch", 0)) for kinds in loops], spare=6),
        ],
    )


def _instructions(facts: Facts) -> Instructions:
    assert facts.build.code is not None
    assert facts.build.code.instructions is not None
    return facts.build.code.instructions


def _work(kinds: Mapping[str, int]) -> str:
    """``512 FFMA``: the arithmetic that there is most of."""
    kind, count = max(
        ((kind, count) for kind, count in kinds.items() if arithmetic({kind: 1})),
        key=lambda item: item[1],
        default=("", 0),
    )
    return f"{number(count)} {kind}" if count else ""


def _memory(kinds: Mapping[str, int]) -> str:
    """``2 LDG.128, 16 LDS.64``, device memory first."""
    return ", ".join(
        f"{count} {operation}.{bits}"
        for operation in _MEMORY
        for bits, count in by_width(kinds, operation).items()
    )


def as_json(result: BuildResult, facts: Sequence[Facts]) -> list[dict[str, Any]]:
    """One object a kernel and architecture; of a kernel that is built in several ways one for each."""
    source = result.loaded.source
    return [
        {"suite": source.suite, "commit": source.commit, "dirty": source.dirty, "compiler": result.compiler}
        | fields_of(each)
        for each in facts
    ]


def fields_of(facts: Facts) -> dict[str, Any]:
    build, used, code, held = facts.build, facts.build.usage, facts.build.code, facts.residency
    return {
        "kernel": build.kernel,
        "arch": build.arch,
        "built_for": build.built_for or None,
        "status": build.status,
        "reason": build.reason,
        "message": build.message or facts.problem,
        "cases": facts.cases,
        "registers": used and used.registers,
        "stack_bytes": used and used.stack_bytes,
        "spill_store_bytes": used and used.spill_store_bytes,
        "spill_load_bytes": used and used.spill_load_bytes,
        "shared_bytes": used and used.shared_bytes,
        "dynamic_shared_bytes": facts.dynamic_shared_bytes,
        "constant_bytes": code and code.constant_bytes,
        "barriers": used and used.barriers,
        "code_bytes": code and code.bytes,
        "sass_sha256": code and code.sha256,
        "block": facts.block,
        "blocks_per_sm": held and held.blocks,
        "occupancy": held and held.occupancy,
        "occupancy_limit": held and held.limit,
        "waves": {
            card: {case: {"waves": each.waves, "last_wave": each.last_wave} for case, each in cases.items()}
            for card, cases in facts.waves.items()
        },
        "bounds": facts.bounds,
        "instructions": code and code.instructions and asdict(code.instructions),
        "instructions_problem": code.problem if code else "",
        "warnings": build.warnings,
    }
