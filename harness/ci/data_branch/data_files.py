"""Prepares a results folder for a branch: which files may be stored, and how files on both sides
are merged.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import random
import re
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

from harness.ci.data_branch.data_git import (
    BRANCH,
    BranchClone,
    ProblemError,
    Target,
    TreeEntry,
    address_of,
    branch_of,
    identities,
)
from harness.errors import RefusedError, RemoteError, StoreError, UsageError
from harness.history.sources.asv_results import checked_document, suites_tracked
from harness.history.sources.our_records import card_records
from harness.judgement.noise import FILE as CALIBRATION
from harness.judgement.noise import SCHEMA_VERSION as CALIBRATION_VERSION
from harness.judgement.noise import Calibration
from harness.records.record_files import commit_and_suite, read_comparison, read_run, reading
from harness.system.decoding import decode
from harness.system.texts import harmless

MAX_FILE_BYTES = 50 * 2**20
"""GitHub warns about larger files, and refuses those of 100 MiB."""
_MIB = MAX_FILE_BYTES // 2**20

Document: TypeAlias = dict[str, Any]
_Recorded: TypeAlias = tuple[str, str, str]
"""Machine, first digits of the commit, and suite of a record."""


@dataclass(slots=True)
class _Changes:
    added: list[str] = field(default_factory=list)
    """Read again when they are written, because they may be many."""
    merged: dict[str, bytes] = field(default_factory=dict)
    derived: list[str] = field(default_factory=list)
    """asv's results that records contain as well."""
    unchanged: int = 0


@dataclass
class ResultsFolder:
    """The files of a results folder, to be stored on the branch."""

    folder: Path
    files: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Problems of files by path, as sentences without subject and full stop."""
    left_out: list[str] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Path in the folder, by path on the branch, if they differ."""
    sound: set[str] = field(default_factory=set)

    def changes(self, clone: BranchClone, tip: str | None) -> _Changes:
        """Return the files that the branch lacks. Raises RefusedError for a file that cannot be stored."""
        tree = clone.tree(tip)
        _check_results(tree, clone.target)
        changes, refused = _Changes(), dict(self.refused)
        named = (path.rpartition("/") for path in tree)
        recorded = self._recorded.union((machine, *commit_and_suite(name)) for machine, _, name in named)
        for path in self.files:
            try:
                self._consider(path, tree, recorded, clone, changes)
            except _UnfitError as error:
                refused[path] = str(error)
        if refused:
            raise _refusal(self.folder, refused)
        return changes

    def _consider(
        self,
        path: str,
        tree: Mapping[str, TreeEntry],
        recorded: Collection[_Recorded],
        clone: BranchClone,
        changes: _Changes,
    ) -> None:
        if path not in self.hashes:
            self.hashes[path] = clone.hash_of(_read(self.folder / path))
        stored = tree.get(path)
        if stored and stored.is_file and stored.hash == self.hashes[path]:
            changes.unchanged += 1
            return
        rule = _rule(path)
        if rule is None:
            raise _UnfitError(f"is no result; expected {_NAMES}")
        _check_place(path, tree)
        if rule == "result":
            if self._is_derived(path, recorded):
                changes.derived.append(path)
                return
            if stored:  # another file of that name: nothing on the branch is overwritten
                named = f"{path.removesuffix('.json')}-{self.hashes[path][:8]}.json"
                self.hashes[named], self.origins[named] = self.hashes[path], path
                path, stored = named, tree.get(named)
                if stored and stored.hash == self.hashes[path]:
                    changes.unchanged += 1
                    return
        if stored is None:
            self._check(path, rule)
            changes.added.append(path)
        elif isinstance(rule, _MergeRule):
            self._merge(path, rule, stored, clone, changes)
        else:
            raise _UnfitError("differs from the one on the branch, and a record is never changed")

    def _is_derived(self, path: str, recorded: Collection[_Recorded]) -> bool:
        """Return True if records contain everything in an asv result."""
        machine, _, name = path.rpartition("/")
        tracked = suites_tracked(_asv_document(path, _read(self.folder / path)), self._benchmarks)
        if not tracked:
            return False
        return all((machine, name[:8], suite) in recorded for suite in tracked)

    @cached_property
    def _recorded(self) -> set[_Recorded]:
        """Return the records here that have a result."""
        machines = {path.partition("/")[0] for path in self.files if "/" in path}
        records = {name: card_records(self.folder / name) for name in machines}
        return {
            (name, facts.commit[:8], facts.suite)
            for name, own in records.items()
            for facts in own.facts
            if own.cells(facts)
        }

    @cached_property
    def _benchmarks(self) -> Document:
        with contextlib.suppress(_UnfitError):  # reported when that file is processed
            if (name := "benchmarks.json") in self.files:
                return _asv_document(name, _read(self.folder / name))
        return {}

    def _check(self, path: str, rule: _MergeRule | _OnceWritten) -> None:
        if path in self.sound:
            return
        if rule == "record":
            _check_record(self.folder / path)
        elif isinstance(rule, _MergeRule):
            rule.parse(path, _read(self.folder / path))
        self.sound.add(path)

    def _merge(
        self, path: str, rule: _MergeRule, stored: TreeEntry, clone: BranchClone, changes: _Changes
    ) -> None:
        if stored.size_bytes > MAX_FILE_BYTES:
            raise _UnfitError(f"is beyond {_MIB} MiB on the branch")
        content = _read(self.folder / path)
        ours = rule.parse(path, content)
        try:
            theirs = rule.parse(path, clone.blob(stored.hash))
        except _UnfitError as error:
            raise _UnfitError(f"on the branch {error}: mend it there") from None
        try:
            merged = rule.merged(content, ours, theirs)
        except RecursionError:  # Python can read deeper nesting than it can write
            raise _UnfitError("is damaged (here or on the branch it nests too deeply)") from None
        if merged is None:
            changes.unchanged += 1
        else:
            changes.merged[path] = merged

    def content(self, path: str, clone: BranchClone) -> bytes:
        """Return the bytes of a valid file. Raises StoreError if it has changed since."""
        path = self.origins.get(path, path)
        try:
            content = _read(self.folder / path)
        except _UnfitError:
            content = b""
        if clone.hash_of(content) != self.hashes[path]:
            raise StoreError(f"{self.folder / path} changed meanwhile. Nothing was stored: try again.")
        return content


