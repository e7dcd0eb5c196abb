"""Texts that others wrote (commits, authors, names of files) on their way to a terminal."""

from __future__ import annotations

import unicodedata

_HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of what moves the cursor, ends a line or turns the direction."""


def harmless(text: str, *, keep: str = "") -> str:
    """The text with a sign in place of every harmful character but those to keep."""
    return "".join(
        "\ufffd" if unicodedata.category(each) in _HARMFUL and each not in keep else each for each in text
    )
