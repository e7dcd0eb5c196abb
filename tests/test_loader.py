"""Suites from the working tree and from commits, each with its own modules and never another's."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from harness.errors import ExitCode, GitError, SuiteError
from harness.loader import discover, load, load_folder
from harness.sources import program, tree_sha256
from tests import toy

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
    assert source.committed_at == project.git("show", "--no-patch", "--format=%cI")
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


MISSING = "{file} defines no `suite`: expected suite = Suite(...), found "
BROKEN = {
    "an exception": ("1 / 0\n", "{file}:1 raised ZeroDivisionError: division by zero"),
    "an import": ("\n\nimport nowhere\n", "{file}:3 raised ModuleNotFoundError: No module named 'nowhere'"),
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
    assert raised.value.message == message.format(file=file)
    assert raised.value.exit_code == ExitCode.USAGE
    if "raised" in message:
        assert raised.value.log.startswith("Traceback (most recent call last):")
        assert f'File "{file}", line' in raised.value.log
    assert str(project.suite) not in sys.path
    assert "helper" not in sys.modules


def test_a_syntax_error_is_a_sentence(project):
    project.write({"kernels/toy/suite.py": "x = 1\ny = (\n"})
    with pytest.raises(SuiteError, match=r"raised SyntaxError: '\(' was never closed") as raised:
        load(project.suite)
    assert f'File "{project.suite / "suite.py"}", line 2' in raised.value.log


def test_what_makes_no_sense_in_a_suite_says_where(project):
    project.write({"kernels/toy/suite.py": "from harness import Axis\n\nAxis((0,))\n"})
    with pytest.raises(SuiteError, match="Axis size 0 is not an integer") as raised:
        load(project.suite)
    assert raised.value.message.startswith(str(project.suite / "suite.py"))
    assert f'File "{project.suite / "suite.py"}", line 3' in raised.value.log


def test_an_interrupt_is_no_broken_suite(project):
    project.write({"kernels/toy/suite.py": "raise KeyboardInterrupt\n"})
    with pytest.raises(KeyboardInterrupt):
        load(project.suite)


def test_a_folder_without_a_suite(project):
    with pytest.raises(SuiteError, match=r"No suite\.py in .*: a suite is a folder with a suite\.py"):
        load(project.root / "kernels" / "portable")


def test_a_folder_that_is_not_there(project):
    with pytest.raises(SuiteError, match=r"No suite\.py in"):
        load(project.root / "nowhere" / "at" / "all")


def test_a_commit_without_the_suite(project):
    old = project.git("rev-parse", "HEAD")
    project.commit({"kernels/late/suite.py": toy.SUITE, "elsewhere/late/suite.py": toy.SUITE})
    for folder in ("kernels/late", "elsewhere/late"):
        with pytest.raises(SuiteError):
            load(project.root / folder, old)
    with pytest.raises(SuiteError, match=f"Commit {old[:12]} has no suite elsewhere/late: "):
        load(project.root / "elsewhere" / "late", old)


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


def test_a_suite_is_found_by_a_relative_path_and_through_a_link(project, tmp_path, monkeypatch):
    from pathlib import Path

    (tmp_path / "link").symlink_to(project.root)
    expected = load(project.suite, "HEAD")
    assert load(Path("kernels/toy"), "HEAD").source == expected.source
    assert load(tmp_path / "link" / "kernels" / "toy", "HEAD").source == expected.source
    assert load(tmp_path / "link" / "kernels" / "toy").source == expected.source


def test_load_folder_needs_no_repository(project):
    shutil.rmtree(project.root / ".git")
    assert load_folder(project.suite).name == "toy"


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["kernels/*"], ["kernels/a", "kernels/toy"]),
        (["kernels/toy", "kernels/*"], ["kernels/toy", "kernels/a"]),
        (["**/a"], ["kernels/a", "more/a"]),
        (["more/*", "kernels/toy"], ["more/a", "kernels/toy"]),
        (["kernels/toy/../toy"], ["kernels/toy"]),
        (["nowhere/*"], []),
        ([], []),
    ],
    ids=str,
)
def test_discover(project, patterns, found):
    project.write({"kernels/a/suite.py": "", "more/a/suite.py": "", "kernels/no_suite/one.cu": ""})
    assert [path.relative_to(project.root).as_posix() for path in discover(project.root, patterns)] == found


def test_discover_takes_an_absolute_folder(project, tmp_path):
    assert discover(tmp_path, [str(project.suite)]) == [project.suite]
