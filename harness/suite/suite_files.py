"""The files that a suite's build can read: its folder's, and included files elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.config import has_settings
from harness.errors import ConfigError, SuiteError
from harness.suite.kernel import Kernel
from harness.suite.suite import Suite
from harness.system.cache import export_root
from harness.system.file_access import installed_at, opened_beside, opened_elsewhere, opened_files
from harness.system.files import read_regular

QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_ANY_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?\b(?:[ \t]*[<"]([^>"\n]+)[>"])?', re.MULTILINE)
"""An include, with the name of its file; without a name if a macro gives it."""
_DEFINED = (
    r"\bdef\s+{name}\s*\(",
    # The qualifier and the name may be lines apart, with launch bounds between them.
    r"\b(?:KERNEL|__global__|__kernel|kernel)\b[^;{{}}]*?\b{name}\s*\(",
    r"^.*\b{name}\s*\(",
)
"""Patterns of the definition of a Python function, a kernel, and any other function."""


def missing_files(suite: Suite, kernels: Iterable[Kernel]) -> list[tuple[str, Path]]:
    """Return missing sources of kernels and preludes: their owner, and the path that was tried."""
    named = [(f".{kernel.name}", file) for kernel in kernels for file in kernel.files]
    named += [(f", prelude for {backend}", file) for backend, file in suite.prelude.items()]
    places = ((of, Path(os.path.normpath(suite.root / file))) for of, file in named)
    return [(of, place) for of, place in places if not place.is_file()]


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def for_their_backends(suite: Suite) -> Suite:
    """Return the suite without OpenCL for sources in plain CUDA, which no OpenCL compiler can read.

    Such a source contains `__global__`, and no prelude of the suite defines the word for OpenCL.
    """
    if "opencl" in suite.prelude:
        return suite
    return dataclasses.replace(suite, kernels=[_for_its_backends(suite.root, each) for each in suite.kernels])


def _for_its_backends(folder: Path, kernel: Kernel) -> Kernel:
    others = {backend: source for backend, source in kernel.sources.items() if backend != "opencl"}
    source = kernel.sources.get("opencl")
    if not others or not isinstance(source, str) or not _is_plain_cuda(folder / source):
        return kernel
    return dataclasses.replace(kernel, source=others)


def _is_plain_cuda(file: Path) -> bool:
    try:
        text = _COMMENT.sub("", read_regular(file).decode(errors="replace"))
    except OSError:  # the build reports a missing file
        return False
    return "__global__" in text and "__OPENCL" not in text


def first_line(file: Path, function: str) -> int | None:
    """Return the line on which a kernel's function begins; None if its file lacks it. Raises OSError."""
    text = file.read_text(encoding="utf-8", errors="replace")
    for pattern in _DEFINED:
        if defined := re.search(pattern.format(name=re.escape(function)), text, re.MULTILINE):
            return text.count("\n", 0, defined.start()) + 1
    return None


def include_folders(suite: Suite, kernel: Kernel) -> tuple[str, ...]:
    """Return the folders searched for a kernel's headers, by absolute path, in order. Raises SuiteError."""
    names = dict.fromkeys((*kernel.include, *suite.include))
    if not names:
        return ()
    project = project_of(suite.root)
    found = []
    for name in names:
        place = Path(os.path.normpath(project / name))
        if not place.is_dir():
            raise kernel.error(
                f"includes from {name!r}, and there is no such folder as {place}: it is relative to the "
                f"project, {project}."
            )
        if not place.resolve().is_relative_to(project.resolve()):
            raise kernel.error(
                f"includes from {name!r}, a link to {place.resolve()}, out of the project {project}: what "
                "lies there is in no commit."
            )
        found.append(str(place))
    return tuple(found)


def project_of(folder: Path) -> Path:
    """Return the nearest folder above with settings, or the top of the repository or commit; else
    the parent.
    """
    for each in folder.parents:
        if has_settings(each) or (each / ".git").exists() or export_root(each) == each:
            return each
    return folder.parent


