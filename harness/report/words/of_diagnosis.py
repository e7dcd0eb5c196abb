"""The tables of a diagnosis, the same in every report: of counters, and of machine code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from harness.device.counters import STALL
from harness.numbers import duration, number, percent_figure
from harness.records.types import Diagnosis, LaunchedKernel, LoopDifference, Risk
from harness.report.table import Cell, Column, Sheet

_OF_PEAK = "% of peak"
_COUNTERS: Mapping[str, tuple[str, str]] = {
    "cycles": ("cycles", "cycles"),
    **{
        f"{STALL}{reason}": (f"waited: {words}", "")
        for reason, words in {
            "long_scoreboard": "device memory (long scoreboard)",
            "lg_throttle": "queue of global accesses (LG throttle)",
            "tex_throttle": "queue of texture accesses (TEX throttle)",
            "drain": "stores to finish (drain)",
            "membar": "memory barrier (membar)",
            "short_scoreboard": "shared memory (short scoreboard)",
            "mio_throttle": "queue of shared accesses (MIO throttle)",
            "barrier": "other warps (barrier)",
            "math_pipe_throttle": "busy pipe (math pipe throttle)",
            "gmma": "tensor cores (GMMA)",
            "wait": "results of fixed latency (wait)",
            "selected": "none, they issued (selected)",
            "not_selected": "their turn (not selected)",
            "dispatch_stall": "dispatch (dispatch stall)",
            "no_instruction": "instructions (no instruction)",
            "branch_resolving": "branches (branch resolving)",
            "imc_miss": "constants (IMC miss)",
            "sleeping": "sleep (sleeping)",
            "misc": "other reasons (misc)",
        }.items()
    },
    "warps": ("warps on a multiprocessor", ""),
    "instructions": ("instructions", "of warps"),
    "issue_busy": ("issue slots busy", _OF_PEAK),
    "dram_read_bytes": ("read from DRAM", "bytes"),
    "dram_written_bytes": ("written to DRAM", "bytes"),
    "dram_busy": ("DRAM busy", _OF_PEAK),
    "l2_sectors": ("L2 accesses", "sectors"),
    "l2_hit_rate": ("L2 hits", "%"),
    "l2_busy": ("L2 busy", _OF_PEAK),
    "l1_hit_rate": ("L1 hits", "%"),
    "l1_tag_busy": ("L1 tags busy", _OF_PEAK),
    "l1_data_busy": ("L1 data busy", _OF_PEAK),
    "load_requests": ("global loads", "requests"),
    "load_sectors": ("global loads", "sectors"),
    "store_requests": ("global stores", "requests"),
    "store_sectors": ("global stores", "sectors"),
    "load_bytes": ("loaded by threads", "bytes"),
    "store_bytes": ("stored by threads", "bytes"),
    "async_requests": ("copies to shared memory", "requests"),
    "async_sectors": ("copies to shared memory", "sectors"),
    "async_bytes": ("copied to shared memory by threads", "bytes"),
    "local_load_requests": ("local loads", "requests"),
    "local_store_requests": ("local stores", "requests"),
    "atomic_requests": ("atomics", "requests"),
    "reduction_requests": ("reductions", "requests"),
    "shared_wavefronts": ("shared-memory accesses", "wavefronts"),
    "shared_conflicts": ("bank conflicts", "wavefronts"),
    "alu_busy": ("integer pipe busy", _OF_PEAK),
    "fma_busy": ("FMA pipe busy", _OF_PEAK),
    "adu_instructions": ("barriers and the like (ADU)", "instructions"),
    "xu_instructions": ("special functions and conversions", "instructions"),
    "fp64_instructions": ("float64", "instructions"),
    "fp64_busy": ("float64 pipe busy", _OF_PEAK),
    "xu_busy": ("special-function pipe busy", _OF_PEAK),
    "tensor_instructions": ("tensor cores", "instructions"),
    "tensor_hfma2": ("HFMA2 on tensor cores", "instructions"),
    "tensor_busy": ("tensor cores busy", _OF_PEAK),
}
"""Counters by the names in harness.device.counters: in words, and the unit.

