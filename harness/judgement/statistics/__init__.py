"""Estimates and tests, as pure functions of numbers.

Only `summary` is re-exported here, because it needs no NumPy. Import `paired`, `moderated` and `rates` by
name.
"""

from __future__ import annotations

__all__ = ["CONFIDENCE", "Summary", "summarize"]

from harness.judgement.statistics.summary import CONFIDENCE, Summary, summarize