def tree_sha256(suite: Suite, *, parsed: bool = False, without: Collection[Path] = ()) -> str:
    """Return a hash of names and bytes of everything that a build can read. Raises SuiteError.

    These are all files of the suite's folder except caches, and files elsewhere that sources include, but not
    the files `without`. With `parsed`, comments and layout of Python files are ignored.
    """
    digest = hashlib.sha256()
    files = tree_files(suite).difference(without)
    named = ((Path(os.path.relpath(path, suite.root)).as_posix(), path) for path in files)
    for name, path in sorted(named):
        try:
            content = read_regular(path)
        except OSError as error:
            raise SuiteError(f"Cannot read {path}: {error.strerror or error}.") from None
        content = _parsed(content) if parsed and path.suffix == ".py" else content
        digest.update(f"{len(name)}:{name}{len(content)}:".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def tree_files(suite: Suite) -> set[Path]:
    """Return the regular files of a suite's folder, through links too, and files elsewhere that a build can
    read.
    """
    return set(_files_below(suite.root)) | files_outside(suite)


def _files_below(folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in above:  # a link to a folder that contains it
        return
    try:
        entries = list(os.scandir(folder))
    except OSError:  # removed in the meantime, or unreadable
        return
    for entry in entries:
        # os.path returns False for a broken or circular link, but an entry raises.
        if os.path.isdir(entry.path):  # noqa: PTH112
            if entry.name not in ("__pycache__", ".git"):
                yield from _files_below(folder / entry.name, (*above, real))
        elif os.path.isfile(entry.path):  # noqa: PTH113
            yield folder / entry.name


def cached_tree_sha256(suite: Suite) -> str:
    """Return `tree_sha256` of a loaded suite, computed once: each of its programs needs it."""
    return _once(suite, "_tree_sha256", lambda: tree_sha256(suite))


def functions_sha256(suite: Suite, *, parsed: bool = False) -> str:
    """Return a hash of everything that Python functions of a loaded suite depend on, computed once.

    It is `tree_sha256` without files that only compilers read, if no Python file of the suite may find them:
    worker processes run in another folder. Raises SuiteError.
    """

    def computed() -> str:
        files = tree_files(suite)
        compiled = set() if _may_find_files(files) else _only_compiled(suite)
        without = {path for path in files if Path(os.path.realpath(path)) in compiled}
        return tree_sha256(suite, parsed=parsed, without=without)

    return _once(suite, f"_functions_sha256_{parsed}", computed)


def _once(suite: Suite, name: str, compute: Callable[[], str]) -> str:
    cache: dict[str, Any] = vars(suite)
    if name not in cache:
        cache[name] = compute()
    return str(cache[name])


_FINDS_FILES = re.compile(
    rb"__(?:file|path|spec|loader|import|globals|code)__|getsource|getfile|_getframe|f_code|co_filename|get_data"
    rb"|resource|findCaller|_current_frames"
    rb"|find_spec(?!\([\"'])|find_loader|import_module|(?<![.\w])(?:eval|exec)\b|\.root\b|\bsys\.\w*(?:path|modules)"
    rb"|\b(?:inspect|traceback|pkgutil|runpy|globals|cwd|getcwd|chdir|environ|environb|getenv)\b"
    rb"|from\s+sys\s+import|import\s+sys\s+as|/proc/"
)
"""Words of Python code that may find its own folder."""
_FOUND_SPEC = re.compile(rb"find_spec\([\"']([\w.]+)")
"""A module by name whose place is asked for."""


def _may_find_files(files: Collection[Path]) -> bool:
    """Tell whether Python code in these files may find the folder of the suite; true for compiled modules."""
    python = [path for path in files if path.suffix == ".py"]
    modules = {path.stem.encode() for path in python}
    if any(path.suffix in (".so", ".pyd") for path in files):
        return True
    for content in map(read_regular, python):
        asked = {name.partition(b".")[0] for name in _FOUND_SPEC.findall(content)}
        if _FINDS_FILES.search(content) or not asked.isdisjoint(modules):
            return True
    return False


def _only_compiled(suite: Suite) -> set[Path]:
    """Return the sources of kernels that no Python code has opened in this process, with links resolved."""
    sources = {*suite.prelude.values(), *(name for kernel in suite.kernels for name in kernel.files)}
    # A Python file is never just a kernel's source.
    compiled = {(suite.root / name).resolve() for name in sources if not name.endswith(".py")}
    return compiled - opened_files()


_READS_ITSELF = re.compile(rb"lineno|getsource|\binspect\b|\btraceback\b|__file__")
"""Words in a Python file that may read its own text or positions."""


def _parsed(content: bytes) -> bytes:
    """Return the meaning of a Python file, without comments and layout."""
    if _READS_ITSELF.search(content):
        return content
    import ast

    try:
        return ast.dump(ast.parse(content)).encode(errors="surrogatepass")
    except (SyntaxError, ValueError, RecursionError):
        return content


def files_outside(suite: Suite) -> set[Path]:
    """Return the files outside of the suite's folder that a build can read: preludes, and included files."""
    found: set[Path] = set()
    sources = (file for kernel in suite.kernels for file in kernel.files)
    wanted = [suite.root / name for name in (*suite.prelude.values(), *sources)]
    searched = _searched(suite)
    while wanted:
        path = Path(os.path.normpath(wanted.pop()))
        if path in found:
            continue
        try:
            text = read_regular(path).decode(errors="replace")
        except OSError:  # reported by the build that needs it
            continue
        found.add(path)
        wanted += [path.parent / match[1] for match in QUOTED_INCLUDE.finditer(text)]
        if searched:
            names = _ANY_INCLUDE.findall(text)
            wanted += [folder / name for name in names if name for folder in searched]
            if "" in names:  # a macro gives the name, so it may be any file
                wanted += [file for folder in searched for file in _files_below(folder)]
    return {path for path in found if not path.is_relative_to(suite.root)}


def _searched(suite: Suite) -> list[Path]:
    """Return the folders in which any kernel looks for headers. Errors are raised when a kernel is built."""
    found: dict[str, None] = {}
    for kernel in suite.kernels:
        with contextlib.suppress(SuiteError, ConfigError):
            found |= dict.fromkeys(include_folders(suite, kernel))
    return list(map(Path, found))


def definition_sha256(suite: Suite) -> str:
    """Return a hash of the suite's files that define its problem.

    Files that only compilers read are left out, and functions' files that no other code can import; files
    that Python code opened elsewhere are included. Equal hashes mean the same problem. Call it in the process
    that has loaded the suite.
    """
    found = hashlib.sha256()
    compiled = _only_compiled(suite)
    function = suite.problem.reference_function
    beside = {*opened_beside(suite.root), *([function.path] if function else [])}
    files = {*tree_files(suite), *filter(Path.is_file, beside)}
    named = {os.path.relpath(path, suite.root): Path(os.path.realpath(path)) for path in files}
    contents = {name: read_regular(path) for name, path in sorted(named.items()) if path not in compiled}
    apart = _of_functions(suite, {named[name]: content for name, content in contents.items()})
    for name, content in contents.items():
        if named[name] not in apart:
            found.update(f"{len(name)}:{name}{len(content)}:".encode() + content)
    return found.hexdigest()


def _of_functions(suite: Suite, contents: Mapping[Path, bytes]) -> set[Path]:
    """Return the Python files of kernels that the suite's other code has not opened and cannot import.

    Other code could import a file if it has the module's name, and find any file by its place.
    """
    function = suite.problem.reference_function
    named = {
        Path(os.path.realpath(suite.root / file)): file
        for kernel in suite.kernels
        for file in kernel.files
        if file.endswith(".py")
    }
    own = {path: file for path, file in named.items() if path in contents}
    for path in (*opened_files(), *([Path(os.path.realpath(function.path))] if function else [])):
        own.pop(path, None)
    others = {path: content for path, content in contents.items() if path not in own}
    if _may_find_files(others):
        return set()
    python = [content for path, content in others.items() if path.suffix == ".py"]
    return {path for path, file in own.items() if not any(_may_import(each, file) for each in python)}


def _may_import(content: bytes, file: str) -> bool:
    """Tell whether a Python file imports a module or names it in a text.

    Kernels' names, the path of the module's file and comments count as neither.
    """
    import ast

    module = Path(file).stem
    try:
        nodes = [*ast.walk(ast.parse(content))]
    except (SyntaxError, ValueError, RecursionError):
        return True
    innocent: set[ast.AST] = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Kernel":
            innocent |= {*node.args[:1]}
    texts: list[str] = []
    for node in nodes:
        match node:
            case ast.ImportFrom():
                texts += [node.module or "", *(alias.name for alias in node.names)]
            case ast.Import():
                texts += [alias.name for alias in node.names]
            case ast.Constant() if node not in innocent and node.value != file:
                texts.append(str(node.value))
    word = re.compile(rf"\b{re.escape(module)}\b")
    return module == "__init__" or any(map(word.search, texts))


def origin_sha256(suite: Suite) -> str:
    """Return a hash of everything that the suite's data and references depend on; empty if unknown.

    These are the suite's definition and the installed packages. It is unknown if Python code has opened a
    file elsewhere. Call it in the process that has loaded the suite.
    """
    if opened_elsewhere(suite.root):
        return ""
    return hashlib.sha256(repr((definition_sha256(suite), installed_at())).encode()).hexdigest()
