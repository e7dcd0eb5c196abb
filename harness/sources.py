"""The text that a compiler gets: macros, then the backend's prelude, then the kernel's source, in one piece.

One self-contained text means one hash that covers everything the author wrote, and the same text for every
backend.
"""

from __future__ import annotations

__all__ = ["Program", "program", "tree_sha256"]

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


def program(suite: Suite, kernel: Kernel, case: Case, backend: str) -> Program:
    """The program of a case for a backend.

    Raises SuiteError where a source file, or one that it includes, cannot be read.
    """
    parts = [f"#define {name} {value}" for name, value in case.macros.items()]
    if prelude := suite.prelude.get(backend):
        parts.append(_flatten(suite.root, suite.root / prelude))
    parts.append(_flatten(suite.root, suite.root / kernel.source))
    return Program(
        name=f"{suite.name}.{kernel.name}",
        function=kernel.function,
        text="\n".join(parts) + "\n",
        options=tuple(kernel.options.get(backend, ())),
    )


def _flatten(root: Path, path: Path, including: tuple[Path, ...] = ()) -> str:
    """The text of a file with its quoted includes put in place; #line keeps compiler messages pointing at
    the file.
    """
    if path in including:
        raise SuiteError(f"{path} includes itself.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        by = f", included by {including[-1].name}" if including else ""
        raise SuiteError(
            f"Cannot read kernel source {path}{by}: {error}. Check the name in suite.py."
        ) from None

    def include(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.end()) + 2
        return f'{_flatten(root, path.parent / match[1], (*including, path))}\n#line {line} "{path.name}"'

    return f'#line 1 "{path.name}"\n' + _INCLUDE.sub(include, text)


def tree_sha256(suite: Suite) -> str:
    """A hash of the suite's folder and preludes: names and bytes of every file, caches left out."""
    digest = hashlib.sha256()
    files = {path for path in suite.root.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    files |= {
        (suite.root / prelude) for prelude in suite.prelude.values() if (suite.root / prelude).is_file()
    }
    for name, path in sorted((_relative(path, suite.root), path) for path in files):
        content = path.read_bytes()
        digest.update(f"{len(name)}:{name}{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _relative(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()
