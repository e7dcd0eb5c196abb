"""Estimates and tests, pure functions of numbers.

Only `summary` is offered here: it needs no NumPy. `paired`, `moderated` and `rates` are imported by name.
"""

from __future__ import annotations

__all__ = ["CONFIDENCE", "Summary", "summarize"]

from harness.judgement.statistics.summary import CONFIDENCE, Summary, summarize
