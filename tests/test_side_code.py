"""`compare --with-command` of Python: each side imports its own files, or is told whose it imported."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.errors import ExitCode
from harness.measure.protocol import SideName
from harness.records.types import Source
from harness.run.executables.executable_build import Executable, ProcessRun, put_files, run_once
from harness.run.executables.side_code import OtherCodeError, SideFolders, SideRecorder, packages_in
from harness.system import supervisor
from tests.benchmark_json import google_entry, google_script
from tests.support import commit, make_repository, write_files

pytestmark = pytest.mark.usefixtures("own_cache")

BENCH = """
import json, os, sys
{does}
out = next(word for word in sys.argv if word.startswith("--benchmark_out=")).partition("=")[2]
entry = {{"name": "copy", "run_name": "copy", "run_type": "iteration", "repetitions": 1,
         "repetition_index": 0, "threads": 1, "iterations": 1000, "time_unit": "ns",
         "real_time": 100, "cpu_time": {time}}}
context = {{"executable": "bench.py", "num_cpus": 2, "library_version": "v1.9.5", "json_schema_version": 1}}
with open(out, "w") as file:
    json.dump({{"context": context, "benchmarks": [entry]}}, file)
{after}
"""

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

LOAD = """
import importlib.util, os, sys
def load():
    spec = importlib.util.spec_from_file_location("loaded", {path!r})
    sys.modules["loaded"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["loaded"])
"""
"""Loads a file past every finder, so that only the end of the process tells."""

ENDINGS = {
    "at its end": "load()",
    "without cleaning up": "load(); os._exit(0)",
    "by becoming another program": "load(); os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
    "in a subprocess": "import subprocess; subprocess.run([sys.executable, '-c', {load!r}], check=True)",
    "in a process that is forked": """
import multiprocessing
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=load)
    process.start()
    process.join()
""",
    "in a process that is spawned": """
import multiprocessing
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=load)
    process.start()
    process.join()
