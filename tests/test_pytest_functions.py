"""gpu_benchmark called with a function: in a project without a suite and without a configuration."""

from __future__ import annotations

import json

import pytest

from tests.support import write_files
from tests.test_pytest_plugin import bed, beds, oldest, told  # noqa: F401

pytest_plugins = ["pytester"]

FUNCTIONS = """\
import pytest

@pytest.mark.parametrize("n", [8, 64])
def test_plain(gpu_benchmark, n):
    assert gpu_benchmark(sum, range(n)) == n * (n - 1) // 2

def test_setup(gpu_benchmark):
    made = []
    def inputs():
        made.append([3, 1, 2])
        return (made[-1],), {"reverse": True}
    assert gpu_benchmark(sorted, setup=inputs) == [3, 2, 1]
    assert len(made) > gpu_benchmark.stats.stats.rounds

def test_pedantic(gpu_benchmark):
    ended = []
    asked = {"rounds": 7, "warmup_rounds": 2, "teardown": ended.append}
    assert gpu_benchmark.pedantic(sum, args=([1],), **asked) == 1
    assert (gpu_benchmark.stats.stats.rounds, len(ended)) == (7, 10)
"""
WRONG = """\
import pytest

def test_arguments_twice(gpu_benchmark):
    gpu_benchmark(sorted, [1], setup=lambda: (([2],), {}))

def test_no_arguments(gpu_benchmark):
    gpu_benchmark(sorted, setup=lambda: 5)

def test_number(gpu_benchmark):
    gpu_benchmark(5)

def test_nothing(gpu_benchmark):
    gpu_benchmark()

def test_twice(gpu_benchmark):
    gpu_benchmark(sum, [1])
    gpu_benchmark(sum, [1])

def test_rounds(gpu_benchmark):
    gpu_benchmark.pedantic(sum, args=([1],), rounds=0)

def test_iterations(gpu_benchmark):
    gpu_benchmark.pedantic(sum, args=([1],), setup=print, iterations=2)

def test_raises(gpu_benchmark):
    gpu_benchmark(lambda: 1 / 0)

def test_skips(gpu_benchmark):
    gpu_benchmark(lambda: pytest.skip("no card"))
"""
TORCH = """\
class Tensor:
    is_cuda = True

class Event:
    def __init__(self, enable_timing):
        assert enable_timing
    def record(self):
        cuda.log.append("event")
    def synchronize(self):
        cuda.log.append("wait")
    def elapsed_time(self, end):
        return 2.5

class Buffer:
    def zero_(self):
        cuda.log.append("flush")

class cuda:
    log = []
    Event = Event
    def is_initialized():
        return True
    def get_device_name():
        return "Toy H100"
    def synchronize():
        cuda.log.append("synchronize")

int32 = "int32"

def empty(count, dtype, device):
    return Buffer()
"""
"""Stands for PyTorch with a card."""
ON_A_CARD = """\
import numpy as np
import torch
from harness.run.scripts.recorder.timers import PytestCall

def double(x):
    torch.cuda.log.append("call")
    return x

def test_tensor(gpu_benchmark):
    torch.cuda.log.clear()
    gpu_benchmark.pedantic(double, args=([torch.Tensor()],), rounds=2, warmup_rounds=0)
    one = ["flush", "event", "call", "event", "wait"]
    assert torch.cuda.log == ["call", *one, *one]

def test_hidden(gpu_benchmark):
    gpu_benchmark.pedantic(lambda: None, rounds=2)

def test_array_of_the_host(gpu_benchmark):
    torch.cuda.log.clear()
    gpu_benchmark.pedantic(double, args=(np.zeros(2),), rounds=1, warmup_rounds=0, iterations=1)
    assert torch.cuda.log == ["call", "synchronize", "call", "synchronize"]

def test_recorded(benchmark):
    torch.cuda.log.clear()
    kind = type(benchmark)
    PytestCall(kind.pedantic, kind.__call__, (benchmark, double, 1), {}).run()
    assert torch.cuda.log == ["synchronize", "call", "synchronize"]
"""
QUICK = "--benchmark-max-time=0.01"


def test_a_function_is_timed_and_its_result_returned(beds):  # noqa: F811
    beds.tests(FUNCTIONS)
    saved = beds.saved("-Werror", QUICK, device=None)["benchmarks"]
    assert [*saved] == ["test_plain[8]", "test_plain[64]", "test_setup", "test_pedantic"]
    found = saved["test_plain[64]"]
    assert 0 < found["stats"]["min"] < 1e-3
    assert found["extra_info"]["launches"] > 1
    assert saved["test_setup"]["extra_info"]["launches"] == 1
    assert (found["extra_info"]["clock"], found["extra_info"]["l2"]) == ("perf_counter", "hot")


def test_the_session_says_which_clock_took_the_times(bed):  # noqa: F811
    bed.tests(FUNCTIONS)
    done = bed.run(QUICK, device=None)
    place = "benchmarks/test_kernels.py::test_plain[8]"
    assert f"{place} and 3 more: the host's clock, perf_counter." in told(done)


def test_a_wrong_call_fails_with_a_sentence_and_an_error_is_the_function_s(bed):  # noqa: F811
    bed.tests(WRONG)
    done = bed.run(QUICK, "-Werror", device=None)
    done.assert_outcomes(failed=8, skipped=1)
    said = told(done)
    for sentence in (
        "gpu_benchmark was given arguments, and setup returned arguments as well",
        "setup returned 5; expected (args, kwargs) or nothing",
        "gpu_benchmark was called with 5, which is no function",
        "gpu_benchmark was called with None, which is no function",
        "gpu_benchmark was called twice in one test",
        "gpu_benchmark.pedantic has rounds=0; expected a whole number of at least 1.",
        "gpu_benchmark.pedantic has iterations=2, and a setup or teardown",
        "ZeroDivisionError: division by zero",
    ):
        assert sentence in said
    assert "function_timing.py" not in said
    assert "fixture.py" not in said.replace("pytest/fixture.py:", "")


def test_a_disabled_benchmark_is_called_once(bed):  # noqa: F811
    bed.tests(
        "def test_once(gpu_benchmark):\n    calls = []\n"
        "    assert gpu_benchmark(calls.append, 1) is None\n    assert calls == [1]\n"
    )
    bed.run("--benchmark-disable", device=None).assert_outcomes(passed=1)


def test_a_card_is_timed_by_its_framework_s_events_with_the_l2_cleared(bed):  # noqa: F811
    bed.tests(ON_A_CARD)
    write_files(bed.root / "benchmarks", {"torch.py": TORCH})
    bed.apart = True
    bed.run("--benchmark-json=saved.json", device=None).assert_outcomes(passed=4)
    content = json.loads((bed.root / "saved.json").read_text())
    saved = {each["name"]: each for each in content["benchmarks"]}
    clocks = {name: (each["extra_info"]["clock"], each["extra_info"]["l2"]) for name, each in saved.items()}
    assert clocks == {
        "test_tensor": ("torch.cuda.Event", "cold"),
        "test_hidden": ("torch.cuda.Event", "cold"),
        "test_array_of_the_host": ("perf_counter, with a wait for the device", "hot"),
    }
    assert saved["test_tensor"]["stats"]["data"] == [0.0025, 0.0025]
    assert saved["test_tensor"]["extra_info"]["device"] == "Toy H100"


def test_functions_run_untimed_in_processes_of_xdist(bed):  # noqa: F811
    pytest.importorskip("xdist")
    bed.tests(FUNCTIONS)
    bed.apart = True
    done = bed.run("-n", "2", "-k", "plain", device=None)
    done.assert_outcomes(passed=2)
