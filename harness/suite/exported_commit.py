"""The files of a commit as in a checkout, kept in the cache and checked by git's hashes on each use.

git itself writes them with a separate index, so attributes, line ends, filters and links are as in a
checkout. The user's index, working tree and hooks are left alone. Submodules come from the clone; a missing
one becomes an empty folder, as in git. A link that leads out of the repository is broken on purpose, because
its target is in no commit.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import os
import re
import shlex
import shutil
import stat
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.errors import GitError, NoSuiteError, StoreError
from harness.system import git
from harness.system.cache import EXPORTS, cache_dir

_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.sparseCheckout": "false",
    "core.splitIndex": "false",
}
"""Overrides of user settings that would make git run or leave something in the repository, or omit files."""
_LINK, _SUBMODULE, _EXECUTABLE = b"120000", b"160000", b"100755"
_NOWHERE = b"/dev/null/outside:"
"""Replacement for link targets outside of the repository: a path below a file never exists."""
_CHUNK = 1 << 20
_AT_ONCE = 500
_MOST_REASONS = 3
"""Most reasons of one kind in a message."""
_IS_MISSING = re.compile(
    r"no such file|not a directory|not found|no module named|cannot (?:import|open|read|find)|could not open"
    r"|has no suite",
    re.IGNORECASE,
)
"""Wordings of Python, the harness and compilers for a missing file."""


class _TreeEntry(NamedTuple):
    mode: bytes
    hash: bytes
    """Hexadecimal hash of the blob; for a submodule, of its commit."""


class _Clone(NamedTuple):
    git_dir: Path
    work_tree: Path | None
    """The working tree; None for a bare repository."""

    def ask(
        self, *args: str, work_tree: Path | None = None, index: Path | None = None, stdin: bytes | None = None
    ) -> bytes:
        # A submodule's own setting may name a missing working tree, which makes git fail.
        place = work_tree or self.git_dir
        paths = (f"--git-dir={self.git_dir}", f"--work-tree={place}")
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        variables = {"GIT_INDEX_FILE": str(index or self.git_dir / "harness-has-no-index")}
        options = (*paths, "--no-replace-objects", *settings)
        return git.ask(place, *options, *args, variables=variables, stdin=stdin)

    def has(self, commit: str) -> bool:
        with contextlib.suppress(GitError):
            _entries(self, commit)
            return True
        return False


class _Absent(NamedTuple):
    """A submodule that the clone lacks at the requested commit."""

    inside: bytes
    """Folder of the repository that refers to it; empty for the outermost."""
    path: bytes
    commit: str
    known: bool
    """True if the clone has it at other commits."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A repository's part of a commit's files: the requested repository, or one of its submodules."""

    clone: _Clone
    commit: str
    prefix: bytes
    """Folder of the part in the whole, with a slash at the end; empty for the outermost."""
    entries: Mapping[bytes, _TreeEntry]
    """Files and submodules of the part by path within it."""


@dataclass(frozen=True, slots=True)
class _Tree:
    parts: tuple[_Part, ...]
    absent: tuple[_Absent, ...]

    @property
    def name(self) -> str:
        commit = self.parts[0].commit
        if not self.absent:
            return commit
        lacking = b"\0".join(each.inside + each.path for each in self.absent)
        return f"{commit}-{hashlib.sha256(lacking).hexdigest()[:12]}"


def export(repository: Path, commit: str) -> Path:
    """Return a folder with all files of a commit or tree, by its full hash. Raises GitError, StoreError.

    The folder is in the cache if that is valid and writable; otherwise it is removed when this process ends.
    """
    tree = _tree(_clone(repository), commit)
    with contextlib.suppress(OSError, GitError):  # a full or read-only cache, or another user's
        return _in_folder(tree, cache_dir() / EXPORTS)
    try:
        return _in_folder(tree, _own_folder() / EXPORTS)
    except OSError as error:
        raise StoreError(
            f"Cannot write the files of commit {commit[:12]} to {error.filename or cache_dir()}: "
            f"{error.strerror or error}. Choose another folder with HARNESS_CACHE_DIR."
        ) from None


