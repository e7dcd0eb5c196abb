"""What is told of measurements: in pytest-benchmark's extra_info, in tables, and why a test fails."""

from __future__ import annotations

__all__ = [
    "card_of",
    "comparison_lines",
    "info_of_arm",
    "info_of_row",
    "other_card",
    "row_lines",
    "sentence",
    "times_of",
]

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import harness
from harness.integrations.pytest.bench import MeasuredCase
from harness.integrations.pytest.cases import CaseSide, GpuCase
from harness.output.summary import summary_of
from harness.records import Arm, DeviceInfo, PairedBlock, Snapshot, Source, Verdict
from harness.run.compare import ComparisonResult
from harness.spec.suite import Case, Problem
from harness.system.texts import harmless

Info = dict[str, Any]

_ARM = {"base": "A", "head": "B"}


def info_of_row(measured: MeasuredCase) -> Info:
    """What pytest-benchmark keeps of a case measured by itself. None is what the card could not tell."""
    row, run = measured.row, measured.run
    summary = summary_of(row, run)
    return {
        **_info(measured.case.case, run.headline, run.source, run.device),
        "rate": summary.rate,
        "gflops": summary.gflops,
        "gbytes_per_s": summary.gbytes_per_s,
        "clock": row.measurement and row.measurement.clock,
        "l2": row.measurement and row.measurement.l2,
        "sm_clock_mhz": summary.sm_clock_mhz,
        "memory_clock_mhz": summary.memory_clock_mhz,
        "temperature_c": summary.temperature_c,
        "power_w": summary.power_w,
        "source_sha256": row.source_sha256,
        "verified": bool(row.verification and row.verification.passed),
    }


def info_of_arm(case: GpuCase, side: CaseSide, verdict: Verdict, result: ComparisonResult) -> Info:
    """The same of one side of a comparison; the side that brings the verdict has that as well."""
    described, blocks = result.comparison, result.kept.get(verdict.case, ())
    arm = verdict.head if side == "head" else verdict.base
    loaded, source = (case.pair.head, described.head) if side == "head" else (case.pair.base, described.base)
    headline = loaded.suite.headline
    time_ns = arm.time_ns if arm else None
    flop, moved = _work(loaded.suite.problem, case.case)
    gflops, gbytes = (amount / time_ns if amount and time_ns else None for amount in (flop, moved))
    return {
        **_info(case.case, headline, source, described.device),
        "side": side,
        "rate": gflops if headline == "GFLOP/s" else gbytes,
        "gflops": gflops,
        "gbytes_per_s": gbytes,
        "clock": blocks[0].clock if blocks else None,
        "l2": blocks[0].l2 if blocks else None,
        "sm_clock_mhz": arm and arm.sm_clock_mhz,
        "memory_clock_mhz": _seen(blocks, lambda snapshot: snapshot.memory_clock_mhz),
        "temperature_c": verdict.temperature_c,
        "power_w": verdict.power_w,
        "source_sha256": arm and arm.source_sha256,
        "verified": time_ns is not None,  # the engine times nothing else
        **({"verdict": _verdict_info(verdict)} if side == case.judged else {}),
    }


def _info(case: Case, headline: str, source: Source, device: DeviceInfo) -> Info:
    return {
        "case": case.id,
        "dtype": case.dtype,
        "unit": headline,
        "direction": "higher",
        "device": device.name,
        "uuid": device.uuid,
        "driver": device.driver,
        "commit": source.commit,
        "dirty": source.dirty,
        "harness_version": harness.__version__,
    }


def _verdict_info(verdict: Verdict) -> Info:
    time = verdict.time
    return {
        "status": verdict.status,
        "reason": verdict.reason,
        "effect": time and time.effect,
        "interval": time and [time.low, time.high],
        "smallest_visible": verdict.smallest_visible,
        "attribution": verdict.attribution,
    }


