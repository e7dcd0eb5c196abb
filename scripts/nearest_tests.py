"""Run the tests nearest to what changed since the branch left main, nearest first, until the time is over.

    python scripts/nearest_tests.py --seconds 40

A test file is near to a changed file that it imports, or whose name it holds; less near is one that imports a
module that imports the changed one, and so on. On main itself, the last commit is what changed.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES = 12
"""Only to import all test files takes longer than a minute allows."""


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> set[str]:
    untracked = git("ls-files", "--others", "--exclude-standard")
    for main in ("origin/main", "main"):
        for base in git("merge-base", main, "HEAD"):
            if changed := {*git("diff", "--name-only", base), *untracked}:
                return changed
    return {*git("diff", "--name-only", "HEAD~1"), *untracked}


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(source: str) -> set[str]:
    """Full names of all that is imported; a name imported from a module counts as a module too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def nearest(changed: Iterable[str]) -> list[str]:
    """Test files, those that changed first, then by how many imports lie between them and what changed."""
    sources = {
        file: (ROOT / file).read_text(encoding="utf-8")
        for file in git("ls-files", "--cached", "--others", "--exclude-standard", "*.py")
        if (ROOT / file).exists()
    }
    imports = {file: imports_of(source) for file, source in sources.items()}
    known = set(changed)
    names = {Path(file).name for file in known if not file.endswith(".py")}
    ring = known | {f for f, text in sources.items() if "tests/" in f and any(name in text for name in names)}
    if any(name.endswith(".md") for name in names):
        ring.add("tests/test_docs.py")
    words = {part for file in known for part in (Path(file).stem, Path(file).parent.name)}
    ordered: list[str] = []
    while ring:
        tests = [file for file in ring if Path(file).name.startswith("test_") and file in sources]
        ordered += sorted(tests, key=lambda test: (all(word not in Path(test).stem for word in words), test))
        known |= ring
        modules = {module_of(file) for file in ring if file in sources}
        ring = {file for file, needs in imports.items() if needs & modules} - known
    return ordered


class Budget:
    """Runs test files in this order, and ends when the time is over. What was not reached is no failure."""

    def __init__(self, seconds: float, tests: list[str]) -> None:
        self.ends, self.over, self.left = time.monotonic() + seconds, False, 0
        self.order = {ROOT / test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.order[item.path])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.left = len(session.items)

    def pytest_runtest_logfinish(self) -> None:
        self.left -= 1

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if time.monotonic() > self.ends:
            self.over = True
            item.session.shouldstop = "the time is over"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=40, help="after which no other test begins")
    given = parser.parse_args()
    tests = nearest(changed_files())
    if not tests:
        print("No test is near to what changed.")
        return 0
    budget = Budget(given.seconds, tests)
    chosen = ["-q", "-m", "not gpu and not slow", "-x", *tests[:MOST_FILES]]
    status = pytest.main(chosen, plugins=[budget])
    further = len(tests[MOST_FILES:])
    # Where all that is near needs a card or a browser there is nothing to run here, which is no failure.
    fine = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if status in fine or (status == pytest.ExitCode.INTERRUPTED and budget.over):
        print(f"Not run: {budget.left} tests of these files, and {further} files further away ('make test').")
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
