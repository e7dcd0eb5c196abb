"""`pytest --perf-base` on benchmarks that have no suite, in repositories that never heard of the harness."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import pytest

from harness.records.record_files import read_comparison
from harness.report.document.document import SourceLine, decode_review
from tests.benchmark_json import pytest_content, pytest_entry
from tests.support import caller, commit, git, make_repository
from tests.test_pytest_plugin import Bed, bed, told, usage_error  # noqa: F401
from tests.test_side_code import LOAD

pytest_plugins = ["pytester"]

TESTS = """\
import pytest

@pytest.mark.parametrize("n", [64, 128])
def test_sum(benchmark, n):
    benchmark(sum, range(n))

def test_function(benchmark):
    assert benchmark(sum, [1]) == 1

def test_plain():
    pass
"""
PYTHON = """\
#!/bin/sh
test "$2" = pytest || exec {python} "$@"
for word; do
  case "$word" in
    --benchmark-json=*) cp saved.json "${{word#*=}}" ;;
    --perf-slot=*) cat "${{word#*=}}" >> {root}/asked ;;
  esac
done
"""
"""Stands for the Python of a slot: what the two commits measure is a file of theirs."""


def saved(**times_s: float) -> str:
    """A file of pytest-benchmark with one time of each test."""
    names = {"n64": "test_sum[64]", "n128": "test_sum[128]", "function": "test_function"}
    sizes = {"n64": {"n": 64}, "n128": {"n": 128}}
    entries = [
        pytest_entry(f"test_ops.py::{names[key]}", *[time_s] * 3, params=sizes.get(key))
        for key, time_s in times_s.items()
    ]
    return json.dumps({**pytest_content(entries), "harness_untimed": []})


class Comparison:
    """A repository of two commits, in which a session compares them."""

    def __init__(self, there: Bed) -> None:
        self.bed = there

    def commits(self, base: Mapping[str, str | None], head: Mapping[str, str | None]) -> None:
        make_repository(self.bed.root)
        commit(self.bed.root, base, 1)
        commit(self.bed.root, head, 2)

    def measuring(self, base: str, head: str) -> None:
        """Have each side's processes write these files, and run nothing."""
        self.commits({"test_ops.py": TESTS, "saved.json": base}, {"saved.json": head})
        python = self.bed.root / "python"
        python.write_text(PYTHON.format(python=sys.executable, root=self.bed.root))
        python.chmod(0o755)
        self.bed.monkeypatch.setattr(sys, "executable", str(python))

    def run(self, *words: str, base: str = "HEAD~1", at: str = ".") -> pytest.RunResult:
        return self.bed.run(f"--perf-base={base}", "-p", "no:cacheprovider", *words, at=at)

    def verdicts_of(self, suite: str) -> dict[str, tuple[str, str]]:
        """Status and reason of each case."""
        [path] = self.bed.root.glob(f".asv/results/*/*-{suite}-*.jsonl")
        found = read_comparison(path).verdicts
        return {each.case.removeprefix(f"{suite}."): (each.status, each.reason) for each in found}

    @property
    def verdicts(self) -> dict[str, tuple[str, str]]:
        return self.verdicts_of("pytest")


@pytest.fixture
def comparison(bed):  # noqa: F811
    return Comparison(bed)


def test_every_benchmark_has_a_verdict_of_its_own(comparison):
    comparison.measuring(saved(n64=1.0, n128=1.0, function=1.0), saved(n64=1.0, n128=1.5, function=1.0))
    done = comparison.run("--perf-gate", "--benchmark-json=mine.json")
    done.assert_outcomes(passed=3, failed=1)
    said = told(done)
    assert "FAILED test_ops.py::test_sum[128] - Failed: regression: 50.0 % slower" in said
    assert "regression test_ops.py::test_sum[128] (slower-in-time): 50.0 % slower" in said
    assert "rounds of 20 runs" in said
    assert "1 regression, 2 unchanged." in said
    assert comparison.verdicts == {
        "test_ops_test_sum[n=64]": ("unchanged", "within-tolerance"),
        "test_ops_test_sum[n=128]": ("regression", "slower-in-time"),
        "test_ops_test_function[]": ("unchanged", "within-tolerance"),
    }
    asked = (comparison.bed.root / "asked").read_text().splitlines()
    assert set(asked) == {"test_ops.py::test_sum[128]"}  # to confirm; what is settled does not run again
    mine = json.loads((comparison.bed.root / "mine.json").read_text())
    assert [each["name"] for each in mine["benchmarks"]] == ["test_sum[64]", "test_sum[128]", "test_function"]


def test_without_the_gate_a_regression_is_told_and_fails_nothing(comparison):
    comparison.measuring(saved(n64=1.0), saved(n64=1.5))
    done = comparison.run()
    assert done.ret == pytest.ExitCode.OK
    assert "GPU benchmarks against HEAD~1" in told(done)
    assert "regression test_ops.py::test_sum[64]" in told(done)