def with_suite(repository: Path, commit: str, suite: str, others: Sequence[str], source: str | None) -> str:
    """Return the hash of a commit's tree with another suite.py, for a suite written later.

    `suite` is the suite's folder within the repository. Its suite.py comes from `source`, a commit or None
    for the working tree. So do files of the folder and `others` that the commit lacks. Git keeps the tree
    among its objects without a reference. Raises GitError.
    """
    clone = _clone(repository)
    own = _entries(clone, commit)
    source_entries = _working_files(clone, [suite, *others]) if source is None else _entries(clone, source)
    wanted = {os.fsencode(name) for name in others}
    inside = b"" if suite == "." else os.fsencode(suite) + b"/"
    main = inside + b"suite.py"
    if main not in source_entries:
        raise NoSuiteError(
            f"{'The working tree' if source is None else source[:12]} has no {suite}/suite.py."
        )
    added = [
        b"%b %b\t%b\0" % (*entry, path)
        for path, entry in source_entries.items()
        if path == main or (path not in own and (path.startswith(inside) or path in wanted))
    ]
    with tempfile.TemporaryDirectory(prefix="harness-index-") as folder:
        index = Path(folder, "index")
        clone.ask("read-tree", commit, index=index)
        clone.ask("update-index", "-z", "--index-info", index=index, stdin=b"".join(added))
        return clone.ask("write-tree", index=index).decode().strip()


def _working_files(clone: _Clone, places: Sequence[str]) -> dict[bytes, _TreeEntry]:
    """Return files of the working tree that git does not ignore, stored as blobs in git."""
    top = clone.work_tree
    if top is None:
        raise GitError(f"{clone.git_dir} has no working tree to take a suite from.")
    listed = clone.ask(
        *("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *places),
        work_tree=top,
        index=clone.git_dir / "index",
    )
    found = {}
    for path in dict.fromkeys(listed.split(b"\0")[:-1]):
        file = top / os.fsdecode(path)
        if file.is_file() and not file.is_symlink():
            blob = clone.ask("hash-object", "-w", "--", os.fsdecode(path), work_tree=top).strip()
            found[path] = _TreeEntry(_EXECUTABLE if os.access(file, os.X_OK) else b"100644", blob)
    return found


@functools.cache
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="harness-commits-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _clone(repository: Path) -> _Clone:
    output = git.ask(repository, "rev-parse", "--is-bare-repository", "--absolute-git-dir")
    bare, git_dir = output.removesuffix(b"\n").split(b"\n", 1)
    return _Clone(Path(os.fsdecode(git_dir)), None if bare == b"true" else repository)


def _tree(clone: _Clone, commit: str, prefix: bytes = b"") -> _Tree:
    """Return the files of a commit, including those of its submodules."""
    own = _Part(clone, commit, prefix, _entries(clone, commit))
    parts = [own]
    absent: list[_Absent] = []
    for path, name in _submodules(own):
        wanted = own.entries[path].hash.decode()
        found = [each for each in _possible_clones(clone, path, name) if each.git_dir.is_dir()]
        if submodule := next((each for each in found if each.has(wanted)), None):
            below = _tree(submodule, wanted, prefix + path + b"/")
            parts += below.parts
            absent += below.absent
        else:
            absent.append(_Absent(prefix, path, wanted, bool(found)))
    return _Tree(tuple(parts), tuple(absent))


@functools.lru_cache(maxsize=64)
def _entries(clone: _Clone, commit: str) -> Mapping[bytes, _TreeEntry]:
    listed = clone.ask("ls-tree", "-r", "-z", "--full-tree", commit)
    entries = {}
    for line in listed.split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        mode, _, blob = facts.split(b" ")
        entries[path] = _TreeEntry(mode, blob)
    return entries


def _submodules(part: _Part) -> Iterator[tuple[bytes, bytes]]:
    """Yield path and name of each submodule. The name is empty if .gitmodules has no safe name."""
    paths = [path for path, entry in part.entries.items() if entry.mode == _SUBMODULE]
    if not paths:
        return
    names: dict[bytes, bytes] = {}
    with contextlib.suppress(GitError):  # no .gitmodules, or an empty one
        blob = f"--blob={part.commit}:.gitmodules"
        for line in part.clone.ask("config", "-z", blob, "--get-regexp", r"^submodule\..*\.path$").split(
            b"\0"
        ):
            key, _, path = line.partition(b"\n")
            names[path] = key.removeprefix(b"submodule.").removesuffix(b".path")
    for path in paths:
        name = names.get(path, b"")
        # It becomes a path in the repository, and is untrusted.
        yield path, b"" if b".." in name.split(b"/") or name.startswith(b"/") else name


def _possible_clones(clone: _Clone, path: bytes, name: bytes) -> Iterator[_Clone]:
    """Yield possible clones of a submodule: beside the objects or worktree, or in the working tree."""
    work_tree = clone.work_tree and clone.work_tree / os.fsdecode(path)
    if name:
        yield _Clone(clone.git_dir / "modules" / os.fsdecode(name), work_tree)
        with contextlib.suppress(OSError):
            common = clone.git_dir / (clone.git_dir / "commondir").read_text(encoding="utf-8").strip()
            yield _Clone(common / "modules" / os.fsdecode(name), work_tree)
    if work_tree and (work_tree / ".git").exists():
        with contextlib.suppress(GitError):
            yield _clone(work_tree)


def _in_folder(tree: _Tree, home: Path) -> Path:
    """Return the files in a folder of `home`, written if they are not there already. Raises OSError,
    GitError.
    """
    place = home / tree.name
    if _is_whole(place, tree):
        return place
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=home, ignore_cleanup_errors=True) as scratch:
        # Within it, because the scratch folder itself belongs to this user alone.
        made = Path(scratch, "files")
        _write(tree, made, Path(scratch, "index"))
        _make_durable(made)
        # Another process may have been first, and its folder may be in use.
        if not _is_whole(place, tree):
            try:
                _put(made, place)
            except OSError:
                if not _is_whole(place, tree):
                    raise
    return place