""",
}

BASE_NS, HEAD_NS, COPIED_NS = 100, 170, 135


def bench(does: str = "import mine.kernels", time: str = "mine.kernels.TIME", after: str = "") -> str:
    return BENCH.format(does=does, time=time, after=after)


class Project:
    """A repository of two commits whose head is 70 % slower, and an environment of its own."""

    def __init__(self, root: Path, sources: str = "src", script: str | None = None) -> None:
        self.root = root
        self.folder = make_repository(root / "repository")
        self.package = self.folder / sources / "mine"
        for day, time_ns in ((1, BASE_NS), (2, HEAD_NS)):
            files = {
                "harness.toml": "",
                "bench/bench.py": script or bench(),
                f"{sources}/mine/__init__.py": "",
                f"{sources}/mine/kernels.py": f"TIME = {time_ns}\n",
                f"{sources}/shared/mine_too/__init__.py": f"TIME = {time_ns}\n",
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
            files = {"__init__.py": "", "kernels.py": f"TIME = {COPIED_NS}\n"}
            write_files(self.site / "mine", files)
            write_files(self.site / "shared" / "mine_too", {"__init__.py": f"TIME = {COPIED_NS}\n"})
        else:
            put = {"last": "append(Finder)", "first": "insert(0, Finder)"}[how]
            finder = FINDER.format(package=str(self.package), put=put)
            (self.site / "__editable___mine.py").write_text(finder)
            (self.site / "mine.pth").write_text("import __editable___mine\n")

    def executable(self, side: SideName = "base", command: str = "{python} bench/bench.py") -> Executable:
        """One side, its files exported."""
        places = {each: self.root / "places" / each for each in ("base", "head")}
        if not places[side].exists():
            put_files(self.folder, "HEAD~1" if side == "base" else "HEAD", places[side])
        others = (self.folder, *(place for name, place in places.items() if name != side))
        folders = SideFolders(side, places[side], places[side], others)
        source = Source(suite="", path="")
        return Executable(side, command.format(python=self.python), places[side], source, None, folders)

    def run(self, side: SideName = "base", command: str = "{python} bench/bench.py") -> ProcessRun:
        executable = self.executable(side, command)
        scratch = self.root / "scratch"
        scratch.mkdir(exist_ok=True)
        return run_once(executable, "google-benchmark", scratch, 20.0, None, stage="first")

    def time_ns(self, side: SideName = "base", command: str = "{python} bench/bench.py") -> float:
        [case] = self.run(side, command).cases.values()
        return float(case.times_ns[0])


def compare(harness, project, options=""):
    command = f"{project.python} {options} bench/bench.py"
    given = ("--with-command", command, "--format", "google-benchmark", "--no-save", "--budget", "1e-9")
    return harness("compare", "HEAD~1", "HEAD", *given, cwd=project.folder)


def test_an_installation_to_be_edited_hides_no_slowdown(harness, tmp_path):
    project = Project(tmp_path)
    project.install("path")
    done = compare(harness, project)
    assert "70.0" in done.out, done.out
    assert "came from their own side's files: 3 of base, 3 of head." in " ".join(
        (done.out + done.err).split()
    )


def test_a_python_that_does_not_tell_is_named_beside_the_verdicts(harness, tmp_path, started_workers):
    failing = '1, "error_occurred": True, "error_message": "no"'
    project = Project(tmp_path, script=bench("import time; time.sleep(0.1)", failing))
    done = compare(harness, project, options="-I")
    assert "Not proved for all of its Python: in base " in " ".join((done.out + done.err).split())


def test_an_extension_built_in_the_working_tree_ends_the_command(harness, tmp_path):
    project = Project(tmp_path, script=bench("import mine._native"))
    project.install("path")
    native = built_extension(project.package)
    done = compare(harness, project)
    assert done.status == ExitCode.NOT_MEASURED
    words = done.err.replace("\n", "")
    assert f"mine._native from {native}" in words
    assert f"head/src/mine/{native.name}" in words
    assert "--build-command" in words


def built_extension(package: Path) -> Path:
    """An extension module that is found, and cannot be loaded."""
    native = package / f"_native{EXTENSION_SUFFIXES[0]}"
    native.write_bytes(b"")
    return native


@pytest.mark.parametrize("sources", [".", "src", "python"])
@pytest.mark.parametrize("how", ["path", "last", "first"])
def test_a_module_of_the_working_tree_is_taken_from_the_sides_files(tmp_path, sources, how):
    project = Project(tmp_path, sources)
    project.install(how)
    assert project.time_ns("base") == BASE_NS


@pytest.mark.parametrize("sources", [".", "src"])
def test_an_installed_copy_gives_way_to_the_sides_files(tmp_path, sources):
    script = bench("import mine.kernels, shared.mine_too", "mine.kernels.TIME + shared.mine_too.TIME")
    project = Project(tmp_path, sources, script)
    project.install("copied")
    assert project.time_ns("base") == 2 * BASE_NS


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_of_the_working_tree_is_told_of_however_its_process_ends(tmp_path, ending):
    stranger = tmp_path / "repository" / "bench" / "stranger.py"
    load = LOAD.format(path=str(stranger))
    does = load + ENDINGS[ending].replace("{load!r}", repr(f"{load}\nload()"))
    project = Project(tmp_path, script=bench(does, "1"))
    write_files(stranger.parent, {stranger.name: ""})
    with pytest.raises(
        OtherCodeError, match=rf"^Base imported loaded from {stranger} instead of .*/base/bench"
    ):
        project.run()


def test_a_process_that_is_killed_has_told_what_it_imported(tmp_path):
    script = bench("try: import mine._native\nexcept ImportError: pass\nos.kill(os.getpid(), 9)", "1")
    project = Project(tmp_path, script=script)
    project.install("last")
    native = built_extension(project.package)
    with pytest.raises(OtherCodeError, match=str(native)):
        project.run()


def test_a_script_of_the_working_tree_is_not_the_sides(tmp_path):
    project = Project(tmp_path)
    project.install("path")
    with pytest.raises(OtherCodeError, match=r"^Base imported __main__ from .*/repository/bench/bench.py"):
        project.run(command=f"{{python}} {project.folder}/bench/bench.py")


def test_files_of_the_other_side_are_not_this_sides(tmp_path):
    """As where --build-command installs both sides into one environment, and the last stays."""
    project = Project(tmp_path)
    head = project.executable("head").folder
    (project.site / "mine.pth").write_text(f"{head / 'src'}\n")
    assert project.time_ns("base") == BASE_NS
    built_extension(head / "src" / "mine")
    write_files(project.executable().folder, {"bench/bench.py": bench("import mine._native")})
    with pytest.raises(
        OtherCodeError, match=f"from {head}/src/mine/_native.* instead of .*/places/base/src/mine"
    ):
        project.run("base")


def test_what_a_build_installs_into_the_sides_own_files_is_its_code(tmp_path):
    project = Project(tmp_path)
    project.install("path")
    write_files(
        project.executable().folder,
        {"installed/mine/__init__.py": "", "installed/mine/kernels.py": "TIME = 5"},
    )
    assert project.time_ns("base", "PYTHONPATH=installed {python} bench/bench.py") == 5


def test_a_path_that_the_command_sets_itself_hides_no_import(tmp_path):
    """Such as that of the working tree, whose code is head's."""
    project = Project(tmp_path)
    ran = project.run("base", f"PYTHONPATH={project.package.parent} {{python}} bench/bench.py")
    assert [case.times_ns for case in ran.cases.values()] == [(BASE_NS,)]
    assert (ran.imported.modules, ran.imported.silent) == (3, ())


