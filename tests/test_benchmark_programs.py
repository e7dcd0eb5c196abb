"""`compare --with-command` of any program: its file of results tells the format."""

from __future__ import annotations

import json
import sys

import pytest

from harness.errors import ExitCode
from harness.records.imports.pytest_benchmark_files import case_of_test
from harness.records.types import Source
from harness.run.executables.executable_build import Executable, run_once
from tests.benchmark_json import pytest_content, pytest_entry
from tests.support import caller, commit, make_repository, write_files


@pytest.fixture
def harness(capsys, monkeypatch, own_cache):
    return caller(capsys, monkeypatch)


@pytest.fixture
def compare(harness, tmp_path):
    """Compares two commits of which each has its own file of results, and says the verdicts by kernel."""

    def run(base, head, command, *more):
        repository = make_repository(tmp_path / "project")
        for day, content in enumerate((base, head), 1):
            commit(repository, {"harness.toml": "", "results": content, "day": str(day)}, day)
        asked = ("compare", "HEAD~1", "HEAD", "--with-command", command, "--no-save", "--json", *more)
        return harness(*asked, cwd=repository)

    return run


def verdicts_of(done):
    [told] = done.json
    return {verdict["case"]: verdict["status"] for verdict in told["verdicts"]}


def test_tests_of_pytest_benchmark_are_judged_by_their_own_times(compare):
    base, head = (
        json.dumps(
            pytest_content(
                [
                    pytest_entry("b/test_ops.py::test_add[64-f16]", 1e-3, params={"n": 64, "dtype": "f16"}),
                    pytest_entry("b/test_ops.py::test_mul", slow * 1e-3, 1.1e-3 * slow, 1.2e-3 * slow),
                ]
            )
        )
        for slow in (1.0, 1.3)
    )
    done = compare(base, head, "cp results {out} # pytest --benchmark-json={out}")
    assert verdicts_of(done) == {
        "pytest.b_test_ops_test_add_dtype_f16[n=64]": "unchanged",
        "pytest.b_test_ops_test_mul[]": "regression",
    }
    assert done.status == ExitCode.REGRESSION


PROJECT = {
    "mine.py": "def total(n):\n    return sum(range(n))\n",
    "tests/test_mine.py": """
import pytest
from mine import total

@pytest.mark.parametrize("n", [10, 20])
def test_total(benchmark, n):
    benchmark(total, n)
""",
}


def test_pytest_itself_writes_what_is_compared(tmp_path):
    write_files(tmp_path / "files", PROJECT)
    pytest_command = f"{sys.executable} -m pytest -q -p no:cacheprovider tests"
    command = f"{pytest_command} --benchmark-json={{out}} --benchmark-max-time=0.001"
    executable = Executable("head", command, tmp_path / "files", Source(suite="", path=""))
    ran = run_once(executable, "pytest-benchmark", tmp_path, 60, None)
    assert list(ran.cases) == ["tests_test_mine_test_total[n=10]", "tests_test_mine_test_total[n=20]"]
    assert all(len(case.times_ns) >= 5 for case in ran.cases.values())
    assert (ran.executable, ran.device.kind) == ("pytest", "cpu")


@pytest.mark.parametrize(
    ("node_id", "params", "kernel", "sizes"),
    [
        ("a/test_b.py::TestC::test_d", {}, "a_test_b_TestC_test_d", {}),
        ("t.py::test_d[64-f16]", {"n": 64, "dtype": "f16"}, "t_test_d_dtype_f16", {"n": 64}),
        ("t.py::test_d[0-True]", {"n": 0, "fast": True}, "t_test_d_n_0_fast_True", {}),
        ("t.py::test_d[relu]", {"f": "UNSERIALIZABLE[<function f at 0x7f>]"}, "t_test_d_relu", {}),
        ("t.py::test_d[a0]", {"shape": [1, 2]}, "t_test_d_a0", {}),
        ("odd[1].py::test_d[7]", {"n": 7}, "odd_1_test_d", {"n": 7}),
    ],
)
def test_a_test_has_one_name_whatever_its_parameters_are(node_id, params, kernel, sizes):
    assert case_of_test(node_id, params) == (kernel, sizes)