def _write(tree: _Tree, made: Path, index: Path) -> None:
    for number, part in enumerate(tree.parts):
        folder = made / os.fsdecode(part.prefix)
        folder.mkdir(exist_ok=True)
        part.clone.ask(
            *("read-tree", "--reset", "-u", "--no-recurse-submodules", part.commit),
            work_tree=folder,
            index=index.with_name(f"index-{number}"),
        )
    root = os.fsencode(made)
    for path, entry in _all(tree).items():
        link = os.path.join(root, path)  # noqa: PTH118 - bytes
        if entry.mode == _LINK and os.path.islink(link) and _leads_out(root, link):  # noqa: PTH114
            target = os.readlink(link)  # noqa: PTH115
            os.unlink(link)  # noqa: PTH108
            os.symlink(_NOWHERE + urllib.parse.quote(target, safe="").encode(), link)  # noqa: PTH211


def _make_durable(folder: Path) -> None:
    """Flush everything to the disk before the rename, or a power cut may leave empty files."""
    file = os.open(folder, os.O_RDONLY)
    try:
        # Use one call for this file system. One call per file takes long for ten thousand, and os.sync waits
        # for all disks, including network disks.
        ctypes.CDLL(None).syncfs(file)
    except AttributeError:  # only on Linux
        os.sync()
    finally:
        os.close(file)


