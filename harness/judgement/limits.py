"""The usual limits of verdicts, and a comparison's test of itself.

It imports nothing heavy: the job that holds a token reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.records.types import TWIN_PLANTED, TWIN_SAME

USUAL_LIMITS: Mapping[str, tuple[float, float]] = {
    "gpu": (0.0025, 0.01),
    "cpu": (0.02, 0.1),
    "other": (0.0025, 0.01),
}
"""Margin and tolerance by kind of device, unless something else is asked for."""
JUDGED = ("regression", "improvement", "unchanged", "inconclusive")
"""Statuses of cases that were judged by what was measured."""


def wrong_twin(case: str, status: str, *, complete: bool) -> str:
    """Return why a twin's verdict makes the comparison untrustworthy, as a code; empty where it does not.

    `complete` is false for a twin whose measurement was ended early.
    """
    if case == TWIN_SAME and status in ("regression", "improvement"):
        return "twin-flagged"
    if case == TWIN_PLANTED and complete and status not in ("regression", "invalid", "failed"):
        return "twin-missed"
    return ""
