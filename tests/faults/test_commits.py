"""A commit is what was committed, whatever became of the cache, the clone and the working tree around it."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.device.backends import survey
from harness.errors import ExitCode, GitError, NoSuiteError, SuiteError
from harness.report.terminal.comparison_tables import exit_code
from harness.suite.exported_commit import export
from harness.suite.loader import load
from harness.suite.sources import program
from harness.system.cache import export_root
from tests import toy
from tests.conftest import Project
from tests.support import (
    IMPORT_PATH,
    commit,
    device_is_missing,
    git,
    make_repository,
    run_command,
    run_forked,
    write_files,
)

pytestmark = pytest.mark.fault

NULL = ("--device", "null")
OUTSIDE = "out of the repository: what it leads to is in no commit."


@pytest.fixture
def exported(project, own_cache):
    """The cache's copy of the project's only commit."""
    return export(project.root, project.git("rev-parse", "HEAD"))


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of each file and the target of each link, by path."""
    paths = [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]
    return {
        str(path.relative_to(folder)): os.fsencode(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in paths
    }


def text_of(loaded, kernel="plain"):
    suite = loaded.suite
    chosen = suite.by_name[kernel]
    return program(suite, chosen, suite.case(chosen, {"n": 64}), "null").text


# What becomes of the cache.


def edited(file: Path) -> None:
    file.write_text(file.read_text().replace("2 * x", "3 * x").replace("64", "32"))


def edited_unseen(file: Path) -> None:
    before = file.stat()
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def linked_elsewhere(file: Path) -> None:
    twin = file.with_name("twin")
    file.rename(twin)
    file.symlink_to(twin.name)


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def with_a_module_beside(file: Path) -> None:
    file.with_name("harness.py").write_text("raise RuntimeError\n")


def with_a_folder_beside(file: Path) -> None:
    file.with_name("nothing").mkdir()


DAMAGE = {
    "edited": edited,
    "edited, with size and time kept": edited_unseen,
    "empty, as after a power cut": lambda file: file.write_bytes(b""),
    "gone": Path.unlink,
    "executable": lambda file: file.chmod(0o755),
    "a link": linked_elsewhere,
    "a pipe that nobody writes to": piped,
    "a folder": a_folder,
    "a module beside it": with_a_module_beside,
    "a folder beside it": with_a_folder_beside,
    "all gone": lambda file: shutil.rmtree(file.parents[2]),
}


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        *(pytest.param(damage, "plain.cu", id=told) for told, damage in DAMAGE.items()),
        *((edited, name) for name in ("suite.py", "../portable/null.h")),
    ],
)
def test_a_damaged_export_is_made_anew(project, exported, damage, name):
    before, sound = load(project.suite, "HEAD").source, tree(exported)
    damage(exported / "kernels" / "toy" / name)
    assert load(project.suite, "HEAD").source == before
    assert tree(exported) == sound
    assert [path.name for path in exported.parent.iterdir()] == [exported.name], "nothing is left behind"


def as_file(place: Path) -> None:
    place.write_text("mine")


def as_link(place: Path) -> None:
    other = place.parents[2] / "elsewhere"
    shutil.copytree(place.parents[2] / "project", other)
    place.symlink_to(other)


@pytest.mark.parametrize(
    "put", [as_file, os.mkfifo, Path.mkdir, as_link], ids=["file", "pipe", "empty", "link"]
)
def test_what_is_in_the_way_of_an_export_is_replaced(project, exported, put):
    sound = tree(exported)
    shutil.rmtree(exported)
    put(exported)
    assert export(project.root, exported.name) == exported
    assert not exported.is_symlink()
    assert tree(exported) == sound


def test_an_edit_of_the_cache_is_no_verdict(harness, project, exported):
    edited(exported / "kernels/toy/suite.py")
    done = harness("compare", "HEAD", *NULL, "--json", "--no-save")
    assert {each["status"] for result in done.json for each in result["verdicts"]} == {"identical"}
    (exported / "kernels/toy/suite.py").unlink()
    assert harness("compare", "HEAD", *NULL, "--no-save").status == ExitCode.FINE


