"""Suites from the working tree and from commits, each with its own modules and never another's."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from pathlib import Path

import pytest

from harness.device.static.occupancy import CARDS
from harness.errors import ExitCode, GitError, NoSuiteError, SuiteError
from harness.suite.loader import discover, discover_at, load, load_folder
from harness.suite.planning import launch_of
from harness.suite.sources import program
from harness.suite.suite_data import Loading
from harness.suite.suite_files import tree_sha256
from tests import toy
from tests.support import run_command, write_files

WITH_HELPER = "import helper\nfrom harness import Suite\n" + toy.SUITE.replace(
    '"toy",', "helper.NAME,"
).replace("macros={", 'macros={"VALUE": helper.VALUE, ')


def helper(name, value):
    return f"NAME = {name!r}\nVALUE = {value}\n"


def text_of(loaded, kernel="tiled"):
    suite = loaded.suite
    chosen = suite.by_name[kernel]
    return program(suite, chosen, suite.case(chosen, {"n": 64}), "null").text


def test_the_working_tree(project):
    loaded = load(project.suite)
    assert (loaded.suite.name, loaded.suite.root) == ("toy", project.suite)
    source = loaded.source
    assert (source.suite, source.path, source.dirty) == ("toy", "kernels/toy", False)
    assert source.commit == project.git("rev-parse", "HEAD")
    at = project.git("show", "--no-patch", "--format=%cI").replace("Z", "+00:00")
    assert source.committed_at == at
    assert source.tree_sha256 == tree_sha256(loaded.suite)


def test_a_clean_working_tree_is_its_commit(project):
    tree, commit = load(project.suite), load(project.suite, "HEAD")
    assert tree.source == commit.source
    assert text_of(tree) == text_of(commit)


@pytest.mark.parametrize(
    "changed",
    ["kernels/toy/suite.py", "kernels/toy/tiled.cu", "kernels/toy/new.cu", "kernels/portable/null.h"],
)
def test_the_working_tree_is_dirty_by_suite_and_prelude(project, changed):
    before = load(project.suite).source
    path = project.root / changed
    project.write({changed: (path.read_text() if path.exists() else "") + "\n"})
    after = load(project.suite).source
    assert (after.dirty, after.commit) == (True, before.commit)
    assert after.tree_sha256 != before.tree_sha256


def test_the_working_tree_is_dirty_by_what_a_source_includes_from_beside_it(project):
    project.commit({"kernels/shared/x.h": "1", "kernels/toy/tiled.cu": '#include "../shared/x.h"\n'})
    assert not load(project.suite).source.dirty
    project.write({"kernels/shared/x.h": "2"})
    assert load(project.suite).source.dirty


def test_the_working_tree_is_not_dirty_by_what_is_beside_it(project):
    project.write(
        {"kernels/portable/other.h": "// new\n", "kernels/other/suite.py": "", "README.md": "words"}
    )
    assert not load(project.suite).source.dirty


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("kernels/toy/suite.py", "raise RuntimeError\n", id="suite.py"),
        pytest.param("kernels/toy/tiled.cu", "// edited\n", id="a source"),
        pytest.param("kernels/portable/null.h", "// edited\n", id="a prelude beside it"),
        pytest.param("kernels/toy/helper.py", helper("edited", 9), id="a helper"),
    ],
)
def test_an_edit_does_not_reach_a_commit(project, own_cache, name, text):
    commit = project.commit({"kernels/toy/suite.py": WITH_HELPER, "kernels/toy/helper.py": helper("toy", 1)})
    before = load(project.suite, commit)
    project.write({name: text})
    for cached in (True, False):
        if not cached:
            shutil.rmtree(own_cache)
        after = load(project.suite, commit)
        assert after.source == before.source
        assert text_of(after) == text_of(before)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0), (1, 0, 1)], ids=str)
def test_each_commit_has_its_own_of_everything(project, order):
    commits = [
        project.commit(
            {
                "kernels/toy/suite.py": WITH_HELPER + f"# {value}\n",
                "kernels/toy/helper.py": helper(name, value),
                "kernels/toy/tiled.cu": f"// source {value}\n",
                "kernels/portable/null.h": f"// prelude {value}\n",
            }
        )
        for name, value in (("first", 111), ("other", 222))
    ]
    for index in order:
        value, name = (111, 222)[index], ("first", "other")[index]
        loaded = load(project.suite, commits[index])
        assert loaded.suite.name == loaded.source.suite == name
        assert loaded.source.commit == commits[index]
        text = text_of(loaded)
        assert f"#define VALUE {value}\n" in text
        assert f"// source {value}\n" in text
        assert f"// prelude {value}\n" in text


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"lib/__init__.py": "", "lib/deep.py": "VALUE = {value}\n"}, id="a package"),
        pytest.param({"lib/deep.py": "VALUE = {value}\n"}, id="a folder without __init__"),
        pytest.param(
            {"lib/__init__.py": "from lib.more import VALUE\n", "lib/more.py": "VALUE = {value}\n",
             "lib/deep.py": "from lib import VALUE\n"},
            id="a package that imports itself",
        ),
    ],
)  # fmt: skip
def test_each_commit_has_its_own_packages(project, files):
    suite = toy.SUITE.replace("macros={", 'macros={"VALUE": VALUE, ')
    commits = [
        project.commit(
            {"kernels/toy/suite.py": f"from lib.deep import VALUE\n{suite}"}
            | {f"kernels/toy/{name}": text.replace("{value}", value) for name, text in files.items()}
        )
        for value in ("111", "222")
    ]
    for index in (0, 1, 0):
        assert f"#define VALUE {(111, 222)[index]}\n" in text_of(load(project.suite, commits[index]))


def test_an_edited_helper_is_read_again(project):
    """Even within one second and with the same size, which is all that a .pyc is judged by."""
    stamp = 1_700_000_000
    found = []
    for value in (111, 222):
        project.write({"kernels/toy/suite.py": WITH_HELPER, "kernels/toy/helper.py": helper("toy", value)})
        for name in ("suite.py", "helper.py"):
            os.utime(project.suite / name, (stamp, stamp))
        found.append(load(project.suite).suite.by_name["tiled"].macros["VALUE"])
    assert found == [111, 222]


def test_loading_leaves_no_trace(project):
    project.write({"kernels/toy/suite.py": WITH_HELPER, "kernels/toy/helper.py": helper("toy", 1)})
    path, modules, bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    load(project.suite)
    assert (sys.path, sys.dont_write_bytecode) == (path, bytecode)
    assert "helper" not in set(sys.modules) - modules
    assert not list(project.root.rglob("__pycache__"))


def test_a_helper_hides_a_module_of_the_same_name_for_itself_only(project, monkeypatch):
    import json

    project.write(
        {
            "kernels/toy/json.py": "NAME = 'mine'\nVALUE = 1\n",
            "kernels/toy/suite.py": WITH_HELPER.replace("import helper", "import json as helper"),
        }
    )
    assert load(project.suite).suite.name == "mine"
    assert sys.modules["json"] is json


def test_a_folder_without_python_hides_no_module(project):
    # A folder can be imported even without __init__.py; one of data is not meant to be. And what is hidden is
    # loaded a second time, which NumPy warns of.
    import numpy as np

    project.write(
        {"kernels/toy/numpy/x.h": "", "kernels/toy/suite.py": f"import numpy\nnumpy.ones(1)\n{toy.SUITE}"}
    )
    assert load(project.suite).suite.name == "toy"
    assert sys.modules["numpy"] is np


def test_a_helper_may_import_what_is_installed(project):
    project.write(
        {
            "kernels/toy/helper.py": "import json\nimport numpy\nNAME, VALUE = 'toy', json.loads('7')\n",
            "kernels/toy/suite.py": WITH_HELPER,
        }
    )
    assert load(project.suite).suite.by_name["tiled"].macros["VALUE"] == 7


def test_a_suite_knows_where_it_lies(project):
    project.write({"kernels/toy/suite.py": f"{toy.SUITE}\nassert __file__.endswith('suite.py')\n"})
    assert load(project.suite).suite.root == project.suite


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        pytest.param("", "utf-8-sig", id="with a byte order mark"),
        pytest.param("# -*- coding: latin-1 -*-\n", "latin-1", id="in the encoding that it names"),
    ],
)
def test_a_suite_is_decoded_as_python_does(project, head, encoding):
    text = toy.SUITE.replace('"plain.cu",', '"plain.cu", about="é",')
    (project.suite / "suite.py").write_bytes((head + text).encode(encoding))
    assert load(project.suite).suite.by_name["plain"].about == "é"


def test_a_suite_may_define_a_dataclass(project):
    # With annotations that are text, dataclasses looks the class's module up by its name.
    head = """\
