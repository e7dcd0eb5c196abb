"""The files of `harness init`: their text, and how they are written into a repository."""

from __future__ import annotations

import json
import keyword
import os
import posixpath
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import harness
from harness.config import Config, has_settings, load_config
from harness.errors import StoreError, UsageError
from harness.init import opencl_text
from harness.init.guessed_suite import INDICES, ArrayGuess, KernelGuess, SuiteGuess
from harness.records.imports.asv_configuration import confs_below, confs_in
from harness.system.files import read_regular, write_all

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_WIDTH = 100
_FLOATING = ("float", "bfloat")

_TESTS = '''\
"""Every case of this project's suites, for pytest."""


def test_kernel(gpu_benchmark, gpu_case):
    gpu_benchmark(gpu_case)
'''
_PACKAGE = '"""What asv and pytest run: the suites themselves say which kernels and sizes there are."""\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of writing, by path below the folder."""

    written: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    """Existing files with another content, left unchanged."""


def planned(suites: Sequence[SuiteGuess], folder: Path, below: str) -> dict[str, str]:
    """Return the text of every file, by its path below the project's folder. Suites lie in `below`.

    A project's own asv configuration and `benchmarks` folder stay unchanged. In asv's environments, which
    lack the harness, a failing import would stop every benchmark. In the harness's environments nothing of
    the project is built. So the new files lie among the suites. Records and asv's results share a folder.
    """
    others, has_asv = folder / "benchmarks", own_conf(folder) is not None
    has_benchmarks = others.is_dir() and not _names_harness(others / "suites.py")
    home = below if has_asv else "."
    benchmarks = f"{below}/kernel_benchmarks" if has_asv or has_benchmarks else "benchmarks"
    results = load_config(folder).results if has_settings(folder) else Config.results
    if has_asv and results == Config.results:  # where the project's may lie
        results = f"{below}/{results}"
    names = dict.fromkeys((*_there(folder, below), *(suite.name for suite in suites)))
    folders = {name: posixpath.relpath(f"{below}/{name}", posixpath.dirname(benchmarks)) for name in names}
    return {
        **{f"{below}/{suite.name}/suite.py": suite_text(suite, f"{below}/{suite.name}") for suite in suites},
        **_settings(folder, below, results),
        posixpath.normpath(f"{home}/asv.conf.json"): _asv_settings(folder, home, benchmarks, results),
        f"{benchmarks}/__init__.py": _PACKAGE,
        f"{benchmarks}/suites.py": _templates().get_template("tracks.py.j2").render(folders=folders),
        f"{benchmarks}/test_kernels.py": _TESTS,
    }


def own_conf(folder: Path) -> Path | None:
    """Return the project's own asv configuration, which does not name the harness; None without one.

    If the project's folder has no configuration, it may be in a folder below.
    """
    found = confs_in(folder) or confs_below(folder)
    return next((file for file in found if not _names_harness(file)), None)


def _names_harness(file: Path) -> bool:
    """Return whether a file names the harness's integrations, like the files of `harness init`."""
    return file.exists() and b"harness.integrations" in read_regular(file)


def _there(folder: Path, below: str) -> list[str]:
    """Return the existing suites."""
    return sorted(file.parent.name for file in (folder / below).glob("*/suite.py"))


def not_measured_yet(suites: Sequence[SuiteGuess], folder: Path, below: str) -> list[SuiteGuess]:
    """Return the suites without kernels that another suite in the folder already has, by name and file."""
    place = folder / below
    texts = {name: (place / name / "suite.py").read_text(errors="replace") for name in _there(folder, below)}
    found = []
    for suite in suites:
        others = {f"{below}/{name}": text for name, text in texts.items() if name != suite.name}
        left = tuple(k for k in suite.kernels if not any(_names(others[at], k, at) for at in others))
        if left:
            found.append(replace(suite, kernels=left))
    return found


def _names(text: str, kernel: KernelGuess, folder: str) -> bool:
    """Tell whether a suite's text in `folder` names a kernel and its file."""
    file = posixpath.relpath(kernel.source, folder)
    return f'"{kernel.name}"' in text and (file in text or _quoted(file) in text)


def suites_folder(folder: Path, asked: str | None) -> str:
    """Return the folder for suites: the requested one, else that of the project's settings, else `perf`."""
    globs = _own_globs(folder)
    own = next((each[:-2] for each in globs or () if each.endswith("/*") and "*" not in each[:-2]), None)
    below = posixpath.normpath(asked or own or "perf")
    if posixpath.isabs(below) or below.split("/")[0] == ".." or below == ".":
        raise UsageError(f"--suites is {asked!r}; expected a folder below {folder}, such as perf.")
    if globs is not None and f"{below}/*" not in globs:
        said = ", ".join(globs)
        raise UsageError(
            f"The settings in {folder} say that suites lie in {said}, which does not hold {below}/*. Add "
            f"'{below}/*' to them, or leave --suites out."
        )
    return below


