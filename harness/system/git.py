"""Runs git commands and reads their output."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from harness.errors import GitError

_PLAIN = ("-c", "log.showSignature=false", "-c", "i18n.logOutputEncoding=UTF-8")
"""Overrides of user settings that would change the output read here."""
_ELSEWHERE = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
    *("GIT_ATTR_SOURCE", "GIT_REPLACE_REF_BASE", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
}
"""Variables set by git hooks. They would silently redirect every command to another repository."""

_LAST_S = 253_402_300_799
"""The end of the year 9999. git accepts later dates, which calendars do not have."""

_resolved: set[tuple[Path, str]] = set()
"""Hashes of commits that a repository is known to have. They are resolved repeatedly within a command."""
_tops: dict[Path, Path] = {}
"""Top folders of repositories, by a folder inside. A command needs each about ten times."""


_NO_REPOSITORY = "not a git repository"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, with author and subject as written, which may be long or hostile."""

    hash: str
    time_s: int
    """Committer's time in seconds since 1970. It is displayed, and never used to order, because authors'
    clocks differ."""
    author: str
    subject: str


def ask(
    folder: Path, *args: str, variables: Mapping[str, str] | None = None, stdin: bytes | None = None
) -> bytes:
    """Return the standard output of a git command run in `folder`. Raises GitError."""
    env = {key: value for key, value in os.environ.items() if key not in _ELSEWHERE} | {**(variables or {})}
    env["LC_ALL"] = "C"  # one of its messages is parsed below
    env["GIT_OPTIONAL_LOCKS"] = "0"  # status would lock the index, and the user's git command would fail
    done = run([*_PLAIN, "-C", str(folder), *args], env=env, stdin=stdin)
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        if _NO_REPOSITORY in message:
            message = (
                f"{folder} is in no git repository, and commits are read there. Start in the repository, or "
                f"make one with 'git init'. (git: {message.removeprefix('fatal: ')})"
            )
        raise GitError(message or f"git failed in {folder}, with status {done.returncode}.")
    return done.stdout


