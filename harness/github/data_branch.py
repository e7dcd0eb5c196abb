"""Results on a branch of their own: what is appended to it, and how several writers do so at once.

The branch has the layout of asv's results folder and a history of its own. Nothing is ever checked out: files
are compared by their hashes in git's object store and written there by `git fast-import`, so neither hooks,
filters, line endings nor symbolic links of either side have a say, and no working tree or index is touched.

Two writers that start from the same commit cannot both push: git refuses the second one, which fetches what
the first has written, merges into that, and tries again. A push is never forced.
"""

from __future__ import annotations

__all__ = ["ATTEMPTS", "BRANCH", "MAX_FILE_BYTES", "Stored", "store_results"]

import base64
import datetime as dt
import hashlib
import json
import os
import random
import re
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from harness.calibration import FILE as CALIBRATION
from harness.calibration import SCHEMA_VERSION as CALIBRATION_VERSION
from harness.calibration import Calibration
from harness.errors import GitError, RefusedError, RemoteError, StoreError, UsageError
from harness.store import read_comparison, read_run
from harness.texts import harmless

BRANCH = "perf-data"
ATTEMPTS = 12
"""With pauses, about a minute."""
MAX_FILE_BYTES = 50 * 2**20
"""GitHub warns of larger files, and refuses those of 100 MiB."""
_LONGEST_PAUSE_S = 15.0
_PATIENCE_S = 900.0
"""With one git command."""

Document: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a results folder. Files are named by their path in it, which is that on the branch."""

    remote: str
    """Without credentials."""
    branch: str
    commit: str | None
    """The branch's newest, which has everything unless this was a dry run; None where there is no branch."""
    attempts: int
    added: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    unchanged: int = 0
    left_out: tuple[str, ...] = ()
    """Files that are not finished."""
    dry_run: bool = False


def store_results(
    folder: Path,
    root: Path,
    *,
    remote: str = "origin",
    branch: str = BRANCH,
    message: str = "",
    dry_run: bool = False,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] = lambda _: None,
) -> Stored:
    """Append what lies in a results folder to a branch of a remote, which is made where there is none.

    `remote` is a name that the repository around `root` knows, an address or a path. Raises UsageError for a
    folder, remote or branch that is none, RefusedError where a file is not what it should be (nothing at all
    is stored then), StoreError where one cannot be read, RemoteError where the remote did not take it.
    """
    found = _scan(folder)
    target = _Target(address=_address(root, remote), branch=_branch(branch, root))
    if not (found.files or found.refused):
        return Stored(
            remote=target.shown,
            branch=branch,
            commit=None,
            attempts=0,
            left_out=tuple(found.left_out),
            dry_run=dry_run,
        )
    try:
        with tempfile.TemporaryDirectory(prefix="harness-store-", ignore_cleanup_errors=True) as scratch:
            clone = _Clone(Path(scratch).resolve(), target, _identities(root))
            appending = _Appending(found, clone, message.strip(), dry_run=dry_run)
            return appending.run(attempts, sleep, tell)
    except OSError as error:
        raise StoreError(
            f"Cannot prepare what is stored of {folder}: {error.strerror or error}. "
            "Choose another folder for temporary files with TMPDIR."
        ) from None