A reason for which warps waited is a part of the cycles: all reasons add up to the cycles of the launch. Their
unit is in the heading, so that rows fit into 80 columns.
"""
_SIGNS = {"added": "+", "removed": "-", "readdressed": "~", "alike": ""}
LOOP_RULE = "The hottest loop has the most arithmetic; each depth of nesting counts 8 times."


def loop_places(loop: LoopDifference) -> str:
    """``file.cu:9-11 → 12-14``: the source lines of the loop at base and at head."""
    file = f"{loop.base_place.partition(':')[0]}:"
    after = "" if loop.base_place == loop.head_place else loop.head_place.removeprefix(file)
    return " → ".join(filter(None, (loop.base_place, after)))


def loop_sheet(loop: LoopDifference) -> Sheet:
    """The instructions of the hottest loop that one side alone has, with their source lines."""
    files = tuple(f"{place.partition(':')[0]}:" for place in (loop.base_place, loop.head_place))
    places = [
        each.place.partition(":")[2] if each.place.startswith(files) else each.place for each in loop.lines
    ]
    return Sheet(
        title=f"Hottest loop: {loop.base_count:,} → {loop.head_count:,} instructions",
        caption=_counts(loop),
        columns=[
            Column("", [_SIGNS[each.change] for each in loop.lines], text=True),
            Column("n", [f"{each.count:,}" for each in loop.lines]),
            Column("line", [Cell(place, "code" if place else "") for place in places], text=True, whole=True),
            Column(
                "instruction",
                [Cell(each.text, "code") if each.text else "alike" for each in loop.lines],
                text=True,
            ),
        ],
        cut=True,
    )


def risk_text(risk: Risk) -> str:
    return f"{risk.message} ({risk.place})" if risk.place else risk.message


def launched_text(kernel: LaunchedKernel, mark: Callable[[str], str]) -> str:
    """``The kernel scale_kernel: 12.30 µs → 25.10 µs.``"""
    base, head = (duration(each) for each in (kernel.base_ns, kernel.head_ns))
    times = f"{base} → {head}" if kernel.base_ns else f"{head}, and base does not launch it"
    return f"The kernel {mark(plain_name(kernel.symbol))}: {times}."


def plain_name(symbol: str) -> str:
    """Return ``gemm`` for ``_ZN2ns4gemmILi1EEvv`` and ``void ns::gemm<1>()``."""
    name, rest = "", re.sub(r"^_ZN?K?", "", symbol) if symbol.startswith("_Z") else ""
    while length := re.match(r"\d+", rest):
        begin = length.end()
        name, rest = rest[begin : begin + int(length[0])], rest[begin + int(length[0]) :]
    return (
        name or re.split(r"[<(]", symbol.removeprefix("void "), maxsplit=1)[0].rpartition("::")[2] or symbol
    )


def counter_sheet(diagnosis: Diagnosis) -> Sheet | None:
    """The counters of both sides that are not 0; None where there are none."""
    base, head = (_of_launch(side) for side in (diagnosis.base_counters, diagnosis.head_counters))
    names = [name for name in _COUNTERS if name in base and name in head and (base[name] or head[name])]
    if not names:
        return None
    return Sheet(
        title="Hardware counters of a launch",
        columns=[
            Column("counter (waits in cycles)", [_label(name) for name in names], text=True, heads=True),
            Column("base", [_figure(base[name]) for name in names]),
            Column("head", [_figure(head[name]) for name in names]),
            Column("change %", [_change(_COUNTERS[name][1], base[name], head[name]) for name in names]),
        ],
    )


def _label(name: str) -> str:
    """``L2 hits, %``: a counter in words, with its unit."""
    return ", ".join(filter(None, dict.fromkeys(_COUNTERS[name])))


def _of_launch(counters: Mapping[str, float]) -> dict[str, float]:
    """Return the counters, with waits of warps and shares of peak rates as parts of the launch's cycles.

    The card counts shares over the cycles of a range, which begins before the launch and ends after it.
    """
    cycles, all_warps = counters.get("cycles", 0.0), counters.get("warp_cycles", 0.0)
    in_range = counters.get("elapsed_cycles", cycles)

    def of_launch(name: str, value: float) -> float:
        if name.startswith(STALL) and all_warps:
            return value * cycles / all_warps
        if _COUNTERS.get(name, ("", ""))[1] == _OF_PEAK and cycles:
            return min(100.0, value * in_range / cycles)
        return value

    return {name: of_launch(name, value) for name, value in counters.items()}


def _figure(value: float) -> str:
    """``61.3``, ``937 k``, ``1.50 M``: three digits, so that a telephone has room for both sides."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{number(value / scale, 3)} {prefix}"
    return number(value, 3)


def _change(unit: str, base: float, head: float) -> str:
    """Return the change in percent; of a share in points; empty for none."""
    if base == head:
        return ""
    if unit.startswith("%"):
        return f"{percent_figure((head - base) / 100, sign=True)} points"
    return percent_figure(head / base - 1, sign=True) if base else "new"


def _counts(loop: LoopDifference) -> str:
    counts = {
        "added": loop.added,
        "removed": loop.removed,
        "moved": loop.moved,
        "with other addresses or constants": loop.readdressed,
    }
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    shown = sum(each.count for each in loop.lines if each.change in ("added", "removed"))
    left = loop.added + loop.removed - shown
    return f"{told[0].upper()}{told[1:]}{f'; {left:,} not shown' if left else ''}."
