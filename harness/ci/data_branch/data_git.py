"""git for a branch of results, in a temporary bare repository with one commit.

Nothing is ever checked out: files are compared by their hashes in git's object store, and written there by
`git fast-import`. So hooks, filters, line endings and symbolic links have no effect, and no working tree or
index is touched.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from harness.errors import GitError, UsageError
from harness.system import git
from harness.system.texts import harmless

BRANCH = "perf-data"
"""Default branch for results."""
_PATIENCE_S = 900.0


class ProblemError(Exception):
    """An unexpected answer of a remote or of git."""

    def __init__(self, message: str, log: str = "", *, hopeless: bool = False) -> None:
        super().__init__(message)
        self.message, self.log = message, log
        self.hopeless = hopeless
        """True if another attempt would fail in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    mode: str
    hash: str
    size_bytes: int

    @property
    def is_file(self) -> bool:
        return self.mode in ("100644", "100755")

    @property
    def is_folder(self) -> bool:
        return self.mode == "040000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    address: str
    branch: str

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def shown(self) -> str:
        return harmless(_USER_IN_ADDRESS.sub(r"\1", self.address))


_USER_IN_ADDRESS = re.compile(r"(\w://)[^/@\s]+@")
_TIP = "refs/harness/tip"
_ALONE = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "i18n.commitEncoding=UTF-8"),
    *("gc.auto=0", "maintenance.auto=false", "fetch.writeCommitGraph=false", "submodule.recurse=false"),
    *("push.gpgSign=false", "push.followTags=false", "push.pushOption=", "protocol.version=2"),
)
"""Settings that override those of the user."""
_OF_THE_WAY_THERE = re.compile(
    r"GIT_(SSH\w*|ASKPASS|TERMINAL_PROMPT|SSL_\w+|HTTP_\w+|PROXY_\w+|ALLOW_PROTOCOL|EXEC_PATH"
    r"|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|(KEY|VALUE)_\d+)|(AUTHOR|COMMITTER)_(NAME|EMAIL)"
    r"|CEILING_DIRECTORIES)"
)
"""git's variables that stay. Others select repositories, trace secrets, or change formats."""
_HOPELESS = re.compile(
    r"protected branch|GH0\d\d|authentication failed|could not read (username|password)"
    r"|permission denied|permission to \S+ denied|returned error: (30\d|40[134])|not found"
    r"|does not appear to be a git repository|dubious ownership|host key verification failed"
    r"|is currently checked out|unable to find remote helper|remote helper for|no space left"
    r"|insufficient permission|unable to create temporary",
    re.IGNORECASE,
)
"""Words of git or a server after which another attempt would fail in the same way."""
_ADVICE = {
    r"(?i)protected branch|GH006|GH013": "the branch is protected: exempt who stores results, or name "
    "another one with --branch",
    r"(?i)authentication failed|could not read username|permission to|error: 40[13]": "who stores must be "
    "allowed to push: in a workflow by 'contents: write', and with GITHUB_TOKEN set",
}