class _UnfitError(Exception):
    """A problem of a file: a sentence without its subject and full stop."""


def _refusal(folder: Path, refused: Mapping[str, str]) -> RefusedError:
    lines = [harmless(f"{path} {why}.") for path, why in sorted(refused.items())]
    if len(lines) == 1:
        return RefusedError(f"Nothing of {folder} was stored: {lines[0]} Move it away or mend it.")
    why = f"{len(lines)} entries cannot be. Move them away or mend them. The first: {lines[0]}"
    return RefusedError(f"Nothing of {folder} was stored: {why}", log="\n".join(lines))


_UNFINISHED = re.compile(r".*\.part|\..+-[0-9a-f]{16}", re.DOTALL)
"""Names of incomplete files: a record in progress, and a temporary file before its rename."""


def scan(folder: Path) -> ResultsFolder:
    """Return the files of a results folder, by names and kinds without opening them.

    Raises UsageError without such a folder, StoreError if it cannot be read.
    """
    found = ResultsFolder(folder)
    with reading(folder):
        if not folder.is_dir():
            raise UsageError(
                f"There is no folder {folder}: nothing was measured yet, or --from has to name another one."
            )
        for entry in sorted(os.scandir(folder), key=attrgetter("name")):
            if entry.name == ".git":  # if the folder is a checkout of the branch
                continue
            if entry.is_dir(follow_symlinks=False):
                for inner in sorted(os.scandir(entry), key=attrgetter("name")):
                    _note(found, f"{entry.name}/{inner.name}", inner)
            else:
                _note(found, entry.name, entry)
    return found


def _note(found: ResultsFolder, path: str, entry: os.DirEntry[str]) -> None:
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
    # The kind was checked, but the name may point to a link or a pipe by now.
    with reading(path), os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _UnfitError(f"has more than {_MIB} MiB")
    return content


_MODEST = re.compile(r"\..*|README.*|LICEN[CS]E.*", re.DOTALL)
"""Names of files that a branch without results may contain."""


