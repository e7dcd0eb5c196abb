"""Texts that others wrote (commits, authors, names of files) on their way to a terminal."""

from __future__ import annotations

import re
import unicodedata

_HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of what moves the cursor, ends a line or turns the direction."""
_STYLING = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Control sequences of ANSI's, which set a terminal's colours and move its cursor."""


def harmless(text: str, *, keep: str = "") -> str:
    """The text with a sign in place of every harmful character but those to keep."""
    if text.isprintable():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(each) in _HARMFUL and each not in keep else each for each in text
    )


def plain_log(log: str) -> str:
    """The lines that a compiler or a kernel printed, without their colours, and harmless but for tabs."""
    return "\n".join(harmless(line, keep="\t") for line in _STYLING.sub("", log).splitlines())