class _ProblemError(Exception):
    """What a remote, or git, said instead of doing what it was asked for."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.message, self.log = message, log


class _AgainError(_ProblemError):
    """One that may be gone the next time."""


class _Appending:
    """One writer's attempts."""

    def __init__(self, found: _Found, clone: _Clone, message: str, *, dry_run: bool) -> None:
        self.found, self.clone, self.message, self.dry_run = found, clone, message, dry_run
        self.pushed: Stored | None = None
        """What has been sent, and may have arrived without our being told."""

    def run(self, attempts: int, sleep: Callable[[float], None], tell: Callable[[str], None]) -> Stored:
        problem: _ProblemError = _ProblemError("no attempt was allowed")
        attempt = 0
        for attempt in range(1, attempts + 1):
            try:
                return self._attempt(attempt)
            except _AgainError as error:
                problem = error
            except _ProblemError as error:
                problem = error
                break
            if attempt < attempts:
                # At random, so that writers that collided once do not do so for ever.
                pause_s = random.uniform(0.0, min(_LONGEST_PAUSE_S, 0.5 * 2.0**attempt))  # noqa: S311
                tell(f"Attempt {attempt}: {problem.message}. Again in {pause_s:.1f} s.")
                sleep(pause_s)
        if self.pushed and self._arrived():
            return self.pushed
        raise self._failure(problem, attempt)

    def _arrived(self) -> bool:
        """Whether the last push did its work, and only the answer was lost."""
        try:
            return self.pushed is not None and self.clone.fetch() == self.pushed.commit
        except _ProblemError:
            return False

    def _attempt(self, attempt: int) -> Stored:
        tip = self.clone.fetch()
        if self.pushed and tip == self.pushed.commit:
            return self.pushed
        changes = self.found.changes(self.clone, tip)
        stored = Stored(
            remote=self.clone.target.shown,
            branch=self.clone.target.branch,
            commit=tip,
            attempts=attempt,
            added=tuple(changes.added),
            merged=tuple(changes.merged),
            unchanged=changes.unchanged,
            left_out=tuple(self.found.left_out),
            dry_run=self.dry_run,
        )
        if self.dry_run or not (changes.added or changes.merged):
            return stored
        contents = changes.contents(self.found, self.clone)
        commit = self.clone.commit(tip, self.message or _message(stored), contents, attempt)
        self.pushed = replace(stored, commit=commit)
        self.clone.push(commit)
        return self.pushed

    def _failure(self, problem: _ProblemError, attempt: int) -> RemoteError:
        target, found = self.clone.target, self.found
        times = "1 attempt" if attempt == 1 else f"{attempt} attempts"
        return RemoteError(
            f"Nothing was stored on the branch {target.branch} of {target.shown} in {times}: "
            f"{problem.message}. Everything is still in {found.folder} ({_count(len(found.files))}): "
            "mend the cause and run 'harness ci store' again.",
            log=problem.log,
        )


def _message(stored: Stored) -> str:
    machines = sorted({path.partition("/")[0] for path in (*stored.added, *stored.merged) if "/" in path})
    named = ", ".join(machines[:3]) + (f" and {len(machines) - 3} more" if len(machines) > 3 else "")
    return f"Results of {named or 'no card'}: {len(stored.added)} added, {len(stored.merged)} merged"


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


# The folder


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One of a commit's tree."""

    mode: str
    hash: str
    size_bytes: int

    @property
    def is_file(self) -> bool:
        return self.mode in ("100644", "100755")

    @property
    def is_folder(self) -> bool:
        return self.mode == "040000"


@dataclass(slots=True)
class _Changes:
    """To one commit of the branch."""

    added: list[str] = field(default_factory=list)
    """Read again when they are written: they may be many."""
    merged: dict[str, bytes] = field(default_factory=dict)
    unchanged: int = 0

    def contents(self, found: _Found, clone: _Clone) -> Iterator[tuple[str, bytes]]:
        for path in self.added:
            yield path, found.content(path, clone)
        yield from self.merged.items()


