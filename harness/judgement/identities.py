"""Decides about benchmarks of other harnesses without looking at times: by machine, skip or failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.errors import Side
from harness.records.imports.identity import Identity, machine_difference
from harness.records.types import Verdict
from harness.suite.planning import Refusal

SKIPS_ITSELF = "skips-itself"


def other_machine(base: Sequence[Identity], head: Sequence[Identity]) -> Refusal | None:
    """Refuse to compare times whose machine, card or build differs; None if all are alike."""
    found = machine_difference(base, head)
    if not found:
        return None
    return Refusal(
        "other-machine",
        f"{found}. Measure both commits on one machine, in one environment, in turns.",
    )


def without_time(bare: Verdict, why: str, side: Side, *, skipped: bool) -> Verdict:
    """Return the verdict of a benchmark that one side does not time, with the benchmark's own reason."""
    if skipped and side == "base":
        return replace(bare, status="new", reason=SKIPS_ITSELF, message=f"Base skips it: {why}")
    reason = SKIPS_ITSELF if skipped else "not-measured"
    return replace(bare, status="failed", reason=reason, message=why, side=side)
