"""What happened, for feed readers; and how it stands, for a README."""

from __future__ import annotations

__all__ = ["atom", "badge", "badge_svg"]

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

_ATOM = "http://www.w3.org/2005/Atom"
_FORBIDDEN = re.compile(
    r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)
"""What XML cannot hold, and what turns the direction of the text around it."""
_LAST_S = 253_402_300_799
"""The end of the year 9999."""
_GREEN, _RED, _GREY = "#2a7d4f", "#b3261e", "#6b6b6b"


def atom(
    changes: Sequence[Mapping[str, Any]],
    cards: Sequence[tuple[str, str]],
    cases: Sequence[str],
    project: str,
    generated_at: str,
) -> bytes:
    """An Atom feed (RFC 4287) of regressions and improvements. An entry is one change, by its id.

    `cards` are file and name of each card, by number, `cases` the names of cases.
    """
    ET.register_namespace("", _ATOM)
    feed = ET.Element(f"{{{_ATOM}}}feed")
    _add(feed, "title", f"{project}: changes of speed")
    _add(feed, "id", f"urn:gpu-harness:{_urn(project)}")
    _add(feed, "updated", generated_at)
    _add(_add(feed, "author"), "name", "gpu-harness")
    _add(feed, "link", rel="self", href="feed.xml")
    _add(feed, "link", rel="alternate", href="index.html")
    for change in changes:
        _entry(feed, change, cards[change["card"]], cases[change["case"]])
    written: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
    return written


def _entry(feed: ET.Element, change: Mapping[str, Any], card: tuple[str, str], case: str) -> None:
    file, name = card
    entry = _add(feed, "entry")
    state = f" ({change['state']})" if change["state"] else ""
    _add(entry, "title", f"{change['kind']}{state}: {case} on {name} {100 * change['effect']:+.1f} %")
    _add(entry, "id", f"urn:gpu-harness:change:{change['id']}")
    # git takes dates of which a calendar knows nothing.
    time = dt.datetime.fromtimestamp(min(max(change["time"], 0), _LAST_S), tz=dt.timezone.utc)
    _add(entry, "updated", time.isoformat(timespec="seconds"))
    place = urlencode({"card": file, "case": case, "change": change["id"]}, errors="replace")
    _add(entry, "link", href=f"case.html#{place}")
    commit = f"{change['bad_hash'][:10]} {change['subject']} ({change['author']})"
    _add(entry, "summary", f"{change['sentence']} {commit}")


def _add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, f"{{{_ATOM}}}{name}", attributes)
    if text:
        child.text = _FORBIDDEN.sub("\ufffd", text)
    return child


def _urn(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text) or "project"


def badge(card: str, opened: int, *, measured: bool) -> dict[str, Any]:
    """What shields.io's endpoint badge reads."""
    message, colour = _says(opened, measured=measured)
    return {"schemaVersion": 1, "label": card, "message": message, "color": colour.removeprefix("#")}


def _says(opened: int, *, measured: bool) -> tuple[str, str]:
    if not measured:
        return "not measured", _GREY
    if opened:
        return f"{opened} regression{'s' if opened > 1 else ''}", _RED
    return "no regression", _GREEN


def badge_svg(card: str, opened: int, *, measured: bool) -> bytes:
    """The same as a picture, for where no other site may be asked."""
    message, colour = _says(opened, measured=measured)
    label = _FORBIDDEN.sub("\ufffd", card)[:40]
    left, right = (round(6.6 * len(text)) + 12 for text in (label, message))
    said = escape(f"{label}: {message}", {'"': "&quot;"})
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" \
aria-label="{said}"><title>{said}</title>
<rect width="{left}" height="20" rx="3" fill="#444"/>
<rect x="{left - 3}" width="{right + 3}" height="20" rx="3" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left / 2:g}" y="14" textLength="{left - 12}">{escape(label)}</text>
<text x="{left + right / 2:g}" y="14" textLength="{right - 12}">{message}</text></g></svg>
""".encode()
