"""`harness compare --script`: an author's benchmark script at two commits, unchanged.

A stand-in of Triton times by a clock that each operation moves on, so verdicts are sure and quick.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.errors import ExitCode, MeasureError
from harness.judgement.case_trial import bare_verdict
from harness.report.document.document import decode_review
from harness.report.terminal.comparison_tables import _print_reasons
from harness.report.words.of_verdict import PROCESSES
from harness.run.scripts.call_names import names_of
from harness.run.scripts.recorder import arrays, autotuning, frames, timers
from harness.run.scripts.script_outputs import OutputsCheck, read_arrays
from harness.run.scripts.script_process import Done
from harness.suite.problem import Case
from tests.support import commit, git, make_repository

pytestmark = pytest.mark.usefixtures("own_cache")

TESTING = """
import clock
def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    times = []
    for _ in range(5):
        began = clock.now
        fn()
        times.append((clock.now - began) / 1000)
    if return_mode == "all":
        return times
    return times[:len(quantiles)] if quantiles else times[0]
class Benchmark:
    def __init__(self, x_names, x_vals, line_arg, line_vals, plot_name, args):
        self.__dict__.update(locals())
class Mark:
    def __init__(self, fn, benchmarks):
        self.fn, self.benchmarks = fn, benchmarks
    def run(self, **_):
        raise RuntimeError("it opens a window")
def perf_report(benchmarks):
    return lambda fn: Mark(fn, benchmarks)
"""
OPS = """
import numpy as np
import clock
def softmax(x):
    clock.now += {softmax} * x.shape[0]
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return {result}
def relu(x, out):
    clock.now += {relu}
    {write}
"""
SCRIPT = """
import numpy as np
import triton
from ops import relu, softmax
for n in (256, 512):
    x = np.random.default_rng().normal(size=(n, 16)).astype("f4")
    print(n, triton.testing.do_bench(lambda: softmax(x)), "ms")
out = np.zeros_like(x)
print(triton.testing.do_bench(lambda: relu(x, out), quantiles=[0.5, 0.2]))
"""
RIGHT = {
    "softmax": 1,
    "relu": 100,
    "result": "e / e.sum(axis=1, keepdims=True)",
    "write": "np.maximum(x, 0, out=out)",
}
RUN = "python bench.py"


def files(script=SCRIPT, **changed):
    return {
        "harness.toml": "",
        "clock.py": "now = 0.0\n",
        "triton/__init__.py": "from . import testing\n",
        "triton/testing.py": TESTING,
        "ops.py": OPS.format(**{**RIGHT, **changed}),
        "bench.py": script,
    }


@pytest.fixture
def compare(harness, tmp_path):
    """Compares two commits, given the files of each, by a script."""

    def run(base, head, *more, command=RUN):
        repository = make_repository(tmp_path / "p")
        for day, content in enumerate((base, head), 1):
            commit(repository, {"day": str(day), **content}, day)
        return harness("compare", "HEAD~1", "HEAD", "--script", command, "--json", *more, cwd=repository)

    return run


def verdicts_of(done):
    [told] = done.json
    return {each["case"].partition(".")[2]: each for each in told["verdicts"]}


def test_an_unchanged_script_is_judged_call_by_call(compare):
    done = compare(files(), files(relu=120))
    said = verdicts_of(done)
    assert {name: each["status"] for name, each in said.items()} == {
        "softmax[n=256]": "unchanged",
        "softmax[n=512]": "unchanged",
        "relu[]": "regression",
    }
    assert done.status == ExitCode.REGRESSION
    assert said["relu[]"]["time"]["effect"] == pytest.approx(0.2)
    assert said["softmax[n=512]"]["base"]["time_ns"] == pytest.approx(512e3)
    assert {each["outputs"]["held_to"] for each in said.values()} == {"base"}
    assert {each["outputs"]["error"] for each in said.values()} == {0.0}


FUNCTION = """
def {name}(x, out):
    clock.now += 1
    e = np.exp(x - x.max(axis=1, keepdims=True))
    {body}
