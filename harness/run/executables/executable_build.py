"""A benchmark executable at one commit: its files, its build, and one run of it."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from harness.errors import BuildError, HarnessError, MeasureError, StoreError, UsageError, WorkerError
from harness.measure.protocol import SideName
from harness.records.imports.identity import Identity
from harness.records.imports.imported import (
    DeviceCases,
    Format,
    ImportedCase,
    ImportedFile,
    executable_name,
    label,
)
from harness.records.imports.imported_files import read_imported
from harness.records.line_writer import VARIABLE
from harness.records.types import DeviceInfo, Source
from harness.run.executables.side_code import NOTHING, Imported, SideFolders, SideRecorder
from harness.run.worker_process import TimedOutError
from harness.suite.exported_commit import export
from harness.system import git
from harness.system.process import run_shell

Stage = Literal["first", "timed"]
"""Stage of a process. The first run of a side lists its benchmarks, and its times are ignored."""
OUT = "{out}"
"""Placeholder in a command for its output file."""
_FLAGS: Mapping[Format, str] = {
    "nvbench": "--jsonbin {out}",
    "google-benchmark": "--benchmark_out={out} --benchmark_out_format=json",
    "pytest-benchmark": "--benchmark-json={out}",
    "hyperfine": "--export-json {out}",
    "lines": "",
}
_OPTIONS: Mapping[str, Format] = {
    "--jsonbin": "nvbench",
    "--benchmark_": "google-benchmark",
    "--benchmark-json": "pytest-benchmark",
    "hyperfine": "hyperfine",
}
"""Options and names in a command that show its format."""
_TELLS: Mapping[Format, tuple[str, ...]] = {
    "nvbench": ("nvbench::", "cuda.bench"),
    "google-benchmark": ("--benchmark_out", "google_benchmark"),
}
"""Words in a command's help or script that show its format. nvbench's help does not name --jsonbin."""
_INTERPRETER = re.compile(r"(python[\d.]*|bash|sh)")
_SCRIPTS = (".py", ".sh")
_HELP_S = 60.0
_MOST_NAMED = 3


class NoJsonError(MeasureError):
    reason = "no-json"


@dataclass(frozen=True, slots=True)
class Executable:
    """A side of a comparison: a command, and the folder to run it in."""

    side: SideName
    command: str
    folder: Path
    source: Source
    problem: HarnessError | None = None
    """Reason why it cannot run, such as a failed build."""
    folders: SideFolders | None = None
    """Folders that its Python code must come from; None where its sources are unknown."""

    @property
    def files(self) -> Path:
        """Return the copy of its commit. Only for an executable of a commit."""
        assert self.folders is not None, "it was built by somebody else"
        return self.folders.files


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """The measurements of one process on one device."""

    format: Format
    device: DeviceInfo
    cases: dict[str, ImportedCase]
    """Cases by label, which is kernel and sizes in words."""
    version: str
    executable: str
    identity: Identity
    imported: Imported = NOTHING
    notes: tuple[str, ...] = ()
    """Sentences on oddities in the process's file."""


def format_of(executable: Executable) -> Format | None:
    """Return a command's format, by its words, help or script; None if only its file can show it."""
    for option, name in _OPTIONS.items():
        if option in executable.command:
            return name
    if OUT in executable.command:
        return None
    words = _words(executable.command)
    if any(Path(word).name == "pytest" for word in words):
        return "pytest-benchmark"
    told = _told(executable, words)
    return next((name for name, signs in _TELLS.items() if any(each in told for each in signs)), None)


def _told(executable: Executable, words: Sequence[str]) -> str:
    """Return the text of the scripts that a command runs, or the help of any other command.

    A script that ignores --help would start measuring before the device is locked.
    """
    interpreted = [word for word in words if _INTERPRETER.fullmatch(Path(word).name)]
    if not interpreted and not any(word.endswith(_SCRIPTS) for word in words):
        return run_shell(f"{executable.command} --help", executable.folder, _HELP_S).log
    files = [executable.folder / word for word in words if word not in interpreted]
    return "\n".join(file.read_text("utf-8", "replace") for file in files if file.is_file())


