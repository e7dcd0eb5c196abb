"""Questions of the harness to git, and its messages where git has no answer."""

from __future__ import annotations

import subprocess

import pytest

from harness.errors import ExitCode, GitError
from harness.system import git
from tests import toy

FILES = {
    "kernels/toy/suite.py": "# one\n",
    "kernels/toy/sub/plain.cu": "// one\n",
    "kernels/portable/null.h": "// one\n",
    "top.txt": "one\n",
}


@pytest.fixture
def history(project):
    """The project, and the hashes of two commits of it, older first."""
    old = project.commit(FILES)
    new = project.commit({"kernels/toy/suite.py": "# two\n", "kernels/portable/null.h": "// two\n"})
    return project, old, new


def test_the_repository_of_a_folder_and_of_a_file(project):
    assert git.repository_of(project.suite) == project.root
    assert git.repository_of(project.suite / "suite.py") == project.root
    assert git.repository_of(project.suite / "missing.py") == project.root


def test_a_repository_is_asked_for_once_and_again_where_it_is_gone(project, monkeypatch):
    assert git.repository_of(project.suite) == project.root
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")  # without git
        assert git.repository_of(project.suite) == project.root
    (project.root / ".git").rename(project.root.parent / "moved")
    assert git.repository_of(project.suite) is None


def test_outside_any_repository(tmp_path):
    assert git.repository_of(tmp_path) is None


@pytest.mark.parametrize("revision", ["HEAD", "main", "{new}", "{short}", "tagged", "annotated", "main~0"])
def test_resolve(history, revision):
    project, _, new = history
    project.git("tag", "tagged")
    project.git("tag", "--annotate", "--message", "words", "annotated")
    assert git.resolve(project.root, revision.format(new=new, short=new[:8])) == new
    assert git.resolve(project.suite, "HEAD~1") != new


def test_a_hash_is_asked_for_once(history, monkeypatch, tmp_path):
    project, old, new = history
    assert git.resolve(project.root, "HEAD") == new
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no git
    assert git.resolve(project.root, new) == new
    for folder, revision in ((project.root, old), (project.root, "HEAD"), (project.suite, new)):
        with pytest.raises(GitError, match="git command was not found"):
            git.resolve(folder, revision)


@pytest.mark.parametrize(
    "revision",
    ["nonsense", "", "-n", "--all", "HEAD~99", "HEAD:kernels", "HEAD~1..HEAD", "0" * 40, "a b", "toy.[nt]*"],
)
def test_an_unknown_commit_is_a_sentence(history, revision):
    project, _, _ = history
    with pytest.raises(GitError) as raised:
        git.resolve(project.root, revision)
    assert raised.value.message == (
        f"No commit named {revision!r} in {project.root}. 'git log --oneline' lists what there is."
    )
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_shallow_clone_says_so(history, tmp_path):
    project, old, new = history
    project.git("clone", "--quiet", "--depth", "1", f"file://{project.root}", str(tmp_path / "shallow"))
    assert git.resolve(tmp_path / "shallow", "HEAD") == new
    with pytest.raises(GitError, match=r"This clone is shallow: .*'git fetch --unshallow'"):
        git.resolve(tmp_path / "shallow", old)


def test_no_git_is_a_sentence(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git command was not found on PATH"):
        git.resolve(project.root, "HEAD")


def test_the_date_is_the_committers(project, monkeypatch):
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-02T03:04:05+02:00")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z")
    assert git.committed_at(project.root, project.commit()) == "2026-01-02T03:04:05+02:00"


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        pytest.param(None, False, id="nothing"),
        pytest.param("kernels/toy/suite.py", True, id="a changed file"),
        pytest.param("kernels/toy/new.cu", True, id="a new file"),
        pytest.param("kernels/toy/deep/down/new.cu", True, id="a new folder"),
        pytest.param("kernels/portable/null.h", False, id="another folder"),
        pytest.param("kernels/toy/__pycache__/x.pyc", False, id="an ignored file"),
    ],
)
def test_dirty_is_what_differs_under_the_paths(history, name, dirty):
    project, _, _ = history
    project.commit({".gitignore": "__pycache__/\n"})
    project.write({name: "changed\n"} if name else {})
    assert git.is_dirty(project.root, project.suite) is dirty


