"""Reports measurements in pytest-benchmark's extra_info, in tables, and in test failures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import harness
from harness.history.row_summary import summary_of
from harness.integrations.pytest.function_timing import TimedFunction
from harness.integrations.pytest.session import CaseSide, GpuCase, MeasuredCase
from harness.judgement.statistics.paired import readable
from harness.numbers import number
from harness.records.imports.pytest_benchmark_files import TESTS
from harness.records.record_files import ComparisonResult
from harness.records.types import DeviceInfo, Source, Verdict, fields_of
from harness.report.table import Column, Sheet
from harness.report.terminal.comparison_tables import calibrated, closing, lines_of, of_executables
from harness.report.words.of_verdict import intervals_of, outputs_counted, verdict_columns, word_of_outputs
from harness.suite.problem import Case, Problem
from harness.system.texts import harmless, plain_log

Info = dict[str, Any]

_ARM = {"base": "A", "head": "B"}


def info_of_row(measured: MeasuredCase) -> Info:
    """Return the extra_info of a case measured without a comparison. None marks values that the card did not
    report.
    """
    row, run = measured.row, measured.run
    summary = summary_of(row, run)
    return {
        **_info(measured.case.case, run.headline, run.source, run.device),
        **fields_of(summary, "rate", "gflops", "gbytes_per_s"),
        "clock": row.measurement and row.measurement.clock,
        "l2": row.measurement and row.measurement.l2,
        **fields_of(summary, "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w"),
        "source_sha256": row.source_sha256,
        "verified": row.is_verified,
        "outputs": row.outputs and word_of_outputs(row.outputs),
    }


def info_of_arm(case: GpuCase, side: CaseSide, verdict: Verdict, result: ComparisonResult) -> Info:
    """Return the extra_info of one side of a comparison, with the verdict if this side reports it."""
    described = result.comparison
    blocks = [each.block for each in result.blocks if each.case == verdict.case]
    arm = verdict.head if side == "head" else verdict.base
    loaded, source = (case.pair.head, described.head) if side == "head" else (case.pair.base, described.base)
    headline = loaded.suite.headline
    time_ns, outputs = arm.time_ns if arm else None, verdict.outputs
    snapshots = (snapshot for block in blocks if block.telemetry for snapshot in block.telemetry.during)
    memory_clocks = [each.memory_clock_mhz for each in snapshots if each.memory_clock_mhz is not None]
    work = _work(loaded.suite.problem, case.case)
    gflops, gbytes = (amount / time_ns if amount and time_ns else None for amount in work)
    return {
        **_info(case.case, headline, source, described.device),
        "side": side,
        "rate": gflops if headline == "GFLOP/s" else gbytes,
        "gflops": gflops,
        "gbytes_per_s": gbytes,
        "clock": blocks[0].clock if blocks else None,
        "l2": blocks[0].l2 if blocks else None,
        "sm_clock_mhz": arm and arm.sm_clock_mhz,
        "memory_clock_mhz": median(memory_clocks) if memory_clocks else None,
        **fields_of(verdict, "temperature_c", "power_w"),
        "source_sha256": arm and arm.source_sha256,
        "verified": time_ns is not None and (outputs is None or outputs.held_to == "reference"),
        "outputs": outputs and word_of_outputs(outputs),
        **({"verdict": _verdict_info(verdict)} if side == case.judged else {}),
    }


def info_of_function(timed: TimedFunction) -> Info:
    """Return the extra_info of a timed function. The device is None if it is unknown."""
    return {
        "clock": timed.clock.name,
        "l2": timed.clock.l2,
        "device": timed.clock.device or None,
        "launches": timed.launches,
        "harness_version": harness.__version__,
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
    """Return FLOP and bytes of one launch; None if the suite's own functions raise anything."""
    try:
        return problem.flop(case), problem.moved_bytes(case)
    except Exception:  # noqa: BLE001
        return None, None


