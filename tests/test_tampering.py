"""What a suite may change of what judges it, each seen by itself."""

from __future__ import annotations

import builtins

import pytest

from harness.bench import measure, verify
from harness.bench.buffers import Buffers
from harness.spec.tampering import TamperCheck, TamperedError


@pytest.mark.parametrize(
    ("owner", "name", "value", "place"),
    [
        (verify, "compare", lambda *_: None, "harness.bench.verify.compare"),
        (Buffers, "begin", lambda *_: None, "harness.bench.buffers.Buffers.begin"),
        (builtins, "all", lambda _: True, "builtins.all"),
        (verify.compare, "__code__", (lambda *_: None).__code__, "harness.bench.verify.compare"),
        (measure.measure, "__defaults__", (0,), "harness.bench.measure.measure"),
        (measure.enqueue_slot, "__kwdefaults__", {"held": True}, "harness.bench.measure.enqueue_slot"),
    ],
    ids=["function", "method", "builtin", "code", "default", "default by keyword"],
)
def test_what_is_replaced_is_named(monkeypatch, owner, name, value, place):
    check = TamperCheck()
    check.check()
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(TamperedError) as caught:
        check.check()
    monkeypatch.undo()
    assert str(caught.value).startswith(f"{place} is no longer")
    check.check()


def test_what_no_figure_rests_on_may_change(monkeypatch):
    """What a package prints by, and what a module notes down."""
    check = TamperCheck()
    monkeypatch.setattr(builtins, "print", lambda *_: None)
    monkeypatch.setattr(measure, "ENQUEUE_NS", 1)
    check.check()


def test_a_default_that_is_changed_in_place_is_another(monkeypatch):
    check = TamperCheck()
    monkeypatch.setitem(measure.enqueue_slot.__kwdefaults__, "held", True)
    with pytest.raises(TamperedError, match=r"measure\.enqueue_slot"):
        check.check()


def test_a_function_of_an_open_device_is_not_its_own(monkeypatch):
    class Device:
        def timed(self):
            return 1

    device = Device()
    check = TamperCheck(device)
    check.check()
    monkeypatch.setattr(device, "timed", lambda: 0)
    with pytest.raises(TamperedError, match=r"Device\.timed"):
        check.check()
