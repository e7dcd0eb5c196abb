"""Helpers of several test files: repositories, commands run as by a user, and their results."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from harness import cli
from harness.records.record_files import read_run
from harness.records.types import Measurement, Row, RowStatus, Run, Telemetry
from tests.fork_server import PROGRAMS, ForkServer

ROOT = Path(__file__).resolve().parents[1]
IMPORT_PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
"""This checkout first, then what the tests themselves import from."""
GIT_CONFIG = str(ROOT / "tests" / "gitconfig")
KERNELS = ROOT / "kernels"
PORTABLE = {"cuda": str(KERNELS / "portable" / "cuda.h"), "opencl": str(KERNELS / "portable" / "opencl.h")}

# Read here, when tests are collected: later on no HARNESS_* variable of the user's reaches a test.
REQUIRED_DEVICES = tuple(name for name in os.environ.get("HARNESS_REQUIRE_DEVICE", "").split(",") if name)
"""Backends whose absence fails the tests that need them, where it would skip them: for CI machines."""
GPU = os.environ.get("HARNESS_DEVICE") or "cuda:0"
"""The card that tests marked gpu run on."""

PYTEST_OPTIONS = "-p no:hypothesispytest"
"""Options of sessions that tests begin. At its end each would import Hypothesis: a third of a second."""

MATMUL_SIZES = [(1, 1, 1), (127, 65, 33), (500, 300, 700), (1, 513, 1), (31, 1, 5), (64, 64, 64)]


class Done(NamedTuple):
    """A command that ran in this process."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def failed_with(self, status: int) -> str:
        """Check the exit status of a command, and return its standard error."""
        assert self.status == status, self
        return self.err


def caller(capsys: Any, monkeypatch: Any, kind: type[Done] = Done) -> Callable[..., Any]:
    """Return a function that runs `harness` in this process and returns its output as a Done of this kind."""

    def call(*arguments: str, cwd: Path | None = None) -> Done:
        if cwd:
            monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["harness", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert isinstance(caught.value.code, int)
        return kind(int(caught.value.code), *capsys.readouterr())

    return call


def device_is_missing(spec: str, why: object) -> NoReturn:
    """Skip, or fail where HARNESS_REQUIRE_DEVICE names the device's backend."""
    if spec.partition(":")[0] in REQUIRED_DEVICES:
        pytest.fail(f"HARNESS_REQUIRE_DEVICE asks for {spec}: {why}")
    pytest.skip(str(why))


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def open_folder(prefix: str) -> Path:
    """Make a folder that every user may enter, whoever may enter this checkout or pytest's own folders."""
    for parent in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):
        if all(each.exists() and each.stat().st_mode & stat.S_IXOTH for each in (parent, *parent.parents)):
            made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            made.chmod(0o755)
            return made
    pytest.skip("no temporary folder here can be entered by every user")