def _check_results(tree: Mapping[str, TreeEntry], target: Target) -> None:
    """Raise RefusedError for a branch with other content: --branch may be a mistake."""
    strange = sorted(path for path in tree if "/" not in path and not _MODEST.fullmatch(path))
    if strange and not any(_rule(path) for path in tree):
        raise RefusedError(
            f"The branch {target.branch} of {target.shown} is no branch of results: it holds "
            f"{harmless(strange[0])}, and neither benchmarks.json nor a card's folder. Nothing was "
            "stored: name another one with --branch."
        )


def _check_place(path: str, tree: Mapping[str, TreeEntry]) -> None:
    stored, above = tree.get(path), tree.get(path.rpartition("/")[0])
    if stored and not stored.is_file:
        raise _UnfitError("is a folder or a link on the branch")
    if above and not above.is_folder:
        raise _UnfitError("lies in a folder which on the branch is a file or a link")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MergeRule:
    """The rule for merging a file that exists on both sides."""

    parse: Callable[[str, bytes], Document]
    merge: Callable[[Document, Document], Document]
    pretty: bool = False

    def merged(self, content: bytes, ours: Document, theirs: Document) -> bytes | None:
        """Return the merged file in asv's form; None if the branch has it already. `content` is ours."""
        document = self.merge(ours, theirs)
        merged = _dumped(document)
        if merged == _dumped(theirs):
            return None
        if merged == _dumped(ours):
            return content
        text = json.dumps(document, indent=4, sort_keys=True) if self.pretty else json.dumps(document)
        return text.encode()


_OnceWritten = Literal["record", "result"]
"""A record never changes. An asv result is stored only if no record has its content."""

_MACHINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_RESULT = re.compile(r"[0-9a-f]{8}-[ -~]+\.json")
_RECORD = re.compile(r"\d{8}T\d{6}Z-[A-Za-z0-9_.+-]+\.jsonl", re.ASCII)
_NAMES = (
    "benchmarks.json, <machine>/machine.json, <machine>/calibration.harness, "
    "<machine>/<commit>-<environment>.json or <machine>/<time>-<commit>-<suite>-<id>.jsonl"
)


def _rule(path: str) -> _MergeRule | _OnceWritten | None:
    """Return the rule for a path on the branch; None for a file that does not belong there."""
    machine, _, name = path.rpartition("/")
    if path == "benchmarks.json":
        return _BENCHMARKS
    if not _MACHINE.fullmatch(machine):
        return None
    if name == "machine.json":
        return _MACHINES
    if name == CALIBRATION:
        return _CALIBRATIONS
    if _RESULT.fullmatch(name):
        return "result"
    return "record" if _RECORD.fullmatch(name) else None


def _check_record(path: Path) -> None:
    """Refuse a record that the harness cannot read, because it would be stored forever."""
    try:
        try:
            read_run(path)
        except StoreError:
            read_comparison(path)
    except StoreError as error:
        raise _UnfitError(f"is no record: {error.message.rstrip('.')}") from None


def _asv_document(path: str, content: bytes) -> Document:
    try:
        return checked_document(path.rpartition("/")[2], content)
    except ValueError as error:
        raise _UnfitError(str(error)) from None


def _dumped(document: Document) -> str:
    return json.dumps(document, sort_keys=True)


def _parse_calibration(_: str, content: bytes) -> Document:
    try:
        found = decode(content, Calibration)
        document: Document = json.loads(content)
        _measured_at(document)
    except (ValueError, RecursionError) as error:
        raise _UnfitError(f"is no calibration ({error})") from None
    if found.schema_version > CALIBRATION_VERSION:
        raise _UnfitError(
            f"has schema version {found.schema_version}, and this harness reads up to {CALIBRATION_VERSION}"
        )
    return document


def _measured_at(calibration: Document) -> dt.datetime:
    at = dt.datetime.fromisoformat(calibration["measured_at"].replace("Z", "+00:00"))
    return at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)


_BENCHMARKS = _MergeRule(parse=_asv_document, merge=lambda ours, theirs: {**theirs, **ours}, pretty=True)
_MACHINES = _MergeRule(parse=_asv_document, merge=lambda ours, _: ours)
# Of two calibrations of the same age take ours, which comes first.
_CALIBRATIONS = _MergeRule(parse=_parse_calibration, merge=lambda *both: max(both, key=_measured_at))