def test_a_new_file_is_dirty_whatever_git_is_set_to_show(history):
    project, _, _ = history
    project.git("config", "status.showUntrackedFiles", "no")
    project.write({"kernels/toy/new.cu": ""})
    assert git.is_dirty(project.root, project.suite)


@pytest.mark.parametrize("staged", [False, True])
def test_a_deleted_file_is_dirty(history, staged):
    project, _, _ = history
    (project.suite / "suite.py").unlink()
    if staged:
        project.git("add", "--all")
    assert git.is_dirty(project.root, project.suite)


def test_the_files_of_a_commit(history):
    project, old, new = history
    project.commit({'kernels/new folder/é "x".cu': "", "kernels/portable/line\nbreak.h": ""})
    project.git("rm", "--quiet", "top.txt")
    third = project.commit()
    project.write({"kernels/untracked.cu": ""})
    before = set(git.files(project.root, old))
    assert before == {*toy.FILES, *FILES}
    assert git.files(project.root, old) == git.files(project.root, new)
    added = {'kernels/new folder/é "x".cu', "kernels/portable/line\nbreak.h"}
    assert set(git.files(project.root, third)) == before - {"top.txt"} | added
    # By their path in the repository, wherever it is asked from.
    assert git.files(project.suite, old) == git.files(project.root, old)


def test_the_files_of_an_unknown_commit(project):
    with pytest.raises(GitError):
        git.files(project.root, "nonsense")


@pytest.mark.parametrize(("revision", "known"), [("HEAD~1", True), ("HEAD~99", False), ("toy.*", False)])
def test_what_is_a_commit(history, revision, known):
    project, _, _ = history
    assert git.is_commit(project.root, revision) is known


def test_a_hooks_variables_do_not_point_elsewhere(history, tmp_path, monkeypatch):
    project, _, new = history
    project.git("init", "--quiet", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    assert git.repository_of(project.suite) == project.root
    assert git.resolve(project.root, "HEAD") == new
    assert not git.is_dirty(project.root, project.suite)


def commit_as(project, author, subject, at=1_700_000_000):
    project.git(
        *("-c", f"user.name={author}", "commit", "--quiet", "--allow-empty", "--cleanup=verbatim"),
        *(f"--author={author} <someone@example.org>", f"--date=@{at}", f"--message={subject}"),
    )
    return project.git("rev-parse", "HEAD")


def test_first_parents_are_told_oldest_first(project, monkeypatch):
    first = project.git("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "@1700000000 +0200")
    second = commit_as(project, "Ada", "Second")
    third = commit_as(project, "Grace", "Third")
    line = git.first_parents(project.root, "HEAD")
    assert [each.hash for each in line] == [first, second, third]
    assert line[1:] == [
        git.Commit(second, 1_700_000_000, "Ada", "Second"),
        git.Commit(third, 1_700_000_000, "Grace", "Third"),
    ]
    assert git.first_parents(project.root, "HEAD~1") == line[:2]
    assert git.first_parents(project.suite, "main") == line


def test_dates_do_not_order_first_parents(project, monkeypatch):
    hashes = [project.git("rev-parse", "HEAD")]
    for day in (9, 3, 7, 1):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2020-01-{day:02}T00:00:00Z")
        hashes.append(project.commit())
    line = git.first_parents(project.root, "HEAD")
    assert [each.hash for each in line] == hashes
    assert line[1].time_s > line[2].time_s < line[3].time_s > line[4].time_s


def test_what_was_merged_is_not_on_the_line(project):
    base = project.git("rev-parse", "HEAD")
    project.git("switch", "--quiet", "--create", "side")
    aside = project.commit({"side.txt": "1\n"})
    project.git("switch", "--quiet", "main")
    ahead = project.commit({"main.txt": "1\n"})
    project.git("merge", "--quiet", "--no-ff", "--message", "merged", "side")
    merged = project.git("rev-parse", "HEAD")
    assert [each.hash for each in git.first_parents(project.root, "main")] == [base, ahead, merged]
    assert [each.hash for each in git.first_parents(project.root, "side")] == [base, aside]


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "%H %n %x00 %s",
        "\x1b[31mred\x1b[0m \x7f tab\tend",
        "<script>alert(1)</script>",
        "a line of ten kilobytes " + "x" * 10_000,
        "\u202egnp.exe\u202c, 🚀, \u2028 and \x85",
        "commit 0123456789",
    ],
)
def test_a_hostile_subject_is_told_whole_and_moves_nothing(project, subject):
    commit = commit_as(project, "[red]\x1b[2J\u202e", subject + "\n\nA body.\nAuthor: nobody\n")
    after = project.commit()
    *_, told, last = git.first_parents(project.root, "HEAD")
    assert told.hash == commit
    assert told.author == "[red]\x1b[2J\u202e"
    assert told.subject == (subject or "A body. Author: nobody")
    assert (last.hash, last.subject) == (after, "a change")


