"""The default limits of verdicts, and a comparison's test of itself.

It imports nothing heavy, because the job that holds a token reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.records.types import TWIN_PLANTED, TWIN_SAME

USUAL_LIMITS: Mapping[str, tuple[float, float]] = {
    "gpu": (0.0025, 0.01),
    "cpu": (0.02, 0.1),
    "other": (0.0025, 0.01),
}
"""Margin and tolerance by kind of device, unless others are given."""
JUDGED = ("regression", "improvement", "unchanged", "inconclusive")
"""Statuses of cases that were judged by their measurements."""


def wrong_twin(case: str, status: str, *, complete: bool) -> str:
    """Return the code of the reason why a twin's verdict makes the comparison untrustworthy; empty if it does
    not.

    `complete` is false if the twin's measurement was ended early.
    """
    if case == TWIN_SAME and status in ("regression", "improvement"):
        return "twin-flagged"
    if case == TWIN_PLANTED and complete and status not in ("regression", "invalid", "failed"):
        return "twin-missed"
    return ""
