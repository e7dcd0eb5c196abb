"""Prepares untrusted texts (commits, authors, file names) for a terminal."""

from __future__ import annotations

import re
import unicodedata

_HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of characters that move the cursor, end a line or change the text direction."""
_STYLING = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""ANSI control sequences, which set a terminal's colours and move its cursor."""


def harmless(text: str, *, keep: str = "") -> str:
    """Return the text with a replacement for every harmful character, except those to keep."""
    if text.isprintable():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(each) in _HARMFUL and each not in keep else each for each in text
    )


def plain_log(log: str) -> str:
    """Return the lines of a compiler's or kernel's output, without colours and harmful characters except
    tabs.
    """
    return "\n".join(harmless(line, keep="\t") for line in _STYLING.sub("", log).splitlines())
