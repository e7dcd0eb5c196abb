"""Inputs and references that a command takes from an earlier one, on the null device."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from harness.measure import earlier_arrays
from harness.measure.earlier_arrays import EarlierArrays
from harness.run.run import Session, SessionSettings
from harness.run.worker_process import WorkerProcess
from harness.suite.loader import load
from harness.suite.planning import plan
from harness.system.array_files import read_arrays
from tests.support import Recorder, statuses, write_files

SUITE = """\
import os
{imports}
from harness import Axis, Input, Kernel, Output, Problem, Suite

def tell(what):
    with open({told!r}, "a") as file:
        file.write(what + "\\n")

class Double(Problem):
    n = Axis(default=({n},))
    x = Input("n")
    y = Output("n")

    def data(self, case, rng):
        tell("data")
        {data}

    def reference(self, case, x):
        tell("reference")
        {reference}

suite = Suite(
    "double", Double(), headline="GB/s", prelude={{"cuda": "cuda.h"}},
    kernels=[Kernel(name, "one.cu", block=32, grid=1) for name in {kernels!r}],
)
"""


class Double:
    """A suite of a repository, checked by commands one after another."""

    def __init__(self, folder: Path) -> None:
        self.root, self.told = folder / "project", folder / "told"
        self.given = {"imports": "", "data": "return super().data(case, rng)", "reference": "return 2 * x"}
        self.names, self.n = ["one"], 2**19
        write_files(self.root, {".git/HEAD": "", "double/one.cu": "", "double/cuda.h": ""})

    def computed(self, **given: str) -> list[str]:
        """Check the suite, all of whose kernels have to pass; returns what it has computed for that."""
        self.given |= given
        text = SUITE.format(told=str(self.told), kernels=self.names, n=self.n, **self.given)
        write_files(self.root, {"double/suite.py": text})
        self.told.write_text("")
        loaded = load(self.root / "double")
        with Session(loaded, SessionSettings(device="null", measure=None), Recorder()) as session:
            rows = session.run(plan(loaded.suite, (), ())).rows
        assert [status for _, status, _ in statuses(rows)] == ["not-built"] * len(self.names), rows
        return [*dict.fromkeys(self.told.read_text().split())]


@pytest.fixture
def double(tmp_path, own_cache) -> Double:
    return Double(tmp_path)


BOTH = ["data", "reference"]


def by_commands(double: Double, times: int = 2) -> list[list[str]]:
    return [double.computed() for _ in range(times)]


def test_a_later_command_computes_neither(double):
    assert by_commands(double) == [BOTH, ["reference"]]  # the null device's kernel is the reference


def entries(cache: Path) -> list[Path]:
    return [*(cache / "arrays").glob("*")]


@pytest.mark.parametrize(
    "change",
    [
        {"reference": "return x + x"},
        {"data": "return {'x': rng.random(case.n, np.float32)}", "imports": "import numpy as np"},
    ],
    ids=["reference", "data"],
)
def test_a_changed_source_leads_to_new_arrays(double, own_cache, change):
    double.computed()
    before = {*entries(own_cache)}
    assert double.computed(**change) == BOTH
    assert {*entries(own_cache)} > before


def test_an_import_that_a_reference_makes_late_is_never_trusted(double):
    """No hash that is made before can know of the file."""
    factor = double.root / "factor.py"
    factor.write_text("FACTOR = 2\n")
    imports = f"import sys; sys.path.insert(0, {str(double.root)!r})"
    double.computed(imports=imports, reference="import factor; return factor.FACTOR * x")
    factor.write_text("FACTOR = 64\n")
    double.computed()  # where the old reference counted, the kernel would be wrong


def test_what_is_read_outside_the_repository_is_never_trusted(double, own_cache, tmp_path):
    (tmp_path / "weights").write_text("2")
    double.computed(reference=f"return float(open({str(tmp_path / 'weights')!r}).read()) * x")
    assert [len(read_arrays(entry)) for entry in entries(own_cache)] == [1]  # inputs, made before


def test_data_of_a_kernel_are_for_its_own_reference(double):
    double.names = ["one", "two"]
    double.computed(
        imports="import numpy as np",
        data="return {'x': np.full(case.n, 1 if case.kernel == 'one' else 3, np.float32)}",
    )


def test_small_arrays_are_computed(double, own_cache):
    double.n = 2**10
    assert by_commands(double) == [BOTH, BOTH]
    assert not (own_cache / "arrays").exists()


@pytest.mark.parametrize("harm", ["torn", "edited", "writable", "link", "no checksums"])
def test_an_entry_that_is_not_as_it_was_written_is_a_miss(double, own_cache, tmp_path, harm):
    double.computed()
    for entry in entries(own_cache):
        array = next(entry.glob("*[xy].npy"))
        if harm == "torn":
            os.truncate(array, array.stat().st_size - 8)
        elif harm == "edited":
            with array.open("r+b") as file:
                file.seek(-8, os.SEEK_END)
                file.write(b"12345678")
        elif harm == "writable":
            entry.chmod(0o777)
        elif harm == "link":
            entry.symlink_to(entry.rename(tmp_path / entry.name), target_is_directory=True)
        else:
            (entry / "checksums.json").unlink()
    assert double.computed() == BOTH
    if harm != "link":
        assert double.computed() == ["reference"]


def test_a_cache_that_others_can_write_to_is_passed_over(double, own_cache):
    (own_cache / "arrays").mkdir(parents=True)
    (own_cache / "arrays").chmod(0o777)
    assert by_commands(double) == [BOTH, BOTH]
    assert not entries(own_cache)


def test_a_cache_that_cannot_be_written_is_no_error(double, own_cache):
    own_cache.mkdir()
    (own_cache / "arrays").write_text("a file")
    assert by_commands(double) == [BOTH, BOTH]


def test_what_was_used_longest_ago_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(earlier_arrays, "MOST_BYTES", 5 * 2**21)
    arrays = {"x": np.zeros(2**18 - 16)}  # with its header 2 MiB
    monkeypatch.setattr(earlier_arrays, "LEAST_ENTRY_BYTES", 0)
    kept = EarlierArrays(tmp_path / "arrays", lambda: "origin")
    keys = [kept.key(str(number)) for number in range(6)]
    for age, key in enumerate(keys[:4]):
        entry = kept.put(key, arrays)
        assert entry
        os.utime(entry, (age, age))
    assert kept.get(keys[0])  # used now
    assert kept.put(keys[4], arrays)
    assert kept.put(keys[5], arrays)
    assert [kept.get(key) is not None for key in keys] == [True, False, True, True, True, True]


def test_a_suite_whose_origin_changes_meanwhile_keeps_nothing(tmp_path):
    origins = iter(["before", "after"])
    kept = EarlierArrays(tmp_path / "arrays", lambda: next(origins))
    key = kept.key("x")
    assert kept.put(key, {"x": np.zeros(2**20)}) is None
    assert not (tmp_path / "arrays").exists()


def test_no_origin_is_no_key(tmp_path):
    kept = EarlierArrays(tmp_path / "arrays", lambda: "")
    assert kept.get(kept.key("x")) is None
    assert kept.put(kept.key("x"), {"x": np.zeros(2**20)}) is None


@pytest.mark.parametrize("suite_user", [False, True])
def test_suites_of_another_user_get_no_folder(tmp_path, own_cache, monkeypatch, suite_user):
    """Otherwise the files of one stranger's suite would be references of the next."""
    asked = []
    monkeypatch.setattr(WorkerProcess, "begin", lambda _, request, *__: asked.append(request))
    with closing(WorkerProcess(tmp_path)) as worker:
        if suite_user:
            monkeypatch.setenv("HARNESS_SUITE_SOCKET", str(tmp_path / "socket"))
        worker.begin_open("null")
    assert [request.arrays for request in asked] == [None if suite_user else str(own_cache / "arrays")]