def _put(made: Path, place: Path) -> None:
    """Rename the new folder. A damaged folder of that name is moved to the place of `made`."""
    if not os.path.lexists(place):
        made.rename(place)
    elif not _exchange(made, place):
        place.rename(made.with_name("damaged"))
        made.rename(place)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two paths atomically; False if the system cannot."""
    at_folder, exchange = -100, 2
    with contextlib.suppress(AttributeError):  # only on Linux
        rename = ctypes.CDLL(None).renameat2
        return bool(rename(at_folder, os.fsencode(one), at_folder, os.fsencode(other), exchange) == 0)
    return False


def _all(tree: _Tree) -> dict[bytes, _TreeEntry]:
    return {
        part.prefix + path: entry
        for part in tree.parts
        for path, entry in part.entries.items()
        if entry.mode != _SUBMODULE
    }


def _folders(tree: _Tree) -> set[bytes]:
    """Return every folder, including those of empty submodules."""
    found: set[bytes] = set()
    for part in tree.parts:
        for path, entry in part.entries.items():
            inside = part.prefix + path
            folder = inside if entry.mode == _SUBMODULE else inside.rpartition(b"/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition(b"/")[0]
    return found


def _is_whole(place: Path, tree: _Tree) -> bool:
    """Tell whether a folder holds exactly a commit's files, by hash. Compiled Python is removed."""
    root, expected, folders = os.fsencode(place), _all(tree), _folders(tree)
    converted = []
    try:
        if not stat.S_ISDIR(os.lstat(root).st_mode):
            return False
        for path, entry in _walk(root, root, folders):
            if (wanted := expected.pop(path, None)) is None or not _is_like(entry, wanted):
                return False
            if _hash(entry, root, wanted) != wanted.hash:
                converted.append(path)
    except OSError:
        return False
    return not expected and _are_converted(place, tree, converted)


def _walk(root: bytes, folder: bytes, known: set[bytes]) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    """Yield everything except `known` folders, with its path from the root."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = entry.path[len(root) + 1 :]
            if not entry.is_dir(follow_symlinks=False):
                yield path, entry
            elif path in known:
                yield from _walk(root, entry.path, known)
            elif entry.name == b"__pycache__":
                shutil.rmtree(entry.path)
            else:
                yield path, entry


def _is_like(entry: os.DirEntry[bytes], wanted: _TreeEntry) -> bool:
    """Tell whether an entry is of the expected kind. Others are not opened, since reading may never end."""
    mode = entry.stat(follow_symlinks=False).st_mode
    if wanted.mode == _LINK:
        return stat.S_ISLNK(mode)
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR) == (wanted.mode == _EXECUTABLE)


def _hash(entry: os.DirEntry[bytes], root: bytes, wanted: _TreeEntry) -> bytes:
    """Return a file's hash as git's blob hash. For a link, hash its target within the repository."""
    # Not for security: git names objects by it.
    digest = hashlib.sha1(usedforsecurity=False) if len(wanted.hash) == 40 else hashlib.sha256()
    if wanted.mode == _LINK:
        target = os.readlink(entry.path)  # noqa: PTH115
        if target.startswith(_NOWHERE):
            target = urllib.parse.unquote_to_bytes(target.removeprefix(_NOWHERE))
        elif _leads_out(root, entry.path):
            return b""
        digest.update(b"blob %d\0%b" % (len(target), target))
        return digest.hexdigest().encode()
    with open(entry.path, "rb", buffering=0) as file:  # noqa: PTH123
        digest.update(b"blob %d\0" % os.fstat(file.fileno()).st_size)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest().encode()


def _leads_out(root: bytes, link: bytes) -> bool:
    top, end = os.path.realpath(root), os.path.realpath(link)
    return end != top and not end.startswith(top + b"/")


def _are_converted(place: Path, tree: _Tree, paths: Sequence[bytes]) -> bool:
    """Tell whether git converts these files' blobs in a checkout: other line ends, or a filter."""
    left = set(paths)
    for part in tree.parts:
        own = [path for path in part.entries if part.prefix + path in left]
        for some in (own[start : start + _AT_ONCE] for start in range(0, len(own), _AT_ONCE)):
            if any(part.entries[path].mode == _LINK for path in some):
                return False
            names = map(os.fsdecode, some)
            try:
                hashes = part.clone.ask(
                    "hash-object", "--", *names, work_tree=place / os.fsdecode(part.prefix)
                ).split()
            except GitError:
                return False
            if hashes != [part.entries[path].hash for path in some]:
                return False
    return True