def times_of(result: ComparisonResult, case: str, side: CaseSide) -> tuple[float, ...]:
    """Return the times in seconds of every counted slot of one side of a case, in the order measured."""
    return tuple(
        time_ns / 1e9
        for each in result.blocks
        if each.case == case
        for quad in each.block.quads
        if readable(quad.times_ns)
        for arm, time_ns in zip(quad.order, quad.times_ns, strict=True)
        if arm == _ARM[side]
    )


def sentence(word: str, message: str, log: str = "") -> str:
    """Return ``regression: 3.02 % slower (+2.95 to +3.09 %) in 2 processes.`` with the log below."""
    return "\n".join([f"{word}: {message}", *(f"    {line}" for line in plain_log(log).splitlines())])


def card_of(device: DeviceInfo) -> dict[str, str | None]:
    """Return the device's description for a saved file."""
    return fields_of(device, "name", "vendor", "kind", "arch", "uuid", "driver")


def other_card(saved: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return why times of `saved` and `own` cannot be compared, or "" if they can."""
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
    """Return a table for each suite of cases measured without a comparison, without columns that
    do not fit.
    """
    lines: list[str] = []
    for name in dict.fromkeys(each.case.case.suite for each in measured):
        rows = [each for each in measured if each.case.case.suite == name and each.row.measurement]
        if rows:
            lines += [_title(name, rows[0].run.device), *_row_table(rows, width), ""]
    return lines


def _row_table(rows: Sequence[MeasuredCase], width: int) -> list[str]:
    found = [summary_of(each.row, each.run) for each in rows]
    columns = [
        Column("kernel", [each.row.kernel for each in rows], text=True),
        Column("size", [each.case.case.size_label for each in rows]),
        Column("ms", [number(s.time_ms) for s in found]),
        Column(rows[0].run.headline, [number(s.rate) for s in found]),
        Column("SM MHz", [number(s.sm_clock_mhz) for s in found], spare=2),
        Column("°C", [number(s.temperature_c, 2) for s in found], spare=3),
        Column("W", [number(s.power_w, 3) for s in found], spare=4),
    ]
    return Sheet(columns=columns).lines(width)


def comparison_lines(result: ComparisonResult, names: Mapping[str, str], width: int) -> list[str]:
    """Return the table of a comparison, and a sentence for every verdict that needs action.

    Cases without a name are left out.
    """
    verdicts = [verdict for verdict in result.verdicts if verdict.case in names]
    device = result.comparison.device
    lines = []
    of_tests = result.comparison.head.suite == TESTS
    if verdicts:
        kernels = [names[verdict.case] if of_tests else verdict.kernel for verdict in verdicts]
        columns = verdict_columns("test" if of_tests else "kernel", kernels, verdicts, sizes=not of_tests)
        lines = [_title(result.comparison.head.suite, device), *Sheet(columns=columns).lines(width)]
    texts = [
        intervals_of(result.comparison, verdicts),
        of_executables(result.comparison) or calibrated(result.calibration, device, verdicts),
        outputs_counted(verdicts),
        *(line.plain for line in lines_of(verdicts, names=names, logs=False)),
        *(f"Problem changed: {change}" for change in result.problem_changes),
        *(f"Left out: {left_out}" for left_out in result.left_out),
        f"harness: {result.problem}" if result.problem else "",
        closing(verdicts, sum(verdict.gpu_s for verdict in verdicts)),
        "Interrupted: verdicts use finished measurements only." if result.interrupted else "",
    ]
    lines += [line for text in texts for part in text.splitlines() for line in _wrapped(part, width)]
    return [*lines, *([f"Record: {result.path}"] if result.path else []), ""]


def _title(suite: str, device: DeviceInfo) -> str:
    return f"{suite} on {harmless(device.name)} ({device.spec})"


def _wrapped(text: str, width: int) -> list[str]:
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(harmless(text), width, subsequent_indent=indent or "    ", break_on_hyphens=False)
