"""The pytest plugin as its users meet it: projects in which pytest runs, with the newest pytest-benchmark
and, as a process of its own, with the oldest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cpuinfo  # type: ignore[import-untyped]  # noqa: F401 - else each session inside imports it anew
import psutil  # noqa: F401 - likewise
import pytest
import scipy.special  # noqa: F401 - likewise, and numpy's parts are not to be loaded twice in a process

from harness.errors import DeviceError, UsageError
from harness.integrations.pytest.report import other_card
from harness.integrations.pytest.session import case_options
from harness.records.record_files import read_comparison
from harness.run.device_session import find_device
from tests import toy
from tests.commits import KERNELS, MS, SUITE, files, make_project, only, takes
from tests.fork_server import WORKERS, ForkServer
from tests.support import (
    IMPORT_PATH,
    PYTEST_OPTIONS,
    commit,
    device_is_missing,
    in_workers,
    make_repository,
    programs,
    write_files,
)
from tests.support import KERNELS as OWN_KERNELS

pytest_plugins = ["pytester"]

TESTS = """\
def test_kernel(gpu_benchmark, gpu_case):
    gpu_benchmark(gpu_case)
"""
OWN_NAMES = """\
import pytest

@pytest.fixture(params=["a", "b"])
def gpu_case(request):
    return request.param

@pytest.fixture
def gpu_benchmark(benchmark):
    return lambda launch: benchmark.pedantic(launch, rounds=3)

def test_case(gpu_case):
    assert gpu_case in "ab"

@pytest.mark.parametrize("gpu_case", [1])
def test_parameter(gpu_case):
    assert gpu_case == 1

def test_time(gpu_benchmark):
    gpu_benchmark(lambda: sum(range(10_000)))
"""
"""A project that has never heard of ours."""
KERNEL = "benchmarks/test_kernels.py::test_kernel"
OLDEST = (f"pytest=={'8.4.0' if sys.version_info >= (3, 14) else '8.0.0'}", "pytest-benchmark==5.0.0")
"""pytest-benchmark 4 calls what Python 3.12 deprecates. pytest 8.0 is older than Python 3.14."""

MODULES = (
    *WORKERS,
    "pytest",
    "harness.run.compare",
    "harness.run.run",
    "harness.report.terminal.comparison_tables",
)
NO_CPUINFO = {"cpuinfo.py": "def get_cpu_info():\n    return {}\n"}
"""What pytest-benchmark asks about the processor, and saves. The real one takes two seconds of it."""


def installed(folder: Path, *requirements: str) -> str:
    """A folder with these packages and nothing that they need, to be put on the import path."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *requirements],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        why = f"{' '.join(requirements)} cannot be installed: {done.stderr.strip()}"
        if os.environ.get("HARNESS_REQUIRE_VERSIONS"):
            pytest.fail(f"HARNESS_REQUIRE_VERSIONS asks for it: {why}")
        pytest.skip(why)
    return str(folder)


@pytest.fixture(scope="session")
def oldest(tmp_path_factory):
    """What the oldest pytest and pytest-benchmark are forked from."""
    folder = installed(write_files(tmp_path_factory.mktemp("oldest"), NO_CPUINFO), *OLDEST)
    with contextlib.closing(ForkServer(MODULES, before=(folder,))) as server:
        yield server


@pytest.fixture(scope="session")
def pygal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pygal")
    return installed(folder, "pygal", "pygaljs", "importlib-metadata", "zipp")