def run(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path | None = None,
    timeout_s: float | None = None,
    stdin: IO[bytes] | bytes | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a git command without input, and return its result in any case. Raises GitError without git."""
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=env,
            stdin=None if isinstance(stdin, bytes) else stdin or subprocess.DEVNULL,
            input=stdin if isinstance(stdin, bytes) else None,
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError:
        raise GitError("The git command was not found on PATH: install git.") from None


def repository_of(path: Path) -> Path | None:
    """Return the top folder of the repository that contains `path`; None outside of any."""
    folder = (path if path.is_dir() else path.parent).resolve()
    if (known := _tops.get(folder)) and (known / ".git").exists():
        return known
    try:
        _tops[folder] = Path(os.fsdecode(ask(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n")))
    except GitError as error:
        # Another reason, such as a repository of another owner, must not look like no repository.
        none = (_NO_REPOSITORY, "must be run in a work tree", "was not found on PATH")
        if any(words in error.message for words in none):
            return None
        raise
    return _tops[folder]


def resolve(repository: Path, revision: str) -> str:
    """Return the full hash of a commit named by `revision`."""
    if (repository, revision) in _resolved:
        return revision
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        found = ask(repository, *asked).decode().strip()
    except GitError:
        hint = "'git log --oneline' lists what there is."
        if not ask(repository, "rev-list", "--max-count=1", "--all"):
            hint = "The repository has no commit yet: 'git commit' makes the first one."
        elif ask(repository, "rev-parse", "--is-shallow-repository").decode().strip() == "true":
            hint = "This clone is shallow: fetch the whole history with 'git fetch --unshallow'."
        raise GitError(f"No commit named {revision!r} in {repository}. {hint}") from None
    _resolved.add((repository, found))
    return found


def merge_base(repository: Path, one: str, other: str) -> str:
    """Return the full hash of the newest common commit. Raises GitError if there is none."""
    commits = [resolve(repository, revision) for revision in (one, other)]
    try:
        return ask(repository, "merge-base", *commits).decode().split()[0]
    except (GitError, IndexError):
        raise GitError(
            f"{one} and {other} have no commit in common in {repository}. A shallow clone cannot tell: fetch "
            "the whole history (with actions/checkout: fetch-depth: 0)."
        ) from None


def committed_at(repository: Path, commit: str) -> str:
    """Return the committer's date of a commit, ISO 8601."""
    found = ask(repository, "log", "--no-walk", "--format=%cI", commit, "--").decode().strip()
    return found.replace("Z", "+00:00")  # newer git writes Z, which Python 3.10 does not read


def is_dirty(repository: Path, *paths: Path) -> bool:
    """Return whether anything under `paths` differs from HEAD, including unknown files.

    A named file that git ignores counts too, because HEAD does not have it.
    """
    modules: dict[Path, list[Path]] = {}
    own: list[Path] = []
    for path in paths:
        # Git does not look into submodules: ask the outermost submodule that contains the path.
        around = [folder for folder in path.parents if repository in folder.parents]
        module = next((folder for folder in reversed(around) if (folder / ".git").exists()), None)
        (own if module is None else modules.setdefault(module, [])).append(path)
    return (
        _has_status(repository, own, "--ignore-submodules=none")
        or _has_status(repository, [path for path in own if path.is_file()], "--ignored=matching")
        or _has_status(repository, list(modules), "--ignore-submodules=dirty")  # at another commit
        or any(is_dirty(module, *inside) for module, inside in modules.items())
    )


def _has_status(repository: Path, paths: Sequence[Path], option: str) -> bool:
    asked = ("status", "--porcelain", "--untracked-files=normal", option, "--", *map(str, paths))
    return bool(paths and ask(repository, *asked).strip())


def changing(repository: Path, base: str, head: str, *paths: str) -> set[str]:
    """Return commits of base..head, along first parents, that change `paths`, including merges."""
    asked = ("--literal-pathspecs", "log", "--first-parent", "--format=%H", f"{base}..{head}")
    return set(ask(repository, *asked, "--", *paths).decode().split())


def names_of_commits(folder: Path, recent: int) -> list[tuple[str, str]]:
    """Return HEAD, branches, tags and `recent` commits by short hash, each with its subject, if any."""
    refs = ask(folder, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
    logged = ask(folder, "log", f"--max-count={recent}", "--format=%h %s")
    names = [("HEAD", ""), *((name, "") for name in refs.decode(errors="replace").split())]
    commits = [line.partition(" ") for line in logged.decode(errors="replace").splitlines()]
    return [*names, *((commit, subject) for commit, _, subject in commits)]


def touched(repository: Path, commits: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths in which each commit, given by its full hash, differs from its first parent."""
    if not commits:  # git would take HEAD
        return {}
    how = ("--no-walk=unsorted", "--diff-merges=first-parent", "--name-only", "--no-renames")
    asked = ("log", "-z", *how, "--format=%x01%H", "--stdin", "--")
    listed = ask(repository, *asked, stdin="\n".join(commits).encode())
    entries = (entry.partition("\0") for entry in listed.decode(errors="surrogateescape").split("\x01")[1:])
    return {commit: tuple(filter(None, paths.removeprefix("\n").split("\0"))) for commit, _, paths in entries}


def files(repository: Path, commit: str) -> list[str]:
    """Return every file of a commit, by its path in the repository."""
    listed = ask(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    return [name.decode(errors="surrogateescape") for name in listed.split(b"\0") if name]


def read(repository: Path, commit: str, path: str) -> bytes | None:
    """Return a file's content at a commit; None if the commit lacks the file."""
    try:
        return ask(repository, "cat-file", "blob", f"{commit}:{path}")
    except GitError:
        return None


def has(repository: Path, commit: str, path: str) -> bool:
    """Return whether a commit has, or may have, a path: git does not look into links or submodules."""
    above = [str(each) for each in (PurePosixPath(path), *PurePosixPath(path).parents[:-1])]
    listed = ask(repository, "ls-tree", "-z", "--full-tree", commit, "--", *above).split(b"\0")
    found = [line.partition(b"\t")[::2] for line in listed]
    return any(name == os.fsencode(path) or facts[:6] in (b"120000", b"160000") for facts, name in found)


def first_parents(repository: Path, revision: str) -> list[Commit]:
    """Return every commit along first parents, oldest first. Raises GitError."""
    commit = resolve(repository, revision)
    # Neither a name nor a subject can contain a line end.
    logged = ask(repository, "log", "--first-parent", "--reverse", "-z", "--format=%H%n%ct%n%an%n%s", commit)
    found = []
    for entry in logged.decode(errors="replace").split("\0"):
        full_hash, time, author, subject = (entry + "\n" * 3).split("\n")[:4]
        if full_hash:
            found.append(Commit(full_hash, min(max(int(time), 0), _LAST_S), author, subject))
    return found


def is_commit(repository: Path, revision: str) -> bool:
    """Return whether `revision` names a commit."""
    with contextlib.suppress(GitError):
        return bool(resolve(repository, revision))
    return False


def user_name(repository: Path) -> str:
    """Return the committer's name in a folder, by git's configuration; empty without one."""
    try:
        return ask(repository, "config", "user.name").decode(errors="replace").strip()
    except GitError:
        return ""
