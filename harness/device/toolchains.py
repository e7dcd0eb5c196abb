"""Toolchains named on the command line: another nvcc, or a Python environment with other packages.

Finding one runs its nvcc or its Python once, and imports nothing from it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from harness.device.backends import nvcc
from harness.errors import BuildError, UsageError
from harness.records.types import Toolchain
from harness.system.cache import cache_dir
from harness.system.decoding import decode

COMPILING = (
    *("torch", "triton", "pytorch-triton", "jax", "jaxlib", "numba", "numba-cuda"),
    *("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "pycuda"),
)
"""Packages that compile kernels or contain compiled ones, on which an environment's times depend."""
NEEDED = ("ml_dtypes", "msgspec", "numpy", "packaging", "platformdirs", "psutil", "scipy")
"""Modules that a worker process imports besides the harness."""
_TIMEOUT_S = 60.0
_VERSION = re.compile(r"\d+(\.\d+){0,2}\Z")
_PROBE = """
import importlib.util, json, platform, sys
from importlib import metadata
asked, needed, package = json.loads(sys.argv[1])
packages = {}
for name in asked:
    try:
        packages[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
try:
    files = metadata.files(package) or ()
except metadata.PackageNotFoundError:
    files = ()
print(json.dumps({
    "version": platform.python_version(),
    "packages": packages,
    "nvcc": next((str(file.locate()) for file in files if file.name == "nvcc"), ""),
    "missing": [name for name in needed if importlib.util.find_spec(name) is None],
}))
"""


class FoundToolchain(msgspec.Struct, frozen=True, kw_only=True):
    """The compiler of one side of a comparison, or an environment described by its Python."""

    given: str = ""
    """The name as given."""
    nvcc: str = ""
    """Path of the compiler for sources; empty for the default one."""
    python: str = ""
    """The interpreter for Python functions; empty for the harness's own."""
    version: str = ""
    """The interpreter's version."""
    packages: Mapping[str, str]
    """Versions of the compiling packages in its environment, by name."""
    missing: tuple[str, ...] = ()
    """Modules that a worker needs and the environment lacks."""

    @property
    def record(self) -> Toolchain:
        packages = [f"{name} {version}" for name, version in self.packages.items()]
        python = [f"Python {self.version}", *packages] if self.python else []
        compiler = [nvcc.version(self.nvcc)] if self.nvcc else []
        return Toolchain(compiler=", ".join((*compiler, *python)), options=nvcc.environment())


def find(given: str) -> FoundToolchain:
    """Return the toolchain for a path or a version. Raises UsageError for anything else."""
    path = Path(given).expanduser()
    if _VERSION.match(given) and not path.exists():
        return FoundToolchain(given=given, nvcc=_of_version(given), packages={})
    for name in (path, path / "bin" / "nvcc"):
        if name.is_file() and name.name.startswith("nvcc"):
            return FoundToolchain(given=given, nvcc=_checked(given, name.absolute()), packages={})
    for name in (path, path / "bin" / "python"):
        if name.is_file() and name.name.startswith("python"):
            # Not resolved: a virtual environment is identified by the location of its link to Python.
            return _environment(given, name.absolute())
    raise UsageError(
        f"--toolchain {given}: expected an nvcc, a CUDA folder with bin/nvcc, a Python environment or its "
        "interpreter, or the version of a CUDA that is installed, such as 12.9."
    )


def _checked(given: str, path: Path) -> str:
    try:
        version = nvcc.version(str(path))
    except BuildError as error:
        raise UsageError(f"--toolchain {given}: {error.message}") from None
    if version == nvcc.UNKNOWN:
        raise UsageError(f"--toolchain {given}: {path} does not tell a version as nvcc does.")
    return str(path)


def _of_version(wanted: str) -> str:
    installed: dict[str, str] = {}
    for path in _installed():
        release = _release(path)
        if f"{release}.".startswith(f"{wanted}."):
            return path
        installed.setdefault(release, path)
    listed = ", ".join(f"{release} ({path})" for release, path in installed.items()) or "none"
    raise UsageError(
        f"--toolchain {wanted}: no nvcc of this version in /usr/local, in /opt, on PATH or in this Python's "
        f"packages. There is {listed}. Give the path of one."
    )


def _release(path: str) -> str:
    """Return an nvcc's release, such as 13.0.88, which it prints after a V; "" if it does not start."""
    with suppress(BuildError):
        return nvcc.version(path).rpartition("V")[2]
    return ""


def _installed() -> Iterator[str]:
    """Yield each nvcc in the usual places."""
    for folder in (Path("/usr/local"), Path("/opt"), Path("/opt/cuda")):
        for path in sorted(folder.glob("cuda*/bin/nvcc")):
            if os.access(path, os.X_OK):
                yield str(path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if (path := Path(os.environ.get(variable, "")) / "bin" / "nvcc").is_file():
            yield str(path.absolute())
    yield from nvcc.paths()


def _environment(given: str, python: Path) -> FoundToolchain:
    asked = msgspec.json.encode((COMPILING, NEEDED, nvcc.PACKAGE)).decode()
    try:
        # Isolated: this process's PYTHONPATH and the current folder do not belong to the environment.
        done = subprocess.run(
            [str(python), "-I", "-c", _PROBE, asked],
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
        found = decode(done.stdout, FoundToolchain)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise UsageError(f"--toolchain {given}: {python} does not run as Python 3 does ({error}).") from None
    return msgspec.structs.replace(found, given=given, python=str(python))


def pair_of(named: Sequence[str]) -> dict[Literal["base", "head"], FoundToolchain]:
    """Return base's and head's toolchain. Raises UsageError unless there are two of one kind."""
    if len(named) != 2:
        raise UsageError("--toolchain is given twice, base's first: two are compared.")
    base, head = map(find, named)
    if bool(base.nvcc) != bool(head.nvcc) and not (base.python and head.python):
        other = head if base.nvcc else base
        raise UsageError(f"--toolchain {other.given} has no nvcc, which the other is: name two of a kind.")
    return {"base": base, "head": head}


def environment_of(toolchain: FoundToolchain) -> dict[str, str]:
    """Return variables that put this toolchain first in a process, with extensions of its own."""
    found = {
        "TORCH_EXTENSIONS_DIR": str(
            Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache_dir() / "torch-extensions")
            / hashlib.sha256(f"{toolchain.python}\0{toolchain.nvcc}".encode()).hexdigest()[:16]
        )
    }
    folders = [str(Path(tool).parent) for tool in (toolchain.python, toolchain.nvcc) if tool]
    found["PATH"] = os.pathsep.join((*folders, os.environ.get("PATH", os.defpath)))
    if toolchain.nvcc:
        found["CUDA_HOME"] = str(Path(toolchain.nvcc).parents[1])
    return found
