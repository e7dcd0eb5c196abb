"""Which packages are installed, and whether they are what a kernel needs.

Apart from the rest, because asking takes longer to import than all else that most kernels need.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from packaging.requirements import Requirement


def lacking(needs: Sequence[str], groups: Sequence[Sequence[str]] = ()) -> str:
    """Return which requirement is not installed, and what to do; empty where all are, one of each group."""
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
    """Name and version of each; of a package that is absent, where nothing is built, that."""
    return [f"{name} {_version(name)}" for name in (Requirement(need).name for need in needs)]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
