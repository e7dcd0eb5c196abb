"""Proves that each side of a comparison ran its own Python code, by comparing the imports with the side's
files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import MeasureError
from harness.measure.protocol import SideName
from harness.run.executables import side_modules
from harness.run.executables.side_modules import ENDED, MODULE, STARTED, VARIABLE, SideFiles
from harness.system import supervisor
from harness.system.process import Ended, run_shell

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_NO_PACKAGES = {"setup", "conftest", "__main__", *sys.stdlib_module_names}
"""Names that occur in many folders, or that belong to Python itself."""
_NAMESPACES_DEEP = 2
_SUPERVISOR = os.fsencode(supervisor.__file__)
_GLANCES = 2
"""Times that a process must be seen: between fork and exec it looks like the Python that started it."""


class OtherCodeError(MeasureError):
    """A side ran code of another place. This ends the command."""

    reason = "other-code"


@dataclass(frozen=True, slots=True)
class SideFolders:
    """The folders of one side, and the folders that its code must not come from."""

    side: SideName
    files: Path
    """Copy of the side's commit."""
    project: Path
    """Folder in `files` that the command runs in."""
    others: tuple[Path, ...]
    """The working tree and the other side's files."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The repository's modules that a side's command imported, all from the side's files."""

    modules: int = 0
    silent: tuple[str, ...] = ()
    """Python processes that did not report their imports."""


NOTHING = Imported()


@dataclass(slots=True)
class SideRecorder:
    """Records what one run of a command imports."""

    folders: SideFolders
    scratch: Path
    """New folder for the recorder and its reports."""
    _glances: Counter[tuple[int, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        (self.scratch / "reports").mkdir(parents=True)
        shutil.copyfile(side_modules.__file__, self.scratch / "sitecustomize.py")
        described = "".join(f"{name}={value}\n" for name, value in self._description())
        self._description_file.write_text(described, encoding="utf-8", errors="surrogateescape")

    @property
    def _description_file(self) -> Path:
        return self.scratch / "side"

    def _description(self) -> Iterator[tuple[str, str]]:
        yield "folder", os.path.realpath(self.folders.files)
        yield "reports", os.path.realpath(self.scratch / "reports")
        yield from (("other", os.path.realpath(each)) for each in self.folders.others)
        yield from (("root", str(each)) for each in self._roots())
        yield from (("package", each) for each in _packages(tuple(self._roots())))
        yield "temporary", os.path.realpath(tempfile.gettempdir())

    def _roots(self) -> list[Path]:
        folders = dict.fromkeys((self.folders.project, self.folders.files))
        return [each for folder in folders for each in (folder / "src", folder) if each.is_dir()]

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the environment of recorded processes."""
        path = [str(self.scratch), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(path), VARIABLE: str(self._description_file)}

    def recorded(self, command: str) -> str:
        """Return a command that keeps the recorder first on the path, even if it sets PYTHONPATH."""
        first = f"PYTHONPATH={shlex.quote(str(self.scratch))}{os.pathsep}"
        return re.sub(r"(?<![\w$])PYTHONPATH=", first, command)

    def run(
        self, command: str, folder: Path, timeout_s: float, *, env: Mapping[str, str] = {}, watched: bool
    ) -> Ended:
        """Run a command of a shell, as run_shell does."""
        glance = self.glance if watched else _no_glance
        env = {**env, **self.variables}
        return run_shell(self.recorded(command), folder, timeout_s, env=env, glance=glance)

    def glance(self, pid: int) -> None:
        """Note which processes of a running command are Python."""
        for each in (pid, *supervisor.descendants(pid)):
            with contextlib.suppress(OSError):
                program = Path(f"/proc/{each}/exe").readlink()
                words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
                # Until it becomes the shell, a fork of the supervisor is a Python with -I.
                if _PYTHON.fullmatch(program.name) and _SUPERVISOR not in words:
                    self._glances[each, str(program)] += 1

    def imported(self) -> Imported:
        """Return the imports of the command, after it has ended. Raises OtherCodeError."""
        modules: set[str] = set()
        told: set[int] = set()
        silent: list[str] = []
        side = SideFiles(self._description_file.read_text("utf-8", "surrogateescape").splitlines())
        for path in sorted((self.scratch / "reports").iterdir()):
            told.add(int(path.name.partition("-")[0]))
            lines = [line.split("\t") for line in path.read_text("utf-8", "surrogateescape").splitlines()]
            for kind, *words in lines:
                if kind == MODULE:
                    self._check(side, *words)
                    modules.add(words[0])
            (first, program), (last, *_) = lines[0], lines[-1]
            if first == STARTED and last != ENDED:
                silent.append(f"{program} was ended from outside")
        for (pid, program), glances in self._glances.items():
            if glances >= _GLANCES and pid not in told:
                silent.append(f"{program} ran with -I or -E, or a script set its PYTHONPATH")
        return Imported(len(modules), tuple(dict.fromkeys(silent)))

    def _check(self, side: SideFiles, module: str, found: str) -> None:
        if side.has(found):
            return
        name = self.folders.side
        error = OtherCodeError(
            f"{name.capitalize()} imported {module} from {found} instead of "
            f"{self._expected(side, module, found)}: the code that ran is not {name}'s. The command's Python "
            "has another copy of the repository, such as one of 'pip install -e', with files that "
            f"{name}'s commit lacks. Install each side into its own files: --build-command 'pip install "
            "--no-deps --target installed .' --with-command 'PYTHONPATH=installed python bench.py'."
        )
        error.side = name
        raise error

    def _expected(self, side: SideFiles, module: str, found: str) -> Path:
        part = side.part_of_another(found)
        if part is not None:
            return self.folders.files / part
        top, *_ = module.split(".")
        roots = [root for root in self._roots() if (root / top).exists() or (root / f"{top}.py").exists()]
        below, name = Path(*module.split(".")), Path(found).name
        return (roots or self._roots())[0] / (
            below / name if name.startswith("__init__.") else below.with_name(name)
        )


def _no_glance(_pid: int) -> None:
    pass


@functools.cache
def _packages(roots: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(sorted({name for root in roots for name in packages_in(root)}))


def packages_in(root: Path, deep: int = 0) -> Iterator[str]:
    """Yield the names of packages and modules in an import folder.

    A folder without __init__.py is no package by itself; modules in it have dotted names.
    """
    with os.scandir(root) as entries:
        for entry in entries:
            name = entry.name.removesuffix(".py")
            if not name.isidentifier() or (deep == 0 and name in _NO_PACKAGES):
                continue
            if entry.name != name:
                if name != "__init__":
                    yield name
            elif entry.is_dir():
                if (Path(entry) / "__init__.py").exists():
                    yield name
                elif deep < _NAMESPACES_DEEP and name != "src":
                    yield from (f"{name}.{each}" for each in packages_in(Path(entry), deep + 1))