class BranchClone:
    """A temporary bare repository with the newest commit of the branch."""

    def __init__(self, scratch: Path, target: Target, identities: tuple[str, str]) -> None:
        self.target, self.identities = target, identities
        self.scratch, self.repository = scratch, scratch / "data.git"
        self.algorithm = "sha1"
        token = os.environ.get("GITHUB_TOKEN", "").strip()
        self.secrets = (token, _basic(token)) if token else ()
        self.environment = _environment(_authorization(target.address, token) if token else ())
        # A repository around the temporary folder must have no effect.
        self.environment["GIT_CEILING_DIRECTORIES"] = str(scratch.parent)

    def fetch(self) -> str | None:
        """Return the branch's newest commit; None without a branch. Raises ProblemError."""
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

    def tree(self, commit: str | None) -> dict[str, TreeEntry]:
        """Return all entries of a commit by path, including folders."""
        if commit is None:
            return {}
        listed = self._inside("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit)
        tree = {}
        for line in filter(None, listed.split(b"\0")):
            about, _, path = line.partition(b"\t")
            mode, _, name, size = about.decode().split()
            size_bytes = int(size) if size.isdigit() else 0
            tree[os.fsdecode(path)] = TreeEntry(mode=mode, hash=name, size_bytes=size_bytes)
        return tree

    def blob(self, name: str) -> bytes:
        return self._inside("cat-file", "blob", name)

    def hash_of(self, content: bytes) -> str:
        """Return git's hash of a file with this content."""
        header = b"blob %d\0" % len(content)
        return hashlib.new(self.algorithm, header + content, usedforsecurity=False).hexdigest()

    def commit(
        self, parent: str | None, message: str, contents: Iterator[tuple[str, bytes]], attempt: int
    ) -> str:
        """Return a commit of these files on top of another, or of none. Raises ProblemError, OSError."""
        ref = f"refs/harness/attempt-{attempt}"
        with tempfile.TemporaryFile(dir=self.scratch) as stream:
            self._describe(stream, ref, parent, message)
            for path, content in contents:
                stream.write(b"M 100644 inline %b\n" % path.encode())
                _write_data(stream, content)
            stream.write(b"done\n")
            stream.seek(0)
            self._inside("fast-import", "--quiet", "--done", stdin=stream)
        return self._inside("rev-parse", "--verify", ref).decode().strip()

    def _describe(self, stream: IO[bytes], ref: str, parent: str | None, message: str) -> None:
        author, committer = self.identities
        stream.write(f"commit {ref}\nauthor {author}\ncommitter {committer}\n".encode(errors="replace"))
        _write_data(stream, message.replace("\0", "").encode(errors="replace") + b"\n")
        stream.write(f"from {parent}\n".encode() if parent else b"")

    def push(self, commit: str) -> None:
        """Push to the branch. Raises ProblemError, for example if another writer was first, or the remote was
        busy.
        """
        options = ("--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--no-recurse-submodules")
        spec = f"{commit}:{self.target.ref}"
        self._inside("push", "--quiet", *options, "--", self.target.address, spec)

    def _inside(self, *arguments: str, stdin: IO[bytes] | None = None) -> bytes:
        """Return the output of a git command on the bare repository. Raises ProblemError."""
        return self._run("--git-dir", str(self.repository), *arguments, stdin=stdin)

    def _run(self, *arguments: str, stdin: IO[bytes] | None = None) -> bytes:
        words = [*(word for setting in _ALONE for word in ("-c", setting)), *arguments]
        try:
            done = git.run(
                words, folder=self.scratch, env=self.environment, timeout_s=_PATIENCE_S, stdin=stdin
            )
        except subprocess.TimeoutExpired:
            raise ProblemError(f"git did not come back within {_PATIENCE_S:g} s") from None
        if done.returncode:
            raise self._problem((done.stderr + b"\n" + done.stdout).decode(errors="replace"))
        return done.stdout

    def _problem(self, said: str) -> ProblemError:
        for secret in self.secrets:
            said = said.replace(secret, "***")
        said = harmless(_USER_IN_ADDRESS.sub(r"\1", said), keep="\n\t")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("hint:", "To ", "Done", "error: failed to"))]
        rejected = [line.rpartition("\t")[2] for line in lines if line.startswith("!\t")]
        blamed = [line for line in lines if line.startswith(("fatal:", "error:"))]
        chosen = (rejected or blamed[:1] or lines[-1:] or ["git gave no reason"])[0]
        advice = next((f" ({remedy})" for words, remedy in _ADVICE.items() if re.search(words, said)), "")
        hopeless = _HOPELESS.search(said) is not None
        return ProblemError(chosen[:300].rstrip(".") + advice, "\n".join(lines[-40:]), hopeless=hopeless)


def _write_data(stream: IO[bytes], data: bytes) -> None:
    stream.write(b"data %d\n%b\n" % (len(data), data))


def _environment(settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Return variables for a git command on the repository that it names, without influence of others.

    Secret settings are passed this way, because every user of a machine can see arguments.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or _OF_THE_WAY_THERE.fullmatch(name)
    }
    environment.setdefault("GIT_TERMINAL_PROMPT", "0")
    # A user whose git settings enable tracing would find the secret in the traces.
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
        port = 443 if parts.port is None else parts.port
    except ValueError:
        return None
    return (
        (parts.hostname, port) if parts.scheme == "https" and parts.hostname and not parts.password else None
    )


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


def _authorization(address: str, token: str) -> tuple[tuple[str, str], ...]:
    """Return settings with which git shows a token only to $GITHUB_SERVER_URL.

    None if the address has another host, or one of them is not encrypted.
    """
    home = _https_host(os.environ.get("GITHUB_SERVER_URL", ""))
    if home is None or home != _https_host(address):
        return ()
    host, port = home
    key = f"http.https://{host}{'' if port == 443 else f':{port}'}/.extraheader"
    # An empty value removes earlier ones of the same key: a server refuses two.
    return (key, ""), (key, f"AUTHORIZATION: basic {_basic(token)}"), ("http.followRedirects", "false")


def address_of(root: Path, remote: str) -> str:
    """Return the address behind a remote's name. Raises GitError for no name, address or path."""
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
    """Return the answer of the repository around a folder, ignoring repositories in the environment."""
    return git.run(arguments, folder=root, env=_environment())


def _absolute(address: str, folder: Path) -> str:
    is_elsewhere = "://" in address or ":" in address.partition("/")[0]
    return address if is_elsewhere else os.path.normpath(folder / address)


def branch_of(name: str, root: Path) -> str:
    if name.startswith("-") or _asked(root, "check-ref-format", f"refs/heads/{name}").returncode:
        raise UsageError(f"{name!r} is no name for a branch.")
    return name


_NOBODY = "gpu-harness <gpu-harness@noreply.invalid>"


def identities(root: Path) -> tuple[str, str]:
    """Return author and committer for git: the user configured in a folder, else a generic one."""

    def known(role: str) -> str:
        # Without this setting git would invent one from user and host.
        done = _asked(root, "-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT")
        found = done.stdout.decode(errors="replace").strip()
        return found if not done.returncode and found else f"{_NOBODY} {int(time.time())} +0000"

    return known("AUTHOR"), known("COMMITTER")