def _words(command: str) -> list[str]:
    """Return a command's words. Raises UsageError."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{command!r} is no command of a shell: {error}.") from None


def run_once(
    executable: Executable,
    kind: Format | None,
    scratch: Path,
    timeout_s: float,
    device: str | None,
    only: Sequence[str] = (),
    stage: Stage = "timed",
) -> ProcessRun:
    """Run one process of an executable, limited to the benchmarks in `only` if it can select them.

    The first stage also looks for Python processes that do not report their imports, which costs some time of
    a core. Raises WorkerError, TimedOutError, NoJsonError, OtherCodeError, and StoreError for unreadable
    JSON. Each quotes the end of the output.
    """
    folder = scratch / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    out, lines = folder / "out.json", folder / "lines.jsonl"
    command = command_for(executable.command, kind, out, only)
    recorder = SideRecorder(executable.folders, folder / "python") if executable.folders else None
    run = partial(recorder.run, watched=stage == "first") if recorder else run_shell
    began_s = time.time()
    ended = run(command, executable.folder, timeout_s, env={VARIABLE: str(lines)})
    try:
        imported = recorder.imported() if recorder else NOTHING
        if ended.status is None:
            raise TimedOutError(
                f"No end of {executable.command!r} within {timeout_s:g} s: it was ended. Raise --timeout, or "
                "have it measure less."
            )
        if ended.status:
            raise WorkerError(
                f"{executable.command!r} {ended.how}, so nothing that it measured counts. Run it by itself "
                f"in a checkout of {executable.side}."
            )
        file = read_imported(_written(executable, out, lines, began_s), kind)
        found = _on_device(file, device)
        return ProcessRun(
            format=file.format,
            device=found.device,
            cases={label(case.kernel, case.sizes): case for case in found.cases},
            version=file.version,
            executable=file.executable,
            identity=replace(found.identity, of=executable.side),
            imported=imported,
            notes=file.problems,
        )
    except HarnessError as error:
        # The folder is removed before anybody reads this.
        error.message = error.message.replace(str(out), OUT).replace(str(lines), f"${VARIABLE}")
        error.log = error.log or ended.log
        error.side = executable.side
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(executable: Executable, out: Path, lines: Path, began_s: float) -> Path:
    """Return the results file of a process: named by its command, or by its environment.

    Raises NoJsonError if it wrote neither, StoreError if it wrote both.
    """
    if out.exists() and lines.exists():
        raise StoreError(
            f"{executable.command!r} wrote results to {OUT} and to the file that {VARIABLE} names, and only "
            f"one file can count. Leave one out, such as by 'env -u {VARIABLE}' before the command."
        )
    for path in (out, lines):
        if path.exists():
            return path
    beside = [each.name for each in executable.folder.glob("*.json*") if each.stat().st_mtime >= began_s]
    wrote = f" It wrote {', '.join(sorted(beside)[:_MOST_NAMED])} where it stands." if beside else ""
    raise NoJsonError(
        f"{executable.command!r} ended well, and wrote no JSON to the file that it was given.{wrote} Put "
        f"{OUT} where it takes the file's name, or say with --format which options it has. A program without "
        f"such an option calls harness.report(name, times, unit), or writes lines to the file in {VARIABLE}."
    )


def command_for(command: str, kind: Format | None, out: Path, only: Sequence[str]) -> str:
    """Return the command that writes its JSON to `out`.

    nvbench cannot select points of its axes. A command with a placeholder for the file stays as it is.
    """
    given = command if OUT in command or kind is None else f"{command} {_FLAGS[kind]}".rstrip()
    if only and kind == "google-benchmark" and OUT not in command:
        # No other character: before < and > a backslash has a special meaning in GNU's regular expressions.
        names = "|".join(re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", name) for name in only)
        given += " " + shlex.quote(f"--benchmark_filter=^({names})$")
    return given.replace(OUT, shlex.quote(str(out)))


def _on_device(file: ImportedFile, wanted: str | None) -> DeviceCases:
    """Return the results of one device in a file: the only one, or the requested one."""
    found = [each for each in file.devices if len(file.devices) == 1 or each.device.spec == wanted]
    if not found:
        devices = ", ".join(f"{each.device.name} ({each.device.spec})" for each in file.devices)
        raise StoreError(
            f"It measured on {devices}, and one is compared at a time: have it measure on one, "
            "as with --devices 0, or say with --device which counts."
        )
    return found[0]


def source_at(repository: Path | None, commit: str | None, suite: str = "") -> Source:
    """Return a commit, by its full hash, or None for the working tree. Raises GitError."""
    if repository is None:
        return Source(suite=suite, path="")
    at = commit or git.resolve(repository, "HEAD")
    dirty = commit is None and git.is_dirty(repository, repository)
    return Source(suite=suite, path="", commit=at, committed_at=git.committed_at(repository, at), dirty=dirty)


def put_files(repository: Path, commit: str | None, place: Path) -> None:
    """Put the files of a commit into a new folder, where they may be built.

    Without a commit, copy the working tree, except ignored files. Raises GitError, StoreError.
    """
    try:
        if commit is not None:
            shutil.copytree(export(repository, commit), place, symlinks=True)
            return
        listed = git.ask(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in dict.fromkeys(filter(None, listed.decode(errors="surrogateescape").split("\0"))):
            _copy(repository / name, place / name)
    except OSError as error:
        raise StoreError(
            f"Cannot copy the files of {commit or 'the working tree'} to {place}: {error.strerror or error}. "
            "TMPDIR names another folder for them."
        ) from None


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():  # a submodule
        shutil.copytree(
            source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git")
        )
    elif source.exists() or source.is_symlink():  # deleted files are still listed
        shutil.copy2(source, target, follow_symlinks=False)


def built(command: str, folder: Path, side: SideName, timeout_s: float) -> BuildError | None:
    """Build a side in its folder; return the error if it failed."""
    ended = run_shell(command, folder, timeout_s)
    if ended.status == 0:
        return None
    error = BuildError(f"{command!r} {ended.how}.", log=ended.log)
    error.side = side
    return error


def name_of(command: str) -> str:
    """Return the executable's name in a command, without variables set before it."""
    named = [word for word in _words(command) if not re.match(r"\w+=", word)]
    if not named:
        raise UsageError(f"{command!r} is no command: give one such as 'build/bench --benchmark copy'.")
    is_script = _INTERPRETER.fullmatch(Path(named[0]).name)
    scripts = [word for word in named[1:] if not word.startswith("-")]
    return executable_name(scripts[0] if is_script and scripts else named[0])