@dataclass(slots=True)
class _Found:
    """What lies in a results folder."""

    folder: Path
    files: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Path to what is wrong with it."""
    left_out: list[str] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    sound: set[str] = field(default_factory=set)

    def changes(self, clone: _Clone, tip: str | None) -> _Changes:
        """What the branch does not have yet. Raises RefusedError for anything that cannot be stored."""
        tree = clone.tree(tip)
        changes, refused = _Changes(), dict(self.refused)
        for path in self.files:
            try:
                self._consider(path, tree, clone, changes)
            except _UnfitError as error:
                refused[path] = str(error)
        if refused:
            raise _refusal(self.folder, refused)
        return changes

    def _consider(self, path: str, tree: Mapping[str, _Entry], clone: _Clone, changes: _Changes) -> None:
        if path not in self.hashes:
            self.hashes[path] = clone.hash_of(_read(self.folder / path))
        there = tree.get(path)
        if there and there.is_file and there.hash == self.hashes[path]:
            changes.unchanged += 1
            return
        rule = _rule(path)
        _check_place(path, tree)
        if there is None:
            self._check(path, rule)
            changes.added.append(path)
        elif isinstance(rule, _Record):
            raise _UnfitError("differs from the one on the branch, and a record is never changed")
        else:
            self._merge(path, rule, there, clone, changes)

    def _check(self, path: str, rule: _Rule | _Record) -> None:
        if path in self.sound:
            return
        if isinstance(rule, _Record):
            _check_record(self.folder / path)
        else:
            rule.parse(path, _read(self.folder / path))
        self.sound.add(path)

    def _merge(self, path: str, rule: _Rule, there: _Entry, clone: _Clone, changes: _Changes) -> None:
        if there.size_bytes > MAX_FILE_BYTES:
            raise _UnfitError(f"is beyond {_MIB} MiB on the branch")
        content = _read(self.folder / path)
        ours = rule.parse(path, content)
        try:
            theirs = rule.parse(path, clone.blob(there.hash))
        except _UnfitError as error:
            raise _UnfitError(f"on the branch {error}: mend it there") from None
        try:
            merged = rule.merged(content, ours, theirs)
        except RecursionError:  # what Python reads nests more deeply than what it writes
            raise _UnfitError("is damaged (it nests too deeply)") from None
        if merged is None:
            changes.unchanged += 1
        else:
            changes.merged[path] = merged

    def content(self, path: str, clone: _Clone) -> bytes:
        """Of a file that was found good. Raises StoreError where it has changed since."""
        try:
            content = _read(self.folder / path)
        except _UnfitError:
            content = b""
        if clone.hash_of(content) != self.hashes[path]:
            raise StoreError(f"{self.folder / path} changed meanwhile. Nothing was stored: try again.")
        return content


class _UnfitError(Exception):
    """What is wrong with a file: a sentence without its subject and full stop."""


def _refusal(folder: Path, refused: Mapping[str, str]) -> RefusedError:
    lines = [harmless(f"{path} {why}.") for path, why in sorted(refused.items())]
    if len(lines) == 1:
        return RefusedError(f"Nothing of {folder} was stored: {lines[0]} Move it away or mend it.")
    return RefusedError(
        f"Nothing of {folder} was stored: {len(lines)} entries cannot be. Move them away or mend them. "
        f"The first: {lines[0]}",
        log="\n".join(lines),
    )


_UNFINISHED = re.compile(r".*\.part|\..+-[0-9a-f]{16}", re.DOTALL)
"""Of a record, and of a file that was to be written at once."""
_MIB = MAX_FILE_BYTES // 2**20


def _scan(folder: Path) -> _Found:
    """Names and kinds; nothing is opened. Raises UsageError where there is no such folder."""
    found = _Found(folder)
    try:
        for entry in _entries(folder):
            if entry.name == ".git":  # where the folder is a checkout of the branch
                continue
            if entry.is_dir(follow_symlinks=False):
                for inner in _entries(Path(entry.path)):
                    _note(found, f"{entry.name}/{inner.name}", inner)
            else:
                _note(found, entry.name, entry)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"There is no folder {folder}: nothing was measured yet, or --from has to name another one."
        ) from None
    except OSError as error:
        raise StoreError(f"Cannot read {folder}: {error.strerror or error}.") from None
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda each: each.name)


def _note(found: _Found, path: str, entry: os.DirEntry[str]) -> None:
    seen = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(seen.st_mode):
        found.refused[path] = "is a symbolic link, and those are not followed"
    elif stat.S_ISDIR(seen.st_mode):
        found.refused[path] = "is a folder, and results lie one folder deep"
    elif not stat.S_ISREG(seen.st_mode):
        found.refused[path] = "is no regular file"
    elif _UNFINISHED.fullmatch(entry.name):
        found.left_out.append(harmless(path))
    elif seen.st_size > MAX_FILE_BYTES:
        found.refused[path] = f"has {seen.st_size} bytes, more than {_MIB} MiB"
    else:
        found.files.append(path)


def _read(path: Path) -> bytes:
    try:
        # The kind was checked, but a name can come to mean a link or a pipe since.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise _UnfitError(f"has more than {_MIB} MiB")
    return content


def _check_place(path: str, tree: Mapping[str, _Entry]) -> None:
    there, above = tree.get(path), tree.get(path.rpartition("/")[0])
    if there and not there.is_file:
        raise _UnfitError("is a folder or a link on the branch")
    if above and not above.is_folder:
        raise _UnfitError("lies in a folder which on the branch is a file or a link")


# What files may become


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How a file that both sides have is merged."""

    parse: Callable[[str, bytes], Document]
    """Of path and content; raises _UnfitError."""
    merge: Callable[[Document, Document], Document]
    """Of ours and theirs."""
    pretty: bool = False

    def merged(self, content: bytes, ours: Document, theirs: Document) -> bytes | None:
        """What the branch is to have, as asv writes it; None where that is what it has. `content` is ours."""
        document = self.merge(ours, theirs)
        told = _dumped(document)
        if told == _dumped(theirs):
            return None
        if told == _dumped(ours):
            return content
        text = json.dumps(document, indent=4, sort_keys=True) if self.pretty else json.dumps(document)
        return text.encode()


