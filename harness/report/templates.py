"""Jinja2 environments, and functions that escape any text for HTML and Markdown.

A template lies beside the code that renders it, and is named after its result: ``comment.md.j2``. It contains
our own text. Every value is escaped unless it is Markup, which only these functions and the macros of
templates make. Jinja2's filter `safe` is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from harness.system.texts import harmless, plain_log

__all__ = ["Markup", "code", "html_environment", "inline", "markdown_environment", "pre", "safe"]

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Markup", "code", "html_environment", "inline", "markdown_environment", "pre", "safe"]

_MARKDOWN = "\\`*_|<["


def safe(value: object) -> Markup:
    """Return any text for HTML without markup. Attributes need double quotes."""
    return value if isinstance(value, Markup) else Markup(_escaped(harmless(str(value))))  # noqa: S704


def inline(value: object) -> Markup:
    """Return any text for a line of Markdown without markup."""
    if isinstance(value, Markup):
        return value
    return Markup("".join(f"\\{each}" if each in _MARKDOWN else each for each in str(value)))  # noqa: S704


def code(text: str) -> Markup:
    """Return any text as code on one line of HTML, where GitHub and Markdown interpret nothing."""
    return Markup(f"<code>{safe(' '.join(text.split()))}</code>")  # noqa: S704


def pre(text: str) -> Markup:
    """Return lines as one block of HTML. Blank lines are left out, because they end a block of Markdown."""
    lines = [line for line in plain_log(text).split("\n") if line.strip()]
    return Markup(f"<pre>{_escaped(chr(10).join(lines))}</pre>")  # noqa: S704


def _escaped(text: str) -> str:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, entity)
    return text


@cache
def html_environment(folder: Path) -> Environment:
    """Return the templates of a folder, with every value escaped for HTML."""
    return _environment(folder, safe)


@cache
def markdown_environment(folder: Path) -> Environment:
    """Return the templates of a folder, with every value escaped for a line of Markdown.

    Markdown made of raw HTML, such as a comment on a pull request, needs `html_environment`.
    """
    return _environment(folder, inline)


def _environment(folder: Path, escape: Callable[[object], Markup]) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def join(values: Iterable[object], separator: str = "") -> Markup:
        """Join the values that are not empty."""
        return escape(separator).join(map(escape, filter(None, values)))

    made = Environment(
        auto_reload=False,
        autoescape=True,  # so that macros return Markup; `escape` runs first
        finalize=escape,
        keep_trailing_newline=True,
        loader=FileSystemLoader(folder),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    # Jinja2's filters that join texts escape by its own rules, which keep characters that change the text
    # direction.
    kept = {name: made.filters[name] for name in ("batch", "length", "list", "map", "selectattr", "sum")}
    made.filters = {**kept, "code": code, "join": join, "pre": pre}
    return made
