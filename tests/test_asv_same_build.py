"""asv continuous and asv find where figures differ and binaries do not.

The null device is given each commit's time by hand, so that a commit which changes the README alone
comes out slower: what noise does on a real card.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("asv")

from tests.support import commit_each, make_repository
from tests.test_asv import FILES, PLAIN, SUITES, Home

CASE = r"track_time_ms\('plain', 64\)"
NAME = "suites.Toy.track_time_ms"
MEASURED_AS_SAID = SUITES.replace(
    "        return self.measure()",
    """\
        import json, os, pathlib
        script = pathlib.Path(os.environ["HARNESS_NULL_SCRIPT"])
        times = json.loads(script.with_name("times.json").read_text())
        told = times[os.environ["ASV_COMMIT"]]
        script.write_text(json.dumps({f"toy.{name}": {"times_ns": [told[name]]} for name in told}))
        return self.measure()""",
)


class Noisy(NamedTuple):
    """A project, and its commits in order."""

    home: Home
    line: list[str]

    @property
    def scratch(self) -> Path:
        return self.home.home / "tmp"

    def of_plain(self, *times_ns: float) -> dict[str, dict[str, float]]:
        return {commit: {"plain": each} for commit, each in zip(self.line, times_ns, strict=True)}

    def asv(self, *arguments: str, times_ns: dict[str, dict[str, float]]):
        """Run asv where kernels take the times that are given by commit."""
        script = self.home.home / "script.json"
        script.with_name("times.json").write_text(json.dumps(times_ns), encoding="utf-8")
        return self.home.asv(*arguments, HARNESS_NULL_SCRIPT=str(script), TMPDIR=str(self.scratch))


@pytest.fixture
def project(tmp_path):
    """Six commits; the fifth alone changes the kernel that is measured."""
    root = make_repository(tmp_path / "project")
    (tmp_path / "home" / "tmp").mkdir(parents=True)
    (tmp_path / "home" / "script.json").write_text("{}", encoding="utf-8")
    changes: list[dict[str, str]] = [{"README.md": f"{number}\n"} for number in range(6)]
    changes[0] |= {**FILES, "benchmarks/suites.py": MEASURED_AS_SAID}
    changes[4] |= {"kernels/toy/plain.cu": PLAIN + "// another kernel\n"}
    line = commit_each(root, changes)
    return Noisy(Home(root, tmp_path / "home", {}), line)


def test_continuous_marks_the_kernel_that_was_changed_and_not_the_noise_of_the_other(project):
    before, after = project.line[3:5]
    times = {before: {"plain": 2000.0, "tiled": 1000.0}, after: {"plain": 1000.0, "tiled": 2000.0}}
    done = project.asv("continuous", "-b", r"track_time_ms\(.*, 64\)", before, after, times_ns=times)
    tiled, plain = f"{NAME}('tiled', 64)", f"{NAME}('plain', 64)"
    assert f"{tiled} is not marked: {before[:8]} and {after[:8]} run the same binary." in done.stdout
    [row] = [line for line in done.stdout.splitlines() if line.startswith(("| -", "| +"))]
    assert plain in row
    assert "PERFORMANCE INCREASED" in done.stdout
    assert done.returncode == 0


def test_find_names_the_commit_that_changed_the_binary_and_not_the_largest_noise(project):
    times = project.of_plain(1000.0, 1000.0, 1000.0, 3000.0, 3300.0, 3300.0)
    done = project.asv("find", f"{project.line[2]}..HEAD", CASE, times_ns=times)
    assert f"Greatest regression found: {project.line[4][:8]}" in done.stdout
    assert done.returncode == 0


def test_find_names_no_commit_where_all_run_one_binary(project):
    times = project.of_plain(1000.0, 1000.0, 1000.0, 3000.0, 3000.0, 3000.0)
    span = f"{project.line[0]}..{project.line[3]}"
    done = project.asv("find", "--skip-save", span, CASE, times_ns=times)
    assert "Greatest regression" not in done.stdout
    assert "No regression was found: asv would name " in done.stdout
    assert "whose binary is that of the commit before" in done.stdout
    assert done.returncode == 1
    assert not project.home.results.exists()
    assert [*project.scratch.iterdir()] == []


def test_find_names_no_commit_that_is_no_better(project):
    times = project.of_plain(1000.0, 1000.0, 1000.0, 1000.0, 2000.0, 2000.0)
    done = project.asv("find", "--invert", f"{project.line[2]}..HEAD", CASE, times_ns=times)
    assert "No improvement was found" in done.stdout
    assert "whose figure is no better than that of the commit before" in done.stdout
    assert done.returncode == 1


def test_find_names_no_commit_that_asv_has_not_measured(project):
    done = project.asv("find", "HEAD~2..HEAD", CASE, times_ns={})
    last = project.line[-1][:8]
    assert f"asv would name {last} and has not measured it, as 2 commits are too few" in done.stdout
    assert f"asv continuous {last}^ {last}" in done.stdout
    assert done.returncode == 1
