"""Checks if installed packages meet a kernel's requirements.

It is separate because its imports take longer than all others that most kernels need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from importlib import metadata

from packaging.requirements import Requirement


def lacking(needs: Sequence[str], groups: Sequence[Sequence[str]] = ()) -> str:
    """Return which requirement is not installed, and what to do.

    Empty if all are installed, and one package of each group.
    """
    alone = [names[0] for names in groups if first_installed(names) is None]
    for requirement in map(Requirement, [*alone, *needs]):
        found = _version(requirement.name)
        if found == "absent":
            absent = f"needs the package {requirement.name}, which is not installed"
            return f"{absent}: pip install '{requirement}'."
        if not requirement.specifier.contains(found, prereleases=True):
            return f"needs {requirement}; installed is {found}: pip install '{requirement}'."
    return ""


def first_installed(names: Sequence[str]) -> str | None:
    """Return the first of these packages that is installed."""
    return next((name for name in names if _version(name) != "absent"), None)


def versions(needs: Sequence[str]) -> list[str]:
    """Return name and version of each; for a missing package, which is not needed for a build, a note."""
    return [f"{name} {_version(name)}" for name in (Requirement(need).name for need in needs)]


def modules_of(needs: Sequence[str]) -> set[str]:
    """Return the top-level modules of these packages, as far as they are installed."""
    found: set[str] = set()
    for need in needs:
        with contextlib.suppress(metadata.PackageNotFoundError):
            files = metadata.files(Requirement(need).name) or ()
            found |= {file.parts[0].removesuffix(".py") for file in files}
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