"""
PERMILLE = "1.0005 * e / e.sum(axis=1, keepdims=True)"
WRONG = {
    "one_element": "return np.where(np.arange(16) == 3, 0.1, e / e.sum(axis=1, keepdims=True))",
    "a_swapped_axis": "return e / e.sum(axis=0, keepdims=True)",
    "half_a_permille": f"return {PERMILLE}",
    "another_shape": "return (e / e.sum(axis=1, keepdims=True))[:, :8]",
    "nothing_returned": "return None",
    "a_result_of_the_first_call": "return globals().setdefault('kept', e / e.sum(axis=1, keepdims=True))",
    "a_buffer_that_stays": "pass",
    "nothing": f"return {RIGHT['result']}",
}
"""Bodies of functions at head, by what is wrong with them."""


def test_outputs_that_differ_from_base_fail_and_have_no_time(compare):
    """Each is a call of one script, as two processes of a script take longer than its calls."""
    base = {**dict.fromkeys(WRONG, f"return {RIGHT['result']}"), "a_buffer_that_stays": RIGHT["write"]}
    timed = [f"triton.testing.do_bench(lambda: ops.{name}(x, out))" for name in WRONG]
    made = "x = np.random.default_rng().normal(size=(256, 16)).astype('f4')\nout = np.zeros_like(x)"
    script = "\n".join(["import numpy as np", "import triton", "import ops", made, *timed])
    before, after = (
        "import numpy as np\nimport clock\n"
        + "".join(FUNCTION.format(name=name, body=body) for name, body in bodies.items())
        for bodies in (base, WRONG)
    )
    said = verdicts_of(compare({**files(script), "ops.py": before}, {**files(script), "ops.py": after}))
    right = said.pop("nothing[]")
    assert (right["status"], right["time"] is None) == ("unchanged", False)
    assert {name: (each["reason"], each["time"]) for name, each in said.items()} == {
        f"{name}[]": ("differs-from-base", None) for name in WRONG if name != "nothing"
    }


MANY = """
import triton
for n in range(300):
    triton.testing.do_bench(lambda: n)
"""


def test_a_budget_ends_within_a_pair_of_processes(compare):
    done = compare(files(MANY), files(MANY), "--budget", "0.05")
    said = verdicts_of(done).values()
    assert {each["reason"] for each in said} == {"budget-spent"}
    assert 0 < sum(each["time"] is not None or each["gpu_s"] > 0 for each in said) < 300


def test_of_many_verdicts_the_gravest_are_explained(capsys):
    many = [
        dataclasses.replace(
            bare_verdict(f"a.b[n={n}]", Case("a", "b", {"n": n}), "inconclusive", "too-noisy"),
            message=f"{n}.",
        )
        for n in range(150)
    ]
    grave = bare_verdict("a.c[]", Case("a", "c", {}), "failed", "differs-from-base")
    _print_reasons([*many, grave], "", units=PROCESSES)
    told = capsys.readouterr().out
    assert told.startswith("failed a.c[]")
    assert told.endswith("51 more lines of reasons: --json has them all.\n")


def test_outputs_that_differ_may_be_only_noted(compare):
    said = verdicts_of(compare(files(), files(result=PERMILLE), "--outputs", "note"))
    assert said["softmax[n=256]"]["status"] == "unchanged"
    assert said["softmax[n=256]"]["outputs"]["reason"] == "differ"


def test_a_wider_tolerance_of_outputs_holds(compare):
    said = verdicts_of(compare(files(), files(result=PERMILLE), "--rtol", "0.001"))
    assert said["softmax[n=256]"]["status"] == "unchanged"
    assert 0 < said["softmax[n=256]"]["outputs"]["error"] < 1


REPORT = """
import numpy as np
import triton
from triton.testing import do_bench, Benchmark, perf_report
from ops import relu, softmax
sizes = [64, 128]
@perf_report(Benchmark(["rows"], sizes, "provider", ["mine", "numpy"], "softmax", {"columns": 8}))
def speed(rows, columns, provider):
    x = np.random.rand(rows, columns).astype("f4")
    fn = {"mine": lambda: softmax(x), "numpy": lambda: relu(x, x.copy())}[provider]
    ms, low = do_bench(fn, quantiles=[0.5, 0.2])
    return ms, low
