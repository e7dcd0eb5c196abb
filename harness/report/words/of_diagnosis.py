"""Tables of why a kernel became slower, the same on every face: its machine code."""

from __future__ import annotations

from collections.abc import Collection

from harness.records.types import LoopDifference
from harness.report.table import Cell, Column, Sheet

_SIGNS = {"added": "+", "removed": "-", "readdressed": "~", "alike": ""}
_RULE = "The hottest loop has the most arithmetic; each depth of nesting counts 8 times."


def loop_sheet(loop: LoopDifference, name: str) -> Sheet:
    """The instructions of the hottest loop that one side alone has, with their source lines."""
    files = [f"{extent.partition(':')[0]}:" for extent in (loop.base, loop.head)]
    after = loop.head.removeprefix(files[0])
    places = " → ".join(dict.fromkeys(filter(None, (loop.base, after if loop.base != loop.head else ""))))
    return Sheet(
        title=f"Hottest loop of {name}: {places}, {loop.base_count} → {loop.head_count} instructions",
        caption=f"{_counts(loop)}\n{_RULE}",
        columns=[
            Column("", [_SIGNS[each.change] for each in loop.lines], text=True),
            Column("n", [f"{each.count:,}" for each in loop.lines]),
            Column("line", [_line(each.place, files) for each in loop.lines], text=True, whole=True),
            Column(
                "instruction",
                [Cell(each.text, "code") if each.text else "alike" for each in loop.lines],
                text=True,
            ),
        ],
        cut=True,
    )


def _line(place: str, files: Collection[str]) -> str:
    """Return the number of a line of the loop's own file; a line of another file with its name."""
    return place.partition(":")[2] if place.startswith(tuple(files)) else place


def _counts(loop: LoopDifference) -> str:
    counts = {
        "added": loop.added,
        "removed": loop.removed,
        "moved": loop.moved,
        "with other addresses or constants": loop.readdressed,
    }
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    shown = sum(each.count for each in loop.lines if each.change in ("added", "removed"))
    left = loop.added + loop.removed - shown
    return f"{told[0].upper()}{told[1:]}{f'; {left:,} of them not shown' if left else ''}."