def test_an_environment_in_the_working_tree_is_nobodys_code(tmp_path):
    project = Project(tmp_path, script=bench("import friend", "1"))
    inside = project.folder / ".venv"
    project.site.parents[2].rename(inside)
    project.python = inside / "bin" / "python"
    write_files(inside / project.site.relative_to(project.site.parents[2]), {"friend.py": ""})
    assert project.run().imported.modules == 1  # the script


@pytest.mark.parametrize(
    ("options", "why"),
    [("-I", "ran with -I or -E"), ("-E", "ran with -I or -E")],
)
def test_a_python_that_heeds_no_variables_is_told(tmp_path, options, why, started_workers):
    project = Project(tmp_path, script=bench("import time; time.sleep(0.1)", "1"))
    imported = project.run(command=f"{{python}} {options} bench/bench.py").imported
    [silent] = imported.silent
    assert (imported.modules, why in silent) == (0, True)


def test_a_python_that_is_ended_from_outside_is_told(tmp_path):
    does = "import subprocess; subprocess.run([sys.executable, '-c', 'import os; os.kill(os.getpid(), 9)'])"
    imported = Project(tmp_path, script=bench(does, "1")).run().imported
    assert [each.partition(" ")[2] for each in imported.silent] == ["was ended from outside"]


def test_a_fork_of_a_supervisor_that_is_no_shell_yet_is_no_python_of_the_command():
    words = [sys.executable, "-I", "-c", "import time; time.sleep(60)"]
    for more, seen in (([supervisor.__file__], 0), ([], 1)):
        glances: Counter[tuple[int, str]] = Counter()
        with subprocess.Popen([*words, *more]) as process:
            while not Path(f"/proc/{process.pid}/cmdline").read_bytes():  # it is being loaded
                assert process.poll() is None
            SideRecorder.glance(SimpleNamespace(_glances=glances), process.pid)  # type: ignore[arg-type]
            process.kill()
        assert len(glances) == seen


def test_an_executable_that_is_no_python_is_asked_for_nothing(tmp_path):
    project = Project(tmp_path, script=bench("import mine.kernels", "1"))
    script = Path(tmp_path / "program.sh")
    script.write_text(google_script([google_entry("copy")]))
    imported = project.run(command=f"sh {script}").imported
    assert (imported.modules, imported.silent) == (0, ())


def test_a_sitecustomize_of_the_users_runs_as_before(tmp_path, monkeypatch):
    """It lies on PYTHONPATH, before the sitecustomize that Debian's Python has among its own modules."""
    project = Project(tmp_path, script=bench("", "sys.from_sitecustomize"))
    write_files(tmp_path / "theirs", {"sitecustomize.py": "import sys; sys.from_sitecustomize = 7\n"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    assert project.time_ns() == 7


def test_names_of_the_standard_library_and_of_others_stay_theirs(tmp_path):
    """A folder without __init__.py is no package where an installed one has its name."""
    project = Project(tmp_path, script=bench("import statistics, friend.testing", "friend.testing.TIME"))
    write_files(project.site / "friend", {"__init__.py": "", "testing.py": "TIME = 9"})
    folder = project.executable().folder
    write_files(folder, {"statistics/__init__.py": "", "friend/testing.py": "TIME = 1"})
    assert project.time_ns() == 9


def test_packages_are_found_as_imports_find_them(tmp_path):
    names = (
        "one.py",
        "two/__init__.py",
        "two/inner.py",
        "three/four/__init__.py",
        "three/five.py",
        "docs/a.txt",
    )
    write_files(tmp_path, dict.fromkeys((*names, "setup.py", "random.py", "not-one.py"), ""))
    assert set(packages_in(tmp_path)) == {"one", "two", "three.four", "three.five"}


def test_temporary_files_in_the_working_tree_are_nobodys_code(tmp_path, monkeypatch):
    project = Project(tmp_path)
    project.install("path")
    temporary = write_files(project.folder / "temporary", {"generated.py": ""})
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    project.root = temporary
    script = bench(f"sys.path.append({str(temporary)!r})\nimport generated, mine.kernels")
    write_files(project.executable().folder, {"bench/bench.py": script})
    assert project.time_ns() == BASE_NS
