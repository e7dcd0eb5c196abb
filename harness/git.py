"""What the harness asks of git, through git's own command."""

from __future__ import annotations

__all__ = [
    "committed_at",
    "export",
    "files",
    "first_parents",
    "is_commit",
    "is_dirty",
    "merge_base",
    "newest_commits",
    "read",
    "repository_of",
    "resolve",
    "user_name",
]

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from harness.errors import GitError, StoreError

_PLAIN = ("-c", "log.showSignature=false", "-c", "i18n.logOutputEncoding=UTF-8")
"""Users' settings that would put other words into what is read here."""


_ELSEWHERE = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
    *("GIT_REPLACE_REF_BASE", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
}
"""Hooks of git set these; they would silently point every command at another repository."""


def _git(repository: Path, *args: str) -> bytes:
    env = {key: value for key, value in os.environ.items() if key not in _ELSEWHERE}
    env["LC_ALL"] = "C"  # one of its messages is read below
    env["GIT_OPTIONAL_LOCKS"] = "0"  # status would lock the index, and a git command of the user's would fail
    try:
        done = subprocess.run(
            ["git", *_PLAIN, "-C", str(repository), *args], capture_output=True, check=False, env=env
        )
    except FileNotFoundError:
        raise GitError("The git command was not found on PATH: install git.") from None
    if done.returncode:
        raise GitError(
            done.stderr.decode(errors="replace").strip() or f"git {args[0]} failed in {repository}."
        )
    return done.stdout


def repository_of(path: Path) -> Path | None:
    """The top folder of the repository that holds `path`; None outside any."""
    folder = path if path.is_dir() else path.parent
    try:
        return Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    except GitError as error:
        # Another reason, such as a repository of another owner, must not look like no repository.
        none = ("not a git repository", "must be run in a work tree", "was not found on PATH")
        if any(words in error.message for words in none):
            return None
        raise


def resolve(repository: Path, revision: str) -> str:
    """The full hash of a commit named by `revision`."""
    try:
        return (
            _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
            .decode()
            .strip()
        )
    except GitError:
        shallow = _git(repository, "rev-parse", "--is-shallow-repository").decode().strip() == "true"
        hint = (
            " This clone is shallow: fetch the whole history with 'git fetch --unshallow'."
            if shallow
            else " 'git log --oneline' lists what there is."
        )
        raise GitError(f"No commit named {revision!r} in {repository}.{hint}") from None


def merge_base(repository: Path, one: str, other: str) -> str:
    """The full hash of the newest commit that both histories have. Raises GitError where there is none."""
    commits = [resolve(repository, revision) for revision in (one, other)]
    try:
        return _git(repository, "merge-base", *commits).decode().split()[0]
    except (GitError, IndexError):
        raise GitError(
            f"{one} and {other} have no commit in common in {repository}. A shallow clone cannot tell: fetch "
            "the whole history (with actions/checkout: fetch-depth: 0)."
        ) from None


def committed_at(repository: Path, commit: str) -> str:
    """The committer's date of a commit, ISO 8601."""
    return _git(repository, "show", "--no-patch", "--format=%cI", commit).decode().strip()


def is_dirty(repository: Path, *paths: Path) -> bool:
    """Whether anything under `paths` differs from HEAD, files that git does not know included."""
    return bool(
        _git(repository, "status", "--porcelain", "--untracked-files=normal", "--", *map(str, paths)).strip()
    )


def newest_commits(repository: Path, count: int, *paths: str) -> list[str]:
    """The newest `count` commits that touched `paths`, newest first."""
    return _git(repository, "log", f"--max-count={count}", "--format=%H", "--", *paths).decode().split()


def files(repository: Path, commit: str) -> list[str]:
    """Every file of a commit, by its path in the repository."""
    listed = _git(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    return [name.decode(errors="surrogateescape") for name in listed.split(b"\0") if name]


def read(repository: Path, commit: str, path: str) -> bytes | None:
    """A file's content at a commit; None where there is none."""
    try:
        return _git(repository, "cat-file", "blob", f"{commit}:{path}")
    except GitError:
        return None


def first_parents(repository: Path, revision: str) -> list[tuple[str, int, str, str]]:
    """Hash, time in seconds since 1970, author and subject of every commit on the line of first parents,
    oldest first. Names and subjects are as their authors wrote them: long, or hostile.
    """
    commit = resolve(repository, revision)
    # Neither a name nor a subject can hold a line's end.
    told = _git(repository, "log", "--first-parent", "--reverse", "-z", "--format=%H%n%ct%n%an%n%s", commit)
    found = []
    for entry in told.decode(errors="replace").split("\0"):
        full_hash, time, author, subject = (entry + "\n" * 3).split("\n")[:4]
        if full_hash:
            found.append((full_hash, int(time), author, subject))
    return found


def is_commit(repository: Path, revision: str) -> bool:
    """Whether `revision` names a commit."""
    try:
        resolve(repository, revision)
    except GitError:
        return False
    return True


def export(repository: Path, commit: str, folder: str, destination: Path) -> Path:
    """Write `folder` as it was at `commit` below `destination`, once, and return the folder there.

    The files come out of git's object store, so the working tree cannot leak into an older commit.
    `destination` should belong to this commit and folder alone: where it exists already, it is taken as
    complete.
    """
    if not destination.exists():
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".export-", dir=destination.parent))
        except OSError as error:
            raise _unwritable(destination, error) from None
        try:
            archive = _git(repository, "archive", "--format=tar", commit, "--", folder)
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(scratch, filter="data")
            scratch.rename(destination)
        except tarfile.TarError as error:
            raise GitError(f"its files cannot be unpacked: {error}.") from None
        except OSError as error:
            if not destination.exists():  # else another process was first, which is as good
                raise _unwritable(destination, error) from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return destination / folder


def user_name(repository: Path) -> str:
    """Who commits there, as git is told; empty where it is not."""
    try:
        return _git(repository, "config", "user.name").decode(errors="replace").strip()
    except GitError:
        return ""


def _unwritable(destination: Path, error: OSError) -> StoreError:
    return StoreError(
        f"Cannot write the files of a commit to {destination}: {error.strerror or error}. "
        "Choose another folder with HARNESS_CACHE_DIR."
    )