speed.run(show_plots=True, print_data=True)
"""


def test_rows_of_a_report_are_named_by_what_varies_and_no_window_opens(compare):
    said = verdicts_of(compare(files(REPORT), files(REPORT)))
    assert list(said) == [f"speed_{name}[rows={rows}]" for rows in (64, 128) for name in ("mine", "numpy")]


OWN = """
import time
import numpy as np
from ops import softmax
def {name}(count, fn, *args):
    for _ in range(count):
        fn(*args)
    return "a sentence"
x = np.ones((8, 8), "f4")
assert {name}(3, softmax, x) == "a sentence"
"""


@pytest.mark.parametrize("timer", ["timeit", "__main__:timeit"])
def test_a_timer_of_the_authors_own_is_named(compare, timer):
    script = OWN.format(name="timeit")
    done = compare(files(script), files(script), "--timer", timer, "--budget", "0.1")
    assert list(verdicts_of(done)) == ["softmax[]"]


def test_a_script_that_calls_no_known_timer_measured_nothing(compare):
    script = OWN.format(name="timeit")
    done = compare(files(script), files(script))
    assert "--timer NAME" in done.failed_with(ExitCode.NOT_MEASURED)


def test_both_sides_may_run_heads_script(compare):
    old = SCRIPT.replace("(256, 512)", "(128,)")
    done = compare(files(old), files(), "--script-from", "head")
    assert list(verdicts_of(done)) == ["softmax[n=256]", "softmax[n=512]", "relu[]"]
    assert "--script-from head" in done.err


def test_base_runs_heads_script_where_it_has_none(compare):
    without = {name: text for name, text in files().items() if name != "bench.py"}
    done = compare(without, files())
    assert {each["status"] for each in verdicts_of(done).values()} == {"unchanged"}
    assert "it has no such script" in done.err


def test_a_kernel_in_the_script_itself_is_each_sides_own(compare):
    slower = SCRIPT.replace("lambda: softmax(x)", "lambda: (softmax(x), softmax(x))")
    said = verdicts_of(compare(files(), files(slower), "--outputs", "note"))
    assert said["softmax[n=256]"]["status"] == "regression"


def test_each_side_runs_its_own_script(compare):
    old = SCRIPT.replace("(256, 512)", "(256, 128)")
    said = verdicts_of(compare(files(old), files()))
    assert {name: each["status"] for name, each in said.items()} == {
        "softmax[n=256]": "unchanged",
        "softmax[n=512]": "new",
        "softmax[n=128]": "missing",
        "relu[]": "unchanged",
    }


def test_calls_in_another_order_are_measured_too(compare):
    old = SCRIPT.replace("(256, 512)", "(512, 256)")
    said = verdicts_of(compare(files(old), files()))
    assert {each["status"] for each in said.values()} == {"unchanged"}
    assert len(said) == 3


ENDS = {
    "exits with 1": ("raise SystemExit(1)", "exited with status 1"),
    "an import that base lacks": ("import absent_everywhere", "absent_everywhere"),
}


@pytest.mark.parametrize(("line", "told"), ENDS.values(), ids=ENDS)
def test_a_script_that_fails_tells_how_it_ended(compare, line, told):
    done = compare(files(), files(f"{line}\n{SCRIPT}"))
    verdict = verdicts_of(done)["script[]"]
    assert verdict["status"] == "failed"
    assert told in verdict["message"] + verdict["log"]


def test_one_side_that_fails_leaves_the_other_no_verdict(compare):
    done = compare(files(), {**files(), "ops.py": "raise ImportError('broken at head')"})
    said = verdicts_of(done)
    assert list(said) == ["script[]", "softmax[n=256]", "softmax[n=512]", "relu[]"]
    assert {(each["status"], each["side"]) for each in said.values()} == {("failed", "head")}


def test_timing_in_several_processes_at_once_is_refused(compare):
    script = f"import os\nchild = os.fork()\n{SCRIPT}\nif child:\n    os.waitpid(child, 0)"
    done = compare(files(script), files(script))
    assert "several-processes" in {each["reason"] for each in verdicts_of(done).values()}


def test_calls_before_a_failure_are_judged(compare):
    said = verdicts_of(compare(files(), files(write="raise ValueError('no such path')")))
    assert {name: each["status"] for name, each in said.items()} == {
        "script[]": "failed",
        "softmax[n=256]": "unchanged",
        "softmax[n=512]": "unchanged",
        "relu[]": "failed",
    }
    assert "no such path" in said["relu[]"]["message"]


def test_two_scripts_of_one_name_have_names_of_their_own(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    commit(repository, {**files(), "a/bench.py": SCRIPT, "b/bench.py": SCRIPT}, 1)
    given = [word for folder in "ab" for word in ("--script", f"PYTHONPATH=. python {folder}/bench.py")]
    done = harness("compare", "HEAD", *given, "--budget", "0.01", "--json", cwd=repository)
    suites = {each["comparison"]["head"]["suite"] for each in done.json}
    assert suites == {"PYTHONPATH_python_a_bench_py", "PYTHONPATH_python_b_bench_py"}


def test_options_of_scripts_need_a_script(harness, tmp_path):
    commit(make_repository(tmp_path / "p"), files(), 1)
    done = harness("compare", "HEAD", "--timer", "timeit", cwd=tmp_path / "p")
    assert "--script" in done.failed_with(ExitCode.USAGE)


# Names


@dataclass(frozen=True)
class Call:
    functions: tuple[str, ...] = ("speed",)
    calls: str = ""
    variables: tuple[dict[str, int | str], ...] = field(default=({},))
    test: str = ""
    params: dict[str, int | float | str] = field(default_factory=dict)


def spelt(*sides):
    return [[f"{each.kernel}{dict(each.sizes) or ''}" for each in names] for names in names_of(sides)]


def calls(*variables):
    return [Call(variables=(each,)) for each in variables]


def test_tests_of_pytest_have_names_that_no_other_test_has():
    params: list[dict[str, int | float | str]] = [
        {},
        {"text": "a/b"},
        {"text": "a b"},
        {"n": 64, "dtype": "f16"},
        {"n": 64, "dtype": "f32"},
    ]
    made = [
        Call(test=f"t.py::test_x[{number}]" if number else "t.py::test_x", params=each)
        for number, each in enumerate(params)
    ]
    unnamed = Call(test="t.py::test_x[object0]"), Call(test="t.py::test_x[object1]")
    [names] = names_of([[*made, *unnamed]])
    assert len(set(names)) == len(names) == 7
    assert [(each.kernel, dict(each.sizes)) for each in (names[0], names[3])] == [
        ("t_test_x", {}),
        ("t_test_x_dtype_f16", {"n": 64}),
    ]


def test_a_name_has_the_fewest_variables_that_tell_calls_apart():
    given = [{"n": n, "provider": p, "twice": 2 * n} for n in (1, 2) for p in ("a", "b")]
    [names] = spelt(calls(*given))
    assert names == ["speed_a{'n': 1}", "speed_b{'n': 1}", "speed_a{'n': 2}", "speed_b{'n': 2}"]


def test_what_two_sides_do_not_have_in_common_is_in_no_name():
    base = calls(*({"version": "1.0", "n": n} for n in (1, 2)))
    head = calls(*({"version": "1.1", "n": n} for n in (1, 2)))
    first, second = spelt(base, head)
    assert first == second == ["speed{'n': 1}", "speed{'n': 2}"]


def test_a_new_argument_a_new_size_and_another_order_leave_names_as_they_are():
    base = calls({"n": 1}, {"n": 2})
    head = calls({"n": 3, "eps": "1e-06"}, {"n": 2, "eps": "1e-06"}, {"n": 1, "eps": "1e-06"})
    first, second = spelt(base, head)
    assert set(first) <= set(second)


def test_a_number_that_no_size_can_hold_is_in_a_name_only_where_nothing_else_tells():
    [names] = spelt(calls(*({"flops": 4 * n**3, "n": n} for n in (1024, 2048))))
    assert names == ["speed{'n': 1024}", "speed{'n': 2048}"]


def test_calls_that_nothing_tells_apart_are_told_by_their_place():
    [names] = names_of([calls({"n": 1}, {"n": 1})])
    assert [(dict(each.sizes), each.unstable) for each in names] == [({}, False), ({"call": 2}, True)]


# Launches behind a hold


class Card:
    """Stands in for PyTorch on a card: the host enqueues, and the card works behind it. Times in ns."""

    def __init__(self, monkeypatch):
        self.host = self.card = 0.0
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True,
            synchronize=self.synchronize,
            Event=lambda enable_timing: Event(self),
            _sleep=lambda cycles: self.work(cycles / 1.5),
        )
        self.int8 = "int8"
        monkeypatch.setitem(sys.modules, "torch", self)
        monkeypatch.setattr(time, "perf_counter_ns", lambda: self.host)

    def empty(self, *_args, **_kwargs):
        return SimpleNamespace(zero_=lambda: self.work(1e4))

    def work(self, duration_ns):
        self.host += 1000
        self.card = max(self.card, self.host) + duration_ns

    def synchronize(self):
        self.host = max(self.host, self.card)


@dataclass
class Event:
    card: Card
    at: float = 0.0

    def record(self):
        self.at = max(self.card.card, self.card.host)

    def query(self):
        return self.at <= self.card.host

    def synchronize(self):
        self.card.host = max(self.card.host, self.at)

    def elapsed_time(self, other):
        return (other.at - self.at) / 1e6


def test_launches_for_which_the_host_was_late_do_not_count(monkeypatch):
    card = Card(monkeypatch)
    enqueueing_ns = itertools.cycle([5e3, 5e3, 9e5])

    def run():
        card.work(2e4)
        card.host += next(enqueueing_ns)
        card.work(3e4)

    times_ns = timers.ColdLaunches(run, ()).times_ns(20)
    assert set(np.round(times_ns)) == {5e4}
    assert len(times_ns) > 20


def test_a_function_that_waits_for_the_card_is_timed_as_it_is(monkeypatch):
    card = Card(monkeypatch)

    def run():
        card.work(2e4)
        card.synchronize()

    times_ns = timers.ColdLaunches(run, ()).times_ns(1)
    assert len(times_ns) > 10
    assert min(times_ns) >= 2e4


def test_a_loop_of_an_authors_timer_is_held_too(monkeypatch):
    card = Card(monkeypatch)

    def run():
        card.host += 5e4
        card.work(2e4)

    call = timers.OwnCall("timeit", lambda fn: fn(), (run,), {})
    times_ns, count = call.sample(10)
    assert (call.clock, count > 10) == ("event", True)
    assert times_ns == [pytest.approx(2e4)]


def test_a_loop_for_which_the_host_was_late_is_timed_again(monkeypatch):
    card = Card(monkeypatch)
    calls = itertools.count()
    slow_from = 1_000_000

    def run():
        card.host += 1e5 if next(calls) > slow_from else 5e4  # beyond the hold that was enough before
        card.work(2e4)

    call = timers.OwnCall("timeit", lambda fn: fn(), (run,), {})
    _, count = call.sample(10)
    slow_from = next(calls) + count // 4  # in the loop that counts, not in the one before it
    times_ns, _ = call.sample(10)
    assert times_ns == [pytest.approx(2e4)]


@dataclass(unsafe_hash=True)
class Config:
    size: int
    pre_hook: Any = None

    def __str__(self):
        return f"size {self.size}"


class Autotuner:
    """Stands in for Triton's: it has tuned only where its function was called."""

    def __init__(self, kernel):
        self.fn, self.cache, self.tuned = SimpleNamespace(fn=kernel), {}, 0

    def check_disk_cache(self, _key, _configs, bench):
        bench()
        return False


