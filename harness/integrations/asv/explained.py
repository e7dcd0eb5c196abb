"""What asv takes for a regression although the card did it: clocks, heat, power, or the very same binary.

asv knows figures alone. The harness's own search of the same results knows the clocks beside them, and asv's
regressions that it explains are left out of regressions.json and the feed; our pages show them.
"""

from __future__ import annotations

__all__ = ["Explained"]

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from asv.console import log

from harness.errors import HarnessError
from harness.history.changes import TIMED
from harness.history.reading import History, read_history
from harness.spec.case_id import parse_asv_name, short_id

_NEAR = 2
"""Commits by which two searches of the same noisy series may differ."""


class Explained:
    """The environment changes of a history, read when first asked for."""

    def __init__(self, conf: Any, benchmarks: Mapping[str, Mapping[str, Any]]) -> None:
        self.conf, self.benchmarks = conf, benchmarks
        self.left_out = 0

    def without(self, machine: str, name: str, jumps: Sequence[Any], hashes: Mapping[int, str]) -> list[Any]:
        """Those of asv's jumps (revision before, revision after, ...) that the card does not explain."""
        spans = self._spans.get((machine, self._case(name)), ())
        if not spans or self._history is None:
            return list(jumps)
        positions = self._history.commits.positions
        at = [positions.get(hashes[jump[1]], -1) for jump in jumps]
        left = [
            jump
            for jump, position in zip(jumps, at, strict=True)
            if not any(first <= position <= last for first, last in spans)
        ]
        self.left_out += not left
        return left

    def tell(self) -> None:
        if self.left_out:
            log.info(
                f"{self.left_out} regression(s) left out: the card's clocks moved and its cycles did not, "
                "or the binary was the same. 'harness history --all' lists them."
            )

    @cached_property
    def _history(self) -> History | None:
        branches = [branch for branch in self.conf.branches or [] if branch]
        try:
            return read_history(
                Path(self.conf.results_dir), Path.cwd(), revision=branches[0] if branches else "HEAD"
            )
        except HarnessError as error:
            log.warning(f"asv's regressions are taken as they are: {error.message}")
            return None

    @cached_property
    def _spans(self) -> Mapping[tuple[str, str], Sequence[tuple[int, int]]]:
        spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for card in self._history.cards if self._history else ():
            for each in card.changes:
                if each.change.kind == "environment":
                    span = (each.change.good + 1 - _NEAR, each.change.bad + _NEAR)
                    spans[card.card.folder, each.change.case].append(span)
        return spans

    def _case(self, name: str) -> str:
        """``matmul.naive@1024`` of ``suites.Matmul.track_time_ms('naive', 1024)``; empty for other tracks."""
        told = parse_asv_name(name)
        if told is None or told.track not in TIMED:
            return ""
        suite = self.benchmarks.get(name.partition("(")[0], {}).get("suite") or told.group.lower()
        return short_id(suite, told.kernel, told.size)