class _Record:
    """The rule of a file that is written once."""


_MACHINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_RESULT = re.compile(r"[0-9a-f]{8}-[ -~]+\.json")
_RECORD = re.compile(r"\d{8}T\d{6}Z-[A-Za-z0-9_.+-]+\.jsonl", re.ASCII)
_NAMES = (
    "benchmarks.json, <machine>/machine.json, <machine>/calibration.harness, "
    "<machine>/<commit>-<environment>.json or <machine>/<time>-<commit>-<suite>-<id>.jsonl"
)


def _rule(path: str) -> _Rule | _Record:
    machine, _, name = path.rpartition("/")
    if path == "benchmarks.json":
        return _BENCHMARKS
    if _MACHINE.fullmatch(machine):
        if name == "machine.json":
            return _MACHINES
        if name == CALIBRATION:
            return _CALIBRATIONS
        if _RESULT.fullmatch(name):
            return _RESULTS
        if _RECORD.fullmatch(name):
            return _Record()
    raise _UnfitError(f"is no result; expected {_NAMES}")


def _is_result(path: str) -> bool:
    try:
        _rule(path)
    except _UnfitError:
        return False
    return True


def _check_record(path: Path) -> None:
    """A record that the harness cannot read back would be kept for ever."""
    try:
        try:
            read_run(path)
        except StoreError:
            read_comparison(path)
    except StoreError as error:
        raise _UnfitError(f"is no record: {error.message.rstrip('.')}") from None


def _json_of(content: bytes, version: int | None) -> Document:
    """With NaN and infinities, which asv writes."""
    try:
        document = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise _UnfitError(f"is damaged ({error})") from None
    if not isinstance(document, dict):
        raise _UnfitError(f"is damaged (it holds {type(document).__name__}, not an object)")
    if version is not None and document.get("version") != version:
        found = document.get("version")
        raise _UnfitError(f"has the format {found!r}, not {version}: 'asv update' may bring it up to date")
    return document


def _dumped(document: Document) -> str:
    return json.dumps(document, sort_keys=True)


def _parse_benchmarks(_: str, content: bytes) -> Document:
    document = _json_of(content, 2)
    for name, benchmark in document.items():
        if name != "version" and not isinstance(benchmark, dict):
            raise _UnfitError(f"is damaged (benchmark {name!r} is no object)")
    return document


def _parse_machine(_: str, content: bytes) -> Document:
    document = _json_of(content, 1)
    if not isinstance(document.get("machine"), str):
        raise _UnfitError("is damaged (it names no machine)")
    return document


