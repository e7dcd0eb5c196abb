"""Jinja2 environments, and the functions that make anybody's text harmless in HTML and in Markdown.

A template lies beside the code that renders it and is named after what it makes: ``comment.md.j2``. It holds
our own words. Every value in it is escaped unless it is Markup already, which only these functions and the
macros of templates make: the filter `safe` of Jinja2 does not exist here.
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
    """Return anybody's text for HTML, as text and nothing else. Attributes stand in double quotes here."""
    return value if isinstance(value, Markup) else Markup(_escaped(harmless(str(value))))  # noqa: S704


def inline(value: object) -> Markup:
    """Return anybody's text for a line of Markdown, as text and nothing else."""
    if isinstance(value, Markup):
        return value
    return Markup("".join(f"\\{each}" if each in _MARKDOWN else each for each in str(value)))  # noqa: S704


def code(text: str) -> Markup:
    """Return anybody's text on one line of HTML, as code, where GitHub and Markdown act on nothing."""
    return Markup(f"<code>{safe(' '.join(text.split()))}</code>")  # noqa: S704


def pre(text: str) -> Markup:
    """Return anybody's lines as one block of HTML. Blank lines are left out: they end a block of Markdown."""
    lines = [line for line in plain_log(text).split("\n") if line.strip()]
    return Markup(f"<pre>{_escaped(chr(10).join(lines))}</pre>")  # noqa: S704


def _escaped(text: str) -> str:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, entity)
    return text


@cache
def html_environment(folder: Path) -> Environment:
    """Return the templates of a folder, in which every value becomes text of HTML."""
    return _environment(folder, safe)


@cache
def markdown_environment(folder: Path) -> Environment:
    """Return the templates of a folder, in which every value becomes text of a line of Markdown.

    Markdown that is made of raw HTML, as a comment on a pull request is, takes `html_environment`.
    """
    return _environment(folder, inline)


def _environment(folder: Path, escape: Callable[[object], Markup]) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def join(values: Iterable[object], separator: str = "") -> Markup:
        """Join the values that are not empty."""
        return escape(separator).join(map(escape, filter(None, values)))

    made = Environment(
        auto_reload=False,
        autoescape=True,  # so that macros give Markup; `escape` comes first and leaves it nothing to do
        finalize=escape,
        keep_trailing_newline=True,
        loader=FileSystemLoader(folder),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    # Filters of Jinja2 that join texts escape by its own rules, which leave characters that turn lines.
    kept = {name: made.filters[name] for name in ("batch", "length", "list", "map", "selectattr", "sum")}
    made.filters = {**kept, "code": code, "join": join, "pre": pre}
    return made
