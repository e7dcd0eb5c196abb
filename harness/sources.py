"""The text that a compiler gets: macros, then the backend's prelude, then the kernel's source, in one piece.

One self-contained text means one hash that covers everything the author wrote, and the same text for every
backend.
"""

from __future__ import annotations

__all__ = ["Program", "files_outside", "program", "tree_sha256"]

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import SuiteError
from harness.suite import Case, Kernel, Suite

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*$", re.MULTILINE)

_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//(?:\\\n|[^\n])*|/\*.*?\*/""", re.DOTALL)
"""A comment, or in a group of its own a literal, in which nothing is one."""


def _blank(match: re.Match[str]) -> str:
    return match[1] or " "


@dataclass(frozen=True)
class Program:
    """One kernel of one case as source text, ready for a backend."""

    name: str
    """suite.kernel, for messages and file names."""
    function: str
    text: str
    options: tuple[str, ...] = ()
    emulate: Callable[..., Any] | None = field(default=None, compare=False)
    """What the kernel computes, on host arrays: what the null backend runs in place of a device."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256("\0".join((self.text, *self.options)).encode()).hexdigest()

    @property
    def code_sha256(self) -> str:
        """Without comments, spaces at the ends of lines, empty lines and what tells a line's number."""
        lines = _COMMENT.sub(_blank, self.text).splitlines()
        code = [line.rstrip() for line in lines if line.strip() and not line.startswith("#line")]
        return hashlib.sha256("\0".join(("\n".join(code), *self.options)).encode()).hexdigest()


def program(suite: Suite, kernel: Kernel, case: Case, backend: str) -> Program:
    """The program of a case for a backend.

    Raises SuiteError where a source file, or one that it includes, cannot be read.
    """
    parts = [f"#define {name} {value}" for name, value in case.macros.items()]
    once: set[Path] = set()
    if prelude := suite.prelude.get(backend):
        parts.append(_flatten(suite.root / prelude, once))
    parts.append(_flatten(suite.root / kernel.source, once))
    return Program(
        name=f"{suite.name}.{kernel.name}",
        function=kernel.function,
        text="\n".join(parts) + "\n",
        options=tuple(kernel.options.get(backend, ())),
    )


def _flatten(path: Path, once: set[Path], including: tuple[Path, ...] = ()) -> str:
    """The text of a file with its quoted includes put in place; #line keeps compiler messages pointing at
    the file. `once` collects the files that say #pragma once, which one text cannot say to a compiler.
    """
    path = Path(os.path.normpath(path))
    if path in including:
        raise SuiteError(f"{path} includes itself.")
    if path in once:
        return ""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        by = f", included by {including[-1].name}" if including else ""
        raise SuiteError(
            f"Cannot read kernel source {path}{by}: {error}. Check the name in suite.py."
        ) from None

    if _ONCE.search(text):
        once.add(path)
        text = _ONCE.sub("", text)

    def include(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.end()) + 2
        return f'{_flatten(path.parent / match[1], once, (*including, path))}\n#line {line} "{path.name}"'

    return f'#line 1 "{path.name}"\n' + _INCLUDE.sub(include, text)


def tree_sha256(suite: Suite) -> str:
    """A hash of everything that a build can read: names and bytes of every file of the suite's folder, caches
    left out, and of the files elsewhere that preludes and sources lead to.
    """
    digest = hashlib.sha256()
    files = {path for path in suite.root.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    files |= files_outside(suite)
    for name, path in sorted((_relative(path, suite.root), path) for path in files):
        content = path.read_bytes()
        digest.update(f"{len(name)}:{name}{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def files_outside(suite: Suite) -> set[Path]:
    """The files outside the suite's folder that a build can read: preludes, and what is included."""
    found: set[Path] = set()
    wanted = [suite.root / name for name in (*suite.prelude.values(), *(k.source for k in suite.kernels))]
    while wanted:
        path = Path(os.path.normpath(wanted.pop()))
        if path in found or not path.is_file():
            continue
        found.add(path)
        text = path.read_text(encoding="utf-8", errors="replace")
        wanted += [path.parent / match[1] for match in _INCLUDE.finditer(text)]
    return {path for path in found if not path.is_relative_to(suite.root)}


def _relative(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()