def _parse_calibration(_: str, content: bytes) -> Document:
    try:
        found = msgspec.json.decode(content, type=Calibration)
        dt.datetime.fromisoformat(found.measured_at.replace("Z", "+00:00"))
    except (ValueError, RecursionError) as error:
        raise _UnfitError(f"is no calibration ({error})") from None
    if found.schema_version > CALIBRATION_VERSION:
        raise _UnfitError(
            f"has schema version {found.schema_version}, and this harness reads up to {CALIBRATION_VERSION}"
        )
    return _json_of(content, None)


def _newer_calibration(ours: Document, theirs: Document) -> Document:
    return ours if _instant(ours) >= _instant(theirs) else theirs


def _instant(calibration: Document) -> dt.datetime:
    at = dt.datetime.fromisoformat(calibration["measured_at"].replace("Z", "+00:00"))
    return at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)


def _parse_result(path: str, content: bytes) -> Document:
    document = _json_of(content, 2)
    commit, columns, rows = (document.get(key) for key in ("commit_hash", "result_columns", "results"))
    if not isinstance(commit, str) or commit[:8] != path.rpartition("/")[2][:8]:
        raise _UnfitError(f"is of commit {str(commit)[:40]!r}, which is not that of its name")
    if not isinstance(columns, list) or not all(isinstance(each, str) for each in columns):
        raise _UnfitError("is damaged (its result_columns are no list of names)")
    if not isinstance(rows, dict) or not isinstance(document.get("durations", {}), dict):
        raise _UnfitError("is damaged (its results or durations are no object)")
    for name, row in rows.items():
        if not isinstance(row, list) or len(row) > len(columns):
            raise _UnfitError(f"is damaged (the row of {name!r} does not have its columns)")
    return document


def _merge_results(ours: Document, theirs: Document) -> Document:
    """Every benchmark of either; of one that both have, the row that was measured later.

    What asv keeps once a file (machine, requirements) is that of the later side, as after a run of asv's own.
    """
    if ours["commit_hash"] != theirs["commit_hash"]:
        raise _UnfitError(
            f"is of commit {ours['commit_hash']} and on the branch of {theirs['commit_hash'][:40]}, which "
            "begins alike: asv cannot keep both"
        )
    for key in ("env_name", "result_columns"):
        if ours.get(key) != theirs.get(key):
            raise _UnfitError(f"has another {key} than on the branch")
    older, newer = (theirs, ours) if _age(ours) >= _age(theirs) else (ours, theirs)
    rows = {**theirs["results"], **ours["results"]}
    for name in theirs["results"].keys() & ours["results"].keys():
        candidates = (ours["results"][name], theirs["results"][name])
        rows[name] = max(candidates, key=lambda row: _started(row, ours["result_columns"]))  # a tie is ours
    durations = {**older.get("durations", {}), **newer.get("durations", {})}
    return {**older, **newer, "results": rows, "durations": durations}


def _age(document: Document) -> tuple[float, float]:
    columns = document["result_columns"]
    started = [_started(row, columns) for row in document["results"].values()]
    return _number(document.get("date")), max(started, default=0.0)


def _started(row: list[Any], columns: list[str]) -> float:
    """When a row was measured, in milliseconds since 1970; 0 where it does not say."""
    return _number(dict(zip(columns, row, strict=False)).get("started_at"))


def _number(value: object) -> float:
    """Above 0, else 0. An integer of many digits is none, and neither is a NaN."""
    return float(value) if isinstance(value, int | float) and 0 < value < 2**63 else 0.0


_BENCHMARKS = _Rule(parse=_parse_benchmarks, merge=lambda ours, theirs: {**theirs, **ours}, pretty=True)
_MACHINES = _Rule(parse=_parse_machine, merge=lambda ours, _: ours)
_CALIBRATIONS = _Rule(parse=_parse_calibration, merge=_newer_calibration)
_RESULTS = _Rule(parse=_parse_result, merge=_merge_results)


# Git


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    address: str
    branch: str

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def shown(self) -> str:
        return harmless(_USER_IN_ADDRESS.sub(r"\1", self.address))


