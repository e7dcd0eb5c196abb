"""The parts of the plugin's session that the fixture and its modules use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from harness.integrations.pytest.session import CaseRunner
    from harness.records.types import Verdict
    from harness.run.pair_session import CompareObserver


class SharedSession(Protocol):
    NO_XDIST: str
    config: pytest.Config
    reported: set[tuple[str, str]]
    notes: dict[str, str]
    clocks: dict[str, list[str]]
    has_tests: bool

    @property
    def in_worker(self) -> bool: ...
    @property
    def measures(self) -> bool: ...
    @property
    def progress(self) -> CompareObserver: ...
    @property
    def runner(self) -> CaseRunner: ...
    def option(self, name: str) -> Any: ...
    def fails(self, verdict: Verdict) -> bool: ...
