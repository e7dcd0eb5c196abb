"""What single launches tell of a kernel, where the host is slow to enqueue them."""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace

import numpy as np
import pytest

from harness import Axis, Case, Input, Kernel, Output, Problem
from harness.bench import verifier
from harness.bench.buffers import Buffers
from harness.bench.verifier import Rotation, SkippedWorkError
from harness.device.backends.null import NullDevice, devices

KERNEL_NS, ENQUEUEING_NS = 10_000, 150_000


class Copy(Problem):
    n = Axis((64,))
    x = Input("n")
    y = Output("n")


class SlowlyEnqueued(NullDevice):
    """A launch that begins on an idle device has the host's time in its own.

    `keeps` makes one longer on new data, `skips` makes one shorter that finds its output in place.
    """

    def __init__(self, *, keeps=False, skips=False):
        super().__init__(dataclasses.replace(devices()[0], kind="gpu"), {})
        self.now_ns = self.busy_until_ns = 0
        self.keeps, self.skips, self.seen = keeps, skips, set()

    def perf_counter_ns(self):
        return self.now_ns

    def occupy(self, duration_ns):
        self.busy_until_ns = self.now_ns + duration_ns

    def timed(self, _built, _launch, arguments, _launches):
        self.now_ns += ENQUEUEING_NS
        time_ns = KERNEL_NS if self.busy_until_ns > self.now_ns else ENQUEUEING_NS
        if self.skips and (arguments[1] == 1).all():
            time_ns -= KERNEL_NS * 9 // 10
        arguments[1][:] = 1
        if self.keeps and (data := arguments[0].tobytes()) not in self.seen:
            self.seen.add(data)
            time_ns += 500_000
        return lambda: time_ns


class Unchecked(Rotation):
    def _compare(self, *_, **__):
        """Right: this is about times."""


def rotation(device, monkeypatch):
    monkeypatch.setattr(verifier, "time", device)
    rng = np.random.default_rng(1)
    buffers = Buffers(device, Copy(), case := Case("toy", "copy", {"n": 64}))
    checker = SimpleNamespace(suite=SimpleNamespace(problem=Copy()), inputs=lambda *_: Copy().data(case, rng))
    made = Unchecked(checker, buffers, case, 1, random.Random(1))  # type: ignore[arg-type]
    made._keep()
    subject = SimpleNamespace(
        built=None, launch=None, arguments=buffers.arguments(Kernel("copy", "copy.cu", block=1, grid=1))
    )
    return made, subject


@pytest.mark.parametrize("check", ["_check_unseen", "_check_work"])
def test_a_slow_host_is_not_taken_for_a_kernel_that_keeps_what_it_has_computed(monkeypatch, check):
    made, subject = rotation(SlowlyEnqueued(), monkeypatch)
    getattr(made, check)(subject)


def test_a_kernel_that_keeps_what_it_has_computed_is_found_on_a_slow_host(monkeypatch):
    made, subject = rotation(SlowlyEnqueued(keeps=True), monkeypatch)
    with pytest.raises(SkippedWorkError, match="the kernel keeps what it has computed"):
        made._check_unseen(subject)


def test_a_kernel_that_leaves_out_work_is_found_on_a_slow_host(monkeypatch):
    made, subject = rotation(SlowlyEnqueued(skips=True), monkeypatch)
    with pytest.raises(SkippedWorkError, match="leaves out work that it finds done"):
        made._check_work(subject)
