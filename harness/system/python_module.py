"""Commands that run a module of Python in a folder whose files may bear the names of standard modules."""

from __future__ import annotations

import sys
from pathlib import Path

_START = """\
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import runpy, site
folder, *sys.argv = sys.argv[1:]
installed = {*site.getsitepackages(), site.getusersitepackages()}
at = next((at for at, each in enumerate(sys.path) if each in installed), len(sys.path))
sys.path[at:at] = [folder] if folder else []
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def python_module(module: str, *words: str, packages: Path | None = None) -> list[str]:
    """Return the words that run a module as ``python -m`` does, but with no working folder on its path.

    Packages of the folder `packages` come behind the standard library and before whatever is installed.
    """
    return [sys.executable, "-c", _START, str(packages or ""), module, *words]
