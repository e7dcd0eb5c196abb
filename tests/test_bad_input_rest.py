from __future__ import annotations

import os

import numpy as np
import pytest

from harness import Axis, Case, Input, Output, Problem, store
from harness.arena import Arena
from harness.backends import open_device
from harness.cache import write_atomically
from harness.config import load_config
from harness.errors import ConfigError, StoreError, SuiteError
from tests.conftest import *
from tests.test_store import BARE, ROW, RUN, edited, written


class P(Problem):
    n = Axis((4,))
    a = Input("n")
    y = Output("n")


@pytest.mark.parametrize(
    "data",
    [
        {"a": np.zeros(4)},
        {"a": np.zeros(5, "float32")},
        {"a": np.zeros((2, 2), "float32")},
        {},
        {"b": np.zeros(4, "float32")},
        {"a": [1.0] * 4},
    ],
    ids=["float64", "longer", "another shape", "missing", "unknown", "list"],
)
def test_wrong_data(data):
    with Arena(open_device("null"), P(), Case("toy", "one", {"n": 4})) as arena:
        with pytest.raises(SuiteError, match=r"data\(\)"):
            arena.write(data)


def test_cut_last_line(tmp_path):
    path = written(tmp_path, ROW, BARE)
    data = path.read_bytes().removesuffix(b'{"complete":true}\n')[:-10]
    path.write_bytes(data)
    assert store.read_run(path) == store.StoredRun(RUN, (ROW,), complete=False)


def test_handle_leak_at_open(tmp_path, monkeypatch):
    import gc

    import harness.store as hs

    class Full:
        def write(self, *_):
            raise OSError(28, "No space left on device")

        def flush(self):
            pass

    orig = hs.RunWriter._append

    def failing(self, line):
        raise StoreError("Cannot write")

    monkeypatch.setattr(hs.RunWriter, "_append", failing)
    with pytest.raises(StoreError):
        store.RunWriter(tmp_path, RUN)
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_bad_utf8(tmp_path):
    path = written(tmp_path, ROW)
    data = path.read_bytes().replace(b"toy.plain", b"toy.\xff\xfein")
    path.write_bytes(data)
    with pytest.raises(StoreError, match="line 2"):
        store.read_run(path)


def test_bad_utf8_first(tmp_path):
    path = written(tmp_path, ROW)
    data = path.read_bytes().replace(b"nvcc", b"\xff\xfevc")
    path.write_bytes(data)
    with pytest.raises(StoreError):
        store.read_run(path)


def test_deep_nesting(tmp_path):
    path = edited(written(tmp_path, ROW), 2, b'{"x":' + b"[" * 100000 + b"]" * 100000 + b"}")
    with pytest.raises(StoreError, match="line 2"):
        store.read_run(path)


def test_umask_untouched(tmp_path, monkeypatch):
    def umask(_):
        raise AssertionError("the whole process has one umask, and other threads")

    monkeypatch.setattr(os, "umask", umask)
    write_atomically(tmp_path / "x", b"")


def test_timeout_true(tmp_path):
    (tmp_path / "harness.toml").write_text("timeout_s = true\n")
    with pytest.raises(ConfigError):
        load_config(tmp_path)
