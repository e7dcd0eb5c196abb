"""Changes that a suite makes to its judge, each detected by itself."""

from __future__ import annotations

import builtins
import sys

import pytest
from numpy._core import numeric

from harness.device import frameworks
from harness.measure import injection, timing, verifier, verify
from harness.measure.buffers import Buffers
from harness.suite import tampering
from harness.suite.tampering import TamperCheck, TamperedError
from harness.system import file_access


@pytest.mark.parametrize(
    ("owner", "name", "value", "place"),
    [
        (verify, "compare", lambda *_: None, "harness.measure.verify.compare"),
        (Buffers, "begin", lambda *_: None, "harness.measure.buffers.Buffers.begin"),
        (builtins, "all", lambda _: True, "builtins.all"),
        (verifier, "SKIPS", 1e12, "harness.measure.verifier.SKIPS"),
        (numeric, "multiarray", None, "numpy._core.numeric.multiarray"),
        (verify.compare, "__code__", (lambda *_: None).__code__, "harness.measure.verify.compare"),
        (timing.measure, "__defaults__", (0,), "harness.measure.timing.measure"),
        (timing.enqueue_slot, "__kwdefaults__", {"held": True}, "harness.measure.timing.enqueue_slot"),
    ],
    ids=["function", "method", "builtin", "constant", "inner module", "code", "default", "by keyword"],
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
    """The function that prints and the notes of a module may change."""
    check = TamperCheck()
    monkeypatch.setattr(builtins, "print", lambda *_: None)
    monkeypatch.setattr(file_access, "_opened", file_access._opened)
    file_access._opened.add("/somewhere")
    monkeypatch.setitem(frameworks._FRAMEWORKS, "other", frameworks.Torch)
    check.check()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (
            lambda patch: patch.setattr(verify, "abs", lambda _: 0, raising=False),
            "harness.measure.verify.abs",
        ),
        (lambda patch: patch.setattr(Buffers, "__bool__", lambda _: True, raising=False), "Buffers.__bool__"),
    ],
    ids=["a name that hides a builtin", "a method"],
)
def test_what_is_added_is_named(monkeypatch, change, place):
    check = TamperCheck()
    change(monkeypatch)
    with pytest.raises(TamperedError) as caught:
        check.check()
    assert f"{place} is no longer" in str(caught.value)


@pytest.mark.parametrize(
    ("container", "name", "place"),
    [
        (injection._DIALECTS, "cuda", "harness.measure.injection._DIALECTS"),
        (sys.modules, "harness.measure.verify", "harness.measure.verify"),
    ],
    ids=["a table", "the modules"],
)
def test_an_entry_that_is_replaced_is_named(monkeypatch, container, name, place):
    check = TamperCheck()
    monkeypatch.setitem(container, name, None)
    with pytest.raises(TamperedError) as caught:
        check.check()
    assert str(caught.value).startswith(f"{place} is no longer")


def test_a_default_that_is_changed_in_place_is_another(monkeypatch):
    check = TamperCheck()
    monkeypatch.setitem(timing.enqueue_slot.__kwdefaults__, "held", True)
    with pytest.raises(TamperedError, match=r"timing\.enqueue_slot"):
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


@pytest.fixture
def looked_ahead(monkeypatch):
    """Check the modules as a fork of a template does, which has imported the same modules."""
    monkeypatch.setattr(tampering, "_looked_at", {})
    tampering.look_ahead()


def replaced(patch):
    patch.setattr(verify, "compare", lambda *_: None)


def added(patch):
    patch.setattr(verify, "ADDED", 1, raising=False)


def recoded(patch):
    patch.setattr(verify.compare, "__code__", (lambda *_: None).__code__)


def entered(patch):
    patch.setitem(injection._DIALECTS, "other", None)


@pytest.mark.parametrize("change", [replaced, added, recoded, entered])
def test_what_changed_before_the_check_was_made_is_as_it_should_be(looked_ahead, change):
    """And what changes afterwards is found out: here, that it changes back."""
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        check = TamperCheck()
        check.check()
    with pytest.raises(TamperedError):
        check.check()


def test_a_check_looks_again_at_what_has_changed_alone(looked_ahead, monkeypatch):
    looked_at = []
    members = tampering._members

    def looking(module):
        looked_at.append(module.__name__)
        return members(module)

    monkeypatch.setattr(tampering, "_members", looking)
    monkeypatch.setattr(verify, "compare", lambda *_: None)
    TamperCheck().check()
    assert {*looked_at} == {"harness.suite.tampering", "harness.measure.verify"}
