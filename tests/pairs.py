"""Two commits of a suite in workers of this process, as a comparison has them in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.measure import protocol
from harness.measure.protocol import SideFacts, SideName
from harness.measure.worker import Worker
from harness.suite.suite import Suite
from harness.suite.suite_data import Loading


class Channel:
    """The way back of a worker that nobody listens to; questions go to the suites' own processes."""

    def __init__(self, loadings: Mapping[str, Loading] = {}) -> None:
        self.loadings = loadings

    def send(self, reply: Any) -> None: ...

    def ask(self, side: str, request: Any) -> Any:
        return self.loadings[side].answer(request)


class Untampered:
    """A check of nothing. To note all that pytest's process has imported takes longer than a measurement."""

    def __init__(self, *instances: object) -> None: ...

    def check(self) -> None: ...


def opened_worker(request: protocol.Open, channel: Channel | None = None) -> Worker:
    """A worker in this process, which does not look whether its suite changes the harness."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.measure.worker.TamperCheck", Untampered)
        return Worker(request, channel or Channel())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Built:
    base: SideFacts
    head: SideFacts

    @property
    def identical(self) -> bool:
        return not self.base.identities().isdisjoint(self.head.identities())


class Pair:
    """The suites of two folders."""

    def __init__(self, base: Path, head: Path, scratch: Path, device: str, **given: Any) -> None:
        self.folders, self.scratch, self.device, self.given = (base, head), scratch, device, given
        scratch.mkdir(exist_ok=True)
        self.loadings = {"base": Loading(base), "head": Loading(head)}
        self.suites: dict[str, Suite] = {side: each.suite() for side, each in self.loadings.items()}

    def worker(self, own: SideName | None = None) -> Worker:
        """A worker that has loaded the suite of one side, or none."""
        told = {side: each.data for side, each in self.loadings.items() if side != own}
        base, head = map(str, self.folders)
        named = {"device": self.device, "scratch": str(self.scratch), **self.given}
        request = protocol.Open(suite=head, base=base, told=told, **named)  # type: ignore[arg-type]
        return opened_worker(request, Channel(self.loadings))

    def of(self, kernel: str, **sizes: int) -> protocol.PairOf:
        base, head = (protocol.PairSide(suite=name, kernel=kernel) for name in ("base", "head"))
        return protocol.PairOf(id="one", sizes=sizes, base=base, head=head)

    def built(self, pair: protocol.PairOf) -> Built:
        """Build both sides, each in the worker that would measure it."""
        backend = self.device.partition(":")[0]
        on_host = self.suites["head"].by_name[pair.head.kernel].runs_on_host(backend)
        found: dict[SideName, SideFacts] = {}
        for side in ("base", "head"):
            worker = self.worker(side if on_host else None)
            found |= worker.pairs.inspect(protocol.Inspect(pairs=(pair,), side=side))[pair.id]
        return Built(**found)
