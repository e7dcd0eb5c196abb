"""The pytest plugin: cases of the project's suites as tests, on top of pytest-benchmark::

    def test_kernel(gpu_benchmark, gpu_case):
        gpu_benchmark(gpu_case)

Every pytest session of an environment loads this module, so it imports nothing but pytest until a test asks
for one of its fixtures.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.integrations.pytest.session import GpuSession, OnBenchmark, WithoutBenchmark

MARKER = (
    "gpu_cases(*kernels, sizes, quick, margin, tolerance, requires, l2): which cases of the project's suites "
    "gpu_case stands for, by globs of kernels, and how they are measured; margin and tolerance in percent"
)
_OPTIONS: dict[str, dict[str, Any]] = {
    "--perf-device": {"metavar": "SPEC", "help": "cuda:0, opencl:0 or null; default: the first card."},
    "--perf-size": {
        "action": "append",
        "default": [],
        "metavar": "N|MxNxK",
        "help": "One number for every axis, or one an axis; repeatable.",
    },
    "--perf-quick": {"action": "store_true", "help": "The suites' small sizes; the default on a CPU."},
    "--perf-base": {
        "metavar": "REV",
        "help": "Compare the working tree with this commit: paired, kernel by kernel.",
    },
    "--perf-gate": {
        "action": "store_true",
        "help": "Fail where --perf-base finds a kernel slower or gone, or --benchmark-compare one gone.",
    },
    "--perf-fail-on": {
        "action": "append",
        "default": [],
        "metavar": "VERDICT",
        "help": "Verdicts that fail the gate; repeatable. Default: all but improvement and new.",
    },
    "--perf-no-wait": {
        "action": "store_true",
        "help": "Fail where another process measures on the device, instead of waiting for it.",
    },
    "--perf-any-machine": {
        "action": "store_true",
        "help": "Let --benchmark-compare show times of another card, or of another driver.",
    },
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu-harness", "GPU benchmarks (gpu-harness)")
    for name, how in _OPTIONS.items():
        group.addoption(name, **how)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    _check_options(config)
    session = GpuSession(config)
    config.pluginmanager.register(session, "gpu-harness-session")
    there = config.getoption("benchmark_storage", None) is not None
    fixture = OnBenchmark(session) if there else WithoutBenchmark()
    config.pluginmanager.register(fixture, "gpu-harness-fixture")


def _check_options(config: pytest.Config) -> None:
    """Raise UsageError for options that make no sense, or none together."""
    base, gate, fail_on = (config.getoption(f"perf_{name}") for name in ("base", "gate", "fail_on"))
    if gate and base is None and not config.getoption("benchmark_compare", None):
        raise pytest.UsageError(
            "--perf-gate has nothing to judge by: give --perf-base REV, or --benchmark-compare."
        )
    if fail_on:
        _check_verdicts(fail_on, gate=gate)
    disabled = config.getoption("benchmark_disable", None) and not config.getoption("benchmark_enable", None)
    if base is not None and disabled:
        raise pytest.UsageError("--perf-base compares times, and --benchmark-disable takes none: drop one.")
    distributed = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    given = [name for name in _OPTIONS if config.getoption(name)]
    if distributed and given:
        raise pytest.UsageError(f"{given[0]} cannot be used with pytest-xdist: {GpuSession.NO_XDIST}")


def _check_verdicts(fail_on: list[str], *, gate: bool) -> None:
    from harness.records import FAILING

    if not gate:
        raise pytest.UsageError("--perf-fail-on says which verdicts fail the gate: give --perf-gate as well.")
    unknown = [name for name in fail_on if name not in (*FAILING, "none")]
    if unknown:
        raise pytest.UsageError(
            f"--perf-fail-on {unknown[0]}: there is no such verdict. Expected {', '.join(FAILING)}, or none."
        )
