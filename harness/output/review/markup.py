"""HTML that stays what it is in a comment of GitHub's, and texts that only so much of fits into.

Markdown reads the lines between two blank ones as HTML, and nothing but HTML, where the first begins with a
block's tag (CommonMark 0.31, HTML blocks). So a face is made of such blocks: what is escaped in them stays
text, where in Markdown itself a dash, a pipe or an address would count although it is inside <code>. What
GitHub does later, with @names, #numbers and addresses, it leaves undone in <code> and <pre>.
"""

from __future__ import annotations

__all__ = ["Item", "Part", "code", "fit", "fixed", "link", "listed", "pre", "size_bytes"]

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from harness.output.sheet import safe
from harness.system.texts import harmless


def code(text: str) -> str:
    """Anybody's text on one line, as text and nothing else."""
    return f"<code>{safe(' '.join(text.split()))}</code>"


def pre(text: str) -> str:
    """Anybody's lines. Blank ones are left out: they would end the block for Markdown."""
    lines = [harmless(line, keep="\t") for line in text.splitlines()]
    return f"<pre>{html.escape(chr(10).join(line for line in lines if line.strip()))}</pre>"


def link(address: str, inner: str) -> str:
    """HTML as a link; without one where there is no address."""
    return f'<a href="{html.escape(address)}">{inner}</a>' if address else inner


def listed(texts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def size_bytes(text: str) -> int:
    return len(text.encode())


@dataclass(frozen=True, slots=True)
class Item:
    """Something that is shown in full or, where room is short, in brief."""

    full: str
    brief: str = ""
    """Empty where there is no shorter form."""
    cases: int = 1
    """How many cases it names."""

    @property
    def short(self) -> str:
        return self.brief or self.full


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a face: what opens it, as many of its items as fit, what closes it, what was left out."""

    tier: int = 0
    """Lower ones are served first, in brief and then in full."""
    opening: str = ""
    items: Iterable[Item] = ()
    closing: str = ""
    cases: int = 0
    """How many there are to be named."""
    more: Callable[[int], str] = str
    """Says of how many cases no item was shown. It grows with the number alone."""


def fixed(text: str) -> Part:
    """What is always shown whole."""
    return Part(opening=text)


def fit(parts: Sequence[Part], limit_bytes: int) -> str:
    """The parts in order, with as many items as there is room for.

    Within a tier every item is shown in brief before any is shown in full. What opens and closes a part and
    the sentence on what it leaves out are always there: the caller keeps them short.
    """
    shown = [_Shown(part) for part in parts]
    room = limit_bytes - sum(each.frame_bytes() for each in shown)
    for tier in sorted({part.tier for part in parts}):
        served = [each for each in shown if each.part.tier == tier]
        for each in served:
            room = each.take(room)
        for each in served:
            room = each.expand(room)
    return "\n\n".join(each.text() for each in shown) + "\n"


@dataclass(slots=True)
class _Shown:
    part: Part
    taken: list[Item] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)
    """Indices of the items that are shown in full."""

    def frame_bytes(self) -> int:
        part = self.part
        more = part.more(part.cases) if part.cases else ""
        return sum(size_bytes(text) + 1 for text in (part.opening, part.closing, more)) + 2

    def take(self, room: int) -> int:
        for item in self.part.items:
            if (needed := size_bytes(item.short) + 1) > room:
                break
            room -= needed
            self.taken.append(item)
        return room

    def expand(self, room: int) -> int:
        for index, item in enumerate(self.taken):
            needed = size_bytes(item.full) - size_bytes(item.short)
            if needed <= room:
                room -= needed
                self.whole.add(index)
        return room

    def text(self) -> str:
        part = self.part
        left = part.cases - sum(item.cases for item in self.taken)
        items = (item.full if index in self.whole else item.short for index, item in enumerate(self.taken))
        texts = (part.opening, *items, part.closing, part.more(left) if left > 0 else "")
        return "\n".join(filter(None, texts))
