"""Facts from builds, without a card, as tables and as JSON: builds, static facts, lower time bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import quantiles
from typing import Any

from harness.device.static.architecture_builds import Build
from harness.device.static.sass import Instructions, arithmetic, by_width
from harness.device.static.static_facts import StaticFacts
from harness.numbers import number
from harness.report.table import Cell, Column, Sheet
from harness.report.words.of_verdict import source_label
from harness.run.bounded_cases import BoundedCase
from harness.run.builds.build_only import BuildResult
from harness.suite.case_id import CaseId

_USAGE = ("registers", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "shared_bytes")
_MEMORY = ("LDG", "LDGSTS", "STG", "LDL", "STL", "LDS", "LDSM", "STS")


def build_table(result: BuildResult) -> Sheet:
    """Return a line for each kernel and architecture: built or not, and ptxas' resources."""
    rows = result.builds
    used = [row.usage for row in rows]
    return Sheet(
        title=_title(result),
        columns=[
            *_names([(row, row.cases) for row in rows]),
            Column("regs", [str(use.registers) if use else "" for use in used]),
            Column("spills B", [number(use.spill_store_bytes) if use else "" for use in used]),
            Column("shared B", [number(use.shared_bytes) if use else "" for use in used]),
            Column("result", [Cell(row.reason or row.status, row.status) for row in rows], text=True),
        ],
    )


def builds_json(results: Iterable[BuildResult]) -> list[dict[str, Any]]:
    return [
        {
            "suite": result.loaded.source.suite,
            "source": result.loaded.source,
            "compiler": result.compiler,
            "rows": [asdict(row) for row in result.builds],
        }
        for result in results
    ]


def _title(result: BuildResult) -> str:
    source = result.loaded.source
    return f"{source.suite} at {source_label(source)}, built with {result.compiler or 'no compiler'}"


def _names(rows: Sequence[tuple[Build, Sequence[str]]]) -> list[Column]:
    """Return columns of kernel and architecture, and of size if a kernel has several programs."""
    builds = [build for build, _ in rows]
    archs = [
        row.arch if row.built_for in ("", row.arch) else f"{row.built_for} for {row.arch}" for row in builds
    ]
    programs = [(row.kernel, row.arch) for row in builds]
    sizes = [
        ", ".join(CaseId.parse(case).short.partition("@")[2] for case in cases)
        if programs.count(key) > 1
        else ""
        for key, (_, cases) in zip(programs, rows, strict=True)
    ]
    return [
        Column("kernel", [row.kernel for row in builds], text=True, heads=True, whole=True),
        Column("size", sizes, text=True),
        Column("arch", archs, text=True, whole=True),
    ]


def facts_tables(result: BuildResult, facts: Sequence[StaticFacts]) -> Iterator[Sheet]:
    """Yield tables with a line for each kernel and architecture: its resources, then its hottest loop's
    instructions.
    """
    rows = [each.build for each in facts]
    used, codes = [row.usage for row in rows], [row.code for row in rows]
    held = [each.residency for each in facts]
    results = [Cell(row.reason if row.status != "built" else "", row.status) for row in rows]
    yield Sheet(
        title=_title(result),
        columns=[
            *_names([(each.build, each.cases) for each in facts]),
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
            Column("result", results, text=True),
        ],
    )
    if any(code and code.instructions for code in codes):
        yield _mix(facts)
    for card in dict.fromkeys(card for each in facts for card in (*each.waves, *each.bounds)):
        yield _on_card(card, facts)


def _on_card(card: str, facts: Sequence[StaticFacts]) -> Sheet:
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
            Column("waves", [number(each.waves, 3) if each else "" for each in held]),
            Column(
                "last %", [f"{100 * each.last_wave:.0f}" if each and each.blocks else "" for each in held]
            ),
            Column("≥ ms", [number(each.time_ns / 1e6) if each else "" for each in bounds], over="bound"),
            Column("by", [each.by if each else "" for each in bounds], text=True, over="bound"),
        ],
    )


def _shared(facts: StaticFacts) -> str:
    if facts.build.usage is None:
        return ""
    return number(facts.build.usage.shared_bytes + (facts.dynamic_shared_bytes or 0))