def _work(problem: Problem, case: Case) -> tuple[int | None, int | None]:
    """FLOP and bytes of one launch; None where the suite's own functions fail, which may raise anything."""
    try:
        return problem.flop(case), problem.moved_bytes(case)
    except Exception:  # noqa: BLE001
        return None, None


def _seen(blocks: Sequence[PairedBlock], read: Callable[[Snapshot], float | None]) -> float | None:
    seen = [read(snapshot) for block in blocks if block.telemetry for snapshot in block.telemetry.during]
    values = [value for value in seen if value is not None]
    return median(values) if values else None


def times_of(result: ComparisonResult, case: str, side: CaseSide) -> tuple[float, ...]:
    """Seconds of every slot that counts of one side of a case, in the order measured."""
    return tuple(
        time_ns / 1e9
        for block in result.kept.get(case, ())
        for quad in block.quads
        for arm, time_ns in zip(quad.order, quad.times_ns, strict=True)
        if arm == _ARM[side]
    )


def sentence(word: str, message: str, log: str = "") -> str:
    """``regression: 3.02 % slower (+2.95 to +3.09 %) in 2 processes.``, with what there is to show below."""
    return "\n".join([f"{word}: {message}", *(f"    {line}" for line in log.splitlines())])


def card_of(device: DeviceInfo) -> dict[str, str | None]:
    """What a saved file says of the device that its benchmarks ran on."""
    return {name: getattr(device, name) for name in ("name", "vendor", "kind", "arch", "uuid", "driver")}


