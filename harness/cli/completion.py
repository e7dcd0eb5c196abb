"""Shell completion of cases, sizes, devices and commits. After an error there are no suggestions."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, shell_complete

from harness.suite.case_id import Selector
from harness.system.texts import harmless

if TYPE_CHECKING:
    from harness.suite.loader import KnownSuite

VARIABLE = "_HARNESS_COMPLETE"
"""click's variable for the shell's request, such as bash_complete."""
_RECENT = 30
_PACKAGES = {"opencl": "pyopencl", "opengl": "moderngl"}
_SAFE = re.compile(r"[\w./@,=:+~^-]*\Z")
"""Words that are safe to suggest. A branch can have any name, and the shell interprets an accepted word."""

Offered = Iterator[tuple[str, str]]
"""Words with their explanations, which may be empty."""


class _Bash(BashComplete):
    """Bash completion that splits words like bash, also at @, : and =, which cases and devices contain."""

    def source(self) -> str:
        return Path(__file__).with_name("completion.bash").read_text(encoding="utf-8") % self.source_vars()


def complete(command: click.Command) -> int:
    """Answer a shell with code to source, or with suggestions. Return the exit status."""
    add_completion_class(_Bash)
    with contextlib.redirect_stderr(io.StringIO()):  # it would appear in the middle of the input
        try:
            return shell_complete(command, {}, "harness", VARIABLE, os.environ[VARIABLE])
        except Exception:  # noqa: BLE001 - likewise
            return 1


def _completer(
    offered: Callable[[click.Context, str], Iterable[tuple[str, str]]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]:
    @functools.wraps(offered)
    def completing(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem[str]]:
        try:
            words = dict(offered(context, begun))
        except Exception:  # noqa: BLE001 - what is broken is told when the command runs
            return []
        return [
            CompletionItem(word, help=harmless(meaning) or None)
            for word, meaning in words.items()
            if word.startswith(begun) and _SAFE.match(word[len(begun) :])
        ]

    return completing


@_completer
def cases(_: click.Context, begun: str) -> Offered:
    """Yield suites, kernels with their suite's name, and sizes after an @; bare kernels if nothing else
    matches.
    """
    return _cases(_suites(), begun)


@_completer
def tuned(_: click.Context, begun: str) -> Offered:
    suites = _suites()
    able = {name for suite in suites for kernel in suite.tuned for name in (kernel, f"{suite.name}.{kernel}")}
    return ((word, meaning) for word, meaning in _cases(suites, begun) if word.partition("@")[0] in able)


@_completer
def ladders(_: click.Context, begun: str) -> Offered:
    suites = _suites()
    yield from ((f"{suite.name}.{ladder}", "") for suite in suites for ladder in suite.ladders)
    yield from _cases(suites, begun)


@_completer
def sizes(context: click.Context, _: str) -> Offered:
    """Yield sizes of the suites that the typed cases belong to."""
    suites, names = _suites(), list(context.args)  # options without their value prevent parsing
    for argument in ("cases", "rest", "kernel"):
        given = context.params.get(argument) or ()
        names += [given] if isinstance(given, str) else given
    chosen = [suite for suite in suites if any(_is_of(name, suite) for name in names)]
    return ((size, "") for suite in chosen or suites for size in suite.sizes)


@_completer
def devices(_: click.Context, __: str) -> Offered:
    """Yield devices that can be listed without a driver call."""
    from importlib.util import find_spec

    cards = sorted(int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*"))
    yield from ((f"cuda:{card}", "") for card in cards)
    yield from ((f"{backend}:0", "") for backend, package in _PACKAGES.items() if find_spec(package))
    yield "cpu:0", "the host's own processor"
    yield "null", "runs the whole way without hardware"


@_completer
def commits(_: click.Context, begun: str) -> Offered:
    """Yield HEAD, branches, tags and recent commits; after BASE.. too."""
    return _commits(begun)


@_completer
def commits_then_cases(context: click.Context, begun: str) -> Offered:
    """Yield commits for the first word, and then cases, unless BASE..HEAD names both commits."""
    if not context.params.get("rest") and ".." not in (context.params.get("base") or ""):
        yield from _commits(begun)
    yield from _cases(_suites(), begun)


def _suites() -> list[KnownSuite]:
    from harness.config import load_config
    from harness.suite.loader import discover, known_suites

    config = load_config()
    return [*known_suites(discover(config.root, config.suites))]


def _cases(suites: Iterable[KnownSuite], begun: str) -> Offered:
    name, at, _ = begun.rpartition("@")
    if at:
        yield from ((f"{name}@{size}", "") for suite in suites if _is_of(name, suite) for size in suite.sizes)
        return
    names = {suite.name: "" for suite in suites}
    names |= {f"{suite.name}.{name}": about for suite in suites for name, about in suite.kernels.items()}
    yield from names.items()
    if not any(name.startswith(begun) for name in names):
        yield from ((name, about) for suite in suites for name, about in suite.kernels.items())


def _is_of(name: str, suite: KnownSuite) -> bool:
    selector = Selector.parse(name)
    return any(selector.names(suite.name, kernel) for kernel in suite.kernels)


def _commits(begun: str) -> Offered:
    from harness.system import git

    base, dots, _ = begun.rpartition("..")
    for name, subject in git.names_of_commits(Path.cwd(), _RECENT):
        yield f"{base}{dots}{name}", subject