def test_what_the_budget_leaves_open_is_inconclusive(comparison):
    comparison.measuring(saved(n64=1.0), saved(n64=1.5))
    comparison.run("--perf-budget=0.001")
    assert comparison.verdicts == {"test_ops_test_sum[n=64]": ("inconclusive", "budget-spent")}


def test_a_benchmark_that_only_base_has_fails_the_gate_though_no_test_does(comparison):
    comparison.measuring(saved(n64=1.0, n128=1.0), saved(n64=1.0))
    done = comparison.run("--perf-gate", "-k", "64 or plain")
    done.assert_outcomes(passed=2, deselected=2)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "missing test_ops.py::test_sum[128]: none of the tests that ran says so." in told(done)


HEAD_TESTS = """\
import pytest

def test_broken(benchmark):
    benchmark(lambda: None)
    assert {works}

def test_skips(benchmark):
    if {skips}:
        pytest.skip("no such card")
    benchmark(lambda: None)

@pytest.mark.parametrize("text", ["{odd}/b::c [d] e", "{odd}/b::c (d) e"])
def test_odd(benchmark, text):
    benchmark(lambda: None)
    assert {works}

def test_{name}(benchmark):
    benchmark(lambda: None)

@pytest.fixture
def broken():
    assert {works}

def test_setup(broken, benchmark):
    benchmark(lambda: None)
"""


def test_a_benchmark_that_one_side_has_or_can_measure_alone_is_no_regression(comparison):
    """In processes of their own, one for each side, as nothing of it can be timed on both."""
    base = HEAD_TESTS.format(works=True, skips=True, odd="a", name="gone")
    head = HEAD_TESTS.format(works=False, skips=False, odd="a", name="fresh")
    comparison.commits({"test_ops.py": base}, {"test_ops.py": head})
    done = comparison.run("--perf-gate", "--benchmark-max-time=0.01")
    done.assert_outcomes(passed=2, failed=3, errors=1)
    assert comparison.verdicts == {
        "test_ops_test_broken[]": ("failed", "not-measured"),
        "test_ops_test_skips[]": ("new", "skips-itself"),
        "test_ops_test_odd_text_a_b_c_d_e_b2056214[]": ("failed", "not-measured"),
        "test_ops_test_odd_text_a_b_c_d_e_cb7be0d8[]": ("failed", "not-measured"),
        "test_ops_test_fresh[]": ("new", "only-in-head"),
        "test_ops_test_gone[]": ("missing", "only-in-base"),
        "test_ops_test_setup[]": ("failed", "not-measured"),
    }
    said = told(done)
    assert "new test_ops.py::test_skips (skips-itself): Base skips it: no such card" in said
    assert (
        "failed test_ops.py::test_broken and 2 more (not-measured): There is no time of it at head." in said
    )
    assert "assert False (in setup)" in said


FUNCTIONS = """\
import numpy as np
import ops
import pytest

@pytest.mark.parametrize("n", [64, 128])
def test_scale(gpu_benchmark, n):
    assert gpu_benchmark(ops.scale, setup=lambda: ((np.ones(n),), {{}})).shape == (n,)

def test_broken(gpu_benchmark):
    gpu_benchmark(ops.scale, np.ones(8))
    assert ops.WORKS

def test_{name}(gpu_benchmark):
    gpu_benchmark(ops.scale, np.ones(8))

def test_{name}_too(benchmark):
    benchmark(print)
"""
"""Benchmarks of both fixtures."""
SCALE = "WORKS = {works}\n\ndef scale(x):\n    return {factor} * x\n"


def test_functions_of_gpu_benchmark_take_turns_and_their_outputs_are_held_to_base_s(comparison):
    comparison.commits(
        {"ops.py": SCALE.format(works=True, factor=2), "test_ops.py": FUNCTIONS.format(name="gone")},
        {"ops.py": SCALE.format(works=False, factor=3), "test_ops.py": FUNCTIONS.format(name="fresh")},
    )
    done = comparison.run("--perf-gate", "--benchmark-max-time=0.01")
    done.assert_outcomes(passed=2, failed=3)
    verdicts = comparison.verdicts_of("gpu_benchmark")
    assert verdicts == {
        "test_ops_test_scale[n=64]": ("failed", "differs-from-base"),
        "test_ops_test_scale[n=128]": ("failed", "differs-from-base"),
        "test_ops_test_broken[]": ("failed", "not-measured"),
        "test_ops_test_gone[]": ("missing", "only-in-base"),
        "test_ops_test_fresh[]": ("new", "only-in-head"),
    }
    assert comparison.verdicts_of("pytest") == {
        "test_ops_test_gone_too[]": ("missing", "only-in-base"),
        "test_ops_test_fresh_too[]": ("new", "only-in-head"),
    }
    assert "test_ops.py::test_scale[64] - Failed: differs-from-base: " in told(done)
    assert "failed test_ops.py::test_broken (not-measured): There is no time of it at head." in told(done)


