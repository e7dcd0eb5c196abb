"""What was found of a suite's builds, kept by all that it follows from: then no worker loads the suite,
generates a source or compiles.

It is written and read by the process that runs no code of a suite, under a hash of the suite's whole tree:
what a commit's code answers is believed of that very tree alone. Beyond that it is as trustworthy as the
users who may write the cache: see "Secrets and caches" in docs/runners.md.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path

import msgspec

import harness
from harness.bench.protocol import BuildOnly, BuiltOnly
from harness.device.backends import nvcc
from harness.errors import SuiteError
from harness.spec.sources import tree_sha256
from harness.spec.suite import Suite
from harness.static import disassembly
from harness.system.cache import BinaryCache
from harness.system.files import read_regular


def key_of(suite: Suite, request: BuildOnly) -> str | None:
    """Of what a request for a suite's builds follows from; None where its files cannot be read."""
    try:
        tree = tree_sha256(suite)
    except SuiteError:
        return None
    # Headers that are found in folders are told by their whole paths.
    root = str(suite.root) if suite.include or any(each.include for each in suite.kernels) else ""
    asked = repr((suite.name, request.cases, request.archs, request.instructions))
    tools = (*nvcc.identity(), disassembly.version() if request.instructions else "")
    return BinaryCache.key(tree, (asked, root, *tools, _installed()), _own_code(), "builds")


def kept(key: str | None) -> BuiltOnly | None:
    """What was found before, while all that it rests on is as it was."""
    if key is None or (entry := BinaryCache().get(key)) is None:
        return None
    try:
        found = msgspec.msgpack.decode(entry, type=BuiltOnly)
    except msgspec.MsgspecError:
        return None
    return found if all(each.is_current() for each in found.relied_on or ()) else None


def keep(key: str | None, found: BuiltOnly) -> None:
    """Only what would be found again: a compilation that failed may have run out of time or memory."""
    told = [each.code.problem for each in found.builds if each.code]
    failed = any(each.status == "failed" for each in found.builds)
    if key is not None and found.relied_on is not None and not failed and not any(told):
        BinaryCache().put(key, msgspec.msgpack.encode(found))


@functools.cache
def _own_code() -> str:
    """A hash of this harness: another one may tell something else of the same code."""
    top, digest = Path(harness.__file__).parent, hashlib.sha256(sys.version.encode())
    for file in sorted(top.rglob("*.py")):
        digest.update(hashlib.sha256(read_regular(file)).digest())
    return digest.hexdigest()


@functools.cache
def _installed() -> str:
    """The packages that a suite can import, each with its version, as pip names their folders."""
    folders = [Path(folder) for folder in dict.fromkeys(sys.path)]
    names = (folder.glob(f"*.{kind}-info") for folder in folders for kind in ("dist", "egg"))
    return "\n".join(sorted(str(name) for some in names for name in some))
