"""Fixtures of every test: settings of its own only, and a small project to work on."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device.backends import nvcc, survey
from harness.system import process, ready
from tests import support, toy
from tests.fork_server import GARBAGE, WORKERS, ForkServer

# Where the extra 'static' has brought nvcc and no toolkit is on PATH, tests that call it by name find it too.
if (_packaged := nvcc.path()) and shutil.which("nvcc") is None:
    os.environ["PATH"] += os.pathsep + str(Path(_packaged).parent)

GIT_SETTINGS = {
    "GIT_CONFIG_GLOBAL": support.GIT_CONFIG,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.org",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.org",
}
LONG = (
    "test_pytest_plugin",
    "test_golden",
    "test_pages",
    "test_pytest_comparison",
    "test_scripts",
    "test_runner_files",
    "test_whole_way",
    "test_compare_cli",
    "test_several_cards",
    "test_workflows",
    "test_sweep_cluster",
    "test_identity",
    "test_held_to_base",
    "test_data_branch",
    "test_asv_habits",
    "test_build_only",
    "test_sweep",
    "test_pull_request",
    "test_commits",
    "test_bisect",
    "test_static",
    "test_asv_regressions",
    "test_children",
    "test_site_suites",
    "test_benchmark_programs",
    "test_static_facts",
    "test_history_cli",
    "test_cli",
    "test_locks",
    "test_compare",
    "test_changepoints",
    "test_verdicts",
    "test_exploits",
    "test_asv",
    "test_asv_direction",
    "test_kernels_opencl",
    "test_compare_executables",
    "test_run",
    "test_verify",
    "test_publish",
    "test_schedules",
    "test_injection",
    "test_judge",
    "test_init",
    "test_github_artifacts",
    "test_problem",
    "test_review_faces",
    "test_python_functions",
    "test_made_up_values",
    "test_runner_limits",
    "test_tolerances",
    "test_asv_same_build",
    "test_history_changes",
    "test_case_names",
    "test_synthetic_history",
    "test_ladders",
    "test_docs",
    "test_toolchains",
    "test_saved_runs",
    "test_side_code",
    "test_github_posting",
    "test_backend_opengl",
    "test_suite_process",
    "test_calibrate",
    "test_suite_user",
    "test_actions",
    "test_variables",
    "test_chunks",
    "test_apart",
)
"""Files that take longest, longest first. None of them is left to one process at the end."""
KEPT = ("HARNESS_REQUIRE_", "HARNESS_SCREENSHOTS")
"""Variables for the tests themselves. The harness reads none of them."""

# Hundreds of processes are started that import NumPy, each of which would start a thread a core for BLAS, and
# these spin before they sleep: a third of such a process's time. Nor is each to compile the harness anew.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
for _name in ("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"):
    os.environ.pop(_name, None)
sys.dont_write_bytecode = False  # without its cache, pytest rewrites the tests in each process: six seconds
# A shell's job in the background ignores Ctrl-C, one under nohup SIGHUP: so would what tests interrupt.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each process of several begin to read a folder elsewhere.

    What one has compiled, the others find: side by side each would compile every file.
    """
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if isinstance(collector, pytest.Dir) and worker:
        first = len(report.result) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, because collected objects stay to the end. Afterwards Python
    collects garbage less often; by default that takes a twelfth of all processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(GARBAGE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: (order.get(item.path.stem, len(LONG)), item.path))


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one cache for all tests. It holds the files that point PyOpenCL's loader at a runtime."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Iterator[None]:
    """Keep the user's settings and git from tests and fixtures, and these from the user's files.

    The user's home folder may be missing, or closed to writing.
    """
    home = tmp_path_factory.mktemp("home")
    settings = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(shared_cache),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "HARNESS_CACHE_DIR": str(shared_cache),
        # Of one process of pytest. Tests run side by side, and what they say of times is not about times.
        "HARNESS_LOCK_DIR": str(tmp_path_factory.mktemp("locks")),
        # The tests have forks of their own, by `forked_workers`; a template takes longer to start than most.
        ready.FRESH: "1",
        "PYTEST_ADDOPTS": support.PYTEST_OPTIONS,
        # A temporary folder inside somebody's repository is still no repository.
        "GIT_CEILING_DIRECTORIES": str(tmp_path_factory.getbasetemp().parent),
        **GIT_SETTINGS,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            foreign = name.startswith(("GIT_", "GITHUB_", "PYTEST_XDIST")) or name in ("CI", "COLUMNS")
            if foreign or (name.startswith("HARNESS_") and not name.startswith(KEPT)):
                patch.delenv(name)
        for name, value in settings.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def same_hashes() -> None:
    """Take back the seed that Dask sets, and leaves set."""
    os.environ.pop("PYTHONHASHSEED", None)


