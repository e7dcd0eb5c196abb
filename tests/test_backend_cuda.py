"""The CUDA backend where no card is: in what order it asks the driver for what."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device.backends import cuda
from harness.device.backends.cuda import CudaDevice


@pytest.fixture
def told(monkeypatch):
    """A device that enqueues nothing, and what it would have."""
    told: list[str] = []
    monkeypatch.setattr(cuda, "_forget_persisting", lambda stream: told.append("forget"))
    device: Any = object.__new__(CudaDevice)
    device.info = SimpleNamespace(l2_bytes=1, compute_units=1)
    device.stream = SimpleNamespace(handle=0, synchronize=lambda: told.append("wait"))
    device._idle, device._held, device._flush = True, 0, ("flush", 0, 0, 1)
    device.__dict__ |= {"_gate": ("hold", [0], 0), "_helpers_occupy": "occupy"}
    device._enqueue = lambda function, launch, arguments: told.append(function)
    return device, told


@pytest.mark.parametrize("how", ["hold", "occupy"])
def test_what_waits_for_the_card_comes_before_what_keeps_it(monkeypatch, told, how):
    """Else the host would wait for a card that waits for the host."""
    monkeypatch.setattr(cuda, "_translated", lambda what: nullcontext())
    device, said = told
    for _ in range(2):
        device.hold() if how == "hold" else device.occupy(1)
        device.flush_l2()
        device.flush_l2()
        device.synchronize()
    assert said == ["forget", how, "flush", "flush", "wait"] * 2
