"""The fixture gpu_benchmark beside pytest-benchmark's own, and what a session saves of it."""

from __future__ import annotations

import json
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness.integrations.pytest.fixture import GpuBenchmark
from tests.commits import only
from tests.test_pytest_plugin import bed, told  # noqa: F401

pytest_plugins = ["pytester"]

USED = """\
def test_used(gpu_benchmark, gpu_case):
    gpu_benchmark.group = "mine"
    gpu_benchmark.pedantic(gpu_case, rounds=3)
    gpu_benchmark.extra_info["mine"] = 1
    assert gpu_benchmark.stats.stats.rounds == 3
    assert gpu_benchmark.stats["median"] > 0

def test_setup(gpu_benchmark, gpu_case):
    gpu_benchmark.pedantic(gpu_case, setup=print)

def test_entry(gpu_benchmark, gpu_case):
    gpu_benchmark(gpu_case)
    gpu_benchmark.extra_info["device"] = "another"

def test_before(gpu_benchmark, gpu_case):
    gpu_benchmark.extra_info["device"] = "another"
    gpu_benchmark(gpu_case)

def test_host(gpu_benchmark, benchmark, gpu_case):
    benchmark(print)
"""


def test_every_public_attribute_of_the_fixture_is_there():
    names = {name for name in BenchmarkFixture.__init__.__code__.co_names if not name.startswith("_")}
    public = {name for name in vars(BenchmarkFixture) if not name.startswith("_")}
    attributes = {
        "name",
        "fullname",
        "param",
        "params",
        "group",
        "has_error",
        "extra_info",
        "skipped",
        "stats",
    }
    assert attributes <= names
    assert {name for name in public | attributes if not hasattr(GpuBenchmark, name)} == set()


def test_what_a_test_reads_and_adds_is_saved(bed):  # noqa: F811
    bed.toy()
    bed.tests(USED)
    done = bed.run("-k", "toy.plain@64", "--benchmark-json=saved.json")
    done.assert_outcomes(passed=2, failed=3, errors=1, deselected=5)
    assert "gpu_benchmark cannot use setup=" in told(done)
    assert "extra_info['device'] belongs to gpu_benchmark" in told(done)
    assert "The fixture benchmark was called in a test that has gpu_benchmark" in told(done)
    [saved] = json.loads((bed.root / "saved.json").read_text())["benchmarks"]
    assert (saved["name"], saved["group"]) == ("test_used[toy.plain@64]", "mine")
    assert (saved["extra_info"]["mine"], saved["stats"]["rounds"]) == (1, 3)


@pytest.mark.parametrize("asked", ["toy.plain@64", "toy.plain[n=64]", "test_kernel[toy.plain@64]"])
def test_k_takes_a_case_as_it_is_printed(bed, asked):  # noqa: F811
    bed.toy()
    done = bed.run("--collect-only", "-q", "-k", asked)
    assert done.outlines[0] == "benchmarks/test_kernels.py::test_kernel[toy.plain@64]"
    assert "1/2 tests collected" in told(done)


def test_a_session_that_timed_nothing_writes_its_file(bed):  # noqa: F811
    bed.two_commits(only("untouched", "commented"))
    done = bed.run("--perf-base=HEAD~1", "--benchmark-json=x.json", "--benchmark-autosave", "-Werror")
    assert done.ret == pytest.ExitCode.OK
    assert json.loads((bed.root / "x.json").read_text())["benchmarks"] == []
    assert [*bed.root.glob(".benchmarks/*/*")] == []
    assert "no run was saved for --benchmark-compare" in told(done)


def test_a_first_comparison_does_not_end_the_session(bed):  # noqa: F811
    bed.toy()
    bed.run("--benchmark-compare", "-Werror").assert_outcomes(passed=2)


AGAIN = """\
import pytest
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    runtestprotocol(item, nextitem=nextitem, log=False)
    item._initrequest()
"""


def test_of_a_test_that_runs_again_the_last_run_counts(bed):  # noqa: F811
    bed.toy()
    (bed.root / "benchmarks/conftest.py").write_text(AGAIN)
    done = bed.run("-k", "plain", "--benchmark-json=x.json")
    assert len(json.loads((bed.root / "x.json").read_text())["benchmarks"]) == 1
    assert "test_kernel[toy.plain@64] ran 2 times: the last run counts." in told(done)


def test_a_histogram_that_cannot_be_drawn_is_refused_before_anything_is_measured(bed):  # noqa: F811
    bed.toy()
    bed.monkeypatch.setitem(sys.modules, "pytest_benchmark.histogram", None)
    bed.monkeypatch.setitem(sys.modules, "pygal", None)
    done = bed.run("--benchmark-histogram=drawn")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--benchmark-histogram cannot draw" in told(done)


def test_a_projects_own_benchmark_fixture_is_told(bed):  # noqa: F811
    bed.toy()
    own = "import pytest\n\n@pytest.fixture\ndef benchmark():\n    return print\n"
    (bed.root / "benchmarks/conftest.py").write_text(own)
    assert "gpu_benchmark needs pytest-benchmark's fixture benchmark" in told(bed.run("-k", "plain"))