@pytest.fixture(scope="session", autouse=True)
def opencl_first(own_environment: None) -> None:
    """OpenCL's runtime is loaded before any test can load Mesa's: the other way around its LLVM aborts."""
    survey(("opencl",))


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The actions that the workflows pin, each as one file of JavaScript."""
    from tests.pinned_actions import bundle  # they know workflows: yaml

    return bundle(tmp_path_factory.mktemp("actions"))


@pytest.fixture(scope="session", autouse=True)
def forked_workers(request: pytest.FixtureRequest, own_environment: None) -> Iterator[None]:
    """Our processes are forked, but for those of tests that use `started_workers`, and on a card."""
    if request.config.getoption("markexpr") == "gpu":
        yield
        return
    with contextlib.closing(ForkServer(WORKERS)) as workers, pytest.MonkeyPatch.context() as patch:
        constants = {"PIPE": subprocess.PIPE, "DEVNULL": subprocess.DEVNULL}
        patch.setattr(process, "subprocess", SimpleNamespace(Popen=workers.popen, **constants))
        patch.setattr("harness.run.device_session.RECOVERY_S", 0.1)  # no card has to recover
        with contextlib.closing(support.programs):
            yield


@pytest.fixture
def started_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our processes are started as they are for users."""
    monkeypatch.setattr(process, "subprocess", subprocess)


@pytest.fixture
def ready_workers(started_workers: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Our processes are forked as they are for users, once the test has begun the template."""
    monkeypatch.delenv(ready.FRESH)
    yield
    ready.end()


@pytest.fixture
def forked_dask_workers() -> Iterator[None]:
    """Dask's workers are forked, as in Dask's own tests, and so is what they start."""
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        work = "harness.run.sweep.work_on_cluster"
        get_mp_context().set_forkserver_preload(["distributed", "tests.forking", work])
        yield


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache that nobody else fills."""
    folder = tmp_path / "own-cache"
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(folder))
    return folder


@dataclass(frozen=True)
class Project:
    """A git repository with one suite, toy, and a prelude beside it."""

    root: Path

    @property
    def suite(self) -> Path:
        return self.root / "kernels" / "toy"

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout.strip()

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def commit(self, files: Mapping[str, str] | None = None) -> str:
        """Write files, commit everything, and return the commit's hash."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture(scope="session")
def first_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of every test, to be copied: git takes longer to make one than most tests."""
    made = Project(tmp_path_factory.mktemp("first") / "project")
    made.root.mkdir()
    made.git("init", "--quiet", "--initial-branch=main")
    made.commit(toy.FILES)
    shutil.rmtree(made.root / ".git/hooks")
    return made.root


@pytest.fixture
def project(first_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one commit, which is also the current folder."""
    made = Project(Path(shutil.copytree(first_project, tmp_path / "project")))
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], Path]:
    """Makes a repository of these files, which is then the current folder."""

    def make(files: Mapping[str, str]) -> Path:
        top = support.write_files(support.make_repository(tmp_path / "theirs"), files)
        monkeypatch.chdir(top)
        return top

    return make


@pytest.fixture
def harness(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., support.Done]:
    """Calls `harness` in this process."""
    return support.caller(capsys, monkeypatch)


@pytest.fixture
def null_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Any]], Path]:
    """Tells the null device what to do, a behaviour a kernel: {"toy.plain": {"fault": "wrong"}}."""

    def write(script: Mapping[str, Any]) -> Path:
        path = tmp_path / "null-script.json"
        path.write_text(json.dumps(script), encoding="utf-8")
        monkeypatch.setenv("HARNESS_NULL_SCRIPT", str(path))
        return path

    return write