def _own_globs(folder: Path) -> tuple[str, ...] | None:
    """Return the suite globs in this folder's own settings; None without any."""
    return load_config(folder).suites if has_settings(folder) else None


def _settings(folder: Path, below: str, results: str) -> dict[str, str]:
    """Return pyproject.toml with another table, or a harness.toml; nothing if the settings exist."""
    if _own_globs(folder) is not None:
        return {}
    line = f'suites = ["{below}/*"]\n'
    if results != Config.results:
        line += f'results = "{results}"\n'
    project = folder / "pyproject.toml"
    if not project.exists():
        return {
            "harness.toml": f"# Where the suites lie; docs/commands.md has what else can stand here.\n{line}"
        }
    before = read_regular(project).decode()
    after = f"{before.rstrip()}\n\n[tool.harness]\n{line}"
    try:
        tomllib.loads(after)
    except ValueError:  # such as an inline table of tools, which cannot be extended at the end
        return {"harness.toml": line}
    return {"pyproject.toml": after}


def _asv_settings(folder: Path, home: str, benchmarks: str, results: str) -> str:
    """Return asv.conf.json for the folder `home`. Paths, like `home` itself, are relative to the project's
    top.
    """
    settings = {
        "version": 1,
        "project": folder.resolve().name,
        "repo": posixpath.relpath(".", home),
        "branches": ["HEAD"],
        "plugins": [".harness.integrations.asv_plugin"],
        "environment_type": "checkout",
        "pythons": ["any"],
        "benchmark_dir": posixpath.relpath(benchmarks, home),
        "env_dir": ".asv/env",
        "results_dir": results if posixpath.isabs(results) else posixpath.relpath(results, home),
        "html_dir": ".asv/html",
    }
    return json.dumps(settings, indent=4) + "\n"


def write(folder: Path, files: Mapping[str, str], *, force: bool, dry_run: bool) -> Written:
    """Write missing files. A different file stays unchanged unless `force` is set.

    pyproject.toml is only extended, and always written. Raises StoreError if a file cannot be written, and
    then removes the files written so far.
    """
    outcome: dict[str, list[str]] = {"written": [], "unchanged": [], "differs": []}
    changed: dict[Path, bytes] = {}
    try:
        for name, text in files.items():
            path, content = (folder / name).resolve(), text.encode()
            before = read_regular(path) if os.path.lexists(path) else None
            if before == content:
                outcome["unchanged"].append(name)
            elif before is not None and not force and name != "pyproject.toml":
                outcome["differs"].append(name)
            else:
                outcome["written"].append(name)
                changed[path] = content
        if not dry_run:
            write_all(changed, folder)
    except OSError as error:
        raise StoreError(
            f"Cannot write {error.filename}: {error.strerror or error}. Nothing was changed in {folder}; "
            "give a folder that can be written."
        ) from None
    return Written(**{what: tuple(names) for what, names in outcome.items()})


# --- suite.py -----------------------------------------------------------------------------------


def _class_name(name: str) -> str:
    found = "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)
    taken = found in harness.__all__ or keyword.iskeyword(found)
    return f"{found}Problem" if taken or not found.isidentifier() else found


def _comment(text: str, indent: int) -> str:
    head = " " * indent + "# "
    return textwrap.fill(text, _WIDTH, initial_indent=head, subsequent_indent=head, break_long_words=False)