def _mix(facts: Sequence[StaticFacts]) -> Sheet:
    found = [(each, each.build.code.instructions) for each in facts if each.build.code]
    told, every = [each for each, code in found if code], [code for _, code in found if code]
    loops = [each.hottest.kinds if each.hottest else {} for each in every]
    work = [_work(kinds) for kinds in loops]
    return Sheet(
        title="Instructions, and of them in the hottest loop; loads and stores by bits",
        columns=[
            *_names([(each.build, each.cases) for each in told]),
            Column("all", [number(each.count) for each in every]),
            Column("loop", [number(each.hottest.count) if each.hottest else "" for each in every]),
            Column("arithmetic", work, text=True, whole=True),
            Column("memory", list(map(_memory, loops)), text=True),
            Column("branches", [number(kinds.get("branch", 0)) for kinds in loops], spare=6),
        ],
    )


def _work(kinds: Mapping[str, int]) -> str:
    """Return the most frequent arithmetic, such as ``512 FFMA``."""
    kind, count = max(
        ((kind, count) for kind, count in kinds.items() if arithmetic({kind: 1})),
        key=lambda item: item[1],
        default=("", 0),
    )
    return f"{number(count)} {kind}" if count else ""


def _memory(kinds: Mapping[str, int]) -> str:
    """Return memory instructions, device memory first: ``2 LDG.128, 16 LDS.64``."""
    return ", ".join(
        f"{count} {operation}.{bits}"
        for operation in _MEMORY
        for bits, count in by_width(kinds, operation).items()
    )


def facts_json(result: BuildResult, facts: Sequence[StaticFacts]) -> list[dict[str, Any]]:
    """Return an object for each kernel and architecture, and for each of a kernel's variants."""
    source = result.loaded.source
    return [
        {"suite": source.suite, "commit": source.commit, "dirty": source.dirty, "compiler": result.compiler}
        | static_fields(each)
        for each in facts
    ]


def static_fields(facts: StaticFacts) -> dict[str, Any]:
    build, used, code, held = facts.build, facts.build.usage, facts.build.code, facts.residency
    return {
        "kernel": build.kernel,
        "arch": build.arch,
        "built_for": build.built_for or None,
        "status": build.status,
        "reason": build.reason,
        "message": build.message or facts.problem,
        "cases": facts.cases,
        **{name: used and getattr(used, name) for name in _USAGE},
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
        "instructions": _without_text(code.instructions) if code and code.instructions else None,
        "instructions_problem": code.problem if code else "",
        "warnings": build.warnings,
    }


def _without_text(instructions: Instructions) -> dict[str, Any]:
    """Return counts alone: the text of a loop is in the difference of two."""
    found = asdict(instructions)
    if found["hottest"]:
        del found["hottest"]["written"]
    return found


def bounds_tables(held: Sequence[BoundedCase]) -> Iterator[Sheet]:
    """Yield a table of each card's cases, the farthest from its bound first, and a summary of the
    distances.
    """
    for card in dict.fromkeys(each.card for each in held):
        of_card = sorted((each for each in held if each.card == card), key=lambda each: each.reached)
        reached = [
            Cell(f"{100 * each.reached:.1f}", "failed" if each.reached > 1 else "") for each in of_card
        ]
        yield Sheet(
            title=f"Measured on {card}, beside the shortest time by arithmetic",
            columns=[
                Column("case", [CaseId.parse(each.case).short for each in of_card], text=True, heads=True),
                Column("ms", [number(each.time_ns / 1e6) for each in of_card]),
                Column("≥ ms", [number(each.bound_ns / 1e6) for each in of_card], over="bound"),
                Column("by", [each.by for each in of_card], text=True, over="bound"),
                Column("reached %", reached),
            ],
        )
        yield _distribution(card, of_card)


def _distribution(card: str, held: Sequence[BoundedCase]) -> Sheet:
    groups: dict[str, list[float]] = {}
    for each in held:
        groups.setdefault(each.by, []).append(100 * each.reached)
    if len(groups) > 1:
        groups["all"] = [100 * each.reached for each in held]
    # Already sorted.
    cuts = [
        (each[0], *(quantiles(each, n=4, method="inclusive") if len(each) > 1 else 3 * each), each[-1])
        for each in groups.values()
    ]
    names = ("least", "lower quarter", "median", "upper quarter", "most")
    return Sheet(
        title=f"Share of the bound that was reached on {card}, in %",
        columns=[
            Column("bound by", [*groups], text=True, heads=True),
            Column("cases", [str(len(each)) for each in groups.values()]),
            *(Column(name, [f"{values[at]:.1f}" for values in cuts]) for at, name in enumerate(names)),
        ],
    )