def kernel_of(source, **names):
    return SimpleNamespace(src=source, __globals__=names)


HELPER = kernel_of("def helper(x):\n    return 2 * x\n")
KERNEL = "def kernel(x):\n    return helper(x) * WIDTH\n"


@pytest.fixture
def best(tmp_path, monkeypatch):
    """Returns the configuration that a kernel runs in a fresh process, by the times that it would measure."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setitem(sys.modules, "torch", None)
    tuning = type("Tuning", (Autotuner,), {})
    autotuning.keep_tuned(SimpleNamespace(Autotuner=tuning))
    configs = [Config(size, pre_hook=print) for size in (16, 32, 64)]

    def run(kernel, *times, key="4096"):
        tuner = tuning(kernel)

        def bench():
            tuner.cache[key] = configs[times.index(min(times))]

        tuner.check_disk_cache(key, configs, bench)
        return tuner.cache[key]

    return run


def test_every_process_runs_what_the_autotuner_found_first(best):
    kernel = kernel_of(KERNEL, helper=HELPER, WIDTH=4)
    found = best(kernel, 3, 1, 2)
    assert (found.size, found.pre_hook) == (32, print)
    assert best(kernel, 1, 2, 3) == found
    assert best(kernel, 1, 2, 3, key="8192").size == 16


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (kernel_of(f"# a comment\n\n{KERNEL}    # and another\n", helper=HELPER, WIDTH=4), True),
        (kernel_of(KERNEL.replace("helper(x)", "x"), helper=HELPER, WIDTH=4), False),
        (kernel_of(KERNEL, helper=HELPER, WIDTH=8), False),
        (kernel_of(KERNEL, helper=kernel_of(HELPER.src.replace("2", "3")), WIDTH=4), False),
    ],
    ids=["comments", "another body", "another constant", "another helper"],
)
def test_a_kernel_is_tuned_anew_where_its_code_differs(best, other, same):
    best(kernel_of(KERNEL, helper=HELPER, WIDTH=4), 3, 1, 2)
    assert best(other, 1, 2, 3).size == (32 if same else 16)


def test_a_helper_of_another_module_is_a_kernels_code(best):
    kernel, other = KERNEL.replace("helper(", "ops.helper("), kernel_of(HELPER.src.replace("2", "3"))
    assert best(kernel_of(kernel, ops=SimpleNamespace(helper=HELPER), WIDTH=4), 3, 1, 2).size == 32
    assert best(kernel_of(kernel, ops=SimpleNamespace(helper=HELPER), WIDTH=4), 1, 2, 3).size == 32
    assert best(kernel_of(kernel, ops=SimpleNamespace(helper=other), WIDTH=4), 1, 2, 3).size == 16


def test_a_script_is_calibrated_by_its_calls(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    commit(repository, files(), 1)
    results = tmp_path / "results"
    given = ("--script", RUN, "--results", str(results), "--json")
    done = harness("calibrate", "--trials", "2", *given, cwd=repository)
    [told] = done.json
    assert done.status == ExitCode.FINE
    assert told["calibration"]["verdicts"] == 6
    assert set(told["calibration"]["apart"]) == {
        "bench.softmax[n=256]",
        "bench.softmax[n=512]",
        "bench.relu[]",
    }
    assert told["calibration"]["cases"] == {}
    [compared] = harness("compare", "HEAD", *given, cwd=repository).json
    assert compared["comparison"]["calibrated_at"] == told["calibration"]["measured_at"]


@pytest.mark.parametrize(
    "more", [("--planted-trials", "2"), ("--levels", "1"), ("--l2", "hot"), ("--size", "9")]
)
def test_a_scripts_calls_are_not_slowed_to_calibrate(harness, tmp_path, more):
    done = harness("calibrate", "--script", RUN, *more, cwd=make_repository(tmp_path / "p"))
    assert done.status == ExitCode.USAGE
    assert more[0] in done.err


@pytest.mark.parametrize("more", [("--size", "9"), ("--l2", "hot"), ("--max-time", "1")])
def test_options_of_suites_are_refused_for_a_script_that_is_run(harness, tmp_path, more):
    done = harness("run", "--script", RUN, *more, cwd=make_repository(tmp_path / "p"))
    assert done.status == ExitCode.USAGE
    assert more[0] in done.err


# Arrays


def test_everything_that_a_function_changes_is_put_back():
    x, out = np.ones(4, "f4"), np.zeros(4, "f4")

    def double():
        np.multiply(x, 2, out=out)
        x.fill(7)

    seen = arrays.Observed(double, double, ())
    told = seen.once(1)
    assert set(told["outputs"]) == {"out", "x"}
    assert (x == 1).all()
    assert (out == 0).all()


def test_arrays_are_reached_through_partials_methods_and_containers():
    class Layer:
        def __init__(self):
            self.weight = np.ones(2, "f4")
            self.parts = [{"bias": np.zeros(3, "f4")}]

        def forward(self):
            return self.weight

    layer = Layer()
    found = {name for name, _ in arrays.walk(layer.forward, "fn")}
    assert found == {"fn.weight", "fn.parts[0]['bias']"}


def outputs_of(base, head, tmp_path, rtol=None, x_at_head=None):
    """Compare what two functions of x return, as two processes would."""
    sides = {"base": base, "head": head}
    observed = {}
    for side, function in sides.items():
        x = np.linspace(-1, 1, 64, dtype="f4")
        if side == "head" and x_at_head is not None:
            x = x_at_head
        run = lambda function=function, x=x: function(x)  # noqa: E731
        observed[side] = arrays.Observed(run, lambda x=x: x, ())

    def observe(side, asked):
        told = observed[side].once(1, **asdict(asked))
        return Done(inputs=told["inputs"], outputs=told["outputs"], written=told["written"])

    return OutputsCheck(observe, tmp_path, rtol).run()


def test_nan_on_both_sides_is_the_same(tmp_path):
    found = outputs_of(
        lambda x: np.where(x > 0, np.nan, x), lambda x: np.where(x > 0, np.nan, x + 0), tmp_path
    )
    assert (found.difference, found.error) == ("", 0.0)


def test_integers_are_equal_or_not(tmp_path):
    found = outputs_of(lambda x: np.arange(9), lambda x: np.arange(9) + (np.arange(9) == 4), tmp_path)
    assert re.search(r"returned is 5 at \[4\], and 4 at base; 1 elements? differ", found.difference)


def test_an_integer_that_differs_from_itself_is_no_difference(tmp_path):
    counter = itertools.count()
    assert outputs_of(lambda x: next(counter), lambda x: next(counter), tmp_path).difference == ""


def test_what_differs_from_itself_is_tolerated_four_times(tmp_path):
    noise = iter(np.random.default_rng(1).normal(scale=1e-3, size=(100, 64)))

    def random(x):
        return x + next(noise).astype("f4")

    assert outputs_of(random, random, tmp_path).difference == ""
    assert outputs_of(random, lambda x: random(x) + 0.1, tmp_path).difference


@pytest.mark.parametrize(
    "content", [b"", b"[1]\n", b'[["a", "|O", [2], "x"]]\n', b'[["a", "<f4", [9], "x"]]\n1234']
)
def test_a_file_of_outputs_that_is_none_is_told(tmp_path, content):
    (tmp_path / "base.arrays").write_bytes(content)
    with pytest.raises(MeasureError, match="cannot be read"):
        read_arrays(tmp_path / "base.arrays")


def add_one(x):
    x += 1
    return 2 * x


def add_more(x):
    x += 1
    x[3] += 0.1
    return 2 * x


@pytest.mark.parametrize("function", [lambda x: 2 * x, add_one])
def test_floats_that_nobody_seeded_are_bases_on_both_sides(tmp_path, function):
    of_head = np.random.default_rng(1).normal(size=64).astype("f4")
    found = outputs_of(function, function, tmp_path, x_at_head=of_head)
    assert (found.difference, found.reason, found.error) == ("", "", 0.0)
    assert outputs_of(function, add_more, tmp_path, x_at_head=of_head).difference


def test_floats_that_are_too_many_are_not_made_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "MOST_BYTES", 10)
    of_head = np.random.default_rng(1).normal(size=64).astype("f4")
    found = outputs_of(lambda x: 2 * x, lambda x: 2 * x, tmp_path, x_at_head=of_head)
    assert (found.reason, found.array) == ("inputs-differ", "x")


def test_other_indices_are_named_and_nothing_is_compared(tmp_path):
    found = outputs_of(lambda x: x + 1, lambda x: x + 1, tmp_path, x_at_head=np.arange(64))
    assert (found.reason, found.array, found.difference) == ("inputs-differ", "x", "")


@pytest.mark.parametrize("kind", [float, np.float32, int])
def test_a_number_that_is_returned_is_compared(tmp_path, kind):
    assert outputs_of(lambda x: kind(9 * x[0]), lambda x: kind(9 * x[0]), tmp_path).error == 0.0
    assert outputs_of(lambda x: kind(9 * x[0]), lambda x: kind(8 * x[0]), tmp_path).difference


def test_nothing_returned_or_changed_was_not_seen(tmp_path):
    assert outputs_of(lambda x: None, lambda x: None, tmp_path).reason == "not-seen"


# Frames


def test_what_a_lambda_calls_is_its_name():
    x = np.ones(2)
    assert frames.called_by(lambda: np.sort(x)) == "sort"
    assert frames.called_by(lambda: x.sum(axis=0)) == "sum"
    assert frames.called_by("softmax(x, dim=-1)") == "softmax"


def test_values_of_names_are_short_and_plain():
    assert frames.plain("a/path/of some file") is None
    assert frames.plain(0.5) is None
    assert frames.plain((2, 3)) == "2x3"
    assert frames.plain("512") == 512
    assert frames.plain(np.dtype("float16")) == "float16"


# Other commands


def history(root, *costs):
    """A repository whose commits differ in what relu costs."""
    repository = make_repository(root / "p")
    for day, cost in enumerate(costs, 1):
        commit(repository, {"day": str(day), **files(relu=cost)}, day)
    return repository


def test_a_bisection_finds_the_commit_that_slowed_a_call(harness, tmp_path):
    repository = history(tmp_path, 100, 100, 100, 130, 130)
    given = ("bench.relu[]", "HEAD~4", "HEAD", "--script", RUN, "--json")
    done = harness("bisect", *given, cwd=repository)
    assert done.status == ExitCode.FINE
    assert [each["subject"] for step in done.json["steps"] for each in step["suspects"]] == [
        git(repository, "log", "-1", "--format=%s", "HEAD~1").strip()
    ]


def test_a_pull_request_is_compared_by_the_scripts_of_the_configuration(harness, tmp_path):
    repository = make_repository(tmp_path / "p")
    commit(repository, files(), 1)
    git(repository, "branch", "base")
    commit(repository, {**files(relu=150), "harness.toml": f'scripts = ["{RUN}"]\n'}, 2)
    done = harness("ci", "compare", "--base", "base", "--json", cwd=repository)
    assert done.status == ExitCode.REGRESSION
    review = decode_review((repository / "perf-review" / "review.json").read_bytes())
    assert [case.status for card in review.cards for case in card.cases].count("regression") == 1
    comment = (repository / "perf-review" / "comment.md").read_text()
    assert "same-as-base" in comment
    assert "harness compare" not in comment, "it would need the script's command"


TORCH = """
import os
class Tensor: ...
strided = "strided"
def manual_seed(_): ...
with open(os.environ["IMPORTS"], "a") as file:
    file.write(f"{os.getpid()}\\n")