def _quoted(text: str) -> str:
    """Return a text as a Python string in a formatter's style. A file may have any name."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else ascii(text)


def suite_text(suite: SuiteGuess, folder: str) -> str:
    """Return suite.py of a suite in `folder`, relative to the project."""
    names = {"Kernel", "Problem", "Suite", "Axis", *(array.role for array in suite.arrays)}
    names |= {"Scalar"} if suite.numbers else set()
    names |= {kernel.function for kernel in suite.kernels if kernel.function}
    file, function = suite.reference_function or ("", "")
    names |= {"ReferenceFunction"} if function and not suite.reference else set()
    outputs = [array for array in suite.arrays if array.role != "Input"]
    given = [array for array in suite.arrays if array.role != "Output"]
    return (
        _templates()
        .get_template("suite.py.j2")
        .render(
            suite=suite,
            class_name=_class_name(suite.name),
            names=sorted(names),
            about=_about(suite, outputs),
            # Truncated normal numbers would mostly be zeros.
            whole=[array for array in given if not array.dtype.startswith(_FLOATING)],
            results=[f"{array.name} of shape ({', '.join(array.shape)})" for array in outputs],
            compiled=partial(_compiled, folder=folder),
            reference_file=_quoted(posixpath.relpath(file, folder)) if file else "",
            reference_name=function,
            drawn=_drawn,
            fields=partial(_fields, suite),
            sizes=_sizes,
            strings=_strings,
            words_of=partial(_words_of, dtype=suite.dtype),
        )
    )


@cache
def _templates() -> Environment:
    """Return the templates beside this file, without HTML escapes, because they make Python."""
    made = Environment(  # noqa: S701
        keep_trailing_newline=True,
        loader=FileSystemLoader(Path(__file__).parent),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "comment": _comment,
        "because": _because,
        "class_name": _class_name,
        "returned": _returned,
    }
    return made


def _because(line: str, why: str) -> str:
    """Return a line with its reason after it, or above it if there is no room."""
    line, why = line.rstrip(), " ".join(why.split())
    if not why:
        return f"{line}\n"
    indent = len(line) - len(line.lstrip())
    return f"{line}  # {why}\n" if len(line) + len(why) < _WIDTH else f"{_comment(why, indent)}\n{line}\n"


def _returned(text: str, mark: str = "") -> str:
    """Return the body of a method that returns the last line of a text; each line after a mark."""
    *before, expression = text.split("\n")
    return "\n".join(f"    {mark}    {line}" for line in (*before, f"return {expression}"))


def _about(suite: SuiteGuess, outputs: Sequence[ArrayGuess]) -> str:
    known = suite.reference.expression if suite.reference else ""
    if suite.reference and "\n" in known:
        known = suite.reference.why.rpartition(": ")[2].capitalize()
    elif known:
        known = f"{outputs[0].name} = {known}"
    about = suite.about or known.replace("case.", "") or "Define the computation here"
    about = about.replace("\\", "").replace('"', "'")
    return about if about.isprintable() and len(about) < _WIDTH - 12 else suite.name


def _tuple(words: Sequence[str]) -> str:
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def _strings(names: Sequence[str]) -> str:
    return _tuple([_quoted(name) for name in names])


def _sizes(numbers: Sequence[int]) -> str:
    return _tuple([f"2**{n.bit_length() - 1}" if n > 2**14 and n & (n - 1) == 0 else str(n) for n in numbers])


def _words_of(array: ArrayGuess, dtype: str) -> list[str]:
    """Return the arguments of an array's declaration, in a suite of that element type."""
    words = [f'"{axis}"' for axis in array.shape]
    words += [f'dtype="{array.dtype}"'] if array.dtype != dtype else []
    words += ["init=0"] if array.init else []
    words += ['order="F"'] if array.column_major else []
    return words


def _drawn(array: ArrayGuess) -> str:
    """Return the random integers that an array is filled with."""
    least = 0 if INDICES.fullmatch(array.name) or array.dtype.startswith(("u", "bool")) else -8
    most = 2 if array.dtype == "bool" else 9
    shape = _tuple([f"case.{axis}" for axis in array.shape])
    return f'rng.integers({least}, {most}, {shape}).astype("{array.dtype}")'


def _compiled(kernel: KernelGuess, folder: str) -> str:
    """Return the source of a kernel for `Kernel`, relative to the suite's folder."""
    source = _quoted(posixpath.relpath(kernel.source, folder))
    if kernel.function:
        return f'{kernel.function}({source}, "{kernel.entry}")'
    by_suffix = kernel.instantiate or kernel.source.endswith(opencl_text.SUFFIX)
    return source if by_suffix else f'{{"cuda": {source}}}'


def _fields(suite: SuiteGuess, kernel: KernelGuess) -> dict[str, str]:
    """Return the keywords of a Kernel with their values; omitted ones are empty."""
    return {
        "entry": f'"{kernel.entry}"' if kernel.entry and not kernel.function else "",
        "instantiate": _quoted(kernel.instantiate) if kernel.instantiate else "",
        "macros": _macros(kernel.macros),
        "include": _strings(kernel.include) if kernel.include else "",
        "arch": f'"{kernel.arch}"' if kernel.arch else "",
        "options": f'{{"cuda": {_strings(kernel.options)}}}' if kernel.options else "",
        "block": kernel.block,
        "grid": kernel.grid,
        "dynamic_shared_bytes": kernel.shared,
        "args": "ARGS" if suite.args else "",
        "setup": "structures" if suite.structures else "",
        "dtype": f'"{suite.dtype}"' if suite.dtype != "float32" else "",
    }


def _macros(values: Mapping[str, int]) -> str:
    macros = ", ".join(f'"{name}": {value}' for name, value in values.items())
    if len(macros) <= _WIDTH - 22:
        return f"{{{macros}}}" if macros else ""
    inside = " " * 16
    lines = textwrap.fill(macros, _WIDTH, initial_indent=inside, subsequent_indent=inside)
    return f"{{\n{lines},\n{inside[4:]}}}"
