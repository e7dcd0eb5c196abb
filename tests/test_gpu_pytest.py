"""The pytest plugin and a pull request's report on a real card. Run with `pytest -m gpu`; $HARNESS_DEVICE
names the card.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.report.document.document import decode_review
from tests.support import GPU, IMPORT_PATH, git, run_command
from tests.support import commit as commit_files
from tests.test_gpu_compare import FILES, WASTE, body, card, project

__all__ = ["card", "project"]  # fixtures

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

TESTS = "def test_kernel(gpu_benchmark, gpu_case):\n    gpu_benchmark(gpu_case)\n"
SAME_SPEED = body("other").replace("value, 0.5f, at", "value, 0.5000001f, at")
"""Another constant: other code that takes the same time."""


def run_pytest(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plugins = ("-p", "pytest_benchmark.plugin", "-p", "harness.integrations.pytest.plugin")
    environment = {
        **os.environ,
        "PYTHONPATH": IMPORT_PATH,
        "HARNESS_DEVICE": GPU,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "200",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "benchmarks", *plugins, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture
def benchmarks(project):
    commit_files(project, {"benchmarks/test_kernels.py": TESTS}, 2)
    return project


def test_times_are_the_cards_own_with_its_clocks(benchmarks, tmp_path):
    done = run_pytest(benchmarks, f"--benchmark-json={tmp_path / 'saved.json'}")
    assert done.returncode == 0, done.stdout + done.stderr
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert saved["machine_info"]["gpu"]["uuid"].startswith("GPU-")
    assert len(saved["benchmarks"]) == 2
    for each in saved["benchmarks"]:
        info = each["extra_info"]
        assert each["options"]["timer"] == "device_clock"
        assert info["clock"] == "cuda-event"
        assert info["verified"] is True
        assert 100 < info["sm_clock_mhz"] < 5000
        assert info["gbytes_per_s"] == pytest.approx(2 * 4 * 2**24 / each["stats"]["median"] / 1e9, rel=1e-3)
        assert "SM MHz" in done.stdout


def test_the_gate_passes_on_what_did_not_change_and_on_code_of_the_same_speed(benchmarks):
    commit_files(benchmarks, {"kernels/poly/steady.cu": f"// a comment\n{body('steady')}"}, 3)
    commit_files(benchmarks, {"kernels/poly/other.cu": SAME_SPEED}, 4)
    done = run_pytest(benchmarks, "--perf-base", "HEAD~2", "--perf-gate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 unchanged, 1 identical" in done.stdout or "1 identical, 1 unchanged" in done.stdout
    assert "The gate passes." in done.stdout


def test_the_gate_fails_on_a_planted_slowdown_and_names_the_kernel(benchmarks):
    commit_files(benchmarks, {"kernels/poly/other.cu": body("other", WASTE)}, 3)
    done = run_pytest(benchmarks, "--perf-base", "HEAD~1", "--perf-gate")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED benchmarks/test_kernels.py::test_kernel[poly.other@16777216-head]" in done.stdout
    assert "slower" in done.stdout
    assert "Traceback" not in done.stdout
    assert "test_kernel[poly.steady@16777216-head]" not in done.stdout.partition("short test summary")[2]


def test_a_pull_requests_report_tells_of_it(project, tmp_path):
    git(project, "checkout", "--quiet", "-b", "topic")
    commit_files(project, {"kernels/poly/other.cu": body("other", WASTE)}, 3)
    out = tmp_path / "review"
    done = run_command("ci", "compare", "--device", GPU, "--base", "main", "--out", str(out), cwd=project)
    assert done.returncode == 1, done.stdout + done.stderr
    [one] = decode_review((out / "review.json").read_bytes()).cards
    cases = {case.kernel: case for case in one.cases}
    assert cases["steady"].status == "identical"
    assert cases["other"].status == "regression"
    assert cases["other"].attribution == "code"
    assert one.places["other"].path == "kernels/poly/other.cu"
    assert FILES["kernels/poly/other.cu"].startswith('extern "C"')
    assert "poly.other" in (out / "comment.md").read_text()
