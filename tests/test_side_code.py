"""`compare --with-command` of Python: each side imports its own files, or the command says whose it imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.errors import ExitCode
from tests.support import caller, commit, make_repository, write_files

BENCH = """
import json, sys
{imports}
out = sys.argv[-2].partition("=")[2]
entry = {{"name": "copy", "run_name": "copy", "run_type": "iteration", "repetitions": 1, "repetition_index": 0,
         "threads": 1, "iterations": 1000, "time_unit": "ns", "real_time": 100, "cpu_time": {time}}}
context = {{"executable": "bench.py", "num_cpus": 2, "library_version": "v1.9.5", "json_schema_version": 1}}
with open(out, "w") as file:
    json.dump({{"context": context, "benchmarks": [entry]}}, file)
"""
USES_PACKAGE = BENCH.format(imports="import mine.kernels", time="mine.kernels.TIME")

FINDER = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "mine":
            return spec_from_file_location(name, {package!r} + "/__init__.py")

sys.meta_path.{put}
"""
"""As setuptools installs a project to be edited; scikit-build-core's finder is the first, not the last."""


@pytest.fixture
def harness(capsys, monkeypatch, own_cache):
    return caller(capsys, monkeypatch)


class Project:
    """A repository of two commits whose head is 70 % slower, and an environment of its own."""

    def __init__(self, root: Path, sources: str, bench: str = USES_PACKAGE) -> None:
        self.folder = make_repository(root / "repository")
        self.package = self.folder / sources / "mine"
        for day, time in ((1, 100), (2, 170)):
            files = {
                "harness.toml": "",
                ".gitignore": "*.built.py\n",
                "bench/bench.py": bench,
                f"{sources}/mine/__init__.py": "",
                f"{sources}/mine/kernels.py": f"TIME = {time}\n",
            }
            commit(self.folder, files, day)
        environment = root / "environment"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = environment / "lib" / version / "site-packages"
        self.site.mkdir(parents=True)
        base = Path(sys.base_prefix) / "bin"
        (environment / "pyvenv.cfg").write_text(f"home = {base}\n")
        (environment / "bin").mkdir()
        self.python = environment / "bin" / "python"
        self.python.symlink_to(base / version)

    def install(self, how: str) -> None:
        if how == "path":
            (self.site / "mine.pth").write_text(f"{self.package.parent}\n")
        elif how == "copied":
            write_files(self.site / "mine", {"__init__.py": "", "kernels.py": "TIME = 135\n"})
        else:
            put = {"last": "append(Finder)", "first": "insert(0, Finder)"}[how]
            (self.site / "__editable___mine.py").write_text(
                FINDER.format(package=str(self.package), put=put)
            )
            (self.site / "mine.pth").write_text("import __editable___mine\n")


@pytest.fixture
def compare(harness):
    def run(project, *more, command="bench/bench.py"):
        given = ("--with-command", f"{project.python} {command}", "--format", "google-benchmark", "--no-save")
        return harness("compare", "HEAD~1", "HEAD", *given, "--json", *more, cwd=project.folder)

    return run


@pytest.mark.parametrize("sources", [".", "src"])
@pytest.mark.parametrize("how", ["path", "last", "first", "copied"])
def test_each_side_runs_its_own_code_whatever_is_installed(compare, tmp_path, sources, how):
    project = Project(tmp_path, sources)
    project.install(how)
    done = compare(project, "--budget", "1e-9")
    [told] = done.json
    [said] = told["verdicts"]
    assert said["base"]["time_ns"] == 100
    assert said["head"]["time_ns"] == 170
