"""Where a review leads to."""

from __future__ import annotations

__all__ = ["Links"]

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Addresses, from who renders a review and never from the review itself; empty where there is none."""

    run: str = ""
    """Of the workflow run that measured."""
    history: str = ""
    """Of the published pages."""
    repository: str = ""
    """Of the repository's own page: commits and files are below it."""
