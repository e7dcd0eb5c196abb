"""Jinja2 environments, and the functions that make anybody's text harmless in HTML and in Markdown.

A template lies beside the code that renders it and is named after what it makes: ``comment.md.j2``. It holds
our own words. Every value in it is escaped unless it is Markup already, which only these functions and the
macros of templates make: the filter `safe` of Jinja2 does not exist here.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from harness.system.texts import harmless, plain_log

__all__ = ["Markup", "code", "html_environment", "inline", "markdown_environment", "pre", "safe"]

if TYPE_CHECKING:
    from jinja2 import Environment

_MARKDOWN = "\\`*_|<["


def safe(text: str) -> Markup:
    """Return anybody's text for HTML, as text and nothing else."""
    return Markup(html.escape(harmless(text)))  # noqa: S704 - escaped here


def inline(text: str) -> Markup:
    """Return anybody's text for a line of Markdown, as text and nothing else."""
    for sign in _MARKDOWN:
        text = text.replace(sign, f"\\{sign}")
    return Markup(text)  # noqa: S704 - escaped here


def code(text: str) -> Markup:
    """Return anybody's text on one line of HTML, as code, where GitHub and Markdown act on nothing."""
    return Markup("<code>{}</code>").format(safe(" ".join(text.split())))


def pre(text: str) -> Markup:
    """Return anybody's lines as one block of HTML. Blank lines are left out: they end a block of Markdown."""
    lines = [line for line in plain_log(text).split("\n") if line.strip()]
    return Markup("<pre>{}</pre>").format(Markup(html.escape("\n".join(lines))))  # noqa: S704 - escaped here


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


def _environment(folder: Path, escape: Callable[[str], Markup]) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def finalize(value: Any) -> Markup:
        return value if isinstance(value, Markup) else escape(str(value))

    def join(values: Iterable[Any], separator: str = "") -> Markup:
        return finalize(separator).join(map(finalize, values))

    made = Environment(
        autoescape=True,  # so that macros give Markup; `finalize` escapes before it has anything to do
        finalize=finalize,
        keep_trailing_newline=True,
        loader=FileSystemLoader(folder),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    # Filters of Jinja2 that join texts escape by its own rules, which leave characters that turn lines.
    made.filters = {"code": code, "join": join, "length": len, "pre": pre}
    return made
