"""Running a suite.py in this process: that of a worker, or of the process that describes the suite.

It runs under a name of its own, and what it imports from its folder is forgotten afterwards, so that the same
suite at two commits never gets the other's modules.
"""

from __future__ import annotations

__all__ = ["load_folder"]

import contextlib
import dataclasses
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from harness.errors import SuiteError
from harness.suite import Problem, Suite


def load_folder(folder: Path) -> Suite:
    """The suite whose suite.py lies in `folder`.

    Raises SuiteError, with the traceback as its log, where suite.py is missing, raises, or defines no
    `suite`.
    """
    folder = folder.resolve()
    file = folder / "suite.py"
    if not file.is_file():
        raise SuiteError(f"No suite.py in {folder}: a suite is a folder with a suite.py and its sources.")
    name = "_harness_suite_" + hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SuiteError(f"{file} cannot be loaded as a Python module.")
    module = importlib.util.module_from_spec(spec)
    try:
        # What a suite prints is no result of a command's.
        with _importing_from(folder), contextlib.redirect_stdout(sys.stderr):
            # dataclasses and typing look a class's module up by its name.
            sys.modules[name] = module
            # Compiled here rather than by the import system, which would trust a stale .pyc of the same size
            # and second.
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102
    except SuiteError as error:
        raise SuiteError(
            f"{_place(error, file)} is wrong: {error.message}", log=traceback.format_exc()
        ) from error
    except BaseException as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        raise SuiteError(
            f"{_place(error, file)} raised {type(error).__name__}: {what}", log=traceback.format_exc()
        ) from error
    suite = getattr(module, "suite", None)
    if not isinstance(suite, Suite):
        raise SuiteError(f"{file} defines no `suite`: expected suite = Suite(...), found {suite!r}.")
    if suite.headline == "GFLOP/s" and type(suite.problem).flop is Problem.flop:
        raise SuiteError(
            f"{file}: suite {suite.name!r} has headline GFLOP/s, but its problem does not define flop(): "
            "define it, or choose headline='GB/s'."
        )
    return dataclasses.replace(suite, root=folder)


def _place(error: BaseException, file: Path) -> str:
    """file:line of what suite.py did last, or of the text that does not parse."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((f"{f.filename}:{f.lineno}" for f in frames if f.filename == str(file)), str(file))


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let modules be imported from `folder`, and from nowhere else if it has one of that name; forget them
    afterwards.
    """
    place = str(folder)
    own = {path.stem for path in folder.glob("*.py")}
    own |= {path.name for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in own}
    before = set(sys.modules)
    wrote_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    for name in hidden:
        del sys.modules[name]
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote_bytecode
        with contextlib.suppress(ValueError):  # a suite.py may have removed it
            sys.path.remove(place)
        for name in set(sys.modules) - (before - hidden.keys()):
            module = sys.modules[name]
            # A package without __init__.py has no file, only folders.
            file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[name]
        sys.modules.update(hidden)