def git(repository: Path, *arguments: str, date: str = "2026-01-01T00:00:00Z") -> str:
    who = {f"GIT_{role}_{part}": "test" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    environment = {
        **os.environ,
        **who,
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
        "GIT_CONFIG_GLOBAL": GIT_CONFIG,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=repository, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch=main", "--template=")
    return root


def commit(repository: Path, files: Mapping[str, str | None], day: int) -> str:
    """Write files, or delete those given as None, and commit them on a day of January 2026."""
    write_files(repository, {name: text for name, text in files.items() if text is not None})
    for name in (name for name, text in files.items() if text is None):
        (repository / name).unlink()
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", f"Day {day}", date=f"2026-01-{day:02}T12:00:00Z")
    return git(repository, "rev-parse", "HEAD")


def commit_each(repository: Path, changes: Sequence[Mapping[str, str | None]]) -> list[str]:
    """Commit files, or the lack of those given as None, one after another to a new repository.

    On the days of January 2026 as `commit` does, but by one process of git.
    """
    commands = []
    for day, files in enumerate(changes, 1):
        at = int(datetime(2026, 1, day, 12, tzinfo=timezone.utc).timestamp())
        commands.append(f"commit refs/heads/main\ncommitter test <test> {at} +0000\n{_data(f'Day {day}')}")
        for name, text in files.items():
            commands.append(f"D {name}\n" if text is None else f"M 644 inline {name}\n{_data(text)}")
    importing = ["git", "fast-import", "--quiet"]
    subprocess.run(importing, cwd=repository, check=True, input="".join(commands).encode())
    git(repository, "reset", "--quiet", "--hard")
    return git(repository, "rev-list", "--reverse", "main").splitlines()


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


programs = ForkServer(PROGRAMS)
"""asv and our commands, where they are to be processes of their own."""


def run_forked(args: list[str], *, timeout: float, **given: Any) -> subprocess.CompletedProcess[str]:
    """Run a command like subprocess.run, in a forked process if possible."""
    with programs.popen(args, text=True, **given) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


COMMAND = """\
import resource, sys
from harness.cli import main
if limit := int(sys.argv.pop(1)) + 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit - 1, resource.RLIM_INFINITY))
sys.argv[0] = "harness"
main()
"""


def run_command(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    file_limit_bytes: int = -1,
    timeout_s: float = 120,
    **given: Any,
) -> subprocess.CompletedProcess[str]:
    """`harness` as its own process with nobody at the keyboard.

    With file_limit_bytes no file can grow beyond it: as on a full disk, but for what Python makes of our
    modules, which would stay torn for every process after this one.
    """
    torn = {"PYTHONDONTWRITEBYTECODE": "1"} if file_limit_bytes >= 0 else {}
    return run_forked(
        [sys.executable, "-c", COMMAND, str(file_limit_bytes), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, **torn, **(env or {})},
        timeout=timeout_s,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given},
    )


STARTED = {"PYTHONNODEBUGRANGES": "1"}
"""Variables with which no process is forked, because Python reads them when it starts."""


def in_workers(folder: Path, code: str) -> dict[str, str]:
    """The environment in which workers run this code before anything else."""
    guard = "import sys\n\nif 'harness.measure.worker' in sys.orig_argv:\n"
    write_files(folder, {"sitecustomize.py": guard + textwrap.indent(code, "    ")})
    return {"PYTHONPATH": f"{IMPORT_PATH}{os.pathsep}{folder}"}


def write_null_script(path: Path, script: Mapping[str, object]) -> str:
    path.write_text(json.dumps(script), encoding="utf-8")
    return str(path)


class Recorder:
    """An observer that keeps its events."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.stages: list[str] = []

    def opened(self, device: object) -> None:
        pass

    def waiting(self, sentence: str) -> None:
        self.stages.append(sentence)

    def started(self, case: str, number: int, total: int) -> None:
        pass

    def stage(self, stage: str) -> None:
        self.stages.append(stage)

    def finished(self, row: Row) -> None:
        self.rows.append(row)


def records_below(folder: Path) -> list[tuple[Run, tuple[Row, ...], bool]]:
    """Every record below a folder, oldest first: run, rows, complete or not."""
    # Two of one second have names in no order.
    written = sorted(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    stored = [read_run(path) for path in written]
    return [(record.run, record.rows, not record.interrupted) for record in stored]


def statuses(rows: tuple[Row, ...] | list[Row]) -> list[tuple[str, RowStatus, str]]:
    return [(row.kernel, row.status, row.reason) for row in rows]


def figures(row: Row) -> tuple[Measurement, Telemetry]:
    """Return the measurement and the telemetry of a measured row."""
    assert row.status == "measured", (row.reason, row.message, row.log)
    assert row.measurement is not None
    assert row.telemetry is not None
    return row.measurement, row.telemetry


def no_oftener_than(rate: float, count: int, trials: int) -> bool:
    """Return True if `count` of `trials` agrees with at most this rate: exact binomial test at 0.001."""
    from scipy import stats  # slow to import

    return bool(stats.binomtest(int(count), trials, rate, alternative="greater").pvalue > 1e-3)