ATTEMPTS = 12
_LONGEST_PAUSE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The result of storing a results folder. Files are named by their path in it, as on the branch."""

    remote: str
    """Address of the remote, without credentials."""
    branch: str
    commit: str | None = None
    """The branch's newest commit, with everything unless this was a dry run; None without a branch."""
    attempts: int = 0
    added: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    unchanged: int = 0
    left_out: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    """asv's results that records contain as well: 'harness rebuild' makes them again."""
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
    """Add the content of a results folder to a branch of a remote, and create the branch if necessary.

    `remote` is a name that the repository around `root` knows, an address or a path. Raises UsageError for an
    invalid folder, remote or branch, RefusedError for an invalid file (nothing is stored then), StoreError
    for an unreadable one, RemoteError if the remote refused.
    """
    found = scan(folder)
    target = Target(address=address_of(root, remote), branch=branch_of(branch, root))
    nothing = Stored(remote=target.shown, branch=branch, left_out=tuple(found.left_out), dry_run=dry_run)
    if not (found.files or found.refused):
        return nothing
    try:
        with tempfile.TemporaryDirectory(prefix="harness-store-", ignore_cleanup_errors=True) as scratch:
            clone = BranchClone(Path(scratch).resolve(), target, identities(root))
            return _Appending(found, clone, message.strip(), nothing).run(attempts, sleep, tell)
    except OSError as error:
        raise StoreError(
            f"Cannot prepare what is stored of {folder}: {error.strerror or error}. "
            "Choose another folder for temporary files with TMPDIR."
        ) from None


@dataclass
class _Appending:
    found: ResultsFolder
    clone: BranchClone
    message: str
    nothing: Stored
    """The result if nothing was stored."""
    pushed: Stored | None = None
    """The result of the last push, which may have succeeded without an answer."""

    def run(self, attempts: int, sleep: Callable[[float], None], tell: Callable[[str], None]) -> Stored:
        attempt = 0
        for attempt in range(1, attempts + 1):
            try:
                return self._attempt(attempt)
            except ProblemError as error:
                problem = error
            if problem.hopeless:
                break
            if attempt < attempts:
                # At random, so that colliding writers do not collide forever.
                pause_s = random.uniform(0.0, min(_LONGEST_PAUSE_S, 0.5 * 2.0**attempt))  # noqa: S311
                tell(f"Attempt {attempt}: {problem.message}. Again in {pause_s:.1f} s.")
                sleep(pause_s)
        if self.pushed:  # the last push may have succeeded, and only the answer was lost
            with contextlib.suppress(ProblemError):
                if self.clone.fetch() == self.pushed.commit:
                    return self.pushed
        raise self._failure(problem, attempt)

    def _attempt(self, attempt: int) -> Stored:
        tip = self.clone.fetch()
        if self.pushed and tip == self.pushed.commit:
            return self.pushed
        changes = self.found.changes(self.clone, tip)
        stored = replace(
            self.nothing,
            commit=tip,
            attempts=attempt,
            added=tuple(changes.added),
            merged=tuple(changes.merged),
            unchanged=changes.unchanged,
            derived=tuple(changes.derived),
        )
        if stored.dry_run or not (changes.added or changes.merged):
            return stored
        added = ((path, self.found.content(path, self.clone)) for path in changes.added)
        contents = chain(added, changes.merged.items())
        commit = self.clone.commit(tip, self.message or _message(stored), contents, attempt)
        self.pushed = replace(stored, commit=commit)
        self.clone.push(commit)
        return self.pushed

    def _failure(self, problem: ProblemError, attempt: int) -> RemoteError:
        target, files = self.clone.target, len(self.found.files)
        times = "1 attempt" if attempt == 1 else f"{attempt} attempts"
        return RemoteError(
            f"Nothing was stored on the branch {target.branch} of {target.shown} in {times}: "
            f"{problem.message}. Everything is still in {self.found.folder} ({files} "
            f"{'file' if files == 1 else 'files'}): mend the cause and run 'harness ci store' again.",
            log=problem.log,
        )


def _message(stored: Stored) -> str:
    machines = sorted({path.partition("/")[0] for path in (*stored.added, *stored.merged) if "/" in path})
    named = ", ".join(machines[:3]) + (f" and {len(machines) - 3} more" if len(machines) > 3 else "")
    return f"Results of {named or 'no card'}: {len(stored.added)} added, {len(stored.merged)} merged"