def test_what_python_compiled_in_an_export_is_not_believed(project, own_cache):
    helped = "from helper import VALUE\n" + toy.SUITE.replace("macros={", 'macros={"VALUE": VALUE, ')
    made = project.commit({"kernels/toy/suite.py": helped, "kernels/toy/helper.py": "VALUE = 111\n"})
    helper = export(project.root, made) / "kernels/toy/helper.py"
    stamp = helper.stat()
    for value in (222, 111):
        helper.write_text(f"VALUE = {value}\n")
        os.utime(helper, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        if value == 222:  # Python takes it for the file's: size and time are the same
            py_compile.compile(str(helper), doraise=True)
    loaded = load(project.suite, made)
    assert loaded.suite.by_name["tiled"].macros["VALUE"] == 111
    assert not list(export(project.root, made).rglob("__pycache__"))


def test_many_at_once_make_one_export(project, own_cache):
    made = project.git("rev-parse", "HEAD")
    start = threading.Barrier(6)
    found, failures = [], []

    def run(damaged: bool) -> None:
        start.wait()
        try:
            found.append(tree(export(project.root, made)))
        except Exception as error:  # noqa: BLE001  # a thread's error would be lost
            failures.append(error)

    for damaged in (False, True):
        if damaged:
            edited(own_cache / "commits" / made / "kernels/toy/suite.py")
        threads = [threading.Thread(target=run, args=(damaged,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert [path.name for path in (own_cache / "commits").iterdir()] == [made]
    assert found == [tree(own_cache / "commits" / made)] * 12


def test_an_export_that_is_being_replaced_is_never_away(project, exported):
    """A reader of what is whole never finds it gone, while others find it damaged and make it anew."""
    over = threading.Event()
    missing = []

    def read() -> None:
        while not over.is_set():
            if not (exported / "kernels/portable/null.h").exists():
                missing.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        edited(exported / "kernels/toy/suite.py")
        export(project.root, exported.name)
    over.set()
    reader.join()
    assert not missing


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not hold for root")
@pytest.mark.parametrize("damaged", [False, True])
def test_a_cache_that_cannot_be_written_is_used_only_where_it_is_sound(project, exported, damaged):
    sound = load(project.suite, "HEAD").source
    if damaged:
        edited(exported / "kernels/toy/suite.py")
    folders = [exported.parent, *(path for path in exported.parent.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        loaded = load(project.suite, "HEAD")
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert loaded.source == sound
    assert loaded.suite.root.is_relative_to(exported) is not damaged


def test_a_cache_that_is_no_folder_is_done_without(project, tmp_path):
    (tmp_path / "file").write_text("mine")
    done = run_command(
        *("check", "--commit", "HEAD", *NULL),
        cwd=project.root,
        env={"HARNESS_CACHE_DIR": str(tmp_path / "file"), "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == ExitCode.FINE, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"file", "project"}, (
        "what it made in its place is gone"
    )


def test_a_full_disk_is_a_sentence(project, tmp_path):
    done = run_command(
        *("check", "--commit", "HEAD", *NULL),
        cwd=project.root,
        env={"HARNESS_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        file_limit_bytes=0,
    )
    assert done.returncode in (ExitCode.USAGE, ExitCode.NOT_MEASURED)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("cache/commits/*/*"))


def test_folders_of_other_versions_are_left_alone(project, exported):
    for name in ("commit-v9", f"{exported.name}-0123456789ab", f"v9-{exported.name}"):
        write_files(exported.parent / name, {"kernels/toy/suite.py": "1 / 0\n"})
    load(project.suite, "HEAD")
    assert len(list(exported.parent.iterdir())) == 4


def test_the_root_of_an_export(project, exported, tmp_path):
    assert export_root(load(project.suite, "HEAD").suite.root) == exported
    assert export_root(exported) == exported
    assert export_root(project.suite) is None
    assert export_root(tmp_path / "commits" / "kernels") is None


# What a checkout is and an archive is not.

ATTRIBUTES = "kernels export-ignore\n*.txt export-subst\n*.bat eol=crlf\n*.id ident\n*.up filter=up\n"


def test_an_export_is_a_checkout(project, own_cache, tmp_path):
    project.git("config", "filter.up.smudge", "tr a-z A-Z")
    project.git("config", "filter.up.clean", "tr A-Z a-z")
    (project.root / "link").symlink_to("kernels/toy")
    (project.root / "dangling").symlink_to("nowhere")
    odd = {
        name: f"// {number}\n" for number, name in enumerate(("a\nb.h", 'quo"te.h', "é.h", " space ", "-n"))
    }
    (project.root / os.fsdecode(b"\xff\xfe.h")).write_bytes(b"\0\xff")
    made = project.commit(
        {
            ".gitattributes": ATTRIBUTES,
            "version.txt": "$Format:%H$\n",
            "run.bat": "one\ntwo\n",
            "mine.id": "$Id$\n",
            "loud.up": "words\n",
            "deep/.gitattributes": "*.h eol=crlf\n",
            "deep/line\nend.h": "one\ntwo\n",
            **odd,
        }
    )
    (project.root / "run.sh").write_text("#!/bin/sh\n")
    (project.root / "run.sh").chmod(0o755)
    made = project.commit()
    project.git("worktree", "add", "--quiet", str(tmp_path / "checkout"), made)
    (tmp_path / "checkout" / ".git").unlink()
    folder = export(project.root, made)
    assert tree(folder) == tree(tmp_path / "checkout")
    assert (folder / "run.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert (folder / "loud.up").read_text() == "WORDS\n"
    assert os.access(folder / "run.sh", os.X_OK)
    inode = folder.stat().st_ino
    assert export(project.root, made).stat().st_ino == inode, "it is taken as it is"
    (folder / "run.bat").write_bytes(b"one\r\nthree\r\n")
    assert tree(export(project.root, made)) == tree(tmp_path / "checkout")


def test_line_ends_are_the_clones(project, own_cache):
    project.git("config", "core.autocrlf", "true")
    folder = export(project.root, project.git("rev-parse", "HEAD"))
    assert (folder / "kernels/portable/null.h").read_bytes() == b"// null\r\n"
    inode = folder.stat().st_ino
    assert export(project.root, folder.name).stat().st_ino == inode
    project.git("config", "core.autocrlf", "false")
    export(project.root, folder.name)


def test_a_filter_that_cannot_be_undone_costs_time_and_nothing_else(project, own_cache):
    project.git("config", "filter.stamp.smudge", "sed s/plain/stamped/")
    made = project.commit({".gitattributes": "*.h filter=stamp\n", "kernels/x.h": "plain\n"})
    for _ in range(2):
        assert (export(project.root, made) / "kernels/x.h").read_text() == "stamped\n"


def test_a_filter_that_fails_is_an_error(project, own_cache):
    project.git("config", "filter.lost.clean", "cat")
    project.git("config", "filter.lost.smudge", "false")
    project.git("config", "filter.lost.required", "true")
    made = project.commit({".gitattributes": "*.h filter=lost\n"})
    with pytest.raises(GitError, match="filter"):
        load(project.suite, made)
    assert not list((own_cache / "commits").iterdir())


def test_an_export_leaves_the_repository_alone(project, own_cache):
    project.write({"kernels/toy/plain.cu": "// staged\n"})
    project.git("add", "kernels/toy/plain.cu")
    project.write({"kernels/toy/plain.cu": "// edited\n", "new.txt": ""})
    hook = "#!/bin/sh\ntouch ran\n"
    for name in ("post-checkout", "post-index-change", "fsmonitor"):
        project.write({f".git/hooks/{name}": hook})
        (project.root / ".git/hooks" / name).chmod(0o755)
    project.git("config", "core.fsmonitor", ".git/hooks/fsmonitor")
    project.git("config", "core.splitIndex", "true")
    files = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    folder = export(project.root, project.git("rev-parse", "HEAD"))
    assert "// edited" not in (folder / "kernels/toy/plain.cu").read_text()
    assert {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()} == files
    assert not (folder / "ran").exists()


def test_a_sparse_checkout_and_replaced_objects_change_no_commit(project, own_cache):
    made = project.git("rev-parse", "HEAD")
    project.git("sparse-checkout", "set", "nothing")
    blob = project.git("rev-parse", "HEAD:kernels/portable/null.h")
    project.write({"other": "// replaced\n"})
    project.git("replace", blob, project.git("hash-object", "-w", "other"))
    folder = export(project.root, made)
    assert (folder / "kernels/portable/null.h").read_text() == "// null\n"
    inode = folder.stat().st_ino
    assert export(project.root, made).stat().st_ino == inode


def test_a_repository_of_sha256(tmp_path, own_cache):
    root = tmp_path / "wide"
    root.mkdir()
    project = Project(root)
    project.git("init", "--quiet", "--object-format=sha256")
    made = project.commit(toy.FILES)
    assert len(made) == 64
    loaded = load(project.suite, made)
    assert export_root(loaded.suite.root) == own_cache / "commits" / made
    (loaded.suite.root / "plain.cu").write_text("// edited\n")
    assert "edited" not in text_of(load(project.suite, made))


def test_a_shallow_clone_and_a_linked_worktree_have_the_same_files(project, own_cache, tmp_path):
    project.commit({"more.txt": "1"})
    made = project.git("rev-parse", "HEAD")
    expected = tree(export(project.root, made))
    project.git("clone", "--quiet", "--depth", "1", f"file://{project.root}", str(tmp_path / "shallow"))
    project.git("worktree", "add", "--quiet", str(tmp_path / "linked"), made)
    for clone in ("shallow", "linked"):
        shutil.rmtree(own_cache)
        assert tree(export(tmp_path / clone, made)) == expected


def test_more_names_than_fit_into_a_pipe(project, own_cache):
    lines = ["commit refs/heads/many", "committer A <a@b> 1700000000 +0000", "data 1", "x"]
    lines += [f"M 644 inline many/{n % 100}/{n:0200}.h\ndata 1\n{n % 10}" for n in range(1000)]
    subprocess.run(
        ["git", "-C", str(project.root), "fast-import", "--quiet"],
        input="\n".join(lines),
        text=True,
        check=True,
    )
    made = project.git("rev-parse", "many")
    inode = export(project.root, made).stat().st_ino
    assert export(project.root, made).stat().st_ino == inode


# Submodules.


@pytest.fixture
def vendored(project, tmp_path, monkeypatch):
    """The project with a library as a submodule, and in that a library of its own."""
    for number, value in enumerate(("protocol.file.allow", "always")):
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0" if number else "GIT_CONFIG_KEY_0", value)
    inner, library = (Project(make_repository(tmp_path / name)) for name in ("inner", "library"))
    inner.commit({"deepest.h": "// deepest\n"})
    library.git("submodule", "--quiet", "add", str(inner.root), "inner")
    library.commit({"include/lib.h": '#include "../inner/deepest.h"\n// library\n'})
    project.git("submodule", "--quiet", "add", "--name", "odd/name", str(library.root), "third_party/lib")
    project.git("submodule", "--quiet", "update", "--init", "--recursive")
    project.commit({"kernels/toy/plain.cu": '#include "../../third_party/lib/include/lib.h"\n// mine\n'})
    return project


def test_submodules_are_part_of_a_commit(vendored, own_cache):
    loaded = load(vendored.suite, "HEAD")
    text = text_of(loaded)
    assert "// deepest\n" in text
    assert "// library\n" in text
    assert loaded.source == load(vendored.suite).source
    deepest = own_cache / "commits" / loaded.source.commit / "third_party/lib/inner/deepest.h"
    deepest.write_text("// edited\n")
    assert "// deepest\n" in text_of(load(vendored.suite, "HEAD"))


def test_an_edit_in_a_submodule_is_uncommitted(vendored, own_cache):
    before = load(vendored.suite).source
    vendored.write({"third_party/lib/include/lib.h": "// edited\n"})
    after = load(vendored.suite).source
    assert (before.dirty, after.dirty) == (False, True)
    assert "// edited\n" not in text_of(load(vendored.suite, "HEAD"))


def test_a_submodule_is_found_though_its_folder_is_gone_or_holds_it_whole(vendored, own_cache, tmp_path):
    shutil.rmtree(vendored.root / "third_party")
    assert "// deepest\n" in text_of(load(vendored.suite, "HEAD"))
    shutil.rmtree(own_cache)
    kept = vendored.root / ".git/modules/odd/name"
    vendored.git("submodule", "--quiet", "update", "--init", "--recursive")
    (vendored.root / "third_party/lib/.git").unlink()
    shutil.move(kept, vendored.root / "third_party/lib/.git")
    subprocess.run(
        ["git", "config", "--file", "third_party/lib/.git/config", "--unset", "core.worktree"],
        cwd=vendored.root,
        check=True,
    )
    assert "// library\n" in text_of(load(vendored.suite, "HEAD"))


def test_a_submodule_of_a_linked_worktree(vendored, own_cache, tmp_path):
    shutil.rmtree(vendored.root / "third_party")
    shutil.move(vendored.root / ".git/modules", tmp_path / "away")
    vendored.git("worktree", "add", "--quiet", str(tmp_path / "linked"), "HEAD")
    linked = Project(tmp_path / "linked")
    linked.git("submodule", "--quiet", "update", "--init", "--recursive")
    assert "// deepest\n" in text_of(load(linked.suite, "HEAD"))


@pytest.mark.parametrize("bare", [False, True], ids=["a clone", "asv's mirror"])
def test_a_submodule_that_is_not_fetched_is_a_sentence(harness, vendored, own_cache, tmp_path, bare):
    made = vendored.git("rev-parse", "HEAD")
    how = "--mirror" if bare else "--quiet"
    clone = tmp_path / "clone"
    vendored.git("clone", "--quiet", how, str(vendored.root), str(clone))
    if bare:
        loaded = load(vendored.suite, made, clone)
        with pytest.raises(SuiteError) as raised:
            text_of(loaded)
        told = loaded.explained(raised.value.message)
        assert told.endswith(
            f"Submodule third_party/lib of commit {made[:12]} is not in {clone}, a mirror, which has no "
            'submodules: measure from a clone that has them (asv\'s "repo").'
        )
        return
    for arguments in (("check", "--commit", "HEAD"), ("compare", "HEAD", "HEAD")):
        done = harness(*arguments, *NULL, cwd=clone)
        assert done.status in (ExitCode.NOT_MEASURED, ExitCode.REGRESSION)
        assert (
            f"Submodule third_party/lib of commit {made[:12]} is not in this clone: "
            "git submodule update --init third_party/lib."
        ) in " ".join((done.out + done.err).split())
    assert not list((own_cache / "commits").glob("*/third_party/lib/*"))
    assert "// deepest\n" in text_of(load(vendored.suite, made)), "the other clone has it"


@pytest.mark.parametrize("device", ["opencl", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_compiler_that_misses_a_submodules_header_is_told_why(
    harness, vendored, own_cache, tmp_path, device
):
    [found] = survey((device,))
    if not found.devices:
        device_is_missing(device, found.problem)
    options = (
        "macros={\"K\": 1}, options={DEVICE: [f'-I{Path(__file__).parents[2]}/third_party/lib/include']},"
    )
    suite = toy.SUITE.replace('"plain.cu", ', f'"plain.cu", {options.replace("DEVICE", repr(device))} ')
    body = toy.BODY.format(name="plain")
    cuda = 'extern "C" __global__ void plain(const float* x, float* y, int n) {\n}\n'
    made = vendored.commit(
        {
            "kernels/toy/suite.py": f"from pathlib import Path\n{suite}",
            "kernels/toy/plain.cu": f"#include <lib.h>\n{cuda if device == 'cuda' else body}",
        }
    )
    vendored.git("clone", "--quiet", str(vendored.root), str(tmp_path / "clone"))
    done = harness("check", "plain", "--commit", "HEAD", "--device", device, cwd=tmp_path / "clone")
    assert done.status == ExitCode.NOT_MEASURED, done.err
    assert "(build-failed)" in done.err
    assert f"Submodule third_party/lib of commit {made[:12]} is not in this clone: git" in done.err


def test_a_submodule_that_lacks_the_commit_is_a_sentence(vendored, own_cache, tmp_path):
    """A submodule's commit was committed and not pushed."""
    vendored.git("update-index", "--cacheinfo", f"160000,{'1' * 40},third_party/lib")
    vendored.git("commit", "--quiet", "--message", "ahead")
    loaded = load(vendored.suite, "HEAD")
    with pytest.raises(SuiteError) as raised:
        text_of(loaded)
    assert f"git -C third_party/lib fetch origin {'1' * 40}." in loaded.explained(raised.value.message)


def test_a_submodule_that_a_suite_does_not_need_is_not_spoken_of(harness, project, own_cache):
    project.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib")
    project.git("commit", "--quiet", "--message", "without .gitmodules")
    assert harness("check", "--commit", "HEAD", *NULL).status == ExitCode.FINE
    project.write({"kernels/toy/suite.py": "1 / 0\n"})
    project.git("add", "kernels")
    project.git("commit", "--quiet", "--message", "broken")
    with pytest.raises(SuiteError) as raised:
        load(project.suite, "HEAD")
    assert "Submodule" not in raised.value.message


def test_a_submodules_name_leads_nowhere_else(project, own_cache, tmp_path):
    other = Project(make_repository(tmp_path / "other"))
    secret = other.commit({"secret.h": "// secret\n"})
    project.write({".gitmodules": '[submodule "../../../other/.git"]\n\tpath = lib\n\turl = x\n'})
    project.git("add", ".gitmodules")
    project.git("update-index", "--add", "--cacheinfo", f"160000,{secret},lib")
    project.git("commit", "--quiet", "--message", "hostile")
    assert list((export(project.root, project.git("rev-parse", "HEAD")) / "lib").iterdir()) == []


# Links.


def test_a_link_within_the_repository_is_a_link(project, own_cache):
    (project.root / "shared").mkdir()
    (project.suite / "linked.h").symlink_to("../../shared/real.h")
    (project.root / "kernels/all").symlink_to("../shared")
    made = project.commit(
        {
            "shared/real.h": "// real\n",
            "kernels/toy/plain.cu": '#include "linked.h"\n#include "../all/real.h"\n',
        }
    )
    loaded = load(project.suite, made)
    assert text_of(loaded).count("// real\n") == 2
    assert (loaded.suite.root / "linked.h").readlink() == Path("../../shared/real.h")
    inode = export(project.root, made).stat().st_ino
    assert export(project.root, made).stat().st_ino == inode


@pytest.mark.parametrize("target", ["{outside}", "../../../outside.h", "chain"])
def test_a_link_that_leads_out_leads_nowhere(harness, project, own_cache, tmp_path, target):
    (tmp_path / "outside.h").write_text("// outside\n")
    target = target.format(outside=tmp_path / "outside.h")
    (project.suite / "data.h").symlink_to(target)
    (project.suite / "chain").symlink_to("../../../outside.h")
    made = project.commit({"kernels/toy/plain.cu": '#include "data.h"\n'})
    assert "// outside\n" in text_of(load(project.suite))
    loaded = load(project.suite, made)
    with pytest.raises(SuiteError):
        text_of(loaded)
    done = harness("check", "plain", "--commit", "HEAD", *NULL)
    assert done.status == ExitCode.NOT_MEASURED
    link, end = ("chain", "../../../outside.h") if target == "chain" else ("data.h", target)
    if target != "chain":
        assert f"kernels/toy/{link} is a link to {end}, {OUTSIDE}" in " ".join(done.err.split())
    # One that somebody makes lead there again is damage.
    (loaded.suite.root / "data.h").unlink()
    (loaded.suite.root / "data.h").symlink_to(tmp_path / "outside.h")
    with pytest.raises(SuiteError):
        text_of(load(project.suite, made))
    assert harness("check", "tiled", "--commit", "HEAD", *NULL).status == ExitCode.FINE


def test_a_suite_behind_a_link_that_leads_out_is_a_sentence(project, own_cache, tmp_path):
    shutil.move(project.suite, tmp_path / "toy")
    project.suite.symlink_to(tmp_path / "toy")
    project.commit()
    with pytest.raises(SuiteError) as raised:
        load(project.root / "kernels/toy", "HEAD", project.root)
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_suite_that_is_a_link_out_of_the_repository_is_a_sentence(harness, project, own_cache, tmp_path):
    base = project.git("rev-parse", "HEAD")
    shutil.move(project.suite / "suite.py", tmp_path / "suite.py")
    (project.suite / "suite.py").symlink_to(tmp_path / "suite.py")
    made = project.commit()
    told = f"kernels/toy/suite.py is a link to {tmp_path / 'suite.py'}, {OUTSIDE}"
    for arguments, status in {
        ("check", "--commit", "HEAD"): ExitCode.USAGE,
        ("compare", "HEAD", "HEAD"): ExitCode.USAGE,
        ("compare", made, base): ExitCode.NOT_MEASURED,
        ("compare", base, made): ExitCode.REGRESSION,
    }.items():
        done = harness(*arguments, *NULL)
        assert done.status == status
        assert status == ExitCode.REGRESSION or told in " ".join((done.out + done.err).split())


def test_links_in_a_circle_end(project, own_cache):
    (project.suite / "a").symlink_to("b")
    (project.suite / "b").symlink_to("a")
    (project.suite / "self").symlink_to(".")
    made = project.commit()
    inode = export(project.root, made).stat().st_ino
    assert export(project.root, made).stat().st_ino == inode


# The same files everywhere.


def test_every_command_sees_the_same_files(harness, vendored, own_cache):
    """A header two levels up, a submodule's, one behind a link, and an attribute that an archive heeds."""
    (vendored.suite / "linked.h").symlink_to("../../common/real.h")
    body = toy.BODY.format(name="plain")
    made = vendored.commit(
        {
            ".gitattributes": "kernels export-ignore\ncommon export-ignore\n",
            "common/top.h": "// top\n",
            "common/real.h": "// real\n",
            "kernels/toy/plain.cu": '#include "../../common/top.h"\n#include "linked.h"\n'
            f'#include "../../third_party/lib/include/lib.h"\n{body}',
        }
    )
    assert "// top" in text_of(load(vendored.suite))
    hashes = set()
    for commit_option in ((), ("--commit", "HEAD")):
        done = harness("run", "plain", *commit_option, *NULL, "--json", "--no-save")
        assert done.status == ExitCode.FINE, done.err
        [run] = done.json
        hashes |= {(run["run"]["source"]["tree_sha256"], row["row"]["source_sha256"]) for row in run["rows"]}
    done = harness("compare", "HEAD", "plain", *NULL, "--json", "--no-save")
    assert [(each["status"]) for each in done.json[0]["verdicts"]] == ["identical"]
    hashes.add((done.json[0]["comparison"]["base"]["tree_sha256"], *[h for _, h in hashes][:1]))
    # asv's commit, from the repository that asv names.
    loaded = load(vendored.suite, made, vendored.root)
    assert loaded.source.tree_sha256 in {tree_hash for tree_hash, _ in hashes}
    assert len(hashes) == 1


@pytest.mark.parametrize("name", ["kernels/toy/plain.cu", "kernels/portable/null.h"])
def test_a_file_that_is_used_and_ignored_is_uncommitted(project, name):
    project.git("rm", "--quiet", "--cached", name)
    project.commit({".gitignore": f"{Path(name).name}\n"})
    (project.root / name).write_text("// mine\n")
    assert load(project.suite).source.dirty


@pytest.mark.parametrize("ignored", [False, True])
def test_a_file_that_was_never_committed_is_named(harness, project, own_cache, ignored):
    project.commit(
        {
            ".gitignore": "more.h\n" if ignored else "",
            "kernels/toy/plain.cu": '#include "more.h"\n' + toy.BODY.format(name="plain"),
        }
    )
    made = project.git("rev-parse", "HEAD")
    project.write({"kernels/toy/more.h": "// more\n"})
    assert harness("check", "plain", *NULL).status == ExitCode.FINE
    done = harness("check", "plain", "--commit", "HEAD", *NULL)
    assert done.status == ExitCode.NOT_MEASURED
    expected = f"kernels/toy/more.h is in your working tree but not in commit {made[:12]}: git add it."
    assert expected in " ".join(done.err.split())


def test_a_file_above_the_suite_that_was_never_committed_is_named(project, own_cache):
    project.commit({"kernels/toy/plain.cu": '#include "../../common/more.h"\n'})
    project.write({"common/more.h": "// more\n"})
    loaded = load(project.suite, "HEAD")
    with pytest.raises(SuiteError) as raised:
        text_of(loaded)
    told = loaded.explained(raised.value.message)
    assert "common/more.h is in your working tree but not in commit" in told
    assert loaded.explained(told) == told, "once is enough"


def test_a_module_that_was_never_committed_is_named(project, own_cache):
    project.commit({"kernels/toy/suite.py": f"import lib.deep\n{toy.SUITE}"})
    project.write({"kernels/toy/lib/deep.py": ""})
    load(project.suite)
    with pytest.raises(
        SuiteError, match=r"kernels/toy/lib/deep\.py is in your working tree but not in commit"
    ):
        load(project.suite, "HEAD")


def test_a_suite_that_was_never_committed_is_named(project, own_cache):
    project.write({"kernels/mine/suite.py": toy.SUITE})
    with pytest.raises(NoSuiteError) as raised:
        load(project.root / "kernels/mine", "HEAD")
    made = project.git("rev-parse", "HEAD")[:12]
    assert raised.value.message == (
        f"Commit {made} has no suite kernels/mine. kernels/mine/suite.py is in your working tree but not in "
        f"commit {made}: git add it."
    )


# Nothing compared is not fine.


def test_a_base_that_has_the_folder_and_no_suite_is_not_fine(harness, project):
    suite = {"kernels/other/suite.py": toy.SUITE.replace('"toy"', '"other"')}
    files = {f"kernels/other/{name}.cu": toy.BODY.format(name=name) for name in ("plain", "tiled")}
    base = project.commit(files)
    project.commit(suite)
    done = harness("compare", base, "HEAD", *NULL, "--json", "--no-save")
    assert done.status == ExitCode.NOT_MEASURED
    told = {each["case"]: each for result in done.json for each in result["verdicts"]}
    assert {each["status"] for name, each in told.items() if name.startswith("toy.")} == {"identical"}
    others = [each for name, each in told.items() if name.startswith("other.")]
    assert {(each["status"], each["reason"], each["side"]) for each in others} == {
        ("failed", "no-suite", "base")
    }
    words = f"Base {base[:12]} has the folder kernels/other, but no suite.py in it."
    assert others[0]["message"].endswith(f" at base. {words}")


@pytest.mark.parametrize("what", ["link", "submodule"])
def test_a_base_that_has_something_else_in_place_of_the_suite_is_not_fine(harness, project, tmp_path, what):
    shutil.move(project.suite, tmp_path / "toy")
    if what == "link":
        project.suite.symlink_to(tmp_path / "toy")
        base = project.commit()
        project.suite.unlink()
    else:
        project.git("rm", "-r", "--quiet", "--cached", "kernels")
        project.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},kernels")
        project.git("commit", "--quiet", "--message", "all in a submodule")
        base = project.git("rev-parse", "HEAD")
        project.git("rm", "--quiet", "--cached", "kernels")
    shutil.move(tmp_path / "toy", project.suite)
    project.commit()
    done = harness("compare", base, "HEAD", *NULL, "--json", "--no-save")
    assert done.status == ExitCode.NOT_MEASURED
    told = [each for result in done.json for each in result["verdicts"]]
    assert {(each["status"], each["reason"]) for each in told} == {("failed", "no-suite")}
    expected = "kernels/toy is a link to" if what == "link" else "Submodule kernels of commit"
    assert expected in told[0]["message"]


def test_nothing_but_new_cases_is_inconclusive_and_says_why(harness, tmp_path):
    root = make_repository(tmp_path / "p")
    base = commit(root, {"readme": ""}, 1)
    commit(root, dict(toy.FILES), 2)
    done = harness("compare", base, "HEAD", *NULL, "--no-save", cwd=root)
    assert done.status == ExitCode.INCONCLUSIVE
    told = " ".join(done.out.split())
    assert "2 new. Nothing was compared: base has none of these cases." in told
    assert "Exit status 4." in told
    git(root, "branch", "base", base)
    done = harness("ci", "compare", "--base", "base", *NULL, "--json", cwd=root)
    assert done.status == ExitCode.INCONCLUSIVE
    review = (root / "perf-review").glob("*.md")
    assert any("No case was compared: base has none of 2" in path.read_text() for path in review)


def test_no_result_at_all_is_inconclusive():
    assert exit_code([]) == ExitCode.INCONCLUSIVE


def test_a_gate_over_new_cases_alone_fails(project, tmp_path):
    base = project.git("rev-parse", "HEAD")
    project.commit(
        {"kernels/toy/suite.py": toy.SUITE.replace('"plain"', '"fresh"').replace('"tiled"', '"more"')}
    )
    project.write(
        {"kernels/test_all.py": "def test_it(gpu_benchmark, gpu_case):\n    gpu_benchmark(gpu_case)\n"}
    )
    options = ("--perf-gate", f"--perf-base={base}", "--perf-device=null", "-k", "fresh")
    done = run_forked(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "kernels/test_all.py", *options],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    assert done.returncode != 0, done.stdout
    assert f"No benchmark was compared with {base}:" in done.stdout, done.stdout
