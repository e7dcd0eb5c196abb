"""What a job of the history says of itself: devices that do not open, and kernels that were left out."""

from __future__ import annotations

import pytest

from tests import toy
from tests.support import run_command, write_files

SUITE = (
    toy.TWICE
    + """\
suite = Suite(
    "toy",
    Twice(),
    headline="GFLOP/s",
    kernels=[
        Kernel("here", {"cpu": HostFunction(double)}),
        Kernel("vendor", {"cpu": HostFunction(double, needs=("nvmath-python>=999",))}),
        Kernel("absent", {"cpu": HostFunction(double, needs=("a-package-that-nobody-has>=1",))}),
    ],
)
"""
)


@pytest.fixture
def in_workflow(tmp_path, monkeypatch):
    """The file of the step's summary."""
    path = tmp_path / "summary.md"
    path.touch()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = write_files(
        tmp_path_factory.mktemp("project"),
        {"pyproject.toml": "[tool.harness]\n", "kernels/toy/suite.py": SUITE},
    )
    done = run_command("run", "--device", "cpu:0", "--results", str(root / "results"), cwd=root)
    assert done.returncode == 0, done.stderr
    return root / "results"


def test_a_kernel_left_out_for_want_of_a_package_is_said_with_what_brings_it(results, harness, in_workflow):
    done = harness("ci", "measured", str(results), cwd=results)
    assert done.status == 0
    summary = in_workflow.read_text(encoding="utf-8")
    assert "| 1 | 1 | 0 | 2 <code>needs-package</code> |" in summary
    assert "toy.vendor needs the package nvmath-python" in summary
    assert "toy.absent needs the package a-package-that-nobody-has" in summary
    assert "harness ci init --with libraries --force" in summary
    [warning] = [line for line in done.err.splitlines() if line.startswith("::warning")]
    assert "leaves out 2 kernels: toy.vendor needs" in warning
    assert "And 1 more" in warning


def test_extras_that_are_there_stay_in_the_command_that_is_named(results, harness, in_workflow, tmp_path):
    write_files(tmp_path, {".github/requirements/measure.txt": "# With the extras: tvm\n"})
    assert harness("ci", "measured", str(results), cwd=tmp_path).status == 0
    assert "--with libraries,tvm --force" in in_workflow.read_text(encoding="utf-8")


def test_nothing_new_and_broken_records_are_said(tmp_path, harness, in_workflow):
    (tmp_path / "results" / "card").mkdir(parents=True)
    assert "Nothing new" in harness("ci", "measured", str(tmp_path / "results")).out
    (tmp_path / "results" / "card" / "20260101T000000Z-1a2b3c4d-toy-0.jsonl").write_text("{")
    (tmp_path / "results" / "card" / "20260101T000000Z-1a2b3c4d..2b3c4d5e-toy-0.jsonl").write_text("{")
    done = harness("ci", "measured", str(tmp_path / "results"))
    assert done.status == 0
    assert "1a2b3c4d-toy-0.jsonl" in done.err
    assert "1a2b3c4d..2b3c4d5e" not in done.out + done.err


def test_devices_that_work_are_printed_and_others_are_said(harness, in_workflow):
    done = harness("ci", "devices", "null,cpu:7")
    assert (done.status, done.out) == (0, "null\n")
    assert done.err.startswith("::warning title=cpu%3A7 is not measured::")
    assert "There is no device cpu:7" in in_workflow.read_text(encoding="utf-8")


def test_a_runner_on_which_no_device_works_fails(harness):
    done = harness("ci", "devices", "cpu:7,cpu:8")
    assert (done.status, done.out) == (3, "")
    assert "cpu:7 is not measured" in done.err


@pytest.mark.parametrize("specs", ["", "vulkan:0", "null,", "null;id"])
def test_what_is_no_device_is_refused(harness, specs):
    assert harness("ci", "devices", specs).status == 2