def test_a_time_limit_of_tests_does_not_hold_where_a_side_waits_for_the_other(bed):  # noqa: F811
    bed.tests(
        "import pytest, time\n\n@pytest.mark.timeout(0.1)\n"
        "def test_slow(benchmark):\n    benchmark.pedantic(time.sleep, (0.3,), rounds=1)\n"
    )
    (bed.root / "all.slot").touch()
    done = bed.run(f"--perf-slot={bed.root / 'all.slot'}", "--timeout=0.1", device=None)
    done.assert_outcomes(passed=1)


def test_outputs_that_differ_are_noted_if_asked(comparison):
    test = (
        "import numpy as np\nimport ops\n\n"
        "def test_scale(gpu_benchmark):\n    gpu_benchmark(ops.scale, np.ones(8))\n"
    )
    comparison.commits(
        {"ops.py": SCALE.format(works=True, factor=2), "test_ops.py": test},
        {"ops.py": SCALE.format(works=True, factor=3)},
    )
    done = comparison.run("--perf-outputs=note", "--perf-budget=0.01", "--benchmark-max-time=0.01")
    done.assert_outcomes(passed=1)
    [(status, _)] = comparison.verdicts_of("gpu_benchmark").values()
    assert status != "failed"
    assert "Outputs differ from base's" in told(done)


def test_a_side_that_imports_the_working_tree_s_code_has_no_verdict(comparison):
    load = LOAD.format(path=str(comparison.bed.root / "mine.py"))
    test = f"{load}\ndef test_loaded(benchmark):\n    load()\n    benchmark(sum, (1, 2))\n"
    comparison.commits({"mine.py": "TIME = 1", "test_ops.py": test}, {"mine.py": "TIME = 2"})
    done = comparison.run("--benchmark-max-time=0.01")
    done.assert_outcomes(failed=1)
    assert "other-code: Head imported loaded from" in told(done)


def test_a_commit_without_the_tests_makes_all_of_them_new(comparison):
    comparison.commits({"README": ""}, {"tests/test_ops.py": TESTS})
    done = comparison.run("--perf-gate", "--benchmark-max-time=0.01", at="tests/test_ops.py")
    done.assert_outcomes(passed=4)
    assert {status for status, _ in comparison.verdicts.values()} == {"new"}
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "No benchmark was compared with HEAD~1: none of them was measured at both." in told(done)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--perf-base=nothing"], "nothing"),
        (["--perf-budget=0"], "--perf-budget 0: expected a number of seconds above 0."),
        (["--rootdir=/"], "pytest's root folder / is outside of the repository"),
        (["--benchmark-disable"], "--perf-base compares times, and --benchmark-disable takes none"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_test_runs(comparison, words, sentence):
    comparison.measuring(saved(n64=1.0), saved(n64=1.1))
    assert sentence in usage_error(comparison.run(*words))


def test_outside_of_a_repository_there_is_nothing_to_compare_with(bed):  # noqa: F811
    bed.tests(TESTS)
    assert "is in no git repository: run pytest in one." in usage_error(bed.run("--perf-base=HEAD"))


def test_a_fixture_of_this_name_that_is_not_pytest_benchmark_s_is_told(comparison):
    """As pytest-codspeed puts its own in the place of pytest-benchmark's."""
    conftest = (
        "import pytest\n\n@pytest.fixture\ndef benchmark(pytestconfig):\n"
        "    pytestconfig.pluginmanager.unregister(name='benchmark')\n    return lambda f, *a: f(*a)\n"
    )
    comparison.commits({"test_ops.py": TESTS, "conftest.py": conftest}, {"README": ""})
    done = comparison.run("--perf-gate", "-k", "sum")
    done.assert_outcomes(passed=2, deselected=2)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "The fixture benchmark of the tests is of conftest." in told(done)


def test_a_pull_request_of_a_repository_without_suites_has_a_report(comparison, capsys, own_cache):
    broken = "def test_broken(benchmark):\n    assert benchmark(sum, [1]) == {result}\n"
    comparison.commits({"test_ops.py": broken.format(result=1)}, {"test_ops.py": broken.format(result=2)})
    harness = caller(capsys, comparison.bed.monkeypatch)
    words = ("ci", "compare", "--base", "HEAD~1", "--pytest", "test_ops.py", "--device", "null")
    done = harness(*words, cwd=comparison.bed.root)
    assert done.status == 1
    review = decode_review((comparison.bed.root / "perf-review/review.json").read_bytes())
    assert review.head == git(comparison.bed.root, "rev-parse", "HEAD").strip()
    [card] = review.cards
    [case] = card.cases
    assert (card.suite, case.kernel, case.status, case.side) == (
        "pytest",
        "test_ops_test_broken",
        "failed",
        "head",
    )
    assert card.places == {"test_ops_test_broken": SourceLine(path="test_ops.py", line=1)}
    comment = (comparison.bed.root / "perf-review/comment.md").read_text()
    assert "assert 1 == 2" in comment
    assert f"git checkout {review.head[:10]} &amp;&amp; pytest test_ops.py</code>" in comment