class Bed:
    """A project, and pytest in it."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self.monkeypatch = pytester, monkeypatch
        self.apart = False
        """True if pytest runs in its own process: with other packages, or signals."""
        self.server = programs
        self.root = pytester.path
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
        monkeypatch.setenv("PYTEST_ADDOPTS", PYTEST_OPTIONS)  # pytester has removed it
        self.columns(200)
        monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
        monkeypatch.setattr("cpuinfo.get_cpu_info", dict)

    def columns(self, number: int) -> None:
        self.monkeypatch.setenv("COLUMNS", str(number))

    def path(self, folder: str) -> None:
        self.apart = True
        self.monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, IMPORT_PATH]))

    def tests(self, text: str = TESTS, name: str = "test_kernels.py") -> None:
        write_files(self.root / "benchmarks", {name: text})

    def two_commits(self, kernels: Mapping[str, Any]) -> None:
        """A project with a suite at two commits."""
        make_project(self.root, kernels)
        self.tests()

    def toy(self) -> None:
        """A project with the suite of the other tests at one commit."""
        commit(make_repository(self.root), toy.FILES, 1)
        self.tests()

    def script(self, script: Mapping[str, Any]) -> None:
        write_files(self.root, {"script.json": json.dumps(script)})
        self.monkeypatch.setenv("HARNESS_NULL_SCRIPT", str(self.root / "script.json"))

    def run(self, *arguments: str, device: str | None = "null", at: str = "benchmarks") -> pytest.RunResult:
        """Whatever happens, no traceback comes out."""
        chosen = ("--perf-device", device) if device else ()
        if self.apart:
            self.monkeypatch.setattr(subprocess, "Popen", self.server.popen)
        run = self.pytester.runpytest_subprocess if self.apart else self.pytester.runpytest_inprocess
        done = run(at, "-ra", *chosen, *arguments)
        assert "INTERNALERROR" not in told(done)
        assert "Traceback" not in told(done)
        return done

    def saved(self, *arguments: str, **options: Any) -> dict[str, Any]:
        """What --benchmark-json has of a run, with its benchmarks by name."""
        self.run(*arguments, "--benchmark-json=saved.json", **options)
        content: dict[str, Any] = json.loads((self.root / "saved.json").read_text())
        content["benchmarks"] = {each["name"]: each for each in content["benchmarks"]}
        return content


@pytest.fixture
def bed(pytester, monkeypatch):
    return Bed(pytester, monkeypatch)


@pytest.fixture(params=["newest", "oldest"])
def beds(request, bed):
    """The same with the newest, and with the oldest pytest and pytest-benchmark."""
    if request.param == "oldest":
        bed.server = request.getfixturevalue("oldest")
        bed.path(*bed.server.before)
    return bed


def told(done: pytest.RunResult) -> str:
    """Both outputs in one line."""
    return " ".join((done.stdout.str() + done.stderr.str()).split())


def usage_error(done: pytest.RunResult) -> str:
    """What a session says that ends before any test, as it was called wrongly."""
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    return told(done)


def failures(done: pytest.RunResult) -> dict[str, str]:
    """Sentence of every test that failed, by what stands in its brackets."""
    found = re.findall(r"^FAILED \S+\[(\S+)\] - Failed: (.*)$", done.stdout.str(), re.MULTILINE)
    return dict(found)


# Environments that have nothing to do with GPUs


def test_loading_the_plugin_loads_nothing_but_pytest():
    code = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport harness.integrations.pytest.plugin\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})\n"
        "print(*(name for name in sys.modules if name.startswith('harness.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
    )
    packages, ours = done.stdout.splitlines()
    foreign = set(packages.split()) - set(sys.stdlib_module_names)
    assert foreign == {"harness"}
    others = {name for name in ours.split() if not name.startswith("harness.integrations")}
    spec = {
        f"harness.suite.{name}"
        for name in (
            *("case_id", "device_facts", "kernel", "layout", "problem"),
            *("reference_function", "suite", "tuning"),
        )
    }
    writer = {"harness.records", "harness.records.line_writer"}
    assert others <= {"harness.errors", "harness.numbers", "harness.suite", *spec, *writer}


def test_a_session_without_gpu_tests_is_as_it_was(beds):
    beds.tests("def test_plain(benchmark):\n    assert benchmark(lambda: 1) == 1\n")
    done = beds.run("-Werror", "--benchmark-json=saved.json", "--benchmark-max-time=0.01", device=None)
    done.assert_outcomes(passed=1)
    assert "GPU" not in done.stdout.str().replace("gpu-harness", "")
    saved = json.loads((beds.root / "saved.json").read_text())
    assert "gpu" not in saved["machine_info"]


def test_fixtures_and_parameters_of_another_project_that_have_our_names_are_its_own(bed):
    bed.tests(OWN_NAMES)
    saved = bed.saved(device=None)["benchmarks"]
    assert saved["test_time"]["stats"]["min"] > 0


def test_a_fixture_that_wraps_ours_is_ours(bed):
    bed.toy()
    wrapper = "def gpu_benchmark(gpu_benchmark):\n    return gpu_benchmark\n"
    bed.tests(f"import pytest\n\n@pytest.fixture\n{wrapper}\n{TESTS}")
    assert bed.run("--perf-size=64").ret == pytest.ExitCode.OK


def test_without_pytest_benchmark_the_fixture_says_what_to_install(bed):
    bed.toy()
    bed.tests("def test_plain():\n    pass\n", "test_plain.py")
    done = bed.run("-p", "no:benchmark", "-Werror", "-k", "plain")
    done.assert_outcomes(passed=1, errors=1)
    assert "gpu_benchmark needs pytest-benchmark: pip install 'gpu-harness[pytest]'." in told(done)


# The working tree by itself


def test_a_case_is_measured_and_saved_with_all_that_is_known(beds):
    beds.toy()
    beds.script({"toy.plain": {"times_ns": [*[2e6] * 9, 3e6]}, "noise": None})
    saved = beds.saved("-Werror", "--perf-size", "64")
    assert [*saved["benchmarks"]] == ["test_kernel[toy.plain@64]", "test_kernel[toy.tiled@64]"]
    found = saved["benchmarks"]["test_kernel[toy.plain@64]"]
    assert set(found["stats"]["data"]) == {2e6 / 1e9, 3e6 / 1e9}
    assert found["stats"]["rounds"] >= 20
    assert found["stats"]["iterations"] == 1
    assert found["options"]["timer"] == "device_clock"
    assert found["group"] == "toy@64"
    assert found["params"] == {"gpu_case": "toy.plain@64"}
    info = found["extra_info"]
    head = beds.pytester.run("git", "rev-parse", "HEAD").outlines[0]
    assert info.pop("source_sha256")
    assert info.pop("harness_version")
    assert info.pop("gflops") == pytest.approx(64 / 2e6)
    assert info.pop("gbytes_per_s") == info.pop("rate") == pytest.approx(512 / 2e6)
    assert info == {
        "case": "toy.plain[n=64]",
        "dtype": "float32",
        "unit": "GB/s",
        "direction": "higher",
        "device": "null",
        "uuid": None,
        "driver": "1",
        "commit": head,
        "dirty": False,
        "clock": "scripted",
        "l2": "cold",
        "sm_clock_mhz": 1000.0,
        "memory_clock_mhz": 2000.0,
        "temperature_c": 50.0,
        "power_w": 100.0,
        "verified": True,
        "outputs": "verified",
    }
    assert saved["machine_info"]["gpu"] == {
        "name": "null",
        "vendor": "none",
        "kind": "other",
        "arch": "null",
        "uuid": None,
        "driver": "1",
    }


def test_what_is_wrong_fails_with_a_sentence_and_costs_no_other(bed):
    bed.two_commits(only("changed", "fresh_wrong", "build_head", "crash_head", "unfit"))
    done = bed.run("-Werror", "--benchmark-json=saved.json")
    saved = json.loads((bed.root / "saved.json").read_text())
    done.assert_outcomes(passed=1, failed=3, skipped=1)
    assert failures(done) == {
        "toy.fresh_wrong@64": "wrong-result: 1 of 64 elements of y are wrong on integers; the first, y[32], "
        "is 193 where 192 was expected.",
        "toy.build_head@64": "build-failed: toy.build_head does not compile.",
        "toy.crash_head@64": "crashed: The worker process was ended by SIGSEGV while verifying.",
    }
    assert "error: scripted fault" in told(done)
    assert "unfit needs CUDA (sm_70); null:0 is null." in told(done)
    assert [each["name"] for each in saved["benchmarks"]] == ["test_kernel[toy.changed@64]"]


def test_disabled_benchmarks_are_verified_and_not_timed(bed):
    bed.two_commits(only("changed", "fresh_wrong"))
    done = bed.run("-Werror", "--benchmark-disable")
    done.assert_outcomes(passed=1, failed=1)
    assert "wrong-result" in failures(done)["toy.fresh_wrong@64"]
    assert "GPU benchmarks" not in told(done)
    assert "Rounds" not in told(done)


def test_skipped_benchmarks_need_no_device(bed):
    bed.toy()
    bed.tests("def test_plain():\n    pass\n", "test_plain.py")
    bed.run("-Werror", "--benchmark-skip", device="null:9").assert_outcomes(passed=1, skipped=2)
    bed.run("-Werror", "--benchmark-only", "-k", "plain").assert_outcomes(passed=1, skipped=1)


def test_a_device_that_is_not_there_fails_each_test_with_a_sentence(bed):
    bed.toy()
    done = bed.run("-Werror", device="null:9")
    done.assert_outcomes(failed=2)
    sentence = "no-device: There is no device null:9. Devices of this backend: null:0 (null)."
    assert failures(done) == dict.fromkeys(["toy.plain@64", "toy.tiled@64"], sentence)


def test_what_users_know_of_pytest_benchmark_works(beds):
    beds.toy()
    done = beds.run("-Werror", "--benchmark-save=one", "--benchmark-save-data")
    done.assert_outcomes(passed=2)
    done = beds.run("-Werror", "--benchmark-autosave", "--benchmark-compare", "--benchmark-sort=name")
    done.assert_outcomes(passed=2)
    assert "Comparing against benchmarks from" in told(done)
    assert re.search(
        r"test_kernel\[toy.plain@64\] \(0001_one\) .* test_kernel\[toy.plain@64\] \(NOW\)", told(done)
    )
    compared = beds.pytester.run(
        sys.executable, "-m", "pytest_benchmark", "compare", "--group-by=param:gpu_case", "--csv=compared.csv"
    )
    assert compared.ret == 0
    assert "benchmark 'gpu_case=toy.plain@64': 2 tests" in told(compared)
    assert len((beds.root / "compared.csv").read_text().splitlines()) == 1 + 2 * 2
    profiled = beds.run("-Werror", "--benchmark-cprofile=tottime", "--benchmark-verbose", "-k", "plain")
    profiled.assert_outcomes(passed=1)


def test_histograms_are_drawn(bed, pygal):
    bed.path(pygal)
    bed.toy()
    bed.run("--benchmark-histogram=drawn").assert_outcomes(passed=2)
    assert "test_kernel[toy.plain@64]" in (bed.root / "drawn-toy@64.svg").read_text()


def test_a_users_own_benchmark_marker_wins_but_for_the_clock(bed):
    bed.toy()
    bed.tests(
        "import time, pytest\n"
        "pytestmark = pytest.mark.benchmark(group='all', timer=time.time)\n"
        "def test_module(gpu_benchmark, gpu_case):\n    gpu_benchmark(gpu_case)\n"
        "@pytest.mark.benchmark(group='own', disable_gc=True)\n"
        "def test_function(gpu_benchmark, gpu_case):\n    gpu_benchmark(gpu_case)\n"
    )
    found = bed.saved("-Werror", "-k", "plain")["benchmarks"]
    assert {name: (each["group"], each["options"]["disable_gc"]) for name, each in found.items()} == {
        "test_module[toy.plain@64]": ("all", False),
        "test_function[toy.plain@64]": ("own", True),
    }
    assert {each["options"]["timer"] for each in found.values()} == {"device_clock"}


def test_a_time_limit_of_the_users_is_not_for_measurements(bed):
    pytest.importorskip("pytest_timeout")
    bed.toy()
    bed.apart = True
    bed.tests(
        TESTS
        + "import pytest, time\n@pytest.mark.timeout(0.1)\ndef test_mine(gpu_benchmark, gpu_case):\n"
        + "    time.sleep(5)\n"
    )
    bed.run("--timeout=0.1", "-k", "plain").assert_outcomes(passed=1, failed=1)


def collected(done: pytest.RunResult) -> list[str]:
    """Return the texts in the brackets of every test."""
    return re.findall(r"::test_\w+\[(\S+)\]", done.stdout.str())


def marked(mark: str) -> str:
    return f"import pytest\n\n\n@pytest.mark.gpu_cases({mark})\n{TESTS}"


@pytest.mark.parametrize(
    ("mark", "labels"),
    [
        ("'toy.t*'", ["toy.tiled@64"]),
        (
            "'tiled', 'plain', sizes=[32, '16']",
            [f"toy.{k}@{n}" for k in ("plain", "tiled") for n in (32, 16)],
        ),
        ("'plain', sizes=8", ["toy.plain@8"]),
        ("'plain', quick=True", ["toy.plain@64"]),
        ("", ["toy.plain@64", "toy.tiled@64"]),
    ],
)
def test_a_marker_chooses_the_cases(bed, mark, labels):
    bed.toy()
    bed.tests(marked(mark))
    assert collected(bed.run("--collect-only", "-q", "--strict-markers")) == labels


def test_the_closest_marker_wins_and_the_command_line_over_all(bed):
    bed.toy()
    bed.tests(
        "import pytest\npytestmark = pytest.mark.gpu_cases('tiled', sizes=[8])\n"
        "@pytest.mark.gpu_cases(sizes=[16])\n"
        "def test_a(gpu_case):\n    assert (gpu_case.case.n, gpu_case.case.kernel) == (16, 'tiled')\n"
        "class TestB:\n    def test_b(self, gpu_case):\n        assert gpu_case.case.n == 8\n"
    )
    bed.run().assert_outcomes(passed=2)
    assert collected(bed.run("--collect-only", "-q", "--perf-size=4", "--perf-size=2", "--perf-graph")) == [
        *("toy.tiled@4", "toy.tiled@4,graph=1", "toy.tiled@2", "toy.tiled@2,graph=1") * 2
    ]


def test_a_capability_that_the_device_lacks_skips(bed):
    bed.toy()
    bed.tests(marked("'plain', requires='sm_80'"))
    done = bed.run("-Werror")
    done.assert_outcomes(skipped=1)
    assert "plain needs CUDA (sm_80); null:0 is null." in told(done)


def test_a_policy_of_the_cache_is_kept(bed):
    bed.toy()
    bed.tests(marked("'plain', l2='hot'"))
    [found] = bed.saved()["benchmarks"].values()
    assert found["extra_info"]["l2"] == "hot"


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (pytest.mark.gpu_cases(1), r"gpu_cases\(1,\): expected names of kernels"),
        (
            pytest.mark.gpu_cases(size=[1]),
            "has no 'size'; it has sizes, quick, margin, tolerance, requires, l2",
        ),
        (pytest.mark.gpu_cases(sizes=[]), r"gpu_cases has sizes=\[\]; expected sizes, such as \[512\]"),
        (pytest.mark.gpu_cases(sizes=[True]), "expected sizes"),
        (pytest.mark.gpu_cases(sizes=[1.5]), "expected sizes"),
        (pytest.mark.gpu_cases(quick=1), "has quick=1; expected True or False"),
        (pytest.mark.gpu_cases(margin=0), "has margin=0; expected percent, above 0 and below 100"),
        (pytest.mark.gpu_cases(margin=True), "expected percent"),
        (pytest.mark.gpu_cases(tolerance=float("nan")), "expected percent"),
        (pytest.mark.gpu_cases(tolerance="1"), "expected percent"),
        (pytest.mark.gpu_cases(requires="80"), "expected a compute capability, such as 'sm_80'"),
        (pytest.mark.gpu_cases(requires=80), "expected a compute capability"),
        (pytest.mark.gpu_cases(l2="warm"), "expected 'cold' or 'hot'"),
        (pytest.mark.gpu_cases(l2=["cold"]), "expected 'cold' or 'hot'"),
    ],
    ids=str,
)
def test_a_marker_that_makes_no_sense_is_refused(mark, words):
    with pytest.raises(UsageError, match=words):
        case_options([mark.mark])


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("size=[1]", "gpu_cases has no 'size'"),
        ("'plan'", "No kernel matches 'plan'. Did you mean plain"),
        ("sizes=[0]", "0 is out of range"),
        ("sizes=['1,2,3']", "has 3 numbers"),
    ],
)
def test_a_wrong_marker_ends_the_session_before_any_test(bed, mark, words):
    bed.toy()
    bed.tests(marked(mark))
    bed.tests("def test_plain():\n    pass\n", "test_plain.py")
    done = bed.run()
    assert words in usage_error(done)
    done.assert_outcomes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--perf-size=a"], "'a' is not an integer"),
        (["--perf-size=1,2,3"], "has 3 numbers; expected one"),
        (
            ["--perf-gate"],
            "--perf-gate has nothing to judge by: give --perf-base REV, or --benchmark-compare.",
        ),
        (["--perf-fail-on=new"], "give --perf-gate as well"),
        (
            ["--perf-fail-on=nosuch", "--perf-gate", "--perf-base=HEAD"],
            "--perf-fail-on nosuch: there is no such",
        ),
        (["--perf-base=HEAD", "--benchmark-disable"], "--perf-base compares times"),
        (["--perf-gpus=0", "--perf-base=HEAD"], "--perf-gpus and --perf-device exclude each other"),
        (["--perf-base=nosuch"], "No commit named 'nosuch'"),
        (["--perf-base="], "No commit named ''"),
        (["--perf-base=--output=/dev/null"], "No commit named '--output=/dev/null'"),
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense_end_the_session(bed, arguments, words):
    bed.toy()
    assert words in usage_error(bed.run(*arguments))


@pytest.mark.parametrize(
    ("project", "arguments", "words"),
    [
        ({}, [], "no folder with a suite.py matches kernels/*"),
        (toy.FILES, ["--perf-base=HEAD"], "is in no git repository: there are no commits to compare."),
        ({"kernels/toy/suite.py": "suite = None\n"}, [], "suite.py defines no `suite`"),
        ({**toy.FILES, "pyproject.toml": "[tool.harness]\nsuite = 1\n"}, [], "no such setting"),
    ],
    ids=["no suite", "no repository", "broken suite", "wrong configuration"],
)
def test_a_project_that_cannot_be_measured_ends_the_session(bed, project, arguments, words):
    write_files(bed.root, project)
    bed.tests()
    assert words in usage_error(bed.run(*arguments))


def test_a_file_without_settings_beside_the_tests_is_no_project(bed):
    bed.toy()
    (bed.root / "pyproject.toml").unlink()
    write_files(bed.root / "benchmarks", {"pyproject.toml": "[tool.other]\nsuites = 1\n"})
    bed.run(f"--rootdir={bed.root}", "-k", "plain").assert_outcomes(passed=1)


def test_what_the_fixture_is_given_must_be_a_case_and_once(bed):
    bed.toy()
    bed.tests(
        "def test_text(gpu_benchmark, gpu_case):\n    gpu_benchmark('toy.plain')\n"
        "def test_twice(gpu_benchmark, gpu_case):\n    gpu_benchmark(gpu_case)\n    gpu_benchmark(gpu_case)\n"
        "def test_more(gpu_benchmark, gpu_case):\n    assert gpu_benchmark(gpu_case)['verified'] is True\n"
    )
    done = bed.run("-k", "plain")
    done.assert_outcomes(passed=1, failed=2)
    assert "gpu_benchmark was called with 'toy.plain', which is no function." in told(done)
    assert "gpu_benchmark was called twice in one test" in told(done)


def test_two_suites_of_one_name_are_not_mixed_up(bed):
    suite = {name.replace("toy", "other"): text for name, text in toy.FILES.items() if "toy" in name}
    write_files(bed.root, {**toy.FILES, **suite})
    bed.tests(
        "def test_place(gpu_case):\n    print(gpu_case.label, 'lies in', gpu_case.pair.head.path.name)\n"
    )
    done = bed.run("-s", "-k", "plain")
    done.assert_outcomes(passed=2)
    assert "toy.plain@64 lies in other" in told(done)
    assert "toy.plain[n=64] lies in toy" in told(done)


def test_cases_that_no_label_tells_apart_are_refused(bed):
    for place in ("toy", "other", "third"):
        write_files(bed.root, {name.replace("/toy/", f"/{place}/"): text for name, text in toy.FILES.items()})
    bed.tests()
    assert "Two suites have a case toy.plain[n=64]: give one of them another name." in usage_error(bed.run())


def test_a_device_that_makes_no_sense_ends_the_session_and_fails_no_test(bed):
    bed.toy()
    bed.tests()
    assert "--perf-device: Unknown device 'foo'" in usage_error(bed.run(device="foo"))


def test_processes_side_by_side_are_refused(bed):
    pytest.importorskip("xdist")
    bed.apart = True
    bed.toy()
    bed.tests("def test_plain():\n    pass\n", "test_plain.py")
    assert (
        "--perf-device cannot be used with pytest-xdist: GPU benchmarks cannot share a card."
        in usage_error(bed.run("-n1"))
    )
    done = bed.run("-n1", device=None)
    done.assert_outcomes(passed=1, errors=2)
    assert "GPU benchmarks cannot share a card. Run them in one process: -n 0, or -p no:xdist." in told(done)
    bed.run("-n0").assert_outcomes(passed=3)


# Baselines that pytest-benchmark saved


def edit_saved(bed: Bed, card: Mapping[str, str] | None) -> None:
    """Let the saved file tell of a card that differs in this, or of none."""
    [path] = (bed.root / ".benchmarks").rglob("*.json")
    content = json.loads(path.read_text())
    own = {**content["machine_info"].pop("gpu", {}), "name": "null", "uuid": None, "driver": "1"}
    if card is not None:
        content["machine_info"]["gpu"] = {**own, "arch": "null", **card}
    path.write_text(json.dumps(content))


def test_another_machines_baseline_is_refused(bed):
    bed.toy()
    bed.run("--benchmark-save=one", "-k", "plain")
    for card, words in (
        ({"name": "NVIDIA A100"}, "It was measured on NVIDIA A100, and this is null."),
        ({"uuid": "GPU-1"}, "It was measured on null (GPU-1), and this is null."),
        ({"driver": "2"}, "It was measured with driver 2, and this is driver 1."),
        (None, "It was measured on a device without a name, and this is null."),
    ):
        edit_saved(bed, card)
        done = bed.run("--benchmark-compare", "-k", "plain")
        assert f"says nothing about the code. {words}" in usage_error(done)
        done.assert_outcomes(deselected=1)
    done = bed.run("--benchmark-compare", "--perf-any-machine", "-Werror", "-k", "plain")
    done.assert_outcomes(passed=1, deselected=1)
    assert bed.run("--benchmark-compare", "--collect-only").ret == pytest.ExitCode.OK


def test_cards_are_told_apart_by_what_matters():
    card = {"name": "NVIDIA H200", "uuid": "GPU-1", "arch": "sm_90", "driver": "570.1", "vendor": "NVIDIA"}
    assert other_card(card, card) == ""
    assert other_card({**card, "vendor": "Nvidia"}, card) == ""
    assert "H200 (GPU-2)" in other_card({**card, "uuid": "GPU-2"}, card)
    assert "driver 565" in other_card({**card, "driver": "565"}, card)
    assert "\x1b" not in other_card({**card, "name": "\x1b[2J"}, card)


def test_a_baseline_of_other_benchmarks_is_none_of_ours(bed):
    bed.toy()
    bed.tests("def test_plain(benchmark):\n    benchmark(lambda: 1)\n", "test_plain.py")
    bed.run("--benchmark-save=one", "--benchmark-max-time=0.01", at="benchmarks/test_plain.py")
    done = bed.run("--benchmark-compare", "--perf-gate", at="benchmarks/test_kernels.py")
    done.assert_outcomes(passed=2)
    assert "only benchmarks that are gone fail" in told(done)


GONE = (
    "missing: the baseline has this benchmark and this run has not. It was renamed or removed, or is "
    "measured at other sizes now."
)


def test_a_benchmark_that_is_gone_fails_the_gate(bed):
    bed.toy()
    bed.tests(name="test_gone.py")
    bed.run("--benchmark-save=one").assert_outcomes(passed=4)
    (bed.root / "benchmarks/test_gone.py").unlink()
    suite = toy.SUITE.replace('"plain", "plain.cu"', '"renamed", "plain.cu", entry="plain"')
    write_files(bed.root, {"kernels/toy/suite.py": suite})
    gate = ("--benchmark-compare", "--perf-gate", "-Werror", "--benchmark-disable")
    done = bed.run(*gate)
    done.assert_outcomes(passed=2, failed=3)
    assert set(failures(done).values()) == {GONE}
    assert f"FAILED {KERNEL}[toy.plain@64]" in told(done)
    assert "FAILED benchmarks/test_gone.py::test_kernel[toy.tiled@64]" in told(done)
    # Without the gate nobody asks for it.
    bed.run("--benchmark-compare", "--benchmark-disable").assert_outcomes(passed=2)


def test_what_is_not_asked_for_is_not_gone(bed):
    bed.toy()
    bed.tests(name="test_gone.py")
    bed.run("--benchmark-save=one").assert_outcomes(passed=4)
    (bed.root / "benchmarks/test_gone.py").unlink()
    suite = toy.SUITE.replace('"plain", "plain.cu"', '"renamed", "plain.cu", entry="plain"')
    write_files(bed.root, {"kernels/toy/suite.py": suite})
    gate = ("--benchmark-compare", "--perf-gate", "--benchmark-disable")
    bed.run(*gate, at="benchmarks/test_kernels.py").assert_outcomes(passed=2, failed=1)
    bed.run(*gate, at=f"{KERNEL}[toy.tiled@64]").assert_outcomes(passed=1)
    bed.run(*gate, "-k", "tiled and not test_gone").assert_outcomes(passed=1, deselected=4)
    bed.run(*gate, "-k", "plain and not test_gone").assert_outcomes(failed=1, deselected=4)
    deselected = (f"--deselect={KERNEL}[toy.plain@64]", "--deselect=benchmarks/test_gone.py")
    bed.run(*gate, *deselected).assert_outcomes(passed=2, deselected=3)
    only_benchmarks = ("--benchmark-compare", "--perf-gate", "--benchmark-only")
    bed.run(*only_benchmarks, "-k", "plain").assert_outcomes(failed=2, deselected=3)


# Two commits


GATED = {
    **only("slower", "faster", "changed", "untouched", "gone", "fresh", "build_head", "build_base", "unfit")
}


CARDS = ({"uuid": "NULL-a"}, {"uuid": "NULL-b"})
TWO = "--perf-gpus=null:0,null:1"


def test_like_cards_share_a_comparison(bed):
    bed.two_commits(GATED)
    bed.script({"cards": CARDS})
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", "--perf-explain", TWO, "-Werror", device=None)
    done.assert_outcomes(failed=4, passed=5, skipped=7)
    assert "No counters: The harness reads no hardware counters with the backend null." in told(done)
    assert {label.partition("@")[0] for label in failures(done)} == {
        "toy.slower",
        "toy.gone",
        "toy.build_head",
        "toy.build_base",
    }
    records = [read_comparison(path) for path in bed.root.glob("results/*/*.jsonl")]
    assert sorted(record.comparison.device.uuid or "" for record in records) == ["NULL-a", "NULL-b"]
    cases = [verdict.case for record in records for verdict in record.verdicts]
    assert len(cases) == len(set(cases)) == len(GATED) - 1, "one does not fit this device"


def test_a_lost_card_costs_no_test_its_verdict(bed):
    bed.two_commits({f"k{number}": KERNELS["changed"] for number in range(6)})
    lost = {f"toy.k{number}": {"fault": "lost"} for number in range(6)}
    bed.script({"cards": (CARDS[0], CARDS[1] | lost)})
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", TWO, device=None)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert [sentence.partition(":")[0] for sentence in failures(done).values()] == ["crashed"]
    assert "5 unchanged" in told(done)
    assert "went to null:0" in told(done)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([TWO, "--perf-base=HEAD"], "names unlike cards, and a test has one verdict"),
        ([TWO], "--perf-gpus shares out the comparison of --perf-base"),
        (["--perf-gpus=what:0", "--perf-base=HEAD"], "--perf-gpus: Unknown device 'what:0'"),
    ],
    ids=["unlike", "no base", "unknown"],
)
def test_cards_that_make_no_sense_end_the_session(bed, arguments, words):
    bed.toy()
    bed.script({"cards": (CARDS[0], {"name": "other"})})
    done = bed.run(*arguments, device=None)
    assert words in told(done)
    assert done.ret != pytest.ExitCode.OK


def test_the_gate_fails_and_names_each_kernel(beds):
    beds.two_commits(GATED)
    done = beds.run("--perf-base=HEAD~1", "--perf-gate", "--benchmark-json=saved.json", "-Werror")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    sentences = failures(done)
    assert {label: sentence.partition(":")[0] for label, sentence in sentences.items()} == {
        "toy.slower@64-head": "regression",
        "toy.gone@64-base": "missing",
        "toy.build_head@64-head": "build-failed",
        "toy.build_base@64-head": "build-failed",
    }
    assert re.match(
        r"regression: 3\.00 % slower \(\+2\.\d+ to \+3\.\d+ %\) in 2 processes\.",
        sentences["toy.slower@64-head"],
    )
    assert "Build failed at head. toy.build_head does not compile." in sentences["toy.build_head@64-head"]
    assert "Build failed at base. toy.build_base does not compile." in sentences["toy.build_base@64-head"]
    done.assert_outcomes(failed=4, passed=5, skipped=7)
    assert "GPU performance gate" in told(done)
    assert "regression toy.slower@64 (slower-in-time): 3.00 % slower" in told(done)
    assert "1 regression, 1 improvement, 1 unchanged, 1 identical, 1 new, 1 missing, 2 failed." in told(done)
    assert "The gate fails." in told(done)
    saved = json.loads((beds.root / "saved.json").read_text())
    found = {each["name"]: each for each in saved["benchmarks"]}
    sides = [
        f"test_kernel[toy.{kernel}@64-{side}]"
        for kernel in ("slower", "faster", "changed")
        for side in ("base", "head")
    ]
    assert [*found] == sides
    assert [found[name]["group"] for name in sides[:2]] == ["toy.slower@64"] * 2
    base, head = (found[name] for name in sides[:2])
    assert base["params"] == {"gpu_case": "toy.slower@64", "gpu_side": "base"}
    assert base["stats"]["median"] == pytest.approx(1e-3, rel=1e-2)
    assert head["stats"]["median"] / base["stats"]["median"] == pytest.approx(1.03, rel=1e-2)
    commits = beds.pytester.run("git", "rev-parse", "HEAD~1", "HEAD").outlines
    assert [each["extra_info"]["commit"] for each in (base, head)] == commits
    assert [each["extra_info"]["clock"] for each in (base, head)] == ["scripted"] * 2
    assert "verdict" not in base["extra_info"]
    verdict = head["extra_info"]["verdict"]
    assert (verdict["status"], verdict["reason"]) == ("regression", "slower-in-time")
    low, high = verdict["interval"]
    assert low < verdict["effect"] < high
    assert verdict["effect"] == pytest.approx(0.03, abs=1e-3)
    assert verdict["smallest_visible"] > 0
    [record] = (beds.root / "results").rglob("*.jsonl")
    assert {v.kernel: v.status for v in read_comparison(record).verdicts} == {
        "slower": "regression",
        "faster": "improvement",
        "changed": "unchanged",
        "untouched": "identical",
        "gone": "missing",
        "fresh": "new",
        "build_head": "failed",
        "build_base": "failed",
    }


def test_times_are_those_that_the_verdict_rests_on(bed):
    bed.two_commits(only("slower"))
    saved = bed.saved("--perf-base=HEAD~1")["benchmarks"]
    [record] = (bed.root / "results").rglob("*.jsonl")
    quads = [quad for block in read_comparison(record).blocks for quad in block.block.quads]
    for side, letter in (("base", "A"), ("head", "B")):
        times = [
            t for quad in quads for arm, t in zip(quad.order, quad.times_ns, strict=True) if arm == letter
        ]
        assert saved[f"test_kernel[toy.slower@64-{side}]"]["stats"]["data"] == [each / 1e9 for each in times]


@pytest.mark.parametrize(
    "kernels", [["untouched", "commented"], ["changed", "untouched", "faster"]], ids=",".join
)
def test_the_gate_passes_where_nothing_became_slower(bed, kernels):
    bed.two_commits(only(*kernels))
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", "-Werror")
    assert done.ret == pytest.ExitCode.OK
    assert "The gate passes." in told(done)
    assert "identical: Both sides compile to the same code" in told(done)
    same = sum(kernel in ("untouched", "commented") for kernel in kernels)
    done.assert_outcomes(passed=2 * (len(kernels) - same), skipped=2 * same)


def test_only_what_is_selected_is_compared_and_all_of_it_together(bed):
    bed.two_commits(only("slower", "changed", "gone", "untouched"))
    gate = ("--perf-base=HEAD~1", "--perf-gate")
    done = bed.run(*gate, "-k", "changed or untouched")
    done.assert_outcomes(passed=2, skipped=2, deselected=3)
    assert "process 1: 1 case" in told(done)
    done = bed.run(*gate, "-k", "slower or changed")
    done.assert_outcomes(passed=3, failed=1, deselected=3)
    assert "process 1: 2 cases" in told(done)
    assert done.stdout.str().count("process 1: ") == 1
    assert "missing" not in told(done)


def test_without_the_gate_only_what_does_not_work_at_head_fails(bed):
    bed.two_commits(only("slower", "gone", "build_head", "build_base", "wrong_both"))
    done = bed.run("--perf-base=HEAD~1", "-Werror")
    assert set(failures(done)) == {"toy.build_head@64-head", "toy.wrong_both@64-head"}
    done.assert_outcomes(failed=2, passed=2, skipped=5)
    assert "GPU benchmarks against HEAD~1" in told(done)
    assert "regression toy.slower@64 (slower-in-time): 3.00 % slower" in told(done)
    assert "The gate" not in told(done)
    assert "missing: There is no such case at head." in told(done)


@pytest.mark.parametrize(
    ("kernels", "fail_on", "labels"),
    [
        (["faster"], "improvement", {"toy.faster@64-head"}),
        (["fresh"], "new", {"toy.fresh@64-head"}),
        (["slower"], "none", set()),
        (["gone", "build_base"], "none", {"toy.gone@64-base", "toy.build_base@64-head"}),
    ],
)
def test_which_verdicts_fail_is_what_compare_says(bed, kernels, fail_on, labels):
    bed.two_commits(only(*kernels, "commented"))
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", f"--perf-fail-on={fail_on}")
    assert set(failures(done)) == labels
    assert done.ret == (pytest.ExitCode.TESTS_FAILED if labels else pytest.ExitCode.OK)
    assert f"The gate {'fails' if labels else 'passes'}." in told(done)


def test_a_policy_of_a_test_is_its_own_and_inconclusive_fails(bed):
    bed.two_commits(only("at_tolerance"))
    bed.tests(marked("margin=0.25, tolerance=0.26") + TESTS.replace("kernel", "usual"))
    done = bed.run("--perf-base=HEAD~1", "--perf-gate")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.assert_outcomes(failed=1, passed=3)
    assert [sentence.partition(":")[0] for sentence in failures(done).values()] == ["inconclusive"]
    assert "test_kernel[toy.at_tolerance@64-head] - Failed: inconclusive" in told(done)
    bed.tests(marked("margin=2, tolerance=1"))
    done = bed.run("--perf-base=HEAD~1", "--perf-gate")
    done.assert_outcomes(failed=2)
    assert "A margin of 2 % is not below the tolerance of 1 %" in told(done)
    assert "The gate fails." in told(done)


@pytest.mark.parametrize(("broken", "side"), [(0, "base"), (1, "head")])
def test_a_suite_that_is_broken_at_one_commit_fails_its_cases(bed, broken, side):
    make_repository(bed.root)
    whole = files(0, only("changed"))
    for number in range(2):
        text = "suite = None\n" if number == broken else whole["kernels/toy/suite.py"]
        commit(bed.root, {**whole, "kernels/toy/suite.py": text}, number + 1)
    bed.tests()
    done = bed.run("--perf-base=HEAD~1", "--perf-gate")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    [(label, sentence)] = failures(done).items()
    assert label == f"toy.changed@64-{'base' if side == 'head' else 'head'}"
    assert sentence.startswith(f"suite: Broken suite at {side}. ")
    assert "suite.py defines no `suite`" in told(done)


def test_a_suite_that_vanished_and_one_that_is_new(bed):
    make_repository(bed.root)
    before = files(0, only("changed"))
    after = {name.replace("toy", "late"): text.replace('"toy"', '"late"') for name, text in before.items()}
    commit(bed.root, before, 1)
    commit(bed.root, {**dict.fromkeys(before), **after}, 2)
    bed.tests()
    done = bed.run("--perf-base=HEAD~1", "--perf-gate")
    assert failures(done) == {"toy.changed@64-base": "missing: There is no such case at head."}
    done.assert_outcomes(failed=1, skipped=1)
    assert "new: There is no such case at base." in told(done)


def test_a_verdict_that_no_test_tells_fails_the_session(bed):
    bed.two_commits(only("slower"))
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", "-k", "base")
    done.assert_outcomes(passed=1, deselected=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "regression toy.slower@64: none of the tests that ran says so." in told(done)
    assert "The gate fails." in told(done)


def test_a_regression_that_is_expected_passes(bed):
    bed.two_commits(only("slower"))
    bed.tests(f"import pytest\n@pytest.mark.xfail(reason='known')\n{TESTS}")
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", "-k", "head")
    done.assert_outcomes(xfailed=1, deselected=1)
    assert done.ret == pytest.ExitCode.OK
    assert "The gate passes." in told(done)


@pytest.mark.parametrize("arguments", [["-k", "plain"], ["--benchmark-skip"], ["-k", "unfit"]], ids=" ".join)
def test_a_gate_that_compared_nothing_does_not_pass(bed, arguments):
    bed.two_commits(only("changed", "unfit"))
    bed.tests("def test_plain():\n    pass\n", "test_plain.py")
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", *arguments)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "No benchmark was compared with HEAD~1: " in told(done)
    assert told(done).count("The gate fails.") == 1


def test_a_device_that_is_not_there_fails_the_gate(bed):
    bed.two_commits(only("commented"))
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", device="null:9")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert set(failures(done).values()) == {
        "no-device: There is no device null:9. Devices of this backend: null:0 (null)."
    }
    assert "The gate fails." in told(done)


def test_records_that_cannot_be_kept_fail_with_a_sentence(bed):
    bed.two_commits(only("changed"))
    write_files(bed.root, {"results": "a file\n"})
    done = bed.run("--perf-base=HEAD~1", "--perf-gate")
    done.assert_outcomes(failed=2)
    assert all(sentence.startswith("store: ") for sentence in failures(done).values())


def test_other_axes_are_other_cases(bed):
    make_repository(bed.root)
    now = files(0, only("untouched"))
    then = SUITE.replace("a = Input", "m = Axis(default=(8,))\n    a = Input", 1)
    then = then.replace("KERNELS", "kernel('untouched')")
    commit(bed.root, {**now, "kernels/toy/suite.py": then}, 1)
    commit(bed.root, now, 2)
    bed.tests()
    done = bed.run("--perf-base=HEAD~1", "--perf-size=32", "--collect-only", "-q")
    assert collected(done) == ["toy.untouched@32-head", "toy.untouched[n=32,m=32]-base"]


def test_sections_fit_80_columns(bed):
    kernels = only("slower", "gone", "fresh", "build_head", "unfit")
    bed.two_commits(kernels)
    bed.script({"noise": {"kind": "quiet", "seed": 1}})
    bed.columns(80)
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", "--benchmark-quiet")
    lines = done.outlines
    began = next(number for number, line in enumerate(lines) if "GPU performance gate" in line)
    section = lines[began : lines.index("The gate fails.") + 1]
    assert len(section) > len(kernels)
    assert [line for line in section if len(line) > 80 and not line.startswith("Record: ")] == []
    for word in ("change %", "±", "visible", "verdict"):
        assert word in " ".join(section)


WAITS = """
import time
from pathlib import Path