"""
CUDA = """
opened = False
def is_initialized():
    return opened
def synchronize(): ...
def _lazy_init():
    global opened
    opened = True
"""


@pytest.fixture
def with_card(tmp_path, monkeypatch):
    """Files of a script that opens a card by a stand-in of PyTorch, and the file that tells of imports."""
    monkeypatch.setenv("IMPORTS", str(tmp_path / "imports"))
    script = "import torch.cuda\ntorch.cuda._lazy_init()\ntorch.cuda.opened = False\n" + SCRIPT
    more = {"torch/__init__.py": TORCH, "torch/cuda.py": CUDA}
    return lambda **changed: {**files(script, **changed), **more}, tmp_path / "imports"


def test_what_is_imported_before_a_card_is_opened_is_imported_once(compare, with_card):
    of, imports = with_card
    said = verdicts_of(compare(of(), of(relu=130)))
    assert {name: each["status"] for name, each in said.items()} == {
        "softmax[n=256]": "unchanged",
        "softmax[n=512]": "unchanged",
        "relu[]": "regression",
    }
    assert len(imports.read_text().split()) == 2, "one process of each side for six runs"


def test_a_copy_that_fails_tells_its_status_and_what_it_printed(compare, with_card):
    of, _ = with_card
    said = verdicts_of(compare(of(), {**of(), "ops.py": "raise ImportError('broken at head')"}))
    assert {(each["status"], each["side"]) for each in said.values()} == {("failed", "head")}
    assert "broken at head" in said["script[]"]["log"]
    assert "exited with status 1" in said["script[]"]["message"]