_USER_IN_ADDRESS = re.compile(r"(\w://)[^/@\s]+@")
_MODEST = re.compile(r"\..*|README.*|LICEN[CS]E.*", re.DOTALL)
"""What may lie on a branch that has no results yet."""
_TIP = "refs/harness/tip"
_ALONE = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "i18n.commitEncoding=UTF-8"),
    *("gc.auto=0", "maintenance.auto=false", "fetch.writeCommitGraph=false", "submodule.recurse=false"),
    *("push.gpgSign=false", "push.followTags=false", "push.pushOption=", "protocol.version=2"),
)
"""In place of what a user may have set for repositories of their own."""
_OF_THE_WAY_THERE = re.compile(
    r"GIT_(SSH\w*|ASKPASS|TERMINAL_PROMPT|SSL_\w+|HTTP_\w+|PROXY_\w+|ALLOW_PROTOCOL|EXEC_PATH"
    r"|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|(KEY|VALUE)_\d+)|(AUTHOR|COMMITTER)_(NAME|EMAIL)"
    r"|CEILING_DIRECTORIES)"
)
"""Variables of git's that stay: others name repositories, trace what is secret, or change formats."""
_HOPELESS = re.compile(
    r"protected branch|GH006|GH013|authentication failed|could not read (username|password)"
    r"|permission denied|permission to \S+ denied|returned error: (30\d|40[134])|not found"
    r"|does not appear to be a git repository|dubious ownership|host key verification failed"
    r"|is currently checked out|unable to find remote helper|remote helper for|no space left"
    r"|insufficient permission|unable to create temporary",
    re.IGNORECASE,
)
"""Words of git's, or of a server's, after which another attempt would end in the same way."""
_ADVICE = (
    (
        re.compile(r"protected branch|GH006|GH013", re.IGNORECASE),
        "the branch is protected: exempt who stores results, or name another one with --branch",
    ),
    (
        re.compile(
            r"authentication failed|could not read username|permission to|error: 40[13]", re.IGNORECASE
        ),
        "who stores must be allowed to push: in a workflow by 'contents: write', and with GITHUB_TOKEN set",
    ),
)