def test_a_subject_that_is_no_text_is_told_as_far_as_it_is(project):
    commit = project.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "x")
    raw = subprocess.run(
        ["git", "cat-file", "commit", commit], cwd=project.root, check=True, capture_output=True
    ).stdout
    strange = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=project.root,
        input=raw.removesuffix(b"x\n") + b"caf\xe9 \xff\n",
        check=True,
        capture_output=True,
    ).stdout
    [*_, told] = git.first_parents(project.root, strange.decode().strip())
    assert told.subject == "caf\ufffd \ufffd"


def test_first_parents_of_what_is_no_commit(project):
    with pytest.raises(GitError, match="No commit named 'nosuch'"):
        git.first_parents(project.root, "nosuch")


def test_a_shallow_clone_has_the_line_that_it_has(history, tmp_path):
    project, _, new = history
    project.git("clone", "--quiet", "--depth", "1", f"file://{project.root}", str(tmp_path / "shallow"))
    assert [each.hash for each in git.first_parents(tmp_path / "shallow", "HEAD")] == [new]


def test_whoever_commits_is_who_git_is_told(project, tmp_path):
    assert git.user_name(project.root) == ""
    project.git("config", "user.name", "Ada von Ünten")
    assert git.user_name(project.root) == "Ada von Ünten"
    assert git.user_name(project.suite) == "Ada von Ünten"
    assert git.user_name(tmp_path) == ""


def test_a_signed_commit_that_the_user_has_shown_is_read_like_any_other(tmp_path):
    repository = tmp_path / "project"
    repository.mkdir()
    gpg = tmp_path / "gpg"
    gpg.write_text(
        "#!/bin/sh\ncat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\n"
        "printf -- '-----BEGIN PGP SIGNATURE-----\\n\\nx\\n-----END PGP SIGNATURE-----\\n'\n"
    )
    gpg.chmod(0o755)
    run = ["git", "-C", str(repository)]
    subprocess.run([*run, "init", "-q"], check=True)
    for setting in ("user.name=a", "user.email=a@b", f"gpg.program={gpg}", "log.showSignature=true"):
        subprocess.run([*run, "config", *setting.split("=", 1)], check=True)
    subprocess.run([*run, "commit", "-q", "--allow-empty", "-S", "-m", "signed"], check=True)
    (commit,) = git.first_parents(repository, "HEAD")
    assert (len(commit.hash), commit.subject) == (40, "signed")
    shown = subprocess.run([*run, "log", "--format=%H"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() != commit.hash, "git itself shows the signature, or this test tests nothing"