def why_missing(repository: Path, commit: str, work_tree: Path | None, message: str) -> str:
    """Return why a file may be missing at a commit, if the message says that one is; else nothing.

    A sentence names each submodule that the clone lacks, each link that leads out, and each file that only
    the working tree has. `work_tree` is the folder of the working tree in which to look for such files.
    """
    lines = "\n".join(line for line in message.splitlines() if _IS_MISSING.search(line))
    if not lines:
        return ""
    try:
        clone = _clone(repository)
        tree = _tree(clone, commit)
        found = [*_lacking(clone, tree), *_leading_out(tree, lines), *_uncommitted(tree, work_tree, lines)]
    except GitError:  # the error itself is clear
        return ""
    return " ".join(found)


def _lacking(clone: _Clone, tree: _Tree) -> list[str]:
    commit = tree.parts[0].commit[:12]
    reasons = []
    for each in tree.absent[:_MOST_REASONS]:
        whole = os.fsdecode(each.inside + each.path)
        path, inside = (shlex.quote(os.fsdecode(name)) for name in (each.path, each.inside or b"."))
        if clone.work_tree is None:
            reasons.append(
                f"Submodule {whole} of commit {commit} is not in {clone.git_dir}, a mirror, which has no "
                'submodules: measure from a clone that has them (asv\'s "repo").'
            )
            continue
        where = f" -C {inside}" if each.inside else ""
        remedy = f"git{where} submodule update --init {path}"
        if each.known:
            remedy = f"git -C {shlex.quote(whole)} fetch origin {each.commit}"
        reasons.append(f"Submodule {whole} of commit {commit} is not in this clone: {remedy}.")
    return reasons


def _leading_out(tree: _Tree, lines: str) -> list[str]:
    reasons = []
    for part in tree.parts:
        for path, entry in part.entries.items():
            name = os.fsdecode(part.prefix + path)
            if entry.mode != _LINK or Path(name).name not in lines:
                continue
            target = os.fsdecode(part.clone.ask("cat-file", "blob", entry.hash.decode()))
            if target.startswith("/") or os.path.normpath(Path(name).parent / target).startswith(".."):
                reasons.append(
                    f"{name} is a link to {target}, out of the repository: what it leads to is in no commit."
                )
    return reasons[:_MOST_REASONS]


def _uncommitted(tree: _Tree, work_tree: Path | None, lines: str) -> list[str]:
    """Return untracked files that the lines name by path or, near the suite, by a part of it."""
    top = work_tree and git.repository_of(work_tree)
    if work_tree is None or top is None:
        return []
    words = {word.rstrip(".") for word in re.findall(r"[^\s'\"<>:,;()]+", lines)}
    modules = {name.replace(".", "/") for name in re.findall(r"No module named '([\w.]+)'", lines)}
    paths = {
        os.path.normpath(word.partition(f"/{tree.name}/")[2]) for word in words if f"/{tree.name}/" in word
    }
    where = [str(work_tree), *(path for path in paths if not path.startswith(".."))]
    others = git.ask(top, "--literal-pathspecs", "ls-files", "--others", "-z", "--", *where).split(b"\0")[:-1]
    ends = {f"/{word}$" for word in words | paths}
    parts = (*ends, *(f"/{name}{end}" for name in modules for end in (".py$", "/")))
    return [
        f"{name} is in your working tree but not in commit {tree.parts[0].commit[:12]}: git add it."
        for name in map(os.fsdecode, others)
        if "__pycache__" not in name and any(part in f"/{name}$" for part in parts)
    ][:_MOST_REASONS]