class _Clone:
    """A bare repository in a folder of its own, with the newest commit of the branch."""

    def __init__(self, scratch: Path, target: _Target, identities: tuple[str, str]) -> None:
        self.target, self.identities = target, identities
        self.scratch, self.repository = scratch, scratch / "data.git"
        self.algorithm = "sha1"
        token = os.environ.get("GITHUB_TOKEN", "").strip()
        self.secrets = (token, _basic(token)) if token else ()
        self.environment = _environment(_authorization(target.address, token) if token else ())
        # Whatever lies above the temporary folder is none of our business.
        self.environment["GIT_CEILING_DIRECTORIES"] = str(scratch.parent)

    def fetch(self) -> str | None:
        """The branch's newest commit; None where there is no branch. Raises _ProblemError."""
        listed = self._run("ls-remote", "--quiet", "--", self.target.address, "HEAD", self.target.ref)
        lines = [line.partition("\t") for line in listed.decode(errors="replace").splitlines()]
        refs = {name: commit for commit, _, name in lines}
        if not self.repository.exists():
            self.algorithm = "sha256" if any(len(commit) == 64 for commit in refs.values()) else "sha1"
            kind = f"--object-format={self.algorithm}"
            self._run("init", "--bare", "--quiet", "--template=", kind, str(self.repository))
        if self.target.ref not in refs:
            return None
        spec = f"+{self.target.ref}:{_TIP}"
        options = ("--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        self._inside("fetch", *options, "--", self.target.address, spec)
        return self._inside("rev-parse", "--verify", "--quiet", _TIP).decode().strip()

    def tree(self, commit: str | None) -> dict[str, _Entry]:
        """Everything of a commit by path, folders too. Raises RefusedError where it is no results branch."""
        if commit is None:
            return {}
        listed = self._inside("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit)
        tree = {}
        for line in listed.split(b"\0"):
            if line:
                told, _, path = line.partition(b"\t")
                mode, _, name, size = told.decode().split()
                tree[os.fsdecode(path)] = _Entry(
                    mode=mode, hash=name, size_bytes=int(size) if size.isdigit() else 0
                )
        self._check_results(tree)
        return tree

    def _check_results(self, tree: Mapping[str, _Entry]) -> None:
        """Nobody's main branch is to be strewn with results by a slip of --branch."""
        strange = sorted(path for path in tree if "/" not in path and not _MODEST.fullmatch(path))
        if strange and not any(_is_result(path) for path in tree):
            raise RefusedError(
                f"The branch {self.target.branch} of {self.target.shown} is no branch of results: it holds "
                f"{harmless(strange[0])}, and neither benchmarks.json nor a card's folder. Nothing was "
                "stored: name another one with --branch."
            )

    def blob(self, name: str) -> bytes:
        return self._inside("cat-file", "blob", name)

    def hash_of(self, content: bytes) -> str:
        """What git calls a file of this content."""
        header = b"blob %d\0" % len(content)
        return hashlib.new(self.algorithm, header + content, usedforsecurity=False).hexdigest()

    def commit(
        self, parent: str | None, message: str, contents: Iterator[tuple[str, bytes]], attempt: int
    ) -> str:
        """A commit of these files on top of another, or of none."""
        ref = f"refs/harness/attempt-{attempt}"
        with tempfile.TemporaryFile(dir=self.scratch) as errors:
            command = self._command("--git-dir", str(self.repository), "fast-import", "--quiet", "--done")
            process = subprocess.Popen(
                command,
                cwd=self.scratch,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            assert process.stdin is not None
            try:
                with process.stdin as stream:
                    self._describe(stream, ref, parent, message)
                    for path, content in contents:
                        stream.write(b"M 100644 inline %b\n" % path.encode())
                        _write_data(stream, content)
                    stream.write(b"done\n")
            except BrokenPipeError:
                pass  # it has said why on its way out
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
            if process.returncode:
                errors.seek(0)
                raise self._problem(errors.read().decode(errors="replace"))
        return self._inside("rev-parse", "--verify", ref).decode().strip()

    def _describe(self, stream: IO[bytes], ref: str, parent: str | None, message: str) -> None:
        author, committer = self.identities
        stream.write(f"commit {ref}\nauthor {author}\ncommitter {committer}\n".encode(errors="replace"))
        _write_data(stream, message.replace("\0", "").encode(errors="replace") + b"\n")
        if parent:
            stream.write(f"from {parent}\n".encode())

    def push(self, commit: str) -> None:
        """Raises _AgainError where somebody else was first, or the remote could not just then."""
        options = ("--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--no-recurse-submodules")
        spec = f"{commit}:{self.target.ref}"
        self._inside("push", "--quiet", *options, "--", self.target.address, spec)

    def _inside(self, *arguments: str) -> bytes:
        return self._run("--git-dir", str(self.repository), *arguments)

    def _run(self, *arguments: str) -> bytes:
        try:
            done = _run_git(
                self._command(*arguments), cwd=self.scratch, env=self.environment, timeout_s=_PATIENCE_S
            )
        except subprocess.TimeoutExpired:
            raise _AgainError(f"git did not come back within {_PATIENCE_S:g} s") from None
        if done.returncode:
            raise self._problem((done.stderr + b"\n" + done.stdout).decode(errors="replace"))
        return done.stdout

    def _command(self, *arguments: str) -> list[str]:
        return ["git", *(word for setting in _ALONE for word in ("-c", setting)), *arguments]

    def _problem(self, said: str) -> _ProblemError:
        for secret in self.secrets:
            said = said.replace(secret, "***")
        said = harmless(_USER_IN_ADDRESS.sub(r"\1", said), keep="\n\t")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("hint:", "To ", "Done", "error: failed to"))]
        rejected = [line.rpartition("\t")[2] for line in lines if line.startswith("!\t")]
        blamed = [line for line in lines if line.startswith(("fatal:", "error:"))]
        chosen = (rejected or blamed[:1] or lines[-1:] or ["git gave no reason"])[0]
        kind = _ProblemError if _HOPELESS.search(said) else _AgainError
        advice = next((f" ({told})" for words, told in _ADVICE if words.search(said)), "")
        return kind(chosen[:300].rstrip(".") + advice, "\n".join(lines[-40:]))


def _write_data(stream: IO[bytes], data: bytes) -> None:
    stream.write(b"data %d\n" % len(data))
    stream.write(data)
    stream.write(b"\n")


def _environment(settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """For a git command that is about no repository but the one that it names. Secret settings go this way
    because arguments are seen by everybody on a machine.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or _OF_THE_WAY_THERE.fullmatch(name)
    }
    environment.setdefault("GIT_TERMINAL_PROMPT", "0")
    # Whoever has traces switched on in git's settings would find the secret in them.
    environment |= {"LC_ALL": "C", "GIT_TRACE2": "0", "GIT_TRACE2_EVENT": "0", "GIT_TRACE2_PERF": "0"}
    given = environment.get("GIT_CONFIG_COUNT", "")
    first = int(given) if given.isdecimal() else 0
    for number, (key, value) in enumerate(settings, first):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    if settings:
        environment["GIT_CONFIG_COUNT"] = str(first + len(settings))
    return environment


def _https_host(address: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not parts.hostname or parts.password:
        return None
    return parts.hostname, 443 if port is None else port


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


def _authorization(address: str, token: str) -> tuple[tuple[str, str], ...]:
    """Settings with which git shows a token to $GITHUB_SERVER_URL, and to nobody else: none where the address
    is of another host, or either is not encrypted.
    """
    home = _https_host(os.environ.get("GITHUB_SERVER_URL", ""))
    if home is None or home != _https_host(address):
        return ()
    host, port = home
    key = f"http.https://{host}{'' if port == 443 else f':{port}'}/.extraheader"
    # Empty, it takes back others of the same key: a server refuses two of them.
    return (key, ""), (key, f"AUTHORIZATION: basic {_basic(token)}"), ("http.followRedirects", "false")


def _address(root: Path, remote: str) -> str:
    """What a remote's name stands for. Raises GitError where it is neither a name, an address nor a path."""
    is_sane = bool(remote) and not remote.startswith("-")
    named = _asked(root, "remote", "get-url", "--push", "--", remote) if is_sane else None
    if named and not named.returncode:
        top = _asked(root, "rev-parse", "--show-toplevel").stdout.decode(errors="surrogateescape").strip()
        address = named.stdout.decode(errors="surrogateescape").splitlines()[0]
        return _absolute(address, Path(top) if top else root)
    if is_sane and ("/" in remote or ":" in remote or Path(remote).is_dir()):
        return _absolute(remote, Path.cwd())
    why = named.stderr.decode(errors="replace").strip().partition("\n")[0] if named else ""
    raise GitError(
        f"No remote named {remote!r} in {root}{f' ({why})' if why else ''}; expected one that 'git remote' "
        "lists, an address or a path."
    )


def _asked(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The answer of the repository around a folder, whatever repository the environment names."""
    return _run_git(["git", *arguments], cwd=root, env=_environment())


def _absolute(address: str, folder: Path) -> str:
    is_elsewhere = "://" in address or ":" in address.partition("/")[0]
    return address if is_elsewhere else os.path.normpath(folder / address)


def _branch(name: str, root: Path) -> str:
    if name.startswith("-") or _asked(root, "check-ref-format", f"refs/heads/{name}").returncode:
        raise UsageError(f"{name!r} is no name for a branch.")
    return name


_NOBODY = "gpu-harness <gpu-harness@noreply.invalid>"


def _identities(root: Path) -> tuple[str, str]:
    """Author and committer as git writes them: whoever is set up in a folder, else nobody in particular."""
    told = []
    for role in ("AUTHOR", "COMMITTER"):
        # Without this setting git would make one up out of user and host.
        done = _asked(root, "-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT")
        known = done.stdout.decode(errors="replace").strip()
        told.append(known if not done.returncode and known else f"{_NOBODY} {int(time.time())} +0000")
    return told[0], told[1]


def _run_git(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError:
        raise GitError("The git command was not found on PATH: install git.") from None