def counted(frame, event, argument):
    if event != "call" or frame.f_code.co_name != "measure_pair":
        return
    calls = Path(FOLDER)
    number = len(list(calls.iterdir()))
    (calls / f"call{number}").touch()
    if number == 3:
        time.sleep(3600)

sys.setprofile(counted)  # to replace the function would be found out
"""


def test_an_interrupt_shows_what_was_measured(bed, tmp_path_factory):
    calls = tmp_path_factory.mktemp("calls")
    bed.two_commits(dict.fromkeys(["one", "two"], KERNELS["changed"]))
    waits = in_workers(tmp_path_factory.mktemp("site"), WAITS.replace("FOLDER", repr(str(calls))))
    arguments = ("benchmarks", "--perf-device=null", "--perf-base=HEAD~1", "--perf-gate", "-Werror")
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=bed.root,
        env={**os.environ, **waits},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (calls / "call3").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "the fourth measurement was never reached"
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out = " ".join(process.communicate(timeout=60)[0].split())
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "1 inconclusive, 1 unchanged." in out or "1 unchanged, 1 inconclusive." in out
    assert "Interrupted: verdicts use finished measurements only." in out
    assert "The gate fails." in out
    assert "Traceback" not in out
    assert "not used" not in out


# A real device


@pytest.fixture
def cpu():
    try:
        find_device("opencl:0")
    except DeviceError as error:
        device_is_missing("opencl:0", error.message)
    return "opencl:0"


def test_a_real_device_is_measured_by_its_own_clock(bed, cpu):
    bed.monkeypatch.setenv("HARNESS_SUITES", str(OWN_KERNELS / "transpose"))
    bed.tests()
    saved = bed.saved("--perf-size=64", "-k", "naive", device=cpu)
    [found] = saved["benchmarks"].values()
    info = found["extra_info"]
    assert info["clock"] == "opencl-profiling"
    assert info["verified"] is True
    assert info["rate"] == info["gbytes_per_s"] > 0
    assert info["rate"] == pytest.approx(2 * 4 * 64 * 64 / found["stats"]["median"] / 1e9, rel=1e-9)
    for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w"):
        assert info[name] is None or info[name] > 0
    assert saved["machine_info"]["gpu"]["kind"] == "cpu"


SPUN = """\
__kernel void spun(__global const float* a, __global const float* b, volatile __global float* y, int n) {
    const int i = get_global_id(0);
    for (int round = 0; i < n && round < ROUNDS; ++round) y[i] = 2 * a[i];
}
"""


def test_a_slowdown_on_a_real_device_is_named(bed, cpu):
    suite = {"spun": (takes(MS), takes(MS))}
    make_repository(bed.root)
    commit(bed.root, {**files(0, suite), "kernels/toy/spun.cu": SPUN.replace("ROUNDS", "20000")}, 1)
    commit(bed.root, {"kernels/toy/spun.cu": SPUN.replace("ROUNDS", "60000")}, 2)
    bed.tests()
    done = bed.run("--perf-base=HEAD~1", "--perf-gate", device=cpu)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    [(label, sentence)] = failures(done).items()
    assert label == "toy.spun@64-head"
    assert sentence.startswith("regression: ")
    assert bed.run("--perf-base=HEAD", "--perf-gate", device=cpu).ret == pytest.ExitCode.OK
