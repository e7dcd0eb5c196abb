"""`pytest --perf-base` on benchmarks that have no suite, in repositories that never heard of the harness."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import pytest

from harness.records.record_files import read_comparison
from harness.report.document.document import SourceLine, decode_review
from tests.support import caller, commit, git, make_repository
from tests.test_pytest_plugin import Bed, bed, told, usage_error  # noqa: F401
from tests.test_side_code import LOAD

pytest_plugins = ["pytester"]

OPS = """\
import numpy as np

NOW_S = 0.0

def now():
    global NOW_S
    NOW_S += 1e-9
    return NOW_S

def work(n):
    global NOW_S
    NOW_S += 1e-6 * ({factor} * n if n > 100 else n)
    return np.full(4, n)
"""
"""Functions whose times a clock of their own tells, so that no noise of a machine is in them."""
TESTS = """\
import ops
import pytest

pytestmark = pytest.mark.benchmark(timer=ops.now)

@pytest.mark.parametrize("n", [128])
def test_work(benchmark, n):
    assert benchmark(ops.work, n)[0] == n
    benchmark.extra_info["n"] = n
    assert 120e-6 < benchmark.stats.stats.min < 200e-6

def test_prepared(benchmark):
    prepared, ended = [], []

    def prepare():
        prepared.append(64)
        return (64,), {}

    assert benchmark.pedantic(ops.work, setup=prepare, teardown=ended.append, rounds=3)[0] == 64
    assert prepared == ended

def test_plain():
    pass
"""
ADDING = "def test_sum(benchmark):\n    assert benchmark(sum, [1]) == 1\n"
FACTOR = {1: {"ops.py": OPS.format(factor=1)}, 2: {"ops.py": OPS.format(factor=1.5)}}
QUICK = "--benchmark-max-time=0.01 -pno:cacheprovider -pno:hypothesispytest -pno:xdist -pno:timeout"
"""Words with which a session's benchmarks are brief, and no process imports plugins that nobody needs."""


class Comparison:
    """A repository of two commits, in which a session compares them."""

    def __init__(self, there: Bed) -> None:
        self.bed = there
        there.monkeypatch.setenv("PYTEST_ADDOPTS", QUICK)

    def commits(self, base: Mapping[str, str | None], head: Mapping[str, str | None]) -> None:
        make_repository(self.bed.root)
        commit(self.bed.root, base, 1)
        commit(self.bed.root, head, 2)

    def run(self, *words: str, base: str = "HEAD~1", at: str = ".") -> pytest.RunResult:
        return self.bed.run(f"--perf-base={base}", *words, at=at)

    @property
    def verdicts(self) -> dict[str, tuple[str, str]]:
        """Status and reason of each case."""
        [path] = self.bed.root.glob(".asv/results/*/*-pytest-*.jsonl")
        found = read_comparison(path).verdicts
        return {each.case.removeprefix("pytest."): (each.status, each.reason) for each in found}


@pytest.fixture
def comparison(bed):  # noqa: F811
    return Comparison(bed)


def test_every_benchmark_has_a_verdict_of_its_own(comparison):
    """By the author's timer, with setup and teardown."""
    comparison.commits({"test_ops.py": TESTS, **FACTOR[1]}, FACTOR[2])
    done = comparison.run("--perf-gate", "--benchmark-json=mine.json")
    done.assert_outcomes(passed=2, failed=1)
    said = told(done)
    assert "FAILED test_ops.py::test_work[128] - Failed: regression: 50.0 % slower" in said
    assert "Outputs: 2 same-as-base." in said
    assert "1 regression, 1 unchanged." in said
    assert comparison.verdicts == {
        "test_ops_test_work[n=128]": ("regression", "slower-in-time"),
        "test_ops_test_prepared[]": ("unchanged", "within-tolerance"),
    }
    mine = json.loads((comparison.bed.root / "mine.json").read_text())
    assert [each["name"] for each in mine["benchmarks"]] == ["test_work[128]", "test_prepared"]


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
    calls = []
    benchmark.pedantic(calls.append, (1,), rounds=1)
    assert calls == [1]

@pytest.fixture
def broken():
    assert {works}

def test_setup(broken, benchmark):
    benchmark(lambda: None)

