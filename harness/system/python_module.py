"""Commands that run a Python module in a folder whose files may shadow standard modules."""

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
    """Return the command that runs a module like ``python -m``, but without the working folder on its path.

    Packages in the folder `packages` come after the standard library and before installed ones.
    """
    return [sys.executable, "-c", _START, str(packages or ""), module, *words]
