"""Results on a branch of their own: how several writers append to it at once.

The branch has the layout of asv's results folder and a history of its own. Two writers that start from the
same commit cannot both push: git refuses the second one, which fetches what the first has written, merges
into that, and tries again. A push is never forced.
"""

from __future__ import annotations

__all__ = ["ATTEMPTS", "BRANCH", "Stored", "store_results"]

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import RemoteError, StoreError
from harness.github.data_files import Found, scan
from harness.github.data_git import (
    AgainError,
    Clone,
    ProblemError,
    Target,
    address_of,
    branch_of,
    identities,
)

BRANCH = "perf-data"
ATTEMPTS = 12
"""With pauses, about a minute."""
_LONGEST_PAUSE_S = 15.0


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
    derived: tuple[str, ...] = ()
    """asv's results that the records hold as well: 'harness rebuild' makes them anew."""
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
    found = scan(folder)
    target = Target(address=address_of(root, remote), branch=branch_of(branch, root))
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
            clone = Clone(Path(scratch).resolve(), target, identities(root))
            appending = _Appending(found, clone, message.strip(), dry_run=dry_run)
            return appending.run(attempts, sleep, tell)
    except OSError as error:
        raise StoreError(
            f"Cannot prepare what is stored of {folder}: {error.strerror or error}. "
            "Choose another folder for temporary files with TMPDIR."
        ) from None


class _Appending:
    """One writer's attempts."""

    def __init__(self, found: Found, clone: Clone, message: str, *, dry_run: bool) -> None:
        self.found, self.clone, self.message, self.dry_run = found, clone, message, dry_run
        self.pushed: Stored | None = None
        """What has been sent, and may have arrived without our being told."""

    def run(self, attempts: int, sleep: Callable[[float], None], tell: Callable[[str], None]) -> Stored:
        problem: ProblemError = ProblemError("no attempt was allowed")
        attempt = 0
        for attempt in range(1, attempts + 1):
            try:
                return self._attempt(attempt)
            except AgainError as error:
                problem = error
            except ProblemError as error:
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
        except ProblemError:
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
            derived=tuple(changes.derived),
            dry_run=self.dry_run,
        )
        if self.dry_run or not (changes.added or changes.merged):
            return stored
        contents = changes.contents(self.found, self.clone)
        commit = self.clone.commit(tip, self.message or _message(stored), contents, attempt)
        self.pushed = replace(stored, commit=commit)
        self.clone.push(commit)
        return self.pushed

    def _failure(self, problem: ProblemError, attempt: int) -> RemoteError:
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