def test_twice(benchmark):
    benchmark(lambda: None)
    if not {works}:
        benchmark(lambda: None)

@pytest.mark.parametrize("value", [True, float("nan"), object()], ids=["true", "nan", "object"])
def test_value(benchmark, value):
    benchmark(lambda: None)
    assert {works}
"""


def test_a_benchmark_that_one_side_has_or_can_measure_alone_is_no_regression(comparison):
    """In processes of their own, one for each side, as nothing of it can be timed on both."""
    base = HEAD_TESTS.format(works=True, skips=True, odd="a", name="gone")
    head = HEAD_TESTS.format(works=False, skips=False, odd="a", name="fresh")
    comparison.commits({"test_ops.py": base}, {"test_ops.py": head})
    done = comparison.run("--perf-gate")
    done.assert_outcomes(passed=2, failed=7, errors=1)
    assert comparison.verdicts == {
        "test_ops_test_broken[]": ("failed", "not-measured"),
        "test_ops_test_skips[]": ("new", "skips-itself"),
        "test_ops_test_odd_text_a_b_c_d_e_b2056214[]": ("failed", "not-measured"),
        "test_ops_test_odd_text_a_b_c_d_e_cb7be0d8[]": ("failed", "not-measured"),
        "test_ops_test_fresh[]": ("new", "only-in-head"),
        "test_ops_test_gone[]": ("missing", "only-in-base"),
        "test_ops_test_setup[]": ("failed", "not-measured"),
        "test_ops_test_twice[]": ("failed", "not-measured"),
        "test_ops_test_value_value_True[]": ("failed", "not-measured"),
        "test_ops_test_value_value_nan[]": ("failed", "not-measured"),
        "test_ops_test_value_object_0efb4cc3[]": ("failed", "not-measured"),
    }
    said = told(done)
    assert "new test_ops.py::test_skips (skips-itself): Base skips it: no such card" in said
    assert (
        "failed test_ops.py::test_value[true] and 2 more (not-measured): There is no time of it at head."
        in said
    )
    assert "assert False (in setup)" in said
    assert "Fixture can only be used once." in said


def test_a_benchmark_that_only_base_has_fails_the_gate_though_no_test_does(comparison):
    comparison.commits({"test_ops.py": ADDING.replace("test_sum", "test_gone")}, {"test_ops.py": ADDING})
    done = comparison.run("--perf-gate")
    done.assert_outcomes(passed=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "missing test_ops.py::test_gone: none of the tests that ran says so." in told(done)


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

@pytest.fixture
def scaled(benchmark):
    return benchmark(ops.scale, np.ones(8))

def test_plain(scaled):
    assert len(scaled) == 8

def test_drained(benchmark):
    assert benchmark.pedantic(next, (iter([1]),)) == 1
"""
"""Benchmarks of both fixtures."""
SCALE = "WORKS = {works}\n\ndef scale(x):\n    return {factor} * x\n"


def test_outputs_of_both_fixtures_functions_are_held_to_base_s(comparison):
    comparison.commits(
        {"ops.py": SCALE.format(works=True, factor=2), "test_ops.py": FUNCTIONS.format(name="gone")},
        {"ops.py": SCALE.format(works=False, factor=3), "test_ops.py": FUNCTIONS.format(name="fresh")},
    )
    done = comparison.run("--perf-gate")
    done.assert_outcomes(passed=1, failed=5)
    assert comparison.verdicts == {
        "test_ops_test_scale[n=64]": ("failed", "differs-from-base"),
        "test_ops_test_scale[n=128]": ("failed", "differs-from-base"),
        "test_ops_test_plain[]": ("failed", "differs-from-base"),
        "test_ops_test_drained[]": ("failed", "not-measured"),
        "test_ops_test_broken[]": ("failed", "not-measured"),
        "test_ops_test_gone[]": ("missing", "only-in-base"),
        "test_ops_test_fresh[]": ("new", "only-in-head"),
    }
    assert "test_ops.py::test_scale[64] - Failed: differs-from-base: " in told(done)
    assert "raised StopIteration: A comparison calls a function more often than the test does." in told(done)
    assert "failed test_ops.py::test_broken (not-measured): There is no time of it at head." in told(done)