def other_card(saved: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Why times of `saved` say nothing about those of `own`, both as `card_of` tells them; empty where they
    may be compared.
    """
    if any(saved.get(name) != own.get(name) for name in ("name", "uuid", "arch")):
        return f"It was measured on {_card(saved)}, and this is {_card(own)}."
    if saved.get("driver") != own.get("driver"):
        drivers = [harmless(str(card.get("driver"))) for card in (saved, own)]
        return f"It was measured with driver {drivers[0]}, and this is driver {drivers[1]}."
    return ""


def _card(card: Mapping[str, Any]) -> str:
    name = harmless(str(card.get("name") or "a device without a name"))
    return f"{name} ({harmless(str(card['uuid']))})" if card.get("uuid") else name


def row_lines(measured: Sequence[MeasuredCase], width: int) -> list[str]:
    """A table a suite of what was measured by itself: what fits least is left out where it is narrow."""
    lines: list[str] = []
    for name in dict.fromkeys(each.case.case.suite for each in measured):
        rows = [each for each in measured if each.case.case.suite == name and each.row.measurement]
        if rows:
            lines += [_title(name, rows[0].run.device), *_row_table(rows, width), ""]
    return lines


def _row_table(rows: Sequence[MeasuredCase], width: int) -> list[str]:
    summaries = [summary_of(each.row, each.run) for each in rows]
    columns = {
        "kernel": [each.row.kernel for each in rows],
        "size": [each.case.case.size_label for each in rows],
        "ms": [_number(s.time_ms, 4) for s in summaries],
        rows[0].run.headline: [_number(s.rate, 4) for s in summaries],
        "SM MHz": [_number(s.sm_clock_mhz, 4) for s in summaries],
        "°C": [_number(s.temperature_c, 2) for s in summaries],
        "W": [_number(s.power_w, 3) for s in summaries],
    }
    return _table(columns, width, ("W", "°C", "SM MHz"))


def comparison_lines(result: ComparisonResult, cases: Mapping[str, GpuCase], width: int) -> list[str]:
    """The table of a comparison, and a sentence for every verdict that somebody has to act on."""
    verdicts = [verdict for verdict in result.verdicts if verdict.case in cases]
    found = [(cases[verdict.case], verdict) for verdict in verdicts]
    title = _title(result.comparison.head.suite, result.comparison.device)
    lines = [title, *_verdict_table(found, result, width)] if found else []
    if result.calibration is None and any(verdict.time for verdict in verdicts):
        lines.append("Not calibrated: how processes differ here is assumed.")
    for case, verdict in found:
        if verdict.status not in ("identical", "unchanged"):
            cause = f", {verdict.attribution}" if verdict.attribution else ""
            told = f"{verdict.status} {case.label} ({verdict.reason}{cause}): {verdict.message}"
            lines += _wrapped(told, width)
    for told in result.problem_changes:
        lines += _wrapped(f"Problem changed: {told}", width)
    for told in result.left_out:
        lines += _wrapped(f"Left out: {told}", width)
    if result.problem:
        lines += _wrapped(f"harness: {result.problem}", width)
    lines += _wrapped(_closing(verdicts), width)
    if result.interrupted:
        lines.append("Interrupted: verdicts rest on what was finished.")
    return [*lines, *([f"Record: {result.path}"] if result.path else []), ""]


def _verdict_table(
    found: Sequence[tuple[GpuCase, Verdict]], result: ComparisonResult, width: int
) -> list[str]:
    infos = [info_of_arm(case, "head", verdict, result) for case, verdict in found]
    headline = found[0][0].pair.head.suite.headline
    times = [verdict.time for _, verdict in found]
    columns: dict[str, Sequence[str]] = {
        "kernel": [verdict.kernel for _, verdict in found],
        "size": [case.case.size_label for case, _ in found],
        "base ms": [_ms(verdict.base) for _, verdict in found],
        "head ms": [_ms(verdict.head) for _, verdict in found],
        "change %": [f"{100 * time.effect:+.2f}" if time else "" for time in times],
        "±": [f"{50 * (time.high - time.low):.2f}" if time else "" for time in times],
        headline: [_number(info["rate"], 4) for info in infos],
        "SM MHz": [_number(info["sm_clock_mhz"], 4) for info in infos],
        "°C": [_number(info["temperature_c"], 2) for info in infos],
        "W": [_number(info["power_w"], 3) for info in infos],
        "verdict": [verdict.status for _, verdict in found],
    }
    return _table(columns, width, ("W", "°C", "SM MHz", "base ms", headline))


def _closing(verdicts: Sequence[Verdict]) -> str:
    """``1 regression, 3 unchanged. 12.3 s of device time.``"""
    counts = Counter(verdict.status for verdict in verdicts)
    told = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no case was compared"
    return f"{told}. {sum(verdict.gpu_s for verdict in verdicts):.1f} s of device time."


def _title(suite: str, device: DeviceInfo) -> str:
    return f"{suite} on {harmless(device.name)} ({device.spec})"


def _table(columns: Mapping[str, Sequence[str]], width: int, dispensable: Iterable[str]) -> list[str]:
    """Columns beside one another, those that say nothing left out, and of the dispensable as many as must."""
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    for name in dispensable:
        if sum(_width(head, cells) + 2 for head, cells in shown.items()) - 2 <= width:
            break
        shown.pop(name, None)
    rows = zip(*([name, *cells] for name, cells in shown.items()), strict=True)
    widths = [_width(name, cells) for name, cells in shown.items()]
    left = [name in ("kernel", "verdict") for name in shown]
    return [
        "  ".join(
            cell.ljust(wide) if first else cell.rjust(wide)
            for cell, wide, first in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in rows
    ]


def _width(name: str, cells: Sequence[str]) -> int:
    return max(len(name), *map(len, cells))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(harmless(text), width, subsequent_indent="    ", break_on_hyphens=False)


def _ms(arm: Arm | None) -> str:
    return _number(arm.time_ns / 1e6, 4) if arm and arm.time_ns is not None else ""


def _number(value: float | None, digits: int) -> str:
    """A number with this many significant digits, thousands apart; empty for None."""
    whole = len(str(int(abs(value or 0))))
    return "" if value is None else f"{value:,.{max(0, digits - whole)}f}"