from __future__ import annotations
from dataclasses import dataclass


@dataclass
class Point:
    x: int


"""
    project.write({"kernels/toy/suite.py": head + toy.SUITE})
    assert load(project.suite).suite.name == "toy"


def test_a_suite_may_take_its_folder_off_the_path(project):
    path = list(sys.path)
    project.write({"kernels/toy/suite.py": f"import sys\nsys.path.pop(0)\n{toy.SUITE}"})
    assert load(project.suite).suite.name == "toy"
    assert sys.path == path


def test_what_a_suite_prints_is_no_result(project, capsys):
    """Standard output is for what a command found, and some read it as JSON."""
    project.write({"kernels/toy/suite.py": f"print('hello')\n{toy.SUITE}"})
    load(project.suite)
    assert capsys.readouterr() == ("", "hello\n")


MISSING = "{file} defines no `suite`: expected suite = Suite(...), found "
BROKEN = {
    "an exception": ("1 / 0\n", "{file}:1 raised ZeroDivisionError: division by zero"),
    "an import": (
        "\n\nimport nowhere\n",
        (
            "{file}:3 raised ModuleNotFoundError: No module named 'nowhere'. The Python of this harness is "
            "{python}: install there what has nowhere, or import it in the function that needs it."
        ),
    ),
    "SystemExit": ("import sys\nsys.exit(3)\n", "{file}:2 raised SystemExit: 3"),
    "in a function": (
        "def f():\n    raise ValueError('deep')\n\n\nf()\n",
        "{file}:2 raised ValueError: deep",
    ),
    "in a helper": ("import helper\n", "{file}:1 raised ValueError: helped"),
    "empty": ("", MISSING + "None."),
    "no suite": ("x = 1\n", MISSING + "None."),
    "a wrong type": ("suite = 'toy'\n", MISSING + "'toy'."),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_suite_is_a_sentence_with_its_place(project, text, message):
    project.write({"kernels/toy/suite.py": text, "kernels/toy/helper.py": "raise ValueError('helped')\n"})
    with pytest.raises(SuiteError) as raised:
        load(project.suite)
    file = project.suite / "suite.py"
    assert raised.value.message == message.format(file=file, python=sys.executable)
    assert raised.value.exit_code == ExitCode.USAGE
    if "raised" in message:
        assert raised.value.log.startswith("Traceback (most recent call last):")
        assert f'File "{file}", line' in raised.value.log
    assert str(project.suite) not in sys.path
    assert "helper" not in sys.modules


def test_an_integer_without_end_is_an_error_of_the_function_and_ends_no_process(project):
    project.write({"kernels/toy/suite.py": toy.SUITE.replace("block=32", "block=lambda c: 1 << 2**20")})
    suite = load(project.suite).suite
    kernel = suite.kernels[0]
    assert callable(kernel.block)
    with pytest.raises(Exception, match=r"It answered with a value that cannot be sent: .*digits"):
        kernel.block(suite.case(kernel, {"n": 64}))


def test_a_syntax_error_is_a_sentence(project):
    project.write({"kernels/toy/suite.py": "x = 1\ny = (\n"})
    with pytest.raises(SuiteError, match=r"suite\.py:2 raised SyntaxError: '\(' was never closed") as raised:
        load(project.suite)
    assert f'File "{project.suite / "suite.py"}", line 2' in raised.value.log


def test_a_sentence_that_is_no_utf_8_is_quoted(project):
    project.write({"kernels/toy/suite.py": "raise ValueError(chr(0xDCFF))\n"})
    with pytest.raises(SuiteError, match=r"no UTF-8: .*suite\.py:1 raised ValueError: .udcff"):
        load(project.suite)


def test_gflops_need_a_count_of_operations(project):
    text = (project.suite / "suite.py").read_text(encoding="utf-8")
    assert "def flop" in text
    project.write({"kernels/toy/suite.py": text.replace("def flop", "def flops").replace("GB/s", "GFLOP/s")})
    with pytest.raises(SuiteError, match=r"headline GFLOP/s, but its problem does not define flop\(\)"):
        load(project.suite)


def test_what_makes_no_sense_in_a_suite_says_where(project):
    project.write({"kernels/toy/suite.py": "from harness import Axis\n\nAxis((0,))\n"})
    with pytest.raises(SuiteError, match="Axis size 0 is not an integer") as raised:
        load(project.suite)
    assert raised.value.message.startswith(f"{project.suite / 'suite.py'}:3 is wrong: ")
    assert raised.value.log == ""


def test_a_function_of_no_framework_is_no_source(project):
    source = '{"cuda": PythonFunction("f.py")}'
    text = "from harness.suite.kernel import PythonFunction\n" + toy.SUITE.replace('"plain.cu"', source)
    project.write({"kernels/toy/suite.py": text})
    with pytest.raises(SuiteError, match=r"describes no valid suite: .*sources"):
        load(project.suite)


@pytest.mark.parametrize("folder", ["kernels/portable", "nowhere/at/all"])
def test_a_folder_without_a_suite(project, folder):
    with pytest.raises(SuiteError, match=r"No suite\.py in .*: a suite is a folder with a suite\.py"):
        load(project.root / folder)


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        pytest.param("kernels/late", r"Commit {old} has no suite kernels/late\.", id="beside suites it had"),
        pytest.param("elsewhere/late", r"Commit {old} has no suite elsewhere/late\.", id="in a later folder"),
    ],
)
def test_a_commit_without_the_suite(project, folder, sentence):
    old = project.git("rev-parse", "HEAD")
    project.commit({f"{folder}/suite.py": toy.SUITE})
    with pytest.raises(NoSuiteError, match=sentence.format(old=old[:12])):
        load(project.root / folder, old)


def test_a_suite_that_was_broken_is_no_missing_one_and_names_the_commit(project):
    broken = project.commit({"kernels/toy/suite.py": "1 / 0\n"})
    project.commit({"kernels/toy/suite.py": toy.SUITE})
    error = rf"At commit {broken[:12]}: .*suite\.py:1 raised ZeroDivisionError"
    with pytest.raises(SuiteError, match=error) as caught:
        load(project.suite, broken)
    assert not isinstance(caught.value, NoSuiteError)


def test_a_suite_that_is_gone_loads_at_its_commit(project):
    old = project.git("rev-parse", "HEAD")
    shutil.rmtree(project.root / "kernels")
    project.commit()
    assert load(project.suite, old).suite.name == "toy"
    assert load(project.suite, "HEAD~1").source.commit == old
    with pytest.raises(SuiteError):
        load(project.suite)


def test_an_unknown_commit(project):
    with pytest.raises(GitError, match="No commit named 'nonsense'"):
        load(project.suite, "nonsense")


@pytest.mark.parametrize("commit", [None, "HEAD"], ids=["the working tree", "a commit"])
def test_a_repository_of_another_owner_is_not_taken_for_none(project, monkeypatch, commit):
    # git's own tests make it refuse so: no second user is needed.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitError, match="dubious ownership"):
        load(project.suite, commit)


def test_without_a_repository_there_is_the_working_tree_only(tmp_path):
    folder = tmp_path / "plain" / "toy"
    folder.mkdir(parents=True)
    (folder / "suite.py").write_text(toy.SUITE)
    source = load(folder).source
    assert (source.commit, source.committed_at, source.dirty) == (None, None, False)
    assert source.path == str(folder)
    with pytest.raises(SuiteError, match="is in no git repository, so it cannot be loaded at commit 'HEAD'"):
        load(folder, "HEAD")


def test_a_repository_without_a_commit(tmp_path, project):
    project.git("init", "--quiet", str(tmp_path / "new"))
    folder = tmp_path / "new" / "toy"
    folder.mkdir()
    (folder / "suite.py").write_text(toy.SUITE)
    source = load(folder).source
    assert (source.path, source.commit, source.dirty) == ("toy", None, False)


@pytest.mark.parametrize("place", ["toy", "a/b/c/toy", "."])
def test_a_suite_may_lie_anywhere(project, place):
    suite = toy.SUITE.replace("../portable/", "")
    commit = project.commit(
        {f"{place}/suite.py": suite, f"{place}/tiled.cu": "// here\n", f"{place}/null.h": "// null\n"}
    )
    for at in (None, commit):
        loaded = load(project.root / place, at)
        assert loaded.source.path == place
        assert "// here\n" in text_of(loaded)


def test_a_suite_at_the_top_finds_a_prelude_beside_it(project):
    commit = project.commit(
        {"mine/suite.py": toy.SUITE, "mine/tiled.cu": "// here\n", "portable/null.h": "// beside\n"}
    )
    for at in (None, commit):
        assert "// beside\n" in text_of(load(project.root / "mine", at))


def test_a_suite_is_found_by_a_relative_path_and_through_a_link(project, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(project.root)
    expected = load(project.suite, "HEAD")
    assert load(Path("kernels/toy"), "HEAD").source == expected.source
    assert load(tmp_path / "link" / "kernels" / "toy", "HEAD").source == expected.source
    assert load(tmp_path / "link" / "kernels" / "toy").source == expected.source


def test_load_folder_needs_no_repository(project):
    shutil.rmtree(project.root / ".git")
    assert load_folder(project.suite).name == "toy"


def test_load_folder_takes_a_relative_path(project):
    project.write({"kernels/toy/suite.py": WITH_HELPER, "kernels/toy/helper.py": helper("toy", 1)})
    assert load_folder(Path("kernels/toy")).root == project.suite
    assert "helper" not in sys.modules


def test_a_commit_lies_at_an_absolute_path_in_a_relative_cache(project, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE_DIR", "my-cache")
    root = load(project.suite, "HEAD").suite.root
    assert root.is_absolute()
    assert root.is_relative_to(project.root / "my-cache")


def test_a_worker_finds_a_commit_in_a_relative_cache(project):
    # A worker runs in a folder of its own, where the same relative path leads elsewhere.
    done = run_command(
        "check",
        "--device",
        "null",
        "--commit",
        "HEAD",
        cwd=project.root,
        env={"HARNESS_CACHE_DIR": "my-cache"},
    )
    assert done.returncode == ExitCode.FINE, done.stderr


def test_discover_takes_an_absolute_folder(project, tmp_path):
    assert discover(tmp_path, [str(project.suite)]) == [project.suite]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["kernels/*"], ["kernels/a", "kernels/toy"]),
        (["kernels/toy", "kernels/*"], ["kernels/toy", "kernels/a"]),
        (["**/a"], ["kernels/a", "more/a"]),
        (["more/*", "kernels/toy"], ["more/a", "kernels/toy"]),
        (["kernels/toy/../toy"], ["kernels/toy"]),
        (["./kernels/*/"], ["kernels/a", "kernels/toy"]),
        (["kernels/*/*"], ["kernels/toy/deeper"]),
        (["kernels/[a-b]"], ["kernels/a"]),
        (["*"], []),
        (["nowhere/*"], []),
        ([], []),
    ],
    ids=str,
)
def test_discover_at_a_commit_finds_what_discover_found_there(project, patterns, found):
    project.write({"kernels/a/suite.py": "", "more/a/suite.py": "", "kernels/no_suite/one.cu": ""})
    commit = project.commit({"kernels/toy/deeper/suite.py": "", "kernels/b/not_suite.py": ""})
    now = discover(project.root, patterns)
    project.git("rm", "-r", "--quiet", "kernels", "more")
    project.commit()
    then = discover_at(project.root, patterns, commit)
    assert [path.relative_to(project.root).as_posix() for path in then] == found
    assert then == now
    assert discover_at(project.root, patterns, "HEAD") == []


@pytest.mark.parametrize("pattern", ["../kernels/*", "{root}/kernels/*"], ids=["upwards", "absolute"])
def test_discover_at_takes_patterns_that_lead_out_of_the_project(project, pattern):
    below = project.root / "ci"
    below.mkdir()
    patterns = [pattern.format(root=project.root)]
    assert discover_at(below, patterns, "HEAD") == discover(below, patterns) == [project.suite]


def test_discover_at_is_of_the_commit_and_not_of_the_working_tree(project):
    old = project.git("rev-parse", "HEAD")
    project.write({"kernels/new/suite.py": ""})
    new = project.commit()
    project.write({"kernels/newer/suite.py": ""})
    names = [[path.name for path in discover_at(project.root, ["kernels/*"], at)] for at in (old, new)]
    assert names == [["toy"], ["new", "toy"]]


def test_discover_at_an_unknown_commit_or_outside_a_repository(project, tmp_path):
    with pytest.raises(GitError, match="No commit named 'nonsense'"):
        discover_at(project.root, ["kernels/*"], "nonsense")
    with pytest.raises(GitError, match=r"is in no git repository, so it has no commit 'HEAD'\."):
        discover_at(tmp_path, ["kernels/*"], "HEAD")


def test_a_suite_that_stands_in_has_no_tree_of_its_own(project):
    loaded = load(project.suite, "HEAD")
    absent = dataclasses.replace(loaded, absent=True)
    assert absent.source == dataclasses.replace(loaded.source, tree_sha256="")


def test_a_function_is_asked_again_only_for_a_device_that_it_asks_for(tmp_path, monkeypatch):
    """Of eight cards, most functions of a suite say the same."""
    write_files(tmp_path / "wave", toy.persistent({}))
    suite = load(tmp_path / "wave").suite
    kernel, asked = suite.kernels[0], []
    planned = suite.case(kernel, {"n": 64})  # without a device, so without the macro that asks for it
    assert len(planned.macros) == len(kernel.macros) - 1
    call = Loading._call

    def counted(self, asking, timeout_s):
        asked.append(asking.function)
        return call(self, asking, timeout_s)

    monkeypatch.setattr(Loading, "_call", counted)
    for name in ("a100", "h200"):
        case = suite.case(kernel, {"n": 64}, device=CARDS[name].facts)
        launch = launch_of(kernel, case, lambda _: 6)
        assert (launch.block[0], launch.grid[0]) == (256, 6 * CARDS[name].multiprocessors)
    # Once the block; for each card its macro, and the grid before and after the build.
    assert sorted(asked.count(number) for number in set(asked)) == [1, 2, 4]