def test_a_side_s_process_has_no_time_limit_for_tests_and_writes_nothing_that_the_user_asked_for(bed):  # noqa: F811
    bed.tests(
        "import pytest, time\n\n@pytest.mark.timeout(0.1)\n"
        "def test_slow(benchmark):\n    benchmark.pedantic(time.sleep, (0.3,), rounds=1)\n"
    )
    options = f"--perf-slot={bed.root / 'told.json'}", "--timeout=0.1", "--benchmark-json=mine.json"
    bed.run(*options, device=None).assert_outcomes(passed=1)
    assert not (bed.root / "mine.json").exists()


def test_outputs_that_differ_are_noted_if_asked_and_what_the_budget_leaves_open_is_inconclusive(comparison):
    test = (
        "import numpy as np\nimport ops\n\ndef test_scale(benchmark):\n    benchmark(ops.scale, np.ones(8))\n"
    )
    comparison.commits(
        {"ops.py": SCALE.format(works=True, factor=2), "test_ops.py": test},
        {"ops.py": SCALE.format(works=True, factor=3)},
    )
    done = comparison.run("--perf-outputs=note", "--perf-budget=0.01")
    done.assert_outcomes(passed=1)
    assert [*comparison.verdicts.values()] == [("inconclusive", "budget-spent")]
    assert "Outputs differ from base's" in told(done)


def test_a_side_that_imports_the_working_tree_s_code_has_no_verdict(comparison):
    load = LOAD.format(path=str(comparison.bed.root / "mine.py"))
    test = f"{load}\ndef test_loaded(benchmark):\n    load()\n    benchmark(sum, (1, 2))\n"
    comparison.commits({"mine.py": "TIME = 1", "test_ops.py": test}, {"mine.py": "TIME = 2"})
    done = comparison.run()
    done.assert_outcomes(failed=1)
    assert "other-code: Base imported loaded from" in told(done)


def test_tests_that_all_skip_themselves_have_called_no_benchmark(comparison):
    skipping = "import pytest\n\ndef test_skips(benchmark):\n    pytest.skip('no such card')\n"
    comparison.commits({"test_ops.py": skipping}, {"README": ""})
    done = comparison.run("--perf-gate")
    done.assert_outcomes(skipped=1)
    assert "nothing-recorded: No benchmark was called at either commit" in told(done)


def test_a_commit_without_the_tests_makes_all_of_them_new(comparison):
    comparison.commits({"README": ""}, {"tests/test_ops.py": ADDING})
    done = comparison.run("--perf-gate", at="tests/test_ops.py")
    done.assert_outcomes(passed=1)
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
    comparison.commits({"test_ops.py": TESTS, **FACTOR[1]}, FACTOR[2])
    assert sentence in usage_error(comparison.run(*words))


def test_outside_of_a_repository_there_is_nothing_to_compare_with(bed):  # noqa: F811
    bed.tests(ADDING)
    assert "is in no git repository: run pytest in one." in usage_error(bed.run("--perf-base=HEAD"))


def test_a_fixture_of_this_name_that_is_not_pytest_benchmark_s_is_told(comparison):
    """pytest-codspeed replaces the fixture of pytest-benchmark in this way."""
    conftest = (
        "import pytest\n\n@pytest.fixture\ndef benchmark(pytestconfig):\n"
        "    pytestconfig.pluginmanager.unregister(name='benchmark')\n    return lambda f, *a: f(*a)\n"
    )
    comparison.commits({"test_ops.py": ADDING, "conftest.py": conftest}, {"README": ""})
    done = comparison.run("--perf-gate")
    done.assert_outcomes(passed=1)
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


@pytest.mark.parametrize(
    ("option", "status", "sentence"),
    [("", 0, "test_ops_test_sum"), (" --benchmark-disable", 3, "called no timer that is known here")],
)
def test_a_session_may_be_a_script_whose_calls_are_named_by_their_tests(
    comparison, capsys, option, status, sentence
):
    comparison.commits({"test_ops.py": ADDING}, {"README": ""})
    harness = caller(capsys, comparison.bed.monkeypatch)
    command = f"{sys.executable} -m pytest test_ops.py{option}"
    done = harness("run", "--script", command, "--device", "null", cwd=comparison.bed.root)
    assert done.status == status
    assert sentence in done.out + done.err
